//! The translation of a request: checks its settings, and converts them to the plugins' vocabulary.

use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{
    ChatRequest, JsonSchema, ReasoningEffort, ReasoningRequest, ResponseFormat,
};

use super::content::messages;
use super::schema::json_schema;
use super::tools::{tool_choice, tools};
use super::{NAME, bare_model, wire};
use crate::json::{
    self, FieldFault, Text, between, check_at_most, check_is_object, check_length, check_not_empty,
    each, items,
};
use crate::{Attachments, ChatCall, Dialect, StreamForm};

const MAX_MODEL_CHARS: usize = 256;

/// The field of the output limit.
const OUTPUT_LIMIT: &str = "generationConfig.maxOutputTokens";

/// Reads a request to the model of its path. `stream` has the form of a stream.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8], model: &str, stream: Option<StreamForm>) -> Result<ChatCall, ApiError> {
    let body_bytes = body.len();
    let body = json::read(body)?;
    Ok(chat(body, body_bytes, model, stream)?)
}

/// Reads a request to count tokens, which has contents or a complete request.
///
/// # Errors
///
/// Fails like [`read`].
pub fn read_count(body: &[u8], model: &str) -> Result<ChatCall, ApiError> {
    let body_bytes = body.len();
    let body: wire::CountRequestBody<'_> = json::read(body)?;
    let read = || {
        check_model(body.model.as_ref(), model)?;
        let Some(request) = body.request else {
            let mut request = wire::GenerateRequestBody::default();
            request.contents = body.contents;
            return chat(request, body_bytes, model, None);
        };
        if body.contents.is_some() {
            let predicate = "must not be given together with generateContentRequest";
            return Err(FieldFault::new("contents", predicate));
        }
        chat(request, body_bytes, model, None)
            .map_err(|fault| fault.within("generateContentRequest"))
    };
    Ok(read()?)
}

fn chat(
    body: wire::GenerateRequestBody<'_>,
    body_bytes: usize,
    model: &str,
    stream: Option<StreamForm>,
) -> Result<ChatCall, FieldFault> {
    check_length(model, MAX_MODEL_CHARS, "model")?;
    check_model(body.model.as_ref(), model)?;
    let mut attachments = Attachments::default();
    let (messages, origins) = messages(body.system_instruction, body.contents, &mut attachments)?;
    let mut tools = tools(body.tools)?;
    let tool_choice = tool_choice(body.tool_config, &mut tools)?;
    let config = body.generation_config.unwrap_or_default();
    let output_limit = config.max_output_tokens;
    let mut request = ChatRequest {
        model: model.to_owned(),
        messages,
        tools,
        tool_choice,
        parallel_tool_calls: None,
        response_format: ResponseFormat::Text,
        reasoning: ReasoningRequest {
            effort: None,
            budget_tokens: None,
            summary: None,
            adaptive: None,
        },
        modalities: Vec::new(),
        max_output_tokens: 0,
        temperature: None,
        top_p: None,
        top_k: None,
        presence_penalty: None,
        frequency_penalty: None,
        seed: None,
        stop: Vec::new(),
        extra: body.others.into_fields(),
        stream: stream.is_some(),
    };
    settings(config, &mut request).map_err(|fault| fault.within("generationConfig"))?;
    Ok(ChatCall {
        client: Client {
            dialect: NAME.into(),
            headers: Vec::new(),
            end_user: None,
        },
        request,
        attachments: attachments.into_vec(),
        origins,
        body_bytes,
        output_limit,
        output_limit_param: OUTPUT_LIMIT,
        needs_tools: false,
        chain: None,
        dialect: Dialect::GeminiGenerate(stream.unwrap_or(StreamForm::Events)),
    })
}

/// Checks the model's name in the body; it may be absent.
fn check_model(named: Option<&Text<'_>>, model: &str) -> Result<(), FieldFault> {
    let is_other = |named: &Text<'_>| bare_model(named.as_str()) != model;
    match named {
        Some(named) if is_other(named) => {
            Err(FieldFault::new("model", "must be the model of the path"))
        }
        _ => Ok(()),
    }
}

/// Translates the settings, with paths relative to their object.
fn settings(
    config: wire::GenerationConfig<'_>,
    request: &mut ChatRequest,
) -> Result<(), FieldFault> {
    if config.max_output_tokens == Some(0) {
        return Err(FieldFault::new("maxOutputTokens", "must be at least 1"));
    }
    if config.candidate_count.is_some_and(|count| count != 1) {
        return Err(FieldFault::new("candidateCount", "must be 1"));
    }
    request.temperature = between(config.temperature, 0, 2, "temperature")?;
    request.top_p = between(config.top_p, 0, 1, "topP")?;
    request.top_k = config.top_k.map(top_k).transpose()?;
    request.presence_penalty = between(config.presence_penalty, -2, 2, "presencePenalty")?;
    request.frequency_penalty = between(config.frequency_penalty, -2, 2, "frequencyPenalty")?;
    request.seed = config.seed;
    request.stop = each(items(config.stop_sequences), "stopSequences", |text| {
        check_not_empty(&text, "")?;
        check_at_most(&text, wire::MAX_STOP_CHARS, "")?;
        Ok(text)
    })?;
    request.modalities = each(
        items(config.response_modalities),
        "responseModalities",
        |name| {
            check_length(name.as_str(), wire::MAX_MODALITY_CHARS, "")?;
            Ok(name.as_str().to_ascii_lowercase())
        },
    )?;
    let mime_type = config.response_mime_type.as_ref().map(Text::as_str);
    request.response_format = response_format(
        mime_type,
        config.response_schema,
        config.response_json_schema,
    )?;
    if let Some(thinking) = config.thinking {
        request.reasoning = reasoning(thinking).map_err(|fault| fault.within("thinkingConfig"))?;
    }
    let others = config.others.into_fields().into_iter();
    let extra = others.map(|(name, json)| (format!("generationConfig.{name}"), json));
    request.extra.extend(extra);
    Ok(())
}

fn top_k(number: f64) -> Result<u32, FieldFault> {
    // `as` saturates, so another number differs from its conversion.
    let whole = number as u32;
    if whole == 0 || f64::from(whole) != number {
        return Err(FieldFault::new(
            "topK",
            "must be a whole number of at least 1",
        ));
    }
    Ok(whole)
}

fn response_format(
    mime_type: Option<&str>,
    schema: Option<json::Raw<'_>>,
    in_json_schema: Option<json::Raw<'_>>,
) -> Result<ResponseFormat, FieldFault> {
    if !matches!(mime_type, None | Some("text/plain" | "application/json")) {
        let predicate = "must be one of text/plain, application/json";
        return Err(FieldFault::new("responseMimeType", predicate));
    }
    let (schema, name) = match (schema, in_json_schema) {
        (Some(_), Some(_)) => {
            let predicate = "must not be given together with responseJsonSchema";
            return Err(FieldFault::new("responseSchema", predicate));
        }
        (Some(schema), None) => {
            let translated = json_schema(schema);
            let schema = translated.map_err(|fault| fault.within("responseSchema"))?;
            (schema, "responseSchema")
        }
        (None, Some(schema)) => {
            check_is_object(schema.0, "responseJsonSchema")?;
            (schema.0.to_owned(), "responseJsonSchema")
        }
        (None, None) if mime_type == Some("application/json") => return Ok(ResponseFormat::Json),
        (None, None) => return Ok(ResponseFormat::Text),
    };
    if mime_type == Some("text/plain") {
        let predicate = "is for responses in application/json only";
        return Err(FieldFault::new(name, predicate));
    }
    Ok(ResponseFormat::JsonSchema(JsonSchema {
        name: None,
        description: None,
        // Strict servers demand more of a schema than Google does.
        strict: None,
        schema,
    }))
}

fn reasoning(thinking: wire::ThinkingConfig<'_>) -> Result<ReasoningRequest, FieldFault> {
    let level = match thinking.level.as_ref().map(Text::as_str) {
        None | Some("THINKING_LEVEL_UNSPECIFIED") => None,
        Some("MINIMAL") => Some(ReasoningEffort::Minimal),
        Some("LOW") => Some(ReasoningEffort::Low),
        Some("MEDIUM") => Some(ReasoningEffort::Medium),
        Some("HIGH") => Some(ReasoningEffort::High),
        Some("XHIGH") => Some(ReasoningEffort::Highest),
        Some(_) => {
            let predicate = "must be one of MINIMAL, LOW, MEDIUM, HIGH, XHIGH";
            return Err(FieldFault::new("thinkingLevel", predicate));
        }
    };
    if level.is_some() && thinking.budget.is_some() {
        let predicate = "must not be given together with thinkingLevel";
        return Err(FieldFault::new("thinkingBudget", predicate));
    }
    let shown = thinking.include_thoughts;
    let mut asked = ReasoningRequest {
        effort: level,
        budget_tokens: None,
        summary: shown.map(|shown| if shown { "auto" } else { "omitted" }.to_owned()),
        adaptive: None,
    };
    match thinking.budget {
        None => {}
        // The model chooses.
        Some(-1) => asked.adaptive = Some(true),
        Some(0) => asked.effort = Some(ReasoningEffort::Off),
        Some(budget) => {
            let tokens = u32::try_from(budget);
            let tokens = tokens.map_err(|_| {
                FieldFault::new(
                    "thinkingBudget",
                    "must be -1, or an integer from 0 to 4294967295",
                )
            })?;
            asked.budget_tokens = Some(tokens);
        }
    }
    Ok(asked)
}
