//! `/billing/checkout`, `/billing/topup` and `/billing/portal`: pages of the payment processor.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::WebCaller;
use weir_payments::Payments;
use weir_request::json::from_json;
use weir_request::request::JsonBody;
use weir_request::schemas;

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

/// A checkout page.
#[derive(Serialize, ToSchema)]
struct CheckoutPage {
    /// The page's URL.
    checkout_url: String,
}

/// A page to manage a plan.
#[derive(Serialize, ToSchema)]
struct PortalPage {
    /// The page's URL.
    portal_url: String,
}

/// `POST /billing/checkout`: returns the page on which the caller pays for a plan.
#[utoipa::path(
    post, path = "/billing/checkout", tag = "billing",
    request_body = PlanRequest,
    responses(
        (status = 200, body = CheckoutPage),
        (status = 400, description = "`INVALID_PLAN`: there is no such plan to buy."),
        (status = 409, description = "`ALREADY_SUBSCRIBED`, `CHECKOUT_REPLACED`: you have a plan, or have asked for another page meanwhile."),
        (status = 503, description = "`PAYMENTS_UNAVAILABLE`: nothing is sold here, or the processor does not serve now."),
    ),
)]
pub async fn create_checkout(
    State(payments): State<Payments>,
    caller: WebCaller,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let asked: PlanRequest = from_json(&body.bytes)?;
    let plan = asked.plan.as_str().unwrap_or_default();
    let url = payments.plan_url(&caller.account.0, plan, None).await?;
    Ok(Json(json!(CheckoutPage { checkout_url: url })))
}

/// `POST /billing/topup`: returns the page on which the caller pays for credits that do not expire.
#[utoipa::path(
    post, path = "/billing/topup", tag = "billing",
    request_body = TierRequest,
    responses(
        (status = 200, body = CheckoutPage),
        (status = 400, description = "`INVALID_TIER`: there is no such tier."),
        (status = 409, description = "`CHECKOUT_REPLACED`: you have asked for another page meanwhile."),
        (status = 503, description = "`PAYMENTS_UNAVAILABLE`: nothing is sold here, or the processor does not serve now."),
    ),
)]
pub async fn create_top_up(
    State(payments): State<Payments>,
    caller: WebCaller,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let asked: TierRequest = from_json(&body.bytes)?;
    let tier = asked.tier.as_str().unwrap_or_default();
    let url = payments.tier_url(&caller.account.0, tier, None).await?;
    Ok(Json(json!(CheckoutPage { checkout_url: url })))
}

/// `POST /billing/portal`: returns the page on which the caller manages plan, cards and invoices.
#[utoipa::path(
    post, path = "/billing/portal", tag = "billing",
    responses(
        (status = 200, body = PortalPage),
        (status = 404, description = "`NO_PAYMENT_CUSTOMER`: you have not bought anything yet."),
        (status = 503, description = "`PAYMENTS_UNAVAILABLE`: nothing is sold here, or the processor does not serve now."),
    ),
)]
pub async fn create_portal(
    State(payments): State<Payments>,
    caller: WebCaller,
) -> Result<Json<Value>, ApiError> {
    let portal_url = payments.portal(&caller.account.0, None).await?;
    Ok(Json(json!(PortalPage { portal_url })))
}
