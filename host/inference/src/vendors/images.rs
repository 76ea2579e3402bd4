//! `POST /v1/images/generations` and `POST /v1/images/edits`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use weir_errors::ApiError;
use weir_identity::Caller;
use weir_kinds::images::{ImageOperation, form, read};
use weir_request::context::RequestContext;
use weir_request::request::{FormOrJsonBody, JsonBody};
use weir_request::schema_names;
use weir_request::schemas::parameters::Idempotency;

use crate::InferenceParts;
use crate::idempotency::IdempotencyHeader;
use crate::routes::{CapacityCheck, take_turn};

schema_names! {
    /// A request in OpenAI's Images.
    ImageRequest,
    /// A request that edits images.
    ImageEditRequest,
    /// The same as a form.
    ImageEditForm,
    /// Generated images.
    ImagesAnswer,
    /// A stream in Images.
    ImageStreamEvent,
}

/// `POST /v1/images/generations`: makes images from a prompt.
#[utoipa::path(
    post, path = "/v1/images/generations", tag = "models",
    params(Idempotency),
    request_body = ImageRequest,
    responses(
        (status = 200, content((ImagesAnswer = "application/json"), (ImageStreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create_image(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let (customer, turn) = take_turn(&parts, caller).await?;
    let call = read(&body.bytes, ImageOperation::Generation)?;
    let key = key.with_body(&body.bytes);
    let held = (turn, body.room);
    crate::serve(&parts, held, customer, context, call.into(), key, None).await
}

/// `POST /v1/images/edits`: makes images from other images, sent in a form or, in JSON, by URL.
#[utoipa::path(
    post, path = "/v1/images/edits", tag = "models",
    params(Idempotency),
    request_body(content((ImageEditRequest = "application/json"), (ImageEditForm = "multipart/form-data"))),
    responses(
        (status = 200, content((ImagesAnswer = "application/json"), (ImageStreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create_image_edit(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: FormOrJsonBody,
) -> Result<Response, ApiError> {
    let (customer, turn) = take_turn(&parts, caller).await?;
    let (call, key) = match &body.boundary {
        None => {
            let call = read(&body.bytes, ImageOperation::Edit)?;
            (call, key.with_body(&body.bytes))
        }
        Some(boundary) => {
            let call = form::read(body.bytes.clone(), boundary, ImageOperation::Edit).await?;
            (call, key.with_form(&body.bytes, boundary))
        }
    };
    let held = (turn, body.room);
    crate::serve(&parts, held, customer, context, call.into(), key, None).await
}
