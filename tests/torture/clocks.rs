//! L11: two nodes on one PostgreSQL, one of them with a wrong clock.

use std::time::Duration;

use tests::stores::{Durability, Postgres};
use tests::{Client, EventStream, Gate, Reply, chat};
use weir_storage::Database;
use weir_storage::secrets::SecretUrl;

use crate::money;
use crate::process::{Node, Providers, Stores, wait_until};

/// Open streams of each node during the other one's sweeps, and earlier requests with a key to each.
const HELD: usize = 20;

/// Short, so that holds that count as expired would lapse many times over.
const LEASE: &str = "[ledger]\nlease_ms = 3000\nrenew_ms = 500\n";

/// Time in which each node sweeps, begins periods and deletes old rows several times.
const LOOKED_FOR: Duration = Duration::from_secs(20);

const SETTLING: Duration = Duration::from_secs(20);

/// The state that a wrong clock must not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    expired: i64,
    plans: i64,
    lapses: i64,
    keys: i64,
}

pub(crate) fn run() -> bool {
    let runtime = crate::runtime(2);
    let postgres = Postgres::start(Durability::Real);
    ["+40s", "+40d", "-40s"]
        .map(|off| {
            let url = runtime.block_on(postgres.create_database());
            runtime.block_on(beside(off, url))
        })
        .iter()
        .all(|sound| *sound)
}

async fn beside(off: &str, url: SecretUrl) -> bool {
    let gate = Gate::new();
    let providers = Providers::start(
        Reply::chat_with_usage("paid", 10, 10),
        Reply::chat_stream_with_usage(["wait", "ing"], 10, 10).gate_before_piece(1, &gate),
    )
    .await;
    let stores = Stores {
        postgres: Some(url.clone()),
        redis: None,
    };
    let tables = format!("{}{LEASE}", providers.tables());
    let mut right = Node::new(&stores, &tables);
    let mut wrong = right.twin();
    let client = right.client("100000");
    let (_, planned) = right.run(&["user", "set-plan", "--user", money::USER, "--plan", "guru"]);
    assert!(planned, "the user is on a plan that was paid for");
    right.start();
    wrong.start_with_clock(off);
    let clients = [client.clone(), client.at(wrong.address())];

    let mut streams = Vec::new();
    for (node, client) in clients.iter().enumerate() {
        for number in 0..HELD {
            streams.push(hold(client).await);
            let key = format!("{node}-{number}");
            let client = client.clone().with_header("idempotency-key", &key);
            let answer = client.post("/chat", &chat("plain", money::TEXT)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    let database = Database::open(&url).await.expect("a database");
    let before = kept(&database).await;
    tokio::time::sleep(LOOKED_FOR).await;
    let after = kept(&database).await;

    let [ready, reason] = [&right, &wrong].map(|node| client.at(node.address()));
    let ready = ready.get("/health/ready").await.status == 200;
    let reason = reason.get("/health/ready").await;
    let reason = match reason.status.as_u16() {
        503 => reason.json()["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        _ => "nothing: it is ready".to_owned(),
    };
    gate.open();
    let mut whole = 0;
    for stream in streams {
        whole += usize::from(stream.is_whole().await);
    }
    let books = right.books().await;
    let closed = wait_until(SETTLING, async || books.totals().await.open == 0).await;
    database.close().await;
    let sound = right.is_sound();
    println!(
        "L11: a node {off} off: {} of the other's {} holds expired, {} of {} plans lapsed, {} of {} keys deleted; {whole} \
         streams whole; the right one ready: {ready}, the wrong one says: {reason:?}; ledger sound: {sound}",
        after.expired - before.expired,
        2 * HELD,
        before.plans - after.plans + after.lapses - before.lapses,
        before.plans,
        before.keys - after.keys,
        before.keys,
    );
    after == before
        && (before.expired, before.plans, before.keys) == (0, 1, 2 * HELD as i64)
        && whole == 2 * HELD
        && ready
        && reason.contains("clock")
        && closed.is_some()
        && sound
}

async fn hold(client: &Client) -> EventStream {
    let mut stream = client.stream("/chat", &chat("stream", money::TEXT)).await;
    assert_eq!(stream.status, 200, "the balance is enough for it");
    stream.next_chunk().await;
    stream
}

async fn kept(database: &Database) -> Kept {
    let count = async |what: &'static str| {
        let count = sqlx::query_scalar(what).fetch_one(database.reader()).await;
        count.expect("an answer")
    };
    Kept {
        expired: count("SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE kind = 'expiry'").await,
        plans: count("SELECT CAST(COUNT(*) AS BIGINT) FROM accounts WHERE plan = 'guru'").await,
        lapses: count("SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE kind = 'lapse'").await,
        keys: count("SELECT CAST(COUNT(*) AS BIGINT) FROM idempotency_keys").await,
    }
}
