//! Who is calling.
//!
//! A request proves its caller by an API key, in `X-Api-Key` or as a bearer token. Handlers take a
//! [`Caller`]; one that takes none is open to all. Tokens of web users and of other services are
//! verified by [`verifiers`] ([`jwt`] says what a token must be, [`jwks`] where its key comes from);
//! [`dev_issuer`] stands in for an issuer in development mode, and [`service_token`] is what weir
//! presents itself.
//!
//! **Invariant:** a raw key is shown once, when it is made, and kept nowhere; what is stored is its
//! HMAC under a pepper that the database does not hold.

pub mod api_key;
pub mod dev_issuer;
mod fetch;
pub mod jwks;
pub mod jwt;
pub mod service_token;
pub mod settings;
pub mod store;
pub mod verifiers;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, header};

use self::api_key::RawKey;
use crate::app::App;
use crate::clock::Millis;
use crate::error::ApiError;

/// Who is calling, proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user who is billed.
    pub user_id: String,
    /// The key that was used.
    pub key_id: String,
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let key = presented_key(&parts.headers).ok_or_else(ApiError::unauthenticated)?;
        let key = RawKey::parse(key).ok_or_else(ApiError::unauthenticated)?;
        let stored = store::find_key(&app.database, key.id())
            .await
            .map_err(|error| {
                tracing::error!(%error, "looking an API key up");
                ApiError::new(
                    http::StatusCode::SERVICE_UNAVAILABLE,
                    "STORE_UNAVAILABLE",
                    "The key could not be checked; try again.",
                )
                .with_retry_after(std::time::Duration::from_secs(1))
            })?;
        match stored {
            Some(stored) if stored.admits(&key, &app.key_pepper, Millis::now()) => Ok(Self {
                user_id: stored.user_id,
                key_id: key.id().to_owned(),
            }),
            _ => Err(ApiError::unauthenticated()),
        }
    }
}

/// The key that a request presents. Two different ones are no proof of either.
fn presented_key(headers: &HeaderMap) -> Option<&str> {
    let own = match headers.get("x-api-key") {
        Some(value) => Some(value.to_str().ok()?),
        None => None,
    };
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
    match (own, bearer) {
        (Some(own), Some(bearer)) if own != bearer => None,
        (own, bearer) => own.or(bearer),
    }
}
