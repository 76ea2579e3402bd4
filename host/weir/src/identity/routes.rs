//! `/api-keys`: make, list and revoke one's keys. For web users only.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::WebCaller;
use super::api_key::RawKey;
use super::limits::{self, KeyLimits};
use super::store::{self, KeyItem, NewKey};
use crate::app::App;
use crate::audit::{Actor, AuditEvent};
use crate::billing::budgets::{self, AskedBudgets};
use crate::error::ApiError;
use crate::json::from_json;
use crate::request::JsonBody;
use weir_ledger::{Budget, Credits, Window};
use weir_storage::clock::Millis;

/// The body of `POST /api-keys`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRequest {
    name: Option<String>,
    budgets: Option<Vec<Budget>>,
    budget_credits: Option<Credits>,
    window: Option<Window>,
    models: Option<Vec<String>>,
    expires_in_days: Option<i64>,
}

/// The body of `PUT /api-keys/{key_id}/budgets`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetsRequest {
    budgets: Vec<Budget>,
}

/// `POST /api-keys`: makes a key; the raw key is in this answer only.
pub async fn create_api_key(
    State(app): State<App>,
    caller: WebCaller,
    body: JsonBody,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let new: KeyRequest = if body.bytes.is_empty() {
        KeyRequest::default()
    } else {
        from_json(&body.bytes)?
    };
    let budgets = AskedBudgets {
        budgets: new.budgets,
        budget_credits: new.budget_credits,
        window: new.window,
    };
    let catalog = app.catalog.load();
    let limits = KeyLimits::read(budgets, new.models, new.expires_in_days, Some(&catalog))?;
    let name = new.name.unwrap_or_else(|| "Default".to_owned());
    let (key, expires_at) = make_key(&app, &caller.user_id, &name, &limits).await?;
    let created = json!({
        "key_id": key.id(),
        "api_key": key.expose(),
        "name": name,
        "created_at": app.clock.now().iso(),
        "expires_at": expires_at.iso(),
        "models": models(&limits.models),
        "budgets": limits.budgets,
    });
    Ok((StatusCode::CREATED, Json(created)))
}

/// Makes a key of a user's for themselves, within limits. Returns when it expires, too.
///
/// # Errors
///
/// 400 with the field that is wrong, 429 where they have or make too many.
pub async fn make_key(
    app: &App,
    user_id: &str,
    name: &str,
    limits: &KeyLimits,
) -> Result<(RawKey, Millis), ApiError> {
    if name.is_empty() || name.len() > 256 || name.contains(char::is_control) {
        return Err(ApiError::invalid_request(
            "name",
            "A name has 1 to 256 bytes and no control characters.",
        ));
    }
    let now = app.clock.now();
    let key = store::create_limited_key(&app.database, &app.key_peppers, user_id, name, now)
        .await
        .map_err(super::store_failed)?;
    let refused = |message: String| {
        let code = "KEY_LIMIT_REACHED";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, code, message).with_no_retry()
    };
    let key = match key {
        NewKey::Made(key) => key,
        NewKey::TooManyActive => {
            let most = store::MAX_ACTIVE_KEYS;
            let message = format!("A user has at most {most} active keys; revoke one first.");
            return Err(refused(message));
        }
        NewKey::TooManyToday => {
            let most = store::MAX_KEYS_A_DAY;
            return Err(refused(format!("A user makes at most {most} keys a day.")));
        }
    };
    let expires_at = limits::limit_new_key(app, (user_id, key.id()), limits, now).await?;
    let created = AuditEvent::KeyCreated {
        user_id: user_id.to_owned(),
        key_id: key.id().to_owned(),
    };
    app.audit.record_by(&Actor::user(user_id), created);
    Ok((key, expires_at))
}

/// `GET /api-keys`: the caller's keys, newest first, without the keys themselves.
pub async fn list_api_keys(
    State(app): State<App>,
    caller: WebCaller,
) -> Result<Json<Value>, ApiError> {
    let keys = own_keys(&app, &caller.user_id).await?;
    let now = app.ledger.now();
    let items: Vec<_> = keys.iter().map(|key| item(key, now)).collect();
    Ok(Json(json!({ "api_keys": items })))
}

/// A user's keys, newest first.
pub async fn own_keys(app: &App, user_id: &str) -> Result<Vec<KeyItem>, ApiError> {
    store::list_keys(&app.database, user_id)
        .await
        .map_err(super::store_failed)
}

/// `PUT /api-keys/{key_id}/budgets`: sets what a key may spend, in place of what it might. A window that stays goes on
/// counting.
pub async fn set_key_budgets(
    State(app): State<App>,
    caller: WebCaller,
    Path(key_id): Path<String>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let user_id = &caller.user_id;
    let now = app.ledger.now();
    let expires_at = limits::expiry_of(&app, user_id, &key_id, now).await?;
    let BudgetsRequest { budgets } = from_json(&body.bytes)?;
    let asked = AskedBudgets {
        budgets: Some(budgets),
        ..AskedBudgets::default()
    };
    limits::set_budgets(&app, user_id, &key_id, asked.read()?, expires_at).await?;
    let keys = store::list_keys(&app.database, user_id)
        .await
        .map_err(super::store_failed)?;
    let key = keys.iter().find(|key| key.id == key_id);
    Ok(Json(key.map_or(Value::Null, |key| item(key, now))))
}

/// `DELETE /api-keys/{key_id}`: revokes a key, at once on every node.
pub async fn revoke_api_key(
    State(app): State<App>,
    caller: WebCaller,
    Path(key_id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let by = Actor::user(&caller.user_id);
    super::revoke(&app, &caller.user_id, &key_id, &by).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The models that a key may use; null where it may use all.
fn models(models: &[String]) -> Value {
    match models {
        [] => Value::Null,
        models => json!(models),
    }
}

fn item(key: &KeyItem, now: Millis) -> Value {
    json!({
        "key_id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "created_at": key.created_at.iso(),
        "last_used_at": key.last_used_at.map(Millis::iso),
        "expires_at": key.expires_at.iso(),
        "disabled": key.disabled,
        "models": models(&key.models),
        "budgets": budgets::items(key.standings(now)),
    })
}
