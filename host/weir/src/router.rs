//! The endpoints of each listener: a page that composes the features' rows.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use http::{HeaderName, HeaderValue, Uri};
use weir_accounts::{billing, keys, organisations, payments, vouchers};
use weir_app::request_layer::request_layer;
use weir_app::{App, privacy};
use weir_console::openapi::{self, OpenApiDocument};
use weir_console::{admin, console, monitoring};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::{AdminCaller, WithoutGateway};
use weir_identity::endpoints::{Endpoint, Endpoints};
use weir_identity::scim;
use weir_inference::{plugins, recordings, sessions, vendors};
use weir_request::node::Core;
use weir_swarms::{mcp, swarm, tasks};

/// The header with the database behind an admin socket, for commands to show; passwords masked.
pub const DATABASE: HeaderName = HeaderName::from_static("x-weir-database");

/// The documents of the listeners, each of its own endpoints. The first request for one generates it.
static PUBLIC: LazyLock<OpenApiDocument> =
    LazyLock::new(|| openapi::generate(beside_internal().rows()));
static ALONE: LazyLock<OpenApiDocument> = LazyLock::new(|| openapi::generate(alone().rows()));
static INTERNAL: LazyLock<OpenApiDocument> =
    LazyLock::new(|| openapi::generate(internal_endpoints().rows()));
static EXECUTOR: LazyLock<OpenApiDocument> =
    LazyLock::new(|| openapi::generate(executor_endpoints().rows()));

/// The paths below `/v1`, for clients with an incorrect base URL.
static VENDORS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let paths = vendors::endpoints::<App>().merge(weir_inference::routes::endpoints());
    let paths = paths.rows().iter().map(|row| row.path.clone());
    paths.filter(|path| path.starts_with("/v1/")).collect()
});

/// Returns the endpoints of all listeners, for tests: those of two listeners are there twice.
pub fn endpoints() -> Vec<Endpoint> {
    let listeners = [
        alone(),
        payments::development_endpoints(),
        internal_endpoints(),
        executor_endpoints(),
        local_endpoints(),
    ];
    let rows = listeners.iter().flat_map(Endpoints::rows);
    rows.cloned().collect()
}

/// Returns the routes of the public service.
pub fn public(app: App) -> Router {
    // The metrics are on the internal listener if one exists.
    let endpoints = match app.config.internal_listen {
        Some(_) => beside_internal(),
        None => alone(),
    };
    let endpoints = match app.config.is_dev() {
        true => endpoints.merge(payments::development_endpoints()),
        false => endpoints,
    };
    finish(endpoints, app)
}

/// Returns the routes for services, on their own port.
pub fn internal(app: App) -> Router {
    finish(internal_endpoints(), app)
}

/// Returns an executor's routes for services, on their own port.
pub fn executor(app: App) -> Router {
    finish(executor_endpoints(), app)
}

/// Returns the routes of the admin socket.
pub fn local(app: App) -> Router {
    let name_database = middleware::from_fn_with_state(app.clone(), name_database);
    finish(local_endpoints(), app).layer(name_database)
}

/// Returns the routes for a command while no gateway runs. Errors stay as extensions of their responses.
pub fn without_gateway(core: Core) -> Router {
    core_endpoints()
        .into_router()
        .with_state(WithoutGateway(core))
}

/// The public endpoints of a gateway with an internal listener.
fn beside_internal() -> Endpoints<App> {
    public_endpoints(&PUBLIC)
}

/// The public endpoints of a gateway without an internal listener.
fn alone() -> Endpoints<App> {
    public_endpoints(&ALONE).merge(monitoring::public_metrics_endpoints())
}

fn public_endpoints(document: &'static LazyLock<OpenApiDocument>) -> Endpoints<App> {
    weir_inference::routes::endpoints()
        .merge(vendors::endpoints())
        .merge(weir_catalog::routes::endpoints())
        .merge(keys::routes::endpoints())
        .merge(weir_tools::routes::endpoints())
        .merge(billing::routes::endpoints())
        .merge(vouchers::routes::endpoints())
        .merge(payments::endpoints())
        .merge(organisations::endpoints())
        .merge(privacy::routes::endpoints())
        .merge(sessions::routes::endpoints())
        .merge(swarm::routes::endpoints())
        .merge(tasks::routes::endpoints())
        .merge(mcp::routes::endpoints())
        .merge(admin_endpoints())
        .merge(console::router::endpoints(document))
        .merge(scim::router::endpoints())
        .merge(monitoring::health_endpoints())
        .merge(openapi::endpoints(document))
}

fn internal_endpoints() -> Endpoints<App> {
    swarm::model_calls::endpoints()
        .merge(plugins::routes::endpoints())
        .merge(monitoring::metrics_endpoints())
        .merge(openapi::endpoints(&INTERNAL))
}

fn executor_endpoints() -> Endpoints<App> {
    swarm::routes::executor_endpoints()
        .merge(tasks::routes::executor_endpoints())
        .merge(monitoring::health_endpoints())
        .merge(monitoring::metrics_endpoints())
        .merge(openapi::endpoints(&EXECUTOR))
}

fn local_endpoints() -> Endpoints<App> {
    admin_endpoints()
        .merge(admin::local_endpoints())
        .merge(monitoring::metrics_endpoints())
}

/// The administrators' and operators' endpoints.
fn admin_endpoints() -> Endpoints<App> {
    admin::endpoints()
        .merge(weir_catalog::routes::admin_endpoints())
        .merge(privacy::routes::admin_endpoints())
        .merge(vouchers::admin::endpoints())
        .merge(core_endpoints())
        .merge(recordings::routes::endpoints())
        .merge(weir_tools::remote::routes::endpoints())
        .merge(plugins::routes::endpoints())
}

/// The administrators' endpoints of users, keys and their records: with a gateway or without.
fn core_endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
    AdminCaller: FromRequestParts<S, Rejection = ApiError>,
{
    admin::core_endpoints()
        .merge(privacy::routes::core_endpoints())
        .merge(payments::admin_endpoints())
        .merge(vouchers::admin::core_endpoints())
        .merge(swarm::admin::endpoints())
}

async fn name_database(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Ok(url) = HeaderValue::try_from(app.config.shown_database()) {
        response.headers_mut().insert(DATABASE, url);
    }
    response
}

fn finish(endpoints: Endpoints<App>, app: App) -> Router {
    endpoints
        .into_router()
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), request_layer))
        .with_state(app)
}

async fn unknown_route(uri: Uri) -> ApiError {
    let message = match vendors_path(uri.path()) {
        Some(path) => format!(
            "This path does not exist; you may mean {path}. The base URL for OpenAI's SDKs ends in /v1; the base URL for \
             Anthropic's and Google's SDKs has no version."
        ),
        None => "This path does not exist.".to_owned(),
    };
    ApiError::new(ErrorCode::NotFound, message)
}

/// Returns the vendor's endpoint for a path with a missing or a repeated version, from an incorrect base URL.
fn vendors_path(path: &str) -> Option<&'static str> {
    if path.ends_with("/v1beta/models") || path.contains("/v1beta/models/") {
        return Some("/v1beta/models");
    }
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let path = path.strip_prefix("/v1").unwrap_or(path);
    VENDORS.iter().find_map(|vendors| {
        let rest = vendors.strip_prefix("/v1")?;
        match rest.split_once("/{") {
            Some((start, _)) => (path.strip_prefix(start)?.starts_with('/'))
                .then(|| &vendors[.."/v1".len() + start.len()]),
            None => (path == rest).then_some(&**vendors),
        }
    })
}

async fn wrong_method() -> ApiError {
    ApiError::new(
        ErrorCode::MethodNotAllowed,
        "This path does not support the method; the Allow header lists the supported methods.",
    )
}
