//! The response as server-sent events.
//!
//! **Invariant:** the events of a stream add up to the plain response to the same events. **Invariant:** a block ends
//! before the next one begins, because Anthropic's SDKs apply changes to the latest block. Events of a later block,
//! such as a parallel call, wait.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use weir_sandbox::adapter::bindings::chat::Event;

use super::answer::{MessageBody, MessageFields, MessageUsage, message_id, write_json};
use super::blocks::{
    BlockWriter, ContentDelta, MessageBlocks, NewBlock, STOP_REASONS, stop_reason,
};
use crate::schema::{Described as _, Schemas, choice, written};
use crate::{AnswerHead, BilledUsage};

/// The keep-alive event of a silent stream.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b"event: ping\ndata: {\"type\":\"ping\"}\n\n");

/// Writes a stream as server-sent events.
#[derive(Debug)]
pub struct MessageStream {
    head: AnswerHead,
    begun: bool,
    blocks: MessageBlocks,
    line: BlockQueue,
    /// The usage so far, according to the upstream.
    used: MessageUsage,
    fields: MessageFields,
    stop: Option<(&'static str, Option<String>)>,
}

impl MessageStream {
    /// Returns an empty stream.
    pub fn new(head: AnswerHead) -> Self {
        Self {
            head,
            begun: false,
            blocks: MessageBlocks::default(),
            line: BlockQueue::default(),
            used: MessageUsage::default(),
            fields: MessageFields::default(),
            stop: None,
        }
    }

    /// Sets the signature of the next call.
    pub fn sign_next_call(&mut self, signature: Option<&str>) {
        self.blocks.sign_next_call(signature);
    }

    /// Sets the provider of the following events.
    pub fn answered_by(&mut self, provider: &str) {
        self.blocks.answered_by(provider);
    }

    /// Appends the data of an event. [`Self::finish`] writes the end after the settlement.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        self.fields.follow(event);
        match event {
            Event::Started(_) => {}
            Event::Usage(usage) => self.used = MessageUsage::from(usage),
            Event::Finish(reason) => {
                let (word, sequence) = stop_reason(reason);
                self.stop = Some((word, sequence.map(str::to_owned)));
            }
            _ => {
                self.start(out);
                let line = &mut self.line;
                self.blocks.follow(event, &mut MessageEvents { line, out });
            }
        }
    }

    /// Appends the end: the finish reason and the usage.
    pub fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        self.start(out);
        let (stop_reason, stop_sequence) = self.stop.take().unwrap_or(("end_turn", None));
        let end = MessageEnd {
            kind: "message_delta",
            delta: EndDelta {
                stop_reason,
                stop_sequence: stop_sequence.as_deref(),
                container: self.fields.container.as_deref(),
            },
            context_management: self.fields.context_management.as_deref(),
            usage: self.fields.usage(billed),
        };
        write_event("message_delta", &end, out);
        out.extend_from_slice(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }

    /// Appends an error, and ends the stream. No event may follow.
    pub fn error(error: &Value, out: &mut Vec<u8>) {
        write_event("error", error, out);
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        // The usage is final only at the end: the last event but one has all of it.
        let message = MessageBody {
            id: &message_id(&self.head),
            kind: "message",
            role: "assistant",
            model: &self.head.model,
            content: &[],
            stop_reason: None,
            stop_sequence: None,
            container: None,
            context_management: None,
            usage: std::mem::take(&mut self.used),
        };
        let start = MessageStart {
            kind: "message_start",
            message,
        };
        write_event("message_start", &start, out);
    }
}

/// The queue of events of blocks that wait for earlier blocks.
#[derive(Debug, Default)]
struct BlockQueue {
    /// The block whose events are written immediately.
    at: usize,
    /// The started blocks behind it, in order.
    waiting: VecDeque<WaitingEvents>,
}

#[derive(Debug, Default)]
struct WaitingEvents {
    events: Vec<u8>,
    has_ended: bool,
}

impl BlockQueue {
    /// Returns the output for a block's events.
    fn place<'a>(&'a mut self, index: usize, out: &'a mut Vec<u8>) -> &'a mut Vec<u8> {
        match index.checked_sub(self.at) {
            None | Some(0) => out,
            Some(behind) => &mut self.waiting(behind).events,
        }
    }

    /// Ends a block, and writes the waiting events.
    fn end(&mut self, index: usize, out: &mut Vec<u8>) {
        if let Some(behind @ 1..) = index.checked_sub(self.at) {
            self.waiting(behind).has_ended = true;
            return;
        }
        self.at += 1;
        while let Some(next) = self.waiting.pop_front() {
            out.extend_from_slice(&next.events);
            if !next.has_ended {
                break;
            }
            self.at += 1;
        }
    }

    fn waiting(&mut self, behind: usize) -> &mut WaitingEvents {
        if self.waiting.len() < behind {
            self.waiting.resize_with(behind, WaitingEvents::default);
        }
        &mut self.waiting[behind - 1]
    }
}

/// Writes the blocks' events in sequence.
struct MessageEvents<'a> {
    line: &'a mut BlockQueue,
    out: &'a mut Vec<u8>,
}

impl BlockWriter for MessageEvents<'_> {
    fn begin(&mut self, index: usize, content_block: NewBlock<'_>) {
        let event = BlockStart {
            kind: "content_block_start",
            index,
            content_block,
        };
        write_event(event.kind, &event, self.line.place(index, self.out));
    }

    fn add(&mut self, index: usize, delta: ContentDelta<'_>) {
        let event = BlockDelta {
            kind: "content_block_delta",
            index,
            delta,
        };
        write_event(event.kind, &event, self.line.place(index, self.out));
    }

    fn end(&mut self, index: usize) {
        let event = BlockStop {
            kind: "content_block_stop",
            index,
        };
        write_event(event.kind, &event, self.line.place(index, self.out));
        self.line.end(index, self.out);
    }
}

fn write_event<T: Serialize>(name: &str, data: &T, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    write_json(data, out);
    out.extend_from_slice(b"\n\n");
}

written! {
    /// The start of a message.
    #[derive(Debug)]
    struct MessageStart<'a> as "MessagesStartEvent" {
        /// The kind of the event.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["message_start"])],
        /// The message, without content.
        message: MessageBody<'a>,
    }
}

written! {
    /// The start of a block.
    #[derive(Debug)]
    struct BlockStart<'a> as "MessagesBlockStartEvent" {
        /// The kind of the event.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["content_block_start"])],
        /// The position of the block in the message.
        index: usize,
        /// The block.
        content_block: NewBlock<'a>,
    }
}

written! {
    /// An addition to a block.
    #[derive(Debug)]
    struct BlockDelta<'a> as "MessagesBlockDeltaEvent" {
        /// The kind of the event.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["content_block_delta"])],
        /// The position of the block in the message.
        index: usize,
        /// The addition.
        delta: ContentDelta<'a>,
    }
}

written! {
    /// The end of a block.
    #[derive(Debug)]
    struct BlockStop as "MessagesBlockStopEvent" {
        /// The kind of the event.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["content_block_stop"])],
        /// The position of the block in the message.
        index: usize,
    }
}

written! {
    /// The end of the content.
    #[derive(Debug)]
    struct MessageEnd<'a> as "MessagesEndEvent" {
        /// The kind of the event.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["message_delta"])],
        /// The fields of the message that its end determines.
        delta: EndDelta<'a>,
        /// The provider's changes of a long conversation.
        #[serde(skip_serializing_if = "Option::is_none")]
        context_management: Option<&'a RawValue>,
        /// The token usage.
        usage: MessageUsage,
    }
}

written! {
    /// The fields of a message that its end determines.
    #[derive(Debug)]
    struct EndDelta<'a> as "MessagesEnd" {
        /// The reason for the end.
        stop_reason: &'static str = [OneOf(&STOP_REASONS)],
        /// The stop sequence before which the response ends.
        stop_sequence: Option<&'a str>,
        /// The container in which the provider's tools have run.
        #[serde(skip_serializing_if = "Option::is_none")]
        container: Option<&'a RawValue>,
    }
}

/// The schema of an event. Two have constant data, and that of an error is an error's body.
pub(super) fn describe(schemas: &mut Schemas) {
    let of_kind = |kind: &str, meaning: &str| {
        json!({
            "type": "object",
            "description": meaning,
            "properties": { "type": { "type": "string", "enum": [kind], "description": "The kind of the event." } },
            "required": ["type"],
        })
    };
    let mut of_error = of_kind("error", "The error that ends a stream.");
    of_error["properties"]["error"] = json!({
        "type": "object",
        "description": "The error: `type`, `message`, and weir's own code as `weir_code`.",
    });
    of_error["properties"]["request_id"] =
        json!({ "type": "string", "description": "The request's id." });
    of_error["required"] = json!(["type", "error", "request_id"]);
    let stop = of_kind("message_stop", "The end of the message.");
    let ping = of_kind("ping", "A sign of life of a silent stream.");
    let events = [
        ("message_start", MessageStart::schema(schemas)),
        ("content_block_start", BlockStart::schema(schemas)),
        ("content_block_delta", BlockDelta::schema(schemas)),
        ("content_block_stop", BlockStop::schema(schemas)),
        ("message_delta", MessageEnd::schema(schemas)),
        (
            "message_stop",
            schemas.named("MessagesStopEvent", "MessagesStopEvent", |_| stop),
        ),
        (
            "ping",
            schemas.named("MessagesPingEvent", "MessagesPingEvent", |_| ping),
        ),
        (
            "error",
            schemas.named("MessagesErrorEvent", "MessagesErrorEvent", |_| of_error),
        ),
    ];
    let mapping = events.iter();
    let mapping = mapping.map(|(kind, schema)| ((*kind).to_owned(), schema["$ref"].clone()));
    let mapping = mapping.collect();
    let choices = events.into_iter().map(|(_, schema)| schema).collect();
    let docs = ["An event of a stream in Messages."];
    schemas.add(
        "MessagesEvent",
        choice(&docs, "type", (choices, mapping), &[]),
    );
}
