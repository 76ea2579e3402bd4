//! `/admin/keys`: all users' API keys. A key itself is shown to nobody but once, to whoever makes it.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use weir_ledger::{Budget, Credits, Window};
use weir_storage::clock::Millis;

use super::AdminCaller;
use super::request::AdminBody;
use crate::app::{App, Core};
use crate::billing::budgets::{self, AskedBudgets, BudgetItem};
use crate::catalog::Catalog;
use crate::error::ApiError;
use crate::identity;
use crate::identity::directory::{self, KeyFilter};
use crate::identity::limits::KeyLimits;
use crate::identity::store::KeyItem;
use crate::query::{ListQuery, cut};

/// A key.
#[derive(Debug, Serialize, Deserialize)]
pub struct AdminKeyItem {
    /// The key's id.
    pub key_id: String,
    /// The user whose it is.
    pub user_id: String,
    /// The name that its user gave it.
    pub name: String,
    /// The key's first characters.
    pub prefix: String,
    /// When it was made.
    pub created_at: String,
    /// When it was last used, to the minute.
    pub last_used_at: Option<String>,
    /// From when on it no longer works.
    pub expires_at: String,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// The models that it may use; null where it may use all.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// How much it may spend in which time.
    #[serde(default)]
    pub budgets: Vec<BudgetItem>,
}

/// A part of all keys.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeyList {
    /// By user, and then by age.
    pub keys: Vec<AdminKeyItem>,
    /// The `after` of the next part; null if this is the last.
    pub next: Option<String>,
}

/// The body that makes a key.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// The user whose it will be; made if there is none of that id.
    pub user_id: String,
    /// What it is called in lists.
    pub name: String,
    /// How much it may spend in which time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
    /// The same, of one budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_credits: Option<Credits>,
    /// What that is for, `total` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The models that it may use; all unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// For how many days it works, at most 90.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_days: Option<i64>,
}

impl NewKey {
    /// Its limits. Without a catalog, nobody looks whether there are the models.
    pub fn limits(&self, catalog: Option<&Catalog>) -> Result<KeyLimits, ApiError> {
        let budgets = AskedBudgets {
            budgets: self.budgets.clone(),
            budget_credits: self.budget_credits,
            window: self.window,
        };
        KeyLimits::read(budgets, self.models.clone(), self.expires_in_days, catalog)
    }
}

/// A key that was just made.
#[derive(Serialize, Deserialize)]
pub struct CreatedKey {
    /// The key's id.
    pub key_id: String,
    /// The key itself, here and nowhere else.
    pub api_key: String,
    /// The user whose it is.
    pub user_id: String,
    /// From when on it no longer works.
    pub expires_at: String,
}

/// `GET /admin/keys`: all keys, or those that `user_id` and `active` say.
pub async fn list_keys(
    State(core): State<Core>,
    _: AdminCaller,
    mut query: ListQuery,
) -> Result<Json<KeyList>, ApiError> {
    let limit = query.limit()?;
    let filter = KeyFilter {
        user_id: query.text("user_id")?,
        active: query.flag("active")?,
        after: query.text("after")?,
    };
    query.finish()?;
    let now = core.clock.now();
    let mut keys = directory::list_keys(&core.database, &filter, limit + 1, now)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for keys"))?;
    let next = cut(&mut keys, limit, |(_, key)| key.id.clone());
    let keys = keys
        .into_iter()
        .map(|(user_id, key)| item(user_id, key, now));
    Ok(Json(KeyList {
        keys: keys.collect(),
        next,
    }))
}

/// `POST /admin/keys`: makes a key for a user, however many they have, and the user if there is none of that id.
pub async fn create_key(
    State(app): State<App>,
    AdminCaller { actor }: AdminCaller,
    AdminBody(new): AdminBody<NewKey>,
) -> Result<(StatusCode, Json<CreatedKey>), ApiError> {
    for (field, text) in [("user_id", &new.user_id), ("name", &new.name)] {
        if !(1..=256).contains(&text.len()) || text.contains(char::is_control) {
            let what = "It has 1 to 256 bytes and no control characters.";
            return Err(ApiError::invalid_request(field, what));
        }
    }
    let limits = new.limits(Some(&app.catalog.load()))?;
    let (peppers, owner) = (&app.key_peppers, (&*new.user_id, &*new.name));
    let (key, expires_at) = identity::create_key(&app, peppers, owner, &limits, &actor).await?;
    let created = CreatedKey {
        key_id: key.id().to_owned(),
        api_key: key.expose().to_owned(),
        user_id: new.user_id,
        expires_at: expires_at.iso(),
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// `DELETE /admin/keys/{key_id}`: revokes a key, at once on every node.
pub async fn revoke_key(
    State(core): State<Core>,
    AdminCaller { actor }: AdminCaller,
    Path(key_id): Path<String>,
) -> Result<StatusCode, ApiError> {
    identity::revoke_of_anybody(&core, &key_id, &actor).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn item(user_id: String, key: KeyItem, now: Millis) -> AdminKeyItem {
    let state = match key.disabled {
        true => "revoked",
        false if key.expires_at <= now => "expired",
        false => "active",
    };
    AdminKeyItem {
        budgets: budgets::items(key.standings(now)),
        models: Some(key.models).filter(|models| !models.is_empty()),
        key_id: key.id,
        user_id,
        name: key.name,
        prefix: key.prefix,
        created_at: key.created_at.iso(),
        last_used_at: key.last_used_at.map(Millis::iso),
        expires_at: key.expires_at.iso(),
        state: state.to_owned(),
    }
}
