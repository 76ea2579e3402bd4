//! Blocks: credits that a node reserves in advance, so that it opens holds in memory.
//!
//! A block is held like a hold, also in the budgets of its parts, so that no other node spends its credits. A hold that
//! is stored takes its credits from its node's block.
//!
//! Credits of the plan are spent first. A block therefore has bought credits only if none of the plan are available, and
//! never both.

use weir_storage::clock::Millis;

use super::{Account, Block, Hold, Pools};
use crate::credits::Credits;
use crate::operation::{BlockKey, BootId, FillBlock, OpenHold, OperationEffect};

/// A block gets at most the available credits divided by this, so that other nodes find credits, too.
const BLOCK_SHARE: i64 = 4;

/// A block gets at least this number of holds, and the available credits divided by the other number.
const USUAL_HOLDS: i64 = 8;
const LEAST_SHARE: i64 = 64;

/// A block is not filled unless it has room for this number of holds.
const LEAST_HOLDS: i64 = 2;

impl Account {
    pub(super) fn fill_block(&mut self, fill: &FillBlock, at: Millis) -> OperationEffect {
        let done = OperationEffect::BlocksChanged;
        // Each node has to return its blocks now.
        if self.is_called || self.is_period_due(at) {
            return done;
        }
        let key = BlockKey {
            parts: self.counted(&fill.block.parts),
            ..fill.block.clone()
        };
        let available = self.payable(key.top_up_only);
        let is_of_plan = available.plan > Credits::ZERO;
        let can_grow = self.blocks.get(&key).is_none_or(|block| {
            let other = match is_of_plan {
                true => block.reserved.top_up,
                false => block.reserved.plan,
            };
            other == Credits::ZERO && block.period_number == self.period_number
        });
        let pool = match is_of_plan {
            true => available.plan,
            false => available.top_up,
        };
        let spendable = self.spendable(&key.parts, key.top_up_only, at).min(pool);
        let share = spendable.saturating_add(fill.left).micro() / BLOCK_SHARE;
        let least = fill.usual.micro().saturating_mul(LEAST_HOLDS);
        let usual = fill.usual.micro().saturating_mul(USUAL_HOLDS);
        let wanted = usual.max(fill.wanted.micro());
        let most = share.min(wanted.max(spendable.micro() / LEAST_SHARE));
        // A block that is half full is not worth a write.
        if !can_grow || share < least || fill.left.micro() > most / 2 {
            return done;
        }
        let more = Credits::from_micro(most - fill.left.micro()).min(spendable);
        let (taken, _) = available.take(more);
        self.hold_more(&key.parts, taken);
        let block = self.blocks.entry(key.clone()).or_insert_with(|| Block {
            key: key.clone(),
            period_start: self.period.start,
            period_number: self.period_number,
            reserved: Pools::default(),
            used_at: at,
        });
        block.reserved = block.reserved.plus(taken);
        self.note_block(key, at);
        done
    }

    pub(super) fn end_blocks(&mut self, boot_id: &BootId, at: Millis) -> OperationEffect {
        let ended: Vec<_> = self
            .blocks
            .extract_if(.., |key, _| key.boot_id == *boot_id)
            .collect();
        for (_, block) in ended {
            self.free_block(&block, at);
        }
        OperationEffect::BlocksChanged
    }

    /// Makes the hold of a request that was opened in memory, from its node's block. Credits that the block lacks, which
    /// can happen only after the node lost its lease, come from the available ones. Returns `None` without a block.
    pub(super) fn take_from_block(
        &mut self,
        open: &OpenHold,
        boot_id: &BootId,
        wanted: Pools,
        at: Millis,
    ) -> Option<Hold> {
        let key = BlockKey {
            boot_id: boot_id.clone(),
            parts: open.parts.clone(),
            top_up_only: open.top_up_only,
        };
        let block = self.blocks.get_mut(&key)?;
        let taken = Pools {
            plan: wanted.plan.min(block.reserved.plan),
            top_up: wanted.top_up.min(block.reserved.top_up),
        };
        block.reserved = block.reserved.minus(taken);
        let (period_start, period_number) = (block.period_start, block.period_number);
        self.note_block(key, at);
        let mut missing = wanted.minus(taken);
        if period_number != self.period_number {
            missing.plan = Credits::ZERO;
        }
        let reserved = taken.plus(self.reserve_again(&open.parts, missing));
        let hold = self.new_hold(open, boot_id, at, reserved, open.parts.clone());
        Some(Hold {
            period_start,
            period_number,
            ..hold
        })
    }

    /// Returns whether a hold from this block would have the credits that are spent first.
    pub(crate) fn is_current(&self, block: &Block) -> bool {
        let is_of_plan = block.reserved.plan > Credits::ZERO;
        let is_first = block.key.top_up_only
            || is_of_plan != (block.reserved.top_up > Credits::ZERO)
                && (is_of_plan || self.available().plan == Credits::ZERO);
        is_first && block.period_number == self.period_number
    }

    /// Counts a block's credits as available, for readers.
    pub(crate) fn without_block(&mut self, block: &Block) {
        let held = Pools {
            plan: block.reserved.plan.min(self.held.plan),
            top_up: block.reserved.top_up.min(self.held.top_up),
        };
        self.hold_less(&block.key.parts, held);
    }

    /// Returns a block's credits. Those of a past period expire.
    fn free_block(&mut self, block: &Block, at: Millis) {
        self.hold_less(&block.key.parts, block.reserved);
        self.journal.account = true;
        self.journal.blocks.insert(block.key.clone());
        if block.period_number != self.period_number {
            let lapsed = block.reserved.plan;
            self.balance.plan = self.balance.plan.saturating_sub(lapsed);
            self.post_lapse(lapsed, block.period_start, at);
        }
    }

    fn note_block(&mut self, key: BlockKey, at: Millis) {
        if let Some(block) = self.blocks.get_mut(&key) {
            block.used_at = at;
        }
        self.journal.account = true;
        self.journal.blocks.insert(key);
    }
}
