//! The queue of a node's log: which records the next row has, and what becomes of them.
//!
//! [`LogQueue::step`] decides, without I/O, like [`Committer::step`](crate::committer::Committer::step): one append is in flight at
//! a time, and the next one has all records that arrived meanwhile. An append is repeated until its outcome is known: its ordinal
//! names it, so that it is there once.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::committer::{BATCH, OutcomeReceiver, retry_pause};
use crate::openings::TailRecord;
use crate::store::LedgerStoreError;

/// A record without a place in the log, and the caller that waits for its end.
pub type Refused<R> = (Arc<TailRecord>, Option<R>);

#[derive(Debug)]
pub enum LogInput<R> {
    /// A request has ended.
    Submit(Arc<TailRecord>, Option<R>),
    /// The store has answered an append: whether the row is in the log, or the run's fence has moved.
    Appended(Result<bool, LedgerStoreError>),
}

/// The log's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogAction {
    /// Wait for a record.
    Idle,
    /// Append [`LogQueue::append`] after a pause, and pass the result as an input.
    Append { pause: Duration },
}

/// A row to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    pub ordinal: i64,
    /// The run's fence at the moment of the requests' ends.
    pub fence: i64,
    /// A JSON array of [`LogRecord`](super::LogRecord)s.
    pub records: String,
    /// The rows up to this ordinal are folded, and leave the log.
    pub folded: i64,
}

#[derive(Debug)]
pub struct LogQueue<R> {
    queue: VecDeque<Refused<R>>,
    batch: Vec<Refused<R>>,
    /// The ordinal of the batch, or of the next one.
    ordinal: i64,
    /// Rows whose records are not all folded, and their ordinals.
    appended: VecDeque<(i64, Vec<Arc<TailRecord>>)>,
    refused: Vec<Refused<R>>,
    /// Whether the row of checkpoints has some that records have made useless.
    has_outdated: bool,
    failures: u32,
}

impl<R> Default for LogQueue<R> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            batch: Vec::new(),
            ordinal: 1,
            appended: VecDeque::new(),
            refused: Vec::new(),
            has_outdated: false,
            failures: 0,
        }
    }
}

impl<R: OutcomeReceiver> LogQueue<R> {
    pub fn step(&mut self, inputs: impl IntoIterator<Item = LogInput<R>>) -> LogAction {
        let mut again = false;
        for input in inputs {
            match input {
                LogInput::Submit(record, caller) => self.queue.push_back((record, caller)),
                LogInput::Appended(result) => again |= self.conclude(result),
            }
        }
        if self.batch.is_empty() {
            self.next_batch();
        }
        if self.batch.is_empty() {
            return LogAction::Idle;
        }
        LogAction::Append {
            pause: if again {
                retry_pause(self.failures)
            } else {
                Duration::ZERO
            },
        }
    }

    /// Returns the row to append.
    pub fn append(&mut self) -> Append {
        let records: Vec<_> = self
            .batch
            .iter()
            .map(|(record, _)| record.record())
            .collect();
        Append {
            ordinal: self.ordinal,
            fence: self.batch.first().map_or(0, |(record, _)| record.fence()),
            records: serde_json::to_string(&records).expect("plain structs serialize"),
            folded: self.folded(),
        }
    }

    /// Returns the ordinal up to which all rows are folded.
    pub fn folded(&mut self) -> i64 {
        while let Some((_, records)) = self.appended.front()
            && records.iter().all(|record| record.is_folded())
        {
            self.appended.pop_front();
        }
        self.appended
            .front()
            .map_or(self.ordinal, |(ordinal, _)| *ordinal)
            - 1
    }

    /// Takes the records that the log has refused, and their callers.
    pub fn take_refused(&mut self) -> Vec<Refused<R>> {
        mem::take(&mut self.refused)
    }

    /// Returns whether records have made checkpoints useless since the last call.
    pub fn take_outdated(&mut self) -> bool {
        mem::take(&mut self.has_outdated)
    }

    /// Returns the number of records in the batch.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Returns whether nothing is to be appended.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Ends an append; returns whether a pause must precede its repetition.
    fn conclude(&mut self, result: Result<bool, LedgerStoreError>) -> bool {
        match result {
            Ok(true) => {
                self.failures = 0;
                let mut records = Vec::with_capacity(self.batch.len());
                for (record, caller) in self.batch.drain(..) {
                    self.has_outdated |= record.note_appended();
                    if let Some(caller) = caller {
                        caller.answer(Ok(Ok(record.record().effect())));
                    }
                    records.push(record);
                }
                self.appended.push_back((self.ordinal, records));
                self.ordinal += 1;
                false
            }
            Ok(false) => {
                self.refuse();
                false
            }
            Err(LedgerStoreError::Rejected(error)) => {
                tracing::error!(error, "the database rejects records of the ledger's log");
                self.refuse();
                false
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                tracing::warn!(
                    %error,
                    records = self.batch.len(),
                    failures = self.failures,
                    "retrying an append to the ledger's log"
                );
                true
            }
        }
    }

    fn refuse(&mut self) {
        self.failures = 0;
        self.refused.append(&mut self.batch);
        // An earlier attempt, whose response was lost, may have used it.
        self.ordinal += 1;
    }

    /// Takes the next records with one fence.
    fn next_batch(&mut self) {
        while self.batch.len() < BATCH
            && let Some(next) = self.queue.pop_front_if(|(record, _)| {
                let first = self.batch.first();
                first.is_none_or(|(first, _)| first.fence() == record.fence())
            })
        {
            self.batch.push(next);
        }
    }
}
