//! Administrators: users with the admin role, and processes of this machine that may open the admin socket.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;
use weir_errors::{ApiError, ErrorCode};
use weir_request::audit::Actor;
use weir_request::context::RequestContext;
use weir_request::node::Core;

use super::caller::WebCaller;
use super::parts::IdentityParts;

/// The peer of a request at the admin socket: a process of this machine that may open the socket.
#[derive(Debug, Clone, Copy)]
pub struct LocalPeer {
    /// The process's user.
    pub uid: u32,
}

/// An administrator: a web user with the admin role, or a process that may open the admin socket. The extractor rejects
/// keys and anonymous requests with 401, and other callers with 403.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdminCaller {
    /// The administrator's name in the audit log: `user:usr_…` or `local:UID`.
    pub actor: Actor,
}

impl<S> FromRequestParts<S> for AdminCaller
where
    Arc<IdentityParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        if let Some(local) = Self::local(parts) {
            return Ok(local);
        }
        let caller = WebCaller::from_request_parts(parts, state).await?;
        caller.administrator()
    }
}

impl WebCaller {
    /// The same web user as an administrator.
    ///
    /// # Errors
    ///
    /// 403 without the admin role.
    pub fn administrator(&self) -> Result<AdminCaller, ApiError> {
        if !self.admin {
            return Err(ApiError::new(
                ErrorCode::Forbidden,
                "Only administrators may do this.",
            ));
        }
        let actor = Actor::user(&self.user_id);
        Ok(AdminCaller { actor })
    }
}

/// The state of the administrators' routes for a command while no gateway runs; it has only a [`Core`].
#[derive(Clone)]
pub struct WithoutGateway(pub Core);

impl FromRef<WithoutGateway> for Core {
    fn from_ref(WithoutGateway(core): &WithoutGateway) -> Self {
        core.clone()
    }
}

impl FromRequestParts<WithoutGateway> for AdminCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &WithoutGateway) -> Result<Self, ApiError> {
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
