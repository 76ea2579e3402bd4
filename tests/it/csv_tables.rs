//! The administrators' lists as CSV, and the console's downloads of all tables.

use std::collections::BTreeSet;

use serde_json::json;
use tests::gateway::on_each_database;
use tests::{Client, Gateway, Reply, Upstream, chat, patiently};

use crate::billing::is_settled;
use crate::console::Browser;
use crate::swarms::{agent, ended, swarm};

const NOON: &str = "2026-01-31T12:00:00Z";

/// Fields of items that are objects or lists of objects: a table has no column for them.
const NESTED: [&str; 5] = [
    "account",
    "budgets",
    "content_log",
    "data_limits",
    "filter_options",
];

/// Returns the lines of a table.
async fn table(client: &Client, path: &str) -> Vec<String> {
    let client = client.clone().with_header("accept", "text/csv");
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    assert_eq!(answer.headers["content-type"], "text/csv; charset=utf-8");
    let disposition = answer.headers["content-disposition"].to_str();
    let disposition = disposition.expect("ASCII");
    assert!(
        disposition.starts_with("attachment; filename="),
        "{disposition}"
    );
    answer.text().lines().map(str::to_owned).collect()
}

/// Makes a row for each list.
async fn work(gateway: &Gateway) -> Client {
    let admin = gateway.admin("root").await;
    let alice = gateway.web("alice");
    let made = alice.post("/api-keys", &json!({ "name": "=1+1" })).await;
    let key = made.json()["api_key"].as_str().expect("a key").to_owned();
    let voucher = json!({ "name": "@SUM(A1)", "credits": 0.5, "uses": 1 });
    let made = admin.post("/admin/vouchers", &voucher).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let plan = json!({ "plan": "pro" });
    let user = gateway.web_user_id("alice").await;
    let set = admin
        .post(&format!("/admin/users/{user}/plan"), &plan)
        .await;
    assert_eq!(set.status, 200, "{}", set.text());
    let client = gateway.stranger().with_key(&key);
    let answer = client.post("/chat", &chat("scripted", "x")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let accepted = alice.post("/swarms", &swarm(&[agent("scout")])).await;
    let run = accepted.json()["execution_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_eq!(ended(&alice, &run).await["status"], "completed");
    let event = "INSERT INTO payment_events (id, type, created_at, received_at, state, content) \
                 VALUES ('evt_1', '+1', 1, 1, 'ignored', '{}')";
    let done = sqlx::query(event).execute(gateway.app().database.writer());
    done.await.unwrap_or_else(|error| panic!("{error}"));
    is_settled(gateway).await;
    gateway.app().audit.flush().await;
    admin
}

#[tokio::test(flavor = "multi_thread")]
async fn each_list_of_administrators_is_a_table_too() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 20));
    let configure =
        |builder: tests::gateway::Builder| builder.swarms().upstream("scripted", &upstream);
    on_each_database(NOON, configure, async |gateway, _| {
        let admin = work(&gateway).await;
        let alice = gateway.web("alice");
        let user = gateway.web_user_id("alice").await;
        for (path, list, filter) in [
            ("/admin/users", "users", format!("plan={}", "pro")),
            ("/admin/keys", "keys", format!("user_id={user}")),
            ("/admin/audit", "events", "kind=api_key.created".to_owned()),
            (
                "/admin/payments/events",
                "events",
                "state=ignored".to_owned(),
            ),
            ("/admin/swarms", "swarms", format!("user_id={user}")),
            ("/admin/vouchers", "vouchers", String::new()),
        ] {
            let whole = admin.get(path).await.json();
            let items = whole[list].as_array().expect("a list");
            assert!(!items.is_empty(), "{path}: {whole}");
            let lines = table(&admin, path).await;
            assert_eq!(lines.len(), items.len() + 1, "{path}: {lines:?}");
            let columns: BTreeSet<_> = lines[0].split(',').collect();
            let fields = items[0].as_object().expect("an object").keys();
            let fields = fields.map(String::as_str);
            let fields: BTreeSet<_> = fields.filter(|field| !NESTED.contains(field)).collect();
            assert_eq!(columns, fields, "{path}");
            // Filters are the same.
            let filtered = format!("{path}?{filter}");
            let some = admin.get(&filtered).await.json();
            let some = some[list].as_array().map(Vec::len);
            assert!(some > Some(0), "{filtered}");
            let lines = table(&admin, &filtered).await;
            assert_eq!(Some(lines.len() - 1), some, "{filtered}");
            let tables = admin.clone().with_header("accept", "text/csv");
            for wrong in ["limit=1", "nonsense=1"] {
                let refused = tables.get(&format!("{path}?{wrong}")).await;
                refused.error(400, "INVALID_REQUEST");
            }
            let by_user = alice.clone().with_header("accept", "text/csv");
            by_user.get(path).await.error(403, "FORBIDDEN");
        }
        let economics = admin.get("/admin/model-economics?period=2026-01").await;
        let economics = economics.json();
        let lines = table(&admin, "/admin/model-economics?period=2026-01").await;
        assert_eq!(lines.len(), economics.as_array().expect("a list").len() + 1);
        let columns = lines[0].split(',').count();
        assert_eq!(
            columns,
            economics[0].as_object().map_or(0, serde_json::Map::len)
        );
        assert!(lines[1].contains("scripted"), "{lines:?}");

        // No cell is a formula.
        for (path, cell) in [
            ("/admin/keys", ",'=1+1,"),
            ("/admin/vouchers", ",'@SUM(A1),0.5,"),
            ("/admin/payments/events", "evt_1,'+1,"),
        ] {
            let lines = table(&admin, path).await;
            assert!(
                lines.iter().any(|line| line.contains(cell)),
                "{path}: {lines:?}"
            );
        }
    })
    .await;
}

/// A table has all items, not only those of one read.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_has_all_pages_of_its_list() {
    on_each_database(
        NOON,
        |builder| builder,
        async |gateway, _| {
            let rows: Vec<_> = (1..=1_203_i64)
                .map(|number| format!("({number}, {number}, 'example.happened')"))
                .collect();
            let text = format!(
                "INSERT INTO audit_events (at, count, kind) VALUES {}",
                rows.join(",")
            );
            let done =
                sqlx::query(sqlx::AssertSqlSafe(text)).execute(gateway.app().database.writer());
            done.await.expect("it answers");
            let admin = gateway.admin("root").await;
            let lines = table(&admin, "/admin/audit?kind=example.happened").await;
            assert_eq!(lines.len(), 1_204);
            // The third column counts occurrences.
            let numbers = lines[1..].iter().map(|line| line.split(',').nth(2));
            let numbers: Vec<_> = numbers
                .map(|number| number.map(str::parse::<i64>))
                .collect();
            let expected: Vec<_> = (1..=1_203).rev().map(|number| Some(Ok(number))).collect();
            assert_eq!(numbers, expected, "newest first");
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_offers_each_table_as_a_file() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat_with_usage("fine", 10, 20));
    let gateway = Gateway::builder()
        .swarms()
        .upstream("scripted", &upstream)
        .start()
        .await;
    work(&gateway).await;
    let user = gateway.web_user_id("alice").await;
    let mut root = Browser::of(&gateway, "root").await;
    let mut alice = Browser::of(&gateway, "alice").await;
    let of_user = format!("/console/admin/users/{user}");
    let keys = format!("{of_user}/keys.csv?active=");
    for (page, path, heading) in [
        (
            "/console/admin/users",
            "/console/admin/users.csv?",
            "user_id,",
        ),
        (&of_user, &keys, "key_id,"),
        (
            "/console/admin/audit",
            "/console/admin/audit.csv?",
            "number,",
        ),
        (
            "/console/admin/webhooks",
            "/console/admin/webhooks.csv?",
            "event_id,",
        ),
        (
            "/console/admin/swarms",
            "/console/admin/swarms.csv?",
            "execution_id,",
        ),
        (
            "/console/admin/vouchers",
            "/console/admin/vouchers.csv",
            "voucher_id,",
        ),
        (
            "/console/admin/models",
            "/console/admin/models.csv",
            "model,",
        ),
        ("/console/requests", "/console/requests/table.csv?", "id,"),
        ("/console/money", "/console/money/statement.csv", "at,"),
    ] {
        let is_own = !page.contains("/admin/");
        let browser = if is_own { &mut alice } else { &mut root };
        let html = patiently(async {
            loop {
                let html = browser.page(page).await;
                if html.contains("Download CSV") {
                    return html;
                }
            }
        })
        .await;
        assert!(
            html.contains(&format!("download href=\"{path}\"")),
            "{page}: {html}"
        );
        let file = browser.get(path).await;
        assert_eq!(file.status, 200, "{path}: {}", file.text());
        assert_eq!(file.headers["content-type"], "text/csv; charset=utf-8");
        assert!(file.text().starts_with(heading), "{path}: {}", file.text());
        assert!(file.text().lines().count() > 1, "{path}: {}", file.text());
        if !is_own {
            assert_eq!(alice.get(path).await.status, 403, "{path}");
        }
    }
    // The link has the filter of its page.
    let html = root.page("/console/admin/audit?kind=api_key.created").await;
    let path = "/console/admin/audit.csv?kind=api_key.created";
    assert!(html.contains(path), "{html}");
    let lines = root.get(path).await.text();
    assert!(
        lines
            .lines()
            .skip(1)
            .all(|line| line.contains("api_key.created")),
        "{lines}"
    );
    let none = alice.get("/console/requests/table.csv?model=other").await;
    assert_eq!(none.text().lines().count(), 1, "{}", none.text());
    let refused = alice.get("/console/requests/table.csv?from=x").await;
    assert_eq!(refused.status, 400);
}
