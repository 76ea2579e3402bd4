//! `/organisations`: create, list, rename, delete and transfer organisations.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::WebCaller;
use weir_identity::key_records::drop_plan;
use weir_identity::members::{drop_cached_keys, unknown};
use weir_identity::roles::Role;
use weir_identity::users::change_plan;
use weir_ledger::{AccountId, Credits, Plan};
use weir_request::content_log;
use weir_request::content_log::settings::{ContentLogSwitch, require_allowed};
use weir_request::limits::data::DataLimits;
use weir_request::query::ListQuery;
use weir_request::small_body::SmallBody;

use super::members::change_failed;
use super::store::{self, MAX_CREATED_A_DAY, MAX_OWNED, OrganisationItem};
use super::{MemberCaller, OrganisationParts, failed, read_name, too_many};

/// A body with a name.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NameRequest {
    /// Display name.
    #[schema(
        min_length = 1,
        max_length = 100,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub name: String,
}

/// The body of a transfer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// The member who becomes the owner.
    user_id: String,
}

/// The caller's organisations.
#[derive(Serialize, ToSchema)]
struct OrganisationList {
    /// Organisations, oldest first.
    organisations: Vec<OrganisationItem>,
}

/// `POST /organisations`: creates an organisation. The caller becomes its owner.
#[utoipa::path(
    post, path = "/organisations", tag = "organisations",
    request_body = NameRequest,
    responses(
        (status = 201, body = OrganisationItem),
        (status = 429, description = "`ORGANISATION_LIMIT_REACHED`: a user owns at most 10 organisations and creates at most 10 a day."),
    ),
)]
pub async fn create_organisation(
    State(parts): State<OrganisationParts>,
    caller: WebCaller,
    SmallBody(NameRequest { name }): SmallBody<NameRequest>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let organisation = create(&parts, &caller.user_id, &name).await?;
    Ok((StatusCode::CREATED, Json(json!(organisation))))
}

/// Creates an organisation for its first owner.
pub async fn create(
    parts: &OrganisationParts,
    owner: &str,
    name: &str,
) -> Result<OrganisationItem, ApiError> {
    let name = read_name(name)?;
    let (database, now) = (&parts.core.database, parts.core.clock.now());
    let id = store::create(database, name, owner, now)
        .await
        .map_err(failed)?;
    let id =
        id.ok_or_else(|| too_many(format!(
            "A user owns at most {MAX_OWNED} organisations, and creates at most {MAX_CREATED_A_DAY} a day."
        )))?;
    let caller = MemberCaller {
        organisation_id: id,
        user_id: owner.to_owned(),
        role: Role::Owner,
    };
    caller.record(&parts.core, "organisation.created", name);
    Ok(OrganisationItem {
        organisation_id: caller.organisation_id,
        name: name.to_owned(),
        plan: Plan::Free.name().to_owned(),
        role: Role::Owner,
        data_limits: DataLimits::default(),
        content_log: false,
        created_at: now.iso(),
    })
}

/// `GET /organisations`: lists the caller's organisations.
#[utoipa::path(
    get, path = "/organisations", tag = "organisations",
    responses((status = 200, body = OrganisationList)),
)]
pub async fn list_organisations(
    State(parts): State<OrganisationParts>,
    caller: WebCaller,
) -> Result<Json<Value>, ApiError> {
    let organisations = store::list_of_user(&parts.core.database, &caller.user_id).await;
    let organisations = organisations.map_err(failed)?;
    Ok(Json(json!(OrganisationList { organisations })))
}

/// `GET /organisations/{organisation_id}`: shows an organisation of the caller.
#[utoipa::path(
    get, path = "/organisations/{organisation_id}", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    responses((status = 200, body = OrganisationItem), (status = 404, description = "`NOT_FOUND`: you are not a member.")),
)]
pub async fn get_organisation(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
) -> Result<Json<Value>, ApiError> {
    show(&parts, &caller).await
}

async fn show(parts: &OrganisationParts, caller: &MemberCaller) -> Result<Json<Value>, ApiError> {
    let database = &parts.core.database;
    let found = store::find(database, &caller.organisation_id, &caller.user_id).await;
    let organisation = found.map_err(failed)?.ok_or_else(unknown)?;
    Ok(Json(json!(organisation)))
}

/// `PATCH /organisations/{organisation_id}`: renames an organisation.
#[utoipa::path(
    patch, path = "/organisations/{organisation_id}", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    request_body = NameRequest,
    responses((status = 200, body = OrganisationItem), (status = 404, description = "`NOT_FOUND`: you are not a member.")),
)]
pub async fn rename_organisation(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    SmallBody(NameRequest { name }): SmallBody<NameRequest>,
) -> Result<Json<Value>, ApiError> {
    let name = read_name(&name)?;
    store::rename(&parts.core.database, &caller.organisation_id, name)
        .await
        .map_err(failed)?;
    caller.record(&parts.core, "organisation.renamed", name);
    show(&parts, &caller).await
}

/// `PUT /organisations/{organisation_id}/data-limits`: replaces the limits on the providers of the organisation's requests.
/// They apply to all nodes at once.
#[utoipa::path(
    put, path = "/organisations/{organisation_id}/data-limits", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    request_body = DataLimits,
    responses((status = 200, body = OrganisationItem), (status = 404, description = "`NOT_FOUND`: you are not a member.")),
)]
pub async fn set_organisation_data_limits(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    SmallBody(limits): SmallBody<DataLimits>,
) -> Result<Json<Value>, ApiError> {
    set_data_limits(&parts, &caller, &limits).await?;
    show(&parts, &caller).await
}

/// Replaces the limits of an organisation on providers, on all nodes at once.
pub async fn set_data_limits(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    limits: &DataLimits,
) -> Result<(), ApiError> {
    let (core, id) = (&parts.core, &caller.organisation_id);
    let changed = change_plan(core, id, async {
        let set = weir_identity::store::set_organisation_data_limits(&core.database, id, limits);
        set.await.map_err(failed)
    });
    changed.await?;
    let shown = limits.shown().join("; ");
    caller.record(core, "organisation.data_limits_set", shown);
    Ok(())
}

/// `PUT /organisations/{organisation_id}/content-log`: decides whether weir stores the prompts and responses of the
/// organisation's requests. Their users and the organisation's administrators see them.
#[utoipa::path(
    put, path = "/organisations/{organisation_id}/content-log", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    request_body = ContentLogSwitch,
    responses(
        (status = 200, body = OrganisationItem),
        (status = 404, description = "`NOT_FOUND`: you are not a member."),
        (status = 409, description = "`NOT_POSSIBLE`: the operator does not allow it."),
    ),
)]
pub async fn set_organisation_content_log(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    SmallBody(switch): SmallBody<ContentLogSwitch>,
) -> Result<Json<Value>, ApiError> {
    set_content_log(&parts, &caller, switch.enabled).await?;
    show(&parts, &caller).await
}

/// Decides whether weir stores the content of an organisation's requests, on all nodes at once.
pub async fn set_content_log(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    enabled: bool,
) -> Result<(), ApiError> {
    require_allowed(enabled, parts.content_log.is_some())?;
    let (core, id) = (&parts.core, &caller.organisation_id);
    let changed = change_plan(core, id, async {
        let set = weir_identity::store::set_organisation_content_log(&core.database, id, enabled);
        set.await.map_err(failed)
    });
    changed.await?;
    let choice = if enabled { "on" } else { "off" };
    caller.record(core, "organisation.content_log_set", choice);
    Ok(())
}

/// `DELETE /organisations/{organisation_id}`: deletes an organisation, and revokes its keys. Remaining credits are lost.
#[utoipa::path(
    delete, path = "/organisations/{organisation_id}", tag = "organisations",
    params(
        ("organisation_id" = String, Path, description = "The organisation's id."),
        ("forfeit_credits" = Option<bool>, Query, description = "Delete bought credits, too.", nullable = false),
    ),
    responses(
        (status = 204, description = "The organisation is deleted."),
        (status = 404, description = "`NOT_FOUND`: you are not a member."),
        (status = 409, description = "`ORGANISATION_IN_USE`: it has a paid plan, bought credits or requests in progress."),
    ),
)]
pub async fn delete_organisation(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    mut query: ListQuery,
) -> Result<StatusCode, ApiError> {
    let forfeits = query.flag("forfeit_credits")?.unwrap_or_default();
    query.finish()?;
    let id = &caller.organisation_id;
    require_unused(&parts, id, forfeits).await?;
    // The tombstone comes first, so that a node that reads a key before the database changes cannot cache it again.
    let dropped = drop_plan(&parts.core.cache, id).await;
    dropped.map_err(|_| {
        ApiError::cache_unavailable("weir could not revoke the keys on all nodes; retry later.")
    })?;
    store::delete(&parts.core.database, id, parts.core.clock.now())
        .await
        .map_err(failed)?;
    caller.record(&parts.core, "organisation.deleted", "");
    content_log::store::delete_of_account(&parts.core.database, id)
        .await
        .map_err(failed)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses to delete an organisation with a paid plan, bought credits or requests in progress.
async fn require_unused(
    parts: &OrganisationParts,
    id: &str,
    forfeits: bool,
) -> Result<(), ApiError> {
    let account = parts.ledger.find_account(&AccountId(id.to_owned())).await;
    let account = account.map_err(|error| ApiError::of_database(&error, "about an account"))?;
    let Some(account) = account else {
        return Ok(());
    };
    let why = if account.plan != Plan::Free && account.cancelled_at.is_none() {
        "The organisation has a paid plan; cancel it in the portal first."
    } else if account.held.total() > Credits::ZERO {
        "The organisation has requests in progress; retry when they have ended."
    } else if account.balance.top_up > Credits::ZERO && !forfeits {
        "The organisation has bought credits; spend them, or set `forfeit_credits=true`."
    } else {
        return Ok(());
    };
    Err(ApiError::new(ErrorCode::OrganisationInUse, why).with_no_retry())
}

/// `POST /organisations/{organisation_id}/transfer`: makes another member the owner. The caller becomes an
/// administrator.
#[utoipa::path(
    post, path = "/organisations/{organisation_id}/transfer", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    request_body = TransferRequest,
    responses((status = 200, body = OrganisationItem), (status = 404, description = "`NOT_FOUND`: the user is not a member.")),
)]
pub async fn transfer_organisation(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    SmallBody(TransferRequest { user_id }): SmallBody<TransferRequest>,
) -> Result<Json<Value>, ApiError> {
    if user_id == caller.user_id {
        let what = "You are the owner already.";
        return Err(ApiError::invalid_request("user_id", what));
    }
    let id = &caller.organisation_id;
    for member in [&user_id, &caller.user_id] {
        drop_cached_keys(&parts.core, id, member).await?;
    }
    let changed = store::transfer(&parts.core.database, id, &caller.user_id, &user_id).await;
    change_failed(changed.map_err(failed)?)?;
    caller.record(&parts.core, "organisation.transferred", user_id);
    show(&parts, &caller).await
}
