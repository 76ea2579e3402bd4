//! Operating a gateway from its own machine: the admin socket, and the commands that use it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;
use tempfile::TempDir;
use tests::gateway::share_compiled_plugins;
use tests::guests;

use crate::cli::{run, text, weir};

/// A `weir serve` that prints no greeting, in a folder whose configuration is there.
struct Running {
    child: Child,
    log: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts one, and waits until it is ready.
    fn start(folder: &Path) -> Self {
        let mut child = weir(folder)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut log = String::new();
        while !log.contains(" ready") {
            let read = stderr.read_line(&mut log).expect("text");
            assert!(read > 0, "it ended: {log}");
        }
        // Somebody must empty the pipe while it runs.
        let log = std::thread::spawn(move || {
            for line in stderr.lines() {
                log += &line.expect("text");
                log.push('\n');
            }
            log
        });
        Self {
            child,
            log: Some(log),
        }
    }

    /// Kills it, as a crash would.
    fn crash(mut self) {
        self.end();
    }

    fn end(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log.take().map(JoinHandle::join);
        log.map_or_else(String::new, |log| log.expect("text"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// A folder with a configuration in it.
fn folder(toml: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    share_compiled_plugins(&folder.path().join(".weir"));
    configure(folder.path(), toml);
    folder
}

fn configure(folder: &Path, toml: &str) {
    std::fs::write(folder.join("weir.toml"), toml).expect("the folder can be written");
}

/// Runs a command that must end well, and returns what it prints.
fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    text(&output.stdout)
}

/// Runs a command that must fail, and returns what it complains of.
fn fail(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(!output.status.success(), "{arguments:?}: {output:?}");
    complaint(&output)
}

fn complaint(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn a_gateway_without_any_issuer_is_operated_through_its_admin_socket() {
    let folder = folder("dev = false\n");
    let folder = folder.path();
    let running = Running::start(folder);
    let socket = folder.join(".weir/admin.sock");
    let metadata = std::fs::metadata(&socket).expect("the socket is there");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);

    let demo = guests::with_custom_section(&guests::bundled("demo"), 5);
    std::fs::write(folder.join("demo.wasm"), demo).expect("the folder can be written");
    let install = [
        "plugin",
        "install",
        "demo.wasm",
        "--slot",
        "demo",
        "--activate",
    ];
    assert!(succeed(folder, &install).contains("The slot serves with it."));
    let events = succeed(folder, &["plugin", "events", "demo", "--json"]);
    let events: Value = serde_json::from_str(&events).expect("JSON");
    // As the kernel knows whoever ran the command: this test's own user.
    let me = format!("local:{}", metadata.uid());
    assert_eq!(events["events"][0]["actor"], *me, "{events}");

    drop(running);
    let nobody = fail(folder, &["plugin", "list"]);
    assert!(
        nobody.contains("no gateway runs on the data folder .weir"),
        "{nobody}"
    );
}

#[test]
fn the_admin_socket_of_a_gateway_that_crashed_is_replaced() {
    let folder = folder("dev = false\n");
    let folder = folder.path();
    Running::start(folder).crash();
    let socket = folder.join(".weir/admin.sock");
    assert!(socket.exists(), "a crash cleans nothing up");
    let _running = Running::start(folder);
    assert!(succeed(folder, &["plugin", "list"]).contains("demo"));
}

#[test]
fn the_admin_socket_can_be_off_and_else_it_belongs_to_one_gateway() {
    // Two on one database would be refused for its sake.
    let settings = "dev = false\ndatabase_url = \"sqlite::memory:\"\n";
    let folder = folder(settings);
    let folder = folder.path();
    let _first = Running::start(folder);
    let second = fail(folder, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(
        second.contains("another weir has the admin socket .weir/admin.sock"),
        "{second}"
    );
    assert!(succeed(folder, &["plugin", "list"]).contains("demo"));

    configure(folder, &format!("{settings}admin_socket = false\n"));
    let _second = Running::start(folder);
    let off = fail(folder, &["plugin", "list"]);
    assert!(off.contains("`admin_socket = false`"), "{off}");
}

#[test]
fn a_path_that_no_socket_can_have_is_named() {
    let long = "a".repeat(100);
    let folder = folder(&format!("data_dir = \"{long}\"\n"));
    for command in ["serve", "check"] {
        let refused = fail(folder.path(), &[command]);
        assert!(refused.contains("too long for a Unix socket"), "{refused}");
        assert!(refused.contains("`admin_socket = false`"), "{refused}");
    }
    configure(
        folder.path(),
        &format!("data_dir = \"{long}\"\nadmin_socket = false\n"),
    );
    succeed(folder.path(), &["check"]);
}
