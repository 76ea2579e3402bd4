//! Each endpoint accepts the credentials that the OpenAPI document names, and rejects every other caller.

use bytes::Bytes;
use serde_json::{Value, json};
use tests::api::{self, OperationName};
use tests::{Client, Gateway, chat, weirs_code};
use weir_identity::dev_issuer::DevAudience;
use weir_identity::store;

/// A kind of caller, and the security schemes that it satisfies.
struct Kind {
    name: &'static str,
    /// A client with the credentials of this kind.
    client: Client,
    satisfies: &'static [&'static str],
    /// The error for this kind if the operation accepts its scheme.
    refusal: Option<(u16, &'static str)>,
}

/// The statuses for a request without an accepted credential.
const UNPROVEN: [u16; 3] = [401, 403, 404];

async fn kinds(gateway: &Gateway) -> Vec<Kind> {
    const KEY: &[&str] = &["apiKey", "bearerKey"];
    const WEB: &[&str] = &["identityToken", "attestationToken"];
    let app = gateway.app();
    let key = gateway.key().to_owned();
    let expired = gateway.expired_key("alice").await;
    let bob = gateway.web("bob");
    let made = bob.post("/api-keys", &json!({})).await.json();
    let revoked = made["api_key"].as_str().expect("a key").to_owned();
    assert_eq!(
        gateway
            .stranger()
            .with_key(&revoked)
            .get("/models")
            .await
            .status,
        200
    );
    let path = format!("/api-keys/{}", made["key_id"].as_str().expect("an id"));
    assert_eq!(bob.delete(&path).await.status, 204);
    let admin = gateway.admin("root").await;
    let mallory = gateway.web_user_id("mallory").await;
    let of_disabled = gateway.web_key("mallory").await;
    let disabled = admin
        .post(&format!("/admin/users/{mallory}/disable"), &json!({}))
        .await;
    assert!(disabled.status.is_success(), "{}", disabled.text());
    let service = |audience: DevAudience, scopes: &[&str]| {
        let token = gateway.issuer().service_token(
            audience,
            weir_identity::dev_issuer::SERVICE_EMAIL,
            scopes,
            app.clock.now(),
        );
        gateway
            .stranger()
            .with_key(token.expect("a token").expose())
    };
    let kind = |name, client, satisfies, refusal| Kind {
        name,
        client,
        satisfies,
        refusal,
    };
    let stranger = || gateway.stranger();
    let jwt = gateway
        .issuer()
        .web_tokens("bob", app.clock.now())
        .expect("tokens");
    vec![
        kind("stranger", stranger(), &[], None),
        kind(
            "key in X-Api-Key",
            stranger().with_header("x-api-key", &key),
            KEY,
            None,
        ),
        kind(
            "key in X-Goog-Api-Key",
            stranger().with_header("x-goog-api-key", &key),
            KEY,
            None,
        ),
        kind("key as bearer token", stranger().with_key(&key), KEY, None),
        kind(
            "key beside another provider's key",
            stranger()
                .with_key(&key)
                .with_header("x-api-key", "sk-ant-api03-another"),
            KEY,
            None,
        ),
        kind(
            "key beside another provider's bearer token",
            stranger()
                .with_key("sk-another")
                .with_header("x-api-key", &key),
            KEY,
            None,
        ),
        kind(
            "key beside a revoked one",
            stranger().with_key(&key).with_header("x-api-key", &revoked),
            KEY,
            None,
        ),
        kind(
            "key beside one of a disabled user",
            stranger()
                .with_key(&key)
                .with_header("x-api-key", &of_disabled),
            KEY,
            None,
        ),
        kind(
            "expired key",
            stranger().with_key(&expired),
            KEY,
            Some((401, "UNAUTHENTICATED")),
        ),
        kind(
            "revoked key",
            stranger().with_key(&revoked),
            KEY,
            Some((401, "UNAUTHENTICATED")),
        ),
        kind(
            "two keys that do not work",
            stranger()
                .with_key(&revoked)
                .with_header("x-api-key", &expired),
            KEY,
            Some((401, "UNAUTHENTICATED")),
        ),
        kind(
            "key of a disabled user",
            stranger().with_key(&of_disabled),
            KEY,
            Some((403, "USER_DISABLED")),
        ),
        kind(
            "another provider's key",
            stranger().with_key("sk-another"),
            &[],
            None,
        ),
        kind("web user", bob.clone(), WEB, None),
        kind(
            "web user without an attestation",
            stranger().with_key(jwt.identity.expose()),
            &[],
            None,
        ),
        kind(
            "web user who is disabled",
            gateway.web("mallory"),
            WEB,
            Some((403, "USER_DISABLED")),
        ),
        kind(
            "administrator",
            admin,
            &["identityToken", "attestationToken", "admin"],
            None,
        ),
        kind(
            "service of the API",
            service(DevAudience::Api, &["model:call", "plugins:write"]),
            &["serviceToken", "api"],
            None,
        ),
        kind(
            "service without a scope",
            service(DevAudience::Api, &[]),
            &["serviceToken", "api"],
            Some((403, "MISSING_SCOPE")),
        ),
        kind(
            "service of the executor",
            service(DevAudience::Executor, &["swarm:run"]),
            &["serviceToken", "executor"],
            None,
        ),
    ]
}

/// Whether an operation accepts the credentials of a caller.
fn may_call(operation: &Value, path: &str, kind: &Kind, listener: &str) -> bool {
    let Some(proofs) = operation["security"].as_array() else {
        return true;
    };
    let has = |scheme: &str| kind.satisfies.contains(&scheme);
    let mut proofs = proofs
        .iter()
        .map(|proof| proof.as_object().expect("schemes"));
    proofs.any(|schemes| {
        let is_for_services = schemes.contains_key("serviceToken");
        let is_for_web = schemes.contains_key("identityToken");
        let audience = if listener == "executor" {
            "executor"
        } else {
            "api"
        };
        schemes.keys().all(|scheme| has(scheme))
            && (!is_for_services || has(audience))
            && (!is_for_web || !path.starts_with("/admin/") || has("admin"))
    })
}

/// Sends the credentials and an invalid body, so that no request changes anything.
async fn call(client: &Client, endpoint: &OperationName, takes_body: bool) -> tests::Answer {
    let path = api::fill(&endpoint.path, "nothing");
    let method = endpoint.method.parse().expect("a method");
    let (content_type, body) = match takes_body {
        true => (
            Some("application/json"),
            Bytes::from_static(b"{\"no-such-field\":1}"),
        ),
        false => (None, Bytes::new()),
    };
    client.send(method, &path, content_type, body).await
}

/// The code of an error, in any dialect.
fn code(answer: &tests::Answer) -> String {
    let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else {
        return String::new();
    };
    let code = weirs_code(&body["error"]).as_str();
    code.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_every_kind_of_caller_as_the_document_says() {
    // Development mode has no lockouts, and lets commands call the functions of web pages.
    let gateway = Gateway::builder()
        .swarms()
        .settings("cors_origins = [\"http://app.example\"]")
        .start()
        .await;
    gateway.set_plan("pro").await;
    let kinds = kinds(&gateway).await;
    let listeners = [
        ("public", gateway.stranger()),
        ("internal", gateway.internal()),
        (
            "executor",
            gateway.executor_service(DevAudience::Executor, &[]),
        ),
    ];
    let mut checked = 0;
    for (listener, at) in &listeners {
        let document = api::document(at).await;
        for (endpoint, operation) in api::operations(&document) {
            // The signature of the payment processor covers the body; `payments.rs` tests it.
            if operation["security"][0].get("paymentSignature").is_some() {
                continue;
            }
            let takes_body = operation["requestBody"].is_object();
            for kind in &kinds {
                let mut client = kind.client.at(at.address());
                let path = &*endpoint.path;
                let is_of_web_app =
                    path.starts_with("/api/agent/") && !path.starts_with("/api/agent/tasks");
                if is_of_web_app {
                    client = client.with_header("origin", "http://app.example");
                }
                let answer = call(&client, &endpoint, takes_body).await;
                let what = format!(
                    "{listener}: {} by {}: {}",
                    endpoint.name(),
                    kind.name,
                    answer.text()
                );
                let (status, code) = (answer.status.as_u16(), code(&answer));
                let documented = operation["responses"].get(answer.status.as_str());
                assert!(documented.is_some(), "{status} is not documented: {what}");
                let refused_for_want =
                    ["UNAUTHENTICATED", "ATTESTATION_INVALID", "FORBIDDEN"].contains(&&*code);
                match (may_call(operation, path, kind, listener), kind.refusal) {
                    (true, Some((status, code_of_kind))) if operation["security"].is_array() => {
                        assert_eq!(
                            (status, code_of_kind),
                            (answer.status.as_u16(), &*code),
                            "{what}"
                        );
                    }
                    (true, _) => {
                        assert!(!refused_for_want && code != "USER_DISABLED", "{what}");
                        assert_ne!(status, 500, "{what}");
                    }
                    (false, _) => {
                        assert!(UNPROVEN.contains(&status), "{what}");
                        assert!(
                            refused_for_want
                                || ["USER_DISABLED", "MISSING_SCOPE"].contains(&&*code),
                            "{what}"
                        );
                    }
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 1_500, "{checked}");
}

/// A foreign credential beside a valid key does not count toward the lockout. Without a valid key, it does.
#[tokio::test]
async fn a_valid_key_beside_another_proof_counts_as_no_failure() {
    let gateway = Gateway::builder()
        .settings("dev = false\ntrusted_proxies = []")
        .start()
        .await;
    let key = gateway.key();
    let strange = ["sk-ant-api03-another", "inf_mistyped"];
    for _ in 0..4 {
        for other in strange {
            for (in_key, bearer) in [(other, key), (key, other)] {
                let client = gateway
                    .stranger()
                    .with_key(bearer)
                    .with_header("x-api-key", in_key);
                assert_eq!(
                    client.post("/chat", &chat("demo", "Hello")).await.status,
                    200
                );
            }
        }
    }
    // After 16 of them, the address is not locked out: a key that is not yet in the cache works from there.
    let another = store::create_key(
        &gateway.app().database,
        &gateway.app().identity.key_peppers,
        "bob",
        "new",
        false,
        None,
        gateway.app().clock.now(),
    );
    let another = another.await.expect("a key");
    assert_eq!(
        gateway
            .stranger()
            .with_key(another.expose())
            .get("/models")
            .await
            .status,
        200
    );
    let wrong = gateway
        .stranger()
        .with_key("sk-one")
        .with_header("x-api-key", "sk-two");
    for _ in 0..10 {
        wrong.get("/models").await.error(401, "UNAUTHENTICATED");
    }
    wrong.get("/models").await.error(429, "LOCKED_OUT");
}

/// A second credential is ambiguous, unless it is a valid API key of weir.
#[tokio::test]
async fn a_web_user_with_a_key_of_another_provider_is_refused() {
    let gateway = Gateway::start().await;
    let both = gateway
        .web("bob")
        .with_header("x-api-key", "sk-ant-api03-another");
    both.get("/models").await.error(401, "UNAUTHENTICATED");
}

/// The key in `X-Api-Key` pays if both headers have valid keys.
#[tokio::test]
async fn of_two_valid_keys_the_one_in_x_api_key_is_used() {
    let gateway = Gateway::start().await;
    let bob = &*gateway.web_key("bob").await;
    let both = gateway.client().with_header("x-api-key", bob);
    assert_eq!(both.post("/chat", &chat("demo", "Hello")).await.status, 200);
    let asked = async |client: &Client| {
        let list = client.get("/usage/requests").await.json();
        list["requests"].as_array().expect("a list").len()
    };
    assert_eq!(asked(&gateway.stranger().with_key(bob)).await, 1);
    assert_eq!(asked(&gateway.client()).await, 0);
}
