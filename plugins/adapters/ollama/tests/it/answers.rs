//! The events of responses, non-streamed and streamed, and the failures of error responses.

use weir_adapter_ollama::translate::Ollama;
use weir_sdk::adapter::FailureKind;
use weir_sdk::chat::{ChatRequest, CustomTool, ToolKind};
use weir_sdk::testing::{
    JSON, check_every_cut, check_every_truncation, check_mutations, fails, failure, lines, read,
    receive, streamed, tool,
};

const LINES: &[(&str, &str)] = &[("content-type", "application/x-ndjson")];

const STREAM: &str = r#"{"model":"qwen3","created_at":"2025-06-09T17:58:55.33Z","message":{"role":"assistant","content":"","thinking":"Grö"},"done":false}
{"model":"qwen3","created_at":"2025-06-09T17:58:56.33Z","message":{"role":"assistant","content":"","thinking":"ße?"},"done":false}

{"model":"qwen3","created_at":"2025-06-09T17:58:57.33Z","message":{"role":"assistant","content":"Ein "},"done":false}
{"model":"qwen3","created_at":"2025-06-09T17:58:57.33Z","message":{"role":"assistant","content":"🦫."},"done":false}
{"model":"qwen3","created_at":"2025-06-09T17:58:58.33Z","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"look","arguments":{"at": "🦫"}}},{"id":"call_7","function":{"index":1,"name":"wait","arguments":{}}}]},"done":false}
{"model":"qwen3","created_at":"2025-06-09T17:58:59.33Z","message":{"role":"assistant","content":""},"done_reason":"stop","done":true,"total_duration":1,"prompt_eval_count":218,"eval_count":306}
"#;

const WHOLE: &str = r#"{"model":"qwen3","created_at":"2025-06-09T17:58:55.33Z",
    "message":{"role":"assistant","thinking":"Größe?","content":"Ein 🦫.",
    "tool_calls":[{"function":{"name":"look","arguments":{"at": "🦫"}}},{"id":"call_7","function":{"name":"wait","arguments":null}}]},
    "done_reason":"stop","done":true,"prompt_eval_count":218,"eval_count":306}"#;

const ANSWER: [&str; 15] = [
    "started - qwen3",
    "0 reasoning",
    "0: Größe?",
    "0 ends",
    "1 text",
    "1: Ein 🦫.",
    "1 ends",
    "2 call call_2025060917585533_0 look",
    r#"2: {"at": "🦫"}"#,
    "2 ends",
    "3 call call_7 wait",
    "3: {}",
    "3 ends",
    "usage in=218 out=306",
    "finish ToolCalls",
];

fn whole(message: &str, end: &str) -> String {
    format!(r#"{{"message":{message},{end}}}"#)
}

#[test]
fn gives_the_same_events_whole_and_streamed_and_wherever_it_is_cut() {
    assert_eq!(read::<Ollama>(LINES, STREAM), ANSWER);
    // With the media type of a non-streamed response, and without one.
    assert_eq!(read::<Ollama>(JSON, STREAM), ANSWER);
    assert_eq!(read::<Ollama>(&[], STREAM), ANSWER);
    assert_eq!(read::<Ollama>(JSON, WHOLE), ANSWER);
    check_every_cut::<Ollama>(LINES, STREAM);
    check_every_cut::<Ollama>(JSON, WHOLE);
}

#[test]
fn takes_no_beginning_for_the_whole() {
    check_every_truncation::<Ollama>(LINES, STREAM, "\"eval_count\":306}");
    check_every_truncation::<Ollama>(JSON, STREAM, "\"eval_count\":306}");
    check_every_truncation::<Ollama>(JSON, WHOLE, "}");
}

#[test]
fn survives_any_bytes() {
    check_mutations::<Ollama>(LINES, &[STREAM]);
    check_mutations::<Ollama>(JSON, &[WHOLE, STREAM]);
}

#[test]
fn names_every_reason_to_finish() {
    for (end, finish) in [
        (r#""done":true"#, "finish Stop"),
        (r#""done":true,"done_reason":"stop""#, "finish Stop"),
        (r#""done":true,"done_reason":"load""#, "finish Stop"),
        (r#""done":true,"done_reason":"length""#, "finish Length"),
        (
            r#""done":true,"done_reason":"tired""#,
            "finish Other(\"tired\")",
        ),
    ] {
        let lines = read::<Ollama>(JSON, &whole(r#"{"content":"a"}"#, end));
        assert_eq!(lines, ["0 text", "0: a", "0 ends", finish]);
    }
}

#[test]
fn reads_arguments_in_a_text() {
    let call = r#"{"tool_calls":[{"function":{"name":"look","arguments":"{\"at\":1}"}},{"function":{"name":"wait","arguments":""}}]}"#;
    assert_eq!(
        read::<Ollama>(JSON, &whole(call, r#""done":true"#)),
        [
            "0 call call__0 look",
            "0: {\"at\":1}",
            "0 ends",
            "1 call call__1 wait",
            "1: {}",
            "1 ends",
            "finish ToolCalls"
        ]
    );
}

#[test]
fn reads_free_text_out_of_a_functions_input() {
    let chat = ChatRequest {
        tools: vec![tool(ToolKind::Custom(CustomTool {
            name: "patch".to_owned(),
            description: None,
            format: None,
        }))],
        ..streamed("")
    };
    let call = r#"{"tool_calls":[{"id":"c","function":{"name":"patch","arguments":{"input":"*** Begin"}}}]}"#;
    let answer = whole(call, r#""done":true"#);
    let (events, result) = receive::<Ollama>(chat, 200, JSON, [answer.as_bytes()]);
    assert_eq!(result, Ok(()));
    assert_eq!(
        lines(&events)[..2],
        ["0 call c patch with free text", "0: *** Begin"]
    );
}

#[test]
fn tells_refusals_apart() {
    for (status, body, kind, text) in [
        (
            400,
            r#"{"error":"gemma:2b does not support tools"}"#,
            FailureKind::Rejected,
            "gemma:2b does not support tools",
        ),
        (
            404,
            r#"{"error":"model 'x' not found"}"#,
            FailureKind::ModelNotFound,
            "model 'x' not found",
        ),
        (
            400,
            r#"{"error":"{\"error\":{\"code\":400,\"message\":\"request (9 tokens) exceeds the available context size (8 tokens)\"}}"}"#,
            FailureKind::ContextLength,
            "request (9 tokens) exceeds the available context size (8 tokens)",
        ),
        (
            400,
            r#"{"error":{"message":"the prompt is longer than the context length"}}"#,
            FailureKind::ContextLength,
            "the prompt is longer than the context length",
        ),
        (
            401,
            r#"{"error":"bad key k-1"}"#,
            FailureKind::Unauthorized,
            "status 401",
        ),
        (
            429,
            r#"{"error":"slow down"}"#,
            FailureKind::RateLimited,
            "slow down",
        ),
        (
            503,
            r#"{"error":"server busy"}"#,
            FailureKind::Unavailable,
            "server busy",
        ),
        (502, "bad gateway", FailureKind::Unavailable, "bad gateway"),
    ] {
        let failure = failure::<Ollama>(status, JSON, body);
        assert_eq!((failure.kind, failure.text.as_str()), (kind, text));
    }
    let page = failure::<Ollama>(502, &[("content-type", "text/html")], "<html>");
    assert_eq!(page.text, "status 502");
}

#[test]
fn fails_with_an_error_line_after_what_came_before() {
    let begun = r#"{"message":{"content":"a"},"done":false}"#;
    let error = r#"{"error":"an error was encountered while running the model"}"#;
    for headers in [LINES, JSON] {
        let (lines, failure) = fails::<Ollama>(headers, &format!("{begun}\n{error}\n"));
        assert_eq!(lines, ["0 text", "0: a"]);
        assert_eq!(
            (failure.kind, failure.text.as_str()),
            (
                FailureKind::Unavailable,
                "an error was encountered while running the model"
            )
        );
        assert_eq!(failure.upstream_error.as_deref(), Some(error));
    }
}

#[test]
fn calls_nonsense_malformed() {
    for (headers, answer) in [
        (JSON, ""),
        (JSON, "[]"),
        (JSON, "{}"),
        (
            JSON,
            r#"{"message":{"tool_calls":[{"function":{"arguments":{}}}]},"done":true}"#,
        ),
        (LINES, ""),
        (LINES, "{\n"),
        (LINES, "{\"message\":{\"content\":\"a\"},\"done\":false}\n"),
        (&[("content-type", "text/html")], "<html>"),
    ] {
        let (_, failure) = fails::<Ollama>(headers, answer);
        assert_eq!(failure.kind, FailureKind::Malformed, "{answer}");
    }
}

/// Values of other types than usual, and halves of characters, cost nothing else of an answer.
#[test]
fn survives_odd_values() {
    let stream = r#"{"message":{"content":"So\ud83e","thinking":7,"tool_calls":[{}]},"created_at":5}
{"novelty":1}
{"message":{"content":{"x":1}}}
{"message":{"content":"\uddab!"},"done":true,"done_reason":"stop","eval_count":"x"}
"#;
    let lines = read::<Ollama>(LINES, stream);
    let said: String = lines
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(_, text)| text)
        .collect();
    assert_eq!(said, "So🦫!", "{lines:?}");
}
