//! Spans of the processor's events: the arrival of an event, and each attempt to apply it.
//!
//! An attempt may happen later than the arrival, and on another node. Each event therefore has its own trace, with ids
//! derived from the event's id. The trace and the request that brought the event are linked.

use std::time::SystemTime;

use opentelemetry::trace::{SpanId, SpanKind, TraceId};
use sha2::{Digest, Sha256};
use weir_telemetry::propagation::TraceContext;
use weir_telemetry::spans::{Span, Tracer};

use crate::event_store::{EventState, StoredPaymentEvent};
use crate::events::PaymentEvent;

/// Maximum length of an event's name in a span. The processor chooses the name.
const NAME_CHARACTERS: usize = 64;

/// Records the arrival of a new event.
pub(super) fn received(
    tracer: &Tracer,
    event: &PaymentEvent,
    since: SystemTime,
    link_trace: impl FnOnce(&mut Span),
) {
    let Some(place) = place(tracer, &event.id) else {
        return;
    };
    let kind = SpanKind::Consumer;
    if let Some(mut span) = tracer.span_at("receive payment event", kind, &place, None) {
        span.began_at(since);
        describe(&mut span, &event.id, &event.name);
        link_trace(&mut span);
    }
}

pub(super) fn begin_attempt(tracer: &Tracer, kept: &StoredPaymentEvent) -> Option<Box<Span>> {
    let event = place(tracer, &kept.id)?;
    let place = event.with_span(tracer.new_span_id(), event.is_sampled);
    let kind = SpanKind::Consumer;
    let mut span = tracer.span_at("apply payment event", kind, &place, Some(&event))?;
    describe(&mut span, &kept.id, &kept.name);
    span.set("weir.attempt", kept.attempts + 1);
    Some(span)
}

pub(super) fn end_attempt(span: Option<Box<Span>>, state: EventState) {
    if let Some(mut span) = span {
        span.set("weir.payment.state", state.name());
        if state == EventState::Failed {
            span.fail(state.name());
        }
    }
}

fn describe(span: &mut Span, id: &str, name: &str) {
    let name: String = name.chars().take(NAME_CHARACTERS).collect();
    span.set("weir.payment.event", name);
    span.set("weir.payment.event_id", id.to_owned());
}

/// The trace context of an event, the same on all nodes.
fn place(tracer: &Tracer, id: &str) -> Option<TraceContext> {
    if !tracer.is_on() {
        return None;
    }
    let digest: [u8; 32] = Sha256::digest(format!("payment event\n{id}")).into();
    let (trace, rest) = digest.split_first_chunk()?;
    let (span, _) = rest.split_first_chunk()?;
    tracer.begin_trace(TraceId::from_bytes(*trace), SpanId::from_bytes(*span))
}
