//! A request in this dialect, written straight into the bytes that are sent.
//!
//! What has no place in the dialect is refused while writing: a refusal travels as the
//! serializer's error, so that the messages are walked once and no tree is built.
//!
//! Four things are left out on purpose, since they change neither the question nor its price:
//! cache hints (OpenAI caches prefixes by itself), signatures (this dialect gives none), and,
//! unless the option `reasoning-field` says where it goes, the reasoning of earlier turns, open
//! or sealed: refusing it would end every conversation with a reasoning model at its second turn.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use weir_sdk::adapter::{Failure, Setting};
use weir_sdk::chat::{
    Blob, ChatRequest, Content, File, Image, ImageDetail, ImageSource, JsonSchema, Message,
    ReasoningRequest, ResponseFormat, Role, ToolCall, ToolChoice, ToolContent, ToolDefinition,
    ToolResult,
};

/// The names of the options.
pub(super) const OPTIONS: [&str; 4] = [
    "output-limit-field",
    "stream-usage",
    "reasoning-field",
    "pass-fields",
];

/// Fields beyond the vocabulary that pass as they are: none changes the price, has data kept that
/// otherwise would not be, or asks for an answer that [`answer`](super::answer) can't read. Thus
/// neither `prediction`, whose rejected tokens are billed as output, nor `prompt_cache_retention`.
const PASSED_FIELDS: [&str; 6] = [
    "user",
    "metadata",
    "logit_bias",
    "verbosity",
    "prompt_cache_key",
    "safety_identifier",
];

/// Fields that no option lets through. Those that this module writes would appear twice, and
/// which of two output limits a server takes decides who pays; of several choices one is read.
const OWN_FIELDS: [&str; 20] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "max_completion_tokens",
    "max_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "n",
    "functions",
    "function_call",
];

/// What the operator set for the upstream.
#[derive(Debug)]
pub(super) struct Options<'a> {
    output_limit_field: &'a str,
    stream_usage: bool,
    reasoning_field: Option<&'a str>,
    pass_fields: Vec<&'a str>,
}

impl<'a> Options<'a> {
    pub(super) fn parse(settings: &'a [Setting]) -> Result<Self, Failure> {
        let mut options = Self {
            output_limit_field: "max_completion_tokens",
            stream_usage: true,
            reasoning_field: None,
            pass_fields: Vec::new(),
        };
        for (name, value) in settings {
            match (name.as_str(), value.as_str()) {
                ("output-limit-field", "max_completion_tokens" | "max_tokens") => {
                    options.output_limit_field = value;
                }
                ("stream-usage", "true") => options.stream_usage = true,
                ("stream-usage", "false") => options.stream_usage = false,
                ("reasoning-field", "none") => options.reasoning_field = None,
                ("reasoning-field", "reasoning_content" | "reasoning") => {
                    options.reasoning_field = Some(value);
                }
                ("pass-fields", names) => {
                    options.pass_fields = names
                        .split(',')
                        .map(str::trim)
                        .filter(|name| !name.is_empty())
                        .collect();
                    if let Some(own) = options
                        .pass_fields
                        .iter()
                        .find(|name| OWN_FIELDS.contains(name))
                    {
                        return Err(Failure::Unsupported(format!(
                            "option pass-fields: {own} is the adapter's own"
                        )));
                    }
                }
                _ => {
                    return Err(Failure::Unsupported(format!("option {name}: {value:?}")));
                }
            }
        }
        Ok(options)
    }

    fn passes(&self, field: &str) -> bool {
        self.pass_fields.contains(&field)
    }
}

/// The body of the request.
///
/// # Errors
///
/// [`Failure::Unsupported`] with the name of what the dialect can't express.
pub(super) fn write(chat: &ChatRequest, options: &Options) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::with_capacity(estimated_bytes(chat));
    serde_json::to_writer(&mut body, &Body { chat, options })
        .map_err(|refusal| Failure::Unsupported(refusal.to_string()))?;
    Ok(body)
}

/// Roughly the body's size, rather above than below: a buffer that grows holds its content
/// twice, and images may be a third of a guest's memory.
fn estimated_bytes(chat: &ChatRequest) -> usize {
    let base64 = |data: &[u8]| data.len().div_ceil(3) * 4;
    let image = |image: &Image| match &image.source {
        ImageSource::Url(url) => url.len(),
        ImageSource::Inline(blob) => base64(&blob.data),
    };
    let part = |content: &Content| match content {
        // A little more for what is escaped: line ends and quotes.
        Content::Text(text) => text.len() + text.len() / 16,
        Content::Image(content) => image(content),
        Content::File(file) => base64(&file.data),
        Content::Reasoning(text) | Content::RedactedReasoning(text) => text.len(),
        // Arguments are JSON in a JSON string: every quote is escaped.
        Content::ToolCall(call) => call.arguments.len() + call.arguments.len() / 4,
        Content::ToolResult(result) => result
            .content
            .iter()
            .map(|content| match content {
                ToolContent::Text(text) => text.len() + text.len() / 8,
                ToolContent::Image(content) => image(content),
            })
            .sum(),
    };
    let messages: usize = chat
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .map(|content| part(&content.content) + 128)
        .sum();
    let tools: usize = chat
        .tools
        .iter()
        .map(|tool| {
            tool.input_schema.len() + tool.description.as_ref().map_or(0, String::len) + 128
        })
        .sum();
    messages + tools + 1024
}

struct Body<'a> {
    chat: &'a ChatRequest,
    options: &'a Options<'a>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { chat, options } = *self;
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("model", &chat.model)?;
        body.serialize_entry("messages", &Messages { chat, options })?;
        if !chat.tools.is_empty() {
            body.serialize_entry("tools", &Tools(&chat.tools))?;
            // The upstream refuses both of these beside no tools, where they mean nothing.
            if let Some(parallel) = chat.parallel_tool_calls {
                body.serialize_entry("parallel_tool_calls", &parallel)?;
            }
            if matches!(chat.tool_choice, ToolChoice::None) {
                body.serialize_entry("tool_choice", "none")?;
            }
        }
        match &chat.tool_choice {
            // `auto` is the upstream's default; without tools, so is `none`.
            ToolChoice::Auto | ToolChoice::None => {}
            ToolChoice::Required => body.serialize_entry("tool_choice", "required")?,
            ToolChoice::Named(name) => body.serialize_entry(
                "tool_choice",
                &Function {
                    kind: "function",
                    function: Named { name },
                },
            )?,
        }
        match &chat.response_format {
            ResponseFormat::Text => {}
            ResponseFormat::Json => {
                body.serialize_entry(
                    "response_format",
                    &Kind {
                        kind: "json_object",
                    },
                )?;
            }
            ResponseFormat::JsonSchema(JsonSchema {
                name,
                description,
                strict,
                schema,
            }) => body.serialize_entry(
                "response_format",
                &JsonSchemaFormat {
                    kind: "json_schema",
                    json_schema: NamedSchema {
                        // Required here, unlike in the vocabulary.
                        name: name.as_deref().unwrap_or("response"),
                        description: description.as_deref(),
                        strict: *strict,
                        schema: Raw {
                            field: "response_format.json_schema.schema",
                            json: schema,
                        },
                    },
                },
            )?,
        }
        if let Some(effort) = reasoning_effort(chat.reasoning)? {
            body.serialize_entry("reasoning_effort", effort)?;
        }
        body.serialize_entry(options.output_limit_field, &chat.max_output_tokens)?;
        entry_if(&mut body, "temperature", chat.temperature)?;
        entry_if(&mut body, "top_p", chat.top_p)?;
        if chat.top_k.is_some() && !options.passes("top_k") {
            return Err(S::Error::custom("top_k"));
        }
        entry_if(&mut body, "top_k", chat.top_k)?;
        entry_if(&mut body, "presence_penalty", chat.presence_penalty)?;
        entry_if(&mut body, "frequency_penalty", chat.frequency_penalty)?;
        entry_if(&mut body, "seed", chat.seed)?;
        if !chat.stop.is_empty() {
            body.serialize_entry("stop", &chat.stop)?;
        }
        if chat.stream {
            body.serialize_entry("stream", &true)?;
            if options.stream_usage {
                body.serialize_entry(
                    "stream_options",
                    &StreamOptions {
                        include_usage: true,
                    },
                )?;
            }
        }
        for (name, json) in &chat.extra {
            if !PASSED_FIELDS.contains(&name.as_str()) && !options.passes(name) {
                return Err(S::Error::custom(name));
            }
            body.serialize_entry(name, &Raw { field: name, json })?;
        }
        body.end()
    }
}

fn entry_if<M: SerializeMap>(
    map: &mut M,
    name: &str,
    value: Option<impl Serialize>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(name, &value),
        None => Ok(()),
    }
}

fn reasoning_effort<E: serde::ser::Error>(
    reasoning: ReasoningRequest,
) -> Result<Option<&'static str>, E> {
    Ok(Some(match reasoning {
        ReasoningRequest::Unspecified => return Ok(None),
        ReasoningRequest::Off => "none",
        ReasoningRequest::Minimal => "minimal",
        ReasoningRequest::Low => "low",
        ReasoningRequest::Medium => "medium",
        ReasoningRequest::High => "high",
        ReasoningRequest::Highest => "xhigh",
        ReasoningRequest::Budget(_) => return Err(E::custom("reasoning budget in tokens")),
    }))
}

struct Messages<'a> {
    chat: &'a ChatRequest,
    options: &'a Options<'a>,
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut messages = serializer.serialize_seq(None)?;
        for (index, message) in self.chat.messages.iter().enumerate() {
            let at = At { index, message };
            match message.role {
                Role::System | Role::User => messages.serialize_element(&SpokenMessage { at })?,
                Role::Assistant => messages.serialize_element(&AssistantMessage {
                    at,
                    reasoning_field: self.options.reasoning_field,
                })?,
                // Here, each result is a message of its own.
                Role::Tool => {
                    for part in &message.parts {
                        let Content::ToolResult(result) = &part.content else {
                            return Err(at.refuse(&part.content));
                        };
                        messages.serialize_element(&ToolMessage { at, result })?;
                    }
                }
            }
        }
        messages.end()
    }
}

/// A message and its place in the request, so that a refusal can say where it is.
#[derive(Clone, Copy)]
struct At<'a> {
    index: usize,
    message: &'a Message,
}

impl<'a> At<'a> {
    fn parts(self) -> impl Iterator<Item = &'a Content> {
        self.message.parts.iter().map(|part| &part.content)
    }

    fn refuse<E: serde::ser::Error>(self, content: &Content) -> E {
        self.refuse_named(match content {
            Content::Text(_) => "text",
            Content::Image(_) => "an image",
            Content::File(_) => "a file",
            Content::Reasoning(_) | Content::RedactedReasoning(_) => "reasoning",
            Content::ToolCall(_) => "a tool call",
            Content::ToolResult(_) => "a tool result",
        })
    }

    fn refuse_named<E: serde::ser::Error>(self, what: &str) -> E {
        let role = match self.message.role {
            Role::System => "a system",
            Role::User => "a user",
            Role::Assistant => "an assistant",
            Role::Tool => "a tool",
        };
        E::custom(format_args!(
            "messages[{}]: {what} in {role} message",
            self.index
        ))
    }
}

/// What the system or a user says.
struct SpokenMessage<'a> {
    at: At<'a>,
}

impl Serialize for SpokenMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = self.at;
        let is_user = at.message.role == Role::User;
        for content in at.parts() {
            match content {
                Content::Text(_) => {}
                Content::Image(_) if is_user => {}
                Content::File(file) if is_user => {
                    if file.media_type != "application/pdf" {
                        return Err(at.refuse_named(&format!("a file of type {}", file.media_type)));
                    }
                }
                other => return Err(at.refuse(other)),
            }
        }
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", if is_user { "user" } else { "system" })?;
        entry_if(&mut message, "name", at.message.name.as_deref())?;
        message.serialize_entry("content", &Parts { at })?;
        message.end()
    }
}

struct AssistantMessage<'a> {
    at: At<'a>,
    reasoning_field: Option<&'a str>,
}

impl Serialize for AssistantMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = self.at;
        let (mut has_text, mut has_calls) = (false, false);
        for content in at.parts() {
            match content {
                Content::Text(_) => has_text = true,
                Content::ToolCall(_) => has_calls = true,
                Content::Reasoning(_) | Content::RedactedReasoning(_) => {}
                other => return Err(at.refuse(other)),
            }
        }
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", "assistant")?;
        entry_if(&mut message, "name", at.message.name.as_deref())?;
        if has_text || !has_calls {
            message.serialize_entry("content", &Parts { at })?;
        } else {
            // As the upstream itself writes it; some servers insist on the field.
            message.serialize_entry("content", &())?;
        }
        if let Some(field) = self.reasoning_field {
            let reasoning: String = at
                .parts()
                .filter_map(|content| match content {
                    Content::Reasoning(text) => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            if !reasoning.is_empty() {
                message.serialize_entry(field, &reasoning)?;
            }
        }
        if has_calls {
            message.serialize_entry("tool_calls", &ToolCalls { at })?;
        }
        message.end()
    }
}

/// A message's text, images and files: one text as a string, which every server understands,
/// anything else as a list.
struct Parts<'a> {
    at: At<'a>,
}

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut parts = self.at.parts().filter_map(|content| match content {
            Content::Text(text) => Some(Part::Text { text }),
            Content::Image(image) => Some(Part::ImageUrl {
                image_url: ImageUrl {
                    url: match &image.source {
                        ImageSource::Url(url) => Url::Remote(url),
                        ImageSource::Inline(Blob { media_type, data }) => {
                            Url::Data { media_type, data }
                        }
                    },
                    detail: image.detail.map(|detail| match detail {
                        ImageDetail::Low => "low",
                        ImageDetail::High => "high",
                    }),
                },
            }),
            Content::File(File {
                name,
                media_type,
                data,
            }) => Some(Part::File {
                file: NamedFile {
                    // Required here, unlike in the vocabulary.
                    filename: name.as_deref().unwrap_or("document.pdf"),
                    file_data: Url::Data { media_type, data },
                },
            }),
            _ => None,
        });
        let (first, second) = (parts.next(), parts.next());
        match (&first, &second) {
            (None, _) => serializer.serialize_str(""),
            (Some(Part::Text { text }), None) => serializer.serialize_str(text),
            _ => serializer.collect_seq(first.into_iter().chain(second).chain(parts)),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl<'a> },
    File { file: NamedFile<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Url<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

#[derive(Serialize)]
struct NamedFile<'a> {
    filename: &'a str,
    file_data: Url<'a>,
}

enum Url<'a> {
    Remote(&'a str),
    Data { media_type: &'a str, data: &'a [u8] },
}

impl Serialize for Url<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Remote(url) => serializer.serialize_str(url),
            // Encoded into the body piece by piece: the whole of it exists only there.
            Self::Data { media_type, data } => serializer.collect_str(&format_args!(
                "data:{media_type};base64,{}",
                Base64Display::new(data, &STANDARD)
            )),
        }
    }
}

struct ToolCalls<'a> {
    at: At<'a>,
}

impl Serialize for ToolCalls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.at.parts().filter_map(|content| match content {
            Content::ToolCall(ToolCall {
                id,
                name,
                arguments,
            }) => Some(WireToolCall {
                id,
                kind: "function",
                function: CalledFunction { name, arguments },
            }),
            _ => None,
        }))
    }
}

#[derive(Serialize)]
struct WireToolCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    /// JSON in a string, as the model wrote it.
    arguments: &'a str,
}

struct ToolMessage<'a> {
    at: At<'a>,
    result: &'a ToolResult,
}

impl Serialize for ToolMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, result } = *self;
        // The dialect has no flag for an error, so the model is told in words.
        let mut texts: Vec<&str> = Vec::with_capacity(result.content.len() + 1);
        if result.is_error {
            texts.push("The tool failed.");
        }
        for content in &result.content {
            match content {
                ToolContent::Text(text) => texts.push(text),
                ToolContent::Image(_) => return Err(at.refuse_named("an image")),
            }
        }
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", "tool")?;
        entry_if(&mut message, "name", at.message.name.as_deref())?;
        message.serialize_entry("tool_call_id", &result.call_id)?;
        // Many servers take only a string here; a line between the parts keeps them apart.
        match texts[..] {
            [] => message.serialize_entry("content", "")?,
            [text] => message.serialize_entry("content", text)?,
            _ => message.serialize_entry("content", &texts.join("\n"))?,
        }
        message.end()
    }
}

struct Tools<'a>(&'a [ToolDefinition]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|tool| Function {
            kind: "function",
            function: DefinedFunction {
                name: &tool.name,
                description: tool.description.as_deref(),
                parameters: Raw {
                    field: "tools.function.parameters",
                    json: &tool.input_schema,
                },
                strict: tool.strict,
            },
        }))
    }
}

#[derive(Serialize)]
struct Function<T> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: T,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct DefinedFunction<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parameters: Raw<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

#[derive(Serialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct JsonSchemaFormat<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    json_schema: NamedSchema<'a>,
}

#[derive(Serialize)]
struct NamedSchema<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    schema: Raw<'a>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// JSON that arrived as text and leaves as it came.
struct Raw<'a> {
    field: &'a str,
    json: &'a str,
}

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Read over, so that no text can break out of its place in the body.
        let json: &RawValue = serde_json::from_str(self.json)
            .map_err(|error| S::Error::custom(format_args!("{}: {error}", self.field)))?;
        json.serialize(serializer)
    }
}
