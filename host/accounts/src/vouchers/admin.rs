//! `/admin/vouchers`: operators create, list and revoke vouchers.

use axum::Json;
use axum::extract::{FromRef, FromRequestParts, Path, State};
use axum::response::Response;
use futures_util::FutureExt as _;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::handlers;
use weir_ledger::Credits;
use weir_request::csv_export::{CsvTable, ListPage};
use weir_request::node::Core;
use weir_request::query::{ListQuery, cut};
use weir_request::schemas::parameters::Limit;
use weir_request::small_body::SmallBody;
use weir_storage::clock::Millis;
use weir_storage::database::DatabaseClock;

use super::code::VoucherCode;
use super::store::{self, Voucher};
use super::{NewVoucher, VoucherParts, create, revoke};

/// Returns the administrators' endpoints of vouchers.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    VoucherParts: FromRef<S>,
    Core: FromRef<S>,
    AdminCaller: FromRequestParts<S, Rejection = ApiError>,
{
    Endpoints::new().row(Access::Admin, handlers!(create_voucher))
}

/// Returns the administrators' endpoints of vouchers that work without a gateway.
pub fn core_endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
    AdminCaller: FromRequestParts<S, Rejection = ApiError>,
{
    Endpoints::new().row(Access::Admin, handlers!(list_vouchers, revoke_voucher))
}

/// Maximum credits of a voucher for each account.
const MAX_CREDITS: Credits = Credits::whole(1_000_000);

/// Maximum uses of a voucher.
const MAX_USES: i64 = 1_000_000;

/// Days until a voucher expires: the default and the maximum.
pub const DAYS: i64 = 90;
const MAX_DAYS: i64 = 366;

/// Maximum characters of a voucher's name.
const NAME_CHARACTERS: usize = 200;

/// The body that creates a voucher.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VoucherRequest {
    /// Top-up credits for each account that redeems it.
    #[schema(value_type = f64, exclusive_minimum = 0, maximum = 1_000_000, multiple_of = 0.000001)]
    pub credits: Credits,
    /// Number of accounts that may redeem the voucher.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1_000_000, default = 1)]
    pub uses: i64,
    /// Days until the voucher expires.
    #[serde(default = "days")]
    #[schema(minimum = 1, maximum = 366, default = 90)]
    pub expires_in_days: i64,
    /// The operators' name of the voucher.
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
    /// The voucher's public id.
    pub voucher_id: String,
    /// The operators' name of the voucher.
    pub name: String,
    /// Top-up credits for each account that redeems it.
    #[schema(value_type = f64)]
    pub credits: Credits,
    /// Number of accounts that may redeem the voucher.
    pub uses: i64,
    /// Number of accounts that have redeemed it.
    pub redeemed: i64,
    /// `active`, `used_up`, `expired` or `revoked`.
    pub state: String,
    /// The time of its creation.
    pub created_at: String,
    /// The operator who created it.
    pub created_by: String,
    /// The time from which it cannot be redeemed.
    pub expires_at: String,
}

/// A new voucher.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CreatedVoucher {
    /// The voucher's public id.
    pub voucher_id: String,
    /// The code, only in this response.
    pub code: String,
    /// Top-up credits for each account that redeems it.
    #[schema(value_type = f64)]
    pub credits: Credits,
    /// Number of accounts that may redeem the voucher.
    pub uses: i64,
    /// The time from which it cannot be redeemed.
    pub expires_at: String,
}

impl CreatedVoucher {
    /// Makes the response with a voucher and its code.
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

/// A page of vouchers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct VoucherList {
    /// Vouchers, newest first.
    pub vouchers: Vec<VoucherItem>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<String>,
}

impl VoucherRequest {
    /// Returns the new voucher.
    ///
    /// # Errors
    ///
    /// 400 with the invalid field.
    pub fn read(self) -> Result<NewVoucher, ApiError> {
        if self.credits <= Credits::ZERO || self.credits > MAX_CREDITS {
            let what = format!("The value must be more than 0 and at most {MAX_CREDITS}.");
            return Err(ApiError::invalid_request("credits", what));
        }
        for (field, value, most) in [
            ("uses", self.uses, MAX_USES),
            ("expires_in_days", self.expires_in_days, MAX_DAYS),
        ] {
            if !(1..=most).contains(&value) {
                let what = format!("The value must be a number from 1 to {most}.");
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

/// `POST /admin/vouchers`: creates a voucher. Only this response has its code.
#[utoipa::path(
    post, path = "/admin/vouchers", tag = "administration",
    request_body = VoucherRequest,
    responses(
        (status = 201, description = "The voucher; only this response contains its `code`.", body = CreatedVoucher),
    ),
)]
pub async fn create_voucher(
    State(parts): State<VoucherParts>,
    AdminCaller { actor, .. }: AdminCaller,
    SmallBody(request): SmallBody<VoucherRequest>,
) -> Result<(StatusCode, Json<CreatedVoucher>), ApiError> {
    let (new, now) = (request.read()?, parts.ledger.now());
    let (voucher, code) = create(&parts, &parts.key_peppers, new, now, &actor).await?;
    let created = CreatedVoucher::new(voucher, &code);
    Ok((StatusCode::CREATED, Json(created)))
}

/// `GET /admin/vouchers`: all vouchers, newest first, without their codes.
#[utoipa::path(
    get, path = "/admin/vouchers", tag = "administration",
    params(
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page; this page has older items.", nullable = false),
    ),
    responses((status = 200, content((VoucherList = "application/json"), (String = "text/csv")))),
)]
pub async fn list_vouchers(
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
    file: "vouchers.csv",
    columns: "voucher_id,name,credits,uses,redeemed,state,created_at,created_by,expires_at",
    position: "before",
};

impl ListPage for VoucherList {
    type Item = VoucherItem;

    fn into_items(self) -> (Vec<VoucherItem>, Option<String>) {
        (self.vouchers, self.next)
    }
}

pub async fn list(core: &Core, mut query: ListQuery) -> Result<VoucherList, ApiError> {
    let limit = query.limit()?;
    let before = query.text("before")?;
    query.finish()?;
    if before.as_deref().is_some_and(|id| !is_id(id)) {
        let what = "The value must be the `next` of the previous page.";
        return Err(ApiError::invalid_request("before", what));
    }
    let now = now(core).await?;
    let mut vouchers = store::list(&core.database, before.as_deref(), limit + 1)
        .await
        .map_err(|error| ApiError::of_database(&error, "asked for vouchers"))?;
    let next = cut(&mut vouchers, limit, |voucher| voucher.id.clone());
    let vouchers = vouchers.into_iter().map(|voucher| item(voucher, now));
    Ok(VoucherList {
        vouchers: vouchers.collect(),
        next,
    })
}

/// `DELETE /admin/vouchers/{voucher_id}`: revokes a voucher. Redeemed credits stay.
#[utoipa::path(
    delete, path = "/admin/vouchers/{voucher_id}", tag = "administration",
    params(("voucher_id" = String, Path, description = "The voucher's id.")),
    responses(
        (status = 204, description = "The voucher is revoked."),
        (status = 404, description = "`NOT_FOUND`: no voucher has this id."),
    ),
)]
pub async fn revoke_voucher(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
    Path(voucher_id): Path<String>,
) -> Result<StatusCode, ApiError> {
    // PostgreSQL rejects control characters in a text, and no id contains any.
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

/// Returns the database's time: vouchers do not depend on this machine's clock.
async fn now(core: &Core) -> Result<Millis, ApiError> {
    let clock = DatabaseClock::start(core.database.clone(), core.clock.clone()).await;
    let clock = clock.map_err(|error| ApiError::of_database(&error, "asked for the time"))?;
    Ok(clock.now())
}

/// Converts a voucher for a response.
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
