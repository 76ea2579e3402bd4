//! The translation of a request: checks its settings, and converts them to the plugins' vocabulary.

use http::HeaderMap;
use serde_json::Value;
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{
    ChatRequest, JsonSchema, ReasoningEffort, ReasoningRequest, ResponseFormat,
};

use super::content::messages;
use super::tools::{parallel_tool_calls, tool, tool_choice};
use super::wire::{MAX_DISPLAY_CHARS, MAX_MODEL_CHARS, MAX_STOP_CHARS, MAX_USER_CHARS};
use super::{NAME, wire};
use crate::json::{
    self, FieldFault, Text, between, check_at_most, check_is_object, check_length, check_not_empty,
    each, items, object_of, required,
};
use crate::{Attachments, ChatCall, Dialect};

/// The dialect's own headers.
const HEADERS: [&str; 2] = ["anthropic-beta", "anthropic-version"];
/// The maximum bytes of those headers; agents send dozens of betas.
const MAX_HEADER_BYTES: usize = 4 << 10;

/// Reads a Messages request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8], headers: &HeaderMap) -> Result<ChatCall, ApiError> {
    let call = read_uncounted(body, headers)?;
    match call.output_limit {
        Some(_) => Ok(call),
        None => Err(FieldFault::new("max_tokens", "is required").into()),
    }
}

/// Reads a request without a response, such as a token count, which needs no output limit.
///
/// # Errors
///
/// Fails like [`read`].
pub fn read_uncounted(body: &[u8], headers: &HeaderMap) -> Result<ChatCall, ApiError> {
    let body_bytes = body.len();
    let body = json::read(body)?;
    Ok(chat(body, body_bytes, headers)?)
}

fn chat(
    body: wire::MessagesRequestBody<'_>,
    body_bytes: usize,
    headers: &HeaderMap,
) -> Result<ChatCall, FieldFault> {
    let model = required(body.model, "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    for (name, value) in [("max_tokens", body.max_tokens), ("top_k", body.top_k)] {
        if value == Some(0) {
            return Err(FieldFault::new(name, "must be at least 1"));
        }
    }
    let tools = each(items(body.tools), "tools", tool)?;
    let parallel_tool_calls = parallel_tool_calls(body.tool_choice.as_ref());
    let tool_choice = tool_choice(body.tool_choice, &tools)?;
    let mut extra = body.others.into_fields();
    let end_user = body.metadata.and_then(|metadata| {
        let (user_id, json) = metadata_fields(metadata);
        extra.push(("metadata".into(), json));
        user_id
    });
    if let Some(user) = &end_user {
        check_at_most(user, MAX_USER_CHARS, "metadata.user_id")?;
    }
    let output = body.output_config.unwrap_or_default();
    let mut others = output.others.into_fields();
    let (reasoning, unused_effort) = reasoning(body.thinking, output.effort.as_ref())?;
    others.extend(unused_effort.map(|effort| ("effort".into(), Value::from(effort).to_string())));
    if !others.is_empty() {
        extra.push(("output_config".into(), object_of(others)));
    }
    let response_format = response_format(output.format, body.output_format)?;
    let mut attachments = Attachments::default();
    let (messages, origins) = messages(body.system, body.messages, &mut attachments)?;
    let request = ChatRequest {
        model,
        messages,
        tools,
        tool_choice,
        parallel_tool_calls,
        response_format,
        reasoning,
        modalities: Vec::new(),
        max_output_tokens: 0,
        temperature: between(body.temperature, 0, 1, "temperature")?,
        top_p: between(body.top_p, 0, 1, "top_p")?,
        top_k: body.top_k,
        presence_penalty: None,
        frequency_penalty: None,
        seed: None,
        stop: each(items(body.stop_sequences), "stop_sequences", |text| {
            check_not_empty(&text, "")?;
            check_at_most(&text, MAX_STOP_CHARS, "")?;
            Ok(text)
        })?,
        extra,
        stream: body.stream == Some(true),
    };
    Ok(ChatCall {
        client: Client {
            dialect: NAME.into(),
            headers: own_headers(headers),
            end_user,
        },
        request,
        attachments: attachments.into_vec(),
        origins,
        body_bytes,
        output_limit: body.max_tokens,
        output_limit_param: "max_tokens",
        needs_tools: false,
        chain: None,
        dialect: Dialect::AnthropicMessages,
    })
}

/// Returns the request's headers that belong to the dialect. Headers that are too long or not text are left out.
fn own_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut room = MAX_HEADER_BYTES;
    let mut own = Vec::new();
    for name in HEADERS {
        for value in headers.get_all(name) {
            if let Ok(text) = value.to_str()
                && text.len() <= room
            {
                room -= text.len();
                own.push((name.to_owned(), text.to_owned()));
            }
        }
    }
    own
}

/// Returns the id of the end user, and the complete metadata unchanged.
fn metadata_fields(metadata: wire::Metadata<'_>) -> (Option<String>, String) {
    let mut fields = metadata.others.into_fields();
    if let Some(user_id) = &metadata.user_id {
        fields.insert(
            0,
            ("user_id".into(), Value::from(user_id.as_str()).to_string()),
        );
    }
    (metadata.user_id, object_of(fields))
}

/// Returns the response format, which has two field names.
fn response_format(
    format: Option<wire::AnthropicFormat<'_>>,
    at_first: Option<wire::AnthropicFormat<'_>>,
) -> Result<ResponseFormat, FieldFault> {
    let (format, at) = match (format, at_first) {
        (Some(_), Some(_)) => {
            let predicate = "must not be given together with output_config.format";
            return Err(FieldFault::new("output_format", predicate));
        }
        (Some(format), None) => (format, "output_config.format"),
        (None, Some(format)) => (format, "output_format"),
        (None, None) => return Ok(ResponseFormat::Text),
    };
    let read = || {
        if required(format.kind, "type")?.as_str() != "json_schema" {
            return Err(FieldFault::new("type", "must be json_schema"));
        }
        let schema = required(format.schema, "schema")?.0;
        check_is_object(schema, "schema")?;
        Ok(ResponseFormat::JsonSchema(JsonSchema {
            name: None,
            description: None,
            strict: Some(true),
            schema: schema.to_owned(),
        }))
    };
    read().map_err(|fault: FieldFault| fault.within(at))
}

/// Returns the reasoning settings, and an effort without reasoning, for which the vocabulary has no place.
fn reasoning<'a>(
    thinking: Option<wire::Thinking<'_>>,
    effort: Option<&'a Text<'_>>,
) -> Result<(ReasoningRequest, Option<&'a str>), FieldFault> {
    let word = effort.map(Text::as_str);
    let effort = match word {
        None => None,
        Some("low") => Some(ReasoningEffort::Low),
        Some("medium") => Some(ReasoningEffort::Medium),
        Some("high") => Some(ReasoningEffort::High),
        Some("xhigh" | "max") => Some(ReasoningEffort::Highest),
        Some(_) => {
            return Err(FieldFault::new(
                "output_config.effort",
                "must be one of low, medium, high, xhigh, max",
            ));
        }
    };
    let mut asked = ReasoningRequest {
        effort,
        budget_tokens: None,
        summary: None,
        adaptive: None,
    };
    let Some(thinking) = thinking else {
        return Ok((asked, None));
    };
    let kind = required(thinking.kind, "thinking.type")?;
    if thinking.budget_tokens.is_some() && kind.as_str() != "enabled" {
        let predicate = "is for thinking of the type enabled only";
        return Err(FieldFault::new("thinking.budget_tokens", predicate));
    }
    if let Some(display) = &thinking.display {
        check_at_most(display, MAX_DISPLAY_CHARS, "thinking.display")?;
    }
    asked.summary = thinking.display;
    match kind.as_str() {
        "enabled" => {
            let budget = required(thinking.budget_tokens, "thinking.budget_tokens")?;
            asked.budget_tokens = Some(budget);
        }
        "adaptive" => asked.adaptive = Some(true),
        "disabled" => {
            asked.effort = Some(ReasoningEffort::Off);
            return Ok((asked, word));
        }
        _ => {
            return Err(FieldFault::new(
                "thinking.type",
                "must be one of enabled, disabled, adaptive",
            ));
        }
    }
    Ok((asked, None))
}
