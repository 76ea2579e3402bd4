//! `GET /metrics`, and the dashboard and the alerts that read it.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Bytes;
use serde_json::{Value, json};
use tests::payments::{Processor, event};
use tests::source::{files, root};
use tests::{Client, Gateway, Reply, Upstream, chat, patiently};
use weir_ledger::Credits;
use weir_plugins::component::Plugin;
use weir_plugins::metrics::CanaryEnd;

use crate::billing::leave;
use crate::swarms::{agent, swarm};

async fn scrape(gateway: &Gateway) -> String {
    gateway.stranger().get("/metrics").await.text()
}

/// Returns the value of the line with this prefix.
fn value(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    let value = line.unwrap_or_else(|| panic!("there is no {series} in {metrics}"));
    let value = value.split(" # ").next().expect("a value");
    value.trim().parse().expect("a number")
}

/// Waits until a request is counted, which happens after its response.
async fn until_counted(gateway: &Gateway, series: &str, wanted: f64) -> String {
    patiently(async {
        loop {
            let metrics = scrape(gateway).await;
            if metrics.contains(series) && value(&metrics, series) >= wanted {
                return metrics;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn requests_are_counted_by_route_status_code_model_and_provider() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("counted"));
    let gateway = Gateway::with_upstream(&upstream).await;
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let client = gateway.client().with_header("traceparent", &parent);
    let answer = client
        .post("/v1/chat/completions", &chat("scripted", "x"))
        .await;
    let usage = answer.json()["usage"].clone();
    let route = "route=\"/v1/chat/completions\"";
    let ended = format!("weir_requests_total{{method=\"POST\",{route},status=\"200\"}} ");
    let metrics = until_counted(&gateway, &ended, 1.0).await;
    assert_eq!(value(&metrics, &ended), 1.0);
    let whom = "model=\"scripted\",provider=\"scripted\"";
    for (kind, field) in [("input", "prompt_tokens"), ("output", "completion_tokens")] {
        let series = format!("weir_tokens_total{{{whom},kind=\"{kind}\"}} ");
        assert_eq!(Some(value(&metrics, &series)), usage[field].as_f64());
    }
    let credits = value(&metrics, &format!("weir_credits_total{{{whom}}} "));
    assert_eq!(Some(credits), usage["credits"].as_f64());
    assert_eq!(
        value(&metrics, &format!("weir_request_seconds_count{{{route}}} ")),
        1.0
    );
    let exemplar = metrics.lines().any(|line| {
        line.starts_with("weir_request_seconds_bucket")
            && line.contains(&format!("trace_id=\"{TRACE}\""))
    });
    assert!(exemplar, "{metrics}");

    let refused = gateway.client().post("/chat", &chat("nobody's", "x")).await;
    refused.error(400, "UNKNOWN_MODEL");
    let metrics = until_counted(
        &gateway,
        "weir_request_errors_total{code=\"UNKNOWN_MODEL\"} ",
        1.0,
    )
    .await;
    assert_eq!(
        value(
            &metrics,
            "weir_requests_total{method=\"POST\",route=\"/chat\",status=\"400\"} "
        ),
        1.0
    );
    assert!(!metrics.contains("nobody's"), "a client's word is a label");
}

#[tokio::test]
async fn what_fails_for_no_reason_of_its_clients_is_counted_behind_a_success_too() {
    let upstream = Upstream::start().await;
    let reply = Reply::chat_stream(["one ", "two ", "three"]);
    let whole = reply.whole_body().len();
    upstream.will(reply.cut_after(whole / 2));
    let gateway = Gateway::with_upstream(&upstream).await;
    gateway
        .client()
        .post("/chat", &chat("nobody's", "x"))
        .await
        .error(400, "UNKNOWN_MODEL");
    let stream = gateway.stream("scripted", "hello").await;
    assert!(!stream.is_whole().await);
    let series = "weir_request_failures_total{route=\"/chat\"} ";
    let metrics = until_counted(&gateway, series, 1.0).await;
    assert_eq!(value(&metrics, series), 1.0, "the client's own is none");
    upstream.always(Reply::error(500, "oops"));
    let failed = gateway.chat("scripted", "hello").await;
    assert!(failed.status.is_server_error(), "{}", failed.text());
    until_counted(&gateway, series, 2.0).await;
}

/// Strangers' requests create no further series.
#[tokio::test]
async fn no_client_makes_a_series_of_its_own() {
    let gateway = Gateway::start().await;
    for path in [
        "/nowhere",
        "/nowhere/else",
        "/%2e%2e/x",
        "/session/abc/history",
    ] {
        gateway.stranger().get(path).await;
    }
    let odd = http::Method::from_bytes(b"BREW").expect("a method");
    gateway
        .stranger()
        .send(odd, "/nowhere", None, Bytes::new())
        .await;
    let series = "weir_requests_total{method=\"other\",route=\"none\",status=\"404\"} ";
    let metrics = until_counted(&gateway, series, 1.0).await;
    assert_eq!(
        value(
            &metrics,
            "weir_requests_total{method=\"GET\",route=\"none\",status=\"404\"} "
        ),
        3.0
    );
    for word in ["nowhere", "BREW", "abc"] {
        assert!(!metrics.contains(word), "{word}");
    }
}

#[tokio::test]
async fn what_is_under_way_is_seen() {
    let upstream = Upstream::start().await;
    let gate = tests::Gate::new();
    upstream.will(Reply::chat("late").after_gate(&gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    let asking = tokio::spawn(async move { client.post("/chat", &chat("scripted", "x")).await });
    gate.reached().await;
    let metrics = scrape(&gateway).await;
    assert_eq!(value(&metrics, "weir_requests_in_progress "), 1.0);
    assert_eq!(value(&metrics, "weir_requests_queued "), 0.0);
    assert_eq!(value(&metrics, "weir_store_up{store=\"database\"} "), 1.0);
    assert_eq!(value(&metrics, "weir_store_up{store=\"cache\"} "), 1.0);
    gate.open();
    assert_eq!(asking.await.expect("no panic").content(), "late");
    patiently(async {
        while value(&scrape(&gateway).await, "weir_requests_in_progress ") > 0.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    gateway.app().database.close().await;
    assert_eq!(
        value(
            &scrape(&gateway).await,
            "weir_store_up{store=\"database\"} "
        ),
        0.0
    );
}

/// Reads the labels of a series as Prometheus does; fails on a text that it would refuse.
fn labels_of(series: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = series.strip_prefix('{').expect("a brace");
    while !rest.starts_with('}') {
        let (name, after) = rest.split_once("=\"").expect("a name");
        let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        assert!(name.chars().all(is_name), "{series}");
        let (mut value, mut letters) = (String::new(), after.char_indices());
        let end = loop {
            match letters.next().expect("the value ends") {
                (at, '"') => break at,
                (_, '\\') => value.push(match letters.next().expect("an escape").1 {
                    'n' => '\n',
                    quoted @ ('"' | '\\') => quoted,
                    other => panic!("Prometheus knows no \\{other}: {series}"),
                }),
                (_, letter) => value.push(letter),
            }
        };
        labels.push((name.to_owned(), value));
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    labels
}

#[tokio::test]
async fn labels_are_escaped_so_that_a_quote_blinds_no_scrape() {
    const ODD: &str = "a\"b\\c";
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("odd"));
    let gateway = Gateway::builder()
        .provider("odd", "openai", Some(&upstream))
        .model(&format!("{ODD:?}"), &["odd"])
        .start()
        .await;
    assert_eq!(gateway.chat(ODD, "x").await.status, 200);
    let escaped = "weir_credits_total{model=\"a\\\"b\\\\c\",provider=\"odd\"} ";
    let metrics = until_counted(&gateway, escaped, 0.0).await;
    let mut named = BTreeSet::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let name = line.find(['{', ' ']).expect("a value follows");
        if line[name..].starts_with('{') {
            for (label, value) in labels_of(&line[name..]) {
                if value.contains(ODD) {
                    named.insert(format!("{}:{label}", &line[..name]));
                }
            }
        }
    }
    let expected = [
        "weir_credits_total:model",
        "weir_tokens_total:model",
        "weir_upstream_breaker_open:upstream",
        "weir_upstream_breaker_open_accounts:upstream",
        "weir_upstream_credential_refused:upstream",
        "weir_upstream_resting:upstream",
    ];
    assert_eq!(named, expected.map(str::to_owned).into());
}

/// `prometheus-client` does not escape texts.
#[test]
fn no_label_is_a_text_that_nothing_escapes() {
    let mut structs = 0;
    for path in files(&root().join("host"), "rs") {
        let source = std::fs::read_to_string(&path).expect("text");
        for part in source.split("EncodeLabelSet)]\n").skip(1) {
            structs += 1;
            let (_, fields) = part.split_once("{\n").expect("a struct");
            let (fields, _) = fields.split_once('}').expect("it ends");
            let fields = fields.lines().map(str::trim);
            for field in fields.filter(|line| !line.is_empty() && !line.starts_with("//")) {
                let is_safe = [": LabelText,", ": &'static str,"];
                assert!(
                    is_safe.iter().any(|kind| field.ends_with(kind)),
                    "{}: {field}",
                    path.display()
                );
            }
        }
    }
    assert!(structs > 10, "{structs}");
}

#[tokio::test]
async fn series_of_a_removed_upstream_end_with_the_reload() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::builder()
        .provider("stays", "openai", Some(&upstream))
        .provider("goes", "openai", Some(&upstream))
        .model("stays", &["stays"])
        .model("goes", &["goes"])
        .start()
        .await;
    let metrics = ["breaker_open", "resting"].map(|name| format!("weir_upstream_{name}"));
    let before = scrape(&gateway).await;
    let mut config = gateway.app().config.clone();
    config.models.remove("goes");
    config.providers.remove("goes");
    gateway.app().take_up(config).await.expect("it fits");
    let after = scrape(&gateway).await;
    for metric in metrics {
        let goes = format!("{metric}{{upstream=\"goes/goes\"}}");
        assert!(before.contains(&goes), "{before}");
        assert!(!after.contains(&goes), "{after}");
        assert!(after.contains(&format!("{metric}{{upstream=\"stays/stays\"}}")));
    }
}

/// Returns the names of metrics and of labels in a dashboard or a rule.
fn asked_for(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_word =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    let words = text.split(|letter| !is_word(letter));
    let metrics = words
        .filter(|word| word.starts_with("weir_"))
        .map(str::to_owned);
    let mut labels = BTreeSet::new();
    for grouping in text.split("by (").skip(1) {
        let inside = grouping.split(')').next().expect("it ends");
        labels.extend(inside.split(',').map(|label| label.trim().to_owned()));
    }
    for shown in text.split("$labels.").skip(1) {
        labels.extend(
            shown
                .split(|letter| !is_word(letter))
                .next()
                .map(str::to_owned),
        );
    }
    for chosen in text.split("weir_").skip(1) {
        let Some((_, rest)) = chosen
            .split_once('{')
            .filter(|(name, _)| name.chars().all(is_word))
        else {
            continue;
        };
        labels.extend(rest.split('=').next().map(str::to_owned));
    }
    (metrics.collect(), labels)
}

/// Returns all metrics, after an event of every kind.
async fn everything() -> String {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat("one"));
    let gateway = Gateway::builder()
        .swarms()
        .upstream("scripted", &upstream)
        .tables("[providers.gone]\nadapter = \"openai\"\nbase_url = \"http://127.0.0.1:1\"\n")
        .model("gone", &["gone"])
        .start()
        .await;
    gateway.set_plan("pro").await;
    assert_eq!(gateway.chat("scripted", "x").await.status, 200);
    // As often as the breaker needs to open.
    for _ in 0..5 {
        gateway
            .chat("gone", "x")
            .await
            .error(503, "UPSTREAM_UNAVAILABLE");
    }
    upstream.will_stream(["to", "gether"]);
    gateway.stream("scripted", "x").await.rest().await;
    upstream.will(Reply::chat("done"));
    run_swarm(&gateway.client()).await;
    let processor = Processor::new(gateway.stranger(), gateway.app());
    let customer = json!({ "id": "cus_of_nobody" });
    let unknown = event(
        "evt_1",
        "customer.created",
        "2026-03-03T00:00:00Z",
        &customer,
    );
    processor.tell(&unknown).await;
    let poor = "weir_ledger_refused_total{reason=\"insufficient\"} ";
    leave(&gateway, Credits::ZERO).await;
    gateway
        .chat("scripted", "x")
        .await
        .error(429, "QUOTA_EXCEEDED");
    let metrics = until_counted(&gateway, poor, 1.0).await;
    // Metrics that need a failing component, or a canary, are set here directly.
    let app = gateway.app();
    let adapter = app.plugins.adapter("openai").expect("it serves");
    let plugin = Plugin::Adapter(adapter);
    app.metrics.plugins.quarantine(&plugin);
    app.metrics.plugins.quarantine_withheld(&plugin);
    app.metrics.plugins.clamp(&plugin, "scripted", 1);
    app.metrics
        .plugins
        .canary_end(&plugin, CanaryEnd::RolledBack);
    app.metrics.plugins.canaries([(plugin, 0.05)].into_iter());
    metrics + &app.metrics.encode().expect("text")
}

async fn run_swarm(client: &Client) {
    let accepted = client
        .post("/swarms", &swarm(&[agent("alone")]))
        .await
        .json();
    let id = accepted["execution_id"].as_str().expect("an id").to_owned();
    patiently(async {
        while client.get(&format!("/swarms/{id}")).await.json()["status"] != "completed" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_ask_for_what_there_is() {
    let metrics = everything().await;
    let there: BTreeSet<_> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let mut labels: BTreeSet<String> = ["le", "instance", "job"].map(str::to_owned).into();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        if let Some((_, inside)) = line.split_once('{') {
            let names = inside
                .split("=\"")
                .filter_map(|part| part.rsplit(['"', ',', '{']).next());
            labels.extend(names.map(str::to_owned));
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/deploy");
    for file in ["grafana-dashboard.json", "alerts.yaml"] {
        let text = std::fs::read_to_string(folder.join(file)).expect("a file");
        let (asked, by) = asked_for(&text);
        assert!(asked.len() > 8, "{file} asks for {asked:?}");
        for name in asked {
            let base = ["_bucket", "_count", "_sum", "_total"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .unwrap_or(&name);
            assert!(
                there.contains(base) || there.contains(&*name),
                "{file}: there is no {name}"
            );
        }
        for label in by {
            assert!(
                labels.contains(&label),
                "{file}: nothing has the label {label}: {labels:?}"
            );
        }
    }
    let dashboard = std::fs::read(folder.join("grafana-dashboard.json")).expect("a file");
    let dashboard: Value = serde_json::from_slice(&dashboard).expect("JSON");
    assert!(
        dashboard["panels"]
            .as_array()
            .is_some_and(|panels| panels.len() > 10)
    );
}
