//! Swarms that stopped and go on, on both databases: work that was done stays done, and each call is charged once.

use http::Method;
use serde_json::{Value, json};
use tests::client::patiently;
use tests::stores::Postgres;
use tests::{Client, Gate, Gateway, Reply, Upstream};

use crate::billing::is_settled;
use crate::budgets::key;
use crate::swarms::{agent, ended, run, swarm};

/// An agent whose calls have a low price: the descriptions of tools cost tokens, too.
fn plain(name: &str) -> Value {
    let mut agent = agent(name);
    agent["tools"] = json!([]);
    agent
}

async fn resume(client: &Client, record: &Value, body: &Value) -> Value {
    let id = record["execution_id"].as_str().expect("an id");
    let resumed = client.post(&format!("/swarms/{id}/resume"), body).await;
    assert_eq!(resumed.status, 202, "{}", resumed.text());
    let resumed = resumed.json();
    assert_eq!(
        (&resumed["execution_id"], &resumed["error"]),
        (&record["execution_id"], &Value::Null)
    );
    patiently(async {
        loop {
            let record = client.get(&format!("/swarms/{id}")).await.json();
            if !matches!(record["status"].as_str(), Some("queued" | "running")) {
                return record;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// The charges of a swarm, and its cost in its record, in micro-credits.
async fn costs(gateway: &Gateway, record: &Value) -> (i64, i64) {
    let charged: i64 = sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(-plan_delta - top_up_delta), 0) AS BIGINT) FROM entries WHERE source_id = $1",
    )
    .bind(record["execution_id"].as_str().expect("an id"))
    .fetch_one(gateway.folded_database().await.reader())
    .await
    .expect("an answer");
    let told = record["total_credits"].as_f64().expect("a number");
    (charged, (told * 1e6).round() as i64)
}

async fn names_of_events(client: &Client, record: &Value) -> Vec<String> {
    let id = record["execution_id"].as_str().expect("an id");
    let events = format!("/swarms/{id}/events");
    let events = client.follow(Method::GET, &events, &Value::Null).await;
    let events = events.rest().await;
    let name = |event: &String| {
        let mut lines = event.lines();
        let name = lines.find_map(|line| line.strip_prefix("event: "));
        name.expect("a name").to_owned()
    };
    events.iter().map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swarm_goes_on_where_it_stopped() {
    let postgres = Postgres::shared().create_database().await;
    for url in [None, Some(&postgres)] {
        let upstream = Upstream::start().await;
        let builder = Gateway::builder().swarms().upstream("scripted", &upstream);
        let builder = builder.model("other", &["scripted"]);
        let gateway = match url {
            Some(url) => builder.postgres(url),
            None => builder,
        };
        let gateway = gateway.start().await;
        gateway.set_plan("pro").await;
        let client = gateway.client();

        // Its budget is spent. A higher one lets it go on behind what is done.
        upstream.always(Reply::chat_with_usage("All that I know.", 10, 400));
        let mut asked = swarm(&["a", "b"].map(plain));
        asked["max_total_credits"] = json!(1.5);
        let stopped = run(&client, &asked).await;
        assert_eq!(
            (&stopped["status"], &stopped["content"]),
            (&json!("partial"), &json!("All that I know."))
        );
        let id = stopped["execution_id"].as_str().expect("an id");
        let path = format!("/swarms/{id}/resume");
        for (body, status, code, param) in [
            (
                json!({ "max_total_credits": 1 }),
                402,
                "INSUFFICIENT_CREDITS",
                "max_total_credits",
            ),
            (
                json!({ "max_total_credits": 0 }),
                400,
                "INVALID_REQUEST",
                "max_total_credits",
            ),
            (json!({ "budget": 1 }), 400, "INVALID_REQUEST", "budget"),
        ] {
            let refused = client.post(&path, &body).await.error(status, code);
            assert_eq!(refused["param"], param, "{body}");
        }
        // A key that may not use its model may not spend on it, either.
        let (_, limited) = key(&gateway, json!({ "models": ["other"] })).await;
        let refused = limited.post(&path, &json!({})).await;
        refused.error(403, "MODEL_NOT_ALLOWED");
        let record = resume(&client, &stopped, &json!({ "max_total_credits": 9 })).await;
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(record["agents_completed"], 2);
        assert_eq!(upstream.count(), 2, "the first agent has not run again");
        let (charged, told) = costs(&gateway, &record).await;
        assert_eq!(charged, told);
        assert_eq!(
            names_of_events(&client, &record).await,
            [
                "agent_start",
                "agent_done",
                "agent_start",
                "agent_done",
                "swarm_done",
                "agent_done",
                "swarm_done"
            ]
        );
        let refused = client.post(&path, &json!({})).await;
        refused.error(409, "NOT_POSSIBLE");

        // Its model refused the call; the provider accepts it now.
        upstream.will(Reply::error(400, "No."));
        let stopped = run(&client, &swarm(&[plain("a")])).await;
        assert_eq!(stopped["status"], "failed", "{stopped}");
        let record = resume(&client, &stopped, &json!({})).await;
        assert_eq!(record["status"], "completed", "{record}");
        let (charged, told) = costs(&gateway, &record).await;
        assert_eq!(charged, told);

        // Its answer was cut. It was paid for, as the next one is.
        let cut = json!({ "role": "assistant", "content": "All of" });
        upstream.will(Reply::chat_message(&cut, "length"));
        let stopped = run(&client, &swarm(&[plain("a")])).await;
        assert_eq!(stopped["status"], "failed", "{stopped}");
        let record = resume(&client, &stopped, &json!({})).await;
        assert_eq!(
            (&record["status"], &record["content"]),
            (&json!("completed"), &json!("All that I know.")),
            "{record}"
        );
        let (charged, told) = costs(&gateway, &record).await;
        assert_eq!(charged, told);
        let before = stopped["total_credits"].as_f64().expect("a number");
        assert!(told > (before * 1e6).round() as i64 && before > 0.0);

        // Its user cancelled it in a call.
        let gate = Gate::new();
        upstream.will(Reply::chat("Late.").after_gate(&gate));
        let accepted = client.post("/swarms", &swarm(&[plain("a")])).await.json();
        let id = accepted["execution_id"].as_str().expect("an id");
        patiently(gate.reached()).await;
        let cancelled = client
            .post(&format!("/swarms/{id}/cancel"), &json!({}))
            .await;
        assert_eq!(cancelled.status, 204);
        let stopped = ended(&client, id).await;
        assert_eq!(stopped["status"], "cancelled", "{stopped}");
        gate.open();
        is_settled(&gateway).await;
        let record = patiently(async {
            loop {
                let resumed = client
                    .post(&format!("/swarms/{id}/resume"), &json!({}))
                    .await;
                if resumed.status == 202 {
                    return ended(&client, id).await;
                }
                // Its call is still being charged.
                resumed.error(409, "NOT_POSSIBLE");
            }
        })
        .await;
        assert_eq!(record["status"], "completed", "{record}");
        let (charged, told) = costs(&gateway, &record).await;
        assert_eq!(charged, told);
        is_settled(&gateway).await;
        gateway.stop().await;
    }
}
