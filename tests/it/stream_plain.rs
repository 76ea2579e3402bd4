//! Non-streamed requests that weir streams from the upstream, and their time limit: text that has arrived is
//! delivered and charged, and the rest of the provider's price is booked as a cost.

use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::USER;
use tests::{Gate, Gateway, Reply, Upstream, chat};
use weir_ledger::AccountId;

use crate::billing::is_settled;

/// The model's prices for its provider, in USD per million tokens.
const INPUT_USD: f64 = 1.0;
const OUTPUT_USD: f64 = 2.0;

const DEADLINE: &str = "[timeouts]\ntotal_ms = 1500\n";

/// A gateway whose model `plain` may be streamed to weir, and whose model `whole` may not.
async fn gateway(upstream: &Upstream, tables: &str) -> Gateway {
    let model = |id: &str, stream_plain: bool| {
        format!(
            "[models.{id}]\ncontext_window = 8000\nmax_output_tokens = 4000\ndefault_output_tokens = 1000\n\
             supports_tools = true\nprice = {{ input = {INPUT_USD}, output = {OUTPUT_USD} }}\n\
             upstreams = [{{ provider = \"scripted\", stream_plain = {stream_plain} }}]\n"
        )
    };
    Gateway::builder()
        .provider("scripted", "openai", Some(upstream))
        .tables(&(model("plain", true) + &model("whole", false) + tables))
        .start()
        .await
}

async fn available(gateway: &Gateway) -> i64 {
    let user = AccountId(USER.into());
    let account = gateway.app().ledger.find_account(&user);
    let account = account.await.expect("an answer").expect("an account");
    account.available().total().micro()
}

/// Returns the model's cost, its revenue, and its charged requests, once each has ended.
async fn economics(gateway: &Gateway) -> (f64, f64, i64) {
    is_settled(gateway).await;
    let report = gateway.admin("root").await;
    let report = report.get("/admin/model-economics").await.json();
    let row = match report.as_array().map(Vec::as_slice) {
        Some([row]) => row,
        _ => panic!("one model: {report}"),
    };
    assert_eq!(row["provider"], "scripted");
    let figure = |name: &str| row[name].as_f64().expect("a number");
    let requests = row["total_requests"].as_i64().expect("a number");
    (figure("provider_cost_usd"), figure("revenue_usd"), requests)
}

fn tool_call(arguments: &str) -> Value {
    json!({ "tool_calls": [{ "index": 0, "id": "call_1", "type": "function",
        "function": { "name": "look_up", "arguments": arguments } }] })
}

fn with_tool(mut request: Value) -> Value {
    request["tools"] =
        json!([{ "type": "function", "function": { "name": "look_up", "parameters": {} } }]);
    request
}

#[tokio::test]
async fn a_plain_answer_is_streamed_to_weir_and_charged_as_reported() {
    let upstream = Upstream::start().await;
    upstream.always_by(|request| match request.json()["stream"] == json!(true) {
        true => Reply::chat_stream_with_usage(["all ", "of ", "it"], 7, 9),
        false => Reply::chat_with_usage("all of it", 7, 9),
    });
    let gateway = gateway(&upstream, "").await;
    let client = gateway.client();
    let keyed = client.clone().with_header("idempotency-key", "key-1");
    let mut probabilities = chat("plain", "x");
    probabilities["logprobs"] = json!(true);
    let mut streamed = Vec::new();
    for (client, request) in [
        (&client, chat("plain", "x")),
        (&keyed, chat("plain", "keyed")),
        (&client, chat("whole", "x")),
        (&client, probabilities),
    ] {
        let answer = client.post("/chat", &request).await;
        assert_eq!(answer.content(), "all of it");
        let answer = answer.json();
        assert_eq!(answer["object"], "chat.completion");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        // The provider's price and the factor 1.4 on it.
        assert_eq!(answer["usage"]["credits"], 0.035, "{answer}");
        let sent = upstream.next_request().await.json();
        streamed.push(sent.get("stream_options").cloned());
    }
    let with_usage = Some(json!({ "include_usage": true }));
    assert_eq!(streamed, [with_usage.clone(), with_usage, None, None]);
    let again = keyed.post("/chat", &chat("plain", "keyed")).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.content(), "all of it");
    assert_eq!(upstream.count(), 4);
}

#[tokio::test]
async fn text_that_has_arrived_by_the_deadline_is_delivered_as_cut_and_charged() {
    let upstream = Upstream::start().await;
    let never = Gate::new();
    upstream.always(Reply::chat_stream(["so ", "far", "!"]).gate_before_piece(2, &never));
    let gateway = gateway(&upstream, DEADLINE).await;
    let before = available(&gateway).await;
    let client = gateway.client();
    let keyed = client.clone().with_header("idempotency-key", "key-1");
    let message = json!([{ "role": "user", "content": "x" }]);
    let to_chat = json!({ "model": "plain", "messages": message });
    let to_messages = json!({ "model": "plain", "max_tokens": 100, "messages": message });
    let to_responses = json!({ "model": "plain", "input": "x" });
    let (chat, messages, responses) = tokio::join!(
        keyed.post("/chat", &to_chat),
        client.post("/v1/messages", &to_messages),
        client.post("/v1/responses", &to_responses),
    );
    assert_eq!(chat.status, 200, "{}", chat.text());
    let choice = &chat.json()["choices"][0];
    assert_eq!(choice["message"]["content"], "so far");
    assert_eq!(choice["finish_reason"], "length");
    let messages = messages.json();
    assert_eq!(messages["content"][0]["text"], "so far", "{messages}");
    assert_eq!(messages["stop_reason"], "max_tokens");
    let responses = responses.json();
    assert_eq!(responses["status"], "incomplete", "{responses}");
    assert_eq!(
        responses["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    patiently(upstream.until_hung_up()).await;

    let (cost, revenue, requests) = economics(&gateway).await;
    assert_eq!(requests, 3);
    let charged = before - available(&gateway).await;
    assert!(charged > 0 && (revenue - charged as f64 / 1e9).abs() < 1e-12);
    assert!(cost > 0.0 && cost < revenue, "{cost} of {revenue}");

    // The charged text is not lost: the same request gets the same response.
    let again = keyed.post("/chat", &to_chat).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.json()["choices"][0]["finish_reason"], "length");
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn what_no_client_can_use_in_part_is_504_and_its_cost_is_booked() {
    let thought = [json!({ "reasoning_content": "Hm, that is hard." })];
    let call = [json!({ "content": "I look." }), tool_call("{\"where\":")];
    let object = [json!({ "content": "{\"a\": " })];
    let mut structured = chat("plain", "x");
    structured["response_format"] = json!({ "type": "json_schema",
        "json_schema": { "name": "a", "schema": { "type": "object" } } });
    let mut json = chat("plain", "x");
    json["response_format"] = json!({ "type": "json_object" });
    let silent = |deltas: &[Value]| {
        let whole = Reply::chat_deltas(deltas, "stop");
        let never = Gate::new();
        whole.gate_before_piece(deltas.len(), &never)
    };
    for (request, reply) in [
        (chat("plain", "x"), Reply::never()),
        (chat("whole", "x"), Reply::never()),
        (chat("whole", "x"), Reply::chat("late").silent_after(20)),
        (chat("plain", "x"), silent(&thought)),
        (with_tool(chat("plain", "x")), silent(&call)),
        (structured, silent(&object)),
        (json, silent(&object)),
    ] {
        let upstream = Upstream::start().await;
        upstream.will(reply.clone());
        let gateway = gateway(&upstream, DEADLINE).await;
        let before = available(&gateway).await;
        let client = gateway.client().with_header("idempotency-key", "key-1");
        let answer = client.post("/chat", &request).await;
        answer.error(504, "UPSTREAM_TIMEOUT");
        let (cost, revenue, requests) = economics(&gateway).await;
        assert!(cost > 0.0, "{reply:?}");
        assert_eq!((revenue, requests), (0.0, 0), "{reply:?}");
        assert_eq!(available(&gateway).await, before);
        // Without a charge the key serves the next request.
        let (text, tool) = (json!({ "content": "{}" }), tool_call("{}"));
        let delta = if request["tools"].is_null() {
            text
        } else {
            tool
        };
        upstream.will(match request["model"] == "plain" {
            true => Reply::chat_deltas([&delta], "stop"),
            false => Reply::chat("{}"),
        });
        let again = client.post("/chat", &request).await;
        assert_eq!(again.status, 200, "{}", again.text());
        assert!(!again.headers.contains_key("idempotency-replayed"));
    }
}

#[tokio::test]
async fn an_answer_that_is_complete_at_the_deadline_is_whole_though_its_connection_stays_open() {
    let upstream = Upstream::start().await;
    let complete = Reply::chat_deltas([&tool_call("{}")], "tool_calls");
    let bytes = complete.whole_body().len();
    upstream.will(complete.silent_after(bytes));
    let gateway = gateway(&upstream, DEADLINE).await;
    let request = with_tool(chat("plain", "x"));
    let answer = gateway.client().post("/chat", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let choice = &answer.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(
        choice["message"]["tool_calls"][0]["function"]["arguments"],
        "{}"
    );
    let (_, revenue, requests) = economics(&gateway).await;
    assert!(revenue > 0.0 && requests == 1);
}

#[tokio::test]
async fn an_upstream_that_breaks_off_midway_is_an_error_and_its_cost_is_booked() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat_stream(["half", " of it"]).cut_after(300));
    let gateway = gateway(&upstream, "").await;
    let before = available(&gateway).await;
    let answer = gateway.client().post("/chat", &chat("plain", "x")).await;
    answer.error(502, "UPSTREAM_ERROR");
    let (cost, revenue, requests) = economics(&gateway).await;
    assert!(cost > 0.0 && revenue == 0.0 && requests == 0);
    assert_eq!(available(&gateway).await, before);
    // An upstream that rejects the request has done no work.
    upstream.will(Reply::error(400, "no"));
    let declined = gateway.client().post("/chat", &chat("plain", "x")).await;
    declined.error(400, "UPSTREAM_REJECTED");
    assert_eq!(economics(&gateway).await.0, cost);
}

#[tokio::test]
async fn a_client_that_hangs_up_while_its_plain_answer_is_streamed_pays_for_what_was_made() {
    let upstream = Upstream::start().await;
    let never = Gate::new();
    upstream.will(Reply::chat_stream(["so ", "far", "!"]).gate_before_piece(2, &never));
    let gateway = gateway(&upstream, "[limits]\nhang_up_drain_ms = 200\n").await;
    let client = gateway.client();
    let request = tokio::spawn(async move { client.post("/chat", &chat("plain", "x")).await });
    never.reached().await;
    request.abort();
    let _ = request.await;
    patiently(upstream.until_hung_up()).await;
    let (cost, revenue, requests) = economics(&gateway).await;
    assert!(cost > 0.0 && revenue > cost && requests == 1);
}

#[tokio::test]
async fn a_session_keeps_what_was_delivered_at_the_deadline() {
    let upstream = Upstream::start().await;
    let never = Gate::new();
    upstream.will(Reply::chat_stream(["so ", "far", "!"]).gate_before_piece(2, &never));
    let gateway = gateway(&upstream, DEADLINE).await;
    let mut request = chat("plain", "x");
    request["session_id"] = json!("river");
    let answer = gateway.client().post("/chat", &request).await;
    assert_eq!(answer.content(), "so far");
    let history = gateway.client().get("/session/river/history").await.json();
    assert_eq!(history["messages"][1]["content"], "so far", "{history}");
}
