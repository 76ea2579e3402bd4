//! Limits that several features share.

pub mod settings;
