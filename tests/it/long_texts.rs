//! Long texts of chats stay with the host: adapters refer to them, and only their providers, filters and sessions read them.

use serde_json::{Value, json};
use tests::upstream::Request;
use tests::{Answer, Gateway, Reply, Upstream, guests};

/// A text of 1,200 bytes, with characters that JSON escapes.
fn long(name: &str) -> String {
    let line = format!("{name} \"é\"\\\t\u{1}𝄞\n");
    line.repeat(1_200 / line.len() + 1)
}

fn message(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": text })
}

/// A gateway whose model `hostile` misuses long texts on command.
async fn hostile(upstream: &Upstream) -> Gateway {
    Gateway::builder()
        .guest("hostile", guests::misreading(), Some(upstream))
        .start()
        .await
}

/// Sends two long texts, and a command.
async fn command(gateway: &Gateway, command: &Value) -> Answer {
    let messages = [
        message("system", &long("system")),
        message("user", &long("user")),
        message("user", &command.to_string()),
    ];
    let body = json!({ "model": "hostile", "messages": messages });
    gateway.client().post("/chat", &body).await
}

/// Returns the input of the guest.
async fn seen(gateway: &Gateway, messages: Value) -> Value {
    let body = json!({ "model": "hostile", "messages": messages });
    let answer = gateway.client().post("/chat", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_str(&answer.content()).expect("the guest answers JSON")
}

fn sent_texts(request: &Request) -> Vec<String> {
    let body = request.json();
    let messages = body["messages"].as_array().expect("a list");
    let text = |message: &Value| message["content"].as_str().map(str::to_owned);
    messages.iter().filter_map(text).collect()
}

#[tokio::test]
async fn an_adapter_gets_places_of_long_texts() {
    let gateway = hostile(&Upstream::start().await).await;
    let call = json!({
        "id": "c1",
        "type": "function",
        "function": { "name": "look", "arguments": json!({ "x": long("arguments") }).to_string() },
    });
    let last_turn = long("assistant");
    let input = seen(
        &gateway,
        json!([
            message("system", &long("system")),
            message("user", "short"),
            message("user", &" ".repeat(2_000)),
            { "role": "assistant", "content": long("earlier"), "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c1", "content": long("result") },
            message("assistant", &last_turn),
            message("user", &"x".repeat(512)),
            message("user", &"x".repeat(513)),
        ]),
    )
    .await;
    let expected = [
        "",
        "short",
        &" ".repeat(2_000),
        "",
        "",
        &last_turn,
        &"x".repeat(512),
        "",
    ];
    assert_eq!(input["texts"], json!(expected));
    let place = |message: u32, item: Value, bytes: usize| json!({ "message": message, "part": 0, "item": item, "size_bytes": bytes });
    let expected = [
        place(0, Value::Null, long("system").len()),
        place(3, Value::Null, long("earlier").len()),
        place(4, json!(0), long("result").len()),
        place(7, Value::Null, 513),
    ];
    assert_eq!(input["long"], json!(expected));
}

#[tokio::test]
async fn the_host_writes_long_texts_into_the_body() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::json(200, &json!({})));
    let gateway = hostile(&upstream).await;
    // Also twice, and as the name of a field.
    let parts = json!([
        { "json": "{\"" }, { "attached": 1 }, { "json": "\":[\"" }, { "attached": 0 },
        { "json": "\",\"<" }, { "attached": 0 }, { "json": ">\"]}" },
    ]);
    let answer = command(&gateway, &json!({ "parts": parts })).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (system, user) = (long("system"), long("user"));
    let expected = json!({ user: [&system, format!("<{system}>")] });
    assert_eq!(upstream.next_request().await.json(), expected);
}

#[tokio::test]
async fn an_adapter_reads_a_text_once() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::json(200, &json!({})));
    let gateway = hostile(&upstream).await;
    let answer = command(&gateway, &json!({ "read": [[1]] })).await;
    let input: Value = serde_json::from_str(&answer.content()).expect("JSON");
    assert_eq!(input["texts"][0], "");
    assert_eq!(input["texts"][1], long("user"));
    assert_eq!(input["long"].as_array().map(Vec::len), Some(1));

    // The other text is now the first.
    let parts = json!([{ "json": "\"" }, { "attached": 0 }, { "json": "\"" }]);
    let answer = command(&gateway, &json!({ "read": [[1]], "parts": parts })).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(upstream.next_request().await.json(), json!(long("system")));
}

/// Texts of other requests, texts that are not there, and endless reading and writing.
#[tokio::test]
async fn misused_long_texts_fail_their_own_request() {
    let upstream = Upstream::start().await;
    let gateway = hostile(&upstream).await;
    let attached = |part: Value| json!({ "parts": [part] });
    let mut many = attached(json!({ "attached": 0 }));
    many["times"] = json!(400_000);
    for misuse in [
        json!({ "read": [[2]] }),
        json!({ "read": [[u32::MAX]] }),
        json!({ "read": [[0, 0]] }),
        json!({ "read": [[0], [0]] }),
        json!({ "read": [[], []] }),
        attached(json!({ "attached": 2 })),
        attached(json!({ "attached": u32::MAX })),
        attached(json!({ "base64": 0 })),
        // Both are in the request after this.
        json!({ "read": [[0, 1]], "parts": [{ "attached": 0 }] }),
        many,
    ] {
        let answer = command(&gateway, &misuse).await;
        assert_eq!(answer.status, 502, "{misuse}: {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], "ADAPTER_FAILED", "{misuse}");
    }
    assert_eq!(upstream.violations(), Vec::<String>::new());

    // A request without long texts has none of the earlier ones.
    let refused = gateway.chat("hostile", r#"{"parts":[{"attached":0}]}"#);
    assert_eq!(refused.await.status, 502);
    let healthy = command(&gateway, &json!({})).await;
    assert_eq!(healthy.status, 200, "{}", healthy.text());
}

#[tokio::test]
async fn adapters_of_earlier_versions_get_the_texts() {
    // These versions differ from the current one in other interfaces only.
    for version in ["0.2.1", "0.2.2", "0.2.3"] {
        let current = b"weir:plugin/adapter@0.2.3";
        let mut component = guests::misbehaving().to_vec();
        let places: Vec<_> = component
            .windows(current.len())
            .enumerate()
            .filter_map(|(at, window)| (window == current).then_some(at))
            .collect();
        assert!(!places.is_empty());
        for at in places {
            let end = at + current.len();
            component[end - version.len()..end].copy_from_slice(version.as_bytes());
        }
        let builder = Gateway::builder().guest("hostile", &component, None);
        let gateway = builder.start().await;
        let body = json!({
            "model": "hostile",
            "messages": [message("user", &long("user")), message("user", r#"{"behave":"echo-request"}"#)],
        });
        let answer = gateway.client().post("/chat", &body).await;
        assert_eq!(answer.status, 200, "{version}: {}", answer.text());
        let text = serde_json::to_string(&long("user")).expect("JSON");
        assert!(answer.content().contains(&text), "{version}");
    }
}

#[tokio::test]
async fn each_attempt_sends_the_texts() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    upstream.will(Reply::json(503, &json!({ "error": { "message": "busy" } })));
    upstream.will(Reply::chat("Hi!"));
    let answer = gateway.chat("scripted", &long("user")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for _ in 0..2 {
        let request = upstream.next_request().await;
        assert_eq!(sent_texts(&request), [long("user")]);
    }
}

#[tokio::test]
async fn sessions_and_filters_have_the_texts() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[[filters]]\nslot = \"redact-pii\"\n")
        .start()
        .await;
    let text = format!("{} ada@example.org", long("user"));
    for turn in 0..2 {
        upstream.will(Reply::chat(&long("answer")));
        let body = json!({
            "model": "scripted",
            "session_id": "s1",
            "messages": [message("user", &text)],
        });
        let answer = gateway.client().post("/chat", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = sent_texts(&upstream.next_request().await);
        assert_eq!(sent.len(), 1 + 2 * turn, "{sent:?}");
        for text in sent.iter().step_by(2) {
            assert!(text.starts_with(&long("user")), "{text}");
            assert!(!text.contains("ada@example.org"), "{text}");
        }
    }
}
