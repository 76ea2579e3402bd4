//! The archive: old entries move from the database into files, one for each month, and an opening entry replaces them.
//!
//! An account's *opening* has the sums of all its archived entries, the number and the position of the last one, and
//! their count. A balance is therefore still the sum of the entries. Entries that detect repeats stay: those of
//! operations with an id, and those of remembered holds. A statement lists them below the opening.
//!
//! **Invariant:** an entry is in its file, on disk, before it leaves the database. After a crash it may be in both, or
//! twice in the file, with the same number.
//! **Invariant:** only verified entries are archived.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Map, Value};
use sqlx::any::AnyRow;
use sqlx::{Column as _, Row as _};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::{SqlDialect, Transaction};
use weir_storage::ids::Hex;

use crate::budgets::{BudgetPart, Budgets};
use crate::plans::day;

/// Entries per transaction: other writers need their turn.
const MOVED: i64 = 500;

/// Days of entries that stay: a late settlement may follow a hold's end, and users ask about their last month.
pub const KEPT_DAYS: i64 = 30;

/// The reason why archiving stopped.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The month is too recent.
    #[error("entries of the last {KEPT_DAYS} days stay; name an earlier month")]
    TooEarly,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The files cannot be written.
    #[error("cannot write the archive: {0}")]
    File(#[from] io::Error),
    /// Another process changed the entries, so nothing was moved.
    #[error("the entries have changed meanwhile; run it again")]
    Changed,
}

/// The amounts that archived entries have added to budgets without a window.
#[derive(Debug)]
struct Totals {
    /// The number of the last entry that was archived before.
    archived: i64,
    /// Spending by part, or without a part for the account, and by the number of entries before the budget.
    spent: BTreeMap<(Option<BudgetPart>, i64), i64>,
}

/// An account's new opening.
#[derive(Debug, Default)]
struct ArchiveOpening {
    number: i64,
    sequence: i64,
    at: i64,
    period_start: i64,
    /// Number of entries in the opening.
    entries: i64,
    plan_delta: i64,
    top_up_delta: i64,
    overrun: i64,
    owed: i64,
}

/// Moves entries before the first moment of a month to files in a folder, as lines of JSON; returns their number.
/// Unverified entries stay. `progress` receives the number of entries done.
pub async fn archive(
    database: &Database,
    folder: &Path,
    before: Millis,
    now: Millis,
    mut progress: impl FnMut(i64),
) -> Result<i64, ArchiveError> {
    if before > now.plus_days(-KEPT_DAYS) {
        return Err(ArchiveError::TooEarly);
    }
    let last = allow(database, before).await?;
    let (mut moved, mut after) = (0, 0);
    loop {
        let rows = next(database, after, last).await?;
        let Some(end) = rows.last() else {
            return Ok(moved);
        };
        after = end.try_get("number")?;
        write(folder, &rows)?;
        replace(database, &rows, last).await?;
        moved += rows.len() as i64;
        progress(moved);
    }
}

/// Permits the deletion of verified entries that are older than all entries from this moment on; returns the number of
/// the last one.
async fn allow(database: &Database, before: Millis) -> sqlx::Result<i64> {
    let mut snapshot = database.snapshot().await?;
    let kept: Option<i64> =
        sqlx::query_scalar("SELECT number FROM entries WHERE at >= $1 ORDER BY number LIMIT 1")
            .bind(before.0)
            .fetch_optional(&mut *snapshot)
            .await?;
    snapshot.rollback().await?;
    let mut transaction = database.begin().await?;
    sqlx::query(
        "UPDATE entries_archived SET day = CASE WHEN day < $1 THEN $1 ELSE day END, number = \
         (SELECT CASE WHEN v.number < $2 THEN v.number ELSE $2 END FROM entries_verified v) \
         WHERE number < (SELECT CASE WHEN v.number < $2 THEN v.number ELSE $2 END FROM entries_verified v)",
    )
    .bind(before.0)
    .bind(kept.map_or(i64::MAX, |kept| kept - 1))
    .execute(&mut transaction)
    .await?;
    let last = sqlx::query_scalar("SELECT number FROM entries_archived")
        .fetch_one(&mut transaction)
        .await?;
    transaction.commit().await?;
    Ok(last)
}

/// Returns the next entries to move.
async fn next(database: &Database, after: i64, last: i64) -> sqlx::Result<Vec<AnyRow>> {
    let mut snapshot = database.snapshot().await?;
    let rows = sqlx::query(
        "SELECT * FROM entries WHERE number > $1 AND number <= $2 AND operation_id IS NULL AND kind <> 'opening' \
         AND (hold_id IS NULL OR hold_id NOT IN (SELECT id FROM holds)) ORDER BY number LIMIT $3",
    )
    .bind(after)
    .bind(last)
    .bind(MOVED)
    .fetch_all(&mut *snapshot)
    .await?;
    snapshot.rollback().await?;
    Ok(rows)
}

/// Appends entries to the files of their months, and waits until they are on disk.
fn write(folder: &Path, rows: &[AnyRow]) -> Result<(), ArchiveError> {
    let mut months: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for row in rows {
        let mut month = day(Millis(row.try_get("at")?));
        month.truncate("YYYY-MM".len());
        let lines = months.entry(month).or_default();
        let line = Value::Object(fields(row)?).to_string();
        lines.extend_from_slice(line.as_bytes());
        lines.push(b'\n');
    }
    for (month, lines) in months {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(folder.join(format!("entries-{month}.jsonl")));
        let mut file = file?;
        file.write_all(&lines)?;
        file.sync_all()?;
    }
    // Syncing the folder makes the names of new files durable.
    Ok(File::open(folder)?.sync_all()?)
}

/// Returns all columns that are not null; bytes as hexadecimal digits.
fn fields(row: &AnyRow) -> sqlx::Result<Map<String, Value>> {
    let mut fields = Map::new();
    for column in row.columns() {
        let index = column.ordinal();
        let value = match row.try_get::<Option<i64>, _>(index) {
            Ok(number) => number.map(Value::from),
            Err(_) => match row.try_get::<Option<String>, _>(index) {
                Ok(text) => text.map(Value::from),
                Err(_) => {
                    let bytes: Option<Vec<u8>> = row.try_get(index)?;
                    bytes.map(|bytes| Value::from(Hex(&bytes).to_string()))
                }
            },
        };
        fields.extend(value.map(|value| (column.name().to_owned(), value)));
    }
    Ok(fields)
}

/// Replaces entries by openings.
async fn replace(database: &Database, rows: &[AnyRow], last: i64) -> Result<(), ArchiveError> {
    let mut openings: BTreeMap<String, ArchiveOpening> = BTreeMap::new();
    let mut totals: BTreeMap<String, Totals> = BTreeMap::new();
    let (mut numbers, mut places) = (Vec::new(), Vec::new());
    let mut transaction = database.begin().await?;
    for row in rows {
        let account: String = row.try_get("account_id")?;
        if !openings.contains_key(&account) {
            let earlier = take_opening(&mut transaction, &account).await?;
            let earlier = earlier.unwrap_or_default();
            let counted = Totals::of(&mut transaction, &account, earlier.sequence).await?;
            totals.insert(account.clone(), counted);
            openings.insert(account.clone(), earlier);
        }
        if let Some(totals) = totals.get_mut(&account) {
            totals.add(row)?;
        }
        let Some(opening) = openings.get_mut(&account) else {
            continue;
        };
        if opening.number > 0 {
            places.push((account, opening.sequence));
        }
        opening.add(row)?;
        numbers.push(opening.number);
    }
    let deleted = sqlx::query(match database.dialect() {
        SqlDialect::Sqlite => {
            "DELETE FROM entries WHERE number IN (SELECT value FROM json_each($1))"
        }
        SqlDialect::Postgres => {
            "DELETE FROM entries WHERE number IN \
             (SELECT CAST(value AS BIGINT) FROM jsonb_array_elements_text(CAST($1 AS JSONB)))"
        }
    })
    .bind(Value::from(numbers).to_string())
    .execute(&mut transaction)
    .await?;
    if deleted.rows_affected() != rows.len() as u64 {
        return Err(ArchiveError::Changed);
    }
    sqlx::query(match database.dialect() {
        SqlDialect::Sqlite => {
            "DELETE FROM account_entries WHERE (account_id, sequence) IN \
             (SELECT value ->> 0, value ->> 1 FROM json_each($1))"
        }
        SqlDialect::Postgres => {
            "DELETE FROM account_entries WHERE (account_id, sequence) IN \
             (SELECT value ->> 0, CAST(value ->> 1 AS BIGINT) FROM jsonb_array_elements(CAST($1 AS JSONB)))"
        }
    })
    .bind(serde_json::to_string(&places).unwrap_or_default())
    .execute(&mut transaction)
    .await?;
    for (account, opening) in &openings {
        opening.insert(&mut transaction, account).await?;
    }
    for (account, totals) in &totals {
        totals.keep(&mut transaction, account).await?;
    }
    debug_assert!(openings.values().all(|opening| opening.number <= last));
    transaction.commit().await?;
    Ok(())
}

/// Removes and returns an account's opening, if it has one.
async fn take_opening(
    transaction: &mut Transaction,
    account: &str,
) -> sqlx::Result<Option<ArchiveOpening>> {
    let row = sqlx::query(
        "SELECT number, sequence, at, period_start, amount, plan_delta, top_up_delta, overrun, owed FROM entries \
         WHERE account_id = $1 AND kind = 'opening'",
    )
    .bind(account)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let opening = ArchiveOpening {
        number: row.try_get("number")?,
        sequence: row.try_get("sequence")?,
        at: row.try_get("at")?,
        period_start: row.try_get("period_start")?,
        entries: row.try_get("amount")?,
        plan_delta: row.try_get("plan_delta")?,
        top_up_delta: row.try_get("top_up_delta")?,
        overrun: row.try_get("overrun")?,
        owed: row.try_get("owed")?,
    };
    sqlx::query("DELETE FROM entries WHERE number = $1")
        .bind(opening.number)
        .execute(transaction)
        .await?;
    Ok(Some(opening))
}

impl Totals {
    async fn of(
        transaction: &mut Transaction,
        account: &str,
        archived: i64,
    ) -> Result<Self, ArchiveError> {
        let budgets: Option<String> =
            sqlx::query_scalar("SELECT budgets FROM accounts WHERE id = $1")
                .bind(account)
                .fetch_one(transaction)
                .await?;
        let budgets = budgets.map(|budgets| serde_json::from_str::<Budgets>(&budgets));
        let budgets = budgets.transpose();
        let budgets = budgets
            .map_err(|error| sqlx::Error::Decode(error.into()))?
            .unwrap_or_default();
        let totals = budgets.totals();
        let spent = totals.map(|(part, since)| ((part.cloned(), since), 0));
        Ok(Self {
            archived,
            spent: spent.collect(),
        })
    }

    fn add(&mut self, row: &AnyRow) -> sqlx::Result<()> {
        if row.try_get::<Option<String>, _>("hold_id")?.is_none() {
            return Ok(());
        }
        let parts: Option<String> = row.try_get("budget_key")?;
        let parts = BudgetPart::split(parts.as_deref());
        let sequence: i64 = row.try_get("sequence")?;
        let delta = row.try_get::<i64, _>("plan_delta")? + row.try_get::<i64, _>("top_up_delta")?;
        for ((part, since), spent) in &mut self.spent {
            let counts = part.as_ref().is_none_or(|part| parts.contains(part));
            if sequence > *since && counts {
                *spent -= delta;
            }
        }
        Ok(())
    }

    async fn keep(&self, transaction: &mut Transaction, account: &str) -> sqlx::Result<()> {
        for ((part, since), spent) in &self.spent {
            // The amounts of an earlier version's archive are unknown.
            let first = (self.archived <= *since).then_some(*spent);
            sqlx::query(
                "INSERT INTO archived_totals (account_id, key_id, since, spent) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (account_id, key_id, since) DO UPDATE SET spent = archived_totals.spent + $5",
            )
            .bind(account)
            .bind(part.as_ref().map_or_else(String::new, BudgetPart::to_string))
            .bind(since)
            .bind(first)
            .bind(spent)
            .execute(&mut *transaction)
            .await?;
        }
        Ok(())
    }
}

impl ArchiveOpening {
    /// Adds a later entry.
    fn add(&mut self, row: &AnyRow) -> sqlx::Result<()> {
        self.number = row.try_get("number")?;
        self.sequence = row.try_get("sequence")?;
        self.at = row.try_get("at")?;
        self.period_start = row.try_get("period_start")?;
        self.entries += 1;
        self.plan_delta += row.try_get::<i64, _>("plan_delta")?;
        self.top_up_delta += row.try_get::<i64, _>("top_up_delta")?;
        self.overrun += row.try_get::<i64, _>("overrun")?;
        self.owed += row.try_get::<i64, _>("owed")?;
        Ok(())
    }

    async fn insert(&self, transaction: &mut Transaction, account: &str) -> sqlx::Result<()> {
        sqlx::query(
            "INSERT INTO entries (number, account_id, sequence, at, kind, plan_delta, top_up_delta, overrun, \
             owed, period_start, amount) VALUES ($1, $2, $3, $4, 'opening', $5, $6, $7, $8, $9, $10)",
        )
        .bind(self.number)
        .bind(account)
        .bind(self.sequence)
        .bind(self.at)
        .bind(self.plan_delta)
        .bind(self.top_up_delta)
        .bind(self.overrun)
        .bind(self.owed)
        .bind(self.period_start)
        .bind(self.entries)
        .execute(transaction)
        .await
        .map(drop)
    }
}
