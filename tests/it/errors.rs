//! The documented error body, on every path.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Method;
use serde_json::{Value, json};
use tests::api::{endpoints, fill};
use tests::{Gateway, Reply, Upstream, chat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn unknown_routes_and_wrong_methods_have_the_error_body() {
    let gateway = Gateway::start().await;
    for path in ["/nope", "/chat/x", "/v1", "/models/"] {
        gateway.client().get(path).await.error(404, "NOT_FOUND");
    }
    let answer = gateway.client().get("/chat").await;
    answer.error(405, "METHOD_NOT_ALLOWED");
    assert_eq!(answer.headers["allow"], "POST");
    let answer = gateway.client().post("/models", &json!({})).await;
    answer.error(405, "METHOD_NOT_ALLOWED");
}

/// A base URL without a version, or with two, leads to no endpoint of the vendor.
#[tokio::test]
async fn an_endpoint_that_is_under_v1_alone_says_so_elsewhere() {
    let gateway = Gateway::start().await;
    let mut found = 0;
    for row in endpoints() {
        let (route, path) = (&row.path, fill(&row.path, "demo"));
        let wrong = match (path.strip_prefix("/v1/"), path.starts_with("/v1beta/")) {
            (Some(rest), _) => [format!("/{rest}"), format!("/v1/v1/{rest}")],
            (None, true) => [format!("/v1{path}"), format!("/v1beta{path}")],
            (None, false) => continue,
        };
        let route = route.replace("/{*id}", "");
        for wrong in wrong {
            let answer = gateway.client().post(&wrong, &json!({})).await;
            if answer.status == 404 {
                let error = answer.error(404, "NOT_FOUND");
                let message = error["message"].as_str().expect("a text");
                assert!(message.contains(&*route), "{wrong}: {message}");
                found += 1;
            }
        }
    }
    assert!(found >= 8, "{found}");
}

#[tokio::test]
async fn under_v1_errors_are_in_openais_words_with_weirs_code_beside_them() {
    let upstream = tests::Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables(
            "[models.small]\ncontext_window = 100\nmax_output_tokens = 50\ndefault_output_tokens = 50\n\
             upstreams = [{ provider = \"demo\" }]\nprice = { input = 1, output = 1 }\n",
        )
        .credits(0)
        .start()
        .await;
    let client = gateway.client();
    let ask = async |body: &serde_json::Value| client.post("/v1/chat/completions", body).await;
    let shape = |error: &serde_json::Value| {
        ["code", "type", "param"].map(|field| error[field].as_str().unwrap_or("null").to_owned())
    };
    let says = |error: &serde_json::Value, words: &str| {
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(words), "{message}");
    };

    let answer = ask(&chat("gpt-\n9", "x")).await;
    let error = answer.error(404, "UNKNOWN_MODEL");
    assert_eq!(
        shape(&error),
        ["model_not_found", "invalid_request_error", "model"]
    );
    says(&error, "The model `gpt-\\n9` does not exist");
    let listed = client.get("/v1/models/gpt-9").await;
    let error = listed.error(404, "UNKNOWN_MODEL");
    assert_eq!(error["code"], "model_not_found");
    says(&error, "The model `gpt-9` does not exist");

    let error = ask(&chat("small", &"word ".repeat(100)))
        .await
        .error(400, "CONTEXT_LENGTH_EXCEEDED");
    assert_eq!(
        shape(&error),
        [
            "context_length_exceeded",
            "invalid_request_error",
            "messages"
        ]
    );
    says(
        &error,
        "This model's maximum context length is 100 tokens. However, you requested 126 tokens",
    );
    // The provider detects it, in any wording.
    upstream.will(tests::Reply::json(
        400,
        &json!({ "error": { "message": "too much", "code": "context_length_exceeded" } }),
    ));
    let error = ask(&chat("scripted", "x"))
        .await
        .error(400, "CONTEXT_LENGTH_EXCEEDED");
    assert_eq!(error["code"], "context_length_exceeded");
    says(
        &error,
        "This model's maximum context length is 8000000 tokens. The request is too long for the model: too much",
    );
    upstream.will(tests::Reply::json(
        400,
        &json!({ "error": { "message": "no", "code": "content_filter" } }),
    ));
    let error = ask(&chat("scripted", "x"))
        .await
        .error(400, "CONTENT_FILTERED");
    assert_eq!(error["code"], "content_filter");

    let mut costly = chat("scripted", "x");
    costly["max_tokens"] = json!(4_000_000);
    let answer = ask(&costly).await;
    let error = answer.error(429, "QUOTA_EXCEEDED");
    assert_eq!(
        shape(&error),
        ["insufficient_quota", "insufficient_quota", "null"]
    );
    says(&error, "You exceeded your current quota");
    assert!(error["shortfall_credits"].as_f64().is_some_and(|c| c > 0.0));
    assert_eq!(answer.headers["x-should-retry"], "false");

    let stranger = gateway.stranger().with_key("sk-wrong");
    let answer = stranger.get("/v1/models").await;
    let error = answer.error(401, "UNAUTHENTICATED");
    assert_eq!(
        shape(&error),
        ["invalid_api_key", "invalid_request_error", "null"]
    );

    let mut unsupported = chat("scripted", "x");
    unsupported["made_up"] = json!(1);
    let error = ask(&unsupported).await.error(400, "UNSUPPORTED_PARAMETER");
    assert_eq!(
        shape(&error),
        ["unsupported_parameter", "invalid_request_error", "made_up"]
    );
    says(&error, "Unsupported parameter: 'made_up'");
    let error = ask(&json!({})).await.error(400, "INVALID_REQUEST");
    assert_eq!(shape(&error), ["null", "invalid_request_error", "model"]);

    // Other dialects get weir's own text.
    let error = client.post("/chat", &chat("gpt-9", "x")).await;
    let error = error.error(400, "UNKNOWN_MODEL");
    assert_eq!(error["code"], "UNKNOWN_MODEL");
    assert_eq!(error.get("weir_code"), None);
    says(&error, "\"gpt-9\"");
}

/// A provider's error code reaches the client whose request is at fault, if it is a word and not a text.
#[tokio::test]
async fn a_providers_own_code_reaches_the_client_whose_request_is_to_blame() {
    let upstream = tests::Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let long = "x".repeat(65);
    for (code, told) in [
        ("invalid_image_url", json!("invalid_image_url")),
        ("a sentence, not a code", json!(null)),
        ("<script>", json!(null)),
        (tests::gateway::UPSTREAM_CREDENTIAL, json!(null)),
        (&long, json!(null)),
    ] {
        let refusal = json!({ "error": { "message": "no", "code": code } });
        for path in ["/v1/chat/completions", "/chat"] {
            upstream.will(tests::Reply::json(400, &refusal));
            let answer = gateway.client().post(path, &chat("scripted", "x")).await;
            let error = answer.error(400, "UPSTREAM_REJECTED");
            assert_eq!(error["upstream_code"], told, "{error}");
            if path.starts_with("/v1") {
                assert_eq!(error["code"], told, "{error}");
            }
        }
    }
}

/// Agents react to the wording.
#[tokio::test]
async fn an_upstream_of_the_clients_own_dialect_refuses_in_its_own_words() {
    let upstream = tests::Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let own = json!({
        "message": "Invalid type for 'messages[0].content[1]': expected one of 'text'.",
        "type": "invalid_request_error", "param": "messages[0].content[1]", "code": "invalid_type",
    });
    let unlike =
        json!({ "message": "no", "type": "server_error", "param": "x", "code": "no_code" });
    let long = json!({ "message": "prompt too long", "type": "invalid_request_error", "code": "context_length_exceeded" });
    let ask = async |path: &str, error: &serde_json::Value| {
        let refusal = tests::Reply::json(400, &json!({ "error": error }));
        upstream.will(refusal);
        let answer = gateway.client().post(path, &chat("scripted", "x")).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        answer.json()["error"].clone()
    };
    let says = |error: &serde_json::Value, words: &str| {
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(words), "{message}");
    };
    let told = ask("/v1/chat/completions", &own).await;
    for (name, value) in own.as_object().expect("an object") {
        assert_eq!(&told[name], value, "{told}");
    }
    assert_eq!(told["weir_code"], "UPSTREAM_REJECTED");
    let told = ask("/v1/chat/completions", &unlike).await;
    assert_eq!(
        (&told["type"], &told["code"]),
        (&json!("invalid_request_error"), &json!("no_code"))
    );
    says(&told, "rejected the request: no");
    // The text that agents look for is present all the same.
    let told = ask("/v1/chat/completions", &long).await;
    assert_eq!(told["code"], "context_length_exceeded");
    says(&told, "This model's maximum context length is");
    // Other dialects get weir's text.
    let told = ask("/chat", &own).await;
    assert_eq!(told["code"], "UPSTREAM_REJECTED");
    says(
        &told,
        "The model's provider rejected the request: Invalid type",
    );
}

#[tokio::test]
async fn a_stream_that_fails_says_so_in_the_words_of_its_endpoint() {
    let upstream = tests::Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    for (path, code) in [
        ("/v1/chat/completions", json!("tooled")),
        ("/chat", json!("UPSTREAM_REJECTED")),
    ] {
        let one = json!({ "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "one " } }] });
        let no = json!({ "error": { "message": "no", "type": "invalid_request_error", "code": "tooled" } });
        upstream.will(tests::Reply::events(
            [one, no].map(|event| event.to_string()),
        ));
        let stream = gateway.client().stream(path, &chat("scripted", "x")).await;
        let id = stream.headers["x-request-id"].clone();
        let events = stream.rest().await;
        let last = events.last().expect("an event");
        let data = last.strip_prefix("event: error\ndata: ").expect("an error");
        let error: serde_json::Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(error["error"]["code"], code, "{error}");
        assert_eq!(error["error"]["request_id"], id.to_str().expect("ASCII"));
    }
}

#[tokio::test]
async fn a_bad_body_is_refused_with_the_field_that_is_wrong() {
    let gateway = Gateway::start().await;
    let post = async |text: &str| {
        let json = Some("application/json");
        let body = Bytes::copy_from_slice(text.as_bytes());
        gateway
            .client()
            .send(Method::POST, "/chat", json, body)
            .await
    };
    for (body, param) in [
        ("", json!(null)),
        ("{", json!(null)),
        ("[]", json!(null)),
        ("{}", json!("model")),
        (r#"{"model":"demo"}"#, json!("messages")),
        (r#"{"model":"demo","messages":[]}"#, json!("messages")),
        (r#"{"model":1,"messages":[]}"#, json!("model")),
        (
            r#"{"model":"demo","messages":[{"role":"king","content":"x"}]}"#,
            json!("messages[0].role"),
        ),
        (
            r#"{"model":"demo","messages":[{"role":"user","content":7}]}"#,
            json!("messages[0].content"),
        ),
        (
            r#"{"model":"demo","messages":[{"role":"user","content":[{"type":"text"}]}]}"#,
            json!("messages[0].content[0].text"),
        ),
        (
            r#"{"model":"demo","messages":[{"role":"user","content":"x"}],"temperature":3}"#,
            json!("temperature"),
        ),
        (
            r#"{"model":"demo","messages":[{"role":"user","content":"x"}],"n":2}"#,
            json!("n"),
        ),
    ] {
        let error = post(body).await.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], param, "{body}: {error}");
    }
}

/// Each size under a client's control has its own limit, or a joint one with similar sizes: no request takes many
/// times its size, here or in a component.
#[tokio::test]
async fn ids_names_and_lists_are_bounded_and_the_field_is_named() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("served"));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[plugins]\nquarantine_traps = 1")
        .start()
        .await;
    let long = "x".repeat(9_000_000);
    let user = json!({ "role": "user", "content": "x" });
    let of = |message: Value| json!({ "messages": [user, message] });
    let call = |id: &str, name: &str| {
        let function = json!({ "name": name, "arguments": "{}" });
        let call = json!({ "id": id, "type": "function", "function": function });
        of(json!({ "role": "assistant", "tool_calls": [call] }))
    };
    let parts = |message: usize, count: usize| {
        let content = json!(vec![json!({ "type": "text", "text": "" }); count]);
        json!({ "messages": vec![json!({ "role": "user", "content": content }); message] })
    };
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    let file = json!({ "type": "file", "file": { "file_id": "f", "filename": long } });
    let detail = json!({ "type": "reasoning.summary", "summary": "x", "id": long });
    for (fields, param) in [
        (
            of(json!({ "role": "tool", "tool_call_id": long, "content": "x" })),
            "messages[1].tool_call_id",
        ),
        (call(&long, "f"), "messages[1].tool_calls[0].id"),
        (call("c", &long), "messages[1].tool_calls[0].function.name"),
        (
            of(json!({ "role": "assistant", "content": "x", "reasoning_details": [detail] })),
            "messages[1].reasoning_details[0].id",
        ),
        (
            of(json!({ "role": "user", "content": [file] })),
            "messages[1].content[0].file.filename",
        ),
        (json!({ "user": long }), "user"),
        (json!({ "stop": long }), "stop"),
        (
            json!({ "response_format": { "type": "json_schema", "json_schema": { "name": long, "schema": {} } } }),
            "response_format.json_schema.name",
        ),
        (parts(300, 1_000), "messages[32].content"),
        (parts(1, 1_025), "messages[0].content"),
        (json!({ "messages": vec![user.clone(); 8_193] }), "messages"),
        (json!({ "tools": vec![tool.clone(); 513] }), "tools"),
    ] {
        let mut body = chat("scripted", "x");
        for (name, value) in fields.as_object().expect("fields") {
            body[name] = value.clone();
        }
        let error = gateway.client().post("/chat", &body).await;
        let error = error.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], param, "{error}");
    }
    assert_eq!(upstream.count(), 0);
    // Much of each is served.
    let mut body = parts(4, 1_000);
    body["model"] = "scripted".into();
    body["tools"] = json!(vec![tool; 500]);
    let answer = gateway.client().post("/chat", &body).await;
    assert_eq!(answer.content(), "served");
}

#[tokio::test]
async fn types_and_sizes_are_checked_before_the_body_is_read() {
    let gateway = Gateway::builder()
        .tables("[limits]\nbody_bytes = 1000\n")
        .start()
        .await;
    let body = Bytes::from(chat("demo", "Hello").to_string());
    let client = gateway.client();
    for content_type in [None, Some("text/plain"), Some("application/jsonp")] {
        let answer = client
            .send(Method::POST, "/chat", content_type, body.clone())
            .await;
        answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    let gzip = gateway.client().with_header("content-encoding", "gzip");
    gzip.post("/chat", &chat("demo", "x"))
        .await
        .error(415, "UNSUPPORTED_MEDIA_TYPE");
    let utf8 = Some("Application/JSON; charset=utf-8");
    assert_eq!(
        client.send(Method::POST, "/chat", utf8, body).await.status,
        200
    );
    client
        .post("/chat", &chat("demo", &"x".repeat(1_000)))
        .await
        .error(413, "PAYLOAD_TOO_LARGE");
}

#[tokio::test]
async fn a_body_without_a_length_is_bounded_too() {
    let gateway = Gateway::builder()
        .tables("[limits]\nbody_bytes = 1000\n")
        .start()
        .await;
    let mut socket = tokio::net::TcpStream::connect(gateway.address())
        .await
        .expect("it listens");
    let head = format!(
        "POST /chat HTTP/1.1\r\nHost: {}\r\nX-Api-Key: {}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        gateway.address(),
        gateway.key()
    );
    socket.write_all(head.as_bytes()).await.expect("it reads");
    for _ in 0..20 {
        let chunk = format!("64\r\n{}\r\n", "x".repeat(100));
        if socket.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = tests::patiently(socket.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("PAYLOAD_TOO_LARGE"), "{answer}");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let gateway = Gateway::start().await;
    let mut socket = tokio::net::TcpStream::connect(gateway.address())
        .await
        .expect("it listens");
    let head = format!("GET /health HTTP/1.1\r\nHost: {}\r\nX: ", gateway.address());
    socket.write_all(head.as_bytes()).await.expect("it reads");
    let _ = socket.write_all("x".repeat(17 << 10).as_bytes()).await;
    let _ = socket.write_all(b"\r\n\r\n").await;
    let mut answer = Vec::new();
    let _ = tests::patiently(socket.read_to_end(&mut answer)).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 431 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[tokio::test]
async fn development_mode_refuses_what_came_through_a_proxy_or_for_another_name() {
    let gateway = Gateway::start().await;
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.7"),
        ("x-forwarded-host", "weir.example.com"),
        ("forwarded", "for=203.0.113.7"),
        ("via", "1.1 proxy"),
        ("host", "weir.example.com"),
        ("host", "127.0.0.1.example.com"),
        ("host", "10.0.0.1:8080"),
    ] {
        let client = gateway.client().with_header(name, value);
        client.get("/models").await.error(403, "DEVELOPMENT_MODE");
        client.get("/nope").await.error(403, "DEVELOPMENT_MODE");
    }
    for host in ["localhost", "localhost:8080", "127.0.0.1", "[::1]:8080"] {
        assert_eq!(
            gateway
                .client()
                .with_header("host", host)
                .get("/models")
                .await
                .status,
            200
        );
    }
    let published = Gateway::builder().settings("dev = false").start().await;
    let client = published.client().with_header("host", "weir.example.com");
    assert_eq!(
        client
            .with_header("x-forwarded-for", "203.0.113.7")
            .get("/models")
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn more_than_fits_is_refused_and_served_again_when_there_is_room() {
    let upstream = tests::Upstream::start().await;
    let gate = tests::Gate::new();
    upstream.will(tests::Reply::chat("first").after_gate(&gate));
    upstream.always(tests::Reply::chat("later"));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables(
            "[limits]\nconcurrent_requests = 1\nqueued_requests = 1\nqueue_timeout_ms = 20000\n",
        )
        .start()
        .await;
    let ask = |text: &'static str| {
        let client = gateway.client();
        tokio::spawn(async move { client.post("/chat", &chat("scripted", text)).await })
    };
    let first = ask("first");
    gate.reached().await;
    // One waits in the queue; the two others find it full and are answered first.
    let mut others: FuturesUnordered<_> = [ask("second"), ask("third"), ask("fourth")]
        .into_iter()
        .collect();
    for _ in 0..2 {
        let answer = others.next().await.expect("another").expect("no panic");
        answer.error(503, "OVERLOADED");
        assert_eq!(answer.headers["retry-after"], "1");
    }
    gate.open();
    let waited = others.next().await.expect("another").expect("no panic");
    assert_eq!(waited.content(), "later");
    assert_eq!(first.await.expect("no panic").content(), "first");
}
