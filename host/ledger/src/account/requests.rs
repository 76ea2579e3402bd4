//! Requests: holds, from their opening to their end, and idempotency keys.

use std::mem;

use weir_storage::clock::Millis;

use super::{Account, EndedHold, EntryKind, Hold, Pools, UsageDelta};
use crate::budgets::BudgetPart;
use crate::credits::Credits;
use crate::keys::{self, IdempotencyKey, KeyedHoldState};
use crate::operation::{
    BootId, Checkpoint, EndKey, HoldId, HoldState, IdempotencyClaim, LedgerRefusal, OpenHold,
    OperationEffect, OperationOutcome, PersistHold, Settle,
};
use crate::usage::RequestUsage;

impl Account {
    pub(super) fn open(
        &mut self,
        open: &OpenHold,
        boot_id: &BootId,
        claim: Option<&IdempotencyClaim>,
        at: Millis,
    ) -> OperationOutcome {
        if self.is_known(open)? {
            return Ok(OperationEffect::Opened);
        }
        if !open.amount.is_in_range() {
            return Err(LedgerRefusal::OutOfRange);
        }
        if let Some(claim) = claim {
            self.look_at_key(claim, at)?;
        }
        let opened = match &open.parent {
            None => {
                let (reserved, parts) = self.reserve(open, at)?;
                self.new_hold(open, boot_id, at, reserved, parts)
            }
            Some(id) => {
                let parent = self.holds.get(id).ok_or_else(|| self.is_over(id))?;
                if !parent.is_open() {
                    return Err(LedgerRefusal::Ended(parent.state()));
                }
                // Otherwise, an agent could spend credits of a refunded payment for as long as its swarm runs.
                if self.owed > Credits::ZERO {
                    return Err(LedgerRefusal::Insufficient {
                        required: open.amount,
                        available: Credits::ZERO,
                    });
                }
                // The parent was held against its budgets, and counts for them; the model is the request's own.
                let mut parts = parent.open.parts.clone();
                let own = self.look_at_own_budgets(open, &parts, at)?;
                let refusal = self.is_over(id);
                let parent = self.holds.get_mut(id).ok_or(refusal)?;
                let reserved = parent.reserved.take_all(open.amount)?;
                parent.reserved = parent.reserved.minus(reserved);
                self.journal.holds.insert(id.clone());
                let (period_start, period_number) = (parent.period_start, parent.period_number);
                let top_up_only = parent.open.top_up_only;
                if !own.is_empty() {
                    self.note_held(&own, reserved.total().micro());
                    self.journal.account = true;
                }
                parts.extend(own);
                let hold = self.new_hold(open, boot_id, at, reserved, parts);
                Hold {
                    open: OpenHold {
                        top_up_only,
                        ..hold.open
                    },
                    period_start,
                    period_number,
                    ..hold
                }
            }
        };
        if let Some(claim) = claim {
            self.claim(claim, open, boot_id, at);
        }
        self.put(opened);
        Ok(OperationEffect::Opened)
    }

    /// Stores a hold that was opened in memory.
    pub(super) fn persist(&mut self, persist: &PersistHold, at: Millis) -> OperationOutcome {
        let PersistHold {
            open,
            boot_id,
            reserved,
            then: _,
        } = persist;
        if !self.is_known(open)? {
            let hold = match self.take_from_block(open, boot_id, *reserved, at) {
                Some(hold) => hold,
                None => {
                    let reserved = self.reserve_again(&open.parts, *reserved);
                    self.new_hold(open, boot_id, at, reserved, open.parts.clone())
                }
            };
            self.put(hold);
        }
        Ok(OperationEffect::Opened)
    }

    /// Returns whether this hold was opened before, and rejects another one with the same id.
    fn is_known(&self, open: &OpenHold) -> Result<bool, LedgerRefusal> {
        let known = match self.holds.get(&open.hold) {
            Some(hold) => Some(&hold.open),
            None => self.ended.get(&open.hold).map(|ended| &ended.open),
        };
        match known {
            Some(known) if known.is_same_as(open) => Ok(true),
            Some(_) => Err(LedgerRefusal::Conflict),
            None => Ok(false),
        }
    }

    /// Reserves a hold's amount, or rejects it; also returns the parts with budgets for which it counts.
    pub(crate) fn reserve(
        &mut self,
        open: &OpenHold,
        at: Millis,
    ) -> Result<(Pools, Vec<BudgetPart>), LedgerRefusal> {
        self.begin_due_period(at);
        let parts = self.look_at_budgets(open, at)?;
        let reserved = self.payable(open.top_up_only).take_all(open.amount)?;
        self.hold_more(&parts, reserved);
        self.journal.account = true;
        Ok((reserved, parts))
    }

    /// Reserves again for a hold that [`Self::reserve`] has accepted. Its request has begun, so nothing rejects it. A part
    /// of the credits can be missing only if another process has changed the account.
    pub(crate) fn reserve_again(&mut self, parts: &[BudgetPart], reserved: Pools) -> Pools {
        let available = self.unheld();
        let reserved = Pools {
            plan: reserved.plan.min(available.plan),
            top_up: reserved.top_up.min(available.top_up),
        };
        self.hold_more(parts, reserved);
        self.journal.account = true;
        reserved
    }

    /// Ends a hold that was opened in memory: keeps the charge reserved, by pool, and frees the rest. Returns `None`, and
    /// changes nothing, if the available credits do not pay what the charge exceeds the hold by.
    pub(crate) fn keep_charge(
        &mut self,
        parts: &[BudgetPart],
        top_up_only: bool,
        reserved: Pools,
        charge: Credits,
    ) -> Option<Pools> {
        let (own, beyond) = reserved.take(charge);
        let more = self.payable(top_up_only).take_all(beyond).ok()?;
        self.hold_less(parts, reserved.minus(own));
        self.hold_more(parts, more);
        Some(own.plus(more))
    }

    pub(super) fn new_hold(
        &self,
        open: &OpenHold,
        boot_id: &BootId,
        at: Millis,
        reserved: Pools,
        parts: Vec<BudgetPart>,
    ) -> Hold {
        Hold {
            open: OpenHold {
                parts,
                ..open.clone()
            },
            boot_id: boot_id.clone(),
            opened_at: at,
            period_start: self.period.start,
            period_number: self.period_number,
            expired_at: None,
            reserved,
            checkpoint: Credits::ZERO,
            posted: Pools::default(),
            overrun: Credits::ZERO,
            usage: None,
        }
    }

    pub(super) fn settle_and_end(&mut self, settle: &Settle, at: Millis) -> OperationOutcome {
        let outcome = self.settle(settle, at)?;
        if let (Some(end), OperationEffect::Settled { overrun, .. }) = (&settle.end, &outcome)
            && *overrun == Credits::ZERO
        {
            self.end_key(end, at)?;
        }
        Ok(outcome)
    }

    pub(super) fn settle(&mut self, settle: &Settle, at: Millis) -> OperationOutcome {
        if !settle.credits.is_in_range() {
            return Err(LedgerRefusal::OutOfRange);
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
            return Ok(OperationEffect::Settled { charged, overrun });
        }
        match self.ended.get(&settle.hold) {
            Some(ended) if ended.state == HoldState::Settled => {
                let (charged, overrun) = ended.charge();
                let settled = charged.saturating_add(overrun);
                let is_same = |ended: &RequestUsage| ended.is_same_as(&usage);
                if settled == settle.credits && ended.usage.as_ref().is_some_and(is_same) {
                    Ok(OperationEffect::Settled { charged, overrun })
                } else {
                    Err(LedgerRefusal::Conflict)
                }
            }
            _ => Err(self.is_over(&settle.hold)),
        }
    }

    pub(super) fn release(
        &mut self,
        id: &HoldId,
        cost: Option<&RequestUsage>,
        at: Millis,
    ) -> OperationOutcome {
        let cost = cost.map(|cost| cost.clone().bounded());
        let Some(mut hold) = self.holds.remove(id) else {
            return match self.is_over(id) {
                LedgerRefusal::Ended(HoldState::Released) => Ok(OperationEffect::Released),
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
        Ok(OperationEffect::Released)
    }

    pub(super) fn expire(&mut self, id: &HoldId, at: Millis) -> OperationOutcome {
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
        Ok(OperationEffect::Expired { charged, overrun })
    }

    /// Checkpoints may overtake each other; the highest one counts.
    pub(super) fn checkpoint(&mut self, checkpoint: &Checkpoint) -> OperationOutcome {
        if !checkpoint.credits.is_in_range() {
            return Err(LedgerRefusal::OutOfRange);
        }
        let refusal = self.is_over(&checkpoint.hold);
        let hold = self.holds.get_mut(&checkpoint.hold).ok_or(refusal)?;
        if !hold.is_open() {
            return Err(LedgerRefusal::Ended(hold.state()));
        }
        if checkpoint.credits >= hold.checkpoint {
            hold.checkpoint = checkpoint.credits;
            hold.usage = Some(checkpoint.usage.clone().bounded());
            self.journal.holds.insert(checkpoint.hold.clone());
        }
        Ok(OperationEffect::Checkpointed)
    }

    /// Rejects a request whose key is taken.
    pub(super) fn look_at_key(
        &self,
        claim: &IdempotencyClaim,
        at: Millis,
    ) -> Result<(), LedgerRefusal> {
        let taken = self.keys.get(&claim.key).and_then(|key| {
            let fate = self.fate(&key.hold);
            key.refuses(claim, at, fate)
        });
        taken.map_or(Ok(()), |taken| Err(LedgerRefusal::KeyTaken(taken)))
    }

    pub(super) fn claim(
        &mut self,
        claim: &IdempotencyClaim,
        open: &OpenHold,
        boot_id: &BootId,
        at: Millis,
    ) {
        let key = IdempotencyKey {
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

    pub(super) fn end_key(&mut self, end: &EndKey, at: Millis) -> OperationOutcome {
        let key = self.keys.get(&end.key);
        let is_its_own =
            |key: &&IdempotencyKey| key.request_id == end.request_id && key.completed_at.is_none();
        let Some(key) = key.filter(is_its_own) else {
            return Ok(OperationEffect::KeyEnded);
        };
        match self.fate(&key.hold) {
            KeyedHoldState::Open => return Err(LedgerRefusal::StillOpen),
            KeyedHoldState::Nothing => return Ok(OperationEffect::KeyEnded),
            KeyedHoldState::Charged(_) => {}
        }
        if let Some(key) = self.keys.get_mut(&end.key) {
            key.completed_at = Some(at);
            key.answer.clone_from(&end.answer);
        }
        self.journal.keys.insert(end.key.clone());
        Ok(OperationEffect::KeyEnded)
    }

    pub(super) fn fate(&self, hold: &HoldId) -> KeyedHoldState {
        match (self.holds.get(hold), self.ended.get(hold)) {
            (Some(hold), _) if hold.is_open() => KeyedHoldState::Open,
            (Some(hold), _) => KeyedHoldState::Charged(hold.charge().0),
            (None, Some(ended)) if ended.state != HoldState::Released => {
                KeyedHoldState::Charged(ended.charge().0)
            }
            (None, _) => KeyedHoldState::Nothing,
        }
    }

    /// Charges an open or expired hold: the new charge replaces the previous one.
    pub(super) fn post_end(
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
        self.hold_less(&hold.open.parts, own);
        let mut lapsed = self.free(&hold, unused);
        let (drawn, missing) = self.draw(&hold, beyond, own.total(), at);
        hold.posted = hold.posted.plus(own).plus(drawn);
        hold.overrun = hold.overrun.saturating_add(missing);

        // After a reduction, our loss shrinks first, then the account gets the rest back.
        let spared = less.min(hold.overrun);
        hold.overrun = hold.overrun.saturating_sub(spared);
        let returned = hold.posted.take_back(less.saturating_sub(spared));
        hold.posted = hold.posted.minus(returned);
        self.balance = self.balance.plus(returned);
        self.hold_more(&hold.open.parts, returned);
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
        self.spend_of_budgets(&hold.open.parts, delta.negated().total().micro(), at);
        let entry = self.post(kind, delta, at, hold.period_start);
        entry.overrun = hold.overrun.since(overrun_before);
        entry.usage = usage;
        entry.hold = Some(hold.open.clone());
        self.post_lapse(lapsed, hold.period_start, at);
        hold
    }

    /// Stores a removed hold as ended.
    pub(super) fn end(&mut self, hold: Hold, state: HoldState, usage: Option<RequestUsage>) {
        let id = hold.open.hold.clone();
        self.journal.holds.insert(id.clone());
        let ended = EndedHold {
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
    pub(super) fn free(&mut self, hold: &Hold, credits: Pools) -> Credits {
        if let Some(parent) = self.open_parent(hold) {
            parent.reserved = parent.reserved.plus(credits);
            let mut own = hold.open.parts.clone();
            own.retain(|part| !parent.open.parts.contains(part));
            if !own.is_empty() {
                self.note_held(&own, -credits.total().micro());
                self.journal.account = true;
            }
            self.note_parent(hold);
            return Credits::ZERO;
        }
        self.hold_less(&hold.open.parts, credits);
        self.journal.account = true;
        if hold.period_number == self.period_number {
            return Credits::ZERO;
        }
        self.balance.plan = self.balance.plan.saturating_sub(credits.plan);
        credits.plan
    }

    /// Draws credits beyond a hold: the parent's remaining credits, then available ones. From the plan's credits, only
    /// those of the hold's own period; from a budget, no more than it has left. Also returns the missing amount. `own` is
    /// what the hold itself has paid in the same charge, which budgets do not count yet.
    pub(super) fn draw(
        &mut self,
        hold: &Hold,
        credits: Credits,
        own: Credits,
        at: Millis,
    ) -> (Pools, Credits) {
        let mut from_parent = Pools::default();
        let mut missing = credits;
        if credits > Credits::ZERO
            && let Some(parent) = self.open_parent(hold)
        {
            // The parent's hold counts for its own budgets already.
            let of_parent = parent.open.parts.clone();
            let others = hold.open.parts.iter();
            let others = others.filter(|part| !of_parent.contains(part)).map(Some);
            let left = self.left_of_budgets(others, at).saturating_sub(own);
            let wanted = credits.min(left);
            if let Some(parent) = self.open_parent(hold) {
                (from_parent, _) = parent.reserved.take(wanted);
                parent.reserved = parent.reserved.minus(from_parent);
            }
            missing = credits.saturating_sub(from_parent.total());
            self.hold_less(&of_parent, from_parent);
            self.balance = self.balance.minus(from_parent);
            self.note_parent(hold);
        }
        if missing > Credits::ZERO && !self.blocks.is_empty() {
            self.journal.drew_beside_blocks = true;
        }
        let mut spendable = self.payable(hold.open.top_up_only);
        if hold.period_number != self.period_number {
            spendable.plan = Credits::ZERO;
        }
        let counted = std::iter::once(None).chain(hold.open.parts.iter().map(Some));
        let uncounted = own.saturating_add(from_parent.total());
        let left = self.left_of_budgets(counted, at).saturating_sub(uncounted);
        let (taken, _) = spendable.take(missing.min(left));
        self.balance = self.balance.minus(taken);
        (
            from_parent.plus(taken),
            missing.saturating_sub(taken.total()),
        )
    }

    /// Returns the available credits that may pay.
    pub(super) fn payable(&self, top_up_only: bool) -> Pools {
        let available = self.available();
        Pools {
            plan: match top_up_only {
                true => Credits::ZERO,
                false => available.plan,
            },
            ..available
        }
    }

    pub(super) fn open_parent(&mut self, hold: &Hold) -> Option<&mut Hold> {
        let parent = self.holds.get_mut(hold.open.parent.as_ref()?)?;
        parent.is_open().then_some(parent)
    }

    pub(super) fn note_parent(&mut self, hold: &Hold) {
        self.journal.holds.extend(hold.open.parent.clone());
    }

    /// Returns the reason why a hold that is neither open nor expired cannot be ended.
    pub(super) fn is_over(&self, id: &HoldId) -> LedgerRefusal {
        match self.ended.get(id) {
            Some(ended) => LedgerRefusal::Ended(ended.state),
            None => LedgerRefusal::UnknownHold,
        }
    }

    pub(super) fn put(&mut self, hold: Hold) {
        self.journal.holds.insert(hold.open.hold.clone());
        self.holds.insert(hold.open.hold.clone(), hold);
    }
}
