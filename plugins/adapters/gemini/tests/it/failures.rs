//! The failures of error responses.

use weir_adapter_gemini::translate::Gemini;
use weir_sdk::adapter::FailureKind;
use weir_sdk::testing::{EVENT_STREAM, JSON, fails, failure};

fn error(code: u16, status: &str, message: &str) -> String {
    format!(r#"{{"error":{{"code":{code},"message":"{message}","status":"{status}"}}}}"#)
}

#[test]
fn tells_refusals_apart() {
    for (code, status, message, expected) in [
        (400, "INVALID_ARGUMENT", "Bad value", FailureKind::Rejected),
        (
            400,
            "INVALID_ARGUMENT",
            "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            FailureKind::ContextLength,
        ),
        (
            400,
            "FAILED_PRECONDITION",
            "User location is not supported",
            FailureKind::Unavailable,
        ),
        (
            404,
            "NOT_FOUND",
            "models/x is not found for API version v1beta",
            FailureKind::ModelNotFound,
        ),
        (404, "NOT_FOUND", "File gone", FailureKind::Rejected),
        (
            429,
            "RESOURCE_EXHAUSTED",
            "Quota exceeded",
            FailureKind::RateLimited,
        ),
        (
            500,
            "INTERNAL",
            "An internal error",
            FailureKind::Unavailable,
        ),
        (
            503,
            "UNAVAILABLE",
            "The model is overloaded.",
            FailureKind::Unavailable,
        ),
        (
            504,
            "DEADLINE_EXCEEDED",
            "Too late",
            FailureKind::Unavailable,
        ),
        (418, "NOVEL", "New", FailureKind::Rejected),
    ] {
        let body = error(code, status, message);
        for body in [body.clone(), format!("[{body}\n]")] {
            let failure = failure::<Gemini>(code, JSON, &body);
            assert_eq!((failure.kind, failure.text.as_str()), (expected, message));
            assert_eq!(failure.code.as_deref(), Some(status));
        }
    }
}

#[test]
fn repeats_nothing_that_is_said_of_a_key() {
    for (code, status, message) in [
        (400, "INVALID_ARGUMENT", "API key not valid: AIza1"),
        (401, "UNAUTHENTICATED", "AIza1"),
        (403, "PERMISSION_DENIED", "AIza1"),
    ] {
        let failure = failure::<Gemini>(code, JSON, &error(code, status, message));
        assert_eq!(
            (failure.kind, failure.text.as_str()),
            (FailureKind::Unauthorized, status)
        );
        assert_eq!(failure.upstream_error, None);
    }
}

#[test]
fn says_when_to_try_again() {
    let body = r#"{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED","details":[
        {"@type":"type.googleapis.com/google.rpc.Help"},
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7.5s"}]}}"#;
    assert_eq!(
        failure::<Gemini>(429, JSON, body).retry_after_ms,
        Some(7500)
    );
    let headers = &[("retry-after", "2"), ("content-type", "application/json")];
    assert_eq!(
        failure::<Gemini>(429, headers, body).retry_after_ms,
        Some(2000)
    );
}

#[test]
fn understands_what_a_proxy_says_instead() {
    let page = failure::<Gemini>(502, &[("content-type", "text/html")], "<html>");
    assert_eq!(
        (page.kind, page.text.as_str()),
        (FailureKind::Unavailable, "status 502")
    );
    let (_, page) = fails::<Gemini>(&[("content-type", "text/html")], "<html>");
    assert_eq!(page.kind, FailureKind::Malformed);
}

#[test]
fn fails_with_an_error_inside_a_stream_after_what_came_before() {
    let begun = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n\n";
    let overloaded = error(503, "UNAVAILABLE", "Overloaded");
    let pretty = overloaded.replace(",", ",\n    ").replace("{", "{\n  ");
    for end in [
        format!("data: {overloaded}\n\n"),
        overloaded.clone(),
        pretty,
        format!("[{overloaded}]"),
    ] {
        let (lines, failure) = fails::<Gemini>(EVENT_STREAM, &format!("{begun}{end}"));
        assert_eq!(lines, ["0 text", "0: a"]);
        assert_eq!(
            (failure.kind, failure.text.as_str()),
            (FailureKind::Unavailable, "Overloaded")
        );
    }
    let (_, failure) = fails::<Gemini>(JSON, &overloaded);
    assert_eq!(failure.kind, FailureKind::Unavailable);
}

#[test]
fn fails_where_the_model_wrote_no_answer() {
    for (reason, kind) in [
        ("MALFORMED_FUNCTION_CALL", FailureKind::Unavailable),
        ("UNEXPECTED_TOOL_CALL", FailureKind::Unavailable),
        ("OTHER", FailureKind::Unavailable),
        ("MISSING_THOUGHT_SIGNATURE", FailureKind::Rejected),
    ] {
        let answer = format!(
            r#"{{"candidates":[{{"finishReason":"{reason}","finishMessage":"Why."}}],"usageMetadata":{{"promptTokenCount":4,"totalTokenCount":4}}}}"#
        );
        let (lines, failure) = fails::<Gemini>(JSON, &answer);
        assert_eq!(lines, ["usage in=4 out=0"]);
        assert_eq!((failure.kind, failure.text.as_str()), (kind, "Why."));
        assert_eq!(failure.code.as_deref(), Some(reason));
    }
}

#[test]
fn calls_nonsense_malformed() {
    for (headers, answer) in [
        (JSON, ""),
        (JSON, "7"),
        (JSON, "{}"),
        (JSON, "[]"),
        (JSON, "{\"candidates\":[]}"),
        (
            JSON,
            "{\"candidates\":[{\"finishReason\":\"FINISH_REASON_UNSPECIFIED\"}]}",
        ),
        (
            JSON,
            "{\"candidates\":[{\"content\":{\"parts\":[{\"inlineData\":{\"mimeType\":\"image/png\",\"data\":\"?\"}}]}}]}",
        ),
        (EVENT_STREAM, ""),
        (EVENT_STREAM, "data: {\n\n"),
        (
            EVENT_STREAM,
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\n\n",
        ),
    ] {
        let (_, failure) = fails::<Gemini>(headers, answer);
        assert_eq!(failure.kind, FailureKind::Malformed, "{answer}");
    }
}
