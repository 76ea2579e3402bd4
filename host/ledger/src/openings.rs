//! Holds in memory: on SQLite, the opening of a request is arithmetic, and its end is its only write.
//!
//! A durable hold protects the credits from other spenders; it does not protect the charge, because a hold of a failed
//! node without a checkpoint costs nothing. Only one process serves from a SQLite file, so that its memory protects the
//! credits as well. A batch stores a hold together with its first checkpoint, or with its end: then it never has a row.
//!
//! An account is known here after a batch that has loaded it. [`Openings::open`] opens a hold if the account certainly
//! accepts it. Everything else takes the way through a batch, which decides exactly: before an operation that may take
//! credits beyond its own hold, or that needs an exact balance, the batch stores all holds of the account. During such a
//! batch, no hold is opened in memory.
//!
//! **Invariant:** the holds of an account, in memory and stored, never exceed its credits and budgets.
//! **Invariant:** a hold is in memory until the batch that stores or ends it is durable.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_storage::clock::Millis;

use crate::account::{Account, Hold, Journal, Pools};
use crate::budgets::BudgetPart;
use crate::credits::Credits;
use crate::operation::{
    AccountId, Action, BootId, Checkpoint, HoldId, OpenHold, Operation, OperationOutcome, Settle,
};

/// Locks over the accounts, so that threads rarely wait for each other.
const SHARDS: usize = 16;

/// Maximum number of known accounts for each lock, unless more of them have holds.
const KNOWN: usize = 2_048;

/// The known accounts and their holds in memory.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    shards: [Mutex<HashMap<AccountId, KnownAccount>>; SHARDS],
    hasher: RandomState,
    /// The number of prepared batches.
    batches: AtomicU64,
}

#[derive(Debug, Default)]
struct KnownAccount {
    /// The state after the last batch, plus the holds in memory. `None` while a batch may take credits.
    account: Option<Account>,
    holds: BTreeMap<HoldId, Arc<MemoryHold>>,
}

#[derive(Debug)]
struct MemoryHold {
    /// The operation that stores it.
    persist: Operation,
    amount: Credits,
    /// The last batch that tried to store it; 0 if none did.
    batch: AtomicU64,
}

/// A batch's operations, and the holds in memory that it stores before them.
pub(crate) struct PreparedBatch<'o> {
    steps: Vec<Step<'o>>,
    /// The stored holds that certainly have no rows.
    new: Vec<Arc<MemoryHold>>,
}

enum Step<'o> {
    Persist(Arc<MemoryHold>),
    Asked(&'o Operation),
}

impl Openings {
    /// Opens a hold with a new id in memory; returns the unopened hold if only a batch can decide about it.
    pub(crate) fn open(
        &self,
        id: &AccountId,
        at: Millis,
        mut open: OpenHold,
        boot_id: &BootId,
    ) -> Option<OpenHold> {
        let mut shard = self.shard(id);
        let Some(known) = shard.get_mut(id) else {
            return Some(open);
        };
        let Some(account) = &mut known.account else {
            return Some(open);
        };
        let is_simple = open.parent.is_none()
            && open.amount.is_in_range()
            && !known.holds.contains_key(&open.hold)
            && !account.is_period_due(at);
        if !is_simple {
            return Some(open);
        }
        let Ok((reserved, parts)) = account.reserve(&open, at) else {
            return Some(open);
        };
        open.parts = parts;
        let (hold, amount) = (open.hold.clone(), open.amount);
        let persist = Operation {
            account: id.clone(),
            at,
            action: Action::Persist {
                open,
                boot_id: boot_id.clone(),
                plan: reserved.plan,
                top_up: reserved.top_up,
            },
        };
        let batch = AtomicU64::new(0);
        let opened = MemoryHold {
            persist,
            amount,
            batch,
        };
        known.holds.insert(hold, Arc::new(opened));
        None
    }

    /// Returns the credits that a new hold for these parts may take, if they are known.
    pub(crate) fn spendable(
        &self,
        id: &AccountId,
        parts: &[BudgetPart],
        top_up_only: bool,
        at: Millis,
    ) -> Option<Credits> {
        let shard = self.shard(id);
        let account = shard.get(id)?.account.as_ref()?;
        (!account.is_period_due(at)).then(|| account.spendable(parts, top_up_only, at))
    }

    /// Prepares a batch; `stored` finds the stored open holds that it knows. Until [`Self::conclude`], nothing is opened
    /// for accounts from which the batch may take credits.
    ///
    /// Call it only while no other batch is between the two.
    pub(crate) fn prepare<'o, 's>(
        &self,
        operations: &'o [Operation],
        stored: impl Fn(&AccountId, &HoldId) -> Option<&'s Hold>,
    ) -> PreparedBatch<'o> {
        let number = self.batches.fetch_add(1, Ordering::Relaxed) + 1;
        let mut batch = PreparedBatch {
            steps: Vec::with_capacity(2 * operations.len()),
            new: Vec::new(),
        };
        // A parent may reserve less than it did before the batch.
        let draws_on_parents = operations
            .iter()
            .any(|operation| operation.action.draws_on_parent());
        for operation in operations {
            let id = &operation.account;
            if let Some(known) = self.shard(id).get_mut(id) {
                let reserved = |hold: &HoldId| match (known.holds.get(hold), stored(id, hold)) {
                    _ if draws_on_parents => None,
                    (Some(hold), _) => Some((hold.amount, Credits::ZERO)),
                    (None, Some(hold)) => Some((hold.reserved.total(), hold.checkpoint)),
                    (None, None) => None,
                };
                if may_take(&operation.action, reserved) {
                    for hold in known.holds.values() {
                        batch.persist(hold, number);
                    }
                    known.account = None;
                } else {
                    for hold in operation.holds() {
                        if let Some(hold) = known.holds.get(hold) {
                            batch.persist(hold, number);
                        }
                    }
                }
            }
            batch.steps.push(Step::Asked(operation));
        }
        batch
    }

    /// Takes over the accounts after a batch that is durable. Its holds are no longer in memory.
    pub(crate) fn conclude<'a>(
        &self,
        batch: &PreparedBatch<'_>,
        after: impl Fn(&AccountId) -> Option<&'a Account>,
    ) {
        let mut accounts = BTreeSet::new();
        for step in &batch.steps {
            let Operation { account, .. } = step.operation();
            accounts.insert(account);
            if let Step::Persist(hold) = step
                && let Some(known) = self.shard(account).get_mut(account)
            {
                for hold in hold.persist.holds() {
                    known.holds.remove(hold);
                }
            }
        }
        for id in accounts {
            let Some(account) = after(id) else {
                continue;
            };
            let mut account = account.without_records();
            let mut shard = self.shard(id);
            if shard.len() >= KNOWN && !shard.contains_key(id) {
                shard.retain(|_, known| !known.holds.is_empty());
            }
            let known = shard.entry(id.clone()).or_default();
            for hold in known.holds.values() {
                hold.reserve_in(&mut account);
            }
            known.account = Some(account);
        }
    }

    /// Adds an account's holds in memory to its stored state.
    pub(crate) fn add_to(&self, account: &mut Account) {
        if let Some(known) = self.shard(&account.id).get(&account.id) {
            for hold in known.holds.values() {
                hold.reserve_in(account);
            }
            account.journal = Journal::default();
        }
    }

    /// Returns the holds in memory of a run that were opened before this moment.
    pub(crate) fn find_overdue(
        &self,
        boot_id: &BootId,
        opened_before: Millis,
    ) -> Vec<(AccountId, HoldId)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (account, known) in &*shard {
                let of_run = known
                    .holds
                    .iter()
                    .filter(|(_, hold)| hold.persist.at < opened_before && hold.is_of(boot_id));
                found.extend(of_run.map(|(hold, _)| (account.clone(), hold.clone())));
            }
        }
        found
    }

    /// Returns the number of a run's holds in memory.
    pub(crate) fn count(&self, boot_id: &BootId) -> usize {
        self.find_overdue(boot_id, Millis(i64::MAX)).len()
    }

    fn shard(&self, id: &AccountId) -> MutexGuard<'_, HashMap<AccountId, KnownAccount>> {
        let shard = self.hasher.hash_one(id) as usize % SHARDS;
        self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'o> PreparedBatch<'o> {
    /// Returns the operations to commit, in order.
    pub(crate) fn operations(&self) -> Vec<&Operation> {
        self.steps.iter().map(Step::operation).collect()
    }

    /// Returns the holds without rows in the database.
    pub(crate) fn new_holds(&self) -> impl Iterator<Item = &HoldId> {
        self.new.iter().flat_map(|hold| hold.persist.holds())
    }

    /// Returns the outcomes of the operations for which the batch was prepared.
    pub(crate) fn asked(&self, outcomes: Vec<OperationOutcome>) -> Vec<OperationOutcome> {
        let both = self.steps.iter().zip(outcomes);
        let asked = both.filter(|(step, _)| matches!(step, Step::Asked(_)));
        asked.map(|(_, outcome)| outcome).collect()
    }

    /// Stores a hold in this batch, once.
    fn persist(&mut self, hold: &Arc<MemoryHold>, number: u64) {
        let last = hold.batch.swap(number, Ordering::Relaxed);
        if last != number {
            self.steps.push(Step::Persist(hold.clone()));
        }
        if last == 0 {
            self.new.push(hold.clone());
        }
    }
}

/// Returns whether an operation may take credits that its own hold does not reserve, or needs the exact balance.
/// `reserved` returns a hold's reserved credits and its checkpoint, if they are known.
fn may_take(action: &Action, reserved: impl Fn(&HoldId) -> Option<(Credits, Credits)>) -> bool {
    match action {
        Action::Settle(Settle { hold, credits, .. })
        // An expiry may follow in the same batch.
        | Action::Checkpoint(Checkpoint { hold, credits, .. }) => {
            reserved(hold).is_none_or(|(reserved, _)| *credits > reserved)
        }
        Action::Expire { hold } => {
            reserved(hold).is_none_or(|(reserved, checkpoint)| checkpoint > reserved)
        }
        Action::Release { .. } | Action::EndKey(_) => false,
        // It draws on its parent.
        Action::Open { .. } => !action.draws_on_parent(),
        _ => true,
    }
}

impl Step<'_> {
    fn operation(&self) -> &Operation {
        match self {
            Self::Persist(hold) => &hold.persist,
            Self::Asked(operation) => operation,
        }
    }
}

impl MemoryHold {
    fn reserve_in(&self, account: &mut Account) {
        if let Action::Persist {
            open, plan, top_up, ..
        } = &self.persist.action
        {
            let (plan, top_up) = (*plan, *top_up);
            account.reserve_again(&open.parts, Pools { plan, top_up });
        }
    }

    fn is_of(&self, run: &BootId) -> bool {
        matches!(&self.persist.action, Action::Persist { boot_id, .. } if boot_id == run)
    }
}
