//! A request in this dialect.
//!
//! Some fields are omitted on purpose, and named as ignored, since they change neither the question nor its price:
//! reasoning without this upstream's signature (the upstream accepts no other), the detail level of an image, a
//! schema's name, and labels and hints of other dialects.

mod messages;
mod thinking;
mod tools;

use serde::Serialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::{Attachment, BodyPart, Failure, Header, Request};
use weir_sdk::body::{self, Splices};
use weir_sdk::chat::{CacheLifetime, ChatRequest, ExtraField, ResponseFormat};
use weir_sdk::failure;
use weir_sdk::fields::is_advisory;
use weir_sdk::fit::claude::{ClaudeModel, Sampling};
use weir_sdk::path::encode_segment;
use weir_sdk::wire::{self, Fields, Ignored, refuse};

use super::fit;
use super::options::{Options, Platform};
use super::{BEDROCK_PATH, DIALECT, MESSAGES_PATH, VERTEX_PATH};
use messages::{MessageContent, WireMessage};
use thinking::Thinking;
use tools::{Tool, ToolChoice};

/// The API version of this code.
const VERSION: &str = "2023-06-01";

/// The same version on other platforms. A client's later version is the same word on all platforms (anthropic 2.14.0,
/// `lib/bedrock/_client.py`, `lib/vertex/_client.py`).
const VERTEX_VERSION: &str = "vertex-2023-10-16";
const BEDROCK_VERSION: &str = "bedrock-2023-05-31";

/// The beta that uploaded files need.
const FILES_BETA: &str = "files-api-2025-04-14";

/// Fields that this module writes, which cannot be extra fields.
const OWN_FIELDS: [&str; 14] = [
    "model",
    "max_tokens",
    "system",
    "messages",
    "tools",
    "tool_choice",
    "thinking",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "stream",
    "anthropic_version",
    "anthropic_beta",
];

/// Such fields of `output_config`, and of `metadata`.
const OUTPUT_FIELDS: [&str; 2] = ["effort", "format"];

pub(super) struct UpstreamRequest {
    pub(super) path: String,
    pub(super) headers: Vec<Header>,
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
pub(super) fn write<'a>(
    chat: &'a ChatRequest,
    request: &'a Request,
    options: &Options<'a>,
) -> Result<UpstreamRequest, Failure> {
    let splices = Splices::default();
    let mut context = Context {
        attachments: &request.attachments,
        client_speaks_it: request.client.dialect == DIALECT,
        splices: &splices,
        ignored: Ignored::default(),
        needs_files_beta: false,
    };
    let mut body = build_body(chat, request, options, &mut context)?;
    let betas = betas(request, options, &mut context);
    let version = version(request, options, &context);
    let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    match options.platform {
        Platform::Anthropic => {
            body.model = Some(&chat.model);
            headers.push(("anthropic-version".to_owned(), version.to_owned()));
        }
        Platform::Vertex => body.anthropic_version = Some(version),
        Platform::Bedrock => {
            body.anthropic_version = Some(version);
            body.anthropic_beta.clone_from(&betas);
            // The path says it.
            body.stream = false;
        }
    }
    if !betas.is_empty() && options.platform != Platform::Bedrock {
        headers.push(("anthropic-beta".to_owned(), betas.join(",")));
    }
    let body = splices
        .write(&body, body::estimated_bytes(chat))
        .map_err(|error| Failure::unsupported(error.to_string()))?;
    Ok(UpstreamRequest {
        path: path(chat, options),
        headers,
        body,
        ignored: context.ignored.into_names(),
    })
}

/// The inputs of a translation beside the translated piece, and its findings.
struct Context<'a> {
    attachments: &'a [Attachment],
    /// The client speaks this dialect: fields outside the vocabulary pass unchanged.
    client_speaks_it: bool,
    splices: &'a Splices,
    ignored: Ignored,
    needs_files_beta: bool,
}

impl Context<'_> {
    /// Returns the fields that a client of this dialect wrote beside those of the vocabulary. `at` is their place,
    /// `own` the fields that this module writes.
    fn extra<'a>(
        &mut self,
        extra: &'a [ExtraField],
        own: &[&str],
        at: &str,
    ) -> Result<Fields<'a>, Failure> {
        if !self.client_speaks_it {
            wire::leave_out_extra(extra, at, &mut self.ignored)?;
            return Ok(Fields::default());
        }
        Fields::read(extra, own, at)
    }
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anthropic_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    anthropic_beta: Vec<&'a str>,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<MessageContent<'a>>,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata<'a>>,
    #[serde(skip_serializing_if = "is_false")]
    stream: bool,
    #[serde(flatten)]
    extra: Fields<'a>,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<OutputFormat<'a>>,
    #[serde(flatten)]
    extra: Fields<'a>,
}

#[derive(Serialize)]
struct OutputFormat<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'a RawValue,
}

#[derive(Serialize)]
struct Metadata<'a> {
    user_id: &'a str,
}

/// The end of a part of the prompt that the upstream caches.
#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    /// Returns the mark, unless a client of this dialect has written a more specific one.
    fn beside(extra: &[ExtraField], cache: Option<CacheLifetime>) -> Option<Self> {
        let cache = cache.filter(|_| extra.iter().all(|(name, _)| name != "cache_control"));
        cache.map(|lifetime| Self {
            kind: "ephemeral",
            ttl: match lifetime {
                CacheLifetime::Short => None,
                CacheLifetime::Long => Some("1h"),
            },
        })
    }
}

fn build_body<'a>(
    chat: &'a ChatRequest,
    request: &'a Request,
    options: &Options<'_>,
    context: &mut Context<'a>,
) -> Result<Body<'a>, Failure> {
    refuse_unsupported_fields(chat)?;
    let mut extra = extra(chat, context)?;
    let (thinking, effort) = thinking::translate(chat, options, context);
    let sampling = Sampling {
        temperature: chat.temperature,
        top_p: chat.top_p,
        top_k: chat.top_k,
    };
    // A client of this dialect knows what its model takes.
    let sampling = match context.client_speaks_it && !options.is_without_sampling {
        true => sampling,
        false => sampling.fit(
            ClaudeModel::of(&chat.model),
            !options.is_without_sampling,
            thinking.as_ref().is_some_and(Thinking::is_on),
            &mut context.ignored,
        ),
    };
    let output = extra.take("output_config");
    let output_config = output_config(chat, effort, output, context)?;
    let (system, messages) = messages::translate(chat, context)?;
    let (tools, tool_choice) = tools::translate(chat, context)?;
    let end_user = request.client.end_user.as_deref();
    // A client of this dialect puts it into its own metadata.
    let metadata = end_user.filter(|_| !context.client_speaks_it);
    Ok(Body {
        model: None,
        anthropic_version: None,
        anthropic_beta: Vec::new(),
        max_tokens: chat.max_output_tokens,
        system,
        messages,
        tools,
        tool_choice,
        thinking,
        output_config,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        top_k: sampling.top_k,
        stop_sequences: &chat.stop,
        metadata: metadata.map(|user_id| Metadata { user_id }),
        stream: chat.stream,
        extra,
    })
}

fn refuse_unsupported_fields(chat: &ChatRequest) -> Result<(), Failure> {
    if let Some(modality) = chat.modalities.iter().find(|name| *name != "text") {
        return Err(refuse("modalities", format!("modalities: {modality}")));
    }
    // A penalty of 0 has no effect.
    for (name, is_set) in [
        (
            "presence_penalty",
            chat.presence_penalty.is_some_and(|penalty| penalty != 0.0),
        ),
        (
            "frequency_penalty",
            chat.frequency_penalty.is_some_and(|penalty| penalty != 0.0),
        ),
        ("seed", chat.seed.is_some()),
    ] {
        if is_set {
            return Err(refuse(name, name));
        }
    }
    Ok(())
}

/// Returns the request's own extra fields: all for a client of this dialect, because the host has refused those whose cost
/// it does not know; for other clients, none.
fn extra<'a>(chat: &'a ChatRequest, context: &mut Context<'a>) -> Result<Fields<'a>, Failure> {
    if context.client_speaks_it {
        return Fields::read(&chat.extra, &OWN_FIELDS, "");
    }
    for (name, json) in &chat.extra {
        if !is_advisory(name) {
            return Err(refuse(name, name));
        }
        // A user as text is the end user, who has a field.
        context
            .ignored
            .add_if(name != "user" || !json.starts_with('"'), name);
    }
    Ok(Fields::default())
}

fn output_config<'a>(
    chat: &'a ChatRequest,
    effort: Option<&'static str>,
    client_config: Option<&'a RawValue>,
    context: &mut Context<'a>,
) -> Result<Option<OutputConfig<'a>>, Failure> {
    let format = match &chat.response_format {
        ResponseFormat::Text => None,
        // The upstream needs the object's schema.
        ResponseFormat::Json => {
            let what = "response_format: a JSON object without a schema";
            return Err(refuse("response_format", what));
        }
        ResponseFormat::JsonSchema(schema) => {
            let name = "response_format.json_schema.name";
            context.ignored.add_if(schema.name.is_some(), name);
            let description = "response_format.json_schema.description";
            context
                .ignored
                .add_if(schema.description.is_some(), description);
            Some(OutputFormat {
                kind: "json_schema",
                schema: wire::object("response_format.json_schema.schema", &schema.schema)?,
            })
        }
    };
    let extra = match client_config {
        None => Fields::default(),
        Some(client_config) => {
            // A field of the vocabulary has precedence over an extra field.
            let own: &[&str] = match (effort, &format) {
                (None, None) => &[],
                (Some(_), None) => &OUTPUT_FIELDS[..1],
                (None, Some(_)) => &OUTPUT_FIELDS[1..],
                (Some(_), Some(_)) => &OUTPUT_FIELDS,
            };
            Fields::of_object(client_config.get(), own, "output_config")?
        }
    };
    let has_config = effort.is_some() || format.is_some() || !extra.is_empty();
    Ok(has_config.then_some(OutputConfig {
        effort,
        format,
        extra,
    }))
}

/// Returns the path of the request. On other platforms than Anthropic's, it has the model.
fn path(chat: &ChatRequest, options: &Options<'_>) -> String {
    let model = encode_segment(&chat.model);
    match (options.platform, chat.stream) {
        (Platform::Anthropic, _) => MESSAGES_PATH.to_owned(),
        // Google's names have `@` before a date.
        (Platform::Vertex, stream) => {
            let model = model.replace("%40", "@");
            let method = if stream {
                "streamRawPredict"
            } else {
                "rawPredict"
            };
            format!("{VERTEX_PATH}{model}:{method}")
        }
        (Platform::Bedrock, false) => format!("{BEDROCK_PATH}{model}/invoke"),
        (Platform::Bedrock, true) => {
            format!("{BEDROCK_PATH}{model}/invoke-with-response-stream")
        }
    }
}

/// Returns the request's headers of a client of this dialect.
fn client_headers<'a>(request: &'a Request, context: &Context<'_>) -> &'a [Header] {
    if context.client_speaks_it {
        &request.client.headers
    } else {
        &[]
    }
}

fn version<'a>(request: &'a Request, options: &Options<'_>, context: &Context<'_>) -> &'a str {
    let requested = failure::header(client_headers(request, context), "anthropic-version");
    match (requested.unwrap_or(VERSION), options.platform) {
        (VERSION, Platform::Vertex) => VERTEX_VERSION,
        (VERSION, Platform::Bedrock) => BEDROCK_VERSION,
        (version, _) => version,
    }
}

/// Returns the betas of the client that the platform knows, the operator's, and those that the request needs.
fn betas<'a>(
    request: &'a Request,
    options: &Options<'a>,
    context: &mut Context<'_>,
) -> Vec<&'a str> {
    let mut betas: Vec<&str> = Vec::new();
    let of_client = client_headers(request, context)
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("anthropic-beta"))
        .flat_map(|(_, value)| value.split(','));
    let known = of_client.filter_map(|beta| {
        let beta = beta.trim();
        let on_platform = fit::beta_on(options.platform, beta);
        let is_unknown = on_platform.is_none() && !beta.is_empty();
        context
            .ignored
            .add_if(is_unknown, &format!("anthropic-beta:{beta}"));
        on_platform
    });
    let known: Vec<_> = known.collect();
    let needed = context.needs_files_beta.then_some(FILES_BETA);
    for beta in known.into_iter().chain(options.betas()).chain(needed) {
        if !beta.is_empty() && !betas.contains(&beta) {
            betas.push(beta);
        }
    }
    betas
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "what serde calls takes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}
