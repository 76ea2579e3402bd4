//! L3: a thousand concurrent requests on a balance for fifty.

use std::time::{Duration, Instant};

use tests::stores::{Durability, Postgres, Redis};
use tests::{Gate, Reply};
use tokio::sync::mpsc;
use weir_ledger::Credits;

use crate::load::{self, Heard};
use crate::money;
use crate::process::{Node, Providers, Stores, shown};

const REQUESTS: usize = 1_000;

const ADMITTED: usize = 50;

/// Cost of fifty requests. An organisation has no free credits.
const TOP_UP: &str = "757.4";

/// Timeouts of the stores: a thousand requests at once may keep a small machine busy for seconds, and the row counts money.
const STORES: &str = "[stores]\nacquire_ms = 10000\nstatement_ms = 10000\ncache_ms = 10000\n";

/// Time limit for the refusal of all requests except the admitted ones.
const PATIENCE: Duration = Duration::from_secs(25);

pub(crate) fn run() -> bool {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let postgres = Postgres::start(Durability::Real);
    let redis = Redis::start();
    let database = || Some(runtime.block_on(postgres.create_database()));
    let shared = Stores {
        postgres: database(),
        redis: Some(redis.url()),
    };
    let apart = Stores {
        postgres: database(),
        redis: None,
    };
    [
        race(
            &runtime,
            "two processes on PostgreSQL and Redis",
            2,
            &shared,
        ),
        race(&runtime, "two processes on PostgreSQL", 2, &apart),
        race(&runtime, "one process on SQLite", 1, &Stores::default()),
    ]
    .iter()
    .all(|sound| *sound)
}

fn race(runtime: &tokio::runtime::Runtime, name: &str, processes: usize, stores: &Stores) -> bool {
    let gate = Gate::new();
    // The responses use their complete holds.
    let (input, output) = (money::TOKENS_INPUT, money::TOKENS_OUTPUT);
    let plain = Reply::chat_with_usage("paid", input, output).after_gate(&gate);
    let stream =
        Reply::chat_stream_with_usage(["pa", "id"], input, output).gate_before_piece(1, &gate);
    let providers = runtime.block_on(Providers::start(plain, stream));
    let tables = format!("{STORES}{}", providers.tables());
    let mut nodes = vec![Node::new(stores, &tables)];
    let mut clients = vec![runtime.block_on(nodes[0].member_client(TOP_UP))];
    if processes == 2 {
        nodes.push(nodes[0].twin());
        clients.push(clients[0].at(nodes[1].address()));
    }
    nodes.iter_mut().for_each(Node::start);

    let (heard, refused_after) = runtime.block_on(async {
        let (sender, mut answers) = mpsc::channel(REQUESTS);
        let began = Instant::now();
        for number in 0..REQUESTS {
            let client = clients[number % processes].clone();
            let sender = sender.clone();
            let stream = number / 2 % 2 == 1;
            tokio::spawn(async move { sender.send(load::ask(&client, stream).await).await });
        }
        drop(sender);
        let mut heard = Vec::new();
        let decided = async {
            while heard.len() < REQUESTS - ADMITTED {
                heard.push(answers.recv().await.expect("some are left"));
            }
        };
        let decided = tokio::time::timeout(PATIENCE, decided).await;
        let refused_after = decided.ok().map(|()| began.elapsed());
        // Requests at the upstream by now belong to admitted requests.
        gate.open();
        while let Some(answer) = answers.recv().await {
            heard.push(answer);
        }
        (heard, refused_after)
    });

    let with = |status: u16, code: Option<&str>| {
        let is_it = |heard: &&Heard| heard.status == Some(status) && heard.code.as_deref() == code;
        heard.iter().filter(is_it).count()
    };
    let refused = with(429, Some("QUOTA_EXCEEDED"));
    let paid = heard
        .iter()
        .filter(|heard| heard.paid == Some(money::HOLD))
        .count();
    let otherwise = REQUESTS - refused - paid;
    let calls = providers.calls();
    let (totals, balance) = runtime.block_on(async {
        let books = nodes[0].books().await;
        (
            books.totals().await,
            books.balance(money::ORGANISATION).await,
        )
    });
    let sound = nodes[0].is_sound();
    println!(
        "L3: {name}: {REQUESTS} at once on a balance for {ADMITTED}: {paid} admitted and paid, {refused} refused \
         with QUOTA_EXCEEDED, {otherwise} otherwise, all decided in {}; {calls} upstream calls, \
         {balance} credits and {} open holds left, ledger sound: {sound}",
        shown(refused_after),
        totals.open
    );
    if otherwise > 0 {
        let odd = heard.iter().filter(|heard| {
            heard.paid != Some(money::HOLD) && heard.code.as_deref() != Some("QUOTA_EXCEEDED")
        });
        println!(
            "L3: otherwise, for instance: {:?}",
            odd.take(3).collect::<Vec<_>>()
        );
    }
    (paid, refused, calls) == (ADMITTED, REQUESTS - ADMITTED, ADMITTED)
        && refused_after.is_some()
        && (totals.open, totals.overrun, balance) == (0, 0, Credits::ZERO)
        && sound
}
