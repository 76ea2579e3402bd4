//! `/dev/payments/…`: the pages of the local processor.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use url::Url;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::Plan;

use super::{Local, Management, Payment, pages};
use crate::app::App;
use crate::payments::checkout::CheckoutError;
use crate::payments::processor::Processor;
use crate::payments::terms::ProcessorError;

/// `GET /dev/payments/{page}`: where users are sent in development, and how the pages look.
pub async fn show_page(Path(name): Path<String>) -> Result<Response, ApiError> {
    if name == "style.css" {
        let css = HeaderValue::from_static("text/css; charset=utf-8");
        return Ok(([(header::CONTENT_TYPE, css)], pages::STYLE).into_response());
    }
    pages::landing(&name).ok_or_else(not_found)
}

/// `GET /dev/payments/checkout/{session_id}`: a page to pay on.
pub async fn show_checkout(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let local = local(&app)?;
    let found = local.session(&id).await.map_err(failed)?;
    let session = found.ok_or_else(not_found)?;
    Ok(pages::checkout(&id, &session, local.books.now()))
}

/// `POST /dev/payments/checkout/{session_id}/{act}`: somebody pays there, with a good card or one that is declined, or
/// leaves.
pub async fn act_on_checkout(
    State(app): State<App>,
    Path((id, act)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let local = local(&app)?;
    let found = local.session(&id).await.map_err(failed)?;
    let session = found.ok_or_else(not_found)?;
    let payment = match act.as_str() {
        "pay" => Payment::Good,
        "decline" => Payment::Declined,
        "cancel" => return go_to(&session.cancel_url),
        _ => return Err(not_found()),
    };
    local.pay(&id, payment).await.map_err(failed)?;
    let found = local.session(&id).await.map_err(failed)?;
    let session = found.ok_or_else(not_found)?;
    match session.status {
        super::SessionStatus::Complete => go_to(&session.success_url),
        // It says there why it is not paid.
        _ => go_to_own("checkout", &id),
    }
}

/// `GET /dev/payments/portal/{portal_id}`: a page to manage a plan on.
pub async fn show_portal(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let local = local(&app)?;
    let found = local.portal(&id).await.map_err(failed)?;
    let (_, book, back) = found.ok_or_else(not_found)?;
    let now = local.books.now();
    Ok(pages::portal(&id, &book, &local.settings, &back, now))
}

/// `POST /dev/payments/portal/{portal_id}/{act}`: somebody changes, cancels or resumes their plan.
pub async fn act_on_portal(
    State(app): State<App>,
    Path((id, act)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let local = local(&app)?;
    let found = local.portal(&id).await.map_err(failed)?;
    let (customer_id, _, _) = found.ok_or_else(not_found)?;
    let act = match act.as_str() {
        "guru" => Management::Switch(Plan::Guru),
        "pro" => Management::Switch(Plan::Pro),
        "cancel" => Management::Cancel,
        "resume" => Management::Resume,
        "end" => Management::End,
        _ => return Err(not_found()),
    };
    local.manage(&customer_id, act).await.map_err(failed)?;
    go_to_own("portal", &id)
}

fn local(app: &App) -> Result<&Local, ApiError> {
    match &app.payments.processor {
        Processor::Local(local) => Ok(local),
        _ => Err(not_found()),
    }
}

fn go_to_own(kind: &str, id: &str) -> Result<Response, ApiError> {
    see_other(&format!("/dev/payments/{kind}/{id}"))
}

fn go_to(url: &str) -> Result<Response, ApiError> {
    // As browsers write it, whatever the configuration does.
    let url = Url::parse(url).map_err(|_| ApiError::internal())?;
    see_other(url.as_str())
}

fn see_other(url: &str) -> Result<Response, ApiError> {
    let url = HeaderValue::try_from(url).map_err(|_| ApiError::internal())?;
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, url)]).into_response())
}

fn failed(error: ProcessorError) -> ApiError {
    CheckoutError::Processor(error).into()
}

fn not_found() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "There is no such page, or it is over.")
}
