//! Data that only a provider can read, as clients carry it in a text for reasoning that they cannot read: the
//! `encrypted_content` of a reasoning item of Responses, the `data` of a `redacted_thinking` block of Messages, and, for
//! texts, the `data` of an entry of `reasoning_details` of Chat Completions.
//!
//! Every client sends these fields back unchanged, and no client parses them. The text holds the provider's name and the
//! signature or the sealed form, of the reasoning itself or of other content: some providers sign calls and text, too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use weir_sandbox::adapter::bindings::chat::{Content, Part};

use crate::plain;

/// The prefix that distinguishes weir's proofs from those of other gateways and vendors.
const PREFIX: &str = "weir.";

/// A proof, with its provider.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReasoningProof {
    /// The provider's name in the configuration; empty if unknown.
    pub(crate) provider: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) signature: String,
    /// The form of the reasoning that only the provider can read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) sealed: String,
    #[serde(default)]
    pub(crate) of: ProvenContent,
}

/// The proven content.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProvenContent {
    /// The reasoning of the item itself.
    #[default]
    Reasoning,
    /// The text before the item.
    Text,
    /// The call with this id.
    Call(String),
}

impl ReasoningProof {
    /// Writes the proof for a client; `None` if it is empty.
    pub(crate) fn write(&self) -> Option<String> {
        if self.signature.is_empty() && self.sealed.is_empty() {
            return None;
        }
        let json = serde_json::to_vec(self).expect("it is texts");
        Some(format!("{PREFIX}{}", STANDARD.encode(json)))
    }

    /// Reads a client's proof. The result for other gateways' or vendors' data has no known provider, so that no
    /// upstream receives it.
    pub(crate) fn read(text: &str) -> Self {
        Self::read_own(text).unwrap_or_else(|| Self {
            sealed: text.to_owned(),
            ..Self::default()
        })
    }

    /// Reads a client's proof; `None` for other gateways' or vendors' data.
    pub(crate) fn read_own(text: &str) -> Option<Self> {
        let json = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        serde_json::from_slice(&json).ok()
    }

    /// Puts the signature and its provider into a part.
    pub(crate) fn sign(self, part: &mut Part) {
        let given = |text: String| (!text.is_empty()).then_some(text);
        part.signature = given(self.signature);
        part.provider = given(self.provider);
    }

    /// Signs the last of these parts if it is a text, or else an empty text behind it: the clients' dialects have no
    /// empty text, but Google's models sign some.
    pub(crate) fn sign_text(self, parts: &mut Vec<Part>) {
        let is_open =
            |part: &&mut Part| part.signature.is_none() && matches!(part.content, Content::Text(_));
        match parts.last_mut().filter(is_open) {
            Some(part) => self.sign(part),
            None => {
                let mut part = plain(Content::Text(String::new()));
                self.sign(&mut part);
                parts.push(part);
            }
        }
    }
}
