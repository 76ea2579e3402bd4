//! Sessions of web users in the console: the content of the browser's cookie, and its user.
//!
//! The two tokens of a web request begin a session, after the same verification. It lasts as long as the identity
//! token, but no longer than [`LONGEST`]. An issuer's sign-in ([`super::sign_in`]) and an administrator's one-time link
//! ([`console_link`]) begin sessions of [`LONGEST`]. weir stores nothing of a session until it has
//! [ended](ended_sessions): the cookie is sealed, and every request reads the user anew, with the code and the rates of
//! the API's web users. Therefore, disabling a user or revoking the admin role applies immediately.
//!
//! **Invariant:** sessions give no access to the API, whose routes read no cookies. **Invariant:** after a session is
//! ended, every node rejects its cookie. **Invariant:** sessions of a removed issuer, or of development mode outside of
//! it, are worthless.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use weir_errors::{ApiError, ErrorCode};
use weir_request::audit::{Actor, AuditEvent};
use weir_request::node::Core;
use weir_storage::clock::Millis;
use weir_storage::sealing::{KeyRing, Purpose};
use weir_storage::secrets::random_bytes;

use super::caller::{Caller, Identification};
use super::dev_issuer::{DevAudience, DevIssuer};
use super::ended_sessions::{self, SessionsOf};
use super::errors::store_failed;
use super::groups;
use super::key_changes::DEVELOPMENT_USER;
use super::parts::IdentityParts;
use super::sign_in::issuer::{Person, SignInError, SignInIssuer};
use super::sign_in::pending::{IssuerRedirect, PendingSignIn};
use super::{console_link, members, store};

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
    Web {
        issuer: String,
        subject: String,
        /// The start of the session, in milliseconds. Cookies of older versions lack it, and count as old.
        #[serde(default)]
        began_at: i64,
    },
    /// A person who signed in at an issuer.
    SignIn {
        issuer: String,
        subject: String,
        /// The `sub` claim, if another claim names the user. Logout tokens name the person by it.
        #[serde(default)]
        signed_in_as: Option<String>,
        /// The issuer's id of the sign-in (`sid`).
        session: Option<String>,
        /// The issuer's time of the ID token, in milliseconds.
        issued_at: i64,
    },
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
            began_at: identity.clock.now().0,
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
                SessionIdentity::Web {
                    issuer,
                    subject,
                    began_at: now.0,
                }
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

    /// Begins a session with an issuer's redirect, whose query has a code. `pending` is the sign-in of the browser.
    pub async fn begin_by_issuer(
        parts: &Parts,
        identity: &IdentityParts,
        pending: Option<&PendingSignIn>,
    ) -> Result<Self, ApiError> {
        let identification = Identification { parts, identity };
        identification.admit_address().await?;
        let redirect = IssuerRedirect::read(parts.uri.query().unwrap_or_default());
        let begun = pending.and_then(|pending| {
            let issuer = identity.sign_in.find(&pending.issuer)?;
            Some((pending, issuer))
        });
        let Some((pending, issuer)) = begun else {
            return identification.refuse("oidc", "no sign-in has begun");
        };
        let state = redirect.state.as_deref().unwrap_or_default();
        if !pending.has_state(state) {
            return identification.fail("oidc", "another sign-in").await;
        }
        if !issuer.is_named(redirect.issuer.as_deref()).await? {
            return identification.fail("oidc", "another issuer").await;
        }
        if redirect.has_error {
            return identification.refuse("oidc", "the issuer refused");
        }
        let code = redirect.code.as_deref().unwrap_or_default();
        let person = match issuer.redeem(pending, code).await {
            Ok(person) => person,
            Err(error @ SignInError::Unavailable) => return Err(error.into()),
            Err(SignInError::Code) => {
                return identification.fail("oidc", "a code was refused").await;
            }
            Err(SignInError::Token(error)) if error.is_genuine() => {
                return identification.refuse("oidc", "expired");
            }
            Err(SignInError::Token(_)) => {
                return identification.fail("oidc", "a token was refused").await;
            }
        };
        Self::begin_of_person(&identification, issuer, person).await
    }

    /// Begins the session of a person whom an issuer has signed in, and applies the issuer's claims to their user.
    async fn begin_of_person(
        identification: &Identification<'_>,
        issuer: &SignInIssuer,
        person: Person,
    ) -> Result<Self, ApiError> {
        let Identification { parts, identity } = identification;
        let (database, now) = (&identity.database, identity.clock.now());
        let settings = issuer.settings();
        let user = store::find_or_create_web_user(database, &settings.issuer, &person.subject, now);
        let user = user.await.map_err(store_failed)?;
        if user.disabled_at.is_none() {
            let (email, name) = (person.email.as_deref(), person.name.as_deref());
            let set = store::set_profile(database, &user.id, email, name);
            set.await.map_err(store_failed)?;
            match settings.scim_token {
                Some(_) => groups::apply_of_directory(identity, &user.id, settings).await?,
                None => groups::apply(identity, &user.id, settings, &person.groups).await?,
            }
        }
        let who = SessionIdentity::SignIn {
            issuer: settings.issuer.clone(),
            signed_in_as: Some(person.signed_in_as).filter(|sub| *sub != person.subject),
            subject: person.subject,
            session: person.session,
            issued_at: person.issued_at.0,
        };
        let session = Self::of(who, Millis(i64::MAX), identity);
        let caller = session.caller(parts, identity).await?;
        let caller = caller.ok_or_else(ApiError::unauthenticated)?;
        let by = Actor::user(&caller.user_id);
        record_sign_in(identity, &by, caller.user_id, "oidc");
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

    /// The issuer at which the session's person signed in; `None` for sessions that began otherwise.
    pub fn issuer<'a>(&self, identity: &'a IdentityParts) -> Option<&'a SignInIssuer> {
        match &self.who {
            SessionIdentity::SignIn { issuer, .. } => identity.sign_in.find(issuer),
            _ => None,
        }
    }

    /// Ends the session before its expiry, on every node.
    pub async fn end(&self, identity: &IdentityParts) -> Result<(), ApiError> {
        ended_sessions::end(identity, &self.form_token, Millis(self.expires_at)).await
    }

    /// Whether the session was ended: alone, by its issuer, or by the erasure of its user.
    async fn has_ended(&self, identity: &IdentityParts) -> Result<bool, ApiError> {
        if ended_sessions::has_ended(identity, &self.form_token).await? {
            return Ok(true);
        }
        let (issuer, subject, others, issued_at) = match &self.who {
            SessionIdentity::SignIn {
                issuer,
                subject,
                signed_in_as,
                session,
                issued_at,
            } => {
                let session = session.as_deref().map(SessionsOf::SignIn);
                let signed_in_as = signed_in_as.as_deref().map(SessionsOf::Person);
                (issuer, subject, [session, signed_in_as], issued_at)
            }
            SessionIdentity::Web {
                issuer,
                subject,
                began_at,
            } => (issuer, subject, [None, None], began_at),
            SessionIdentity::Development | SessionIdentity::Link { .. } => return Ok(false),
        };
        let others = others.into_iter().flatten();
        for of in others.chain([SessionsOf::Person(subject)]) {
            let began_at = Millis(*issued_at);
            if ended_sessions::have_all_ended(identity, issuer, of, began_at).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the session's user, for the endpoint of the request; `None` if the session is worthless.
    ///
    /// # Errors
    ///
    /// Those of an authentication, and 403 if the user's role does not allow the endpoint.
    pub async fn admit(
        &self,
        parts: &mut Parts,
        identity: &IdentityParts,
    ) -> Result<Option<Caller>, ApiError> {
        let caller = self.caller(parts, identity).await?;
        if let Some(caller) = &caller {
            caller.admit(parts)?;
        }
        Ok(caller)
    }

    /// Returns the session's user with their current state, within the rates of the address and the plan; `None` if the
    /// session was ended, or its issuer is no longer configured.
    async fn caller(
        &self,
        parts: &Parts,
        identity: &IdentityParts,
    ) -> Result<Option<Caller>, ApiError> {
        if self.has_ended(identity).await? {
            return Ok(None);
        }
        let identification = Identification { parts, identity };
        let (database, now) = (&identity.database, identity.clock.now());
        let name_at_issuer = match &self.who {
            SessionIdentity::Web {
                issuer, subject, ..
            } => {
                let verifier = identity.verifiers.identity.as_ref();
                if verifier.is_none_or(|verifier| verifier.issuer() != issuer) {
                    return Ok(None);
                }
                Some((&**issuer, subject))
            }
            SessionIdentity::SignIn { issuer, .. } if identity.sign_in.find(issuer).is_none() => {
                return Ok(None);
            }
            SessionIdentity::SignIn {
                issuer, subject, ..
            } => Some((&**issuer, subject)),
            SessionIdentity::Link { subject } => Some((console_link::ISSUER, subject)),
            SessionIdentity::Development if !identity.has_development_users => return Ok(None),
            SessionIdentity::Development => None,
        };
        identification.admit_address().await?;
        let user = match name_at_issuer {
            Some((issuer, subject)) => {
                let user = store::find_or_create_web_user(database, issuer, subject, now).await;
                user.map(Some)
            }
            None => store::find_user(database, DEVELOPMENT_USER).await,
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

/// Ends all sessions of a person that have begun, on every node.
pub async fn end_all(core: &Core, issuer: &str, subject: &str) -> Result<(), ApiError> {
    let now = core.clock.now();
    let expires_at = Millis(now.0 + LONGEST.as_millis() as i64);
    let of = SessionsOf::Person(subject);
    ended_sessions::end_all(core, issuer, of, now, expires_at).await
}

fn record_sign_in(identity: &IdentityParts, by: &Actor, user_id: String, method: &'static str) {
    let event = AuditEvent::ConsoleSignedIn { user_id, method };
    identity.audit.record_by(by, event);
}
