//! A batch in PostgreSQL. Rows travel as one JSON text for each table, so that a batch of any size takes the same few
//! round trips.
//!
//! A batch for which blocks reserve needed credits is rolled back, or calls them back: see [`crate::shortage`].
//!
//! Accounts are locked in the order of their ids, and all other rows that a batch reads or writes belong to an account
//! that it has locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, Row as _, SqlSafeStr, SqlStr};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;

use super::batch::{BatchChanges, LoadedBatch, MAKE_ACCOUNTS, find_account};
use super::error::{CommitFailure, LedgerStoreError};
use super::log;
use super::rows::{
    ACCOUNTS, AccountRow, BLOCKS, ENTRIES, HOLDS, KEYS, RECORDED, TableLayout, end_columns,
    find_blocks, find_keys, json, json_of, list, read_account, read_block, read_end, read_hold,
    read_key, read_recorded,
};
use crate::account::Account;
use crate::budgets::BudgetPart;
use crate::operation::{AccountId, Action, BootId, HoldId, Operation, OperationOutcome};
use crate::shortage::{Decision, decide};

pub(super) enum BatchEnd {
    /// It is durable.
    Committed {
        outcomes: Vec<OperationOutcome>,
        accounts: BTreeMap<AccountId, Account>,
        /// The accounts whose blocks at other nodes were called back.
        called: BTreeSet<AccountId>,
    },
    /// Nothing was done, because the run's own blocks reserve needed credits of these accounts.
    Short(BTreeSet<AccountId>),
    /// Nothing was done, because others have ended the run: they may have applied what seems to be new.
    Fenced,
}

impl BatchEnd {
    /// Returns the outcomes of a command's batch.
    pub(super) fn outcomes(self) -> Vec<OperationOutcome> {
        match self {
            Self::Committed { outcomes, .. } => outcomes,
            Self::Short(_) | Self::Fenced => unreachable!("a command has no run"),
        }
    }
}

/// Does a batch for a run with this fence, or for a command. `new` are holds without rows and entries.
pub(super) async fn commit(
    database: &Database,
    operations: &[&Operation],
    new: BTreeSet<&HoldId>,
    run: Option<(&BootId, i64)>,
) -> Result<BatchEnd, LedgerStoreError> {
    let mut transaction = database.begin().await.map_err(CommitFailure::from)?;
    let end = apply(&mut transaction, operations, new, run).await?;
    if matches!(end, BatchEnd::Short(_) | BatchEnd::Fenced) {
        return Ok(end);
    }
    match transaction.commit().await {
        Ok(()) => Ok(end),
        Err(error) => Err(LedgerStoreError::Unknown(error.to_string())),
    }
}

async fn apply(
    transaction: &mut Transaction,
    operations: &[&Operation],
    new: BTreeSet<&HoldId>,
    run: Option<(&BootId, i64)>,
) -> Result<BatchEnd, CommitFailure> {
    let mut loaded = LoadedBatch {
        accounts: load_accounts(transaction, operations).await?,
        ..LoadedBatch::default()
    };
    let fence = load_blocks(transaction, run, &mut loaded).await?;
    let is_fenced = run
        .zip(fence)
        .is_some_and(|((_, before), now)| before != now);
    if is_fenced && !new.is_empty() {
        return Ok(BatchEnd::Fenced);
    }
    let run = run.map(|(run, _)| run);
    load_leases(transaction, operations, &mut loaded).await?;
    let of_keys = load_keys(transaction, operations, &mut loaded).await?;
    load_holds(transaction, operations, &of_keys, new, &mut loaded).await?;
    load_recorded(transaction, operations, &mut loaded).await?;
    let outcomes = loaded.apply(operations.iter().copied(), run);
    let (outcomes, called) = match decide(&loaded.accounts, operations, outcomes, run) {
        Decision::Short(accounts) => return Ok(BatchEnd::Short(accounts)),
        Decision::Done { outcomes, called } => (outcomes, called),
    };
    write(transaction, &loaded.changes()).await?;
    if let Some(at) = operations.iter().map(|operation| operation.at).max() {
        for account in &called {
            call_back(transaction, account, run, at).await?;
        }
    }
    Ok(BatchEnd::Committed {
        outcomes,
        accounts: loaded.accounts,
        called,
    })
}

/// Asks all other nodes to return an account's blocks.
async fn call_back(
    transaction: &mut Transaction,
    account: &AccountId,
    run: Option<&BootId>,
    at: Millis,
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE blocks SET called_at = $1 WHERE account_id = $2 AND boot_id <> $3 \
         AND plan_reserved + top_up_reserved > 0",
    )
    .bind(at.0)
    .bind(&account.0)
    .bind(run.map_or("", BootId::as_str))
    .execute(transaction)
    .await
    .map(drop)
}

/// Locks the operations' accounts. Creates accounts of users without one.
async fn load_accounts(
    transaction: &mut Transaction,
    operations: &[&Operation],
) -> Result<BTreeMap<AccountId, Account>, CommitFailure> {
    let wanted: BTreeSet<_> = operations
        .iter()
        .map(|operation| &operation.account)
        .collect();
    let ids = json(&wanted);
    let mut accounts = lock_accounts(transaction, &ids).await?;
    if accounts.len() < wanted.len() {
        sqlx::query(STATEMENTS.make_accounts.clone())
            .bind(&ids)
            .execute(&mut *transaction)
            .await?;
        // Needed even if no row was inserted: the insertion may have waited for another node that created the account.
        accounts = lock_accounts(transaction, &ids).await?;
    }
    Ok(accounts)
}

async fn lock_accounts(
    transaction: &mut Transaction,
    ids: &str,
) -> Result<BTreeMap<AccountId, Account>, CommitFailure> {
    let rows = sqlx::query(STATEMENTS.lock_accounts.clone())
        .bind(ids)
        .fetch_all(&mut *transaction)
        .await?;
    rows.iter()
        .map(|row| {
            let account = read_account(row)?;
            Ok((account.id.clone(), account))
        })
        .collect()
}

/// Loads the blocks of the accounts. Their locks protect the blocks as well. Returns the run's fence, if it has a lease: read
/// after the locks, so that what others have done for an ended run is not done again.
async fn load_blocks(
    transaction: &mut Transaction,
    run: Option<(&BootId, i64)>,
    loaded: &mut LoadedBatch,
) -> Result<Option<i64>, CommitFailure> {
    let ids: Vec<_> = loaded.accounts.keys().collect();
    let rows = sqlx::query(STATEMENTS.load_blocks.clone())
        .bind(json(&ids))
        .bind(run.map_or("", |(run, _)| run.as_str()))
        .fetch_all(&mut *transaction)
        .await?;
    let mut fence = None;
    for row in &rows {
        fence = row.try_get(0)?;
        if row.try_get::<Option<String>, _>(1)?.is_some() {
            let (account, block, is_called) = read_block(row, 1)?;
            loaded.add_block(&account, block, is_called);
        }
    }
    Ok(fence)
}

/// Loads which runs may still use their blocks, among those whose blocks the operations return. A run that comes back after
/// this look finds no block: its next batch waits for the locks of the accounts.
async fn load_leases(
    transaction: &mut Transaction,
    operations: &[&Operation],
    loaded: &mut LoadedBatch,
) -> Result<(), CommitFailure> {
    let mut runs = BTreeSet::new();
    for operation in operations {
        if let Action::EndBlocks {
            boot_id,
            unless_leased: true,
        } = &operation.action
            && runs.insert(boot_id)
            && log::may_use_blocks(transaction, boot_id, operation.at).await?
        {
            loaded.leased.insert(boot_id.clone());
        }
    }
    Ok(())
}

/// Loads the operations' idempotency keys, and returns their holds.
async fn load_keys(
    transaction: &mut Transaction,
    operations: &[&Operation],
    loaded: &mut LoadedBatch,
) -> Result<Vec<HoldId>, CommitFailure> {
    let keys = operations
        .iter()
        .filter_map(|operation| operation.key().map(|key| (&operation.account, key)));
    let wanted: BTreeSet<_> = keys.collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: Vec<_> = wanted.iter().map(|(of, key)| [&*of.0, *key]).collect();
    let rows = sqlx::query(STATEMENTS.load_keys.clone())
        .bind(json(&wanted))
        .fetch_all(&mut *transaction)
        .await?;
    let mut holds = Vec::new();
    for row in &rows {
        let (account, key) = read_key(row)?;
        holds.push(loaded.add_key(&account, key));
    }
    Ok(holds)
}

/// Loads the holds of operations and their keys, and the holds' parents. `new` holds have no rows.
async fn load_holds(
    transaction: &mut Transaction,
    operations: &[&Operation],
    of_keys: &[HoldId],
    new: BTreeSet<&HoldId>,
    loaded: &mut LoadedBatch,
) -> Result<(), CommitFailure> {
    let named = operations.iter().flat_map(|operation| operation.holds());
    let mut wanted: BTreeSet<_> = named.chain(of_keys).collect();
    wanted.retain(|id| !new.contains(id));
    if wanted.is_empty() {
        return Ok(());
    }
    let rows = sqlx::query(STATEMENTS.load_holds.clone())
        .bind(json(&wanted))
        .fetch_all(&mut *transaction)
        .await?;
    for row in &rows {
        let (account, hold) = read_hold(row)?;
        loaded.add_hold(account, hold);
    }
    wanted.retain(|id| !loaded.stored.contains(*id));
    if wanted.is_empty() {
        return Ok(());
    }
    let rows = sqlx::query(STATEMENTS.load_ends.clone())
        .bind(json(&wanted))
        .fetch_all(&mut *transaction)
        .await?;
    for row in &rows {
        let (account, end, reported) = read_end(row)?;
        loaded.add_end(account, end, reported);
    }
    Ok(())
}

/// Loads the done operations with the ids of these operations.
async fn load_recorded(
    transaction: &mut Transaction,
    operations: &[&Operation],
    loaded: &mut LoadedBatch,
) -> Result<(), CommitFailure> {
    let wanted: BTreeSet<_> = operations
        .iter()
        .filter_map(|operation| operation.id())
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let rows = sqlx::query(STATEMENTS.load_recorded.clone())
        .bind(json(&wanted))
        .fetch_all(&mut *transaction)
        .await?;
    let recorded = rows.iter().map(read_recorded);
    let recorded: BTreeMap<_, _> = recorded.collect::<Result<_, _>>()?;
    for operation in operations {
        if let Some(id) = operation.id()
            && let Some(first) = recorded.get(id)
        {
            loaded.add_recorded(operation, first.clone());
        }
    }
    Ok(())
}

async fn write(
    transaction: &mut Transaction,
    changes: &BatchChanges<'_>,
) -> Result<(), CommitFailure> {
    let statements = &*STATEMENTS;
    write_rows(
        transaction,
        &statements.write_accounts,
        &ACCOUNTS,
        &changes.accounts,
    )
    .await?;
    let holds = [&*changes.new_holds, &changes.holds].concat();
    write_rows(transaction, &statements.write_holds, &HOLDS, &holds).await?;
    if !changes.ended_holds.is_empty() {
        let ended = changes.ended_holds.iter();
        let ended: Vec<_> = ended.map(|(of, id)| [&*of.0, &*id.0]).collect();
        let deleted = sqlx::query(statements.delete_holds.clone())
            .bind(json(&ended))
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        CommitFailure::unless_all(deleted, ended.len())?;
    }
    write_rows(
        transaction,
        &statements.write_entries,
        &ENTRIES,
        &changes.entries,
    )
    .await?;
    write_rows(transaction, &statements.write_keys, &KEYS, &changes.keys).await?;
    write_rows(
        transaction,
        &statements.write_blocks,
        &BLOCKS,
        &changes.blocks,
    )
    .await?;
    for (account, key) in &changes.ended_blocks {
        sqlx::query(DELETE_BLOCK)
            .bind(&account.0)
            .bind(key.boot_id.as_str())
            .bind(BudgetPart::join(&key.parts).unwrap_or_default())
            .bind(i64::from(key.top_up_only))
            .execute(&mut *transaction)
            .await?;
    }
    if !changes.plans.is_empty() {
        sqlx::query(statements.write_plans.clone())
            .bind(json_of(&ACCOUNTS, &changes.plans))
            .execute(transaction)
            .await?;
    }
    Ok(())
}

/// Writes rows; an unwritten row is an error.
async fn write_rows<T>(
    transaction: &mut Transaction,
    statement: &SqlStr,
    table: &'static TableLayout<T>,
    rows: &[AccountRow<'_, T>],
) -> Result<(), CommitFailure> {
    if rows.is_empty() {
        return Ok(());
    }
    let written = sqlx::query(statement.clone())
        .bind(json_of(table, rows))
        .execute(transaction)
        .await?
        .rows_affected();
    CommitFailure::unless_all(written, rows.len())
}

const DELETE_BLOCK: &str =
    "DELETE FROM blocks WHERE account_id = $1 AND boot_id = $2 AND parts = $3 AND top_up_only = $4";

struct PostgresStatements {
    lock_accounts: SqlStr,
    make_accounts: SqlStr,
    load_blocks: SqlStr,
    load_keys: SqlStr,
    load_holds: SqlStr,
    load_ends: SqlStr,
    load_recorded: SqlStr,
    write_accounts: SqlStr,
    write_holds: SqlStr,
    delete_holds: SqlStr,
    write_entries: SqlStr,
    write_keys: SqlStr,
    write_blocks: SqlStr,
    write_plans: SqlStr,
}

static STATEMENTS: LazyLock<PostgresStatements> = LazyLock::new(|| {
    let text = |text: String| AssertSqlSafe(text).into_sql_str();
    let ids = "SELECT value FROM jsonb_array_elements_text(CAST($1 AS TEXT)::jsonb) AS ids (value)";
    // Pairs of an account and an id.
    let pairs = "SELECT value ->> 0, value ->> 1 FROM jsonb_array_elements(CAST($1 AS TEXT)::jsonb) AS pairs (value)";
    PostgresStatements {
        lock_accounts: text(format!(
            "{} IN ({ids}) ORDER BY id FOR UPDATE OF accounts",
            find_account()
        )),
        make_accounts: text(format!(
            "{MAKE_ACCOUNTS} IN ({ids}) ORDER BY id ON CONFLICT (id) DO NOTHING"
        )),
        load_holds: text(format!(
            "WITH wanted (id) AS ({ids}) SELECT {} FROM holds WHERE id IN \
             (SELECT id FROM wanted UNION SELECT h.parent_id FROM holds h JOIN wanted w ON w.id = h.id \
             WHERE h.parent_id IS NOT NULL)",
            HOLDS.names()
        )),
        // A row without a block if there is none.
        load_blocks: text(format!(
            "SELECT (SELECT fence FROM node_leases WHERE boot_id = $2) AS fence, found.* FROM (SELECT 1) one \
             LEFT JOIN ({} IN ({ids})) found ON TRUE",
            find_blocks()
        )),
        load_keys: text(format!(
            "{} WHERE (account_id, key) IN ({pairs}) FOR UPDATE OF keys",
            find_keys()
        )),
        load_ends: text(format!(
            "SELECT {} FROM entries WHERE hold_id IN ({ids}) ORDER BY number",
            end_columns()
        )),
        load_recorded: text(format!(
            "SELECT {RECORDED} FROM entries WHERE operation_id IN ({ids})"
        )),
        write_accounts: text(format!(
            "UPDATE accounts SET {} FROM {} WHERE accounts.id = new.id",
            list(ACCOUNTS.fixed.iter().chain(ACCOUNTS.changing), |name| {
                format!("{name} = new.{name}")
            }),
            rows(&ACCOUNTS)
        )),
        write_holds: text(format!(
            "{} ON CONFLICT (id) DO UPDATE SET {} WHERE holds.account_id = excluded.account_id",
            insert(&HOLDS),
            list(HOLDS.changing, |name| format!("{name} = excluded.{name}"))
        )),
        write_entries: text(insert(&ENTRIES)),
        write_keys: text(format!(
            "{} ON CONFLICT ({}) DO UPDATE SET {}",
            insert(&KEYS),
            list(KEYS.key, str::to_owned),
            list(KEYS.changing, |name| format!("{name} = excluded.{name}"))
        )),
        write_blocks: text(format!(
            "{} ON CONFLICT ({}) DO UPDATE SET {}",
            insert(&BLOCKS),
            list(BLOCKS.key, str::to_owned),
            list(BLOCKS.changing, |name| format!("{name} = excluded.{name}"))
        )),
        delete_holds: text(format!(
            "DELETE FROM holds WHERE (account_id, id) IN ({pairs})"
        )),
        write_plans: text(format!(
            "UPDATE users SET plan = new.plan FROM {} WHERE users.id = new.id AND users.plan <> new.plan",
            rows(&ACCOUNTS)
        )),
    }
});

fn insert<T>(table: &'static TableLayout<T>) -> String {
    format!(
        "INSERT INTO {} ({}) SELECT {} FROM {}",
        table.name,
        table.names(),
        list(table.columns(), |name| format!("new.{name}")),
        rows(table)
    )
}

/// Returns a table `new` of the rows in the statement's parameter.
fn rows<T>(table: &'static TableLayout<T>) -> String {
    let columns: Vec<_> = table
        .columns()
        .map(|column| format!("{} {}", column.name, column.kind))
        .collect();
    format!(
        "jsonb_to_recordset(CAST($1 AS TEXT)::jsonb) AS new ({})",
        columns.join(", ")
    )
}
