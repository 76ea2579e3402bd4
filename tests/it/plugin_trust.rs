//! Trust in components: signatures, publishers, versions.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gateway, guests, patiently};
use weir_plugins::PluginKind;
use weir_plugins::signature::{Signature, SigningKey};
use weir_sandbox::Digest;

const SLOT: &str = "/admin/plugins/greeter";

fn key() -> SigningKey {
    SigningKey::generate().expect("a key").0
}

/// Returns the output of `weir plugin sign` for this slot and version.
fn signed(key: &SigningKey, slot: &str, version: &str, component: &[u8]) -> String {
    let version = version.parse().expect("a version");
    let digest = Digest::of(component);
    Signature::of(key, PluginKind::Adapter, slot, version, digest).to_json()
}

/// A gateway with a bundled component in the slot `greeter` that trusts only these publishers.
fn trusting(publishers: &[(&str, &SigningKey, &str)]) -> tests::gateway::Builder {
    let mut tables = "[plugins]\nquarantine_traps = 0\nallow_unsigned = false\n".to_owned();
    for (name, key, slot) in publishers {
        let key = key.public_key().to_string();
        let _ = write!(
            tables,
            "[plugins.publishers.{name}]\nkeys = [{key:?}]\nslots = [{slot:?}]\n"
        );
    }
    Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .guest("greeter", &guests::answering("aa"), None)
        .tables(&tables)
}

async fn greeting(gateway: &Gateway) -> String {
    gateway.chat("greeter", "hello").await.content()
}

async fn activate(client: &Client, body: Value) -> Answer {
    client.post(&format!("{SLOT}/activate"), &body).await
}

/// Uploads a component into the slot, with a matching signature.
async fn put(
    client: &Client,
    key: &SigningKey,
    letters: &str,
    version: &str,
    query: &str,
) -> Answer {
    let component = guests::answering_as(letters, version);
    let signature = signed(key, "greeter", version, &component);
    let path = format!("{SLOT}?{query}");
    client.put_signed(&path, &component, &signature).await
}

fn digest(letters: &str, version: &str) -> String {
    Digest::of(&guests::answering_as(letters, version)).to_string()
}

async fn until_ready(gateway: &Gateway) {
    let ready = async || gateway.stranger().get("/health/ready").await.status == 200;
    patiently(async {
        while !ready().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_vouches_for_is_refused_on_every_node_and_changes_nothing() {
    let (acme, elsewhere, stranger) = (key(), key(), key());
    let redis = Redis::start();
    let url = Postgres::shared().create_database().await;
    let node = || {
        trusting(&[
            ("acme", &acme, "greeter"),
            ("elsewhere", &elsewhere, "demo"),
        ])
        .postgres(&url)
        .redis(&redis.url())
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let component = guests::answering("bb");
    let good = signed(&acme, "greeter", "0.1.0", &component);
    let mut changed = component.clone();
    *changed.last_mut().expect("bytes") ^= 1;
    let forged = good.replace("0.1.0", "9.1.0");
    assert_ne!(forged, good);
    let invalid = "PLUGIN_SIGNATURE_INVALID";
    let cases = [
        (&component, None, "PLUGIN_UNSIGNED", "no signature"),
        // A file that is no component is not examined further.
        (
            &b"no component".to_vec(),
            None,
            "PLUGIN_UNSIGNED",
            "no signature",
        ),
        (
            &component,
            Some(signed(&stranger, "greeter", "0.1.0", &component)),
            "PLUGIN_SIGNER_UNKNOWN",
            &stranger.public_key().to_string(),
        ),
        (
            &component,
            Some(signed(&acme, "demo", "0.1.0", &component)),
            "PLUGIN_SIGNED_FOR_ANOTHER_SLOT",
            "for the slot \"demo\"",
        ),
        (
            &component,
            Some(signed(&elsewhere, "greeter", "0.1.0", &component)),
            "PLUGIN_PUBLISHER_NOT_ALLOWED",
            "plugins.publishers.elsewhere.slots",
        ),
        (&changed, Some(good.clone()), invalid, "for other bytes"),
        (
            &component,
            Some(forged),
            invalid,
            "its signature is invalid",
        ),
        (
            &component,
            Some(signed(&acme, "greeter", "0.2.0", &component)),
            invalid,
            "the adapter 0.2.0",
        ),
    ];
    for gateway in [&first, &second] {
        let admin = gateway.admin("olivia").await;
        for (component, signature, code, complaint) in &cases {
            let path = format!("{SLOT}?activate=true");
            let answer = match signature {
                Some(signature) => admin.put_signed(&path, component, signature).await,
                None => admin.put_component(&path, component).await,
            };
            let error = answer.error(403, code);
            let message = error["message"].as_str().expect("a text");
            assert!(message.contains(complaint), "{message}");
        }
        for garbled in ["garbled", "{}"] {
            let answer = admin.put_signed(SLOT, &component, garbled).await;
            let error = answer.error(400, "INVALID_REQUEST");
            assert_eq!(error["param"], "x-weir-signature");
        }
        assert_eq!(greeting(gateway).await, "aa");
        let events = admin.get(&format!("{SLOT}/events")).await.json();
        assert_eq!(events["events"], json!([]));
    }
    first.app().audit.flush().await;
    let admin = first.admin("olivia").await;
    let refused = admin.get("/admin/audit?kind=plugin.refused").await.json();
    assert_eq!(refused["events"][0]["reason"], "greeter: signature");

    let answer = admin
        .put_signed(&format!("{SLOT}?activate=true"), &component, &good)
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.json()["publisher"], "acme");
    for gateway in [&first, &second] {
        patiently(async {
            while greeting(gateway).await != "bb" {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let shown = gateway.admin("olivia").await.get(SLOT).await.json();
        let plugins = shown["plugins"].as_array().expect("a list");
        let publishers = plugins.iter().map(|plugin| &plugin["publisher"]);
        assert_eq!(
            publishers.collect::<Vec<_>>(),
            [&Value::Null, &json!("acme")]
        );
    }
    let events = admin.get(&format!("{SLOT}/events")).await.json();
    let detail = events["events"][1]["detail"].as_str().expect("a text");
    assert!(detail.ends_with("signed by acme"), "{detail}");
}

#[tokio::test]
async fn development_mode_takes_components_that_are_unsigned_or_a_strangers_but_no_false_signatures()
 {
    let gateway = Gateway::builder()
        .guest("greeter", &guests::answering("aa"), None)
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    let component = guests::answering("bb");
    let signature = signed(&key(), "greeter", "0.1.0", &component);
    for (signature, code) in [
        (
            signed(&key(), "greeter", "0.1.0", b"other bytes"),
            "PLUGIN_SIGNATURE_INVALID",
        ),
        (signature.replace("0.1.0", "0.1.1"), "PLUGIN_SIGNER_UNKNOWN"),
        (
            signed(&key(), "demo", "0.1.0", &component),
            "PLUGIN_SIGNED_FOR_ANOTHER_SLOT",
        ),
    ] {
        let answer = admin.put_signed(SLOT, &component, &signature).await;
        answer.error(403, code);
    }
    // The signature counts for nothing here: the component has no publisher.
    let answer = admin.put_signed(SLOT, &component, &signature).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.json()["publisher"], serde_json::Value::Null);
    let other = guests::answering("cc");
    let answer = admin.put_component(SLOT, &other).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

#[tokio::test]
async fn an_older_version_is_refused_unless_it_is_asked_for_and_a_rollback_is_not_asked_about() {
    let acme = key();
    for url in [None, Some(Postgres::shared().create_database().await)] {
        let builder = trusting(&[("acme", &acme, "greeter")]);
        let gateway = match &url {
            Some(url) => builder.postgres(url).start().await,
            None => builder.start().await,
        };
        let admin = gateway.admin("olivia").await;
        for (letters, version) in [("bb", "0.1.0"), ("cc", "0.3.0")] {
            let answer = put(&admin, &acme, letters, version, "activate=true").await;
            assert_eq!(answer.status, 201, "{}", answer.text());
        }
        assert_eq!(greeting(&gateway).await, "cc");
        let answer = put(&admin, &acme, "dd", "0.2.0", "activate=true").await;
        let error = answer.error(409, "PLUGIN_DOWNGRADE");
        let message = error["message"].as_str().expect("a text");
        assert!(
            message.contains("0.3.0") && message.contains("--allow-downgrade"),
            "{message}"
        );
        let older = digest("bb", "0.1.0");
        let answer = activate(&admin, json!({ "digest": older })).await;
        answer.error(409, "PLUGIN_DOWNGRADE");
        assert_eq!(greeting(&gateway).await, "cc");

        let answer = admin.post(&format!("{SLOT}/rollback"), &json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(greeting(&gateway).await, "bb");
        // The removed version is remembered.
        let newest = digest("cc", "0.3.0");
        assert_eq!(admin.delete(&format!("{SLOT}/{newest}")).await.status, 204);
        let answer = put(&admin, &acme, "dd", "0.2.0", "activate=true").await;
        answer.error(409, "PLUGIN_DOWNGRADE");

        let allowed = "activate=true&allow_downgrade=true";
        let answer = put(&admin, &acme, "dd", "0.2.0", allowed).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(greeting(&gateway).await, "dd");
        let allowed = json!({ "digest": older, "allow_downgrade": true });
        assert_eq!(activate(&admin, allowed).await.status, 200);
        assert_eq!(greeting(&gateway).await, "bb");
        // The refusal has not made the lower one the highest.
        let answer = put(&admin, &acme, "ee", "0.2.0", "").await;
        answer.error(409, "PLUGIN_DOWNGRADE");
        // Neither a second component of the highest version nor the order of letters is a downgrade.
        let answer = put(&admin, &acme, "ff", "0.3.0", "").await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
}

#[tokio::test]
async fn another_publisher_takes_a_slot_only_when_that_is_asked_for() {
    let (acme, other) = (key(), key());
    let gateway = trusting(&[("acme", &acme, "greeter"), ("other", &other, "greeter")])
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    let answer = put(&admin, &acme, "bb", "0.5.0", "activate=true").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let answer = put(&admin, &other, "cc", "0.1.0", "activate=true").await;
    let error = answer.error(409, "PLUGIN_OTHER_PUBLISHER");
    let message = error["message"].as_str().expect("a text");
    for part in ["acme's", "other's", "--change-publisher"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(greeting(&gateway).await, "bb");

    // An installed component does not serve yet.
    let answer = put(&admin, &other, "cc", "0.1.0", "change_publisher=true").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let others = digest("cc", "0.1.0");
    let answer = activate(&admin, json!({ "digest": others })).await;
    answer.error(409, "PLUGIN_OTHER_PUBLISHER");
    let changed = json!({ "digest": others, "change_publisher": true });
    assert_eq!(activate(&admin, changed).await.status, 200);
    assert_eq!(greeting(&gateway).await, "cc");
    // Each publisher has its own versions.
    let answer = put(&admin, &other, "dd", "0.2.0", "").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let answer = put(&admin, &acme, "ee", "0.6.0", "").await;
    answer.error(409, "PLUGIN_OTHER_PUBLISHER");

    // After a rollback the slot belongs to the first publisher again, also if it continues to the bundled component.
    for served in ["bb", "aa"] {
        let answer = admin.post(&format!("{SLOT}/rollback"), &json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(greeting(&gateway).await, served);
        let answer = put(&admin, &other, "ff", "0.3.0", "").await;
        answer.error(409, "PLUGIN_OTHER_PUBLISHER");
    }
}

#[tokio::test]
async fn a_canary_is_asked_for_what_an_activation_is_and_its_promotion_for_nothing() {
    let (acme, other) = (key(), key());
    let gateway = trusting(&[("acme", &acme, "greeter"), ("other", &other, "greeter")])
        .start()
        .await;
    let admin = gateway.admin("olivia").await;
    for (letters, version, query) in [
        ("bb", "0.5.0", ""),
        ("cc", "0.6.0", "activate=true"),
        ("dd", "0.5.9", "allow_downgrade=true"),
    ] {
        let answer = put(&admin, &acme, letters, version, query).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let others = put(&admin, &other, "ee", "0.1.0", "change_publisher=true").await;
    assert_eq!(others.status, 201, "{}", others.text());
    for (digest, code) in [
        (digest("bb", "0.5.0"), "PLUGIN_DOWNGRADE"),
        (digest("ee", "0.1.0"), "PLUGIN_OTHER_PUBLISHER"),
    ] {
        let canary = json!({ "digest": digest, "share": 0.5 });
        activate(&admin, canary).await.error(409, code);
    }
    let others = digest("ee", "0.1.0");
    let canary = json!({ "digest": others, "share": 0.5, "change_publisher": true });
    assert_eq!(activate(&admin, canary).await.status, 200);
    // A canary does not change the slot's owner.
    let answer = put(&admin, &acme, "ff", "0.7.0", "").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let promoted = activate(&admin, json!({ "digest": others })).await;
    assert_eq!(promoted.status, 200, "{}", promoted.text());
    assert_eq!(greeting(&gateway).await, "ee");
    let answer = put(&admin, &acme, "gg", "0.8.0", "").await;
    answer.error(409, "PLUGIN_OTHER_PUBLISHER");
}

/// Replaces the stored signature.
async fn replace_signature(gateway: &Gateway, signature: Option<&str>) {
    let replaced = sqlx::query("UPDATE plugins SET signature = $1 WHERE slot = 'greeter'")
        .bind(signature.map(str::to_owned))
        .execute(gateway.app().database.writer())
        .await;
    assert_eq!(replaced.expect("the database").rows_affected(), 1);
}

async fn assert_not_ready(gateway: &Gateway, why: &str) {
    let ready = gateway.stranger().get("/health/ready").await;
    let error = ready.error(503, "NOT_READY");
    let message = error["message"].as_str().expect("a text");
    assert!(
        message.contains("greeter") && message.contains(why),
        "{message}"
    );
    let refused = gateway.chat("greeter", "hello").await;
    refused.error(503, "ADAPTER_UNAVAILABLE");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_key_does_not_serve_what_it_signed_until_it_is_signed_anew() {
    let (old, new) = (key(), key());
    let redis = Redis::start();
    let url = Postgres::shared().create_database().await;
    let node = |key| {
        trusting(&[("acme", key, "greeter")])
            .postgres(&url)
            .redis(&redis.url())
    };
    let first = node(&old).start().await;
    let second = node(&old).sharing_secrets_of(&first).start().await;
    let admin = first.admin("olivia").await;
    let answer = put(&admin, &old, "bb", "0.1.0", "activate=true").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let kept = signed(&old, "greeter", "0.1.0", &guests::answering("bb"));

    let second = node(&new).folder(second.stop().await).start().await;
    assert_not_ready(&second, &old.public_key().to_string()).await;
    let admin = second.admin("olivia").await;
    let refused = activate(&admin, json!({ "digest": digest("bb", "0.1.0") })).await;
    refused.error(403, "PLUGIN_SIGNER_UNKNOWN");
    // A node that serves it, and knows the key, continues.
    assert_eq!(greeting(&first).await, "bb");
    first.stop().await;

    // Write access to the database vouches for nothing.
    let mut second = second;
    for (signature, why) in [
        (None, "the component has no signature"),
        (Some("{}"), "cannot be read"),
        (
            Some(&*kept.replace("greeter", "demo")),
            "no configured publisher has",
        ),
    ] {
        replace_signature(&second, signature).await;
        second = node(&new).folder(second.stop().await).start().await;
        assert_not_ready(&second, why).await;
    }

    let admin = second.admin("olivia").await;
    let answer = put(&admin, &new, "bb", "0.1.0", "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    until_ready(&second).await;
    assert_eq!(greeting(&second).await, "bb");
}
