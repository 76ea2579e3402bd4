//! The response, as one object or as server-sent events.
//!
//! **Invariant:** the chunks of a stream add up to the text of the plain response to the same events.

use weir_sandbox::adapter::bindings::chat::{Block, Event, FinishReason};

use crate::dialect::Preferences;
use crate::openai_chat::{ChatUsage, data_event, json};
use crate::schema::{Described as _, Schemas, written};
use crate::{AnswerHead, BilledUsage};

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct TextCompletion {
    head: AnswerHead,
    text: String,
    texts: OpenTexts,
}

impl TextCompletion {
    /// Returns an empty response.
    pub fn new(head: AnswerHead) -> Self {
        Self {
            head,
            text: String::new(),
            texts: OpenTexts::default(),
        }
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        if let Some(text) = self.texts.follow(event) {
            self.text.push_str(text);
        }
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        self.text.clear();
        self.texts = OpenTexts::default();
    }

    /// Returns the `text_completion` object.
    pub fn into_body(self, billed: &BilledUsage) -> Vec<u8> {
        let finish_reason = Some(self.texts.finish_reason());
        let mut body = Vec::with_capacity(256 + self.text.len());
        let usage = Some(ChatUsage::from(billed));
        let choices = [CompletionChoice::new(&self.text, finish_reason)];
        json(&CompletionBody::new(&self.head, &choices, usage), &mut body);
        body
    }
}

/// Writes a stream as server-sent events.
#[derive(Debug)]
pub struct TextCompletionStream {
    head: AnswerHead,
    include_usage: bool,
    texts: OpenTexts,
}

impl TextCompletionStream {
    /// Returns an empty stream. With `include_usage`, the last chunk has the usage and no choice, as in Chat Completions.
    pub fn new(head: AnswerHead, preferences: Preferences) -> Self {
        Self {
            head,
            include_usage: preferences.include_usage,
            texts: OpenTexts::default(),
        }
    }

    /// Appends the chunk of an event, if it has one. [`Self::finish`] writes the end after the settlement.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        if let Some(text) = self.texts.follow(event) {
            self.chunk(&[CompletionChoice::new(text, None)], None, out);
        }
    }

    /// Appends the end: the finish reason, usage, `[DONE]`.
    pub fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        let end = [CompletionChoice::new("", Some(self.texts.finish_reason()))];
        let usage = Some(ChatUsage::from(billed));
        if self.include_usage {
            self.chunk(&end, None, out);
            self.chunk(&[], usage, out);
        } else {
            self.chunk(&end, usage, out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn chunk(&self, choices: &[CompletionChoice<'_>], usage: Option<ChatUsage>, out: &mut Vec<u8>) {
        data_event(&CompletionBody::new(&self.head, choices, usage), out);
    }
}

/// The open blocks that are texts, and the reason for the end.
#[derive(Debug, Clone, Default)]
struct OpenTexts {
    open: Vec<u32>,
    finish: Option<&'static str>,
}

impl OpenTexts {
    /// Follows an event, and returns its text, if it has one that is not empty. A refusal is a text, too.
    fn follow<'a>(&mut self, event: &'a Event) -> Option<&'a str> {
        match event {
            Event::BlockStart(start) => {
                if matches!(start.block, Block::Text | Block::Refusal) {
                    self.open.push(start.index);
                }
            }
            Event::BlockEnd(index) => self.open.retain(|open| open != index),
            Event::Fragment(fragment)
                if self.open.contains(&fragment.index) && !fragment.text.is_empty() =>
            {
                return Some(&fragment.text);
            }
            Event::Finish(reason) => {
                self.finish = Some(match reason {
                    FinishReason::Length | FinishReason::ContextWindow => "length",
                    FinishReason::ContentFilter | FinishReason::Refusal => "content_filter",
                    _ => "stop",
                });
            }
            _ => {}
        }
        None
    }

    fn finish_reason(&self) -> &'static str {
        self.finish.unwrap_or("stop")
    }
}

written! {
    /// A model's response in Completions, or a chunk of a stream; `[DONE]` follows the last chunk.
    struct CompletionBody<'a> as "TextCompletion" {
        /// The response's id.
        id: String,
        /// The kind of the object.
        object: &'static str = [OneOf(&["text_completion"])],
        /// The time of the response, in seconds since 1970.
        created: i64,
        /// The requested model.
        model: &'a str,
        /// The response, as one choice; empty in a last chunk with the token usage alone.
        choices: &'a [CompletionChoice<'a>],
        /// The token usage; in a stream, of the last chunk.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<ChatUsage>,
    }
}

/// Adds the schema of a response, which is also that of a chunk.
pub(super) fn describe(schemas: &mut Schemas) {
    CompletionBody::schema(schemas);
}

impl<'a> CompletionBody<'a> {
    fn new(
        head: &'a AnswerHead,
        choices: &'a [CompletionChoice<'a>],
        usage: Option<ChatUsage>,
    ) -> Self {
        Self {
            id: format!("cmpl-{}", head.id),
            object: "text_completion",
            created: head.created,
            model: &head.model,
            choices,
            usage,
        }
    }
}

written! {
    /// The response.
    struct CompletionChoice<'a> as "TextCompletionChoice" {
        /// The text.
        text: &'a str,
        /// 0.
        index: u32,
        /// Null: log probabilities are not supported.
        logprobs: (),
        /// The reason for the end; null in earlier chunks.
        finish_reason: Option<&'static str> = [OneOf(&["stop", "length", "content_filter"])],
    }
}

impl<'a> CompletionChoice<'a> {
    fn new(text: &'a str, finish_reason: Option<&'static str>) -> Self {
        Self {
            text,
            index: 0,
            logprobs: (),
            finish_reason,
        }
    }
}
