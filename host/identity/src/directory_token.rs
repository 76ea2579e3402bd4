//! The tokens with which directories provision users (`crate::scim`).

use http::request::Parts;
use weir_errors::ApiError;

use super::caller::Identification;
use super::credentials::bearer;
use super::parts::IdentityParts;
use super::settings::SignInSettings;

/// Returns the issuer whose directory sends a request. Directories have no rate limit, because one may send thousands of
/// users. A wrong token counts against the sender's address.
///
/// # Errors
///
/// 401 for a missing or wrong token, 429 for a locked-out address.
pub async fn find_directory<'a>(
    parts: &Parts,
    identity: &'a IdentityParts,
) -> Result<&'a SignInSettings, ApiError> {
    let identification = Identification { parts, identity };
    identification.require_no_lockout().await?;
    let Some(token) = bearer(&parts.headers) else {
        return identification.refuse("scim", "no token");
    };
    let mut issuers = identity.sign_in.iter();
    match issuers.find(|issuer| issuer.is_directory_token(token)) {
        Some(issuer) => Ok(issuer.settings()),
        None => identification.fail("scim", "the token is unknown").await,
    }
}
