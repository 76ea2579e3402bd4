//! A request in this dialect.
//!
//! Some fields are omitted on purpose, and named as ignored, since they change neither the question nor its price:
//! reasoning without this upstream's signature, the detail level of an image, and labels and hints of other dialects. The wish
//! for calls one at a time is omitted, too: the upstream has no field for it, and no client can rely on it with every model.

mod messages;
mod thinking;
mod tools;

use serde::Serialize;
use weir_sdk::adapter::{Attachment, BodyPart, Failure, Request};
use weir_sdk::body::{self, Splices};
use weir_sdk::chat::{CacheLifetime, ChatRequest, ResponseFormat};
use weir_sdk::fields::is_advisory;
use weir_sdk::fit::claude::{ClaudeModel, Sampling};
use weir_sdk::wire::{self, Ignored, refuse};

use super::options::Options;
use messages::{Block, WireMessage};
use thinking::ModelFields;
use tools::ToolConfig;

pub(super) struct UpstreamRequest {
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
    request: &Request,
    options: &Options,
) -> Result<UpstreamRequest, Failure> {
    let splices = Splices::default();
    let mut context = Context {
        attachments: &request.attachments,
        options,
        splices: &splices,
        document_names: Vec::new(),
        ignored: Ignored::default(),
    };
    let body = build_body(chat, &mut context)?;
    let body = splices
        .write(&body, body::estimated_bytes(chat))
        .map_err(|error| Failure::unsupported(error.to_string()))?;
    Ok(UpstreamRequest {
        body,
        ignored: context.ignored.into_names(),
    })
}

/// The inputs of a translation beside the translated piece, and its findings.
struct Context<'a> {
    attachments: &'a [Attachment],
    options: &'a Options,
    splices: &'a Splices,
    /// The names of documents so far: the upstream refuses a name that occurs twice.
    document_names: Vec<String>,
    ignored: Ignored,
}

impl Context<'_> {
    /// Returns the cache point behind a part or a tool with this mark.
    fn cache_point(&mut self, cache: Option<CacheLifetime>) -> Option<CachePoint> {
        let lifetime = cache?;
        if self.options.is_without_cache {
            self.ignored.add("cache_control");
            return None;
        }
        Some(CachePoint {
            kind: "default",
            ttl: match lifetime {
                CacheLifetime::Short => None,
                CacheLifetime::Long => Some("1h"),
            },
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<WireMessage<'a>>,
    inference_config: InferenceConfig<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    additional_model_request_fields: Option<ModelFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InferenceConfig<'a> {
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text_format: Option<TextFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
}

#[derive(Serialize)]
struct TextFormat<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    structure: Structure<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Structure<'a> {
    json_schema: SchemaText<'a>,
}

/// A schema, which is JSON within a string.
#[derive(Serialize)]
struct SchemaText<'a> {
    schema: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
}

/// The end of a part of the prompt that the upstream caches.
#[derive(Clone, Copy, Serialize)]
struct CachePoint {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

fn build_body<'a>(chat: &'a ChatRequest, context: &mut Context<'a>) -> Result<Body<'a>, Failure> {
    refuse_unsupported_fields(chat, context)?;
    let (thinking, effort) = thinking::translate(chat, context);
    let sampling = Sampling {
        temperature: chat.temperature,
        top_p: chat.top_p,
        top_k: None,
    };
    let sampling = sampling.fit(
        ClaudeModel::of(&chat.model),
        !context.options.is_without_sampling,
        thinking.as_ref().is_some_and(ModelFields::is_on),
        &mut context.ignored,
    );
    let text_format = text_format(chat)?;
    let (system, messages) = messages::translate(chat, context)?;
    let has_output_config = text_format.is_some() || effort.is_some();
    Ok(Body {
        system,
        messages,
        inference_config: InferenceConfig {
            max_tokens: chat.max_output_tokens,
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            stop_sequences: &chat.stop,
        },
        tool_config: tools::translate(chat, context)?,
        additional_model_request_fields: thinking,
        output_config: has_output_config.then_some(OutputConfig {
            text_format,
            effort,
        }),
    })
}

fn refuse_unsupported_fields(chat: &ChatRequest, context: &mut Context<'_>) -> Result<(), Failure> {
    if let Some(modality) = chat.modalities.iter().find(|name| *name != "text") {
        return Err(refuse("modalities", format!("modalities: {modality}")));
    }
    // A penalty of 0 has no effect.
    let is_penalty = |penalty: Option<f64>| penalty.is_some_and(|penalty| penalty != 0.0);
    for (name, is_set) in [
        ("top_k", chat.top_k.is_some()),
        ("presence_penalty", is_penalty(chat.presence_penalty)),
        ("frequency_penalty", is_penalty(chat.frequency_penalty)),
        ("seed", chat.seed.is_some()),
    ] {
        if is_set {
            return Err(refuse(name, name));
        }
    }
    for (name, _) in &chat.extra {
        if !is_advisory(name) {
            return Err(refuse(name, name));
        }
        context.ignored.add(name);
    }
    Ok(())
}

fn text_format(chat: &ChatRequest) -> Result<Option<TextFormat<'_>>, Failure> {
    Ok(match &chat.response_format {
        ResponseFormat::Text => None,
        // The upstream needs the object's schema.
        ResponseFormat::Json => {
            let what = "response_format: a JSON object without a schema";
            return Err(refuse("response_format", what));
        }
        ResponseFormat::JsonSchema(schema) => {
            let schema_json = wire::object("response_format.json_schema.schema", &schema.schema)?;
            Some(TextFormat {
                kind: "json_schema",
                structure: Structure {
                    json_schema: SchemaText {
                        schema: schema_json.get(),
                        name: schema.name.as_deref(),
                        description: schema.description.as_deref(),
                    },
                },
            })
        }
    })
}
