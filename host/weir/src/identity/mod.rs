//! Authentication of callers.
//!
//! API keys (in `X-Api-Key` or as a bearer token) authenticate callers. Web users need two tokens: an identity token as
//! bearer and an attestation token in `X-Identity-AppCheck`. weir verifies both on every request. Handlers take a
//! [`Caller`]; a [`WebCaller`] excludes keys, and a [`service::ServiceCaller`] accepts only other services. A [`gate`]
//! protects the web app's endpoints that use secrets.
//!
//! weir first queries the cache, in one round trip, for the key's record, the address's lockout and rate, and the
//! user's rate. If the cache does not respond, weir rejects the request (`failure_policy`).
//!
//! weir reads keys that are not in the cache from the database, once for all concurrent requests ([`key_lookups`]).
//!
//! A key that is used every few minutes stays in the cache, because weir renews its record after half of the lifetime.
//! Therefore, a [lockout] of its address does not affect it.
//!
//! **Invariant:** weir shows a raw key once, at creation, and never stores it; it stores the key's HMAC under a pepper
//! that the database does not hold. **Invariant:** a revoked key stays revoked: its tombstone is in the cache before
//! the database changes, and readers never overwrite a tombstone. **Invariant:** an error never says which part of the
//! credentials failed.

pub mod admin;
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
use self::rates::FailurePolicy;
use crate::app::App;
use crate::audit::{Actor, AuditEvent};
use crate::context::RequestContext;
use crate::node::Core;
use weir_ledger::{AccountId, Payer, Plan, RequestSource};
use weir_storage::cache::{
    Bucket, CacheError, Epoch, Filled, Identify, Lookup, Rate, RateDecision, Record, RecordKey,
    Tombstone,
};
use weir_storage::clock::Millis;
use weir_storage::expiring::ExpiringError;
use weir_storage::ids::Hex;
use weir_storage::secrets::Key;

/// The header with a web user's attestation token.
const ATTESTATION: &str = "x-identity-appcheck";

/// The file in the data folder with the secret of development mode's API key.
const DEVELOPMENT_KEY: &str = "keys/development-api-key";

/// The user of the key that development mode prints.
pub const DEVELOPMENT_USER: &str = "dev";

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user who pays.
    pub user_id: String,
    /// The user's plan.
    pub plan: Plan,
    /// The kind of credentials.
    pub proof: Proof,
}

/// The kind of a caller's credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// An API key.
    ApiKey {
        /// The key's HMAC, in hexadecimal, which identifies its charges.
        hash: String,
        /// The key's id, which identifies its budgets.
        id: String,
        /// The models that it may use; all if empty.
        models: Vec<String>,
    },
    /// A web user.
    Web {
        /// Whether the user record has the admin role.
        admin: bool,
    },
}

/// A web user, for endpoints that do not accept keys, such as the creation of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebCaller {
    /// The user's id.
    pub user_id: String,
    /// Whether the user record has the admin role.
    pub admin: bool,
}

/// The rate decision of a request, which the router writes into the response's headers.
pub type RateSlot = Arc<OnceLock<RateDecision>>;

/// The record of a key in the cache, besides its user and their rate.
#[derive(Serialize, Deserialize)]
struct CachedKey {
    expires_at: i64,
    plan: String,
    /// The time of the next database read, in milliseconds; if that read fails, the record counts until it expires.
    refresh_at: i64,
    /// The models that the key may use; all if empty. Records of older versions lack the field and do not count.
    models: Vec<String>,
    /// The cache's epoch in which weir read the record. In another epoch, weir reads the database, because a tombstone
    /// may be lost.
    #[serde(default)]
    epoch: Epoch,
}

/// The credentials of a request.
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

/// Whether a request has further credentials besides the current ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proofs {
    More,
    Last,
}

/// A key in a request.
struct AskedKey<'a> {
    key: &'a RawKey,
    record_key: RecordKey<'a>,
    /// The epoch of the cache at the look-up; `None` if the cache did not respond.
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
        // The body reader limits its memory by account.
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
                "This endpoint needs a signed-in web user; it does not accept API keys.",
            )),
        }
    }
}

/// One request during authentication.
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

    /// Authenticates the caller by one credential. An invalid credential counts against its address, unless the request
    /// has another one.
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
        // Only the key's holder can reach this computation.
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
        // The cache has counted requests of known users already.
        let is_counted = matches!(record, Lookup::Found(_));
        let known = match record {
            // The database decides if the record comes from another version, or from another epoch, whose tombstones
            // may be lost.
            Lookup::Found(record) => serde_json::from_slice::<CachedKey>(&record.payload)
                .ok()
                .filter(|cached| asked.epoch == Some(cached.epoch))
                .map(|cached| (record.user_id, cached)),
            Lookup::Missing | Lookup::Revoked | Lookup::Doubtful => None,
        };
        if let Some((user_id, cached)) = &known {
            // A match proves the key, because its hash is the record's name.
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
            // The key changed after another request's look-up began, and possibly before this request arrived.
            let is_in_doubt = matches!(filled, Some(Filled::InDoubt | Filled::Refused));
            if looked.is_shared && is_in_doubt {
                looked = lookups.read_alone(asked.key.id()).await;
                continue;
            }
            if filled.is_none() {
                // The record is of no use to the next request: the key has moved to another pepper, or the cache did
                // not keep it.
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

    /// Caches the database's record of a valid key. Returns the result of the write, if there was one.
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

    /// Whether a key is stored under the current pepper; if not, moves it there.
    ///
    /// If the move fails, the key was revoked meanwhile, or a node with a newer pepper has moved it.
    async fn is_current(&self, key: &RawKey, stored: &StoredKey) -> bool {
        let current = self.app.key_peppers.current();
        if stored.pepper_version == current.version {
            return true;
        }
        match store::move_key(&self.app.database, key, stored, current).await {
            Ok(moved) => moved,
            Err(error) => {
                tracing::warn!(%error, key_id = key.id(), "cannot move a key to the current pepper");
                false
            }
        }
    }

    async fn web(&self, identity: &str, attestation: &str) -> Result<Caller, ApiError> {
        let verified = self.verify_web(identity, attestation).await?;
        self.web_user(&verified.issuer, &verified.subject).await
    }

    /// Verifies a web user's two tokens.
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

    /// Returns the user with this subject, after the rate check.
    async fn web_user(&self, issuer: &str, subject: &str) -> Result<Caller, ApiError> {
        let (database, now) = (&self.app.database, self.app.clock.now());
        let user = store::find_or_create_web_user(database, issuer, subject, now)
            .await
            .map_err(store_failed)?;
        self.in_person(user).await
    }

    /// Returns a web user, after the rate check.
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

    /// Counts a request of a user whom the cache did not know.
    async fn count(&self, user_id: &str, plan: &str) -> Result<(), ApiError> {
        let rate = self.rate_of_plan(plan);
        match self.app.cache.take(Bucket::User(user_id), rate).await {
            Ok(decision) => self.within("caller", Some(decision), Some(user_id)),
            Err(error) => self.without_cache(error),
        }
    }

    /// Accepts a request that is within its rate, and stores the rate for the response.
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

    /// Rejects invalid credentials, and counts them against the address.
    async fn fail<T>(&self, method: &'static str, reason: &'static str) -> Result<T, ApiError> {
        self.record_failure(method, reason);
        self.count_failure().await?;
        Err(ApiError::unauthenticated())
    }

    /// Rejects an invalid key; counts it unless the request has another credential.
    async fn fail_key<T>(&self, asked: &AskedKey<'_>, reason: &'static str) -> Result<T, ApiError> {
        match asked.proofs {
            Proofs::Last => self.fail("api_key", reason).await,
            Proofs::More => Err(ApiError::unauthenticated()),
        }
    }

    /// Rejects genuine credentials that expired or were revoked.
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

    /// Rejects or accepts a request without the cache, according to `failure_policy`.
    fn without_cache(&self, _: CacheError) -> Result<(), ApiError> {
        match self.app.config.failure_policy {
            FailurePolicy::Allow => Ok(()),
            FailurePolicy::Reject => Err(ApiError::cache_unavailable(
                "weir could not check the rate limits; retry later.",
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

/// The name under which failures and rates count: the address, or one shared name if it is unknown.
fn bucket(address: Option<ClientAddress>) -> String {
    address.map_or_else(|| "unknown".to_owned(), |address| address.to_string())
}

/// Combines the results of a web user's two tokens. If both fail, the error of the less valid one counts.
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
    /// The credentials of a request, and the alternative if they are invalid. Clients may send weir's key in either
    /// `X-Api-Key` or `Authorization`, and another service's token in the other header. A web user's tokens have no
    /// alternative.
    fn of(headers: &'a HeaderMap) -> (Self, Option<Self>) {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let attestation = text(ATTESTATION);
        let in_authorization = match (bearer(headers), attestation) {
            (Some(identity), Some(attestation)) => Self::Web {
                identity,
                attestation,
            },
            // A token of three parts is not a key, so its attestation is missing.
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

/// Whether an error means invalid credentials, so that an alternative is worth a check.
fn proves_nothing(refusal: &ApiError) -> bool {
    matches!(
        refusal.code(),
        "UNAUTHENTICATED" | "USER_DISABLED" | "LOCKED_OUT"
    )
}

/// Whether a request may come from another service, at endpoints for users and services: it has a bearer token that is
/// not an API key, and no attestation token.
pub fn may_be_service(headers: &HeaderMap) -> bool {
    let is_users = |name: &str| headers.contains_key(name);
    !is_users(ATTESTATION)
        && !is_users("x-api-key")
        && bearer(headers).is_some_and(|token| !token.starts_with(api_key::PREFIX))
}

/// Authenticates a service at the public port. As for users, a rejected token counts against its address, and a lockout
/// rejects the request.
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
            // Services have no rate limit.
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

/// A user's plan. Unknown plans of a later version count as the free plan.
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

pub(crate) fn store_failed(error: sqlx::Error) -> ApiError {
    lookup_failed(&error)
}

fn lookup_failed(error: &sqlx::Error) -> ApiError {
    ApiError::of_database(error, "asked about a caller")
}

/// The store of sessions and links is unavailable.
fn sessions_failed(error: ExpiringError) -> ApiError {
    match error {
        ExpiringError::Cache(_) => {
            ApiError::cache_unavailable("weir could not check the session; retry later.")
        }
        ExpiringError::Database(error) => {
            ApiError::of_database(&error, "reading a session of the console")
        }
    }
}

/// Revokes a user's key; every node rejects it immediately, even if it is cached.
pub async fn revoke(core: &Core, user_id: &str, key_id: &str, by: &Actor) -> Result<(), ApiError> {
    let exists = RawKey::is_id(key_id)
        && store::has_key(&core.database, user_id, key_id)
            .await
            .map_err(store_failed)?;
    if !exists {
        return Err(no_such_key());
    }
    // The tombstone comes first, so that a node that reads the key before the database changes cannot cache it again.
    core.cache
        .bury(Tombstone::Record(key_id), KEY_TTL)
        .await
        .map_err(|_| ApiError::cache_unavailable("weir could not revoke the key; retry later."))?;
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

/// Revokes a key without naming its user.
pub async fn revoke_of_anybody(core: &Core, key_id: &str, by: &Actor) -> Result<(), ApiError> {
    let owner = directory::find_owner(&core.database, key_id)
        .await
        .map_err(store_failed)?;
    let owner = owner.ok_or_else(no_such_key)?;
    revoke(core, &owner, key_id, by).await
}

pub(crate) fn no_such_key() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "No key has this id.").with_param("key_id")
}

/// Registers a key for a user, and creates the user if the id is unknown; revokes the user's other keys with this name.
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

/// Returns the key that development mode prints: always the same in one data folder, so that running clients keep
/// working. If that key was revoked, a new one replaces it.
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

/// Reads that key from its file, which is created on first use.
pub fn own_development_key(data_dir: &Path) -> anyhow::Result<RawKey> {
    let key = Key::load_or_create(&data_dir.join(DEVELOPMENT_KEY))?;
    Ok(RawKey::derived(&key))
}
