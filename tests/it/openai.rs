//! The `openai` adapter on a scripted upstream: requests and responses.

use serde_json::{Value, json};
use tests::{Gateway, Reply, Upstream, chat, chunks};

#[tokio::test]
async fn a_rich_request_reaches_the_upstream_whole() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat("ok"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": [
            { "type": "text", "text": "What is this?" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } },
        ] },
        { "role": "assistant", "content": null, "tool_calls": [
            { "id": "c1", "type": "function", "function": { "name": "look", "arguments": "{\"x\": 1}" } },
        ] },
        { "role": "tool", "tool_call_id": "c1", "content": "a turtle" },
    ]);
    let tools = json!([{ "type": "function", "function": {
        "name": "look", "description": "Looks.", "parameters": { "type": "object", "properties": {} },
    } }]);
    let body = json!({
        "model": "scripted", "messages": messages, "tools": tools, "tool_choice": "auto",
        "temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["END"], "max_completion_tokens": 77,
        "reasoning_effort": "low", "response_format": { "type": "json_object" },
        "user": "u-1", "logit_bias": { "5": 1 },
    });
    let answer = gateway.client().post("/v1/chat/completions", &body).await;
    assert_eq!(answer.content(), "ok", "{}", answer.text());
    let request = upstream.next_request().await;
    assert!(
        request.path.ends_with("/chat/completions"),
        "{}",
        request.path
    );
    let sent = request.json();
    for field in [
        "messages",
        "tools",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "reasoning_effort",
    ] {
        assert_eq!(sent[field], body[field], "{field}: {sent}");
    }
    for field in [
        "response_format",
        "user",
        "logit_bias",
        "max_completion_tokens",
        "model",
    ] {
        assert_eq!(sent[field], body[field], "{field}: {sent}");
    }
    assert_eq!(upstream.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn an_image_as_large_as_a_body_may_be_reaches_the_upstream_whole() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("seen"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let url = format!("data:image/png;base64,{}", "iVBORw0KGgoA".repeat(850_000));
    let content = json!([{ "type": "image_url", "image_url": { "url": url } }]);
    let body = json!({ "model": "scripted", "messages": [{ "role": "user", "content": content }] });
    let answer = gateway.client().post("/chat", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    assert!(sent["messages"][0]["content"][0]["image_url"]["url"] == url.as_str());
}

#[tokio::test]
async fn without_a_limit_of_the_client_a_quarter_of_the_credits_decides() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("ok"));
    // An output token costs 0.0028 credits, or 0.28 with the model `dear`. The models' default is 1,000 tokens, their maximum
    // 4,000,000. The plan has 500 credits.
    let dear = "[models.dear]\ncontext_window = 8000000\nmax_output_tokens = 4000000\ndefault_output_tokens = 1000\n\
                price = { input = 100, output = 200 }\nupstreams = [{ provider = \"scripted\" }]\n";
    for (credits, model, limits) in [
        (1_000_000, "scripted", 4_000_000..=4_000_000),
        (0, "scripted", 44_000..=44_642),
        (0, "dear", 1_000..=1_000),
    ] {
        let gateway = Gateway::builder()
            .upstream("scripted", &upstream)
            .tables(dear)
            .credits(credits)
            .start()
            .await;
        for _ in 0..2 {
            gateway.chat(model, "x").await;
            let sent = upstream.next_request().await.json();
            let limit = sent["max_completion_tokens"].as_u64().expect("a limit");
            assert!(limits.contains(&limit), "{limit} of {model}");
        }
        let stream = gateway.stream("scripted", "x").await;
        drop(stream);
        let sent = upstream.next_request().await.json();
        assert_eq!(sent["stream"], true);
        assert_eq!(sent["stream_options"]["include_usage"], true);
    }
}

#[tokio::test]
async fn options_of_the_provider_reach_its_adapter() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("ok"));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables(
            "[providers.scripted.options]\noutput-limit-field = \"max_tokens\"\n\
             pass-fields = \"min_p, top_k, chat_template_kwargs\"\n",
        )
        .start()
        .await;
    let mut body = chat("scripted", "x");
    body["max_completion_tokens"] = json!(1_000);
    body["min_p"] = json!(0.1);
    body["top_k"] = json!(40);
    body["chat_template_kwargs"] = json!({ "enable_thinking": false });
    assert_eq!(gateway.client().post("/chat", &body).await.content(), "ok");
    let sent = upstream.next_request().await.json();
    assert_eq!(
        (&sent["max_tokens"], &sent["min_p"]),
        (&json!(1000), &json!(0.1))
    );
    assert!(sent.get("max_completion_tokens").is_none(), "{sent}");
    for field in ["top_k", "chat_template_kwargs"] {
        assert_eq!(sent[field], body[field], "{sent}");
    }
}

#[tokio::test]
async fn labels_and_hints_are_left_out_by_name_and_defaults_are_left_out_in_silence() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("ok"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let mut body = chat("scripted", "x");
    let fields = json!({
        "metadata": { "a": "b" }, "store": true, "service_tier": "flex", "prediction": { "type": "content", "content": "" },
    });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let client = gateway.client().with_header("idempotency-key", "a");
    let first = client.post("/v1/chat/completions", &body).await;
    let again = client.post("/v1/chat/completions", &body).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    for answer in [first, again] {
        assert_eq!(answer.content(), "ok");
        let ignored = answer.headers["x-weir-ignored"].to_str().expect("ASCII");
        assert_eq!(ignored, "metadata, prediction, service_tier, store");
    }
    let sent = upstream.next_request().await.json();
    assert!(
        fields
            .as_object()
            .expect("an object")
            .keys()
            .all(|name| sent.get(name).is_none()),
        "{sent}"
    );

    let mut body = chat("scripted", "x");
    for (name, value) in [
        ("store", json!(false)),
        ("service_tier", json!("auto")),
        ("metadata", json!({})),
        ("logprobs", json!(false)),
        ("top_logprobs", json!(0)),
    ] {
        body[name] = value;
    }
    let answer = gateway.client().post("/chat", &body).await;
    assert_eq!(answer.content(), "ok");
    assert!(!answer.headers.contains_key("x-weir-ignored"));
    let sent = upstream.next_request().await.json();
    assert_eq!(sent.as_object().expect("an object").len(), 3, "{sent}");
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn a_field_that_could_change_the_answer_is_refused_by_name_and_nothing_sent() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    for field in [
        "web_search_options",
        "chat_template_kwargs",
        "n_best",
        "made_up",
    ] {
        let mut body = chat("scripted", "x");
        body[field] = json!("priority");
        let answer = gateway.client().post("/chat", &body).await;
        let error = answer.error(400, "UNSUPPORTED_PARAMETER");
        assert_eq!(error["param"], field, "{error}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn how_likely_each_token_was_is_told_to_those_who_ask_an_upstream_of_their_dialect() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let token = |token: &str| {
        let likely = json!({ "token": token, "logprob": -0.25, "bytes": token.as_bytes() });
        let mut entry = likely.clone();
        entry["top_logprobs"] = json!([likely, { "token": "x", "logprob": -2, "bytes": null }]);
        entry
    };
    let of = |tokens: &[&str]| {
        let tokens: Vec<_> = tokens.iter().copied().map(token).collect();
        json!({ "content": tokens, "refusal": null })
    };
    let reply = |choice: Value, usage: Value| json!({ "choices": [choice], "usage": usage });
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 2 });
    let whole = reply(
        json!({
            "index": 0, "message": { "content": "Hi you" }, "logprobs": of(&["Hi", " you"]), "finish_reason": "stop",
        }),
        usage.clone(),
    );
    let piece = |text: &str| {
        let choice = json!({ "index": 0, "delta": { "content": text }, "logprobs": of(&[text]) });
        reply(choice, Value::Null).to_string()
    };
    let stream = || {
        let end = json!({ "index": 0, "delta": {}, "logprobs": null, "finish_reason": "stop" });
        let end = reply(end, usage.clone()).to_string();
        Reply::events([piece("Hi"), piece(" you"), end, "[DONE]".to_owned()])
    };

    let mut body = chat("scripted", "x");
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(2);
    upstream.will(Reply::json(200, &whole));
    let answer = gateway.client().post("/chat", &body).await;
    assert_eq!(answer.content(), "Hi you");
    let choice = answer.json()["choices"][0].clone();
    assert_eq!(choice["logprobs"], of(&["Hi", " you"]));
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["logprobs"], true);
    assert_eq!(sent["top_logprobs"], 2);
    let charged = answer.json()["usage"].clone();
    assert_eq!(charged["completion_tokens"], 2);

    body["stream"] = json!(true);
    upstream.will(stream());
    let events = gateway.client().stream("/chat", &body).await.rest().await;
    let events = chunks(&events);
    let told: Vec<_> = events
        .iter()
        .map(|chunk| chunk["choices"][0]["logprobs"].clone())
        .filter(|logprobs| !logprobs.is_null())
        .collect();
    assert_eq!(told, [of(&["Hi"]), of(&[" you"])]);
    // Many times the text's bytes, and none of them counts as output.
    assert_eq!(events.last().expect("an end")["usage"], charged);

    // Some servers send them to every client.
    upstream.will(Reply::json(200, &whole));
    let answer = gateway.chat("scripted", "x").await;
    assert_eq!(answer.json()["choices"][0]["logprobs"], Value::Null);

    let mut body = chat("demo", "x");
    body["logprobs"] = json!(true);
    let gateway = Gateway::start().await;
    let answer = gateway.client().post("/chat", &body).await;
    let error = answer.error(400, "UNSUPPORTED_PARAMETER");
    assert_eq!(error["param"], "logprobs");
}

#[tokio::test]
async fn the_upstreams_refusals_become_documented_errors() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let coded = |status, code: &str| {
        Reply::json(
            status,
            &json!({ "error": { "message": "because", "code": code } }),
        )
    };
    for (reply, status, code) in [
        (Reply::error(400, "bad field"), 400, "UPSTREAM_REJECTED"),
        (
            coded(400, "context_length_exceeded"),
            400,
            "CONTEXT_LENGTH_EXCEEDED",
        ),
        (coded(400, "content_filter"), 400, "CONTENT_FILTERED"),
        (Reply::error(401, "bad key"), 502, "UPSTREAM_ERROR"),
        (
            Reply::new(200)
                .header("content-type", "text/html")
                .body("<html>"),
            502,
            "UPSTREAM_ERROR",
        ),
    ] {
        upstream.will(reply);
        let error = gateway.chat("scripted", "x").await.error(status, code);
        assert!(!error.to_string().contains("bad key"), "{error}");
    }
}

#[tokio::test]
async fn usage_beyond_belief_is_clamped_and_absent_usage_estimated() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    upstream.will(Reply::chat_with_usage("hi", 4_000_000_000, 4_000_000_000));
    let mut body = chat("scripted", "x");
    body["max_tokens"] = json!(1_000);
    let answer = gateway.client().post("/chat", &body).await;
    let usage = answer.json()["usage"].clone();
    // Twice (1 byte / 2 + 16 for the message), and the limit of 1000 + 64.
    assert_eq!(usage["prompt_tokens"], 32, "{usage}");
    assert_eq!(usage["completion_tokens"], 1064, "{usage}");
    upstream.will(Reply::json(
        200,
        &json!({ "choices": [{ "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": "eight ch" } }] }),
    ));
    let usage = gateway.chat("scripted", "four").await.json()["usage"].clone();
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(1), &json!(2))
    );
}
