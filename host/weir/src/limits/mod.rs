//! Limits that several features share.

pub mod connections;
pub mod settings;
