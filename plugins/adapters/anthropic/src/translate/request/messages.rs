//! The messages of a request, as turns of the user and the assistant.
//!
//! The system's first messages become the system prompt. Later ones stay at their place: unchanged if the client
//! speaks this dialect, since it knows which models accept that, and otherwise as a reminder in the user's turn,
//! which every model accepts.

use serde::{Serialize, Serializer};
use weir_sdk::adapter::Failure;
use weir_sdk::body::{Base64, Text};
use weir_sdk::chat::{
    self, ChatRequest, File, Image, Message, Opaque, Part, Role, ToolCall, ToolContent, ToolResult,
};
use weir_sdk::messages::{CallArguments, content_name, misplaced};
use weir_sdk::wire::{self, Fields, refuse};

use super::{CacheControl, Context};

/// Fields of a message and a part that this module writes; extra fields can't be these.
const MESSAGE_FIELDS: [&str; 2] = ["role", "content"];
const PART_FIELDS: [&str; 12] = [
    "type",
    "text",
    "source",
    "thinking",
    "signature",
    "data",
    "id",
    "name",
    "input",
    "tool_use_id",
    "content",
    "is_error",
];

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    role: &'static str,
    content: MessageContent<'a>,
    #[serde(flatten)]
    extra: Fields<'a>,
}

/// Blocks; a single text without other fields is written as a string.
pub(super) struct MessageContent<'a>(Vec<Block<'a>>);

impl Serialize for MessageContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [
                Block {
                    body: BlockBody::Text { text, .. },
                    cache_control: None,
                    extra,
                },
            ] if extra.is_empty() => text.serialize(serializer),
            blocks => serializer.collect_seq(blocks),
        }
    }
}

#[derive(Serialize)]
struct Block<'a> {
    #[serde(flatten)]
    body: BlockBody<'a>,
    #[serde(flatten)]
    extra: Fields<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum BlockBody<'a> {
    Text {
        text: Text<'a>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        context: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        citations: Option<Citations>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: CallArguments<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<MessageContent<'a>>,
        #[serde(skip_serializing_if = "super::is_false")]
        is_error: bool,
    },
    /// A complete block as the client wrote it, with these fields.
    #[serde(untagged)]
    Opaque(Fields<'a>),
}

#[derive(Serialize)]
struct Citations {
    enabled: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 {
        media_type: &'a str,
        data: Base64<'a>,
    },
    Url {
        url: &'a str,
    },
    File {
        file_id: &'a str,
    },
}

/// Returns the system prompt, and the turns after it.
pub(super) fn translate<'a>(
    chat: &'a ChatRequest,
    context: &mut Context<'a>,
) -> Result<(Option<MessageContent<'a>>, Vec<WireMessage<'a>>), Failure> {
    let mut system: Option<MessageContent<'a>> = None;
    let mut wire_messages: Vec<WireMessage<'a>> = Vec::new();
    for (index, message) in chat.messages.iter().enumerate() {
        let translator = MessageTranslator {
            path: format!("messages[{index}]"),
            message,
        };
        let mut blocks = Vec::with_capacity(message.parts.len());
        for part in &message.parts {
            blocks.extend(translator.block(part, context)?);
        }
        let extra = context.extra(&message.extra, &MESSAGE_FIELDS, &translator.path)?;
        if message.role == Role::System && wire_messages.is_empty() && extra.is_empty() {
            system
                .get_or_insert(MessageContent(Vec::new()))
                .0
                .extend(blocks);
            continue;
        }
        let role = match message.role {
            Role::Assistant => "assistant",
            Role::System if context.client_speaks_it => "system",
            Role::System => {
                blocks.iter_mut().for_each(mark_as_reminder);
                "user"
            }
            Role::User | Role::Tool => "user",
        };
        match wire_messages.last_mut() {
            // All results of a turn's calls must be in one turn, and adjacent turns of one role are merged.
            Some(last) if last.role == role && last.extra.is_empty() && extra.is_empty() => {
                last.content.0.extend(blocks);
            }
            _ if blocks.is_empty() && extra.is_empty() => {}
            _ => wire_messages.push(WireMessage {
                role,
                content: MessageContent(blocks),
                extra,
            }),
        }
    }
    Ok((system.filter(|system| !system.0.is_empty()), wire_messages))
}

/// Marks a text of the system within the user's turn.
fn mark_as_reminder(block: &mut Block<'_>) {
    if let BlockBody::Text { text } = &mut block.body {
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

    /// Refuses a value that the dialect has, but not for this role.
    fn refuse_for_role(&self, what: &str) -> Failure {
        self.refuse(&misplaced(what, self.message.role))
    }

    /// Returns the block of a part, unless the part is empty.
    fn block(
        &self,
        part: &'a Part,
        context: &mut Context<'a>,
    ) -> Result<Option<Block<'a>>, Failure> {
        let Some(body) = self.body(part, context)? else {
            context
                .ignored
                .add_if(part.cache.is_some(), "cache_control");
            return Ok(None);
        };
        let can_end_prefix = !matches!(
            body,
            BlockBody::Thinking { .. } | BlockBody::RedactedThinking { .. } | BlockBody::Opaque(_)
        );
        context
            .ignored
            .add_if(part.cache.is_some() && !can_end_prefix, "cache_control");
        if !matches!(body, BlockBody::Thinking { .. }) {
            context
                .ignored
                .add_if(part.signature.is_some(), "signature");
        }
        Ok(Some(Block {
            body,
            extra: context.extra(&part.extra, &PART_FIELDS, &self.path)?,
            cache_control: CacheControl::beside(&part.extra, part.cache).filter(|_| can_end_prefix),
        }))
    }

    fn body(
        &self,
        part: &'a Part,
        context: &mut Context<'a>,
    ) -> Result<Option<BlockBody<'a>>, Failure> {
        let role = self.message.role;
        let is_from_user = matches!(role, Role::User | Role::Tool);
        Ok(Some(match &part.content {
            chat::Content::Text(text) | chat::Content::Refusal(text) => {
                let text = context.splices.text(text.as_str());
                BlockBody::Text { text }
            }
            chat::Content::Image(image) if is_from_user => self.image(image, context)?,
            chat::Content::File(file) if is_from_user => self.document(file, context)?,
            chat::Content::Reasoning(reasoning) if role == Role::Assistant => {
                match (&reasoning.sealed, &part.signature) {
                    (Some(data), _) => BlockBody::RedactedThinking { data },
                    (None, Some(signature)) => BlockBody::Thinking {
                        thinking: &reasoning.text,
                        signature,
                    },
                    (None, None) => {
                        context.ignored.add("reasoning");
                        return Ok(None);
                    }
                }
            }
            chat::Content::ToolCall(call) if role == Role::Assistant => self.call(call)?,
            chat::Content::ToolResult(result) if is_from_user => self.result(result, context)?,
            chat::Content::Opaque(opaque) => BlockBody::Opaque(self.opaque(opaque, context)?),
            other => return Err(self.refuse_for_role(content_name(other))),
        }))
    }

    fn image(&self, image: &'a Image, context: &mut Context<'a>) -> Result<BlockBody<'a>, Failure> {
        context
            .ignored
            .add_if(image.detail.is_some(), "image_url.detail");
        let source = self.source(&image.source, None, context)?;
        Ok(BlockBody::Image { source })
    }

    fn document(
        &self,
        file: &'a File,
        context: &mut Context<'a>,
    ) -> Result<BlockBody<'a>, Failure> {
        let declared_type = file.media_type.as_deref();
        if let chat::Source::Attachment(index) = file.source {
            let attachments = context.attachments;
            let media_type = wire::media_type(attachments, index, declared_type, &self.path)?;
            if media_type != "application/pdf" {
                return Err(self.refuse(&format!("a file of type {media_type}")));
            }
        }
        Ok(BlockBody::Document {
            source: self.source(&file.source, declared_type, context)?,
            title: file.title.as_deref().or(file.name.as_deref()),
            context: file.context.as_deref(),
            citations: file.cite.map(|enabled| Citations { enabled }),
        })
    }

    fn source(
        &self,
        source: &'a chat::Source,
        declared_type: Option<&'a str>,
        context: &mut Context<'a>,
    ) -> Result<Source<'a>, Failure> {
        Ok(match source {
            chat::Source::Url(url) => Source::Url { url },
            chat::Source::Id(file_id) => {
                context.needs_files_beta = true;
                Source::File { file_id }
            }
            chat::Source::Attachment(index) => {
                let attachments = context.attachments;
                Source::Base64 {
                    media_type: wire::media_type(attachments, *index, declared_type, &self.path)?,
                    data: context.splices.base64(*index),
                }
            }
        })
    }

    fn call(&self, call: &'a ToolCall) -> Result<BlockBody<'a>, Failure> {
        let input = CallArguments::of(call, &self.path)?;
        Ok(BlockBody::ToolUse {
            id: &call.id,
            name: &call.name,
            input,
        })
    }

    fn result(
        &self,
        result: &'a ToolResult,
        context: &mut Context<'a>,
    ) -> Result<BlockBody<'a>, Failure> {
        let mut blocks = Vec::with_capacity(result.content.len());
        for content in &result.content {
            let body = match content {
                ToolContent::Text(text) if text.is_empty() => continue,
                ToolContent::Text(text) => BlockBody::Text {
                    text: context.splices.text(text.as_str()),
                },
                ToolContent::Image(image) => self.image(image, context)?,
                ToolContent::File(file) => self.document(file, context)?,
                ToolContent::Opaque(opaque) => BlockBody::Opaque(self.opaque(opaque, context)?),
            };
            blocks.push(Block {
                body,
                extra: Fields::default(),
                cache_control: None,
            });
        }
        Ok(BlockBody::ToolResult {
            tool_use_id: &result.call_id,
            content: (!blocks.is_empty()).then_some(MessageContent(blocks)),
            is_error: result.is_error,
        })
    }

    /// Returns a block of this dialect unchanged; refuses another dialect's.
    fn opaque(&self, opaque: &'a Opaque, context: &Context<'_>) -> Result<Fields<'a>, Failure> {
        if context.client_speaks_it {
            Fields::of_object(&opaque.json, &[], &self.path)
        } else {
            Err(self.refuse(&format!("a {} block", opaque.kind)))
        }
    }
}
