//! What is sent upstream.

use serde_json::{Value, json};
use weir_adapter_openai::translate::OpenAi;
use weir_sdk::adapter::{Exchange, Failure, Request, Setting};
use weir_sdk::chat::{
    Blob, CacheLifetime, ChatRequest, Content, File, Image, ImageDetail, ImageRequest, ImageSource,
    JsonSchema, ReasoningRequest, ResponseFormat, Role, ToolCall, ToolChoice, ToolContent,
    ToolDefinition, ToolResult,
};

use crate::{chat, message, send, setting};

fn body(chat: ChatRequest, options: &[Setting]) -> Value {
    let request = send(chat, options).expect("a request that can be expressed");
    serde_json::from_slice(&request.body).expect("JSON")
}

fn refusal(chat: ChatRequest, options: &[Setting]) -> String {
    match send(chat, options) {
        Err(Failure::Unsupported(what)) => what,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

fn picture(detail: Option<ImageDetail>) -> Image {
    Image {
        source: ImageSource::Url("https://example.com/a.png".to_owned()),
        detail,
    }
}

fn pdf(name: Option<&str>) -> Content {
    Content::File(File {
        name: name.map(str::to_owned),
        media_type: "application/pdf".to_owned(),
        data: b"%PDF".to_vec(),
    })
}

/// A schema about which nothing else is said.
fn schema(json: &str) -> JsonSchema {
    JsonSchema {
        name: None,
        description: None,
        strict: None,
        schema: json.to_owned(),
    }
}

fn tool_result(content: Vec<ToolContent>, is_error: bool) -> Content {
    Content::ToolResult(ToolResult {
        call_id: "call_1".to_owned(),
        content,
        is_error,
    })
}

fn with_messages(messages: Vec<weir_sdk::chat::Message>) -> ChatRequest {
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
fn sends_a_small_request_small() {
    let request = send(chat("Say \"hé\"\n"), &[]).expect("a request");
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/chat/completions")
    );
    assert_eq!(
        request.headers,
        [setting("content-type", "application/json")]
    );
    assert_eq!(
        String::from_utf8(request.body).expect("UTF-8"),
        r#"{"model":"gpt-test","messages":[{"role":"user","content":"Say \"hé\"\n"}],"max_completion_tokens":100}"#
    );
}

#[test]
fn sends_all_that_a_request_can_say() {
    let mut user = message(
        Role::User,
        vec![
            text("What is this?"),
            Content::Image(picture(Some(ImageDetail::Low))),
            Content::Image(Image {
                source: ImageSource::Inline(Blob {
                    media_type: "image/png".to_owned(),
                    data: vec![0, 1, 2, 255],
                }),
                detail: Some(ImageDetail::High),
            }),
            pdf(Some("a \"report\".pdf")),
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
                    Content::Reasoning("hm".to_owned()),
                    Content::RedactedReasoning("sealed".to_owned()),
                    text("Let me look."),
                    Content::ToolCall(ToolCall {
                        id: "call_1".to_owned(),
                        name: "look".to_owned(),
                        arguments: r#"{"at": "a"}"#.to_owned(),
                    }),
                    Content::ToolCall(ToolCall {
                        id: "call_2".to_owned(),
                        name: "look".to_owned(),
                        arguments: "{}".to_owned(),
                    }),
                ],
            ),
            message(
                Role::Tool,
                vec![
                    tool_result(vec![ToolContent::Text("a cat".to_owned())], false),
                    tool_result(vec![ToolContent::Text("no such file".to_owned())], true),
                    tool_result(Vec::new(), false),
                ],
            ),
        ],
        tools: vec![ToolDefinition {
            name: "look".to_owned(),
            description: Some("Looks.".to_owned()),
            input_schema: r#"{"type": "object", "properties": {"at": {"type": "string"}}}"#
                .to_owned(),
            strict: Some(true),
            cache: None,
        }],
        tool_choice: ToolChoice::Named("look".to_owned()),
        parallel_tool_calls: Some(false),
        response_format: ResponseFormat::JsonSchema(JsonSchema {
            name: Some("sighting".to_owned()),
            description: Some("What was seen.".to_owned()),
            strict: Some(false),
            schema: r#"{"type":"object"}"#.to_owned(),
        }),
        reasoning: ReasoningRequest::Highest,
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
                        "url": "data:image/png;base64,AAEC/w==", "detail": "high",
                    }},
                    {"type": "file", "file": {
                        "filename": "a \"report\".pdf",
                        "file_data": "data:application/pdf;base64,JVBERg==",
                    }},
                ]},
                {"role": "assistant", "content": "Let me look.", "tool_calls": [
                    {"id": "call_1", "type": "function",
                     "function": {"name": "look", "arguments": "{\"at\": \"a\"}"}},
                    {"id": "call_2", "type": "function",
                     "function": {"name": "look", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "call_1", "content": "a cat"},
                {"role": "tool", "tool_call_id": "call_1",
                 "content": "The tool failed.\nno such file"},
                {"role": "tool", "tool_call_id": "call_1", "content": ""},
            ],
            "tools": [{"type": "function", "function": {
                "name": "look",
                "description": "Looks.",
                "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
                "strict": true,
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
        tools: vec![ToolDefinition {
            name: "look".to_owned(),
            description: None,
            input_schema: "{}".to_owned(),
            strict: None,
            cache: None,
        }],
        response_format: ResponseFormat::JsonSchema(schema("{}")),
        ..with_messages(vec![message(
            Role::User,
            vec![Content::Image(picture(None)), pdf(None)],
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
                    "file_data": "data:application/pdf;base64,JVBERg==",
                }},
            ]}],
            "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "response", "schema": {},
            }},
            "max_completion_tokens": 100,
        })
    );
}

#[test]
fn names_each_reasoning_effort() {
    for (asked, sent) in [
        (ReasoningRequest::Unspecified, Value::Null),
        (ReasoningRequest::Off, json!("none")),
        (ReasoningRequest::Minimal, json!("minimal")),
        (ReasoningRequest::Low, json!("low")),
        (ReasoningRequest::Medium, json!("medium")),
        (ReasoningRequest::High, json!("high")),
        (ReasoningRequest::Highest, json!("xhigh")),
    ] {
        let request = ChatRequest {
            reasoning: asked,
            ..chat("hello")
        };
        assert_eq!(body(request, &[])["reasoning_effort"], sent);
    }
    let request = ChatRequest {
        reasoning: ReasoningRequest::Budget(1),
        ..chat("hello")
    };
    assert_eq!(refusal(request, &[]), "reasoning budget in tokens");
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
    let call = Content::ToolCall(ToolCall {
        id: "call_1".to_owned(),
        name: "look".to_owned(),
        arguments: "{}".to_owned(),
    });
    let sent = body(
        with_messages(vec![message(Role::Assistant, vec![call])]),
        &[],
    );
    assert_eq!(sent["messages"][0]["content"], Value::Null);
    let thought = Content::Reasoning("hm".to_owned());
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
fn each_option_changes_what_it_names() {
    let streamed = || ChatRequest {
        stream: true,
        top_k: Some(40),
        extra: vec![
            setting("service_tier", r#""flex""#),
            setting("prompt_cache_retention", r#""24h""#),
        ],
        messages: vec![message(
            Role::Assistant,
            vec![Content::Reasoning("hm".to_owned()), text("yes")],
        )],
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
fn refuses_options_that_it_does_not_understand() {
    for (option, named) in [
        (setting("colour", "blue"), "option colour: \"blue\""),
        (
            setting("stream-usage", "yes"),
            "option stream-usage: \"yes\"",
        ),
        (
            setting("output-limit-field", "limit"),
            "option output-limit-field: \"limit\"",
        ),
        (
            setting("pass-fields", "user,max_tokens"),
            "option pass-fields: max_tokens is the adapter's own",
        ),
    ] {
        assert_eq!(refusal(chat("hello"), &[option]), named);
    }
    let described = OpenAi::describe().options;
    assert!(!described.contains(&"colour".to_owned()));
    assert!(described.contains(&"stream-usage".to_owned()));
}

#[test]
fn passes_harmless_fields_and_refuses_others_by_name() {
    let sent = body(with_extra("metadata", r#"{"a": "b"}"#), &[]);
    assert_eq!(sent["metadata"], json!({"a": "b"}));
    for field in [
        "service_tier",
        "store",
        "prediction",
        "prompt_cache_retention",
        "web_search_options",
        "n",
        "max_tokens",
    ] {
        assert_eq!(refusal(with_extra(field, "1"), &[]), field);
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
    let image = || Content::Image(picture(None));
    let csv = Content::File(File {
        name: None,
        media_type: "text/csv".to_owned(),
        data: Vec::new(),
    });
    let shown = ToolContent::Image(picture(None));
    for (role, content, named) in [
        (Role::System, image(), "an image in a system message"),
        (Role::Assistant, image(), "an image in an assistant message"),
        (Role::User, csv, "a file of type text/csv in a user message"),
        (
            Role::User,
            Content::Reasoning("hm".to_owned()),
            "reasoning in a user message",
        ),
        (
            Role::User,
            tool_result(Vec::new(), false),
            "a tool result in a user message",
        ),
        (Role::Tool, text("hi"), "text in a tool message"),
        (
            Role::Tool,
            tool_result(vec![shown], false),
            "an image in a tool message",
        ),
    ] {
        let request = with_messages(vec![
            message(Role::User, vec![text("hello")]),
            message(role, vec![content]),
        ]);
        assert_eq!(refusal(request, &[]), format!("messages[1]: {named}"));
    }
}

#[test]
fn refuses_image_requests() {
    let request = Request::Image(ImageRequest {
        model: "m".to_owned(),
        prompt: "a cat".to_owned(),
        inputs: Vec::new(),
        count: 1,
        size: None,
        quality: None,
        background: None,
    });
    let refused = OpenAi::begin(request, Vec::new()).expect_err("no images yet");
    assert_eq!(refused, Failure::Unsupported("image requests".to_owned()));
}
