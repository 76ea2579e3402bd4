//! The messages of a request: translates blocks into parts.
//!
//! A user message may mix results of tool calls with other blocks. The vocabulary has a separate role for results, so
//! such a message becomes several, in the order of its blocks.
//!
//! A block is opaque if the vocabulary cannot hold all of it: an unknown type, a text document, or a tool result's
//! block with extra fields.

use weir_sandbox::adapter::bindings::chat::{
    CacheLifetime, CallKind, Content, File, Image, Message, Opaque, Part, Reasoning, Role, Source,
    ToolCall, ToolContent, ToolResult,
};

use super::wire::{self, MAX_NAME_CHARS, MAX_TITLE_CHARS};
use crate::json::{
    FieldFault, MAX_ID_CHARS, Raw, Text, base64_data, check_at_most, check_https_url,
    check_is_object, check_length, each, is_media_type_name, required, reread,
};
use crate::proof::{ProvenContent, ReasoningProof};
use crate::{Attachment, Attachments, MessageOrigin, plain};

/// Translates the messages of a request, in order, with their positions; the system prompt comes first.
pub(super) fn messages(
    system: Option<wire::AnthropicContent<'_>>,
    list: Option<wire::Messages<'_>>,
    attachments: &mut Attachments,
) -> Result<(Vec<Message>, Vec<MessageOrigin>), FieldFault> {
    let list = required(list, "messages")?.0;
    if list.is_empty() {
        return Err(FieldFault::new("messages", "must not be empty"));
    }
    let mut messages = Vec::with_capacity(list.len() + 1);
    if let Some(content) = system {
        let parts = parts(content, "system", attachments)?;
        let is_empty =
            |part: &Part| matches!(&part.content, Content::Text(text) if text.is_empty());
        // An empty system prompt counts as none.
        if !matches!(parts.as_slice(), [only] if is_empty(only)) && !parts.is_empty() {
            messages.push(Message {
                role: Role::System,
                name: None,
                parts,
                extra: Vec::new(),
            });
        }
    }
    let mut origins = vec![MessageOrigin::Apart; messages.len()];
    for (index, wire) in list.into_iter().enumerate() {
        let turn = message(wire, attachments, &mut messages);
        turn.map_err(|fault| fault.at(index).within("messages"))?;
        origins.resize(messages.len(), MessageOrigin::Listed(index));
    }
    Ok((messages, origins))
}

fn message(
    wire: wire::AnthropicMessageParam<'_>,
    attachments: &mut Attachments,
    messages: &mut Vec<Message>,
) -> Result<(), FieldFault> {
    let role = match required(wire.role, "role")?.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => {
            return Err(FieldFault::new(
                "role",
                "must be one of user, assistant, system",
            ));
        }
    };
    let mut parts = parts(required(wire.content, "content")?, "content", attachments)?;
    let mut extra = wire.others.into_fields();
    let role_of = |part: &Part| match &part.content {
        Content::ToolResult(_) => Role::Tool,
        _ => role,
    };
    let is_misplaced = |part: &Part| role != Role::User && role_of(part) == Role::Tool;
    if let Some(index) = parts.iter().position(is_misplaced) {
        let fault = FieldFault::new(
            "type",
            "must not be tool_result outside of a user's message",
        );
        return Err(fault.at(index).within("content"));
    }
    if parts.is_empty() {
        return Err(FieldFault::new("content", "must not be empty"));
    }
    sign(&mut parts).map_err(|fault| fault.within("content"))?;
    let first = messages.len();
    for part in parts {
        let role = role_of(&part);
        match messages[first..].last_mut() {
            Some(open) if open.role == role => open.parts.push(part),
            _ => messages.push(Message {
                role,
                name: None,
                parts: vec![part],
                extra: std::mem::take(&mut extra),
            }),
        }
    }
    Ok(())
}

/// Signs the calls and texts whose signatures are in blocks of their own, and removes these blocks.
fn sign(parts: &mut Vec<Part>) -> Result<(), FieldFault> {
    let mut of_calls = Vec::new();
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts.drain(..) {
        let sealed = match &part.content {
            Content::Reasoning(reasoning) => reasoning.sealed.as_deref(),
            _ => None,
        };
        let proof = sealed
            .and_then(ReasoningProof::read_own)
            .filter(|proof| proof.of != ProvenContent::Reasoning);
        let Some(proof) = proof else {
            kept.push(part);
            continue;
        };
        check_at_most(&proof.provider, MAX_NAME_CHARS, "data")?;
        match proof.of {
            ProvenContent::Call(_) => of_calls.push(proof),
            _ => proof.sign_text(&mut kept),
        }
    }
    for proof in of_calls {
        let is_signed = |part: &&mut Part| matches!(&part.content, Content::ToolCall(call) if proof.of == ProvenContent::Call(call.id.clone()));
        if let Some(part) = kept.iter_mut().find(is_signed) {
            proof.sign(part);
        }
    }
    *parts = kept;
    Ok(())
}

fn parts(
    content: wire::AnthropicContent<'_>,
    field: &str,
    attachments: &mut Attachments,
) -> Result<Vec<Part>, FieldFault> {
    match content {
        wire::AnthropicContent::Text(text) => Ok(vec![plain(Content::Text(text))]),
        wire::AnthropicContent::List(blocks) => each(blocks.0, field, |raw| part(raw, attachments)),
    }
}

/// Translates a block; a block of an unknown type stays unchanged.
fn part(raw: Raw<'_>, attachments: &mut Attachments) -> Result<Part, FieldFault> {
    let mut block: wire::Block<'_> = reread(raw)?;
    let kind = required(block.kind.take(), "type")?;
    let mut mark_within = None;
    let content = match kind.as_str() {
        "text" => Content::Text(required(block.text.take(), "text")?),
        "image" => Content::Image(image(&block, attachments)?),
        "document" if is_of_text(&block)? => opaque(kind.as_str(), raw),
        "document" => Content::File(document(&mut block, attachments)?),
        "thinking" => Content::Reasoning(Reasoning {
            text: required(block.thinking.take(), "thinking")?,
            sealed: None,
            id: None,
        }),
        "redacted_thinking" => Content::Reasoning(Reasoning {
            text: String::new(),
            sealed: Some(required(block.data.take(), "data")?),
            id: None,
        }),
        "tool_use" => Content::ToolCall(tool_call(&mut block)?),
        "tool_result" => {
            let (result, mark) = tool_result(&mut block, attachments)?;
            mark_within = mark;
            Content::ToolResult(result)
        }
        other => {
            check_length(other, MAX_NAME_CHARS, "type")?;
            opaque(other, raw)
        }
    };
    let (mut cache, mut extra) = (None, Vec::new());
    // The JSON of an opaque block has its content already.
    if !matches!(content, Content::Opaque(_)) {
        extra = std::mem::take(&mut block.others).into_fields();
        // For a text, the field holds its citations; for a document, it enables citations.
        if let Some(citations) = block.citations.filter(|_| kind.as_str() == "text") {
            extra.push(("citations".into(), citations.0.to_owned()));
        }
        cache = cache_mark(block.cache_control, &mut extra)?;
    }
    if let Content::ToolResult(_) = &content {
        // A cache mark within a result moves behind the result, because the result's blocks have no place for it.
        cache = cache.or(mark_within);
    }
    if let Some(provider) = &block.provider {
        check_length(provider, MAX_NAME_CHARS, "provider")?;
    }
    Ok(Part {
        content,
        cache,
        signature: block.signature.filter(|signature| !signature.is_empty()),
        provider: block.provider,
        extra,
    })
}

fn image(block: &wire::Block<'_>, attachments: &mut Attachments) -> Result<Image, FieldFault> {
    let raw = required(block.source, "source")?;
    let source = image_source(raw, attachments).map_err(|fault| fault.within("source"))?;
    Ok(Image {
        source,
        detail: None,
    })
}

fn image_source(raw: Raw<'_>, attachments: &mut Attachments) -> Result<Source, FieldFault> {
    let source: wire::Source<'_> = reread(raw)?;
    match required(source.kind.as_ref(), "type")?.as_str() {
        "base64" => {
            let attachment = inline(source)?;
            match attachment.media_type.starts_with("image/") {
                true => Ok(attachments.add(attachment)),
                false => Err(FieldFault::new(
                    "media_type",
                    "must be one such as image/png",
                )),
            }
        }
        "url" => url(source),
        "file" => file_id(source),
        _ => Err(FieldFault::new("type", "must be one of base64, url, file")),
    }
}

fn document(
    block: &mut wire::Block<'_>,
    attachments: &mut Attachments,
) -> Result<File, FieldFault> {
    if let Some(title) = &block.title {
        check_at_most(title, MAX_TITLE_CHARS, "title")?;
    }
    let raw = required(block.source, "source")?;
    let (source, media_type) =
        document_source(raw, attachments).map_err(|fault| fault.within("source"))?;
    let cite = match block.citations {
        None => None,
        Some(raw) => {
            let citations: wire::Citations<'_> =
                reread(raw).map_err(|fault| fault.within("citations"))?;
            citations.enabled
        }
    };
    Ok(File {
        source,
        name: None,
        media_type,
        title: block.title.take(),
        context: block.context.take(),
        cite,
    })
}

/// Whether a document is text, in one piece or in blocks. Only servers of this dialect accept one.
fn is_of_text(block: &wire::Block<'_>) -> Result<bool, FieldFault> {
    let Some(raw) = block.source else {
        return Ok(false);
    };
    let source: wire::DocumentSource<'_> = reread(raw).map_err(|fault| fault.within("source"))?;
    let kind = source.kind.as_ref().map(Text::as_str);
    Ok(matches!(kind, Some("text" | "content")))
}

/// Returns the source of a document, and its media type if known.
fn document_source(
    raw: Raw<'_>,
    attachments: &mut Attachments,
) -> Result<(Source, Option<String>), FieldFault> {
    let source: wire::Source<'_> = reread(raw)?;
    match required(source.kind.as_ref(), "type")?.as_str() {
        "base64" => {
            let attachment = inline(source)?;
            let media_type = attachment.media_type.clone();
            Ok((attachments.add(attachment), Some(media_type)))
        }
        "url" => Ok((url(source)?, None)),
        "file" => Ok((file_id(source)?, None)),
        _ => Err(FieldFault::new(
            "type",
            "must be one of base64, text, content, url, file",
        )),
    }
}

/// Returns a file in base64.
fn inline(source: wire::Source<'_>) -> Result<Attachment, FieldFault> {
    let media_type = media_type(&source)?;
    let data = required(source.data, "data")?;
    Ok(Attachment {
        data: base64_data(data.as_str(), "data")?,
        media_type,
    })
}

fn media_type(source: &wire::Source<'_>) -> Result<String, FieldFault> {
    let media_type = required(source.media_type.as_ref(), "media_type")?;
    let media_type = media_type.as_str().to_ascii_lowercase();
    match media_type.split_once('/') {
        Some((kind, subtype)) if is_media_type_name(kind) && is_media_type_name(subtype) => {
            Ok(media_type)
        }
        _ => Err(FieldFault::new(
            "media_type",
            "must be a media type, e.g. application/pdf",
        )),
    }
}

fn url(source: wire::Source<'_>) -> Result<Source, FieldFault> {
    let url = required(source.url, "url")?.into_string();
    check_https_url(&url, "url", "must be an https URL")?;
    Ok(Source::Url(url))
}

fn file_id(source: wire::Source<'_>) -> Result<Source, FieldFault> {
    let id = required(source.file_id, "file_id")?;
    check_length(&id, MAX_ID_CHARS, "file_id")?;
    Ok(Source::Id(id))
}

fn tool_call(block: &mut wire::Block<'_>) -> Result<ToolCall, FieldFault> {
    let id = required(block.id.take(), "id")?;
    check_length(&id, MAX_ID_CHARS, "id")?;
    let name = required(block.name.take(), "name")?;
    check_length(&name, MAX_ID_CHARS, "name")?;
    let input = block.input.map_or("{}", |input| input.0);
    check_is_object(input, "input")?;
    Ok(ToolCall {
        id,
        name,
        kind: CallKind::Function,
        arguments: input.to_owned(),
    })
}

/// Translates a result, and returns the cache mark within it.
fn tool_result(
    block: &mut wire::Block<'_>,
    attachments: &mut Attachments,
) -> Result<(ToolResult, Option<CacheLifetime>), FieldFault> {
    let call_id = required(block.tool_use_id.take(), "tool_use_id")?;
    check_length(&call_id, MAX_ID_CHARS, "tool_use_id")?;
    let mut mark = None;
    let content = match block.content {
        None => Vec::new(),
        Some(raw) => match reread(raw).map_err(|fault| fault.within("content"))? {
            wire::AnthropicContent::Text(text) => vec![ToolContent::Text(text)],
            wire::AnthropicContent::List(blocks) => each(blocks.0, "content", |raw| {
                tool_content(raw, &mut mark, attachments)
            })?,
        },
    };
    let result = ToolResult {
        call_id,
        tool_name: None,
        content,
        is_error: block.is_error == Some(true),
    };
    Ok((result, mark))
}

/// Translates the content of a result. Content beyond the vocabulary stays unchanged.
fn tool_content(
    raw: Raw<'_>,
    mark: &mut Option<CacheLifetime>,
    attachments: &mut Attachments,
) -> Result<ToolContent, FieldFault> {
    let part = part(raw, attachments)?;
    if !part.extra.is_empty() {
        let block: wire::Block<'_> = reread(raw)?;
        return Ok(ToolContent::Opaque(Opaque {
            kind: required(block.kind, "type")?.into_string(),
            json: raw.0.to_owned(),
        }));
    }
    *mark = part.cache.or(*mark);
    Ok(match part.content {
        Content::Text(text) => ToolContent::Text(text),
        Content::Image(image) => ToolContent::Image(image),
        Content::File(file) => ToolContent::File(file),
        Content::Opaque(opaque) => ToolContent::Opaque(opaque),
        _ => {
            return Err(FieldFault::new(
                "type",
                "must be a type that a result allows, e.g. text, image, document",
            ));
        }
    })
}

/// Returns the requested cache lifetime of a prefix. A mark with extra fields goes into the fields beyond the
/// vocabulary: a server of this dialect receives all of it, and any other server receives nothing.
pub(super) fn cache_mark(
    raw: Option<Raw<'_>>,
    extra: &mut Vec<(String, String)>,
) -> Result<Option<CacheLifetime>, FieldFault> {
    let Some(raw) = raw else {
        return Ok(None);
    };
    let read = || {
        let control: wire::AnthropicCacheControl<'_> = reread(raw)?;
        if required(control.kind, "type")?.as_str() != "ephemeral" {
            return Err(FieldFault::new("type", "must be ephemeral"));
        }
        let lifetime = match control.ttl.as_ref().map(Text::as_str) {
            None | Some("5m") => CacheLifetime::Short,
            Some("1h") => CacheLifetime::Long,
            Some(_) => return Err(FieldFault::new("ttl", "must be one of 5m, 1h")),
        };
        Ok((lifetime, control.others.0.is_empty()))
    };
    let (lifetime, is_all) = read().map_err(|fault: FieldFault| fault.within("cache_control"))?;
    if !is_all {
        extra.push(("cache_control".into(), raw.0.to_owned()));
    }
    Ok(is_all.then_some(lifetime))
}

fn opaque(kind: &str, raw: Raw<'_>) -> Content {
    Content::Opaque(Opaque {
        kind: kind.to_owned(),
        json: raw.0.to_owned(),
    })
}
