//! `/organisations/{organisation_id}/budgets`: the budgets of an organisation and of its parts.
//!
//! [`weir_ledger::budgets`] counts and enforces them.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::members::has_project;
use weir_identity::roles::Permission;
use weir_ledger::{Account, AccountId, Budget, BudgetPart, SetBudgets};
use weir_request::schemas;
use weir_request::small_body::SmallBody;
use weir_storage::clock::Millis;

use super::store::role_of;
use super::{MemberCaller, OrganisationParts, failed};
use crate::billing::budgets::{self, BudgetItem, RequestedBudgets};

/// The kind of a part of an organisation with budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PartKind {
    /// The account, as the operator of the gateway limits it. Members cannot change it.
    Account,
    /// The whole organisation.
    Organisation,
    /// A project.
    Project,
    /// A member.
    Member,
    /// A model.
    Model,
    /// An API key. `PUT /api-keys/{key_id}/budgets` sets its budgets.
    Key,
}

/// The body that sets the budgets of a part.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartBudgetsRequest {
    /// The kind of the part; not `account` or `key`.
    of: PartKind,
    /// The id of the project, the user or the model; none for the organisation.
    #[serde(default)]
    id: Option<String>,
    /// Budgets, one for each limited window; an empty list removes all budgets.
    #[schema(value_type = Vec<schemas::BudgetSchema>, max_items = 5)]
    budgets: Vec<Budget>,
}

/// The budgets of a part.
#[derive(Debug, Serialize, ToSchema)]
pub struct PartBudgetsItem {
    /// The kind of the part.
    pub of: PartKind,
    /// The id of the part; null for the account.
    pub id: Option<String>,
    /// Its budgets.
    pub budgets: Vec<BudgetItem>,
}

/// The budgets of an organisation.
#[derive(Debug, Serialize, ToSchema)]
pub struct PartBudgetsList {
    /// The account's budgets first, then those of its parts. A member without the right to manage sees the account's, the
    /// organisation's and their own.
    pub budgets: Vec<PartBudgetsItem>,
}

/// `GET /organisations/{organisation_id}/budgets`: shows the budgets and their use.
#[utoipa::path(
    get, path = "/organisations/{organisation_id}/budgets", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    responses((status = 200, body = PartBudgetsList), (status = 404, description = "`NOT_FOUND`: you are not a member.")),
)]
pub async fn list_part_budgets(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!(list(&parts, &caller).await?)))
}

/// Returns the budgets that a member may see.
pub async fn list(
    parts: &OrganisationParts,
    caller: &MemberCaller,
) -> Result<PartBudgetsList, ApiError> {
    let account = AccountId(caller.organisation_id.clone());
    let account = parts.ledger.find_account(&account).await;
    let account = account.map_err(|error| ApiError::of_database(&error, "about an account"))?;
    let Some(account) = account else {
        return Ok(PartBudgetsList {
            budgets: Vec::new(),
        });
    };
    let sees_all = caller.role.allows(Permission::Manage);
    let own = caller.own_parts();
    let shown = account.budgets.iter().flat_map(|budgets| budgets.parts());
    let shown = shown
        .filter(|part| sees_all || own.contains(part))
        .map(Some);
    let now = parts.ledger.now();
    let budgets = std::iter::once(None).chain(shown);
    let budgets = budgets.map(|part| item(&account, part, now));
    Ok(PartBudgetsList {
        budgets: budgets.filter(|item| !item.budgets.is_empty()).collect(),
    })
}

pub(super) const fn kind_of(part: &BudgetPart) -> PartKind {
    match part {
        BudgetPart::Organisation(_) => PartKind::Organisation,
        BudgetPart::Project(_) => PartKind::Project,
        BudgetPart::Member(_) => PartKind::Member,
        BudgetPart::Model(_) => PartKind::Model,
        BudgetPart::Key(_) => PartKind::Key,
    }
}

fn item(account: &Account, part: Option<&BudgetPart>, now: Millis) -> PartBudgetsItem {
    PartBudgetsItem {
        of: part.map_or(PartKind::Account, kind_of),
        id: part.map(|part| part.id().to_owned()),
        budgets: budgets::items(account.standings(part, now)),
    }
}

/// `PUT /organisations/{organisation_id}/budgets`: replaces the budgets of the organisation, a project, a member or a
/// model. A window that remains keeps its count.
#[utoipa::path(
    put, path = "/organisations/{organisation_id}/budgets", tag = "organisations",
    params(("organisation_id" = String, Path, description = "The organisation's id.")),
    request_body = PartBudgetsRequest,
    responses(
        (status = 200, body = PartBudgetsList),
        (status = 404, description = "`NOT_FOUND`: you are not a member."),
        (status = 409, description = "`TOO_MANY_BUDGETS`: too many parts have budgets."),
    ),
)]
pub async fn set_part_budgets(
    State(parts): State<OrganisationParts>,
    caller: MemberCaller,
    SmallBody(asked): SmallBody<PartBudgetsRequest>,
) -> Result<Json<Value>, ApiError> {
    let part = read_part(&parts, &caller, asked.of, asked.id).await?;
    let requested = RequestedBudgets {
        budgets: Some(asked.budgets),
        ..RequestedBudgets::default()
    };
    set(&parts, &caller, part, requested.read()?).await?;
    Ok(Json(json!(list(&parts, &caller).await?)))
}

/// Returns the part of the organisation with this id.
///
/// # Errors
///
/// 400 that names the invalid field.
pub async fn read_part(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    of: PartKind,
    id: Option<String>,
) -> Result<BudgetPart, ApiError> {
    let (database, organisation) = (&parts.core.database, &caller.organisation_id);
    let wrong = |what: &str| Err(ApiError::invalid_request("id", what));
    let id = match (of, id) {
        (PartKind::Organisation, None) => {
            return Ok(BudgetPart::Organisation(organisation.clone()));
        }
        (_, Some(id)) => id,
        (_, None) => return wrong("The id of the part is missing."),
    };
    match of {
        PartKind::Organisation => wrong("The organisation needs no id."),
        PartKind::Account => {
            let what = "Only the operator of the gateway sets budgets of the account.";
            Err(ApiError::invalid_request("of", what))
        }
        PartKind::Key => {
            let what = "Use `PUT /api-keys/{key_id}/budgets` for a key.";
            Err(ApiError::invalid_request("of", what))
        }
        PartKind::Project => {
            if !has_project(database, organisation, &id)
                .await
                .map_err(failed)?
            {
                return wrong("The organisation has no active project with this id.");
            }
            Ok(BudgetPart::Project(id))
        }
        PartKind::Member => {
            let role = role_of(database, organisation, &id).await.map_err(failed)?;
            if role.is_none() {
                return wrong("The organisation has no member with this id.");
            }
            Ok(BudgetPart::Member(id))
        }
        PartKind::Model => {
            if id.is_empty() || id.len() > 256 || id.contains(char::is_control) {
                return wrong("It is the id of a model.");
            }
            Ok(BudgetPart::Model(id))
        }
    }
}

/// Replaces the budgets of a part of the organisation.
pub async fn set(
    parts: &OrganisationParts,
    caller: &MemberCaller,
    part: BudgetPart,
    asked: Vec<Budget>,
) -> Result<(), ApiError> {
    let account = AccountId(caller.organisation_id.clone());
    let subject = part.to_string();
    let set = SetBudgets {
        part: Some(part),
        until: None,
        budgets: asked,
        ended: Vec::new(),
    };
    budgets::set(&parts.core, &account, set).await?;
    caller.record(&parts.core, "organisation.budgets_set", subject);
    Ok(())
}
