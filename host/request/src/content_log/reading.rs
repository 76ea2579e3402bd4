//! The content of requests, from the dialects' readers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_dialects::{Attachment, ChatCall};
use weir_kinds::images::ImageCall;
use weir_kinds::{ContentPart, KindCall};
use weir_sandbox::adapter::bindings::chat::{
    ChatRequest, Content, ExtraField, Image, Message, Part, ReasoningEffort, ResponseFormat, Role,
    Source, ToolChoice, ToolContent, ToolKind,
};

use super::content::{LoggedMessage, LoggedPart, LoggedRequest, Room};

/// A longer text without spaces in a JSON document counts as bytes.
const ENCODED_BYTES: usize = 1_024;

/// A request under construction.
struct Reading<'a> {
    request: LoggedRequest,
    room: Room,
    attachments: &'a [Attachment],
}

impl LoggedRequest {
    pub fn of_chat(call: &ChatCall) -> Self {
        let mut reading = Reading::new("chat", &call.request.model, &call.attachments);
        for message in &call.request.messages {
            reading.message(message);
        }
        reading.chat_parameters(&call.request);
        reading.text_parameter("output_limit", call.output_limit);
        reading.finish()
    }

    pub fn of_images(call: &ImageCall) -> Self {
        let request = &call.request;
        let mut reading = Reading::new("images", &request.model, &call.attachments);
        let mut parts: Vec<_> = reading.text_part(&request.prompt).into_iter().collect();
        for image in request.inputs.iter().chain(&request.mask) {
            parts.extend(reading.image(image));
        }
        reading.user(parts);
        reading.text_parameter("count", Some(request.count));
        reading.text_parameter("size", request.size.as_ref());
        reading.text_parameter("quality", request.quality.as_ref());
        reading.text_parameter("background", request.background.as_ref());
        reading.text_parameter("media_type", request.media_type.as_ref());
        reading.extra(&request.extra);
        reading.finish()
    }

    /// Reads a request of another kind.
    pub fn of_kind(call: &KindCall) -> Self {
        let request = &call.request;
        let mut reading = Reading::new(request.kind().name(), request.model(), &call.attachments);
        let contents = weir_kinds::kind(request).contents();
        for message in &contents.messages {
            let parts = message.iter().filter_map(|part| match part {
                ContentPart::Text(text) => reading.text_part(text),
                ContentPart::Document(text) => reading.part("file", None, Some(text)),
                ContentPart::Data(what) => reading.part("data", None, Some(what)),
                ContentPart::Recording(name) => {
                    let recording = reading.file("audio", &Source::Attachment(0), None);
                    recording.map(|part| LoggedPart {
                        name: Some(reading.fit(name)),
                        ..part
                    })
                }
            });
            let parts = parts.collect();
            reading.user(parts);
        }
        for (name, value) in contents.settings {
            reading.text_parameter(name, value);
        }
        reading.extra(contents.extra);
        reading.finish()
    }
}

impl<'a> Reading<'a> {
    fn new(kind: &str, model: &str, attachments: &'a [Attachment]) -> Self {
        let mut room = Room::of_side();
        let model = room.fit(model).to_owned();
        Self {
            request: LoggedRequest {
                kind: kind.to_owned(),
                model,
                ..LoggedRequest::default()
            },
            room,
            attachments,
        }
    }

    fn finish(self) -> LoggedRequest {
        LoggedRequest {
            truncated: self.room.is_cut,
            ..self.request
        }
    }

    fn fit(&mut self, text: &str) -> String {
        self.room.fit(text).to_owned()
    }

    fn part(&mut self, kind: &str, name: Option<&str>, text: Option<&str>) -> Option<LoggedPart> {
        self.room.has_part().then(|| LoggedPart {
            kind: kind.to_owned(),
            name: name.map(|name| self.fit(name)),
            text: text.map(|text| self.fit(text)),
            ..LoggedPart::default()
        })
    }

    fn text_part(&mut self, text: &str) -> Option<LoggedPart> {
        self.part("text", None, Some(text))
    }

    fn user(&mut self, parts: Vec<LoggedPart>) {
        let role = "user".to_owned();
        self.request.messages.push(LoggedMessage { role, parts });
    }

    fn message(&mut self, message: &Message) {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        if !self.room.has_part() {
            return;
        }
        let mut parts = Vec::new();
        for Part { content, .. } in &message.parts {
            self.content(content, &mut parts);
        }
        self.request.messages.push(LoggedMessage {
            role: role.to_owned(),
            parts,
        });
    }

    fn content(&mut self, content: &Content, parts: &mut Vec<LoggedPart>) {
        let part = match content {
            Content::Text(text) => self.text_part(text),
            Content::Refusal(text) => self.part("refusal", None, Some(text)),
            Content::Reasoning(reasoning) => self.part("reasoning", None, Some(&reasoning.text)),
            Content::Image(image) => self.image(image),
            Content::Audio(audio) => self.file("audio", &audio.source, audio.format.as_deref()),
            Content::File(file) => {
                let part = self.file("file", &file.source, file.media_type.as_deref());
                let name = file.name.as_deref().map(|name| self.fit(name));
                part.map(|part| LoggedPart { name, ..part })
            }
            Content::ToolCall(call) => {
                self.part("tool_call", Some(&call.name), Some(&call.arguments))
            }
            Content::ToolResult(result) => {
                let name = result.tool_name.as_deref().unwrap_or(&result.call_id);
                for content in &result.content {
                    let part = match content {
                        ToolContent::Text(text) => self.part("tool_result", Some(name), Some(text)),
                        ToolContent::Image(image) => self.image(image),
                        ToolContent::File(file) => {
                            self.file("file", &file.source, file.media_type.as_deref())
                        }
                        ToolContent::Opaque(opaque) => {
                            let json = without_bytes(&opaque.json);
                            self.part("other", Some(&opaque.kind), Some(&json))
                        }
                    };
                    parts.extend(part);
                }
                None
            }
            Content::Opaque(opaque) => {
                let json = without_bytes(&opaque.json);
                self.part("other", Some(&opaque.kind), Some(&json))
            }
        };
        parts.extend(part);
    }

    fn image(&mut self, image: &Image) -> Option<LoggedPart> {
        self.file("image", &image.source, None)
    }

    /// Returns the part of a file: its kind and size, or its place elsewhere.
    fn file(
        &mut self,
        kind: &str,
        source: &Source,
        media_type: Option<&str>,
    ) -> Option<LoggedPart> {
        let attachment = match source {
            Source::Attachment(index) => self.attachments.get(*index as usize),
            Source::Url(_) | Source::Id(_) => None,
        };
        let text = match source {
            Source::Url(text) | Source::Id(text) => Some(&**text),
            Source::Attachment(_) => None,
        };
        let part = self.part(kind, None, text)?;
        let media_type = attachment.map_or(media_type, |file| Some(&file.media_type));
        Some(LoggedPart {
            media_type: media_type.map(|media_type| self.fit(media_type)),
            size_bytes: attachment.map(|file| file.data.len() as u64),
            ..part
        })
    }

    fn chat_parameters(&mut self, request: &ChatRequest) {
        for tool in &request.tools {
            let name = match &tool.kind {
                ToolKind::Function(tool) => &tool.name,
                ToolKind::Custom(tool) => &tool.name,
                ToolKind::BuiltIn(tool) => tool.name.as_ref().unwrap_or(&tool.kind),
            };
            if !self.room.has_part() {
                return;
            }
            let name = self.fit(name);
            self.request.tools.push(name);
        }
        let choice = match &request.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::None => Some(json!("none")),
            ToolChoice::Required => Some(json!("required")),
            ToolChoice::Named(name) => Some(json!({ "name": name })),
            ToolChoice::Among(tools) => {
                Some(json!({ "names": tools.names, "required": tools.required }))
            }
        };
        self.text_parameter("tool_choice", choice);
        let format = match &request.response_format {
            ResponseFormat::Text => None,
            ResponseFormat::Json => Some(json!("json")),
            ResponseFormat::JsonSchema(schema) => {
                Some(serde_json::from_str(&schema.schema).unwrap_or_else(|_| json!(schema.schema)))
            }
        };
        self.text_parameter("response_format", format);
        let effort = request.reasoning.effort.map(|effort| match effort {
            ReasoningEffort::Off => "off",
            ReasoningEffort::Minimal => "minimal",
            ReasoningEffort::Low => "low",
            ReasoningEffort::Medium => "medium",
            ReasoningEffort::High => "high",
            ReasoningEffort::Highest => "highest",
        });
        self.text_parameter("reasoning_effort", effort);
        self.text_parameter("reasoning_budget_tokens", request.reasoning.budget_tokens);
        self.text_parameter("parallel_tool_calls", request.parallel_tool_calls);
        self.text_parameter("temperature", request.temperature);
        self.text_parameter("top_p", request.top_p);
        self.text_parameter("top_k", request.top_k);
        self.text_parameter("presence_penalty", request.presence_penalty);
        self.text_parameter("frequency_penalty", request.frequency_penalty);
        self.text_parameter("seed", request.seed);
        let stop = Some(&request.stop).filter(|stop| !stop.is_empty());
        self.text_parameter("stop", stop);
        self.text_parameter("stream", Some(request.stream));
        self.extra(&request.extra);
    }

    fn extra(&mut self, fields: &[ExtraField]) {
        for (name, json) in fields {
            self.parameter(name, &without_bytes(json));
        }
    }

    fn text_parameter(&mut self, name: &str, value: Option<impl serde::Serialize>) {
        if let Some(value) = value {
            self.parameter(name, &json!(value).to_string());
        }
    }

    fn parameter(&mut self, name: &str, json: &str) {
        if !self.room.has_part() {
            return;
        }
        let (name, json) = (self.fit(name), self.fit(json));
        let parameters: &mut BTreeMap<_, _> = &mut self.request.parameters;
        parameters.insert(name, json);
    }
}

/// Returns a JSON document with a note in the place of each encoded file.
pub(super) fn without_bytes(json: &str) -> String {
    if json.len() <= ENCODED_BYTES {
        return json.to_owned();
    }
    match serde_json::from_str(json) {
        Ok(mut value) => {
            replace_bytes(&mut value);
            value.to_string()
        }
        Err(_) => String::new(),
    }
}

fn replace_bytes(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > ENCODED_BYTES && !text.contains([' ', '\n']) => {
            *text = format!("({} bytes)", text.len());
        }
        Value::Array(items) => items.iter_mut().for_each(replace_bytes),
        Value::Object(fields) => fields.values_mut().for_each(replace_bytes),
        _ => {}
    }
}
