//! `/organisations/{organisation_id}/rates`: requests and tokens per minute of an organisation's parts.
//!
//! [`weir_identity::part_rates`] enforces them.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::managed_limits::{self, KeyLimitKind, LimitChange};
use weir_identity::part_rates::PartRate;
use weir_identity::roles::Permission;
use weir_identity::store::{find_rates, has_key};
use weir_identity::users::set_rate;
use weir_ledger::BudgetPart;
use weir_request::small_body::SmallBody;

use super::budgets::{PartKind, kind_of, read_part};
use super::{MemberCaller, OrganisationParts, failed};

/// The body that sets the rates of a part.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartRateRequest {
    /// The kind of the part; not `account`.
    of: PartKind,
    /// The id of the project, the user, the model or the key; none for the organisation.
    #[serde(default)]
    id: Option<String>,
    /// Its rates; an empty object removes them.
    rates: PartRate,
}

/// The rates of a part.
#[derive(Serialize, ToSchema)]
struct PartRateItem {
    /// The kind of the part.
    of: PartKind,
    /// The id of the part.
    id: String,
    /// Its rates.
    rates: PartRate,
}

/// The rates of an organisation's parts.
#[derive(Serialize, ToSchema)]
struct PartRateList {
    /// Parts with rates. A member without the right to manage sees only the organisation's and their own.
    rates: Vec<PartRateItem>,
}

/// `GET /organisations/{organisation_id}/rates`: shows the rates of the organisation's parts.
#[utoipa::path(
    get, path = "/organisations/{organisation_id}/rates", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    responses((status = 200, body = PartRateList), (status = 404, description = "`NOT_FOUND`: you are not a member.")),
)]
pub async fn list_part_rates(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
) -> Result<Json<Value>, ApiError> {
    list(&parts, &caller).await
}

async fn list(parts: &OrganisationParts, caller: &MemberCaller) -> Result<Json<Value>, ApiError> {
    let known = find_rates(&parts.core.database, &caller.organisation_id).await;
    let known = known.map_err(failed)?;
    let sees_all = caller.role.allows(Permission::Manage);
    let own = caller.own_parts();
    let shown = known
        .parts()
        .filter(|part| sees_all || own.contains(part))
        .map(|part| PartRateItem {
            of: kind_of(part),
            id: part.id().to_owned(),
            rates: known.of(part),
        });
    let rates = shown.collect();
    Ok(Json(json!(PartRateList { rates })))
}

/// `PUT /organisations/{organisation_id}/rates`: sets the requests and tokens per minute of the organisation, a project, a
/// member, a model or a key. They apply to running keys at once.
#[utoipa::path(
    put, path = "/organisations/{organisation_id}/rates", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    request_body = PartRateRequest,
    responses(
        (status = 200, body = PartRateList),
        (status = 404, description = "`NOT_FOUND`: you are not a member."),
        (status = 409, description = "`TOO_MANY_BUDGETS`: too many parts have rates."),
    ),
)]
pub async fn set_part_rates(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    SmallBody(asked): SmallBody<PartRateRequest>,
) -> Result<Json<Value>, ApiError> {
    let (core, id) = (&parts.core, &caller.organisation_id);
    let part = match (asked.of, asked.id) {
        (PartKind::Key, Some(key)) => {
            if !has_key(&core.database, id, &key).await.map_err(failed)? {
                let what = "The organisation has no key with this id.";
                return Err(ApiError::invalid_request("id", what));
            }
            let effect = async { Ok(LimitChange::Loosens) };
            let by_manager = (&*key, caller.role);
            managed_limits::allow(&core.database, by_manager, KeyLimitKind::Rates, effect).await?;
            BudgetPart::Key(key)
        }
        (of, part) => read_part(&parts, &caller, of, part).await?,
    };
    let subject = part.to_string();
    set_rate(core, id, part, asked.rates).await?;
    caller.record(core, "organisation.rates_set", subject);
    list(&parts, &caller).await
}
