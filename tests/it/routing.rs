//! The choice among a model's upstreams: by order, weight, conversation, the client's wish, and known failures.

use std::time::Duration;

use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::stores::Redis;
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, chat};

/// Two upstreams with distinct responses, and a gateway whose model `both` they serve.
struct Pair {
    first: Upstream,
    second: Upstream,
}

impl Pair {
    async fn start() -> Self {
        let (first, second) = (Upstream::start().await, Upstream::start().await);
        first.always(Reply::chat("first"));
        second.always(Reply::chat("second"));
        Self { first, second }
    }

    /// A builder with the rest of each upstream's entry in the model's list, such as a weight.
    fn builder(&self, first: &str, second: &str) -> Builder {
        let upstreams = format!(
            "upstreams = [{{ provider = \"first\"{first} }}, {{ provider = \"second\"{second} }}]"
        );
        Gateway::builder()
            .provider("first", "openai", Some(&self.first))
            .provider("second", "openai", Some(&self.second))
            .tables(&format!(
                "[models.both]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
                 supports_tools = true\nprice = {{ input = 1, output = 2 }}\n{upstreams}"
            ))
    }

    async fn gateway(&self) -> Gateway {
        self.builder("", "").start().await
    }

    fn counts(&self) -> (usize, usize) {
        (self.first.count(), self.second.count())
    }
}

/// A request of a conversation, by the client's id of it.
fn of_conversation(field: &str, name: &str) -> Value {
    let mut body = chat("both", "x");
    match field {
        "metadata.user_id" => body["metadata"] = json!({ "user_id": name }),
        field => body[field] = name.into(),
    }
    body
}

async fn asked(client: &Client, body: &Value) -> String {
    let answer = client.post("/chat", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.content()
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let value = answer.headers.get(name)?;
    Some(value.to_str().expect("ASCII"))
}

#[tokio::test]
async fn requests_are_shared_out_by_weight_and_those_without_one_come_after() {
    let pair = Pair::start().await;
    let gateway = pair
        .builder(", weight = 3", ", weight = 1")
        .provider("last", "openai", Some(&pair.first))
        .start()
        .await;
    let client = gateway.client();
    for _ in 0..200 {
        asked(&client, &chat("both", "x")).await;
    }
    // Three in four, within eight standard deviations.
    let (first, second) = pair.counts();
    assert!((101..200).contains(&first), "{first} and {second}");

    let pair = Pair::start().await;
    let gateway = pair.builder("", ", weight = 1").start().await;
    for _ in 0..20 {
        assert_eq!(asked(&gateway.client(), &chat("both", "x")).await, "second");
    }
    assert_eq!(pair.counts(), (0, 20));
}

#[tokio::test]
async fn a_conversation_stays_with_one_of_those_that_have_a_weight() {
    for field in ["session_id", "prompt_cache_key", "metadata.user_id"] {
        let pair = Pair::start().await;
        let gateway = pair.builder(", weight = 1", ", weight = 1").start().await;
        let client = gateway.client();
        let mut seen = Vec::new();
        for conversation in 0..24 {
            let body = of_conversation(field, &format!("conversation {conversation}"));
            let answers = [asked(&client, &body).await, asked(&client, &body).await];
            assert_eq!(answers[0], answers[1], "{field}");
            seen.push(answers[0].clone());
        }
        assert!(
            seen.iter().any(|by| by == "first") && seen.iter().any(|by| by == "second"),
            "{field}: {seen:?}"
        );
    }
}

/// Each response has another id.
#[tokio::test]
async fn a_conversation_by_its_answers_ids_stays_with_one_of_those_that_have_a_weight() {
    let pair = Pair::start().await;
    let gateway = pair.builder(", weight = 1", ", weight = 1").start().await;
    let mut seen = Vec::new();
    for _ in 0..24 {
        let (mut previous, mut by) = (Value::Null, Vec::new());
        for _ in 0..3 {
            let ask = json!({ "model": "both", "input": "x", "previous_response_id": previous });
            let answer = gateway.client().post("/v1/responses", &ask).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            previous = answer.json()["id"].clone();
            by.push(header(&answer, "x-weir-provider").map(str::to_owned));
        }
        assert!(by.iter().all(|one| *one == by[0]), "{by:?}");
        seen.extend(by.swap_remove(0));
    }
    assert!(
        seen.iter().any(|by| by == "first") && seen.iter().any(|by| by == "second"),
        "{seen:?}"
    );
}

/// Its beginning names a conversation, so that the provider's cache has the turns so far.
#[tokio::test]
async fn a_conversation_without_a_name_stays_with_one_of_those_that_have_a_weight() {
    let pair = Pair::start().await;
    let gateway = pair.builder(", weight = 1", ", weight = 1").start().await;
    let client = gateway.client();
    let mut seen = Vec::new();
    for conversation in 0..24 {
        let message = |role: &str, text: &str| json!({ "role": role, "content": text });
        let mut messages = vec![
            message("system", "Be brief."),
            message("user", &format!("question {conversation}")),
        ];
        let mut by = Vec::new();
        for turn in 0..4 {
            messages.push(message("assistant", &format!("answer {turn}")));
            messages.push(message("user", &format!("question {turn}")));
            let body = json!({ "model": "both", "messages": messages });
            by.push(asked(&client, &body).await);
        }
        assert!(by.iter().all(|one| *one == by[0]), "{by:?}");
        seen.push(by.swap_remove(0));
    }
    assert!(
        seen.iter().any(|by| by == "first") && seen.iter().any(|by| by == "second"),
        "{seen:?}"
    );
}

/// On the upstream whose cache has its prompt.
#[tokio::test]
async fn a_conversation_goes_on_with_who_answered_it_last_on_every_node() {
    let redis = Redis::start();
    let pair = Pair::start().await;
    let one = pair.builder("", "").redis(&redis.url()).start().await;
    let other = pair.builder("", "").redis(&redis.url());
    let other = other.sharing_secrets_of(&one).start().await;
    let body = of_conversation("prompt_cache_key", "mine");
    assert_eq!(asked(&one.client(), &body).await, "first");
    pair.first
        .will(Reply::error(503, "overloaded"))
        .will(Reply::error(503, "overloaded"));
    assert_eq!(asked(&one.client(), &body).await, "second");
    assert_eq!(asked(&one.client(), &body).await, "second");
    assert_eq!(asked(&other.client(), &body).await, "second");
    // Other conversations of the user, and the same id of another user, stay where they would be anyway.
    let another = of_conversation("prompt_cache_key", "another");
    assert_eq!(asked(&one.client(), &another).await, "first");
    assert_eq!(asked(&one.web("bob"), &body).await, "first");
}

#[tokio::test]
async fn a_conversation_goes_on_with_who_signed_its_reasoning() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::chat("first"));
    second.always(Reply::json(
        200,
        &json!({
            "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": "second" }],
            "usage": { "input_tokens": 1, "output_tokens": 1 },
        }),
    ));
    let gateway = Gateway::builder()
        .provider("first", "openai", Some(&first))
        .provider("second", "anthropic", Some(&second))
        .model("both", &["first", "second"])
        .start()
        .await;
    let with = |provider: &str| {
        json!({ "model": "both", "max_tokens": 100, "messages": [
            { "role": "user", "content": "Hello" },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "Hm.", "signature": "c2ln", "provider": provider },
                { "type": "text", "text": "Hi" },
            ] },
            { "role": "user", "content": "So?" },
        ] })
    };
    for (maker, by) in [("second", "second"), ("first", "first"), ("gone", "first")] {
        let answer = gateway.client().post("/v1/messages", &with(maker)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["content"][0]["text"], by);
    }
}

#[tokio::test]
async fn an_answer_names_its_provider_and_the_client_may_choose_among_them() {
    let pair = Pair::start().await;
    let gateway = pair.gateway().await;
    let choose = |providers: &str| gateway.client().with_header("x-weir-provider", providers);
    for (providers, by) in [
        ("second", "second"),
        ("none, second", "second"),
        ("second,first", "first"),
    ] {
        let answer = choose(providers).post("/chat", &chat("both", "x")).await;
        assert_eq!(answer.content(), by, "{providers}");
        assert_eq!(header(&answer, "x-weir-provider"), Some(by));
        assert_eq!(header(&answer, "x-weir-attempts"), Some("1"));
    }
    let calls = pair.counts();
    for providers in ["third", "", "First", "first second"] {
        let answer = choose(providers).post("/chat", &chat("both", "x")).await;
        let error = answer.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], "x-weir-provider", "{providers}");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains("first, second"), "{message}");
    }
    assert_eq!(pair.counts(), calls);

    pair.first.always(Reply::error(503, "overloaded"));
    let answer = gateway.chat("both", "x").await;
    assert_eq!(header(&answer, "x-weir-provider"), Some("second"));
    assert_eq!(header(&answer, "x-weir-attempts"), Some("3"));
    let alone = choose("first").post("/chat", &chat("both", "x")).await;
    alone.error(503, "UPSTREAM_UNAVAILABLE");
    assert_eq!(header(&alone, "x-weir-provider"), Some("first"));
    assert_eq!(header(&alone, "x-weir-attempts"), Some("2"));
    pair.second.will_stream(["sec", "ond"]);
    let stream = gateway.stream("both", "x").await;
    assert_eq!(stream.headers["x-weir-provider"], "second");
    // The fifth failure of the account has opened the breaker before a second attempt.
    assert_eq!(stream.headers["x-weir-attempts"], "2");
    assert_eq!(stream.content().await, "second");
}

#[tokio::test]
async fn who_asks_to_be_left_alone_is_asked_after_others_and_never_refused() {
    let pair = Pair::start().await;
    let limited = Reply::error(429, "slow down").header("retry-after", "60");
    pair.first.always(limited);
    let gateway = pair.gateway().await;
    for _ in 0..3 {
        assert_eq!(gateway.chat("both", "x").await.content(), "second");
    }
    assert_eq!(pair.counts(), (1, 3));
    pair.first.always(Reply::chat("first"));
    let first = gateway.client().with_header("x-weir-provider", "first");
    assert_eq!(asked(&first, &chat("both", "x")).await, "first");
}

/// Returns whether an upstream's breaker is open, by the gateway's metrics.
async fn is_open(gateway: &Gateway, upstream: &str) -> bool {
    let metrics = gateway.stranger().get("/metrics").await.text();
    let line = format!("weir_upstream_breaker_open{{upstream=\"{upstream}\"}} 1\n");
    metrics.contains(&line)
}

#[tokio::test]
async fn what_fails_for_several_accounts_is_left_alone_until_one_request_shows_that_it_is_well() {
    let pair = Pair::start().await;
    let gateway = pair.gateway().await;
    let overloaded = Reply::error(529, "overloaded").header("retry-after", "0");
    pair.first.always(overloaded);
    let first = |client: Client| client.with_header("x-weir-provider", "first");
    let (alice, bob) = (first(gateway.client()), first(gateway.web("bob")));
    for _ in 0..3 {
        let answer = alice.post("/chat", &chat("both", "x")).await;
        answer.error(503, "UPSTREAM_UNAVAILABLE");
    }
    let answer = alice.post("/chat", &chat("both", "x")).await;
    answer.error(503, "UPSTREAM_UNAVAILABLE");
    assert_eq!(header(&answer, "x-weir-attempts"), None, "open for alice");
    assert_eq!(pair.first.count(), 5);
    assert!(
        !is_open(&gateway, "first/both").await,
        "one account shuts out nobody"
    );
    let answer = bob.post("/chat", &chat("both", "x")).await;
    answer.error(503, "UPSTREAM_UNAVAILABLE");
    assert!(is_open(&gateway, "first/both").await);

    let calls = pair.first.count();
    assert_eq!(calls, 6, "the breaker opened before a second attempt");
    let answer = alice.post("/chat", &chat("both", "x")).await;
    answer.error(503, "UPSTREAM_UNAVAILABLE");
    let wait: u64 = header(&answer, "retry-after")
        .expect("a time")
        .parse()
        .expect("seconds");
    assert!((1..=5).contains(&wait), "{wait}");
    assert_eq!(header(&answer, "x-weir-attempts"), None);
    assert_eq!(gateway.chat("both", "x").await.content(), "second");
    assert_eq!(pair.first.count(), calls);

    // One probe is let through, and no other request meanwhile.
    let gate = Gate::new();
    pair.first.always(Reply::chat("first"));
    pair.first.will(Reply::chat("first").after_gate(&gate));
    let trying = tests::patiently(async {
        loop {
            let answer = alice.post("/chat", &chat("both", "x")).await;
            if answer.status == 200 {
                return answer;
            }
        }
    });
    let (tried, ()) = tokio::join!(trying, async {
        gate.reached().await;
        let answer = bob.post("/chat", &chat("both", "x")).await;
        answer.error(503, "UPSTREAM_UNAVAILABLE");
        assert_eq!(gateway.chat("both", "x").await.content(), "second");
        gate.open();
    });
    assert_eq!(tried.content(), "first");
    assert!(!is_open(&gateway, "first/both").await);
    assert_eq!(gateway.chat("both", "x").await.content(), "first");
    assert_eq!(pair.first.count(), calls + 2);
}

#[tokio::test]
async fn what_cannot_be_reached_is_left_alone_on_every_node() {
    let redis = Redis::start();
    let second = Upstream::start().await;
    second.always(Reply::chat("second"));
    let builder = || {
        Gateway::builder()
            // The port of a socket that was just closed has no listener.
            .tables(&format!(
                "[providers.gone]\nadapter = \"openai\"\nbase_url = \"http://{}\"\n",
                std::net::TcpListener::bind("127.0.0.1:0")
                    .and_then(|listener| listener.local_addr())
                    .expect("the loopback interface has a free port")
            ))
            .provider("second", "openai", Some(&second))
            .model("alone", &["gone"])
            .model("both", &["gone", "second"])
            .redis(&redis.url())
    };
    let one = builder().start().await;
    let other = builder().sharing_secrets_of(&one).start().await;
    for _ in 0..3 {
        let answer = one.chat("alone", "x").await;
        answer.error(503, "UPSTREAM_UNAVAILABLE");
    }
    assert!(is_open(&one, "gone/alone").await);
    assert!(
        !is_open(&one, "gone/both").await,
        "each model has a breaker of its own"
    );
    tests::patiently(async {
        while !is_open(&other, "gone/alone").await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let answer = other.chat("alone", "x").await;
    answer.error(503, "UPSTREAM_UNAVAILABLE");
    assert_eq!(header(&answer, "x-weir-attempts"), None, "nobody was asked");
}

/// Settings with this time limit of a first token, in milliseconds.
fn patience(ms: u32) -> String {
    format!("[timeouts]\nfirst_token_ms = {ms}\n")
}

#[tokio::test]
async fn a_stream_of_which_nothing_comes_gives_way_to_the_next_upstream() {
    // No response at all; headers only; a first event without content.
    let begun = Reply::events([r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}]}"#]);
    let begun_bytes = begun.whole_body().len();
    for silent in [
        Reply::never(),
        Reply::chat_stream(["x"]).silent_after(0),
        Reply::chat_stream(["x"]).silent_after(begun_bytes.min(40)),
    ] {
        let pair = Pair::start().await;
        pair.first.will(silent);
        pair.second
            .will(Reply::chat_stream_with_usage(["sec", "ond"], 10, 20));
        let gateway = pair.builder("", "").tables(&patience(300)).start().await;
        let stream = gateway.stream("both", "x").await;
        assert_eq!(stream.headers["x-weir-provider"], "second");
        assert_eq!(stream.headers["x-weir-attempts"], "2");
        assert_eq!(stream.content().await, "second");
        pair.first.until_hung_up().await;
        assert_eq!(pair.counts(), (1, 1));

        // The client pays for the response, and weir for the other attempt.
        let admin = gateway.admin("root").await;
        let report = admin.get("/admin/model-economics").await.json();
        let row = &report[0];
        assert_eq!(row["provider"], "second");
        assert_eq!(row["revenue_usd"], json!(0.000_07), "{row}");
        let cost = row["provider_cost_usd"].as_f64().expect("a number");
        assert!(cost > 0.000_05, "{row}");
    }
}

#[tokio::test]
async fn the_last_upstream_is_waited_for_and_so_is_one_that_has_begun() {
    let pair = Pair::start().await;
    let slow = Duration::from_millis(600);
    pair.first
        .will(Reply::chat_stream(["fir", "st"]).after(slow));
    let gateway = pair.builder("", "").tables(&patience(200)).start().await;
    let alone = gateway.client().with_header("x-weir-provider", "first");
    let mut body = chat("both", "x");
    body["stream"] = true.into();
    let stream = alone.stream("/chat", &body).await;
    assert_eq!(stream.content().await, "first");

    let text = |text: &str| json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    let events = [text("fir"), text("st"), end].map(|event| event.to_string());
    let events = events.iter().map(String::as_str).chain(["[DONE]"]);
    let gate = Gate::new();
    pair.first
        .will(Reply::events(events).gate_before_piece(1, &gate));
    let mut stream = gateway.stream("both", "x").await;
    stream.next().await.expect("the first of it");
    // Longer than the limit of a first token.
    tokio::time::sleep(slow).await;
    gate.open();
    let rest = stream.rest().await;
    assert!(
        rest.iter().any(|event| event.contains("\"st\"")),
        "{rest:?}"
    );
    // A non-streamed response comes when it is complete.
    pair.first.will(Reply::chat("first").after(slow));
    assert_eq!(gateway.chat("both", "x").await.content(), "first");
    assert_eq!(pair.counts(), (3, 0));
}

#[tokio::test]
async fn who_goes_away_before_the_first_token_pays_for_it() {
    let pair = Pair::start().await;
    pair.first.will(Reply::never());
    let gateway = pair.builder("", "").tables(&patience(500)).start().await;
    let client = gateway.client();
    let mut body = chat("both", &"word ".repeat(1_000));
    body["stream"] = true.into();
    let asking = tokio::spawn(async move { client.try_stream("/chat", &body).await.is_some() });
    pair.first.next_request().await;
    asking.abort();
    pair.first.until_hung_up().await;
    let used = async || {
        let requests = gateway.client().get("/usage/requests").await.json();
        requests["requests"][0]["credits"].as_f64()
    };
    tests::patiently(async {
        while used().await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(used().await > Some(0.0));
    assert_eq!(pair.counts(), (1, 0));
}

#[tokio::test]
async fn a_client_or_the_model_chooses_the_cheapest_provider() {
    let pair = Pair::start().await;
    let cheap = ", price = { input = 0.1, output = 0.2 }";
    let by_weight = pair.builder("", cheap).start().await;
    let client = by_weight.client();
    assert_eq!(asked(&client, &chat("both", "x")).await, "first");
    let by_price = client.with_header("x-weir-route", "price");
    assert_eq!(asked(&by_price, &chat("both", "x")).await, "second");

    // `builder` ends in the model's table.
    let by_price = pair
        .builder("", cheap)
        .tables("route = \"price\"\n")
        .start();
    let by_price = by_price.await;
    let client = by_price.client();
    assert_eq!(asked(&client, &chat("both", "x")).await, "second");
    let by_weight = client.with_header("x-weir-route", "weight");
    assert_eq!(asked(&by_weight, &chat("both", "x")).await, "first");

    let answer = by_weight
        .with_header("x-weir-route", "cheapest")
        .post("/chat", &chat("both", "x"))
        .await;
    assert_eq!(answer.status, 400);
    let error = &answer.json()["error"];
    assert_eq!(error["code"], "INVALID_REQUEST");
    assert_eq!(error["param"], "x-weir-route");
}

#[tokio::test]
async fn the_fastest_provider_is_asked_once_each_is_known() {
    let pair = Pair::start().await;
    pair.first
        .always(Reply::chat("first").after(Duration::from_millis(200)));
    let gateway = pair.gateway().await;
    let client = gateway.client().with_header("x-weir-route", "latency");
    let mut answers = Vec::new();
    for _ in 0..6 {
        answers.push(asked(&client, &chat("both", "x")).await);
    }
    assert_eq!(answers[0], "first");
    assert_eq!(answers[1..], ["second"; 5]);
}

#[tokio::test]
async fn the_provider_with_the_fewest_requests_under_way_is_asked() {
    let (pair, gate) = (Pair::start().await, Gate::new());
    pair.first.always(Reply::chat("first").after_gate(&gate));
    let gateway = pair.gateway().await;
    let client = gateway.client().with_header("x-weir-route", "load");
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { asked(&client, &chat("both", "x")).await }
    });
    tests::patiently(pair.first.next_request()).await;
    for _ in 0..3 {
        assert_eq!(asked(&client, &chat("both", "x")).await, "second");
    }
    gate.open();
    assert_eq!(waiting.await.expect("no panic"), "first");
    assert_eq!(asked(&client, &chat("both", "x")).await, "first");
}
