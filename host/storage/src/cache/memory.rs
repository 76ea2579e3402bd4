//! The cache of one process: a few bounded tables under one lock.
//!
//! Each operation takes well under a microsecond, so one lock is enough, and makes them atomic.
//!
//! What counts against someone is never evicted. When a table is full of what has not expired, keys
//! that are new share a few thousand slots: a flood of addresses makes strangers count together, but
//! nobody's count or lockout is forgotten. Whoever has a record is spared what such a slot says, so that
//! a flood shuts out no known caller. Records beyond the bound are not kept, and with more tombstones than
//! fit no record is kept until they have expired. Nor are values beyond the bound; when one is dropped
//! whose mark does not fit, none is kept that anyone was computing just then.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{
    Absence, Bucket, Cached, Identified, Identify, LockoutPolicy, Lookup, Rate, RateDecision,
    Record, RecordKey,
};
use crate::clock::Clock;

/// Entries of each table. An entry takes 200 bytes or so.
const CAPACITY: usize = 100_000;

/// Values, of at most [`super::MAX_VALUE_BYTES`] and mostly of some hundred bytes.
const VALUES: usize = 4_096;

/// What new keys share when a table is full.
const SHARED_SLOTS: usize = 4_096;

/// How often a table is searched for what has expired, at most.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The cache of one process. Cheap to clone.
#[derive(Clone)]
pub struct MemoryCache(Arc<Inner>);

struct Inner {
    clock: Clock,
    tables: Mutex<Tables>,
}

struct Tables {
    addresses: Table<u64>,
    users: Table<u64>,
    attempts: Table<Attempts>,
    records: Table<Record>,
    tombstones: Table<()>,
    values: Table<Slot>,
    /// How many values were dropped.
    dropped: u64,
    /// The last of them whose mark found no room.
    unmarked: u64,
    /// No record is kept before this.
    fill_from_us: u64,
}

/// What stands under the name of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    Value(Vec<u8>),
    /// It was dropped, as this one of all that were.
    Dropped(u64),
}

/// Failed proofs of identity from one address.
#[derive(Debug, Clone, Default)]
struct Attempts {
    failed_at_us: VecDeque<u64>,
    blocked_until_us: u64,
}

impl MemoryCache {
    /// An empty cache.
    pub fn new(clock: Clock) -> Self {
        Self::with_capacity(clock, CAPACITY)
    }

    fn with_capacity(clock: Clock, capacity: usize) -> Self {
        Self(Arc::new(Inner {
            clock,
            tables: Mutex::new(Tables {
                addresses: Table::new(capacity),
                users: Table::new(capacity),
                attempts: Table::new(capacity),
                records: Table::new(capacity),
                tombstones: Table::new(capacity),
                values: Table::new(capacity.min(VALUES)),
                dropped: 0,
                unmarked: 0,
                fill_from_us: 0,
            }),
        }))
    }

    fn with<T>(&self, operation: impl FnOnce(&mut Tables, u64) -> T) -> T {
        // Nothing in here panics half-way through a change that others could trip over.
        let mut tables = self.0.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let now_us = micros(self.0.clock.monotonic());
        operation(&mut tables, now_us)
    }

    pub(super) fn identify(&self, request: &Identify<'_>) -> Identified {
        self.with(|tables, now| {
            let mut found = Identified {
                locked_out: None,
                address: None,
                record: Lookup::Missing,
                user: None,
            };
            let record = request
                .record
                .map_or(Lookup::Missing, |key| tables.look_up(key, now));
            let slots = match record {
                Lookup::Found(_) => Slots::Own,
                Lookup::Missing | Lookup::Revoked => Slots::All,
            };
            if let Some((address, _)) = request.address {
                found.locked_out = tables.blocked_for(address, slots, now);
                if found.locked_out.is_some() {
                    return found;
                }
            }
            let from = request.address.map(|(address, rate)| {
                let arrival = tables.addresses.get(address, slots, now).copied();
                (address, rate.decide(arrival, now))
            });
            found.address = from.map(|(_, (decision, _))| decision);
            if found.address.is_some_and(|decision| !decision.allowed) {
                return found;
            }
            found.record = record;
            if let Lookup::Found(Record {
                user_id,
                rate: Some(rate),
                ..
            }) = &found.record
            {
                let decision = tables.take(Bucket::User(user_id), *rate, now);
                found.user = Some(decision);
                if !decision.allowed {
                    return found;
                }
            }
            if let Some((address, (_, arrival))) = from {
                tables.addresses.put(address, slots, arrival, arrival, now);
            }
            found
        })
    }

    pub(super) fn fill(&self, key: RecordKey<'_>, record: &Record, ttl: Duration) -> bool {
        self.with(|tables, now| {
            if now < tables.fill_from_us
                || tables.look_up(key, now) != Lookup::Missing
                || !tables.records.has_room(now)
            {
                return false;
            }
            let expires = now + micros(ttl);
            tables
                .records
                .put(key.secret, Slots::Own, record.clone(), expires, now);
            true
        })
    }

    pub(super) fn bury(&self, id: &str, ttl: Duration) {
        self.with(|tables, now| {
            let expires = now + micros(ttl);
            if !tables.tombstones.put(id, Slots::Own, (), expires, now) {
                tables.records.clear();
                tables.fill_from_us = tables.fill_from_us.max(expires);
            }
        });
    }

    pub(super) fn count_failure(&self, address: &str, policy: LockoutPolicy) -> Option<Duration> {
        self.with(|tables, now| {
            let blocked = tables.blocked_for(address, Slots::All, now);
            if blocked.is_some() {
                return blocked;
            }
            let mut attempts = tables
                .attempts
                .get(address, Slots::All, now)
                .cloned()
                .unwrap_or_default();
            let failed = &mut attempts.failed_at_us;
            failed.push_back(now);
            let window = micros(policy.window);
            failed.retain(|&at| now - at < window);
            let is_last = failed.len() >= policy.failures.get() as usize;
            let expires = if is_last {
                failed.clear();
                attempts.blocked_until_us = now + micros(policy.block);
                attempts.blocked_until_us
            } else {
                now + window
            };
            let attempted = &mut tables.attempts;
            attempted.put(address, Slots::All, attempts, expires, now);
            is_last.then_some(policy.block)
        })
    }

    pub(super) fn take(&self, bucket: Bucket<'_>, rate: Rate) -> RateDecision {
        self.with(|tables, now| tables.take(bucket, rate, now))
    }

    pub(super) fn find_value(&self, name: &str) -> Cached {
        self.with(|tables, now| tables.find_value(name, now))
    }

    pub(super) fn keep_value(
        &self,
        name: &str,
        value: &[u8],
        since: Absence,
        ttl: Duration,
    ) -> bool {
        self.with(|tables, now| {
            if tables.find_value(name, now) != Cached::Absent(since) {
                return false;
            }
            let (value, expires) = (Slot::Value(value.to_owned()), now + micros(ttl));
            tables.values.put(name, Slots::Own, value, expires, now)
        })
    }

    pub(super) fn drop_value(&self, name: &str, ttl: Duration) {
        self.with(|tables, now| {
            tables.dropped += 1;
            let (mark, expires) = (Slot::Dropped(tables.dropped), now + micros(ttl));
            if !tables.values.put(name, Slots::Own, mark, expires, now) {
                tables.unmarked = tables.dropped;
            }
        });
    }
}

impl fmt::Debug for MemoryCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MemoryCache")
    }
}

impl Tables {
    fn take(&mut self, bucket: Bucket<'_>, rate: Rate, now: u64) -> RateDecision {
        let (table, key) = match bucket {
            Bucket::Address(address) => (&mut self.addresses, address),
            Bucket::User(user_id) => (&mut self.users, user_id),
        };
        let (decision, arrival) = rate.decide(table.get(key, Slots::All, now).copied(), now);
        if decision.allowed {
            table.put(key, Slots::All, arrival, arrival, now);
        }
        decision
    }

    fn look_up(&self, key: RecordKey<'_>, now: u64) -> Lookup {
        if self.tombstones.get(key.id, Slots::Own, now).is_some() {
            return Lookup::Revoked;
        }
        match self.records.get(key.secret, Slots::Own, now) {
            Some(record) => Lookup::Found(record.clone()),
            None => Lookup::Missing,
        }
    }

    fn find_value(&self, name: &str, now: u64) -> Cached {
        match self.values.get(name, Slots::Own, now) {
            Some(Slot::Value(value)) => Cached::Found(value.clone()),
            Some(Slot::Dropped(number)) => Cached::Absent(Absence(*number)),
            None => Cached::Absent(Absence(self.unmarked)),
        }
    }

    fn blocked_for(&self, address: &str, slots: Slots, now: u64) -> Option<Duration> {
        let until = self.attempts.get(address, slots, now)?.blocked_until_us;
        (until > now).then(|| Duration::from_micros(until - now))
    }
}

/// Values by key that expire, and of which there are only so many.
struct Table<V> {
    entries: HashMap<Box<str>, Expiring<V>>,
    /// What keys share that found the table full. A key that has an entry here keeps to it while it
    /// lasts.
    shared: HashMap<usize, Expiring<V>>,
    hasher: RandomState,
    capacity: usize,
    sweep_at: usize,
    sweep_from_us: u64,
}

/// Where a key may be looked for and kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slots {
    /// In an entry of its own only.
    Own,
    /// In one that it shares, too.
    All,
}

struct Expiring<V> {
    expires_us: u64,
    value: V,
}

impl<V> Table<V> {
    fn new(capacity: usize) -> Self {
        Self {
            entries: HashMap::new(),
            shared: HashMap::new(),
            // Seeded at random: strangers cannot choose whom they share a slot with.
            hasher: RandomState::new(),
            capacity,
            sweep_at: capacity.min(1_024),
            sweep_from_us: 0,
        }
    }

    fn get(&self, key: &str, slots: Slots, now: u64) -> Option<&V> {
        let own = self.entries.get(key).filter(|entry| entry.expires_us > now);
        let entry = match slots {
            Slots::Own => own,
            Slots::All => own.or_else(|| self.shared(key, now)),
        };
        Some(&entry?.value)
    }

    /// Keeps a value; in the slot that the key shares with others if it may, has none of its own and
    /// there is no room. Returns whether it is kept.
    fn put(&mut self, key: &str, slots: Slots, value: V, expires_us: u64, now: u64) -> bool {
        let entry = Expiring { expires_us, value };
        if let Some(own) = self.entries.get_mut(key) {
            *own = entry;
        } else if self.shared(key, now).is_none() && self.has_room(now) {
            self.entries.insert(key.into(), entry);
        } else if slots == Slots::All {
            self.shared.insert(self.slot(key), entry);
        } else {
            return false;
        }
        true
    }

    /// Whether there is room for one more, once what has expired is gone. That is looked for when the
    /// table has doubled, and not too often: a flood must not make every new key walk the whole table.
    fn has_room(&mut self, now: u64) -> bool {
        if self.entries.len() >= self.sweep_at && now >= self.sweep_from_us {
            self.entries.retain(|_, entry| entry.expires_us > now);
            self.shared.retain(|_, entry| entry.expires_us > now);
            self.sweep_at = (self.entries.len() * 2).clamp(self.capacity.min(1_024), self.capacity);
            self.sweep_from_us = now + micros(SWEEP_EVERY);
        }
        self.entries.len() < self.capacity
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.shared.clear();
    }

    fn shared(&self, key: &str, now: u64) -> Option<&Expiring<V>> {
        if self.shared.is_empty() {
            return None;
        }
        let shared = self.shared.get(&self.slot(key))?;
        (shared.expires_us > now).then_some(shared)
    }

    fn slot(&self, key: &str) -> usize {
        self.hasher.hash_one(key) as usize % SHARED_SLOTS
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::clock::ManualClock;

    const MINUTE: Duration = Duration::from_secs(60);
    const POLICY: LockoutPolicy = LockoutPolicy {
        failures: NonZeroU32::new(3).unwrap(),
        window: MINUTE,
        block: Duration::from_secs(900),
    };

    fn cache(capacity: usize) -> (MemoryCache, ManualClock) {
        let clock = ManualClock::default();
        let cache = MemoryCache::with_capacity(Clock::Manual(clock.clone()), capacity);
        (cache, clock)
    }

    fn same(key: &str) -> RecordKey<'_> {
        RecordKey {
            secret: key,
            id: key,
        }
    }

    fn size(cache: &MemoryCache) -> usize {
        cache.with(|tables, _| {
            tables.attempts.entries.len()
                + tables.attempts.shared.len()
                + tables.addresses.entries.len()
                + tables.addresses.shared.len()
        })
    }

    #[test]
    fn a_flood_of_addresses_neither_frees_nor_grows() {
        let (cache, clock) = cache(100);
        let lock_out = |address: &str| (0..3).find_map(|_| cache.count_failure(address, POLICY));
        assert!(lock_out("before").is_some());
        for stranger in 0..20_000 {
            cache.count_failure(&format!("stranger {stranger}"), POLICY);
            let rate = Rate::per_minute(NonZeroU32::new(5).unwrap());
            cache.take(Bucket::Address(&format!("stranger {stranger}")), rate);
        }
        assert!(cache.count_failure("before", POLICY).is_some());
        assert!(
            lock_out("during").is_some(),
            "it counts though there is no room"
        );
        assert!(size(&cache) <= 2 * (100 + SHARED_SLOTS));
        clock.advance(MINUTE + SWEEP_EVERY);
        cache.count_failure("after", POLICY);
        assert!(
            cache.count_failure("during", POLICY).is_some(),
            "it stays out when there is room again"
        );
        assert!(cache.count_failure("before", POLICY).is_some());
    }

    #[test]
    fn a_flood_of_addresses_shuts_out_nobody_who_is_known() {
        let (cache, _) = cache(100);
        let record = Record {
            user_id: "alice".into(),
            rate: None,
            payload: vec![],
        };
        assert!(cache.fill(same("key"), &record, MINUTE));
        let rate = Rate::per_minute(NonZeroU32::new(5).unwrap());
        for stranger in 0..60_000 {
            cache.count_failure(&format!("stranger {stranger}"), POLICY);
            cache.take(Bucket::Address(&format!("stranger {stranger}")), rate);
        }
        let from = |address, record| {
            cache.identify(&Identify {
                address: Some((address, rate)),
                record,
            })
        };
        let unknown = from("elsewhere", None);
        assert!(unknown.locked_out.is_some(), "all slots are shut");
        let known = from("elsewhere", Some(same("key")));
        assert_eq!(known.record, Lookup::Found(record));
        assert!(known.address.unwrap().allowed);
        for _ in 0..3 {
            cache.count_failure("stranger 0", POLICY);
        }
        let guilty = from("stranger 0", Some(same("key")));
        assert!(guilty.locked_out.is_some(), "who has failed is not spared");
    }

    #[test]
    fn with_more_tombstones_than_fit_nothing_is_kept() {
        let (cache, clock) = cache(10);
        let record = Record {
            user_id: "alice".into(),
            rate: None,
            payload: vec![],
        };
        assert!(cache.fill(same("live"), &record, 2 * MINUTE));
        for key in 0..20 {
            cache.bury(&key.to_string(), MINUTE);
        }
        for key in 0..20 {
            assert!(!cache.fill(same(&key.to_string()), &record, MINUTE));
        }
        clock.advance(MINUTE);
        assert!(cache.fill(same("live"), &record, MINUTE));
        assert!(!cache.fill(same("live"), &record, MINUTE));
    }

    #[test]
    fn values_beyond_the_bound_are_not_kept_and_no_dropped_one_comes_back() {
        let (cache, clock) = cache(10);
        let look = |name: &str| match cache.find_value(name) {
            Cached::Absent(absence) => absence,
            Cached::Found(value) => panic!("{value:?}"),
        };
        let before = look("late");
        for name in 0..20 {
            let name = name.to_string();
            assert_eq!(
                cache.keep_value(&name, b"v", look(&name), MINUTE),
                name.len() == 1
            );
        }
        cache.drop_value("late", MINUTE);
        clock.advance(MINUTE);
        assert!(!cache.keep_value("late", b"stale", before, MINUTE));
        assert!(cache.keep_value("late", b"v", look("late"), MINUTE));
    }

    #[test]
    fn records_beyond_the_bound_are_not_kept() {
        let (cache, clock) = cache(10);
        let record = Record {
            user_id: "alice".into(),
            rate: None,
            payload: vec![],
        };
        let fill = |key: i32| cache.fill(same(&key.to_string()), &record, MINUTE);
        assert_eq!((0..20).filter(|&key| fill(key)).count(), 10);
        clock.advance(MINUTE);
        assert!(fill(20));
    }
}
