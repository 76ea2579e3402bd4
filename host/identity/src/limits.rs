//! The models that a key may use, and the limits that an organisation shares with its creator.

use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::plans::plan_ends_at;
use weir_ledger::{AccountId, BudgetPart, Plan};
use weir_storage::clock::Millis;

use super::stored_plan::StoredPlan;

/// The account for whose limits (rate, concurrent requests, memory of bodies) requests count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsOwner {
    /// The account: the paying one, or the creator of an organisation without paid credits. Otherwise, one person would
    /// multiply their limits by creating organisations.
    pub account: AccountId,
    plan: StoredPlan,
}

/// The account for whose limits a request counts, with its plan when the request began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestLimits {
    /// The account.
    pub account: AccountId,
    /// The plan, which decides the limits.
    pub plan: Plan,
}

/// Returns the columns of [`LimitsOwner`] of an account `u`, which also needs the columns of [`StoredPlan`]. Plans,
/// payments and top-ups by operators count as paid; vouchers do not.
pub(super) fn limits_owner() -> String {
    format!(
        "CASE WHEN u.kind = 'organisation' AND u.plan = 'free' \
         AND NOT EXISTS (SELECT 1 FROM payments paid WHERE paid.user_id = u.id) \
         AND NOT EXISTS (SELECT 1 FROM entries gift WHERE gift.account_id = u.id AND gift.hold_id IS NULL \
         AND gift.kind = 'top_up' AND gift.operation_id NOT LIKE 'voucher:%') THEN u.created_by END AS limits_of, \
         (SELECT creator.plan FROM users creator WHERE creator.id = u.created_by) AS creator_plan, \
         {} AS creator_plan_ends_at",
        plan_ends_at("u.created_by")
    )
}

impl LimitsOwner {
    /// Returns an account with its own limits.
    pub fn own(account: &str, plan: StoredPlan) -> Self {
        Self {
            account: AccountId(account.to_owned()),
            plan,
        }
    }

    /// Reads the owner from [`limits_owner`] of an account.
    pub(super) fn read(row: &AnyRow, account: &str) -> sqlx::Result<Self> {
        let creator: Option<String> = row.try_get("limits_of")?;
        Ok(match creator {
            Some(creator) => {
                let columns = ["creator_plan", "creator_plan_ends_at"];
                Self::own(&creator, StoredPlan::read_from(row, columns)?)
            }
            None => Self::own(account, StoredPlan::read(row)?),
        })
    }

    /// Returns the limits of a request that begins at this moment.
    pub(super) fn at(&self, now: Millis) -> RequestLimits {
        RequestLimits {
            account: self.account.clone(),
            plan: self.plan.at(now),
        }
    }
}

/// Returns the id of the key among the parts of an account.
pub fn key_among(parts: &[BudgetPart]) -> Option<&str> {
    parts.iter().find_map(|part| match part {
        BudgetPart::Key(id) => Some(&**id),
        _ => None,
    })
}

/// Refuses a model that a key may not use. The message may say so, because the caller holds the key.
pub fn require_model(allowed: &[String], model: &str) -> Result<(), ApiError> {
    if may_use(allowed, model) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::ModelNotAllowed,
        format!("This key may not use the model {model}; GET /models lists the allowed models."),
    )
    .with_param("model")
    .with_detail("model", model)
    .with_no_retry())
}

/// Whether a key may use a model; an empty list allows all.
pub fn may_use(allowed: &[String], model: &str) -> bool {
    allowed.is_empty() || allowed.iter().any(|allowed| allowed == model)
}
