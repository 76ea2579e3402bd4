//! The administrators' API: the platform's usage, the cost and revenue of each model, users and their keys, security
//! events.
//!
//! - [`users`], [`keys`] and [`events`]: endpoints that need only a [`Core`](weir_request::node::Core), so that commands can call them while no
//!   gateway runs.
//! - [`report`]: the figures, as plain functions of sums by day, model and provider; [`store`]: those sums.
//! - [`routes`]: the endpoints of reports. Only administrators may call a handler that takes an [`AdminCaller`](weir_identity::admin::AdminCaller): web
//!   users with the admin role, which `weir user grant-admin` grants, and processes that may open the admin socket.
//!
//! A report covers a calendar month in UTC, independent of the accounts' billing cycles: a charge counts on the day of
//! its settlement.
//!
//! - [`gateway`]: endpoints at the admin socket only: the gateway's address, and links to the console.
//! - [`catalog_layer`]: changes of the catalog.
//! - [`user_usage`]: a user's usage, as [`weir_accounts::billing::history`] returns it to the user.
//! - [`overview`]: requests, errors, times, tokens and spend by hour or day, and the state of providers.
//! - [`requests`]: the requests of all accounts, with the errors of failed ones.
//!
//! **Invariant:** a report reads sums, never entries, and names no person.
//! **Invariant:** each figure is rounded once, from exact sums, never from a rounded figure.
//!
//! To add a figure, add it to [`report`], and its sums to [`store`].

pub mod catalog_layer;
pub mod events;
pub mod gateway;
pub mod keys;
pub mod lockouts;
pub mod overview;
pub mod report;
pub mod requests;
pub mod routes;
mod store;
pub mod tight_budgets;
pub mod user_usage;
pub mod users;

use axum::extract::{FromRef, FromRequestParts};
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_identity::endpoints::{Access, Endpoints, get, post};
use weir_identity::handlers;
use weir_request::node::Core;

pub use self::store::account_names;

/// Returns the administrators' endpoints that need a gateway.
pub fn endpoints() -> Endpoints<App> {
    Endpoints::new().row(
        Access::Admin,
        handlers!(
            routes::get_platform_usage,
            routes::list_model_economics,
            overview::get_overview,
            requests::list_requests,
            requests::get_request_content,
            user_usage::export_usage,
            user_usage::get_user_usage,
            user_usage::list_user_requests,
            user_usage::get_user_request,
            user_usage::list_user_transactions,
            catalog_layer::get_catalog_layer,
            catalog_layer::list_catalog_layers,
            catalog_layer::check_catalog_layer,
            catalog_layer::replace_catalog_layer,
            catalog_layer::restore_catalog_layer,
            keys::create_key
        ),
    )
}

/// Returns the administrators' endpoints of users and their keys, lockouts and security events. Commands call them without a
/// gateway, too.
pub fn core_endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
    AdminCaller: FromRequestParts<S, Rejection = ApiError>,
{
    Endpoints::new().row(
        Access::Admin,
        handlers!(
            users::list_users,
            users::get_user,
            users::disable_user,
            users::enable_user,
            users::set_plan,
            users::set_filter_options,
            users::set_budgets,
            users::top_up,
            users::adjust,
            users::grant_admin,
            users::revoke_admin,
            keys::list_keys,
            keys::revoke_key,
            lockouts::list_lockouts,
            lockouts::clear_lockout,
            events::list_events
        ),
    )
}

/// Returns the endpoints of the admin socket alone.
pub fn local_endpoints() -> Endpoints<App> {
    Endpoints::new().row(
        Access::Admin,
        [
            get("/local/gateway", gateway::get_gateway),
            post("/local/console-link", gateway::create_console_link),
        ],
    )
}
