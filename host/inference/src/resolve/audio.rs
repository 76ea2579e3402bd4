//! Requests about audio: a spoken text, or the words of a recording.

use weir_catalog::config::ModelKind;
use weir_catalog::{Catalog, Model};
use weir_dialects::{AudioCall, AudioTask};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{Quantity, Unit};
use weir_sandbox::adapter::bindings::speech::SpeechRequest;
use weir_upstream::audio_length::RecordingLength;
use weir_upstream::usage::RequestSize;

use super::model::{ProviderChoice, model};
use super::request::{ResolvedRequest, ResolvedTask};

/// The most output tokens of a spoken character at the normal speed, and of a second of a recording.
const TOKENS_PER_CHARACTER: f64 = 5.0;
const TOKENS_PER_SECOND: u64 = 16;

/// The output tokens that need no character and no second.
const FREE_TOKENS: u64 = 256;

/// The length of each recording at least, which counts until weir reads it.
const LEAST_LENGTH: RecordingLength = RecordingLength {
    seconds: 1,
    is_exact: false,
};

/// Finds the model of such a request, and checks the request against its limits. A recording has an unknown length so far;
/// [`set_recording_length`] sets it.
pub fn resolve_audio(
    catalog: &Catalog,
    call: AudioCall,
    choice: &ProviderChoice<'_>,
) -> Result<ResolvedRequest, ApiError> {
    let kind = match &call.task {
        AudioTask::Speech(_) => ModelKind::Speech,
        AudioTask::Transcription(_) => ModelKind::Transcription,
    };
    let model = model(catalog, call.task.model(), kind)?;
    let (size, output_limit) = match &call.task {
        AudioTask::Speech(task) => speech_size(model, &call.task, task)?,
        AudioTask::Transcription(_) => transcript_size(model, &call.task, LEAST_LENGTH)?,
    };
    let text_bytes = call.text_bytes();
    Ok(ResolvedRequest {
        allowed: choice.narrow(model)?,
        is_ordered: false,
        model: model.clone(),
        size,
        output_limit,
        widest_output: None,
        images: 0,
        ignored: Vec::new(),
        attachments: call.recording.into_iter().collect(),
        origins: Vec::new(),
        client: call.client,
        body_bytes: call.body_bytes,
        text_bytes,
        task: ResolvedTask::Audio(call.task),
    })
}

/// Sets the length of a request's recording, and checks it against the limits of the model.
pub fn set_recording_length(
    resolved: &mut ResolvedRequest,
    length: RecordingLength,
) -> Result<(), ApiError> {
    let ResolvedTask::Audio(task) = &resolved.task else {
        return Err(ApiError::internal());
    };
    (resolved.size, resolved.output_limit) = transcript_size(&resolved.model, task, length)?;
    Ok(())
}

/// Returns the size of a spoken text, and the output limit.
fn speech_size(
    model: &Model,
    task: &AudioTask,
    speech: &SpeechRequest,
) -> Result<(RequestSize, u32), ApiError> {
    let mut size = RequestSize::of_audio(task, 0);
    let characters = speech.input.chars().count();
    let (count, unit, field) = match model.price_unit() {
        Unit::Characters => {
            let count = characters as u64;
            size.units = Some(Quantity::new(Unit::Characters, count));
            (count, "characters", "input")
        }
        _ => (size.estimated_tokens(), "tokens", input_field(speech)),
    };
    check_window(model, count, unit, field)?;
    let spoken = characters as f64 * TOKENS_PER_CHARACTER / speech.speed.unwrap_or(1.0);
    Ok((size, output_limit(model, spoken.ceil() as u64)))
}

/// Returns the size of a recording with this length, and the output limit.
fn transcript_size(
    model: &Model,
    task: &AudioTask,
    length: RecordingLength,
) -> Result<(RequestSize, u32), ApiError> {
    let mut size = RequestSize::of_audio(task, length.seconds);
    let (count, unit) = match model.price_unit() {
        Unit::Seconds => {
            size.set_seconds_as_units(length);
            (length.seconds, "seconds")
        }
        _ => (size.estimated_tokens(), "tokens"),
    };
    check_window(model, count, unit, "file")?;
    let output = TOKENS_PER_SECOND.saturating_mul(length.seconds);
    Ok((size, output_limit(model, output)))
}

fn output_limit(model: &Model, tokens: u64) -> u32 {
    let tokens = u32::try_from(tokens.saturating_add(FREE_TOKENS)).unwrap_or(u32::MAX);
    match model.max_output_tokens {
        0 => tokens,
        most => tokens.min(most),
    }
}

/// Returns the field with most of the text.
fn input_field(task: &SpeechRequest) -> &'static str {
    match &task.instructions {
        Some(text) if text.len() > task.input.len() => "instructions",
        _ => "input",
    }
}

fn check_window(model: &Model, count: u64, unit: &str, field: &str) -> Result<(), ApiError> {
    let window = u64::from(model.context_window);
    if count <= window {
        return Ok(());
    }
    let message = format!(
        "The model {} takes {window} {unit}; {field} has about {count}.",
        model.id
    );
    Err(ApiError::new(ErrorCode::ContextLengthExceeded, message)
        .with_param(field)
        .with_detail("context_window", window))
}
