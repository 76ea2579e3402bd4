//! Imports of other gateways' configurations and of public price files. Only commands use them.
//!
//! - [`litellm`]: the configuration of LiteLLM's proxy.
//! - [`prices`]: price files, and how they differ from the configured models.

pub mod litellm;
pub mod prices;
