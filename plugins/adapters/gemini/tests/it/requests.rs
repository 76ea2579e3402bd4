//! The requests to the upstream.

use serde_json::{Value, json};
use weir_adapter_gemini::translate::Gemini;
use weir_sdk::adapter::{CredentialSlot, Exchange};
use weir_sdk::chat::{
    AllowedTools, Audio, BuiltInTool, CacheLifetime, CallKind, ChatRequest, Content, CustomTool,
    File, FunctionTool, Image, JsonSchema, Message, ReasoningEffort, ReasoningRequest,
    ResponseFormat, Role, Source, ToolCall, ToolChoice, ToolContent, ToolKind,
};
use weir_sdk::testing::{
    NO_REASONING, SentRequest, body, call, chat, file, function, image, message, pair, part,
    reasoning, refused_field, remote_image, request, request_of_same_dialect, result, send, text,
    tool, with_messages,
};

fn sent(chat: ChatRequest) -> SentRequest {
    send::<Gemini>(request(chat), &[]).expect("a request that can be expressed")
}

fn user(contents: Vec<Content>) -> Message {
    message(Role::User, contents)
}

fn assistant(contents: Vec<Content>) -> Message {
    message(Role::Assistant, contents)
}

fn said(text: &str) -> ToolContent {
    ToolContent::Text(text.to_owned())
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
            name: Some("report.pdf".to_owned()),
            media_type: Some("application/pdf".to_owned()),
            ..file(Source::Attachment(1))
        }),
        Content::Audio(Audio {
            source: Source::Attachment(2),
            format: None,
        }),
    ]);
    looked.parts[0].cache = Some(CacheLifetime::Long);
    let mut thought = part(reasoning("hm"));
    thought.signature = Some("c2ln".to_owned());
    let mut called = part(call("call_1", "look", r#"{"at": "a"}"#));
    called.signature = Some("c2lnMg==".to_owned());
    let mut answered = assistant(vec![text("Let me look."), call("gemini_r1_1", "wait", "")]);
    answered.parts.insert(0, thought);
    answered.parts.insert(2, called);
    let request = ChatRequest {
        messages: vec![
            message(Role::System, vec![text("Be brief.")]),
            message(Role::System, vec![text("Be kind.")]),
            looked,
            answered,
            message(
                Role::Tool,
                vec![result("call_1", vec![said("a"), said("cat")], false)],
            ),
            message(
                Role::Tool,
                vec![result("gemini_r1_1", vec![said("no")], true)],
            ),
            user(vec![text("And now?")]),
        ],
        tools: vec![tool(ToolKind::Function(FunctionTool {
            name: "look".to_owned(),
            description: Some("Looks.".to_owned()),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            strict: Some(true),
        }))],
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
        modalities: vec!["text".to_owned(), "image".to_owned()],
        max_output_tokens: 4096,
        temperature: Some(0.5),
        top_p: Some(1.0),
        top_k: Some(40),
        presence_penalty: Some(-1.0),
        frequency_penalty: Some(2.0),
        seed: Some(-7),
        stop: vec!["END".to_owned()],
        extra: vec![pair("user", "\"u\"")],
        ..chat("")
    };
    let sent = sent(request);
    assert_eq!(
        sent.body,
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
            "contents": [
                {"role": "user", "parts": [
                    {"text": "What is this?"},
                    {"fileData": {"mimeType": "image/png", "fileUri": "https://example.com/a.png"}},
                    {"inlineData": {"mimeType": "image/png", "data": "<0>"}},
                    {"inlineData": {"mimeType": "application/pdf", "data": "<1>"}},
                    {"inlineData": {"mimeType": "audio/wav", "data": "<2>"}},
                ]},
                {"role": "model", "parts": [
                    {"text": "hm", "thought": true, "thoughtSignature": "c2ln"},
                    {"text": "Let me look."},
                    {"functionCall": {"id": "call_1", "name": "look", "args": {"at": "a"}},
                     "thoughtSignature": "c2lnMg=="},
                    {"functionCall": {"name": "wait", "args": {}}},
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": "call_1", "name": "look", "response": {"output": "a\ncat"}}},
                    {"functionResponse": {"name": "wait", "response": {"error": "no"}}},
                    {"text": "And now?"},
                ]},
            ],
            "tools": [{"functionDeclarations": [{
                "name": "look", "description": "Looks.", "parametersJsonSchema": {"type": "object"},
            }]}],
            "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}},
            "generationConfig": {
                "maxOutputTokens": 4096,
                "temperature": 0.5,
                "topP": 1.0,
                "topK": 40,
                "presencePenalty": -1.0,
                "frequencyPenalty": 2.0,
                "seed": -7,
                "stopSequences": ["END"],
                "responseModalities": ["TEXT", "IMAGE"],
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "object"},
                "thinkingConfig": {"thinkingLevel": "high", "includeThoughts": true},
            },
        })
    );
    assert_eq!(
        sent.ignored,
        [
            "user",
            "cache_control",
            "image_url.detail",
            "file.filename",
            "parallel_tool_calls",
            "response_format.json_schema.name"
        ]
    );
}

#[test]
fn refuses_by_name_what_it_cannot_say() {
    let extra = ChatRequest {
        extra: vec![pair("logit_bias", "{}")],
        ..chat("")
    };
    for (chat, name) in [
        (extra, "logit_bias"),
        (
            ChatRequest {
                seed: Some(1 << 40),
                ..chat("")
            },
            "seed",
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
                model: "a/../b".to_owned(),
                ..chat("")
            },
            "model",
        ),
        (
            ChatRequest {
                tools: vec![tool(ToolKind::BuiltIn(BuiltInTool {
                    kind: "web_search".to_owned(),
                    name: None,
                    configuration: "{}".to_owned(),
                }))],
                ..chat("")
            },
            "tools[0]",
        ),
    ] {
        assert_eq!(refused_field::<Gemini>(chat), name);
    }
}

#[test]
fn refuses_messages_that_it_cannot_say() {
    let cited = File {
        cite: Some(true),
        ..file(Source::Attachment(1))
    };
    for message in [
        user(vec![call("c", "look", "{}")]),
        user(vec![image(Source::Attachment(9))]),
        user(vec![Content::File(cited)]),
        assistant(vec![remote_image()]),
    ] {
        assert_eq!(
            refused_field::<Gemini>(with_messages(vec![message])),
            "messages[0]"
        );
    }
}

#[test]
fn marks_calls_that_nobody_signed() {
    let calls = || {
        vec![assistant(vec![
            call("a", "look", "{}"),
            call("b", "look", "{}"),
        ])]
    };
    let signature = |model: &str| {
        let chat = ChatRequest {
            model: model.to_owned(),
            ..with_messages(calls())
        };
        let mut body = body::<Gemini>(chat);
        // The user speaks first.
        let parts = &mut body["contents"][1]["parts"];
        assert_eq!(parts[1]["thoughtSignature"], Value::Null);
        parts[0]["thoughtSignature"].take()
    };
    assert_eq!(
        signature("gemini-3-flash"),
        "skip_thought_signature_validator"
    );
    assert_eq!(signature("gemini-2.5-pro"), Value::Null);
}

#[test]
fn names_each_choice_of_tools() {
    let among = |required| {
        ToolChoice::Among(AllowedTools {
            names: vec!["wait".to_owned()],
            required,
        })
    };
    let any = |names: &[&str]| json!({"mode": "ANY", "allowedFunctionNames": names});
    for (tool_choice, config, shown) in [
        (ToolChoice::Auto, Value::Null, 2),
        (ToolChoice::None, json!({"mode": "NONE"}), 2),
        (ToolChoice::Required, json!({"mode": "ANY"}), 2),
        (ToolChoice::Named("look".to_owned()), any(&["look"]), 2),
        (among(true), any(&["wait"]), 2),
        (among(false), Value::Null, 1),
    ] {
        let chat = ChatRequest {
            tools: vec![function("look"), function("wait")],
            tool_choice,
            ..chat("")
        };
        let body = body::<Gemini>(chat);
        assert_eq!(body["toolConfig"]["functionCallingConfig"], config);
        let declared = body["tools"][0]["functionDeclarations"].as_array();
        assert_eq!(declared.map_or(0, Vec::len), shown);
    }
    let without = body::<Gemini>(ChatRequest {
        tool_choice: ToolChoice::None,
        ..chat("")
    });
    assert_eq!(
        (&without["tools"], &without["toolConfig"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn makes_a_function_of_a_tool_that_takes_free_text() {
    let chat = ChatRequest {
        tools: vec![tool(ToolKind::Custom(CustomTool {
            name: "patch".to_owned(),
            description: Some("Patches.".to_owned()),
            format: None,
        }))],
        ..with_messages(vec![assistant(vec![Content::ToolCall(ToolCall {
            id: "c".to_owned(),
            name: "patch".to_owned(),
            kind: CallKind::Custom,
            arguments: "*** \"Begin\"".to_owned(),
        })])])
    };
    let body = body::<Gemini>(chat);
    assert_eq!(
        body["tools"][0]["functionDeclarations"][0],
        json!({
            "name": "patch", "description": "Patches.",
            "parametersJsonSchema": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        })
    );
    assert_eq!(
        body["contents"][1]["parts"][0]["functionCall"]["args"],
        json!({"input": "*** \"Begin\""})
    );
}

#[test]
fn asks_for_reasoning_as_the_model_takes_it() {
    let asked = |model: &str, reasoning| {
        let chat = ChatRequest {
            model: model.to_owned(),
            reasoning,
            ..chat("")
        };
        body::<Gemini>(chat)["generationConfig"]["thinkingConfig"].take()
    };
    let effort = |effort| ReasoningRequest {
        effort: Some(effort),
        ..NO_REASONING
    };
    assert_eq!(asked("gemini-3-pro", NO_REASONING), Value::Null);
    for (step, level, budget) in [
        (ReasoningEffort::Minimal, "minimal", 1024),
        (ReasoningEffort::Low, "low", 1024),
        (ReasoningEffort::Medium, "medium", 8192),
        (ReasoningEffort::High, "high", 24_576),
        (ReasoningEffort::Highest, "high", 24_576),
    ] {
        assert_eq!(
            asked("gemini-3-flash", effort(step)),
            json!({"thinkingLevel": level, "includeThoughts": true})
        );
        assert_eq!(
            asked("gemini-2.5-flash", effort(step)),
            json!({"thinkingBudget": budget, "includeThoughts": true})
        );
    }
    // These models always reason.
    assert_eq!(
        asked("gemini-3-pro", effort(ReasoningEffort::Minimal)),
        json!({"thinkingLevel": "low", "includeThoughts": true})
    );
    assert_eq!(
        asked("gemini-2.5-pro", effort(ReasoningEffort::Off)),
        json!({"thinkingBudget": 128})
    );
    let off = effort(ReasoningEffort::Off);
    assert_eq!(
        asked("gemini-2.5-flash", off.clone()),
        json!({"thinkingBudget": 0})
    );
    assert_eq!(
        asked("gemini-3-flash", off),
        json!({"thinkingLevel": "minimal"})
    );
    let budget = ReasoningRequest {
        effort: Some(ReasoningEffort::Low),
        budget_tokens: Some(2000),
        summary: Some("omitted".to_owned()),
        adaptive: None,
    };
    assert_eq!(
        asked("gemini-3-flash", budget),
        json!({"thinkingBudget": 2000})
    );
    let adaptive = |adaptive| ReasoningRequest {
        adaptive: Some(adaptive),
        ..NO_REASONING
    };
    assert_eq!(
        asked("gemini-2.5-pro", adaptive(true)),
        json!({"thinkingBudget": -1, "includeThoughts": true})
    );
    assert_eq!(
        asked("gemini-2.5-flash", adaptive(false)),
        json!({"thinkingBudget": 0})
    );
}

#[test]
fn describes_where_the_key_goes() {
    let described = Gemini::describe();
    assert_eq!(
        described.credential,
        CredentialSlot::Header("x-goog-api-key".to_owned())
    );
}

#[test]
fn sends_what_a_client_of_this_dialect_wrote() {
    let mut look = function("look");
    look.extra = vec![pair("responseJsonSchema", r#"{"type":"string"}"#)];
    let chat = ChatRequest {
        model: "gemini-2.5-flash".to_owned(),
        tools: vec![look],
        extra: vec![
            pair("safetySettings", "[]"),
            pair("labels", r#"{"a":"b"}"#),
            pair("serviceTier", "\"flex\""),
        ],
        reasoning: ReasoningRequest {
            budget_tokens: Some(2000),
            ..NO_REASONING
        },
        ..with_messages(vec![
            user(vec![Content::Text("Look.".to_owned())]),
            assistant(vec![call("c", "look", "{}"), call("d", "look", "{}")]),
            message(
                Role::Tool,
                vec![
                    result("c", vec![said(r#"{"result": 5}"#)], false),
                    result("d", vec![said("plain")], true),
                ],
            ),
        ])
    };
    let theirs = send::<Gemini>(request_of_same_dialect::<Gemini>(chat.clone()), &[]);
    let theirs = theirs.expect("a request that can be expressed");
    assert_eq!(theirs.body["safetySettings"], json!([]));
    assert_eq!(theirs.body["labels"], json!({"a": "b"}));
    assert_eq!(theirs.body["serviceTier"], Value::Null);
    assert_eq!(theirs.ignored, ["serviceTier"]);
    let declared = &theirs.body["tools"][0]["functionDeclarations"][0];
    assert_eq!(declared["responseJsonSchema"], json!({"type": "string"}));
    let results = &theirs.body["contents"][2]["parts"];
    assert_eq!(
        results[0]["functionResponse"]["response"],
        json!({"result": 5})
    );
    assert_eq!(
        results[1]["functionResponse"]["response"],
        json!({"error": "plain"})
    );
    // Google shows reasoning only on request.
    let thinking = &theirs.body["generationConfig"]["thinkingConfig"];
    assert_eq!(thinking, &json!({"thinkingBudget": 2000}));

    let others = sent(chat);
    assert_eq!(others.body["safetySettings"], Value::Null);
    assert_eq!(
        others.ignored,
        [
            "safetySettings",
            "labels",
            "serviceTier",
            "responseJsonSchema"
        ]
    );
    let results = &others.body["contents"][2]["parts"];
    assert_eq!(
        results[0]["functionResponse"]["response"],
        json!({"output": "{\"result\": 5}"})
    );

    let priced = with_messages(vec![user(vec![Content::Text("Hi".to_owned())])]);
    let priced = ChatRequest {
        extra: vec![pair("cachedContent", "\"cachedContents/a\"")],
        ..priced
    };
    let refused = send::<Gemini>(request_of_same_dialect::<Gemini>(priced), &[]);
    let refused = refused.expect_err("its price is unknown");
    assert_eq!(refused.param.as_deref(), Some("cachedContent"));
}
