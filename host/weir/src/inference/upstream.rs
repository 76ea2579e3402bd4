//! Upstreams and the one HTTP client that reaches them.
//!
//! The client is hyper's own, not reqwest: a request's URI is put together from checked parts
//! ([`super::destination`]) and no URL parser may normalise it again. It follows no redirect, knows
//! no proxy, inflates nothing, and sets TCP_NODELAY, all by leaving things out.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

pub use super::destination::BaseUrl;
use super::reuse::ReusableConnector;
use crate::outgoing;
use weir_sandbox::adapter::bindings::adapter::Setting;
use weir_storage::secrets::Secret;

/// The pooled client that all exchanges share.
pub type HttpClient = Client<Connector, Full<Bytes>>;

/// Somebody who answers requests, e.g. a model provider.
#[derive(Debug)]
pub struct Upstream {
    /// Its name under `providers`.
    pub name: String,
    /// The slot of the adapter that speaks its dialect.
    pub adapter: String,
    /// Where it is; none for an adapter that answers by itself.
    pub base: Option<BaseUrl>,
    /// What proves to it who calls.
    pub credential: Option<Secret>,
    /// Settings for the adapter.
    pub options: Vec<Setting>,
    /// How long it may take.
    pub timeouts: UpstreamTimeouts,
}

/// How long an upstream may take.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamTimeouts {
    /// From the request to the head of a streamed answer.
    pub first_byte: Duration,
    /// From the request to the first of a streamed answer, where another upstream could be asked instead.
    pub first_token: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
}

impl UpstreamTimeouts {
    /// All in milliseconds.
    pub fn from_millis(
        first_byte_ms: NonZeroU64,
        first_token_ms: NonZeroU64,
        idle_ms: NonZeroU64,
    ) -> Self {
        let duration = |ms: NonZeroU64| Duration::from_millis(ms.get());
        Self {
            first_byte: duration(first_byte_ms),
            first_token: duration(first_token_ms),
            idle: duration(idle_ms),
        }
    }
}

/// Makes the shared client. Trusts the system's certificate authorities.
pub fn http_client(connect_timeout: Duration) -> anyhow::Result<HttpClient> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(60)));
    let tls = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(outgoing::tls_config()?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(ReusableConnector(tcp));
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .build(Connector {
            tls,
            timeout: connect_timeout,
        }))
}

/// Connects within a time-out that covers name look-up, TCP and TLS together: hyper's own covers TCP only,
/// and a server that accepts and stays silent would hold the request for all its time.
#[derive(Debug, Clone)]
pub struct Connector {
    tls: HttpsConnector<ReusableConnector>,
    timeout: Duration,
}

impl tower_service::Service<Uri> for Connector {
    type Response = <HttpsConnector<ReusableConnector> as tower_service::Service<Uri>>::Response;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tls.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.tls.call(to);
        let timeout = self.timeout;
        Box::pin(async move { tokio::time::timeout(timeout, connecting).await? })
    }
}
