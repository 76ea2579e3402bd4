//! Holds in memory: the opening of a request is arithmetic, and its end is its only write.
//!
//! A durable hold protects the credits from other spenders; it does not protect the charge, because a hold of a failed
//! node without a checkpoint costs nothing. A batch stores a hold together with its first checkpoint, or with its end:
//! then it never has a row.
//!
//! - On SQLite, only one process serves, so that its memory protects all credits of an account.
//! - On PostgreSQL, each node opens holds from its own *blocks*, which are durable. A batch that stores or opens holds
//!   also fills the blocks that they use. A node that misses credits calls the other nodes' blocks back: then the account
//!   has no blocks, and each opening is exact, for [`EXACT_FOR`].
//!
//! An account is known here after a batch that has loaded it. [`Openings::open`] opens a hold if the account certainly
//! accepts it. Everything else takes the way through a batch, which decides exactly: before an operation that may take
//! credits beyond its own hold, or that needs an exact balance, the batch stores all holds of the account, and returns
//! the node's blocks. During such a batch, no hold is opened in memory.
//!
//! **Invariant:** the holds of an account, in memory and stored, never exceed its credits and budgets.
//! **Invariant:** a hold is in memory until the batch that stores or ends it is durable.
//! **Invariant:** the holds in memory from a block never exceed it, as long as the node has its lease.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_storage::clock::Millis;

use crate::account::{Account, Hold, Journal, Pools};
use crate::budgets::BudgetPart;
use crate::credits::Credits;
use crate::operation::{
    AccountId, Action, BlockKey, BootId, Checkpoint, FillBlock, HoldId, OpenHold, Operation,
    OperationOutcome, Settle,
};

/// Locks over the accounts, so that threads rarely wait for each other.
const SHARDS: usize = 16;

/// Maximum number of known accounts for each lock, unless more of them have holds.
const KNOWN: usize = 2_048;

/// The time for which an account has no blocks after they were called back.
pub const EXACT_FOR: Duration = Duration::from_secs(10);

/// A hold of less than the available credits divided by this is opened beside the node's blocks.
const AMPLE: i64 = 4;

/// The known accounts and their holds in memory.
#[derive(Debug, Default)]
pub struct Openings {
    shards: [Mutex<HashMap<AccountId, KnownAccount>>; SHARDS],
    hasher: RandomState,
    /// The number of prepared batches.
    batches: AtomicU64,
    /// The number of times at which all blocks were forgotten.
    forgotten: AtomicU64,
}

#[derive(Debug, Default)]
struct KnownAccount {
    /// On SQLite, the state after the last batch, plus the holds in memory; `None` while a batch may take credits. On
    /// PostgreSQL, the state after this node's last batch.
    account: Option<Account>,
    holds: BTreeMap<HoldId, Arc<MemoryHold>>,
    /// On PostgreSQL, the credits of this process's blocks that no hold in memory has.
    blocks: BTreeMap<BlockKey, Pools>,
    /// The end of the time without blocks.
    exact_until: Millis,
    /// Whether a block of this process must be returned: it has credits that are not spent first, or the process has lost
    /// its lease since.
    is_outdated: bool,
}

#[derive(Debug)]
struct MemoryHold {
    /// The operation that stores it.
    persist: Operation,
    /// The hold's block. On SQLite, it has no row.
    block: BlockKey,
    amount: Credits,
    reserved: Pools,
    /// The last batch that tried to store it; 0 if none did.
    batch: AtomicU64,
}

/// A batch's operations, and the holds in memory that it stores before them.
#[derive(Debug)]
pub struct PreparedBatch<'o> {
    steps: Vec<Step<'o>>,
    /// The stored holds that certainly have no rows.
    new: Vec<Arc<MemoryHold>>,
    /// [`Openings::forgotten`] before the batch.
    forgotten: u64,
}

#[derive(Debug)]
enum Step<'o> {
    Persist(Arc<MemoryHold>),
    /// A change of the node's own blocks.
    OwnBlock(Box<Operation>),
    Asked(&'o Operation),
}

impl Openings {
    /// Opens a hold with a new id in memory; returns the unopened hold if only a batch can decide about it.
    pub fn open(
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
        let is_simple = is_simple(&known.holds, account, &open, at);
        if !is_simple {
            return Some(open);
        }
        let Ok((reserved, parts)) = account.reserve(&open, at) else {
            return Some(open);
        };
        open.parts = parts;
        known.add(id, at, open, boot_id, reserved);
        None
    }

    /// Opens a hold with a new id in memory, from a block; returns the unopened hold if only a batch can decide about it.
    pub fn open_from_block(
        &self,
        id: &AccountId,
        at: Millis,
        mut open: OpenHold,
        run: &BootId,
    ) -> Option<OpenHold> {
        let mut shard = self.shard(id);
        let Some(known) = shard.get_mut(id) else {
            return Some(open);
        };
        let Some(account) = &known.account else {
            return Some(open);
        };
        if !is_simple(&known.holds, account, &open, at) {
            return Some(open);
        }
        let key = block_key(account, &open.parts, open.top_up_only, run);
        let Some(left) = known.blocks.get_mut(&key) else {
            return Some(open);
        };
        let Ok(reserved) = left.take_all(open.amount) else {
            return Some(open);
        };
        *left = left.minus(reserved);
        open.parts = key.parts;
        known.add(id, at, open, run, reserved);
        None
    }

    /// Returns the credits that a new hold for these parts may take, if they are known.
    pub fn spendable(
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

    /// Returns the credits that a new hold for these parts may take, as far as a block of this run shows.
    pub fn spendable_by_block(
        &self,
        id: &AccountId,
        parts: &[BudgetPart],
        top_up_only: bool,
        at: Millis,
        run: &BootId,
    ) -> Option<Credits> {
        let shard = self.shard(id);
        let known = shard.get(id)?;
        let account = known.account.as_ref()?;
        let key = block_key(account, parts, top_up_only, run);
        let left = known.blocks.get(&key)?.total();
        // The block had a quarter of them.
        let all = Credits::from_micro(left.micro().saturating_mul(4));
        let known = account.spendable(parts, top_up_only, at);
        (!account.is_period_due(at)).then(|| all.min(known.saturating_add(left)))
    }

    /// Prepares a batch; `stored` finds the stored open holds that it knows. Until [`Self::conclude`], nothing is opened
    /// for accounts from which the batch may take credits.
    ///
    /// Call it only while no other batch is between the two.
    pub fn prepare<'o, 's>(
        &self,
        operations: &'o [Operation],
        stored: impl Fn(&AccountId, &HoldId) -> Option<&'s Hold>,
    ) -> PreparedBatch<'o> {
        let number = self.batches.fetch_add(1, Ordering::Relaxed) + 1;
        let mut batch = self.new_batch(operations);
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
                let has_budgets = |parts: &[BudgetPart]| {
                    let account = known.account.as_ref();
                    account.is_none_or(|account| !account.counted(parts).is_empty())
                };
                if may_take(&operation.action, reserved, has_budgets) {
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

    /// Prepares a run's batch on PostgreSQL: it returns the run's blocks of accounts that need exact balances, and fills
    /// those of the others. Until [`Self::conclude_run`], nothing is opened from the returned blocks.
    ///
    /// Call it only while no other batch of this run is between the two.
    pub fn prepare_run<'o>(&self, operations: &'o [Operation], run: &BootId) -> PreparedBatch<'o> {
        let number = self.batches.fetch_add(1, Ordering::Relaxed) + 1;
        let mut batch = self.new_batch(operations);
        // An account's blocks are returned before its first operation: an earlier one might take credits beside them.
        let mut returned = BTreeMap::new();
        let mut fills = BTreeMap::new();
        for operation in operations {
            let id = &operation.account;
            let mut shard = self.shard(id);
            let mut unknown = KnownAccount::default();
            let known = shard.get_mut(id).unwrap_or(&mut unknown);
            let is_exact = operation.at < known.exact_until;
            if !is_exact && let Some(fill) = known.fill(operation, run) {
                let key = (id, fill.block.clone());
                fills.entry(key).or_insert((operation.at, fill));
            }
            if is_exact || known.needs_all(operation, run) {
                returned.entry(id).or_insert(operation.at);
            }
        }
        for (id, at) in &returned {
            if let Some(known) = self.shard(id).get_mut(*id) {
                let of_run = known.holds.values().filter(|hold| hold.is_of(run));
                for hold in of_run {
                    batch.persist(hold, number);
                }
                known.blocks.retain(|key, _| key.boot_id != *run);
            }
            let end = Action::EndBlocks {
                boot_id: run.clone(),
                unless_leased: false,
            };
            batch.own_block(id, *at, end);
        }
        for operation in operations {
            if let Some(known) = self.shard(&operation.account).get(&operation.account) {
                for hold in operation.holds() {
                    if let Some(hold) = known.holds.get(hold) {
                        batch.persist(hold, number);
                    }
                }
            }
            batch.steps.push(Step::Asked(operation));
        }
        for ((id, _), (at, mut fill)) in fills {
            if returned.contains_key(id) {
                fill.left = Credits::ZERO;
            }
            batch.own_block(id, at, Action::FillBlock(Box::new(fill)));
        }
        batch
    }

    fn new_batch<'o>(&self, operations: &[Operation]) -> PreparedBatch<'o> {
        PreparedBatch {
            steps: Vec::with_capacity(2 * operations.len()),
            new: Vec::new(),
            forgotten: self.forgotten.load(Ordering::Acquire),
        }
    }

    /// Takes over the accounts after a batch that is durable. Its holds are no longer in memory.
    pub fn conclude<'a>(
        &self,
        batch: &PreparedBatch<'_>,
        after: impl Fn(&AccountId) -> Option<&'a Account>,
    ) {
        self.take_over(batch, after, |known, mut account, _| {
            for hold in known.holds.values() {
                hold.reserve_in(&mut account);
            }
            known.account = Some(account);
        });
    }

    /// Takes over the accounts and blocks after a run's batch on PostgreSQL that is durable.
    pub fn conclude_run(
        &self,
        batch: &PreparedBatch<'_>,
        after: &BTreeMap<AccountId, Account>,
        run: &BootId,
        now: Millis,
    ) {
        self.take_over(
            batch,
            |id| after.get(id),
            |known, account, loaded| {
                known.blocks.retain(|key, _| key.boot_id != *run);
                // The blocks of a run whose lease has ended meanwhile may be returned.
                let is_leased = self.forgotten.load(Ordering::Acquire) == batch.forgotten;
                if is_leased && !loaded.is_called && now >= known.exact_until {
                    let own = loaded.blocks.iter().filter(|(key, _)| key.boot_id == *run);
                    let (current, outdated): (Vec<_>, Vec<_>) =
                        own.partition(|(_, block)| loaded.is_current(block));
                    known.is_outdated = !outdated.is_empty();
                    for (key, block) in current {
                        let used = known.holds.values().filter(|hold| hold.block == *key);
                        let used = used.fold(Pools::default(), |sum, hold| sum.plus(hold.reserved));
                        let left = Pools {
                            plan: block
                                .reserved
                                .plan
                                .saturating_sub(used.plan)
                                .max(Credits::ZERO),
                            top_up: block
                                .reserved
                                .top_up
                                .saturating_sub(used.top_up)
                                .max(Credits::ZERO),
                        };
                        known.blocks.insert(key.clone(), left);
                    }
                }
                known.account = Some(account);
            },
        );
    }

    fn take_over<'a>(
        &self,
        batch: &PreparedBatch<'_>,
        after: impl Fn(&AccountId) -> Option<&'a Account>,
        take: impl Fn(&mut KnownAccount, Account, &Account),
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
            let Some(loaded) = after(id) else {
                continue;
            };
            let mut shard = self.shard(id);
            if shard.len() >= KNOWN && !shard.contains_key(id) {
                shard.retain(|_, known| !known.holds.is_empty());
            }
            let known = shard.entry(id.clone()).or_default();
            take(known, loaded.without_records(), loaded);
        }
    }

    /// Opens nothing in memory for an account until this moment, on PostgreSQL.
    pub fn be_exact(&self, id: &AccountId, until: Millis) {
        let mut shard = self.shard(id);
        let known = shard.entry(id.clone()).or_default();
        known.exact_until = known.exact_until.max(until);
        known.blocks.clear();
    }

    /// Forgets a run's blocks, because its lease has ended: other nodes may return them. The next batch of each account
    /// returns what is left.
    pub fn forget_blocks(&self, run: &BootId) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for known in shard.values_mut() {
                known.blocks.retain(|key, _| key.boot_id != *run);
                known.is_outdated = true;
            }
        }
    }

    /// Adds an account's holds in memory to its stored state.
    pub fn add_to(&self, account: &mut Account) {
        if let Some(known) = self.shard(&account.id).get(&account.id) {
            for hold in known.holds.values() {
                hold.reserve_in(account);
            }
            account.journal = Journal::default();
        }
    }

    /// Returns the holds in memory of a run that were opened before this moment.
    pub fn find_overdue(
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
    pub fn count(&self, boot_id: &BootId) -> usize {
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
    pub fn operations(&self) -> Vec<&Operation> {
        self.steps.iter().map(Step::operation).collect()
    }

    /// Returns the holds without rows in the database.
    pub fn new_holds(&self) -> impl Iterator<Item = &HoldId> {
        self.new.iter().flat_map(|hold| hold.persist.holds())
    }

    /// Returns the outcomes of the operations for which the batch was prepared.
    pub fn asked(&self, outcomes: Vec<OperationOutcome>) -> Vec<OperationOutcome> {
        let both = self.steps.iter().zip(outcomes);
        let asked = both.filter(|(step, _)| matches!(step, Step::Asked(_)));
        asked.map(|(_, outcome)| outcome).collect()
    }

    fn own_block(&mut self, account: &AccountId, at: Millis, action: Action) {
        self.steps.push(Step::OwnBlock(Box::new(Operation {
            account: account.clone(),
            at,
            action,
        })));
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

/// Returns whether a hold can be opened in memory if there are enough credits.
fn is_simple(
    holds: &BTreeMap<HoldId, Arc<MemoryHold>>,
    account: &Account,
    open: &OpenHold,
    at: Millis,
) -> bool {
    open.parent.is_none()
        && open.amount.is_in_range()
        && !holds.contains_key(&open.hold)
        && !account.is_period_due(at)
}

/// Returns the key of a run's block for a request.
fn block_key(account: &Account, parts: &[BudgetPart], top_up_only: bool, run: &BootId) -> BlockKey {
    BlockKey {
        boot_id: run.clone(),
        parts: account.counted(parts),
        top_up_only,
    }
}

impl KnownAccount {
    fn add(
        &mut self,
        id: &AccountId,
        at: Millis,
        open: OpenHold,
        boot_id: &BootId,
        reserved: Pools,
    ) {
        let block = BlockKey {
            boot_id: boot_id.clone(),
            parts: open.parts.clone(),
            top_up_only: open.top_up_only,
        };
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
        let opened = MemoryHold {
            persist,
            block,
            amount,
            reserved,
            batch: AtomicU64::new(0),
        };
        self.holds.insert(hold, Arc::new(opened));
    }

    /// Returns whether an operation needs the credits of the node's blocks, or changes how they are reserved.
    fn needs_all(&self, operation: &Operation, run: &BootId) -> bool {
        let Some(account) = &self.account else {
            return true;
        };
        match &operation.action {
            _ if self.is_outdated => true,
            Action::Open { open, .. } if open.parent.is_none() => {
                let enough = Credits::from_micro(open.amount.micro().saturating_mul(AMPLE));
                let spendable = account.spendable(&open.parts, open.top_up_only, operation.at);
                let of_plan = account.available().plan;
                let is_first = open.top_up_only
                    || of_plan >= enough
                    || of_plan == Credits::ZERO
                        && self.blocks.values().all(|left| left.plan == Credits::ZERO);
                !is_first || spendable < enough || account.is_period_due(operation.at)
            }
            Action::Settle(Settle { hold, credits, .. }) => {
                let hold = self.holds.get(hold);
                hold.is_some_and(|hold| *credits > hold.amount)
            }
            Action::Open { .. }
            | Action::Checkpoint(_)
            | Action::Release { .. }
            | Action::Expire { .. }
            | Action::EndKey(_) => false,
            Action::EndBlocks { boot_id, .. } => boot_id == run,
            _ => true,
        }
    }

    /// Returns the block that an operation's request uses, if it opens holds in memory.
    fn fill(&self, operation: &Operation, run: &BootId) -> Option<FillBlock> {
        let (block, usual) = match &operation.action {
            Action::Open {
                open, claim: None, ..
            } if open.parent.is_none() => {
                let account = self.account.as_ref();
                let parts = open.parts.clone();
                let block = account.map_or_else(
                    || BlockKey {
                        boot_id: run.clone(),
                        parts,
                        top_up_only: open.top_up_only,
                    },
                    |account| block_key(account, &open.parts, open.top_up_only, run),
                );
                (block, open.amount)
            }
            Action::Settle(Settle { hold, .. }) | Action::Release { hold, .. } => {
                let hold = self.holds.get(hold)?;
                (hold.block.clone(), hold.amount)
            }
            _ => return None,
        };
        let left = self.blocks.get(&block).copied().unwrap_or_default();
        (block.boot_id == *run).then(|| FillBlock {
            left: left.total(),
            block,
            usual,
        })
    }
}

/// Returns whether an operation may take credits that its own hold does not reserve, or needs the exact balance.
/// `reserved` returns a hold's reserved credits and its checkpoint, if they are known; `has_budgets`, whether one of the
/// parts has budgets.
fn may_take(
    action: &Action,
    reserved: impl Fn(&HoldId) -> Option<(Credits, Credits)>,
    has_budgets: impl Fn(&[BudgetPart]) -> bool,
) -> bool {
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
        // It draws on its parent, except in the budgets of its own parts.
        Action::Open { open, .. } => open.parent.is_none() || has_budgets(&open.parts),
        _ => true,
    }
}

impl Step<'_> {
    fn operation(&self) -> &Operation {
        match self {
            Self::Persist(hold) => &hold.persist,
            Self::OwnBlock(operation) => operation,
            Self::Asked(operation) => operation,
        }
    }
}

impl MemoryHold {
    fn reserve_in(&self, account: &mut Account) {
        account.reserve_again(&self.block.parts, self.reserved);
    }

    fn is_of(&self, run: &BootId) -> bool {
        self.block.boot_id == *run
    }
}
