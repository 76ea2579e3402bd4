//! The sums behind the reports: the daily sums, and entries that are not folded into them yet. Names of keys and
//! organisations.
//!
//! A month of many models and accounts takes longer than other requests may wait, so these queries have their own
//! timeout. All statements of a report read one snapshot, so that its figures agree.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor, Row};
use weir_ledger::usage::{ACTIVE_ACCOUNTS, platform_to_date};
use weir_ledger::{LedgerStore, UsageSums, plans};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::{Snapshot, SqlDialect};

use super::report::{ModelDaySums, Month};

/// Timeout of a report's queries.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// The same timeout for PostgreSQL, which would otherwise continue an abandoned statement.
const POSTGRES_TIMEOUT: &str = "SET LOCAL statement_timeout = '10s'";

/// A month's sums by day, model and provider.
pub(super) async fn sums(database: &Database, month: &Month) -> sqlx::Result<Vec<ModelDaySums>> {
    in_time(async {
        let mut snapshot = begin(database).await?;
        find_sums(&mut snapshot, month).await
    })
    .await
}

/// Returns the same sums, and the number of users with at least one request.
pub(super) async fn sums_and_users(
    database: &Database,
    month: &Month,
) -> sqlx::Result<(Vec<ModelDaySums>, i64)> {
    in_time(async {
        let mut snapshot = begin(database).await?;
        let sums = find_sums(&mut snapshot, month).await?;
        let users = count_users(&mut snapshot, month).await?;
        Ok((sums, users))
    })
    .await
}

/// Returns the names of keys, by their ids.
pub(super) async fn key_names(
    database: &Database,
    ids: &[&str],
) -> sqlx::Result<HashMap<String, String>> {
    names(database, "SELECT id, name FROM api_keys", ids).await
}

/// Returns the names of accounts that have one, by their ids: a display name, an e-mail address, or the issuer's name.
pub async fn account_names(
    database: &Database,
    ids: &[&str],
) -> sqlx::Result<HashMap<String, String>> {
    let all = "SELECT id, COALESCE(name, email, subject, id) AS name FROM users";
    let mut names = names(database, all, ids).await?;
    names.retain(|id, name| id != name);
    Ok(names)
}

async fn names(
    database: &Database,
    all: &str,
    ids: &[&str],
) -> sqlx::Result<HashMap<String, String>> {
    let among = database.dialect().texts(1);
    let rows = sqlx::query(AssertSqlSafe(format!("{all} WHERE id IN ({among})")))
        .bind(serde_json::json!(ids).to_string())
        .fetch_all(database.reader())
        .await?;
    let names = rows
        .iter()
        .map(|row| Ok((row.try_get("id")?, row.try_get("name")?)));
    names.collect()
}

async fn find_sums(snapshot: &mut Snapshot, month: &Month) -> sqlx::Result<Vec<ModelDaySums>> {
    let [first, last] = month.days();
    let rows = sqlx::query(AssertSqlSafe(format!(
        "SELECT day, model, provider, unit, {} FROM {} GROUP BY day, model, provider, unit",
        UsageSums::columns(),
        platform_to_date("day BETWEEN $1 AND $2")
    )))
    .bind(first.0)
    .bind(last.0)
    .fetch_all(&mut **snapshot)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(ModelDaySums {
                day: plans::day(Millis(row.try_get("day")?)),
                model: row.try_get("model")?,
                provider: row.try_get("provider")?,
                used: UsageSums::read(row.try_get("unit")?, |column| row.try_get(column))?,
            })
        })
        .collect()
}

async fn count_users(snapshot: &mut Snapshot, month: &Month) -> sqlx::Result<i64> {
    let [first, last] = month.days();
    sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM {ACTIVE_ACCOUNTS}"
    )))
    .bind(month.to_string())
    .bind(first.0)
    .bind(last.0 + DAY_MS)
    .fetch_one(&mut **snapshot)
    .await
}

async fn begin(database: &Database) -> sqlx::Result<Snapshot> {
    // A report has all requests that this node has answered.
    LedgerStore::new(database.clone())
        .fold_for_reader(None)
        .await;
    let mut snapshot = database.snapshot().await?;
    if database.dialect() == SqlDialect::Postgres {
        snapshot.execute(POSTGRES_TIMEOUT).await?;
    }
    Ok(snapshot)
}

pub(super) async fn in_time<T>(report: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    match tokio::time::timeout(TIMEOUT, report).await {
        Ok(outcome) => outcome,
        Err(_) => Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into())),
    }
}
