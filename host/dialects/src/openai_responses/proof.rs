//! What only a provider can read again, as a client carries it: in the `encrypted_content` of a reasoning item.
//!
//! That is the one place that every client sends back as it got it, and no client looks into. It holds the provider's name
//! beside the signature or the sealed form, of the reasoning itself or of the item right before it: some providers sign
//! calls and text, too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// What tells a proof of weir's from what other gateways and vendors have in its place.
const PREFIX: &str = "weir.";

/// A proof, and who gave it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Proof {
    /// By its name in the configuration; empty where that is not known.
    pub(super) provider: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) signature: String,
    /// The form of the reasoning that only the provider can read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) sealed: String,
    #[serde(default)]
    pub(super) of: Proven,
}

/// What is proven.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Proven {
    /// The reasoning whose item it stands in.
    #[default]
    Reasoning,
    /// The text before it.
    Text,
    /// The call before it, which has this id.
    Call(String),
}

impl Proof {
    /// As a client gets it; nothing if it proves nothing.
    pub(super) fn write(&self) -> Option<String> {
        if self.signature.is_empty() && self.sealed.is_empty() {
            return None;
        }
        let json = serde_json::to_vec(self).expect("it is texts");
        Some(format!("{PREFIX}{}", STANDARD.encode(json)))
    }

    /// What a client sends back. What another gateway or a vendor has sealed is sealed by nobody who is known here, so
    /// that no upstream is sent it.
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
