//! SPEED: the benches `gateway`, on both kinds of stores, and `instructions`. They fail if a request exceeds its maximum cost.

use std::process::Command;

pub(crate) fn run() -> bool {
    let mut sound = true;
    for bench in [
        &["gateway"][..],
        &["gateway", "--", "--postgres"],
        &["instructions"],
    ] {
        let measured = Command::new(env!("CARGO"))
            .args(["bench", "--package", "tests", "--bench"])
            .args(bench)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        sound &= measured.success();
    }
    sound
}
