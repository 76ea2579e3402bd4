//! A response as a message in a session.

use weir_dialects::plain;
use weir_sandbox::adapter::bindings::chat::{
    Block, Content, Event, Message, Part, Reasoning, Role, ToolCall,
};
use weir_storage::clock::Millis;

use super::record::{SessionMessage, says_something};

/// Builds a message from a response's events. The message leaves out images and audio of the model.
#[derive(Debug, Default)]
pub(super) struct AnswerRecorder {
    provider: String,
    /// The parts by index, since blocks are numbered in order.
    parts: Vec<Part>,
}

impl AnswerRecorder {
    /// Returns the recorder of this provider's response.
    pub(super) fn of(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            parts: Vec::new(),
        }
    }

    /// Adds an event to the message. The sequence guarantees the order of events.
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::BlockStart(start) => {
                let content = match &start.block {
                    Block::Text => Content::Text(String::new()),
                    Block::Refusal => Content::Refusal(String::new()),
                    Block::Reasoning => Content::Reasoning(Reasoning {
                        text: String::new(),
                        sealed: None,
                        id: None,
                    }),
                    Block::ToolCall(call) => Content::ToolCall(ToolCall {
                        id: call.id.clone(),
                        name: call.name.clone(),
                        kind: call.kind,
                        arguments: String::new(),
                    }),
                };
                self.parts.push(plain(content));
            }
            Event::Opaque(opaque) => {
                let block = opaque.block.clone();
                self.parts.push(plain(Content::Opaque(block)));
                self.is_theirs(opaque.index);
            }
            Event::Fragment(piece) => {
                if let Some(part) = self.part(piece.index) {
                    match &mut part.content {
                        Content::Text(text) | Content::Refusal(text) => text.push_str(&piece.text),
                        Content::Reasoning(reasoning) => reasoning.text.push_str(&piece.text),
                        Content::ToolCall(call) => call.arguments.push_str(&piece.text),
                        _ => {}
                    }
                }
            }
            Event::Signature(piece) => {
                if let Some(part) = self.part(piece.index) {
                    part.signature.get_or_insert_default().push_str(&piece.text);
                }
                self.is_theirs(piece.index);
            }
            Event::Sealed(piece) => {
                if let Some(part) = self.part(piece.index)
                    && let Content::Reasoning(reasoning) = &mut part.content
                {
                    reasoning
                        .sealed
                        .get_or_insert_default()
                        .push_str(&piece.text);
                }
                self.is_theirs(piece.index);
            }
            Event::Started(_)
            | Event::Logprobs(_)
            | Event::Citation(_)
            | Event::BlockEnd(_)
            | Event::MediaBytes(_)
            | Event::Media(_)
            | Event::Usage(_)
            | Event::Finish(_) => {}
        }
    }

    /// Returns the message, unless the response is empty.
    pub(super) fn into_said(self, at: Millis) -> Option<SessionMessage> {
        self.parts
            .iter()
            .any(says_something)
            .then(|| SessionMessage {
                message: Message {
                    role: Role::Assistant,
                    name: None,
                    parts: self.parts,
                    extra: Vec::new(),
                },
                attachments: Vec::new(),
                at: at.0,
                is_cut: false,
            })
    }

    fn part(&mut self, index: u32) -> Option<&mut Part> {
        self.parts.get_mut(index as usize)
    }

    /// Whether only the provider can read the part.
    fn is_theirs(&mut self, index: u32) {
        let provider = self.provider.clone();
        if let Some(part) = self.part(index) {
            part.provider.get_or_insert(provider);
        }
    }
}
