//! A response in this dialect, non-streamed or as events, as the contract's events.
//!
//! The two differ only in form: a block of a non-streamed response is read as a block that begins with all of its
//! content and ends.

mod blocks;
mod usage;
mod wire;

use serde::Serialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::aws;
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{Block, FinishReason, Opaque, Started};
use weir_sdk::response::{self, AnswerReader, ErrorResponse};
use weir_sdk::sse::SseEvent;
use weir_sdk::text;

use super::errors;
use blocks::OpenBlock;
use usage::UsageTracker;
use wire::{Message, MessageDelta, StreamEvent};

/// Maximum open blocks. Every delta searches all of them; the upstream writes one after the other.
const MAX_OPEN_BLOCKS: usize = 64;

/// Bedrock's message around an event.
const CHUNK: &str = "chunk";

/// The kind of the opaque block with fields of the message itself, for clients of this dialect.
const MESSAGE_FIELDS: &str = "message_delta";

/// The parsed part of the response.
#[derive(Debug)]
pub struct ChatResponse {
    /// The names of the tools that take free text.
    custom_tools: Vec<String>,
    /// Whether the client speaks this dialect.
    client_speaks_it: bool,
    fields: MessageFields,
    is_started: bool,
    blocks: Blocks,
    /// The open blocks, by the upstream's number.
    open_blocks: Vec<(u64, OpenBlock)>,
    usage: UsageTracker,
    finish: Option<FinishReason>,
    concluded: bool,
}

impl ChatResponse {
    pub(super) fn new(custom_tools: Vec<String>, client_speaks_it: bool) -> Self {
        Self {
            custom_tools,
            client_speaks_it,
            fields: MessageFields::default(),
            is_started: false,
            blocks: Blocks::default(),
            open_blocks: Vec::new(),
            usage: UsageTracker::default(),
            finish: None,
            concluded: false,
        }
    }
}

/// Fields of the message that the vocabulary lacks, as the upstream wrote them.
#[derive(Debug, Default, Serialize)]
struct MessageFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_management: Option<Box<RawValue>>,
}

impl MessageFields {
    /// Takes the fields that a part of the response has.
    fn add(&mut self, container: Option<&RawValue>, context_management: Option<&RawValue>) {
        if let Some(container) = container {
            self.container = Some(container.to_owned());
        }
        if let Some(management) = context_management {
            self.context_management = Some(management.to_owned());
        }
    }

    fn is_empty(&self) -> bool {
        self.container.is_none() && self.context_management.is_none()
    }
}

impl AnswerReader for ChatResponse {
    fn read_event(&mut self, event: SseEvent<'_>, events: &mut Vec<Event>) -> Result<(), Failure> {
        if event.name == CHUNK {
            let data = &aws::chunk(event.data)?;
            let name = "message";
            return self.read_event(SseEvent { name, data }, events);
        }
        let data = event.data.trim();
        if self.concluded || data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let stream_event: StreamEvent<'_> = match serde_json::from_str(data) {
            Ok(stream_event) => stream_event,
            Err(_) if event.name == "error" => return Err(errors::from_error(data)),
            Err(error) => return Err(unreadable(&error)),
        };
        if stream_event.kind.is_none() && stream_event.error.is_some() {
            return Err(errors::from_error(data));
        }
        match stream_event.kind.as_deref().unwrap_or(event.name) {
            "error" => Err(errors::from_error(data)),
            "message_start" => match stream_event.message {
                Some(message) => self.read_message(message, events),
                None => Err(Failure::malformed("the stream's start has no message")),
            },
            "content_block_start" => {
                let index = stream_event.index.unwrap_or_default();
                match stream_event.content_block {
                    Some(block) => self.begin(index, block, events),
                    None => Err(Failure::malformed("a block's start has no block")),
                }
            }
            "content_block_delta" => {
                let index = stream_event.index.unwrap_or_default();
                let block = self
                    .open_blocks
                    .iter_mut()
                    .find(|(known, _)| *known == index);
                match (block, stream_event.delta) {
                    (Some((_, block)), Some(delta)) => block.add_delta(delta, events),
                    (None, Some(_)) => {
                        Err(Failure::malformed("a delta of a block that is not open"))
                    }
                    (_, None) => Ok(()),
                }
            }
            "content_block_stop" => {
                let index = stream_event.index.unwrap_or_default();
                self.end(|known| known == index, events)
            }
            "message_delta" => {
                // Its content can have no start behind it.
                self.is_started = true;
                self.usage.add(stream_event.usage, events);
                self.fields.add(None, stream_event.context_management);
                if let Some(delta) = stream_event.delta {
                    let delta: MessageDelta<'_> =
                        serde_json::from_str(delta.get()).map_err(|error| unreadable(&error))?;
                    self.fields.add(delta.container, None);
                    self.set_finish(delta, events);
                }
                Ok(())
            }
            "message_stop" => self.conclude(events),
            // `ping`, and the events of newer versions.
            _ => Ok(()),
        }
    }

    fn read_whole(&mut self, body: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        let body = &text::lossy(body);
        let message: Message<'_> =
            serde_json::from_str(body).map_err(|error| unreadable(&error))?;
        if message.kind.as_deref() == Some("error")
            || message.content.is_none() && message.error.is_some()
        {
            return Err(errors::from_error(body));
        }
        if message.content.is_none() {
            return Err(Failure::malformed("the answer has no content"));
        }
        // Every response gives a reason for its end; a server without one means this.
        self.finish = Some(FinishReason::Stop);
        self.read_message(message, events)
    }

    fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        if self.concluded {
            return Ok(());
        }
        let finish = self.finish.take().ok_or_else(response::cut)?;
        self.end(|_| true, events)?;
        self.blocks.end_run(events);
        if self.client_speaks_it && !self.fields.is_empty() {
            let json = serde_json::to_string(&self.fields).expect("it is JSON");
            let kind = MESSAGE_FIELDS.to_owned();
            self.blocks.opaque(Opaque { kind, json }, events);
        }
        self.concluded = true;
        events.push(Event::Finish(finish));
        Ok(())
    }

    fn failure_of_response(response: &ErrorResponse) -> Failure {
        errors::from_response(response)
    }

    fn failure_behind_stream(stray: &str) -> Option<Failure> {
        response::stray_error(stray).map(errors::from_error)
    }
}

impl ChatResponse {
    fn read_message(
        &mut self,
        message: Message<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (id, model) = (text(message.id), text(message.model));
        if !self.is_started && (id.is_some() || model.is_some()) {
            events.push(Event::Started(Started { id, model }));
        }
        self.is_started = true;
        for (index, block) in (0..).zip(message.content.into_iter().flatten()) {
            self.begin(index, block, events)?;
            self.end(|known| known == index, events)?;
        }
        self.usage.add(message.usage, events);
        self.fields
            .add(message.container, message.context_management);
        let delta = MessageDelta {
            container: None,
            stop_reason: message.stop_reason,
            stop_sequence: message.stop_sequence,
            stop_details: message.stop_details,
        };
        self.set_finish(delta, events);
        Ok(())
    }

    fn begin(
        &mut self,
        index: u64,
        block: &RawValue,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        self.is_started = true;
        if self.open_blocks.len() == MAX_OPEN_BLOCKS {
            return Err(Failure::malformed(format!(
                "the answer has more than {MAX_OPEN_BLOCKS} blocks open"
            )));
        }
        let open_block = OpenBlock::begin(block, &self.custom_tools, &mut self.blocks, events)?;
        self.open_blocks.push((index, open_block));
        Ok(())
    }

    fn end(
        &mut self,
        should_end: impl Fn(u64) -> bool,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        while let Some(at) = self
            .open_blocks
            .iter()
            .position(|(index, _)| should_end(*index))
        {
            let (_, block) = self.open_blocks.remove(at);
            block.end(&mut self.blocks, events)?;
        }
        Ok(())
    }

    /// Notes the reason for the end, if there is one yet.
    fn set_finish(&mut self, delta: MessageDelta<'_>, events: &mut Vec<Event>) {
        let Some(reason) = delta.stop_reason.filter(|reason| !reason.is_empty()) else {
            return;
        };
        let finish = match reason.as_str() {
            "end_turn" | "compaction" => FinishReason::Stop,
            "stop_sequence" => match delta.stop_sequence {
                Some(sequence) => FinishReason::StopSequence(sequence),
                None => FinishReason::Stop,
            },
            "max_tokens" => FinishReason::Length,
            "tool_use" => FinishReason::ToolCalls,
            "refusal" => FinishReason::Refusal,
            "pause_turn" => FinishReason::PauseTurn,
            "model_context_window_exceeded" => FinishReason::ContextWindow,
            _ => FinishReason::Other(reason),
        };
        let explanation = delta.stop_details.and_then(|details| details.explanation);
        if let (FinishReason::Refusal, Some(explanation)) = (&finish, explanation) {
            self.blocks.say(Block::Refusal, explanation, events);
        }
        self.finish = Some(finish);
    }
}

fn unreadable(error: &serde_json::Error) -> Failure {
    response::unreadable("a message", error)
}
