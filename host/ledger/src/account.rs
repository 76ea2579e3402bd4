//! The effect of each operation on an account: plain functions, without I/O and without a clock.
//!
//! A *hold* reserves credits (it is open, or pending); it ends once: *settled* for the actual usage, *released* if
//! nothing was delivered, or *expired* after its node has failed. Plan credits are reserved and spent before top-up
//! credits; freed credits return to their pool. A hold with a *parent* draws on the parent's reserved credits and
//! returns its unused credits there.
//!
//! **Invariant:** `held ≤ balance` in each pool, so the available credits are never negative.
//! **Invariant:** `held` is the sum of the open holds' credits; `balance` is the sum of all entries.
//! **Invariant:** an operation is done once: its repeat returns the first outcome, and another operation with the same
//! id is rejected. A rejection leaves nothing behind.
//!
//! To change the order in which credits are spent, edit [`Pools::take`] and [`Pools::take_back`].

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use weir_storage::clock::Millis;

use crate::budgets::{Budgets, Exceeded, SetBudgets, Standing};
use crate::credits::Credits;
use crate::keys::{self, Fate, Key};
use crate::operation::{
    AccountId, Action, Adjust, Asked, BootId, Checkpoint, Claim, Done, EndKey, Grant, HoldId,
    HoldState, Open, Operation, OperationId, Outcome, Pool, Refund, Refusal, Settle, TopUp, Way,
};
use crate::plans::{Period, Plan};
use crate::usage::{RequestUsage, UsageCounts};

/// Credits by pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pools {
    /// The plan's credits, which expire with their period.
    pub plan: Credits,
    /// Bought credits, which do not expire.
    pub top_up: Credits,
}

/// An account, as far as operations need it, and its unwritten changes.
#[derive(Debug, Clone)]
pub struct Account {
    /// The user's id.
    pub id: AccountId,
    /// The time of the user's first request; periods of the free plan count from here.
    pub created_at: Millis,
    /// The current plan.
    pub plan: Plan,
    /// The period of the plan credits.
    pub period: Period,
    /// Number of periods that have begun; a hold belongs to the period of its opening.
    pub period_number: i64,
    /// All credits, including held ones.
    pub balance: Pools,
    /// The part of them in open holds.
    pub held: Pools,
    /// Credits that were taken back after they were spent; the next credits repay them.
    pub owed: Credits,
    /// The time at which the paid plan was cancelled for the end of its period; `None` if it renews.
    pub cancelled_at: Option<Millis>,
    /// The balance below which the account is low.
    pub low_below: Option<Credits>,
    /// The time from which it is low.
    pub low_since: Option<Millis>,
    /// Number of entries; the next one's number is one more.
    pub entries: i64,
    /// The budgets of the account and its keys, if any.
    pub budgets: Option<Budgets>,
    /// Open and expired holds that were loaded, or opened since.
    pub holds: BTreeMap<HoldId, Hold>,
    /// Holds that were loaded as settled or released, or ended since.
    pub ended: BTreeMap<HoldId, Ended>,
    /// Operations with an id that were loaded, or done since.
    pub recorded: BTreeMap<OperationId, Recorded>,
    /// Idempotency keys that were loaded, or claimed since.
    pub keys: BTreeMap<String, Key>,
    /// The unwritten changes.
    pub journal: Journal,
}

/// An account's changes by operations.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// Entries to append, in order.
    pub entries: Vec<Entry>,
    /// New, changed and ended holds.
    pub holds: BTreeSet<HoldId>,
    /// New and changed keys.
    pub keys: BTreeSet<String>,
    /// Whether balances have changed.
    pub account: bool,
    /// Whether the plan, the period or another rarely changing field has changed.
    pub plan: bool,
}

/// An operation that was done, as its entry stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The operation's account.
    pub account: AccountId,
    /// The operation.
    pub asked: Asked,
    /// The outcome, also for repeats.
    pub outcome: Done,
}

/// Credits reserved for a request, or formerly reserved if its node has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The request.
    pub open: Open,
    /// The run of the node that will end the hold.
    pub boot_id: BootId,
    /// The time of the opening.
    pub opened_at: Millis,
    /// The start of its period.
    pub period_start: Millis,
    /// The number of its period.
    pub period_number: i64,
    /// The time of its expiry; `None` while it is open.
    pub expired_at: Option<Millis>,
    /// The currently reserved credits: zero after the expiry, less than at first if other holds draw on it.
    pub reserved: Pools,
    /// The price of the usage so far, while it is open.
    pub checkpoint: Credits,
    /// The credits taken from the account.
    pub posted: Pools,
    /// The unpaid part of the price: our loss.
    pub overrun: Credits,
    /// The request's usage at the checkpoint.
    pub usage: Option<RequestUsage>,
}

/// An ended hold, from its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The request.
    pub open: Open,
    /// The final state.
    pub state: HoldState,
    /// The credits taken from the account.
    pub posted: Pools,
    /// The unpaid part of the price: our loss.
    pub overrun: Credits,
    /// The usage of a charged request, or the provider's cost of a released one.
    pub usage: Option<RequestUsage>,
}

/// Reasons for a change of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// The price of a request's usage.
    Settlement,
    /// Nothing was delivered, and the balance stays. The provider may still charge for the request.
    Release,
    /// The price of a request's usage at its last checkpoint.
    Expiry,
    /// The difference to an expiry, when the request's settlement arrives.
    LateSettlement,
    /// The full refund of an expiry: nothing was used after all.
    LateRelease,
    /// Plan credits: at the start of a period, for a paid upgrade within it, or as an adjustment.
    Grant,
    /// Plan credits that expired with their period.
    Lapse,
    /// Credits that were bought or given.
    TopUp,
    /// Credits taken back: with a refunded payment, later from owed credits, or as an adjustment.
    Refund,
}

/// A line of an account's history; never changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The entry's number in the account, from 1 without a gap.
    pub sequence: i64,
    /// The time of the operation.
    pub at: Millis,
    /// The reason.
    pub kind: EntryKind,
    /// The change of the plan's pool; negative if credits are taken.
    pub plan_delta: Credits,
    /// The change of the pool of bought credits.
    pub top_up_delta: Credits,
    /// The unpaid part of a request's price.
    pub overrun: Credits,
    /// The change of the owed credits.
    pub owed: Credits,
    /// The start of its period.
    pub period_start: Millis,
    /// The operation, if it has an id.
    pub recorded: Option<Asked>,
    /// The hold, as it was opened.
    pub hold: Option<Open>,
    /// The request's contribution to reports: differences if an earlier entry has counted it.
    pub usage: Option<UsageDelta>,
}

/// An entry's contribution to reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageDelta {
    /// The upstream of the response.
    pub provider: String,
    /// The adapter of the response.
    pub adapter_digest: String,
    /// 1 for a new request, -1 for one that is taken back, else 0.
    pub requests: i64,
    /// The counts, minus those of an earlier entry for the same request.
    pub counts: UsageCounts,
    /// The time from the request to the end of the response, minus an earlier entry's.
    pub latency_ms: i64,
    /// The attempts at upstreams, minus an earlier entry's.
    pub attempts: i64,
    /// Whether the counts are the host's own estimate.
    pub estimated: bool,
}

/// Does an operation, or rejects it without a change, except that a due period begins.
pub fn apply(operation: &Operation, account: &mut Account) -> Outcome {
    let outcome = act(operation, account);
    account.note_level(operation.at);
    outcome
}

fn act(operation: &Operation, account: &mut Account) -> Outcome {
    let at = operation.at;
    match &operation.action {
        Action::Open {
            open,
            boot_id,
            claim,
        } => account.open(open, boot_id, claim.as_deref(), at),
        Action::Settle(settle) => account.settle_and_end(settle, at),
        Action::Release { hold, cost } => account.release(hold, cost.as_deref(), at),
        Action::Expire { hold } => account.expire(hold, at),
        Action::Checkpoint(checkpoint) => account.checkpoint(checkpoint),
        Action::ResetPeriod => {
            account.begin_due_period(at);
            Ok(Done::PeriodReset)
        }
        Action::Grant(grant) => account.once(&grant.id, operation, |account, recorded| {
            account.grant(grant, at, recorded)
        }),
        Action::TopUp(top_up) => account.once(&top_up.id, operation, |account, recorded| {
            account.top_up(top_up, at, recorded)
        }),
        Action::Refund(refund) => account.once(&refund.id, operation, |account, recorded| {
            account.refund(refund, at, recorded)
        }),
        Action::Adjust(adjust) => account.once(&adjust.id, operation, |account, recorded| {
            account.adjust(adjust, at, recorded)
        }),
        Action::Renewal { renews } => Ok(account.note_renewal(*renews, at)),
        Action::Watch { below } => account.watch(*below, at),
        Action::SetBudgets(set) => account.set_budgets(set, at),
        Action::EndKey(end) => account.end_key(end, at),
    }
}

impl Account {
    /// Makes an account without credits. Its first period begins with the first operation that needs one.
    pub fn new(id: AccountId, created_at: Millis) -> Self {
        Self {
            id,
            created_at,
            plan: Plan::Free,
            period: Period {
                start: created_at,
                end: created_at,
            },
            period_number: 0,
            balance: Pools::default(),
            held: Pools::default(),
            owed: Credits::ZERO,
            cancelled_at: None,
            low_below: None,
            low_since: None,
            entries: 0,
            budgets: None,
            holds: BTreeMap::new(),
            ended: BTreeMap::new(),
            recorded: BTreeMap::new(),
            keys: BTreeMap::new(),
            journal: Journal::default(),
        }
    }

    /// Returns the credits for holds and deductions: those outside open holds.
    pub fn available(&self) -> Pools {
        self.balance.minus(self.held)
    }

    /// Returns whether [`Self::begin_due_period`] would begin a period.
    pub fn is_period_due(&self, at: Millis) -> bool {
        self.period_number == 0 || at >= self.lapses_at()
    }

    /// Returns the time at which its period ends without a new one: the free plan's at its end, a paid plan's after the
    /// grace period, or at its end if cancelled.
    pub fn lapses_at(&self) -> Millis {
        match self.cancelled_at {
            Some(_) => self.period.end,
            None => self.plan.lapses_at(self.period),
        }
    }

    /// Begins a period that is due: the free plan's by time, and also the free plan's if the next period of a paid plan
    /// was not paid in time.
    pub fn begin_due_period(&mut self, at: Millis) {
        if !self.is_period_due(at) {
            return;
        }
        let mut period = Period::monthly(self.created_at, at);
        // After a paid plan, the rest of the month: the month's start may be in a period with a grant already.
        period.start = period.start.max(self.period.end).min(period.end);
        self.begin_period(Plan::Free, period, Plan::Free.monthly_credits(), at, None);
    }

    fn open(
        &mut self,
        open: &Open,
        boot_id: &BootId,
        claim: Option<&Claim>,
        at: Millis,
    ) -> Outcome {
        let known = match self.holds.get(&open.hold) {
            Some(hold) => Some(&hold.open),
            None => self.ended.get(&open.hold).map(|ended| &ended.open),
        };
        match known {
            Some(known) if known.is_same_as(open) => return Ok(Done::Opened),
            Some(_) => return Err(Refusal::Conflict),
            None if !open.amount.is_in_range() => return Err(Refusal::OutOfRange),
            None => {}
        }
        if let Some(claim) = claim {
            self.look_at_key(claim, at)?;
        }
        let (period_start, period_number, reserved, key_id) = match &open.parent {
            None => {
                self.begin_due_period(at);
                let key_id = self.look_at_budgets(open, at)?;
                let reserved = self.available().take_all(open.amount)?;
                self.hold_more(key_id.as_deref(), reserved);
                self.journal.account = true;
                (self.period.start, self.period_number, reserved, key_id)
            }
            Some(id) => {
                let refusal = self.is_over(id);
                let parent = self.holds.get_mut(id).ok_or(refusal)?;
                if !parent.is_open() {
                    return Err(Refusal::Ended(parent.state()));
                }
                let reserved = parent.reserved.take_all(open.amount)?;
                parent.reserved = parent.reserved.minus(reserved);
                self.journal.holds.insert(id.clone());
                // The parent was held against the budgets, and counts for them.
                let key_id = parent.open.key_id.clone();
                (parent.period_start, parent.period_number, reserved, key_id)
            }
        };
        if let Some(claim) = claim {
            self.claim(claim, open, boot_id, at);
        }
        self.put(Hold {
            open: Open {
                key_id,
                ..open.clone()
            },
            boot_id: boot_id.clone(),
            opened_at: at,
            period_start,
            period_number,
            expired_at: None,
            reserved,
            checkpoint: Credits::ZERO,
            posted: Pools::default(),
            overrun: Credits::ZERO,
            usage: None,
        });
        Ok(Done::Opened)
    }

    fn settle_and_end(&mut self, settle: &Settle, at: Millis) -> Outcome {
        let outcome = self.settle(settle, at)?;
        if let (Some(end), Done::Settled { overrun, .. }) = (&settle.end, &outcome)
            && *overrun == Credits::ZERO
        {
            self.end_key(end, at)?;
        }
        Ok(outcome)
    }

    fn settle(&mut self, settle: &Settle, at: Millis) -> Outcome {
        if !settle.credits.is_in_range() {
            return Err(Refusal::OutOfRange);
        }
        let usage = settle.usage.clone().bounded();
        if let Some(hold) = self.holds.remove(&settle.hold) {
            let kind = match hold.is_open() {
                true => EntryKind::Settlement,
                false => EntryKind::LateSettlement,
            };
            let hold = self.post_end(hold, kind, settle.credits, Some(&usage), at);
            let (charged, overrun) = hold.charge();
            self.end(hold, HoldState::Settled, Some(usage));
            return Ok(Done::Settled { charged, overrun });
        }
        match self.ended.get(&settle.hold) {
            Some(ended) if ended.state == HoldState::Settled => {
                let (charged, overrun) = ended.charge();
                let settled = charged.saturating_add(overrun);
                if settled == settle.credits && ended.usage.as_ref() == Some(&usage) {
                    Ok(Done::Settled { charged, overrun })
                } else {
                    Err(Refusal::Conflict)
                }
            }
            _ => Err(self.is_over(&settle.hold)),
        }
    }

    fn release(&mut self, id: &HoldId, cost: Option<&RequestUsage>, at: Millis) -> Outcome {
        let cost = cost.map(|cost| cost.clone().bounded());
        let Some(mut hold) = self.holds.remove(id) else {
            return match self.is_over(id) {
                Refusal::Ended(HoldState::Released) => Ok(Done::Released),
                refusal => Err(refusal),
            };
        };
        if hold.is_open() {
            let reserved = mem::take(&mut hold.reserved);
            let lapsed = self.free(&hold, reserved);
            let entry = self.post(EntryKind::Release, Pools::default(), at, hold.period_start);
            entry.hold = Some(hold.open.clone());
            entry.usage = UsageDelta::between(None, cost.as_ref()).map(UsageDelta::of_unpaid);
            self.post_lapse(lapsed, hold.period_start, at);
        } else {
            let kind = EntryKind::LateRelease;
            hold = self.post_end(hold, kind, Credits::ZERO, cost.as_ref(), at);
        }
        self.end(hold, HoldState::Released, cost);
        Ok(Done::Released)
    }

    fn expire(&mut self, id: &HoldId, at: Millis) -> Outcome {
        let Some(mut hold) = self.holds.get(id).cloned() else {
            return Err(self.is_over(id));
        };
        if hold.is_open() {
            let (credits, usage) = (hold.checkpoint, hold.usage.clone());
            hold = self.post_end(hold, EntryKind::Expiry, credits, usage.as_ref(), at);
            hold.expired_at = Some(at);
            self.put(hold.clone());
        }
        let (charged, overrun) = hold.charge();
        Ok(Done::Expired { charged, overrun })
    }

    /// Checkpoints may overtake each other; the highest one counts.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Outcome {
        if !checkpoint.credits.is_in_range() {
            return Err(Refusal::OutOfRange);
        }
        let refusal = self.is_over(&checkpoint.hold);
        let hold = self.holds.get_mut(&checkpoint.hold).ok_or(refusal)?;
        if !hold.is_open() {
            return Err(Refusal::Ended(hold.state()));
        }
        if checkpoint.credits >= hold.checkpoint {
            hold.checkpoint = checkpoint.credits;
            hold.usage = Some(checkpoint.usage.clone().bounded());
            self.journal.holds.insert(checkpoint.hold.clone());
        }
        Ok(Done::Checkpointed)
    }

    fn grant(&mut self, grant: &Grant, at: Millis, recorded: Asked) -> Outcome {
        let Grant {
            id: _,
            plan,
            period,
            credits,
        } = *grant;
        if !credits.is_in_range() || period.start >= period.end {
            return Err(Refusal::OutOfRange);
        }
        if period.end <= at {
            return Err(Refusal::Outdated);
        }
        // Payment events may overtake each other. The free plan's period was not paid.
        if self.plan != Plan::Free {
            if period.start < self.period.start {
                return Err(Refusal::OlderPeriod);
            }
            if plan != Plan::Free && period.start == self.period.start {
                return self.amend(grant, at, recorded);
            }
        }
        self.begin_period(plan, period, credits, at, Some(recorded));
        Ok(Done::Granted { credits })
    }

    /// Raises the plan of the current period, or moves its end. Adds no credits: each upgrade payment tops up its own.
    fn amend(&mut self, grant: &Grant, at: Millis, recorded: Asked) -> Outcome {
        let plan = grant.plan.max(self.plan);
        if plan == self.plan && grant.period.end == self.period.end {
            return Err(Refusal::Granted);
        }
        self.plan = plan;
        self.period.end = grant.period.end;
        self.journal.plan = true;
        let entry = self.post(EntryKind::Grant, Pools::default(), at, self.period.start);
        entry.recorded = Some(recorded);
        Ok(Done::Granted {
            credits: Credits::ZERO,
        })
    }

    fn top_up(&mut self, top_up: &TopUp, at: Millis, recorded: Asked) -> Outcome {
        let credits = top_up.credits;
        if !credits.is_in_range() {
            return Err(Refusal::OutOfRange);
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
        self.balance = balance.ok_or(Refusal::OutOfRange)?;
        let entry = self.post(kind, bought, at, self.period.start);
        entry.recorded = Some(recorded);
        self.collect(bought, at);
        Ok(Done::ToppedUp { credits })
    }

    fn refund(&mut self, refund: &Refund, at: Millis, recorded: Asked) -> Outcome {
        if !refund.credits.is_in_range() {
            return Err(Refusal::OutOfRange);
        }
        let available = self.available().get(refund.pool);
        let taken = Pools::of(refund.pool, refund.credits.min(available));
        let spent = refund.credits.saturating_sub(taken.total());
        let owed = self.owed.checked_add(spent);
        self.owed = owed
            .filter(|owed| owed.is_in_range())
            .ok_or(Refusal::OutOfRange)?;
        self.balance = self.balance.minus(taken);
        let entry = self.post(EntryKind::Refund, taken.negated(), at, self.period.start);
        entry.owed = spent;
        entry.recorded = Some(recorded);
        Ok(Done::Refunded {
            credits: taken.total(),
        })
    }

    fn adjust(&mut self, adjust: &Adjust, at: Millis, recorded: Asked) -> Outcome {
        let Adjust {
            way, pool, credits, ..
        } = *adjust;
        if !credits.is_in_range() {
            return Err(Refusal::OutOfRange);
        }
        let available = self.available().get(pool);
        let change = Pools::of(pool, credits);
        let (kind, delta, balance) = match (way, pool) {
            (Way::Take, _) if credits > available => {
                return Err(Refusal::Insufficient {
                    required: credits,
                    available,
                });
            }
            (Way::Take, _) => {
                let balance = self.balance.minus(change);
                (EntryKind::Refund, change.negated(), Some(balance))
            }
            (Way::Give, Pool::Plan) => {
                (EntryKind::Grant, change, self.balance.checked_plus(change))
            }
            (Way::Give, Pool::TopUp) => {
                (EntryKind::TopUp, change, self.balance.checked_plus(change))
            }
        };
        self.balance = balance.ok_or(Refusal::OutOfRange)?;
        let entry = self.post(kind, delta, at, self.period.start);
        entry.recorded = Some(recorded);
        if way == Way::Give {
            self.collect(change, at);
        }
        Ok(Done::Adjusted { credits })
    }

    fn note_renewal(&mut self, renews: bool, at: Millis) -> Done {
        if self.plan != Plan::Free && renews == self.cancelled_at.is_some() {
            self.cancelled_at = (!renews).then_some(at);
            self.journal.account = true;
            self.journal.plan = true;
        }
        self.begin_due_period(at);
        Done::RenewalNoted
    }

    fn watch(&mut self, below: Option<Credits>, at: Millis) -> Outcome {
        if below.is_some_and(|below| !below.is_in_range()) {
            return Err(Refusal::OutOfRange);
        }
        // A due period counts as begun.
        self.begin_due_period(at);
        if self.low_below != below {
            self.low_below = below;
            self.journal.account = true;
            self.journal.plan = true;
        }
        Ok(Done::Watched)
    }

    fn set_budgets(&mut self, set: &SetBudgets, at: Millis) -> Outcome {
        let mut budgets = self.budgets.clone().unwrap_or_default();
        if !budgets.set(set, self.entries, at) {
            return Err(Refusal::OutOfRange);
        }
        self.budgets = Some(budgets).filter(|budgets| !budgets.is_empty());
        self.journal.account = true;
        Ok(Done::BudgetsSet)
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
    ) -> Result<(), Exceeded> {
        let budgets = self.budgets.as_ref();
        budgets.map_or(Ok(()), |budgets| {
            budgets.check(key_id, required, self.held.total(), at)
        })
    }

    /// Rejects a hold that exceeds a budget; returns the key whose budgets it counts for.
    fn look_at_budgets(&self, open: &Open, at: Millis) -> Result<Option<String>, Refusal> {
        let Some(budgets) = &self.budgets else {
            return Ok(None);
        };
        let key_id = open.key_id.as_deref();
        budgets
            .check(key_id, open.amount, self.held.total(), at)
            .map_err(|exceeded| Refusal::OverBudget(Box::new(exceeded)))?;
        let counted = key_id.filter(|key| budgets.has_key(key));
        Ok(counted.map(str::to_owned))
    }

    /// Adds credits to open holds.
    fn hold_more(&mut self, key_id: Option<&str>, credits: Pools) {
        self.held = self.held.plus(credits);
        self.note_held(key_id, credits.total().micro());
    }

    /// Removes credits from open holds.
    fn hold_less(&mut self, key_id: Option<&str>, credits: Pools) {
        self.held = self.held.minus(credits);
        self.note_held(key_id, -credits.total().micro());
    }

    fn note_held(&mut self, key_id: Option<&str>, change: i64) {
        if let Some(key_id) = key_id {
            let budgets = self.budgets.get_or_insert_default();
            budgets.change_held(key_id, change);
            if budgets.is_empty() {
                self.budgets = None;
            }
        }
    }

    /// Returns the state of the budgets of a key, or of the account.
    pub fn standings(&self, key_id: Option<&str>, at: Millis) -> Vec<Standing> {
        let budgets = self.budgets.as_ref();
        budgets.map_or_else(Vec::new, |budgets| {
            budgets.standings(key_id, self.held.total(), at)
        })
    }

    /// Records the time from which the balance is low. Held credits count, because they may return.
    fn note_level(&mut self, at: Millis) {
        let is_low = self
            .low_below
            .is_some_and(|below| self.balance.total() < below);
        if self.journal.account && is_low != self.low_since.is_some() {
            self.low_since = is_low.then_some(at);
        }
    }

    /// Collects owed credits from new ones.
    fn collect(&mut self, come: Pools, at: Millis) {
        let (taken, _) = come.take(self.owed);
        if taken.total() > Credits::ZERO {
            self.owed = self.owed.saturating_sub(taken.total());
            self.balance = self.balance.minus(taken);
            let entry = self.post(EntryKind::Refund, taken.negated(), at, self.period.start);
            entry.owed = taken.total().negated();
        }
    }

    /// Calls `act` unless an operation with this id was done already.
    fn once(
        &mut self,
        id: &OperationId,
        operation: &Operation,
        act: impl FnOnce(&mut Self, Asked) -> Outcome,
    ) -> Outcome {
        let Some(asked) = operation.asked() else {
            unreachable!("entries keep operations with an id");
        };
        if let Some(first) = self.recorded.get(id) {
            return if first.account == self.id && first.asked == asked {
                Ok(first.outcome.clone())
            } else {
                Err(Refusal::Conflict)
            };
        }
        let outcome = act(self, asked.clone())?;
        let recorded = Recorded {
            account: self.id.clone(),
            asked,
            outcome: outcome.clone(),
        };
        self.recorded.insert(id.clone(), recorded);
        Ok(outcome)
    }

    /// Rejects a request whose key is taken.
    fn look_at_key(&self, claim: &Claim, at: Millis) -> Result<(), Refusal> {
        let taken = self.keys.get(&claim.key).and_then(|key| {
            let fate = self.fate(&key.hold);
            key.refuses(claim, at, fate)
        });
        taken.map_or(Ok(()), |taken| Err(Refusal::KeyTaken(taken)))
    }

    fn claim(&mut self, claim: &Claim, open: &Open, boot_id: &BootId, at: Millis) {
        let key = Key {
            name: claim.key.clone(),
            request_digest: claim.request_digest,
            request_id: open.request_id.clone(),
            hold: open.hold.clone(),
            boot_id: boot_id.clone(),
            created_at: at,
            expires_at: keys::expires_at(at),
            completed_at: None,
            answer: None,
            leased_until: None,
        };
        self.keys.insert(claim.key.clone(), key);
        self.journal.keys.insert(claim.key.clone());
    }

    fn end_key(&mut self, end: &EndKey, at: Millis) -> Outcome {
        let key = self.keys.get(&end.key);
        let is_its_own =
            |key: &&Key| key.request_id == end.request_id && key.completed_at.is_none();
        let Some(key) = key.filter(is_its_own) else {
            return Ok(Done::KeyEnded);
        };
        match self.fate(&key.hold) {
            Fate::Open => return Err(Refusal::StillOpen),
            Fate::Nothing => return Ok(Done::KeyEnded),
            Fate::Charged(_) => {}
        }
        if let Some(key) = self.keys.get_mut(&end.key) {
            key.completed_at = Some(at);
            key.answer.clone_from(&end.answer);
        }
        self.journal.keys.insert(end.key.clone());
        Ok(Done::KeyEnded)
    }

    fn fate(&self, hold: &HoldId) -> Fate {
        match (self.holds.get(hold), self.ended.get(hold)) {
            (Some(hold), _) if hold.is_open() => Fate::Open,
            (Some(hold), _) => Fate::Charged(hold.charge().0),
            (None, Some(ended)) if ended.state != HoldState::Released => {
                Fate::Charged(ended.charge().0)
            }
            (None, _) => Fate::Nothing,
        }
    }

    /// Plan credits outside holds expire; held ones stay with their holds.
    fn begin_period(
        &mut self,
        plan: Plan,
        period: Period,
        credits: Credits,
        at: Millis,
        recorded: Option<Asked>,
    ) {
        let lapsed = self.available().plan;
        self.balance.plan = self.balance.plan.saturating_sub(lapsed);
        self.post_lapse(lapsed, self.period.start, at);
        self.plan = plan;
        self.period = period;
        self.cancelled_at = None;
        self.journal.plan = true;
        self.period_number = self.period_number.saturating_add(1);
        let granted = Pools::of(Pool::Plan, credits);
        self.balance = self.balance.plus(granted);
        let entry = self.post(EntryKind::Grant, granted, at, period.start);
        entry.recorded = recorded;
        self.collect(granted, at);
    }

    /// Charges an open or expired hold: the new charge replaces the previous one.
    fn post_end(
        &mut self,
        mut hold: Hold,
        kind: EntryKind,
        credits: Credits,
        usage: Option<&RequestUsage>,
        at: Millis,
    ) -> Hold {
        let (posted_before, overrun_before) = (hold.posted, hold.overrun);
        // The amounts that an expiry has posted; an open hold has posted nothing.
        let settled_before = posted_before.total().saturating_add(overrun_before);
        let more = credits.saturating_sub(settled_before);
        let less = settled_before.saturating_sub(credits);

        // The hold's own credits first; the rest of them is freed before others are drawn.
        let (own, beyond) = hold.reserved.take(more);
        let unused = hold.reserved.minus(own);
        hold.reserved = Pools::default();
        self.balance = self.balance.minus(own);
        self.hold_less(hold.open.key_id.as_deref(), own);
        let mut lapsed = self.free(&hold, unused);
        let (drawn, missing) = self.draw(&hold, beyond);
        hold.posted = hold.posted.plus(own).plus(drawn);
        hold.overrun = hold.overrun.saturating_add(missing);

        // After a reduction, our loss shrinks first, then the account gets the rest back.
        let spared = less.min(hold.overrun);
        hold.overrun = hold.overrun.saturating_sub(spared);
        let returned = hold.posted.take_back(less.saturating_sub(spared));
        hold.posted = hold.posted.minus(returned);
        self.balance = self.balance.plus(returned);
        self.hold_more(hold.open.key_id.as_deref(), returned);
        lapsed = lapsed.saturating_add(self.free(&hold, returned));

        let delta = Pools {
            plan: hold.posted.plan.since(posted_before.plan).negated(),
            top_up: hold.posted.top_up.since(posted_before.top_up).negated(),
        };
        // A checkpoint is not reported.
        let is_first = kind == EntryKind::Expiry || kind == EntryKind::Settlement;
        let counted = hold.usage.as_ref().filter(|_| !is_first);
        // An unpaid cost belongs to no charged request.
        let is_unpaid = kind == EntryKind::LateRelease && usage.is_some();
        let mut usage = UsageDelta::between(counted, usage);
        if is_unpaid {
            usage = usage.map(UsageDelta::of_unpaid);
        }
        if let Some(budgets) = &mut self.budgets {
            let spent = delta.negated().total().micro();
            budgets.spend(hold.open.key_id.as_deref(), spent, at);
        }
        let entry = self.post(kind, delta, at, hold.period_start);
        entry.overrun = hold.overrun.since(overrun_before);
        entry.usage = usage;
        entry.hold = Some(hold.open.clone());
        self.post_lapse(lapsed, hold.period_start, at);
        hold
    }

    /// Stores a removed hold as ended.
    fn end(&mut self, hold: Hold, state: HoldState, usage: Option<RequestUsage>) {
        let id = hold.open.hold.clone();
        self.journal.holds.insert(id.clone());
        let ended = Ended {
            open: hold.open,
            state,
            posted: hold.posted,
            overrun: hold.overrun,
            usage,
        };
        self.ended.insert(id, ended);
    }

    /// Frees a hold's credits: they return to its parent if that is open, or to the account. Credits of a past plan
    /// period expire, and are returned for their entry.
    fn free(&mut self, hold: &Hold, credits: Pools) -> Credits {
        if let Some(parent) = self.open_parent(hold) {
            parent.reserved = parent.reserved.plus(credits);
            self.note_parent(hold);
            return Credits::ZERO;
        }
        self.hold_less(hold.open.key_id.as_deref(), credits);
        self.journal.account = true;
        if hold.period_number == self.period_number {
            return Credits::ZERO;
        }
        self.balance.plan = self.balance.plan.saturating_sub(credits.plan);
        credits.plan
    }

    /// Draws credits beyond a hold: the parent's remaining credits, then available ones. From the plan's credits, only
    /// those of the hold's own period. Also returns the missing amount.
    fn draw(&mut self, hold: &Hold, credits: Credits) -> (Pools, Credits) {
        let mut from_parent = Pools::default();
        let mut missing = credits;
        if credits > Credits::ZERO
            && let Some(parent) = self.open_parent(hold)
        {
            (from_parent, missing) = parent.reserved.take(credits);
            parent.reserved = parent.reserved.minus(from_parent);
            self.hold_less(hold.open.key_id.as_deref(), from_parent);
            self.balance = self.balance.minus(from_parent);
            self.note_parent(hold);
        }
        let mut spendable = self.available();
        if hold.period_number != self.period_number {
            spendable.plan = Credits::ZERO;
        }
        let (taken, missing) = spendable.take(missing);
        self.balance = self.balance.minus(taken);
        (from_parent.plus(taken), missing)
    }

    fn open_parent(&mut self, hold: &Hold) -> Option<&mut Hold> {
        let parent = self.holds.get_mut(hold.open.parent.as_ref()?)?;
        parent.is_open().then_some(parent)
    }

    fn note_parent(&mut self, hold: &Hold) {
        self.journal.holds.extend(hold.open.parent.clone());
    }

    /// Returns the reason why a hold that is neither open nor expired cannot be ended.
    fn is_over(&self, id: &HoldId) -> Refusal {
        match self.ended.get(id) {
            Some(ended) => Refusal::Ended(ended.state),
            None => Refusal::UnknownHold,
        }
    }

    fn put(&mut self, hold: Hold) {
        self.journal.holds.insert(hold.open.hold.clone());
        self.holds.insert(hold.open.hold.clone(), hold);
    }

    fn post_lapse(&mut self, credits: Credits, period_start: Millis, at: Millis) {
        if credits > Credits::ZERO {
            let lapsed = Pools::of(Pool::Plan, credits);
            self.post(EntryKind::Lapse, lapsed.negated(), at, period_start);
        }
    }

    /// Appends an entry for a change of the balance.
    fn post(
        &mut self,
        kind: EntryKind,
        delta: Pools,
        at: Millis,
        period_start: Millis,
    ) -> &mut Entry {
        self.entries += 1;
        self.journal.account = true;
        let entry = Entry {
            sequence: self.entries,
            at,
            kind,
            plan_delta: delta.plan,
            top_up_delta: delta.top_up,
            overrun: Credits::ZERO,
            owed: Credits::ZERO,
            period_start,
            recorded: None,
            hold: None,
            usage: None,
        };
        let entries = &mut self.journal.entries;
        let place = entries.len();
        entries.push(entry);
        &mut entries[place]
    }
}

impl Hold {
    /// Returns whether the hold is open; otherwise it has expired.
    pub fn is_open(&self) -> bool {
        self.expired_at.is_none()
    }

    fn state(&self) -> HoldState {
        match self.is_open() {
            true => HoldState::Open,
            false => HoldState::Expired,
        }
    }

    /// Returns the paid and the unpaid amount.
    fn charge(&self) -> (Credits, Credits) {
        (self.posted.total(), self.overrun)
    }
}

impl Ended {
    /// Adds a later entry of the same hold.
    pub(crate) fn add(&mut self, later: Self) {
        self.state = later.state;
        self.posted = self.posted.plus(later.posted);
        self.overrun = self.overrun.saturating_add(later.overrun);
    }

    /// Adds an entry's usage.
    pub(crate) fn add_usage(&mut self, reported: UsageDelta) {
        let before = self.usage.take().unwrap_or_default();
        let latency_ms = before.latency_ms as i64 + reported.latency_ms;
        let attempts = i64::from(before.attempts) + reported.attempts;
        self.usage = Some(RequestUsage {
            provider: reported.provider,
            adapter_digest: reported.adapter_digest,
            counts: before.counts.plus(reported.counts),
            latency_ms: latency_ms.max(0).unsigned_abs(),
            attempts: u32::try_from(attempts.max(0)).unwrap_or(u32::MAX),
            estimated: reported.estimated,
        });
    }

    /// Returns the paid and the unpaid amount.
    fn charge(&self) -> (Credits, Credits) {
        (self.posted.total(), self.overrun)
    }
}

impl EntryKind {
    /// Returns the kind's name in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Settlement => "settlement",
            Self::Release => "release",
            Self::Expiry => "expiry",
            Self::LateSettlement => "late_settlement",
            Self::LateRelease => "late_release",
            Self::Grant => "grant",
            Self::Lapse => "lapse",
            Self::TopUp => "top_up",
            Self::Refund => "refund",
        }
    }
}

impl UsageDelta {
    /// Returns the current usage minus the reported usage. A hold has one provider: no request fails over once it has a
    /// checkpoint.
    fn between(before: Option<&RequestUsage>, now: Option<&RequestUsage>) -> Option<Self> {
        let named = now.or(before)?;
        let counts =
            |usage: Option<&RequestUsage>| usage.map(|usage| usage.counts).unwrap_or_default();
        let change =
            |figure: fn(&RequestUsage) -> i64| now.map_or(0, figure) - before.map_or(0, figure);
        Some(Self {
            provider: named.provider.clone(),
            adapter_digest: named.adapter_digest.clone(),
            requests: i64::from(now.is_some()) - i64::from(before.is_some()),
            counts: counts(now).minus(counts(before)),
            latency_ms: change(|usage| usage.latency_ms as i64),
            attempts: change(|usage| i64::from(usage.attempts)),
            estimated: named.estimated,
        })
    }

    /// Returns the same delta for a request without a charge.
    fn of_unpaid(mut self) -> Self {
        self.requests -= 1;
        self
    }
}

/// Sums of an account's credits, which the ranges of operations keep far from the bounds of an i64, and differences
/// between a total and its parts.
impl Pools {
    /// Returns the sum of both pools.
    pub fn total(self) -> Credits {
        self.plan.saturating_add(self.top_up)
    }

    /// Returns the credits before a change.
    pub(crate) fn before(self, change: Self) -> Self {
        Self {
            plan: self.plan.since(change.plan),
            top_up: self.top_up.since(change.top_up),
        }
    }

    /// Makes pools with credits in one pool.
    fn of(pool: Pool, credits: Credits) -> Self {
        let mut pools = Self::default();
        match pool {
            Pool::Plan => pools.plan = credits,
            Pool::TopUp => pools.top_up = credits,
        }
        pools
    }

    fn get(self, pool: Pool) -> Credits {
        match pool {
            Pool::Plan => self.plan,
            Pool::TopUp => self.top_up,
        }
    }

    fn checked_plus(self, other: Self) -> Option<Self> {
        Some(Self {
            plan: self.plan.checked_add(other.plan)?,
            top_up: self.top_up.checked_add(other.top_up)?,
        })
    }

    fn plus(self, other: Self) -> Self {
        Self {
            plan: self.plan.saturating_add(other.plan),
            top_up: self.top_up.saturating_add(other.top_up),
        }
    }

    fn minus(self, part: Self) -> Self {
        debug_assert!(part.plan <= self.plan && part.top_up <= self.top_up);
        Self {
            plan: self.plan.saturating_sub(part.plan),
            top_up: self.top_up.saturating_sub(part.top_up),
        }
    }

    pub(crate) fn negated(self) -> Self {
        Self {
            plan: self.plan.negated(),
            top_up: self.top_up.negated(),
        }
    }

    /// Takes as much of `amount` as possible, plan credits first, and returns the missing amount.
    fn take(self, amount: Credits) -> (Self, Credits) {
        let plan = amount.min(self.plan);
        let top_up = amount.saturating_sub(plan).min(self.top_up);
        let taken = Self { plan, top_up };
        (taken, amount.saturating_sub(taken.total()))
    }

    /// Takes all of `amount`, or returns the refusal. A balance that equals the amount is enough.
    fn take_all(self, amount: Credits) -> Result<Self, Refusal> {
        match self.take(amount) {
            (taken, Credits::ZERO) => Ok(taken),
            _ => Err(Refusal::Insufficient {
                required: amount,
                available: self.total(),
            }),
        }
    }

    /// Undoes [`Self::take`] for an amount: bought credits return first.
    fn take_back(self, amount: Credits) -> Self {
        let top_up = amount.min(self.top_up);
        Self {
            plan: amount.saturating_sub(top_up).min(self.plan),
            top_up,
        }
    }
}

#[cfg(test)]
mod tests;
