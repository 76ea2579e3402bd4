//! The ledger's SQL: a batch of operations in one transaction, leases, and what a sweep looks for.
//!
//! Rows travel to the database as one JSON text for each table, so that a batch of any size is the same
//! few statements. Accounts are locked in the order of their ids, and everything else that a batch reads
//! or writes belongs to an account that it has locked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row, SqlSafeStr, SqlStr};

use super::account::{Account, Entry, Hold, HoldState, Pools, Recorded, apply};
use super::operation::{
    AccountId, Action, Done, HoldId, Open, Operation, OperationId, Outcome, Refusal, Source, Usage,
};
use crate::billing::idempotency;
use crate::billing::plans::GRACE_DAYS;
use crate::billing::plans::day;
use crate::billing::{Credits, Period, Plan};
use crate::clock::Millis;
use crate::storage::Database;
use crate::storage::database::{Dialect, Transaction};

/// How long the lease of a run that is over is kept, for those who look into what happened.
const LEASE_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The ledger in the database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
    statements: Statements,
}

/// Why a batch has no outcomes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The database could not do it now, and has done none of it.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// The database may have done all of it, or none.
    #[error("the answer to a commit was lost: {0}")]
    Unknown(String),
    /// The database will not do it, and has done none of it.
    #[error("the database refuses: {0}")]
    Rejected(String),
}

/// An open hold of a run whose lease is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Whose.
    pub account: AccountId,
    /// Which.
    pub hold: HoldId,
}

impl Store {
    /// The ledger in this database.
    pub fn new(database: Database) -> Self {
        Self {
            statements: Statements::of(database.dialect()),
            database,
        }
    }

    /// Does all operations, in order and in one transaction.
    pub async fn commit(&self, operations: &[Operation]) -> Result<Vec<Outcome>, StoreError> {
        let mut transaction = self.database.begin().await.map_err(classify)?;
        let outcomes = self
            .run(&mut transaction, operations)
            .await
            .map_err(classify)?;
        match transaction.commit().await {
            Ok(()) => Ok(outcomes),
            Err(error) => Err(StoreError::Unknown(error.to_string())),
        }
    }

    /// An account as it is, with none of its holds; `None` if it has not asked for anything yet.
    pub async fn find_account(&self, id: &AccountId) -> sqlx::Result<Option<Account>> {
        sqlx::query(self.statements.find_account.clone())
            .bind(serde_json::json!([id]).to_string())
            .fetch_optional(self.database.reader())
            .await?
            .map(|row| read_account(&row))
            .transpose()
    }

    /// When a user was first seen; `None` if there is no such user.
    pub async fn find_user_since(&self, id: &AccountId) -> sqlx::Result<Option<Millis>> {
        let since = sqlx::query_scalar("SELECT created_at FROM users WHERE id = $1")
            .bind(&id.0)
            .fetch_optional(self.database.reader())
            .await?;
        Ok(since.map(Millis))
    }

    /// Begins a run's lease or makes it longer, never shorter.
    pub async fn renew_lease(&self, boot_id: &str, now: Millis, until: Millis) -> sqlx::Result<()> {
        sqlx::query(
            "INSERT INTO node_leases (boot_id, started_at, lease_until) VALUES ($1, $2, $3) \
             ON CONFLICT (boot_id) DO UPDATE SET lease_until = excluded.lease_until \
             WHERE node_leases.lease_until < excluded.lease_until",
        )
        .bind(boot_id)
        .bind(now.0)
        .bind(until.0)
        .execute(self.database.writer())
        .await
        .map(drop)
    }

    /// Ends a run's lease: what it left open is anybody's.
    pub async fn end_lease(&self, boot_id: &str, now: Millis) -> sqlx::Result<()> {
        sqlx::query("UPDATE node_leases SET lease_until = $1 WHERE boot_id = $2")
            .bind(now.0)
            .bind(boot_id)
            .execute(self.database.writer())
            .await
            .map(drop)
    }

    /// Forgets leases that were over long ago, and idempotency keys that have been kept long enough.
    pub async fn forget(&self, now: Millis) -> sqlx::Result<()> {
        sqlx::query("DELETE FROM node_leases WHERE lease_until < $1")
            .bind(now.0 - LEASE_KEPT.as_millis() as i64)
            .execute(self.database.writer())
            .await?;
        idempotency::forget(&self.database, now).await
    }

    /// Accounts whose next period is due, at most so many.
    pub async fn find_due_accounts(&self, now: Millis, limit: u32) -> sqlx::Result<Vec<AccountId>> {
        // Paid plans have a grace, in which their next period may still be paid for.
        let of_paid_plans = Millis(now.0 - GRACE_DAYS * 86_400_000);
        let ids: Vec<String> = sqlx::query_scalar(
            "SELECT id FROM accounts WHERE period_end <= $1 AND (plan = 'free' OR period_end <= $2) \
             ORDER BY period_end LIMIT $3",
        )
        .bind(now.0)
        .bind(of_paid_plans.0)
        .bind(i64::from(limit))
        .fetch_all(self.database.reader())
        .await?;
        Ok(ids.into_iter().map(AccountId).collect())
    }

    /// Open holds that no run's valid lease covers, at most so many. In the order of the index on open holds: in that of
    /// their ids, SQLite would walk all that ever were.
    pub async fn find_orphans(&self, now: Millis, limit: u32) -> sqlx::Result<Vec<Orphan>> {
        let rows = sqlx::query(
            "SELECT id, account_id FROM holds WHERE state = 'open' AND NOT EXISTS \
             (SELECT 1 FROM node_leases WHERE node_leases.boot_id = holds.boot_id AND lease_until > $1) \
             ORDER BY boot_id LIMIT $2",
        )
        .bind(now.0)
        .bind(i64::from(limit))
        .fetch_all(self.database.reader())
        .await?;
        rows.iter()
            .map(|row| {
                Ok(Orphan {
                    hold: HoldId(row.try_get(0)?),
                    account: AccountId(row.try_get(1)?),
                })
            })
            .collect()
    }

    async fn run(
        &self,
        transaction: &mut Transaction,
        operations: &[Operation],
    ) -> Result<Vec<Outcome>, Failure> {
        let mut accounts = self.load_accounts(transaction, operations).await?;
        let strangers = self
            .load_holds(transaction, operations, &mut accounts)
            .await?;
        self.load_recorded(transaction, operations, &mut accounts)
            .await?;
        let outcomes = operations
            .iter()
            .map(|operation| match accounts.get_mut(&operation.account) {
                None => Err(Refusal::UnknownAccount),
                Some(account) => match &operation.action {
                    Action::Open(open) if strangers.contains(&open.hold) => Err(Refusal::Conflict),
                    _ => apply(operation, account),
                },
            })
            .collect();
        self.write(transaction, &accounts).await?;
        Ok(outcomes)
    }

    /// Locks the accounts that operations are about. Those of users who have none yet are made.
    async fn load_accounts(
        &self,
        transaction: &mut Transaction,
        operations: &[Operation],
    ) -> Result<BTreeMap<AccountId, Account>, Failure> {
        let wanted: BTreeSet<_> = operations
            .iter()
            .map(|operation| &operation.account)
            .collect();
        let ids = json(&wanted);
        let mut accounts = self.lock_accounts(transaction, &ids).await?;
        if accounts.len() < wanted.len() {
            sqlx::query(self.statements.make_accounts.clone())
                .bind(&ids)
                .execute(&mut *transaction)
                .await?;
            // Also if none was made: another node may have, for which the insertion has waited.
            accounts = self.lock_accounts(transaction, &ids).await?;
        }
        Ok(accounts)
    }

    async fn lock_accounts(
        &self,
        transaction: &mut Transaction,
        ids: &str,
    ) -> Result<BTreeMap<AccountId, Account>, Failure> {
        let rows = sqlx::query(self.statements.lock_accounts.clone())
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

    /// Loads the holds that operations name, and their parents. Returns those that belong to others.
    async fn load_holds(
        &self,
        transaction: &mut Transaction,
        operations: &[Operation],
        accounts: &mut BTreeMap<AccountId, Account>,
    ) -> Result<BTreeSet<HoldId>, Failure> {
        let wanted: BTreeSet<_> = operations.iter().flat_map(Operation::holds).collect();
        let mut strangers = BTreeSet::new();
        if wanted.is_empty() {
            return Ok(strangers);
        }
        let rows = sqlx::query(self.statements.load_holds.clone())
            .bind(json(&wanted))
            .fetch_all(&mut *transaction)
            .await?;
        let mut owners = BTreeMap::new();
        for row in &rows {
            let account = AccountId(row.try_get("account_id")?);
            let hold = read_hold(row)?;
            owners.insert(hold.open.hold.clone(), account.clone());
            if let Some(account) = accounts.get_mut(&account) {
                account.holds.insert(hold.open.hold.clone(), hold);
            }
        }
        for operation in operations {
            if let Action::Open(open) = &operation.action
                && owners
                    .get(&open.hold)
                    .is_some_and(|owner| *owner != operation.account)
            {
                strangers.insert(open.hold.clone());
            }
        }
        Ok(strangers)
    }

    /// Loads what was done under the ids that operations bring.
    async fn load_recorded(
        &self,
        transaction: &mut Transaction,
        operations: &[Operation],
        accounts: &mut BTreeMap<AccountId, Account>,
    ) -> Result<(), Failure> {
        let wanted: BTreeSet<_> = operations.iter().filter_map(Operation::id).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query(self.statements.load_recorded.clone())
            .bind(json(&wanted))
            .fetch_all(&mut *transaction)
            .await?;
        let mut recorded = BTreeMap::new();
        for row in &rows {
            let plan = Credits(row.try_get("plan_delta")?);
            let top_up = Credits(row.try_get("top_up_delta")?);
            let outcome = match row.try_get::<&str, _>("kind")? {
                "grant" => Done::Granted { credits: plan },
                "top_up" => Done::ToppedUp { credits: top_up },
                _ => Done::Refunded {
                    credits: Pools {
                        plan: plan.negated(),
                        top_up: top_up.negated(),
                    }
                    .total(),
                },
            };
            recorded.insert(
                OperationId(row.try_get("operation_id")?),
                Recorded {
                    content: row.try_get("operation")?,
                    outcome,
                },
            );
        }
        for operation in operations {
            if let Some(id) = operation.id()
                && let Some(first) = recorded.get(id)
                && let Some(account) = accounts.get_mut(&operation.account)
            {
                account.recorded.insert(id.clone(), first.clone());
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        transaction: &mut Transaction,
        accounts: &BTreeMap<AccountId, Account>,
    ) -> Result<(), Failure> {
        let mut account_rows = Vec::new();
        let mut hold_rows = Vec::new();
        let mut entry_rows = Vec::new();
        let mut usage_rows = BTreeMap::<UsageKey, UsageSums>::new();
        for account in accounts.values() {
            if account.journal.account {
                account_rows.push(AccountRow::of(account));
            }
            for id in &account.journal.holds {
                if let Some(hold) = account.holds.get(id) {
                    hold_rows.push(HoldRow::of(&account.id, hold));
                }
            }
            for entry in &account.journal.entries {
                entry_rows.push(EntryRow::of(&account.id, entry));
                add_usage(&mut usage_rows, &account.id, entry);
            }
        }
        let usage_rows: Vec<_> = usage_rows
            .iter()
            .map(|(key, sums)| UsageRow { key, sums })
            .collect();
        let statements = &self.statements;
        // Entries refer to holds, and holds to accounts.
        write_rows(transaction, &statements.write_accounts, &account_rows).await?;
        write_rows(transaction, &statements.write_holds, &hold_rows).await?;
        write_rows(transaction, &statements.write_entries, &entry_rows).await?;
        write_rows(transaction, &statements.write_usage, &usage_rows).await?;
        let begun = accounts.values().filter(|account| {
            let entries = &account.journal.entries;
            entries
                .iter()
                .any(|entry| entry.kind == super::account::EntryKind::Grant)
        });
        let begun: Vec<_> = begun.map(AccountRow::of).collect();
        write_some_rows(transaction, &statements.write_plans, &begun).await
    }
}

/// Writes rows, each of which must be written.
async fn write_rows<T: Serialize>(
    transaction: &mut Transaction,
    statement: &SqlStr,
    rows: &[T],
) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let written = sqlx::query(statement.clone())
        .bind(json(&rows))
        .execute(transaction)
        .await?
        .rows_affected();
    if written == rows.len() as u64 {
        Ok(())
    } else {
        Err(Failure::Incomplete {
            written,
            wanted: rows.len(),
        })
    }
}

async fn write_some_rows<T: Serialize>(
    transaction: &mut Transaction,
    statement: &SqlStr,
    rows: &[T],
) -> Result<(), Failure> {
    if !rows.is_empty() {
        sqlx::query(statement.clone())
            .bind(json(&rows))
            .execute(transaction)
            .await?;
    }
    Ok(())
}

/// What went wrong inside a transaction, which is rolled back for it.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("{written} of {wanted} rows were written: an id is another account's")]
    Incomplete { written: u64, wanted: usize },
}

/// Before a commit was asked for, so that nothing was done.
fn classify(failure: impl Into<Failure>) -> StoreError {
    let failure = failure.into();
    let text = failure.to_string();
    let rejected = match &failure {
        Failure::Incomplete { .. } => true,
        Failure::Database(sqlx::Error::Database(error)) => {
            let code = error.code().unwrap_or_default();
            match code.parse::<i64>() {
                // SQLite: the low byte is an error, a constraint, a wrong type, or a value too large.
                Ok(code) if code < 10_000 => matches!(code & 0xff, 1 | 18 | 19 | 20),
                // PostgreSQL's classes: what it cannot do, data exceptions, constraints, what it does not
                // understand, what is too large.
                _ => ["0A", "21", "22", "23", "42", "54", "P0"]
                    .iter()
                    .any(|class| code.starts_with(class)),
            }
        }
        Failure::Database(
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::Encode(_)
            | sqlx::Error::ColumnNotFound(_),
        ) => true,
        Failure::Database(_) => false,
    };
    if rejected {
        StoreError::Rejected(text)
    } else {
        StoreError::Unavailable(text)
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs serialize")
}

/// An account from a row that has the columns of `accounts`, without its holds.
pub(in crate::billing) fn read_account(row: &AnyRow) -> sqlx::Result<Account> {
    let created_at = Millis(row.try_get("created_at")?);
    let credits = |column| row.try_get(column).map(Credits);
    let mut account = Account::new(AccountId(row.try_get("id")?), created_at);
    account.plan = named(row.try_get::<&str, _>("plan")?, |name| name.parse().ok())?;
    account.period = Period {
        start: Millis(row.try_get("period_start")?),
        end: Millis(row.try_get("period_end")?),
    };
    account.period_number = row.try_get("period_number")?;
    account.balance = Pools {
        plan: credits("plan_credits")?,
        top_up: credits("top_up_credits")?,
    };
    account.held = Pools {
        plan: credits("plan_held")?,
        top_up: credits("top_up_held")?,
    };
    account.entries = row.try_get("entries")?;
    Ok(account)
}

fn read_hold(row: &AnyRow) -> sqlx::Result<Hold> {
    let credits = |column| row.try_get(column).map(Credits);
    Ok(Hold {
        open: Open {
            hold: HoldId(row.try_get("id")?),
            amount: credits("amount")?,
            request_id: row.try_get("request_id")?,
            boot_id: row.try_get("boot_id")?,
            parent: row.try_get::<Option<_>, _>("parent_id")?.map(HoldId),
            source: named(row.try_get::<&str, _>("source")?, Source::of)?,
            source_id: row.try_get("source_id")?,
            model: row.try_get("model")?,
        },
        opened_at: Millis(row.try_get("opened_at")?),
        period_start: Millis(row.try_get("period_start")?),
        period_number: row.try_get("period_number")?,
        state: named(row.try_get::<&str, _>("state")?, HoldState::of)?,
        ended_at: row.try_get::<Option<_>, _>("ended_at")?.map(Millis),
        reserved: Pools {
            plan: credits("plan_reserved")?,
            top_up: credits("top_up_reserved")?,
        },
        checkpoint: credits("checkpoint")?,
        settled: credits("settled")?,
        posted: Pools {
            plan: credits("plan_posted")?,
            top_up: credits("top_up_posted")?,
        },
        overrun: credits("overrun")?,
        usage: row
            .try_get::<Option<&str>, _>("usage")?
            .map(serde_json::from_str::<Usage>)
            .transpose()
            .map_err(|error| sqlx::Error::Decode(error.into()))?,
    })
}

fn named<T>(name: &str, of: impl FnOnce(&str) -> Option<T>) -> sqlx::Result<T> {
    of(name).ok_or_else(|| sqlx::Error::Decode(format!("{name:?} is no name known here").into()))
}

#[derive(Serialize)]
struct AccountRow<'a> {
    id: &'a AccountId,
    plan: Plan,
    period_start: Millis,
    period_end: Millis,
    period_number: i64,
    plan_credits: i64,
    top_up_credits: i64,
    plan_held: i64,
    top_up_held: i64,
    entries: i64,
}

const ACCOUNT_COLUMNS: Columns = &[
    ("id", "TEXT"),
    ("plan", "TEXT"),
    ("period_start", "BIGINT"),
    ("period_end", "BIGINT"),
    ("period_number", "BIGINT"),
    ("plan_credits", "BIGINT"),
    ("top_up_credits", "BIGINT"),
    ("plan_held", "BIGINT"),
    ("top_up_held", "BIGINT"),
    ("entries", "BIGINT"),
];

impl<'a> AccountRow<'a> {
    fn of(account: &'a Account) -> Self {
        Self {
            id: &account.id,
            plan: account.plan,
            period_start: account.period.start,
            period_end: account.period.end,
            period_number: account.period_number,
            plan_credits: account.balance.plan.0,
            top_up_credits: account.balance.top_up.0,
            plan_held: account.held.plan.0,
            top_up_held: account.held.top_up.0,
            entries: account.entries,
        }
    }
}

#[derive(Serialize)]
struct HoldRow<'a> {
    id: &'a HoldId,
    account_id: &'a AccountId,
    request_id: &'a str,
    boot_id: &'a str,
    parent_id: Option<&'a HoldId>,
    source: Source,
    source_id: Option<&'a str>,
    model: &'a str,
    amount: i64,
    opened_at: Millis,
    period_start: Millis,
    period_number: i64,
    state: HoldState,
    ended_at: Option<Millis>,
    plan_reserved: i64,
    top_up_reserved: i64,
    checkpoint: i64,
    settled: i64,
    plan_posted: i64,
    top_up_posted: i64,
    overrun: i64,
    usage: Option<String>,
}

const HOLD_COLUMNS: Columns = &[
    ("id", "TEXT"),
    ("account_id", "TEXT"),
    ("request_id", "TEXT"),
    ("boot_id", "TEXT"),
    ("parent_id", "TEXT"),
    ("source", "TEXT"),
    ("source_id", "TEXT"),
    ("model", "TEXT"),
    ("amount", "BIGINT"),
    ("opened_at", "BIGINT"),
    ("period_start", "BIGINT"),
    ("period_number", "BIGINT"),
    ("state", "TEXT"),
    ("ended_at", "BIGINT"),
    ("plan_reserved", "BIGINT"),
    ("top_up_reserved", "BIGINT"),
    ("checkpoint", "BIGINT"),
    ("settled", "BIGINT"),
    ("plan_posted", "BIGINT"),
    ("top_up_posted", "BIGINT"),
    ("overrun", "BIGINT"),
    ("usage", "TEXT"),
];

/// What changes in a hold once it is open.
const HOLD_CHANGES: &[&str] = &[
    "state",
    "ended_at",
    "plan_reserved",
    "top_up_reserved",
    "checkpoint",
    "settled",
    "plan_posted",
    "top_up_posted",
    "overrun",
    "usage",
];

impl<'a> HoldRow<'a> {
    fn of(account_id: &'a AccountId, hold: &'a Hold) -> Self {
        let open = &hold.open;
        Self {
            id: &open.hold,
            account_id,
            request_id: &open.request_id,
            boot_id: &open.boot_id,
            parent_id: open.parent.as_ref(),
            source: open.source,
            source_id: open.source_id.as_deref(),
            model: &open.model,
            amount: open.amount.0,
            opened_at: hold.opened_at,
            period_start: hold.period_start,
            period_number: hold.period_number,
            state: hold.state,
            ended_at: hold.ended_at,
            plan_reserved: hold.reserved.plan.0,
            top_up_reserved: hold.reserved.top_up.0,
            checkpoint: hold.checkpoint.0,
            settled: hold.settled.0,
            plan_posted: hold.posted.plan.0,
            top_up_posted: hold.posted.top_up.0,
            overrun: hold.overrun.0,
            usage: hold.usage.as_ref().map(json),
        }
    }
}

#[derive(Serialize)]
struct EntryRow<'a> {
    account_id: &'a AccountId,
    sequence: i64,
    at: Millis,
    kind: super::account::EntryKind,
    plan_delta: i64,
    top_up_delta: i64,
    overrun: i64,
    period_start: Millis,
    operation_id: Option<&'a OperationId>,
    operation: Option<&'a str>,
    hold_id: Option<&'a HoldId>,
    source: Option<Source>,
    source_id: Option<&'a str>,
    model: Option<&'a str>,
    provider: Option<&'a str>,
    adapter_digest: Option<&'a str>,
    requests: Option<i64>,
    tokens_input: Option<i64>,
    tokens_cache_read: Option<i64>,
    tokens_cache_write: Option<i64>,
    tokens_output: Option<i64>,
    images: Option<i64>,
    provider_cost: Option<i64>,
    latency_ms: Option<i64>,
    estimated_at: Option<Millis>,
}

const ENTRY_COLUMNS: Columns = &[
    ("account_id", "TEXT"),
    ("sequence", "BIGINT"),
    ("at", "BIGINT"),
    ("kind", "TEXT"),
    ("plan_delta", "BIGINT"),
    ("top_up_delta", "BIGINT"),
    ("overrun", "BIGINT"),
    ("period_start", "BIGINT"),
    ("operation_id", "TEXT"),
    ("operation", "TEXT"),
    ("hold_id", "TEXT"),
    ("source", "TEXT"),
    ("source_id", "TEXT"),
    ("model", "TEXT"),
    ("provider", "TEXT"),
    ("adapter_digest", "TEXT"),
    ("requests", "BIGINT"),
    ("tokens_input", "BIGINT"),
    ("tokens_cache_read", "BIGINT"),
    ("tokens_cache_write", "BIGINT"),
    ("tokens_output", "BIGINT"),
    ("images", "BIGINT"),
    ("provider_cost", "BIGINT"),
    ("latency_ms", "BIGINT"),
    ("estimated_at", "BIGINT"),
];

impl<'a> EntryRow<'a> {
    fn of(account_id: &'a AccountId, entry: &'a Entry) -> Self {
        let (hold, usage) = (entry.hold.as_ref(), entry.usage.as_ref());
        let (operation_id, operation) = entry
            .recorded
            .as_ref()
            .map(|(id, text)| (id, &**text))
            .unzip();
        Self {
            account_id,
            sequence: entry.sequence,
            at: entry.at,
            kind: entry.kind,
            plan_delta: entry.plan_delta.0,
            top_up_delta: entry.top_up_delta.0,
            overrun: entry.overrun.0,
            period_start: entry.period_start,
            operation_id,
            operation,
            hold_id: hold.map(|hold| &hold.id),
            source: hold.map(|hold| hold.source),
            source_id: hold.and_then(|hold| hold.source_id.as_deref()),
            model: hold.map(|hold| &*hold.model),
            provider: usage.map(|usage| &*usage.provider),
            adapter_digest: usage.map(|usage| &*usage.adapter_digest),
            requests: usage.map(|usage| usage.requests),
            tokens_input: usage.map(|usage| usage.tokens_input),
            tokens_cache_read: usage.map(|usage| usage.tokens_cache_read),
            tokens_cache_write: usage.map(|usage| usage.tokens_cache_write),
            tokens_output: usage.map(|usage| usage.tokens_output),
            images: usage.map(|usage| usage.images),
            provider_cost: usage.map(|usage| usage.provider_cost_nano_usd),
            latency_ms: usage.map(|usage| usage.latency_ms),
            estimated_at: usage.filter(|usage| usage.estimated).map(|_| entry.at),
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct UsageKey<'a> {
    account_id: &'a AccountId,
    period_start: Millis,
    day: String,
    model: &'a str,
    provider: &'a str,
    source: Source,
}

#[derive(Default, Serialize)]
struct UsageSums {
    requests: i64,
    tokens_input: i64,
    tokens_cache_read: i64,
    tokens_cache_write: i64,
    tokens_output: i64,
    images: i64,
    credits: i64,
    overrun: i64,
    provider_cost: i64,
}

#[derive(Serialize)]
struct UsageRow<'a> {
    #[serde(flatten)]
    key: &'a UsageKey<'a>,
    #[serde(flatten)]
    sums: &'a UsageSums,
}

const USAGE_KEY: &[&str] = &[
    "account_id",
    "period_start",
    "day",
    "model",
    "provider",
    "source",
];

const USAGE_COLUMNS: Columns = &[
    ("account_id", "TEXT"),
    ("period_start", "BIGINT"),
    ("day", "TEXT"),
    ("model", "TEXT"),
    ("provider", "TEXT"),
    ("source", "TEXT"),
    ("requests", "BIGINT"),
    ("tokens_input", "BIGINT"),
    ("tokens_cache_read", "BIGINT"),
    ("tokens_cache_write", "BIGINT"),
    ("tokens_output", "BIGINT"),
    ("images", "BIGINT"),
    ("credits", "BIGINT"),
    ("overrun", "BIGINT"),
    ("provider_cost", "BIGINT"),
];

/// Adds an entry to the sums of its day. An expiry without a checkpoint says nothing of a provider, and is
/// not reported.
fn add_usage<'a>(
    rows: &mut BTreeMap<UsageKey<'a>, UsageSums>,
    account_id: &'a AccountId,
    entry: &'a Entry,
) {
    let (Some(hold), Some(usage)) = (&entry.hold, &entry.usage) else {
        return;
    };
    let key = UsageKey {
        account_id,
        period_start: entry.period_start,
        day: day(entry.at),
        model: &hold.model,
        provider: &usage.provider,
        source: hold.source,
    };
    let sums = rows.entry(key).or_default();
    sums.requests += usage.requests;
    sums.tokens_input += usage.tokens_input;
    sums.tokens_cache_read += usage.tokens_cache_read;
    sums.tokens_cache_write += usage.tokens_cache_write;
    sums.tokens_output += usage.tokens_output;
    sums.images += usage.images;
    sums.credits -= entry.plan_delta.0 + entry.top_up_delta.0;
    sums.overrun += entry.overrun.0;
    sums.provider_cost += usage.provider_cost_nano_usd;
}

/// Names and types of the columns of rows that travel as JSON.
type Columns = &'static [(&'static str, &'static str)];

/// The statements of a batch, whose texts differ between the databases only in how they take JSON apart.
#[derive(Debug, Clone)]
struct Statements {
    find_account: SqlStr,
    lock_accounts: SqlStr,
    make_accounts: SqlStr,
    load_holds: SqlStr,
    load_recorded: SqlStr,
    write_accounts: SqlStr,
    write_holds: SqlStr,
    write_entries: SqlStr,
    write_usage: SqlStr,
    write_plans: SqlStr,
}

impl Statements {
    fn of(dialect: Dialect) -> Self {
        let text = |text: String| AssertSqlSafe(text).into_sql_str();
        let ids = match dialect {
            Dialect::Sqlite => "SELECT value FROM json_each($1)",
            Dialect::Postgres => {
                "SELECT value FROM jsonb_array_elements_text(CAST($1 AS TEXT)::jsonb) AS ids (value)"
            }
        };
        let lock = match dialect {
            // Whoever writes is alone.
            Dialect::Sqlite => "",
            Dialect::Postgres => "FOR UPDATE OF accounts",
        };
        let account = "SELECT id, created_at, plan, period_start, period_end, period_number, \
                       plan_credits, top_up_credits, plan_held, top_up_held, entries FROM accounts";
        Self {
            find_account: text(format!("{account} WHERE id IN ({ids})")),
            lock_accounts: text(format!("{account} WHERE id IN ({ids}) ORDER BY id {lock}")),
            make_accounts: text(format!(
                "INSERT INTO accounts (id, created_at, plan, period_start, period_end, period_number, \
                 plan_credits, top_up_credits, plan_held, top_up_held, entries) \
                 SELECT id, created_at, 'free', created_at, created_at, 0, 0, 0, 0, 0, 0 \
                 FROM users WHERE id IN ({ids}) ORDER BY id ON CONFLICT (id) DO NOTHING"
            )),
            load_holds: text(format!(
                "WITH wanted (id) AS ({ids}) SELECT {} FROM holds WHERE id IN \
                 (SELECT id FROM wanted UNION SELECT h.parent_id FROM holds h JOIN wanted w ON w.id = h.id \
                 WHERE h.parent_id IS NOT NULL)",
                names(HOLD_COLUMNS)
            )),
            load_recorded: text(format!(
                "SELECT operation_id, operation, kind, plan_delta, top_up_delta FROM entries \
                 WHERE operation_id IN ({ids})"
            )),
            write_accounts: text(format!(
                "UPDATE accounts SET {} FROM {} WHERE accounts.id = new.id",
                list(&ACCOUNT_COLUMNS[1..], |name| format!("{name} = new.{name}")),
                rows(dialect, ACCOUNT_COLUMNS)
            )),
            write_holds: text(format!(
                "{} ON CONFLICT (id) DO UPDATE SET {} WHERE holds.account_id = excluded.account_id",
                insert(dialect, "holds", HOLD_COLUMNS),
                HOLD_CHANGES
                    .iter()
                    .map(|name| format!("{name} = excluded.{name}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
            write_entries: text(insert(dialect, "entries", ENTRY_COLUMNS)),
            write_usage: text(format!(
                "{} ON CONFLICT ({}) DO UPDATE SET {}",
                insert(dialect, "usage_daily", USAGE_COLUMNS),
                USAGE_KEY.join(", "),
                list(&USAGE_COLUMNS[USAGE_KEY.len()..], |name| format!(
                    "{name} = usage_daily.{name} + excluded.{name}"
                )),
            )),
            // The user's record names the plan too, for those who ask who a key belongs to.
            write_plans: text(format!(
                "UPDATE users SET plan = new.plan FROM {} WHERE users.id = new.id AND users.plan <> new.plan",
                rows(dialect, ACCOUNT_COLUMNS)
            )),
        }
    }
}

fn insert(dialect: Dialect, table: &str, columns: Columns) -> String {
    // Without `WHERE`, SQLite takes the `ON` of a conflict for that of a join.
    format!(
        "INSERT INTO {table} ({}) SELECT {} FROM {} WHERE true",
        names(columns),
        list(columns, |name| format!("new.{name}")),
        rows(dialect, columns)
    )
}

/// A table `new` of the rows in the statement's parameter.
fn rows(dialect: Dialect, columns: Columns) -> String {
    match dialect {
        // Materialized, or SQLite would write each row's text anew for each of its columns: four times slower.
        Dialect::Sqlite => format!(
            "(WITH texts (row) AS MATERIALIZED (SELECT value FROM json_each($1)) \
             SELECT {} FROM texts) AS new",
            list(columns, |name| format!("row ->> '{name}' AS {name}"))
        ),
        Dialect::Postgres => {
            let columns: Vec<_> = columns
                .iter()
                .map(|(name, kind)| format!("{name} {kind}"))
                .collect();
            format!(
                "jsonb_to_recordset(CAST($1 AS TEXT)::jsonb) AS new ({})",
                columns.join(", ")
            )
        }
    }
}

fn names(columns: Columns) -> String {
    list(columns, str::to_owned)
}

fn list(columns: &[(&str, &str)], each: impl Fn(&str) -> String) -> String {
    let columns: Vec<_> = columns.iter().map(|(name, _)| each(name)).collect();
    columns.join(", ")
}
