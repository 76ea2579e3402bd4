//! The committer: what waits is committed together, and nobody is told before it is durable.
//!
//! There is no timer. An idle committer commits an operation as soon as whoever is ready to run has run, who may ask for
//! more; while it is busy, others wait, and the next batch is all of them. [`Committer::step`] decides, without I/O: it
//! takes what has happened and says what to do next. [`run`] does it, on the database; a simulation does it on a store
//! that fails in every way that a database can.
//!
//! - Nothing was done ([`StoreError::Unavailable`]): again after a pause, in smaller batches.
//! - The answer to the commit was lost ([`StoreError::Unknown`]): the whole batch again. Operations have
//!   ids, so that what was done is not done twice.
//! - The database refuses ([`StoreError::Rejected`]): each half by itself, so that the one at fault is soon alone, and only
//!   that fails.
//!
//! **Invariant:** operations are done in the order in which they came.
//! **Invariant:** an opened hold that nobody has taken over is released; one that nobody waits for any more
//! is not even opened.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};

use weir_storage::database::SqlDialect;

use crate::health::Health;
use crate::operation::{Action, Done, Operation, Outcome};
use crate::store::{Store, StoreError};

/// Operations in one transaction.
const BATCH: usize = 256;

/// Bytes of answers in one transaction, beyond the first one.
const BATCH_ANSWER_BYTES: usize = 4 << 20;

/// The pause after a first failure; each one after it is twice as long.
const PAUSE: Duration = Duration::from_millis(10);

const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How long the first of a batch waits at most while more come.
const LONGEST_COMPANY: Duration = Duration::from_millis(2);

/// A caller who waits for an outcome.
pub trait Reply {
    /// Whether nobody waits any more.
    fn is_gone(&self) -> bool;

    /// Hands over the outcome, and says whether it was taken.
    fn answer(self, answer: Answer) -> bool;
}

/// An outcome, or why there is none: the database's error.
pub type Answer = Result<Outcome, String>;

/// An event that the committer takes in.
#[derive(Debug)]
pub enum Input<R> {
    /// Somebody asks for an operation. Without a reply, it is done all the same.
    Submit(Operation, Option<R>),
    /// The store is done with the batch.
    Committed(Result<Vec<Outcome>, StoreError>),
}

/// The committer's next move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait for somebody to ask for something.
    Idle,
    /// Commit [`Committer::batch`] after a pause, and say what came of it.
    Commit {
        /// How long to wait before.
        pause: Duration,
    },
}

/// What waits to be committed, and what is being committed.
#[derive(Debug)]
pub struct Committer<R> {
    queue: VecDeque<Waiting<R>>,
    batch: Vec<Operation>,
    /// Who waits for the operations of the batch.
    callers: Vec<Caller<R>>,
    failures: u32,
    /// Halves of refused batches so far.
    parts: u64,
}

#[derive(Debug)]
struct Waiting<R> {
    operation: Operation,
    caller: Caller<R>,
}

#[derive(Debug)]
struct Caller<R> {
    reply: Option<R>,
    /// Whether a commit whose answer was lost may have done it.
    perhaps_done: bool,
    /// The part of a batch which the database refused that it is tried in, with no others.
    part: Option<u64>,
}

impl<R> Caller<R> {
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

impl<R: Reply> Committer<R> {
    /// Takes in what has happened, tells those who wait, and says what to do next.
    ///
    /// While a batch is under way, the only thing to do next is to commit it.
    pub fn step(&mut self, inputs: impl IntoIterator<Item = Input<R>>) -> Next {
        let mut again = false;
        for input in inputs {
            match input {
                Input::Submit(operation, reply) => self.queue.push_back(Waiting {
                    operation,
                    caller: Caller::new(reply),
                }),
                Input::Committed(result) => again |= self.conclude(result),
            }
        }
        if self.batch.is_empty() {
            self.next_batch();
        }
        if self.batch.is_empty() {
            return Next::Idle;
        }
        Next::Commit {
            pause: if again { self.pause() } else { Duration::ZERO },
        }
    }

    /// The operations to commit, in one transaction.
    pub fn batch(&self) -> &[Operation] {
        &self.batch
    }

    /// Ends a batch; returns whether there must be a pause before the next one.
    fn conclude(&mut self, result: Result<Vec<Outcome>, StoreError>) -> bool {
        match result {
            Ok(outcomes) => {
                self.failures = 0;
                let done = self.batch.drain(..).zip(self.callers.drain(..));
                let mut unwanted = Vec::new();
                for ((operation, caller), outcome) in done.zip(outcomes) {
                    let is_opened = outcome == Ok(Done::Opened);
                    let is_taken = caller.reply.is_none_or(|reply| reply.answer(Ok(outcome)));
                    if is_opened && !is_taken {
                        unwanted.extend(release_of(operation));
                    }
                }
                for operation in unwanted.into_iter().rev() {
                    let caller = Caller::new(None);
                    self.queue.push_front(Waiting { operation, caller });
                }
                false
            }
            Err(StoreError::Unknown(error)) => {
                self.fail(&error);
                for caller in &mut self.callers {
                    caller.perhaps_done = true;
                }
                true
            }
            Err(StoreError::Unavailable(error)) => {
                self.fail(&error);
                self.put_back();
                true
            }
            Err(StoreError::Rejected(error)) if self.batch.len() == 1 => {
                self.batch.clear();
                tracing::error!(error, "the database refuses an operation of the ledger");
                for reply in self.callers.drain(..).filter_map(|caller| caller.reply) {
                    reply.answer(Err(error.clone()));
                }
                false
            }
            Err(StoreError::Rejected(error)) => {
                tracing::warn!(
                    error,
                    operations = self.batch.len(),
                    "the database refuses a batch; each half is tried by itself"
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
            "a batch of the ledger is tried again"
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
            self.queue.push_front(Waiting { operation, caller });
        }
    }

    fn next_batch(&mut self) {
        // What is too much for the database in one go may not be in two.
        let limit = BATCH >> self.failures.saturating_sub(1).min(8);
        let mut answers = 0;
        while self.batch.len() < limit.max(1)
            && let Some(next) = self.queue.front()
        {
            let is_of_part = |first: &Caller<R>| first.part == next.caller.part;
            answers += answer_bytes(&next.operation);
            let fits = answers <= BATCH_ANSWER_BYTES && self.callers.first().is_none_or(is_of_part);
            if !fits && !self.batch.is_empty() {
                break;
            }
            let Some(Waiting { operation, caller }) = self.queue.pop_front() else {
                break;
            };
            let is_gone = caller.reply.as_ref().is_some_and(Reply::is_gone);
            if is_gone && !caller.perhaps_done && matches!(operation.action, Action::Open { .. }) {
                continue;
            }
            self.batch.push(operation);
            self.callers.push(caller);
        }
    }

    fn pause(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(10);
        PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
    }
}

fn answer_bytes(operation: &Operation) -> usize {
    match &operation.action {
        Action::EndKey(end) => end.answer.as_ref().map_or(0, Vec::len),
        _ => 0,
    }
}

/// The operation that voids a hold which the given one has opened.
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

/// What is on its way to the committer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all of it are operations")]
pub(crate) enum Submitted {
    /// An operation, and who waits for its outcome, if anybody does.
    Operation(Operation, Option<oneshot::Sender<Answer>>),
    /// Somebody who waits until all operations that came before are done.
    Flush(oneshot::Sender<()>),
}

impl Reply for oneshot::Sender<Answer> {
    fn is_gone(&self) -> bool {
        self.is_closed()
    }

    fn answer(self, answer: Answer) -> bool {
        self.send(answer).is_ok()
    }
}

/// Starts to commit what comes: until nobody can ask any more and nothing waits, or the database is closed.
pub(crate) fn start(
    store: Store,
    submitted: mpsc::Receiver<Submitted>,
    dialect: SqlDialect,
    health: Arc<Health>,
) -> io::Result<()> {
    match dialect {
        // SQLite blocks whoever waits for the disk.
        SqlDialect::Sqlite => {
            let runtime = runtime::Builder::new_current_thread()
                .enable_time()
                .build()?;
            let committing = move || runtime.block_on(run(store, submitted, dialect, health));
            thread::Builder::new()
                .name("ledger".to_owned())
                .spawn(committing)?;
        }
        SqlDialect::Postgres => {
            tokio::spawn(run(store, submitted, dialect, health));
        }
    }
    Ok(())
}

/// Lets those run who are ready to, for as long as that brings more: it shares the next commit, which is most of what an
/// operation costs. Where there is a processor to spare, nobody waits for anything.
async fn wait_for_company(
    arrived: &mut Vec<Submitted>,
    submitted: &mut mpsc::Receiver<Submitted>,
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
            && let Ok(more) = submitted.try_recv()
        {
            arrived.push(more);
        }
    }
}

async fn run(
    store: Store,
    mut submitted: mpsc::Receiver<Submitted>,
    dialect: SqlDialect,
    health: Arc<Health>,
) {
    let mut committer = Committer::default();
    let mut next = Next::Idle;
    let mut arrived = Vec::with_capacity(BATCH);
    let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
    loop {
        next = match next {
            Next::Idle => {
                // All that ever came is done. Nobody may wait for that any more.
                for flush in flushes.drain(..) {
                    let _ = flush.send(());
                }
                health.rest();
                if submitted.recv_many(&mut arrived, BATCH).await == 0 {
                    return;
                }
                wait_for_company(&mut arrived, &mut submitted, dialect).await;
                let operations = arrived.drain(..).filter_map(|submitted| match submitted {
                    Submitted::Operation(operation, reply) => Some(Input::Submit(operation, reply)),
                    Submitted::Flush(flush) => {
                        flushes.push(flush);
                        None
                    }
                });
                committer.step(operations)
            }
            // What comes meanwhile waits in the channel until those of this batch have their answers: what they
            // then ask for has a chance to be in the next one.
            Next::Commit { pause } => {
                if !pause.is_zero() {
                    // It goes on with what has failed, all the while.
                    health.begin();
                    tokio::time::sleep(pause).await;
                }
                health.begin();
                let began = Instant::now();
                let result = store.commit(committer.batch()).await;
                health.conclude(&result, began.elapsed());
                if result.is_err() && store.is_closed() {
                    return;
                }
                committer.step([Input::Committed(result)])
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

    impl Reply for Waiter {
        fn is_gone(&self) -> bool {
            false
        }

        fn answer(self, answer: Answer) -> bool {
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

    /// What a database is asked to do that refuses all batches with one operation: transactions, and who was answered what.
    fn commit_all(poison: usize) -> (usize, Vec<(usize, bool)>) {
        let answers = std::rc::Rc::default();
        let mut committer = Committer::default();
        let all = (0..BATCH).map(|hold| {
            let waiter = Waiter(hold, std::rc::Rc::clone(&answers));
            Input::Submit(release(hold), Some(waiter))
        });
        let mut next = committer.step(all);
        let mut transactions = 0;
        while next != Next::Idle {
            transactions += 1;
            let batch = committer.batch();
            let result = match batch.iter().any(|operation| names(operation, poison)) {
                true => Err(StoreError::Rejected("poison".to_owned())),
                false => Ok(vec![Ok(Done::Released); batch.len()]),
            };
            next = committer.step([Input::Committed(result)]);
        }
        drop(committer);
        let answers = answers.borrow().clone();
        (transactions, answers)
    }

    #[test]
    fn the_operation_that_the_database_refuses_is_found_by_halving() {
        for poison in [0, 77, BATCH - 1] {
            let (transactions, answers) = commit_all(poison);
            // All, then both halves of each that was refused.
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
            Input::Submit(operation, None)
        };
        committer.step((0..3).map(end));
        assert_eq!(committer.batch().len(), 2);
    }
}
