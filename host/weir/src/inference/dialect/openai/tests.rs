//! Requests, read: what each becomes, and how each mistake is refused.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::plugins::bindings::chat::{
    Blob, CacheLifetime, ChatRequest, Content, File, Image, ImageDetail, ImageSource, JsonSchema,
    Message, Part, ReasoningRequest, ResponseFormat, Role, ToolCall, ToolChoice, ToolContent,
    ToolDefinition, ToolResult,
};

use super::{ChatCall, parse_chat};

/// Fields put into a good request, and the whole message that refuses it; its first word is the path.
const REFUSALS: &str = r##"
{"model": null}
    model is required.
{"model": ""}
    model must have 1 to 256 characters.
{"model": 5}
    model must be a string, not an integer.
{"messages": null}
    messages is required.
{"messages": []}
    messages must not be empty.
{"messages": "hi"}
    messages must be an array, not a string.
{"messages": ["hi"]}
    messages[0] must be an object, not a string.
{"messages": [null]}
    messages[0] must be an object, not null.
{"messages": [{"content": "x"}]}
    messages[0].role is required.
{"messages": [{"role": "function", "content": "x"}]}
    messages[0].role must not be function, which is not supported: use tool.
{"messages": [{"role": "bot", "content": "x"}]}
    messages[0].role must be one of system, developer, user, assistant, tool.
{"messages": [{"role": "user"}]}
    messages[0].content is required.
{"messages": [{"role": "user", "content": []}]}
    messages[0].content must not be empty.
{"messages": [{"role": "user", "content": {"a": 1}}]}
    messages[0].content must be a string or an array of parts, not an object.
{"messages": [{"role": "user", "content": "x", "foo": 1}]}
    messages[0].foo is not supported.
{"messages": [{"role": "assistant", "content": "x", "audio": {"id": "a"}}]}
    messages[0].audio is not supported.
{"messages": [{"role": "user", "name": "", "content": "x"}]}
    messages[0].name must have 1 to 64 characters.
{"messages": [{"role": "user", "tool_call_id": "c", "content": "x"}]}
    messages[0].tool_call_id is for messages of the tool role only.
{"messages": [{"role": "user", "content": "x", "tool_calls": []}]}
    messages[0].tool_calls is for messages of the assistant role only.
{"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "https://a.example"}}]}]}
    messages[0].content[0].type must be text.
{"messages": [{"role": "tool", "content": "x"}]}
    messages[0].tool_call_id is required.
{"messages": [{"role": "tool", "tool_call_id": "c"}]}
    messages[0].content is required.
{"messages": [{"role": "tool", "tool_call_id": "c", "content": [{"type": "file"}]}]}
    messages[0].content[0].type must be one of text, image_url.
{"messages": [{"role": "assistant", "content": null}]}
    messages[0].content is required where there are no tool_calls.
{"messages": [{"role": "assistant", "content": []}]}
    messages[0].content is required where there are no tool_calls.
{"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]}
    messages[0].tool_calls[0].type must be function.
{"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}
    messages[0].tool_calls[0].id is required.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}]}
    messages[0].tool_calls[0].function.arguments is required.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]}]}
    messages[0].tool_calls[0].function.arguments must be a string, not an object.
{"messages": [{"role": "assistant", "content": "x", "images": [{"type": "text", "text": "x"}]}]}
    messages[0].images[0].type must be image_url.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {}]}]}
    messages[0].content[1].type is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "video"}]}]}
    messages[0].content[1].type must be one of text, image_url, file.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}]}]}
    messages[0].content[1].type must not be input_audio: audio is not supported.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text"}]}]}
    messages[0].content[1].text is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a", "refusal": "b"}]}]}
    messages[0].content[1].refusal does not belong to a part of this type.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a", "foo": []}]}]}
    messages[0].content[1].foo is not supported.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "u"}]}]}
    messages[0].content[1].image_url must be an object, not a string.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}]}
    messages[0].content[1].image_url.url is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {}}]}]}
    messages[0].content[1].file.file_data is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {"file_id": "f"}}]}]}
    messages[0].content[1].file.file_id is not supported.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {"file_data": "AQID"}}]}]}
    messages[0].content[1].file.file_data must be a base64 data URL, e.g. data:application/pdf;base64,….
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a", "cache_control": {"type": "forever"}}]}]}
    messages[0].content[1].cache_control.type must be ephemeral.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "2h"}}]}]}
    messages[0].content[1].cache_control.ttl must be one of 5m, 1h.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "http://a.example/"}}]}]}
    messages[0].content[1].image_url.url must be an https URL or a base64 data URL.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]}
    messages[0].content[1].image_url.url must be an https URL or a base64 data URL.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https:///x"}}]}]}
    messages[0].content[1].image_url.url must be a valid URL of at most 8192 bytes.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://a.example/ b"}}]}]}
    messages[0].content[1].image_url.url must be a valid URL of at most 8192 bytes.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png,abc"}}]}]}
    messages[0].content[1].image_url.url must have the form data:<media type>;base64,<data>.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:;base64,AQID"}}]}]}
    messages[0].content[1].image_url.url must have the form data:<media type>;base64,<data>.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/p\"g;base64,AQID"}}]}]}
    messages[0].content[1].image_url.url must have the form data:<media type>;base64,<data>.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:text/html;base64,AQID"}}]}]}
    messages[0].content[1].image_url.url must be of a media type such as image/png.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,A!"}}]}]}
    messages[0].content[1].image_url.url must hold valid base64.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}]}
    messages[0].content[1].image_url.url must not hold an empty file.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://a.example/", "detail": "medium"}}]}]}
    messages[0].content[1].image_url.detail must be one of auto, low, high.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {"filename": 1}}]}]}
    messages[0].content[1].file.filename must be a string, not an integer.
{"tools": [{"function": {"name": "f"}}]}
    tools[0].type is required.
{"tools": [{"type": "web_search"}]}
    tools[0].type must be function.
{"tools": [{"type": "custom", "custom": {}}]}
    tools[0].custom is not supported.
{"tools": [{"type": "function"}]}
    tools[0].function is required.
{"tools": [{"type": "function", "function": {}}]}
    tools[0].function.name is required.
{"tools": [{"type": "function", "function": {"name": "get weather"}}]}
    tools[0].function.name must be 1 to 64 characters of a-z, A-Z, 0-9, _ and -.
{"tools": [{"type": "function", "function": {"name": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}]}
    tools[0].function.name must be 1 to 64 characters of a-z, A-Z, 0-9, _ and -.
{"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}
    tools[0].function.parameters must be an object.
{"tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]}
    tools[0].function.strict must be a boolean, not a string.
{"tool_choice": "any"}
    tool_choice must be one of none, auto, required, or an object that names a function.
{"tool_choice": "required"}
    tool_choice must not be required where there are no tools.
{"tool_choice": 1}
    tool_choice must be a string or an object, not an integer.
{"tool_choice": {}}
    tool_choice.type is required.
{"tool_choice": {"type": "function"}}
    tool_choice.function is required.
{"tool_choice": {"type": "function", "function": {"name": 1}}}
    tool_choice.function.name must be a string, not an integer.
{"tool_choice": {"type": "function", "function": {"name": "f"}}}
    tool_choice.function.name must be the name of one of the tools.
{"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}
    tool_choice.allowed_tools is not supported.
{"response_format": {"type": "xml"}}
    response_format.type must be one of text, json_object, json_schema.
{"response_format": {"type": "json_schema"}}
    response_format.json_schema is required.
{"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}
    response_format.json_schema.schema is required.
{"response_format": {"type": "json_schema", "json_schema": {"schema": true}}}
    response_format.json_schema.schema must be an object.
{"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}}
    response_format.json_schema.strict must be a boolean, not a string.
{"reasoning_effort": "huge"}
    reasoning_effort must be one of none, minimal, low, medium, high, xhigh, max.
{"max_tokens": 0}
    max_tokens must be at least 1.
{"max_tokens": -1}
    max_tokens must be an integer from 0 to 4294967295.
{"max_tokens": 1.5}
    max_tokens must be an integer from 0 to 4294967295, not a fraction.
{"max_completion_tokens": 0}
    max_completion_tokens must be at least 1.
{"max_completion_tokens": 2, "max_tokens": 1}
    max_tokens must equal max_completion_tokens where both are given.
{"temperature": 2.1}
    temperature must be from 0 to 2.
{"temperature": "1"}
    temperature must be a number, not a string.
{"top_p": -0.1}
    top_p must be from 0 to 1.
{"top_k": 0}
    top_k must be at least 1.
{"presence_penalty": 3}
    presence_penalty must be from -2 to 2.
{"frequency_penalty": -3}
    frequency_penalty must be from -2 to 2.
{"seed": 18446744073709551615}
    seed must be a signed 64-bit integer.
{"stop": ""}
    stop must not be empty.
{"stop": ["a", ""]}
    stop[1] must not be empty.
{"stop": ["a", 1]}
    stop[1] must be a string, not an integer.
{"stop": ["a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a"]}
    stop must not have more than 16 items.
{"stream": "true"}
    stream must be a boolean, not a string.
{"stream_options": {"foo": 1}}
    stream_options.foo is not supported.
{"stream_options": {"include_obfuscation": true}}
    stream_options.include_obfuscation is not supported.
{"n": 2}
    n must be 1: more than one choice is not supported.
{"logprobs": true}
    logprobs is not supported.
{"top_logprobs": 2}
    top_logprobs is not supported.
{"audio": {"voice": "x"}}
    audio is not supported.
{"modalities": ["text", "audio"]}
    modalities must be ["text"]: other modalities are not supported.
{"modalities": []}
    modalities must be ["text"]: other modalities are not supported.
{"functions": []}
    functions is not supported.
{"function_call": "auto"}
    function_call is not supported.
{"session_id": "s"}
    session_id is not supported.
"##;

fn parse(body: &Value) -> Result<ChatCall, ApiError> {
    parse_chat(body.to_string().as_bytes())
}

/// The request that `fields` make together with a model and, unless they have their own, a message.
fn with(fields: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    body
}

fn request(fields: Value) -> ChatRequest {
    parse(&with(fields)).unwrap().request
}

fn messages(messages: Value) -> Vec<Message> {
    request(json!({ "messages": messages })).messages
}

fn parts_of(content: Value) -> Vec<Part> {
    messages(json!([{"role": "user", "content": content}]))
        .remove(0)
        .parts
}

fn plain(content: Content) -> Part {
    Part {
        content,
        cache: None,
        signature: None,
    }
}

fn text(text: &str) -> Part {
    plain(Content::Text(text.into()))
}

fn error(body: &str) -> ApiError {
    let error = parse_chat(body.as_bytes()).unwrap_err();
    assert_eq!(
        (error.status().as_u16(), error.code()),
        (400, "INVALID_REQUEST")
    );
    error
}

#[test]
fn a_minimal_request_leaves_everything_else_to_the_upstream() {
    let call = parse(&with(json!({}))).unwrap();
    assert_eq!(
        call,
        ChatCall {
            request: ChatRequest {
                model: "m".into(),
                messages: vec![Message {
                    role: Role::User,
                    name: None,
                    parts: vec![text("hi")],
                }],
                tools: vec![],
                tool_choice: ToolChoice::Auto,
                parallel_tool_calls: None,
                response_format: ResponseFormat::Text,
                reasoning: ReasoningRequest::Unspecified,
                max_output_tokens: 0,
                temperature: None,
                top_p: None,
                top_k: None,
                presence_penalty: None,
                frequency_penalty: None,
                seed: None,
                stop: vec![],
                extra: vec![],
                stream: false,
            },
            output_limit: None,
            output_limit_param: "max_tokens",
            needs_tools: false,
            include_usage: false,
        }
    );
}

#[test]
fn every_setting_reaches_the_request() {
    let call = parse(&with(json!({
            "tools": [
                {"type": "function", "function": {"name": "a-1"}},
                {"type": "function", "cache_control": {"type": "ephemeral", "ttl": "1h"},
                 "function": {"name": "b", "description": "B.", "parameters": {"type": "object"}, "strict": true}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "b"}},
            "parallel_tool_calls": false,
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "n", "description": "d", "strict": true, "schema": {"type": "object"}}},
            "reasoning_effort": "xhigh",
            "max_tokens": 7, "max_completion_tokens": 7,
            "temperature": 2, "top_p": 0.5, "top_k": 40, "presence_penalty": -2, "frequency_penalty": 1.5,
            "seed": -9_007_199_254_740_993_i64, "stop": ["a", "b"],
            "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false},
            "n": 1, "logprobs": false, "modalities": ["text"],
        })))
        .unwrap();
    assert_eq!(call.output_limit, Some(7));
    assert!(call.include_usage);
    let request = call.request;
    assert_eq!(
        request.tools,
        [
            ToolDefinition {
                name: "a-1".into(),
                description: None,
                input_schema: r#"{"type":"object","properties":{}}"#.into(),
                strict: None,
                cache: None,
            },
            ToolDefinition {
                name: "b".into(),
                description: Some("B.".into()),
                input_schema: r#"{"type":"object"}"#.into(),
                strict: Some(true),
                cache: Some(CacheLifetime::Long),
            },
        ]
    );
    assert_eq!(request.tool_choice, ToolChoice::Named("b".into()));
    assert_eq!(request.parallel_tool_calls, Some(false));
    assert_eq!(
        request.response_format,
        ResponseFormat::JsonSchema(JsonSchema {
            name: Some("n".into()),
            description: Some("d".into()),
            strict: Some(true),
            schema: r#"{"type":"object"}"#.into(),
        })
    );
    assert_eq!(request.reasoning, ReasoningRequest::Highest);
    assert_eq!(request.temperature, Some(2.0));
    assert_eq!(request.top_p, Some(0.5));
    assert_eq!(request.top_k, Some(40));
    assert_eq!(request.presence_penalty, Some(-2.0));
    assert_eq!(request.frequency_penalty, Some(1.5));
    assert_eq!(request.seed, Some(-9_007_199_254_740_993));
    assert_eq!(request.stop, ["a", "b"]);
    assert_eq!(request.extra, []);
    assert!(request.stream);
}

#[test]
fn words_of_settings_are_translated() {
    let efforts = [
        ("none", ReasoningRequest::Off),
        ("minimal", ReasoningRequest::Minimal),
        ("low", ReasoningRequest::Low),
        ("medium", ReasoningRequest::Medium),
        ("high", ReasoningRequest::High),
        ("max", ReasoningRequest::Highest),
    ];
    for (word, reasoning) in efforts {
        assert_eq!(
            request(json!({"reasoning_effort": word})).reasoning,
            reasoning
        );
    }
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let choices = [
        ("auto", ToolChoice::Auto),
        ("none", ToolChoice::None),
        ("required", ToolChoice::Required),
    ];
    for (word, choice) in choices {
        assert_eq!(
            request(json!({"tools": tools, "tool_choice": word})).tool_choice,
            choice
        );
    }
    for (word, format) in [
        ("text", ResponseFormat::Text),
        ("json_object", ResponseFormat::Json),
    ] {
        assert_eq!(
            request(json!({"response_format": {"type": word}})).response_format,
            format
        );
    }
    assert_eq!(request(json!({"stop": "end"})).stop, ["end"]);
}

#[test]
fn what_a_schema_or_a_tool_leaves_open_stays_open() {
    let bare = request(json!({
        "tools": [{"type": "function", "function": {"name": "f", "strict": false}}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
    }));
    assert_eq!(bare.tools[0].strict, Some(false));
    assert_eq!(
        bare.response_format,
        ResponseFormat::JsonSchema(JsonSchema {
            name: None,
            description: None,
            strict: None,
            schema: "{}".into(),
        })
    );
}

#[test]
fn either_name_of_the_output_limit_is_read() {
    for fields in [
        json!({"max_tokens": 5}),
        json!({"max_completion_tokens": 5}),
    ] {
        assert_eq!(parse(&with(fields)).unwrap().output_limit, Some(5));
    }
}

#[test]
fn fields_beyond_the_vocabulary_are_handed_on_as_they_were_written() {
    let body = br#"{"user": "u", "model": "m", "logit_bias": { "5" : 1.0 }, "store": null,
            "messages": [{"role": "user", "content": ""}], "metadata": "\ud83d\ude00"}"#;
    let extra = parse_chat(body).unwrap().request.extra;
    let expected = [
        ("user", "\"u\""),
        ("logit_bias", "{ \"5\" : 1.0 }"),
        ("metadata", r#""\ud83d\ude00""#),
    ];
    assert_eq!(
        extra,
        expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
}

#[test]
fn null_is_as_absent_everywhere() {
    let call = parse(&json!({
            "model": "m", "whatever": null, "tools": null, "tool_choice": null, "n": null, "audio": null,
            "functions": null, "function_call": null, "session_id": null, "top_logprobs": null, "modalities": null,
            "stream": null, "stream_options": {"include_usage": null, "new": null}, "stop": null, "max_tokens": null,
            "response_format": null, "temperature": null,
            "messages": [
                {"role": "user", "name": null, "tool_calls": null, "new": null, "content": [
                    {"type": "image_url", "text": null, "cache_control": null, "new": null,
                     "image_url": {"url": "https://a.example/b", "detail": null, "new": null}}]},
                {"role": "assistant", "content": "x", "refusal": null, "audio": null, "function_call": null,
                 "tool_calls": null, "annotations": null, "reasoning_content": null, "images": null},
            ],
        }))
        .unwrap();
    assert_eq!(call.request.extra, []);
    assert_eq!(call.request.messages[1].parts, [text("x")]);
}

#[test]
fn roles_and_names_are_translated() {
    let messages = messages(json!([
        {"role": "system", "content": "s"},
        {"role": "developer", "content": [{"type": "text", "text": "d"}]},
        {"role": "user", "content": "u", "name": "ann"},
        {"role": "assistant", "content": "a"},
    ]));
    let roles: Vec<_> = messages.iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [Role::System, Role::System, Role::User, Role::Assistant]
    );
    assert_eq!(messages[1].parts, [text("d")]);
    assert_eq!(messages[2].name.as_deref(), Some("ann"));
}

#[test]
fn parts_become_text_images_and_files() {
    let parts = parts_of(json!([
        {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "HTTPS://a.example/b.png?c", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:IMAGE/PNG;base64,AQID", "detail": "high"}},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml;charset=utf-8;base64,AQI", "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "https://a.example/"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AQI="},
         "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "file", "file": {"file_data": "data:text/csv;base64,AQ=="}},
    ]));
    let image = |source, detail| plain(Content::Image(Image { source, detail }));
    let url = |url: &str| ImageSource::Url(url.into());
    let inline = |media_type: &str, data: &[u8]| {
        ImageSource::Inline(Blob {
            media_type: media_type.into(),
            data: data.into(),
        })
    };
    assert_eq!(
        parts,
        [
            Part {
                cache: Some(CacheLifetime::Short),
                ..text("look")
            },
            image(url("HTTPS://a.example/b.png?c"), Some(ImageDetail::Low)),
            image(inline("image/png", &[1, 2, 3]), Some(ImageDetail::High)),
            image(inline("image/svg+xml", &[1, 2]), None),
            image(url("https://a.example/"), None),
            Part {
                cache: Some(CacheLifetime::Long),
                ..plain(Content::File(File {
                    name: Some("a.pdf".into()),
                    media_type: "application/pdf".into(),
                    data: vec![1, 2],
                }))
            },
            plain(Content::File(File {
                name: None,
                media_type: "text/csv".into(),
                data: vec![1],
            })),
        ]
    );
}

#[test]
fn an_earlier_answer_may_be_sent_back_as_it_was_received() {
    let messages = messages(json!([
        {"role": "assistant", "content": "said", "refusal": null, "annotations": [{"type": "url_citation"}],
         "audio": null, "function_call": null, "reasoning_content": "thought", "parsed": {"a": 1},
         "images": [{"index": 0, "type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}}],
         "tool_calls": [{"index": 0, "id": "c1", "type": "function",
                         "function": {"name": "f", "arguments": "{\"a\": 1", "parsed_arguments": {"a": 1}}}]},
        {"role": "assistant", "content": null, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        {"role": "assistant", "content": "",
         "tool_calls": [{"id": "c2", "function": {"name": "g", "arguments": ""}}]},
        {"role": "assistant", "content": ""},
    ]));
    let call = |id: &str, name: &str, arguments: &str| {
        plain(Content::ToolCall(ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        }))
    };
    assert_eq!(
        messages[0].parts,
        [
            plain(Content::Reasoning("thought".into())),
            text("said"),
            plain(Content::Image(Image {
                source: ImageSource::Inline(Blob {
                    media_type: "image/png".into(),
                    data: vec![1, 2, 3],
                }),
                detail: None,
            })),
            call("c1", "f", "{\"a\": 1"),
        ]
    );
    assert_eq!(messages[1].parts, [text("no")]);
    assert_eq!(messages[2].parts, [text("a"), text("b")]);
    assert_eq!(messages[3].parts, [call("c2", "g", "")]);
    assert_eq!(messages[4].parts, [text("")]);
}

#[test]
fn a_tool_message_becomes_one_result() {
    let messages = messages(json!([
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "tool", "tool_call_id": "c2", "content": [
            {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "https://a.example/", "detail": "low"}},
        ]},
    ]));
    let result = |call_id: &str, content| {
        plain(Content::ToolResult(ToolResult {
            call_id: call_id.into(),
            content,
            is_error: false,
        }))
    };
    assert_eq!(
        messages[0].parts,
        [result("c1", vec![ToolContent::Text("4".into())])]
    );
    let seen = vec![
        ToolContent::Text("see".into()),
        ToolContent::Image(Image {
            source: ImageSource::Url("https://a.example/".into()),
            detail: Some(ImageDetail::Low),
        }),
    ];
    assert_eq!(
        messages[1].parts,
        [Part {
            cache: Some(CacheLifetime::Short),
            ..result("c2", seen)
        }]
    );
}

#[test]
fn an_error_names_the_field_and_says_what_is_wrong() {
    let mut lines = REFUSALS.trim().lines();
    while let Some(fields) = lines.next() {
        let expected = lines.next().unwrap().trim();
        let error = error(&with(serde_json::from_str(fields).unwrap()).to_string());
        assert_eq!(error.message(), expected, "{fields}");
        assert_eq!(error.param(), expected.split(' ').next(), "{fields}");
    }
}

#[test]
fn lengths_are_counted_in_characters() {
    for (field, limit) in [("model", 256), ("messages[0].name", 64)] {
        let body = |length| {
            let text = "é".repeat(length);
            match field {
                "model" => with(json!({ "model": text })),
                _ => with(json!({"messages": [{"role": "user", "content": "x", "name": text}]})),
            }
        };
        assert!(parse(&body(limit)).is_ok());
        assert_eq!(error(&body(limit + 1).to_string()).param(), Some(field));
    }
}

#[test]
fn a_missing_field_is_named_even_if_the_body_is_empty() {
    assert_eq!(error("{}").param(), Some("model"));
    assert_eq!(error(r#"{"model": "m"}"#).param(), Some("messages"));
}

#[test]
fn a_body_that_is_not_json_is_refused_with_its_position() {
    let cases = [
        ("", "EOF while parsing a value at line 1 column 0"),
        (
            "{\"model\":\n \"m\",]",
            "key must be a string at line 2 column 6",
        ),
        (
            "{\"model\": \"m\"} x",
            "trailing characters at line 1 column 16",
        ),
        (r#"{"model": "\ud800"}"#, "at line 1 column"),
    ];
    for (body, says) in cases {
        let error = error(body);
        assert_eq!(error.param(), None);
        assert!(
            error.message().starts_with("The body is not valid JSON: "),
            "{}",
            error.message()
        );
        assert!(error.message().contains(says), "{}", error.message());
    }
    let error = parse_chat(b"{\"model\": \"\xff\"}").unwrap_err();
    assert!(
        error.message().contains("invalid unicode"),
        "{}",
        error.message()
    );
    let error = parse_chat(b"{\"model\": \"m\", \"extra\": \"\xff\"}").unwrap_err();
    assert_eq!(error.status().as_u16(), 400);
}

#[test]
fn a_body_that_is_no_object_is_refused() {
    let error = error("[1]");
    assert_eq!(
        (error.param(), error.message()),
        (None, "The body must be an object, not an array.")
    );
}

#[test]
fn a_number_that_no_float_holds_is_refused_by_name() {
    for name in ["temperature", "seed", "max_tokens"] {
        let body = with(json!({ name: 12345 }))
            .to_string()
            .replace("12345", "1e999");
        assert_eq!(error(&body).param(), Some(name));
    }
}

#[test]
fn a_repeated_field_is_refused_by_name() {
    let cases = [
        (r#"{"model":"m","model":"m"}"#, "model"),
        (r#"{"model":null,"model":"m"}"#, "model"),
        (r#"{"user":"a","user":"b"}"#, "user"),
        (
            r#"{"messages":[{"role":"user","role":"user"}]}"#,
            "messages[0].role",
        ),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}"#,
            "messages[0].content[0].text",
        ),
    ];
    for (body, path) in cases {
        let error = error(body);
        assert_eq!(error.param(), Some(path));
        assert!(
            error.message().contains("is given more than once"),
            "{}",
            error.message()
        );
    }
}

#[test]
fn depth_is_bounded_wherever_anything_may_stand() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let places = [
        ("extra", r#""extra": @"#),
        (
            "tools[0].function.parameters",
            r#""tools": [{"type": "function", "function": {"parameters": {"a": @}}}]"#,
        ),
        (
            "response_format.json_schema.schema",
            r#""response_format": {"type": "json_schema", "json_schema": {"schema": {"a": @}}}"#,
        ),
        ("audio", r#""audio": @"#),
        ("stop[0]", r#""stop": @"#),
        ("model", r#""model": @"#),
        ("messages[0]", r#""messages": @"#),
        (
            "messages[0].role",
            r#""messages": [{"annotations": @, "content": "x"}]"#,
        ),
    ];
    for (path, place) in places {
        let body = format!("{{{}}}", place.replace('@', &deep));
        let expected = if path == "messages[0].role" {
            "model"
        } else {
            path
        };
        assert_eq!(error(&body).param(), Some(expected), "{place}");
        // The same, cut off before anything closes.
        let body = format!("{{{}", place.split('@').next().unwrap()) + &"[".repeat(100_000);
        assert_eq!(
            parse_chat(body.as_bytes()).unwrap_err().status().as_u16(),
            400,
            "{place}"
        );
    }
}

#[test]
fn brackets_in_strings_do_not_count_as_depth() {
    let body = with(json!({ "extra": ["[\"\\".repeat(500)] }));
    assert!(parse(&body).is_ok());
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let body = |levels| {
        with(json!({"extra": "@"}))
            .to_string()
            .replace("\"@\"", &nested(levels))
    };
    assert!(parse_chat(body(100).as_bytes()).is_ok());
    assert_eq!(error(&body(101)).param(), Some("extra"));
}

#[test]
fn lists_and_extra_fields_are_bounded() {
    let message = json!({"role": "user", "content": ""});
    assert!(parse(&with(json!({"messages": vec![message.clone(); 8_192]}))).is_ok());
    let error = parse(&with(json!({"messages": vec![message; 8_193]}))).unwrap_err();
    assert_eq!(error.param(), Some("messages"));

    let extra =
        |count: usize| -> Value { (0..count).map(|n| (format!("x{n}"), json!(n))).collect() };
    assert_eq!(request(extra(64)).extra.len(), 64);
    let error = parse(&with(extra(65))).unwrap_err();
    assert!(
        error
            .message()
            .starts_with("The body must not have more than 64 fields")
    );
}

#[test]
fn a_name_that_cannot_be_shown_is_left_out_of_the_path() {
    for name in [
        "a b".to_owned(),
        "x".repeat(65),
        "\u{1b}[31m".to_owned(),
        String::new(),
    ] {
        let error = parse(&with(json!({"stream_options": { name: 1 }}))).unwrap_err();
        assert_eq!(error.param(), Some("stream_options.…"));
    }
}

/// Puts every kind of value in the place of every value of a request that uses everything.
#[test]
fn no_error_repeats_what_the_body_says() {
    const SECRET: &str = "s3cret, expected u32";
    let whole = json!({
        "model": SECRET, "stop": [SECRET], "temperature": 1, "max_tokens": 5, "stream": true, "user": SECRET,
        "tool_choice": {"type": "function", "function": {"name": "f"}}, "reasoning_effort": "low", "seed": 1,
        "tools": [{"type": "function", "cache_control": {"type": "ephemeral", "ttl": "5m"},
                   "function": {"name": "f", "description": SECRET, "parameters": {}, "strict": true}}],
        "response_format": {"type": "json_schema", "json_schema": {
            "name": SECRET, "description": SECRET, "schema": {}, "strict": true}},
        "stream_options": {"include_usage": true}, "n": 1, "modalities": ["text"], "logprobs": false,
        "messages": [
            {"role": "system", "content": SECRET},
            {"role": "user", "name": SECRET, "content": [
                {"type": "text", "text": SECRET, "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": "https://a.example/s3cret", "detail": "low"}},
                {"type": "file", "file": {"filename": SECRET, "file_data": "data:a/b;base64,AQID"}}]},
            {"role": "assistant", "content": SECRET, "reasoning_content": SECRET, "refusal": SECRET,
             "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}}],
             "tool_calls": [{"id": SECRET, "type": "function", "function": {"name": "f", "arguments": SECRET}}]},
            {"role": "tool", "tool_call_id": SECRET, "content": [{"type": "text", "text": SECRET}]},
        ],
    });
    assert_eq!(parse(&whole).err(), None);
    let mut pointers = Vec::new();
    collect_pointers(&whole, String::new(), &mut pointers);
    assert!(pointers.len() > 80);
    let mut refused = 0;
    for pointer in &pointers {
        for value in [
            json!(null),
            json!(true),
            json!(1),
            json!(-1),
            json!(8_123_456_789_123_u64),
            json!(1.5),
            json!(SECRET),
            json!(""),
            json!([]),
            json!({}),
            json!([SECRET]),
            json!({"x": SECRET}),
        ] {
            let mut body = whole.clone();
            *body.pointer_mut(pointer).unwrap() = value;
            let Err(error) = parse(&body) else { continue };
            refused += 1;
            let rendered = error.body("r").to_string();
            assert!(!rendered.contains("s3cret"), "{pointer}: {rendered}");
            assert!(!rendered.contains("8123456789123"), "{pointer}: {rendered}");
            assert!(
                error.message().ends_with('.') && !error.message().contains("not valid"),
                "{rendered}"
            );
        }
    }
    assert!(refused > 500);

    // And cut off anywhere, it is refused without a word of it.
    let text = whole.to_string();
    for end in 0..text.len() {
        let error = error(&text[..end]);
        assert!(!error.message().contains("s3cret"));
    }
}

fn collect_pointers(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_pointers(item, format!("{pointer}/{index}"), pointers);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                collect_pointers(field, format!("{pointer}/{name}"), pointers);
            }
        }
        _ => {}
    }
    pointers.push(pointer);
}
