//! R5: budgets, plans and refunds change while a node with credits of the account is stopped.
//!
//! Each round stops the first node for a while, after it has served the account, and changes the account at the second one.
//! The second node serves on, and requests wait at the first one. Once the change is done, the account may spend what it leaves,
//! and not a micro-credit more, on whichever node: every request costs its complete hold. A change that cannot be exact
//! yet may answer 503 with `Retry-After`, and is then tried again. `WEIR_TORTURE_ROUNDS` sets the seconds of the longest stop.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};
use tests::payments::{Payer, WEBHOOK};
use tests::processor::{Processor, WEBHOOK_SECRET};
use tests::raw::AdminSocket;
use tests::stores::{Durability, Postgres};
use tests::{Client, Reply, Upstream, chat};
use weir_ledger::Credits;
use weir_payments::signature::sign;
use weir_storage::secrets::Secret;

use super::load::{Load, Pace};
use super::{Cluster, shown, top_up};
use crate::money::{self, Books};
use crate::process::{binaries, provider};

/// Seconds for which the node is stopped. The last exceeds a lease.
const STOPS: [u32; 2] = [1, 5];
const LONGEST_STOP: u32 = 60;

/// Times that each node serves [`WAITING`] requests at once before the first one is stopped.
const BEFORE: usize = 2;

/// Requests that wait at the stopped node, on connections that it knows.
const WAITING: usize = 48;

/// Connections that spend the rest.
const CONNECTIONS: usize = 8;

/// Time limit of a change, with its retries: the longest stop, and what weir may take on top.
const PATIENCE: Duration = Duration::from_secs(150);

const PAUSE: Duration = Duration::from_millis(100);

/// Requests that the budget allows, and a bit more credits than they cost.
const BUDGETED: i64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// A budget of ten requests.
    Budget,
    /// From `guru` to `free`: 500 credits.
    Plan,
    /// The refund of all bought credits, after the credits of the plan.
    Refund,
}

const CHANGES: [Change; 3] = [Change::Budget, Change::Plan, Change::Refund];

/// Two nodes, and an operator of the one that is never stopped.
struct Stage {
    cluster: Cluster,
    operator: AdminSocket,
}

/// The result of a round.
#[derive(Default)]
struct Outcome {
    /// The time that the change took, with its retries; `None` if it was not done.
    took: Option<Duration>,
    /// 503 responses to the change, and those without `Retry-After` or with a change.
    postponed: usize,
    faults: Vec<String>,
    /// Served requests that began after the change.
    served: usize,
    overrun: i64,
}

pub(crate) fn run() -> bool {
    let stops = STOPS.into_iter().chain([crate::rounds(LONGEST_STOP)]);
    let postgres = Postgres::start(Durability::Real);
    let mut passed = true;
    for program in binaries() {
        passed &= crate::runtime(2).block_on(change_all(&program, &postgres, stops.clone()));
    }
    passed
}

async fn change_all(
    program: &Path,
    postgres: &Postgres,
    stops: impl Iterator<Item = u32> + Clone,
) -> bool {
    let upstream = Upstream::start().await;
    // The responses use their complete holds.
    let (input, output) = (money::TOKENS_INPUT, money::TOKENS_OUTPUT);
    upstream.always(Reply::chat_with_usage("paid", input, output));
    let processor = Processor::start().await;
    let tables = format!("{}{}", processor.settings(), provider("plain", &upstream));
    let cluster = Cluster::start(program, 2, postgres, None, &tables).await;
    let stage = Stage {
        operator: cluster.operator(1),
        cluster,
    };
    let mut passed = true;
    for change in CHANGES {
        for seconds in stops.clone() {
            let user = format!("usr_{change:?}_{seconds}").to_lowercase();
            let outcome = stage.round(change, seconds, &user).await;
            let left = change.leaves();
            let spent = Credits::from_micro(money::HOLD.micro() * outcome.served as i64);
            let is_kept = outcome.took.is_some()
                && spent <= left
                && outcome.faults.is_empty()
                && outcome.overrun == 0;
            println!(
                "R5 {}: {change:?}, a node is silent for {seconds} s: changed after {:.1?} and {} × 503; then {spent} credits are \
                 spent on {} requests (at most {left}), {} overrun, faults: {:?}{}",
                shown(program),
                outcome.took.unwrap_or(Duration::MAX),
                outcome.postponed,
                outcome.served,
                outcome.overrun,
                outcome.faults,
                if is_kept { "" } else { ": MISSED" },
            );
            passed &= is_kept;
        }
    }
    let sound = stage.cluster.nodes[1].is_sound();
    println!("R5 {}: ledger sound: {sound}", shown(program));
    passed & sound
}

impl Change {
    /// The credits that the account may spend after it.
    fn leaves(self) -> Credits {
        match self {
            Self::Budget => Credits::from_micro(money::HOLD.micro() * BUDGETED + 1_000_000),
            Self::Plan => super::FREE,
            Self::Refund => Credits::ZERO,
        }
    }
}

impl Stage {
    async fn round(&self, change: Change, seconds: u32, user: &str) -> Outcome {
        let key = self.operator.create_key(user).await;
        let payer = Payer(user.to_owned());
        self.prepare(change, &payer).await;
        let clients: Vec<_> = self
            .cluster
            .addresses()
            .into_iter()
            .map(|node| Client::new(node).with_key(&key))
            .collect();
        for client in clients.iter().rev().cycle().take(BEFORE * clients.len()) {
            let requests = (0..WAITING).map(async |_| client.post("/chat", &request()).await);
            for served in join_all(requests).await {
                assert_eq!(served.status, 200, "{}", served.text());
            }
        }
        let stopped = &self.cluster.nodes[0];
        stopped.signal("STOP");
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| {
                let client = clients[0].clone();
                tokio::spawn(async move {
                    let answer = client.try_post("/chat", &request()).await;
                    answer.is_some_and(|answer| answer.status == 200)
                })
            })
            .collect();
        let mut outcome = Outcome::default();
        let (began, is_done) = (Instant::now(), Cell::new(false));
        let silence = Duration::from_secs(u64::from(seconds));
        let changing = async {
            let done =
                tokio::time::timeout(PATIENCE, self.change(change, &payer, &mut outcome)).await;
            is_done.set(true);
            outcome.took = done.ok().map(|()| began.elapsed());
        };
        let silent = async {
            tokio::time::sleep(silence).await;
            stopped.signal("CONT");
        };
        // One request at a time, so that at most one of them began before the change and ends after it.
        let serving_on = async {
            while !is_done.get() {
                clients[1].try_post("/chat", &request()).await;
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::join!(changing, silent, serving_on);
        let mut waited = 0;
        for request in waiting {
            waited += usize::from(request.await.expect("no panic"));
        }
        // The stopped node had read none of them.
        if outcome.took.is_some_and(|took| took < silence) {
            outcome.served += waited;
        }
        outcome.served += self.spend_the_rest(&key).await;
        let books = Books::open(&self.cluster.direct).await;
        outcome.overrun = books.totals().await.overrun;
        books.close().await;
        let account = self.account(user).await;
        if change == Change::Budget {
            let budget = &account["budgets"][0];
            let figure = |name: &str| budget[name].as_f64().unwrap_or(f64::MAX);
            if figure("used") + figure("held") > figure("credits") {
                outcome
                    .faults
                    .push(format!("the budget is exceeded: {budget}"));
            }
        }
        outcome
    }

    /// Gives a new user credits that the change concerns.
    async fn prepare(&self, change: Change, payer: &Payer) {
        let user = &payer.0;
        match change {
            Change::Budget => top_up(&self.operator, user, Credits::whole(1_000_000)).await,
            Change::Plan => {
                let path = format!("/admin/users/{user}/plan");
                let set = self.operator.post(&path, &json!({ "plan": "guru" })).await;
                assert_eq!(set.status, 200, "{}", set.json);
            }
            Change::Refund => {
                let now = Timestamp::now().to_string();
                self.tell(&payer.customer_created(&now)).await;
                self.tell(&payer.credits_bought("bought", &now, "payment", "small"))
                    .await;
                let is_bought =
                    async || self.account(user).await["topup_balance"].as_f64() > Some(0.0);
                let bought = crate::process::wait_until(PATIENCE, is_bought).await;
                assert!(bought.is_some(), "the credits are there");
            }
        }
    }

    /// Makes the change, and again while weir answers 503.
    async fn change(&self, change: Change, payer: &Payer, outcome: &mut Outcome) {
        let user = &payer.0;
        let (path, body) = match change {
            Change::Budget => {
                let budget = json!({ "credits": change.leaves(), "window": "total" });
                ("budgets", json!({ "budgets": [budget] }))
            }
            Change::Plan => ("plan", json!({ "plan": "free" })),
            Change::Refund => {
                let now = Timestamp::now().to_string();
                self.tell(&payer.refunded("refunded", &now, "payment", 500))
                    .await;
                // The webhook waits in a queue until it can be applied exactly.
                while self.account(user).await["topup_balance"].as_f64() > Some(0.0) {
                    tokio::time::sleep(PAUSE).await;
                }
                return;
            }
        };
        let path = format!("/admin/users/{user}/{path}");
        loop {
            let before = self.user(user).await;
            let answer = self.operator.post(&path, &body).await;
            match answer.status {
                200 => return,
                503 => {
                    outcome.postponed += 1;
                    if !answer.head.contains("\r\nretry-after: ") {
                        outcome
                            .faults
                            .push(format!("no Retry-After: {}", answer.head));
                    }
                    let after = self.user(user).await;
                    if before["plan"] != after["plan"] {
                        outcome
                            .faults
                            .push("the plan has changed behind a 503".to_owned());
                    }
                }
                _ => {
                    outcome
                        .faults
                        .push(format!("{}: {}", answer.status, answer.json));
                    return;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Spends on both nodes until each refuses, and returns the number of served requests.
    async fn spend_the_rest(&self, key: &str) -> usize {
        let (began, keys) = (Instant::now(), [key.to_owned()]);
        let load = Load::new(self.cluster.addresses(), &keys, "plain", money::TEXT);
        let goes_on = |last| last != Some(429) && began.elapsed() < PATIENCE;
        let answers = load
            .send(CONNECTIONS, &Pace::Closed, &Cell::new(true), goes_on)
            .await;
        answers.served.len()
    }

    async fn user(&self, user: &str) -> Value {
        self.operator
            .get(&format!("/admin/users/{user}"))
            .await
            .json
    }

    async fn account(&self, user: &str) -> Value {
        self.user(user).await["account"].take()
    }

    /// Sends an event of the processor to the second node.
    async fn tell(&self, event: &Value) {
        let body = event.to_string();
        let secret = Secret::new(WEBHOOK_SECRET.to_owned());
        let signature = sign(&secret, Timestamp::now().as_second(), body.as_bytes());
        let client = Client::new(self.cluster.nodes[1].address())
            .with_header("payment-signature", &signature);
        let told = client.post(WEBHOOK, event).await;
        assert_eq!(told.status, 200, "{}", told.text());
    }
}

fn request() -> Value {
    chat("plain", money::TEXT)
}
