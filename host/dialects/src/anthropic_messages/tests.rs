//! Tests of request parsing, and of responses: plain ones and streams must agree.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{Credits, Quantity, TokenCounts, Unit};
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CacheLifetime, CallKind, Citation, Content, Event, FinishReason, Fragment,
    Media, Opaque, OpaqueBlock, Part, ReasoningEffort, ResponseFormat, Role, Source, ToolCallStart,
    ToolChoice, ToolContent, ToolKind, Usage,
};

use super::{MessageResponse, MessageStream, errors, read, read_uncounted};
use crate::schema_tests::{check_events, checked};
use crate::{AnswerHead, BilledUsage, ChatCall};

/// Fields that invalidate a good request, and the expected complete message; its first word is the path.
const REFUSALS: &str = r##"
{"model": null}
    model is required.
{"max_tokens": null}
    max_tokens is required.
{"max_tokens": 0}
    max_tokens must be at least 1.
{"messages": null}
    messages is required.
{"messages": []}
    messages must not be empty.
{"messages": [{"role": "tool", "content": "x"}]}
    messages[0].role must be one of user, assistant, system.
{"messages": [{"role": "user", "content": []}]}
    messages[0].content must not be empty.
{"messages": [{"role": "user", "content": [{"text": "x"}]}]}
    messages[0].content[0].type is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}
    messages[0].content[0].text must be a string, not an integer.
{"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}]}]}
    messages[0].content[0].source.data must hold valid base64.
{"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://a.example"}}]}]}
    messages[0].content[0].source.url must be an https URL.
{"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "pdf"}}]}]}
    messages[0].content[0].source.type must be one of base64, text, content, url, file.
{"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}
    messages[0].content[0].tool_use_id is required.
{"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "c"}]}]}
    messages[0].content[0].type must not be tool_result outside of a user's message.
{"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": []}]}]}
    messages[0].content[0].input must be an object.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "forever"}}]}]}
    messages[0].content[0].cache_control.type must be ephemeral.
{"tools": [{"name": "f"}]}
    tools[0].input_schema is required.
{"tools": [{"name": "f", "type": "bash_20250124", "input_schema": []}]}
    tools[0].input_schema must be an object.
{"tool_choice": {"type": "any"}}
    tool_choice.type must not be any without tools.
{"tool_choice": {"type": "tool", "name": "f"}}
    tool_choice.name must be the name of one of the tools.
{"thinking": {"type": "enabled"}}
    thinking.budget_tokens is required.
{"thinking": {"type": "adaptive", "budget_tokens": 1024}}
    thinking.budget_tokens is for thinking of the type enabled only.
{"output_config": {"effort": "extreme"}}
    output_config.effort must be one of low, medium, high, xhigh, max.
{"output_config": {"format": {"type": "json_schema", "schema": 1}}}
    output_config.format.schema must be an object.
{"temperature": 1.5}
    temperature must be from 0 to 1.
{"stop_sequences": [""]}
    stop_sequences[0] must not be empty.
{"session_id": "s"}
    session_id is not supported.
"##;

fn request(fields: &Value) -> Value {
    let mut body = json!({
        "model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}],
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn call(fields: &Value) -> ChatCall {
    read(request(fields).to_string().as_bytes(), &HeaderMap::new()).unwrap()
}

#[test]
fn each_mistake_is_refused_with_its_field() {
    let mut lines = REFUSALS.lines().filter(|line| !line.is_empty());
    while let (Some(fields), Some(message)) = (lines.next(), lines.next()) {
        let fields: Value = serde_json::from_str(fields).unwrap();
        let body = request(&fields).to_string();
        let error = read(body.as_bytes(), &HeaderMap::new()).unwrap_err();
        let message = message.trim();
        assert_eq!(error.message(), message, "{fields}");
        assert_eq!(error.param(), message.split_whitespace().next());
    }
}

#[test]
fn a_request_that_counts_needs_no_limit() {
    let body = request(&json!({"max_tokens": null})).to_string();
    let call = read_uncounted(body.as_bytes(), &HeaderMap::new()).unwrap();
    assert_eq!(call.output_limit, None);
}

#[test]
fn settings_are_translated_and_the_rest_goes_on_as_it_came() {
    let call = call(&json!({
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {
            "effort": "max", "task_budget": {"total": 5},
            "format": {"type": "json_schema", "schema": {"type": "object"}},
        },
        "tools": [
            {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": true, "defer_loading": true},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
        ],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
        "metadata": {"user_id": "u-1"},
        "context_management": {"edits": []},
        "stop_sequences": ["END"], "top_k": 5, "temperature": 1, "stream": true,
    }));
    let request = &call.request;
    assert_eq!(request.messages[0].role, Role::System);
    assert_eq!(
        request.messages[0].parts[0].cache,
        Some(CacheLifetime::Long)
    );
    assert_eq!(request.reasoning.adaptive, Some(true));
    assert_eq!(request.reasoning.effort, Some(ReasoningEffort::Highest));
    assert_eq!(request.reasoning.summary.as_deref(), Some("summarized"));
    assert!(
        matches!(&request.response_format, ResponseFormat::JsonSchema(s) if s.schema == r#"{"type":"object"}"#)
    );
    assert!(matches!(&request.tool_choice, ToolChoice::Named(name) if name == "f"));
    assert_eq!(request.parallel_tool_calls, Some(false));
    assert!(matches!(&request.tools[0].kind, ToolKind::Function(f) if f.strict == Some(true)));
    assert_eq!(
        request.tools[0].extra,
        [("defer_loading".into(), "true".into())]
    );
    assert!(matches!(&request.tools[1].kind, ToolKind::BuiltIn(tool)
        if tool.kind == "web_search_20250305" && tool.configuration == r#"{"max_uses":2}"#));
    let extra: Vec<_> = request
        .extra
        .iter()
        .map(|(name, json)| (&**name, &**json))
        .collect();
    assert_eq!(
        extra,
        [
            ("context_management", r#"{"edits":[]}"#),
            ("metadata", r#"{"user_id":"u-1"}"#),
            ("output_config", r#"{"task_budget":{"total":5}}"#),
        ]
    );
    assert_eq!(call.client.end_user.as_deref(), Some("u-1"));
    assert_eq!(
        (call.output_limit, request.top_k, request.stream),
        (Some(100), Some(5), true)
    );
    assert_eq!(request.stop, ["END"]);
}

#[test]
fn the_dialects_own_headers_go_on() {
    let mut headers = HeaderMap::new();
    headers.insert("anthropic-beta", HeaderValue::from_static("a-1,b-2"));
    headers.insert("cookie", HeaderValue::from_static("secret"));
    let call = read(request(&json!({})).to_string().as_bytes(), &headers).unwrap();
    assert_eq!(
        call.client.headers,
        [("anthropic-beta".into(), "a-1,b-2".into())]
    );
    assert_eq!(call.client.dialect, "anthropic-messages");
}

#[test]
fn results_of_calls_stand_in_messages_of_their_own_in_the_order_of_their_blocks() {
    let call = call(&json!({"messages": [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "", "signature": "s"},
            {"type": "redacted_thinking", "data": "sealed", "provider": "p"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "is_error": true, "content": [
                {"type": "text", "text": "no"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            ]},
            {"type": "text", "text": "Why?"},
        ]},
    ]}));
    let roles: Vec<_> = call
        .request
        .messages
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(roles, [Role::Assistant, Role::Tool, Role::User]);
    let [thinking, redacted, tool_use, opaque] = call.request.messages[0].parts.as_slice() else {
        panic!("four parts");
    };
    // The proof of hidden reasoning.
    assert_eq!(thinking.signature.as_deref(), Some("s"));
    assert!(
        matches!(&redacted.content, Content::Reasoning(r) if r.sealed.as_deref() == Some("sealed"))
    );
    assert_eq!(redacted.provider.as_deref(), Some("p"));
    assert!(matches!(&tool_use.content, Content::ToolCall(call) if call.arguments == r#"{"a":1}"#));
    assert!(matches!(&opaque.content, Content::Opaque(opaque)
        if opaque.kind == "server_tool_use" && opaque.json.contains("\"query\"")));
    let [
        Part {
            content: Content::ToolResult(result),
            ..
        },
    ] = call.request.messages[1].parts.as_slice()
    else {
        panic!("a result");
    };
    assert!(result.is_error);
    let [ToolContent::Text(text), ToolContent::Image(image)] = result.content.as_slice() else {
        panic!("a text and an image");
    };
    assert_eq!(
        (text.as_str(), &image.source),
        ("no", &Source::Attachment(0))
    );
    assert_eq!(&*call.attachments[0].data, b"hi");
}

#[test]
fn documents_are_read_from_wherever_they_are() {
    let source = |source: Value| {
        json!({"messages": [{"role": "user", "content": [{
            "type": "document", "source": source, "title": "t", "context": "c", "citations": {"enabled": true},
        }]}]})
    };
    let file = |fields: &Value| {
        let call = call(fields);
        match call.request.messages[0].parts[0].content.clone() {
            Content::File(file) => (file, call.attachments),
            _ => panic!("a file"),
        }
    };
    let (pdf, attachments) = file(&source(
        json!({"type": "base64", "media_type": "application/pdf", "data": "aGk="}),
    ));
    assert_eq!(
        (pdf.title.as_deref(), pdf.context.as_deref(), pdf.cite),
        (Some("t"), Some("c"), Some(true))
    );
    assert_eq!(&*attachments[0].data, b"hi");
    let (url, _) = file(&source(
        json!({"type": "url", "url": "https://a.example/b.pdf"}),
    ));
    assert_eq!(url.source, Source::Url("https://a.example/b.pdf".into()));
    let (id, _) = file(&source(json!({"type": "file", "file_id": "file_1"})));
    assert_eq!(id.source, Source::Id("file_1".into()));
    // Text documents have no such file; they stay as written.
    for of_text in [
        json!({"type": "text", "media_type": "text/plain", "data": "words"}),
        json!({"type": "content", "content": [{"type": "text", "text": "words"}]}),
    ] {
        let fields = source(of_text);
        let call = call(&fields);
        let written = &fields["messages"][0]["content"][0];
        assert!(
            matches!(&call.request.messages[0].parts[0].content, Content::Opaque(opaque)
            if opaque.kind == "document" && &serde_json::from_str::<Value>(&opaque.json).unwrap() == written)
        );
    }
}

#[test]
fn marks_of_a_cache_are_kept_wherever_they_stand() {
    let mark = json!({"type": "ephemeral"});
    let more = json!({"type": "ephemeral", "scope": "global"});
    let call = call(&json!({
        "tools": [{"name": "f", "input_schema": {}, "cache_control": more}],
        "messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [
                {"type": "text", "text": "a", "cache_control": mark},
                {"type": "text", "text": "b", "citations": [{"type": "char_location"}]},
            ]},
            {"type": "text", "text": "x", "cache_control": more},
            {"type": "novelty", "cache_control": mark},
        ]}],
    }));
    let request = &call.request;
    let more = vec![("cache_control".to_owned(), more.to_string())];
    assert_eq!(
        (request.tools[0].cache, &request.tools[0].extra),
        (None, &more)
    );
    let [tool, user] = request.messages.as_slice() else {
        panic!("two messages");
    };
    // A mark within a result has no place there, so it moves behind the result.
    assert_eq!(tool.parts[0].cache, Some(CacheLifetime::Short));
    assert!(
        matches!(&tool.parts[0].content, Content::ToolResult(result) if matches!(
            result.content.as_slice(), [ToolContent::Text(_), ToolContent::Opaque(b)] if b.kind == "text"))
    );
    assert_eq!((user.parts[0].cache, &user.parts[0].extra), (None, &more));
    assert!(
        matches!(&user.parts[1].content, Content::Opaque(opaque) if opaque.json.contains("ephemeral"))
    );
}

const BILLED: BilledUsage = BilledUsage {
    quantity: Quantity {
        unit: Unit::Tokens,
        count: 12,
    },
    credits: Credits::from_micro(1_250_000),
    tokens: TokenCounts {
        input: 100,
        cache_read: 40,
        cache_write_short: 10,
        cache_write_long: 5,
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

fn begin(index: u32, block: Block) -> Event {
    Event::BlockStart(BlockStart { index, block })
}

fn piece(index: u32, text: &str) -> Fragment {
    Fragment {
        index,
        text: text.into(),
    }
}

fn calling(index: u32, id: &str, kind: CallKind) -> Event {
    let name = "f".into();
    let id = id.into();
    begin(index, Block::ToolCall(ToolCallStart { id, name, kind }))
}

fn whole(events: &[Event]) -> Value {
    let mut message = MessageResponse::new(head());
    message.answered_by("p");
    for event in events {
        message.push(event);
    }
    checked("MessagesAnswer", &message.into_body(&BILLED))
}

/// The events of a stream, by name.
fn streamed(events: &[Event]) -> Vec<(String, Value)> {
    let mut chunks = MessageStream::new(head());
    chunks.answered_by("p");
    let mut out = Vec::new();
    for event in events {
        chunks.event(event, &mut out);
    }
    chunks.finish(&BILLED, &mut out);
    check_events("MessagesEvent", &out);
    let text = String::from_utf8(out).unwrap();
    text.split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            let name = name.strip_prefix("event: ").unwrap();
            assert_eq!(data["type"], name);
            (name.to_owned(), data)
        })
        .collect()
}

/// Combines a stream's events like Anthropic's SDKs.
fn put_together(events: &[(String, Value)]) -> Value {
    let mut message = Value::Null;
    let mut inputs: Vec<String> = Vec::new();
    for (name, data) in events {
        let at = data["index"].as_u64().map(|at| at as usize);
        // SDKs apply every delta to the latest block.
        if let Some(at) = at
            && name != "content_block_start"
        {
            assert_eq!(at + 1, message["content"].as_array().unwrap().len());
        }
        let append = |value: &mut Value, more: &Value| {
            *value = format!("{}{}", value.as_str().unwrap(), more.as_str().unwrap()).into();
        };
        match name.as_str() {
            "message_start" => message = data["message"].clone(),
            "content_block_start" => {
                let content = message["content"].as_array_mut().unwrap();
                assert_eq!(at, Some(content.len()));
                content.push(data["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                let block = &mut message["content"][at.unwrap()];
                let delta = &data["delta"];
                match delta["type"].as_str().unwrap() {
                    "text_delta" => append(&mut block["text"], &delta["text"]),
                    "thinking_delta" => append(&mut block["thinking"], &delta["thinking"]),
                    // SDKs discard earlier pieces.
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    "input_json_delta" => {
                        inputs[at.unwrap()].push_str(delta["partial_json"].as_str().unwrap());
                    }
                    "citations_delta" => match block["citations"].as_array_mut() {
                        Some(citations) => citations.push(delta["citation"].clone()),
                        None => block["citations"] = json!([delta["citation"]]),
                    },
                    other => panic!("{other}"),
                }
            }
            "content_block_stop" => {
                let input = &inputs[at.unwrap()];
                if !input.is_empty() {
                    message["content"][at.unwrap()]["input"] = serde_json::from_str(input).unwrap();
                }
            }
            "message_delta" => {
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                message["stop_sequence"] = data["delta"]["stop_sequence"].clone();
                message["usage"] = data["usage"].clone();
            }
            "message_stop" => {}
            other => panic!("{other}"),
        }
    }
    message
}

fn everything() -> Vec<Event> {
    let opaque = Opaque {
        kind: "server_tool_use".into(),
        json: "{\"type\":\"server_tool_use\",\n\"id\":\"s\"}".into(),
    };
    vec![
        begin(0, Block::Reasoning),
        Event::Fragment(piece(0, "Let me ")),
        Event::Fragment(piece(0, "see.")),
        Event::Signature(piece(0, "si")),
        Event::Signature(piece(0, "gned")),
        Event::BlockEnd(0),
        begin(1, Block::Reasoning),
        Event::Sealed(piece(1, "sea")),
        Event::Sealed(piece(1, "led")),
        Event::BlockEnd(1),
        begin(2, Block::Text),
        Event::Fragment(piece(2, "żó")),
        Event::Fragment(piece(2, "łw")),
        Event::Citation(Citation {
            index: 2,
            source: Some("https://a.example".into()),
            title: None,
            cited_text: Some("turtle".into()),
            span: None,
            json: None,
        }),
        Event::BlockEnd(2),
        Event::Opaque(OpaqueBlock {
            index: 3,
            block: opaque,
        }),
        // Calls may be open concurrently.
        calling(4, "c1", CallKind::Function),
        calling(5, "c2", CallKind::Function),
        Event::Fragment(piece(5, "{\"b\":")),
        Event::Fragment(piece(4, "{\"a\":1}")),
        Event::Fragment(piece(5, "2}")),
        Event::BlockEnd(4),
        Event::BlockEnd(5),
        calling(6, "c3", CallKind::Custom),
        Event::Fragment(piece(6, "free \"text\"")),
        Event::BlockEnd(6),
        Event::Media(Media {
            media_type: "image/png".into(),
            data: b"hi".to_vec(),
            bytes_before: None,
            url: None,
            revised_prompt: None,
            is_preview: false,
        }),
        Event::Finish(FinishReason::ToolCalls),
    ]
}

#[test]
fn an_answer_holds_all_that_was_said() {
    let answer = whole(&everything());
    let expected = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "a \"model\"",
        "content": [
            {"type": "thinking", "thinking": "Let me see.", "signature": "signed", "provider": "p"},
            {"type": "redacted_thinking", "data": "sealed", "provider": "p"},
            {"type": "text", "text": "żółw", "citations": [{
                "type": "web_search_result_location", "url": "https://a.example", "title": null,
                "cited_text": "turtle", "encrypted_index": "",
            }]},
            {"type": "server_tool_use", "id": "s"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "c2", "name": "f", "input": {"b": 2}},
            {"type": "tool_use", "id": "c3", "name": "f", "input": {"input": "free \"text\""}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {
            "input_tokens": 45, "cache_creation_input_tokens": 15, "cache_read_input_tokens": 40,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 5},
            "output_tokens": 7, "output_tokens_details": {"thinking_tokens": 2}, "credits": 1.25,
        },
    });
    assert_eq!(answer, expected);
}

#[test]
fn a_stream_adds_up_to_the_plain_answer() {
    let events = everything();
    assert_eq!(put_together(&streamed(&events)), whole(&events));
    // An empty response is valid, too.
    let nothing = [Event::Finish(FinishReason::StopSequence("END".into()))];
    let answer = whole(&nothing);
    assert_eq!(
        (&answer["stop_reason"], &answer["stop_sequence"]),
        (&json!("stop_sequence"), &json!("END"))
    );
    assert_eq!(put_together(&streamed(&nothing)), answer);
}

/// Hidden reasoning is only a proof, and an empty text is nothing.
#[test]
fn an_empty_signed_block_is_kept_and_an_empty_text_is_not() {
    let events = [
        begin(0, Block::Reasoning),
        Event::Signature(piece(0, "signed")),
        Event::BlockEnd(0),
        begin(1, Block::Text),
        Event::BlockEnd(1),
        Event::Finish(FinishReason::Stop),
    ];
    let answer = whole(&events);
    let thinking =
        json!({"type": "thinking", "thinking": "", "signature": "signed", "provider": "p"});
    assert_eq!(answer["content"], json!([thinking]));
    assert_eq!(put_together(&streamed(&events)), answer);
}

#[test]
fn a_stream_begins_with_what_the_upstream_has_counted_by_then() {
    let used = Usage {
        input_tokens: Some(50),
        cache_read_tokens: Some(40),
        cache_write_short_tokens: None,
        cache_write_long_tokens: Some(3),
        output_tokens: Some(1),
        reasoning_tokens: None,
        images: None,
        other: Vec::new(),
    };
    let events = streamed(&[Event::Usage(used), Event::Finish(FinishReason::Stop)]);
    assert_eq!(
        events[0].1["message"]["usage"],
        json!({
            "input_tokens": 7, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 40,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 3},
            "output_tokens": 1,
        })
    );
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["message_start", "message_delta", "message_stop"]);
}

#[test]
fn what_was_answered_can_be_asked_again() {
    let answer = whole(&everything());
    let call = call(&json!({"messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": answer["content"]},
    ]}));
    let parts = &call.request.messages[1].parts;
    let kinds: Vec<_> = parts
        .iter()
        .map(|part| match &part.content {
            Content::Reasoning(reasoning) => (reasoning.sealed.is_some(), part.signature.is_some()),
            _ => (false, false),
        })
        .collect();
    assert_eq!(parts.len(), 8);
    assert_eq!(&kinds[..3], [(false, true), (true, false), (false, false)]);
    assert_eq!(parts[0].provider.as_deref(), Some("p"));
}

#[test]
fn an_input_that_was_cut_short_is_none() {
    let answer = whole(&[
        calling(0, "c", CallKind::Function),
        Event::Fragment(piece(0, "{\"a\":")),
        Event::BlockEnd(0),
        Event::Finish(FinishReason::Length),
    ]);
    assert_eq!(answer["content"][0]["input"], json!({}));
    assert_eq!(answer["stop_reason"], "max_tokens");
}

#[test]
fn errors_are_in_the_dialects_words() {
    let told = |code, message: &str| {
        let error = ApiError::new(code, message);
        (
            errors::status(&error).as_u16(),
            errors::body(&error, "req_1"),
        )
    };
    let (status, body) = told(ErrorCode::ContextLengthExceeded, "It has 9 tokens.");
    assert_eq!(status, 400);
    assert_eq!(
        body,
        json!({
            "type": "error", "request_id": "req_1",
            "error": {
                "type": "invalid_request_error", "weir_code": "CONTEXT_LENGTH_EXCEEDED",
                "message": "prompt is too long. It has 9 tokens.",
            },
        })
    );
    for (code, kind) in [
        (ErrorCode::Unauthenticated, "authentication_error"),
        (ErrorCode::RateLimited, "rate_limit_error"),
        (ErrorCode::QuotaExceeded, "billing_error"),
        (ErrorCode::Overloaded, "overloaded_error"),
        (ErrorCode::AdapterFailed, "api_error"),
    ] {
        assert_eq!(told(code, "").1["error"]["type"], kind);
    }
    let (status, _) = told(ErrorCode::Overloaded, "");
    assert_eq!(status, 529);
    // An error of an upstream with the same dialect keeps its wording.
    let error = ApiError::invalid_request("x", "The model's provider rejected the request: no");
    let said = json!({"type": "error", "error": {"type": "not_found_error", "message": "no\n", "secret": 1}});
    let body = errors::body(&error.with_upstream(Some(said)), "req_1");
    assert_eq!(
        body["error"],
        json!({"type": "not_found_error", "message": "no\\n", "weir_code": "INVALID_REQUEST", "param": "x"})
    );
}
