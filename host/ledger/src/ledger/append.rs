//! The task that appends to this node's log.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use weir_storage::database::SqlDialect;

use crate::committer::{BATCH, CommitterMessage, wait_for_company};
use crate::health::{CommitterHealth, Writer};
use crate::log::{LogAction, LogInput, LogQueue};
use crate::openings::TailRecord;
use crate::operation::{BootId, CommitResult};
use crate::store::LedgerStore;

#[derive(Debug)]
pub(super) enum LogMessage {
    /// The end of a request, and the caller that waits for it, if any.
    Record(Arc<TailRecord>, Option<oneshot::Sender<CommitResult>>),
    /// Delete the folded rows, if there is nothing to append.
    Trim,
    /// A caller that waits until all earlier records are in the log or in the committer's queue, and the folded rows are deleted.
    Flush(oneshot::Sender<()>),
}

/// Appends records until no sender remains, or the database is closed. Records that the log refuses go to the committer.
pub(super) async fn run(
    store: LedgerStore,
    run: BootId,
    mut ended: mpsc::UnboundedReceiver<LogMessage>,
    submit: mpsc::Sender<CommitterMessage>,
    dialect: SqlDialect,
    health: Arc<CommitterHealth>,
) {
    let mut queue = LogQueue::default();
    let mut next = LogAction::Idle;
    let mut arrived = Vec::with_capacity(BATCH);
    let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
    let (mut trimmed, mut trims) = (0, false);
    loop {
        next = match next {
            LogAction::Idle => {
                let folded = queue.folded();
                if folded > trimmed && (trims || !flushes.is_empty()) {
                    match store.delete_log(&run, folded).await {
                        Ok(()) => trimmed = folded,
                        Err(error) => {
                            tracing::warn!(%error, "cannot delete folded rows of the ledger's log");
                        }
                    }
                }
                trims = false;
                for flush in flushes.drain(..) {
                    let _ = flush.send(());
                }
                health.rest(Writer::Log);
                if ended.recv_many(&mut arrived, BATCH).await == 0 {
                    return;
                }
                wait_for_company(&mut arrived, || ended.try_recv().ok(), dialect).await;
                let mut records = Vec::with_capacity(arrived.len());
                for message in arrived.drain(..) {
                    match message {
                        LogMessage::Record(record, caller) => {
                            records.push(LogInput::Submit(record, caller));
                        }
                        LogMessage::Flush(flush) => flushes.push(flush),
                        LogMessage::Trim => trims = true,
                    }
                }
                queue.step(records)
            }
            LogAction::Append { pause } => {
                if !pause.is_zero() {
                    // A failing append counts as busy the whole time.
                    health.begin(Writer::Log);
                    tokio::time::sleep(pause).await;
                }
                health.begin(Writer::Log);
                let append = queue.append();
                let began = Instant::now();
                let result = store.append(&run, &append, trimmed).await;
                health.conclude_append(queue.len(), &result, began.elapsed());
                if result.is_ok() {
                    trimmed = append.folded;
                } else if store.is_closed() {
                    return;
                }
                let next = queue.step([LogInput::Appended(result)]);
                if queue.take_outdated() {
                    store.openings().note_again();
                }
                for (record, caller) in queue.take_refused() {
                    store.openings().take_back(&record);
                    let submitted = CommitterMessage::Operation(record.record().end(), caller);
                    if submit.send(submitted).await.is_err() {
                        return;
                    }
                }
                next
            }
        };
    }
}
