//! The gate of a web app's endpoints that use secrets or cost money. Each stage can refuse a request, in this order.
//!
//! | Stage | Error |
//! |---|---|
//! | origin of the page | 403 `ORIGIN_NOT_ALLOWED` |
//! | size of the body | 413 `PAYLOAD_TOO_LARGE` |
//! | attestation of the web app | 401 `ATTESTATION_INVALID` |
//! | rate and lockout of the address | 429 `RATE_LIMITED`, `LOCKED_OUT` |
//! | identity of the user | 401 `UNAUTHENTICATED`, 403 `USER_DISABLED`, and 429 `RATE_LIMITED` for the user |

use std::sync::Arc;

use axum::extract::{FromRef, FromRequest, Request};
use http::{HeaderMap, header};
use weir_errors::{ApiError, ErrorCode};
use weir_request::context::RequestContext;
use weir_request::cors;
use weir_request::request::{BodyReader, JsonBody};
use weir_storage::cache::{CallerLookup, RateDecision};

use super::caller::Identification;
use super::client_address::bucket;
use super::credentials::{ATTESTATION, bearer};
use super::errors::locked_out;
use super::jwt::{TokenError, TokenVerifier, VerifiedClaims};
use super::parts::IdentityParts;

/// The maximum bytes of a body.
const MAX_BYTES: usize = 16 << 10;

/// A web user who passed the gate, with their request body.
pub struct GatedUser {
    /// The user's id.
    pub user_id: String,
    /// The JSON body.
    pub body: JsonBody,
}

impl<S> FromRequest<S> for GatedUser
where
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
    S: Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let identity = &*Arc::<IdentityParts>::from_ref(state);
        check_origin(identity, request.headers())?;
        let (parts, body) = request.into_parts();
        let body = Request::from_parts(parts.clone(), body);
        let body = JsonBody::read(body, &BodyReader::from_ref(state), MAX_BYTES).await?;
        let identification = Identification {
            parts: &parts,
            identity,
        };
        identification.attest().await?;
        identification.admit_address().await?;
        let caller = match bearer(&parts.headers) {
            None => return Err(unsigned()),
            Some(token) => {
                let verifier = identity.verifiers.identity.as_ref();
                let verified = identification.prove(verifier, token, unsigned).await?;
                identification.web_user(&verified, None).await?
            }
        };
        if let Some(context) = parts.extensions.get::<RequestContext>() {
            context.note_user(&caller.user_id);
        }
        Ok(Self {
            user_id: caller.user_id,
            body,
        })
    }
}

/// Accepts pages of configured origins. In development mode, it also accepts requests without an origin, such as a
/// command's.
fn check_origin(identity: &IdentityParts, headers: &HeaderMap) -> Result<(), ApiError> {
    let is_page = headers.contains_key(header::ORIGIN);
    let is_listed = cors::listed_origin(&identity.cors_origins, headers).is_some();
    if is_listed || (identity.is_dev && !is_page) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::OriginNotAllowed,
        "This endpoint is for the web app's own pages: the Origin header must be one of `cors_origins`.",
    ))
}

impl Identification<'_> {
    /// Checks that the web app itself sends the request.
    async fn attest(&self) -> Result<(), ApiError> {
        let Some(token) = self.parts.headers.get(ATTESTATION) else {
            self.record_failure("web", "no attestation");
            return Err(unattested());
        };
        let token = token.to_str().unwrap_or_default();
        let verifier = self.identity.verifiers.attestation.as_ref();
        self.prove(verifier, token, unattested).await.map(drop)
    }

    /// Checks the rate and the lockout of the client's address.
    pub(super) async fn admit_address(&self) -> Result<(), ApiError> {
        let decision = self.rate_outside_lockout().await?;
        self.within("address", decision, None)
    }

    /// Checks only the lockout of the client's address.
    pub(super) async fn require_no_lockout(&self) -> Result<(), ApiError> {
        self.rate_outside_lockout().await.map(drop)
    }

    /// Returns the rate decision of the client's address, unless the address is locked out.
    async fn rate_outside_lockout(&self) -> Result<Option<RateDecision>, ApiError> {
        let address = bucket(self.address());
        let from = CallerLookup {
            address: Some((&address, self.rate_of_address())),
            record: None,
        };
        match self.identity.cache.identify(&from).await {
            Ok(known) => match known.locked_out {
                Some(left) => Err(locked_out(left)),
                None => Ok(known.address),
            },
            Err(error) => self.without_cache(error).map(|()| None),
        }
    }

    /// Verifies a token. A forged token counts against the client's address.
    async fn prove(
        &self,
        verifier: Option<&TokenVerifier>,
        token: &str,
        refusal: fn() -> ApiError,
    ) -> Result<VerifiedClaims, ApiError> {
        let verified = match verifier {
            Some(verifier) => verifier.verify(token).await,
            None => Err(TokenError::Issuer),
        };
        match verified {
            Ok(verified) => Ok(verified),
            Err(error @ TokenError::Unavailable) => Err(error.into()),
            Err(error) => {
                self.record_failure("web", "a token was refused");
                if !error.is_genuine() {
                    self.count_failure().await?;
                }
                Err(refusal())
            }
        }
    }
}

fn unattested() -> ApiError {
    ApiError::new(
        ErrorCode::AttestationInvalid,
        "Send a valid attestation token of the web app in X-Identity-AppCheck.",
    )
}

fn unsigned() -> ApiError {
    ApiError::new(
        ErrorCode::Unauthenticated,
        "This endpoint needs a signed-in web user: send their identity token as a bearer token.",
    )
}
