//! `/billing/checkout`, `/billing/topup` and `/billing/portal`: where users are sent to pay.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};

use super::checkout::CheckoutError;
use super::offers::Item;
use super::terms::ProcessorError;
use crate::app::App;
use crate::identity::WebCaller;
use crate::json::from_json;
use crate::request::JsonBody;
use crate::schemas;

/// When to ask again where the processor does not say.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The body of `POST /billing/checkout`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PlanRequest {
    #[serde(default)]
    #[schema(value_type = schemas::PaidPlan, required = true)]
    plan: Value,
}

/// The body of `POST /billing/topup`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TierRequest {
    #[serde(default)]
    #[schema(value_type = schemas::Tier, required = true)]
    tier: Value,
}

/// Where somebody pays.
#[derive(Serialize, ToSchema)]
struct CheckoutPage {
    /// The page's URL.
    checkout_url: String,
}

/// Where somebody manages what they pay for.
#[derive(Serialize, ToSchema)]
struct PortalPage {
    /// The page's URL.
    portal_url: String,
}

/// `POST /billing/checkout`: where the caller pays for a plan.
#[utoipa::path(
    post, path = "/billing/checkout", tag = "billing", security(("web" = [])),
    request_body = PlanRequest,
    responses(
        (status = 200, body = CheckoutPage),
        (status = 400, description = "`INVALID_PLAN`: there is no such plan to buy."),
        (status = 409, description = "`ALREADY_SUBSCRIBED`, `CHECKOUT_REPLACED`: you have a plan, or have asked for another page meanwhile."),
        (status = 503, description = "`PAYMENTS_UNAVAILABLE`: nothing is sold here, or the processor does not serve now."),
    ),
)]
pub async fn create_checkout(
    State(app): State<App>,
    caller: WebCaller,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let asked: PlanRequest = from_json(&body.bytes)?;
    let url = plan_url(
        &app,
        &caller.user_id,
        asked.plan.as_str().unwrap_or_default(),
    )
    .await?;
    Ok(Json(json!(CheckoutPage { checkout_url: url })))
}

/// `POST /billing/topup`: where the caller pays for credits that do not lapse.
#[utoipa::path(
    post, path = "/billing/topup", tag = "billing", security(("web" = [])),
    request_body = TierRequest,
    responses(
        (status = 200, body = CheckoutPage),
        (status = 400, description = "`INVALID_TIER`: there is no such tier."),
        (status = 409, description = "`CHECKOUT_REPLACED`: you have asked for another page meanwhile."),
        (status = 503, description = "`PAYMENTS_UNAVAILABLE`: nothing is sold here, or the processor does not serve now."),
    ),
)]
pub async fn create_top_up(
    State(app): State<App>,
    caller: WebCaller,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let asked: TierRequest = from_json(&body.bytes)?;
    let url = tier_url(
        &app,
        &caller.user_id,
        asked.tier.as_str().unwrap_or_default(),
    )
    .await?;
    Ok(Json(json!(CheckoutPage { checkout_url: url })))
}

/// `POST /billing/portal`: where the caller manages plan, cards and invoices.
#[utoipa::path(
    post, path = "/billing/portal", tag = "billing", security(("web" = [])),
    responses(
        (status = 200, body = PortalPage),
        (status = 404, description = "`NO_PAYMENT_CUSTOMER`: you have not bought anything yet."),
        (status = 503, description = "`PAYMENTS_UNAVAILABLE`: nothing is sold here, or the processor does not serve now."),
    ),
)]
pub async fn create_portal(
    State(app): State<App>,
    caller: WebCaller,
) -> Result<Json<Value>, ApiError> {
    let portal_url = app.payments.portal(&caller.user_id).await?;
    Ok(Json(json!(PortalPage { portal_url })))
}

/// Where a user pays for the plan of a name.
pub async fn plan_url(app: &App, user_id: &str, name: &str) -> Result<String, ApiError> {
    let item = name.parse().ok().map(Item::Plan);
    let not_sold = invalid(
        ErrorCode::InvalidPlan,
        "plan",
        "The plan is `guru` or `pro`.",
    );
    send_to_pay(app, user_id, item, not_sold).await
}

/// Where a user pays for the credits of a tier's name.
pub async fn tier_url(app: &App, user_id: &str, name: &str) -> Result<String, ApiError> {
    let item = name.parse().ok().map(Item::TopUp);
    let message = "The tier is `small`, `medium` or `large`.";
    send_to_pay(
        app,
        user_id,
        item,
        invalid(ErrorCode::InvalidTier, "tier", message),
    )
    .await
}

async fn send_to_pay(
    app: &App,
    user_id: &str,
    item: Option<Item>,
    not_sold: ApiError,
) -> Result<String, ApiError> {
    let offer = item.and_then(|item| Some((item, app.payments.settings.offer(item)?)));
    let (item, offer) = offer.ok_or(not_sold)?;
    let now = app.ledger.now();
    Ok(app.payments.checkout(user_id, item, &offer, now).await?)
}

fn invalid(code: ErrorCode, param: &str, message: &str) -> ApiError {
    ApiError::new(code, message).with_param(param)
}

impl From<CheckoutError> for ApiError {
    fn from(error: CheckoutError) -> Self {
        let unavailable = |message| {
            let code = ErrorCode::PaymentsUnavailable;
            Self::new(code, message)
        };
        match error {
            CheckoutError::AlreadySubscribed => Self::new(
                ErrorCode::AlreadySubscribed,
                "You have a plan; change or cancel it in the portal: POST /billing/portal.",
            )
            .with_no_retry(),
            CheckoutError::Replaced => Self::new(
                ErrorCode::CheckoutReplaced,
                "You have asked for another page to pay on meanwhile; use that one, or ask again.",
            ),
            CheckoutError::NoCustomer => Self::new(
                ErrorCode::NoPaymentCustomer,
                "You have not bought anything yet; begin with POST /billing/checkout or /billing/topup.",
            ),
            CheckoutError::Database(error) => Self::of_database(&error, "sending a user to pay"),
            CheckoutError::Processor(ProcessorError::NotConfigured) => {
                unavailable("Nothing is sold here.").with_no_retry()
            }
            CheckoutError::Processor(error) => {
                tracing::error!(%error, "sending a user to pay");
                let wanted = match &error {
                    ProcessorError::Unavailable { retry_after, .. } => *retry_after,
                    _ => None,
                };
                unavailable("The payment processor does not serve now; try again.")
                    .with_retry_after(wanted.unwrap_or(RETRY_AFTER))
            }
        }
    }
}
