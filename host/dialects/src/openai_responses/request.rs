//! The translation of a request: checks its settings, and converts them to the plugins' vocabulary.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{
    ChatRequest, Content, JsonSchema, ReasoningRequest, ResponseFormat, Role, ToolKind,
};

use super::input::{self, additional_tools, message, messages};
use super::tool_list;
use super::tools::{self, tool, tool_choice};
use super::wire::{self, ID_PREFIX};
use super::wire::{INCLUDED, MAX_SCHEMA_NAME_CHARS, MAX_SUMMARY_CHARS};
use super::{EchoedFields, NAME};
use crate::dialect::Preferences;
use crate::json::{
    self, FieldFault, Text, between, check_at_most, check_is_object, check_length, each, items,
    required, reread,
};
use crate::openai::{MAX_MODEL_CHARS, MAX_USER_CHARS, effort, says_nothing};
use crate::{Attachments, Chain, ChatCall, Dialect, MessageOrigin, plain};

/// Reads a Responses request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8]) -> Result<ChatCall, ApiError> {
    let body_bytes = body.len();
    let body = json::read(body)?;
    Ok(chat(body, body_bytes)?)
}

/// Reads a Responses request whose response is a chat completion. It has no id for later requests.
///
/// # Errors
///
/// Fails like [`read`].
pub(crate) fn read_for_chat(body: &[u8], preferences: Preferences) -> Result<ChatCall, ApiError> {
    let mut call = read(body)?;
    if let Some(chain) = call.chain.take() {
        let reference = chain
            .references
            .first()
            .map(|reference| reference.param.as_str());
        let previous = chain.previous.map(|_| chain.param);
        if let Some(param) = previous.or(reference) {
            let predicate = "must not refer to an earlier response at this endpoint";
            return Err(FieldFault::new(param, predicate).into());
        }
    }
    call.dialect = Dialect::OpenAiChat(preferences);
    Ok(call)
}

fn chat(
    mut body: wire::ResponsesRequestBody<'_>,
    body_bytes: usize,
) -> Result<ChatCall, FieldFault> {
    check_answered_at_once(&body)?;
    let model = required(body.model.take(), "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    if body.max_output_tokens == Some(0) {
        return Err(FieldFault::new("max_output_tokens", "must be at least 1"));
    }
    let defined = each(items(body.tools.take()), "tools", tool)?;
    let mut input = input::read(required(body.input.take(), "input")?)?;
    let added = additional_tools(&mut input)?;
    let echoed_tools = tools::echo(&defined);
    let (tools, names) = tool_list::flat(defined, added)?;
    let tool_choice = tool_choice(body.tool_choice, &tools)?;
    let text = body.text.take().unwrap_or_default();
    let asked = body.reasoning.take().unwrap_or_default();
    let mut extra = std::mem::take(&mut body.others).into_fields();
    let echo = EchoedFields {
        json: echo(&body, echoed_tools, &text, &asked, &extra),
        names: Arc::new(names),
    };
    extra.retain(|(name, json)| !says_nothing(name, json) && !is_default(name, json));
    extra.extend(
        text.verbosity
            .map(|word| ("verbosity".to_owned(), word.0.to_owned())),
    );
    // It bounds tools of the provider alone.
    let has_hosted = tools
        .iter()
        .any(|tool| matches!(tool.kind, ToolKind::BuiltIn(_)));
    let most_calls = body.max_tool_calls.filter(|_| has_hosted);
    extra.extend(most_calls.map(|most| ("max_tool_calls".to_owned(), most.to_string())));
    let mut attachments = Attachments::default();
    let input = messages(input, &echo.names, &mut attachments)?;
    let instructions = body.instructions.filter(|text| !text.is_empty());
    let chain = Chain {
        previous: body.previous_response_id,
        param: "previous_response_id",
        prefix: ID_PREFIX,
        is_kept: body.store != Some(false),
        leading: usize::from(instructions.is_some()),
        references: input.references,
    };
    let apart = instructions.iter().map(|_| MessageOrigin::Apart);
    let origins = apart.chain(input.origins).collect();
    let instructions = instructions.map(|text| {
        let part = plain(Content::Text(text));
        message(Role::System, vec![part])
    });
    let request = ChatRequest {
        model,
        messages: instructions.into_iter().chain(input.messages).collect(),
        tools,
        tool_choice,
        parallel_tool_calls: body.parallel_tool_calls,
        response_format: match text.format {
            Some(format) => reread(format)
                .and_then(response_format)
                .map_err(|fault| fault.within("text.format"))?,
            None => ResponseFormat::Text,
        },
        reasoning: reasoning(asked)?,
        modalities: Vec::new(),
        max_output_tokens: 0,
        temperature: between(body.temperature, 0, 2, "temperature")?,
        top_p: between(body.top_p, 0, 1, "top_p")?,
        top_k: None,
        presence_penalty: between(body.presence_penalty, -2, 2, "presence_penalty")?,
        frequency_penalty: between(body.frequency_penalty, -2, 2, "frequency_penalty")?,
        seed: None,
        stop: Vec::new(),
        extra,
        stream: body.stream == Some(true),
    };
    Ok(ChatCall {
        client: client(&request)?,
        request,
        attachments: attachments.into_vec(),
        origins,
        body_bytes,
        output_limit: body.max_output_tokens,
        output_limit_param: "max_output_tokens",
        needs_tools: false,
        chain: Some(chain),
        dialect: Dialect::OpenAiResponses(echo),
    })
}

/// Checks that the client wants an immediate response, of text without log probabilities.
fn check_answered_at_once(body: &wire::ResponsesRequestBody<'_>) -> Result<(), FieldFault> {
    if body.background == Some(true) {
        return Err(FieldFault::new("background", "is not supported"));
    }
    if body.top_logprobs.is_some_and(|count| count > 0) {
        return Err(FieldFault::new("top_logprobs", "is not supported"));
    }
    let options = body.stream_options.as_ref();
    if options.is_some_and(|options| options.include_obfuscation == Some(true)) {
        return Err(FieldFault::new(
            "stream_options.include_obfuscation",
            "is not supported",
        ));
    }
    let include = body.include.iter().flat_map(|include| &include.0);
    for (index, word) in include.enumerate() {
        if !INCLUDED.contains(&word.as_str()) {
            let fault = FieldFault::new("", "must be reasoning.encrypted_content");
            return Err(fault.at(index).within("include"));
        }
    }
    Ok(())
}

/// Whether an unknown field has its default value; other values are refused.
fn is_default(name: &str, json: &str) -> bool {
    name == "truncation" && json == "\"disabled\""
}

fn client(request: &ChatRequest) -> Result<Client, FieldFault> {
    let mut end_user = None;
    for field in ["user", "safety_identifier"] {
        let given = request.extra.iter().find(|(name, _)| name == field);
        let id = given.and_then(|(_, json)| serde_json::from_str::<String>(json).ok());
        if let Some(id) = &id {
            check_at_most(id, MAX_USER_CHARS, field)?;
        }
        end_user = end_user.or(id);
    }
    Ok(Client {
        dialect: NAME.into(),
        headers: Vec::new(),
        end_user,
    })
}

fn response_format(format: wire::TextFormat<'_>) -> Result<ResponseFormat, FieldFault> {
    let kind = required(format.kind, "type")?;
    if kind.as_str() == "json_schema" {
        let schema = required(format.schema, "schema")?.0;
        check_is_object(schema, "schema")?;
        if let Some(name) = &format.name {
            check_at_most(name, MAX_SCHEMA_NAME_CHARS, "name")?;
        }
        return Ok(ResponseFormat::JsonSchema(JsonSchema {
            name: format.name,
            description: format.description,
            strict: format.strict,
            schema: schema.to_owned(),
        }));
    }
    if format.schema.is_some() {
        return Err(FieldFault::new(
            "schema",
            "is for the type json_schema only",
        ));
    }
    match kind.as_str() {
        "text" => Ok(ResponseFormat::Text),
        "json_object" => Ok(ResponseFormat::Json),
        _ => Err(FieldFault::new(
            "type",
            "must be one of text, json_object, json_schema",
        )),
    }
}

fn reasoning(asked: wire::ReasoningOptions<'_>) -> Result<ReasoningRequest, FieldFault> {
    let summary = asked.summary.or(asked.generate_summary);
    if let Some(word) = &summary {
        check_at_most(word, MAX_SUMMARY_CHARS, "reasoning.summary")?;
    }
    Ok(ReasoningRequest {
        effort: effort(asked.effort.as_ref(), "reasoning.effort")?,
        budget_tokens: None,
        summary,
        adaptive: None,
    })
}

/// Returns the request's fields for the response, as OpenAI's schema of a response requires. Missing fields get the
/// defaults of OpenAI's own responses.
fn echo(
    body: &wire::ResponsesRequestBody<'_>,
    tools: String,
    text: &wire::TextConfig<'_>,
    reasoning: &wire::ReasoningOptions<'_>,
    extra: &[(String, String)],
) -> Arc<str> {
    let raw = |json: Option<json::Raw<'_>>, otherwise: &str| {
        json.map_or(otherwise, |json| json.0).to_owned()
    };
    let given = |name: &str, otherwise: &str| {
        let field = extra.iter().find(|(field, _)| field == name);
        field.map_or(otherwise, |(_, json)| json).to_owned()
    };
    let value = |value: Value| value.to_string();
    let summary = reasoning.summary.as_ref();
    let summary = summary.or(reasoning.generate_summary.as_ref());
    let effort = reasoning.effort.as_ref().map(Text::as_str);
    let fields = [
        ("instructions", value(body.instructions.as_deref().into())),
        (
            "previous_response_id",
            value(body.previous_response_id.as_deref().into()),
        ),
        ("tools", tools),
        ("tool_choice", raw(body.tool_choice, "\"auto\"")),
        (
            "parallel_tool_calls",
            value((body.parallel_tool_calls != Some(false)).into()),
        ),
        ("max_tool_calls", value(body.max_tool_calls.into())),
        (
            "text",
            format!(
                r#"{{"format":{},"verbosity":{}}}"#,
                raw(text.format, r#"{"type":"text"}"#),
                raw(text.verbosity, "\"medium\"")
            ),
        ),
        (
            "reasoning",
            value(serde_json::json!({ "effort": effort, "summary": summary })),
        ),
        ("max_output_tokens", value(body.max_output_tokens.into())),
        ("temperature", value(body.temperature.unwrap_or(1.0).into())),
        ("top_p", value(body.top_p.unwrap_or(1.0).into())),
        (
            "presence_penalty",
            value(body.presence_penalty.unwrap_or(0.0).into()),
        ),
        (
            "frequency_penalty",
            value(body.frequency_penalty.unwrap_or(0.0).into()),
        ),
        ("top_logprobs", value(0.into())),
        ("truncation", given("truncation", "\"disabled\"")),
        ("metadata", given("metadata", "{}")),
        ("store", value((body.store != Some(false)).into())),
        ("service_tier", given("service_tier", "\"default\"")),
        ("prompt_cache_key", given("prompt_cache_key", "null")),
        ("safety_identifier", given("safety_identifier", "null")),
        ("user", given("user", "null")),
    ];
    let mut json = String::new();
    for (name, value) in fields {
        let separator = if json.is_empty() { "" } else { "," };
        write!(json, "{separator}\"{name}\":{value}").expect("a String takes every byte");
    }
    // In JSON, line breaks occur only between tokens, and an empty line would end a stream's event.
    json.replace(['\n', '\r'], " ").into()
}
