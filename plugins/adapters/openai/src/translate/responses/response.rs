//! A response of the Responses API, non-streamed or in events, as the contract's events.
//!
//! A response is a list of items. A text, a refusal, the reasoning of an item and a call each become a block. The final
//! event repeats the whole response: only items whose end did not arrive are read from there.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{
    Block, CallKind, Citation, FinishReason, Fragment, Opaque, Span, Started, ToolCallStart,
};
use weir_sdk::messages::MESSAGE_MARK;
use weir_sdk::response::{self, or_absent};
use weir_sdk::sse::SseEvent;
use weir_sdk::text;

use crate::translate::chat_response::usage;
use crate::translate::errors;

/// Maximum items of a response, and parts of an item.
const MAX_ITEMS: u64 = 4_096;

/// Separates the parts of a summary of reasoning.
const PARAGRAPH: &str = "\n\n";

/// The parsed part of the response.
#[derive(Debug, Default)]
pub struct ResponsesApiResponse {
    /// Whether the client has messages, too: then each that follows another one, or has a phase, begins with a mark.
    marks_messages: bool,
    /// The item of the last block, if it is a message.
    last_message: Option<u64>,
    is_started: bool,
    blocks: Blocks,
    items: BTreeMap<u64, ItemBlocks>,
    has_calls: bool,
    has_refused: bool,
    finish: Option<FinishReason>,
    is_concluded: bool,
}

/// The blocks of an item.
#[derive(Debug, Default)]
struct ItemBlocks {
    call: Option<CallBlock>,
    reasoning: Option<ReasoningBlock>,
    /// Texts and refusals by the number of their part, with their characters.
    parts: BTreeMap<u64, (u32, usize)>,
    /// The provider's word for the purpose of the message.
    phase: Option<String>,
    /// The item's end has arrived.
    has_ended: bool,
}

#[derive(Debug)]
struct CallBlock {
    index: u32,
    kind: CallKind,
    has_input: bool,
}

#[derive(Debug)]
struct ReasoningBlock {
    index: u32,
    /// Whether the text is a summary, or else the reasoning itself; `None` before any text.
    is_summary: Option<bool>,
    part: u64,
}

/// An event of any type: fields that are of another type in some events are absent there.
#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    output_index: Option<u64>,
    #[serde(default, deserialize_with = "or_absent")]
    content_index: Option<u64>,
    #[serde(default, deserialize_with = "or_absent")]
    summary_index: Option<u64>,
    #[serde(default, deserialize_with = "or_absent")]
    delta: Option<String>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    annotation: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Response<'a> {
    id: Option<String>,
    model: Option<String>,
    status: Option<String>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    incomplete_details: Option<IncompleteDetails>,
    #[serde(borrow)]
    output: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

/// An item of any type, likewise.
#[derive(Deserialize)]
struct OutputItem<'a> {
    #[serde(rename = "type", default, deserialize_with = "or_absent")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    call_id: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    name: Option<String>,
    /// JSON in a string, or an object.
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "or_absent")]
    input: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    encrypted_content: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    phase: Option<String>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    summary: Option<Vec<OutputPart<'a>>>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    content: Option<Vec<OutputPart<'a>>>,
}

#[derive(Deserialize)]
struct OutputPart<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    text: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    refusal: Option<String>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    annotations: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct UrlCitation {
    url: String,
    title: Option<String>,
    start_index: Option<u32>,
    end_index: Option<u32>,
}

impl ResponsesApiResponse {
    /// Begins to read a response.
    pub(in crate::translate) fn new(client_speaks_it: bool) -> Self {
        Self {
            marks_messages: client_speaks_it,
            ..Self::default()
        }
    }

    pub(in crate::translate) fn read_event(
        &mut self,
        event: SseEvent<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let data = event.data.trim();
        // Some servers write the error as a text.
        if event.name == "error" && !data.is_empty() {
            return Err(errors::from_error(data));
        }
        if self.is_concluded || !data.starts_with('{') {
            return Ok(());
        }
        let name = event.name;
        let event: StreamEvent<'_> =
            serde_json::from_str(data).map_err(|error| unreadable(&error))?;
        if event.kind.is_none() && event.error.is_some_and(errors::is_error) {
            return Err(errors::from_error(data));
        }
        let number = event.output_index.unwrap_or_default();
        let delta = event.delta.unwrap_or_default();
        match event.kind.as_deref().unwrap_or(name) {
            "response.created" | "response.in_progress" => {
                if let Some(response) = event.response {
                    self.start(&read(response)?, events);
                }
            }
            "response.output_item.added" => {
                if let Some(item) = event.item {
                    let item = read(item)?;
                    self.begin_call(number, &item, events)?;
                    self.item(number)?.phase = item.phase;
                }
            }
            "response.output_text.delta" => {
                self.push_text(number, event.content_index, Block::Text, delta, events)?;
            }
            "response.refusal.delta" => {
                self.push_text(number, event.content_index, Block::Refusal, delta, events)?;
            }
            "response.reasoning_summary_text.delta" => {
                self.push_reasoning(number, event.summary_index, true, delta, events)?;
            }
            "response.reasoning_text.delta" => {
                self.push_reasoning(number, event.content_index, false, delta, events)?;
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.push_input(number, delta, events)?;
            }
            "response.output_text.annotation.added" => {
                if let Some(annotation) = event.annotation {
                    self.push_citation(number, event.content_index, annotation, events)?;
                }
            }
            "response.output_item.done" => {
                if let Some(item) = event.item {
                    self.end_item(number, item, events)?;
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                let Some(response) = event.response else {
                    return Err(Failure::malformed("the last event has no response"));
                };
                self.read_response(response, events)?;
                return self.conclude(events);
            }
            "error" => return Err(errors::from_error(data)),
            _ => {}
        }
        Ok(())
    }

    pub(in crate::translate) fn read_whole(
        &mut self,
        body: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let body = text::lossy(body);
        let raw = serde_json::from_str(&body).map_err(|error| unreadable(&error))?;
        self.read_response(raw, events)
    }

    /// Ends all open blocks, then emits the finish event. Does so once.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`](weir_sdk::adapter::FailureKind::Malformed) for a truncated stream.
    pub(in crate::translate) fn conclude(
        &mut self,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if self.is_concluded {
            return Ok(());
        }
        let finish = self.finish.take().ok_or_else(response::cut)?;
        self.is_concluded = true;
        for item in self.items.values_mut() {
            item.end(events);
        }
        events.push(Event::Finish(match finish {
            FinishReason::Stop if self.has_calls => FinishReason::ToolCalls,
            FinishReason::Stop if self.has_refused => FinishReason::Refusal,
            finish => finish,
        }));
        Ok(())
    }

    /// Reads a whole response: its remaining items, its usage and the reason for its end.
    fn read_response(&mut self, raw: &RawValue, events: &mut Vec<Event>) -> Result<(), Failure> {
        let response: Response<'_> = read(raw)?;
        // An object of another API has usage, too, and must not be charged.
        let is_response = response.output.is_some()
            || response.status.is_some()
            || response.error.is_some()
            || !self.items.is_empty();
        if !is_response {
            return Err(Failure::malformed("the answer has no output"));
        }
        self.start(&response, events);
        for (number, item) in response.output.into_iter().flatten().enumerate() {
            self.end_item(number as u64, item, events)?;
        }
        if let Some(usage) = response.usage.and_then(usage::read) {
            events.push(Event::Usage(usage));
        }
        if let Some(error) = response.error.filter(|error| error.get() != "null") {
            return Err(errors::from_error(&format!(r#"{{"error":{error}}}"#)));
        }
        let reason = response
            .incomplete_details
            .and_then(|details| details.reason);
        let finish = match (response.status.as_deref(), reason) {
            (_, Some(reason)) if reason == "max_output_tokens" => FinishReason::Length,
            (_, Some(reason)) if reason == "content_filter" => FinishReason::ContentFilter,
            (_, Some(reason)) => FinishReason::Other(reason),
            (Some("completed") | None, None) => FinishReason::Stop,
            (Some(status), None) => {
                return Err(Failure::unavailable(format!("the response is {status}")));
            }
        };
        self.finish = Some(finish);
        Ok(())
    }

    /// Emits the upstream's names once.
    fn start(&mut self, response: &Response<'_>, events: &mut Vec<Event>) {
        if !self.is_started && (response.id.is_some() || response.model.is_some()) {
            self.is_started = true;
            events.push(Event::Started(Started {
                id: response.id.clone(),
                model: response.model.clone(),
            }));
        }
    }

    /// Reads the final state of an item, which has all that did not arrive in pieces.
    fn end_item(
        &mut self,
        number: u64,
        raw: &RawValue,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let item: OutputItem<'_> = read(raw)?;
        if self.item(number)?.has_ended {
            return Ok(());
        }
        match item.kind.as_deref().unwrap_or_default() {
            "message" => {
                self.item(number)?.phase = item.phase;
                for (part, content) in item.content.into_iter().flatten().enumerate() {
                    let part = part as u64;
                    let is_new = !self.item(number)?.parts.contains_key(&part);
                    let (block, text) = match content.kind.as_deref() {
                        Some("refusal") => (Block::Refusal, content.refusal),
                        _ => (Block::Text, content.text),
                    };
                    if is_new {
                        let text = text.unwrap_or_default();
                        self.push_text(number, Some(part), block, text, events)?;
                        for annotation in content.annotations.into_iter().flatten() {
                            self.push_citation(number, Some(part), annotation, events)?;
                        }
                    }
                }
            }
            "reasoning" => {
                let is_new = self.item(number)?.reasoning.is_none();
                let texts = |parts: Option<Vec<OutputPart<'_>>>| {
                    let texts = parts.into_iter().flatten().filter_map(|part| part.text);
                    let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
                    texts.join(PARAGRAPH)
                };
                let summary = texts(item.summary);
                let (is_summary, text) = match summary.is_empty() {
                    true => (false, texts(item.content)),
                    false => (true, summary),
                };
                if is_new {
                    self.push_reasoning(number, None, is_summary, text, events)?;
                }
                if let Some(sealed) = item.encrypted_content.filter(|text| !text.is_empty()) {
                    let index = self.begin_reasoning(number, events)?.index;
                    let text = sealed;
                    events.push(Event::Sealed(Fragment { index, text }));
                }
            }
            "function_call" | "custom_tool_call" => {
                self.begin_call(number, &item, events)?;
                let arguments = item.arguments.map(arguments_text);
                let input = arguments.or(item.input).unwrap_or_default();
                let call = self.item(number)?.call.as_ref();
                if call.is_some_and(|call| !call.has_input) {
                    self.push_input(number, input, events)?;
                }
            }
            _ => {}
        }
        self.item(number)?.end(events);
        Ok(())
    }

    fn item(&mut self, number: u64) -> Result<&mut ItemBlocks, Failure> {
        if number >= MAX_ITEMS {
            let text = format!("the answer has more than {MAX_ITEMS} items");
            return Err(Failure::malformed(text));
        }
        Ok(self.items.entry(number).or_default())
    }

    /// Begins the block of an item that is a call, unless it has begun.
    fn begin_call(
        &mut self,
        number: u64,
        item: &OutputItem<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let kind = match item.kind.as_deref().unwrap_or_default() {
            "function_call" => CallKind::Function,
            "custom_tool_call" => CallKind::Custom,
            _ => return Ok(()),
        };
        if self.item(number)?.call.is_some() {
            return Ok(());
        }
        let (Some(id), Some(name)) = (item.call_id.clone(), item.name.clone()) else {
            return Err(Failure::malformed("a tool call without a name or an id"));
        };
        self.has_calls = true;
        let start = ToolCallStart { id, name, kind };
        let index = self.blocks.begin(Block::ToolCall(start), events);
        self.last_message = None;
        self.item(number)?.call = Some(CallBlock {
            index,
            kind,
            has_input: false,
        });
        Ok(())
    }

    fn push_input(
        &mut self,
        number: u64,
        text: String,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let item = self.item(number)?;
        let Some(call) = item.call.as_mut().filter(|_| !item.has_ended) else {
            return Err(Failure::malformed("arguments outside a call"));
        };
        if !text.is_empty() {
            call.has_input = true;
            let index = call.index;
            events.push(Event::Fragment(Fragment { index, text }));
        }
        Ok(())
    }

    fn push_text(
        &mut self,
        number: u64,
        part: Option<u64>,
        block: Block,
        text: String,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let part = part.unwrap_or_default();
        if text.is_empty() || self.item(number)?.has_ended {
            return Ok(());
        }
        self.has_refused |= block == Block::Refusal;
        let known = self.item(number)?.parts.get(&part).copied();
        let (index, characters) = match known {
            Some(known) => known,
            None if part >= MAX_ITEMS => {
                let text = format!("an item has more than {MAX_ITEMS} parts");
                return Err(Failure::malformed(text));
            }
            None => {
                self.begin_message(number, events)?;
                (self.blocks.begin(block, events), 0)
            }
        };
        let characters = characters + text.chars().count();
        self.item(number)?.parts.insert(part, (index, characters));
        events.push(Event::Fragment(Fragment { index, text }));
        Ok(())
    }

    /// Marks the beginning of a message, if a client of this API could not tell it from the one before.
    fn begin_message(&mut self, number: u64, events: &mut Vec<Event>) -> Result<(), Failure> {
        let last = self.last_message.replace(number);
        let item = self.item(number)?;
        let is_first_part = item.parts.is_empty();
        let phase = item.phase.take();
        let is_marked = phase.is_some() || last.is_some_and(|last| last != number);
        if self.marks_messages && is_first_part && is_marked {
            let kind = MESSAGE_MARK.to_owned();
            let json = match phase {
                Some(phase) => json!({ "phase": phase }),
                None => json!({}),
            };
            let json = json.to_string();
            self.blocks.opaque(Opaque { kind, json }, events);
        }
        Ok(())
    }

    /// Adds text to an item's reasoning: its summary or its own text, whichever arrives first.
    fn push_reasoning(
        &mut self,
        number: u64,
        part: Option<u64>,
        is_summary: bool,
        text: String,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if text.is_empty() || self.item(number)?.has_ended {
            return Ok(());
        }
        let part = part.unwrap_or_default();
        let reasoning = self.begin_reasoning(number, events)?;
        let index = reasoning.index;
        match reasoning.is_summary {
            None => {}
            Some(known) if known != is_summary => return Ok(()),
            Some(_) if reasoning.part != part => {
                let text = PARAGRAPH.to_owned();
                events.push(Event::Fragment(Fragment { index, text }));
            }
            Some(_) => {}
        }
        reasoning.is_summary = Some(is_summary);
        reasoning.part = part;
        events.push(Event::Fragment(Fragment { index, text }));
        Ok(())
    }

    fn begin_reasoning(
        &mut self,
        number: u64,
        events: &mut Vec<Event>,
    ) -> Result<&mut ReasoningBlock, Failure> {
        let index = match &self.item(number)?.reasoning {
            Some(known) => known.index,
            None => {
                self.last_message = None;
                self.blocks.begin(Block::Reasoning, events)
            }
        };
        let item = self.item(number)?;
        Ok(item.reasoning.get_or_insert(ReasoningBlock {
            index,
            is_summary: None,
            part: 0,
        }))
    }

    /// Adds a source to a text. Citations of files, and of texts that have not begun, have no place.
    fn push_citation(
        &mut self,
        number: u64,
        part: Option<u64>,
        raw: &RawValue,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let item = self.item(number)?;
        let known = item.parts.get(&part.unwrap_or_default()).copied();
        let (Some((index, characters)), false) = (known, item.has_ended) else {
            return Ok(());
        };
        let Ok(citation) = serde_json::from_str::<UrlCitation>(raw.get()) else {
            return Ok(());
        };
        let span = citation.start_index.zip(citation.end_index);
        let span = span.filter(|(start, end)| start < end && *end as usize <= characters);
        events.push(Event::Citation(Citation {
            index,
            source: Some(citation.url),
            title: citation.title,
            cited_text: None,
            span: span.map(|(start, end)| Span { start, end }),
            // Only clients of Chat Completions get it, and there it has another form.
            json: None,
        }));
        Ok(())
    }
}

impl ItemBlocks {
    /// Ends the item's blocks, once. A function without arguments gets an empty object: consumers parse its input.
    fn end(&mut self, events: &mut Vec<Event>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        if let Some(call) = &self.call {
            let index = call.index;
            if !call.has_input && call.kind == CallKind::Function {
                let text = "{}".to_owned();
                events.push(Event::Fragment(Fragment { index, text }));
            }
            events.push(Event::BlockEnd(index));
        }
        let reasoning = self.reasoning.iter().map(|reasoning| reasoning.index);
        let parts = self.parts.values().map(|(index, _)| *index);
        events.extend(reasoning.chain(parts).map(Event::BlockEnd));
    }
}

/// The arguments of a call: the content of a string, or an object as it is.
fn arguments_text(raw: &RawValue) -> String {
    let text = serde_json::from_str(raw.get());
    text.unwrap_or_else(|_| match raw.get() {
        "null" => String::new(),
        other => other.to_owned(),
    })
}

fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, Failure> {
    serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> Failure {
    response::unreadable("a response", error)
}
