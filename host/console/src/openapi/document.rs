//! The document as clients receive it.

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha256};
use weir_storage::ids::Hex;

/// The serialised document.
pub struct OpenApiDocument {
    /// The document as JSON.
    pub text: Bytes,
    /// The document's digest, with which clients revalidate their copy.
    pub etag: String,
}

impl OpenApiDocument {
    /// Serialises a document.
    pub(super) fn new(document: &Value) -> Self {
        let text = document.to_string();
        let digest: [u8; 32] = Sha256::digest(&text).into();
        Self {
            etag: format!("\"{}\"", Hex(&digest[..16])),
            text: text.into(),
        }
    }
}
