//! Authentication: web users, their keys, and the limits on both.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::gateway::USER;
use tests::issuer::key_set;
use tests::stores::{Postgres, Redis};
use tests::{Client, Gateway, Reply, SigningKey, Upstream, chat};
use weir_identity::api_key::RawKey;
use weir_identity::store;
use weir_request::audit::{Actor, retention};
use weir_storage::clock::{ManualClock, Millis};

async fn new_key(client: &Client, name: &str) -> Value {
    let answer = client.post("/api-keys", &json!({ "name": name })).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

fn with_key(gateway: &Gateway, key: &Value) -> Client {
    gateway
        .stranger()
        .with_key(key["api_key"].as_str().expect("a raw key"))
}

#[tokio::test]
async fn a_web_user_makes_lists_and_revokes_keys() {
    let gateway = Gateway::start().await;
    let alice = gateway.web("alice");
    let key = new_key(&alice, "laptop").await;
    assert_eq!(key["name"], "laptop");
    let raw = key["api_key"].as_str().expect("a raw key");
    assert!(raw.starts_with("inf_"));
    let caller = with_key(&gateway, &key);
    assert_eq!(caller.get("/models").await.status, 200);
    assert_eq!(caller.post("/chat", &chat("demo", "hi")).await.status, 200);
    gateway
        .app()
        .identity
        .last_used
        .flush(&gateway.app().database)
        .await
        .expect("a write");

    let list = alice.get("/api-keys").await;
    let item = &list.json()["api_keys"][0];
    assert_eq!(item["key_id"], key["key_id"]);
    assert_eq!(item["disabled"], false);
    assert!(item["last_used_at"].is_string(), "{item}");
    let prefix = item["prefix"].as_str().expect("a prefix");
    assert!(raw.starts_with(prefix) && prefix.len() < 16);
    assert!(
        !list.text().contains(&raw[..24]),
        "a list never shows a key"
    );
    let days = |field: &str| -> jiff::Timestamp {
        item[field]
            .as_str()
            .expect("a time")
            .parse()
            .expect("ISO 8601")
    };
    assert_eq!(
        days("expires_at")
            .duration_since(days("created_at"))
            .as_hours(),
        90 * 24
    );

    let path = format!("/api-keys/{}", key["key_id"].as_str().expect("an id"));
    assert_eq!(alice.delete(&path).await.status, 204);
    caller.get("/models").await.error(401, "UNAUTHENTICATED");
    assert_eq!(
        alice.get("/api-keys").await.json()["api_keys"][0]["disabled"],
        true
    );
    assert_eq!(alice.delete(&path).await.status, 204, "again");
}

#[tokio::test]
async fn a_key_has_the_default_name_and_a_bad_name_changes_nothing() {
    let gateway = Gateway::start().await;
    let alice = gateway.web("alice");
    let none = alice
        .send(http::Method::POST, "/api-keys", None, bytes::Bytes::new())
        .await;
    assert_eq!(none.json()["name"], "Default");
    for (bad, field) in [
        (json!({ "name": "" }), json!("name")),
        (json!({ "name": 7 }), json!("name")),
        (json!({ "nam": "x" }), json!("nam")),
        (json!("x"), json!(null)),
    ] {
        let error = alice
            .post("/api-keys", &bad)
            .await
            .error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], field);
    }
    assert_eq!(
        alice.get("/api-keys").await.json()["api_keys"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn another_users_key_is_not_found_and_stays() {
    let postgres = Postgres::shared().create_database().await;
    for builder in [Gateway::builder(), Gateway::builder().postgres(&postgres)] {
        tenants_are_apart(builder.start().await).await;
    }
}

async fn tenants_are_apart(gateway: Gateway) {
    let (alice, mallory) = (gateway.web("alice"), gateway.web("mallory"));
    let key = new_key(&alice, "laptop").await;
    let path = format!("/api-keys/{}", key["key_id"].as_str().expect("an id"));
    mallory.delete(&path).await.error(404, "NOT_FOUND");
    for path in [
        "/api-keys/nope",
        "/api-keys/key_0",
        "/api-keys/%00",
        "/api-keys/key_00000000000000%00",
        "/api-keys/%27%20OR%201=1",
        "/api-keys/%ff",
    ] {
        let answer = mallory.delete(path).await;
        assert!(
            [400, 404].contains(&answer.status.as_u16()),
            "{path}: {}",
            answer.text()
        );
    }
    assert_eq!(mallory.get("/api-keys").await.json()["api_keys"], json!([]));
    assert_eq!(with_key(&gateway, &key).get("/models").await.status, 200);
}

#[tokio::test]
async fn a_key_makes_no_keys() {
    let gateway = Gateway::start().await;
    let key = gateway.client();
    key.post("/api-keys", &json!({}))
        .await
        .error(401, "UNAUTHENTICATED");
    key.get("/api-keys").await.error(401, "UNAUTHENTICATED");
    key.delete("/api-keys/key_0")
        .await
        .error(401, "UNAUTHENTICATED");
}

#[tokio::test]
async fn both_tokens_are_needed_and_neither_passes_for_the_other() {
    let gateway = Gateway::start().await;
    let issuer = gateway.issuer();
    let tokens = issuer.web_tokens("alice", Millis::now()).expect("tokens");
    let (identity, attestation) = (tokens.identity.expose(), tokens.attestation.expose());
    let present = |bearer: Option<&str>, appcheck: Option<&str>| {
        let mut client = gateway.stranger();
        if let Some(bearer) = bearer {
            client = client.with_header("authorization", &format!("Bearer {bearer}"));
        }
        if let Some(appcheck) = appcheck {
            client = client.with_header("x-identity-appcheck", appcheck);
        }
        client
    };
    for client in [
        present(Some(identity), None),
        present(None, Some(attestation)),
        present(Some(identity), Some(identity)),
        present(Some(attestation), Some(attestation)),
        present(Some(attestation), Some(identity)),
        present(Some(identity), Some("")),
        present(Some("a.b.c"), Some(attestation)),
    ] {
        client.get("/models").await.error(401, "UNAUTHENTICATED");
    }
    assert_eq!(
        present(Some(identity), Some(attestation))
            .get("/models")
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn at_most_ten_keys_are_active_however_many_are_asked_for_at_once() {
    let gateway = Gateway::start().await;
    let alice = gateway.web("alice");
    assert_eq!(alice.get("/models").await.status, 200);
    // On a slow disk, some wait for longer than the database's time limit.
    let answers = join_all((0..25).map(|_| async {
        loop {
            let answer = alice.post("/api-keys", &json!({})).await;
            if answer.status != 503 {
                break answer;
            }
        }
    }))
    .await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 10);
    for refused in answers.iter().filter(|answer| answer.status != 201) {
        refused.error(429, "KEY_LIMIT_REACHED");
        assert_eq!(refused.headers["x-should-retry"], "false");
    }
    let keys = alice.get("/api-keys").await.json();
    let id = keys["api_keys"][0]["key_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_eq!(alice.delete(&format!("/api-keys/{id}")).await.status, 204);
    new_key(&alice, "in its place").await;
}

/// A user who creates and revokes keys in a loop does not fill the database.
#[tokio::test]
async fn a_user_makes_at_most_a_hundred_keys_a_day() {
    let clock = ManualClock::at(Millis::now());
    let gateway = Gateway::builder().clock(&clock).start().await;
    let alice = || gateway.web("alice");
    for number in 0..100 {
        let key = new_key(&alice(), &number.to_string()).await;
        let id = key["key_id"].as_str().expect("an id");
        assert_eq!(alice().delete(&format!("/api-keys/{id}")).await.status, 204);
    }
    let refused = alice().post("/api-keys", &json!({})).await;
    refused.error(429, "KEY_LIMIT_REACHED");
    new_key(&gateway.web("bob"), "another's").await;
    clock.advance(Duration::from_secs(24 * 3_600));
    new_key(&alice(), "the next day").await;
}

#[tokio::test]
async fn a_caller_is_limited_to_their_plans_rate() {
    let gateway = Gateway::builder()
        .tables("[rate_limits]\nfree = 5\naddress = 1000\n")
        .start()
        .await;
    let client = gateway.client();
    for left in (0..5).rev() {
        let answer = client.get("/models").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.headers["ratelimit-policy"], "\"requests\";q=5;w=60");
        let shown = answer.headers["ratelimit"].to_str().expect("ASCII");
        assert!(
            shown.starts_with(&format!("\"requests\";r={left};t=")),
            "{shown}"
        );
        assert_eq!(answer.headers["x-ratelimit-limit-requests"], "5");
        assert_eq!(
            answer.headers["x-ratelimit-remaining-requests"],
            left.to_string()
        );
        let (_, seconds) = shown.split_once(";t=").expect("seconds");
        assert_eq!(
            answer.headers["x-ratelimit-reset-requests"],
            format!("{seconds}s")
        );
    }
    let refused = client.get("/models").await;
    refused.error(429, "RATE_LIMITED");
    let wait: u64 = refused.headers["retry-after"]
        .to_str()
        .expect("ASCII")
        .parse()
        .expect("seconds");
    assert!((1..=12).contains(&wait), "{wait}");
    assert_eq!(
        gateway.web("bob").get("/models").await.status,
        200,
        "others are not"
    );
    assert_eq!(gateway.stranger().get("/health").await.status, 200);
}

/// Strangers can use up only half of an address's rate.
#[tokio::test]
async fn an_address_is_limited_whoever_calls() {
    let gateway = Gateway::builder()
        .tables("[rate_limits]\naddress = 8\n")
        .start()
        .await;
    let known = gateway.client();
    assert_eq!(known.get("/models").await.status, 200);
    for _ in 0..3 {
        let stranger = gateway.stranger().get("/models").await;
        stranger.error(401, "UNAUTHENTICATED");
    }
    let limited = gateway.stranger().get("/models").await;
    limited.error(429, "RATE_LIMITED");
    for _ in 0..4 {
        assert_eq!(known.get("/models").await.status, 200);
    }
    known.get("/models").await.error(429, "RATE_LIMITED");
}

/// For fifteen minutes, under any forged addresses. No known caller is shut out with it.
#[tokio::test]
async fn the_eleventh_failure_is_locked_out_for_fifteen_minutes() {
    let clock = ManualClock::at(Millis::now());
    let gateway = Gateway::builder()
        .settings("dev = false")
        .clock(&clock)
        .start()
        .await;
    let forged = |n: u32| {
        let address = format!("203.0.113.{n}");
        gateway
            .stranger()
            .with_key("inf_wrong")
            .with_header("x-forwarded-for", &address)
    };
    let known = gateway.client();
    assert_eq!(known.get("/models").await.status, 200);
    for n in 0..10 {
        forged(n).get("/models").await.error(401, "UNAUTHENTICATED");
    }
    for n in 10..30 {
        let answer = forged(n).get("/models").await;
        answer.error(429, "LOCKED_OUT");
        assert_eq!(answer.headers["retry-after"], "900");
        assert_eq!(known.get("/models").await.status, 200);
    }
    let unknown = another_key(&gateway, "unknown").await;
    clock.advance(Duration::from_secs(15 * 60) - Duration::from_millis(1));
    let out = unknown.get("/models").await;
    out.error(429, "LOCKED_OUT");
    assert_eq!(out.headers["retry-after"], "1");
    assert_eq!(gateway.stranger().get("/health").await.status, 200);
    clock.advance(Duration::from_millis(1));
    assert_eq!(unknown.get("/models").await.status, 200);
}

/// A client with a valid key of the tests' default user.
async fn another_key(gateway: &Gateway, name: &str) -> Client {
    let app = gateway.app();
    let now = app.clock.now();
    let made = store::create_key(
        &app.database,
        &app.identity.key_peppers,
        USER,
        name,
        false,
        None,
        now,
    );
    let key = made.await.expect("a key can be made");
    gateway.stranger().with_key(key.expose())
}

/// While strangers continue, the cached record is renewed before it expires.
#[tokio::test]
async fn a_key_in_use_stays_known_while_its_address_is_locked_out() {
    let clock = ManualClock::at(Millis::now());
    let gateway = Gateway::builder()
        .settings("dev = false")
        .clock(&clock)
        .start()
        .await;
    let known = gateway.client();
    assert_eq!(known.get("/models").await.status, 200);
    let mut refused = 0;
    for minute in 0..60 {
        for _ in 0..12 {
            let wrong = gateway.stranger().with_key("inf_wrong");
            refused += u32::from(wrong.get("/models").await.status == 429);
        }
        assert_eq!(known.get("/models").await.status, 200, "minute {minute}");
        clock.advance(Duration::from_secs(60));
    }
    assert!(refused > 600, "{refused}");
    let id = RawKey::parse(gateway.key()).expect("a key");
    weir_identity::revoke(gateway.app(), USER, id.id(), &Actor::user(USER))
        .await
        .expect("it is revoked");
    for _ in 0..12 {
        gateway
            .stranger()
            .with_key("inf_wrong")
            .get("/models")
            .await;
    }
    known.get("/models").await.error(429, "LOCKED_OUT");
}

/// A forgotten job with an expired credential shuts no one out.
#[tokio::test]
async fn what_is_genuine_and_good_no_more_does_not_count() {
    let issuer = Upstream::start().await;
    let key = SigningKey::generate("a", "EdDSA");
    issuer.always(Reply::json(200, &key_set([&key])));
    let table = |name: &str, audience: &str| {
        let keys = issuer.base_url();
        format!(
            "[identity.{name}]\nissuer = \"https://id.example\"\naudience = \"{audience}\"\n\
             jwks_url = \"{keys}\"\nalgorithms = [\"EdDSA\"]\n"
        )
    };
    let service = "allowed_emails = [\"robot@example.iam\"]\n";
    let gateway = Gateway::builder()
        .settings("dev = false")
        .tables(&table("web", "app"))
        .tables(&table("attestation", "check"))
        .tables(&(table("service", "api") + service))
        .start()
        .await;
    let now = Millis::now().seconds();
    let token = |audience: &str, expires: i64, email: &str| {
        key.token(&json!({
            "iss": "https://id.example", "aud": audience, "sub": "alice", "exp": now + expires,
            "email": email, "email_verified": true, "scope": "plugins:write",
        }))
    };
    let web = |identity: &str, attestation: &str| {
        gateway
            .stranger()
            .with_key(identity)
            .with_header("x-identity-appcheck", attestation)
    };
    let (good, old) = (600, -600);
    let email = "robot@example.iam";
    let [identity, attestation] = ["app", "check"].map(|audience| token(audience, good, email));
    let [old_identity, old_attestation] =
        ["app", "check"].map(|audience| token(audience, old, email));
    let app = gateway.app();
    let expired_at = Millis(Millis::now().0 - 91 * 86_400_000);
    let expired = store::create_key(
        &app.database,
        &app.identity.key_peppers,
        USER,
        "old",
        false,
        None,
        expired_at,
    )
    .await
    .expect("a key");
    let now_millis = app.clock.now();
    let revoked = store::create_key(
        &app.database,
        &app.identity.key_peppers,
        USER,
        "revoked",
        false,
        None,
        now_millis,
    )
    .await
    .expect("a key");
    weir_identity::revoke(app, USER, revoked.id(), &Actor::user(USER))
        .await
        .expect("it is revoked");
    let outdated = [
        (gateway.stranger().with_key(expired.expose()), "/models"),
        (gateway.stranger().with_key(revoked.expose()), "/models"),
        (web(&old_identity, &attestation), "/models"),
        (web(&identity, &old_attestation), "/models"),
        (web(&old_identity, &old_attestation), "/models"),
        (
            gateway.stranger().with_key(&token("api", old, email)),
            "/admin/plugins",
        ),
        (
            gateway
                .stranger()
                .with_key(&token("api", good, "other@example")),
            "/admin/plugins",
        ),
    ];
    for round in 0..12 {
        for (client, path) in &outdated {
            let refused = client.get(path).await;
            refused.error(401, "UNAUTHENTICATED");
        }
        assert_eq!(
            web(&identity, &attestation).get("/models").await.status,
            200,
            "{round}"
        );
    }
    // A forged token counts, even beside valid credentials.
    let forged = SigningKey::generate("a", "EdDSA");
    let forged = forged.token(
        &json!({ "iss": "https://id.example", "aud": "app", "sub": "alice", "exp": now + 600 }),
    );
    let same_id = RawKey::generate();
    for statement in [
        "DELETE FROM api_key_hashes WHERE key_id = $2 AND key_id <> $1",
        "UPDATE api_keys SET id = $1 WHERE id = $2",
    ] {
        sqlx::query(statement)
            .bind(same_id.id())
            .bind(revoked.id())
            .execute(app.database.writer())
            .await
            .expect("it is written");
    }
    for _ in 0..5 {
        let forger = gateway.stranger().with_key(same_id.expose());
        forger.get("/models").await.error(401, "UNAUTHENTICATED");
        let refused = web(&forged, &old_attestation).get("/models").await;
        refused.error(401, "UNAUTHENTICATED");
    }
    let out = web(&identity, &attestation).get("/models").await;
    out.error(429, "LOCKED_OUT");
}

/// Development mode serves only this machine.
#[tokio::test]
async fn in_development_mode_this_machine_is_never_locked_out() {
    let gateway = Gateway::builder().tables("[rate_limits]\n").start().await;
    for _ in 0..50 {
        let wrong = gateway.stranger().with_key("inf_wrong");
        wrong.get("/models").await.error(401, "UNAUTHENTICATED");
    }
    let served = gateway.client().get("/models").await;
    assert_eq!(served.status, 200);
    assert_eq!(
        served.headers["ratelimit-policy"],
        "\"requests\";q=6000;w=60"
    );
}

#[tokio::test]
async fn a_disabled_user_can_do_nothing_on_any_node_until_enabled_again() {
    let (postgres, redis) = (Postgres::shared(), Redis::start());
    let database = postgres.create_database().await;
    let node = || {
        Gateway::builder()
            .postgres(&database)
            .redis(&redis.url())
            .settings("internal_listen = \"127.0.0.1:0\"")
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let alice = first.web_user_id("alice").await;
    let keys = [
        new_key(&first.web("alice"), "used").await,
        new_key(&first.web("alice"), "unused").await,
    ];
    let bob = new_key(&first.web("bob"), "bob").await;
    let mut for_alice = chat("demo", "hi");
    for_alice["user_id"] = alice.clone().into();
    let ask = async |index: usize, status: u16| {
        for node in [&first, &second] {
            let as_key = with_key(node, &keys[index]).get("/models").await;
            let in_person = node.web("alice").get("/models").await;
            let service = node.service(&["model:call"]);
            let for_her = service.post("/internal/agent/code", &for_alice).await;
            for answer in [as_key, in_person, for_her] {
                match status {
                    200 => assert_eq!(answer.status, 200, "{}", answer.text()),
                    _ => drop(answer.error(status, "USER_DISABLED")),
                }
            }
            let other = with_key(node, &bob).get("/models").await;
            assert_eq!(other.status, 200, "{}", other.text());
        }
    };
    let by = Actor::local(0);
    let set = async |user: &str, disabled: bool| {
        let set = weir_identity::users::set_disabled(first.app(), user, disabled, &by).await;
        set.expect("the stores answer")
    };
    ask(0, 200).await;
    for _ in 0..2 {
        assert!(set(&alice, true).await);
        ask(0, 403).await;
        ask(1, 403).await;
        assert!(set(&alice, true).await, "again");
        assert!(set(&alice, false).await);
        ask(0, 200).await;
    }
    // A key that was revoked meanwhile stays revoked.
    assert!(set(&alice, true).await);
    let id = keys[1]["key_id"].as_str().expect("an id");
    weir_identity::revoke(first.app(), &alice, id, &by)
        .await
        .expect("it is revoked");
    assert!(set(&alice, false).await);
    for node in [&first, &second] {
        let revoked = with_key(node, &keys[1]).get("/models").await;
        revoked.error(401, "UNAUTHENTICATED");
    }
    for disabled in [true, false] {
        assert!(!set("usr_nobody", disabled).await);
    }
}

/// Ten failures in more than five minutes are a user's typing errors.
#[tokio::test]
async fn failures_are_forgotten_after_five_minutes() {
    let clock = ManualClock::at(Millis::now());
    let gateway = Gateway::builder()
        .settings("dev = false")
        .clock(&clock)
        .start()
        .await;
    for round in 0..3 {
        for _ in 0..9 {
            let wrong = gateway.stranger().with_key("inf_wrong");
            wrong.get("/models").await.error(401, "UNAUTHENTICATED");
        }
        let unknown = another_key(&gateway, &round.to_string()).await;
        let answer = unknown.get("/models").await;
        assert_eq!(answer.status, 200, "round {round}");
        clock.advance(Duration::from_secs(5 * 60));
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_clients_are_told_apart() {
    let gateway = Gateway::builder()
        .settings("dev = false\ntrusted_proxies = [\"127.0.0.0/8\"]")
        .start()
        .await;
    let from = |address: &str, key: &str| {
        gateway
            .stranger()
            .with_key(key)
            .with_header("x-forwarded-for", address)
    };
    for _ in 0..10 {
        from("203.0.113.7", "inf_wrong")
            .get("/models")
            .await
            .error(401, "UNAUTHENTICATED");
    }
    from("203.0.113.7", gateway.key())
        .get("/models")
        .await
        .error(429, "LOCKED_OUT");
    from("203.0.113.8, 203.0.113.7", gateway.key())
        .get("/models")
        .await
        .error(429, "LOCKED_OUT");
    assert_eq!(
        from("203.0.113.8", gateway.key())
            .get("/models")
            .await
            .status,
        200
    );
}

/// A pepper in a file, in the form of the settings.
fn pepper(folder: &TempDir, version: u32, text: &str) -> String {
    let path = folder.path().join(text);
    std::fs::write(&path, text.repeat(16)).expect("it can be written");
    format!("{{ version = {version}, pepper = {{ file = {path:?} }} }},")
}

/// Stops a gateway and starts it again on the same folder, with other peppers.
async fn with_peppers(before: Option<Gateway>, peppers: &str) -> anyhow::Result<Gateway> {
    let builder = match before {
        Some(gateway) => Gateway::builder().folder(gateway.stop().await),
        None => Gateway::builder(),
    };
    builder
        .settings(&format!("api_key_peppers = [{peppers}]"))
        .try_start()
        .await
}

#[tokio::test]
async fn keys_move_to_a_new_pepper_when_they_are_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (pepper(&folder, 1, "old"), pepper(&folder, 2, "new"));
    let gateway = with_peppers(None, &old).await.expect("it starts");
    let alice = gateway.web("alice");
    let used = new_key(&alice, "used").await;
    let unused = new_key(&alice, "unused").await;
    let ask = async |gateway: &Gateway| {
        let client = with_key(gateway, &used);
        assert_eq!(client.post("/chat", &chat("demo", "x")).await.status, 200);
    };
    ask(&gateway).await;

    let both = format!("{new}{old}");
    let gateway = with_peppers(Some(gateway), &both).await.expect("it starts");
    for _ in 0..2 {
        let answer = with_key(&gateway, &used).get("/models").await;
        assert_eq!(answer.status, 200);
    }

    let gateway = with_peppers(Some(gateway), &new).await.expect("it starts");
    ask(&gateway).await;
    let usage = with_key(&gateway, &used).get("/usage/me?group=key").await;
    let by_key = usage.json()["usage"].clone();
    assert_eq!(by_key.as_array().map(Vec::len), Some(1), "{by_key}");
    assert_eq!(by_key[0]["key_id"], used["key_id"], "under either pepper");
    assert_eq!(by_key[0]["requests"], 2);
    with_key(&gateway, &unused)
        .get("/models")
        .await
        .error(401, "UNAUTHENTICATED");
    let id = used["key_id"].as_str().expect("an id");
    let path = format!("/api-keys/{id}");
    assert_eq!(gateway.web("alice").delete(&path).await.status, 204);
    with_key(&gateway, &used)
        .get("/models")
        .await
        .error(401, "UNAUTHENTICATED");

    let other = pepper(&folder, 2, "another");
    let error = with_peppers(Some(gateway), &other).await.err();
    let error = format!("{:#}", error.expect("it does not start"));
    assert!(error.contains("`api_key_peppers`"), "{error}");
    assert!(!error.contains(&"another".repeat(2)), "{error}");
}

/// During a change of the pepper, nodes cache a key under different names.
#[tokio::test]
async fn a_key_is_revoked_on_nodes_of_different_peppers() {
    let (postgres, redis) = (Postgres::shared(), Redis::start());
    let database = postgres.create_database().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (pepper(&folder, 1, "old"), pepper(&folder, 2, "new"));
    let node = |peppers: String| {
        Gateway::builder()
            .postgres(&database)
            .redis(&redis.url())
            .settings(&format!("api_key_peppers = [{peppers}]"))
    };
    let first = node(format!("{old}{new}")).start().await;
    let second = node(format!("{new}{old}"))
        .sharing_secrets_of(&first)
        .start()
        .await;
    let key = new_key(&first.web("alice"), "laptop").await;
    for _ in 0..2 {
        for node in [&first, &second] {
            assert_eq!(with_key(node, &key).get("/models").await.status, 200);
        }
    }
    let path = format!("/api-keys/{}", key["key_id"].as_str().expect("an id"));
    assert_eq!(second.web("alice").delete(&path).await.status, 204);
    for node in [&first, &second] {
        let refused = with_key(node, &key).get("/models").await;
        refused.error(401, "UNAUTHENTICATED");
    }
}

/// For the complete network, by any of its addresses; an address without a lockout cannot be cleared.
#[tokio::test]
async fn administrators_see_and_clear_lockouts() {
    let gateway = Gateway::builder()
        .settings("dev = false\ntrusted_proxies = [\"127.0.0.0/8\"]")
        .start()
        .await;
    let from = |address: &str, key: &str| {
        let client = gateway.stranger().with_key(key);
        client.with_header("x-forwarded-for", address)
    };
    for address in ["203.0.113.7", "2001:db8:1:2:3:4:5:6"] {
        for _ in 0..11 {
            from(address, "inf_wrong").get("/models").await;
        }
    }
    let app = gateway.app();
    let by = Actor::local(0);
    let listed = async || {
        let found = weir_identity::lockout::list(app, 10)
            .await
            .expect("an answer");
        let shown = found
            .into_iter()
            .map(|lockout| (lockout.address, lockout.failures));
        shown.collect::<Vec<_>>()
    };
    let both = [
        ("2001:db8:1:2::".to_owned(), 11),
        ("203.0.113.7".to_owned(), 11),
    ];
    assert_eq!(listed().await, both);
    for (address, is_cleared) in [("203.0.113.8", false), ("2001:db8:1:2::ff", true)] {
        let address = address.parse().expect("an address");
        let cleared = weir_identity::lockout::clear(app, address, &by).await;
        assert_eq!(cleared.expect("an answer"), is_cleared);
    }
    assert_eq!(listed().await, both[1..]);
    let again = from("2001:db8:1:2::1", gateway.key()).get("/models").await;
    assert_eq!(again.status, 200);
    app.audit.flush().await;
    let (out, cleared): (i64, Option<String>) = sqlx::query_as(
        "SELECT (SELECT CAST(SUM(count) AS BIGINT) FROM audit_events WHERE kind = 'address.locked_out'), \
         (SELECT actor FROM audit_events WHERE kind = 'address.lockout_cleared')",
    )
    .fetch_one(app.database.reader())
    .await
    .expect("the events can be read");
    assert_eq!((out, cleared.as_deref()), (2, Some("local:0")));
}

/// Also for rows with a delay, since repeated events are summed up.
#[tokio::test]
async fn security_events_are_listed_the_newest_first_by_the_time_of_each() {
    let gateway = Gateway::start().await;
    let admin = gateway.admin("root").await;
    let alice = gateway.web_user_id("alice").await;
    let list = async |query: &str| {
        let list = admin.get(&format!("/admin/audit?{query}")).await.json();
        let kinds = list["events"].as_array().expect("a list").iter();
        let kind = |event: &Value| event["kind"].as_str().expect("a text").to_owned();
        let kinds = kinds.map(kind).filter(|kind| kind != "user.created");
        (
            kinds.collect::<Vec<_>>(),
            list["next"].as_str().map(str::to_owned),
        )
    };
    let fail = async || {
        let answer = gateway
            .stranger()
            .with_key("inf_wrong")
            .get("/models")
            .await;
        answer.error(401, "UNAUTHENTICATED");
    };
    fail().await;
    let (kinds, _) = list("").await;
    assert_eq!(kinds, ["authentication.failed"]);
    // Summed up, and written after the next event.
    fail().await;
    let failed_at = Millis::now();
    while Millis::now() == failed_at {
        tokio::task::yield_now().await;
    }
    let path = format!("/admin/users/{alice}/disable");
    assert!(admin.post(&path, &json!({})).await.status.is_success());
    let all = [
        "user.disabled",
        "authentication.failed",
        "authentication.failed",
    ];
    assert_eq!(list("").await.0, all);
    // In parts, each event occurs once.
    let (mut seen, mut query) = (Vec::new(), "limit=1".to_owned());
    loop {
        let (kinds, next) = list(&query).await;
        seen.extend(kinds);
        match next {
            Some(next) => query = format!("limit=1&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, all);
}

/// Neither in the audit's table nor in time: for one stranger or a thousand, the first event is written and the rest
/// summed up.
#[tokio::test]
async fn a_stranger_who_goes_on_leaves_a_row_of_each_kind() {
    let gateway = Gateway::builder()
        .settings("dev = false")
        .tables("[rate_limits]\naddress = 40\n")
        .start()
        .await;
    let app = gateway.app();
    let count = async || -> (i64, i64) {
        sqlx::query_as(
            "SELECT CAST(COUNT(*) AS BIGINT), CAST(COALESCE(SUM(count), 0) AS BIGINT) FROM audit_events \
             WHERE kind <> 'user.created'",
        )
            .fetch_one(app.database.reader())
            .await
            .expect("the events can be read")
    };
    let mut asked = 0;
    // Seconds in which each event would be a row, if they were not summed up.
    for _ in 0..3 {
        for _ in 0..30 {
            gateway
                .stranger()
                .with_key("inf_wrong")
                .get("/models")
                .await;
            asked += 1;
        }
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    let (rows, written) = count().await;
    assert!(
        (1..=3).contains(&rows) && written < asked,
        "{rows} rows of {written}"
    );
    app.audit.flush().await;
    let (rows, written) = count().await;
    assert!(rows <= 6, "{rows}");
    // Ten failures, one lockout; later refusals are no events.
    assert_eq!(written, 11);
}

#[tokio::test]
async fn events_older_than_they_are_kept_go_and_others_stay() {
    let postgres = Postgres::shared().create_database().await;
    for builder in [Gateway::builder(), Gateway::builder().postgres(&postgres)] {
        let gateway = builder.start().await;
        let database = &gateway.app().database;
        for (write, read) in [
            (
                "INSERT INTO audit_events (at, count, kind) WITH RECURSIVE x AS \
                 (SELECT 0 AS n UNION ALL SELECT n + 1 FROM x WHERE n < 1202) SELECT n, 1, 'test' FROM x",
                "SELECT at FROM audit_events WHERE kind = 'test' ORDER BY at",
            ),
            (
                "INSERT INTO plugin_events (number, at, slot, kind, actor) WITH RECURSIVE x AS \
                 (SELECT 0 AS n UNION ALL SELECT n + 1 FROM x WHERE n < 1202) \
                 SELECT n + 1000, n, 'test', 'installed', 'test' FROM x",
                "SELECT at FROM plugin_events WHERE slot = 'test' ORDER BY at",
            ),
        ] {
            let written = sqlx::query(write).execute(database.writer());
            written.await.expect("it is written");
            let pruned = retention::prune(database, Millis(1_200)).await;
            assert_eq!(pruned.expect("it is written"), 1_200);
            let left: Vec<i64> = sqlx::query_scalar(read)
                .fetch_all(database.reader())
                .await
                .expect("it can be read");
            assert_eq!(left, [1_200, 1_201, 1_202]);
        }
    }
}

#[tokio::test]
async fn security_events_are_kept_without_secrets_or_addresses() {
    let gateway = Gateway::start().await;
    let alice = gateway.web("alice");
    let key = new_key(&alice, "laptop").await;
    let id = key["key_id"].as_str().expect("an id");
    alice.delete(&format!("/api-keys/{id}")).await;
    with_key(&gateway, &key)
        .get("/models")
        .await
        .error(401, "UNAUTHENTICATED");
    let app = gateway.app();
    app.audit.flush().await;
    let rows: Vec<(i64, String, Option<String>, Option<String>)> =
        sqlx::query_as("SELECT count, kind, user_id, key_id FROM audit_events ORDER BY at, kind")
            .fetch_all(app.database.reader())
            .await
            .expect("the events can be read");
    let kinds: Vec<_> = rows.iter().map(|(_, kind, _, _)| &**kind).collect();
    for kind in [
        "api_key.created",
        "api_key.revoked",
        "authentication.failed",
    ] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    let text = format!("{rows:?}");
    let raw = key["api_key"].as_str().expect("a raw key");
    assert!(
        text.contains(id) && !text.contains(&raw[8..]) && !text.contains("127.0.0.1"),
        "{text}"
    );
}

/// No request that begins after an acknowledged revocation succeeds on its node; other nodes follow within a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_holds_on_its_node_at_once_and_soon_on_all() {
    let (postgres, redis) = (Postgres::shared(), Redis::start());
    let database = postgres.create_database().await;
    let node = || Gateway::builder().postgres(&database).redis(&redis.url());
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let alice = first.web("alice");
    for round in 1..=5 {
        let key = new_key(&alice, "raced").await;
        let revoked = std::sync::OnceLock::new();
        // Each from an address of its own, since refusals shut an address out.
        let clients: Vec<_> = (0..50)
            .map(|n| {
                let node = if n % 2 == 0 { &first } else { &second };
                with_key(node, &key).from_address([127, 0, round, n + 1].into())
            })
            .collect();
        let use_it = async |(n, client): (usize, &Client)| {
            let grace = Duration::from_secs(if n % 2 == 0 { 0 } else { 1 });
            let mut served = 0;
            loop {
                let after = revoked.get().map(std::time::Instant::elapsed);
                let status = client.get("/models").await.status.as_u16();
                match (after, status) {
                    (Some(after), 200) => {
                        assert!(after < grace, "round {round}: served {after:?} after it");
                    }
                    (Some(_), 401) => return served,
                    (None, 200) => served += 1,
                    (_, _) => {}
                }
            }
        };
        let revoke = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let id = key["key_id"].as_str().expect("an id");
            let path = format!("/api-keys/{id}");
            // On a busy machine the stores' short time-outs may fire; then the revocation was not acknowledged.
            loop {
                match alice.delete(&path).await.status.as_u16() {
                    204 => break,
                    status => assert_eq!(status, 503),
                }
            }
            let _ = revoked.set(std::time::Instant::now());
        };
        let (served, ()) = tokio::join!(join_all(clients.iter().enumerate().map(use_it)), revoke);
        assert!(served.iter().sum::<u32>() > 0, "the key worked before");
    }
}

#[tokio::test]
async fn without_the_cache_nobody_is_let_in_and_nothing_is_asked_upstream() {
    let redis = Redis::start();
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .redis(&redis.url())
        .settings("internal_listen = \"127.0.0.1:0\"")
        .upstream("scripted", &upstream)
        .impatient()
        .start()
        .await;
    assert_eq!(gateway.client().get("/models").await.status, 200);
    redis.pause();
    let started = std::time::Instant::now();
    gateway
        .chat("scripted", "x")
        .await
        .error(503, "CACHE_UNAVAILABLE");
    assert!(started.elapsed().as_secs() < 2, "{:?}", started.elapsed());
    for path in ["/models", "/api-keys", "/v1/models"] {
        gateway
            .client()
            .get(path)
            .await
            .error(503, "CACHE_UNAVAILABLE");
    }
    gateway
        .stranger()
        .get("/models")
        .await
        .error(503, "CACHE_UNAVAILABLE");
    let service = gateway.service(&["model:call"]);
    let mut body = chat("scripted", "x");
    body["user_id"] = USER.into();
    service
        .post("/internal/agent/code", &body)
        .await
        .error(503, "CACHE_UNAVAILABLE");
    let alice = gateway.web("alice");
    alice.get("/models").await.error(503, "CACHE_UNAVAILABLE");
    assert_eq!(gateway.stranger().get("/health").await.status, 200);
    redis.resume();
    let resumed = std::time::Instant::now();
    while gateway.client().get("/models").await.status != 200 {
        assert!(resumed.elapsed().as_secs() < 30, "it recovers");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(upstream.count(), 0);
}

/// For development only: no limits apply while the cache is down, but callers are still authenticated.
#[tokio::test]
async fn with_the_policy_allow_a_gateway_serves_without_its_cache() {
    let redis = Redis::start();
    let gateway = Gateway::builder()
        .redis(&redis.url())
        .settings("failure_policy = \"allow\"")
        .start()
        .await;
    redis.kill();
    assert_eq!(gateway.client().get("/models").await.status, 200);
    let wrong = gateway.stranger().with_key("inf_wrong");
    wrong.get("/models").await.error(401, "UNAUTHENTICATED");
    let refused = Gateway::builder().settings("dev = false\nfailure_policy = \"allow\"");
    let settings = std::panic::catch_unwind(|| refused.config());
    assert!(settings.is_err(), "not outside development mode");
}
