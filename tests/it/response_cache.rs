//! The response cache: equal requests get stored responses, in every dialect and form, at the operator's price, and past no
//! guard.

use std::time::Duration;

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::speaker::{Speaker, Told};
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gateway, Reply, Upstream, chat, chunks, guests};
use weir_app::config::Config;
use weir_storage::clock::ManualClock;

const ENABLED: &str = "[response_cache]\nenabled = true\n";

/// A gateway whose model `scripted` the upstream serves, with the cache and these of its settings.
fn caching(upstream: &Upstream, settings: &str) -> Builder {
    let builder = Gateway::builder().upstream("scripted", upstream);
    builder.tables(&format!("{ENABLED}{settings}\n"))
}

/// An upstream whose responses all differ: `number 1`, `number 2` and so on, streamed or plain.
async fn counting() -> Upstream {
    let upstream = Upstream::start().await;
    let numbers = std::sync::atomic::AtomicU32::new(1);
    upstream.always_by(move |request| {
        let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let number = number.to_string();
        match request.json()["stream"] == true {
            true => Reply::chat_stream(["number ", &number]),
            false => Reply::chat(&format!("number {number}")),
        }
    });
    upstream
}

/// A chat that may be stored.
fn cool(text: &str) -> Value {
    let mut request = chat("scripted", text);
    request["temperature"] = 0.into();
    request
}

/// Returns the result of the cache, or `none`.
fn result(headers: &HeaderMap) -> &str {
    let header = headers.get("x-weir-cache");
    header.map_or("none", |header| header.to_str().expect("a text"))
}

async fn ask(client: &Client, request: &Value) -> Answer {
    let answer = client.post("/chat", request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

/// Asks, and returns the result of the cache with the text.
async fn told(client: &Client, request: &Value) -> (String, String) {
    let answer = ask(client, request).await;
    (result(&answer.headers).to_owned(), answer.content())
}

fn pair(result: &str, text: &str) -> (String, String) {
    (result.to_owned(), text.to_owned())
}

/// Sends a chat of a dialect, and returns the response with its headers.
async fn speak(client: &Client, speaker: Speaker, text: &str, stream: bool) -> (Told, HeaderMap) {
    let mut question = speaker.question("scripted", text, stream);
    question.as_object_mut().expect("an object").remove("tools");
    match speaker {
        Speaker::Gemini => question["generationConfig"] = json!({ "temperature": 0 }),
        _ => question["temperature"] = 0.into(),
    }
    if speaker == Speaker::Chat && stream {
        question["stream_options"] = json!({ "include_usage": true });
    }
    let path = speaker.path("scripted", stream);
    if !stream {
        let answer = client.post(&path, &question).await;
        assert_eq!(answer.status, 200, "{speaker:?}: {}", answer.text());
        return (speaker.read(&answer.json()), answer.headers);
    }
    let streamed = client.follow(Method::POST, &path, &question).await;
    assert_eq!(streamed.status, 200, "{speaker:?}");
    let headers = streamed.headers.clone();
    let events = streamed.rest().await;
    assert_eq!(speaker.error_event(&events), None);
    (speaker.read_stream(&events), headers)
}

#[tokio::test]
async fn an_equal_request_gets_the_stored_response_in_each_dialect_streamed_and_plain() {
    let upstream = counting().await;
    let gateway = caching(&upstream, "").start().await;
    let client = gateway.client();
    for speaker in Speaker::ALL {
        for begins_streamed in [false, true] {
            let case = format!("{speaker:?}, streamed first: {begins_streamed}");
            let before = upstream.count();
            let (first, headers) = speak(&client, speaker, &case, begins_streamed).await;
            assert_eq!(result(&headers), "miss", "{case}");
            assert!(!headers.contains_key("age"), "{case}");
            assert!(first.text.starts_with("number "), "{case}: {first:?}");
            for stream in [false, true] {
                let (again, headers) = speak(&client, speaker, &case, stream).await;
                assert_eq!(again, first, "{case}");
                assert_eq!(result(&headers), "hit", "{case}");
                for (name, value) in [
                    ("age", "0"),
                    ("x-weir-provider", "scripted"),
                    ("x-weir-attempts", "0"),
                ] {
                    assert_eq!(headers[name], value, "{case}: {name}");
                }
            }
            assert_eq!(upstream.count(), before + 1, "{case}");
        }
    }
}

#[tokio::test]
async fn without_the_setting_no_response_is_stored() {
    let upstream = counting().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    for text in ["number 1", "number 2"] {
        let answer = told(&gateway.client(), &cool("hello")).await;
        assert_eq!(answer, pair("none", text));
    }
    let settings = "max_temperature = 3\nprice_percent = 101";
    let wrong = Config::from_toml(&format!("{ENABLED}{settings}"));
    let wrong = format!("{:#}", wrong.expect_err("it is invalid"));
    for name in ["max_temperature", "price_percent"] {
        assert!(
            wrong.contains(&format!("`response_cache.{name}`")),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn vectors_and_rankings_are_repeated() {
    let upstream = Upstream::start().await;
    upstream.always_by(|request| match &*request.path {
        "/embeddings" => Reply::json(
            200,
            &json!({
                "object": "list", "model": "vectors-1",
                "data": [{ "object": "embedding", "index": 0, "embedding": [1.5, -2] }],
                "usage": { "prompt_tokens": 7, "total_tokens": 7 },
            }),
        ),
        _ => Reply::json(
            200,
            &json!({
                "results": [
                    { "index": 1, "relevance_score": 0.9 },
                    { "index": 0, "relevance_score": 0.1 },
                ],
                "meta": { "billed_units": { "search_units": 1 } },
            }),
        ),
    });
    let model = |name: &str, kind: &str, price: &str| {
        format!(
            "[models.{name}]\nkind = \"{kind}\"\ncontext_window = 100\n\
             upstreams = [{{ provider = \"scripted\", model = \"{name}-1\" }}]\nprice = {{ {price} }}\n"
        )
    };
    let vectors = model("vectors", "embeddings", "input = 2, output = 0");
    let order = model("order", "rerank", "input = 0, output = 0, search = 0.01");
    let gateway = caching(&upstream, "")
        .tables(&(vectors + &order))
        .start()
        .await;
    let client = gateway.client();
    let texts = json!({ "model": "vectors", "input": "a cat" });
    let ranking = json!({ "model": "order", "query": "cats", "documents": ["a dog", "a cat"] });
    for (path, request, results) in [
        ("/v1/embeddings", &texts, "data"),
        ("/v1/rerank", &ranking, "results"),
    ] {
        let first = client.post(path, request).await;
        assert_eq!(first.status, 200, "{path}: {}", first.text());
        assert_eq!(result(&first.headers), "miss", "{path}");
        let again = client.post(path, request).await;
        assert_eq!(result(&again.headers), "hit", "{path}");
        assert!(first.json()[results].is_array(), "{}", first.text());
        assert_eq!(again.json()[results], first.json()[results], "{path}");
    }
    assert_eq!(upstream.count(), 2);
    let mut other = texts.clone();
    other["input"] = "a dog".into();
    let other = client.post("/v1/embeddings", &other).await;
    assert_eq!(result(&other.headers), "miss");
}

async fn last_requests(client: &Client) -> Vec<Value> {
    let list = client.get("/usage/requests?limit=2").await.json();
    list["requests"].as_array().expect("a list").clone()
}

async fn available(client: &Client) -> f64 {
    let balance = client.post("/billing/sync-balance", &json!({})).await;
    balance.json()["available_credits"]
        .as_f64()
        .expect("credits")
}

#[tokio::test]
async fn a_hit_costs_what_the_operator_sets_and_pays_no_provider() {
    for percent in [0_i64, 50, 100] {
        let upstream = counting().await;
        let settings = format!("price_percent = {percent}");
        let gateway = caching(&upstream, &settings).start().await;
        let (client, admin) = (gateway.client(), gateway.admin("root").await);
        let micro = |credits: &Value| (credits.as_f64().expect("credits") * 1e6).round() as i64;
        let first = ask(&client, &cool("hello")).await.json();
        let economics = admin.get("/admin/model-economics").await.json();
        let cost = economics[0]["provider_cost_usd"].clone();
        assert!(cost.as_f64().expect("a number") > 0.0, "{economics}");
        let before = available(&client).await;
        let again = ask(&client, &cool("hello")).await;
        assert_eq!(result(&again.headers), "hit");
        let again = again.json();

        let whole = micro(&first["usage"]["credits"]);
        let expected = (whole * percent + 99) / 100;
        assert_eq!(micro(&again["usage"]["credits"]), expected, "{percent}");
        let paid = (before - available(&client).await) * 1e6;
        assert_eq!(paid.round() as i64, expected, "{percent}");
        let economics = admin.get("/admin/model-economics").await.json();
        assert_eq!(economics[0]["provider_cost_usd"], cost, "{percent}");
        assert_eq!(economics[0]["total_requests"], 2, "{percent}");

        let listed = last_requests(&client).await;
        assert_eq!(listed.len(), 2);
        let (hit, miss) = (&listed[0], &listed[1]);
        assert_eq!(
            (&hit["attempts"], &miss["attempts"]),
            (&json!(0), &json!(1))
        );
        for field in [
            "status",
            "provider",
            "adapter_digest",
            "model",
            "tokens_input",
            "tokens_output",
        ] {
            assert!(!hit[field].is_null(), "{hit}");
            assert_eq!(hit[field], miss[field], "{field}");
        }
        assert_eq!(micro(&hit["credits"]), expected);
        let metrics = gateway.stranger().get("/metrics").await.text();
        assert!(
            metrics.contains("\nweir_ledger_open_holds 0\n"),
            "{percent}"
        );
    }
}

#[tokio::test]
async fn rates_and_idempotency_keys_apply_to_hits() {
    let upstream = counting().await;
    let gateway = caching(&upstream, "")
        .tables("[rate_limits]\nfree = 5\naddress = 1000000\n")
        .start()
        .await;
    let client = gateway.client();
    assert_eq!(told(&client, &cool("hello")).await.0, "miss");
    let named = client.clone().with_header("idempotency-key", "one");
    let first = ask(&named, &cool("hello")).await;
    assert_eq!(result(&first.headers), "hit");
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let again = ask(&named, &cool("hello")).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.text(), first.text());
    let other = named.post("/chat", &cool("other")).await;
    other.error(409, "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(told(&client, &cool("hello")).await.0, "hit");
    let mut last = client.post("/chat", &cool("hello")).await;
    // On a slow machine, the rate admits some more.
    for _ in 0..20 {
        if last.status == 200 {
            last = client.post("/chat", &cool("hello")).await;
        }
    }
    last.error(429, "RATE_LIMITED");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn accounts_share_responses_only_if_the_operator_says_so() {
    for (settings, expected) in [("", "miss"), ("scope = \"shared\"", "hit")] {
        let upstream = counting().await;
        let gateway = caching(&upstream, settings).start().await;
        let bob = gateway.stranger().with_key(&gateway.web_key("bob").await);
        assert_eq!(told(&gateway.client(), &cool("hello")).await.0, "miss");
        assert_eq!(told(&gateway.client(), &cool("hello")).await.0, "hit");
        assert_eq!(told(&bob, &cool("hello")).await.0, expected, "{settings}");
    }
}

#[tokio::test]
async fn tools_files_temperatures_and_stored_conversations_bypass_the_cache() {
    let upstream = counting().await;
    let gateway = caching(&upstream, "").start().await;
    let client = gateway.client();
    let with = |name: &str, value: Value| {
        let mut request = cool("hello");
        request[name] = value;
        request
    };
    let said = |message: Value| with("messages", json!([message]));
    let pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let image = |url: &str| {
        let part = json!({ "type": "image_url", "image_url": { "url": url } });
        said(json!({ "role": "user", "content": [part] }))
    };
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let requests = [
        with(
            "tools",
            json!([{ "type": "function", "function": { "name": "look" } }]),
        ),
        image(pixel),
        image("https://pictures.example/cat.png"),
        with("temperature", json!(0.1)),
        with("temperature", Value::Null),
        with("session_id", json!("s")),
        with(
            "messages",
            json!([
                { "role": "user", "content": "hello" },
                { "role": "assistant", "tool_calls": [call] },
                { "role": "tool", "tool_call_id": "c", "content": "fine" },
            ]),
        ),
    ];
    for request in &requests {
        for _ in 0..2 {
            assert_eq!(told(&client, request).await.0, "bypass", "{request}");
        }
    }
    assert_eq!(upstream.count(), 2 * requests.len());

    let mut response = json!({ "model": "scripted", "input": "hello", "temperature": 0 });
    let first = client.post("/v1/responses", &response).await;
    assert_eq!(result(&first.headers), "miss", "{}", first.text());
    let stored = client.post("/v1/responses", &response).await;
    assert_eq!(result(&stored.headers), "hit");
    assert_ne!(stored.json()["id"], first.json()["id"]);
    response["previous_response_id"] = stored.json()["id"].clone();
    let next = client.post("/v1/responses", &response).await;
    assert_eq!(result(&next.headers), "bypass", "{}", next.text());

    let images = json!({ "model": "demo-image", "prompt": "a cat" });
    let images = client.post("/v1/images/generations", &images).await;
    assert_eq!(result(&images.headers), "none", "{}", images.text());
}

#[tokio::test]
async fn the_operator_may_raise_the_temperature() {
    let upstream = counting().await;
    let gateway = caching(&upstream, "max_temperature = 1").start().await;
    let client = gateway.client();
    for temperature in [json!(1), Value::Null] {
        let mut request = cool(&format!("at {temperature}"));
        request["temperature"] = temperature;
        assert_eq!(told(&client, &request).await.0, "miss", "{request}");
        assert_eq!(told(&client, &request).await.0, "hit", "{request}");
    }
    let mut hot = cool("hot");
    hot["temperature"] = json!(1.1);
    assert_eq!(told(&client, &hot).await.0, "bypass");
}

#[tokio::test]
async fn clients_may_refuse_stored_responses_and_storage() {
    let upstream = counting().await;
    let gateway = caching(&upstream, "").start().await;
    let client = gateway.client();
    let with = |directives: &str| client.clone().with_header("cache-control", directives);
    let hello = cool("hello");
    let unstored = with("max-age=9, No-Store");
    assert_eq!(told(&unstored, &hello).await, pair("miss", "number 1"));
    assert_eq!(told(&client, &hello).await, pair("miss", "number 2"));
    assert_eq!(told(&unstored, &hello).await, pair("hit", "number 2"));
    let fresh = with("NO-CACHE");
    assert_eq!(told(&fresh, &hello).await, pair("bypass", "number 3"));
    assert_eq!(told(&client, &hello).await, pair("hit", "number 3"));
    let neither = with("no-cache,no-store");
    assert_eq!(told(&neither, &hello).await, pair("bypass", "number 4"));
    assert_eq!(told(&client, &hello).await, pair("hit", "number 3"));
}

#[tokio::test]
async fn each_field_that_may_change_a_response_has_its_own() {
    let upstream = counting().await;
    let gateway = caching(&upstream, "").start().await;
    let client = gateway.client();
    assert_eq!(told(&client, &cool("hello")).await.0, "miss");
    for (name, value) in [
        ("max_tokens", json!(20)),
        ("top_p", json!(0.5)),
        ("seed", json!(7)),
        ("stop", json!(["x"])),
        ("presence_penalty", json!(1)),
        ("response_format", json!({ "type": "json_object" })),
        ("logit_bias", json!({ "5": 1 })),
        (
            "messages",
            json!([{ "role": "system", "content": "hello" }, { "role": "user", "content": "hello" }]),
        ),
    ] {
        let mut request = cool("hello");
        request[name] = value;
        assert_eq!(told(&client, &request).await.0, "miss", "{request}");
        assert_eq!(told(&client, &request).await.0, "hit", "{request}");
    }
    for (name, value) in [
        ("user", json!("ann")),
        ("metadata", json!({ "a": "b" })),
        ("stream", json!(false)),
    ] {
        let mut request = cool("hello");
        request[name] = value;
        assert_eq!(told(&client, &request).await.0, "hit", "{request}");
    }
    let dropping = client.clone().with_header("x-weir-drop", "logit_bias");
    assert_eq!(told(&dropping, &cool("hello")).await.0, "miss");
}

#[tokio::test]
async fn a_stored_response_of_a_provider_that_a_request_excludes_is_not_used() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::chat("first"));
    second.always(Reply::chat("second"));
    let gateway = Gateway::builder()
        .provider("first", "openai", Some(&first))
        .provider("second", "openai", Some(&second))
        .model("both", &["first", "second"])
        .tables(ENABLED)
        .start()
        .await;
    let client = gateway.client();
    let mut request = cool("hello");
    request["model"] = "both".into();
    assert_eq!(told(&client, &request).await, pair("miss", "first"));
    let only = client.clone().with_header("x-weir-provider", "second");
    assert_eq!(told(&only, &request).await, pair("miss", "second"));
    assert_eq!(told(&only, &request).await, pair("hit", "second"));
    assert_eq!(told(&client, &request).await, pair("hit", "first"));
}

/// A gateway whose requests pass the filter `meddling` if their account has the plan `pro`.
async fn filtered(upstream: &Upstream) -> Gateway {
    caching(upstream, "")
        .plugin("meddling", guests::meddling())
        .tables("[[filters]]\nslot = \"meddling\"\nplans = [\"pro\"]\n")
        .start()
        .await
}

#[tokio::test]
async fn a_stored_response_passes_the_filters_of_responses() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("bad words"));
    let gateway = filtered(&upstream).await;
    let client = gateway.client();
    let (judged, hidden) = (cool("meddle answer-judge"), cool("meddle answer-swallow"));
    for request in [&judged, &hidden] {
        assert_eq!(told(&client, request).await, pair("miss", "bad words"));
    }
    gateway.set_plan("pro").await;
    for stream in [false, true] {
        let mut request = judged.clone();
        request["stream"] = stream.into();
        let answer = ask(&client, &request).await;
        assert_eq!(result(&answer.headers), "hit");
        let text = answer.text();
        assert!(text.contains("content_filter"), "{text}");
        assert!(!text.contains("bad words"), "{text}");
    }
    // A refusal of the filter is not weir's success.
    let refused = client.post("/chat", &cool("meddle refuse")).await;
    refused.error(400, "CONTENT_FILTERED");
    let swallowed = client.post("/chat", &hidden).await;
    assert!(
        !swallowed.text().contains("bad words"),
        "{}",
        swallowed.text()
    );
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn a_response_that_a_filter_ended_is_not_stored() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("bad words"));
    let gateway = filtered(&upstream).await;
    gateway.set_plan("pro").await;
    let client = gateway.client();
    for asked in 1..=2 {
        let answer = ask(&client, &cool("meddle answer-judge")).await;
        assert_eq!(result(&answer.headers), "miss");
        assert_eq!(upstream.count(), asked);
    }
    let own = ask(&client, &cool("meddle respond")).await;
    assert_eq!(result(&own.headers), "bypass");
    assert_eq!(own.content(), "made here");
}

#[tokio::test]
async fn the_key_has_the_request_as_its_filters_change_it() {
    let upstream = counting().await;
    let gateway = filtered(&upstream).await;
    let client = gateway.client();
    let request = cool("meddle upper");
    assert_eq!(told(&client, &request).await, pair("miss", "number 1"));
    gateway.set_plan("pro").await;
    // The provider gets another text, and the filter changes the response, before and after its storage.
    assert_eq!(told(&client, &request).await, pair("miss", "NUMBER 2"));
    assert_eq!(told(&client, &request).await, pair("hit", "NUMBER 2"));
    let sent = upstream.requests()[1].json();
    assert_eq!(sent["messages"][0]["content"], "MEDDLE UPPER");
}

#[tokio::test]
async fn only_normal_ends_are_stored() {
    let upstream = Upstream::start().await;
    let gateway = caching(&upstream, "max_bytes = 2000").start().await;
    let client = gateway.client();
    let ended = |reason: &str| {
        let message = json!({ "role": "assistant", "content": "so far" });
        Reply::chat_message(&message, reason)
    };
    for (case, reply) in [
        ("length", ended("length")),
        ("content_filter", ended("content_filter")),
        ("large", Reply::chat(&"long ".repeat(500))),
    ] {
        for _ in 0..2 {
            upstream.will(reply.clone());
            let answer = ask(&client, &cool(case)).await;
            assert_eq!(result(&answer.headers), "miss", "{case}");
        }
    }
    upstream.will(Reply::error(400, "no"));
    let refused = client.post("/chat", &cool("refused")).await;
    assert_eq!(result(&refused.headers), "none", "{}", refused.text());
    upstream.will(Reply::chat("yes"));
    assert_eq!(told(&client, &cool("refused")).await.0, "miss");
    let stream = Reply::chat_stream(["one ", "two"]);
    let half = stream.whole_body().len() / 2;
    upstream.will(stream.cut_after(half));
    let broken = client.stream("/chat", &cool("broken")).await;
    assert!(!broken.is_whole().await);
    upstream.will(Reply::chat("whole"));
    assert_eq!(told(&client, &cool("broken")).await, pair("miss", "whole"));
    assert_eq!(told(&client, &cool("broken")).await, pair("hit", "whole"));
}

#[tokio::test]
async fn a_stored_response_expires_and_tells_its_age() {
    let upstream = counting().await;
    let clock = ManualClock::default();
    let gateway = caching(&upstream, "ttl_seconds = 60")
        .clock(&clock)
        .start()
        .await;
    let client = gateway.client();
    assert_eq!(told(&client, &cool("hello")).await.0, "miss");
    clock.advance(Duration::from_secs(59));
    let old = ask(&client, &cool("hello")).await;
    assert_eq!(result(&old.headers), "hit");
    assert_eq!(old.headers["age"], "59");
    clock.advance(Duration::from_secs(1));
    assert_eq!(
        told(&client, &cool("hello")).await,
        pair("miss", "number 2")
    );
}

#[tokio::test]
async fn a_stream_is_repeated_with_all_its_parts() {
    let upstream = Upstream::start().await;
    let deltas = [
        json!({ "role": "assistant", "reasoning_content": "well, " }),
        json!({ "reasoning_content": "yes" }),
        json!({ "content": "one " }),
        json!({ "content": "two" }),
    ];
    upstream.will(Reply::chat_deltas(&deltas, "stop"));
    let gateway = caching(&upstream, "").start().await;
    let client = gateway.client();
    let read = async || {
        let stream = client.stream("/chat", &cool("hello")).await;
        let result = result(&stream.headers).to_owned();
        let events = stream.rest().await;
        assert_eq!(events.last().map(String::as_str), Some("data: [DONE]"));
        let chunks = chunks(&events);
        let all = |field: &str| -> String {
            let texts = chunks.iter();
            let texts = texts.filter_map(|one| one["choices"][0]["delta"][field].as_str());
            texts.collect()
        };
        (result, all("reasoning_content"), all("content"))
    };
    let parts = |result: &str| {
        let [reasoning, text] = ["well, yes", "one two"].map(str::to_owned);
        (result.to_owned(), reasoning, text)
    };
    assert_eq!(read().await, parts("miss"));
    assert_eq!(read().await, parts("hit"));
}

/// Counts the stored responses in Redis whose bytes contain a text.
fn stored_with(redis: &Redis, text: &str) -> String {
    let script = "local n = 0 for _, key in ipairs(redis.call('KEYS', 'weir:large:*')) do \
                  if string.find(redis.call('GET', key), ARGV[1], 1, true) then n = n + 1 end end return n";
    let answer = redis.command(&format!("EVAL \"{script}\" 0 \"{text}\""));
    answer
        .rsplit(':')
        .next()
        .expect("a number")
        .trim()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_encrypted_responses_through_redis() {
    let upstream = counting().await;
    let (database, redis) = (Postgres::shared().create_database().await, Redis::start());
    let builder = || {
        let builder = caching(&upstream, "");
        builder.postgres(&database).redis(&redis.url())
    };
    let first = builder().start().await;
    let second = builder().sharing_secrets_of(&first).start().await;
    let (client, elsewhere) = (first.client(), first.client().at(second.address()));
    assert_eq!(
        told(&client, &cool("hello")).await,
        pair("miss", "number 1")
    );
    assert_eq!(
        told(&elsewhere, &cool("hello")).await,
        pair("hit", "number 1")
    );
    assert_eq!(upstream.count(), 1);

    assert_eq!(stored_with(&redis, ""), "1", "there is one");
    for text in ["number 1", "hello", "scripted"] {
        assert_eq!(stored_with(&redis, text), "0", "{text} is readable");
    }
    // Other bytes in its place are no response.
    let script = "for _, key in ipairs(redis.call('KEYS', 'weir:large:*')) do redis.call('SET', key, 'x') end return 1";
    redis.command(&format!("EVAL \"{script}\" 0"));
    assert_eq!(
        told(&elsewhere, &cool("hello")).await,
        pair("miss", "number 2")
    );
    assert_eq!(told(&client, &cool("hello")).await, pair("hit", "number 2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_redis_fails_no_request() {
    let upstream = counting().await;
    let redis = Redis::start();
    let gateway = caching(&upstream, "")
        .redis(&redis.url())
        .settings("failure_policy = \"allow\"")
        .impatient_with_redis()
        .start()
        .await;
    let client = gateway.client();
    assert_eq!(
        told(&client, &cool("hello")).await,
        pair("miss", "number 1")
    );
    assert_eq!(told(&client, &cool("hello")).await, pair("hit", "number 1"));
    redis.pause();
    assert_eq!(
        told(&client, &cool("hello")).await,
        pair("miss", "number 2")
    );
    redis.resume();
    redis.kill();
    assert_eq!(
        told(&client, &cool("hello")).await,
        pair("miss", "number 3")
    );
    assert_eq!(
        told(&client, &cool("hello")).await,
        pair("miss", "number 4")
    );
}

#[tokio::test]
async fn the_metrics_count_results_and_stored_bytes() {
    let upstream = counting().await;
    let gateway = caching(&upstream, "").start().await;
    let client = gateway.client();
    for _ in 0..3 {
        ask(&client, &cool("hello")).await;
    }
    ask(&client, &chat("scripted", "hello")).await;
    let metrics = gateway.stranger().get("/metrics").await.text();
    for (result, count) in [("hit", 2), ("miss", 1), ("bypass", 1)] {
        let line = format!("\nweir_response_cache_requests_total{{result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let series = "weir_response_cache_stored_bytes_total ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    let bytes: u64 = line.expect("a line").parse().expect("a number");
    assert!((100..10_000).contains(&bytes), "{bytes}");
}
