//! Data that only a provider can read, as clients carry it: in the `thoughtSignature` of a part.
//!
//! Clients send this field back and do not read it, but Google's SDKs drop fields that they do not know: the
//! provider's name has no other place. The SDK for Python decodes the field, and encodes it with the URL-safe alphabet.

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
pub(super) struct ThoughtSignature {
    /// The provider's name in the configuration; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) provider: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) signature: String,
    /// The form of the reasoning that only the provider can read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) sealed: String,
}

impl ThoughtSignature {
    /// Writes the signature for a client; `None` if it is empty.
    pub(super) fn write(&self) -> Option<String> {
        if self.signature.is_empty() && self.sealed.is_empty() {
            return None;
        }
        let mut bytes = PREFIX.to_vec();
        serde_json::to_writer(&mut bytes, self).expect("it is texts");
        Some(STANDARD.encode(bytes))
    }

    /// Reads a client's signature. Another server's stays unchanged, for an upstream of this dialect.
    pub(super) fn read(text: &str) -> Result<Self, FieldFault> {
        let own = || {
            let bytes = URL_SAFE.decode(url_safe(text)).ok()?;
            serde_json::from_slice(bytes.strip_prefix(PREFIX)?).ok()
        };
        let read: Self = own().unwrap_or_else(|| Self {
            signature: text.to_owned(),
            ..Self::default()
        });
        check_at_most(&read.provider, MAX_PROVIDER_CHARS, "thoughtSignature")?;
        Ok(read)
    }

    /// Puts the signature and its provider into a part.
    pub(super) fn sign(self, part: &mut Part) {
        let given = |text: String| (!text.is_empty()).then_some(text);
        part.signature = given(self.signature);
        part.provider = given(self.provider);
    }
}

fn url_safe(text: &str) -> String {
    text.replace('+', "-").replace('/', "_")
}
