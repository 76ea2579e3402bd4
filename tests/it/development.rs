//! The features for trying out weir in a gateway without configuration.

use std::fs;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::gateway::share_compiled_plugins;
use tests::{Gateway, chat, guests};
use tokio::time::Instant;
use weir_ledger::AccountId;
use weir_storage::clock::Millis;
use weir_tools::{CallStatus, ToolInvocation, ToolOutcome};

use crate::cli::{Served, run, text, weir};

async fn get(gateway: &Gateway, url: &str) -> ToolOutcome {
    let call = ToolInvocation {
        tool: "http_get".to_owned(),
        arguments: json!({ "url": url }).to_string(),
        account: AccountId("alice".to_owned()),
        plan: weir_ledger::Plan::Pro,
        webhook_urls: Vec::new(),
        integrations: Vec::new(),
        credentials: Vec::new(),
        idempotency_key: "call-1".to_owned(),
        deadline: Instant::now() + Duration::from_secs(60),
    };
    gateway.app().tools.call(call).await
}

/// Returns the URL at the end of a tool's description, if there is one.
fn page(gateway: &Gateway) -> Option<String> {
    let tool = gateway.app().tools.describe("http_get").expect("the tool");
    let (_, url) = tool.description.split_once("http://")?;
    Some(format!("http://{}", url.trim_end_matches('.')))
}

#[tokio::test]
async fn agents_have_a_page_to_read_and_nothing_else_of_this_machine() {
    let gateway = Gateway::start().await;
    let url = page(&gateway).expect("a page to try");
    let read = get(&gateway, &url).await;
    assert!(!read.failed, "{}", read.content);
    assert!(read.content.contains("Trends"), "{}", read.content);
    assert_eq!(read.record.response_status, Some(200));

    let own = format!("http://{}/health", gateway.address());
    for other in [&*own, "http://127.0.0.1:1/", "http://localhost/"] {
        let refused = get(&gateway, other).await;
        assert!(refused.failed, "{other}");
        assert_eq!(refused.record.status, CallStatus::Blocked, "{other}");
        assert_eq!(refused.record.response_status, None);
    }
}

/// The demo model plays all roles, and fetches the page of its research task.
#[tokio::test]
async fn every_template_runs_to_its_end_without_setup() {
    let gateway = Gateway::builder().swarms().start().await;
    gateway.set_plan("pro").await;
    let client = gateway.client();
    let page = page(&gateway).expect("a page to try");
    let templates = client.get("/swarms/templates").await.json();
    let templates = templates["templates"].as_array().expect("a list").clone();
    assert_eq!(templates.len(), 5);
    for template in templates {
        let asked = json!({ "swarm_id": template["name"], "agents": template["agents"] });
        let accepted = client.post("/swarms", &asked).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text());
        let id = accepted.json()["execution_id"].clone();
        let path = format!("/swarms/{}", id.as_str().expect("an id"));
        let events = format!("{path}/events");
        let events = client.follow(Method::GET, &events, &Value::Null).await;
        events.try_rest().await;
        let record = client.get(&path).await.json();
        assert_eq!(record["status"], "completed", "{record}");
        let call = &record["agents"][0]["tool_calls"][0];
        assert_eq!(
            (&call["url"], &call["response_status"]),
            (&json!(page), &json!(200))
        );
        // The first agent's page passes through all of them.
        let content = record["content"].as_str().expect("a text");
        assert!(content.contains("Trends"), "{content}");
    }
}

#[tokio::test]
async fn outside_of_development_there_is_no_such_page() {
    let gateway = Gateway::builder().settings("dev = false").start().await;
    assert_eq!(page(&gateway), None);
}

#[tokio::test]
async fn tools_that_an_operator_has_narrowed_do_not_reach_the_page() {
    let narrowed = "[tools.http_get]\nhosts = [\"api.example.com\"]\n";
    let gateway = Gateway::builder().tables(narrowed).start().await;
    assert_eq!(page(&gateway), None);
}

#[tokio::test]
async fn a_plugin_that_is_built_anew_serves_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let watched = folder.path().join("built");
    fs::create_dir(&watched).expect("a folder");
    // A provider whose adapter is not installed yet.
    let toml = "[providers.acme]\nadapter = \"acme\"\nbase_url = \"http://127.0.0.1:9\"\n\
                [models.acme]\ncontext_window = 1000\nmax_output_tokens = 100\ndefault_output_tokens = 100\n\
                upstreams = [{ provider = \"acme\" }]\nprice = { input = 0.001, output = 0.001 }\n";
    fs::write(folder.path().join("weir.toml"), toml).expect("a file");
    share_compiled_plugins(&folder.path().join(".weir"));
    let command = weir(folder.path());
    let served = Served::start_as(command, folder, &["--watch-plugins", "built"]);
    let client = served.client();
    let put = |name: &str, bytes: &[u8]| {
        // The target of a link is the compiler's output.
        let built = watched.join(format!("{name}.out"));
        fs::write(&built, bytes).expect("the folder can be written");
        let link = watched.join(format!("{name}.wasm"));
        let _ = std::os::unix::fs::symlink(&built, link);
    };
    let says = async || {
        let answer = client.post("/chat", &chat("acme", "hello")).await;
        answer.content()
    };
    for letters in ["aa", "bb"] {
        let component = guests::answering(letters);
        put("acme", &component);
        let digest = weir_sandbox::Digest::of(&component).to_string();
        let about_it = |line: &str| line.contains("acme.wasm is active") && line.contains(&digest);
        served.logged(about_it).await;
        assert_eq!(says().await, letters);
    }
    // No earlier run has compiled this component: the delay is announced.
    let bytes = u32::try_from(Millis::now().0 % 1_000_000).expect("it is small");
    put(
        "slow",
        &guests::with_custom_section(&guests::answering("dd"), bytes),
    );
    served
        .logged(|line| line.contains("slow.wasm is active"))
        .await;
    assert!(
        served.log().contains("compiling built/slow.wasm"),
        "{}",
        served.log()
    );
    put("acme", b"no component");
    let refusal = served
        .logged(|line| line.contains("acme.wasm is not activated"))
        .await;
    assert!(refusal.contains("parse"), "{refusal}");
    assert_eq!(says().await, "bb", "what served goes on");
    put("No Slot", &guests::answering("cc"));
    served
        .logged(|line| {
            line.contains("No Slot.wasm is not activated: its name is not valid for a slot")
        })
        .await;
    assert_eq!(says().await, "bb");
}

#[test]
fn only_development_mode_watches_a_folder_that_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |arguments: &[&str], why: &str| {
        let output = run(
            folder.path(),
            &[&["serve", "--listen", "127.0.0.1:0"], arguments].concat(),
        );
        assert!(!output.status.success());
        let said = text(&output.stderr);
        assert!(said.contains(why), "{said}");
    };
    refused(&["--watch-plugins", "nowhere"], "nowhere is not a folder");
    fs::write(folder.path().join("weir.toml"), "dev = false\n").expect("a file");
    refused(
        &["--watch-plugins", "."],
        "--watch-plugins requires development mode",
    );
}
