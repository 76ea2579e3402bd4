//! Vouchers: all of them, creation and revocation.

use askama::Template;
use axum::Json;
use axum::extract::{FromRef as _, Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use weir_accounts::vouchers::VoucherParts;
use weir_accounts::vouchers::admin::{
    self as vouchers, CreatedVoucher, DAYS, VoucherItem, VoucherRequest,
};
use weir_app::App;
use weir_errors::ApiError;
use weir_ledger::Credits;
use weir_request::csv_export::preferring_csv;
use weir_request::query::ListQuery;
use weir_request::small_body::SmallBody;
use weir_storage::clock::Millis;

use super::{ListRequest, core};
use crate::console::form::{AdminForm, FormFields};
use crate::console::format::{self, DisplayTime};
use crate::console::frame::{Flash, Frame, VOUCHERS};
use crate::console::respond;
use crate::console::session::ConsoleAdmin;

/// The page that shows a new voucher.
const MADE: &str = "/console/admin/vouchers/made";

#[derive(Template)]
#[template(path = "console/admin/vouchers.html")]
struct VouchersPage {
    frame: Frame,
    vouchers: Vec<VoucherItem>,
    next: Option<String>,
    days: i64,
    now: Millis,
}

#[derive(Template)]
#[template(path = "console/admin/voucher_made.html")]
struct CreatedVoucherPage {
    frame: Frame,
    created: CreatedVoucher,
    now: Millis,
}

/// `GET /console/admin/vouchers`
pub(super) async fn show_vouchers(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = ListRequest::take(query, [], "before")?;
    let list = vouchers::list(&core(&app), asked.query()).await?;
    admin.user.show(&VouchersPage {
        frame: admin.user.frame("Vouchers", VOUCHERS),
        next: asked.next(VOUCHERS.path, list.next),
        vouchers: list.vouchers,
        days: DAYS,
        now: app.clock.now(),
    })
}

/// `GET /console/admin/vouchers.csv`: returns all vouchers as a file.
pub(super) async fn download_vouchers(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    query.finish()?;
    let (caller, headers) = (admin.caller(), preferring_csv());
    vouchers::list_vouchers(core(&app), caller, headers, ListQuery::from([])).await
}

/// `POST /console/admin/vouchers`: creates a voucher, and redirects the browser to the page that shows its code.
pub(super) async fn create_voucher(
    State(app): State<App>,
    AdminForm { admin, fields }: AdminForm,
) -> Result<Response, ApiError> {
    let parts = State(VoucherParts::from_ref(&app));
    let created = async {
        let body = SmallBody(read(&fields)?);
        vouchers::create_voucher(parts, admin.caller(), body).await
    };
    match created.await {
        Ok((_, Json(created))) => Ok(admin.user.go_with(MADE, &created)),
        Err(error) => admin.done(VOUCHERS.path, Err::<(), _>(error), ""),
    }
}

/// `GET /console/admin/vouchers/made`: shows the new voucher's code once.
pub(super) async fn show_made_voucher(
    State(app): State<App>,
    headers: HeaderMap,
    admin: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let shown = admin.user.take_once(&headers, |created| {
        let page = CreatedVoucherPage {
            frame: admin.user.frame("The new voucher", VOUCHERS),
            created,
            now: app.clock.now(),
        };
        respond::page(StatusCode::OK, &page)
    });
    shown.unwrap_or_else(|| {
        let what = "A voucher’s code is shown once. If you have not saved it, revoke the voucher and create another.";
        Ok(admin.user.go(VOUCHERS.path, Flash::bad(what)))
    })
}

/// `POST /console/admin/vouchers/{voucher_id}/revoke`
pub(super) async fn revoke_voucher(
    State(app): State<App>,
    Path(voucher_id): Path<String>,
    AdminForm { admin, .. }: AdminForm,
) -> Result<Response, ApiError> {
    let revoked = vouchers::revoke_voucher(core(&app), admin.caller(), Path(voucher_id));
    let done = "The voucher is revoked. Redeemed credits stay.";
    admin.done(VOUCHERS.path, revoked.await, done)
}

fn read(fields: &FormFields) -> Result<VoucherRequest, ApiError> {
    let wrong = |field: &str, what: &str| ApiError::invalid_request(field, what);
    let number = |field: &str, default: i64, what: &str| match fields.filled(field) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| wrong(field, what)),
    };
    let credits = Credits::parse(fields.text("credits"));
    Ok(VoucherRequest {
        credits: credits.ok_or_else(|| wrong("credits", "Enter a number of credits."))?,
        uses: number("uses", 1, "Accounts: enter a whole number.")?,
        expires_in_days: number("expires_in_days", DAYS, "Days: enter a whole number.")?,
        name: fields.text("name").to_owned(),
    })
}
