//! Authentication of other services, by tokens of an OIDC issuer. The configuration must name each service; users
//! cannot use it.
//!
//! Services have no rate limit and no lockout at their own port: an executor sends the requests of many users from one
//! address.
//!
//! Nodes are services, too: without `identity.outgoing`, a node signs its token itself; see [`super::node_token`].
//!
//! **Invariant:** the token or the configuration grants a service's scopes; each handler requires the scope that it
//! needs.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;
use weir_errors::{ApiError, ErrorCode};
use weir_request::audit::AuditEvent;

use super::caller::Identification;
use super::credentials::bearer;
use super::jwt::{TokenError, TokenVerifier};
use super::parts::IdentityParts;

/// A permission that a service's token can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceScope {
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

impl ServiceScope {
    fn name(self) -> &'static str {
        match self {
            Self::ModelCall => "model:call",
            Self::PluginsWrite => "plugins:write",
            Self::SwarmRun => "swarm:run",
        }
    }
}

impl ServiceCaller {
    /// A node, which calls models for the users of its swarms.
    fn node() -> Self {
        Self {
            name: "node".to_owned(),
            scopes: vec![ServiceScope::ModelCall.name().to_owned()],
        }
    }

    /// The service's verified e-mail address, or its subject.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Refuses a service whose token lacks a scope.
    pub fn require(&self, scope: ServiceScope) -> Result<(), ApiError> {
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

impl<S> FromRequestParts<S> for ServiceCaller
where
    Arc<IdentityParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let identity = &*Arc::<IdentityParts>::from_ref(state);
        if bearer(&parts.headers).is_some_and(|token| identity.node_tokens.verify(token)) {
            require_cache(parts, identity).await?;
            return Ok(Self::node());
        }
        Ok(identify(parts, identity, identity.verifiers.api.as_ref()).await?)
    }
}

/// A service that calls an executor, with a token for executors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorCaller(pub ServiceCaller);

impl<S> FromRequestParts<S> for ExecutorCaller
where
    Arc<IdentityParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let identity = &*Arc::<IdentityParts>::from_ref(state);
        let verifier = identity.verifiers.executor.as_ref();
        Ok(Self(identify(parts, identity, verifier).await?))
    }
}

/// The reasons for which a service is rejected.
#[derive(Debug)]
pub(super) enum ServiceRefusal {
    /// The credentials are invalid.
    Forged,
    /// The token is genuine, but expired or not on the list.
    Genuine,
    /// Another error.
    Other(ApiError),
}

impl From<ServiceRefusal> for ApiError {
    fn from(refusal: ServiceRefusal) -> Self {
        match refusal {
            ServiceRefusal::Other(error) => error,
            ServiceRefusal::Forged | ServiceRefusal::Genuine => Self::new(
                ErrorCode::Unauthenticated,
                "Send a valid service token as a bearer token.",
            ),
        }
    }
}

/// Authenticates a service by its token.
pub(super) async fn identify(
    parts: &Parts,
    identity: &IdentityParts,
    verifier: Option<&TokenVerifier>,
) -> Result<ServiceCaller, ServiceRefusal> {
    require_cache(parts, identity)
        .await
        .map_err(ServiceRefusal::Other)?;
    let refused = |reason, refusal| {
        let method = "service";
        let event = AuditEvent::AuthenticationFailed { method, reason };
        identity.audit.record(event);
        refusal
    };
    let token =
        bearer(&parts.headers).ok_or_else(|| refused("no token", ServiceRefusal::Forged))?;
    let verifier =
        verifier.ok_or_else(|| refused("no issuer is configured", ServiceRefusal::Forged))?;
    match verifier.verify(token).await {
        Ok(verified) => Ok(ServiceCaller {
            name: verified.email.unwrap_or(verified.subject),
            scopes: verified.scopes,
        }),
        Err(error @ TokenError::Unavailable) => Err(ServiceRefusal::Other(error.into())),
        Err(error) if error.is_genuine() => {
            Err(refused("expired or not allowed", ServiceRefusal::Genuine))
        }
        Err(_) => Err(refused("a token was refused", ServiceRefusal::Forged)),
    }
}

/// Refuses a request without the cache: weir cannot bill and therefore serves nothing.
async fn require_cache(parts: &Parts, identity: &IdentityParts) -> Result<(), ApiError> {
    match identity.cache.probe_writes().await {
        Ok(_) => Ok(()),
        Err(error) => Identification { parts, identity }.without_cache(error),
    }
}

/// Authenticates a service at the public port. As for users, a rejected token counts against its address, and a lockout
/// rejects the request.
pub async fn service_among_users(
    parts: &mut Parts,
    identity: &IdentityParts,
) -> Result<ServiceCaller, ApiError> {
    // Services have no rate limit.
    Identification { parts, identity }
        .require_no_lockout()
        .await?;
    match identify(parts, identity, identity.verifiers.api.as_ref()).await {
        Err(ServiceRefusal::Forged) => {
            let identification = Identification { parts, identity };
            identification.count_failure().await?;
            Err(ServiceRefusal::Forged.into())
        }
        outcome => Ok(outcome?),
    }
}
