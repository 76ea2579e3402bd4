//! The messages of a request.

use std::borrow::Cow;

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use weir_sdk::body::Text;
use weir_sdk::chat::{
    Audio, CallKind, ChatRequest, Content, File, Image, Message, Opaque, Part, Reasoning, Role,
    Source, ToolCall, ToolContent, ToolResult,
};
use weir_sdk::messages::{content_name, misplaced};

use super::{Context, RawJson, entry_if};

/// The field for reasoning with its proofs, part by part; the other fields have only its text.
const REASONING_DETAILS: &str = "reasoning_details";

/// Fields of a message, a part and a call that this module writes; extra fields can't be these.
const MESSAGE_FIELDS: [&str; 8] = [
    "role",
    "name",
    "content",
    "tool_calls",
    "tool_call_id",
    "reasoning_content",
    "reasoning",
    REASONING_DETAILS,
];
const PART_FIELDS: [&str; 6] = [
    "type",
    "text",
    "refusal",
    "image_url",
    "input_audio",
    "file",
];
const CALL_FIELDS: [&str; 4] = ["id", "type", "function", "custom"];

pub(super) struct Messages<'a> {
    pub(super) chat: &'a ChatRequest,
    pub(super) context: &'a Context<'a>,
}

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut messages = serializer.serialize_seq(None)?;
        for (index, message) in self.chat.messages.iter().enumerate() {
            let writer = MessageWriter {
                context: self.context,
                index,
                message,
            };
            writer.record_ignored();
            match message.role {
                Role::System | Role::User => {
                    messages.serialize_element(&PromptMessage { writer })?
                }
                Role::Assistant => messages.serialize_element(&AssistantMessage { writer })?,
                // Here, each result is a message of its own.
                Role::Tool => {
                    for part in &message.parts {
                        let Content::ToolResult(result) = &part.content else {
                            return Err(writer.refuse_content(&part.content));
                        };
                        messages.serialize_element(&ToolMessage {
                            writer,
                            part,
                            result,
                        })?;
                    }
                }
            }
        }
        messages.end()
    }
}

/// Writes the parts of a message, and names the message in refusals.
#[derive(Clone, Copy)]
struct MessageWriter<'a> {
    context: &'a Context<'a>,
    index: usize,
    message: &'a Message,
}

impl<'a> MessageWriter<'a> {
    /// Returns the parts of the message's `content`.
    fn content_parts(self) -> impl Iterator<Item = &'a Part> {
        self.message
            .parts
            .iter()
            .filter(|part| !matches!(part.content, Content::Reasoning(_) | Content::ToolCall(_)))
    }

    /// A string of the body.
    fn text(self, text: impl Into<Cow<'a, str>>) -> Text<'a> {
        self.context.splices.text(text)
    }

    fn calls(self) -> impl Iterator<Item = (&'a Part, &'a ToolCall)> {
        self.message
            .parts
            .iter()
            .filter_map(|part| match &part.content {
                Content::ToolCall(call) => Some((part, call)),
                _ => None,
            })
    }

    fn reasoning(self) -> impl Iterator<Item = (&'a Part, &'a Reasoning)> {
        self.message
            .parts
            .iter()
            .filter_map(|part| match &part.content {
                Content::Reasoning(reasoning) => Some((part, reasoning)),
                _ => None,
            })
    }

    fn record_ignored(self) {
        for part in &self.message.parts {
            if part.cache.is_some() {
                self.context.ignore("cache_control");
            }
            let is_detailed = matches!(part.content, Content::Reasoning(_))
                && self.context.options.reasoning_field == Some(REASONING_DETAILS);
            let is_sent = is_detailed || signature_of_call(part).is_some();
            if part.signature.is_some() && !is_sent {
                self.context.ignore("signature");
            }
        }
    }

    fn extra<M: SerializeMap>(
        self,
        map: &mut M,
        part: &Part,
        own: &[&str],
    ) -> Result<(), M::Error> {
        let path = format_args!("messages[{}]", self.index);
        self.context.extra(map, &part.extra, own, path)
    }

    fn message_extra<M: SerializeMap>(self, map: &mut M) -> Result<(), M::Error> {
        let path = format_args!("messages[{}]", self.index);
        self.context
            .extra(map, &self.message.extra, &MESSAGE_FIELDS, path)
    }

    fn name(self) -> String {
        format!("messages[{}]", self.index)
    }

    fn refuse<E: serde::ser::Error>(self, what: &str) -> E {
        let name = self.name();
        self.context.refuse(&name, format!("{name}: {what}"))
    }

    /// Refuses a value that the dialect has, but not for this role.
    fn refuse_for_role<E: serde::ser::Error>(self, what: &str) -> E {
        self.refuse(&misplaced(what, self.message.role))
    }

    fn refuse_content<E: serde::ser::Error>(self, content: &Content) -> E {
        self.refuse_for_role(content_name(content))
    }

    /// Returns a block of this dialect unchanged; refuses another dialect's.
    fn opaque<E: serde::ser::Error>(self, opaque: &'a Opaque) -> Result<RawJson<'a>, E> {
        if self.context.client_speaks_it && opaque.json.trim_start().starts_with('{') {
            Ok(RawJson {
                field: &opaque.kind,
                json: &opaque.json,
            })
        } else {
            Err(self.refuse(&format!("a {} block", opaque.kind)))
        }
    }

    /// Returns the media type of the client, or else of the attachment.
    fn media_type<E: serde::ser::Error>(
        self,
        attachment: u32,
        declared_type: Option<&'a str>,
    ) -> Result<&'a str, E> {
        let attachments = self.context.attachments;
        match attachments.get(attachment as usize) {
            Some(attached) => Ok(declared_type.unwrap_or(&attached.media_type)),
            None => Err(self.refuse("an attachment that the request does not have")),
        }
    }
}

/// A message of the system or a user.
struct PromptMessage<'a> {
    writer: MessageWriter<'a>,
}

impl Serialize for PromptMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let writer = self.writer;
        for part in &writer.message.parts {
            if matches!(part.content, Content::Reasoning(_) | Content::ToolCall(_)) {
                return Err(writer.refuse_content(&part.content));
            }
        }
        let is_user = writer.message.role == Role::User;
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", if is_user { "user" } else { "system" })?;
        entry_if(&mut message, "name", writer.message.name.as_deref())?;
        message.serialize_entry("content", &MessageContent { writer })?;
        writer.message_extra(&mut message)?;
        message.end()
    }
}

struct AssistantMessage<'a> {
    writer: MessageWriter<'a>,
}

impl Serialize for AssistantMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let writer = self.writer;
        let has_calls = writer.calls().next().is_some();
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", "assistant")?;
        entry_if(&mut message, "name", writer.message.name.as_deref())?;
        if writer.content_parts().next().is_some() || !has_calls {
            message.serialize_entry("content", &MessageContent { writer })?;
        } else {
            // The upstream writes null as well; some servers require the field.
            message.serialize_entry("content", &())?;
        }
        self.write_reasoning(&mut message)?;
        if has_calls {
            message.serialize_entry("tool_calls", &ToolCalls { writer })?;
        }
        writer.message_extra(&mut message)?;
        message.end()
    }
}

impl AssistantMessage<'_> {
    fn write_reasoning<M: SerializeMap>(&self, message: &mut M) -> Result<(), M::Error> {
        let context = self.writer.context;
        let Some(field) = context.options.reasoning_field else {
            if self.writer.reasoning().next().is_some() {
                context.ignore("reasoning");
            }
            return Ok(());
        };
        if field == REASONING_DETAILS {
            let details = ReasoningDetails {
                writer: self.writer,
            };
            let has_any = self.writer.reasoning().next().is_some();
            return entry_if(message, field, has_any.then_some(details));
        }
        let mut text = String::new();
        for (part, reasoning) in self.writer.reasoning() {
            text += &reasoning.text;
            if reasoning.sealed.is_some() || !part.extra.is_empty() {
                context.ignore("reasoning");
            }
        }
        entry_if(message, field, (!text.is_empty()).then_some(text))
    }
}

/// Reasoning as OpenRouter writes it: readable parts with their signatures, and encrypted ones.
struct ReasoningDetails<'a> {
    writer: MessageWriter<'a>,
}

#[derive(Serialize)]
struct ReasoningDetail<'a> {
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

impl Serialize for ReasoningDetails<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut details = serializer.serialize_seq(None)?;
        for (part, reasoning) in self.writer.reasoning() {
            let sealed = reasoning.sealed.as_deref();
            let signature = part.signature.as_deref();
            let readable = (!reasoning.text.is_empty()).then_some(reasoning.text.as_str());
            // Reasoning beside a sealed form is its provider's summary of that form.
            let is_summary = sealed.is_some() && signature.is_none();
            let detail = ReasoningDetail {
                r#type: "reasoning.text",
                text: None,
                summary: None,
                signature,
                data: None,
                id: reasoning.id.as_deref(),
            };
            if is_summary && readable.is_some() {
                details.serialize_element(&ReasoningDetail {
                    r#type: "reasoning.summary",
                    summary: readable,
                    ..detail
                })?;
            } else if readable.is_some() || signature.is_some() {
                details.serialize_element(&ReasoningDetail {
                    text: readable.or(Some("")),
                    ..detail
                })?;
            }
            match sealed {
                // Unchanged, with its format.
                Some(json) if json.starts_with('{') => {
                    let field = "reasoning_details";
                    details.serialize_element(&RawJson { field, json })?;
                }
                Some(data) => details.serialize_element(&ReasoningDetail {
                    r#type: "reasoning.encrypted",
                    data: Some(data),
                    signature: None,
                    ..detail
                })?,
                None => {}
            }
        }
        details.end()
    }
}

/// A message's `content`: a single text as a string, which every server understands, otherwise a list.
struct MessageContent<'a> {
    writer: MessageWriter<'a>,
}

impl Serialize for MessageContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let writer = self.writer;
        let mut parts = writer.content_parts();
        match (parts.next(), parts.next()) {
            (None, _) => serializer.serialize_str(""),
            (
                Some(Part {
                    content: Content::Text(text),
                    extra,
                    ..
                }),
                None,
            ) if extra
                .iter()
                .all(|(name, _)| writer.context.leaves_out(name)) =>
            {
                extra
                    .iter()
                    .for_each(|(name, _)| writer.context.ignore(name));
                writer.text(text).serialize(serializer)
            }
            _ => serializer.collect_seq(
                writer
                    .content_parts()
                    .map(|part| ContentPart { writer, part }),
            ),
        }
    }
}

struct ContentPart<'a> {
    writer: MessageWriter<'a>,
    part: &'a Part,
}

impl Serialize for ContentPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { writer, part } = *self;
        if let Content::Opaque(opaque) = &part.content {
            return match part.extra.first() {
                None => writer.opaque(opaque)?.serialize(serializer),
                // An opaque block takes no further fields.
                Some((name, _)) => Err(writer.refuse(name)),
            };
        }
        let mut map = serializer.serialize_map(None)?;
        match (&part.content, writer.message.role) {
            (Content::Text(text), _) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", &writer.text(text))?;
            }
            (Content::Refusal(text), Role::Assistant) => {
                map.serialize_entry("type", "refusal")?;
                map.serialize_entry("refusal", text)?;
            }
            (Content::Image(image), Role::User) => {
                map.serialize_entry("type", "image_url")?;
                map.serialize_entry("image_url", &ImageUrl { writer, image })?;
            }
            (Content::Audio(audio), Role::User) => {
                map.serialize_entry("type", "input_audio")?;
                map.serialize_entry("input_audio", &InputAudio { writer, audio })?;
            }
            (Content::File(file), Role::User) => {
                map.serialize_entry("type", "file")?;
                map.serialize_entry("file", &InputFile { writer, file })?;
            }
            (content, _) => return Err(writer.refuse_content(content)),
        }
        writer.extra(&mut map, part, &PART_FIELDS)?;
        map.end()
    }
}

struct ImageUrl<'a> {
    writer: MessageWriter<'a>,
    image: &'a Image,
}

impl Serialize for ImageUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { writer, image } = *self;
        let mut map = serializer.serialize_map(None)?;
        match &image.source {
            Source::Url(url) => map.serialize_entry("url", url)?,
            Source::Attachment(attachment) => {
                let media_type = writer.media_type(*attachment, None)?;
                let splices = &writer.context.splices;
                map.serialize_entry("url", &splices.data_url(media_type, *attachment))?;
            }
            Source::Id(_) => return Err(writer.refuse("an image by id")),
        }
        entry_if(&mut map, "detail", image.detail.as_deref())?;
        map.end()
    }
}

struct InputAudio<'a> {
    writer: MessageWriter<'a>,
    audio: &'a Audio,
}

impl Serialize for InputAudio<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { writer, audio } = *self;
        let attachment = match audio.source {
            Source::Attachment(attachment) => attachment,
            Source::Url(_) => return Err(writer.refuse("audio by URL")),
            Source::Id(_) => return Err(writer.refuse("audio by id")),
        };
        let media_type = writer.media_type(attachment, None)?;
        // The field is required here, unlike in the vocabulary.
        let format = audio.format.as_deref().unwrap_or_else(|| {
            let subtype = media_type
                .split_once('/')
                .map_or("", |(_, subtype)| subtype);
            match subtype.strip_prefix("x-").unwrap_or(subtype) {
                "mpeg" => "mp3",
                "wave" => "wav",
                other => other,
            }
        });
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("data", &writer.context.splices.base64(attachment))?;
        map.serialize_entry("format", format)?;
        map.end()
    }
}

struct InputFile<'a> {
    writer: MessageWriter<'a>,
    file: &'a File,
}

impl Serialize for InputFile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { writer, file } = *self;
        if file.context.is_some() {
            return Err(writer.refuse("what a file is about"));
        }
        if file.cite == Some(true) {
            return Err(writer.refuse("citations of a file"));
        }
        let mut map = serializer.serialize_map(None)?;
        match &file.source {
            Source::Id(id) => map.serialize_entry("file_id", id)?,
            Source::Attachment(attachment) => {
                let media_type = writer.media_type(*attachment, file.media_type.as_deref())?;
                if media_type != "application/pdf" {
                    return Err(writer.refuse_for_role(&format!("a file of type {media_type}")));
                }
                // The name is required here, unlike in the vocabulary, and visible to the model.
                let name = file.title.as_ref().or(file.name.as_ref());
                map.serialize_entry("filename", name.map_or("document.pdf", String::as_str))?;
                let splices = &writer.context.splices;
                map.serialize_entry("file_data", &splices.data_url(media_type, *attachment))?;
            }
            Source::Url(_) => return Err(writer.refuse("a file by URL")),
        }
        map.end()
    }
}

struct ToolCalls<'a> {
    writer: MessageWriter<'a>,
}

impl Serialize for ToolCalls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let writer = self.writer;
        serializer.collect_seq(writer.calls().map(|(part, call)| WireToolCall {
            writer,
            part,
            call,
        }))
    }
}

struct WireToolCall<'a> {
    writer: MessageWriter<'a>,
    part: &'a Part,
    call: &'a ToolCall,
}

impl Serialize for WireToolCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { writer, part, call } = *self;
        let ToolCall {
            id,
            name,
            kind,
            arguments,
        } = call;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", id)?;
        match kind {
            CallKind::Function => {
                map.serialize_entry("type", "function")?;
                let arguments = writer.text(arguments);
                map.serialize_entry("function", &CalledFunction { name, arguments })?;
            }
            CallKind::Custom => {
                map.serialize_entry("type", "custom")?;
                let input = writer.text(arguments);
                map.serialize_entry("custom", &CalledCustom { name, input })?;
            }
        }
        if let Some(thought_signature) = signature_of_call(part) {
            let google = GoogleContent { thought_signature };
            map.serialize_entry("extra_content", &ExtraContent { google })?;
        }
        writer.extra(&mut map, part, &CALL_FIELDS)?;
        map.end()
    }
}

/// Returns the signature of a call. An upstream that signs calls has written them, and is the part's provider; others
/// may refuse an unknown field.
fn signature_of_call(part: &Part) -> Option<&str> {
    let is_call = matches!(part.content, Content::ToolCall(_));
    let signature = part.signature.as_deref();
    signature.filter(|_| is_call && part.provider.is_some())
}

/// Google's field for a call's signature.
#[derive(Serialize)]
struct ExtraContent<'a> {
    google: GoogleContent<'a>,
}

#[derive(Serialize)]
struct GoogleContent<'a> {
    thought_signature: &'a str,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    /// JSON in a string, as the model wrote it.
    arguments: Text<'a>,
}

#[derive(Serialize)]
struct CalledCustom<'a> {
    name: &'a str,
    input: Text<'a>,
}

struct ToolMessage<'a> {
    writer: MessageWriter<'a>,
    part: &'a Part,
    result: &'a ToolResult,
}

impl Serialize for ToolMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            writer,
            part,
            result,
        } = *self;
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", "tool")?;
        let name = writer.message.name.as_ref().or(result.tool_name.as_ref());
        entry_if(&mut message, "name", name)?;
        message.serialize_entry("tool_call_id", &result.call_id)?;
        message.serialize_entry("content", &ResultContent { writer, result })?;
        writer.extra(&mut message, part, &MESSAGE_FIELDS)?;
        writer.message_extra(&mut message)?;
        message.end()
    }
}

/// The result of a tool. Many servers accept only a string here, so the result is one unless it has other parts than
/// text.
struct ResultContent<'a> {
    writer: MessageWriter<'a>,
    result: &'a ToolResult,
}

impl Serialize for ResultContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { writer, result } = *self;
        // The dialect has no flag for an error, so the text says it to the model.
        let notice = result.is_error.then_some("The tool failed.");
        let mut texts: Vec<&str> = Vec::with_capacity(result.content.len() + 1);
        texts.extend(notice);
        for content in &result.content {
            match content {
                ToolContent::Text(text) => texts.push(text),
                ToolContent::Image(_) => return Err(writer.refuse_for_role("an image")),
                ToolContent::File(_) => return Err(writer.refuse_for_role("a file")),
                ToolContent::Opaque(_) => return self.serialize_list(notice, serializer),
            }
        }
        match texts[..] {
            [] => serializer.serialize_str(""),
            [text] => writer.text(text).serialize(serializer),
            // A line break separates the parts.
            _ => {
                let splices = &writer.context.splices;
                splices.joined(&texts, "\n").serialize(serializer)
            }
        }
    }
}

impl<'a> ResultContent<'a> {
    fn serialize_list<S: Serializer>(
        &self,
        notice: Option<&'a str>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = |text: &'a str| TextPart {
            kind: "text",
            text: self.writer.text(text),
        };
        let mut list = serializer.serialize_seq(None)?;
        if let Some(notice) = notice {
            list.serialize_element(&text(notice))?;
        }
        for content in &self.result.content {
            match content {
                ToolContent::Text(part) => list.serialize_element(&text(part))?,
                ToolContent::Image(_) => return Err(self.writer.refuse_for_role("an image")),
                ToolContent::File(_) => return Err(self.writer.refuse_for_role("a file")),
                ToolContent::Opaque(opaque) => {
                    list.serialize_element(&self.writer.opaque(opaque)?)?
                }
            }
        }
        list.end()
    }
}

#[derive(Serialize)]
struct TextPart<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: Text<'a>,
}
