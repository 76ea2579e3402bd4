//! Data that only a provider can read, as clients carry it: in the `encrypted_content` of a reasoning item.
//!
//! Every client sends this field back unchanged, and no client parses it. It holds the provider's name and the
//! signature or the sealed form, of the reasoning itself or of the previous item: some providers sign calls and text,
//! too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The prefix that distinguishes weir's proofs from those of other gateways and vendors.
const PREFIX: &str = "weir.";

/// A proof, with its provider.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ReasoningProof {
    /// The provider's name in the configuration; empty if unknown.
    pub(super) provider: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) signature: String,
    /// The form of the reasoning that only the provider can read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) sealed: String,
    #[serde(default)]
    pub(super) of: ProvenContent,
}

/// The proven content.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProvenContent {
    /// The reasoning of the item itself.
    #[default]
    Reasoning,
    /// The text before it.
    Text,
    /// The call before it, with this id.
    Call(String),
}

impl ReasoningProof {
    /// Writes the proof for a client; `None` if it is empty.
    pub(super) fn write(&self) -> Option<String> {
        if self.signature.is_empty() && self.sealed.is_empty() {
            return None;
        }
        let json = serde_json::to_vec(self).expect("it is texts");
        Some(format!("{PREFIX}{}", STANDARD.encode(json)))
    }

    /// Reads a client's proof. The result for other gateways' or vendors' data has no known provider, so that no
    /// upstream receives it.
    pub(super) fn read(text: &str) -> Self {
        let own = text.strip_prefix(PREFIX).and_then(|text| {
            let json = STANDARD.decode(text).ok()?;
            serde_json::from_slice(&json).ok()
        });
        own.unwrap_or_else(|| Self {
            sealed: text.to_owned(),
            ..Self::default()
        })
    }
}
