//! A simulation of the ledger's committer and its failures, from a seed.
//!
//! Some nodes, each with a committer that a loop steps by hand, and with holds in memory from its blocks, share a store
//! that holds accounts in memory and applies the ledger's own operations to them, as the ledger does on PostgreSQL.
//! Commits fail before any change, or lose their response before or after it; they land after their node is gone, or
//! release their locks by then; nodes crash; leases expire while their node lives; blocks are called back, or their node
//! stays silent; requests are repeated, overtake each other, and stop waiting. At rest, the store must be sound, and every
//! response must have been true. A request that costs no more than its hold must have been charged in full, unless its
//! node lost its lease.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weir_ledger::account::{EntryKind, Hold, LedgerEntry, Pools, apply};
use weir_ledger::committer::{
    CommitResult, Committer, CommitterAction, CommitterInput, OutcomeReceiver,
};
use weir_ledger::openings::{EXACT_FOR, Openings};
use weir_ledger::operation::BlockKey;
use weir_ledger::shortage::{Decision, decide, spares_blocks};
use weir_ledger::{
    Account, AccountId, Action, BootId, Checkpoint, Credits, HoldId, HoldState, LedgerRefusal,
    LedgerStoreError, OpenHold, Operation, OperationEffect, OperationId, OperationOutcome,
    RequestSource, RequestUsage, Settle, TopUp, Unit, UsageCounts,
};
use weir_storage::clock::Millis;

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
}

/// The shared state of the nodes.
struct Shared {
    accounts: BTreeMap<AccountId, Account>,
    history: BTreeMap<AccountId, Vec<LedgerEntry>>,
    /// Blocks that their nodes have to return.
    called: BTreeSet<(AccountId, BlockKey)>,
    /// The runs with valid leases.
    leased: BTreeSet<BootId>,
    plant: Plant,
}

struct Node {
    boot: BootId,
    committer: Committer<Waiter>,
    openings: Openings,
    /// Whether no other node has taken it for dead since it last renewed its lease.
    is_leased: bool,
    busy: bool,
}

/// A commit under way, and the run that sent it.
struct Adrift {
    run: BootId,
    batch: Vec<Operation>,
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
    random: Random,
    shared: Shared,
    nodes: Vec<Node>,
    requests: Vec<Request>,
    answers: Rc<RefCell<Vec<(Operation, OperationOutcome)>>>,
    told: Vec<(Operation, OperationOutcome)>,
    asked: Vec<Operation>,
    /// Commits that are still under way after their node gave them up.
    adrift: Vec<Adrift>,
    dead_boots: Vec<BootId>,
    boots: usize,
    now: Millis,
    happened: Happened,
}

/// Runs one seed; an error is the first fault.
pub fn simulate(seed: u64, plant: Plant) -> Result<Happened, String> {
    let mut simulation = Simulation::new(seed, plant);
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
        for (id, account) in &mut self.accounts {
            let entries = std::mem::take(&mut account.journal).entries;
            self.history.entry(id.clone()).or_default().extend(entries);
        }
        for account in called {
            self.call_back(account, run);
        }
        decision
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
        let outcome = match spares_blocks(&operation.action, &self.leased) {
            true => Ok(OperationEffect::BlocksChanged),
            false => apply(operation, account),
        };
        let blocks = &account.blocks;
        self.called
            .retain(|(called, key)| called != id || blocks.contains_key(key));
        outcome
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
    fn new(seed: u64, plant: Plant) -> Self {
        let accounts: BTreeMap<_, _> = (0..ACCOUNTS)
            .map(|index| AccountId(format!("usr_{index}")))
            .map(|id| (id.clone(), Account::new(id, START)))
            .collect();
        let mut simulation = Self {
            random: Random::new(seed),
            shared: Shared {
                accounts,
                history: BTreeMap::new(),
                called: BTreeSet::new(),
                leased: BTreeSet::new(),
                plant,
            },
            nodes: Vec::new(),
            requests: Vec::new(),
            answers: Rc::default(),
            told: Vec::new(),
            asked: Vec::new(),
            adrift: Vec::new(),
            dead_boots: Vec::new(),
            boots: 0,
            now: START,
            happened: Happened::default(),
        };
        for _ in 0..NODES {
            let node = simulation.new_node();
            simulation.nodes.push(node);
        }
        simulation
    }

    fn new_node(&mut self) -> Node {
        self.boots += 1;
        let boot = BootId::of(&format!("boot_{}", self.boots)).expect("a name");
        self.shared.leased.insert(boot.clone());
        Node {
            boot,
            committer: Committer::default(),
            openings: Openings::default(),
            is_leased: true,
            busy: false,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.something_happens();
            self.check_blocks()?;
        }
        self.come_to_rest();
        self.check()
    }

    fn something_happens(&mut self) {
        self.now.0 += self.random.up_to(1_000);
        match self.random.below(100) {
            0..22 => self.new_request(),
            22..40 => self.request_goes_on(),
            40..80 => {
                let node = self.random.below(NODES);
                self.node_commits(node, false);
            }
            80..84 => self.repeat(),
            84..87 => self.somebody_stops_waiting(),
            87..89 => self.crash(),
            89..93 => self.sweep(),
            93..95 => self.lease_lapses_too_early(),
            95..97 => self.top_up(),
            97 if self.random.percent(30) => {
                self.now = self.now.plus_days(self.random.up_to(20));
            }
            97 => {
                let node = self.random.below(NODES);
                self.node_returns_blocks(node);
            }
            _ => self.drifting_commit_lands(),
        }
        self.hear();
    }

    fn new_request(&mut self) {
        self.happened.requests += 1;
        let node = self.random.below(NODES);
        let account = AccountId(format!("usr_{}", self.random.below(ACCOUNTS)));
        let most = match self.random.percent(60) {
            true => 3_000_000,
            false => 200_000_000,
        };
        let amount = self.random.up_to(most);
        let price = match self.random.below(10) {
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
        let unopened = openings.open_from_block(account, self.now, open, boot);
        if unopened.is_none() {
            self.happened.from_blocks += 1;
            let request = self.requests.last_mut().expect("it has begun");
            request.opened = true;
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
            openings.forget_blocks(boot);
            self.shared.leased.insert(boot.clone());
            *is_leased = true;
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
        self.ask(node, account, action, Some(Rc::default()));
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
                self.adrift.push(prepared);
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

    /// Prepares a node's batch that the node gives up.
    fn prepare(&self, node: usize, batch: &[Operation]) -> Adrift {
        let Node { openings, boot, .. } = &self.nodes[node];
        let prepared = openings.prepare_run(batch, boot);
        Adrift {
            run: boot.clone(),
            batch: prepared.operations().into_iter().cloned().collect(),
        }
    }

    fn land(&mut self, adrift: &Adrift) {
        let operations: Vec<_> = adrift.batch.iter().collect();
        self.shared.commit(&operations, &adrift.run);
    }

    /// Ends a commit whose response is lost and whose accounts are still locked: it lands or rolls back before any
    /// other access.
    fn drifting_commit_lands(&mut self) {
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
            let node = self.random.below(NODES);
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
        let index = self.random.below(NODES);
        let fresh = self.new_node();
        let crashed = std::mem::replace(&mut self.nodes[index], fresh);
        // A commit may be under way all the same.
        if crashed.busy && self.random.percent(50) {
            let prepared = crashed
                .openings
                .prepare_run(crashed.committer.batch(), &crashed.boot);
            let batch = prepared.operations().into_iter().cloned().collect();
            self.adrift.push(Adrift {
                run: crashed.boot.clone(),
                batch,
            });
        }
        for request in &mut self.requests {
            if request.boot == crashed.boot {
                request.gone.set(true);
                request.ended = true;
                request.lost_lease = true;
            }
        }
        self.shared.leased.remove(&crashed.boot);
        self.dead_boots.push(crashed.boot);
    }

    fn sweep(&mut self) {
        let dead = self.dead_boots.clone();
        self.expire_holds_of(&dead);
    }

    fn lease_lapses_too_early(&mut self) {
        let node = self.random.below(NODES);
        let boot = self.nodes[node].boot.clone();
        self.shared.leased.remove(&boot);
        self.nodes[node].is_leased = self.shared.plant == Plant::StaleBlock;
        for request in &mut self.requests {
            request.lost_lease |= request.boot == boot;
        }
        self.expire_holds_of(&[boot]);
    }

    /// Ends the stored holds and the blocks of runs.
    fn expire_holds_of(&mut self, boots: &[BootId]) {
        let mut orphans = Vec::new();
        for account in self.shared.accounts.values() {
            for hold in account.holds.values() {
                if hold.is_open() && boots.contains(&hold.boot_id) {
                    orphans.push((account.id.clone(), hold.open.hold.clone()));
                }
            }
        }
        self.happened.expired += orphans.len();
        let node = self.random.below(NODES);
        for (account, hold) in orphans {
            self.ask(node, account, Action::Expire { hold }, None);
        }
        self.end_blocks_of(boots, true);
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
        let node = self.random.below(NODES);
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
        let node = self.random.below(NODES);
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
            self.told.push((operation, outcome));
        }
    }

    /// Stops all failures; every live request ends, and every sweep runs.
    fn come_to_rest(&mut self) {
        while !self.adrift.is_empty() {
            self.drifting_commit_lands();
        }
        for _ in 0..6 {
            self.nodes_commit_all();
            for index in 0..self.requests.len() {
                if self.requests[index].opened && !self.requests[index].ended {
                    self.request_steps(index, false);
                }
            }
            for node in 0..NODES {
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
        for node in 0..NODES {
            while self.nodes[node].busy {
                self.node_commits(node, true);
            }
        }
        self.hear();
    }

    /// Checks that each node's blocks cover its holds in memory, except those from before the loss of its lease.
    fn check_blocks(&self) -> Result<(), String> {
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
                let reserved: i64 = own.map(|block| block.reserved.total().micro()).sum();
                if held > reserved {
                    return Err(format!(
                        "I6: {id} has {held} in memory of {:?}, and blocks of {reserved}",
                        node.boot
                    ));
                }
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
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
