//! Authentication by API keys.

use bytes::Bytes;
use serde_json::json;
use tests::api::{endpoints, fill};
use tests::{Gateway, chat};
use weir_identity::dev_issuer::DevAudience;
use weir_identity::endpoints::Access;
use weir_identity::{api_key::RawKey, store};
use weir_storage::clock::Millis;

#[tokio::test]
async fn a_good_key_works_in_either_header() {
    let gateway = Gateway::start().await;
    let key = gateway.key();
    for client in [
        gateway.stranger().with_header("x-api-key", key),
        gateway
            .stranger()
            .with_header("authorization", &format!("Bearer {key}")),
        gateway
            .stranger()
            .with_header("authorization", &format!("bearer {key}")),
    ] {
        assert_eq!(client.get("/models").await.status, 200);
    }
}

#[tokio::test]
async fn anything_else_is_refused_alike_on_every_route_that_needs_a_key() {
    // Behind a proxy, so that each request has an address of its own and none is shut out.
    let gateway = Gateway::builder()
        .settings("dev = false\ntrusted_proxies = [\"127.0.0.0/8\"]")
        .start()
        .await;
    let key = gateway.key();
    let mut typo = key.to_owned().into_bytes();
    typo[20] = if typo[20] == b'x' { b'y' } else { b'x' };
    let typo = String::from_utf8(typo).expect("ASCII");
    let unknown = RawKey::generate();
    let other = unknown.expose();
    let clients = [
        gateway.stranger(),
        gateway.stranger().with_header("x-api-key", ""),
        gateway.stranger().with_header("x-api-key", &typo),
        gateway.stranger().with_header("x-api-key", other),
        gateway.stranger().with_header("authorization", key),
        gateway
            .stranger()
            .with_header("authorization", &format!("Basic {key}")),
        gateway
            .stranger()
            .with_header("authorization", "Bearer sk-123"),
    ];
    let mut seen = Vec::new();
    for (index, client) in clients.into_iter().enumerate() {
        let client = client.with_header("x-forwarded-for", &format!("203.0.113.{index}"));
        for path in ["/models", "/v1/models", "/v1/models/demo"] {
            let answer = client.get(path).await;
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            seen.push(answer.error(401, "UNAUTHENTICATED")["message"].clone());
        }
        for path in ["/chat", "/v1/chat/completions"] {
            let answer = client.post(path, &chat("demo", "Hello")).await;
            seen.push(answer.error(401, "UNAUTHENTICATED")["message"].clone());
        }
    }
    seen.dedup();
    assert_eq!(
        seen.len(),
        1,
        "the refusal must not say which part failed: {seen:?}"
    );
}

#[tokio::test]
async fn a_replaced_key_ends() {
    let gateway = Gateway::start().await;
    let app = gateway.app();
    let make = async || {
        let key = RawKey::generate();
        let made =
            weir_identity::replace_key(&app.identity, &app.database, ("bob", "laptop"), &key).await;
        made.expect("a key can be made");
        key
    };
    let first = make().await;
    let client = |key: &RawKey| gateway.stranger().with_key(key.expose());
    assert_eq!(client(&first).get("/models").await.status, 200);
    let second = make().await;
    client(&first)
        .get("/models")
        .await
        .error(401, "UNAUTHENTICATED");
    assert_eq!(client(&second).get("/models").await.status, 200);
    assert_eq!(
        gateway.client().get("/models").await.status,
        200,
        "another user's key stays"
    );
}

#[tokio::test]
async fn an_expired_key_ends() {
    let gateway = Gateway::start().await;
    let app = gateway.app();
    let now = Millis(Millis::now().0 - 91 * 86_400_000);
    let key = store::create_key(
        &app.database,
        &app.identity.key_peppers,
        "bob",
        "old",
        false,
        None,
        now,
    )
    .await
    .expect("a key can be made");
    let client = gateway.stranger().with_key(key.expose());
    client.get("/models").await.error(401, "UNAUTHENTICATED");
}

#[tokio::test]
async fn the_database_holds_no_raw_key() {
    let gateway = Gateway::start().await;
    let key = gateway.key().to_owned();
    assert_eq!(gateway.client().get("/models").await.status, 200);
    let folder = gateway.stop().await;
    let mut files = vec![folder.path().join("data")];
    let mut read = 0;
    while let Some(path) = files.pop() {
        // The compiled plugins of all tests.
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            files.extend(
                std::fs::read_dir(&path)
                    .expect("a folder")
                    .map(|e| e.expect("an entry").path()),
            );
            continue;
        }
        let bytes = std::fs::read(&path).expect("a file");
        read += bytes.len();
        let secret = &key.as_bytes()[16..];
        assert!(!tests::contains(&bytes, secret), "{}", path.display());
    }
    assert!(read > 4096, "the database was among the files");
}

/// A handler that forgets its caller answers a stranger, and fails here.
#[tokio::test]
async fn every_endpoint_that_is_not_open_is_closed_to_strangers() {
    let gateway = Gateway::builder().swarms().start().await;
    let executor = gateway.executor_service(DevAudience::Executor, &[]);
    let ports = [
        gateway.stranger(),
        gateway.internal(),
        gateway.stranger().at(executor.address()),
    ];
    let mut closed = 0;
    for row in endpoints() {
        let code = match row.access {
            // `payments.rs`, `console.rs` and `scim.rs` test the last four.
            Access::Open
            | Access::Signature
            | Access::Session(_)
            | Access::AdminSession
            | Access::Directory => continue,
            // Only the admin socket has it.
            _ if row.path.starts_with("/local/") => continue,
            // The gate checks the web app first.
            Access::Gated => "ATTESTATION_INVALID",
            _ => "UNAUTHENTICATED",
        };
        let (name, path) = (row.name(), fill(&row.path, "demo"));
        let method = row.method.expect("a method");
        let mut refused = 0;
        for client in &ports {
            let (json, body) = (Some("application/json"), Bytes::from("{}"));
            let answer = client.send(method.clone(), &path, json, body).await;
            // One of the ports has it.
            if answer.status != 404 {
                answer.error(401, code);
                refused += 1;
            }
        }
        assert!(refused > 0, "{name} is open");
        closed += 1;
    }
    assert!(closed > 140, "{closed}");
}

#[tokio::test]
async fn names_are_as_long_in_any_script() {
    let gateway = Gateway::start().await;
    let web = gateway.web("wilma");
    let admin = gateway.admin("root").await;
    for (characters, status) in [(256, 201), (257, 400)] {
        let name = "é".repeat(characters);
        let own = web.post("/api-keys", &json!({ "name": name })).await;
        assert_eq!(own.status, status, "{}", own.text());
        let body = json!({ "user_id": "ulla", "name": name });
        let another = admin.post("/admin/keys", &body).await;
        assert_eq!(another.status, status, "{}", another.text());
        let session = "%C3%A9".repeat(characters);
        let history = web.get(&format!("/session/{session}/history")).await;
        assert_eq!(history.status, if status == 201 { 404 } else { 400 });
    }
}
