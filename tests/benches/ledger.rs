//! The throughput of the ledger: pairs of an opened hold and its settlement, each acknowledged when durable.
//!
//! `cargo bench -p tests --bench ledger` prints the rate on each database, spread over many accounts and all on one,
//! and fails below the minimum. PostgreSQL is a separate server that waits for the disk. Next, it measures an
//! operation's duration at the minimum rate on disk, compared with the disk's own `fsync`. On SQLite on disk, it
//! measures a pair's processor time in the complete process at 32 concurrent requests and at one, and counts the
//! pages and rows that a pair writes to SQLite's log. Last, it measures the latency that a gateway adds to a plain
//! request to its upstream.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sqlx::Row;
use tests::client::Client;
use tests::gateway::{USER, chat};
use tests::ledger::create_users;
use tests::stores::{Durability, Postgres};
use tests::upstream::Reply;
use tests::{Gateway, Upstream, percentile};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use weir_ledger::verify::verify;
use weir_ledger::{
    AccountId, Credits, HoldId, LeaseSettings, Ledger, OpenHold, RequestSource, RequestUsage,
    Settle, UsageCounts,
};
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::secrets::SecretUrl;

/// Concurrent requests for the rates.
const CONCURRENT: usize = 512;

/// Concurrent requests for the cost of a request.
const CONNECTIONS: usize = 32;

/// Processor time of a pair at [`CONNECTIONS`].
const PROCESSOR_TIME: Duration = Duration::from_micros(35);

/// Limit of an operation's p99, in multiples of the p99 of the disk's own `fsync`.
const FSYNCS: u32 = 4;

/// Latency that a gateway adds to a plain request, without the two commits that it waits for.
const ADDED: Duration = Duration::from_millis(1);

/// Number of measured plain requests, one at a time.
const PLAIN: usize = 1_000;

const ACCOUNTS: usize = 200;

const SECONDS: u64 = 5;

/// Limit of the duration of requests with an idempotency key, as a multiple of the others'.
const KEYED: f64 = 1.5;

/// Number of pairs over which writes are counted.
const PAIRS_COUNTED: usize = 2_000;

/// Pairs per second, in memory and on disk.
const IN_MEMORY: f64 = 10_000.0;
const ON_DISK: f64 = 3_000.0;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sound = runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let file = format!("sqlite:{}", folder.path().join("weir.db").display());
        let postgres = Postgres::start(Durability::Real);
        let mut sound = true;
        for (name, url, wanted) in [
            (
                "SQLite in memory",
                SecretUrl::new("sqlite::memory:"),
                IN_MEMORY,
            ),
            ("SQLite on disk", SecretUrl::new(file), ON_DISK),
            (
                "PostgreSQL with fsync",
                postgres.create_database().await,
                ON_DISK,
            ),
        ] {
            let database = Database::open(&url).await.expect("a database");
            let ids: Vec<_> = (0..ACCOUNTS).map(|index| format!("usr_{index}")).collect();
            create_users(&database, ids.iter().map(|id| &**id), 0).await;
            let lease = LeaseSettings::default();
            let ledger = Ledger::start(database.clone(), Clock::System, lease);
            let ledger = ledger.await.expect("a ledger");
            for (spread, accounts) in [("200 accounts", ACCOUNTS), ("one account", 1)] {
                let measured = measure(&ledger, accounts, CONCURRENT).await;
                let rate = measured.rate;
                sound &= rate >= wanted;
                println!("{name}, {spread}: {rate:.0} open + settle pairs/s (at least {wanted})");
            }
            if wanted == ON_DISK {
                sound &= paced(name, &ledger, folder.path()).await;
            }
            if name == "SQLite on disk" {
                for connections in [CONNECTIONS, 1] {
                    let measured = measure(&ledger, ACCOUNTS, connections).await;
                    let Measured { per_pair, p99, .. } = measured;
                    sound &= connections == 1 || per_pair <= PROCESSOR_TIME;
                    println!(
                        "{name}, {connections} at once: {per_pair:.1?} of processor time a pair (limit \
                         {PROCESSOR_TIME:.0?} at {CONNECTIONS}), p99 of an opening {p99:.2?}, fsync {:.2?}",
                        percentile(&mut fsyncs(folder.path()), 50)
                    );
                    let (pages, rows) = written(&database, &ledger, connections).await;
                    println!(
                        "{name}, {connections} at once: a pair writes {pages:.2} pages and {rows:.2} rows, what is \
                         folded behind it included"
                    );
                }
            }
            ledger.stop().await;
            let violations = verify(&database, Millis::now()).await.expect("an answer");
            if !violations.is_empty() {
                println!("{name}: {violations:?}");
                sound = false;
            }
            database.close().await;
        }
        sound & keyed().await & plain_requests().await
    });
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// On SQLite on disk. The compared requests alternate.
async fn plain_requests() -> bool {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("Hello"));
    let limits = "[rate_limits]\nfree = 1000000000\naddress = 1000000000\n";
    let gateway = Gateway::builder().tables(limits);
    let gateway = gateway.upstream("scripted", &upstream).start().await;
    let (client, direct) = (gateway.client(), Client::new(upstream.address()));
    let body = chat("scripted", "Hello");
    let account = AccountId(USER.to_owned());
    let (mut through, mut beside, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PLAIN {
        for (client, took) in [(&client, &mut through), (&direct, &mut beside)] {
            let began = Instant::now();
            let answer = client.post("/v1/chat/completions", &body).await;
            took.push(began.elapsed());
            assert_eq!(answer.status, 200);
        }
        let began = Instant::now();
        pair(&gateway.app().ledger, &account).await;
        commits.push(began.elapsed());
    }
    let [through, beside, commits] =
        [through, beside, commits].map(|mut took| percentile(&mut took, 50));
    let added = through.saturating_sub(beside).saturating_sub(commits);
    println!(
        "a plain request: {through:.2?}, its upstream alone {beside:.2?}, two commits {commits:.2?}: \
         {added:.2?} are added (limit {ADDED:.0?})"
    );
    added <= ADDED
}

struct Measured {
    /// Pairs per second.
    rate: f64,
    /// Processor time of a pair.
    per_pair: Duration,
    /// The p99 of openings.
    p99: Duration,
}

async fn measure(ledger: &Ledger, accounts: usize, concurrent: usize) -> Measured {
    let spent = processor_time();
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let began = Instant::now();
    let mut requests = JoinSet::new();
    for request in 0..concurrent {
        let ledger = ledger.clone();
        let account = AccountId(format!("usr_{}", request % accounts));
        requests.spawn(async move {
            let mut openings = Vec::new();
            while Instant::now() < until {
                openings.push(pair(&ledger, &account).await);
            }
            openings
        });
    }
    let mut openings = requests.join_all().await.concat();
    Measured {
        rate: openings.len() as f64 / began.elapsed().as_secs_f64(),
        per_pair: (processor_time() - spent) / openings.len() as u32,
        p99: percentile(&mut openings, 99),
    }
}

/// Compares requests with an idempotency key with others, [`CONCURRENT`] at once, on SQLite on disk.
async fn keyed() -> bool {
    let limits = format!(
        "[rate_limits]\nfree = 1000000000\naddress = 1000000000\n[limits]\nconcurrent_requests = {all}\n\
         requests_per_account = {{ free = {all} }}\nrequests_per_upstream = {all}\nrequests_per_slot = {all}\n",
        all = CONCURRENT
    );
    let gateway = Gateway::builder().tables(&limits).start().await;
    let mut took = [Duration::ZERO; 2];
    // In turns, so that both have the same machine; the first two open the connections.
    for round in 0..12 {
        let began = Instant::now();
        let mut requests = JoinSet::new();
        for _ in 0..CONCURRENT {
            let client = gateway.client();
            let client = match round % 2 {
                0 => client,
                _ => client.with_header("idempotency-key", &weir_storage::ids::request_id()),
            };
            requests.spawn(async move { client.post("/chat", &chat("demo", "Hello")).await });
        }
        for answer in requests.join_all().await {
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        if round > 1 {
            took[round % 2] += began.elapsed();
        }
    }
    let [without, with] = took;
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    println!(
        "SQLite on disk, {CONCURRENT} requests at once with an idempotency key: {ratio:.2} x the time of those \
         without (limit {KEYED:.1} x), {:.1?} each time",
        with / 5
    );
    ratio <= KEYED
}

/// Returns the pages that a pair writes to SQLite's log, and the rows that it inserts, changes and deletes.
async fn written(database: &Database, ledger: &Ledger, concurrent: usize) -> (f64, f64) {
    let pairs = PAIRS_COUNTED / concurrent * concurrent;
    // The first pair fills the log, and then the log is not begun anew.
    pair(ledger, &AccountId("usr_0".to_owned())).await;
    let mut reader = database.snapshot().await.expect("a snapshot");
    let users = "SELECT CAST(COUNT(*) AS BIGINT) FROM users";
    let _: i64 = sqlx::query_scalar(users)
        .fetch_one(&mut *reader)
        .await
        .expect("a number");
    let so_far = async || {
        let log = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)");
        let log = log.fetch_one(database.writer()).await.expect("a log");
        let turn = database.write_turn().expect("it is SQLite");
        let rows = turn.native().await.expect("the turn").total_changes();
        (log.get::<i64, _>(1), rows)
    };
    let before = so_far().await;
    let mut requests = JoinSet::new();
    for request in 0..concurrent {
        let ledger = ledger.clone();
        let account = AccountId(format!("usr_{}", request % ACCOUNTS));
        requests.spawn(async move {
            for _ in 0..pairs / concurrent {
                pair(&ledger, &account).await;
            }
        });
    }
    requests.join_all().await;
    // The rest of the last pairs is folded.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = so_far().await;
    reader.rollback().await.expect("an end");
    let each = |count: f64| count / pairs as f64;
    (
        each((after.0 - before.0) as f64),
        each((after.1 - before.1) as f64),
    )
}

/// Runs [`ON_DISK`] pairs per second; no pair waits for another.
async fn paced(name: &str, ledger: &Ledger, folder: &Path) -> bool {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut pairs = JoinSet::new();
    let per_tick = ON_DISK as usize / 1_000;
    for number in 0..SECONDS as usize * ON_DISK as usize {
        if number.is_multiple_of(per_tick) {
            ticks.tick().await;
        }
        let ledger = ledger.clone();
        let account = AccountId(format!("usr_{}", number % ACCOUNTS));
        pairs.spawn(async move { pair(&ledger, &account).await });
    }
    let mut openings = pairs.join_all().await;
    let mut fsyncs = fsyncs(folder);
    let [opening, fsync] = [&mut openings, &mut fsyncs].map(|took| percentile(took, 50));
    let [slow_opening, slow_fsync] = [&mut openings, &mut fsyncs].map(|took| percentile(took, 99));
    println!(
        "{name}, {ON_DISK} pairs/s: an opening takes {opening:.2?}, p99 {slow_opening:.2?}; an fsync {fsync:.2?}, \
         p99 {slow_fsync:.2?} (limit {FSYNCS} x)"
    );
    slow_opening <= FSYNCS * slow_fsync
}

/// Returns the processor time of all threads of this process so far, in the kernel's ticks of 10 ms.
fn processor_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let after_name = statistics.rsplit(')').next().expect("a name in brackets");
    let ticks = after_name.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|ticks| ticks.parse::<u64>().expect("a number"));
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// Measures repeated syncs of a page to the disk.
fn fsyncs(folder: &Path) -> Vec<Duration> {
    let mut file = File::create(folder.join("fsync")).expect("a file");
    let fsync = |_| {
        let began = Instant::now();
        file.write_all(&[7; 4_096]).expect("it can be written");
        file.sync_data().expect("it can be kept");
        began.elapsed()
    };
    (0..1_000).map(fsync).collect()
}

/// Opens and settles; returns the duration of the opening.
async fn pair(ledger: &Ledger, account: &AccountId) -> Duration {
    let began = Instant::now();
    let open = opening();
    let hold = open.hold.clone();
    let opened = ledger.open(account, open, deadline()).await;
    opened.expect("credits for all");
    let opening = began.elapsed();
    settle(ledger, account, hold).await;
    opening
}

/// Time limit of a ledger operation.
fn deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(10)
}

fn opening() -> OpenHold {
    OpenHold {
        hold: HoldId(weir_storage::ids::hold_id()),
        amount: Credits::from_micro(100),
        request_id: weir_storage::ids::request_id(),
        parent: None,
        source: RequestSource::ApiKey,
        source_id: Some("4a1f7c0e9b7d4d53a5f0c6a1d2e3f405".to_owned()),
        parts: Vec::new(),
        top_up_only: false,
        model: "gpt-4o-mini".to_owned(),
    }
}

async fn settle(ledger: &Ledger, account: &AccountId, hold: HoldId) {
    let usage = RequestUsage {
        provider: "openai".to_owned(),
        adapter_digest: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
            .to_owned(),
        counts: UsageCounts {
            tokens_input: 100,
            tokens_output: 20,
            provider_cost_nano_usd: 1,
            ..UsageCounts::default()
        },
        latency_ms: 900,
        ..RequestUsage::default()
    };
    let settle = Settle {
        end: None,
        hold,
        credits: Credits::from_micro(1),
        usage,
    };
    let settled = ledger.settle(account, settle, deadline()).await;
    settled.expect("a settlement");
}
