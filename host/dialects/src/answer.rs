//! Response writers for any dialect: whole, or as a stream.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use weir_sandbox::adapter::bindings::chat::{Block, BlockStart, Event};

use crate::dialect::{Dialect, StreamForm};
use crate::head::{AnswerHead, BilledUsage, DataFault};
use crate::other::{PlainWriter, StreamWriter};
use crate::{
    anthropic_messages, gemini_generate, openai_chat, openai_completions, openai_responses,
};

/// A plain response under construction.
#[derive(Debug, Clone)]
pub enum PlainResponse {
    /// In OpenAI's Chat Completions.
    OpenAiChat(openai_chat::Completion),
    /// In OpenAI's Responses.
    OpenAiResponses(openai_responses::ResponseObject),
    /// In OpenAI's Completions.
    OpenAiCompletions(openai_completions::TextCompletion),
    /// In Anthropic's Messages.
    AnthropicMessages(anthropic_messages::MessageResponse),
    /// In Google's `generateContent`.
    GeminiGenerate(gemini_generate::GeneratedContent),
    /// The writer of another kind of work.
    Other(Box<dyn PlainWriter>),
}

/// A writer of a stream.
#[derive(Debug)]
pub enum AnswerStream {
    /// In OpenAI's Chat Completions.
    OpenAiChat(openai_chat::CompletionStream),
    /// In OpenAI's Responses.
    OpenAiResponses(openai_responses::ResponseStream),
    /// In OpenAI's Completions.
    OpenAiCompletions(openai_completions::TextCompletionStream),
    /// In Anthropic's Messages.
    AnthropicMessages(anthropic_messages::MessageStream),
    /// In Google's `generateContent`.
    GeminiGenerate(gemini_generate::ContentStream),
    /// The writer of another kind of work.
    Other(Box<dyn StreamWriter>),
}

impl Dialect {
    /// Starts a plain response.
    ///
    /// # Panics
    ///
    /// If the dialect has only streams.
    pub fn whole_answer(&self, head: AnswerHead) -> PlainResponse {
        match self {
            Self::OpenAiChat(_) => PlainResponse::OpenAiChat(openai_chat::Completion::new(head)),
            Self::OpenAiResponses(echo) => PlainResponse::OpenAiResponses(
                openai_responses::ResponseObject::new(head, echo.clone()),
            ),
            Self::OpenAiCompletions(_) => {
                PlainResponse::OpenAiCompletions(openai_completions::TextCompletion::new(head))
            }
            Self::AnthropicMessages => {
                PlainResponse::AnthropicMessages(anthropic_messages::MessageResponse::new(head))
            }
            Self::GeminiGenerate(_) => {
                PlainResponse::GeminiGenerate(gemini_generate::GeneratedContent::new(head))
            }
            Self::Other(format) => PlainResponse::Other(format.get().plain(head)),
        }
    }

    /// Returns the keep-alive data of a silent stream; empty if it has no place for them.
    pub fn keep_alive(&self) -> Bytes {
        match self {
            Self::OpenAiChat(_) | Self::OpenAiCompletions(_) => openai_chat::KEEP_ALIVE,
            Self::OpenAiResponses(_) => openai_responses::KEEP_ALIVE,
            Self::AnthropicMessages => anthropic_messages::KEEP_ALIVE,
            Self::GeminiGenerate(StreamForm::Events) => gemini_generate::KEEP_ALIVE,
            Self::GeminiGenerate(StreamForm::List) => gemini_generate::LIST_KEEP_ALIVE,
            Self::Other(format) => format.get().keep_alive(),
        }
    }

    /// Returns the media type of a stream.
    pub fn stream_type(&self) -> &'static str {
        match self {
            Self::GeminiGenerate(StreamForm::List) => "application/json",
            Self::Other(format) => format.get().stream_type(),
            _ => "text/event-stream",
        }
    }

    /// Returns the media type of a plain response.
    pub fn plain_type(&self) -> &'static str {
        match self {
            Self::Other(format) => format.get().plain_type(),
            _ => "application/json",
        }
    }

    /// Whether a stream passes on the pieces of a recording as they arrive.
    pub fn streams_media(&self) -> bool {
        match self {
            Self::Other(format) => format.get().streams_media(),
            _ => false,
        }
    }

    /// Returns the dialect's name of a field; adapters use its name in Chat Completions.
    pub fn field<'name>(&self, name: &'name str) -> Cow<'name, str> {
        match self {
            Self::OpenAiChat(_) | Self::AnthropicMessages | Self::Other(_) => name.into(),
            Self::OpenAiResponses(_) => openai_responses::field(name),
            Self::OpenAiCompletions(_) if name == "messages" => "prompt".into(),
            Self::OpenAiCompletions(_) => name.into(),
            Self::GeminiGenerate(_) => gemini_generate::field(name),
        }
    }

    /// Starts a stream.
    ///
    /// # Panics
    ///
    /// If the dialect has no streams.
    pub fn answer_stream(&self, head: AnswerHead) -> AnswerStream {
        match self {
            Self::OpenAiChat(preferences) => {
                AnswerStream::OpenAiChat(openai_chat::CompletionStream::new(&head, *preferences))
            }
            Self::OpenAiResponses(echo) => AnswerStream::OpenAiResponses(
                openai_responses::ResponseStream::new(head, echo.clone()),
            ),
            Self::OpenAiCompletions(preferences) => AnswerStream::OpenAiCompletions(
                openai_completions::TextCompletionStream::new(head, *preferences),
            ),
            Self::AnthropicMessages => {
                AnswerStream::AnthropicMessages(anthropic_messages::MessageStream::new(head))
            }
            Self::GeminiGenerate(form) => {
                AnswerStream::GeminiGenerate(gemini_generate::ContentStream::new(head, *form))
            }
            Self::Other(format) => AnswerStream::Other(format.get().stream(head)),
        }
    }
}

impl PlainResponse {
    /// Adds the events of one adapter call.
    pub fn push(&mut self, events: Vec<Event>) {
        let mut events = events.into_iter();
        while let Some(event) = events.next() {
            let signature = signature_of_call(&event, events.as_slice());
            match self {
                Self::OpenAiChat(completion) => {
                    completion.sign_next_call(signature);
                    completion.push(event);
                }
                Self::OpenAiResponses(response) => response.push(&event),
                Self::OpenAiCompletions(completion) => completion.push(&event),
                Self::AnthropicMessages(message) => {
                    message.sign_next_call(signature);
                    message.push(&event);
                }
                Self::GeminiGenerate(content) => content.push(&event),
                Self::Other(writer) => writer.push(&event),
            }
        }
    }

    /// Sets the provider of the following events, by its name in the configuration: parts that only this provider can
    /// read, such as sealed reasoning, carry the name.
    pub fn answered_by(&mut self, provider: &str) {
        match self {
            Self::OpenAiChat(completion) => completion.answered_by(provider),
            Self::OpenAiResponses(response) => response.answered_by(provider),
            Self::OpenAiCompletions(_) | Self::Other(_) => {}
            Self::AnthropicMessages(message) => message.answered_by(provider),
            Self::GeminiGenerate(content) => content.answered_by(provider),
        }
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        match self {
            Self::OpenAiChat(completion) => completion.clear(),
            Self::OpenAiResponses(response) => response.clear(),
            Self::OpenAiCompletions(completion) => completion.clear(),
            Self::AnthropicMessages(message) => message.clear(),
            Self::GeminiGenerate(content) => content.clear(),
            Self::Other(writer) => writer.clear(),
        }
    }

    /// Checks that a response of data is complete and valid. The order of events is enough for other responses.
    ///
    /// # Errors
    ///
    /// The fault of the upstream.
    pub fn check(&self) -> Result<(), DataFault> {
        match self {
            Self::Other(writer) => writer.check(),
            _ => Ok(()),
        }
    }

    /// Whether the upstream has sent more items than the request asked for. The body lacks them.
    pub fn has_surplus(&self) -> bool {
        match self {
            Self::Other(writer) => writer.has_surplus(),
            _ => false,
        }
    }

    /// Returns the body of the response.
    pub fn into_body(self, billed: &BilledUsage) -> Vec<u8> {
        match self {
            Self::OpenAiChat(completion) => completion.into_body(billed),
            Self::OpenAiResponses(response) => response.into_body(billed),
            Self::OpenAiCompletions(completion) => completion.into_body(billed),
            Self::AnthropicMessages(message) => message.into_body(billed),
            Self::GeminiGenerate(content) => content.into_body(billed),
            Self::Other(writer) => writer.into_body(billed),
        }
    }
}

impl AnswerStream {
    /// Sets the provider, like [`PlainResponse::answered_by`].
    pub fn answered_by(&mut self, provider: &str) {
        match self {
            Self::OpenAiChat(chunks) => chunks.answered_by(provider),
            Self::OpenAiResponses(chunks) => chunks.answered_by(provider),
            Self::OpenAiCompletions(_) | Self::Other(_) => {}
            Self::AnthropicMessages(chunks) => chunks.answered_by(provider),
            Self::GeminiGenerate(chunks) => chunks.answered_by(provider),
        }
    }

    /// Appends the data of the events of one adapter call, if they have any. [`Self::finish`] writes the end after the
    /// settlement.
    pub fn events(&mut self, events: &[Event], out: &mut Vec<u8>) {
        for (at, event) in events.iter().enumerate() {
            let signature = signature_of_call(event, &events[at + 1..]);
            match self {
                Self::OpenAiChat(chunks) => {
                    chunks.sign_next_call(signature);
                    chunks.event(event, out);
                }
                Self::OpenAiResponses(chunks) => chunks.event(event, out),
                Self::OpenAiCompletions(chunks) => chunks.event(event, out),
                Self::AnthropicMessages(chunks) => {
                    chunks.sign_next_call(signature);
                    chunks.event(event, out);
                }
                Self::GeminiGenerate(chunks) => chunks.event(event, out),
                Self::Other(writer) => writer.event(event, out),
            }
        }
    }

    /// Appends the end of a complete response.
    pub fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(chunks) => chunks.finish(billed, out),
            Self::OpenAiResponses(chunks) => chunks.finish(billed, out),
            Self::OpenAiCompletions(chunks) => chunks.finish(billed, out),
            Self::AnthropicMessages(chunks) => chunks.finish(billed, out),
            Self::GeminiGenerate(chunks) => chunks.finish(billed, out),
            Self::Other(writer) => writer.finish(billed, out),
        }
    }

    /// Appends an error, as [`ErrorFormat`] write it, and ends the stream. No end marker may follow, because it would
    /// mark the response as complete. A stream without a place for errors gets nothing.
    pub fn error(&mut self, error: &Value, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(_) | Self::OpenAiCompletions(_) => {
                openai_chat::CompletionStream::error(error, out)
            }
            Self::OpenAiResponses(chunks) => chunks.error(error, out),
            Self::AnthropicMessages(_) => anthropic_messages::MessageStream::error(error, out),
            Self::GeminiGenerate(chunks) => chunks.error(error, out),
            Self::Other(writer) => writer.error(error, out),
        }
    }
}

/// Returns the signature of a call that begins, from the events after it. Two dialects have a place for the signature
/// only at the start of the call or before it; adapters report it together with the start.
fn signature_of_call<'a>(event: &Event, next: &'a [Event]) -> Option<&'a str> {
    let Event::BlockStart(BlockStart {
        index,
        block: Block::ToolCall(_),
    }) = event
    else {
        return None;
    };
    next.iter().find_map(|event| match event {
        Event::Signature(piece) if piece.index == *index => Some(piece.text.as_str()),
        _ => None,
    })
}
