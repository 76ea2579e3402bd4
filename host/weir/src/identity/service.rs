//! Authentication of other services, by tokens of an OIDC issuer. The configuration must name each service; users
//! cannot use it.
//!
//! Services have no rate limit and no lockout at their own port: an executor sends the requests of many users from one
//! address.
//!
//! **Invariant:** the token or the configuration grants a service's scopes; each handler requires the scope that it
//! needs.

use axum::extract::FromRequestParts;
use http::request::Parts;
use weir_errors::{ApiError, ErrorCode};

use super::jwt::{TokenError, TokenVerifier};
use super::{Identification, bearer};
use crate::app::App;
use crate::audit::AuditEvent;

/// A permission that a service's token can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Call models for users, at the API.
    ModelCall,
    /// See slots, and change what serves in them.
    PluginsWrite,
    /// Run swarms for users, at an executor.
    SwarmRun,
}

/// An authenticated service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCaller {
    name: String,
    scopes: Vec<String>,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Self::ModelCall => "model:call",
            Self::PluginsWrite => "plugins:write",
            Self::SwarmRun => "swarm:run",
        }
    }
}

impl ServiceCaller {
    /// The service's verified e-mail address, or its subject.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Refuses a service whose token lacks a scope.
    pub fn require(&self, scope: Scope) -> Result<(), ApiError> {
        if self.scopes.iter().any(|granted| granted == scope.name()) {
            return Ok(());
        }
        tracing::warn!(
            service = self.name,
            scope = scope.name(),
            "a service lacks a scope"
        );
        Err(ApiError::new(
            ErrorCode::MissingScope,
            format!(
                "This endpoint needs a token with the scope {}.",
                scope.name()
            ),
        ))
    }
}

impl FromRequestParts<App> for ServiceCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        Ok(identify(parts, app, app.verifiers.api.as_ref()).await?)
    }
}

/// A service that calls an executor, with a token for executors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorCaller(pub ServiceCaller);

impl FromRequestParts<App> for ExecutorCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let verifier = app.verifiers.executor.as_ref();
        Ok(Self(identify(parts, app, verifier).await?))
    }
}

/// The reasons for which a service is rejected.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The credentials are invalid.
    Forged,
    /// The token is genuine, but expired or not on the list.
    Genuine,
    /// Another error.
    Other(ApiError),
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Other(error) => error,
            Refusal::Forged | Refusal::Genuine => Self::new(
                ErrorCode::Unauthenticated,
                "Send a valid service token as a bearer token.",
            ),
        }
    }
}

/// Authenticates a service by its token.
pub(super) async fn identify(
    parts: &Parts,
    app: &App,
    verifier: Option<&TokenVerifier>,
) -> Result<ServiceCaller, Refusal> {
    // Without the cache, weir cannot bill and therefore serves nothing.
    if let Err(error) = app.cache.ping().await {
        let identification = Identification { parts, app };
        identification
            .without_cache(error)
            .map_err(Refusal::Other)?;
    }
    let refused = |reason, refusal| {
        let method = "service";
        let event = AuditEvent::AuthenticationFailed { method, reason };
        app.audit.record(event);
        refusal
    };
    let token = bearer(&parts.headers).ok_or_else(|| refused("no token", Refusal::Forged))?;
    let verifier = verifier.ok_or_else(|| refused("no issuer is configured", Refusal::Forged))?;
    match verifier.verify(token).await {
        Ok(verified) => Ok(ServiceCaller {
            name: verified.email.unwrap_or(verified.subject),
            scopes: verified.scopes,
        }),
        Err(error @ TokenError::Unavailable) => Err(Refusal::Other(error.into())),
        Err(error) if error.is_genuine() => {
            Err(refused("expired or not allowed", Refusal::Genuine))
        }
        Err(_) => Err(refused("a token was refused", Refusal::Forged)),
    }
}
