//! Tenants are isolated: no endpoint shows, uses, charges or changes a record of another tenant, for any id.
//!
//! The endpoints and their relations to tenants are the rows of the routers, so a new endpoint is tested without an edit
//! here.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::api::{endpoints, fill};
use tests::{Answer, Client, Gateway, Reply, Upstream, chat};
use weir_identity::endpoints::{Access, Endpoint, Tenancy};

/// Endpoints of the executor's port: `swarms.rs` and `tasks.rs` test that they reject tenants.
const EXECUTORS: [&str; 2] = ["/internal/agent/swarm", "/internal/agent/execute"];

/// Invalid ids, and ids without a record.
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

/// The endpoints with this relation to tenants.
fn of_kind(wanted: Tenancy) -> Vec<Endpoint> {
    let found: Vec<_> = endpoints()
        .into_iter()
        .filter(|row| row.tenancy == wanted)
        .collect();
    assert!(!found.is_empty(), "no endpoint is {wanted:?}");
    found
}

#[test]
fn only_endpoints_with_a_looser_check_deviate_from_their_path() {
    // Elsewhere: `tasks.rs` and `task_credentials.rs` test bodies, `console.rs` sessions, `scim.rs` directories.
    for row in endpoints() {
        let has_id = row.path.contains('{');
        let fits = match row.tenancy {
            Tenancy::OwnById | Tenancy::OwnByName => has_id,
            Tenancy::Own => !has_id,
            Tenancy::OwnByBody => row.access == Access::Gated,
            Tenancy::BySession => matches!(row.access, Access::Session(_)),
            Tenancy::Common => !matches!(row.access, Access::Web(_) | Access::Person),
            Tenancy::Closed => !matches!(row.access, Access::User(_) | Access::Web(_)),
        };
        assert!(fits, "{}: {:?}", row.name(), row.tenancy);
    }
}

/// A tenant: a web user with an API key.
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

    /// The balance and keys of the tenant.
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

    /// Whether a response has any id or key of the tenant.
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
    let is_for_operators = |row: &Endpoint| {
        let is_on_port = !row.path.starts_with("/local/");
        is_on_port && matches!(row.access, Access::Admin | Access::Operator)
    };
    for endpoint in endpoints().into_iter().filter(is_for_operators) {
        let method = endpoint.method_name();
        for id in &ids {
            let path = fill(&endpoint.path, id);
            for (client, status) in [(&mallory.client, 401), (&mallory.web, 403)] {
                let answer = send(client, method, &path).await;
                // weir checks the caller before media types and ids.
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
    for endpoint in of_kind(Tenancy::OwnById) {
        let (name, method, path) = (endpoint.name(), endpoint.method_name(), &endpoint.path);
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
                "{name} {id}: {}",
                answer.text()
            );
            // The error for the id of another tenant is the error for an id without a record.
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
        // A key may not revoke itself or change its budgets.
        let by_key = send(&alice.client, method, &fill(path, &alice.key_id)).await;
        by_key.error(401, "UNAUTHENTICATED");
    }
    assert_eq!(alice.state().await, before);
    assert_eq!(alice.client.get("/models").await.status, 200);

    // A revoked key stays revoked, for its owner and for others.
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
    for endpoint in of_kind(Tenancy::Own) {
        let refused = send(&mallory.client, endpoint.method_name(), &endpoint.path).await;
        assert_eq!(refused.status, 401, "{}", endpoint.name());
        refused.error(401, "UNAUTHENTICATED");
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
        // Only services may name the payer.
        for field in ["user_id", "account", "account_id", "task_id"] {
            let mut named = asked.clone();
            named[field] = json!(alice.user_id);
            let refused = mallory.client.post(path, &named).await;
            refused.error(400, "UNSUPPORTED_PARAMETER");
        }
        // The key id of another tenant is no credential.
        let two_proofs = mallory
            .client
            .clone()
            .with_header("x-api-key", &alice.key_id);
        let theirs = mallory.state().await;
        assert_eq!(two_proofs.post(path, &asked).await.status, 200);
        assert_ne!(mallory.state().await, theirs, "whose key it is pays");
    }
    for endpoint in of_kind(Tenancy::Own) {
        if endpoint.method == Some(Method::GET) {
            for client in [&mallory.web, &mallory.client] {
                let answer = send(client, endpoint.method_name(), &endpoint.path).await;
                let name = endpoint.name();
                assert!(!alice.is_in(&answer), "{name}: {}", answer.text());
            }
        }
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
    // A key id of another tenant is as unknown as an id without a key.
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
async fn common_responses_are_equal_for_all_tenants() {
    let gateway = Gateway::builder().swarms().start().await;
    let alice = Tenant::new(&gateway, "alice").await;
    let mallory = Tenant::new(&gateway, "mallory").await;
    let mut compared = 0;
    for endpoint in of_kind(Tenancy::Common) {
        let takes_callers = matches!(endpoint.access, Access::User(_));
        if takes_callers && endpoint.method == Some(Method::GET) {
            let path = fill(&endpoint.path, "demo");
            let [hers, theirs] = [&alice, &mallory].map(|tenant| tenant.client.get(&path));
            let (hers, theirs) = (hers.await, theirs.await);
            assert_eq!(hers.status, 200, "{path}: {}", hers.text());
            assert_eq!(hers.text(), theirs.text(), "{path}");
            compared += 1;
        }
    }
    assert!(compared >= 6, "{compared}");
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
    // A failed request discloses nothing and stores no response.
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
    for endpoint in of_kind(Tenancy::OwnByName) {
        let (name, method, path) = (endpoint.name(), endpoint.method_name(), &endpoint.path);
        for client in [&mallory.client, &mallory.web] {
            let theirs = send(client, method, &fill(path, "shared")).await;
            theirs.error(404, "NOT_FOUND");
            for id in BAD_IDS {
                let answer = send(client, method, &fill(path, id)).await;
                assert!(
                    matches!(answer.status.as_u16(), 400 | 404),
                    "{name} {id}: {}",
                    answer.text()
                );
            }
        }
        let stranger = send(&gateway.stranger(), method, &fill(path, "shared")).await;
        stranger.error(401, "UNAUTHENTICATED");
    }
    assert_eq!(alice.web.get(history).await.text(), hers);
    // Each tenant has its own session of this name.
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
    // A failed request made no key.
    assert_eq!(full[1]["api_keys"].as_array().expect("a list").len(), 10);
}

/// A service names the user that it charges, so no tenant may pass for a service.
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
    let is_of_api =
        |row: &Endpoint| row.access == Access::Service && !EXECUTORS.contains(&&*row.path);
    for endpoint in endpoints().into_iter().filter(is_of_api) {
        let path = &*endpoint.path;
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
