//! `Collector`: a collector of a gateway's traces, by OTLP over HTTP.

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

/// A received span.
#[derive(Debug, Clone)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// The OTLP kind: 1 internal, 2 server, 3 client, 5 consumer.
    pub kind: i32,
    /// In hexadecimal, like all ids.
    pub trace_id: String,
    /// The span's id.
    pub id: String,
    /// Empty for a root span.
    pub parent_id: String,
    /// The `tracestate` from a client.
    pub state: String,
    /// The attributes, with values as texts.
    pub facts: BTreeMap<String, String>,
    /// The trace and the span of each link.
    pub links: Vec<(String, String)>,
    /// The span has failed.
    pub is_error: bool,
    /// Start and end, in nanoseconds since 1970.
    pub time: (u64, u64),
}

impl Collector {
    /// Starts a collector that accepts every request.
    pub async fn start() -> Self {
        let server = Upstream::start().await;
        server.always(Reply::new(200));
        Self { server }
    }

    /// Starts a collector with this response.
    pub async fn answering(reply: Reply) -> Self {
        let server = Upstream::start().await;
        server.always(reply);
        Self { server }
    }

    /// The configuration table that sends a gateway's traces here.
    pub fn settings(&self) -> String {
        let url = self.server.base_url();
        format!("[telemetry]\notlp_endpoint = \"{url}\"\n")
    }

    /// Returns the received requests.
    pub fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// Waits for the first request.
    pub async fn next_request(&self) -> Request {
        self.server.next_request().await
    }

    /// Returns all received spans.
    pub fn spans(&self) -> Vec<Span> {
        let all = self.requests();
        all.iter().flat_map(spans).collect()
    }

    /// Waits for this many spans with this prefix of the name, and returns all.
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
    /// Returns an attribute, which must exist.
    pub fn fact(&self, name: &str) -> &str {
        let fact = self.facts.get(name);
        fact.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

/// Returns the resource attributes of a request.
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
