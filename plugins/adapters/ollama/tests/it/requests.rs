//! The requests to the upstream.

use serde_json::{Value, json};
use weir_adapter_ollama::translate::Ollama;
use weir_sdk::adapter::{CredentialSlot, Exchange, RefusedSetting};
use weir_sdk::chat::{
    AllowedTools, Audio, BuiltInTool, CallKind, ChatRequest, Content, CustomTool, FunctionTool,
    JsonSchema, ReasoningEffort, ReasoningRequest, ResponseFormat, Role, Source, ToolCall,
    ToolChoice, ToolContent, ToolKind,
};
use weir_sdk::testing::{
    NO_REASONING, body, call, chat, file, function, image, message, pair, reasoning, refused_field,
    remote_image, result, send, text, tool, with_messages,
};

fn said(text: &str) -> ToolContent {
    ToolContent::Text(text.to_owned())
}

#[test]
fn sends_all_that_a_request_can_say() {
    let request = ChatRequest {
        messages: vec![
            message(Role::System, vec![text("Be brief."), text("Be kind.")]),
            message(
                Role::User,
                vec![text("What is this?"), image(Source::Attachment(0))],
            ),
            message(
                Role::Assistant,
                vec![
                    reasoning("hm"),
                    text("Let me look."),
                    call("call_1", "look", r#"{"at": "a"}"#),
                    call("call_2", "look", ""),
                ],
            ),
            message(
                Role::Tool,
                vec![
                    result("call_1", vec![said("a"), said("cat")], false),
                    result("call_2", vec![said("no such file")], true),
                ],
            ),
        ],
        tools: vec![tool(ToolKind::Function(FunctionTool {
            name: "look".to_owned(),
            description: Some("Looks.".to_owned()),
            input_schema: r#"{"type": "object"}"#.to_owned(),
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
            budget_tokens: Some(9),
            ..NO_REASONING
        },
        max_output_tokens: 4096,
        temperature: Some(0.5),
        top_p: Some(1.0),
        top_k: Some(40),
        presence_penalty: Some(-1.0),
        frequency_penalty: Some(2.0),
        seed: Some(-7),
        stop: vec!["END".to_owned()],
        extra: vec![pair("user", "\"u\"")],
        stream: true,
        ..chat("")
    };
    let request = weir_sdk::testing::request(request);
    let sent = send::<Ollama>(request, &[pair("context-tokens", "32768")]).expect("a request");
    assert_eq!(
        sent.body,
        json!({
            "model": "model-1",
            "messages": [
                {"role": "system", "content": "Be brief.\nBe kind."},
                {"role": "user", "content": "What is this?", "images": ["<0>"]},
                {"role": "assistant", "content": "Let me look.", "thinking": "hm", "tool_calls": [
                    {"id": "call_1", "function": {"name": "look", "arguments": {"at": "a"}}},
                    {"id": "call_2", "function": {"name": "look", "arguments": {}}},
                ]},
                {"role": "tool", "content": "a\ncat", "tool_call_id": "call_1"},
                {"role": "tool", "content": "The tool failed.\nno such file", "tool_call_id": "call_2"},
            ],
            "tools": [{"type": "function", "function": {
                "name": "look", "description": "Looks.", "parameters": {"type": "object"},
            }}],
            "format": {"type": "object"},
            "think": true,
            "stream": true,
            "truncate": false,
            "shift": false,
            "options": {
                "num_predict": 4096,
                "num_ctx": 32768,
                "temperature": 0.5,
                "top_p": 1.0,
                "top_k": 40,
                "presence_penalty": -1.0,
                "frequency_penalty": 2.0,
                "seed": -7,
                "stop": ["END"],
            },
        })
    );
    assert_eq!(
        sent.ignored,
        [
            "tools[0].strict",
            "parallel_tool_calls",
            "response_format.json_schema.name",
            "reasoning.budget_tokens",
            "user"
        ]
    );
}

#[test]
fn refuses_by_name_what_it_cannot_say() {
    let with_choice = |tool_choice| ChatRequest {
        tools: vec![function("look")],
        tool_choice,
        ..chat("")
    };
    let among = AllowedTools {
        names: vec!["look".to_owned()],
        required: true,
    };
    let built_in = tool(ToolKind::BuiltIn(BuiltInTool {
        kind: "web_search".to_owned(),
        name: None,
        configuration: "{}".to_owned(),
    }));
    for (chat, name) in [
        (with_choice(ToolChoice::Required), "tool_choice"),
        (
            with_choice(ToolChoice::Named("look".to_owned())),
            "tool_choice",
        ),
        (with_choice(ToolChoice::Among(among)), "tool_choice"),
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
    ] {
        assert_eq!(refused_field::<Ollama>(chat), name);
    }
}

#[test]
fn refuses_messages_that_it_cannot_say() {
    let audio = Audio {
        source: Source::Attachment(2),
        format: None,
    };
    for message in [
        message(Role::User, vec![remote_image()]),
        message(Role::User, vec![image(Source::Attachment(9))]),
        message(Role::User, vec![Content::File(file(Source::Attachment(1)))]),
        message(Role::User, vec![Content::Audio(audio)]),
        message(Role::User, vec![call("c", "look", "{}")]),
    ] {
        assert_eq!(
            refused_field::<Ollama>(with_messages(vec![message])),
            "messages[0]"
        );
    }
}

#[test]
fn shows_the_tools_that_may_be_called() {
    let shown = |tool_choice| {
        let chat = ChatRequest {
            tools: vec![function("look"), function("wait")],
            tool_choice,
            ..chat("")
        };
        body::<Ollama>(chat)["tools"].as_array().map_or(0, Vec::len)
    };
    let names = vec!["wait".to_owned()];
    assert_eq!(shown(ToolChoice::Auto), 2);
    assert_eq!(shown(ToolChoice::None), 0);
    assert_eq!(
        shown(ToolChoice::Among(AllowedTools {
            names,
            required: false
        })),
        1
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
        ..with_messages(vec![message(
            Role::Assistant,
            vec![Content::ToolCall(ToolCall {
                id: "c".to_owned(),
                name: "patch".to_owned(),
                kind: CallKind::Custom,
                arguments: "*** \"Begin\"".to_owned(),
            })],
        )])
    };
    let body = body::<Ollama>(chat);
    assert_eq!(
        body["tools"][0]["function"],
        json!({
            "name": "patch", "description": "Patches.",
            "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        })
    );
    let called = &body["messages"][0]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(called, &json!({"input": "*** \"Begin\""}));
}

#[test]
fn asks_for_reasoning_as_the_model_takes_it() {
    let asked = |model: &str, reasoning| {
        let chat = ChatRequest {
            model: model.to_owned(),
            reasoning,
            ..chat("")
        };
        body::<Ollama>(chat)["think"].take()
    };
    let effort = |effort| ReasoningRequest {
        effort: Some(effort),
        ..NO_REASONING
    };
    assert_eq!(asked("qwen3", NO_REASONING), Value::Null);
    for (step, switch, level) in [
        (ReasoningEffort::Off, false, json!(false)),
        (ReasoningEffort::Minimal, true, json!("low")),
        (ReasoningEffort::Low, true, json!("low")),
        (ReasoningEffort::Medium, true, json!("medium")),
        (ReasoningEffort::Highest, true, json!("high")),
    ] {
        assert_eq!(asked("qwen3", effort(step)), json!(switch));
        assert_eq!(asked("gpt-oss:20b", effort(step)), level);
    }
    let adaptive = ReasoningRequest {
        adaptive: Some(false),
        ..NO_REASONING
    };
    assert_eq!(asked("qwen3", adaptive), json!(false));
    let budget = ReasoningRequest {
        budget_tokens: Some(2000),
        ..NO_REASONING
    };
    assert_eq!(asked("qwen3", budget), json!(true));
}

#[test]
fn refuses_options_that_cannot_be() {
    for (name, value, why) in [
        (
            "context-tokens",
            "many",
            "must be a number of tokens, at least 1",
        ),
        (
            "context-tokens",
            "0",
            "must be a number of tokens, at least 1",
        ),
        ("novelty", "1", "is not an option of this adapter"),
    ] {
        let refused = Ollama::configure(&[pair(name, value)]);
        let (name, why) = (name.to_owned(), why.to_owned());
        assert_eq!(refused, Err(RefusedSetting { name, why }));
    }
}

#[test]
fn describes_where_the_key_goes() {
    assert_eq!(Ollama::describe().credential, CredentialSlot::Bearer);
}
