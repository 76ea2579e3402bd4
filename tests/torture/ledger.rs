//! L1 and L2: the ledger against an oracle, and its committer in a simulation.

use std::time::{Duration, Instant};

use tests::ledger::oracle;
use tests::ledger::simulation::{Happened, Plant, simulate};
use tests::stores::Postgres;
use weir_storage::Database;
use weir_storage::database::SqlDialect;
use weir_storage::secrets::SecretUrl;

/// Operations of L1, half of them on each database.
const OPERATIONS: usize = 1_000_000;

/// Operations of each history, which has a fresh ledger.
const OPERATIONS_PER_HISTORY: usize = 50_000;

const L1_LIMIT: Duration = Duration::from_secs(600);

const SEEDS: u64 = 20_000;

/// Maximum seeds until a planted defect is found.
const SEEDS_TO_FIND: u64 = 3_000;

/// L1: random histories on SQLite and PostgreSQL, in batches of 1 to 64, each outcome compared with the oracle's.
pub(crate) fn model() -> bool {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let began = Instant::now();
        let folder = tempfile::tempdir().expect("a folder");
        let (mut operations, mut refused, mut batches, mut divergences) = (0, 0, 0, 0);
        for history in 0..OPERATIONS / OPERATIONS_PER_HISTORY {
            let seed = history as u64 + 1;
            let url = if history % 2 == 0 {
                let file = folder.path().join(format!("{seed}.db"));
                SecretUrl::new(format!("sqlite:{}", file.display()))
            } else {
                Postgres::shared().create_database().await
            };
            let database = Database::open(&url).await.expect("a database");
            match oracle::compare(&database, seed, OPERATIONS_PER_HISTORY).await {
                Ok(report) => {
                    operations += report.operations;
                    refused += report.refused;
                    batches += report.batches;
                }
                Err(divergence) => {
                    println!("L1: on {:?}: {divergence}", database.dialect());
                    divergences += 1;
                }
            }
            database.close().await;
        }
        let took = began.elapsed();
        println!(
            "L1: {operations} operations ({refused} refused) in {batches} batches on SQLite and PostgreSQL, \
             {divergences} divergences, in {took:.0?} (limit {L1_LIMIT:.0?})"
        );
        divergences == 0 && operations >= OPERATIONS && took <= L1_LIMIT
    })
}

/// L2: this many seeds of the simulation, half of them for each database, and the seeds until a planted defect is found.
pub(crate) fn simulation() -> bool {
    let began = Instant::now();
    let mut sum = Happened::default();
    let mut violations = 0;
    for seed in 0..SEEDS {
        let dialect = match seed % 2 {
            0 => SqlDialect::Postgres,
            _ => SqlDialect::Sqlite,
        };
        match simulate(dialect, seed, Plant::Nothing) {
            Ok(happened) => {
                sum.commits += happened.commits;
                sum.failures += happened.failures;
                sum.crashes += happened.crashes;
                sum.requests += happened.requests;
                sum.expired += happened.expired;
                sum.from_blocks += happened.from_blocks;
                sum.called_back += happened.called_back;
                sum.logged += happened.logged;
                sum.refused_records += happened.refused_records;
                sum.swept_records += happened.swept_records;
                sum.noted += happened.noted;
                sum.ended_at_notes += happened.ended_at_notes;
                sum.commands += happened.commands;
            }
            Err(violation) => {
                violations += 1;
                println!("L2: on {dialect:?}: {violation}");
            }
        }
    }
    let found = Plant::ALL.map(|(dialect, plant)| {
        let mut seeds = 0..SEEDS_TO_FIND;
        seeds.find(|seed| simulate(dialect, *seed, plant).is_err())
    });
    println!(
        "L2: {SEEDS} seeds, {violations} violations ({sum:?}) in {:.0?}; the defects {:?} were found by seeds \
         {found:?} (limit {SEEDS_TO_FIND})",
        began.elapsed(),
        Plant::ALL
    );
    violations == 0 && found.iter().all(Option::is_some)
}
