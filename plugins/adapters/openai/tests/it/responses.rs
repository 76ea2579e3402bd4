//! The Responses API: the requests to the upstream, and the events of responses.
//!
//! The responses here have the fields of the types in openai-python 3.52.0 (`types/responses/`).

use serde_json::{Value, json};
use weir_adapter_openai::translate::OpenAi;
use weir_sdk::adapter::{
    Description, Event, Exchange, Failure, FailureKind, HttpResponseHead, Request, Setting,
    StartedExchange, Step,
};
use weir_sdk::chat::{
    AllowedTools, CallKind, ChatRequest, Content, CustomTool, JsonSchema, Opaque, Reasoning,
    ReasoningEffort, ReasoningRequest, ResponseFormat, Role, ToolCall, ToolChoice, ToolContent,
    ToolKind, ToolResult,
};
use weir_sdk::testing::{
    check_every_cut, check_every_truncation, check_mutations, fails, failure, function, image,
    lines, read, receive, tool,
};

use crate::{EVENT_STREAM, JSON, NO_REASONING, chat, message, request, setting};

/// The adapter with the option `api`, and with a client of this API or of another one.
struct Responses<const OWN_CLIENT: bool = false>(OpenAi);

impl<const OWN_CLIENT: bool> Exchange for Responses<OWN_CLIENT> {
    fn describe() -> Description {
        OpenAi::describe()
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, weir_sdk::adapter::RefusedSetting> {
        let options = [&[setting("api", "responses")], options].concat();
        OpenAi::configure(&options)
    }

    fn begin(mut request: Request, configuration: &[u8]) -> Result<StartedExchange<Self>, Failure> {
        if OWN_CLIENT {
            request.client.dialect = "openai-responses".to_owned();
        }
        let begun = OpenAi::begin(request, configuration)?;
        Ok(StartedExchange {
            exchange: Self(begun.exchange),
            step: begun.step,
            ignored: begun.ignored,
        })
    }

    fn next(&mut self) -> Result<Step, Failure> {
        self.0.next()
    }

    fn head(&mut self, head: HttpResponseHead) -> Result<(), Failure> {
        self.0.head(head)
    }

    fn body(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        self.0.body(bytes, events)
    }

    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        self.0.end(events)
    }
}

fn sent(chat: ChatRequest, options: &[Setting]) -> (Value, Vec<String>) {
    let sent = weir_sdk::testing::send::<Responses>(request(chat), options);
    let sent = sent.expect("a request that can be expressed");
    assert_eq!(sent.path, "/responses");
    (sent.body, sent.ignored)
}

fn refused(chat: ChatRequest) -> String {
    let sent = weir_sdk::testing::send::<Responses>(request(chat), &[]);
    let failure = sent.expect_err("a refusal");
    assert_eq!(failure.kind, FailureKind::Unsupported);
    failure.param.expect("the name of a field")
}

fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

fn call(id: &str, name: &str, kind: CallKind, arguments: &str) -> Content {
    Content::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        kind,
        arguments: arguments.to_owned(),
    })
}

fn result(call_id: &str, content: Vec<ToolContent>, is_error: bool) -> Content {
    Content::ToolResult(ToolResult {
        call_id: call_id.to_owned(),
        tool_name: None,
        content,
        is_error,
    })
}

#[test]
fn a_request_has_the_whole_conversation_and_stores_nothing() {
    let (body, ignored) = sent(chat("Hi"), &[]);
    assert_eq!(
        body,
        json!({
            "model": "gpt-test",
            "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] }],
            "max_output_tokens": 100,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "stream": false,
        })
    );
    assert_eq!(ignored, Vec::<String>::new());
}

#[test]
fn a_turn_with_reasoning_and_calls_is_replayed_item_by_item() {
    let sealed = Content::Reasoning(Reasoning {
        text: "Look first.".to_owned(),
        sealed: Some("c2VhbGVk".to_owned()),
        id: None,
    });
    let remote = image(weir_sdk::chat::Source::Attachment(0));
    let chat = ChatRequest {
        messages: vec![
            message(Role::System, vec![text("Be brief.")]),
            message(Role::User, vec![text("What is it?"), remote]),
            message(
                Role::Assistant,
                vec![
                    sealed,
                    text("Let me look."),
                    call("c1", "look", CallKind::Function, "{\"at\":1}"),
                    call("c2", "patch", CallKind::Custom, "+a"),
                ],
            ),
            message(
                Role::Tool,
                vec![
                    result("c1", vec![ToolContent::Text("A cat".to_owned())], false),
                    result("c2", vec![ToolContent::Text("no".to_owned())], true),
                ],
            ),
        ],
        ..chat("")
    };
    let (body, ignored) = sent(chat, &[]);
    assert_eq!(
        body["input"],
        json!([
            { "type": "message", "role": "system", "content": [{ "type": "input_text", "text": "Be brief." }] },
            { "type": "message", "role": "user", "content": [
                { "type": "input_text", "text": "What is it?" },
                { "type": "input_image", "image_url": "data:image/png;base64,<0>" },
            ] },
            { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Look first." }],
              "encrypted_content": "c2VhbGVk" },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Let me look." }] },
            { "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"at\":1}" },
            { "type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "+a" },
            { "type": "function_call_output", "call_id": "c1", "output": "A cat" },
            { "type": "custom_tool_call_output", "call_id": "c2", "output": [
                { "type": "input_text", "text": "The tool failed." }, { "type": "input_text", "text": "no" },
            ] },
        ])
    );
    assert_eq!(ignored, Vec::<String>::new());
}

#[test]
fn open_reasoning_is_left_out_and_named() {
    let open = Content::Reasoning(Reasoning {
        text: "Hm.".to_owned(),
        sealed: None,
        id: None,
    });
    let chat = ChatRequest {
        messages: vec![
            message(Role::User, vec![text("Hi")]),
            message(Role::Assistant, vec![open, text("Hello")]),
        ],
        ..chat("")
    };
    let (body, ignored) = sent(chat, &[]);
    assert_eq!(body["input"].as_array().map(Vec::len), Some(2));
    assert_eq!(ignored, ["reasoning"]);
}

#[test]
fn tools_and_choices_have_their_flat_form() {
    let patch = ToolKind::Custom(CustomTool {
        name: "patch".to_owned(),
        description: None,
        format: Some(r#"{"type":"grammar","syntax":"lark","definition":"a"}"#.to_owned()),
    });
    let with = |tool_choice| ChatRequest {
        tools: vec![function("look"), tool(patch.clone())],
        tool_choice,
        parallel_tool_calls: Some(false),
        ..chat("Hi")
    };
    let (body, _) = sent(with(ToolChoice::Named("patch".to_owned())), &[]);
    assert_eq!(body["tools"][0]["type"], "function");
    assert_eq!(body["tools"][0]["name"], "look");
    assert_eq!(
        body["tools"][0]["strict"], false,
        "not enforced unless asked"
    );
    assert_eq!(
        body["tools"][1],
        json!({ "type": "custom", "name": "patch", "format": { "type": "grammar", "syntax": "lark", "definition": "a" } })
    );
    assert_eq!(
        body["tool_choice"],
        json!({ "type": "custom", "name": "patch" })
    );
    assert_eq!(body["parallel_tool_calls"], false);
    let among = ToolChoice::Among(AllowedTools {
        names: vec!["look".to_owned()],
        required: true,
    });
    let (body, _) = sent(with(among), &[]);
    assert_eq!(
        body["tool_choice"],
        json!({ "type": "allowed_tools", "mode": "required", "tools": [{ "type": "function", "name": "look" }] })
    );
}

#[test]
fn settings_have_their_places() {
    let chat = ChatRequest {
        response_format: ResponseFormat::JsonSchema(JsonSchema {
            name: None,
            description: None,
            strict: Some(true),
            schema: r#"{"type":"object"}"#.to_owned(),
        }),
        reasoning: ReasoningRequest {
            effort: Some(ReasoningEffort::Highest),
            summary: Some("summarized".to_owned()),
            ..NO_REASONING
        },
        max_output_tokens: 5,
        temperature: Some(0.5),
        seed: Some(7),
        extra: vec![
            ("verbosity".to_owned(), "\"low\"".to_owned()),
            ("user".to_owned(), "\"u1\"".to_owned()),
            ("metadata".to_owned(), "{}".to_owned()),
        ],
        stream: true,
        ..chat("Hi")
    };
    let (body, ignored) = sent(chat, &[setting("efforts", "low, medium, high")]);
    assert_eq!(
        body["text"],
        json!({
            "format": { "type": "json_schema", "name": "response", "strict": false, "schema": { "type": "object" } },
            "verbosity": "low",
        })
    );
    assert_eq!(
        body["reasoning"],
        json!({ "effort": "high", "summary": "auto" })
    );
    assert_eq!(body["max_output_tokens"], 16, "the API's smallest limit");
    assert_eq!(body["temperature"], 0.5);
    assert_eq!(body["user"], "u1");
    assert_eq!(body["stream"], true);
    // The upstream enforces no open schema.
    let strict = "response_format.json_schema.strict";
    assert_eq!(ignored, ["seed", "metadata", strict]);
}

#[test]
fn a_field_without_a_place_is_refused_by_name() {
    let stop = ChatRequest {
        stop: vec!["x".to_owned()],
        ..chat("Hi")
    };
    assert_eq!(refused(stop), "stop");
    let penalty = ChatRequest {
        presence_penalty: Some(0.5),
        ..chat("Hi")
    };
    assert_eq!(refused(penalty), "presence_penalty");
    let logprobs = ChatRequest {
        extra: vec![("logprobs".to_owned(), "true".to_owned())],
        ..chat("Hi")
    };
    assert_eq!(refused(logprobs), "logprobs");
    let audio = Content::Audio(weir_sdk::chat::Audio {
        source: weir_sdk::chat::Source::Attachment(2),
        format: None,
    });
    let audio = ChatRequest {
        messages: vec![message(Role::User, vec![audio])],
        ..chat("")
    };
    assert_eq!(refused(audio), "messages[0]");
}

#[test]
fn a_model_without_sampling_takes_only_the_defaults() {
    let warm = |temperature| ChatRequest {
        temperature: Some(temperature),
        ..chat("Hi")
    };
    let options = [setting("sampling", "false")];
    for (temperature, named) in [(1.0, None), (0.2, Some("temperature"))] {
        let (body, ignored) = sent(warm(temperature), &options);
        assert_eq!(body.get("temperature"), None);
        assert_eq!(ignored.first().map(String::as_str), named);
        // The other API reads the same option.
        let sent = weir_sdk::testing::send::<OpenAi>(request(warm(temperature)), &options);
        let sent = sent.expect("a request");
        assert_eq!(sent.body.get("temperature"), None);
        assert_eq!(sent.ignored.first().map(String::as_str), named);
    }
}

#[test]
fn invalid_options_are_refused() {
    for (name, value) in [
        ("api", "chat"),
        ("efforts", "low,huge"),
        ("efforts", "low\n"),
        ("sampling", "no"),
    ] {
        let refused = OpenAi::configure(&[setting(name, value)]).expect_err("an invalid option");
        assert_eq!(refused.name, name);
    }
}

/// The items of a response with reasoning, a text with a source, and two calls.
const OUTPUT: &str = r#"[
    {"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"First."},{"type":"summary_text","text":"Then."}],"encrypted_content":"c2Vh"},
    {"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"It is a cat.","annotations":[{"type":"url_citation","start_index":0,"end_index":5,"url":"https://a.example/","title":"A"}],"logprobs":[]}]},
    {"id":"fc_1","type":"function_call","call_id":"c1","name":"look","arguments":"{\"at\":1}","status":"completed"},
    {"id":"ctc_1","type":"custom_tool_call","call_id":"c2","name":"patch","input":"+a"}]"#;
const USAGE: &str = r#"{"input_tokens":30,"input_tokens_details":{"cached_tokens":10,"cache_write_tokens":9,"cache_write_tokens_details":{"ttl_30m_tokens":5,"ttl_12h_tokens":4}},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":7},"total_tokens":50}"#;

fn response(status: &str, output: &str, more: &str) -> String {
    format!(
        r#"{{"id":"resp_1","object":"response","created_at":1,"model":"gpt-test-1","status":"{status}","error":null,{more}"output":{output},"usage":{USAGE}}}"#
    )
}

fn stream(events: &[&str], last: &str) -> String {
    let events = events.iter().copied().chain([last]).map(|event| {
        let kind: Value = serde_json::from_str(event).expect("JSON");
        let kind = kind["type"].as_str().expect("a type").to_owned();
        format!("event: {kind}\ndata: {}\n\n", event.replace('\n', " "))
    });
    events.collect()
}

fn completed(output: &str) -> String {
    format!(
        r#"{{"type":"response.completed","response":{}}}"#,
        response("completed", output, "")
    )
}

const CREATED: &str = r#"{"type":"response.created","response":{"id":"resp_1","model":"gpt-test-1","status":"in_progress","output":[]}}"#;

/// The same response as [`OUTPUT`], piece by piece.
fn streamed_response() -> String {
    let items: Vec<Value> = serde_json::from_str(OUTPUT).expect("JSON");
    let done = |number: usize| {
        json!({ "type": "response.output_item.done", "output_index": number, "item": items[number] }).to_string()
    };
    let done: Vec<_> = (0..items.len()).map(done).collect();
    stream(
        &[
            CREATED,
            r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
            r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"Fir"}"#,
            r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"st."}"#,
            r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"Then."}"#,
            &done[0],
            r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","content":[]}}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"It is ","logprobs":[]}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"a cat."}"#,
            r#"{"type":"response.output_text.annotation.added","output_index":1,"content_index":0,"annotation_index":0,"annotation":{"type":"url_citation","start_index":0,"end_index":5,"url":"https://a.example/","title":"A"}}"#,
            &done[1],
            r#"{"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"c1","name":"look","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"at\""}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":":1}"}"#,
            &done[2],
            r#"{"type":"response.output_item.added","output_index":3,"item":{"id":"ctc_1","type":"custom_tool_call","call_id":"c2","name":"patch","input":""}}"#,
            r#"{"type":"response.custom_tool_call_input.delta","output_index":3,"delta":"+a"}"#,
            &done[3],
        ],
        &completed(OUTPUT),
    )
}

#[test]
fn a_stream_and_a_whole_response_have_the_same_blocks() {
    let whole = read::<Responses>(JSON, &response("completed", OUTPUT, ""));
    assert_eq!(
        whole,
        [
            "started resp_1 gpt-test-1",
            "0 reasoning",
            "0: First.\n\nThen.",
            "0 sealed: c2Vh",
            "0 ends",
            "1 text",
            "1: It is a cat.",
            "1 cites https://a.example/ A - 0..5",
            "1 ends",
            "2 call c1 look",
            "2: {\"at\":1}",
            "2 ends",
            "3 call c2 patch with free text",
            "3: +a",
            "3 ends",
            "usage in=30 read=10 write=5 write-long=4 out=20 reasoning=7",
            "finish ToolCalls",
        ]
    );
    assert_eq!(read::<Responses>(EVENT_STREAM, &streamed_response()), whole);
    // A server that streams nothing but the end.
    let late = stream(&[CREATED], &completed(OUTPUT));
    assert_eq!(read::<Responses>(EVENT_STREAM, &late), whole);
}

/// Two messages in a row, the first one in two parts.
const MESSAGES: &str = r#"[
    {"id":"msg_1","type":"message","role":"assistant","phase":"commentary","content":[
        {"type":"output_text","text":"I look.","annotations":[]},{"type":"output_text","text":"I see.","annotations":[]}]},
    {"id":"msg_2","type":"message","role":"assistant","content":[{"type":"output_text","text":"A cat.","annotations":[]}]}]"#;

#[test]
fn messages_stay_apart_for_clients_that_have_them() {
    let added = r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","phase":"commentary","content":[]}}"#;
    let first = r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"I look."}"#;
    let second = r#"{"type":"response.output_text.delta","output_index":0,"content_index":1,"delta":"I see."}"#;
    let streamed = stream(&[CREATED, added, first, second], &completed(MESSAGES));
    for (headers, answer) in [
        (JSON, response("completed", MESSAGES, "")),
        (EVENT_STREAM, streamed),
    ] {
        let said = |lines: Vec<String>| {
            let lines = lines.into_iter();
            let said = lines.filter(|line| line.contains(": ") || line.contains("message"));
            said.collect::<Vec<_>>()
        };
        assert_eq!(
            said(read::<Responses<true>>(headers, &answer)),
            [
                r#"0 message {"phase":"commentary"}"#,
                "1: I look.",
                "2: I see.",
                "3 message {}",
                "4: A cat.",
            ]
        );
        assert_eq!(
            said(read::<Responses>(headers, &answer)),
            ["0: I look.", "1: I see.", "2: A cat."]
        );
        check_every_cut::<Responses<true>>(headers, &answer);
    }
}

#[test]
fn the_bound_of_calls_is_for_servers_of_this_api() {
    let mut chat = chat("Hi");
    chat.extra = vec![("max_tool_calls".to_owned(), "3".to_owned())];
    let own = weir_sdk::testing::send::<Responses<true>>(request(chat.clone()), &[]);
    let own = own.expect("a request");
    assert_eq!(own.body["max_tool_calls"], 3);
    assert!(own.ignored.is_empty());
    let (body, ignored) = sent(chat, &[]);
    assert_eq!(body.get("max_tool_calls"), None);
    assert_eq!(ignored, ["max_tool_calls"]);
}

#[test]
fn a_message_has_its_phase_again() {
    let mark = |phase: &str| {
        Content::Opaque(Opaque {
            kind: "message".to_owned(),
            json: format!(r#"{{"phase":"{phase}"}}"#),
        })
    };
    let parts = [
        mark("commentary"),
        text("I look."),
        mark("final_answer"),
        text("A cat."),
        mark("commentary"),
    ];
    let mut chat = chat("Hi");
    chat.messages.push(message(Role::Assistant, parts.into()));
    let sent = weir_sdk::testing::send::<Responses<true>>(request(chat), &[]);
    let sent = sent.expect("a request");
    assert!(sent.ignored.is_empty());
    let said = |phase: &str, text: &str| {
        json!({ "type": "message", "role": "assistant", "phase": phase,
                "content": [{ "type": "output_text", "text": text }] })
    };
    let expected = [
        said("commentary", "I look."),
        said("final_answer", "A cat."),
    ];
    assert_eq!(sent.body["input"].as_array().expect("items")[1..], expected);
}

#[test]
fn a_response_gives_the_same_events_for_each_cut_and_none_when_it_is_truncated() {
    for (headers, answer, last) in [
        (JSON, response("completed", OUTPUT, ""), "}"),
        (EVENT_STREAM, streamed_response(), "}}"),
    ] {
        check_every_cut::<Responses>(headers, &answer);
        check_every_truncation::<Responses>(headers, &answer, last);
        check_mutations::<Responses>(headers, &[&answer]);
    }
}

#[test]
fn the_status_decides_the_finish() {
    let says =
        r#"[{"type":"message","content":[{"type":"output_text","text":"Hi","annotations":[]}]}]"#;
    let refuses = r#"[{"type":"message","content":[{"type":"refusal","refusal":"No."}]}]"#;
    let cut = r#""incomplete_details":{"reason":"max_output_tokens"},"#;
    let filtered = r#""incomplete_details":{"reason":"content_filter"},"#;
    for (status, output, more, finish) in [
        ("completed", says, "", "finish Stop"),
        ("completed", refuses, "", "finish Refusal"),
        ("incomplete", says, cut, "finish Length"),
        ("incomplete", says, filtered, "finish ContentFilter"),
    ] {
        let whole = response(status, output, more);
        let read_whole = read::<Responses>(JSON, &whole);
        assert_eq!(read_whole.last().map(String::as_str), Some(finish));
        let last = format!(r#"{{"type":"response.{status}","response":{whole}}}"#);
        assert_eq!(
            read::<Responses>(EVENT_STREAM, &stream(&[CREATED], &last)),
            read_whole
        );
    }
}

#[test]
fn a_failed_response_is_a_failure_by_its_code() {
    for (code, kind) in [
        ("server_error", FailureKind::Unavailable),
        ("rate_limit_exceeded", FailureKind::RateLimited),
        ("invalid_prompt", FailureKind::Filtered),
        ("image_content_policy_violation", FailureKind::Filtered),
        ("image_too_large", FailureKind::Rejected),
    ] {
        let failed = format!(
            r#"{{"id":"resp_1","status":"failed","error":{{"code":"{code}","message":"It failed."}},"output":[],"usage":null}}"#
        );
        let (_, whole) = fails::<Responses>(JSON, &failed);
        assert_eq!((whole.kind, &*whole.text), (kind, "It failed."), "{code}");
        let last = format!(r#"{{"type":"response.failed","response":{failed}}}"#);
        let (_, streamed) = fails::<Responses>(EVENT_STREAM, &stream(&[CREATED], &last));
        assert_eq!(streamed.kind, kind, "{code}");
    }
    let event = r#"{"type":"error","code":"rate_limit_exceeded","message":"Too fast.","param":null,"sequence_number":1}"#;
    let (_, streamed) = fails::<Responses>(EVENT_STREAM, &stream(&[CREATED], event));
    assert_eq!(streamed.kind, FailureKind::RateLimited);
    let refused = failure::<Responses>(
        400,
        JSON,
        r#"{"error":{"message":"Unsupported parameter: 'temperature'","type":"invalid_request_error","param":"temperature","code":"unsupported_parameter"}}"#,
    );
    assert_eq!(refused.kind, FailureKind::Rejected);
    assert_eq!(refused.param.as_deref(), Some("temperature"));
}

#[test]
fn a_call_without_arguments_has_an_empty_object() {
    let output = r#"[{"type":"function_call","call_id":"c1","name":"look","arguments":""}]"#;
    let (events, result) = receive::<Responses>(
        chat(""),
        200,
        JSON,
        [response("completed", output, "").as_bytes()],
    );
    assert_eq!(result, Ok(()));
    assert_eq!(lines(&events)[1..4], ["0 call c1 look", "0: {}", "0 ends"]);
}

#[test]
fn images_of_a_tool_have_a_place() {
    let picture = weir_sdk::chat::Image {
        source: weir_sdk::chat::Source::Url("https://a.example/a.png".to_owned()),
        detail: None,
    };
    let chat = ChatRequest {
        messages: vec![
            message(
                Role::Assistant,
                vec![call("c1", "look", CallKind::Function, "{}")],
            ),
            message(
                Role::Tool,
                vec![result("c1", vec![ToolContent::Image(picture)], false)],
            ),
        ],
        ..chat("")
    };
    let (body, _) = sent(chat, &[]);
    assert_eq!(
        body["input"][1]["output"],
        json!([{ "type": "input_image", "image_url": "https://a.example/a.png" }])
    );
}

/// Values of other types than usual, kinds of later versions, and halves of characters cost nothing else of an answer.
#[test]
fn survives_odd_values() {
    let whole = r#"{"status":"completed","output":[{},{"type":"tool_search_call","arguments":{"x":1}},
        {"type":"novelty","content":7,"summary":"x","input":{}},
        {"type":"message","content":[{"type":"output_text","text":"So\ud83e","annotations":7},{"type":"output_text","text":7}]},
        {"type":"message","content":[{"text":"\uddab!"}]}],"usage":null}"#;
    let stream = r#"data: {"type":"novelty","delta":{"x":1},"output_index":"x"}

data: {"type":"response.output_item.added","output_index":0,"item":{"type":"tool_search_call","arguments":{"x":1}}}

data: {"type":"response.output_text.delta","output_index":1,"delta":"So\ud83e"}

data: {"type":"response.output_text.delta","output_index":1,"delta":{"x":1}}

event: response.output_text.delta
data: {"output_index":1,"delta":"\uddab!"}

data: {"type":"response.completed","response":{"status":"completed","output":[]}}

"#;
    for (headers, answer) in [(JSON, whole), (EVENT_STREAM, stream)] {
        let lines = read::<Responses>(headers, answer);
        let said: String = lines
            .iter()
            .filter_map(|line| line.split_once(": "))
            .map(|(_, text)| text)
            .collect();
        assert_eq!(said, "So🦫!", "{lines:?}");
    }
    // An object is the arguments of a call, too.
    let called = r#"{"status":"completed","output":[{"type":"function_call","call_id":"c","name":"look","arguments":{"at":1}}]}"#;
    let lines = read::<Responses>(JSON, called);
    assert!(lines.contains(&r#"0: {"at":1}"#.to_owned()), "{lines:?}");
}

/// Servers that fail in the midst of a stream write the error in any form.
#[test]
fn an_error_event_keeps_its_class() {
    for (event, kind) in [
        (
            r#"data: {"error":{"message":"Your input exceeds the context window of this model."}}"#,
            FailureKind::ContextLength,
        ),
        (
            r#"data: {"error":{"message":"Slow down","code":"rate_limit_exceeded"}}"#,
            FailureKind::RateLimited,
        ),
        (
            "event: error\ndata: the server is out of memory",
            FailureKind::Unavailable,
        ),
    ] {
        let (_, failure) = fails::<Responses>(EVENT_STREAM, &format!("{event}\n\n"));
        assert_eq!(failure.kind, kind, "{event}");
    }
}
