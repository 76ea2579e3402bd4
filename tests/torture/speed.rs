//! SPEED: the bench of the gateway, which fails beyond the most that a request may cost, on both kinds of stores.

use std::process::Command;

pub(crate) fn run() -> bool {
    let mut sound = true;
    for stores in [&[][..], &["--postgres"]] {
        let measured = Command::new(env!("CARGO"))
            .args(["bench", "--package", "tests", "--bench", "gateway", "--"])
            .args(stores)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        sound &= measured.success();
    }
    sound
}
