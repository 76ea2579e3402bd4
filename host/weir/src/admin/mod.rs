//! What administrators are shown and what they change: the platform's usage, what each model costs and earns, users and
//! their keys, security events.
//!
//! - [`users`], [`keys`] and [`events`]: endpoints that need no more than a [`Core`], so that commands have them while no
//!   gateway runs.
//! - [`report`]: the figures, as plain functions of sums by day, model and provider; [`store`]: those sums.
//! - [`routes`]: the endpoints of reports. A handler that takes an [`AdminCaller`] is open to administrators only: web users
//!   whose record has the role, which `weir user grant-admin` gives, and whoever may open the admin socket.
//!
//! A report is about a calendar month in UTC, whatever the billing cycles of accounts are: a charge counts on
//! the day that it was settled.
//!
//! - [`gateway`]: what the admin socket alone tells and makes: where the gateway is reached, and links to the console.
//! - [`user_usage`]: what a user has used, as [`crate::billing::history`] has it for themselves.
//!
//! **Invariant:** a report reads sums, never entries, and names no user.
//! **Invariant:** each figure is rounded once, from exact sums; none is made of another that was rounded.
//!
//! To add a figure, add it to [`report`], and what it is made of to [`store`].

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

/// The peer of a request that came in at the admin socket: a process of this machine that may open it.
#[derive(Debug, Clone, Copy)]
pub struct LocalPeer {
    /// The user whom it runs as.
    pub uid: u32,
}

/// An administrator: a web user with the admin role, or whoever may open the admin socket. Anybody else is refused: keys
/// and strangers with 401, others with 403.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminCaller {
    /// The administrator as the records name them: `user:usr_…` or `local:UID`.
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
                "This is for administrators.",
            ));
        }
        let actor = Actor::user(&user_id);
        Ok(Self { actor })
    }
}

/// Of a command while no gateway runs, which alone has a [`Core`] and nothing else.
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
