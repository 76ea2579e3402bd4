//! Organisations: accounts with several members, who share one wallet.
//!
//! An organisation is an account, in the same table as users. Its members are people, who join by [`invitations`], and
//! [`service_accounts`], which only hold keys. A member's role ([`weir_identity::roles`]) decides what they may do.
//! [`projects`] group keys; [`budgets`] and [`rates`] limit members, projects, models and keys.
//!
//! A request names its organisation by its API key, or a web user names it in `X-Weir-Account`.
//!
//! **Invariant:** an organisation always has an owner. **Invariant:** a key ends with its holder's membership, on all
//! nodes at once ([`weir_identity::members`]). **Invariant:** an invitation is accepted at most once, and only by a
//! user whose issuer has verified its e-mail address.
//!
//! To add an endpoint, add its handler to [`endpoints`].

pub mod budgets;
pub mod invitations;
pub mod members;
pub mod projects;
pub mod rates;
pub mod routes;
pub mod service_accounts;
mod store;

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, Path};
use http::request::Parts;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::members::{require, unknown};
use weir_identity::roles::{Permission, Role};
use weir_identity::{Caller, IdentityParts, WebCaller, handlers};
use weir_ledger::{BudgetPart, Ledger};
use weir_request::audit::{Actor, AuditEvent};
use weir_request::content_log::ContentLog;
use weir_request::node::Core;
use weir_request::request::BodyReader;
use weir_storage::ids;

pub use self::store::{
    InvitationItem, MemberItem, OrganisationItem, ProjectItem, find_invitations, list_members,
    list_of_user, list_projects,
};

/// Returns the endpoints of organisations.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    OrganisationParts: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new()
        .row(
            Access::Person,
            handlers!(
                routes::create_organisation,
                routes::list_organisations,
                invitations::accept_invitation
            ),
        )
        .row(
            Access::Web(Permission::Belong),
            handlers!(
                routes::get_organisation,
                members::list_members,
                members::remove_member,
                projects::list_projects,
                budgets::list_part_budgets,
                rates::list_part_rates
            ),
        )
        .row(
            Access::Web(Permission::Manage),
            handlers!(
                routes::rename_organisation,
                routes::set_organisation_data_limits,
                routes::set_organisation_content_log,
                members::set_member_role,
                invitations::create_invitation,
                invitations::list_invitations,
                invitations::revoke_invitation,
                projects::create_project,
                projects::archive_project,
                service_accounts::create_service_account,
                service_accounts::list_service_accounts,
                service_accounts::delete_service_account,
                budgets::set_part_budgets,
                rates::set_part_rates
            ),
        )
        .row(
            Access::Web(Permission::Own),
            handlers!(routes::delete_organisation, routes::transfer_organisation),
        )
}

/// The parts of a gateway that the endpoints of organisations use. Cheap to clone.
#[derive(Clone)]
pub struct OrganisationParts {
    /// The stores, the clock and the audit.
    pub core: Core,
    /// The ledger, for balances and budgets.
    pub ledger: Ledger,
    /// The log of prompts and responses, if the configuration allows one.
    pub content_log: Option<Arc<ContentLog>>,
}

/// A member who manages the organisation in the path of a request. The extractor enforces the permission of the endpoint.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemberCaller {
    pub organisation_id: String,
    pub user_id: String,
    pub role: Role,
}

impl<S> FromRequestParts<S> for MemberCaller
where
    Arc<IdentityParts>: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let caller = WebCaller::from_request_parts(parts, state).await?;
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Path(path) = path.map_err(|_| unknown())?;
        let id = path.into_iter().find(|(name, _)| name == "organisation_id");
        let (_, id) = id.ok_or_else(unknown)?;
        if !ids::is_organisation(&id) {
            return Err(unknown());
        }
        let identity = Arc::<IdentityParts>::from_ref(state);
        let membership = require(&identity.core, &id, &caller.user_id).await?;
        membership.role.require_endpoint(parts)?;
        Ok(Self {
            organisation_id: id,
            user_id: caller.user_id,
            role: membership.role,
        })
    }
}

impl MemberCaller {
    /// Returns a caller as a member of the organisation for which they act.
    ///
    /// # Errors
    ///
    /// 404 for a caller who acts for their personal account.
    pub fn of(caller: &Caller) -> Result<Self, ApiError> {
        let id = &caller.account.0;
        if !ids::is_organisation(id) {
            return Err(unknown());
        }
        Ok(Self {
            organisation_id: id.clone(),
            user_id: caller.user_id.clone(),
            role: caller.role,
        })
    }

    /// Returns the parts of the organisation whose limits every member may see: the organisation and the member.
    fn own_parts(&self) -> [BudgetPart; 2] {
        [
            BudgetPart::Member(self.user_id.clone()),
            BudgetPart::Organisation(self.organisation_id.clone()),
        ]
    }

    /// Records a change of the organisation.
    fn record(&self, core: &Core, kind: &'static str, subject: impl Into<String>) {
        let event = AuditEvent::OrganisationChanged {
            kind,
            organisation_id: self.organisation_id.clone(),
            subject: subject.into(),
        };
        core.audit.record_by(&Actor::user(&self.user_id), event);
    }
}

/// Reads a name: 1 to 100 characters without control characters.
fn read_name(name: &str) -> Result<&str, ApiError> {
    let name = name.trim();
    if (1..=100).contains(&name.chars().count()) && !name.contains(char::is_control) {
        return Ok(name);
    }
    let what = "A name has 1 to 100 characters and no control characters.";
    Err(ApiError::invalid_request("name", what))
}

fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "about an organisation")
}

/// 429: the organisation or the user has too many of these.
fn too_many(what: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::OrganisationLimitReached, what).with_no_retry()
}
