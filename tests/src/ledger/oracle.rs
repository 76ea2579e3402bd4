//! An independent implementation of the ledger's rules.
//!
//! The ledger keeps sums of balances and holds; the oracle keeps *lots*: each period's plan credits are a lot, and
//! bought credits are one more. A hold takes credits out of lots and puts them back; credits put back into the lot of
//! a past period are lost. The oracle remembers each id's request and result. The ledger keeps counters for budgets;
//! the oracle adds up all charges. Random histories go through both, in random batches.

use std::collections::{BTreeMap, HashMap};
use std::iter;

use weir_ledger::receipt::{ReceiptFacts, TierFigures};
use weir_ledger::verify::verify;
use weir_ledger::{
    AccountId, Action, Adjust, BootId, Budget, BudgetExceeded, BudgetPart, BudgetState,
    BudgetWindow, ChangeDirection, Checkpoint, Credits, Grant, HoldId, HoldState, LedgerRefusal,
    LedgerStore, OpenHold, Operation, OperationEffect, OperationId, OperationOutcome, Period, Plan,
    Pool, Refund, RequestSource, RequestUsage, SetBudgets, Settle, TopUp, Unit, UsageCounts,
};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;

use super::create_users;
use super::random::Random;

const START: Millis = Millis(1_750_000_000_000);

/// Few accounts, so that operations meet; every second operation uses the first one.
const ACCOUNTS: usize = 12;

/// Holds of an account that later operations may use.
const REMEMBERED: usize = 24;

/// The oracle's view of all accounts.
#[derive(Default)]
struct Oracle {
    accounts: BTreeMap<String, Lots>,
    /// Operations with an id: the request, its account and the result.
    done: HashMap<String, (AccountId, Action, OperationEffect)>,
}

#[derive(Clone)]
struct Lots {
    created_at: Millis,
    plan: Plan,
    period: Option<Period>,
    /// Free credits of each period's lot; all except the last one are closed.
    periods: Vec<i64>,
    top_up: i64,
    owed: i64,
    /// The paid plan ends with its period.
    ends: bool,
    holds: HashMap<String, Taken>,
    /// Budgets by their scope, each with the moment of its setting and the number of charges by then.
    budgets: BTreeMap<Option<BudgetPart>, Vec<(Budget, Millis, usize)>>,
    /// All charges and refunds: the moment, the parts and the amount.
    charges: Vec<(Millis, Vec<BudgetPart>, i64)>,
    /// The latest holds, for the generator.
    recent: Vec<String>,
}

#[derive(Clone)]
struct Taken {
    open: OpenHold,
    /// The parts whose budgets count the hold.
    parts: Vec<BudgetPart>,
    lot: usize,
    /// Unspent credits that it has taken out of its period's lot and out of bought credits.
    keeps: (i64, i64),
    spent: (i64, i64),
    lost: i64,
    total: i64,
    checkpoint: (i64, Option<RequestUsage>),
    state: HoldState,
    settled_with: Option<Settle>,
}

impl Lots {
    fn begin(&mut self, plan: Plan, period: Period, credits: i64) {
        if let Some(last) = self.periods.last_mut() {
            *last = 0;
        }
        self.periods.push(credits);
        self.plan = plan;
        self.period = Some(period);
        self.ends = false;
    }

    /// Pays debts with free credits, credit by credit: the plan's, then bought ones.
    fn pay_debts(&mut self) {
        for pool in [Pool::Plan, Pool::TopUp] {
            let paid = self.owed.min(*self.pool(pool));
            self.owed -= paid;
            *self.pool(pool) -= paid;
        }
    }

    /// Returns the free credits of a pool. A plan's pool exists once a period has begun.
    fn pool(&mut self, pool: Pool) -> &mut i64 {
        if self.periods.is_empty() {
            self.periods.push(0);
        }
        match pool {
            Pool::Plan => self.periods.last_mut().expect("there is one"),
            Pool::TopUp => &mut self.top_up,
        }
    }

    fn begin_if_due(&mut self, at: Millis) {
        let grace = if self.plan == Plan::Free || self.ends {
            0
        } else {
            3
        };
        if let Some(period) = self.period
            && at < period.end.plus_days(grace)
        {
            return;
        }
        let mut month = Period::monthly(self.created_at, at);
        if let Some(last) = self.period {
            month.start = month.start.max(last.end).min(month.end);
        }
        self.begin(Plan::Free, month, 500_000_000);
    }

    fn free(&self) -> i64 {
        self.periods.last().unwrap_or(&0) + self.top_up
    }

    /// Takes credits out of a lot, if it is the open one, and then out of bought credits.
    fn take(&mut self, lot: usize, amount: i64, top_up_only: bool) -> (i64, i64) {
        let mut of_plan = 0;
        if !top_up_only && lot + 1 == self.periods.len() {
            of_plan = amount.min(self.periods[lot]);
            self.periods[lot] -= of_plan;
        }
        let bought = (amount - of_plan).min(self.top_up);
        self.top_up -= bought;
        (of_plan, bought)
    }

    /// Puts back a hold's credits, to its parent if that is open.
    fn put_back(&mut self, hold: &Taken, credits: (i64, i64)) {
        if let Some(parent) = self.open_parent(hold) {
            parent.keeps = (parent.keeps.0 + credits.0, parent.keeps.1 + credits.1);
            return;
        }
        if hold.lot + 1 == self.periods.len() {
            self.periods[hold.lot] += credits.0;
        }
        self.top_up += credits.1;
    }

    fn open_parent(&mut self, hold: &Taken) -> Option<&mut Taken> {
        let parent = hold.open.parent.as_ref()?;
        let parent = self.holds.get_mut(&parent.0)?;
        (parent.state == HoldState::Open).then_some(parent)
    }

    /// Returns the parts with budgets.
    fn with_budgets(&self, parts: &[BudgetPart]) -> Vec<BudgetPart> {
        let has_budgets = |part: &&BudgetPart| {
            let budgets = self.budgets.get(&Some((*part).clone()));
            budgets.is_some_and(|budgets| !budgets.is_empty())
        };
        parts.iter().filter(has_budgets).cloned().collect()
    }

    /// Returns the budget that forbids a hold.
    fn exceeded(
        &self,
        open: &OpenHold,
        parts: impl Iterator<Item = Option<BudgetPart>>,
        at: Millis,
    ) -> Option<BudgetExceeded> {
        let mut worst: Option<BudgetExceeded> = None;
        for part in parts {
            for standing in self.standings(part.as_ref(), at) {
                if open.amount <= standing.left {
                    continue;
                }
                let is_longer = worst.as_ref().is_none_or(|worst| {
                    let end = |at: Option<Millis>| at.map_or(i64::MAX, |at| at.0);
                    end(standing.resets_at) >= end(worst.standing.resets_at)
                });
                if is_longer {
                    worst = Some(BudgetExceeded {
                        part: part.clone(),
                        required: open.amount,
                        standing,
                    });
                }
            }
        }
        worst
    }

    /// Returns the states of the budgets of a part, computed from all charges.
    fn standings(&self, part: Option<&BudgetPart>, at: Millis) -> Vec<BudgetState> {
        let counts = |parts: &[BudgetPart]| part.is_none_or(|part| parts.contains(part));
        let open_holds = self
            .holds
            .values()
            .filter(|hold| hold.state == HoldState::Open && counts(&hold.parts));
        let held: i64 = open_holds.map(|hold| hold.keeps.0 + hold.keeps.1).sum();
        let budgets = self.budgets.get(&part.cloned());
        let state = |(budget, set_at, since): &(Budget, Millis, usize)| {
            let charges = self.charges[*since..].iter();
            let charges = charges.filter(|(_, parts, _)| counts(parts));
            let starts = charges.clone().map(|(at, ..)| budget.window.start(*at));
            let start = starts
                .chain([budget.window.start(*set_at), budget.window.start(at)])
                .max()
                .expect("two at least");
            let spent: i64 = charges
                .filter(|(at, ..)| budget.window.start(*at) == start)
                .map(|(.., micro)| micro)
                .sum();
            let left = (budget.credits.micro() - spent - held).max(0);
            BudgetState {
                budget: *budget,
                spent: Credits::from_micro(spent),
                held: Credits::from_micro(held),
                left: Credits::from_micro(left),
                resets_at: budget.window.end(start),
            }
        };
        budgets.into_iter().flatten().map(state).collect()
    }

    /// Returns the least that the budgets of these parts have left beside charges that they do not count yet.
    fn left<'p>(
        &self,
        parts: impl Iterator<Item = Option<&'p BudgetPart>>,
        at: Millis,
        uncounted: i64,
    ) -> i64 {
        let states = parts.flat_map(|part| self.standings(part, at));
        let left = states.map(|state| state.left.micro()).min();
        (left.unwrap_or(i64::MAX) - uncounted).max(0)
    }

    fn set_budgets(&mut self, set: &SetBudgets, at: Millis) {
        let since = self.charges.len();
        let before = self.budgets.remove(&set.part).unwrap_or_default();
        let kept = set.budgets.iter().map(|budget| {
            let mut before = before.iter();
            let same = before.find(|(before, ..)| before.window == budget.window);
            same.map_or((*budget, at, since), |(_, at, since)| {
                (*budget, *at, *since)
            })
        });
        self.budgets.insert(set.part.clone(), kept.collect());
    }

    /// Sets the spent and lost credits of a hold to `total`.
    fn spend(&mut self, id: &str, total: i64, at: Millis) {
        let mut hold = self.holds[id].clone();
        let before = hold.spent.0 + hold.spent.1;
        let mut more = total - hold.total;
        hold.total = total;
        if more >= 0 {
            // The sum in one step, equal to credit by credit: its own, its parent's, free credits, nobody's.
            let own = (
                more.min(hold.keeps.0),
                (more - more.min(hold.keeps.0)).min(hold.keeps.1),
            );
            more -= own.0 + own.1;
            let rest = (hold.keeps.0 - own.0, hold.keeps.1 - own.1);
            hold.keeps = (0, 0);
            self.holds.insert(id.to_owned(), hold.clone());
            self.put_back(&hold, rest);
            let mut of_parent = (0, 0);
            let counted = own.0 + own.1;
            if let Some(parent) = self.open_parent(&hold).cloned() {
                let others = hold.parts.iter();
                let others = others.filter(|part| !parent.parts.contains(part));
                let most = more.min(self.left(others.map(Some), at, counted));
                of_parent.0 = most.min(parent.keeps.0);
                of_parent.1 = (most - of_parent.0).min(parent.keeps.1);
                let parent = self.open_parent(&hold).expect("it is open");
                parent.keeps = (parent.keeps.0 - of_parent.0, parent.keeps.1 - of_parent.1);
            }
            more -= of_parent.0 + of_parent.1;
            let all = iter::once(None).chain(hold.parts.iter().map(Some));
            let most = self.left(all, at, counted + of_parent.0 + of_parent.1);
            let free = self.take(hold.lot, more.min(most), hold.open.top_up_only);
            more -= free.0 + free.1;
            hold.spent.0 += own.0 + of_parent.0 + free.0;
            hold.spent.1 += own.1 + of_parent.1 + free.1;
            hold.lost += more;
        } else {
            let mut less = -more;
            let found = less.min(hold.lost);
            hold.lost -= found;
            less -= found;
            let back = (less - less.min(hold.spent.1), less.min(hold.spent.1));
            hold.spent = (hold.spent.0 - back.0, hold.spent.1 - back.1);
            self.put_back(&hold, back);
        }
        let charge = hold.spent.0 + hold.spent.1 - before;
        if charge != 0 {
            self.charges.push((at, hold.parts.clone(), charge));
        }
        self.holds.insert(id.to_owned(), hold);
    }
}

impl Oracle {
    /// Returns whether an operation opens a hold with an id that no account has used.
    fn is_new_hold(&self, operation: &Operation) -> bool {
        let Action::Open { open, .. } = &operation.action else {
            return false;
        };
        let mut accounts = self.accounts.values();
        !accounts.any(|account| account.holds.contains_key(&open.hold.0))
    }

    fn answer(&mut self, operation: &Operation) -> OperationOutcome {
        if let Some(id) = operation.id()
            && self.accounts.contains_key(&operation.account.0)
            && let Some((account, action, done)) = self.done.get(&id.0)
        {
            return if (account, action) == (&operation.account, &operation.action) {
                Ok(done.clone())
            } else {
                Err(LedgerRefusal::Conflict)
            };
        }
        let account = self
            .accounts
            .get_mut(&operation.account.0)
            .ok_or(LedgerRefusal::UnknownAccount)?;
        let at = operation.at;
        let outcome = match &operation.action {
            Action::Open { open, .. } => Self::open(account, open, at),
            Action::Settle(settle) => Self::settle(account, settle, at),
            Action::Release { hold, .. } => Self::release(account, hold, at),
            Action::Expire { hold } => Self::expire(account, hold, at),
            Action::Checkpoint(checkpoint) => Self::checkpoint(account, checkpoint),
            Action::ResetPeriod => {
                account.begin_if_due(at);
                Ok(OperationEffect::PeriodReset)
            }
            Action::Grant(grant)
                if !fits(grant.credits) || grant.period.start >= grant.period.end =>
            {
                Err(LedgerRefusal::OutOfRange)
            }
            Action::Grant(grant) if grant.period.end <= at => Err(LedgerRefusal::Outdated),
            Action::Grant(grant)
                if account.plan != Plan::Free
                    && account
                        .period
                        .is_some_and(|paid| grant.period.start < paid.start) =>
            {
                Err(LedgerRefusal::OlderPeriod)
            }
            Action::Grant(grant)
                if account.plan != Plan::Free
                    && grant.plan != Plan::Free
                    && account
                        .period
                        .is_some_and(|paid| grant.period.start == paid.start) =>
            {
                Self::amend(account, grant)
            }
            Action::Grant(Grant {
                plan,
                period,
                credits,
                ..
            }) => {
                account.begin(*plan, *period, credits.micro());
                Ok(OperationEffect::Granted { credits: *credits })
            }
            Action::TopUp(TopUp {
                credits, within, ..
            }) if fits(*credits) => {
                let is_paid_for = |moment: Millis| {
                    account.plan != Plan::Free
                        && account.period.is_some_and(|period| {
                            period.start <= moment && moment < period.end && at < period.end
                        })
                };
                let pool = match within {
                    Some(moment) if is_paid_for(*moment) => Pool::Plan,
                    _ => Pool::TopUp,
                };
                *account.pool(pool) += credits.micro();
                Ok(OperationEffect::ToppedUp { credits: *credits })
            }
            Action::Refund(Refund { pool, credits, .. }) if fits(*credits) => {
                let taken = credits.micro().min(*account.pool(*pool));
                *account.pool(*pool) -= taken;
                account.owed += credits.micro() - taken;
                Ok(OperationEffect::Refunded {
                    credits: Credits::from_micro(taken),
                })
            }
            Action::TopUp(_) | Action::Refund(_) => Err(LedgerRefusal::OutOfRange),
            Action::Adjust(adjust) => Self::adjust(account, adjust),
            Action::Renewal { renews } => {
                if account.plan != Plan::Free {
                    account.ends = !renews;
                }
                account.begin_if_due(at);
                Ok(OperationEffect::RenewalNoted)
            }
            Action::Watch { .. } => Ok(OperationEffect::Watched),
            Action::SetBudgets(set) => {
                account.set_budgets(set, at);
                Ok(OperationEffect::BudgetsSet)
            }
            Action::Persist(_)
            | Action::EndKey(_)
            | Action::Fold
            | Action::FillBlock(_)
            | Action::EndBlocks { .. } => unreachable!("none is generated"),
        };
        account.pay_debts();
        if let Some(id) = operation.id()
            && let Ok(done) = &outcome
        {
            let first = (operation.account.clone(), operation.action.clone());
            self.done
                .insert(id.0.clone(), (first.0, first.1, done.clone()));
        }
        outcome
    }

    fn amend(account: &mut Lots, grant: &Grant) -> OperationOutcome {
        let period = account.period.as_mut().expect("it is compared with");
        if grant.plan <= account.plan && grant.period.end == period.end {
            return Err(LedgerRefusal::Granted);
        }
        period.end = grant.period.end;
        account.plan = account.plan.max(grant.plan);
        Ok(OperationEffect::Granted {
            credits: Credits::ZERO,
        })
    }

    fn adjust(account: &mut Lots, adjust: &Adjust) -> OperationOutcome {
        let credits = adjust.credits.micro();
        let pool = account.pool(adjust.pool);
        match adjust.way {
            _ if !fits(adjust.credits) => return Err(LedgerRefusal::OutOfRange),
            ChangeDirection::Take if *pool < credits => {
                return Err(LedgerRefusal::Insufficient {
                    required: adjust.credits,
                    available: Credits::from_micro(*pool),
                });
            }
            ChangeDirection::Take => *pool -= credits,
            ChangeDirection::Give => *pool += credits,
        }
        Ok(OperationEffect::Adjusted {
            credits: adjust.credits,
        })
    }

    fn open(account: &mut Lots, open: &OpenHold, at: Millis) -> OperationOutcome {
        if let Some(hold) = account.holds.get(&open.hold.0) {
            let of_request = |open: &OpenHold| OpenHold {
                parts: Vec::new(),
                top_up_only: false,
                ..open.clone()
            };
            return if of_request(&hold.open) == of_request(open) {
                Ok(OperationEffect::Opened)
            } else {
                Err(LedgerRefusal::Conflict)
            };
        }
        if !fits(open.amount) {
            return Err(LedgerRefusal::OutOfRange);
        }
        let short = |available| LedgerRefusal::Insufficient {
            required: open.amount,
            available: Credits::from_micro(available),
        };
        let amount = open.amount.micro();
        let (lot, keeps, parts, top_up_only) = match &open.parent {
            None => {
                account.begin_if_due(at);
                let parts = open.parts.iter().cloned().map(Some);
                let parts = iter::once(None).chain(parts);
                if let Some(exceeded) = account.exceeded(open, parts, at) {
                    return Err(LedgerRefusal::OverBudget(Box::new(exceeded)));
                }
                let payable = match open.top_up_only {
                    true => account.top_up,
                    false => account.free(),
                };
                if payable < amount {
                    return Err(short(payable));
                }
                let lot = account.periods.len() - 1;
                let parts = account.with_budgets(&open.parts);
                let keeps = account.take(lot, amount, open.top_up_only);
                (lot, keeps, parts, open.top_up_only)
            }
            Some(parent) => {
                let found = account
                    .holds
                    .get(&parent.0)
                    .ok_or(LedgerRefusal::UnknownHold)?;
                if found.state != HoldState::Open {
                    return Err(LedgerRefusal::Ended(found.state));
                }
                if account.owed > 0 {
                    return Err(short(0));
                }
                // The request counts for its own parts as well, such as its model.
                let mut parts = found.parts.clone();
                let mut own = account.with_budgets(&open.parts);
                own.retain(|part| !parts.contains(part));
                if let Some(exceeded) = account.exceeded(open, own.iter().cloned().map(Some), at) {
                    return Err(LedgerRefusal::OverBudget(Box::new(exceeded)));
                }
                parts.extend(own);
                let parent = account.holds.get_mut(&parent.0).expect("it was found");
                let (plan, top_up) = parent.keeps;
                if plan + top_up < amount {
                    return Err(short(plan + top_up));
                }
                let of_plan = amount.min(plan);
                parent.keeps = (plan - of_plan, top_up - (amount - of_plan));
                (
                    parent.lot,
                    (of_plan, amount - of_plan),
                    parts,
                    parent.open.top_up_only,
                )
            }
        };
        let hold = Taken {
            open: OpenHold {
                top_up_only,
                ..open.clone()
            },
            parts,
            lot,
            keeps,
            spent: (0, 0),
            lost: 0,
            total: 0,
            checkpoint: (0, None),
            state: HoldState::Open,
            settled_with: None,
        };
        account.holds.insert(open.hold.0.clone(), hold);
        account.recent.push(open.hold.0.clone());
        if account.recent.len() > REMEMBERED {
            account.recent.remove(0);
        }
        Ok(OperationEffect::Opened)
    }

    fn settle(account: &mut Lots, settle: &Settle, at: Millis) -> OperationOutcome {
        if !fits(settle.credits) {
            return Err(LedgerRefusal::OutOfRange);
        }
        let id = &settle.hold.0;
        let hold = account.holds.get(id).ok_or(LedgerRefusal::UnknownHold)?;
        match (hold.state, &hold.settled_with) {
            (HoldState::Released, _) => return Err(LedgerRefusal::Ended(HoldState::Released)),
            (HoldState::Settled, Some(first)) if first == settle => {}
            (HoldState::Settled, _) => return Err(LedgerRefusal::Conflict),
            (HoldState::Open | HoldState::Expired, _) => {
                account.spend(id, settle.credits.micro(), at);
                let hold = account.holds.get_mut(id).expect("it is there");
                hold.state = HoldState::Settled;
                hold.settled_with = Some(settle.clone());
            }
        }
        let hold = &account.holds[id];
        Ok(OperationEffect::Settled {
            charged: Credits::from_micro(hold.spent.0 + hold.spent.1),
            overrun: Credits::from_micro(hold.lost),
        })
    }

    fn release(account: &mut Lots, id: &HoldId, at: Millis) -> OperationOutcome {
        let hold = account.holds.get(&id.0).ok_or(LedgerRefusal::UnknownHold)?;
        match hold.state {
            HoldState::Released => {}
            HoldState::Settled => return Err(LedgerRefusal::Ended(HoldState::Settled)),
            HoldState::Open | HoldState::Expired => {
                account.spend(&id.0, 0, at);
                account.holds.get_mut(&id.0).expect("it is there").state = HoldState::Released;
            }
        }
        Ok(OperationEffect::Released)
    }

    fn expire(account: &mut Lots, id: &HoldId, at: Millis) -> OperationOutcome {
        let hold = account.holds.get(&id.0).ok_or(LedgerRefusal::UnknownHold)?;
        match hold.state {
            HoldState::Open => {
                account.spend(&id.0, hold.checkpoint.0, at);
                account.holds.get_mut(&id.0).expect("it is there").state = HoldState::Expired;
            }
            HoldState::Expired => {}
            ended => return Err(LedgerRefusal::Ended(ended)),
        }
        let hold = &account.holds[&id.0];
        Ok(OperationEffect::Expired {
            charged: Credits::from_micro(hold.spent.0 + hold.spent.1),
            overrun: Credits::from_micro(hold.lost),
        })
    }

    fn checkpoint(account: &mut Lots, checkpoint: &Checkpoint) -> OperationOutcome {
        if !fits(checkpoint.credits) {
            return Err(LedgerRefusal::OutOfRange);
        }
        let hold = account
            .holds
            .get_mut(&checkpoint.hold.0)
            .ok_or(LedgerRefusal::UnknownHold)?;
        if hold.state != HoldState::Open {
            return Err(LedgerRefusal::Ended(hold.state));
        }
        if checkpoint.credits.micro() >= hold.checkpoint.0 {
            hold.checkpoint = (checkpoint.credits.micro(), Some(checkpoint.usage.clone()));
        }
        Ok(OperationEffect::Checkpointed)
    }
}

fn fits(credits: Credits) -> bool {
    (0..=1_000_000_000_000_000).contains(&credits.micro())
}

/// A generator of valid histories.
struct Generator {
    random: Random,
    now: Millis,
    number: u64,
    past: Vec<Operation>,
}

impl Generator {
    fn operation(&mut self, oracle: &Oracle) -> Operation {
        self.now.0 += self.random.up_to(2_000);
        if self.random.below(20_000) == 0 {
            self.now = self.now.plus_days(self.random.up_to(40));
        }
        // An exact repetition of an earlier request.
        if self.random.percent(10)
            && let Some(operation) = self.random.choose(&self.past)
        {
            return operation.clone();
        }
        let index = if self.random.percent(50) {
            0
        } else {
            self.random.below(ACCOUNTS)
        };
        let name = if self.random.below(500) == 0 {
            "nobody".to_owned()
        } else {
            account_id(index)
        };
        let action = self.action(oracle.accounts.get(&name));
        let operation = Operation {
            account: AccountId(name),
            at: self.now,
            action,
        };
        if self.past.len() < 200 {
            self.past.push(operation.clone());
        } else {
            let place = self.random.below(self.past.len());
            self.past[place] = operation.clone();
        }
        operation
    }

    /// Opens a hold of an account's own credits: mostly like others before, so that a block has room for it.
    fn opening(&mut self, oracle: &Oracle) -> Operation {
        let name = account_id(self.random.below(3));
        let mut action = self.open(oracle.accounts.get(&name), None, 100);
        if let Action::Open { open, .. } = &mut action
            && self.random.percent(80)
        {
            open.parts.clear();
            open.top_up_only = false;
        }
        Operation {
            account: AccountId(name),
            at: self.now,
            action,
        }
    }

    /// Ends a hold that was opened in memory.
    fn ending(&mut self, oracle: &Oracle, opening: &Operation) -> Operation {
        let Action::Open { open, .. } = &opening.action else {
            unreachable!("it opens a hold");
        };
        let hold = open.hold.clone();
        let taken = &oracle.accounts[&opening.account.0].holds[&hold.0];
        let action = match self.random.percent(20) {
            true => Action::Release {
                hold,
                cost: self.random.percent(30).then(|| Box::new(self.usage())),
            },
            false => Action::Settle(Settle {
                hold,
                credits: Credits::from_micro(self.price(taken)),
                usage: self.usage(),
                end: None,
            }),
        };
        Operation {
            account: opening.account.clone(),
            at: self.now,
            action,
        }
    }

    fn action(&mut self, account: Option<&Lots>) -> Action {
        let recent: &[String] = account.map_or(&[], |account| &account.recent);
        let hold = self.random.choose(recent).cloned();
        let taken = hold
            .as_ref()
            .zip(account)
            .map(|(hold, account)| account.holds[hold].clone());
        let kind = self.random.below(100);
        let (Some(hold), Some(taken)) = (hold.filter(|_| kind >= 38), taken) else {
            return match kind {
                0..3 => self.top_up(),
                3 => self.adjust(),
                4 => self.refund(),
                5 => self.grant(account),
                6 => Action::ResetPeriod,
                7 => Action::Renewal {
                    renews: self.random.percent(70),
                },
                8 => self.set_budgets(),
                _ => self.open(account, None, 8),
            };
        };
        let hold = HoldId(hold);
        match kind {
            38..44 => self.open(account, Some(&taken), 8),
            44..46 => Action::Release {
                hold: HoldId("none".to_owned()),
                cost: None,
            },
            46..58 => Action::Release {
                hold,
                cost: self.random.percent(30).then(|| Box::new(self.usage())),
            },
            58..66 => Action::Expire { hold },
            66..76 => Action::Checkpoint(Checkpoint {
                hold,
                credits: Credits::from_micro(self.price(&taken)),
                usage: self.usage(),
            }),
            _ => Action::Settle(Settle {
                hold,
                credits: Credits::from_micro(self.price(&taken)),
                usage: self.usage(),
                end: None,
            }),
        }
    }

    fn open(&mut self, account: Option<&Lots>, parent: Option<&Taken>, usual_part: i64) -> Action {
        let available = match parent {
            Some(parent) => parent.keeps.0 + parent.keeps.1,
            None => account.map_or(0, Lots::free),
        };
        let amount = match self.random.below(20) {
            0 => available,
            1 => available + 1,
            2 => -1,
            3 => self.random.up_to(2 * available + 2),
            4 => 0,
            _ => self.random.up_to(available / usual_part + 2),
        };
        let clash = account
            .filter(|_| self.random.below(100) == 0)
            .and_then(|account| account.recent.first());
        let hold = clash.cloned().unwrap_or_else(|| self.id("h"));
        let open = OpenHold {
            request_id: format!("r{hold}"),
            hold: HoldId(hold),
            amount: Credits::from_micro(amount),
            parent: parent.map(|parent| parent.open.hold.clone()),
            source: [
                RequestSource::Web,
                RequestSource::ApiKey,
                RequestSource::Agent,
            ][self.random.below(3)],
            source_id: self.random.percent(50).then(|| "key \"ä\"".to_owned()),
            parts: self.parts(),
            top_up_only: self.random.percent(20),
            model: ["m", "n"][self.random.below(2)].to_owned(),
        };
        let boot_id = boot();
        Action::Open {
            open,
            boot_id,
            claim: None,
        }
    }

    /// Draws the price of a settlement or checkpoint: mostly within the hold, sometimes all of it, or more.
    fn price(&mut self, hold: &Taken) -> i64 {
        let amount = hold.open.amount.micro();
        match self.random.below(20) {
            0 => amount,
            1 => amount + 1,
            2 => self.random.up_to(4 * amount + 4),
            3 => 0,
            4 if self.random.percent(20) => -1,
            5 => self.random.up_to(600_000_000),
            _ => self.random.up_to(amount),
        }
    }

    fn usage(&mut self) -> RequestUsage {
        // One in six is from a node of an earlier version.
        let unit = Unit::ALL.get(self.random.below(Unit::ALL.len() + 1));
        let receipt = unit.map(|_| {
            Box::new(ReceiptFacts {
                reported: None,
                seen: [1, 2],
                prices: TierFigures::default(),
                per: None,
                factors: vec![14_000],
                percent: None,
                catalog: 3,
            })
        });
        RequestUsage {
            provider: "p".to_owned(),
            adapter_digest: "sha256:0".to_owned(),
            unit: unit.copied(),
            receipt,
            counts: UsageCounts {
                tokens_input: (self.random.any() % 1_000) as i64,
                tokens_output: (self.random.any() % 1_000) as i64,
                provider_cost_nano_usd: (self.random.any() % 1_000_000) as i64,
                ..UsageCounts::default()
            },
            latency_ms: self.random.any() % 5_000,
            attempts: 1 + (self.random.any() % 3) as u32,
            estimated: self.random.percent(10),
        }
    }

    fn top_up(&mut self) -> Action {
        let moment = Millis(self.now.0 - self.random.up_to(40 * 86_400_000));
        Action::TopUp(TopUp {
            id: OperationId(self.id("pay")),
            credits: Credits::from_micro(self.random.up_to(400_000_000) - 1),
            within: self.random.percent(30).then_some(moment),
        })
    }

    fn refund(&mut self) -> Action {
        Action::Refund(Refund {
            id: OperationId(self.id("refund")),
            pool: [Pool::Plan, Pool::TopUp][self.random.below(2)],
            credits: Credits::from_micro(self.random.up_to(100_000_000)),
        })
    }

    fn adjust(&mut self) -> Action {
        Action::Adjust(Adjust {
            id: OperationId(self.id("adjust")),
            pool: [Pool::Plan, Pool::TopUp][self.random.below(2)],
            way: [ChangeDirection::Give, ChangeDirection::Take][self.random.below(2)],
            credits: Credits::from_micro(self.random.up_to(200_000_000)),
            reason: "it was \"wrong\"".to_owned(),
            actor: "ops".to_owned(),
        })
    }

    fn set_budgets(&mut self) -> Action {
        let mut budgets = Vec::new();
        for window in BudgetWindow::ALL {
            if self.random.percent(20) {
                let credits = Credits::from_micro(self.random.up_to(20_000_000_000));
                budgets.push(Budget { credits, window });
            }
        }
        Action::SetBudgets(Box::new(SetBudgets {
            part: self.part(),
            until: None,
            budgets,
            ended: Vec::new(),
        }))
    }

    fn part(&mut self) -> Option<BudgetPart> {
        let parts = [
            None,
            Some(BudgetPart::Key("key_1".to_owned())),
            Some(BudgetPart::Key("key_2".to_owned())),
            Some(BudgetPart::Project("prj_1".to_owned())),
            Some(BudgetPart::Member("usr:1".to_owned())),
        ];
        parts[self.random.below(parts.len())].clone()
    }

    /// Draws different parts, possibly none, in any order.
    fn parts(&mut self) -> Vec<BudgetPart> {
        let mut parts: Vec<BudgetPart> = Vec::new();
        for _ in 0..self.random.below(4) {
            let part = self.part();
            parts.extend(part.filter(|part| !parts.contains(part)));
        }
        parts
    }

    fn grant(&mut self, account: Option<&Lots>) -> Action {
        let mut start = Millis(self.now.0 - self.random.up_to(86_400_000));
        // The same period again, possibly with another plan.
        if self.random.percent(40)
            && let Some(current) = account.and_then(|account| account.period)
        {
            start = current.start;
        }
        let plan = Plan::ALL[self.random.below(3)];
        Action::Grant(Grant {
            id: OperationId(self.id("grant")),
            plan,
            period: Period {
                start,
                end: Millis(start.0 + self.random.up_to(30 * 86_400_000)),
            },
            credits: Credits::from_micro(self.random.up_to(600_000_000)),
        })
    }

    fn id(&mut self, kind: &str) -> String {
        self.number += 1;
        format!("{kind}{}", self.number)
    }
}

fn boot() -> BootId {
    BootId::of("boot").expect("a name")
}

fn account_id(index: usize) -> String {
    format!("usr_{index:03}")
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Operations that ran on both.
    pub operations: usize,
    /// Refused operations.
    pub refused: usize,
    /// Batches of the operations.
    pub batches: usize,
    /// Holds that were opened in memory, before their batch.
    pub in_memory: usize,
    /// Holds that ended by a record for the log.
    pub logged: usize,
}

/// Runs a random history on a fresh database and on the oracle; an error is the first divergence.
pub async fn compare(database: &Database, seed: u64, operations: usize) -> Result<Report, String> {
    let names: Vec<_> = (0..ACCOUNTS).map(account_id).collect();
    create_users(database, names.iter().map(|name| &**name), START.0).await;
    let store = LedgerStore::of_run(database.clone(), boot());
    // All holds belong to one run, so none is an orphan.
    let renewed = store
        .renew_lease(&boot(), START, Millis(i64::MAX / 2))
        .await;
    renewed.map_err(|error| error.to_string())?;
    let mut oracle = Oracle::default();
    for name in &names {
        let lots = Lots {
            created_at: START,
            plan: Plan::Free,
            period: None,
            periods: Vec::new(),
            top_up: 0,
            owed: 0,
            ends: false,
            holds: HashMap::new(),
            budgets: BTreeMap::new(),
            charges: Vec::new(),
            recent: Vec::new(),
        };
        oracle.accounts.insert(name.clone(), lots);
    }
    let mut generator = Generator {
        random: Random::new(seed),
        now: START,
        number: 0,
        past: Vec::new(),
    };
    let mut report = Report::default();
    while report.operations < operations {
        let size = 1 + generator.random.below(64);
        let mut batch = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..generator.random.below(8) {
            let operation = generator.opening(&oracle);
            let is_in_memory = oracle.is_new_hold(&operation) && open_in_memory(&store, &operation);
            let outcome = oracle.answer(&operation);
            if !is_in_memory {
                expected.push(outcome);
                batch.push(operation);
                break;
            }
            if outcome != Ok(OperationEffect::Opened) {
                return Err(format!("seed {seed}: {operation:?} was opened in memory"));
            }
            report.in_memory += 1;
            if generator.random.percent(50) {
                let end = generator.ending(&oracle, &operation);
                if let Ok(record) = store.end_in_memory(end.clone()) {
                    let told = Ok(record.record().effect());
                    let expected = oracle.answer(&end);
                    if told != expected {
                        return Err(format!(
                            "seed {seed}: {end:?} told {told:?}, and not {expected:?}"
                        ));
                    }
                    report.logged += 1;
                }
            }
            // It folds the record; on SQLite, some tails become longer.
            if database.dialect() == SqlDialect::Postgres || report.in_memory.is_multiple_of(3) {
                same_balance(&store, &oracle, &operation.account).await?;
            }
        }
        for _ in 0..size {
            let operation = generator.operation(&oracle);
            expected.push(oracle.answer(&operation));
            batch.push(operation);
        }
        commit(&store, &batch, &expected, seed, &mut report).await?;
        // A repetition, as after a commit whose response was lost.
        if generator.random.percent(3) {
            let expected: Vec<_> = batch
                .iter()
                .map(|operation| oracle.answer(operation))
                .collect();
            commit(&store, &batch, &expected, seed, &mut report).await?;
        }
        if let Some(operation) = generator.random.choose(&batch) {
            same_balance(&store, &oracle, &operation.account).await?;
        }
    }
    for name in names {
        same_balance(&store, &oracle, &AccountId(name)).await?;
    }
    let violations = verify(database, generator.now).await;
    let violations = violations.map_err(|error| error.to_string())?;
    if violations.is_empty() {
        Ok(report)
    } else {
        Err(format!("seed {seed}: {violations:?}"))
    }
}

fn open_in_memory(store: &LedgerStore, operation: &Operation) -> bool {
    let Action::Open { open, boot_id, .. } = &operation.action else {
        return false;
    };
    let unopened = store.open_in_memory(&operation.account, operation.at, open.clone(), boot_id);
    unopened.is_none()
}

async fn commit(
    store: &LedgerStore,
    batch: &[Operation],
    expected: &[OperationOutcome],
    seed: u64,
    report: &mut Report,
) -> Result<(), String> {
    let outcomes = store.commit(batch).await;
    let outcomes = outcomes.map_err(|error| format!("seed {seed}: {error}"))?;
    for (index, (outcome, expected)) in outcomes.iter().zip(expected).enumerate() {
        if outcome != expected {
            return Err(format!(
                "seed {seed}, batch {}: {:?} gave {outcome:?}, and not {expected:?}",
                report.batches, batch[index]
            ));
        }
    }
    report.batches += 1;
    report.operations += batch.len();
    report.refused += outcomes.iter().filter(|outcome| outcome.is_err()).count();
    Ok(())
}

async fn same_balance(store: &LedgerStore, oracle: &Oracle, id: &AccountId) -> Result<(), String> {
    let Some(lots) = oracle.accounts.get(&id.0) else {
        return Ok(());
    };
    let fold = Operation {
        account: id.clone(),
        at: START,
        action: Action::Fold,
    };
    let folded = store.commit(&[fold]).await;
    folded.map_err(|error| error.to_string())?;
    let account = store.find_account(id).await;
    let Some(account) = account.map_err(|error| error.to_string())? else {
        return Ok(());
    };
    let available = account.available();
    let expected = (
        *lots.periods.last().unwrap_or(&0),
        lots.top_up,
        lots.owed,
        lots.plan,
    );
    let found = (
        available.plan.micro(),
        available.top_up.micro(),
        account.owed.micro(),
        account.plan,
    );
    if found == expected {
        Ok(())
    } else {
        Err(format!("{id} has {found:?}, and not {expected:?}"))
    }
}
