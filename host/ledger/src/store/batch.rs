//! The data that a batch loads and writes, in any database.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};

use super::chain;
use super::rows::{ACCOUNTS, AccountRow};
use crate::account::{
    Account, Block, EndedHold, Hold, LedgerEntry, RecordedOperation, UsageDelta, apply,
};
use crate::keys::IdempotencyKey;
use crate::operation::{
    AccountId, Action, BlockKey, BootId, HoldId, LedgerRefusal, Operation, OperationEffect,
    OperationOutcome,
};
use crate::shortage::{spares_blocks, waits_for_blocks};

/// The stored data that operations need.
#[derive(Default)]
pub(super) struct LoadedBatch {
    pub(super) accounts: BTreeMap<AccountId, Account>,
    /// The known holds, and their accounts.
    pub(super) owners: BTreeMap<HoldId, AccountId>,
    /// The holds with a row.
    pub(super) stored: BTreeSet<HoldId>,
    /// The runs that may still use their blocks, among those whose blocks the operations return.
    pub(super) leased: BTreeSet<BootId>,
}

impl LoadedBatch {
    pub(super) fn add_hold(&mut self, owner: AccountId, hold: Hold) {
        let id = hold.open.hold.clone();
        if let Some(account) = self.accounts.get_mut(&owner) {
            account.holds.insert(id.clone(), hold);
        }
        self.stored.insert(id.clone());
        self.owners.insert(id, owner);
    }

    /// Records the account and the parent of a remembered account's hold; `false` if the hold is not remembered.
    pub(super) fn recall_hold(&mut self, account: &AccountId, id: &HoldId) -> bool {
        let known = self.accounts.get(account);
        let Some(hold) = known.and_then(|account| account.holds.get(id)) else {
            return false;
        };
        for id in std::iter::once(id).chain(&hold.open.parent) {
            if known.is_some_and(|account| account.holds.contains_key(id)) {
                self.stored.insert(id.clone());
                self.owners.insert(id.clone(), account.clone());
            }
        }
        true
    }

    /// Adds an entry about a hold without a row, in the order of the entries' numbers.
    pub(super) fn add_end(
        &mut self,
        owner: AccountId,
        end: EndedHold,
        reported: Option<UsageDelta>,
    ) {
        let id = end.open.hold.clone();
        if let Some(account) = self.accounts.get_mut(&owner) {
            let ended = match account.ended.entry(id.clone()) {
                Slot::Vacant(slot) => slot.insert(end),
                Slot::Occupied(slot) => {
                    let ended = slot.into_mut();
                    ended.add(end);
                    ended
                }
            };
            if let Some(reported) = reported {
                ended.add_usage(reported);
            }
        }
        self.owners.insert(id, owner);
    }

    pub(super) fn add_key(&mut self, owner: &AccountId, key: IdempotencyKey) -> HoldId {
        let hold = key.hold.clone();
        if let Some(account) = self.accounts.get_mut(owner) {
            account.keys.insert(key.name.clone(), key);
        }
        hold
    }

    pub(super) fn add_recorded(&mut self, operation: &Operation, first: RecordedOperation) {
        if let Some(id) = operation.id()
            && let Some(account) = self.accounts.get_mut(&operation.account)
        {
            account.recorded.insert(id.clone(), first);
        }
    }

    /// Does the operations of a run, or of a command.
    pub(super) fn apply<'o>(
        &mut self,
        operations: impl IntoIterator<Item = &'o Operation>,
        run: Option<&BootId>,
    ) -> Vec<OperationOutcome> {
        let Self {
            accounts,
            owners,
            leased,
            ..
        } = self;
        let each = operations.into_iter().map(|operation| {
            let Some(account) = accounts.get_mut(&operation.account) else {
                return Err(LedgerRefusal::UnknownAccount);
            };
            match &operation.action {
                // The hold belongs to another account.
                Action::Open { .. } | Action::Persist(_)
                    if operation
                        .holds()
                        .next()
                        .and_then(|hold| owners.get(hold))
                        .is_some_and(|owner| *owner != operation.account) =>
                {
                    Err(LedgerRefusal::Conflict)
                }
                action if spares_blocks(action, leased) => Ok(OperationEffect::BlocksChanged),
                _ if waits_for_blocks(operation, account, run) => Err(LedgerRefusal::Blocked),
                _ => apply(operation, account),
            }
        });
        let outcomes = each.collect();
        self.chain();
        outcomes
    }

    /// Chains each account's new entries to the ones before them.
    fn chain(&mut self) {
        for (id, account) in &mut self.accounts {
            for entry in &mut account.journal.entries {
                entry.previous_hash = account.last_hash;
                account.last_hash = chain::hash_of_entry(&(id, entry));
            }
        }
    }

    pub(super) fn add_block(&mut self, owner: &AccountId, block: Block, is_called: bool) {
        if let Some(account) = self.accounts.get_mut(owner) {
            account.is_called |= is_called;
            account.blocks.insert(block.key.clone(), block);
        }
    }

    pub(super) fn changes(&self) -> BatchChanges<'_> {
        let mut changes = BatchChanges::default();
        for (id, account) in &self.accounts {
            let journal = &account.journal;
            if journal.account {
                changes.accounts.push((id, account));
            }
            for hold in &journal.holds {
                let is_stored = self.stored.contains(hold);
                match account.holds.get(hold) {
                    Some(hold) if is_stored => changes.holds.push((id, hold)),
                    Some(hold) => changes.new_holds.push((id, hold)),
                    None if is_stored => changes.ended_holds.push((id, hold)),
                    // The hold was opened and ended within these operations.
                    None => {}
                }
            }
            let keys = journal
                .keys
                .iter()
                .filter_map(|name| account.keys.get(name));
            changes.keys.extend(keys.map(|key| (id, key)));
            for key in &journal.blocks {
                match account.blocks.get(key) {
                    Some(block) => changes.blocks.push((id, block)),
                    None => changes.ended_blocks.push((id, key)),
                }
            }
            for entry in &journal.entries {
                changes.entries.push((id, entry));
            }
            if journal.plan {
                changes.plans.push((id, account));
            }
        }
        changes
    }
}

/// The changes of a batch, row by row.
#[derive(Default)]
pub(super) struct BatchChanges<'a> {
    pub(super) accounts: Vec<AccountRow<'a, Account>>,
    /// The accounts with a changed plan, period or similar field.
    pub(super) plans: Vec<AccountRow<'a, Account>>,
    pub(super) new_holds: Vec<AccountRow<'a, Hold>>,
    pub(super) holds: Vec<AccountRow<'a, Hold>>,
    /// Holds whose rows are deleted.
    pub(super) ended_holds: Vec<AccountRow<'a, HoldId>>,
    pub(super) entries: Vec<AccountRow<'a, LedgerEntry>>,
    pub(super) keys: Vec<AccountRow<'a, IdempotencyKey>>,
    pub(super) blocks: Vec<AccountRow<'a, Block>>,
    /// Blocks whose rows, if they have any, are deleted.
    pub(super) ended_blocks: Vec<AccountRow<'a, BlockKey>>,
}

/// Returns the start of the query for [`read_account`](super::rows::read_account); a condition on the id follows.
pub(super) fn find_account() -> String {
    format!(
        "SELECT {}, created_at FROM accounts WHERE id",
        ACCOUNTS.names()
    )
}

/// The start of the statement that creates accounts of users; a condition on the id follows.
pub(super) const MAKE_ACCOUNTS: &str = "INSERT INTO accounts (id, created_at, plan, period_start, period_end, period_number, \
     plan_credits, top_up_credits, plan_held, top_up_held, entries) \
     SELECT id, created_at, 'free', created_at, created_at, 0, 0, 0, 0, 0, 0 FROM users WHERE id";
