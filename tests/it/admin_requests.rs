//! The requests of all accounts, for administrators: filters, pages, the errors of failed requests and their limits.

use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::{Value, json};
use tests::gateway::{at, on_each_database};
use tests::stores::Postgres;
use tests::{Answer, Client, Gateway, Reply, Upstream, chat, patiently};
use weir_ledger::Credits;
use weir_request::audit::retention::{self, RetentionDays};
use weir_storage::clock::ManualClock;

use crate::console::{Browser, page};
use crate::usage::fold;

const NOON: &str = "2026-01-31T12:00:00Z";

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn id_of(answer: &Answer) -> String {
    let id = answer.headers["x-request-id"].to_str();
    id.expect("ASCII").to_owned()
}

/// Returns the page of a query.
async fn list(admin: &Client, query: &str) -> Value {
    let answer = admin.get(&format!("/admin/requests{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

fn ids(list: &Value) -> Vec<String> {
    let requests = list["requests"].as_array().expect("a list").iter();
    requests.map(|request| text(&request["id"])).collect()
}

/// Returns the page of a query as soon as it has this number of requests: a failure is recorded after its response.
async fn list_of(admin: &Client, query: &str, number: usize) -> Value {
    patiently(async {
        loop {
            let listed = list(admin, query).await;
            if ids(&listed).len() == number {
                return listed;
            }
        }
    })
    .await
}

/// A key of this client: a client with it, and its id.
async fn key(gateway: &Gateway, client: &Client) -> (Client, String) {
    let made = client.post("/api-keys", &json!({ "name": "k" })).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let client = gateway.stranger().with_key(&text(&made["api_key"]));
    (client, text(&made["key_id"]))
}

async fn metric(gateway: &Gateway, name: &str) -> f64 {
    let metrics = gateway.stranger().get("/metrics").await.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.unwrap_or_else(|| panic!("{name} in {metrics}"));
    figure.trim().parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_everybody_are_found_by_each_filter_and_page_by_page() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let configure = |builder: tests::gateway::Builder| {
        builder
            .provider("first", "openai", Some(&first))
            .provider("second", "openai", Some(&second))
            .model("both", &["first", "second"])
    };
    first.always(Reply::error(500, "first failed"));
    second.always(Reply::error(400, "second failed"));
    on_each_database(NOON, configure, async |gateway, clock| {
        let next_minute = || clock.advance(Duration::from_secs(60));
        let (alice, alice_id) = (gateway.web("alice"), gateway.web_user_id("alice").await);
        let (by_key, key_id) = key(&gateway, &alice).await;
        let served = by_key.post("/chat", &chat("demo", "prompt-canary")).await;
        assert_eq!(served.status, 200, "{}", served.text());
        next_minute();
        let bob_id = gateway.web_user_id("bob").await;
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let bob = gateway.web("bob").with_header("traceparent", trace);
        let refused = bob.post("/chat", &chat("both", "prompt-canary")).await;
        let code = text(&refused.json()["error"]["code"]);
        assert!(refused.status.as_u16() >= 400, "{}", refused.text());
        next_minute();
        let olivia = gateway.web("olivia");
        let made = olivia
            .post("/organisations", &json!({ "name": "Acme" }))
            .await;
        let organisation = text(&made.json()["organisation_id"]);
        let acting = olivia.with_header("x-weir-account", &organisation);
        let (by_organisation, organisation_key) = key(&gateway, &acting).await;
        let unknown = by_organisation
            .post("/chat", &chat("no-model", "prompt-canary"))
            .await;
        unknown.error(400, "UNKNOWN_MODEL");

        let admin = gateway.admin("root").await;
        let all = [id_of(&unknown), id_of(&refused), id_of(&served)];
        let whole = list_of(&admin, "", 3).await;
        assert_eq!(ids(&whole), all);
        assert_eq!(whole["next"], Value::Null);
        assert!(!whole.to_string().contains("canary"), "{whole}");
        let [without_model, with_attempts, success] = [0, 1, 2].map(|at| &whole["requests"][at]);
        for (field, value) in [
            ("status", json!("failed")),
            ("code", json!("UNKNOWN_MODEL")),
            ("http_status", json!(400)),
            ("account_id", json!(organisation)),
            ("user_id", json!(gateway.web_user_id("olivia").await)),
            ("key_id", json!(organisation_key)),
            ("model", Value::Null),
            ("provider", Value::Null),
            ("held_credits", Value::Null),
            ("credits", json!(0)),
            ("attempts", json!(0)),
        ] {
            assert_eq!(without_model[field], value, "{field} of {without_model}");
        }
        for (field, value) in [
            ("status", json!("failed")),
            ("code", json!(code)),
            ("http_status", json!(refused.status.as_u16())),
            ("account_id", json!(bob_id)),
            ("source", json!("web")),
            ("model", json!("both")),
            ("provider", json!("second")),
            ("earlier_providers", json!(["first"])),
            ("credits", json!(0)),
            ("attempts", json!(3)),
            ("at", json!("2026-01-31T12:01:00Z")),
            ("trace_id", json!("0af7651916cd43dd8448eb211c80319c")),
        ] {
            assert_eq!(with_attempts[field], value, "{field} of {with_attempts}");
        }
        for (request, slot) in [(with_attempts, "openai"), (success, "demo")] {
            let slot = admin.get(&format!("/admin/plugins/{slot}")).await.json();
            assert_eq!(request["adapter_digest"], slot["active"], "{request}");
        }
        assert_eq!(without_model["adapter_digest"], Value::Null);
        let attempts = with_attempts["failed_attempts"].as_array();
        let attempts = attempts.expect("a list").iter();
        let attempts: Vec<_> = attempts
            .map(|attempt| {
                let said = text(&attempt["text"]);
                let words = ["first failed", "second failed"];
                let said = words.into_iter().find(|words| said.contains(words));
                (text(&attempt["provider"]), attempt["status"].clone(), said)
            })
            .collect();
        let attempt =
            |provider: &str, status: u16, said| (provider.to_owned(), json!(status), said);
        let expected = [
            attempt("first", 500, Some("first failed")),
            attempt("first", 500, Some("first failed")),
            attempt("second", 400, Some("second failed")),
        ];
        assert_eq!(attempts, expected);
        assert!(
            with_attempts["held_credits"].as_f64() > Some(0.0),
            "{with_attempts}"
        );
        for (field, value) in [
            ("status", json!("succeeded")),
            ("code", Value::Null),
            ("account_id", json!(alice_id)),
            ("key_id", json!(key_id)),
            ("source", json!("api_key")),
            ("provider", json!("demo")),
            ("attempts", json!(1)),
        ] {
            assert_eq!(success[field], value, "{field} of {success}");
        }
        assert!(success["tokens_input"].as_i64() > Some(0), "{success}");
        assert!(success["latency_ms"].is_i64(), "{success}");

        // Each filter alone, on unwritten and on folded entries.
        fold(gateway.app()).await;
        for (query, found) in [
            ("status=succeeded".to_owned(), &all[2..]),
            ("status=failed".to_owned(), &all[..2]),
            (format!("error={code}"), &all[1..2]),
            ("error=NO_SUCH_CODE".to_owned(), &[]),
            (format!("status=succeeded&error={code}"), &[]),
            ("provider=demo".to_owned(), &all[2..]),
            ("provider=second".to_owned(), &all[1..2]),
            ("model=both".to_owned(), &all[1..2]),
            ("model=demo".to_owned(), &all[2..]),
            ("model=de%00mo".to_owned(), &[]),
            (format!("user={alice_id}"), &all[2..]),
            (format!("user={bob_id}"), &all[1..2]),
            (format!("user={bob_id}&model=both&provider=first"), &[]),
            (format!("organisation={organisation}"), &all[..1]),
            (format!("organisation={organisation}&user={bob_id}"), &[]),
            (format!("key={key_id}"), &all[2..]),
            (format!("key={organisation_key}"), &all[..1]),
            (format!("key={key_id}&user={bob_id}"), &[]),
            ("key=key_0".to_owned(), &[]),
            ("from=2026-01-31T12:01:00Z".to_owned(), &all[..2]),
            ("to=2026-01-31T12:01:00Z".to_owned(), &all[2..]),
            (
                "from=2026-01-31T12:01:00Z&to=2026-01-31T12:02:00Z".to_owned(),
                &all[1..2],
            ),
            ("from=2026-02-01".to_owned(), &[]),
            ("from=2026-01-31&to=2026-01-31".to_owned(), &all[..]),
            (format!("id={}", all[2]), &all[2..]),
            (format!("id={}", all[0]), &all[..1]),
            (format!("id={}&status=succeeded", all[0]), &[]),
            ("id=req_0".to_owned(), &[]),
        ] {
            let listed = list(&admin, &format!("?{query}")).await;
            assert_eq!(ids(&listed), found, "{query}");
        }

        // Page by page, and as a table.
        for (filter, wanted) in [
            (String::new(), &all[..]),
            ("&status=failed".to_owned(), &all[..2]),
            (
                format!("&user={bob_id}&model=both&status=failed"),
                &all[1..2],
            ),
        ] {
            let first = format!("?limit=1{filter}");
            let (mut seen, mut query) = (Vec::new(), first.clone());
            loop {
                let listed = list(&admin, &query).await;
                let found = ids(&listed);
                assert!(found.len() <= 1, "{listed}");
                seen.extend(found);
                match listed["next"].as_str() {
                    Some(next) => query = format!("{first}&before={next}"),
                    None => break,
                }
                assert!(seen.len() <= 3, "{seen:?}");
            }
            assert_eq!(seen, wanted, "{filter}");
        }
        let tables = admin.clone().with_header("accept", "text/csv");
        let table = tables.get("/admin/requests?status=failed").await;
        let lines: Vec<_> = table.text().lines().map(str::to_owned).collect();
        assert!(
            lines[0].starts_with("id,at,status,code,http_status,account_id,"),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[1].starts_with(&all[0]) && lines[2].starts_with(&all[1]),
            "{lines:?}"
        );
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());

        for wrong in [
            "status=settled",
            "before=1",
            "before=x.y",
            "from=yesterday",
            "from=2026-02-01&to=2026-01-01",
            "limit=0",
            "erorr=x",
        ] {
            let answer = admin.get(&format!("/admin/requests?{wrong}")).await;
            answer.error(400, "INVALID_REQUEST");
        }
        alice.get("/admin/requests").await.error(403, "FORBIDDEN");
        by_key
            .get("/admin/requests")
            .await
            .error(401, "UNAUTHENTICATED");
    })
    .await;
}

/// A stream that breaks off is charged, and listed once, with its error.
#[tokio::test]
async fn a_response_that_breaks_off_is_listed_once_with_its_charge() {
    let upstream = Upstream::start().await;
    let reply = Reply::chat_stream(["one ", "two ", "three"]);
    let whole = reply.whole_body().len();
    upstream.will(reply.cut_after(whole / 2));
    let gateway = Gateway::with_upstream(&upstream).await;
    let stream = gateway.stream("scripted", "hello").await;
    assert!(!stream.is_whole().await);
    let admin = gateway.admin("root").await;
    let listed = list_of(&admin, "?status=failed", 1).await;
    let failed = &listed["requests"][0];
    assert_eq!(failed["http_status"], 200, "{failed}");
    assert!(failed["code"].is_string(), "{failed}");
    assert!(failed["credits"].as_f64() > Some(0.0), "{failed}");
    assert!(
        failed["held_credits"].as_f64() >= failed["credits"].as_f64(),
        "{failed}"
    );
    assert_eq!(ids(&list(&admin, "").await), ids(&listed));
    assert!(ids(&list(&admin, "?status=succeeded").await).is_empty());
}

/// Only requests for models of known accounts are stored: neither other endpoints nor strangers.
#[tokio::test]
async fn other_endpoints_and_strangers_leave_no_failure() {
    let gateway = Gateway::builder()
        .settings("internal_listen = \"127.0.0.1:0\"")
        .start()
        .await;
    let client = gateway.client();
    client
        .get("/usage/requests?limit=0")
        .await
        .error(400, "INVALID_REQUEST");
    let stranger = gateway.stranger();
    stranger
        .post("/chat", &chat("demo", "x"))
        .await
        .error(401, "UNAUTHENTICATED");
    let admin = gateway.admin("root").await;
    assert!(ids(&list(&admin, "").await).is_empty());
    client.post("/v1/messages", &json!({})).await;
    let listed = list_of(&admin, "", 1).await;
    assert_eq!(listed["requests"][0]["code"], "INVALID_REQUEST", "{listed}");

    // A service calls a model for a user.
    let user_id = gateway.web_user_id("alice").await;
    let mut body = chat("no-model", "x");
    body["user_id"] = json!(user_id);
    let service = gateway.service(&["model:call"]);
    let refused = service.post("/internal/agent/code", &body).await;
    refused.error(400, "UNKNOWN_MODEL");
    let listed = list_of(&admin, &format!("?user={user_id}"), 1).await;
    assert_eq!(listed["requests"][0]["code"], "UNKNOWN_MODEL", "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_twenty_stored_failures_a_minute_on_all_nodes() {
    let url = Postgres::shared().create_database().await;
    let clock = ManualClock::at(at(NOON));
    let rates = "[rate_limits]\nfree = 1000000\naddress = 1000000\n";
    let node = || {
        Gateway::builder()
            .postgres(&url)
            .clock(&clock)
            .tables(rates)
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let fail = async |gateway: &Gateway, key: &str, times: usize| {
        let client = gateway.stranger().with_key(key);
        for _ in 0..times {
            let refused = client.post("/chat", &chat("no-model", "x")).await;
            refused.error(400, "UNKNOWN_MODEL");
        }
        gateway.app().failed_requests.flush().await;
    };
    let (alice, bob) = (first.web_key("alice").await, first.web_key("bob").await);
    let dropped = "weir_failed_requests_dropped_total ";
    fail(&first, &alice, 25).await;
    assert_eq!(metric(&first, dropped).await, 5.0);
    fail(&second, &alice, 3).await;
    assert_eq!(metric(&second, dropped).await, 3.0);
    fail(&second, &bob, 2).await;
    let admin = first.admin("root").await;
    let count = async |user: &str| {
        let user = first.web_user_id(user).await;
        ids(&list(&admin, &format!("?limit=1000&user={user}")).await).len()
    };
    assert_eq!((count("alice").await, count("bob").await), (20, 2));
    let user = first.web_user_id("alice").await;
    let listed = list(&admin, &format!("?user={user}")).await;
    assert_eq!(listed["unrecorded"], 8, "{listed}");

    // The next minute has room again.
    clock.advance(Duration::from_secs(60));
    let admin = first.admin("root").await;
    fail(&second, &first.web_key("alice").await, 1).await;
    let from = "2026-01-31T12:01:00Z";
    assert_eq!(ids(&list(&admin, &format!("?from={from}")).await).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_stored_for_thirty_days() {
    on_each_database(
        NOON,
        |builder| builder,
        async |gateway, clock| {
            let refused = gateway.chat("no-model", "x").await;
            refused.error(400, "UNKNOWN_MODEL");
            gateway.app().failed_requests.flush().await;
            let days = RetentionDays {
                audit: NonZeroU32::new(400).expect("a number"),
                content_log: 0,
            };
            let kept = async |passed: u64| {
                clock.set(at(NOON));
                clock.advance(Duration::from_secs(passed * 86_400));
                let app = gateway.app();
                retention::prune_old(&app.database, app.clock.now(), days)
                    .await
                    .expect("a deletion");
                let admin = gateway.admin("root").await;
                ids(&list(&admin, "?status=failed").await).len()
            };
            assert_eq!(kept(29).await, 1);
            assert_eq!(kept(31).await, 0);
        },
    )
    .await;
}

/// A filter that excludes most requests ends a page early, and the next pages find the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_rare_request_is_found_behind_thousands_of_others() {
    on_each_database(
        NOON,
        |builder| builder,
        async |gateway, clock| {
            let app = gateway.app();
            let (rare, many) = (
                gateway.web_user_id("rare").await,
                gateway.web_user_id("many").await,
            );
            let served = tests::ledger::Served {
                user: &rare,
                model: "rare",
                provider: "rare",
                credits: 1,
                cost: 1,
            };
            for user in [&rare, &many] {
                tests::gateway::top_up(app, user, Credits::whole(1_000)).await;
            }
            tests::ledger::serve(app, served).await;
            clock.advance(Duration::from_secs(1));
            let others = tests::ledger::Served {
                user: &many,
                model: "many",
                provider: "many",
                ..served
            };
            tests::ledger::serve_many(app, others, 6_000).await;
            let admin = gateway.admin("root").await;
            for query in ["model=rare", "provider=rare", "to=2026-01-31T12:00:00.500Z"] {
                let (mut pages, mut found, mut next) = (0, Vec::new(), String::new());
                loop {
                    let listed = list(&admin, &format!("?{query}{next}")).await;
                    found.extend(ids(&listed));
                    pages += 1;
                    match listed["next"].as_str() {
                        Some(before) => next = format!("&before={before}"),
                        None => break,
                    }
                }
                assert_eq!(
                    (found.len(), pages > 1),
                    (1, true),
                    "{query}: {pages} pages"
                );
            }
            let first = list(&admin, "?limit=3&status=succeeded").await;
            assert_eq!(ids(&first).len(), 3);
            assert_eq!(first["requests"][0]["model"], "many", "{first}");
        },
    )
    .await;
}

#[tokio::test]
async fn the_console_lists_the_requests_and_explains_a_failure() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::with_upstream(&upstream).await;
    let path = "/console/admin/requests";
    gateway.admin("root").await;
    let mut root = Browser::of(&gateway, "root").await;
    let empty = root.page(path).await;
    assert!(empty.contains("No request matches."), "{empty}");

    upstream.always(Reply::error(500, "out of order"));
    let failed = gateway.chat("scripted", "prompt-canary").await;
    let code = text(&failed.json()["error"]["code"]);
    upstream.always(Reply::chat("fine"));
    let served = gateway.chat("scripted", "prompt-canary").await;
    assert_eq!(served.status, 200, "{}", served.text());
    let (failed, served) = (id_of(&failed), id_of(&served));
    let admin = gateway.admin("root").await;
    list_of(&admin, "?status=failed", 1).await;
    let html = root.page(path).await;
    for shown in [
        &failed,
        &served,
        &code,
        "scripted",
        "succeeded",
        "aria-current=\"page\"",
    ] {
        assert!(html.contains(shown), "{shown} in {html}");
    }
    assert!(!html.contains("canary"), "{html}");
    for (query, has_failed, has_served) in [
        ("status=failed".to_owned(), true, false),
        (
            "status=succeeded&error=&provider=&from=&to=".to_owned(),
            false,
            true,
        ),
        (format!("error={code}"), true, false),
        (format!("id={served}"), false, true),
        ("model=other".to_owned(), false, false),
    ] {
        let html = root.page(&format!("{path}?{query}")).await;
        let has = |id: &str| html.contains(&format!("{path}/{id}"));
        assert_eq!(
            (has(&failed), has(&served)),
            (has_failed, has_served),
            "{query}: {html}"
        );
        assert!(html.contains("Show all"), "{html}");
    }

    let html = root.page(&format!("{path}/{failed}")).await;
    let codes = weir_errors::ErrorCode::ALL.iter();
    let mut known = codes
        .filter(|known| known.as_str() == code)
        .map(|code| code.meaning());
    let meaning = known
        .next()
        .expect("a documented code")
        .replace('\'', "&#39;");
    for shown in [
        &*code,
        &meaning,
        "Why it failed",
        "weir made 2 attempts at providers. The last one was at scripted.",
        "<dt>Trace</dt>",
    ] {
        assert!(html.contains(shown), "{shown} in {html}");
    }
    let html = root.page(&format!("{path}/{served}")).await;
    assert!(
        html.contains(&served) && !html.contains("Why it failed"),
        "{html}"
    );
    let missing = root.get(&format!("{path}/req_0")).await;
    assert_eq!(missing.status, 404);
    for (wrong, message) in [
        ("from=x", "must be a day"),
        ("from=2026-02-01&to=2026-01-01", " is before "),
        ("status=x", "must be succeeded or failed"),
    ] {
        let answer = root.get(&format!("{path}?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(
            page(&answer).contains(message),
            "{wrong}: {}",
            answer.text()
        );
    }
    let refused = gateway.chat("no-model", "x").await;
    let html = root.page(&format!("{path}/{}", id_of(&refused))).await;
    assert!(
        html.contains("weir rejected the request before it reached a provider."),
        "{html}"
    );
}
