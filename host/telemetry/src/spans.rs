//! Spans: records of requests and runs, made at a few important places.
//!
//! **Invariant:** without recording there is no span, and its attributes are not even assembled.
//! **Invariant:** a span has names from the configuration, numbers, error kinds and ids; never a client's or a
//! model's text, no path, no key.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use opentelemetry::trace::{Link, SpanId, SpanKind, Status, TraceId};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};

use super::export::SpanQueue;
use super::propagation::TraceContext;

/// The source of spans. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<SpanDestination>>);

/// The destination of spans, and the sampled share of traces.
struct SpanDestination {
    queue: SpanQueue,
    /// A trace that begins here is recorded if the last 32 bits of its id are less than this.
    sampled_below: u64,
    scope: InstrumentationScope,
}

/// An operation with a duration. The span ends on drop, or at [`Span::end`].
pub struct Span {
    recording: Arc<SpanDestination>,
    context: TraceContext,
    began: Instant,
    /// `None` only after export.
    data: Option<SpanData>,
    is_over: bool,
}

pub struct TracedRequest {
    pub context: TraceContext,
    /// `None` if the request is not recorded.
    pub span: Option<Box<Span>>,
}

impl Tracer {
    /// A tracer whose spans go to this queue.
    pub fn recording(queue: SpanQueue) -> Self {
        let scope = InstrumentationScope::builder("weir").with_version(env!("CARGO_PKG_VERSION"));
        Self(Some(Arc::new(SpanDestination {
            sampled_below: (queue.share * (1_u64 << 32) as f64) as u64,
            queue,
            scope: scope.build(),
        })))
    }

    /// Returns whether anything may be recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a request's span in this process; `None` if recording is off. The originator of its trace decides
    /// whether it is recorded.
    pub fn serve(
        &self,
        name: impl FnOnce() -> Cow<'static, str>,
        client: Option<&TraceContext>,
    ) -> Option<TracedRequest> {
        let recording = self.0.as_ref()?;
        let random = RandomIdGenerator::default();
        let Some(client) = client else {
            let trace_id = random.new_trace_id();
            let is_sampled = recording.samples(trace_id);
            let context = TraceContext::new(trace_id, random.new_span_id(), is_sampled);
            let span = is_sampled
                .then(|| recording.begin(name(), SpanKind::Server, context.clone(), None));
            return Some(TracedRequest { context, span });
        };
        if !client.is_sampled {
            // Unchanged, as the standard asks of a non-participant.
            let context = client.clone();
            return Some(TracedRequest {
                context,
                span: None,
            });
        }
        let context = client.with_span(random.new_span_id(), true);
        let mut span = recording.begin(name(), SpanKind::Server, context.clone(), Some(client));
        if let Some(data) = &mut span.data {
            data.parent_span_is_remote = true;
        }
        let span = Some(span);
        Some(TracedRequest { context, span })
    }

    /// Begins a trace for an operation with an id of its own, which is the same in every process that works on it;
    /// `None` if recording is off.
    pub fn begin_trace(&self, trace_id: TraceId, span_id: SpanId) -> Option<TraceContext> {
        let recording = self.0.as_ref()?;
        let is_sampled = recording.samples(trace_id);
        Some(TraceContext::new(trace_id, span_id, is_sampled))
    }

    pub fn new_span_id(&self) -> SpanId {
        RandomIdGenerator::default().new_span_id()
    }

    /// Returns the span at this place in a recorded trace. The process that ends the operation records it, once, even
    /// if the operation went through several processes.
    pub fn span_at(
        &self,
        name: impl Into<Cow<'static, str>>,
        kind: SpanKind,
        context: &TraceContext,
        parent: Option<&TraceContext>,
    ) -> Option<Box<Span>> {
        let recording = self.0.as_ref().filter(|_| context.is_sampled)?;
        Some(recording.begin(name.into(), kind, context.clone(), parent))
    }

    /// Waits for the export of all ended spans, within a time limit.
    pub async fn flush(&self) {
        if let Some(recording) = &self.0 {
            recording.queue.flush().await;
        }
    }
}

impl SpanDestination {
    /// Decides the same on every node: a trace is recorded completely or not at all. Only the last 32 bits decide: in
    /// a UUIDv7, the bits before them count up within a millisecond, and simultaneous traces would share one
    /// decision.
    fn samples(&self, trace_id: TraceId) -> bool {
        let [.., a, b, c, d] = trace_id.to_bytes();
        u64::from(u32::from_be_bytes([a, b, c, d])) < self.sampled_below
    }

    fn begin(
        self: &Arc<Self>,
        name: Cow<'static, str>,
        span_kind: SpanKind,
        context: TraceContext,
        parent: Option<&TraceContext>,
    ) -> Box<Span> {
        let now = SystemTime::now();
        let data = SpanData {
            span_context: context.to_span_context(false),
            parent_span_id: parent.map_or(SpanId::INVALID, |parent| parent.span_id),
            parent_span_is_remote: false,
            span_kind,
            name,
            start_time: now,
            end_time: now,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        };
        Box::new(Span {
            recording: self.clone(),
            context,
            began: Instant::now(),
            data: Some(data),
            is_over: false,
        })
    }
}

impl Span {
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    pub fn child(&self, name: impl Into<Cow<'static, str>>, kind: SpanKind) -> Box<Self> {
        let id = RandomIdGenerator::default().new_span_id();
        let context = self.context.with_span(id, true);
        self.recording
            .begin(name.into(), kind, context, Some(&self.context))
    }

    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(data) = &mut self.data {
            data.attributes.push(KeyValue::new(key, value));
        }
    }

    /// Sets an attribute, if its value is known.
    pub fn set_if_known(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Marks the span as failed, with the kind of error.
    pub fn fail(&mut self, error: &'static str) {
        self.set("error.type", error);
        if let Some(data) = &mut self.data {
            data.status = Status::error("");
        }
    }

    /// Sets an earlier start time.
    pub fn began_at(&mut self, moment: SystemTime) {
        if let Some(data) = &mut self.data {
            data.start_time = moment.min(data.end_time);
        }
    }

    /// Links another trace to this span.
    pub fn link(&mut self, context: &TraceContext) {
        if let Some(data) = &mut self.data {
            let link = Link::new(context.to_span_context(true), Vec::new(), 0);
            data.links.links.push(link);
        }
    }

    /// Sets the end time; attributes may still be set.
    pub fn end(&mut self) {
        if let Some(data) = &mut self.data
            && !self.is_over
        {
            self.is_over = true;
            data.end_time += self.began.elapsed();
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.end();
        if let Some(data) = self.data.take() {
            self.recording.queue.put(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_storage::ids;

    use super::*;
    use crate::export::tests::full_at;

    fn serve(tracer: &Tracer, name: &'static str, client: Option<&TraceContext>) -> TracedRequest {
        let served = tracer.serve(|| name.into(), client);
        served.expect("it is on")
    }

    #[test]
    fn what_the_queue_has_no_room_for_is_dropped_and_counted() {
        let (queue, mut waiting) = full_at(2, 1.0);
        let tracer = Tracer::recording(queue);
        for name in ["a", "b", "c", "d", "e"] {
            drop(serve(&tracer, name, None));
        }
        assert_eq!(waiting.names(), ["a", "b"]);
        assert_eq!(waiting.dropped(), 3);
    }

    #[test]
    fn a_share_of_the_traces_that_begin_here_is_recorded_and_of_others_what_they_say() {
        for (share, least, most) in [(0.0, 0, 0), (0.25, 150, 350), (1.0, 1_000, 1_000)] {
            let (queue, _waiting) = full_at(1, share);
            let tracer = Tracer::recording(queue);
            let own: Vec<_> = (0..1_000).map(|_| serve(&tracer, "own", None)).collect();
            for traced in &own {
                assert_eq!(traced.context.is_sampled, traced.span.is_some());
            }
            let recorded = own.iter().filter(|traced| traced.span.is_some()).count();
            assert!((least..=most).contains(&recorded), "{recorded} of {share}");
            let runs = (0..1_000).filter_map(|_| {
                let trace_id = TraceId::from_hex(&ids::swarm_id()).expect("hexadecimal");
                tracer.begin_trace(trace_id, SpanId::from(1))
            });
            let recorded = runs.filter(|run| run.is_sampled).count();
            assert!(
                (least..=most).contains(&recorded),
                "{recorded} runs of {share}"
            );
            for is_sampled in [false, true] {
                let client = TraceContext::new(TraceId::from(1), SpanId::from(2), is_sampled);
                let traced = serve(&tracer, "client's", Some(&client));
                assert_eq!(traced.span.is_some(), is_sampled);
                assert_eq!(traced.context.trace_id, client.trace_id);
                assert_eq!(traced.context.span_id != client.span_id, is_sampled);
            }
        }
    }

    #[test]
    fn a_span_that_ends_before_it_is_sent_lasts_no_longer() {
        let (queue, _waiting) = full_at(1, 1.0);
        let mut traced = serve(&Tracer::recording(queue), "x", None);
        let span = traced.span.as_mut().expect("it is recorded");
        span.end();
        let end = |span: &Span| span.data.as_ref().map(|data| data.end_time);
        let ended = end(span);
        span.end();
        assert_eq!(end(span), ended);
        span.began_at(SystemTime::UNIX_EPOCH);
        let data = span.data.as_ref().expect("it is not sent");
        assert_eq!(data.start_time, SystemTime::UNIX_EPOCH);
        span.began_at(SystemTime::now() + std::time::Duration::from_secs(9));
        let data = span.data.as_ref().expect("it is not sent");
        assert!(data.start_time <= data.end_time, "a clock that is ahead");
    }
}
