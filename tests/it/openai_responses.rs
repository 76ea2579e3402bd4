//! OpenAI's Responses API for clients, with a provider of every adapter.

use std::time::Duration;

use serde_json::{Value, json};
use tests::scenario::{RESPONSES, Scenario, apis, gateway_with};
use tests::source::for_each_provider_adapter;
use tests::{Answer, Client, EventStream, Gate, Gateway, Reply, Upstream, chat};

use weir_storage::clock::ManualClock;

use crate::anthropic_messages::{ADAPTERS, broken_stream, rich, rich_replies, said};
use crate::sessions::{lines, sent};

pub(crate) const PATH: &str = "/v1/responses";

/// A request with these additional fields.
fn asked(fields: &Value) -> Value {
    let mut body = json!({
        "model": "scripted", "input": "Hello",
        "tools": [{ "type": "function", "name": "look", "parameters": { "type": "object" }, "strict": false }],
    });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

async fn ask(client: &Client, fields: Value) -> Answer {
    let answer = client.post(PATH, &asked(&fields)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

/// The events of a stream. Each has a sequence number, and its type as its name.
async fn events(stream: EventStream) -> Vec<Value> {
    let events = stream.rest().await;
    let events = events
        .iter()
        .filter(|event| !event.starts_with(':'))
        .enumerate();
    events
        .map(|(number, event)| {
            let (name, data) = event.split_once('\n').expect("a name and data");
            let data = data.strip_prefix("data: ").expect("data");
            let data: Value = serde_json::from_str(data).expect("JSON");
            assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
            assert_eq!(data["sequence_number"], number, "{data}");
            check_fields(&data);
            data
        })
        .collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter();
    kinds
        .map(|event| event["type"].as_str().expect("a type"))
        .collect()
}

fn last(events: &[Value]) -> &Value {
    events.last().expect("an event")
}

/// All text of a response.
fn text(response: &Value) -> String {
    let items = response["output"].as_array().expect("items").iter();
    let parts = items
        .filter_map(|item| item["content"].as_array())
        .flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// The items of a response with this type.
fn items<'a>(response: &'a Value, kind: &str) -> Vec<&'a Value> {
    let items = response["output"].as_array().expect("items").iter();
    items.filter(|item| item["type"] == kind).collect()
}

/// Checks the fields that the schema requires of an event, and of its item or part.
fn check_fields(event: &Value) {
    const OF_PART: &[&str] = &["item_id", "output_index", "content_index"];
    const OF_SUMMARY: &[&str] = &["item_id", "output_index", "summary_index"];
    let (place, own): (&[&str], &[&str]) = match event["type"].as_str().expect("a type") {
        "response.created"
        | "response.in_progress"
        | "response.completed"
        | "response.incomplete"
        | "response.failed" => {
            check_response(&event["response"]);
            (&["response"], &[])
        }
        "response.output_item.added" | "response.output_item.done" => {
            check_item(&event["item"]);
            (&["output_index"], &["item"])
        }
        "response.content_part.added" | "response.content_part.done" => (OF_PART, &["part"]),
        "response.output_text.delta" => (OF_PART, &["delta", "logprobs"]),
        "response.output_text.done" => (OF_PART, &["text", "logprobs"]),
        "response.refusal.delta" => (OF_PART, &["delta"]),
        "response.refusal.done" => (OF_PART, &["refusal"]),
        "response.reasoning_summary_part.added" | "response.reasoning_summary_part.done" => {
            (OF_SUMMARY, &["part"])
        }
        "response.reasoning_summary_text.delta" => (OF_SUMMARY, &["delta"]),
        "response.reasoning_summary_text.done" => (OF_SUMMARY, &["text"]),
        "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
            (&OF_PART[..2], &["delta"])
        }
        "response.function_call_arguments.done" => (&OF_PART[..2], &["arguments"]),
        "response.custom_tool_call_input.done" => (&OF_PART[..2], &["input"]),
        "error" => (&["code", "param"], &["message", "error"]),
        other => panic!("{other}"),
    };
    let fields = event.as_object().expect("an object");
    for field in place.iter().chain(own) {
        assert!(fields.contains_key(*field), "{field}: {event}");
    }
    let known = place.len() + own.len() + 2;
    assert_eq!(fields.len(), known, "{event}");
}

/// Checks the fields that the schema requires of an output item.
fn check_item(item: &Value) {
    let fields: &[&str] = match item["type"].as_str().expect("a type") {
        "message" => &["id", "status", "role", "content"],
        "reasoning" => &["id", "summary", "encrypted_content"],
        "function_call" => &["id", "status", "call_id", "name", "arguments"],
        "custom_tool_call" => &["id", "status", "call_id", "name", "input"],
        "image_generation_call" => &["id", "status", "result", "output_format"],
        other => panic!("{other}"),
    };
    for field in fields {
        assert!(item.get(field).is_some(), "{field}: {item}");
    }
    for part in item["content"].as_array().into_iter().flatten() {
        match part["type"].as_str().expect("a type") {
            "output_text" => {
                assert!(
                    part["text"].is_string() && part["annotations"].is_array(),
                    "{part}"
                );
            }
            "refusal" => assert!(part["refusal"].is_string(), "{part}"),
            other => panic!("{other}"),
        }
    }
}

/// Checks the fields that the schema requires of a response, and their types.
fn check_response(response: &Value) {
    let is = |value: &Value, kind: &str| match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    for (field, types) in [
        ("id", "string"),
        ("object", "string"),
        ("created_at", "integer"),
        ("completed_at", "integer null"),
        ("status", "string"),
        ("incomplete_details", "object null"),
        ("model", "string"),
        ("previous_response_id", "string null"),
        ("instructions", "string null"),
        ("output", "array"),
        ("error", "object null"),
        ("tools", "array"),
        ("tool_choice", "string object"),
        ("truncation", "string"),
        ("parallel_tool_calls", "boolean"),
        ("text", "object"),
        ("top_p", "number"),
        ("presence_penalty", "number"),
        ("frequency_penalty", "number"),
        ("top_logprobs", "integer"),
        ("temperature", "number"),
        ("reasoning", "object null"),
        ("usage", "object null"),
        ("max_output_tokens", "integer null"),
        ("max_tool_calls", "integer null"),
        ("store", "boolean"),
        ("background", "boolean"),
        ("service_tier", "string"),
        ("metadata", "object"),
        ("safety_identifier", "string null"),
        ("prompt_cache_key", "string null"),
    ] {
        let value = response
            .get(field)
            .unwrap_or_else(|| panic!("{field} is missing: {response}"));
        let is_one = types.split(' ').any(|kind| is(value, kind));
        assert!(is_one, "{field} is no {types}: {value}");
    }
    assert_eq!(response["object"], "response");
    let id = response["id"].as_str().expect("an id");
    assert!(id.starts_with("resp_"), "{id}");
    for item in response["output"].as_array().expect("items") {
        check_item(item);
    }
    for tool in response["tools"].as_array().expect("tools") {
        let fields: &[&str] = match tool["type"].as_str() {
            Some("function") => &["name", "description", "parameters", "strict"],
            _ => &["name", "format"],
        };
        for field in fields {
            assert!(tool.get(field).is_some(), "{field}: {tool}");
        }
    }
    if let Some(usage) = response["usage"].as_object() {
        for path in [
            "/input_tokens",
            "/input_tokens_details/cached_tokens",
            "/output_tokens",
            "/output_tokens_details/reasoning_tokens",
            "/total_tokens",
        ] {
            let count = response["usage"].pointer(path);
            assert!(count.is_some_and(Value::is_u64), "{path}: {usage:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_is_the_same_from_each_provider_and_costs_what_chat_does() {
    for (adapter, (whole, _)) in rich_replies() {
        let upstream = Upstream::start().await;
        upstream.always(whole);
        let gateway = Gateway::with_adapter(&adapter, &upstream).await;
        let client = gateway.client();
        let answer = ask(&client, json!({ "store": false })).await.json();
        check_response(&answer);
        assert_eq!(answer["status"], "completed");
        assert_eq!(answer["model"], "scripted");
        assert_eq!(text(&answer), "Hi there", "{adapter}");
        assert_eq!(answer["output"][0]["type"], "reasoning", "{adapter}");
        let summary = &answer["output"][0]["summary"];
        assert_eq!(summary, &json!([{ "type": "summary_text", "text": "Hm." }]));
        let called = items(&answer, "function_call")[0];
        assert_eq!(
            (&called["call_id"], &called["name"]),
            (&json!("t1"), &json!("look"))
        );
        let arguments = called["arguments"].as_str().expect("a text");
        assert_eq!(
            serde_json::from_str::<Value>(arguments).expect("JSON"),
            json!({ "at": 1 })
        );

        let mut question = chat("scripted", "Hello");
        question["tools"] = json!([{ "type": "function", "function": { "name": "look" } }]);
        let same = client.post("/v1/chat/completions", &question).await.json();
        let (usage, chats) = (&answer["usage"], &same["usage"]);
        assert_eq!(usage["credits"], chats["credits"], "{adapter}");
        assert!(
            usage["credits"]
                .as_f64()
                .is_some_and(|credits| credits > 0.0)
        );
        assert_eq!(usage["input_tokens"], chats["prompt_tokens"], "{adapter}");
        assert_eq!(usage["output_tokens"], 7, "{adapter}");
        assert_eq!(usage["total_tokens"], chats["total_tokens"]);
    }
}

#[tokio::test]
async fn a_stream_has_openais_events_in_order_and_ends_with_the_whole_answer() {
    for (adapter, (whole, stream)) in rich_replies() {
        let upstream = Upstream::start().await;
        upstream.will(stream.one_byte_at_a_time()).will(whole);
        let gateway = Gateway::with_adapter(&adapter, &upstream).await;
        let client = gateway.client();
        let stream = client.stream(PATH, &asked(&json!({}))).await;
        assert_eq!(stream.status, 200);
        assert_eq!(stream.headers["content-type"], "text/event-stream");
        let events = events(stream).await;
        let mut names = kinds(&events);
        // The number of text events is free.
        names.dedup();
        let item = |events: &[&'static str]| {
            let all = [
                &["response.output_item.added"],
                events,
                &["response.output_item.done"],
            ];
            all.concat()
        };
        let call = item(&[
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
        ]);
        let mut expected = vec!["response.created", "response.in_progress"];
        expected.extend(item(&[
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
        ]));
        expected.extend(item(&[
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
        ]));
        // The stream of `openai` interleaves two calls.
        let calls = if adapter == "openai" { 2 } else { 1 };
        for _ in 0..calls {
            expected.extend(&call);
        }
        expected.push("response.completed");
        assert_eq!(names, expected, "{adapter}");

        let whole = ask(&client, json!({})).await.json();
        let response = &last(&events)["response"];
        assert_eq!(response["usage"], whole["usage"], "{adapter}");
        assert_eq!(text(response), "Hi there", "{adapter}");
        // The final response has the items of the events.
        let done = events
            .iter()
            .filter(|event| event["type"] == "response.output_item.done");
        let done: Vec<_> = done.map(|event| event["item"].clone()).collect();
        assert_eq!(response["output"], json!(done), "{adapter}");
        let without_ids = |response: &Value| {
            let mut output = response["output"].clone();
            for item in output.as_array_mut().expect("items") {
                item.as_object_mut().expect("an item").remove("id");
            }
            output
        };
        if adapter != "openai" {
            assert_eq!(without_ids(response), without_ids(&whole), "{adapter}");
        }
    }
}

const CODEX: &str = include_str!("openai_responses/codex.json");

/// Each adapter serves the fields that Codex always sends, and ignores the fields that its provider lacks.
#[tokio::test]
async fn a_coding_agents_request_is_served_by_each_adapter() {
    let mut body: Value = serde_json::from_str(CODEX).expect("JSON");
    body["model"] = json!("scripted");
    for (adapter, (whole, stream)) in rich_replies() {
        let upstream = Upstream::start().await;
        upstream.will(stream).will(whole);
        let gateway = Gateway::with_adapter(&adapter, &upstream).await;
        let client = gateway
            .client()
            .with_header("openai-beta", "responses=experimental")
            .with_header("originator", "codex_cli_rs");
        let stream = client.stream(PATH, &body).await;
        assert_eq!(stream.status, 200, "{adapter}");
        let ignored = stream.headers["x-weir-ignored"].to_str().expect("ASCII");
        // No provider here sealed the reasoning, and no provider gets data about the client.
        for name in ["reasoning", "client_metadata"] {
            assert!(
                ignored.split(", ").any(|ignored| ignored == name),
                "{adapter}: {ignored}"
            );
        }
        let streamed = events(stream).await;
        assert_eq!(last(&streamed)["type"], "response.completed", "{adapter}");
        assert_eq!(text(&last(&streamed)["response"]), "Hi there", "{adapter}");
        let sent = upstream.next_request().await;
        for words in [
            "You are Codex",
            "I will look.",
            "call_ls",
            "Exit code: 0",
            "*** Begin Patch",
            "apply_patch",
        ] {
            // Gemini's calls have no ids.
            let is_told = String::from_utf8_lossy(&sent.body).contains(words);
            assert!(is_told || words == "call_ls", "{adapter}: {words}");
        }
        assert!(
            !String::from_utf8_lossy(&sent.body).contains("gAAAA"),
            "{adapter}"
        );

        body["stream"] = json!(false);
        let answer = client.post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{adapter}: {}", answer.text());
        let answer = answer.json();
        check_response(&answer);
        assert_eq!(text(&answer), "Hi there", "{adapter}");
        let sent_again = upstream.next_request().await.json();
        let tools = &sent_again["tools"];
        match adapter.as_str() {
            // OpenAI has custom tools.
            "openai" => {
                assert_eq!(tools[2]["custom"]["name"], "apply_patch");
                assert_eq!(tools[2]["custom"]["format"]["grammar"]["syntax"], "lark");
                let calls = &sent_again["messages"][4]["tool_calls"];
                assert_eq!(
                    calls[0]["function"]["name"], "shell_command",
                    "{sent_again}"
                );
                assert_eq!(sent_again["prompt_cache_key"], body["prompt_cache_key"]);
                assert_eq!(sent_again["verbosity"], "medium");
                assert_eq!(sent_again["reasoning_effort"], "medium");
            }
            "anthropic" => {
                let properties = &tools[2]["input_schema"]["properties"];
                assert_eq!(properties, &json!({ "input": { "type": "string" } }));
                let description = tools[2]["description"].as_str().expect("a text");
                assert!(
                    description.contains("begin_patch hunk+ end_patch"),
                    "{description}"
                );
            }
            "gemini" => assert_eq!(tools[0]["functionDeclarations"][2]["name"], "apply_patch"),
            "bedrock" => {
                let tools = &sent_again["toolConfig"]["tools"];
                assert_eq!(tools[2]["toolSpec"]["name"], "apply_patch");
            }
            "ollama" => assert_eq!(tools[2]["function"]["name"], "apply_patch"),
            _ => panic!("the adapter {adapter} has no assertion about its tools; add one here"),
        }
    }
}

/// Items of hosted tools, of a conversation that began elsewhere. Their fields have other types than those of weir's own items.
fn hosted_items() -> Vec<Value> {
    vec![
        json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAB" }),
        json!({ "type": "web_search_call", "id": "ws_1", "status": "completed",
                "action": { "type": "search", "query": "turtles" } }),
        json!({ "type": "local_shell_call", "id": "ls_1", "call_id": "call_1", "status": "completed",
                "action": { "type": "exec", "command": ["ls"], "env": {} } }),
        json!({ "type": "local_shell_call_output", "id": "ls_1", "output": "Cargo.toml" }),
        json!({ "type": "computer_call_output", "call_id": "call_2",
                "output": { "type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo=" } }),
        json!({ "type": "mcp_list_tools", "id": "mcpl_1", "server_label": "m",
                "tools": [{ "name": "a", "input_schema": { "type": "object" }, "annotations": null }] }),
        json!({ "type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c",
                "outputs": null, "status": "completed" }),
    ]
}

#[tokio::test]
async fn items_of_hosted_tools_go_to_servers_of_their_dialect_alone() {
    let say = |role: &str, text: &str| json!({ "role": role, "content": text });
    let hosted = hosted_items();
    let mut input = vec![say("user", "What is this?")];
    input.extend(hosted.iter().cloned());
    input.push(say("assistant", "A turtle."));
    input.push(say("user", "And now?"));
    let mut kinds: Vec<_> = hosted
        .iter()
        .map(|item| item["type"].as_str().expect("a type"))
        .collect();
    kinds.sort_unstable();
    for api in apis() {
        let upstream = Upstream::start().await;
        upstream.always(Scenario::Text.reply(&api, false).expect("an answer"));
        let gateway = gateway_with(&api, &upstream).await;
        let client = gateway.client();
        let body = json!({ "model": "scripted", "input": input, "store": false });
        let answer = client.post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{api}: {}", answer.text());
        let sent = upstream.next_request().await;
        if api == RESPONSES {
            assert!(!answer.headers.contains_key("x-weir-ignored"));
            let sent = sent.json();
            let items = sent["input"].as_array().expect("items");
            assert_eq!(items[1..=hosted.len()], hosted);
            assert_eq!(items.len(), input.len());
            continue;
        }
        let ignored = answer.headers["x-weir-ignored"].to_str().expect("ASCII");
        let mut ignored: Vec<_> = ignored.split(", ").collect();
        ignored.sort_unstable();
        assert_eq!(ignored, kinds, "{api}");
        let sent = String::from_utf8_lossy(&sent.body).into_owned();
        assert!(sent.contains("A turtle."), "{api}: {sent}");
        assert!(!sent.contains("gAAAAB"), "{api}: {sent}");

        // A turn with nothing else is left out.
        let input = [say("user", "What is this?"), hosted[1].clone()];
        let body = json!({ "model": "scripted", "input": input, "store": false });
        let answer = client.post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{api}: {}", answer.text());
    }
}

#[tokio::test]
async fn messages_and_their_phases_go_to_servers_of_their_dialect_and_back() {
    let said = |phase: &str, text: &str| {
        json!({ "type": "message", "role": "assistant", "phase": phase, "status": "completed",
                "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
    };
    let input = [
        json!({ "role": "user", "content": "What is this?" }),
        said("commentary", "I look."),
        said("final_answer", "A turtle."),
        json!({ "role": "user", "content": "And now?" }),
    ];
    let phases = |items: &Value| {
        let items = items.as_array().expect("items").iter();
        let said = items.filter(|item| item["role"] == "assistant");
        let said = said.map(|item| (item["phase"].clone(), item["content"][0]["text"].clone()));
        said.collect::<Vec<_>>()
    };
    for api in apis() {
        let upstream = Upstream::start().await;
        let is_of_dialect = api == RESPONSES;
        upstream.always(match is_of_dialect {
            true => Reply::json(
                200,
                &json!({
                    "id": "resp_1", "object": "response", "status": "completed", "model": "scripted",
                    "output": [said("commentary", "I look again."), said("final_answer", "Gone.")],
                    "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 },
                }),
            ),
            false => Scenario::Text.reply(&api, false).expect("an answer"),
        });
        let gateway = gateway_with(&api, &upstream).await;
        let body = json!({ "model": "scripted", "input": input });
        let answer = gateway.client().post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{api}: {}", answer.text());
        let sent = upstream.next_request().await;
        let ignored = answer.headers.get("x-weir-ignored");
        if !is_of_dialect {
            assert_eq!(ignored.expect("a name"), "phase", "{api}");
            let sent = String::from_utf8_lossy(&sent.body).into_owned();
            assert!(sent.contains("A turtle.") && !sent.contains("final_answer"));
            continue;
        }
        assert_eq!(ignored, None);
        assert_eq!(
            phases(&sent.json()["input"]),
            [
                ("commentary".into(), "I look.".into()),
                ("final_answer".into(), "A turtle.".into())
            ]
        );
        let answer = answer.json();
        assert_eq!(
            phases(&answer["output"]),
            [
                ("commentary".into(), "I look again.".into()),
                ("final_answer".into(), "Gone.".into())
            ]
        );

        // The stored conversation has them, too.
        let body =
            json!({ "model": "scripted", "input": "More", "previous_response_id": answer["id"] });
        let next = gateway.client().post(PATH, &body).await;
        assert_eq!(next.status, 200, "{}", next.text());
        let sent = upstream.next_request().await.json();
        assert_eq!(phases(&sent["input"]).len(), 4, "{sent}");
        assert_eq!(phases(&sent["input"])[3].0, "final_answer");
    }
}

/// A call of the tool `patch` with this free text, as the provider of an adapter sends it.
fn call_of_custom_tool(adapter: &str, patch: &str) -> Option<Reply> {
    let input = json!({ "input": patch });
    let message = match adapter {
        "anthropic" => json!({
            "content": [{ "type": "tool_use", "id": "t1", "name": "patch", "input": input }],
            "stop_reason": "tool_use", "usage": { "input_tokens": 1, "output_tokens": 1 },
        }),
        "gemini" => json!({ "candidates": [{
            "content": { "parts": [{ "functionCall": { "id": "t1", "name": "patch", "args": input } }] },
            "finishReason": "STOP",
        }] }),
        "bedrock" => json!({
            "output": { "message": { "role": "assistant", "content": [
                { "toolUse": { "toolUseId": "t1", "name": "patch", "input": input } },
            ] } },
            "stopReason": "tool_use", "usage": { "inputTokens": 1, "outputTokens": 1, "totalTokens": 2 },
        }),
        "ollama" => json!({
            "message": { "role": "assistant", "tool_calls": [{ "id": "t1", "function": { "name": "patch", "arguments": input } }] },
            "done": true, "done_reason": "stop",
        }),
        "openai" => {
            let call = json!({ "id": "t1", "type": "custom", "custom": { "name": "patch", "input": patch } });
            let message = json!({ "role": "assistant", "tool_calls": [call] });
            return Some(Reply::chat_message(&message, "tool_calls"));
        }
        _ => return None,
    };
    Some(Reply::json(200, &message))
}

/// An adapter passes a custom tool as a function if its provider has no custom tools.
#[tokio::test]
async fn a_custom_tool_is_called_with_free_text_by_each_adapter() {
    let patch = "*** Begin \"Patch\"\n";
    let place = "call_of_custom_tool in tests/it/openai_responses.rs";
    let replies = for_each_provider_adapter(place, |adapter| call_of_custom_tool(adapter, patch));
    for (adapter, reply) in replies {
        let upstream = Upstream::start().await;
        let done = match adapter.as_str() {
            "bedrock" => Scenario::Text.reply(&adapter, false).expect("an answer"),
            _ => said(&adapter, "Done"),
        };
        upstream.will(reply).will(done);
        let gateway = Gateway::with_adapter(&adapter, &upstream).await;
        let client = gateway.client();
        let tools = json!([{ "type": "custom", "name": "patch", "description": "Patches." }]);
        let question = json!({ "role": "user", "content": "Hello" });
        let answer = ask(&client, json!({ "tools": tools, "input": [question] }))
            .await
            .json();
        let call = items(&answer, "custom_tool_call")[0];
        assert_eq!(
            (&call["input"], &call["name"]),
            (&json!(patch), &json!("patch")),
            "{adapter}"
        );
        upstream.next_request().await;
        if adapter == "gemini" || adapter == "ollama" {
            continue;
        }
        let result =
            json!({ "type": "custom_tool_call_output", "call_id": "t1", "output": "patched" });
        ask(
            &client,
            json!({ "tools": tools, "input": [question, call, result] }),
        )
        .await;
        let sent = upstream.next_request().await.json();
        match adapter.as_str() {
            "openai" => {
                let custom = &sent["messages"][1]["tool_calls"][0]["custom"];
                assert_eq!(custom["input"], patch);
                assert_eq!(sent["messages"][2]["content"], "patched");
            }
            "bedrock" => assert_eq!(
                sent["messages"][1]["content"][0]["toolUse"]["input"],
                json!({ "input": patch })
            ),
            _ => assert_eq!(
                sent["messages"][1]["content"][0]["input"],
                json!({ "input": patch })
            ),
        }
    }
}

/// The content of `rich("anthropic")`, as it goes back to the provider.
fn rich_blocks() -> Value {
    json!([
        { "type": "thinking", "thinking": "Hm.", "signature": "c2ln" },
        { "type": "text", "text": "Hi there" },
        { "type": "tool_use", "id": "t1", "name": "look", "input": { "at": 1 } },
        { "type": "tool_use", "id": "t2", "name": "look", "input": {} },
    ])
}

/// Signatures of reasoning and calls survive clients that send items back without knowledge of signatures.
#[tokio::test]
async fn what_only_its_provider_can_read_comes_back_to_it_and_to_no_other() {
    let gemini = Reply::json(
        200,
        &json!({ "candidates": [{
            "content": { "parts": [
                { "text": "Hm.", "thought": true },
                { "functionCall": { "id": "t1", "name": "look", "args": { "at": 1 } }, "thoughtSignature": "Z2Vt" },
                { "functionCall": { "id": "t2", "name": "look", "args": {} } },
            ] },
            "finishReason": "STOP",
        }] }),
    );
    for (adapter, reply) in [("anthropic", rich("anthropic")), ("gemini", gemini)] {
        let upstream = Upstream::start().await;
        let other = Upstream::start().await;
        upstream.will(reply.clone()).will(reply);
        other.always(said("anthropic", "So"));
        let gateway = Gateway::builder()
            .provider("scripted", adapter, Some(&upstream))
            .provider("other", "anthropic", Some(&other))
            .model("scripted", &["scripted"])
            .model("other", &["other"])
            .start()
            .await;
        let client = gateway.client();
        let answer = ask(&client, json!({})).await.json();
        upstream.next_request().await;
        let mut input = vec![json!({ "role": "user", "content": "Hello" })];
        // Typed clients drop unknown fields and the ids of items.
        for item in answer["output"].as_array().expect("items") {
            let mut item = item.clone();
            item.as_object_mut().expect("an item").remove("id");
            input.push(item);
        }
        for id in ["t1", "t2"] {
            input.push(json!({ "type": "function_call_output", "call_id": id, "output": "seen" }));
        }
        let again = client.post(PATH, &asked(&json!({ "input": input }))).await;
        assert_eq!(again.status, 200, "{adapter}: {}", again.text());
        let sent = upstream.next_request().await.json();
        if adapter == "anthropic" {
            assert_eq!(sent["messages"][1]["content"], rich_blocks());
        } else {
            let parts = sent["contents"][1]["parts"].as_array().expect("parts");
            let signed: Vec<_> = parts
                .iter()
                .map(|part| (&part["functionCall"]["id"], &part["thoughtSignature"]))
                .collect();
            let t = [json!("t1"), json!("t2")];
            assert_eq!(signed, [(&t[0], &json!("Z2Vt")), (&t[1], &Value::Null)]);
        }
        let elsewhere = json!({ "model": "other", "input": input });
        let answer = ask(&client, elsewhere).await;
        let sent = other.next_request().await.json().to_string();
        assert!(!sent.contains("c2ln") && !sent.contains("Z2Vt"), "{sent}");
        let ignored = answer.headers["x-weir-ignored"].to_str().expect("ASCII");
        assert!(ignored.contains("reasoning"), "{ignored}");
    }
}

#[tokio::test]
async fn what_an_upstream_cannot_be_told_is_named_as_the_client_calls_it() {
    let upstream = Upstream::start().await;
    upstream.always(said("anthropic", "{}"));
    let gateway = Gateway::with_adapter("anthropic", &upstream).await;
    let client = gateway.client();
    let format = json!({ "type": "json_schema", "name": "n", "schema": { "type": "object" } });
    let answer = ask(
        &client,
        json!({
            "text": { "format": format, "verbosity": "low" }, "truncation": "auto",
            "service_tier": "flex", "metadata": { "a": "b" }, "store": false,
        }),
    )
    .await;
    let ignored = answer.headers["x-weir-ignored"].to_str().expect("ASCII");
    let mut ignored: Vec<_> = ignored.split(", ").collect();
    ignored.sort_unstable();
    let names = [
        "metadata",
        "service_tier",
        "text.format.name",
        "text.verbosity",
        "truncation",
    ];
    assert_eq!(ignored, names);
    // The model is told in words.
    let answer = ask(
        &client,
        json!({ "text": { "format": { "type": "json_object" } } }),
    )
    .await;
    assert_eq!(answer.headers["x-weir-ignored"], "text.format");

    for (fields, param, code) in [
        (json!({ "novelty": 1 }), "novelty", "UNSUPPORTED_PARAMETER"),
        (
            json!({ "tools": [{ "type": "web_search" }], "tool_choice": "required" }),
            "tools[0]",
            "UNSUPPORTED_PARAMETER",
        ),
        (
            json!({ "input": [{ "role": "user", "content": [{ "type": "input_text", "text": "x", "novelty": 1 }] }] }),
            "input[0].novelty",
            "UNSUPPORTED_PARAMETER",
        ),
        (
            json!({ "tool_choice": { "type": "image_generation" } }),
            "tool_choice.type",
            "INVALID_REQUEST",
        ),
        (
            json!({ "background": true }),
            "background",
            "INVALID_REQUEST",
        ),
        (
            json!({ "input": [{ "type": "compaction_trigger" }] }),
            "input[0].type",
            "INVALID_REQUEST",
        ),
    ] {
        let answer = client.post(PATH, &asked(&fields)).await;
        let error = answer.error(400, code);
        assert_eq!(error["param"], param, "{error}");
    }
}

#[tokio::test]
async fn errors_have_openais_envelope_and_codes() {
    let upstream = Upstream::start().await;
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
    let check = |answer: &Answer, status, own, code: Value, param: Value| {
        let error = answer.error(status, own);
        assert_eq!(
            (&error["code"], &error["param"]),
            (&code, &param),
            "{error}"
        );
    };
    for (fields, status, own, code, param) in [
        (
            json!({ "input": null }),
            400,
            "INVALID_REQUEST",
            Value::Null,
            json!("input"),
        ),
        (
            json!({ "model": "none" }),
            404,
            "UNKNOWN_MODEL",
            json!("model_not_found"),
            json!("model"),
        ),
        (
            json!({ "model": "small", "tools": [], "instructions": "word ".repeat(100) }),
            400,
            "CONTEXT_LENGTH_EXCEEDED",
            json!("context_length_exceeded"),
            json!("input"),
        ),
        (
            json!({ "model": "small", "tools": [], "max_output_tokens": 51 }),
            400,
            "OUTPUT_LIMIT_EXCEEDED",
            json!("invalid_value"),
            json!("max_output_tokens"),
        ),
        (
            json!({ "max_output_tokens": 4_000_000 }),
            429,
            "QUOTA_EXCEEDED",
            json!("insufficient_quota"),
            Value::Null,
        ),
    ] {
        let answer = client.post(PATH, &asked(&fields)).await;
        check(&answer, status, own, code, param);
    }
    let stranger = gateway.stranger().post(PATH, &asked(&json!({}))).await;
    check(
        &stranger,
        401,
        "UNAUTHENTICATED",
        json!("invalid_api_key"),
        Value::Null,
    );

    // An error before the response is not a stream.
    upstream.will(Reply::error(400, "no such thing"));
    let mut streamed = asked(&json!({ "max_output_tokens": 10 }));
    streamed["stream"] = json!(true);
    let answer = client.post(PATH, &streamed).await;
    let error = answer.error(400, "UPSTREAM_REJECTED");
    assert!(
        error["message"]
            .as_str()
            .expect("a text")
            .contains("no such thing"),
        "{error}"
    );
}

#[tokio::test]
async fn a_stream_that_fails_ends_with_the_answer_that_failed() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        upstream.will(broken_stream(adapter));
        let gateway = Gateway::with_adapter(adapter, &upstream).await;
        let stream = gateway.client().stream(PATH, &asked(&json!({}))).await;
        let events = events(stream).await;
        assert_eq!(
            kinds(&events),
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "error",
                "response.failed",
            ],
            "{adapter}"
        );
        let error = &events[5]["error"];
        assert_eq!(error["weir_code"], "UPSTREAM_UNAVAILABLE", "{adapter}");
        let response = &last(&events)["response"];
        assert_eq!(response["status"], "failed");
        assert_eq!(response["error"]["code"], "server_error", "{adapter}");
        assert_eq!(response["error"]["message"], error["message"]);
        assert_eq!(response["output"][0]["status"], "incomplete");
        assert_eq!(text(response), "So");
    }
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_comments_and_ends_as_any_other() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::error(400, "no such thing").after_gate(&gate));
    let gateway = Gateway::with_adapter("openai", &upstream).await;
    let mut stream = gateway.client().stream(PATH, &asked(&json!({}))).await;
    assert_eq!(stream.status, 200);
    assert_eq!(stream.next().await.as_deref(), Some(": keep-alive"));
    gate.open();
    let events = events(stream).await;
    assert_eq!(
        kinds(&events),
        [
            "response.created",
            "response.in_progress",
            "error",
            "response.failed"
        ]
    );
}

#[tokio::test]
async fn an_answer_that_was_cut_short_says_why() {
    for (message, reason, status, why) in [
        (json!({ "content": "So" }), "stop", "completed", Value::Null),
        (
            json!({ "content": "So" }),
            "length",
            "incomplete",
            json!("max_output_tokens"),
        ),
        (
            json!({ "content": "So" }),
            "content_filter",
            "incomplete",
            json!("content_filter"),
        ),
        (json!({ "refusal": "No" }), "stop", "completed", Value::Null),
    ] {
        let upstream = Upstream::start().await;
        let mut message = message;
        message["role"] = json!("assistant");
        upstream.will(Reply::chat_message(&message, reason));
        let gateway = Gateway::with_adapter("openai", &upstream).await;
        let answer = ask(&gateway.client(), json!({})).await.json();
        assert_eq!(answer["status"], status, "{answer}");
        assert_eq!(answer["incomplete_details"]["reason"], why, "{answer}");
        let content = &answer["output"][0]["content"][0];
        match message["refusal"].as_str() {
            Some(refusal) => assert_eq!(content["refusal"], refusal),
            None => assert_eq!(content["text"], "So"),
        }
    }
}

#[tokio::test]
async fn a_conversation_goes_on_from_any_of_its_answers() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    let say = async |text: &str, instructions: &str, previous: Option<&str>| {
        upstream.will(Reply::chat(&format!("re {text}")));
        let body = json!({ "input": text, "instructions": instructions, "previous_response_id": previous });
        let answer = ask(&client, body).await.json();
        assert_eq!(answer["previous_response_id"], json!(previous));
        answer["id"].as_str().expect("an id").to_owned()
    };
    let first = say("one", "Be brief.", None).await;
    assert_eq!(
        sent(&upstream).await,
        lines(&[("system", "Be brief."), ("user", "one")])
    );
    // Instructions hold for one response.
    let second = say("two", "", Some(&first)).await;
    let both = [("user", "one"), ("assistant", "re one"), ("user", "two")];
    assert_eq!(sent(&upstream).await, lines(&both));
    say("three", "Be long.", Some(&second)).await;
    let all = [
        &[("system", "Be long.")],
        &both[..],
        &[("assistant", "re two"), ("user", "three")],
    ];
    assert_eq!(sent(&upstream).await, lines(&all.concat()));
    // A second continuation of the first response.
    say("other", "", Some(&first)).await;
    let other = [("user", "one"), ("assistant", "re one"), ("user", "other")];
    assert_eq!(sent(&upstream).await, lines(&other));

    // The response of a stream is continued by its id.
    upstream.will_stream(["re ", "stream"]);
    let stream = client
        .stream(PATH, &asked(&json!({ "input": "four" })))
        .await;
    let id = last(&events(stream).await)["response"]["id"].clone();
    upstream.next_request().await;
    say("five", "", id.as_str()).await;
    let streamed = [
        ("user", "four"),
        ("assistant", "re stream"),
        ("user", "five"),
    ];
    assert_eq!(sent(&upstream).await, lines(&streamed));

    // Its user can read and delete the response as a session.
    let history = client
        .get(&format!("/session/{first}/history"))
        .await
        .json();
    assert_eq!(history["messages"][1]["content"], "re one");
    assert_eq!(
        client.delete(&format!("/session/{first}")).await.status,
        204
    );
    let gone = asked(&json!({ "previous_response_id": first }));
    client
        .post(PATH, &gone)
        .await
        .error(400, "PREVIOUS_RESPONSE_NOT_FOUND");
}

#[tokio::test]
async fn a_conversation_of_responses_is_kept_whole_or_not_at_all() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("noted"));
    let clock = ManualClock::default();
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .clock(&clock)
        .tables("[sessions]\nttl_minutes = 10\nresponse_ttl_minutes = 30\n")
        .start()
        .await;
    let client = gateway.client();
    let say = async |input: Value, previous: &Value| {
        let body = json!({ "input": input, "previous_response_id": previous });
        ask(&client, body).await.json()["id"].clone()
    };
    let mut previous = Value::Null;
    for turn in 0..12 {
        previous = say(json!(format!("turn {turn}")), &previous).await;
        let messages = sent(&upstream).await;
        assert_eq!(messages.len(), 2 * turn + 1);
        assert_eq!(messages[0], lines(&[("user", "turn 0")])[0]);
    }
    clock.advance(Duration::from_secs(29 * 60));
    previous = say(json!("much later"), &previous).await;
    assert_eq!(sent(&upstream).await.len(), 25);

    let image = format!("data:image/png;base64,iVBORw0KGgo{}=", "A".repeat(4 << 20));
    let picture =
        json!([{ "role": "user", "content": [{ "type": "input_image", "image_url": image }] }]);
    let large = say(picture, &previous).await;
    upstream.next_request().await;
    let before = upstream.count();
    let body = asked(&json!({ "previous_response_id": large }));
    let refused = client.post(PATH, &body).await;
    let error = refused.error(400, "INVALID_REQUEST");
    assert_eq!(error["param"], "previous_response_id");
    assert!(
        refused.text().contains("exceeds 4 MiB"),
        "{}",
        refused.text()
    );
    assert_eq!(upstream.count(), before);
    // The conversation before it can be continued.
    say(json!("without the picture"), &previous).await;
}

#[tokio::test]
async fn an_answer_is_gone_on_with_by_its_user_alone_and_only_if_it_was_kept() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("a secret"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    let id = |answer: &Answer| answer.json()["id"].clone();
    let kept = ask(&client, json!({})).await;
    let unkept = ask(&client, json!({ "store": false })).await;
    assert_eq!(unkept.json()["store"], false);
    let made = gateway
        .web("mallory")
        .post("/api-keys", &json!({ "name": "m" }))
        .await;
    let key = made.json()["api_key"].as_str().expect("a key").to_owned();
    let mallory = gateway.stranger().with_key(&key);
    let asked_before = upstream.count();
    for (client, previous) in [
        (&mallory, id(&kept)),
        (&client, id(&unkept)),
        (&client, json!("resp_0")),
        (&client, json!("")),
        (&client, json!("\u{0}")),
    ] {
        let body = asked(&json!({ "previous_response_id": previous }));
        let error = client.post(PATH, &body).await;
        let error = error.error(400, "PREVIOUS_RESPONSE_NOT_FOUND");
        assert_eq!(
            (&error["code"], &error["param"]),
            (
                &json!("previous_response_not_found"),
                &json!("previous_response_id")
            )
        );
    }
    assert_eq!(upstream.count(), asked_before);
    // A response that is not stored can continue a stored response.
    let body = json!({ "previous_response_id": id(&kept), "store": false });
    ask(&client, body).await;
}

/// Results of calls go back with the signatures of the response that made the calls.
#[tokio::test]
async fn a_call_is_answered_by_the_id_of_the_answer_that_made_it() {
    let upstream = Upstream::start().await;
    upstream
        .will(rich("anthropic"))
        .will(said("anthropic", "Done"));
    let gateway = Gateway::with_adapter("anthropic", &upstream).await;
    let client = gateway.client();
    let first = ask(&client, json!({})).await.json();
    upstream.next_request().await;
    let outputs = json!([
        { "type": "function_call_output", "call_id": "t1", "output": "one" },
        { "type": "function_call_output", "call_id": "t2", "output": "two" },
    ]);
    let next = json!({ "previous_response_id": first["id"], "input": outputs });
    assert_eq!(text(&ask(&client, next).await.json()), "Done");
    let sent = upstream.next_request().await.json();
    let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" });
    assert_eq!(sent["messages"][1]["content"][0], thinking);
    assert_eq!(sent["messages"][2]["content"][1]["content"], "two");
}

/// Vercel's SDK refers to stored items by default.
#[tokio::test]
async fn items_of_kept_answers_may_stand_by_their_ids() {
    let upstream = Upstream::start().await;
    upstream
        .will(rich("anthropic"))
        .will(said("anthropic", "Done"))
        .will(rich("anthropic"));
    let gateway = Gateway::with_adapter("anthropic", &upstream).await;
    let client = gateway.client();
    let first = ask(&client, json!({})).await.json();
    upstream.next_request().await;
    let by_id = |item: &Value| json!({ "type": "item_reference", "id": item["id"] });
    let input = |answer: &Value| {
        let calls = items(answer, "function_call");
        json!([
            { "role": "user", "content": "Hello" },
            by_id(items(answer, "reasoning")[0]),
            by_id(items(answer, "message")[0]),
            calls[0],
            by_id(calls[1]),
            { "type": "function_call_output", "call_id": "t1", "output": "one" },
            { "type": "function_call_output", "call_id": "t2", "output": "two" },
        ])
    };
    let second = ask(&client, json!({ "input": input(&first) })).await;
    assert_eq!(text(&second.json()), "Done");
    let sent = upstream.next_request().await.json();
    assert_eq!(sent["messages"][1]["content"], rich_blocks());
    // The next response stores the referenced items.
    let history = format!(
        "/session/{}/history",
        second.json()["id"].as_str().expect("an id")
    );
    let history = client.get(&history).await.json();
    assert_eq!(history["messages"][1]["content"], "Hi there", "{history}");

    // References to items of other users and to items that are not stored are rejected.
    let unkept = ask(&client, json!({ "store": false })).await.json();
    let made = gateway
        .web("mallory")
        .post("/api-keys", &json!({ "name": "m" }))
        .await;
    let key = made.json()["api_key"].as_str().expect("a key").to_owned();
    let mallory = gateway.stranger().with_key(&key);
    let mut beyond = first.clone();
    let id = first["output"][0]["id"].as_str().expect("an id");
    beyond["output"][0]["id"] = json!(id.replace("_0", "_9"));
    for (client, answer) in [(&mallory, &first), (&client, &unkept), (&client, &beyond)] {
        let body = asked(&json!({ "input": input(answer) }));
        let error = client.post(PATH, &body).await.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], "input[1].id", "{error}");
    }
    assert_eq!(upstream.count(), 3);
}

/// The applicable cases of the Open Responses compliance suite, with the demo and with a provider. Responses and events
/// have all fields that the schema requires.
#[tokio::test]
async fn open_responses_cases_are_complied_with() {
    let upstream = Upstream::start().await;
    upstream.always(rich("openai"));
    let gateway = Gateway::with_adapter("openai", &upstream).await;
    let client = gateway.client();
    let user = |content: Value| json!({ "type": "message", "role": "user", "content": content });
    let weather = json!({
        "type": "function", "name": "get_weather", "description": "Get the current weather for a location",
        "parameters": { "type": "object", "properties": { "location": { "type": "string" } }, "required": ["location"] },
    });
    let pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    for (name, input, tools) in [
        (
            "basic text response",
            json!([user(json!("Say hello in exactly 3 words."))]),
            None,
        ),
        (
            "system prompt",
            json!([
                { "type": "message", "role": "system", "content": "You are a pirate." },
                user(json!("Say hello.")),
            ]),
            None,
        ),
        (
            "tool calling",
            json!([user(json!("What's the weather in Paris?"))]),
            Some(json!([weather])),
        ),
        (
            "image input",
            json!([user(json!([
                { "type": "input_text", "text": "What do you see?" },
                { "type": "input_image", "image_url": pixel },
            ]))]),
            None,
        ),
        (
            "multi-turn conversation",
            json!([
                user(json!("My name is Alice.")),
                { "type": "message", "role": "assistant", "content": "Hello Alice!" },
                user(json!("What is my name?")),
            ]),
            None,
        ),
    ] {
        let mut body = json!({ "model": "scripted", "input": input });
        if let Some(tools) = tools {
            body["tools"] = tools;
        }
        for model in ["scripted", "demo"] {
            body["model"] = json!(model);
            let answer = client.post(PATH, &body).await;
            assert_eq!(answer.status, 200, "{name}, {model}: {}", answer.text());
            let answer = answer.json();
            check_response(&answer);
            assert_eq!(answer["status"], "completed", "{name}");
            assert_ne!(answer["output"], json!([]), "{name}");
            let stream = client.stream(PATH, &body).await;
            let events = events(stream).await;
            assert_eq!(
                last(&events)["type"],
                "response.completed",
                "{name}, {model}"
            );
        }
    }
}
