//! Other services, at the internal port.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::gateway::USER;
use tests::issuer::key_set;
use tests::oidc::{AUDIENCE, CALLER, ROBOT, STRANGER};
use tests::{Gateway, OidcServer, Reply, SigningKey, Upstream, chat};
use weir_identity::dev_issuer::{DevAudience, SERVICE_EMAIL};
use weir_storage::clock::{ManualClock, Millis};

use crate::clocks::grant_month;
use crate::swarms::{agent, run, swarm};

const CODE: &str = "/internal/agent/code";

async fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .upstream("scripted", upstream)
        .start()
        .await
}

/// A chat request that a user pays for.
fn chat_for(user: &str, model: &str) -> Value {
    let mut body = chat(model, "hello");
    body["user_id"] = user.into();
    body
}

#[tokio::test]
async fn a_service_calls_a_model_for_a_user() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let service = gateway.service(&["model:call"]);
    let answer = service.post(CODE, &chat_for(USER, "demo")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        answer.json()["choices"][0]["message"]["content"],
        "You said: hello"
    );
    let stream = service.stream(CODE, &chat_for(USER, "demo")).await;
    assert_eq!(stream.status, 200);
    assert!(stream.is_whole().await);
}

#[tokio::test]
async fn what_proves_no_service_is_refused() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let issuer = gateway.issuer();
    let now = gateway.app().clock.now();
    let token = |audience, scopes: &[&str]| {
        let token = issuer.service_token(audience, SERVICE_EMAIL, scopes, now);
        token.expect("a token can be minted").expose().to_owned()
    };
    let web = issuer.web_tokens("alice", now).expect("tokens");
    let body = chat_for(USER, "scripted");
    let internal = || gateway.internal();
    for client in [
        internal(),
        internal().with_key(gateway.key()),
        internal().with_header("x-api-key", gateway.key()),
        internal().with_key(web.identity.expose()),
        internal()
            .with_key(web.identity.expose())
            .with_header("x-identity-appcheck", web.attestation.expose()),
        internal().with_key(&token(DevAudience::Executor, &["model:call"])),
        internal().with_key("a.b.c"),
    ] {
        client.post(CODE, &body).await.error(401, "UNAUTHENTICATED");
    }
    for scopes in [
        &[][..],
        &["swarm:run"],
        &["model:calls"],
        &["plugins:write"],
    ] {
        let client = internal().with_key(&token(DevAudience::Api, scopes));
        client.post(CODE, &body).await.error(403, "MISSING_SCOPE");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn the_user_who_pays_must_be_named_and_known() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let service = gateway.service(&["model:call"]);
    let unknown = service.post(CODE, &chat_for("nobody", "scripted")).await;
    assert_eq!(unknown.error(404, "UNKNOWN_USER")["param"], "user_id");
    for user in [json!(null), json!(7), json!(["alice"]), json!("a\u{0}b")] {
        let mut body = chat_for(USER, "scripted");
        body["user_id"] = user;
        let refused = service.post(CODE, &body).await;
        assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], "user_id");
    }
    let refused = service.post(CODE, &chat("scripted", "hello")).await;
    assert_eq!(refused.error(400, "INVALID_REQUEST")["param"], "user_id");
    for body in ["", "[]", "{", "7"] {
        let json = Some("application/json");
        let refused = service
            .send(Method::POST, CODE, json, Bytes::from(body))
            .await;
        refused.error(400, "INVALID_REQUEST");
    }
    let again = service.post(CODE, &chat_for("nobody", "scripted")).await;
    again.error(404, "UNKNOWN_USER");
    let users: i64 = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM users")
        .fetch_one(gateway.app().database.reader())
        .await
        .expect("an answer");
    assert_eq!(users, 1, "asking for a user does not make one");
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn code_needs_a_model_that_calls_tools() {
    let upstream = Upstream::start().await;
    let table = "[models.mute]\ncontext_window = 1000\nmax_output_tokens = 100\n\
                 default_output_tokens = 100\nupstreams = [{ provider = \"scripted\" }]\n\
                 price = { input = 1, output = 2 }\n";
    let gateway = Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .upstream("scripted", &upstream)
        .tables(table)
        .start()
        .await;
    let service = gateway.service(&["model:call"]);
    for answer in [
        gateway.client().post("/code", &chat("mute", "hello")).await,
        service.post(CODE, &chat_for(USER, "mute")).await,
    ] {
        assert_eq!(answer.error(400, "MODEL_NOT_SUPPORTED")["param"], "model");
    }
    assert_eq!(upstream.count(), 0);
    let answer = gateway.client().post("/code", &chat("demo", "hello")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn neither_port_serves_what_belongs_to_the_other() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let body = chat_for(USER, "demo");
    let service = gateway.service(&["model:call"]);
    gateway
        .client()
        .post(CODE, &body)
        .await
        .error(404, "NOT_FOUND");
    for path in ["/models", "/health", "/api-keys"] {
        service.get(path).await.error(404, "NOT_FOUND");
    }
    let answer = service.get(CODE).await;
    answer.error(405, "METHOD_NOT_ALLOWED");
}

/// A gateway that accepts the tokens of an issuer with this key, with these tables under `identity`.
async fn taking(issuer: &str, key: &SigningKey, tables: &str) -> (Gateway, Upstream) {
    let keys = Upstream::start().await;
    keys.always(Reply::json(200, &key_set([key])));
    let table = format!(
        "[identity.service]\nissuer = {issuer:?}\naudience = \"https://api.example\"\njwks_url = {:?}\n{tables}",
        keys.base_url()
    );
    let gateway = Gateway::builder()
        .settings("dev = false\ninternal_listen = \"127.0.0.1:0\"")
        .tables(&table)
        .start()
        .await;
    (gateway, keys)
}

/// Google's identity tokens of service accounts have no scopes.
#[tokio::test]
async fn a_google_service_account_has_the_scopes_that_the_configuration_gives_it() {
    let key = SigningKey::generate("c1e5a7", "RS256");
    let issuer = "https://accounts.google.com";
    let executor = "executor@example-project.iam.gserviceaccount.com";
    let other = "other@example-project.iam.gserviceaccount.com";
    let services = format!(
        "[[identity.services]]\nemail = {executor:?}\nscopes = [\"model:call\", \"swarm:run\"]\n\
         [[identity.services]]\nemail = {other:?}\nscopes = [\"plugins:write\"]\n"
    );
    let (gateway, _keys) = taking(issuer, &key, &services).await;
    let now = Millis::now().seconds();
    let token = |email: &str, verified: bool, audience: &str| {
        key.token(&json!({
            "aud": audience, "azp": "108765432109876543210", "email": email, "email_verified": verified,
            "exp": now + 3_599, "iat": now - 1, "iss": issuer, "sub": "108765432109876543210",
        }))
    };
    let api = "https://api.example";
    let ask = async |token: String| {
        let client = gateway.internal().with_key(&token);
        client.post(CODE, &chat_for(USER, "demo")).await
    };
    let answer = ask(token(executor, true, api)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    ask(token(other, true, api))
        .await
        .error(403, "MISSING_SCOPE");
    let plugins = gateway.internal().with_key(&token(other, true, api));
    assert_eq!(plugins.get("/admin/plugins").await.status, 200);
    let stranger = "stranger@other-project.iam.gserviceaccount.com";
    for refused in [
        token(executor, false, api),
        token(stranger, true, api),
        token(executor, true, "https://other.example"),
    ] {
        ask(refused).await.error(401, "UNAUTHENTICATED");
    }
}

/// Projected tokens of Kubernetes' service accounts have neither scopes nor an e-mail address, and no `typ`.
#[tokio::test]
async fn a_kubernetes_service_account_is_known_by_its_subject() {
    let key = SigningKey::generate("s7dGqUcNKkR3bWJlP2yXg", "RS256");
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let subject = |name: &str| format!("system:serviceaccount:agents:{name}");
    let services = format!(
        "[[identity.services]]\nsubject = {:?}\nscopes = [\"model:call\"]\n\
         [[identity.services]]\nsubject = {:?}\nscopes = [\"plugins:write\"]\n",
        subject("executor"),
        subject("deployer")
    );
    let (gateway, _keys) = taking(issuer, &key, &services).await;
    let now = Millis::now().seconds();
    let token = |name: &str, email: Value| {
        let mut claims = json!({
            "aud": ["https://api.example", issuer],
            "exp": now + 3_607,
            "iat": now,
            "iss": issuer,
            "jti": "f2a7c0f3-6b1e-4d8e-9c57-2f6f0f2d8b11",
            "kubernetes.io": {
                "namespace": "agents",
                "node": { "name": "node-1", "uid": "c0ffee00-9f7a-4a1c-8e0b-0a1b2c3d4e5f" },
                "pod": { "name": format!("{name}-7c9f8d6b5-x2x4z"), "uid": "0b7d6a54-1f1e-4d43-8a1d-5e6f7a8b9c0d" },
                "serviceaccount": { "name": name, "uid": "5a1d9b1c-3c8e-4e6f-9f0a-1b2c3d4e5f60" },
                "warnafter": now + 3_600,
            },
            "nbf": now,
            "sub": subject(name),
        });
        if !email.is_null() {
            claims["email"] = email;
        }
        let header = json!({ "alg": "RS256", "kid": "s7dGqUcNKkR3bWJlP2yXg" });
        key.token_of(&header.to_string(), &claims.to_string())
    };
    let ask = async |token: String| {
        let client = gateway.internal().with_key(&token);
        client.post(CODE, &chat_for(USER, "demo")).await
    };
    let answer = ask(token("executor", Value::Null)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let deployer = token("deployer", Value::Null);
    ask(deployer.clone()).await.error(403, "MISSING_SCOPE");
    let plugins = gateway.internal().with_key(&deployer);
    assert_eq!(plugins.get("/admin/plugins").await.status, 200);
    for stranger in [
        token("default", Value::Null),
        // An unverified address counts as none.
        token("default", subject("executor").into()),
    ] {
        ask(stranger).await.error(401, "UNAUTHENTICATED");
    }
}

/// An executor sends the requests of many users from one address.
#[tokio::test]
async fn services_are_neither_limited_nor_locked_out() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .tables("[rate_limits]\nfree = 3\naddress = 3\n")
        .upstream("scripted", &upstream)
        .start()
        .await;
    let service = gateway.service(&["model:call"]);
    for _ in 0..20 {
        let wrong = gateway.internal().with_key("a.b.c");
        let refused = wrong.post(CODE, &chat_for(USER, "demo")).await;
        refused.error(401, "UNAUTHENTICATED");
        let answer = service.post(CODE, &chat_for(USER, "demo")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let answer = gateway.client().get("/models").await;
    assert_eq!(answer.status, 200, "their failures count for nobody");
    for _ in 0..4 {
        gateway.client().get("/models").await;
    }
    let limited = gateway.client().get("/models").await;
    limited.error(429, "RATE_LIMITED");
    let answer = service.post(CODE, &chat_for(USER, "demo")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

const EXECUTOR: &str = "https://executor.example";

/// A gateway that accepts the tokens of a server, from two of its clients.
async fn trusting(server: &OidcServer, clock: &ManualClock, more: &str) -> Gateway {
    let (issuer, robot, caller) = (server.issuer(), ROBOT.email, CALLER.email);
    let table = format!(
        "[identity.service]\nissuer = {issuer:?}\naudience = {AUDIENCE:?}\n\
         executor_audience = {EXECUTOR:?}\nallowed_emails = [{robot:?}, {caller:?}]\n{more}"
    );
    Gateway::builder()
        .settings("dev = false\ninternal_listen = \"127.0.0.1:0\"")
        .tables(&table)
        .clock(clock)
        .start()
        .await
}

#[tokio::test]
async fn tokens_of_a_real_issuer_are_taken_and_its_new_keys_found() {
    let mut server = OidcServer::start();
    let clock = ManualClock::at(Millis::now());
    let gateway = trusting(&server, &clock, "").await;
    let ask = async |token: &str| {
        let client = gateway.internal().with_key(token);
        client.post(CODE, &chat_for(USER, "demo")).await
    };
    for client in [ROBOT, CALLER] {
        let answer = ask(&server.token(client, "model:call").await).await;
        assert_eq!(answer.status, 200, "{}: {}", client.id, answer.text());
    }
    let refused = ask(&server.token(STRANGER, "model:call").await).await;
    refused.error(401, "UNAUTHENTICATED");
    let elsewhere = server.token_for(EXECUTOR, ROBOT, "model:call").await;
    ask(&elsewhere).await.error(401, "UNAUTHENTICATED");
    for scope in ["", "swarm:run"] {
        let lacking = ask(&server.token(ROBOT, scope).await).await;
        lacking.error(403, "MISSING_SCOPE");
    }

    let before = server.token(ROBOT, "model:call").await;
    assert_eq!(ask(&before).await.status, 200);
    server.rotate();
    let after = server.token(ROBOT, "model:call").await;
    clock.advance(Duration::from_secs(30));
    let answer = ask(&after).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    ask(&before).await.error(401, "UNAUTHENTICATED");
    clock.advance(Duration::from_secs(600 + 61));
    ask(&after).await.error(401, "UNAUTHENTICATED");
}

/// The calls of an executor: it gets a token of its own, and calls the API with it.
#[tokio::test]
async fn weir_gets_tokens_of_a_real_issuer_that_weir_takes() {
    let server = OidcServer::start();
    let clock = ManualClock::at(Millis::now());
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, ROBOT.secret).expect("it can be written");
    let outgoing = format!(
        "[identity.outgoing.client_credentials]\ntoken_url = {:?}\nclient_id = {:?}\n\
         client_secret = {{ file = {secret:?} }}\nscope = \"model:call\"\n",
        server.token_url(),
        ROBOT.id
    );
    let gateway = trusting(&server, &clock, &outgoing).await;
    let source = gateway.app().swarms.service_tokens.clone();
    let token = source.token().await.expect("a token");
    let client = gateway.internal().with_key(token.expose());
    let answer = client.post(CODE, &chat_for(USER, "demo")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn swarms_run_in_production_without_an_issuer() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat("Rivers rise."));
    let gateway = Gateway::builder()
        .settings("dev = false")
        .swarms()
        .upstream("scripted", &upstream)
        .start()
        .await;
    grant_month(&gateway).await;
    let record = run(&gateway.client(), &swarm(&[agent("scout")])).await;
    assert_eq!(record["status"], "completed", "{record}");
}

#[tokio::test]
async fn nodes_accept_tokens_of_nodes_with_their_sealing_key() {
    let clock = ManualClock::at(Millis::now());
    let node = || {
        Gateway::builder()
            .settings("dev = false\ninternal_listen = \"127.0.0.1:0\"")
            .clock(&clock)
    };
    let first = node().swarms().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let stranger = node().start().await;
    let token = first.app().swarms.service_tokens.token().await;
    let token = token.expect("a token");
    let ask = async |gateway: &Gateway| {
        let client = gateway.internal().with_key(token.expose());
        client.post(CODE, &chat_for(USER, "demo")).await
    };
    for gateway in [&first, &second] {
        let answer = ask(gateway).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    ask(&stranger).await.error(401, "UNAUTHENTICATED");
    // It proves neither a user nor a service with other scopes.
    let public = second.stranger().with_key(token.expose());
    public.get("/models").await.error(401, "UNAUTHENTICATED");
    let plugins = public.get("/admin/plugins").await;
    assert_eq!(plugins.status, 401, "{}", plugins.text());
    clock.advance(Duration::from_secs(60));
    ask(&second).await.error(401, "UNAUTHENTICATED");
}
