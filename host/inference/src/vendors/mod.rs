//! The endpoints of vendors' APIs under `/v1` and `/v1beta`, except Chat Completions, which weir's own endpoints speak, too.
//!
//! [`weir_dialects`] reads their requests and writes their responses.

pub mod audio;
pub mod completions;
pub mod gemini;
pub mod images;
pub mod messages;
pub mod models;
pub mod responses;
pub mod retrieval;
