//! What is known of a request from its first byte to the last of its answer: its ids, and its line of the log.
//!
//! The router makes a [`RequestContext`] and hands it along. Each part of the gateway notes in it what it learns; the line
//! is written when the last one lets go, which for a model's answer is the task that settles it. So there is one line a
//! request, with its end, its tokens and its charge, also when its client has long gone.
//!
//! **Invariant:** neither a path nor a client's text is in the line, but for an id that is made of letters, digits and
//! a few marks.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::extract::{FromRequestParts, MatchedPath};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use opentelemetry::trace::SpanKind;
use serde_json::Value;
use tracing::Span;
use tracing::field::display;
use weir_dialects::ErrorWords;
use weir_errors::ApiError;
use weir_telemetry::LineLimit;
use weir_telemetry::propagation::TraceContext;
use weir_telemetry::spans::{Span as TraceSpan, Traced, Tracer};

use crate::metrics::requests::{Over, RequestMetrics, method as method_name};
use weir_ledger::{Credits, TokenCounts};
use weir_storage::ids;

/// The header of a request's id, in and out.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The header by which a client narrows the choice among a model's providers: their names, separated by commas. In an
/// answer, who has given it.
pub const WANTED_PROVIDER: HeaderName = HeaderName::from_static("x-weir-provider");

/// The header of an answer that says how many attempts it took, on whomever.
const ATTEMPTS: HeaderName = HeaderName::from_static("x-weir-attempts");

/// The header of an answer with what filters have noted, each as `slot.name=value`.
const ANNOTATIONS: HeaderName = HeaderName::from_static("x-weir-annotations");

/// Bytes of an id that a client gives its request.
const MAX_CLIENT_ID_BYTES: usize = 128;

/// Lines a second about requests that were refused for their number, or came from strangers: those cost their senders
/// nothing, and must not fill the log.
static REFUSALS: LineLimit = LineLimit::new(20);

/// What is known of a request. Cheap to clone.
#[derive(Clone)]
pub struct RequestContext(Arc<ContextState>);

struct ContextState {
    id: String,
    /// The client's own id for it.
    client_id: Option<String>,
    /// What those are told that come of it: its own span's place where it is recorded, else what its client has said.
    trace: Option<TraceContext>,
    /// Whether it has a span: where it has none, nobody looks for it.
    is_recorded: bool,
    wanted_provider: Option<String>,
    words: ErrorWords,
    method: Method,
    /// The route and not the path: people paste keys into paths, too.
    route: Option<MatchedPath>,
    started: Instant,
    /// Where it is counted when it is over.
    metrics: Option<Arc<RequestMetrics>>,
    facts: Mutex<Facts>,
}

/// What is learned of a request on its way.
#[derive(Default)]
struct Facts {
    user: Option<String>,
    model: Option<String>,
    upstream: Option<String>,
    attempts: u32,
    status: Option<StatusCode>,
    code: Option<&'static str>,
    /// Whether that is no fault of its client's.
    failed: bool,
    failure: Option<String>,
    /// What filters have noted, each as `slot.name=value`.
    annotations: Vec<String>,
    charged: Option<(TokenCounts, Credits)>,
    /// `None` where it is not recorded.
    span: Option<Box<TraceSpan>>,
    /// The last attempt's, until its charge is known.
    attempt_span: Option<Box<TraceSpan>>,
}

impl RequestContext {
    /// For a request with this head, to be counted there and recorded by that tracer.
    pub fn new(
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        route: Option<MatchedPath>,
        metrics: Option<Arc<RequestMetrics>>,
        tracer: &Tracer,
    ) -> Self {
        let client = TraceContext::read(headers);
        let traced = match tracer.is_on() && !is_probe(route.as_ref()) {
            true => tracer.serve(|| span_name(method, route.as_ref()).into(), client.as_ref()),
            false => None,
        };
        let (trace, span) = match traced {
            Some(Traced { context, span }) => (Some(context), span),
            None => (client, None),
        };
        Self(Arc::new(ContextState {
            id: ids::request_id(),
            client_id: client_id(headers),
            trace,
            is_recorded: span.is_some(),
            wanted_provider: wanted_provider(headers),
            words: ErrorWords::of(path, headers),
            method: method.clone(),
            route,
            started: Instant::now(),
            metrics,
            facts: Mutex::new(Facts {
                span,
                ..Facts::default()
            }),
        }))
    }

    /// The id that weir knows it by, like no other's: in the ledger and in the log.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The id that its client knows it by: the client's own if it has sent one, else weir's.
    pub fn shown_id(&self) -> &str {
        self.0.client_id.as_deref().unwrap_or(&self.0.id)
    }

    /// The header besides where its client's SDK looks for that id.
    pub fn vendors_id_header(&self) -> Option<HeaderName> {
        self.0.words.id_header()
    }

    /// The status that its client is told an error by.
    pub fn status_of(&self, error: &ApiError) -> StatusCode {
        self.0.words.status(error)
    }

    /// An error as its client is told it.
    pub fn error_body(&self, error: &ApiError) -> Value {
        self.0.words.body(error, self.shown_id())
    }

    /// What all lines of the log about it carry.
    pub fn span(&self) -> Span {
        let request_id = self.id();
        let trace_id = self.0.trace.as_ref().map(|trace| display(trace.trace_id));
        tracing::error_span!("request", request_id, trace_id)
    }

    /// Who calls.
    pub fn note_user(&self, user_id: &str) {
        self.facts().user = Some(user_id.to_owned());
    }

    /// What is asked for, by a name of the catalog.
    pub fn note_model(&self, model: &str) {
        self.facts().model = Some(model.to_owned());
    }

    /// The providers that its client allows, if it says so.
    pub fn wanted_provider(&self) -> Option<&str> {
        self.0.wanted_provider.as_deref()
    }

    /// Who is asked for it now, once more or for the first time, by a name of the configuration.
    pub fn note_attempt(&self, provider: &str) {
        let mut facts = self.facts();
        facts.attempts += 1;
        if facts.upstream.as_deref() != Some(provider) {
            facts.upstream = Some(provider.to_owned());
        }
    }

    /// The trace that those are told of who are asked for its sake: the attempt that is made, or what it comes of.
    pub fn trace_onward(&self) -> Option<TraceContext> {
        if self.0.is_recorded
            && let Some(attempt) = &self.facts().attempt_span
        {
            return Some(attempt.context().clone());
        }
        self.0.trace.clone()
    }

    /// The beginning of a part of it, if it is recorded.
    pub fn trace_part(&self, name: &'static str) -> Option<Box<TraceSpan>> {
        if !self.0.is_recorded {
            return None;
        }
        let facts = self.facts();
        let span = facts.span.as_ref()?;
        Some(span.child(name, SpanKind::Internal))
    }

    /// Has its span, if it is recorded, and one of another trace say of one another that they belong together.
    pub fn link_trace(&self, other: &mut TraceSpan) {
        if let Some(span) = &mut self.facts().span {
            span.link(other.context());
            other.link(span.context());
        }
    }

    /// The beginning of an attempt on an upstream, if it is recorded; its span ends with the attempt, and is kept until its
    /// charge is known.
    pub fn trace_attempt(&self, begin: impl FnOnce(&TraceSpan) -> Box<TraceSpan>) {
        if !self.0.is_recorded {
            return;
        }
        let mut facts = self.facts();
        if let Some(span) = &facts.span {
            facts.attempt_span = Some(begin(span));
        }
    }

    /// Notes something about the attempt that is made, if it is recorded.
    pub fn note_in_attempt(&self, note: impl FnOnce(&mut TraceSpan)) {
        if self.0.is_recorded
            && let Some(span) = &mut self.facts().attempt_span
        {
            note(span);
        }
    }

    /// What a filter says of it, of letters, digits and a few marks.
    pub fn note_annotation(&self, annotation: String) {
        self.facts().annotations.push(annotation);
    }

    /// Shows who was asked last, and how many attempts there were, if there was any; and what filters have noted.
    pub fn show_facts(&self, headers: &mut HeaderMap) {
        let facts = self.facts();
        if !facts.annotations.is_empty()
            && let Ok(annotations) = HeaderValue::try_from(facts.annotations.join(", "))
        {
            headers.insert(ANNOTATIONS, annotations);
        }
        let provider = facts.upstream.as_deref().map(HeaderValue::from_str);
        if let Some(Ok(provider)) = provider {
            headers.insert(WANTED_PROVIDER, provider);
            headers.insert(ATTEMPTS, facts.attempts.into());
        }
    }

    /// What it was charged, and for what.
    pub fn note_charge(&self, tokens: TokenCounts, credits: Credits) {
        self.facts().charged = Some((tokens, credits));
    }

    /// Why no answer came of it, in words for operators.
    pub fn note_failure(&self, why: impl ToString) {
        self.facts().failure = Some(why.to_string());
    }

    /// What its client is told in the end, though the answer had begun with a success.
    pub fn note_error(&self, error: &ApiError) {
        let mut facts = self.facts();
        facts.code = Some(error.code());
        facts.failed = error.status().is_server_error();
    }

    /// The head of its answer.
    pub fn note_answer(&self, status: StatusCode, error: Option<&ApiError>) {
        let mut facts = self.facts();
        facts.status = Some(status);
        facts.failed |= status.is_server_error();
        facts.code = error.map(ApiError::code).or(facts.code);
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // Missing only where a handler is called outside the router.
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_else(|| {
            let (path, headers) = (parts.uri.path(), &parts.headers);
            Self::new(&parts.method, path, headers, None, None, &Tracer::default())
        }))
    }
}

impl Drop for ContextState {
    fn drop(&mut self) {
        let mut facts =
            std::mem::take(self.facts.get_mut().unwrap_or_else(PoisonError::into_inner));
        let span_id = facts.span.as_ref().map(|span| span.context().span_id);
        self.end_spans(&mut facts);
        let route = self.route.as_ref().map(MatchedPath::as_str);
        let trace_id = self.trace.as_ref().map(|trace| trace.trace_id);
        if let Some(metrics) = &self.metrics {
            metrics.over(&Over {
                method: &self.method,
                route,
                status: facts.status,
                code: facts.code,
                failed: facts.failed,
                took: self.started.elapsed(),
                trace_id,
                model: facts.model.as_deref(),
                provider: facts.upstream.as_deref(),
                charged: facts.charged,
            });
        }
        let is_error = facts.code.is_some() || facts.status.is_some_and(|s| s.is_client_error());
        let costs_nothing = is_error
            && (facts.user.is_none()
                || matches!(facts.status.map(|s| s.as_u16()), Some(429 | 503)));
        let suppressed = match costs_nothing {
            true => match REFUSALS.admit() {
                Some(suppressed) => (suppressed > 0).then_some(suppressed),
                None => return,
            },
            false => None,
        };
        let is_probe = !is_error && is_probe(self.route.as_ref());
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    parent: None,
                    request_id = self.id,
                    client_request_id = self.client_id,
                    trace_id = trace_id.map(display),
                    span_id = span_id.map(display),
                    method = %self.method,
                    route,
                    status = facts.status.map(|status| status.as_u16()),
                    code = facts.code,
                    user = facts.user,
                    model = facts.model,
                    upstream = facts.upstream,
                    attempts = (facts.attempts > 0).then_some(facts.attempts),
                    tokens_input = facts.charged.map(|(tokens, _)| tokens.input),
                    tokens_output = facts.charged.map(|(tokens, _)| tokens.output),
                    credits = facts.charged.and_then(|(_, credits)| credits.to_json().as_f64()),
                    failure = facts.failure,
                    annotations = (!facts.annotations.is_empty())
                        .then(|| facts.annotations.join(", ")),
                    milliseconds = self.started.elapsed().as_millis() as u64,
                    suppressed,
                    "{}",
                    if facts.status.is_some() { "answered" } else { "the client hung up" },
                )
            };
        }
        match is_probe {
            true => line!(debug),
            false => line!(info),
        }
    }
}

impl ContextState {
    /// Ends what is recorded, with all that is known by now.
    fn end_spans(&self, facts: &mut Facts) {
        let Some(mut span) = facts.span.take() else {
            return;
        };
        if let Some(mut attempt) = facts.attempt_span.take()
            && let Some((tokens, credits)) = facts.charged
        {
            attempt.set("gen_ai.usage.input_tokens", tokens.input as i64);
            attempt.set("gen_ai.usage.output_tokens", tokens.output as i64);
            attempt.set("weir.credits", credits.micro() as f64 / 1e6);
        }
        span.set("http.request.method", method_name(&self.method));
        let route = self.route.as_ref().map(|route| route.as_str().to_owned());
        span.set_if_known("http.route", route);
        span.set("weir.request_id", self.id.clone());
        span.set_if_known("user.id", facts.user.clone());
        span.set_if_known("weir.model", facts.model.clone());
        if facts.attempts > 0 {
            span.set("weir.attempts", i64::from(facts.attempts));
        }
        let status = facts.status.map(|status| status.as_u16());
        span.set_if_known("http.response.status_code", status.map(i64::from));
        match (facts.code, status) {
            // What is the client's doing is no error of the server's.
            (Some(code), Some(400..500)) => span.set("error.type", code),
            (Some(code), _) => span.fail(code),
            (None, None) => span.set("error.type", "hung_up"),
            (None, Some(_)) => {}
        }
    }
}

/// Probes ask every few seconds.
fn is_probe(route: Option<&MatchedPath>) -> bool {
    let route = route.map(MatchedPath::as_str);
    matches!(route, Some("/health" | "/health/ready" | "/metrics"))
}

/// The method and the route: a path would name whatever strangers think of.
fn span_name(method: &Method, route: Option<&MatchedPath>) -> String {
    let method = method_name(method);
    match route {
        Some(route) => format!("{method} {}", route.as_str()),
        None => method.to_owned(),
    }
}

/// The id that a client gives its request, if that can stand in a header, an error and a log.
fn client_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_legal = (1..=MAX_CLIENT_ID_BYTES).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:=+/@".contains(&byte));
    is_legal.then(|| id.to_owned())
}

/// The providers that a client allows, as it writes them; what is no text names none.
fn wanted_provider(headers: &HeaderMap) -> Option<String> {
    let wanted = headers.get_all(WANTED_PROVIDER).iter();
    let wanted: Vec<_> = wanted
        .map(|value| value.to_str().unwrap_or_default())
        .collect();
    (!wanted.is_empty()).then(|| wanted.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let value = HeaderValue::try_from(value).expect("a legal value");
        HeaderMap::from_iter([(HeaderName::from_static(name), value)])
    }

    #[test]
    fn a_clients_id_is_short_and_harmless() {
        let found = |value: &str| client_id(&headers("x-request-id", value));
        for good in [
            "a",
            "Root=1-67891233-abcdef012345678912345678",
            &"x".repeat(128),
        ] {
            assert_eq!(found(good).as_deref(), Some(good));
        }
        for bad in ["", "a b", "a\"b", "<b>", "a\tb", &"x".repeat(129)] {
            assert_eq!(found(bad), None, "{bad:?}");
        }
    }
}
