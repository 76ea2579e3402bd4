//! The translation of a request: checks its settings, and converts them to the plugins' vocabulary.

use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::chat::{
    ChatRequest, ExtraField, JsonSchema, ReasoningRequest, ResponseFormat,
};

use super::messages::message;
use super::tools::{tool, tool_choice};
use super::wire::{MAX_SCHEMA_NAME_CHARS, MAX_TOP_LOGPROBS};
use super::{NAME, wire};
use crate::json::{
    self, FieldFault, Text, between, check_at_most, check_is_object, check_length, each, items,
    required,
};
use crate::openai::{MAX_MODEL_CHARS, client, effort, preferences, says_nothing, stop};
use crate::{Attachments, ChatCall, Dialect, MessageOrigin, openai_responses};

/// Reads a Chat Completions request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8]) -> Result<ChatCall, ApiError> {
    let bytes = body;
    let body: wire::ChatRequestBody<'_> = json::read(bytes)?;
    // Cursor sends bodies of Responses to this endpoint, and expects chunks of this dialect.
    if body.input.is_some() && body.messages.is_none() {
        let preferences = preferences(body.stream_options)?;
        return openai_responses::read_for_chat(bytes, preferences);
    }
    Ok(chat(body, bytes.len())?)
}

fn chat(body: wire::ChatRequestBody<'_>, body_bytes: usize) -> Result<ChatCall, FieldFault> {
    if body.input.is_some() {
        let predicate = "must not be given together with messages";
        return Err(FieldFault::new("input", predicate));
    }
    check_single_text_answer(&body)?;
    let model = required(body.model, "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    let output_limit_param = if body.max_completion_tokens.is_some() {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    let output_limit = output_limit(body.max_tokens, body.max_completion_tokens)?;
    let tools = each(items(body.tools), "tools", tool)?;
    let tool_choice = tool_choice(body.tool_choice, &tools)?;
    let top_k = match body.top_k {
        Some(0) => return Err(FieldFault::new("top_k", "must be at least 1")),
        top_k => top_k,
    };
    let preferences = preferences(body.stream_options)?;
    let messages = required(body.messages, "messages")?.0;
    if messages.is_empty() {
        return Err(FieldFault::new("messages", "must not be empty"));
    }
    let mut attachments = Attachments::default();
    let messages = each(messages, "messages", |wire| message(wire, &mut attachments))?;
    let origins = (0..messages.len()).map(MessageOrigin::Listed).collect();
    let mut extra = body.others.into_fields();
    extra.retain(|(name, json)| !says_nothing(name, json));
    extra.extend(logprobs(body.logprobs, body.top_logprobs)?);

    let request = ChatRequest {
        model,
        messages,
        tools,
        tool_choice,
        parallel_tool_calls: body.parallel_tool_calls,
        response_format: response_format(body.response_format)?,
        reasoning: reasoning(body.reasoning_effort.as_ref())?,
        modalities: Vec::new(),
        max_output_tokens: 0,
        temperature: between(body.temperature, 0, 2, "temperature")?,
        top_p: between(body.top_p, 0, 1, "top_p")?,
        top_k,
        presence_penalty: between(body.presence_penalty, -2, 2, "presence_penalty")?,
        frequency_penalty: between(body.frequency_penalty, -2, 2, "frequency_penalty")?,
        seed: body.seed,
        stop: stop(body.stop)?,
        extra,
        stream: body.stream == Some(true),
    };
    Ok(ChatCall {
        client: client(NAME, &request.extra)?,
        request,
        attachments: attachments.into_vec(),
        origins,
        body_bytes,
        output_limit,
        output_limit_param,
        needs_tools: false,
        chain: None,
        dialect: Dialect::OpenAiChat(preferences),
    })
}

/// Checks that the client wants one choice, of text.
fn check_single_text_answer(body: &wire::ChatRequestBody<'_>) -> Result<(), FieldFault> {
    if body.n.is_some_and(|n| n != 1) {
        return Err(FieldFault::new(
            "n",
            "must be 1: more than one choice is not supported",
        ));
    }
    match &body.modalities {
        Some(modalities) if !matches!(modalities.0.as_slice(), [only] if only.as_str() == "text") => {
            Err(FieldFault::new(
                "modalities",
                "must be [\"text\"]: other modalities are not supported",
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the fields for log probabilities, which adapters of this dialect pass on and others refuse.
fn logprobs(wanted: Option<bool>, top: Option<u32>) -> Result<Vec<ExtraField>, FieldFault> {
    let top = top.filter(|top| *top > 0);
    match (wanted, top) {
        (_, Some(top)) if top > MAX_TOP_LOGPROBS => {
            let what = format!("must be at most {MAX_TOP_LOGPROBS}");
            Err(FieldFault::new("top_logprobs", what))
        }
        (Some(true), top) => {
            let top = top.map(|top| ("top_logprobs".to_owned(), top.to_string()));
            let wanted = ("logprobs".to_owned(), "true".to_owned());
            Ok([wanted].into_iter().chain(top).collect())
        }
        (_, Some(_)) => Err(FieldFault::new("top_logprobs", "needs logprobs to be true")),
        (_, None) => Ok(Vec::new()),
    }
}

fn output_limit(
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
) -> Result<Option<u32>, FieldFault> {
    for (name, limit) in [
        ("max_tokens", max_tokens),
        ("max_completion_tokens", max_completion_tokens),
    ] {
        if limit == Some(0) {
            return Err(FieldFault::new(name, "must be at least 1"));
        }
    }
    match (max_tokens, max_completion_tokens) {
        (Some(old), Some(new)) if old != new => Err(FieldFault::new(
            "max_tokens",
            "must equal max_completion_tokens if both are given",
        )),
        (old, new) => Ok(new.or(old)),
    }
}

fn response_format(format: Option<wire::ResponseFormat<'_>>) -> Result<ResponseFormat, FieldFault> {
    let Some(format) = format else {
        return Ok(ResponseFormat::Text);
    };
    match required(format.kind, "response_format.type")?.as_str() {
        "text" => Ok(ResponseFormat::Text),
        "json_object" => Ok(ResponseFormat::Json),
        "json_schema" => {
            let wanted = required(format.json_schema, "response_format.json_schema")?;
            let schema = required(wanted.schema, "response_format.json_schema.schema")?.0;
            check_is_object(schema, "response_format.json_schema.schema")?;
            if let Some(name) = &wanted.name {
                let field = "response_format.json_schema.name";
                check_at_most(name, MAX_SCHEMA_NAME_CHARS, field)?;
            }
            Ok(ResponseFormat::JsonSchema(JsonSchema {
                name: wanted.name,
                description: wanted.description,
                strict: wanted.strict,
                schema: schema.to_owned(),
            }))
        }
        _ => Err(FieldFault::new(
            "response_format.type",
            "must be one of text, json_object, json_schema",
        )),
    }
}

fn reasoning(word: Option<&Text<'_>>) -> Result<ReasoningRequest, FieldFault> {
    Ok(ReasoningRequest {
        effort: effort(word, "reasoning_effort")?,
        budget_tokens: None,
        summary: None,
        adaptive: None,
    })
}
