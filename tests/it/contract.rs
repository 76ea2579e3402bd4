//! Contract 0.2, over real sockets and real Wasm: an adapter's output reaches its recipients, and an adapter is
//! limited to its description.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::gateway::{Builder, copy_compiled_plugins};
use tests::scripts::{citation, end, finish, opaque, start, text};
use tests::stores::Postgres;
use tests::{Answer, Client, Gateway, Reply, Upstream, chat, chunks, guests, patiently};
use weir_sandbox::Digest;
use weir_storage::Database;
use weir_storage::secrets::SecretUrl;

use crate::cli::{folder_with_compiled_plugins, run, text as said};

/// A gateway whose model `hostile` obeys commands, without an upstream.
async fn hostile() -> Gateway {
    Gateway::builder()
        .guest("hostile", guests::misbehaving(), None)
        .start()
        .await
}

/// A gateway whose model `hostile` obeys commands, with an upstream.
async fn hostile_on(upstream: &Upstream) -> Gateway {
    Gateway::builder()
        .guest("hostile", guests::misbehaving(), Some(upstream))
        .start()
        .await
}

async fn command(gateway: &Gateway, command: Value) -> Answer {
    gateway.chat("hostile", &command.to_string()).await
}

fn script(events: Value) -> Value {
    json!({ "behave": "script", "steps": [{ "Emit": events }, "Done"] })
}

/// Returns the guest's input.
async fn echoed(gateway: &Gateway, body: &Value) -> Value {
    let answer = gateway.client().post("/chat", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_str(&answer.content()).expect("the guest answers JSON")
}

/// Sends a request with these fields, and reads the complete response.
async fn ask(gateway: &Gateway, model: &str, fields: &Value) -> Answer {
    gateway.client().post("/chat", &asking(model, fields)).await
}

/// Streams a request with these fields, and returns the deltas. The response must be complete.
async fn deltas(gateway: &Gateway, model: &str, fields: &Value) -> Vec<Value> {
    let (client, body) = (gateway.client(), asking(model, fields));
    let events = client.stream("/chat", &body).await.rest().await;
    assert_eq!(
        events.last().map(String::as_str),
        Some("data: [DONE]"),
        "{events:?}"
    );
    let deltas = chunks(&events).into_iter().map(|chunk| {
        let choice = &chunk["choices"][0];
        match &choice["finish_reason"] {
            Value::Null => choice["delta"].clone(),
            reason => json!({ "finish_reason": reason }),
        }
    });
    deltas.collect()
}

/// A new instance links each import, in each request.
#[test]
fn bundled_plugins_import_nothing_of_wasi() {
    for plugin in weir_bundled::BUNDLE.plugins() {
        let decoded = wit_component::decode(&plugin.bytes).expect("a component");
        let wit_component::DecodedWasm::Component(resolve, world) = decoded else {
            panic!("{} is a package", plugin.name);
        };
        for import in resolve.worlds[world].imports.keys() {
            let import = resolve.name_world_key(import);
            let is_own = import.starts_with("weir:plugin/");
            assert!(is_own, "{} imports {import}", plugin.name);
        }
    }
}

fn asking(model: &str, fields: &Value) -> Value {
    let mut body = chat(model, "hello");
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// Returns the values of all deltas under a name.
fn under<'a>(deltas: &'a [Value], name: &str) -> Vec<&'a Value> {
    deltas.iter().filter_map(|delta| delta.get(name)).collect()
}

/// Returns the entries of all deltas' lists of a name, in order.
fn entries<'a>(deltas: &'a [Value], name: &str) -> Vec<&'a Value> {
    let lists = under(deltas, name).into_iter();
    lists.filter_map(Value::as_array).flatten().collect()
}

// Blocks

#[tokio::test]
async fn calls_that_an_upstream_interleaves_reach_a_client_interleaved_and_whole_if_it_does_not_stream()
 {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let begins = |index: u32, id: &str, name: &str| {
        let function = json!({ "name": name, "arguments": "" });
        let call = json!({ "index": index, "id": id, "type": "function", "function": function });
        json!({ "tool_calls": [call] })
    };
    let goes_on = |index: u32, arguments: &str| {
        let call = json!({ "index": index, "function": { "arguments": arguments } });
        json!({ "tool_calls": [call] })
    };
    let sent = [
        begins(0, "c0", "look"),
        begins(1, "c1", "listen"),
        goes_on(0, "{\"at\":"),
        goes_on(1, "{\"to\":"),
        goes_on(0, "[1,"),
        goes_on(1, "[2,"),
        goes_on(0, "3]}"),
        goes_on(1, "4]}"),
    ];
    let tools =
        ["look", "listen"].map(|name| json!({ "type": "function", "function": { "name": name } }));
    let fields = json!({ "tools": tools });

    upstream.will(Reply::chat_deltas(&sent, "tool_calls"));
    let deltas = deltas(&gateway, "scripted", &fields).await;
    let heard: Vec<_> = entries(&deltas, "tool_calls");
    let wanted: Vec<_> = entries(&sent, "tool_calls");
    assert_eq!(heard, wanted);
    let last = deltas.last().expect("an end");
    assert_eq!(last["finish_reason"], "tool_calls");

    upstream.will(Reply::chat_deltas(&sent, "tool_calls"));
    let answer = ask(&gateway, "scripted", &fields).await.json();
    let function = |id: &str, name: &str, arguments: &str| {
        let function = json!({ "name": name, "arguments": arguments });
        json!({ "id": id, "type": "function", "function": function })
    };
    assert_eq!(
        answer["choices"][0]["message"]["tool_calls"],
        json!([
            function("c0", "look", "{\"at\":[1,3]}"),
            function("c1", "listen", "{\"to\":[2,4]}"),
        ])
    );
}

/// Returns the charges, and their tokens of output.
async fn charges(gateway: &Gateway) -> Vec<(i64, i64)> {
    let rows = sqlx::query_as(
        "SELECT plan_delta + top_up_delta, tokens_output FROM entries WHERE hold_id IS NOT NULL \
         AND kind <> 'release' ORDER BY number",
    );
    let rows: Vec<(i64, i64)> = rows
        .fetch_all(gateway.folded_database().await.reader())
        .await
        .expect("the entries can be read");
    rows.into_iter()
        .map(|(delta, tokens)| (-delta, tokens))
        .collect()
}

#[tokio::test]
async fn what_came_before_a_failure_is_delivered_and_charged_and_nothing_else_is() {
    for place in ["body", "end"] {
        // A gateway each: five failures in a row would open the breaker.
        let upstream = Upstream::start().await;
        upstream.always(Reply::json(200, &json!({})));
        let gateway = hostile_on(&upstream).await;
        let mut requests = 0;
        // Ten tokens of four bytes.
        let said = "so far, so good, and then it all broke! ";
        let fail = |events: Value| {
            let failure = json!({ "kind": "Unavailable", "text": "went away" });
            json!({ "behave": "fail", "in": place, "failure": failure, "events": events })
        };
        let fails = fail(json!([start(0), text(0, said)])).to_string();
        let stream = gateway.stream("hostile", &fails).await;
        assert_eq!(stream.status, 200);
        let events = stream.rest().await;
        assert_eq!(
            chunks(&events)[0]["choices"][0]["delta"]["content"],
            said,
            "{events:?}"
        );
        let last = events.last().expect("an end");
        let error = last.strip_prefix("event: error\ndata: ");
        let error = error.unwrap_or_else(|| panic!("no error: {events:?}"));
        let error: Value = serde_json::from_str(error).expect("JSON");
        assert_eq!(error["error"]["code"], "UPSTREAM_UNAVAILABLE");
        requests += 1;
        assert_eq!(upstream.count(), requests, "it is not asked again");
        let charged = charges(&gateway).await;
        let (credits, tokens_output) = *charged.last().expect("a charge");
        assert_eq!(tokens_output, 10, "{place}");
        assert!(credits >= 10 * 2 * 1_400, "{credits}");

        // A client without a stream gets only the error, and pays nothing; but the upstream has worked, so there is
        // no retry.
        let answer = gateway.chat("hostile", &fails).await;
        answer.error(503, "UPSTREAM_UNAVAILABLE");
        assert_eq!(charges(&gateway).await, charged);
        requests += 1;
        assert_eq!(upstream.count(), requests);
        // There is a retry if no output had arrived, which costs nothing either.
        let fails = fail(json!([])).to_string();
        let stream = gateway.stream("hostile", &fails).await;
        assert_eq!(stream.status, 503);
        assert_eq!(charges(&gateway).await, charged);
        requests += 2;
        assert_eq!(upstream.count(), requests);
    }
}

#[tokio::test]
async fn an_opaque_block_makes_the_round_trip() {
    let gateway = hostile().await;
    let kind = "web_search_tool_result";
    let json = r#"{"found":[{"score":0.25,"title":"Grüße \"aus\" Łódź"},null],"type":"web_search_tool_result"}"#;
    let value: Value = serde_json::from_str(json).expect("JSON");
    let events = json!([
        start(0),
        text(0, "Found."),
        end(0),
        opaque(1, kind, json),
        finish()
    ]);
    let command = script(events).to_string();

    let answer = gateway.chat("hostile", &command).await;
    assert!(answer.text().contains(json), "as it is: {}", answer.text());
    let message = &answer.json()["choices"][0]["message"];
    assert_eq!(
        message["provider_specific_fields"],
        json!({ "blocks": [{ "kind": kind, "block": value, "provider": "hostile" }] })
    );

    let fields = json!({ "messages": [{ "role": "user", "content": command }] });
    let deltas = deltas(&gateway, "hostile", &fields).await;
    let streamed = under(&deltas, "provider_specific_fields");
    assert_eq!(
        streamed,
        [
            &json!({ "blocks": [{ "index": 0, "kind": kind, "block": value, "provider": "hostile" }] })
        ]
    );

    // Both forms of the response have it unchanged.
    let echo =
        json!({ "role": "user", "content": json!({ "behave": "echo-request" }).to_string() });
    for fields in [&message["provider_specific_fields"], streamed[0]] {
        let mut message = message.clone();
        message["provider_specific_fields"] = fields.clone();
        let messages = json!([{ "role": "user", "content": "search" }, message, echo]);
        let seen = echoed(
            &gateway,
            &json!({ "model": "hostile", "messages": messages }),
        )
        .await;
        let parts = &seen["request"]["task"]["Chat"]["messages"][1]["parts"];
        let parts = parts.as_array().expect("a list");
        let sent_back: Vec<_> = parts
            .iter()
            .filter_map(|part| part["content"].get("Opaque"))
            .collect();
        assert_eq!(
            sent_back,
            [&json!({ "kind": kind, "json": json })],
            "{seen}"
        );
        assert!(
            parts.iter().any(|part| part["provider"] == "hostile"),
            "who wrote it is known: {seen}"
        );
    }
}

#[tokio::test]
async fn a_refusal_is_one_and_its_answer_has_stopped() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let message = json!({ "role": "assistant", "content": null, "refusal": "I'd rather not." });
    upstream.will(Reply::chat_message(&message, "stop"));
    let answer = gateway.chat("scripted", "hello").await;
    let choice = &answer.json()["choices"][0];
    assert_eq!(choice["message"]["refusal"], "I'd rather not.");
    assert_eq!(choice["message"]["content"], Value::Null);
    assert_eq!(choice["finish_reason"], "stop");

    let sent = [
        json!({ "role": "assistant", "refusal": "I'd " }),
        json!({ "refusal": "rather not." }),
    ];
    upstream.will(Reply::chat_deltas(&sent, "stop"));
    let deltas = deltas(&gateway, "scripted", &json!({})).await;
    assert_eq!(under(&deltas, "refusal"), ["I'd ", "rather not."]);
    assert_eq!(under(&deltas, "content"), [] as [&Value; 0]);
    assert_eq!(deltas.last(), Some(&json!({ "finish_reason": "stop" })));
}

fn url_citation(url: &str, title: &str, from: u32, to: u32) -> Value {
    let citation = json!({ "url": url, "title": title, "start_index": from, "end_index": to });
    json!({ "type": "url_citation", "url_citation": citation })
}

fn without_index(entry: &Value) -> Value {
    let mut entry = entry.clone();
    entry.as_object_mut().expect("an object").remove("index");
    entry
}

#[tokio::test]
async fn a_citation_stands_behind_the_same_characters_for_the_client_as_for_the_upstream() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    // Two blocks of text, with a thought in between; 13 characters and more bytes in the first.
    let first = url_citation("https://a.example/", "Wehr", 6, 9);
    let second = url_citation("https://b.example/", "Fluß", 16, 20);
    let sent = [
        json!({ "role": "assistant", "content": "Am 🌊 Wehr: ja" }),
        json!({ "annotations": [first] }),
        json!({ "reasoning_content": "And then?" }),
        json!({ "content": ". Der Fluß auch." }),
        json!({ "annotations": [second] }),
    ];
    upstream.will(Reply::chat_deltas(&sent, "stop"));
    let streamed = deltas(&gateway, "scripted", &json!({})).await;
    let annotations = entries(&streamed, "annotations");
    let indexes: Vec<_> = annotations.iter().map(|entry| &entry["index"]).collect();
    assert_eq!(indexes, [0, 1]);
    let annotations: Vec<_> = annotations.into_iter().map(without_index).collect();
    assert_eq!(annotations, [first.clone(), second.clone()]);

    upstream.will(Reply::chat_deltas(&sent, "stop"));
    let answer = gateway.chat("scripted", "hello").await.json();
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["content"], "Am 🌊 Wehr: ja. Der Fluß auch.");
    assert_eq!(message["annotations"], json!([first, second]));

    // The contract counts from each block's own beginning; a citation without a span covers the block so far.
    let gateway = hostile().await;
    let events = json!([
        start(0),
        text(0, "Zwölf, "),
        end(0),
        start(1),
        text(1, "drei "),
        citation(1, "https://c.example/", None, None),
        text(1, "vier"),
        citation(1, "https://d.example/", Some("D"), Some((5, 9))),
        end(1),
        finish(),
    ]);
    let fields = json!({ "messages": [{ "role": "user", "content": script(events).to_string() }] });
    let wanted = [
        url_citation("https://c.example/", "https://c.example/", 7, 12),
        url_citation("https://d.example/", "D", 12, 16),
    ];
    let streamed = deltas(&gateway, "hostile", &fields).await;
    let annotations: Vec<_> = entries(&streamed, "annotations")
        .into_iter()
        .map(without_index)
        .collect();
    assert_eq!(annotations, wanted);
    let answer = ask(&gateway, "hostile", &fields).await.json();
    assert_eq!(
        answer["choices"][0]["message"]["annotations"],
        json!(wanted)
    );
}

#[tokio::test]
async fn a_custom_tool_and_its_calls_go_both_ways() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let grammar = json!({ "syntax": "lark", "definition": "start: /[a-z]+/" });
    let tools = json!([
        { "type": "custom", "custom": {
            "name": "query", "description": "Runs SQL.",
            "format": { "type": "grammar", "grammar": grammar },
        } },
        { "type": "custom", "custom": { "name": "say" } },
        { "type": "function", "function": { "name": "look", "parameters": { "type": "object", "properties": {} } } },
    ]);
    let choice = json!({ "type": "allowed_tools", "allowed_tools": { "mode": "required", "tools": [
        { "type": "custom", "custom": { "name": "query" } },
        { "type": "function", "function": { "name": "look" } },
    ] } });
    // Free text may have any form.
    let call = json!({ "id": "c1", "type": "custom", "custom": { "name": "query", "input": "SELECT \"1\";" } });
    let called = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let fields = json!({ "tools": tools, "tool_choice": choice, "messages": [
        { "role": "user", "content": "ask" },
        called,
        { "role": "tool", "tool_call_id": "c1", "content": "1" },
    ] });

    let mut next = call.clone();
    next["id"] = "c2".into();
    let says = json!({ "role": "assistant", "content": null, "tool_calls": [next] });
    upstream.will(Reply::chat_message(&says, "tool_calls"));
    let answer = ask(&gateway, "scripted", &fields).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    for field in ["tools", "tool_choice", "messages"] {
        assert_eq!(sent[field], fields[field], "{field}");
    }
    let answer = &answer.json()["choices"][0];
    assert_eq!(answer["message"]["tool_calls"], json!([next]));
    assert_eq!(answer["finish_reason"], "tool_calls");

    let begins = json!({ "index": 0, "id": "c2", "type": "custom", "custom": { "name": "query", "input": "" } });
    let goes_on = |input: &str| json!({ "index": 0, "custom": { "input": input } });
    let calls = [begins, goes_on("SELECT "), goes_on("\"1\";")];
    let pieces = calls.clone().map(|call| json!({ "tool_calls": [call] }));
    upstream.will(Reply::chat_deltas(&pieces, "tool_calls"));
    let deltas = deltas(&gateway, "scripted", &fields).await;
    assert_eq!(
        entries(&deltas, "tool_calls"),
        calls.iter().collect::<Vec<_>>()
    );
}

/// A tool's format reaches an adapter in one form for every client dialect.
#[tokio::test]
async fn a_grammar_reaches_an_adapter_in_the_contracts_form() {
    let gateway = hostile().await;
    let format =
        json!({ "type": "grammar", "grammar": { "syntax": "lark", "definition": "start: /a/" } });
    let fields = json!({
        "messages": [{ "role": "user", "content": json!({ "behave": "echo-request" }).to_string() }],
        "tools": [{ "type": "custom", "custom": { "name": "query", "format": format } }],
    });
    let seen = echoed(&gateway, &asking("hostile", &fields)).await;
    let format = &seen["request"]["task"]["Chat"]["tools"][0]["kind"]["Custom"]["format"];
    let format: Value = serde_json::from_str(format.as_str().expect("JSON")).expect("JSON");
    assert_eq!(
        format,
        json!({ "type": "grammar", "syntax": "lark", "definition": "start: /a/" })
    );
}

// Attachments

/// Returns this many bytes without a repeated stretch.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[tokio::test]
async fn attachments_larger_than_a_guests_memory_reach_the_upstream_as_they_are() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("seen"));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nbody_bytes = 33554432\n[plugins.limits]\nmemory_bytes = 4194304\n")
        .start()
        .await;
    // Not a multiple of three, so that the base64 is padded.
    let data = STANDARD.encode(noise((9 << 20) + 1));
    assert!(data.len() > 12 << 20 && data.ends_with('='));
    let image = format!("data:image/png;base64,{data}");
    let document = format!("data:application/pdf;base64,{data}");
    for (part, place) in [
        (
            json!({ "type": "image_url", "image_url": { "url": image } }),
            "/messages/0/content/1/image_url/url",
        ),
        (
            json!({ "type": "file", "file": { "filename": "a \"b\".pdf", "file_data": document } }),
            "/messages/0/content/1/file/file_data",
        ),
    ] {
        let content = json!([{ "type": "text", "text": "What is this?" }, part, { "type": "text", "text": "And?" }]);
        let fields = json!({ "messages": [{ "role": "user", "content": content }] });
        let answer = ask(&gateway, "scripted", &fields).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = upstream.next_request().await.json();
        let arrived = sent.pointer(place).and_then(Value::as_str);
        let arrived = arrived.unwrap_or_else(|| panic!("nothing at {place}"));
        let meant = part.pointer(&place["/messages/0/content/1".len()..]);
        let meant = meant.and_then(Value::as_str).expect("it is there");
        assert_eq!(arrived.len(), meant.len());
        assert!(arrived == meant, "the bytes differ");
        // A mismatch is not printed.
        assert!(
            sent["messages"] == fields["messages"],
            "all around them differs"
        );
    }
}

// Fields beyond the vocabulary

/// A request with an unknown field in every object that may have some.
fn with_unknown_fields() -> Value {
    json!({
        "messages": [
            { "role": "user", "x_message": { "deep": [1, null, "ü"] }, "content": [
                { "type": "text", "text": "hello", "x_part": [0.5, true] },
            ] },
        ],
        "tools": [{ "type": "function", "x_tool": "a\nb", "function": {
            "name": "look", "parameters": { "type": "object", "properties": {} }, "x_function": {},
        } }],
    })
}

#[tokio::test]
async fn fields_that_weir_does_not_know_reach_an_upstream_of_the_clients_dialect_as_they_were_sent()
{
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("ok"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let fields = with_unknown_fields();
    let answer = ask(&gateway, "scripted", &fields).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    for field in ["messages", "tools"] {
        assert_eq!(sent[field], fields[field], "{field}");
    }
    assert!(!answer.headers.contains_key("x-weir-ignored"));
}

#[tokio::test]
async fn fields_that_an_upstream_of_another_dialect_cannot_be_told_are_refused_or_ignored_by_name()
{
    let gateway = Gateway::start().await;
    let all = with_unknown_fields();
    let without = |paths: &[&str]| {
        let mut fields = all.clone();
        for path in paths {
            let (object, field) = path.rsplit_once('/').expect("a path");
            let object = fields.pointer_mut(object).and_then(Value::as_object_mut);
            object.expect("an object").remove(field).expect("a field");
        }
        fields
    };
    let message = "/messages/0/x_message";
    let part = "/messages/0/content/0/x_part";
    let tool = "/tools/0/x_tool";
    let function = "/tools/0/function/x_function";
    for (others, name) in [
        ([part, tool, function], "x_message"),
        ([message, tool, function], "x_part"),
        ([message, part, function], "x_tool"),
        ([message, part, tool], "function.x_function"),
    ] {
        let answer = ask(&gateway, "demo", &without(&others)).await;
        let error = answer.error(400, "UNSUPPORTED_PARAMETER");
        assert_eq!(error["param"], name);
    }
    let answer = ask(&gateway, "demo", &without(&[message, part, tool, function])).await;
    assert_eq!(answer.content(), "You said: hello");
    assert!(!answer.headers.contains_key("x-weir-ignored"));

    let answer = ask(&gateway, "demo", &json!({ "x_request": 1 })).await;
    let error = answer.error(400, "UNSUPPORTED_PARAMETER");
    assert_eq!(error["param"], "x_request");
    let labelled = json!({ "metadata": { "a": "b" }, "user": "u-1" });
    let answer = ask(&gateway, "demo", &labelled).await;
    assert_eq!(answer.content(), "You said: hello");
    let ignored = answer.headers["x-weir-ignored"].to_str().expect("ASCII");
    let mut ignored: Vec<_> = ignored.split(", ").collect();
    ignored.sort_unstable();
    assert_eq!(ignored, ["metadata", "user"]);
}

#[tokio::test]
async fn what_was_ignored_is_named_in_a_header_of_the_answer_that_ignored_it() {
    let (upstream, other) = (Upstream::start().await, Upstream::start().await);
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .guest("hostile", guests::misbehaving(), Some(&other))
        .model("both", &["scripted", "hostile"])
        .start()
        .await;
    let part = json!({ "type": "text", "text": "hello", "cache_control": { "type": "ephemeral" } });
    let hint = json!({ "messages": [{ "role": "user", "content": [part] }] });

    upstream.will(Reply::chat("ok"));
    let answer = ask(&gateway, "scripted", &hint).await;
    assert_eq!(answer.content(), "ok");
    assert_eq!(answer.headers["x-weir-ignored"], "cache_control");
    let sent = upstream.next_request().await;
    assert!(!String::from_utf8_lossy(&sent.body).contains("cache_control"));

    upstream.will_stream(["o", "k"]);
    let stream = gateway
        .client()
        .stream("/chat", &asking("scripted", &hint))
        .await;
    assert_eq!(stream.headers["x-weir-ignored"], "cache_control");
    assert_eq!(stream.content().await, "ok");

    upstream.will(Reply::chat("ok")).will_stream(["o", "k"]);
    let answer = gateway.chat("scripted", "hello").await;
    assert!(!answer.headers.contains_key("x-weir-ignored"));
    let stream = gateway.stream("scripted", "hello").await;
    assert!(!stream.headers.contains_key("x-weir-ignored"));

    // The upstream that responds in the end ignored no field.
    upstream.always(Reply::error(503, "overloaded"));
    let answer = ask(&gateway, "both", &hint).await;
    assert_eq!(answer.content(), "ok");
    assert!(
        !answer.headers.contains_key("x-weir-ignored"),
        "{:?}",
        answer.headers
    );
}

#[tokio::test]
async fn names_of_ignored_fields_are_a_guests_words_and_bounded_as_such() {
    let gateway = hostile().await;
    let long = "x".repeat(1_000);
    let silly = json!([
        "fine",
        "a\r\nset-cookie: b=c",
        "a,b",
        "a b",
        "",
        "naïve",
        "\u{0}",
        long,
        "also-fine"
    ]);
    let many: Vec<_> = (0..100).map(|n| format!("field_{n}")).collect();
    for (names, wanted) in [
        (silly, vec!["fine".to_owned(), "also-fine".to_owned()]),
        (json!(many), many[..32].to_vec()),
        (json!(["a\nb", long]), Vec::new()),
    ] {
        let ignore = json!({ "behave": "ignore", "names": names }).to_string();
        let answer = gateway.chat("hostile", &ignore).await;
        assert_eq!(answer.content(), "ok");
        let stream = gateway.stream("hostile", &ignore).await;
        for headers in [&answer.headers, &stream.headers] {
            let ignored = headers
                .get("x-weir-ignored")
                .map(|value| value.to_str().expect("ASCII"));
            let ignored: Vec<_> = ignored
                .into_iter()
                .flat_map(|value| value.split(", "))
                .collect();
            assert_eq!(ignored, wanted);
            assert!(!headers.contains_key("set-cookie"));
        }
        assert_eq!(stream.content().await, "ok");
    }
}

// Options

/// A builder whose slot `greeter` accepts every value of `option`, and whose provider of that name sets this one.
fn greeter(option: &str) -> Builder {
    Gateway::builder()
        .guest("greeter", &guests::wat_guest("takes-options"), None)
        .tables(&format!(
            "[providers.greeter.options]\noption = {option:?}\n"
        ))
}

async fn install(admin: &Client, component: &[u8], query: &str) -> Answer {
    let path = format!("/admin/plugins/greeter{query}");
    admin.put_component(&path, component).await
}

async fn activate(admin: &Client, digest: &str) -> Answer {
    let digest = json!({ "digest": digest });
    admin.post("/admin/plugins/greeter/activate", &digest).await
}

/// Returns the digest that the slot serves with on this node, and the digest wanted on all nodes.
async fn standing(admin: &Client, slot: &str) -> (Value, Value) {
    let slot = admin.get(&format!("/admin/plugins/{slot}")).await.json();
    (slot["serving"].clone(), slot["active"].clone())
}

#[tokio::test]
async fn a_gateway_does_not_start_with_an_option_that_its_adapter_refuses() {
    for (option, complaint) in [
        (
            "refused",
            "providers.hostile.options.option: must not be `refused`",
        ),
        ("spin", "providers.hostile.options: cannot be validated: "),
        ("trap", "providers.hostile.options: cannot be validated: "),
        ("huge", "providers.hostile.options: cannot be validated: "),
    ] {
        let started = Gateway::builder()
            .guest("hostile", guests::misbehaving(), None)
            .tables(&format!(
                "[providers.hostile.options]\noption = {option:?}\n"
            ))
            .try_start()
            .await;
        let error = started
            .err()
            .unwrap_or_else(|| panic!("{option}: it started"));
        let error = format!("{error:#}");
        assert!(error.contains(complaint), "{error}");
    }

    let folder = folder_with_compiled_plugins();
    let toml = "[providers.a]\nadapter = \"openai\"\nbase_url = \"http://x\"\n\
                options = { stream-usage = \"maybe\", output-limit-field = \"max_tokens\" }\n";
    std::fs::write(folder.path().join("weir.toml"), toml).expect("the file can be written");
    let check = run(folder.path(), &["check"]);
    assert!(!check.status.success());
    let complaint = said(&check.stderr);
    let wanted = "providers.a.options.stream-usage: must be true or false";
    assert!(complaint.contains(wanted), "{complaint}");
}

#[tokio::test]
async fn a_component_that_refuses_an_option_is_not_activated_and_no_request_is_the_worse() {
    for (component, option, complaint) in [
        (
            guests::misbehaving(),
            "refused",
            "providers.greeter.options.option: must not be `refused`",
        ),
        (guests::misbehaving(), "spin", "used up its processor time"),
        (guests::misbehaving(), "trap", "trapped"),
        (
            guests::misbehaving(),
            "huge",
            "providers.greeter.options: cannot be validated",
        ),
        (
            &guests::wat_guest("configures-much"),
            "any",
            "the component's configuration has 65537 bytes, more than 65536",
        ),
    ] {
        let gateway = greeter(option).start().await;
        let admin = gateway.admin("olivia").await;
        let (old, _) = standing(&admin, "greeter").await;
        let refused = async {
            let at_once = install(&admin, component, "?activate=true").await;
            let later = install(&admin, component, "").await;
            assert_eq!(later.status, 201, "{}", later.text());
            let digest = Digest::of(component).to_string();
            [at_once, activate(&admin, &digest).await]
        };
        let served = async {
            for _ in 0..20 {
                for (model, wanted) in [("greeter", "ok"), ("demo", "You said: hello")] {
                    assert_eq!(gateway.chat(model, "hello").await.content(), wanted);
                }
            }
        };
        let (refused, ()) = tokio::join!(refused, served);
        for answer in refused {
            let error = answer.error(409, "PLUGIN_DOES_NOT_FIT");
            let message = error["message"].as_str().expect("a text");
            assert!(message.contains(complaint), "{option}: {message}");
        }
        assert_eq!(standing(&admin, "greeter").await, (old.clone(), old));
        // The old component always sends this text; the new one would obey.
        let command = json!({ "behave": "echo-request" }).to_string();
        assert_eq!(gateway.chat("greeter", &command).await.content(), "ok");
    }
}

#[tokio::test]
async fn what_an_adapter_makes_of_its_options_is_what_each_exchange_is_given() {
    let gateway = Gateway::builder()
        .guest("hostile", guests::misbehaving(), None)
        .tables(
            "[providers.hostile.options]\noption = \"Grüße\"\n\
             [providers.plain]\nadapter = \"hostile\"\nbase_url = \"http://127.0.0.1:9\"\n",
        )
        .model("plain", &["plain"])
        .start()
        .await;
    let echo = json!({ "behave": "echo-request" }).to_string();
    for (model, configuration) in [
        ("hostile", json!([["option", "Grüße"]])),
        ("plain", json!([])),
        ("hostile", json!([["option", "Grüße"]])),
    ] {
        let seen = echoed(&gateway, &chat(model, &echo)).await;
        let text = seen["configuration"].as_str().expect("a text");
        let made: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(made, configuration, "{model}");
    }
}

/// A gateway starts with the components that its operators have activated, regardless of its file: otherwise no
/// operator could repair it.
#[tokio::test]
async fn an_option_that_an_activated_component_refuses_later_sends_requests_to_the_next_upstream() {
    let gateway = greeter("fine").start().await;
    let admin = gateway.admin("olivia").await;
    let answer = install(&admin, guests::misbehaving(), "?activate=true").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let folder = gateway.stop().await;
    let next = Upstream::start().await;
    next.always(Reply::chat("from the next"));
    let gateway = greeter("refused")
        .folder(folder)
        .upstream("scripted", &next)
        .model("both", &["greeter", "scripted"])
        .start()
        .await;
    let answer = gateway.chat("both", "hello").await;
    assert_eq!(answer.content(), "from the next");
    let answer = gateway.chat("greeter", "hello").await;
    answer.error(503, "ADAPTER_UNAVAILABLE");
    assert!(!answer.text().contains("refused"), "{}", answer.text());
}

// The context of `begin`

#[tokio::test]
async fn an_exchange_is_told_who_asks_and_how_much_time_is_left() {
    let first = Upstream::start().await;
    let gateway = Gateway::builder()
        .upstream("first", &first)
        .guest("hostile", guests::misbehaving(), None)
        .model("both", &["first", "hostile"])
        .tables("[timeouts]\ntotal_ms = 60000\n")
        .start()
        .await;
    let echo = json!({ "behave": "echo-request" }).to_string();
    let told = async |model: &str, user: Option<&str>| {
        let mut body = chat(model, &echo);
        if let Some(user) = user {
            body["user"] = user.into();
        }
        let seen = echoed(&gateway, &body).await["request"].clone();
        let number = |name: &str| seen[name].as_u64().expect("a number");
        let (attempt, deadline_ms) = (number("attempt"), number("deadline_ms"));
        (attempt, deadline_ms, seen["client"].clone())
    };
    let (attempt, left_ms, client) = told("hostile", Some("u-1")).await;
    assert_eq!(attempt, 1);
    assert!((50_000..=60_000).contains(&left_ms), "{left_ms}");
    assert_eq!(client["dialect"], "openai-chat");
    assert_eq!(client["end_user"], "u-1");
    let (_, _, client) = told("hostile", None).await;
    assert_eq!(client["end_user"], Value::Null);

    // An upstream that does not know the model gets one request.
    let unknown = json!({ "error": { "message": "no such model", "code": "model_not_found" } });
    first.will(Reply::json(404, &unknown));
    let (attempt, _, _) = told("both", None).await;
    assert_eq!((attempt, first.count()), (2, 1));
    // An unavailable upstream gets a retry after a pause.
    let pause = "retry-after-ms";
    first.always(Reply::error(503, "overloaded").header(pause, "700"));
    let (attempt, left_ms, _) = told("both", None).await;
    assert_eq!((attempt, first.count()), (3, 3));
    assert!(left_ms <= 60_000 - 700, "{left_ms}");
}

#[tokio::test]
async fn a_second_attempt_on_one_upstream_is_told_that_it_is_the_second() {
    let gateway = Gateway::builder()
        .guest("late", &guests::wat_guest("unavailable-first"), None)
        .start()
        .await;
    for _ in 0..2 {
        assert_eq!(gateway.chat("late", "hello").await.content(), "2");
        let stream = gateway.stream("late", "hello").await;
        assert_eq!(stream.content().await, "2");
    }
}

// Failures

#[tokio::test]
async fn each_kind_of_failure_is_a_documented_error() {
    let gateway = hostile().await;
    let said = "in the adapter's words";
    // The text, if it is about the client's own request.
    for (kind, status, code, tells) in [
        ("Unsupported", 400, "UNSUPPORTED_PARAMETER", true),
        ("Rejected", 400, "UPSTREAM_REJECTED", true),
        ("ContextLength", 400, "CONTEXT_LENGTH_EXCEEDED", true),
        ("Filtered", 400, "CONTENT_FILTERED", true),
        ("ModelNotFound", 502, "UPSTREAM_ERROR", false),
        ("Unauthorized", 502, "UPSTREAM_ERROR", false),
        ("Malformed", 502, "UPSTREAM_ERROR", false),
        ("RateLimited", 503, "UPSTREAM_UNAVAILABLE", false),
        ("Unavailable", 503, "UPSTREAM_UNAVAILABLE", false),
    ] {
        for place in ["begin", "next"] {
            let failure =
                json!({ "kind": kind, "text": said, "upstream_error": "{\"a\":\"secret\"}" });
            let fail = json!({ "behave": "fail", "in": place, "failure": failure });
            let answer = command(&gateway, fail.clone()).await;
            let error = answer.error(status, code);
            let message = error["message"].as_str().expect("a text");
            assert_eq!(message.contains(said), tells, "{kind}: {message}");
            assert!(!answer.text().contains("secret"), "{}", answer.text());
            let stream = gateway.stream("hostile", &fail.to_string()).await;
            assert_eq!(
                stream.status.as_u16(),
                status,
                "{kind}: nothing was told before"
            );
        }
    }
}

#[tokio::test]
async fn a_failure_names_the_field_that_is_to_blame() {
    let gateway = hostile().await;
    for (kind, text, given, param) in [
        (
            "Unsupported",
            "must be absent",
            json!("top_k"),
            json!("top_k"),
        ),
        (
            "Unsupported",
            "top_k: must be absent",
            Value::Null,
            json!("top_k"),
        ),
        (
            "Unsupported",
            "no",
            json!("tools[0].function.x"),
            json!("tools[0].function.x"),
        ),
        ("Unsupported", "no", json!("a\r\nb"), json!("a\\r\\nb")),
        ("ContextLength", "too long", Value::Null, json!("messages")),
        ("Rejected", "no such value", Value::Null, Value::Null),
    ] {
        let failure = json!({ "kind": kind, "text": text, "param": given });
        let fail = json!({ "behave": "fail", "in": "begin", "failure": failure });
        let answer = command(&gateway, fail).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["param"], param, "{kind} {given}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_upstream_names_the_field_that_it_blames() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    for (code, param, told) in [
        ("invalid_value", "temperature", "UPSTREAM_REJECTED"),
        ("content_filter", "messages[0].content", "CONTENT_FILTERED"),
    ] {
        let error = json!({ "message": "no", "param": param, "code": code });
        upstream.will(Reply::json(400, &json!({ "error": error })));
        let answer = gateway.chat("scripted", "hello").await;
        let error = answer.error(400, told);
        assert_eq!(error["param"], param, "{error}");
    }
}

#[tokio::test]
async fn a_failure_says_when_to_try_again_to_weir_and_then_to_the_client() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::json(200, &json!({})));
    let gateway = hostile_on(&upstream).await;
    for kind in ["RateLimited", "Unavailable"] {
        let asked_before = upstream.count();
        let failure = json!({ "kind": kind, "text": "slow down", "retry_after_ms": 1_200 });
        let fail = json!({ "behave": "fail", "in": "end", "failure": failure });
        let started = Instant::now();
        let answer = command(&gateway, fail).await;
        answer.error(503, "UPSTREAM_UNAVAILABLE");
        assert_eq!(answer.headers["retry-after"], "2");
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(1_200), "{took:?}");
        assert_eq!(upstream.count() - asked_before, 2, "{kind}");
    }
}

#[tokio::test]
async fn a_model_that_one_upstream_does_not_know_is_the_next_ones_to_answer() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let unknown = json!({ "error": { "message": "no such model", "code": "model_not_found" } });
    first.always(Reply::json(404, &unknown));
    second.always(Reply::chat("from the second"));
    let gateway = Gateway::builder()
        .upstream("first", &first)
        .upstream("second", &second)
        .model("both", &["first", "second"])
        .start()
        .await;
    let answer = gateway.chat("both", "hello").await;
    assert_eq!(answer.content(), "from the second");
    assert_eq!((first.count(), second.count()), (1, 1));
    let answer = gateway.chat("first", "hello").await;
    answer.error(502, "UPSTREAM_ERROR");
    assert_eq!(first.count(), 2, "it would say the same again");
}

// Descriptions

#[tokio::test]
async fn a_header_that_its_description_does_not_name_is_not_sent() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::json(200, &json!({})));
    let gateway = hostile_on(&upstream).await;
    for name in [
        "x-other",
        "user-agent",
        "accept-language",
        "x-mine-too",
        "x-api-key",
    ] {
        let headers = json!([["x-mine", "1"], [name, "2"]]);
        let send = json!({ "behave": "send", "headers": headers });
        command(&gateway, send).await.error(502, "ADAPTER_FAILED");
        assert_eq!(upstream.connections(), 0, "{name}");
    }
    let send = json!({ "behave": "send", "headers": [["x-mine", "1"], ["accept", "x/y"]] });
    assert_eq!(command(&gateway, send).await.status, 200);
    let sent = upstream.next_request().await;
    assert_eq!(
        (sent.header("x-mine"), sent.header("accept")),
        (Some("1"), Some("x/y"))
    );
}

#[tokio::test]
async fn a_path_outside_the_prefixes_of_its_description_is_not_asked_for() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::json(200, &json!({})));
    let gateway = Gateway::builder()
        .guest("strays", &guests::wat_guest("strays"), Some(&upstream))
        .model("outside", &["strays"])
        .start()
        .await;
    let answer = gateway.chat("outside", "hello").await;
    answer.error(502, "ADAPTER_FAILED");
    assert_eq!(upstream.connections(), 0);
    assert_eq!(gateway.chat("strays", "hello").await.content(), "ok");
    assert_eq!(upstream.next_request().await.path, "/v1/completions");
}

#[tokio::test]
async fn response_headers_that_its_description_asks_for_reach_an_adapter_and_no_others() {
    let upstream = Upstream::start().await;
    let shown = [
        ("x-asked", "1"),
        ("x-all-", "2"),
        ("x-all-remaining-tokens", "3"),
        ("X-ALL-Upper", "4"),
        ("content-type", "application/json"),
        ("retry-after", "5"),
        ("retry-after-ms", "6"),
        ("x-should-retry", "false"),
    ];
    let hidden = [
        ("x-asked-too", "no"),
        ("x-al", "no"),
        ("x-allowed", "no"),
        ("set-cookie", "a=b"),
        ("www-authenticate", "Basic"),
        ("x-request-id", "no"),
        ("server", "no"),
        // The credential itself, under any header name.
        ("x-all-echoed", tests::gateway::UPSTREAM_CREDENTIAL),
    ];
    let mut reply = Reply::new(200).body("{}");
    for (name, value) in shown.iter().chain(&hidden) {
        reply = reply.header(name, value);
    }
    upstream.will(reply);
    let gateway = hostile_on(&upstream).await;
    let answer = command(&gateway, json!({ "behave": "send" })).await;
    let seen: Value = serde_json::from_str(&answer.content()).expect("JSON");
    let headers: Vec<(String, String)> =
        serde_json::from_value(seen["headers"].clone()).expect("pairs");
    let mut headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let mut wanted = shown.map(|(name, value)| (name.to_ascii_lowercase(), value));
    headers.sort_unstable();
    wanted.sort_unstable();
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    assert_eq!(headers, wanted);
}

/// Changes the stored descriptions of installed components.
async fn forge_descriptions(url: &SecretUrl, from: &str, to: &str) {
    let database = Database::open(url).await.expect("it opens");
    let changed = sqlx::query("UPDATE plugins SET description = REPLACE(description, $1, $2)")
        .bind(from.to_owned())
        .bind(to.to_owned())
        .execute(database.writer())
        .await;
    assert!(changed.expect("it can be written").rows_affected() > 0);
    database.close().await;
}

#[tokio::test]
async fn a_component_that_describes_itself_otherwise_than_where_it_was_installed_does_not_serve() {
    let with_slots = || {
        Gateway::builder()
            .guest("greeter", &guests::answering("aa"), None)
            .provider("acme", "acme", None)
            .model("acme", &["acme"])
    };
    let gateway = Gateway::builder()
        .guest("greeter", &guests::answering("aa"), None)
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    let component = guests::answering("bb");
    let installed = Value::from(Digest::of(&component).to_string());
    for slot in ["greeter", "acme"] {
        let path = format!("/admin/plugins/{slot}?activate=true");
        let answer = admin.put_component(&path, &component).await;
        assert_eq!(answer.json()["active"], true, "{}", answer.text());
    }
    let url = gateway.app().config.database_url();
    let folder = gateway.stop().await;

    // As if another node's build had read it differently.
    forge_descriptions(
        &url,
        "\"path_prefixes\":[\"/\"]",
        "\"path_prefixes\":[\"/v1\"]",
    )
    .await;
    let gateway = with_slots().folder(folder).start().await;
    let admin = gateway.admin("olivia").await;
    for slot in ["greeter", "acme"] {
        let answer = gateway.chat(slot, "hello").await;
        answer.error(503, "ADAPTER_UNAVAILABLE");
        assert_eq!(
            standing(&admin, slot).await,
            (Value::Null, installed.clone())
        );
    }
    // The component cannot be activated here either.
    let digest = installed.as_str().expect("a digest");
    let error = activate(&admin, digest).await.error(422, "PLUGIN_REFUSED");
    assert_eq!(error["step"], "describe", "{error}");
    let folder = gateway.stop().await;

    // Another spelling is the same description.
    forge_descriptions(
        &url,
        "\"path_prefixes\":[\"/v1\"]",
        "\"path_prefixes\": [ \"/\" ]",
    )
    .await;
    let gateway = with_slots().folder(folder).start().await;
    let admin = gateway.admin("olivia").await;
    for slot in ["greeter", "acme"] {
        assert_eq!(gateway.chat(slot, "hello").await.content(), "bb");
        assert_eq!(
            standing(&admin, slot).await,
            (installed.clone(), installed.clone())
        );
    }
}

// Nodes

/// Work for the compiler: some seconds of it.
const MANY_FUNCTIONS: usize = 12_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_compiles_for_one_slot_hears_of_changes_of_others() {
    let url = Postgres::shared().create_database().await;
    let node = || {
        Gateway::builder()
            .postgres(&url)
            // Compilers have a low priority: beside a build of something else, this one takes minutes.
            .tables("[plugins.compile]\ntimeout_ms = 600000\n")
            .guest("greeter", &guests::answering("aa"), None)
            .guest("big", &guests::answering("aa"), None)
    };
    let first = node().start().await;
    let big = guests::with_functions(MANY_FUNCTIONS);
    let digest = Digest::of(&big);
    // A separate folder of compiled code: the node must compile components that the other has compiled already.
    let folder = tempfile::tempdir().expect("a folder");
    copy_compiled_plugins(&folder.path().join("data"), Some(&digest));
    let second = node().folder(folder).sharing_secrets_of(&first);
    let second = second.start().await;
    let admin = first.admin("olivia").await;
    let serves = async |letters: &str| {
        patiently(async {
            while second.chat("greeter", "hello").await.content() != letters {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    };
    for letters in ["bb", "cc"] {
        let answer = install(&admin, &guests::answering(letters), "?activate=true").await;
        assert_eq!(answer.json()["active"], true, "{}", answer.text());
        serves(letters).await;
    }

    let digest = Value::from(digest.to_string());
    // The activation completes once the second node has compiled it, too.
    let activating = tokio::spawn({
        let (admin, big) = (admin.clone(), big.clone());
        async move {
            let path = "/admin/plugins/big?activate=true";
            admin.put_component(path, &big).await
        }
    });
    patiently(async {
        let asked = "SELECT CAST(COUNT(*) AS BIGINT) FROM load_questions";
        let asked = || sqlx::query_scalar::<_, i64>(asked).fetch_one(first.app().database.reader());
        while asked().await.expect("the database") == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let answer = admin
        .post("/admin/plugins/greeter/rollback", &json!({}))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serves("bb").await;
    assert!(!activating.is_finished(), "the second node still compiles");
    assert_eq!(second.chat("big", "hello").await.content(), "aa");
    let answer = activating.await.expect("no panic");
    assert_eq!(answer.json()["active"], true, "{}", answer.text());
    patiently(async {
        while standing(&admin.at(second.address()), "big").await.0 != digest {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
