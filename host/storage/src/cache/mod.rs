//! The cache of callers, rates and lockouts: in process, or in Redis for many nodes.
//!
//! Each entry is either a copy of a database row or a count that may be lost, never the only copy of data that must
//! last.
//!
//! **Invariant:** no request waits for the cache. If Redis does not respond, the call that notices fails within 250
//! ms, and all other calls fail at once until Redis responds again. The cache never retries.
//!
//! **Invariant:** a revoked record does not come back while its tombstone stands: a reader fills the cache only if
//! there is no tombstone.
//!
//! **Invariant:** a record is valid only in the [`Epoch`] in which it was kept. A flush or a failover may lose
//! tombstones and therefore begins another epoch: a reader of the earlier epoch keeps nothing in the later one.
//!
//! **Invariant:** a value computed before a drop does not come back after it: a reader keeps a value only if nothing
//! has changed since its lookup.
//!
//! **Invariant:** a stranger can neither make the cache grow without bound nor evict a count against anyone.
//!
//! To add an operation, add a method here and one in each of [`memory`] and [`redis`]; an operation that must be
//! atomic in Redis is a script beside it. `tests/it/stores.rs` runs every operation on both.

pub mod memory;
pub mod redis;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::memory::MemoryCache;
use self::redis::{RedisAnnouncements, RedisCache};
use crate::clock::Clock;
use crate::secrets::SecretUrl;

/// The cache. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Cache {
    /// The cache of this process.
    Memory(MemoryCache),
    /// The cache that all nodes share.
    Redis(RedisCache),
}

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

/// A rate limit: a burst of this size, then the same number evenly over each minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests per minute.
    pub per_minute: NonZeroU32,
}

/// The caller whose requests count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket<'a> {
    /// Requests from a client address.
    Address(&'a str),
    /// Requests of a user.
    User(&'a str),
}

/// The decision of a rate limit on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateDecision {
    /// The request is within the rate.
    pub allowed: bool,
    /// Largest possible burst, in requests.
    pub limit: u32,
    /// Requests that would be allowed now.
    pub remaining: u32,
    /// Time until `remaining` equals `limit` again without further requests.
    pub reset_after: Duration,
    /// Time until the next request is allowed; zero if this one was.
    pub retry_after: Duration,
}

/// Number of failures that shut an address out, and the lockout's duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockoutPolicy {
    /// Failures that trigger the lockout.
    pub failures: NonZeroU32,
    /// Period in which failures count.
    pub window: Duration,
    /// Duration of the lockout.
    pub block: Duration,
}

/// The cached record of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The credential's user, whose requests count together.
    pub user_id: String,
    /// The user's rate; `None` means no limit.
    pub rate: Option<Rate>,
    /// Further data of the cache's caller.
    pub payload: Vec<u8>,
}

/// The period in which the cache has lost nothing: since its start, last flush or last failover. Later epochs are
/// greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub(super) u64);

/// The result of keeping a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
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
pub struct Identify<'a> {
    /// The client address and the rate of its requests; `None` if neither counts.
    pub address: Option<(&'a str, Rate)>,
    /// The keys of the caller's record.
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
pub struct Identified {
    /// Time left of the address's lockout, if there is one and the caller is unknown.
    pub locked_out: Option<Duration>,
    /// The decision of the address's rate; `None` if it has none, or is shut out.
    pub address: Option<RateDecision>,
    /// The caller's record.
    pub record: Lookup,
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
    /// Time left.
    pub left: Duration,
}

/// The state of a record in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// No entry: the cache has none, no record was requested, or an earlier check refused the request. Ask the
    /// database.
    Missing,
    /// The record's id has a tombstone: the record is invalid even if a slow reader still saw it.
    Revoked,
    /// A record of a user who has changed since: ask the database.
    Doubtful,
    /// The record.
    Found(Record),
}

/// Maximum number of addresses with recorded failures, and of addresses in lockout.
pub const MAX_LOCKOUTS: usize = 100_000;

/// Largest value that is kept, in bytes; longer values are computed each time.
pub const MAX_VALUE_BYTES: usize = 16 << 10;

/// The state of a value in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cached {
    /// The value.
    Found(Vec<u8>),
    /// No value. A reader that computes it returns this to prove the state before.
    Absent(Absence),
}

/// Proof that there was no value, with the number of the last dropped value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absence(u64);

impl Cache {
    /// Default time limit for each response of Redis.
    pub const TIMEOUT: Duration = redis::TIMEOUT;

    /// Opens the cache: Redis if there is a URL, in which case Redis must respond. `timeout`: time limit for each of
    /// its responses.
    pub async fn open(
        redis_url: Option<&SecretUrl>,
        clock: &Clock,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        Ok(match redis_url {
            Some(url) => Self::Redis(RedisCache::open(url, timeout).await?),
            None => Self::Memory(MemoryCache::new(clock.clone())),
        })
    }

    /// Connects to a Redis once.
    pub async fn probe(redis_url: &SecretUrl) -> anyhow::Result<()> {
        RedisCache::probe(redis_url).await
    }

    /// Returns all that the cache knows of a request before its admission, in one round trip.
    pub async fn identify(&self, request: &Identify<'_>) -> Result<Identified, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.identify(request)),
            Self::Redis(redis) => redis.identify(request).await,
        }
    }

    /// Keeps a record and replaces an earlier one. A tombstone, or the end of the epoch in which the reader looked
    /// ([`Self::identify`]), prevents it.
    pub async fn fill(
        &self,
        key: RecordKey<'_>,
        record: &Record,
        since: Epoch,
        ttl: Duration,
    ) -> Result<Filled, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.fill(key, record, since, ttl)),
            Self::Redis(redis) => redis.fill(key, record, since, ttl).await,
        }
    }

    /// Places a tombstone for present and future records. `ttl` must outlast them, and any reader that may have read
    /// the record in the database before its revocation.
    pub async fn bury(&self, tombstone: Tombstone<'_>, ttl: Duration) -> Result<(), CacheError> {
        match self {
            Self::Memory(memory) => {
                memory.bury(tombstone, ttl);
                Ok(())
            }
            Self::Redis(redis) => redis.bury(tombstone, ttl).await,
        }
    }

    /// Counts a failed authentication. Returns the duration of the address's lockout, if it is now shut out.
    ///
    /// Beyond [`MAX_LOCKOUTS`] addresses, the cache forgets some that are not shut out, and adds no further lockouts.
    pub async fn count_failure(
        &self,
        address: &str,
        policy: LockoutPolicy,
    ) -> Result<Option<Duration>, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.count_failure(address, policy)),
            Self::Redis(redis) => redis.count_failure(address, policy).await,
        }
    }

    /// Returns up to `most` addresses in lockout, the longest remaining lockout first.
    pub async fn lockouts(&self, most: usize) -> Result<Vec<Lockout>, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.lockouts(most)),
            Self::Redis(redis) => redis.lockouts(most).await,
        }
    }

    /// Ends an address's lockout and forgets its failures. Returns whether it was shut out.
    pub async fn clear_lockout(&self, address: &str) -> Result<bool, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.clear_lockout(address)),
            Self::Redis(redis) => redis.clear_lockout(address).await,
        }
    }

    /// Counts a request whose caller [`Self::identify`] did not find.
    pub async fn take(&self, bucket: Bucket<'_>, rate: Rate) -> Result<RateDecision, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.take(bucket, rate)),
            Self::Redis(redis) => redis.take(bucket, rate).await,
        }
    }

    /// The value under a name.
    pub async fn find_value(&self, name: &str) -> Result<Cached, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.find_value(name)),
            Self::Redis(redis) => redis.find_value(name).await,
        }
    }

    /// Keeps a computed value, unless another was kept or dropped since it was found absent, it is longer than
    /// [`MAX_VALUE_BYTES`] or there is no room. Returns whether the value is kept.
    pub async fn keep_value(
        &self,
        name: &str,
        value: &[u8],
        since: Absence,
        ttl: Duration,
    ) -> Result<bool, CacheError> {
        if value.len() > MAX_VALUE_BYTES {
            return Ok(false);
        }
        match self {
            Self::Memory(memory) => Ok(memory.keep_value(name, value, since, ttl)),
            Self::Redis(redis) => redis.keep_value(name, value, since, ttl).await,
        }
    }

    /// Drops a value and invalidates every computation of it under way: a reader that found it absent before does not
    /// keep its result. `ttl` must outlast any such computation.
    pub async fn drop_value(&self, name: &str, ttl: Duration) -> Result<(), CacheError> {
        match self {
            Self::Memory(memory) => {
                memory.drop_value(name, ttl);
                Ok(())
            }
            Self::Redis(redis) => redis.drop_value(name, ttl).await,
        }
    }

    /// Keeps a value and replaces any earlier one, unless it is longer than [`MAX_VALUE_BYTES`] or there is no room.
    /// Only for values that no reader computes: the last writer wins.
    pub async fn put_value(
        &self,
        name: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<(), CacheError> {
        if value.len() > MAX_VALUE_BYTES {
            return Ok(());
        }
        match self {
            Self::Memory(memory) => {
                memory.put_value(name, value, ttl);
                Ok(())
            }
            Self::Redis(redis) => redis.put_value(name, value, ttl).await,
        }
    }

    /// Announces to other nodes that a resource must pause for this time. Without other nodes, the call does nothing.
    pub async fn pause(&self, name: &str, time: Duration) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.pause(name, time).await,
        }
    }

    /// Announces to other nodes that the pause is over.
    pub async fn resume(&self, name: &str) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.resume(name).await,
        }
    }

    /// Returns the time left of each resource's pause, if it has one, as nodes announced it by [`Self::pause`].
    /// `None` without other nodes.
    pub async fn pauses(
        &self,
        names: &[Arc<str>],
    ) -> Result<Option<Vec<Option<Duration>>>, CacheError> {
        match self {
            Self::Memory(_) => Ok(None),
            Self::Redis(redis) => redis.pauses(names).await.map(Some),
        }
    }

    /// Announces a change of the database to other nodes. A node that misses the announcement polls the database soon
    /// anyway.
    pub async fn announce(&self) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.announce().await,
        }
    }

    /// Subscribes to announcements of all nodes from now on, this one included.
    pub fn announcements(&self) -> Announcements {
        Announcements(match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.announcements()),
        })
    }

    /// Succeeds if the cache responds.
    pub async fn ping(&self) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.ping().await,
        }
    }
}

/// A subscription to announcements of nodes.
pub struct Announcements(Option<RedisAnnouncements>);

impl Announcements {
    /// Waits for the next announcement; without other nodes, for ever. The future may be dropped and the method
    /// called again.
    pub async fn next(&mut self) {
        match &mut self.0 {
            Some(announcements) => announcements.next().await,
            None => std::future::pending().await,
        }
    }
}

impl Rate {
    /// A rate of this many requests per minute.
    pub const fn per_minute(per_minute: NonZeroU32) -> Self {
        Self { per_minute }
    }

    /// Microseconds between two requests. Rounded up: never more requests than the rate pass.
    fn interval_us(self) -> u64 {
        60_000_000_u64.div_ceil(self.per_minute.get().into())
    }

    /// The share of an address's rate for unknown callers.
    fn of_strangers(self) -> u32 {
        self.per_minute.get().div_ceil(2)
    }

    /// Decides on a request by the generic cell rate algorithm, as in <https://brandur.org/rate-limiting>.
    ///
    /// `most` is the burst size. `arrival_us` is the time at which all allowed requests would have arrived at an even
    /// pace; the second value returned is its successor if the request counts. The scripts of [`redis`] use the same
    /// algorithm.
    fn decide(self, most: u32, arrival_us: Option<u64>, now_us: u64) -> (RateDecision, u64) {
        let interval = self.interval_us();
        let burst = interval * u64::from(most);
        let before = arrival_us.unwrap_or(0).max(now_us);
        let after = before + interval;
        let allowed = after - now_us <= burst;
        let arrival = if allowed { after } else { before };
        let decision = RateDecision {
            allowed,
            limit: self.per_minute.get(),
            remaining: match allowed {
                true => ((burst - (after - now_us)) / interval) as u32,
                false => 0,
            },
            reset_after: Duration::from_micros(arrival - now_us),
            retry_after: Duration::from_micros((after - now_us).saturating_sub(burst)),
        };
        (decision, arrival)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_exactly_the_limit_and_refills_evenly() {
        for limit in [1, 7, 60, 100_000] {
            let rate = Rate::per_minute(NonZeroU32::new(limit).unwrap());
            let (mut arrival, now) = (None, 5_000_000);
            for left in (0..limit).rev() {
                let (decision, after) = rate.decide(limit, arrival, now);
                assert!(decision.allowed && decision.remaining == left);
                arrival = Some(after);
            }
            let (refused, after) = rate.decide(limit, arrival, now);
            assert!(!refused.allowed && Some(after) == arrival);
            assert_eq!(
                refused.retry_after.as_micros(),
                u128::from(rate.interval_us())
            );
            let later = now + rate.interval_us();
            assert!(!rate.decide(limit, arrival, later - 1).0.allowed);
            let (next, after) = rate.decide(limit, arrival, later);
            assert!(next.allowed && next.remaining == 0);
            assert!(!rate.decide(limit, Some(after), later).0.allowed);
        }
    }
}
