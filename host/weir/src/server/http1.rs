//! HTTP/1.1 on a connection: one request after another, through the gate.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::BytesMut;
use http::header::{self, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tower_service::Service;
use weir_app::request_layer::{EarlyRejection, Peer};

use super::bodies::{self, RequestBody, TrackedBody};
use super::connection_closer::ConnectionCloser;
use super::connection_resources::ConnectionResources;
use super::framing::HEAD_BYTES;
use super::gate::{RequestGate, Waits};

/// Serves requests on a stream until either side closes it. `read` was already read from the stream. `until` is the
/// deadline of the first head.
pub(super) async fn serve<S>(
    stream: S,
    read: BytesMut,
    until: Instant,
    seat: Arc<ConnectionResources>,
    routes: Router,
    waits: Waits,
    closing: &ConnectionCloser,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut server = http1::Builder::new();
    // The gate enforces the limits and timeouts of heads.
    server.header_read_timeout(None).max_buf_size(HEAD_BYTES);
    let gate = RequestGate::new(stream, seat.line().clone(), waits, read, until);
    let peer = seat.client;
    let service = service_fn(move |request| answer(routes.clone(), seat.clone(), peer, request));
    let mut connection = pin!(server.serve_connection(TokioIo::new(gate), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = closing.due() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection closed");
    }
}

/// Serves a request, and returns whether its connection can be used again.
async fn answer(
    mut routes: Router,
    seat: Arc<ConnectionResources>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Response<TrackedBody<Body>>, Infallible> {
    let line = seat.line();
    let expects_word = request.headers().contains_key(header::EXPECT);
    let admitted = seat.place.admit(request.uri().path());
    let mut request = request.map(|body| RequestBody::new(body, line.clone()));
    request.extensions_mut().insert(Peer(peer));
    let is_shed = admitted.is_err();
    let extra = admitted.unwrap_or_else(|error| {
        request.extensions_mut().insert(EarlyRejection(error));
        None
    });
    let mut response = routes.call(request).await?;
    let is_read = bodies::is_read(line, expects_word).await;
    if !is_read || is_shed || line.makes_way() || Instant::now() >= line.expires_at {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    let line = line.clone();
    Ok(response.map(|body| TrackedBody::new(body, line, extra)))
}
