//! Metrics of requests, counted when each ends, for any reason. Labels are routes, names from the catalog, statuses and
//! codes: never a client's text.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::{Method, StatusCode};
use opentelemetry::trace::TraceId;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use weir_ledger::{Credits, TokenCounts};
use weir_telemetry::LATENCY_BUCKETS_SECONDS;
use weir_telemetry::label::LabelText;

pub struct RequestMetrics {
    requests: Family<RequestLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    failures: Family<RouteLabels, Counter>,
    seconds: Family<RouteLabels, HistogramWithExemplars<TraceLabels>, fn() -> LatencyHistogram>,
    tokens: Family<TokenLabels, Counter>,
    credits: Family<ModelLabels, Counter<f64, AtomicU64>>,
}

type LatencyHistogram = HistogramWithExemplars<TraceLabels>;

pub struct CompletedRequest<'a> {
    pub method: &'a Method,
    /// The route's pattern; `None` without a route.
    pub route: Option<&'a str>,
    /// The response's status; `None` if the client had disconnected.
    pub status: Option<StatusCode>,
    /// The error's code.
    pub code: Option<&'static str>,
    /// Whether the request failed on the server side: before its response had begun, or after a success status.
    pub failed: bool,
    /// The duration, including the charge.
    pub took: Duration,
    pub trace_id: Option<TraceId>,
    /// The model, by its name in the catalog.
    pub model: Option<&'a str>,
    /// The provider of the last attempt, by its name in the configuration.
    pub provider: Option<&'a str>,
    pub charged: Option<(TokenCounts, Credits)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    /// `none` without a route.
    route: LabelText,
    /// `hung_up` if the client had disconnected.
    status: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TraceLabels {
    trace_id: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: LabelText,
    provider: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: LabelText,
    provider: LabelText,
    /// `input` or `output`.
    kind: &'static str,
}

impl RequestMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            errors: Family::default(),
            failures: Family::default(),
            seconds: Family::new_with_constructor(|| {
                HistogramWithExemplars::new(LATENCY_BUCKETS_SECONDS.into_iter())
            }),
            tokens: Family::default(),
            credits: Family::default(),
        };
        registry.register(
            "requests",
            "Completed requests, by route and response status",
            metrics.requests.clone(),
        );
        registry.register(
            "request_errors",
            "Requests that ended in an error, by error code",
            metrics.errors.clone(),
        );
        registry.register(
            "request_failures",
            "Requests that failed on the server side: with a 5xx response, or a stream that ended in such an error",
            metrics.failures.clone(),
        );
        registry.register_with_unit(
            "request",
            "Duration of requests, including the charge; exemplars are their traces",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "tokens",
            "Charged tokens, by model, provider and kind",
            metrics.tokens.clone(),
        );
        registry.register(
            "credits",
            "Charged credits, by model and provider",
            metrics.credits.clone(),
        );
        metrics
    }

    pub fn over(&self, over: &CompletedRequest<'_>) {
        let route = over.route.unwrap_or("none");
        let status = match &over.status {
            Some(status) => status.as_str(),
            None => "hung_up",
        };
        let labels = RequestLabels {
            method: method(over.method),
            route: route.into(),
            status: status.into(),
        };
        self.requests.get_or_create(&labels).inc();
        if let Some(code) = over.code {
            self.errors.get_or_create(&ErrorLabels { code }).inc();
        }
        let route = RouteLabels {
            route: labels.route,
        };
        if over.failed {
            self.failures.get_or_create(&route).inc();
        }
        let trace = over.trace_id.map(|trace_id| TraceLabels {
            trace_id: trace_id.to_string().into(),
        });
        self.seconds
            .get_or_create(&route)
            .observe(over.took.as_secs_f64(), trace, None);
        let (Some(model), Some((tokens, credits))) = (over.model, over.charged) else {
            return;
        };
        let model = LabelText::from(model);
        let provider = LabelText::from(over.provider.unwrap_or("none"));
        for (kind, tokens) in [("input", tokens.input), ("output", tokens.output)] {
            let labels = TokenLabels {
                model: model.clone(),
                provider: provider.clone(),
                kind,
            };
            self.tokens.get_or_create(&labels).inc_by(tokens);
        }
        self.credits
            .get_or_create(&ModelLabels { model, provider })
            .inc_by(credits.micro() as f64 / 1e6);
    }
}

/// Returns a method's name, or `other`: clients may send any word as the method.
pub fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::HEAD => "HEAD",
        _ => "other",
    }
}
