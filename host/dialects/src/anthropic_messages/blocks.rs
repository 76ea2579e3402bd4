//! The blocks of a response under construction: translates each event into changes of the message.
//!
//! Plain responses and streams share this code, so that they agree: a [`BlockWriter`] receives each start, change and end of
//! a block.
//!
//! **Invariant:** the code does not trust an adapter's numbers: an event without an open block is ignored. Blocks get
//! new numbers, in the order of writing.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Citation, Event, FinishReason, Fragment, Media, ToolCallStart,
};

use crate::json::guests_object;
use crate::proof::{ProvenContent, ReasoningProof};
use crate::schema::{Described, Schemas, written};

/// The kind of the opaque block in which an adapter of this dialect returns fields of the message itself.
pub(super) const MESSAGE_FIELDS: &str = "message_delta";

/// A receiver of block changes; blocks are identified by their position in the message.
pub(super) trait BlockWriter {
    fn begin(&mut self, at: usize, block: NewBlock<'_>);
    fn add(&mut self, at: usize, delta: ContentDelta<'_>);
    fn end(&mut self, at: usize);
}

written! {
    /// A block at its start.
    #[derive(Debug)]
    #[serde(tag = "type", rename_all = "snake_case")]
    pub(super) enum NewBlock<'a> as "MessagesNewBlock" {
        /// A text.
        Text as "MessagesNewTextBlock" {
            /// Empty.
            text: &'static str,
        },
        /// The model's thinking.
        Thinking as "MessagesNewThinkingBlock" {
            /// Empty.
            thinking: &'static str,
            /// Empty.
            signature: &'static str,
            /// The provider that can read the proof. It is a field of weir.
            #[serde(skip_serializing_if = "Option::is_none")]
            provider: Option<&'a str>,
        },
        /// Sealed thinking.
        RedactedThinking as "MessagesRedactedThinkingBlock" {
            /// The sealed form. Send it back unchanged.
            data: &'a str,
            /// The provider that can read it. It is a field of weir.
            #[serde(skip_serializing_if = "Option::is_none")]
            provider: Option<&'a str>,
        },
        /// A call of a tool.
        ToolUse as "MessagesNewToolUseBlock" {
            /// The id of the call, which its result repeats.
            id: &'a str,
            /// The name of the tool.
            name: &'a str,
            /// An object without fields.
            input: EmptyObject,
        },
        /// An image that the model has made.
        Image as "MessagesImageBlock" {
            /// The image.
            source: ImageSource<'a>,
        },
        ;
        /// A complete block of the provider's own kind. Send it back unchanged.
        Whole(Box<RawValue>),
    }
}

/// The object without fields.
#[derive(Debug, Serialize)]
pub(super) struct EmptyObject {}

impl Described for EmptyObject {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "object" })
    }
}

written! {
    /// An image, by its bytes or its URL.
    #[derive(Debug)]
    #[serde(tag = "type", rename_all = "snake_case")]
    pub(super) enum ImageSource<'a> as "MessagesImageSource" {
        /// An image with its bytes.
        Base64 as "MessagesImageBytes" {
            /// The media type, such as `image/png`.
            media_type: &'a str,
            /// The bytes in base64.
            data: String,
        },
        /// An image by its URL.
        Url as "MessagesImageUrl" {
            /// The URL.
            url: &'a str,
        },
    }
}

written! {
    /// An addition to a block.
    #[derive(Debug)]
    #[serde(tag = "type")]
    pub(super) enum ContentDelta<'a> as "MessagesDelta" {
        /// The next piece of a text.
        #[serde(rename = "text_delta")]
        Text as "MessagesTextDelta" {
            /// The piece.
            text: &'a str,
        },
        /// The next piece of thinking.
        #[serde(rename = "thinking_delta")]
        Thinking as "MessagesThinkingDelta" {
            /// The piece.
            thinking: &'a str,
        },
        /// The provider's proof of thinking.
        #[serde(rename = "signature_delta")]
        Signature as "MessagesSignatureDelta" {
            /// The proof.
            signature: &'a str,
        },
        /// The next piece of a call's input.
        #[serde(rename = "input_json_delta")]
        Input as "MessagesInputDelta" {
            /// The piece, as a part of JSON.
            partial_json: &'a str,
        },
        /// A source of a text.
        #[serde(rename = "citations_delta")]
        Citation as "MessagesCitationDelta" {
            /// The source, in Anthropic's form.
            citation: Box<RawValue> = [Object],
        },
    }
}

/// The blocks of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct MessageBlocks {
    /// The open blocks. An abandoned attempt may have left some, so of two with one number, the later counts.
    open: Vec<(u32, OpenMessageBlock)>,
    /// The number of written blocks.
    written: usize,
    /// The provider's name in the configuration; empty if unknown.
    provider: String,
    /// The signature of the next call.
    signature: Option<String>,
}

#[derive(Debug, Clone)]
enum OpenMessageBlock {
    /// Text, or a refusal in its place.
    Text {
        /// It begins with its first piece, because clients reject empty text blocks in later requests.
        at: Option<usize>,
        signature: String,
    },
    /// Reasoning that may turn out to be only sealed: it begins with its first readable piece.
    Reasoning {
        at: Option<usize>,
        /// Clients keep only the last piece, so the signature is written completely, at the end.
        signature: String,
        sealed: String,
    },
    Function(usize),
    /// Free text, which the dialect writes as an object with one field, at the end.
    Custom {
        at: usize,
        input: String,
    },
}

impl MessageBlocks {
    /// Sets the provider of the following events: parts that only this provider can read carry its name.
    pub(super) fn answered_by(&mut self, provider: &str) {
        provider.clone_into(&mut self.provider);
    }

    /// Sets the signature of the next call.
    pub(super) fn sign_next_call(&mut self, signature: Option<&str>) {
        self.signature = signature.map(str::to_owned);
    }

    /// Translates an event into block changes.
    pub(super) fn follow(&mut self, event: &Event, writer: &mut impl BlockWriter) {
        match event {
            Event::BlockStart(start) => self.begin(start, writer),
            Event::Fragment(fragment) => self.add(fragment, writer),
            // A call's proof is in a block before the call.
            Event::Signature(fragment) => {
                if let Some(
                    OpenMessageBlock::Reasoning { signature, .. }
                    | OpenMessageBlock::Text { signature, .. },
                ) = self.find(fragment.index)
                {
                    signature.push_str(&fragment.text);
                }
            }
            Event::Sealed(fragment) => {
                if let Some(OpenMessageBlock::Reasoning { sealed, .. }) = self.find(fragment.index)
                {
                    sealed.push_str(&fragment.text);
                }
            }
            Event::Citation(citation) => {
                if let Some(at) = self.text(citation.index, writer) {
                    let citation = citation_json(citation);
                    writer.add(at, ContentDelta::Citation { citation });
                }
            }
            Event::BlockEnd(index) => self.end(*index, writer),
            Event::Opaque(opaque) if opaque.block.kind == MESSAGE_FIELDS => {}
            Event::Opaque(opaque) => {
                if let Some(block) = guests_object(&opaque.block.json) {
                    self.whole(NewBlock::Whole(block), writer);
                }
            }
            Event::Media(media) => self.media(media, writer),
            Event::Started(_)
            | Event::Logprobs(_)
            | Event::MediaBytes(_)
            | Event::Usage(_)
            | Event::Finish(_) => {}
        }
    }

    fn begin(&mut self, start: &BlockStart, writer: &mut impl BlockWriter) {
        let open = match &start.block {
            Block::Text | Block::Refusal => OpenMessageBlock::Text {
                at: None,
                signature: String::new(),
            },
            Block::Reasoning => OpenMessageBlock::Reasoning {
                at: None,
                signature: String::new(),
                sealed: String::new(),
            },
            Block::ToolCall(ToolCallStart { id, name, kind }) => {
                let input = EmptyObject {};
                let signature = self.signature.take().unwrap_or_default();
                self.prove(ProvenContent::Call(id.to_owned()), signature, writer);
                let at = self.place(NewBlock::ToolUse { id, name, input }, writer);
                match kind {
                    CallKind::Function => OpenMessageBlock::Function(at),
                    CallKind::Custom => OpenMessageBlock::Custom {
                        at,
                        input: String::new(),
                    },
                }
            }
        };
        self.open.push((start.index, open));
    }

    /// Writes the signature of a call that begins, or of a text that has ended. Clients lose unknown fields of calls and
    /// texts, and send reasoning that they cannot read back unchanged. For a call, it must be before the call.
    fn prove(&mut self, of: ProvenContent, signature: String, writer: &mut impl BlockWriter) {
        let proof = ReasoningProof {
            provider: self.provider.clone(),
            signature,
            sealed: String::new(),
            of,
        };
        if let Some(data) = proof.write() {
            let block = NewBlock::RedactedThinking {
                data: &data,
                provider: None,
            };
            self.whole(block, writer);
        }
    }

    fn add(&mut self, fragment: &Fragment, writer: &mut impl BlockWriter) {
        let text = fragment.text.as_str();
        if text.is_empty() {
            return;
        }
        match self.find(fragment.index) {
            Some(OpenMessageBlock::Text { .. }) => {
                if let Some(at) = self.text(fragment.index, writer) {
                    writer.add(at, ContentDelta::Text { text });
                }
            }
            Some(OpenMessageBlock::Reasoning { .. }) => {
                let at = self.thinking(fragment.index, writer);
                writer.add(at, ContentDelta::Thinking { thinking: text });
            }
            Some(&mut OpenMessageBlock::Function(at)) => {
                writer.add(at, ContentDelta::Input { partial_json: text })
            }
            Some(OpenMessageBlock::Custom { input, .. }) => input.push_str(text),
            None => {}
        }
    }

    fn end(&mut self, index: u32, writer: &mut impl BlockWriter) {
        let Some(position) = self.open.iter().rposition(|(open, _)| *open == index) else {
            return;
        };
        // Reasoning with only a proof is a block, too.
        if matches!(&self.open[position].1, OpenMessageBlock::Reasoning { signature, .. } if !signature.is_empty())
        {
            self.thinking(index, writer);
        }
        let (_, open) = self.open.remove(position);
        match open {
            OpenMessageBlock::Text { at, signature } => {
                if let Some(at) = at {
                    writer.end(at);
                }
                self.prove(ProvenContent::Text, signature, writer);
            }
            OpenMessageBlock::Function(at) => writer.end(at),
            OpenMessageBlock::Custom { at, input } => {
                let json = serde_json::json!({ "input": input }).to_string();
                let partial_json = &json;
                writer.add(at, ContentDelta::Input { partial_json });
                writer.end(at);
            }
            OpenMessageBlock::Reasoning {
                at,
                signature,
                sealed,
            } => {
                if let Some(at) = at {
                    if !signature.is_empty() {
                        let signature = &signature;
                        writer.add(at, ContentDelta::Signature { signature });
                    }
                    writer.end(at);
                }
                if !sealed.is_empty() {
                    let provider = self.provider.clone();
                    let block = NewBlock::RedactedThinking {
                        data: &sealed,
                        provider: name(&provider),
                    };
                    self.whole(block, writer);
                }
            }
        }
    }

    /// The dialect's responses have no such block; the code uses the one of its requests.
    fn media(&mut self, media: &Media, writer: &mut impl BlockWriter) {
        if media.media_type.starts_with("image/") && !media.is_preview {
            let source = match &media.url {
                Some(url) => ImageSource::Url { url },
                None => ImageSource::Base64 {
                    media_type: &media.media_type,
                    data: STANDARD.encode(&media.data),
                },
            };
            self.whole(NewBlock::Image { source }, writer);
        }
    }

    fn find(&mut self, index: u32) -> Option<&mut OpenMessageBlock> {
        let mut open = self.open.iter_mut().rev();
        open.find(|(open, _)| *open == index).map(|(_, open)| open)
    }

    /// Returns the position of an open text block; begins the block if necessary.
    fn text(&mut self, index: u32, writer: &mut impl BlockWriter) -> Option<usize> {
        match self.find(index) {
            Some(&mut OpenMessageBlock::Text { at: Some(at), .. }) => return Some(at),
            Some(OpenMessageBlock::Text { .. }) => {}
            _ => return None,
        }
        let begun = self.place(NewBlock::Text { text: "" }, writer);
        if let Some(OpenMessageBlock::Text { at, .. }) = self.find(index) {
            *at = Some(begun);
        }
        Some(begun)
    }

    /// Returns the position of an open reasoning block; begins the block if necessary.
    fn thinking(&mut self, index: u32, writer: &mut impl BlockWriter) -> usize {
        if let Some(&mut OpenMessageBlock::Reasoning { at: Some(at), .. }) = self.find(index) {
            return at;
        }
        let provider = self.provider.clone();
        let block = NewBlock::Thinking {
            thinking: "",
            signature: "",
            provider: name(&provider),
        };
        let begun = self.place(block, writer);
        if let Some(OpenMessageBlock::Reasoning { at, .. }) = self.find(index) {
            *at = Some(begun);
        }
        begun
    }

    /// Begins a block at the end of the message.
    fn place(&mut self, block: NewBlock<'_>, writer: &mut impl BlockWriter) -> usize {
        let at = self.written;
        self.written += 1;
        writer.begin(at, block);
        at
    }

    fn whole(&mut self, block: NewBlock<'_>, writer: &mut impl BlockWriter) {
        let at = self.place(block, writer);
        writer.end(at);
    }
}

fn name(provider: &str) -> Option<&str> {
    (!provider.is_empty()).then_some(provider)
}

/// Returns a citation as an upstream of this dialect wrote it, or else in the form with a page: the dialect has no other
/// form for a source outside of the request.
fn citation_json(citation: &Citation) -> Box<RawValue> {
    #[derive(Serialize)]
    struct CitedPage<'a> {
        #[serde(rename = "type")]
        kind: &'static str,
        url: &'a str,
        title: Option<&'a str>,
        cited_text: &'a str,
        encrypted_index: &'static str,
    }
    #[derive(Deserialize)]
    struct TypedCitation<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    let own = citation.json.as_deref().and_then(guests_object);
    let own = own.filter(|own| {
        let typed = serde_json::from_str::<TypedCitation<'_>>(own.get());
        // All types of the dialect end so, such as `page_location`.
        typed.is_ok_and(|typed| typed.kind.ends_with("_location"))
    });
    own.unwrap_or_else(|| {
        let page = CitedPage {
            kind: "web_search_result_location",
            url: citation.source.as_deref().unwrap_or_default(),
            title: citation.title.as_deref(),
            cited_text: citation.cited_text.as_deref().unwrap_or_default(),
            encrypted_index: "",
        };
        to_raw_value(&page).expect("plain structs serialize")
    })
}

/// The words for the end of a response.
pub(super) const STOP_REASONS: [&str; 7] = [
    "end_turn",
    "max_tokens",
    "model_context_window_exceeded",
    "tool_use",
    "stop_sequence",
    "refusal",
    "pause_turn",
];

/// Returns the finish reason in the dialect's words, and the stop sequence. Clients run calls for `tool_use`, send the
/// response back for `pause_turn`, and show `refusal` to people, so these must be correct; reasons without an
/// equivalent become `end_turn`.
pub(super) fn stop_reason(reason: &FinishReason) -> (&'static str, Option<&str>) {
    match reason {
        FinishReason::Length => ("max_tokens", None),
        FinishReason::ContextWindow => ("model_context_window_exceeded", None),
        FinishReason::ToolCalls => ("tool_use", None),
        FinishReason::StopSequence(sequence) => ("stop_sequence", Some(sequence)),
        FinishReason::Refusal | FinishReason::ContentFilter => ("refusal", None),
        FinishReason::PauseTurn => ("pause_turn", None),
        FinishReason::Stop | FinishReason::MalformedCall | FinishReason::Other(_) => {
            ("end_turn", None)
        }
    }
}
