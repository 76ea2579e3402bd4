//! The ledger's SQL: a batch of operations in one transaction, leases, and the queries of sweeps.
//!
//! - [`rows`]: the tables; [`postgres`] and [`sqlite`]: the batches of each database. [`batch`] and [`error`] have the
//!   common parts: the data that a batch loads and writes, and its errors.
//! - [`log`]: the log of a run's settlements, and the fences of runs.
//! - [`fold`]: derived data that batches do not write: sums of usage, and the entries of each account.
//! - [`history`]: the queries about an account's past.
//!
//! **Rows of a request:** its account's row, a hold's row from opening to end, unless the hold is only in memory, and an
//! entry for that end, with the single index that detects repeats. A request that is opened and ended in memory writes a part
//! of a row of its node's log; its other rows, and on PostgreSQL that of its node's block, are written by the fold, once for all
//! requests of the account since the last one. All other data about entries is folded from them.

mod batch;
pub(crate) mod chain;
mod error;
mod fold;
pub mod history;
mod log;
mod postgres;
mod rows;
mod sqlite;
pub mod statement;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::{SqlDialect, WriteTurn};

use self::batch::find_account;
use self::error::CommitFailure;
pub use self::error::LedgerStoreError;
pub use self::fold::Fold;
pub use self::log::RenewedLease;
pub(crate) use self::log::{EndedLog, LogContent};
use self::postgres::BatchEnd;
use self::rows::{ACCOUNTS, add_sums, find_blocks, list, read_account, read_block, read_sums};
use crate::account::Account;
use crate::budgets::BudgetPart;
use crate::credits::Credits;
use crate::openings::{EXACT_FOR, NO_FENCE, Openings, TailRecord};
use crate::operation::{AccountId, Action, BootId, HoldId, OpenHold, Operation, OperationOutcome};
use crate::plans::GRACE_DAYS;
use crate::usage::{Unit, UsageSums, to_date};

/// Retention of an ended run's lease, for investigations.
const LEASE_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Retention of an expired hold, because its node may still settle it: a day.
const EXPIRED_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Expired holds that one transaction deletes, while it locks their accounts.
const EXPIRED_FORGOTTEN: i64 = 100;

/// A lease stays as long as its run has a log.
const FORGET_LEASES: &str = "DELETE FROM node_leases WHERE lease_until < $1 \
     AND NOT EXISTS (SELECT 1 FROM ledger_log l WHERE l.boot_id = node_leases.boot_id)";

/// Idempotency keys that one statement deletes.
const FORGOTTEN: i64 = 1_000;

/// Maximum number of such statements in a round: other writers need their turn.
const MOST_ROUNDS: u32 = 50;

/// The ledger in the database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LedgerStore {
    database: Database,
    /// The mutex also gives the turn to write.
    remembered: Arc<Mutex<sqlite::CachedAccounts>>,
    /// Holds in memory.
    openings: Arc<Openings>,
    /// The run that opens holds in memory.
    run: Option<BootId>,
}

/// An open hold without a live node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The hold's account.
    pub account: AccountId,
    pub hold: HoldId,
}

/// An account and the usage of its current period, from one snapshot.
#[derive(Debug, Clone)]
pub struct PeriodUsage {
    /// The account, without its holds.
    pub account: Account,
    /// The plan's credits in holds of earlier periods.
    pub plan_held_before: Credits,
    /// The period's usage by model. After refunds, sums may be zero.
    pub by_model: Vec<(String, UsageSums)>,
}

impl LedgerStore {
    pub fn new(database: Database) -> Self {
        Self {
            openings: database.shared(),
            database,
            remembered: Arc::default(),
            run: None,
        }
    }

    /// Makes the store of a node's run, which can open holds in memory. Only one of its commits may run at a time.
    pub fn of_run(database: Database, run: BootId) -> Self {
        let store = Self::new(database);
        if store.database.dialect() == SqlDialect::Sqlite {
            store.openings.begin_run(run.clone());
        }
        Self {
            run: Some(run),
            ..store
        }
    }

    /// Does all operations, in order and in one transaction. In SQLite, it blocks the thread.
    ///
    /// Without a run, the operations are a command's. In a process that serves on SQLite, they are its run's.
    pub async fn commit(
        &self,
        operations: &[Operation],
    ) -> Result<Vec<OperationOutcome>, LedgerStoreError> {
        let Some(run) = self.run() else {
            return self.commit_of_command(operations).await;
        };
        loop {
            let folds = self.openings.long_tails(operations);
            let batch = if folds.is_empty() { operations } else { &folds };
            let outcomes = match self.database.write_turn() {
                Some(turn) => self.commit_on_sqlite(turn, batch, &run).await?,
                None => self.commit_on_postgres(batch, &run).await?,
            };
            if folds.is_empty() {
                return Ok(outcomes);
            }
        }
    }

    /// Returns the run of the batches.
    fn run(&self) -> Option<BootId> {
        match self.database.dialect() {
            SqlDialect::Sqlite => self.openings.run(),
            SqlDialect::Postgres => self.run.clone(),
        }
    }

    async fn commit_of_command(
        &self,
        operations: &[Operation],
    ) -> Result<Vec<OperationOutcome>, LedgerStoreError> {
        if let Some(turn) = self.database.write_turn() {
            let mut native = turn.native().await.map_err(CommitFailure::from)?;
            return sqlite::commit_of_command(&mut native, operations);
        }
        let operations: Vec<_> = operations.iter().collect();
        let end = postgres::commit(&self.database, &operations, BTreeSet::new(), None).await?;
        Ok(end.outcomes())
    }

    async fn commit_on_sqlite(
        &self,
        turn: &WriteTurn,
        operations: &[Operation],
        run: &BootId,
    ) -> Result<Vec<OperationOutcome>, LedgerStoreError> {
        let mut native = turn.native().await.map_err(CommitFailure::from)?;
        let mut remembered = self.remembered();
        loop {
            let batch = self.openings.prepare(operations, |account, hold| {
                remembered.get(account)?.holds.get(hold)
            });
            let end = sqlite::commit(
                &mut native,
                &mut remembered,
                &batch.operations(),
                batch.new_holds(),
                (run, batch.fence()),
            )?;
            match end {
                sqlite::BatchEnd::Fenced(fence) => self.openings.forget(run, fence),
                sqlite::BatchEnd::Committed(outcomes) => {
                    batch.check_folds(&outcomes);
                    self.openings.conclude(&batch, |id| remembered.get(id));
                    return Ok(batch.asked(outcomes));
                }
            }
        }
    }

    async fn commit_on_postgres(
        &self,
        operations: &[Operation],
        run: &BootId,
    ) -> Result<Vec<OperationOutcome>, LedgerStoreError> {
        let now = operations.iter().map(|operation| operation.at).max();
        let now = now.unwrap_or(Millis(0));
        // The second time, the short accounts have no blocks of this run.
        loop {
            let batch = self.openings.prepare_run(operations, run);
            let new = batch.new_holds().collect();
            let fenced = Some((run, batch.fence()));
            let end = postgres::commit(&self.database, &batch.operations(), new, fenced).await?;
            match end {
                BatchEnd::Fenced => self.openings.forget(run, NO_FENCE),
                BatchEnd::Short(accounts) => {
                    for account in &accounts {
                        self.be_exact(account, now);
                    }
                }
                BatchEnd::Committed {
                    outcomes,
                    accounts,
                    called,
                } => {
                    for account in &called {
                        self.be_exact(account, now);
                    }
                    batch.check_folds(&outcomes);
                    self.openings.conclude_run(&batch, &accounts, run, now);
                    return Ok(batch.asked(outcomes));
                }
            }
        }
    }

    /// Opens a hold with a new id in memory; returns the unopened hold if only [`Self::commit`] can decide about it.
    pub fn open_in_memory(
        &self,
        account: &AccountId,
        at: Millis,
        open: OpenHold,
        boot_id: &BootId,
    ) -> Option<OpenHold> {
        match (self.database.dialect(), &self.run) {
            (_, None) => Some(open),
            (SqlDialect::Sqlite, Some(_)) => self.openings.open(account, at, open, boot_id),
            (SqlDialect::Postgres, Some(run)) => {
                self.openings.open_from_block(account, at, open, run)
            }
        }
    }

    /// Returns the credits that a new hold for these parts may take, if they are in memory.
    pub(crate) fn spendable(
        &self,
        account: &AccountId,
        parts: &[BudgetPart],
        top_up_only: bool,
        at: Millis,
    ) -> Option<Credits> {
        match (self.database.dialect(), &self.run) {
            (SqlDialect::Sqlite, _) => self.openings.spendable(account, parts, top_up_only, at),
            (SqlDialect::Postgres, run) => {
                let run = run.as_ref()?;
                self.openings
                    .spendable_by_block(account, parts, top_up_only, at, run)
            }
        }
    }

    /// Opens nothing in memory for an account for [`EXACT_FOR`], because another node needs its credits.
    pub(crate) fn be_exact(&self, account: &AccountId, now: Millis) {
        let until = Millis(now.0 + EXACT_FOR.as_millis() as i64);
        self.openings.be_exact(account, until);
    }

    /// Forgets the run's accounts and blocks, because others may have changed them. From now on, the run has this fence.
    pub fn forget(&self, fence: i64) {
        if let Some(run) = &self.run {
            self.openings.forget(run, fence);
        }
    }

    /// Ends a hold in memory by a record for the log; returns the operation if only [`Self::commit`] can do it.
    pub fn end_in_memory(&self, operation: Operation) -> Result<Arc<TailRecord>, Box<Operation>> {
        match (self.database.dialect(), &self.run) {
            (_, None) => Err(Box::new(operation)),
            (SqlDialect::Sqlite, Some(_)) => self.openings.end(operation),
            (SqlDialect::Postgres, Some(_)) => self.openings.end_from_block(operation),
        }
    }

    /// Returns whether this store's run has blocks, which other nodes may return.
    pub(crate) fn has_blocks(&self) -> bool {
        self.run.is_some() && self.database.dialect() == SqlDialect::Postgres
    }

    /// Folds the settlements of an account, or of all, so that a reader of the database finds what was answered. In a command
    /// on SQLite, these are all of the log.
    pub async fn fold_for_reader(&self, id: Option<&AccountId>) {
        if self.database.write_turn().is_none() || self.run().is_some() {
            self.openings.fold_for_reader(id).await;
        } else if let Err(error) = self.commit_of_command(&[]).await {
            tracing::warn!(%error, "cannot fold settlements into their accounts");
        }
    }

    pub(crate) fn openings(&self) -> &Openings {
        &self.openings
    }

    /// Returns up to `limit` accounts with blocks of this run which another node has called back.
    pub(crate) async fn find_called(&self, limit: u32) -> sqlx::Result<Vec<AccountId>> {
        self.find_blocks_of_run("called_at IS NOT NULL AND", i64::MAX, limit)
            .await
    }

    /// Returns up to `limit` accounts with blocks of this run which have not changed since a moment.
    pub(crate) async fn find_idle_blocks(
        &self,
        since: Millis,
        limit: u32,
    ) -> sqlx::Result<Vec<AccountId>> {
        self.find_blocks_of_run("", since.0, limit).await
    }

    async fn find_blocks_of_run(
        &self,
        condition: &str,
        since: i64,
        limit: u32,
    ) -> sqlx::Result<Vec<AccountId>> {
        let Some(run) = &self.run else {
            return Ok(Vec::new());
        };
        let ids: Vec<String> = sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT DISTINCT account_id FROM blocks WHERE boot_id = $1 AND {condition} \
             used_at <= $2 LIMIT $3"
        )))
        .bind(run.as_str())
        .bind(since)
        .bind(i64::from(limit))
        .fetch_all(self.database.reader())
        .await?;
        Ok(ids.into_iter().map(AccountId).collect())
    }

    /// Returns up to `limit` accounts with blocks of runs without a valid lease whose logs are folded, and the actions that
    /// return them.
    pub(crate) async fn find_orphaned_blocks(
        &self,
        now: Millis,
        limit: u32,
    ) -> sqlx::Result<Vec<(AccountId, Action)>> {
        let sql = format!(
            "{} SELECT b.account_id, b.boot_id FROM ended JOIN blocks b ON b.boot_id = ended.boot_id \
             WHERE NOT {MAY_APPEND} LIMIT $2",
            of_ended_runs("blocks", "1 = 1"),
            MAY_APPEND = log::may_append("b.boot_id")
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(now.0)
            .bind(i64::from(limit))
            .fetch_all(self.database.reader())
            .await?;
        let read = |row: &AnyRow| {
            let boot_id = BootId::of(&row.try_get::<String, _>(1)?);
            let boot_id =
                boot_id.ok_or_else(|| sqlx::Error::Decode("a run without a name".into()))?;
            let end = Action::EndBlocks {
                boot_id,
                unless_leased: true,
            };
            Ok((AccountId(row.try_get(0)?), end))
        };
        rows.iter().map(read).collect()
    }

    /// Locks the remembered accounts; call it only in one's turn.
    fn remembered(&self) -> MutexGuard<'_, sqlite::CachedAccounts> {
        // A batch that panics leaves this empty.
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the database is closed, so that nothing can be committed any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.database.is_closed()
    }

    /// Returns an account without its holds; `None` if it had no operation yet.
    pub async fn find_account(&self, id: &AccountId) -> sqlx::Result<Option<Account>> {
        self.fold_for_reader(Some(id)).await;
        let account = sqlx::query(AssertSqlSafe(format!("{} = $1", find_account())))
            .bind(&id.0)
            .fetch_optional(self.database.reader())
            .await?;
        match account.as_ref().map(read_account).transpose()? {
            Some(account) => self.with_holds_in_memory(account).await.map(Some),
            None => Ok(None),
        }
    }

    /// Adds this process's holds in memory to an account. The rest of the nodes' blocks is available.
    async fn with_holds_in_memory(&self, mut account: Account) -> sqlx::Result<Account> {
        let is_held = account.held.total() > Credits::ZERO;
        if is_held && self.database.dialect() == SqlDialect::Postgres {
            let rows = sqlx::query(AssertSqlSafe(format!("{} = $1", find_blocks())))
                .bind(&account.id.0)
                .fetch_all(self.database.reader())
                .await?;
            for row in &rows {
                let (_, block, _) = read_block(row, 0)?;
                account.without_block(&block);
            }
        }
        self.openings.add_to(&mut account);
        Ok(account)
    }

    /// Returns the time of a user's first request; `None` if the user does not exist.
    pub async fn find_user_since(&self, id: &AccountId) -> sqlx::Result<Option<Millis>> {
        let since = sqlx::query_scalar("SELECT created_at FROM users WHERE id = $1")
            .bind(&id.0)
            .fetch_optional(self.database.reader())
            .await?;
        Ok(since.map(Millis))
    }

    /// Returns an account and its period's usage; `None` if it had no operation yet.
    pub async fn find_period_usage(&self, id: &AccountId) -> sqlx::Result<Option<PeriodUsage>> {
        self.fold_for_reader(Some(id)).await;
        // One statement, so that no settlement changes data between the balance and the sums. Open holds are few.
        let rows = sqlx::query(AssertSqlSafe(period_usage()))
            .bind(&id.0)
            .fetch_all(self.database.reader())
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let mut by_model = Vec::new();
        for row in &rows {
            if let Some(model) = row.try_get("model")? {
                add_sums(&mut by_model, model, read_sums(row)?);
            }
        }
        Ok(Some(PeriodUsage {
            account: self.with_holds_in_memory(read_account(row)?).await?,
            plan_held_before: Credits::from_micro(row.try_get("plan_held_before")?),
            by_model,
        }))
    }

    /// Stores the kind of each model, and the unit of its price, for usage that names no unit. A stored model stays as it
    /// is: such usage is from before. The unit is unknown for usage in search units, which was not counted.
    pub async fn keep_model_kinds(
        &self,
        models: &[(String, &str, Unit)],
        now: Millis,
    ) -> sqlx::Result<()> {
        let models: Vec<_> = models
            .iter()
            .map(|(model, kind, unit)| {
                let unit = match unit {
                    Unit::SearchUnits => Unit::UNKNOWN,
                    unit => unit.name(),
                };
                serde_json::json!({ "model": model, "kind": kind, "unit": unit })
            })
            .collect();
        let listed = match self.database.dialect() {
            SqlDialect::Sqlite => {
                "SELECT value ->> 'model', value ->> 'kind', value ->> 'unit', CAST($2 AS BIGINT) FROM json_each($1) WHERE TRUE"
            }
            SqlDialect::Postgres => {
                "SELECT value ->> 'model', value ->> 'kind', value ->> 'unit', CAST($2 AS BIGINT) \
                 FROM jsonb_array_elements(CAST($1 AS JSONB)) ORDER BY 1"
            }
        };
        let statement = format!(
            "INSERT INTO model_kinds (model, kind, unit, kept_at) {listed} ON CONFLICT (model) DO NOTHING"
        );
        let mut transaction = self.database.begin().await?;
        sqlx::query(AssertSqlSafe(statement))
            .bind(serde_json::Value::from(models).to_string())
            .bind(now.0)
            .execute(&mut transaction)
            .await?;
        transaction.commit().await
    }

    /// Returns the time from which the units of usage are stored; `None` if no node has started since.
    pub async fn find_units_since(&self) -> sqlx::Result<Option<Millis>> {
        let since: Option<i64> = sqlx::query_scalar("SELECT MIN(kept_at) FROM model_kinds")
            .fetch_one(self.database.reader())
            .await?;
        Ok(since.map(Millis))
    }

    /// Returns the number of a run's open holds.
    pub async fn count_open_holds(&self, boot_id: &BootId) -> sqlx::Result<i64> {
        let count =
            "SELECT CAST(COUNT(*) AS BIGINT) FROM holds WHERE boot_id = $1 AND expired_at IS NULL";
        let stored: i64 = sqlx::query_scalar(count)
            .bind(boot_id.as_str())
            .fetch_one(self.database.reader())
            .await?;
        Ok(stored + self.openings.count(boot_id) as i64)
    }

    /// Ends a run's lease: any node may end its open holds.
    pub async fn end_lease(&self, boot_id: &BootId, now: Millis) -> sqlx::Result<()> {
        sqlx::query("UPDATE node_leases SET lease_until = $1 WHERE boot_id = $2")
            .bind(now.0)
            .bind(boot_id.as_str())
            .execute(self.database.writer())
            .await
            .map(drop)
    }

    /// Returns the runs with a valid lease.
    pub async fn live_runs(&self, now: Millis) -> sqlx::Result<Vec<BootId>> {
        let live = "SELECT boot_id FROM node_leases WHERE lease_until > $1";
        let ids: Vec<String> = sqlx::query_scalar(live)
            .bind(now.0)
            .fetch_all(self.database.reader())
            .await?;
        Ok(ids.iter().filter_map(|id| BootId::of(id)).collect())
    }

    /// Deletes leases after their retention.
    pub async fn forget_leases(&self, now: Millis) -> sqlx::Result<()> {
        sqlx::query(FORGET_LEASES)
            .bind(now.0 - LEASE_KEPT.as_millis() as i64)
            .execute(self.database.writer())
            .await
            .map(drop)
    }

    /// Deletes idempotency keys after their retention, in limited batches.
    pub async fn forget_keys(&self, now: Millis) -> sqlx::Result<()> {
        for _ in 0..MOST_ROUNDS {
            let forgotten = sqlx::query(
                "DELETE FROM idempotency_keys WHERE (account_id, key) IN \
                 (SELECT account_id, key FROM idempotency_keys WHERE expires_at <= $1 \
                 ORDER BY expires_at LIMIT $2)",
            )
            .bind(now.0)
            .bind(FORGOTTEN)
            .execute(self.database.writer())
            .await?
            .rows_affected();
            if forgotten < FORGOTTEN as u64 {
                break;
            }
        }
        Ok(())
    }

    /// Deletes the idempotency keys of an account's completed requests, with the stored responses, in batches. Repeats
    /// of these requests then count as new ones.
    pub async fn forget_keys_of(&self, id: &AccountId) -> sqlx::Result<()> {
        loop {
            let forgotten = sqlx::query(
                "DELETE FROM idempotency_keys WHERE account_id = $1 AND key IN \
                 (SELECT key FROM idempotency_keys WHERE account_id = $1 AND completed_at IS NOT NULL LIMIT $2)",
            )
            .bind(&*id.0)
            .bind(FORGOTTEN)
            .execute(self.database.writer())
            .await?
            .rows_affected();
            if forgotten < FORGOTTEN as u64 {
                return Ok(());
            }
        }
    }

    /// Deletes holds that expired more than a day ago, in limited batches. A later settlement changes nothing: the
    /// entry of the expiry stands.
    pub async fn forget_expired_holds(&self, now: Millis) -> sqlx::Result<()> {
        let before = now.0 - EXPIRED_KEPT.as_millis() as i64;
        for _ in 0..MOST_ROUNDS {
            let mut transaction = self.database.begin().await?;
            let rows = sqlx::query(
                "SELECT id, account_id FROM holds WHERE expired_at < $1 ORDER BY expired_at LIMIT $2",
            )
            .bind(before)
            .bind(EXPIRED_FORGOTTEN)
            .fetch_all(&mut transaction)
            .await?;
            let old = read_orphans(&rows)?;
            if self.database.dialect() == SqlDialect::Postgres {
                // The account locks keep a concurrent batch from a late settlement of a hold that it has already read.
                let accounts: BTreeSet<_> = old.iter().map(|old| &*old.account.0).collect();
                sqlx::query(
                    "SELECT id FROM accounts WHERE id IN \
                     (SELECT jsonb_array_elements_text(CAST($1 AS JSONB))) ORDER BY id FOR UPDATE",
                )
                .bind(rows::json(&accounts))
                .fetch_all(&mut transaction)
                .await?;
            }
            for old in &old {
                sqlx::query("DELETE FROM holds WHERE id = $1 AND expired_at < $2")
                    .bind(&old.hold.0)
                    .bind(before)
                    .execute(&mut transaction)
                    .await?;
            }
            transaction.commit().await?;
            if old.len() < EXPIRED_FORGOTTEN as usize {
                break;
            }
        }
        Ok(())
    }

    /// Returns up to `limit` accounts whose paid plan has ended. A period of the free plan begins with the account's
    /// next operation, so that no sweep touches every account.
    pub async fn find_lapsed_accounts(
        &self,
        now: Millis,
        limit: u32,
    ) -> sqlx::Result<Vec<AccountId>> {
        // Paid plans have a grace period, in which their next period may still be paid.
        let of_paid_plans = Millis(now.0 - GRACE_DAYS * 86_400_000);
        let ids: Vec<String> = sqlx::query_scalar(
            "SELECT id FROM accounts WHERE plan <> 'free' AND period_end <= $1 \
             AND (cancelled_at IS NOT NULL OR period_end <= $2) ORDER BY period_end LIMIT $3",
        )
        .bind(now.0)
        .bind(of_paid_plans.0)
        .bind(i64::from(limit))
        .fetch_all(self.database.reader())
        .await?;
        Ok(ids.into_iter().map(AccountId).collect())
    }

    /// Returns up to `limit` accounts that owe credits although they have free ones. A release until November 2026 has
    /// left such accounts behind; today, each operation collects.
    pub async fn find_uncollected_accounts(&self, limit: u32) -> sqlx::Result<Vec<AccountId>> {
        let ids: Vec<String> = sqlx::query_scalar(
            "SELECT id FROM accounts WHERE owed > 0 \
             AND plan_credits + top_up_credits > plan_held + top_up_held LIMIT $1",
        )
        .bind(i64::from(limit))
        .fetch_all(self.database.reader())
        .await?;
        Ok(ids.into_iter().map(AccountId).collect())
    }

    /// Returns up to `limit` open holds of runs without a valid lease.
    pub async fn find_orphans(&self, now: Millis, limit: u32) -> sqlx::Result<Vec<Orphan>> {
        let sql = format!(
            "{} SELECT h.id, h.account_id FROM ended JOIN holds h ON h.boot_id = ended.boot_id \
             WHERE h.expired_at IS NULL LIMIT $2",
            of_ended_runs("holds", "expired_at IS NULL")
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(now.0)
            .bind(i64::from(limit))
            .fetch_all(self.database.reader())
            .await?;
        read_orphans(&rows)
    }

    /// Returns up to `limit` open holds of a run that were opened before this moment.
    pub async fn find_overdue(
        &self,
        boot_id: &BootId,
        opened_before: Millis,
        limit: u32,
    ) -> sqlx::Result<Vec<Orphan>> {
        let rows = sqlx::query(
            "SELECT id, account_id FROM holds WHERE expired_at IS NULL AND boot_id = $1 AND opened_at < $2 LIMIT $3",
        )
        .bind(boot_id.as_str())
        .bind(opened_before.0)
        .bind(i64::from(limit))
        .fetch_all(self.database.reader())
        .await?;
        let mut found = read_orphans(&rows)?;
        let in_memory = self.openings.find_overdue(boot_id, opened_before);
        let room = (limit as usize).saturating_sub(found.len());
        found.extend(
            in_memory
                .into_iter()
                .take(room)
                .map(|(account, hold)| Orphan { account, hold }),
        );
        Ok(found)
    }
}

/// Returns the start of a query for rows of runs without a valid lease at `$1`: their ids, as `ended`.
///
/// One index step finds each run, and the rows of a run with a lease are not read.
fn of_ended_runs(table: &str, condition: &str) -> String {
    format!(
        "WITH RECURSIVE runs (boot_id) AS (SELECT MIN(boot_id) FROM {table} WHERE {condition} UNION ALL \
         SELECT (SELECT MIN(t.boot_id) FROM {table} t WHERE {condition} AND t.boot_id > runs.boot_id) \
         FROM runs WHERE runs.boot_id IS NOT NULL), \
         ended (boot_id) AS MATERIALIZED (SELECT boot_id FROM runs WHERE boot_id IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM node_leases l WHERE l.boot_id = runs.boot_id AND l.lease_until > $1))"
    )
}

fn read_orphans(rows: &[AnyRow]) -> sqlx::Result<Vec<Orphan>> {
    let read = |row: &AnyRow| {
        Ok(Orphan {
            hold: HoldId(row.try_get(0)?),
            account: AccountId(row.try_get(1)?),
        })
    };
    rows.iter().map(read).collect()
}

/// Returns the query for [`LedgerStore::find_period_usage`]: a row for each model, with the columns of the account first.
fn period_usage() -> String {
    let account = list(ACCOUNTS.columns(), |name| format!("accounts.{name}"));
    let sums = UsageSums::columns();
    let of_period = "account_id = $1 \
                     AND period_start = (SELECT period_start FROM accounts WHERE id = $1)";
    let usage = to_date(of_period);
    format!(
        "SELECT {account}, accounts.created_at, model, unit, {sums}, \
         CAST(CASE WHEN accounts.plan_held = 0 THEN 0 ELSE \
         (SELECT COALESCE(SUM(holds.plan_reserved), 0) FROM holds WHERE holds.account_id = accounts.id \
         AND holds.expired_at IS NULL AND holds.period_number < accounts.period_number) \
         + (SELECT COALESCE(SUM(blocks.plan_reserved), 0) FROM blocks WHERE blocks.account_id = accounts.id \
         AND blocks.period_number < accounts.period_number) END AS BIGINT) \
         AS plan_held_before \
         FROM accounts LEFT JOIN {usage} ON account_id = accounts.id \
         WHERE accounts.id = $1 GROUP BY accounts.id, model, unit ORDER BY model"
    )
}
