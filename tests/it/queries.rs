//! No list page and no sweep reads a complete table that grows.
//!
//! The test finds the queries by itself: a PostgreSQL server logs the plan of every statement of a gateway, with its
//! real parameters and the rows that each step read (`auto_explain`). Meanwhile the test requests every list of the
//! OpenAPI document with each of its parameters, walks the console, and runs every sweep. All tables that grow are
//! full. Each text is then explained on SQLite, too, as far as SQLite knows its syntax.
//!
//! A new table counts as one that grows: [`BOUNDED`] names the tables that do not, and [`FILL`] the values of the
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};
use tests::ledger::{Served, serve};
use tests::stores::{Durability, Postgres, patient_database};
use tests::{Client, Gateway, patiently};
use weir_ledger::plans;
use weir_request::audit::retention;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::secrets::SecretUrl;
use weir_swarms::swarm::store::SwarmStore;

use crate::console::Browser;

/// Rows of every table that grows.
const ROWS: i64 = 4_000;

/// Rows of such a table that one statement may read: more than the largest page requested here, and than a sweep's
/// batch.
const MAX_READ: f64 = 600.0;

/// Statements of exports return every row of a range of an index. Only the rows that they filter out count.
const RANGES: [&str; 2] = [
    "FROM entries WHERE hold_id IS NULL AND account_id = $1 AND at >= $2 AND at < $3",
    "FROM entries WHERE hold_id IS NULL AND CAST($1 AS TEXT) IS NULL AND at >= $2 AND at < $3",
];

/// Tables that do not grow with users, requests or time: a fixed number of rows, or one row for each component, slot,
/// tool or key of an operator, or for each node of the last day. Questions between nodes are deleted after the
/// answers.
const BOUNDED: [&str; 20] = [
    "_sqlx_migrations",
    "api_key_peppers",
    "canary_samples",
    "entries_archived",
    "entries_folded",
    "entries_verified",
    "load_answers",
    "load_questions",
    "mcp_tools",
    "node_leases",
    "platform_folded",
    "plugin_counters",
    "plugin_generation",
    "plugin_parts",
    "plugin_quarantines",
    "plugin_versions",
    "plugins",
    "recordings",
    "sealing_keys",
    "slots",
];

/// Values of columns, in SQL, with `i` for the row's number. Unnamed columns are null, or a unique text or number.
/// The rows are of the past: no sweep has work with them, except free periods that are due.
const FILL: &[(&str, &str, &str)] = &[
    ("*", "account_id", "'usr_' || lpad(i::text, 6, '0')"),
    ("*", "user_id", "'usr_' || lpad(i::text, 6, '0')"),
    ("*", "run_id", "'swr_' || lpad(i::text, 6, '0')"),
    ("*", "task_id", "'tsk_' || lpad(i::text, 6, '0')"),
    ("*", "source", "'web'"),
    ("*", "plan", "'free'"),
    ("*", "tier", "'small'"),
    ("*", "expires_at", "9000000000000"),
    ("*", "sealing_key", "1"),
    ("*", "claimed_until", "0"),
    ("*", "lease_until", "0"),
    ("*", "until", "0"),
    ("*", "attempts", "0"),
    ("*", "owed", "0"),
    ("accounts", "id", "'usr_' || lpad(i::text, 6, '0')"),
    ("accounts", "period_start", "0"),
    ("accounts", "period_end", "1"),
    ("accounts", "period_number", "1"),
    ("accounts", "plan_credits", "500000000"),
    ("accounts", "top_up_credits", "0"),
    ("accounts", "plan_held", "0"),
    ("accounts", "top_up_held", "0"),
    ("api_keys", "disabled_at", "i"),
    ("api_keys", "expires_at", "2"),
    ("api_keys", "scope", "'full'"),
    ("audit_events", "at", "$NOW"),
    ("audit_events", "number", "1000000 + i"),
    ("audit_events", "user_id", "'usr_' || lpad(i::text, 6, '0')"),
    ("audit_events", "actor", "'user:' || i"),
    ("account_entries", "number", "-i"),
    ("auto_top_up_charges", "ended_at", "$NOW"),
    ("catalog_layers", "contents", "'{}'"),
    ("catalog_layers", "changes", "'{}'"),
    ("auto_top_up_charges", "outcome", "'succeeded'"),
    ("blocks", "boot_id", "'node_with_blocks'"),
    ("entries", "number", "-i"),
    ("entries", "kind", "'release'"),
    ("entries", "request_id", "'req_' || i"),
    ("entries", "source", "'web'"),
    ("entries", "model", "'m'"),
    // Entries of half the accounts belong to no hold, so that statistics know such rows.
    (
        "entries",
        "hold_id",
        "CASE WHEN i % 2 = 0 THEN 'hld_' || i END",
    ),
    ("content_logs", "at", "$NOW"),
    ("failed_requests", "at", "$NOW"),
    ("failed_request_counts", "minute", "i * 60000"),
    ("traffic_hours", "hour", "i * 3600000"),
    ("holds", "expired_at", "$NOW"),
    ("payment_checkouts", "closed_at", "$NOW"),
    ("payment_events", "state", "'applied'"),
    ("payment_events", "applied_at", "$NOW"),
    (
        "payment_events",
        "user_id",
        "'usr_' || lpad(i::text, 6, '0')",
    ),
    ("payment_events", "customer_id", "'cus_' || i"),
    ("payment_events", "subject", "'sub_' || i"),
    ("platform_daily", "day", "i * 86400000"),
    ("plugin_events", "at", "$NOW"),
    ("plugin_events", "number", "-i"),
    ("swarm_runs", "id", "'swr_' || lpad(i::text, 6, '0')"),
    ("swarm_runs", "status", "'completed'"),
    ("swarm_runs", "ended_at", "$NOW"),
    ("task_starts", "started_at", "$NOW"),
    ("task_starts", "execution_id", "'swr_' || i"),
    ("tasks", "id", "'tsk_' || lpad(i::text, 6, '0')"),
    ("usage_daily", "day", "i * 86400000"),
    ("users", "id", "'usr_' || lpad(i::text, 6, '0')"),
    ("users", "issuer", "'issuer'"),
    ("users", "subject", "'subject_' || i"),
    ("vouchers", "id", "'vou_' || lpad(i::text, 6, '0')"),
];

/// A part of each sweep's text that runs by itself: the test waits until each was seen.
const SWEEPS: [&str; 18] = [
    // Open holds of runs that are over, and of this one.
    "WITH RECURSIVE runs",
    "boot_id = $1 AND opened_at < $2",
    // Paid plans without a renewal, and rows that the ledger deletes.
    "plan <> 'free' AND period_end <= $1",
    "DELETE FROM node_leases",
    "FROM holds WHERE expired_at < $1",
    "DELETE FROM idempotency_keys",
    // Purchases and notices.
    "FROM accounts a JOIN auto_top_ups t",
    "FROM accounts a LEFT JOIN auto_top_ups t",
    "FROM auto_top_up_charges c WHERE ended_at IS NULL",
    "FROM payment_events WHERE attempts = 0",
    "FROM payment_events WHERE attempts > 0",
    "FROM audit_events WHERE at <",
    "FROM failed_requests WHERE at <",
    "FROM failed_request_counts WHERE minute <",
    "FROM content_logs WHERE at <",
    "FROM traffic_hours WHERE hour <",
    // Swarms and tasks.
    "WITH RECURSIVE open_users",
    "FROM tasks WHERE next_fire_at",
];

/// A statement's plan in a run of PostgreSQL.
struct Run {
    text: String,
    plan: Value,
}

#[tokio::test(flavor = "multi_thread")]
async fn no_list_page_and_no_sweep_reads_a_whole_table_that_grows() {
    let server = Postgres::start(Durability::Fast);
    let url = server.create_database().await;
    patient_database(&url).await.close().await;
    let growing = fill(&url).await;
    explain_all(&url).await;

    let gateway = Gateway::builder()
        .postgres(&url)
        .swarms()
        .tables("[content_log]\ndays = 30\n")
        .start()
        .await;
    ask_for_everything(&gateway).await;
    sweep(&gateway).await;
    let mut log = ServerLog::open(&server);
    let mut missing = SWEEPS.to_vec();
    patiently(async {
        loop {
            log.read();
            missing.retain(|sweep| !tests::contains(&log.text, sweep));
            if missing.is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    })
    .await;
    gateway.stop().await;
    log.read();
    let runs = runs(&String::from_utf8_lossy(&log.text));

    let mut most_read = BTreeMap::new();
    for run in &runs {
        let is_range = RANGES.iter().any(|range| run.text.contains(range));
        let mut read = BTreeMap::new();
        rows_read(&run.plan, is_range, &mut read);
        for (table, rows) in read {
            if growing.contains(&table) && rows > MAX_READ {
                let most = most_read.entry((run.text.clone(), table)).or_insert(rows);
                *most = rows.max(*most);
            }
        }
    }
    let read = most_read.into_iter();
    let read = read.map(|((text, table), rows)| format!("reads {rows} rows of {table}: {text}"));
    let mut wrong: Vec<_> = read.collect();
    let texts: BTreeSet<_> = runs.into_iter().map(|run| run.text).collect();
    assert!(texts.len() > 100, "only {} statements", texts.len());
    wrong.extend(scans_on_sqlite(&texts, &growing).await);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Fills every table that grows, and returns their names. Constraints against such rows are dropped: no plan depends
/// on them.
async fn fill(url: &SecretUrl) -> BTreeSet<String> {
    let mut connection = sqlx::AnyConnection::connect(url.expose())
        .await
        .expect("it answers");
    let constraints = sqlx::query(
        "SELECT CAST(CAST(conrelid AS regclass) AS TEXT), CAST(conname AS TEXT) FROM pg_constraint \
         WHERE contype IN ('c', 'f') AND connamespace = CAST('public' AS regnamespace)",
    );
    for row in connection.fetch_all(constraints).await.expect("a list") {
        let (table, name): (String, String) = (row.get(0), row.get(1));
        let drop = format!("ALTER TABLE {table} DROP CONSTRAINT {name}");
        let dropped = connection.execute(AssertSqlSafe(drop)).await;
        dropped.expect("it is there");
    }
    let columns = sqlx::query(
        "SELECT CAST(c.table_name AS TEXT), CAST(c.column_name AS TEXT), CAST(c.data_type AS TEXT), \
         CAST(c.is_nullable AS TEXT) FROM information_schema.columns c WHERE c.table_schema = 'public' \
         ORDER BY c.table_name, c.ordinal_position",
    );
    let mut tables: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let now = Millis(jiff::Timestamp::now().as_millisecond())
        .0
        .to_string();
    for row in connection.fetch_all(columns).await.expect("a list") {
        let (table, column, kind, is_nullable): (String, String, String, String) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        if BOUNDED.contains(&&*table) {
            continue;
        }
        let columns = tables.entry(table.clone()).or_default();
        let named = |of: &str, any: bool| {
            let fits = |(table, name, _): &&(&str, &str, &str)| *table == of && *name == column;
            let found = FILL.iter().find(fits).filter(|_| any);
            found.map(|(_, _, value)| (*value).to_owned())
        };
        let value = named(&table, true).or_else(|| named("*", is_nullable == "NO"));
        let value = value.or_else(|| {
            (is_nullable == "NO").then(|| match &*kind {
                "text" => format!("'{column}_' || i"),
                "bytea" => "decode(md5(i::text), 'hex')".to_owned(),
                _ => "i".to_owned(),
            })
        });
        columns.extend(value.map(|value| (column, value.replace("$NOW", &now))));
    }
    for (table, columns) in &tables {
        let (names, values): (Vec<_>, Vec<_>) = columns.iter().cloned().unzip();
        let insert = format!(
            "INSERT INTO {table} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM generate_series(1, CAST({ROWS} AS BIGINT)) AS i",
            names.join(", "),
            values.join(", ")
        );
        let filled = connection.execute(AssertSqlSafe(insert)).await;
        let filled =
            filled.unwrap_or_else(|error| panic!("`FILL` has what {table} needs: {error}"));
        assert_eq!(filled.rows_affected(), ROWS as u64, "{table}");
    }
    // No sweep returns the blocks of a node with a lease.
    connection
        .execute(
            "INSERT INTO node_leases (boot_id, started_at, lease_until) \
             VALUES ('node_with_blocks', 0, 9000000000000)",
        )
        .await
        .expect("it can");
    connection.execute("ANALYZE").await.expect("it can");
    connection.close().await.expect("it answers");
    tables.into_keys().collect()
}

fn now() -> Millis {
    Millis(jiff::Timestamp::now().as_millisecond())
}

/// Makes the server log the plan of each statement of later sessions.
async fn explain_all(url: &SecretUrl) {
    let mut connection = sqlx::AnyConnection::connect(url.expose())
        .await
        .expect("it answers");
    let name: String = sqlx::query_scalar("SELECT CAST(current_database() AS TEXT)")
        .fetch_one(&mut connection)
        .await
        .expect("a name");
    for setting in [
        "session_preload_libraries = 'auto_explain'",
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_analyze = on",
        "auto_explain.log_timing = off",
        "auto_explain.log_format = 'json'",
        // PostgreSQL reads a few thousand rows at once rather than looking them up. These settings force the plans of
        // millions of rows: by an index if one fits.
        "enable_seqscan = off",
        "enable_hashjoin = off",
        "enable_mergejoin = off",
        // A plan without its best step has a cost for which PostgreSQL compiles each statement: for minutes in all.
        "jit = off",
    ] {
        let set = format!("ALTER DATABASE {name} SET {setting}");
        let set = connection.execute(AssertSqlSafe(set)).await;
        set.expect("PostgreSQL brings auto_explain");
    }
    connection.close().await.expect("it answers");
}

/// The log of a server, as far as it was read.
struct ServerLog {
    file: File,
    text: Vec<u8>,
}

impl ServerLog {
    fn open(server: &Postgres) -> Self {
        let file = File::open(server.folder().join("log"));
        Self {
            file: file.expect("a log"),
            text: Vec::new(),
        }
    }

    /// Reads the lines that are new.
    fn read(&mut self) {
        self.file.read_to_end(&mut self.text).expect("a log");
    }
}

/// Returns the statements in the server's log.
fn runs(log: &str) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.contains("LOG:  duration:") || !line.ends_with("plan:") {
            continue;
        }
        let mut plan = String::new();
        while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
            plan.push_str(line);
        }
        // The last one may be incomplete.
        // `parse` is compiled with optimizations, as a part of serde_json; `from_str` would be a part of this program.
        let Ok(noted) = plan.parse::<Value>() else {
            continue;
        };
        let text = noted["Query Text"].as_str().expect("a text").to_owned();
        let plan = noted["Plan"].clone();
        runs.push(Run { text, plan });
    }
    runs
}

/// Returns the rows that a step and its children have read of each table, including filtered rows; for a range, only
/// the filtered ones.
fn rows_read(step: &Value, is_range: bool, read: &mut BTreeMap<String, f64>) {
    if let Some(table) = step["Relation Name"].as_str()
        && step["Node Type"] != "ModifyTable"
    {
        let number = |name: &str| step[name].as_f64().unwrap_or_default();
        let left_out = number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
        let kept = if is_range { 0.0 } else { number("Actual Rows") };
        let rows = kept + left_out;
        *read.entry(table.to_owned()).or_default() += rows * number("Actual Loops");
    }
    for below in step["Plans"].as_array().into_iter().flatten() {
        rows_read(below, is_range, read);
    }
}

/// Requests every list and every page, as an administrator, with each of its parameters.
async fn ask_for_everything(gateway: &Gateway) {
    let served = Served {
        user: &gateway.web_user_id("root").await,
        model: "demo",
        provider: "p",
        credits: 1,
        cost: 1,
    };
    for _ in 0..3 {
        serve(gateway.app(), served).await;
    }
    let admin = gateway.admin("root").await;
    for number in 0..3 {
        let name = json!({ "name": format!("key {number}") });
        let made = admin.post("/api-keys", &name).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let document = gateway.stranger().get("/openapi.json").await.json();
    let paths = document["paths"].as_object().expect("paths");
    let mut asked = 0;
    for (path, methods) in paths {
        let operation = &methods["get"];
        let answers = &operation["responses"]["200"]["content"];
        if operation.is_null() || answers["text/event-stream"].is_object() {
            continue;
        }
        let path = path
            .replace("{user_id}", served.user)
            .replace("{slot}", "demo")
            .replace(['{', '}'], "");
        let mut clients = vec![(admin.clone(), false)];
        if answers["text/csv"].is_object() {
            let tables = admin.clone().with_header("accept", "text/csv");
            clients.push((tables, true));
        }
        for (client, whole) in &clients {
            ask(client, &path).await;
            asked += 1;
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                // A CSV table is always complete.
                let is_of_parts = parameter["name"] == "limit" || parameter["name"] == "before";
                if parameter["in"] == "query" && !(*whole && is_of_parts) {
                    ask_with(client, &path, parameter, served.user).await;
                }
            }
        }
    }
    assert!(asked > 30, "only {asked} lists");
    let mut browser = Browser::of(gateway, "root").await;
    let mut seen = BTreeSet::new();
    let mut pages = vec!["/console".to_owned()];
    while let Some(page) = pages.pop() {
        if seen.len() == 60 || !seen.insert(page.clone()) {
            continue;
        }
        let html = browser.get(&page).await.text();
        let links = html.split("href=\"").skip(1);
        let links = links.filter_map(|rest| rest.split('"').next());
        let links = links.map(|link| link.replace("&amp;", "&").replace("&#38;", "&"));
        pages.extend(links.filter(|link| link.starts_with("/console") && !link.contains("assets")));
    }
    assert!(seen.len() > 5, "{seen:?}");
    let metrics = gateway.stranger().get("/metrics").await;
    if metrics.status != 200 {
        ask(&gateway.internal(), "/metrics").await;
    }
}

/// Requests a list with each value of one of its parameters.
async fn ask_with(client: &Client, path: &str, parameter: &Value, user: &str) {
    let name = parameter["name"].as_str().expect("a name");
    let schema = &parameter["schema"];
    let choices = schema["pattern"].as_str().and_then(|pattern| {
        let choices = pattern.strip_prefix('^')?.strip_suffix('$')?;
        let choices = choices.trim_matches(['(', ')']).split('|');
        let choices: Vec<_> = choices.map(str::to_owned).collect();
        let is_word = |choice: &String| {
            let is_of_words = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
            choice.chars().all(is_of_words)
        };
        choices.iter().all(is_word).then_some(choices)
    });
    let listed = schema["enum"].as_array().map(|values| {
        let values = values.iter().filter_map(Value::as_str);
        values.map(str::to_owned).collect()
    });
    let values = match name {
        "before" | "after" | "page" => {
            let separator = if path.contains('?') { '&' } else { '?' };
            let first = client.get(&format!("{path}{separator}limit=1")).await;
            match first.status.is_success() && first.headers["content-type"] == "application/json" {
                true => first.json()["next"]
                    .as_str()
                    .map(|next| vec![next.to_owned()]),
                false => None,
            }
            .unwrap_or_default()
        }
        "limit" | "pageSize" => vec!["100".to_owned()],
        "from" | "to" => vec![plans::day(now())],
        "period" if choices.is_none() => vec![plans::day(now())[.."YYYY-MM".len()].to_owned()],
        "user_id" => vec![user.to_owned(), "usr_000001".to_owned()],
        "key" => {
            let keys = client.get("/api-keys").await;
            match keys.headers["content-type"] == "application/json" {
                true => {
                    let id = keys.json()["api_keys"][0]["key_id"]
                        .as_str()
                        .map(str::to_owned);
                    vec![id.expect("a key")]
                }
                // A client of CSV tables has no key.
                false => Vec::new(),
            }
        }
        "model" => vec!["demo".to_owned(), "nothing".to_owned()],
        "after_id" | "before_id" => vec!["demo".to_owned()],
        _ if choices.is_some() || listed.is_some() => choices.or(listed).unwrap_or_default(),
        _ if schema["type"] == "boolean" => vec!["true".to_owned(), "false".to_owned()],
        _ => vec!["x".to_owned()],
    };
    // Without it, this endpoint is another one.
    let needed = match path == "/usage/me" && name != "group" {
        true => "group=day&",
        false => "",
    };
    for value in values {
        ask(client, &format!("{path}?{needed}{name}={value}")).await;
    }
}

async fn ask(client: &Client, path: &str) {
    let answer = client.get(path).await;
    assert!(
        answer.status != 400 && (!answer.status.is_server_error() || path.contains("/health")),
        "{path}: {} {}",
        answer.status,
        answer.text()
    );
}

/// Runs every sweep that does not run by itself within a second.
async fn sweep(gateway: &Gateway) {
    let app = gateway.app();
    app.ledger.sweep().await.expect("it answers");
    app.ledger.begin_due_periods().await.expect("it answers");
    app.ledger.forget_old().await.expect("it answers");
    let before = Millis(1);
    let pruned = retention::prune(&app.database, before).await;
    assert_eq!(pruned.expect("it answers"), 0);
    let pruned = retention::prune_failures(&app.database, before).await;
    assert_eq!(pruned.expect("it answers"), 0);
    let pruned = retention::prune_contents(&app.database, before).await;
    assert_eq!(pruned.expect("it answers"), 0);
    let pruned = retention::prune_traffic(&app.database, before).await;
    assert_eq!(pruned.expect("it answers"), 0);
    app.task_store
        .forget_starts(before)
        .await
        .expect("it answers");
    let swarms = SwarmStore::new(app.database.clone(), app.sealing_keys.clone());
    assert_eq!(swarms.forget(before).await.expect("it answers"), 0);
}

/// Returns the statements that scan a growing table on SQLite, which plans without statistics.
async fn scans_on_sqlite(texts: &BTreeSet<String>, growing: &BTreeSet<String>) -> Vec<String> {
    let url = SecretUrl::new("sqlite::memory:");
    let database = Database::open(&url).await.expect("a database");
    let partial = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql LIKE '%WHERE%'";
    let partial: Vec<String> = sqlx::query_scalar(partial)
        .fetch_all(database.reader())
        .await
        .expect("a list");
    let mut wrong = Vec::new();
    let mut explained = 0;
    for text in texts {
        let explain = format!("EXPLAIN QUERY PLAN {}", for_sqlite(text));
        let steps = database.reader().fetch_all(AssertSqlSafe(explain)).await;
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                let is_of_postgres = [
                    "jsonb_",
                    "pg_",
                    "FOR UPDATE",
                    "EXTRACT(",
                    "to_char(",
                    "current_database",
                ];
                let is_of_postgres = is_of_postgres.iter().any(|word| text.contains(word));
                assert!(is_of_postgres, "{error}: {text}");
                continue;
            }
        };
        explained += 1;
        let steps: Vec<String> = steps.iter().map(|step| step.get("detail")).collect();
        // A list in the order of an index ends with its page. PostgreSQL's plans have shown the rows on the way.
        let is_page =
            text.contains("LIMIT") && !steps.iter().any(|step| step.contains("TEMP B-TREE"));
        for step in &steps {
            let Some(scanned) = step.strip_prefix("SCAN ") else {
                continue;
            };
            let name = scanned.split(' ').next().unwrap_or_default();
            let is_growing = table_of(text, name).is_some_and(|table| growing.contains(&table));
            let is_short = partial.iter().any(|index| scanned.contains(&**index));
            if is_growing && !is_short && !is_page {
                wrong.push(format!("SQLite: {}: {text}", steps.join("; ")));
            }
        }
    }
    assert!(explained > 80, "only {explained} statements");
    wrong
}

/// Translates a statement of PostgreSQL for SQLite.
fn for_sqlite(text: &str) -> String {
    let mut text = text.to_owned();
    for parameter in 1..10 {
        let of_postgres = format!("SELECT jsonb_array_elements_text(CAST(${parameter} AS JSONB))");
        text = text.replace(
            &of_postgres,
            &format!("SELECT value FROM json_each(${parameter})"),
        );
    }
    match text.find(" FOR UPDATE") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Returns the table behind a statement's alias.
fn table_of(text: &str, name: &str) -> Option<String> {
    let words: Vec<_> = text
        .split(|character: char| character.is_whitespace() || "(),".contains(character))
        .filter(|word| !word.is_empty())
        .collect();
    let names = words.iter().enumerate().filter_map(|(index, word)| {
        let is_before_table = ["FROM", "JOIN", "UPDATE", "INTO"].contains(word);
        let table = *words.get(index + 1).filter(|_| is_before_table)?;
        let alias = match *words.get(index + 2)? {
            "AS" => words.get(index + 3).copied(),
            other => Some(other),
        };
        Some((table, alias))
    });
    let mut names = names;
    let found = names.find(|(table, alias)| *table == name || *alias == Some(name));
    found.map(|(table, _)| table.to_owned())
}
