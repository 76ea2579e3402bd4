//! `/api-keys`: create, list and revoke the caller's keys. For web users only.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::api_key::RawKey;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::filter_options::FilterOptions;
use weir_identity::managed_limits::{self, KeyLimitKind, LimitChange};
use weir_identity::part_rates::PartRate;
use weir_identity::roles::Permission;
use weir_identity::scope::KeyScope;
use weir_identity::store::{self, KeyCreation, KeyItem, KeyOwner};
use weir_identity::users::{self, set_rate};
use weir_identity::{IdentityParts, WebCaller, handlers, members, store_failed};
use weir_ledger::{Budget, BudgetPart, BudgetState, BudgetWindow, Credits};
use weir_request::audit::{Actor, AuditEvent};
use weir_request::content_log::ContentLogChoice;
use weir_request::content_log::settings::{ContentLogSwitch, require_allowed};
use weir_request::json::from_json;
use weir_request::limits::data::DataLimits;
use weir_request::request::{BodyReader, JsonBody};
use weir_request::schemas;
use weir_storage::clock::Millis;
use weir_storage::ids;

use super::limits::{self, KeyLimits};
use super::{KeyParts, finish_key};
use crate::billing::budgets::{self, BudgetItem, RequestedBudgets};

/// Returns the endpoints of API keys.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    KeyParts: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new().row(
        Access::Web(Permission::UseModels),
        handlers!(
            create_api_key,
            list_api_keys,
            set_key_budgets,
            set_key_rates,
            set_key_filter_options,
            set_key_data_limits,
            set_key_content_log,
            revoke_api_key
        ),
    )
}

/// The body of `POST /api-keys`.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KeyRequest {
    /// Display name; `Default` unless set.
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    name: Option<String>,
    /// Budgets of the key; at most one for each window.
    #[schema(value_type = Option<Vec<schemas::BudgetSchema>>, max_items = 5)]
    budgets: Option<Vec<Budget>>,
    /// Short form of one budget, in credits.
    #[schema(value_type = Option<f64>)]
    budget_credits: Option<Credits>,
    /// Window of `budget_credits`; `total` unless set.
    #[schema(value_type = Option<schemas::Window>)]
    window: Option<BudgetWindow>,
    /// Models that the key may use; all unless set.
    #[schema(min_items = 1, max_items = 100)]
    models: Option<Vec<String>>,
    /// Limits on the providers of the key's requests; none unless set.
    data_limits: Option<DataLimits>,
    /// Lifetime in days.
    #[schema(minimum = 1, maximum = 90, default = 90)]
    expires_in_days: Option<i64>,
    /// Endpoints that the key may use: `inference` allows only calls and lists of models. `inference` in organisations and
    /// `full` in personal accounts unless set.
    scope: Option<KeyScope>,
    /// Project of the organisation that the key belongs to.
    project_id: Option<String>,
    /// Service account of the organisation that uses the key; the caller unless set.
    service_account_id: Option<String>,
}

/// The body of `PUT /api-keys/{key_id}/budgets`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BudgetsRequest {
    /// Budgets, one for each limited window; an empty list removes all budgets.
    #[schema(value_type = Vec<schemas::BudgetSchema>, max_items = 5)]
    budgets: Vec<Budget>,
}

/// A new key.
#[derive(Serialize, ToSchema)]
struct CreatedKey {
    /// The key's id.
    key_id: String,
    /// The key itself. No other response has it.
    api_key: String,
    /// Display name.
    name: String,
    /// Time of creation.
    created_at: String,
    /// Expiry.
    expires_at: String,
    /// Endpoints that the key may use.
    scope: KeyScope,
    /// Models that the key may use; null if it may use all.
    models: Option<Vec<String>>,
    /// Limits on the providers of the key's requests.
    data_limits: DataLimits,
    /// Budgets of the key.
    #[schema(value_type = Vec<schemas::BudgetSchema>)]
    budgets: Vec<Budget>,
}

/// A key of the caller's.
#[derive(Serialize, ToSchema)]
struct OwnKeyItem {
    /// The key's id.
    key_id: String,
    /// Display name.
    name: String,
    /// The key's first characters.
    prefix: String,
    /// Time of creation.
    created_at: String,
    /// Time of last use, to the minute.
    last_used_at: Option<String>,
    /// Expiry.
    expires_at: String,
    /// Whether the key is revoked.
    disabled: bool,
    /// Endpoints that the key may use: `inference` allows only calls and lists of models; `full` allows what its user's
    /// role allows. Keys of earlier releases are `full`.
    scope: KeyScope,
    /// Models that the key may use; null if it may use all.
    models: Option<Vec<String>>,
    /// Options of the key for filters, by name.
    filter_options: BTreeMap<String, String>,
    /// Limits on the providers of the key's requests.
    data_limits: DataLimits,
    /// Whether weir stores the prompts and responses of the key's requests, if the operator allows it.
    content_log: ContentLogChoice,
    /// User or service account that uses the key, in an organisation.
    holder_id: Option<String>,
    /// Project that the key belongs to.
    project_id: Option<String>,
    /// Budgets of the key.
    budgets: Vec<BudgetItem>,
}

/// The caller's keys.
#[derive(Serialize, ToSchema)]
struct KeyList {
    /// Keys, newest first.
    api_keys: Vec<OwnKeyItem>,
}

/// `POST /api-keys`: creates a key. Only this response has the raw key.
#[utoipa::path(
    post, path = "/api-keys", tag = "keys",
    request_body = KeyRequest,
    responses(
        (status = 201, description = "The key. Only this response has its `api_key`.", body = CreatedKey),
        (status = 429, description = "`KEY_LIMIT_REACHED`: a user may have 10 active keys and may create 100 keys a day."),
    ),
)]
pub async fn create_api_key(
    State(parts): State<KeyParts>,
    caller: WebCaller,
    body: JsonBody,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let new: KeyRequest = if body.bytes.is_empty() {
        KeyRequest::default()
    } else {
        from_json(&body.bytes)?
    };
    let budgets = RequestedBudgets {
        budgets: new.budgets,
        budget_credits: new.budget_credits,
        window: new.window,
    };
    let catalog = parts.catalog.load();
    let limits = KeyLimits::read(
        budgets,
        new.models,
        new.data_limits,
        new.expires_in_days,
        Some(&catalog),
    )?
    .with_scope(new.scope);
    let name = new.name.unwrap_or_else(|| "Default".to_owned());
    let place = KeyPlace {
        project_id: new.project_id,
        service_account_id: new.service_account_id,
    };
    let (key, expires_at) = make_key(&parts, &caller, place, &name, &limits).await?;
    let created = json!(CreatedKey {
        key_id: key.id().to_owned(),
        api_key: key.expose().to_owned(),
        name,
        created_at: parts.clock.now().iso(),
        expires_at: expires_at.iso(),
        scope: limits.scope_in(&caller.account.0),
        models: models(limits.models),
        data_limits: limits.data,
        budgets: limits.budgets,
    });
    Ok((StatusCode::CREATED, Json(created)))
}

#[derive(Debug, Default)]
pub struct KeyPlace {
    pub project_id: Option<String>,
    /// The service account that uses the key; `None` for the caller.
    pub service_account_id: Option<String>,
}

/// Creates a key in the caller's account, with limits. Returns the expiry, too.
///
/// # Errors
///
/// 400 that names the invalid field, 403 if the caller's role does not allow a service account's key, 429 if the holder
/// has or creates too many keys.
pub async fn make_key(
    parts: &KeyParts,
    caller: &WebCaller,
    place: KeyPlace,
    name: &str,
    limits: &KeyLimits,
) -> Result<(RawKey, Millis), ApiError> {
    if !(1..=256).contains(&name.chars().count()) || name.contains(char::is_control) {
        return Err(ApiError::invalid_request(
            "name",
            "A name has 1 to 256 characters and no control characters.",
        ));
    }
    check_place(parts, caller, &place).await?;
    let user_id = &*caller.user_id;
    let holder_id = place.service_account_id.as_deref().unwrap_or(user_id);
    let owner = KeyOwner {
        account_id: &caller.account.0,
        holder_id: (caller.account.0 != holder_id).then_some(holder_id),
        project_id: place.project_id.as_deref(),
    };
    let now = parts.clock.now();
    let key = store::create_limited_key(&parts.database, &parts.key_peppers, owner, name, now)
        .await
        .map_err(store_failed)?;
    let refused = |message: String| {
        let code = ErrorCode::KeyLimitReached;
        ApiError::new(code, message).with_no_retry()
    };
    let key = match key {
        KeyCreation::Made(key) => key,
        KeyCreation::TooManyActive => {
            let most = store::MAX_ACTIVE_KEYS;
            let message = format!("A user has at most {most} active keys; revoke one first.");
            return Err(refused(message));
        }
        KeyCreation::TooManyToday => {
            let most = store::MAX_KEYS_A_DAY;
            return Err(refused(format!("A user may create {most} keys a day.")));
        }
    };
    let by = Actor::user(user_id);
    let expires_at = finish_key(parts, (owner.account_id, &key), limits, now, &by).await?;
    Ok((key, expires_at))
}

/// Refuses a project or a service account that is not the organisation's.
async fn check_place(
    parts: &KeyParts,
    caller: &WebCaller,
    place: &KeyPlace,
) -> Result<(), ApiError> {
    let account = &caller.account.0;
    if let Some(id) = &place.project_id {
        let exists = members::has_project(&parts.database, account, id).await;
        if !exists.map_err(store_failed)? {
            let what = "The organisation has no active project with this id.";
            return Err(ApiError::invalid_request("project_id", what));
        }
    }
    if let Some(id) = &place.service_account_id {
        caller.role.require(Permission::Manage)?;
        let exists = members::has_service_account(&parts.database, account, id).await;
        if !exists.map_err(store_failed)? {
            let what = "The organisation has no service account with this id.";
            return Err(ApiError::invalid_request("service_account_id", what));
        }
    }
    Ok(())
}

/// `GET /api-keys`: lists the caller's keys, newest first, without the raw keys.
#[utoipa::path(
    get, path = "/api-keys", tag = "keys",
    responses((status = 200, body = KeyList)),
)]
pub async fn list_api_keys(
    State(parts): State<KeyParts>,
    caller: WebCaller,
) -> Result<Json<Value>, ApiError> {
    let keys = own_keys(&parts, &caller).await?;
    let now = parts.ledger.now();
    let api_keys = keys.into_iter().map(|key| item(key, now)).collect();
    Ok(Json(json!(KeyList { api_keys })))
}

/// The keys that a caller may manage, newest first: all keys of the account, or only the own ones of a member without
/// this permission.
pub async fn own_keys(parts: &KeyParts, caller: &WebCaller) -> Result<Vec<KeyItem>, ApiError> {
    let holder = (!caller.role.allows(Permission::Manage)).then_some(&*caller.user_id);
    store::list_keys(&parts.database, &caller.account.0, holder)
        .await
        .map_err(store_failed)
}

/// Refuses a key that the caller may not manage, as if it did not exist.
async fn require_own(parts: &KeyParts, caller: &WebCaller, key_id: &str) -> Result<(), ApiError> {
    if caller.role.allows(Permission::Manage) {
        return Ok(());
    }
    let holder = store::find_holder(&parts.database, &caller.account.0, key_id).await;
    match holder.map_err(store_failed)? {
        Some(holder) if holder == caller.user_id => Ok(()),
        _ => Err(weir_identity::no_such_key()),
    }
}

/// Revokes a key of the caller's account immediately on every node.
///
/// # Errors
///
/// 404 if the caller may not manage such a key.
pub async fn revoke(parts: &KeyParts, caller: &WebCaller, key_id: &str) -> Result<(), ApiError> {
    require_own(parts, caller, key_id).await?;
    let by = Actor::user(&caller.user_id);
    weir_identity::revoke(parts, &caller.account.0, key_id, &by).await
}

/// Refuses a change that loosens a limit of a manager, unless the caller is one. `effect` compares the limits.
async fn allow_change(
    parts: &KeyParts,
    caller: &WebCaller,
    key_id: &str,
    kind: KeyLimitKind,
    effect: impl FnOnce(&KeyItem) -> LimitChange,
) -> Result<(), ApiError> {
    let effect = async {
        let keys = own_keys(parts, caller).await?;
        let key = keys.iter().find(|key| key.id == key_id);
        key.map(effect).ok_or_else(weir_identity::no_such_key)
    };
    managed_limits::allow(&parts.database, (key_id, caller.role), kind, effect).await
}

/// `PUT /api-keys/{key_id}/budgets`: replaces the budgets of a key. A window that remains keeps its count.
#[utoipa::path(
    put, path = "/api-keys/{key_id}/budgets", tag = "keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    request_body = BudgetsRequest,
    responses(
        (status = 200, body = OwnKeyItem),
        (status = 403, description = "`FORBIDDEN`: a manager set the budgets, and you would loosen them."),
        (status = 404, description = "`NOT_FOUND`: you have no active key with this id."),
    ),
)]
pub async fn set_key_budgets(
    State(parts): State<KeyParts>,
    caller: WebCaller,
    Path(key_id): Path<String>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    require_own(&parts, &caller, &key_id).await?;
    let account = &caller.account.0;
    let now = parts.ledger.now();
    let expires_at = limits::expiry_of(&parts, account, &key_id, now).await?;
    let BudgetsRequest { budgets } = from_json(&body.bytes)?;
    let asked = RequestedBudgets {
        budgets: Some(budgets),
        ..RequestedBudgets::default()
    };
    let asked = asked.read()?;
    allow_change(&parts, &caller, &key_id, KeyLimitKind::Budgets, |key| {
        let standings = key.standings(now);
        let is_kept = |before: &BudgetState| {
            let before = before.budget;
            (asked.iter()).any(|new| new.window == before.window && new.credits <= before.credits)
        };
        LimitChange::of(!standings.is_empty(), standings.iter().all(is_kept))
    })
    .await?;
    limits::set_budgets(&parts, account, &key_id, asked, expires_at).await?;
    record_limit(&parts, &caller, &key_id, "budgets");
    let keys = own_keys(&parts, &caller).await?;
    let key = keys.into_iter().find(|key| key.id == key_id);
    Ok(Json(json!(key.map(|key| item(key, now)))))
}

/// Records the change of a key's limit.
fn record_limit(parts: &KeyParts, caller: &WebCaller, key_id: &str, limit: &'static str) {
    parts.audit.record_by(
        &Actor::user(&caller.user_id),
        AuditEvent::KeyLimitSet {
            user_id: caller.account.0.clone(),
            key_id: key_id.to_owned(),
            limit,
        },
    );
}

/// `PUT /api-keys/{key_id}/rates`: sets the requests and tokens per minute of a key. They apply to all nodes at once.
#[utoipa::path(
    put, path = "/api-keys/{key_id}/rates", tag = "keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    request_body = PartRate,
    responses(
        (status = 200, body = PartRate),
        (status = 403, description = "`FORBIDDEN`: a manager set the rates, and you would loosen them."),
        (status = 404, description = "`NOT_FOUND`: you have no active key with this id."),
    ),
)]
pub async fn set_key_rates(
    State(parts): State<KeyParts>,
    caller: WebCaller,
    Path(key_id): Path<String>,
    body: JsonBody,
) -> Result<Json<PartRate>, ApiError> {
    require_own(&parts, &caller, &key_id).await?;
    let account = &caller.account.0;
    limits::expiry_of(&parts, account, &key_id, parts.ledger.now()).await?;
    let rate: PartRate = from_json(&body.bytes)?;
    let rates = store::find_rates(&parts.database, account).await;
    let before = rates
        .map_err(store_failed)?
        .of(&BudgetPart::Key(key_id.clone()));
    allow_change(&parts, &caller, &key_id, KeyLimitKind::Rates, |_| {
        LimitChange::of(before != PartRate::default(), rate.is_within(&before))
    })
    .await?;
    set_rate(&parts, account, BudgetPart::Key(key_id.clone()), rate).await?;
    record_limit(&parts, &caller, &key_id, "rates");
    Ok(Json(rate))
}

/// `PUT /api-keys/{key_id}/filter-options`: replaces the options of a key that filters read. They apply to all nodes at
/// once.
#[utoipa::path(
    put, path = "/api-keys/{key_id}/filter-options", tag = "keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    request_body = FilterOptions,
    responses(
        (status = 200, body = FilterOptions),
        (status = 403, description = "`FORBIDDEN`: a manager set the options, and you would loosen them."),
        (status = 404, description = "`NOT_FOUND`: you have no active key with this id."),
    ),
)]
pub async fn set_key_filter_options(
    State(parts): State<KeyParts>,
    caller: WebCaller,
    Path(key_id): Path<String>,
    body: JsonBody,
) -> Result<Json<FilterOptions>, ApiError> {
    require_own(&parts, &caller, &key_id).await?;
    let account = &caller.account.0;
    limits::expiry_of(&parts, account, &key_id, parts.ledger.now()).await?;
    let options: FilterOptions = from_json(&body.bytes)?;
    allow_change(
        &parts,
        &caller,
        &key_id,
        KeyLimitKind::FilterOptions,
        |key| {
            let before = &key.filter_options;
            LimitChange::of(!before.filter_options.is_empty(), *before == options)
        },
    )
    .await?;
    users::set_key_filter_options(&parts, account, &key_id, &options).await?;
    record_limit(&parts, &caller, &key_id, "filter_options");
    Ok(Json(options))
}

/// `PUT /api-keys/{key_id}/data-limits`: replaces the limits on the providers of a key's requests. They apply to all nodes
/// at once.
#[utoipa::path(
    put, path = "/api-keys/{key_id}/data-limits", tag = "keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    request_body = DataLimits,
    responses(
        (status = 200, body = DataLimits),
        (status = 403, description = "`FORBIDDEN`: a manager set the limits, and you would loosen them."),
        (status = 404, description = "`NOT_FOUND`: you have no active key with this id."),
    ),
)]
pub async fn set_key_data_limits(
    State(parts): State<KeyParts>,
    caller: WebCaller,
    Path(key_id): Path<String>,
    body: JsonBody,
) -> Result<Json<DataLimits>, ApiError> {
    require_own(&parts, &caller, &key_id).await?;
    let account = &caller.account.0;
    limits::expiry_of(&parts, account, &key_id, parts.ledger.now()).await?;
    let limits: DataLimits = from_json(&body.bytes)?;
    allow_change(&parts, &caller, &key_id, KeyLimitKind::DataLimits, |key| {
        let before = &key.data_limits;
        LimitChange::of(!before.is_empty(), limits.is_within(before))
    })
    .await?;
    users::change_plan(&parts, account, async {
        store::set_key_data_limits(&parts.database, account, &key_id, &limits)
            .await
            .map_err(store_failed)
    })
    .await?;
    record_limit(&parts, &caller, &key_id, "data_limits");
    Ok(Json(limits))
}

/// `PUT /api-keys/{key_id}/content-log`: decides whether weir stores the prompts and responses of a key's requests. Only
/// the key's user turns it on; an administrator of the organisation does for service accounts, and may turn it off.
#[utoipa::path(
    put, path = "/api-keys/{key_id}/content-log", tag = "keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    request_body = ContentLogSwitch,
    responses(
        (status = 200, body = ContentLogSwitch),
        (status = 403, description = "`FORBIDDEN`: another user of the organisation uses the key."),
        (status = 404, description = "`NOT_FOUND`: you have no active key with this id."),
        (status = 409, description = "`NOT_POSSIBLE`: the operator does not allow it."),
    ),
)]
pub async fn set_key_content_log(
    State(parts): State<KeyParts>,
    caller: WebCaller,
    Path(key_id): Path<String>,
    body: JsonBody,
) -> Result<Json<ContentLogSwitch>, ApiError> {
    require_own(&parts, &caller, &key_id).await?;
    limits::expiry_of(&parts, &caller.account.0, &key_id, parts.ledger.now()).await?;
    let switch: ContentLogSwitch = from_json(&body.bytes)?;
    set_content_log(&parts, &caller, &key_id, switch.enabled).await?;
    Ok(Json(switch))
}

/// Decides whether weir stores the content of a key's requests, on all nodes at once.
///
/// # Errors
///
/// 403 if another person uses the key, 404 if the caller may not manage such a key, 409 if the operator does not allow it.
pub async fn set_content_log(
    parts: &KeyParts,
    caller: &WebCaller,
    key_id: &str,
    enabled: bool,
) -> Result<(), ApiError> {
    require_own(parts, caller, key_id).await?;
    require_allowed(enabled, parts.content_log.is_some())?;
    let account = &caller.account.0;
    let holder = store::find_holder(&parts.database, account, key_id).await;
    let holder = holder
        .map_err(store_failed)?
        .ok_or_else(weir_identity::no_such_key)?;
    if enabled && holder != caller.user_id && !ids::is_service_account(&holder) {
        let what = "Only the user of a key decides that weir stores its prompts and responses.";
        return Err(ApiError::new(ErrorCode::Forbidden, what).with_no_retry());
    }
    users::change_plan(parts, account, async {
        store::set_key_content_log(&parts.database, account, key_id, enabled)
            .await
            .map_err(store_failed)
    })
    .await?;
    let event = AuditEvent::KeyContentLogSet {
        user_id: account.clone(),
        key_id: key_id.to_owned(),
        choice: if enabled { "on" } else { "off" },
    };
    parts.audit.record_by(&Actor::user(&caller.user_id), event);
    Ok(())
}

/// `DELETE /api-keys/{key_id}`: revokes a key immediately on every node.
#[utoipa::path(
    delete, path = "/api-keys/{key_id}", tag = "keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    responses(
        (status = 204, description = "The key is revoked."),
        (status = 404, description = "`NOT_FOUND`: you have no key with this id."),
    ),
)]
pub async fn revoke_api_key(
    State(parts): State<KeyParts>,
    caller: WebCaller,
    Path(key_id): Path<String>,
) -> Result<StatusCode, ApiError> {
    revoke(&parts, &caller, &key_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The models that a key may use; null if it may use all.
fn models(models: Vec<String>) -> Option<Vec<String>> {
    Some(models).filter(|models| !models.is_empty())
}

fn item(key: KeyItem, now: Millis) -> OwnKeyItem {
    OwnKeyItem {
        budgets: budgets::items(key.standings(now)),
        key_id: key.id,
        name: key.name,
        prefix: key.prefix,
        created_at: key.created_at.iso(),
        last_used_at: key.last_used_at.map(Millis::iso),
        expires_at: key.expires_at.iso(),
        disabled: key.disabled,
        scope: key.scope,
        models: models(key.models),
        filter_options: key.filter_options.filter_options,
        data_limits: key.data_limits,
        content_log: key.content_log,
        holder_id: key.holder_id,
        project_id: key.project_id,
    }
}
