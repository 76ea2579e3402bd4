//! Connections: admission ([`connections`], [`connection_slots`]), protocol detection ([`accept`]), the filter before hyper's
//! HTTP/1.1 ([`gate`]), the limits of HTTP/2 ([`http2`]), and the drain at shutdown.

mod accept;
mod admin_socket;
mod bodies;
mod connection_closer;
mod connection_resources;
mod connection_slots;
mod connections;
pub mod descriptors;
mod framing;
mod gate;
mod http1;
mod http2;
mod prefixed_stream;
mod proxy_header;
pub mod starting;
mod write_window;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef as _;
use tokio::net::TcpListener;
use weir_accounts::vouchers::{self, VoucherParts};
use weir_app::App;
use weir_app::tls::Tls;
use weir_payments::{auto_top_up, budget_alerts, inbox, notices};
use weir_swarms::swarm::executor::Executor;
use weir_swarms::tasks::{TaskParts, timer};

use self::accept::{ListenerProtocols, accept};
pub use self::admin_socket::AdminSocket;
use self::connection_closer::ConnectionCloser;
use crate::router;

/// Time that the ledger has to write its queue.
const LEDGER_STOP: Duration = Duration::from_secs(5);

/// Time that clients have to receive their last bytes at shutdown.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The sockets of a gateway.
pub struct Listeners {
    /// The public listener, unless the gateway is an executor without the API.
    pub public: Option<TcpListener>,
    /// The API's listener for services, if configured.
    pub internal: Option<TcpListener>,
    /// The executor's listener for services, if configured.
    pub executor: Option<TcpListener>,
    /// The admin socket, unless it is off.
    pub admin: Option<AdminSocket>,
}

/// Serves until `stop` completes. Readiness then fails, but the gateway accepts connections for
/// `limits.drain_delay_ms`, because load balancers check only every few seconds. Then it drains: it accepts no
/// connections, and running requests finish. After `limits.shutdown_ms` the remaining requests are cancelled.
/// [`App::shutdown`](weir_app::AppState::shutdown) cuts both phases short.
pub async fn serve(
    app: App,
    listeners: Listeners,
    executor: Option<Executor>,
    stop: impl Future<Output = ()>,
) {
    let connections = ConnectionCloser::default();
    let Listeners {
        public,
        internal,
        executor: executors,
        admin,
    } = listeners;
    if let Some(Ok(address)) = public.as_ref().map(TcpListener::local_addr) {
        app.payments.serves_at(address);
        // A second server of the same app uses the same address.
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
        let front = ListenerProtocols {
            tls: app.tls.as_ref().map(Tls::acceptor),
            proxies: app.config.proxy_protocol.clone(),
        };
        let public = accept_from(public, router::public, front);
        // Services are in the operator's own network.
        let internal = accept_from(internal, router::internal, ListenerProtocols::default());
        let executors = accept_from(executors, router::executor, ListenerProtocols::default());
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
        let tasks = TaskParts::from_ref(&app);
        // The process that runs swarms also fires their schedules.
        let schedules = async {
            match &executor {
                Some(_) => timer::run(&tasks).await,
                None => std::future::pending().await,
            }
        };
        let events_of_payments = inbox::run(&app.payments);
        let notices = notices::run(&app.payments);
        let alerts = budget_alerts::run(&app.payments);
        let auto_top_ups = auto_top_up::run(&app.payments);
        let vouchers = VoucherParts::from_ref(&app);
        let redemptions = vouchers::run(&vouchers);
        tokio::select! {
            () = public => {}
            () = internal => {}
            () = executors => {}
            () = admin => {}
            () = certificate => {}
            () = schedules => {}
            () = events_of_payments => {}
            () = notices => {}
            () = alerts => {}
            () = auto_top_ups => {}
            () = redemptions => {}
            () = stopped(&app, stop) => {}
        }
        // Another executor resumes the swarms that this one releases; its calls of this API end by themselves.
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

/// Waits until the gateway must stop, and then for the drain delay.
async fn stopped(app: &App, stop: impl Future<Output = ()>) {
    stop.await;
    app.draining.cancel();
    tokio::select! {
        () = tokio::time::sleep(app.config.drain_delay()) => {}
        () = app.shutdown.cancelled() => {}
    }
}

async fn drain(app: &App, connections: ConnectionCloser) {
    app.tasks.close();
    let under_way = app.tasks.len();
    if under_way > 0 {
        tracing::info!(requests = under_way, "waiting for requests in progress");
    }
    let limit = Duration::from_millis(app.config.limits.connections.shutdown_ms);
    // Connections end after their current request; work for disconnected clients may continue.
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
            "cancelling the remaining requests"
        );
        app.shutdown.cancel();
        // Cancelled requests only have to send an error; a client that does not read is cut off.
        let _ = tokio::time::timeout(LAST_WORDS, done).await;
    }
    close(app).await;
}

/// Writes pending data, and closes the stores.
pub async fn close(app: &App) {
    if tokio::time::timeout(LEDGER_STOP, app.ledger.stop())
        .await
        .is_err()
    {
        tracing::warn!(
            "the ledger does not stop in time; another node, or the next start, settles its unwritten charges"
        );
    }
    app.audit.flush().await;
    app.failed_requests.flush().await;
    if let Some(log) = &app.content_log {
        log.flush().await;
    }
    app.traffic.flush().await;
    if let Err(error) = app.plugins.write_counts(&app.database).await {
        tracing::warn!(%error, "the statistics of plugins since their last write are lost");
    }
    if let Err(error) = app.identity.last_used.flush(&app.database).await {
        tracing::warn!(%error, "the times of last use of keys since their last write are lost");
    }
    app.tracer.flush().await;
    if let Some(export) = &app.log_export {
        export.flush().await;
    }
    app.database.close().await;
}
