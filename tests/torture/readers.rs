//! T1: each reader of strangers' bytes takes about twice the time for twice the bytes, up to the limit of a body.

use std::time::Duration;

use tests::readers::{MOST, cases};

/// The default limit of a body, in bytes.
const BODY: usize = 32 << 20;

/// Runs the row.
pub(crate) fn run() -> bool {
    let (mut worst, mut slowest, mut sound) = (String::new(), Duration::ZERO, true);
    let (mut ratio, mut count) = (0.0, 0);
    for case in cases() {
        let measured = case.measure(BODY / 2, Duration::ZERO, BODY);
        count += 1;
        slowest = slowest.max(measured.time);
        if measured.ratio > ratio {
            (ratio, worst) = (measured.ratio, case.name.clone());
        }
        if measured.ratio > MOST {
            sound = false;
            println!(
                "T1: {} takes {:.2} times as long",
                case.name, measured.ratio
            );
        }
    }
    println!(
        "T1: {count} readers with 16 and 32 MiB: at most {ratio:.2} times the time ({worst}; limit {MOST}), at most {slowest:?} for \
         16 MiB"
    );
    sound
}
