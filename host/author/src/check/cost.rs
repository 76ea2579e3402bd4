//! Measuring the cost of a plugin's calls.

use std::time::Duration;

use serde_json::{Value, json};

/// The most rounds of one measurement, and its time limit.
pub(super) const ROUNDS: usize = 200;
pub(super) const MEASURED_FOR: Duration = Duration::from_secs(2);

/// Returns the median of some times, in microseconds.
pub(super) fn micros(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    json!((median.as_secs_f64() * 1e7).round() / 10.0)
}
