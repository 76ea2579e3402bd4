//! Scopes of API keys: a key with the scope `inference` calls and lists models, and reads nothing of its user.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::api::fill;
use tests::{Client, Gateway, Reply, Upstream, chat};
use weir_identity::endpoints::{Access, Endpoint};
use weir_identity::roles::Permission;

use crate::billing::is_settled;
use crate::organisations::{Organisation, endpoints_of_accounts, text};

/// Sends a request to each endpoint of accounts. Returns the endpoints with the statuses and errors.
async fn codes(client: &Client, organisation: &str) -> Vec<(Endpoint, u16, Value)> {
    let mut codes = Vec::new();
    for (endpoint, _) in endpoints_of_accounts() {
        let path = endpoint.path.replace("{organisation_id}", organisation);
        let path = fill(&path, "0000000000000000000000000000abcd");
        let method = endpoint.method.clone().expect("a method");
        let body = match method {
            Method::GET | Method::DELETE => Bytes::new(),
            _ => Bytes::from("{}"),
        };
        let answer = client
            .send(method, &path, Some("application/json"), body)
            .await;
        let error = match answer.status.is_success() {
            true => Value::Null,
            false => answer.json()["error"].clone(),
        };
        codes.push((endpoint, answer.status.as_u16(), error));
    }
    codes
}

#[tokio::test(flavor = "multi_thread")]
async fn inference_keys_only_call_and_list_models() {
    let gateway = Gateway::builder().swarms().start().await;
    let acme = Organisation::new(&gateway, "olivia", 100).await;
    let inference = json!({ "scope": "inference" });
    let made = gateway.web("olivia").post("/api-keys", &inference).await;
    let personal = gateway.stranger().with_key(&text(&made.json(), "api_key"));
    let (shared, _) = acme.key("olivia", inference).await;
    for client in [&personal, &shared] {
        let (mut served, mut refused) = (0, 0);
        for (row, status, error) in codes(client, &acme.id).await {
            let name = row.name();
            let is_beyond = status == 403 && error["code"] == "MISSING_SCOPE";
            match row.access {
                Access::User(Permission::Infer | Permission::ListModels) => {
                    assert!(
                        !is_beyond && !error.to_string().contains("scope"),
                        "{name}: {error}"
                    );
                    served += 1;
                }
                Access::User(_) => {
                    assert!(is_beyond, "{name}: {error}");
                    assert_eq!(error["required_scope"], "full", "{name}: {error}");
                    refused += 1;
                }
                // The endpoint takes no keys at all.
                _ => assert_eq!(
                    (status, &error["code"]),
                    (401, &json!("UNAUTHENTICATED")),
                    "{name}"
                ),
            }
        }
        assert!(served > 20 && refused > 20, "{served} {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_keys_read_everything_but_the_webhook_secret() {
    let gateway = Gateway::builder().swarms().start().await;
    let acme = Organisation::new(&gateway, "olivia", 100).await;
    let (full, _) = acme.key("olivia", json!({ "scope": "full" })).await;
    for client in [&full, &gateway.client()] {
        for (row, status, error) in codes(client, &acme.id).await {
            let name = row.name();
            assert_ne!(error["code"], "MISSING_SCOPE", "{name}");
            let takes_no_key = status == 401 && error["code"] == "UNAUTHENTICATED";
            assert_eq!(takes_no_key, matches!(row.access, Access::Web(_)), "{name}");
        }
    }
    let by_person = acme.acting("olivia").get("/webhooks/secret").await;
    assert_eq!(by_person.status, 200, "{}", by_person.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_of_an_organisation_is_for_inference_and_old_keys_are_full() {
    let gateway = Gateway::start().await;
    let acme = Organisation::new(&gateway, "olivia", 100).await;
    let scope = async |client: &Client, body: Value| {
        let made = client.post("/api-keys", &body).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let made = made.json();
        let listed = client.get("/api-keys").await.json();
        let listed = listed["api_keys"].as_array().expect("a list").clone();
        let key = listed.iter().find(|key| key["key_id"] == made["key_id"]);
        assert_eq!(key.expect("the key")["scope"], made["scope"]);
        text(&made, "scope")
    };
    let (web, acting) = (gateway.web("olivia"), acme.acting("olivia"));
    assert_eq!(scope(&web, json!({})).await, "full");
    assert_eq!(scope(&acting, json!({})).await, "inference");
    assert_eq!(scope(&acting, json!({ "scope": "full" })).await, "full");
    for wrong in [json!("all"), json!(1)] {
        let refused = web.post("/api-keys", &json!({ "scope": wrong })).await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], "scope");
    }
    // The column of a key from an earlier release has its default.
    let admin = gateway.admin("root").await;
    let keys = admin.get("/admin/keys").await.json();
    let keys = keys["keys"].as_array().expect("a list").clone();
    let scopes = keys
        .iter()
        .map(|key| (key["user_id"] == acme.id, key["scope"].clone()));
    assert!(scopes.clone().any(|key| key == (true, json!("inference"))));
    assert!(scopes.clone().any(|key| key == (false, json!("full"))));
    let made = admin
        .post(
            "/admin/keys",
            &json!({ "user_id": "ci", "name": "n", "scope": "inference" }),
        )
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let ci = gateway.stranger().with_key(&text(&made.json(), "api_key"));
    ci.get("/usage/me").await.error(403, "MISSING_SCOPE");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inference_key_reads_no_session_of_its_user() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("the secret of olivia"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let acme = Organisation::new(&gateway, "olivia", 100).await;
    let (full, _) = acme.key("olivia", json!({})).await;
    let (limited, _) = acme.key("olivia", json!({ "scope": "inference" })).await;
    let mut question = chat("scripted", "What did I say?");
    question["session_id"] = json!("s1");
    let asked = full.post("/chat", &question).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    is_settled(&gateway).await;
    let asked = limited.post("/chat", &question).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    is_settled(&gateway).await;
    let sent = upstream.requests().last().expect("a request").json();
    assert!(!sent.to_string().contains("the secret of olivia"), "{sent}");
    // Its own session continues.
    assert_eq!(limited.post("/chat", &question).await.status, 200);
    let sent = upstream.requests().last().expect("a request").json();
    assert!(sent.to_string().contains("the secret of olivia"), "{sent}");
    // A stored response of the user is unknown to the key.
    let body = json!({ "model": "scripted", "input": "x", "store": true });
    let first = full.post("/v1/responses", &body).await;
    assert_eq!(first.status, 200, "{}", first.text());
    is_settled(&gateway).await;
    let next =
        json!({ "model": "scripted", "input": "y", "previous_response_id": first.json()["id"] });
    assert_eq!(full.post("/v1/responses", &next).await.status, 200);
    let refused = limited.post("/v1/responses", &next).await;
    assert!(refused.status.is_client_error(), "{}", refused.text());
}
