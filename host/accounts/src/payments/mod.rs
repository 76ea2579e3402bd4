//! The endpoints of [payments](weir_payments): checkout pages, the webhook, notices, auto top-up, and the operators' list of
//! events.
//!
//! **Invariant:** handlers only translate between HTTP and `weir-payments`, which has the rules and the SQL.

pub mod admin;
pub mod auto_top_up;
pub mod local;
pub mod notices;
pub mod routes;
pub mod webhook;

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_identity::endpoints::{Access, Endpoints, get, post};
use weir_identity::roles::Permission;
use weir_identity::{IdentityParts, handlers};
use weir_payments::Payments;
use weir_request::node::Core;
use weir_request::request::BodyReader;

/// Returns the endpoints of payments.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Payments: FromRef<S>,
    Core: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new()
        .row(
            Access::Web(Permission::Pay),
            handlers!(
                routes::create_checkout,
                routes::create_top_up,
                routes::create_portal,
                auto_top_up::put_auto_top_up
            ),
        )
        .row(
            Access::Web(Permission::ReadUsage),
            handlers!(auto_top_up::get_auto_top_up),
        )
        .row(
            Access::User(Permission::ReadUsage),
            handlers!(notices::list_notices),
        )
        .row(Access::Signature, handlers!(webhook::receive_event))
}

/// Returns the administrators' endpoints of payments, which work without a gateway.
pub fn admin_endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
    AdminCaller: FromRequestParts<S, Rejection = ApiError>,
{
    Endpoints::new().row(
        Access::Admin,
        handlers!(admin::list_events, admin::retry_event),
    )
}

/// Returns the pages of development mode's payment processor.
pub fn development_endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Payments: FromRef<S>,
{
    Endpoints::new().row(
        Access::Open,
        [
            get("/dev/payments/{page}", local::show_page),
            get("/dev/payments/checkout/{session_id}", local::show_checkout),
            post(
                "/dev/payments/checkout/{session_id}/{act}",
                local::act_on_checkout,
            ),
            get("/dev/payments/portal/{portal_id}", local::show_portal),
            post(
                "/dev/payments/portal/{portal_id}/{act}",
                local::act_on_portal,
            ),
        ],
    )
}
