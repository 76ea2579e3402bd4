//! A response in this dialect, non-streamed or in chunks, as the contract's events.
//!
//! The two differ only in form: the message of a non-streamed response is read as one large delta. Text, reasoning
//! and refusals are runs; a run ends when another begins. Calls stay open until the response ends, since
//! fragments of several may be interleaved.

mod calls;
pub(super) mod usage;
mod wire;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, Citation, FinishReason, Fragment, Span, Started, Usage};
use weir_sdk::response;
use weir_sdk::sse::SseEvent;
use weir_sdk::text;

use super::errors;
use calls::ToolCalls;
use wire::{
    Annotation, ChatCompletion, Chunk, Delta, ReasoningDetail, ResponseSource, ToolCallDelta,
};

/// The parsed part of the response.
#[derive(Debug, Default)]
pub struct ChatResponse {
    /// The client requested log probabilities; some servers send them to other clients, too.
    wants_logprobs: bool,
    /// The upstream's names were emitted, or it is too late for them.
    is_started: bool,
    /// Some content of the response has arrived.
    has_content: bool,
    blocks: Blocks,
    /// The run of reasoning that has its signature or its sealed form.
    signed_reasoning: Option<u32>,
    text: TextPosition,
    /// The sources of the whole text, which servers repeat with each chunk.
    sources: Vec<ResponseSource>,
    has_cited: bool,
    /// The last run is a text.
    is_text_last: bool,
    calls: ToolCalls,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
    has_refused: bool,
    concluded: bool,
}

/// The length of the text so far, in characters: this dialect counts a citation's span from the start of all text,
/// the contract from the start of its block.
#[derive(Debug, Default)]
struct TextPosition {
    block: Option<u32>,
    characters_before_block: usize,
    characters_in_block: usize,
}

impl ChatResponse {
    /// A response without content so far, for a client that requested log probabilities or not.
    pub(super) fn new(wants_logprobs: bool) -> Self {
        Self {
            wants_logprobs,
            ..Self::default()
        }
    }

    pub(super) fn read_event(
        &mut self,
        event: SseEvent<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let data = event.data.trim();
        if self.concluded || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            // The content until here is complete without a reason: some servers give none.
            if self.finish.is_none() && self.has_content {
                self.finish = Some(FinishReason::Stop);
            }
            return self.conclude(events);
        }
        if event.name == "error" {
            return Err(errors::from_error(data));
        }
        let chunk: Chunk<'_> = match serde_json::from_str(data) {
            Ok(chunk) => chunk,
            // A value other than a chunk, such as a ping.
            Err(_) if !data.starts_with('{') && is_json(data) => return Ok(()),
            Err(error) => return Err(unreadable(&error)),
        };
        self.start(chunk.id, chunk.model, events);
        let mut usage = chunk.usage.or_else(|| usage::from_groq(chunk.x_groq?));
        let choice = chunk
            .choices
            .into_iter()
            .flatten()
            .filter(|choice| choice.index.unwrap_or(0) == 0);
        for choice in choice {
            usage = usage.or(choice.usage);
            self.push_text(choice.text.unwrap_or_default(), events);
            self.read_choice(
                choice.delta.or(choice.message),
                choice.logprobs,
                choice.finish_reason,
                choice.error.or(chunk.error),
                false,
                events,
            )?;
        }
        self.set_sources(chunk.search_results, chunk.citations);
        self.read_usage(usage, events);
        match chunk.error.filter(|error| errors::is_error(error)) {
            Some(error) => Err(errors::from_error(&envelope(error))),
            None => Ok(()),
        }
    }

    pub(super) fn read_whole(
        &mut self,
        body: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let body = text::lossy(body);
        let completion: ChatCompletion<'_> =
            serde_json::from_str(&body).map_err(|error| unreadable(&error))?;
        if completion.error.is_some_and(errors::is_error) {
            return Err(errors::from_error(&body));
        }
        let choice = completion
            .choices
            .into_iter()
            .flatten()
            .find(|choice| choice.index.unwrap_or(0) == 0)
            .ok_or_else(|| Failure::malformed("the answer has no choices"))?;
        self.start(completion.id, completion.model, events);
        self.set_sources(completion.search_results, completion.citations);
        // The JSON is complete, so the response is not truncated: a server without a reason means this.
        self.finish = Some(FinishReason::Stop);
        self.push_text(choice.text.unwrap_or_default(), events);
        let legacy_reason = choice.finish_details.and_then(|details| details.kind);
        self.read_choice(
            choice.message,
            choice.logprobs,
            choice.finish_reason.or(legacy_reason),
            choice.error,
            true,
            events,
        )?;
        self.read_usage(completion.usage, events);
        Ok(())
    }

    /// Ends all open blocks, then emits the finish event. Does so once.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`](weir_sdk::adapter::FailureKind::Malformed) for a truncated stream: it gave no
    /// reason for its end.
    pub(super) fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        if self.concluded {
            return Ok(());
        }
        let finish = self.finish.take().ok_or_else(response::cut)?;
        self.concluded = true;
        // Some servers, and OpenAI itself for a required tool, write `stop` after calls.
        let finish = match finish {
            FinishReason::Stop if !self.calls.is_empty() => FinishReason::ToolCalls,
            FinishReason::Stop if self.has_refused => FinishReason::Refusal,
            finish => finish,
        };
        self.push_sources(events);
        self.blocks.end_run(events);
        self.calls.conclude(&mut self.blocks, events)?;
        events.push(Event::Finish(finish));
        Ok(())
    }

    /// Emits the upstream's names from the first piece that has one, unless content came before.
    fn start(&mut self, id: Option<&RawValue>, model: Option<&RawValue>, events: &mut Vec<Event>) {
        if self.is_started {
            return;
        }
        let text = |raw: Option<&RawValue>| {
            let text: String = serde_json::from_str(raw?.get()).ok()?;
            (!text.is_empty()).then_some(text)
        };
        let (id, model) = (text(id), text(model));
        if id.is_some() || model.is_some() {
            self.is_started = true;
            events.push(Event::Started(Started { id, model }));
        }
    }

    fn read_choice(
        &mut self,
        delta: Option<Delta<'_>>,
        logprobs: Option<&RawValue>,
        finish_reason: Option<String>,
        error: Option<&RawValue>,
        is_whole: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if let Some(delta) = delta {
            self.read_delta(delta, logprobs, is_whole, events)?;
        }
        if let Some(error) = error.filter(|error| errors::is_error(error)) {
            return Err(errors::from_error(&envelope(error)));
        }
        // Some servers write an empty string where OpenAI writes null.
        if let Some(reason) = finish_reason.filter(|reason| !reason.is_empty()) {
            self.finish = Some(finish_reason_of(reason)?);
        }
        Ok(())
    }

    fn read_delta(
        &mut self,
        delta: Delta<'_>,
        logprobs: Option<&RawValue>,
        is_whole: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let Delta {
            content,
            refusal,
            reasoning_content,
            reasoning,
            reasoning_details,
            annotations,
            tool_calls,
            function_call,
        } = delta;
        // Servers in transition send the same text under both names.
        let reasoning = if reasoning_content.text.is_empty() {
            reasoning
        } else {
            reasoning_content
        };
        let details = reasoning_details
            .map(wire::reasoning_details)
            .unwrap_or_default();
        // The text of details is usually also in one of the fields above, but without its proof.
        if details.iter().all(|detail| detail.text.is_empty()) {
            self.push_run(Block::Reasoning, reasoning.text, events);
        }
        for detail in details {
            self.read_detail(detail, events);
        }
        self.push_run(Block::Reasoning, content.reasoning, events);
        let logprobs = logprobs.filter(|_| self.wants_logprobs);
        let logprobs = logprobs.map(wire::logprobs).unwrap_or_default();
        self.push_logprobs(Block::Text, logprobs.content, events);
        self.push_text(content.text, events);
        if let Some(raw) = annotations {
            // Annotations are an addition: an unreadable one must not cost the response.
            let annotations: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
            for annotation in annotations {
                self.push_citation(annotation, events);
            }
        }
        self.has_refused |= !refusal.text.is_empty();
        self.push_logprobs(Block::Refusal, logprobs.refusal, events);
        self.push_run(Block::Refusal, refusal.text, events);
        for (position, call) in tool_calls.into_iter().flatten().enumerate() {
            let index = call.index.or(is_whole.then_some(position as u64));
            self.mark_content_started();
            self.calls.read(index, call, &mut self.blocks, events)?;
        }
        // The older form of calls, before there could be several.
        if let Some(function) = function_call.filter(|function| !function.is_empty()) {
            self.mark_content_started();
            let call = ToolCallDelta::from_function(function);
            self.calls.read(None, call, &mut self.blocks, events)?;
        }
        Ok(())
    }

    fn read_detail(&mut self, detail: ReasoningDetail<'_>, events: &mut Vec<Event>) {
        if !detail.text.is_empty() {
            self.enter_unsigned(events);
            self.push_run(Block::Reasoning, detail.text, events);
        }
        if let Some(text) = detail.signature {
            let index = self.enter_unsigned(events);
            self.signed_reasoning = Some(index);
            events.push(Event::Signature(Fragment { index, text }));
        }
        if let Some(sealed) = detail.sealed {
            let index = self.enter_unsigned(events);
            self.signed_reasoning = Some(index);
            let text = sealed.get().to_owned();
            events.push(Event::Sealed(Fragment { index, text }));
        }
    }

    /// Enters a run of reasoning without a proof: content after a proof belongs to the next run.
    fn enter_unsigned(&mut self, events: &mut Vec<Event>) -> u32 {
        self.mark_content_started();
        let index = self.blocks.run(Block::Reasoning, events);
        if self.signed_reasoning != Some(index) {
            return index;
        }
        self.blocks.end_run(events);
        self.blocks.run(Block::Reasoning, events)
    }

    fn push_run(&mut self, block: Block, piece: String, events: &mut Vec<Event>) {
        if !piece.is_empty() {
            self.mark_content_started();
            self.is_text_last = false;
            self.blocks.say(block, piece, events);
        }
    }

    /// Emits the log probabilities of the next tokens, for the open text or refusal, or a new one.
    fn push_logprobs(&mut self, block: Block, entries: Vec<&RawValue>, events: &mut Vec<Event>) {
        if entries.is_empty() {
            return;
        }
        self.mark_content_started();
        let index = self.blocks.run(block, events);
        let entries: Vec<&str> = entries.into_iter().map(RawValue::get).collect();
        let text = format!("[{}]", entries.join(","));
        events.push(Event::Logprobs(Fragment { index, text }));
    }

    fn push_text(&mut self, piece: String, events: &mut Vec<Event>) {
        if piece.is_empty() {
            return;
        }
        self.mark_content_started();
        self.is_text_last = true;
        let characters = piece.chars().count();
        let block = self.blocks.say(Block::Text, piece, events);
        self.text.enter(block);
        self.text.characters_in_block += characters;
    }

    /// Adds a source to the open text, or to a new one if none is open.
    fn push_citation(&mut self, raw: &RawValue, events: &mut Vec<Event>) {
        let Ok(Annotation {
            url_citation: Some(citation),
        }) = serde_json::from_str(raw.get())
        else {
            return;
        };
        self.mark_content_started();
        self.has_cited = true;
        let index = self.blocks.run(Block::Text, events);
        self.text.enter(index);
        events.push(Event::Citation(Citation {
            index,
            source: Some(citation.url),
            title: citation.title,
            cited_text: citation.content,
            span: self.text.span(citation.start_index, citation.end_index),
            json: Some(raw.get().to_owned()),
        }));
    }

    fn set_sources(&mut self, search_results: Option<&RawValue>, citations: Option<&RawValue>) {
        if search_results.is_some() || citations.is_some() {
            self.sources = wire::sources(search_results, citations);
        }
    }

    /// Adds the sources of the whole text to it, unless its parts have sources of their own.
    fn push_sources(&mut self, events: &mut Vec<Event>) {
        let Some(index) = self
            .text
            .block
            .filter(|_| self.is_text_last && !self.has_cited)
        else {
            return;
        };
        for ResponseSource { url, title } in self.sources.drain(..) {
            events.push(Event::Citation(Citation {
                index,
                source: Some(url),
                title,
                cited_text: None,
                span: None,
                json: None,
            }));
        }
    }

    /// Marks the beginning of content, after which the upstream's names come too late.
    fn mark_content_started(&mut self) {
        self.is_started = true;
        self.has_content = true;
    }

    /// Emits usage that is new. A server may repeat it with every chunk.
    fn read_usage(&mut self, raw: Option<&RawValue>, events: &mut Vec<Event>) {
        let Some(read) = raw.and_then(usage::read) else {
            return;
        };
        // The last event stands, so it must include the counts of earlier ones.
        let known = self.usage.take().unwrap_or(usage::NONE);
        let merged = usage::merged(&known, read);
        if merged != known {
            self.is_started = true;
            events.push(Event::Usage(merged.clone()));
        }
        self.usage = Some(merged);
    }
}

impl TextPosition {
    fn enter(&mut self, block: u32) {
        if self.block != Some(block) {
            self.block = Some(block);
            self.characters_before_block += self.characters_in_block;
            self.characters_in_block = 0;
        }
    }

    /// Returns the span in the current block, unless it lies outside the block's content so far. Servers without
    /// spans write an empty one.
    fn span(&self, start: Option<f64>, end: Option<f64>) -> Option<Span> {
        // `as` saturates, and turns NaN into 0.
        let in_block = |index: f64| (index as usize).checked_sub(self.characters_before_block);
        let (start, end) = (in_block(start?)?, in_block(end?)?);
        (start < end && end <= self.characters_in_block).then_some(Span {
            start: u32::try_from(start).ok()?,
            end: u32::try_from(end).ok()?,
        })
    }
}

/// Maps a finish reason. Servers use reasons of their own, or those of the models behind them.
fn finish_reason_of(reason: String) -> Result<FinishReason, Failure> {
    Ok(match reason.to_ascii_lowercase().as_str() {
        "stop" | "stop_sequence" | "end_turn" | "eos" | "eos_token" | "end" | "end_of_sequence"
        | "complete" | "completed" | "done" | "success" => FinishReason::Stop,
        "length" | "max_tokens" | "max_length" | "max_output_tokens" | "model_length" => {
            FinishReason::Length
        }
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => FinishReason::ToolCalls,
        "content_filter" | "content_filtered" | "safety" | "sensitive" => {
            FinishReason::ContentFilter
        }
        "refusal" => FinishReason::Refusal,
        "pause_turn" => FinishReason::PauseTurn,
        "model_context_window_exceeded" => FinishReason::ContextWindow,
        "malformed_function_call" | "malformed_tool_call" => FinishReason::MalformedCall,
        // Reasons of OpenRouter, DeepSeek and Z.ai for a failed upstream.
        "error" | "insufficient_system_resource" | "network_error" => {
            return Err(Failure::unavailable(format!("finish_reason {reason}")));
        }
        _ => FinishReason::Other(reason),
    })
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Wraps an error as in an error response.
fn envelope(error: &RawValue) -> String {
    format!(r#"{{"error":{error}}}"#)
}

fn unreadable(error: &serde_json::Error) -> Failure {
    response::unreadable("a chat completion", error)
}
