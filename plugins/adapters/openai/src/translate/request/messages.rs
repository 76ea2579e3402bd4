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

use super::{Context, Raw, entry_if};

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
            let at = At {
                context: self.context,
                index,
                message,
            };
            at.note_ignored();
            match message.role {
                Role::System | Role::User => messages.serialize_element(&SpokenMessage { at })?,
                Role::Assistant => messages.serialize_element(&AssistantMessage { at })?,
                // Here, each result is a message of its own.
                Role::Tool => {
                    for part in &message.parts {
                        let Content::ToolResult(result) = &part.content else {
                            return Err(at.refuse_content(&part.content));
                        };
                        messages.serialize_element(&ToolMessage { at, part, result })?;
                    }
                }
            }
        }
        messages.end()
    }
}

/// A message and its place in the request, for refusals.
#[derive(Clone, Copy)]
struct At<'a> {
    context: &'a Context<'a>,
    index: usize,
    message: &'a Message,
}

impl<'a> At<'a> {
    /// Returns the parts of the message's `content`.
    fn spoken(self) -> impl Iterator<Item = &'a Part> {
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

    fn note_ignored(self) {
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
        let at = format_args!("messages[{}]", self.index);
        self.context.extra(map, &part.extra, own, at)
    }

    fn message_extra<M: SerializeMap>(self, map: &mut M) -> Result<(), M::Error> {
        let at = format_args!("messages[{}]", self.index);
        self.context
            .extra(map, &self.message.extra, &MESSAGE_FIELDS, at)
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
    fn opaque<E: serde::ser::Error>(self, opaque: &'a Opaque) -> Result<Raw<'a>, E> {
        if self.context.client_speaks_it && opaque.json.trim_start().starts_with('{') {
            Ok(Raw {
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
        given: Option<&'a str>,
    ) -> Result<&'a str, E> {
        let attachments = self.context.attachments;
        match attachments.get(attachment as usize) {
            Some(attached) => Ok(given.unwrap_or(&attached.media_type)),
            None => Err(self.refuse("an attachment that the request does not have")),
        }
    }
}

/// A message of the system or a user.
struct SpokenMessage<'a> {
    at: At<'a>,
}

impl Serialize for SpokenMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = self.at;
        for part in &at.message.parts {
            if matches!(part.content, Content::Reasoning(_) | Content::ToolCall(_)) {
                return Err(at.refuse_content(&part.content));
            }
        }
        let is_user = at.message.role == Role::User;
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", if is_user { "user" } else { "system" })?;
        entry_if(&mut message, "name", at.message.name.as_deref())?;
        message.serialize_entry("content", &Parts { at })?;
        at.message_extra(&mut message)?;
        message.end()
    }
}

struct AssistantMessage<'a> {
    at: At<'a>,
}

impl Serialize for AssistantMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = self.at;
        let has_calls = at.calls().next().is_some();
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", "assistant")?;
        entry_if(&mut message, "name", at.message.name.as_deref())?;
        if at.spoken().next().is_some() || !has_calls {
            message.serialize_entry("content", &Parts { at })?;
        } else {
            // The upstream writes null as well; some servers require the field.
            message.serialize_entry("content", &())?;
        }
        self.write_reasoning(&mut message)?;
        if has_calls {
            message.serialize_entry("tool_calls", &ToolCalls { at })?;
        }
        at.message_extra(&mut message)?;
        message.end()
    }
}

impl AssistantMessage<'_> {
    fn write_reasoning<M: SerializeMap>(&self, message: &mut M) -> Result<(), M::Error> {
        let context = self.at.context;
        let Some(field) = context.options.reasoning_field else {
            if self.at.reasoning().next().is_some() {
                context.ignore("reasoning");
            }
            return Ok(());
        };
        if field == REASONING_DETAILS {
            let details = Details { at: self.at };
            let has_any = self.at.reasoning().next().is_some();
            return entry_if(message, field, has_any.then_some(details));
        }
        let mut text = String::new();
        for (part, reasoning) in self.at.reasoning() {
            text += &reasoning.text;
            if reasoning.sealed.is_some() || !part.extra.is_empty() {
                context.ignore("reasoning");
            }
        }
        entry_if(message, field, (!text.is_empty()).then_some(text))
    }
}

/// Reasoning as OpenRouter writes it: readable parts with their signatures, and encrypted ones.
struct Details<'a> {
    at: At<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
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

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut details = serializer.serialize_seq(None)?;
        for (part, reasoning) in self.at.reasoning() {
            let sealed = reasoning.sealed.as_deref();
            let signature = part.signature.as_deref();
            let readable = (!reasoning.text.is_empty()).then_some(reasoning.text.as_str());
            // Reasoning beside a sealed form is its provider's summary of that form.
            let is_summary = sealed.is_some() && signature.is_none();
            let detail = Detail {
                r#type: "reasoning.text",
                text: None,
                summary: None,
                signature,
                data: None,
                id: reasoning.id.as_deref(),
            };
            if is_summary && readable.is_some() {
                details.serialize_element(&Detail {
                    r#type: "reasoning.summary",
                    summary: readable,
                    ..detail
                })?;
            } else if readable.is_some() || signature.is_some() {
                details.serialize_element(&Detail {
                    text: readable.or(Some("")),
                    ..detail
                })?;
            }
            match sealed {
                // Unchanged, with its format.
                Some(json) if json.starts_with('{') => {
                    let field = "reasoning_details";
                    details.serialize_element(&Raw { field, json })?;
                }
                Some(data) => details.serialize_element(&Detail {
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
struct Parts<'a> {
    at: At<'a>,
}

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = self.at;
        let mut parts = at.spoken();
        match (parts.next(), parts.next()) {
            (None, _) => serializer.serialize_str(""),
            (
                Some(Part {
                    content: Content::Text(text),
                    extra,
                    ..
                }),
                None,
            ) if extra.iter().all(|(name, _)| at.context.leaves_out(name)) => {
                extra.iter().for_each(|(name, _)| at.context.ignore(name));
                at.text(text).serialize(serializer)
            }
            _ => serializer.collect_seq(at.spoken().map(|part| SpokenPart { at, part })),
        }
    }
}

struct SpokenPart<'a> {
    at: At<'a>,
    part: &'a Part,
}

impl Serialize for SpokenPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, part } = *self;
        if let Content::Opaque(opaque) = &part.content {
            return match part.extra.first() {
                None => at.opaque(opaque)?.serialize(serializer),
                // An opaque block takes no further fields.
                Some((name, _)) => Err(at.refuse(name)),
            };
        }
        let mut map = serializer.serialize_map(None)?;
        match (&part.content, at.message.role) {
            (Content::Text(text), _) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", &at.text(text))?;
            }
            (Content::Refusal(text), Role::Assistant) => {
                map.serialize_entry("type", "refusal")?;
                map.serialize_entry("refusal", text)?;
            }
            (Content::Image(image), Role::User) => {
                map.serialize_entry("type", "image_url")?;
                map.serialize_entry("image_url", &ImageUrl { at, image })?;
            }
            (Content::Audio(audio), Role::User) => {
                map.serialize_entry("type", "input_audio")?;
                map.serialize_entry("input_audio", &InputAudio { at, audio })?;
            }
            (Content::File(file), Role::User) => {
                map.serialize_entry("type", "file")?;
                map.serialize_entry("file", &InputFile { at, file })?;
            }
            (content, _) => return Err(at.refuse_content(content)),
        }
        at.extra(&mut map, part, &PART_FIELDS)?;
        map.end()
    }
}

struct ImageUrl<'a> {
    at: At<'a>,
    image: &'a Image,
}

impl Serialize for ImageUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, image } = *self;
        let mut map = serializer.serialize_map(None)?;
        match &image.source {
            Source::Url(url) => map.serialize_entry("url", url)?,
            Source::Attachment(attachment) => {
                let media_type = at.media_type(*attachment, None)?;
                let splices = &at.context.splices;
                map.serialize_entry("url", &splices.data_url(media_type, *attachment))?;
            }
            Source::Id(_) => return Err(at.refuse("an image by id")),
        }
        entry_if(&mut map, "detail", image.detail.as_deref())?;
        map.end()
    }
}

struct InputAudio<'a> {
    at: At<'a>,
    audio: &'a Audio,
}

impl Serialize for InputAudio<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, audio } = *self;
        let attachment = match audio.source {
            Source::Attachment(attachment) => attachment,
            Source::Url(_) => return Err(at.refuse("audio by URL")),
            Source::Id(_) => return Err(at.refuse("audio by id")),
        };
        let media_type = at.media_type(attachment, None)?;
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
        map.serialize_entry("data", &at.context.splices.base64(attachment))?;
        map.serialize_entry("format", format)?;
        map.end()
    }
}

struct InputFile<'a> {
    at: At<'a>,
    file: &'a File,
}

impl Serialize for InputFile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, file } = *self;
        if file.context.is_some() {
            return Err(at.refuse("what a file is about"));
        }
        if file.cite == Some(true) {
            return Err(at.refuse("citations of a file"));
        }
        let mut map = serializer.serialize_map(None)?;
        match &file.source {
            Source::Id(id) => map.serialize_entry("file_id", id)?,
            Source::Attachment(attachment) => {
                let media_type = at.media_type(*attachment, file.media_type.as_deref())?;
                if media_type != "application/pdf" {
                    return Err(at.refuse_for_role(&format!("a file of type {media_type}")));
                }
                // The name is required here, unlike in the vocabulary, and visible to the model.
                let name = file.title.as_ref().or(file.name.as_ref());
                map.serialize_entry("filename", name.map_or("document.pdf", String::as_str))?;
                let splices = &at.context.splices;
                map.serialize_entry("file_data", &splices.data_url(media_type, *attachment))?;
            }
            Source::Url(_) => return Err(at.refuse("a file by URL")),
        }
        map.end()
    }
}

struct ToolCalls<'a> {
    at: At<'a>,
}

impl Serialize for ToolCalls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = self.at;
        serializer.collect_seq(
            at.calls()
                .map(|(part, call)| WireToolCall { at, part, call }),
        )
    }
}

struct WireToolCall<'a> {
    at: At<'a>,
    part: &'a Part,
    call: &'a ToolCall,
}

impl Serialize for WireToolCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, part, call } = *self;
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
                let arguments = at.text(arguments);
                map.serialize_entry("function", &CalledFunction { name, arguments })?;
            }
            CallKind::Custom => {
                map.serialize_entry("type", "custom")?;
                let input = at.text(arguments);
                map.serialize_entry("custom", &CalledCustom { name, input })?;
            }
        }
        if let Some(thought_signature) = signature_of_call(part) {
            let google = GoogleContent { thought_signature };
            map.serialize_entry("extra_content", &ExtraContent { google })?;
        }
        at.extra(&mut map, part, &CALL_FIELDS)?;
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
    at: At<'a>,
    part: &'a Part,
    result: &'a ToolResult,
}

impl Serialize for ToolMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, part, result } = *self;
        let mut message = serializer.serialize_map(None)?;
        message.serialize_entry("role", "tool")?;
        let name = at.message.name.as_ref().or(result.tool_name.as_ref());
        entry_if(&mut message, "name", name)?;
        message.serialize_entry("tool_call_id", &result.call_id)?;
        message.serialize_entry("content", &ResultContent { at, result })?;
        at.extra(&mut message, part, &MESSAGE_FIELDS)?;
        at.message_extra(&mut message)?;
        message.end()
    }
}

/// The result of a tool. Many servers accept only a string here, so the result is one unless it has other parts than
/// text.
struct ResultContent<'a> {
    at: At<'a>,
    result: &'a ToolResult,
}

impl Serialize for ResultContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, result } = *self;
        // The dialect has no flag for an error, so the text says it to the model.
        let notice = result.is_error.then_some("The tool failed.");
        let mut texts: Vec<&str> = Vec::with_capacity(result.content.len() + 1);
        texts.extend(notice);
        for content in &result.content {
            match content {
                ToolContent::Text(text) => texts.push(text),
                ToolContent::Image(_) => return Err(at.refuse_for_role("an image")),
                ToolContent::File(_) => return Err(at.refuse_for_role("a file")),
                ToolContent::Opaque(_) => return self.serialize_list(notice, serializer),
            }
        }
        match texts[..] {
            [] => serializer.serialize_str(""),
            [text] => at.text(text).serialize(serializer),
            // A line break separates the parts.
            _ => at.text(texts.join("\n")).serialize(serializer),
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
            text: self.at.text(text),
        };
        let mut list = serializer.serialize_seq(None)?;
        if let Some(notice) = notice {
            list.serialize_element(&text(notice))?;
        }
        for content in &self.result.content {
            match content {
                ToolContent::Text(said) => list.serialize_element(&text(said))?,
                ToolContent::Image(_) => return Err(self.at.refuse_for_role("an image")),
                ToolContent::File(_) => return Err(self.at.refuse_for_role("a file")),
                ToolContent::Opaque(opaque) => list.serialize_element(&self.at.opaque(opaque)?)?,
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
