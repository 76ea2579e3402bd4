//! Connections: who gets one ([`connections`], [`places`]), what is spoken on it ([`accept`]), what of HTTP/1.1 reaches hyper
//! ([`gate`]), what HTTP/2 is bounded by ([`http2`]), and the drain at the end.

mod accept;
mod admin_socket;
mod bodies;
mod closing;
mod connections;
pub mod descriptors;
mod framing;
mod gate;
mod http1;
mod http2;
mod places;
mod prefixed;
mod proxy_header;
mod seat;
pub mod settings;
pub mod starting;
pub mod tls;
mod write_window;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

use self::accept::{Front, accept};
pub use self::admin_socket::AdminSocket;
use weir_errors::{ApiError, ErrorCode};

use self::closing::Closing;
use self::tls::Tls;
use crate::app::App;
use crate::router;
use crate::swarm::executor::Executor;
use crate::tasks::timer;
use crate::vouchers;
use weir_payments::{auto_top_up, inbox, notices};

/// How long the ledger may take to write what waits.
const LEDGER_STOP: Duration = Duration::from_secs(5);

/// How long clients may take to hear that the gateway stops.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The sockets of a gateway.
pub struct Listeners {
    /// The public service's, unless it is an executor alone.
    pub public: Option<TcpListener>,
    /// The API's for other services, if there is one.
    pub internal: Option<TcpListener>,
    /// The executor's for other services, if there is one.
    pub executor: Option<TcpListener>,
    /// The one for commands of this machine, if there is one.
    pub admin: Option<AdminSocket>,
}

/// Serves until `stop` completes. Then it is no longer ready, and accepts for `limits.drain_delay_ms` still: load
/// balancers look every few seconds. Then it drains: no new connections, requests under way are finished, and what is left
/// when `limits.shutdown_ms` are over is told to stop. [`App::shutdown`](crate::app::Shared::shutdown) cuts both short.
pub async fn serve(
    app: App,
    listeners: Listeners,
    executor: Option<Executor>,
    stop: impl Future<Output = ()>,
) {
    let connections = Closing::default();
    let Listeners {
        public,
        internal,
        executor: executors,
        admin,
    } = listeners;
    if let Some(Ok(address)) = public.as_ref().map(TcpListener::local_addr) {
        app.payments.serves_at(address);
        // Whoever serves it twice does so at one address.
        let _ = app.serves_at.set(address);
    }
    {
        let accept_from = async |listener: Option<TcpListener>,
                                 routes: fn(App) -> Router,
                                 front| match listener {
            Some(listener) => {
                accept(&app, listener, routes(app.clone()), front, &connections).await;
            }
            None => std::future::pending().await,
        };
        let front = Front {
            tls: app.tls.as_ref().map(Tls::acceptor),
            proxies: app.config.proxy_protocol.clone(),
        };
        let public = accept_from(public, router::public, front);
        // Other services are within the same walls.
        let internal = accept_from(internal, router::internal, Front::default());
        let executors = accept_from(executors, router::executor, Front::default());
        let certificate = async {
            match &app.tls {
                Some(tls) => tls.follow().await,
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
        // Whoever runs swarms has schedules fire, too.
        let schedules = async {
            match &executor {
                Some(_) => timer::run(&app).await,
                None => std::future::pending().await,
            }
        };
        let events_of_payments = inbox::run(&app.payments);
        let notices = notices::run(&app.payments);
        let auto_top_ups = auto_top_up::run(&app.payments);
        let redemptions = vouchers::run(&app);
        tokio::select! {
            () = public => {}
            () = internal => {}
            () = executors => {}
            () = admin => {}
            () = certificate => {}
            () = schedules => {}
            () = events_of_payments => {}
            () = notices => {}
            () = auto_top_ups => {}
            () = redemptions => {}
            () = stopped(&app, stop) => {}
        }
        // What it gives up, another one goes on with; its calls of this API end by themselves.
        if let Some(executor) = executor {
            tokio::select! {
                () = executor.stop() => {}
                () = app.shutdown.cancelled() => executor.kill(),
            }
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

async fn drain(app: &App, connections: Closing) {
    app.tasks.close();
    let under_way = app.tasks.len();
    if under_way > 0 {
        tracing::info!(requests = under_way, "waiting for requests under way");
    }
    let limit = Duration::from_millis(app.config.limits.connections.shutdown_ms);
    // Connections end after the request that they are in; work for clients that have gone may go on.
    let mut done = pin!(async {
        connections.finish().await;
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
    app.tracer.flush().await;
    app.database.close().await;
}

/// What a client hears beyond its address's share.
fn too_many() -> ApiError {
    ApiError::new(
        ErrorCode::TooManyConnections,
        "Your address has as many connections as it may, with a request under way on each; try again shortly.",
    )
    .with_retry_after(Duration::from_secs(1))
}
