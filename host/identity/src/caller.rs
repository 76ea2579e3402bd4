//! Callers: API keys and web users, authenticated from the credentials of a request.

use std::sync::{Arc, OnceLock};

use axum::extract::{FromRef, FromRequestParts};
use http::HeaderName;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{AccountId, BudgetPart, Payer, Plan, RequestSource};
use weir_request::audit::AuditEvent;
use weir_request::content_log::ContentLogChoice;
use weir_request::context::RequestContext;
use weir_request::limits::data::{CallerDataLimits, DataLimits};
use weir_storage::cache::{
    Bucket, CacheError, CallerLookup, CredentialRecord, Epoch, FillResult, Rate, RateDecision,
    RecordKey, RecordLookup,
};
use weir_storage::clock::Millis;
use weir_storage::ids::Hex;

use super::api_key::{KeyVerdict, RawKey, StoredKey};
use super::client_address::{ClientAddress, bucket};
use super::credentials::Credentials;
use super::endpoints::permission_of_request;
use super::errors::{locked_out, lookup_failed, store_failed, user_disabled};
use super::filter_options::{CallerFilterOptions, FilterOptions};
use super::jwt::{TokenError, VerifiedClaims};
use super::key_records::KEY_TTL;
use super::limits::{LimitsOwner, RequestLimits};
use super::part_rates::{PartRates, parts_of};
use super::parts::IdentityParts;
use super::rates::FailurePolicy;
use super::roles::{Permission, Role};
use super::scope::KeyScope;
use super::store;
use super::stored_plan::StoredPlan;
use super::{lockout, members};

/// The request header with the account of a web user's request: an organisation's id. Without it, the request is for
/// the user's personal account.
pub const ACCOUNT: HeaderName = HeaderName::from_static("x-weir-account");

/// An authenticated caller. Only this crate makes one, so that no feature acts for an account without the check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caller {
    /// The person or the service account that sends the request.
    pub user_id: String,
    /// The account that pays.
    pub account: AccountId,
    /// The user's role in the account.
    pub role: Role,
    /// The account's plan.
    pub plan: Plan,
    /// The account for whose limits the caller's request counts.
    pub limits: RequestLimits,
    /// The rates that may apply to the caller's requests.
    pub rates: PartRates,
    /// The options of the key and the account for filters.
    pub filter_options: CallerFilterOptions,
    /// The limits of the key and the organisation on providers.
    pub data_limits: CallerDataLimits,
    /// Whether the content of the caller's requests is stored.
    pub content_log: ContentLogChoice,
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
        /// The project that it belongs to.
        project_id: Option<String>,
        /// The models that it may use; all if empty.
        models: Vec<String>,
        /// The endpoints that it may use.
        scope: KeyScope,
    },
    /// A web user.
    Web {
        /// Whether the user record has the admin role.
        admin: bool,
    },
}

/// A web user, for endpoints that do not accept keys, such as the creation of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebCaller {
    /// The user's id.
    pub user_id: String,
    /// The account of the request.
    pub account: AccountId,
    /// The user's role in the account.
    pub role: Role,
    /// Whether the user record has the admin role.
    pub admin: bool,
}

/// The rate decision of a request, which the router writes into the response's headers.
pub type RateSlot = Arc<OnceLock<RateDecision>>;

impl Caller {
    /// The account that pays for the request.
    pub fn payer(self) -> Payer {
        let parts = self.parts();
        let (source, source_id) = match self.proof {
            Proof::ApiKey { hash, .. } => (RequestSource::ApiKey, Some(hash)),
            Proof::Web { .. } => (RequestSource::Web, None),
        };
        Payer {
            account: self.account,
            source,
            source_id,
            parts,
            most: None,
        }
    }

    /// The parts of the account whose budgets apply to the caller's requests.
    pub fn parts(&self) -> Vec<BudgetPart> {
        let (key, project) = match &self.proof {
            Proof::ApiKey { id, project_id, .. } => (Some(&**id), project_id.as_deref()),
            Proof::Web { .. } => (None, None),
        };
        parts_of(&self.account.0, &self.user_id, key, project)
    }

    /// Whether the account is the user's personal one.
    pub fn is_personal(&self) -> bool {
        self.account.0 == self.user_id
    }

    /// The owner of the caller's sessions: the user, or a key that must not read the user's sessions. Sessions of an
    /// organisation's requests are apart from personal ones.
    pub fn session_owner(&self) -> AccountId {
        let user = match self.is_personal() {
            true => self.account.0.clone(),
            false => format!("{}/{}", self.account.0, self.user_id),
        };
        match &self.proof {
            Proof::ApiKey {
                id,
                scope: KeyScope::Inference,
                ..
            } => AccountId(format!("{user}/{id}")),
            _ => AccountId(user),
        }
    }

    /// Refuses to change swarms or tasks of another member, unless the caller manages the account. `parts` are those of
    /// the account whose budgets apply to the work.
    ///
    /// # Errors
    ///
    /// 403 for work of another member.
    pub fn require_author(&self, parts: &[BudgetPart]) -> Result<(), ApiError> {
        let is_own =
            |part: &BudgetPart| matches!(part, BudgetPart::Member(id) if *id == self.user_id);
        if self.is_personal() || self.role.allows(Permission::Manage) || parts.iter().any(is_own) {
            return Ok(());
        }
        let what = "Only the member who created it, or an administrator of the organisation, may change it.";
        Err(ApiError::new(ErrorCode::Forbidden, what).with_no_retry())
    }

    /// The same caller as a web user; `None` for a key.
    pub fn web(&self) -> Option<WebCaller> {
        let Proof::Web { admin } = self.proof else {
            return None;
        };
        Some(WebCaller {
            user_id: self.user_id.clone(),
            account: self.account.clone(),
            role: self.role,
            admin,
        })
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

    /// Refuses another account than the key's, and an endpoint that the caller's role or key does not allow; otherwise notes
    /// the caller for the log and for the body reader, which limits its memory by account.
    ///
    /// # Errors
    ///
    /// 400 that names the header, 403 that names the role or the required scope.
    pub(super) fn admit(&self, parts: &mut Parts) -> Result<(), ApiError> {
        if let Some(context) = parts.extensions.get::<RequestContext>() {
            context.note_user(&self.user_id);
            let project = match &self.proof {
                Proof::ApiKey { project_id, .. } => project_id.as_deref(),
                Proof::Web { .. } => None,
            };
            context.note_payer(&self.account.0, self.key_id(), project);
            context.log_content(self.content_log);
        }
        self.require_named_account(parts)?;
        if let Proof::ApiKey { scope, .. } = &self.proof {
            scope.require(permission_of_request(parts))?;
        }
        if !self.is_personal() {
            self.role.require_endpoint(parts)?;
        }
        parts.extensions.insert(self.limits.account.clone());
        Ok(())
    }

    /// Refuses a key whose account is not the one that the request names: otherwise, another account would pay.
    fn require_named_account(&self, parts: &Parts) -> Result<(), ApiError> {
        let named = parts.headers.get(ACCOUNT);
        let is_key = matches!(self.proof, Proof::ApiKey { .. });
        if is_key && named.is_some_and(|named| named.as_bytes() != self.account.0.as_bytes()) {
            let what = "This API key belongs to another account.";
            return Err(ApiError::invalid_request(ACCOUNT.as_str(), what));
        }
        Ok(())
    }
}

impl<S> FromRequestParts<S> for Caller
where
    Arc<IdentityParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let identity = &*Arc::<IdentityParts>::from_ref(state);
        let caller = Identification { parts, identity }.run().await?;
        caller.admit(parts)?;
        Ok(caller)
    }
}

impl<S> FromRequestParts<S> for WebCaller
where
    Arc<IdentityParts>: FromRef<S>,
    S: Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let identity = &*Arc::<IdentityParts>::from_ref(state);
        let caller = Identification { parts, identity }.run().await?;
        let web = caller.web().ok_or_else(|| {
            ApiError::new(
                ErrorCode::Unauthenticated,
                "This endpoint needs a signed-in web user; it does not accept API keys.",
            )
        })?;
        caller.admit(parts)?;
        Ok(web)
    }
}

/// The record of a key in the cache, besides its account and their rate.
#[derive(Serialize, Deserialize)]
struct CachedKey {
    expires_at: i64,
    /// The account's plan. Nodes of the release before organisations require the field `plan`, so that they read the
    /// database, which disables organisations for them.
    account_plan: String,
    /// The time at which the plan ends without a renewal, in milliseconds; the record does not count then.
    #[serde(default)]
    plan_ends_at: Option<i64>,
    /// The key's holder. Records of older versions lack the field and do not count.
    holder_id: String,
    role: Role,
    project_id: Option<String>,
    /// The rates that may apply to the key's requests.
    rates: PartRates,
    /// The time of the next database read, in milliseconds; if that read fails, the record counts until it expires.
    refresh_at: i64,
    /// The models that the key may use; all if empty. Records of older versions lack the field and do not count.
    models: Vec<String>,
    /// The options for filters. Records of older versions lack the field and do not count.
    filter_options: CallerFilterOptions,
    /// The limits on providers. Records of older versions lack the field and do not count.
    data_limits: CallerDataLimits,
    /// The choices of the content log. Records of older versions lack the field and do not count.
    content_log: ContentLogChoice,
    /// The endpoints that the key may use. Records of older versions lack the field and do not count.
    scope: KeyScope,
    /// The account for whose limits requests count. Records of older versions lack the field and do not count.
    limits: LimitsOwner,
    /// The cache's epoch in which weir read the record. In another epoch, weir reads the database, because a tombstone
    /// may be lost.
    #[serde(default)]
    epoch: Epoch,
}

impl CachedKey {
    /// Returns the account's plan.
    fn plan(&self) -> StoredPlan {
        let plan = self.account_plan.parse().unwrap_or_default();
        StoredPlan::new(plan, self.plan_ends_at.map(Millis))
    }

    /// Whether a request needs no look-up in the database.
    fn suffices(&self, asked: &RequestedKey<'_>, now: Millis) -> bool {
        let until = [
            Some(self.expires_at),
            Some(self.refresh_at),
            self.plan_ends_at,
        ];
        let is_fresh = until.into_iter().flatten().all(|until| now.0 < until);
        is_fresh && asked.epoch == Some(self.epoch)
    }

    fn of(stored: &StoredKey, epoch: Epoch, now: Millis) -> Self {
        Self {
            expires_at: stored.expires_at.0,
            account_plan: stored.plan.at(now).name().to_owned(),
            plan_ends_at: stored.plan.ends_after(now).map(|at| at.0),
            holder_id: stored.holder_id.clone(),
            role: stored.role,
            project_id: stored.project_id.clone(),
            rates: stored.rates.clone(),
            refresh_at: now.0 + KEY_TTL.as_millis() as i64 / 2,
            models: stored.models.clone(),
            filter_options: stored.filter_options.clone(),
            data_limits: stored.data_limits.clone(),
            content_log: stored.content_log,
            scope: stored.scope,
            limits: stored.limits.clone(),
            epoch,
        }
    }
}

/// Whether a request has further credentials besides the current ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proofs {
    More,
    Last,
}

/// A key in a request.
struct RequestedKey<'a> {
    key: &'a RawKey,
    record_key: RecordKey<'a>,
    /// The epoch of the cache at the look-up; `None` if the cache did not respond.
    epoch: Option<Epoch>,
    proofs: Proofs,
}

/// One request during authentication.
pub(super) struct Identification<'a> {
    pub(super) parts: &'a Parts,
    pub(super) identity: &'a IdentityParts,
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
        let pepper = &self.identity.key_peppers.current().key;
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
        let recalled = record_key.and_then(|key| self.identity.cache.recall(key));
        if let (Some(key), Some(record_key), Some(recalled)) = (&key, record_key, &recalled) {
            let asked = RequestedKey {
                key,
                record_key,
                epoch: Some(recalled.epoch),
                proofs,
            };
            if let Some(caller) = self.recalled(&asked, &recalled.record).await? {
                return Ok(caller);
            }
        }
        let address = bucket(self.address());
        let known = self
            .identity
            .cache
            .identify(&CallerLookup {
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
                if let RecordLookup::Found(record) = &known.record {
                    self.within("caller", known.user, Some(&record.user_id))?;
                }
                (known.record, Some(known.epoch))
            }
            Err(error) => {
                self.without_cache(error)?;
                (RecordLookup::Missing, None)
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
                    let asked = RequestedKey {
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

    /// Authenticates a key whose record this process has, and counts the request; `None` if the record does not
    /// suffice.
    async fn recalled(
        &self,
        asked: &RequestedKey<'_>,
        record: &CredentialRecord,
    ) -> Result<Option<Caller>, ApiError> {
        let now = self.identity.clock.now();
        let cached = record.payload.read::<CachedKey>();
        let Some(cached) = cached.filter(|cached| cached.suffices(asked, now)) else {
            return Ok(None);
        };
        let (address, limits) = (bucket(self.address()), cached.limits.at(now));
        let account = &*limits.account.0;
        let counted = [
            (Bucket::Address(&address), self.rate_of_address()),
            (Bucket::User(account), self.rate_of_plan(limits.plan)),
        ];
        match self.identity.cache.count(&counted).await {
            Ok(decisions) => {
                let mut decisions = decisions.into_iter();
                self.within("address", decisions.next(), None)?;
                self.within("caller", decisions.next(), Some(account))?;
            }
            Err(error) => self.without_cache(error)?,
        }
        Ok(Some(self.caller(
            asked,
            record.user_id.clone(),
            &cached,
            now,
        )))
    }

    /// Returns the caller of a valid key.
    fn caller(
        &self,
        asked: &RequestedKey<'_>,
        account: String,
        cached: &CachedKey,
        now: Millis,
    ) -> Caller {
        self.identity.last_used.touch(asked.key.id(), now);
        Caller {
            user_id: cached.holder_id.clone(),
            account: AccountId(account),
            role: cached.role,
            plan: cached.plan().at(now),
            limits: cached.limits.at(now),
            rates: cached.rates.clone(),
            filter_options: cached.filter_options.clone(),
            data_limits: cached.data_limits.clone(),
            content_log: cached.content_log,
            proof: Proof::ApiKey {
                hash: asked.record_key.secret.to_owned(),
                id: asked.key.id().to_owned(),
                project_id: cached.project_id.clone(),
                models: cached.models.clone(),
                scope: cached.scope,
            },
        }
    }

    async fn key(&self, asked: RequestedKey<'_>, record: RecordLookup) -> Result<Caller, ApiError> {
        let now = self.identity.clock.now();
        let caller = |account, cached: &CachedKey| self.caller(&asked, account, cached, now);
        let may_be_shared = matches!(record, RecordLookup::Missing | RecordLookup::Found(_));
        // The cache has counted requests of known accounts with their own limits already.
        let is_known = matches!(record, RecordLookup::Found(_));
        let known = match record {
            // The database decides if the record comes from another version, or from another epoch, whose tombstones
            // may be lost.
            RecordLookup::Found(record) => record
                .payload
                .read::<CachedKey>()
                .filter(|cached| asked.epoch == Some(cached.epoch))
                .map(|cached| (record.user_id, cached)),
            RecordLookup::Missing | RecordLookup::Revoked | RecordLookup::Doubtful => None,
        };
        if let Some((account, cached)) = &known {
            // A match proves the key, because its hash is the record's name.
            if now.0 >= cached.expires_at {
                return self.refuse("api_key", "expired");
            }
            if cached.suffices(&asked, now) {
                self.count_shared(account, &cached.limits.at(now)).await?;
                return Ok(caller(account.clone(), cached));
            }
        }
        let lookups = &self.identity.key_lookups;
        let mut looked = match asked.epoch {
            Some(epoch) if may_be_shared => lookups.find(asked.key.id(), epoch, now).await,
            _ => lookups.read_alone(asked.key.id()).await,
        };
        loop {
            let stored = match (looked.found, &known) {
                (Ok(Some(stored)), _) => stored,
                (Ok(None), _) => return self.fail_key(&asked, "unknown").await,
                (Err(_), Some((account, cached))) => {
                    self.count_shared(account, &cached.limits.at(now)).await?;
                    return Ok(caller(account.clone(), cached));
                }
                (Err(error), None) => return Err(lookup_failed(&error)),
            };
            match stored.judge(asked.key, &self.identity.key_peppers, now) {
                KeyVerdict::Good => {}
                KeyVerdict::Ended => return self.refuse("api_key", "expired or revoked"),
                KeyVerdict::UserDisabled => return Err(self.user_is_disabled("api_key")),
                KeyVerdict::Forged => return self.fail_key(&asked, "forged").await,
            }
            let cached = CachedKey::of(&stored, asked.epoch.unwrap_or_default(), now);
            let filled = self.remember_key(&asked, &stored, &cached).await?;
            // The key changed after another request's look-up began, and possibly before this request arrived.
            let is_in_doubt = matches!(filled, Some(FillResult::InDoubt | FillResult::Refused));
            if looked.is_shared && is_in_doubt {
                looked = lookups.read_alone(asked.key.id()).await;
                continue;
            }
            if filled.is_none() {
                // The record is of no use to the next request: the key has moved to another pepper, or the cache did
                // not keep it.
                lookups.forget(asked.key.id());
            }
            let limits = stored.limits.at(now);
            if is_known {
                self.count_shared(&stored.account_id, &limits).await?;
            } else {
                self.count(&limits).await?;
            }
            return Ok(caller(stored.account_id.clone(), &cached));
        }
    }

    /// Caches the database's record of a valid key. Returns the result of the write, if there was one.
    async fn remember_key(
        &self,
        asked: &RequestedKey<'_>,
        stored: &StoredKey,
        cached: &CachedKey,
    ) -> Result<Option<FillResult>, ApiError> {
        let Some(epoch) = asked.epoch else {
            return Ok(None);
        };
        if !self.is_current(asked.key, stored).await {
            return Ok(None);
        }
        let record = CredentialRecord {
            user_id: stored.account_id.clone(),
            // A shared limit counts for another account than the record's.
            rate: (stored.limits.account.0 == stored.account_id)
                .then(|| self.rate_of_plan(stored.plan.at(self.identity.clock.now()))),
            payload: serde_json::to_vec(cached).unwrap_or_default().into(),
        };
        let filled = self
            .identity
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
        let current = self.identity.key_peppers.current();
        if stored.pepper_version == current.version {
            return true;
        }
        match store::move_key(&self.identity.database, key, stored, current).await {
            Ok(moved) => moved,
            Err(error) => {
                tracing::warn!(%error, key_id = key.id(), "cannot move a key to the current pepper");
                false
            }
        }
    }

    async fn web(&self, identity: &str, attestation: &str) -> Result<Caller, ApiError> {
        let verified = self.verify_web(identity, attestation).await?;
        let account = self.parts.headers.get(ACCOUNT);
        let account = account.map(|account| account.to_str().unwrap_or_default());
        self.web_user(&verified, account).await
    }

    /// Verifies a web user's two tokens.
    pub(super) async fn verify_web(
        &self,
        identity: &str,
        attestation: &str,
    ) -> Result<VerifiedClaims, ApiError> {
        let verifiers = &self.identity.verifiers;
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

    /// Returns the user of a verified identity token, who acts for an account, after the rate check.
    pub(super) async fn web_user(
        &self,
        verified: &VerifiedClaims,
        account: Option<&str>,
    ) -> Result<Caller, ApiError> {
        let (database, now) = (&self.identity.database, self.identity.clock.now());
        let (issuer, subject) = (&verified.issuer, &verified.subject);
        let user = store::find_or_create_web_user(database, issuer, subject, now)
            .await
            .map_err(store_failed)?;
        store::keep_email(database, &user, verified.email.as_deref())
            .await
            .map_err(store_failed)?;
        self.in_person(user, account).await
    }

    /// Returns a web user who acts for an account, their personal one by default, after the rate check.
    pub(super) async fn in_person(
        &self,
        user: store::User,
        account: Option<&str>,
    ) -> Result<Caller, ApiError> {
        if user.disabled_at.is_some() {
            return Err(self.user_is_disabled("web"));
        }
        let (account, role, plan, limits, rates, options, data_limits, of_organisation) =
            match account.filter(|account| *account != user.id) {
                None => (
                    user.id.clone(),
                    Role::Owner,
                    user.plan,
                    LimitsOwner::own(&user.id, user.plan),
                    user.rates,
                    user.filter_options,
                    DataLimits::default(),
                    false,
                ),
                Some(id) => {
                    let membership = members::require(&self.identity.core, id, &user.id).await?;
                    (
                        id.to_owned(),
                        membership.role,
                        membership.plan,
                        membership.limits,
                        membership.rates,
                        membership.filter_options,
                        membership.data_limits,
                        membership.content_log,
                    )
                }
            };
        let now = self.identity.clock.now();
        let (plan, limits) = (plan.at(now), limits.at(now));
        self.count(&limits).await?;
        let mut caller = Caller {
            plan,
            account: AccountId(account),
            limits,
            role,
            rates,
            filter_options: CallerFilterOptions {
                key: FilterOptions::default(),
                account: options,
            },
            data_limits: CallerDataLimits {
                key: DataLimits::default(),
                organisation: data_limits,
            },
            content_log: ContentLogChoice {
                key: false,
                organisation: of_organisation,
            },
            proof: Proof::Web {
                admin: user.admin_since.is_some(),
            },
            user_id: user.id,
        };
        caller.rates.retain(&caller.parts());
        Ok(caller)
    }

    /// Counts a request of a key that the cache knows, if the account shares its limits.
    async fn count_shared(&self, account: &str, limits: &RequestLimits) -> Result<(), ApiError> {
        match limits.account.0 == account {
            true => Ok(()),
            false => self.count(limits).await,
        }
    }

    /// Counts a request that the cache has not counted.
    async fn count(&self, limits: &RequestLimits) -> Result<(), ApiError> {
        let (account, rate) = (&*limits.account.0, self.rate_of_plan(limits.plan));
        let limits = [(Bucket::User(account), rate)];
        match self.identity.cache.count(&limits).await {
            Ok(decisions) => self.within("caller", decisions.into_iter().next(), Some(account)),
            Err(error) => self.without_cache(error),
        }
    }

    /// Accepts a request that is within its rate, and stores the rate for the response.
    pub(super) fn within(
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
            self.identity.audit.record(AuditEvent::RateLimited {
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
    pub(super) async fn fail<T>(
        &self,
        method: &'static str,
        reason: &'static str,
    ) -> Result<T, ApiError> {
        self.record_failure(method, reason);
        self.count_failure().await?;
        Err(ApiError::unauthenticated())
    }

    /// Rejects an invalid key; counts it unless the request has another credential.
    async fn fail_key<T>(
        &self,
        asked: &RequestedKey<'_>,
        reason: &'static str,
    ) -> Result<T, ApiError> {
        match asked.proofs {
            Proofs::Last => self.fail("api_key", reason).await,
            Proofs::More => Err(ApiError::unauthenticated()),
        }
    }

    /// Rejects genuine credentials that expired or were revoked.
    pub(super) fn refuse<T>(
        &self,
        method: &'static str,
        reason: &'static str,
    ) -> Result<T, ApiError> {
        self.record_failure(method, reason);
        Err(ApiError::unauthenticated())
    }

    fn user_is_disabled(&self, method: &'static str) -> ApiError {
        self.record_failure(method, "the user is disabled");
        user_disabled()
    }

    /// Records why a caller is refused: for operators, never in the response.
    pub(super) fn record_failure(&self, method: &'static str, reason: &'static str) {
        if let Some(context) = self.parts.extensions.get::<RequestContext>() {
            context.note_failure(format_args!("{method}: {reason}"));
        }
        let event = AuditEvent::AuthenticationFailed { method, reason };
        self.identity.audit.record(event);
    }

    pub(super) async fn count_failure(&self) -> Result<(), ApiError> {
        match lockout::count_failure(self.identity, self.address()).await {
            Ok(()) => Ok(()),
            Err(error) => self.without_cache(error),
        }
    }

    /// Rejects or accepts a request without the cache, according to `failure_policy`.
    pub(super) fn without_cache(&self, _: CacheError) -> Result<(), ApiError> {
        match self.identity.failure_policy {
            FailurePolicy::Allow => Ok(()),
            FailurePolicy::Reject => Err(ApiError::cache_unavailable(
                "weir could not check the rate limits; retry later.",
            )),
        }
    }

    pub(super) fn address(&self) -> Option<ClientAddress> {
        self.parts.extensions.get().copied()
    }

    pub(super) fn rate_of_address(&self) -> Rate {
        let identity = self.identity;
        identity.rate_limits.of_address(identity.is_dev)
    }

    fn rate_of_plan(&self, plan: Plan) -> Rate {
        let identity = self.identity;
        identity.rate_limits.of_plan(plan, identity.is_dev)
    }
}

/// Combines the results of a web user's two tokens. If both fail, the error of the less valid one counts.
fn both(
    (identity, attestation): (
        Result<VerifiedClaims, TokenError>,
        Result<VerifiedClaims, TokenError>,
    ),
) -> Result<VerifiedClaims, TokenError> {
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

/// Whether an error means invalid credentials, so that an alternative is worth a check.
fn proves_nothing(refusal: &ApiError) -> bool {
    matches!(
        refusal.code(),
        "UNAUTHENTICATED" | "USER_DISABLED" | "LOCKED_OUT"
    )
}
