//! The response as server-sent events.
//!
//! **Invariant:** the chunks of a stream add up to the message of the plain response to the same events.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use weir_sandbox::adapter::bindings::chat::{Block, BlockStart, CallKind, Event, Fragment};

use super::Preferences;
use super::answer::{
    AnswerImage, ChatUsage, Logprobs, ResponseOpaqueBlock, call_word, completion_id, data_event,
    json,
};
use super::blocks::{
    BlockCall, ChatAnnotation, ChatBlocks, ExtraContent, FINISH_REASONS, FragmentPlace,
    ResponseReasoningDetail,
};
use crate::AnswerHead;
use crate::BilledUsage;
use crate::schema::{Described, Schemas, described, either, nullable, written};

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

written! {
    /// A piece of a call: first everything but the input, then the input piece by piece.
    #[derive(Debug)]
    struct ToolCallDelta<'a> as "ChatToolCallDelta" {
        /// The position of the call among the response's calls.
        index: usize,
        /// The id of the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        /// The kind of the tool.
        #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
        kind: Option<&'static str> = [OneOf(&["function", "custom"])],
        #[serde(flatten)]
        called: CalledDelta<'a>,
        /// The provider's proof of the call. Send it back unchanged.
        #[serde(skip_serializing_if = "Option::is_none")]
        extra_content: Option<ExtraContent>,
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum CalledDelta<'a> {
    Function(CalledFunctionDelta<'a>),
    Custom(CalledCustomDelta<'a>),
}

impl Described for CalledDelta<'_> {
    fn schema(schemas: &mut Schemas) -> Value {
        let function = CalledFunctionDelta::schema(schemas);
        let custom = CalledCustomDelta::schema(schemas);
        either(
            schemas,
            "ChatCalledDelta",
            [
                ("function", "The called function.", function),
                ("custom", "The called tool with free text.", custom),
            ],
        )
    }
}

written! {
    /// A piece of a called function.
    #[derive(Debug)]
    struct CalledFunctionDelta<'a> as "ChatFunctionDelta" {
        /// The name of the function.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        /// The next piece of the arguments.
        arguments: &'a str,
    }
}

written! {
    /// A piece of a called tool with free text.
    #[derive(Debug)]
    struct CalledCustomDelta<'a> as "ChatCustomToolDelta" {
        /// The name of the tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        /// The next piece of the text.
        input: &'a str,
    }
}

/// The schema of a chunk. The writer above writes its pieces one by one, since most are equal in all chunks.
pub(super) fn describe(schemas: &mut Schemas) {
    let list = |item: Value| json!({ "type": "array", "items": item });
    let details = described(
        list(ResponseReasoningDetail::schema(schemas)),
        "The model's reasoning with the provider's proofs.",
    );
    let calls = described(
        list(ToolCallDelta::schema(schemas)),
        "Pieces of the model's calls.",
    );
    let images = described(
        list(AnswerImage::schema(schemas)),
        "Images that the model has made.",
    );
    let annotations = described(
        list(ChatAnnotation::schema(schemas)),
        "Sources of the text.",
    );
    let blocks = list(ResponseOpaqueBlock::schema(schemas));
    let logprobs = Logprobs::schema(schemas);
    let logprobs = described(
        logprobs,
        "The log probabilities of the next tokens, if the request wants them.",
    );
    let usage = Option::<ChatUsage>::schema(schemas);
    let usage = described(usage, "In the last chunk: the token usage.");
    let text = |meaning: &str| json!({ "type": "string", "description": meaning });
    schemas.add("ChatDelta", json!({
        "type": "object",
        "description": "A change of the message: texts are appended, and entries of lists belong to the entry with the same `index`.",
        "properties": {
            "role": { "type": "string", "enum": ["assistant"], "description": "In the first chunk: the author's role." },
            "content": text("The next piece of the text."),
            "refusal": text("The next piece of the model's refusal."),
            "reasoning_content": text("The next piece of the model's reasoning."),
            "reasoning_details": details,
            "tool_calls": calls,
            "images": images,
            "annotations": annotations,
            "provider_specific_fields": {
                "type": "object", "properties": { "blocks": blocks }, "required": ["blocks"],
                "description": "A provider's own data.",
            },
        },
    }));
    schemas.add("ChatChunkChoice", json!({
        "type": "object",
        "description": "A change of the response.",
        "properties": {
            "index": { "type": "integer", "description": "0." },
            "delta": { "$ref": "#/components/schemas/ChatDelta", "description": "The change of the message." },
            "logprobs": logprobs,
            "finish_reason": nullable(json!({
                "type": "string", "enum": FINISH_REASONS, "description": "In the last change: the reason for the end.",
            })),
        },
        "required": ["index", "delta", "finish_reason"],
    }));
    schemas.add("ChatCompletionChunk", json!({
        "type": "object",
        "description": "A chunk of a stream in Chat Completions. The chunks add up to the response; `[DONE]` follows the last.",
        "properties": {
            "id": text("The response's id."),
            "object": { "type": "string", "enum": ["chat.completion.chunk"], "description": "The kind of the object." },
            "created": { "type": "integer", "format": "int64", "description": "The time of the response, in seconds since 1970." },
            "model": text("The requested model."),
            "choices": {
                "type": "array", "items": { "$ref": "#/components/schemas/ChatChunkChoice" }, "maxItems": 1,
                "description": "A change of the response; empty in a last chunk with the token usage alone.",
            },
            "usage": usage,
        },
        "required": ["id", "object", "created", "model", "choices"],
    }));
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
