//! The committer: it commits waiting operations together, and answers each caller only after its operation is durable.
//!
//! There is no timer. An idle committer commits an operation as soon as all ready tasks have run, which may submit
//! further ones; while it is busy, operations queue, and the next batch is the complete queue. [`Committer::step`]
//! decides, without I/O: it takes inputs and returns the next action. [`run`] executes it on the database; a simulation
//! executes it on a store that fails in every way that a database can.
//!
//! - If the database did nothing ([`LedgerStoreError::Unavailable`]): it retries after a pause, in smaller batches.
//! - If the result of the commit was lost ([`LedgerStoreError::Unknown`]): it retries the complete batch. Operations have
//!   ids, so none is done twice.
//! - If the database rejects the batch ([`LedgerStoreError::Rejected`]): it retries each half separately, until the invalid
//!   operation is alone, and only that one fails.
//!
//! **Invariant:** operations are done in the order of their submission.
//! **Invariant:** the committer releases an opened hold that no caller has received, and does not open a hold whose
//! caller no longer waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use weir_storage::database::SqlDialect;

use crate::health::{CommitterHealth, Writer};
use crate::operation::{Action, CommitResult, Operation, OperationEffect, OperationOutcome};
use crate::store::{LedgerStore, LedgerStoreError};

/// Operations in one transaction.
pub(crate) const BATCH: usize = 256;

/// Bytes of stored responses in one transaction, beyond the first one.
const BATCH_ANSWER_BYTES: usize = 4 << 20;

/// The pause after the first failure; each further failure doubles it.
const PAUSE: Duration = Duration::from_millis(10);

const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Maximum time that the first operation of a batch waits for further ones.
const LONGEST_COMPANY: Duration = Duration::from_millis(2);

/// A caller that waits for an outcome.
pub trait OutcomeReceiver {
    /// Returns whether the caller no longer waits.
    fn is_gone(&self) -> bool;

    /// Sends the outcome, and returns whether the caller received it.
    fn answer(self, answer: CommitResult) -> bool;
}

#[derive(Debug)]
pub enum CommitterInput<R> {
    /// A caller submits an operation. The committer does it even without a reply.
    Submit(Operation, Option<R>),
    /// The store has finished the batch.
    Committed(Result<Vec<OperationOutcome>, LedgerStoreError>),
}

/// The committer's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitterAction {
    /// Wait for an operation.
    Idle,
    /// Commit [`Committer::batch`] after a pause, and pass the result as an input.
    Commit { pause: Duration },
}

/// The queue, and the current batch.
#[derive(Debug)]
pub struct Committer<R> {
    queue: VecDeque<WaitingOperation<R>>,
    batch: Vec<Operation>,
    /// The callers of the batch's operations.
    callers: Vec<WaitingCaller<R>>,
    failures: u32,
    /// Halves of rejected batches so far.
    parts: u64,
}

#[derive(Debug)]
struct WaitingOperation<R> {
    operation: Operation,
    caller: WaitingCaller<R>,
}

#[derive(Debug)]
struct WaitingCaller<R> {
    reply: Option<R>,
    /// Whether a commit with a lost result may have done the operation.
    perhaps_done: bool,
    /// The half of a rejected batch to which the operation belongs; other operations are not tried with it.
    part: Option<u64>,
}

impl<R> WaitingCaller<R> {
    fn new(reply: Option<R>) -> Self {
        Self {
            reply,
            perhaps_done: false,
            part: None,
        }
    }
}

impl<R> Default for Committer<R> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            batch: Vec::new(),
            callers: Vec::new(),
            failures: 0,
            parts: 0,
        }
    }
}

impl<R: OutcomeReceiver> Committer<R> {
    /// Takes inputs, answers callers, and returns the next action.
    ///
    /// During a batch, the next action is always to commit it.
    pub fn step(&mut self, inputs: impl IntoIterator<Item = CommitterInput<R>>) -> CommitterAction {
        let mut again = false;
        for input in inputs {
            match input {
                CommitterInput::Submit(operation, reply) => {
                    self.queue.push_back(WaitingOperation {
                        operation,
                        caller: WaitingCaller::new(reply),
                    })
                }
                CommitterInput::Committed(result) => again |= self.conclude(result),
            }
        }
        if self.batch.is_empty() {
            self.next_batch();
        }
        if self.batch.is_empty() {
            return CommitterAction::Idle;
        }
        CommitterAction::Commit {
            pause: if again {
                retry_pause(self.failures)
            } else {
                Duration::ZERO
            },
        }
    }

    /// Returns the operations to commit in one transaction.
    pub fn batch(&self) -> &[Operation] {
        &self.batch
    }

    /// Ends a batch; returns whether a pause must precede the next one.
    fn conclude(&mut self, result: Result<Vec<OperationOutcome>, LedgerStoreError>) -> bool {
        match result {
            Ok(outcomes) => {
                self.failures = 0;
                let done = self.batch.drain(..).zip(self.callers.drain(..));
                let mut unwanted = Vec::new();
                for ((operation, caller), outcome) in done.zip(outcomes) {
                    let is_opened = outcome == Ok(OperationEffect::Opened);
                    let is_taken = caller.reply.is_none_or(|reply| reply.answer(Ok(outcome)));
                    if is_opened && !is_taken {
                        unwanted.extend(release_of(operation));
                    }
                }
                for operation in unwanted.into_iter().rev() {
                    let caller = WaitingCaller::new(None);
                    self.queue
                        .push_front(WaitingOperation { operation, caller });
                }
                false
            }
            Err(LedgerStoreError::Unknown(error)) => {
                self.fail(&error);
                for caller in &mut self.callers {
                    caller.perhaps_done = true;
                }
                true
            }
            Err(LedgerStoreError::Unavailable(error)) => {
                self.fail(&error);
                self.put_back();
                true
            }
            Err(LedgerStoreError::Rejected(error)) if self.batch.len() == 1 => {
                self.batch.clear();
                tracing::error!(error, "the database rejects an operation of the ledger");
                for reply in self.callers.drain(..).filter_map(|caller| caller.reply) {
                    reply.answer(Err(error.clone()));
                }
                false
            }
            Err(LedgerStoreError::Rejected(error)) => {
                tracing::warn!(
                    error,
                    operations = self.batch.len(),
                    "the database rejects a batch; retrying each half separately"
                );
                self.halve();
                self.put_back();
                false
            }
        }
    }

    fn fail(&mut self, error: &str) {
        self.failures = self.failures.saturating_add(1);
        tracing::warn!(
            error,
            operations = self.batch.len(),
            failures = self.failures,
            "retrying a batch of the ledger"
        );
    }

    fn halve(&mut self) {
        let (first, second) = self.callers.split_at_mut(self.batch.len() / 2);
        for half in [first, second] {
            self.parts += 1;
            for caller in half {
                caller.part = Some(self.parts);
            }
        }
    }

    fn put_back(&mut self) {
        let batch = self.batch.drain(..).zip(self.callers.drain(..));
        for (operation, caller) in batch.rev() {
            self.queue
                .push_front(WaitingOperation { operation, caller });
        }
    }

    fn next_batch(&mut self) {
        // A batch that is too large for the database may succeed in two halves.
        let limit = BATCH >> self.failures.saturating_sub(1).min(8);
        let mut answers = 0;
        while self.batch.len() < limit.max(1)
            && let Some(next) = self.queue.front()
        {
            let is_of_part = |first: &WaitingCaller<R>| first.part == next.caller.part;
            answers += answer_bytes(&next.operation);
            let fits = answers <= BATCH_ANSWER_BYTES && self.callers.first().is_none_or(is_of_part);
            if !fits && !self.batch.is_empty() {
                break;
            }
            let Some(WaitingOperation { operation, caller }) = self.queue.pop_front() else {
                break;
            };
            let is_gone = caller.reply.as_ref().is_some_and(OutcomeReceiver::is_gone);
            if is_gone && !caller.perhaps_done && matches!(operation.action, Action::Open { .. }) {
                continue;
            }
            self.batch.push(operation);
            self.callers.push(caller);
        }
    }
}

/// Returns the pause before a write is repeated after a number of failures.
pub(crate) fn retry_pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
}

fn answer_bytes(operation: &Operation) -> usize {
    match &operation.action {
        Action::EndKey(end) => end.answer.as_ref().map_or(0, Vec::len),
        _ => 0,
    }
}

/// Returns the operation that releases a hold which the given operation has opened.
pub(crate) fn release_of(operation: Operation) -> Option<Operation> {
    let Action::Open { open, .. } = operation.action else {
        return None;
    };
    Some(Operation {
        account: operation.account,
        at: operation.at,
        action: Action::Release {
            hold: open.hold,
            cost: None,
        },
    })
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all of it are operations")]
pub(crate) enum CommitterMessage {
    /// An operation, and the caller that waits for its outcome, if any.
    Operation(Operation, Option<oneshot::Sender<CommitResult>>),
    /// A caller that waits until all earlier operations are done.
    Flush(oneshot::Sender<()>),
}

impl OutcomeReceiver for oneshot::Sender<CommitResult> {
    fn is_gone(&self) -> bool {
        self.is_closed()
    }

    fn answer(self, answer: CommitResult) -> bool {
        self.send(answer).is_ok()
    }
}

/// Starts the commit loop. It ends when no sender remains and the queue is empty, or when the database is closed.
pub(crate) fn start(
    store: LedgerStore,
    submitted: mpsc::Receiver<CommitterMessage>,
    dialect: SqlDialect,
    health: Arc<CommitterHealth>,
) -> io::Result<()> {
    spawn_writer("ledger", dialect, run(store, submitted, dialect, health))
}

/// Runs a task that writes. SQLite blocks the thread during disk writes, so the task has a thread of its own.
pub(crate) fn spawn_writer(
    name: &str,
    dialect: SqlDialect,
    writing: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    match dialect {
        SqlDialect::Sqlite => {
            let runtime = runtime::Builder::new_current_thread()
                .enable_time()
                .build()?;
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || runtime.block_on(writing))?;
        }
        SqlDialect::Postgres => {
            tokio::spawn(writing);
        }
    }
    Ok(())
}

/// Runs all ready tasks as long as they submit operations: these share the next commit, the largest cost of an
/// operation. With a free processor, no task waits.
pub(crate) async fn wait_for_company<T>(
    arrived: &mut Vec<T>,
    mut submitted: impl FnMut() -> Option<T>,
    dialect: SqlDialect,
) {
    let began = Instant::now();
    let mut known = 0;
    while known < arrived.len() && arrived.len() < BATCH && began.elapsed() < LONGEST_COMPANY {
        known = arrived.len();
        match dialect {
            SqlDialect::Sqlite => thread::yield_now(),
            SqlDialect::Postgres => tokio::task::yield_now().await,
        }
        while arrived.len() < BATCH
            && let Some(more) = submitted()
        {
            arrived.push(more);
        }
    }
}

async fn run(
    store: LedgerStore,
    mut submitted: mpsc::Receiver<CommitterMessage>,
    dialect: SqlDialect,
    health: Arc<CommitterHealth>,
) {
    let mut committer = Committer::default();
    let mut next = CommitterAction::Idle;
    let mut arrived = Vec::with_capacity(BATCH);
    let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
    loop {
        next = match next {
            CommitterAction::Idle => {
                // All earlier operations are done, so no caller may still wait for them.
                for flush in flushes.drain(..) {
                    let _ = flush.send(());
                }
                health.rest(Writer::Batches);
                if submitted.recv_many(&mut arrived, BATCH).await == 0 {
                    return;
                }
                wait_for_company(&mut arrived, || submitted.try_recv().ok(), dialect).await;
                let operations = arrived.drain(..).filter_map(|submitted| match submitted {
                    CommitterMessage::Operation(operation, reply) => {
                        Some(CommitterInput::Submit(operation, reply))
                    }
                    CommitterMessage::Flush(flush) => {
                        flushes.push(flush);
                        None
                    }
                });
                committer.step(operations)
            }
            // Operations that arrive meanwhile wait in the channel until this batch is answered: the follow-up
            // operations of its callers can then join the next batch.
            CommitterAction::Commit { pause } => {
                if !pause.is_zero() {
                    // A failing batch counts as busy the whole time.
                    health.begin(Writer::Batches);
                    tokio::time::sleep(pause).await;
                }
                health.begin(Writer::Batches);
                let began = Instant::now();
                let result = store.commit(committer.batch()).await;
                health.conclude(&result, began.elapsed());
                if result.is_err() && store.is_closed() {
                    return;
                }
                committer.step([CommitterInput::Committed(result)])
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use weir_storage::clock::Millis;

    use super::*;
    use crate::operation::{AccountId, HoldId};

    struct Waiter(usize, std::rc::Rc<std::cell::RefCell<Vec<(usize, bool)>>>);

    impl OutcomeReceiver for Waiter {
        fn is_gone(&self) -> bool {
            false
        }

        fn answer(self, answer: CommitResult) -> bool {
            self.1.borrow_mut().push((self.0, answer.is_ok()));
            true
        }
    }

    fn release(hold: usize) -> Operation {
        Operation {
            account: AccountId("alice".to_owned()),
            at: Millis(0),
            action: Action::Release {
                hold: HoldId(hold.to_string()),
                cost: None,
            },
        }
    }

    fn names(operation: &Operation, poison: usize) -> bool {
        operation.holds().any(|hold| hold.0 == poison.to_string())
    }

    /// Commits all operations on a database that rejects each batch with one operation: returns the number of
    /// transactions, and each caller's answer.
    fn commit_all(poison: usize) -> (usize, Vec<(usize, bool)>) {
        let answers = std::rc::Rc::default();
        let mut committer = Committer::default();
        let all = (0..BATCH).map(|hold| {
            let waiter = Waiter(hold, std::rc::Rc::clone(&answers));
            CommitterInput::Submit(release(hold), Some(waiter))
        });
        let mut next = committer.step(all);
        let mut transactions = 0;
        while next != CommitterAction::Idle {
            transactions += 1;
            let batch = committer.batch();
            let result = match batch.iter().any(|operation| names(operation, poison)) {
                true => Err(LedgerStoreError::Rejected("poison".to_owned())),
                false => Ok(vec![Ok(OperationEffect::Released); batch.len()]),
            };
            next = committer.step([CommitterInput::Committed(result)]);
        }
        drop(committer);
        let answers = answers.borrow().clone();
        (transactions, answers)
    }

    #[test]
    fn the_operation_that_the_database_refuses_is_found_by_halving() {
        for poison in [0, 77, BATCH - 1] {
            let (transactions, answers) = commit_all(poison);
            // The complete batch, then both halves of each rejected one.
            assert_eq!(transactions, 1 + 2 * BATCH.ilog2() as usize, "{poison}");
            let expected: Vec<_> = (0..BATCH).map(|hold| (hold, hold != poison)).collect();
            assert_eq!(answers, expected, "in order, and each once");
        }
    }

    #[test]
    fn answers_to_keep_make_batches_small() {
        let mut committer = Committer::<Waiter>::default();
        let end = |_| {
            let mut operation = release(0);
            operation.action = Action::EndKey(crate::operation::EndKey {
                key: "key".to_owned(),
                request_id: "req".to_owned(),
                answer: Some(vec![0; BATCH_ANSWER_BYTES / 2]),
            });
            CommitterInput::Submit(operation, None)
        };
        committer.step((0..3).map(end));
        assert_eq!(committer.batch().len(), 2);
    }
}
