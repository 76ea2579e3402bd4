//! Measurement for benches.

use std::time::Duration;

/// Returns this thread's running time, from the kernel's scheduler.
pub(crate) fn processor_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanoseconds = statistics.split(' ').next().expect("three numbers");
    Duration::from_nanos(nanoseconds.parse().expect("a number"))
}

/// Returns the median of the figures.
pub(crate) fn median(mut figures: Vec<Duration>) -> Duration {
    tests::percentile(&mut figures, 50)
}
