//! Holds in memory: the opening of a request is arithmetic, and its end is its only write.
//!
//! A durable hold protects the credits from other spenders; it does not protect the charge, because a hold of a failed
//! node without a checkpoint costs nothing. A batch stores a hold together with its first checkpoint, or with its end:
//! then it never has a row. On PostgreSQL, the log has both, and few holds ever have rows.
//!
//! - On SQLite, only one process serves, so that its memory protects all credits of an account. A command of another
//!   process raises the run's fence, and the process that serves forgets its accounts.
//! - On PostgreSQL, each node opens holds from its own *blocks*, which are durable. A batch that opens or folds holds also
//!   fills the blocks that they use. A node that misses credits calls the other nodes' blocks back: then the account has no
//!   blocks, and each opening is exact, for [`EXACT_FOR`].
//!
//! A hold whose charge is certain ends by a record in the run's [log](crate::log). It is in the account's *tail* until a batch
//! folds it, and keeps its charge reserved.
//!
//! An account is known here after a batch that has loaded it. [`Openings::open`] opens a hold if the account certainly
//! accepts it. Everything else takes the way through a batch, which decides exactly: before an operation that may take
//! credits beyond its own hold, or that needs an exact balance, the batch stores all holds of the account, and returns
//! the node's blocks. During such a batch, no hold is opened in memory.
//!
//! **Invariant:** the holds of an account, in memory and stored, never exceed its credits and budgets.
//! **Invariant:** a hold is in memory until the batch that stores or ends it is durable.
//! **Invariant:** the holds in memory from a block, and the charges in the tail, never exceed it, as long as the node has
//! its lease.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use weir_storage::clock::Millis;

use crate::account::{Account, Hold, Journal, Pools};
use crate::budgets::BudgetPart;
use crate::credits::Credits;
use crate::log::{LogCheckpoint, LogRecord};
use crate::operation::{
    AccountId, Action, BlockKey, BootId, Checkpoint, CommitResult, FillBlock, HoldId, OpenHold,
    Operation, OperationOutcome, PersistHold, Settle,
};

/// Locks over the accounts, so that threads rarely wait for each other.
const SHARDS: usize = 16;

/// Maximum number of known accounts for each lock, unless more of them have holds.
const KNOWN: usize = 2_048;

/// The time for which an account has no blocks after they were called back.
pub const EXACT_FOR: Duration = Duration::from_secs(10);

/// Maximum time that a reader waits for a fold.
const READER_WAITS: Duration = Duration::from_secs(2);

/// The time for whose spending a block is filled.
const FILLED_FOR: Duration = Duration::from_secs(5);

/// Records that one batch folds: the database limits the time of a statement.
const FOLDED_AT_ONCE: usize = 1_000;

/// The fence of a run that others have ended, until it renews its lease: the log refuses it.
pub const NO_FENCE: i64 = -1;

/// A hold of less than the available credits divided by this is opened beside the node's blocks.
const AMPLE: i64 = 4;

/// Pays a hold's charge in memory; returns it by pool, and the run's fence.
type Pay = fn(&mut KnownAccount, &MemoryHold, Credits) -> Option<(Pools, i64)>;

/// The known accounts and their holds in memory.
#[derive(Debug, Default)]
pub struct Openings {
    shards: [Mutex<HashMap<AccountId, KnownAccount>>; SHARDS],
    hasher: RandomState,
    /// The number of prepared batches.
    batches: AtomicU64,
    /// The number of times at which all blocks were forgotten.
    forgotten: AtomicU64,
    /// The run's fence.
    fence: AtomicI64,
    /// The number of records in all tails.
    tail: AtomicUsize,
    /// Whether the log's row of checkpoints is out of date.
    has_noted: AtomicBool,
    /// The run of this process, on SQLite.
    run: Mutex<Option<BootId>>,
    /// The node's ledger, which folds tails for readers.
    folding: OnceLock<mpsc::UnboundedSender<FoldRequest>>,
}

/// A reader that waits until the tail of an account is folded.
pub(crate) type FoldRequest = (AccountId, oneshot::Sender<CommitResult>);

/// The credits of a block that no hold in memory has, and no record in the tail.
#[derive(Debug, Clone, Copy)]
struct MemoryBlock {
    left: Pools,
    /// The run's fence when the block was read.
    fence: i64,
}

/// A record of the log that is not folded yet.
#[derive(Debug)]
pub struct TailRecord {
    record: LogRecord,
    /// The operation of its fold.
    fold: Operation,
    hold: Arc<MemoryHold>,
    fence: i64,
    since: Instant,
    /// The last batch that tried to fold it; 0 if none did.
    batch: AtomicU64,
    is_appended: AtomicBool,
    is_folded: AtomicBool,
}

#[derive(Debug, Default)]
struct KnownAccount {
    /// On SQLite, the state after the last batch, plus the holds in memory and the charges in the tail; `None` while a batch
    /// may take credits. On PostgreSQL, the state after this node's last batch.
    account: Option<Account>,
    /// On SQLite, the run's fence when the account was read.
    fence: i64,
    holds: BTreeMap<HoldId, Arc<MemoryHold>>,
    /// On PostgreSQL, this process's blocks.
    blocks: BTreeMap<BlockKey, MemoryBlock>,
    /// The records that are not folded yet, in the order of the requests' ends.
    tail: Vec<Arc<TailRecord>>,
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
    /// The last checkpoint, which a batch stores with the hold.
    checkpoint: Mutex<Option<Operation>>,
}

/// A batch's operations, and the holds in memory that it stores before them.
#[derive(Debug)]
pub struct PreparedBatch<'o> {
    steps: Vec<Step<'o>>,
    /// The stored holds that certainly have neither rows nor entries.
    new: Vec<HoldId>,
    /// [`Openings::forgotten`] before the batch.
    forgotten: u64,
    /// The run's fence before the batch.
    fence: i64,
}

#[derive(Debug)]
enum Step<'o> {
    Persist(Arc<MemoryHold>),
    Fold(Arc<TailRecord>),
    /// A change of the node's own blocks, or a checkpoint of a hold before it.
    Own(Box<Operation>),
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
        let Some(block) = known.blocks.get_mut(&key) else {
            return Some(open);
        };
        let Ok(reserved) = block.left.take_all(open.amount) else {
            return Some(open);
        };
        block.left = block.left.minus(reserved);
        open.parts = key.parts;
        known.add(id, at, open, run, reserved);
        None
    }

    /// Ends a hold in memory by a record for the log, if its account pays the charge; returns the operation if only a batch
    /// can do it. A charge above the hold takes what the account has free.
    pub fn end(&self, operation: Operation) -> Result<Arc<TailRecord>, Box<Operation>> {
        self.end_by(operation, KnownAccount::pay_from_account)
    }

    /// Ends a hold in memory by a record for the log, if its block pays the charge; returns the operation if only a batch
    /// can do it. A charge above the hold takes what the block has free.
    pub fn end_from_block(&self, operation: Operation) -> Result<Arc<TailRecord>, Box<Operation>> {
        self.end_by(operation, KnownAccount::pay_from_block)
    }

    fn end_by(&self, operation: Operation, pay: Pay) -> Result<Arc<TailRecord>, Box<Operation>> {
        let (hold, credits) = match &operation.action {
            Action::Settle(settle) if settle.end.is_none() => (&settle.hold, settle.credits),
            Action::Release { hold, .. } => (hold, Credits::ZERO),
            _ => return Err(Box::new(operation)),
        };
        let mut shard = self.shard(&operation.account);
        let ended = shard
            .get_mut(&operation.account)
            .and_then(|known| known.end(hold, credits, &operation, pay));
        let Some(record) = ended else {
            return Err(Box::new(operation));
        };
        self.tail.fetch_add(1, Ordering::Relaxed);
        Ok(record)
    }

    /// Notes a checkpoint of a hold in memory; returns it if only a batch can store it.
    pub fn note(&self, operation: Operation) -> Result<(), Box<Operation>> {
        let shard = self.shard(&operation.account);
        let hold = match &operation.action {
            Action::Checkpoint(checkpoint) => shard
                .get(&operation.account)
                .and_then(|known| known.holds.get(&checkpoint.hold)),
            _ => None,
        };
        match hold {
            // Otherwise, a batch may be storing it.
            Some(hold) if hold.batch.load(Ordering::Relaxed) == 0 => {
                let mut last = hold.checkpoint();
                // Checkpoints may overtake each other; the highest one counts.
                if checkpointed(last.as_ref()) <= checkpointed(Some(&operation)) {
                    *last = Some(operation);
                }
                self.has_noted.store(true, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(Box::new(operation)),
        }
    }

    /// Returns the run's fence, and the holds in memory with checkpoints, if these have changed since the last call.
    pub fn take_noted(&self, run: &BootId) -> Option<(i64, Vec<LogCheckpoint>)> {
        let fence = self.fence();
        if !self.has_noted.swap(false, Ordering::AcqRel) {
            return None;
        }
        let mut noted = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let holds = shard.values().flat_map(|known| {
                // The end of a request counts once it is in the log.
                let ending = known.tail.iter().filter(|record| !record.is_appended());
                let ending = ending.map(|record| &record.hold);
                known.holds.values().chain(ending)
            });
            noted.extend(holds.filter(|hold| hold.is_of(run)).filter_map(|hold| {
                let Action::Persist(persist) = &hold.persist.action else {
                    return None;
                };
                let checkpoint = hold.checkpoint();
                LogCheckpoint::new(
                    &persist.open,
                    hold.persist.at,
                    hold.reserved,
                    checkpoint.as_ref()?,
                )
            }));
        }
        Some((fence, noted))
    }

    /// Makes the next [`Self::take_noted`] return all checkpoints: the log may lack the last ones.
    pub fn note_again(&self) {
        self.has_noted.store(true, Ordering::Release);
    }

    /// Takes a record back that the log has refused: its hold is in memory again, with the credits of the charge, and a batch
    /// ends it.
    pub fn take_back(&self, refused: &Arc<TailRecord>) {
        let id = refused.record.account();
        if let Some(known) = self.shard(id).get_mut(id) {
            let before = known.tail.len();
            known.tail.retain(|record| !Arc::ptr_eq(record, refused));
            if known.tail.len() < before {
                self.tail.fetch_sub(1, Ordering::Relaxed);
                let run = &refused.hold.block.boot_id;
                let hold = MemoryHold {
                    persist: refused.record.hold_operation(run),
                    block: refused.hold.block.clone(),
                    amount: refused.hold.amount,
                    reserved: refused.record.charged(),
                    // The log may have the record all the same.
                    batch: AtomicU64::new(refused.batch.load(Ordering::Relaxed).max(1)),
                    checkpoint: Mutex::new(refused.hold.checkpoint().clone()),
                };
                known
                    .holds
                    .insert(refused.record.hold().clone(), Arc::new(hold));
            }
        }
    }

    /// Begins a run on SQLite: from now on, the batches of this process are the run's.
    pub(crate) fn begin_run(&self, run: BootId) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
    }

    /// Returns the run of this process on SQLite; `None` in a command.
    pub(crate) fn run(&self) -> Option<BootId> {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        run.clone()
    }

    /// Returns the run's fence.
    pub fn fence(&self) -> i64 {
        self.fence.load(Ordering::Acquire)
    }

    /// Returns the number of records that are not folded.
    pub fn tail_len(&self) -> usize {
        self.tail.load(Ordering::Relaxed)
    }

    /// Returns the accounts with records that are not folded, if the first of them is at least this old.
    pub fn accounts_with_tails(&self, age: Duration) -> Vec<AccountId> {
        let mut found = Vec::new();
        if self.tail_len() == 0 {
            return found;
        }
        let now = Instant::now();
        let is_old = |known: &KnownAccount| {
            let first = known.tail.first();
            first.is_some_and(|record| now.saturating_duration_since(record.since) >= age)
        };
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let with_tails = shard.iter().filter(|(_, known)| is_old(known));
            found.extend(with_tails.map(|(id, _)| id.clone()));
        }
        found
    }

    /// Returns operations that fold the accounts of these operations which have longer tails than one batch folds.
    pub fn long_tails(&self, operations: &[Operation]) -> Vec<Operation> {
        let mut folds = BTreeMap::new();
        if self.tail_len() > FOLDED_AT_ONCE {
            for Operation { account, at, .. } in operations {
                let shard = self.shard(account);
                let is_long = |known: &KnownAccount| known.tail.len() > FOLDED_AT_ONCE;
                if shard.get(account).is_some_and(is_long) {
                    folds.insert(account.clone(), *at);
                }
            }
        }
        let folds = folds.into_iter().map(|(account, at)| Operation {
            account,
            at,
            action: Action::Fold,
        });
        folds.collect()
    }

    /// Folds the tail of an account, or all tails, so that a reader of the database finds what this node has answered.
    /// Without a ledger that folds, or after a time limit, it leaves them.
    pub(crate) async fn fold_for_reader(&self, id: Option<&AccountId>) {
        let Some(folding) = self.folding.get() else {
            return;
        };
        let accounts = match id {
            Some(id) if self.tail_len() > 0 => {
                let shard = self.shard(id);
                let has_tail = shard.get(id).is_some_and(|known| !known.tail.is_empty());
                has_tail.then(|| id.clone()).into_iter().collect()
            }
            Some(_) => Vec::new(),
            None => self.accounts_with_tails(Duration::ZERO),
        };
        let mut folds = Vec::with_capacity(accounts.len());
        for account in accounts {
            let (reply, folded) = oneshot::channel();
            if folding.send((account, reply)).is_ok() {
                folds.push(folded);
            }
        }
        let folds = futures_util::future::join_all(folds);
        let _ = tokio::time::timeout(READER_WAITS, folds).await;
    }

    /// Makes a ledger fold tails for readers. The first one does it.
    pub(crate) fn fold_by(&self, ledger: mpsc::UnboundedSender<FoldRequest>) {
        let _ = self.folding.set(ledger);
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
        let left = known.blocks.get(&key)?.left.total();
        // The block had at most a quarter of them.
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
                    known.account = None;
                }
            }
        }
        // From here on, nothing joins the tails of accounts without a known state.
        self.fold_tails(operations, number, &mut batch);
        for operation in operations {
            if let Some(known) = self.shard(&operation.account).get(&operation.account) {
                if known.account.is_none() {
                    for hold in known.holds.values() {
                        batch.persist(hold, number);
                    }
                } else {
                    batch.persist_named(operation, known, number);
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
            if !is_exact {
                for fill in known.fills(operation, run) {
                    let key = (id, fill.block.clone());
                    fills.entry(key).or_insert((operation.at, fill));
                }
            }
            if is_exact || known.needs_all(operation, run) {
                returned.entry(id).or_insert(operation.at);
            }
        }
        // From here on, nothing joins the tails of these accounts.
        for id in returned.keys() {
            if let Some(known) = self.shard(id).get_mut(*id) {
                known.blocks.retain(|key, _| key.boot_id != *run);
            }
        }
        self.fold_tails(operations, number, &mut batch);
        for (id, at) in &returned {
            if let Some(known) = self.shard(id).get(*id) {
                let of_run = known.holds.values().filter(|hold| hold.is_of(run));
                for hold in of_run {
                    batch.persist(hold, number);
                }
            }
            let end = Action::EndBlocks {
                boot_id: run.clone(),
                unless_leased: false,
            };
            batch.own(id, *at, end);
        }
        for operation in operations {
            if let Some(known) = self.shard(&operation.account).get(&operation.account) {
                batch.persist_named(operation, known, number);
            }
            batch.steps.push(Step::Asked(operation));
        }
        for ((id, _), (at, mut fill)) in fills {
            if returned.contains_key(id) {
                fill.left = Credits::ZERO;
            }
            batch.own(id, at, Action::FillBlock(Box::new(fill)));
        }
        batch
    }

    /// Folds the tails of the operations' accounts, before anything else: all of a tail, unless only its fold is asked for.
    fn fold_tails(&self, operations: &[Operation], number: u64, batch: &mut PreparedBatch<'_>) {
        if self.tail_len() == 0 {
            return;
        }
        let mut accounts = BTreeMap::new();
        for operation in operations {
            let is_needed = accounts.entry(&operation.account).or_insert(false);
            *is_needed |= operation.action != Action::Fold;
        }
        for (id, is_needed) in accounts {
            if let Some(known) = self.shard(id).get(id) {
                for record in &known.tail {
                    if is_needed || batch.steps.len() < FOLDED_AT_ONCE {
                        batch.fold(record, number);
                    }
                }
            }
        }
    }

    fn new_batch<'o>(&self, operations: &[Operation]) -> PreparedBatch<'o> {
        PreparedBatch {
            steps: Vec::with_capacity(2 * operations.len()),
            new: Vec::new(),
            forgotten: self.forgotten.load(Ordering::Acquire),
            fence: self.fence(),
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
            for record in &known.tail {
                account.reserve_again(&record.hold.block.parts, record.record.charged());
            }
            // Another process may have changed it meanwhile.
            let is_current = self.forgotten.load(Ordering::Acquire) == batch.forgotten;
            known.account = is_current.then_some(account);
            known.fence = batch.fence;
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
                        let used = known.used_of(key);
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
                        let fence = batch.fence;
                        known
                            .blocks
                            .insert(key.clone(), MemoryBlock { left, fence });
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
            match step {
                Step::Persist(hold) => {
                    if let Some(known) = self.shard(account).get_mut(account) {
                        for hold in hold.persist.holds() {
                            known.holds.remove(hold);
                        }
                    }
                }
                Step::Fold(record) => record.is_folded.store(true, Ordering::Release),
                Step::Own(_) | Step::Asked(_) => {}
            }
        }
        for id in accounts {
            let mut shard = self.shard(id);
            if let Some(known) = shard.get_mut(id) {
                let before = known.tail.len();
                known.tail.retain(|record| !record.is_folded());
                self.tail
                    .fetch_sub(before - known.tail.len(), Ordering::Relaxed);
            }
            let Some(loaded) = after(id) else {
                continue;
            };
            if shard.len() >= KNOWN && !shard.contains_key(id) {
                shard.retain(|_, known| !known.holds.is_empty() || !known.tail.is_empty());
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

    /// Forgets the accounts and the run's blocks, because others may have changed them, and may have applied what is in memory:
    /// other nodes after the end of its lease, or a command on SQLite. The next batch of each account returns what is left of
    /// its blocks. From now on, the run has this fence.
    pub fn forget(&self, run: &BootId, fence: i64) {
        self.fence.store(fence, Ordering::Release);
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for known in shard.values_mut() {
                known.blocks.retain(|key, _| key.boot_id != *run);
                known.account = None;
                known.is_outdated = true;
                // None is new.
                let holds = known.holds.values().map(|hold| &hold.batch);
                let tail = known.tail.iter().map(|record| &record.batch);
                for batch in holds.chain(tail) {
                    batch.fetch_max(1, Ordering::Relaxed);
                }
            }
        }
        self.note_again();
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

    /// Returns the run's fence before the batch.
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// Returns the holds without rows and entries in the database.
    pub fn new_holds(&self) -> impl Iterator<Item = &HoldId> {
        self.new.iter()
    }

    /// Looks for records that have not had the effect which their callers were told.
    pub fn check_folds(&self, outcomes: &[OperationOutcome]) {
        for (step, outcome) in self.steps.iter().zip(outcomes) {
            if let Step::Fold(record) = step {
                record.record.check(outcome);
            }
        }
    }

    /// Returns the outcomes of the operations for which the batch was prepared.
    pub fn asked(&self, outcomes: Vec<OperationOutcome>) -> Vec<OperationOutcome> {
        let both = self.steps.iter().zip(outcomes);
        let asked = both.filter(|(step, _)| matches!(step, Step::Asked(_)));
        asked.map(|(_, outcome)| outcome).collect()
    }

    fn own(&mut self, account: &AccountId, at: Millis, action: Action) {
        self.steps.push(Step::Own(Box::new(Operation {
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
            if let Some(checkpoint) = &*hold.checkpoint() {
                self.steps.push(Step::Own(Box::new(checkpoint.clone())));
            }
        }
        if last == 0 {
            self.new.extend(hold.persist.holds().cloned());
        }
    }

    /// Stores the holds in memory that an operation names.
    fn persist_named(&mut self, operation: &Operation, known: &KnownAccount, number: u64) {
        for hold in operation.holds() {
            if let Some(hold) = known.holds.get(hold) {
                self.persist(hold, number);
            }
        }
    }

    fn fold(&mut self, record: &Arc<TailRecord>, number: u64) {
        if record.batch.swap(number, Ordering::Relaxed) == 0 {
            self.new.push(record.record.hold().clone());
        }
        self.steps.push(Step::Fold(record.clone()));
    }
}

impl TailRecord {
    pub fn record(&self) -> &LogRecord {
        &self.record
    }

    /// Returns the run's fence at the request's end.
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// Returns whether the request's checkpoint, if it has one, is of no use from now on: the record is in the log.
    pub(crate) fn note_appended(&self) -> bool {
        self.is_appended.store(true, Ordering::Release);
        self.hold.checkpoint().is_some()
    }

    fn is_appended(&self) -> bool {
        self.is_appended.load(Ordering::Acquire)
    }

    pub fn is_folded(&self) -> bool {
        self.is_folded.load(Ordering::Acquire)
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
            action: Action::Persist(Box::new(PersistHold {
                open,
                boot_id: boot_id.clone(),
                reserved,
                then: None,
            })),
        };
        let opened = MemoryHold {
            persist,
            block,
            amount,
            reserved,
            batch: AtomicU64::new(0),
            checkpoint: Mutex::default(),
        };
        self.holds.insert(hold, Arc::new(opened));
    }

    /// Moves a hold to the tail, if these credits are paid.
    fn end(
        &mut self,
        id: &HoldId,
        credits: Credits,
        asked: &Operation,
        pay: Pay,
    ) -> Option<Arc<TailRecord>> {
        let hold = self.holds.get(id)?.clone();
        // A batch may be storing it.
        let is_stored = hold.batch.load(Ordering::Relaxed) != 0;
        if is_stored || !credits.is_in_range() {
            return None;
        }
        let Action::Persist(persist) = &hold.persist.action else {
            return None;
        };
        let (charged, fence) = pay(self, &hold, credits)?;
        let record = LogRecord::new(&persist.open, hold.persist.at, asked, charged)?;
        let record = Arc::new(TailRecord {
            fold: record.operation(&persist.boot_id),
            record,
            hold: hold.clone(),
            fence,
            since: Instant::now(),
            batch: AtomicU64::new(0),
            is_appended: AtomicBool::new(false),
            is_folded: AtomicBool::new(false),
        });
        self.holds.remove(id);
        self.tail.push(record.clone());
        Some(record)
    }

    fn pay_from_account(&mut self, hold: &MemoryHold, credits: Credits) -> Option<(Pools, i64)> {
        let account = self.account.as_mut()?;
        let BlockKey {
            parts, top_up_only, ..
        } = &hold.block;
        let charged = account.keep_charge(parts, *top_up_only, hold.reserved, credits)?;
        Some((charged, self.fence))
    }

    fn pay_from_block(&mut self, hold: &MemoryHold, credits: Credits) -> Option<(Pools, i64)> {
        let block = self.blocks.get_mut(&hold.block)?;
        let (own, beyond) = hold.reserved.take(credits);
        let left = block.left.plus(hold.reserved.minus(own));
        let more = left.take_all(beyond).ok()?;
        block.left = left.minus(more);
        Some((own.plus(more), block.fence))
    }

    /// Returns the credits of a block that holds in memory have, or records in the tail.
    fn used_of(&self, block: &BlockKey) -> Pools {
        let holds = self.holds.values().filter(|hold| hold.block == *block);
        let held = holds.map(|hold| hold.reserved);
        let tail = self
            .tail
            .iter()
            .filter(|record| record.hold.block == *block);
        let charged = tail.map(|record| record.record.charged());
        held.chain(charged).fold(Pools::default(), Pools::plus)
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
                        && self
                            .blocks
                            .values()
                            .all(|block| block.left.plan == Credits::ZERO);
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
            | Action::EndKey(_)
            | Action::Fold => false,
            Action::EndBlocks { boot_id, .. } => boot_id == run,
            _ => true,
        }
    }

    /// Returns the blocks that the requests of an operation use, if they open holds in memory.
    fn fills(&self, operation: &Operation, run: &BootId) -> Vec<FillBlock> {
        let used = match &operation.action {
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
                BTreeMap::from([(block, open.amount)])
            }
            Action::Settle(Settle { hold, .. }) | Action::Release { hold, .. } => {
                let hold = self.holds.get(hold);
                hold.map(|hold| (hold.block.clone(), hold.amount))
                    .into_iter()
                    .collect()
            }
            Action::Fold => {
                let tail = self.tail.iter();
                tail.map(|record| (record.hold.block.clone(), record.hold.amount))
                    .collect()
            }
            _ => BTreeMap::new(),
        };
        let of_run = used.into_iter().filter(|(block, _)| block.boot_id == *run);
        let fills = of_run.map(|(block, usual)| {
            let left = self.blocks.get(&block);
            FillBlock {
                left: left.map_or(Credits::ZERO, |block| block.left.total()),
                wanted: self.wanted_of(&block),
                block,
                usual,
            }
        });
        fills.collect()
    }

    /// Returns the credits that requests are expected to take from a block soon: those of the last seconds, and twice those of the
    /// holds in memory. An account that many nodes serve must not be in their blocks.
    fn wanted_of(&self, block: &BlockKey) -> Credits {
        let holds = self.holds.values().filter(|hold| hold.block == *block);
        let held: i64 = holds.map(|hold| hold.reserved.total().micro()).sum();
        let records = self.tail.iter();
        let records = records.filter(|record| record.hold.block == *block);
        let charged = records.map(|record| record.record.charged().total().micro());
        let charged: i64 = charged.sum();
        let age = self.tail.first().map(|record| record.since.elapsed());
        let age_ms = age.unwrap_or_default().as_millis().max(1_000) as i64;
        let soon = charged.saturating_mul(FILLED_FOR.as_millis() as i64) / age_ms;
        Credits::from_micro(held.saturating_mul(2).saturating_add(soon))
    }
}

/// Returns the credits of a checkpoint.
fn checkpointed(checkpoint: Option<&Operation>) -> Credits {
    match checkpoint.map(|operation| &operation.action) {
        Some(Action::Checkpoint(checkpoint)) => checkpoint.credits,
        _ => Credits::ZERO,
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
        Action::Release { .. } | Action::EndKey(_) | Action::Fold => false,
        // It draws on its parent, except in the budgets of its own parts.
        Action::Open { open, .. } => open.parent.is_none() || has_budgets(&open.parts),
        _ => true,
    }
}

impl Step<'_> {
    fn operation(&self) -> &Operation {
        match self {
            Self::Persist(hold) => &hold.persist,
            Self::Fold(record) => &record.fold,
            Self::Own(operation) => operation,
            Self::Asked(operation) => operation,
        }
    }
}

impl MemoryHold {
    fn checkpoint(&self) -> MutexGuard<'_, Option<Operation>> {
        self.checkpoint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve_in(&self, account: &mut Account) {
        account.reserve_again(&self.block.parts, self.reserved);
    }

    fn is_of(&self, run: &BootId) -> bool {
        self.block.boot_id == *run
    }
}
