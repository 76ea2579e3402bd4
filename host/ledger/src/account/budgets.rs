//! Budgets of an account: their check, and the credits that holds reserve in them.

use weir_storage::clock::Millis;

use super::{Account, Pools};
use crate::budgets::{BudgetExceeded, BudgetState, SetBudgets};
use crate::credits::Credits;
use crate::operation::{LedgerRefusal, OpenHold, OperationEffect, OperationOutcome};

impl Account {
    pub(super) fn set_budgets(&mut self, set: &SetBudgets, at: Millis) -> OperationOutcome {
        let mut budgets = self.budgets.clone().unwrap_or_default();
        if !budgets.set(set, self.entries, at) {
            return Err(LedgerRefusal::OutOfRange);
        }
        self.budgets = Some(budgets).filter(|budgets| !budgets.is_empty());
        self.journal.account = true;
        Ok(OperationEffect::BudgetsSet)
    }

    /// Checks whether the budgets of the account and of a key allow a hold of this amount.
    ///
    /// # Errors
    ///
    /// The budget that rejects it; of several, the one that rejects it for the longest time.
    pub fn check_budgets(
        &self,
        key_id: Option<&str>,
        required: Credits,
        at: Millis,
    ) -> Result<(), BudgetExceeded> {
        let budgets = self.budgets.as_ref();
        budgets.map_or(Ok(()), |budgets| {
            budgets.check(key_id, required, self.held.total(), at)
        })
    }

    /// Rejects a hold that exceeds a budget; returns the key whose budgets it counts for.
    pub(super) fn look_at_budgets(
        &self,
        open: &OpenHold,
        at: Millis,
    ) -> Result<Option<String>, LedgerRefusal> {
        let Some(budgets) = &self.budgets else {
            return Ok(None);
        };
        let key_id = open.key_id.as_deref();
        budgets
            .check(key_id, open.amount, self.held.total(), at)
            .map_err(|exceeded| LedgerRefusal::OverBudget(Box::new(exceeded)))?;
        let counted = key_id.filter(|key| budgets.has_key(key));
        Ok(counted.map(str::to_owned))
    }

    /// Adds credits to open holds.
    pub(super) fn hold_more(&mut self, key_id: Option<&str>, credits: Pools) {
        self.held = self.held.plus(credits);
        self.note_held(key_id, credits.total().micro());
    }

    /// Removes credits from open holds.
    pub(super) fn hold_less(&mut self, key_id: Option<&str>, credits: Pools) {
        self.held = self.held.minus(credits);
        self.note_held(key_id, -credits.total().micro());
    }

    pub(super) fn note_held(&mut self, key_id: Option<&str>, change: i64) {
        if let Some(key_id) = key_id {
            let budgets = self.budgets.get_or_insert_default();
            budgets.change_held(key_id, change);
            if budgets.is_empty() {
                self.budgets = None;
            }
        }
    }

    /// Returns the state of the budgets of a key, or of the account.
    pub fn standings(&self, key_id: Option<&str>, at: Millis) -> Vec<BudgetState> {
        let budgets = self.budgets.as_ref();
        budgets.map_or_else(Vec::new, |budgets| {
            budgets.standings(key_id, self.held.total(), at)
        })
    }
}
