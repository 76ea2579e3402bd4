//! `POST /billing/redeem`.
//!
//! The endpoint requires web authentication, as all endpoints of `/billing` do that change an account: checkout,
//! top-up, portal and auto top-up. An API key may read balances; a leaked or restricted key must not change its owner's
//! account, nor use up the owner's attempts.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::roles::Permission;
use weir_identity::{IdentityParts, WebCaller, handlers};
use weir_ledger::Credits;
use weir_request::json::from_json;
use weir_request::request::{BodyReader, JsonBody};

use super::{VoucherParts, redeem};

/// Returns the endpoints of vouchers.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    VoucherParts: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new().row(Access::Web(Permission::Pay), handlers!(redeem_voucher))
}

/// The body of `POST /billing/redeem`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RedeemRequest {
    /// The voucher's code. Case, spaces and hyphens do not matter.
    #[serde(default)]
    #[schema(
        value_type = String,
        required = true,
        pattern = "^([ -]*[0-9A-TV-Za-tv-z]){25}[ -]*$",
        example = "01234-56789-ABCDE-FGHJK-MNPQR"
    )]
    code: Value,
}

/// A redeemed voucher.
#[derive(Serialize, ToSchema)]
pub struct RedeemedVoucher {
    /// The voucher's id, which the statement also names.
    voucher_id: String,
    /// The credits that weir added to the top-up balance. If the account owed credits, they repay those first.
    #[schema(value_type = f64)]
    credits: Credits,
    /// The time of the redemption.
    redeemed_at: String,
}

/// `POST /billing/redeem`: redeems a voucher's code for top-up credits.
#[utoipa::path(
    post, path = "/billing/redeem", tag = "billing", operation_id = "redeem_voucher",
    request_body = RedeemRequest,
    responses(
        (status = 200, body = RedeemedVoucher),
        (status = 404, description = "`UNKNOWN_VOUCHER`: no voucher has this code."),
        (status = 409, description = "`VOUCHER_ALREADY_REDEEMED`, `VOUCHER_USED_UP`, `VOUCHER_EXPIRED`, `VOUCHER_REVOKED`, `NOT_POSSIBLE`: the voucher gives this account nothing more."),
        (status = 429, description = "`TOO_MANY_GUESSES`: ten unknown codes within an hour; also `RATE_LIMITED`, `LOCKED_OUT`."),
    ),
)]
pub async fn redeem_voucher(
    State(parts): State<VoucherParts>,
    caller: WebCaller,
    body: JsonBody,
) -> Result<Json<RedeemedVoucher>, ApiError> {
    let asked: RedeemRequest = from_json(&body.bytes)?;
    let code = asked.code.as_str().unwrap_or_default();
    let redeemed = redeem(&parts, (&caller.account.0, &caller.user_id), code).await?;
    Ok(Json(RedeemedVoucher {
        voucher_id: redeemed.voucher_id,
        credits: redeemed.credits,
        redeemed_at: redeemed.redeemed_at.iso(),
    }))
}
