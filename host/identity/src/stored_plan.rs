//! The stored plan of an account.

use serde::{Deserialize, Serialize};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use weir_ledger::Plan;
use weir_storage::clock::Millis;

/// The plan of a user or an organisation. The ledger stores the free plan after a paid one with the account's next
/// operation, so the time decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPlan {
    plan: Plan,
    /// The time at which it ends without a renewal; `None` for the free plan.
    ends_at: Option<Millis>,
}

impl StoredPlan {
    /// Makes a plan with this end.
    pub(super) fn new(plan: Plan, ends_at: Option<Millis>) -> Self {
        Self { plan, ends_at }
    }

    /// Reads the columns `plan` and `plan_ends_at`. Unknown plans of a later version count as the free plan.
    pub(super) fn read(row: &AnyRow) -> sqlx::Result<Self> {
        Self::read_from(row, ["plan", "plan_ends_at"])
    }

    /// Reads these columns of a plan and its end.
    pub(super) fn read_from(row: &AnyRow, [plan, ends_at]: [&str; 2]) -> sqlx::Result<Self> {
        let name: Option<String> = row.try_get(plan)?;
        Ok(Self {
            plan: name.unwrap_or_default().parse().unwrap_or_default(),
            ends_at: row.try_get::<Option<i64>, _>(ends_at)?.map(Millis),
        })
    }

    /// Returns the plan at a moment.
    pub fn at(&self, now: Millis) -> Plan {
        match self.ends_at {
            Some(ends_at) if ends_at <= now => Plan::Free,
            _ => self.plan,
        }
    }

    /// Returns the time of its end after a moment.
    pub(super) fn ends_after(&self, now: Millis) -> Option<Millis> {
        self.ends_at.filter(|ends_at| now < *ends_at)
    }
}
