//! MCP: the tools of agents for clients of the Model Context Protocol, old and new, and refusals.

use http::Method;
use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::{Answer, Client, Gate, Gateway, Reply, Upstream, patiently};

const MODERN: &str = "2026-07-28";

/// A gateway whose `http_get` reaches an upstream.
fn reaching(upstream: &Upstream) -> Builder {
    let at = upstream.address();
    Gateway::builder().tables(&format!("[tools.http_get]\nprivate = [\"{at}\"]\n"))
}

async fn started(builder: Builder) -> Gateway {
    let gateway = builder.start().await;
    gateway.set_plan("pro").await;
    gateway
}

/// A request of an older client, after its `initialize`.
pub(crate) fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

/// A request of a client of the newest revision: its message, and the headers that repeat it.
fn modern(client: &Client, method: &str, mut params: Value) -> (Client, Value) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut client = client
        .clone()
        .with_header("mcp-protocol-version", MODERN)
        .with_header("mcp-method", method);
    if let Some(name) = params["name"].as_str() {
        client = client.with_header("mcp-name", name);
    }
    (client, request(method, params))
}

async fn ask_modern(client: &Client, method: &str, params: Value) -> Answer {
    let (client, message) = modern(client, method, params);
    client.post("/mcp", &message).await
}

async fn ask(client: &Client, method: &str, params: Value) -> Answer {
    client.post("/mcp", &request(method, params)).await
}

/// Returns the result of a response that has one.
pub(crate) fn result(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!(7)));
    assert!(body["error"].is_null(), "{body}");
    body["result"].clone()
}

fn error(answer: &Answer, status: u16, code: i64) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text());
    let body = answer.json();
    assert_eq!(body["error"]["code"], code, "{body}");
    body
}

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["tools"].as_array().expect("a list");
    let name = |tool: &'static str, of: &Value| of[tool].as_str().is_some();
    assert!(tools.iter().all(|tool| name("name", tool)));
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

#[tokio::test]
async fn an_older_client_initializes_lists_and_calls_and_no_session_is_kept() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::new(200).body("It rains."));
    let gateway = started(reaching(&upstream)).await;
    let client = gateway.client();
    for (asked, answered) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        (MODERN, "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let params = json!({ "protocolVersion": asked, "capabilities": {},
            "clientInfo": { "name": "c", "version": "1" } });
        let answer = ask(&client, "initialize", params).await;
        assert_eq!(answer.headers.get("mcp-session-id"), None);
        let result = result(&answer);
        assert_eq!(result["protocolVersion"], answered);
        assert_eq!(result["capabilities"], json!({ "tools": {} }));
        assert_eq!(result["serverInfo"]["name"], "weir");
    }
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answer = client.post("/mcp", &initialized).await;
    assert_eq!((answer.status.as_u16(), &*answer.text()), (202, ""));

    let client = client.with_header("mcp-protocol-version", "2025-06-18");
    assert_eq!(result(&ask(&client, "ping", json!({})).await), json!({}));
    let listed = result(&ask(&client, "tools/list", json!({})).await);
    // Neither the tool for agents' webhooks, nor the one for integrations, since none are configured.
    assert_eq!(names(&listed), ["http_get", "http_post"]);
    assert_eq!(listed["resultType"], Value::Null);
    let tool = &listed["tools"][0];
    assert_eq!(tool["inputSchema"]["type"], "object");
    let described = gateway.app().tools.describe("http_get").expect("the tool");
    assert_eq!(tool["description"], described.description);
    assert_eq!(tool["inputSchema"], described.input_schema);
    assert_eq!(
        [
            &tool["annotations"]["readOnlyHint"],
            &listed["tools"][1]["annotations"]["readOnlyHint"]
        ],
        [&json!(true), &json!(false)]
    );

    let url = format!("{}/weather", upstream.base_url());
    let params = json!({ "name": "http_get", "arguments": { "url": url } });
    let called = result(&ask(&client, "tools/call", params).await);
    assert_eq!(
        called,
        json!({ "content": [{ "type": "text", "text": "HTTP 200\n\nIt rains." }], "isError": false })
    );
    assert_eq!(upstream.next_request().await.path, "/weather");
    // The call counts like an agent's, and costs nothing, as there.
    let admin = gateway.admin("olivia").await;
    let counted = admin.get("/admin/plugins/http_get").await.json();
    assert_eq!(counted["plugins"][0]["requests"], 1);
    let entries = client.get("/usage/requests").await.json();
    assert_eq!(entries["requests"], json!([]), "{entries}");
}

#[tokio::test]
async fn a_client_of_the_newest_revision_discovers_lists_and_calls() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::new(200).body("It rains."));
    let gateway = started(reaching(&upstream)).await;
    let client = gateway.client();
    let found = result(&ask_modern(&client, "server/discover", json!({})).await);
    assert_eq!(found["resultType"], "complete");
    assert_eq!(
        found["supportedVersions"],
        json!([MODERN, "2025-11-25", "2025-06-18", "2025-03-26"])
    );
    assert_eq!(found["capabilities"], json!({ "tools": {} }));
    let listed = result(&ask_modern(&client, "tools/list", json!({})).await);
    assert_eq!(names(&listed), ["http_get", "http_post"]);
    assert_eq!(
        [&listed["resultType"], &listed["cacheScope"]],
        ["complete", "private"]
    );
    assert!(listed["ttlMs"].is_u64(), "{listed}");
    let after = json!({ "cursor": "http_get" });
    let rest = result(&ask_modern(&client, "tools/list", after).await);
    assert_eq!(names(&rest), ["http_post"]);
    let params = json!({ "name": "http_get", "arguments": { "url": upstream.base_url() } });
    let called = result(&ask_modern(&client, "tools/call", params).await);
    assert_eq!(called["resultType"], "complete");
    assert_eq!(called["content"][0]["text"], "HTTP 200\n\nIt rains.");
    // Methods that the revision has dropped.
    error(&ask_modern(&client, "ping", json!({})).await, 404, -32601);
}

#[tokio::test]
async fn headers_that_say_something_else_than_the_body_are_refused() {
    let gateway = started(Gateway::builder()).await;
    let client = gateway.client();
    let (_, message) = modern(&client, "tools/call", json!({ "name": "http_get" }));
    let with = |headers: &[(&str, &str)]| {
        let add = |client: Client, (name, value): &(&str, &str)| client.with_header(name, value);
        headers.iter().fold(client.clone(), add)
    };
    let version = ("mcp-protocol-version", MODERN);
    let method = ("mcp-method", "tools/call");
    for headers in [
        &[][..],
        &[version],
        &[version, method],
        &[
            ("mcp-protocol-version", "2025-06-18"),
            method,
            ("mcp-name", "http_get"),
        ],
        &[
            version,
            ("mcp-method", "tools/list"),
            ("mcp-name", "http_get"),
        ],
        &[version, method, ("mcp-name", "http_post")],
        &[version, method, ("mcp-name", "=?base64?!?=")],
    ] {
        let answer = with(headers).post("/mcp", &message).await;
        let body = error(&answer, 400, -32020);
        assert_eq!(body["id"], 7);
    }
    // In the encoding of values that do not fit into a header.
    let encoded = with(&[version, method, ("mcp-name", "=?base64?aHR0cF9nZXQ=?=")]);
    result(&encoded.post("/mcp", &message).await);

    // An unsupported version, in the header or in the body.
    let other = with(&[("mcp-protocol-version", "1900-01-01")]);
    let body = error(&ask(&other, "tools/list", json!({})).await, 400, -32022);
    assert_eq!(body["error"]["data"]["requested"], "1900-01-01");
    assert_eq!(body["error"]["data"]["supported"][0], MODERN);
    // The newest, without the required fields of each request.
    let bare = with(&[version]);
    error(&ask(&bare, "tools/list", json!({})).await, 400, -32602);
}

#[tokio::test]
async fn what_is_no_request_is_refused_in_the_protocols_words() {
    let gateway = started(Gateway::builder()).await;
    let client = gateway.client();
    let json_type = Some("application/json");
    let post = async |body: &str| {
        let body = body.to_owned().into();
        client.send(Method::POST, "/mcp", json_type, body).await
    };
    error(&post("{").await, 400, -32700);
    for body in [
        "[]",
        "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
        "1",
        "{\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
    ] {
        error(&post(body).await, 400, -32600);
    }
    error(
        &ask(&client, "resources/list", json!({})).await,
        200,
        -32601,
    );
    let cursor = json!({ "cursor": "no name" });
    error(&ask(&client, "tools/list", cursor).await, 200, -32602);
    let calls = [
        json!({}),
        json!({ "name": "http_get", "arguments": [] }),
        json!({ "name": "none" }),
        // Only for agents.
        json!({ "name": "webhook" }),
        // No integration is configured.
        json!({ "name": "api_call" }),
    ];
    for params in calls {
        error(&ask(&client, "tools/call", params).await, 200, -32602);
    }
    for method in [Method::GET, Method::DELETE] {
        let answer = client.send(method, "/mcp", None, "".into()).await;
        answer.error(405, "METHOD_NOT_ALLOWED");
        assert_eq!(answer.headers["allow"], "POST");
    }
    let answer = client
        .send(Method::POST, "/mcp", Some("text/plain"), "{}".into())
        .await;
    answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
    let large = json!({ "name": "http_get", "arguments": { "url": "x".repeat(1 << 20) } });
    let answer = ask(&client, "tools/call", large).await;
    answer.error(413, "PAYLOAD_TOO_LARGE");
}

#[tokio::test]
async fn what_a_tool_fails_at_is_a_result_that_says_so() {
    let gateway = started(Gateway::builder()).await;
    let client = gateway.client();
    for (arguments, part) in [
        (
            json!({ "url": "http://169.254.169.254/" }),
            "nothing was sent",
        ),
        (json!({ "url": 1 }), "do not fit"),
        (json!({}), "do not fit"),
    ] {
        let params = json!({ "name": "http_get", "arguments": arguments });
        let called = result(&ask(&client, "tools/call", params).await);
        assert_eq!(called["isError"], true, "{called}");
        let text = called["content"][0]["text"].as_str().expect("a text");
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn strangers_foreign_pages_and_plans_without_swarms_get_no_tools() {
    let gateway = Gateway::builder()
        .settings("cors_origins = [\"https://app.example\"]\n")
        .start()
        .await;
    let list = |client: Client| async move { ask(&client, "tools/list", json!({})).await };
    let stranger = list(gateway.stranger()).await;
    stranger.error(401, "UNAUTHENTICATED");
    assert_eq!(stranger.headers["www-authenticate"], "Bearer");
    list(gateway.client()).await.error(403, "PLAN_NOT_ELIGIBLE");
    gateway.set_plan("guru").await;
    result(&list(gateway.client()).await);
    for origin in ["https://evil.example", "null", "http://localhost:8080"] {
        let page = gateway.client().with_header("origin", origin);
        list(page).await.error(403, "ORIGIN_NOT_ALLOWED");
    }
    let listed = gateway
        .client()
        .with_header("origin", "https://app.example");
    result(&list(listed).await);
    // A revoked key has no tools from then on.
    let key = gateway.client();
    let web = gateway.web("alice");
    let made = web.post("/api-keys", &json!({ "name": "k" })).await.json();
    let other = gateway
        .stranger()
        .with_key(made["api_key"].as_str().expect("a key"));
    list(other.clone()).await.error(403, "PLAN_NOT_ELIGIBLE");
    let path = format!("/api-keys/{}", made["key_id"].as_str().expect("an id"));
    assert_eq!(web.delete(&path).await.status, 204);
    list(other).await.error(401, "UNAUTHENTICATED");
    result(&list(key).await);
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_its_call_and_calls_at_once_are_bounded() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::never());
    upstream.always(Reply::new(200).body("x").after_gate(&gate));
    let limits = "[limits]\nrequests_per_account = { free = 1, guru = 1, pro = 1 }\n";
    let gateway = started(reaching(&upstream).tables(limits)).await;
    let params = json!({ "name": "http_get", "arguments": { "url": upstream.base_url() } });
    let call = || {
        let (client, params) = (gateway.client(), params.clone());
        tokio::spawn(async move { ask(&client, "tools/call", params).await })
    };
    let hanging = call();
    upstream.next_request().await;
    hanging.abort();
    let _ = hanging.await;
    patiently(upstream.until_hung_up()).await;

    let waiting = call();
    patiently(gate.reached()).await;
    let answer = ask(&gateway.client(), "tools/call", params.clone()).await;
    answer.error(429, "TOO_MANY_AT_ONCE");
    // A list costs no turn.
    result(&ask(&gateway.client(), "tools/list", json!({})).await);
    gate.open();
    result(&waiting.await.expect("it is answered"));
}

#[tokio::test]
async fn a_call_by_itself_reaches_the_integrations_that_agents_may_name() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::new(200).body("It rains."));
    let tables = format!(
        "[integrations.crm]\nbase_url = \"{}\"\nprivate = true\n",
        upstream.base_url()
    );
    let gateway = started(Gateway::builder().tables(&tables)).await;
    let client = gateway.client();
    let listed = result(&ask(&client, "tools/list", json!({})).await);
    assert_eq!(names(&listed), ["api_call", "http_get", "http_post"]);
    let arguments = json!({ "integration": "crm", "path": "/items" });
    let params = json!({ "name": "api_call", "arguments": arguments });
    let called = result(&ask(&client, "tools/call", params).await);
    assert_eq!(called["isError"], false, "{called}");
    assert_eq!(upstream.next_request().await.path, "/items");
}
