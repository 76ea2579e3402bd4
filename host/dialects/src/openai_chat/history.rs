//! Messages of a session's history, in the clients' format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use weir_sandbox::adapter::bindings::chat::{
    CallKind, Content, Message, Role, Source, ToolCall, ToolContent,
};

use super::super::Attachment;

/// Writes a message. Parts that only a provider can read are left out.
pub fn write_message(message: &Message, attachments: &[Attachment]) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut written = json!({ "role": role });
    let (mut parts, mut calls) = (Vec::new(), Vec::new());
    for part in &message.parts {
        match &part.content {
            Content::Text(text) => parts.push(json!({ "type": "text", "text": text })),
            Content::Refusal(text) => parts.push(json!({ "type": "refusal", "refusal": text })),
            Content::Image(image) => parts.push(image_part(&image.source, attachments)),
            Content::Audio(audio) => {
                let data = base64_of(&audio.source, attachments);
                let audio = json!({ "data": data, "format": audio.format });
                parts.push(json!({ "type": "input_audio", "input_audio": audio }));
            }
            Content::File(file) => {
                parts.push(file_part(&file.source, file.name.as_deref(), attachments));
            }
            Content::ToolCall(call) => calls.push(tool_call(call)),
            Content::ToolResult(result) => {
                written["tool_call_id"] = result.call_id.as_str().into();
                parts.extend(result.content.iter().filter_map(|content| match content {
                    ToolContent::Text(text) => Some(json!({ "type": "text", "text": text })),
                    ToolContent::Image(image) => Some(image_part(&image.source, attachments)),
                    ToolContent::File(file) => {
                        Some(file_part(&file.source, file.name.as_deref(), attachments))
                    }
                    ToolContent::Opaque(_) => None,
                }));
            }
            Content::Reasoning(_) | Content::Opaque(_) => {}
        }
    }
    written["content"] = match &mut *parts {
        [] => Value::Null,
        [part] if part["type"] == "text" => part["text"].take(),
        _ => parts.into(),
    };
    if let Some(name) = &message.name {
        written["name"] = name.as_str().into();
    }
    if !calls.is_empty() {
        written["tool_calls"] = calls.into();
    }
    written
}

fn image_part(source: &Source, attachments: &[Attachment]) -> Value {
    let url = match source {
        Source::Url(url) => url.clone(),
        Source::Id(id) => id.clone(),
        Source::Attachment(_) => data_url(source, attachments),
    };
    json!({ "type": "image_url", "image_url": { "url": url } })
}

fn file_part(source: &Source, name: Option<&str>, attachments: &[Attachment]) -> Value {
    let file = match source {
        Source::Url(url) => json!({ "file_url": url, "filename": name }),
        Source::Id(id) => json!({ "file_id": id, "filename": name }),
        Source::Attachment(_) => {
            json!({ "file_data": data_url(source, attachments), "filename": name })
        }
    };
    json!({ "type": "file", "file": file })
}

fn data_url(source: &Source, attachments: &[Attachment]) -> String {
    let attachment = attachment(source, attachments);
    let media_type = attachment.map_or("", |attachment| &attachment.media_type);
    format!(
        "data:{media_type};base64,{}",
        base64_of(source, attachments)
    )
}

fn base64_of(source: &Source, attachments: &[Attachment]) -> String {
    let attachment = attachment(source, attachments);
    attachment.map_or_else(String::new, |attachment| STANDARD.encode(&attachment.data))
}

fn attachment<'a>(source: &Source, attachments: &'a [Attachment]) -> Option<&'a Attachment> {
    match source {
        Source::Attachment(index) => attachments.get(*index as usize),
        Source::Url(_) | Source::Id(_) => None,
    }
}

fn tool_call(call: &ToolCall) -> Value {
    let ToolCall {
        id,
        name,
        kind,
        arguments,
    } = call;
    match kind {
        CallKind::Function => json!({
            "id": id, "type": "function", "function": { "name": name, "arguments": arguments },
        }),
        CallKind::Custom => json!({
            "id": id, "type": "custom", "custom": { "name": name, "input": arguments },
        }),
    }
}
