//! The content of a session, and its stored form: its expiry, then the encrypted conversation.
//!
//! ```text
//! end (8 bytes, milliseconds since the epoch, big-endian) · sealed JSON
//! ```
//!
//! The encryption binds the conversation to its user, its session and its expiry.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use weir_dialects::{Attachment, ChatCall, MessageOrigin};
use weir_sandbox::adapter::bindings::chat::{Content, Message, Part, Role, Source, ToolContent};
use weir_storage::clock::Millis;
use weir_storage::sealing::{KeyRing, OpenError, Purpose};

/// The maximum messages of a session.
pub const MAX_MESSAGES: usize = 10;

/// The approximate maximum bytes of a session. Beyond it, weir removes files first, and the oldest first. A conversation
/// that is continued by a response's id is not stored beyond it, except for the response.
const MAX_BYTES: usize = 4 << 20;

/// The text in place of a file that exceeds the session's size.
const LEFT_OUT: &str = "[A file that is not kept any more.]";

/// The messages of a session, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct SessionConversation(Vec<SessionMessage>);

/// A message with its attachments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionMessage {
    /// The message; its references point into `attachments`.
    pub message: Message,
    /// The bytes of its images, audio and documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<SessionFile>,
    /// The time of the request, or of the end of the response, in milliseconds since the epoch.
    pub at: i64,
    /// Whether the conversation before this response was too large to be stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// A client's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionFile {
    media_type: String,
    /// Base64, because a conversation is JSON.
    data: String,
}

/// The reasons for an invalid stored session.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    /// The decryption fails.
    #[error(transparent)]
    Sealed(#[from] OpenError),
    /// The content is not a conversation of this version.
    #[error("it holds no conversation: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// Encrypts a conversation.
pub(super) fn seal(
    keys: &KeyRing,
    user: &str,
    id: &str,
    conversation: &SessionConversation,
    expires_at: Millis,
) -> Vec<u8> {
    let json = serde_json::to_vec(conversation).expect("it is texts and numbers");
    let end = expires_at.0.to_be_bytes();
    let sealed = keys.seal(
        Purpose::SESSION,
        &[user.as_bytes(), id.as_bytes(), &end],
        &json,
    );
    [&end, &*sealed].concat()
}

/// Decrypts the result of [`seal`], and returns the expiry, too.
pub(super) fn open(
    keys: &KeyRing,
    user: &str,
    id: &str,
    stored: &[u8],
) -> Result<(SessionConversation, Millis), RecordError> {
    let (end, sealed) = stored.split_first_chunk().ok_or(OpenError::Malformed)?;
    let json = keys.unseal(
        Purpose::SESSION,
        &[user.as_bytes(), id.as_bytes(), end],
        sealed,
    )?;
    let conversation = serde_json::from_slice(&json)?;
    Ok((conversation, Millis(i64::from_be_bytes(*end))))
}

impl SessionConversation {
    /// Whether the conversation has no messages.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The messages, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SessionMessage> {
        self.0.iter()
    }

    /// The last response.
    pub(super) fn answer(&self) -> Option<&Message> {
        let last = &self.0.last()?.message;
        (last.role == Role::Assistant).then_some(last)
    }

    /// Returns the messages.
    pub(super) fn into_said(self) -> Vec<SessionMessage> {
        self.0
    }

    /// Puts the conversation before a request's own messages.
    pub(super) fn precede(&self, call: &mut ChatCall) {
        let mut messages = Vec::with_capacity(self.0.len() + call.request.messages.len());
        for said in &self.0 {
            let mut message = said.spoken();
            let offset = u32::try_from(call.attachments.len()).unwrap_or(u32::MAX);
            for source in sources(&mut message) {
                if let Source::Attachment(index) = source {
                    *index += offset;
                }
            }
            // Its size counts as if the client had sent the conversation.
            call.body_bytes += said.bytes();
            call.attachments.extend(said.attachments());
            messages.push(message);
        }
        let origins = std::iter::repeat_n(MessageOrigin::Session, messages.len());
        call.origins.splice(0..0, origins);
        messages.append(&mut call.request.messages);
        call.request.messages = messages;
    }

    /// Makes the conversation that ends with a response: all of it, or only the response if it is too large.
    pub(super) fn of_response(said: Vec<SessionMessage>) -> Self {
        let mut whole = Self::default();
        whole.add(said);
        if whole.bytes() > MAX_BYTES {
            whole.0.drain(..whole.0.len() - 1);
            for answer in &mut whole.0 {
                answer.is_cut = true;
            }
        }
        whole
    }

    /// Returns whether it lacks the messages before the response.
    pub(super) fn is_cut(&self) -> bool {
        self.0.iter().any(|said| said.is_cut)
    }

    /// Adds messages, except for system messages that it has.
    fn add(&mut self, said: Vec<SessionMessage>) {
        for said in said {
            let is_known = said.message.role == Role::System
                && self.0.iter().any(|known| known.message == said.message);
            if !is_known {
                self.0.push(said);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(SessionMessage::bytes).sum()
    }

    /// Appends messages, and removes the oldest beyond the limits.
    pub(super) fn append(&mut self, said: Vec<SessionMessage>) {
        self.add(said);
        let surplus = self.0.len().saturating_sub(MAX_MESSAGES);
        self.0.drain(..surplus);
        self.fit();
        // Models expect a question first, and reject a result without its call.
        let is_question =
            |said: &SessionMessage| matches!(said.message.role, Role::System | Role::User);
        let is_first = |said: &SessionMessage| said.message.role != Role::Tool;
        let first = self.0.iter().position(is_question);
        let first = first.or_else(|| self.0.iter().position(is_first));
        self.0.drain(..first.unwrap_or(self.0.len()));
    }

    /// Whether the conversation has a turn with this end: no two turns end alike in the same millisecond.
    pub(super) fn has(&self, turn: &[SessionMessage]) -> bool {
        turn.last().is_none_or(|last| self.0.contains(last))
    }

    fn fit(&mut self) {
        for index in 0..self.0.len() {
            if self.bytes() <= MAX_BYTES {
                return;
            }
            self.0[index].leave_files_out();
        }
        while self.bytes() > MAX_BYTES {
            self.0.remove(0);
        }
    }
}

impl SessionMessage {
    /// Returns the messages of a request.
    pub(super) fn of_call(call: &ChatCall, at: Millis) -> Vec<Self> {
        let said = call.request.messages.iter().map(|message| {
            let mut message = message.clone();
            let mut attachments = Vec::new();
            for source in sources(&mut message) {
                if let Source::Attachment(index) = source {
                    let found = call.attachments.get(*index as usize);
                    attachments.extend(found.map(SessionFile::of));
                    *index = attachments.len().saturating_sub(1) as u32;
                }
            }
            Self {
                message,
                attachments,
                at: at.0,
                is_cut: false,
            }
        });
        said.collect()
    }

    /// Returns the message without empty parts of a response. The stored form keeps them, because clients refer to
    /// blocks by number.
    pub(super) fn spoken(&self) -> Message {
        let mut message = self.message.clone();
        if message.role == Role::Assistant {
            message.parts.retain(says_something);
        }
        message
    }

    /// The bytes of its attachments.
    pub(super) fn attachments(&self) -> impl Iterator<Item = Attachment> {
        self.attachments.iter().map(|file| Attachment {
            media_type: file.media_type.clone(),
            data: STANDARD.decode(&file.data).unwrap_or_default().into(),
        })
    }

    fn bytes(&self) -> usize {
        let files = self.attachments.iter();
        let files: usize = files
            .map(|file| file.media_type.len() + file.data.len())
            .sum();
        let parts = self.message.parts.iter();
        files + parts.map(part_bytes).sum::<usize>()
    }

    fn leave_files_out(&mut self) {
        if self.attachments.is_empty() {
            return;
        }
        self.attachments.clear();
        for part in &mut self.message.parts {
            match &mut part.content {
                Content::ToolResult(result) => {
                    for content in &mut result.content {
                        if matches!(
                            content,
                            ToolContent::Image(image) if is_attached(&image.source)
                        ) || matches!(content, ToolContent::File(file) if is_attached(&file.source))
                        {
                            *content = ToolContent::Text(LEFT_OUT.into());
                        }
                    }
                }
                Content::Image(image) if is_attached(&image.source) => {
                    part.content = Content::Text(LEFT_OUT.into());
                }
                Content::Audio(audio) if is_attached(&audio.source) => {
                    part.content = Content::Text(LEFT_OUT.into());
                }
                Content::File(file) if is_attached(&file.source) => {
                    part.content = Content::Text(LEFT_OUT.into());
                }
                _ => {}
            }
        }
    }
}

/// Whether a part is more than an empty text.
pub(super) fn says_something(part: &Part) -> bool {
    match &part.content {
        Content::Text(text) | Content::Refusal(text) => {
            !text.is_empty() || part.signature.is_some()
        }
        _ => true,
    }
}

impl SessionFile {
    fn of(attachment: &Attachment) -> Self {
        Self {
            media_type: attachment.media_type.clone(),
            data: STANDARD.encode(&attachment.data),
        }
    }
}

fn is_attached(source: &Source) -> bool {
    matches!(source, Source::Attachment(_))
}

/// The sources of a message's files.
fn sources(message: &mut Message) -> Vec<&mut Source> {
    let mut all = Vec::new();
    for part in &mut message.parts {
        match &mut part.content {
            Content::Image(image) => all.push(&mut image.source),
            Content::Audio(audio) => all.push(&mut audio.source),
            Content::File(file) => all.push(&mut file.source),
            Content::ToolResult(result) => {
                all.extend(
                    result
                        .content
                        .iter_mut()
                        .filter_map(|content| match content {
                            ToolContent::Image(image) => Some(&mut image.source),
                            ToolContent::File(file) => Some(&mut file.source),
                            ToolContent::Text(_) | ToolContent::Opaque(_) => None,
                        }),
                );
            }
            Content::Text(_)
            | Content::Reasoning(_)
            | Content::Refusal(_)
            | Content::ToolCall(_)
            | Content::Opaque(_) => {}
        }
    }
    all
}

fn part_bytes(part: &Part) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let content = match &part.content {
        Content::Text(text) | Content::Refusal(text) => text.len(),
        Content::Reasoning(reasoning) => reasoning.text.len() + optional(&reasoning.sealed),
        Content::ToolCall(call) => call.name.len() + call.arguments.len(),
        Content::ToolResult(result) => result
            .content
            .iter()
            .map(|content| match content {
                ToolContent::Text(text) => text.len(),
                ToolContent::Opaque(opaque) => opaque.json.len(),
                ToolContent::Image(_) | ToolContent::File(_) => 0,
            })
            .sum(),
        Content::Opaque(opaque) => opaque.json.len(),
        Content::Image(_) | Content::Audio(_) | Content::File(_) => 0,
    };
    let extra = part
        .extra
        .iter()
        .map(|(name, json)| name.len() + json.len());
    content + optional(&part.signature) + extra.sum::<usize>()
}
