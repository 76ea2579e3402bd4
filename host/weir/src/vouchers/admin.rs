//! `/admin/vouchers`: operators make, list and revoke vouchers.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_ledger::Credits;
use weir_storage::clock::Millis;
use weir_storage::database::DatabaseClock;

use super::code::VoucherCode;
use super::store::{self, Voucher};
use super::{NewVoucher, create, revoke};
use crate::app::App;
use crate::identity::admin::AdminCaller;
use crate::node::Core;
use crate::query::{ListQuery, cut};
use crate::schemas::parameters::Limit;
use crate::small_body::SmallBody;

/// Credits of a voucher at most, for each account.
const MAX_CREDITS: Credits = Credits::whole(1_000_000);

/// Uses of a voucher at most.
const MAX_USES: i64 = 1_000_000;

/// Days that a voucher can be redeemed, unless set and at most.
pub const DAYS: i64 = 90;
const MAX_DAYS: i64 = 366;

/// Characters of a voucher's name.
const NAME_CHARACTERS: usize = 200;

/// The body that makes a voucher.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VoucherRequest {
    /// Top-up credits for each account that redeems it.
    #[schema(value_type = f64, exclusive_minimum = 0, maximum = 1_000_000, multiple_of = 0.000001)]
    pub credits: Credits,
    /// How many accounts may redeem it.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1_000_000, default = 1)]
    pub uses: i64,
    /// For how many days it can be redeemed.
    #[serde(default = "days")]
    #[schema(minimum = 1, maximum = 366, default = 90)]
    pub expires_in_days: i64,
    /// What operators call it.
    #[serde(default)]
    #[schema(max_length = 200, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$")]
    pub name: String,
}

fn one() -> i64 {
    1
}

fn days() -> i64 {
    DAYS
}

/// A voucher, without its code.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct VoucherItem {
    /// The voucher's id, which is no secret.
    pub voucher_id: String,
    /// What operators call it.
    pub name: String,
    /// Top-up credits for each account that redeems it.
    #[schema(value_type = f64)]
    pub credits: Credits,
    /// How many accounts may redeem it.
    pub uses: i64,
    /// How many accounts have redeemed it.
    pub redeemed: i64,
    /// `active`, `used_up`, `expired` or `revoked`.
    pub state: String,
    /// When it was made.
    pub created_at: String,
    /// The operator who made it.
    pub created_by: String,
    /// From when on it cannot be redeemed.
    pub expires_at: String,
}

/// A voucher that was just made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CreatedVoucher {
    /// The voucher's id, which is no secret.
    pub voucher_id: String,
    /// The code, here and nowhere else.
    pub code: String,
    /// Top-up credits for each account that redeems it.
    #[schema(value_type = f64)]
    pub credits: Credits,
    /// How many accounts may redeem it.
    pub uses: i64,
    /// From when on it cannot be redeemed.
    pub expires_at: String,
}

impl CreatedVoucher {
    /// A voucher and its code, as they are shown once.
    pub fn new(voucher: Voucher, code: &VoucherCode) -> Self {
        Self {
            voucher_id: voucher.id,
            code: code.expose(),
            credits: voucher.credits,
            uses: voucher.uses,
            expires_at: voucher.expires_at.iso(),
        }
    }
}

/// A part of all vouchers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct VoucherList {
    /// The newest first.
    pub vouchers: Vec<VoucherItem>,
    /// The `before` of the next part; null if this is the last.
    pub next: Option<String>,
}

impl VoucherRequest {
    /// The voucher that is to be made.
    ///
    /// # Errors
    ///
    /// 400 with the field that is wrong.
    pub fn read(self) -> Result<NewVoucher, ApiError> {
        if self.credits <= Credits::ZERO || self.credits > MAX_CREDITS {
            let what = format!("It is more than 0 and at most {MAX_CREDITS}.");
            return Err(ApiError::invalid_request("credits", what));
        }
        for (field, value, most) in [
            ("uses", self.uses, MAX_USES),
            ("expires_in_days", self.expires_in_days, MAX_DAYS),
        ] {
            if !(1..=most).contains(&value) {
                let what = format!("It is a number from 1 to {most}.");
                return Err(ApiError::invalid_request(field, what));
            }
        }
        let is_long = self.name.chars().count() > NAME_CHARACTERS;
        if is_long || self.name.contains(char::is_control) {
            let what = format!(
                "A name has at most {NAME_CHARACTERS} characters and no control characters."
            );
            return Err(ApiError::invalid_request("name", what));
        }
        Ok(NewVoucher {
            name: self.name,
            credits: self.credits,
            uses: self.uses,
            days: self.expires_in_days,
        })
    }
}

/// `POST /admin/vouchers`: makes a voucher. The response alone has its code.
#[utoipa::path(
    post, path = "/admin/vouchers", tag = "administration", security(("admin" = [])),
    request_body = VoucherRequest,
    responses(
        (status = 201, description = "The voucher, whose `code` is in this response only.", body = CreatedVoucher),
    ),
)]
pub async fn create_voucher(
    State(app): State<App>,
    AdminCaller { actor }: AdminCaller,
    SmallBody(request): SmallBody<VoucherRequest>,
) -> Result<(StatusCode, Json<CreatedVoucher>), ApiError> {
    let (new, now) = (request.read()?, app.ledger.now());
    let (voucher, code) = create(&app, &app.key_peppers, new, now, &actor).await?;
    let created = CreatedVoucher::new(voucher, &code);
    Ok((StatusCode::CREATED, Json(created)))
}

/// `GET /admin/vouchers`: all vouchers, the newest first, without their codes.
#[utoipa::path(
    get, path = "/admin/vouchers", tag = "administration", security(("admin" = [])),
    params(
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the part before: what follows is older.", nullable = false),
    ),
    responses((status = 200, body = VoucherList)),
)]
pub async fn list_vouchers(
    State(core): State<Core>,
    _: AdminCaller,
    mut query: ListQuery,
) -> Result<Json<VoucherList>, ApiError> {
    let limit = query.limit()?;
    let before = query.text("before")?;
    query.finish()?;
    if before.as_deref().is_some_and(|id| !is_id(id)) {
        let what = "It is the `next` of the part before.";
        return Err(ApiError::invalid_request("before", what));
    }
    let now = now(&core).await?;
    let mut vouchers = store::list(&core.database, before.as_deref(), limit + 1)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for vouchers"))?;
    let next = cut(&mut vouchers, limit, |voucher| voucher.id.clone());
    let vouchers = vouchers.into_iter().map(|voucher| item(voucher, now));
    Ok(Json(VoucherList {
        vouchers: vouchers.collect(),
        next,
    }))
}

/// `DELETE /admin/vouchers/{voucher_id}`: revokes a voucher. Credits that were redeemed stay.
#[utoipa::path(
    delete, path = "/admin/vouchers/{voucher_id}", tag = "administration", security(("admin" = [])),
    params(("voucher_id" = String, Path, description = "The voucher's id.")),
    responses(
        (status = 204, description = "It is revoked."),
        (status = 404, description = "`NOT_FOUND`: there is no such voucher."),
    ),
)]
pub async fn revoke_voucher(
    State(core): State<Core>,
    AdminCaller { actor }: AdminCaller,
    Path(voucher_id): Path<String>,
) -> Result<StatusCode, ApiError> {
    // PostgreSQL would not take what no id has in it.
    let id = match is_id(&voucher_id) {
        true => &*voucher_id,
        false => "",
    };
    revoke(&core, id, now(&core).await?, &actor).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn is_id(text: &str) -> bool {
    text.strip_prefix("vou_")
        .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Vouchers expire by the database's clock, whatever this machine's shows.
async fn now(core: &Core) -> Result<Millis, ApiError> {
    let clock = DatabaseClock::start(core.database.clone(), core.clock.clone()).await;
    let clock = clock.map_err(|error| ApiError::of_database(&error, "asked for the time"))?;
    Ok(clock.now())
}

/// A voucher as it is shown.
fn item(voucher: Voucher, now: Millis) -> VoucherItem {
    let state = if voucher.revoked_at.is_some() {
        "revoked"
    } else if voucher.redeemed >= voucher.uses {
        "used_up"
    } else if voucher.expires_at <= now {
        "expired"
    } else {
        "active"
    };
    VoucherItem {
        voucher_id: voucher.id,
        name: voucher.name,
        credits: voucher.credits,
        uses: voucher.uses,
        redeemed: voucher.redeemed,
        state: state.to_owned(),
        created_at: voucher.created_at.iso(),
        created_by: voucher.created_by,
        expires_at: voucher.expires_at.iso(),
    }
}
