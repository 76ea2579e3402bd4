//! A response in this dialect, non-streamed or in chunks, as the contract's events.
//!
//! The two have one form: a stream's chunks are responses that add up. Text and reasoning are runs; calls are
//! complete, except from servers that write their arguments piece by piece.

mod calls;
mod sources;
mod usage;
mod wire;

use std::borrow::Cow;

use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure, FailureKind};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, FinishReason, Fragment, Opaque, Started};
use weir_sdk::media::ImageExtractor;
use weir_sdk::response::{self, AnswerReader, ErrorResponse};
use weir_sdk::sse::SseEvent;
use weir_sdk::text;

use super::errors;
use calls::ToolCalls;
use sources::Sources;
use usage::UsageTracker;
use wire::{Candidate, Chunk, Part};

pub(super) use calls::GENERATED_ID_PREFIX;

/// Paths of images in a response: in each chunk, and in the envelope of some servers.
const IMAGES: &[&[&str]] = &[
    &["candidates", "content", "parts", "inlineData", "data"],
    &[
        "response",
        "candidates",
        "content",
        "parts",
        "inlineData",
        "data",
    ],
];

/// The parsed part of the response.
#[derive(Debug)]
pub struct ChatResponse {
    extractor: ImageExtractor,
    is_started: bool,
    blocks: Blocks,
    /// The open run that has its signature: another signature belongs to another run.
    signed_block: Option<u32>,
    calls: ToolCalls,
    sources: Sources,
    usage: UsageTracker,
    /// The upstream's reason; the last one stands, since some servers write it in each chunk.
    finish: Option<String>,
    finish_message: Option<String>,
    is_blocked: bool,
    has_calls: bool,
    /// The request asked for an image: a response without one is invalid.
    wants_image: bool,
    concluded: bool,
}

impl ChatResponse {
    pub(super) fn new(custom_tools: Vec<String>, wants_image: bool) -> Self {
        Self {
            extractor: ImageExtractor::new(IMAGES),
            is_started: false,
            blocks: Blocks::default(),
            signed_block: None,
            calls: ToolCalls::new(custom_tools),
            sources: Sources::default(),
            usage: UsageTracker::default(),
            finish: None,
            finish_message: None,
            is_blocked: false,
            has_calls: false,
            wants_image,
            concluded: false,
        }
    }
}

impl AnswerReader for ChatResponse {
    fn lift<'a>(
        &mut self,
        bytes: &'a [u8],
        events: &mut Vec<Event>,
    ) -> (Cow<'a, [u8]>, Result<(), Failure>) {
        self.extractor.lift(bytes, events)
    }

    fn read_event(&mut self, event: SseEvent<'_>, events: &mut Vec<Event>) -> Result<(), Failure> {
        self.read_chunk(event.data, events)
    }

    fn read_whole(&mut self, body: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        let body = &text::lossy(body);
        if !body.trim_start().starts_with('[') {
            let whole: &RawValue =
                serde_json::from_str(body).map_err(|error| unreadable(&error))?;
            return self.read_chunk(whole.get(), events);
        }
        // Servers that do not know `alt=sse` send a stream as a list of its chunks.
        let chunks: Vec<&RawValue> =
            serde_json::from_str(body).map_err(|error| unreadable(&error))?;
        for chunk in chunks {
            self.read_chunk(chunk.get(), events)?;
        }
        Ok(())
    }

    fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        if self.concluded {
            return Ok(());
        }
        let reason = self.finish.take().ok_or_else(response::cut)?;
        let finish = if self.is_blocked {
            FinishReason::ContentFilter
        } else {
            finish_of(&reason, self.finish_message.take())?
        };
        if self.wants_image && self.usage.images() == 0 {
            let (kind, text) = match finish {
                FinishReason::ContentFilter => (FailureKind::Filtered, "the image was held back"),
                _ => (FailureKind::Rejected, "the model has made no image of this"),
            };
            return Err(Failure::new(kind, text).with_code(reason));
        }
        self.sources.cite(&mut self.blocks, events);
        self.blocks.end_run(events);
        self.has_calls |= self.calls.conclude(&mut self.blocks, events);
        self.concluded = true;
        events.push(Event::Finish(match finish {
            // The upstream has no reason of its own for this.
            FinishReason::Stop if self.has_calls => FinishReason::ToolCalls,
            finish => finish,
        }));
        Ok(())
    }

    fn failure_of_response(response: &ErrorResponse) -> Failure {
        errors::from_response(response)
    }

    fn failure_behind_stream(stray: &str) -> Option<Failure> {
        errors::after_stream(stray)
    }
}

impl ChatResponse {
    /// Reads a chunk of a stream.
    fn read_chunk(&mut self, data: &str, events: &mut Vec<Event>) -> Result<(), Failure> {
        let data = data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_str(data).map_err(|error| unreadable(&error))?;
        if chunk.error.is_some() {
            return Err(errors::from_error(data));
        }
        // Some servers put each chunk into an envelope.
        if let Some(enveloped) = chunk.response {
            let enveloped: Chunk<'_> =
                serde_json::from_str(enveloped.get()).map_err(|error| unreadable(&error))?;
            return self.read(enveloped, events);
        }
        self.read(chunk, events)
    }

    fn read(&mut self, chunk: Chunk<'_>, events: &mut Vec<Event>) -> Result<(), Failure> {
        self.calls.set_response_id(chunk.response_id.as_deref());
        if !self.is_started && (chunk.response_id.is_some() || chunk.model_version.is_some()) {
            events.push(Event::Started(Started {
                id: chunk.response_id,
                model: chunk.model_version,
            }));
        }
        self.is_started = true;
        let block_reason = chunk
            .prompt_feedback
            .and_then(|feedback| feedback.block_reason);
        if let Some(reason) = block_reason.filter(|reason| is_specified(reason)) {
            self.finish = Some(reason);
            self.is_blocked = true;
        }
        let candidates = chunk.candidates.into_iter().flatten();
        let mut first = candidates.filter(|candidate| candidate.index.unwrap_or(0) == 0);
        if let Some(candidate) = first.next() {
            self.read_candidate(candidate, events)?;
        }
        self.usage.add(chunk.usage_metadata, events);
        Ok(())
    }

    fn read_candidate(
        &mut self,
        candidate: Candidate<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let content = candidate.content.unwrap_or_default();
        for part in content.parts.into_iter().flatten() {
            self.read_part(part, events)?;
        }
        self.sources
            .keep(candidate.grounding_metadata, candidate.citation_metadata);
        if let Some(reason) = candidate
            .finish_reason
            .filter(|reason| is_specified(reason))
        {
            self.finish = Some(reason);
            self.finish_message = candidate.finish_message;
        }
        Ok(())
    }

    fn read_part(&mut self, raw: &RawValue, events: &mut Vec<Event>) -> Result<(), Failure> {
        let part: Part<'_> = serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
        let signature = part.thought_signature.filter(|text| !text.is_empty());
        let is_thought = part.thought == Some(true);
        if let Some(call) = part.function_call {
            let is_complete = self.calls.read(call, signature, &mut self.blocks, events)?;
            self.has_calls |= is_complete;
        } else if let Some(text) = part.text {
            let block = if is_thought {
                Block::Reasoning
            } else {
                Block::Text
            };
            self.push_text(block, text, signature, events);
        } else if let Some(blob) = part.inline_data {
            // A trial image in the model's reasoning is no part of the response.
            if !is_thought {
                let media = self.extractor.image(
                    blob.data.trim(),
                    blob.mime_type.as_deref(),
                    "image/png",
                    events,
                )?;
                events.push(Event::Media(media));
                self.usage.add_image();
            }
        } else if let Some(kind) = wire::kind_of(raw) {
            self.blocks.opaque(
                Opaque {
                    kind,
                    json: raw.get().to_owned(),
                },
                events,
            );
        } else if signature.is_some() {
            self.push_text(Block::Text, String::new(), signature, events);
        }
        Ok(())
    }

    /// Adds to the run of this kind. A signature belongs to a complete run, which has at most one.
    fn push_text(
        &mut self,
        block: Block,
        text: String,
        signature: Option<String>,
        events: &mut Vec<Event>,
    ) {
        if text.is_empty() && signature.is_none() {
            return;
        }
        let is_text = block == Block::Text;
        let mut index = self.blocks.run(block.clone(), events);
        if self.signed_block == Some(index) {
            self.blocks.end_run(events);
            index = self.blocks.run(block, events);
        }
        if is_text {
            self.sources.add_text(index, &text);
        }
        if !text.is_empty() {
            events.push(Event::Fragment(Fragment { index, text }));
        }
        if let Some(text) = signature {
            self.signed_block = Some(index);
            events.push(Event::Signature(Fragment { index, text }));
        }
    }
}

/// Returns whether the text is a reason, and not the placeholder for none.
fn is_specified(reason: &str) -> bool {
    !reason.is_empty() && !reason.ends_with("_UNSPECIFIED")
}

/// Maps a finish reason. Some reasons mean that there is no response: the model wrote unreadable output, or made no
/// image. A retry may succeed.
fn finish_of(reason: &str, message: Option<String>) -> Result<FinishReason, Failure> {
    let failure = |kind| {
        let text = message
            .clone()
            .unwrap_or_else(|| format!("finishReason {reason}"));
        Err(Failure::new(kind, weir_sdk::failure::shortened(&text)).with_code(reason))
    };
    match reason {
        "STOP" => Ok(FinishReason::Stop),
        "MAX_TOKENS" => Ok(FinishReason::Length),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR" => Ok(FinishReason::ContentFilter),
        // The request's history lacks the signatures that the upstream sent with its calls.
        "MISSING_THOUGHT_SIGNATURE" => failure(FailureKind::Rejected),
        // `MALFORMED_FUNCTION_CALL`, `UNEXPECTED_TOOL_CALL`, `NO_IMAGE`, `OTHER` and similar ones.
        _ => failure(FailureKind::Unavailable),
    }
}

fn unreadable(error: &serde_json::Error) -> Failure {
    response::unreadable("generated content", error)
}
