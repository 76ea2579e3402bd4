//! Handovers of swarms from one executor to another during a model call: their cost and their result.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use weir_ledger::{AccountId, Credits, HoldId, OpenHold, RequestSource};
use weir_storage::ids;

use crate::client::patiently;
use crate::gateway::{Gateway, USER};
use crate::upstream::{Gate, Reply, Upstream};

/// Budget of each swarm: enough for two complete calls of its three agents' model, not for three.
const BUDGET: Credits = Credits::whole(3);

/// Maximum output tokens of each call.
const OUTPUT_LIMIT: u32 = 400;

const LEDGER_TIMEOUT: Duration = Duration::from_secs(10);

/// The departure of a swarm's executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Departure {
    /// None: the executor stays.
    Stays,
    /// The executor stops and releases its lease.
    Stops,
    /// The executor is killed: its lease expires.
    IsKilled,
}

/// The outcome of a swarm.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    /// The ledger's charges, in micro-credits.
    charged: i64,
    /// The cost in the swarm's record, in micro-credits.
    told: i64,
    status: String,
    agents_completed: i64,
}

/// Hands over this many swarms, on a gateway whose model is `scripted` and whose user's plan has swarms. Returns the
/// faults. Each swarm must stay within its budget, and have the same outcome as without a handover, even if its user
/// has no more than that budget.
pub async fn hand_over(gateway: &Gateway, upstream: &Upstream, rounds: u32) -> Vec<String> {
    gateway.executor().stop().await;
    let mut faults = Vec::new();
    let rich = run(gateway, upstream, Departure::Stays, 0, false).await;
    let expected = [
        rich,
        run(gateway, upstream, Departure::Stays, 0, true).await,
    ];
    for round in 0..rounds {
        let departure = match round % 2 {
            0 => Departure::Stops,
            _ => Departure::IsKilled,
        };
        let (call, is_scarce) = (round as usize / 2 % 2, round / 4 % 2 == 1);
        let result = run(gateway, upstream, departure, call, is_scarce).await;
        let expected = &expected[usize::from(is_scarce)];
        if result != *expected || result.charged > BUDGET.micro() || result.charged != result.told {
            faults.push(format!(
                "round {round}: the executor {departure:?} in call {call}, scarce {is_scarce}: {result:?} instead of {expected:?}"
            ));
        }
    }
    faults
}

/// Runs a swarm whose model uses all paid tokens, and whose executor departs in this call.
async fn run(
    gateway: &Gateway,
    upstream: &Upstream,
    departure: Departure,
    call: usize,
    is_scarce: bool,
) -> Outcome {
    let ballast = match is_scarce {
        true => Some(hold_all_but_the_budget(gateway).await),
        false => None,
    };
    let gate = Gate::new();
    // The reported usage exceeds the limit: each call costs its reservation.
    let whole = || Reply::chat_with_usage("All of it.", 100_000, 100_000);
    for _ in 0..call {
        upstream.will(whole());
    }
    upstream.will(whole().after_gate(&gate));
    upstream.always(whole());
    let mut executor = gateway.another_executor();
    let client = gateway.client();
    let accepted = client.post("/swarms", &swarm()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let accepted = accepted.json();
    let id = accepted["execution_id"].as_str().expect("an id");
    patiently(gate.reached()).await;
    if departure != Departure::Stays {
        let joined = joined(gateway).await;
        match departure {
            Departure::IsKilled => executor.kill(),
            _ => executor.stop().await,
        }
        executor = gateway.another_executor();
        // The successor joins the call under way.
        patiently(async {
            while self::joined(gateway).await <= joined {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    gate.open();
    let events = format!("/swarms/{id}/events");
    let events = client.follow(Method::GET, &events, &Value::Null).await;
    events.try_rest().await;
    executor.stop().await;
    if let Some(ballast) = ballast {
        let account = AccountId(USER.to_owned());
        let deadline = Instant::now() + LEDGER_TIMEOUT;
        let released = gateway
            .app()
            .ledger
            .release(&account, ballast, None, deadline);
        released.await.expect("it is open");
    }
    let record = client.get(&format!("/swarms/{id}")).await.json();
    let charged: i64 = sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(-plan_delta - top_up_delta), 0) AS BIGINT) FROM entries WHERE source_id = $1",
    )
    .bind(id)
    .fetch_one(gateway.folded_database().await.reader())
    .await
    .expect("the database answers");
    let told = record["total_credits"].as_f64().expect("a number");
    Outcome {
        charged,
        told: (told * 1e6).round() as i64,
        status: record["status"].to_string(),
        agents_completed: record["agents_completed"].as_i64().expect("a number"),
    }
}

fn swarm() -> Value {
    let agents = ["a", "b", "c"].map(|name| {
        json!({ "name": name, "system_prompt": "", "task_prompt": "x", "model": "scripted", "tools": [],
            "max_tokens": OUTPUT_LIMIT })
    });
    json!({ "swarm_id": "handed over", "agents": agents, "max_total_credits": BUDGET })
}

/// Reserves the user's credits beyond the budget of one swarm.
async fn hold_all_but_the_budget(gateway: &Gateway) -> HoldId {
    let ledger = &gateway.app().ledger;
    let account = AccountId(USER.to_owned());
    let found = ledger.find_account(&account).await.expect("an answer");
    let available = found.expect("an account").available().total();
    let hold = HoldId(ids::hold_id());
    let open = OpenHold {
        hold: hold.clone(),
        amount: available.saturating_sub(BUDGET),
        request_id: "ballast".to_owned(),
        parent: None,
        source: RequestSource::Web,
        source_id: None,
        parts: Vec::new(),
        top_up_only: false,
        model: "ballast".to_owned(),
    };
    let deadline = Instant::now() + LEDGER_TIMEOUT;
    let opened = ledger.open(&account, open, deadline).await;
    opened.expect("there are credits");
    hold
}

/// Counts requests that joined a call under way.
async fn joined(gateway: &Gateway) -> u64 {
    const SERIES: &str =
        "weir_requests_total{method=\"POST\",route=\"/internal/agent/code\",status=\"409\"} ";
    let metrics = gateway.stranger().get("/metrics").await.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(SERIES));
    let value = line.and_then(|line| line.split(' ').next());
    value.map_or(0, |value| value.parse().expect("a number"))
}
