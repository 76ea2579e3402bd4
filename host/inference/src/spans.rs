//! Spans of attempts, with the names of the conventions for generative AI.
//!
//! **Invariant:** a span holds nothing of a prompt or a response: weir accepts a name from a component or an upstream
//! only if it looks like a name.

use std::time::Duration;

use opentelemetry::trace::SpanKind;
use weir_catalog::Candidate;
use weir_plugins::Component;
use weir_request::context::RequestContext;
use weir_sandbox::adapter::bindings::chat::Started;
use weir_sandbox::adapter::{AdapterRequest, WorkKind};
use weir_upstream::error::ExchangeError;

use crate::work;

/// The maximum bytes of an upstream's model name.
const MAX_NAME_BYTES: usize = 128;

/// The data of an attempt.
pub(super) struct AttemptData<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) adapter: &'a Component,
    pub(super) is_stream: bool,
    pub(super) request: &'a AdapterRequest,
    /// The attempt's number within the request, from 1.
    pub(super) number: u32,
}

/// Returns the operation by the names of the conventions, which have none for some kinds.
fn operation(request: &AdapterRequest) -> &'static str {
    match request.kind() {
        WorkKind::Images => "generate_content",
        kind => kind.name(),
    }
}

/// Begins the span of an attempt.
pub(super) fn begin_attempt(context: &RequestContext, attempted: &AttemptData<'_>) {
    let AttemptData {
        candidate,
        adapter,
        is_stream,
        request: asked,
        number,
    } = *attempted;
    context.trace_attempt(|request| {
        let operation = operation(asked);
        let model = &candidate.model;
        let mut span = request.child(format!("{operation} {model}"), SpanKind::Client);
        let upstream = candidate.upstream();
        span.set("gen_ai.operation.name", operation);
        span.set("gen_ai.provider.name", upstream.name.clone());
        span.set("gen_ai.request.model", model.clone());
        span.set("gen_ai.request.stream", is_stream);
        span.set_if_known("gen_ai.output.type", work::output_type(asked));
        if let Some(base) = &upstream.base {
            span.set("server.address", base.host().to_owned());
            span.set_if_known("server.port", base.port().map(i64::from));
        }
        span.set("weir.slot", upstream.adapter.clone());
        span.set("weir.component", adapter.code().digest.to_string());
        span.set("weir.attempt", i64::from(number));
        span
    });
}

/// Ends the span; `first_token` is the time to the first data of a stream.
pub(super) fn end_attempt(
    context: &RequestContext,
    error: Option<&ExchangeError>,
    first_token: Option<Duration>,
) {
    context.note_in_attempt(|span| {
        let seconds = first_token.map(|time| time.as_secs_f64());
        span.set_if_known("gen_ai.response.time_to_first_chunk", seconds);
        match error {
            // A shortened response is a success.
            None | Some(ExchangeError::Spent) => {}
            Some(error) => span.fail(error.kind()),
        }
        span.end();
    });
}

/// Records the upstream's response id and model.
pub(super) fn note_start(context: &RequestContext, started: &Started) {
    context.note_in_attempt(|span| {
        let named = |name: &Option<String>| name.clone().filter(|name| is_name(name));
        span.set_if_known("gen_ai.response.model", named(&started.model));
        span.set_if_known("gen_ai.response.id", named(&started.id));
    });
}

/// Whether a text looks like a name: it has no spaces, unlike a prompt.
fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/@+".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_has_no_spaces() {
        for good in [
            "gpt-5",
            "models/some-2.5-pro",
            "meta.llama3:0",
            "@cf/meta/llama",
        ] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "say hello", "a\nb", "\u{e9}", &"x".repeat(129)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
