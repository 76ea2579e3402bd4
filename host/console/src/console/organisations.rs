//! Organisations: the user's list, the account for which the user acts, and the members, invitations, projects and
//! budgets of the current organisation.

use askama::Template;
use axum::extract::{FromRef as _, Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use weir_accounts::organisations::budgets::{PartBudgetsItem, PartKind, list, read_part, set};
use weir_accounts::organisations::invitations::{DAYS, accept, invite};
use weir_accounts::organisations::projects::{archive, create as create_project};
use weir_accounts::organisations::routes::{create, set_content_log, set_data_limits};
use weir_accounts::organisations::{
    InvitationItem, MemberCaller, MemberItem, OrganisationItem, OrganisationParts, ProjectItem,
    find_invitations, list_members, list_of_user, list_projects, members,
};
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::members::unknown;
use weir_identity::roles::{Permission, Role};
use weir_ledger::BudgetWindow;

use super::form::{ConsoleForm, FormError, FormFields};
use super::format;
use super::frame::{Flash, Frame, ORGANISATIONS};
use super::session::{self, ConsoleUser};
use super::{respond, snippets};

const PATH: &str = ORGANISATIONS.path;

/// The fields whose errors stand beside them.
const FIELDS: &[&str] = &["name"];

#[derive(Template)]
#[template(path = "console/organisations.html")]
struct OrganisationsPage {
    frame: Frame,
    organisations: Vec<OrganisationItem>,
    /// The organisation for which the user acts, if any.
    current: Option<CurrentOrganisation>,
    current_id: String,
    /// The days for which weir stores prompts and responses; `None` if the operator does not allow it.
    content_days: Option<i64>,
    roles: [Role; 4],
    windows: [BudgetWindow; 5],
    refused: FormError,
}

/// The organisation for which the user acts.
struct CurrentOrganisation {
    organisation: OrganisationItem,
    user_id: String,
    can_manage: bool,
    members: Vec<MemberItem>,
    invitations: Vec<InvitationItem>,
    projects: Vec<ProjectItem>,
    budgets: Vec<PartBudgetsItem>,
}

#[derive(Template)]
#[template(path = "console/invitation.html")]
struct InvitationPage {
    frame: Frame,
    made: CreatedInvitationLink,
}

/// A new invitation on its way to the page that shows it once.
#[derive(Serialize, Deserialize)]
struct CreatedInvitationLink {
    email: String,
    path: String,
    #[serde(default)]
    link: String,
}

/// `GET /console/organisations`
pub(super) async fn show_organisations(
    State(app): State<App>,
    user: ConsoleUser,
) -> Result<Response, ApiError> {
    let page = page(&app, &user, FormError::default()).await?;
    user.show(&page)
}

/// `POST /console/organisations`: creates an organisation, and switches to it.
pub(super) async fn create_organisation(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let parts = OrganisationParts::from_ref(&app);
    match create(&parts, &user.caller.user_id, fields.text("name")).await {
        Ok(made) => Ok(switch(&app, &user, Some((made.organisation_id, made.name)))),
        Err(error) => refuse(&app, &user, error).await,
    }
}

/// `POST /console/organisations/switch`: continues the session for another account.
pub(super) async fn switch_account(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let Some(id) = fields.filled("account") else {
        return Ok(switch(&app, &user, None));
    };
    let organisations = own(&app, &user).await?;
    let chosen = organisations
        .into_iter()
        .find(|known| known.organisation_id == id);
    let chosen = chosen.ok_or_else(unknown)?;
    Ok(switch(
        &app,
        &user,
        Some((chosen.organisation_id, chosen.name)),
    ))
}

/// `POST /console/organisations/accept`: joins an organisation by an invitation's code, and switches to it.
pub(super) async fn accept_invitation(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let parts = OrganisationParts::from_ref(&app);
    let joined = match accept(&parts, &user.caller.user_id, fields.text("code")).await {
        Ok(joined) => joined,
        Err(error) => return refuse(&app, &user, error).await,
    };
    let organisations = own(&app, &user).await?;
    let id = joined.organisation_id;
    let found = organisations
        .into_iter()
        .find(|known| known.organisation_id == id);
    let name = found.map_or_else(String::new, |found| found.name);
    Ok(switch(&app, &user, Some((id, name))))
}

/// `POST /console/organisations/invite`: invites a person, and redirects the browser to the page that shows the link.
pub(super) async fn create_invitation(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let made = async {
        let (parts, member) = managing(&app, &user)?;
        let email = fields.text("email");
        let made = invite(&parts, &member, email, read_role(&fields)?, DAYS).await?;
        Ok(CreatedInvitationLink {
            email: email.to_owned(),
            path: made.path,
            link: String::new(),
        })
    };
    match made.await {
        Ok(made) => Ok(user.go_with("/console/organisations/invited", &made)),
        Err(error) => refuse(&app, &user, error).await,
    }
}

/// `GET /console/organisations/invited`: shows the link of a new invitation once.
pub(super) async fn show_invitation(
    State(app): State<App>,
    headers: HeaderMap,
    user: ConsoleUser,
) -> Result<Response, ApiError> {
    let shown = user.take_once(&headers, |made: CreatedInvitationLink| {
        let base = snippets::base(&app, snippets::host(&headers));
        let link = format!("{base}{}", made.path);
        let page = InvitationPage {
            frame: user.frame("Invitation", ORGANISATIONS),
            made: CreatedInvitationLink { link, ..made },
        };
        respond::page(StatusCode::OK, &page)
    });
    shown.unwrap_or_else(|| {
        let what = "weir shows an invitation's link only once. You can invite the person again.";
        Ok(user.go(PATH, Flash::bad(what)))
    })
}

/// `POST /console/organisations/invitations/{invitation_id}/revoke`
pub(super) async fn revoke_invitation(
    State(app): State<App>,
    Path(id): Path<String>,
    ConsoleForm { user, .. }: ConsoleForm,
) -> Result<Response, ApiError> {
    let revoked = async {
        let (parts, member) = managing(&app, &user)?;
        weir_accounts::organisations::invitations::revoke(&parts, &member, &id).await
    };
    finish(&app, &user, revoked.await, "The invitation is revoked.").await
}

/// `POST /console/organisations/members/{user_id}/role`
pub(super) async fn set_role(
    State(app): State<App>,
    Path(id): Path<String>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let changed = async {
        let (parts, member) = managing(&app, &user)?;
        members::change_role(&parts, &member, &id, read_role(&fields)?).await
    };
    finish(&app, &user, changed.await, "The role is changed.").await
}

/// `POST /console/organisations/members/{user_id}/remove`: removes a member, or leaves the organisation.
pub(super) async fn remove_member(
    State(app): State<App>,
    Path(id): Path<String>,
    ConsoleForm { user, .. }: ConsoleForm,
) -> Result<Response, ApiError> {
    let (parts, member) = member(&app, &user)?;
    match members::remove(&parts, &member, &id).await {
        Ok(()) if id == user.caller.user_id => Ok(switch(&app, &user, None)),
        removed => {
            finish(
                &app,
                &user,
                removed,
                "The member and their keys are removed.",
            )
            .await
        }
    }
}

/// `POST /console/organisations/projects`
pub(super) async fn make_project(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let made = async {
        let (parts, member) = managing(&app, &user)?;
        create_project(&parts, &member, fields.text("name")).await
    };
    let made = made.await.map(drop);
    finish(&app, &user, made, "The project is created.").await
}

/// `POST /console/organisations/projects/{project_id}/archive`
pub(super) async fn archive_project(
    State(app): State<App>,
    Path(id): Path<String>,
    ConsoleForm { user, .. }: ConsoleForm,
) -> Result<Response, ApiError> {
    let archived = async {
        let (parts, member) = managing(&app, &user)?;
        archive(&parts, &member, &id).await
    };
    finish(
        &app,
        &user,
        archived.await,
        "The project and its keys are archived.",
    )
    .await
}

/// `POST /console/organisations/budgets`: sets one budget of the organisation, a member, a project or a model; without
/// credits, removes its budgets.
pub(super) async fn set_budget(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let changed = async {
        let (parts, member) = managing(&app, &user)?;
        let (of, id) = fields.text("part").split_once(':').unwrap_or_default();
        let of = match of {
            "member" => PartKind::Member,
            "project" => PartKind::Project,
            _ => PartKind::Organisation,
        };
        let id = Some(id.to_owned()).filter(|id| !id.is_empty());
        let part = read_part(&parts, &member, of, id).await?;
        set(&parts, &member, part, fields.budget()?.read()?).await
    };
    finish(&app, &user, changed.await, "The budget is changed.").await
}

/// `POST /console/organisations/data-limits`: replaces the limits of the organisation on providers.
pub(super) async fn set_limits(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let changed = async {
        let (parts, member) = managing(&app, &user)?;
        set_data_limits(&parts, &member, &fields.data_limits()?).await
    };
    finish(&app, &user, changed.await, "The limits are changed.").await
}

/// `POST /console/organisations/content-log`: decides whether weir stores the organisation's prompts and responses.
pub(super) async fn set_organisation_content_log(
    State(app): State<App>,
    ConsoleForm { user, fields }: ConsoleForm,
) -> Result<Response, ApiError> {
    let changed = async {
        let (parts, member) = managing(&app, &user)?;
        set_content_log(&parts, &member, fields.text("enabled") == "true").await
    };
    let what = "The storage of prompts and responses is changed.";
    finish(&app, &user, changed.await, what).await
}

fn read_role(fields: &FormFields) -> Result<Role, ApiError> {
    let role = fields.text("role").parse();
    role.map_err(|wanted| ApiError::invalid_request("role", format!("Choose {wanted}.")))
}

/// Returns the user as a member of the current organisation.
fn member(app: &App, user: &ConsoleUser) -> Result<(OrganisationParts, MemberCaller), ApiError> {
    let member = MemberCaller::of(&user.caller)?;
    Ok((OrganisationParts::from_ref(app), member))
}

/// Returns the user as a member who may manage the current organisation.
fn managing(app: &App, user: &ConsoleUser) -> Result<(OrganisationParts, MemberCaller), ApiError> {
    let found = member(app, user)?;
    user.caller.role.require(Permission::Manage)?;
    Ok(found)
}

/// Redirects the browser to the page with the success, or shows the page with the error.
async fn finish(
    app: &App,
    user: &ConsoleUser,
    outcome: Result<(), ApiError>,
    what: &str,
) -> Result<Response, ApiError> {
    match outcome {
        Ok(()) => Ok(user.go(PATH, Flash::good(what))),
        Err(error) => refuse(app, user, error).await,
    }
}

async fn refuse(app: &App, user: &ConsoleUser, error: ApiError) -> Result<Response, ApiError> {
    if !error.status().is_client_error() {
        return Err(error);
    }
    let page = page(app, user, FormError::by(&error)).await?;
    user.show_refused(error, &page)
}

fn switch(app: &App, user: &ConsoleUser, account: Option<(String, String)>) -> Response {
    let what = match &account {
        Some((_, name)) => format!("You now act for {name}."),
        None => "You now act for your personal account.".to_owned(),
    };
    let mut response = user.go(PATH, Flash::good(what));
    session::keep(&mut response, app, &user.session_for(account));
    response
}

async fn own(app: &App, user: &ConsoleUser) -> Result<Vec<OrganisationItem>, ApiError> {
    let found = list_of_user(&app.database, &user.caller.user_id).await;
    found.map_err(|error| ApiError::of_database(&error, "about organisations"))
}

async fn page(
    app: &App,
    user: &ConsoleUser,
    refused: FormError,
) -> Result<OrganisationsPage, ApiError> {
    let organisations = own(app, user).await?;
    let id = &user.caller.account.0;
    let current = organisations
        .iter()
        .find(|known| &known.organisation_id == id);
    let current = match current {
        Some(organisation) => Some(current_of(app, user, organisation.clone()).await?),
        None => None,
    };
    Ok(OrganisationsPage {
        frame: user.frame("Organisations", ORGANISATIONS),
        current_id: id.clone(),
        content_days: app.content_log.as_ref().map(|log| log.days()),
        organisations,
        current,
        roles: [Role::Member, Role::Viewer, Role::Billing, Role::Admin],
        windows: BudgetWindow::ALL,
        refused,
    })
}

async fn current_of(
    app: &App,
    user: &ConsoleUser,
    organisation: OrganisationItem,
) -> Result<CurrentOrganisation, ApiError> {
    let failed = |error: sqlx::Error| ApiError::of_database(&error, "about an organisation");
    let (database, id) = (&app.database, &organisation.organisation_id);
    let can_manage = user.may(Permission::Manage);
    let (parts, member) = member(app, user)?;
    let invitations = match can_manage {
        true => find_invitations(database, id, app.clock.now())
            .await
            .map_err(failed)?,
        false => Vec::new(),
    };
    Ok(CurrentOrganisation {
        members: list_members(database, id).await.map_err(failed)?,
        projects: list_projects(database, id).await.map_err(failed)?,
        budgets: list(&parts, &member).await?.budgets,
        user_id: member.user_id,
        can_manage,
        invitations,
        organisation,
    })
}

impl CurrentOrganisation {
    /// Returns the display name of a part with budgets.
    fn name_of(&self, item: &PartBudgetsItem) -> String {
        let id = item.id.clone().unwrap_or_default();
        match item.of {
            PartKind::Account => "The account (set by the operator)".to_owned(),
            PartKind::Organisation => "The organisation".to_owned(),
            PartKind::Model => format!("Model {id}"),
            PartKind::Key => format!("Key {id}"),
            PartKind::Project => {
                let found = self
                    .projects
                    .iter()
                    .find(|project| project.project_id == id);
                format!("Project {}", found.map_or(&*id, |project| &project.name))
            }
            PartKind::Member => {
                let found = self.members.iter().find(|member| member.user_id == id);
                format!(
                    "Member {}",
                    found.map_or(id.clone(), MemberItem::shown_name)
                )
            }
        }
    }
}
