//! Limits of users' swarms and tasks: credits before a swarm is accepted, stored data, starts a minute; the reads of
//! a claim; operators' views and cancellations.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Row};
use tests::client::patiently;
use tests::gateway::{USER, at};
use tests::stores::each_database;
use tests::{Client, Gate, Gateway, Reply, Upstream};
use weir_identity::dev_issuer::DevAudience;
use weir_ledger::AccountId;
use weir_storage::Database;
use weir_storage::clock::ManualClock;
use weir_storage::database::SqlDialect;
use weir_swarms::swarm::store::{
    MAX_KEPT_BYTES, TURNS_STATEMENT, UNPRICED_STATEMENT, oldest_statement,
};

use crate::cli::{Served, run, text};
use crate::console::Browser;
use crate::swarms::{agent, ended, gateway, swarm};
use crate::tasks::{BEGINNING, define, definition, show};

/// Inserts finished runs, with a step each, and waiting runs, for some users each.
async fn fill(database: &Database, users: usize, past: usize, waiting: usize) {
    let mut transaction = database.begin().await.expect("a transaction");
    for user in 0..users {
        let user = format!("user-{user}");
        sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, 1)")
            .bind(&*user)
            .execute(&mut transaction)
            .await
            .expect("written");
        for number in 0..past + waiting {
            let is_over = number < past;
            sqlx::query(
                "INSERT INTO swarm_runs (id, user_id, swarm_id, request, budget, status, fence, recoveries, lease_until, \
                 last_event, agents_total, agents_completed, credits, tokens_in, tokens_out, created_at, deadline, ended_at) \
                 VALUES ($1, $2, 's', $3, 1, $4, $5, 0, 0, 0, 1, 0, 0, 0, 0, $6, 9, $7)",
            )
            .bind(format!("{number:08}-{user}"))
            .bind(&*user)
            .bind(vec![0_u8; 64])
            .bind(if is_over { "completed" } else { "queued" })
            .bind(i64::from(is_over))
            .bind(number as i64)
            .bind(is_over.then_some(number as i64))
            .execute(&mut transaction)
            .await
            .expect("written");
            if is_over {
                sqlx::query(
                    "INSERT INTO swarm_steps (run_id, agent, iteration, ordinal, input_hash, idempotency_key, state, \
                     credits, tokens_in, tokens_out, intended_at, ended_at) \
                     VALUES ($1, 0, 1, 0, $2, 'k', 'done', 0, 0, 0, 1, 1)",
                )
                .bind(format!("{number:08}-{user}"))
                .bind(vec![0_u8; 32])
                .execute(&mut transaction)
                .await
                .expect("written");
            }
        }
    }
    transaction.commit().await.expect("written");
    sqlx::query("ANALYZE")
        .execute(database.writer())
        .await
        .expect("analyzed");
}

/// Returns a statement's plan, with these literals in place of its parameters.
async fn plan(database: &Database, statement: &str, literals: &[&str]) -> String {
    let mut statement = statement.to_owned();
    for (index, literal) in literals.iter().enumerate() {
        statement = statement.replace(&format!("${}", index + 1), literal);
    }
    let (explain, column) = match database.dialect() {
        SqlDialect::Sqlite => ("EXPLAIN QUERY PLAN", 3),
        SqlDialect::Postgres => ("EXPLAIN", 0),
    };
    let rows = sqlx::query(AssertSqlSafe(format!("{explain} {statement}")))
        .fetch_all(database.reader())
        .await
        .expect("a plan");
    let steps = rows.iter().map(|row| row.try_get(column).expect("a text"));
    steps.collect::<Vec<String>>().join("\n")
}

/// In earlier versions, a claim read all stored runs of a user for each waiting run.
#[tokio::test]
async fn a_claim_reads_an_index_of_open_runs_and_no_history() {
    each_database(async |stores| {
        let database = &stores.database;
        fill(database, 20, 300, 20).await;
        let oldest = oldest_statement(database.dialect());
        for (statement, literals) in [
            (TURNS_STATEMENT, &["1", "8", "'one'", "4"][..]),
            (&*oldest, &["'user-1'", "1"][..]),
        ] {
            let plan = plan(database, statement, literals).await;
            // The indexes of this name contain no finished run.
            assert!(plan.contains("swarm_runs_open"), "{plan}");
            for history in [
                "Seq Scan on swarm_runs",
                "SCAN waiting",
                "SCAN running",
                "SCAN swarm_runs",
                "swarm_runs_by_",
                "autoindex_swarm_runs",
            ] {
                assert!(!plan.contains(history), "{history}: {plan}");
            }
        }
        let plan = plan(database, UNPRICED_STATEMENT, &["100"]).await;
        assert!(plan.contains("swarm_steps_unpriced"), "{plan}");
    })
    .await;
}

#[tokio::test]
async fn a_swarm_whose_budget_does_not_cover_its_first_call_is_not_kept() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let mut dear = agent("a");
    // At most 100,000 tokens of input, at 0.0007 credits each.
    dear["system_prompt"] = json!("x".repeat(200_000));
    let mut asked = swarm(&[dear]);
    asked["max_total_credits"] = json!(1);
    let refused = client.post("/swarms", &asked).await;
    let error = refused.error(402, "INSUFFICIENT_CREDITS");
    assert_eq!(error["param"], "max_total_credits");
    assert!(
        error["required_credits"]
            .as_f64()
            .is_some_and(|required| required > 1.0)
    );
    assert_eq!(client.get("/swarms").await.json()["swarms"], json!([]));
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn data_of_a_users_swarms_is_limited_counted_and_freed() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Done."));
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let database = &gateway.app().database;
    let kept = async || -> i64 {
        sqlx::query_scalar("SELECT kept_bytes FROM swarm_users WHERE user_id = $1")
            .bind(USER)
            .fetch_one(database.reader())
            .await
            .expect("a row")
    };
    let stored = async || -> i64 {
        sqlx::query_scalar(
            "SELECT CAST((SELECT COALESCE(SUM(LENGTH(request) + LENGTH(outcome)), 0) FROM swarm_runs) \
             + (SELECT COALESCE(SUM(LENGTH(data)), 0) FROM swarm_events) \
             + (SELECT COALESCE(SUM(LENGTH(output)), 0) FROM swarm_steps) \
             + (SELECT COALESCE(SUM(LENGTH(result)), 0) FROM swarm_agents) AS BIGINT)",
        )
        .fetch_one(database.reader())
        .await
        .expect("an answer")
    };
    let accepted = client.post("/swarms", &swarm(&[agent("a")])).await.json();
    let id = accepted["execution_id"].as_str().expect("an id");
    ended(&client, id).await;
    assert_eq!(kept().await, stored().await);
    let full = MAX_KEPT_BYTES - kept().await;
    let fill = async |bytes: i64| {
        sqlx::query("UPDATE swarm_users SET kept_bytes = kept_bytes + $1 WHERE user_id = $2")
            .bind(bytes)
            .bind(USER)
            .execute(database.writer())
            .await
            .expect("written");
    };
    fill(full).await;
    let refused = client.post("/swarms", &swarm(&[agent("a")])).await;
    let error = refused.error(429, "SWARM_DATA_LIMIT_REACHED");
    assert_eq!(error["param"], "agents");
    // A deletion frees its space.
    assert_eq!(client.delete(&format!("/swarms/{id}")).await.status, 204);
    client
        .get(&format!("/swarms/{id}"))
        .await
        .error(404, "NOT_FOUND");
    let events = client.get(&format!("/swarms/{id}/events")).await;
    events.error(404, "NOT_FOUND");
    assert_eq!((kept().await, stored().await), (full, 0));
    client
        .delete(&format!("/swarms/{id}"))
        .await
        .error(404, "NOT_FOUND");
}

/// In earlier versions, its own hold made a repeat fail for lack of credits.
#[tokio::test]
async fn a_repeat_is_answered_before_credits_plan_and_tools_are_looked_at() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("Done.").after_gate(&gate));
    let builder = Gateway::builder().swarms().upstream("scripted", &upstream);
    let gateway = builder.credits(0).start().await;
    gateway.set_plan("guru").await;
    // Enough for one such swarm.
    let app = gateway.app();
    let account = app.ledger.find_account(&AccountId(USER.to_owned())).await;
    let available = account.expect("an answer").expect("an account").available();
    let over = available.total().to_json().as_f64().expect("a number") - 20.0;
    let user = format!("/admin/users/{USER}/adjust");
    let admin = gateway.admin("root").await;
    let taken = json!({ "credits": -over, "pool": "plan", "reason": "test" });
    let taken = admin.post(&user, &taken).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    let keyed = gateway.client().with_header("idempotency-key", "once");
    let asked = swarm(&[agent("a")]);
    let first = keyed.post("/swarms", &asked).await;
    assert_eq!(first.status, 202, "{}", first.text());
    patiently(gate.reached()).await;
    gateway
        .client()
        .post("/swarms", &asked)
        .await
        .error(402, "INSUFFICIENT_CREDITS");
    let again = keyed.post("/swarms", &asked).await;
    assert_eq!(again.status, 202, "{}", again.text());
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.json()["execution_id"], first.json()["execution_id"]);
    let other = keyed.post("/swarms", &swarm(&[agent("b")])).await;
    other.error(409, "IDEMPOTENCY_KEY_REUSED");
    gateway.set_plan("free").await;
    let again = keyed.post("/swarms", &asked).await;
    assert_eq!(again.status, 202, "{}", again.text());
    gate.open();
    let id = first.json()["execution_id"].clone();
    ended(&gateway.client(), id.as_str().expect("an id")).await;
}

#[tokio::test]
async fn integrations_that_no_operator_has_configured_are_refused_by_their_place() {
    let upstream = Upstream::start().await;
    let gateway = gateway(&upstream).await;
    let mut asking = agent("a");
    asking["integrations"] = json!(["nope"]);
    let refused = gateway.client().post("/swarms", &swarm(&[asking])).await;
    let error = refused.error(400, "INVALID_REQUEST");
    assert_eq!(error["param"], "agents[0].integrations[0]");
}

#[tokio::test]
async fn a_task_starts_once_a_minute_and_keeps_its_definition_once() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Seen."));
    let clock = ManualClock::at(at(BEGINNING));
    let builder = Gateway::builder().swarms().upstream("scripted", &upstream);
    let gateway = builder.clock(&clock).start().await;
    gateway.set_plan("pro").await;
    let client = gateway.client();
    let mut long = definition("t");
    long["agents"][0]["system_prompt"] = json!("long ".repeat(10_000));
    let id = define(&client, &long).await;
    let service = gateway.executor_service(DevAudience::Executor, &["swarm:run"]);
    // `queue` is the OpenAPI document's former name of an event.
    let start = async |trigger: &str, message: &str| {
        let message = json!({ "task_id": id, "trigger_type": trigger, "message_id": message });
        service.post("/internal/agent/execute", &message).await
    };
    let first = start("queue", "m-1").await;
    assert_eq!(first.status, 202, "{}", first.text());
    let refused = start("event", "m-2").await;
    let error = refused.error(429, "TASK_STARTED_TOO_SOON");
    assert_eq!(error["param"], "task_id");
    assert_eq!(refused.headers["retry-after"], "30");
    // A repeated message is no start.
    assert_eq!(start("queue", "m-1").await.status, 202);
    let task = show(&client, &id).await;
    assert_eq!(task["runs"].as_array().map(Vec::len), Some(1));
    assert_eq!(task["last_run"]["trigger_type"], "event");
    clock.advance(Duration::from_secs(30));
    assert_eq!(start("event", "m-2").await.status, 202);
    for start in [first, start("event", "m-2").await] {
        let run = start.json()["execution_id"].clone();
        let run = run.as_str().expect("an id");
        ended(&client, run).await;
        let bytes: i64 = sqlx::query_scalar(
            "SELECT CAST(LENGTH(request) AS BIGINT) FROM swarm_runs WHERE id = $1",
        )
        .bind(run)
        .fetch_one(gateway.app().database.reader())
        .await
        .expect("an answer");
        assert!(bytes < 1_000, "{bytes}");
    }
}

async fn ask(client: &Client, name: &str) -> String {
    let accepted = client.post("/swarms", &swarm(&[agent(name)])).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.json()["execution_id"].clone();
    id.as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn operators_list_and_cancel_swarms_of_all_users_and_read_nothing_of_them() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream
        .will(Reply::chat("Secret."))
        .will(Reply::chat("Secret.").after_gate(&gate));
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let done = ask(&client, "a").await;
    ended(&client, &done).await;
    let open = ask(&client, "b").await;
    patiently(gate.reached()).await;
    let admin = gateway.admin("root").await;
    let list = async |query: &str| -> Value {
        let listed = admin.get(&format!("/admin/swarms{query}")).await;
        assert_eq!(listed.status, 200, "{}", listed.text());
        assert!(!listed.text().contains("Secret."), "{}", listed.text());
        listed.json()
    };
    let ids = |list: &Value| -> Vec<String> {
        let swarms = list["swarms"].as_array().expect("a list");
        let id = |swarm: &Value| swarm["execution_id"].as_str().expect("an id").to_owned();
        swarms.iter().map(id).collect()
    };
    assert_eq!(ids(&list("").await), [&*open, &*done]);
    assert_eq!(ids(&list("?open=true").await), [&*open]);
    assert_eq!(
        ids(&list(&format!("?open=true&user_id={USER}")).await),
        [&*open]
    );
    assert_eq!(
        ids(&list("?user_id=usr_nobody").await),
        Vec::<String>::new()
    );
    let part = list("?limit=1").await;
    assert_eq!(ids(&part), [&*open]);
    let next = part["next"].as_str().expect("more");
    assert_eq!(ids(&list(&format!("?before={next}")).await), [&*done]);
    client
        .get("/admin/swarms")
        .await
        .error(401, "UNAUTHENTICATED");

    let cancel = async |id: &str| {
        let path = format!("/admin/swarms/{id}/cancel");
        admin.post(&path, &json!({})).await
    };
    let mut browser = Browser::of(&gateway, "root").await;
    let html = browser.page("/console/admin/swarms").await;
    assert!(html.contains(&open) && html.contains(&done), "{html}");
    assert!(!html.contains("Secret."), "{html}");
    let html = browser.page("/console/admin/swarms?open=true").await;
    assert!(html.contains(&open) && !html.contains(&done), "{html}");
    let path = format!("/console/admin/swarms/{done}/cancel");
    browser.post(&path, &[]).await;
    let html = browser.page("/console/admin/swarms").await;
    assert!(html.contains("The swarm is over"), "{html}");
    let path = format!("/console/admin/swarms/{open}/cancel");
    browser.post(&path, &[]).await;
    let html = browser.page("/console/admin/swarms").await;
    assert!(html.contains("ends within two seconds"), "{html}");
    cancel("nope").await.error(404, "NOT_FOUND");
    cancel(&done).await.error(409, "NOT_POSSIBLE");
    let cancelled = cancel(&open).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    assert!(cancelled.json()["cancel_requested_at"].is_string());
    gate.open();
    assert_eq!(ended(&client, &open).await["status"], "cancelled");
    gateway.app().audit.flush().await;
    let audit = admin.get("/admin/audit?kind=swarm.cancelled").await.json();
    let event = &audit["events"][0];
    assert_eq!(
        (&event["user_id"], &event["reason"]),
        (&json!(USER), &json!(open)),
        "{audit}"
    );
}

#[test]
fn operators_cancel_swarms_by_the_command_line_without_a_key() {
    let served = Served::configured("dev = true\n");
    let weir = |arguments: &[&str]| run(served.folder(), arguments);
    let listed = weir(&["swarm", "list", "--operator", "--open"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert!(
        text(&listed.stdout).starts_with("ID "),
        "{}",
        text(&listed.stdout)
    );
    let unknown = weir(&["swarm", "cancel", "--operator", "nope"]);
    assert!(!unknown.status.success());
    assert!(
        text(&unknown.stderr).contains("no such swarm"),
        "{}",
        text(&unknown.stderr)
    );
    let shown = weir(&["swarm", "show", "--operator", "nope"]);
    assert!(text(&shown.stderr).contains("--operator works only for list and cancel"));
}
