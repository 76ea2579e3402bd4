//! A simulation of the ledger's committer and its failures, from a seed.
//!
//! Some nodes, each with a committer that a loop steps by hand, and with holds in memory from its blocks, share a store
//! that holds accounts in memory and applies the ledger's own operations to them, as the ledger does on PostgreSQL.
//! Requests end by records that their node appends to its log, and folds later. Commits and appends fail before any change, or
//! lose their response before or after it; they land after their node is gone, or release their locks by then; nodes crash, and
//! others fold their logs; leases expire while their node lives; blocks are called back, or their node
//! stays silent; requests are repeated, overtake each other, and stop waiting. At rest, the store must be sound, and every
//! response must have been true. A request that costs no more than its hold must have been charged in full, unless its
//! node lost its lease.
//!
//! On SQLite, one node holds the account's credits in memory instead. Commands of other processes fold its log, take credits
//! and raise its fence; a new run folds what an earlier one has left before it serves.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use weir_ledger::account::{EntryKind, Hold, LedgerEntry, Pools, apply};
use weir_ledger::committer::{Committer, CommitterAction, CommitterInput, OutcomeReceiver};
use weir_ledger::log::{Append, LogAction, LogCheckpoint, LogInput, LogQueue, LogRecord};
use weir_ledger::openings::{EXACT_FOR, Openings, PreparedBatch};
use weir_ledger::operation::{BlockKey, CommitResult};
use weir_ledger::shortage::{Decision, decide, spares_blocks};
use weir_ledger::{
    Account, AccountId, Action, BootId, Checkpoint, Credits, HoldId, HoldState, LedgerRefusal,
    LedgerStoreError, OpenHold, Operation, OperationEffect, OperationId, OperationOutcome, Pool,
    Refund, RequestSource, RequestUsage, Settle, TopUp, Unit, UsageCounts,
};
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;

use super::random::Random;

const START: Millis = Millis(1_750_000_000_000);
const ACCOUNTS: usize = 3;
const NODES: usize = 3;
const STEPS: usize = 400;

/// A planted defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// No defect.
    Nothing,
    /// A repeated settlement is posted again.
    DoubleSettle,
    /// A node whose lease has ended goes on opening holds from its blocks.
    StaleBlock,
    /// The log of a run takes records after others have ended the run.
    UnfencedAppend,
    /// The blocks of an ended run are returned before its log is folded.
    BlocksBeforeLog,
    /// An ended run's checkpoints are deleted, and its holds in memory are not charged.
    LostCheckpoints,
    /// A hold of an ended run is stored in an operation of its own, before its checkpoint or its end.
    SplitFolds,
    /// On SQLite, a new run serves before it has folded the log of the earlier one.
    ServesBeforeLog,
    /// On SQLite, a command takes credits before it has folded the log.
    CommandBeforeLog,
    /// On SQLite, a command does not raise the fence of the run.
    UnfencedCommand,
}

impl Plant {
    /// The defects that each database can have.
    pub const ALL: [(SqlDialect, Self); 11] = [
        (SqlDialect::Postgres, Self::DoubleSettle),
        (SqlDialect::Postgres, Self::StaleBlock),
        (SqlDialect::Postgres, Self::UnfencedAppend),
        (SqlDialect::Postgres, Self::BlocksBeforeLog),
        (SqlDialect::Postgres, Self::LostCheckpoints),
        (SqlDialect::Postgres, Self::SplitFolds),
        (SqlDialect::Sqlite, Self::DoubleSettle),
        (SqlDialect::Sqlite, Self::UnfencedAppend),
        (SqlDialect::Sqlite, Self::ServesBeforeLog),
        (SqlDialect::Sqlite, Self::CommandBeforeLog),
        (SqlDialect::Sqlite, Self::UnfencedCommand),
    ];
}

/// The event counts of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Happened {
    /// Successful commits.
    pub commits: usize,
    /// Commits that failed, or whose response was lost.
    pub failures: usize,
    /// Nodes that crashed.
    pub crashes: usize,
    /// Requests.
    pub requests: usize,
    /// Holds that were settled for a node that was gone, or seemed to be.
    pub expired: usize,
    /// Holds that were opened in memory, from a block.
    pub from_blocks: usize,
    /// Accounts whose blocks at other nodes were called back.
    pub called_back: usize,
    /// Records in logs.
    pub logged: usize,
    /// Records that a log refused.
    pub refused_records: usize,
    /// Records that other nodes folded, or later runs and commands on SQLite.
    pub swept_records: usize,
    /// Checkpoints in rows of their own, and those at which other nodes ended holds.
    pub noted: usize,
    pub ended_at_notes: usize,
    /// Commands of other processes on SQLite.
    pub commands: usize,
}

/// The shared state of the nodes.
struct Shared {
    accounts: BTreeMap<AccountId, Account>,
    history: BTreeMap<AccountId, Vec<LedgerEntry>>,
    /// Blocks that their nodes have to return.
    called: BTreeSet<(AccountId, BlockKey)>,
    /// The runs with valid leases.
    leased: BTreeSet<BootId>,
    /// The runs that others have ended, until their next renewal.
    fenced: BTreeSet<BootId>,
    fences: BTreeMap<BootId, i64>,
    log: BTreeMap<(BootId, i64), Vec<LogRecord>>,
    /// The rows of checkpoints.
    noted: BTreeMap<BootId, Vec<LogCheckpoint>>,
    plant: Plant,
}

struct Node {
    boot: BootId,
    committer: Committer<Waiter>,
    openings: Openings,
    log: LogQueue<Waiter>,
    appends: bool,
    /// Whether no other node has taken it for dead since it last renewed its lease.
    is_leased: bool,
    busy: bool,
}

/// A commit under way, and the run that sent it.
struct Adrift {
    run: BootId,
    batch: Vec<Operation>,
}

/// An append under way, and the run that sent it.
struct AdriftAppend {
    run: BootId,
    append: Append,
}

/// The waiter for a response.
struct Waiter {
    asked: Operation,
    gone: Rc<Cell<bool>>,
    answers: Rc<RefCell<Vec<(Operation, OperationOutcome)>>>,
}

impl OutcomeReceiver for Waiter {
    fn is_gone(&self) -> bool {
        self.gone.get()
    }

    fn answer(self, answer: CommitResult) -> bool {
        if self.gone.get() {
            return false;
        }
        let outcome = answer.expect("this store refuses batches, but no operation");
        self.answers.borrow_mut().push((self.asked, outcome));
        true
    }
}

/// A request and its progress.
struct Request {
    account: AccountId,
    node: usize,
    boot: BootId,
    hold: HoldId,
    gone: Rc<Cell<bool>>,
    amount: i64,
    /// Its end: the price, or `None` if nothing was delivered.
    price: Option<i64>,
    /// Whether its node lost its lease or its life after it began: then others may have spent its credits.
    lost_lease: bool,
    opened: bool,
    ended: bool,
}

struct Simulation {
    dialect: SqlDialect,
    random: Random,
    shared: Shared,
    nodes: Vec<Node>,
    requests: Vec<Request>,
    answers: Rc<RefCell<Vec<(Operation, OperationOutcome)>>>,
    told: Vec<(Operation, OperationOutcome)>,
    asked: Vec<Operation>,
    /// Commits that are still under way after their node gave them up.
    adrift: Vec<Adrift>,
    adrift_appends: Vec<AdriftAppend>,
    /// Checkpoints that were in a row of the store.
    durable: BTreeMap<HoldId, LogCheckpoint>,
    /// The rows of checkpoints of ended runs, and the holds that a node ends.
    ending: BTreeMap<BootId, (Vec<LogCheckpoint>, BTreeSet<HoldId>)>,
    /// The rows of ended runs' logs that nodes fold, and the holds that they wait for.
    sweeping: BTreeMap<(BootId, i64), BTreeSet<HoldId>>,
    dead_boots: Vec<BootId>,
    boots: usize,
    now: Millis,
    is_at_rest: bool,
    /// A hold that a batch took for new although it was not.
    not_new: Option<HoldId>,
    happened: Happened,
}

/// Runs one seed; an error is the first fault.
pub fn simulate(dialect: SqlDialect, seed: u64, plant: Plant) -> Result<Happened, String> {
    let mut simulation = Simulation::new(dialect, seed, plant);
    simulation
        .run()
        .map_err(|what| format!("seed {seed}: {what}"))?;
    Ok(simulation.happened)
}

impl Shared {
    /// Does a run's operations, unless its own blocks reserve the credits that they need.
    fn commit(&mut self, operations: &[&Operation], run: &BootId) -> Decision {
        let before = self.accounts.clone();
        let outcomes = operations
            .iter()
            .map(|operation| self.apply(operation))
            .collect();
        let decision = decide(&self.accounts, operations, outcomes, Some(run));
        let Decision::Done { called, .. } = &decision else {
            self.accounts = before;
            return decision;
        };
        self.keep_entries();
        for account in called {
            self.call_back(account, run);
        }
        decision
    }

    fn keep_entries(&mut self) {
        for (id, account) in &mut self.accounts {
            let entries = std::mem::take(&mut account.journal).entries;
            self.history.entry(id.clone()).or_default().extend(entries);
        }
    }

    /// Does operations on SQLite.
    fn commit_alone<'o>(
        &mut self,
        operations: impl IntoIterator<Item = &'o Operation>,
    ) -> Vec<OperationOutcome> {
        let operations = operations.into_iter();
        let outcomes = operations.map(|operation| self.apply(operation)).collect();
        self.keep_entries();
        outcomes
    }

    /// Does an operation of a command on SQLite; returns the number of records that it has folded.
    fn command(&mut self, operation: &Operation) -> usize {
        let mut log = Vec::new();
        if self.plant != Plant::CommandBeforeLog {
            for ((run, _), records) in std::mem::take(&mut self.log) {
                log.extend(records.iter().map(|record| record.operation(&run)));
            }
        }
        self.commit_alone(log.iter().chain([operation]));
        if self.plant != Plant::UnfencedCommand {
            self.fences.values_mut().for_each(|fence| *fence += 1);
        }
        log.len()
    }

    fn is_known(&self, hold: &HoldId) -> bool {
        let mut accounts = self.accounts.values();
        accounts.any(|account| account.holds.contains_key(hold) || account.ended.contains_key(hold))
    }

    fn apply(&mut self, operation: &Operation) -> OperationOutcome {
        let id = &operation.account;
        let account = self
            .accounts
            .get_mut(id)
            .ok_or(LedgerRefusal::UnknownAccount)?;
        account.is_called = self.called.iter().any(|(called, _)| called == id);
        if self.plant == Plant::DoubleSettle
            && let Action::Settle(settle) = &operation.action
            && let Some(ended) = account.ended.remove(&settle.hold)
        {
            let hold = Hold {
                open: ended.open,
                boot_id: BootId::of("boot").expect("a name"),
                opened_at: operation.at,
                period_start: account.period.start,
                period_number: account.period_number,
                expired_at: None,
                reserved: Pools::default(),
                checkpoint: Credits::ZERO,
                posted: Pools::default(),
                overrun: Credits::ZERO,
                usage: None,
            };
            account.holds.insert(settle.hold.clone(), hold);
        }
        let mut may_use = self.leased.clone();
        if self.plant != Plant::BlocksBeforeLog {
            may_use.extend(self.log.keys().map(|(run, _)| run.clone()));
            may_use.extend(self.noted.keys().cloned());
            let known = self.fences.keys();
            may_use.extend(known.filter(|run| !self.fenced.contains(run)).cloned());
        }
        let outcome = match spares_blocks(&operation.action, &may_use) {
            true => Ok(OperationEffect::BlocksChanged),
            false => apply(operation, account),
        };
        let blocks = &account.blocks;
        self.called
            .retain(|(called, key)| called != id || blocks.contains_key(key));
        outcome
    }

    /// Appends a row to a run's log, as a statement of the store does it; returns whether the row is there.
    fn append(&mut self, run: &BootId, append: &Append) -> bool {
        self.log
            .retain(|(of, ordinal), _| of != run || *ordinal > append.folded);
        let is_of_fence = self.fences[run] == append.fence || self.plant == Plant::UnfencedAppend;
        let row = (run.clone(), append.ordinal);
        if is_of_fence && !self.log.contains_key(&row) {
            let records = serde_json::from_str(&append.records).expect("records");
            self.log.insert(row, records);
            return true;
        }
        is_of_fence && self.log.contains_key(&row)
    }

    /// Replaces a run's row of checkpoints, as a statement of the store does it.
    fn note(&mut self, run: &BootId, fence: i64, noted: Vec<LogCheckpoint>) {
        if self.fences[run] == fence && !noted.is_empty() {
            self.noted.insert(run.clone(), noted);
        } else if noted.is_empty() {
            self.noted.remove(run);
        }
    }

    fn fence(&mut self, run: &BootId) {
        if !self.leased.contains(run) && self.fenced.insert(run.clone()) {
            *self.fences.get_mut(run).expect("a run") += 1;
        }
    }

    fn call_back(&mut self, id: &AccountId, run: &BootId) {
        let blocks = self.accounts[id].blocks.values();
        let of_others = blocks
            .filter(|block| block.key.boot_id != *run && block.reserved.total() > Credits::ZERO);
        self.called
            .extend(of_others.map(|block| (id.clone(), block.key.clone())));
    }
}

impl Simulation {
    fn new(dialect: SqlDialect, seed: u64, plant: Plant) -> Self {
        let accounts: BTreeMap<_, _> = (0..ACCOUNTS)
            .map(|index| AccountId(format!("usr_{index}")))
            .map(|id| (id.clone(), Account::new(id, START)))
            .collect();
        let mut simulation = Self {
            dialect,
            random: Random::new(seed),
            shared: Shared {
                accounts,
                history: BTreeMap::new(),
                called: BTreeSet::new(),
                leased: BTreeSet::new(),
                fenced: BTreeSet::new(),
                fences: BTreeMap::new(),
                log: BTreeMap::new(),
                noted: BTreeMap::new(),
                plant,
            },
            nodes: Vec::new(),
            requests: Vec::new(),
            answers: Rc::default(),
            told: Vec::new(),
            asked: Vec::new(),
            adrift: Vec::new(),
            adrift_appends: Vec::new(),
            durable: BTreeMap::new(),
            ending: BTreeMap::new(),
            sweeping: BTreeMap::new(),
            dead_boots: Vec::new(),
            boots: 0,
            now: START,
            is_at_rest: false,
            not_new: None,
            happened: Happened::default(),
        };
        let nodes = match dialect {
            SqlDialect::Sqlite => 1,
            SqlDialect::Postgres => NODES,
        };
        for _ in 0..nodes {
            let node = simulation.new_node();
            simulation.nodes.push(node);
        }
        simulation
    }

    fn new_node(&mut self) -> Node {
        self.boots += 1;
        let boot = BootId::of(&format!("boot_{}", self.boots)).expect("a name");
        self.shared.leased.insert(boot.clone());
        self.shared.fences.insert(boot.clone(), 0);
        Node {
            boot,
            committer: Committer::default(),
            openings: Openings::default(),
            log: LogQueue::default(),
            appends: false,
            is_leased: true,
            busy: false,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.something_happens();
            self.check_memory()?;
        }
        self.come_to_rest();
        self.check()
    }

    fn something_happens(&mut self) {
        self.now.0 += self.random.up_to(1_000);
        match self.random.below(100) {
            0..22 => self.new_request(),
            22..40 => self.request_goes_on(),
            40..62 => {
                let node = self.random.below(self.nodes.len());
                self.node_commits(node, false);
            }
            62..76 => {
                let node = self.random.below(self.nodes.len());
                self.node_appends(node, false);
            }
            76..80 => {
                let node = self.random.below(self.nodes.len());
                self.node_writes_checkpoints(node);
                self.node_folds(node);
            }
            80..84 => self.repeat(),
            84..87 => self.somebody_stops_waiting(),
            87..89 => self.crash(),
            89..93 => self.sweep(),
            93..95 if self.is_sqlite() => self.command(),
            93..95 => self.lease_lapses_too_early(),
            95..97 => self.top_up(),
            97 if self.random.percent(30) => {
                self.now = self.now.plus_days(self.random.up_to(20));
            }
            97 if self.is_sqlite() => self.look_for_commands(),
            97 => {
                let node = self.random.below(self.nodes.len());
                self.node_returns_blocks(node);
            }
            _ => self.drifting_commit_lands(),
        }
        self.hear();
    }

    fn new_request(&mut self) {
        self.happened.requests += 1;
        let node = self.random.below(self.nodes.len());
        let account = AccountId(format!("usr_{}", self.random.below(ACCOUNTS)));
        let most = match self.random.percent(60) {
            true => 3_000_000,
            false => 200_000_000,
        };
        // Some take all that no block has, so that a charge without its block is missed.
        let takes_all = self.random.percent(10);
        let amount = match takes_all {
            true => self.shared.accounts[&account].available().total().micro(),
            false => self.random.up_to(most),
        };
        let price = match self.random.below(10) {
            _ if takes_all => Some(amount),
            0 => None,
            1 => Some(2 * amount),
            _ => Some(self.random.up_to(amount)),
        };
        let hold = HoldId(format!("hold_{}", self.happened.requests));
        let request = Request {
            account: account.clone(),
            node,
            boot: self.nodes[node].boot.clone(),
            hold: hold.clone(),
            gone: Rc::default(),
            amount,
            price,
            lost_lease: false,
            opened: false,
            ended: false,
        };
        let open = OpenHold {
            hold,
            amount: Credits::from_micro(amount),
            request_id: format!("req_{}", self.happened.requests),
            parent: None,
            source: RequestSource::Web,
            source_id: None,
            parts: Vec::new(),
            top_up_only: false,
            model: "m".to_owned(),
        };
        let gone = request.gone.clone();
        let boot_id = request.boot.clone();
        self.requests.push(request);
        let open = match self.random.percent(80) {
            true => self.open_in_memory(node, &account, open),
            false => Some(open),
        };
        let Some(open) = open else {
            return;
        };
        let open = Action::Open {
            open,
            boot_id,
            claim: None,
        };
        self.ask(node, account, open, Some(gone));
    }

    /// Opens the latest request's hold from its node's block; returns the unopened hold if that is impossible.
    fn open_in_memory(
        &mut self,
        node: usize,
        account: &AccountId,
        open: OpenHold,
    ) -> Option<OpenHold> {
        // A node that was suspended between the renewal of its lease and the opening sees this only afterwards.
        let was_suspended = !self.nodes[node].is_leased && self.random.percent(20);
        if !was_suspended {
            self.renew_lease(node);
        }
        let Node { openings, boot, .. } = &self.nodes[node];
        let unopened = match self.dialect {
            SqlDialect::Sqlite => openings.open(account, self.now, open, boot),
            SqlDialect::Postgres => openings.open_from_block(account, self.now, open, boot),
        };
        if unopened.is_none() {
            self.happened.from_blocks += 1;
            // The process that serves has not seen a command yet.
            let is_stale = self.is_sqlite() && openings.fence() != self.shared.fences[boot];
            let request = self.requests.last_mut().expect("it has begun");
            request.opened = true;
            request.lost_lease = is_stale;
            if was_suspended {
                request.ended = true;
                request.lost_lease = true;
                let hold = request.hold.clone();
                let release = Action::Release { hold, cost: None };
                self.ask(node, account.clone(), release, None);
            }
        }
        unopened
    }

    /// A node renews its lease, as it does before each opening.
    fn renew_lease(&mut self, node: usize) {
        let Node {
            openings,
            boot,
            is_leased,
            ..
        } = &mut self.nodes[node];
        if !*is_leased {
            openings.forget(boot, self.shared.fences[boot]);
            self.shared.fenced.remove(boot);
            self.shared.leased.insert(boot.clone());
            *is_leased = true;
        }
    }

    /// The process that serves on SQLite renews its lease, and sees whether there was a command.
    fn look_for_commands(&mut self) {
        let Node { openings, boot, .. } = &self.nodes[0];
        let fence = self.shared.fences[boot];
        if openings.fence() != fence {
            openings.forget(boot, fence);
        }
    }

    /// A node returns its blocks that were called back.
    fn node_returns_blocks(&mut self, node: usize) {
        let boot_id = self.nodes[node].boot.clone();
        let called: BTreeSet<_> = self
            .shared
            .called
            .iter()
            .filter(|(_, key)| key.boot_id == boot_id)
            .map(|(account, _)| account.clone())
            .collect();
        for account in called {
            self.be_exact(node, &account);
            let end = Action::EndBlocks {
                boot_id: boot_id.clone(),
                unless_leased: false,
            };
            self.ask(node, account, end, None);
        }
    }

    fn be_exact(&self, node: usize, account: &AccountId) {
        let until = Millis(self.now.0 + EXACT_FOR.as_millis() as i64);
        self.nodes[node].openings.be_exact(account, until);
    }

    /// Advances a request with an open hold: a checkpoint, or its end.
    fn request_goes_on(&mut self) {
        let going_on: Vec<_> = (0..self.requests.len())
            .filter(|index| {
                let request = &self.requests[*index];
                request.opened && !request.ended
            })
            .collect();
        let Some(&index) = self.random.choose(&going_on) else {
            return;
        };
        let checkpoint = self.random.percent(40);
        self.request_steps(index, checkpoint);
    }

    fn request_steps(&mut self, index: usize, checkpoint: bool) {
        let request = &mut self.requests[index];
        let (hold, node, account) = (request.hold.clone(), request.node, request.account.clone());
        let usage = RequestUsage {
            provider: "p".to_owned(),
            unit: Some(Unit::Tokens),
            counts: UsageCounts {
                tokens_output: 1,
                ..UsageCounts::default()
            },
            ..RequestUsage::default()
        };
        let action = match request.price {
            Some(price) if checkpoint => Action::Checkpoint(Checkpoint {
                hold,
                credits: Credits::from_micro(self.random.up_to(price)),
                usage,
            }),
            Some(price) => {
                request.ended = true;
                let credits = Credits::from_micro(price);
                Action::Settle(Settle {
                    end: None,
                    hold,
                    credits,
                    usage,
                })
            }
            None => {
                request.ended = true;
                let cost = self.random.percent(30).then(|| Box::new(usage));
                Action::Release { hold, cost }
            }
        };
        let is_end = !matches!(action, Action::Checkpoint(_));
        let is_stored = !is_end && self.is_sqlite();
        if is_stored || !self.random.percent(85) {
            self.ask(node, account, action, Some(Rc::default()));
        } else if is_end {
            self.end_in_memory(node, account, action);
        } else if let Err(operation) = self.nodes[node].openings.note(Operation {
            account: account.clone(),
            at: self.now,
            action,
        }) {
            self.ask(node, account, operation.action, Some(Rc::default()));
        }
    }

    /// Ends a hold by a record for its node's log, if its block pays it.
    fn end_in_memory(&mut self, index: usize, account: AccountId, action: Action) {
        let operation = Operation {
            account,
            at: self.now,
            action,
        };
        let node = &mut self.nodes[index];
        let ended = match self.dialect {
            SqlDialect::Sqlite => node.openings.end(operation.clone()),
            SqlDialect::Postgres => node.openings.end_from_block(operation.clone()),
        };
        match ended {
            Ok(record) => {
                self.asked.push(operation.clone());
                let waiter = Waiter {
                    asked: operation,
                    gone: Rc::default(),
                    answers: self.answers.clone(),
                };
                let next = node.log.step([LogInput::Submit(record, Some(waiter))]);
                node.appends = next != LogAction::Idle;
            }
            Err(operation) => {
                let Operation {
                    account, action, ..
                } = *operation;
                self.ask(index, account, action, Some(Rc::default()));
            }
        }
    }

    /// Ends an append to a node's log, with success or one of the failures.
    fn node_appends(&mut self, index: usize, only_well: bool) {
        let node = &mut self.nodes[index];
        if !node.appends {
            return;
        }
        let run = node.boot.clone();
        let append = node.log.append();
        let records = node.log.len();
        let lost = || Err(LedgerStoreError::Unknown("simulated".to_owned()));
        let result = match if only_well { 0 } else { self.random.below(100) } {
            0..75 => Ok(self.shared.append(&run, &append)),
            75..85 => {
                self.shared.append(&run, &append);
                lost()
            }
            85..92 => lost(),
            _ if self.is_sqlite() => lost(),
            _ => {
                self.adrift_appends.push(AdriftAppend { run, append });
                lost()
            }
        };
        match &result {
            Ok(true) => self.happened.logged += records,
            Ok(false) => self.happened.refused_records += records,
            Err(_) => self.happened.failures += 1,
        }
        let node = &mut self.nodes[index];
        node.appends = node.log.step([LogInput::Appended(result)]) != LogAction::Idle;
        if node.log.take_outdated() {
            node.openings.note_again();
        }
        for (record, waiter) in node.log.take_refused() {
            node.openings.take_back(&record);
            let operation = record.record().end();
            let next = node
                .committer
                .step([CommitterInput::Submit(operation, waiter)]);
            node.busy = next != CommitterAction::Idle;
        }
    }

    /// A node replaces its row of checkpoints, with success or a failure.
    fn node_writes_checkpoints(&mut self, index: usize) {
        let Node { openings, boot, .. } = &self.nodes[index];
        let Some((fence, noted)) = openings.take_noted(boot) else {
            return;
        };
        self.happened.noted += noted.len();
        let (is_lost, lands) = (self.random.percent(20), self.random.percent(50));
        if is_lost {
            openings.note_again();
        }
        if !is_lost || lands {
            let boot = boot.clone();
            for noted in &noted {
                if self.shared.fences[&boot] == fence {
                    self.durable.insert(noted.hold().clone(), noted.clone());
                }
            }
            self.shared.note(&boot, fence, noted);
        }
    }

    /// A node folds its log.
    fn node_folds(&mut self, node: usize) {
        for account in self.nodes[node]
            .openings
            .accounts_with_tails(Duration::ZERO)
        {
            self.ask(node, account, Action::Fold, None);
        }
    }

    fn ask(
        &mut self,
        node: usize,
        account: AccountId,
        action: Action,
        gone: Option<Rc<Cell<bool>>>,
    ) {
        let operation = Operation {
            account,
            at: self.now,
            action,
        };
        self.asked.push(operation.clone());
        self.submit(node, operation, gone);
    }

    fn submit(&mut self, node: usize, operation: Operation, gone: Option<Rc<Cell<bool>>>) {
        let waiter = gone.map(|gone| Waiter {
            asked: operation.clone(),
            gone,
            answers: self.answers.clone(),
        });
        let node = &mut self.nodes[node];
        let next = node
            .committer
            .step([CommitterInput::Submit(operation, waiter)]);
        node.busy = next != CommitterAction::Idle;
    }

    /// Ends a node's batch in the store, with success or one of the failures.
    fn node_commits(&mut self, node: usize, only_well: bool) {
        if !self.nodes[node].busy {
            return;
        }
        let batch = self.nodes[node].committer.batch().to_vec();
        let waits = self.is_locked(&batch) && !only_well && self.random.percent(50);
        let fate = if waits {
            // Longer than the time limit.
            70
        } else {
            self.locks_are_freed(&batch);
            if only_well { 0 } else { self.random.below(100) }
        };
        let failed = |error: fn(String) -> LedgerStoreError| Err(error("simulated".to_owned()));
        let result = match fate {
            0..70 => Ok(self.commit(node, &batch)),
            70..78 => {
                self.prepare(node, &batch);
                failed(LedgerStoreError::Unavailable)
            }
            78..86 => {
                let prepared = self.prepare(node, &batch);
                self.land(&prepared);
                failed(LedgerStoreError::Unknown)
            }
            86..90 => {
                self.prepare(node, &batch);
                failed(LedgerStoreError::Unknown)
            }
            90..95 => {
                let prepared = self.prepare(node, &batch);
                if !self.is_sqlite() {
                    self.adrift.push(prepared);
                }
                failed(LedgerStoreError::Unknown)
            }
            _ if batch.len() > 1 => failed(LedgerStoreError::Rejected),
            _ => failed(LedgerStoreError::Unavailable),
        };
        match &result {
            Ok(_) => self.happened.commits += 1,
            Err(_) => self.happened.failures += 1,
        }
        let node = &mut self.nodes[node];
        node.busy =
            node.committer.step([CommitterInput::Committed(result)]) != CommitterAction::Idle;
    }

    /// Does a node's batch, as [`weir_ledger::LedgerStore`] does it on PostgreSQL.
    fn commit(&mut self, index: usize, batch: &[Operation]) -> Vec<OperationOutcome> {
        if self.is_sqlite() {
            return self.commit_on_sqlite(index, batch);
        }
        let now = batch.iter().map(|operation| operation.at).max();
        let now = now.unwrap_or(self.now);
        loop {
            let node = &self.nodes[index];
            let prepared = node.openings.prepare_run(batch, &node.boot);
            let decision = self.shared.commit(&prepared.operations(), &node.boot);
            let accounts = match &decision {
                Decision::Short(accounts) => accounts,
                Decision::Done { called, .. } => called,
            };
            for account in accounts {
                self.be_exact(index, account);
            }
            if let Decision::Done { outcomes, called } = decision {
                self.happened.called_back += called.len();
                node.openings
                    .conclude_run(&prepared, &self.shared.accounts, &node.boot, now);
                return prepared.asked(outcomes);
            }
        }
    }

    /// Does the batch of the process that serves, as [`weir_ledger::LedgerStore`] does it on SQLite.
    fn commit_on_sqlite(&mut self, index: usize, batch: &[Operation]) -> Vec<OperationOutcome> {
        loop {
            let Node { openings, boot, .. } = &self.nodes[index];
            let prepared = prepare_alone(openings, batch, &self.shared, boot);
            let fence = self.shared.fences[boot];
            if prepared.fence() != fence {
                openings.forget(boot, fence);
                continue;
            }
            let mut new = prepared.new_holds();
            self.not_new = new.find(|hold| self.shared.is_known(hold)).cloned();
            let outcomes = self.shared.commit_alone(prepared.operations());
            openings.conclude(&prepared, |id| self.shared.accounts.get(id));
            return prepared.asked(outcomes);
        }
    }

    /// Prepares a node's batch that the node gives up.
    fn prepare(&self, node: usize, batch: &[Operation]) -> Adrift {
        let Node { openings, boot, .. } = &self.nodes[node];
        let prepared = match self.dialect {
            SqlDialect::Sqlite => prepare_alone(openings, batch, &self.shared, boot),
            SqlDialect::Postgres => openings.prepare_run(batch, boot),
        };
        let is_fenced = self.is_sqlite() && prepared.fence() != self.shared.fences[boot];
        let batch = match is_fenced {
            true => Vec::new(),
            false => prepared.operations().into_iter().cloned().collect(),
        };
        Adrift {
            run: boot.clone(),
            batch,
        }
    }

    fn land(&mut self, adrift: &Adrift) {
        if self.is_sqlite() {
            self.shared.commit_alone(&adrift.batch);
            return;
        }
        let operations: Vec<_> = adrift.batch.iter().collect();
        self.shared.commit(&operations, &adrift.run);
    }

    fn is_sqlite(&self) -> bool {
        self.dialect == SqlDialect::Sqlite
    }

    /// Another process takes credits, which requests in progress may need.
    fn command(&mut self) {
        self.happened.commands += 1;
        for request in &mut self.requests {
            request.lost_lease = true;
        }
        let id = OperationId(format!("refund_{}", self.happened.commands));
        let account = AccountId(format!("usr_{}", self.random.below(ACCOUNTS)));
        let action = match self.random.below(3) {
            0 => Action::ResetPeriod,
            1 => Action::Refund(Refund {
                id,
                pool: [Pool::Plan, Pool::TopUp][self.random.below(2)],
                credits: Credits::from_micro(self.random.up_to(600_000_000)),
            }),
            _ => Action::TopUp(TopUp {
                id,
                credits: Credits::from_micro(self.random.up_to(300_000_000)),
                within: None,
            }),
        };
        let operation = Operation {
            account,
            at: self.now,
            action,
        };
        self.happened.swept_records += self.shared.command(&operation);
    }

    /// A new run on SQLite folds the log of the earlier one, and then serves.
    fn fold_earlier_run(&mut self, earlier: &BootId) {
        self.shared.fence(earlier);
        if self.shared.plant == Plant::ServesBeforeLog {
            return;
        }
        self.fold_ended(earlier);
        while self.nodes[0].busy {
            self.node_commits(0, false);
        }
        self.hear();
    }

    /// Ends a commit whose response is lost and whose accounts are still locked: it lands or rolls back before any
    /// other access.
    fn drifting_commit_lands(&mut self) {
        if !self.adrift_appends.is_empty() {
            let index = self.random.below(self.adrift_appends.len());
            let AdriftAppend { run, append } = self.adrift_appends.swap_remove(index);
            if self.random.percent(60) {
                self.shared.append(&run, &append);
            }
        }
        if !self.adrift.is_empty() {
            let index = self.random.below(self.adrift.len());
            let adrift = self.adrift.swap_remove(index);
            if self.random.percent(60) {
                self.land(&adrift);
            }
        }
    }

    fn is_locked(&self, batch: &[Operation]) -> bool {
        self.adrift
            .iter()
            .any(|adrift| share_accounts(&adrift.batch, batch))
    }

    fn locks_are_freed(&mut self, batch: &[Operation]) {
        while let Some(index) = self
            .adrift
            .iter()
            .position(|adrift| share_accounts(&adrift.batch, batch))
        {
            let adrift = self.adrift.swap_remove(index);
            if self.random.percent(60) {
                self.land(&adrift);
            }
        }
    }

    /// Repeats an earlier request, in any state.
    fn repeat(&mut self) {
        let Some(operation) = self.random.choose(&self.asked).cloned() else {
            return;
        };
        // The opening of a hold is requested once, from one node, and only a node itself returns blocks that it may use.
        let is_of_its_node = matches!(
            operation.action,
            Action::Open { .. }
                | Action::EndBlocks {
                    unless_leased: false,
                    ..
                }
        );
        if !is_of_its_node {
            let node = self.random.below(self.nodes.len());
            self.submit(node, operation, Some(Rc::default()));
        }
    }

    fn somebody_stops_waiting(&mut self) {
        let waiting: Vec<_> = self
            .requests
            .iter()
            .filter(|request| !request.opened)
            .collect();
        if let Some(request) = self.random.choose(&waiting) {
            request.gone.set(true);
        }
    }

    fn crash(&mut self) {
        self.happened.crashes += 1;
        let index = self.random.below(self.nodes.len());
        let fresh = self.new_node();
        let under_way = self.prepare(index, self.nodes[index].committer.batch());
        let crashed = std::mem::replace(&mut self.nodes[index], fresh);
        // A commit may be under way all the same.
        if crashed.busy && self.random.percent(50) {
            self.adrift.push(under_way);
        }
        let mut log = crashed.log;
        if crashed.appends && self.random.percent(50) {
            self.adrift_appends.push(AdriftAppend {
                run: crashed.boot.clone(),
                append: log.append(),
            });
        }
        if self.is_sqlite() {
            // A later process waits for the lock of the file.
            if let Some(adrift) = self.adrift.pop() {
                self.land(&adrift);
            }
            if let Some(AdriftAppend { run, append }) = self.adrift_appends.pop() {
                self.shared.append(&run, &append);
            }
        }
        for request in &mut self.requests {
            if request.boot == crashed.boot {
                request.gone.set(true);
                request.ended = true;
                request.lost_lease = true;
            }
        }
        self.shared.leased.remove(&crashed.boot);
        if self.is_sqlite() {
            self.fold_earlier_run(&crashed.boot);
        }
        self.dead_boots.push(crashed.boot);
    }

    fn sweep(&mut self) {
        let dead = self.dead_boots.clone();
        self.expire_holds_of(&dead);
    }

    fn lease_lapses_too_early(&mut self) {
        let node = self.random.below(self.nodes.len());
        let boot = self.nodes[node].boot.clone();
        self.shared.leased.remove(&boot);
        self.nodes[node].is_leased = self.shared.plant == Plant::StaleBlock;
        for request in &mut self.requests {
            request.lost_lease |= request.boot == boot;
        }
        self.expire_holds_of(std::slice::from_ref(&boot));
        // The requests of a node that was frozen end when it comes back.
        if self.random.percent(50) {
            for index in 0..self.requests.len() {
                let request = &self.requests[index];
                if request.boot == boot && request.opened && !request.ended {
                    self.request_steps(index, false);
                }
            }
        }
    }

    /// Ends the stored holds and the blocks of runs.
    fn expire_holds_of(&mut self, boots: &[BootId]) {
        for boot in boots {
            self.shared.fence(boot);
            self.fold_ended(boot);
            self.end_noted(boot);
        }
        let mut orphans = Vec::new();
        for account in self.shared.accounts.values() {
            for hold in account.holds.values() {
                if hold.is_open() && boots.contains(&hold.boot_id) {
                    orphans.push((account.id.clone(), hold.open.hold.clone()));
                }
            }
        }
        self.happened.expired += orphans.len();
        let node = self.random.below(self.nodes.len());
        for (account, hold) in orphans {
            self.ask(node, account, Action::Expire { hold }, None);
        }
        self.end_blocks_of(boots, true);
    }

    /// A node folds the log of an ended run.
    fn fold_ended(&mut self, run: &BootId) {
        if !self.shared.fenced.contains(run) {
            return;
        }
        if self.shared.plant == Plant::BlocksBeforeLog && !self.is_at_rest {
            return;
        }
        let rows: Vec<_> = self
            .shared
            .log
            .iter()
            .filter(|((of, _), _)| of == run)
            .map(|(row, records)| (row.clone(), records.clone()))
            .collect();
        let node = self.random.below(self.nodes.len());
        for (row, records) in rows {
            self.happened.swept_records += records.len();
            let holds = records.iter().map(|record| record.hold().clone());
            self.sweeping.insert(row, holds.collect());
            for record in records {
                self.fold(node, record.operation(run), Some(Rc::default()));
            }
        }
    }

    fn fold(&mut self, node: usize, mut operation: Operation, gone: Option<Rc<Cell<bool>>>) {
        if self.shared.plant == Plant::SplitFolds
            && let Action::Persist(persist) = &mut operation.action
            && let Some(then) = persist.then.take()
        {
            self.submit(node, operation, None);
            operation = then;
        }
        self.submit(node, operation, gone);
    }

    /// A node ends the holds in an ended run's row of checkpoints, once the other rows of its log are folded.
    fn end_noted(&mut self, run: &BootId) {
        let has_log = self.shared.log.keys().any(|(of, _)| of == run);
        let Some(noted) = self.shared.noted.get(run).cloned() else {
            return;
        };
        if !self.shared.fenced.contains(run) || has_log {
            return;
        }
        if self.shared.plant == Plant::LostCheckpoints {
            self.shared.noted.remove(run);
            return;
        }
        let holds = noted.iter().map(|noted| noted.hold().clone()).collect();
        self.ending.insert(run.clone(), (noted.clone(), holds));
        let node = self.random.below(self.nodes.len());
        for noted in noted {
            self.fold(node, noted.operation(run), None);
            let expire = Operation {
                account: noted.account().clone(),
                at: self.now,
                action: Action::Expire {
                    hold: noted.hold().clone(),
                },
            };
            self.submit(node, expire, Some(Rc::default()));
        }
    }

    /// A row of checkpoints whose holds have all ended is deleted, unless its run has replaced it.
    fn forget_noted(&mut self, ended: &HoldId) {
        self.ending.retain(|run, (row, holds)| {
            holds.remove(ended);
            if holds.is_empty() && self.shared.noted.get(run) == Some(row) {
                self.happened.ended_at_notes += row.len();
                self.shared.noted.remove(run);
            }
            !holds.is_empty()
        });
    }

    /// A row whose records are all folded leaves the log.
    fn note_swept(&mut self, ended: &HoldId) {
        self.sweeping.retain(|row, holds| {
            holds.remove(ended);
            if holds.is_empty() {
                self.shared.log.remove(row);
            }
            !holds.is_empty()
        });
    }

    fn end_blocks_of(&mut self, boots: &[BootId], unless_leased: bool) {
        let mut orphans = BTreeSet::new();
        for account in self.shared.accounts.values() {
            for key in account.blocks.keys() {
                if boots.contains(&key.boot_id) {
                    orphans.insert((account.id.clone(), key.boot_id.clone()));
                }
            }
        }
        let node = self.random.below(self.nodes.len());
        for (account, boot_id) in orphans {
            let end = Action::EndBlocks {
                boot_id,
                unless_leased,
            };
            self.ask(node, account, end, None);
        }
    }

    fn top_up(&mut self) {
        let id = OperationId(format!("pay_{}", self.asked.len()));
        let credits = Credits::from_micro(self.random.up_to(300_000_000));
        let account = AccountId(format!("usr_{}", self.random.below(ACCOUNTS)));
        let node = self.random.below(self.nodes.len());
        let action = Action::TopUp(TopUp {
            id,
            credits,
            within: None,
        });
        self.ask(node, account, action, Some(Rc::default()));
    }

    /// Delivers responses to requests.
    fn hear(&mut self) {
        let answers: Vec<_> = self.answers.borrow_mut().drain(..).collect();
        for (operation, outcome) in answers {
            // The fold of a record tells its request's end.
            let operation = match operation.action {
                Action::Persist(ref persist) => persist.then.clone().unwrap_or(operation),
                _ => operation,
            };
            if let Action::Open { open, .. } = &operation.action
                && let Some(request) = self
                    .requests
                    .iter_mut()
                    .find(|request| request.hold == open.hold)
            {
                if outcome == Err(LedgerRefusal::Blocked)
                    && !request.gone.get()
                    && self.random.percent(80)
                {
                    let (node, gone) = (request.node, request.gone.clone());
                    let Operation {
                        account, action, ..
                    } = operation;
                    self.ask(node, account, action, Some(gone));
                    continue;
                }
                request.opened = outcome == Ok(OperationEffect::Opened);
                request.ended = !request.opened;
            }
            if let Action::Expire { hold } = &operation.action
                && let Ok(OperationEffect::Expired { .. }) | Err(LedgerRefusal::Ended(_)) = &outcome
            {
                let hold = hold.clone();
                self.forget_noted(&hold);
            }
            if let Action::Settle(_) | Action::Release { .. } = &operation.action
                && let Some(hold) = operation_hold(&operation)
                && let Ok(OperationEffect::Settled { .. } | OperationEffect::Released) = &outcome
                && self.is_folded(&operation.account, hold)
            {
                let hold = hold.clone();
                self.note_swept(&hold);
            }
            self.told.push((operation, outcome));
        }
    }

    fn is_folded(&self, account: &AccountId, hold: &HoldId) -> bool {
        self.shared.accounts[account].ended.contains_key(hold)
    }

    /// Stops all failures; every live request ends, and every sweep runs.
    fn come_to_rest(&mut self) {
        self.is_at_rest = true;
        while !self.adrift.is_empty() || !self.adrift_appends.is_empty() {
            self.drifting_commit_lands();
        }
        for _ in 0..6 {
            self.nodes_commit_all();
            for index in 0..self.requests.len() {
                if self.requests[index].opened && !self.requests[index].ended {
                    self.request_steps(index, false);
                }
            }
            for node in 0..self.nodes.len() {
                self.node_returns_blocks(node);
            }
            self.sweep();
        }
        self.nodes_commit_all();
        let live: Vec<_> = self.nodes.iter().map(|node| node.boot.clone()).collect();
        self.end_blocks_of(&live, false);
        self.nodes_commit_all();
    }

    fn nodes_commit_all(&mut self) {
        for node in 0..self.nodes.len() {
            while self.nodes[node].appends {
                self.node_appends(node, true);
            }
            self.node_writes_checkpoints(node);
            self.node_folds(node);
            while self.nodes[node].busy {
                self.node_commits(node, true);
            }
        }
        self.hear();
    }

    /// Checks that each node's blocks, or on SQLite the account, cover its holds in memory, except those from before the loss
    /// of its lease, or from before a command.
    fn check_memory(&self) -> Result<(), String> {
        if let Some(hold) = &self.not_new {
            return Err(format!(
                "I4: {hold} was not new to the batch that stored it"
            ));
        }
        for node in &self.nodes {
            for (id, account) in &self.shared.accounts {
                let in_memory = node.openings.find_overdue(&node.boot, Millis(i64::MAX));
                let covered = self.requests.iter().filter(|request| {
                    // A commit whose response was lost has stored others.
                    let is_stored = account.holds.contains_key(&request.hold)
                        || account.ended.contains_key(&request.hold);
                    let in_memory = &in_memory;
                    !request.lost_lease
                        && !is_stored
                        && request.account == *id
                        && in_memory.iter().any(|(_, hold)| *hold == request.hold)
                });
                let held: i64 = covered.map(|request| request.amount).sum();
                let blocks = account.blocks.values();
                let own = blocks.filter(|block| block.key.boot_id == node.boot);
                let reserved = match self.dialect {
                    SqlDialect::Sqlite => account.available().total().micro(),
                    SqlDialect::Postgres => {
                        own.map(|block| block.reserved.total().micro()).sum::<i64>()
                    }
                };
                if held > reserved {
                    return Err(format!(
                        "I6: {id} has {held} in memory of {:?}, and {reserved} for them",
                        node.boot
                    ));
                }
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let of_ended = |(run, _): &&(BootId, i64)| self.dead_boots.contains(run);
        if let Some(row) = self.shared.log.keys().find(of_ended) {
            return Err(format!("I7: {row:?} is not folded"));
        }
        let mut noted = self.shared.noted.keys();
        if let Some(run) = noted.find(|run| self.dead_boots.contains(run)) {
            return Err(format!("I7: holds of {run:?} are not ended"));
        }
        for noted in self.durable.values() {
            let account = &self.shared.accounts[noted.account()];
            let (ended, hold) = (
                account.ended.get(noted.hold()),
                account.holds.get(noted.hold()),
            );
            let ended = ended.map(|ended| (ended.posted, ended.overrun));
            let charged = ended.or_else(|| hold.map(|hold| (hold.posted, hold.overrun)));
            let charged = charged.map(|(posted, overrun)| posted.total().saturating_add(overrun));
            if charged.is_none_or(|charged| charged < noted.used()) {
                return Err(format!("I8: {noted:?} is charged {charged:?}"));
            }
        }
        for node in &self.nodes {
            if node.openings.tail_len() > 0 {
                return Err(format!("I7: {:?} has records in its tail", node.boot));
            }
        }
        for (id, account) in &self.shared.accounts {
            let entries = self
                .shared
                .history
                .get(id)
                .map_or(&[][..], |entries| entries);
            let sum = |delta: fn(&LedgerEntry) -> Credits| {
                entries
                    .iter()
                    .map(|entry| delta(entry).micro())
                    .sum::<i64>()
            };
            let sums = (
                sum(|entry| entry.plan_delta),
                sum(|entry| entry.top_up_delta),
            );
            let balance = (account.balance.plan.micro(), account.balance.top_up.micro());
            if sums != balance {
                return Err(format!(
                    "I1: {id} has {balance:?}, and its entries say {sums:?}"
                ));
            }
            if entries
                .iter()
                .enumerate()
                .any(|(index, entry)| entry.sequence != index as i64 + 1)
            {
                return Err(format!("I1: {id} lacks entries"));
            }
            if account.held != Pools::default()
                || !account.blocks.is_empty()
                || balance.0 < 0
                || balance.1 < 0
            {
                return Err(format!(
                    "I2: {id} has {balance:?}, and holds {:?}, in blocks {:?}",
                    account.held, account.blocks
                ));
            }
            let expired = account.holds.iter().map(|(hold_id, hold)| {
                let state = match hold.is_open() {
                    true => HoldState::Open,
                    false => HoldState::Expired,
                };
                (hold_id, state, hold.posted)
            });
            let ended = account.ended.iter();
            let ended = ended.map(|(hold_id, ended)| (hold_id, ended.state, ended.posted));
            for (hold_id, state, posted) in expired.chain(ended) {
                hold_is_sound(entries, hold_id, state, posted)?;
            }
        }
        self.told.iter().try_for_each(|told| self.is_true(told))
    }

    /// Checks that an earlier response still holds.
    fn is_true(&self, (operation, outcome): &(Operation, OperationOutcome)) -> Result<(), String> {
        let account = &self.shared.accounts[&operation.account];
        let lie = || {
            Err(format!(
                "{operation:?} was told {outcome:?}, which is not so"
            ))
        };
        let Ok(done) = outcome else {
            return Ok(());
        };
        let Some(hold) = operation_hold(operation) else {
            return Ok(());
        };
        match (done, account.ended.get(hold)) {
            (OperationEffect::Opened, Some(_)) => Ok(()),
            (OperationEffect::Opened, None) if account.holds.contains_key(hold) => Ok(()),
            (OperationEffect::Released, Some(ended)) if ended.state == HoldState::Released => {
                Ok(())
            }
            (OperationEffect::Settled { charged, overrun }, Some(ended))
                if ended.state == HoldState::Settled
                    && ended.posted.total() == *charged
                    && ended.overrun == *overrun =>
            {
                match &operation.action {
                    Action::Settle(settle)
                        if settle.credits == charged.saturating_add(*overrun) =>
                    {
                        self.is_covered(settle, *overrun)
                    }
                    _ => lie(),
                }
            }
            (
                OperationEffect::Opened
                | OperationEffect::Released
                | OperationEffect::Settled { .. },
                _,
            ) => lie(),
            _ => Ok(()),
        }
    }

    /// Checks that the hold of a request has paid a price that is no higher.
    fn is_covered(&self, settle: &Settle, overrun: Credits) -> Result<(), String> {
        let mut requests = self.requests.iter();
        let request = requests.find(|request| request.hold == settle.hold);
        match request {
            Some(request)
                if !request.lost_lease
                    && settle.credits.micro() <= request.amount
                    && overrun > Credits::ZERO =>
            {
                Err(format!(
                    "I5: {} held {}, costs {}, and {overrun} of this is unpaid",
                    settle.hold, request.amount, settle.credits
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Prepares a batch of the process that serves on SQLite. It knows the stored holds unless others have changed them.
fn prepare_alone<'o>(
    openings: &Openings,
    batch: &'o [Operation],
    shared: &Shared,
    run: &BootId,
) -> PreparedBatch<'o> {
    let is_current = openings.fence() == shared.fences[run];
    openings.prepare(batch, |account, hold| {
        let hold = shared.accounts.get(account)?.holds.get(hold);
        hold.filter(|hold| is_current && hold.is_open())
    })
}

/// Checks that a hold has ended exactly once, and that its entries equal its postings.
fn hold_is_sound(
    entries: &[LedgerEntry],
    hold_id: &HoldId,
    state: HoldState,
    posted: Pools,
) -> Result<(), String> {
    let of_hold = || {
        let is_its_own = |entry: &&LedgerEntry| {
            let of = entry.hold.as_ref();
            of.is_some_and(|open| open.hold == *hold_id)
        };
        entries.iter().filter(is_its_own)
    };
    let sum: i64 = of_hold()
        .map(|entry| -entry.plan_delta.micro() - entry.top_up_delta.micro())
        .sum();
    let ends = |kinds: &[EntryKind]| {
        of_hold()
            .filter(|entry| kinds.contains(&entry.kind))
            .count()
    };
    let [settled, released, expired, late] = [
        ends(&[EntryKind::Settlement]),
        ends(&[EntryKind::Release]),
        ends(&[EntryKind::Expiry]),
        ends(&[EntryKind::LateSettlement, EntryKind::LateRelease]),
    ];
    let sound = match state {
        HoldState::Open => return Err(format!("I7: {hold_id} is open")),
        HoldState::Settled => settled + expired == 1 && late == expired && released == 0,
        HoldState::Expired => expired == 1 && settled + released + late == 0,
        HoldState::Released => released + expired == 1 && late == expired && settled == 0,
    };
    if !sound {
        return Err(format!(
            "I4: {hold_id} is {state:?}; it was settled {settled}, released {released}, and expired {expired} times, \
             and then ended {late} times"
        ));
    }
    if sum != posted.total().micro() {
        return Err(format!("I3: {hold_id} posted {sum}, and says {posted:?}"));
    }
    Ok(())
}

fn share_accounts(some: &[Operation], others: &[Operation]) -> bool {
    some.iter()
        .any(|one| others.iter().any(|other| one.account == other.account))
}

fn operation_hold(operation: &Operation) -> Option<&HoldId> {
    match &operation.action {
        Action::Open { open, .. } => Some(&open.hold),
        Action::Settle(settle) => Some(&settle.hold),
        Action::Release { hold, .. } => Some(hold),
        _ => None,
    }
}
