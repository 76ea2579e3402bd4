//! The stored plan of an account.

use sqlx::Row as _;
use sqlx::any::AnyRow;
use weir_ledger::Plan;
use weir_storage::clock::Millis;

/// The plan of a user or an organisation. The ledger stores the free plan after a paid one with the account's next
/// operation, so the time decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredPlan {
    plan: Plan,
    /// The time at which it ends without a renewal; `None` for the free plan.
    ends_at: Option<Millis>,
}

impl StoredPlan {
    /// Reads the columns `plan` and `plan_ends_at`. Unknown plans of a later version count as the free plan.
    pub(super) fn read(row: &AnyRow) -> sqlx::Result<Self> {
        let name: String = row.try_get("plan")?;
        Ok(Self {
            plan: name.parse().unwrap_or_default(),
            ends_at: row.try_get::<Option<i64>, _>("plan_ends_at")?.map(Millis),
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
