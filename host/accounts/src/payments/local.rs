//! `/dev/payments/…`: the pages of the local processor.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use url::Url;
use weir_errors::{ApiError, ErrorCode};
use weir_payments::Payments;
use weir_payments::checkout::CheckoutError;
use weir_payments::local::{LocalPage, LocalProcessor, Redirect, landing_page, style_sheet};
use weir_payments::processor::Processor;
use weir_payments::terms::ProcessorError;

/// `GET /dev/payments/{page}`: the style sheet, and the pages after a checkout or a portal in development mode.
pub async fn show_page(Path(name): Path<String>) -> Result<Response, ApiError> {
    if name == "style.css" {
        let css = HeaderValue::from_static("text/css; charset=utf-8");
        return Ok(([(header::CONTENT_TYPE, css)], style_sheet()).into_response());
    }
    show(Ok(landing_page(&name)))
}

/// `GET /dev/payments/checkout/{session_id}`: the page of a checkout.
pub async fn show_checkout(
    State(payments): State<Payments>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    show(local(&payments)?.checkout_page(&id).await)
}

/// `POST /dev/payments/checkout/{session_id}/{act}`: pays with a good card or a declined card, or leaves.
pub async fn act_on_checkout(
    State(payments): State<Payments>,
    Path((id, act)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    redirect(local(&payments)?.act_on_checkout(&id, &act).await)
}

/// `GET /dev/payments/portal/{portal_id}`: the page on which a customer manages a plan.
pub async fn show_portal(
    State(payments): State<Payments>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    show(local(&payments)?.portal_page(&id).await)
}

/// `POST /dev/payments/portal/{portal_id}/{act}`: changes, cancels, resumes or ends a plan.
pub async fn act_on_portal(
    State(payments): State<Payments>,
    Path((id, act)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    redirect(local(&payments)?.act_on_portal(&id, &act).await)
}

fn local(payments: &Payments) -> Result<&LocalProcessor, ApiError> {
    match &payments.processor {
        Processor::Local(local) => Ok(local),
        _ => Err(not_found()),
    }
}

fn show(page: Result<Option<LocalPage>, ProcessorError>) -> Result<Response, ApiError> {
    let page = page.map_err(failed)?;
    Ok(page.ok_or_else(not_found)?.into_response())
}

fn redirect(to: Result<Option<Redirect>, ProcessorError>) -> Result<Response, ApiError> {
    let url = match to.map_err(failed)?.ok_or_else(not_found)? {
        Redirect::Own(path) => path,
        // The URL as browsers write it, because the configuration may write it otherwise.
        Redirect::Configured(url) => Url::parse(&url).map_err(|_| ApiError::internal())?.into(),
    };
    let url = HeaderValue::try_from(url).map_err(|_| ApiError::internal())?;
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, url)]).into_response())
}

fn failed(error: ProcessorError) -> ApiError {
    CheckoutError::Processor(error).into()
}

fn not_found() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "There is no such page, or it is over.")
}
