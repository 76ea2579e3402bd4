//! The accept loop of a listener: who gets a connection, and what a connection gets.
//!
//! Our own loop rather than `axum::serve`, which sets no bounds at all. TCP_NODELAY is set on every socket: a streamed token must
//! not wait for the one before it to be acknowledged.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_io_timeout::TimeoutStream;
use tower_service::Service;

use super::bodies::{self, AnswerBody, RequestBody};
use super::connections::{Connections, Line};
use super::framing::HEAD_BYTES;
use super::gate::{Gate, Waits};
use crate::app::App;
use crate::error::ApiError;
use crate::surround::Peer;

/// Connections that are told at once that they are too many. More are closed without a word.
const REFUSALS_AT_ONCE: usize = 64;

/// How often a connection is looked for that can be ended for one that waits.
const EVICTION_PERIOD: Duration = Duration::from_millis(100);

/// Accepts connections for ever, so many at once.
pub(super) async fn accept(
    app: &App,
    listener: TcpListener,
    routes: Router,
    graceful: &GracefulShutdown,
) {
    let limits = &app.config.limits.connections;
    let waits = Waits {
        head: limits.head_timeout(),
        idle: limits.idle_timeout(),
    };
    let mut server = http1::Builder::new();
    // What it would refuse, and whom it would wait for, the gate sees to.
    server.header_read_timeout(None).max_buf_size(HEAD_BYTES);
    let per_address = limits.connections_per_address.get();
    let proxies = &app.config.trusted_proxies;
    let connections = Arc::new(Connections::new(
        per_address,
        limits.connection_age(),
        proxies,
    ));
    let places = Arc::new(Semaphore::new(limits.connections.get() as usize));
    let refusals = Arc::new(Semaphore::new(REFUSALS_AT_ONCE));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would spin.
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let Ok(stream) = prepare(stream, limits.client_write_timeout()) else {
            continue;
        };
        // Only now: while nobody waits, nobody has to make way.
        let place = take_place(&places, &connections).await;
        let Some(entry) = connections.enter(peer.ip()) else {
            // Not in a place: what is refused must not take one from others.
            drop(place);
            if let Ok(permit) = refusals.clone().try_acquire_owned() {
                let line = connections.unlisted();
                tokio::spawn(refuse(
                    Gate::refusing(stream, line, waits, too_many()),
                    permit,
                ));
            }
            continue;
        };
        let (line, routes) = (entry.line().clone(), routes.clone());
        let io = TokioIo::new(Gate::new(stream, line.clone(), waits));
        let service =
            service_fn(move |request| answer(routes.clone(), line.clone(), peer.ip(), request));
        let connection = graceful.watch(server.serve_connection(io, service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection closed");
            }
            drop((entry, place));
        });
    }
}

/// Waits for a place among all connections. While there is none, one that is idle makes way.
async fn take_place(places: &Arc<Semaphore>, connections: &Connections) -> OwnedSemaphorePermit {
    loop {
        if places.available_permits() == 0 {
            connections.evict_one();
        }
        let place = places.clone().acquire_owned();
        // Else, clients wait in the kernel's queue.
        if let Ok(Ok(place)) = tokio::time::timeout(EVICTION_PERIOD, place).await {
            return place;
        }
    }
}

type Socket = std::pin::Pin<Box<TimeoutStream<TcpStream>>>;

fn prepare(stream: TcpStream, write_timeout: Duration) -> std::io::Result<Socket> {
    stream.set_nodelay(true)?;
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(write_timeout));
    Ok(Box::pin(stream))
}

async fn refuse(mut gate: Gate<Socket>, permit: OwnedSemaphorePermit) {
    // A client that does not hear it has gone.
    let _ = gate.shutdown().await;
    drop(permit);
}

/// Answers a request, and says whether its connection can be used again.
async fn answer(
    mut routes: Router,
    line: Arc<Line>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody<Body>>, Infallible> {
    let expects_word = request.headers().contains_key(header::EXPECT);
    let mut request = request.map(|body| RequestBody::new(body, line.clone()));
    request.extensions_mut().insert(Peer(peer));
    let mut response = routes.call(request).await?;
    let is_read = bodies::is_read(&line, expects_word).await;
    if !is_read || Instant::now() >= line.expires_at {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    Ok(response.map(|body| AnswerBody::new(body, line)))
}

fn too_many() -> ApiError {
    ApiError::new(
        StatusCode::TOO_MANY_REQUESTS,
        "TOO_MANY_CONNECTIONS",
        "Your address has as many connections as it may, with a request under way on each; try again shortly.",
    )
}
