//! Requests about audio: a spoken text, or the words of a recording.

use weir_dialects::{AudioCall, AudioTask};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{Quantity, Unit};
use weir_sandbox::adapter::bindings::speech::SpeechRequest;
use weir_upstream::usage::RequestSize;

use super::model::{ProviderChoice, model};
use super::request::{ResolvedRequest, ResolvedTask};
use crate::catalog::config::{InputUnit, ModelKind};
use crate::catalog::{Catalog, Model};

/// The most output tokens of a spoken character at the normal speed, and of a second of a recording.
const TOKENS_PER_CHARACTER: f64 = 5.0;
const TOKENS_PER_SECOND: u64 = 16;

/// The output tokens that need no character and no second.
const FREE_TOKENS: u64 = 256;

/// Finds the model of such a request, and checks the request against its limits. `seconds` is the length of its recording.
pub fn resolve_audio(
    catalog: &Catalog,
    call: AudioCall,
    seconds: u64,
    choice: &ProviderChoice<'_>,
) -> Result<ResolvedRequest, ApiError> {
    let kind = match &call.task {
        AudioTask::Speech(_) => ModelKind::Speech,
        AudioTask::Transcription(_) => ModelKind::Transcription,
    };
    let model = model(catalog, call.task.model(), kind)?;
    let mut size = RequestSize::of_audio(&call.task, seconds);
    let (count, unit, field) = match (&call.task, model.unit) {
        (AudioTask::Speech(task), InputUnit::Token) => {
            (size.estimated_tokens(), "tokens", input_field(task))
        }
        (AudioTask::Speech(task), _) => (task.input.chars().count() as u64, "characters", "input"),
        (AudioTask::Transcription(_), InputUnit::Token) => {
            (size.estimated_tokens(), "tokens", "file")
        }
        (AudioTask::Transcription(_), _) => (seconds, "seconds", "file"),
    };
    size.units = match model.price_unit() {
        unit @ (Unit::Characters | Unit::Seconds) => Some(Quantity::new(unit, count)),
        _ => None,
    };
    check_window(model, count, unit, field)?;
    let output = match &call.task {
        AudioTask::Speech(task) => {
            let characters = task.input.chars().count() as f64;
            (characters * TOKENS_PER_CHARACTER / task.speed.unwrap_or(1.0)).ceil() as u64
        }
        AudioTask::Transcription(_) => TOKENS_PER_SECOND * seconds,
    };
    let output = u32::try_from(output + FREE_TOKENS).unwrap_or(u32::MAX);
    let text_bytes = call.text_bytes();
    Ok(ResolvedRequest {
        allowed: choice.narrow(model)?,
        is_ordered: false,
        model: model.clone(),
        size,
        output_limit: match model.max_output_tokens {
            0 => output,
            most => output.min(most),
        },
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
