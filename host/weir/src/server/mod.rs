//! The accept loop, time-outs on connections, and the drain at the end.
//!
//! Our own loop rather than `axum::serve`: that sets no timer, without which hyper's time-out for request
//! heads never fires. TCP_NODELAY is set on every socket: a streamed token must not wait for the one
//! before it to be acknowledged.

mod admin_socket;
pub mod settings;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

use tower_service::Service;

pub use self::admin_socket::AdminSocket;
use crate::app::App;
use crate::router;
use crate::surround::Peer;

/// Bytes of a request's head, and of what is buffered of an answer.
const BUFFER_BYTES: usize = 16 << 10;

const MAX_HEADERS: usize = 100;

/// How long the ledger may take to write what waits.
const LEDGER_STOP: Duration = Duration::from_secs(5);

/// How long clients may take to hear that the gateway stops.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The sockets of a gateway.
pub struct Listeners {
    /// The public service's.
    pub public: TcpListener,
    /// The one for other services, if there is one.
    pub internal: Option<TcpListener>,
    /// The one for commands of this machine, if there is one.
    pub admin: Option<AdminSocket>,
}

/// Serves until `stop` completes. Then it is no longer ready, and accepts for `limits.drain_delay_ms` still: load
/// balancers look every few seconds. Then it drains: no new connections, requests under way are finished, and what is left
/// when `limits.shutdown_ms` are over is told to stop. [`App::shutdown`](crate::app::Shared::shutdown) cuts both short.
pub async fn serve(app: App, listeners: Listeners, stop: impl Future<Output = ()>) {
    let connections = GracefulShutdown::new();
    let Listeners {
        public,
        internal,
        admin,
    } = listeners;
    {
        let public = accept(&app, public, router::public(app.clone()), &connections);
        let internal = async {
            match internal {
                Some(listener) => {
                    let routes = router::internal(app.clone());
                    accept(&app, listener, routes, &connections).await;
                }
                None => std::future::pending().await,
            }
        };
        let admin = async {
            match admin {
                Some(socket) => {
                    socket
                        .accept(router::local(app.clone()), &connections)
                        .await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = public => {}
            () = internal => {}
            () = admin => {}
            () = stopped(&app, stop) => {}
        }
        // The listeners close here.
    }
    drain(&app, connections).await;
}

/// Waits until the gateway is told to stop, and for as long as it is to accept from then on.
async fn stopped(app: &App, stop: impl Future<Output = ()>) {
    stop.await;
    app.draining.cancel();
    tokio::select! {
        () = tokio::time::sleep(app.config.drain_delay()) => {}
        () = app.shutdown.cancelled() => {}
    }
}

/// Accepts connections for ever, so many at once.
async fn accept(app: &App, listener: TcpListener, routes: Router, connections: &GracefulShutdown) {
    let limits = &app.config.limits.connections;
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout())
        .max_headers(MAX_HEADERS)
        .max_buf_size(BUFFER_BYTES);
    let write_timeout = limits.client_write_timeout();
    let places = Arc::new(Semaphore::new(limits.connections.get() as usize));
    loop {
        // Without a place, clients wait in the kernel's queue.
        let place = places.clone().acquire_owned().await;
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: accepting again at once would spin.
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let io = match prepare(stream, write_timeout) {
            Ok(stream) => TokioIo::new(Box::pin(stream)),
            Err(_) => continue,
        };
        let routes = routes.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer.ip()));
            routes.clone().call(request)
        });
        let connection = server.serve_connection(io, service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection closed");
            }
            drop(place);
        });
    }
}

fn prepare(
    stream: TcpStream,
    write_timeout: Duration,
) -> std::io::Result<TimeoutStream<TcpStream>> {
    stream.set_nodelay(true)?;
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(write_timeout));
    Ok(stream)
}

async fn drain(app: &App, connections: GracefulShutdown) {
    app.tasks.close();
    let under_way = app.tasks.len();
    if under_way > 0 {
        tracing::info!(requests = under_way, "waiting for requests under way");
    }
    let limit = Duration::from_millis(app.config.limits.connections.shutdown_ms);
    // Connections end after the request that they are in; work for clients that have gone may go on.
    let mut done = pin!(async {
        connections.shutdown().await;
        app.tasks.wait().await;
    });
    let is_done = tokio::select! {
        () = &mut done => true,
        () = tokio::time::sleep(limit) => false,
        () = app.shutdown.cancelled() => false,
    };
    if !is_done {
        tracing::warn!(
            requests = app.tasks.len(),
            "stopping requests that are still under way"
        );
        app.shutdown.cancel();
        // They only have to say so to their clients; one whose client does not read is cut.
        let _ = tokio::time::timeout(LAST_WORDS, done).await;
    }
    close(app).await;
}

/// Writes what is to be written yet, and closes the stores.
pub async fn close(app: &App) {
    if tokio::time::timeout(LEDGER_STOP, app.ledger.stop())
        .await
        .is_err()
    {
        tracing::warn!(
            "the ledger does not stop; what it has not written is settled by another node, or the next start"
        );
    }
    app.audit.flush().await;
    if let Err(error) = app.plugins.write_counts(&app.database).await {
        tracing::warn!(%error, "what plugins have done since it was last written is lost");
    }
    app.last_used.flush(&app.database).await;
    app.database.close().await;
}
