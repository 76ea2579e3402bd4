//! Features of providers that weir does not see: state, other models, and tools without a price.
//!
//! The fields are those of anthropic 2.14.0 (`types/beta/message_create_params.py`,
//! `types/thread_unsupported_request_error_details.py`, `lib/threads/_thread_state.py`), openai 3.57.0
//! (`types/responses/tool_param.py`, `types/chat/completion_create_params.py`) and google-genai 3.6.1 (`types.py`).

use serde_json::{Value, json};
use tests::scenario::{Scenario, apis, gateway_with};
use tests::{Gateway, Reply, Upstream};

const MESSAGES: &str = "/v1/messages";

/// A gateway whose model `scripted` an upstream serves by `anthropic`, with this list of passed fields and this price.
async fn gateway(upstream: &Upstream, pass_fields: &str, price: &str) -> Gateway {
    let tables = format!(
        "[providers.scripted.options]\npass-fields = \"{pass_fields}\"\n\
         [models.scripted]\ncontext_window = 200000\nmax_output_tokens = 4000\ndefault_output_tokens = 1000\n\
         supports_tools = true\nprice = {{ {price} }}\nupstreams = [{{ provider = \"scripted\" }}]\n"
    );
    let builder = Gateway::builder().provider("scripted", "anthropic", Some(upstream));
    builder.tables(&tables).start().await
}

const PRICE: &str = "input = 1, output = 2, search = 0.01";

fn question(fields: &Value) -> Value {
    let mut body = json!({
        "model": "scripted", "max_tokens": 100, "messages": [{ "role": "user", "content": "Hello" }],
    });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

fn message(usage: &Value) -> Reply {
    let content = json!([{ "type": "text", "text": "Hi" }]);
    Reply::json(
        200,
        &json!({
            "id": "msg_up", "type": "message", "role": "assistant", "model": "claude", "content": content,
            "stop_reason": "end_turn", "usage": usage,
        }),
    )
}

fn tool(kind: &str, name: &str) -> Value {
    json!({ "tools": [{ "type": kind, "name": name }] })
}

/// Requests of Anthropic's dialect, each with the refused field and its name in `pass-fields`.
fn unseen() -> Vec<(Value, &'static str, &'static str)> {
    let server = json!([{ "type": "url", "url": "https://a.example/mcp", "name": "m" }]);
    let advisor =
        json!([{ "type": "advisor_20260301", "name": "advisor", "model": "claude-opus-5" }]);
    let upload = json!([{ "role": "user", "content": [{ "type": "container_upload", "file_id": "file_1" }] }]);
    vec![
        (
            json!({ "thread": { "type": "create" } }),
            "thread",
            "thread",
        ),
        (
            json!({ "diagnostics": { "previous_message_id": "msg_1" } }),
            "diagnostics.previous_message_id",
            "diagnostics",
        ),
        (
            json!({ "mcp_servers": server }),
            "mcp_servers",
            "mcp_servers",
        ),
        (
            json!({ "container": "container_1" }),
            "container",
            "container",
        ),
        (
            json!({ "fallbacks": [{ "model": "m" }] }),
            "fallbacks",
            "fallbacks",
        ),
        (json!({ "speed": "fast" }), "speed", "speed"),
        (
            json!({ "inference_geo": "us" }),
            "inference_geo",
            "inference_geo",
        ),
        (
            json!({ "fallback_credit_token": "t" }),
            "fallback_credit_token",
            "fallback_credit_token",
        ),
        (json!({ "tools": advisor }), "tools[0]", "advisor"),
        (
            tool("code_execution_20250825", "code_execution"),
            "tools[0]",
            "code_execution",
        ),
        (
            json!({ "tools": [{ "type": "mcp_toolset", "mcp_server_name": "m" }] }),
            "tools[0]",
            "mcp_toolset",
        ),
        (
            tool("a_tool_of_tomorrow_20270101", "new"),
            "tools[0]",
            "a_tool_of_tomorrow",
        ),
        (
            json!({ "messages": upload }),
            "messages[0]",
            "container_upload",
        ),
    ]
}

/// Tools that a search of the provider found are tools of the request.
#[tokio::test]
async fn found_tools_of_the_provider_are_refused_as_if_the_request_had_them() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "", PRICE).await;
    for (tool, is_refused) in [
        (
            json!({ "type": "function", "name": "f", "parameters": {} }),
            false,
        ),
        (json!({ "type": "local_shell" }), false),
        (
            json!({ "type": "code_interpreter", "container": { "type": "auto" } }),
            true,
        ),
        (json!({ "type": "a_tool_of_tomorrow" }), true),
    ] {
        let found = json!({ "type": "tool_search_output", "id": "tso_1", "status": "completed", "tools": [tool] });
        let body = json!({ "model": "scripted", "input": [{ "role": "user", "content": "x" }, found], "store": false });
        let answer = gateway.client().post("/v1/responses", &body).await;
        let is_of_field =
            answer.status == 400 && answer.json()["error"]["weir_code"] == "UNSUPPORTED_PARAMETER";
        assert_eq!(is_of_field, is_refused, "{tool}: {}", answer.text());
    }
}

#[tokio::test]
async fn features_that_weir_does_not_see_are_refused_by_name() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "", PRICE).await;
    let client = gateway.client();
    for (fields, param, _) in unseen() {
        let answer = client.post(MESSAGES, &question(&fields)).await;
        let error = answer.error(400, "UNSUPPORTED_PARAMETER");
        assert_eq!(
            (&error["param"], &error["type"]),
            (&json!(param), &json!("invalid_request_error"))
        );
    }
    assert_eq!(upstream.count(), 0);
    let usage = client.get("/usage/requests").await.json();
    let requests = usage["requests"].as_array().expect("a list");
    assert!(
        requests.iter().all(|request| request["credits"] == 0.0),
        "{usage}"
    );
}

#[tokio::test]
async fn an_operator_lets_fields_and_tools_through() {
    for (fields, _, name) in unseen() {
        let upstream = Upstream::start().await;
        upstream.will(message(&json!({ "input_tokens": 9, "output_tokens": 3 })));
        let gateway = gateway(&upstream, &format!("other, {name}"), PRICE).await;
        let answer = gateway.client().post(MESSAGES, &question(&fields)).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        let sent = upstream.next_request().await.json();
        for (field, value) in fields.as_object().expect("an object") {
            assert_eq!(&sent[field], value, "{name}");
        }
    }
}

/// Anthropic's SDK 2.14 sends `thread` by default in `beta.messages.tool_runner()`, and goes on without it after this error.
#[tokio::test]
async fn a_refused_thread_has_the_error_code_of_anthropics_sdk() {
    for api in apis() {
        let upstream = Upstream::start().await;
        upstream.always(Scenario::Text.reply(&api, false).expect("an answer"));
        let gateway = gateway_with(&api, &upstream).await;
        let client = gateway
            .client()
            .with_header("anthropic-beta", "message-threads-2026-08-12");
        for stream in [false, true] {
            let fields = json!({ "thread": { "type": "create" }, "stream": stream });
            let answer = client.post(MESSAGES, &question(&fields)).await;
            let error = answer.error(400, "UNSUPPORTED_PARAMETER");
            assert_eq!(
                error["details"],
                json!({ "error_code": "thread_unsupported_request" }),
                "{api}"
            );
        }
        assert_eq!(upstream.count(), 0);
        let answer = client.post(MESSAGES, &question(&json!({}))).await;
        assert_eq!(answer.status, 200, "{api}: {}", answer.text());
    }
}

#[tokio::test]
async fn details_of_anthropics_errors_reach_its_clients() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "thread", PRICE).await;
    let client = gateway.client();
    let details = json!({ "error_code": "thread_not_found" });
    for (status, kind) in [(404, "not_found_error"), (400, "invalid_request_error")] {
        let error = json!({ "type": kind, "message": "no such thread", "details": details });
        upstream.will(Reply::json(
            status,
            &json!({ "type": "error", "error": error }),
        ));
        let thread = json!({ "thread": { "type": "continue", "previous_message_id": "msg_1" } });
        let answer = client.post(MESSAGES, &question(&thread)).await;
        let error = answer.error(status, "UPSTREAM_REJECTED");
        assert_eq!(
            (&error["type"], &error["details"]),
            (&json!(kind), &details)
        );
    }
}

#[tokio::test]
async fn the_assumed_limit_of_uses_is_sent_to_the_provider() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "", PRICE).await;
    upstream.will(message(&json!({ "input_tokens": 9, "output_tokens": 3 })));
    let tools = json!({ "tools": [
        { "type": "web_search_20250305", "name": "web_search" },
        { "type": "web_fetch_20250910", "name": "web_fetch" },
        { "type": "bash_20250124", "name": "bash" },
    ] });
    let answer = gateway.client().post(MESSAGES, &question(&tools)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    let limits = [0, 1, 2].map(|index| sent["tools"][index]["max_uses"].clone());
    assert_eq!(limits, [json!(10), json!(10), Value::Null]);
}

/// Returns the cost of all requests at their providers, in USD, and the last charge in credits.
async fn cost_and_charge(gateway: &Gateway) -> (f64, f64) {
    let admin = gateway.admin("root").await;
    let report = admin.get("/admin/model-economics").await.json();
    let cost = report[0]["provider_cost_usd"].as_f64().expect("a cost");
    let usage = gateway.client().get("/usage/requests").await.json();
    let charge = usage["requests"][0]["credits"].as_f64();
    (cost, charge.expect("a charge"))
}

/// The provider bills 40 searches although the request allows 10.
#[tokio::test]
async fn usage_beyond_the_clamp_is_a_cost_with_a_metric() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "", PRICE).await;
    upstream.will(message(&json!({
        "input_tokens": 1_000, "output_tokens": 100,
        "server_tool_use": { "web_search_requests": 40, "web_fetch_requests": 0 },
    })));
    let search = tool("web_search_20250305", "web_search");
    let answer = gateway.client().post(MESSAGES, &question(&search)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (cost, charge) = cost_and_charge(&gateway).await;
    let tokens_usd = (1_000.0 + 2.0 * 100.0) / 1e6;
    let close = |one: f64, other: f64| (one - other).abs() < 1e-6;
    assert!(close(charge, (tokens_usd + 0.1) * 1.4 * 1e3), "{charge}");
    assert!(close(cost, tokens_usd + 0.4), "{cost}");
    let metrics = gateway.stranger().get("/metrics").await.text();
    let of_model = |series: &str| {
        let series = format!("{series}{{slot=\"anthropic\"");
        let mut lines = metrics.lines();
        let line =
            lines.find(|line| line.starts_with(&series) && line.contains("model=\"scripted\""));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{series} in {metrics}"))
    };
    assert!(close(of_model("weir_plugin_clamps_total"), 1.0));
    assert!(close(of_model("weir_plugin_clamped_usd_total"), 0.3));
}

/// A report that no request can have is bounded, so that sums of costs stay sums.
#[tokio::test]
async fn an_absurd_report_is_a_bounded_cost() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream, "", PRICE).await;
    for _ in 0..3 {
        upstream.will(message(
            &json!({ "input_tokens": u64::MAX, "output_tokens": 10 }),
        ));
        let answer = gateway.client().post(MESSAGES, &question(&json!({}))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let (cost, charge) = cost_and_charge(&gateway).await;
    assert!((29.9..30.1).contains(&cost), "{cost}");
    assert!(charge < 1.0, "{charge}");
}

#[tokio::test]
async fn a_search_without_a_price_or_with_a_wrong_limit_is_refused() {
    let search = |max_uses: Value| json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search", "max_uses": max_uses }] });
    let upstream = Upstream::start().await;
    let unpriced = gateway(&upstream, "", "input = 1, output = 2").await;
    let answer = unpriced
        .client()
        .post(MESSAGES, &question(&search(json!(3))))
        .await;
    let error = answer.error(400, "UNSUPPORTED_PARAMETER");
    assert_eq!(error["param"], "tools[0]");
    let priced = gateway(&upstream, "", PRICE).await;
    for wrong in [json!(0), json!(1_001), json!(1.5), json!("3")] {
        let question = question(&search(wrong.clone()));
        let answer = priced.client().post(MESSAGES, &question).await;
        let error = answer.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], "tools[0].max_uses", "{wrong}");
    }
    assert_eq!(upstream.count(), 0);
}

/// Each dialect's fields and tools, at each adapter: refused, or left out and named.
#[tokio::test]
async fn no_adapter_sends_a_feature_that_weir_does_not_see() {
    const CHAT: &str = "/v1/chat/completions";
    const RESPONSES: &str = "/v1/responses";
    const GEMINI: &str = "/v1beta/models/scripted:generateContent";
    let mut cases = Vec::new();
    for field in [
        "web_search_options",
        "conversation",
        "previous_response_id",
        "plugins",
        "models",
        "search_parameters",
        "moderation",
        "background",
        "thread",
        "container",
        "mcp_servers",
    ] {
        let body = json!({ "model": "scripted", "messages": [{ "role": "user", "content": "Hello" }], field: ["secret-mark"] });
        cases.push((CHAT, body));
    }
    for kind in [
        "mcp",
        "code_interpreter",
        "file_search",
        "image_generation",
        "web_search",
        "web_search_preview",
        "shell",
        "programmatic_tool_calling",
    ] {
        let tool = json!({ "type": kind, "mark": "secret-mark" });
        let tools = json!([tool, { "type": "function", "name": "f", "parameters": {} }]);
        let body = json!({ "model": "scripted", "input": "Hello", "tools": tools });
        cases.push((RESPONSES, body));
    }
    for field in [
        "conversation",
        "prompt",
        "background",
        "container",
        "thread",
    ] {
        let body = json!({ "model": "scripted", "input": "Hello", field: "secret-mark" });
        cases.push((RESPONSES, body));
    }
    for kind in [
        "googleSearch",
        "google_search",
        "codeExecution",
        "urlContext",
        "googleMaps",
        "fileSearch",
        "mcpServers",
        "retrieval",
    ] {
        let tools = json!([{ kind: { "mark": "secret-mark" } }]);
        let contents = json!([{ "parts": [{ "text": "Hello" }] }]);
        cases.push((GEMINI, json!({ "contents": contents, "tools": tools })));
    }
    for field in ["cachedContent", "cached_content", "modelArmorConfig"] {
        let contents = json!([{ "parts": [{ "text": "Hello" }] }]);
        cases.push((
            GEMINI,
            json!({ "contents": contents, field: "secret-mark" }),
        ));
    }
    for api in apis() {
        let upstream = Upstream::start().await;
        upstream.always(Scenario::Text.reply(&api, false).expect("an answer"));
        let gateway = gateway_with(&api, &upstream).await;
        let client = gateway.client();
        for (path, body) in &cases {
            let answer = client.post(path, body).await;
            match answer.status.as_u16() {
                400 => {}
                200 => assert!(
                    answer.headers.contains_key("x-weir-ignored"),
                    "{api}: {body}"
                ),
                status => panic!("{api}: {status} for {body}: {}", answer.text()),
            }
        }
        for request in upstream.requests() {
            let sent = String::from_utf8_lossy(&request.body).into_owned();
            assert!(!sent.contains("secret-mark"), "{api}: {sent}");
        }
    }
}

/// Servers such as vLLM return several choices; weir asks for one and delivers one.
#[tokio::test]
async fn a_second_choice_of_a_chat_is_not_delivered() {
    let choice = |index: u32, text: &str| json!({ "index": index, "message": { "role": "assistant", "content": text }, "finish_reason": "stop" });
    let usage = json!({ "prompt_tokens": 5, "completion_tokens": 4 });
    let upstream = Upstream::start().await;
    let choices = json!([choice(0, "first-choice"), choice(1, "second-choice")]);
    upstream.always(Reply::json(
        200,
        &json!({ "choices": choices, "usage": usage }),
    ));
    let gateway = Gateway::with_upstream(&upstream).await;
    let messages = json!([{ "role": "user", "content": "Hello" }]);
    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({ "model": "scripted", "messages": messages }),
        ),
        (MESSAGES, question(&json!({}))),
        (
            "/v1/responses",
            json!({ "model": "scripted", "input": "Hello" }),
        ),
        (
            "/v1beta/models/scripted:generateContent",
            json!({ "contents": [{ "parts": [{ "text": "Hello" }] }] }),
        ),
    ] {
        let answer = gateway.client().post(path, &body).await;
        let text = answer.text();
        assert!(text.contains("first-choice"), "{path}: {text}");
        assert!(!text.contains("second-choice"), "{path}: {text}");
    }
}
