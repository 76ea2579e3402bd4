//! SPEED: the bench of the gateway, which fails if a request exceeds its maximum cost, on both kinds of stores.

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
