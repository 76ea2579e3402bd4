//! Figures of requests, counted when each is over, however that came about. Labels are routes, names of the catalog, statuses
//! and codes: never anything that a client has written.

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

/// What is counted of requests.
pub struct RequestMetrics {
    requests: Family<RequestLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    failures: Family<RouteLabels, Counter>,
    seconds: Family<RouteLabels, HistogramWithExemplars<TraceLabels>, fn() -> LatencyHistogram>,
    tokens: Family<TokenLabels, Counter>,
    credits: Family<ModelLabels, Counter<f64, AtomicU64>>,
}

type LatencyHistogram = HistogramWithExemplars<TraceLabels>;

/// A request that is over.
pub struct Over<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The route, as the router has it; `None` where there is none.
    pub route: Option<&'a str>,
    /// What its client was answered; `None` where that had hung up.
    pub status: Option<StatusCode>,
    /// Of an error.
    pub code: Option<&'static str>,
    /// Whether it failed for no reason of its client's: before its answer had begun, or behind a success.
    pub failed: bool,
    /// How long it took, its charge included.
    pub took: Duration,
    /// The trace that it is part of.
    pub trace_id: Option<TraceId>,
    /// The model, by its name in the catalog.
    pub model: Option<&'a str>,
    /// Who was asked last, by a name of the configuration.
    pub provider: Option<&'a str>,
    /// What it was charged, and for what.
    pub charged: Option<(TokenCounts, Credits)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    /// `none` where there is none.
    route: String,
    /// `hung_up` where the client was gone.
    status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TraceLabels {
    trace_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
    provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: String,
    provider: String,
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
            "Requests that are over, by route and what their clients were answered",
            metrics.requests.clone(),
        );
        registry.register(
            "request_errors",
            "Requests that ended in an error, by its code",
            metrics.errors.clone(),
        );
        registry.register(
            "request_failures",
            "Requests that failed for no reason of their clients': answered with a 5xx, or streams that ended in such an error",
            metrics.failures.clone(),
        );
        registry.register_with_unit(
            "request",
            "How long requests took, their charge included; exemplars are their traces",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "tokens",
            "Tokens that were charged, by model, provider and kind",
            metrics.tokens.clone(),
        );
        registry.register(
            "credits",
            "Credits that requests were charged, by model and provider",
            metrics.credits.clone(),
        );
        metrics
    }

    /// Counts a request that is over.
    pub fn over(&self, over: &Over<'_>) {
        let route = over.route.unwrap_or("none");
        let status = match over.status {
            Some(status) => status.as_str().to_owned(),
            None => "hung_up".to_owned(),
        };
        let labels = RequestLabels {
            method: method(over.method),
            route: route.to_owned(),
            status,
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
            trace_id: trace_id.to_string(),
        });
        self.seconds
            .get_or_create(&route)
            .observe(over.took.as_secs_f64(), trace, None);
        let (Some(model), Some((tokens, credits))) = (over.model, over.charged) else {
            return;
        };
        let (model, provider) = (model.to_owned(), over.provider.unwrap_or("none").to_owned());
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

/// A method's name, or `other`: a client may send any word as its method.
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
