//! Agents that call tools: their models' view, the stored record, and an executor that fails in the middle of a call.

use http::Method;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::{Client, Gate, Gateway, Reply, Upstream};

use crate::swarm_events::numbered;
use crate::swarms::gateway;

/// A model's response that calls a tool.
pub(crate) fn calls(tool: &str, arguments: &Value) -> Reply {
    let function = json!({ "name": tool, "arguments": arguments.to_string() });
    let call = json!({ "id": "call_1", "type": "function", "function": function });
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    Reply::chat_message(&message, "tool_calls")
}

/// Returns the page that development mode has for agents.
pub(crate) fn page(gateway: &Gateway) -> String {
    let tool = gateway.app().tools.describe("http_get").expect("the tool");
    let page = tool.description.split_once("http://");
    let (_, page) = page.expect("a page to try");
    format!("http://{}", page.trim_end_matches('.'))
}

fn swarm(tools: &Value) -> Value {
    json!({ "swarm_id": "s", "agents": [
        { "name": "scout", "system_prompt": "", "task_prompt": "Look.", "model": "scripted", "tools": tools },
    ] })
}

/// Waits for a swarm's end, and returns its events.
async fn events(client: &Client, id: &str) -> Vec<String> {
    let events = format!("/swarms/{id}/events");
    let events = client.follow(Method::GET, &events, &Value::Null).await;
    numbered(events.try_rest().await)
}

async fn ask(client: &Client, swarm: &Value) -> String {
    let accepted = client.post("/swarms", swarm).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.json()["execution_id"].clone();
    id.as_str().expect("an id").to_owned()
}

async fn record(client: &Client, id: &str) -> Value {
    client.get(&format!("/swarms/{id}")).await.json()
}

/// Returns the tool's result in a model's last request.
fn told(upstream: &Upstream) -> Value {
    let requests = upstream.requests();
    let request = requests.last().expect("a request").json();
    let messages = request["messages"].as_array().expect("a list").clone();
    let last = messages.last().expect("a message").clone();
    assert_eq!(last["role"], "tool");
    // The scripted model gives each of its calls this id, and a request has each id once.
    let id = last["tool_call_id"].as_str().expect("an id");
    assert!(id.starts_with("call_1"), "{id}");
    last["content"].clone()
}

#[tokio::test]
async fn what_a_tool_answers_goes_back_to_the_model_and_is_kept() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let page = page(&gateway);
    upstream
        .will(calls("http_get", &json!({ "url": page })))
        .will(Reply::chat("It rains."));
    // The default tools of an agent.
    let id = ask(&client, &swarm(&Value::Null)).await;
    let events = events(&client, &id).await;
    let names: Vec<_> = events
        .iter()
        .filter_map(|event| event.lines().find_map(|line| line.strip_prefix("event: ")))
        .collect();
    assert_eq!(
        names,
        ["agent_start", "tool_call", "agent_done", "swarm_done"]
    );
    let record = record(&client, &id).await;
    assert_eq!(
        (&record["status"], &record["content"]),
        (&json!("completed"), &json!("It rains."))
    );
    let call = &record["agents"][0]["tool_calls"][0];
    assert_eq!(
        (
            &call["tool"],
            &call["status"],
            &call["url"],
            &call["response_status"],
            &call["blocked_reason"]
        ),
        (
            &json!("http_get"),
            &json!("success"),
            &json!(page),
            &json!(200),
            &Value::Null
        )
    );
    let offered = upstream.requests()[0].json()["tools"].clone();
    let names: Vec<_> = offered
        .as_array()
        .expect("tools")
        .iter()
        .map(|tool| &tool["function"]["name"])
        .collect();
    assert_eq!(names, ["http_get", "api_call"]);
    assert!(
        told(&upstream).to_string().contains("Trends"),
        "{}",
        told(&upstream)
    );
}

#[tokio::test]
async fn a_call_that_is_refused_is_told_to_the_model_and_the_agent_goes_on() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    upstream
        .will(calls(
            "http_get",
            &json!({ "url": "http://169.254.169.254/" }),
        ))
        .will(calls("http_post", &json!({ "url": "http://example.com/" })))
        .will(Reply::chat("So be it."));
    let id = ask(&client, &swarm(&json!(["http_get"]))).await;
    events(&client, &id).await;
    let record = record(&client, &id).await;
    assert_eq!(record["content"], "So be it.");
    let agent = &record["agents"][0];
    assert_eq!(
        (&agent["status"], &agent["iterations"]),
        (&json!("completed"), &json!(3))
    );
    // A tool that the agent does not have is no call.
    assert_eq!(agent["tool_calls"].as_array().map(Vec::len), Some(1));
    let call = &agent["tool_calls"][0];
    assert_eq!(
        (&call["status"], &call["response_status"]),
        (&json!("blocked"), &Value::Null)
    );
    assert!(call["blocked_reason"].is_string(), "{call}");
    assert!(
        told(&upstream).to_string().contains("there is no tool"),
        "{}",
        told(&upstream)
    );
}

#[tokio::test]
async fn tools_that_are_not_there_are_refused_by_their_place() {
    let gateway = Gateway::builder().swarms().start().await;
    gateway.set_plan("pro").await;
    for (tools, place) in [
        (json!(["http_get", "nope"]), "agents[0].tools[1]"),
        (json!(["http_get", "http_get"]), "agents[0].tools[1]"),
    ] {
        let mut asked = swarm(&tools);
        asked["agents"][0]["model"] = json!("demo");
        let refused = gateway.client().post("/swarms", &asked).await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], place);
    }
}

/// An unsafe call is not repeated, and the model learns that its outcome is unknown; a read is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_executor_is_gone_is_made_again_only_where_that_is_safe() {
    for (effect, asked) in [("unsafe", 1), ("read", 2), ("idempotent", 2)] {
        let upstream = Upstream::start().await;
        let receiver = Upstream::start().await;
        let gate = Gate::new();
        receiver
            .will(Reply::new(200).body("first").after_gate(&gate))
            .will(Reply::new(200).body("second"));
        let address = receiver.address();
        let gateway = Gateway::builder()
            .swarms()
            .upstream("scripted", &upstream)
            .tables(&format!(
                "[swarms]\nlease_ms = 2000\n[tools.http_post]\neffect = \"{effect}\"\nports = [{}]\nprivate = [\"{address}\"]\n",
                address.port()
            ))
            .start()
            .await;
        gateway.set_plan("pro").await;
        let client = gateway.client();
        let url = format!("http://{address}/orders");
        upstream
            .will(calls("http_post", &json!({ "url": url, "body": "1" })))
            .will(Reply::chat("Done."));
        let id = ask(&client, &swarm(&json!(["http_post"]))).await;
        patiently(gate.reached()).await;
        gateway.executor().kill();
        let heir = gateway.another_executor();
        events(&client, &id).await;
        gate.open();
        let record = record(&client, &id).await;
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(receiver.count(), asked, "{effect}");
        let keys: Vec<_> = receiver
            .requests()
            .iter()
            .map(|request| request.header("idempotency-key").map(str::to_owned))
            .collect();
        assert!(
            keys[0].is_some() && keys.iter().all(|key| *key == keys[0]),
            "{keys:?}"
        );
        let told = told(&upstream).to_string();
        let expected = if asked == 1 { "not known" } else { "second" };
        assert!(told.contains(expected), "{effect}: {told}");
        assert_eq!(upstream.count(), 2, "the model is asked once a step");
        // The log does not report success for a call with an unknown outcome.
        let call = &record["agents"][0]["tool_calls"][0];
        let status = if asked == 1 { "blocked" } else { "success" };
        assert_eq!(call["status"], status, "{effect}");
        let reason = call["blocked_reason"].as_str().unwrap_or_default();
        assert_eq!(reason.starts_with("outcome unknown"), asked == 1, "{call}");
        heir.stop().await;
    }
}
