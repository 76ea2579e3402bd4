//! Filters that decide in steps, over real sockets and real Wasm: their own responses, requests to their service, checks
//! of whole responses, and the options that they read.
//!
//! The filter is `tests/hostile/meddling`, which obeys the word after `meddle `.

use std::io::Write as _;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tests::speaker::Speaker;
use tests::stores::{Postgres, Redis};
use tests::{Answer, Client, Gateway, Reply, Upstream, chat, chunks, guests, patiently};
use weir_app::config::Config;
use weir_ledger::Credits;

use crate::billing::leave;
use crate::filters::{FILTER, annotations, assert_nothing_is_left, before_both, filtered, said};

/// The secret of the service.
const SECRET: &str = "moderation-secret-7Yq2";

/// A filter with this service, which gets a credential from a file.
fn with_service(service: &Upstream, secret: &NamedTempFile, more: &str) -> String {
    let (url, path) = (service.base_url(), secret.path());
    format!(
        "{FILTER}{more}\nservice = {{ url = \"{url}/check\", credential = \"moderation\", private = true, timeout_ms = 1000 }}\n\
         [credentials.moderation]\norigin = \"{url}\"\nmethods = [\"POST\"]\nsecret = {{ file = {path:?} }}\n"
    )
}

fn secret() -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(SECRET.as_bytes())
        .expect("it can be written");
    file
}

fn finish_reason(events: &[String]) -> Value {
    let chunks = chunks(events);
    let mut reasons = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["finish_reason"]);
    reasons
        .rfind(|reason| reason.is_string())
        .cloned()
        .unwrap_or_default()
}

async fn credits(gateway: &Gateway) -> Value {
    let synced = gateway.client();
    let synced = synced.post("/billing/sync-balance", &json!({})).await;
    synced.json()["available_credits"].clone()
}

#[tokio::test]
async fn a_filters_own_response_reaches_no_provider_and_costs_nothing() {
    let upstream = Upstream::start().await;
    let gateway = filtered(&upstream, FILTER).start().await;
    let before = credits(&gateway).await;
    for speaker in Speaker::ALL {
        let question = |stream| speaker.question("scripted", "meddle respond", stream);
        let answer = gateway
            .client()
            .post(&speaker.path("scripted", false), &question(false))
            .await;
        assert_eq!(answer.status, 200, "{speaker:?}: {}", answer.text());
        assert_eq!(speaker.read(&answer.json()).text, "made here");
        let stream = gateway.client();
        let stream = stream
            .stream(&speaker.path("scripted", true), &question(true))
            .await;
        let told = speaker.read_stream(&stream.rest().await);
        assert_eq!(told.text, "made here", "{speaker:?}");
    }
    let answer = gateway.chat("scripted", "meddle respond").await.json();
    assert_eq!(answer["usage"]["total_tokens"], 0, "{answer}");
    assert_eq!(answer["usage"]["credits"], 0.0, "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(upstream.count(), 0);
    assert!(before.is_number());
    assert_eq!(credits(&gateway).await, before);
    let metrics = gateway.stranger().get("/metrics").await.text();
    let mut lines = metrics.lines();
    let count = 2 * Speaker::ALL.len() + 1;
    let figure = format!("effect=\"answered\"}} {count}");
    assert!(lines.any(|line| line.ends_with(&figure)), "{metrics}");
    assert_nothing_is_left(&gateway, &upstream, "in the end").await;
}

/// An account without credits gets a filter's response.
#[tokio::test]
async fn a_filters_own_response_needs_no_credits_and_claims_no_key() {
    let upstream = Upstream::start().await;
    let gateway = filtered(&upstream, FILTER).start().await;
    leave(&gateway, Credits::ZERO).await;
    gateway
        .chat("scripted", "hello")
        .await
        .error(429, "QUOTA_EXCEEDED");
    let keyed = gateway.client().with_header("idempotency-key", "once");
    for _ in 0..2 {
        let answer = keyed
            .post("/chat", &chat("scripted", "meddle respond"))
            .await;
        assert_eq!(answer.content(), "made here");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_filters_own_response_passes_earlier_filters_and_is_kept_in_a_session() {
    let upstream = Upstream::start().await;
    let filters = format!(
        "{FILTER}options = {{ always = \"upper\" }}\n{FILTER}\n{FILTER}options = {{ always = \"refuse\" }}\n"
    );
    let gateway = filtered(&upstream, &filters).start().await;
    let answer = gateway.chat("scripted", "meddle respond").await;
    // The first filter makes the command unknown to the second: MEDDLE is no command.
    answer.error(400, "CONTENT_FILTERED");
    let filters = format!(
        "{FILTER}options = {{ always = \"answer-count\" }}\n{FILTER}options = {{ always = \"respond\" }}\n\
         {FILTER}options = {{ always = \"refuse\" }}\n"
    );
    let gateway = filtered(&upstream, &filters).start().await;
    let mut request = chat("scripted", "hello");
    request["session_id"] = "s".into();
    let answer = gateway.client().post("/chat", &request).await;
    assert_eq!(answer.content(), "made here (1 of 1)");
    let history = gateway.client().get("/session/s/history").await.json();
    let messages = history["messages"].as_array().expect("a list");
    assert_eq!(messages.len(), 2, "{history}");
    assert_eq!(messages[1]["content"], "made here (1 of 1)");
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn an_invalid_response_of_a_filter_is_the_filters_failure() {
    let upstream = Upstream::start().await;
    let gateway = filtered(&upstream, FILTER).start().await;
    for word in [
        "respond-nonsense",
        "respond-incomplete",
        "respond-nothing",
        "respond-forged",
        "respond-opaque",
        "respond-much",
        "fail",
        "ask",
        "ask-flood",
    ] {
        let answer = gateway.chat("scripted", &format!("meddle {word}")).await;
        answer.error(502, "FILTER_FAILED");
        assert!(!answer.text().contains("forged"), "{word}");
    }
    let request = json!({ "model": "demo-image", "prompt": "meddle respond" });
    let answer = gateway.client();
    let answer = answer.post("/v1/images/generations", &request).await;
    assert_eq!(answer.status, 502, "{}", answer.text());
    assert_eq!(upstream.count(), 0);
    assert_nothing_is_left(&gateway, &upstream, "in the end").await;
}

#[tokio::test]
async fn a_filter_asks_its_service_and_never_sees_the_credential() {
    let (upstream, service) = (Upstream::start().await, Upstream::start().await);
    let secret = secret();
    let gateway = filtered(&upstream, &with_service(&service, &secret, ""))
        .start()
        .await;
    upstream.will(Reply::chat("served"));
    service.will(Reply::new(200).body("fine"));
    let answer = gateway.chat("scripted", "meddle ask").await;
    assert_eq!(answer.content(), "served");
    assert_eq!(annotations(&answer), Some("meddling.reply=fine"));
    let asked = service.next_request().await;
    assert_eq!((&*asked.method, &*asked.path), ("POST", "/check"));
    assert_eq!(asked.json(), json!({ "dialect": "openai-chat" }));
    assert_eq!(asked.header("content-type"), Some("application/json"));
    let bearer = format!("Bearer {SECRET}");
    assert_eq!(asked.header("authorization"), Some(&*bearer));

    service.will(Reply::new(200).body("refuse"));
    let refused = gateway.chat("scripted", "meddle ask").await;
    let refused = refused.error(400, "CONTENT_FILTERED");
    let why = "The filter meddling rejects this request: it is not what the service likes.";
    assert_eq!(refused["message"], why);

    service.will(Reply::new(200).body("respond"));
    let answer = gateway.chat("scripted", "meddle ask").await;
    assert_eq!(answer.content(), "the service responds");

    // A service that echoes the request's headers reveals nothing.
    upstream.will(Reply::chat("served"));
    service.will(Reply::new(200).body(format!("saw {SECRET}!")));
    let answer = gateway.chat("scripted", "meddle ask").await;
    let stars = "-".repeat(SECRET.len());
    let noted = format!("meddling.reply=saw-{stars}-");
    assert_eq!(annotations(&answer), Some(&*noted));

    // A filter without a command asks nothing.
    upstream.will(Reply::chat("served"));
    assert_eq!(gateway.chat("scripted", "hello").await.content(), "served");
    assert_eq!((service.count(), upstream.count()), (4, 3));
    assert_nothing_is_left(&gateway, &upstream, "in the end").await;
}

#[tokio::test]
async fn a_service_that_fails_is_the_filters_failure() {
    let (upstream, service) = (Upstream::start().await, Upstream::start().await);
    let secret = secret();
    for (policy, refuses) in [("", true), ("on_failure = \"allow\"", false)] {
        let gateway = filtered(&upstream, &with_service(&service, &secret, policy))
            .start()
            .await;
        upstream.always(Reply::chat("served"));
        let elsewhere = Reply::redirect(307, &format!("{}/elsewhere", service.base_url()));
        let large = vec![b'x'; (256 << 10) + 1];
        for (what, reply) in [
            ("an error", Reply::new(503).body("fine")),
            ("a redirect", elsewhere),
            ("a large response", Reply::new(200).body(large)),
            ("no response", Reply::never()),
            ("a broken connection", Reply::hang_up()),
        ] {
            let before = service.count();
            service.will(reply);
            let started = Instant::now();
            let answer = gateway.chat("scripted", "meddle ask").await;
            assert!(started.elapsed() < Duration::from_secs(10), "{what}");
            assert_eq!(service.count(), before + 1, "{what}");
            match refuses {
                true => drop(answer.error(502, "FILTER_FAILED")),
                false => assert_eq!(answer.content(), "served", "{what}"),
            }
        }
        assert_nothing_is_left(&gateway, &upstream, policy).await;
    }
}

/// Requests beyond the first, and too large ones, end the filter's request and nothing else.
#[tokio::test]
async fn a_filter_asks_its_service_once_and_within_its_bounds() {
    let (upstream, service) = (Upstream::start().await, Upstream::start().await);
    let secret = secret();
    let gateway = filtered(&upstream, &with_service(&service, &secret, ""))
        .start()
        .await;
    service.always(Reply::new(200).body("fine"));
    for (word, requests) in [
        ("ask-forever", 1),
        ("ask-trap", 1),
        ("ask-much", 0),
        ("ask-flood", 0),
    ] {
        let before = service.count();
        let answer = gateway.chat("scripted", &format!("meddle {word}")).await;
        let error = answer.error(502, "FILTER_FAILED");
        assert_eq!(error["message"], "A required filter failed.", "{word}");
        assert_eq!(service.count() - before, requests, "{word}");
    }
    assert_eq!(upstream.count(), 0);
    assert_nothing_is_left(&gateway, &upstream, "in the end").await;
}

/// A private address needs the operator's word, and a reload applies a service's settings.
#[tokio::test]
async fn a_service_is_behind_the_egress_guard_and_its_settings_are_checked() {
    let (upstream, service) = (Upstream::start().await, Upstream::start().await);
    service.always(Reply::new(200).body("fine"));
    upstream.always(Reply::chat("served"));
    let url = service.base_url();
    let tables = |service: &str| format!("{FILTER}service = {{ {service} }}\n");
    let public = tables(&format!("url = \"{url}/check\""));
    let gateway = filtered(&upstream, &public).start().await;
    let refused = gateway.chat("scripted", "meddle ask").await;
    refused.error(502, "FILTER_FAILED");
    assert_eq!(service.count(), 0);

    let private = tables(&format!("url = \"{url}/check\", private = true"));
    let mut config = gateway.app().config.clone();
    config.filters = Config::from_toml(&private).expect("it fits").filters;
    gateway.app().take_up(config).await.expect("it fits");
    let answer = gateway.chat("scripted", "meddle ask").await;
    assert_eq!(answer.content(), "served");
    assert_eq!(service.next_request().await.header("authorization"), None);

    for (settings, what) in [
        (
            "url = \"ftp://x.example\"",
            "filters[0].service.url: is neither https",
        ),
        (
            "url = \"https://x.example/?a=b\"",
            "filters[0].service.url: is more than",
        ),
        (
            "url = \"https://x.example\", bytes = 9000000",
            "filters[0].service.bytes: is more than 1048576",
        ),
        (
            "url = \"https://x.example\", credential = \"none\"",
            "filters[0].service.credential: names \"none\", but `credentials.none` does not exist",
        ),
    ] {
        let started = filtered(&upstream, &tables(settings)).try_start().await;
        let why = started.err().map(|error| format!("{error:#}"));
        let why = why.expect("it does not start");
        assert!(why.contains(what), "{why}");
    }
    let started = filtered(&upstream, &format!("{FILTER}whole_bytes = 2000000\n"));
    let why = started.try_start().await.err();
    let why = why.map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(
        why.contains("filters[0].whole_bytes: is more than"),
        "{why}"
    );
}

#[tokio::test]
async fn a_whole_response_is_checked_before_the_client_gets_any_of_it() {
    let upstream = Upstream::start().await;
    let gateway = filtered(&upstream, &format!("{FILTER}whole_bytes = 5000\n"))
        .start()
        .await;
    let stream = async |word: &str, pieces: &[&str]| {
        upstream.will_stream(pieces.iter().copied());
        let text = format!("meddle {word}");
        gateway.stream("scripted", &text).await.rest().await
    };
    upstream.will(Reply::chat("one two"));
    let answer = gateway.chat("scripted", "meddle whole-count").await;
    assert_eq!(answer.content(), "one two (1 of 1)");
    // All pieces come in one call, and small ones of a text as one.
    let events = stream("whole-count", &["one ", "two ", "three"]).await;
    assert_eq!(said(&events), "one two three (1 of 1)");
    assert_eq!(finish_reason(&events), "stop");
    let events = stream("whole-judge", &["good ", "and b", "ad"]).await;
    assert_eq!(said(&events), "");
    assert_eq!(finish_reason(&events), "content_filter");
    assert_eq!(events.last().map(String::as_str), Some("data: [DONE]"));
    let events = stream("whole-judge", &["good ", "and b", "etter"]).await;
    assert_eq!(said(&events), "good and better");
    // Text may be held longer than in a stream.
    let piece = "x".repeat(1_000);
    let events = stream("whole-hold", &[&*piece; 5]).await;
    assert_eq!(said(&events), piece.repeat(5));
    // A longer response is stopped, and its text stays here.
    let events = stream("whole-pass", &[&*piece; 6]).await;
    assert_eq!(said(&events), "");
    assert_eq!(finish_reason(&events), "content_filter");
    upstream.will(Reply::chat(&piece.repeat(6)));
    let answer = gateway.chat("scripted", "meddle whole-pass").await;
    assert!(!answer.text().contains("xxx"), "{}", answer.text());
    for word in [
        "whole-trap",
        "whole-loop",
        "whole-nonsense",
        "whole-swallow",
    ] {
        upstream.will_stream(["sec", "ret"]);
        let text = format!("meddle {word}");
        let failed = gateway.stream("scripted", &text).await;
        // Nothing has reached the client, so that the status can still tell.
        assert_eq!(failed.status, 502, "{word}");
        let error = failed.try_json().await;
        assert_eq!(error["error"]["code"], "FILTER_FAILED", "{word}: {error}");
        assert!(!error.to_string().contains("sec"), "{word}: {error}");
    }
    assert_nothing_is_left(&gateway, &upstream, "in the end").await;
}

#[tokio::test]
async fn whole_responses_can_be_disallowed_and_a_filter_that_may_fail_is_gone_on_without() {
    let upstream = Upstream::start().await;
    let gateway = filtered(&upstream, &format!("{FILTER}whole_bytes = 0\n"))
        .start()
        .await;
    let answer = gateway.chat("scripted", "meddle whole-pass").await;
    answer.error(502, "FILTER_FAILED");
    let gateway = filtered(
        &upstream,
        &format!("{FILTER}whole_bytes = 10\non_failure = \"allow\"\n"),
    )
    .start()
    .await;
    upstream.will_stream(["much ", "longer ", "than ten"]);
    let events = gateway.stream("scripted", "meddle whole-stop").await;
    assert_eq!(said(&events.rest().await), "much longer than ten");
    upstream.will_stream(["short"]);
    let events = gateway.stream("scripted", "meddle whole-stop").await;
    assert_eq!(said(&events.rest().await), "");
}

#[tokio::test]
async fn a_fallback_begins_a_whole_response_anew() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.always(Reply::error(503, "overloaded"));
    second.always(Reply::chat("second"));
    let gateway = before_both(&first, &second).await;
    let answer = gateway.chat("both", "meddle whole-count").await;
    assert_eq!(answer.content(), "second (1 of 1)");
}

/// Components of the interface with other types are refused: without its steps, a filter could pass requests that it
/// means to stop.
#[tokio::test]
async fn a_malformed_optional_interface_is_refused_by_name() {
    let gateway = Gateway::start().await;
    let admin = gateway.admin("operator").await;
    for (what, component, complaint) in [
        (
            "another type",
            guests::idle_filter(|steps| {
                steps.replace("ask-service(list<u8>)", "ask-service(string)")
            }),
            "weir:plugin/filter-steps@0.2.3 has another type of the function [static]screening.begin",
        ),
        (
            "a missing function",
            guests::idle_filter(|steps| {
                let (before, _) = steps
                    .split_once("        /// The response of the service")
                    .expect("it is there");
                format!("{before}    }}\n}}\n")
            }),
            "weir:plugin/filter-steps@0.2.3 has no function [method]screening.replied",
        ),
        // The guest does nothing, so a later step of the load refuses it.
        (
            "the right types",
            guests::idle_filter(str::to_owned),
            "describe",
        ),
    ] {
        let path = "/admin/plugins/malformed?activate=true";
        let refused = admin.put_component(path, &component).await;
        let refused = refused.error(422, "PLUGIN_REFUSED").to_string();
        assert!(refused.contains(complaint), "{what}: {refused}");
    }
}

/// The time that a service takes is the filter's, and a client that leaves ends the request to it.
#[tokio::test]
async fn a_client_that_leaves_ends_the_request_to_the_service() {
    let (upstream, service) = (Upstream::start().await, Upstream::start().await);
    let secret = secret();
    let gateway = filtered(&upstream, &with_service(&service, &secret, ""))
        .start()
        .await;
    service.will(Reply::never());
    let client = gateway.client();
    let asking = tokio::spawn(async move {
        client.post("/chat", &chat("scripted", "meddle ask")).await;
    });
    service.next_request().await;
    asking.abort();
    patiently(service.until_hung_up()).await;
    assert_nothing_is_left(&gateway, &upstream, "after it").await;
}

async fn put(client: &Client, path: &str, body: &Value) -> Answer {
    let body = serde_json::to_vec(body).expect("JSON");
    let json = Some("application/json");
    client.send(Method::PUT, path, json, body.into()).await
}

/// The owner of a key sets its options, an operator those of an account. A change applies at once, on all nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_reads_the_options_of_the_key_and_the_account() {
    let (postgres, redis) = (Postgres::shared().create_database().await, Redis::start());
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("served"));
    let node = || {
        filtered(&upstream, FILTER)
            .postgres(&postgres)
            .redis(&redis.url())
            .settings("internal_listen = \"127.0.0.1:0\"")
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let (alice, admin) = (first.web("alice"), first.admin("olivia").await);
    let made = alice.post("/api-keys", &json!({})).await.json();
    let id = made["key_id"].as_str().expect("an id").to_owned();
    let key = first
        .stranger()
        .with_key(made["api_key"].as_str().expect("a key"));
    let elsewhere = key.at(second.address());
    let noted = async |client: &Client| {
        let request = chat("scripted", "meddle context");
        let answer = client.post("/chat", &request).await;
        assert_eq!(answer.content(), "served", "{}", answer.text());
        let noted = annotations(&answer).expect("annotations").to_owned();
        let rest = noted.strip_prefix("meddling.service=false, meddling.whole=65536");
        rest.expect("its own settings").to_owned()
    };
    for client in [&key, &elsewhere, &alice] {
        assert_eq!(noted(client).await, "");
    }
    let of_key = format!("/api-keys/{id}/filter-options");
    let options = json!({ "filter_options": { "tone": "mild", "kinds": "a.b" } });
    let set = put(&alice, &of_key, &options).await;
    assert_eq!((set.status.as_u16(), set.json()), (200, options));
    let of_account = format!(
        "/admin/users/{}/filter-options",
        first.web_user_id("alice").await
    );
    let options = json!({ "filter_options": { "level": "strict" } });
    let set = put(&admin, &of_account, &options).await;
    assert_eq!(set.status, 200, "{}", set.text());
    assert_eq!(set.json()["filter_options"]["level"], "strict");
    for client in [&key, &elsewhere] {
        let expected =
            ", meddling.key.kinds=a.b, meddling.key.tone=mild, meddling.account.level=strict";
        assert_eq!(noted(client).await, expected);
    }
    assert_eq!(noted(&alice).await, ", meddling.account.level=strict");
    let keys = alice.get("/api-keys").await.json();
    assert_eq!(keys["api_keys"][0]["filter_options"]["tone"], "mild");
    // A service calls for the user.
    let mut request = chat("scripted", "meddle context");
    request["user_id"] = first.web_user_id("alice").await.into();
    request["tools"] = json!([{ "type": "function", "function": { "name": "f" } }]);
    let service = first.service(&["model:call"]);
    let answer = service.post("/internal/agent/code", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let shown = annotations(&answer).expect("annotations");
    assert!(shown.ends_with("meddling.account.level=strict"), "{shown}");

    let none = json!({ "filter_options": {} });
    put(&admin, &of_account, &none).await;
    assert_eq!(put(&alice, &of_key, &none).await.status, 200);
    for client in [&key, &elsewhere, &alice] {
        assert_eq!(noted(client).await, "");
    }
    first.app().audit.flush().await;
    let audit = admin.get("/admin/audit?kind=user.filter_options_set");
    let events = audit.await.json();
    assert!(!events["events"].as_array().expect("a list").is_empty());

    // Another user's key, an unknown user, and options beyond the limits.
    let bob = first.web("bob");
    let options = json!({ "filter_options": { "tone": "rude" } });
    put(&bob, &of_key, &options).await.error(404, "NOT_FOUND");
    let unknown = put(&admin, "/admin/users/usr_0/filter-options", &options).await;
    unknown.error(404, "UNKNOWN_USER");
    let refused = put(&alice, &of_account, &options).await;
    refused.error(403, "FORBIDDEN");
    let many: serde_json::Map<_, _> = (0..17)
        .map(|number| (format!("o{number}"), json!("x")))
        .collect();
    for (options, what) in [
        (json!(many), "at most 16 options"),
        (json!({ "a b": "x" }), "A name has"),
        (json!({ "": "x" }), "A name has"),
        (json!({ "a": "x".repeat(257) }), "A value has"),
        (json!({ "a": "x\ny" }), "A value has"),
    ] {
        let options = json!({ "filter_options": options });
        for (client, path) in [(&alice, &of_key), (&admin, &of_account)] {
            let error = put(client, path, &options)
                .await
                .error(400, "INVALID_REQUEST");
            assert_eq!(error["param"], "filter_options");
            assert!(
                error["message"].as_str().expect("a text").contains(what),
                "{error}"
            );
        }
    }
}
