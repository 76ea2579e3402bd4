//! Connections: who gets one ([`connections`]), what of it reaches hyper ([`gate`]), and the drain at the end.

mod accept;
mod admin_socket;
mod bodies;
mod connections;
pub mod descriptors;
mod framing;
mod gate;
pub mod settings;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;

use self::accept::accept;
pub use self::admin_socket::AdminSocket;
use crate::app::App;
use crate::payments::{auto_top_up, inbox, notices};
use crate::router;
use crate::swarm::executor::Executor;
use crate::tasks::timer;

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
    let connections = GracefulShutdown::new();
    let Listeners {
        public,
        internal,
        executor: executors,
        admin,
    } = listeners;
    if let Some(Ok(address)) = public.as_ref().map(TcpListener::local_addr) {
        app.payments.serves_at(address);
    }
    {
        let accept_from =
            async |listener: Option<TcpListener>, routes: fn(App) -> Router| match listener {
                Some(listener) => {
                    accept(&app, listener, routes(app.clone()), &connections).await;
                }
                None => std::future::pending().await,
            };
        let public = accept_from(public, router::public);
        let internal = accept_from(internal, router::internal);
        let executors = accept_from(executors, router::executor);
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
        let events_of_payments = inbox::run(&app);
        let notices = notices::run(&app);
        let auto_top_ups = auto_top_up::run(&app);
        tokio::select! {
            () = public => {}
            () = internal => {}
            () = executors => {}
            () = admin => {}
            () = schedules => {}
            () = events_of_payments => {}
            () = notices => {}
            () = auto_top_ups => {}
            () = stopped(&app, stop) => {}
        }
        // What it gives up, another one goes on with; its calls of this API end by themselves.
        if let Some(executor) = executor {
            executor.stop().await;
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
