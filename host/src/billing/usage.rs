//! What a user is shown of their account: what is left, and what the current cycle has cost.
//!
//! A summary is kept in the cache for [`SUMMARY_TTL`]. Whoever changes an account calls [`forget`] once the
//! change is durable. A reader who is slow in between does not bring the old summary back; see
//! [`Cache::drop_value`](crate::storage::Cache::drop_value). If the cache does not answer, nothing is forgotten
//! and nothing kept: a summary then lags by [`SUMMARY_TTL`] at most. What is stale is only ever shown, since the
//! ledger alone admits and refuses.
//!
//! **What open requests hold is still shown as there**, for it is not spent: what remains and what was used
//! add up to what was given, and opening or releasing a hold changes no summary. What could be held now, as an
//! error says that refuses a request, is `available_credits` of [`Balances`].
//!
//! **Invariant:** a report reads sums, never entries.

use std::time::Duration;

use serde::Serialize;
use sqlx::Row;

use super::ledger::account::Account;
use super::ledger::store::read_account;
use super::ledger::{AccountId, Action, Operation, Store, StoreError};
use super::{Credits, Plan};
use crate::app::App;
use crate::clock::Millis;
use crate::storage::Database;
use crate::storage::cache::Cached;

/// How long a summary is shown.
pub const SUMMARY_TTL: Duration = Duration::from_secs(60);

/// What `GET /usage/me` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// What the account pays for.
    pub plan: Plan,
    /// The plan's credits of one cycle, in whole credits.
    pub plan_allocation: i64,
    /// What is left of them, held ones included.
    pub plan_credits_remaining: Credits,
    /// What is left of what was bought, held ones included.
    pub topup_balance: Credits,
    /// The first moment of the cycle, by ISO 8601.
    pub cycle_start: String,
    /// The first moment after it. Past in the grace of a paid plan whose next cycle is not paid for yet.
    pub cycle_end: String,
    /// The cycle in all.
    pub this_month: ThisMonth,
    /// The cycle by model, the dearest first.
    pub by_model: Vec<ModelUsage>,
}

/// What a cycle has cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ThisMonth {
    /// From the plan and from what was bought. A request belongs to the cycle that it began in.
    pub total_credits_used: Credits,
    /// Requests that were charged.
    pub total_requests: i64,
}

/// What a model has cost in a cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelUsage {
    /// The model's id, as it was asked for.
    pub model: String,
    /// What was paid.
    pub credits_used: Credits,
    /// Requests that were charged.
    pub requests: i64,
}

/// What `POST /billing/sync-balance` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Balances {
    /// What the account pays for.
    pub plan: Plan,
    /// What is left of the plan's credits, held ones included.
    pub plan_credits_remaining: Credits,
    /// What is left of what was bought, held ones included.
    pub topup_balance: Credits,
    /// What of both no open request holds.
    pub available_credits: Credits,
    /// When this was so, by ISO 8601.
    pub synced_at: String,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The database does not answer, or not as it should.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The period that is due could not be begun.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no such user.
    #[error("there is no such user")]
    UnknownUser,
}

/// The summary of an account as JSON: what is kept is what is answered.
pub async fn summary(app: &App, account: &AccountId) -> Result<Vec<u8>, UsageError> {
    let name = name(account);
    let absence = match app.cache.find_value(&name).await {
        Ok(Cached::Found(summary)) => return Ok(summary),
        Ok(Cached::Absent(absence)) => Some(absence),
        // Whether anybody is served without the cache was decided when they were identified.
        Err(_) => None,
    };
    let now = app.clock.now();
    let (account, models) = find(&app.database, account, now)
        .await?
        .ok_or(UsageError::UnknownUser)?;
    let left_ms = account.plan.lapses_at(account.period).0 - now.0;
    let json = serde_json::to_vec(&summarize(&account, models))
        .map_err(|error| sqlx::Error::Encode(error.into()))?;
    if let Some(absence) = absence {
        // No longer than the cycle: the first one to look after its end sees the next one.
        let left = Duration::from_millis(left_ms.max(1).unsigned_abs());
        let kept = app
            .cache
            .keep_value(&name, &json, absence, left.min(SUMMARY_TTL));
        // The cache logs what keeps it from answering.
        let _ = kept.await;
    }
    Ok(json)
}

/// Forgets a summary: the account has changed, durably.
pub async fn forget(app: &App, account: &AccountId) {
    // The cache logs what keeps it from answering, and the summary lags until it expires.
    let _ = app.cache.drop_value(&name(account), SUMMARY_TTL).await;
}

/// What an account has at this moment; its period is begun if it is due, and its summary forgotten.
pub async fn sync(app: &App, id: &AccountId) -> Result<Balances, UsageError> {
    let now = app.clock.now();
    let store = Store::new(app.database.clone());
    let is_due = match store.find_account(id).await? {
        None => true,
        Some(mut account) => {
            let before = account.period_number;
            account.begin_due_period(now);
            account.period_number != before
        }
    };
    if is_due {
        let reset = Operation {
            account: id.clone(),
            at: now,
            action: Action::ResetPeriod,
        };
        store.commit(&[reset]).await?;
    }
    // Before the balance is read: whoever asks for the summary after this answer sees no older one.
    forget(app, id).await;
    let account = store
        .find_account(id)
        .await?
        .ok_or(UsageError::UnknownUser)?;
    let available = account.available();
    Ok(Balances {
        plan: account.plan,
        plan_credits_remaining: account.balance.plan,
        topup_balance: account.balance.top_up,
        available_credits: [available.plan, available.top_up].into_iter().sum(),
        synced_at: now.iso(),
    })
}

fn name(account: &AccountId) -> String {
    format!("usage:{account}")
}

fn summarize(account: &Account, mut by_model: Vec<ModelUsage>) -> Summary {
    // A request whose charge was taken back leaves a row without a sum.
    by_model.retain(|model| model.requests != 0 || model.credits_used != Credits::ZERO);
    by_model.sort_by(|a, b| {
        let dearest_first = b.credits_used.cmp(&a.credits_used);
        dearest_first.then_with(|| a.model.cmp(&b.model))
    });
    Summary {
        plan: account.plan,
        plan_allocation: account.plan.monthly_credits().rounded(),
        plan_credits_remaining: account.balance.plan,
        topup_balance: account.balance.top_up,
        cycle_start: account.period.start.iso(),
        cycle_end: account.period.end.iso(),
        this_month: ThisMonth {
            total_credits_used: by_model.iter().map(|model| model.credits_used).sum(),
            total_requests: by_model.iter().map(|model| model.requests).sum(),
        },
        by_model,
    }
}

/// An account and what its period has cost, as of one moment; the period is the one that is due, whether it
/// is stored as begun or not. `None` if there is no such user.
async fn find(
    database: &Database,
    id: &AccountId,
    now: Millis,
) -> sqlx::Result<Option<(Account, Vec<ModelUsage>)>> {
    // One statement, so that no settlement comes between the balance and the sums.
    let rows = sqlx::query(
        "SELECT accounts.id, accounts.created_at, accounts.plan, accounts.period_start, \
         accounts.period_end, accounts.period_number, accounts.plan_credits, accounts.top_up_credits, \
         accounts.plan_held, accounts.top_up_held, accounts.entries, usage_daily.model, \
         CAST(COALESCE(SUM(usage_daily.credits), 0) AS BIGINT) AS credits, \
         CAST(COALESCE(SUM(usage_daily.requests), 0) AS BIGINT) AS requests \
         FROM accounts LEFT JOIN usage_daily ON usage_daily.account_id = accounts.id \
         AND usage_daily.period_start = accounts.period_start \
         WHERE accounts.id = $1 GROUP BY accounts.id, usage_daily.model",
    )
    .bind(&id.0)
    .fetch_all(database.reader())
    .await?;
    let Some(row) = rows.first() else {
        let since = Store::new(database.clone()).find_user_since(id).await?;
        return Ok(since.map(|since| {
            let mut account = Account::new(id.clone(), since);
            account.begin_due_period(now);
            (account, Vec::new())
        }));
    };
    let mut account = read_account(row)?;
    let stored = account.period_number;
    account.begin_due_period(now);
    if account.period_number != stored {
        return Ok(Some((account, Vec::new())));
    }
    let mut models = Vec::new();
    for row in &rows {
        if let Some(model) = row.try_get::<Option<String>, _>("model")? {
            models.push(ModelUsage {
                model,
                credits_used: Credits(row.try_get("credits")?),
                requests: row.try_get("requests")?,
            });
        }
    }
    Ok(Some((account, models)))
}
