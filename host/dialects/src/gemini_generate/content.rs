//! The contents of a request: translates parts.
//!
//! A content of the user may mix results of function calls with other parts. The vocabulary has a separate role for
//! results, so such a content becomes several messages, in the order of its parts.
//!
//! A stream sends a part's signature behind its text, in a part with an empty text. Reasoning and its signature belong
//! together for some upstreams, so consecutive parts of reasoning become one, up to a signature.

use std::borrow::Cow;

use weir_sandbox::adapter::bindings::chat::{
    Audio, CallKind, Content, File, Image, Message, Opaque, Part, Reasoning, Role, Source,
    ToolCall, ToolContent, ToolResult,
};

use super::wire;
use crate::json::{
    FieldFault, MAX_ID_CHARS, Raw, base64_data, check_at_most, check_https_url, check_id,
    check_is_object, check_length, each, is_media_type_name, items, required, reread,
};
use crate::thought_signature::ThoughtSignature;
use crate::{Attachment, Attachments, MessageOrigin, plain};

/// The prefix of ids that weir makes up. The adapter of this dialect leaves such ids out.
const MADE_UP_ID: &str = "gemini_";

/// Translates the contents of a request, in order, with their positions; the system instruction comes first.
pub(super) fn messages(
    system: Option<wire::GeminiContent<'_>>,
    list: Option<wire::Contents<'_>>,
    attachments: &mut Attachments,
) -> Result<(Vec<Message>, Vec<MessageOrigin>), FieldFault> {
    let list = required(list, "contents")?.0;
    if list.is_empty() {
        return Err(FieldFault::new("contents", "must not be empty"));
    }
    let mut messages = Vec::with_capacity(list.len() + 1);
    if let Some(content) = system {
        let parts = each(items(content.parts), "parts", |raw| instruction(raw))
            .map_err(|fault| fault.within("systemInstruction"))?;
        let mut texts = parts.iter();
        // An empty instruction counts as none.
        if texts.any(|part| !matches!(&part.content, Content::Text(text) if text.is_empty())) {
            messages.push(message(Role::System, parts));
        }
    }
    let mut origins = vec![MessageOrigin::Apart; messages.len()];
    let mut calls = Calls::default();
    for (index, wire) in list.into_iter().enumerate() {
        let turn = content(wire, attachments, &mut calls, &mut messages);
        turn.map_err(|fault| fault.at(index).within("contents"))?;
        origins.resize(messages.len(), MessageOrigin::Listed(index));
    }
    Ok((messages, origins))
}

fn message(role: Role, parts: Vec<Part>) -> Message {
    Message {
        role,
        name: None,
        parts,
        extra: Vec::new(),
    }
}

/// Translates a part of the system instruction.
fn instruction(raw: Raw<'_>) -> Result<Part, FieldFault> {
    let part: wire::GeminiPart<'_> = reread(raw)?;
    Ok(plain(Content::Text(required(part.text, "text")?)))
}

/// The function calls of the contents so far.
#[derive(Default)]
struct Calls {
    /// The ids and names of calls without a result.
    open: Vec<(String, String)>,
    count: usize,
}

impl Calls {
    /// Adds a call, and returns its id.
    fn add(&mut self, id: Option<String>, name: &str) -> String {
        let id = id.unwrap_or_else(|| format!("{MADE_UP_ID}{}", self.count));
        self.count += 1;
        self.open.push((id.clone(), name.to_owned()));
        id
    }

    /// Returns the id of the call to which a result belongs.
    fn answer(&mut self, id: Option<String>, name: &str) -> Option<String> {
        let mut open = self.open.iter();
        let position = match &id {
            Some(id) => open.position(|(known, _)| known == id),
            None => open.position(|(_, known)| known == name),
        };
        let answered = position.map(|position| self.open.remove(position).0);
        id.or(answered)
    }
}

fn content(
    wire: wire::GeminiContent<'_>,
    attachments: &mut Attachments,
    calls: &mut Calls,
    messages: &mut Vec<Message>,
) -> Result<(), FieldFault> {
    let role = match wire.role.as_ref().map_or("user", |role| role.as_str()) {
        // Earlier versions of the dialect have a role for results.
        "user" | "function" => Role::User,
        "model" => Role::Assistant,
        _ => return Err(FieldFault::new("role", "must be one of user, model")),
    };
    let parts = each(items(wire.parts), "parts", |raw| {
        part(raw, role, attachments, calls)
    })?;
    if parts.is_empty() && role == Role::User {
        return Err(FieldFault::new("parts", "must not be empty"));
    }
    let first = messages.len();
    for part in without_empty(parts, role) {
        let role = match &part.content {
            Content::ToolResult(_) => Role::Tool,
            _ => role,
        };
        match messages[first..].last_mut() {
            Some(open) if open.role == role => add(&mut open.parts, part),
            _ => messages.push(message(role, vec![part])),
        }
    }
    Ok(())
}

/// Returns the parts without empty texts, which end streams. A turn of the model may have no other part; then it has
/// said nothing.
fn without_empty(mut parts: Vec<Part>, role: Role) -> Vec<Part> {
    let is_empty = |part: &Part| {
        part.signature.is_none() && matches!(&part.content, Content::Text(text) if text.is_empty())
    };
    if role == Role::Assistant || !parts.iter().all(is_empty) {
        parts.retain(|part| !is_empty(part));
    }
    parts
}

/// Adds a part; reasoning continues reasoning without a signature.
fn add(parts: &mut Vec<Part>, part: Part) {
    if let Content::Reasoning(more) = &part.content
        && let Some(last) = parts.last_mut()
        && last.signature.is_none()
        && let Content::Reasoning(known) = &mut last.content
        && known.sealed.is_none()
    {
        known.text.push_str(&more.text);
        known.sealed.clone_from(&more.sealed);
        last.signature = part.signature;
        last.provider = part.provider;
        last.extra.extend(part.extra);
        return;
    }
    parts.push(part);
}

/// Translates a part; a part of an unknown type stays unchanged.
fn part(
    raw: Raw<'_>,
    role: Role,
    attachments: &mut Attachments,
    calls: &mut Calls,
) -> Result<Part, FieldFault> {
    let part: wire::GeminiPart<'_> = reread(raw)?;
    let given = [
        part.text.is_some(),
        part.inline_data.is_some(),
        part.file_data.is_some(),
        part.function_call.is_some(),
        part.function_response.is_some(),
    ];
    if given.iter().filter(|given| **given).count() > 1 {
        return Err(FieldFault::new("", "must have only one field with data"));
    }
    let mut extra = part.others.into_fields();
    let signature = part.thought_signature.as_ref().map(|text| text.as_str());
    let mut signature = ThoughtSignature::read(signature.unwrap_or_default(), "thoughtSignature")?;
    let content = match part {
        _ if part.thought == Some(true) && part.text.is_some() => Content::Reasoning(Reasoning {
            text: part.text.unwrap_or_default(),
            sealed: Some(std::mem::take(&mut signature.sealed)).filter(|text| !text.is_empty()),
            id: None,
        }),
        wire::GeminiPart {
            text: Some(text), ..
        } => Content::Text(text),
        wire::GeminiPart {
            inline_data: Some(blob),
            ..
        } => inline(blob, attachments).map_err(|fault| fault.within("inlineData"))?,
        wire::GeminiPart {
            file_data: Some(file),
            ..
        } => by_url(file).map_err(|fault| fault.within("fileData"))?,
        wire::GeminiPart {
            function_call: Some(call),
            ..
        } if role == Role::Assistant => Content::ToolCall(
            function_call(call, calls).map_err(|fault| fault.within("functionCall"))?,
        ),
        wire::GeminiPart {
            function_response: Some(response),
            ..
        } if role == Role::User => Content::ToolResult(
            function_response(response, attachments, calls)
                .map_err(|fault| fault.within("functionResponse"))?,
        ),
        wire::GeminiPart {
            function_call: Some(_),
            ..
        } => {
            return Err(FieldFault::new(
                "functionCall",
                "is for the role model only",
            ));
        }
        wire::GeminiPart {
            function_response: Some(_),
            ..
        } => {
            return Err(FieldFault::new(
                "functionResponse",
                "is for the role user only",
            ));
        }
        // The JSON of an opaque part has its content already.
        _ => match extra.iter().find(|(_, json)| json.starts_with('{')) {
            Some((kind, _)) => {
                let kind = kind.clone();
                extra.clear();
                let json = raw.0.to_owned();
                Content::Opaque(Opaque { kind, json })
            }
            // A stream may end with a signature alone.
            None if !signature.signature.is_empty() => Content::Text(String::new()),
            None => {
                let predicate =
                    "must hold text, inlineData, fileData, functionCall or functionResponse";
                return Err(FieldFault::new("", predicate));
            }
        },
    };
    let mut part = Part {
        extra,
        ..plain(content)
    };
    signature.sign(&mut part);
    Ok(part)
}

/// Translates a file in the request, by its media type.
fn inline(blob: wire::Blob<'_>, attachments: &mut Attachments) -> Result<Content, FieldFault> {
    let (attachment, name) = attachment(blob)?;
    let media_type = attachment.media_type.clone();
    let source = attachments.add(attachment);
    Ok(media(source, Some(media_type), name))
}

/// Returns a file in the request, and its name.
fn attachment(blob: wire::Blob<'_>) -> Result<(Attachment, Option<String>), FieldFault> {
    let media_type = media_type(required(blob.mime_type, "mimeType")?.as_str())?;
    let data = required(blob.data, "data")?;
    Ok((
        Attachment {
            data: base64_data(&standard(data.as_str()), "data")?,
            media_type,
        },
        file_name(blob.display_name)?,
    ))
}

/// Returns base64 in the standard alphabet: Google's SDK for Python writes the URL-safe one.
fn standard(base64: &str) -> Cow<'_, str> {
    match base64.contains(['-', '_']) {
        true => base64.replace('-', "+").replace('_', "/").into(),
        false => base64.into(),
    }
}

fn by_url(file: wire::FileData<'_>) -> Result<Content, FieldFault> {
    let (source, media_type, name) = located(file)?;
    Ok(media(source, media_type, name))
}

/// Returns the URL of a file, its media type and its name.
fn located(
    file: wire::FileData<'_>,
) -> Result<(Source, Option<String>, Option<String>), FieldFault> {
    let url = required(file.file_uri, "fileUri")?.into_string();
    check_https_url(&url, "fileUri", "must be an https URL")?;
    let kind = file.mime_type.as_ref();
    let kind = kind.map(|kind| media_type(kind.as_str())).transpose()?;
    Ok((Source::Url(url), kind, file_name(file.display_name)?))
}

fn file_name(name: Option<String>) -> Result<Option<String>, FieldFault> {
    if let Some(name) = &name {
        check_at_most(name, wire::MAX_FILE_NAME_CHARS, "displayName")?;
    }
    Ok(name)
}

fn media_type(given: &str) -> Result<String, FieldFault> {
    // A parameter, such as a sampling rate, stays out.
    let name = given.split(';').next().unwrap_or_default().trim();
    let name = name.to_ascii_lowercase();
    match name.split_once('/') {
        Some((kind, subtype)) if is_media_type_name(kind) && is_media_type_name(subtype) => {
            Ok(name)
        }
        _ => Err(FieldFault::new(
            "mimeType",
            "must be a media type, e.g. image/png",
        )),
    }
}

fn media(source: Source, media_type: Option<String>, name: Option<String>) -> Content {
    let kind = media_type.as_deref().unwrap_or_default();
    if kind.starts_with("image/") {
        return Content::Image(Image {
            source,
            detail: None,
        });
    }
    if let Some(format) = kind.strip_prefix("audio/") {
        let format = match format {
            "mpeg" => "mp3",
            "x-wav" => "wav",
            format => format,
        };
        return Content::Audio(Audio {
            source,
            format: Some(format.to_owned()),
        });
    }
    Content::File(File {
        source,
        name,
        media_type,
        title: None,
        context: None,
        cite: None,
    })
}

fn function_call(call: wire::FunctionCall<'_>, calls: &mut Calls) -> Result<ToolCall, FieldFault> {
    let name = required(call.name, "name")?;
    check_length(&name, MAX_ID_CHARS, "name")?;
    let arguments = call.args.map_or("{}", |args| args.0);
    check_is_object(arguments, "args")?;
    Ok(ToolCall {
        id: calls.add(id(call.id)?, &name),
        name,
        kind: CallKind::Function,
        arguments: arguments.to_owned(),
    })
}

/// Returns the client's id; an empty one counts as none.
fn id(id: Option<String>) -> Result<Option<String>, FieldFault> {
    let id = id.filter(|id| !id.is_empty());
    if let Some(id) = &id {
        check_id(id, "id")?;
    }
    Ok(id)
}

fn function_response(
    result: wire::FunctionResponse<'_>,
    attachments: &mut Attachments,
    calls: &mut Calls,
) -> Result<ToolResult, FieldFault> {
    let name = required(result.name, "name")?;
    check_length(&name, MAX_ID_CHARS, "name")?;
    let response = required(result.response, "response")?;
    check_is_object(response.0, "response")?;
    let (text, is_error) = said(response).map_err(|fault| fault.within("response"))?;
    let mut content = vec![ToolContent::Text(text)];
    content.extend(each(items(result.parts), "parts", |part| {
        result_media(part, attachments)
    })?);
    let call_id = calls.answer(id(result.id)?, &name);
    let predicate = "must be the name of an earlier call without a result, or there must be an id";
    Ok(ToolResult {
        call_id: call_id.ok_or_else(|| FieldFault::new("name", predicate))?,
        tool_name: Some(name),
        content,
        is_error,
    })
}

/// Returns the text of a result, and whether it is an error. A text alone, as `output` or `error`, stands for itself;
/// any other result is its JSON.
fn said(response: Raw<'_>) -> Result<(String, bool), FieldFault> {
    let fields: wire::ResultFields<'_> = reread(response)?;
    let text = |raw: Raw<'_>| serde_json::from_str::<String>(raw.0).ok();
    let is_error = fields.error.is_some() && fields.output.is_none();
    let alone = match (fields.output, fields.error, fields.others.0) {
        (Some(only), None, false) | (None, Some(only), false) => text(only),
        _ => None,
    };
    Ok((alone.unwrap_or_else(|| response.0.to_owned()), is_error))
}

fn result_media(
    part: wire::FunctionResponsePart<'_>,
    attachments: &mut Attachments,
) -> Result<ToolContent, FieldFault> {
    let (source, media_type, name) = match (part.inline_data, part.file_data) {
        (Some(blob), None) => {
            let (attachment, name) =
                attachment(blob).map_err(|fault| fault.within("inlineData"))?;
            let media_type = attachment.media_type.clone();
            (attachments.add(attachment), Some(media_type), name)
        }
        (None, Some(file)) => located(file).map_err(|fault| fault.within("fileData"))?,
        _ => return Err(FieldFault::new("", "must hold inlineData or fileData")),
    };
    let is_image = |kind: &String| kind.starts_with("image/");
    Ok(match media_type.as_ref().is_some_and(is_image) {
        true => ToolContent::Image(Image {
            source,
            detail: None,
        }),
        false => ToolContent::File(File {
            source,
            name,
            media_type,
            title: None,
            context: None,
            cite: None,
        }),
    })
}
