//! The requests to the upstream.

use serde_json::{Value, json};
use weir_adapter_openai::translate::OpenAi;
use weir_sdk::adapter::{
    BodyPart, Exchange, Failure, FailureKind, RefusedSetting, Request, Setting, Task,
};
use weir_sdk::chat::{
    AllowedTools, Audio, BuiltInTool, CacheLifetime, CallKind, ChatRequest, Content, CustomTool,
    ExtraField, File, FunctionTool, Image, JsonSchema, Message, Opaque, Part, Reasoning,
    ReasoningEffort, ReasoningRequest, ResponseFormat, Role, Source, Tool, ToolCall, ToolChoice,
    ToolContent, ToolKind, ToolResult,
};

use crate::{
    NO_REASONING, begin, chat, joined_body, message, part, request, request_of_same_dialect, send,
    sent, setting,
};

fn body(chat: ChatRequest, options: &[Setting]) -> Value {
    sent(request(chat), options)
}

/// Returns the names of omitted fields.
fn ignored(chat: ChatRequest, options: &[Setting]) -> Vec<String> {
    let (_, ignored) = send(request(chat), options).expect("a request that can be expressed");
    ignored
}

fn refusal(chat: ChatRequest, options: &[Setting]) -> String {
    refused(request(chat), options).text
}

fn refused(request: Request, options: &[Setting]) -> Failure {
    let failure = begin(request, options).expect_err("a refusal");
    assert_eq!(failure.kind, FailureKind::Unsupported);
    failure
}

fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

fn picture(source: Source, detail: Option<&str>) -> Image {
    Image {
        source,
        detail: detail.map(str::to_owned),
    }
}

fn remote(detail: Option<&str>) -> Image {
    picture(Source::Url("https://example.com/a.png".to_owned()), detail)
}

/// The document among the attachments.
fn pdf(name: Option<&str>) -> File {
    File {
        source: Source::Attachment(1),
        name: name.map(str::to_owned),
        media_type: Some("application/pdf".to_owned()),
        title: None,
        context: None,
        cite: None,
    }
}

fn reasoning(text: &str) -> Content {
    Content::Reasoning(Reasoning {
        text: text.to_owned(),
        sealed: None,
        id: None,
    })
}

fn call(id: &str, name: &str, kind: CallKind, arguments: &str) -> Content {
    Content::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        kind,
        arguments: arguments.to_owned(),
    })
}

fn tool(kind: ToolKind) -> Tool {
    Tool {
        kind,
        cache: None,
        extra: Vec::new(),
    }
}

fn function(name: &str) -> Tool {
    tool(ToolKind::Function(FunctionTool {
        name: name.to_owned(),
        description: None,
        input_schema: "{}".to_owned(),
        strict: None,
    }))
}

fn custom(name: &str, format: Option<&str>) -> Tool {
    tool(ToolKind::Custom(CustomTool {
        name: name.to_owned(),
        description: None,
        format: format.map(str::to_owned),
    }))
}

fn opaque(kind: &str, json: &str) -> Opaque {
    Opaque {
        kind: kind.to_owned(),
        json: json.to_owned(),
    }
}

/// A schema without further fields.
fn schema(json: &str) -> JsonSchema {
    JsonSchema {
        name: None,
        description: None,
        strict: None,
        schema: json.to_owned(),
    }
}

fn tool_result(content: Vec<ToolContent>, is_error: bool) -> Content {
    result_of("call_1", content, is_error)
}

fn result_of(call_id: &str, content: Vec<ToolContent>, is_error: bool) -> Content {
    Content::ToolResult(ToolResult {
        call_id: call_id.to_owned(),
        tool_name: None,
        content,
        is_error,
    })
}

fn with_messages(messages: Vec<Message>) -> ChatRequest {
    ChatRequest {
        messages,
        ..chat("")
    }
}

fn with_extra(name: &str, json: &str) -> ChatRequest {
    ChatRequest {
        extra: vec![setting(name, json)],
        ..chat("hello")
    }
}

#[test]
fn asks_for_no_more_than_it_describes() {
    let (request, _) = send(request(chat("hello")), &[]).expect("a request");
    let described = OpenAi::describe();
    assert_eq!(
        described.path_prefixes,
        [
            &*request.path,
            "/responses",
            "/images/",
            "/completions",
            "/fim/completions",
            "/embeddings",
            "/rerank",
            "/moderations",
            "/audio/",
            "/deployments/"
        ]
    );
    let headers: Vec<String> = request.headers.into_iter().map(|(name, _)| name).collect();
    assert_eq!(described.request_headers, headers);
}

#[test]
fn sends_all_that_a_request_can_say() {
    let mut user = message(
        Role::User,
        vec![
            text("What is this?"),
            Content::Image(remote(Some("low"))),
            Content::Image(picture(Source::Attachment(0), Some("high"))),
            Content::File(pdf(Some("a \"report\".pdf"))),
        ],
    );
    user.name = Some("alice".to_owned());
    user.parts[0].cache = Some(CacheLifetime::Long);
    let request = ChatRequest {
        messages: vec![
            message(Role::System, vec![text("Be brief."), text("Be kind.")]),
            user,
            message(
                Role::Assistant,
                vec![
                    reasoning("hm"),
                    text("Let me look."),
                    call("call_1", "look", CallKind::Function, r#"{"at": "a"}"#),
                    call("call_2", "look", CallKind::Function, "{}"),
                    call("call_3", "look", CallKind::Function, "{}"),
                ],
            ),
            message(
                Role::Tool,
                vec![
                    tool_result(vec![ToolContent::Text("a cat".to_owned())], false),
                    result_of(
                        "call_2",
                        vec![ToolContent::Text("no such file".to_owned())],
                        true,
                    ),
                    result_of("call_3", Vec::new(), false),
                ],
            ),
        ],
        tools: vec![tool(ToolKind::Function(FunctionTool {
            name: "look".to_owned(),
            description: Some("Looks.".to_owned()),
            input_schema: r#"{"type": "object", "properties": {"at": {"type": "string"}}}"#
                .to_owned(),
            strict: Some(false),
        }))],
        tool_choice: ToolChoice::Named("look".to_owned()),
        parallel_tool_calls: Some(false),
        response_format: ResponseFormat::JsonSchema(JsonSchema {
            name: Some("sighting".to_owned()),
            description: Some("What was seen.".to_owned()),
            strict: Some(false),
            schema: r#"{"type":"object"}"#.to_owned(),
        }),
        reasoning: ReasoningRequest {
            effort: Some(ReasoningEffort::Highest),
            ..NO_REASONING
        },
        modalities: vec!["text".to_owned()],
        max_output_tokens: 4096,
        temperature: Some(0.5),
        top_p: Some(1.0),
        presence_penalty: Some(-1.0),
        frequency_penalty: Some(2.0),
        seed: Some(-7),
        stop: vec!["END".to_owned()],
        extra: vec![
            setting("user", r#""u-1""#),
            setting("logit_bias", r#"{"50256":-100}"#),
        ],
        stream: true,
        ..chat("")
    };
    assert_eq!(
        body(request, &[]),
        json!({
            "model": "gpt-test",
            "messages": [
                {"role": "system", "content": [
                    {"type": "text", "text": "Be brief."},
                    {"type": "text", "text": "Be kind."},
                ]},
                {"role": "user", "name": "alice", "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {
                        "url": "https://example.com/a.png", "detail": "low",
                    }},
                    {"type": "image_url", "image_url": {
                        "url": "data:image/png;base64,<0>", "detail": "high",
                    }},
                    {"type": "file", "file": {
                        "filename": "a \"report\".pdf",
                        "file_data": "data:application/pdf;base64,<1>",
                    }},
                ]},
                {"role": "assistant", "content": "Let me look.", "tool_calls": [
                    {"id": "call_1", "type": "function",
                     "function": {"name": "look", "arguments": "{\"at\": \"a\"}"}},
                    {"id": "call_2", "type": "function",
                     "function": {"name": "look", "arguments": "{}"}},
                    {"id": "call_3", "type": "function",
                     "function": {"name": "look", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "call_1", "content": "a cat"},
                {"role": "tool", "tool_call_id": "call_2",
                 "content": "The tool failed.\nno such file"},
                {"role": "tool", "tool_call_id": "call_3", "content": ""},
            ],
            "tools": [{"type": "function", "function": {
                "name": "look",
                "description": "Looks.",
                "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
                "strict": false,
            }}],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
            "parallel_tool_calls": false,
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "sighting", "description": "What was seen.", "strict": false,
                "schema": {"type": "object"},
            }},
            "reasoning_effort": "xhigh",
            "max_completion_tokens": 4096,
            "temperature": 0.5,
            "top_p": 1.0,
            "presence_penalty": -1.0,
            "frequency_penalty": 2.0,
            "seed": -7,
            "stop": ["END"],
            "user": "u-1",
            "logit_bias": {"50256": -100},
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
}

#[test]
fn adds_only_the_names_that_the_upstream_insists_on() {
    let request = ChatRequest {
        tools: vec![function("look")],
        response_format: ResponseFormat::JsonSchema(schema("{}")),
        ..with_messages(vec![message(
            Role::User,
            vec![Content::Image(remote(None)), Content::File(pdf(None))],
        )])
    };
    assert_eq!(
        body(request, &[]),
        json!({
            "model": "gpt-test",
            "messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "file", "file": {
                    "filename": "document.pdf",
                    "file_data": "data:application/pdf;base64,<1>",
                }},
            ]}],
            "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}],
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "response", "schema": {},
            }},
            "max_completion_tokens": 100,
        })
    );
}

#[test]
fn names_each_reasoning_effort() {
    let with = |reasoning| ChatRequest {
        reasoning,
        ..chat("hello")
    };
    assert_eq!(
        body(with(NO_REASONING), &[])["reasoning_effort"],
        Value::Null
    );
    for (asked, sent) in [
        (ReasoningEffort::Off, json!("none")),
        (ReasoningEffort::Minimal, json!("minimal")),
        (ReasoningEffort::Low, json!("low")),
        (ReasoningEffort::Medium, json!("medium")),
        (ReasoningEffort::High, json!("high")),
        (ReasoningEffort::Highest, json!("xhigh")),
    ] {
        let effort = with(ReasoningRequest {
            effort: Some(asked),
            ..NO_REASONING
        });
        assert_eq!(body(effort, &[])["reasoning_effort"], sent);
    }
    for (tokens, meant) in [(1024, "low"), (4000, "medium"), (16_000, "high")] {
        let budget = with(ReasoningRequest {
            budget_tokens: Some(tokens),
            ..NO_REASONING
        });
        assert_eq!(body(budget.clone(), &[])["reasoning_effort"], meant);
        assert_eq!(ignored(budget, &[]), ["reasoning.budget_tokens"]);
    }
    let shown = with(ReasoningRequest {
        summary: Some("auto".to_owned()),
        adaptive: Some(true),
        ..NO_REASONING
    });
    assert_eq!(
        ignored(shown, &[]),
        ["reasoning.summary", "reasoning.adaptive"]
    );
}

#[test]
fn leaves_out_what_means_nothing_without_tools() {
    let request = ChatRequest {
        tool_choice: ToolChoice::None,
        parallel_tool_calls: Some(true),
        ..chat("hello")
    };
    assert_eq!(body(request, &[]), body(chat("hello"), &[]));
}

#[test]
fn says_null_for_an_assistant_that_only_called_tools() {
    let call = call("call_1", "look", CallKind::Function, "{}");
    let sent = body(
        with_messages(vec![message(Role::Assistant, vec![call])]),
        &[],
    );
    assert_eq!(sent["messages"][0]["content"], Value::Null);
    let thought = reasoning("hm");
    let sent = body(
        with_messages(vec![message(Role::Assistant, vec![thought])]),
        &[],
    );
    assert_eq!(
        sent["messages"][0],
        json!({"role": "assistant", "content": ""})
    );
}

#[test]
fn cuts_the_body_where_attachments_go() {
    // Neither text is an attachment.
    let contents = vec![
        text("data:image/png;base64,"),
        Content::Image(picture(Source::Attachment(0), None)),
        text("<0>"),
        Content::Audio(Audio {
            source: Source::Attachment(2),
            format: None,
        }),
        Content::Image(picture(Source::Attachment(0), None)),
        Content::File(File {
            title: Some("The report".to_owned()),
            media_type: None,
            ..pdf(Some("a.pdf"))
        }),
    ];
    let chat = with_messages(vec![message(Role::User, contents)]);
    let (sent, ignored) = send(request(chat), &[]).expect("a request");
    let attached = |part: &BodyPart| match part {
        BodyPart::Base64Of(attachment) => Some(*attachment),
        _ => None,
    };
    let places: Vec<Option<u32>> = sent.body.iter().map(attached).collect();
    let bytes = None;
    assert_eq!(
        places,
        [
            bytes,
            Some(0),
            bytes,
            Some(2),
            bytes,
            Some(0),
            bytes,
            Some(1),
            bytes
        ]
    );
    let body: Value = serde_json::from_str(&joined_body(&sent)).expect("JSON");
    assert_eq!(
        body["messages"][0]["content"],
        json!([
            {"type": "text", "text": "data:image/png;base64,"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,<0>"}},
            {"type": "text", "text": "<0>"},
            {"type": "input_audio", "input_audio": {"data": "<2>", "format": "wav"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,<0>"}},
            {"type": "file", "file": {
                "filename": "The report", "file_data": "data:application/pdf;base64,<1>",
            }},
        ])
    );
    assert_eq!(ignored, [""; 0]);
}

#[test]
fn names_a_file_that_the_upstream_has_by_its_id() {
    let file = File {
        source: Source::Id("file-1".to_owned()),
        media_type: None,
        ..pdf(None)
    };
    let contents = vec![Content::File(file)];
    assert_eq!(
        body(with_messages(vec![message(Role::User, contents)]), &[])["messages"][0]["content"],
        json!([{"type": "file", "file": {"file_id": "file-1"}}])
    );
}

#[test]
fn defines_custom_tools_and_repeats_their_calls() {
    let grammar = r#"{"type":"grammar","grammar":{"syntax":"lark","definition":"start: /a/"}}"#;
    let flat = r#"{"type":"grammar","syntax":"lark","definition":"start: /a/"}"#;
    let request = ChatRequest {
        tools: vec![
            custom("sing", Some(grammar)),
            custom("hum", Some(flat)),
            custom("say", None),
            function("look"),
        ],
        tool_choice: ToolChoice::Named("hum".to_owned()),
        ..with_messages(vec![message(
            Role::Assistant,
            vec![call("call_1", "sing", CallKind::Custom, "la \"la\"")],
        )])
    };
    let sent = body(request, &[]);
    let format = json!({"type": "grammar", "grammar": {
        "syntax": "lark", "definition": "start: /a/",
    }});
    assert_eq!(
        sent["tools"],
        json!([
            {"type": "custom", "custom": {"name": "sing", "format": format}},
            {"type": "custom", "custom": {"name": "hum", "format": format}},
            {"type": "custom", "custom": {"name": "say"}},
            {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}},
        ])
    );
    assert_eq!(
        sent["tool_choice"],
        json!({"type": "custom", "custom": {"name": "hum"}})
    );
    assert_eq!(
        sent["messages"][0]["tool_calls"],
        json!([{"id": "call_1", "type": "custom",
                "custom": {"name": "sing", "input": "la \"la\""}}])
    );
}

#[test]
fn lets_the_model_choose_among_some_tools() {
    for (required, mode) in [(true, "required"), (false, "auto")] {
        let request = ChatRequest {
            tools: vec![function("look"), custom("sing", None), function("wait")],
            tool_choice: ToolChoice::Among(AllowedTools {
                names: vec!["look".to_owned(), "sing".to_owned()],
                required,
            }),
            ..chat("hello")
        };
        assert_eq!(
            body(request, &[])["tool_choice"],
            json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [
                {"type": "function", "function": {"name": "look"}},
                {"type": "custom", "custom": {"name": "sing"}},
            ]}})
        );
    }
}

#[test]
fn refuses_tools_of_the_upstream_and_answers_in_other_forms_by_name() {
    let search = tool(ToolKind::BuiltIn(BuiltInTool {
        kind: "web_search".to_owned(),
        name: None,
        configuration: "{}".to_owned(),
    }));
    let with_tool = ChatRequest {
        tools: vec![function("look"), search],
        ..chat("hello")
    };
    let failure = refused(request(with_tool), &[]);
    assert_eq!(failure.text, "tools[1]: a tool of type web_search");
    assert_eq!(failure.param.as_deref(), Some("tools[1]"));
    let spoken = ChatRequest {
        modalities: vec!["text".to_owned(), "audio".to_owned()],
        ..chat("hello")
    };
    let failure = refused(request(spoken), &[]);
    assert_eq!(failure.text, "modalities: audio");
    assert_eq!(failure.param.as_deref(), Some("modalities"));
}

#[test]
fn names_what_it_leaves_out_once() {
    let mut user = message(Role::User, vec![text("a"), text("b")]);
    user.parts[0].cache = Some(CacheLifetime::Short);
    user.parts[1].cache = Some(CacheLifetime::Long);
    let mut assistant = message(
        Role::Assistant,
        vec![reasoning(""), reasoning("hm"), text("a")],
    );
    assistant.parts[0].signature = Some("proof".to_owned());
    assistant.parts[1].signature = Some("proof".to_owned());
    let mut look = function("look");
    look.cache = Some(CacheLifetime::Short);
    let request = || ChatRequest {
        tools: vec![look.clone()],
        ..with_messages(vec![user.clone(), assistant.clone()])
    };
    assert_eq!(
        ignored(request(), &[]),
        ["cache_control", "signature", "reasoning"]
    );
    let carried = [setting("reasoning-field", "reasoning")];
    assert_eq!(ignored(request(), &carried), ["cache_control", "signature"]);
    // Content that only its own upstream can decrypt has no place.
    let sealed = Content::Reasoning(Reasoning {
        text: "hm".to_owned(),
        sealed: Some("sealed".to_owned()),
        id: None,
    });
    let request = with_messages(vec![message(Role::Assistant, vec![sealed])]);
    assert_eq!(ignored(request, &carried), ["reasoning"]);
    let mut tool_only = chat("hello");
    tool_only.tools = vec![look];
    assert_eq!(ignored(tool_only, &[]), ["cache_control"]);
}

#[test]
fn passes_what_a_client_of_its_own_dialect_wrote_beside_the_vocabulary() {
    let extra = |name: &str| -> Vec<ExtraField> { vec![setting(name, r#"{"a": 1}"#)] };
    let mut user = message(
        Role::User,
        vec![
            text("a"),
            Content::Opaque(opaque("note", r#"{"type":"note","note":"b"}"#)),
        ],
    );
    user.extra = extra("x_message");
    user.parts[0].extra = extra("x_part");
    let mut assistant = message(
        Role::Assistant,
        vec![call("call_1", "look", CallKind::Function, "{}")],
    );
    assistant.parts[0].extra = extra("x_call");
    let noted = vec![
        ToolContent::Text("c".to_owned()),
        ToolContent::Opaque(opaque("note", r#"{"type":"note"}"#)),
    ];
    let mut results = message(Role::Tool, vec![tool_result(noted, true)]);
    results.parts[0].extra = extra("x_result");
    let mut alone = message(Role::System, vec![text("d")]);
    alone.parts[0].extra = extra("x_part");
    let mut look = function("look");
    look.extra = [extra("x_tool"), extra("function.x_inside")].concat();
    let mut free = custom("write", None);
    free.extra = extra("function.x_of_no_function");
    let chat = ChatRequest {
        tools: vec![look, free],
        ..with_messages(vec![alone, user, assistant, results])
    };
    let sent = sent(request_of_same_dialect(chat), &[]);
    assert_eq!(
        sent["messages"],
        json!([
            {"role": "system", "content": [{"type": "text", "text": "d", "x_part": {"a": 1}}]},
            {"role": "user", "x_message": {"a": 1}, "content": [
                {"type": "text", "text": "a", "x_part": {"a": 1}},
                {"type": "note", "note": "b"},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_1", "type": "function", "x_call": {"a": 1},
                 "function": {"name": "look", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "x_result": {"a": 1}, "content": [
                {"type": "text", "text": "The tool failed."},
                {"type": "text", "text": "c"},
                {"type": "note"},
            ]},
        ])
    );
    assert_eq!(sent["tools"][0]["x_tool"], json!({"a": 1}));
    assert_eq!(
        sent["tools"][0]["function"]["x_inside"],
        json!({"a": 1}),
        "in the object that it came in"
    );
    assert_eq!(
        sent["tools"][1]["function.x_of_no_function"],
        json!({"a": 1}),
        "a tool without that object loses nothing"
    );
}

#[test]
fn refuses_what_another_dialect_has_beside_the_vocabulary_by_name() {
    let mut message_extra = chat("hello");
    message_extra.messages[0].extra = vec![setting("x", "1")];
    let mut part_extra = chat("hello");
    part_extra.messages[0].parts[0].extra = vec![setting("x", "1")];
    let mut tool_extra = chat("hello");
    tool_extra.tools = vec![function("look")];
    tool_extra.tools[0].extra = vec![setting("x", "1")];
    for (chat, text, param) in [
        (message_extra, "messages[0]: x", "messages[0].x"),
        (part_extra, "messages[0]: x", "messages[0].x"),
        (tool_extra, "tools[0]: x", "tools[0].x"),
    ] {
        let failure = refused(request(chat.clone()), &[]);
        assert_eq!(
            (failure.text.as_str(), failure.param.as_deref()),
            (text, Some(param))
        );
        send(request_of_same_dialect(chat), &[]).expect("its own");
    }
    let block = || opaque("note", "{}");
    for (role, content) in [
        (Role::User, Content::Opaque(block())),
        (
            Role::Tool,
            tool_result(vec![ToolContent::Opaque(block())], false),
        ),
    ] {
        let chat = with_messages(vec![message(role, vec![content])]);
        assert_eq!(refusal(chat, &[]), "messages[0]: a note block");
    }
    // A provider's own block of an earlier answer says nothing that the answer's text does not say.
    let answered = vec![text("So."), Content::Opaque(block())];
    let chat = with_messages(vec![message(Role::Assistant, answered)]);
    assert_eq!(ignored(chat, &[]), ["note"]);
}

#[test]
fn lets_no_extra_field_stand_for_its_own() {
    let mut cases = Vec::new();
    for field in [
        "role",
        "content",
        "tool_calls",
        "tool_call_id",
        "name",
        "reasoning_content",
    ] {
        let mut own = chat("hello");
        own.messages[0].extra = vec![setting(field, "1")];
        cases.push((own, format!("messages[0]: {field}")));
    }
    for field in ["type", "text", "image_url", "file"] {
        let mut own = chat("hello");
        own.messages[0].parts[0].extra = vec![setting(field, "1")];
        cases.push((own, format!("messages[0]: {field}")));
    }
    for field in ["type", "function", "custom"] {
        let mut own = chat("hello");
        own.tools = vec![function("look")];
        own.tools[0].extra = vec![setting(field, "1")];
        cases.push((own, format!("tools[0]: {field}")));
    }
    for (chat, text) in cases {
        assert_eq!(refused(request_of_same_dialect(chat), &[]).text, text);
    }
    // An invalid block would break out of its list, and a complete block takes no further fields.
    for json in ["1", "{},{}", "\"{}\""] {
        let block = Content::Opaque(opaque("note", json));
        let chat = with_messages(vec![message(Role::User, vec![block])]);
        refused(request_of_same_dialect(chat), &[]);
    }
    let mut extended = part(Content::Opaque(opaque("note", "{}")));
    extended.extra = vec![setting("x", "1")];
    let mut chat = chat("hello");
    chat.messages[0].parts = vec![extended];
    refused(request_of_same_dialect(chat), &[]);
}

#[test]
fn names_the_end_user_unless_the_client_does() {
    let of = |chat: ChatRequest, options: &[Setting]| {
        let mut request = request(chat);
        request.client.end_user = Some("u-9".to_owned());
        let body = sent(request, options);
        (body["user"].clone(), body["safety_identifier"].clone())
    };
    assert_eq!(of(chat("hello"), &[]), (json!("u-9"), Value::Null));
    let named = with_extra("user", r#""u-1""#);
    assert_eq!(of(named, &[]), (json!("u-1"), Value::Null));
    let named = with_extra("safety_identifier", r#""u-1""#);
    assert_eq!(of(named, &[]), (Value::Null, json!("u-1")));
    let elsewhere = [setting("end-user-field", "safety_identifier")];
    assert_eq!(of(chat("hello"), &elsewhere), (Value::Null, json!("u-9")));
    let nowhere = [setting("end-user-field", "none")];
    assert_eq!(of(chat("hello"), &nowhere), (Value::Null, Value::Null));
}

#[test]
fn says_which_tool_a_result_is_of_where_the_client_does() {
    let named = Content::ToolResult(ToolResult {
        call_id: "call_1".to_owned(),
        tool_name: Some("look".to_owned()),
        content: vec![ToolContent::Text("a cat".to_owned())],
        is_error: false,
    });
    assert_eq!(
        body(with_messages(vec![message(Role::Tool, vec![named])]), &[])["messages"][0],
        json!({"role": "tool", "name": "look", "tool_call_id": "call_1", "content": "a cat"})
    );
}

#[test]
fn each_option_changes_what_it_names() {
    let streamed = || ChatRequest {
        stream: true,
        top_k: Some(40),
        extra: vec![
            setting("service_tier", r#""flex""#),
            setting("prompt_cache_retention", r#""24h""#),
        ],
        messages: vec![message(Role::Assistant, vec![reasoning("hm"), text("yes")])],
        ..chat("")
    };
    let options = [
        setting("output-limit-field", "max_tokens"),
        setting("stream-usage", "false"),
        setting("reasoning-field", "reasoning_content"),
        setting("pass-fields", "top_k, service_tier, prompt_cache_retention"),
    ];
    assert_eq!(
        body(streamed(), &options),
        json!({
            "model": "gpt-test",
            "messages": [
                {"role": "assistant", "content": "yes", "reasoning_content": "hm"},
            ],
            "max_tokens": 100,
            "top_k": 40,
            "stream": true,
            "service_tier": "flex",
            "prompt_cache_retention": "24h",
        })
    );
}

#[test]
fn carries_reasoning_back_with_its_proofs_where_the_server_reads_them() {
    let proven = |text: &str, sealed: Option<&str>, signature: Option<&str>| Part {
        signature: signature.map(str::to_owned),
        ..part(Content::Reasoning(Reasoning {
            text: text.to_owned(),
            sealed: sealed.map(str::to_owned),
            id: None,
        }))
    };
    let as_it_came = r#"{"type":"reasoning.encrypted","data":"x","format":"openai-responses-v1"}"#;
    let mut replayed = message(Role::Assistant, vec![text("a")]);
    replayed.parts.extend([
        proven("hm", None, Some("s1")),
        proven("", None, Some("s2")),
        proven("in short", Some(as_it_came), None),
        proven("", Some("y"), None),
        proven("plain", None, None),
    ]);
    let options = [setting("reasoning-field", "reasoning_details")];
    let request = request(with_messages(vec![replayed]));
    let (sent, ignored) = send(request, &options).expect("a request that can be expressed");
    let body: Value = serde_json::from_str(&joined_body(&sent)).expect("JSON");
    assert_eq!(
        body["messages"][0],
        json!({"role": "assistant", "content": "a", "reasoning_details": [
            {"type": "reasoning.text", "text": "hm", "signature": "s1"},
            {"type": "reasoning.text", "text": "", "signature": "s2"},
            {"type": "reasoning.summary", "summary": "in short"},
            {"type": "reasoning.encrypted", "data": "x", "format": "openai-responses-v1"},
            {"type": "reasoning.encrypted", "data": "y"},
            {"type": "reasoning.text", "text": "plain"},
        ]})
    );
    assert_eq!(ignored, [""; 0]);
}

#[test]
fn refuses_options_that_it_does_not_understand() {
    for ((name, value), why) in [
        (
            setting("colour", "blue"),
            "is not an option of this adapter",
        ),
        (setting("stream-usage", "yes"), "must be true or false"),
        (
            setting("output-limit-field", "limit"),
            "must be max_completion_tokens or max_tokens",
        ),
        (
            setting("reasoning-field", "thoughts"),
            "must be none, reasoning_content, reasoning or reasoning_details",
        ),
        (
            setting("end-user-field", "who"),
            "must be user, safety_identifier or none",
        ),
        (
            setting("pass-fields", "user,max_tokens"),
            "can't let max_tokens through, which is the adapter's own",
        ),
        (
            setting("pass-fields", "user\nstream-usage false"),
            "must be names on one line",
        ),
        (
            setting("azure-api-version", "2024-10-21&api-key=k"),
            "must be a version such as 2024-10-21",
        ),
        (
            setting("azure-api-version", ""),
            "must be a version such as 2024-10-21",
        ),
    ] {
        let refused = RefusedSetting {
            name: name.clone(),
            why: why.to_owned(),
        };
        let fine = setting("stream-usage", "true");
        assert_eq!(OpenAi::configure(&[fine, (name, value)]), Err(refused));
    }
    let described = OpenAi::describe().options;
    assert!(!described.contains(&"colour".to_owned()));
    assert!(described.contains(&"stream-usage".to_owned()));
}

/// `_deployments_endpoints` and `_build_request` in openai 3.57.0's `lib/azure.py`.
#[test]
fn names_the_deployment_in_the_paths_of_azure() {
    let azure = setting("azure-api-version", "2025-04-01-preview");
    let path = |request: Request, options: &[Setting]| {
        let (request, _) = send(request, options).expect("a request");
        request.path
    };
    let deployed = |model: &str| ChatRequest {
        model: model.to_owned(),
        ..chat("hello")
    };
    let chat_path = |model: &str, options: &[Setting]| path(request(deployed(model)), options);
    assert_eq!(
        chat_path("gpt-4.1", std::slice::from_ref(&azure)),
        "/deployments/gpt-4.1/chat/completions?api-version=2025-04-01-preview"
    );
    assert_eq!(
        chat_path("../a?b", std::slice::from_ref(&azure)),
        "/deployments/..%2Fa%3Fb/chat/completions?api-version=2025-04-01-preview"
    );
    assert_eq!(
        chat_path("d", &[azure.clone(), setting("api", "responses")]),
        "/responses?api-version=2025-04-01-preview"
    );
    let mut completion = request(deployed("d"));
    completion.client.dialect = "openai-completions".to_owned();
    assert_eq!(
        path(completion, &[azure.clone(), setting("completions", "text")]),
        "/deployments/d/completions?api-version=2025-04-01-preview"
    );
    let mut image = request(chat(""));
    image.task = Task::Image(weir_sdk::testing::image_request("a cat"));
    let path = path(image, &[azure]);
    assert!(path.starts_with("/deployments/"), "{path}");
    assert!(
        path.ends_with("/images/generations?api-version=2025-04-01-preview"),
        "{path}"
    );
}

#[test]
fn hands_on_nothing_where_every_option_is_at_its_default() {
    let defaults = [
        setting("output-limit-field", "max_completion_tokens"),
        setting("stream-usage", "true"),
        setting("reasoning-field", "none"),
        setting("end-user-field", "user"),
        setting("pass-fields", ""),
    ];
    assert_eq!(OpenAi::configure(&defaults), Ok(Vec::new()));
    assert_eq!(OpenAi::configure(&[]), Ok(Vec::new()));
    let foreign = OpenAi::begin(request(chat("hello")), b"\xFF");
    let failure = foreign.expect_err("no configuration of its own");
    assert_eq!(failure.kind, FailureKind::Malformed);
}

#[test]
fn passes_harmless_fields_leaves_out_advisory_ones_and_refuses_others_by_name() {
    let sent = body(with_extra("logit_bias", r#"{"5": 1}"#), &[]);
    assert_eq!(sent["logit_bias"], json!({"5": 1}));
    for field in [
        "metadata",
        "service_tier",
        "store",
        "prediction",
        "prompt_cache_retention",
    ] {
        let named = || with_extra(field, r#"{"a": "b"}"#);
        assert_eq!(body(named(), &[]).get(field), None);
        assert_eq!(ignored(named(), &[]), [field]);
        let passing = [setting("pass-fields", field)];
        assert_eq!(body(named(), &passing)[field], json!({"a": "b"}));
        assert_eq!(ignored(named(), &passing), [""; 0]);
    }
    for field in ["web_search_options", "n", "max_tokens"] {
        assert_eq!(refusal(with_extra(field, "1"), &[]), field);
    }
    // These fields of another dialect's clients change nothing here.
    for field in ["context_management", "cache_control"] {
        assert_eq!(ignored(with_extra(field, "1"), &[]), [field]);
    }
    let request = ChatRequest {
        top_k: Some(1),
        ..chat("hello")
    };
    assert_eq!(refusal(request, &[]), "top_k");
}

#[test]
fn lets_no_value_break_out_of_its_field() {
    let refused = refusal(with_extra("user", r#"1,"max_tokens":2"#), &[]);
    assert!(refused.starts_with("user: "), "{refused}");
    let request = ChatRequest {
        response_format: ResponseFormat::JsonSchema(schema("{")),
        ..chat("hello")
    };
    let refused = refusal(request, &[]);
    assert!(refused.starts_with("response_format"), "{refused}");
}

#[test]
fn refuses_content_that_a_role_can_not_carry() {
    let image = || Content::Image(remote(None));
    let csv = Content::File(File {
        media_type: Some("text/csv".to_owned()),
        ..pdf(None)
    });
    let by_url = || Source::Url("https://example.com/a".to_owned());
    let by_id = || Source::Id("id".to_owned());
    let audio = |source| {
        Content::Audio(Audio {
            source,
            format: None,
        })
    };
    for (role, content, named) in [
        (Role::System, image(), "an image in a system message"),
        (Role::Assistant, image(), "an image in an assistant message"),
        (Role::User, csv, "a file of type text/csv in a user message"),
        (Role::User, reasoning("hm"), "reasoning in a user message"),
        (
            Role::User,
            Content::Refusal("No.".to_owned()),
            "a refusal in a user message",
        ),
        (Role::Tool, text("hi"), "text in a tool message"),
        (
            Role::User,
            Content::Image(picture(by_id(), None)),
            "an image by id",
        ),
        (
            Role::User,
            Content::Image(picture(Source::Attachment(3), None)),
            "an attachment that the request does not have",
        ),
        (
            Role::User,
            Content::File(File {
                source: by_url(),
                ..pdf(None)
            }),
            "a file by URL",
        ),
        (
            Role::User,
            Content::File(File {
                context: Some("for the board".to_owned()),
                ..pdf(None)
            }),
            "what a file is about",
        ),
        (
            Role::User,
            Content::File(File {
                cite: Some(true),
                ..pdf(None)
            }),
            "citations of a file",
        ),
        (Role::User, audio(by_url()), "audio by URL"),
        (Role::User, audio(by_id()), "audio by id"),
        (
            Role::Assistant,
            audio(Source::Attachment(2)),
            "audio in an assistant message",
        ),
    ] {
        let request = with_messages(vec![
            message(Role::User, vec![text("hello")]),
            message(role, vec![content]),
        ]);
        assert_eq!(refusal(request, &[]), format!("messages[1]: {named}"));
    }
}
