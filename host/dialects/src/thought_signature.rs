//! Data that only a provider can read, as clients carry it in a signature of Google's form: the `thoughtSignature` of a
//! part, and the `extra_content.google.thought_signature` of a call in Chat Completions.
//!
//! Clients send this field back and do not read it, but Google's SDKs drop fields that they do not know, and clients of
//! Chat Completions keep this one alone: the provider's name has no other place. Google's SDK for Python decodes the
//! field, and encodes it with the URL-safe alphabet.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};
use weir_sandbox::adapter::bindings::chat::Part;

use crate::json::{FieldFault, check_at_most};

/// The prefix, within the encoding, that distinguishes weir's signatures from other servers'.
const PREFIX: &[u8] = b"weir.";

const MAX_PROVIDER_CHARS: usize = 64;

const URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A signature with its provider.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ThoughtSignature {
    /// The provider's name in the configuration; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) provider: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) signature: String,
    /// The form of the reasoning that only the provider can read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) sealed: String,
}

impl ThoughtSignature {
    /// Writes the signature for a client; `None` if it is empty.
    pub(crate) fn write(&self) -> Option<String> {
        if self.signature.is_empty() && self.sealed.is_empty() {
            return None;
        }
        let mut bytes = PREFIX.to_vec();
        serde_json::to_writer(&mut bytes, self).expect("it is texts");
        Some(STANDARD.encode(bytes))
    }

    /// Reads a client's signature from a field. Another server's stays unchanged, for an upstream of Google's dialect.
    pub(crate) fn read(text: &str, field: &str) -> Result<Self, FieldFault> {
        let own = || {
            let bytes = URL_SAFE.decode(url_safe(text)).ok()?;
            serde_json::from_slice(bytes.strip_prefix(PREFIX)?).ok()
        };
        let read: Self = own().unwrap_or_else(|| Self {
            signature: text.to_owned(),
            ..Self::default()
        });
        check_at_most(&read.provider, MAX_PROVIDER_CHARS, field)?;
        Ok(read)
    }

    /// Puts the signature and its provider into a part.
    pub(crate) fn sign(self, part: &mut Part) {
        let given = |text: String| (!text.is_empty()).then_some(text);
        part.signature = given(self.signature);
        part.provider = given(self.provider);
    }
}

fn url_safe(text: &str) -> String {
    text.replace('+', "-").replace('/', "_")
}
