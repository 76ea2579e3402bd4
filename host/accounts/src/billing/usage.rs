//! A user's account: the remaining credits, and the usage of the current cycle.
//!
//! The cache keeps a summary for [`SUMMARY_TTL`]. Each change of an account calls [`drop_summary`] once it is durable. A slow
//! reader in between does not restore the old summary; see [`Cache::drop_value`](weir_storage::Cache::drop_value). If
//! the cache does not respond, weir neither deletes nor stores the summary, which may then be stale by up to
//! [`SUMMARY_TTL`]. Summaries are only for display: the ledger alone admits and rejects requests.
//!
//! **A summary includes credits that open requests hold**, because they are not spent: the remaining credits and the
//! usage add up to the granted credits, and a hold changes no summary. `available_credits` of [`Balances`] is the
//! amount for new holds, as in the error of a rejected request. Plan credits that requests of an earlier cycle hold are
//! excluded: they do not belong to the current cycle.
//!
//! **Invariant:** a report reads sums, never entries.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use weir_ledger::{Account, AccountId, Action, Credits, LedgerError, LedgerStore, Plan};
use weir_request::schemas;
use weir_storage::Database;
use weir_storage::cache::CachedValue;
use weir_storage::clock::Millis;

use super::BillingParts;
use super::budgets::{self, BudgetItem};
use super::history::count_of;
use super::summary_cache::{SUMMARY_TTL, drop_summary, name};

/// Time limit for the start of a new period.
const SYNC_TIMEOUT: Duration = Duration::from_secs(2);

/// The response of `GET /usage/me`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = UsageSummary)]
pub struct UsageSummary {
    /// The account's plan.
    #[schema(value_type = schemas::PlanSchema)]
    pub plan: Plan,
    /// The plan's credits of one cycle, in whole credits.
    pub plan_allocation: i64,
    /// The plan's remaining credits, held ones included.
    #[schema(value_type = f64)]
    pub plan_credits_remaining: Credits,
    /// The remaining bought credits, held ones included.
    #[schema(value_type = f64)]
    pub topup_balance: Credits,
    /// The first moment of the cycle, in ISO 8601.
    pub cycle_start: String,
    /// The first moment after the cycle. It is past during the grace period of a paid plan whose next cycle is unpaid.
    pub cycle_end: String,
    /// The user's budgets, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetItem>,
    /// The cycle's total.
    pub this_month: ThisMonth,
    /// The cycle by model, by descending cost.
    pub by_model: Vec<ModelUsage>,
}

/// The usage of a cycle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ThisMonth {
    /// Credits of the plan and bought credits. A request belongs to the cycle of its start.
    #[schema(value_type = f64)]
    pub total_credits_used: Credits,
    /// Charged requests.
    pub total_requests: i64,
}

/// A model's usage in a cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelUsage {
    /// The model's id, as requested.
    pub model: String,
    /// Credits charged.
    #[schema(value_type = f64)]
    pub credits_used: Credits,
    /// Charged requests.
    pub requests: i64,
    /// The unit of the price; null if it has changed within the cycle.
    #[serde(default)]
    #[schema(value_type = Option<schemas::UsageUnit>)]
    pub unit: Option<String>,
    /// The usage in this unit; null if there is no unit, or an unknown one.
    #[serde(default)]
    pub quantity: Option<i64>,
}

/// The response of `POST /billing/sync-balance`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Balances {
    /// The account's plan.
    #[schema(value_type = schemas::PlanSchema)]
    pub plan: Plan,
    /// The plan's remaining credits, held ones included.
    #[schema(value_type = f64)]
    pub plan_credits_remaining: Credits,
    /// The remaining bought credits, held ones included.
    #[schema(value_type = f64)]
    pub topup_balance: Credits,
    /// Credits of both kinds that no open request holds.
    #[schema(value_type = f64)]
    pub available_credits: Credits,
    /// The time of these balances, in ISO 8601.
    pub synced_at: String,
}

/// The reason for a missing report.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The database does not respond, or responds with an error.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The new period could not begin.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The user does not exist.
    #[error("the user does not exist")]
    UnknownUser,
}

/// Returns an account's summary as JSON, in the form in which the cache stores it.
pub async fn summary(billing: &BillingParts, account: &AccountId) -> Result<Vec<u8>, UsageError> {
    let name = name(account);
    let absence = match billing.cache.find_value(&name).await {
        Ok(CachedValue::Found(summary)) => return Ok(summary),
        Ok(CachedValue::Absent(absence)) => Some(absence),
        // Authentication has already decided whether requests are served without the cache.
        Err(_) => None,
    };
    let now = billing.ledger.now();
    let found = find(&billing.database, account, now).await?;
    let account = &found.account;
    let left_ms = account.lapses_at().0 - now.0;
    let json = serde_json::to_vec(&summarize(&found, now))
        .map_err(|error| sqlx::Error::Encode(error.into()))?;
    if let Some(absence) = absence {
        // At most until the cycle's end, so that the first reader afterwards sees the next cycle.
        let left = Duration::from_millis(left_ms.max(1).unsigned_abs());
        let kept = billing
            .cache
            .keep_value(&name, &json, absence, left.min(SUMMARY_TTL));
        // The cache logs its own errors.
        let _ = kept.await;
    }
    Ok(json)
}

/// Returns the summary, parsed.
pub async fn read_summary(
    billing: &BillingParts,
    account: &AccountId,
) -> Result<UsageSummary, UsageError> {
    let json = summary(billing, account).await?;
    serde_json::from_slice(&json).map_err(|error| sqlx::Error::Decode(error.into()).into())
}

/// Returns an account's current balances, after beginning its period if it is due, and deletes its summary.
pub async fn sync(billing: &BillingParts, id: &AccountId) -> Result<Balances, UsageError> {
    let now = billing.ledger.now();
    if !find(&billing.database, id, now).await?.is_begun {
        let deadline = Instant::now() + SYNC_TIMEOUT;
        billing
            .ledger
            .submit(id, Action::ResetPeriod, deadline)
            .await?;
    }
    // Deleted before the balance is read, so that a summary after this response is never older.
    drop_summary(&billing.cache, id).await;
    let found = find(&billing.database, id, now).await?;
    let available = found.account.available();
    Ok(Balances {
        plan: found.account.plan,
        plan_credits_remaining: found.plan_credits,
        topup_balance: found.account.balance.top_up,
        available_credits: [available.plan, available.top_up].into_iter().sum(),
        synced_at: now.iso(),
    })
}

/// An account in its current period, for display.
struct ShownAccount {
    account: Account,
    /// Whether the period's start is stored.
    is_begun: bool,
    /// The remaining plan credits, including those that the period's own requests hold.
    plan_credits: Credits,
    /// The period's usage so far.
    by_model: Vec<ModelUsage>,
}

fn summarize(found: &ShownAccount, now: Millis) -> UsageSummary {
    let account = &found.account;
    let mut by_model = found.by_model.clone();
    // A request with a full refund leaves a row with zero sums.
    by_model.retain(|model| model.requests != 0 || model.credits_used != Credits::ZERO);
    by_model.sort_by(|a, b| {
        let dearest_first = b.credits_used.cmp(&a.credits_used);
        dearest_first.then_with(|| a.model.cmp(&b.model))
    });
    UsageSummary {
        plan: account.plan,
        plan_allocation: account.monthly_credits().rounded(),
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

/// Reads an account and its period's usage in one snapshot.
async fn find(
    database: &Database,
    id: &AccountId,
    now: Millis,
) -> Result<ShownAccount, UsageError> {
    let store = LedgerStore::new(database.clone());
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
        unit: sums.quantity.unit_name().map(str::to_owned),
        quantity: count_of(sums.quantity),
    });
    Ok(ShownAccount {
        is_begun: true,
        plan_credits: account.balance.plan.saturating_sub(usage.plan_held_before),
        account,
        by_model: by_model.collect(),
    })
}

/// Returns an account whose period is over as it will be at its next request. All its holds belong to earlier periods.
fn begin(mut account: Account, now: Millis) -> ShownAccount {
    account.begin_due_period(now);
    ShownAccount {
        is_begun: false,
        plan_credits: account.available().plan,
        account,
        by_model: Vec::new(),
    }
}
