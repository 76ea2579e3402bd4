//! The entries of the cache, and the lookups in it.

use std::any::Any;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::rate::{Rate, RateDecision};

/// The reason that the cache gave no response. The log has the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The cache does not respond.
    #[error("the cache does not answer")]
    Unavailable,
    /// The cache refused the command, or its response is malformed.
    #[error("the cache sent a malformed response")]
    Unexpected,
}

/// Number of failures that shut an address out, and the lockout's duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockoutPolicy {
    /// Failures that trigger the lockout.
    pub failures: NonZeroU32,
    /// Period in which failures count.
    pub window: Duration,
    pub block: Duration,
}

/// The cached record of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRecord {
    /// The credential's user, whose requests count together.
    pub user_id: String,
    /// The user's rate; `None` means no limit.
    pub rate: Option<Rate>,
    /// Further data of the cache's caller.
    pub payload: Payload,
}

/// Bytes in a record, and their value: copies of a payload in one process parse it once. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Payload(Arc<PayloadState>);

#[derive(Debug, Default)]
struct PayloadState {
    bytes: Vec<u8>,
    /// `Some(None)` if the bytes are not what their first reader expected.
    value: OnceLock<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Payload {
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Reads the value from JSON; `None` if the bytes are another value. All readers of a payload read one type.
    pub fn read<T: DeserializeOwned + Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let value = self.0.value.get_or_init(|| {
            let value: T = serde_json::from_slice(&self.0.bytes).ok()?;
            Some(Arc::new(value))
        });
        value.clone()?.downcast().ok()
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        let value = OnceLock::new();
        Self(Arc::new(PayloadState { bytes, value }))
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Payload {}

/// The period in which the cache has lost nothing: since its start, last flush or last failover. Later epochs are
/// greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub(crate) u64);

/// The result of keeping a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillResult {
    /// The record is kept.
    Kept,
    /// The record is kept below a user's tombstone, which makes it doubtful.
    InDoubt,
    /// The record is not kept: its id has a tombstone, or more tombstones exist than fit.
    Refused,
    /// The record is not kept: the table is full.
    NoRoom,
    /// The record is not kept: its reader looked it up in an earlier epoch.
    Outdated,
}

/// A request whose caller is to be identified.
#[derive(Debug, Clone, Copy)]
pub struct CallerLookup<'a> {
    /// The client address and the rate of its requests; `None` if neither counts.
    pub address: Option<(&'a str, Rate)>,
    pub record: Option<RecordKey<'a>>,
}

/// The key that finds a record, and the key of its tombstone.
#[derive(Debug, Clone, Copy)]
pub struct RecordKey<'a> {
    /// A key that only a holder of the secret can compute, e.g. the secret's HMAC: the user's requests are counted
    /// before any other check.
    pub secret: &'a str,
    /// The tombstone's key: a record's id, always the same for a record.
    pub id: &'a str,
}

/// A tombstone: a mark that blocks records from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstone<'a> {
    /// Blocks all records of this id.
    Record(&'a str),
    /// Makes all records of this user doubtful: they still prove the secret's owner, but their data counts as stale.
    User(&'a str),
}

/// The cache's findings on a request.
///
/// The cache checks the record, the lockout, the address's rate and the user's rate in this order, and the first
/// refusal ends the checks. A lockout stops only requests without a live record. Requests without a live record may
/// use at most half of an address's rate: strangers behind a known caller's address can take nothing from that
/// caller. A request counts only if every check passed, with one exception: a request without a live record counts
/// for its address, since it still costs a database lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerFindings {
    /// Time left of the address's lockout, if there is one and the caller is unknown.
    pub locked_out: Option<Duration>,
    /// The decision of the address's rate; `None` if it has none, or is shut out.
    pub address: Option<RateDecision>,
    pub record: RecordLookup,
    /// The decision of the user's rate; `None` if the user has none, or is unknown.
    pub user: Option<RateDecision>,
    /// The epoch of this lookup.
    pub epoch: Epoch,
}

/// An address that is shut out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lockout {
    /// The address, in the form in which it is counted.
    pub address: String,
    /// The failures that triggered the lockout, plus requests refused from there since.
    pub failures: u32,
    pub left: Duration,
}

/// The state of a record in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordLookup {
    /// No entry: the cache has none, no record was requested, or an earlier check refused the request. Ask the
    /// database.
    Missing,
    /// The record's id has a tombstone: the record is invalid even if a slow reader still saw it.
    Revoked,
    /// A record of a user who has changed since: ask the database.
    Doubtful,
    Found(CredentialRecord),
}

/// Maximum number of addresses with recorded failures, and of addresses in lockout.
pub const MAX_LOCKOUTS: usize = 100_000;

/// Largest value that is kept, in bytes; longer values are computed each time.
pub const MAX_VALUE_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachedValue {
    Found(Vec<u8>),
    /// No value. A reader that computes it returns this to prove the state before.
    Absent(Absence),
}

/// Proof that there was no value, with the number of the last dropped value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absence(pub(super) u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_payload_share_its_value() {
        let payload = Payload::from(b"[1, 2]".to_vec());
        let copy = payload.clone();
        let read = |payload: &Payload| payload.read::<Vec<u8>>().expect("a list");
        assert_eq!(*read(&payload), [1, 2]);
        assert!(Arc::ptr_eq(&read(&payload), &read(&copy)));
        assert_eq!(Payload::from(b"{".to_vec()).read::<Vec<u8>>(), None);
    }
}
