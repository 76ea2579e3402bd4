//! Sign-in of people at OpenID Connect issuers: the authorization code flow with PKCE, state and nonce.
//!
//! weir uses its own verifier ([`super::jwt`]), because the crate `openidconnect` verifies signatures with the crates
//! `rsa`, `p256` and `ed25519-dalek`, a second crypto library beside aws-lc-rs.
//!
//! - [`issuer`]: the requests to one issuer, and the URLs that a browser opens there.
//! - [`pending`]: a sign-in between its begin and the issuer's redirect.
//! - [`tokens`]: the claims of ID tokens and logout tokens.
//!
//! **Invariant:** a code counts only in the browser that began the sign-in, for the issuer and the redirect URI of that
//! sign-in. **Invariant:** no error, log line or event holds a code, a token or a client secret.

pub mod issuer;
pub mod pending;
mod tokens;

use anyhow::{Context, ensure};
use weir_outgoing::Client;
use weir_storage::clock::Clock;

use self::issuer::SignInIssuer;
use super::settings::IdentitySettings;

/// The issuers whose users sign in at the console, in the order of the settings.
#[derive(Debug, Default)]
pub struct SignInIssuers(Vec<SignInIssuer>);

impl SignInIssuers {
    /// Reads the issuers' client secrets.
    ///
    /// # Errors
    ///
    /// The error names the setting, and contains nothing of the secret.
    pub fn new(settings: &IdentitySettings, http: &Client, clock: &Clock) -> anyhow::Result<Self> {
        let issuers = settings.sign_in.iter().map(|settings| {
            SignInIssuer::new(settings, http.clone(), clock.clone())
                .with_context(|| format!("the issuer {:?}", settings.name))
        });
        let issuers: Vec<SignInIssuer> = issuers.collect::<anyhow::Result<_>>()?;
        for (index, issuer) in issuers.iter().enumerate() {
            let mut earlier = issuers[..index].iter();
            ensure!(
                !earlier.any(|other| issuer.has_same_directory(other)),
                "the issuer {:?}: `scim_token` is also another issuer's: weir could not tell their directories apart",
                issuer.settings().name
            );
        }
        Ok(Self(issuers))
    }

    /// All issuers.
    pub fn iter(&self) -> impl Iterator<Item = &SignInIssuer> {
        self.0.iter()
    }

    /// Returns the issuer at a place in the settings.
    pub fn at(&self, index: usize) -> Option<&SignInIssuer> {
        self.0.get(index)
    }

    /// Returns the issuer with this `iss` claim.
    pub fn find(&self, issuer: &str) -> Option<&SignInIssuer> {
        self.iter().find(|known| known.settings().issuer == issuer)
    }
}
