//! The destinations of an adapter's requests, and the responses to it: W-guests over a real socket.

use serde_json::{Value, json};
use tests::gateway::UPSTREAM_CREDENTIAL;
use tests::{Answer, Gateway, Reply, Upstream, guests};

/// A gateway whose model `hostile` obeys commands, and an upstream for it.
async fn hostile(upstream: &Upstream) -> Gateway {
    Gateway::builder()
        .guest("hostile", guests::misbehaving(), Some(upstream))
        .start()
        .await
}

async fn command(gateway: &Gateway, command: Value) -> Answer {
    gateway.chat("hostile", &command.to_string()).await
}

#[tokio::test]
async fn a_legal_request_goes_below_the_base_url_with_the_credential() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::json(200, &json!({})));
    let gateway = hostile(&upstream).await;
    let answer = command(
        &gateway,
        json!({ "behave": "send", "path": "/a%20b?c=d", "headers": [["x-mine", "1"]], "body": "{}" }),
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let request = upstream.next_request().await;
    let base_path = upstream.base_url();
    let base_path = base_path
        .splitn(4, '/')
        .nth(3)
        .map_or(String::new(), |path| format!("/{path}"));
    assert_eq!(request.path, format!("{base_path}/a%20b?c=d"));
    assert_eq!(request.method, "POST");
    assert_eq!(
        request.header("authorization"),
        Some(&*format!("Bearer {UPSTREAM_CREDENTIAL}"))
    );
    assert_eq!(request.header("x-mine"), Some("1"));
    assert_eq!(
        request.header("host"),
        Some(&*upstream.address().to_string())
    );
    assert!(
        request
            .header("user-agent")
            .is_some_and(|agent| agent.starts_with("weir/"))
    );
    assert_eq!(upstream.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn no_path_leads_elsewhere() {
    let (upstream, other) = (Upstream::start().await, Upstream::start().await);
    let gateway = hostile(&upstream).await;
    let elsewhere = other.address();
    for path in [
        format!("//{elsewhere}/x"),
        format!("http://{elsewhere}/x"),
        format!("@{elsewhere}/x"),
        format!(":@{elsewhere}/x"),
        format!("\\\\{elsewhere}\\x"),
        format!("/\\{elsewhere}/x"),
        format!("/x\r\nHost: {elsewhere}\r\n\r\n"),
        format!("/%2f%2f{elsewhere}/x"),
        format!("/x HTTP/1.1\r\nHost: {elsewhere}"),
        "/../x".into(),
        "/a/../../x".into(),
        "/%2e%2e/x".into(),
        "/%2E%2e%2fx".into(),
        "/%252e%252e/x".into(),
        "/..;/x".into(),
        "/x#y".into(),
        "/x\0".into(),
        "x".into(),
        String::new(),
        format!("/{}", "x".repeat(9_000)),
    ] {
        let answer = command(&gateway, json!({ "behave": "send", "path": path })).await;
        answer.error(502, "ADAPTER_FAILED");
        assert_eq!((upstream.count(), other.connections()), (0, 0), "{path:?}");
    }
}

#[tokio::test]
async fn no_header_of_the_hosts_is_the_adapters_to_set() {
    let upstream = Upstream::start().await;
    let gateway = hostile(&upstream).await;
    for (name, value) in [
        ("Host", "other.example"),
        ("Authorization", "Bearer mine"),
        ("authorization", ""),
        ("Cookie", "a=b"),
        ("Content-Length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("Proxy-Authorization", "Basic eDp5"),
        ("Forwarded", "for=1.2.3.4"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("Upgrade", "h2c"),
        ("TE", "trailers"),
        ("x-a\r\nHost", "other.example"),
        ("x-a", "b\r\nHost: other.example"),
        ("x-a", "b\nX-C: d"),
        ("x-a", "b\0"),
        ("", "b"),
        ("x a", "b"),
    ] {
        let request = json!({ "behave": "send", "path": "/x", "headers": [[name, value]] });
        command(&gateway, request)
            .await
            .error(502, "ADAPTER_FAILED");
        assert_eq!(upstream.connections(), 0, "{name:?}: {value:?}");
    }
}

#[tokio::test]
async fn only_get_and_post_are_sent() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::json(200, &json!({})));
    let gateway = hostile(&upstream).await;
    for method in [
        "PUT",
        "DELETE",
        "CONNECT",
        "TRACE",
        "get",
        "GET ",
        "GET /x HTTP/1.1\r\n",
        "",
    ] {
        let request = json!({ "behave": "send", "path": "/x", "method": method });
        command(&gateway, request)
            .await
            .error(502, "ADAPTER_FAILED");
    }
    assert_eq!(upstream.count(), 0);
    let get = json!({ "behave": "send", "path": "/x", "method": "GET" });
    assert_eq!(command(&gateway, get).await.status, 200);
    assert_eq!(upstream.next_request().await.method, "GET");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (upstream, other) = (Upstream::start().await, Upstream::start().await);
    let gateway = hostile(&upstream).await;
    for status in [301, 302, 303, 307, 308] {
        upstream.will(Reply::redirect(
            status,
            &format!("http://{}/x", other.address()),
        ));
        let answer = command(&gateway, json!({ "behave": "send", "path": "/x" })).await;
        let seen: Value = serde_json::from_str(&answer.content()).expect("JSON");
        assert_eq!(seen["status"], status);
        assert!(
            !answer.content().contains(&other.address().to_string()),
            "{seen}"
        );
    }
    assert_eq!(other.connections(), 0);
    assert_eq!(upstream.count(), 5);
}

#[tokio::test]
async fn the_credential_reaches_no_guest_even_if_the_upstream_echoes_it() {
    let upstream = Upstream::start().await;
    let echo = format!("you sent Bearer {UPSTREAM_CREDENTIAL}, {UPSTREAM_CREDENTIAL}!");
    let reply = Reply::new(401)
        .header("content-type", "text/plain")
        .header("x-request-id", &format!("id-{UPSTREAM_CREDENTIAL}"))
        .header("set-cookie", "a=b")
        .header("x-internal", "secret")
        .header("retry-after", "7")
        .body(echo.clone());
    upstream.will(reply.clone());
    let gateway = hostile(&upstream).await;
    for at in [20, 40, 55] {
        upstream.will(reply.clone().split_at([at]));
    }
    for _ in 0..4 {
        let answer = command(&gateway, json!({ "behave": "send", "path": "/x" })).await;
        let content = answer.content();
        assert!(!content.contains(UPSTREAM_CREDENTIAL), "{content}");
        let seen: Value = serde_json::from_str(&content).expect("JSON");
        let stars = "*".repeat(UPSTREAM_CREDENTIAL.len());
        assert_eq!(seen["body"], format!("you sent Bearer {stars}, {stars}!"));
        let headers = seen["headers"].to_string();
        assert!(
            headers.contains("retry-after") && headers.contains("content-type"),
            "{headers}"
        );
        for hidden in ["x-request-id", "set-cookie", "x-internal"] {
            assert!(!headers.contains(hidden), "{headers}");
        }
    }
}

#[tokio::test]
async fn a_guest_sees_nothing_of_the_process_it_runs_in() {
    let upstream = Upstream::start().await;
    let gateway = hostile(&upstream).await;
    let command = json!({ "behave": "env", "connect": upstream.address().to_string(), "lookup": "localhost" });
    let answer = self::command(&gateway, command).await;
    let seen: Value = serde_json::from_str(&answer.content()).expect("JSON");
    for nothing in ["arguments", "variables"] {
        assert_eq!(seen[nothing].as_array().map(Vec::len), Some(0), "{seen}");
    }
    let text = seen.to_string();
    assert!(!text.contains("root:") && !text.contains("/bin/"), "{seen}");
    assert_eq!(upstream.connections(), 0, "{seen}");
}

/// weir requests no encoding: no adapter could read a compressed response, and no credential could be redacted in it.
#[tokio::test]
async fn an_encoded_answer_is_refused_as_the_upstreams_error() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    for encoding in ["gzip", "br", "identity, gzip", "x-unheard-of"] {
        let answer = Reply::chat("hello").header("content-encoding", encoding);
        upstream.will(answer);
        let refused = gateway.chat("scripted", "hello").await;
        let error = refused.error(502, "UPSTREAM_ERROR");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains("compressed"), "{encoding}: {message}");
        let request = upstream.next_request().await;
        assert_eq!(request.header("accept-encoding"), Some("identity"));
    }
    for encoding in ["identity", ""] {
        upstream.will(Reply::chat("hello").header("content-encoding", encoding));
        let answer = gateway.chat("scripted", "hello").await;
        assert_eq!(answer.content(), "hello");
    }
}
