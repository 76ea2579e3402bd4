//! The failures of error responses.

use weir_adapter_anthropic::translate::Anthropic;
use weir_sdk::adapter::FailureKind;
use weir_sdk::testing::{EVENT_STREAM, JSON, fails, failure};

fn error(kind: &str, message: &str) -> String {
    format!(
        r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"req_1"}}"#
    )
}

#[test]
fn tells_refusals_apart() {
    for (status, kind, message, expected) in [
        (
            400,
            "invalid_request_error",
            "temperature: range: 0..1",
            FailureKind::Rejected,
        ),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 200001 tokens > 200000 maximum",
            FailureKind::ContextLength,
        ),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
            FailureKind::ContextLength,
        ),
        (
            400,
            "invalid_request_error",
            "Output blocked by content filtering policy",
            FailureKind::Filtered,
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low",
            FailureKind::Unavailable,
        ),
        (402, "billing_error", "Pay.", FailureKind::Unavailable),
        (
            404,
            "not_found_error",
            "model: claude-x",
            FailureKind::ModelNotFound,
        ),
        (404, "not_found_error", "Not found", FailureKind::Rejected),
        (
            413,
            "request_too_large",
            "Request exceeds the maximum size",
            FailureKind::Rejected,
        ),
        (
            429,
            "rate_limit_error",
            "Slow down.",
            FailureKind::RateLimited,
        ),
        (500, "api_error", "Internal", FailureKind::Unavailable),
        (
            529,
            "overloaded_error",
            "Overloaded",
            FailureKind::Unavailable,
        ),
        (418, "novel_error", "New.", FailureKind::Rejected),
    ] {
        let body = error(kind, message);
        let failure = failure::<Anthropic>(status, JSON, &body);
        assert_eq!((failure.kind, failure.text.as_str()), (expected, message));
        assert_eq!(failure.code.as_deref(), Some(kind));
        assert_eq!(failure.upstream_error, Some(body));
    }
}

#[test]
fn repeats_nothing_that_is_said_of_a_key() {
    for (status, kind) in [(401, "authentication_error"), (403, "permission_error")] {
        let failure = failure::<Anthropic>(status, JSON, &error(kind, "bad key sk-ant-1"));
        assert_eq!(
            (failure.kind, failure.text.as_str()),
            (FailureKind::Unauthorized, kind)
        );
        assert_eq!(failure.upstream_error, None);
    }
}

#[test]
fn says_when_to_try_again() {
    let headers = &[("retry-after", "7"), ("content-type", "application/json")];
    let limited = failure::<Anthropic>(429, headers, &error("rate_limit_error", "x"));
    assert_eq!(limited.retry_after_ms, Some(7000));
    let refused = failure::<Anthropic>(400, headers, &error("invalid_request_error", "x"));
    assert_eq!(refused.retry_after_ms, None);
}

#[test]
fn understands_what_a_proxy_says_instead() {
    let page = failure::<Anthropic>(502, &[("content-type", "text/html")], "<html>");
    assert_eq!(
        (page.kind, page.text.as_str()),
        (FailureKind::Unavailable, "status 502")
    );
    let text = failure::<Anthropic>(503, &[], "no upstream");
    assert_eq!(
        (text.kind, text.text.as_str()),
        (FailureKind::Unavailable, "no upstream")
    );
    let (_, page) = fails::<Anthropic>(&[("content-type", "text/html")], "<html>");
    assert_eq!(page.kind, FailureKind::Malformed);
}

#[test]
fn fails_with_an_error_inside_a_stream_after_what_came_before() {
    let begun = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"a\"}}\n\n";
    let overloaded = error("overloaded_error", "Overloaded");
    for end in [
        format!("event: error\ndata: {overloaded}\n\n"),
        format!("data: {overloaded}\n\n"),
        overloaded.clone(),
    ] {
        let (lines, failure) = fails::<Anthropic>(EVENT_STREAM, &format!("{begun}{end}"));
        assert_eq!(lines, ["0 text", "0: a"]);
        assert_eq!(
            (failure.kind, failure.text.as_str()),
            (FailureKind::Unavailable, "Overloaded")
        );
        assert_eq!(failure.upstream_error.as_deref(), Some(overloaded.as_str()));
    }
    let (_, failure) = fails::<Anthropic>(EVENT_STREAM, "event: error\ndata: broken\n\n");
    assert_eq!(failure.kind, FailureKind::Unavailable);
    let (_, failure) = fails::<Anthropic>(JSON, &overloaded);
    assert_eq!(failure.kind, FailureKind::Unavailable);
}

#[test]
fn calls_nonsense_malformed() {
    for (headers, answer) in [
        (JSON, ""),
        (JSON, "[]"),
        (JSON, "{}"),
        (JSON, "{\"content\":[{\"type\":\"tool_use\",\"id\":\"x\"}]}"),
        (EVENT_STREAM, ""),
        (EVENT_STREAM, "data: {\n\n"),
        (EVENT_STREAM, "data: {\"type\":\"message_start\"}\n\n"),
        (EVENT_STREAM, "data: {\"type\":\"message_stop\"}\n\n"),
        (
            EVENT_STREAM,
            "data: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n",
        ),
    ] {
        let (_, failure) = fails::<Anthropic>(headers, answer);
        assert_eq!(failure.kind, FailureKind::Malformed, "{answer}");
    }
}
