//! `weir plugin check`, run as the author of a plugin.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::gateway::share_compiled_plugins_with_authors;
use tests::{chat, guests, source};

use crate::cli::{run, text};

/// A response for the adapter `openai`. Its text is German, because one of the letters has two bytes.
const STREAMED: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Grüß\"}}]}\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\n\
    data: [DONE]\r\n\r\n";

/// A folder with a component and recordings.
struct Desk(TempDir);

impl Desk {
    fn new(component: &[u8]) -> Self {
        let desk = Self(tempfile::tempdir().expect("a folder"));
        share_compiled_plugins_with_authors(desk.path());
        desk.put("plugin.wasm", component);
        desk
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), content).expect("the folder can be written");
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn check(&self, more: &[&str]) -> Output {
        run(self.path(), &[&["plugin", "check", "."], more].concat())
    }

    /// The findings of a check that ends with this code.
    fn found(&self, code: i32, more: &[&str]) -> Found {
        let output = self.check(&[&["--json"], more].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(found["passed"], code == 0, "{found:#}");
        Found(found)
    }
}

/// The findings of a check.
struct Found(Value);

impl Found {
    /// The findings of the check with this name, at least one.
    fn of(&self, name: &str) -> Vec<&Value> {
        let checks = self.0["checks"].as_array().expect("a list");
        let found: Vec<_> = checks
            .iter()
            .filter(|check| check["check"] == name)
            .collect();
        assert!(!found.is_empty(), "no {name}: {:#}", self.0);
        found
    }

    fn result(&self, name: &str) -> &str {
        self.of(name)[0]["result"].as_str().expect("a word")
    }

    /// Fails unless a check failed for this reason and names a document.
    #[track_caller]
    fn fails(&self, name: &str, why: &str) {
        let failed = self.of(name).into_iter().find(|check| {
            let detail = check["detail"].as_str().unwrap_or_default();
            check["result"] == "failed" && detail.contains(why)
        });
        let failed = failed.unwrap_or_else(|| panic!("{name}, {why}: {:#}", self.0));
        let read = failed["read"].as_str().unwrap_or_default();
        assert!(
            read.contains("wit/") || read.contains("plugins/README.md"),
            "{failed}"
        );
    }
}

#[test]
fn every_adapter_that_weir_brings_passes() {
    for name in &source::adapters() {
        let found = Desk::new(&guests::bundled(name)).found(0, &[]);
        assert_eq!(found.0["component"]["kind"], "adapter");
        let dialect = &found.0["component"]["description"]["dialect"];
        assert!(
            dialect
                .as_str()
                .is_some_and(|dialect| dialect.starts_with(name.as_str()))
        );
        for check in ["size", "parse", "compile", "imports", "world", "self-test"] {
            assert_eq!(found.result(check), "passed", "{name}: {check}");
        }
        assert_eq!(found.result("determinism"), "passed");
        let answers = if name == "demo" { "skipped" } else { "passed" };
        assert_eq!(found.result("recorded answers"), answers, "{name}");
        let cost = &found.0["cost"];
        assert!(cost["begin_us"].as_f64().is_some_and(|us| us > 0.0));
        assert!(cost["begin_memory_bytes"].as_u64() > Some(65_536), "{cost}");
        assert_eq!(cost["chunk_us"].is_number(), name != "demo", "{cost}");
    }
}

#[test]
fn a_table_says_what_was_tried() {
    let output = Desk::new(&guests::bundled("openai")).check(&[]);
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    for words in [
        "CHECK ",
        "self-test         ok",
        "of openai-chat",
        "own recordings    -",
        "a chunk: ",
    ] {
        assert!(table.contains(words), "{words:?} in:\n{table}");
    }
    assert!(!table.contains("Read:"), "{table}");
}

#[test]
fn what_fails_to_load_is_told_its_step_and_what_to_read() {
    for (component, step, why) in [
        (b"#!/bin/sh".to_vec(), "parse", "begins with"),
        (b"\0asm\x01\0\0\0".to_vec(), "parse", "wasm32-wasip2"),
        (vec![0; (32 << 20) + 1], "size", "more than"),
        (b"\0asm\x0d\0\x01\0".to_vec(), "world", "provider"),
    ] {
        let desk = Desk::new(&component);
        let found = desk.found(1, &[]);
        found.fails(step, why);
        assert_eq!(found.result("self-test"), "skipped");
        let output = desk.check(&[]);
        let table = text(&output.stdout);
        assert!(table.contains("FAILED") && table.contains("\nRead:\n  "));
        let said = text(&output.stderr);
        assert!(said.contains("a check failed"), "{said}");
    }
}

#[test]
fn simd_compiles_but_relaxed_simd_does_not() {
    let component = |instruction: &str| {
        let text = format!(
            "(component (core module (func (param v128 v128) (result v128)
                ({instruction} (local.get 0) (local.get 1)))))"
        );
        wat::parse_str(text).expect("WAT")
    };
    // It is no plugin, but it passes the step before.
    let found = Desk::new(&component("i8x16.swizzle")).found(1, &[]);
    found.fails("world", "provider");
    // Its result depends on the processor.
    let found = Desk::new(&component("i8x16.relaxed_swizzle")).found(1, &[]);
    found.fails("parse", "relaxed SIMD");
}

#[test]
fn answers_that_change_with_how_they_are_cut_are_found() {
    let desk = Desk::new(guests::misbehaving());
    let command = json!({ "behave": "send" }).to_string();
    desk.put("pieces.json", chat("m", &command).to_string());
    desk.put("pieces.http", "HTTP/1.1 200 OK\r\n\r\nsome bytes");
    let found = desk.found(1, &[]);
    found.fails("recording pieces", "in pieces of 1 bytes, line ");
    let read = &found.of("recording pieces")[0]["read"];
    assert!(
        read.as_str()
            .is_some_and(|read| read.contains("cut anywhere"))
    );
}

#[test]
fn what_a_guest_must_not_do_is_found() {
    let desk = Desk::new(guests::misbehaving());
    for (name, command) in [
        ("spins", json!({ "behave": "spin" })),
        (
            "strays",
            json!({ "behave": "send", "path": "//example.com/" }),
        ),
        (
            "nonsense",
            json!({ "behave": "script", "steps": [{ "Emit": [{ "BlockEnd": 7 }] }] }),
        ),
        ("on", json!({ "behave": "never-done", "wait": 1 })),
    ] {
        desk.put(
            &format!("{name}.json"),
            chat("m", &command.to_string()).to_string(),
        );
    }
    let found = desk.found(1, &[]);
    found.fails("recording spins", "processor time");
    found.fails("recording strays", "two slashes");
    found.fails("recording nonsense", "are not a valid response");
    found.fails("recording on", "other steps");
    let read = |name: &str| found.of(name)[0]["read"].to_string();
    assert!(read("recording strays").contains("http-request"));
    assert!(read("recording nonsense").contains("wit/chat.wit"));
}

#[test]
fn an_adapter_that_takes_anything_for_an_answer_is_told() {
    let option = format!("option={}", json!({ "behave": "send" }));
    let found = Desk::new(guests::misbehaving()).found(1, &["--option", &option]);
    found.fails(
        "broken answers",
        "429 with a page: the adapter reads it as a valid response",
    );
    found.fails("output limit", "max-output-tokens");
    found.fails("recorded answers", "in pieces of 1 bytes");
    found.fails(
        "unknown fields",
        "frobnicate is neither passed on nor ignored",
    );
}

#[test]
fn a_failure_of_the_wrong_kind_is_told() {
    let failure = json!({ "kind": "Malformed", "text": "x" });
    let option = |place: &str| {
        let command = json!({ "behave": "fail", "in": place, "failure": failure });
        format!("option={command}")
    };
    let desk = Desk::new(guests::misbehaving());
    let found = desk.found(1, &["--option", &option("head")]);
    found.fails(
        "broken answers",
        "429 with a page: it fails as malformed, not as rate-limited",
    );
    let found = desk.found(1, &["--option", &option("begin")]);
    found.fails("requests", "basic: it is refused as malformed");
}

#[test]
fn an_adapter_that_does_not_do_the_same_twice_is_told() {
    let option = format!("option={}", json!({ "behave": "noise" }));
    let found = Desk::new(guests::misbehaving()).found(1, &["--option", &option]);
    found.fails("determinism", "basic: run again, line ");
}

#[test]
fn snapshots_are_written_when_asked_and_held_to_then() {
    let desk = Desk::new(&guests::bundled("openai"));
    desk.put("hallo.json", chat("gpt-x", "hallo").to_string());
    desk.put("hallo.http", STREAMED);
    desk.put("plain-stream.http", STREAMED);
    let found = desk.found(0, &[]);
    let detail = found.of("recording hallo")[0]["detail"].to_string();
    assert!(detail.contains("no snapshot"), "{detail}");
    let found = desk.found(0, &["--accept"]);
    let cuts = STREAMED.split_once("\r\n\r\n").expect("a head").1.len() - 1 + 6;
    let detail = found.of("recording hallo")[0]["detail"].to_string();
    assert!(detail.contains(&format!("{cuts} cuts")), "{detail}");
    let snapshot = desk.path().join("hallo.snap");
    let written = fs::read_to_string(&snapshot).expect("it is written");
    assert!(written.starts_with("{\"send\"") && written.ends_with("{\"done\":true}\n"));
    assert!(
        written.contains("\"user-agent\":\"weir\""),
        "of any version"
    );
    assert!(desk.path().join("plain-stream.snap").exists());
    let found = desk.found(0, &[]);
    let detail = found.of("recording hallo")[0]["detail"].to_string();
    assert!(detail.contains("as in its snapshot"), "{detail}");
    desk.put("hallo.snap", written.replace("Grüß", "Servus"));
    let found = desk.found(1, &[]);
    found.fails("recording hallo", "Grüß");
    let after = fs::read_to_string(&snapshot).expect("it is there");
    assert!(after.contains("Servus"), "nothing is written unasked");
}

#[test]
fn options_are_handed_over_and_their_refusal_is_a_failure() {
    let desk = Desk::new(&guests::bundled("openai"));
    desk.found(0, &["--option", "output-limit-field=max_tokens"]);
    desk.found(1, &["--option", "frobnicate=1"])
        .fails("options", "frobnicate");
}

#[test]
fn a_tool_is_checked_with_its_own_recordings() {
    let desk = Desk::new(&guests::bundled("http_get"));
    let found = desk.found(0, &[]);
    assert_eq!(found.0["component"]["kind"], "tool");
    assert_eq!(found.result("own recordings"), "skipped");
    desk.put(
        "page.json",
        json!({ "url": "https://example.com/" }).to_string(),
    );
    desk.put(
        "page.http",
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nHi",
    );
    let found = desk.found(0, &["--accept"]);
    assert_eq!(found.result("determinism"), "passed");
    let snapshot = fs::read_to_string(desk.path().join("page.snap")).expect("it is written");
    assert!(snapshot.contains("{\"result\":"), "{snapshot}");
    desk.put("page.json", json!({ "url": 7 }).to_string());
    desk.found(1, &[]).fails("recording page", "do not match");
}

/// The events of a response for a filter.
const EVENTS: &str = r#"{"event":{"block-start":{"index":0,"block":"text"}}}
{"event":{"text":{"index":0,"text":"Ask a@exam"}}}
{"event":{"text":{"index":0,"text":"ple.org."}}}
{"event":{"block-end":0}}
{"event":{"finish":"stop"}}
"#;

#[test]
fn every_filter_that_weir_brings_passes() {
    for (name, options) in [
        ("moderate", vec![]),
        ("redact-pii", vec![]),
        ("route-by-length", vec!["--option", "limit=100"]),
    ] {
        let desk = Desk::new(&guests::bundled(name));
        let found = desk.found(0, &options);
        assert_eq!(found.0["component"]["kind"], "filter");
        assert_eq!(found.0["component"]["description"]["name"], name);
        for check in ["self-test", "options", "requests", "determinism"] {
            assert_eq!(found.result(check), "passed", "{name}: {check}");
        }
        let watches = name == "redact-pii";
        let answer = if watches { "passed" } else { "skipped" };
        assert_eq!(found.result("answer"), answer, "{name}");
        let cost = &found.0["cost"];
        assert!(cost["screen_us"].as_f64().is_some_and(|us| us > 0.0));
        assert_eq!(cost["event_us"].is_number(), watches, "{cost}");
        let table = text(&desk.check(&options).stdout);
        assert!(table.contains("a fresh instance with screen: "), "{table}");
    }
    let unset = Desk::new(&guests::bundled("route-by-length")).found(1, &[]);
    unset.fails("options", "limit");
}

#[test]
fn what_a_filter_must_not_do_is_found() {
    let desk = Desk::new(guests::meddling());
    let found = desk.found(0, &[]);
    assert_eq!(found.result("answer"), "skipped");
    for (word, check, why) in [
        (
            "attach",
            "requests",
            "refers to an attachment that does not exist",
        ),
        (
            "nowhere",
            "requests",
            "chooses an upstream that does not exist",
        ),
        ("header", "requests", "annotations"),
        ("trap", "requests", "basic: "),
        ("answer-nonsense", "answer", "not a valid response"),
        ("answer-forge", "answer", "images, usage or parts"),
        ("answer-swallow", "answer", "not a valid response"),
        ("answer-restarts", "answer", "characters, line "),
    ] {
        let option = format!("always={word}");
        let found = desk.found(1, &["--option", &option]);
        found.fails(check, why);
    }
    let found = desk.found(0, &["--option", "always=answer-stop"]);
    assert_eq!(found.result("answer"), "passed");
}

#[test]
fn a_filter_is_checked_with_its_own_recordings() {
    let desk = Desk::new(&guests::bundled("redact-pii"));
    desk.put("asked.json", chat("m", "I am a@b.co").to_string());
    desk.put("asked.events", EVENTS);
    let found = desk.found(0, &["--accept"]);
    assert_eq!(found.result("determinism"), "passed");
    let snapshot = fs::read_to_string(desk.path().join("asked.snap")).expect("it is written");
    assert!(snapshot.contains("I am [e-mail-1]"), "{snapshot}");
    assert!(snapshot.contains("[e-mail]."), "{snapshot}");
    let detail = desk.found(0, &[]).of("recording asked")[0]["detail"].to_string();
    assert!(detail.contains("as in its snapshot"), "{detail}");
    desk.put("asked.events", EVENTS.replace("Ask", "Tell"));
    desk.found(1, &[]).fails("recording asked", "Tell");
    desk.put("asked.events", "{\"event\":{\"block-end\":0}}\n");
    desk.found(1, &[])
        .fails("recording asked", "not a valid response");
}

#[test]
fn a_folder_must_have_one_component() {
    let desk = Desk::new(&guests::bundled("demo"));
    desk.put("other.wasm", "");
    let output = desk.check(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("2 .wasm files"), "{output:?}");
}
