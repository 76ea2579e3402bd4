//! A request in this dialect.
//!
//! Some fields are omitted on purpose, and named as ignored, since they change neither the question nor its price:
//! reasoning without this upstream's signature, the detail level of an image, a schema's name, cache marks (it caches
//! prefixes by itself), and labels and hints of other dialects. The wish for calls one at a time is omitted, too: the
//! upstream has no field for it, and no client can rely on it with every model.

mod messages;
mod thinking;
mod tools;

use serde::Serialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::{Attachment, BodyPart, Failure, Request};
use weir_sdk::body::{self, Splices};
use weir_sdk::chat::{ChatRequest, ResponseFormat};
use weir_sdk::fields::is_advisory;
use weir_sdk::wire::{self, Fields, Ignored, refuse};

use super::images::ImageConfig;
use super::{DIALECT, PATH};
use messages::Content;
use thinking::ThinkingConfig;
use tools::{ToolConfig, ToolDeclarations};

/// Fields of a client of this dialect that pass unchanged. None changes the price, and none replaces a field that this
/// module writes.
const DIALECT_FIELDS: [&str; 3] = ["labels", "safetySettings", "store"];

pub(super) struct UpstreamRequest {
    pub(super) path: String,
    pub(super) body: Vec<BodyPart>,
    /// The names of omitted fields.
    pub(super) ignored: Vec<String>,
}

/// Writes the request.
///
/// # Errors
///
/// [`FailureKind::Unsupported`](weir_sdk::adapter::FailureKind::Unsupported) with the name of a field that the
/// dialect can't express.
pub(super) fn write(
    chat: &ChatRequest,
    image: Option<&ImageConfig>,
    request: &Request,
) -> Result<UpstreamRequest, Failure> {
    let splices = Splices::default();
    let mut context = Context {
        attachments: &request.attachments,
        client_speaks_it: request.client.dialect == DIALECT,
        splices: &splices,
        ignored: Ignored::default(),
    };
    let mut body = build_body(chat, &mut context)?;
    body.generation_config.image_config = image;
    let body = splices
        .write(&body, body::estimated_bytes(chat))
        .map_err(|error| Failure::unsupported(error.to_string()))?;
    Ok(UpstreamRequest {
        path: path(chat)?,
        body,
        ignored: context.ignored.into_names(),
    })
}

/// The inputs of a translation beside the translated piece, and its findings.
struct Context<'a> {
    attachments: &'a [Attachment],
    client_speaks_it: bool,
    splices: &'a Splices,
    ignored: Ignored,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[ToolDeclarations<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
    generation_config: GenerationConfig<'a>,
    #[serde(flatten)]
    extra: Fields<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_modalities: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_config: Option<&'a ImageConfig>,
}

fn build_body<'a>(chat: &'a ChatRequest, context: &mut Context<'a>) -> Result<Body<'a>, Failure> {
    let mut extra = Fields::default();
    for (name, json) in &chat.extra {
        if context.client_speaks_it && DIALECT_FIELDS.contains(&name.as_str()) {
            extra.add(name, wire::raw(name, json)?);
        } else if is_advisory(name) {
            context.ignored.add(name);
        } else {
            return Err(refuse(name, name));
        }
    }
    let format_words = match context.client_speaks_it {
        true => None,
        false => format_in_words(chat),
    };
    context
        .ignored
        .add_if(format_words.is_some(), "response_format");
    let format = match &format_words {
        Some(_) => &ResponseFormat::Text,
        None => &chat.response_format,
    };
    let (system_instruction, contents) = messages::translate(chat, format_words, context)?;
    let (tools, tool_config) = tools::translate(chat, context)?;
    Ok(Body {
        system_instruction,
        contents,
        tools: tools.map(|tools| [tools]),
        tool_config,
        generation_config: generation_config(chat, format, context)?,
        extra,
    })
}

/// Returns words for a JSON response, if the model takes no format beside functions: "Function calling with a response mime type:
/// 'application/json' is unsupported".
fn format_in_words(chat: &ChatRequest) -> Option<String> {
    if chat.tools.is_empty() || !thinking::is_before_3(&chat.model) {
        return None;
    }
    match &chat.response_format {
        ResponseFormat::Text => None,
        ResponseFormat::Json => Some("Answer with one JSON object and nothing else.".to_owned()),
        ResponseFormat::JsonSchema(schema) => Some(format!(
            "Answer with JSON and nothing else. It matches this schema: {}",
            schema.schema
        )),
    }
}

fn generation_config<'a>(
    chat: &'a ChatRequest,
    format: &'a ResponseFormat,
    context: &mut Context<'a>,
) -> Result<GenerationConfig<'a>, Failure> {
    let seed = chat
        .seed
        .map(|seed| i32::try_from(seed).map_err(|_| refuse("seed", "seed: more than 32 bits")));
    let (response_mime_type, response_json_schema) = match format {
        ResponseFormat::Text => (None, None),
        ResponseFormat::Json => (Some("application/json"), None),
        ResponseFormat::JsonSchema(schema) => {
            for (is_set, name) in [
                (schema.name.is_some(), "response_format.json_schema.name"),
                (
                    schema.description.is_some(),
                    "response_format.json_schema.description",
                ),
            ] {
                context.ignored.add_if(is_set, name);
            }
            let name = "response_format.json_schema.schema";
            let schema = wire::object(name, &schema.schema)?;
            (Some("application/json"), Some(schema))
        }
    };
    Ok(GenerationConfig {
        max_output_tokens: chat.max_output_tokens,
        temperature: chat.temperature,
        top_p: chat.top_p,
        top_k: chat.top_k,
        presence_penalty: chat.presence_penalty,
        frequency_penalty: chat.frequency_penalty,
        seed: seed.transpose()?,
        stop_sequences: &chat.stop,
        response_modalities: modalities(chat)?,
        response_mime_type,
        response_json_schema,
        thinking_config: thinking::translate(chat, context),
        image_config: None,
    })
}

/// Returns the modalities of the response in the upstream's terms; text alone is its default.
fn modalities(chat: &ChatRequest) -> Result<Vec<String>, Failure> {
    if chat.modalities.iter().all(|name| name == "text") {
        return Ok(Vec::new());
    }
    let known = |name: &String| match name.as_str() {
        "text" | "image" => Ok(name.to_ascii_uppercase()),
        _ => Err(refuse("modalities", format!("modalities: {name}"))),
    };
    chat.modalities.iter().map(known).collect()
}

fn path(chat: &ChatRequest) -> Result<String, Failure> {
    let model = &chat.model;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if model.is_empty() || !model.chars().all(is_allowed) {
        return Err(refuse(
            "model",
            "model: a name with other characters than letters, digits, -, _, . and @",
        ));
    }
    let method = if chat.stream {
        "streamGenerateContent?alt=sse"
    } else {
        "generateContent"
    };
    Ok(format!("{PATH}{model}:{method}"))
}
