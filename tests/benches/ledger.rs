//! What the ledger can do: pairs of an opened hold and its settlement, each acknowledged when it is durable.
//!
//! `cargo bench -p tests --bench ledger` prints the rate on each database, spread over many accounts and all
//! on one, and fails where it falls short. PostgreSQL is a server of its own that waits for the disk.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tests::ledger::create_users;
use tests::stores::{Durability, Postgres};
use tokio::task::JoinSet;
use weir::billing::Credits;
use weir::billing::ledger::verify::verify;
use weir::billing::ledger::{
    AccountId, HoldId, LeaseSettings, Ledger, Open, Settle, Source, Usage,
};
use weir::clock::{Clock, Millis};
use weir::secrets::SecretUrl;
use weir::storage::Database;

/// Requests that are under way at once.
const CONCURRENT: usize = 512;

const ACCOUNTS: usize = 200;

const SECONDS: u64 = 5;

/// Pairs a second, in memory and on disk.
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
                let rate = measure(&ledger, accounts).await;
                sound &= rate >= wanted;
                println!("{name}, {spread}: {rate:.0} open + settle pairs/s (at least {wanted})");
            }
            ledger.stop().await;
            let violations = verify(&database, Millis::now()).await.expect("an answer");
            if !violations.is_empty() {
                println!("{name}: {violations:?}");
                sound = false;
            }
            database.close().await;
        }
        sound
    });
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Pairs a second.
async fn measure(ledger: &Ledger, accounts: usize) -> f64 {
    let pairs = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let began = Instant::now();
    let mut requests = JoinSet::new();
    for request in 0..CONCURRENT {
        let (ledger, pairs) = (ledger.clone(), pairs.clone());
        let account = AccountId(format!("usr_{}", request % accounts));
        requests.spawn(async move {
            while Instant::now() < until {
                pair(&ledger, &account).await;
                pairs.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    requests.join_all().await;
    pairs.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

async fn pair(ledger: &Ledger, account: &AccountId) {
    let hold = HoldId(weir::ids::hold_id());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let open = Open {
        hold: hold.clone(),
        amount: Credits(100),
        request_id: weir::ids::request_id(),
        boot_id: String::new(),
        parent: None,
        source: Source::ApiKey,
        source_id: Some("4a1f7c0e9b7d4d53a5f0c6a1d2e3f405".to_owned()),
        model: "gpt-4o-mini".to_owned(),
    };
    let opened = ledger.open(account, open, deadline).await;
    opened.expect("credits for all");
    let usage = Usage {
        provider: "openai".to_owned(),
        adapter_digest: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
            .to_owned(),
        tokens_input: 100,
        tokens_output: 20,
        provider_cost_nano_usd: 1,
        latency_ms: 900,
        ..Usage::default()
    };
    let credits = Credits(1);
    let settled = ledger.settle(
        account,
        Settle {
            hold,
            credits,
            usage,
        },
        deadline,
    );
    settled.await.expect("a settlement");
}
