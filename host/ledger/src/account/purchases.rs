//! Grants of plan credits, top-ups, refunds and corrections.

use weir_storage::clock::Millis;

use super::{Account, EntryKind, Pools};
use crate::credits::Credits;
use crate::operation::{
    Adjust, ChangeDirection, Grant, LedgerRefusal, OperationEffect, OperationOutcome,
    OperationRequest, Pool, Refund, TopUp,
};
use crate::plans::Plan;

impl Account {
    pub(super) fn grant(
        &mut self,
        grant: &Grant,
        at: Millis,
        recorded: OperationRequest,
    ) -> OperationOutcome {
        let Grant {
            id: _,
            plan,
            period,
            credits,
        } = *grant;
        if !credits.is_in_range() || period.start >= period.end {
            return Err(LedgerRefusal::OutOfRange);
        }
        if period.end <= at {
            return Err(LedgerRefusal::Outdated);
        }
        // Payment events may overtake each other. The free plan's period was not paid.
        if self.plan != Plan::Free {
            if period.start < self.period.start {
                return Err(LedgerRefusal::OlderPeriod);
            }
            if plan != Plan::Free && period.start == self.period.start {
                return self.amend(grant, at, recorded);
            }
        }
        self.begin_period(plan, period, credits, at, Some(recorded));
        Ok(OperationEffect::Granted { credits })
    }

    /// Raises the plan of the current period, or moves its end. Adds no credits: each upgrade payment tops up its own.
    pub(super) fn amend(
        &mut self,
        grant: &Grant,
        at: Millis,
        recorded: OperationRequest,
    ) -> OperationOutcome {
        let plan = grant.plan.max(self.plan);
        if plan == self.plan && grant.period.end == self.period.end {
            return Err(LedgerRefusal::Granted);
        }
        self.plan = plan;
        self.period.end = grant.period.end;
        self.journal.plan = true;
        let entry = self.post(EntryKind::Grant, Pools::default(), at, self.period.start);
        entry.recorded = Some(recorded);
        Ok(OperationEffect::Granted {
            credits: Credits::ZERO,
        })
    }

    pub(super) fn top_up(
        &mut self,
        top_up: &TopUp,
        at: Millis,
        recorded: OperationRequest,
    ) -> OperationOutcome {
        let credits = top_up.credits;
        if !credits.is_in_range() {
            return Err(LedgerRefusal::OutOfRange);
        }
        let is_of_plan = top_up.within.is_some_and(|moment| {
            self.plan != Plan::Free && self.period.contains(moment) && at < self.period.end
        });
        let (kind, pool) = match is_of_plan {
            true => (EntryKind::Grant, Pool::Plan),
            false => (EntryKind::TopUp, Pool::TopUp),
        };
        let bought = Pools::of(pool, credits);
        let balance = self.balance.checked_plus(bought);
        self.balance = balance.ok_or(LedgerRefusal::OutOfRange)?;
        let entry = self.post(kind, bought, at, self.period.start);
        entry.recorded = Some(recorded);
        Ok(OperationEffect::ToppedUp { credits })
    }

    pub(super) fn refund(
        &mut self,
        refund: &Refund,
        at: Millis,
        recorded: OperationRequest,
    ) -> OperationOutcome {
        if !refund.credits.is_in_range() {
            return Err(LedgerRefusal::OutOfRange);
        }
        let available = self.unheld().get(refund.pool);
        let taken = Pools::of(refund.pool, refund.credits.min(available));
        let spent = refund.credits.saturating_sub(taken.total());
        let owed = self.owed.checked_add(spent);
        self.owed = owed
            .filter(|owed| owed.is_in_range())
            .ok_or(LedgerRefusal::OutOfRange)?;
        self.balance = self.balance.minus(taken);
        let entry = self.post(EntryKind::Refund, taken.negated(), at, self.period.start);
        entry.owed = spent;
        entry.recorded = Some(recorded);
        Ok(OperationEffect::Refunded {
            credits: taken.total(),
        })
    }

    pub(super) fn adjust(
        &mut self,
        adjust: &Adjust,
        at: Millis,
        recorded: OperationRequest,
    ) -> OperationOutcome {
        let Adjust {
            way, pool, credits, ..
        } = *adjust;
        if !credits.is_in_range() {
            return Err(LedgerRefusal::OutOfRange);
        }
        let available = self.available().get(pool);
        let change = Pools::of(pool, credits);
        let (kind, delta, balance) = match (way, pool) {
            (ChangeDirection::Take, _) if credits > available => {
                return Err(LedgerRefusal::Insufficient {
                    required: credits,
                    available,
                });
            }
            (ChangeDirection::Take, _) => {
                let balance = self.balance.minus(change);
                (EntryKind::Refund, change.negated(), Some(balance))
            }
            (ChangeDirection::Give, Pool::Plan) => {
                (EntryKind::Grant, change, self.balance.checked_plus(change))
            }
            (ChangeDirection::Give, Pool::TopUp) => {
                (EntryKind::TopUp, change, self.balance.checked_plus(change))
            }
        };
        self.balance = balance.ok_or(LedgerRefusal::OutOfRange)?;
        let entry = self.post(kind, delta, at, self.period.start);
        entry.recorded = Some(recorded);
        Ok(OperationEffect::Adjusted { credits })
    }

    pub(super) fn note_renewal(&mut self, renews: bool, at: Millis) -> OperationEffect {
        if self.plan != Plan::Free && renews == self.cancelled_at.is_some() {
            self.cancelled_at = (!renews).then_some(at);
            self.journal.account = true;
            self.journal.plan = true;
        }
        self.begin_due_period(at);
        OperationEffect::RenewalNoted
    }

    pub(super) fn watch(&mut self, below: Option<Credits>, at: Millis) -> OperationOutcome {
        if below.is_some_and(|below| !below.is_in_range()) {
            return Err(LedgerRefusal::OutOfRange);
        }
        // A due period counts as begun.
        self.begin_due_period(at);
        if self.low_below != below {
            self.low_below = below;
            self.journal.account = true;
            self.journal.plan = true;
        }
        Ok(OperationEffect::Watched)
    }
}
