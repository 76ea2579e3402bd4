//! `weir plugin compare`: the differences of another version of a plugin, on recordings.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::gateway::share_compiled_plugins_with_authors;
use tests::{chat, guests};

use crate::cli::{run, text};

const PRICE: [&str; 2] = ["--price", "{ input = 1.0, output = 2.0 }"];

/// A folder with two components, and a recording of one exchange in `recordings`.
fn desk(old: &[u8], new: &[u8]) -> TempDir {
    let desk = tempfile::tempdir().expect("a folder");
    share_compiled_plugins_with_authors(desk.path());
    let put = |name: &str, content: &[u8]| {
        fs::write(desk.path().join(name), content).expect("the folder can be written");
    };
    fs::create_dir(desk.path().join("recordings")).expect("the folder can be written");
    put("old.wasm", old);
    put("new.wasm", new);
    put(
        "recordings/hello.json",
        chat("m", "hello").to_string().as_bytes(),
    );
    let answer = json!({
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Hi" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500 },
    });
    put("recordings/hello.http", answer.to_string().as_bytes());
    desk
}

fn compare(desk: &TempDir, old: &str, new: &str, more: &[&str]) -> Output {
    let compare = ["plugin", "compare", old, new, "--recordings", "recordings"];
    run(desk.path(), &[&compare, more].concat())
}

fn compared(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// Returns the component with every occurrence of a text replaced by one of the same length.
fn patched(component: &[u8], text: &str, by: &str) -> Vec<u8> {
    assert_eq!(text.len(), by.len());
    let mut patched = component.to_vec();
    let mut found = 0;
    for at in 0..=component.len() - text.len() {
        if component[at..].starts_with(text.as_bytes()) {
            patched[at..at + by.len()].copy_from_slice(by.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "{text} is not in it");
    patched
}

#[test]
fn what_does_the_same_is_told_so() {
    let openai = guests::bundled("openai");
    let desk = desk(&openai, &guests::with_custom_section(&openai, 5));
    // Also by the name of a bundled component.
    for old in ["old.wasm", "openai"] {
        let output = compare(&desk, old, "new.wasm", &PRICE);
        assert!(output.status.success(), "{output:?}");
        let table = text(&output.stdout);
        assert!(table.lines().any(|line| line == "hello      -"), "{table}");
    }
    let output = compare(&desk, "old.wasm", "new.wasm", &["--json"]);
    let all = compared(&output);
    assert_eq!(all["same"], true);
    assert_eq!(
        all["recordings"],
        json!([{ "recording": "hello", "differences": [] }])
    );
}

#[test]
fn requests_are_compared_field_by_field() {
    let openai = guests::bundled("openai");
    let desk = desk(
        &openai,
        &patched(&openai, "/chat/completions", "/chat/completionz"),
    );
    let output = compare(&desk, "old.wasm", "new.wasm", &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("1 of 1 recordings differ"),
        "{output:?}"
    );
    let all = compared(&output);
    assert_eq!(all["same"], false);
    assert_eq!(
        all["recordings"][0]["differences"],
        json!([{ "what": "request 1 path", "old": "\"/chat/completions\"", "new": "\"/chat/completionz\"" }])
    );
    let output = compare(&desk, "old.wasm", "new.wasm", &[]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(
        table.contains("request 1 path") && table.contains("completionz"),
        "{table}"
    );
}

#[test]
fn usage_and_what_it_costs_are_compared() {
    let desk = desk(&guests::bundled("demo"), &guests::bundled("openai"));
    let priced = |more: &[&str]| {
        let output = compare(&desk, "old.wasm", "new.wasm", &[&["--json"], more].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let all = compared(&output);
        let differences = all["recordings"][0]["differences"].as_array();
        let differences = differences.expect("a list").iter();
        let of = differences.filter(|difference| {
            let what = difference["what"].as_str();
            what.is_some_and(|what| ["price", "usage"].contains(&what))
        });
        of.cloned().collect::<Vec<_>>()
    };
    let usage = json!({
        "what": "usage",
        "old": r#"{"input-tokens":2,"output-tokens":4,"reasoning-tokens":0}"#,
        "new": r#"{"input-tokens":1000,"output-tokens":500}"#,
    });
    // One and two dollars for a million tokens, at 1,000 credits a dollar, times 1.4.
    let price = json!({ "what": "price", "old": "0.014", "new": "2.8" });
    assert_eq!(priced(&PRICE), [price, usage.clone()]);
    assert_eq!(priced(&[]), [usage]);
}

#[test]
fn events_are_compared_and_a_tools_calls() {
    for (old, new) in [
        (guests::answering("bb"), guests::answering("cc")),
        (guests::tool("bb"), guests::tool("cc")),
    ] {
        let desk = desk(&old, &new);
        if old == guests::tool("bb") {
            fs::write(desk.path().join("recordings/hello.json"), "{}").expect("it can be written");
        }
        let output = compare(&desk, "old.wasm", "new.wasm", &["--json"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let differences = &compared(&output)["recordings"][0]["differences"];
        assert_eq!(
            differences.as_array().map(Vec::len),
            Some(1),
            "{differences}"
        );
        assert_eq!(differences[0]["what"], "events");
        let said = |side: &str| differences[0][side].as_str().expect("a text").to_owned();
        assert!(
            said("old").contains("bb") && !said("old").contains("cc"),
            "{differences}"
        );
        assert!(
            said("new").contains("cc") && !said("new").contains("bb"),
            "{differences}"
        );
    }
}

#[test]
fn what_cannot_be_compared_is_told_so() {
    let desk = desk(&guests::answering("bb"), &guests::tool("bb"));
    let said = |output: &Output| {
        assert!(!output.status.success(), "{output:?}");
        text(&output.stderr)
    };
    let both = said(&compare(&desk, "old.wasm", "new.wasm", &[]));
    assert!(both.contains("one component is an adapter"), "{both}");
    let absent = said(&compare(&desk, "old.wasm", "absent.wasm", &[]));
    assert!(absent.contains("reading absent.wasm"), "{absent}");
    let price = said(&compare(
        &desk,
        "old.wasm",
        "old.wasm",
        &["--price", "{ input = 1.0 }"],
    ));
    assert!(price.contains("lacks `output`"), "{price}");
    for name in ["hello.json", "hello.http"] {
        fs::remove_file(desk.path().join("recordings").join(name)).expect("it is there");
    }
    let none = said(&compare(&desk, "old.wasm", "old.wasm", &[]));
    assert!(none.contains("has no recordings"), "{none}");
}
