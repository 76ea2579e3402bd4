//! Names of keys and channels in Redis.

use super::{Bucket, RecordKey, Tombstone};

/// The names in one Redis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    /// The prefix of all keys.
    pub(super) namespace: &'static str,
}

impl Keys {
    /// The channel of changes that nodes announce.
    pub(super) fn changes_channel(self) -> String {
        format!("{}changes", self.namespace)
    }

    /// The channel of tombstones.
    pub(super) fn ended_channel(self) -> String {
        format!("{}ended", self.namespace)
    }

    /// A key that proves writes.
    pub(super) fn probe(self) -> String {
        format!("{}probe", self.namespace)
    }

    /// The epoch's number and the server's own id.
    pub(super) fn epoch(self) -> String {
        format!("{}epoch", self.namespace)
    }

    pub(super) fn lockout(self, address: &str) -> String {
        format!("{}lockout:{address}", self.namespace)
    }

    pub(super) fn failures(self, address: &str) -> String {
        format!("{}failures:{address}", self.namespace)
    }

    /// The addresses in lockout, sorted by the end of their lockout.
    pub(super) fn lockouts(self) -> String {
        format!("{}lockouts", self.namespace)
    }

    /// The addresses with failures but without lockout, sorted by the last failure.
    pub(super) fn failing(self) -> String {
        format!("{}failing", self.namespace)
    }

    /// Nodes of November 2026 keep records without an epoch under `record:`.
    pub(super) fn record(self, key: RecordKey<'_>) -> String {
        format!("{}key:{}", self.namespace, key.secret)
    }

    pub(super) fn tombstone(self, tombstone: Tombstone<'_>) -> String {
        let namespace = self.namespace;
        match tombstone {
            Tombstone::Record(id) => format!("{namespace}tombstone:record:{id}"),
            Tombstone::User(user_id) => format!("{namespace}tombstone:user:{user_id}"),
        }
    }

    pub(super) fn bucket(self, bucket: Bucket<'_>) -> String {
        let namespace = self.namespace;
        match bucket {
            Bucket::Address(address) => format!("{namespace}rate:address:{address}"),
            Bucket::User(user_id) => format!("{namespace}rate:user:{user_id}"),
            Bucket::Part(name) => format!("{namespace}rate:part:{name}"),
        }
    }

    pub(super) fn versioned(self, name: &str) -> String {
        format!("{}kept:{name}", self.namespace)
    }

    pub(super) fn pause(self, name: &str) -> String {
        format!("{}pause:{name}", self.namespace)
    }

    pub(super) fn value(self, name: &str) -> String {
        format!("{}value:{name}", self.namespace)
    }

    pub(super) fn large(self, name: &str) -> String {
        format!("{}large:{name}", self.namespace)
    }

    /// The names of large values, sorted by the end of their lifetime.
    pub(super) fn large_names(self) -> String {
        format!("{}large_names", self.namespace)
    }
}
