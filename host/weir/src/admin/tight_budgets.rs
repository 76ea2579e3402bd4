//! Budgets that are nearly or completely used, of all accounts.
//!
//! Budgets are in their accounts' rows, so no statement finds the used ones. The ledger's alerts, which are stored as
//! notices, name the accounts; the accounts themselves say how much of each budget is left.

use std::collections::HashSet;

use serde::Serialize;
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_ledger::{Account, AccountId, BudgetState};
use weir_payments::notices::{self, NoticeKind};
use weir_storage::clock::Millis;

use super::store;
use crate::app::App;
use crate::billing::budgets::BudgetItem;

/// Maximum number of budgets.
const BUDGETS: usize = 20;

/// The used share from which a budget counts: that of the first alert.
const LEAST_PERCENT: i64 = 80;

/// Maximum numbers of alerts and accounts that a list reads.
const ALERTS: u32 = 500;
const ACCOUNTS: usize = 50;

/// The age of alerts that count, in milliseconds: the longest window, a month, and some days.
const KEPT_MS: i64 = 35 * 24 * 3_600_000;

/// A budget that is nearly or completely used.
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
    /// The budget.
    pub budget: BudgetItem,
}

/// Returns the budgets with at most a fifth left, the most used ones first.
pub(super) async fn list(app: &App, now: Millis) -> Result<Vec<TightBudget>, ApiError> {
    let failed = |error| ApiError::of_database(&error, "asked for budgets");
    let since = Millis(now.0 - KEPT_MS);
    let alerts = notices::users_of(&app.database, NoticeKind::BudgetAlert, since, ALERTS);
    let mut known = HashSet::new();
    let mut tight = Vec::new();
    for id in alerts.await.map_err(failed)? {
        if known.len() >= ACCOUNTS || !known.insert(id.clone()) {
            continue;
        }
        let account = app.ledger.find_account(&AccountId(id)).await;
        if let Some(account) = account.map_err(failed)? {
            tight.extend(of_account(&account, now));
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

fn of_account(account: &Account, now: Millis) -> Vec<TightBudget> {
    let parts = account.budgets.iter().flat_map(|budgets| budgets.parts());
    let parts = std::iter::once(None).chain(parts.map(Some));
    let states = parts.flat_map(|part| {
        let states = account.standings(part, now).into_iter();
        states.map(move |state| (part, state))
    });
    let tight = states.map(|(part, state)| TightBudget {
        account_id: account.id.0.clone(),
        account_name: None,
        of: part.map_or("account", |part| part.kind()),
        id: part.map(|part| part.id().to_owned()),
        percent: percent(&state),
        budget: state.into(),
    });
    tight
        .filter(|budget| budget.percent >= LEAST_PERCENT)
        .collect()
}

/// Returns the used share of a budget. A budget of nothing is used.
fn percent(state: &BudgetState) -> i64 {
    let used = state.spent.micro().saturating_add(state.held.micro());
    match state.budget.credits.micro() {
        0 => 100,
        limit => used.saturating_mul(100) / limit,
    }
}
