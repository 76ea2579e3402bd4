//! What becomes of a response that is not an answer.

use weir_sdk::adapter::Failure;

use crate::{EVENT_STREAM, JSON, receive};

fn refused(status: u16, body: &str) -> Failure {
    receive(status, JSON, [body.as_bytes()]).expect_err("a failure")
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
        (400, error("bad", "x"), Failure::Rejected(owned("bad"))),
        (
            404,
            error("no model", "model_not_found"),
            Failure::Rejected(owned("no model")),
        ),
        (413, error("large", ""), Failure::Rejected(owned("large"))),
        (422, error("odd", ""), Failure::Rejected(owned("odd"))),
        (
            400,
            error("long", "context_length_exceeded"),
            Failure::ContextLength(owned("long")),
        ),
        (
            400,
            error("This model's maximum context length is 8 tokens", ""),
            Failure::ContextLength(owned("This model's maximum context length is 8 tokens")),
        ),
        (
            400,
            error("no", "content_policy_violation"),
            Failure::Filtered(owned("no")),
        ),
        (
            400,
            error("no", "content_filter"),
            Failure::Filtered(owned("no")),
        ),
        (
            401,
            error("sk-secret", "invalid_api_key"),
            Failure::Unauthorized(owned("status 401")),
        ),
        (
            403,
            error("no", "x"),
            Failure::Unauthorized(owned("status 403")),
        ),
        (402, error("pay", ""), Failure::Unavailable(owned("pay"))),
        (
            429,
            error("slow", "rate_limit_exceeded"),
            Failure::RateLimited(None),
        ),
        (
            429,
            error("broke", "insufficient_quota"),
            Failure::Unavailable(owned("broke")),
        ),
        (500, error("oops", ""), Failure::Unavailable(owned("oops"))),
        (529, error("full", ""), Failure::Unavailable(owned("full"))),
        (302, owned(""), Failure::Malformed(owned("status 302"))),
    ] {
        assert_eq!(refused(status, &body), failure, "{status} {body}");
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
        assert_eq!(
            refused(400, body),
            Failure::Rejected(owned(message)),
            "{body}"
        );
    }
    let page = receive(502, &[("content-type", "text/html")], [&b"<html>"[..]]);
    assert_eq!(
        page,
        Err(Failure::Unavailable(owned("status 502 with an HTML page")))
    );
}

#[test]
fn says_how_long_to_wait() {
    for (name, value, wait_ms) in [("retry-after", "3", 3000), ("Retry-After-Ms", "40", 40)] {
        let limited = receive(429, &[(name, value)], [&b"{}"[..]]);
        assert_eq!(limited, Err(Failure::RateLimited(Some(wait_ms))));
    }
}

#[test]
fn keeps_no_more_of_a_refusal_than_it_needs() {
    let piece = vec![b'x'; 50_000];
    let refused = receive(400, JSON, [&piece[..], &piece, &piece, &piece]);
    let Err(Failure::Rejected(text)) = refused else {
        panic!("expected a rejection, got {refused:?}");
    };
    assert_eq!(text.len(), 1024);
}

#[test]
fn fails_on_an_error_in_the_midst_of_a_stream() {
    for (error, failure) in [
        (
            r#"{"error":{"message":"oops","type":"server_error"}}"#,
            Failure::Unavailable(owned("oops")),
        ),
        (
            r#"{"error":{"message":"bad","type":"invalid_request_error"}}"#,
            Failure::Rejected(owned("bad")),
        ),
        (
            r#"{"error":{"message":"long","code":"context_length_exceeded"}}"#,
            Failure::ContextLength(owned("long")),
        ),
        (
            r#"{"error":{"message":"slow","code":"rate_limit_exceeded"}}"#,
            Failure::RateLimited(None),
        ),
        (
            r#"{"error":{"message":"down","code":502},"choices":[]}"#,
            Failure::Unavailable(owned("down")),
        ),
        (r#"{"error":"oops"}"#, Failure::Unavailable(owned("oops"))),
    ] {
        let stream = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}]}}\n\ndata: {error}\n\n"
        );
        assert_eq!(
            receive(200, EVENT_STREAM, [stream.as_bytes()]),
            Err(failure.clone())
        );
        assert_eq!(receive(200, JSON, [error.as_bytes()]), Err(failure));
    }
    let named = b"event: error\ndata: {\"message\":\"oops\"}\n\n";
    assert_eq!(
        receive(200, EVENT_STREAM, [&named[..]]),
        Err(Failure::Unavailable(owned("oops")))
    );
}

#[test]
fn calls_nonsense_malformed() {
    let is_malformed = |answer: Result<_, Failure>| matches!(answer, Err(Failure::Malformed(_)));
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
