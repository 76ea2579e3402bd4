//! `/billing/auto-topup`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::WebCaller;
use weir_ledger::Credits;
use weir_payments::Payments;
use weir_payments::auto_top_up::preferences::{self, AutoTopUp, PreferenceChange};
use weir_request::json::from_json;
use weir_request::request::JsonBody;
use weir_request::schemas;

/// The body of `PUT /billing/auto-topup`. Absent fields keep their values.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AutoTopUpRequest {
    /// Whether weir buys credits automatically. Default: false.
    enabled: Option<bool>,
    /// The tier that weir buys.
    #[schema(value_type = Option<schemas::Tier>)]
    tier: Option<String>,
    /// weir buys below this balance. Default: a fifth of the plan's monthly credits, at most 500.
    #[schema(value_type = Option<f64>, exclusive_minimum = 0, maximum = 1_000_000, multiple_of = 0.000001)]
    threshold: Option<Credits>,
}

/// `GET /billing/auto-topup`: the caller's preferences, and the last charge.
#[utoipa::path(
    get, path = "/billing/auto-topup", tag = "billing",
    responses((status = 200, body = AutoTopUp)),
)]
pub async fn get_auto_top_up(
    State(payments): State<Payments>,
    caller: WebCaller,
) -> Result<Json<AutoTopUp>, ApiError> {
    let shown = preferences::show(&payments, &caller.account.0).await;
    shown.map(Json)
}

/// `PUT /billing/auto-topup`: turns automatic purchases of credits on or off.
#[utoipa::path(
    put, path = "/billing/auto-topup", tag = "billing",
    request_body = AutoTopUpRequest,
    responses(
        (status = 200, body = AutoTopUp),
        (status = 400, description = "`INVALID_TIER`: there is no such tier."),
        (status = 409, description = "`NO_PAYMENT_CUSTOMER`: there is no card to charge yet."),
    ),
)]
pub async fn put_auto_top_up(
    State(payments): State<Payments>,
    caller: WebCaller,
    body: JsonBody,
) -> Result<Json<AutoTopUp>, ApiError> {
    let AutoTopUpRequest {
        enabled,
        tier,
        threshold,
    } = from_json(&body.bytes)?;
    let change = PreferenceChange {
        enabled,
        tier,
        threshold,
    };
    let changed = preferences::change(&payments, &caller.account.0, change).await;
    changed.map(Json)
}
