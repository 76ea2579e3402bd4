//! The duration of a swarm's claim beside a long history and a long queue.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its figures, and ends by panicking"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tests::percentile;
use tests::stores::{Durability, Postgres, patient_database};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::sealing::KeyRing;
use weir_storage::secrets::{SecretKey, SecretUrl};
use weir_swarms::swarm::store::SwarmStore;

const USERS: usize = 30;

/// Finished swarms.
const PAST: usize = 100_000;

/// Waiting swarms.
const WAITING: usize = 3_000;

/// Measured claims.
const CLAIMS: usize = 500;

/// Limit of a claim's median.
const LIMIT: Duration = Duration::from_millis(2);

/// Bytes of a request: SQLite reads past them to each later column.
const REQUEST_BYTES: usize = 4 << 10;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sound = runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.db");
        let sqlite = SecretUrl::new(format!("sqlite:{}", file.display()));
        let postgres = Postgres::start(Durability::Real);
        let on_sqlite = measure("SQLite on disk", &sqlite).await;
        let url = postgres.create_database().await;
        let on_postgres = measure("PostgreSQL with fsync", &url).await;
        on_sqlite && on_postgres
    });
    match sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

async fn measure(name: &str, url: &SecretUrl) -> bool {
    let database = patient_database(url).await;
    fill(&database).await;
    let store = SwarmStore::new(
        database.clone(),
        KeyRing::of([(1, SecretKey::new([1; 32]))]),
    );
    let mut took = Vec::new();
    for number in 0..CLAIMS {
        let now = Millis(10 + number as i64);
        let began = Instant::now();
        let claimed = store
            .claim("bench", u32::MAX, now, Millis(i64::MAX))
            .await
            .unwrap();
        took.push(began.elapsed());
        assert!(claimed.is_some());
    }
    let [p50, p99] = [50, 99].map(|hundredths| percentile(&mut took, hundredths));
    println!(
        "{name}, {PAST} swarms over and {WAITING} waiting, of {USERS} users: a claim takes {p50:.2?} (limit {LIMIT:.0?}), p99 {p99:.2?}"
    );
    database.close().await;
    p50 <= LIMIT
}

async fn fill(database: &Database) {
    let request = vec![0_u8; REQUEST_BYTES];
    let mut transaction = database.begin().await.unwrap();
    for user in 0..USERS {
        sqlx::query("INSERT INTO users (id, created_at) VALUES ($1, 1)")
            .bind(format!("user-{user}"))
            .execute(&mut transaction)
            .await
            .unwrap();
    }
    for number in 0..PAST + WAITING {
        let is_over = number < PAST;
        sqlx::query(
            "INSERT INTO swarm_runs (id, user_id, swarm_id, request, budget, status, fence, recoveries, lease_until, \
             last_event, agents_total, agents_completed, credits, tokens_in, tokens_out, created_at, deadline, ended_at) \
             VALUES ($1, $2, 's', $3, 1, $4, $5, 0, 0, 0, 1, 0, 0, 0, 0, 1, 9, $6)",
        )
        .bind(format!("{number:032}"))
        .bind(format!("user-{}", number % USERS))
        .bind(&request[..])
        .bind(if is_over { "completed" } else { "queued" })
        .bind(i64::from(is_over))
        .bind(is_over.then_some(1_i64))
        .execute(&mut transaction)
        .await
        .unwrap();
    }
    transaction.commit().await.unwrap();
}
