//! A response in this dialect, non-streamed or as events, as the contract's events.
//!
//! The two differ only in form: a block of a non-streamed response is read as a block with one delta. A stream has a start only for
//! calls: other blocks begin with their first delta.

mod usage;
mod wire;

use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::aws;
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, CallKind, Citation, FinishReason, Fragment, Opaque, ToolCallStart};
use weir_sdk::custom;
use weir_sdk::response::{self, AnswerReader, ErrorResponse};
use weir_sdk::sse::SseEvent;
use weir_sdk::text;

use wire::{
    BlockDelta, CitationDelta, ContentBlock, ConverseResponse, ReasoningDelta, StreamEvent,
};

/// Maximum open blocks. Every delta searches all of them; the upstream writes one after the other.
const MAX_OPEN_BLOCKS: usize = 64;

/// Maximum size of a call's free text, in bytes.
const MAX_INPUT_BYTES: usize = 4 * 1024 * 1024;

/// The parsed part of the response.
#[derive(Debug)]
pub struct ChatResponse {
    /// The names of the tools that take free text.
    custom_tools: Vec<String>,
    blocks: Blocks,
    /// The open blocks, by the upstream's number.
    open_blocks: Vec<(u64, OpenBlock)>,
    finish: Option<FinishReason>,
    concluded: bool,
}

#[derive(Debug)]
struct OpenBlock {
    /// Its number among the events.
    index: u32,
    state: BlockState,
}

#[derive(Debug)]
enum BlockState {
    Text,
    Reasoning,
    /// A function is called with an empty object unless deltas write another.
    Call {
        has_deltas: bool,
    },
    /// Free text, which is extracted from a function's input once that is complete.
    CustomCall {
        input: String,
    },
}

impl ChatResponse {
    pub(super) fn new(custom_tools: Vec<String>) -> Self {
        Self {
            custom_tools,
            blocks: Blocks::default(),
            open_blocks: Vec::new(),
            finish: None,
            concluded: false,
        }
    }
}

impl AnswerReader for ChatResponse {
    fn read_event(&mut self, event: SseEvent<'_>, events: &mut Vec<Event>) -> Result<(), Failure> {
        let is_known = matches!(
            event.name,
            "contentBlockStart"
                | "contentBlockDelta"
                | "contentBlockStop"
                | "messageStop"
                | "metadata"
        );
        // `messageStart` has only the role; newer events are skipped.
        if !is_known || self.concluded {
            return Ok(());
        }
        let stream_event: StreamEvent<'_> =
            serde_json::from_str(event.data).map_err(|error| unreadable(&error))?;
        let number = stream_event.content_block_index.unwrap_or_default();
        match event.name {
            "contentBlockStart" => {
                if let Some(call) = stream_event.start.and_then(|start| start.tool_use) {
                    self.begin_call(number, call.tool_use_id, call.name, events)?;
                }
                Ok(())
            }
            "contentBlockDelta" => match stream_event.delta {
                Some(delta) => self.add_delta(number, delta, events),
                None => Ok(()),
            },
            "contentBlockStop" => self.end(|known| known == number, events),
            "messageStop" => {
                self.finish = Some(finish_reason(stream_event.stop_reason.unwrap_or_default()));
                Ok(())
            }
            // The metadata.
            _ => {
                usage::push(stream_event.usage, events);
                Ok(())
            }
        }
    }

    fn read_whole(&mut self, body: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        let body = &text::lossy(body);
        let response: ConverseResponse<'_> =
            serde_json::from_str(body).map_err(|error| unreadable(&error))?;
        let message = response.output.and_then(|output| output.message);
        let content = message.and_then(|message| message.content);
        let Some(content) = content else {
            return Err(Failure::malformed("the answer has no message"));
        };
        for (number, block) in (0..).zip(content) {
            self.read_block(number, block, events)?;
            self.end(|known| known == number, events)?;
        }
        usage::push(response.usage, events);
        // Every response gives a reason for its end.
        self.finish = Some(finish_reason(response.stop_reason.unwrap_or_default()));
        Ok(())
    }

    fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        if self.concluded {
            return Ok(());
        }
        let finish = self.finish.take().ok_or_else(response::cut)?;
        self.end(|_| true, events)?;
        self.blocks.end_run(events);
        self.concluded = true;
        events.push(Event::Finish(finish));
        Ok(())
    }

    fn failure_of_response(response: &ErrorResponse) -> Failure {
        let ErrorResponse { head, .. } = response;
        aws::failure_of_response(head.status, &head.headers, &response.text())
    }
}

impl ChatResponse {
    /// Reads a block of a non-streamed response.
    fn read_block(
        &mut self,
        number: u64,
        raw: &RawValue,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let block: ContentBlock<'_> =
            serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
        if let Some(call) = block.tool_use {
            let input = call.input.map_or("{}", RawValue::get).to_owned();
            self.begin_call(number, call.tool_use_id, call.name, events)?;
            return self.add_input(number, &input, events);
        }
        if let Some(text) = block.text {
            return self.push_text(number, &text, events);
        }
        if let Some(reasoning) = block.reasoning_content {
            let reasoning_text = reasoning.reasoning_text.unwrap_or_default();
            return self.push_reasoning(
                number,
                ReasoningDelta {
                    text: reasoning_text.text,
                    signature: reasoning_text.signature,
                    redacted_content: reasoning.redacted_content,
                },
                events,
            );
        }
        if let Some(cited) = block.citations_content {
            for text in cited.content.into_iter().flatten() {
                self.push_text(number, &text.text.unwrap_or_default(), events)?;
            }
            for citation in cited.citations.into_iter().flatten() {
                self.push_citation(number, citation, events)?;
            }
            return Ok(());
        }
        // A block that the vocabulary lacks; its only field is its kind.
        let kind = block.other.into_keys().next();
        if let Some(kind) = kind {
            let json = raw.get().to_owned();
            self.blocks.opaque(Opaque { kind, json }, events);
        }
        Ok(())
    }

    fn add_delta(
        &mut self,
        number: u64,
        delta: BlockDelta<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if let Some(text) = delta.text {
            self.push_text(number, &text, events)?;
        }
        if let Some(reasoning) = delta.reasoning_content {
            self.push_reasoning(number, reasoning, events)?;
        }
        if let Some(citation) = delta.citation {
            self.push_citation(number, citation, events)?;
        }
        match delta.tool_use.and_then(|call| call.input) {
            Some(input) => self.add_input(number, &input, events),
            None => Ok(()),
        }
    }

    fn begin_call(
        &mut self,
        number: u64,
        id: Option<String>,
        name: Option<String>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Err(Failure::malformed("a tool call without a name"));
        };
        let id = id.unwrap_or_default();
        let kind = custom::kind_of(&self.custom_tools, &name);
        let state = match kind {
            CallKind::Function => BlockState::Call { has_deltas: false },
            CallKind::Custom => BlockState::CustomCall {
                input: String::new(),
            },
        };
        let block = Block::ToolCall(ToolCallStart { id, name, kind });
        self.begin(number, block, state, events)?;
        Ok(())
    }

    fn add_input(
        &mut self,
        number: u64,
        piece: &str,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if piece.is_empty() {
            return Ok(());
        }
        let block = self
            .open_blocks
            .iter_mut()
            .find(|(known, _)| *known == number);
        match block {
            Some((
                _,
                OpenBlock {
                    index,
                    state: BlockState::Call { has_deltas },
                },
            )) => {
                *has_deltas = true;
                let (index, text) = (*index, piece.to_owned());
                events.push(Event::Fragment(Fragment { index, text }));
                Ok(())
            }
            Some((
                _,
                OpenBlock {
                    state: BlockState::CustomCall { input },
                    ..
                },
            )) => {
                if input.len() + piece.len() > MAX_INPUT_BYTES {
                    return Err(Failure::malformed(format!(
                        "a call's input exceeds {MAX_INPUT_BYTES} bytes"
                    )));
                }
                input.push_str(piece);
                Ok(())
            }
            _ => Err(Failure::malformed("the input of a call that is not open")),
        }
    }

    fn push_text(
        &mut self,
        number: u64,
        text: &str,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if !text.is_empty() {
            let index = self.text_index(number, events)?;
            let text = text.to_owned();
            events.push(Event::Fragment(Fragment { index, text }));
        }
        Ok(())
    }

    fn push_reasoning(
        &mut self,
        number: u64,
        delta: ReasoningDelta,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let pieces = [
            (delta.text, Event::Fragment as fn(Fragment) -> Event),
            (delta.signature, Event::Signature),
            (delta.redacted_content, Event::Sealed),
        ];
        for (piece, event) in pieces {
            if let Some(text) = piece.filter(|text| !text.is_empty()) {
                let is_reasoning = |state: &BlockState| matches!(state, BlockState::Reasoning);
                let index = match self.open_index(number, is_reasoning, events)? {
                    Some(index) => index,
                    None => self.begin(number, Block::Reasoning, BlockState::Reasoning, events)?,
                };
                events.push(event(Fragment { index, text }));
            }
        }
        Ok(())
    }

    /// Adds a source. Its text block is open, or begins with it.
    fn push_citation(
        &mut self,
        number: u64,
        raw: &RawValue,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        // A source is an addition to the response: an unreadable one must not cost the rest.
        let Ok(delta) = serde_json::from_str::<CitationDelta>(raw.get()) else {
            return Ok(());
        };
        let index = self.text_index(number, events)?;
        let url = delta.location.and_then(|location| location.web?.url);
        let cited: String = delta
            .source_content
            .into_iter()
            .flatten()
            .filter_map(|content| content.text)
            .collect();
        events.push(Event::Citation(Citation {
            index,
            source: url.or(delta.source),
            title: delta.title,
            cited_text: (!cited.is_empty()).then_some(cited),
            // The upstream cites with a complete block.
            span: None,
            json: Some(raw.get().to_owned()),
        }));
        Ok(())
    }

    /// Returns the index of the open text of this number, begun if there is none.
    fn text_index(&mut self, number: u64, events: &mut Vec<Event>) -> Result<u32, Failure> {
        match self.open_index(number, |state| matches!(state, BlockState::Text), events)? {
            Some(index) => Ok(index),
            None => self.begin(number, Block::Text, BlockState::Text, events),
        }
    }

    /// Returns the index of the open block of this number and kind. A block of another kind ends.
    fn open_index(
        &mut self,
        number: u64,
        is_expected: impl Fn(&BlockState) -> bool,
        events: &mut Vec<Event>,
    ) -> Result<Option<u32>, Failure> {
        match self.open_blocks.iter().find(|(known, _)| *known == number) {
            Some((_, block)) if is_expected(&block.state) => Ok(Some(block.index)),
            Some(_) => {
                self.end(|known| known == number, events)?;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    fn begin(
        &mut self,
        number: u64,
        block: Block,
        state: BlockState,
        events: &mut Vec<Event>,
    ) -> Result<u32, Failure> {
        if self.open_blocks.len() == MAX_OPEN_BLOCKS {
            return Err(Failure::malformed(format!(
                "the answer has more than {MAX_OPEN_BLOCKS} blocks open"
            )));
        }
        let index = self.blocks.begin(block, events);
        self.open_blocks.push((number, OpenBlock { index, state }));
        Ok(index)
    }

    fn end(
        &mut self,
        should_end: impl Fn(u64) -> bool,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        while let Some(at) = self
            .open_blocks
            .iter()
            .position(|(number, _)| should_end(*number))
        {
            let (_, OpenBlock { index, state }) = self.open_blocks.remove(at);
            let text = match state {
                BlockState::Call { has_deltas: false } => Some("{}".to_owned()),
                BlockState::CustomCall { input } => Some(custom::input(input)),
                BlockState::Text | BlockState::Reasoning | BlockState::Call { .. } => None,
            };
            if let Some(text) = text {
                events.push(Event::Fragment(Fragment { index, text }));
            }
            events.push(Event::BlockEnd(index));
        }
        Ok(())
    }
}

fn finish_reason(reason: String) -> FinishReason {
    match reason.as_str() {
        // The upstream does not tell the stop sequence.
        "" | "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" => FinishReason::Length,
        "guardrail_intervened" | "content_filtered" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        "malformed_tool_use" => FinishReason::MalformedCall,
        "model_context_window_exceeded" => FinishReason::ContextWindow,
        _ => FinishReason::Other(reason),
    }
}

fn unreadable(error: &serde_json::Error) -> Failure {
    response::unreadable("a message", error)
}
