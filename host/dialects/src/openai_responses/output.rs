//! The output of a response under construction: translates each event into changes of its items.
//!
//! Plain responses and streams share this code, so that they agree: a [`OutputWriter`] receives each change, and at the end
//! the items are complete.
//!
//! An item is done when the next one begins or the response ends, because only then it is known whether it was cut
//! short.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use weir_sandbox::adapter::bindings::chat::{
    Block, CallKind, Citation, Event, FinishReason, Media, ToolCallStart,
};

use super::items::{
    ItemChange, ItemStatus, OutputAnnotation, OutputContent, OutputItem, OutputPart,
    ReasoningSummary,
};
use super::order::EventOrder;
use super::wire::{MAX_PHASE_CHARS, MESSAGE};
use crate::proof::{ProvenContent, ReasoningProof};
use crate::tool_names::ToolNames;

/// A receiver of changes.
pub(super) trait OutputWriter {
    /// Writes an event of a stream, without its number.
    fn write(&mut self, kind: &'static str, change: &ItemChange<'_>);
}

/// The items of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct Output {
    /// The response's id without the dialect's prefix.
    answer: String,
    names: Arc<ToolNames>,
    /// The provider's name in the configuration; empty if unknown.
    provider: String,
    order: EventOrder,
    items: Vec<OutputItem>,
    /// The number of started blocks. An item's id contains the number of its first block, and clients use the id in
    /// references.
    blocks: usize,
    /// Whether the last item is open.
    is_open: bool,
    /// The phase of the next message.
    phase: Option<String>,
    block: Option<OpenOutputBlock>,
    /// The end of the response.
    end: Option<ResponseEnd>,
}

/// The current block. Its item, or its part of an item, begins with its first readable content.
#[derive(Debug, Clone)]
struct OpenOutputBlock {
    kind: OutputKind,
    has_begun: bool,
    /// The characters so far, for the positions of citations.
    chars: usize,
    signature: String,
    sealed: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputKind {
    Text,
    Refusal,
    Reasoning,
    Call,
}

/// Returns the phase in a mark of a message.
fn phase(mark: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Mark {
        phase: Option<String>,
    }
    let mark = serde_json::from_str::<Mark>(mark).ok()?;
    mark.phase
        .filter(|phase| phase.chars().count() <= MAX_PHASE_CHARS)
}

/// The end of a response, in the dialect's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseEnd {
    Completed,
    /// The response was cut short, with the reason.
    Incomplete(&'static str),
}

impl Output {
    /// Returns the output of an empty response.
    pub(super) fn new(answer: &str, names: &Arc<ToolNames>) -> Self {
        Self {
            answer: answer.to_owned(),
            names: names.clone(),
            ..Self::default()
        }
    }

    /// Sets the provider of the following events: parts that only this provider can read carry its name. The output of
    /// an abandoned attempt is discarded; no client has received it.
    pub(super) fn answered_by(&mut self, provider: &str) {
        *self = Self {
            provider: provider.to_owned(),
            ..Self::new(&self.answer, &self.names)
        };
    }

    pub(super) fn items(&self) -> &[OutputItem] {
        &self.items
    }

    /// The end of the response; without a finish reason, it counts as complete.
    pub(super) fn end(&self) -> ResponseEnd {
        self.end.unwrap_or(ResponseEnd::Completed)
    }

    /// Ends the open item of a failed response.
    pub(super) fn cut(&mut self) {
        if self.is_open {
            self.set_status(ItemStatus::Incomplete);
        }
    }

    /// Translates an event into item changes.
    pub(super) fn follow(&mut self, event: &Event, writer: &mut impl OutputWriter) {
        if self.order.passes(event) {
            self.apply(event, writer);
        }
        while let Some(events) = self.order.next() {
            for event in &events {
                self.apply(event, writer);
            }
        }
    }

    fn apply(&mut self, event: &Event, writer: &mut impl OutputWriter) {
        match event {
            Event::BlockStart(start) => self.begin(&start.block, writer),
            Event::Fragment(piece) if !piece.text.is_empty() => self.add(&piece.text, writer),
            Event::Signature(piece) => {
                if let Some(open) = &mut self.block {
                    open.signature.push_str(&piece.text);
                }
            }
            Event::Sealed(piece) => {
                if let Some(open) = &mut self.block {
                    open.sealed.push_str(&piece.text);
                }
            }
            Event::Citation(citation) => self.cite(citation, writer),
            Event::BlockEnd(_) => self.end_block(writer),
            Event::Media(media) => self.media(media, writer),
            Event::Finish(reason) => {
                let end = self.end_of(reason);
                self.close(
                    match end {
                        ResponseEnd::Completed => ItemStatus::Completed,
                        ResponseEnd::Incomplete(_) => ItemStatus::Incomplete,
                    },
                    writer,
                );
                self.end = Some(end);
            }
            Event::Opaque(opaque) => {
                self.blocks += 1;
                // Opaque blocks of other dialects have no item.
                if opaque.block.kind == MESSAGE {
                    self.close(ItemStatus::Completed, writer);
                    self.phase = phase(&opaque.block.json);
                }
            }
            Event::Fragment(_)
            | Event::Started(_)
            | Event::Logprobs(_)
            | Event::MediaBytes(_)
            | Event::Usage(_) => {}
        }
    }

    fn begin(&mut self, block: &Block, writer: &mut impl OutputWriter) {
        self.blocks += 1;
        let kind = match block {
            Block::Text => OutputKind::Text,
            Block::Refusal => OutputKind::Refusal,
            Block::Reasoning => OutputKind::Reasoning,
            Block::ToolCall(call) => {
                self.begin_call(call, writer);
                OutputKind::Call
            }
        };
        self.block = Some(OpenOutputBlock {
            kind,
            has_begun: kind == OutputKind::Call,
            chars: 0,
            signature: String::new(),
            sealed: String::new(),
        });
    }

    fn begin_call(&mut self, call: &ToolCallStart, writer: &mut impl OutputWriter) {
        let call_id = call.id.clone();
        let (namespace, name) = self.names.split(&call.name);
        let status = ItemStatus::InProgress;
        let item = match call.kind {
            CallKind::Function => OutputItem::FunctionCall {
                id: self.id("fc"),
                status,
                call_id,
                name,
                namespace,
                arguments: String::new(),
            },
            CallKind::Custom => OutputItem::CustomToolCall {
                id: self.id("ctc"),
                status,
                call_id,
                name,
                namespace,
                input: String::new(),
            },
        };
        self.push(item, writer);
    }

    /// Adds a piece to the open block.
    fn add(&mut self, text: &str, writer: &mut impl OutputWriter) {
        self.begin_content(writer);
        if let Some(open) = &mut self.block {
            open.chars += text.chars().count();
        }
        let output_index = self.items.len().saturating_sub(1);
        let Some(item) = self.items.last_mut() else {
            return;
        };
        let kind = match item {
            OutputItem::Message { content, .. } => match content.last_mut() {
                Some(OutputContent::OutputText { text: whole, .. }) => {
                    whole.push_str(text);
                    "response.output_text.delta"
                }
                Some(OutputContent::Refusal { refusal }) => {
                    refusal.push_str(text);
                    "response.refusal.delta"
                }
                None => return,
            },
            OutputItem::Reasoning { summary, .. } => {
                if let Some(summary) = summary.last_mut() {
                    summary.text.push_str(text);
                }
                "response.reasoning_summary_text.delta"
            }
            OutputItem::FunctionCall { arguments, .. } => {
                arguments.push_str(text);
                "response.function_call_arguments.delta"
            }
            OutputItem::CustomToolCall { input, .. } => {
                input.push_str(text);
                "response.custom_tool_call_input.delta"
            }
            OutputItem::ImageGenerationCall { .. } => return,
        };
        let change = ItemChange {
            delta: Some(text),
            logprobs: (kind == "response.output_text.delta").then_some([]),
            ..item.place(output_index)
        };
        writer.write(kind, &change);
    }

    /// Begins the item of the open block, or its part of an item, if necessary.
    fn begin_content(&mut self, writer: &mut impl OutputWriter) {
        let Some(open) = &mut self.block else {
            return;
        };
        if std::mem::replace(&mut open.has_begun, true) {
            return;
        }
        let kind = open.kind;
        match kind {
            OutputKind::Call => {}
            OutputKind::Reasoning => {
                self.push_reasoning(writer);
                if let Some(OutputItem::Reasoning { summary, .. }) = self.items.last_mut() {
                    summary.push(ReasoningSummary::default());
                }
                self.write_part("response.reasoning_summary_part.added", writer);
            }
            OutputKind::Text | OutputKind::Refusal => {
                if !(self.is_open && matches!(self.items.last(), Some(OutputItem::Message { .. })))
                {
                    let message = OutputItem::Message {
                        id: self.id("msg"),
                        status: ItemStatus::InProgress,
                        role: "assistant",
                        phase: self.phase.take(),
                        content: Vec::new(),
                    };
                    self.push(message, writer);
                }
                if let Some(OutputItem::Message { content, .. }) = self.items.last_mut() {
                    content.push(match kind {
                        OutputKind::Refusal => OutputContent::Refusal {
                            refusal: String::new(),
                        },
                        _ => OutputContent::OutputText {
                            text: String::new(),
                            annotations: Vec::new(),
                            logprobs: [],
                        },
                    });
                }
                self.write_part("response.content_part.added", writer);
            }
        }
    }

    fn cite(&mut self, citation: &Citation, writer: &mut impl OutputWriter) {
        let open = self.block.as_ref();
        let Some(open) = open.filter(|open| open.kind == OutputKind::Text) else {
            return;
        };
        // A citation without a span points to the end of the text so far.
        let (start_index, end_index) = match citation.span {
            Some(span) => (span.start as usize, span.end as usize),
            None => (0, open.chars),
        };
        // The dialect requires both, so one replaces the other.
        let Some(url) = citation.source.as_ref().or(citation.title.as_ref()) else {
            return;
        };
        self.begin_content(writer);
        let output_index = self.items.len().saturating_sub(1);
        let Some(item) = self.items.last_mut() else {
            return;
        };
        if let OutputItem::Message { content, .. } = item
            && let Some(OutputContent::OutputText { annotations, .. }) = content.last_mut()
        {
            annotations.push(OutputAnnotation {
                start_index,
                end_index,
                title: citation.title.as_ref().unwrap_or(url).clone(),
                url: url.clone(),
            });
        }
        if let OutputItem::Message { content, .. } = &*item
            && let Some(OutputContent::OutputText { annotations, .. }) = content.last()
        {
            let change = ItemChange {
                annotation_index: Some(annotations.len() - 1),
                annotation: annotations.last(),
                ..item.place(output_index)
            };
            writer.write("response.output_text.annotation.added", &change);
        }
    }

    fn end_block(&mut self, writer: &mut impl OutputWriter) {
        let Some(open) = self.block.take() else {
            return;
        };
        let mut proof = ReasoningProof {
            provider: self.provider.clone(),
            signature: open.signature,
            sealed: open.sealed,
            of: ProvenContent::Reasoning,
        };
        match open.kind {
            OutputKind::Reasoning => {
                if open.has_begun {
                    self.write_reasoning_end(writer);
                }
                return self.prove(&proof, open.has_begun, writer);
            }
            OutputKind::Text | OutputKind::Refusal => {
                if open.has_begun {
                    self.write_content_end(writer);
                }
                proof.of = ProvenContent::Text;
            }
            OutputKind::Call => {
                if let Some(call_id) = self.write_call_end(writer) {
                    proof.of = ProvenContent::Call(call_id);
                }
            }
        }
        // Text and calls have no sealed form.
        proof.sealed.clear();
        self.prove(&proof, false, writer);
    }

    /// Puts a proof into the open reasoning, or into a separate item right after the proven one.
    fn prove(&mut self, proof: &ReasoningProof, is_within: bool, writer: &mut impl OutputWriter) {
        let Some(proof) = proof.write() else {
            return;
        };
        if !is_within {
            self.push_reasoning(writer);
        }
        if let Some(OutputItem::Reasoning {
            encrypted_content, ..
        }) = self.items.last_mut()
        {
            *encrypted_content = Some(proof);
        }
    }

    fn push_reasoning(&mut self, writer: &mut impl OutputWriter) {
        let reasoning = OutputItem::Reasoning {
            id: self.id("rs"),
            summary: Vec::new(),
            encrypted_content: None,
        };
        self.push(reasoning, writer);
    }

    fn write_reasoning_end(&self, writer: &mut impl OutputWriter) {
        let Some((item, place)) = self.last() else {
            return;
        };
        if let OutputItem::Reasoning { summary, .. } = item {
            let change = ItemChange {
                text: summary.last().map(|summary| summary.text.as_str()),
                ..place
            };
            writer.write("response.reasoning_summary_text.done", &change);
        }
        self.write_part("response.reasoning_summary_part.done", writer);
    }

    fn write_content_end(&self, writer: &mut impl OutputWriter) {
        let Some((item, place)) = self.last() else {
            return;
        };
        if let OutputItem::Message { content, .. } = item {
            match content.last() {
                Some(OutputContent::OutputText { text, .. }) => {
                    let change = ItemChange {
                        text: Some(text),
                        logprobs: Some([]),
                        ..place
                    };
                    writer.write("response.output_text.done", &change);
                }
                Some(OutputContent::Refusal { refusal }) => {
                    let refusal = Some(refusal.as_str());
                    writer.write("response.refusal.done", &ItemChange { refusal, ..place });
                }
                None => {}
            }
        }
        self.write_part("response.content_part.done", writer);
    }

    /// Writes the end of a call; returns its id.
    fn write_call_end(&self, writer: &mut impl OutputWriter) -> Option<String> {
        let (item, place) = self.last()?;
        match item {
            OutputItem::FunctionCall {
                arguments, call_id, ..
            } => {
                let arguments = Some(arguments.as_str());
                let change = ItemChange { arguments, ..place };
                writer.write("response.function_call_arguments.done", &change);
                Some(call_id.clone())
            }
            OutputItem::CustomToolCall { input, call_id, .. } => {
                let input = Some(input.as_str());
                let change = ItemChange { input, ..place };
                writer.write("response.custom_tool_call_input.done", &change);
                Some(call_id.clone())
            }
            _ => None,
        }
    }

    fn media(&mut self, media: &Media, writer: &mut impl OutputWriter) {
        let Some(format) = media.media_type.strip_prefix("image/") else {
            return;
        };
        if media.is_preview {
            return;
        }
        let image = OutputItem::ImageGenerationCall {
            id: format!("ig_{}_{}", self.answer, self.items.len()),
            status: ItemStatus::InProgress,
            result: None,
            output_format: format.to_owned(),
        };
        self.push(image, writer);
        if let Some(OutputItem::ImageGenerationCall { result, .. }) = self.items.last_mut() {
            // The dialect has no field for an image at a URL.
            *result = Some(match &media.url {
                Some(url) => url.clone(),
                None => STANDARD.encode(&media.data),
            });
        }
        self.close(ItemStatus::Completed, writer);
    }

    /// Begins an item, and ends the previous one.
    fn push(&mut self, item: OutputItem, writer: &mut impl OutputWriter) {
        self.close(ItemStatus::Completed, writer);
        self.items.push(item);
        self.is_open = true;
        self.write_item("response.output_item.added", writer);
    }

    fn close(&mut self, status: ItemStatus, writer: &mut impl OutputWriter) {
        if self.is_open {
            self.is_open = false;
            self.set_status(status);
            self.write_item("response.output_item.done", writer);
        }
    }

    fn set_status(&mut self, now: ItemStatus) {
        if let Some(
            OutputItem::Message { status, .. }
            | OutputItem::FunctionCall { status, .. }
            | OutputItem::CustomToolCall { status, .. }
            | OutputItem::ImageGenerationCall { status, .. },
        ) = self.items.last_mut()
        {
            *status = now;
        }
    }

    fn write_item(&self, kind: &'static str, writer: &mut impl OutputWriter) {
        let change = ItemChange {
            output_index: self.items.len().saturating_sub(1),
            item: self.items.last(),
            ..ItemChange::default()
        };
        writer.write(kind, &change);
    }

    fn write_part(&self, kind: &'static str, writer: &mut impl OutputWriter) {
        let Some((item, place)) = self.last() else {
            return;
        };
        let part = match item {
            OutputItem::Message { content, .. } => content.last().map(OutputPart::Content),
            OutputItem::Reasoning { summary, .. } => summary.last().map(OutputPart::Summary),
            _ => None,
        };
        writer.write(kind, &ItemChange { part, ..place });
    }

    /// The last item, and its position.
    fn last(&self) -> Option<(&OutputItem, ItemChange<'_>)> {
        let item = self.items.last()?;
        Some((item, item.place(self.items.len() - 1)))
    }

    /// Returns the id of an item that begins with the open block, or proves it.
    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_{}_{}", self.answer, self.blocks.saturating_sub(1))
    }

    /// Returns the end of a response: clients treat an incomplete response as cut short, and raise errors, so that
    /// status must be correct; finish reasons without an equivalent count as complete. A readable refusal is a
    /// response.
    fn end_of(&self, reason: &FinishReason) -> ResponseEnd {
        match reason {
            FinishReason::Length | FinishReason::ContextWindow => {
                ResponseEnd::Incomplete("max_output_tokens")
            }
            FinishReason::ContentFilter => ResponseEnd::Incomplete("content_filter"),
            FinishReason::Refusal if !self.has_refusal() => {
                ResponseEnd::Incomplete("content_filter")
            }
            FinishReason::Stop
            | FinishReason::StopSequence(_)
            | FinishReason::ToolCalls
            | FinishReason::Refusal
            | FinishReason::PauseTurn
            | FinishReason::MalformedCall
            | FinishReason::Other(_) => ResponseEnd::Completed,
        }
    }

    fn has_refusal(&self) -> bool {
        self.items.iter().any(|item| match item {
            OutputItem::Message { content, .. } => content
                .iter()
                .any(|part| matches!(part, OutputContent::Refusal { .. })),
            _ => false,
        })
    }
}
