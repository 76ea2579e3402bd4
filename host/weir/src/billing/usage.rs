//! What a user is shown of their account: what is left, and what the current cycle has cost.
//!
//! A summary is kept in the cache for [`SUMMARY_TTL`]. Whoever changes an account calls [`drop_summary`] once the
//! change is durable. A reader who is slow in between does not bring the old summary back; see
//! [`Cache::drop_value`](weir_storage::Cache::drop_value). If the cache does not answer, nothing is forgotten
//! and nothing kept: a summary then lags by [`SUMMARY_TTL`] at most. What is stale is only ever shown, since the
//! ledger alone admits and refuses.
//!
//! **What open requests hold is still shown as there**, for it is not spent: what remains and what was used
//! add up to what was given, and opening or releasing a hold changes no summary. What could be held now, as an
//! error says that refuses a request, is `available_credits` of [`Balances`]. Only what requests of an earlier
//! cycle hold of its plan credits is not shown: it is nothing that remains of this one's.
//!
//! **Invariant:** a report reads sums, never entries.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use weir_ledger::{Account, AccountId, Action, Credits, LedgerError, Plan, Store};
use weir_storage::Database;
use weir_storage::cache::Cached;
use weir_storage::clock::Millis;

use super::budgets::{self, BudgetItem};
use super::summary_cache::{SUMMARY_TTL, drop_summary, name};
use crate::app::App;
use crate::openapi::schemas;

/// How long a period that is due may take to begin.
const SYNC_TIMEOUT: Duration = Duration::from_secs(2);

/// What `GET /usage/me` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = UsageSummary)]
pub struct Summary {
    /// What the account pays for.
    #[schema(value_type = schemas::Plan)]
    pub plan: Plan,
    /// The plan's credits of one cycle, in whole credits.
    pub plan_allocation: i64,
    /// What is left of them, held ones included.
    #[schema(value_type = f64)]
    pub plan_credits_remaining: Credits,
    /// What is left of what was bought, held ones included.
    #[schema(value_type = f64)]
    pub topup_balance: Credits,
    /// The first moment of the cycle, by ISO 8601.
    pub cycle_start: String,
    /// The first moment after it. Past in the grace of a paid plan whose next cycle is not paid for yet.
    pub cycle_end: String,
    /// What the user may spend in which time, if that is limited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetItem>,
    /// The cycle in all.
    pub this_month: ThisMonth,
    /// The cycle by model, the dearest first.
    pub by_model: Vec<ModelUsage>,
}

/// What a cycle has cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ThisMonth {
    /// From the plan and from what was bought. A request belongs to the cycle that it began in.
    #[schema(value_type = f64)]
    pub total_credits_used: Credits,
    /// Requests that were charged.
    pub total_requests: i64,
}

/// What a model has cost in a cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelUsage {
    /// The model's id, as it was asked for.
    pub model: String,
    /// What was paid.
    #[schema(value_type = f64)]
    pub credits_used: Credits,
    /// Requests that were charged.
    pub requests: i64,
}

/// What `POST /billing/sync-balance` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Balances {
    /// What the account pays for.
    #[schema(value_type = schemas::Plan)]
    pub plan: Plan,
    /// What is left of the plan's credits, held ones included.
    #[schema(value_type = f64)]
    pub plan_credits_remaining: Credits,
    /// What is left of what was bought, held ones included.
    #[schema(value_type = f64)]
    pub topup_balance: Credits,
    /// What of both no open request holds.
    #[schema(value_type = f64)]
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
    Ledger(#[from] LedgerError),
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
    let now = app.ledger.now();
    let found = find(&app.database, account, now).await?;
    let account = &found.account;
    let left_ms = account.lapses_at().0 - now.0;
    let json = serde_json::to_vec(&summarize(&found, now))
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

/// The same, read.
pub async fn read_summary(app: &App, account: &AccountId) -> Result<Summary, UsageError> {
    let json = summary(app, account).await?;
    serde_json::from_slice(&json).map_err(|error| sqlx::Error::Decode(error.into()).into())
}

/// What an account has at this moment; its period is begun if it is due, and its summary forgotten.
pub async fn sync(app: &App, id: &AccountId) -> Result<Balances, UsageError> {
    let now = app.ledger.now();
    if !find(&app.database, id, now).await?.is_begun {
        let deadline = Instant::now() + SYNC_TIMEOUT;
        app.ledger.submit(id, Action::ResetPeriod, deadline).await?;
    }
    // Before the balance is read: whoever asks for the summary after this answer sees no older one.
    drop_summary(&app.cache, id).await;
    let found = find(&app.database, id, now).await?;
    let available = found.account.available();
    Ok(Balances {
        plan: found.account.plan,
        plan_credits_remaining: found.plan_credits,
        topup_balance: found.account.balance.top_up,
        available_credits: [available.plan, available.top_up].into_iter().sum(),
        synced_at: now.iso(),
    })
}

/// An account as it is shown, in the period that is due.
struct ShownAccount {
    account: Account,
    /// Whether that period is stored as begun.
    is_begun: bool,
    /// What is left of its plan credits, those included that its own requests hold.
    plan_credits: Credits,
    /// What it has cost so far.
    by_model: Vec<ModelUsage>,
}

fn summarize(found: &ShownAccount, now: Millis) -> Summary {
    let account = &found.account;
    let mut by_model = found.by_model.clone();
    // A request whose charge was taken back leaves a row without a sum.
    by_model.retain(|model| model.requests != 0 || model.credits_used != Credits::ZERO);
    by_model.sort_by(|a, b| {
        let dearest_first = b.credits_used.cmp(&a.credits_used);
        dearest_first.then_with(|| a.model.cmp(&b.model))
    });
    Summary {
        plan: account.plan,
        plan_allocation: account.plan.monthly_credits().rounded(),
        plan_credits_remaining: found.plan_credits,
        topup_balance: account.balance.top_up,
        cycle_start: account.period.start.iso(),
        cycle_end: account.period.end.iso(),
        budgets: budgets::items(account.standings(None, now)),
        this_month: ThisMonth {
            total_credits_used: by_model.iter().map(|model| model.credits_used).sum(),
            total_requests: by_model.iter().map(|model| model.requests).sum(),
        },
        by_model,
    }
}

/// An account and what its period has cost, as of one moment.
async fn find(
    database: &Database,
    id: &AccountId,
    now: Millis,
) -> Result<ShownAccount, UsageError> {
    let store = Store::new(database.clone());
    let Some(usage) = store.find_period_usage(id).await? else {
        let since = store.find_user_since(id).await?;
        let since = since.ok_or(UsageError::UnknownUser)?;
        return Ok(begin(Account::new(id.clone(), since), now));
    };
    let account = usage.account;
    if account.is_period_due(now) {
        return Ok(begin(account, now));
    }
    let by_model = usage.by_model.into_iter().map(|(model, sums)| ModelUsage {
        model,
        credits_used: sums.credits,
        requests: sums.requests,
    });
    Ok(ShownAccount {
        is_begun: true,
        plan_credits: account.balance.plan.saturating_sub(usage.plan_held_before),
        account,
        by_model: by_model.collect(),
    })
}

/// An account whose period is over, as it will be with its next request. All that is held is of earlier ones.
fn begin(mut account: Account, now: Millis) -> ShownAccount {
    account.begin_due_period(now);
    ShownAccount {
        is_begun: false,
        plan_credits: account.available().plan,
        account,
        by_model: Vec::new(),
    }
}
