//! The response as one object, and the parts that streams share with it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_ledger::{Credits, TokenCounts};
use weir_sandbox::adapter::bindings::chat::{Event, Usage};

use super::blocks::{
    BlockWriter, ContentDelta, EmptyObject, MESSAGE_FIELDS, MessageBlocks, NewBlock, STOP_REASONS,
    stop_reason,
};
use crate::json::guests_object;
use crate::schema::written;
use crate::{AnswerHead, BilledUsage};

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct MessageResponse {
    head: AnswerHead,
    blocks: MessageBlocks,
    said: MessageContent,
    fields: MessageFields,
    stop: Option<(&'static str, Option<String>)>,
}

impl MessageResponse {
    /// Returns an empty response.
    pub fn new(head: AnswerHead) -> Self {
        Self {
            head,
            blocks: MessageBlocks::default(),
            said: MessageContent::default(),
            fields: MessageFields::default(),
            stop: None,
        }
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        if let Event::Finish(reason) = event {
            let (word, sequence) = stop_reason(reason);
            self.stop = Some((word, sequence.map(str::to_owned)));
        }
        self.fields.follow(event);
        self.blocks.follow(event, &mut self.said);
    }

    /// Sets the signature of the next call.
    pub fn sign_next_call(&mut self, signature: Option<&str>) {
        self.blocks.sign_next_call(signature);
    }

    /// Sets the provider of the following events.
    pub fn answered_by(&mut self, provider: &str) {
        self.blocks.answered_by(provider);
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        self.blocks = MessageBlocks::default();
        self.said = MessageContent::default();
        self.fields = MessageFields::default();
        self.stop = None;
    }

    /// The `message` object.
    pub fn into_body(self, billed: &BilledUsage) -> Vec<u8> {
        let (stop_reason, stop_sequence) = self.stop.unwrap_or(("end_turn", None));
        let body = MessageBody {
            id: &message_id(&self.head),
            kind: "message",
            role: "assistant",
            model: &self.head.model,
            content: &self.said.0,
            stop_reason: Some(stop_reason),
            stop_sequence: stop_sequence.as_deref(),
            container: self.fields.container.as_deref(),
            context_management: self.fields.context_management.as_deref(),
            usage: self.fields.usage(billed),
        };
        let mut json = Vec::with_capacity(1 << 10);
        write_json(&body, &mut json);
        json
    }
}

/// The fields of a message besides its content: the provider's, and its counts of calls of its own tools.
#[derive(Debug, Clone, Default)]
pub(super) struct MessageFields {
    pub(super) container: Option<Box<RawValue>>,
    pub(super) context_management: Option<Box<RawValue>>,
    server_tool_use: Option<ServerToolUse>,
}

impl MessageFields {
    /// Takes the fields of an event.
    pub(super) fn follow(&mut self, event: &Event) {
        #[derive(Deserialize)]
        struct WireFields {
            container: Option<Box<RawValue>>,
            context_management: Option<Box<RawValue>>,
        }
        match event {
            Event::Usage(usage) => self.server_tool_use = ServerToolUse::of(usage),
            Event::Opaque(opaque) if opaque.block.kind == MESSAGE_FIELDS => {
                let object = guests_object(&opaque.block.json);
                let read = object.and_then(|json| serde_json::from_str(json.get()).ok());
                if let Some(WireFields {
                    container,
                    context_management,
                }) = read
                {
                    self.container = container;
                    self.context_management = context_management;
                }
            }
            _ => {}
        }
    }

    /// Returns the usage at the end of the message.
    pub(super) fn usage(&self, billed: &BilledUsage) -> MessageUsage {
        MessageUsage {
            server_tool_use: self.server_tool_use,
            ..MessageUsage::new(&billed.tokens, Some(billed.credits))
        }
    }
}

/// The content of the message.
#[derive(Debug, Clone, Default)]
struct MessageContent(Vec<MessageBlock>);

written! {
    /// A block of a message.
    #[derive(Debug, Clone)]
    #[serde(tag = "type", rename_all = "snake_case")]
    pub(super) enum MessageBlock as "MessagesAnswerBlock" {
        /// A text.
        Text as "MessagesTextBlock" {
            /// The text.
            text: String,
            /// The sources of the text, in Anthropic's forms.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            citations: Vec<Box<RawValue>>,
        },
        /// The model's thinking.
        Thinking as "MessagesThinkingBlock" {
            /// The text.
            thinking: String,
            /// The provider's proof. Send it back unchanged.
            signature: String,
            /// The provider that can read the proof. It is a field of weir.
            #[serde(skip_serializing_if = "Option::is_none")]
            provider: Option<String>,
        },
        /// A call of a tool.
        ToolUse as "MessagesToolUseBlock" {
            /// The id of the call, which its result repeats.
            id: String,
            /// The name of the tool.
            name: String,
            /// The input.
            #[serde(serialize_with = "object")]
            input: String = [Object],
        },
        ;
        /// Another block: `redacted_thinking`, `image`, or a block of the provider's own kind. Send it back unchanged.
        Whole(Box<RawValue>),
    }
}

impl BlockWriter for MessageContent {
    fn begin(&mut self, _: usize, block: NewBlock<'_>) {
        self.0.push(match block {
            NewBlock::Text { .. } => MessageBlock::Text {
                text: String::new(),
                citations: Vec::new(),
            },
            NewBlock::Thinking { provider, .. } => MessageBlock::Thinking {
                thinking: String::new(),
                signature: String::new(),
                provider: provider.map(str::to_owned),
            },
            NewBlock::ToolUse { id, name, .. } => MessageBlock::ToolUse {
                id: id.to_owned(),
                name: name.to_owned(),
                input: String::new(),
            },
            NewBlock::Whole(json) => MessageBlock::Whole(json),
            block @ (NewBlock::RedactedThinking { .. } | NewBlock::Image { .. }) => {
                let json = serde_json::value::to_raw_value(&block);
                MessageBlock::Whole(json.expect("plain structs serialize"))
            }
        });
    }

    fn add(&mut self, at: usize, delta: ContentDelta<'_>) {
        match (&mut self.0[at], delta) {
            (MessageBlock::Text { text, .. }, ContentDelta::Text { text: more }) => {
                text.push_str(more)
            }
            (MessageBlock::Text { citations, .. }, ContentDelta::Citation { citation }) => {
                citations.push(citation);
            }
            (
                MessageBlock::Thinking { thinking, .. },
                ContentDelta::Thinking { thinking: more },
            ) => {
                thinking.push_str(more);
            }
            (
                MessageBlock::Thinking { signature, .. },
                ContentDelta::Signature { signature: more },
            ) => {
                signature.push_str(more);
            }
            (MessageBlock::ToolUse { input, .. }, ContentDelta::Input { partial_json }) => {
                input.push_str(partial_json);
            }
            _ => {}
        }
    }

    fn end(&mut self, _: usize) {}
}

/// A call's input, an object unless the response was cut short; then it becomes an empty object, because no client
/// could run the call.
fn object<S: serde::Serializer>(json: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_str::<&RawValue>(json) {
        Ok(input) if input.get().starts_with('{') => input.serialize(serializer),
        _ => EmptyObject {}.serialize(serializer),
    }
}

written! {
    /// A model's response in Messages. To continue the conversation, send its content back unchanged.
    #[derive(Debug)]
    pub(super) struct MessageBody<'a> as "MessagesAnswer" {
        /// The response's id.
        pub(super) id: &'a str,
        /// The kind of the object.
        #[serde(rename = "type")]
        pub(super) kind: &'static str = [OneOf(&["message"])],
        /// The author's role.
        pub(super) role: &'static str = [OneOf(&["assistant"])],
        /// The requested model.
        pub(super) model: &'a str,
        /// The blocks of the message; empty at the start of a stream.
        pub(super) content: &'a [MessageBlock],
        /// The reason for the end; null at the start of a stream.
        pub(super) stop_reason: Option<&'static str> = [OneOf(&STOP_REASONS)],
        /// The stop sequence before which the response ends.
        pub(super) stop_sequence: Option<&'a str>,
        /// The container in which the provider's tools have run.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) container: Option<&'a RawValue>,
        /// The provider's changes of a long conversation.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) context_management: Option<&'a RawValue>,
        /// The token usage.
        pub(super) usage: MessageUsage,
    }
}

/// The response's id in Anthropic's form.
pub(super) fn message_id(head: &AnswerHead) -> String {
    format!("msg_{}", head.id)
}

pub(super) fn write_json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("plain structs serialize, and a Vec takes every byte");
}

written! {
    /// The token usage and its charge.
    #[derive(Debug, Default)]
    pub(super) struct MessageUsage as "MessagesUsage" {
        /// The tokens of the input without those of the cache.
        input_tokens: u64,
        /// The tokens that the provider's cache has taken.
        cache_creation_input_tokens: u64,
        /// The tokens that the provider's cache had.
        cache_read_input_tokens: u64,
        /// The tokens that the provider's cache has taken, by lifetime.
        cache_creation: CacheCreation,
        /// The tokens of the response, thinking included.
        output_tokens: u64,
        /// A part of the tokens of the response.
        #[serde(skip_serializing_if = "Option::is_none")]
        output_tokens_details: Option<OutputDetails>,
        /// The calls of the provider's own tools.
        #[serde(skip_serializing_if = "Option::is_none")]
        server_tool_use: Option<ServerToolUse>,
        /// The charge of the request, in credits. It is a field of weir, at the end of the response.
        #[serde(skip_serializing_if = "Option::is_none")]
        credits: Option<Credits>,
    }
}

written! {
    /// A part of the tokens of the response.
    #[derive(Debug)]
    struct OutputDetails as "MessagesOutputTokens" {
        /// The tokens of the thinking.
        thinking_tokens: u64,
    }
}

written! {
    /// The calls of the provider's own tools.
    #[derive(Debug, Clone, Copy)]
    struct ServerToolUse as "MessagesServerToolUse" {
        /// The searches of the web.
        web_search_requests: u64,
        /// The fetched pages.
        web_fetch_requests: u64,
    }
}

impl ServerToolUse {
    fn of(usage: &Usage) -> Option<Self> {
        let count = |name: &str| {
            let mut counts = usage.other.iter();
            counts
                .find(|count| count.name == name)
                .map(|count| count.count)
        };
        let (searches, fetches) = (count("web-searches"), count("web-fetches"));
        searches.or(fetches).map(|_| Self {
            web_search_requests: searches.unwrap_or_default(),
            web_fetch_requests: fetches.unwrap_or_default(),
        })
    }
}

written! {
    /// The tokens that the provider's cache has taken, by lifetime.
    #[derive(Debug, Default)]
    struct CacheCreation as "MessagesCacheCreation" {
        /// Those for five minutes.
        ephemeral_5m_input_tokens: u64,
        /// Those for an hour.
        ephemeral_1h_input_tokens: u64,
    }
}

impl MessageUsage {
    fn new(counts: &TokenCounts, credits: Option<Credits>) -> Self {
        let written = counts
            .cache_write_short
            .saturating_add(counts.cache_write_long);
        let cached = written.saturating_add(counts.cache_read);
        Self {
            input_tokens: counts.input.saturating_sub(cached),
            cache_creation_input_tokens: written,
            cache_read_input_tokens: counts.cache_read,
            cache_creation: CacheCreation {
                ephemeral_5m_input_tokens: counts.cache_write_short,
                ephemeral_1h_input_tokens: counts.cache_write_long,
            },
            output_tokens: counts.output,
            // Without a count, the field is absent.
            output_tokens_details: (counts.reasoning > 0).then_some(OutputDetails {
                thinking_tokens: counts.reasoning,
            }),
            server_tool_use: None,
            credits,
        }
    }
}

impl From<&Usage> for MessageUsage {
    fn from(usage: &Usage) -> Self {
        let count = |count: Option<u64>| count.unwrap_or_default();
        let counts = TokenCounts {
            input: count(usage.input_tokens),
            cache_read: count(usage.cache_read_tokens),
            cache_write_short: count(usage.cache_write_short_tokens),
            cache_write_long: count(usage.cache_write_long_tokens),
            output: count(usage.output_tokens),
            reasoning: count(usage.reasoning_tokens),
            ..TokenCounts::default()
        };
        Self {
            server_tool_use: ServerToolUse::of(usage),
            ..Self::new(&counts, None)
        }
    }
}
