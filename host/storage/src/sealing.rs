//! Sealing: what the database or the cache keeps and only weir may read, such as answers.
//!
//! XChaCha20-Poly1305, whose nonces are long enough to be random for as many values as there will ever be. A sealed
//! value names its key, so that keys can be replaced: the first one that is configured seals, all open. To replace a
//! key without losing anything: add the new one behind the old one on every node, then swap them on every node,
//! then drop the old one when nothing that it sealed is kept any more.
//!
//! ```text
//! version (1 byte) · key id (4, big-endian) · nonce (24) · ciphertext · tag (16)
//! ```
//!
//! **Invariant:** a value opens only as what it was sealed as: version, key id, [`Purpose`] and the fields that
//! the caller names, such as the user's id, are authenticated with it.
//! **Invariant:** nodes that share a database share its sealing keys. The database keeps a fingerprint of each, and
//! a node whose key of an id is another does not start.

use std::path::Path;

use anyhow::{Context, ensure};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::Mac as _;
use serde::Deserialize;

use crate::database::{Database, at_start};
use crate::secrets::{Key, SecretSource, random_bytes};

/// What a value is sealed or tagged for: one that was sealed for something else does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purpose(&'static str);

impl Purpose {
    /// An answer that is kept for its `Idempotency-Key`.
    pub const IDEMPOTENT_ANSWER: Self = Self("idempotent answer");
    /// What was said in a session.
    pub const SESSION: Self = Self("session");
    /// What a swarm was asked, and what came of it.
    pub const SWARM: Self = Self("swarm");
    /// What a task is to do, and why it did not.
    pub const TASK: Self = Self("task");
    /// What the tools of a task's agents prove themselves with.
    pub const TASK_CREDENTIAL: Self = Self("task credential");
    /// An exchange that was recorded.
    pub const RECORDING: Self = Self("recorded exchange");
    /// A tool's call, which receivers tell from others.
    pub const TOOL_CALL: Self = Self("tool call");
    /// Who is signed in to the console, in their browser's keeping.
    pub const CONSOLE_SESSION: Self = Self("console session");
    /// What the console says on the next page, in their browser's keeping.
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
    key: Key,
}

/// Why a value does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is no sealed value of a version that is known.
    #[error("it is not of the shape of a sealed value")]
    Malformed,
    /// The key that it names is not configured, or no longer.
    #[error("there is no sealing key of id {0}")]
    UnknownKey(u32),
    /// It was changed, or sealed as something else.
    #[error("it is not what was sealed")]
    NotAuthentic,
}

/// The format of sealed values.
const VERSION: u8 = 1;

/// The id of the key that a gateway without configured ones makes for itself.
const OWN_ID: u32 = 1;

/// Bytes of version and key id.
const HEAD_BYTES: usize = 5;

const NONCE_BYTES: usize = 24;

impl KeyRing {
    /// Reads the configured keys, or without any the gateway's own, which is made on first use in the file `own`.
    pub fn read(configured: &[SealingKeySettings], own: &Path) -> anyhow::Result<Self> {
        if configured.is_empty() {
            let key = Key::load_or_create(own)?;
            return Ok(Self([SealingKey { id: OWN_ID, key }].into()));
        }
        let keys = configured.iter().map(SealingKey::read);
        Ok(Self(keys.collect::<anyhow::Result<_>>()?))
    }

    /// Compares them with those that the database's contents are sealed under.
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

    /// These, the one that seals first, without asking a database; e.g. ones that a test chose.
    pub fn of(keys: impl IntoIterator<Item = (u32, Key)>) -> Self {
        let keys = keys.into_iter().map(|(id, key)| SealingKey { id, key });
        Self(keys.collect())
    }

    /// The id of the key that seals: what is kept for long is sealed anew when it is another one's.
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

    /// What tells these fields from all others, and says nothing of them to who does not have the key. It is made under the key
    /// that seals: with another one it is another.
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
        let key = Key::configured(&settings.key, &format!("the sealing key of id {id}"))?;
        Ok(Self { id, key })
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.key.expose().into())
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.key.fingerprint(b"weir sealing key\0")
    }
}

/// What is authenticated beside the value. Each part goes with its length, so that no two lists of parts are one.
fn associated(head: &[u8], purpose: Purpose, fields: &[&[u8]]) -> Vec<u8> {
    let mut associated = head.to_vec();
    for part in std::iter::once(&purpose.0.as_bytes()).chain(fields) {
        associated.extend((part.len() as u64).to_be_bytes());
        associated.extend(*part);
    }
    associated
}

/// The fingerprint of the key of an id: this one's, unless the database knows another.
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
        KeyRing::of(keys.iter().map(|&(id, byte)| (id, Key::new([byte; 32]))))
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
        // All ids that one flipped bit makes are there, under the same key: only authentication can tell.
        let ids = std::iter::once(7).chain((0..32).map(|bit| 7 ^ (1 << bit)));
        let ring = KeyRing::of(ids.map(|id| (id, Key::new([1; 32]))));
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
