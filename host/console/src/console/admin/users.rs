//! Users and their keys: search, disable, enable and revoke; credits, plans, budgets and administrators.

use askama::Template;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use weir_accounts::billing::budgets::BudgetItem;
use weir_app::App;
use weir_errors::ApiError;
use weir_ledger::plans::Plan;
use weir_ledger::{AccountId, BudgetWindow, Credits, Pool};
use weir_request::csv_export::preferring_csv;
use weir_request::query::ListQuery;
use weir_request::small_body::SmallBody;
use weir_storage::clock::Millis;
use weir_storage::ids;

use super::{ListRequest, core};
use crate::admin::keys::{self, AdminKeyItem};
use crate::admin::users::{
    self, AccountItem, BudgetChange, CreditAdjustment, PlanChange, UserItem,
};
use crate::console::form::AdminForm;
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{Frame, PEOPLE};
use crate::console::session::ConsoleAdmin;

const FIELDS: [&str; 3] = ["subject", "plan", "disabled"];

#[derive(Template)]
#[template(path = "console/admin/users.html")]
struct UsersPage {
    frame: Frame,
    asked: ListRequest<3>,
    users: Vec<ListedUser>,
    next: Option<String>,
    now: Millis,
}

struct ListedUser {
    user: UserItem,
    /// Credits that no open request holds.
    available: Option<Credits>,
    /// The budget of the account with the least left.
    budget: Option<BudgetItem>,
}

#[derive(Template)]
#[template(path = "console/admin/user.html")]
struct UserPage {
    frame: Frame,
    user: UserItem,
    keys: Vec<AdminKeyItem>,
    asked: ListRequest<1>,
    next: Option<String>,
    is_self: bool,
    plans: [Plan; 3],
    windows: [BudgetWindow; 5],
    /// The id of the next change of credits: a form that is sent twice changes them once.
    change_id: String,
    now: Millis,
}

impl UserPage {
    /// Returns the window in which the form shows a budget.
    fn budget_window(&self, account: &AccountItem) -> &'static str {
        let first = account.budgets.first();
        first
            .map_or(BudgetWindow::Month, |budget| budget.window)
            .name()
    }
}

/// `GET /console/admin/users`
pub(super) async fn show_users(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "after")?;
    let list = users::list(&core(&app), asked.query()).await?;
    let now = app.ledger.now();
    let mut listed = Vec::new();
    for user in list.users {
        let account = app
            .ledger
            .find_account(&AccountId(user.user_id.clone()))
            .await;
        let account = account.map_err(|error| ApiError::of_database(&error, "about an account"))?;
        let budgets = account.as_ref().map(|account| account.standings(None, now));
        let budgets = budgets.into_iter().flatten();
        listed.push(ListedUser {
            user,
            available: account.as_ref().map(|account| account.available().total()),
            budget: budgets.min_by_key(|state| state.left).map(BudgetItem::from),
        });
    }
    let page = UsersPage {
        frame: admin.user.frame("Users", PEOPLE),
        next: asked.next(PEOPLE.path, list.next),
        users: listed,
        now: app.clock.now(),
        asked,
    };
    admin.user.show(&page)
}

/// `GET /console/admin/users.csv`: returns all users of a filter as a file.
pub(super) async fn download_users(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, FIELDS, "after")?;
    let (caller, headers) = (admin.caller(), preferring_csv());
    users::list_users(core(&app), caller, headers, asked.query_of_all()).await
}

/// `GET /console/admin/users/{user_id}`
pub(super) async fn show_user(
    State(app): State<App>,
    admin: ConsoleAdmin,
    Path(user_id): Path<String>,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, ["active"], "after")?;
    let found = users::get_user(core(&app), admin.caller(), Path(user_id.clone())).await?;
    let mut of_user = asked.query();
    of_user.set("user_id", user_id.clone());
    let keys = keys::list(&core(&app), of_user).await?;
    let Json(user) = found;
    let page = UserPage {
        next: asked.next(&path_of(&user_id), keys.next),
        asked,
        frame: admin.user.frame("User", PEOPLE),
        is_self: user.user_id == admin.user.caller.user_id,
        keys: keys.keys,
        plans: Plan::ALL,
        windows: BudgetWindow::ALL,
        change_id: ids::operator_action_id(),
        now: app.clock.now(),
        user,
    };
    admin.user.show(&page)
}

/// `GET /console/admin/users/{user_id}/keys.csv`: returns all keys of a user and a filter as a file.
pub(super) async fn download_keys(
    State(app): State<App>,
    admin: ConsoleAdmin,
    Path(user_id): Path<String>,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, ["active"], "after")?;
    let mut of_user = asked.query_of_all();
    of_user.set("user_id", user_id);
    keys::list_keys(core(&app), admin.caller(), preferring_csv(), of_user).await
}

/// `POST /console/admin/users/{user_id}/disable`
pub(super) async fn disable_user(
    State(app): State<App>,
    Path(user_id): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&user_id);
    let is_self = user_id == admin.user.caller.user_id;
    let disabled = async {
        if is_self {
            let why = "You cannot disable your own user here.";
            return Err(ApiError::invalid_request("user_id", why));
        }
        users::disable_user(core(&app), admin.caller(), Path(user_id)).await
    };
    let done = "The user is disabled: weir rejects their requests.";
    admin.done(&path, disabled.await, done)
}

/// `POST /console/admin/users/{user_id}/enable`
pub(super) async fn enable_user(
    State(app): State<App>,
    Path(user_id): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&user_id);
    let enabled = users::enable_user(core(&app), admin.caller(), Path(user_id));
    admin.done(&path, enabled.await, "The user is enabled.")
}

/// `POST /console/admin/users/{user_id}/credits`: adds or removes bought credits, for a reason.
pub(super) async fn change_credits(
    State(app): State<App>,
    Path(user_id): Path<String>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&user_id);
    let changed = async {
        let credits = fields.text("credits").parse();
        let adjustment = CreditAdjustment {
            credits: credits.map_err(|wanted| {
                ApiError::invalid_request("credits", format!("Credits: enter {wanted}."))
            })?,
            pool: Pool::TopUp,
            reason: fields.text("reason").to_owned(),
            id: fields.filled("id").map(str::to_owned),
        };
        let body = SmallBody(adjustment);
        users::adjust(core(&app), admin.caller(), Path(user_id), body).await
    };
    admin.done(&path, changed.await, "The credits are changed.")
}

/// `POST /console/admin/users/{user_id}/plan`: puts a user on a plan for a month.
pub(super) async fn set_plan(
    State(app): State<App>,
    Path(user_id): Path<String>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&user_id);
    let changed = async {
        let plan = fields.text("plan").parse();
        let plan = plan.map_err(|_| ApiError::invalid_request("plan", "Choose a plan."))?;
        let body = SmallBody(PlanChange { plan });
        users::set_plan(core(&app), admin.caller(), Path(user_id), body).await
    };
    let done = "The user is on the plan for a month from now.";
    admin.done(&path, changed.await, done)
}

/// `POST /console/admin/users/{user_id}/budget`: replaces a user's budgets by one, or by none.
pub(super) async fn set_budget(
    State(app): State<App>,
    Path(user_id): Path<String>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&user_id);
    let changed = async {
        let budgets = fields.budget()?.read()?;
        let body = SmallBody(BudgetChange { budgets });
        users::set_budgets(core(&app), admin.caller(), Path(user_id), body).await
    };
    admin.done(&path, changed.await, "The budget is changed.")
}

/// `POST /console/admin/users/{user_id}/administrator`: makes a user an administrator, or an ordinary user.
pub(super) async fn set_administrator(
    State(app): State<App>,
    Path(user_id): Path<String>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let path = path_of(&user_id);
    let is_self = user_id == admin.user.caller.user_id;
    let (core, caller) = (core(&app), admin.caller());
    let (changed, done) = match fields.text("administrator") {
        "true" => (
            users::grant_admin(core, caller, Path(user_id)).await,
            "The user is an administrator.",
        ),
        _ if is_self => {
            let why = "You cannot end your own role as an administrator here.";
            (Err(ApiError::invalid_request("user_id", why)), "")
        }
        _ => (
            users::revoke_admin(core, caller, Path(user_id)).await,
            "The user is no longer an administrator.",
        ),
    };
    admin.done(&path, changed, done)
}

/// `POST /console/admin/users/{user_id}/keys/{key_id}/revoke`
pub(super) async fn revoke_key(
    State(app): State<App>,
    Path((user_id, key_id)): Path<(String, String)>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let revoked = weir_identity::revoke(&app, &user_id, &key_id, admin.actor());
    let done = "The key is revoked: every node rejects it.";
    admin.done(&path_of(&user_id), revoked.await, done)
}

fn path_of(user_id: &str) -> String {
    format!("{}/{}", PEOPLE.path, format::segment(user_id))
}
