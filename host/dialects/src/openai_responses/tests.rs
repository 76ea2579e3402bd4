//! Tests of request parsing, and of responses: plain ones and streams must agree.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::{Value, json};
use weir_ledger::{Credits, Quantity, TokenCounts};
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CacheLifetime, CallKind, Citation, Content, Event, FinishReason, Fragment,
    Media, Message, Opaque, OpaqueBlock, Part, ReasoningEffort, ResponseFormat, Role, Source, Span,
    ToolCallStart, ToolChoice, ToolContent, ToolKind,
};

use super::{EchoedFields, ResponseObject, ResponseStream, read};
use crate::schema_tests::{check_events, checked};
use crate::{AnswerHead, BilledUsage, ChatCall, Dialect};

/// Fields that invalidate a good request, and the expected complete message; its first word is the path.
const REFUSALS: &str = r##"
{"model": null}
    model is required.
{"input": null}
    input is required.
{"input": []}
    input must not be empty.
{"input": 5}
    input must be a string or an array of items, not an integer.
{"input": [{}]}
    input[0].type is required.
{"input": [{"role": "tool", "content": "x"}]}
    input[0].role must be one of user, assistant, system, developer.
{"input": [{"role": "user"}]}
    input[0].content is required.
{"input": [{"role": "user", "content": []}]}
    input[0].content must not be empty.
{"input": [{"role": "user", "content": "x", "novelty": 1}]}
    input[0].novelty is not supported.
{"input": [{"role": "user", "content": [{"type": "input_text"}]}]}
    input[0].content[0].text is required.
{"input": [{"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}]}
    input[0].content[0].type must be one of input_text, input_image, input_file.
{"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}
    input[0].content[0].type must be one of input_text, input_image, input_file.
{"input": [{"role": "developer", "content": [{"type": "input_image", "image_url": "https://a.example"}]}]}
    input[0].content[0].type must be input_text.
{"input": [{"role": "assistant", "content": [{"type": "input_image", "image_url": "https://a.example"}]}]}
    input[0].content[0].type must be one of output_text, refusal.
{"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://a.example"}]}]}
    input[0].content[0].image_url must be an https URL or a base64 data URL.
{"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:application/pdf;base64,aGk="}]}]}
    input[0].content[0].image_url must be of a media type such as image/png.
{"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f", "file_url": "https://a.example"}]}]}
    input[0].content[0] must have one of file_data, file_url and file_id.
{"input": [{"role": "user", "content": [{"type": "input_file", "file_data": "aGk="}]}]}
    input[0].content[0].file_data must be a base64 data URL, e.g. data:application/pdf;base64,….
{"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}
    input[0].call_id is required.
{"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f"}]}
    input[0].input is required.
{"input": [{"type": "function_call_output", "call_id": "c"}]}
    input[0].output is required.
{"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x", "novelty": 1}]}]}
    input[0].output[0].novelty is not supported.
{"input": [{"type": "reasoning", "summary": []}]}
    input must say something.
{"input": [{"type": "item_reference", "id": "rs_1"}]}
    input[0].id must be the id of an item of an earlier response: send the item itself.
{"input": [{"id": "ig_1_1"}]}
    input[0].id must be the id of an item of an earlier response: send the item itself.
{"input": [{"type": "compaction_trigger"}]}
    input[0].type must be one of message, reasoning, function_call, function_call_output, custom_tool_call, custom_tool_call_output, image_generation_call, additional_tools, or an item of a hosted tool.
{"input": [{"type": "additional_tools", "role": "developer"}]}
    input[0].tools is required.
{"input": [{"type": "additional_tools", "tools": [{"type": "function"}]}]}
    input[0].tools[0].name is required.
{"input": [{"role": "user", "content": "x", "tools": []}]}
    input[0].tools is not supported.
{"tools": [{"type": "namespace", "tools": []}]}
    tools[0].name is required.
{"tools": [{"type": "namespace", "name": "crm"}]}
    tools[0].tools is required.
{"tools": [{"type": "namespace", "name": "crm", "tools": [{"type": "web_search"}]}]}
    tools[0].tools[0].type must be one of function, custom.
{"tools": [{"type": "function", "name": "f", "tools": []}]}
    tools[0].tools is for namespaces only.
{"tools": [{"type": "function", "parameters": {}}]}
    tools[0].name is required.
{"tools": [{"type": "function", "name": "f", "parameters": []}]}
    tools[0].parameters must be an object.
{"tools": [{"type": "custom", "name": "f", "parameters": {}}]}
    tools[0].parameters does not belong to a tool of this type.
{"tool_choice": "required"}
    tool_choice must not be required without tools.
{"tool_choice": "any"}
    tool_choice must be one of none, auto, required, or an object that names a tool.
{"tool_choice": {"type": "web_search_preview"}}
    tool_choice.type must be one of function, custom, allowed_tools.
{"tool_choice": {"type": "function", "name": "f"}}
    tool_choice.name must be the name of one of the tools.
{"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}}
    tool_choice.tools[0].type must be one of function, custom.
{"text": {"format": {"type": "json_schema", "name": "n"}}}
    text.format.schema is required.
{"text": {"format": {"type": "xml"}}}
    text.format.type must be one of text, json_object, json_schema.
{"reasoning": {"effort": "extreme"}}
    reasoning.effort must be one of none, minimal, low, medium, high, xhigh, max.
{"max_output_tokens": 0}
    max_output_tokens must be at least 1.
{"temperature": 2.5}
    temperature must be from 0 to 2.
{"top_logprobs": 2}
    top_logprobs is not supported.
{"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}
    include[1] must be reasoning.encrypted_content.
{"stream_options": {"include_obfuscation": true}}
    stream_options.include_obfuscation is not supported.
{"background": true}
    background is not supported.
{"conversation": "conv_1"}
    conversation is not supported.
{"prompt": {"id": "pmpt_1"}}
    prompt is not supported.
{"session_id": "s"}
    session_id is not supported.
"##;

fn request(fields: &Value) -> Value {
    let mut body = json!({ "model": "m", "input": "Hi" });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn call(fields: &Value) -> ChatCall {
    read(request(fields).to_string().as_bytes()).unwrap()
}

#[test]
fn what_is_wrong_is_refused_by_its_path() {
    let mut lines = REFUSALS.trim().lines();
    while let (Some(fields), Some(message)) = (lines.next(), lines.next()) {
        let body = request(&serde_json::from_str(fields).unwrap());
        let error = read(body.to_string().as_bytes()).unwrap_err();
        let message = message.trim();
        assert_eq!(error.message(), message, "{fields}");
        assert_eq!(error.param(), message.split(' ').next(), "{fields}");
    }
}

#[test]
fn a_request_is_read_with_all_that_it_says() {
    let call = call(&json!({
        "instructions": "Be brief.", "max_output_tokens": 50, "stream": true, "store": false,
        "temperature": 0.5, "top_p": 0.9, "parallel_tool_calls": false, "truncation": "disabled",
        "reasoning": { "effort": "high", "summary": "auto" }, "include": ["reasoning.encrypted_content"],
        "text": { "verbosity": "low", "format": {
            "type": "json_schema", "name": "n", "strict": true, "schema": { "type": "object" },
        } },
        "tools": [
            { "type": "function", "name": "f", "description": "d", "parameters": { "type": "object" }, "strict": false },
            { "type": "custom", "name": "c", "format": { "type": "grammar", "syntax": "lark", "definition": "x" } },
            { "type": "web_search", "name": "w", "strict": true, "external_web_access": false },
        ],
        "tool_choice": { "type": "allowed_tools", "mode": "required", "tools": [{ "type": "custom", "name": "c" }] },
        "metadata": {}, "user": "u", "prompt_cache_key": "k", "service_tier": "auto", "novelty": [1],
    }));
    assert_eq!(call.output_limit, Some(50));
    assert_eq!(call.client.end_user.as_deref(), Some("u"));
    assert_eq!(call.client.dialect, "openai-responses");
    let chain = call.chain.unwrap();
    assert_eq!(
        (chain.previous, chain.is_kept, chain.leading),
        (None, false, 1)
    );
    let request = call.request;
    assert!(request.stream);
    assert_eq!(request.parallel_tool_calls, Some(false));
    assert_eq!(request.reasoning.effort, Some(ReasoningEffort::High));
    assert_eq!(request.reasoning.summary.as_deref(), Some("auto"));
    let ResponseFormat::JsonSchema(schema) = request.response_format else {
        panic!("no schema");
    };
    assert_eq!(
        (schema.name.as_deref(), schema.strict),
        (Some("n"), Some(true))
    );
    let ToolChoice::Among(among) = request.tool_choice else {
        panic!("no choice");
    };
    assert_eq!((among.names, among.required), (vec!["c".to_owned()], true));
    let [function, custom, built_in] = &request.tools[..] else {
        panic!("three tools");
    };
    assert!(matches!(&function.kind, ToolKind::Function(f) if f.strict == Some(false)));
    assert!(matches!(&custom.kind, ToolKind::Custom(c) if c.format.is_some()));
    let ToolKind::BuiltIn(built_in) = &built_in.kind else {
        panic!("a tool of the upstream's");
    };
    assert_eq!(
        serde_json::from_str::<Value>(&built_in.configuration).unwrap(),
        json!({ "strict": true, "external_web_access": false })
    );
    // Default values are accepted, and the adapter handles all other fields.
    let extra: Vec<_> = request
        .extra
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(extra, ["novelty", "prompt_cache_key", "user", "verbosity"]);
}

fn roles(messages: &[Message]) -> Vec<Role> {
    messages.iter().map(|message| message.role).collect()
}

#[test]
fn items_of_one_turn_are_one_message() {
    let call = call(&json!({ "input": [
        { "type": "message", "role": "developer", "content": [{ "type": "input_text", "text": "rule" }] },
        { "role": "user", "content": [
            { "type": "input_text", "text": "What?", "prompt_cache_breakpoint": { "mode": "explicit", "ttl": "12h" } },
            { "type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "high" },
            { "type": "input_image", "file_id": "file_1", "detail": "auto" },
            { "type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk=" },
            { "type": "input_file", "file_url": "https://a.example/b.pdf" },
        ] },
        { "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "Hm." }], "encrypted_content": null },
        { "type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "commentary", "content": [
            { "type": "output_text", "text": "So", "annotations": [], "logprobs": [] },
            { "type": "refusal", "refusal": "No" },
        ] },
        { "type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c1", "name": "f", "arguments": "{}", "parsed_arguments": {} },
        { "type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g", "input": "free" },
        { "type": "function_call_output", "call_id": "c1", "output": [
            { "type": "input_text", "text": "one" }, { "type": "input_image", "image_url": "https://a.example/b.png" },
        ] },
        { "type": "custom_tool_call_output", "call_id": "c2", "output": "two" },
        { "role": "user", "content": "And?" },
    ] }));
    let messages = call.request.messages;
    assert_eq!(
        roles(&messages),
        [
            Role::System,
            Role::User,
            Role::Assistant,
            Role::Tool,
            Role::User
        ]
    );
    let [text, image, by_id, pdf, by_url] = &messages[1].parts[..] else {
        panic!("five parts");
    };
    assert_eq!(text.cache, Some(CacheLifetime::Long));
    assert!(
        matches!(&image.content, Content::Image(i) if i.detail.as_deref() == Some("high") && matches!(i.source, Source::Attachment(0)))
    );
    assert!(
        matches!(&by_id.content, Content::Image(i) if matches!(&i.source, Source::Id(id) if id == "file_1"))
    );
    assert!(matches!(&pdf.content, Content::File(f) if f.name.as_deref() == Some("a.pdf")));
    assert!(matches!(&by_url.content, Content::File(f) if matches!(f.source, Source::Url(_))));
    assert_eq!(call.attachments.len(), 2);
    let said = &messages[2].parts;
    assert!(matches!(&said[0].content, Content::Reasoning(r) if r.text == "Hm."));
    assert!(
        matches!(&said[1].content, Content::Opaque(mark) if mark.json == r#"{"phase":"commentary"}"#)
    );
    assert!(matches!(&said[2].content, Content::Text(text) if text == "So"));
    assert!(matches!(&said[3].content, Content::Refusal(text) if text == "No"));
    assert!(matches!(&said[4].content, Content::ToolCall(c) if c.kind == CallKind::Function));
    assert!(matches!(&said[5].content, Content::ToolCall(c) if c.arguments == "free"));
    let [first, second] = &messages[3].parts[..] else {
        panic!("two results");
    };
    assert!(
        matches!(&first.content, Content::ToolResult(r) if matches!(r.content[..], [ToolContent::Text(_), ToolContent::Image(_)]))
    );
    assert!(matches!(&second.content, Content::ToolResult(r) if r.call_id == "c2"));
}

/// Clients that assume a stored response refer to its items, some of them repeatedly.
#[test]
fn an_item_may_stand_by_its_id_alone() {
    let call = call(&json!({ "input": [
        { "role": "user", "content": "x" },
        { "type": "item_reference", "id": "rs_a_0" },
        { "id": "msg_a_1" },
        { "type": "item_reference", "id": "msg_a_1" },
        { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
        { "type": "item_reference", "id": "rs_a_2" },
        { "type": "function_call_output", "call_id": "c", "output": "y" },
    ] }));
    let messages = &call.request.messages;
    assert_eq!(roles(messages), [Role::User, Role::Assistant, Role::Tool]);
    let references: Vec<_> = call
        .chain
        .unwrap()
        .references
        .iter()
        .map(|reference| {
            assert_eq!(reference.answer, "resp_a");
            (
                reference.part,
                reference.block,
                reference.is_proof,
                reference.param.clone(),
            )
        })
        .collect();
    let at =
        |part, block, is_proof, index: usize| (part, block, is_proof, format!("input[{index}].id"));
    assert_eq!(
        references,
        [at(0, 0, true, 1), at(1, 1, false, 2), at(3, 2, true, 5)]
    );
    let many: Vec<_> = (0..65)
        .map(|answer| json!({ "id": format!("msg_{answer}_0") }))
        .collect();
    let error = read(request(&json!({ "input": many })).to_string().as_bytes()).unwrap_err();
    assert_eq!(error.param(), Some("input[64].id"));
}

fn head() -> AnswerHead {
    AnswerHead {
        id: "1".into(),
        created: 5,
        model: "a \"model\"".into(),
    }
}

fn echo(fields: &Value) -> EchoedFields {
    match call(fields).dialect {
        Dialect::OpenAiResponses(echo) => echo,
        other => panic!("{other:?}"),
    }
}

fn billed() -> BilledUsage {
    BilledUsage {
        quantity: Quantity::default(),
        tokens: TokenCounts {
            input: 100,
            cache_read: 40,
            cache_write_short: 10,
            cache_write_long: 5,
            output: 7,
            reasoning: 2,
            ..TokenCounts::default()
        },
        credits: Credits::from_micro(1_250_000),
    }
}

fn whole(events: &[Event]) -> Value {
    let mut answer = ResponseObject::new(head(), echo(&json!({})));
    answer.answered_by("p");
    events.iter().for_each(|event| answer.push(event));
    checked("ResponsesAnswer", &answer.into_body(&billed()))
}

/// The data of a stream's events, checked for types and numbers.
fn parsed(out: &[u8]) -> Vec<Value> {
    check_events("ResponsesEvent", out);
    let text = std::str::from_utf8(out).unwrap();
    let events = text.split_terminator("\n\n").enumerate();
    events
        .map(|(number, event)| {
            let (name, data) = event.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
            assert_eq!(data["sequence_number"], number, "{data}");
            data
        })
        .collect()
}

fn streamed(events: &[Event]) -> Vec<Value> {
    let mut chunks = ResponseStream::new(head(), echo(&json!({})));
    chunks.answered_by("p");
    let mut out = Vec::new();
    events
        .iter()
        .for_each(|event| chunks.event(event, &mut out));
    chunks.finish(&billed(), &mut out);
    parsed(&out)
}

/// Combines the output like clients: by added items, and by deltas. Each done event must equal the combined state.
fn put_together(events: &[Value]) -> Value {
    let mut output: Vec<Value> = Vec::new();
    let mut open = None;
    for event in events {
        let kind = event["type"].as_str().unwrap();
        let Some(at) = event["output_index"].as_u64().map(|at| at as usize) else {
            continue;
        };
        if kind == "response.output_item.added" {
            assert_eq!((at, open), (output.len(), None), "{event}");
            output.push(event["item"].clone());
            open = Some(at);
            continue;
        }
        assert_eq!(open, Some(at), "one item at a time: {event}");
        let item = &mut output[at];
        if kind == "response.output_item.done" {
            let done = &event["item"];
            for field in ["id", "content", "summary", "arguments", "input"] {
                assert_eq!(done.get(field), item.get(field), "{event}");
            }
            *item = done.clone();
            open = None;
            continue;
        }
        assert_eq!(event["item_id"], item["id"]);
        let (list, index) = match event["content_index"].as_u64() {
            Some(index) => ("content", index),
            None => ("summary", event["summary_index"].as_u64().unwrap_or(0)),
        };
        let (_, step) = kind.rsplit_once('.').unwrap();
        let subject = kind.split('.').nth(1).unwrap();
        match (subject, step) {
            ("content_part" | "reasoning_summary_part", "added") => {
                let parts = item[list].as_array_mut().unwrap();
                assert_eq!(parts.len() as u64, index);
                parts.push(event["part"].clone());
            }
            ("content_part" | "reasoning_summary_part", _) => {
                assert_eq!(event["part"], item[list][index as usize]);
            }
            ("output_text", "added") => {
                let annotations = item[list][index as usize]["annotations"].as_array_mut();
                annotations.unwrap().push(event["annotation"].clone());
            }
            _ => {
                let (field, holder) = match subject {
                    "output_text" | "reasoning_summary_text" => {
                        ("text", &mut item[list][index as usize])
                    }
                    "refusal" => ("refusal", &mut item[list][index as usize]),
                    "function_call_arguments" => ("arguments", item),
                    "custom_tool_call_input" => ("input", item),
                    _ => panic!("{event}"),
                };
                match step {
                    "delta" => {
                        let more = event["delta"].as_str().unwrap();
                        let all = holder[field].as_str().unwrap().to_owned() + more;
                        holder[field] = all.into();
                    }
                    _ => assert_eq!(event[field], holder[field], "{event}"),
                }
            }
        }
    }
    output.into()
}

fn piece(index: u32, text: &str) -> Fragment {
    Fragment {
        index,
        text: text.into(),
    }
}

fn begin(index: u32, block: Block) -> Event {
    Event::BlockStart(BlockStart { index, block })
}

fn calling(index: u32, id: &str, kind: CallKind) -> Event {
    let (id, name) = (id.to_owned(), "f".to_owned());
    begin(index, Block::ToolCall(ToolCallStart { id, name, kind }))
}

fn cited(index: u32, source: &str, span: Option<Span>) -> Event {
    Event::Citation(Citation {
        index,
        source: Some(source.into()),
        title: None,
        cited_text: None,
        span,
        json: None,
    })
}

/// One event of each kind.
fn everything() -> Vec<Event> {
    vec![
        begin(0, Block::Reasoning),
        Event::Fragment(piece(0, "Let me ")),
        Event::Fragment(piece(0, "see.")),
        Event::Signature(piece(0, "sig")),
        Event::Signature(piece(0, "ned")),
        Event::BlockEnd(0),
        begin(1, Block::Text),
        Event::Fragment(piece(1, "żółw")),
        cited(1, "https://a.example", None),
        Event::BlockEnd(1),
        begin(2, Block::Text),
        Event::Fragment(piece(2, " and so")),
        cited(2, "https://b.example", Some(Span { start: 1, end: 4 })),
        Event::BlockEnd(2),
        Event::Opaque(OpaqueBlock {
            index: 3,
            block: Opaque {
                kind: "server_tool_use".into(),
                json: "{\"type\":\"server_tool_use\"}".into(),
            },
        }),
        // Calls may be open concurrently.
        calling(4, "c1", CallKind::Function),
        calling(5, "c2", CallKind::Function),
        Event::Fragment(piece(5, "{\"b\":")),
        Event::Fragment(piece(4, "{\"a\":1}")),
        Event::Fragment(piece(5, "2}")),
        Event::Signature(piece(4, "of a call")),
        Event::BlockEnd(5),
        Event::BlockEnd(4),
        calling(6, "c3", CallKind::Custom),
        Event::Fragment(piece(6, "free \"text\"")),
        Event::BlockEnd(6),
        begin(7, Block::Refusal),
        Event::Fragment(piece(7, "No.")),
        Event::BlockEnd(7),
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

fn kinds(output: &Value) -> Vec<&str> {
    let items = output.as_array().unwrap().iter();
    items.map(|item| item["type"].as_str().unwrap()).collect()
}

#[test]
fn messages_of_an_answer_stay_apart_and_have_their_phases() {
    let mark = |index, json: &str| {
        let (kind, json) = ("message".to_owned(), json.to_owned());
        let block = Opaque { kind, json };
        Event::Opaque(OpaqueBlock { index, block })
    };
    let say = |index, text| {
        let text = Event::Fragment(piece(index, text));
        [begin(index, Block::Text), text, Event::BlockEnd(index)]
    };
    let mut events = vec![mark(0, r#"{"phase":"commentary"}"#)];
    events.extend(say(1, "I look."));
    events.push(mark(2, "{}"));
    events.extend(say(3, "I see."));
    events.push(mark(4, r#"{"phase":"final_answer"}"#));
    events.extend(say(5, "A cat."));
    events.extend(say(6, " Or two."));
    events.push(Event::Finish(FinishReason::Stop));
    let output = whole(&events)["output"].clone();
    assert_eq!(put_together(&streamed(&events)), output);
    let items = output.as_array().unwrap().iter();
    let items: Vec<_> = items
        .map(|item| {
            let parts = item["content"].as_array().unwrap().iter();
            let texts: Vec<_> = parts.map(|part| part["text"].as_str().unwrap()).collect();
            (item["phase"].as_str(), texts)
        })
        .collect();
    assert_eq!(
        items,
        [
            (Some("commentary"), vec!["I look."]),
            (None, vec!["I see."]),
            (Some("final_answer"), vec!["A cat.", " Or two."]),
        ]
    );
}

#[test]
fn an_answer_holds_all_that_was_said() {
    let answer = whole(&everything());
    let output = &answer["output"];
    assert_eq!(
        kinds(output),
        [
            "reasoning",
            "message",
            "function_call",
            "reasoning",
            "function_call",
            "custom_tool_call",
            "message",
            "image_generation_call"
        ]
    );
    assert_eq!(
        output[0]["summary"],
        json!([{ "type": "summary_text", "text": "Let me see." }])
    );
    let citation = |start: u32, end: u32, url: &str| json!({ "type": "url_citation", "start_index": start, "end_index": end, "title": url, "url": url });
    assert_eq!(
        output[1],
        json!({ "type": "message", "id": "msg_1_1", "status": "completed", "role": "assistant", "content": [
            { "type": "output_text", "text": "żółw", "annotations": [citation(0, 4, "https://a.example")], "logprobs": [] },
            { "type": "output_text", "text": " and so", "annotations": [citation(1, 4, "https://b.example")], "logprobs": [] },
        ] })
    );
    assert_eq!(
        output[2],
        json!({ "type": "function_call", "id": "fc_1_4", "status": "completed", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}" })
    );
    assert_eq!(output[4]["arguments"], "{\"b\":2}");
    assert_eq!(output[5]["input"], "free \"text\"");
    assert_eq!(
        output[6]["content"],
        json!([{ "type": "refusal", "refusal": "No." }])
    );
    assert_eq!(output[7]["result"], "aGk=");
    assert_eq!(
        answer["usage"],
        json!({
            "input_tokens": 100, "input_tokens_details": { "cached_tokens": 40, "cache_write_tokens": 15 },
            "output_tokens": 7, "output_tokens_details": { "reasoning_tokens": 2 },
            "total_tokens": 107, "credits": 1.25,
        })
    );
    assert_eq!(
        (&answer["id"], &answer["object"], &answer["status"]),
        (&json!("resp_1"), &json!("response"), &json!("completed"))
    );
}

#[test]
fn a_stream_adds_up_to_the_plain_answer() {
    for events in [everything(), vec![Event::Finish(FinishReason::Stop)]] {
        let answer = whole(&events);
        let stream = streamed(&events);
        assert_eq!(put_together(&stream), answer["output"]);
        let last = stream.last().unwrap();
        assert_eq!(last["type"], "response.completed");
        assert_eq!(last["response"], answer);
        for (event, kind) in stream
            .iter()
            .zip(["response.created", "response.in_progress"])
        {
            assert_eq!(event["type"], kind);
            let begun = &event["response"];
            assert_eq!(
                (&begun["status"], &begun["output"], &begun["usage"]),
                (&json!("in_progress"), &json!([]), &Value::Null)
            );
        }
    }
}

/// If a client only sends a response's items back, all proofs return with their proven content.
#[test]
fn items_that_are_sent_back_prove_what_they_proved() {
    let mut events = everything();
    let sealed = [
        begin(8, Block::Reasoning),
        Event::Sealed(piece(8, "sealed")),
        Event::BlockEnd(8),
        // A provider that signs an empty text needs it back.
        begin(9, Block::Text),
        Event::Signature(piece(9, "of a text")),
        Event::BlockEnd(9),
    ];
    let at = events.len() - 2;
    events.splice(at..at, sealed);
    let input = whole(&events)["output"].clone();
    let [turn] = &call(&json!({ "input": input })).request.messages[..] else {
        panic!("one turn");
    };
    let proofs: Vec<_> = turn
        .parts
        .iter()
        .map(|part| (part.signature.as_deref(), part.provider.as_deref()))
        .collect();
    let own = Some("p");
    assert_eq!(
        proofs,
        [
            (Some("signed"), own),
            (None, None),
            (None, None),
            (Some("of a call"), own),
            (None, None),
            (None, None),
            (None, None),
            (None, own),
            (Some("of a text"), own),
            (None, None),
        ]
    );
    let reasoning = |part: &Part| match &part.content {
        Content::Reasoning(reasoning) => (reasoning.text.clone(), reasoning.sealed.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(reasoning(&turn.parts[0]), ("Let me see.".to_owned(), None));
    assert_eq!(
        reasoning(&turn.parts[7]),
        (String::new(), Some("sealed".to_owned()))
    );
    assert!(matches!(&turn.parts[3].content, Content::ToolCall(call) if call.id == "c1"));
    assert!(matches!(&turn.parts[9].content, Content::Image(_)));
}

/// No configured provider has made it, so none receives it.
#[test]
fn reasoning_that_was_sealed_elsewhere_is_nobodys() {
    let foreign =
        json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA" });
    let call = call(&json!({ "input": [foreign, { "role": "user", "content": "x" }] }));
    let part = &call.request.messages[0].parts[0];
    assert_eq!(part.provider.as_deref(), Some(""));
    assert!(matches!(&part.content, Content::Reasoning(r) if r.sealed.as_deref() == Some("gAAAA")));
}

#[test]
fn each_end_of_an_answer_has_its_status() {
    let said = |block: Block, reason: FinishReason| {
        let events = [
            begin(0, block),
            Event::Fragment(piece(0, "So")),
            Event::BlockEnd(0),
            Event::Finish(reason),
        ];
        let (answer, stream) = (whole(&events), streamed(&events));
        let last = stream.last().unwrap();
        assert_eq!(last["response"], answer);
        let status = answer["status"].as_str().unwrap().to_owned();
        assert_eq!(last["type"], format!("response.{status}"));
        assert_eq!(answer["output"][0]["status"], status);
        (status, answer["incomplete_details"]["reason"].clone())
    };
    let completed = ("completed".to_owned(), Value::Null);
    let cut = ("incomplete".to_owned(), json!("max_output_tokens"));
    let filtered = ("incomplete".to_owned(), json!("content_filter"));
    for (reason, expected) in [
        (FinishReason::Stop, &completed),
        (FinishReason::StopSequence("x".into()), &completed),
        (FinishReason::PauseTurn, &completed),
        (FinishReason::Other("x".into()), &completed),
        (FinishReason::Length, &cut),
        (FinishReason::ContextWindow, &cut),
        (FinishReason::ContentFilter, &filtered),
        (FinishReason::Refusal, &filtered),
    ] {
        assert_eq!(&said(Block::Text, reason.clone()), expected, "{reason:?}");
    }
    assert_eq!(said(Block::Refusal, FinishReason::Refusal), completed);
}

#[test]
fn a_stream_that_fails_says_what_there_is_of_the_answer() {
    let error = json!({ "error": { "message": "It is gone.", "type": "server_error", "code": null, "param": null } });
    let failed = |events: &[Event]| {
        let mut chunks = ResponseStream::new(head(), echo(&json!({})));
        let mut out = Vec::new();
        events
            .iter()
            .for_each(|event| chunks.event(event, &mut out));
        chunks.error(&error, &mut out);
        parsed(&out)
    };
    // The stream is silent until the first output.
    let mut chunks = ResponseStream::new(head(), echo(&json!({})));
    let mut out = Vec::new();
    chunks.event(&begin(0, Block::Text), &mut out);
    assert!(out.is_empty());

    let stream = failed(&[begin(0, Block::Text), Event::Fragment(piece(0, "So"))]);
    let [.., said, last] = &stream[..] else {
        panic!("two events");
    };
    assert_eq!(
        (&said["type"], &said["message"], &said["error"]["type"]),
        (
            &json!("error"),
            &json!("It is gone."),
            &json!("server_error")
        )
    );
    assert_eq!(last["type"], "response.failed");
    let response = &last["response"];
    assert_eq!(
        response["error"],
        json!({ "code": "server_error", "message": "It is gone." })
    );
    assert_eq!(
        (&response["status"], &response["output"][0]["status"]),
        (&json!("failed"), &json!("incomplete"))
    );
    assert_eq!(response["output"][0]["content"][0]["text"], "So");

    let kinds: Vec<_> = failed(&[])
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "error",
            "response.failed"
        ]
    );
}

#[test]
fn an_answer_repeats_what_was_asked() {
    let fields = json!({
        "instructions": "Be\nbrief.", "temperature": 0.5, "max_output_tokens": 9, "metadata": { "a": "b" }, "store": false,
        "tools": [
            { "type": "function", "name": "f", "parameters": { "type": "object" } },
            { "type": "custom", "name": "c" },
        ],
        "tool_choice": { "type": "function", "name": "f" }, "text": { "verbosity": "low" },
        "reasoning": { "effort": "low" }, "previous_response_id": "resp_0", "user": "u",
    });
    let answer = ResponseObject::new(head(), echo(&fields)).into_body(&billed());
    let answer = checked("ResponsesAnswer", &answer);
    for name in [
        "instructions",
        "temperature",
        "max_output_tokens",
        "metadata",
        "store",
        "tool_choice",
        "previous_response_id",
        "user",
    ] {
        assert_eq!(answer[name], fields[name], "{name}");
    }
    assert_eq!(
        answer["tools"],
        json!([
            { "type": "function", "name": "f", "description": null, "parameters": { "type": "object" }, "strict": null },
            { "type": "custom", "name": "c", "description": null, "format": { "type": "text" } },
        ])
    );
    assert_eq!(
        (&answer["text"], &answer["reasoning"]),
        (
            &json!({ "format": { "type": "text" }, "verbosity": "low" }),
            &json!({ "effort": "low", "summary": null })
        )
    );
    assert_eq!(
        (&answer["parallel_tool_calls"], &answer["truncation"]),
        (&json!(true), &json!("disabled"))
    );
}

/// Tools in the form of `openai` 3.52.0 (Python): `types/responses/namespace_tool_param.py` and `AdditionalTools` in
/// `response_input_item_param.py`.
fn namespaced() -> Value {
    let function = |name: &str| {
        json!({ "type": "function", "name": name, "description": "Does it.", "parameters": { "type": "object" },
            "strict": false })
    };
    let long = "n".repeat(70);
    json!({
        "tools": [
            function("look"),
            { "type": "namespace", "name": "mcp__crm__", "description": "Customers.",
                "tools": [function("find"), { "type": "custom", "name": "note" }] },
            { "type": "namespace", "name": "agents", "description": "", "tools": [function("find")] },
            function("agents__find"),
            { "type": "namespace", "name": long, "description": "", "tools": [function("find")] },
        ],
        "input": [
            { "type": "additional_tools", "role": "developer", "tools": [
                { "type": "namespace", "name": "agents", "description": "", "tools": [function("spawn")] },
                function("look"),
                { "type": "web_search" },
            ] },
            { "role": "user", "content": "Hi" },
            { "type": "function_call", "call_id": "c", "name": "find", "namespace": "agents", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c", "name": "find", "namespace": "agents", "output": "x" },
            { "type": "custom_tool_call", "call_id": "d", "name": "gone", "namespace": "lost", "input": "" },
        ],
    })
}

fn names_of(call: &ChatCall) -> Vec<String> {
    let tools = call.request.tools.iter();
    tools
        .map(|tool| match &tool.kind {
            ToolKind::Function(function) => function.name.clone(),
            ToolKind::Custom(custom) => custom.name.clone(),
            ToolKind::BuiltIn(built_in) => built_in.kind.clone(),
        })
        .collect()
}

#[test]
fn a_bound_of_calls_is_one_of_the_providers_tools() {
    let extra = |tools: Value| {
        let call = call(&json!({ "input": "x", "max_tool_calls": 3, "tools": tools }));
        call.request.extra
    };
    let bound = [("max_tool_calls".to_owned(), "3".to_owned())];
    assert_eq!(extra(json!([{ "type": "web_search" }])), bound);
    assert_eq!(extra(json!([{ "type": "function", "name": "f" }])), []);
}

#[test]
fn tools_of_namespaces_and_of_the_input_are_tools_with_one_name_each() {
    let call = call(&namespaced());
    let names = names_of(&call);
    assert_eq!(names.len(), 8, "{names:?}");
    let (taken, long) = (&names[3], &names[5]);
    assert_eq!(
        [&names[..3], &names[4..5], &names[6..]].concat(),
        [
            "look",
            "mcp__crm__find",
            "mcp__crm__note",
            "agents__find",
            "agents__spawn",
            "web_search"
        ]
    );
    for name in [taken, long] {
        let hash = name.strip_prefix("find_").unwrap();
        assert!(hash.len() == 16 && taken != long, "{name}");
    }
    let ToolKind::Function(first) = &call.request.tools[1].kind else {
        panic!("{:?}", call.request.tools[1]);
    };
    assert_eq!(first.description.as_deref(), Some("Customers.\n\nDoes it."));

    let messages = &call.request.messages;
    let called = |message: &Message| match &message.parts[0].content {
        Content::ToolCall(call) => call.name.clone(),
        Content::ToolResult(result) => result.tool_name.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    let called: Vec<_> = messages[1..].iter().map(called).collect();
    assert_eq!(called, [taken, taken, "lost__gone"]);
}

#[test]
fn a_call_of_a_tool_in_a_namespace_has_both_names() {
    let call = call(&namespaced());
    let names = names_of(&call);
    let tool = |index: u32, name: &str, kind| {
        let start = ToolCallStart {
            id: format!("call_{index}"),
            name: name.to_owned(),
            kind,
        };
        let block = Block::ToolCall(start);
        [
            Event::BlockStart(BlockStart { index, block }),
            Event::BlockEnd(index),
        ]
    };
    let events: Vec<Event> = [
        tool(0, "look", CallKind::Function),
        tool(1, &names[3], CallKind::Function),
        tool(2, "mcp__crm__note", CallKind::Custom),
    ]
    .into_iter()
    .flatten()
    .chain([Event::Finish(FinishReason::ToolCalls)])
    .collect();
    let echo = || echo(&namespaced());
    let mut answer = ResponseObject::new(head(), echo());
    events.iter().for_each(|event| answer.push(event));
    let plain: Value = checked("ResponsesAnswer", &answer.into_body(&billed()));
    let called = plain["output"].as_array().unwrap().iter();
    let called: Vec<_> = called
        .map(|item| (item["namespace"].as_str(), item["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        called,
        [
            (None, "look"),
            (Some("agents"), "find"),
            (Some("mcp__crm__"), "note")
        ]
    );
    let tools = plain["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 5);
    assert_eq!(tools[1]["name"], "mcp__crm__");
    assert_eq!(tools[1]["description"], "Customers.");
    assert_eq!(tools[1]["tools"][0]["name"], "find");
    let (mut chunks, mut out) = (ResponseStream::new(head(), echo()), Vec::new());
    events
        .iter()
        .for_each(|event| chunks.event(event, &mut out));
    chunks.finish(&billed(), &mut out);
    let streamed = parsed(&out);
    assert_eq!(put_together(&streamed), plain["output"]);
}
