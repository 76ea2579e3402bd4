//! Builds the hostile Rust guests to Wasm, so that the tests can embed them.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const TARGET: &str = "wasm32-wasip2";

fn main() {
    let package =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let workspace = package.parent().expect("the package lies in the workspace");
    // A folder of its own: in the outer one, the nested cargo would wait for a lock that the outer
    // cargo holds.
    let target = workspace.join("target/plugins");

    for input in ["hostile", "../wit", "../Cargo.toml", "../Cargo.lock"] {
        println!("cargo::rerun-if-changed={input}");
    }

    let status = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"))
        .current_dir(workspace)
        .args([
            "build",
            "--package",
            "hostile-misbehaving",
            "--package",
            "hostile-scheming",
            "--package",
            "hostile-meddling",
            "--profile",
            "plugin",
            "--locked",
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(&target)
        // Meant for the outer build's target and tool.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .status()
        .expect("cargo runs");
    assert!(
        status.success(),
        "the hostile guests did not build; if the target is missing: rustup target add {TARGET}"
    );

    for (variable, component) in [
        ("HOSTILE_MISBEHAVING", "hostile_misbehaving.wasm"),
        ("HOSTILE_SCHEMING", "hostile_scheming.wasm"),
        ("HOSTILE_MEDDLING", "hostile_meddling.wasm"),
    ] {
        let component = target.join(TARGET).join("plugin").join(component);
        println!("cargo::rustc-env={variable}={}", component.display());
    }
}
