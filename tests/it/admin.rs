//! Administrators' reports: the platform by calendar months, and the costs and revenues of models.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::gateway::{USER, at, on_each_database};
use tests::ledger::{Served, hold, serve, settle};
use tests::{Client, Gateway, guests};
use weir_identity::dev_issuer::{DevAudience, DevIssuer};
use weir_identity::store;
use weir_ledger::verify::verify;
use weir_storage::clock::ManualClock;

use crate::usage::fold;

const REPORTS: [&str; 2] = ["/admin/usage", "/admin/model-economics"];

/// Endpoints for administrators only, besides reports.
const OPERATED: [(&str, &str); 19] = [
    ("GET", "/admin/users"),
    ("GET", "/admin/users/alice"),
    ("POST", "/admin/users/alice/disable"),
    ("POST", "/admin/users/alice/enable"),
    ("POST", "/admin/users/alice/plan"),
    ("PUT", "/admin/users/alice/filter-options"),
    ("POST", "/admin/users/alice/top-up"),
    ("POST", "/admin/users/alice/grant-admin"),
    ("POST", "/admin/users/alice/revoke-admin"),
    ("GET", "/admin/keys"),
    ("DELETE", "/admin/keys/key_0123456789abcdef"),
    ("GET", "/admin/audit"),
    ("GET", "/admin/requests"),
    ("GET", "/admin/overview"),
    ("GET", "/admin/catalog/layer"),
    ("PUT", "/admin/catalog/layer"),
    ("POST", "/admin/catalog/layer/check"),
    ("POST", "/admin/catalog/layer/restore"),
    ("GET", "/admin/catalog/layers"),
];

const LARGE: Served<'static> = Served {
    user: USER,
    model: "large",
    provider: "p",
    credits: 4_000_000,
    cost: 1_000_000,
};

/// A gateway on each database, with a clock at the last moment of January.
async fn each(test: impl AsyncFn(Gateway, ManualClock)) {
    on_each_database("2026-01-31T23:59:59.999Z", |builder| builder, test).await;
}

async fn report(admin: &Client, path: &str) -> String {
    let answer = admin.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_is_reported_exactly() {
    each(async |gateway, clock| {
        let (app, bob) = (gateway.app(), gateway.web_user_id("bob").await);
        let bob = bob.as_str();
        let small = Served {
            user: bob,
            model: "small",
            credits: 1_500_000,
            cost: 3_000_000,
            ..LARGE
        };
        // January: one request, and one that ends in February.
        serve(app, LARGE).await;
        let open = hold(app, small).await;
        clock.set(at("2026-02-01T00:00:00Z"));
        settle(app, open, small).await;
        serve(app, small).await;
        clock.set(at("2026-02-28T23:59:59.999Z"));
        serve(app, LARGE).await;
        let gift = Served {
            user: bob,
            provider: "q",
            credits: 0,
            cost: 5,
            ..LARGE
        };
        serve(app, gift).await;
        serve(app, small).await;
        clock.set(at("2026-03-01T00:00:00Z"));
        serve(app, Served { credits: 499_999, ..LARGE }).await;
        let idle = hold(app, small).await;

        let admin = gateway.admin("root").await;
        for (month, expected) in [
            (
                "2026-01",
                concat!(
                    r#"{"period":"2026-01","total_requests":1,"total_credits_consumed":4,"active_users":1,"#,
                    r#""requests_by_day":[{"date":"2026-01-31","requests":1,"credits":4}],"#,
                    r#""top_models":[{"model":"large","requests":1,"credits":4}]}"#
                ),
            ),
            // 3 + 5.5 credits are 8.5, and 3 × 1.5 are 4.5: each sum is rounded half up, once.
            (
                "2026-02",
                concat!(
                    r#"{"period":"2026-02","total_requests":5,"total_credits_consumed":9,"active_users":2,"#,
                    r#""requests_by_day":[{"date":"2026-02-01","requests":2,"credits":3},"#,
                    r#"{"date":"2026-02-28","requests":3,"credits":6}],"#,
                    r#""top_models":[{"model":"small","requests":3,"credits":5},"#,
                    r#"{"model":"large","requests":2,"credits":4}]}"#
                ),
            ),
            (
                "2026-03",
                concat!(
                    r#"{"period":"2026-03","total_requests":1,"total_credits_consumed":0,"active_users":1,"#,
                    r#""requests_by_day":[{"date":"2026-03-01","requests":1,"credits":0}],"#,
                    r#""top_models":[{"model":"large","requests":1,"credits":0}]}"#
                ),
            ),
            (
                "2025-12",
                concat!(
                    r#"{"period":"2025-12","total_requests":0,"total_credits_consumed":0,"active_users":0,"#,
                    r#""requests_by_day":[],"top_models":[]}"#
                ),
            ),
        ] {
            let path = format!("/admin/usage?period={month}");
            assert_eq!(report(&admin, &path).await, expected);
        }
        let economics = "/admin/model-economics?period=2026-02";
        assert_eq!(
            report(&admin, economics).await,
            concat!(
                r#"[{"model":"large","provider":"p","total_requests":1,"total_input_tokens":10,"#,
                r#""total_output_tokens":20,"provider_cost_usd":0.001,"revenue_credits":4,"#,
                r#""revenue_usd":0.004,"margin_pct":75.0,"unit":"tokens","quantity":30},"#,
                r#"{"model":"large","provider":"q","total_requests":1,"total_input_tokens":10,"#,
                r#""total_output_tokens":20,"provider_cost_usd":5e-9,"revenue_credits":0,"#,
                r#""revenue_usd":0.0,"margin_pct":null,"unit":"tokens","quantity":30},"#,
                r#"{"model":"small","provider":"p","total_requests":3,"total_input_tokens":30,"#,
                r#""total_output_tokens":60,"provider_cost_usd":0.009,"revenue_credits":5,"#,
                r#""revenue_usd":0.0045,"margin_pct":-100.0,"unit":"tokens","quantity":90}]"#
            )
        );
        let empty = "/admin/model-economics?period=2025-12";
        assert_eq!(report(&admin, empty).await, "[]");

        // By default the current month until now.
        settle(app, idle, small).await;
        let march = report(&admin, "/admin/usage").await;
        assert!(
            march.starts_with(r#"{"period":"2026-03","total_requests":2,"total_credits_consumed":2,"active_users":2,"#),
            "{march}"
        );
        let march = report(&admin, "/admin/model-economics").await;
        assert_eq!(march.matches(r#"{"model":"#).count(), 2, "{march}");
    })
    .await;
}

/// The reports read sums over all accounts, which nodes of an earlier version do not write.
#[tokio::test(flavor = "multi_thread")]
async fn reports_are_exact_whichever_entries_are_in_which_sums() {
    each(async |gateway, clock| {
        let app = gateway.app();
        let admin = gateway.admin("root").await;
        let bob = gateway.web_user_id("bob").await;
        let reports = async || {
            let mut reports = Vec::new();
            for path in REPORTS {
                reports.push(report(&admin, &format!("{path}?period=2026-01")).await);
            }
            reports
        };
        let database = &app.database;
        let count = async |sql: &'static str| -> i64 {
            let count = sqlx::query_scalar(sql).fetch_one(database.reader());
            count.await.expect("a number")
        };
        let is_sound = async || {
            let violations = verify(database, app.clock.now()).await;
            assert_eq!(violations.expect("an answer"), []);
        };
        for user in [USER, &bob] {
            serve(app, Served { user, ..LARGE }).await;
        }
        let expected = reports().await;
        assert!(expected[0].contains(r#""total_requests":2,"total_credits_consumed":8"#));
        fold(app).await;
        assert_eq!(reports().await, expected);
        is_sound().await;
        let rows = "SELECT CAST(COUNT(*) AS BIGINT) FROM platform_daily WHERE requests = 2";
        assert_eq!(count(rows).await, 1, "one row for both accounts");
        let active = "SELECT CAST(COUNT(*) AS BIGINT) FROM active_accounts WHERE month = '2026-01'";
        assert_eq!(count(active).await, 2);

        // As if a node of an earlier version had folded all entries.
        for statement in [
            "DELETE FROM platform_daily",
            "DELETE FROM active_accounts",
            "UPDATE platform_folded SET number = 0",
        ] {
            let done = sqlx::query(statement).execute(database.writer()).await;
            done.expect("it can be written");
        }
        assert_eq!(reports().await, expected);
        is_sound().await;
        // The next fold adds what is missing.
        clock.set(at("2026-02-01T00:00:00Z"));
        serve(app, LARGE).await;
        fold(app).await;
        assert_eq!(reports().await, expected);
        is_sound().await;
        assert_eq!(count(rows).await, 1);
        assert_eq!(count(active).await, 2);
        let behind = "SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE number > (SELECT number FROM platform_folded)";
        assert_eq!(count(behind).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_administrators_who_are_signed_in_are_let_in() {
    each(async |gateway, clock| {
        let admin = gateway.admin("root").await;
        let database = &gateway.app().database;
        // The same role does not turn a key into an administrator.
        let now = weir_storage::clock::Clock::Manual(clock.clone()).now();
        let granted = store::grant_admin(database, USER, now).await;
        assert!(granted.expect("the database answers"));
        for path in REPORTS {
            report(&admin, path).await;
            let key = gateway.client().get(path).await;
            key.error(401, "UNAUTHENTICATED");
            let stranger = gateway.stranger().get(path).await;
            stranger.error(401, "UNAUTHENTICATED");
            let user = gateway.web("bob").get(path).await;
            user.error(403, "FORBIDDEN");
            let malformed = gateway.web("bob").get(&format!("{path}?period=x")).await;
            malformed.error(403, "FORBIDDEN");
        }
        let root = gateway.web_user_id("root").await;
        let revoked = store::revoke_admin(database, &root).await;
        assert!(revoked.expect("the database answers"));
        for path in REPORTS {
            admin.get(path).await.error(403, "FORBIDDEN");
        }
    })
    .await;
}

#[tokio::test]
async fn a_malformed_period_is_refused_by_name() {
    let gateway = Gateway::start().await;
    let admin = gateway.admin("root").await;
    for path in REPORTS {
        for query in [
            "period=",
            "period=2026",
            "period=2026-13",
            "period=2026-00",
            "period=2026-1",
            "period=2026-01-01",
            "period=2026-01%00",
            "period=%ff",
            "period='%20OR%201=1",
            "period=2026-01&period=2026-02",
        ] {
            let error = admin.get(&format!("{path}?{query}")).await;
            let error = error.error(400, "INVALID_REQUEST");
            assert_eq!(error["param"], "period", "{query}");
        }
        report(&admin, &format!("{path}?other=1")).await;
    }
}

/// Reads an administrator's list, part by part.
async fn parts(admin: &Client, path: &str, items: &str, id: &str, cursor: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut next = Some(String::new());
    while let Some(after) = next {
        let sign = if path.contains('?') { '&' } else { '?' };
        let after = match &*after {
            "" => String::new(),
            after => format!("&{cursor}={after}"),
        };
        let part = admin.get(&format!("{path}{sign}limit=2{after}")).await;
        assert_eq!(part.status, 200, "{}", part.text());
        let part = part.json();
        let listed = part[items].as_array().expect("a list");
        assert!((1..=2).contains(&listed.len()), "{part}");
        let text = |item: &Value| {
            item[id]
                .as_str()
                .map_or_else(|| item[id].to_string(), str::to_owned)
        };
        found.extend(listed.iter().map(text));
        next = part["next"].as_str().map(str::to_owned);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_keys_are_listed_part_by_part_without_their_secrets() {
    each(async |gateway, _| {
        let admin = gateway.admin("root").await;
        let root = gateway.web_user_id("root").await;
        let mut made = Vec::new();
        for user in ["bob", "bob", "carol", "bob", "a/b?c"] {
            let new = json!({ "user_id": user, "name": "n" });
            let created = admin.post("/admin/keys", &new).await;
            assert_eq!(created.status, 201, "{}", created.text());
            made.push(created.json());
        }
        let raw = made[0]["api_key"].as_str().expect("a key");
        let models = gateway.stranger().with_key(raw).get("/models").await;
        assert_eq!(models.status, 200, "{}", models.text());

        let users = parts(&admin, "/admin/users", "users", "user_id", "after").await;
        let mut sorted = vec!["a/b?c", USER, "bob", "carol", &root];
        sorted.sort_unstable();
        let mut found = users.clone();
        found.sort_unstable();
        assert_eq!(found, sorted, "each once");
        let admins = parts(
            &admin,
            "/admin/users?admin=true",
            "users",
            "user_id",
            "after",
        )
        .await;
        assert_eq!(admins, [&*root]);

        let keys = parts(&admin, "/admin/keys?user_id=bob", "keys", "key_id", "after").await;
        assert_eq!(keys.len(), 3, "{keys:?}");
        let all = parts(&admin, "/admin/keys", "keys", "key_id", "after").await;
        assert_eq!(all.len(), 6, "each once: {all:?}");
        let listed = admin.get("/admin/keys").await.text();
        for key in &made {
            let raw = key["api_key"].as_str().expect("a key");
            assert!(
                listed.contains(&raw[..10]) && !listed.contains(&raw[..14]),
                "{listed}"
            );
        }
        let gone = admin.delete(&format!("/admin/keys/{}", keys[1])).await;
        assert_eq!(gone.status, 204);
        let active = parts(
            &admin,
            "/admin/keys?user_id=bob&active=true",
            "keys",
            "key_id",
            "after",
        );
        assert_eq!(active.await, [keys[0].clone(), keys[2].clone()]);

        let path = "/admin/users/a%2Fb%3Fc";
        let shown = admin.get(path).await.json();
        assert_eq!(shown["user_id"], "a/b?c");
        assert_eq!(shown["account"]["available_credits"], 500);
        let topped_up = admin
            .post(&format!("{path}/top-up"), &json!({ "credits": 1.25 }))
            .await;
        assert_eq!(topped_up.json()["account"]["available_credits"], 501.25);

        let by = format!("/admin/audit?actor=user:{root}");
        let events = parts(&admin, &by, "events", "kind", "before").await;
        let (created, others): (Vec<_>, Vec<_>) =
            events.into_iter().partition(|kind| kind == "user.created");
        assert_eq!(created.len(), 3, "bob, carol and a/b?c");
        let mut expected = vec!["user.topped_up", "api_key.revoked"];
        expected.extend(["api_key.created"; 5]);
        assert_eq!(others, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_keys_plugins_and_settings_are_one_list() {
    let builder = Gateway::builder();
    let config = builder.config();
    let gateway = builder.start().await;
    let (admin, alice) = (gateway.admin("root").await, gateway.web("alice"));
    let made = alice.post("/api-keys", &json!({ "name": "laptop" })).await;
    let key_id = made.json()["key_id"].as_str().expect("an id").to_owned();
    let rates = Bytes::from_static(br#"{ "requests_per_minute": 5 }"#);
    let path = format!("/api-keys/{key_id}/rates");
    let set = alice
        .send(Method::PUT, &path, Some("application/json"), rates)
        .await;
    assert_eq!(set.status, 200, "{}", set.text());
    let component = guests::with_custom_section(&guests::bundled("demo"), 7);
    let installed = admin
        .put_component("/admin/plugins/demo?activate=true", &component)
        .await;
    assert_eq!(installed.status, 201, "{}", installed.text());
    gateway.app().take_up(config).await.expect("it is valid");
    // No change.
    let refused = gateway
        .stranger()
        .with_key("weir_sk_wrong")
        .get("/models")
        .await;
    refused.error(401, "UNAUTHENTICATED");

    let expected = [
        "api_key.created",
        "api_key.limit_set",
        "plugin.installed",
        "plugin.activated",
        "configuration.reloaded",
    ];
    let listed = async |query: &str| {
        let listed = admin.get(&format!("/admin/audit{query}")).await.json();
        let events = listed["events"].as_array().expect("a list").clone();
        let kinds = events
            .iter()
            .map(|event| event["kind"].as_str().expect("a kind").to_owned());
        kinds.collect::<Vec<_>>()
    };
    let is_attempt = |kind: &String| kind == "authentication.failed";
    tests::patiently(async {
        loop {
            let kinds = listed("").await;
            let has = |kind: &str| kinds.iter().any(|listed| listed == kind);
            if expected.iter().all(|kind| has(kind)) && kinds.iter().any(is_attempt) {
                return;
            }
        }
    })
    .await;
    let changes = listed("?changes=true").await;
    for kind in expected {
        assert!(
            changes.iter().any(|listed| listed == kind),
            "{kind} in {changes:?}"
        );
    }
    assert!(!changes.iter().any(is_attempt), "{changes:?}");
    let wrong = admin.get("/admin/audit?changes=yes").await;
    let error = wrong.error(400, "INVALID_REQUEST");
    assert_eq!(error["param"], "changes");
}

/// Sign-ins and directories: `tests/it/sign_in.rs` and `tests/it/scim.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn each_user_is_created_once_in_the_list_of_changes() {
    each(async |gateway, _| {
        let admin = gateway.admin("root").await;
        let root = gateway.web_user_id("root").await;
        let alice = gateway.web("alice");
        // All at once, and once more.
        let first = (0..4).map(|_| alice.get("/usage/me"));
        for answer in futures_util::future::join_all(first).await {
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        assert_eq!(alice.get("/usage/me").await.status, 200);
        for _ in 0..2 {
            let new = json!({ "user_id": "bob", "name": "n" });
            assert_eq!(admin.post("/admin/keys", &new).await.status, 201);
        }

        let alice = gateway.web_user_id("alice").await;
        let issuer = DevIssuer::settings(DevAudience::Identity).issuer;
        let by_issuer = json!(format!("issuer:{issuer}"));
        for (user, actor) in [
            (&*alice, by_issuer.clone()),
            (&*root, by_issuer),
            ("bob", json!(format!("user:{root}"))),
            (USER, Value::Null),
        ] {
            let path = format!("/admin/audit?changes=true&kind=user.created&user_id={user}");
            let listed = admin.get(&path).await.json();
            let events = listed["events"].as_array().expect("a list");
            assert_eq!(events.len(), 1, "{user}: {listed}");
            assert_eq!(events[0]["actor"], actor, "{user}: {listed}");
            assert_eq!(events[0]["count"], 1, "{user}: {listed}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_keys_are_for_administrators_and_mistakes_are_named() {
    let gateway = Gateway::start().await;
    let admin = gateway.admin("root").await;
    for (method, path) in OPERATED {
        let ask = async |client: Client| {
            let method = method.parse().expect("a method");
            client.send(method, path, None, "{}".into()).await
        };
        ask(gateway.client()).await.error(401, "UNAUTHENTICATED");
        ask(gateway.stranger()).await.error(401, "UNAUTHENTICATED");
        ask(gateway.web("bob")).await.error(403, "FORBIDDEN");
    }
    for (path, param) in [
        ("users?limit=0", "limit"),
        ("users?limit=1001", "limit"),
        ("users?plan=gold", "plan"),
        ("users?admin=1", "admin"),
        ("users?disabled=", "disabled"),
        ("users?disable=true", "disable"),
        ("keys?active=maybe", "active"),
        ("keys?user=bob", "user"),
        ("keys?after=a&after=b", "after"),
        ("audit?before=-1", "before"),
        ("audit?limit=x", "limit"),
    ] {
        let refused = admin.get(&format!("/admin/{path}")).await;
        let error = refused.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], param, "{error}");
    }
    for (path, body, param) in [
        ("alice/plan", json!({ "plan": "gold" }), "plan"),
        (
            "alice/plan",
            json!({ "plan": "pro", "months": 3 }),
            "months",
        ),
        ("alice/top-up", json!({ "credits": 0 }), "credits"),
        ("alice/top-up", json!({ "credits": "5" }), "credits"),
        ("alice/top-up", json!({ "credits": 0.000_000_1 }), "credits"),
        ("alice/top-up", json!({ "credits": 1, "id": "" }), "id"),
    ] {
        let refused = admin.post(&format!("/admin/users/{path}"), &body).await;
        let error = refused.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], param, "{error}");
    }
    let long = json!({ "plan": "x".repeat(65 << 10) });
    let refused = admin.post("/admin/users/alice/plan", &long).await;
    refused.error(413, "PAYLOAD_TOO_LARGE");
    for (path, body) in [
        ("enable", json!({})),
        ("plan", json!({ "plan": "pro" })),
        ("top-up", json!({ "credits": 1 })),
        ("grant-admin", json!({})),
    ] {
        let refused = admin
            .post(&format!("/admin/users/nobody/{path}"), &body)
            .await;
        assert_eq!(refused.error(404, "UNKNOWN_USER")["param"], "user_id");
    }
    let refused = admin.delete("/admin/keys/key_0123456789abcdef").await;
    assert_eq!(refused.error(404, "NOT_FOUND")["param"], "key_id");
}

/// Many programs write numbers with an exponent, and JSON permits it.
#[tokio::test]
async fn credits_may_be_written_with_an_exponent() {
    let gateway = Gateway::builder().credits(0).start().await;
    let admin = gateway.admin("root").await;
    let gift = async |credits: &str| {
        let body = Bytes::from(format!("{{\"credits\":{credits}}}"));
        let path = "/admin/users/alice/top-up";
        admin
            .send(Method::POST, path, Some("application/json"), body)
            .await
    };
    let given = gift("1.5e2").await;
    assert_eq!(given.status, 200, "{}", given.text());
    let before = given.json()["account"]["topup_balance"].as_f64();
    let after = gift("1e-06").await.json()["account"]["topup_balance"].as_f64();
    assert_eq!(
        after.zip(before).map(|(after, before)| after > before),
        Some(true)
    );
    for wrong in ["1e-7", "1e300", "0e5"] {
        gift(wrong).await.error(400, "INVALID_REQUEST");
    }
}
