//! The JSON of a request, and its translation to the plugins' vocabulary.

use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::chat::ChatRequest;
use weir_sandbox::adapter::text_chat;

use super::NAME;
use crate::json::{
    self, ExtraFields, FieldFault, MAX_EXTRA, Text, TextOr, UnsupportedField, between,
    check_length, object, required,
};
use crate::openai::{
    MAX_MODEL_CHARS, Stop, StreamOptions, client, preferences, says_nothing, stop,
};
use crate::{ChatCall, Dialect, MessageOrigin};

object! {
    struct CompletionRequestBody<'de> {
        "model": model: Text<'de>,
        // A client that completes several prompts at once sends a list, which has one prompt here.
        "prompt": prompt: TextOr<String, 1>,
        "suffix": suffix: String,
        "max_tokens": max_tokens: u32,
        "temperature": temperature: f64,
        "top_p": top_p: f64,
        "presence_penalty": presence_penalty: f64,
        "frequency_penalty": frequency_penalty: f64,
        "seed": seed: i64,
        "stop": stop: Stop,
        "stream": stream: bool,
        "stream_options": stream_options: StreamOptions<'de>,
        "n": n: u32,
        "best_of": best_of: u32,
        "echo": echo: bool,
        "logprobs": logprobs: UnsupportedField,
        "session_id": session_id: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

/// Reads a Completions request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8]) -> Result<ChatCall, ApiError> {
    Ok(call(json::read(body)?, body.len())?)
}

fn call(body: CompletionRequestBody<'_>, body_bytes: usize) -> Result<ChatCall, FieldFault> {
    for (name, count) in [("n", body.n), ("best_of", body.best_of)] {
        if count.is_some_and(|count| count != 1) {
            let what = "must be 1: more than one choice is not supported";
            return Err(FieldFault::new(name, what));
        }
    }
    if body.echo == Some(true) {
        return Err(FieldFault::new("echo", "must be false"));
    }
    if body.max_tokens == Some(0) {
        return Err(FieldFault::new("max_tokens", "must be at least 1"));
    }
    let model = required(body.model, "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    let prompt = match required(body.prompt, "prompt")? {
        TextOr::Text(text) => text,
        TextOr::List(list) => required(list.0.into_iter().next(), "prompt[0]")?,
    };
    let suffix = body.suffix.filter(|suffix| !suffix.is_empty());
    if prompt.is_empty() && suffix.is_none() {
        return Err(FieldFault::new("prompt", "must not be empty"));
    }
    let preferences = preferences(body.stream_options)?;
    let mut extra = body.others.into_fields();
    extra.retain(|(name, json)| !says_nothing(name, json));
    extra.extend(suffix.map(|suffix| ("suffix".to_owned(), serde_json::json!(suffix).to_string())));
    let request = ChatRequest {
        max_output_tokens: 0,
        temperature: between(body.temperature, 0, 2, "temperature")?,
        top_p: between(body.top_p, 0, 1, "top_p")?,
        presence_penalty: between(body.presence_penalty, -2, 2, "presence_penalty")?,
        frequency_penalty: between(body.frequency_penalty, -2, 2, "frequency_penalty")?,
        seed: body.seed,
        stop: stop(body.stop)?,
        extra,
        stream: body.stream == Some(true),
        ..text_chat(model, [prompt])
    };
    Ok(ChatCall {
        client: client(NAME, &request.extra)?,
        request,
        attachments: Vec::new(),
        origins: vec![MessageOrigin::Apart],
        body_bytes,
        output_limit: body.max_tokens,
        output_limit_param: "max_tokens",
        needs_tools: false,
        chain: None,
        dialect: Dialect::OpenAiCompletions(preferences),
    })
}
