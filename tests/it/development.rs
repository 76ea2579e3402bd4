//! What a gateway without any configuration has for trying things out.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::Gateway;
use tokio::time::Instant;
use weir::tools::{Call, CallStatus, Outcome};
use weir_ledger::AccountId;

async fn get(gateway: &Gateway, url: &str) -> Outcome {
    let call = Call {
        tool: "http_get".to_owned(),
        arguments: json!({ "url": url }).to_string(),
        account: AccountId("alice".to_owned()),
        webhook_urls: Vec::new(),
        integrations: Vec::new(),
        credentials: Vec::new(),
        idempotency_key: "call-1".to_owned(),
        deadline: Instant::now() + Duration::from_secs(60),
    };
    gateway.app().tools.call(call).await
}

/// The URL that a tool's description ends with, if it does.
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

/// The demo model plays all roles, and looks up on the page what it is asked to research.
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
        // What the first has read goes through all of them.
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
