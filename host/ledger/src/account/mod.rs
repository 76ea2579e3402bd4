//! The effect of each operation on an account: plain functions, without I/O and without a clock.
//!
//! A *hold* reserves credits (it is open, or pending); it ends once: *settled* for the actual usage, *released* if
//! nothing was delivered, or *expired* after its node has failed. Plan credits are reserved and spent before top-up
//! credits; freed credits return to their pool. A hold with a *parent* draws on the parent's reserved credits and
//! returns its unused credits there.
//!
//! **Invariant:** `held ≤ balance` in each pool, so the available credits are never negative.
//! **Invariant:** an account that owes has no credits outside holds and blocks: freed and new credits first pay the owed
//! ones. Otherwise, credits of a refunded payment could be held during the refund, and spent after it.
//! **Invariant:** `held` is the sum of the credits of open holds and blocks; `balance` is the sum of all entries.
//! **Invariant:** an operation is done once: its repeat returns the first outcome, and another operation with the same
//! id is rejected. A rejection leaves nothing behind.
//!
//! To change the order in which credits are spent, edit [`Pools::take`] and [`Pools::take_back`].

mod blocks;
mod budgets;
mod purchases;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

use weir_storage::clock::Millis;
use weir_storage::ids;

use crate::budgets::Budgets;
use crate::credits::Credits;
use crate::keys::IdempotencyKey;
use crate::operation::{
    AccountId, Action, BlockKey, BootId, HoldId, HoldState, LedgerRefusal, OpenHold, Operation,
    OperationEffect, OperationId, OperationOutcome, OperationRequest, Pool,
};
use crate::plans::{Period, Plan};
use crate::receipt::ReceiptFacts;
use crate::usage::{RequestUsage, Unit, UsageCounts};

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
    pub plan: Plan,
    /// The period of the plan credits.
    pub period: Period,
    /// Number of periods that have begun; a hold belongs to the period of its opening.
    pub period_number: i64,
    /// All credits, including held ones.
    pub balance: Pools,
    /// The part of them in open holds and blocks.
    pub held: Pools,
    /// Credits to take back that were spent or held; the next free credits repay them.
    pub owed: Credits,
    /// The time at which the paid plan was cancelled for the end of its period; `None` if it renews.
    pub cancelled_at: Option<Millis>,
    /// The balance below which the account is low.
    pub low_below: Option<Credits>,
    /// The time from which it is low.
    pub low_since: Option<Millis>,
    /// The time at which a budget last reached 80 or 100 %.
    pub alert_at: Option<Millis>,
    /// Number of entries; the next one's number is one more.
    pub entries: i64,
    /// The hash of the last entry with a hash; zeros without one.
    pub last_hash: EntryHash,
    /// The budgets of the account and its parts, if any.
    pub budgets: Option<Budgets>,
    /// Open and expired holds that were loaded, or opened since.
    pub holds: BTreeMap<HoldId, Hold>,
    /// Holds that were loaded as settled or released, or ended since.
    pub ended: BTreeMap<HoldId, EndedHold>,
    /// Operations with an id that were loaded, or done since.
    pub recorded: BTreeMap<OperationId, RecordedOperation>,
    /// Idempotency keys that were loaded, or claimed since.
    pub keys: BTreeMap<String, IdempotencyKey>,
    /// The nodes' blocks, if they were loaded.
    pub blocks: BTreeMap<BlockKey, Block>,
    /// Whether a node needs credits of another one's blocks.
    pub is_called: bool,
    /// The unwritten changes.
    pub journal: Journal,
}

/// An account's changes by operations.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// Entries to append, in order.
    pub entries: Vec<LedgerEntry>,
    /// New, changed and ended holds.
    pub holds: BTreeSet<HoldId>,
    /// New and changed keys.
    pub keys: BTreeSet<String>,
    /// New, changed and returned blocks.
    pub blocks: BTreeSet<BlockKey>,
    /// Whether a charge beyond its hold was taken while there were blocks.
    pub drew_beside_blocks: bool,
    /// Whether balances have changed.
    pub account: bool,
    /// Whether the plan, the period or another rarely changing field has changed.
    pub plan: bool,
}

/// An operation that was done, as its entry stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOperation {
    pub account: AccountId,
    pub asked: OperationRequest,
    /// The outcome, also for repeats.
    pub outcome: OperationEffect,
}

/// Credits reserved for a request, or formerly reserved if its node has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub open: OpenHold,
    /// The run of the node that will end the hold.
    pub boot_id: BootId,
    pub opened_at: Millis,
    pub period_start: Millis,
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

/// Credits that a node has reserved for requests which it opens in memory. Each such hold takes its credits from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub key: BlockKey,
    pub period_start: Millis,
    pub period_number: i64,
    /// The reserved credits, without those of stored holds.
    pub reserved: Pools,
    /// The time of its last change.
    pub used_at: Millis,
}

/// An ended hold, from its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedHold {
    pub open: OpenHold,
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
pub struct LedgerEntry {
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
    pub owed: Credits,
    pub period_start: Millis,
    /// The operation, if it has an id.
    pub recorded: Option<OperationRequest>,
    /// The hold, as it was opened.
    pub hold: Option<OpenHold>,
    /// The request's contribution to reports: differences if an earlier entry has counted it.
    pub usage: Option<UsageDelta>,
    /// The hash of the account's previous entry; the store sets it.
    pub previous_hash: EntryHash,
}

/// A SHA-256 of an entry's columns.
pub type EntryHash = [u8; 32];

/// An entry's contribution to reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageDelta {
    /// The upstream of the response.
    pub provider: String,
    /// The adapter of the response.
    pub adapter_digest: String,
    /// 1 for a new request, -1 for one that is taken back, else 0.
    pub requests: i64,
    /// The unit of the request's price; `None` in entries of earlier versions.
    pub unit: Option<Unit>,
    /// The counts, minus those of an earlier entry for the same request.
    pub counts: UsageCounts,
    /// The time from the request to the end of the response, minus an earlier entry's.
    pub latency_ms: i64,
    /// The attempts at upstreams, minus an earlier entry's.
    pub attempts: i64,
    /// Whether the counts are the host's own estimate.
    pub estimated: bool,
    /// The facts behind the charge.
    pub receipt: Option<Box<ReceiptFacts>>,
}

/// Does an operation, or rejects it without a change, except that a due period begins.
pub fn apply(operation: &Operation, account: &mut Account) -> OperationOutcome {
    let outcome = act(operation, account);
    // Storing a hold frees nothing, and the next step may store another hold of the same account.
    if !matches!(operation.action, Action::Persist(_)) {
        account.collect_owed(operation.at);
    }
    account.note_level(operation.at);
    outcome
}

fn act(operation: &Operation, account: &mut Account) -> OperationOutcome {
    let at = operation.at;
    match &operation.action {
        Action::Open {
            open,
            boot_id,
            claim,
        } => account.open(open, boot_id, claim.as_deref(), at),
        Action::Persist(persist) => {
            let stored = account.persist(persist, at)?;
            let then = persist.then.as_ref();
            then.map_or(Ok(stored), |then| apply(then, account))
        }
        Action::Settle(settle) => account.settle_and_end(settle, at),
        Action::Release { hold, cost } => account.release(hold, cost.as_deref(), at),
        Action::Expire { hold } => account.expire(hold, at),
        Action::Checkpoint(checkpoint) => account.checkpoint(checkpoint),
        Action::ResetPeriod => {
            account.begin_due_period(at);
            Ok(OperationEffect::PeriodReset)
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
        Action::Fold => Ok(OperationEffect::Folded),
        Action::FillBlock(fill) => Ok(account.fill_block(fill, at)),
        Action::EndBlocks { boot_id, .. } => Ok(account.end_blocks(boot_id, at)),
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
            alert_at: None,
            entries: 0,
            last_hash: EntryHash::default(),
            budgets: None,
            holds: BTreeMap::new(),
            ended: BTreeMap::new(),
            recorded: BTreeMap::new(),
            keys: BTreeMap::new(),
            blocks: BTreeMap::new(),
            is_called: false,
            journal: Journal::default(),
        }
    }

    /// Returns the account without the loaded holds, operations and keys, and without changes.
    pub(crate) fn without_records(&self) -> Self {
        Self {
            plan: self.plan,
            period: self.period,
            period_number: self.period_number,
            balance: self.balance,
            held: self.held,
            owed: self.owed,
            cancelled_at: self.cancelled_at,
            low_below: self.low_below,
            low_since: self.low_since,
            alert_at: self.alert_at,
            entries: self.entries,
            budgets: self.budgets.clone(),
            ..Self::new(self.id.clone(), self.created_at)
        }
    }

    /// Returns the credits for holds and deductions: those outside open holds, without the owed ones.
    pub fn available(&self) -> Pools {
        let unheld = self.unheld();
        let (owed, _) = unheld.take(self.owed);
        unheld.minus(owed)
    }

    /// Returns the credits outside open holds and blocks.
    fn unheld(&self) -> Pools {
        self.balance.minus(self.held)
    }

    /// Returns the credits of a period of its plan.
    pub fn monthly_credits(&self) -> Credits {
        self.credits_of(self.plan)
    }

    /// Returns the credits of a period of a plan. The free plan of organisations has none, because a user may create
    /// several.
    fn credits_of(&self, plan: Plan) -> Credits {
        match plan == Plan::Free && ids::is_organisation(&self.id.0) {
            true => Credits::ZERO,
            false => plan.monthly_credits(),
        }
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
        let credits = self.credits_of(Plan::Free);
        self.begin_period(Plan::Free, period, credits, at, None);
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

    /// Collects owed credits from free ones.
    fn collect_owed(&mut self, at: Millis) {
        let (taken, _) = self.unheld().take(self.owed);
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
        act: impl FnOnce(&mut Self, OperationRequest) -> OperationOutcome,
    ) -> OperationOutcome {
        let Some(asked) = operation.asked() else {
            unreachable!("entries keep operations with an id");
        };
        if let Some(first) = self.recorded.get(id) {
            return if first.account == self.id && first.asked == asked {
                Ok(first.outcome.clone())
            } else {
                Err(LedgerRefusal::Conflict)
            };
        }
        let outcome = act(self, asked.clone())?;
        let recorded = RecordedOperation {
            account: self.id.clone(),
            asked,
            outcome: outcome.clone(),
        };
        self.recorded.insert(id.clone(), recorded);
        Ok(outcome)
    }

    /// Plan credits outside holds expire; held ones stay with their holds.
    fn begin_period(
        &mut self,
        plan: Plan,
        period: Period,
        credits: Credits,
        at: Millis,
        recorded: Option<OperationRequest>,
    ) {
        let lapsed = self.unheld().plan;
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
    ) -> &mut LedgerEntry {
        self.entries += 1;
        self.journal.account = true;
        let entry = LedgerEntry {
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
            previous_hash: EntryHash::default(),
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

impl EndedHold {
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
            unit: reported.unit,
            counts: before.counts.plus(reported.counts),
            latency_ms: latency_ms.max(0).unsigned_abs(),
            attempts: u32::try_from(attempts.max(0)).unwrap_or(u32::MAX),
            estimated: reported.estimated,
            receipt: reported.receipt,
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
            unit: named.unit,
            counts: counts(now).minus(counts(before)),
            latency_ms: change(|usage| usage.latency_ms as i64),
            attempts: change(|usage| i64::from(usage.attempts)),
            estimated: named.estimated,
            receipt: named.receipt.clone(),
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

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            plan: self.plan.saturating_add(other.plan),
            top_up: self.top_up.saturating_add(other.top_up),
        }
    }

    pub(crate) fn minus(self, part: Self) -> Self {
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
    pub(crate) fn take(self, amount: Credits) -> (Self, Credits) {
        let plan = amount.min(self.plan);
        let top_up = amount.saturating_sub(plan).min(self.top_up);
        let taken = Self { plan, top_up };
        (taken, amount.saturating_sub(taken.total()))
    }

    /// Takes all of `amount`, or returns the refusal. A balance that equals the amount is enough.
    pub(crate) fn take_all(self, amount: Credits) -> Result<Self, LedgerRefusal> {
        match self.take(amount) {
            (taken, Credits::ZERO) => Ok(taken),
            _ => Err(LedgerRefusal::Insufficient {
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
