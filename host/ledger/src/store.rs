//! The ledger's SQL: a batch of operations in one transaction, leases, and what a sweep looks for.
//!
//! - [`rows`]: the tables; [`postgres`] and [`sqlite`]: how a batch gets into each of the databases. What it
//!   loads and what it writes is the same for both, and here.

mod postgres;
mod rows;
mod sqlite;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};

use weir_storage::Database;
use weir_storage::clock::Millis;

use self::rows::{ACCOUNTS, Row, Unreadable, list, read_account};
use crate::account::{Account, Entry, EntryKind, Hold, Recorded, apply};
use crate::credits::Credits;
use crate::operation::{
    AccountId, Action, BootId, HoldId, Operation, Outcome, Refusal, RequestSource,
};
use crate::plans::{GRACE_DAYS, day};
use crate::usage::UsageSums;

/// How long the lease of a run that is over is kept, for those who look into what happened.
const LEASE_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The ledger in the database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
    /// While one has it, it has the turn too.
    remembered: Arc<Mutex<sqlite::Remembered>>,
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
    /// The account that it reserves credits of.
    pub account: AccountId,
    /// The hold, to be expired.
    pub hold: HoldId,
}

/// An account and what the period that it is in has cost, as of one moment.
#[derive(Debug, Clone)]
pub struct PeriodUsage {
    /// The account as it is, with none of its holds.
    pub account: Account,
    /// What requests of earlier periods still hold of the plan's credits.
    pub plan_held_before: Credits,
    /// What the period has cost by model. Where a charge was taken back, there are sums of nothing.
    pub by_model: Vec<(String, UsageSums)>,
}

impl Store {
    /// The ledger in this database.
    pub fn new(database: Database) -> Self {
        Self {
            database,
            remembered: Arc::default(),
        }
    }

    /// Does all operations, in order and in one transaction. In SQLite, it blocks the thread.
    pub async fn commit(&self, operations: &[Operation]) -> Result<Vec<Outcome>, StoreError> {
        match self.database.write_turn() {
            Some(turn) => {
                let mut native = turn.native().await.map_err(Failure::from)?;
                let remembered = self.remembered.lock();
                // A batch that panics leaves nothing there.
                let mut remembered = remembered.unwrap_or_else(PoisonError::into_inner);
                sqlite::commit(&mut native, &mut remembered, operations)
            }
            None => postgres::commit(&self.database, operations).await,
        }
    }

    /// Whether nothing can be committed any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.database.is_closed()
    }

    /// An account as it is, with none of its holds; `None` if it has not asked for anything yet.
    pub async fn find_account(&self, id: &AccountId) -> sqlx::Result<Option<Account>> {
        let account = sqlx::query(AssertSqlSafe(format!("{} = $1", find_account())))
            .bind(&id.0)
            .fetch_optional(self.database.reader())
            .await?;
        Ok(account.as_ref().map(read_account).transpose()?)
    }

    /// When a user was first seen; `None` if there is no such user.
    pub async fn find_user_since(&self, id: &AccountId) -> sqlx::Result<Option<Millis>> {
        let since = sqlx::query_scalar("SELECT created_at FROM users WHERE id = $1")
            .bind(&id.0)
            .fetch_optional(self.database.reader())
            .await?;
        Ok(since.map(Millis))
    }

    /// An account and what its period has cost; `None` if it has not asked for anything yet.
    pub async fn find_period_usage(&self, id: &AccountId) -> sqlx::Result<Option<PeriodUsage>> {
        // One statement, so that no settlement comes between the balance and the sums. Open holds are few.
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
                by_model.push((model, UsageSums::read(|column| row.try_get(column))?));
            }
        }
        Ok(Some(PeriodUsage {
            account: read_account(row)?,
            plan_held_before: Credits::from_micro(row.try_get("plan_held_before")?),
            by_model,
        }))
    }

    /// How many holds of a run are open.
    pub async fn count_open_holds(&self, boot_id: &BootId) -> sqlx::Result<i64> {
        let count =
            "SELECT CAST(COUNT(*) AS BIGINT) FROM holds WHERE boot_id = $1 AND state = 'open'";
        sqlx::query_scalar(count)
            .bind(boot_id.as_str())
            .fetch_one(self.database.reader())
            .await
    }

    /// Begins a run's lease or makes it longer, never shorter.
    pub async fn renew_lease(
        &self,
        boot_id: &BootId,
        now: Millis,
        until: Millis,
    ) -> sqlx::Result<()> {
        sqlx::query(
            "INSERT INTO node_leases (boot_id, started_at, lease_until) VALUES ($1, $2, $3) \
             ON CONFLICT (boot_id) DO UPDATE SET lease_until = excluded.lease_until \
             WHERE node_leases.lease_until < excluded.lease_until",
        )
        .bind(boot_id.as_str())
        .bind(now.0)
        .bind(until.0)
        .execute(self.database.writer())
        .await
        .map(drop)
    }

    /// Ends a run's lease: what it left open is anybody's.
    pub async fn end_lease(&self, boot_id: &BootId, now: Millis) -> sqlx::Result<()> {
        sqlx::query("UPDATE node_leases SET lease_until = $1 WHERE boot_id = $2")
            .bind(now.0)
            .bind(boot_id.as_str())
            .execute(self.database.writer())
            .await
            .map(drop)
    }

    /// Forgets leases that were over long ago.
    pub async fn forget_leases(&self, now: Millis) -> sqlx::Result<()> {
        sqlx::query("DELETE FROM node_leases WHERE lease_until < $1")
            .bind(now.0 - LEASE_KEPT.as_millis() as i64)
            .execute(self.database.writer())
            .await
            .map(drop)
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
}

/// What operations need, as far as it is there.
#[derive(Default)]
struct Loaded {
    accounts: BTreeMap<AccountId, Account>,
    /// The holds that are there, and whose they are.
    owners: BTreeMap<HoldId, AccountId>,
}

impl Loaded {
    fn add_hold(&mut self, owner: AccountId, hold: Hold) {
        let id = hold.open.hold.clone();
        if let Some(account) = self.accounts.get_mut(&owner) {
            account.holds.insert(id.clone(), hold);
        }
        self.owners.insert(id, owner);
    }

    /// Notes whose a hold of an account that was remembered is, and its parent; `false` if it is not among them.
    fn recall_hold(&mut self, account: &AccountId, id: &HoldId) -> bool {
        let known = self.accounts.get(account);
        let Some(hold) = known.and_then(|account| account.holds.get(id)) else {
            return false;
        };
        for id in std::iter::once(id).chain(&hold.open.parent) {
            self.owners.insert(id.clone(), account.clone());
        }
        true
    }

    fn add_recorded(&mut self, operation: &Operation, first: Recorded) {
        if let Some(id) = operation.id()
            && let Some(account) = self.accounts.get_mut(&operation.account)
        {
            account.recorded.insert(id.clone(), first);
        }
    }

    fn apply(&mut self, operations: &[Operation]) -> Vec<Outcome> {
        let Self { accounts, owners } = self;
        let each = operations.iter().map(|operation| {
            let Some(account) = accounts.get_mut(&operation.account) else {
                return Err(Refusal::UnknownAccount);
            };
            match &operation.action {
                // The hold is another account's.
                Action::Open { open, .. }
                    if owners
                        .get(&open.hold)
                        .is_some_and(|owner| *owner != operation.account) =>
                {
                    Err(Refusal::Conflict)
                }
                _ => apply(operation, account),
            }
        });
        each.collect()
    }

    fn changes(&self) -> Changes<'_> {
        let mut changes = Changes::default();
        for (id, account) in &self.accounts {
            let journal = &account.journal;
            if journal.account {
                changes.accounts.push((id, account));
            }
            let holds = journal.holds.iter().filter_map(|id| account.holds.get(id));
            changes.holds.extend(holds.map(|hold| (id, hold)));
            for entry in &journal.entries {
                changes.entries.push((id, entry));
                changes.add_usage(id, entry);
            }
            if journal
                .entries
                .iter()
                .any(|entry| entry.kind == EntryKind::Grant)
            {
                changes.begun.push((id, account));
            }
        }
        changes
    }
}

/// What operations have changed, row by row.
#[derive(Default)]
struct Changes<'a> {
    accounts: Vec<Row<'a, Account>>,
    /// Those of them of which a period has begun.
    begun: Vec<Row<'a, Account>>,
    holds: Vec<Row<'a, Hold>>,
    entries: Vec<Row<'a, Entry>>,
    usage: Vec<(&'a AccountId, DailyUsage)>,
}

/// What an account has used on a day, of one model at one provider.
struct DailyUsage {
    period_start: Millis,
    day: String,
    model: String,
    provider: String,
    source: RequestSource,
    sums: UsageSums,
    overrun: Credits,
}

impl<'a> Changes<'a> {
    fn usage_rows(&self) -> Vec<Row<'_, DailyUsage>> {
        let rows = self.usage.iter();
        rows.map(|(account, usage)| (*account, usage)).collect()
    }

    /// Adds an entry to the sums of its day. An expiry without a checkpoint says nothing of a provider, and is
    /// not reported.
    fn add_usage(&mut self, account: &'a AccountId, entry: &Entry) {
        let (Some(hold), Some(usage)) = (&entry.hold, &entry.usage) else {
            return;
        };
        let day = day(entry.at);
        // PostgreSQL does not add to one row twice in a statement. Those of this account are few, and the last.
        let of_account = self.usage.iter_mut().rev();
        let mut of_account = of_account.take_while(|(of, _)| *of == account);
        let known = of_account.find(|(_, known)| {
            known.period_start == entry.period_start
                && known.day == day
                && known.model == hold.model
                && known.provider == usage.provider
                && known.source == hold.source
        });
        let daily = match known {
            Some((_, known)) => known,
            None => {
                let new = DailyUsage {
                    period_start: entry.period_start,
                    day,
                    model: hold.model.clone(),
                    provider: usage.provider.clone(),
                    source: hold.source,
                    sums: UsageSums::default(),
                    overrun: Credits::ZERO,
                };
                self.usage.push((account, new));
                let Some((_, new)) = self.usage.last_mut() else {
                    return;
                };
                new
            }
        };
        let paid = entry
            .plan_delta
            .saturating_add(entry.top_up_delta)
            .negated();
        daily.overrun = daily.overrun.saturating_add(entry.overrun);
        daily.sums = daily.sums.plus(UsageSums {
            requests: usage.requests,
            credits: paid,
            counts: usage.counts,
        });
    }
}

/// What went wrong before a commit was asked for, so that nothing was done.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Sqlx(#[from] sqlx::Error),
    #[error(transparent)]
    Native(#[from] rusqlite::Error),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("{written} of {wanted} rows were written: an id is another account's")]
    Incomplete { written: u64, wanted: usize },
}

impl Failure {
    fn unless_all(written: u64, wanted: usize) -> Result<(), Self> {
        if written == wanted as u64 {
            Ok(())
        } else {
            Err(Self::Incomplete { written, wanted })
        }
    }

    /// Whether it would fail again however often it is tried.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Incomplete { .. } | Self::Unreadable(_) => true,
            Self::Sqlx(sqlx::Error::Database(error)) => {
                // PostgreSQL's classes: what it cannot do, data exceptions, constraints, what it does not
                // understand, what is too large.
                let code = error.code().unwrap_or_default();
                ["0A", "21", "22", "23", "42", "54", "P0"]
                    .iter()
                    .any(|class| code.starts_with(class))
            }
            Self::Sqlx(
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::Encode(_)
                | sqlx::Error::ColumnNotFound(_),
            ) => true,
            Self::Sqlx(_) => false,
            // SQLite's low byte is an error, a constraint, a wrong type, or a value too large.
            Self::Native(error) => error
                .sqlite_error()
                .is_none_or(|error| matches!(error.extended_code & 0xff, 1 | 18 | 19 | 20)),
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        if failure.is_refusal() {
            Self::Rejected(text)
        } else {
            Self::Unavailable(text)
        }
    }
}

/// The beginning of what [`read_account`] reads; a condition on the id follows.
fn find_account() -> String {
    format!(
        "SELECT {}, created_at FROM accounts WHERE id",
        ACCOUNTS.names()
    )
}

/// What [`Store::find_period_usage`] reads: a row for each model, of which each has the columns of the account first.
fn period_usage() -> String {
    let account = list(ACCOUNTS.columns(), |name| format!("accounts.{name}"));
    let sums = UsageSums::columns();
    format!(
        "SELECT {account}, accounts.created_at, usage_daily.model, {sums}, \
         CAST(CASE WHEN accounts.plan_held = 0 THEN 0 ELSE \
         (SELECT COALESCE(SUM(holds.plan_reserved), 0) FROM holds WHERE holds.state = 'open' \
         AND holds.account_id = accounts.id AND holds.period_number < accounts.period_number) \
         END AS BIGINT) AS plan_held_before \
         FROM accounts LEFT JOIN usage_daily ON usage_daily.account_id = accounts.id \
         AND usage_daily.period_start = accounts.period_start \
         WHERE accounts.id = $1 GROUP BY accounts.id, usage_daily.model"
    )
}

/// The beginning of what makes accounts of users; a condition on the id follows.
const MAKE_ACCOUNTS: &str = "INSERT INTO accounts (id, created_at, plan, period_start, period_end, period_number, \
     plan_credits, top_up_credits, plan_held, top_up_held, entries) \
     SELECT id, created_at, 'free', created_at, created_at, 0, 0, 0, 0, 0, 0 FROM users WHERE id";
