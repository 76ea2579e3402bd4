//! `/billing/checkout`, `/billing/topup` and `/billing/portal`: where users are sent to pay.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::checkout::CheckoutError;
use super::offers::Item;
use super::terms::ProcessorError;
use crate::app::App;
use crate::error::ApiError;
use crate::identity::WebCaller;
use crate::json::from_json;
use crate::request::JsonBody;

/// When to ask again where the processor does not say.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The body of `POST /billing/checkout`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanRequest {
    #[serde(default)]
    plan: Value,
}

/// The body of `POST /billing/topup`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TierRequest {
    #[serde(default)]
    tier: Value,
}

/// `POST /billing/checkout`: where the caller pays for a plan.
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
    Ok(Json(json!({ "checkout_url": url })))
}

/// `POST /billing/topup`: where the caller pays for credits that do not lapse.
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
    Ok(Json(json!({ "checkout_url": url })))
}

/// `POST /billing/portal`: where the caller manages plan, cards and invoices.
pub async fn create_portal(
    State(app): State<App>,
    caller: WebCaller,
) -> Result<Json<Value>, ApiError> {
    let url = app.payments.portal(&caller.user_id).await?;
    Ok(Json(json!({ "portal_url": url })))
}

/// Where a user pays for the plan of a name.
pub async fn plan_url(app: &App, user_id: &str, name: &str) -> Result<String, ApiError> {
    let item = name.parse().ok().map(Item::Plan);
    let not_sold = invalid("INVALID_PLAN", "plan", "The plan is `guru` or `pro`.");
    send_to_pay(app, user_id, item, not_sold).await
}

/// Where a user pays for the credits of a tier's name.
pub async fn tier_url(app: &App, user_id: &str, name: &str) -> Result<String, ApiError> {
    let item = name.parse().ok().map(Item::TopUp);
    let message = "The tier is `small`, `medium` or `large`.";
    send_to_pay(app, user_id, item, invalid("INVALID_TIER", "tier", message)).await
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

fn invalid(code: &'static str, param: &str, message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, code, message).with_param(param)
}

impl From<CheckoutError> for ApiError {
    fn from(error: CheckoutError) -> Self {
        let unavailable = |message| {
            let code = "PAYMENTS_UNAVAILABLE";
            Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
        };
        match error {
            CheckoutError::AlreadySubscribed => Self::new(
                StatusCode::CONFLICT,
                "ALREADY_SUBSCRIBED",
                "You have a plan; change or cancel it in the portal: POST /billing/portal.",
            )
            .with_no_retry(),
            CheckoutError::Replaced => Self::new(
                StatusCode::CONFLICT,
                "CHECKOUT_REPLACED",
                "You have asked for another page to pay on meanwhile; use that one, or ask again.",
            ),
            CheckoutError::NoCustomer => Self::new(
                StatusCode::NOT_FOUND,
                "NO_PAYMENT_CUSTOMER",
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
