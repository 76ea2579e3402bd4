//! The cache: who may call, how often, and who is shut out. In process, or Redis for many nodes.
//!
//! What is in it is either a copy of what the database holds, or a count that may be lost: never the
//! only copy of anything that must last.
//!
//! **Invariant:** nothing waits for it. When Redis does not answer, the call that notices fails within
//! 250 ms and all others at once, until it answers again. Nothing is tried again.
//!
//! **Invariant:** a record that was buried does not come back before its tombstone is gone: readers
//! fill the cache only where none stands.
//!
//! **Invariant:** records are believed in the [`Epoch`] in which they were kept. A flush and a failover begin another one, since
//! they may lose tombstones: a reader that looked before keeps nothing after.
//!
//! **Invariant:** what was computed before a value was dropped does not come back after: a reader keeps it
//! only where nothing has changed since the reader looked.
//!
//! **Invariant:** a stranger can neither make it grow without bound nor push out what counts against
//! anyone.
//!
//! To add an operation, add a method here and one in each of [`memory`] and [`redis`]; what must be
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
    /// Of this process only.
    Memory(MemoryCache),
    /// Shared by all nodes.
    Redis(RedisCache),
}

/// What keeps the cache from answering. The log has the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// It does not answer.
    #[error("the cache does not answer")]
    Unavailable,
    /// It refused the command, or its answer is not one.
    #[error("the cache gave an answer that makes no sense")]
    Unexpected,
}

/// How often something may happen: so many times at once, and then evenly over a minute as many again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Times in a minute.
    pub per_minute: NonZeroU32,
}

/// Whose requests are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket<'a> {
    /// Those from a client address.
    Address(&'a str),
    /// Those of a user.
    User(&'a str),
}

/// Whether a request is within its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateDecision {
    /// Whether it is.
    pub allowed: bool,
    /// How many could come at once, had none come before.
    pub limit: u32,
    /// How many more could come now.
    pub remaining: u32,
    /// When `remaining` will be `limit` again if none comes.
    pub reset_after: Duration,
    /// When the next one will be allowed; zero if this one was.
    pub retry_after: Duration,
}

/// How many failures shut an address out, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockoutPolicy {
    /// The failure that shuts it out.
    pub failures: NonZeroU32,
    /// Within which they count.
    pub window: Duration,
    /// How long it stays out.
    pub block: Duration,
}

/// What is known of a proof of identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose it is: whose requests are counted together.
    pub user_id: String,
    /// How often they may call; `None` is as often as they like.
    pub rate: Option<Rate>,
    /// What else the caller of this keeps in it.
    pub payload: Vec<u8>,
}

/// How long the cache has kept all that it was told: since its start, its last flush, or its last failover. Later epochs are
/// greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub(super) u64);

/// What became of a record that was to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// It is kept.
    Kept,
    /// It is kept below a user's tombstone, which makes it doubtful.
    InDoubt,
    /// It is not kept: a tombstone stands on its id, or so many stand that they did not fit.
    Refused,
    /// It is not kept: there is no room.
    NoRoom,
    /// It is not kept: its reader looked in an earlier epoch.
    Outdated,
}

/// A request, to be identified.
#[derive(Debug, Clone, Copy)]
pub struct Identify<'a> {
    /// Where it comes from, and how often requests may; `None` if neither counts.
    pub address: Option<(&'a str, Rate)>,
    /// What finds the caller's record.
    pub record: Option<RecordKey<'a>>,
}

/// What finds a record, and what buries it.
#[derive(Debug, Clone, Copy)]
pub struct RecordKey<'a> {
    /// Only who has the secret may be able to name it, e.g. the secret's HMAC: the user's requests are
    /// counted before anything else is checked.
    pub secret: &'a str,
    /// What the tombstone stands under: always the same for a record, wherever and whenever it is kept.
    pub id: &'a str,
}

/// What stands in the way of records from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstone<'a> {
    /// On all records of this id.
    Record(&'a str),
    /// On all records of this user's: they are no longer believed, but prove as before whose secret it is.
    User(&'a str),
}

/// What the cache knows of a request.
///
/// Looked at in this order, and what refuses ends it: the record, the lockout, the address's rate, the user's rate. A
/// lockout stops only those without a live record, and of an address's rate they may use up one half: strangers
/// behind the address of a known caller can take nothing from them. A request is counted only where all that was
/// looked at let it pass, with one exception: one without a live record counts for its address, since it still
/// costs a look into the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// For how long yet the address is shut out, if it is and the caller is not known.
    pub locked_out: Option<Duration>,
    /// Whether the address is within its rate; `None` if it has none, or is shut out.
    pub address: Option<RateDecision>,
    /// The caller's record.
    pub record: Lookup,
    /// Whether the user is within their rate; `None` if they have none, or are not known.
    pub user: Option<RateDecision>,
    /// When this was looked up.
    pub epoch: Epoch,
}

/// An address that is shut out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lockout {
    /// The address, as it was counted.
    pub address: String,
    /// The failures that shut it out, and what was refused from there since.
    pub failures: u32,
    /// For how long yet.
    pub left: Duration,
}

/// A record as the cache has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing stands there, or nothing was asked for, or the request was refused before: ask the
    /// database.
    Missing,
    /// Its id was buried: it is of no use, whatever a slow reader may have seen.
    Revoked,
    /// There is a record, and something has changed about its user since: ask the database.
    Doubtful,
    /// The record.
    Found(Record),
}

/// Addresses whose failures are remembered, and addresses that can be shut out at once.
pub const MAX_LOCKOUTS: usize = 100_000;

/// Bytes of a value that is kept; what is longer is computed each time.
pub const MAX_VALUE_BYTES: usize = 16 << 10;

/// A value as the cache has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cached {
    /// The value.
    Found(Vec<u8>),
    /// There is none. Whoever computes it hands this back, to show how things stood before.
    Absent(Absence),
}

/// That there was no value, and which was the last to be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absence(u64);

impl Cache {
    /// How long is waited for each of Redis's answers, unless somebody says otherwise.
    pub const TIMEOUT: Duration = redis::TIMEOUT;

    /// Opens the cache: Redis if there is a URL, which must answer. `timeout`: how long is waited for each of its answers.
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

    /// Reaches for a Redis once.
    pub async fn probe(redis_url: &SecretUrl) -> anyhow::Result<()> {
        RedisCache::probe(redis_url).await
    }

    /// All that can be known of a request before it is let in, in one round trip.
    pub async fn identify(&self, request: &Identify<'_>) -> Result<Identified, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.identify(request)),
            Self::Redis(redis) => redis.identify(request).await,
        }
    }

    /// Keeps a record in the place of what stands there, unless that is a tombstone, or the epoch in which its reader looked
    /// ([`Self::identify`]) is over.
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

    /// Puts up a tombstone, for the records that stand and those that could. It must outlast them, and any reader that
    /// may have seen the record in the database before it was revoked there.
    pub async fn bury(&self, tombstone: Tombstone<'_>, ttl: Duration) -> Result<(), CacheError> {
        match self {
            Self::Memory(memory) => {
                memory.bury(tombstone, ttl);
                Ok(())
            }
            Self::Redis(redis) => redis.bury(tombstone, ttl).await,
        }
    }

    /// Counts a failed proof of identity. Returns for how long its address is shut out, if it is now.
    ///
    /// Of more addresses than [`MAX_LOCKOUTS`], some are forgotten that are not shut out, and no more than these are
    /// shut out at once.
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

    /// The addresses that are shut out, those for longest yet first; so many at most.
    pub async fn lockouts(&self, most: usize) -> Result<Vec<Lockout>, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.lockouts(most)),
            Self::Redis(redis) => redis.lockouts(most).await,
        }
    }

    /// Lets an address in again and forgets its failures. Returns whether it was shut out.
    pub async fn clear_lockout(&self, address: &str) -> Result<bool, CacheError> {
        match self {
            Self::Memory(memory) => Ok(memory.clear_lockout(address)),
            Self::Redis(redis) => redis.clear_lockout(address).await,
        }
    }

    /// Counts a request whose caller was not found by [`Self::identify`].
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

    /// Keeps a value that was computed after it was found absent, unless one was kept or dropped since, it is
    /// longer than [`MAX_VALUE_BYTES`] or there is no room. Returns whether it did.
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

    /// Drops a value, and what is being computed in its place: whoever found it absent before does not keep
    /// theirs. `ttl` must outlast anyone who computes it.
    pub async fn drop_value(&self, name: &str, ttl: Duration) -> Result<(), CacheError> {
        match self {
            Self::Memory(memory) => {
                memory.drop_value(name, ttl);
                Ok(())
            }
            Self::Redis(redis) => redis.drop_value(name, ttl).await,
        }
    }

    /// Has a value stand under a name, in the place of whatever did, unless it is longer than [`MAX_VALUE_BYTES`] or there
    /// is no room: for what no reader computes, and the last one to write it knows best.
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

    /// Tells other nodes that something is to be left alone for so long. Where there are none, nobody is told.
    pub async fn pause(&self, name: &str, time: Duration) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.pause(name, time).await,
        }
    }

    /// Tells them that it need not be any more.
    pub async fn resume(&self, name: &str) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.resume(name).await,
        }
    }

    /// For how long yet each of these is to be left alone, if it is: what nodes tell one another by [`Self::pause`]. `None`
    /// where there are no other nodes.
    pub async fn pauses(
        &self,
        names: &[Arc<str>],
    ) -> Result<Option<Vec<Option<Duration>>>, CacheError> {
        match self {
            Self::Memory(_) => Ok(None),
            Self::Redis(redis) => redis.pauses(names).await.map(Some),
        }
    }

    /// Tells other nodes that something has changed in the database. One that does not hear it looks there soon anyway.
    pub async fn announce(&self) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.announce().await,
        }
    }

    /// What nodes announce from now on, this one too.
    pub fn announcements(&self) -> Announcements {
        Announcements(match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.announcements()),
        })
    }

    /// Whether it answers.
    pub async fn ping(&self) -> Result<(), CacheError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.ping().await,
        }
    }
}

/// What nodes announce.
pub struct Announcements(Option<RedisAnnouncements>);

impl Announcements {
    /// Waits for the next one; for ever where there are no other nodes. May be dropped and called again.
    pub async fn next(&mut self) {
        match &mut self.0 {
            Some(announcements) => announcements.next().await,
            None => std::future::pending().await,
        }
    }
}

impl Rate {
    /// So many times a minute.
    pub const fn per_minute(per_minute: NonZeroU32) -> Self {
        Self { per_minute }
    }

    /// Microseconds from one to the next. Rounded up, so that never more than the rate pass.
    fn interval_us(self) -> u64 {
        60_000_000_u64.div_ceil(self.per_minute.get().into())
    }

    /// What of it those may use up who are not known.
    fn of_strangers(self) -> u32 {
        self.per_minute.get().div_ceil(2)
    }

    /// Decides on a request by the generic cell rate algorithm, as in <https://brandur.org/rate-limiting>.
    ///
    /// `most` is how many may come at once. `arrival_us` is when all that were allowed before would have arrived at
    /// an even pace; the second value is what it becomes, if the request is counted. [`redis`]' scripts do the same.
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
