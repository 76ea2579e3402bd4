//! A batch in SQLite, on the caller's thread: a small statement for each row.
//!
//! SQLite has one writer at a time, so nothing needs to be locked, and no row changes between two statements. Usually
//! no other process has written since the last batch: the accounts that it left in memory are then not read again.
//!
//! A command's batch folds the log of the process that serves, or served, and raises the fences of all runs.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::ops::Deref;
use std::sync::LazyLock;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, ToSql};

use super::batch::{BatchChanges, LoadedBatch, MAKE_ACCOUNTS, find_account};
use super::error::{CommitFailure, LedgerStoreError};
use super::log::read_row;
use super::rows::{
    ACCOUNTS, AccountRow, Column, ENTRIES, HOLDS, KEYS, RECORDED, TableLayout, Value, end_columns,
    find_keys, list, read_account, read_end, read_hold, read_key, read_recorded,
};
use crate::account::{Account, Journal};
use crate::log::LogRecord;
use crate::operation::{AccountId, BootId, HoldId, Operation, OperationOutcome};

/// Maximum number of remembered accounts.
const REMEMBERED: usize = 4_096;

/// Accounts after the last batch, with their open holds, so that the next batch need not read them: valid as long as no
/// other connection writes.
///
/// **Invariant:** a hold with an open parent is remembered only together with the parent.
#[derive(Debug, Default)]
pub(super) struct CachedAccounts {
    accounts: HashMap<AccountId, Account>,
    as_of: Option<DataVersion>,
}

/// A version that changes with every write: SQLite's `data_version` with those of other connections, `total_changes`
/// with this one's.
pub(super) type DataVersion = (i64, u64);

/// A transaction that may write from its start. Dropped without a commit, it rolls back.
///
/// Its statements are prepared once. rusqlite's own transactions prepare theirs anew each time.
pub(super) struct WriteTransaction<'c>(&'c Connection);

impl<'c> WriteTransaction<'c> {
    /// Begins a transaction. The connection is borrowed mutably, because transactions do not nest.
    pub(super) fn begin(connection: &'c mut Connection) -> rusqlite::Result<Self> {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self(connection))
    }

    /// Commits. After an error, the transaction may still be open.
    pub(super) fn commit(&self) -> rusqlite::Result<()> {
        self.0.prepare_cached("COMMIT")?.execute([]).map(drop)
    }

    fn rollback(&self) -> rusqlite::Result<()> {
        self.0.prepare_cached("ROLLBACK")?.execute([]).map(drop)
    }
}

impl Deref for WriteTransaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for WriteTransaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // If it fails, SQLite has rolled back by itself, or the next begin reports the error.
            let _ = self.rollback();
        }
    }
}

pub(super) enum BatchEnd {
    /// It is durable.
    Committed(Vec<OperationOutcome>),
    /// Nothing was done, because a command has raised the run's fence to this number: it may have changed the accounts, and
    /// folded what seems to be new.
    Fenced(i64),
}

/// Does a batch of a run with this fence; rolls back after every error before the commit, including a panic. `new` are holds
/// without rows.
pub(super) fn commit<'o>(
    connection: &mut Connection,
    remembered: &mut CachedAccounts,
    operations: &[&'o Operation],
    new: impl Iterator<Item = &'o HoldId>,
    (run, fence): (&BootId, i64),
) -> Result<BatchEnd, LedgerStoreError> {
    let transaction = WriteTransaction::begin(connection).map_err(CommitFailure::from)?;
    // Taken out first, so that an error leaves it empty.
    let mut before = mem::take(remembered);
    let version = CachedAccounts::version(&transaction).map_err(CommitFailure::from)?;
    if before.as_of != Some(version) {
        before.accounts.clear();
        let found = find_fence(&transaction, run).map_err(CommitFailure::from)?;
        if let Some(found) = found.filter(|found| *found != fence) {
            return Ok(BatchEnd::Fenced(found));
        }
    }
    let (loaded, outcomes) = apply(&transaction, &mut before, operations, new.collect())?;
    end(&transaction)?;
    let (by_others, _) = version;
    *remembered = before.with(loaded, (by_others, transaction.total_changes()));
    Ok(BatchEnd::Committed(outcomes))
}

/// Does a batch of a command, after a fold of the complete log.
pub(super) fn commit_of_command(
    connection: &mut Connection,
    operations: &[Operation],
) -> Result<Vec<OperationOutcome>, LedgerStoreError> {
    let transaction = WriteTransaction::begin(connection).map_err(CommitFailure::from)?;
    let log = find_log(&transaction)?;
    if log.is_empty() && operations.is_empty() {
        return Ok(Vec::new());
    }
    let folds: Vec<_> = log
        .iter()
        .map(|(run, record)| record.operation(run))
        .collect();
    let all: Vec<_> = folds.iter().chain(operations).collect();
    let mut before = CachedAccounts::default();
    let (_, mut outcomes) = apply(&transaction, &mut before, &all, BTreeSet::new())?;
    let asked = outcomes.split_off(folds.len());
    for ((_, record), outcome) in log.iter().zip(&outcomes) {
        record.check(outcome);
    }
    for statement in ["DELETE FROM ledger_log", RAISE_FENCES] {
        transaction
            .execute(statement, [])
            .map_err(CommitFailure::from)?;
    }
    end(&transaction)?;
    Ok(asked)
}

/// Commits.
fn end(transaction: &WriteTransaction<'_>) -> Result<(), LedgerStoreError> {
    let Err(error) = transaction.commit() else {
        return Ok(());
    };
    if transaction.is_autocommit() {
        // The transaction is over and rolled back for this process, but unconfirmed disk writes may be there after a
        // crash.
        return Err(LedgerStoreError::Unknown(error.to_string()));
    }
    match transaction.rollback() {
        Ok(()) => Err(LedgerStoreError::Unavailable(error.to_string())),
        Err(_) => Err(LedgerStoreError::Unknown(error.to_string())),
    }
}

/// Returns a run's fence, if it has a lease.
fn find_fence(transaction: &Connection, run: &BootId) -> rusqlite::Result<Option<i64>> {
    transaction
        .prepare_cached("SELECT fence FROM node_leases WHERE boot_id = ?1")?
        .query_row([run.as_str()], |row| row.get(0))
        .optional()
}

/// Returns the records in the log, and their runs.
fn find_log(transaction: &Connection) -> Result<Vec<(BootId, LogRecord)>, CommitFailure> {
    let mut find =
        transaction.prepare("SELECT boot_id, records FROM ledger_log ORDER BY boot_id, ordinal")?;
    let mut rows = find.query([])?;
    let mut log = Vec::new();
    while let Some(row) = rows.next()? {
        let (run, records): (String, String) = (row.get(0)?, row.get(1)?);
        let (run, records) = read_row::<LogRecord>(&run, &records)?;
        log.extend(records.into_iter().map(|record| (run.clone(), record)));
    }
    Ok(log)
}

impl CachedAccounts {
    pub(super) fn version(connection: &Connection) -> rusqlite::Result<DataVersion> {
        let mut statement = connection.prepare_cached("PRAGMA data_version")?;
        let by_others = statement.query_row([], |row| row.get(0))?;
        Ok((by_others, connection.total_changes()))
    }

    /// Keeps the remembered accounts valid after a write of this connection that changed none of them, unless another one has
    /// written between the two versions.
    pub(super) fn keep_since(&mut self, before: DataVersion, after: DataVersion) {
        if self.as_of == Some(before) && before.0 == after.0 {
            self.as_of = Some(after);
        }
    }

    pub(super) fn get(&self, id: &AccountId) -> Option<&Account> {
        self.accounts.get(id)
    }

    fn with(mut self, loaded: LoadedBatch, as_of: DataVersion) -> Self {
        if self.accounts.len() + loaded.accounts.len() > REMEMBERED {
            self.accounts.clear();
        }
        for (id, mut account) in loaded.accounts {
            account.journal = Journal::default();
            account.recorded.clear();
            account.ended.clear();
            account.keys.clear();
            account.holds.retain(|_, hold| hold.is_open());
            self.accounts.insert(id, account);
        }
        self.as_of = Some(as_of);
        self
    }
}

fn apply<'o>(
    transaction: &Connection,
    before: &mut CachedAccounts,
    operations: &[&'o Operation],
    new: BTreeSet<&'o HoldId>,
) -> Result<(LoadedBatch, Vec<OperationOutcome>), CommitFailure> {
    let mut loaded = LoadedBatch::default();
    load_accounts(transaction, before, operations, &mut loaded)?;
    let of_keys = load_keys(transaction, operations, &mut loaded)?;
    load_holds(transaction, operations, &of_keys, new, &mut loaded)?;
    load_recorded(transaction, operations, &mut loaded)?;
    let outcomes = loaded.apply(operations.iter().copied(), None);
    write(transaction, &loaded.changes())?;
    Ok((loaded, outcomes))
}

/// Loads the operations' accounts. Creates accounts of users without one.
fn load_accounts(
    transaction: &Connection,
    before: &mut CachedAccounts,
    operations: &[&Operation],
    loaded: &mut LoadedBatch,
) -> Result<(), CommitFailure> {
    let mut find = transaction.prepare_cached(&STATEMENTS.find_account)?;
    for Operation { account: id, .. } in operations.iter().copied() {
        if loaded.accounts.contains_key(id) {
            continue;
        }
        let mut account = before.accounts.remove(id);
        if account.is_none() {
            account = read(&mut find, &id.0, |row| Ok(read_account(row)?))?;
        }
        if account.is_none() && make_account(transaction, &id.0)? {
            account = read(&mut find, &id.0, |row| Ok(read_account(row)?))?;
        }
        if let Some(account) = account {
            loaded.accounts.insert(id.clone(), account);
        }
    }
    Ok(())
}

fn make_account(transaction: &Connection, id: &str) -> Result<bool, CommitFailure> {
    let mut make = transaction.prepare_cached(&STATEMENTS.make_account)?;
    Ok(make.execute([id])? > 0)
}

/// Loads the operations' idempotency keys; returns their holds and accounts.
fn load_keys(
    transaction: &Connection,
    operations: &[&Operation],
    loaded: &mut LoadedBatch,
) -> Result<Vec<(AccountId, HoldId)>, CommitFailure> {
    let mut holds = Vec::new();
    for operation in operations {
        let Some(key) = operation.key() else {
            continue;
        };
        let mut find = transaction.prepare_cached(&STATEMENTS.find_key)?;
        let mut rows = find.query([&*operation.account.0, key])?;
        if let Some(row) = rows.next()? {
            let (account, key) = read_key(row)?;
            let hold = loaded.add_key(&account, key);
            holds.push((account, hold));
        }
    }
    Ok(holds)
}

/// Loads the holds of operations and their keys, and the holds' parents. Holds in `asked` are not loaded.
fn load_holds<'o>(
    transaction: &Connection,
    operations: &[&'o Operation],
    of_keys: &'o [(AccountId, HoldId)],
    mut asked: BTreeSet<&'o HoldId>,
    loaded: &mut LoadedBatch,
) -> Result<(), CommitFailure> {
    let named = operations.iter().flat_map(|operation| {
        let holds = operation.holds();
        holds.map(move |id| (&operation.account, id))
    });
    let named = named.chain(of_keys.iter().map(|(account, id)| (account, id)));
    for (account, id) in named {
        if !asked.insert(id) || loaded.recall_hold(account, id) {
            continue;
        }
        let parent = load_hold(transaction, id, loaded)?;
        if let Some(parent) = parent
            && !loaded.owners.contains_key(&parent)
        {
            load_hold(transaction, &parent, loaded)?;
        }
    }
    Ok(())
}

/// Returns the hold's parent, if it is open or expired.
fn load_hold(
    transaction: &Connection,
    id: &HoldId,
    loaded: &mut LoadedBatch,
) -> Result<Option<HoldId>, CommitFailure> {
    let mut find = transaction.prepare_cached(&STATEMENTS.find_hold)?;
    if let Some((account, hold)) = read(&mut find, &id.0, |row| Ok(read_hold(row)?))? {
        let parent = hold.open.parent.clone();
        loaded.add_hold(account, hold);
        return Ok(parent);
    }
    // The entries may be loaded already if the hold is another one's parent: adding them again would double them.
    if loaded.owners.contains_key(id) {
        return Ok(None);
    }
    let mut find = transaction.prepare_cached(&STATEMENTS.find_ends)?;
    let mut rows = find.query([&id.0])?;
    while let Some(row) = rows.next()? {
        let (account, end, reported) = read_end(row)?;
        loaded.add_end(account, end, reported);
    }
    Ok(None)
}

/// Loads the done operations with the ids of these operations.
fn load_recorded(
    transaction: &Connection,
    operations: &[&Operation],
    loaded: &mut LoadedBatch,
) -> Result<(), CommitFailure> {
    for operation in operations {
        if let Some(id) = operation.id() {
            let mut find = transaction.prepare_cached(&STATEMENTS.find_recorded)?;
            if let Some((_, first)) = read(&mut find, &id.0, |row| Ok(read_recorded(row)?))? {
                loaded.add_recorded(operation, first);
            }
        }
    }
    Ok(())
}

/// Returns the row with an id.
fn read<T>(
    find: &mut CachedStatement<'_>,
    id: &str,
    read: impl FnOnce(&rusqlite::Row<'_>) -> Result<T, CommitFailure>,
) -> Result<Option<T>, CommitFailure> {
    let mut rows = find.query([id])?;
    rows.next()?.map(read).transpose()
}

fn write(transaction: &Connection, changes: &BatchChanges<'_>) -> Result<(), CommitFailure> {
    let statements = &*STATEMENTS;
    let period = || ACCOUNTS.fixed.iter().chain(ACCOUNTS.key);
    let balances = || ACCOUNTS.changing.iter().chain(ACCOUNTS.key);
    // The period usually stays the same, and so does its index.
    write_rows(
        transaction,
        &statements.write_periods,
        period,
        &changes.plans,
    )?;
    write_rows(
        transaction,
        &statements.write_balances,
        balances,
        &changes.accounts,
    )?;
    // Deleted rows make room for new ones.
    for (account, id) in &changes.ended_holds {
        let mut delete = transaction.prepare_cached(DELETE_HOLD)?;
        let deleted = delete.execute([&account.0, &id.0])?;
        CommitFailure::unless_all(deleted as u64, 1)?;
    }
    write_rows(
        transaction,
        &statements.write_new_holds,
        || HOLDS.columns(),
        &changes.new_holds,
    )?;
    let columns = || HOLDS.changing.iter().chain(HOLDS.key);
    write_rows(
        transaction,
        &statements.write_holds,
        columns,
        &changes.holds,
    )?;
    let entries = &changes.entries;
    write_rows(
        transaction,
        &statements.write_entries,
        || ENTRIES.columns(),
        entries,
    )?;
    write_rows(
        transaction,
        &statements.write_keys,
        || KEYS.columns(),
        &changes.keys,
    )?;
    for (_, account) in &changes.plans {
        transaction
            .prepare_cached(WRITE_PLAN)?
            .execute([account.plan.name(), &account.id.0])?;
    }
    Ok(())
}

/// Writes rows; an unwritten row is an error. The columns are in the order of the statement's parameters.
fn write_rows<'r, T: 'static, C: Iterator<Item = &'static Column<T>>>(
    transaction: &Connection,
    statement: &str,
    columns: impl Fn() -> C,
    rows: &[AccountRow<'r, T>],
) -> Result<(), CommitFailure> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut statement = transaction.prepare_cached(statement)?;
    for row in rows {
        for (index, column) in (1..).zip(columns()) {
            statement.raw_bind_parameter(index, column.value(row))?;
        }
        CommitFailure::unless_all(statement.raw_execute()? as u64, 1)?;
    }
    Ok(())
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(integer) => ValueRef::Integer(*integer),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

const RAISE_FENCES: &str = "UPDATE node_leases SET fence = fence + 1";

const DELETE_HOLD: &str = "DELETE FROM holds WHERE account_id = ?1 AND id = ?2";

const WRITE_PLAN: &str = "UPDATE users SET plan = ?1 WHERE id = ?2 AND plan <> ?1";

struct SqliteStatements {
    find_account: String,
    make_account: String,
    find_hold: String,
    find_ends: String,
    find_key: String,
    find_recorded: String,
    write_periods: String,
    write_balances: String,
    write_new_holds: String,
    write_holds: String,
    write_entries: String,
    write_keys: String,
}

static STATEMENTS: LazyLock<SqliteStatements> = LazyLock::new(|| SqliteStatements {
    find_account: format!("{} = ?1", find_account()),
    make_account: format!("{MAKE_ACCOUNTS} = ?1"),
    find_hold: format!("SELECT {} FROM holds WHERE id = ?1", HOLDS.names()),
    find_ends: format!(
        "SELECT {} FROM entries WHERE hold_id = ?1 ORDER BY number",
        end_columns()
    ),
    find_key: format!("{} WHERE account_id = ?1 AND key = ?2", find_keys()),
    find_recorded: format!("SELECT {RECORDED} FROM entries WHERE operation_id = ?1"),
    write_periods: update(&ACCOUNTS, ACCOUNTS.fixed),
    write_balances: update(&ACCOUNTS, ACCOUNTS.changing),
    write_new_holds: insert(&HOLDS),
    write_holds: update(&HOLDS, HOLDS.changing),
    write_entries: insert(&ENTRIES),
    write_keys: format!(
        "{} ON CONFLICT ({}) DO UPDATE SET {}",
        insert(&KEYS),
        list(KEYS.key, str::to_owned),
        list(KEYS.changing, |name| format!("{name} = excluded.{name}")),
    ),
});

fn insert<T>(table: &TableLayout<T>) -> String {
    let parameters = list(table.columns(), |_| "?".to_owned());
    format!(
        "INSERT INTO {} ({}) VALUES ({parameters})",
        table.name,
        table.names()
    )
}

fn update<T>(table: &TableLayout<T>, columns: &'static [Column<T>]) -> String {
    let key: Vec<_> = table
        .key
        .iter()
        .map(|column| format!("{} = ?", column.name))
        .collect();
    let set = list(columns, |name| format!("{name} = ?"));
    format!(
        "UPDATE {} SET {set} WHERE {}",
        table.name,
        key.join(" AND ")
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use weir_storage::Database;
    use weir_storage::clock::Millis;
    use weir_storage::database::NativeConnection;
    use weir_storage::secrets::SecretUrl;

    use super::*;

    async fn open() -> NativeConnection {
        let database = Database::open(&SecretUrl::new("sqlite::memory:")).await;
        database
            .unwrap()
            .write_turn()
            .unwrap()
            .native()
            .await
            .unwrap()
    }

    #[test]
    fn not_everybody_is_remembered() {
        let mut remembered = CachedAccounts::default();
        for batch in 0..3 {
            let ids = (0..REMEMBERED / 2).map(|number| AccountId(format!("{batch}-{number}")));
            let accounts = ids.map(|id| (id.clone(), Account::new(id, Millis(0))));
            let loaded = LoadedBatch {
                accounts: accounts.collect(),
                ..LoadedBatch::default()
            };
            remembered = remembered.with(loaded, (0, batch));
            let last = AccountId(format!("{batch}-0"));
            assert!(remembered.accounts.contains_key(&last));
            assert!(remembered.accounts.len() <= REMEMBERED);
        }
        assert_eq!(remembered.as_of, Some((0, 2)));
    }

    #[test]
    fn accounts_are_forgotten_if_others_write_between_two_versions() {
        for (after, is_kept) in [((7, 2), true), ((8, 2), false)] {
            let mut remembered = CachedAccounts::default().with(LoadedBatch::default(), (7, 1));
            remembered.keep_since((7, 1), after);
            assert_eq!(remembered.as_of == Some(after), is_kept);
        }
    }

    #[tokio::test]
    async fn no_row_that_is_written_makes_a_table_to_be_checked_by() {
        let native = open().await;
        let statements = &*STATEMENTS;
        for statement in [
            &statements.write_balances,
            &statements.write_new_holds,
            &statements.write_holds,
            &statements.write_entries,
            &statements.write_keys,
            &DELETE_HOLD.to_owned(),
        ] {
            let mut explain = native.prepare(&format!("EXPLAIN {statement}")).unwrap();
            let steps = explain.raw_query().mapped(|row| row.get::<_, String>(1));
            let steps: Vec<_> = steps.collect::<Result<_, _>>().unwrap();
            assert!(steps.len() > 10, "{statement}");
            assert!(!steps.contains(&"OpenEphemeral".to_owned()), "{statement}");
        }
    }

    /// Returns whether SQLite accepts the row.
    fn is_written(native: &Connection, insert: &str) -> bool {
        let written = native.execute_batch(&format!("SAVEPOINT one; {insert}"));
        native.execute_batch("ROLLBACK TO one").unwrap();
        let refusal = written.map_err(|error| LedgerStoreError::from(CommitFailure::from(error)));
        match refusal {
            Ok(()) => true,
            Err(LedgerStoreError::Rejected(_)) => false,
            Err(other) => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn rows_with_names_that_nobody_knows_are_refused() {
        let native = open().await;
        native.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        let hold = |source: &str| {
            let insert = format!(
                "INSERT INTO holds VALUES ('h', 'a', 'r', 'b', NULL, '{source}', NULL, 'm', 0, 0, 0, 0, NULL, \
                 0, 0, 0, 0, 0, 0, NULL, NULL, NULL)"
            );
            is_written(&native, &insert)
        };
        for source in ["web", "api_key", "agent"] {
            assert!(hold(source), "{source}");
        }
        assert!(!hold("phone"));

        let entry = |kind: &str, hold: &str| {
            let insert = format!(
                "INSERT INTO entries (account_id, sequence, at, kind, plan_delta, top_up_delta, overrun, \
                 period_start, hold_id) VALUES ('a', 1, 0, '{kind}', 0, 0, 0, 0, {hold})"
            );
            is_written(&native, &insert)
        };
        for kind in [
            "settlement",
            "release",
            "expiry",
            "late_settlement",
            "late_release",
        ] {
            assert!(entry(kind, "'h'") && !entry(kind, "NULL"), "{kind}");
        }
        for kind in ["grant", "lapse", "top_up", "refund"] {
            assert!(!entry(kind, "'h'") && entry(kind, "NULL"), "{kind}");
        }
        assert!(!entry("gift", "'h'") && !entry("gift", "NULL"));
    }
}
