//! The administrators' API: the platform's usage, the cost and revenue of each model, users and their keys, security
//! events.
//!
//! - [`users`], [`keys`] and [`events`]: endpoints that need only a [`Core`], so that commands can call them while no
//!   gateway runs.
//! - [`report`]: the figures, as plain functions of sums by day, model and provider; [`store`]: those sums.
//! - [`routes`]: the endpoints of reports. Only administrators may call a handler that takes an [`AdminCaller`]: web
//!   users with the admin role, which `weir user grant-admin` grants, and processes that may open the admin socket.
//!
//! A report covers a calendar month in UTC, independent of the accounts' billing cycles: a charge counts on the day of
//! its settlement.
//!
//! - [`gateway`]: endpoints at the admin socket only: the gateway's address, and links to the console.
//! - [`user_usage`]: a user's usage, as [`crate::billing::history`] returns it to the user.
//!
//! **Invariant:** a report reads sums, never entries, and names no user.
//! **Invariant:** each figure is rounded once, from exact sums, never from a rounded figure.
//!
//! To add a figure, add it to [`report`], and its sums to [`store`].

pub mod events;
pub mod gateway;
pub mod keys;
pub mod lockouts;
pub mod report;
pub mod request;
pub mod routes;
mod store;
pub mod user_usage;
pub mod users;

use axum::extract::FromRequestParts;
use http::request::Parts;
use weir_errors::{ApiError, ErrorCode};

use crate::app::{App, Core};
use crate::audit::Actor;
use crate::context::RequestContext;
use crate::identity::WebCaller;

/// The peer of a request at the admin socket: a process of this machine that may open the socket.
#[derive(Debug, Clone, Copy)]
pub struct LocalPeer {
    /// The process's user.
    pub uid: u32,
}

/// An administrator: a web user with the admin role, or a process that may open the admin socket. The extractor rejects
/// keys and anonymous requests with 401, and other callers with 403.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminCaller {
    /// The administrator's name in the audit log: `user:usr_…` or `local:UID`.
    pub actor: Actor,
}

impl FromRequestParts<App> for AdminCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        if let Some(local) = Self::local(parts) {
            return Ok(local);
        }
        let WebCaller { user_id, admin } = WebCaller::from_request_parts(parts, app).await?;
        if !admin {
            return Err(ApiError::new(
                ErrorCode::Forbidden,
                "Only administrators may do this.",
            ));
        }
        let actor = Actor::user(&user_id);
        Ok(Self { actor })
    }
}

/// Extracts the caller for a command while no gateway runs; such a command has only a [`Core`].
impl FromRequestParts<Core> for AdminCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Core) -> Result<Self, ApiError> {
        Self::local(parts).ok_or_else(ApiError::unauthenticated)
    }
}

impl AdminCaller {
    fn local(parts: &Parts) -> Option<Self> {
        let LocalPeer { uid } = parts.extensions.get()?;
        let actor = Actor::local(*uid);
        if let Some(context) = parts.extensions.get::<RequestContext>() {
            context.note_user(actor.as_str());
        }
        Some(Self { actor })
    }
}
