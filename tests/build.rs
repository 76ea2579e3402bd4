//! Builds the hostile Rust guests to Wasm, so that the tests can embed them. Some of their attacks need WASI, so they keep it.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

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
            "hostile-misreading",
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
        ("HOSTILE_MISREADING", "hostile_misreading.wasm"),
        ("HOSTILE_SCHEMING", "hostile_scheming.wasm"),
        ("HOSTILE_MEDDLING", "hostile_meddling.wasm"),
    ] {
        let module = target.join(TARGET).join("plugin").join(component);
        let module = fs::read(&module).expect("cargo has built it");
        let encoded = weir_encoder::encode_with_wasi(&module)
            .unwrap_or_else(|error| panic!("making a component of {component}: {error:#}"));
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let component = out.join(component);
        fs::write(&component, encoded).expect("cargo has made the folder");
        println!("cargo::rustc-env={variable}={}", component.display());
    }
}
