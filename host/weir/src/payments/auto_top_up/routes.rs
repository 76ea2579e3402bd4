//! `/billing/auto-topup`.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{AccountId, Action, Credits, LedgerError, Plan, Refusal};

use super::store::{self, Past, Wish};
use super::{CREDIT_TIMEOUT, MOST_A_DAY, default_threshold};
use crate::app::App;
use crate::identity::WebCaller;
use crate::json::from_json;
use crate::payments::offers::Tier;
use crate::request::JsonBody;
use crate::schemas;

/// The most that may be few.
const MAX_THRESHOLD: Credits = Credits::whole(1_000_000);

/// The body of `PUT /billing/auto-topup`. What is not there stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AutoTopUpRequest)]
pub struct WishRequest {
    /// Whether credits are bought. At first, they are not.
    pub enabled: Option<bool>,
    /// Which ones.
    #[schema(value_type = Option<schemas::Tier>)]
    pub tier: Option<String>,
    /// Below how many credits they are. At first, a fifth of the plan's monthly credits, at most 500.
    #[schema(value_type = Option<f64>, exclusive_minimum = 0, maximum = 1_000_000, multiple_of = 0.000001)]
    pub threshold: Option<Credits>,
}

/// What a user wants, and what came of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct AutoTopUp {
    /// Whether credits are bought.
    pub enabled: bool,
    /// `small`, `medium` or `large`.
    pub tier: &'static str,
    /// Below how many credits they are.
    #[schema(value_type = f64)]
    pub threshold: Credits,
    /// How many more may be bought within 24 hours.
    pub charges_left_today: i64,
    /// Until when nothing is bought, since the last charge has failed.
    pub cooldown_until: Option<String>,
    /// The last charge.
    pub last_charge: Option<Charge>,
}

/// A charge.
#[derive(Debug, Serialize, ToSchema)]
pub struct Charge {
    /// What was to be bought.
    pub tier: String,
    /// When it was begun.
    pub created_at: String,
    /// `succeeded`, `failed`, `abandoned`, or `open` while it is not known what becomes of it.
    pub outcome: String,
    /// The processor's code for why it failed.
    pub error: Option<String>,
}

/// `GET /billing/auto-topup`: what the caller wants, and what came of it.
#[utoipa::path(
    get, path = "/billing/auto-topup", tag = "billing", security(("web" = [])),
    responses((status = 200, body = AutoTopUp)),
)]
pub async fn get_auto_top_up(
    State(app): State<App>,
    caller: WebCaller,
) -> Result<Json<AutoTopUp>, ApiError> {
    show(&app, &caller.user_id).await.map(Json)
}

/// `PUT /billing/auto-topup`: has credits be bought when few are left, or no more.
#[utoipa::path(
    put, path = "/billing/auto-topup", tag = "billing", security(("web" = [])),
    request_body = WishRequest,
    responses(
        (status = 200, body = AutoTopUp),
        (status = 400, description = "`INVALID_TIER`: there is no such tier."),
        (status = 409, description = "`NO_PAYMENT_CUSTOMER`: there is no card to charge yet."),
    ),
)]
pub async fn put_auto_top_up(
    State(app): State<App>,
    caller: WebCaller,
    body: JsonBody,
) -> Result<Json<AutoTopUp>, ApiError> {
    let request: WishRequest = from_json(&body.bytes)?;
    change(&app, &caller.user_id, request).await.map(Json)
}

/// Has credits be bought for a user when few are left, or no more.
pub async fn change(app: &App, user_id: &str, request: WishRequest) -> Result<AutoTopUp, ApiError> {
    let before = find_wish(app, user_id).await?;
    let tier = match &request.tier {
        Some(name) => name.parse().map_err(|_| {
            ApiError::new(ErrorCode::InvalidTier, "A tier is small, medium or large.")
                .with_param("tier")
        })?,
        None => before.as_ref().map_or(Tier::Small, |wish| wish.tier),
    };
    let named = request.threshold;
    let threshold = match named.or(before.as_ref().map(|wish| wish.threshold)) {
        Some(threshold) => threshold,
        None => find_default_threshold(app, user_id).await?,
    };
    if threshold <= Credits::ZERO || threshold > MAX_THRESHOLD {
        return Err(ApiError::invalid_request(
            "threshold",
            format!("A threshold is more than 0 and at most {MAX_THRESHOLD} credits."),
        ));
    }
    let enabled = request
        .enabled
        .unwrap_or(before.as_ref().is_some_and(|wish| wish.enabled));
    let customer = app
        .payments
        .store
        .customer_of(user_id)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for a payment customer"))?;
    if enabled && customer.is_none() {
        return Err(ApiError::new(
            ErrorCode::NoPaymentCustomer,
            "There is no card to charge yet: buy a plan or credits once, then turn auto top-up on.",
        )
        .with_status(StatusCode::CONFLICT));
    }
    let wish = Wish {
        enabled,
        tier,
        threshold,
        cooldown_until: None,
    };
    store::put_wish(&app.database, user_id, &wish, app.ledger.now())
        .await
        .map_err(|error| ApiError::of_database(&error, "keeping what a user wants bought"))?;
    // Who does not want it bought wants to be told all the same.
    let watch = Action::Watch {
        below: Some(threshold),
    };
    let account = AccountId(user_id.to_owned());
    let deadline = Instant::now() + CREDIT_TIMEOUT;
    match app.ledger.submit(&account, watch, deadline).await {
        Ok(_) => {}
        Err(LedgerError::Refused(Refusal::UnknownAccount)) => return Err(ApiError::internal()),
        Err(error) => {
            tracing::error!(%error, "watching an account");
            return Err(ApiError::store_unavailable());
        }
    }
    show(app, user_id).await
}

/// By the plan that the user is on.
async fn find_default_threshold(app: &App, user_id: &str) -> Result<Credits, ApiError> {
    let account = app
        .ledger
        .find_account(&AccountId(user_id.to_owned()))
        .await;
    let account =
        account.map_err(|error| ApiError::of_database(&error, "asked for a user's plan"))?;
    let plan = account.map_or(Plan::Free, |account| account.plan);
    Ok(default_threshold(plan))
}

async fn find_wish(app: &App, user_id: &str) -> Result<Option<Wish>, ApiError> {
    store::find_wish(&app.database, user_id)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked what a user wants bought"))
}

/// What a user wants, and what came of it.
pub async fn show(app: &App, user_id: &str) -> Result<AutoTopUp, ApiError> {
    let now = app.ledger.now();
    // First the charge: a cooldown is there before a charge is noted to have failed.
    let (last, counted) = store::find_past(&app.database, user_id, now)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for charges"))?;
    let wish = match find_wish(app, user_id).await? {
        Some(wish) => wish,
        None => Wish {
            enabled: false,
            tier: Tier::Small,
            threshold: find_default_threshold(app, user_id).await?,
            cooldown_until: None,
        },
    };
    let cooldown_until = wish.cooldown_until.filter(|until| *until > now);
    Ok(AutoTopUp {
        enabled: wish.enabled,
        tier: wish.tier.name(),
        threshold: wish.threshold,
        charges_left_today: (MOST_A_DAY - counted).max(0),
        cooldown_until: cooldown_until.map(|until| until.iso()),
        last_charge: last.map(
            |Past {
                 tier,
                 created_at,
                 outcome,
                 error,
             }| Charge {
                tier,
                created_at: created_at.iso(),
                outcome: outcome.unwrap_or_else(|| "open".to_owned()),
                error,
            },
        ),
    })
}
