//! The events of responses that no recording has.

use serde_json::json;
use weir_adapter_bedrock::translate::Bedrock;
use weir_sdk::adapter::FailureKind;
use weir_sdk::chat::{ChatRequest, CustomTool, ToolKind};
use weir_sdk::testing::{
    AWS_STREAM, JSON, aws_message, fails, lines, read, receive, streamed, tool,
};

fn event(name: &str, payload: &str) -> Vec<u8> {
    let headers = [(":event-type", name), (":message-type", "event")];
    aws_message(&headers, payload.as_bytes())
}

/// A client with a tool that takes free text.
fn with_custom_tool() -> ChatRequest {
    ChatRequest {
        tools: vec![tool(ToolKind::Custom(CustomTool {
            name: "patch".to_owned(),
            description: None,
            format: None,
        }))],
        ..streamed("")
    }
}

#[test]
fn reads_free_text_out_of_a_functions_input() {
    let input = r#"{"input":"*** \"Begin\""}"#;
    let call = json!({ "toolUseId": "t1", "name": "patch" });
    let (first, second) = input.split_at(12);
    let delta = |piece: &str| {
        let delta = json!({ "contentBlockIndex": 0, "delta": { "toolUse": { "input": piece } } });
        event("contentBlockDelta", &delta.to_string())
    };
    let start = json!({ "contentBlockIndex": 0, "start": { "toolUse": call } });
    let stream = [
        event("contentBlockStart", &start.to_string()),
        delta(first),
        delta(second),
        event("messageStop", r#"{"stopReason":"tool_use"}"#),
    ]
    .concat();
    let mut whole = call.clone();
    whole["input"] = serde_json::from_str(input).expect("JSON");
    let whole = json!({
        "output": { "message": { "content": [{ "toolUse": whole }] } }, "stopReason": "tool_use",
    });
    let whole = whole.to_string();
    for (headers, body) in [(AWS_STREAM, &stream[..]), (JSON, whole.as_bytes())] {
        let (events, result) = receive::<Bedrock>(with_custom_tool(), 200, headers, [body]);
        assert_eq!(result, Ok(()));
        let lines = lines(&events);
        assert!(lines.contains(&"0: *** \"Begin\"".to_owned()), "{lines:?}");
    }
}

#[test]
fn a_block_that_changes_its_kind_is_two() {
    let delta = |delta: serde_json::Value| {
        let payload = json!({ "contentBlockIndex": 0, "delta": delta });
        event("contentBlockDelta", &payload.to_string())
    };
    let stream = [
        delta(json!({ "reasoningContent": { "text": "Hm." } })),
        delta(json!({ "text": "So" })),
        event("messageStop", r#"{"stopReason":"end_turn"}"#),
    ]
    .concat();
    let (events, result) = receive::<Bedrock>(streamed(""), 200, AWS_STREAM, [&stream[..]]);
    assert_eq!(result, Ok(()));
    assert_eq!(
        lines(&events),
        [
            "0 reasoning",
            "0: Hm.",
            "0 ends",
            "1 text",
            "1: So",
            "1 ends",
            "finish Stop"
        ]
    );
}

#[test]
fn an_unreadable_count_or_source_costs_nothing_else() {
    let whole = |usage: &str| {
        format!(
            r#"{{"output":{{"message":{{"content":[{{"text":"So"}}]}}}},"stopReason":"end_turn","usage":{usage}}}"#
        )
    };
    for usage in [r#"{"inputTokens":"3","outputTokens":-1}"#, "[]", "null"] {
        assert_eq!(
            read::<Bedrock>(JSON, &whole(usage)),
            ["0 text", "0: So", "0 ends", "finish Stop"],
            "{usage}"
        );
    }
    let cited = r#"{"output":{"message":{"content":[{"citationsContent":{"content":[{"text":"So"}],"citations":[1]}}]}}}"#;
    assert_eq!(
        read::<Bedrock>(JSON, cited),
        ["0 text", "0: So", "0 ends", "finish Stop"]
    );
}

#[test]
fn calls_nonsense_malformed() {
    for answer in [
        "",
        "[]",
        "{}",
        r#"{"output":{}}"#,
        r#"{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}"#,
        r#"{"output":{"message":{"content":[{"toolUse":{"toolUseId":"t"}}]}}}"#,
    ] {
        let (_, failure) = fails::<Bedrock>(JSON, answer);
        assert_eq!(failure.kind, FailureKind::Malformed, "{answer}");
    }
    for stream in [
        event("contentBlockDelta", "{"),
        event(
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{"}}}"#,
        ),
        event(
            "contentBlockStart",
            r#"{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"t"}}}"#,
        ),
        Vec::new(),
    ] {
        let (_, result) = receive::<Bedrock>(streamed(""), 200, AWS_STREAM, [&stream[..]]);
        assert_eq!(result.expect_err("a failure").kind, FailureKind::Malformed);
    }
    let page = &[("content-type", "text/html")];
    let (_, failure) = fails::<Bedrock>(page, "<html>");
    assert_eq!(failure.kind, FailureKind::Malformed);
}

#[test]
fn bounds_what_a_stream_may_open_and_hold() {
    let mut stream = Vec::new();
    for index in 0..65 {
        let start = json!({ "contentBlockIndex": index, "start": { "toolUse": { "toolUseId": "t", "name": "look" } } });
        stream.extend(event("contentBlockStart", &start.to_string()));
    }
    let (_, result) = receive::<Bedrock>(streamed(""), 200, AWS_STREAM, [&stream[..]]);
    let failure = result.expect_err("a failure");
    assert!(failure.text.contains("64 blocks"), "{}", failure.text);
}

/// Values of other types than usual, and halves of characters, cost nothing else of an answer.
#[test]
fn survives_odd_values() {
    let stream = [
        event("novelty", r#"{"x":1}"#),
        event(
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"text":"So\ud83e"}}"#,
        ),
        event(
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"text":{"x":1}}}"#,
        ),
        event(
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"text":"\uddab!"}}"#,
        ),
        event("messageStop", r#"{"stopReason":"end_turn"}"#),
    ]
    .concat();
    let (events, result) = receive::<Bedrock>(streamed(""), 200, AWS_STREAM, [&stream[..]]);
    assert_eq!(result, Ok(()));
    let lines = lines(&events);
    let said: String = lines
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(_, text)| text)
        .collect();
    assert_eq!(said, "So🦫!", "{lines:?}");
}
