//! Sealing: encryption of stored values that only weir may read, such as responses.
//!
//! The cipher is XChaCha20-Poly1305, whose nonces are long enough to be random for any number of values. A sealed
//! value names its key, so that keys can be replaced: the first configured key seals, and all keys open. To replace a
//! key without data loss: add the new key behind the old one on every node, then swap them on every node, then drop
//! the old key once no value sealed under it remains.
//!
//! ```text
//! version (1 byte) · key id (4, big-endian) · nonce (24) · ciphertext · tag (16)
//! ```
//!
//! **Invariant:** a value opens only in the context in which it was sealed: version, key id, [`Purpose`] and the
//! caller's fields, such as the user's id, are authenticated with it.
//! **Invariant:** nodes that share a database share its sealing keys. The database keeps a fingerprint of each key,
//! and a node with a different key under the same id does not start.

use std::path::Path;

use anyhow::{Context, ensure};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::Mac as _;
use serde::Deserialize;

use crate::database::{Database, at_start};
use crate::secrets::{SecretKey, SecretSource, random_bytes};

/// The purpose of a sealed or tagged value: a value sealed for another purpose does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purpose(&'static str);

impl Purpose {
    /// A response that is kept for its `Idempotency-Key`.
    pub const IDEMPOTENT_ANSWER: Self = Self("idempotent answer");
    /// A response that is kept for equal requests.
    pub const CACHED_RESPONSE: Self = Self("cached response");
    /// The messages of a session.
    pub const SESSION: Self = Self("session");
    /// The request and the result of a swarm.
    pub const SWARM: Self = Self("swarm");
    /// A task's instructions, and the reason of its failure.
    pub const TASK: Self = Self("task");
    /// The credential of the tools of a task's agents.
    pub const TASK_CREDENTIAL: Self = Self("task credential");
    pub const RECORDING: Self = Self("recorded exchange");
    /// The prompt and the response of a request.
    pub const CONTENT_LOG: Self = Self("content log");
    /// The message and the attempts of a failed request.
    pub const FAILED_REQUEST: Self = Self("failed request");
    /// A tag that tells one tool call from another for its receivers.
    pub const TOOL_CALL: Self = Self("tool call");
    /// The token with which a node calls another one.
    pub const NODE_TOKEN: Self = Self("node token");
    /// The console's sign-in cookie.
    pub const CONSOLE_SESSION: Self = Self("console session");
    /// The cookie of a sign-in that has begun at an issuer.
    pub const CONSOLE_SIGN_IN: Self = Self("console sign-in");
    /// The cookie with the notice for the console's next page.
    pub const CONSOLE_NOTICE: Self = Self("console notice");
}

/// A sealing key in the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SealingKeySettings {
    /// Id from 1, never reused for another key. Required.
    pub id: u32,
    /// Secret source of at least 32 bytes, such as the output of `openssl rand -hex 32`. Required.
    pub key: SecretSource,
}

/// All keys that values may be sealed under; at least one. Cheap to clone.
#[derive(Debug, Clone)]
pub struct KeyRing(std::sync::Arc<[SealingKey]>);

#[derive(Debug, Clone)]
struct SealingKey {
    id: u32,
    key: SecretKey,
}

/// The reason that a value does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The bytes are not a sealed value of a known version.
    #[error("the sealed value is malformed")]
    Malformed,
    /// The value's key is not configured, or no longer.
    #[error("there is no sealing key of id {0}")]
    UnknownKey(u32),
    /// The value was changed, or sealed for another purpose.
    #[error("the sealed value fails authentication")]
    NotAuthentic,
}

/// The format of sealed values.
const VERSION: u8 = 1;

/// The id of the key that a gateway without configured keys generates for itself.
const OWN_ID: u32 = 1;

/// Bytes of version and key id.
const HEAD_BYTES: usize = 5;

const NONCE_BYTES: usize = 24;

impl KeyRing {
    /// Reads the configured keys. Without any, it reads the gateway's own key from the file `own`, which the first
    /// use creates.
    pub fn read(configured: &[SealingKeySettings], own: &Path) -> anyhow::Result<Self> {
        if configured.is_empty() {
            let key = SecretKey::load_or_create(own)?;
            return Ok(Self([SealingKey { id: OWN_ID, key }].into()));
        }
        let keys = configured.iter().map(SealingKey::read);
        Ok(Self(keys.collect::<anyhow::Result<_>>()?))
    }

    /// Compares the keys with the fingerprints in the database.
    pub async fn compare(&self, database: &Database) -> anyhow::Result<()> {
        for key in &*self.0 {
            let known = at_start(|| known_fingerprint(database, key))
                .await
                .context("comparing the sealing keys with the database's")?;
            ensure!(
                known == key.fingerprint(),
                "what this database holds is sealed under another key of id {} than this node has: nodes that \
                 share a database need the same `sealing_keys`",
                key.id
            );
        }
        Ok(())
    }

    /// A ring of these keys, the sealing key first, without a check against a database; e.g. for tests.
    pub fn of(keys: impl IntoIterator<Item = (u32, SecretKey)>) -> Self {
        let keys = keys.into_iter().map(|(id, key)| SealingKey { id, key });
        Self(keys.collect())
    }

    /// Returns the id of the sealing key: long-lived values under another key are sealed anew.
    pub fn current_id(&self) -> u32 {
        self.0[0].id
    }

    /// Seals a value. It opens only with the same purpose and the same fields.
    pub fn seal(&self, purpose: Purpose, fields: &[&[u8]], plaintext: &[u8]) -> Vec<u8> {
        let key = &self.0[0];
        let nonce = random_bytes::<NONCE_BYTES>();
        let mut sealed = Vec::with_capacity(HEAD_BYTES + NONCE_BYTES + plaintext.len() + 16);
        sealed.push(VERSION);
        sealed.extend(key.id.to_be_bytes());
        let associated = associated(&sealed, purpose, fields);
        let payload = Payload {
            msg: plaintext,
            aad: &associated,
        };
        let ciphertext = key
            .cipher()
            .encrypt(&XNonce::from(nonce), payload)
            .unwrap_or_else(|_| unreachable!("256 GiB do not fit into memory"));
        sealed.extend(nonce);
        sealed.extend(ciphertext);
        sealed
    }

    /// Returns a tag that distinguishes these fields and reveals nothing of them without the key. The tag changes
    /// with the sealing key.
    pub fn tag(&self, purpose: Purpose, fields: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.0[0].key.mac(b"weir tag\0");
        mac.update(&associated(&[], purpose, fields));
        mac.finalize().into_bytes().into()
    }

    /// Opens a sealed value.
    pub fn unseal(
        &self,
        purpose: Purpose,
        fields: &[&[u8]],
        sealed: &[u8],
    ) -> Result<Vec<u8>, OpenError> {
        let (head, rest) = sealed
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(OpenError::Malformed)?;
        let (nonce, ciphertext) = rest
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or(OpenError::Malformed)?;
        let [VERSION, id @ ..] = *head else {
            return Err(OpenError::Malformed);
        };
        let id = u32::from_be_bytes(id);
        let key = self.0.iter().find(|key| key.id == id);
        let key = key.ok_or(OpenError::UnknownKey(id))?;
        let payload = Payload {
            msg: ciphertext,
            aad: &associated(head, purpose, fields),
        };
        key.cipher()
            .decrypt(&XNonce::from(*nonce), payload)
            .map_err(|_| OpenError::NotAuthentic)
    }
}

impl SealingKey {
    fn read(settings: &SealingKeySettings) -> anyhow::Result<Self> {
        let id = settings.id;
        let key = SecretKey::configured(&settings.key, &format!("the sealing key of id {id}"))?;
        Ok(Self { id, key })
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.key.expose().into())
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.key.fingerprint(b"weir sealing key\0")
    }
}

/// Returns the associated data. Each part goes with its length, so no two lists of parts are equal.
fn associated(head: &[u8], purpose: Purpose, fields: &[&[u8]]) -> Vec<u8> {
    let mut associated = head.to_vec();
    for part in std::iter::once(&purpose.0.as_bytes()).chain(fields) {
        associated.extend((part.len() as u64).to_be_bytes());
        associated.extend(*part);
    }
    associated
}

/// Returns the fingerprint of a key's id: the database's, or this key's if the database has none.
async fn known_fingerprint(database: &Database, key: &SealingKey) -> sqlx::Result<Vec<u8>> {
    let keep =
        "INSERT INTO sealing_keys (id, fingerprint) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
    let read = "SELECT fingerprint FROM sealing_keys WHERE id = $1";
    database
        .keep_first(keep, read, key.id.into(), key.fingerprint())
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURPOSE: Purpose = Purpose::IDEMPOTENT_ANSWER;
    const FIELDS: &[&[u8]] = &[b"alice", b"key-1"];

    fn ring(keys: &[(u32, u8)]) -> KeyRing {
        KeyRing::of(
            keys.iter()
                .map(|&(id, byte)| (id, SecretKey::new([byte; 32]))),
        )
    }

    #[test]
    fn what_was_sealed_opens_and_never_looks_the_same_twice() {
        let ring = ring(&[(7, 1)]);
        for plaintext in [&b""[..], b"an answer", &[0; 100_000]] {
            let (first, second) = (
                ring.seal(PURPOSE, FIELDS, plaintext),
                ring.seal(PURPOSE, FIELDS, plaintext),
            );
            assert_ne!(first, second);
            assert_eq!(first.len(), HEAD_BYTES + NONCE_BYTES + plaintext.len() + 16);
            assert_eq!(first[..HEAD_BYTES], [VERSION, 0, 0, 0, 7]);
            for sealed in [first, second] {
                assert_eq!(
                    ring.unseal(PURPOSE, FIELDS, &sealed),
                    Ok(plaintext.to_vec())
                );
            }
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        // The ring has every id that one flipped bit makes, under the same key: only authentication can tell.
        let ids = std::iter::once(7).chain((0..32).map(|bit| 7 ^ (1 << bit)));
        let ring = KeyRing::of(ids.map(|id| (id, SecretKey::new([1; 32]))));
        let sealed = ring.seal(PURPOSE, FIELDS, b"an answer");
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 8 {
                OpenError::Malformed
            } else {
                OpenError::NotAuthentic
            };
            let opened = ring.unseal(PURPOSE, FIELDS, &flipped);
            assert_eq!(opened, Err(expected), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(
                ring.unseal(PURPOSE, FIELDS, &sealed[..length]).is_err(),
                "{length}"
            );
        }
    }

    #[test]
    fn what_was_sealed_as_something_else_is_refused() {
        let ring = ring(&[(1, 1)]);
        let sealed = ring.seal(PURPOSE, FIELDS, b"an answer");
        let refused = Err(OpenError::NotAuthentic);
        let other = Purpose("another purpose");
        assert_eq!(ring.unseal(other, FIELDS, &sealed), refused);
        for fields in [
            &[&b"bob"[..], b"key-1"][..],
            &[b"alice", b"key-2"],
            &[b"key-1", b"alice"],
            &[b"alicek", b"ey-1"],
            &[b"alicekey-1"],
            &[b"alice", b"key-1", b""],
            &[b"alice"],
            &[],
        ] {
            assert_eq!(ring.unseal(PURPOSE, fields, &sealed), refused, "{fields:?}");
        }
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let (old, both, swapped, new) = (
            ring(&[(1, 1)]),
            ring(&[(1, 1), (2, 2)]),
            ring(&[(2, 2), (1, 1)]),
            ring(&[(2, 2)]),
        );
        let by_old = both.seal(PURPOSE, FIELDS, b"old");
        let by_new = swapped.seal(PURPOSE, FIELDS, b"new");
        for ring in [&both, &swapped] {
            assert_eq!(ring.unseal(PURPOSE, FIELDS, &by_old), Ok(b"old".to_vec()));
            assert_eq!(ring.unseal(PURPOSE, FIELDS, &by_new), Ok(b"new".to_vec()));
        }
        assert_eq!(old.unseal(PURPOSE, FIELDS, &by_old), Ok(b"old".to_vec()));
        let gone = new.unseal(PURPOSE, FIELDS, &by_old);
        assert_eq!(gone, Err(OpenError::UnknownKey(1)));
        let other = ring(&[(1, 9)]).unseal(PURPOSE, FIELDS, &by_old);
        assert_eq!(other, Err(OpenError::NotAuthentic));
    }
}
