//! Tenants are apart: whatever endpoint one uses, with whatever id, nothing of another's is seen, used, charged or changed.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{Answer, Client, Gateway, Reply, Upstream, chat};

/// What an endpoint has to do with tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Says the same to all who may call it.
    Common,
    /// About its caller, whom nothing in the request names.
    Own,
    /// About what an id names, which must be its caller's.
    OwnById,
    /// About what an id names, of which each tenant has their own.
    OwnByName,
    /// About what its body names, which must be its caller's, a web user's. `tasks.rs` and
    /// `task_credentials.rs` show it.
    OwnByBody,
    /// Of a browser that is signed in to the console, whatever else it sends. `console.rs` shows it, for ids, too.
    BySession,
}

/// Every endpoint that tenants may call. What is shown for each kind is below.
const CASES: [(&str, Kind); 81] = [
    ("POST /chat", Kind::Own),
    ("POST /code", Kind::Own),
    ("POST /v1/chat/completions", Kind::Own),
    ("POST /v1/responses", Kind::Own),
    ("POST /v1/images/generations", Kind::Own),
    ("POST /v1/images/edits", Kind::Own),
    ("POST /v1/messages", Kind::Own),
    ("POST /v1/messages/count_tokens", Kind::Common),
    ("GET /models", Kind::Common),
    ("GET /v1/models", Kind::Common),
    ("GET /v1/models/{*id}", Kind::Common),
    ("GET /health", Kind::Common),
    ("GET /health/ready", Kind::Common),
    ("GET /metrics", Kind::Common),
    ("GET /openapi.json", Kind::Common),
    ("POST /api-keys", Kind::Own),
    ("GET /api-keys", Kind::Own),
    ("DELETE /api-keys/{key_id}", Kind::OwnById),
    ("PUT /api-keys/{key_id}/budgets", Kind::OwnById),
    ("GET /webhooks/secret", Kind::Own),
    ("GET /usage/me", Kind::Own),
    ("GET /usage/export", Kind::Own),
    ("GET /usage/requests", Kind::Own),
    ("GET /usage/requests/{request_id}", Kind::OwnById),
    ("GET /billing/transactions", Kind::Own),
    ("POST /billing/redeem", Kind::Own),
    ("POST /billing/sync-balance", Kind::Own),
    ("POST /billing/checkout", Kind::Own),
    ("POST /billing/topup", Kind::Own),
    ("POST /billing/portal", Kind::Own),
    ("GET /billing/notices", Kind::Own),
    ("GET /billing/auto-topup", Kind::Own),
    ("PUT /billing/auto-topup", Kind::Own),
    // Nobody's but the payment processor's.
    ("POST /billing/webhook", Kind::Common),
    ("POST /swarms", Kind::Own),
    ("GET /swarms", Kind::Own),
    ("GET /swarms/templates", Kind::Common),
    ("GET /swarms/{execution_id}", Kind::OwnById),
    ("DELETE /swarms/{execution_id}", Kind::OwnById),
    ("POST /swarms/{execution_id}/cancel", Kind::OwnById),
    ("GET /swarms/{execution_id}/events", Kind::OwnById),
    ("POST /mcp", Kind::Own),
    ("POST /api/agent/tasks", Kind::Own),
    ("GET /api/agent/tasks", Kind::Own),
    ("GET /api/agent/tasks/{task_id}", Kind::OwnById),
    ("PUT /api/agent/tasks/{task_id}", Kind::OwnById),
    ("DELETE /api/agent/tasks/{task_id}", Kind::OwnById),
    ("POST /api/agent/encrypt-credential", Kind::OwnByBody),
    ("POST /api/agent/delete-credential", Kind::OwnByBody),
    ("POST /api/agent/trigger-execution", Kind::OwnByBody),
    ("GET /session/{id}/history", Kind::OwnByName),
    ("DELETE /session/{id}", Kind::OwnByName),
    ("GET /", Kind::Common),
    ("GET /docs", Kind::Common),
    ("GET /console", Kind::BySession),
    ("GET /console/usage", Kind::BySession),
    ("GET /console/requests", Kind::BySession),
    ("GET /console/requests/{request_id}", Kind::BySession),
    ("GET /console/keys", Kind::BySession),
    ("POST /console/keys", Kind::BySession),
    ("GET /console/keys/made", Kind::BySession),
    ("POST /console/keys/{key_id}/revoke", Kind::BySession),
    ("GET /console/money", Kind::BySession),
    ("POST /console/money/plan", Kind::BySession),
    ("POST /console/money/top-up", Kind::BySession),
    ("POST /console/money/portal", Kind::BySession),
    ("POST /console/money/voucher", Kind::BySession),
    ("POST /console/money/auto-top-up", Kind::BySession),
    ("GET /console/swarms", Kind::BySession),
    ("POST /console/swarms", Kind::BySession),
    ("GET /console/swarms/{execution_id}", Kind::BySession),
    ("GET /console/swarms/{execution_id}/state", Kind::BySession),
    ("GET /console/swarms/{execution_id}/events", Kind::BySession),
    (
        "POST /console/swarms/{execution_id}/cancel",
        Kind::BySession,
    ),
    ("GET /console/assets/{name}", Kind::Common),
    ("GET /console/sign-in", Kind::Common),
    ("POST /console/sign-in", Kind::Common),
    ("POST /console/sign-in/development", Kind::Common),
    ("POST /console/sign-in/link", Kind::Common),
    ("POST /console/sign-out", Kind::BySession),
    ("GET /console/{*path}", Kind::Common),
];

/// What operators' endpoints begin with: all of them are closed to tenants.
const OPERATORS: &str = "/admin/";

/// What services' begin with, on a port that tenants do not reach.
const SERVICES: &str = "/internal/";

/// What is no tenant's: the above, what the admin socket alone has, and the pages of development mode, which has but one.
const NOT_TENANTS: [&str; 5] = [OPERATORS, SERVICES, "/local/", "/dev/", "/console/admin"];

/// Those of them that are at the executor's port: `swarms.rs` and `tasks.rs` show that they are closed.
const EXECUTORS: [&str; 2] = ["/internal/agent/swarm", "/internal/agent/execute"];

/// What is no id, or nobody's.
const BAD_IDS: [&str; 10] = [
    "key_0",
    "0",
    "%00",
    "%ff%fe",
    "..%2f..%2fadmin",
    "'%20OR%20'1'='1",
    "%F0%9F%90%A2",
    "null",
    "-1",
    "%25s%25n",
];

/// The endpoints that the router has, each by its method and its path.
fn endpoints() -> BTreeSet<(String, String)> {
    let routers = [
        include_str!("../../host/weir/src/router.rs"),
        include_str!("../../host/weir/src/console/router.rs"),
    ];
    let routes = routers
        .iter()
        .flat_map(|router| router.split(".route(").skip(1));
    let mut found = BTreeSet::new();
    for route in routes {
        let path = route.split('"').nth(1).expect("a path");
        // The handlers, as far as the route's own parenthesis goes.
        let mut depth = 1;
        let end = route.find(|character| {
            depth += match character {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            depth == 0
        });
        let route = &route[..end.expect("a route ends")];
        // Behind the path, whose words are no methods.
        let handlers = route.rsplit('"').next().unwrap_or_default();
        for method in ["get", "post", "put", "delete", "patch", "any"] {
            let words =
                handlers.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
            if words.into_iter().any(|word| word == method) {
                found.insert((method.to_uppercase(), path.to_owned()));
            }
        }
    }
    found
}

#[test]
fn every_endpoint_has_its_case() {
    let known: BTreeSet<_> = CASES
        .iter()
        .map(|(endpoint, _)| (*endpoint).to_owned())
        .collect();
    let found: BTreeSet<_> = endpoints()
        .into_iter()
        .filter(|(_, path)| !NOT_TENANTS.iter().any(|begin| path.starts_with(begin)))
        .map(|(method, path)| format!("{method} {path}"))
        .collect();
    assert_eq!(
        found, known,
        "say here what a new endpoint has to do with tenants"
    );
}

/// A tenant: a web user, and a key that they made.
struct Tenant {
    web: Client,
    key_id: String,
    raw_key: String,
    client: Client,
    user_id: String,
}

impl Tenant {
    async fn new(gateway: &Gateway, name: &str) -> Self {
        let web = gateway.web(name);
        let made = web.post("/api-keys", &json!({ "name": name })).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let made = made.json();
        let text = |field: &str| made[field].as_str().expect("a text").to_owned();
        Self {
            client: gateway.stranger().with_key(&text("api_key")),
            user_id: gateway.web_user_id(name).await,
            key_id: text("key_id"),
            raw_key: text("api_key"),
            web,
        }
    }

    /// All that is theirs, as they are shown it.
    async fn state(&self) -> Value {
        let balance = self.client.post("/billing/sync-balance", &json!({})).await;
        assert_eq!(balance.status, 200, "{}", balance.text());
        let mut balance = balance.json();
        balance["synced_at"].take();
        let mut keys = self.web.get("/api-keys").await.json();
        for key in keys["api_keys"].as_array_mut().expect("a list") {
            key["last_used_at"].take();
        }
        json!([balance, keys])
    }

    /// Whether any of an answer is theirs.
    fn is_in(&self, answer: &Answer) -> bool {
        let text = answer.text() + &format!("{:?}", answer.headers);
        [
            &self.key_id,
            &self.raw_key,
            &self.user_id,
            &self.raw_key[4..16].to_owned(),
        ]
        .iter()
        .any(|theirs| text.contains(theirs.as_str()))
    }
}

fn fill(path: &str, id: &str) -> String {
    let mut filled = String::new();
    for (index, part) in path.split('/').enumerate() {
        if index > 0 {
            filled.push('/');
        }
        filled.push_str(if part.starts_with('{') { id } else { part });
    }
    filled
}

async fn send(client: &Client, method: &str, path: &str) -> Answer {
    let method: Method = method.parse().expect("a method");
    let body = match method {
        Method::GET | Method::DELETE => Bytes::new(),
        _ => Bytes::from("{}"),
    };
    client
        .send(method, path, Some("application/json"), body)
        .await
}

#[tokio::test]
async fn what_is_for_operators_is_closed_to_tenants_whatever_they_name() {
    let gateway = Gateway::start().await;
    let alice = Tenant::new(&gateway, "alice").await;
    let mallory = Tenant::new(&gateway, "mallory").await;
    let admin = gateway.admin("root").await;
    let (before, plugins) = (
        alice.state().await,
        admin.get("/admin/plugins/demo").await.json(),
    );
    let digest = plugins["active"].as_str().unwrap_or_default().to_owned();
    let mut ids = vec![
        "demo",
        &alice.key_id,
        &alice.user_id,
        &mallory.user_id,
        &digest,
    ];
    ids.extend(&BAD_IDS[..3]);
    ids.retain(|id| !id.is_empty());
    let mut refused = 0;
    let operators = endpoints()
        .into_iter()
        .filter(|(_, path)| path.starts_with(OPERATORS));
    for (method, path) in operators {
        for id in &ids {
            let path = fill(&path, id);
            for (client, status) in [(&mallory.client, 401), (&mallory.web, 403)] {
                let answer = send(client, &method, &path).await;
                // Media types and ids are not looked at for who may not ask.
                assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
                assert!(!alice.is_in(&answer), "{method} {path}: {}", answer.text());
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{refused}");
    assert_eq!(alice.state().await, before);
    let after = admin.get("/admin/plugins/demo").await.json();
    assert_eq!(after, plugins, "nothing was changed");
}

#[tokio::test]
async fn an_id_is_good_for_its_own_tenant_and_as_long_as_it_is_there() {
    let gateway = Gateway::start().await;
    let alice = Tenant::new(&gateway, "alice").await;
    let mallory = Tenant::new(&gateway, "mallory").await;
    let asked = alice.client.post("/chat", &chat("demo", "x")).await;
    let request_id = asked.headers["x-request-id"].to_str().expect("ASCII");
    let own = format!("/usage/requests/{request_id}");
    assert_eq!(alice.client.get(&own).await.json()["id"], request_id);
    let before = alice.state().await;
    for (endpoint, _) in CASES.iter().filter(|(_, kind)| *kind == Kind::OwnById) {
        let (method, path) = endpoint.split_once(' ').expect("a method and a path");
        let long = "x".repeat(4_000);
        let theirs = [
            &*alice.key_id,
            request_id,
            &alice.raw_key,
            &alice.user_id,
            "alice",
            &long,
        ];
        for id in theirs.into_iter().chain(BAD_IDS) {
            let answer = send(&mallory.web, method, &fill(path, id)).await;
            assert!(
                matches!(answer.status.as_u16(), 400 | 404),
                "{endpoint} {id}: {}",
                answer.text()
            );
            // Another's id is refused as one that nobody has.
            if id == alice.key_id || id == request_id {
                let nobodys = fill(path, &id.replace(&id[id.len() - 4..], "0000"));
                let (theirs, nobodys) = (
                    answer.json(),
                    send(&mallory.web, method, &nobodys).await.json(),
                );
                assert_eq!(theirs["error"]["message"], nobodys["error"]["message"]);
                assert_eq!(theirs["error"]["code"], nobodys["error"]["code"]);
            }
        }
        if method == "GET" || !path.starts_with("/api-keys") {
            continue;
        }
        // Their own key is no proof of being them.
        let by_key = send(&alice.client, method, &fill(path, &alice.key_id)).await;
        by_key.error(401, "UNAUTHENTICATED");
    }
    assert_eq!(alice.state().await, before);
    assert_eq!(alice.client.get("/models").await.status, 200);

    // Gone is gone, for who had it and for others.
    let path = format!("/api-keys/{}", mallory.key_id);
    assert_eq!(mallory.web.delete(&path).await.status, 204);
    for client in [&mallory.web, &alice.web] {
        let again = client.delete(&path).await;
        assert!(
            matches!(again.status.as_u16(), 204 | 404),
            "{}",
            again.text()
        );
    }
    for (endpoint, kind) in CASES {
        let (method, path) = endpoint.split_once(' ').expect("a method and a path");
        if kind == Kind::Own {
            send(&mallory.client, method, path)
                .await
                .error(401, "UNAUTHENTICATED");
        }
    }
}

#[tokio::test]
async fn an_answer_is_about_its_caller_and_charged_to_them() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("for you", 100, 100));
    let gateway = Gateway::with_upstream(&upstream).await;
    let alice = Tenant::new(&gateway, "alice").await;
    let mallory = Tenant::new(&gateway, "mallory").await;
    let before = alice.state().await;
    let mut asked = chat("scripted", "x");
    asked["tools"] = json!([{ "type": "function", "function": { "name": "f" } }]);
    for path in ["/chat", "/code", "/v1/chat/completions"] {
        let theirs = mallory.state().await;
        let mut named = asked.clone();
        named["user"] = json!(alice.user_id);
        let client = mallory
            .client
            .clone()
            .with_header("x-request-id", &alice.user_id);
        assert_eq!(client.post(path, &named).await.content(), "for you");
        assert_ne!(mallory.state().await, theirs, "who asks pays");
        // What names a payer is for services.
        for field in ["user_id", "account", "account_id", "task_id"] {
            let mut named = asked.clone();
            named[field] = json!(alice.user_id);
            let refused = mallory.client.post(path, &named).await;
            refused.error(400, "UNSUPPORTED_PARAMETER");
        }
        // Another's key id in the other header names nobody.
        let two_proofs = mallory
            .client
            .clone()
            .with_header("x-api-key", &alice.key_id);
        let theirs = mallory.state().await;
        assert_eq!(two_proofs.post(path, &asked).await.status, 200);
        assert_ne!(mallory.state().await, theirs, "whose key it is pays");
    }
    for report in ["/usage/requests", "/usage/me?group=key"] {
        let answer = mallory.web.get(report).await;
        assert_eq!(answer.status, 200);
        assert!(answer.text().contains(&mallory.key_id));
        assert!(!alice.is_in(&answer), "{}", answer.text());
        let join = if report.contains('?') { '&' } else { '?' };
        for named in [
            format!("user_id={}", alice.user_id),
            "user=alice".to_owned(),
        ] {
            let refused = mallory.web.get(&format!("{report}{join}{named}")).await;
            refused.error(400, "INVALID_REQUEST");
        }
    }
    // Another's key is no key, as one that nobody has.
    for key in [&*alice.key_id, "key_0000000000000000"] {
        let refused = mallory.web.get(&format!("/usage/requests?key={key}")).await;
        let error = refused.error(400, "INVALID_REQUEST");
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| text.starts_with("The key does not exist"))
        );
    }
    for path in ["/api-keys", "/usage/me"] {
        let answer = mallory.web.get(path).await;
        assert_eq!(answer.status, 200);
        assert!(!alice.is_in(&answer), "{}", answer.text());
        let named = format!("{path}?user_id={}&user={0}", alice.user_id);
        assert_eq!(mallory.web.get(&named).await.text(), answer.text());
    }
    let answer = mallory
        .client
        .post(
            "/billing/sync-balance",
            &json!({ "user_id": alice.user_id }),
        )
        .await;
    assert!(!alice.is_in(&answer), "{}", answer.text());
    let named = json!({ "name": "x", "user_id": alice.user_id });
    let made = mallory.web.post("/api-keys", &named).await;
    made.error(400, "INVALID_REQUEST");
    assert_eq!(alice.state().await, before);
}

#[tokio::test]
async fn an_idempotency_key_of_one_tenant_is_another_ones_own() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let alice = Tenant::new(&gateway, "alice").await;
    let mallory = Tenant::new(&gateway, "mallory").await;
    let keyed = |tenant: &Tenant| tenant.client.clone().with_header("idempotency-key", "1");
    upstream.will(Reply::chat("for alice"));
    let question = chat("scripted", "x");
    let answer = keyed(&alice).post("/chat", &question).await;
    assert_eq!(answer.content(), "for alice");
    // A request that fails gives nothing away, and leaves nothing behind.
    upstream
        .will(Reply::error(400, "no"))
        .will(Reply::chat("for mallory"));
    let failed = keyed(&mallory).post("/chat", &question).await;
    failed.error(400, "UPSTREAM_REJECTED");
    let answer = keyed(&mallory).post("/chat", &question).await;
    assert_eq!(answer.content(), "for mallory");
    for (tenant, content) in [(&alice, "for alice"), (&mallory, "for mallory")] {
        let again = keyed(tenant).post("/chat", &question).await;
        assert_eq!(again.headers["idempotency-replayed"], "true");
        assert_eq!(again.content(), content);
    }
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn a_name_means_something_else_to_each_tenant() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("a secret"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let alice = Tenant::new(&gateway, "alice").await;
    let mallory = Tenant::new(&gateway, "mallory").await;
    let mut question = chat("scripted", "x");
    question["session_id"] = json!("shared");
    assert_eq!(alice.client.post("/chat", &question).await.status, 200);
    let history = "/session/shared/history";
    let hers = alice.client.get(history).await.text();
    assert!(hers.contains("a secret"), "{hers}");
    for (endpoint, _) in CASES.iter().filter(|(_, kind)| *kind == Kind::OwnByName) {
        let (method, path) = endpoint.split_once(' ').expect("a method and a path");
        for client in [&mallory.client, &mallory.web] {
            let theirs = send(client, method, &fill(path, "shared")).await;
            theirs.error(404, "NOT_FOUND");
            for id in BAD_IDS {
                let answer = send(client, method, &fill(path, id)).await;
                assert!(
                    matches!(answer.status.as_u16(), 400 | 404),
                    "{endpoint} {id}: {}",
                    answer.text()
                );
            }
        }
        let stranger = send(&gateway.stranger(), method, &fill(path, "shared")).await;
        stranger.error(401, "UNAUTHENTICATED");
    }
    assert_eq!(alice.web.get(history).await.text(), hers);
    // What they have under that name is theirs.
    assert_eq!(mallory.client.post("/chat", &question).await.status, 200);
    let deleted = mallory.client.delete("/session/shared").await;
    assert_eq!(deleted.status, 204);
    assert_eq!(alice.client.get(history).await.text(), hers);
}

#[tokio::test]
async fn a_create_that_fails_leaves_nothing_behind() {
    let gateway = Gateway::start().await;
    let alice = Tenant::new(&gateway, "alice").await;
    let bad = [
        json!({ "name": "" }),
        json!({ "name": 1 }),
        json!({ "name": "x".repeat(300) }),
        json!({ "name": "a\nb" }),
        json!({ "name": "x", "key_id": alice.key_id }),
        json!([]),
    ];
    let before = alice.state().await;
    for body in &bad {
        alice
            .web
            .post("/api-keys", body)
            .await
            .error(400, "INVALID_REQUEST");
    }
    alice
        .client
        .post("/api-keys", &json!({}))
        .await
        .error(401, "UNAUTHENTICATED");
    assert_eq!(alice.state().await, before);
    while alice.web.post("/api-keys", &json!({})).await.status == 201 {}
    let full = alice.state().await;
    alice
        .web
        .post("/api-keys", &json!({}))
        .await
        .error(429, "KEY_LIMIT_REACHED");
    assert_eq!(alice.state().await, full);
    // No key of a request that failed is good for anything: as many work as are listed.
    assert_eq!(full[1]["api_keys"].as_array().expect("a list").len(), 10);
}

/// Services charge whom they name, so that tenants must not pass for one.
#[tokio::test]
async fn what_is_for_services_is_closed_to_tenants() {
    let gateway = Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .start()
        .await;
    let alice = Tenant::new(&gateway, "alice").await;
    let mallory = Tenant::new(&gateway, "mallory").await;
    let before = alice.state().await;
    let mut body = chat("demo", "x");
    body["user_id"] = json!(alice.user_id);
    let services = endpoints()
        .into_iter()
        .filter(|(_, path)| path.starts_with(SERVICES) && !EXECUTORS.contains(&&**path));
    for (_, path) in services {
        let path = &*path;
        for client in [&mallory.client, &mallory.web] {
            client.post(path, &body).await.error(404, "NOT_FOUND");
            let inside = client.at(gateway.internal().address());
            inside.post(path, &body).await.error(401, "UNAUTHENTICATED");
        }
        let other_scope = gateway.service(&["plugins:write"]).post(path, &body).await;
        other_scope.error(403, "MISSING_SCOPE");
        let service = gateway.service(&["model:call"]);
        for (user_id, status, code) in [
            (json!("usr_nobody"), 404, "UNKNOWN_USER"),
            (json!(""), 400, "INVALID_REQUEST"),
            (json!(7), 400, "INVALID_REQUEST"),
            (json!("x\0y"), 400, "INVALID_REQUEST"),
            (Value::Null, 400, "INVALID_REQUEST"),
        ] {
            body["user_id"] = user_id;
            service.post(path, &body).await.error(status, code);
        }
    }
    assert_eq!(alice.state().await, before);
}
