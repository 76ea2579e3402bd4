//! The requests to the upstream.

use serde_json::{Value, json};
use weir_adapter_anthropic::translate::Anthropic;
use weir_sdk::adapter::{Exchange, RefusedSetting, Setting};
use weir_sdk::chat::{
    AllowedTools, Audio, BuiltInTool, CacheLifetime, CallKind, ChatRequest, Content, CustomTool,
    File, Image, JsonSchema, Message, Opaque, ReasoningEffort, ReasoningRequest, ResponseFormat,
    Role, Source, ToolCall, ToolChoice, ToolContent, ToolKind,
};
use weir_sdk::testing::{
    NO_REASONING, SentRequest, body, call, chat, file, function, image, message, pair, part,
    reasoning, refused_field, remote_image, request, request_of_same_dialect, result, send, text,
    tool, with_messages,
};

fn sent(chat: ChatRequest) -> SentRequest {
    send::<Anthropic>(request(chat), &[]).expect("a request that can be expressed")
}

fn sent_in_same_dialect(chat: ChatRequest) -> SentRequest {
    let request = request_of_same_dialect::<Anthropic>(chat);
    send::<Anthropic>(request, &[]).expect("a request that can be expressed")
}

fn with_extra(name: &str, json: &str) -> ChatRequest {
    ChatRequest {
        extra: vec![pair(name, json)],
        ..chat("hello")
    }
}

fn opaque(kind: &str, json: &str) -> Opaque {
    Opaque {
        kind: kind.to_owned(),
        json: json.to_owned(),
    }
}

fn messages(messages: Vec<Message>) -> Value {
    body::<Anthropic>(with_messages(messages))["messages"].take()
}

fn user(contents: Vec<Content>) -> Message {
    message(Role::User, contents)
}

fn assistant(contents: Vec<Content>) -> Message {
    message(Role::Assistant, contents)
}

fn refuses_message(message: Message) {
    assert_eq!(
        refused_field::<Anthropic>(with_messages(vec![message])),
        "messages[0]"
    );
}

#[test]
fn sends_all_that_a_request_can_say() {
    let mut looked = user(vec![
        text("What is this?"),
        remote_image(),
        Content::Image(Image {
            source: Source::Attachment(0),
            detail: Some("high".to_owned()),
        }),
        Content::File(File {
            title: Some("A \"report\"".to_owned()),
            context: Some("Of 2026".to_owned()),
            cite: Some(true),
            media_type: Some("application/pdf".to_owned()),
            ..file(Source::Attachment(1))
        }),
    ]);
    looked.parts[0].cache = Some(CacheLifetime::Long);
    looked.parts[2].cache = Some(CacheLifetime::Short);
    let mut thought = part(reasoning("hm"));
    thought.signature = Some("c2ln".to_owned());
    let mut answered = assistant(vec![
        text("Let me look."),
        call("call_1", "look", r#"{"at": "a"}"#),
        call("call_2", "look", ""),
    ]);
    answered.parts.insert(0, thought);
    let request = ChatRequest {
        messages: vec![
            message(Role::System, vec![text("Be brief.")]),
            message(Role::System, vec![text("Be kind.")]),
            looked,
            answered,
            message(
                Role::Tool,
                vec![result(
                    "call_1",
                    vec![ToolContent::Text("a cat".to_owned())],
                    false,
                )],
            ),
            message(
                Role::Tool,
                vec![
                    result(
                        "call_2",
                        vec![ToolContent::Text("no such file".to_owned())],
                        true,
                    ),
                    result("call_3", Vec::new(), false),
                ],
            ),
            user(vec![text("And now?")]),
        ],
        tools: vec![{
            let mut look = function("look");
            look.cache = Some(CacheLifetime::Short);
            look
        }],
        tool_choice: ToolChoice::Named("look".to_owned()),
        parallel_tool_calls: Some(false),
        response_format: ResponseFormat::JsonSchema(JsonSchema {
            name: Some("sighting".to_owned()),
            description: None,
            strict: Some(true),
            schema: r#"{"type":"object"}"#.to_owned(),
        }),
        reasoning: ReasoningRequest {
            effort: Some(ReasoningEffort::High),
            ..NO_REASONING
        },
        modalities: vec!["text".to_owned()],
        max_output_tokens: 4096,
        temperature: Some(1.0),
        top_p: Some(0.5),
        top_k: Some(40),
        presence_penalty: Some(0.0),
        stop: vec!["END".to_owned()],
        extra: vec![pair("user", r#""u-1""#), pair("store", "true")],
        stream: true,
        ..chat("")
    };
    let mut request = weir_sdk::testing::request(request);
    request.client.end_user = Some("u-1".to_owned());
    let sent = send::<Anthropic>(request, &[]).expect("a request that can be expressed");
    assert_eq!(
        sent.body,
        json!({
            "model": "model-1",
            "max_tokens": 4096,
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "What is this?",
                     "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                    {"type": "image",
                     "source": {"type": "base64", "media_type": "image/png", "data": "<0>"},
                     "cache_control": {"type": "ephemeral"}},
                    {"type": "document",
                     "source": {"type": "base64", "media_type": "application/pdf", "data": "<1>"},
                     "title": "A \"report\"", "context": "Of 2026", "citations": {"enabled": true}},
                ]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "a"}},
                    {"type": "tool_use", "id": "call_2", "name": "look", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "a cat"},
                    {"type": "tool_result", "tool_use_id": "call_2", "content": "no such file",
                     "is_error": true},
                    {"type": "text", "text": "The result of an earlier tool call:"},
                    {"type": "text", "text": "And now?"},
                ]},
            ],
            "tools": [{"name": "look", "input_schema": {"type": "object"},
                       "cache_control": {"type": "ephemeral"}}],
            "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": true},
            "output_config": {
                "effort": "high",
                "format": {"type": "json_schema", "schema": {"type": "object", "additionalProperties": false}},
            },
            "temperature": 1.0,
            "top_p": 0.5,
            "top_k": 40,
            "stop_sequences": ["END"],
            "metadata": {"user_id": "u-1"},
            "stream": true,
        })
    );
    assert_eq!(
        sent.ignored,
        [
            "store",
            "reasoning",
            "response_format.json_schema.name",
            "image_url.detail",
            "tool_call_id"
        ]
    );
}

#[test]
fn passes_on_what_a_client_of_the_same_dialect_wrote() {
    let mut spoken = user(vec![text("hello")]);
    spoken.parts[0].extra = vec![pair("citations", "[]")];
    let mut defined = function("look");
    defined.extra = vec![pair("defer_loading", "true")];
    let chat = ChatRequest {
        tools: vec![
            defined,
            tool(ToolKind::BuiltIn(BuiltInTool {
                kind: "web_search_20250305".to_owned(),
                name: Some("web_search".to_owned()),
                configuration: r#"{"max_uses":3,"user_location":{"city":"Bern"}}"#.to_owned(),
            })),
        ],
        extra: vec![
            pair("metadata", r#"{"user_id":"u"}"#),
            pair("cache_control", r#"{"type":"ephemeral"}"#),
            pair("context_management", r#"{"edits":[]}"#),
            pair(
                "output_config",
                r#"{"task_budget":{"type":"tokens","total":9}}"#,
            ),
            pair("novelty", "[1, 2]"),
        ],
        reasoning: ReasoningRequest {
            effort: Some(ReasoningEffort::Low),
            ..NO_REASONING
        },
        ..with_messages(vec![
            message(Role::System, vec![text("")]),
            spoken,
            assistant(vec![
                Content::Opaque(opaque(
                    "server_tool_use",
                    r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{"query": "a"}}"#,
                )),
                Content::Opaque(opaque(
                    "web_search_tool_result",
                    r#"{"type":"web_search_tool_result","tool_use_id":"s","content":[]}"#,
                )),
            ]),
            message(Role::System, vec![text("Be brief.")]),
        ])
    };
    let mut request = request_of_same_dialect::<Anthropic>(chat);
    request.client.headers = vec![
        pair("anthropic-version", "2024-01-01"),
        pair("anthropic-beta", "a-1, b-2"),
    ];
    request.client.end_user = Some("u".to_owned());
    let sent = send::<Anthropic>(request, &[pair("betas", "b-2,c-3")]).expect("a request");
    assert_eq!(
        sent.headers[1..],
        [
            pair("anthropic-version", "2024-01-01"),
            pair("anthropic-beta", "a-1,b-2,c-3")
        ]
    );
    assert_eq!(
        sent.body,
        json!({
            "model": "model-1",
            "max_tokens": 100,
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hello", "citations": []}]},
                {"role": "assistant", "content": [
                    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "a"}},
                    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                ]},
                {"role": "system", "content": "Be brief."},
            ],
            "tools": [
                {"name": "look", "input_schema": {"type": "object"}, "defer_loading": true},
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 3,
                 "user_location": {"city": "Bern"}},
            ],
            "output_config": {"effort": "low", "task_budget": {"type": "tokens", "total": 9}},
            "metadata": {"user_id": "u"},
            "cache_control": {"type": "ephemeral"},
            "context_management": {"edits": []},
            "novelty": [1, 2],
        })
    );
    assert_eq!(sent.ignored, [""; 0]);
}

/// The host decides about fields whose cost weir does not see.
#[test]
fn passes_every_field_of_its_own_dialect() {
    for name in ["speed", "inference_geo", "fallbacks", "thread", "container"] {
        let request = request_of_same_dialect::<Anthropic>(with_extra(name, "\"x\""));
        let sent = send::<Anthropic>(request, &[]).expect("a request");
        assert_eq!(sent.body[name], "x");
    }
}

#[test]
fn refuses_by_name_what_it_cannot_say() {
    for (chat, name) in [
        (
            ChatRequest {
                seed: Some(1),
                ..chat("")
            },
            "seed",
        ),
        (
            ChatRequest {
                presence_penalty: Some(0.1),
                ..chat("")
            },
            "presence_penalty",
        ),
        (
            ChatRequest {
                frequency_penalty: Some(0.1),
                ..chat("")
            },
            "frequency_penalty",
        ),
        (
            ChatRequest {
                modalities: vec!["audio".to_owned()],
                ..chat("")
            },
            "modalities",
        ),
        (with_extra("logit_bias", "{}"), "logit_bias"),
        (with_extra("speed", "\"fast\""), "speed"),
    ] {
        assert_eq!(refused_field::<Anthropic>(chat), name);
    }
    let twice = request_of_same_dialect::<Anthropic>(with_extra("max_tokens", "7"));
    let failure = send::<Anthropic>(twice, &[]).expect_err("a refusal");
    assert_eq!(failure.param.as_deref(), Some("max_tokens"));
    let built_in = tool(ToolKind::BuiltIn(BuiltInTool {
        kind: "web_search".to_owned(),
        name: None,
        configuration: "{}".to_owned(),
    }));
    let chat = ChatRequest {
        tools: vec![built_in],
        ..chat("")
    };
    assert_eq!(refused_field::<Anthropic>(chat), "tools[0]");
}

#[test]
fn refuses_messages_that_it_cannot_say() {
    refuses_message(user(vec![Content::Audio(Audio {
        source: Source::Attachment(2),
        format: None,
    })]));
    refuses_message(user(vec![call("c", "look", "{}")]));
    refuses_message(assistant(vec![remote_image()]));
    refuses_message(user(vec![image(Source::Attachment(9))]));
    refuses_message(user(vec![Content::File(File {
        media_type: Some("text/plain".to_owned()),
        ..file(Source::Attachment(1))
    })]));
    refuses_message(user(vec![Content::Opaque(opaque("x", "{}"))]));
    let mut marked = user(vec![text("hello")]);
    marked.parts[0].extra = vec![pair("x", "1")];
    assert_eq!(
        refused_field::<Anthropic>(with_messages(vec![marked])),
        "messages[0].x"
    );
}

#[test]
fn leaves_out_what_says_nothing() {
    let thought = reasoning("not signed by this one");
    let mut request = with_messages(vec![
        user(vec![text("")]),
        user(vec![text("a"), text("")]),
        assistant(vec![thought, text("b")]),
    ]);
    request.messages[1].parts[0].signature = Some("x".to_owned());
    let sent = sent(request);
    assert_eq!(
        sent.body["messages"],
        json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    );
    assert_eq!(sent.ignored, ["signature", "reasoning"]);
}

#[test]
fn writes_ids_as_the_upstream_takes_them() {
    let sent = messages(vec![
        user(vec![text("a")]),
        assistant(vec![call("functions.look:0|é", "look", "{}")]),
        message(
            Role::Tool,
            vec![result("functions.look:0|é", Vec::new(), false)],
        ),
    ]);
    let id = sent[1]["content"][0]["id"].as_str().expect("an id");
    assert!(id.starts_with("functions_look_0___"), "{id}");
    assert_eq!(sent[2]["content"][0]["tool_use_id"], id);
}

#[test]
fn shows_what_tools_saw_and_files_that_it_has() {
    let sent = sent(with_messages(vec![message(
        Role::Tool,
        vec![result(
            "c",
            vec![
                ToolContent::Image(Image {
                    source: Source::Attachment(0),
                    detail: None,
                }),
                ToolContent::File(file(Source::Id("file_1".to_owned()))),
            ],
            false,
        )],
    )]));
    assert_eq!(
        sent.body["messages"][0]["content"][0]["content"],
        json!([
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "<0>"}},
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        ])
    );
    assert_eq!(
        sent.headers[2],
        pair("anthropic-beta", "files-api-2025-04-14")
    );
}

#[test]
fn names_each_choice_of_tools() {
    let choice = |tool_choice, parallel_tool_calls| {
        let chat = ChatRequest {
            tools: vec![function("look"), function("wait")],
            tool_choice,
            parallel_tool_calls,
            ..chat("")
        };
        let mut body = body::<Anthropic>(chat);
        (
            body["tool_choice"].take(),
            body["tools"].as_array().map_or(0, Vec::len),
        )
    };
    let among = |required| {
        ToolChoice::Among(AllowedTools {
            names: vec!["wait".to_owned()],
            required,
        })
    };
    for (asked, parallel, written) in [
        (ToolChoice::Auto, None, (Value::Null, 2)),
        (ToolChoice::Auto, Some(true), (Value::Null, 2)),
        (
            ToolChoice::Auto,
            Some(false),
            (
                json!({"type": "auto", "disable_parallel_tool_use": true}),
                2,
            ),
        ),
        (ToolChoice::None, Some(false), (json!({"type": "none"}), 2)),
        (ToolChoice::Required, None, (json!({"type": "any"}), 2)),
        (
            ToolChoice::Named("look".to_owned()),
            None,
            (json!({"type": "tool", "name": "look"}), 2),
        ),
        (among(false), None, (Value::Null, 1)),
        (among(true), None, (json!({"type": "any"}), 1)),
    ] {
        assert_eq!(choice(asked, parallel), written);
    }
    let without = ChatRequest {
        tool_choice: ToolChoice::None,
        parallel_tool_calls: Some(false),
        ..chat("")
    };
    assert_eq!(body::<Anthropic>(without)["tool_choice"], Value::Null);
}

#[test]
fn makes_a_function_of_a_tool_that_takes_free_text() {
    let patch = tool(ToolKind::Custom(CustomTool {
        name: "patch".to_owned(),
        description: Some("Patches.".to_owned()),
        format: Some(r#"{"type":"grammar","syntax":"lark","definition":"start: X"}"#.to_owned()),
    }));
    let chat = ChatRequest {
        tools: vec![patch],
        ..with_messages(vec![assistant(vec![Content::ToolCall(ToolCall {
            id: "c".to_owned(),
            name: "patch".to_owned(),
            kind: CallKind::Custom,
            arguments: "*** \"Begin\"".to_owned(),
        })])])
    };
    let sent = sent(chat);
    assert_eq!(
        sent.body["tools"],
        json!([{
            "name": "patch",
            "description": "Patches.\n\nThe input must match this lark grammar:\nstart: X",
            "input_schema": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        }])
    );
    // The user speaks first.
    assert_eq!(
        sent.body["messages"][1]["content"][0]["input"],
        json!({"input": "*** \"Begin\""})
    );
    assert_eq!(sent.ignored, ["tools[0].format"]);
}

#[test]
fn asks_for_reasoning_as_the_model_takes_it() {
    let asked = |reasoning, options: &[Setting]| {
        let chat = ChatRequest {
            reasoning,
            max_output_tokens: 4000,
            ..chat("")
        };
        let mut sent = send::<Anthropic>(request(chat), options).expect("a request");
        (
            sent.body["thinking"].take(),
            sent.body["output_config"].take(),
        )
    };
    let effort = |effort| ReasoningRequest {
        effort: Some(effort),
        ..NO_REASONING
    };
    let adaptive = || json!({"type": "adaptive"});
    let budget = |tokens| json!({"type": "enabled", "budget_tokens": tokens});
    let [adaptively, with_budget, never] =
        ["adaptive", "budget", "none"].map(|form| [pair("thinking", form)]);
    assert_eq!(asked(NO_REASONING, &[]), (Value::Null, Value::Null));
    for (step, word, tokens) in [
        (ReasoningEffort::Minimal, "low", 1024),
        (ReasoningEffort::Low, "low", 1024),
        (ReasoningEffort::Medium, "medium", 2000),
        (ReasoningEffort::High, "high", 3200),
        (ReasoningEffort::Highest, "max", 3800),
    ] {
        let by_effort = (adaptive(), json!({"effort": word}));
        assert_eq!(asked(effort(step), &[]), by_effort);
        assert_eq!(asked(effort(step), &adaptively), by_effort);
        assert_eq!(
            asked(effort(step), &with_budget),
            (budget(tokens), Value::Null)
        );
        assert_eq!(asked(effort(step), &never), (Value::Null, Value::Null));
    }
    let in_tokens = || ReasoningRequest {
        budget_tokens: Some(1500),
        ..NO_REASONING
    };
    assert_eq!(asked(in_tokens(), &adaptively).0, adaptive());
    assert_eq!(asked(in_tokens(), &with_budget).0, budget(1500));
    assert_eq!(asked(in_tokens(), &never).0, Value::Null);
    let by_itself = || ReasoningRequest {
        adaptive: Some(true),
        ..NO_REASONING
    };
    assert_eq!(asked(by_itself(), &with_budget).0, budget(2000));
    assert_eq!(asked(effort(ReasoningEffort::Off), &never).0, Value::Null);
    let off = asked(effort(ReasoningEffort::Off), &[]);
    assert_eq!(off, (json!({"type": "disabled"}), Value::Null));
    let own = ReasoningRequest {
        effort: Some(ReasoningEffort::High),
        budget_tokens: Some(1500),
        summary: Some("omitted".to_owned()),
        adaptive: None,
    };
    assert_eq!(
        asked(own, &[]),
        (
            json!({"type": "enabled", "budget_tokens": 1500, "display": "omitted"}),
            json!({"effort": "high"})
        )
    );
    let shown = ReasoningRequest {
        summary: Some("detailed".to_owned()),
        adaptive: Some(true),
        ..NO_REASONING
    };
    assert_eq!(
        asked(shown, &[]).0,
        json!({"type": "adaptive", "display": "summarized"})
    );
}

#[test]
fn does_not_reason_without_room_for_a_budget() {
    let chat = ChatRequest {
        reasoning: ReasoningRequest {
            effort: Some(ReasoningEffort::Low),
            ..NO_REASONING
        },
        max_output_tokens: 1024,
        ..chat("hello")
    };
    let sent = send::<Anthropic>(request(chat), &[pair("thinking", "budget")]);
    let sent = sent.expect("a request");
    assert_eq!(sent.body.get("thinking"), None);
    assert_eq!(sent.ignored, ["reasoning"]);
}

#[test]
fn a_model_without_sampling_takes_only_the_defaults() {
    let sampled = |temperature, top_k| ChatRequest {
        temperature: Some(temperature),
        top_k,
        ..chat("hello")
    };
    let options = [pair("sampling", "false")];
    for (temperature, top_k, ignored) in [
        (1.0, None, &[][..]),
        (0.2, Some(4), &["temperature", "top_k"]),
    ] {
        let sent = send::<Anthropic>(request(sampled(temperature, top_k)), &options);
        let sent = sent.expect("a request");
        assert_eq!(sent.body.get("temperature"), None);
        assert_eq!(sent.body.get("top_k"), None);
        assert_eq!(sent.ignored, ignored);
    }
}

#[test]
fn asks_for_no_budget_behind_calls_without_signed_reasoning() {
    let replayed = |signature: Option<&str>| {
        let mut thought = part(reasoning("Hm."));
        thought.signature = signature.map(str::to_owned);
        let mut calling = assistant(vec![call("c", "look", "{}")]);
        calling.parts.insert(0, thought);
        let results = vec![result(
            "c",
            vec![ToolContent::Text("a cat".to_owned())],
            false,
        )];
        let chat = ChatRequest {
            reasoning: ReasoningRequest {
                effort: Some(ReasoningEffort::Low),
                ..NO_REASONING
            },
            max_output_tokens: 4000,
            ..with_messages(vec![
                message(Role::User, vec![text("Look!")]),
                calling,
                message(Role::Tool, results),
            ])
        };
        let options = [pair("thinking", "budget")];
        send::<Anthropic>(request(chat), &options).expect("a request")
    };
    let signed = replayed(Some("c2ln"));
    assert_eq!(signed.body["thinking"]["type"], "enabled");
    let unsigned = replayed(None);
    assert_eq!(unsigned.body["thinking"], Value::Null);
    assert_eq!(unsigned.ignored, ["reasoning"]);
}

#[test]
fn takes_effort_alone_as_its_own_clients_mean_it() {
    let effort = ReasoningRequest {
        effort: Some(ReasoningEffort::Medium),
        ..NO_REASONING
    };
    let sent = sent_in_same_dialect(ChatRequest {
        reasoning: effort,
        ..chat("")
    });
    assert_eq!(sent.body["thinking"], Value::Null);
    assert_eq!(sent.body["output_config"], json!({"effort": "medium"}));
    let off = ReasoningRequest {
        adaptive: Some(false),
        ..NO_REASONING
    };
    let sent = sent_in_same_dialect(ChatRequest {
        reasoning: off,
        ..chat("")
    });
    assert_eq!(sent.body["thinking"], json!({"type": "disabled"}));
}

#[test]
fn refuses_options_that_cannot_be() {
    for (name, value, why) in [
        ("thinking", "some", "must be auto, adaptive, budget or none"),
        ("betas", "a\nb", "must be names on one line"),
        ("pass-fields", "a\nb", "must be names on one line"),
        ("platform", "azure", "must be anthropic, vertex or bedrock"),
        ("novelty", "x", "is not an option of this adapter"),
    ] {
        let refused = Anthropic::configure(&[pair(name, value)]);
        assert_eq!(
            refused,
            Err(RefusedSetting {
                name: name.to_owned(),
                why: why.to_owned()
            })
        );
    }
}

#[test]
fn describes_where_the_key_goes() {
    let described = Anthropic::describe();
    assert_eq!(
        described.credential,
        weir_sdk::adapter::CredentialSlot::Header("x-api-key".to_owned())
    );
}
