//! Components built for an earlier version of the contract continue to serve.
//!
//! `tests/bridge` keeps components in their original builds, and `wit/since-vX.Y.Z` their versions of the contract.
//! All hand-written guests (`tests/hostile/*.wat`) are of the oldest version, too.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tests::Gateway;

use crate::cli::{run, text};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn frozen(name: &str) -> Vec<u8> {
    let file = repository().join("tests/bridge").join(name);
    fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A file of a version of the contract, without the line of its version.
fn contract(folder: &str, name: &str) -> String {
    let file = repository().join("wit").join(folder).join(name);
    let text =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let (version, rest) = text.split_once('\n').expect("it has lines");
    assert!(version.starts_with("package weir:plugin@"), "{version}");
    rest.to_owned()
}

#[tokio::test]
async fn an_adapter_of_0_2_0_is_installed_and_serves() {
    let gateway = Gateway::start().await;
    let admin = gateway.admin("operator").await;
    let component = frozen("adapter-0.2.0.wasm");
    let installed = admin
        .put_component("/admin/plugins/demo?activate=true", &component)
        .await;
    assert_eq!(installed.status, 201, "{}", installed.text());
    let slots = admin.get("/admin/plugins").await.json();
    let slots = slots["slots"].as_array().expect("a list");
    let demo = slots.iter().find(|slot| slot["slot"] == "demo");
    let plugins = demo.expect("the slot")["plugins"]
        .as_array()
        .expect("a list");
    let active = plugins.iter().find(|plugin| plugin["state"] == "active");
    assert_eq!(active.expect("one is")["contract"], "0.2.0");
    let answer = gateway.chat("demo", "Hello").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let streamed = gateway.stream("demo", "Hello").await.rest().await;
    assert_eq!(streamed.last().map(String::as_str), Some("data: [DONE]"));
}

#[test]
fn a_tool_of_0_2_0_reaches_the_outside_through_todays_host() {
    let desk = tempfile::tempdir().expect("a folder");
    let put = |name: &str, bytes: &[u8]| {
        fs::write(desk.path().join(name), bytes).expect("the folder can be written");
    };
    put("tool.wasm", &frozen("tool-0.2.0.wasm"));
    let arguments = json!({ "url": "https://example.com/" });
    put("arguments.json", arguments.to_string().as_bytes());
    put(
        "answer.http",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nfound",
    );
    let tried = run(
        desk.path(),
        &[
            "plugin",
            "try",
            "tool.wasm",
            "--request",
            "arguments.json",
            "--response",
            "answer.http",
        ],
    );
    assert!(tried.status.success(), "{}", text(&tried.stderr));
    assert!(
        text(&tried.stdout).contains("found"),
        "{}",
        text(&tried.stdout)
    );
}

/// Records and variants of WIT are closed: any change of them breaks every earlier component. A change needs another
/// version, and a bridge from the frozen one; see `wit/README.md`.
#[test]
fn what_0_2_0_says_is_said_in_the_same_words_today() {
    for name in ["chat.wit", "adapter.wit", "tool.wit"] {
        let (then, now) = (contract("since-v0.2.0", name), contract("", name));
        assert!(then == now, "{name} has changed since 0.2.0");
    }
    let (then, now) = (
        contract("since-v0.2.0", "worlds.wit"),
        contract("", "worlds.wit"),
    );
    assert!(now.starts_with(&then), "a world has changed since 0.2.0");
}
