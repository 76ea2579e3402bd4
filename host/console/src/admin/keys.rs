//! `/admin/keys`: all users' API keys. weir returns a key once, to the caller who creates it.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use futures_util::FutureExt as _;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_accounts::billing::budgets::{self, BudgetItem, RequestedBudgets};
use weir_accounts::keys;
use weir_accounts::keys::limits::KeyLimits;
use weir_app::App;
use weir_catalog::Catalog;
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_identity::directory::{self, KeyFilter};
use weir_identity::scope::KeyScope;
use weir_identity::store::KeyItem;
use weir_ledger::{Budget, BudgetWindow, Credits};
use weir_request::content_log::ContentLogChoice;
use weir_request::csv_export::{CsvTable, ListPage};
use weir_request::limits::data::DataLimits;
use weir_request::node::Core;
use weir_request::query::{ListQuery, cut};
use weir_request::schemas;
use weir_request::schemas::parameters::PageAfter;
use weir_request::small_body::SmallBody;
use weir_storage::clock::Millis;

/// A key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AdminKeyItem {
    /// The key's id.
    pub key_id: String,
    /// The key's user.
    pub user_id: String,
    /// The name from its user.
    pub name: String,
    /// The key's first characters.
    pub prefix: String,
    /// The time of its creation.
    pub created_at: String,
    /// The time of its last use, to the minute.
    pub last_used_at: Option<String>,
    /// The time at which it expires.
    pub expires_at: String,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// The endpoints that the key may use.
    #[serde(default)]
    pub scope: KeyScope,
    /// The models that the key may use; null if it may use all.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// The limits on the providers of the key's requests.
    #[serde(default)]
    pub data_limits: DataLimits,
    /// Whether weir stores the prompts and responses of the key's requests, if the configuration allows it.
    #[serde(default)]
    pub content_log: ContentLogChoice,
    /// The key's budgets.
    #[serde(default)]
    pub budgets: Vec<BudgetItem>,
}

/// A page of keys.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AdminKeyList)]
pub struct AdminKeyList {
    /// Keys, by user and then by age.
    pub keys: Vec<AdminKeyItem>,
    /// The `after` of the next page; null on the last page.
    pub next: Option<String>,
}

/// The body that creates a key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKey)]
pub struct AdminNewKey {
    /// The key's user; weir creates the user if the id is new.
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub user_id: String,
    /// The key's name in lists.
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub name: String,
    /// The key's budgets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<schemas::BudgetSchema>>, max_items = 5)]
    pub budgets: Option<Vec<Budget>>,
    /// The credits of a single budget, instead of `budgets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub budget_credits: Option<Credits>,
    /// The window of the single budget, `total` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schemas::Window>)]
    pub window: Option<BudgetWindow>,
    /// The models that the key may use; all unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 100)]
    pub models: Option<Vec<String>>,
    /// The limits on the providers of the key's requests; none unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_limits: Option<DataLimits>,
    /// Days until the key expires, at most 90.
    #[schema(minimum = 1, maximum = 90)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_days: Option<i64>,
    /// The endpoints that the key may use; `full` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<KeyScope>,
}

impl AdminNewKey {
    /// Returns the key's limits. Without a catalog, the models are not verified.
    pub fn limits(&self, catalog: Option<&Catalog>) -> Result<KeyLimits, ApiError> {
        let budgets = RequestedBudgets {
            budgets: self.budgets.clone(),
            budget_credits: self.budget_credits,
            window: self.window,
        };
        let limits = KeyLimits::read(
            budgets,
            self.models.clone(),
            self.data_limits.clone(),
            self.expires_in_days,
            catalog,
        )?;
        Ok(limits.with_scope(self.scope))
    }
}

/// A new key.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = AdminCreatedKey)]
pub struct AdminCreatedKey {
    /// The key's id.
    pub key_id: String,
    /// The key itself, only in this response.
    pub api_key: String,
    /// The key's user.
    pub user_id: String,
    /// The time at which the key expires.
    pub expires_at: String,
}

/// `GET /admin/keys`: all keys, optionally filtered by `user_id` and `active`.
#[utoipa::path(
    get, path = "/admin/keys", tag = "administration", operation_id = "admin_list_keys",
    params(
        PageAfter,
        ("user_id" = Option<String>, Query, description = "Only this user's keys.", nullable = false),
        ("active" = Option<bool>, Query, description = "Only active keys, or only expired and revoked ones.", nullable = false),
    ),
    responses((status = 200, content((AdminKeyList = "application/json"), (String = "text/csv")))),
)]
pub async fn list_keys(
    State(core): State<Core>,
    admin: AdminCaller,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let (reader, account) = (core.clone(), admin.actor.as_str());
    TABLE
        .respond(
            &core.exports,
            account,
            &headers,
            query,
            reader,
            |core, query| list(core, query).boxed(),
        )
        .await
}

const TABLE: CsvTable = CsvTable {
    file: "keys.csv",
    columns: "key_id,user_id,name,prefix,created_at,last_used_at,expires_at,state,models,scope",
    position: "after",
};

impl ListPage for AdminKeyList {
    type Item = AdminKeyItem;

    fn into_items(self) -> (Vec<AdminKeyItem>, Option<String>) {
        (self.keys, self.next)
    }
}

/// Returns the page of a query.
pub async fn list(core: &Core, mut query: ListQuery) -> Result<AdminKeyList, ApiError> {
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
    Ok(AdminKeyList {
        keys: keys.collect(),
        next,
    })
}

/// `POST /admin/keys`: creates a key for a user, without a limit on their number, and creates the user if the id is
/// new.
#[utoipa::path(
    post, path = "/admin/keys", tag = "administration", operation_id = "admin_create_key",
    request_body = AdminNewKey,
    responses(
        (status = 201, description = "The key; only this response contains its `api_key`.", body = AdminCreatedKey),
    ),
)]
pub async fn create_key(
    State(app): State<App>,
    AdminCaller { actor, .. }: AdminCaller,
    SmallBody(new): SmallBody<AdminNewKey>,
) -> Result<(StatusCode, Json<AdminCreatedKey>), ApiError> {
    for (field, text) in [("user_id", &new.user_id), ("name", &new.name)] {
        if !(1..=256).contains(&text.chars().count()) || text.contains(char::is_control) {
            let what = "The text must have 1 to 256 characters and no control characters.";
            return Err(ApiError::invalid_request(field, what));
        }
    }
    let limits = new.limits(Some(&app.catalog.load()))?;
    let (peppers, owner) = (&app.identity.key_peppers, (&*new.user_id, &*new.name));
    let (key, expires_at) = keys::create_key(&app, peppers, owner, &limits, &actor).await?;
    let created = AdminCreatedKey {
        key_id: key.id().to_owned(),
        api_key: key.expose().to_owned(),
        user_id: new.user_id,
        expires_at: expires_at.iso(),
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// `DELETE /admin/keys/{key_id}`: revokes a key. Every node rejects it immediately.
#[utoipa::path(
    delete, path = "/admin/keys/{key_id}", tag = "administration", operation_id = "admin_revoke_key",
    params(("key_id" = String, Path, description = "The key's id.")),
    responses(
        (status = 204, description = "The key is revoked."),
        (status = 404, description = "`NOT_FOUND`: no key has this id."),
    ),
)]
pub async fn revoke_key(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(key_id): Path<String>,
) -> Result<StatusCode, ApiError> {
    weir_identity::revoke_of_anybody(&core, &key_id, &actor).await?;
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
        data_limits: key.data_limits,
        content_log: key.content_log,
        key_id: key.id,
        user_id,
        name: key.name,
        prefix: key.prefix,
        created_at: key.created_at.iso(),
        last_used_at: key.last_used_at.map(Millis::iso),
        expires_at: key.expires_at.iso(),
        state: state.to_owned(),
        scope: key.scope,
    }
}
