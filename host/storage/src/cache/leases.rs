//! Slices of hot rate limits: a node leases requests of a limit at once, and then counts them itself.
//!
//! Redis deducts a slice when a node leases it, so nodes never pass a limit together. A slice is at most 100 ms of its
//! limit and lapses after [`LIFETIME`]; Redis leases at most a twentieth of the limit in each [`LIFETIME`]. Therefore
//! at most a tenth of a limit is in slices that may lapse unused.
//!
//! A limit of less than 1,200 requests per minute has no slices, because 100 ms of it is less than two requests.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Rate, RateDecision};
use crate::clock::Clock;

/// Lifetime of a slice, and the period in which requests are counted to find hot limits.
pub(super) const LIFETIME: Duration = Duration::from_secs(1);

/// Maximum number of limits whose requests are counted in a period.
const MOST: usize = 50_000;

/// The largest slice of a limit: 100 ms of it.
fn slice(rate: Rate) -> u32 {
    rate.per_minute.get() / 600
}

/// Requests of a limit that nodes may lease in each [`LIFETIME`].
pub(super) fn most_leased(rate: Rate) -> u32 {
    rate.per_minute.get() / 20
}

/// The slices of a node.
pub(super) struct Leases {
    clock: Clock,
    limits: Mutex<Limits>,
}

/// Limits in two generations: after [`LIFETIME`], the younger one replaces the older one.
#[derive(Default)]
struct Limits {
    young: HashMap<Box<str>, HotLimit>,
    old: HashMap<Box<str>, HotLimit>,
    since: Duration,
}

#[derive(Default)]
struct HotLimit {
    /// Requests in this period and in the last one.
    requests: u32,
    last_requests: u32,
    /// Whether a request leases a slice now.
    is_leasing: bool,
    slice: Option<Slice>,
}

struct Slice {
    left: u32,
    leased_at: Duration,
    /// The decision on the request that leased the slice.
    decision: RateDecision,
}

/// The count of a request in one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Share {
    /// The request took its place in a slice.
    Leased(RateDecision),
    /// Redis must count the request, and may lease so many more.
    Wanted(u32),
}

impl Leases {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            limits: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Counts a request in a limit.
    pub(super) fn take(&self, name: &str, rate: Rate, now: Duration) -> Share {
        let most = slice(rate);
        if most < 2 {
            return Share::Wanted(0);
        }
        let mut limits = self.limits();
        let Some(limit) = limits.find(name, now) else {
            return Share::Wanted(0);
        };
        limit.requests += 1;
        if let Some(decision) = limit.slice.as_mut().and_then(|slice| slice.take(now)) {
            return Share::Leased(decision);
        }
        let likely = limit.requests.max(limit.last_requests) / 2;
        if limit.is_leasing || likely < 2 {
            return Share::Wanted(0);
        }
        limit.is_leasing = true;
        Share::Wanted(likely.min(most))
    }

    /// Gives back the place of a request that another limit refused.
    pub(super) fn give_back(&self, name: &str, now: Duration) {
        let mut limits = self.limits();
        if let Some(HotLimit {
            slice: Some(slice), ..
        }) = limits.find(name, now)
        {
            slice.left += 1;
        }
    }

    /// Keeps a slice that a request asked for at a time.
    pub(super) fn keep(&self, name: &str, left: u32, decision: RateDecision, asked_at: Duration) {
        let mut limits = self.limits();
        if let Some(limit) = limits.find(name, asked_at) {
            limit.is_leasing = false;
            limit.slice = (left > 0).then_some(Slice {
                left,
                leased_at: asked_at,
                decision,
            });
        }
    }

    fn limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limits {
    fn find(&mut self, name: &str, now: Duration) -> Option<&mut HotLimit> {
        if now.saturating_sub(self.since) >= LIFETIME {
            self.old = std::mem::take(&mut self.young);
            if now.saturating_sub(self.since) >= 2 * LIFETIME {
                self.old.clear();
            }
            self.since = now;
        }
        if !self.young.contains_key(name) {
            if self.young.len() >= MOST {
                return None;
            }
            let before = self.old.remove(name).unwrap_or_default();
            let limit = HotLimit {
                last_requests: before.requests,
                slice: before.slice,
                ..HotLimit::default()
            };
            self.young.insert(name.into(), limit);
        }
        self.young.get_mut(name)
    }
}

impl Slice {
    fn take(&mut self, now: Duration) -> Option<RateDecision> {
        let age = now.saturating_sub(self.leased_at);
        if age >= LIFETIME {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        Some(RateDecision {
            remaining: self.decision.remaining + self.left,
            reset_after: self.decision.reset_after.saturating_sub(age),
            ..self.decision
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const ALLOWED: RateDecision = RateDecision {
        allowed: true,
        limit: 6_000,
        remaining: 5_000,
        reset_after: Duration::from_secs(10),
        retry_after: Duration::ZERO,
    };

    fn rate(per_minute: u32) -> Rate {
        Rate::per_minute(NonZeroU32::new(per_minute).unwrap())
    }

    fn is_leased(leases: &Leases, now: Duration) -> bool {
        matches!(leases.take("a", rate(6_000), now), Share::Leased(_))
    }

    #[test]
    fn a_hot_limit_gets_at_most_a_hundred_milliseconds_of_itself() {
        let now = Duration::from_secs(5);
        for (per_minute, most) in [(60, 0), (1_199, 0), (1_200, 2), (6_000, 10), (60_000, 100)] {
            let leases = Leases::new(Clock::System);
            let wanted = (0..1_000).map(|_| leases.take("a", rate(per_minute), now));
            let all: Vec<_> = wanted.collect();
            assert_eq!(all[0], Share::Wanted(0), "{per_minute}: one is not hot");
            // Only one request leases at a time.
            let asked = all.iter().filter(|share| **share != Share::Wanted(0));
            assert_eq!(asked.count(), usize::from(most > 0), "{per_minute}");
            leases.keep("a", 0, ALLOWED, now);
            let share = leases.take("a", rate(per_minute), now);
            assert_eq!(share, Share::Wanted(most), "{per_minute}");
        }
    }

    #[test]
    fn a_slice_is_used_up_or_lapses() {
        let leases = Leases::new(Clock::System);
        let now = Duration::from_secs(5);
        leases.keep("a", 2, ALLOWED, now);
        let later = now + Duration::from_millis(999);
        let Share::Leased(decision) = leases.take("a", rate(6_000), later) else {
            panic!("it is leased");
        };
        assert_eq!(decision.remaining, 5_001);
        assert_eq!(decision.reset_after, Duration::from_millis(9_001));
        leases.give_back("a", later);
        assert!(is_leased(&leases, later) && is_leased(&leases, later));
        assert!(!is_leased(&leases, later), "it is used up");
        leases.keep("a", 2, ALLOWED, now);
        assert!(!is_leased(&leases, now + LIFETIME), "it has lapsed");
    }
}
