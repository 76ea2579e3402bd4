//! Budgets of an account: their check, and the credits that holds reserve in them.

use weir_storage::clock::Millis;

use super::{Account, Pools};
use crate::budgets::{BudgetExceeded, BudgetPart, BudgetState, SetBudgets};
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

    /// Checks whether the budgets of the account and of its parts allow a hold of this amount.
    ///
    /// # Errors
    ///
    /// The budget that rejects it; of several, the one that rejects it for the longest time.
    pub fn check_budgets(
        &self,
        parts: &[BudgetPart],
        required: Credits,
        at: Millis,
    ) -> Result<(), BudgetExceeded> {
        let budgets = self.budgets.as_ref();
        budgets.map_or(Ok(()), |budgets| {
            budgets.check(parts, required, self.held.total(), at)
        })
    }

    /// Returns the credits that a new hold for these parts may take.
    pub fn spendable(&self, parts: &[BudgetPart], top_up_only: bool, at: Millis) -> Credits {
        let counted = std::iter::once(None).chain(parts.iter().map(Some));
        let payable = self.payable(top_up_only).total();
        payable
            .min(self.left_of_budgets(counted, at))
            .max(Credits::ZERO)
    }

    /// Returns the least that these budgets have left: those of parts, and of the account (`None`).
    pub(super) fn left_of_budgets<'p>(
        &self,
        counted: impl Iterator<Item = Option<&'p BudgetPart>>,
        at: Millis,
    ) -> Credits {
        let states = counted.flat_map(|part| self.standings(part, at));
        let left = states.map(|state| state.left);
        left.min().unwrap_or(Credits::from_micro(i64::MAX))
    }

    /// Rejects a hold that exceeds a budget; returns the parts with budgets for which it counts.
    pub(super) fn look_at_budgets(
        &self,
        open: &OpenHold,
        at: Millis,
    ) -> Result<Vec<BudgetPart>, LedgerRefusal> {
        self.check_budgets(&open.parts, open.amount, at)
            .map_err(|exceeded| LedgerRefusal::OverBudget(Box::new(exceeded)))?;
        Ok(self.counted(&open.parts))
    }

    /// Rejects a hold that draws on a parent and exceeds the budget of a part, such as its model, for which the parent
    /// does not count. Returns these parts, if they have budgets.
    pub(super) fn look_at_own_budgets(
        &self,
        open: &OpenHold,
        of_parent: &[BudgetPart],
        at: Millis,
    ) -> Result<Vec<BudgetPart>, LedgerRefusal> {
        let mut own = self.counted(&open.parts);
        own.retain(|part| !of_parent.contains(part));
        let budgets = self.budgets.as_ref();
        budgets
            .map_or(Ok(()), |budgets| budgets.check_parts(&own, open.amount, at))
            .map_err(|exceeded| LedgerRefusal::OverBudget(Box::new(exceeded)))?;
        Ok(own)
    }

    /// Returns the parts with budgets, so that a hold must be counted for them.
    pub(crate) fn counted(&self, parts: &[BudgetPart]) -> Vec<BudgetPart> {
        let budgets = self.budgets.as_ref();
        budgets.map_or_else(Vec::new, |budgets| budgets.counted(parts))
    }

    /// Adds credits to open holds.
    pub(super) fn hold_more(&mut self, parts: &[BudgetPart], credits: Pools) {
        self.held = self.held.plus(credits);
        self.note_held(parts, credits.total().micro());
    }

    /// Removes credits from open holds.
    pub(super) fn hold_less(&mut self, parts: &[BudgetPart], credits: Pools) {
        self.held = self.held.minus(credits);
        self.note_held(parts, -credits.total().micro());
    }

    /// Changes the credits that open holds reserve in the budgets of parts, but not those of the account.
    pub(super) fn note_held(&mut self, parts: &[BudgetPart], change: i64) {
        if parts.is_empty() {
            return;
        }
        let budgets = self.budgets.get_or_insert_default();
        budgets.change_held(parts, change);
        if budgets.is_empty() {
            self.budgets = None;
        }
    }

    /// Counts a charge or a refund in the budgets.
    pub(super) fn spend_of_budgets(&mut self, parts: &[BudgetPart], micro: i64, at: Millis) {
        if let Some(budgets) = &mut self.budgets
            && budgets.spend(parts, micro, at)
        {
            self.alert_at = Some(at);
        }
    }

    pub fn standings(&self, part: Option<&BudgetPart>, at: Millis) -> Vec<BudgetState> {
        let budgets = self.budgets.as_ref();
        budgets.map_or_else(Vec::new, |budgets| {
            budgets.standings(part, self.held.total(), at)
        })
    }
}
