//! The messages of a request, as contents of the user and the model.
//!
//! The system's first messages become the system instruction. Later ones stay at their place, as a reminder in the
//! user's turn: the dialect has no place for them.

use serde::Serialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::Failure;
use weir_sdk::body::{Base64, Text};
use weir_sdk::chat::{self, ChatRequest, Message, Role, Source, ToolCall, ToolContent, ToolResult};
use weir_sdk::long_texts;
use weir_sdk::messages::{CallArguments, content_name, misplaced};
use weir_sdk::wire::{self, refuse};

use super::Context;
use super::thinking::is_before_3;
use crate::translate::response::GENERATED_ID_PREFIX;

/// The upstream's placeholder for a missing signature, for calls of another model or of a client that kept none.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
pub(super) struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(flatten)]
    body: PartBody<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum PartBody<'a> {
    Text(Text<'a>),
    InlineData(Blob<'a>),
    FileData(FileData<'a>),
    FunctionCall(FunctionCall<'a>),
    FunctionResponse(FunctionResponse<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    mime_type: &'a str,
    data: Base64<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    file_uri: &'a str,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    args: CallArguments<'a>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: FunctionResult<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum FunctionResult<'a> {
    Output(Text<'a>),
    Error(Text<'a>),
    /// The object of a client of this dialect.
    #[serde(untagged)]
    Object(&'a RawValue),
}

/// Returns the system instruction, with these words at its end, and the contents after it.
pub(super) fn translate<'a>(
    chat: &'a ChatRequest,
    words: Option<String>,
    context: &mut Context<'a>,
) -> Result<(Option<Content<'a>>, Vec<Content<'a>>), Failure> {
    let mut system: Vec<Part<'a>> = Vec::new();
    let mut contents: Vec<Content<'a>> = Vec::new();
    for (index, message) in chat.messages.iter().enumerate() {
        let translator = MessageTranslator {
            path: format!("messages[{index}]"),
            message,
            earlier_messages: &chat.messages[..index],
        };
        let mut parts = translator.parts(context)?;
        let role = match message.role {
            Role::System if contents.is_empty() => {
                system.extend(parts);
                continue;
            }
            Role::System => {
                parts.iter_mut().for_each(mark_as_reminder);
                "user"
            }
            Role::User | Role::Tool => "user",
            Role::Assistant => {
                if !is_before_3(&chat.model) {
                    sign_first_call(&mut parts);
                }
                "model"
            }
        };
        match contents.last_mut() {
            // The results of a turn's calls must be in one turn.
            Some(last) if last.role == Some(role) => last.parts.extend(parts),
            _ if parts.is_empty() => {}
            _ => contents.push(Content {
                role: Some(role),
                parts,
            }),
        }
    }
    system.extend(words.map(|words| Part {
        body: PartBody::Text(context.splices.text(words)),
        thought: None,
        thought_signature: None,
    }));
    let system = (!system.is_empty()).then_some(Content {
        role: None,
        parts: system,
    });
    Ok((system, contents))
}

/// Marks a text of the system within the user's turn.
fn mark_as_reminder(part: &mut Part<'_>) {
    if let PartBody::Text(text) = &mut part.body {
        *text = text
            .clone()
            .between("<system-reminder>\n", "\n</system-reminder>");
    }
}

/// Signs the first of a turn's calls, as the upstream requires.
fn sign_first_call(parts: &mut [Part<'_>]) {
    let mut calls = parts.iter_mut();
    let first = calls.find(|part| matches!(part.body, PartBody::FunctionCall(_)));
    if let Some(first) = first {
        first.thought_signature.get_or_insert(NO_SIGNATURE);
    }
}

/// Translates a message. `path` names the message in refusals, such as `messages[0]`.
struct MessageTranslator<'a> {
    path: String,
    message: &'a Message,
    earlier_messages: &'a [Message],
}

impl<'a> MessageTranslator<'a> {
    fn refuse(&self, what: &str) -> Failure {
        refuse(&self.path, format!("{}: {what}", self.path))
    }

    fn parts(&self, context: &mut Context<'a>) -> Result<Vec<Part<'a>>, Failure> {
        let message = self.message;
        wire::leave_out_extra(&message.extra, &self.path, &mut context.ignored)?;
        let mut parts = Vec::with_capacity(message.parts.len());
        for part in &message.parts {
            wire::leave_out_extra(&part.extra, &self.path, &mut context.ignored)?;
            context
                .ignored
                .add_if(part.cache.is_some(), "cache_control");
            let signature = part.signature.as_deref();
            let is_reasoning = matches!(part.content, chat::Content::Reasoning(_));
            if let Some(body) = self.body(part, context)? {
                parts.push(Part {
                    body,
                    thought: is_reasoning.then_some(true),
                    thought_signature: signature,
                });
            }
        }
        Ok(parts)
    }

    fn body(
        &self,
        part: &'a chat::Part,
        context: &mut Context<'a>,
    ) -> Result<Option<PartBody<'a>>, Failure> {
        let role = self.message.role;
        let is_from_user = matches!(role, Role::User | Role::Tool);
        let is_from_model = role == Role::Assistant;
        Ok(Some(match &part.content {
            chat::Content::Text(text) | chat::Content::Refusal(text) => {
                if text.is_empty() && part.signature.is_none() {
                    return Ok(None);
                }
                PartBody::Text(context.splices.text(text.as_str()))
            }
            chat::Content::Image(image) if is_from_user => {
                context
                    .ignored
                    .add_if(image.detail.is_some(), "image_url.detail");
                self.media(&image.source, None, context)?
            }
            chat::Content::Audio(audio) if is_from_user => {
                self.media(&audio.source, None, context)?
            }
            chat::Content::File(file) if is_from_user => {
                if file.cite == Some(true) {
                    return Err(self.refuse("citations of a file"));
                }
                if file.context.is_some() {
                    return Err(self.refuse("what a file is about"));
                }
                let is_called = file.title.is_some() || file.name.is_some();
                context.ignored.add_if(is_called, "file.filename");
                self.media(&file.source, file.media_type.as_deref(), context)?
            }
            chat::Content::Reasoning(reasoning) if is_from_model => {
                // The upstream accepts only its own signatures.
                if part.signature.is_none() || reasoning.sealed.is_some() {
                    context.ignored.add("reasoning");
                    return Ok(None);
                }
                PartBody::Text(context.splices.text(reasoning.text.as_str()))
            }
            chat::Content::ToolCall(call) if is_from_model => {
                PartBody::FunctionCall(self.call(call)?)
            }
            chat::Content::ToolResult(result) if is_from_user => {
                PartBody::FunctionResponse(self.result(result, context)?)
            }
            other => return Err(self.refuse_for_role(other)),
        }))
    }

    /// Returns media as the client's bytes, or by their URL.
    fn media(
        &self,
        source: &'a Source,
        declared_type: Option<&'a str>,
        context: &mut Context<'a>,
    ) -> Result<PartBody<'a>, Failure> {
        Ok(match source {
            Source::Attachment(index) => PartBody::InlineData(Blob {
                mime_type: wire::media_type(
                    context.attachments,
                    *index,
                    declared_type,
                    &self.path,
                )?,
                data: context.splices.base64(*index),
            }),
            Source::Url(file_uri) | Source::Id(file_uri) => PartBody::FileData(FileData {
                mime_type: declared_type.or_else(|| media_type_by_extension(file_uri)),
                file_uri,
            }),
        })
    }

    fn call(&self, call: &'a ToolCall) -> Result<FunctionCall<'a>, Failure> {
        let args = CallArguments::of(call, &self.path)?;
        Ok(FunctionCall {
            id: upstream_id(&call.id),
            name: &call.name,
            args,
        })
    }

    fn result(
        &self,
        result: &'a ToolResult,
        context: &mut Context<'a>,
    ) -> Result<FunctionResponse<'a>, Failure> {
        let name = self.name_of(result);
        let name = name.ok_or_else(|| self.refuse("the result of a call that was not made"))?;
        let (mut texts, mut parts) = (Vec::new(), Vec::new());
        for content in &result.content {
            let (source, declared_type) = match content {
                ToolContent::Text(text) => {
                    texts.push(text.as_str());
                    continue;
                }
                ToolContent::Image(image) => (&image.source, None),
                ToolContent::File(file) => (&file.source, file.media_type.as_deref()),
                ToolContent::Opaque(opaque) => {
                    return Err(self.refuse(&format!("a {} block", opaque.kind)));
                }
            };
            parts.push(Part {
                body: self.media(source, declared_type, context)?,
                thought: None,
                thought_signature: None,
            });
        }
        let object = match texts[..] {
            // The result of a text that it must read is dropped.
            [text] if context.client_speaks_it && !long_texts::must_read(text) => {
                wire::object("", text).ok()
            }
            _ => None,
        };
        let text = || match texts[..] {
            [text] => context.splices.text(text),
            // A line break separates the parts.
            _ => context.splices.joined(&texts, "\n"),
        };
        let response = match object {
            Some(object) => FunctionResult::Object(object),
            None if result.is_error => FunctionResult::Error(text()),
            None => FunctionResult::Output(text()),
        };
        Ok(FunctionResponse {
            id: upstream_id(&result.call_id),
            name,
            response,
            parts,
        })
    }

    /// Returns the name of a result's function: the upstream identifies results by it.
    fn name_of(&self, result: &'a ToolResult) -> Option<&'a str> {
        let calls = self.earlier_messages.iter().rev();
        let calls = calls.flat_map(|message| message.parts.iter().rev());
        let called = calls.filter_map(|part| match &part.content {
            chat::Content::ToolCall(call) if call.id == result.call_id => Some(call.name.as_str()),
            _ => None,
        });
        result.tool_name.as_deref().or_else(|| { called }.next())
    }

    fn refuse_for_role(&self, content: &chat::Content) -> Failure {
        if let chat::Content::Opaque(opaque) = content {
            return self.refuse(&format!("a {} block", opaque.kind));
        }
        self.refuse(&misplaced(content_name(content), self.message.role))
    }
}

/// Returns the upstream's id of a call, if it gave one.
fn upstream_id(id: &str) -> Option<&str> {
    (!id.is_empty() && !id.starts_with(GENERATED_ID_PREFIX)).then_some(id)
}

/// Returns the media type for a URL's extension.
fn media_type_by_extension(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next()?;
    let (_, extension) = path.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "heic" => "image/heic",
        "pdf" => "application/pdf",
        "txt" => "text/plain",
        "mp3" => "audio/mp3",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    })
}
