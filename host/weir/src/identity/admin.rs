//! Administrators: users with the admin role, and processes of this machine that may open the admin socket.

use axum::extract::FromRequestParts;
use http::request::Parts;
use weir_errors::{ApiError, ErrorCode};

use super::WebCaller;
use crate::app::App;
use crate::audit::Actor;
use crate::context::RequestContext;
use crate::node::Core;

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
