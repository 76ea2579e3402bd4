//! Export of spans: a queue, and a task that sends its spans to a collector, by OTLP over HTTP.
//!
//! **Invariant:** no request waits for a collector. If the queue is full or a send fails, the spans are dropped and
//! counted.

use std::collections::HashMap;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use weir_outgoing as outgoing;
use weir_storage::secrets::environment;

use super::settings::TelemetrySettings;

/// Capacity of the queue, in spans.
const WAITING: usize = 8_192;

/// Maximum spans in one request.
const AT_ONCE: usize = 512;

/// Time that a span waits for others to share its request.
const WAIT_FOR_MORE: Duration = Duration::from_secs(1);

/// Time limit of an export, including retries and pauses.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a stopping gateway waits for a collector.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Minimum time between two warnings that a collector refuses spans.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Path of a collector's traces below its endpoint.
const TRACES: &str = "/v1/traces";

/// Counters of exported and lost spans.
#[derive(Clone, Default)]
pub struct ExportFigures {
    exported: Counter,
    dropped: Family<DropLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    /// `queue_full` or `export_failed`.
    why: &'static str,
}

pub struct SpanQueue {
    items: mpsc::Sender<SpanQueueItem>,
    figures: ExportFigures,
    /// Recorded share of the traces that begin here.
    pub(super) share: f64,
}

enum SpanQueueItem {
    Span(Box<SpanData>),
    /// A waiter for the export of all spans before it.
    Flush(oneshot::Sender<()>),
}

/// The exporter of spans, before its start.
pub struct PendingExporter {
    exporter: SpanExporter,
    share: f64,
    service_name: String,
}

impl PendingExporter {
    /// Reads the configuration; `None` without a collector.
    ///
    /// # Errors
    ///
    /// A header's secret is unreadable, or the standard's variables are invalid.
    pub fn of(
        settings: &TelemetrySettings,
        connect_timeout: Duration,
    ) -> anyhow::Result<Option<Self>> {
        let Some(endpoint) = &settings.otlp_endpoint else {
            return Ok(None);
        };
        let mut headers = HashMap::new();
        for (name, source) in &settings.otlp_headers {
            let secret = source.read(environment);
            let secret =
                secret.map_err(|problem| anyhow::anyhow!("`otlp_headers.{name}`: {problem}"))?;
            http::HeaderValue::from_str(secret.expose())
                .map_err(|_| anyhow::anyhow!("`otlp_headers.{name}`: not a valid header value"))?;
            headers.insert(name.clone(), secret.expose().to_owned());
        }
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(outgoing::client(connect_timeout)?)
            .with_endpoint(format!("{}{TRACES}", endpoint.trim_end_matches('/')))
            .with_timeout(EXPORT_TIMEOUT)
            .with_headers(headers)
            .build()?;
        Ok(Some(Self {
            exporter,
            share: settings.sample,
            service_name: settings.service_name.clone(),
        }))
    }

    /// Sends an empty export to check that the collector accepts it.
    ///
    /// # Errors
    ///
    /// Returns the reason of a refusal.
    pub async fn probe(&self) -> Result<(), String> {
        let sent = self.exporter.export(Vec::new()).await;
        sent.map_err(|error| error.to_string())
    }

    /// Starts to send. `instance` tells this process from others of the service.
    pub fn start(self, instance: &str, figures: ExportFigures) -> SpanQueue {
        let Self {
            mut exporter,
            share,
            service_name,
        } = self;
        // The resource includes `OTEL_RESOURCE_ATTRIBUTES`.
        let resource = Resource::builder()
            .with_service_name(service_name)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()));
        exporter.set_resource(&resource.build());
        let (items, waiting) = mpsc::channel(WAITING);
        let sending = SpanSender {
            exporter,
            figures: figures.clone(),
            told_at: None,
        };
        tokio::spawn(sending.run(waiting));
        SpanQueue {
            items,
            figures,
            share,
        }
    }
}

impl ExportFigures {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "trace_spans_exported",
            "Spans that a collector has accepted",
            self.exported.clone(),
        );
        registry.register(
            "trace_spans_dropped",
            "Spans that were not exported, by reason",
            self.dropped.clone(),
        );
    }

    fn drop(&self, why: &'static str, spans: usize) {
        let dropped = self.dropped.get_or_create(&DropLabels { why });
        dropped.inc_by(spans as u64);
    }
}

impl SpanQueue {
    /// Queues a span if there is room.
    pub(super) fn put(&self, span: SpanData) {
        if self
            .items
            .try_send(SpanQueueItem::Span(Box::new(span)))
            .is_err()
        {
            self.figures.drop("queue_full", 1);
        }
    }

    pub(super) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        let flush = async {
            if self.items.send(SpanQueueItem::Flush(done)).await.is_ok() {
                let _ = is_done.await;
            }
        };
        if timeout(FLUSH_TIMEOUT, flush).await.is_err() {
            tracing::warn!("the collector of traces is too slow: the last spans are lost");
        }
    }
}

/// The task that sends spans.
struct SpanSender {
    exporter: SpanExporter,
    figures: ExportFigures,
    told_at: Option<Instant>,
}

impl SpanSender {
    async fn run(mut self, mut waiting: mpsc::Receiver<SpanQueueItem>) {
        let mut spans = Vec::new();
        while let Some(first) = waiting.recv().await {
            let until = Instant::now() + WAIT_FOR_MORE;
            let mut next = Some(first);
            let mut flushed = None;
            while let Some(item) = next.take() {
                match item {
                    SpanQueueItem::Span(span) => spans.push(*span),
                    SpanQueueItem::Flush(done) => {
                        flushed = Some(done);
                        break;
                    }
                }
                if spans.len() < AT_ONCE {
                    next = timeout_at(until, waiting.recv()).await.ok().flatten();
                }
            }
            if !spans.is_empty() {
                self.send(std::mem::take(&mut spans)).await;
            }
            if let Some(done) = flushed {
                let _ = done.send(());
            }
        }
    }

    async fn send(&mut self, spans: Vec<SpanData>) {
        let number = spans.len();
        let why = match timeout(EXPORT_TIMEOUT, self.exporter.export(spans)).await {
            Ok(Ok(())) => {
                self.figures.exported.inc_by(number as u64);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the export took too long".to_owned(),
        };
        self.figures.drop("export_failed", number);
        if self.told_at.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            self.told_at = Some(Instant::now());
            tracing::warn!(
                why,
                "the collector of traces does not accept spans; they are dropped and counted"
            );
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A queue of this capacity that no task empties, and its counters.
    pub(crate) fn full_at(room: usize, share: f64) -> (SpanQueue, Waiting) {
        let (items, waiting) = mpsc::channel(room);
        let figures = ExportFigures::default();
        let queue = SpanQueue {
            items,
            figures: figures.clone(),
            share,
        };
        (queue, Waiting { waiting, figures })
    }

    /// The spans in the queue.
    pub(crate) struct Waiting {
        waiting: mpsc::Receiver<SpanQueueItem>,
        figures: ExportFigures,
    }

    impl Waiting {
        pub(crate) fn names(&mut self) -> Vec<String> {
            let waiting = std::iter::from_fn(|| self.waiting.try_recv().ok());
            let spans = waiting.filter_map(|item| match item {
                SpanQueueItem::Span(span) => Some(span.name.into_owned()),
                SpanQueueItem::Flush(_) => None,
            });
            spans.collect()
        }

        pub(crate) fn dropped(&self) -> u64 {
            let why = "queue_full";
            self.figures
                .dropped
                .get_or_create(&DropLabels { why })
                .get()
        }
    }
}
