//! `Collector`: what a gateway sends its traces to, by OTLP over HTTP, and what it has been sent.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span as ProtoSpan;
use prost::Message as _;

use crate::client::patiently;
use crate::upstream::{Reply, Request, Upstream};

/// A collector of traces on a socket of its own.
pub struct Collector {
    server: Upstream,
}

/// A span, as it was sent.
#[derive(Debug, Clone)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Of its kinds: 1 internal, 2 server, 3 client, 5 consumer.
    pub kind: i32,
    /// In hexadecimal, as all ids.
    pub trace_id: String,
    /// Its own.
    pub id: String,
    /// Empty where it has none.
    pub parent_id: String,
    /// What a client has handed on.
    pub state: String,
    /// All values as texts.
    pub facts: BTreeMap<String, String>,
    /// The trace and the span of each.
    pub links: Vec<(String, String)>,
    /// Whether it has failed.
    pub is_error: bool,
    /// When it began and ended, in nanoseconds since 1970.
    pub time: (u64, u64),
}

impl Collector {
    /// Starts one that takes everything.
    pub async fn start() -> Self {
        let server = Upstream::start().await;
        server.always(Reply::new(200));
        Self { server }
    }

    /// Starts one that answers this instead.
    pub async fn answering(reply: Reply) -> Self {
        let server = Upstream::start().await;
        server.always(reply);
        Self { server }
    }

    /// The table that has a gateway send its traces here.
    pub fn settings(&self) -> String {
        let url = self.server.base_url();
        format!("[telemetry]\notlp_endpoint = \"{url}\"\n")
    }

    /// What has come.
    pub fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// Waits until anything has come.
    pub async fn next_request(&self) -> Request {
        self.server.next_request().await
    }

    /// All spans that have come.
    pub fn spans(&self) -> Vec<Span> {
        let all = self.requests();
        all.iter().flat_map(spans).collect()
    }

    /// Waits until so many spans have come whose names begin so, and returns all.
    pub async fn until(&self, name: &str, number: usize) -> Vec<Span> {
        patiently(async {
            loop {
                let spans = self.spans();
                let named = spans.iter().filter(|span| span.name.starts_with(name));
                if named.count() >= number {
                    return spans;
                }
                self.next_request().await;
            }
        })
        .await
    }
}

impl Span {
    /// A fact, which it must have.
    pub fn fact(&self, name: &str) -> &str {
        let fact = self.facts.get(name);
        fact.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

/// What a collector was sent about its sender.
pub fn resource(request: &Request) -> BTreeMap<String, String> {
    let sent = decoded(request);
    let resource = sent.resource_spans[0].resource.as_ref();
    facts(&resource.expect("a resource").attributes)
}

fn decoded(request: &Request) -> ExportTraceServiceRequest {
    assert_eq!(request.path, "/v1/traces");
    assert_eq!(
        request.header("content-type"),
        Some("application/x-protobuf")
    );
    ExportTraceServiceRequest::decode(&request.body[..]).expect("OTLP")
}

fn spans(request: &Request) -> Vec<Span> {
    let resources = decoded(request).resource_spans.into_iter();
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    let spans = scopes.flat_map(|scope| scope.spans);
    spans.map(span).collect()
}

fn span(span: ProtoSpan) -> Span {
    let links = span.links.iter();
    let links = links.map(|link| (hex(&link.trace_id), hex(&link.span_id)));
    Span {
        kind: span.kind,
        trace_id: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent_id: hex(&span.parent_span_id),
        state: span.trace_state,
        facts: facts(&span.attributes),
        links: links.collect(),
        is_error: span.status.is_some_and(|status| status.code == 2),
        time: (span.start_time_unix_nano, span.end_time_unix_nano),
        name: span.name,
    }
}

fn facts(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |fact: &KeyValue| {
        use any_value::Value as V;
        match fact.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(V::StringValue(text)) => text.clone(),
            Some(V::BoolValue(value)) => value.to_string(),
            Some(V::IntValue(number)) => number.to_string(),
            Some(V::DoubleValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        }
    };
    all.iter()
        .map(|fact| (fact.key.clone(), text(fact)))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
