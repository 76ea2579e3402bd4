//! The cache of one process: a few bounded tables under one lock.
//!
//! Each operation takes well under a microsecond. One lock is therefore enough, and makes each operation atomic.
//!
//! The cache never evicts the state of a rate limit. If a table is full of unexpired entries, new keys share a few
//! thousand slots: under a flood of addresses, unknown clients count together, but no count is lost. A shared slot
//! does not apply to a caller with a record, so a flood shuts out no known caller. Failures are never shared, since
//! ten of them shut an address out: if the table is full, a new address replaces an address with failures. No lockout
//! is lost; beyond the bound the cache adds no lockouts. Records beyond the bound are not kept. If more tombstones
//! arrive than fit, the cache keeps no record until they have expired. Values beyond the bound are not kept either;
//! if the mark of a dropped value does not fit, the cache keeps no value whose computation had already begun. A large
//! value beyond the bound replaces another one.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{
    Absence, Bucket, CachedValue, CallerFindings, CallerLookup, CredentialRecord, Epoch,
    FillResult, Lockout, LockoutPolicy, MAX_LOCKOUTS, Rate, RateDecision, RecordKey, RecordLookup,
    Tombstone,
};
use crate::clock::Clock;

/// Entries of each table. An entry takes about 200 bytes.
const CAPACITY: usize = MAX_LOCKOUTS;

/// Values, each at most [`super::MAX_VALUE_BYTES`] and usually some hundred bytes.
const VALUES: usize = 4_096;

/// Slots that new keys share while a table is full.
const SHARED_SLOTS: usize = 4_096;

/// A process's cache loses nothing while the process lives.
const EPOCH: Epoch = Epoch(1);

/// Minimum time between two searches of a table for expired entries.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The cache of one process. Cheap to clone.
#[derive(Clone)]
pub struct MemoryCache(Arc<MemoryCacheInner>);

struct MemoryCacheInner {
    clock: Clock,
    tables: Mutex<Tables>,
}

struct Tables {
    addresses: ExpiringTable<u64>,
    users: ExpiringTable<u64>,
    /// The times of failed proofs, by address.
    failures: ExpiringTable<VecDeque<u64>>,
    /// Attempts of an address that failed, or that weir refused since.
    lockouts: ExpiringTable<u32>,
    records: ExpiringTable<CredentialRecord>,
    tombstones: ExpiringTable<()>,
    user_tombstones: ExpiringTable<()>,
    values: ExpiringTable<SlotContent>,
    /// `None` before the first one.
    large_values: Option<ExpiringTable<Arc<[u8]>>>,
    /// Count of dropped values.
    dropped: u64,
    /// Number of the last dropped value whose mark found no room.
    unmarked: u64,
    /// The cache keeps no record before this time.
    fill_from_us: u64,
}

/// Content of a slot under a value's name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SlotContent {
    Value(Vec<u8>),
    /// The value was dropped; the number is its place among all dropped values.
    Dropped(u64),
}

impl MemoryCache {
    pub fn new(clock: Clock) -> Self {
        Self::with_capacity(clock, CAPACITY)
    }

    fn with_capacity(clock: Clock, capacity: usize) -> Self {
        Self(Arc::new(MemoryCacheInner {
            clock,
            tables: Mutex::new(Tables {
                addresses: ExpiringTable::new(capacity),
                users: ExpiringTable::new(capacity),
                failures: ExpiringTable::new(capacity),
                lockouts: ExpiringTable::new(capacity),
                records: ExpiringTable::new(capacity),
                tombstones: ExpiringTable::new(capacity),
                user_tombstones: ExpiringTable::new(capacity),
                values: ExpiringTable::new(capacity.min(VALUES)),
                large_values: None,
                dropped: 0,
                unmarked: 0,
                fill_from_us: 0,
            }),
        }))
    }

    fn with<T>(&self, operation: impl FnOnce(&mut Tables, u64) -> T) -> T {
        // No code in here panics half-way through a change that other threads could see.
        let mut tables = self.0.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let now_us = micros(self.0.clock.monotonic());
        operation(&mut tables, now_us)
    }

    pub(super) fn identify(&self, request: &CallerLookup<'_>) -> CallerFindings {
        self.with(|tables, now| {
            let mut found = CallerFindings {
                locked_out: None,
                address: None,
                record: RecordLookup::Missing,
                user: None,
                epoch: EPOCH,
            };
            let record = request
                .record
                .map_or(RecordLookup::Missing, |key| tables.look_up(key, now));
            let is_known = matches!(record, RecordLookup::Found(_) | RecordLookup::Doubtful);
            let slots = if is_known {
                SlotChoice::Own
            } else {
                SlotChoice::All
            };
            if !is_known && let Some((address, _)) = request.address {
                found.locked_out = tables.refuse_locked_out(address, now);
                if found.locked_out.is_some() {
                    return found;
                }
            }
            let from = request.address.map(|(address, rate)| {
                let most = match is_known {
                    true => rate.per_minute.get(),
                    false => rate.of_strangers(),
                };
                let arrival = tables.addresses.get(address, slots, now).copied();
                (address, rate.decide(most, arrival, now))
            });
            found.address = from.map(|(_, (decision, _))| decision);
            if found.address.is_some_and(|decision| !decision.allowed) {
                return found;
            }
            found.record = record;
            if let RecordLookup::Found(CredentialRecord {
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

    pub(super) fn fill(
        &self,
        key: RecordKey<'_>,
        record: &CredentialRecord,
        since: Epoch,
        ttl: Duration,
    ) -> FillResult {
        self.with(|tables, now| {
            if since != EPOCH {
                return FillResult::Outdated;
            }
            if now < tables.fill_from_us || tables.is_buried(key.id, now) {
                return FillResult::Refused;
            }
            let in_doubt = tables
                .user_tombstones
                .get(&record.user_id, SlotChoice::Own, now);
            let in_doubt = in_doubt.is_some();
            let (record, expires) = (record.clone(), now + micros(ttl));
            let records = &mut tables.records;
            match records.put(key.secret, SlotChoice::Own, record, expires, now) {
                _ if in_doubt => FillResult::InDoubt,
                true => FillResult::Kept,
                false => FillResult::NoRoom,
            }
        })
    }

    pub(super) fn bury(&self, tombstone: Tombstone<'_>, ttl: Duration) {
        self.with(|tables, now| {
            let expires = now + micros(ttl);
            let (table, id) = tables.tombstones_of(tombstone);
            if !table.put(id, SlotChoice::Own, (), expires, now) {
                tables.records.clear();
                tables.fill_from_us = tables.fill_from_us.max(expires);
            }
        });
    }

    pub(super) fn count_failure(&self, address: &str, policy: LockoutPolicy) -> Option<Duration> {
        self.with(|tables, now| {
            let locked_out = tables.refuse_locked_out(address, now);
            if locked_out.is_some() {
                return locked_out;
            }
            let (window, most) = (micros(policy.window), policy.failures.get());
            let mut failed_at = match tables.failures.get(address, SlotChoice::Own, now) {
                Some(failed_at) => failed_at.clone(),
                None => VecDeque::new(),
            };
            failed_at.retain(|&at| now - at < window);
            failed_at.push_back(now);
            if failed_at.len() >= most as usize {
                let expires = now + micros(policy.block);
                if tables
                    .lockouts
                    .put(address, SlotChoice::Own, most, expires, now)
                {
                    tables.failures.remove(address);
                    return Some(policy.block);
                }
                failed_at.pop_front();
            }
            tables
                .failures
                .put_or_replace(address, failed_at, now + window, now);
            None
        })
    }

    pub(super) fn lockouts(&self, most: usize) -> Vec<Lockout> {
        self.with(|tables, now| {
            let entries = tables.lockouts.entries.iter();
            let mut longest: Vec<_> = entries
                .filter(|(_, entry)| entry.expires_us > now)
                .map(|(address, entry)| (entry.expires_us, address, entry.value))
                .collect();
            longest.sort_unstable_by(|one, other| other.cmp(one));
            longest.truncate(most);
            longest
                .into_iter()
                .map(|(expires_us, address, failures)| Lockout {
                    address: address.to_string(),
                    failures,
                    left: Duration::from_micros(expires_us - now),
                })
                .collect()
        })
    }

    pub(super) fn clear_lockout(&self, address: &str) -> bool {
        self.with(|tables, now| {
            tables.failures.remove(address);
            let lockout = tables.lockouts.remove(address);
            lockout.is_some_and(|lockout| lockout.expires_us > now)
        })
    }

    pub(super) fn count(&self, limits: &[(Bucket<'_>, Rate)]) -> Vec<RateDecision> {
        self.with(|tables, now| {
            let decided: Vec<_> = limits
                .iter()
                .map(|&(bucket, rate)| tables.decide(bucket, rate, now))
                .collect();
            if decided.iter().all(|(decision, _)| decision.allowed) {
                for (&(bucket, _), &(_, arrival)) in limits.iter().zip(&decided) {
                    let (table, key) = tables.rates_of(bucket);
                    table.put(key, SlotChoice::All, arrival, arrival, now);
                }
            }
            decided.into_iter().map(|(decision, _)| decision).collect()
        })
    }

    pub(super) fn charge(&self, bucket: Bucket<'_>, rate: Rate, number: u32) {
        self.with(|tables, now| {
            let (table, key) = tables.rates_of(bucket);
            let arrival = table.get(key, SlotChoice::All, now).copied();
            let arrival = rate.charge(number, arrival, now);
            table.put(key, SlotChoice::All, arrival, arrival, now);
        });
    }

    pub(super) fn find_value(&self, name: &str) -> CachedValue {
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
            if tables.find_value(name, now) != CachedValue::Absent(since) {
                return false;
            }
            let (value, expires) = (SlotContent::Value(value.to_owned()), now + micros(ttl));
            tables
                .values
                .put(name, SlotChoice::Own, value, expires, now)
        })
    }

    pub(super) fn put_value(&self, name: &str, value: &[u8], ttl: Duration) {
        self.with(|tables, now| {
            let (value, expires) = (SlotContent::Value(value.to_owned()), now + micros(ttl));
            tables
                .values
                .put(name, SlotChoice::Own, value, expires, now);
        });
    }

    pub(super) fn find_large(&self, name: &str) -> Option<Arc<[u8]>> {
        self.with(|tables, now| {
            let table = tables.large_values.as_ref()?;
            table.get(name, SlotChoice::Own, now).cloned()
        })
    }

    pub(super) fn put_large(&self, name: &str, value: Arc<[u8]>, ttl: Duration, most: usize) {
        self.with(|tables, now| {
            let table = tables
                .large_values
                .get_or_insert_with(|| ExpiringTable::new(most));
            table.put_or_replace(name, value, now + micros(ttl), now);
        });
    }

    pub(super) fn drop_value(&self, name: &str, ttl: Duration) {
        self.with(|tables, now| {
            tables.dropped += 1;
            let (mark, expires) = (SlotContent::Dropped(tables.dropped), now + micros(ttl));
            if !tables.values.put(name, SlotChoice::Own, mark, expires, now) {
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
        let (decision, arrival) = self.decide(bucket, rate, now);
        if decision.allowed {
            let (table, key) = self.rates_of(bucket);
            table.put(key, SlotChoice::All, arrival, arrival, now);
        }
        decision
    }

    /// Returns the decision of a limit on a request, and the arrival time if the request counts.
    fn decide(&mut self, bucket: Bucket<'_>, rate: Rate, now: u64) -> (RateDecision, u64) {
        let (table, key) = self.rates_of(bucket);
        let arrival = table.get(key, SlotChoice::All, now).copied();
        rate.decide(rate.per_minute.get(), arrival, now)
    }

    fn rates_of<'a>(&mut self, bucket: Bucket<'a>) -> (&mut ExpiringTable<u64>, &'a str) {
        match bucket {
            Bucket::Address(address) => (&mut self.addresses, address),
            Bucket::User(name) | Bucket::Part(name) => (&mut self.users, name),
        }
    }

    fn look_up(&self, key: RecordKey<'_>, now: u64) -> RecordLookup {
        if self.is_buried(key.id, now) {
            return RecordLookup::Revoked;
        }
        let Some(record) = self.records.get(key.secret, SlotChoice::Own, now) else {
            return RecordLookup::Missing;
        };
        let user_tombstone = self
            .user_tombstones
            .get(&record.user_id, SlotChoice::Own, now);
        match user_tombstone {
            Some(()) => RecordLookup::Doubtful,
            None => RecordLookup::Found(record.clone()),
        }
    }

    fn is_buried(&self, id: &str, now: u64) -> bool {
        self.tombstones.get(id, SlotChoice::Own, now).is_some()
    }

    fn tombstones_of<'a>(&mut self, tombstone: Tombstone<'a>) -> (&mut ExpiringTable<()>, &'a str) {
        match tombstone {
            Tombstone::Record(id) => (&mut self.tombstones, id),
            Tombstone::User(user_id) => (&mut self.user_tombstones, user_id),
        }
    }

    fn find_value(&self, name: &str, now: u64) -> CachedValue {
        match self.values.get(name, SlotChoice::Own, now) {
            Some(SlotContent::Value(value)) => CachedValue::Found(value.clone()),
            Some(SlotContent::Dropped(number)) => CachedValue::Absent(Absence(*number)),
            None => CachedValue::Absent(Absence(self.unmarked)),
        }
    }

    /// Returns the time left of an address's lockout, if there is one; counts the refused request.
    fn refuse_locked_out(&mut self, address: &str, now: u64) -> Option<Duration> {
        let lockout = self.lockouts.entries.get_mut(address)?;
        let left = lockout
            .expires_us
            .checked_sub(now)
            .filter(|&left| left > 0)?;
        lockout.value = lockout.value.saturating_add(1);
        Some(Duration::from_micros(left))
    }
}

/// A bounded table of expiring values by key.
struct ExpiringTable<V> {
    entries: HashMap<Box<str>, ExpiringEntry<V>>,
    /// Slots for keys that found the table full. A key with an entry here keeps it until the entry expires.
    shared: HashMap<usize, ExpiringEntry<V>>,
    hasher: RandomState,
    capacity: usize,
    sweep_at: usize,
    sweep_from_us: u64,
}

/// Slots in which a key is looked up and kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotChoice {
    /// Only an entry of the key's own.
    Own,
    /// Also a shared entry.
    All,
}

struct ExpiringEntry<V> {
    expires_us: u64,
    value: V,
}

impl<V> ExpiringTable<V> {
    fn new(capacity: usize) -> Self {
        Self {
            entries: HashMap::new(),
            shared: HashMap::new(),
            // A random seed keeps strangers from choosing the keys that share their slot.
            hasher: RandomState::new(),
            capacity,
            sweep_at: capacity.min(1_024),
            sweep_from_us: 0,
        }
    }

    fn get(&self, key: &str, slots: SlotChoice, now: u64) -> Option<&V> {
        let own = self.entries.get(key).filter(|entry| entry.expires_us > now);
        let entry = match slots {
            SlotChoice::Own => own,
            SlotChoice::All => own.or_else(|| self.shared(key, now)),
        };
        Some(&entry?.value)
    }

    /// Keeps a value. If the table is full and the key has no entry, a shared slot is used if `slots` permits it.
    /// Returns whether the value is kept.
    fn put(&mut self, key: &str, slots: SlotChoice, value: V, expires_us: u64, now: u64) -> bool {
        let entry = ExpiringEntry { expires_us, value };
        if let Some(own) = self.entries.get_mut(key) {
            *own = entry;
        } else if self.shared(key, now).is_none() && self.has_room(now) {
            self.entries.insert(key.into(), entry);
        } else if slots == SlotChoice::All {
            self.shared.insert(self.slot(key), entry);
        } else {
            return false;
        }
        true
    }

    /// Returns whether one more entry fits after a sweep of expired entries. A sweep runs when the table has doubled,
    /// and at most once in [`SWEEP_EVERY`]: a flood must not make every new key walk the table.
    fn has_room(&mut self, now: u64) -> bool {
        if self.entries.len() >= self.sweep_at && now >= self.sweep_from_us {
            self.entries.retain(|_, entry| entry.expires_us > now);
            self.shared.retain(|_, entry| entry.expires_us > now);
            self.sweep_at = (self.entries.len() * 2).clamp(self.capacity.min(1_024), self.capacity);
            self.sweep_from_us = now + micros(SWEEP_EVERY);
        }
        self.entries.len() < self.capacity
    }

    /// Keeps a value; if the table is full, it replaces another entry.
    fn put_or_replace(&mut self, key: &str, value: V, expires_us: u64, now: u64) {
        if !self.entries.contains_key(key)
            && !self.has_room(now)
            && let Some(other) = self.entries.keys().next().cloned()
        {
            self.entries.remove(&other);
        }
        self.put(key, SlotChoice::Own, value, expires_us, now);
    }

    fn remove(&mut self, key: &str) -> Option<ExpiringEntry<V>> {
        self.entries.remove(key)
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.shared.clear();
    }

    fn shared(&self, key: &str, now: u64) -> Option<&ExpiringEntry<V>> {
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
    use crate::cache::Payload;
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
            tables.failures.entries.len()
                + tables.lockouts.entries.len()
                + tables.addresses.entries.len()
                + tables.addresses.shared.len()
        })
    }

    fn record_of_alice() -> CredentialRecord {
        CredentialRecord {
            user_id: "alice".into(),
            rate: None,
            payload: Payload::default(),
        }
    }

    fn fill(cache: &MemoryCache, key: &str, ttl: Duration) -> FillResult {
        cache.fill(same(key), &record_of_alice(), EPOCH, ttl)
    }

    #[test]
    fn a_flood_of_addresses_neither_frees_nor_grows() {
        let (cache, clock) = cache(100);
        let lock_out = |address: &str| (0..3).find_map(|_| cache.count_failure(address, POLICY));
        let rate = Rate::per_minute(NonZeroU32::new(5).unwrap());
        assert!(lock_out("before").is_some());
        for stranger in 0..20_000 {
            cache.count_failure(&format!("stranger {stranger}"), POLICY);
            cache.count(&[(Bucket::Address(&format!("stranger {stranger}")), rate)]);
        }
        assert!(cache.count_failure("before", POLICY).is_some());
        assert!(
            lock_out("during").is_some(),
            "it counts though there is no room"
        );
        assert!(size(&cache) <= 300 + SHARED_SLOTS);
        clock.advance(MINUTE + SWEEP_EVERY);
        cache.count_failure("after", POLICY);
        assert!(
            cache.count_failure("during", POLICY).is_some(),
            "it stays out when there is room again"
        );
        assert!(cache.count_failure("before", POLICY).is_some());
    }

    #[test]
    fn a_flood_of_addresses_shuts_out_nobody_else() {
        let (cache, _) = cache(100);
        let record = record_of_alice();
        assert_eq!(fill(&cache, "key", MINUTE), FillResult::Kept);
        let rate = Rate::per_minute(NonZeroU32::new(5).unwrap());
        for stranger in 0..60_000 {
            cache.count_failure(&format!("stranger {stranger}"), POLICY);
            cache.count(&[(Bucket::Address(&format!("stranger {stranger}")), rate)]);
        }
        let from = |address, record| {
            cache.identify(&CallerLookup {
                address: Some((address, rate)),
                record,
            })
        };
        let unknown = from("elsewhere", None);
        assert_eq!(unknown.locked_out, None, "it has never failed");
        let limited = unknown.address.unwrap();
        assert!(!limited.allowed, "all shared slots are used up");
        let known = from("elsewhere", Some(same("key")));
        assert_eq!(known.record, RecordLookup::Found(record));
        assert!(known.address.unwrap().allowed);
    }

    #[test]
    fn with_as_many_lockouts_as_fit_no_more_are_made_and_none_is_forgotten() {
        let (cache, clock) = cache(10);
        let lock_out =
            |n: u32| (0..3).find_map(|_| cache.count_failure(&format!("stranger {n}"), POLICY));
        assert_eq!((0..30).filter_map(lock_out).count(), 10);
        let listed = cache.lockouts(100);
        assert_eq!(listed.len(), 10);
        assert!(size(&cache) <= 20);
        clock.advance(POLICY.block);
        assert_eq!(cache.lockouts(100), []);
        assert!(lock_out(99).is_some());
    }

    #[test]
    fn with_more_tombstones_than_fit_nothing_is_kept() {
        let (cache, clock) = cache(10);
        assert_eq!(fill(&cache, "live", 2 * MINUTE), FillResult::Kept);
        for key in 0..20 {
            cache.bury(Tombstone::Record(&key.to_string()), MINUTE);
        }
        for key in 0..20 {
            assert_eq!(fill(&cache, &key.to_string(), MINUTE), FillResult::Refused);
        }
        clock.advance(MINUTE);
        assert_eq!(fill(&cache, "live", MINUTE), FillResult::Kept);
    }

    #[test]
    fn values_beyond_the_bound_are_not_kept_and_no_dropped_one_comes_back() {
        let (cache, clock) = cache(10);
        let look = |name: &str| match cache.find_value(name) {
            CachedValue::Absent(absence) => absence,
            CachedValue::Found(value) => panic!("{value:?}"),
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
        let fill = |key: i32| fill(&cache, &key.to_string(), MINUTE) == FillResult::Kept;
        assert_eq!((0..20).filter(|&key| fill(key)).count(), 10);
        clock.advance(MINUTE);
        assert!(fill(20));
    }
}
