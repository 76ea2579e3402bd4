//! The bundled filters, over real sockets and real Wasm.

use http::Method;
use serde_json::{Value, json};
use tests::gateway::{Builder, USER};
use tests::speaker::Speaker;
use tests::stores::{Postgres, Redis};
use tests::{Gate, Gateway, Reply, Upstream, chat, chunks};

use crate::filters::{annotations, said};

/// A gateway that redacts requests to `scripted`, which the upstream serves.
async fn redacting(upstream: &Upstream, options: &str) -> Gateway {
    let filter = format!("[[filters]]\nslot = \"redact-pii\"\n{options}");
    let gateway = Gateway::builder().upstream("scripted", upstream);
    gateway.tables(&filter).start().await
}

fn last_said(upstream: &Upstream) -> String {
    let requests = upstream.requests();
    let body = requests.last().expect("it was asked").json();
    let said = &body["messages"][0]["content"];
    said.as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn personal_data_reaches_no_upstream_and_comes_back_to_its_client() {
    let upstream = Upstream::start().await;
    let gateway = redacting(&upstream, "").await;
    upstream.will(Reply::chat(
        "Write to [e-mail-2], [e-mail-1] or b@example.org, [card-1]; call [phone-1] or +49 30 1234567.",
    ));
    let question =
        "I am a@example.org, who else? 4111 1111 1111 1111, c@example.org, a@example.org";
    let answer = gateway.chat("scripted", question).await;
    assert_eq!(
        last_said(&upstream),
        "I am [e-mail-1], who else? [card-1], [e-mail-2], [e-mail-1]"
    );
    // The model made up the rest.
    assert_eq!(
        answer.content(),
        "Write to c@example.org, a@example.org or [e-mail], 4111 1111 1111 1111; call [phone-1] or [phone]."
    );
    assert_eq!(
        annotations(&answer),
        Some("redact-pii.e-mail=3, redact-pii.card=1")
    );
    // Another request has none of these values.
    upstream.will(Reply::chat("It is [e-mail-1]."));
    let answer = gateway.chat("scripted", "Who is it?").await;
    assert_eq!(last_said(&upstream), "Who is it?");
    assert_eq!(answer.content(), "It is [e-mail-1].");
    assert_eq!(annotations(&answer), None);
}

#[tokio::test]
async fn a_clients_own_text_that_looks_like_a_placeholder_stays() {
    let upstream = Upstream::start().await;
    let gateway = redacting(&upstream, "").await;
    upstream.will(Reply::chat("[e-mail-1] is [e-mail-2]"));
    let question = "Is [e-mail-1] a@example.org?";
    let answer = gateway.chat("scripted", question).await;
    assert_eq!(last_said(&upstream), "Is [e-mail-1] [e-mail-2]?");
    assert_eq!(answer.content(), "[e-mail-1] is a@example.org");
}

/// A session keeps the client's own messages, sealed, and the filter redacts the whole conversation at each turn: the values of
/// an earlier turn come back on another node, in a stream and in a continued response.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_an_earlier_turn_of_a_session_come_back() {
    let (postgres, redis) = (Postgres::shared().create_database().await, Redis::start());
    let upstream = Upstream::start().await;
    let node = || {
        Gateway::builder()
            .postgres(&postgres)
            .redis(&redis.url())
            .upstream("scripted", &upstream)
            .tables("[[filters]]\nslot = \"redact-pii\"\n")
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let client = first.client();
    let elsewhere = client.at(second.address());
    let sent = || {
        let body = upstream.requests().last().expect("it was asked").json();
        let messages = body["messages"].as_array().expect("a list").iter();
        let texts = messages.map(|one| one["content"].as_str().unwrap_or_default().to_owned());
        texts.collect::<Vec<_>>()
    };
    let turn = |question: &str, stream: bool| {
        let mut request = chat("scripted", question);
        request["session_id"] = "s-1".into();
        request["stream"] = stream.into();
        request
    };
    upstream.will(Reply::chat("Hello, [e-mail-1]"));
    let answer = client
        .post("/chat", &turn("I am a@example.org", false))
        .await;
    assert_eq!(answer.content(), "Hello, a@example.org");

    upstream.will(Reply::chat("[e-mail-1], [e-mail-2], [e-mail-3]"));
    let answer = elsewhere
        .post("/chat", &turn("And b@example.org?", false))
        .await;
    assert_eq!(answer.content(), "a@example.org, b@example.org, [e-mail-3]");
    assert_eq!(
        sent(),
        ["I am [e-mail-1]", "Hello, [e-mail-1]", "And [e-mail-2]?"]
    );

    upstream.will_stream(["[e-mai", "l-2] and [", "e-mail-1]"]);
    let stream = client.stream("/chat", &turn("Who?", true)).await;
    assert_eq!(stream.content().await, "b@example.org and a@example.org");
    let history = elsewhere.get("/session/s-1/history").await.json();
    let messages = history["messages"].as_array().expect("a list");
    assert_eq!(messages.len(), 6, "{history}");
    assert_eq!(messages[0]["content"], "I am a@example.org");
    assert_eq!(messages[5]["content"], "b@example.org and a@example.org");

    let ask = |question: &str, previous: Value| json!({ "model": "scripted", "input": question, "previous_response_id": previous });
    upstream.will(Reply::chat("Hello, [e-mail-1]"));
    let body = ask("I am a@example.org", Value::Null);
    let begun = client.post("/v1/responses", &body).await.json();
    upstream.will(Reply::chat("[e-mail-1] or [e-mail-2]"));
    let body = ask("Or b@example.org?", begun["id"].clone());
    let answer = elsewhere.post("/v1/responses", &body).await.json();
    let answer = Speaker::Responses.read(&answer);
    assert_eq!(answer.text, "a@example.org or b@example.org");
}

#[tokio::test]
async fn personal_data_comes_back_wherever_a_stream_is_cut() {
    let upstream = Upstream::start().await;
    let gateway = redacting(&upstream, "").await;
    let text = "Ask [[e-mail-1]] [e-mail-2";
    for cut in 1..text.len() {
        upstream.will_stream([&text[..cut], &text[cut..]]);
        let stream = gateway.stream("scripted", "I am a@example.org").await;
        assert_eq!(
            stream.content().await,
            "Ask [a@example.org] [e-mail-2",
            "{cut}"
        );
    }
}

#[tokio::test]
async fn only_the_beginning_of_a_placeholder_is_held_back() {
    let upstream = Upstream::start().await;
    let gateway = redacting(&upstream, "").await;
    let gate = Gate::new();
    let reply = Reply::chat_stream(["Hello, you! [e-", "mail-1]"]);
    upstream.will(reply.gate_before_piece(1, &gate));
    let mut stream = gateway.stream("scripted", "I am a@example.org").await;
    let mut begun = String::new();
    while !begun.ends_with("! ") {
        let chunk = stream.next_chunk().await;
        begun.push_str(
            chunk["choices"][0]["delta"]["content"]
                .as_str()
                .unwrap_or_default(),
        );
    }
    assert_eq!(begun, "Hello, you! ");
    gate.open();
    assert_eq!(stream.content().await, "a@example.org");
}

#[tokio::test]
async fn personal_data_is_hidden_in_calls_and_tools_and_comes_back_in_arguments() {
    let upstream = Upstream::start().await;
    let gateway = redacting(&upstream, "").await;
    let call = |arguments: &str| json!({ "id": "1", "type": "function", "function": { "name": "mail", "arguments": arguments } });
    let tools = |address: &str| {
        json!([{ "type": "function", "function": {
            "name": "mail",
            "description": format!("Sends from {address}"),
            "parameters": { "type": "object", "properties": {
                "to": { "type": "string", "description": format!("Not {address}") },
            } },
        } }])
    };
    let ask = |stream: bool| {
        json!({
            "model": "scripted", "stream": stream, "tools": tools("ops@example.org"),
            "messages": [
                { "role": "system", "content": "You serve c@example.org" },
                { "role": "user", "content": "Write" },
                { "role": "assistant", "tool_calls": [call(r#"{"to":"\na@example.org"}"#)] },
                { "role": "tool", "tool_call_id": "1", "content": r#"{"sent":["a@example.org"]}"# },
            ],
        })
    };
    let made = r#"{"to":"[e-mail-3]","cc":["[e-mail-1]","x@example.org"]}"#;
    let restored = r#"{"to":"a@example.org","cc":["ops@example.org","x@example.org"]}"#;
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call(made)] });
    upstream.will(Reply::chat_message(&message, "tool_calls"));
    let client = gateway.client();
    let answer = client
        .post("/v1/chat/completions", &ask(false))
        .await
        .json();
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], restored);
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["tools"], tools("[e-mail-1]"));
    assert_eq!(sent["messages"][0]["content"], "You serve [e-mail-2]");
    let call_sent = &sent["messages"][2]["tool_calls"][0];
    assert_eq!(
        call_sent["function"]["arguments"],
        r#"{"to":"\n[e-mail-3]"}"#
    );
    assert_eq!(sent["messages"][3]["content"], r#"{"sent":["[e-mail-3]"]}"#);
    for cut in 1..made.len() {
        let piece = |arguments: &str| json!({ "tool_calls": [{ "index": 0, "function": { "arguments": arguments } }] });
        let mut begin = call("");
        begin["index"] = json!(0);
        let deltas = [
            json!({ "role": "assistant", "tool_calls": [begin] }),
            piece(&made[..cut]),
            piece(&made[cut..]),
        ];
        upstream.will(Reply::chat_deltas(&deltas, "tool_calls"));
        let stream = client.stream("/v1/chat/completions", &ask(true)).await;
        let chunks = chunks(&stream.rest().await);
        let pieces = chunks.iter().filter_map(|chunk| {
            chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str()
        });
        assert_eq!(pieces.collect::<String>(), restored, "{cut}");
    }
}

#[tokio::test]
async fn personal_data_is_hidden_in_documents_and_comes_back_in_reasoning() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .provider("scripted", "anthropic", Some(&upstream))
        .model("scripted", &["scripted"])
        .tables("[[filters]]\nslot = \"redact-pii\"\n")
        .start()
        .await;
    let document = |address: &str| {
        json!({
            "type": "document", "title": format!("By {address}"),
            "source": { "type": "text", "media_type": "text/plain", "data": format!("I am {address}") },
        })
    };
    let said = |address: &str, thought: Value| {
        json!([
            { "role": "user", "content": [document(address)] },
            { "role": "assistant", "content": thought },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t", "content": [document(address)] },
            ] },
        ])
    };
    let call = json!({ "type": "tool_use", "id": "t", "name": "look", "input": {} });
    let thinking = |address: &str| {
        let text = format!("It is {address}, not somebody else");
        json!({ "type": "thinking", "thinking": text, "signature": "c2ln" })
    };
    let ask = |thought: Value| {
        json!({
            "model": "scripted", "max_tokens": 100,
            "tools": [{ "name": "look", "input_schema": { "type": "object" } }],
            "messages": said("a@example.org", thought),
        })
    };
    let mine = |address: &str| {
        let mut thinking = thinking(address);
        thinking["provider"] = json!("scripted");
        json!([thinking, call])
    };
    upstream.will(Reply::json(
        200,
        &json!({
            "id": "msg_up", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
            "content": [
                { "type": "thinking", "thinking": "Hm, [e-mail-1]", "signature": "c2ln" },
                { "type": "text", "text": "You are [e-mail-1]" },
            ],
            "usage": { "input_tokens": 5, "output_tokens": 7 },
        }),
    ));
    let client = gateway.client();
    let answer = client
        .post("/v1/messages", &ask(mine("a@example.org")))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // The provider gets its signed reasoning as it wrote it.
    let sent = upstream.next_request().await.json();
    let expected = said("[e-mail-1]", json!([thinking("[e-mail-1]"), call]));
    assert_eq!(sent["messages"], expected);
    let content = &answer.json()["content"];
    assert_eq!(content[0]["thinking"], "Hm, a@example.org");
    assert_eq!(content[1]["text"], "You are a@example.org");
    // Signed reasoning with another address cannot change.
    let refused = client
        .post("/v1/messages", &ask(mine("x@example.org")))
        .await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(
        refused.text().contains("(e-mail) in signed reasoning"),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn clients_of_every_dialect_get_their_data_back() {
    let upstream = Upstream::start().await;
    let gateway = redacting(&upstream, "").await;
    let client = gateway.client();
    for speaker in Speaker::ALL {
        let question = |stream| speaker.question("scripted", "I am a@example.org", stream);
        upstream.will(Reply::chat("You are [e-mail-1]"));
        let answer = client
            .post(&speaker.path("scripted", false), &question(false))
            .await;
        assert_eq!(speaker.read(&answer.json()).text, "You are a@example.org");
        upstream.will_stream(["You are [e-ma", "il-1]"]);
        let stream = client
            .follow(
                Method::POST,
                &speaker.path("scripted", true),
                &question(true),
            )
            .await;
        let told = speaker.read_stream(&stream.rest().await);
        assert_eq!(told.text, "You are a@example.org", "{speaker:?}");
    }
}

#[tokio::test]
async fn personal_data_is_found_across_the_pieces_of_a_stream() {
    let upstream = Upstream::start().await;
    let gateway = redacting(&upstream, "").await;
    let pieces = [
        "Ask ad",
        "a@exa",
        "mple.o",
        "rg, 4111 11",
        "11 1111 1111",
        ". Do",
        "ne",
    ];
    upstream.will_stream(pieces);
    let events = gateway.stream("scripted", "Who?").await.rest().await;
    assert_eq!(said(&events), "Ask [e-mail], [card]. Done");
    assert_eq!(events.last().map(String::as_str), Some("data: [DONE]"));
    // Redacted output is never repaired later.
    assert!(!events.concat().contains("4111"), "{events:?}");
}

#[tokio::test]
async fn an_operator_says_what_is_redacted() {
    let upstream = Upstream::start().await;
    let options = "options = { kinds = \"ip,phone\", answers = \"false\" }\n";
    let gateway = redacting(&upstream, options).await;
    upstream.will(Reply::chat("From 10.0.0.1"));
    let answer = gateway.chat("scripted", "a@example.org at 10.0.0.1").await;
    assert_eq!(last_said(&upstream), "a@example.org at [ip-1]");
    assert_eq!(answer.content(), "From 10.0.0.1");
    // Values come back, even if nothing else changes in responses.
    upstream.will(Reply::chat("From [ip-1] and 10.0.0.2"));
    let answer = gateway.chat("scripted", "10.0.0.1").await;
    assert_eq!(answer.content(), "From 10.0.0.1 and 10.0.0.2");
    let filter = "[[filters]]\nslot = \"redact-pii\"\noptions = { kinds = \"names\" }\n";
    let refused = Gateway::builder().tables(filter).try_start().await;
    let why = refused.err().map(|error| format!("{error:#}"));
    let why = why.expect("it does not start");
    assert!(
        why.contains("filters[0].options.kinds: must be a list of"),
        "{why}"
    );
}

fn two(short: &Upstream, long: &Upstream, options: &str) -> Builder {
    Gateway::builder()
        .provider("long", "openai", Some(long))
        .provider("short", "openai", Some(short))
        .model("both", &["long", "short"])
        .tables(&format!(
            "[[filters]]\nslot = \"route-by-length\"\noptions = {{ {options} }}\n"
        ))
}

#[tokio::test]
async fn short_requests_go_here_and_long_ones_there() {
    let (short, long) = (Upstream::start().await, Upstream::start().await);
    let options = "limit = \"1000\", short = \"short\", long = \"long\"";
    let gateway = two(&short, &long, options).start().await;
    short.always(Reply::chat("short"));
    long.always(Reply::chat("long"));
    let ask = async |text: &str| gateway.chat("both", text).await.content();
    assert_eq!(ask("hello").await, "short");
    assert_eq!(ask(&"hello ".repeat(2_000)).await, "long");
    assert_eq!((short.count(), long.count()), (1, 1));
    // The other upstreams remain as fallbacks.
    let failed: Value = json!({ "error": { "message": "overloaded", "type": "server_error" } });
    short.always(Reply::json(503, &failed));
    assert_eq!(ask("hello").await, "long");
    let unlimited = two(&short, &long, "short = \"short\"").try_start().await;
    let why = unlimited.err().map(|error| format!("{error:#}"));
    assert!(why.is_some_and(|why| why.contains("filters[0].options.limit: must be set")));
}

#[tokio::test]
async fn a_moderation_service_decides_about_requests() {
    let (upstream, service) = (Upstream::start().await, Upstream::start().await);
    let start = async |options: &str| {
        let url = service.base_url();
        let filter = format!(
            "[[filters]]\nslot = \"moderate\"\noptions = {{ {options} }}\n\
             service = {{ url = \"{url}/v1/moderations\", private = true }}\n"
        );
        let gateway = Gateway::builder().upstream("scripted", &upstream);
        gateway.tables(&filter).start().await
    };
    // In the shape of `ModerationCreateResponse` of the Python package openai 3.57.0.
    let judge = |flagged: bool| {
        let result = json!({ "flagged": flagged, "categories": { "hate": flagged, "violence": false },
            "category_scores": { "hate": 0.9, "violence": 0.1 } });
        let body =
            json!({ "id": "modr-1", "model": "omni-moderation-latest", "results": [result] });
        service.will(Reply::json(200, &body));
    };
    let gateway = start("").await;
    judge(false);
    upstream.will(Reply::chat("served"));
    let answer = gateway.chat("scripted", "hello").await;
    assert_eq!(answer.content(), "served");
    let asked = service.next_request().await;
    assert_eq!(asked.path, "/v1/moderations");
    let expected = json!({ "model": "omni-moderation-latest", "input": ["hello"] });
    assert_eq!(asked.json(), expected);
    judge(true);
    let refused = gateway.chat("scripted", "I hate you").await;
    let refused = refused.error(400, "CONTENT_FILTERED");
    let why = "The filter moderate rejects this request: it is not allowed by the moderation service: hate.";
    assert_eq!(refused["message"], why);
    service.will(Reply::new(200).body("no JSON"));
    let failed = gateway.chat("scripted", "hello").await;
    failed.error(502, "FILTER_FAILED");

    let gateway = start("response = \"Let us be kind.\"").await;
    judge(true);
    let answer = gateway.chat("scripted", "I hate you").await;
    assert_eq!(answer.content(), "Let us be kind.");
    assert_eq!((upstream.count(), service.count()), (1, 4));

    // An operator exempts an account.
    let admin = gateway.admin("olivia").await;
    let path = format!("/admin/users/{USER}/filter-options");
    let options = json!({ "filter_options": { "moderation": "off" } });
    let body = serde_json::to_vec(&options).expect("JSON");
    let json = Some("application/json");
    let set = admin.send(Method::PUT, &path, json, body.into()).await;
    assert_eq!(set.status, 200, "{}", set.text());
    upstream.will(Reply::chat("served"));
    let answer = gateway.chat("scripted", "I hate you").await;
    assert_eq!(answer.content(), "served");
    assert_eq!(service.count(), 4);
}
