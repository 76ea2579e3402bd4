//! What a key may do less than its user: for how long it works, which models it may use, and how much it may spend.

use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{AccountId, Action, Budget, LedgerError, Operation, Refusal, SetBudgets, Store};
use weir_storage::clock::Millis;
use weir_storage::database::DatabaseClock;

use super::api_key::LIFETIME_DAYS;
use super::store;
use crate::app::Core;
use crate::billing::budgets::AskedBudgets;
use crate::billing::summary_cache;
use crate::catalog::Catalog;

/// Models that a key names at most.
const MOST_MODELS: usize = 100;

/// What a key is limited to.
#[derive(Debug)]
pub struct KeyLimits {
    /// How much it may spend.
    pub budgets: Vec<Budget>,
    /// The models that it may use; all if empty.
    pub models: Vec<String>,
    /// For how many days it works.
    pub days: i64,
}

impl Default for KeyLimits {
    fn default() -> Self {
        Self {
            budgets: Vec::new(),
            models: Vec::new(),
            days: LIFETIME_DAYS,
        }
    }
}

impl KeyLimits {
    /// The limits that a body asks for. Without a catalog, nobody looks whether there are the models.
    ///
    /// # Errors
    ///
    /// 400 with the field that is wrong.
    pub fn read(
        budgets: AskedBudgets,
        models: Option<Vec<String>>,
        days: Option<i64>,
        catalog: Option<&Catalog>,
    ) -> Result<Self, ApiError> {
        let days = days.unwrap_or(LIFETIME_DAYS);
        if !(1..=LIFETIME_DAYS).contains(&days) {
            let what = format!("It is a whole number from 1 to {LIFETIME_DAYS}.");
            return Err(ApiError::invalid_request("expires_in_days", what));
        }
        if models
            .as_ref()
            .is_some_and(|models| !(1..=MOST_MODELS).contains(&models.len()))
        {
            let what =
                format!("It names 1 to {MOST_MODELS} models; without it, a key may use all.");
            return Err(ApiError::invalid_request("models", what));
        }
        let mut models = models.unwrap_or_default();
        for (index, model) in models.iter().enumerate() {
            if catalog.is_some_and(|catalog| catalog.model(model).is_none()) {
                let what = "There is no such model; GET /models lists them.";
                return Err(ApiError::invalid_request(format!("models[{index}]"), what));
            }
        }
        models.sort();
        models.dedup();
        Ok(Self {
            budgets: budgets.read()?,
            models,
            days,
        })
    }
}

/// Limits a key that was just made, and that nobody has yet. Where that fails, the key never works.
pub async fn limit_new_key(
    core: &Core,
    (user_id, key_id): (&str, &str),
    limits: &KeyLimits,
    now: Millis,
) -> Result<Millis, ApiError> {
    let expires_at = now.plus_days(limits.days);
    let limited = async {
        if limits.days != LIFETIME_DAYS || !limits.models.is_empty() {
            store::limit_key(&core.database, key_id, &limits.models, expires_at)
                .await
                .map_err(super::store_failed)?;
        }
        if !limits.budgets.is_empty() {
            set_budgets(core, user_id, key_id, limits.budgets.clone(), expires_at).await?;
        }
        Ok(expires_at)
    };
    let limited = limited.await;
    if limited.is_err() {
        store::disable_key(&core.database, key_id, now)
            .await
            .map_err(super::store_failed)?;
    }
    limited
}

/// Sets the budgets of a key that works. Those of keys that were revoked are forgotten.
///
/// # Errors
///
/// 409 where too many keys have budgets, 503 where the database does not answer.
pub async fn set_budgets(
    core: &Core,
    user_id: &str,
    key_id: &str,
    asked: Vec<Budget>,
    expires_at: Millis,
) -> Result<(), ApiError> {
    let account = AccountId(user_id.to_owned());
    let store = Store::new(core.database.clone());
    let found = store.find_account(&account).await;
    let budgets = found
        .map_err(super::store_failed)?
        .and_then(|account| account.budgets);
    let known = budgets.iter().flat_map(|budgets| budgets.keys());
    let mut ended: Vec<_> = known.map(str::to_owned).collect();
    let active = store::active_key_expiry(&core.database, user_id).await;
    let active = active.map_err(super::store_failed)?;
    ended.retain(|known| known != key_id && !active.contains_key(known));
    let set = SetBudgets {
        key_id: Some(key_id.to_owned()),
        until: Some(expires_at),
        budgets: asked,
        ended,
    };
    let clock = DatabaseClock::start(core.database.clone(), core.clock.clone());
    let operation = Operation {
        account: account.clone(),
        at: clock.await.map_err(super::store_failed)?.now(),
        action: Action::SetBudgets(Box::new(set)),
    };
    let outcome = weir_ledger::commit_one(&store, operation).await;
    summary_cache::drop_summary(&core.cache, &account).await;
    match outcome {
        Ok(_) => Ok(()),
        Err(LedgerError::Refused(Refusal::OutOfRange)) => Err(ApiError::new(
            ErrorCode::TooManyBudgets,
            "Too many keys of this user have budgets; revoke some first.",
        )
        .with_no_retry()),
        Err(error) => {
            tracing::error!(%error, "setting budgets");
            Err(ApiError::store_unavailable())
        }
    }
}

/// When a key expires that works.
///
/// # Errors
///
/// 404 where the user has no such key, or it was revoked or has expired.
pub async fn expiry_of(
    core: &Core,
    user_id: &str,
    key_id: &str,
    now: Millis,
) -> Result<Millis, ApiError> {
    let active = store::active_key_expiry(&core.database, user_id).await;
    let active = active.map_err(super::store_failed)?;
    let expires_at = active.get(key_id).filter(|expires_at| **expires_at > now);
    expires_at.copied().ok_or_else(super::no_such_key)
}

/// The models that a key may use, all if empty, on behalf of what was defined with it earlier.
///
/// # Errors
///
/// 403 `KEY_ENDED` if the key was revoked or has expired, 503 if the database does not answer.
pub async fn require_working_key(core: &Core, key_id: &str) -> Result<Vec<String>, ApiError> {
    let now = core.clock.now();
    let models = store::models_of_working_key(&core.database, key_id, now).await;
    models.map_err(super::store_failed)?.ok_or_else(key_ended)
}

/// 403: the key that something was asked for with works no more.
pub fn key_ended() -> ApiError {
    ApiError::new(ErrorCode::KeyEnded, KEY_ENDED).with_no_retry()
}

/// What `KEY_ENDED` means, for people.
pub const KEY_ENDED: &str = "The API key that this was asked for with was revoked or has expired.";

/// Refuses a model that a key may not use. Who may use which is the key's own business: it is no secret to who has it.
pub fn require_model(allowed: &[String], model: &str) -> Result<(), ApiError> {
    if may_use(allowed, model) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::ModelNotAllowed,
        format!("This key may not use the model {model}; GET /models lists those that it may."),
    )
    .with_param("model")
    .with_detail("model", model)
    .with_no_retry())
}

/// Whether a model is among those that a key may use; all are where none is named.
pub fn may_use(allowed: &[String], model: &str) -> bool {
    allowed.is_empty() || allowed.iter().any(|allowed| allowed == model)
}
