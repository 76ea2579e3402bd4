//! W3C Trace Context: the trace that a request belongs to, read from its headers and passed to its own requests.
//!
//! If nothing is recorded, a client's context is passed on unchanged. A malformed context counts as none: a new trace
//! begins.
//!
//! `TraceContextPropagator` of `opentelemetry_sdk` does not fit: it accepts malformed and repeated headers, rewrites a
//! later version's `traceparent` as version 00, and sets no limit on `tracestate`.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The header with the trace, and with the span that the request comes from.
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// The header in which tracing systems leave notes for one another.
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");

/// Maximum bytes of a `tracestate` that is passed on; a longer one is dropped, as the standard allows.
const MAX_STATE_BYTES: usize = 512;

/// A place in a trace.
#[derive(Debug, Clone)]
pub struct TraceContext {
    pub trace_id: TraceId,
    /// The parent of further spans.
    pub span_id: SpanId,
    /// The trace is recorded.
    pub is_sampled: bool,
    /// The client's own text, of any version.
    as_it_came: Option<HeaderValue>,
    state: Option<HeaderValue>,
}

impl TraceContext {
    /// The context of a trace that begins here.
    pub fn new(trace_id: TraceId, span_id: SpanId, is_sampled: bool) -> Self {
        Self {
            trace_id,
            span_id,
            is_sampled,
            as_it_came: None,
            state: None,
        }
    }

    /// Reads a request's context; `None` if absent or malformed.
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACE_PARENT).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let context = Self::parse(value.to_str().ok()?)?;
        Some(Self {
            as_it_came: Some(value.clone()),
            state: state(headers),
            ..context
        })
    }

    /// Parses `00-<32 digits: the trace>-<16 digits: the span>-<2 digits: flags>`, lower-case hexadecimal. Later
    /// versions may append fields.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = |digits: usize| {
            let part = parts.next()?;
            let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            (part.len() == digits && part.bytes().all(is_hex)).then_some(part)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let trace_id = TraceId::from_hex(trace).ok()?;
        let span_id = SpanId::from_hex(span).ok()?;
        let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
        let is_legal = version != "ff"
            && (version != "00" || parts.next().is_none())
            && trace_id != TraceId::INVALID
            && span_id != SpanId::INVALID;
        is_legal.then(|| Self::new(trace_id, span_id, flags.is_sampled()))
    }

    /// The context of another span of the same trace.
    pub fn with_span(&self, span_id: SpanId, is_sampled: bool) -> Self {
        Self {
            trace_id: self.trace_id,
            span_id,
            is_sampled,
            as_it_came: None,
            state: self.state.clone(),
        }
    }

    /// Writes the context into a request's headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        let parent = match &self.as_it_came {
            Some(parent) => Ok(parent.clone()),
            None => HeaderValue::try_from(self.to_string()),
        };
        if let Ok(parent) = parent {
            headers.insert(TRACE_PARENT, parent);
            if let Some(state) = &self.state {
                headers.insert(TRACE_STATE, state.clone());
            }
        }
    }

    /// Returns the context in the exporters' type.
    pub(super) fn to_span_context(&self, is_remote: bool) -> SpanContext {
        let flags = TraceFlags::default().with_sampled(self.is_sampled);
        let state = self.state.as_ref().and_then(|state| state.to_str().ok());
        let state = state.and_then(|state| state.parse::<TraceState>().ok());
        let state = state.unwrap_or_default();
        SpanContext::new(self.trace_id, self.span_id, flags, is_remote, state)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace_id, span_id, ..
        } = self;
        let flags = u8::from(self.is_sampled);
        write!(formatter, "00-{trace_id}-{span_id}-{flags:02x}")
    }
}

/// Returns the request's `tracestate` as one value, if it is well-formed and not too long.
fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(TRACE_STATE).iter();
    let first = values.next()?;
    let all = match values.next() {
        None => first.clone(),
        Some(second) => {
            let all = [first, second].into_iter().chain(values);
            let all: Vec<_> = all.map(HeaderValue::as_bytes).collect();
            HeaderValue::from_bytes(&all.join(&b',')).ok()?
        }
    };
    let text = all.to_str().ok()?;
    let is_sound =
        (1..=MAX_STATE_BYTES).contains(&text.len()) && text.parse::<TraceState>().is_ok();
    is_sound.then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
        let value = |value: &str| HeaderValue::try_from(value).expect("a legal value");
        let mut headers = HeaderMap::new();
        for (name, text) in values {
            headers.append(*name, value(text));
        }
        headers
    }

    #[test]
    fn a_trace_is_taken_only_in_the_form_of_trace_context() {
        let sound = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let found = |value: &str| {
            let context = TraceContext::read(&headers(&[("traceparent", value)]));
            context.map(|context| (context.trace_id.to_string(), context.is_sampled))
        };
        assert_eq!(found(&sound), Some((TRACE.to_owned(), true)));
        let unsampled = sound.replace("-01", "-00");
        assert_eq!(found(&unsampled), Some((TRACE.to_owned(), false)));
        let later = format!("01-{TRACE}-00f067aa0ba902b7-01-more");
        assert_eq!(found(&later), Some((TRACE.to_owned(), true)));
        for bad in [
            "",
            TRACE,
            &sound.to_uppercase(),
            &format!("{sound}-more"),
            &sound.replace("00-4", "ff-4"),
            &sound.replace(TRACE, &"0".repeat(32)),
            &sound.replace("00f067aa0ba902b7", "0000000000000000"),
            &sound[..sound.len() - 1],
            &sound.replace('4', "g"),
        ] {
            assert_eq!(found(bad), None, "{bad}");
        }
        let twice = headers(&[("traceparent", &sound), ("traceparent", &sound)]);
        assert!(TraceContext::read(&twice).is_none());
    }

    #[test]
    fn what_a_client_has_sent_goes_on_unchanged_and_bounded() {
        let later = format!("cc-{TRACE}-00f067aa0ba902b7-01-what-comes-next");
        let long = format!("a={}", "x".repeat(600));
        for (states, expected) in [
            (&["a=1,b=2"][..], Some("a=1,b=2")),
            (&["a=1", "b=2"], Some("a=1,b=2")),
            (&[], None),
            (&[""], None),
            (&["no list"], None),
            (&[&long], None),
        ] {
            let states = states.iter().map(|state| ("tracestate", *state));
            let all: Vec<_> = [("traceparent", &*later)]
                .into_iter()
                .chain(states)
                .collect();
            let context = TraceContext::read(&headers(&all)).expect("it is sound");
            let mut sent = HeaderMap::new();
            context.write(&mut sent);
            assert_eq!(sent["traceparent"], *later);
            let state = sent.get("tracestate").and_then(|state| state.to_str().ok());
            assert_eq!(state, expected);
            let child = context.with_span(SpanId::from(7), true);
            child.write(&mut sent);
            assert_eq!(
                sent["traceparent"],
                format!("00-{TRACE}-0000000000000007-01")
            );
        }
    }
}
