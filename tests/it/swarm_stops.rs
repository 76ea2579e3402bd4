//! Causes that stop a swarm, on both databases: the stop of its node, its user, its model, and other swarms of its account.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::gateway::{Builder, at};
use tests::stores::Postgres;
use tests::{Client, Gate, Gateway, Reply, Upstream};
use tokio::time::Instant;
use weir_storage::clock::ManualClock;

use crate::billing::is_settled;
use crate::swarm_tools::calls;
use crate::swarms::{STREAMED, agent, ended, run, swarm};

/// The time within which a cancelled swarm ends, two seconds, and much for a busy machine.
const CANCELLED_WITHIN: Duration = Duration::from_secs(15);

fn builder(upstream: &Upstream) -> Builder {
    Gateway::builder().swarms().upstream("scripted", upstream)
}

async fn on(builder: Builder) -> Gateway {
    let gateway = builder.start().await;
    gateway.set_plan("pro").await;
    gateway
}

async fn ask(client: &Client, swarm: &Value) -> String {
    let accepted = client.post("/swarms", swarm).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.json()["execution_id"].clone();
    id.as_str().expect("an id").to_owned()
}

/// The charges of a swarm's model calls, in micro-credits.
async fn charges(gateway: &Gateway, id: &str) -> Vec<i64> {
    let charges = sqlx::query_scalar(
        "SELECT CAST(-plan_delta - top_up_delta AS BIGINT) FROM entries WHERE source_id = $1 AND plan_delta + top_up_delta <> 0",
    );
    let charges = charges.bind(id);
    let charges = charges.fetch_all(gateway.folded_database().await.reader());
    charges.await.expect("an answer")
}

fn micro(credits: &Value) -> i64 {
    (credits.as_f64().expect("a number") * 1e6).round() as i64
}

/// A call that a node drops because it stops costs nothing, and another node repeats it. In earlier versions, it was charged, and
/// the swarm failed: "The model's answer was lost."
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_during_a_call_leaves_the_swarm_to_the_next_one() {
    for is_on_postgres in [false, true] {
        for is_watched in [false, true] {
            let postgres = match is_on_postgres {
                true => Some(Postgres::shared().create_database().await),
                false => None,
            };
            let upstream = Upstream::start().await;
            let gate = Gate::new();
            upstream
                .will(Reply::chat_stream(["Lost", " answer."]).gate_before_piece(1, &gate))
                .always(Reply::chat_stream(["Done."]));
            let on_database = |builder: Builder| {
                let settings = format!("{STREAMED}[limits]\nshutdown_ms = 100\n");
                let builder = builder.upstream("scripted", &upstream).tables(&settings);
                match &postgres {
                    Some(url) => builder.postgres(url),
                    None => builder,
                }
            };
            let gateway = on(on_database(Gateway::builder().swarms())).await;
            let mut agent = agent("a");
            agent["model"] = json!("streamed");
            let client = gateway.client();
            let id = ask(&client, &swarm(&[agent])).await;
            let events = format!("/swarms/{id}/events");
            let watching = match is_watched {
                true => Some(client.follow(Method::GET, &events, &Value::Null).await),
                false => None,
            };
            patiently(gate.reached()).await;
            let folder = gateway.stop().await;
            drop(watching);
            gate.open();

            let gateway = on_database(Gateway::builder().swarms().folder(folder));
            let gateway = gateway.start().await;
            let record = ended(&gateway.client(), &id).await;
            assert_eq!(
                (&record["status"], &record["content"]),
                (&json!("completed"), &json!("Done.")),
                "{record}"
            );
            assert_eq!(upstream.count(), 2);
            assert_eq!(
                charges(&gateway, &id).await,
                [micro(&record["total_credits"])]
            );
            is_settled(&gateway).await;
            gateway.stop().await;
        }
    }
}

/// Cancels a swarm; returns its record at its end, which comes soon.
async fn cancel(client: &Client, id: &str) -> Value {
    let began = Instant::now();
    let cancelled = client
        .post(&format!("/swarms/{id}/cancel"), &json!({}))
        .await;
    assert_eq!(cancelled.status, 204, "{}", cancelled.text());
    let record = ended(client, id).await;
    assert!(began.elapsed() < CANCELLED_WITHIN, "{:?}", began.elapsed());
    assert_eq!(record["status"], "cancelled", "{record}");
    record
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swarm_is_cancelled_at_once_whatever_it_does() {
    let postgres = Postgres::shared().create_database().await;
    for url in [None, Some(&postgres)] {
        let (upstream, receiver) = (Upstream::start().await, Upstream::start().await);
        let address = receiver.address();
        let builder = builder(&upstream).tables(&format!(
            "[swarms]\nconcurrent = 4\n[tools.http_post]\neffect = \"unsafe\"\nports = [{}]\nprivate = [\"{address}\"]\n",
            address.port()
        ));
        let gateway = on(match url {
            Some(url) => builder.postgres(url),
            None => builder,
        })
        .await;
        let client = gateway.client();

        // Its provider is silent. The input is paid for.
        let silent = Gate::new();
        upstream.will(Reply::chat("Late.").after_gate(&silent));
        let first = ask(&client, &swarm(&[agent("a")])).await;
        patiently(silent.reached()).await;
        // The account has one slot of the four.
        let queued = ask(&client, &swarm(&[agent("b")])).await;
        let record = cancel(&client, &queued).await;
        assert_eq!(record["total_credits"], json!(0), "{record}");
        cancel(&client, &first).await;
        silent.open();
        assert_eq!(upstream.count(), 1);

        // Its model is unavailable, and it waits for the next try.
        upstream.always(Reply::error(503, "Later."));
        let paused = ask(&client, &swarm(&[agent("c")])).await;
        let path = format!("/swarms/{paused}");
        let current = patiently(async {
            loop {
                let record = client.get(&path).await.json();
                if record["current"]["tries"].as_i64() >= Some(3) {
                    return record["current"].clone();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        assert_eq!(
            (&current["waiting_for"], &current["agent"]),
            (&json!("model"), &json!("c"))
        );
        let record = cancel(&client, &paused).await;
        assert_eq!(record.get("current"), None);
        let asked = upstream.count();

        // Its tool works.
        let tool = Gate::new();
        receiver.will(Reply::new(200).body("Ordered.").after_gate(&tool));
        let url = format!("http://{address}/orders");
        upstream.always(calls("http_post", &json!({ "url": url, "body": "1" })));
        let mut buyer = agent("buyer");
        buyer["tools"] = json!(["http_post"]);
        let calling = ask(&client, &swarm(&[buyer])).await;
        patiently(tool.reached()).await;
        let record = cancel(&client, &calling).await;
        tool.open();
        assert_eq!(
            record["agents"][0]["tool_calls"].as_array().map(Vec::len),
            Some(1),
            "{record}"
        );
        assert_eq!(upstream.count(), asked + 1, "nothing follows");
        is_settled(&gateway).await;
        for id in [&first, &paused, &calling] {
            let record = patiently(async {
                loop {
                    let record = client.get(&format!("/swarms/{id}")).await.json();
                    let charged: i64 = charges(&gateway, id).await.iter().sum();
                    if micro(&record["total_credits"]) == charged {
                        return record;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            })
            .await;
            assert_eq!(record["status"], "cancelled");
        }
        gateway.stop().await;
    }
}

/// In earlier versions, one reset connection ended a swarm.
#[tokio::test]
async fn a_call_that_fails_is_tried_again_as_often_as_it_makes_sense() {
    let upstream = Upstream::start().await;
    for _ in 0..2 {
        upstream.will(Reply::reset());
    }
    upstream.will(Reply::chat("Here."));
    let clock = ManualClock::at(at("2026-03-01T00:00:00Z"));
    let gateway = on(builder(&upstream).clock(&clock)).await;
    let client = gateway.client();
    let record = run(&client, &swarm(&[agent("a")])).await;
    assert_eq!(
        (&record["status"], &record["content"]),
        (&json!("completed"), &json!("Here."))
    );

    // A provider that stays away: six tries, with growing pauses, in which the swarm has no executor.
    upstream.always(Reply::error(500, "Broken."));
    let before = upstream.count();
    let id = ask(&client, &swarm(&[agent("b")])).await;
    let path = format!("/swarms/{id}");
    let record = patiently(async {
        loop {
            let record = client.get(&path).await.json();
            match record["status"].as_str() {
                Some("queued" | "running") => clock.advance(Duration::from_secs(2)),
                _ => return record,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(record["status"], "failed", "{record}");
    // While its circuit breaker is open, the provider has no request.
    let asked = upstream.count() - before;
    assert!((2..=12).contains(&asked), "{asked}");
    let events = client
        .follow(Method::GET, &format!("{path}/events"), &Value::Null)
        .await;
    let events = events.rest().await;
    let waits: Vec<_> = events
        .iter()
        .filter(|event| event.contains("agent_waiting"))
        .collect();
    assert!(waits.len() >= 3, "{events:?}");
    let last = waits.last().expect("an event");
    assert!(last.contains("\"tries\":5,"), "{last}");
    let last = events.last().expect("an event");
    assert!(!last.contains("waiting_for"), "{last}");
    is_settled(&gateway).await;
}
