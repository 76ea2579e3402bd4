//! `/admin/users`: users, their plans, credits, budgets and rights.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use futures_util::FutureExt as _;
use http::HeaderMap;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use weir_accounts::billing;
use weir_accounts::billing::budgets::{self, BudgetItem, RequestedBudgets};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::AdminCaller;
use weir_identity::directory::{self, UserFilter, UserRecord};
use weir_identity::filter_options::FilterOptions;
use weir_identity::store;
use weir_ledger::{
    Account, AccountId, Action, Adjust, Budget, ChangeDirection, Credits, Grant, LedgerError,
    LedgerRefusal, LedgerStore, Operation, OperationId, Period, Plan, Pool, SetBudgets, TopUp,
};
use weir_payments::effects::store as effects_store;
use weir_request::audit::AuditEvent;
use weir_request::csv_export::{CsvTable, ListPage};
use weir_request::node::Core;
use weir_request::query::{ListQuery, cut};
use weir_request::schemas;
use weir_request::schemas::parameters::PageAfter;
use weir_request::small_body::SmallBody;
use weir_storage::clock::Millis;
use weir_storage::database::DatabaseClock;
use weir_storage::ids;

/// Characters of an operator's id for a top-up or an adjustment.
const ID_CHARACTERS: usize = 200;

/// Characters of an operator's reason for an adjustment.
const REASON_CHARACTERS: usize = 500;

/// A user.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct UserItem {
    /// The user's id.
    pub user_id: String,
    /// `person`, `organisation` or `service` (a service account).
    #[serde(default)]
    pub kind: String,
    /// Display name, if there is one.
    #[serde(default)]
    pub name: Option<String>,
    /// E-mail address, verified by the issuer.
    #[serde(default)]
    pub email: Option<String>,
    /// The issuer whose tokens name the user; null for a user with API keys only.
    pub issuer: Option<String>,
    /// The user's name at that issuer.
    pub subject: Option<String>,
    /// `free`, `guru` or `pro`.
    pub plan: String,
    /// The time from which the user is an administrator; null for an ordinary user.
    pub admin_since: Option<String>,
    /// The time from which the user is disabled; null for an enabled user.
    pub disabled_at: Option<String>,
    /// The time of the user's erasure; null for other users.
    #[serde(default)]
    pub erased_at: Option<String>,
    /// The time of the user's first request.
    pub created_at: String,
    /// Options of the account for filters, by name.
    #[serde(default)]
    pub filter_options: BTreeMap<String, String>,
    /// The user's credits; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountItem>,
}

/// A user's credits in the current period.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct AccountItem {
    /// The remaining credits of the plan, held ones included.
    #[schema(value_type = f64)]
    pub plan_credits_remaining: Credits,
    /// The remaining bought credits, held ones included.
    #[schema(value_type = f64)]
    pub topup_balance: Credits,
    /// Credits of both kinds that no open request holds.
    #[schema(value_type = f64)]
    pub available_credits: Credits,
    /// Credits that were taken back after the user spent them; the next credits repay them.
    #[serde(default)]
    #[schema(value_type = f64)]
    pub owed_credits: Credits,
    /// The time from which an invoice of the user's subscription is unpaid; null if all are paid.
    #[serde(default)]
    pub payment_failed_at: Option<String>,
    /// The first moment of the cycle.
    pub cycle_start: String,
    /// The first moment after the cycle.
    pub cycle_end: String,
    /// The user's budgets.
    #[serde(default)]
    pub budgets: Vec<BudgetItem>,
}

/// A page of users.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct UserList {
    /// Users, by id.
    pub users: Vec<UserItem>,
    /// The `after` of the next page; null on the last page.
    pub next: Option<String>,
}

/// The body that puts a user on a plan.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanChange {
    /// The plan.
    #[schema(value_type = schemas::PlanSchema)]
    pub plan: Plan,
}

/// The body that gives a user credits.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreditGift {
    /// The number of credits, more than 0.
    #[schema(value_type = f64, exclusive_minimum = 0, maximum = 1_000_000_000, multiple_of = 0.000001)]
    pub credits: Credits,
    /// The gift's permanent id: repeated requests with the same id give the credits once.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub id: Option<String>,
}

/// The body that sets a user's budgets.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetChange {
    /// One budget for each limited window; an empty list removes all limits.
    #[schema(value_type = Vec<schemas::BudgetSchema>, max_items = 5)]
    pub budgets: Vec<Budget>,
}

/// The body that corrects a user's credits.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreditAdjustment {
    /// The credits to add or, if negative, to remove: completely or not at all.
    #[schema(value_type = f64, minimum = -1_000_000_000, maximum = 1_000_000_000, multiple_of = 0.000001)]
    pub credits: SignedCredits,
    /// The pool to change. Bought credits, unless `plan` is given.
    #[serde(default = "bought")]
    #[schema(value_type = schemas::PoolSchema)]
    pub pool: Pool,
    /// The reason, which the user's statement shows.
    #[schema(
        min_length = 1,
        max_length = 500,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub reason: String,
    /// The adjustment's permanent id: repeated requests with the same id adjust the credits once.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub id: Option<String>,
}

fn bought() -> Pool {
    Pool::TopUp
}

/// Credits to add or to remove; in JSON, a negative number removes credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedCredits {
    /// Whether to add or to remove.
    pub way: ChangeDirection,
    /// The number of credits, more than 0.
    pub credits: Credits,
}

impl FromStr for SignedCredits {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (way, digits) = match text.strip_prefix('-') {
            Some(digits) => (ChangeDirection::Take, digits),
            None => (ChangeDirection::Give, text),
        };
        let credits = Credits::parse(digits);
        let credits = credits.filter(|credits| credits.is_in_range() && *credits > Credits::ZERO);
        let credits = credits.ok_or("a number other than 0 with at most 6 decimals")?;
        Ok(Self { way, credits })
    }
}

impl fmt::Display for SignedCredits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.way == ChangeDirection::Take {
            "-"
        } else {
            ""
        };
        write!(formatter, "{sign}{}", self.credits)
    }
}

impl<'a> Deserialize<'a> for SignedCredits {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Box::<RawValue>::deserialize(deserializer)?;
        number.get().parse().map_err(D::Error::custom)
    }
}

impl Serialize for SignedCredits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number: Value = self.to_string().parse().map_err(S::Error::custom)?;
        number.serialize(serializer)
    }
}

/// `GET /admin/users`: all users, optionally filtered by `subject`, `plan`, `admin` and `disabled`.
#[utoipa::path(
    get, path = "/admin/users", tag = "administration",
    params(
        PageAfter,
        ("subject" = Option<String>, Query, description = "Only the user with this name at the issuer.", nullable = false),
        ("plan" = Option<String>, Query, description = "Only users on this plan.", nullable = false, pattern = "^(free|guru|pro)$"),
        ("admin" = Option<bool>, Query, description = "Only administrators, or only ordinary users.", nullable = false),
        ("disabled" = Option<bool>, Query, description = "Only disabled users, or only enabled ones.", nullable = false),
    ),
    responses((status = 200, content((UserList = "application/json"), (String = "text/csv")))),
)]
pub async fn list_users(
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
    file: "users.csv",
    columns: "user_id,kind,name,email,issuer,subject,plan,admin_since,disabled_at,erased_at,created_at",
    position: "after",
};

impl ListPage for UserList {
    type Item = UserItem;

    fn into_items(self) -> (Vec<UserItem>, Option<String>) {
        (self.users, self.next)
    }
}

/// Returns the page of a query.
pub async fn list(core: &Core, mut query: ListQuery) -> Result<UserList, ApiError> {
    let limit = query.limit()?;
    let filter = UserFilter {
        subject: query.text("subject")?,
        plan: query.text("plan")?,
        admin: query.flag("admin")?,
        disabled: query.flag("disabled")?,
        after: query.text("after")?,
    };
    query.finish()?;
    if let Some(plan) = &filter.plan {
        plan.parse::<Plan>()
            .map_err(|_| ApiError::invalid_request("plan", "A plan is free, guru or pro."))?;
    }
    let mut users = directory::list_users(&core.database, &filter, limit + 1)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for users"))?;
    let next = cut(&mut users, limit, |user| user.id.clone());
    let users = users.into_iter().map(item).collect();
    Ok(UserList { users, next })
}

/// `GET /admin/users/{user_id}`: one user, with their credits.
#[utoipa::path(
    get, path = "/admin/users/{user_id}", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
    ),
)]
pub async fn get_user(
    State(core): State<Core>,
    _: AdminCaller,
    Path(user_id): Path<String>,
) -> Result<Json<UserItem>, ApiError> {
    find(&core, &user_id).await.map(Json)
}

/// `POST /admin/users/{user_id}/disable`: disables a user. Every node rejects their requests immediately.
#[utoipa::path(
    post, path = "/admin/users/{user_id}/disable", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
    ),
)]
pub async fn disable_user(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
) -> Result<Json<UserItem>, ApiError> {
    let found = weir_identity::users::set_disabled(&core, &user_id, true, &actor).await?;
    changed(&core, &user_id, found).await
}

/// `POST /admin/users/{user_id}/enable`: enables a disabled user again.
#[utoipa::path(
    post, path = "/admin/users/{user_id}/enable", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
        (status = 409, description = "`NOT_POSSIBLE`: the user is erased."),
    ),
)]
pub async fn enable_user(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
) -> Result<Json<UserItem>, ApiError> {
    let found = weir_identity::users::set_disabled(&core, &user_id, false, &actor).await?;
    changed(&core, &user_id, found).await
}

/// `POST /admin/users/{user_id}/grant-admin`: makes a web user an administrator.
#[utoipa::path(
    post, path = "/admin/users/{user_id}/grant-admin", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
    ),
)]
pub async fn grant_admin(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
) -> Result<Json<UserItem>, ApiError> {
    let found = store::grant_admin(&core.database, &user_id, core.clock.now())
        .await
        .map_err(change_failed)?;
    if found {
        let user_id = user_id.clone();
        core.audit
            .record_by(&actor, AuditEvent::AdminGranted { user_id });
    }
    changed(&core, &user_id, found).await
}

/// `POST /admin/users/{user_id}/revoke-admin`: makes an administrator an ordinary user.
#[utoipa::path(
    post, path = "/admin/users/{user_id}/revoke-admin", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
    ),
)]
pub async fn revoke_admin(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
) -> Result<Json<UserItem>, ApiError> {
    let found = store::revoke_admin(&core.database, &user_id)
        .await
        .map_err(change_failed)?;
    if found {
        let user_id = user_id.clone();
        core.audit
            .record_by(&actor, AuditEvent::AdminRevoked { user_id });
    }
    changed(&core, &user_id, found).await
}

/// `POST /admin/users/{user_id}/plan`: puts a user on a plan for a month from now. The plan's rate limit applies
/// immediately.
#[utoipa::path(
    post, path = "/admin/users/{user_id}/plan", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    request_body = PlanChange,
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
        (status = 409, description = "`NOT_POSSIBLE`, `ID_REUSED`: the account's state does not allow the change, or another change used this `id`."),
    ),
)]
pub async fn set_plan(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
    SmallBody(PlanChange { plan }): SmallBody<PlanChange>,
) -> Result<Json<UserItem>, ApiError> {
    grant_month(&core, &user_id, plan).await?;
    let event = AuditEvent::PlanSet {
        user_id: user_id.clone(),
        plan: plan.name(),
    };
    core.audit.record_by(&actor, event);
    changed(&core, &user_id, true).await
}

/// `PUT /admin/users/{user_id}/filter-options`: replaces the options of an account that filters read. They apply to all
/// nodes at once.
#[utoipa::path(
    put, path = "/admin/users/{user_id}/filter-options", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    request_body = FilterOptions,
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
    ),
)]
pub async fn set_filter_options(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
    SmallBody(options): SmallBody<FilterOptions>,
) -> Result<Json<UserItem>, ApiError> {
    let found = weir_identity::users::set_account_filter_options(&core, &user_id, &options).await?;
    if found {
        let user_id = user_id.clone();
        core.audit
            .record_by(&actor, AuditEvent::FilterOptionsSet { user_id });
    }
    changed(&core, &user_id, found).await
}

/// Puts a user on a plan for a month from now.
pub async fn grant_month(core: &Core, user_id: &str, plan: Plan) -> Result<(), ApiError> {
    let now = ledger_time(core).await?;
    let grant = Grant {
        id: OperationId(ids::operator_action_id()),
        plan,
        period: Period::monthly(now, now),
        credits: plan.monthly_credits(),
    };
    let change = commit(core, user_id, Action::Grant(grant));
    weir_identity::users::change_plan(core, user_id, change).await
}

/// `POST /admin/users/{user_id}/top-up`: gives a user credits that do not expire; once for each `id`.
#[utoipa::path(
    post, path = "/admin/users/{user_id}/top-up", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    request_body = CreditGift,
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
        (status = 409, description = "`NOT_POSSIBLE`, `ID_REUSED`: the account's state does not allow the change, or another change used this `id`."),
    ),
)]
pub async fn top_up(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
    SmallBody(CreditGift { credits, id }): SmallBody<CreditGift>,
) -> Result<Json<UserItem>, ApiError> {
    if !credits.is_in_range() || credits <= Credits::ZERO {
        let what = "`credits` must be a positive number with at most 6 decimals.";
        return Err(ApiError::invalid_request("credits", what));
    }
    let gift = match &id {
        None => credits.to_string(),
        Some(id) => format!("{credits} as {id}"),
    };
    let id = operation_id("top_up", id)?;
    let top_up = TopUp {
        id,
        credits,
        within: None,
    };
    commit(&core, &user_id, Action::TopUp(top_up)).await?;
    let event = AuditEvent::ToppedUp {
        user_id: user_id.clone(),
        credits: gift,
    };
    core.audit.record_by(&actor, event);
    changed(&core, &user_id, true).await
}

/// `POST /admin/users/{user_id}/adjust`: adds or removes a user's credits, for a reason; once for each `id`.
#[utoipa::path(
    post, path = "/admin/users/{user_id}/adjust", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    request_body = CreditAdjustment,
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
        (status = 409, description = "`NOT_POSSIBLE`, `ID_REUSED`: the account's state does not allow the change, or another change used this `id`."),
    ),
)]
pub async fn adjust(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
    SmallBody(adjustment): SmallBody<CreditAdjustment>,
) -> Result<Json<UserItem>, ApiError> {
    let CreditAdjustment {
        credits,
        pool,
        reason,
        id,
    } = adjustment;
    require_text("reason", &reason, REASON_CHARACTERS)?;
    let adjust = Adjust {
        id: operation_id("adjust", id)?,
        way: credits.way,
        pool,
        credits: credits.credits,
        reason: reason.clone(),
        actor: actor.as_str().to_owned(),
    };
    if pool == Pool::Plan {
        // The current period's credits, not expired ones.
        commit(&core, &user_id, Action::ResetPeriod).await?;
    }
    commit(&core, &user_id, Action::Adjust(adjust)).await?;
    let of = match pool {
        Pool::Plan => "of the plan",
        Pool::TopUp => "bought",
    };
    let event = AuditEvent::Adjusted {
        user_id: user_id.clone(),
        reason: format!("{credits} {of}: {reason}"),
    };
    core.audit.record_by(&actor, event);
    changed(&core, &user_id, true).await
}

/// `POST /admin/users/{user_id}/budgets`: replaces a user's budgets. A window that stays keeps its count.
#[utoipa::path(
    post, path = "/admin/users/{user_id}/budgets", tag = "administration",
    params(("user_id" = String, Path, description = "The user's id.")),
    request_body = BudgetChange,
    responses(
        (status = 200, body = UserItem),
        (status = 404, description = "`UNKNOWN_USER`: no user has this id."),
        (status = 409, description = "`NOT_POSSIBLE`, `ID_REUSED`: the account's state does not allow the change, or another change used this `id`."),
    ),
)]
pub async fn set_budgets(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(user_id): Path<String>,
    SmallBody(BudgetChange { budgets }): SmallBody<BudgetChange>,
) -> Result<Json<UserItem>, ApiError> {
    let asked = RequestedBudgets {
        budgets: Some(budgets),
        ..RequestedBudgets::default()
    };
    let asked = asked.read()?;
    let named = asked
        .iter()
        .map(|budget| format!("{} a {}", budget.credits, budget.window.name()));
    let event = AuditEvent::BudgetsSet {
        user_id: user_id.clone(),
        budgets: match asked.is_empty() {
            true => "none".to_owned(),
            false => named.collect::<Vec<_>>().join(", "),
        },
    };
    let set = SetBudgets {
        part: None,
        until: None,
        budgets: asked,
        ended: Vec::new(),
    };
    commit(&core, &user_id, Action::SetBudgets(Box::new(set))).await?;
    core.audit.record_by(&actor, event);
    changed(&core, &user_id, true).await
}

/// Returns the id of an operator's change: a new one, or one from the operator's own id. Each kind has its own
/// namespace, so that an operator's id never equals a payment's id or another kind's.
fn operation_id(kind: &str, name: Option<String>) -> Result<OperationId, ApiError> {
    let Some(name) = name else {
        return Ok(OperationId(ids::operator_action_id()));
    };
    require_text("id", &name, ID_CHARACTERS)?;
    Ok(OperationId(format!("{kind}:{name}")))
}

fn require_text(field: &str, text: &str, characters: usize) -> Result<(), ApiError> {
    let fits = (1..=characters).contains(&text.chars().count());
    match fits && !text.contains(char::is_control) {
        true => Ok(()),
        false => {
            let what = format!(
                "The text must have 1 to {characters} characters and no control characters."
            );
            Err(ApiError::invalid_request(field, what))
        }
    }
}

/// Returns the database's time: periods do not depend on this machine's clock.
async fn ledger_time(core: &Core) -> Result<Millis, ApiError> {
    let clock = DatabaseClock::start(core.database.clone(), core.clock.clone());
    let clock = clock.await.map_err(change_failed)?;
    Ok(clock.now())
}

async fn commit(core: &Core, user_id: &str, action: Action) -> Result<(), ApiError> {
    let account = AccountId(user_id.to_owned());
    let operation = Operation {
        account: account.clone(),
        at: ledger_time(core).await?,
        action,
    };
    let store = LedgerStore::new(core.database.clone());
    let outcome = weir_ledger::commit_one(&store, operation).await;
    billing::summary_cache::drop_summary(&core.cache, &account).await;
    match outcome {
        Ok(_) => Ok(()),
        Err(LedgerError::Refused(LedgerRefusal::UnknownAccount)) => Err(unknown_user(user_id)),
        Err(LedgerError::Refused(LedgerRefusal::Conflict)) => {
            Err(ApiError::new(ErrorCode::IdReused, "Another change used this id.").with_param("id"))
        }
        Err(LedgerError::Refused(refusal)) => Err(ApiError::new(
            ErrorCode::NotPossible,
            format!("The account's state does not allow the change: {refusal}."),
        )),
        Err(error) => {
            tracing::error!(%error, "changing an account");
            Err(ApiError::store_unavailable())
        }
    }
}

/// Returns the changed user, in its current state.
async fn changed(core: &Core, user_id: &str, found: bool) -> Result<Json<UserItem>, ApiError> {
    match found {
        true => find(core, user_id).await.map(Json),
        false => Err(unknown_user(user_id)),
    }
}

async fn find(core: &Core, user_id: &str) -> Result<UserItem, ApiError> {
    let failed = |error| ApiError::of_database(&error, "asked for a user");
    let user = directory::find_user(&core.database, user_id)
        .await
        .map_err(failed)?;
    let user = user.ok_or_else(|| unknown_user(user_id))?;
    let account = AccountId(user_id.to_owned());
    let found = LedgerStore::new(core.database.clone())
        .find_account(&account)
        .await
        .map_err(failed)?;
    let payment_failed_at = effects_store::payment_failed_at(&core.database, user_id)
        .await
        .map_err(failed)?;
    let mut account = found.unwrap_or_else(|| Account::new(account, user.created_at));
    account.begin_due_period(core.clock.now());
    let available = account.available();
    Ok(UserItem {
        plan: account.plan.to_string(),
        account: Some(AccountItem {
            plan_credits_remaining: account.balance.plan,
            topup_balance: account.balance.top_up,
            available_credits: available.total(),
            owed_credits: account.owed,
            payment_failed_at: payment_failed_at.map(Millis::iso),
            cycle_start: account.period.start.iso(),
            cycle_end: account.period.end.iso(),
            budgets: budgets::items(account.standings(None, core.clock.now())),
        }),
        ..item(user)
    })
}

fn item(user: UserRecord) -> UserItem {
    UserItem {
        user_id: user.id,
        issuer: user.issuer,
        subject: user.subject,
        kind: user.kind,
        name: user.name,
        email: user.email,
        plan: user.plan,
        admin_since: user.admin_since.map(Millis::iso),
        disabled_at: user.disabled_at.map(Millis::iso),
        erased_at: user.deleted_at.map(Millis::iso),
        created_at: user.created_at.iso(),
        filter_options: user.filter_options.filter_options,
        account: None,
    }
}

fn change_failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "changing a user")
}

pub(super) fn unknown_user(user_id: &str) -> ApiError {
    ApiError::new(
        ErrorCode::UnknownUser,
        format!(
            "User {user_id} does not exist; weir creates users at their first request or their first key."
        ),
    )
    .with_param("user_id")
}
