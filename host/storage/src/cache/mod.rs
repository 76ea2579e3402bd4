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
//! **Invariant:** a process knows within a second that a record ended, or that it no longer hears of ended records; then
//! it keeps none.
//!
//! **Invariant:** a record is valid only in the [`Epoch`] in which it was kept. A flush or a failover may lose
//! tombstones, and a restored database may not know the record, so a flush, a failover and each start of a node begin
//! another epoch. A reader of the earlier epoch keeps nothing in the later one.
//!
//! **Invariant:** a value computed before a drop does not come back after it: a reader keeps a value only if nothing
//! has changed since its lookup.
//!
//! **Invariant:** a stranger can neither make the cache grow without bound nor evict a count against anyone.
//!
//! To add an operation, add a method here and one in each of [`memory`] and [`redis`]; an operation that must be
//! atomic in Redis is a script beside it. `tests/it/stores.rs` runs every operation on both.

mod entries;
mod keys;
mod leases;
pub mod memory;
mod rare_log;
mod rate;
mod records;
pub mod redis;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

pub use self::entries::{
    Absence, CacheError, CachedValue, CallerFindings, CallerLookup, CredentialRecord, Epoch,
    FillResult, Lockout, LockoutPolicy, MAX_LOCKOUTS, MAX_VALUE_BYTES, Payload, RecordKey,
    RecordLookup, Tombstone,
};
use self::memory::MemoryCache;
pub use self::rate::{Bucket, Rate, RateDecision};
pub use self::records::KnownRecord;
use self::redis::RedisCache;
use crate::clock::Clock;
use crate::secrets::SecretUrl;

/// The cache. Cheap to clone.
#[derive(Debug, Clone)]
pub enum Cache {
    Memory(MemoryCache),
    /// The cache that all nodes share.
    Redis(RedisCache),
}

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
            Some(url) => Self::Redis(RedisCache::open(url, clock, timeout).await?),
            None => Self::Memory(MemoryCache::new(clock.clone())),
        })
    }

    /// Checks the form of a Redis URL. The problem follows the name of a setting.
    pub fn check_url(redis_url: &SecretUrl) -> Result<(), String> {
        servers::check(redis_url)
    }

    /// Connects to a Redis once, and proves that it accepts writes.
    pub async fn probe(redis_url: &SecretUrl) -> anyhow::Result<()> {
        RedisCache::probe(redis_url).await
    }

    /// Invalidates all records. Each node calls it at its start, because an operator may have restored an earlier database.
    pub async fn begin_epoch(&self) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.begin_epoch().await,
        }
    }

    /// Returns a record that this process has read from Redis within 15 s. Its user's requests are not counted yet
    /// ([`Self::count`]).
    pub fn recall(&self, key: RecordKey<'_>) -> Option<KnownRecord> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => redis.recall(key),
        }
    }

    /// Returns all that the cache knows of a request before its admission, in one round trip.
    pub async fn identify(&self, request: &CallerLookup<'_>) -> Result<CallerFindings, CacheError> {
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
        record: &CredentialRecord,
        since: Epoch,
        ttl: Duration,
    ) -> Result<FillResult, CacheError> {
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

    /// Counts a request in all of these limits, in at most one round trip, or in none if one refuses it. Returns a
    /// decision for each limit.
    pub async fn count(
        &self,
        limits: &[(Bucket<'_>, Rate)],
    ) -> Result<Vec<RateDecision>, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.count(limits)),
            Self::Redis(redis) => redis.count(limits).await,
        }
    }

    /// Adds this many to a bucket, whether or not the rate allows them. An excess delays later requests. Other nodes
    /// see it 20 ms later.
    pub fn charge(&self, bucket: Bucket<'_>, rate: Rate, number: u32) {
        match self {
            Self::Memory(memory) => memory.charge(bucket, rate, number),
            Self::Redis(redis) => redis.charge(bucket, rate, number),
        }
    }

    /// The value under a name.
    pub async fn find_value(&self, name: &str) -> Result<CachedValue, CacheError> {
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

    /// Drops a value, without a wait: this node sees it at once, and other nodes 20 ms later.
    pub fn drop_value_soon(&self, name: &str, ttl: Duration) {
        match self {
            Self::Memory(memory) => memory.drop_value(name, ttl),
            Self::Redis(redis) => redis.drop_value_soon(name, ttl),
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

    /// The large value under a name.
    pub async fn find_large(&self, name: &str) -> Result<Option<Arc<[u8]>>, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.find_large(name)),
            Self::Redis(redis) => redis.find_large(name).await,
        }
    }

    /// Keeps a large value and replaces any earlier one. Beyond `most` large values, it takes the place of another. All
    /// callers use the same `most`.
    pub async fn put_large(
        &self,
        name: &str,
        value: Vec<u8>,
        ttl: Duration,
        most: usize,
    ) -> Result<(), CacheError> {
        match self {
            Self::Memory(memory) => {
                memory.put_large(name, value.into(), ttl, most);
                Ok(())
            }
            Self::Redis(redis) => redis.put_large(name, &value, ttl, most).await,
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

    /// Succeeds if the cache responds and accepts writes.
    pub async fn probe_writes(&self) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.probe_writes().await,
        }
    }
}

/// A subscription to announcements of nodes.
pub struct Announcements(Option<watch::Receiver<u64>>);

impl Announcements {
    /// Waits for the next announcement; without other nodes, for ever. The future may be dropped and the method
    /// called again.
    pub async fn next(&mut self) {
        let is_open = match &mut self.0 {
            Some(announcements) => announcements.changed().await.is_ok(),
            None => false,
        };
        if !is_open {
            std::future::pending().await
        }
    }
}
