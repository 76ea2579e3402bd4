//! `GET /health` and `GET /health/ready`.

use std::time::Duration;

use serde_json::json;
use tests::{Client, Gate, Gateway, Reply, Upstream, chat, patiently};
use weir_app::config::Config;
use weir_storage::Database;

use crate::cli::Served;

#[tokio::test]
async fn both_are_open_to_all() {
    let gateway = Gateway::start().await;
    let health = gateway.stranger().get("/health").await;
    assert_eq!(health.status, 200);
    assert_eq!(health.json(), json!({ "status": "ok", "ready": true }));
    assert_eq!(
        gateway.stranger().get("/health/ready").await.json()["status"],
        "ready"
    );
}

#[tokio::test]
async fn a_gateway_without_its_database_is_alive_and_not_ready() {
    let gateway = Gateway::start().await;
    gateway.app().database.close().await;
    let health = gateway.stranger().get("/health").await;
    assert_eq!(health.status, 200);
    assert_eq!(health.json(), json!({ "status": "ok", "ready": false }));
    gateway
        .stranger()
        .get("/health/ready")
        .await
        .error(503, "NOT_READY");
    gateway
        .chat("demo", "Hello")
        .await
        .error(503, "STORE_UNAVAILABLE");
}

#[tokio::test]
async fn a_request_waits_for_its_database_as_long_as_the_settings_say() {
    let hurried = "[stores]\nacquire_ms = 1\nstatement_ms = 1000\n";
    let hurried = Gateway::builder().tables(hurried).start().await;
    let make_key = async |user: &Client| user.post("/api-keys", &json!({"name": "another"})).await;
    let known = async |gateway: &Gateway| {
        let user = gateway.web("wilma");
        // On a busy machine, the hurried gateway gives up at once.
        patiently(async { while user.get("/api-keys").await.status != 200 {} }).await;
        user
    };
    let user = known(&hurried).await;
    let writer = patiently(async {
        loop {
            if let Ok(writer) = hurried.app().database.begin().await {
                return writer;
            }
        }
    });
    let writer = writer.await;
    make_key(&user).await.error(503, "STORE_UNAVAILABLE");
    drop(writer);

    // Longer than its default.
    let patient = Gateway::start().await;
    let user = known(&patient).await;
    let writer = patient.app().database.begin().await;
    let writer = writer.expect("nobody else writes");
    let made = make_key(&user);
    let released = async {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        drop(writer);
    };
    let (made, ()) = tokio::join!(made, released);
    assert_eq!(made.status, 201, "{}", made.text());
}

/// Waits until a gateway is not ready, and returns the reason.
async fn until_not_ready(client: &Client) -> String {
    patiently(async {
        loop {
            let answer = client.get("/health/ready").await;
            if answer.status != 200 {
                let error = answer.error(503, "NOT_READY");
                return error["message"].as_str().expect("a text").to_owned();
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// As on a full disk, except that another process writes without end here.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_cannot_charge_is_not_ready_and_says_why_until_it_can() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("paid").after_gate(&gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    let asking = tokio::spawn(async move { client.post("/chat", &chat("scripted", "x")).await });
    gate.reached().await;
    let metrics = gateway.stranger().get("/metrics").await;
    assert!(metrics.text().contains("\nweir_ledger_open_holds 1\n"));

    let other = Database::open(&gateway.app().config.database_url()).await;
    let other = other.expect("a second process may open it");
    let transaction = other.begin().await.expect("nobody else writes");
    gate.open();
    let why = until_not_ready(&gateway.stranger()).await;
    assert!(why.contains("the database does not commit"), "{why}");
    assert!(
        !asking.is_finished(),
        "no answer goes out without its charge"
    );

    drop(transaction);
    let answer = asking.await.expect("no panic");
    assert_eq!(answer.content(), "paid");
    let ready = gateway.stranger().get("/health/ready").await;
    assert_eq!(ready.status, 200, "{}", ready.text());
    let metrics = gateway.stranger().get("/metrics").await.text();
    for figure in [
        "weir_ledger_open_holds 0\n",
        "weir_ledger_overrun_credits_total 0.0\n",
        "weir_ledger_batch_operations_bucket{le=\"256.0\"}",
        "weir_ledger_commit_seconds_count ",
    ] {
        assert!(metrics.contains(figure), "{figure} in {metrics}");
    }
    let failures = metrics
        .lines()
        .find(|line| line.starts_with("weir_ledger_commit_failures_total"));
    assert_ne!(failures, Some("weir_ledger_commit_failures_total 0"));
}

#[tokio::test]
async fn stopping_waits_for_requests_under_way() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    let mut stream = client.stream("/chat", &chat("scripted", "count")).await;
    assert_eq!(
        stream.next_chunk().await["choices"][0]["delta"]["content"],
        "one "
    );
    let draining = gateway.app().draining.clone();
    let stopped = tokio::spawn(gateway.stop());
    draining.cancelled().await;
    assert!(!stopped.is_finished(), "it waits");
    gate.open();
    assert_eq!(stream.content().await, "two");
    stopped.await.expect("it stops");
}

#[tokio::test]
async fn a_stopping_gateway_takes_no_second_request_on_a_kept_connection() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("first").after_gate(&gate));
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    let first = {
        let client = client.clone();
        tokio::spawn(async move { client.post("/chat", &chat("scripted", "x")).await })
    };
    gate.reached().await;
    let draining = gateway.app().draining.clone();
    let stopped = tokio::spawn(gateway.stop());
    draining.cancelled().await;
    gate.open();
    let first = first.await.expect("no panic");
    assert_eq!(first.content(), "first");
    assert!(
        client.try_get("/health").await.is_none(),
        "its connection was closed and no other is accepted"
    );
    stopped.await.expect("it stops");
}

#[tokio::test]
async fn what_is_still_under_way_after_the_drain_is_told_so() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &Gate::new()));
    let gateway = Gateway::builder()
        .upstream("scripted", &upstream)
        .tables("[limits]\nshutdown_ms = 100\n")
        .start()
        .await;
    let stream = gateway.stream("scripted", "count").await;
    let stopped = tokio::spawn(gateway.stop());
    let events = stream.rest().await;
    let last = events.last().expect("a last event");
    assert!(
        last.starts_with("event: error\n") && last.contains("SHUTTING_DOWN"),
        "{events:?}"
    );
    stopped.await.expect("it stops");
}

#[test]
fn a_gateway_that_serves_others_accepts_for_five_seconds_after_it_was_told_to_stop() {
    let delay = |toml: &str| Config::from_toml(toml).expect("it is sound").drain_delay();
    assert_eq!(delay("dev = false"), Duration::from_secs(5));
    assert_eq!(delay(""), Duration::ZERO);
    let set = "dev = false\n[limits]\ndrain_delay_ms = 70\n";
    assert_eq!(delay(set), Duration::from_millis(70));
}

#[tokio::test]
async fn a_signal_ends_readiness_first_and_a_second_one_everything() {
    let upstream = Upstream::start().await;
    upstream.will(Reply::chat_stream(["one ", "two"]).gate_before_piece(1, &Gate::new()));
    upstream.always(Reply::chat("still here"));
    let mut served = Served::configured(&format!(
        "[limits]\ndrain_delay_ms = 3600000\n{}",
        scripted(&upstream)
    ));
    let client = served.client();
    let mut stream = client.stream("/chat", &chat("scripted", "count")).await;
    assert_eq!(
        stream.next_chunk().await["choices"][0]["delta"]["content"],
        "one "
    );
    assert_eq!(client.get("/health/ready").await.status, 200);

    served.terminate();
    served.logged(|line| line.contains("a second signal")).await;
    while client.get("/health/ready").await.status == 200 {}
    let not_ready = client.get("/health/ready").await;
    not_ready.error(503, "NOT_READY");
    assert_eq!(not_ready.headers["connection"], "close");
    // Until load balancers have noticed, it serves as before, including new connections.
    assert_eq!(client.get("/health").await.status, 200);
    let answer = served.client().post("/chat", &chat("scripted", "x")).await;
    assert_eq!(answer.content(), "still here");
    assert!(!served.has_ended());

    served.terminate();
    let events = stream.rest().await;
    let last = events.last().expect("a last event");
    assert!(
        last.starts_with("event: error\n") && last.contains("SHUTTING_DOWN"),
        "{events:?}"
    );
    let (log, ended_well) = served.ended();
    assert!(ended_well && log.contains("stopping immediately"), "{log}");
}

#[tokio::test]
async fn one_signal_is_enough_to_stop_once_the_delay_is_over() {
    let served = Served::configured("[limits]\ndrain_delay_ms = 200\n");
    let client = served.client();
    served.terminate();
    served.logged(|line| line.contains("a second signal")).await;
    assert_eq!(client.get("/health").await.status, 200);
    let (log, ended_well) = served.ended();
    assert!(ended_well && !log.contains("stopping immediately"), "{log}");
}

/// A provider and a model of this name, for the command.
fn scripted(upstream: &Upstream) -> String {
    format!(
        "[providers.scripted]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         [models.scripted]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 100\n\
         upstreams = [{{ provider = \"scripted\" }}]\nprice = {{ input = 1, output = 2 }}\n",
        upstream.base_url()
    )
}
