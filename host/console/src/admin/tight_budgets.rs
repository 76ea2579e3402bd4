//! Budgets of all accounts that are nearly or completely used, or have rejected requests.
//!
//! Budgets are in their accounts' rows, so no statement finds the used ones. The ledger's alerts, which are stored as
//! notices, and failed requests name the accounts; the accounts themselves say how much of each budget is left.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use utoipa::ToSchema;
use weir_accounts::billing::budgets::BudgetItem;
use weir_app::App;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{Account, AccountId, BudgetState};
use weir_payments::notices::{self, NoticeKind};
use weir_request::failed_requests::FailedRequest;
use weir_request::failed_requests::store::FailureFilter;
use weir_storage::clock::Millis;

use super::store;

/// Maximum number of budgets.
const BUDGETS: usize = 20;

/// The used share from which a budget counts: that of the first alert.
const LEAST_PERCENT: i64 = 80;

/// Maximum numbers of alerts, failed requests and accounts that a list reads.
const ALERTS: u32 = 500;
const FAILURES: u32 = 500;
const ACCOUNTS: usize = 50;

/// The age of alerts that count, in milliseconds: the longest window, a month, and some days.
const KEPT_MS: i64 = 35 * 24 * 3_600_000;

/// The age of failed requests that count, in milliseconds.
const FAILURES_MS: i64 = 24 * 3_600_000;

/// A budget that is nearly or completely used, or has rejected requests.
#[derive(Debug, Serialize, ToSchema)]
pub struct TightBudget {
    /// The account.
    pub account_id: String,
    /// The account's name or e-mail address, if it has one.
    pub account_name: Option<String>,
    /// The part of the account with the budget: `account`, `key`, `project`, `member`, `organisation` or `model`.
    pub of: &'static str,
    /// The id of the part; null for the account.
    pub id: Option<String>,
    /// The used share in percent, with the credits that requests in progress hold.
    pub percent: i64,
    /// Requests of the last 24 hours that the account's budgets rejected; in lists of many, at most the latest 500 of all
    /// accounts count.
    pub rejected_requests: u32,
    /// The budget.
    pub budget: BudgetItem,
}

/// Returns budgets with at most a fifth left, and those with the least left of accounts with rejected requests; the most
/// used ones first.
pub(super) async fn list(app: &App, now: Millis) -> Result<Vec<TightBudget>, ApiError> {
    let failed = |error| ApiError::of_database(&error, "asked for budgets");
    let rejected = rejected(app, now).await.map_err(failed)?;
    let since = Millis(now.0 - KEPT_MS);
    let alerts = notices::users_of(&app.database, NoticeKind::BudgetAlert, since, ALERTS);
    let alerted = alerts.await.map_err(failed)?;
    let mut known = BTreeSet::new();
    let mut tight = Vec::new();
    for id in rejected.keys().chain(&alerted) {
        if known.len() >= ACCOUNTS || !known.insert(id) {
            continue;
        }
        let account = app.ledger.find_account(&AccountId(id.clone())).await;
        if let Some(account) = account.map_err(failed)? {
            let rejected = rejected.get(id).copied().unwrap_or_default();
            tight.extend(of_account(&account, rejected, now));
        }
    }
    tight.sort_by_key(|budget| -budget.percent);
    tight.truncate(BUDGETS);
    let ids: Vec<_> = tight.iter().map(|budget| &*budget.account_id).collect();
    let names = store::account_names(&app.database, &ids).await;
    let names = names.map_err(failed)?;
    for budget in &mut tight {
        budget.account_name = names.get(&budget.account_id).cloned();
    }
    Ok(tight)
}

/// Returns the number of requests that budgets have rejected, by account.
async fn rejected(app: &App, now: Millis) -> sqlx::Result<HashMap<String, u32>> {
    let filter = FailureFilter {
        code: Some(ErrorCode::BudgetExceeded.as_str().to_owned()),
        from: Some(Millis(now.0 - FAILURES_MS)),
        ..FailureFilter::default()
    };
    let latest = (i64::MAX, String::new());
    let page = app.failed_requests.list(&filter, &latest, FAILURES).await?;
    let mut rejected = HashMap::new();
    for FailedRequest { account_id, .. } in page.failures {
        *rejected.entry(account_id).or_default() += 1;
    }
    Ok(rejected)
}

fn of_account(account: &Account, rejected_requests: u32, now: Millis) -> Vec<TightBudget> {
    let parts = account.budgets.iter().flat_map(|budgets| budgets.parts());
    let parts = std::iter::once(None).chain(parts.map(Some));
    let states = parts.flat_map(|part| {
        let states = account.standings(part, now).into_iter();
        states.map(move |state| (part, state))
    });
    let states: Vec<_> = states.collect();
    let least = states.iter().map(|(_, state)| state.left).min();
    let shown = states.into_iter().filter(|(_, state)| {
        let has_rejected = rejected_requests > 0 && Some(state.left) == least;
        has_rejected || percent(state) >= LEAST_PERCENT
    });
    let tight = shown.map(|(part, state)| TightBudget {
        account_id: account.id.0.clone(),
        account_name: None,
        of: part.map_or("account", |part| part.kind()),
        id: part.map(|part| part.id().to_owned()),
        percent: percent(&state),
        rejected_requests,
        budget: state.into(),
    });
    tight.collect()
}

/// Returns the used share of a budget. A budget of nothing is used.
fn percent(state: &BudgetState) -> i64 {
    let used = state.spent.micro().saturating_add(state.held.micro());
    match state.budget.credits.micro() {
        0 => 100,
        limit => used.saturating_mul(100) / limit,
    }
}
