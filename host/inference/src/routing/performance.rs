//! The recent performance of upstreams, as this node has seen it.
//!
//! The host measures times and counts bytes, so that no adapter can attract requests by what it reports.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The weight of a new response in the average.
const SHARE_OF_LATEST: f64 = 0.2;

/// The age beyond which an upstream's average no longer counts.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// The output of a usual response in bytes: some 250 tokens.
const USUAL_BYTES: f64 = 1_024.0;

/// Fewer bytes say nothing about an upstream's speed.
const LEAST_BYTES: u64 = 64;

/// The performance of all upstreams, by the keys of their credentials. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Performance(Arc<Mutex<HashMap<Arc<str>, Observed>>>);

/// The observations of an upstream.
#[derive(Debug, Default)]
struct Observed {
    under_way: u32,
    average: Option<Average>,
}

#[derive(Debug, Clone, Copy)]
struct Average {
    first_token: f64,
    /// Seconds per byte behind the first token.
    per_byte: f64,
    at: Instant,
}

/// An attempt under way at an upstream.
#[derive(Debug)]
pub struct UnderWay {
    performance: Performance,
    key: Arc<str>,
}

impl Performance {
    /// Counts an attempt until the result is dropped.
    pub fn begin(&self, key: &Arc<str>) -> UnderWay {
        self.lock().entry(key.clone()).or_default().under_way += 1;
        UnderWay {
            performance: self.clone(),
            key: key.clone(),
        }
    }

    /// Returns the number of attempts under way.
    pub fn under_way(&self, key: &str) -> u32 {
        self.lock()
            .get(key)
            .map_or(0, |observed| observed.under_way)
    }

    /// Returns the expected time of a usual response in seconds. One request at a time tries an unknown upstream: for this
    /// one it is zero, for all others infinite.
    pub fn expected(&self, key: &str) -> f64 {
        let performance = self.lock();
        let observed = performance.get(key);
        let average = observed.and_then(|observed| observed.average);
        match average.filter(|average| average.at.elapsed() < FORGOTTEN_AFTER) {
            Some(average) => average.first_token + average.per_byte * USUAL_BYTES,
            None if observed.is_some_and(|observed| observed.under_way > 0) => f64::INFINITY,
            None => 0.0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Observed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnderWay {
    /// Notes a complete response with this many bytes. Without the time of its first token, the whole time counts as the
    /// time of its bytes.
    pub fn answered(&self, took: Duration, first_token: Option<Duration>, bytes: u64) {
        let first_token = first_token.unwrap_or_default();
        let rest = took.saturating_sub(first_token).as_secs_f64();
        let mut performance = self.performance.lock();
        let observed = performance.entry(self.key.clone()).or_default();
        let average = &mut observed.average;
        let before = average.filter(|average| average.at.elapsed() < FORGOTTEN_AFTER);
        let mut latest = Average {
            first_token: first_token.as_secs_f64(),
            per_byte: rest / bytes.max(LEAST_BYTES) as f64,
            at: Instant::now(),
        };
        if let Some(before) = before {
            let mix = |latest: f64, before: f64| before + SHARE_OF_LATEST * (latest - before);
            latest.first_token = mix(latest.first_token, before.first_token);
            latest.per_byte = match bytes < LEAST_BYTES {
                true => before.per_byte,
                false => mix(latest.per_byte, before.per_byte),
            };
        }
        *average = Some(latest);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(observed) = self.performance.lock().get_mut(&self.key) {
            observed.under_way = observed.under_way.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_tries_an_unknown_upstream_and_then_its_average_counts() {
        let (performance, key) = (Performance::default(), Arc::from("a/m"));
        assert_eq!(performance.expected(&key), 0.0);
        let attempt = performance.begin(&key);
        assert_eq!(performance.expected(&key), f64::INFINITY);
        attempt.answered(
            Duration::from_millis(1_100),
            Some(Duration::from_millis(100)),
            1_024,
        );
        drop(attempt);
        assert!((performance.expected(&key) - 1.1).abs() < 1e-9);
        assert_eq!(performance.under_way(&key), 0);
    }

    #[test]
    fn later_responses_count_more_and_short_ones_say_nothing_about_speed() {
        let (performance, key) = (Performance::default(), Arc::from("a/m"));
        let attempt = performance.begin(&key);
        let first_token = Some(Duration::ZERO);
        attempt.answered(Duration::from_secs(1), first_token, 1_024);
        attempt.answered(Duration::from_secs(9), first_token, 3);
        assert!((performance.expected(&key) - 1.0).abs() < 1e-9);
        for _ in 0..20 {
            attempt.answered(Duration::from_secs(3), first_token, 1_024);
        }
        let expected = performance.expected(&key);
        assert!((2.9..3.0).contains(&expected), "{expected}");
    }
}
