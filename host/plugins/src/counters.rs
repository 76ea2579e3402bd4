//! Counters of a component in its slot: exchanges, outcomes, durations and charges. Counted in process, and added to
//! the database every few seconds: a crash loses the latest counts.
//!
//! [`Counters::suspect`] reports a component that has failed too often to serve. No single account can cause that
//! alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_ledger::{AccountId, Credits};

/// Period in which exchanges count together.
const WITHIN: Duration = Duration::from_secs(60);

/// Resolution of that period for shares.
const SLICE: Duration = Duration::from_secs(10);

/// Minimum number of exchanges for a share.
const EXCHANGES_FOR_A_SHARE: u32 = 20;

/// Counts since the last [`Counters::take`].
#[derive(Debug, Default)]
pub struct Counters {
    requests: AtomicI64,
    errors: AtomicI64,
    traps: AtomicI64,
    latency_us: AtomicI64,
    credits: AtomicI64,
    clamps: AtomicI64,
    recent: Mutex<RecentEvents>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// Complete, or ended by the departure of its client or the gateway.
    Well,
    /// An error of the upstream, the client or the gateway.
    InError,
    /// A fault of the component: a forbidden request, or events that form no valid response.
    InFault,
    /// A trap: the component trapped, exceeded a budget or returned an unreadable result.
    InTrap,
}

/// The effects of a filter on a request and its response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterEffects {
    /// The filter refused the request.
    pub refused: bool,
    /// The filter changed the request or the response.
    pub changed: bool,
    /// The filter ended the response.
    pub stopped: bool,
    /// The filter responded to the request itself.
    pub answered: bool,
}

/// The evidence against a component, from requests of at least two accounts within a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspicion {
    /// The number of traps.
    Traps(u32),
    /// The number of its own failures, including traps, and the number of exchanges.
    Faults(u32, u32),
}

impl std::fmt::Display for Suspicion {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Traps(traps) => write!(formatter, "{traps} traps within a minute"),
            Self::Faults(faults, exchanges) => write!(
                formatter,
                "{faults} of {exchanges} exchanges within a minute failed by its fault"
            ),
        }
    }
}

/// The events of the last minute.
#[derive(Debug, Default)]
struct RecentEvents {
    /// The latest traps, at most as many as the limit.
    traps: VecDeque<Instant>,
    trapped: LatestTwo,
    /// Slices of time, the oldest first.
    slices: VecDeque<CounterSlice>,
    at_fault: LatestTwo,
}

#[derive(Debug)]
struct CounterSlice {
    began: Instant,
    exchanges: u32,
    faults: u32,
}

/// The two accounts of the latest events, each with its latest time: enough to tell whether more than one account is
/// affected.
#[derive(Debug, Default)]
struct LatestTwo {
    latest: Option<(AccountId, Instant)>,
    other: Option<(AccountId, Instant)>,
}

/// Sums of counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExchangeCounts {
    pub requests: i64,
    /// Exchanges that ended in an error, including traps.
    pub errors: i64,
    /// Exchanges that ended in a trap.
    pub traps: i64,
    /// Total duration, in microseconds.
    pub latency_us: i64,
    /// Total charges, in micro-credits.
    pub credits: i64,
    /// Responses whose reported usage was rejected.
    pub clamps: i64,
}

impl ExchangeCounts {
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
    pub fn exchange(&self, ended: ExchangeEnd, took: Duration) {
        let add = |counter: &AtomicI64, number| counter.fetch_add(number, Ordering::Relaxed);
        add(&self.requests, 1);
        add(&self.errors, i64::from(ended != ExchangeEnd::Well));
        add(&self.traps, i64::from(ended == ExchangeEnd::InTrap));
        add(&self.latency_us, took.as_micros() as i64);
    }

    pub fn charge(&self, credits: Credits) {
        self.credits.fetch_add(credits.micro(), Ordering::Relaxed);
    }

    /// Counts a response whose reported usage was rejected.
    pub fn clamp(&self) {
        self.clamps.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the end of an exchange of this account. Returns a suspicion if the component has failed too often by
    /// now: with `max_traps` traps, or by its own fault in half of the exchanges. The events are forgotten then.
    /// Without a limit there is no suspicion.
    pub fn suspect(
        &self,
        ended: ExchangeEnd,
        account: &AccountId,
        max_traps: u32,
        now: Instant,
    ) -> Option<Suspicion> {
        if max_traps == 0 {
            return None;
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let suspicion = recent.note(ended, account, max_traps, now)?;
        *recent = RecentEvents::default();
        Some(suspicion)
    }

    /// Takes the counts since the last call.
    pub(super) fn take(&self) -> ExchangeCounts {
        let take = |counter: &AtomicI64| counter.swap(0, Ordering::Relaxed);
        ExchangeCounts {
            requests: take(&self.requests),
            errors: take(&self.errors),
            traps: take(&self.traps),
            latency_us: take(&self.latency_us),
            credits: take(&self.credits),
            clamps: take(&self.clamps),
        }
    }

    /// Returns the counts since the last [`Self::take`], which stay.
    pub(super) fn peek(&self) -> ExchangeCounts {
        let read = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        ExchangeCounts {
            requests: read(&self.requests),
            errors: read(&self.errors),
            traps: read(&self.traps),
            latency_us: read(&self.latency_us),
            credits: read(&self.credits),
            clamps: read(&self.clamps),
        }
    }

    /// Restores counts after a failed write; if only the write's response was lost, they count twice.
    pub(super) fn put_back(&self, counts: &ExchangeCounts) {
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

impl RecentEvents {
    fn note(
        &mut self,
        ended: ExchangeEnd,
        account: &AccountId,
        max_traps: u32,
        now: Instant,
    ) -> Option<Suspicion> {
        let is_fault = matches!(ended, ExchangeEnd::InFault | ExchangeEnd::InTrap);
        let (exchanges, faults) = self.count(is_fault, now);
        if !is_fault {
            return None;
        }
        self.at_fault.note(account, now);
        if ended == ExchangeEnd::InTrap {
            self.trapped.note(account, now);
            self.traps.push_back(now);
        }
        while self.traps.len() > max_traps as usize
            || self.traps.front().is_some_and(|at| is_over(*at, now))
        {
            self.traps.pop_front();
        }
        if self.traps.len() == max_traps as usize && self.trapped.are_two(now) {
            return Some(Suspicion::Traps(max_traps));
        }
        let is_share = exchanges >= EXCHANGES_FOR_A_SHARE && 2 * faults >= exchanges;
        (is_share && self.at_fault.are_two(now)).then_some(Suspicion::Faults(faults, exchanges))
    }

    /// Counts an exchange. Returns the number of exchanges within a minute, and the number of failures.
    fn count(&mut self, is_fault: bool, now: Instant) -> (u32, u32) {
        while self
            .slices
            .front()
            .is_some_and(|slice| is_over(slice.began, now))
        {
            self.slices.pop_front();
        }
        match self.slices.back_mut() {
            Some(slice) if now.duration_since(slice.began) < SLICE => {
                slice.exchanges = slice.exchanges.saturating_add(1);
                slice.faults = slice.faults.saturating_add(is_fault.into());
            }
            _ => self.slices.push_back(CounterSlice {
                began: now,
                exchanges: 1,
                faults: is_fault.into(),
            }),
        }
        self.slices
            .iter()
            .fold((0, 0), |(exchanges, faults), slice| {
                (
                    u32::saturating_add(exchanges, slice.exchanges),
                    u32::saturating_add(faults, slice.faults),
                )
            })
    }
}

impl LatestTwo {
    fn note(&mut self, account: &AccountId, now: Instant) {
        match &mut self.latest {
            Some((latest, at)) if latest == account => *at = now,
            latest => {
                let before = latest.replace((account.clone(), now));
                self.other = before;
            }
        }
    }

    fn are_two(&self, now: Instant) -> bool {
        let mut both = [&self.latest, &self.other].into_iter().flatten();
        both.clone().count() == 2 && both.all(|(_, at)| !is_over(*at, now))
    }
}

fn is_over(at: Instant, now: Instant) -> bool {
    now.duration_since(at) >= WITHIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str) -> AccountId {
        AccountId(name.to_owned())
    }

    #[test]
    fn traps_count_together_within_a_minute() {
        let counters = Counters::default();
        let start = Instant::now();
        let trap = |seconds, name| {
            let at = start + Duration::from_secs(seconds);
            counters.suspect(ExchangeEnd::InTrap, &account(name), 5, at)
        };
        for (second, name) in [(0, "a"), (20, "b"), (40, "a"), (59, "b")] {
            assert_eq!(trap(second, name), None, "{second}");
        }
        assert_eq!(trap(61, "a"), None, "the first is too old");
        assert_eq!(trap(62, "a"), Some(Suspicion::Traps(5)));
        assert_eq!(trap(63, "b"), None, "they begin anew");
        for _ in 0..100 {
            let unlimited = counters.suspect(ExchangeEnd::InTrap, &account("b"), 0, start);
            assert_eq!(unlimited, None);
        }
    }

    #[test]
    fn one_account_alone_raises_no_suspicion() {
        let counters = Counters::default();
        let start = Instant::now();
        let ended = |ended, seconds, name| {
            let at = start + Duration::from_secs(seconds);
            counters.suspect(ended, &account(name), 5, at)
        };
        assert_eq!(ended(ExchangeEnd::InTrap, 0, "other"), None);
        for second in 60..90 {
            assert_eq!(ended(ExchangeEnd::InTrap, second, "one"), None, "{second}");
            assert_eq!(ended(ExchangeEnd::InFault, second, "one"), None, "{second}");
        }
        // Exchanges of other accounts in between change nothing.
        assert_eq!(ended(ExchangeEnd::Well, 90, "other"), None);
        assert_eq!(
            ended(ExchangeEnd::InTrap, 91, "other"),
            Some(Suspicion::Traps(5)),
            "now there are two"
        );
    }

    #[test]
    fn a_component_that_fails_half_of_the_time_is_suspect_without_a_trap() {
        let counters = Counters::default();
        let start = Instant::now();
        let ended = |ended, seconds, name| {
            let at = start + Duration::from_secs(seconds);
            counters.suspect(ended, &account(name), 5, at)
        };
        // Exchanges from more than a minute ago do not count.
        for _ in 0..100 {
            assert_eq!(ended(ExchangeEnd::Well, 0, "a"), None);
        }
        for exchange in 0..19 {
            let how = [ExchangeEnd::InFault, ExchangeEnd::InError][exchange % 2];
            let name = ["a", "a", "b", "b"][exchange % 4];
            assert_eq!(ended(how, 70 + exchange as u64, name), None, "{exchange}");
        }
        assert_eq!(
            ended(ExchangeEnd::InFault, 89, "a"),
            Some(Suspicion::Faults(11, 20))
        );
        assert_eq!(
            ended(ExchangeEnd::InFault, 89, "b"),
            None,
            "they begin anew"
        );
    }

    #[test]
    fn counts_are_taken_once() {
        let counters = Counters::default();
        counters.exchange(ExchangeEnd::Well, Duration::from_micros(3));
        counters.exchange(ExchangeEnd::InError, Duration::from_micros(4));
        counters.exchange(ExchangeEnd::InFault, Duration::from_micros(5));
        counters.exchange(ExchangeEnd::InTrap, Duration::from_micros(6));
        counters.charge(Credits::from_micro(7));
        counters.clamp();
        let counts = ExchangeCounts {
            requests: 4,
            errors: 3,
            traps: 1,
            latency_us: 18,
            credits: 7,
            clamps: 1,
        };
        assert_eq!(counters.take(), counts);
        assert_eq!(counters.take(), ExchangeCounts::default());
        counters.put_back(&counts);
        assert_eq!(counters.take(), counts);
    }
}
