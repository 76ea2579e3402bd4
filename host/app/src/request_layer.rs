//! The layer around every request of every route: the request's context, the restriction of development mode, CORS,
//! errors and panics as the documented body, and the headers of every response.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ipnet::IpNet;
use weir_errors::{ApiError, ErrorCode, ProtocolErrorBody};
use weir_identity::RateSlot;
use weir_identity::admin::LocalPeer;
use weir_identity::client_address::ClientAddress;
use weir_request::context::{REQUEST_ID, RequestContext, RequestObservers};
use weir_request::cors;
use weir_storage::cache::RateDecision;

use crate::App;

/// The IP address of a connection's peer.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// The reason for which weir rejects a request before any route: its connection has no slot for it, or its head is
/// invalid.
#[derive(Debug, Clone)]
pub struct EarlyRejection(pub ApiError);

/// An error whose response already has its own body: a page.
#[derive(Debug, Clone)]
pub struct PageError(pub ApiError);

/// The mark of a response that is equal for all clients, and permanent at its path.
#[derive(Debug, Clone)]
pub struct PermanentResponse;

/// The layer around all routes.
pub async fn request_layer(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (method, path) = (request.method(), request.uri().path());
    let headers = request.headers();
    let observers = RequestObservers {
        metrics: Some(app.metrics.requests.clone()),
        log_export: app.log_export.clone(),
        failures: Some(app.failed_requests.clone()),
        content_log: app.content_log.clone(),
        traffic: Some(app.traffic.clone()),
    };
    let context = RequestContext::new(method, path, headers, route, observers, &app.tracer);
    request.extensions_mut().insert(context.clone());
    let rate = RateSlot::default();
    request.extensions_mut().insert(rate.clone());
    if let Some(&Peer(peer)) = request.extensions().get() {
        let trusted = &app.config.trusted_proxies;
        warn_of_unnamed_proxy(peer, request.headers(), trusted);
        let address = ClientAddress::of(peer, request.headers(), trusted);
        request.extensions_mut().insert(address);
    }
    let origin = cors::listed_origin(&app.config.cors_origins, request.headers());
    let answered = context
        .ids()
        .scope(answer(&app, request, next, origin.is_some()))
        .await;
    let mut response = render(answered, &context);
    let is_lasting = response.extensions().get::<PermanentResponse>().is_some();
    let headers = response.headers_mut();
    if let Some(origin) = origin {
        cors::share_with(origin, headers);
    }
    if !app.config.cors_origins.is_empty() {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(rate) = rate.get() {
        show_rate(rate, headers);
    }
    if let Ok(id) = HeaderValue::from_str(context.shown_id()) {
        if let Some(name) = context.vendors_id_header() {
            headers.insert(name, id.clone());
        }
        headers.insert(REQUEST_ID, id);
    }
    // A response belongs to one user, and its content type is as declared.
    let caching = match is_lasting {
        true => "public, max-age=31536000, immutable",
        false => "no-store",
    };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if app.draining.is_cancelled() {
        // The client must not reuse the connection; its next one may reach another gateway.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns the route's response, or the response of a check before all routes.
async fn answer(
    app: &App,
    mut request: Request,
    next: Next,
    may_share: bool,
) -> Result<Response, ApiError> {
    if let Some(EarlyRejection(error)) = request.extensions_mut().remove() {
        return Err(error);
    }
    let is_local = request.extensions().get::<LocalPeer>().is_some() || is_local(request.headers());
    if app.config.is_dev() && !is_local {
        return Err(ApiError::new(
            ErrorCode::DevelopmentMode,
            "This gateway is in development mode and serves only its own machine, without a proxy; \
             set `dev = false` to serve other machines.",
        ));
    }
    if may_share && cors::is_preflight(request.method(), request.headers()) {
        return Ok(cors::preflight(request.headers()).into_response());
    }
    AssertUnwindSafe(next.run(request))
        .catch_unwind()
        .await
        .map_err(|_| ApiError::internal())
}

/// Writes an error in the format of its client, and records the response.
fn render(answered: Result<Response, ApiError>, context: &RequestContext) -> Response {
    let (error, allow) = match answered {
        Err(error) => (error, None),
        Ok(mut response) if response.extensions().get::<PageError>().is_some() => {
            let told = response.extensions_mut().remove::<PageError>();
            let error = told.as_ref().map(|PageError(error)| error);
            context.note_answer(response.status(), error);
            return response;
        }
        Ok(mut response) => match error_of(&mut response) {
            // axum sets the path's methods in this header.
            Some(error) => (error, response.headers_mut().remove(header::ALLOW)),
            None => {
                context.note_answer(response.status(), None);
                return response;
            }
        },
    };
    let status = context.status_of(&error);
    context.note_answer(status, Some(&error));
    let mut response = error.render(status, &context.error_body(&error));
    context.show_facts(response.headers_mut());
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

fn error_of(response: &mut Response) -> Option<ApiError> {
    if response
        .extensions_mut()
        .remove::<ProtocolErrorBody>()
        .is_some()
    {
        return None;
    }
    let status = response.status();
    match response.extensions_mut().remove::<ApiError>() {
        // An extractor of axum has rejected the request with its own text.
        None if status.is_client_error() || status.is_server_error() => Some(
            ApiError::new(ErrorCode::InvalidRequest, "The request is malformed.")
                .with_status(status),
        ),
        error => error,
    }
}

/// Writes requests per minute, the remaining requests, and the seconds until the limit is complete again: in the headers
/// of draft-ietf-httpapi-ratelimit-headers, and in OpenAI's, which agents read.
fn show_rate(rate: &RateDecision, headers: &mut HeaderMap) {
    let policy = format!("\"requests\";q={};w=60", rate.limit);
    let seconds = rate.reset_after.as_millis().div_ceil(1_000);
    let left = format!("\"requests\";r={};t={seconds}", rate.remaining);
    for (name, value) in [
        ("ratelimit-policy", policy),
        ("ratelimit", left),
        ("x-ratelimit-limit-requests", rate.limit.to_string()),
        ("x-ratelimit-remaining-requests", rate.remaining.to_string()),
        ("x-ratelimit-reset-requests", format!("{seconds}s")),
    ] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Warns once about a probable proxy of the operator that is missing from the trusted ones: rate limits and lockouts
/// would treat all its clients as one.
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
         if it is your proxy, add it to `trusted_proxies`, otherwise all its clients count as one"
        );
    }
}

/// Returns whether a proxy has passed the request on, according to its headers.
pub fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        name == header::FORWARDED
            || name == header::VIA
            || name.as_str().starts_with("x-forwarded-")
    })
}

/// Returns whether a request came from this machine without a proxy, according to its headers. A page in a browser that
/// resolves its own name to this machine sends its own name as the host.
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
