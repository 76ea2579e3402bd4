//! The messages of a request, as turns of the user and the assistant.
//!
//! The system's first messages become the system prompt. Later ones stay at their place, as a reminder in the user's turn, which
//! every model accepts.

use serde::Serialize;
use weir_sdk::adapter::Failure;
use weir_sdk::body::{Base64, Text};
use weir_sdk::chat::{
    self, ChatRequest, File, Image, Message, Part, Role, Source, ToolCall, ToolContent, ToolResult,
};
use weir_sdk::messages::{CallArguments, content_name, misplaced};
use weir_sdk::wire::{self, refuse};

use super::{CachePoint, Context};
use crate::translate::fit;

/// Maximum length of a document's name, with room for a number.
const MAX_NAME_CHARACTERS: usize = 190;

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Block<'a> {
    Text(Text<'a>),
    Image(ImageBlock<'a>),
    Document(DocumentBlock<'a>),
    ReasoningContent(ReasoningBlock<'a>),
    ToolUse(ToolUse<'a>),
    ToolResult(ToolResultBlock<'a>),
    CachePoint(CachePoint),
}

#[derive(Serialize)]
pub(super) struct ImageBlock<'a> {
    format: &'a str,
    source: ByteSource<'a>,
}

#[derive(Serialize)]
pub(super) struct DocumentBlock<'a> {
    format: &'static str,
    name: String,
    source: ByteSource<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    citations: Option<Citations>,
}

#[derive(Serialize)]
struct ByteSource<'a> {
    bytes: Base64<'a>,
}

#[derive(Serialize)]
struct Citations {
    enabled: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ReasoningBlock<'a> {
    ReasoningText { text: &'a str, signature: &'a str },
    RedactedContent(&'a str),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    tool_use_id: &'a str,
    name: &'a str,
    input: CallArguments<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolResultBlock<'a> {
    tool_use_id: &'a str,
    content: Vec<Block<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

/// Returns the system prompt, and the turns after it.
pub(super) fn translate<'a>(
    chat: &'a ChatRequest,
    context: &mut Context<'a>,
) -> Result<(Vec<Block<'a>>, Vec<WireMessage<'a>>), Failure> {
    let mut system: Vec<Block<'a>> = Vec::new();
    let mut wire_messages: Vec<WireMessage<'a>> = Vec::new();
    for (index, message) in chat.messages.iter().enumerate() {
        let translator = MessageTranslator {
            path: format!("messages[{index}]"),
            message,
        };
        wire::leave_out_extra(&message.extra, &translator.path, &mut context.ignored)?;
        let mut blocks = Vec::with_capacity(message.parts.len());
        if fit::is_document_alone(message) {
            blocks.push(Block::Text(context.splices.text(fit::BESIDE_DOCUMENT)));
        }
        for part in &message.parts {
            translator.add(part, &mut blocks, context)?;
        }
        let role = match message.role {
            Role::System if wire_messages.is_empty() => {
                system.extend(blocks);
                continue;
            }
            Role::System => {
                blocks.iter_mut().for_each(mark_as_reminder);
                "user"
            }
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        };
        match wire_messages.last_mut() {
            // All results of a turn's calls must be in one turn, and roles must alternate.
            Some(last) if last.role == role => last.content.extend(blocks),
            _ if blocks.is_empty() => {}
            _ => wire_messages.push(WireMessage {
                role,
                content: blocks,
            }),
        }
    }
    Ok((system, wire_messages))
}

/// Marks a text of the system within the user's turn.
fn mark_as_reminder(block: &mut Block<'_>) {
    if let Block::Text(text) = block {
        *text = text
            .clone()
            .between("<system-reminder>\n", "\n</system-reminder>");
    }
}

/// Translates a message. `path` names the message in refusals, such as `messages[0]`.
struct MessageTranslator<'a> {
    path: String,
    message: &'a Message,
}

impl<'a> MessageTranslator<'a> {
    fn refuse(&self, what: &str) -> Failure {
        refuse(&self.path, format!("{}: {what}", self.path))
    }

    /// Adds the block of a part and the cache point behind it.
    fn add(
        &self,
        part: &'a Part,
        blocks: &mut Vec<Block<'a>>,
        context: &mut Context<'a>,
    ) -> Result<(), Failure> {
        wire::leave_out_extra(&part.extra, &self.path, &mut context.ignored)?;
        let block = self.block(part, context)?;
        let can_end_prefix = matches!(
            block,
            Some(
                Block::Text(_)
                    | Block::Image(_)
                    | Block::Document(_)
                    | Block::ToolUse(_)
                    | Block::ToolResult(_)
            )
        );
        if !matches!(block, Some(Block::ReasoningContent(_))) {
            context
                .ignored
                .add_if(part.signature.is_some(), "signature");
        }
        blocks.extend(block);
        match can_end_prefix {
            true => blocks.extend(context.cache_point(part.cache).map(Block::CachePoint)),
            false => context
                .ignored
                .add_if(part.cache.is_some(), "cache_control"),
        }
        Ok(())
    }

    /// Returns the block of a part, unless the part is empty.
    fn block(
        &self,
        part: &'a Part,
        context: &mut Context<'a>,
    ) -> Result<Option<Block<'a>>, Failure> {
        let role = self.message.role;
        let is_from_user = matches!(role, Role::User | Role::Tool);
        Ok(Some(match &part.content {
            chat::Content::Text(text) | chat::Content::Refusal(text) => {
                Block::Text(context.splices.text(text.as_str()))
            }
            chat::Content::Image(image) if is_from_user => self.image(image, context)?,
            chat::Content::File(file) if is_from_user => self.document(file, context)?,
            chat::Content::Reasoning(reasoning) if role == Role::Assistant => {
                Block::ReasoningContent(match (&reasoning.sealed, &part.signature) {
                    (Some(sealed), _) => ReasoningBlock::RedactedContent(sealed),
                    (None, Some(signature)) => ReasoningBlock::ReasoningText {
                        text: &reasoning.text,
                        signature,
                    },
                    (None, None) => {
                        context.ignored.add("reasoning");
                        return Ok(None);
                    }
                })
            }
            chat::Content::ToolCall(call) if role == Role::Assistant => {
                Block::ToolUse(self.call(call)?)
            }
            chat::Content::ToolResult(result) if is_from_user => {
                Block::ToolResult(self.result(result, context)?)
            }
            chat::Content::Opaque(opaque) => {
                return Err(self.refuse(&format!("a {} block", opaque.kind)));
            }
            other => return Err(self.refuse(&misplaced(content_name(other), role))),
        }))
    }

    fn image(&self, image: &'a Image, context: &mut Context<'a>) -> Result<Block<'a>, Failure> {
        context
            .ignored
            .add_if(image.detail.is_some(), "image_url.detail");
        let Source::Attachment(index) = image.source else {
            return Err(self.refuse("an image by its URL or id"));
        };
        let media_type = wire::media_type(context.attachments, index, None, &self.path)?;
        let format = media_type.strip_prefix("image/").unwrap_or(media_type);
        if !["png", "jpeg", "gif", "webp"].contains(&format) {
            return Err(self.refuse(&format!("an image of type {media_type}")));
        }
        let bytes = context.splices.base64(index);
        Ok(Block::Image(ImageBlock {
            format,
            source: ByteSource { bytes },
        }))
    }

    fn document(&self, file: &'a File, context: &mut Context<'a>) -> Result<Block<'a>, Failure> {
        let Source::Attachment(index) = file.source else {
            return Err(self.refuse("a file by its URL or id"));
        };
        let declared_type = file.media_type.as_deref();
        let media_type = wire::media_type(context.attachments, index, declared_type, &self.path)?;
        let Some(format) = document_format(media_type) else {
            return Err(self.refuse(&format!("a file of type {media_type}")));
        };
        let title = file.title.as_deref().or(file.name.as_deref());
        let name = document_name(title.unwrap_or_default(), &context.document_names);
        context.document_names.push(name.clone());
        let bytes = context.splices.base64(index);
        Ok(Block::Document(DocumentBlock {
            format,
            name,
            source: ByteSource { bytes },
            context: file.context.as_deref(),
            citations: file.cite.map(|enabled| Citations { enabled }),
        }))
    }

    fn call(&self, call: &'a ToolCall) -> Result<ToolUse<'a>, Failure> {
        Ok(ToolUse {
            tool_use_id: &call.id,
            name: &call.name,
            input: CallArguments::of(call, &self.path)?,
        })
    }

    fn result(
        &self,
        result: &'a ToolResult,
        context: &mut Context<'a>,
    ) -> Result<ToolResultBlock<'a>, Failure> {
        let mut content = Vec::with_capacity(result.content.len());
        for part in &result.content {
            content.push(match part {
                ToolContent::Text(text) => Block::Text(context.splices.text(text.as_str())),
                ToolContent::Image(image) => self.image(image, context)?,
                ToolContent::File(file) => self.document(file, context)?,
                ToolContent::Opaque(opaque) => {
                    return Err(self.refuse(&format!("a {} block", opaque.kind)));
                }
            });
        }
        Ok(ToolResultBlock {
            tool_use_id: &result.call_id,
            content,
            status: result.is_error.then_some("error"),
        })
    }
}

/// Returns the upstream's name of a document's format.
fn document_format(media_type: &str) -> Option<&'static str> {
    Some(match media_type {
        "application/pdf" => "pdf",
        "text/csv" => "csv",
        "application/msword" => "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.ms-excel" => "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        "text/html" => "html",
        "text/plain" => "txt",
        "text/markdown" => "md",
        _ => return None,
    })
}

/// Returns a document's name in the upstream's alphabet: letters, digits, single spaces, hyphens, parentheses and square
/// brackets. A name that another document has gets a number.
fn document_name(title: &str, used_names: &[String]) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-()[]".contains(c);
    let words = title.split_whitespace().map(|word| -> String {
        let allowed = word.chars().map(|c| if is_allowed(c) { c } else { '-' });
        allowed.collect()
    });
    let name = words.collect::<Vec<_>>().join(" ");
    let name: String = name.chars().take(MAX_NAME_CHARACTERS).collect();
    let name = match name.trim_matches(['-', ' ']) {
        "" => "document",
        name => name,
    };
    let mut numbered = name.to_owned();
    let mut number = 1;
    while used_names.contains(&numbered) {
        number += 1;
        numbered = format!("{name} ({number})");
    }
    numbered
}
