//! A response in this dialect, non-streamed or in lines, as the contract's events.
//!
//! The two have one form: a stream's lines are responses that add up. Calls arrive complete.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Deserializer;
use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, CallKind, FinishReason, Fragment, Started, ToolCallStart, Usage};
use weir_sdk::custom;
use weir_sdk::response::{self, AnswerReader, ErrorResponse, StreamFraming, or_absent};
use weir_sdk::sse::SseEvent;
use weir_sdk::text;

use super::errors;

/// The parsed part of the response.
#[derive(Debug)]
pub struct ChatResponse {
    /// The names of the tools that take free text.
    custom_tools: Vec<String>,
    is_started: bool,
    /// The response's start time in digits, part of generated ids: the server gives none.
    created_at_digits: String,
    blocks: Blocks,
    calls: usize,
    finish: Option<FinishReason>,
    concluded: bool,
}

/// A response, or a line of one.
#[derive(Deserialize)]
struct ResponseLine<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "or_absent")]
    model: Option<String>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    created_at: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    message: Option<Message<'a>>,
    /// The content of a text with a suffix.
    #[serde(default, deserialize_with = "or_absent")]
    response: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    done: Option<bool>,
    #[serde(default, deserialize_with = "or_absent")]
    done_reason: Option<String>,
    #[serde(borrow)]
    prompt_eval_count: Option<&'a RawValue>,
    #[serde(borrow)]
    eval_count: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    content: Option<String>,
    #[serde(default, deserialize_with = "or_absent")]
    thinking: Option<String>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    tool_calls: Option<Vec<WireToolCall<'a>>>,
}

#[derive(Deserialize)]
struct WireToolCall<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    id: Option<String>,
    #[serde(borrow, default, deserialize_with = "or_absent")]
    function: Option<CalledFunction<'a>>,
}

#[derive(Deserialize)]
struct CalledFunction<'a> {
    #[serde(default, deserialize_with = "or_absent")]
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl ChatResponse {
    pub(super) fn new(custom_tools: Vec<String>) -> Self {
        Self {
            custom_tools,
            is_started: false,
            created_at_digits: String::new(),
            blocks: Blocks::default(),
            calls: 0,
            finish: None,
            concluded: false,
        }
    }
}

impl AnswerReader for ChatResponse {
    const FRAMING: StreamFraming = StreamFraming::Lines;

    fn read_event(&mut self, event: SseEvent<'_>, events: &mut Vec<Event>) -> Result<(), Failure> {
        self.read(event.data, events)
    }

    fn read_whole(&mut self, body: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        self.read(&text::lossy(body), events)
    }

    fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        if self.concluded {
            return Ok(());
        }
        let finish = self.finish.take().ok_or_else(response::cut)?;
        self.blocks.end_run(events);
        self.concluded = true;
        events.push(Event::Finish(match finish {
            // The upstream has no reason of its own for this.
            FinishReason::Stop if self.calls > 0 => FinishReason::ToolCalls,
            finish => finish,
        }));
        Ok(())
    }

    fn failure_of_response(response: &ErrorResponse) -> Failure {
        errors::from_response(response)
    }
}

impl ChatResponse {
    /// Reads a line of a stream, or all of an answer, which may be lines too.
    fn read(&mut self, json: &str, events: &mut Vec<Event>) -> Result<(), Failure> {
        for raw in Deserializer::from_str(json).into_iter::<&RawValue>() {
            let raw = raw.map_err(|error| unreadable(&error))?;
            let line: ResponseLine<'_> =
                serde_json::from_str(raw.get()).map_err(|error| unreadable(&error))?;
            if line.error.is_some() {
                return Err(errors::from_error(raw.get()));
            }
            self.read_line(line, events)?;
        }
        Ok(())
    }

    fn read_line(
        &mut self,
        line: ResponseLine<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.is_started, true) {
            let created_at = line.created_at.unwrap_or_default();
            self.created_at_digits = created_at
                .chars()
                .filter(char::is_ascii_digit)
                .take(32)
                .collect();
            if line.model.is_some() {
                let (id, model) = (None, line.model);
                events.push(Event::Started(Started { id, model }));
            }
        }
        if let Some(message) = line.message {
            for (block, text) in [
                (Block::Reasoning, message.thinking),
                (Block::Text, message.content),
            ] {
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    self.blocks.say(block, text, events);
                }
            }
            for call in message.tool_calls.into_iter().flatten() {
                self.read_call(call, events)?;
            }
        }
        if let Some(text) = line.response.filter(|text| !text.is_empty()) {
            self.blocks.say(Block::Text, text, events);
        }
        if line.done == Some(true) {
            let usage = Usage {
                input_tokens: count(line.prompt_eval_count),
                cache_read_tokens: None,
                cache_write_short_tokens: None,
                cache_write_long_tokens: None,
                output_tokens: count(line.eval_count),
                reasoning_tokens: None,
                images: None,
                other: Vec::new(),
            };
            if usage.input_tokens.is_some() || usage.output_tokens.is_some() {
                events.push(Event::Usage(usage));
            }
            let reason = line.done_reason.unwrap_or_default();
            self.finish = Some(match reason.as_str() {
                "" | "stop" | "load" | "unload" => FinishReason::Stop,
                "length" => FinishReason::Length,
                "tool_calls" => FinishReason::ToolCalls,
                _ => FinishReason::Other(reason),
            });
        }
        Ok(())
    }

    fn read_call(
        &mut self,
        call: WireToolCall<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let Some(function) = call.function else {
            return Ok(());
        };
        let Some(name) = function.name.filter(|name| !name.is_empty()) else {
            return Err(Failure::malformed("a tool call without a name"));
        };
        let generated = || format!("call_{}_{}", self.created_at_digits, self.calls);
        let id = call
            .id
            .filter(|id| !id.is_empty())
            .unwrap_or_else(generated);
        self.calls += 1;
        let arguments = match function.arguments.map_or("null", RawValue::get) {
            "null" => "{}".to_owned(),
            // A string that contains the object.
            text if text.starts_with('"') => {
                let text: String =
                    serde_json::from_str(text).map_err(|error| unreadable(&error))?;
                if text.trim().is_empty() {
                    "{}".to_owned()
                } else {
                    text
                }
            }
            object => object.to_owned(),
        };
        let kind = custom::kind_of(&self.custom_tools, &name);
        let text = match kind {
            CallKind::Function => arguments,
            CallKind::Custom => custom::input(arguments),
        };
        let start = ToolCallStart { id, name, kind };
        let index = self.blocks.begin(Block::ToolCall(start), events);
        events.push(Event::Fragment(Fragment { index, text }));
        events.push(Event::BlockEnd(index));
        Ok(())
    }
}

/// Parses a number that can be a count: not negative, fractional or huge, and not a text.
fn count(raw: Option<&RawValue>) -> Option<u64> {
    raw?.get().parse().ok()
}

fn unreadable(error: &serde_json::Error) -> Failure {
    response::unreadable("a chat's answer", error)
}
