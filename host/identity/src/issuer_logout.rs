//! Back-channel logout: an issuer ends sessions of the console without a browser (OpenID Connect Back-Channel Logout 1.0).

use http::request::Parts;
use weir_errors::{ApiError, ErrorCode};
use weir_storage::clock::Millis;

use super::caller::Identification;
use super::ended_sessions::{self, SessionsOf};
use super::jwt::{self, TokenError};
use super::parts::IdentityParts;
use super::web_session::LONGEST;

/// Ends the sessions that a logout token names, on every node: those of one sign-in, or all of a person.
///
/// Issuers have no rate limit, because one may end thousands of sessions. A forged token counts against the sender's
/// address.
pub async fn end_sessions(
    parts: &Parts,
    identity: &IdentityParts,
    token: &str,
) -> Result<(), ApiError> {
    let identification = Identification { parts, identity };
    identification.require_no_lockout().await?;
    let issuer = jwt::named_issuer(token).and_then(|name| identity.sign_in.find(&name));
    let verified = match issuer {
        Some(issuer) => issuer.verify_logout(token).await,
        None => Err(TokenError::Issuer),
    };
    let (issuer, token) = match (issuer, verified) {
        (Some(issuer), Ok(token)) => (&issuer.settings().issuer, token),
        (_, Err(error @ TokenError::Unavailable)) => return Err(error.into()),
        (_, refused) => {
            identification.record_failure("oidc", "a logout token was refused");
            if !refused.is_err_and(TokenError::is_genuine) {
                identification.count_failure().await?;
            }
            return Err(ApiError::new(
                ErrorCode::InvalidRequest,
                "The logout token is invalid.",
            ));
        }
    };
    let of = match (&token.session, &token.subject) {
        (Some(session), _) => SessionsOf::SignIn(session),
        (None, Some(subject)) => SessionsOf::Person(subject),
        (None, None) => return Ok(()),
    };
    let expires_at = Millis(identity.clock.now().0 + LONGEST.as_millis() as i64);
    ended_sessions::end_all(identity, issuer, of, token.issued_at, expires_at).await
}
