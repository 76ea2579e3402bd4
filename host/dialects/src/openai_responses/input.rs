//! The items of a request's input: translates them into messages.
//!
//! The model's output of one turn is several items in sequence, and one message of the vocabulary; the same applies to
//! the results of its calls. Items of hosted tools, which began at another gateway or at the provider, are opaque parts of the
//! model's turn: servers of this dialect get them unchanged, and adapters of others leave them out.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::json;
use weir_sandbox::adapter::bindings::chat::{
    CacheLifetime, CallKind, Content, File, Image, Message, Opaque, Part, Reasoning, Role, Source,
    ToolCall, ToolContent, ToolResult,
};

use super::tools::{DefinedTool, tool};
use super::wire::{self, ID_PREFIX, MESSAGE};
use crate::json::{
    FieldFault, Text, base64_data, check_at_most, check_https_url, check_id, check_length, each,
    is_media_type_name, items, presentable, required, reread,
};
use crate::openai::{called_name, check_file_id, check_file_name, image_source, inline_file};
use crate::proof::{ProvenContent, ReasoningProof};
use crate::tool_names::{MAX_NAMESPACE_CHARS, ToolNames};
use crate::{Attachment, Attachments, MessageOrigin, PartReference, plain};

const MAX_NAME_CHARS: usize = 64;
/// The maximum responses that a request may refer to, because each is read and decrypted.
const MAX_ANSWERS: usize = 64;

/// The type of an item that adds tools.
const ADDITIONAL_TOOLS: &str = "additional_tools";

/// The messages of a request.
pub(super) struct RequestMessages {
    pub(super) messages: Vec<Message>,
    /// The first item of each message.
    pub(super) origins: Vec<MessageOrigin>,
    /// The references to parts of earlier responses.
    pub(super) references: Vec<PartReference>,
}

/// The input of a request.
pub(super) enum Input<'a> {
    Text(String),
    Items(Vec<Item<'a>>),
}

/// An item of the input.
#[derive(Default)]
pub(super) struct Item<'a> {
    known: wire::InputItem<'a>,
    /// The item of a hosted tool, in place of the other one.
    hosted: Option<Opaque>,
}

/// Reads the items.
pub(super) fn read(input: wire::ResponsesInput<'_>) -> Result<Input<'_>, FieldFault> {
    Ok(match input {
        wire::ResponsesInput::Text(text) => Input::Text(text),
        wire::ResponsesInput::List(items) => Input::Items(each(items.0, "input", item)?),
    })
}

fn item(wire::RawItem(raw): wire::RawItem<'_>) -> Result<Item<'_>, FieldFault> {
    /// Other fields of an item of a hosted tool may have any types.
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: Option<String>,
    }
    let hosted = |kind: Option<&str>| {
        let kind = kind?;
        let opaque = || Opaque {
            kind: kind.to_owned(),
            json: raw.0.to_owned(),
        };
        wire::HOSTED_ITEMS.contains(&kind).then(opaque)
    };
    let read: Result<wire::InputItem<'_>, _> = reread(raw);
    let hosted = match &read {
        Ok(item) => hosted(item.kind.as_ref().map(Text::as_str)),
        Err(_) => {
            let kind = reread(raw).ok().and_then(|Kind { kind }| kind);
            hosted(kind.as_deref())
        }
    };
    Ok(match hosted {
        Some(_) => Item {
            hosted,
            ..Item::default()
        },
        None => Item {
            known: read?,
            hosted: None,
        },
    })
}

/// Takes the tools out of the items that add tools: the model has all of them from the beginning.
pub(super) fn additional_tools(input: &mut Input<'_>) -> Result<Vec<DefinedTool>, FieldFault> {
    let Input::Items(items) = input else {
        return Ok(Vec::new());
    };
    let mut tools = Vec::new();
    for (index, Item { known: item, .. }) in items.iter_mut().enumerate() {
        if item.kind.as_ref().map(Text::as_str) == Some(ADDITIONAL_TOOLS) {
            let added = required(item.tools.take(), "tools");
            let added = added.and_then(|added| each(added.0, "tools", tool));
            tools.extend(added.map_err(|fault| fault.at(index).within("input"))?);
        }
    }
    Ok(tools)
}

/// Translates the messages of a request, in order.
pub(super) fn messages(
    input: Input<'_>,
    names: &ToolNames,
    attachments: &mut Attachments,
) -> Result<RequestMessages, FieldFault> {
    let items = match input {
        Input::Text(text) => {
            let part = plain(Content::Text(text));
            return Ok(RequestMessages {
                messages: vec![message(Role::User, vec![part])],
                origins: vec![MessageOrigin::Listed(0)],
                references: Vec::new(),
            });
        }
        Input::Items(items) => items,
    };
    if items.is_empty() {
        return Err(FieldFault::new("input", "must not be empty"));
    }
    let mut messages = Vec::with_capacity(items.len());
    let mut origins = Vec::with_capacity(items.len());
    let mut references = References::default();
    for (index, Item { known, hosted }) in items.into_iter().enumerate() {
        let added = match hosted {
            Some(hosted) => {
                let part = plain(Content::Opaque(hosted));
                join(Role::Assistant, part, &mut messages);
                Ok(())
            }
            None if is_reference(&known) => references.add(known, index, &mut messages),
            None => add(known, names, &mut messages, attachments),
        };
        added.map_err(|fault| fault.at(index).within("input"))?;
        origins.resize(messages.len(), MessageOrigin::Listed(index));
    }
    if messages.is_empty() {
        return Err(FieldFault::new("input", "must say something"));
    }
    Ok(RequestMessages {
        messages,
        origins,
        references: references.all,
    })
}

/// The items that are references.
#[derive(Default)]
struct References {
    all: Vec<PartReference>,
    ids: HashSet<String>,
    answers: HashSet<String>,
}

/// Whether an item is a reference by id; its type is optional.
fn is_reference(item: &wire::InputItem<'_>) -> bool {
    match item.kind.as_ref().map(Text::as_str) {
        Some(kind) => kind == "item_reference",
        None => item.id.is_some() && item.role.is_none(),
    }
}

impl References {
    /// Adds a reference, with an empty text as its placeholder. A repeated reference counts once: clients repeat it if
    /// they take the item's parts for items.
    fn add(
        &mut self,
        item: wire::InputItem<'_>,
        index: usize,
        messages: &mut Vec<Message>,
    ) -> Result<(), FieldFault> {
        let id = required(item.id, "id")?.into_string();
        check_id(&id, "id")?;
        let unknown = || {
            FieldFault::new(
                "id",
                "must be the id of an item of an earlier response: send the item itself",
            )
        };
        let (prefix, rest) = id.split_once('_').ok_or_else(unknown)?;
        let (answer, block) = rest.rsplit_once('_').ok_or_else(unknown)?;
        let block = block.parse().map_err(|_| unknown())?;
        if !matches!(prefix, "msg" | "rs" | "fc" | "ctc") {
            return Err(unknown());
        }
        let answer = format!("{ID_PREFIX}{answer}");
        if self.answers.insert(answer.clone()) && self.answers.len() > MAX_ANSWERS {
            return Err(FieldFault::new(
                "id",
                format!("must not refer to more than {MAX_ANSWERS} responses in a request"),
            ));
        }
        let is_proof = prefix == "rs";
        if !self.ids.insert(id) {
            return Ok(());
        }
        join(
            Role::Assistant,
            plain(Content::Text(String::new())),
            messages,
        );
        let message = messages.len() - 1;
        self.all.push(PartReference {
            message,
            part: messages[message].parts.len() - 1,
            answer,
            block,
            is_proof,
            param: format!("input[{index}].id"),
        });
        Ok(())
    }
}

/// Returns a message with these parts only.
pub(super) fn message(role: Role, parts: Vec<Part>) -> Message {
    Message {
        role,
        name: None,
        parts,
        extra: Vec::new(),
    }
}

/// Adds an item to the messages.
fn add(
    mut item: wire::InputItem<'_>,
    names: &ToolNames,
    messages: &mut Vec<Message>,
    attachments: &mut Attachments,
) -> Result<(), FieldFault> {
    let kind = item.kind.take();
    // In its short form, a message has no type.
    let kind = match (&kind, &item.role) {
        (Some(kind), _) => kind.as_str(),
        (None, Some(_)) => "message",
        (None, None) => return Err(FieldFault::new("type", "is required")),
    };
    check_is_known(kind)?;
    if let Some((name, _)) = item.others.0.first() {
        return Err(FieldFault::new(
            presentable(name.as_str()),
            "is not supported",
        ));
    }
    if item.tools.is_some() {
        return Err(FieldFault::new("tools", "is not supported"));
    }
    if let (Some(namespace), Some(name)) = (item.namespace.take(), &mut item.name) {
        check_at_most(&namespace, MAX_NAMESPACE_CHARS, "namespace")?;
        *name = names.flat(&namespace, name);
    }
    match kind {
        // Its tools are taken already.
        ADDITIONAL_TOOLS => {}
        "message" => return said(item, messages, attachments),
        "reasoning" => return reasoning(item, messages),
        "function_call" => {
            let arguments = required(item.arguments.take(), "arguments")?;
            let call = call(item, CallKind::Function, arguments)?;
            join(Role::Assistant, plain(Content::ToolCall(call)), messages);
        }
        "custom_tool_call" => {
            let input = required(item.input.take(), "input")?;
            let call = call(item, CallKind::Custom, input)?;
            join(Role::Assistant, plain(Content::ToolCall(call)), messages);
        }
        "image_generation_call" => {
            let image = plain(Content::Image(made_image(item, attachments)?));
            join(Role::Assistant, image, messages);
        }
        _ => {
            let result = result(item, attachments)?;
            join(Role::Tool, plain(Content::ToolResult(result)), messages);
        }
    }
    Ok(())
}

/// Refuses items that weir does not know.
fn check_is_known(kind: &str) -> Result<(), FieldFault> {
    match kind {
        "message"
        | "reasoning"
        | "function_call"
        | "function_call_output"
        | "custom_tool_call"
        | "custom_tool_call_output"
        | "image_generation_call"
        | ADDITIONAL_TOOLS => Ok(()),
        _ => Err(FieldFault::new(
            "type",
            "must be one of message, reasoning, function_call, function_call_output, custom_tool_call, \
             custom_tool_call_output, image_generation_call, additional_tools, or an item of a hosted tool",
        )),
    }
}

/// Appends a part to the last message if it has the same role, else to a new one.
fn join(role: Role, part: Part, messages: &mut Vec<Message>) {
    match messages.last_mut() {
        Some(last) if last.role == role => last.parts.push(part),
        _ => messages.push(message(role, vec![part])),
    }
}

fn said(
    item: wire::InputItem<'_>,
    messages: &mut Vec<Message>,
    attachments: &mut Attachments,
) -> Result<(), FieldFault> {
    let role = match required(item.role, "role")?.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" | "developer" => Role::System,
        _ => {
            return Err(FieldFault::new(
                "role",
                "must be one of user, assistant, system, developer",
            ));
        }
    };
    let parts = match required(item.content, "content")? {
        wire::InputContent::Text(text) => vec![plain(Content::Text(text))],
        wire::InputContent::List(parts) => {
            each(parts.0, "content", |part| content(part, role, attachments))?
        }
    };
    match role {
        // A response without content is empty, besides the other items of its turn.
        Role::Assistant => {
            if let Some(phase) = item.phase.filter(|_| !parts.is_empty()) {
                check_at_most(&phase, wire::MAX_PHASE_CHARS, "phase")?;
                join(role, plain(Content::Opaque(phase_block(&phase))), messages);
            }
            for part in parts {
                join(role, part, messages);
            }
        }
        _ if parts.is_empty() => return Err(FieldFault::new("content", "must not be empty")),
        _ => messages.push(message(role, parts)),
    }
    Ok(())
}

/// Returns the mark of a message with a phase, before its parts.
fn phase_block(phase: &str) -> Opaque {
    Opaque {
        kind: MESSAGE.to_owned(),
        json: json!({ "phase": phase }).to_string(),
    }
}

fn content(
    mut part: wire::InputPart<'_>,
    role: Role,
    attachments: &mut Attachments,
) -> Result<Part, FieldFault> {
    let kind = required(part.kind.take(), "type")?;
    let cache = cache(part.prompt_cache_breakpoint.take())?;
    let extra = std::mem::take(&mut part.others).into_fields();
    let content = match (kind.as_str(), role) {
        // Some clients write earlier responses with the types of questions.
        ("input_text" | "output_text", _) => Content::Text(required(part.text, "text")?),
        ("refusal", Role::Assistant) => Content::Refusal(required(part.refusal, "refusal")?),
        ("input_image", Role::User | Role::Tool) => Content::Image(image(part, attachments)?),
        ("input_file", Role::User | Role::Tool) => Content::File(file(part, attachments)?),
        (_, role) => {
            return Err(FieldFault::new(
                "type",
                match role {
                    Role::System => "must be input_text",
                    Role::User | Role::Tool => "must be one of input_text, input_image, input_file",
                    Role::Assistant => "must be one of output_text, refusal",
                },
            ));
        }
    };
    Ok(Part {
        cache,
        extra,
        ..plain(content)
    })
}

fn image(part: wire::InputPart<'_>, attachments: &mut Attachments) -> Result<Image, FieldFault> {
    let source = match (part.image_url, part.file_id) {
        (Some(_), Some(_)) => {
            let predicate = "must not be given together with image_url";
            return Err(FieldFault::new("file_id", predicate));
        }
        (None, Some(id)) => {
            check_file_id(&id)?;
            Source::Id(id)
        }
        (url, None) => image_source(required(url, "image_url")?, "image_url", attachments)?,
    };
    let detail = match part.detail.as_ref().map(Text::as_str) {
        None | Some("auto") => None,
        Some(word @ ("low" | "high" | "original")) => Some(word.to_owned()),
        Some(_) => {
            return Err(FieldFault::new(
                "detail",
                "must be one of auto, low, high, original",
            ));
        }
    };
    Ok(Image { source, detail })
}

fn file(part: wire::InputPart<'_>, attachments: &mut Attachments) -> Result<File, FieldFault> {
    check_file_name(part.filename.as_deref())?;
    if part.detail.is_some_and(|detail| detail.as_str() != "auto") {
        return Err(FieldFault::new("detail", "must be auto for a file"));
    }
    let (source, media_type) = match (part.file_id, part.file_url, part.file_data) {
        (Some(id), None, None) => {
            check_file_id(&id)?;
            (Source::Id(id), None)
        }
        (None, Some(url), None) => {
            check_https_url(url.as_str(), "file_url", "must be an https URL")?;
            (Source::Url(url.into_string()), None)
        }
        (None, None, data) => {
            let (source, media_type) = inline_file(required(data, "file_data")?, attachments)?;
            (source, Some(media_type))
        }
        _ => {
            return Err(FieldFault::new(
                "",
                "must have one of file_data, file_url and file_id",
            ));
        }
    };
    Ok(File {
        source,
        name: part.filename,
        media_type,
        title: None,
        context: None,
        cite: None,
    })
}

/// Returns the end of a cached prefix; every lifetime except the longer one counts as the shorter.
fn cache(mark: Option<wire::CacheBreakpoint<'_>>) -> Result<Option<CacheLifetime>, FieldFault> {
    let Some(mark) = mark else {
        return Ok(None);
    };
    let read = || {
        if required(mark.mode, "mode")?.as_str() != "explicit" {
            return Err(FieldFault::new("mode", "must be explicit"));
        }
        match mark.ttl.as_ref().map(Text::as_str) {
            None | Some("30m") => Ok(CacheLifetime::Short),
            Some("12h") => Ok(CacheLifetime::Long),
            Some(_) => Err(FieldFault::new("ttl", "must be one of 30m, 12h")),
        }
    };
    read()
        .map(Some)
        .map_err(|fault: FieldFault| fault.within("prompt_cache_breakpoint"))
}

fn call(
    item: wire::InputItem<'_>,
    kind: CallKind,
    arguments: String,
) -> Result<ToolCall, FieldFault> {
    let id = required(item.call_id, "call_id")?;
    check_id(&id, "call_id")?;
    Ok(ToolCall {
        id,
        name: called_name(item.name)?,
        kind,
        arguments,
    })
}

fn result(
    item: wire::InputItem<'_>,
    attachments: &mut Attachments,
) -> Result<ToolResult, FieldFault> {
    let call_id = required(item.call_id, "call_id")?;
    check_id(&call_id, "call_id")?;
    let content = match required(item.output, "output")? {
        wire::InputContent::Text(text) => vec![ToolContent::Text(text)],
        wire::InputContent::List(parts) => each(parts.0, "output", |part| {
            // The vocabulary holds a result as one part, so unknown fields of its inner parts have no place.
            if let Some((name, _)) = part.others.0.first() {
                return Err(FieldFault::new(
                    presentable(name.as_str()),
                    "is not supported",
                ));
            }
            Ok(match content(part, Role::Tool, attachments)?.content {
                Content::Text(text) => ToolContent::Text(text),
                Content::Image(image) => ToolContent::Image(image),
                Content::File(file) => ToolContent::File(file),
                _ => {
                    return Err(FieldFault::new(
                        "type",
                        "must be a type that a result allows",
                    ));
                }
            })
        })?,
    };
    if let Some(name) = &item.name {
        check_length(name, MAX_NAME_CHARS, "name")?;
    }
    Ok(ToolResult {
        call_id,
        tool_name: item.name,
        content,
        is_error: false,
    })
}

/// Translates an image of an earlier response.
fn made_image(
    item: wire::InputItem<'_>,
    attachments: &mut Attachments,
) -> Result<Image, FieldFault> {
    let format = item.output_format.as_ref().map_or("png", Text::as_str);
    if !is_media_type_name(format) {
        return Err(FieldFault::new(
            "output_format",
            "must be the name of a format, e.g. png",
        ));
    }
    let data = required(item.result, "result")?;
    let source = attachments.add(Attachment {
        media_type: format!("image/{}", format.to_ascii_lowercase()),
        data: base64_data(data.as_str(), "result")?,
    });
    Ok(Image {
        source,
        detail: None,
    })
}

/// Translates reasoning, or the proof of the previous item.
fn reasoning(item: wire::InputItem<'_>, messages: &mut Vec<Message>) -> Result<(), FieldFault> {
    let mut text = texts(items(item.summary), "summary")?;
    if text.is_empty()
        && let Some(content) = item.content
    {
        text = match content {
            wire::InputContent::Text(text) => text,
            wire::InputContent::List(parts) => texts(parts.0, "content")?,
        };
    }
    let proof = item
        .encrypted_content
        .filter(|text| !text.as_str().is_empty());
    let Some(proof) = proof.map(|text| ReasoningProof::read(text.as_str())) else {
        if !text.is_empty() {
            let reasoning = Reasoning {
                text,
                sealed: None,
                id: None,
            };
            join(
                Role::Assistant,
                plain(Content::Reasoning(reasoning)),
                messages,
            );
        }
        return Ok(());
    };
    check_at_most(&proof.provider, MAX_NAME_CHARS, "encrypted_content")?;
    let signature = Some(proof.signature).filter(|signature| !signature.is_empty());
    let provider = Some(proof.provider);
    match proof.of {
        ProvenContent::Reasoning => {
            let reasoning = Reasoning {
                text,
                sealed: Some(proof.sealed).filter(|sealed| !sealed.is_empty()),
                id: None,
            };
            let part = Part {
                signature,
                provider,
                ..plain(Content::Reasoning(reasoning))
            };
            join(Role::Assistant, part, messages);
        }
        of => {
            let last = messages.last_mut();
            let last = last.filter(|last| last.role == Role::Assistant);
            let last = last.and_then(|last| last.parts.last_mut());
            match last.filter(|part| part.signature.is_none() && is_proven(&part.content, &of)) {
                Some(part) => (part.signature, part.provider) = (signature, provider),
                // An empty text has no item, but can have a proof.
                None if of == ProvenContent::Text => {
                    let part = Part {
                        signature,
                        provider,
                        ..plain(Content::Text(String::new()))
                    };
                    join(Role::Assistant, part, messages);
                }
                // The proven item is missing.
                None => {}
            }
        }
    }
    Ok(())
}

fn is_proven(content: &Content, of: &ProvenContent) -> bool {
    match (content, of) {
        (Content::Text(_), ProvenContent::Text) => true,
        (Content::ToolCall(call), ProvenContent::Call(id)) => call.id == *id,
        _ => false,
    }
}

/// Joins the texts of a reasoning item's parts by line breaks.
fn texts(parts: Vec<wire::InputPart<'_>>, field: &str) -> Result<String, FieldFault> {
    let texts = each(parts, field, |part| required(part.text, "text"))?;
    Ok(texts.join("\n"))
}
