//! Tells a webhook of the agent's.

pub mod call;

weir_sdk::export_tool!(call::Webhook);
