//! The `weir` command in another profile than the running test's, built on demand, and the memory of a running one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `weir` and returns its path, in the build folder of this program.
///
/// `weir` is built together with this package, so that its features equal this package's: otherwise all its
/// dependencies would be built twice.
pub fn build_weir(profile: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    let target = program
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file())
        .expect("cargo has built this program");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--profile", profile])
        .args([
            "--package",
            "tests",
            "--package",
            "weir-bundled",
            "--bin",
            "weir",
        ])
        .arg("--target-dir")
        .arg(target)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "weir builds");
    let folder = if profile == "dev" { "debug" } else { profile };
    target.join(folder).join("weir")
}

/// Returns the own memory of a process, in KiB: a page with a hundred mappings, as a component's data have in its instances,
/// counts once, unlike in `VmRSS`.
pub fn own_kib(process: &str) -> usize {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup"));
    let rollup = rollup.expect("Linux has it");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.expect("it is there").parse().expect("a number")
}
