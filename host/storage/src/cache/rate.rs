//! Rate limits, by the same algorithm in every cache.

use std::num::NonZeroU32;
use std::time::Duration;

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
    /// Requests or tokens of a part of an account. The name contains a line break, which no user's id does.
    Part(&'a str),
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

impl Rate {
    /// A rate of this many requests per minute.
    pub const fn per_minute(per_minute: NonZeroU32) -> Self {
        Self { per_minute }
    }

    /// Microseconds between two requests. Rounded up: never more requests than the rate pass.
    pub(super) fn interval_us(self) -> u64 {
        60_000_000_u64.div_ceil(self.per_minute.get().into())
    }

    /// The share of an address's rate for unknown callers.
    pub(super) fn of_strangers(self) -> u32 {
        self.per_minute.get().div_ceil(2)
    }

    /// Returns the arrival time after this many, whether or not the rate allows them.
    pub(super) fn charge(self, number: u32, arrival_us: Option<u64>, now_us: u64) -> u64 {
        let before = arrival_us.unwrap_or(0).max(now_us);
        before + self.interval_us() * u64::from(number)
    }

    /// Decides on a request by the generic cell rate algorithm, as in <https://brandur.org/rate-limiting>.
    ///
    /// `most` is the burst size. `arrival_us` is the time at which all allowed requests would have arrived at an even
    /// pace; the second value returned is its successor if the request counts. The scripts of [`super::redis`] use the same
    /// algorithm.
    pub(super) fn decide(
        self,
        most: u32,
        arrival_us: Option<u64>,
        now_us: u64,
    ) -> (RateDecision, u64) {
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
    fn an_excess_delays_later_requests() {
        let rate = Rate::per_minute(NonZeroU32::new(60).unwrap());
        let now = 5_000_000;
        let arrival = rate.charge(90, None, now);
        let (refused, _) = rate.decide(60, Some(arrival), now);
        assert!(!refused.allowed);
        assert_eq!(refused.retry_after, Duration::from_secs(31));
        let later = now + 31_000_000;
        assert!(rate.decide(60, Some(arrival), later).0.allowed);
    }

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
