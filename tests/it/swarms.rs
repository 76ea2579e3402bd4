//! Swarms: agents in sequence on a scripted model, under one budget; the client's view, and the charges.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::{USER, at};
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream};
use weir_identity::dev_issuer::DevAudience;
use weir_ledger::AccountId;
use weir_storage::clock::ManualClock;

use crate::billing::is_settled;
use crate::swarm_events::numbered;

/// A model whose plain responses weir streams from the provider.
pub(crate) const STREAMED: &str = "[models.streamed]\ncontext_window = 100000\nmax_output_tokens = 8000\ndefault_output_tokens = 1000\nsupports_tools = true\n\
     price = { input = 1.0, output = 1.0 }\nupstreams = [{ provider = \"scripted\", stream_plain = true }]\n";

pub(crate) async fn gateway(upstream: &Upstream) -> Gateway {
    let builder = Gateway::builder().swarms().upstream("scripted", upstream);
    let gateway = builder.start().await;
    gateway.set_plan("pro").await;
    gateway
}

pub(crate) fn agent(name: &str) -> Value {
    json!({ "name": name, "system_prompt": format!("You are {name}."), "task_prompt": format!("Do {name}."),
        "model": "scripted" })
}

pub(crate) fn swarm(agents: &[Value]) -> Value {
    json!({ "swarm_id": "pipeline", "agents": agents })
}

fn after(name: &str, wanted: &str) -> Value {
    let mut agent = agent(name);
    agent["depends_on"] = json!(wanted);
    agent
}

/// A model's response that calls a tool.
fn calls_tool(text: &str) -> Reply {
    let message = json!({ "role": "assistant", "content": text, "tool_calls": [
        { "id": "call_1", "type": "function", "function": { "name": "look_up", "arguments": "{}" } },
    ] });
    Reply::chat_message(&message, "tool_calls")
}

/// Requests a swarm, and waits for its end.
pub(crate) async fn run(client: &Client, swarm: &Value) -> Value {
    let accepted = client.post("/swarms", swarm).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let accepted = accepted.json();
    // The swarm may have begun by now.
    let status = accepted["status"].as_str().expect("a status");
    assert!(matches!(
        status,
        "queued" | "running" | "completed" | "partial" | "failed"
    ));
    ended(client, accepted["execution_id"].as_str().expect("an id")).await
}

/// Waits for a swarm's end, which ends its event stream.
pub(crate) async fn ended(client: &Client, id: &str) -> Value {
    let path = format!("/swarms/{id}");
    let events = format!("{path}/events");
    let events = client.follow(Method::GET, &events, &Value::Null).await;
    // The end of a piece may cut a character.
    events.try_rest().await;
    client.get(&path).await.json()
}

async fn available(gateway: &Gateway) -> i64 {
    let user = AccountId(USER.into());
    let account = gateway.app().ledger.find_account(&user).await;
    let account = account.expect("an answer").expect("an account");
    account.available().total().micro()
}

fn micro(credits: &Value) -> i64 {
    (credits.as_f64().expect("a number") * 1e6).round() as i64
}

#[tokio::test]
async fn agents_run_in_order_each_told_what_went_before_and_are_charged_once() {
    let upstream = Upstream::start().await;
    for (text, tokens) in [("Rivers rise.", 40), ("Post: rivers.", 50), ("Fine.", 60)] {
        upstream.will(Reply::chat_with_usage(text, 10, tokens));
    }
    let gateway = gateway(&upstream).await;
    let before = available(&gateway).await;
    let mut editor = agent("editor");
    editor["temperature"] = json!(0.25);
    editor["max_tokens"] = json!(300);
    let mut asked = swarm(&[after("writer", "scout"), agent("scout"), editor]);
    asked["context"] = json!("About rivers.");
    asked["task_id"] = json!("task-7");
    let record = run(&gateway.client(), &asked).await;

    let sent: Vec<_> = upstream.requests().iter().map(|sent| sent.json()).collect();
    let prompts: Vec<_> = sent.iter().map(|sent| &sent["messages"]).collect();
    let message = |role: &str, text: &str| json!({ "role": role, "content": text });
    assert_eq!(
        prompts,
        [
            &json!([
                message(
                    "system",
                    "You are scout.\n\nADDITIONAL CONTEXT:\nAbout rivers."
                ),
                message("user", "Do scout.")
            ]),
            &json!([
                message(
                    "system",
                    "You are writer.\n\n--- CONTEXT FROM PREVIOUS AGENT ---\nRivers rise.\n--- END CONTEXT ---"
                ),
                message("user", "Do writer."),
            ]),
            &json!([
                message("system", "You are editor."),
                message("user", "Do editor.")
            ]),
        ]
    );
    assert_eq!(sent[0]["temperature"], 0.7);
    assert_eq!(sent[2]["temperature"], 0.25);
    assert!(sent[2].to_string().contains(":300"), "{}", sent[2]);

    assert_eq!(record["status"], "completed");
    assert_eq!(record["content"], "Fine.");
    assert_eq!(
        (&record["swarm_id"], &record["task_id"]),
        (&json!("pipeline"), &json!("task-7"))
    );
    assert_eq!(
        (&record["agents_completed"], &record["agents_total"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(
        (&record["tokens_in"], &record["tokens_out"]),
        (&json!(30), &json!(150))
    );
    assert_eq!(record["error"], Value::Null);
    let agents = record["agents"].as_array().expect("a list");
    let names: Vec<_> = agents.iter().map(|agent| &agent["name"]).collect();
    assert_eq!(names, ["scout", "writer", "editor"]);
    assert_eq!(agents[0]["output"], "Rivers rise.");
    assert!(
        agents
            .iter()
            .all(|agent| agent["status"] == "completed" && agent["iterations"] == 1)
    );
    let charged = before - available(&gateway).await;
    assert!(charged > 0);
    assert_eq!(micro(&record["total_credits"]), charged);
    is_settled(&gateway).await;
    // Each call is a charge of the task.
    let requests = gateway.client().get("/usage/requests").await.json();
    let requests = requests["requests"].as_array().expect("a list");
    let calls = requests
        .iter()
        .filter(|request| request["model"] == "scripted");
    let calls: Vec<_> = calls.collect();
    assert_eq!(calls.len(), 3);
    for call in calls {
        assert_eq!(
            (&call["source"], &call["task_id"]),
            (&json!("agent"), &json!("task-7"))
        );
    }
}

#[tokio::test]
async fn a_circle_fails_the_swarm_before_any_agent_runs() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let record = run(
        &gateway.client(),
        &swarm(&[agent("a"), after("b", "c"), after("c", "b")]),
    )
    .await;
    assert_eq!(record["status"], "failed");
    assert_eq!(record["error"], "Circular dependency detected: b");
    assert_eq!(record["agents"], json!([]));
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_model_that_fails_stops_the_pipeline_and_what_is_done_stays() {
    let upstream = Upstream::start().await;
    upstream
        .will(Reply::chat("First."))
        .will(Reply::error(400, "no"));
    let gateway = gateway(&upstream).await;
    let agents = [agent("a"), agent("b"), agent("c")];
    let record = run(&gateway.client(), &swarm(&agents)).await;
    assert_eq!(record["status"], "partial");
    assert_eq!(record["agents_completed"], 1);
    assert_eq!(record["agents"][0]["output"], "First.");
    assert_eq!(record["agents"][1]["status"], "failed");
    assert_eq!(record["agents"].as_array().map(Vec::len), Some(2));
    let error = record["error"].as_str().expect("a reason");
    assert!(error.starts_with("The agent \"b\" failed: "), "{error}");
    upstream.will(Reply::error(400, "no"));
    let record = run(&gateway.client(), &swarm(&agents)).await;
    assert_eq!(
        (&record["status"], &record["agents_completed"]),
        (&json!("failed"), &json!(0))
    );
    is_settled(&gateway).await;
}

#[tokio::test]
async fn an_answer_that_is_cut_or_empty_does_not_complete_an_agent() {
    let said = |message: Value, finish: &str| Reply::chat_message(&message, finish);
    let text = |text: &str| json!({ "role": "assistant", "content": text });
    let refusal = json!({ "role": "assistant", "content": null, "refusal": "I can't help." });
    let mut cut_call = text("I look.");
    cut_call["tool_calls"] = json!([{ "id": "call_1", "type": "function",
        "function": { "name": "http_get", "arguments": "{\"url\": \"http" } }]);
    for (reply, output, error) in [
        (said(text("Half of"), "length"), "Half of", "length: "),
        (said(cut_call, "length"), "I look.", "length: "),
        (
            said(text("Half of"), "content_filter"),
            "Half of",
            "content_filter: ",
        ),
        (
            said(refusal, "stop"),
            "",
            "refusal: the model declined: I can't help.",
        ),
        (said(text(""), "stop"), "", "empty: "),
    ] {
        let upstream = Upstream::start().await;
        upstream.will(Reply::chat("First.")).will(reply);
        let gateway = gateway(&upstream).await;
        let agents = [agent("a"), agent("b"), agent("c")];
        let record = run(&gateway.client(), &swarm(&agents)).await;
        assert_eq!(record["status"], "partial", "{record}");
        assert_eq!(record["agents_completed"], 1);
        let cut = &record["agents"][1];
        assert_eq!(cut["status"], "failed", "{cut}");
        assert_eq!(
            (&cut["output"], &record["content"]),
            (&json!(output), &json!("First."))
        );
        let why = cut["error"].as_str().expect("a reason");
        assert!(why.starts_with(error), "{why}");
        let of_swarm = record["error"].as_str().expect("a reason");
        assert!(of_swarm.contains(why), "{of_swarm}");
        assert_eq!(upstream.count(), 2, "no call of a tool was made: {record}");
        assert!(
            record["agents"]
                .as_array()
                .is_some_and(|agents| agents.len() == 2)
        );
        is_settled(&gateway).await;
    }
}

#[tokio::test]
async fn an_agent_that_only_calls_tools_ends_at_its_cap_with_what_it_said_last() {
    let upstream = Upstream::start().await;
    upstream
        .will(calls_tool("Looking."))
        .will(calls_tool("Still looking."))
        .will(calls_tool(""));
    upstream.will(Reply::chat("Done."));
    let gateway = gateway(&upstream).await;
    let mut looker = agent("looker");
    looker["max_iterations"] = json!(3);
    let record = run(
        &gateway.client(),
        &swarm(&[looker, after("ender", "looker")]),
    )
    .await;
    assert_eq!(record["status"], "completed");
    let looker = &record["agents"][0];
    assert_eq!(
        (&looker["status"], &looker["iterations"]),
        (&json!("max_iterations"), &json!(3))
    );
    assert_eq!(looker["output"], "Still looking.");
    let requests = upstream.requests();
    // A call of a tool that it does not have returns an error to the model.
    let told = &requests[1].json()["messages"][3];
    assert_eq!(
        (&told["role"], &told["tool_call_id"]),
        (&json!("tool"), &json!("call_1"))
    );
    assert!(
        told["content"].to_string().contains("there is no tool"),
        "{told}"
    );
    assert!(
        requests[3].json()["messages"][0]["content"]
            .to_string()
            .contains("Still looking.")
    );
}

#[tokio::test]
async fn a_budget_lowers_limits_and_halts_and_keeps_what_was_done() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat_with_usage("All that I know.", 10, 250));
    let gateway = gateway(&upstream).await;
    let before = available(&gateway).await;
    let agents = ["a", "b", "c"].map(|name| {
        let mut agent = agent(name);
        // The descriptions of tools cost tokens, too.
        agent["tools"] = json!([]);
        agent
    });
    let mut asked = swarm(&agents);
    // A token of output costs 0.0028 credits.
    asked["max_total_credits"] = json!(1.2);
    let record = run(&gateway.client(), &asked).await;
    assert_eq!(record["status"], "partial", "{record}");
    assert_eq!(record["agents"][0]["status"], "completed");
    assert_eq!(record["agents"][0]["output"], "All that I know.");
    assert_eq!(record["agents"][1]["status"], "failed");
    assert!(
        record["error"]
            .to_string()
            .contains("The budget is exhausted."),
        "{record}"
    );
    assert_eq!(upstream.count(), 1);
    let sent = upstream.next_request().await.json();
    let limit = sent["max_tokens"]
        .as_u64()
        .or(sent["max_completion_tokens"].as_u64());
    let limit = limit.expect("a limit");
    assert!((256..=428).contains(&limit), "{limit}");
    let charged = before - available(&gateway).await;
    assert_eq!(micro(&record["total_credits"]), charged);
    assert!(charged <= 1_200_000);
    is_settled(&gateway).await;
}

#[tokio::test]
async fn a_budget_that_is_spent_exactly_ends_the_swarm_before_the_next_agent() {
    let upstream = Upstream::start().await;
    // The reported usage exceeds the accepted maximum: the charge equals the call's hold.
    upstream.always(Reply::chat_with_usage("All of it.", 100_000, 100_000));
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let dear = |name: &str| {
        let mut agent = agent(name);
        agent["tools"] = json!([]);
        agent["max_tokens"] = json!(400);
        agent
    };
    let alone = run(&client, &swarm(&[dear("a")])).await;
    let price = &alone["total_credits"];
    let mut asked = swarm(&[dear("a"), dear("b"), dear("c")]);
    asked["max_total_credits"] = price.clone();
    let record = run(&client, &asked).await;
    assert_eq!(record["total_credits"], *price, "{record}");
    assert_eq!(
        (&record["status"], &record["error"]),
        (&json!("partial"), &json!("The budget is exhausted."))
    );
    let agents = record["agents"].as_array().expect("a list");
    assert_eq!(agents.len(), 1, "none other has begun: {record}");
    assert_eq!(
        (&agents[0]["status"], &agents[0]["output"]),
        (&json!("completed"), &json!("All of it."))
    );
    assert_eq!(
        (&record["content"], upstream.count()),
        (&json!("All of it."), 2)
    );
    is_settled(&gateway).await;
}

#[tokio::test]
async fn a_call_that_takes_longer_than_its_swarm_may_ends_it() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("Late.").after_gate(&gate));
    let builder = Gateway::builder().swarms().upstream("scripted", &upstream);
    let builder = builder.tables("[swarms]\ndeadline_seconds = 1\n");
    let gateway = builder.start().await;
    gateway.set_plan("pro").await;
    let record = run(&gateway.client(), &swarm(&[agent("a"), agent("b")])).await;
    assert_eq!(record["status"], "failed", "{record}");
    let error = record["error"].as_str().expect("a reason");
    assert!(
        error.contains("The swarm exceeded its deadline."),
        "{error}"
    );
    gate.open();
    is_settled(&gateway).await;
}

#[tokio::test]
async fn a_swarm_that_waits_beyond_its_deadline_begins_no_more() {
    let upstream = Upstream::start().await;
    let clock = ManualClock::at(at("2026-03-01T00:00:00Z"));
    let builder = Gateway::builder().swarms().upstream("scripted", &upstream);
    let gateway = builder.clock(&clock).start().await;
    gateway.set_plan("pro").await;
    gateway.executor().stop().await;
    let client = gateway.client();
    let accepted = client.post("/swarms", &swarm(&[agent("a")])).await.json();
    assert_eq!(accepted["status"], "queued");
    clock.advance(Duration::from_secs(3_600));
    let late = gateway.another_executor();
    let record = ended(&client, accepted["execution_id"].as_str().expect("an id")).await;
    assert_eq!(
        (&record["status"], &record["error"], &record["agents"]),
        (
            &json!("failed"),
            &json!("The swarm exceeded its deadline."),
            &json!([])
        )
    );
    assert_eq!(upstream.count(), 0);
    late.stop().await;
    is_settled(&gateway).await;
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_by_code_and_field() {
    let upstream = Upstream::start().await;
    let builder = Gateway::builder().swarms().upstream("scripted", &upstream);
    let gateway = builder.credits(0).start().await;
    let client = gateway.client();
    let refused = async |swarm: &Value, status: u16, code: &str, param: Value| {
        let refused = client.post("/swarms", swarm).await;
        assert_eq!(
            refused.error(status, code)["param"],
            param,
            "{}",
            refused.text()
        );
    };
    let sound = swarm(&[agent("a")]);
    refused(&sound, 403, "PLAN_NOT_ELIGIBLE", Value::Null).await;
    gateway.set_plan("guru").await;
    let with = |field: &str, value: Value| {
        let mut agent = agent("a");
        agent[field] = value;
        swarm(&[agent])
    };
    let six: Vec<_> = (0..6).map(|number| agent(&number.to_string())).collect();
    for (swarm, code, param) in [
        (
            with("model", json!("nobodys")),
            "INVALID_MODEL",
            "agents[0].model",
        ),
        (
            with("max_iterations", json!(11)),
            "PLAN_LIMIT_EXCEEDED",
            "agents[0].max_iterations",
        ),
        (swarm(&six), "PLAN_LIMIT_EXCEEDED", "agents"),
        (
            with("tools", json!(["teleport"])),
            "INVALID_REQUEST",
            "agents[0].tools[0]",
        ),
        (
            with("depends_on", json!("b")),
            "INVALID_REQUEST",
            "agents[0].depends_on",
        ),
        (
            swarm(&[agent("a"), agent("a")]),
            "INVALID_REQUEST",
            "agents[1].name",
        ),
    ] {
        refused(&swarm, 400, code, json!(param)).await;
    }
    for field in ["user_id", "plan"] {
        let mut named = sound.clone();
        named[field] = json!("pro");
        refused(&named, 400, "INVALID_REQUEST", json!(field)).await;
    }
    assert_eq!(client.get("/swarms").await.json()["swarms"], json!([]));
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn too_few_credits_for_a_call_of_each_agent_are_402() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    // The swarm may spend at most 500 credits, which ten calls of 65,536 tokens at 0.0028 each use up.
    let agents: Vec<_> = (0..10)
        .map(|number| {
            let mut agent = agent(&number.to_string());
            agent["max_tokens"] = json!(65_536);
            agent
        })
        .collect();
    let user = AccountId(USER.into());
    let spare = 499_000_000;
    let hold = weir_ledger::OpenHold {
        hold: weir_ledger::HoldId("hold_other".into()),
        amount: weir_ledger::Credits::from_micro(available(&gateway).await - spare),
        request_id: "other".into(),
        parent: None,
        source: weir_ledger::RequestSource::Web,
        source_id: None,
        parts: Vec::new(),
        top_up_only: false,
        model: "scripted".into(),
    };
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    let held = gateway.app().ledger.open(&user, hold, deadline).await;
    held.expect("there are as many");
    let refused = gateway.client().post("/swarms", &swarm(&agents)).await;
    let error = refused.error(402, "INSUFFICIENT_CREDITS");
    assert_eq!(
        (&error["required_credits"], &error["available_credits"]),
        (&json!(500), &json!(499))
    );
    // The balance is lower.
    upstream.always(Reply::chat("Short."));
    let record = run(&gateway.client(), &swarm(&agents[..2])).await;
    assert_eq!(record["status"], "completed");
}

#[tokio::test]
async fn a_long_output_is_cut_in_the_record_and_whole_for_the_next_agent() {
    let upstream = Upstream::start().await;
    let long = "ż".repeat(12_000);
    upstream.always(Reply::chat(&long));
    let gateway = gateway(&upstream).await;
    let record = run(&gateway.client(), &swarm(&[agent("a"), after("b", "a")])).await;
    assert_eq!(record["content"], "ż".repeat(10_000));
    assert_eq!(record["agents"][0]["output"], json!(long));
    let second = upstream.requests()[1].json();
    let system = second["messages"][0]["content"].as_str().expect("a text");
    assert!(system.ends_with(&format!("\n{long}\n--- END CONTEXT ---")));
}

#[tokio::test]
async fn a_swarm_is_run_once_for_its_key() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Once."));
    let gateway = gateway(&upstream).await;
    let client = gateway.client().with_header("idempotency-key", "k");
    let asked = swarm(&[agent("a")]);
    let first = client.post("/swarms", &asked).await.json();
    ended(&client, first["execution_id"].as_str().expect("an id")).await;
    let again = client.post("/swarms", &asked).await;
    assert_eq!(again.status, 202);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.json()["execution_id"], first["execution_id"]);
    let other = client.post("/swarms", &swarm(&[agent("b")])).await;
    other.error(409, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(upstream.count(), 1);
}

/// Returns an event's number, name and payload.
fn read_event(text: &str) -> (i64, String, Value) {
    let field = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("an event has {name}: {text}"))
            .to_owned()
    };
    let data = serde_json::from_str(&field("data")).expect("JSON");
    (field("id").parse().expect("a number"), field("event"), data)
}

#[tokio::test]
async fn events_tell_what_happens_and_go_on_behind_any_of_them() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat("One.")).will(Reply::chat("Two."));
    let gateway = gateway(&upstream).await;
    let client = gateway.client().with_header("accept", "text/event-stream");
    let asked = swarm(&[agent("a"), agent("b")]);
    let stream = client.follow(Method::POST, "/swarms", &asked).await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let all = numbered(stream.rest().await);
    let events: Vec<_> = all.iter().map(|event| read_event(event)).collect();
    let names: Vec<_> = events.iter().map(|(_, name, _)| &**name).collect();
    assert_eq!(
        names,
        [
            "agent_start",
            "agent_done",
            "agent_start",
            "agent_done",
            "swarm_done"
        ]
    );
    let numbers: Vec<_> = events.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(
        (&events[0].2["agent"], &events[0].2["model"]),
        (&json!("a"), &json!("scripted"))
    );
    let done = &events[3].2;
    assert_eq!(
        (&done["agent"], &done["status"], &done["output"]),
        (&json!("b"), &json!("completed"), &json!("Two."))
    );
    let last = &events[4].2;
    assert_eq!(
        (&last["status"], &last["content"]),
        (&json!("completed"), &json!("Two."))
    );
    let id = last["execution_id"].as_str().expect("an id");
    for seen in 0..=5 {
        let path = format!("/swarms/{id}/events");
        let resumed = gateway
            .client()
            .with_header("last-event-id", &seen.to_string());
        let rest = resumed
            .follow(Method::GET, &path, &Value::Null)
            .await
            .rest()
            .await;
        assert_eq!(rest, all[seen..]);
        let path = format!("{path}?after={seen}");
        let rest = gateway
            .client()
            .follow(Method::GET, &path, &Value::Null)
            .await
            .rest()
            .await;
        assert_eq!(rest, all[seen..]);
    }
    let path = format!("/swarms/{id}/events?after=x");
    gateway
        .client()
        .get(&path)
        .await
        .error(400, "INVALID_REQUEST");
}

#[tokio::test]
async fn a_cancelled_swarm_ends_before_its_next_step() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("Done.").after_gate(&gate));
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let accepted = client
        .post("/swarms", &swarm(&[agent("a"), agent("b")]))
        .await
        .json();
    let id = accepted["execution_id"].as_str().expect("an id");
    patiently(gate.reached()).await;
    assert_eq!(client.delete(&format!("/swarms/{id}")).await.status, 204);
    gate.open();
    let record = ended(&client, id).await;
    assert_eq!(record["status"], "cancelled");
    assert_eq!(record["agents"][0]["output"], "Done.");
    assert_eq!(upstream.count(), 1);
    assert_eq!(client.delete(&format!("/swarms/{id}")).await.status, 204);
    is_settled(&gateway).await;
}

#[tokio::test]
async fn a_users_swarms_are_listed_and_nobody_elses() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Mine."));
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let record = run(&client, &swarm(&[agent("a")])).await;
        ids.insert(0, record["execution_id"].clone());
    }
    let list = async |query: &str| client.get(&format!("/swarms{query}")).await.json();
    let listed = |list: &Value| -> Vec<Value> {
        let swarms = list["swarms"].as_array().expect("a list");
        swarms
            .iter()
            .map(|swarm| swarm["execution_id"].clone())
            .collect()
    };
    let first = list("?limit=2").await;
    assert_eq!(listed(&first), ids[..2]);
    let next = first["next"].as_str().expect("there is more");
    let rest = list(&format!("?limit=2&before={next}")).await;
    assert_eq!(
        (listed(&rest), &rest["next"]),
        (ids[2..].to_vec(), &Value::Null)
    );
    let mallory = gateway.web("mallory");
    assert_eq!(mallory.get("/swarms").await.json()["swarms"], json!([]));
    let id = ids[0].as_str().expect("an id");
    for path in [format!("/swarms/{id}"), format!("/swarms/{id}/events")] {
        mallory.get(&path).await.error(404, "NOT_FOUND");
    }
    mallory
        .delete(&format!("/swarms/{id}"))
        .await
        .error(404, "NOT_FOUND");
}

#[tokio::test]
async fn a_service_has_a_swarm_run_and_hears_what_became_of_it() {
    const PATH: &str = "/internal/agent/swarm";
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("For alice."));
    let gateway = gateway(&upstream).await;
    let mut asked = swarm(&[agent("a")]);
    (asked["user_id"], asked["plan"]) = (json!(USER), json!("guru"));
    let service = gateway.executor_service(DevAudience::Executor, &["swarm:run"]);
    let record: Answer = service.post(PATH, &asked).await;
    assert_eq!(record.status, 200, "{}", record.text());
    let record = record.json();
    assert_eq!(
        (&record["status"], &record["user_id"]),
        (&json!("completed"), &json!(USER))
    );
    assert_eq!(record["agents"][0]["output"], "For alice.");

    let for_api = gateway.executor_service(DevAudience::Api, &["swarm:run"]);
    for stranger in [
        for_api,
        gateway.client().at(service.address()),
        gateway.stranger().at(service.address()),
    ] {
        stranger
            .post(PATH, &asked)
            .await
            .error(401, "UNAUTHENTICATED");
    }
    let other = gateway.executor_service(DevAudience::Executor, &["model:call"]);
    other.post(PATH, &asked).await.error(403, "MISSING_SCOPE");
    gateway
        .client()
        .post(PATH, &asked)
        .await
        .error(404, "NOT_FOUND");
    let with = |field: &str, value: Value| {
        let mut asked = asked.clone();
        asked[field] = value;
        asked
    };
    let unknown = service
        .post(PATH, &with("user_id", json!("usr_nobody")))
        .await;
    unknown.error(404, "UNKNOWN_USER");
    service
        .post(PATH, &with("user_id", Value::Null))
        .await
        .error(400, "INVALID_REQUEST");
    service
        .post(PATH, &with("plan", json!("free")))
        .await
        .error(403, "PLAN_NOT_ELIGIBLE");
    gateway.set_plan("guru").await;
    let above = service.post(PATH, &with("plan", json!("pro"))).await;
    assert_eq!(above.error(403, "PLAN_NOT_ELIGIBLE")["param"], "plan");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_call_for_a_swarm_is_taken_of_its_executor_alone() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("Done.").after_gate(&gate));
    let gateway = gateway(&upstream).await;
    let accepted = gateway
        .client()
        .post("/swarms", &swarm(&[agent("a")]))
        .await
        .json();
    let id = accepted["execution_id"].as_str().expect("an id");
    patiently(gate.reached()).await;
    let call = json!({ "execution_id": id, "model": "scripted", "messages": [{ "role": "user", "content": "x" }] });
    let service = gateway.service(&["model:call"]);
    for fence in ["0", "2", "x"] {
        let service = service.clone().with_header("x-weir-fence", fence);
        service
            .post("/internal/agent/code", &call)
            .await
            .error(409, "SWARM_FENCED");
    }
    let unfenced = service.post("/internal/agent/code", &call).await;
    unfenced.error(409, "SWARM_FENCED");
    let mut unknown = call.clone();
    unknown["execution_id"] = json!("0");
    let unknown = service.post("/internal/agent/code", &unknown).await;
    assert_eq!(unknown.error(404, "UNKNOWN_SWARM")["param"], "execution_id");
    gate.open();
    ended(&gateway.client(), id).await;
    let late = service.with_header("x-weir-fence", "1");
    late.post("/internal/agent/code", &call)
        .await
        .error(409, "SWARM_FENCED");
    assert_eq!(upstream.count(), 1);
}
