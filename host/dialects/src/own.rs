//! The format of weir's own endpoints and commands, which is OpenAI's Chat Completions.

use serde_json::Value;
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::chat;

use crate::call::{Attachment, ChatCall};
use crate::{anthropic_messages, openai_chat};

/// Reads the body of weir's own endpoints, whose dialect is OpenAI's Chat Completions.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read_own(body: &[u8]) -> Result<ChatCall, ApiError> {
    openai_chat::read(body)
}

/// Reads a request in the format of `POST /v1/messages`, for content that [`read_own`] cannot express.
///
/// # Errors
///
/// Fails like [`read_own`].
pub fn read_messages(body: &[u8]) -> Result<ChatCall, ApiError> {
    anthropic_messages::read(body, &http::HeaderMap::new())
}

/// Writes a message in the format of weir's own endpoints.
pub fn write_message(message: &chat::Message, attachments: &[Attachment]) -> Value {
    openai_chat::write_message(message, attachments)
}
