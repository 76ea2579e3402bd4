//! Swarms whose executor departs in the middle of their work, on both databases: the successor's budget, writes
//! during an outage of the database, and the work that a stopping node finishes.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::handovers::hand_over;
use tests::stores::Postgres;
use tests::{Gate, Gateway, Reply, Upstream};

use crate::billing::is_settled;
use crate::swarm_tools::calls;
use crate::swarms::{agent, ended, gateway, swarm};

/// Earlier versions let the successor open a hold for the complete budget during a call (155 of 100 could be spent),
/// or for as much as that call had left.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_during_a_model_call_spends_the_budget_and_no_more() {
    let postgres = Postgres::shared().create_database().await;
    for url in [None, Some(&postgres)] {
        let upstream = Upstream::start().await;
        let mut builder = Gateway::builder()
            .swarms()
            .upstream("scripted", &upstream)
            .tables("[swarms]\nlease_ms = 1000\n");
        if let Some(url) = url {
            builder = builder.postgres(url);
        }
        let gateway = builder.start().await;
        gateway.set_plan("pro").await;
        let faults = hand_over(&gateway, &upstream, 8).await;
        assert_eq!(faults, Vec::<String>::new());
        is_settled(&gateway).await;
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_model_that_is_unavailable_for_a_while_is_asked_again() {
    let upstream = Upstream::start().await;
    for _ in 0..4 {
        upstream.will(Reply::error(503, "later"));
    }
    upstream.always(Reply::chat("Here again."));
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let accepted = client.post("/swarms", &swarm(&[agent("a")])).await.json();
    let record = ended(&client, accepted["execution_id"].as_str().expect("an id")).await;
    assert_eq!(
        (&record["status"], &record["content"]),
        (&json!("completed"), &json!("Here again.")),
        "{record}"
    );
    is_settled(&gateway).await;
}

/// In earlier versions, the first failed statement left the run until its lease expired, and counted as a failure of
/// its executor.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_write_is_made_again_while_the_lease_lasts() {
    let postgres = Postgres::shared().create_database().await;
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("Done.").after_gate(&gate));
    let gateway = Gateway::builder()
        .postgres(&postgres)
        .swarms()
        .upstream("scripted", &upstream)
        .tables("[stores]\nstatement_ms = 300\n")
        .start()
        .await;
    gateway.set_plan("pro").await;
    let client = gateway.client();
    let accepted = client.post("/swarms", &swarm(&[agent("a")])).await.json();
    let id = accepted["execution_id"].as_str().expect("an id");
    patiently(gate.reached()).await;
    let database = &gateway.app().database;
    let waiting = async || -> Vec<i64> {
        let waiting = sqlx::query_scalar(
            "SELECT CAST(pid AS BIGINT) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
             AND query LIKE 'UPDATE swarm_steps%'",
        );
        let waiting = waiting.fetch_all(database.reader()).await;
        waiting.expect("the database answers")
    };
    let mut lock = database.begin().await.expect("a transaction");
    let locked = sqlx::query("LOCK TABLE swarm_steps IN ACCESS EXCLUSIVE MODE");
    locked.execute(&mut lock).await.expect("nobody has it");
    gate.open();
    // The write waits, is cancelled by its own time limit, and waits again.
    for _ in 0..2 {
        patiently(async { while waiting().await.is_empty() {} }).await;
        patiently(async { while !waiting().await.is_empty() {} }).await;
    }
    drop(lock);
    let record = ended(&client, id).await;
    assert_eq!(record["status"], "completed", "{record}");
    let run = gateway.app().swarms.store.find(id).await;
    let run = run.expect("an answer").expect("a run");
    assert_eq!((run.fence, run.recoveries), (1, 0));
    is_settled(&gateway).await;
    gateway.stop().await;
}

/// In earlier versions, the call was cut off and its outcome unknown: an unsafe one was not repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_the_executor_finishes_the_call_of_a_tool_that_is_under_way() {
    let (upstream, receiver) = (Upstream::start().await, Upstream::start().await);
    let gate = Gate::new();
    receiver.will(Reply::new(200).body("Ordered.").after_gate(&gate));
    let address = receiver.address();
    let gateway = Gateway::builder()
        .swarms()
        .upstream("scripted", &upstream)
        .tables(&format!(
            "[tools.http_post]\neffect = \"unsafe\"\nports = [{}]\nprivate = [\"{address}\"]\n",
            address.port()
        ))
        .start()
        .await;
    gateway.set_plan("pro").await;
    let url = format!("http://{address}/orders");
    upstream
        .will(calls("http_post", &json!({ "url": url, "body": "1" })))
        .will(Reply::chat("Done."));
    let mut buyer = agent("buyer");
    buyer["tools"] = json!(["http_post"]);
    let client = gateway.client();
    let accepted = client.post("/swarms", &swarm(&[buyer])).await.json();
    let id = accepted["execution_id"].as_str().expect("an id");
    patiently(gate.reached()).await;
    let executor = gateway.executor().clone();
    let stop = tokio::spawn(async move { executor.stop().await });
    // A run without a tool's call is released at once.
    gate.open();
    patiently(stop).await.expect("no panic");
    let steps = gateway.app().swarms.store.steps(id).await;
    let steps = steps.expect("an answer");
    let call = steps.iter().find(|step| step.place.ordinal == 1);
    let output = call.and_then(|step| step.output.clone());
    let output = output.expect("it has its result").to_string();
    assert!(output.contains("Ordered."), "{output}");
    let heir = gateway.another_executor();
    let record = ended(&client, id).await;
    assert_eq!(record["content"], "Done.", "{record}");
    let calls = &record["agents"][0]["tool_calls"];
    assert_eq!(
        (&calls[0]["status"], calls.as_array().map(Vec::len)),
        (&json!("success"), Some(1))
    );
    assert_eq!(receiver.count(), 1);
    heir.stop().await;
    is_settled(&gateway).await;
}

/// In earlier versions, a call that outlived its swarm was charged and in no record.
#[tokio::test]
async fn what_a_call_costs_that_outlives_its_swarm_is_added_to_it() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat_with_usage("Late.", 10, 100).after_gate(&gate));
    let builder = Gateway::builder().swarms().upstream("scripted", &upstream);
    let builder = builder.tables("[swarms]\ndeadline_seconds = 1\n");
    let gateway = builder.start().await;
    gateway.set_plan("pro").await;
    let client = gateway.client();
    let accepted = client.post("/swarms", &swarm(&[agent("a")])).await.json();
    let id = accepted["execution_id"].as_str().expect("an id");
    let record = ended(&client, id).await;
    assert_eq!(
        (&record["status"], &record["total_credits"]),
        (&json!("failed"), &json!(0))
    );
    gate.open();
    is_settled(&gateway).await;
    let charged: i64 = sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(-plan_delta - top_up_delta), 0) AS BIGINT) FROM entries WHERE source_id = $1",
    )
    .bind(id)
    .fetch_one(gateway.folded_database().await.reader())
    .await
    .expect("an answer");
    assert!(charged > 0);
    let record = patiently(async {
        loop {
            let record = client.get(&format!("/swarms/{id}")).await.json();
            if record["total_credits"] != json!(0) {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let told = record["total_credits"].as_f64().expect("a number");
    assert_eq!((told * 1e6).round() as i64, charged);
    assert_eq!(
        (&record["tokens_in"], &record["tokens_out"]),
        (&json!(10), &json!(100))
    );
}

/// In earlier versions, a swarm that was cancelled in its last call was `completed`.
#[tokio::test]
async fn a_swarm_that_is_cancelled_during_its_last_call_is_cancelled() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("Done.").after_gate(&gate));
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let accepted = client.post("/swarms", &swarm(&[agent("a")])).await.json();
    let id = accepted["execution_id"].as_str().expect("an id");
    patiently(gate.reached()).await;
    let cancel = format!("/swarms/{id}/cancel");
    let cancelled = client.post(&cancel, &json!({})).await;
    assert_eq!(cancelled.status, 204, "{}", cancelled.text());
    gate.open();
    let events = client
        .follow(Method::GET, &format!("/swarms/{id}/events"), &Value::Null)
        .await;
    let events = events.rest().await;
    let last = events.last().expect("an event");
    assert!(last.contains("\"status\":\"cancelled\""), "{last}");
    let record = client.get(&format!("/swarms/{id}")).await.json();
    assert_eq!(
        (&record["status"], &record["content"], &record["error"]),
        (&json!("cancelled"), &json!("Done."), &Value::Null)
    );
    // A second cancellation still finds it.
    assert_eq!(client.post(&cancel, &json!({})).await.status, 204);
    assert_eq!(client.get(&format!("/swarms/{id}")).await.status, 200);
    is_settled(&gateway).await;
}
