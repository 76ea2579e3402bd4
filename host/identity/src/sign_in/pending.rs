//! A sign-in between its begin and the issuer's redirect. The browser keeps it in a sealed cookie, so any node can end
//! the sign-in.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::form_urlencoded;
use weir_storage::clock::Millis;
use weir_storage::sealing::{KeyRing, Purpose};
use weir_storage::secrets::random_bytes;

/// The time in which a person must sign in at the issuer.
pub const LIFETIME: Duration = Duration::from_secs(10 * 60);

/// A sign-in that has begun.
#[derive(Serialize, Deserialize)]
pub struct PendingSignIn {
    pub(crate) issuer: String,
    pub(super) state: String,
    pub(super) nonce: String,
    /// The PKCE code verifier (RFC 7636 §4.1).
    pub(super) verifier: String,
    pub(super) redirect_uri: String,
    next: String,
    expires_at: i64,
}

/// The parameters with which an issuer redirects a browser to weir.
#[derive(Default)]
pub(crate) struct IssuerRedirect {
    pub(crate) state: Option<String>,
    pub(crate) code: Option<String>,
    /// The issuer's name (RFC 9207).
    pub(crate) issuer: Option<String>,
    pub(crate) has_error: bool,
}

impl PendingSignIn {
    /// Begins a sign-in. `next` is the page to open after it.
    pub fn begin(issuer: &str, redirect_uri: String, next: &str, now: Millis) -> Self {
        let random = || URL_SAFE_NO_PAD.encode(random_bytes::<32>());
        Self {
            issuer: issuer.to_owned(),
            state: random(),
            nonce: random(),
            verifier: random(),
            redirect_uri,
            next: next.to_owned(),
            expires_at: now.0 + LIFETIME.as_millis() as i64,
        }
    }

    /// Returns the sealed cookie.
    pub fn seal(&self, keys: &KeyRing) -> String {
        let plain = serde_json::to_vec(self).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(keys.seal(Purpose::CONSOLE_SIGN_IN, &[], &plain))
    }

    /// Opens a cookie; `None` if it is invalid or expired.
    pub fn open(sealed: &str, keys: &KeyRing, now: Millis) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let plain = keys.unseal(Purpose::CONSOLE_SIGN_IN, &[], &sealed).ok()?;
        let pending: Self = serde_json::from_slice(&plain).ok()?;
        (now.0 < pending.expires_at).then_some(pending)
    }

    /// The page to open after the sign-in.
    pub fn next(&self) -> &str {
        &self.next
    }

    /// Returns the PKCE code challenge (RFC 7636 §4.2).
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier))
    }

    /// Whether a redirect belongs to this sign-in.
    pub(crate) fn has_state(&self, state: &str) -> bool {
        let same = aws_lc_rs::constant_time::verify_slices_are_equal(
            state.as_bytes(),
            self.state.as_bytes(),
        );
        same.is_ok()
    }
}

impl IssuerRedirect {
    /// Reads a query.
    pub(crate) fn read(query: &str) -> Self {
        let mut redirect = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
            match &*name {
                "state" => redirect.state = Some(value),
                "code" => redirect.code = Some(value),
                "iss" => redirect.issuer = Some(value),
                "error" => redirect.has_error = true,
                _ => {}
            }
        }
        redirect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_challenge_is_that_of_the_rfc() {
        let pending = PendingSignIn {
            verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned(),
            ..PendingSignIn::begin("https://id.example", String::new(), "/console", Millis(0))
        };
        assert_eq!(
            pending.challenge(),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }
}
