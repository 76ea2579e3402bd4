//! The public listener during startup, which is slow if plugins are compiled: it is bound immediately, so that a port
//! conflict shows immediately, and load balancers see the reason for the delay.
//!
//! `/health` returns 200 with `"ready": false`; `/health/ready` and all other paths return 503 with the reason and `Retry-After`. Each
//! connection ends with its response: the next one reaches the gateway itself. With the PROXY protocol, connections
//! wait until then.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use weir_app::config::Config;
use weir_app::tls::Tls;
use weir_errors::{ApiError, ErrorCode};
use weir_plugins::progress::CompileProgress;
use weir_request::context::REQUEST_ID;
use weir_storage::ids;

/// Concurrent connections; more wait in the kernel's queue.
const CONNECTIONS: usize = 64;

/// Time limit of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the public listener until a start completes, and returns its result.
pub async fn answer_until<T>(
    start: impl Future<Output = T>,
    listener: Option<&TcpListener>,
    config: &Config,
    progress: &CompileProgress,
) -> T {
    let answering = async {
        match listener {
            Some(listener) if config.proxy_protocol.is_empty() => {
                answer(listener, config, progress).await;
            }
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        done = start => done,
        () = answering => unreachable!("it answers until it is dropped"),
    }
}

async fn answer(listener: &TcpListener, config: &Config, progress: &CompileProgress) {
    let tls = match config.tls.as_ref().map(Tls::read).transpose() {
        Ok(tls) => tls,
        // The start itself reports its error.
        Err(_) => return std::future::pending().await,
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = places.clone().acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let acceptor = tls.as_ref().map(Tls::http1_acceptor);
        let progress = progress.clone();
        tokio::spawn(async move {
            let served = async {
                match acceptor {
                    None => serve(stream, progress).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve(stream, progress).await;
                        }
                    }
                }
            };
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
            drop(place);
        });
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    progress: CompileProgress,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(request.uri().path(), &progress);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "connection closed");
    }
}

fn respond(path: &str, progress: &CompileProgress) -> Response {
    if path == "/health" {
        return axum::Json(json!({ "status": "starting", "ready": false })).into_response();
    }
    let why = progress.sentence();
    let why = why.unwrap_or_else(|| "weir loads plugins and opens its stores.".to_owned());
    let error = ApiError::new(
        ErrorCode::NotReady,
        format!("The gateway is starting. {why}"),
    )
    .with_retry_after(Duration::from_secs(1));
    let id = ids::request_id();
    let mut response = error.render(error.status(), &error.body(&id));
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
