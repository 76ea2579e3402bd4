//! The context of a request from its first byte to the last of its response: its ids, and its log line.
//!
//! The router creates a [`RequestContext`] and passes it on. Each part of the gateway records facts in it. The log line
//! is written when the last reference is dropped; for a model's response, that is the task that settles it. Each
//! request therefore has one line, with its end, its tokens and its charge, even if its client has disconnected long
//! before.
//!
//! **Invariant:** the line contains neither a path nor a client's text, except an id of letters, digits and a few
//! punctuation marks.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, MatchedPath};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use opentelemetry::trace::SpanKind;
use serde_json::Value;
use tracing::Level;
use weir_dialects::ErrorFormat;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{Credits, Quantity, TokenCounts};
use weir_sandbox::Digest;
use weir_storage::ids;
use weir_telemetry::LineLimit;
use weir_telemetry::propagation::TraceContext;
use weir_telemetry::request_ids::RequestIds;
use weir_telemetry::request_line::RequestLine;
use weir_telemetry::spans::{Span as TraceSpan, TracedRequest, Tracer};

use crate::content_log::content::{LoggedContent, LoggedResponse};
use crate::content_log::{ContentLog, ContentLogChoice, EndedContent, LoggedError, LoggedRequest};
use crate::failed_requests::{AccountError, FailedAttempt, FailedRequest, FailedRequests};
use crate::log_export::{LogExport, RequestRow};
use crate::metrics::requests::{CompletedRequest, RequestMetrics, method as method_name};
use crate::traffic::{EndedCall, Fault, Traffic};

/// The header of a request's id, in requests and responses.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The header with the provider that served a response. In a request, the providers that the client allows.
pub const PROVIDER: HeaderName = HeaderName::from_static("x-weir-provider");

/// The response header with the number of attempts, over all providers.
const ATTEMPTS: HeaderName = HeaderName::from_static("x-weir-attempts");

/// The response header with the filters' annotations, each as `slot.name=value`.
const ANNOTATIONS: HeaderName = HeaderName::from_static("x-weir-annotations");

/// The response header with the result of the response cache.
const CACHE: HeaderName = HeaderName::from_static("x-weir-cache");

/// Maximum bytes of a client's own request id.
const MAX_CLIENT_ID_BYTES: usize = 128;

/// Log lines a second about rate-limited and anonymous requests: they cost their senders nothing, and must not fill the
/// log.
static REFUSALS: LineLimit = LineLimit::new(20);

/// The context of a request. Cheap to clone.
#[derive(Clone)]
pub struct RequestContext(Arc<ContextState>);

/// The result of the response cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheStatus {
    /// The response is a stored one of this age.
    Hit {
        /// The time since it was stored.
        age: Duration,
    },
    /// The cache has no response.
    Miss,
    /// weir did not look for a response.
    Bypass,
}

impl CacheStatus {
    /// The name in the header and in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hit { .. } => "hit",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
        }
    }
}

struct ContextState {
    id: Arc<str>,
    /// The client's own id of the request.
    client_id: Option<String>,
    /// The trace context for outgoing requests: the request's own span if it is recorded, else the client's trace
    /// context.
    trace: Option<TraceContext>,
    /// Whether the request has a span; saves the lock otherwise.
    is_recorded: bool,
    /// The client's wishes in headers: weir's own, and `Cache-Control`.
    asked: Vec<(HeaderName, String)>,
    words: ErrorFormat,
    method: Method,
    /// The route instead of the path: people paste keys into paths, too.
    route: Option<MatchedPath>,
    started: Instant,
    observers: RequestObservers,
    facts: Mutex<Facts>,
}

/// The receivers of a completed request's facts.
#[derive(Default)]
pub struct RequestObservers {
    /// The metrics that count it.
    pub metrics: Option<Arc<RequestMetrics>>,
    /// The log export, if it has a destination.
    pub log_export: Option<Arc<LogExport>>,
    /// The store of failed model requests.
    pub failures: Option<Arc<FailedRequests>>,
    /// The log of prompts and responses, if there is one.
    pub content_log: Option<Arc<ContentLog>>,
    /// The sums of model requests.
    pub traffic: Option<Arc<Traffic>>,
}

/// Facts that are recorded during a request.
#[derive(Default)]
struct Facts {
    /// Whether the request calls a model.
    is_model_call: bool,
    user: Option<String>,
    /// The account of a model request; `None` for the user's personal one.
    account: Option<String>,
    /// The API key of a model request, by its id, and the key's project.
    key: Option<String>,
    project: Option<String>,
    model: Option<String>,
    upstream: Option<String>,
    /// The component of the last attempt.
    adapter: Option<Digest>,
    /// The providers of earlier attempts.
    earlier_upstreams: Vec<String>,
    attempts: u32,
    /// The number of the last attempt's credential, if it has one.
    credential: Option<u32>,
    /// The failed attempts: the last ones.
    failed_attempts: Vec<FailedAttempt>,
    /// The error of a model request, for its account.
    error: Option<AccountError>,
    /// The fields that weir dropped from the body.
    dropped: Vec<String>,
    status: Option<StatusCode>,
    code: Option<&'static str>,
    /// Whether the failure is on the server side.
    failed: bool,
    failure: Option<String>,
    /// The filters' annotations, each as `slot.name=value`.
    annotations: Vec<String>,
    /// `None` if the response cache is off, or the endpoint has none.
    cache: Option<CacheStatus>,
    charged: Option<(TokenCounts, Credits)>,
    /// The charged usage in the unit of its price.
    quantity: Option<Quantity>,
    /// The content so far; `None` if nobody chose to store it.
    content: Option<Box<ContentDraft>>,
    /// The time from the request to the first output of a stream.
    first_token: Option<Duration>,
    /// `None` if the request is not recorded.
    span: Option<Box<TraceSpan>>,
    /// The last attempt's span, until its charge is known.
    attempt_span: Option<Box<TraceSpan>>,
}

/// The content of a request so far.
struct ContentDraft {
    for_organisation: bool,
    content: LoggedContent,
}

impl RequestContext {
    /// Makes the context of a request with this head, for these observers and recorded by this tracer.
    pub fn new(
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        route: Option<MatchedPath>,
        observers: RequestObservers,
        tracer: &Tracer,
    ) -> Self {
        let client = TraceContext::read(headers);
        let traced = match tracer.is_on() && !is_probe(route.as_ref()) {
            true => tracer.serve(|| span_name(method, route.as_ref()).into(), client.as_ref()),
            false => None,
        };
        let (trace, span) = match traced {
            Some(TracedRequest { context, span }) => (Some(context), span),
            None => (client, None),
        };
        Self(Arc::new(ContextState {
            id: ids::request_id().into(),
            client_id: client_id(headers),
            trace,
            is_recorded: span.is_some(),
            asked: asked(headers),
            words: ErrorFormat::of(path, headers),
            method: method.clone(),
            route,
            started: Instant::now(),
            observers,
            facts: Mutex::new(Facts {
                span,
                ..Facts::default()
            }),
        }))
    }

    /// Returns weir's own unique id of the request: in the ledger and in the log.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Returns the id for the client: the client's own if the request has one, else weir's.
    pub fn shown_id(&self) -> &str {
        self.0.client_id.as_deref().unwrap_or(&self.0.id)
    }

    /// Returns the additional header in which the client's SDK looks for that id.
    pub fn vendors_id_header(&self) -> Option<HeaderName> {
        self.0.words.id_header()
    }

    pub fn status_of(&self, error: &ApiError) -> StatusCode {
        self.0.words.status(error)
    }

    pub fn error_body(&self, error: &ApiError) -> Value {
        self.0.words.body(error, self.shown_id())
    }

    /// Returns the ids that all log lines of the request carry.
    pub fn ids(&self) -> RequestIds {
        RequestIds {
            request_id: self.0.id.clone(),
            trace_id: self.0.trace.as_ref().map(|trace| trace.trace_id),
        }
    }

    /// Records the caller.
    pub fn note_user(&self, user_id: &str) {
        self.facts().user = Some(user_id.to_owned());
    }

    /// Records that the request calls a model.
    pub fn note_model_call(&self) {
        self.facts().is_model_call = true;
    }

    /// Records the account, the key and the key's project of a model request.
    pub fn note_payer(&self, account: &str, key: Option<&str>, project: Option<&str>) {
        let mut facts = self.facts();
        if facts.is_model_call {
            facts.account = Some(account.to_owned());
            facts.key = key.map(str::to_owned);
            facts.project = project.map(str::to_owned);
        }
    }

    /// Begins the content of a model request whose key or organisation chose to store it.
    pub fn log_content(&self, choice: ContentLogChoice) {
        let mut facts = self.facts();
        if facts.is_model_call && choice.is_on() && self.0.observers.content_log.is_some() {
            facts.content = Some(Box::new(ContentDraft {
                for_organisation: choice.organisation,
                content: LoggedContent::default(),
            }));
        }
    }

    /// Returns whether the content of the request is stored.
    pub fn logs_content(&self) -> bool {
        self.facts().content.is_some()
    }

    /// Records the request as its provider gets it, if its content is stored.
    pub fn log_request(&self, read: impl FnOnce() -> LoggedRequest) {
        if !self.logs_content() {
            return;
        }
        let request = read();
        if let Some(draft) = &mut self.facts().content {
            draft.content.request = Some(request);
        }
    }

    /// Records the response as its client gets it, if its content is stored.
    pub fn log_response(&self, response: LoggedResponse) {
        if let Some(draft) = &mut self.facts().content {
            draft.content.response = response;
        }
    }

    /// Records the model, by its name in the catalog.
    pub fn note_model(&self, model: &str) {
        let mut facts = self.facts();
        if facts.model.as_deref() != Some(model) {
            facts.model = Some(model.to_owned());
        }
    }

    /// Returns what the client asks for in a header of weir's, `x-weir-…`, or in `Cache-Control`, as written.
    pub fn asked(&self, header: &HeaderName) -> Option<&str> {
        let mut asked = self.0.asked.iter();
        asked
            .find(|(name, _)| name == header)
            .map(|(_, text)| text.as_str())
    }

    /// Records the result of the response cache.
    pub fn note_cache(&self, status: CacheStatus) {
        self.facts().cache = Some(status);
    }

    /// Writes the response headers about the response cache.
    pub fn show_cache(&self, headers: &mut HeaderMap) {
        let Some(status) = self.facts().cache else {
            return;
        };
        headers.insert(CACHE, HeaderValue::from_static(status.name()));
        if let CacheStatus::Hit { age } = status {
            headers.insert(header::AGE, age.as_secs().into());
        }
    }

    /// Records the fields that weir dropped from the body.
    pub fn note_dropped(&self, names: Vec<String>) {
        self.facts().dropped = names;
    }

    /// Returns the fields that weir dropped from the body.
    pub fn dropped(&self) -> Vec<String> {
        self.facts().dropped.clone()
    }

    /// Records an attempt: its provider, by its name in the configuration, its component, and the number of its
    /// credential.
    pub fn note_attempt(&self, provider: &str, adapter: Digest, credential: Option<u32>) {
        let mut facts = self.facts();
        facts.attempts += 1;
        facts.credential = credential;
        facts.adapter = Some(adapter);
        if facts.upstream.as_deref() != Some(provider) {
            let earlier = facts.upstream.replace(provider.to_owned());
            facts.earlier_upstreams.extend(earlier);
        }
    }

    /// Records the failure of the current attempt, with the provider's status and text.
    pub fn note_attempt_failure(
        &self,
        status: Option<StatusCode>,
        error: &'static str,
        text: Option<String>,
    ) {
        let mut facts = self.facts();
        if !facts.is_model_call {
            return;
        }
        let attempt = FailedAttempt {
            provider: facts.upstream.clone().unwrap_or_default(),
            credential: facts.credential,
            status: status.map(|status| status.as_u16()),
            error: error.to_owned(),
            text,
        };
        FailedRequest::push_attempt(&mut facts.failed_attempts, attempt);
    }

    /// Records that the client disconnected before the end of the response.
    pub fn note_disconnect(&self) {
        self.facts().error = Some(AccountError::disconnected());
    }

    /// Records the provider of a stored response. It gets no attempt.
    pub fn note_provider(&self, provider: &str) {
        self.facts().upstream = Some(provider.to_owned());
    }

    /// Returns the trace context for outgoing requests: the current attempt's, or the request's.
    pub fn trace_onward(&self) -> Option<TraceContext> {
        if self.0.is_recorded
            && let Some(attempt) = &self.facts().attempt_span
        {
            return Some(attempt.context().clone());
        }
        self.0.trace.clone()
    }

    /// Begins the span of a part of the request, if it is recorded.
    pub fn trace_part(&self, name: &'static str) -> Option<Box<TraceSpan>> {
        if !self.0.is_recorded {
            return None;
        }
        let facts = self.facts();
        let span = facts.span.as_ref()?;
        Some(span.child(name, SpanKind::Internal))
    }

    /// Links the request's span, if it is recorded, with a span of another trace.
    pub fn link_trace(&self, other: &mut TraceSpan) {
        if let Some(span) = &mut self.facts().span {
            span.link(other.context());
            other.link(span.context());
        }
    }

    /// Begins the span of an attempt at an upstream, if the request is recorded; the span ends with the attempt, and
    /// stays until its charge is known.
    pub fn trace_attempt(&self, begin: impl FnOnce(&TraceSpan) -> Box<TraceSpan>) {
        if !self.0.is_recorded {
            return;
        }
        let mut facts = self.facts();
        if let Some(span) = &facts.span {
            facts.attempt_span = Some(begin(span));
        }
    }

    /// Records something about the current attempt, if the request is recorded.
    pub fn note_in_attempt(&self, note: impl FnOnce(&mut TraceSpan)) {
        if self.0.is_recorded
            && let Some(span) = &mut self.facts().attempt_span
        {
            note(span);
        }
    }

    /// Records a filter's annotation of letters, digits and a few punctuation marks.
    pub fn note_annotation(&self, annotation: String) {
        self.facts().annotations.push(annotation);
    }

    /// Writes the response headers about the last provider, the number of attempts and the filters' annotations.
    pub fn show_facts(&self, headers: &mut HeaderMap) {
        let facts = self.facts();
        if !facts.annotations.is_empty()
            && let Ok(annotations) = HeaderValue::try_from(facts.annotations.join(", "))
        {
            headers.insert(ANNOTATIONS, annotations);
        }
        let provider = facts.upstream.as_deref().map(HeaderValue::from_str);
        if let Some(Ok(provider)) = provider {
            headers.insert(PROVIDER, provider);
            headers.insert(ATTEMPTS, facts.attempts.into());
        }
    }

    /// Records the charge: tokens, the quantity in the unit of the price, and credits.
    pub fn note_charge(&self, tokens: TokenCounts, quantity: Quantity, credits: Credits) {
        let mut facts = self.facts();
        facts.charged = Some((tokens, credits));
        facts.quantity = Some(quantity);
    }

    /// Records the moment of a stream's first output.
    pub fn note_first_token(&self, at: Instant) {
        self.facts().first_token = Some(at.saturating_duration_since(self.0.started));
    }

    /// Records the reason of a failure, in words for operators.
    pub fn note_failure(&self, why: impl ToString) {
        self.facts().failure = Some(why.to_string());
    }

    /// Records the final error of a response that had begun with a success.
    pub fn note_error(&self, error: &ApiError) {
        let mut facts = self.facts();
        facts.code = Some(error.code());
        facts.failed = error.status().is_server_error();
        facts.keep_error(error);
    }

    /// Records the head of the response.
    pub fn note_answer(&self, status: StatusCode, error: Option<&ApiError>) {
        let mut facts = self.facts();
        facts.status = Some(status);
        facts.failed |= status.is_server_error();
        facts.code = error.map(ApiError::code).or(facts.code);
        if let Some(error) = error {
            facts.keep_error(error);
        }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    /// Keeps an error for the record of a model request, and for its content.
    fn keep_error(&mut self, error: &ApiError) {
        if self.is_model_call {
            self.error = Some(AccountError::of(error));
        }
        if let Some(draft) = &mut self.content {
            draft.content.error = Some(LoggedError {
                code: error.code().to_owned(),
                message: error.message().to_owned(),
            });
        }
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // The context is missing only if a handler is called outside the router.
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_else(|| {
            let (path, headers) = (parts.uri.path(), &parts.headers);
            let (observers, tracer) = (RequestObservers::default(), Tracer::default());
            Self::new(&parts.method, path, headers, None, observers, &tracer)
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
        let took = self.started.elapsed();
        if let Some(metrics) = &self.observers.metrics {
            metrics.over(&CompletedRequest {
                method: &self.method,
                route,
                status: facts.status,
                code: facts.code,
                failed: facts.failed,
                took,
                trace_id,
                model: facts.model.as_deref(),
                provider: facts.upstream.as_deref(),
                charged: facts.charged,
            });
        }
        let limit = facts.error.as_ref().and_then(|error| error.limit.clone());
        self.store_failure(&mut facts);
        self.store_content(&mut facts);
        self.add_to_sums(&facts, took);
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
        if let Some(export) = self.observers.log_export.as_ref().filter(|_| !is_probe) {
            export.put(&self.row(&facts, took));
        }
        let (level, is_logged) = match is_probe {
            true => (Level::DEBUG, tracing::enabled!(Level::DEBUG)),
            false => (Level::INFO, tracing::enabled!(Level::INFO)),
        };
        let message = match facts.status {
            Some(_) => "answered",
            None => "the client disconnected",
        };
        if !is_logged {
            return;
        }
        let Some(mut line) = RequestLine::new(level, module_path!(), message) else {
            return;
        };
        line.text("request_id", Some(&self.id));
        line.text("client_request_id", self.client_id.as_deref());
        line.word("trace_id", trace_id);
        line.word("span_id", span_id);
        line.word("method", Some(&self.method));
        line.text("route", route);
        line.number("status", facts.status.map(|status| status.as_u16()));
        line.text("code", facts.code);
        line.text("limit", limit.as_deref());
        line.text("user", facts.user.as_deref());
        line.text("model", facts.model.as_deref());
        line.text("upstream", facts.upstream.as_deref());
        line.number("attempts", (facts.attempts > 0).then_some(facts.attempts));
        if let Some((tokens, credits)) = facts.charged {
            line.number("tokens_input", Some(tokens.input));
            line.number("tokens_output", Some(tokens.output));
            line.word("unit", facts.quantity.map(|quantity| quantity.unit.name()));
            line.number("quantity", facts.quantity.map(|quantity| quantity.count));
            line.number("credits", Some(credits.micro() as f64 / 1e6));
        }
        line.text("failure", facts.failure.as_deref());
        if !facts.annotations.is_empty() {
            line.text("annotations", Some(&facts.annotations.join(", ")));
        }
        line.number("milliseconds", Some(took.as_millis()));
        line.number("suppressed", suppressed);
        line.write();
    }
}

impl ContextState {
    /// Returns the facts for the log export.
    fn row<'a>(&'a self, facts: &'a Facts, took: Duration) -> RequestRow<'a> {
        let tokens = facts.charged.map(|(tokens, _)| tokens);
        RequestRow {
            time: RequestRow::format_time(Timestamp::now()),
            request_id: &self.id,
            client_request_id: self.client_id.as_deref(),
            trace_id: self.trace.as_ref().map(|trace| trace.trace_id.to_string()),
            method: method_name(&self.method),
            route: self.route.as_ref().map(MatchedPath::as_str),
            status: facts.status.map(|status| status.as_u16()),
            code: facts.code,
            user: facts.user.as_deref(),
            model: facts.model.as_deref(),
            upstream: facts.upstream.as_deref(),
            attempts: facts.attempts,
            tokens_input: tokens.map(|tokens| tokens.input),
            tokens_cache_read: tokens.map(|tokens| tokens.cache_read),
            tokens_output: tokens.map(|tokens| tokens.output),
            unit: facts.quantity.map(|quantity| quantity.unit.name()),
            quantity: facts.quantity.map(|quantity| quantity.count),
            microcredits: facts.charged.map(|(_, credits)| credits.micro()),
            failure: facts.failure.as_deref(),
            annotations: &facts.annotations,
            milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Stores a model request of a known account that ended in an error.
    fn store_failure(&self, facts: &mut Facts) {
        let (Some(failures), true) = (&self.observers.failures, facts.is_model_call) else {
            return;
        };
        let Some(error) = facts.error.take() else {
            return;
        };
        let failed_attempts = std::mem::take(&mut facts.failed_attempts);
        let code = facts.code.unwrap_or(ErrorCode::ClientDisconnected.as_str());
        let Some(user) = &facts.user else {
            return;
        };
        failures.record(|at| FailedRequest {
            request_id: self.id.to_string(),
            at,
            account_id: facts.account.as_ref().unwrap_or(user).clone(),
            user_id: user.clone(),
            key_id: facts.key.clone(),
            project_id: facts.project.clone(),
            model: facts.model.clone(),
            provider: facts.upstream.clone(),
            adapter_digest: facts.adapter.map(|digest| digest.to_string()),
            earlier_providers: facts.earlier_upstreams.clone(),
            code: code.to_owned(),
            status: facts.status.map(|status| status.as_u16().into()),
            latency_ms: i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX),
            attempts: facts.attempts.into(),
            trace_id: self.trace.as_ref().map(|trace| trace.trace_id.to_string()),
            error,
            failed_attempts,
        });
    }

    /// Stores the content of a request whose key or organisation chose it.
    fn store_content(&self, facts: &mut Facts) {
        let (Some(log), Some(draft)) = (&self.observers.content_log, facts.content.take()) else {
            return;
        };
        let Some(user) = &facts.user else {
            return;
        };
        log.record(|at| EndedContent {
            request_id: self.id.to_string(),
            at,
            account_id: facts.account.as_ref().unwrap_or(user).clone(),
            user_id: user.clone(),
            key_id: facts.key.clone(),
            for_organisation: draft.for_organisation,
            content: draft.content,
        });
    }

    /// Adds a model request of a known account to the sums.
    fn add_to_sums(&self, facts: &Facts, took: Duration) {
        let (Some(traffic), true, Some(user)) =
            (&self.observers.traffic, facts.is_model_call, &facts.user)
        else {
            return;
        };
        traffic.record(&EndedCall {
            provider: facts.upstream.as_deref(),
            model: facts.model.as_deref(),
            account: facts.account.as_ref().unwrap_or(user),
            key: facts.key.as_deref(),
            fault: facts.code.map(|code| Fault::of(code, facts.failed)),
            charged: facts.charged,
            first_token: facts.first_token,
            took,
        });
    }

    /// Ends the spans, with all facts known so far.
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
        span.set("weir.request_id", self.id.to_string());
        span.set_if_known("user.id", facts.user.clone());
        span.set_if_known("weir.model", facts.model.clone());
        if facts.attempts > 0 {
            span.set("weir.attempts", i64::from(facts.attempts));
        }
        let status = facts.status.map(|status| status.as_u16());
        span.set_if_known("http.response.status_code", status.map(i64::from));
        match (facts.code, status) {
            // The client's error is not an error of the server's span.
            (Some(code), Some(400..500)) => span.set("error.type", code),
            (Some(code), _) => span.fail(code),
            (None, None) => span.set("error.type", "hung_up"),
            (None, Some(_)) => {}
        }
    }
}

/// Returns whether the route is a probe's, which load balancers call every few seconds.
fn is_probe(route: Option<&MatchedPath>) -> bool {
    let route = route.map(MatchedPath::as_str);
    matches!(route, Some("/health" | "/health/ready" | "/metrics"))
}

/// Returns the method and the route: a path would contain strangers' text.
fn span_name(method: &Method, route: Option<&MatchedPath>) -> String {
    let method = method_name(method);
    match route {
        Some(route) => format!("{method} {}", route.as_str()),
        None => method.to_owned(),
    }
}

/// Returns the client's own request id if it is safe in a header, an error and a log.
fn client_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let is_legal = (1..=MAX_CLIENT_ID_BYTES).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:=+/@".contains(&byte));
    is_legal.then(|| id.to_owned())
}

/// Returns what a client asks for, by header. Values of one name are items of a list, and a value that is not text has none.
fn asked(headers: &HeaderMap) -> Vec<(HeaderName, String)> {
    let is_kept = |name: &&HeaderName| {
        name.as_str().starts_with("x-weir-") || **name == header::CACHE_CONTROL
    };
    let asked = headers.keys().filter(is_kept).map(|name| {
        let values = headers.get_all(name).iter();
        let values: Vec<_> = values
            .map(|value| value.to_str().unwrap_or_default())
            .collect();
        (name.clone(), values.join(","))
    });
    asked.collect()
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
