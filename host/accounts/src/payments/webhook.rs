//! `POST /billing/webhook`: the webhook of the payment processor.
//!
//! The signature is the only proof of the sender. A wrong signature does not count toward a lockout: anybody with an
//! account at the processor can make it send events to this URL, from its own addresses but with another secret, and
//! ten of them would lock out the real events. A lockout would not help either. Rejections are cheap: weir checks the
//! header before it reads the body, and a body is small. A signature has 256 bits, so guesses are hopeless.

use axum::Json;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_payments::Payments;
use weir_payments::events::PaymentEvent;
use weir_payments::inbox;
use weir_payments::signature::SignatureHeader;
use weir_request::context::RequestContext;
use weir_request::request::{BodyReader, JsonBody};

/// Maximum length of an event in bytes.
const MAX_BYTES: usize = 256 << 10;

/// The response to the processor.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Received)]
pub struct WebhookReceipt {
    /// Always true: weir has stored the event.
    received: bool,
}

/// `POST /billing/webhook`: stores a signed event of the processor, and applies it.
#[utoipa::path(
    post, path = "/billing/webhook", tag = "billing",
    request_body(content = Object),
    responses(
        (status = 200, body = WebhookReceipt),
        (status = 400, description = "`INVALID_SIGNATURE`: it is not signed as the processor's events are."),
    ),
)]
pub async fn receive_event(
    State(payments): State<Payments>,
    State(bodies): State<BodyReader>,
    context: RequestContext,
    request: Request,
) -> Result<Json<WebhookReceipt>, ApiError> {
    let headers = request.headers().clone();
    let claim = SignatureHeader::read(&headers, &payments.signature_header, payments.ledger.now())?;
    let room = bodies.admission.event_room();
    let body = JsonBody::read_in(room, request, &bodies, MAX_BYTES).await?;
    claim.verify(&body.bytes, &payments.webhook_secrets)?;
    let event = PaymentEvent::read(&body.bytes)?;
    inbox::receive(&payments, &event, |span| context.link_trace(span))
        .await
        .map_err(|error| ApiError::of_database(&error, "keeping an event of payments"))?;
    Ok(Json(WebhookReceipt { received: true }))
}
