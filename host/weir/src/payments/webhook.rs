//! `POST /billing/webhook`: where the processor tells what has happened.
//!
//! Who can sign is the processor; nothing else proves anything here. A wrong signature does not count towards a lockout:
//! whoever has an account with the processor can have it send events to this address, from its own addresses, signed with
//! the secret of that account, and ten of them would shut out the events of this one. It need not count, either. What is
//! refused costs little: a header that cannot be right is refused before the body is read, a body is small, and there is
//! nothing to be found out by trying, since a signature has 256 bits.

use axum::Json;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_payments::events::PaymentEvent;
use weir_payments::inbox;
use weir_payments::signature::Claim;

use crate::app::App;
use crate::context::RequestContext;
use crate::request::JsonBody;

/// Bytes of an event.
const MAX_BYTES: usize = 256 << 10;

/// What the processor hears.
#[derive(Debug, Serialize, ToSchema)]
pub struct Received {
    /// True: the event is kept.
    received: bool,
}

/// `POST /billing/webhook`: keeps an event that the processor has signed, and has it applied.
#[utoipa::path(
    post, path = "/billing/webhook", tag = "billing", security(("signature" = [])),
    request_body(content = Object),
    responses(
        (status = 200, body = Received),
        (status = 400, description = "`INVALID_SIGNATURE`: it is not signed as the processor's events are."),
    ),
)]
pub async fn receive_event(
    State(app): State<App>,
    context: RequestContext,
    request: Request,
) -> Result<Json<Received>, ApiError> {
    let payments = &app.payments;
    let headers = request.headers().clone();
    let claim = Claim::read(&headers, &payments.signature_header, app.ledger.now())?;
    let room = app.admission.event_room();
    let body = JsonBody::read_in(room, request, &app, MAX_BYTES).await?;
    claim.verify(&body.bytes, &payments.webhook_secrets)?;
    let event = PaymentEvent::read(&body.bytes)?;
    inbox::receive(payments, &event, |span| context.link_trace(span))
        .await
        .map_err(|error| ApiError::of_database(&error, "keeping an event of payments"))?;
    Ok(Json(Received { received: true }))
}
