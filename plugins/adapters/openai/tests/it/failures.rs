//! The failures of error responses.

use weir_sdk::adapter::{Event, Failure, FailureKind};
use weir_sdk::chat::{Block, BlockStart, Fragment};

use crate::{EVENT_STREAM, JSON, receive, receive_all};

fn refused(status: u16, body: &str) -> Failure {
    receive(status, JSON, [body.as_bytes()]).expect_err("a failure")
}

/// Kind and text, for tests of these alone.
fn outline(failure: &Failure) -> (FailureKind, &str) {
    (failure.kind, &failure.text)
}

fn owned(text: &str) -> String {
    text.to_owned()
}

#[test]
fn maps_each_refusal_to_its_failure() {
    let error = |message: &str, code: &str| {
        format!(r#"{{"error":{{"message":"{message}","type":"t","param":null,"code":"{code}"}}}}"#)
    };
    for (status, body, failure) in [
        (400, error("bad", "x"), (FailureKind::Rejected, "bad")),
        (
            404,
            error("no model", "model_not_found"),
            (FailureKind::ModelNotFound, "no model"),
        ),
        (
            403,
            error("not for you", "model_not_found"),
            (FailureKind::ModelNotFound, "not for you"),
        ),
        (
            404,
            error("The model `x` does not exist.", ""),
            (FailureKind::ModelNotFound, "The model `x` does not exist."),
        ),
        (
            404,
            owned(r#"{"error":"model 'x' not found"}"#),
            (FailureKind::ModelNotFound, "model 'x' not found"),
        ),
        (
            404,
            error("Resource not found", "404"),
            (FailureKind::Rejected, "Resource not found"),
        ),
        (
            400,
            owned(r#"{"message":"Invalid model: x","type":"invalid_model"}"#),
            (FailureKind::ModelNotFound, "Invalid model: x"),
        ),
        (413, error("large", ""), (FailureKind::Rejected, "large")),
        (422, error("odd", ""), (FailureKind::Rejected, "odd")),
        (
            400,
            error("long", "context_length_exceeded"),
            (FailureKind::ContextLength, "long"),
        ),
        (
            400,
            error("This model's maximum context length is 8 tokens", ""),
            (
                FailureKind::ContextLength,
                "This model's maximum context length is 8 tokens",
            ),
        ),
        (
            400,
            error("no", "content_policy_violation"),
            (FailureKind::Filtered, "no"),
        ),
        (
            400,
            error("no", "content_filter"),
            (FailureKind::Filtered, "no"),
        ),
        (
            401,
            error("sk-secret", "invalid_api_key"),
            (FailureKind::Unauthorized, "status 401"),
        ),
        (
            403,
            error("no", "x"),
            (FailureKind::Unauthorized, "status 403"),
        ),
        (402, error("pay", ""), (FailureKind::Unavailable, "pay")),
        (
            429,
            error("slow", "rate_limit_exceeded"),
            (FailureKind::RateLimited, "slow"),
        ),
        (
            429,
            error("broke", "insufficient_quota"),
            (FailureKind::Unavailable, "broke"),
        ),
        (500, error("oops", ""), (FailureKind::Unavailable, "oops")),
        (529, error("full", ""), (FailureKind::Unavailable, "full")),
        (302, owned(""), (FailureKind::Malformed, "status 302")),
    ] {
        assert_eq!(outline(&refused(status, &body)), failure, "{status} {body}");
    }
}

#[test]
fn reads_an_error_in_every_shape() {
    for (body, message) in [
        (r#"{"error":"why"}"#, "why"),
        (r#"[{"error":{"message":"why","code":400}}]"#, "why"),
        (r#"{"object":"error","message":"why","code":null}"#, "why"),
        (r#"{"detail":"why"}"#, "why"),
        (
            r#"{"detail":[{"loc":["body"],"msg":"a"},{"msg":"b"}]}"#,
            "a; b",
        ),
        ("why, in plain words\n", "why, in plain words"),
        ("<html>no</html>", "status 400"),
        ("null", "status 400"),
        ("", "status 400"),
    ] {
        let refused = refused(400, body);
        assert_eq!(
            outline(&refused),
            (FailureKind::Rejected, message),
            "{body}"
        );
    }
    let page = receive(502, &[("content-type", "text/html")], [&b"<html>"[..]]);
    assert_eq!(
        page,
        Err(Failure::unavailable("status 502 with an HTML page"))
    );
}

#[test]
fn says_how_long_to_wait() {
    for (name, value, wait_ms) in [("retry-after", "3", 3000), ("Retry-After-Ms", "40", 40)] {
        let limited = receive(429, &[(name, value)], [&b"{}"[..]]);
        let limited = limited.expect_err("a limit");
        assert_eq!(limited.kind, FailureKind::RateLimited);
        assert_eq!(limited.retry_after_ms, Some(wait_ms));
    }
    let broke = br#"{"error":{"message":"broke","code":"insufficient_quota"}}"#;
    let broke = receive(429, &[("retry-after", "3")], [&broke[..]]).expect_err("a limit");
    assert_eq!(outline(&broke), (FailureKind::Unavailable, "broke"));
    assert_eq!(broke.retry_after_ms, Some(3000));
}

#[test]
fn carries_on_what_the_upstream_says() {
    let body = r#"{"error":{"message":"bad","type":"t","param":"messages[0].content","code":"c"}}"#;
    let failure = Failure {
        param: Some(owned("messages[0].content")),
        code: Some(owned("c")),
        upstream_error: Some(owned(body)),
        ..Failure::rejected("bad")
    };
    assert_eq!(refused(400, body), failure);
    let beside = r#"{"code":"c","error":"bad"}"#;
    assert_eq!(refused(400, beside).code, Some(owned("c")));
    // No part of the key is quoted.
    let unauthorized = refused(
        401,
        r#"{"error":{"message":"sk-secret","code":"invalid_api_key"}}"#,
    );
    assert_eq!(unauthorized.upstream_error, None);
    assert_eq!(unauthorized.code, Some(owned("invalid_api_key")));
    assert_eq!(refused(500, "<html>").upstream_error, None);
    let large = format!(r#"{{"error":{{"message":"{}"}}}}"#, "x".repeat(16 * 1024));
    assert_eq!(refused(400, &large).upstream_error, None);
}

#[test]
fn keeps_no_more_of_a_refusal_than_it_needs() {
    let piece = vec![b'x'; 50_000];
    let refused = receive(400, JSON, [&piece[..], &piece, &piece, &piece]);
    let refused = refused.expect_err("a rejection");
    assert_eq!(refused.kind, FailureKind::Rejected);
    assert_eq!(refused.text.len(), 1024);
}

#[test]
fn fails_on_an_error_in_the_midst_of_a_stream() {
    for (error, failure) in [
        (
            r#"{"error":{"message":"oops","type":"server_error"}}"#,
            (FailureKind::Unavailable, "oops"),
        ),
        (
            r#"{"error":{"message":"bad","type":"invalid_request_error"}}"#,
            (FailureKind::Rejected, "bad"),
        ),
        (
            r#"{"error":{"message":"long","code":"context_length_exceeded"}}"#,
            (FailureKind::ContextLength, "long"),
        ),
        (
            r#"{"error":{"message":"slow","code":"rate_limit_exceeded"}}"#,
            (FailureKind::RateLimited, "slow"),
        ),
        (
            r#"{"error":{"message":"down","code":502},"choices":[]}"#,
            (FailureKind::Unavailable, "down"),
        ),
        (r#"{"error":"oops"}"#, (FailureKind::Unavailable, "oops")),
    ] {
        let stream = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}]}}\n\ndata: {error}\n\n"
        );
        let (events, result) = receive_all(200, EVENT_STREAM, [stream.as_bytes()]);
        assert_eq!(events, begun_text("a"), "what came before is not lost");
        let midway = result.expect_err("a failure");
        assert_eq!(outline(&midway), failure);
        let whole = receive(200, JSON, [error.as_bytes()]).expect_err("a failure");
        assert_eq!(outline(&whole), failure);
    }
    let named = b"event: error\ndata: {\"message\":\"oops\"}\n\n";
    assert_eq!(
        receive(200, EVENT_STREAM, [&named[..]]),
        Err(Failure::unavailable("oops").with_upstream_error(r#"{"message":"oops"}"#))
    );
}

/// A text that has begun.
fn begun_text(text: &str) -> [Event; 2] {
    [
        Event::BlockStart(BlockStart {
            index: 0,
            block: Block::Text,
        }),
        Event::Fragment(Fragment {
            index: 0,
            text: text.to_owned(),
        }),
    ]
}

#[test]
fn delivers_what_a_chunk_says_beside_its_error() {
    let error = r#"{"code":502,"message":"down"}"#;
    let choice_error = format!(r#"{{"choices":[{{"delta":{{"content":"a"}},"error":{error}}}]}}"#);
    let chunk_error = format!(r#"{{"choices":[{{"delta":{{"content":"a"}}}}],"error":{error}}}"#);
    for chunk in [choice_error, chunk_error] {
        let stream = format!("data: {chunk}\n\n");
        let (events, result) = receive_all(200, EVENT_STREAM, [stream.as_bytes()]);
        assert_eq!(events, begun_text("a"));
        let failure = result.expect_err("a failure");
        assert_eq!(outline(&failure), (FailureKind::Unavailable, "down"));
        let carried = Some(format!(r#"{{"error":{error}}}"#));
        assert_eq!(failure.upstream_error, carried);
    }
    let message = format!(
        r#"{{"choices":[{{"message":{{"content":"a"}},"finish_reason":"stop","error":{error}}}]}}"#
    );
    let (events, result) = receive_all(200, JSON, [message.as_bytes()]);
    assert_eq!(events, begun_text("a"));
    assert!(result.is_err());
}

#[test]
fn fails_on_an_error_after_the_finish() {
    let stream =
        b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"error\":{\"message\":\"oops\"}}\n\ndata: [DONE]\n\n";
    let (events, result) = receive_all(200, EVENT_STREAM, [&stream[..]]);
    assert_eq!(events, begun_text("a"));
    assert!(result.is_err());
}

#[test]
fn calls_nonsense_malformed() {
    let is_malformed = |answer: Result<Vec<Event>, Failure>| matches!(answer, Err(Failure { kind, .. }) if kind == FailureKind::Malformed);
    for body in [
        "",
        "{",
        "[]",
        "null",
        "\"x\"",
        "{}",
        r#"{"choices":[]}"#,
        "<html>",
    ] {
        assert!(
            is_malformed(receive(200, JSON, [body.as_bytes()])),
            "{body}"
        );
    }
    for stream in [
        "",
        "data: {\n\n",
        "data: [DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
    ] {
        let answer = receive(200, EVENT_STREAM, [stream.as_bytes()]);
        assert!(is_malformed(answer), "{stream}");
    }
    let page = receive(200, &[("content-type", "text/html")], [&b"<html>"[..]]);
    assert!(is_malformed(page));
    let endless = vec![b' '; 3 * 1024 * 1024];
    assert!(is_malformed(receive(200, JSON, [&endless[..], &endless])));
}
