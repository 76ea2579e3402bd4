//! The ids of the current request, in each line of the log.
//!
//! A span would cost each request 6,000 instructions: the subscriber would format it, and would be called at each poll.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use opentelemetry::trace::TraceId;
use tokio::task::futures::TaskLocalFuture;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::format::LogFormat;

tokio::task_local! {
    static CURRENT: RequestIds;
}

/// The ids of a request. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestIds {
    /// weir's id of the request.
    pub request_id: Arc<str>,
    pub trace_id: Option<TraceId>,
}

impl RequestIds {
    /// Returns work whose lines carry these ids.
    pub fn scope<F: Future>(self, work: F) -> TaskLocalFuture<Self, F> {
        CURRENT.scope(self, work)
    }

    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }
}

/// Writes lines in a format, with the ids of the current request.
pub(super) struct WithRequestIds<F> {
    pub(super) format: LogFormat,
    pub(super) lines: F,
}

impl<S, N, F> FormatEvent<S, N> for WithRequestIds<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        // The request's own line has no parent, and names the ids itself.
        let current = RequestIds::current().filter(|_| !event.is_root());
        let Some(RequestIds {
            request_id,
            trace_id,
        }) = current
        else {
            return self.lines.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.lines
            .format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end();
        match self.format {
            LogFormat::Text => {
                write!(writer, "{line} request_id={request_id:?}")?;
                if let Some(trace_id) = trace_id {
                    write!(writer, " trace_id={trace_id}")?;
                }
                writeln!(writer)
            }
            LogFormat::Json => {
                let fields = line.strip_suffix('}').unwrap_or(line);
                write!(
                    writer,
                    "{fields},\"span\":{{\"name\":\"request\",\"request_id\":{request_id:?}"
                )?;
                if let Some(trace_id) = trace_id {
                    write!(writer, ",\"trace_id\":\"{trace_id}\"")?;
                }
                writeln!(writer, "}}}}")
            }
        }
    }
}
