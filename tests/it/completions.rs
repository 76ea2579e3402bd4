//! OpenAI's Completions for editors: the text at the cursor, between a prompt and a suffix.

use serde_json::{Value, json};
use tests::source::provider_adapters;
use tests::upstream::TOKENS_INPUT;
use tests::{Gateway, Reply, Upstream, chunks};

use crate::adapters::provider;
use crate::anthropic_messages::said;
use crate::billing::is_settled;

const PATH: &str = "/v1/completions";

/// A request of an editor.
fn fill(fields: &Value) -> Value {
    let mut body = json!({
        "model": "scripted", "prompt": "def fib(a):", "suffix": "    return fib(a-1) + fib(a-2)",
        "max_tokens": 128, "temperature": 0.2, "top_p": 0.9, "stop": ["\n\n"],
    });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// A gateway whose provider fills text in with this option of the adapter `openai`.
async fn filling(upstream: &Upstream, options: &str) -> Gateway {
    Gateway::builder()
        .provider("scripted", "openai", Some(upstream))
        .tables(&format!("options = {{ {options} }}"))
        .model("scripted", &["scripted"])
        .start()
        .await
}

/// A response of DeepSeek's `/beta/completions`: https://api-docs.deepseek.com/api/create-completion.
fn text_completion(streamed: bool) -> Reply {
    let usage = json!({ "prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15 });
    let part = |text: &str, finish: Value| {
        let choice = json!({ "text": text, "index": 0, "logprobs": null, "finish_reason": finish });
        json!({
            "id": "up", "object": "text_completion", "created": 1, "model": "deepseek-chat",
            "choices": [choice], "usage": null,
        })
    };
    if streamed {
        let mut end = part("", json!("stop"));
        end["usage"] = usage;
        return Reply::events([
            part("    if a < 2:", Value::Null).to_string(),
            part(" return a", Value::Null).to_string(),
            end.to_string(),
            "[DONE]".to_owned(),
        ]);
    }
    let mut whole = part("    if a < 2: return a", json!("stop"));
    whole["usage"] = usage;
    Reply::json(200, &whole)
}

/// A response of Mistral's `/v1/fim/completions`: `FIMCompletionResponse` and `CompletionEvent` in `mistralai` 3.7.0 (PyPI).
fn mistral(streamed: bool) -> Reply {
    let usage = json!({ "prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15 });
    let head = |choice: Value, object: &str| json!({ "id": "up", "object": object, "created": 1, "model": "codestral-latest", "choices": [choice] });
    if streamed {
        let piece = |text: &str, finish: Value| {
            let delta = json!({ "content": text });
            head(
                json!({ "index": 0, "delta": delta, "finish_reason": finish }),
                "chat.completion.chunk",
            )
        };
        let mut end = piece(" return a", json!("stop"));
        end["usage"] = usage;
        return Reply::events([
            piece("    if a < 2:", Value::Null).to_string(),
            end.to_string(),
            "[DONE]".to_owned(),
        ]);
    }
    let message =
        json!({ "role": "assistant", "content": "    if a < 2: return a", "tool_calls": null });
    let mut whole = head(
        json!({ "index": 0, "message": message, "finish_reason": "stop" }),
        "chat.completion",
    );
    whole["usage"] = usage;
    Reply::json(200, &whole)
}

/// A response of Ollama's `/api/generate`: `GenerateResponse` in `ollama` 0.6.3 (PyPI).
fn ollama(streamed: bool) -> Reply {
    let line = |text: &str, done: bool| {
        let mut line = json!({
            "model": "codellama:code", "created_at": "2026-11-26T21:00:00Z", "response": text, "done": done,
        });
        if done {
            line["done_reason"] = json!("stop");
            line["prompt_eval_count"] = json!(12);
            line["eval_count"] = json!(3);
        }
        line
    };
    if !streamed {
        return Reply::json(200, &line("    if a < 2: return a", true));
    }
    let lines = [
        line("    if a < 2:", false),
        line(" return a", false),
        line("", true),
    ];
    let lines = lines.map(|line| format!("{line}\n"));
    Reply::new(200)
        .header("content-type", "application/x-ndjson")
        .body(lines.concat())
}

#[tokio::test]
async fn the_demo_model_completes_a_prompt_plain_and_streamed() {
    let gateway = Gateway::start().await;
    let client = gateway.client();
    for (suffix, text) in [
        (json!(null), "You said: one two three"),
        (json!("four"), "You said: one two three, before: four"),
    ] {
        let mut body = json!({ "model": "demo", "prompt": "one two three", "suffix": suffix });
        let answer = client.post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let whole = answer.json();
        assert_eq!(whole["object"], "text_completion");
        assert!(
            whole["id"]
                .as_str()
                .is_some_and(|id| id.starts_with("cmpl-"))
        );
        let choice = json!({ "text": text, "index": 0, "logprobs": null, "finish_reason": "stop" });
        assert_eq!(whole["choices"], json!([choice]));
        assert!(whole["usage"]["credits"].as_f64().is_some(), "{whole}");

        for include_usage in [false, true] {
            body["stream_options"] = json!({ "include_usage": include_usage });
            let stream = client.stream(PATH, &body).await;
            assert_eq!(stream.headers["content-type"], "text/event-stream");
            let events = stream.rest().await;
            assert_eq!(events.last().map(String::as_str), Some("data: [DONE]"));
            let chunks = chunks(&events);
            assert!(chunks.len() > 3, "{events:?}");
            let choices = chunks.iter().filter_map(|chunk| chunk["choices"].get(0));
            let choices: Vec<_> = choices.collect();
            let pieces = choices
                .iter()
                .map(|choice| choice["text"].as_str().expect("a text"));
            assert_eq!(pieces.collect::<String>(), text);
            let finishes: Vec<_> = choices
                .iter()
                .map(|choice| &choice["finish_reason"])
                .collect();
            assert_eq!(finishes.last(), Some(&&json!("stop")));
            assert!(
                finishes[..finishes.len() - 1]
                    .iter()
                    .all(|reason| reason.is_null())
            );
            let last = chunks.last().expect("a chunk");
            assert_eq!(last["usage"], whole["usage"]);
            let is_apart = last["choices"].as_array().is_some_and(Vec::is_empty);
            assert_eq!(is_apart, include_usage);
        }
    }
}

#[tokio::test]
async fn a_suffix_reaches_each_api_that_fills_text_in() {
    for (options, path, reply) in [
        (
            "completions = \"text\"",
            "/completions",
            text_completion as fn(bool) -> Reply,
        ),
        (
            "completions = \"fim\", stream-usage = \"false\", end-user-field = \"none\"",
            "/fim/completions",
            mistral,
        ),
    ] {
        let upstream = Upstream::start().await;
        let gateway = filling(&upstream, options).await;
        let client = gateway.client();
        for streamed in [false, true] {
            upstream.will(reply(streamed));
            let body = fill(&json!({ "stream": streamed, "seed": 7 }));
            let text = match streamed {
                false => {
                    let answer = client.post(PATH, &body).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    assert_eq!(answer.json()["usage"]["prompt_tokens"], 12);
                    answer.json()["choices"][0]["text"].clone()
                }
                true => {
                    let stream = client.stream(PATH, &body).await;
                    let chunks = chunks(&stream.rest().await);
                    let texts = chunks.iter().map(|chunk| &chunk["choices"][0]["text"]);
                    let texts = texts.map(|text| text.as_str().expect("a text"));
                    json!(texts.collect::<String>())
                }
            };
            assert_eq!(text, "    if a < 2: return a", "{options}");
            let request = upstream.next_request().await;
            assert_eq!(request.path, path);
            let mut expected = fill(&json!({}));
            if streamed {
                expected["stream"] = json!(true);
            }
            let seed = match options.contains("fim") {
                true => "random_seed",
                false => "seed",
            };
            if streamed && seed == "seed" {
                expected["stream_options"] = json!({ "include_usage": true });
            }
            expected[seed] = json!(7);
            assert_eq!(request.json(), expected, "{options}");
        }
        // Without a suffix, too, such a provider continues the prompt.
        upstream.will(reply(false));
        let answer = client.post(PATH, &fill(&json!({ "suffix": "" }))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let request = upstream.next_request().await;
        assert_eq!(request.path, path);
        assert_eq!(request.json()["suffix"], Value::Null);
        // Its chats are chats.
        upstream.will(Reply::chat("Hi"));
        assert_eq!(gateway.chat("scripted", "Hello").await.content(), "Hi");
        assert_eq!(upstream.next_request().await.path, "/chat/completions");
        is_settled(&gateway).await;
    }
}

#[tokio::test]
async fn ollama_fills_text_in_or_says_that_its_model_cannot() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_adapter("ollama", &upstream).await;
    let client = gateway.client();
    for streamed in [false, true] {
        upstream.will(ollama(streamed));
        let body = fill(&json!({ "stream": streamed }));
        let text = match streamed {
            false => client.post(PATH, &body).await.json()["choices"][0]["text"].clone(),
            true => {
                let chunks = chunks(&client.stream(PATH, &body).await.rest().await);
                let texts = chunks.iter().map(|chunk| &chunk["choices"][0]["text"]);
                let texts = texts.map(|text| text.as_str().expect("a text"));
                json!(texts.collect::<String>())
            }
        };
        assert_eq!(text, "    if a < 2: return a");
        let request = upstream.next_request().await;
        assert_eq!(request.path, "/generate");
        let sent = request.json();
        assert_eq!(sent["prompt"], "def fib(a):");
        assert_eq!(sent["suffix"], "    return fib(a-1) + fib(a-2)");
        assert_eq!(sent["options"]["num_predict"], 128);
        assert!(sent.get("messages").is_none(), "{sent}");
    }
    let error =
        json!({ "error": "registry.ollama.ai/library/llama3:latest does not support insert" });
    upstream.will(Reply::json(400, &error));
    let refused = client.post(PATH, &fill(&json!({}))).await;
    let refused = refused.error(400, "UNSUPPORTED_PARAMETER");
    assert_eq!(refused["param"], "suffix");
    is_settled(&gateway).await;
}

#[tokio::test]
async fn any_model_serves_a_prompt_and_a_model_without_such_an_api_refuses_a_suffix() {
    for adapter in provider_adapters() {
        let upstream = Upstream::start().await;
        upstream.will(match provider(&adapter) {
            Some(provider) if adapter != "anthropic" => (provider.whole)(),
            _ => said(&adapter, "So"),
        });
        let gateway = Gateway::with_adapter(&adapter, &upstream).await;
        let client = gateway.client();
        let body = json!({ "model": "scripted", "prompt": ["Once upon a time"], "max_tokens": 50 });
        let answer = client.post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{adapter}: {}", answer.text());
        let text = answer.json()["choices"][0]["text"].as_str().map(str::len);
        assert!(text > Some(0), "{}", answer.text());
        let sent = upstream.next_request().await.json().to_string();
        assert!(sent.contains("Once upon a time"), "{sent}");
        if adapter == "ollama" {
            continue;
        }
        let refused = client.post(PATH, &fill(&json!({}))).await;
        let error = refused.error(400, "UNSUPPORTED_PARAMETER");
        assert_eq!(error["param"], "suffix", "{adapter}");
        assert_eq!(upstream.count(), 1, "{adapter}");
        // A client may give the suffix up.
        upstream.will(match provider(&adapter) {
            Some(provider) if adapter != "anthropic" => (provider.whole)(),
            _ => said(&adapter, "So"),
        });
        let giving_up = client.clone().with_header("x-weir-drop", "suffix");
        let answer = giving_up.post(PATH, &fill(&json!({ "top_p": null }))).await;
        assert_eq!(answer.status, 200, "{adapter}: {}", answer.text());
        // Claude takes no stop sequence without a word.
        let ignored = match &*adapter {
            "anthropic" | "bedrock" => "suffix, stop",
            _ => "suffix",
        };
        assert_eq!(answer.headers["x-weir-ignored"], ignored, "{adapter}");
        is_settled(&gateway).await;
    }
}

#[tokio::test]
async fn requests_that_this_format_has_no_answer_for_are_refused_by_name() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables(
            "[models.small]\ncontext_window = 100\nmax_output_tokens = 50\ndefault_output_tokens = 50\n\
             upstreams = [{ provider = \"scripted\" }]\nprice = { input = 1, output = 1 }\n",
        )
        .start()
        .await;
    let client = gateway.client();
    for (fields, param, code) in [
        (json!({ "prompt": null }), "prompt", "INVALID_REQUEST"),
        (
            json!({ "prompt": [], "suffix": null }),
            "prompt[0]",
            "INVALID_REQUEST",
        ),
        (
            json!({ "prompt": "", "suffix": null }),
            "prompt",
            "INVALID_REQUEST",
        ),
        (json!({ "prompt": ["a", "b"] }), "prompt", "INVALID_REQUEST"),
        (json!({ "prompt": [1, 2] }), "prompt[0]", "INVALID_REQUEST"),
        (json!({ "n": 2 }), "n", "INVALID_REQUEST"),
        (json!({ "best_of": 2 }), "best_of", "INVALID_REQUEST"),
        (json!({ "echo": true }), "echo", "INVALID_REQUEST"),
        (json!({ "logprobs": 1 }), "logprobs", "INVALID_REQUEST"),
        (
            json!({ "session_id": "a" }),
            "session_id",
            "INVALID_REQUEST",
        ),
        (json!({ "max_tokens": 0 }), "max_tokens", "INVALID_REQUEST"),
        (
            json!({ "novelty": 1, "suffix": null }),
            "novelty",
            "UNSUPPORTED_PARAMETER",
        ),
        (
            json!({ "model": "demo-image" }),
            "model",
            "MODEL_NOT_SUPPORTED",
        ),
        (
            json!({ "model": "small", "prompt": "word ".repeat(100), "max_tokens": 50 }),
            "prompt",
            "CONTEXT_LENGTH_EXCEEDED",
        ),
    ] {
        let refused = client.post(PATH, &fill(&fields)).await;
        let error = refused.error(400, code);
        assert_eq!(error["param"], param, "{error}");
    }
    assert_eq!(
        client
            .post(PATH, &fill(&json!({ "model": "none" })))
            .await
            .status,
        404
    );
    assert_eq!(upstream.count(), 0);
    // An error of the provider has the form of this endpoint.
    upstream.will(Reply::events([
        r#"{"choices":[{"index":0,"delta":{"content":"one "}}]}"#,
        r#"{"error":{"message":"no","type":"server_error"}}"#,
    ]));
    let body = json!({ "model": "scripted", "prompt": "Hello" });
    let events = client.stream(PATH, &body).await.try_rest().await;
    let end = events.last().expect("an event");
    assert!(
        end.starts_with("event: error\n") && end.contains("\"error\":{"),
        "{events:?}"
    );
    is_settled(&gateway).await;
}

#[tokio::test]
async fn a_completion_costs_what_its_prompt_and_suffix_cost_and_passes_filters() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .provider("scripted", "openai", Some(&upstream))
        .tables("options = { completions = \"text\" }")
        .model("scripted", &["scripted"])
        .tables("[[filters]]\nslot = \"redact-pii\"\n")
        .start()
        .await;
    let client = gateway.client();
    let reply = json!({
        "choices": [{ "index": 0, "text": "[e-mail-1] and [e-mail-2]", "finish_reason": "stop" }],
        "usage": { "prompt_tokens": TOKENS_INPUT, "completion_tokens": 5 },
    });
    upstream.will(Reply::json(200, &reply));
    let body = json!({
        "model": "scripted", "max_tokens": 20, "prompt": "Write to a@example.org", "suffix": "or to b@example.org.",
    });
    let answer = client.post(PATH, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["prompt"], "Write to [e-mail-1]");
    assert_eq!(sent["suffix"], "or to [e-mail-2].");
    let answer = answer.json();
    assert_eq!(
        answer["choices"][0]["text"],
        "a@example.org and b@example.org"
    );
    // The price is 1 USD for a million tokens of input, and 2 USD for output, times 1.4; a credit is 0.001 USD.
    assert_eq!(answer["usage"]["credits"], 0.028);
    // Without a count of the provider, the suffix counts as input.
    let unknown = json!({ "choices": [{ "index": 0, "text": "So", "finish_reason": "stop" }] });
    let mut counted = Vec::new();
    for suffix in ["", &"a + b; ".repeat(600)] {
        upstream.will(Reply::json(200, &unknown));
        let body =
            json!({ "model": "scripted", "max_tokens": 20, "prompt": "Hello", "suffix": suffix });
        let usage = client.post(PATH, &body).await.json()["usage"]["prompt_tokens"].as_u64();
        counted.push(usage.expect("a count"));
    }
    assert!(counted[1] >= counted[0] + 1_000, "{counted:?}");
    is_settled(&gateway).await;
}
