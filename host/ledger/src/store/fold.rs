//! Folding: the sums of usage and the entries of each account, derived from new entries after their batch.
//!
//! The sums over all accounts and the months' active accounts have a watermark of their own, which lags behind while nodes of an earlier version fold.
//!
//! A *watermark* is the number of the last folded entry. It moves in the same transaction as the folded data, so that
//! after any crash an entry is either in the sums or after the watermark. Only one node folds at a time. PostgreSQL
//! assigns numbers before transactions end, so a lower number may appear after a higher one: the watermark stops at a
//! number until all transactions have ended that were writing entries when it existed. Their locks on the table tell
//! which ones these are. Transaction ids would not do: a transaction left open in another database of the server would
//! stop the fold.

use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, Row as _, SqlSafeStr, SqlStr};
use weir_storage::Database;
use weir_storage::database::WriteTurn;

use super::LedgerStore;
use super::error::{CommitFailure, LedgerStoreError};
use super::rows::json;
use super::sqlite::{CachedAccounts, WriteTransaction};
use crate::usage::{COUNTS, ENTRY_USAGE, PLATFORM_KEY, Unit};

/// The state of folding: the position up to which entries can soon be folded.
#[derive(Debug)]
pub struct Fold {
    store: LedgerStore,
    /// In PostgreSQL.
    mark: Option<FoldMark>,
}

/// An existing number, and the transactions that may still add lower ones.
#[derive(Debug)]
struct FoldMark {
    number: i64,
    /// The virtual ids of the transactions that were writing entries, as a JSON array.
    writers: String,
}

/// The next entries to fold, in one database.
#[derive(Debug, Clone, Copy)]
struct Range {
    after: i64,
    up_to: i64,
}

impl Fold {
    /// Makes the state for a task that folds repeatedly.
    pub fn new(store: LedgerStore) -> Self {
        Self { store, mark: None }
    }

    /// Folds up to `limit` entries; returns their number. In SQLite, it blocks the thread.
    pub async fn step(&mut self, limit: u32) -> Result<u64, LedgerStoreError> {
        let database = &self.store.database;
        match database.write_turn() {
            Some(turn) => fold_sqlite(turn, &self.store, limit).await,
            None => {
                let folded = fold_postgres(database, self.mark.as_ref(), limit).await?;
                if folded == 0 {
                    self.mark = mark(database).await?;
                }
                Ok(folded)
            }
        }
    }
}

async fn fold_sqlite(
    turn: &WriteTurn,
    store: &LedgerStore,
    limit: u32,
) -> Result<u64, LedgerStoreError> {
    let mut native = turn.native().await.map_err(CommitFailure::from)?;
    let mut remembered = store.remembered();
    let version = CachedAccounts::version(&native).map_err(CommitFailure::from)?;
    let range = {
        let mut find = native
            .prepare_cached(&STATEMENTS.next)
            .map_err(CommitFailure::from)?;
        find.query_row([i64::MAX, i64::from(limit)], |row| {
            Ok(Range {
                after: row.get(0)?,
                up_to: row.get(1)?,
            })
        })
        .map_err(CommitFailure::from)?
    };
    if range.up_to <= range.after {
        return Ok(0);
    }
    let transaction = WriteTransaction::begin(&mut native).map_err(CommitFailure::from)?;
    let folded = (|| {
        let bounds = [range.after, range.up_to];
        let folded = transaction
            .prepare_cached(&STATEMENTS.index)?
            .execute(bounds)?;
        transaction
            .prepare_cached(&STATEMENTS.sums)?
            .execute(bounds)?;
        for statement in [
            &*STATEMENTS.platform,
            &*STATEMENTS.active,
            MOVE_PLATFORM,
            MOVE,
        ] {
            transaction
                .prepare_cached(statement)?
                .execute([range.up_to])?;
        }
        Ok::<_, rusqlite::Error>(folded)
    })();
    let folded = folded.map_err(CommitFailure::from)?;
    transaction.commit().map_err(CommitFailure::from)?;
    drop(transaction);
    // A fold changes no remembered account.
    remembered.keep_since(
        version,
        CachedAccounts::version(&native).map_err(CommitFailure::from)?,
    );
    Ok(folded as u64)
}

async fn fold_postgres(
    database: &Database,
    mark: Option<&FoldMark>,
    limit: u32,
) -> Result<u64, LedgerStoreError> {
    let Some(mark) = mark else {
        return Ok(0);
    };
    let mut transaction = database.begin().await.map_err(CommitFailure::from)?;
    // A second node leaves folding to the first one.
    let watermark = sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT number FROM entries_folded WHERE NOT EXISTS ({WRITERS} AND virtualtransaction IN \
         (SELECT jsonb_array_elements_text(CAST($1 AS JSONB)))) FOR UPDATE SKIP LOCKED"
    )))
    .bind(&mark.writers)
    .fetch_optional(&mut transaction)
    .await
    .map_err(CommitFailure::from)?;
    let Some(watermark): Option<i64> = watermark else {
        return Ok(0);
    };
    let row = sqlx::query(STATEMENTS.next_sql.clone())
        .bind(mark.number)
        .bind(i64::from(limit))
        .fetch_one(&mut transaction)
        .await
        .map_err(CommitFailure::from)?;
    let range = Range {
        after: watermark,
        up_to: row.try_get(1).map_err(CommitFailure::from)?,
    };
    if range.up_to <= range.after {
        return Ok(0);
    }
    let mut folded = 0;
    for statement in [&STATEMENTS.sums_sql, &STATEMENTS.index_sql] {
        let done = sqlx::query(statement.clone())
            .bind(range.after)
            .bind(range.up_to)
            .execute(&mut transaction)
            .await
            .map_err(CommitFailure::from)?;
        folded = done.rows_affected();
    }
    for statement in [
        STATEMENTS.platform_sql.clone(),
        STATEMENTS.active_sql.clone(),
        SqlStr::from_static(MOVE_PLATFORM),
        SqlStr::from_static(MOVE),
    ] {
        sqlx::query(statement)
            .bind(range.up_to)
            .execute(&mut transaction)
            .await
            .map_err(CommitFailure::from)?;
    }
    let committed = transaction.commit().await;
    committed.map_err(|error| LedgerStoreError::Unknown(error.to_string()))?;
    Ok(folded)
}

/// The query for the virtual ids of transactions that have written entries. PostgreSQL takes this lock before it assigns
/// a number, and releases it after the transaction's rows are visible.
const WRITERS: &str = "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND granted \
    AND relation = CAST('entries' AS regclass) AND mode = 'RowExclusiveLock' \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Marks the highest number, if any entry is not folded. Transactions that begin to write after it assign higher ones.
async fn mark(database: &Database) -> Result<Option<FoldMark>, LedgerStoreError> {
    let last: Option<i64> = sqlx::query_scalar(
        "SELECT MAX(number) FROM entries WHERE number > (SELECT number FROM entries_folded)",
    )
    .fetch_one(database.reader())
    .await
    .map_err(CommitFailure::from)?;
    let Some(number) = last else {
        return Ok(None);
    };
    let writers: Vec<String> = sqlx::query_scalar(WRITERS)
        .fetch_all(database.writer())
        .await
        .map_err(CommitFailure::from)?;
    Ok(Some(FoldMark {
        number,
        writers: json(&writers),
    }))
}

struct FoldStatements {
    next: String,
    sums: String,
    platform: String,
    active: String,
    index: String,
    next_sql: SqlStr,
    sums_sql: SqlStr,
    platform_sql: SqlStr,
    active_sql: SqlStr,
    index_sql: SqlStr,
}

const MOVE: &str = "UPDATE entries_folded SET number = $1";

const MOVE_PLATFORM: &str = "UPDATE platform_folded SET number = $1";

/// An entry's month in UTC, as `YYYY-MM`.
const SQLITE_MONTH: &str = "strftime('%Y-%m', at / 1000, 'unixepoch')";
const POSTGRES_MONTH: &str = "to_char(to_timestamp(at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM')";

/// Returns the unit of a sum of usage with two units. Usage without a unit is from nodes of an earlier version; it takes
/// the other unit, unless the quantity of such usage is unknown.
fn merged(one: &str, other: &str, some_has_none: &str) -> String {
    let search_units = Unit::SearchUnits.name();
    let unknown = Unit::UNKNOWN;
    format!(
        "CASE WHEN COALESCE({one}, {other}) = '{search_units}' AND ({some_has_none}) THEN '{unknown}' \
         WHEN COALESCE({one}, {other}) = COALESCE({other}, {one}) THEN COALESCE({one}, {other}) \
         WHEN {one} IS NOT NULL OR {other} IS NOT NULL THEN '{unknown}' END"
    )
}

// SQLite treats these parameters as names, and numbers them in the order of their appearance.
static STATEMENTS: LazyLock<FoldStatements> = LazyLock::new(|| {
    let next = "SELECT folded.number, COALESCE((SELECT MAX(number) FROM (SELECT entries.number AS number FROM entries \
                WHERE entries.number > folded.number AND entries.number <= $1 \
                ORDER BY entries.number LIMIT $2) AS coming), folded.number) FROM entries_folded AS folded"
        .to_owned();
    let counts: Vec<_> = COUNTS.iter().map(|count| count.column).collect();
    let added = ["requests", "credits", "overrun"]
        .into_iter()
        .chain(counts.iter().copied());
    let key = "account_id, period_start, day, model, provider, source, key_hash";
    let names: Vec<_> = added.clone().collect();
    let sums: Vec<_> = added
        .clone()
        .map(|name| format!("CAST(SUM({name}) AS BIGINT)"))
        .collect();
    let add_to = |table: &str, key: &str, range: &str| {
        let add = added
            .clone()
            .map(|name| format!("{name} = {table}.{name} + excluded.{name}"));
        let add: Vec<_> = add.collect();
        let unit = merged(
            &format!("{table}.unit"),
            "excluded.unit",
            &format!("{table}.unit IS NULL OR excluded.unit IS NULL"),
        );
        format!(
            "INSERT INTO {table} ({key}, unit, {}) SELECT {key}, {}, {} FROM (SELECT {ENTRY_USAGE}, unit, {} FROM entries \
             WHERE {range} AND provider IS NOT NULL) AS tail WHERE TRUE GROUP BY {key} ORDER BY {key} \
             ON CONFLICT ({key}) DO UPDATE SET unit = {unit}, {}",
            names.join(", "),
            merged("MIN(unit)", "MAX(unit)", "COUNT(unit) < COUNT(*)"),
            sums.join(", "),
            counts.join(", "),
            add.join(", ")
        )
    };
    let range = "number > $1 AND number <= $2";
    let of_platform = "number > (SELECT number FROM platform_folded) AND number <= $1";
    let platform = add_to("platform_daily", PLATFORM_KEY, of_platform);
    let active = |month: &str| {
        format!(
            "INSERT INTO active_accounts (month, account_id) SELECT DISTINCT {month}, account_id FROM entries \
             WHERE {of_platform} AND requests > 0 ON CONFLICT DO NOTHING"
        )
    };
    let sums = add_to("usage_daily", key, range);
    let index = format!(
        "INSERT INTO account_entries (account_id, sequence, number) \
         SELECT account_id, sequence, number FROM entries WHERE {range}"
    );
    let sql = |text: &String| AssertSqlSafe(text.clone()).into_sql_str();
    FoldStatements {
        next_sql: sql(&next),
        sums_sql: sql(&sums),
        platform_sql: sql(&platform),
        active_sql: sql(&active(POSTGRES_MONTH)),
        index_sql: sql(&index),
        next,
        sums,
        platform,
        active: active(SQLITE_MONTH),
        index,
    }
});
