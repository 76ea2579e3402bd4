//! Sessions of web users in the console: the content of the browser's cookie, and its user.
//!
//! The two tokens of a web request begin a session, after the same verification. It lasts as long as the identity
//! token, but no longer than [`LONGEST`]. A one-time link can begin an administrator's session, too: see
//! [`console_link`]. weir stores nothing of a session until it is [ended](WebSession::end): the cookie is sealed, and
//! every request reads the user anew, with the code and the rates of the API's web users. Therefore, disabling a user
//! or revoking the admin role applies immediately.
//!
//! **Invariant:** sessions give no access to the API, whose routes read no cookies. **Invariant:** after a session is
//! ended, every node rejects its cookie. **Invariant:** sessions of a removed issuer, or of development mode outside of
//! it, are worthless.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use weir_errors::{ApiError, ErrorCode};

use super::caller::{Caller, Identification};
use super::dev_issuer::{DevAudience, DevIssuer};
use super::errors::{sessions_failed, store_failed};
use super::key_changes::DEVELOPMENT_USER;
use super::parts::IdentityParts;
use super::{console_link, members, store};
use crate::audit::{Actor, AuditEvent};
use weir_storage::clock::Millis;
use weir_storage::expiring::ExpiringValues;
use weir_storage::ids::Hex;
use weir_storage::sealing::{KeyRing, Purpose};
use weir_storage::secrets::random_bytes;

/// The maximum lifetime of a session.
pub const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);

/// The name of development mode's administrator.
const DEVELOPMENT_ADMIN: &str = "admin";

/// A web user's session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebSession {
    who: SessionIdentity,
    /// The organisation for which the user acts; `None` for the personal account.
    #[serde(default)]
    account: Option<SessionAccount>,
    /// The token in the forms of the session's pages, unknown to other sites.
    form_token: String,
    expires_at: i64,
}

/// The organisation for which a session's user acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SessionAccount {
    id: String,
    /// The name at the moment of the choice.
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum SessionIdentity {
    /// The subject of an identity token.
    Web { issuer: String, subject: String },
    /// The user of the key that development mode prints.
    Development,
    /// The administrator who created a one-time link at the admin socket.
    Link { subject: String },
}

impl WebSession {
    /// Begins a session with a web user's two tokens.
    pub async fn begin(
        parts: &Parts,
        identity: &IdentityParts,
        token: &str,
        attestation: &str,
    ) -> Result<Self, ApiError> {
        let identification = Identification { parts, identity };
        identification.admit_address().await?;
        let verified = identification.verify_web(token, attestation).await?;
        let caller = identification.web_user(&verified, None).await?;
        record_sign_in(
            identity,
            &Actor::user(&caller.user_id),
            caller.user_id,
            "web",
        );
        let who = SessionIdentity::Web {
            issuer: verified.issuer,
            subject: verified.subject,
        };
        Ok(Self::of(who, verified.expires_at, identity))
    }

    /// Begins a session of development mode's user, or of its administrator.
    pub async fn begin_in_development(
        parts: &Parts,
        identity: &IdentityParts,
        as_admin: bool,
    ) -> Result<Self, ApiError> {
        let none = || {
            let what = "Development mode has no such user.";
            ApiError::new(ErrorCode::NotFound, what)
        };
        if !identity.has_development_users {
            return Err(none());
        }
        Identification { parts, identity }.admit_address().await?;
        let now = identity.clock.now();
        let who = match as_admin {
            false => SessionIdentity::Development,
            true => {
                let issuer = DevIssuer::settings(DevAudience::Identity).issuer;
                let subject = DEVELOPMENT_ADMIN.to_owned();
                let user =
                    store::find_or_create_web_user(&identity.database, &issuer, &subject, now)
                        .await;
                let user = user.map_err(store_failed)?;
                store::grant_admin(&identity.database, &user.id, now)
                    .await
                    .map_err(store_failed)?;
                SessionIdentity::Web { issuer, subject }
            }
        };
        let session = Self::of(who, Millis(i64::MAX), identity);
        let caller = session.caller(parts, identity).await?.ok_or_else(none)?;
        let by = Actor::user(&caller.user_id);
        record_sign_in(identity, &by, caller.user_id, "development");
        Ok(session)
    }

    /// Begins an administrator's session with a code of [`console_link`]; uses the code up.
    pub async fn begin_by_link(
        parts: &Parts,
        identity: &IdentityParts,
        code: &str,
    ) -> Result<Self, ApiError> {
        let identification = Identification { parts, identity };
        identification.admit_address().await?;
        let Some(by) = console_link::redeem(identity, code).await? else {
            return identification
                .fail("link", "the link is unknown, used or expired")
                .await;
        };
        let (database, now) = (&identity.database, identity.clock.now());
        let subject = by.as_str().to_owned();
        let user = store::find_or_create_web_user(database, console_link::ISSUER, &subject, now);
        let user = user.await.map_err(store_failed)?;
        if user.disabled_at.is_none() {
            store::grant_admin(database, &user.id, now)
                .await
                .map_err(store_failed)?;
        }
        let session = Self::of(
            SessionIdentity::Link { subject },
            Millis(i64::MAX),
            identity,
        );
        let caller = session.caller(parts, identity).await?;
        let caller = caller.ok_or_else(ApiError::unauthenticated)?;
        record_sign_in(identity, &by, caller.user_id, "link");
        Ok(session)
    }

    fn of(who: SessionIdentity, until: Millis, identity: &IdentityParts) -> Self {
        let longest = identity.clock.now().0 + LONGEST.as_millis() as i64;
        Self {
            who,
            account: None,
            form_token: URL_SAFE_NO_PAD.encode(random_bytes::<32>()),
            expires_at: until.0.min(longest),
        }
    }

    /// Returns the sealed cookie.
    pub fn seal(&self, keys: &KeyRing) -> String {
        let plain = serde_json::to_vec(self).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(keys.seal(Purpose::CONSOLE_SESSION, &[], &plain))
    }

    /// Opens a cookie; `None` if it is invalid or expired.
    pub fn open(sealed: &str, keys: &KeyRing, now: Millis) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let plain = keys.unseal(Purpose::CONSOLE_SESSION, &[], &sealed).ok()?;
        let session: Self = serde_json::from_slice(&plain).ok()?;
        (now.0 < session.expires_at).then_some(session)
    }

    /// Returns the session after its user has chosen an organisation, by its id and name, or their personal account.
    #[must_use]
    pub fn for_account(&self, account: Option<(String, String)>) -> Self {
        let account = account.map(|(id, name)| SessionAccount { id, name });
        Self {
            account,
            ..self.clone()
        }
    }

    /// Returns the name of the organisation with this id, if the user has chosen it.
    pub fn account_name(&self, id: &str) -> Option<&str> {
        let account = self.account.as_ref().filter(|account| account.id == id);
        account.map(|account| &*account.name)
    }

    /// The token in the forms of the session's pages.
    pub fn form_token(&self) -> &str {
        &self.form_token
    }

    /// The remaining lifetime.
    pub fn left(&self, now: Millis) -> Duration {
        Duration::from_millis(self.expires_at.saturating_sub(now.0).max(0).unsigned_abs())
    }

    /// Ends the session before its expiry, on every node.
    pub async fn end(&self, identity: &IdentityParts) -> Result<(), ApiError> {
        let until = Millis(self.expires_at);
        // If the session has ended already, an entry exists.
        let (ended, name) = (ended_sessions(identity), self.name());
        let kept = ended.replace(&name, None, b"", until, identity.clock.now());
        kept.await.map(drop).map_err(sessions_failed)
    }

    /// The name of an ended session's entry; the name does not reveal the cookie.
    fn name(&self) -> String {
        let digest = Sha256::digest(&self.form_token);
        format!("console-ended:{}", Hex(&digest))
    }

    /// Returns the session's user with their current state, within the rates of the address and the plan; `None` if the
    /// session was ended, or its issuer is no longer configured.
    pub async fn caller(
        &self,
        parts: &Parts,
        identity: &IdentityParts,
    ) -> Result<Option<Caller>, ApiError> {
        let ended = ended_sessions(identity)
            .find(&self.name(), identity.clock.now())
            .await;
        if ended.map_err(sessions_failed)?.is_some() {
            return Ok(None);
        }
        let identification = Identification { parts, identity };
        let (database, now) = (&identity.database, identity.clock.now());
        let user = match &self.who {
            SessionIdentity::Web { issuer, subject } => {
                let verifier = identity.verifiers.identity.as_ref();
                if verifier.is_none_or(|verifier| verifier.issuer() != issuer) {
                    return Ok(None);
                }
                identification.admit_address().await?;
                let user = store::find_or_create_web_user(database, issuer, subject, now).await;
                user.map(Some)
            }
            SessionIdentity::Link { subject } => {
                identification.admit_address().await?;
                let issuer = console_link::ISSUER;
                let user = store::find_or_create_web_user(database, issuer, subject, now).await;
                user.map(Some)
            }
            SessionIdentity::Development if !identity.has_development_users => return Ok(None),
            SessionIdentity::Development => {
                identification.admit_address().await?;
                store::find_user(database, DEVELOPMENT_USER).await
            }
        };
        let Some(user) = user.map_err(store_failed)? else {
            return Ok(None);
        };
        // After a membership has ended, the session continues with the personal account.
        let account = match &self.account {
            Some(SessionAccount { id, .. })
                if members::is_member(database, id, &user.id)
                    .await
                    .map_err(store_failed)? =>
            {
                Some(&**id)
            }
            _ => None,
        };
        identification.in_person(user, account).await.map(Some)
    }
}

fn record_sign_in(identity: &IdentityParts, by: &Actor, user_id: String, method: &'static str) {
    let event = AuditEvent::ConsoleSignedIn { user_id, method };
    identity.audit.record_by(by, event);
}

fn ended_sessions(identity: &IdentityParts) -> ExpiringValues {
    ExpiringValues::new(identity.database.clone(), identity.cache.clone())
}
