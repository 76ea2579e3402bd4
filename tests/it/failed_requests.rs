//! The record of a failed request: for its account without a provider's text, for operators with it, and its limits.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::gateway::{Builder, on_each_database};
use tests::speaker::Speaker;
use tests::{Answer, Client, Gateway, Reply, Upstream, chat, patiently};

use crate::console::Browser;

const NOON: &str = "2026-01-31T12:00:00Z";

/// A text of a provider, which no user may see in a record.
const CANARY: &str = "provider-canary";

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// A key of this client with these settings.
async fn key(gateway: &Gateway, client: &Client, settings: Value) -> (Client, String) {
    let mut body = json!({ "name": "k" });
    for (name, value) in settings.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let made = client.post("/api-keys", &body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let by_key = gateway.stranger().with_key(&text(&made["api_key"]));
    (by_key, text(&made["key_id"]))
}

/// Returns the failed requests of a client, newest first.
async fn failures(client: &Client, query: &str) -> Vec<Value> {
    let path = format!("/usage/requests?status=failed&limit=100{query}");
    let answer = client.get(&path).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.text().contains("canary"), "{}", answer.text());
    let list = answer.json();
    list["requests"].as_array().expect("a list").clone()
}

/// Returns the failed requests as soon as there are this many: a failure is recorded after its response.
async fn failures_of(client: &Client, query: &str, number: usize) -> Vec<Value> {
    patiently(async {
        loop {
            let found = failures(client, query).await;
            if found.len() >= number {
                return found;
            }
        }
    })
    .await
}

/// Sends a question without a stream.
async fn ask(speaker: Speaker, client: &Client, model: &str, body: &Value) -> Answer {
    let mut body = body.clone();
    if body.get("model").is_some() {
        body["model"] = json!(model);
    }
    client.post(&speaker.path(model, false), &body).await
}

/// The question with a wrong field, and the field.
fn wrong_field(speaker: Speaker, question: &Value) -> (Value, &'static str) {
    let field = match speaker {
        Speaker::Chat | Speaker::Messages => "messages",
        Speaker::Responses => "input",
        Speaker::Gemini => "contents",
    };
    let mut body = question.clone();
    body[field] = json!(5);
    (body, field)
}

/// The question for the longest response, which costs more than a free account has.
fn unaffordable(speaker: Speaker, question: &Value) -> Value {
    let mut body = question.clone();
    match speaker {
        Speaker::Chat | Speaker::Messages => body["max_tokens"] = json!(4_000_000),
        Speaker::Responses => body["max_output_tokens"] = json!(4_000_000),
        Speaker::Gemini => body["generationConfig"] = json!({ "maxOutputTokens": 4_000_000 }),
    }
    body
}

/// A model whose provider fails.
fn failing(speaker: Speaker) -> String {
    format!("fails-{speaker:?}").to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_each_kind_are_listed_for_their_account_alone() {
    let stream = Reply::chat_stream(["one ", "two ", "three"]);
    let half = stream.whole_body().len() / 2;
    let upstreams = [
        ("rejects", Reply::error(400, CANARY)),
        ("silent", Reply::never()),
        ("paused", stream.silent_after(half)),
    ];
    let mut scripted = Vec::new();
    let upstreams = upstreams.map(|(name, reply)| (name.to_owned(), reply));
    // One for each dialect: five failures in a row would open its breaker.
    let failures_of_dialects =
        Speaker::ALL.map(|speaker| (failing(speaker), Reply::error(500, CANARY)));
    for (name, reply) in upstreams.into_iter().chain(failures_of_dialects) {
        let upstream = Upstream::start().await;
        upstream.always(reply);
        scripted.push((name, upstream));
    }
    let configure = |builder: Builder| {
        let builder = scripted.iter().fold(builder, |builder, (name, upstream)| {
            builder.upstream(name, upstream)
        });
        builder.tables("[timeouts]\ntotal_ms = 1500\n[limits]\nhang_up_drain_ms = 100\n")
    };
    on_each_database(NOON, configure, async |gateway, clock| {
        let (alice, bob) = (gateway.web("alice"), gateway.web("bob"));
        let (by_key, _) = key(&gateway, &alice, json!({})).await;
        let (poor, _) = key(&gateway, &alice, json!({ "budget_credits": 0.001 })).await;
        let bob_failed = bob.post("/chat", &chat("no-model", "x")).await;
        bob_failed.error(400, "UNKNOWN_MODEL");
        for speaker in Speaker::ALL {
            clock.advance(Duration::from_secs(120));
            let from = format!("&from={}", gateway.app().clock.now().iso());
            let (rated, rated_id) = key(&gateway, &alice, json!({})).await;
            let rates = Bytes::from(json!({ "requests_per_minute": 1 }).to_string());
            let path = format!("/api-keys/{rated_id}/rates");
            let json_type = Some("application/json");
            let set = alice.send(Method::PUT, &path, json_type, rates).await;
            assert_eq!(set.status, 200, "{}", set.text());
            let question = speaker.question("m", "prompt-canary", false);
            let (wrong, field) = wrong_field(speaker, &question);

            let mut told: BTreeMap<&str, Value> = BTreeMap::new();
            let mut tell = |kind: &'static str, answer: &Answer| {
                told.insert(kind, speaker.error(answer));
            };
            tell("field", &ask(speaker, &by_key, "rejects", &wrong).await);
            tell("model", &ask(speaker, &by_key, "no-model", &question).await);
            let dear = unaffordable(speaker, &question);
            tell("credits", &ask(speaker, &by_key, "rejects", &dear).await);
            tell("budget", &ask(speaker, &poor, "rejects", &question).await);
            ask(speaker, &rated, "rejects", &question).await;
            tell("rate", &ask(speaker, &rated, "rejects", &question).await);
            tell("4xx", &ask(speaker, &by_key, "rejects", &question).await);
            tell(
                "5xx",
                &ask(speaker, &by_key, &failing(speaker), &question).await,
            );
            tell("time", &ask(speaker, &by_key, "silent", &question).await);
            let streamed = speaker.question("paused", "prompt-canary", true);
            let path = speaker.path("paused", true);
            let mut stream = by_key.follow(Method::POST, &path, &streamed).await;
            assert_eq!(stream.status, 200);
            let mut seen = String::new();
            while !seen.contains("one ") {
                let event = patiently(stream.next()).await;
                seen += &event.expect("the first words arrive");
            }
            drop(stream);

            let found = failures_of(&alice, &from, 10).await;
            assert_eq!(found.len(), 10, "{speaker:?}: {found:?}");
            let with = |code: &str| {
                let mut those = found.iter().filter(|failure| failure["code"] == code);
                let first = those.next();
                first.unwrap_or_else(|| panic!("{speaker:?}: {code} in {found:#?}"))
            };
            for (kind, code, param, limit) in [
                ("field", "INVALID_REQUEST", json!(field), Value::Null),
                ("credits", "QUOTA_EXCEEDED", Value::Null, json!("credits")),
                (
                    "budget",
                    "BUDGET_EXCEEDED",
                    Value::Null,
                    json!("budget/key/total"),
                ),
                (
                    "rate",
                    "RATE_LIMITED",
                    Value::Null,
                    json!("rate/key/requests"),
                ),
                ("4xx", "UPSTREAM_REJECTED", Value::Null, Value::Null),
                ("5xx", "UPSTREAM_UNAVAILABLE", Value::Null, Value::Null),
                ("time", "UPSTREAM_TIMEOUT", Value::Null, Value::Null),
            ] {
                let failure = with(code);
                assert_eq!(speaker.code(&told[kind]), code, "{speaker:?}: {told:?}");
                assert_eq!(failure["param"], param, "{speaker:?}: {failure}");
                assert_eq!(failure["limit"], limit, "{speaker:?}: {failure}");
                let message = text(&failure["message"]);
                let is_told = told[kind]["message"].as_str();
                let is_told = is_told.is_some_and(|told| told.contains(&*message));
                let is_vendors = speaker != Speaker::Chat;
                assert!(
                    is_told || is_vendors,
                    "{speaker:?}, {kind}: {failure} {told:?}"
                );
            }
            assert_eq!(speaker.code(&told["model"]), "UNKNOWN_MODEL");
            assert_eq!(with("UNKNOWN_MODEL")["status"], "failed");
            assert_eq!(with("UPSTREAM_REJECTED")["attempts"], 1);
            assert_eq!(with("UPSTREAM_UNAVAILABLE")["attempts"], 2);
            let cancelled = with("CLIENT_DISCONNECTED");
            assert_eq!(cancelled["http_status"], 200, "{cancelled}");
            assert_eq!(cancelled["status"], "settled", "{cancelled}");
            assert!(cancelled["credits"].as_f64() > Some(0.0), "{cancelled}");

            // One by one, as a table, and in the list of all requests.
            let rejected = with("UPSTREAM_REJECTED");
            let path = format!("/usage/requests/{}", text(&rejected["id"]));
            assert_eq!(alice.get(&path).await.json(), *rejected);
            bob.get(&path).await.error(404, "UNKNOWN_REQUEST");
            let all = alice.get(&format!("/usage/requests?limit=100{from}")).await;
            assert!(!all.text().contains("canary"), "{}", all.text());
            let all = all.json();
            let all = all["requests"].as_array().expect("a list");
            assert!(all.contains(rejected), "{all:#?}");
            let tables = alice.clone().with_header("accept", "text/csv");
            let path = format!("/usage/requests?status=failed{from}");
            let table = tables.get(&path).await.text();
            let lines: Vec<_> = table.lines().collect();
            assert!(
                lines[0].ends_with(",code,http_status,param,limit,message"),
                "{table}"
            );
            assert_eq!(lines.len(), 11, "{table}");
            assert!(
                table.contains(&format!(",INVALID_REQUEST,400,{field},,")),
                "{table}"
            );
            assert!(!table.contains("canary"), "{table}");

            let of_key = failures(&alice, &format!("{from}&key={rated_id}")).await;
            assert_eq!(of_key.len(), 2, "{of_key:#?}");
            // Page by page. With the key, more rows are read than a page has.
            for (limit, filter, found) in [
                (3, String::new(), &found),
                (1, format!("&key={rated_id}"), &of_key),
            ] {
                let first = format!("?status=failed&limit={limit}{from}{filter}");
                let (mut seen, mut query) = (Vec::new(), first.clone());
                loop {
                    let page = alice.get(&format!("/usage/requests{query}")).await.json();
                    let requests = page["requests"].as_array().expect("a list");
                    assert!(requests.len() <= limit, "{page}");
                    seen.extend(requests.iter().map(|request| request["id"].clone()));
                    let Some(next) = page["next"].as_str() else {
                        break;
                    };
                    query = format!("{first}&before={next}");
                }
                let ids: Vec<_> = found.iter().map(|failure| failure["id"].clone()).collect();
                assert_eq!(seen, ids, "{filter}");
            }
            let of_model = failures(&alice, &format!("{from}&model={}", failing(speaker))).await;
            assert_eq!(of_model.len(), 1, "{of_model:#?}");
        }
        let of_bob = failures_of(&bob, "", 1).await;
        assert_eq!(of_bob.len(), 1, "{of_bob:#?}");
        for wrong in ["status=x", "status=failed&before=x", "before=1.x"] {
            let answer = alice.get(&format!("/usage/requests?{wrong}")).await;
            answer.error(400, "INVALID_REQUEST");
        }
        let of_user = gateway.admin("root").await;
        let path = format!(
            "/admin/users/{}/usage/requests",
            gateway.web_user_id("bob").await
        );
        let listed = of_user.get(&format!("{path}?status=failed")).await.json();
        assert_eq!(listed["requests"][0]["code"], "UNKNOWN_MODEL", "{listed}");
    })
    .await;
}

/// The second credential of a provider is refused with an error that quotes it.
#[tokio::test(flavor = "multi_thread")]
async fn operators_see_status_text_and_credential_of_each_attempt() {
    const CREDENTIALS: [&str; 2] = ["sk-first-0123456789abcdef", "sk-second-0123456789abcdef"];
    let upstream = Upstream::start().await;
    upstream.always_by(|request| {
        let sent = request.header("authorization").expect("a credential");
        let key = sent.trim_start_matches("Bearer ").to_owned();
        let other = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyz";
        Reply::error(401, &format!("{CANARY}: {key} and {other} are wrong"))
    });
    let folder = TempDir::new().expect("a folder");
    let sources = CREDENTIALS.map(|credential| {
        let file = folder.path().join(credential);
        fs::write(&file, credential).expect("the folder can be written");
        format!("{{ file = {file:?} }}")
    });
    let provider = format!(
        "[providers.pool]\nadapter = \"openai\"\nbase_url = \"{}\"\ncredentials = [{}]\n",
        upstream.base_url(),
        sources.join(", "),
    );
    let configure = |builder: Builder| builder.tables(&provider).model("m", &["pool"]);
    on_each_database(NOON, configure, async |gateway, _| {
        let alice = gateway.web("alice");
        let failed = alice.post("/chat", &chat("m", "prompt-canary")).await;
        assert_eq!(failed.status, 502, "{}", failed.text());
        let found = failures_of(&alice, "", 1).await;
        let admin = gateway.admin("root").await;
        let listed = admin.get("/admin/requests?status=failed").await.json();
        let attempts = listed["requests"][0]["failed_attempts"].clone();
        let attempts = attempts.as_array().expect("a list");
        let mut numbers: Vec<_> = attempts
            .iter()
            .map(|attempt| attempt["credential"].as_u64().expect("a number"))
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2], "{attempts:#?}");
        for attempt in attempts {
            assert_eq!(attempt["status"], 401, "{attempt}");
            assert_eq!(attempt["provider"], "pool", "{attempt}");
            assert_eq!(attempt["error"], "unauthorized", "{attempt}");
            let said = text(&attempt["text"]);
            assert!(said.contains(CANARY), "{attempt}");
            assert!(!said.contains("0123456789"), "{attempt}");
        }
        let tables = admin.clone().with_header("accept", "text/csv");
        let table = tables.get("/admin/requests?status=failed").await.text();
        assert!(table.contains("pool#2 401 unauthorized: "), "{table}");

        let id = text(&found[0]["id"]);
        let mut root = Browser::of(&gateway, "root").await;
        let html = root.page(&format!("/console/admin/requests/{id}")).await;
        for shown in [
            "Failed attempts",
            CANARY,
            "unauthorized",
            "<dt>Message</dt>",
        ] {
            assert!(html.contains(shown), "{shown} in {html}");
        }
        let mut user = Browser::of(&gateway, "alice").await;
        for (path, shown) in [
            (format!("/console/requests/{id}"), "Why it failed"),
            (
                "/console/requests?status=failed".to_owned(),
                "UPSTREAM_ERROR",
            ),
            ("/console/requests".to_owned(), "UPSTREAM_ERROR"),
        ] {
            let html = user.page(&path).await;
            assert!(html.contains(shown), "{path}: {html}");
            assert!(!html.contains("canary"), "{path}: {html}");
        }

        // Neither the message nor the provider's text is readable in the database.
        let rows: Vec<Vec<u8>> = sqlx::query_scalar("SELECT details FROM failed_requests")
            .fetch_all(gateway.app().database.reader())
            .await
            .expect("it answers");
        assert_eq!(rows.len(), 1);
        for hidden in ["canary", "provider"] {
            let stored = String::from_utf8_lossy(&rows[0]);
            assert!(!stored.contains(hidden), "{hidden}");
        }
    })
    .await;
}

/// Failures beyond 20 a minute are counted, for the account and for operators.
#[tokio::test(flavor = "multi_thread")]
async fn failures_beyond_twenty_a_minute_are_counted() {
    let configure =
        |builder: Builder| builder.tables("[rate_limits]\nfree = 100000\naddress = 100000\n");
    on_each_database(NOON, configure, async |gateway, clock| {
        let (alice, bob) = (gateway.web("alice"), gateway.web("bob"));
        let fail = async |client: &Client, times: usize| {
            for _ in 0..times {
                let refused = client.post("/chat", &chat("no-model", "x")).await;
                refused.error(400, "UNKNOWN_MODEL");
            }
            gateway.app().failed_requests.flush().await;
        };
        let count = async |client: &Client, query: &str| {
            let path = format!("/usage/requests?status=failed&limit=100{query}");
            let list = client.get(&path).await.json();
            let listed = list["requests"].as_array().expect("a list").len();
            (listed, list["unrecorded"].as_i64().expect("a number"))
        };
        fail(&alice, 25).await;
        fail(&bob, 1).await;
        assert_eq!(count(&alice, "").await, (20, 5));
        assert_eq!(count(&bob, "").await, (1, 0));
        fail(&alice, 2).await;
        clock.advance(Duration::from_secs(60));
        fail(&alice, 21).await;
        assert_eq!(count(&alice, "").await, (41 - 1, 8));
        assert_eq!(count(&alice, "&from=2026-01-31T12:01:00Z").await, (20, 1));
        assert_eq!(count(&alice, "&to=2026-01-31T12:01:00Z").await, (20, 7));
        let admin = gateway.admin("root").await;
        let user = gateway.web_user_id("alice").await;
        let listed = admin.get(&format!("/admin/requests?user={user}")).await;
        assert_eq!(listed.json()["unrecorded"], 8, "{}", listed.text());
        let listed = admin.get("/admin/requests").await.json();
        assert_eq!(listed["unrecorded"], Value::Null);
        let mut browser = Browser::of(&gateway, "alice").await;
        let html = browser.page("/console/requests?status=failed").await;
        assert!(html.contains("8 more failed without a record"), "{html}");
        let listed = alice.get("/usage/requests").await.json();
        assert_eq!(listed["unrecorded"], Value::Null, "{listed}");
    })
    .await;
}
