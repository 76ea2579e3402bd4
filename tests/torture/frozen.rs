//! L12: a node that is frozen past its lease, many times, while another serves the same keys.

use std::time::{Duration, Instant};

use tests::stores::{Durability, Postgres};
use tests::{Client, Reply};
use weir_ledger::Credits;

use crate::money::{self, Books};
use crate::process::{Node, Providers, Stores, request, wait_until};

/// Freezes: alternately before the hold, before the request is sent, and in the middle of a stream.
const FREEZES: u32 = 100;

/// Enough for all requests.
const TOP_UP: &str = "10000000";

const LEASE: Duration = Duration::from_millis(800);
const SWEEP: Duration = Duration::from_millis(250);

/// Time limit of a round.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run() -> bool {
    let freezes = crate::rounds(FREEZES);
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Fast);
    let stores = Stores {
        postgres: Some(runtime.block_on(postgres.create_database())),
        redis: None,
    };
    let (input, output) = (money::TOKENS_INPUT, 4);
    let providers = runtime.block_on(Providers::start(
        Reply::chat_with_usage("paid", input, output).after(Duration::from_millis(20)),
        Reply::chat_stream_with_usage(["p", "a", "i", "d"], input, output)
            .pausing(Duration::from_millis(60)),
    ));
    let ledger = format!(
        "[ledger]\nlease_ms = {}\nrenew_ms = {}\n",
        LEASE.as_millis(),
        SWEEP.as_millis()
    );
    let mut frozen = Node::new(&stores, &format!("{ledger}{}", providers.tables()));
    let client = runtime.block_on(frozen.member_client(TOP_UP));
    let mut other = frozen.twin();
    frozen.start();
    other.start();
    let mut outcome = Outcome::default();
    runtime.block_on(async {
        let books = other.books().await;
        for number in 0..freezes {
            let round = Round {
                number,
                client: client.with_key_of(number),
                frozen: &frozen,
                other: &other,
                books: &books,
                providers: &providers,
            };
            round.run(&mut outcome).await;
        }
        let limit = LEASE + SWEEP + PATIENCE;
        outcome.closed = wait_until(limit, async || books.totals().await.open == 0)
            .await
            .is_some();
        outcome.charged = books.totals().await.charged;
    });
    let sound = other.is_sound();
    let panics = frozen.panics() + other.panics();
    outcome.report(freezes, sound, panics)
}

/// The client with a key of its own.
trait WithKey {
    fn with_key_of(&self, number: u32) -> Self;
}

impl WithKey for Client {
    fn with_key_of(&self, number: u32) -> Self {
        let key = format!("key-{number}");
        self.clone().with_header("idempotency-key", &key)
    }
}

struct Round<'a> {
    number: u32,
    client: Client,
    frozen: &'a Node,
    other: &'a Node,
    books: &'a Books,
    providers: &'a Providers,
}

/// The result of a node's client.
#[derive(Default)]
struct Told {
    request_id: Option<String>,
    /// The client got a complete response that is no replay.
    is_served: bool,
}

#[derive(Default)]
struct Outcome {
    /// Keys with two served requests, by their clients' or the upstream's count.
    served_twice: usize,
    /// Keys with two charged requests.
    charged_twice: usize,
    served: usize,
    /// Rounds whose freeze came before the hold, and after it.
    before_hold: usize,
    after_hold: usize,
    closed: bool,
    charged: i64,
    undecided: usize,
}

impl Round<'_> {
    async fn run(&self, outcome: &mut Outcome) {
        let streamed = self.number % 3 == 2;
        let calls = self.providers.calls();
        let holds = self.books.totals().await.holds;
        let first = tokio::spawn(ask(self.client.clone(), streamed));
        match self.number % 3 {
            // At some point before the hold; a little later each time.
            0 => tokio::time::sleep(Duration::from_micros(u64::from(self.number) * 150)).await,
            // While the hold is open.
            1 => {
                self.until(async || self.books.totals().await.holds > holds)
                    .await
            }
            // After some of the stream.
            _ => {
                self.until(async || self.providers.calls() > calls).await;
                tokio::time::sleep(Duration::from_millis(90)).await;
            }
        }
        self.frozen.signal("STOP");
        if self.books.totals().await.holds > holds {
            outcome.after_hold += 1;
        } else {
            outcome.before_hold += 1;
        }
        tokio::time::sleep(LEASE + 2 * SWEEP).await;
        // Until one of the two is served.
        let began = Instant::now();
        let second = loop {
            let client = self.client.at(self.other.address());
            let (told, code) = ask(client, streamed).await;
            let is_decided = told.is_served
                || matches!(code.as_deref(), None | Some("IDEMPOTENCY_ANSWER_NOT_KEPT"));
            if is_decided || began.elapsed() > PATIENCE {
                outcome.undecided += usize::from(!is_decided);
                break told;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        self.frozen.signal("CONT");
        let (first, _) = first.await.expect("no panic");
        self.until(async || self.books.totals().await.open == 0)
            .await;
        let served = usize::from(first.is_served) + usize::from(second.is_served);
        let charges = self.books.charges().await;
        let is_charged = |told: &&Told| {
            let charge = told.request_id.as_ref().and_then(|id| charges.get(id));
            charge.is_some_and(|charge| charge.credits > Credits::ZERO)
        };
        let charged = [&first, &second].into_iter().filter(is_charged).count();
        let asked = self.providers.calls() - calls;
        outcome.served += served;
        outcome.served_twice += usize::from(served > 1 || asked > 1);
        outcome.charged_twice += usize::from(charged > 1);
    }

    async fn until(&self, holds: impl AsyncFnMut() -> bool) {
        if wait_until(PATIENCE, holds).await.is_none() {
            println!("L12: round {} waits for too long", self.number);
        }
    }
}

/// Sends one request; returns the client's result, and the code of an error.
async fn ask(client: Client, streamed: bool) -> (Told, Option<String>) {
    let id = |headers: &http::HeaderMap| {
        let id = headers.get("x-request-id")?;
        Some(id.to_str().ok()?.to_owned())
    };
    let code = |json: &serde_json::Value| json["error"]["code"].as_str().map(str::to_owned);
    if streamed {
        let Some(stream) = client.try_stream("/chat", &request(true)).await else {
            return (Told::default(), Some("no answer".to_owned()));
        };
        let request_id = id(&stream.headers);
        if stream.status != 200 {
            let code = code(&stream.try_json().await);
            let is_served = false;
            return (
                Told {
                    request_id,
                    is_served,
                },
                code,
            );
        }
        let events = stream.try_rest().await;
        let is_served = events.last().is_some_and(|event| event == "data: [DONE]");
        return (
            Told {
                request_id,
                is_served,
            },
            None,
        );
    }
    let Some(answer) = client.try_post("/chat", &request(false)).await else {
        return (Told::default(), Some("no answer".to_owned()));
    };
    let told = Told {
        request_id: id(&answer.headers),
        is_served: answer.status == 200 && !answer.headers.contains_key("idempotency-replayed"),
    };
    let json = serde_json::from_slice(&answer.body).unwrap_or_default();
    (told, code(&json))
}

impl Outcome {
    fn report(&self, freezes: u32, sound: bool, panics: usize) -> bool {
        println!(
            "L12: {freezes} freezes past the lease, {} before the hold and {} after it: {} served in full, {} served \
             twice under one key, {} charged twice, {} charged in all, {} undecided; all holds ended: {}, ledger \
             sound: {sound}, {panics} panics",
            self.before_hold,
            self.after_hold,
            self.served,
            self.served_twice,
            self.charged_twice,
            self.charged,
            self.undecided,
            self.closed
        );
        let kinds_met = freezes < 3 || self.before_hold > 0 && self.after_hold > 0;
        (
            self.served_twice,
            self.charged_twice,
            self.undecided,
            panics,
        ) == (0, 0, 0, 0)
            && self.closed
            && sound
            && kinds_met
    }
}
