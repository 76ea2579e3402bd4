//! Limits that several features share.

pub mod connections;
pub mod data;
pub mod settings;
