//! Records of credentials in the process, for at most [`TTL`]: a request of a known key does not read its record in
//! Redis.
//!
//! **Invariant:** the process keeps records only while it is subscribed to the announcements of ended records. If the
//! subscription is lost, it drops all records.
//!
//! **Invariant:** a record whose end was announced after its lookup began is not kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{CredentialRecord, Epoch, RecordKey, Tombstone};
use crate::clock::Clock;

/// Lifetime of a record in the process.
const TTL: Duration = Duration::from_secs(15);

/// Maximum number of records, and of ended users. A record takes about 1 KiB.
const MOST: usize = 50_000;

/// A record that this process has read within [`TTL`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRecord {
    pub record: Arc<CredentialRecord>,
    /// The epoch of its lookup.
    pub epoch: Epoch,
}

/// Proof that a lookup began at this state of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Beginning(u64);

pub(super) struct Records {
    clock: Clock,
    state: Mutex<RecordsState>,
}

#[derive(Default)]
struct RecordsState {
    /// Whether the process hears of ended records.
    is_open: bool,
    /// The number of ended records and lost subscriptions.
    ended: u64,
    /// The records by their ids, in two generations: after [`TTL`], the younger one replaces the older one.
    young: HashMap<Box<str>, Entry>,
    old: HashMap<Box<str>, Entry>,
    /// The users whose records ended, and the value of `ended` at that time.
    users: HashMap<Box<str>, u64>,
    old_users: HashMap<Box<str>, u64>,
    since: Duration,
}

struct Entry {
    secret: Box<str>,
    known: KnownRecord,
    kept_at: Duration,
    ended: u64,
}

impl Records {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Begins to keep records: from now on, the process hears of ended ones.
    pub(super) fn open(&self) {
        self.state().is_open = true;
    }

    /// Drops all records.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_open = false;
        state.clear();
    }

    /// Drops all records, and prevents lookups under way from keeping them.
    pub(super) fn clear(&self) {
        self.state().clear();
    }

    /// Returns the record of a key, if the process has one.
    pub(super) fn find(&self, key: RecordKey<'_>) -> Option<KnownRecord> {
        let now = self.clock.monotonic();
        let state = self.state();
        let entry = state.young.get(key.id).or_else(|| state.old.get(key.id))?;
        let user_ended = state.ended_at(&entry.known.record.user_id);
        let is_current = *entry.secret == *key.secret
            && now.saturating_sub(entry.kept_at) < TTL
            && user_ended.is_none_or(|at| at <= entry.ended);
        is_current.then(|| entry.known.clone())
    }

    /// Begins a lookup in Redis; `None` if its result must not be kept.
    pub(super) fn begin(&self) -> Option<Beginning> {
        let state = self.state();
        state.is_open.then_some(Beginning(state.ended))
    }

    /// Keeps the result of a lookup, unless a record ended since its beginning.
    pub(super) fn keep(&self, beginning: Beginning, key: RecordKey<'_>, known: KnownRecord) {
        let kept_at = self.clock.monotonic();
        let mut state = self.state();
        state.turn(kept_at);
        if state.is_open && state.ended == beginning.0 && state.young.len() < MOST {
            let entry = Entry {
                secret: key.secret.into(),
                known,
                kept_at,
                ended: beginning.0,
            };
            state.young.insert(key.id.into(), entry);
        }
    }

    /// Drops the records that a tombstone covers, and prevents lookups under way from keeping them.
    pub(super) fn end(&self, tombstone: Tombstone<'_>) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        state.turn(now);
        state.ended += 1;
        match tombstone {
            Tombstone::Record(id) => {
                state.young.remove(id);
                state.old.remove(id);
            }
            Tombstone::User(_) if state.users.len() >= MOST => state.clear(),
            Tombstone::User(user_id) => {
                let ended = state.ended;
                state.users.insert(user_id.into(), ended);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, RecordsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordsState {
    fn clear(&mut self) {
        self.ended += 1;
        for records in [&mut self.young, &mut self.old] {
            *records = HashMap::new();
        }
        for users in [&mut self.users, &mut self.old_users] {
            *users = HashMap::new();
        }
    }

    /// Removes the generation whose entries have all expired.
    fn turn(&mut self, now: Duration) {
        if now.saturating_sub(self.since) >= TTL {
            self.old = std::mem::take(&mut self.young);
            self.old_users = std::mem::take(&mut self.users);
            self.since = now;
        }
    }

    fn ended_at(&self, user_id: &str) -> Option<u64> {
        let users = self.users.get(user_id);
        users.or_else(|| self.old_users.get(user_id)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, Millis};

    const KEY: RecordKey<'static> = RecordKey {
        secret: "secret",
        id: "id",
    };

    fn known(user_id: &str) -> KnownRecord {
        let record = CredentialRecord {
            user_id: user_id.to_owned(),
            rate: None,
            payload: Vec::new().into(),
        };
        KnownRecord {
            record: Arc::new(record),
            epoch: Epoch(1),
        }
    }

    fn records() -> (Records, ManualClock) {
        let clock = ManualClock::at(Millis(1_000_000));
        let records = Records::new(Clock::Manual(clock.clone()));
        records.open();
        (records, clock)
    }

    fn keep(records: &Records, user_id: &str) {
        let beginning = records.begin().expect("open");
        records.keep(beginning, KEY, known(user_id));
    }

    #[test]
    fn records_live_for_fifteen_seconds_under_their_secret() {
        let (records, clock) = records();
        keep(&records, "alice");
        assert_eq!(records.find(KEY), Some(known("alice")));
        let forged = RecordKey {
            secret: "other",
            ..KEY
        };
        assert_eq!(records.find(forged), None);
        clock.set(Millis(1_014_999));
        assert_eq!(records.find(KEY), Some(known("alice")));
        clock.set(Millis(1_015_000));
        assert_eq!(records.find(KEY), None);
    }

    #[test]
    fn ended_records_do_not_return_with_a_slow_lookup() {
        for tombstone in [Tombstone::Record("id"), Tombstone::User("alice")] {
            let (records, _clock) = records();
            keep(&records, "alice");
            let slow = records.begin().expect("open");
            records.end(tombstone);
            assert_eq!(records.find(KEY), None, "{tombstone:?}");
            records.keep(slow, KEY, known("alice"));
            assert_eq!(records.find(KEY), None, "{tombstone:?}");
            // A lookup that begins after the end found the tombstone, or what replaced the record.
            keep(&records, "alice");
            assert_eq!(records.find(KEY), Some(known("alice")), "{tombstone:?}");
        }
    }

    #[test]
    fn without_a_subscription_no_record_is_kept() {
        let (records, _clock) = records();
        keep(&records, "alice");
        let before = records.begin().expect("open");
        records.close();
        assert_eq!(records.find(KEY), None);
        assert_eq!(records.begin(), None);
        records.open();
        records.keep(before, KEY, known("alice"));
        assert_eq!(records.find(KEY), None, "it began before the loss");
    }
}
