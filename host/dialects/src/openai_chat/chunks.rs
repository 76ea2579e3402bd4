//! The response as server-sent events.
//!
//! **Invariant:** the chunks of a stream add up to the message of the plain response to the same events.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use weir_sandbox::adapter::bindings::chat::{Block, BlockStart, CallKind, Event, Fragment};

use super::Preferences;
use super::answer::{
    AnswerImage, ChatUsage, Logprobs, ResponseOpaqueBlock, call_word, completion_id, data_event,
    json,
};
use super::blocks::{BlockCall, ChatBlocks, ExtraContent, FragmentPlace};
use crate::AnswerHead;
use crate::BilledUsage;

/// A comment, which readers of server-sent events skip.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Writes a stream as server-sent events.
///
/// The first chunk with content also carries the role, which saves a chunk in every response.
#[derive(Debug)]
pub struct CompletionStream {
    /// A chunk up to and including `"delta":{`, equal in all but the last.
    opening: Vec<u8>,
    /// The length of `opening` before `"choices"`.
    head_length: usize,
    include_usage: bool,
    begun: bool,
    images: usize,
    annotations: usize,
    opaque: usize,
    /// The log probabilities of the next text's tokens.
    logprobs: Logprobs,
    blocks: ChatBlocks,
    finish_reason: Option<&'static str>,
}

impl CompletionStream {
    /// Returns an empty stream. With `include_usage`, the last chunk has the usage and no choice. Other clients must
    /// not receive it: many index `choices` without a check.
    pub fn new(head: &AnswerHead, preferences: Preferences) -> Self {
        let mut opening = Vec::with_capacity(160 + head.id.len() + head.model.len());
        opening.extend_from_slice(b"data: {\"id\":");
        json(&completion_id(head), &mut opening);
        opening.extend_from_slice(b",\"object\":\"chat.completion.chunk\",\"created\":");
        json(&head.created, &mut opening);
        opening.extend_from_slice(b",\"model\":");
        json(&head.model, &mut opening);
        opening.extend_from_slice(b",");
        let head_length = opening.len();
        opening.extend_from_slice(b"\"choices\":[{\"index\":0,\"delta\":{");
        Self {
            opening,
            head_length,
            include_usage: preferences.include_usage,
            begun: false,
            images: 0,
            annotations: 0,
            opaque: 0,
            logprobs: Logprobs::default(),
            blocks: ChatBlocks::default(),
            finish_reason: None,
        }
    }

    /// Sets the provider of the following events.
    pub fn answered_by(&mut self, provider: &str) {
        self.blocks.answered_by(provider);
    }

    /// Sets the signature of the next call.
    pub fn sign_next_call(&mut self, signature: Option<&str>) {
        self.blocks.sign_next_call(signature);
    }

    /// Appends the chunk of an event, if it has one. [`Self::finish`] writes the end after the settlement.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        match event {
            Event::Fragment(fragment) => self.fragment(fragment, out),
            Event::BlockStart(start) => self.begin(start, out),
            Event::Signature(fragment) => self.blocks.sign(fragment),
            Event::Sealed(fragment) => self.blocks.seal(fragment),
            Event::Logprobs(piece) => self.logprobs.add(&self.blocks, piece),
            Event::Citation(citation) => {
                let annotation = self.blocks.annotation(Some(self.annotations), citation);
                if let Some(annotation) = annotation {
                    self.annotations += 1;
                    self.delta(b"\"annotations\":[", &annotation, b"]", out);
                }
            }
            Event::BlockEnd(index) => {
                let details = self.blocks.end(*index);
                if !details.is_empty() {
                    self.delta(b"\"reasoning_details\":", &details, b"", out);
                }
            }
            Event::Opaque(opaque) => {
                let provider = self.blocks.provider();
                if let Some(block) =
                    ResponseOpaqueBlock::new(Some(self.opaque), &opaque.block, provider)
                {
                    self.opaque += 1;
                    let before = b"\"provider_specific_fields\":{\"blocks\":[";
                    self.delta(before, &block, b"]}", out);
                }
            }
            Event::Media(media) => {
                if let Some(image) = AnswerImage::new(Some(self.images), media) {
                    self.images += 1;
                    self.delta(b"\"images\":[", &image, b"]", out);
                }
            }
            Event::Finish(reason) => self.finish_reason = Some(self.blocks.finish_word(reason)),
            Event::Started(_) | Event::MediaBytes(_) | Event::Usage(_) => {}
        }
    }

    /// Appends the end: the finish reason, usage, `[DONE]`.
    pub fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        let usage = ChatUsage::from(billed);
        out.extend_from_slice(&self.opening);
        if !self.begun {
            self.begun = true;
            out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"");
        }
        self.end_delta(out);
        json(self.finish_reason.unwrap_or("stop"), out);
        out.extend_from_slice(b"}],");
        if self.include_usage {
            out.extend_from_slice(b"\"usage\":null}\n\n");
            out.extend_from_slice(&self.opening[..self.head_length]);
            out.extend_from_slice(b"\"choices\":[],");
        }
        out.extend_from_slice(b"\"usage\":");
        json(&usage, out);
        out.extend_from_slice(b"}\n\ndata: [DONE]\n\n");
    }

    /// Appends an error, and ends the stream: some SDKs raise it by the `error` in the data, others by the event's
    /// name. No event may follow, in particular not `[DONE]`, which would mark the response as complete.
    pub fn error(error: &Value, out: &mut Vec<u8>) {
        out.extend_from_slice(b"event: error\n");
        data_event(error, out);
    }

    fn begin(&mut self, start: &BlockStart, out: &mut Vec<u8>) {
        let begun = self.blocks.begin(start);
        if let (Some(call), Block::ToolCall(start)) = (begun, &start.block) {
            let delta = ToolCallDelta {
                id: Some(&start.id),
                kind: Some(call_word(start.kind)),
                extra_content: self.blocks.signature_of_call(),
                ..ToolCallDelta::new(call, Some(&start.name), "")
            };
            self.delta(b"\"tool_calls\":[", &delta, b"]", out);
        }
    }

    /// Writes a chunk for a piece of a block; an empty piece is skipped.
    fn fragment(&mut self, fragment: &Fragment, out: &mut Vec<u8>) {
        let text = fragment.text.as_str();
        if text.is_empty() {
            return;
        }
        match self.blocks.follow(fragment) {
            Some(FragmentPlace::Content) => self.delta(b"\"content\":", text, b"", out),
            Some(FragmentPlace::Refusal) => self.delta(b"\"refusal\":", text, b"", out),
            Some(FragmentPlace::Reasoning) => self.delta(b"\"reasoning_content\":", text, b"", out),
            Some(FragmentPlace::Call(call)) => {
                let delta = ToolCallDelta::new(call, None, text);
                self.delta(b"\"tool_calls\":[", &delta, b"]", out);
            }
            None => {}
        }
    }

    fn delta<T: Serialize + ?Sized>(
        &mut self,
        before: &[u8],
        value: &T,
        after: &[u8],
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(&self.opening);
        if !self.begun {
            self.begun = true;
            out.extend_from_slice(b"\"role\":\"assistant\",");
        }
        out.extend_from_slice(before);
        json(value, out);
        out.extend_from_slice(after);
        self.end_delta(out);
        out.extend_from_slice(b"null}]}\n\n");
    }

    /// Writes the JSON between a delta and its finish reason.
    fn end_delta(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"},");
        if let Some(logprobs) = std::mem::take(&mut self.logprobs).any() {
            out.extend_from_slice(b"\"logprobs\":");
            json(logprobs, out);
            out.extend_from_slice(b",");
        }
        out.extend_from_slice(b"\"finish_reason\":");
    }
}

/// A chunk's part of a call: first everything but the input, then the input piece by piece.
#[derive(Debug, Serialize)]
struct ToolCallDelta<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(flatten)]
    called: CalledDelta<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<ExtraContent>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum CalledDelta<'a> {
    Function(CalledFunctionDelta<'a>),
    Custom(CalledCustomDelta<'a>),
}

#[derive(Debug, Serialize)]
struct CalledFunctionDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

#[derive(Debug, Serialize)]
struct CalledCustomDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    input: &'a str,
}

impl<'a> ToolCallDelta<'a> {
    fn new(call: BlockCall, name: Option<&'a str>, input: &'a str) -> Self {
        Self {
            index: call.index,
            id: None,
            kind: None,
            extra_content: None,
            called: match call.kind {
                CallKind::Function => CalledDelta::Function(CalledFunctionDelta {
                    name,
                    arguments: input,
                }),
                CallKind::Custom => CalledDelta::Custom(CalledCustomDelta { name, input }),
            },
        }
    }
}
