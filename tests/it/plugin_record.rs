//! `weir plugin try` around an exchange: it caches compiled code, shows guests' output, watches files, and records an
//! upstream.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::SystemTime;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::upstream::{Reply, Upstream};
use tests::{chat, guests};

use crate::cli::{run, text, weir};

const CREDENTIAL: &str = "sk-a-credential-of-some-length";

/// A folder with a component and a request.
fn desk(component: &[u8], request: &Value) -> TempDir {
    let desk = tempfile::tempdir().expect("a folder");
    fs::write(desk.path().join("plugin.wasm"), component).expect("it can be written");
    fs::write(desk.path().join("request.json"), request.to_string()).expect("it can be written");
    desk
}

const TRY: [&str; 5] = ["plugin", "try", "plugin.wasm", "--request", "request.json"];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

#[test]
fn compiled_code_is_kept_and_taken_from_there_unless_it_was_tampered_with() {
    let desk = desk(&guests::bundled("demo"), &chat("m", "hello"));
    let tried = || {
        let output = run(desk.path(), &TRY);
        assert!(output.status.success(), "{output:?}");
        output
    };
    let first = tried();
    let [code] = &files(&desk.path().join(".cache/weir/plugins"))[..] else {
        panic!("one component is kept");
    };
    let key = desk.path().join(".local/share/weir/plugin-cache.key");
    let mode = fs::metadata(&key).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Cached code in use is marked as used; newly compiled code gets another inode.
    use std::os::unix::fs::MetadataExt;
    let inode = || fs::metadata(code).expect("it is there").ino();
    let modified = || fs::metadata(code).and_then(|found| found.modified());
    let before = inode();
    let file = File::options().append(true).open(code).expect("it is ours");
    file.set_modified(
        SystemTime::UNIX_EPOCH
            + (SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .expect("now")
                - std::time::Duration::from_secs(3600)),
    )
    .expect("it is ours");
    let old = modified().expect("it is there");
    assert_eq!(tried().stdout, first.stdout);
    assert_eq!(inode(), before, "nothing is compiled");
    assert!(modified().expect("it is there") > old, "it is used");
    let mut bytes = fs::read(code).expect("it is ours");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(code, &bytes).expect("it is ours");
    let output = tried();
    assert_eq!(output.stdout, first.stdout);
    assert!(
        text(&output.stderr).contains("does not match its tag"),
        "{output:?}"
    );
    assert_ne!(inode(), before, "it is compiled anew");
}

#[test]
fn what_a_guest_writes_is_shown_up_to_a_bound_and_drives_no_terminal() {
    let print = |lines: u64| {
        let command = json!({ "behave": "print", "lines": lines, "text": "\u{1b}[31mloud" });
        let output = run(
            desk(guests::misbehaving(), &chat("m", &command.to_string())).path(),
            &TRY,
        );
        text(&output.stderr)
    };
    let said = print(1);
    assert!(said.contains("\\u{1b}[31mloud"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
    let said = print(100_000);
    assert!(said.contains("which is not shown"), "it says so");
    assert!(said.len() < 1 << 20, "{} bytes", said.len());
}

/// A command that runs until it is dropped.
struct Watching(Child);

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_change_of_a_file_has_it_run_again() {
    let desk = desk(&guests::bundled("openai"), &chat("first", "hello"));
    let child = weir(desk.path())
        .args(TRY)
        .arg("--watch")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("weir runs");
    let mut child = Watching(child);
    let stdout = child.0.stdout.take().expect("piped");
    let mut lines = BufReader::new(stdout).lines();
    let mut model = || {
        let line = lines.next().expect("it goes on").expect("text");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        line["send"]["body"]["model"].clone()
    };
    assert_eq!(model(), "first");
    let put = |name: &str, content: &[u8]| {
        fs::write(desk.path().join(name), content).expect("it can be written");
    };
    put(
        "request.json",
        chat("the second", "hello").to_string().as_bytes(),
    );
    assert_eq!(model(), "the second");
    // A component that cannot be run does not end the command.
    put("plugin.wasm", b"half a component");
    put(
        "request.json",
        chat("the third one", "hello").to_string().as_bytes(),
    );
    put("plugin.wasm", &guests::bundled("openai"));
    assert_eq!(model(), "the third one");
}

#[tokio::test]
async fn an_upstream_is_recorded_without_the_credential() {
    let upstream = Upstream::start().await;
    let echoed = json!({ "error": { "message": format!("no such key: {CREDENTIAL}") } });
    upstream.will(
        Reply::json(401, &echoed)
            .header("set-cookie", "a=b")
            .header("x-echo", CREDENTIAL),
    );
    let desk = desk(&guests::bundled("openai"), &chat("gpt-x", "hello"));
    let record = |url: String| {
        let mut command = weir(desk.path());
        command
            .args(TRY)
            .args(["--record", &url, "--to", "answer.http"])
            .args(["--credential-env", "ACME_KEY"])
            .env("ACME_KEY", CREDENTIAL);
        tokio::task::spawn_blocking(move || command.output().expect("weir runs"))
    };
    let output = record(upstream.base_url()).await.expect("it ends");
    let request = upstream.next_request().await;
    assert_eq!(
        request.header("authorization"),
        Some(&*format!("Bearer {CREDENTIAL}"))
    );
    assert_eq!(request.json()["model"], "gpt-x");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let printed = text(&output.stdout);
    assert!(printed.contains("Bearer CREDENTIAL") && printed.contains("unauthorized"));
    let recorded = fs::read(desk.path().join("answer.http")).expect("it is written");
    let recorded = text(&recorded);
    assert!(
        recorded.starts_with("HTTP/1.1 401 Unauthorized\r\n"),
        "{recorded}"
    );
    assert!(recorded.contains("no such key: ****"), "{recorded}");
    assert!(!recorded.contains("cookie"), "{recorded}");
    for told in [&printed, &recorded, &text(&output.stderr)] {
        assert!(!told.contains(CREDENTIAL), "{told}");
    }
    // The recording plays back unchanged.
    let again = run(
        desk.path(),
        &[&TRY[..], &["--response", "answer.http"]].concat(),
    );
    assert_eq!(text(&again.stdout), printed);
}

#[tokio::test]
async fn what_is_not_to_be_recorded_is_said() {
    let desk = desk(&guests::bundled("openai"), &chat("gpt-x", "hello"));
    for (more, complaint) in [
        (
            &["--record", "ftp://x", "--to", "a"][..],
            "must begin with https://",
        ),
        (
            &["--record", "http://127.0.0.1:1", "--to", "a"],
            "cannot be reached",
        ),
        (
            &[
                "--record",
                "http://127.0.0.1:1",
                "--to",
                "a",
                "--credential-env",
                "NOT_SET",
            ],
            "NOT_SET is not set",
        ),
        (&["--record", "http://127.0.0.1:1"], "--to"),
        (
            &["--record", "http://x", "--to", "a", "--watch"],
            "cannot be used with",
        ),
    ] {
        let output = run(desk.path(), &[&TRY[..], more].concat());
        assert!(!output.status.success());
        let said = text(&output.stderr);
        assert!(said.contains(complaint), "{complaint}: {said}");
        assert!(!desk.path().join("a").exists());
    }
}
