//! A tool that calls a webhook of the agent.

pub mod call;

weir_sdk::export_tool!(call::Webhook);
