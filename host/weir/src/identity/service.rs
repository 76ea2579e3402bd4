//! Other services, by tokens of an OIDC issuer. Not for users: an e-mail address must be on the allow-list.
//!
//! Services are neither limited nor locked out: an executor makes the requests of many users from one address.
//!
//! **Invariant:** what a service may do, its token says: each handler asks for the scope that it needs.

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;

use super::jwt::TokenError;
use super::{Identification, bearer};
use crate::app::App;
use crate::audit::AuditEvent;
use crate::error::ApiError;

/// A permission that a service's token can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Call models for users, at the API.
    ModelCall,
    /// See slots, and change what serves in them.
    PluginsWrite,
}

/// Another service, proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCaller {
    email: String,
    scopes: Vec<String>,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Self::ModelCall => "model:call",
            Self::PluginsWrite => "plugins:write",
        }
    }
}

impl ServiceCaller {
    /// The service's e-mail address.
    pub fn email(&self) -> &str {
        &self.email
    }

    /// Refuses a service whose token lacks a scope.
    pub fn require(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.iter().any(|granted| granted == scope.name()) {
            return Ok(());
        }
        tracing::warn!(
            service = self.email,
            scope = scope.name(),
            "a service lacks a scope"
        );
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "MISSING_SCOPE",
            format!("This takes a token with the scope {}.", scope.name()),
        ))
    }
}

impl FromRequestParts<App> for ServiceCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let identification = Identification { parts, app };
        // Asked for nothing, but to be there: without it nothing is billed, and so nothing is served.
        if let Err(error) = app.cache.ping().await {
            identification.without_cache(error)?;
        }
        let refused = |reason| {
            app.audit.record(AuditEvent::AuthenticationFailed {
                method: "service",
                reason,
            });
            ApiError::new(
                StatusCode::UNAUTHORIZED,
                "UNAUTHENTICATED",
                "Send a valid service token as a bearer token.",
            )
        };
        let token = bearer(&parts.headers).ok_or_else(|| refused("no token"))?;
        let verifier = app.verifiers.api.as_ref();
        let verifier = verifier.ok_or_else(|| refused("no issuer is configured"))?;
        match verifier.verify(token).await {
            Ok(verified) => Ok(Self {
                // Always there: it is what the allow-list is of.
                email: verified.email.unwrap_or_default(),
                scopes: verified.scopes,
            }),
            Err(error @ TokenError::Unavailable) => Err(error.into()),
            Err(_) => Err(refused("a token was refused")),
        }
    }
}
