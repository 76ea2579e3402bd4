//! Requests with fields that an adapter cannot express: weir leaves out fields that the response does not need, and names
//! them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::{Answer, Gateway, Upstream, chat};

use crate::anthropic_messages::rich_replies;

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// The names in `x-weir-ignored`.
fn ignored(answer: &Answer) -> Vec<&str> {
    let header = answer.headers.get("x-weir-ignored");
    let names = header.map_or("", |names| names.to_str().expect("ASCII"));
    names.split(", ").filter(|name| !name.is_empty()).collect()
}

/// A gateway with one adapter, and its scripted provider.
async fn with_adapter(adapter: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let mut replies = rich_replies().into_iter();
    let (_, (whole, _)) = replies.find(|(name, _)| name == adapter).expect("a reply");
    upstream.always(whole);
    (Gateway::with_adapter(adapter, &upstream).await, upstream)
}

/// The tools of an agent in the form of `openai` 3.52.0 (Python): `types/responses/tool_param.py`.
fn agent() -> Value {
    let function = |name: &str| json!({ "type": "function", "name": name, "description": "Does it.", "parameters": { "type": "object" } });
    json!({
        "model": "scripted", "store": true,
        "tools": [
            function("look"),
            { "type": "web_search", "external_web_access": true },
            { "type": "image_generation", "output_format": "png" },
            { "type": "namespace", "name": "agents", "description": "Other agents.", "tools": [function("spawn")] },
        ],
        "input": [
            { "type": "additional_tools", "role": "developer", "tools": [{ "type": "local_shell" }, function("more")] },
            { "role": "user", "content": "Hi" },
            { "type": "function_call", "call_id": "c", "name": "spawn", "namespace": "agents", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c", "output": "done" },
        ],
    })
}

#[tokio::test]
async fn an_agents_hosted_tools_are_left_out_and_its_namespaces_become_functions() {
    for (adapter, _) in rich_replies() {
        let (gateway, upstream) = with_adapter(&adapter).await;
        let answer = gateway.client().post("/v1/responses", &agent()).await;
        assert_eq!(answer.status, 200, "{adapter}: {}", answer.text());
        let hosted = ["web_search", "image_generation", "local_shell"];
        assert_eq!(ignored(&answer), hosted, "{adapter}");
        let echoed = answer.json();
        assert_eq!(echoed["store"], true);
        assert_eq!(echoed["tools"][3]["tools"][0]["name"], "spawn");
        let sent = upstream.next_request().await;
        let sent = String::from_utf8_lossy(&sent.body);
        for name in ["look", "agents__spawn", "more"] {
            assert!(
                sent.contains(&format!("\"name\":\"{name}\"")),
                "{name}: {sent}"
            );
        }
        assert!(!sent.contains("web_search"), "{sent}");
    }
}

#[tokio::test]
async fn a_hosted_tool_that_must_be_called_is_refused() {
    let (gateway, upstream) = with_adapter("openai").await;
    let client = gateway.client();
    for (fields, param) in [
        (json!({ "type": "web_search" }), "tool_choice.type"),
        (json!("required"), "tools[0]"),
    ] {
        let mut body =
            json!({ "model": "scripted", "input": "Hi", "tools": [{ "type": "web_search" }] });
        body["tool_choice"] = fields;
        let answer = client.post("/v1/responses", &body).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["param"], param, "{}", answer.text());
    }
    // Errors count the client's tools.
    let tools = json!([
        { "type": "web_search" }, { "type": "function", "name": "f" }, { "type": "local_shell" },
        { "type": "function", "name": "g", "novelty": 1 },
    ]);
    let body = json!({ "model": "scripted", "input": "Hi", "tools": tools });
    let answer = client.post("/v1/responses", &body).await;
    let error = answer.error(400, "UNSUPPORTED_PARAMETER");
    assert_eq!(error["param"], "tools[3].novelty", "{error}");
    let body = json!({
        "model": "scripted", "max_tokens": 100, "messages": [{ "role": "user", "content": "Hi" }],
        "tools": [{ "type": "web_search_20250305", "name": "web_search" }],
        "tool_choice": { "type": "tool", "name": "web_search" },
    });
    let answer = client.post("/v1/messages", &body).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn names_and_seeds_without_a_place_are_left_out() {
    for (adapter, left_out) in [
        ("anthropic", &["seed", "name"][..]),
        ("bedrock", &["seed", "name"]),
        ("gemini", &["name"]),
        ("ollama", &["name"]),
        ("openai", &[]),
    ] {
        let (gateway, upstream) = with_adapter(adapter).await;
        let mut body = chat("scripted", "Hello");
        body["seed"] = json!(7);
        body["messages"][0]["name"] = json!("ada");
        let answer = gateway.client().post("/chat", &body).await;
        assert_eq!(answer.status, 200, "{adapter}: {}", answer.text());
        assert_eq!(ignored(&answer), left_out, "{adapter}");
        let sent = upstream.next_request().await;
        let sent = String::from_utf8_lossy(&sent.body);
        assert_eq!(sent.contains("ada"), adapter == "openai", "{sent}");
    }
}

#[tokio::test]
async fn an_image_that_a_tool_saw_follows_as_the_users() {
    let image = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": PIXEL } });
    let result = |id: &str| {
        json!({ "type": "tool_result", "tool_use_id": id,
            "content": [{ "type": "text", "text": "See:" }, image] })
    };
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "look", "input": {} });
    let body = json!({
        "model": "scripted", "max_tokens": 100,
        "messages": [
            { "role": "user", "content": "Look" },
            { "role": "assistant", "content": [call("a"), call("b")] },
            { "role": "user", "content": [result("a"), result("b")] },
            { "role": "assistant", "content": [call("c")] },
            { "role": "user", "content": [result("c"), { "type": "text", "text": "Well?" }] },
        ],
        "tools": [{ "name": "look", "input_schema": { "type": "object" } }],
    });
    let (gateway, upstream) = with_adapter("openai").await;
    let answer = gateway.client().post("/v1/messages", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(ignored(&answer).is_empty());
    let sent = upstream.next_request().await.json();
    let messages = sent["messages"].as_array().expect("messages");
    let roles: Vec<_> = messages.iter().map(|message| &message["role"]).collect();
    let expected = [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
        "tool",
        "user",
    ];
    assert_eq!(roles, expected);
    let images = |message: &Value| {
        let parts = message["content"].as_array().expect("parts").iter();
        parts.filter(|part| part["type"] == "image_url").count()
    };
    assert_eq!((images(&messages[4]), images(&messages[7])), (2, 1));

    // Errors count the client's messages.
    let mut wrong = body.clone();
    wrong["messages"][3]["content"] = json!("So.");
    wrong["messages"][4]["content"] = json!([
        { "type": "search_result", "source": "s", "title": "t", "content": [{ "type": "text", "text": "x" }] },
    ]);
    let answer = gateway.client().post("/v1/messages", &wrong).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("messages[4]"), "{}", answer.text());
}

/// A gateway whose model `small` generates at most 2,000 tokens.
async fn small() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let mut replies = rich_replies().into_iter();
    let (_, (whole, _)) = replies
        .find(|(name, _)| name == "anthropic")
        .expect("a reply");
    upstream.always(whole);
    let gateway = Gateway::builder()
        .provider("scripted", "anthropic", Some(&upstream))
        .tables(
            "[models.small]\ncontext_window = 50000\nmax_output_tokens = 2000\ndefault_output_tokens = 50\n\
             supports_vision = true\nmax_image_tokens = 100\n\
             upstreams = [{ provider = \"scripted\" }]\nprice = { input = 1, output = 1 }\n",
        )
        .start()
        .await;
    (gateway, upstream)
}

#[tokio::test]
async fn a_message_may_ask_for_more_tokens_than_the_model_generates() {
    let (gateway, upstream) = small().await;
    let client = gateway.client();
    let body = json!({
        "model": "small", "max_tokens": 32_000, "thinking": { "type": "enabled", "budget_tokens": 31_999 },
        "messages": [{ "role": "user", "content": "Hi" }],
    });
    let answer = client.post("/v1/messages", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["max_tokens"], 2_000);
    assert_eq!(sent["thinking"]["budget_tokens"], 1_999);
    // In other dialects, the limit is the client's choice.
    let mut body = chat("small", "Hi");
    body["max_tokens"] = json!(32_000);
    let answer = client.post("/v1/chat/completions", &body).await;
    answer.error(400, "OUTPUT_LIMIT_EXCEEDED");
}

#[tokio::test]
async fn tokens_are_counted_with_the_pages_of_documents() {
    let (gateway, _upstream) = small().await;
    let count = async |pdf: &str| {
        let source = json!({ "type": "base64", "media_type": "application/pdf", "data": STANDARD.encode(pdf) });
        let body = json!({
            "model": "small",
            "messages": [{ "role": "user", "content": [{ "type": "document", "source": source }] }],
        });
        let answer = gateway
            .client()
            .post("/v1/messages/count_tokens", &body)
            .await;
        answer.json()["input_tokens"].as_u64().expect("a count")
    };
    let pdf = |pages: u32| {
        let pages: String = (3..3 + pages)
            .map(|page| format!("{page} 0 obj << /Type /Page /Parent 2 0 R >> endobj\n"))
            .collect();
        format!(
            "%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj\n\
             2 0 obj << /Type /Pages /Count 1 /Kids [3 0 R] >> endobj\n{pages}trailer << /Root 1 0 R >>\n"
        )
    };
    assert_eq!(count(&pdf(3)).await - count(&pdf(1)).await, 2 * 1_100);
    assert_eq!(count("%PDF-1.7 no page that anybody sees").await, 50_000);
}

#[tokio::test]
async fn the_system_may_speak_in_the_middle_of_a_conversation() {
    for (adapter, _) in rich_replies() {
        let (gateway, upstream) = with_adapter(&adapter).await;
        let body = json!({
            "model": "scripted", "max_tokens": 100,
            "messages": [
                { "role": "user", "content": "Hi" },
                { "role": "assistant", "content": "Hello" },
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "Well?" },
            ],
        });
        let answer = gateway.client().post("/v1/messages", &body).await;
        assert_eq!(answer.status, 200, "{adapter}: {}", answer.text());
        let sent = upstream.next_request().await;
        let sent = String::from_utf8_lossy(&sent.body);
        assert!(sent.contains("Be brief."), "{adapter}: {sent}");
    }
}

/// Cursor sends such bodies.
#[tokio::test]
async fn a_body_of_responses_at_the_endpoint_of_chat_completions_has_a_chat_completion() {
    let (gateway, upstream) = with_adapter("openai").await;
    let client = gateway.client();
    let mut body = agent();
    body.as_object_mut().expect("an object").remove("store");
    let answer = client.post("/v1/chat/completions", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["object"], "chat.completion");
    assert_eq!(answer.content(), "Hi there");
    assert_eq!(
        upstream.next_request().await.json()["messages"][0]["content"],
        "Hi"
    );
}

#[tokio::test]
async fn a_client_may_let_weir_drop_fields_that_are_refused() {
    let (gateway, upstream) = with_adapter("anthropic").await;
    let client = gateway.client();
    let mut body = chat("scripted", "Hello");
    body["logit_bias"] = json!({ "1": 1 });
    body["presence_penalty"] = json!(1);
    body["audio"] = json!({ "voice": "v" });
    body["top_p"] = json!(0.5);
    body["messages"][0]["content"] = json!([{ "type": "text", "text": "Hi", "novelty": 1 }]);
    let path = "/v1/chat/completions";
    assert_eq!(client.post(path, &body).await.status, 400);
    let names = "logit_bias,presence_penalty, audio, top_p, novelty";
    let lenient = gateway.client().with_header("x-weir-drop", names);
    let answer = lenient.post(path, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut left_out = ignored(&answer);
    left_out.sort_unstable();
    assert_eq!(
        left_out,
        ["audio", "logit_bias", "novelty", "presence_penalty"]
    );
    // The upstream has the field, so weir does not drop it.
    assert_eq!(upstream.next_request().await.json()["top_p"], 0.5);

    // A dialect's fields deep in lists are dropped from each item.
    body["messages"] = json!([
        { "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "https://a.example", "x": 1 } }] },
        { "role": "user", "content": [
            { "type": "image_url", "image_url": { "url": "https://a.example", "x": 1 } },
            { "type": "image_url", "image_url": { "url": "https://a.example", "x": 1 } },
        ] },
    ]);
    let names = format!("{names},x");
    let lenient = gateway.client().with_header("x-weir-drop", &names);
    let answer = lenient.post(path, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());

    for wrong in [
        "max_tokens",
        "logit_bias, Max_Tokens",
        "n",
        "a,b,c,d,e,f,g,h,i",
    ] {
        let client = gateway.client().with_header("x-weir-drop", wrong);
        let error = client.post("/chat", &chat("scripted", "x")).await;
        let error = error.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], "x-weir-drop", "{wrong}");
    }
}

#[tokio::test]
async fn the_operator_may_let_weir_drop_fields_that_are_refused() {
    let gateway = Gateway::builder()
        .settings("ignore_fields = [\"logit_bias\"]\n")
        .start()
        .await;
    let mut body = chat("demo", "Hello");
    body["logit_bias"] = json!({ "1": 1 });
    let answer = gateway.client().post("/chat", &body).await;
    assert_eq!(answer.content(), "You said: Hello");
    assert_eq!(ignored(&answer), ["logit_bias"]);
    body["novelty"] = json!(1);
    let answer = gateway.client().post("/chat", &body).await;
    answer.error(400, "UNSUPPORTED_PARAMETER");
}
