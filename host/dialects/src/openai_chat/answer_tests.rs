//! Tests of responses: plain ones and chunks must agree.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::TokenCounts;
use weir_ledger::{Credits, Quantity, Unit};
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Citation, Content, Event, FinishReason, Fragment, Image, Media,
    Opaque, OpaqueBlock, Reasoning, Source, Span, Started, ToolCall, ToolCallStart, Usage,
};

use super::{Completion, CompletionStream, KEEP_ALIVE, Preferences};
use crate::AnswerHead;
use crate::BilledUsage;
use crate::schema_tests::{check_events, checked};

const PREFERENCES: Preferences = Preferences {
    include_usage: true,
};

const USAGE: BilledUsage = BilledUsage {
    quantity: Quantity {
        unit: Unit::Tokens,
        count: 12,
    },
    credits: Credits::from_micro(1_250_000),
    tokens: TokenCounts {
        input: 10,
        cache_read: 4,
        cache_write_short: 0,
        cache_write_long: 0,
        output: 7,
        reasoning: 2,
        audio_input: 0,
        audio_output: 0,
        image_output: 0,
    },
};

fn head() -> AnswerHead {
    AnswerHead {
        id: "1".into(),
        created: 1_700_000_000,
        model: "a \"model\"".into(),
    }
}

fn usage() -> Value {
    json!({
        "prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2}, "credits": 1.25,
    })
}

fn block(index: u32, block: Block) -> Event {
    Event::BlockStart(BlockStart { index, block })
}

fn piece(index: u32, text: &str) -> Fragment {
    Fragment {
        index,
        text: text.into(),
    }
}

fn fragment(index: u32, text: &str) -> Event {
    Event::Fragment(piece(index, text))
}

fn call(index: u32, id: &str, name: &str, kind: CallKind) -> Event {
    let start = ToolCallStart {
        id: id.into(),
        name: name.into(),
        kind,
    };
    block(index, Block::ToolCall(start))
}

fn citation(index: u32, source: Option<&str>, title: Option<&str>, span: Option<Span>) -> Event {
    Event::Citation(Citation {
        index,
        source: source.map(Into::into),
        title: title.map(Into::into),
        cited_text: None,
        span,
        json: None,
    })
}

fn opaque(index: u32, kind: &str, json: &str) -> Event {
    Event::Opaque(OpaqueBlock {
        index,
        block: Opaque {
            kind: kind.into(),
            json: json.into(),
        },
    })
}

fn media(media_type: &str, data: &[u8]) -> Event {
    Event::Media(Media {
        media_type: media_type.into(),
        data: data.into(),
        bytes_before: None,
        url: None,
        revised_prompt: None,
        is_preview: false,
    })
}

/// A text block in these pieces.
fn text(index: u32, pieces: &[&str]) -> Vec<Event> {
    let pieces = pieces.iter().map(|piece| fragment(index, piece));
    [block(index, Block::Text)]
        .into_iter()
        .chain(pieces)
        .chain([Event::BlockEnd(index)])
        .collect()
}

fn ending(mut events: Vec<Event>, reason: FinishReason) -> Vec<Event> {
    events.push(Event::Finish(reason));
    events
}

fn plain_answer(events: &[Event]) -> Value {
    let mut completion = Completion::new(head());
    for event in events {
        completion.push(event.clone());
    }
    checked("ChatCompletion", &completion.into_body(&USAGE))
}

fn stream(events: &[Event], include_usage: bool) -> Vec<u8> {
    let mut chunks = CompletionStream::new(&head(), Preferences { include_usage });
    let mut out = Vec::new();
    for event in events {
        chunks.event(event, &mut out);
    }
    chunks.finish(&USAGE, &mut out);
    check_events("ChatCompletionChunk", &out);
    out
}

/// The JSON of a complete stream's chunks.
fn chunks(stream: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stream).unwrap();
    let text = text.strip_suffix("data: [DONE]\n\n").unwrap();
    text.split_terminator("\n\n")
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

/// Combines deltas like OpenAI's SDKs: joins strings, and matches list entries by `index`.
fn accumulate(whole: &mut Value, delta: &Value) {
    match (whole, delta) {
        (Value::Object(whole), Value::Object(delta)) => {
            for (name, value) in delta {
                match whole.get_mut(name) {
                    Some(_) if name == "index" || name == "type" => {}
                    Some(field) => accumulate(field, value),
                    None if value.is_array() => {
                        let mut list = json!([]);
                        accumulate(&mut list, value);
                        whole.insert(name.clone(), list);
                    }
                    None => {
                        whole.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(whole), Value::Array(delta)) => {
            for entry in delta {
                let index = usize::try_from(entry["index"].as_u64().unwrap()).unwrap();
                assert!(index <= whole.len());
                match whole.get_mut(index) {
                    Some(known) => accumulate(known, entry),
                    None => whole.push(entry.clone()),
                }
            }
        }
        (Value::String(whole), Value::String(delta)) => whole.push_str(delta),
        (whole, delta) => panic!("{whole} then {delta}"),
    }
}

/// The message that a stream's chunks add up to, in the form of the plain response.
fn added_up(events: &[Event]) -> Value {
    let mut whole = json!({});
    for chunk in chunks(&stream(events, false)) {
        accumulate(&mut whole, &chunk["choices"][0]["delta"]);
    }
    for list in [
        "/tool_calls",
        "/images",
        "/annotations",
        "/provider_specific_fields/blocks",
    ] {
        let list = whole.pointer_mut(list).and_then(Value::as_array_mut);
        for entry in list.into_iter().flatten() {
            entry.as_object_mut().unwrap().remove("index");
        }
    }
    // The plain response has null for content that no chunk mentions.
    if whole.get("content").is_none() {
        let has_other = whole.get("tool_calls").or(whole.get("refusal")).is_some();
        whole["content"] = if has_other { Value::Null } else { "".into() };
    }
    if whole.get("refusal").is_none() {
        whole["refusal"] = Value::Null;
    }
    whole
}

/// The message, on which both forms of the response must agree.
fn message(events: &[Event]) -> Value {
    let plain = plain_answer(events)["choices"][0]["message"].clone();
    assert_eq!(added_up(events), plain);
    plain
}

/// One event of each kind, in several blocks.
fn everything() -> Vec<Event> {
    let mut events = vec![
        Event::Started(Started {
            id: Some("upstream-1".into()),
            model: Some("m-2026".into()),
        }),
        block(0, Block::Reasoning),
        fragment(0, "let me"),
        fragment(0, " think\n"),
        Event::Signature(piece(0, "pro")),
        Event::Signature(piece(0, "of")),
        Event::BlockEnd(0),
        block(1, Block::Reasoning),
        Event::Sealed(piece(1, "sealed")),
        Event::BlockEnd(1),
        block(2, Block::Text),
        fragment(2, "Hé\"\\\u{7}\u{2028}😀"),
        fragment(2, ""),
        fragment(2, "</script>\n\ndata: x\r"),
        citation(2, Some("https://a.example/?q=\""), None, None),
        Event::BlockEnd(2),
        opaque(3, "server_tool_use", "{\"a\":\n [1.0, \"\\n\"]}"),
        block(4, Block::Text),
        fragment(4, "more"),
        citation(4, Some("https://b.example/"), None, None),
        Event::BlockEnd(4),
        Event::Usage(Usage {
            input_tokens: Some(1),
            cache_read_tokens: None,
            cache_write_short_tokens: None,
            cache_write_long_tokens: None,
            output_tokens: Some(1),
            reasoning_tokens: None,
            images: None,
            other: vec![],
        }),
        media("image/png", &[1, 2, 3]),
        media("audio/wav", &[1, 2, 3]),
        media("image/png", &[4]),
        block(5, Block::Refusal),
        fragment(5, "I won't"),
        fragment(5, " say more."),
        Event::BlockEnd(5),
        opaque(6, "k", "{}"),
    ];
    events.extend([
        call(7, "c1", "first", CallKind::Function),
        call(8, "c2", "second", CallKind::Custom),
        fragment(7, "{\"a\":"),
        fragment(8, "* \""),
        fragment(7, ""),
        fragment(8, "x\n"),
        fragment(7, "\"\\n\"}"),
        Event::BlockEnd(7),
        call(9, "c3", "third", CallKind::Function),
        fragment(9, "{}"),
        Event::BlockEnd(8),
        Event::BlockEnd(9),
    ]);
    ending(events, FinishReason::ToolCalls)
}

#[test]
fn a_plain_answer_is_one_object() {
    let events = ending(text(0, &["Hello", " there"]), FinishReason::Stop);
    assert_eq!(
        plain_answer(&events),
        json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "a \"model\"",
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": "Hello there", "refusal": null},
                "logprobs": null,
                "finish_reason": "stop",
            }],
            "usage": usage(),
        })
    );
}

#[test]
fn everything_that_a_model_may_answer_has_its_place() {
    let answer = plain_answer(&everything());
    let said = "Hé\"\\\u{7}\u{2028}😀</script>\n\ndata: x\r";
    let length = said.chars().count();
    let citation = |start: usize, end: usize, url: &str| {
        json!({"type": "url_citation",
               "url_citation": {"start_index": start, "end_index": end, "title": url, "url": url}})
    };
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        answer["choices"][0],
        json!({
            "index": 0,
            "message": {
                "role": "assistant",
                "content": format!("{said}more"),
                "refusal": "I won't say more.",
                "reasoning_content": "let me think\n",
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "let me think\n", "signature": "proof", "index": 0},
                    {"type": "reasoning.encrypted", "data": "sealed", "index": 1},
                ],
                "tool_calls": [
                    call("c1", "first", "{\"a\":\"\\n\"}"),
                    {"id": "c2", "type": "custom", "custom": {"name": "second", "input": "* \"x\n"}},
                    call("c3", "third", "{}"),
                ],
                "images": [image("data:image/png;base64,AQID"), image("data:image/png;base64,BA==")],
                "annotations": [
                    citation(0, length, "https://a.example/?q=\""),
                    citation(length, length + 4, "https://b.example/"),
                ],
                "provider_specific_fields": {"blocks": [
                    {"kind": "server_tool_use", "block": {"a": [1.0, "\n"]}},
                    {"kind": "k", "block": {}},
                ]},
            },
            "logprobs": null,
            "finish_reason": "tool_calls",
        })
    );
}

#[test]
fn content_is_null_only_beside_tool_calls_and_refusals() {
    let content = |events: &[Event]| message(events)["content"].clone();
    let start = call(0, "c", "f", CallKind::Function);
    assert_eq!(content(&[start, Event::BlockEnd(0)]), Value::Null);
    let refusal = [block(0, Block::Refusal), fragment(0, "no")];
    assert_eq!(content(&refusal), Value::Null);
    assert_eq!(content(&[]), "");
    // An empty block counts as absent.
    assert_eq!(content(&[block(0, Block::Refusal)]), "");
}

#[test]
fn reasons_to_finish_are_put_in_openais_words() {
    let cases = [
        (FinishReason::Stop, "stop"),
        (FinishReason::StopSequence("x".into()), "stop"),
        (FinishReason::Length, "length"),
        (FinishReason::ContextWindow, "length"),
        (FinishReason::ToolCalls, "tool_calls"),
        (FinishReason::ContentFilter, "content_filter"),
        (FinishReason::Refusal, "content_filter"),
        (FinishReason::PauseTurn, "stop"),
        (FinishReason::MalformedCall, "stop"),
        (FinishReason::Other("length".into()), "stop"),
    ];
    for (reason, word) in cases {
        let events = ending(text(0, &["x"]), reason);
        assert_eq!(plain_answer(&events)["choices"][0]["finish_reason"], word);
        assert_eq!(
            chunks(&stream(&events, false))[1]["choices"][0]["finish_reason"],
            word
        );
    }
}

/// OpenAI does the same; with `content_filter`, its SDKs' parsing helpers would raise an error instead.
#[test]
fn a_refusal_stands_in_its_own_field_and_ends_like_an_answer() {
    let events = [
        block(0, Block::Refusal),
        fragment(0, "I can't"),
        fragment(0, " do that."),
        Event::BlockEnd(0),
        Event::Finish(FinishReason::Refusal),
    ];
    let answer = plain_answer(&events);
    assert_eq!(
        message(&events),
        json!({"role": "assistant", "content": null, "refusal": "I can't do that."})
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let deltas = chunks(&stream(&events, false));
    let deltas: Vec<_> = deltas
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"])
        .collect();
    assert_eq!(
        deltas,
        [
            &json!({"role": "assistant", "refusal": "I can't"}),
            &json!({"refusal": " do that."}),
            &json!({})
        ]
    );
    // Text held back in the middle still counts as filtered.
    let filtered = ending(events[..4].to_vec(), FinishReason::ContentFilter);
    assert_eq!(
        plain_answer(&filtered)["choices"][0]["finish_reason"],
        "content_filter"
    );
}

#[test]
fn the_chunks_of_an_answer_add_up_to_the_plain_one() {
    let events = everything();
    let mut reasons = Vec::new();
    for chunk in chunks(&stream(&events, false)) {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["id"], "chatcmpl-1");
        assert_eq!(chunk["created"], 1_700_000_000);
        assert_eq!(chunk["model"], "a \"model\"");
        assert_eq!(chunk["choices"][0]["index"], 0);
        reasons.push(chunk["choices"][0]["finish_reason"].clone());
    }
    message(&events);
    assert_eq!(reasons.pop().unwrap(), "tool_calls");
    assert!(reasons.iter().all(Value::is_null));
}

#[test]
fn calls_that_come_side_by_side_are_written_as_they_come() {
    let events = [
        call(0, "c1", "f", CallKind::Function),
        call(1, "c2", "g", CallKind::Custom),
        fragment(1, "x"),
        fragment(0, "{"),
        fragment(0, "}"),
        Event::BlockEnd(0),
        fragment(1, "y"),
        Event::BlockEnd(1),
        Event::Finish(FinishReason::ToolCalls),
    ];
    let deltas: Vec<_> = chunks(&stream(&events, false))
        .iter()
        .filter_map(|chunk| {
            chunk["choices"][0]["delta"]["tool_calls"]
                .as_array()
                .cloned()
        })
        .flatten()
        .collect();
    assert_eq!(
        deltas,
        [
            json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}),
            json!({"index": 1, "id": "c2", "type": "custom", "custom": {"name": "g", "input": ""}}),
            json!({"index": 1, "custom": {"input": "x"}}),
            json!({"index": 0, "function": {"arguments": "{"}}),
            json!({"index": 0, "function": {"arguments": "}"}}),
            json!({"index": 1, "custom": {"input": "y"}}),
        ]
    );
    assert_eq!(
        message(&events)["tool_calls"],
        json!([
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "xy"}},
        ])
    );
}

#[test]
fn a_citation_says_which_stretch_of_the_content_it_stands_behind() {
    let span = |start, end| Some(Span { start, end });
    let mut events = text(0, &["Hé😀 "]);
    events.extend([
        block(1, Block::Text),
        fragment(1, "one two"),
        citation(1, Some("https://a.example/"), Some("A"), span(4, 7)),
        citation(1, Some("https://b.example/"), None, None),
        citation(1, None, Some("B"), span(0, 3)),
        citation(1, None, None, None),
        // Some upstreams send a citation before its text.
        citation(1, Some("c"), None, span(7, u32::MAX)),
        citation(0, Some("of a block that has ended"), None, None),
        Event::BlockEnd(1),
    ]);
    let cited = |start: u64, end: u64, title: &str, url: &str| {
        json!({"type": "url_citation",
               "url_citation": {"start_index": start, "end_index": end, "title": title, "url": url}})
    };
    let url = "https://b.example/";
    assert_eq!(
        message(&events)["annotations"],
        json!([
            cited(8, 11, "A", "https://a.example/"),
            cited(4, 11, url, url),
            cited(4, 7, "B", "B"),
            cited(11, 4 + u64::from(u32::MAX), "c", "c"),
        ])
    );
}

#[test]
fn reasoning_has_details_only_with_a_proof() {
    let reasoning = |index, text: &str, rest: &[Event]| {
        let mut events = vec![block(index, Block::Reasoning), fragment(index, text)];
        events.extend_from_slice(rest);
        events.push(Event::BlockEnd(index));
        events
    };
    let plain = plain_answer(&reasoning(0, "a", &[]));
    assert_eq!(
        plain["choices"][0]["message"],
        json!({"role": "assistant", "content": "", "refusal": null, "reasoning_content": "a"})
    );

    let sign = |index, text| Event::Signature(piece(index, text));
    let seal = |index, text| Event::Sealed(piece(index, text));
    let mut events = reasoning(0, "a", &[sign(0, "s")]);
    events.extend(reasoning(1, "", &[sign(1, "s")]));
    events.extend(reasoning(2, "b", &[seal(2, "d"), seal(2, "e")]));
    events.extend(reasoning(3, "", &[seal(3, "f")]));
    events.extend(reasoning(4, "c", &[]));
    // A proof of a text (Gemini has them) comes back in a form of weir's own.
    events.extend([block(5, Block::Text), sign(5, "s"), Event::BlockEnd(5)]);
    let answer = message(&events);
    assert_eq!(answer["reasoning_content"], "abc");
    assert_eq!(
        answer["reasoning_details"],
        json!([
            {"type": "reasoning.text", "text": "a", "signature": "s", "index": 0},
            {"type": "reasoning.text", "text": "", "signature": "s", "index": 1},
            {"type": "reasoning.text", "text": "b", "index": 2},
            {"type": "reasoning.encrypted", "data": "de", "index": 3},
            {"type": "reasoning.encrypted", "data": "f", "index": 4},
            {
                "type": "reasoning.encrypted",
                // {"provider":"","signature":"s","of":"text"}
                "data": "weir.eyJwcm92aWRlciI6IiIsInNpZ25hdHVyZSI6InMiLCJvZiI6InRleHQifQ==",
                "index": 5,
            },
        ])
    );
}

/// A conversation continues with the response, and the model must receive its own text, calls and proofs.
#[test]
fn an_answer_that_a_client_sends_back_has_the_same_parts() {
    for message in [message(&everything()), added_up(&everything())] {
        let body = json!({"model": "m", "messages": [message]}).to_string();
        let call = super::read(body.as_bytes()).unwrap();
        let parts = &call.request.messages[0].parts;
        let contents: Vec<_> = parts.iter().map(|part| &part.content).collect();
        let opaque = |kind: &str, json: &str| {
            Content::Opaque(Opaque {
                kind: kind.into(),
                json: json.into(),
            })
        };
        let reasoning = |text: &str, sealed: Option<&str>| {
            Content::Reasoning(Reasoning {
                text: text.into(),
                sealed: sealed.map(Into::into),
                id: None,
            })
        };
        let image = |index| {
            Content::Image(Image {
                source: Source::Attachment(index),
                detail: None,
            })
        };
        let call_part = |id: &str, name: &str, kind, arguments: &str| {
            Content::ToolCall(ToolCall {
                id: id.into(),
                name: name.into(),
                kind,
                arguments: arguments.into(),
            })
        };
        let said = "Hé\"\\\u{7}\u{2028}😀</script>\n\ndata: x\rmore";
        assert_eq!(
            contents,
            [
                &opaque("server_tool_use", "{\"a\":[1.0,\"\\n\"]}"),
                &opaque("k", "{}"),
                &reasoning("let me think\n", None),
                &reasoning("", Some("sealed")),
                &Content::Text(said.into()),
                &Content::Refusal("I won't say more.".into()),
                &image(0),
                &image(1),
                &call_part("c1", "first", CallKind::Function, "{\"a\":\"\\n\"}"),
                &call_part("c2", "second", CallKind::Custom, "* \"x\n"),
                &call_part("c3", "third", CallKind::Function, "{}"),
            ]
        );
        assert_eq!(parts[2].signature.as_deref(), Some("proof"));
        assert_eq!(call.attachments.len(), 2);
    }
}

#[test]
fn reasoning_that_is_read_and_sealed_comes_back_as_one_part() {
    let events = [
        block(0, Block::Reasoning),
        fragment(0, "summary"),
        Event::Sealed(piece(0, "sealed")),
        Event::BlockEnd(0),
    ];
    let body = json!({"model": "m", "messages": [message(&events)]}).to_string();
    let call = super::read(body.as_bytes()).unwrap();
    assert_eq!(
        call.request.messages[0].parts[0].content,
        Content::Reasoning(Reasoning {
            text: "summary".into(),
            sealed: Some("sealed".into()),
            id: None,
        })
    );
}

#[test]
fn an_opaque_block_that_is_no_object_is_left_out() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
    let events = [
        opaque(0, "a", "[]"),
        opaque(1, "b", "{"),
        opaque(2, "c", &deep),
        opaque(3, "d", "{\r\n\"e\":\n1}"),
    ];
    assert_eq!(
        message(&events)["provider_specific_fields"],
        json!({"blocks": [{"kind": "d", "block": {"e": 1}}]})
    );
    // A line break would end the event's line.
    let stream = stream(&events, false);
    let text = std::str::from_utf8(&stream).unwrap();
    assert!(
        text.lines()
            .all(|line| line.is_empty() || line.starts_with("data: "))
    );
}

#[test]
fn an_attempt_that_yielded_nothing_leaves_nothing() {
    let failed = [
        Event::Started(Started {
            id: None,
            model: None,
        }),
        block(0, Block::Reasoning),
        Event::Signature(piece(0, "old")),
        block(1, Block::Refusal),
    ];
    let mut completion = Completion::new(head());
    let mut chunks = CompletionStream::new(&head(), PREFERENCES);
    let mut out = Vec::new();
    for event in failed {
        chunks.event(&event, &mut out);
        completion.push(event);
    }
    assert_eq!(out, b"");
    completion.clear();
    let events = ending(text(0, &["new"]), FinishReason::Stop);
    for event in events.clone() {
        chunks.event(&event, &mut out);
        completion.push(event);
    }
    chunks.finish(&USAGE, &mut out);
    assert_eq!(out, stream(&events, true));
    let body: Value = checked("ChatCompletion", &completion.into_body(&USAGE));
    assert_eq!(body, plain_answer(&events));
}

#[test]
fn only_the_first_chunk_carries_the_role() {
    let chunks = chunks(&stream(&text(0, &["a", "b"]), false));
    let deltas: Vec<_> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"])
        .collect();
    assert_eq!(
        deltas,
        [
            &json!({"role": "assistant", "content": "a"}),
            &json!({"content": "b"}),
            &json!({})
        ]
    );
}

#[test]
fn a_text_event_is_one_chunk_byte_for_byte() {
    let mut chunks = CompletionStream::new(&head(), PREFERENCES);
    let mut out = Vec::new();
    chunks.event(&block(0, Block::Text), &mut out);
    assert_eq!(out, b"");
    chunks.event(&fragment(0, "a"), &mut out);
    out.clear();
    chunks.event(&fragment(0, "b\n"), &mut out);
    assert_eq!(
        std::str::from_utf8(&out).unwrap(),
        "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
         \"model\":\"a \\\"model\\\"\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\\n\"},\
         \"finish_reason\":null}]}\n\n"
    );
}

#[test]
fn a_call_is_written_byte_for_byte_as_ever() {
    let mut chunks = CompletionStream::new(&head(), PREFERENCES);
    let mut out = Vec::new();
    chunks.event(&call(0, "c", "f", CallKind::Function), &mut out);
    chunks.event(&fragment(0, "{"), &mut out);
    let text = std::str::from_utf8(&out).unwrap();
    let deltas: Vec<_> = text
        .split_terminator("\n\n")
        .map(|event| event.split_once("\"delta\":").unwrap().1)
        .collect();
    assert_eq!(
        deltas,
        [
            "{\"role\":\"assistant\",\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"type\":\"function\",\
             \"function\":{\"name\":\"f\",\"arguments\":\"\"}}]},\"finish_reason\":null}]}",
            "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\"}}]},\"finish_reason\":null}]}",
        ]
    );
}

#[test]
fn usage_comes_in_a_chunk_of_its_own_for_clients_that_asked() {
    let chunks = chunks(&stream(
        &ending(text(0, &["a"]), FinishReason::Length),
        true,
    ));
    assert_eq!(chunks.len(), 3);
    assert_eq!(chunks[1]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[1]["usage"], Value::Null);
    assert_eq!(chunks[2]["choices"], json!([]));
    assert_eq!(chunks[2]["usage"], usage());
}

#[test]
fn usage_comes_with_the_last_choice_for_all_others() {
    let chunks = chunks(&stream(
        &ending(text(0, &["a"]), FinishReason::Length),
        false,
    ));
    assert_eq!(chunks.len(), 2);
    assert_eq!(chunks[1]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[1]["usage"], usage());
    assert!(chunks.iter().all(|chunk| chunk["choices"][0].is_object()));
}

#[test]
fn an_answer_without_content_still_has_a_role() {
    let chunks = chunks(&stream(&[], false));
    assert_eq!(chunks.len(), 1);
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
}

#[test]
fn events_without_a_place_in_the_dialect_write_nothing() {
    let mut chunks = CompletionStream::new(&head(), PREFERENCES);
    let mut out = Vec::new();
    for event in [
        Event::Started(Started {
            id: Some("u".into()),
            model: None,
        }),
        fragment(0, "of no block"),
        Event::Signature(piece(0, "of no block")),
        Event::BlockEnd(0),
        block(0, Block::Reasoning),
        Event::Signature(piece(0, "s")),
        Event::Sealed(piece(0, "r")),
        fragment(1, "of a later block"),
        fragment(0, ""),
        block(1, Block::Text),
        Event::BlockEnd(1),
        citation(0, Some("s"), None, None),
        media("audio/wav", &[1]),
        Event::Finish(FinishReason::Stop),
    ] {
        chunks.event(&event, &mut out);
    }
    assert_eq!(out, b"");
}

#[test]
fn an_error_is_an_event_of_its_own_and_the_last() {
    let error = ApiError::new(ErrorCode::UpstreamUnavailable, "No luck:\nsorry.");
    let mut out = Vec::new();
    CompletionStream::error(&error.body("req-1"), &mut out);
    let text = std::str::from_utf8(&out).unwrap();
    let data = text
        .strip_prefix("event: error\ndata: ")
        .and_then(|rest| rest.strip_suffix("\n\n"))
        .unwrap();
    assert!(!data.contains('\n'));
    assert_eq!(
        serde_json::from_str::<Value>(data).unwrap(),
        error.body("req-1")
    );
}

#[test]
fn what_keeps_a_stream_alive_is_a_comment() {
    assert_eq!(KEEP_ALIVE, ": keep-alive\n\n");
}
