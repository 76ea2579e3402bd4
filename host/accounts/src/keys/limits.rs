//! Limits of a new key: its lifetime, its scope, its models, its budgets, and the providers of its requests.

use weir_catalog::Catalog;
use weir_errors::ApiError;
use weir_identity::api_key::LIFETIME_DAYS;
use weir_identity::scope::KeyScope;
use weir_identity::{no_such_key, store, store_failed};
use weir_ledger::{AccountId, Budget, BudgetPart, LedgerStore, SetBudgets};
use weir_request::limits::data::DataLimits;
use weir_request::node::Core;
use weir_storage::clock::Millis;
use weir_storage::ids;

use crate::billing::budgets::{self, RequestedBudgets};

/// The maximum number of models in a key's list.
const MOST_MODELS: usize = 100;

#[derive(Debug)]
pub struct KeyLimits {
    pub budgets: Vec<Budget>,
    /// The models that it may use; all if empty.
    pub models: Vec<String>,
    /// The limits on providers.
    pub data: DataLimits,
    /// The key's lifetime in days.
    pub days: i64,
    /// The endpoints that it may use; by its account unless set.
    pub scope: Option<KeyScope>,
}

impl Default for KeyLimits {
    fn default() -> Self {
        Self {
            budgets: Vec::new(),
            models: Vec::new(),
            data: DataLimits::default(),
            days: LIFETIME_DAYS,
            scope: None,
        }
    }
}

impl KeyLimits {
    #[must_use]
    pub fn with_scope(self, scope: Option<KeyScope>) -> Self {
        Self { scope, ..self }
    }

    pub fn scope_in(&self, account: &str) -> KeyScope {
        let default = KeyScope::of_new_key(ids::is_organisation(account));
        self.scope.unwrap_or(default)
    }

    /// Reads the limits from a request body. Without a catalog, model names are not checked.
    ///
    /// # Errors
    ///
    /// 400 that names the invalid field.
    pub fn read(
        budgets: RequestedBudgets,
        models: Option<Vec<String>>,
        data: Option<DataLimits>,
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
        for (index, model) in models.iter_mut().enumerate() {
            let Some(catalog) = catalog else { continue };
            let Some(found) = catalog.model(model) else {
                let what = "The model does not exist; GET /models lists all models.";
                return Err(ApiError::invalid_request(format!("models[{index}]"), what));
            };
            model.clone_from(&found.id);
        }
        models.sort();
        models.dedup();
        Ok(Self {
            budgets: budgets.read()?,
            models,
            data: data.unwrap_or_default(),
            days,
            scope: None,
        })
    }
}

/// Sets the limits of a new key, before anybody has it. If this fails, the key never works.
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
                .map_err(store_failed)?;
        }
        let scope = limits.scope_in(user_id);
        if scope != KeyScope::Full {
            store::set_key_scope(&core.database, key_id, scope)
                .await
                .map_err(store_failed)?;
        }
        if !limits.data.is_empty() {
            store::set_key_data_limits(&core.database, user_id, key_id, &limits.data)
                .await
                .map_err(store_failed)?;
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
            .map_err(store_failed)?;
    }
    limited
}

/// Sets the budgets of an active key. Deletes the budgets of the user's revoked keys.
///
/// # Errors
///
/// 409 if too many keys have budgets, 503 if the database does not respond.
pub async fn set_budgets(
    core: &Core,
    user_id: &str,
    key_id: &str,
    asked: Vec<Budget>,
    expires_at: Millis,
) -> Result<(), ApiError> {
    let account = AccountId(user_id.to_owned());
    let store = LedgerStore::new(core.database.clone());
    let found = store.find_account(&account).await;
    let budgets = found
        .map_err(store_failed)?
        .and_then(|account| account.budgets);
    let known = budgets.iter().flat_map(|budgets| budgets.parts());
    let active = store::active_key_expiry(&core.database, user_id).await;
    let active = active.map_err(store_failed)?;
    let has_ended = |part: &&BudgetPart| matches!(part, BudgetPart::Key(id) if id != key_id && !active.contains_key(id));
    let ended = known.filter(has_ended).cloned().collect();
    let set = SetBudgets {
        part: Some(BudgetPart::Key(key_id.to_owned())),
        until: Some(expires_at),
        budgets: asked,
        ended,
    };
    budgets::set(core, &account, set).await
}

/// Returns the expiry of an active key.
///
/// # Errors
///
/// 404 if the user has no such key, or if it expired or was revoked.
pub async fn expiry_of(
    core: &Core,
    user_id: &str,
    key_id: &str,
    now: Millis,
) -> Result<Millis, ApiError> {
    let active = store::active_key_expiry(&core.database, user_id).await;
    let active = active.map_err(store_failed)?;
    let expires_at = active.get(key_id).filter(|expires_at| **expires_at > now);
    expires_at.copied().ok_or_else(no_such_key)
}
