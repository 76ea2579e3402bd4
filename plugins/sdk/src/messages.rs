//! The parts of a conversation that all adapters write or refuse alike.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::adapter::Failure;
use crate::chat::{CallKind, Content, Role, ToolCall};
use crate::custom::CustomArguments;
use crate::wire::{object, raw, refuse};

/// The kind of an opaque block that begins a message of the model in OpenAI's Responses API: `{"phase": "commentary"}`,
/// or an empty object for a message without a phase that follows another one. Only clients of that API get it, and send it.
pub const MESSAGE_MARK: &str = "message";

/// The arguments of an earlier tool call as a JSON object. Free text is the object's only field.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum CallArguments<'a> {
    /// The arguments of a function.
    Object(&'a RawValue),
    /// The input of a tool that takes free text.
    FreeText(CustomArguments<'a>),
}

impl<'a> CallArguments<'a> {
    /// Reads the arguments of a call. `at` names the message in the error.
    ///
    /// # Errors
    ///
    /// A refusal of a function's arguments that are not a JSON object.
    pub fn of(call: &'a ToolCall, at: &str) -> Result<Self, Failure> {
        let arguments = match (call.kind, call.arguments.trim()) {
            (CallKind::Custom, _) => {
                let input = &call.arguments;
                return Ok(Self::FreeText(CustomArguments { input }));
            }
            (CallKind::Function, "") => raw(at, "{}")?,
            (CallKind::Function, arguments) => object(at, arguments).map_err(|_| {
                refuse(
                    at,
                    format!("{at}: arguments of a call that are no JSON object"),
                )
            })?,
        };
        Ok(Self::Object(arguments))
    }
}

/// The kind of a part in the text of a refusal, such as `an image`.
pub fn content_name(content: &Content) -> &'static str {
    match content {
        Content::Text(_) => "text",
        Content::Image(_) => "an image",
        Content::Audio(_) => "audio",
        Content::File(_) => "a file",
        Content::Reasoning(_) => "reasoning",
        Content::Refusal(_) => "a refusal",
        Content::ToolCall(_) => "a tool call",
        Content::ToolResult(_) => "a tool result",
        Content::Opaque(_) => "an opaque block",
    }
}

/// The text of a refusal of content that the dialect has for other roles only.
pub fn misplaced(content_name: &str, role: Role) -> String {
    let role = match role {
        Role::System => "a system",
        Role::User => "a user",
        Role::Assistant => "an assistant",
        Role::Tool => "a tool",
    };
    format!("{content_name} in {role} message")
}
