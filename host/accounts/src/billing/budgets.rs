//! Budgets in requests and responses, and the error of a request that exceeds one.
//!
//! [`weir_ledger::budgets`] counts and enforces budgets.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{
    AccountId, Action, Budget, BudgetExceeded, BudgetPart, BudgetState, BudgetWindow, Credits,
    LedgerError, LedgerRefusal, LedgerStore, MOST_WINDOWS, Operation, SetBudgets,
};
use weir_request::node::Core;
use weir_request::schemas;
use weir_storage::clock::Millis;
use weir_storage::database::DatabaseClock;

use super::summary_cache;

/// A budget in a response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetItem {
    /// The calendar window, in UTC: `hour`, `day`, `week`, `month` or `total`.
    #[schema(value_type = schemas::Window)]
    pub window: BudgetWindow,
    /// The maximum spending in the window.
    #[schema(value_type = f64)]
    pub credits: Credits,
    /// The charges in the window, without refunds of an earlier window's charges.
    #[schema(value_type = f64)]
    pub used: Credits,
    /// Credits that requests in progress hold.
    #[schema(value_type = f64)]
    pub held: Credits,
    /// Remaining credits for new holds.
    #[schema(value_type = f64)]
    pub left: Credits,
    /// The start of the next window; null for `total`.
    pub resets_at: Option<String>,
}

impl From<BudgetState> for BudgetItem {
    fn from(standing: BudgetState) -> Self {
        Self {
            window: standing.budget.window,
            credits: standing.budget.credits,
            used: standing.spent.max(Credits::ZERO),
            held: standing.held,
            left: standing.left,
            resets_at: standing.resets_at.map(Millis::iso),
        }
    }
}

/// Returns budgets for a response.
pub fn items(standings: impl IntoIterator<Item = BudgetState>) -> Vec<BudgetItem> {
    standings.into_iter().map(BudgetItem::from).collect()
}

/// Budgets in a body: a list, or a single budget in two fields.
#[derive(Debug, Default)]
pub struct RequestedBudgets {
    /// The list, `budgets`.
    pub budgets: Option<Vec<Budget>>,
    /// The single budget's `budget_credits`.
    pub budget_credits: Option<Credits>,
    /// The single budget's `window`, `total` unless set.
    pub window: Option<BudgetWindow>,
}

impl RequestedBudgets {
    /// Returns the requested budgets.
    ///
    /// # Errors
    ///
    /// 400 with the invalid field.
    pub fn read(self) -> Result<Vec<Budget>, ApiError> {
        let wrong = |field: &str, what: &str| Err(ApiError::invalid_request(field, what));
        let budgets = match (self.budgets, self.budget_credits) {
            (Some(_), Some(_)) => {
                return wrong(
                    "budget_credits",
                    "Use either `budgets` or `budget_credits`.",
                );
            }
            (Some(_), None) | (None, None) if self.window.is_some() => {
                return wrong("window", "`window` requires `budget_credits`.");
            }
            (Some(budgets), None) => budgets,
            (None, Some(credits)) => {
                let window = self.window.unwrap_or(BudgetWindow::Total);
                check(credits, "budget_credits")?;
                vec![Budget { credits, window }]
            }
            (None, None) => Vec::new(),
        };
        if budgets.len() > MOST_WINDOWS {
            return wrong("budgets", "Each window may have only one budget.");
        }
        for (index, budget) in budgets.iter().enumerate() {
            let path = |field: &str| format!("budgets[{index}].{field}");
            check(budget.credits, &path("credits"))?;
            let mut before = budgets[..index].iter();
            if before.any(|before| before.window == budget.window) {
                return wrong(&path("window"), "Another budget has the same window.");
            }
        }
        Ok(budgets)
    }
}

/// Sets the budgets of an account or of a part of it.
///
/// # Errors
///
/// 409 if too many parts have budgets, 503 if the database does not respond.
pub async fn set(core: &Core, account: &AccountId, set: SetBudgets) -> Result<(), ApiError> {
    let clock = DatabaseClock::start(core.database.clone(), core.clock.clone());
    let clock = clock.await;
    let clock = clock.map_err(|error| ApiError::of_database(&error, "about budgets"))?;
    let operation = Operation {
        account: account.clone(),
        at: clock.now(),
        action: Action::SetBudgets(Box::new(set)),
    };
    let store = LedgerStore::new(core.database.clone());
    let outcome = weir_ledger::commit_one(&store, operation).await;
    summary_cache::drop_summary(&core.cache, account).await;
    match outcome {
        Ok(_) => Ok(()),
        Err(LedgerError::Refused(LedgerRefusal::OutOfRange)) => Err(ApiError::new(
            ErrorCode::TooManyBudgets,
            "Too many parts of this account have budgets; remove some first.",
        )
        .with_no_retry()),
        Err(error) => {
            tracing::error!(%error, "setting budgets");
            Err(ApiError::store_unavailable())
        }
    }
}

fn check(credits: Credits, field: &str) -> Result<(), ApiError> {
    if credits.is_in_range() && credits > Credits::ZERO {
        return Ok(());
    }
    let what = "The value must be a positive number with at most 6 decimals.";
    Err(ApiError::invalid_request(field, what))
}

/// 429: a request may cost more than a budget allows.
pub fn exceeded(exceeded: &BudgetExceeded, now: Millis) -> ApiError {
    let BudgetExceeded {
        part,
        required,
        standing,
    } = exceeded;
    let (whose, of) = match part {
        None => ("This account", "user"),
        Some(part @ BudgetPart::Key(_)) => ("This key", part.kind()),
        Some(part @ BudgetPart::Project(_)) => ("This project", part.kind()),
        Some(part @ BudgetPart::Member(_)) => ("This member", part.kind()),
        Some(part @ BudgetPart::Organisation(_)) => ("This organisation", part.kind()),
        Some(part @ BudgetPart::Model(_)) => ("For this model, the account", part.kind()),
    };
    let Budget { credits, window } = standing.budget;
    let time = match window {
        BudgetWindow::Total => "in total".to_owned(),
        window => format!("a {}", window.name()),
    };
    let message = format!(
        "{whose} may spend {credits} credits {time}; {} are left, and the request may cost {required}.",
        standing.left
    );
    let error = ApiError::new(ErrorCode::BudgetExceeded, message)
        .with_no_retry()
        .with_detail("budget_of", of)
        .with_detail("window", window.name())
        .with_detail("budget_credits", credits.to_json())
        .with_detail("left_credits", standing.left.to_json())
        .with_detail("required_credits", required.to_json())
        .with_detail(
            "resets_at",
            standing.resets_at.map_or(Value::Null, |at| at.iso().into()),
        );
    match standing.resets_at {
        None => error,
        Some(at) => {
            let left_ms = at.0.saturating_sub(now.0).max(0).unsigned_abs();
            error.with_retry_after(Duration::from_millis(left_ms))
        }
    }
}
