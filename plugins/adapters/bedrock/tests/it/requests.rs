//! The requests to the upstream.

use serde_json::{Value, json};
use weir_adapter_bedrock::translate::Bedrock;
use weir_sdk::adapter::{Attachment, CredentialSlot, Exchange, RefusedSetting, Setting};
use weir_sdk::chat::{
    AllowedTools, Audio, BuiltInTool, CacheLifetime, ChatRequest, Content, File, FunctionTool,
    Image, JsonSchema, Message, Reasoning, ReasoningEffort, ReasoningRequest, ResponseFormat, Role,
    Source, ToolChoice, ToolContent, ToolKind,
};
use weir_sdk::testing::{
    NO_REASONING, SentRequest, body, call, chat, file, function, image, message, pair, part,
    reasoning, refused_field, remote_image, request, result, send, streamed, text, tool,
    with_messages,
};

fn sent(chat: ChatRequest, options: &[Setting]) -> SentRequest {
    send::<Bedrock>(request(chat), options).expect("a request that can be expressed")
}

fn said(text: &str) -> ToolContent {
    ToolContent::Text(text.to_owned())
}

fn messages(messages: Vec<Message>) -> Value {
    body::<Bedrock>(with_messages(messages))["messages"].take()
}

/// As botocore 1.44.8 serializes `{modelId}`.
#[test]
fn encodes_the_model_within_the_path() {
    let path = |model: &str| {
        let chat = ChatRequest {
            model: model.to_owned(),
            ..streamed("hello")
        };
        sent(chat, &[]).path
    };
    assert_eq!(
        path("amazon.nova-pro-v1:0"),
        "/model/amazon.nova-pro-v1%3A0/converse-stream"
    );
    assert_eq!(
        path("arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-pro-v1:0"),
        "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.amazon.nova-pro-v1%3A0\
         /converse-stream"
    );
}

#[test]
fn sends_all_that_a_request_can_say() {
    let mut system = message(Role::System, vec![text("Be brief."), text("Be kind.")]);
    system.parts[1].cache = Some(CacheLifetime::Long);
    let mut user = message(
        Role::User,
        vec![text("What is this?"), image(Source::Attachment(0))],
    );
    user.parts[1].cache = Some(CacheLifetime::Short);
    let mut thought = part(reasoning("hm"));
    thought.signature = Some("c2ln".to_owned());
    let sealed = part(Content::Reasoning(Reasoning {
        text: String::new(),
        sealed: Some("c2VhbGVk".to_owned()),
        id: None,
    }));
    let mut assistant = message(
        Role::Assistant,
        vec![
            text("Let me look."),
            call("call_1", "look", r#"{"at": "a"}"#),
            call("call_2", "look", ""),
        ],
    );
    assistant.parts.splice(0..0, [thought, sealed]);
    let mut looked = tool(ToolKind::Function(FunctionTool {
        name: "look".to_owned(),
        description: Some("Looks.".to_owned()),
        input_schema: r#"{"type": "object"}"#.to_owned(),
        strict: Some(true),
    }));
    looked.cache = Some(CacheLifetime::Short);
    let request = ChatRequest {
        messages: vec![
            system,
            user,
            assistant,
            message(
                Role::Tool,
                vec![
                    result("call_1", vec![said("a"), said(" ")], false),
                    result("call_2", vec![said("no such file")], true),
                ],
            ),
            message(Role::System, vec![text("Hurry.")]),
        ],
        tools: vec![looked],
        tool_choice: ToolChoice::Required,
        parallel_tool_calls: Some(false),
        response_format: ResponseFormat::JsonSchema(JsonSchema {
            name: Some("sighting".to_owned()),
            description: Some("A sighting.".to_owned()),
            strict: Some(true),
            schema: r#"{"type":"object"}"#.to_owned(),
        }),
        max_output_tokens: 4096,
        temperature: Some(0.5),
        top_p: Some(1.0),
        presence_penalty: Some(0.0),
        stop: vec!["END".to_owned()],
        extra: vec![pair("user", "\"u\"")],
        ..chat("")
    };
    let sent = sent(request, &[]);
    assert_eq!(
        sent.body,
        json!({
            "system": [
                {"text": "Be brief."}, {"text": "Be kind."},
                {"cachePoint": {"type": "default", "ttl": "1h"}},
            ],
            "messages": [
                {"role": "user", "content": [
                    {"text": "What is this?"},
                    {"image": {"format": "png", "source": {"bytes": "<0>"}}},
                    {"cachePoint": {"type": "default"}},
                ]},
                {"role": "assistant", "content": [
                    {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
                    {"reasoningContent": {"redactedContent": "c2VhbGVk"}},
                    {"text": "Let me look."},
                    {"toolUse": {"toolUseId": "call_1", "name": "look", "input": {"at": "a"}}},
                    {"toolUse": {"toolUseId": "call_2", "name": "look", "input": {}}},
                ]},
                {"role": "user", "content": [
                    {"toolResult": {"toolUseId": "call_1", "content": [{"text": "a"}]}},
                    {"toolResult": {"toolUseId": "call_2", "content": [{"text": "no such file"}], "status": "error"}},
                    {"text": "<system-reminder>\nHurry.\n</system-reminder>"},
                ]},
            ],
            "inferenceConfig": {
                "maxTokens": 4096, "temperature": 0.5, "topP": 1.0, "stopSequences": ["END"],
            },
            "toolConfig": {
                "tools": [
                    {"toolSpec": {
                        "name": "look", "description": "Looks.", "inputSchema": {"json": {"type": "object", "additionalProperties": false}},
                        "strict": true,
                    }},
                    {"cachePoint": {"type": "default"}},
                ],
                "toolChoice": {"any": {}},
            },
            "outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {
                "schema": "{\"type\":\"object\",\"additionalProperties\":false}", "name": "sighting", "description": "A sighting.",
            }}}},
        })
    );
    assert_eq!(sent.ignored, ["user", "parallel_tool_calls"]);
}

#[test]
fn sends_documents_with_names_that_the_upstream_takes() {
    let document = |name: Option<&str>| {
        Content::File(File {
            name: name.map(str::to_owned),
            media_type: None,
            ..file(Source::Attachment(1))
        })
    };
    let cited = Content::File(File {
        title: Some("Annual  report, 2025 (draft).pdf".to_owned()),
        context: Some("Of the board.".to_owned()),
        cite: Some(true),
        ..file(Source::Attachment(1))
    });
    let content = messages(vec![message(
        Role::User,
        vec![
            text("Read."),
            document(Some("a.pdf")),
            document(Some("a.pdf")),
            document(None),
            document(Some("報告")),
            cited,
        ],
    )])[0]["content"]
        .take();
    let names: Vec<_> = (1..6)
        .map(|at| content[at]["document"]["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        names,
        [
            "a-pdf",
            "a-pdf (2)",
            "document",
            "document (2)",
            "Annual report- 2025 (draft)-pdf"
        ]
    );
    assert_eq!(
        content[5]["document"],
        json!({
            "format": "pdf", "name": "Annual report- 2025 (draft)-pdf", "source": {"bytes": "<1>"},
            "context": "Of the board.", "citations": {"enabled": true},
        })
    );
    // Each media type has its format.
    // Behind a text, which a document needs beside it.
    let mut request = request(with_messages(vec![message(
        Role::User,
        vec![document(None)],
    )]));
    for (media_type, format) in [
        ("text/plain", Some("txt")),
        ("text/markdown", Some("md")),
        ("text/csv", Some("csv")),
        ("video/mp4", None),
    ] {
        request.attachments[1] = Attachment {
            media_type: media_type.to_owned(),
            size_bytes: 4,
        };
        let sent = send::<Bedrock>(request.clone(), &[]);
        let sent = sent
            .ok()
            .map(|sent| sent.body["messages"][0]["content"][1]["document"]["format"].clone());
        assert_eq!(sent.as_ref().and_then(Value::as_str), format);
    }
}

#[test]
fn refuses_by_name_what_it_cannot_say() {
    let built_in = tool(ToolKind::BuiltIn(BuiltInTool {
        kind: "web_search".to_owned(),
        name: None,
        configuration: "{}".to_owned(),
    }));
    for (chat, name) in [
        (
            ChatRequest {
                tools: vec![built_in],
                ..chat("")
            },
            "tools[0]",
        ),
        (
            ChatRequest {
                modalities: vec!["audio".to_owned()],
                ..chat("")
            },
            "modalities",
        ),
        (
            ChatRequest {
                extra: vec![pair("logit_bias", "{}")],
                ..chat("")
            },
            "logit_bias",
        ),
        (
            ChatRequest {
                top_k: Some(4),
                ..chat("")
            },
            "top_k",
        ),
        (
            ChatRequest {
                seed: Some(4),
                ..chat("")
            },
            "seed",
        ),
        (
            ChatRequest {
                presence_penalty: Some(0.5),
                ..chat("")
            },
            "presence_penalty",
        ),
    ] {
        assert_eq!(refused_field::<Bedrock>(chat), name);
    }
}

#[test]
fn refuses_messages_that_it_cannot_say() {
    let audio = Audio {
        source: Source::Attachment(2),
        format: None,
    };
    let elsewhere = Image {
        source: Source::Id("file-1".to_owned()),
        detail: None,
    };
    for message in [
        message(Role::User, vec![remote_image()]),
        message(Role::User, vec![Content::Image(elsewhere)]),
        message(Role::User, vec![image(Source::Attachment(1))]),
        message(Role::User, vec![image(Source::Attachment(9))]),
        message(
            Role::User,
            vec![Content::File(file(Source::Url("https://a/b".to_owned())))],
        ),
        message(Role::User, vec![Content::Audio(audio)]),
        message(Role::User, vec![call("c", "look", "{}")]),
        message(Role::Assistant, vec![image(Source::Attachment(0))]),
    ] {
        assert_eq!(
            refused_field::<Bedrock>(with_messages(vec![message])),
            "messages[0]"
        );
    }
}

#[test]
fn names_each_choice_of_tools() {
    let config = |tool_choice| {
        let chat = ChatRequest {
            tools: vec![function("look"), function("wait")],
            tool_choice,
            ..chat("")
        };
        body::<Bedrock>(chat)["toolConfig"].take()
    };
    let among = |required| {
        ToolChoice::Among(AllowedTools {
            names: vec!["wait".to_owned()],
            required,
        })
    };
    let shown = |config: &Value| config["tools"].as_array().map_or(0, Vec::len);
    for (choice, tools, written) in [
        (ToolChoice::Auto, 2, Value::Null),
        (ToolChoice::None, 0, Value::Null),
        (ToolChoice::Required, 2, json!({"any": {}})),
        (
            ToolChoice::Named("look".to_owned()),
            2,
            json!({"tool": {"name": "look"}}),
        ),
        (among(true), 1, json!({"any": {}})),
        (among(false), 1, Value::Null),
    ] {
        let config = config(choice);
        assert_eq!((shown(&config), &config["toolChoice"]), (tools, &written));
    }
}

#[test]
fn asks_for_reasoning_as_the_model_takes_it() {
    let asked = |form: &str, reasoning: ReasoningRequest| {
        let chat = ChatRequest {
            reasoning,
            max_output_tokens: 4_000,
            ..chat("")
        };
        let sent = sent(chat, &[pair("thinking", form)]);
        let mut body = sent.body;
        (
            body["additionalModelRequestFields"]["thinking"].take(),
            body["outputConfig"]["effort"].take(),
            sent.ignored,
        )
    };
    let effort = |effort| ReasoningRequest {
        effort: Some(effort),
        ..NO_REASONING
    };
    let budget = || ReasoningRequest {
        budget_tokens: Some(2_000),
        ..NO_REASONING
    };
    let nothing = || (Value::Null, Value::Null, Vec::<String>::new());
    for form in ["none", "adaptive", "budget"] {
        assert_eq!(asked(form, NO_REASONING), nothing(), "{form}");
    }
    let ignored = (
        Value::Null,
        Value::Null,
        vec!["reasoning_effort".to_owned()],
    );
    assert_eq!(asked("none", effort(ReasoningEffort::High)), ignored);
    assert_eq!(asked("none", effort(ReasoningEffort::Off)), nothing());
    let adaptive = json!({"type": "adaptive"});
    for (step, word) in [
        (ReasoningEffort::Minimal, "low"),
        (ReasoningEffort::Medium, "medium"),
        (ReasoningEffort::Highest, "max"),
    ] {
        assert_eq!(
            asked("adaptive", effort(step)),
            (adaptive.clone(), word.into(), Vec::new())
        );
    }
    assert_eq!(
        asked("adaptive", budget()),
        (adaptive, Value::Null, Vec::new())
    );
    let enabled = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    for (reasoning, tokens) in [
        (budget(), 2_000),
        (effort(ReasoningEffort::Medium), 2_000),
        (effort(ReasoningEffort::Minimal), 1_024),
        (effort(ReasoningEffort::Highest), 3_800),
    ] {
        assert_eq!(
            asked("budget", reasoning),
            (enabled(tokens), Value::Null, Vec::new())
        );
    }
    assert_eq!(
        asked("budget", effort(ReasoningEffort::Off)).0,
        json!({"type": "disabled"})
    );
    let too_small = ChatRequest {
        reasoning: effort(ReasoningEffort::High),
        ..chat("")
    };
    let sent = sent(too_small, &[pair("thinking", "budget")]);
    assert_eq!(sent.body.get("additionalModelRequestFields"), None);
    assert_eq!(sent.ignored, ["reasoning"]);
}

#[test]
fn leaves_out_cache_marks_and_sampling_where_a_model_has_none() {
    let mut marked = message(Role::User, vec![text("a")]);
    marked.parts[0].cache = Some(CacheLifetime::Short);
    let chat = |temperature| ChatRequest {
        temperature: Some(temperature),
        ..with_messages(vec![marked.clone()])
    };
    let options = [pair("cache-points", "false"), pair("sampling", "false")];
    for (temperature, ignored) in [
        (1.0, &["cache_control"][..]),
        (0.5, &["temperature", "cache_control"]),
    ] {
        let sent = sent(chat(temperature), &options);
        assert_eq!(
            sent.body,
            json!({
                "messages": [{"role": "user", "content": [{"text": "a"}]}],
                "inferenceConfig": {"maxTokens": 100},
            })
        );
        assert_eq!(sent.ignored, ignored);
    }
}

#[test]
fn writes_ids_as_the_upstream_takes_them() {
    let id = |id: &str| {
        let called = message(Role::Assistant, vec![call(id, "look", "{}")]);
        let mut sent = messages(vec![message(Role::User, vec![text("a")]), called]);
        let id = sent[1]["content"][0]["toolUse"]["toolUseId"].take();
        id.as_str().expect("an id").to_owned()
    };
    assert_eq!(id("tooluse_a-1.b:c"), "tooluse_a-1.b:c");
    let long = format!("{}{}", "x".repeat(60), "1234567890");
    let fitted = ["a b/ö", "a b/ü", "", &long].map(id);
    for (index, fitted_id) in fitted.iter().enumerate() {
        assert!((1..=64).contains(&fitted_id.len()), "{fitted_id}");
        assert!(!fitted[..index].contains(fitted_id), "{fitted_id} twice");
    }
}

#[test]
fn refuses_options_that_cannot_be() {
    for (name, value, why) in [
        ("thinking", "some", "must be none, adaptive or budget"),
        ("sampling", "no", "must be true or false"),
        ("cache-points", "2", "must be true or false"),
        ("novelty", "1", "is not an option of this adapter"),
    ] {
        let refused = Bedrock::configure(&[pair(name, value)]);
        let (name, why) = (name.to_owned(), why.to_owned());
        assert_eq!(refused, Err(RefusedSetting { name, why }));
    }
    let foreign = Bedrock::begin(request(chat("")), b"\xFF");
    assert!(foreign.is_err());
}

#[test]
fn describes_where_the_key_goes() {
    assert_eq!(Bedrock::describe().credential, CredentialSlot::Bearer);
}
