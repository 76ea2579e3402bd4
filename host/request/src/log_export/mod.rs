//! The log export: facts of completed requests at S3-compatible storage or ClickHouse, in batches of JSON lines.
//!
//! A request hands its row to a queue when it ends. One task sends batches and repeats failed deliveries.
//!
//! **Invariant:** no request waits for the destination. If the queue is full, weir drops the row. If a batch cannot be delivered,
//! weir drops the batch. Both are counted.
//!
//! To add a field, add it to [`RequestRow`] and to `context.rs`.

mod row;
pub mod settings;
mod sink;

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use self::row::RequestRow;
use self::settings::{LogExportSettings, MAX_ROWS};
use self::sink::{Batch, DeliveryError, Sink};

/// Attempts to deliver a batch.
const ATTEMPTS: u32 = 5;

/// Pause after the first failed attempt; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Time that a stopping gateway waits for the destination.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Minimum time between two warnings that the destination refuses batches.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Counters of exported and lost rows.
#[derive(Clone, Default)]
pub struct LogExportFigures {
    rows: Counter,
    rows_dropped: Family<DropLabels, Counter>,
    batches_dropped: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    /// `queue_full` or `export_failed`.
    why: &'static str,
}

/// The queue of rows.
pub struct LogExport {
    items: mpsc::Sender<RowQueueItem>,
    figures: LogExportFigures,
}

enum RowQueueItem {
    Row(Vec<u8>),
    /// A waiter for the export of all rows before it.
    Flush(oneshot::Sender<()>),
}

/// The log export, before its start.
pub struct PendingLogExport {
    sink: Sink,
    batch_rows: usize,
    batch_age: Duration,
}

impl PendingLogExport {
    /// Reads the configuration; `None` without a destination.
    ///
    /// # Errors
    ///
    /// A secret is unreadable.
    pub fn of(
        settings: &LogExportSettings,
        connect_timeout: Duration,
    ) -> anyhow::Result<Option<Self>> {
        let sink = Sink::of(settings, connect_timeout)?;
        Ok(sink.map(|sink| Self {
            sink,
            batch_rows: settings.batch_rows.get() as usize,
            batch_age: Duration::from_secs(settings.batch_seconds.get().into()),
        }))
    }

    /// Starts to send. `instance` tells the batches of this process from those of others.
    pub fn start(self, instance: &str, figures: LogExportFigures) -> LogExport {
        let (items, waiting) = mpsc::channel(MAX_ROWS as usize);
        let sender = BatchSender {
            sink: self.sink,
            batch_rows: self.batch_rows,
            batch_age: self.batch_age,
            instance: instance.to_owned(),
            figures: figures.clone(),
            sent: 0,
            told_at: None,
        };
        tokio::spawn(sender.run(waiting));
        LogExport { items, figures }
    }
}

impl LogExportFigures {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "log_export_rows",
            "Requests whose facts the destination has accepted",
            self.rows.clone(),
        );
        registry.register(
            "log_export_rows_dropped",
            "Requests whose facts were not exported, by reason",
            self.rows_dropped.clone(),
        );
        registry.register(
            "log_export_batches_dropped",
            "Batches that the destination did not accept",
            self.batches_dropped.clone(),
        );
    }

    fn drop_rows(&self, why: &'static str, rows: usize) {
        let dropped = self.rows_dropped.get_or_create(&DropLabels { why });
        dropped.inc_by(rows as u64);
    }
}

impl LogExport {
    /// Queues a row if there is room.
    pub fn put(&self, row: &RequestRow<'_>) {
        let Ok(line) = row.line() else {
            return;
        };
        if self.items.try_send(RowQueueItem::Row(line)).is_err() {
            self.figures.drop_rows("queue_full", 1);
        }
    }

    /// Waits until all rows are sent, but not for a destination that is too slow.
    pub async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        let flush = async {
            if self.items.send(RowQueueItem::Flush(done)).await.is_ok() {
                let _ = is_done.await;
            }
        };
        if timeout(FLUSH_TIMEOUT, flush).await.is_err() {
            tracing::warn!("the destination of the log export is too slow: the last rows are lost");
        }
    }
}

/// The task that sends batches.
struct BatchSender {
    sink: Sink,
    batch_rows: usize,
    batch_age: Duration,
    instance: String,
    figures: LogExportFigures,
    /// Number of batches so far.
    sent: u64,
    told_at: Option<Instant>,
}

impl BatchSender {
    async fn run(mut self, mut waiting: mpsc::Receiver<RowQueueItem>) {
        while let Some(first) = waiting.recv().await {
            let until = Instant::now() + self.batch_age;
            let (mut lines, mut rows) = (Vec::new(), 0);
            let mut flushed = None;
            let mut next = Some(first);
            while let Some(item) = next.take() {
                match item {
                    RowQueueItem::Row(line) => {
                        lines.extend_from_slice(&line);
                        rows += 1;
                    }
                    RowQueueItem::Flush(done) => {
                        flushed = Some(done);
                        break;
                    }
                }
                if rows < self.batch_rows {
                    next = timeout_at(until, waiting.recv()).await.ok().flatten();
                }
            }
            if rows > 0 {
                self.send(lines, rows).await;
            }
            if let Some(done) = flushed {
                let _ = done.send(());
            }
        }
    }

    async fn send(&mut self, lines: Vec<u8>, rows: usize) {
        let batch = Batch {
            name: format!("{}-{}", self.instance, self.sent),
            at: Timestamp::now(),
            lines: Bytes::from(lines),
        };
        self.sent += 1;
        match self.deliver(&batch).await {
            Ok(()) => {
                self.figures.rows.inc_by(rows as u64);
            }
            Err(error) => {
                self.figures.batches_dropped.inc();
                self.figures.drop_rows("export_failed", rows);
                self.warn(&error.why);
            }
        }
    }

    async fn deliver(&self, batch: &Batch) -> Result<(), DeliveryError> {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            match self.sink.deliver(batch).await {
                Err(error) if error.is_transient() && attempt < ATTEMPTS => {
                    tracing::debug!(why = error.why, "the log export repeats a delivery");
                    sleep(pause).await;
                    pause *= 2;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn warn(&mut self, why: &str) {
        if self.told_at.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            self.told_at = Some(Instant::now());
            tracing::warn!(
                why,
                "the destination of the log export does not accept batches; they are dropped and counted"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_rows_and_counts_them() {
        let (items, mut waiting) = mpsc::channel(1);
        let figures = LogExportFigures::default();
        let export = LogExport {
            items,
            figures: figures.clone(),
        };
        let row = |request_id| RequestRow {
            time: RequestRow::format_time(Timestamp::UNIX_EPOCH),
            request_id,
            client_request_id: None,
            trace_id: None,
            method: "GET",
            route: None,
            status: None,
            code: None,
            user: None,
            model: None,
            upstream: None,
            attempts: 0,
            tokens_input: None,
            tokens_cache_read: None,
            tokens_output: None,
            unit: None,
            quantity: None,
            microcredits: None,
            failure: None,
            annotations: &[],
            milliseconds: 0,
        };
        for id in ["one", "two", "three"] {
            export.put(&row(id));
        }
        let why = "queue_full";
        let dropped = figures.rows_dropped.get_or_create(&DropLabels { why });
        assert_eq!(dropped.get(), 2);
        let Ok(RowQueueItem::Row(line)) = waiting.try_recv() else {
            panic!("the first row waits");
        };
        let line = String::from_utf8(line).expect("UTF-8");
        assert!(
            line.starts_with("{\"time\":\"1970-01-01T00:00:00.000Z\",\"request_id\":\"one\",")
                && line.ends_with("}\n"),
            "{line}"
        );
    }
}
