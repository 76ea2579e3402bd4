//! The log export: the facts of requests at ClickHouse and at S3-compatible storage, and the harmlessness of destinations that
//! fail or hang.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tests::source::root;
use tests::upstream::Request;
use tests::{Gateway, Reply, Upstream, chat, patiently};

use crate::cli::{folder_with_compiled_plugins, run, text};
use crate::release::check;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A gateway whose model `scripted` answers "served", with this table of the log export.
async fn gateway(upstream: &Upstream, settings: &str) -> Gateway {
    upstream.always(Reply::chat("served"));
    let builder = Gateway::builder().upstream("scripted", upstream);
    let table = format!("[log_export]\n{settings}\n");
    builder.tables(&table).start().await
}

/// A destination that accepts everything.
async fn sink() -> Upstream {
    let sink = Upstream::start().await;
    sink.always(Reply::new(200));
    sink
}

/// A secret source for a new file.
fn secret(value: &str) -> (NamedTempFile, String) {
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(&file, value).expect("it can be written");
    let source = format!("{{ file = {:?} }}", file.path());
    (file, source)
}

/// The columns of the table in the reference of the settings, with their types.
fn columns() -> BTreeMap<String, String> {
    let reference = root().join("host/docs/settings.md");
    let reference = std::fs::read_to_string(reference).expect("the reference");
    let (_, table) = reference
        .split_once("CREATE TABLE weir_requests (")
        .expect("a table");
    let (table, _) = table.split_once(") ENGINE").expect("an end");
    let mut columns = BTreeMap::new();
    let (mut depth, mut column) = (0, String::new());
    for letter in table.chars().chain([',']) {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                let taken = std::mem::take(&mut column);
                let (name, kind) = taken.trim().split_once(' ').expect("a name and a type");
                columns.insert(name.to_owned(), kind.to_owned());
                continue;
            }
            _ => {}
        }
        column.push(letter);
    }
    columns
}

/// Returns whether ClickHouse reads the value into a column of this type, with `date_time_input_format=best_effort`.
fn fits(kind: &str, value: &Value) -> bool {
    let inner = |name: &str| {
        let inner = kind.strip_prefix(name)?.strip_prefix('(');
        inner?.strip_suffix(')')
    };
    if let Some(kind) = inner("Nullable") {
        return value.is_null() || fits(kind, value);
    }
    if let Some(kind) = inner("LowCardinality") {
        return fits(kind, value);
    }
    if let Some(kind) = inner("Array") {
        let items = value.as_array();
        return items.is_some_and(|items| items.iter().all(|item| fits(kind, item)));
    }
    match kind {
        "String" => value.is_string(),
        "UInt16" => value
            .as_u64()
            .is_some_and(|value| u16::try_from(value).is_ok()),
        "UInt32" => value
            .as_u64()
            .is_some_and(|value| u32::try_from(value).is_ok()),
        "UInt64" => value.is_u64(),
        "Int64" => value.is_i64(),
        "DateTime64(3, 'UTC')" => {
            let text = value.as_str().unwrap_or_default();
            text.len() == "2026-11-24T12:00:00.000Z".len()
                && text.parse::<jiff::Timestamp>().is_ok()
        }
        _ => panic!("an unknown type {kind}"),
    }
}

/// Returns the rows of a delivery, each with exactly the columns of the documented table.
fn rows(request: &Request) -> Vec<Value> {
    assert_eq!(request.header("content-type"), Some("application/x-ndjson"));
    let body = std::str::from_utf8(&request.body).expect("UTF-8");
    assert!(body.ends_with('\n'), "{body}");
    let columns = columns();
    let rows = body.lines().map(|line| {
        let row: BTreeMap<String, Value> = serde_json::from_str(line).expect("an object");
        assert!(row.keys().eq(columns.keys()), "{line} and {columns:?}");
        for (name, value) in &row {
            assert!(fits(&columns[name], value), "{name} is {value}");
        }
        json!(row)
    });
    rows.collect()
}

/// The parameters of a delivery to ClickHouse.
fn parameters(request: &Request) -> Vec<(String, String)> {
    assert_eq!(request.method, "POST");
    let query = request.path.strip_prefix("/?").expect("a query");
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.into_owned().collect()
}

/// Waits until the metrics have this line.
async fn until_metric(gateway: &Gateway, line: &str) {
    patiently(async {
        loop {
            let metrics = gateway.stranger().get("/metrics").await.text();
            if metrics.lines().any(|found| found == line) {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn clickhouse_gets_a_row_for_each_request() {
    let (upstream, sink) = (Upstream::start().await, sink().await);
    let (_user, user) = secret("weir");
    let (_key, key) = secret("canary-key-0123456789");
    let gateway = gateway(
        &upstream,
        &format!(
            "url = \"{}/?database=logs\"\ntable = \"logs.requests\"\nbatch_rows = 2\nbatch_seconds = 3600\n\
             headers = {{ X-ClickHouse-User = {user}, X-ClickHouse-Key = {key} }}",
            sink.base_url()
        ),
    )
    .await;
    // Probes are not exported.
    gateway.stranger().get("/health").await;
    let client = gateway.client().with_header("x-request-id", "mine-1");
    let served = client
        .post("/v1/chat/completions", &chat("scripted", "canary-prompt"))
        .await;
    assert_eq!(served.status, 200, "{}", served.text());
    let refused = gateway.client().get("/v1/models/unknown").await;
    assert_eq!(refused.status, 404, "{}", refused.text());

    let sent = patiently(sink.next_request()).await;
    let mut parameters = parameters(&sent);
    let (name, token) = parameters.pop().expect("parameters");
    assert_eq!(name, "insert_deduplication_token");
    assert!(
        token.starts_with("boot_") && token.ends_with("-0"),
        "{token}"
    );
    let expected = [
        ("database", "logs"),
        ("query", "INSERT INTO logs.requests FORMAT JSONEachRow"),
        ("date_time_input_format", "best_effort"),
        ("input_format_skip_unknown_fields", "1"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(parameters, expected);
    assert_eq!(sent.header("x-clickhouse-user"), Some("weir"));
    assert_eq!(
        sent.header("x-clickhouse-key"),
        Some("canary-key-0123456789")
    );
    let body = text(&sent.body);
    assert!(
        !body.contains("canary") && !body.contains(gateway.key()),
        "{body}"
    );

    let rows_sent = rows(&sent);
    assert_eq!(rows_sent.len(), 2, "{body}");
    let of = |route: &str| {
        let found = rows_sent.iter().find(|row| row["route"] == route);
        found.unwrap_or_else(|| panic!("no {route} in {body}"))
    };
    let row = of("/v1/chat/completions");
    for (name, value) in [
        ("client_request_id", json!("mine-1")),
        ("method", json!("POST")),
        ("status", json!(200)),
        ("code", Value::Null),
        ("model", json!("scripted")),
        ("upstream", json!("scripted")),
        ("attempts", json!(1)),
        ("tokens_input", json!(10)),
        ("tokens_output", json!(1)),
        ("unit", json!("tokens")),
        ("quantity", json!(11)),
        ("annotations", json!([])),
    ] {
        assert_eq!(row[name], value, "{name} of {row}");
    }
    assert!(row["microcredits"].as_i64() > Some(0), "{row}");
    let row = of("/v1/models/{*id}");
    assert_eq!(
        (&row["status"], &row["microcredits"]),
        (&json!(404), &Value::Null),
        "{row}"
    );
    assert!(row["code"].is_string(), "{row}");
    until_metric(&gateway, "weir_log_export_rows_total 2").await;

    // A stopping gateway sends an incomplete batch.
    gateway.chat("scripted", "x").await;
    gateway.stop().await;
    let last = patiently(sink.next_request()).await;
    assert_eq!(rows(&last).len(), 1);
    assert!(last.path.ends_with("-1"), "{}", last.path);
    assert_eq!(sink.count(), 2);
}

#[tokio::test]
async fn storage_gets_signed_objects() {
    let (upstream, sink) = (Upstream::start().await, sink().await);
    let (_id, id) = secret("AKIDEXAMPLE");
    let (_key, key) = secret(SECRET);
    let gateway = gateway(
        &upstream,
        &format!(
            "url = \"s3://facts/weir/prod/\"\nendpoint = \"{}\"\nbatch_seconds = 1\n\
             credential = {{ aws = {{ region = \"eu-central-1\", access_key_id = {id}, secret_access_key = {key} }} }}",
            sink.base_url()
        ),
    )
    .await;
    gateway.chat("scripted", "x").await;
    let sent = patiently(sink.next_request()).await;
    assert_eq!(sent.method, "PUT");
    let today = jiff::Timestamp::now().strftime("%Y/%m/").to_string();
    let folder = format!("/facts/weir/prod/{today}");
    assert!(sent.path.starts_with(&folder), "{}", sent.path);
    assert!(sent.path.ends_with("-0.jsonl"), "{}", sent.path);
    assert_eq!(rows(&sent).len(), 1);

    let recorded = json!({
        "method": sent.method,
        "url": format!("{}{}", sink.base_url(), sent.path),
        "headers": sent.headers,
        "body": text(&sent.body),
        "key_id": "AKIDEXAMPLE",
        "secret": SECRET,
        "region": "eu-central-1",
    });
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(&file, recorded.to_string()).expect("it can be written");
    check("s3_signature.py", &[file.path().as_os_str()]);
    gateway.stop().await;
}

#[tokio::test]
async fn a_repeated_delivery_has_the_same_name_and_rows() {
    let (upstream, sink) = (Upstream::start().await, sink().await);
    sink.will(Reply::error(503, "busy"));
    let settings = format!("url = \"{}\"\nbatch_rows = 1", sink.base_url());
    let gateway = gateway(&upstream, &settings).await;
    gateway.chat("scripted", "x").await;
    let first = patiently(sink.next_request()).await;
    let second = patiently(sink.next_request()).await;
    assert_eq!((&first.path, &first.body), (&second.path, &second.body));
    until_metric(&gateway, "weir_log_export_rows_total 1").await;
    until_metric(&gateway, "weir_log_export_batches_dropped_total 0").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_refused_batch_is_dropped_and_counted() {
    let (upstream, sink) = (Upstream::start().await, sink().await);
    // ClickHouse 26 responds so if the table does not exist.
    let missing = Reply::new(404)
        .header("x-clickhouse-exception-code", "60")
        .body("Code: 60. DB::Exception: Table default.weir_requests does not exist. (UNKNOWN_TABLE)\n");
    sink.will(missing);
    // An exception after the status.
    sink.will(Reply::new(200).header("x-clickhouse-exception-code", "241"));
    let settings = format!("url = \"{}\"\nbatch_rows = 1", sink.base_url());
    let gateway = gateway(&upstream, &settings).await;
    gateway.chat("scripted", "x").await;
    until_metric(&gateway, "weir_log_export_batches_dropped_total 1").await;
    let dropped = "weir_log_export_rows_dropped_total{why=\"export_failed\"} 1";
    until_metric(&gateway, dropped).await;
    // The next batch does not wait for the lost one, and its own first attempt has failed.
    gateway.chat("scripted", "x").await;
    until_metric(&gateway, "weir_log_export_rows_total 1").await;
    assert_eq!(sink.count(), 3);
    gateway.stop().await;
}

#[tokio::test]
async fn a_destination_that_hangs_delays_no_request() {
    let (upstream, sink) = (Upstream::start().await, Upstream::start().await);
    sink.always(Reply::never());
    let settings = format!("url = \"{}\"\nbatch_rows = 1", sink.base_url());
    let gateway = gateway(&upstream, &settings).await;
    assert_eq!(gateway.chat("scripted", "x").await.content(), "served");
    patiently(sink.next_request()).await;
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(gateway.chat("scripted", "x").await.content(), "served");
    }
    gateway.stop().await;
    let took = started.elapsed();
    // The first delivery alone would take 30 s.
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(sink.count(), 1, "deliveries are one after the other");
}

#[tokio::test]
async fn faults_of_the_settings_are_told_at_the_start() {
    for (settings, said) in [
        ("url = \"canary:9000\"", "`log_export.url` must begin with"),
        (
            "url = \"https://a:canary@b\"",
            "credentials belong under `log_export.headers`",
        ),
        (
            "url = \"https://b/?password=canary\"",
            "credentials belong under `log_export.headers`",
        ),
        (
            "url = \"s3://CANARY\"",
            "`log_export.url` has no valid name of a bucket",
        ),
        (
            "url = \"s3://facts\"",
            "`log_export.credential` must be { aws = { … } } for s3://",
        ),
        ("table = \"canary; DROP\"", "`log_export.table` must be"),
        (
            "headers = { a = { env = \"A\" } }",
            "`log_export.url` is missing",
        ),
        (
            "batch_rows = 10000",
            "`log_export.batch_rows` is above 8192",
        ),
        ("format = \"canary\"", "log_export"),
        (
            "url = \"https://b\"\nheaders = { X-ClickHouse-Key = { env = \"NO_SUCH_VARIABLE\" } }",
            "the environment variable NO_SUCH_VARIABLE is not set",
        ),
    ] {
        let folder = folder_with_compiled_plugins();
        let toml = format!("[log_export]\n{settings}\n");
        std::fs::write(folder.path().join("weir.toml"), toml).expect("it can be written");
        let output = run(folder.path(), &["check"]);
        let told = text(&output.stderr);
        assert!(!output.status.success(), "{settings}");
        assert!(told.contains(said), "{told}");
        assert!(!told.to_lowercase().contains("canary"), "{told}");
    }
}
