//! The claims of ID tokens and logout tokens (OpenID Connect Core 1.0 §3.1.3.7, Back-Channel Logout 1.0 §2.6).
//!
//! The verifier has checked signature, issuer, audience and times.

use serde_json::Value;
use weir_storage::clock::Millis;

use crate::jwt::{SignedClaims, TokenError};

const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The ID token of a sign-in.
#[derive(Debug, PartialEq)]
pub(super) struct IdToken {
    pub(super) subject: String,
    /// The issuer's id of the sign-in, if it has one.
    pub(super) session: Option<String>,
    pub(super) issued_at: Millis,
}

/// A logout token, which ends sessions.
#[derive(Debug, PartialEq)]
pub struct LogoutToken {
    /// The person.
    pub subject: Option<String>,
    /// The issuer's id of the sign-in.
    pub session: Option<String>,
    /// The time of the issuer at which it issued the token.
    pub issued_at: Millis,
}

impl IdToken {
    /// Reads the ID token for a client and the nonce of its sign-in.
    pub(super) fn read(
        claims: &SignedClaims,
        client_id: &str,
        nonce: &str,
    ) -> Result<Self, TokenError> {
        let is_shared =
            matches!(claims.get("aud"), Some(Value::Array(audiences)) if audiences.len() > 1);
        match claims.text("azp")? {
            Some(party) if party == client_id => {}
            None if !is_shared => {}
            _ => return Err(TokenError::Audience),
        }
        if claims.text("nonce")? != Some(nonce) {
            return Err(TokenError::Nonce);
        }
        Ok(Self {
            subject: claims.subject()?.ok_or(TokenError::Claim)?.to_owned(),
            session: claims.text("sid")?.map(str::to_owned),
            issued_at: claims.issued_at()?,
        })
    }
}

impl LogoutToken {
    /// Reads a logout token.
    pub(super) fn read(claims: &SignedClaims) -> Result<Self, TokenError> {
        let event = claims
            .get("events")
            .and_then(|events| events.get(LOGOUT_EVENT));
        // An ID token has a nonce, so that it cannot pass for a logout token.
        if !event.is_some_and(Value::is_object) || claims.get("nonce").is_some() {
            return Err(TokenError::Claim);
        }
        claims.text("jti")?.ok_or(TokenError::Claim)?;
        let subject = claims.subject()?.map(str::to_owned);
        let session = claims.text("sid")?.map(str::to_owned);
        if subject.is_none() && session.is_none() {
            return Err(TokenError::Claim);
        }
        Ok(Self {
            subject,
            session,
            issued_at: claims.issued_at()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Claims with changes; a null removes a claim.
    fn claims(mut claims: Value, changes: Value) -> SignedClaims {
        for (name, value) in changes.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        if let Value::Object(claims) = &mut claims {
            claims.retain(|_, value| !value.is_null());
        }
        SignedClaims::unsigned(claims)
    }

    #[test]
    fn an_id_token_is_for_its_client_and_its_sign_in() {
        let read = |changes| {
            let token =
                json!({ "sub": "alice", "aud": "weir", "nonce": "n", "iat": 7, "sid": "s" });
            IdToken::read(&claims(token, changes), "weir", "n")
        };
        let token = IdToken {
            subject: "alice".to_owned(),
            session: Some("s".to_owned()),
            issued_at: Millis(7_000),
        };
        assert_eq!(read(json!({})), Ok(token));
        assert!(read(json!({ "sid": null })).is_ok());
        assert!(read(json!({ "aud": ["weir"] })).is_ok());
        assert!(read(json!({ "aud": ["weir", "other"], "azp": "weir" })).is_ok());
        for (changes, error) in [
            (json!({ "aud": ["weir", "other"] }), TokenError::Audience),
            (json!({ "azp": "other" }), TokenError::Audience),
            (json!({ "nonce": "m" }), TokenError::Nonce),
            (json!({ "nonce": null }), TokenError::Nonce),
            (json!({ "nonce": 1 }), TokenError::Claim),
            (json!({ "sub": null }), TokenError::Claim),
            (json!({ "iat": null }), TokenError::Claim),
            (json!({ "sid": ["s"] }), TokenError::Claim),
        ] {
            assert_eq!(read(changes.clone()), Err(error), "{changes}");
        }
    }

    #[test]
    fn a_logout_token_has_the_event_and_names_a_person_or_a_sign_in() {
        let read = |changes| {
            let token = json!({
                "sub": "alice", "sid": "s", "jti": "1", "iat": 7, "events": { LOGOUT_EVENT: {} },
            });
            LogoutToken::read(&claims(token, changes))
        };
        assert_eq!(
            read(json!({})).map(|token| token.issued_at),
            Ok(Millis(7_000))
        );
        assert!(read(json!({ "sub": null })).is_ok());
        assert!(read(json!({ "sid": null })).is_ok());
        for changes in [
            json!({ "sub": null, "sid": null }),
            json!({ "nonce": "n" }),
            json!({ "events": null }),
            json!({ "events": { "other": {} } }),
            json!({ "events": { LOGOUT_EVENT: true } }),
            json!({ "events": [LOGOUT_EVENT] }),
            json!({ "jti": null }),
            json!({ "iat": null }),
        ] {
            assert_eq!(read(changes.clone()), Err(TokenError::Claim), "{changes}");
        }
    }
}
