//! Who is calling.
//!
//! A request proves its caller by an API key (in `X-Api-Key` or as a bearer token), or as a web user by two
//! tokens: an identity token as bearer and an attestation token in `X-Identity-AppCheck`, both verified on
//! every request. Handlers take a [`Caller`]; one that takes a [`WebCaller`] is closed to keys, and one that
//! takes a [`service::ServiceCaller`] is open to other services only. What a web app does with secrets has a [`gate`] of
//! its own.
//!
//! The cache is asked first, in one round trip: is the key known, is the address shut out, is it within its rate, is
//! the key's user within theirs. Where the cache does not answer, nobody is let in (`failure_policy`).
//!
//! A key that the cache does not know is looked up in the database, once for all requests that ask for it at that moment
//! ([`key_lookups`]).
//!
//! A key that is used every few minutes is always known: its record is kept anew when half of its time is over. So a
//! [lockout] of its address never reaches it.
//!
//! **Invariant:** a raw key is shown once, when it is made, and kept nowhere; what is stored is its
//! HMAC under a pepper that the database does not hold.
//! **Invariant:** what was revoked stays revoked: its tombstone is in the cache before the database changes,
//! and readers fill the cache only where nothing stands.
//! **Invariant:** a refusal never says which part of a proof failed.

pub mod api_key;
pub mod client_address;
pub mod console_link;
pub mod dev_issuer;
pub mod directory;
mod fetch;
pub mod gate;
pub mod jwks;
pub mod jwt;
pub mod key_lookups;
pub mod key_records;
pub mod last_used;
pub mod limits;
pub mod lockout;
pub mod pepper;
pub mod rates;
pub mod routes;
pub mod service;
pub mod service_token;
pub mod settings;
pub mod store;
pub mod users;
pub mod verifiers;
pub mod web_session;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use weir_errors::{ApiError, ErrorCode};

use self::api_key::{KeyVerdict, RawKey, StoredKey};
use self::client_address::ClientAddress;
use self::jwt::{TokenError, Verified};
use self::key_records::KEY_TTL;
use self::limits::KeyLimits;
use self::pepper::Peppers;
use self::rates::FailurePolicy;
use crate::app::{App, Core};
use crate::audit::{Actor, AuditEvent};
use crate::context::RequestContext;
use weir_ledger::{AccountId, Payer, Plan, RequestSource};
use weir_storage::cache::{
    Bucket, CacheError, Epoch, Filled, Identify, Lookup, Rate, RateDecision, Record, RecordKey,
    Tombstone,
};
use weir_storage::clock::Millis;
use weir_storage::expiring::ExpiringError;
use weir_storage::ids::Hex;
use weir_storage::secrets::Key;

/// The header of web users' second token.
const ATTESTATION: &str = "x-identity-appcheck";

/// Where the data folder has what development mode's API key is made from.
const DEVELOPMENT_KEY: &str = "keys/development-api-key";

/// The user whose key development mode prints.
pub const DEVELOPMENT_USER: &str = "dev";

/// A caller, proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user who is billed.
    pub user_id: String,
    /// The user's plan.
    pub plan: Plan,
    /// The kind of proof.
    pub proof: Proof,
}

/// The kind of proof that a caller brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// By this API key.
    ApiKey {
        /// Its HMAC, in hexadecimal: what its charges are told apart by.
        hash: String,
        /// Its id, by which its budgets are known.
        id: String,
        /// The models that it may use; all if empty.
        models: Vec<String>,
    },
    /// As a web user.
    Web {
        /// Whether the user record has the admin role.
        admin: bool,
    },
}

/// A web user: what keys may not do, such as making keys, is for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebCaller {
    /// The user's id.
    pub user_id: String,
    /// Whether the user record has the admin role.
    pub admin: bool,
}

/// Where the router finds the rate that a request was counted against, for its response's headers.
pub type RateSlot = Arc<OnceLock<RateDecision>>;

/// What the cache keeps of a key, beside its user and their rate.
#[derive(Serialize, Deserialize)]
struct CachedKey {
    expires_at: i64,
    plan: String,
    /// When the database is asked again; until the record's end, it is believed where the database does not answer.
    refresh_at: i64,
    /// The models that the key may use; all if empty. Records of versions that know of none are not believed.
    models: Vec<String>,
    /// The cache's epoch in which it was read. In another one, the database is asked: a tombstone may have been lost.
    #[serde(default)]
    epoch: Epoch,
}

/// The proof that a request brings.
enum Credentials<'a> {
    None,
    Key(&'a str),
    Web {
        identity: &'a str,
        attestation: &'a str,
    },
    /// A bearer token without its attestation, or the reverse.
    Incomplete,
}

/// Whether a request brings more proofs than the one that is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proofs {
    More,
    Last,
}

/// A key that a request brings.
struct AskedKey<'a> {
    key: &'a RawKey,
    record_key: RecordKey<'a>,
    /// The cache's, as the key was looked for; `None` where the cache did not answer.
    epoch: Option<Epoch>,
    proofs: Proofs,
}

impl Caller {
    /// The account that pays for the request.
    pub fn payer(self) -> Payer {
        let (source, source_id, key_id) = match self.proof {
            Proof::ApiKey { hash, id, .. } => (RequestSource::ApiKey, Some(hash), Some(id)),
            Proof::Web { .. } => (RequestSource::Web, None, None),
        };
        Payer {
            account: AccountId(self.user_id),
            source,
            source_id,
            key_id,
            parent: None,
        }
    }

    /// The models that the caller's key may use; all if empty.
    pub fn models(&self) -> &[String] {
        match &self.proof {
            Proof::ApiKey { models, .. } => models,
            Proof::Web { .. } => &[],
        }
    }

    /// The id of the caller's key.
    pub fn key_id(&self) -> Option<&str> {
        match &self.proof {
            Proof::ApiKey { id, .. } => Some(id),
            Proof::Web { .. } => None,
        }
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let caller = Identification { parts, app }.run().await?;
        if let Some(context) = parts.extensions.get::<RequestContext>() {
            context.note_user(&caller.user_id);
        }
        // For who reads the body: its room is shared out by account.
        parts.extensions.insert(AccountId(caller.user_id.clone()));
        Ok(caller)
    }
}

impl FromRequestParts<App> for WebCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        match Caller::from_request_parts(parts, app).await? {
            Caller {
                user_id,
                proof: Proof::Web { admin },
                ..
            } => Ok(Self { user_id, admin }),
            Caller { .. } => Err(ApiError::new(
                ErrorCode::Unauthenticated,
                "This takes a signed-in web user; an API key is not accepted here.",
            )),
        }
    }
}

/// One request on its way to being identified.
struct Identification<'a> {
    parts: &'a Parts,
    app: &'a App,
}

impl Identification<'_> {
    async fn run(&self) -> Result<Caller, ApiError> {
        let (first, second) = Credentials::of(&self.parts.headers);
        let Some(second) = second else {
            return self.by_proof(first, Proofs::Last).await;
        };
        match self.by_proof(first, Proofs::More).await {
            Err(refusal) if proves_nothing(&refusal) => self.by_proof(second, Proofs::Last).await,
            outcome => outcome,
        }
    }

    /// Who the caller is by one proof. What proves nothing counts against its address, unless there are more proofs.
    async fn by_proof(
        &self,
        credentials: Credentials<'_>,
        proofs: Proofs,
    ) -> Result<Caller, ApiError> {
        let key = match credentials {
            Credentials::Key(text) => RawKey::parse(text),
            _ => None,
        };
        let pepper = &self.app.key_peppers.current().key;
        let hash = key.as_ref().map(|key| key.hash(pepper));
        // Only who has the key can make us compute this.
        let secret = hash.as_ref().map(|hash| Hex(hash).to_string());
        let record_key = match (&key, &secret) {
            (Some(key), Some(secret)) => Some(RecordKey {
                secret,
                id: key.id(),
            }),
            _ => None,
        };
        let address = bucket(self.address());
        let known = self
            .app
            .cache
            .identify(&Identify {
                address: Some((&address, self.rate_of_address())),
                record: record_key,
            })
            .await;
        let (record, epoch) = match known {
            Ok(known) => {
                if let Some(left) = known.locked_out {
                    return Err(locked_out(left));
                }
                self.within("address", known.address, None)?;
                if let Lookup::Found(record) = &known.record {
                    self.within("caller", known.user, Some(&record.user_id))?;
                }
                (known.record, Some(known.epoch))
            }
            Err(error) => {
                self.without_cache(error)?;
                (Lookup::Missing, None)
            }
        };
        match credentials {
            Credentials::None => Err(ApiError::unauthenticated()),
            Credentials::Incomplete => self.fail("web", "incomplete").await,
            Credentials::Web {
                identity,
                attestation,
            } => self.web(identity, attestation).await,
            Credentials::Key(_) => match (&key, record_key) {
                (Some(key), Some(record_key)) => {
                    let asked = AskedKey {
                        key,
                        record_key,
                        epoch,
                        proofs,
                    };
                    self.key(asked, record).await
                }
                _ => self.fail("api_key", "malformed").await,
            },
        }
    }

    async fn key(&self, asked: AskedKey<'_>, record: Lookup) -> Result<Caller, ApiError> {
        let now = self.app.clock.now();
        let caller = |user_id, plan: &str, models| {
            self.app.last_used.touch(asked.key.id(), now);
            Caller {
                user_id,
                plan: plan_named(plan),
                proof: Proof::ApiKey {
                    hash: asked.record_key.secret.to_owned(),
                    id: asked.key.id().to_owned(),
                    models,
                },
            }
        };
        let may_be_shared = matches!(record, Lookup::Missing | Lookup::Found(_));
        // The cache counts requests of those whom it knows.
        let is_counted = matches!(record, Lookup::Found(_));
        let known = match record {
            // What does not parse is from another version, what is of another epoch may have lost its tombstone: the
            // database knows.
            Lookup::Found(record) => serde_json::from_slice::<CachedKey>(&record.payload)
                .ok()
                .filter(|cached| asked.epoch == Some(cached.epoch))
                .map(|cached| (record.user_id, cached)),
            Lookup::Missing | Lookup::Revoked | Lookup::Doubtful => None,
        };
        if let Some((user_id, cached)) = &known {
            // Only the key itself finds its record.
            if now.0 >= cached.expires_at {
                return self.refuse("api_key", "expired");
            }
            if now.0 < cached.refresh_at {
                return Ok(caller(user_id.clone(), &cached.plan, cached.models.clone()));
            }
        }
        let lookups = &self.app.key_lookups;
        let mut looked = match asked.epoch {
            Some(epoch) if may_be_shared => lookups.find(asked.key.id(), epoch, now).await,
            _ => lookups.read_alone(asked.key.id()).await,
        };
        loop {
            let stored = match (looked.found, &known) {
                (Ok(Some(stored)), _) => stored,
                (Ok(None), _) => return self.fail_key(&asked, "unknown").await,
                (Err(_), Some((user_id, cached))) => {
                    return Ok(caller(user_id.clone(), &cached.plan, cached.models.clone()));
                }
                (Err(error), None) => return Err(lookup_failed(&error)),
            };
            match stored.judge(asked.key, &self.app.key_peppers, now) {
                KeyVerdict::Good => {}
                KeyVerdict::Ended => return self.refuse("api_key", "expired or revoked"),
                KeyVerdict::UserDisabled => return Err(self.user_is_disabled("api_key")),
                KeyVerdict::Forged => return self.fail_key(&asked, "forged").await,
            }
            let filled = self.remember_key(&asked, &stored, now).await?;
            // Something has changed since another request's look-up began, and maybe before this request came.
            let is_in_doubt = matches!(filled, Some(Filled::InDoubt | Filled::Refused));
            if looked.is_shared && is_in_doubt {
                looked = lookups.read_alone(asked.key.id()).await;
                continue;
            }
            if filled.is_none() {
                // It was moved to another pepper, or is kept nowhere: what was read is of no use to the next request.
                lookups.forget(asked.key.id());
            }
            if !is_counted {
                self.count(&stored.user_id, &stored.plan).await?;
            }
            let StoredKey {
                user_id,
                plan,
                models,
                ..
            } = &*stored;
            return Ok(caller(user_id.clone(), plan, models.clone()));
        }
    }

    /// Keeps what the database says of a good key in the cache. Returns what became of it, where it was tried.
    async fn remember_key(
        &self,
        asked: &AskedKey<'_>,
        stored: &StoredKey,
        now: Millis,
    ) -> Result<Option<Filled>, ApiError> {
        let Some(epoch) = asked.epoch else {
            return Ok(None);
        };
        if !self.is_current(asked.key, stored).await {
            return Ok(None);
        }
        let cached = CachedKey {
            expires_at: stored.expires_at.0,
            plan: stored.plan.clone(),
            refresh_at: now.0 + KEY_TTL.as_millis() as i64 / 2,
            models: stored.models.clone(),
            epoch,
        };
        let record = Record {
            user_id: stored.user_id.clone(),
            rate: Some(self.rate_of_plan(&stored.plan)),
            payload: serde_json::to_vec(&cached).unwrap_or_default(),
        };
        let filled = self
            .app
            .cache
            .fill(asked.record_key, &record, epoch, KEY_TTL);
        match filled.await {
            Ok(filled) => Ok(Some(filled)),
            Err(error) => self.without_cache(error).map(|()| None),
        }
    }

    /// Whether a key is stored under the current pepper; moves it there if it is not.
    ///
    /// What could not be moved was revoked since, or a node with a newer pepper has moved it.
    async fn is_current(&self, key: &RawKey, stored: &StoredKey) -> bool {
        let current = self.app.key_peppers.current();
        if stored.pepper_version == current.version {
            return true;
        }
        match store::move_key(&self.app.database, key, stored, current).await {
            Ok(moved) => moved,
            Err(error) => {
                tracing::warn!(%error, key_id = key.id(), "a key is not moved to the current pepper");
                false
            }
        }
    }

    async fn web(&self, identity: &str, attestation: &str) -> Result<Caller, ApiError> {
        let verified = self.verify_web(identity, attestation).await?;
        self.web_user(&verified.issuer, &verified.subject).await
    }

    /// What a web user's two tokens prove together.
    async fn verify_web(&self, identity: &str, attestation: &str) -> Result<Verified, ApiError> {
        let verifiers = &self.app.verifiers;
        let (Some(identities), Some(attestations)) = (&verifiers.identity, &verifiers.attestation)
        else {
            return self.fail("web", "no issuer is configured").await;
        };
        match both(tokio::join!(
            identities.verify(identity),
            attestations.verify(attestation)
        )) {
            Ok(identity) => Ok(identity),
            Err(error @ TokenError::Unavailable) => Err(error.into()),
            Err(error) if error.is_genuine() => self.refuse("web", "expired"),
            Err(_) => self.fail("web", "a token was refused").await,
        }
    }

    /// The user whom a web user's tokens name, within their rate.
    async fn web_user(&self, issuer: &str, subject: &str) -> Result<Caller, ApiError> {
        let (database, now) = (&self.app.database, self.app.clock.now());
        let user = store::find_or_create_web_user(database, issuer, subject, now)
            .await
            .map_err(store_failed)?;
        self.in_person(user).await
    }

    /// A user who is here in person, within their rate.
    async fn in_person(&self, user: store::User) -> Result<Caller, ApiError> {
        if user.disabled_at.is_some() {
            return Err(self.user_is_disabled("web"));
        }
        self.count(&user.id, &user.plan).await?;
        Ok(Caller {
            plan: plan_named(&user.plan),
            proof: Proof::Web {
                admin: user.admin_since.is_some(),
            },
            user_id: user.id,
        })
    }

    /// Counts a request of a user whom the cache did not know beforehand.
    async fn count(&self, user_id: &str, plan: &str) -> Result<(), ApiError> {
        let rate = self.rate_of_plan(plan);
        match self.app.cache.take(Bucket::User(user_id), rate).await {
            Ok(decision) => self.within("caller", Some(decision), Some(user_id)),
            Err(error) => self.without_cache(error),
        }
    }

    /// Lets a request pass that is within its rate, and remembers the rate for the response.
    fn within(
        &self,
        scope: &'static str,
        decision: Option<RateDecision>,
        user_id: Option<&str>,
    ) -> Result<(), ApiError> {
        let Some(decision) = decision else {
            return Ok(());
        };
        if !decision.allowed {
            self.remember(decision);
            let context = self.parts.extensions.get::<RequestContext>();
            if let (Some(context), Some(user_id)) = (context, user_id) {
                context.note_user(user_id);
            }
            self.app.audit.record(AuditEvent::RateLimited {
                user_id: user_id.map(str::to_owned),
                scope,
            });
            return Err(ApiError::new(
                ErrorCode::RateLimited,
                "Too many requests; the Retry-After header says when to try again.",
            )
            .with_retry_after(decision.retry_after));
        }
        if user_id.is_some() {
            self.remember(decision);
        }
        Ok(())
    }

    fn remember(&self, decision: RateDecision) {
        if let Some(slot) = self.parts.extensions.get::<RateSlot>() {
            let _ = slot.set(decision);
        }
    }

    /// Refuses what proves nothing, and counts it against its address.
    async fn fail<T>(&self, method: &'static str, reason: &'static str) -> Result<T, ApiError> {
        self.record_failure(method, reason);
        self.count_failure().await?;
        Err(ApiError::unauthenticated())
    }

    /// The same of a key, unless the request brings another proof.
    async fn fail_key<T>(&self, asked: &AskedKey<'_>, reason: &'static str) -> Result<T, ApiError> {
        match asked.proofs {
            Proofs::Last => self.fail("api_key", reason).await,
            Proofs::More => Err(ApiError::unauthenticated()),
        }
    }

    /// Refuses what is genuine, and good no more.
    fn refuse<T>(&self, method: &'static str, reason: &'static str) -> Result<T, ApiError> {
        self.record_failure(method, reason);
        Err(ApiError::unauthenticated())
    }

    fn user_is_disabled(&self, method: &'static str) -> ApiError {
        self.record_failure(method, "the user is disabled");
        users::disabled()
    }

    fn record_failure(&self, method: &'static str, reason: &'static str) {
        let event = AuditEvent::AuthenticationFailed { method, reason };
        self.app.audit.record(event);
    }

    async fn count_failure(&self) -> Result<(), ApiError> {
        match lockout::count_failure(self.app, self.address()).await {
            Ok(()) => Ok(()),
            Err(error) => self.without_cache(error),
        }
    }

    /// Refuses, or lets pass, as `failure_policy` says, when the cache does not answer.
    fn without_cache(&self, _: CacheError) -> Result<(), ApiError> {
        match self.app.config.failure_policy {
            FailurePolicy::Allow => Ok(()),
            FailurePolicy::Reject => Err(ApiError::cache_unavailable(
                "The request could not be checked against its limits; try again.",
            )),
        }
    }

    fn address(&self) -> Option<ClientAddress> {
        self.parts.extensions.get().copied()
    }

    fn rate_of_address(&self) -> Rate {
        let config = &self.app.config;
        config.rate_limits.of_address(config.is_dev())
    }

    fn rate_of_plan(&self, plan: &str) -> Rate {
        let config = &self.app.config;
        config.rate_limits.of_plan(plan, config.is_dev())
    }
}

/// What is counted together: what comes from one address, or from where none is known.
fn bucket(address: Option<ClientAddress>) -> String {
    address.map_or_else(|| "unknown".to_owned(), |address| address.to_string())
}

/// The identity that two tokens prove together. Of two that are refused, the one that proves less says why.
fn both(
    (identity, attestation): (Result<Verified, TokenError>, Result<Verified, TokenError>),
) -> Result<Verified, TokenError> {
    match (identity, attestation) {
        (Ok(identity), Ok(_)) => Ok(identity),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(one), Err(other)) => Err(match one {
            TokenError::Unavailable => other,
            _ if one.is_genuine() => other,
            _ => one,
        }),
    }
}

impl<'a> Credentials<'a> {
    /// The proof that a request brings, and the one to look at if that proves nothing. Clients may send a key of weir's in one
    /// of `X-Api-Key` and `Authorization`, and another service's token in the other one. The tokens of a web user stand alone.
    fn of(headers: &'a HeaderMap) -> (Self, Option<Self>) {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let attestation = text(ATTESTATION);
        let in_authorization = match (bearer(headers), attestation) {
            (Some(identity), Some(attestation)) => Self::Web {
                identity,
                attestation,
            },
            // A token in three parts is no key: its attestation is missing.
            (Some(token), None) if token.contains('.') => Self::Incomplete,
            (Some(key), None) => Self::Key(key),
            (None, Some(_)) => Self::Incomplete,
            (None, None) => Self::None,
        };
        let (Some(key), bearer) = (text("x-api-key"), bearer(headers)) else {
            return (in_authorization, None);
        };
        let is_key = |text: &str| RawKey::parse(text).is_some();
        match bearer {
            Some(bearer) if bearer != key => match (is_key(key), is_key(bearer)) {
                (true, true) => (Self::Key(key), Some(Self::Key(bearer))),
                (false, true) => (Self::Key(bearer), None),
                (true, false) => (Self::Key(key), None),
                (false, false) => (Self::Incomplete, None),
            },
            _ => (Self::Key(key), None),
        }
    }
}

/// Whether a refusal says that a proof is none, so that another one is worth a look.
fn proves_nothing(refusal: &ApiError) -> bool {
    matches!(
        refusal.code(),
        "UNAUTHENTICATED" | "USER_DISABLED" | "LOCKED_OUT"
    )
}

/// Whether a request may be another service's, where both users and services are let in: it has a bearer token that
/// is no API key, and none of what users send beside theirs.
pub fn may_be_service(headers: &HeaderMap) -> bool {
    let is_users = |name: &str| headers.contains_key(name);
    !is_users(ATTESTATION)
        && !is_users("x-api-key")
        && bearer(headers).is_some_and(|token| !token.starts_with(api_key::PREFIX))
}

/// The service that a request is from. One whose token is refused counts against its address, as for users, and an
/// address that is shut out is not listened to: on the public port, anybody may try.
pub async fn service_among_users(
    parts: &mut Parts,
    app: &App,
) -> Result<service::ServiceCaller, ApiError> {
    {
        let identification = Identification { parts, app };
        let address = bucket(identification.address());
        let from = Identify {
            address: Some((&address, identification.rate_of_address())),
            record: None,
        };
        match app.cache.identify(&from).await {
            // Services have no rate.
            Ok(known) => {
                if let Some(left) = known.locked_out {
                    return Err(locked_out(left));
                }
            }
            Err(error) => identification.without_cache(error)?,
        }
    }
    match service::identify(parts, app, app.verifiers.api.as_ref()).await {
        Err(service::Refusal::Forged) => {
            let identification = Identification { parts, app };
            identification.count_failure().await?;
            Err(service::Refusal::Forged.into())
        }
        outcome => Ok(outcome?),
    }
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().unwrap_or("");
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A user's plan. A name of a later version gives no more than the free one.
fn plan_named(name: &str) -> Plan {
    name.parse().unwrap_or_default()
}

fn locked_out(left: Duration) -> ApiError {
    ApiError::new(
        ErrorCode::LockedOut,
        "Too many failed attempts from this address; the Retry-After header says when to try again.",
    )
    .with_retry_after(left)
}

fn store_failed(error: sqlx::Error) -> ApiError {
    lookup_failed(&error)
}

fn lookup_failed(error: &sqlx::Error) -> ApiError {
    ApiError::of_database(error, "asked about a caller")
}

/// What is kept of sessions and links cannot be read or written now.
fn sessions_failed(error: ExpiringError) -> ApiError {
    match error {
        ExpiringError::Cache(_) => {
            ApiError::cache_unavailable("Whether you are signed in is not known now; try again.")
        }
        ExpiringError::Database(error) => {
            ApiError::of_database(&error, "asked about a session of the console")
        }
    }
}

/// Revokes a user's key: from then on it is refused on every node, whatever they have cached.
pub async fn revoke(core: &Core, user_id: &str, key_id: &str, by: &Actor) -> Result<(), ApiError> {
    let exists = RawKey::is_id(key_id)
        && store::has_key(&core.database, user_id, key_id)
            .await
            .map_err(store_failed)?;
    if !exists {
        return Err(no_such_key());
    }
    // The tombstone first: a node that reads the key before the database is told cannot bring it back.
    core.cache
        .bury(Tombstone::Record(key_id), KEY_TTL)
        .await
        .map_err(|_| ApiError::cache_unavailable("The key could not be revoked; try again."))?;
    store::disable_key(&core.database, key_id, core.clock.now())
        .await
        .map_err(store_failed)?;
    let revoked = AuditEvent::KeyRevoked {
        user_id: user_id.to_owned(),
        key_id: key_id.to_owned(),
    };
    core.audit.record_by(by, revoked);
    Ok(())
}

/// The same for whoever need not say whose key it is.
pub async fn revoke_of_anybody(core: &Core, key_id: &str, by: &Actor) -> Result<(), ApiError> {
    let owner = directory::find_owner(&core.database, key_id)
        .await
        .map_err(store_failed)?;
    let owner = owner.ok_or_else(no_such_key)?;
    revoke(core, &owner, key_id, by).await
}

fn no_such_key() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "There is no key of that id.").with_param("key_id")
}

/// Makes a key for a user, within limits, and the user if there is none of that id. Returns when it expires, too.
pub async fn create_key(
    core: &Core,
    peppers: &Peppers,
    (user_id, name): (&str, &str),
    limits: &KeyLimits,
    by: &Actor,
) -> Result<(RawKey, Millis), ApiError> {
    let now = core.clock.now();
    let key = store::create_key(&core.database, peppers, user_id, name, false, now)
        .await
        .map_err(store_failed)?;
    let expires_at = limits::limit_new_key(core, (user_id, key.id()), limits, now).await?;
    let created = AuditEvent::KeyCreated {
        user_id: user_id.to_owned(),
        key_id: key.id().to_owned(),
    };
    core.audit.record_by(by, created);
    Ok((key, expires_at))
}

/// Has a user know a key, and makes the user if there is none of that id; their other keys of the same name end.
pub async fn replace_key(app: &App, user_id: &str, name: &str, key: &RawKey) -> anyhow::Result<()> {
    let event = |key_id: &str| (user_id.to_owned(), key_id.to_owned());
    for key_id in store::active_keys(&app.database, user_id, name).await? {
        app.cache.bury(Tombstone::Record(&key_id), KEY_TTL).await?;
        let (user_id, key_id) = event(&key_id);
        app.audit.record(AuditEvent::KeyRevoked { user_id, key_id });
    }
    let (peppers, now) = (&app.key_peppers, app.clock.now());
    store::keep_key(&app.database, peppers, key, (user_id, name), true, now).await?;
    let (user_id, key_id) = event(key.id());
    app.audit.record(AuditEvent::KeyCreated { user_id, key_id });
    Ok(())
}

/// The key that development mode prints: always the same in one data folder, so that a client which still runs goes on
/// working. One that was revoked is replaced by another.
pub async fn development_key(app: &App, user_id: &str) -> anyhow::Result<RawKey> {
    let folder = &app.config.data_dir;
    let key = own_development_key(folder)?;
    let key = match store::find_key(&app.database, key.id()).await? {
        Some(stored) if stored.disabled_at.is_none() => {
            let (database, peppers, now) = (&app.database, &app.key_peppers, app.clock.now());
            store::renew_key(database, peppers, &key, now).await?;
            return Ok(key);
        }
        Some(_) => {
            std::fs::remove_file(folder.join(DEVELOPMENT_KEY))?;
            own_development_key(folder)?
        }
        None => key,
    };
    replace_key(app, user_id, "development", &key).await?;
    Ok(key)
}

/// The same as its file has it, which is made on first use.
pub fn own_development_key(data_dir: &Path) -> anyhow::Result<RawKey> {
    let key = Key::load_or_create(&data_dir.join(DEVELOPMENT_KEY))?;
    Ok(RawKey::derived(&key))
}
