//! Every route on one page, and what surrounds them all.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{delete, get, post};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use ipnet::IpNet;

use crate::admin::LocalPeer;
use crate::app::App;
use crate::error::ApiError;
use crate::identity::RateSlot;
use crate::identity::client_address::ClientAddress;
use crate::inference::dialect::openai_chat;
use crate::request::RequestId;
use crate::{admin, billing, catalog, health, identity, inference, metrics, plugins};
use weir_storage::cache::RateDecision;
use weir_storage::ids;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The routes of the public service.
pub fn public(app: App) -> Router {
    let routes = Router::new()
        .route("/chat", post(inference::routes::create_chat_completion))
        .route("/code", post(inference::routes::create_code_completion))
        .route(
            "/v1/chat/completions",
            post(inference::routes::create_chat_completion),
        )
        .route(
            "/api-keys",
            post(identity::routes::create_api_key).get(identity::routes::list_api_keys),
        )
        .route(
            "/api-keys/{key_id}",
            delete(identity::routes::revoke_api_key),
        )
        .route("/usage/me", get(billing::routes::get_usage))
        .route("/billing/sync-balance", post(billing::routes::sync_balance))
        .merge(admin_routes())
        .merge(plugin_routes())
        .route("/models", get(catalog::routes::list_models))
        .route("/v1/models", get(openai_chat::routes::list_models))
        .route("/v1/models/{*id}", get(openai_chat::routes::get_model))
        .route("/health", get(health::get_health))
        .route("/health/ready", get(health::get_readiness));
    // Not for the public where there is another place.
    let routes = match app.config.internal_listen {
        Some(_) => routes,
        None => routes.merge(metrics_route()),
    };
    finish(routes, app)
}

/// The routes for other services, on a port of its own.
pub fn internal(app: App) -> Router {
    let routes = Router::new().route(
        "/internal/agent/code",
        post(inference::routes::create_agent_completion),
    );
    finish(routes.merge(plugin_routes()).merge(metrics_route()), app)
}

/// The routes for whoever may open the admin socket.
pub fn local(app: App) -> Router {
    let routes = admin_routes().merge(plugin_routes()).merge(metrics_route());
    finish(routes, app)
}

fn metrics_route() -> Router<App> {
    Router::new().route("/metrics", get(metrics::routes::get_metrics))
}

/// What administrators reach.
fn admin_routes() -> Router<App> {
    Router::new()
        .route("/admin/usage", get(admin::routes::get_platform_usage))
        .route(
            "/admin/model-economics",
            get(admin::routes::list_model_economics),
        )
}

/// What operators reach, administrators and other services, on either port.
fn plugin_routes() -> Router<App> {
    Router::new()
        .route("/admin/plugins", get(plugins::routes::list_plugins))
        .route("/admin/plugins/events", get(plugins::routes::list_events))
        .route(
            "/admin/plugins/{slot}",
            get(plugins::routes::get_slot).put(plugins::routes::install_plugin),
        )
        .route(
            "/admin/plugins/{slot}/activate",
            post(plugins::routes::activate_plugin),
        )
        .route(
            "/admin/plugins/{slot}/rollback",
            post(plugins::routes::roll_back_plugin),
        )
        .route(
            "/admin/plugins/{slot}/events",
            get(plugins::routes::list_slot_events),
        )
        .route(
            "/admin/plugins/{slot}/{digest}",
            delete(plugins::routes::remove_plugin),
        )
}

fn finish(routes: Router<App>, app: App) -> Router {
    routes
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), surround))
        .with_state(app)
}

async fn unknown_route() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "NOT_FOUND",
        "There is nothing at this path.",
    )
}

async fn wrong_method() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        "This path does not take that method; the Allow header lists those it takes.",
    )
}

/// Gives the request its id, keeps strangers out of development mode, turns errors and panics into the
/// documented body, and writes the access log.
async fn surround(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = RequestId::new(ids::request_id());
    request.extensions_mut().insert(id.clone());
    let rate = RateSlot::default();
    request.extensions_mut().insert(rate.clone());
    if let Some(&Peer(peer)) = request.extensions().get() {
        let trusted = &app.config.trusted_proxies;
        warn_of_unnamed_proxy(peer, request.headers(), trusted);
        let address = ClientAddress::of(peer, request.headers(), trusted);
        request.extensions_mut().insert(address);
    }
    // The route and not the path: people paste keys into paths, too.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let is_local = request.extensions().get::<LocalPeer>().is_some() || is_local(request.headers());
    let response = if app.config.is_dev() && !is_local {
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "DEVELOPMENT_MODE",
            "This gateway is in development mode and serves its own machine only, without a proxy; \
             set `dev = false` to serve others.",
        ))
    } else {
        AssertUnwindSafe(next.run(request))
            .catch_unwind()
            .await
            .map_err(|_| ApiError::internal())
    };
    let mut response = match response {
        Ok(mut response) => match response.extensions_mut().remove::<ApiError>() {
            // No handler's doing: an extractor of axum's, whose text is not ours.
            None if response.status().is_client_error() || response.status().is_server_error() => {
                let message = "The request is malformed.";
                ApiError::new(response.status(), "INVALID_REQUEST", message).render(id.as_str())
            }
            None => response,
            Some(error) => {
                let mut rendered = error.render(id.as_str());
                // axum says here which methods a path takes.
                if let Some(allow) = response.headers_mut().remove(header::ALLOW) {
                    rendered.headers_mut().insert(header::ALLOW, allow);
                }
                rendered.extensions_mut().insert(error);
                rendered
            }
        },
        Err(error) => error.render(id.as_str()),
    };
    if let Some(rate) = rate.get() {
        show_rate(rate, response.headers_mut());
    }
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let status = response.status().as_u16();
    let code = response.extensions().get::<ApiError>().map(ApiError::code);
    let milliseconds = started.elapsed().as_millis() as u64;
    let route = route.as_ref().map(MatchedPath::as_str);
    match status {
        500.. => {
            tracing::error!(%method, route, status, code, milliseconds, request_id = %id, "answered")
        }
        400.. => {
            tracing::info!(%method, route, status, code, milliseconds, request_id = %id, "answered")
        }
        _ => tracing::debug!(%method, route, status, milliseconds, request_id = %id, "answered"),
    }
    response
}

/// The IP address at the other end of a request's connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// The fields of draft-ietf-httpapi-ratelimit-headers: requests in a minute, what is left of them, and the
/// seconds until all are there again.
fn show_rate(rate: &RateDecision, headers: &mut HeaderMap) {
    let policy = format!("\"requests\";q={};w=60", rate.limit);
    let seconds = rate.reset_after.as_millis().div_ceil(1_000);
    let left = format!("\"requests\";r={};t={seconds}", rate.remaining);
    for (name, value) in [("ratelimit-policy", policy), ("ratelimit", left)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Warns, once, of what looks like a proxy of the operator's own that is not among the trusted ones: all its
/// clients would be limited, and shut out, as one.
fn warn_of_unnamed_proxy(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let peer = peer.to_canonical();
    let private = match peer {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback(),
    };
    if private
        && is_forwarded(headers)
        && !trusted.iter().any(|net| net.contains(&peer))
        && !WARNED.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(
            %peer,
            "requests with forwarding headers come from a private address that is not a trusted proxy; \
             if it is yours, add it to `trusted_proxies`, else all its clients count as one"
        );
    }
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        name == header::FORWARDED
            || name == header::VIA
            || name.as_str().starts_with("x-forwarded-")
    })
}

/// Whether a request came from this machine without a proxy, as far as its headers tell. A page in a
/// browser that has its name resolved to this machine sends its own name as the host.
fn is_local(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let loopback = host
        .and_then(|host| host.parse::<http::uri::Authority>().ok())
        .is_some_and(|authority| {
            let host = authority.host().trim_matches(['[', ']']);
            host.eq_ignore_ascii_case("localhost")
                || host
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|ip| ip.is_loopback())
        });
    !is_forwarded(headers) && loopback
}
