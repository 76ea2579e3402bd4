//! What a component has done in its slot: how often it was asked, how it fared, how long it took, what was
//! charged for it. Counted in process, and added to the database every few seconds: a crash loses those.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_ledger::Credits;

/// Within which traps count together.
const TRAPS_WITHIN: Duration = Duration::from_secs(60);

/// Counts since they were last taken.
#[derive(Debug, Default)]
pub struct Counters {
    requests: AtomicI64,
    errors: AtomicI64,
    traps: AtomicI64,
    latency_us: AtomicI64,
    credits: AtomicI64,
    clamps: AtomicI64,
    recent_traps: Mutex<VecDeque<Instant>>,
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an answer, or because its client or the gateway went away.
    Well,
    /// With an error, whoever's.
    InError,
    /// The component trapped, ran out of a budget or returned nonsense.
    InTrap,
}

/// Sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Exchanges.
    pub requests: i64,
    /// Those that ended in an error, traps included.
    pub errors: i64,
    /// Those that ended in a trap.
    pub traps: i64,
    /// How long all of them took, in microseconds.
    pub latency_us: i64,
    /// What was charged for them, in micro-credits.
    pub credits: i64,
    /// Answers of them whose reported usage was not believed.
    pub clamps: i64,
}

impl Counts {
    /// Adds another's.
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.traps += other.traps;
        self.latency_us += other.latency_us;
        self.credits += other.credits;
        self.clamps += other.clamps;
    }
}

impl Counters {
    /// Counts an exchange.
    pub fn exchange(&self, ended: Ended, took: Duration) {
        let add = |counter: &AtomicI64, number| counter.fetch_add(number, Ordering::Relaxed);
        add(&self.requests, 1);
        add(&self.errors, i64::from(ended != Ended::Well));
        add(&self.traps, i64::from(ended == Ended::InTrap));
        add(&self.latency_us, took.as_micros() as i64);
    }

    /// Counts a charge.
    pub fn charge(&self, credits: Credits) {
        self.credits.fetch_add(credits.micro(), Ordering::Relaxed);
    }

    /// Counts an answer whose reported usage was not believed.
    pub fn clamp(&self) {
        self.clamps.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a trap, and says whether there have been so many within a minute. They are forgotten then.
    pub fn trapped(&self, limit: u32, now: Instant) -> bool {
        let mut recent = self
            .recent_traps
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        recent.retain(|&at| now.duration_since(at) < TRAPS_WITHIN);
        recent.push_back(now);
        let is_enough = limit > 0 && recent.len() >= limit as usize;
        // Without a limit, nobody else would empty it.
        if is_enough || limit == 0 {
            recent.clear();
        }
        is_enough
    }

    /// What has been counted since this was last called.
    pub(super) fn take(&self) -> Counts {
        let take = |counter: &AtomicI64| counter.swap(0, Ordering::Relaxed);
        Counts {
            requests: take(&self.requests),
            errors: take(&self.errors),
            traps: take(&self.traps),
            latency_us: take(&self.latency_us),
            credits: take(&self.credits),
            clamps: take(&self.clamps),
        }
    }

    /// What has been counted since then, which stays.
    pub(super) fn peek(&self) -> Counts {
        let read = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        Counts {
            requests: read(&self.requests),
            errors: read(&self.errors),
            traps: read(&self.traps),
            latency_us: read(&self.latency_us),
            credits: read(&self.credits),
            clamps: read(&self.clamps),
        }
    }

    /// Puts back what could not be written; of a write whose answer was lost, that may be twice.
    pub(super) fn put_back(&self, counts: &Counts) {
        for (counter, number) in [
            (&self.requests, counts.requests),
            (&self.errors, counts.errors),
            (&self.traps, counts.traps),
            (&self.latency_us, counts.latency_us),
            (&self.credits, counts.credits),
            (&self.clamps, counts.clamps),
        ] {
            counter.fetch_add(number, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_count_together_within_a_minute() {
        let counters = Counters::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in [0, 20, 40, 59] {
            assert!(!counters.trapped(5, at(second)), "{second}");
        }
        assert!(!counters.trapped(5, at(61)), "the first is too old");
        assert!(counters.trapped(5, at(62)));
        assert!(!counters.trapped(5, at(63)), "they begin anew");
        for _ in 0..100 {
            assert!(!counters.trapped(0, at(64)), "there is no limit");
        }
    }

    #[test]
    fn counts_are_taken_once() {
        let counters = Counters::default();
        counters.exchange(Ended::Well, Duration::from_micros(3));
        counters.exchange(Ended::InError, Duration::from_micros(4));
        counters.exchange(Ended::InTrap, Duration::from_micros(5));
        counters.charge(Credits::from_micro(7));
        counters.clamp();
        let counts = Counts {
            requests: 3,
            errors: 2,
            traps: 1,
            latency_us: 12,
            credits: 7,
            clamps: 1,
        };
        assert_eq!(counters.take(), counts);
        assert_eq!(counters.take(), Counts::default());
        counters.put_back(&counts);
        assert_eq!(counters.take(), counts);
    }
}
