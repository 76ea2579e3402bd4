//! Publishers' signatures on components: Ed25519 over a component's kind, slot, version and digest.
//!
//! A signature is one line of JSON, in a file beside the component or in a header. The signed bytes are a text of
//! weir's own ([`Signature::signed_text`]) and not the JSON, since JSON has many spellings of one meaning.

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use semver::Version;
use serde::{Deserialize, Serialize};
use weir_sandbox::Digest;

use super::component::PluginKind;

/// The first line of the signed text: a signature with another purpose is invalid for a component.
const PURPOSE: &str = "weir plugin signature, version 1";

/// Maximum bytes of a signature as it is sent; a typical one has some 400.
pub const SIGNATURE_BYTES: usize = 2_048;

/// Bytes of a public key.
const KEY_BYTES: usize = 32;

/// A publisher's public key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublisherKey([u8; KEY_BYTES]);

/// A publisher's signature on a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The component's kind.
    pub kind: PluginKind,
    /// The only slot for which the signature is valid.
    pub slot: String,
    /// Its version, by [Semantic Versioning](https://semver.org).
    pub version: Version,
    /// The digest of its code.
    pub digest: Digest,
    /// The key of the signature.
    pub key: PublisherKey,
    /// 64 bytes, in Base64.
    signature: String,
}

impl Signature {
    /// Signs a component.
    pub fn of(
        key: &SigningKey,
        kind: PluginKind,
        slot: &str,
        version: Version,
        digest: Digest,
    ) -> Self {
        let mut signature = Self {
            kind,
            slot: slot.to_owned(),
            version,
            digest,
            key: key.public_key(),
            signature: String::new(),
        };
        let signed = key.0.sign(signature.signed_text().as_bytes());
        signature.signature = BASE64.encode(signed);
        signature
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > SIGNATURE_BYTES {
            return Err(format!(
                "a signature has at most {SIGNATURE_BYTES} bytes, and this one {}",
                text.len()
            ));
        }
        serde_json::from_str(text.trim()).map_err(|error| error.to_string())
    }

    /// Returns its JSON, on one line.
    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Returns whether its key has signed its contents.
    pub fn is_genuine(&self) -> bool {
        let Ok(signature) = BASE64.decode(&self.signature) else {
            return false;
        };
        let key = UnparsedPublicKey::new(&ED25519, &self.key.0);
        key.verify(self.signed_text().as_bytes(), &signature)
            .is_ok()
    }

    /// Returns the signed text: a line each of the purpose, the kind, the slot, the version and the digest. None of
    /// the values contains a line break: a verifier requires the slot to equal a checked slot name.
    fn signed_text(&self) -> String {
        format!(
            "{PURPOSE}\n{}\n{}\n{}\n{}\n",
            self.kind.as_str(),
            self.slot,
            self.version,
            self.digest
        )
    }
}

impl PublisherKey {
    /// Parses a key from the Base64 of its 32 bytes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = BASE64.decode(text).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(Self)
            .ok_or_else(|| format!("a public key is the Base64 of {KEY_BYTES} bytes"))
    }
}

impl fmt::Display for PublisherKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&BASE64.encode(self.0))
    }
}

impl fmt::Debug for PublisherKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({self})")
    }
}

impl Serialize for PublisherKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublisherKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A publisher's private key.
pub struct SigningKey(Ed25519KeyPair);

const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";

impl SigningKey {
    /// Generates a key. Also returns its PEM: PKCS #8, as OpenSSL writes and reads Ed25519 keys.
    pub fn generate() -> anyhow::Result<(Self, String)> {
        let key = Ed25519KeyPair::generate()
            .map_err(|_| anyhow::anyhow!("the generation of a key failed"))?;
        let document = key
            .to_pkcs8v1()
            .map_err(|_| anyhow::anyhow!("the key cannot be written"))?;
        let pem = format!(
            "{PEM_BEGIN}\n{}\n{PEM_END}\n",
            BASE64.encode(document.as_ref())
        );
        Ok((Self(key), pem))
    }

    pub fn parse(pem: &str) -> Option<Self> {
        let lines = pem.trim().strip_prefix(PEM_BEGIN)?.strip_suffix(PEM_END)?;
        let encoded: String = lines.split_ascii_whitespace().collect();
        let document = BASE64.decode(encoded).ok()?;
        Ed25519KeyPair::from_pkcs8(&document).ok().map(Self)
    }

    /// Returns the public key, as publishers' `keys` list it.
    pub fn public_key(&self) -> PublisherKey {
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublisherKey(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature() -> Signature {
        let (key, pem) = SigningKey::generate().expect("a key");
        let read = SigningKey::parse(&pem).expect("its own PEM");
        assert_eq!(read.public_key(), key.public_key());
        let version = Version::new(1, 2, 3);
        Signature::of(
            &read,
            PluginKind::Adapter,
            "acme",
            version,
            Digest::of(b"component"),
        )
    }

    #[test]
    fn a_signature_is_read_as_it_was_written_and_holds() {
        let signature = signature();
        let read = Signature::parse(&signature.to_json()).expect("its own JSON");
        assert_eq!(read, signature);
        assert!(read.is_genuine());
    }

    #[test]
    fn a_signature_holds_for_each_thing_that_it_says() {
        let good = signature();
        let changes: [fn(&mut Signature); 6] = [
            |signature| signature.kind = PluginKind::Tool,
            |signature| signature.slot = "another".into(),
            |signature| signature.version = Version::new(1, 2, 4),
            |signature| signature.digest = Digest::of(b"another"),
            |signature| signature.key = self::signature().key,
            |signature| signature.signature = self::signature().signature,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(!bad.is_genuine(), "change {number}");
        }
    }

    #[test]
    fn a_text_that_is_no_signature_or_key_is_refused() {
        let unknown = signature().to_json().replacen('{', "{\"more\":1,", 1);
        for bad in [
            "",
            "{}",
            "null",
            &*unknown,
            &" ".repeat(SIGNATURE_BYTES + 1),
        ] {
            assert!(Signature::parse(bad).is_err(), "{bad}");
        }
        assert!(SigningKey::parse("a key").is_none());
        assert!(PublisherKey::parse("AAAA").is_err());
    }
}
