//! The operator's overview: sums by hour and day from all nodes, filters and groups, breakers of pools, the queue, models
//! that end soon, and the page with these figures.

use std::fs;
use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Executor as _;
use tempfile::TempDir;
use tests::gateway::{USER, at, on_each_database, top_up};
use tests::stores::Postgres;
use tests::{Client, Gateway, Reply, Upstream, chat, patiently};
use weir_ledger::Credits;
use weir_request::audit::retention::{self, RetentionDays};
use weir_storage::clock::ManualClock;

use crate::console::Browser;

const NOON: &str = "2026-01-31T12:00:00Z";

async fn overview(admin: &Client, query: &str) -> Value {
    let answer = admin.get(&format!("/admin/overview{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

/// Returns the overview of a query as soon as it has this number of requests: they count after their responses.
async fn overview_of(admin: &Client, query: &str, requests: u64) -> Value {
    patiently(async {
        loop {
            let found = overview(admin, query).await;
            if found["total"]["requests"] == requests {
                return found;
            }
        }
    })
    .await
}

/// The ids of the groups, and their requests.
fn groups(overview: &Value) -> Vec<(String, u64)> {
    let groups = overview["groups"].as_array().expect("a list").iter();
    let group = |group: &Value| {
        let id = group["id"].as_str().expect("a text").to_owned();
        (id, group["requests"].as_u64().expect("a count"))
    };
    groups.map(group).collect()
}

/// The moments with requests, and their number.
fn busy_steps(overview: &Value) -> Vec<(String, u64)> {
    let steps = overview["series"].as_array().expect("a list").iter();
    let step = |step: &Value| {
        let at = step["at"].as_str().expect("a text").to_owned();
        (at, step["requests"].as_u64().expect("a count"))
    };
    steps
        .map(step)
        .filter(|(_, requests)| *requests > 0)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_summed_by_hour_and_day_with_errors_times_tokens_and_spend() {
    let upstream = Upstream::start().await;
    on_each_database(
        NOON,
        |builder| {
            builder.upstream("m", &upstream).tables(
                "[models.old]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
                 ends_on = \"2026-02-10\"\nprice = { input = 1, output = 2 }\nupstreams = [{ provider = \"m\" }]\n",
            )
        },
        async |gateway, clock| {
            let admin = gateway.admin("root").await;
            upstream.will(Reply::chat_with_usage("a", 100, 50));
            assert_eq!(gateway.chat("m", "x").await.status, 200);
            upstream.will_stream(["b", "c"]);
            assert_eq!(gateway.stream("m", "x").await.content().await, "bc");
            gateway.chat("no-model", "x").await.error(400, "UNKNOWN_MODEL");
            upstream.always(Reply::error(500, "broken"));
            let failed = gateway.chat("m", "x").await;
            assert!(failed.status.is_server_error(), "{}", failed.text());
            let found = overview_of(&admin, "", 4).await;
            let total = &found["total"];
            assert_eq!(
                [&total["client_errors"], &total["provider_errors"], &total["gateway_errors"]],
                [1, 1, 0]
            );
            assert!(total["tokens_input"].as_u64() > Some(0), "{total}");
            assert!(total["tokens_output"].as_u64() >= Some(50), "{total}");
            assert!(total["credits"].as_f64() > Some(0.0), "{total}");
            for time in ["first_token_p50_ms", "first_token_p95_ms", "total_p50_ms", "total_p95_ms"] {
                assert!(total[time].as_i64().is_some(), "{time}: {total}");
            }
            assert_eq!(found["series"].as_array().map(Vec::len), Some(24));
            assert_eq!(busy_steps(&found), [(NOON.to_owned(), 4)]);
            assert_eq!((&found["period"], &found["step"]), (&json!("24h"), &json!("hour")));
            assert_eq!(found["from"], "2026-01-30T13:00:00Z");
            assert_eq!(groups(&found), [("m".to_owned(), 3), (String::new(), 1)]);
            assert_eq!(found["ending_models"][0]["id"], "old");
            assert_eq!(found["ending_models"][0]["ends_on"], "2026-02-10");
            assert_eq!(found["queue"]["waiting"], 0);
            let works = found["background"].as_array().expect("a list");
            let sweep = works.iter().find(|work| work["name"] == "settle abandoned holds");
            let sweep = sweep.expect("the ledger's sweep");
            assert_eq!(sweep["failures"], 0, "{sweep}");
            assert!(sweep["last_success_at"].is_string(), "{sweep}");

            // The next hour, and the next day.
            upstream.always(Reply::chat("a"));
            clock.advance(Duration::from_secs(3_600));
            assert_eq!(gateway.chat("m", "x").await.status, 200);
            clock.advance(Duration::from_secs(12 * 3_600));
            assert_eq!(gateway.chat("m", "x").await.status, 200);
            let admin = gateway.admin("root").await;
            let found = overview_of(&admin, "?period=24h", 6).await;
            let busy = [
                (NOON, 4),
                ("2026-01-31T13:00:00Z", 1),
                ("2026-02-01T01:00:00Z", 1),
            ];
            assert_eq!(busy_steps(&found), busy.map(|(at, count)| (at.to_owned(), count)));
            for (period, days) in [("7d", 7), ("30d", 30)] {
                let found = overview(&admin, &format!("?period={period}")).await;
                assert_eq!(found["series"].as_array().map(Vec::len), Some(days));
                assert_eq!(found["step"], "day");
                let busy = [("2026-01-31T00:00:00Z", 5), ("2026-02-01T00:00:00Z", 1)];
                assert_eq!(busy_steps(&found), busy.map(|(at, count)| (at.to_owned(), count)));
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_filtered_and_grouped_by_provider_model_key_and_organisation() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("a"));
    on_each_database(
        NOON,
        |builder| builder.upstream("m", &upstream).upstream("n", &upstream),
        async |gateway, _| {
            let admin = gateway.admin("root").await;
            let owner = gateway.web("owner");
            let made = owner
                .post("/organisations", &json!({ "name": "Acme" }))
                .await
                .json();
            let acme = made["organisation_id"].as_str().expect("an id").to_owned();
            top_up(gateway.app(), &acme, Credits::whole(100)).await;
            let member = owner.clone().with_header("x-weir-account", &acme);
            let key = member.post("/api-keys", &json!({ "name": "builds" })).await;
            assert_eq!(key.status, 201, "{}", key.text());
            let key = key.json();
            let key_id = key["key_id"].as_str().expect("an id").to_owned();
            let keyed = gateway
                .stranger()
                .with_key(key["api_key"].as_str().expect("a key"));
            for (client, model, times) in [
                (&member, "m", 1),
                (&keyed, "m", 2),
                (&keyed, "n", 1),
                (&gateway.client(), "n", 3),
            ] {
                for _ in 0..times {
                    let answer = client.post("/chat", &chat(model, "x")).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                }
            }
            let all = overview_of(&admin, "", 7).await;
            assert_eq!(groups(&all), [("n".to_owned(), 4), ("m".to_owned(), 3)]);
            let models = overview(&admin, "?group=model&provider=m").await;
            assert_eq!(
                (groups(&models), &models["total"]["requests"]),
                (vec![("m".to_owned(), 3)], &json!(3))
            );
            let accounts = overview(&admin, "?group=account").await;
            let own = USER.to_owned();
            assert_eq!(groups(&accounts), [(acme.clone(), 4), (own.clone(), 3)]);
            let of_own = overview(&admin, &format!("?group=model&account={own}")).await;
            assert_eq!(groups(&of_own), [("n".to_owned(), 3)]);
            let organisations = overview(&admin, "?group=organisation").await;
            assert_eq!(groups(&organisations), [(acme.clone(), 4)]);
            assert_eq!(organisations["groups"][0]["name"], "Acme");
            // The figures above the groups are those of all requests.
            assert_eq!(organisations["total"]["requests"], 7);
            let keys = overview(&admin, &format!("?group=key&account={acme}")).await;
            assert_eq!(groups(&keys), [(key_id.clone(), 3)]);
            assert_eq!(
                (&keys["groups"][0]["name"], &keys["total"]["requests"]),
                (&json!("builds"), &json!(4))
            );
            let of_key = overview(&admin, &format!("?key={key_id}&model=n")).await;
            assert_eq!(
                (groups(&of_key), &of_key["total"]["requests"]),
                (vec![("n".to_owned(), 1)], &json!(1))
            );
            for none in ["?model=none", "?account=org_none", "?key=%00"] {
                let none = overview(&admin, none).await;
                assert_eq!(
                    (groups(&none), &none["total"]["requests"]),
                    (vec![], &json!(0))
                );
                assert_eq!(none["total"]["total_p95_ms"], Value::Null);
            }
            for wrong in ["period=1h", "group=user", "sort=x"] {
                let answer = admin.get(&format!("/admin/overview?{wrong}")).await;
                answer.error(400, "INVALID_REQUEST");
            }
            gateway
                .client()
                .get("/admin/overview")
                .await
                .error(401, "UNAUTHENTICATED");
            owner.get("/admin/overview").await.error(403, "FORBIDDEN");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_add_to_the_same_sums_and_write_them_when_they_stop() {
    let url = Postgres::shared().create_database().await;
    let clock = ManualClock::at(at(NOON));
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("a"));
    let node = || {
        Gateway::builder()
            .postgres(&url)
            .clock(&clock)
            .upstream("m", &upstream)
    };
    let first = node().start().await;
    let second = node().sharing_secrets_of(&first).start().await;
    let key = first.web_key("alice").await;
    for (gateway, times) in [(&first, 2), (&second, 3)] {
        let client = gateway.stranger().with_key(&key);
        for _ in 0..times {
            assert_eq!(client.post("/chat", &chat("m", "x")).await.status, 200);
        }
    }
    second.stop().await;
    let found = overview_of(&first.admin("root").await, "", 5).await;
    assert_eq!(groups(&found), [("m".to_owned(), 5)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_survive_a_failing_database_and_are_stored_for_thirty_five_days() {
    on_each_database(
        NOON,
        |builder| builder,
        async |gateway, clock| {
            let database = &gateway.app().database;
            let rename = async |from: &str, to: &str| {
                let statement = format!("ALTER TABLE {from} RENAME TO {to}");
                let renamed = database
                    .writer()
                    .execute(sqlx::AssertSqlSafe(statement))
                    .await;
                renamed.expect("it is renamed");
            };
            gateway
                .chat("no-model", "x")
                .await
                .error(400, "UNKNOWN_MODEL");
            rename("traffic_hours", "hidden").await;
            gateway.app().traffic.flush().await;
            rename("hidden", "traffic_hours").await;
            gateway
                .chat("no-model", "x")
                .await
                .error(400, "UNKNOWN_MODEL");
            overview_of(&gateway.admin("root").await, "", 2).await;
            let rows = async || -> i64 {
                let rows = "SELECT CAST(COUNT(*) AS BIGINT) FROM traffic_hours";
                let rows = sqlx::query_scalar(rows).fetch_one(database.reader());
                rows.await.expect("it answers")
            };
            let days = RetentionDays {
                audit: NonZeroU32::new(400).expect("a number"),
                content_log: 0,
            };
            for (passed, is_kept) in [(34, true), (36, false)] {
                clock.set(at(NOON));
                clock.advance(Duration::from_secs(passed * 86_400));
                retention::prune_old(database, gateway.app().clock.now(), days)
                    .await
                    .expect("a deletion");
                assert_eq!(rows().await > 0, is_kept, "{passed} days");
            }
        },
    )
    .await;
}

/// The provider's state, and the state of the breaker of each of its credentials.
fn health(overview: &Value, provider: &str) -> (String, Vec<(u64, String)>) {
    let providers = overview["providers"].as_array().expect("a list");
    let found = providers
        .iter()
        .find(|found| found["name"] == provider)
        .expect("the provider");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let breakers = found["breakers"].as_array().expect("a list").iter();
    let breakers = breakers.map(|breaker| {
        (
            breaker["credential"].as_u64().expect("a place"),
            text(&breaker["state"]),
        )
    });
    (text(&found["state"]), breakers.collect())
}

#[tokio::test]
async fn each_credential_of_a_pool_has_a_breaker_in_the_overview_and_the_metrics() {
    let folder = TempDir::new().expect("a folder");
    let upstream = Upstream::start().await;
    upstream.always_by(|request| match request.header("authorization") {
        Some("Bearer second-credential-0123456789") => Reply::chat("served"),
        _ => Reply::error(401, "no"),
    });
    let sources = [
        "first-credential-0123456789",
        "second-credential-0123456789",
    ]
    .map(|credential| {
        let file = folder.path().join(credential);
        fs::write(&file, credential).expect("the folder can be written");
        format!("{{ file = {file:?} }}")
    });
    let gateway = Gateway::builder()
        .tables(&format!(
            "[providers.pool]\nadapter = \"openai\"\nbase_url = \"{}\"\ncredentials = [{}]\n",
            upstream.base_url(),
            sources.join(", ")
        ))
        .model("pooled", &["pool"])
        .start()
        .await;
    let admin = gateway.admin("root").await;
    let closed = |credential| (credential, "closed".to_owned());
    let before = health(&overview(&admin, "").await, "pool");
    assert_eq!(before, ("working".to_owned(), vec![closed(1), closed(2)]));
    let metric = async |line: &str| {
        let metrics = gateway.stranger().get("/metrics").await.text();
        assert!(metrics.contains(&format!("{line}\n")), "{line}: {metrics}");
    };
    metric("weir_upstream_breaker_open{upstream=\"pool/pooled\"} 0").await;
    metric("weir_upstream_breaker_open{upstream=\"pool#2/pooled\"} 0").await;
    // Conversations are shared out, so one of them begins with the refused credential.
    while upstream.requests().iter().all(|request| {
        request.header("authorization") == Some("Bearer second-credential-0123456789")
    }) {
        assert_eq!(gateway.chat("pooled", "x").await.status, 200);
    }
    let after = overview(&admin, "").await;
    let refused = (1, "refused".to_owned());
    assert_eq!(
        health(&after, "pool"),
        ("degraded".to_owned(), vec![refused, closed(2)])
    );
    metric("weir_upstream_credential_refused{upstream=\"pool/pooled\"} 1").await;
    metric("weir_upstream_credential_refused{upstream=\"pool#2/pooled\"} 0").await;
    metric("weir_upstream_resting{upstream=\"pool/pooled\"} 0").await;
    let page = Browser::of(&gateway, "root")
        .await
        .page("/console/admin")
        .await;
    assert!(
        page.contains("pooled, credential 1 <span class=\"badge bad\">credential refused</span>"),
        "{page}"
    );
}

#[tokio::test]
async fn the_operators_page_has_every_figure_without_a_script_and_refreshes_a_part() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("a"));
    let gateway = Gateway::builder().upstream("m", &upstream).start().await;
    let admin = gateway.admin("root").await;
    let mut root = Browser::of(&gateway, "root").await;
    let page = root.page("/console/admin").await;
    assert!(
        page.contains("No request of a known account has ended in the last 24 hours."),
        "{page}"
    );
    assert_eq!(gateway.chat("m", "x").await.status, 200);
    let found = overview_of(&admin, "", 1).await;
    let tokens = format!(
        "<td class=\"number\">{}</td>",
        found["total"]["tokens_input"]
    );
    let page = root.page("/console/admin?period=7d&group=model").await;
    for text in [
        "Server-side failures",
        "p95 time to first token",
        "Time to first token, seconds",
        "data-plot=\"{",
        &tokens,
        "href=\"/console/admin?period=7d&#38;group=model&#38;model=m\"",
        "hx-get=\"/console/admin/overview?period=7d&#38;group=model\"",
        "uplot.",
        "Queue of this node",
        "No model ends within 60 days.",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let part = root
        .page("/console/admin/overview?period=7d&group=model")
        .await;
    assert!(part.contains(&tokens) && !part.contains("<html"), "{part}");
    let narrow = root.page("/console/admin?model=gone").await;
    assert!(narrow.contains("with this filter"), "{narrow}");
    assert!(
        narrow.contains("<option value=\"gone\" selected>"),
        "{narrow}"
    );
    let mut alice = Browser::of(&gateway, "alice").await;
    assert_eq!(alice.get("/console/admin/overview").await.status, 403);
}

#[tokio::test]
async fn the_list_of_all_requests_is_downloaded_from_its_page() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("a"));
    let builder = Gateway::builder().upstream("m", &upstream);
    let gateway = builder.upstream("n", &upstream).start().await;
    for model in ["m", "n", "n"] {
        assert_eq!(gateway.chat(model, "x").await.status, 200);
    }
    gateway.admin("root").await;
    let mut root = Browser::of(&gateway, "root").await;
    let page = root.page("/console/admin/requests?model=n").await;
    let path = "/console/admin/requests.csv?model=n";
    assert!(
        page.contains(&format!("download href=\"{path}\"")),
        "{page}"
    );
    let table = root.get(path).await;
    assert_eq!(table.status, 200, "{}", table.text());
    assert_eq!(table.headers["content-type"], "text/csv; charset=utf-8");
    assert_eq!(table.text().lines().count(), 3, "{}", table.text());
    let mut alice = Browser::of(&gateway, "alice").await;
    assert_eq!(alice.get(path).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_that_are_nearly_used_are_listed_with_their_accounts() {
    let upstream = Upstream::start().await;
    on_each_database(
        NOON,
        |builder| builder.upstream("m", &upstream),
        async |gateway, clock| {
            let admin = gateway.admin("root").await;
            let charge = async || {
                upstream.will(Reply::chat_with_usage("fine", 10, 1_000));
                let mut asked = chat("m", "x");
                asked["max_tokens"] = json!(1_000);
                let answer = gateway.client().post("/chat", &asked).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                answer.json()["usage"]["credits"].as_f64().expect("a number")
            };
            let tight = async || overview(&admin, "").await["tight_budgets"].clone();
            let price = charge().await;
            let limit = (price * 1_200_000.0).ceil() / 1_000_000.0;
            let budgets = json!({ "budgets": [
                { "credits": limit, "window": "day" }, { "credits": limit * 10.0, "window": "month" },
            ] });
            let path = format!("/admin/users/{USER}/budgets");
            let set = admin.post(&path, &budgets).await;
            assert_eq!(set.status, 200, "{}", set.text());
            assert_eq!(tight().await, json!([]));
            // A budget that rejects a large request is there, too.
            let mut large = chat("m", "x");
            large["max_tokens"] = json!(4_000);
            let rejected = gateway.client().post("/chat", &large).await;
            rejected.error(429, "BUDGET_EXCEEDED");
            gateway.app().failed_requests.flush().await;
            let found = tight().await;
            assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
            assert_eq!(
                (&found[0]["rejected_requests"], &found[0]["percent"], &found[0]["budget"]["window"]),
                (&json!(1), &json!(0), &json!("day"))
            );
            charge().await;
            let found = patiently(async {
                loop {
                    let found = tight().await;
                    if found[0]["percent"] != 0 {
                        return found;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
            assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
            let found = &found[0];
            assert_eq!(
                (&found["account_id"], &found["of"], &found["id"], &found["percent"]),
                (&json!(USER), &json!("account"), &Value::Null, &json!(83))
            );
            assert_eq!(
                (&found["budget"]["window"], &found["budget"]["resets_at"]),
                (&json!("day"), &json!("2026-02-01T00:00:00Z")),
                "{found}"
            );
            // The next window has room again.
            clock.set(at("2026-02-01T12:00:01Z"));
            let admin = gateway.admin("root").await;
            let later = overview(&admin, "").await;
            assert_eq!(later["tight_budgets"], json!([]));
        },
    )
    .await;
}
