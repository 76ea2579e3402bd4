//! Each reader of strangers' bytes takes about twice the time for twice the bytes. `cargo torture T1` does the same up to the
//! limit of a body.

use std::time::Duration;

use tests::readers::{MOST, cases};

#[test]
fn twice_the_bytes_cost_each_reader_twice_the_time() {
    let mut slow = Vec::new();
    for case in cases() {
        let measured = case.measure(16 << 10, Duration::from_millis(2), 1 << 20);
        if measured.ratio > MOST {
            let (bytes, time) = (measured.bytes, measured.time);
            slow.push(format!(
                "{}: {:.2} times {time:?} for {bytes} bytes",
                case.name, measured.ratio
            ));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
