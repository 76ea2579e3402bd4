//! Calls of web pages: CORS for the listed origins, and the headers of every response.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tests::{Client, Gateway, chat};

const APP: &str = "https://app.example";

const CORS: [&str; 5] = [
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-expose-headers",
    "access-control-max-age",
];

fn names(headers: &HeaderMap, header: &str) -> Vec<String> {
    let value = headers
        .get(header)
        .map(|value| value.to_str().expect("ASCII"));
    let names = value.unwrap_or_default().split(',');
    names.map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// Asks for a page's permissions, as a browser does.
async fn preflight(page: &Client, method: &str, path: &str, headers: &str) -> tests::Answer {
    let page = page
        .clone()
        .with_header("access-control-request-method", method)
        .with_header("access-control-request-headers", headers);
    page.send(Method::OPTIONS, path, None, Bytes::new()).await
}

#[tokio::test]
async fn a_page_of_a_listed_origin_asks_calls_and_reads() {
    let gateway = Gateway::builder()
        .settings("cors_origins = [\"http://localhost:3000\", \"https://app.example\"]")
        .start()
        .await;
    let wanted = "authorization,content-type,idempotency-key,x-identity-appcheck";
    let page = gateway.stranger().with_header("origin", APP);
    // Each method of the API's own document.
    let document = gateway.stranger().get("/openapi.json").await.json();
    let paths = document["paths"].as_object().expect("paths");
    let documented = paths
        .values()
        .flat_map(|path| path.as_object().expect("methods").keys());
    let methods: BTreeSet<_> = documented
        .map(|method| method.to_ascii_uppercase())
        .collect();
    assert!(methods.contains("PATCH"), "{methods:?}");
    for method in &methods {
        let allowed = preflight(&page, method, "/chat", wanted).await;
        assert_eq!(allowed.status, 204, "{}", allowed.text());
        let headers = &allowed.headers;
        assert_eq!(headers["access-control-allow-origin"], APP);
        let allowed = names(headers, "access-control-allow-methods");
        assert!(
            allowed.contains(&method.to_ascii_lowercase()),
            "{allowed:?}"
        );
        let sendable = names(headers, "access-control-allow-headers");
        for header in wanted.split(',') {
            assert!(sendable.contains(&header.to_owned()), "{sendable:?}");
        }
        assert!(names(headers, "vary").contains(&"origin".to_owned()));
        assert!(!headers.contains_key("access-control-allow-credentials"));
    }

    // The actual request, with both tokens of its user.
    let page = gateway.web("al").with_header("origin", APP);
    let answer = page.post("/chat", &chat("demo", "Hello")).await;
    assert_eq!(answer.content(), "You said: Hello");
    let refused = page.post("/chat", &chat("none", "Hello")).await;
    refused.error(400, "UNKNOWN_MODEL");
    let stream = page.stream("/chat", &chat("demo", "Hello")).await;
    for headers in [&answer.headers, &refused.headers, &stream.headers] {
        assert_eq!(headers["access-control-allow-origin"], APP);
        let readable = names(headers, "access-control-expose-headers");
        for header in [
            "x-request-id",
            "retry-after",
            "ratelimit",
            "ratelimit-policy",
            "x-ratelimit-remaining-requests",
            "x-should-retry",
            "x-weir-ignored",
            "x-weir-cache",
            "idempotency-replayed",
        ] {
            assert!(readable.contains(&header.to_owned()), "{readable:?}");
        }
    }
    // A page can also read the response to a request without credentials.
    let stranger = gateway.stranger().with_header("origin", APP);
    let refused = stranger.get("/models").await;
    refused.error(401, "UNAUTHENTICATED");
    assert_eq!(refused.headers["access-control-allow-origin"], APP);
}

#[tokio::test]
async fn other_origins_get_no_header_of_cors() {
    let listing = "cors_origins = [\"https://app.example\"]";
    for settings in ["", listing] {
        let gateway = Gateway::builder().settings(settings).start().await;
        for origin in [
            "https://evil.example",
            "http://app.example",
            "https://app.example:8443",
            "https://app.example.evil.example",
            "null",
        ] {
            let page = gateway.client().with_header("origin", origin);
            let asked = preflight(&page, "POST", "/chat", "authorization").await;
            asked.error(405, "METHOD_NOT_ALLOWED");
            let answer = page.post("/chat", &chat("demo", "Hello")).await;
            assert_eq!(answer.status, 200, "no browser, no say");
            for headers in [&asked.headers, &answer.headers] {
                for header in CORS {
                    assert!(!headers.contains_key(header), "{origin}: {headers:?}");
                }
            }
        }
        // A client that is no page gets no CORS headers either.
        let answer = gateway.client().get("/models").await;
        assert!(CORS.iter().all(|name| !answer.headers.contains_key(*name)));
    }
}

#[tokio::test]
async fn no_answer_is_kept_by_a_cache_or_taken_for_another_type() {
    let gateway = Gateway::start().await;
    let client = gateway.client();
    let unknown = gateway.stranger().get("/nope").await;
    let stranger = gateway.stranger().get("/models").await;
    let answers = [
        client.get("/models").await,
        client.get("/usage/me").await,
        client.get("/health").await,
        client.get("/metrics").await,
        client.post("/chat", &chat("demo", "Hello")).await,
        unknown,
        stranger,
    ];
    let stream = client.stream("/chat", &chat("demo", "Hello")).await;
    let heads = answers.iter().map(|answer| &answer.headers);
    for headers in heads.chain([&stream.headers]) {
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["x-content-type-options"], "nosniff");
    }
}
