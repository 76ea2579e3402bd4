//! Components of earlier contract versions still run.
//!
//! `tests/bridge` has components that were built for an earlier version, and `wit/since-vX.Y.Z` has the contract of that
//! version. The handwritten guests in `tests/hostile/*.wat` also use the oldest version.

use std::fs;

use serde_json::json;
use tests::source::{files, root};
use tests::{Gateway, Reply, Upstream};

use crate::cli::{run, text};

fn frozen(name: &str) -> Vec<u8> {
    let file = root().join("tests/bridge").join(name);
    fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A file of a contract version, without comments and without its first line, which names the version.
fn contract(folder: &str, name: &str) -> String {
    let file = root().join("wit").join(folder).join(name);
    let text =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let (version, rest) = text.split_once('\n').expect("it has lines");
    assert!(version.starts_with("package weir:plugin@"), "{version}");
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    rest.lines()
        .filter(|line| !is_comment(line))
        .collect::<Vec<_>>()
        .join("\n")
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

/// The check of its exports at load also shows that the types of `filter.wit` are unchanged since 0.2.1.
#[tokio::test]
async fn a_filter_of_0_2_1_is_installed_and_screens() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[[filters]]\nslot = \"meddling\"\n")
        .start()
        .await;
    let admin = gateway.admin("operator").await;
    let installed = admin
        .put_component(
            "/admin/plugins/meddling?activate=true",
            &frozen("filter-0.2.1.wasm"),
        )
        .await;
    assert_eq!(installed.status, 201, "{}", installed.text());
    let slot = admin.get("/admin/plugins/meddling").await.json();
    assert_eq!(slot["plugins"][0]["contract"], "0.2.1", "{slot}");
    upstream.will(Reply::chat("quiet"));
    let answer = gateway.chat("scripted", "meddle upper").await;
    assert_eq!(answer.content(), "QUIET");
    let asked = upstream.next_request().await.json();
    assert_eq!(asked["messages"][0]["content"], "MEDDLE UPPER");
    upstream.will_stream(["a", "b"]);
    let stream = gateway.stream("scripted", "meddle answer-stop").await;
    assert_eq!(stream.content().await, "");
    let refused = gateway.chat("scripted", "meddle refuse").await;
    refused.error(400, "CONTENT_FILTERED");
}

/// A component without `filter-walk` runs unchanged, unless its operator says that it guards.
#[tokio::test]
async fn a_filter_of_0_2_2_runs_unless_it_must_guard() {
    let service = Upstream::start().await;
    let fine = json!({ "results": [{ "flagged": false, "categories": {} }] });
    service.always(Reply::json(200, &fine));
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("fine"));
    let of = |guard: bool| {
        let url = service.base_url();
        Gateway::builder()
            .upstream("scripted", &upstream)
            .tables(&format!(
                "[[filters]]\nslot = \"moderate\"\nguard = {guard}\nservice = {{ url = \"{url}\", private = true }}\n"
            ))
            .start()
    };
    let put = async |gateway: &Gateway| {
        let admin = gateway.admin("operator").await;
        let path = "/admin/plugins/moderate?activate=true";
        admin
            .put_component(path, &frozen("filter-0.2.2.wasm"))
            .await
    };
    let open = of(false).await;
    let installed = put(&open).await;
    assert_eq!(installed.status, 201, "{}", installed.text());
    assert_eq!(open.chat("scripted", "Hello").await.content(), "fine");
    assert_eq!(service.count(), 1);

    let guarded = of(true).await;
    let refused = put(&guarded).await;
    let error = refused.error(409, "PLUGIN_DOES_NOT_FIT").to_string();
    assert!(error.contains("filters[0].guard"), "{error}");
    assert_eq!(guarded.chat("scripted", "Hello").await.content(), "fine");
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

/// Records and variants of WIT are closed, so a change of these files breaks every component that exists.
/// A change needs a new version and bindings for the old version; see `wit/README.md`. Only comments may change.
#[test]
fn types_and_functions_of_0_2_0_are_unchanged() {
    let frozen = files(&root().join("wit/since-v0.2.0"), "wit");
    assert!(!frozen.is_empty(), "the contract of 0.2.0 is gone");
    for file in frozen {
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.expect("UTF-8");
        let (then, now) = (contract("since-v0.2.0", name), contract("", name));
        match name {
            "worlds.wit" => assert!(now.starts_with(&then), "a world has changed since 0.2.0"),
            _ => assert!(then == now, "{name} has changed since 0.2.0"),
        }
    }
}
