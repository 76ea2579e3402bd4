//! A simulation of the ledger's committer and its failures, from a seed.
//!
//! Some nodes, each with a committer that a loop steps by hand, share a store that holds accounts in memory and
//! applies the ledger's own operations to them. Commits fail before any change, or lose their response before or
//! after it; they land after their node is gone, or release their locks by then; nodes crash; leases expire while
//! their node lives; requests are repeated, overtake each other, and stop waiting. At rest, the store must be sound,
//! and every response must have been true.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_ledger::account::{EntryKind, Hold, LedgerEntry, Pools, apply};
use weir_ledger::committer::{
    CommitResult, Committer, CommitterAction, CommitterInput, OutcomeReceiver,
};
use weir_ledger::{
    Account, AccountId, Action, BootId, Checkpoint, Credits, HoldId, HoldState, LedgerRefusal,
    LedgerStoreError, OpenHold, Operation, OperationEffect, OperationId, OperationOutcome,
    RequestSource, RequestUsage, Settle, TopUp, UsageCounts,
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
}

/// The shared state of the nodes.
struct Shared {
    accounts: BTreeMap<AccountId, Account>,
    history: BTreeMap<AccountId, Vec<LedgerEntry>>,
    plant: Plant,
}

struct Node {
    boot: BootId,
    committer: Committer<Waiter>,
    busy: bool,
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
    /// Its end: the price, or `None` if nothing was delivered.
    price: Option<i64>,
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
    adrift: Vec<Vec<Operation>>,
    dead_boots: Vec<BootId>,
    boots: usize,
    now: Millis,
    happened: Happened,
}

/// Runs one seed; an error is the first fault.
pub fn simulate(seed: u64, plant: Plant) -> Result<Happened, String> {
    let mut simulation = Simulation::new(seed, plant);
    for _ in 0..STEPS {
        simulation.something_happens();
    }
    simulation.come_to_rest();
    simulation
        .check()
        .map_err(|what| format!("seed {seed}: {what}"))?;
    Ok(simulation.happened)
}

impl Shared {
    fn commit(&mut self, operations: &[Operation]) -> Vec<OperationOutcome> {
        let outcomes = operations
            .iter()
            .map(|operation| {
                let account = self
                    .accounts
                    .get_mut(&operation.account)
                    .ok_or(LedgerRefusal::UnknownAccount)?;
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
                apply(operation, account)
            })
            .collect();
        for (id, account) in &mut self.accounts {
            let entries = std::mem::take(&mut account.journal).entries;
            self.history.entry(id.clone()).or_default().extend(entries);
        }
        outcomes
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
        Node {
            boot: BootId::of(&format!("boot_{}", self.boots)).expect("a name"),
            committer: Committer::default(),
            busy: false,
        }
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
            97 => self.now = self.now.plus_days(self.random.up_to(20)),
            _ => self.drifting_commit_lands(),
        }
        self.hear();
    }

    fn new_request(&mut self) {
        self.happened.requests += 1;
        let node = self.random.below(NODES);
        let account = AccountId(format!("usr_{}", self.random.below(ACCOUNTS)));
        let amount = self.random.up_to(200_000_000);
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
            price,
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
        let open = Action::Open {
            open,
            boot_id,
            claim: None,
        };
        self.ask(node, account, open, Some(gone));
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
            0..70 => Ok(self.shared.commit(&batch)),
            70..78 => failed(LedgerStoreError::Unavailable),
            78..86 => {
                self.shared.commit(&batch);
                failed(LedgerStoreError::Unknown)
            }
            86..90 => failed(LedgerStoreError::Unknown),
            90..95 => {
                self.adrift.push(batch.clone());
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

    /// Ends a commit whose response is lost and whose accounts are still locked: it lands or rolls back before any
    /// other access.
    fn drifting_commit_lands(&mut self) {
        if !self.adrift.is_empty() {
            let index = self.random.below(self.adrift.len());
            let batch = self.adrift.swap_remove(index);
            if self.random.percent(60) {
                self.shared.commit(&batch);
            }
        }
    }

    fn is_locked(&self, batch: &[Operation]) -> bool {
        self.adrift
            .iter()
            .any(|adrift| share_accounts(adrift, batch))
    }

    fn locks_are_freed(&mut self, batch: &[Operation]) {
        while let Some(index) = self
            .adrift
            .iter()
            .position(|adrift| share_accounts(adrift, batch))
        {
            let adrift = self.adrift.swap_remove(index);
            if self.random.percent(60) {
                self.shared.commit(&adrift);
            }
        }
    }

    /// Repeats an earlier request, in any state.
    fn repeat(&mut self) {
        let Some(operation) = self.random.choose(&self.asked).cloned() else {
            return;
        };
        // The opening of a hold is requested once, from one node.
        if !matches!(operation.action, Action::Open { .. }) {
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
            self.adrift.push(crashed.committer.batch().to_vec());
        }
        for request in &mut self.requests {
            if request.boot == crashed.boot {
                request.gone.set(true);
                request.ended = true;
            }
        }
        self.dead_boots.push(crashed.boot);
    }

    fn sweep(&mut self) {
        let dead = self.dead_boots.clone();
        self.expire_holds_of(&dead);
    }

    fn lease_lapses_too_early(&mut self) {
        let node = self.random.below(NODES);
        let boot = self.nodes[node].boot.clone();
        self.expire_holds_of(&[boot]);
    }

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
        for _ in 0..4 {
            for node in 0..NODES {
                while self.nodes[node].busy {
                    self.node_commits(node, true);
                }
            }
            self.hear();
            for index in 0..self.requests.len() {
                if self.requests[index].opened && !self.requests[index].ended {
                    self.request_steps(index, false);
                }
            }
            self.sweep();
        }
        self.hear();
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
            if account.held != Pools::default() || balance.0 < 0 || balance.1 < 0 {
                return Err(format!(
                    "I2: {id} has {balance:?}, and holds {:?}",
                    account.held
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
                        Ok(())
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
