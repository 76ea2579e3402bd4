//! What a request means: its values checked and translated into the plugins' vocabulary.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::ApiError;
use crate::plugins::bindings::chat::{
    Blob, CacheLifetime, ChatRequest, Content, File, Image, ImageDetail, ImageSource, JsonSchema,
    Message, Part, ReasoningRequest, ResponseFormat, Role, ToolCall, ToolChoice, ToolContent,
    ToolDefinition, ToolResult,
};

use super::wire::{self, Fault};

const MAX_MODEL_CHARS: usize = 256;
const MAX_NAME_CHARS: usize = 64;
const MAX_URL_BYTES: usize = 8_192;

/// Encoders disagree on padding; both forms name the same bytes.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A Chat Completions request, translated.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatCall {
    /// The request in the plugins' vocabulary. `model` is what the client named, and `max_output_tokens` is 0: both
    /// are for the host to resolve.
    pub request: ChatRequest,
    /// The client's own limit on output tokens, at least 1.
    pub output_limit: Option<u32>,
    /// The field that set it: the newer of the two if both did.
    pub output_limit_param: &'static str,
    /// Whether only a model that can call tools will do.
    pub needs_tools: bool,
    /// Whether a streamed answer ends with a chunk of its own for usage.
    pub include_usage: bool,
}

/// Reads a Chat Completions request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn parse_chat(body: &[u8]) -> Result<ChatCall, ApiError> {
    let body = wire::read(body)?;
    Ok(chat(body)?)
}

fn chat(body: wire::Body<'_>) -> Result<ChatCall, Fault> {
    check_single_text_answer(&body)?;
    let model = required(body.model, "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    let output_limit_param = if body.max_completion_tokens.is_some() {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    let output_limit = output_limit(body.max_tokens, body.max_completion_tokens)?;
    let tools = each(
        body.tools.map(|list| list.0).unwrap_or_default(),
        "tools",
        tool,
    )?;
    let tool_choice = tool_choice(body.tool_choice, &tools)?;
    let top_k = match body.top_k {
        Some(0) => return Err(Fault::new("top_k", "must be at least 1")),
        top_k => top_k,
    };
    let (include_usage, obfuscate) = body.stream_options.map_or((false, false), |options| {
        (
            options.include_usage == Some(true),
            options.include_obfuscation == Some(true),
        )
    });
    if obfuscate {
        return Err(Fault::new(
            "stream_options.include_obfuscation",
            "is not supported",
        ));
    }
    let messages = required(body.messages, "messages")?.0;
    if messages.is_empty() {
        return Err(Fault::new("messages", "must not be empty"));
    }
    let messages = each(messages, "messages", message)?;

    let request = ChatRequest {
        model,
        messages,
        tools,
        tool_choice,
        parallel_tool_calls: body.parallel_tool_calls,
        response_format: response_format(body.response_format)?,
        reasoning: reasoning(body.reasoning_effort.as_ref())?,
        max_output_tokens: 0,
        temperature: between(body.temperature, 0, 2, "temperature")?,
        top_p: between(body.top_p, 0, 1, "top_p")?,
        top_k,
        presence_penalty: between(body.presence_penalty, -2, 2, "presence_penalty")?,
        frequency_penalty: between(body.frequency_penalty, -2, 2, "frequency_penalty")?,
        seed: body.seed,
        stop: stop(body.stop)?,
        extra: body
            .others
            .0
            .into_iter()
            .map(|(name, value)| (name.into_string(), value.0.to_owned()))
            .collect(),
        stream: body.stream == Some(true),
    };
    Ok(ChatCall {
        request,
        output_limit,
        output_limit_param,
        needs_tools: false,
        include_usage,
    })
}

/// An answer is one choice, of text, without probabilities.
fn check_single_text_answer(body: &wire::Body<'_>) -> Result<(), Fault> {
    if body.n.is_some_and(|n| n != 1) {
        return Err(Fault::new(
            "n",
            "must be 1: more than one choice is not supported",
        ));
    }
    if body.logprobs == Some(true) {
        return Err(Fault::new("logprobs", "is not supported"));
    }
    match &body.modalities {
        Some(modalities) if !matches!(modalities.0.as_slice(), [only] if only.as_str() == "text") => {
            Err(Fault::new(
                "modalities",
                "must be [\"text\"]: other modalities are not supported",
            ))
        }
        _ => Ok(()),
    }
}

fn output_limit(
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
) -> Result<Option<u32>, Fault> {
    for (name, limit) in [
        ("max_tokens", max_tokens),
        ("max_completion_tokens", max_completion_tokens),
    ] {
        if limit == Some(0) {
            return Err(Fault::new(name, "must be at least 1"));
        }
    }
    match (max_tokens, max_completion_tokens) {
        (Some(old), Some(new)) if old != new => Err(Fault::new(
            "max_tokens",
            "must equal max_completion_tokens where both are given",
        )),
        (old, new) => Ok(new.or(old)),
    }
}

fn message(mut message: wire::Message<'_>) -> Result<Message, Fault> {
    let role = match required(message.role.as_ref(), "role")?.as_str() {
        // OpenAI's newer models renamed it; no other API knows the difference.
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        "function" => {
            return Err(Fault::new(
                "role",
                "must not be function, which is not supported: use tool",
            ));
        }
        _ => {
            return Err(Fault::new(
                "role",
                "must be one of system, developer, user, assistant, tool",
            ));
        }
    };
    check_fields_of_role(&message, role)?;
    if let Some(name) = &message.name {
        check_length(name, MAX_NAME_CHARS, "name")?;
    }
    let name = message.name.take();
    let parts = match role {
        Role::System | Role::User => match required(message.content, "content")? {
            wire::Content::Text(text) => vec![plain(Content::Text(text))],
            wire::Content::Parts(parts) if parts.0.is_empty() => {
                return Err(Fault::new("content", "must not be empty"));
            }
            wire::Content::Parts(parts) => {
                each(parts.0, "content", |part| content_part(part, role))?
            }
        },
        Role::Assistant => answer(message)?,
        Role::Tool => vec![tool_result(message.tool_call_id, message.content)?],
    };
    Ok(Message { role, name, parts })
}

fn check_fields_of_role(message: &wire::Message<'_>, role: Role) -> Result<(), Fault> {
    if role != Role::Tool && message.tool_call_id.is_some() {
        return Err(Fault::new(
            "tool_call_id",
            "is for messages of the tool role only",
        ));
    }
    let of_assistant = [
        ("tool_calls", message.tool_calls.is_some()),
        ("reasoning_content", message.reasoning_content.is_some()),
        ("refusal", message.refusal.is_some()),
        ("images", message.images.is_some()),
        ("annotations", message.annotations.is_some()),
        ("parsed", message.parsed.is_some()),
    ];
    match of_assistant.into_iter().find(|(_, given)| *given) {
        Some((name, _)) if role != Role::Assistant => Err(Fault::new(
            name,
            "is for messages of the assistant role only",
        )),
        _ => Ok(()),
    }
}

/// An earlier answer, with the fields that our own answers have: SDKs send a message back as they got it.
fn answer(message: wire::Message<'_>) -> Result<Vec<Part>, Fault> {
    let tool_calls = message.tool_calls.map(|list| list.0).unwrap_or_default();
    let tool_calls = each(tool_calls, "tool_calls", tool_call)?;
    let images = message.images.map(|list| list.0).unwrap_or_default();
    let images = each(images, "images", answer_image)?;
    let mut parts = Vec::new();
    parts.extend(
        message
            .reasoning_content
            .filter(|text| !text.is_empty())
            .map(|text| plain(Content::Reasoning(text))),
    );
    match message.content {
        // Beside other parts, an empty text says nothing, and there are upstreams that refuse one.
        Some(wire::Content::Text(text))
            if text.is_empty() && !(tool_calls.is_empty() && images.is_empty()) => {}
        Some(wire::Content::Text(text)) => parts.push(plain(Content::Text(text))),
        Some(wire::Content::Parts(list)) => {
            parts.append(&mut each(list.0, "content", |part| {
                content_part(part, Role::Assistant)
            })?);
        }
        None => {}
    }
    parts.extend(
        message
            .refusal
            .filter(|text| !text.is_empty())
            .map(|text| plain(Content::Text(text))),
    );
    parts.extend(images);
    parts.extend(tool_calls);
    if parts.is_empty() {
        return Err(Fault::new(
            "content",
            "is required where there are no tool_calls",
        ));
    }
    Ok(parts)
}

fn answer_image(part: wire::Part<'_>) -> Result<Part, Fault> {
    match &part.kind {
        Some(kind) if kind.as_str() != "image_url" => Err(Fault::new("type", "must be image_url")),
        // Which roles may show a picture is a rule for `content`; here it is part of the answer.
        _ => content_part(part, Role::User),
    }
}

fn tool_call(call: wire::ToolCall<'_>) -> Result<Part, Fault> {
    if call.kind.is_some_and(|kind| kind.as_str() != "function") {
        return Err(Fault::new("type", "must be function"));
    }
    let id = required(call.id, "id")?;
    check_not_empty(&id, "id")?;
    let function = required(call.function, "function")?;
    let name = required(function.name, "name").map_err(|fault| fault.within("function"))?;
    check_not_empty(&name, "function.name")?;
    let arguments =
        required(function.arguments, "arguments").map_err(|fault| fault.within("function"))?;
    Ok(plain(Content::ToolCall(ToolCall {
        id,
        name,
        arguments,
    })))
}

fn tool_result(call_id: Option<String>, content: Option<wire::Content<'_>>) -> Result<Part, Fault> {
    let call_id = required(call_id, "tool_call_id")?;
    check_not_empty(&call_id, "tool_call_id")?;
    let parts = match required(content, "content")? {
        wire::Content::Text(text) => vec![plain(Content::Text(text))],
        wire::Content::Parts(parts) => {
            each(parts.0, "content", |part| content_part(part, Role::Tool))?
        }
    };
    // A result is one part, so a prefix that is to be cached ends with it or not at all.
    let cache = parts.iter().rev().find_map(|part| part.cache);
    let content = parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| match part.content {
            Content::Text(text) => Ok(ToolContent::Text(text)),
            Content::Image(image) => Ok(ToolContent::Image(image)),
            _ => Err(Fault::new("type", "must be one of text, image_url")
                .at(index)
                .within("content")),
        })
        .collect::<Result<_, _>>()?;
    Ok(Part {
        content: Content::ToolResult(ToolResult {
            call_id,
            content,
            is_error: false,
        }),
        cache,
        signature: None,
    })
}

fn content_part(part: wire::Part<'_>, role: Role) -> Result<Part, Fault> {
    let allowed = match role {
        Role::System => "must be text",
        Role::User => "must be one of text, image_url, file",
        Role::Assistant => "must be one of text, refusal",
        Role::Tool => "must be one of text, image_url",
    };
    let wire::Part {
        kind,
        text,
        refusal,
        image_url,
        file,
        cache_control,
        ..
    } = part;
    let given = [
        ("text", text.is_some()),
        ("refusal", refusal.is_some()),
        ("image_url", image_url.is_some()),
        ("file", file.is_some()),
    ];
    let kind = required(kind, "type")?;
    let content = match kind.as_str() {
        "text" => Content::Text(required(text, "text")?),
        "refusal" if role == Role::Assistant => Content::Text(required(refusal, "refusal")?),
        "image_url" if matches!(role, Role::User | Role::Tool) => Content::Image(
            image(required(image_url, "image_url")?).map_err(|fault| fault.within("image_url"))?,
        ),
        "file" if role == Role::User => {
            Content::File(document(required(file, "file")?).map_err(|fault| fault.within("file"))?)
        }
        "input_audio" => {
            return Err(Fault::new(
                "type",
                "must not be input_audio: audio is not supported",
            ));
        }
        _ => return Err(Fault::new("type", allowed)),
    };
    if let Some((name, _)) = given
        .into_iter()
        .find(|(name, given)| *given && *name != kind.as_str())
    {
        return Err(Fault::new(name, "does not belong to a part of this type"));
    }
    Ok(Part {
        content,
        cache: cache_lifetime(cache_control)?,
        signature: None,
    })
}

fn image(image: wire::ImageUrl<'_>) -> Result<Image, Fault> {
    Ok(Image {
        source: image_source(required(image.url, "url")?)?,
        detail: image_detail(image.detail.as_ref())?,
    })
}

fn image_source(url: wire::Text<'_>) -> Result<ImageSource, Fault> {
    if let Some(blob) = data_url(url.as_str(), "url")? {
        if !blob.media_type.starts_with("image/") {
            return Err(Fault::new(
                "url",
                "must be of a media type such as image/png",
            ));
        }
        return Ok(ImageSource::Inline(blob));
    }
    let url = url.into_string();
    let host = strip_prefix_ignoring_case(&url, "https://")
        .ok_or_else(|| Fault::new("url", "must be an https URL or a base64 data URL"))?;
    let named = host
        .bytes()
        .next()
        .is_some_and(|byte| !matches!(byte, b'/' | b'?' | b'#'));
    if !named
        || url.len() > MAX_URL_BYTES
        || url
            .chars()
            .any(|char| char.is_whitespace() || char.is_control())
    {
        return Err(Fault::new(
            "url",
            format!("must be a valid URL of at most {MAX_URL_BYTES} bytes"),
        ));
    }
    Ok(ImageSource::Url(url))
}

fn image_detail(detail: Option<&wire::Text<'_>>) -> Result<Option<ImageDetail>, Fault> {
    match detail.map(wire::Text::as_str) {
        None | Some("auto") => Ok(None),
        Some("low") => Ok(Some(ImageDetail::Low)),
        Some("high") => Ok(Some(ImageDetail::High)),
        Some(_) => Err(Fault::new("detail", "must be one of auto, low, high")),
    }
}

fn document(file: wire::File<'_>) -> Result<File, Fault> {
    let data = required(file.file_data, "file_data")?;
    let Blob { media_type, data } = data_url(data.as_str(), "file_data")?.ok_or_else(|| {
        Fault::new(
            "file_data",
            "must be a base64 data URL, e.g. data:application/pdf;base64,…",
        )
    })?;
    Ok(File {
        name: file.filename,
        media_type,
        data,
    })
}

/// The bytes of `data:<media type>[;parameter…];base64,<bytes>`; nothing if it is another kind of URL.
fn data_url(url: &str, field: &str) -> Result<Option<Blob>, Fault> {
    let Some(rest) = strip_prefix_ignoring_case(url, "data:") else {
        return Ok(None);
    };
    let malformed = || Fault::new(field, "must have the form data:<media type>;base64,<data>");
    let (head, data) = rest.split_once(',').ok_or_else(malformed)?;
    let (head, encoding) = head.rsplit_once(';').ok_or_else(malformed)?;
    if !encoding.eq_ignore_ascii_case("base64") {
        return Err(malformed());
    }
    let media_type = head
        .split(';')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let token = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    let (kind, subtype) = media_type.split_once('/').ok_or_else(malformed)?;
    // 127 characters each side is the registry's own limit (RFC 6838 §4.2).
    if !token(kind) || !token(subtype) || kind.len() > 127 || subtype.len() > 127 {
        return Err(malformed());
    }
    let data = BASE64
        .decode(data)
        .map_err(|_| Fault::new(field, "must hold valid base64"))?;
    if data.is_empty() {
        return Err(Fault::new(field, "must not hold an empty file"));
    }
    Ok(Some(Blob { media_type, data }))
}

fn strip_prefix_ignoring_case<'text>(text: &'text str, prefix: &str) -> Option<&'text str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &text[prefix.len()..])
}

/// `cache_control` is Anthropic's; clients of several gateways send it in this dialect too.
fn cache_lifetime(control: Option<wire::CacheControl<'_>>) -> Result<Option<CacheLifetime>, Fault> {
    let Some(control) = control else {
        return Ok(None);
    };
    if required(control.kind, "cache_control.type")?.as_str() != "ephemeral" {
        return Err(Fault::new("cache_control.type", "must be ephemeral"));
    }
    match control.ttl.as_ref().map(wire::Text::as_str) {
        None | Some("5m") => Ok(Some(CacheLifetime::Short)),
        Some("1h") => Ok(Some(CacheLifetime::Long)),
        Some(_) => Err(Fault::new("cache_control.ttl", "must be one of 5m, 1h")),
    }
}

fn tool(tool: wire::Tool<'_>) -> Result<ToolDefinition, Fault> {
    if required(tool.kind, "type")?.as_str() != "function" {
        return Err(Fault::new("type", "must be function"));
    }
    let function = required(tool.function, "function")?;
    let name = required(function.name, "name").map_err(|fault| fault.within("function"))?;
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=64).contains(&name.len()) || !name.bytes().all(valid) {
        return Err(Fault::new(
            "function.name",
            "must be 1 to 64 characters of a-z, A-Z, 0-9, _ and -",
        ));
    }
    let input_schema = function
        .parameters
        .map_or(r#"{"type":"object","properties":{}}"#, |parameters| {
            parameters.0
        });
    check_is_object(input_schema, "function.parameters")?;
    Ok(ToolDefinition {
        name,
        description: function.description,
        input_schema: input_schema.to_owned(),
        strict: function.strict,
        cache: cache_lifetime(tool.cache_control)?,
    })
}

fn tool_choice(
    choice: Option<wire::ToolChoice<'_>>,
    tools: &[ToolDefinition],
) -> Result<ToolChoice, Fault> {
    match choice {
        None => Ok(ToolChoice::Auto),
        Some(wire::ToolChoice::Mode(mode)) => match mode.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" if tools.is_empty() => Err(Fault::new(
                "tool_choice",
                "must not be required where there are no tools",
            )),
            "required" => Ok(ToolChoice::Required),
            _ => Err(Fault::new(
                "tool_choice",
                "must be one of none, auto, required, or an object that names a function",
            )),
        },
        Some(wire::ToolChoice::Named(choice)) => {
            if required(choice.kind, "tool_choice.type")?.as_str() != "function" {
                return Err(Fault::new("tool_choice.type", "must be function"));
            }
            let function = required(choice.function, "tool_choice.function")?;
            let name = required(function.name, "tool_choice.function.name")?;
            if !tools.iter().any(|tool| tool.name == name) {
                return Err(Fault::new(
                    "tool_choice.function.name",
                    "must be the name of one of the tools",
                ));
            }
            Ok(ToolChoice::Named(name))
        }
    }
}

fn response_format(format: Option<wire::ResponseFormat<'_>>) -> Result<ResponseFormat, Fault> {
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
            Ok(ResponseFormat::JsonSchema(JsonSchema {
                name: wanted.name,
                description: wanted.description,
                strict: wanted.strict,
                schema: schema.to_owned(),
            }))
        }
        _ => Err(Fault::new(
            "response_format.type",
            "must be one of text, json_object, json_schema",
        )),
    }
}

fn reasoning(effort: Option<&wire::Text<'_>>) -> Result<ReasoningRequest, Fault> {
    match effort.map(wire::Text::as_str) {
        None => Ok(ReasoningRequest::Unspecified),
        Some("none") => Ok(ReasoningRequest::Off),
        Some("minimal") => Ok(ReasoningRequest::Minimal),
        Some("low") => Ok(ReasoningRequest::Low),
        Some("medium") => Ok(ReasoningRequest::Medium),
        Some("high") => Ok(ReasoningRequest::High),
        // The last step of the scale has had two names.
        Some("xhigh" | "max") => Ok(ReasoningRequest::Highest),
        Some(_) => Err(Fault::new(
            "reasoning_effort",
            "must be one of none, minimal, low, medium, high, xhigh, max",
        )),
    }
}

fn stop(stop: Option<wire::Stop>) -> Result<Vec<String>, Fault> {
    match stop {
        None => Ok(Vec::new()),
        Some(wire::Stop::One(text)) => {
            check_not_empty(&text, "stop")?;
            Ok(vec![text])
        }
        Some(wire::Stop::Many(list)) => each(list.0, "stop", |text| {
            check_not_empty(&text, "")?;
            Ok(text)
        }),
    }
}

fn plain(content: Content) -> Part {
    Part {
        content,
        cache: None,
        signature: None,
    }
}

/// Translates every item of the array `field`.
fn each<Wire, Translated>(
    items: Vec<Wire>,
    field: &str,
    translate: impl Fn(Wire) -> Result<Translated, Fault>,
) -> Result<Vec<Translated>, Fault> {
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| translate(item).map_err(|fault| fault.at(index).within(field)))
        .collect()
}

fn required<T>(value: Option<T>, field: &str) -> Result<T, Fault> {
    value.ok_or_else(|| Fault::new(field, "is required"))
}

fn between(value: Option<f64>, low: i32, high: i32, field: &str) -> Result<Option<f64>, Fault> {
    match value {
        Some(number) if !(f64::from(low)..=f64::from(high)).contains(&number) => {
            Err(Fault::new(field, format!("must be from {low} to {high}")))
        }
        value => Ok(value),
    }
}

fn check_not_empty(text: &str, field: &str) -> Result<(), Fault> {
    if text.is_empty() {
        return Err(Fault::new(field, "must not be empty"));
    }
    Ok(())
}

fn check_length(text: &str, max_chars: usize, field: &str) -> Result<(), Fault> {
    if text.is_empty() || text.chars().count() > max_chars {
        return Err(Fault::new(
            field,
            format!("must have 1 to {max_chars} characters"),
        ));
    }
    Ok(())
}

fn check_is_object(json: &str, field: &str) -> Result<(), Fault> {
    if !json.starts_with('{') {
        return Err(Fault::new(field, "must be an object"));
    }
    Ok(())
}
