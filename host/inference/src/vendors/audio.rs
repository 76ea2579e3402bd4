//! `POST /v1/audio/speech`, `POST /v1/audio/transcriptions` and `POST /v1/audio/translations`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::ApiError;
use weir_identity::Caller;
use weir_kinds::transcription::TranscriptionKind;
use weir_kinds::{speech, transcription};
use weir_request::context::RequestContext;
use weir_request::request::{FormBody, JsonBody};
use weir_request::schema_names;
use weir_request::schemas::parameters::Idempotency;

use crate::InferenceParts;
use crate::idempotency::IdempotencyHeader;
use crate::routes::{CapacityCheck, take_turn};

schema_names! {
    /// A request in OpenAI's Speech.
    SpeechRequest,
    /// A stream in Speech.
    SpeechStreamEvent,
    /// A form for the words of a recording.
    TranscriptionForm,
    /// A form for the words of a recording in English.
    TranslationForm,
    /// The words of a recording.
    TranscriptAnswer,
    /// A stream in Transcriptions.
    TranscriptStreamEvent,
}

/// The bytes of a recording.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct Recording(pub Vec<u8>);

/// The words of a recording as text or subtitles.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TranscriptText(pub String);

/// `POST /v1/audio/speech`: speaks a text. The response is the bytes of a recording, as they arrive, or a stream of events.
#[utoipa::path(
    post, path = "/v1/audio/speech", tag = "models",
    params(Idempotency),
    request_body = SpeechRequest,
    responses(
        (status = 200, content((Recording = "audio/*"), (SpeechStreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create_speech(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let (customer, turn) = take_turn(&parts, caller).await?;
    let call = speech::read(&body.bytes)?;
    let key = key.with_body(&body.bytes);
    let held = (turn, body.room);
    crate::serve(&parts, held, customer, context, call.into(), key, None).await
}

/// `POST /v1/audio/transcriptions`: writes down the words of a recording.
#[utoipa::path(
    post, path = "/v1/audio/transcriptions", tag = "models",
    params(Idempotency),
    request_body(content = TranscriptionForm, content_type = "multipart/form-data"),
    responses(
        (status = 200, content(
            (TranscriptAnswer = "application/json"), (TranscriptText = "text/plain"),
            (TranscriptStreamEvent = "text/event-stream"),
        )),
    ),
)]
pub async fn create_transcription(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: FormBody,
) -> Result<Response, ApiError> {
    let kind = TranscriptionKind::Transcription;
    transcribe(&parts, caller, context, key, body, kind).await
}

/// `POST /v1/audio/translations`: writes down the words of a recording in English.
#[utoipa::path(
    post, path = "/v1/audio/translations", tag = "models",
    params(Idempotency),
    request_body(content = TranslationForm, content_type = "multipart/form-data"),
    responses(
        (status = 200, content((TranscriptAnswer = "application/json"), (TranscriptText = "text/plain"))),
    ),
)]
pub async fn create_translation(
    State(parts): State<Arc<InferenceParts>>,
    _: CapacityCheck,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: FormBody,
) -> Result<Response, ApiError> {
    let kind = TranscriptionKind::Translation;
    transcribe(&parts, caller, context, key, body, kind).await
}

async fn transcribe(
    parts: &Arc<InferenceParts>,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: FormBody,
    kind: TranscriptionKind,
) -> Result<Response, ApiError> {
    let (customer, turn) = take_turn(parts, caller).await?;
    let FormBody {
        bytes,
        boundary,
        room,
    } = body;
    let call = transcription::read(bytes.clone(), &boundary, kind).await?;
    let key = key.with_form(&bytes, &boundary);
    let held = (turn, room);
    crate::serve(parts, held, customer, context, call.into(), key, None).await
}
