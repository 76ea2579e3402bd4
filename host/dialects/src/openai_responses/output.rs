//! The output of a response under construction: translates each event into changes of its items.
//!
//! Plain responses and streams share this code, so that they agree: a [`Writer`] receives each change, and at the end
//! the items are complete.
//!
//! An item is done when the next one begins or the response ends, because only then it is known whether it was cut
//! short.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use weir_sandbox::adapter::bindings::chat::{
    Block, CallKind, Citation, Event, FinishReason, Media, ToolCallStart,
};

use super::items::{Annotation, Change, Content, Item, Part, Status, Summary};
use super::order::Order;
use super::proof::{Proof, Proven};

/// A receiver of changes.
pub(super) trait Writer {
    /// Writes an event of a stream, without its number.
    fn write(&mut self, kind: &'static str, change: &Change<'_>);
}

/// The items of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct Output {
    /// The response's id without the dialect's prefix.
    answer: String,
    /// The provider's name in the configuration; empty if unknown.
    provider: String,
    order: Order,
    items: Vec<Item>,
    /// The number of started blocks. An item's id contains the number of its first block, and clients use the id in
    /// references.
    blocks: usize,
    /// Whether the last item is open.
    is_open: bool,
    block: Option<Open>,
    /// The end of the response.
    end: Option<End>,
}

/// The current block. Its item, or its part of an item, begins with its first readable content.
#[derive(Debug, Clone)]
struct Open {
    kind: Kind,
    has_begun: bool,
    /// The characters so far, for the positions of citations.
    chars: usize,
    signature: String,
    sealed: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
    Call,
}

/// The end of a response, in the dialect's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    /// The response was cut short, with the reason.
    Incomplete(&'static str),
}

impl Output {
    /// Returns the output of an empty response.
    pub(super) fn new(answer: &str) -> Self {
        Self {
            answer: answer.to_owned(),
            ..Self::default()
        }
    }

    /// Sets the provider of the following events: parts that only this provider can read carry its name. The output of
    /// an abandoned attempt is discarded; no client has received it.
    pub(super) fn answered_by(&mut self, provider: &str) {
        *self = Self {
            provider: provider.to_owned(),
            ..Self::new(&self.answer)
        };
    }

    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    /// The end of the response; without a finish reason, it counts as complete.
    pub(super) fn end(&self) -> End {
        self.end.unwrap_or(End::Completed)
    }

    /// Ends the open item of a failed response.
    pub(super) fn cut(&mut self) {
        if self.is_open {
            self.set_status(Status::Incomplete);
        }
    }

    /// Translates an event into item changes.
    pub(super) fn follow(&mut self, event: &Event, writer: &mut impl Writer) {
        if self.order.passes(event) {
            self.apply(event, writer);
        }
        while let Some(events) = self.order.next() {
            for event in &events {
                self.apply(event, writer);
            }
        }
    }

    fn apply(&mut self, event: &Event, writer: &mut impl Writer) {
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
                        End::Completed => Status::Completed,
                        End::Incomplete(_) => Status::Incomplete,
                    },
                    writer,
                );
                self.end = Some(end);
            }
            // Opaque blocks of other dialects have no item.
            Event::Opaque(_) => self.blocks += 1,
            Event::Fragment(_)
            | Event::Started(_)
            | Event::Logprobs(_)
            | Event::MediaBytes(_)
            | Event::Usage(_) => {}
        }
    }

    fn begin(&mut self, block: &Block, writer: &mut impl Writer) {
        self.blocks += 1;
        let kind = match block {
            Block::Text => Kind::Text,
            Block::Refusal => Kind::Refusal,
            Block::Reasoning => Kind::Reasoning,
            Block::ToolCall(call) => {
                self.begin_call(call, writer);
                Kind::Call
            }
        };
        self.block = Some(Open {
            kind,
            has_begun: kind == Kind::Call,
            chars: 0,
            signature: String::new(),
            sealed: String::new(),
        });
    }

    fn begin_call(&mut self, call: &ToolCallStart, writer: &mut impl Writer) {
        let (call_id, name) = (call.id.clone(), call.name.clone());
        let status = Status::InProgress;
        let item = match call.kind {
            CallKind::Function => Item::FunctionCall {
                id: self.id("fc"),
                status,
                call_id,
                name,
                arguments: String::new(),
            },
            CallKind::Custom => Item::CustomToolCall {
                id: self.id("ctc"),
                status,
                call_id,
                name,
                input: String::new(),
            },
        };
        self.push(item, writer);
    }

    /// Adds a piece to the open block.
    fn add(&mut self, text: &str, writer: &mut impl Writer) {
        self.begin_content(writer);
        if let Some(open) = &mut self.block {
            open.chars += text.chars().count();
        }
        let output_index = self.items.len().saturating_sub(1);
        let Some(item) = self.items.last_mut() else {
            return;
        };
        let kind = match item {
            Item::Message { content, .. } => match content.last_mut() {
                Some(Content::OutputText { text: whole, .. }) => {
                    whole.push_str(text);
                    "response.output_text.delta"
                }
                Some(Content::Refusal { refusal }) => {
                    refusal.push_str(text);
                    "response.refusal.delta"
                }
                None => return,
            },
            Item::Reasoning { summary, .. } => {
                if let Some(summary) = summary.last_mut() {
                    summary.text.push_str(text);
                }
                "response.reasoning_summary_text.delta"
            }
            Item::FunctionCall { arguments, .. } => {
                arguments.push_str(text);
                "response.function_call_arguments.delta"
            }
            Item::CustomToolCall { input, .. } => {
                input.push_str(text);
                "response.custom_tool_call_input.delta"
            }
            Item::ImageGenerationCall { .. } => return,
        };
        let change = Change {
            delta: Some(text),
            logprobs: (kind == "response.output_text.delta").then_some([]),
            ..item.place(output_index)
        };
        writer.write(kind, &change);
    }

    /// Begins the item of the open block, or its part of an item, if necessary.
    fn begin_content(&mut self, writer: &mut impl Writer) {
        let Some(open) = &mut self.block else {
            return;
        };
        if std::mem::replace(&mut open.has_begun, true) {
            return;
        }
        let kind = open.kind;
        match kind {
            Kind::Call => {}
            Kind::Reasoning => {
                self.push_reasoning(writer);
                if let Some(Item::Reasoning { summary, .. }) = self.items.last_mut() {
                    summary.push(Summary::default());
                }
                self.write_part("response.reasoning_summary_part.added", writer);
            }
            Kind::Text | Kind::Refusal => {
                if !(self.is_open && matches!(self.items.last(), Some(Item::Message { .. }))) {
                    let message = Item::Message {
                        id: self.id("msg"),
                        status: Status::InProgress,
                        role: "assistant",
                        content: Vec::new(),
                    };
                    self.push(message, writer);
                }
                if let Some(Item::Message { content, .. }) = self.items.last_mut() {
                    content.push(match kind {
                        Kind::Refusal => Content::Refusal {
                            refusal: String::new(),
                        },
                        _ => Content::OutputText {
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

    fn cite(&mut self, citation: &Citation, writer: &mut impl Writer) {
        let open = self.block.as_ref();
        let Some(open) = open.filter(|open| open.kind == Kind::Text) else {
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
        if let Item::Message { content, .. } = item
            && let Some(Content::OutputText { annotations, .. }) = content.last_mut()
        {
            annotations.push(Annotation {
                start_index,
                end_index,
                title: citation.title.as_ref().unwrap_or(url).clone(),
                url: url.clone(),
            });
        }
        if let Item::Message { content, .. } = &*item
            && let Some(Content::OutputText { annotations, .. }) = content.last()
        {
            let change = Change {
                annotation_index: Some(annotations.len() - 1),
                annotation: annotations.last(),
                ..item.place(output_index)
            };
            writer.write("response.output_text.annotation.added", &change);
        }
    }

    fn end_block(&mut self, writer: &mut impl Writer) {
        let Some(open) = self.block.take() else {
            return;
        };
        let mut proof = Proof {
            provider: self.provider.clone(),
            signature: open.signature,
            sealed: open.sealed,
            of: Proven::Reasoning,
        };
        match open.kind {
            Kind::Reasoning => {
                if open.has_begun {
                    self.write_reasoning_end(writer);
                }
                return self.prove(&proof, open.has_begun, writer);
            }
            Kind::Text | Kind::Refusal => {
                if open.has_begun {
                    self.write_content_end(writer);
                }
                proof.of = Proven::Text;
            }
            Kind::Call => {
                if let Some(call_id) = self.write_call_end(writer) {
                    proof.of = Proven::Call(call_id);
                }
            }
        }
        // Text and calls have no sealed form.
        proof.sealed.clear();
        self.prove(&proof, false, writer);
    }

    /// Puts a proof into the open reasoning, or into a separate item right after the proven one.
    fn prove(&mut self, proof: &Proof, is_within: bool, writer: &mut impl Writer) {
        let Some(proof) = proof.write() else {
            return;
        };
        if !is_within {
            self.push_reasoning(writer);
        }
        if let Some(Item::Reasoning {
            encrypted_content, ..
        }) = self.items.last_mut()
        {
            *encrypted_content = Some(proof);
        }
    }

    fn push_reasoning(&mut self, writer: &mut impl Writer) {
        let reasoning = Item::Reasoning {
            id: self.id("rs"),
            summary: Vec::new(),
            encrypted_content: None,
        };
        self.push(reasoning, writer);
    }

    fn write_reasoning_end(&self, writer: &mut impl Writer) {
        let Some((item, place)) = self.last() else {
            return;
        };
        if let Item::Reasoning { summary, .. } = item {
            let change = Change {
                text: summary.last().map(|summary| summary.text.as_str()),
                ..place
            };
            writer.write("response.reasoning_summary_text.done", &change);
        }
        self.write_part("response.reasoning_summary_part.done", writer);
    }

    fn write_content_end(&self, writer: &mut impl Writer) {
        let Some((item, place)) = self.last() else {
            return;
        };
        if let Item::Message { content, .. } = item {
            match content.last() {
                Some(Content::OutputText { text, .. }) => {
                    let change = Change {
                        text: Some(text),
                        logprobs: Some([]),
                        ..place
                    };
                    writer.write("response.output_text.done", &change);
                }
                Some(Content::Refusal { refusal }) => {
                    let refusal = Some(refusal.as_str());
                    writer.write("response.refusal.done", &Change { refusal, ..place });
                }
                None => {}
            }
        }
        self.write_part("response.content_part.done", writer);
    }

    /// Writes the end of a call; returns its id.
    fn write_call_end(&self, writer: &mut impl Writer) -> Option<String> {
        let (item, place) = self.last()?;
        match item {
            Item::FunctionCall {
                arguments, call_id, ..
            } => {
                let arguments = Some(arguments.as_str());
                let change = Change { arguments, ..place };
                writer.write("response.function_call_arguments.done", &change);
                Some(call_id.clone())
            }
            Item::CustomToolCall { input, call_id, .. } => {
                let input = Some(input.as_str());
                let change = Change { input, ..place };
                writer.write("response.custom_tool_call_input.done", &change);
                Some(call_id.clone())
            }
            _ => None,
        }
    }

    fn media(&mut self, media: &Media, writer: &mut impl Writer) {
        let Some(format) = media.media_type.strip_prefix("image/") else {
            return;
        };
        if media.is_preview {
            return;
        }
        let image = Item::ImageGenerationCall {
            id: format!("ig_{}_{}", self.answer, self.items.len()),
            status: Status::InProgress,
            result: None,
            output_format: format.to_owned(),
        };
        self.push(image, writer);
        if let Some(Item::ImageGenerationCall { result, .. }) = self.items.last_mut() {
            // The dialect has no field for an image at a URL.
            *result = Some(match &media.url {
                Some(url) => url.clone(),
                None => STANDARD.encode(&media.data),
            });
        }
        self.close(Status::Completed, writer);
    }

    /// Begins an item, and ends the previous one.
    fn push(&mut self, item: Item, writer: &mut impl Writer) {
        self.close(Status::Completed, writer);
        self.items.push(item);
        self.is_open = true;
        self.write_item("response.output_item.added", writer);
    }

    fn close(&mut self, status: Status, writer: &mut impl Writer) {
        if self.is_open {
            self.is_open = false;
            self.set_status(status);
            self.write_item("response.output_item.done", writer);
        }
    }

    fn set_status(&mut self, now: Status) {
        if let Some(
            Item::Message { status, .. }
            | Item::FunctionCall { status, .. }
            | Item::CustomToolCall { status, .. }
            | Item::ImageGenerationCall { status, .. },
        ) = self.items.last_mut()
        {
            *status = now;
        }
    }

    fn write_item(&self, kind: &'static str, writer: &mut impl Writer) {
        let change = Change {
            output_index: self.items.len().saturating_sub(1),
            item: self.items.last(),
            ..Change::default()
        };
        writer.write(kind, &change);
    }

    fn write_part(&self, kind: &'static str, writer: &mut impl Writer) {
        let Some((item, place)) = self.last() else {
            return;
        };
        let part = match item {
            Item::Message { content, .. } => content.last().map(Part::Content),
            Item::Reasoning { summary, .. } => summary.last().map(Part::Summary),
            _ => None,
        };
        writer.write(kind, &Change { part, ..place });
    }

    /// The last item, and its position.
    fn last(&self) -> Option<(&Item, Change<'_>)> {
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
    fn end_of(&self, reason: &FinishReason) -> End {
        match reason {
            FinishReason::Length | FinishReason::ContextWindow => {
                End::Incomplete("max_output_tokens")
            }
            FinishReason::ContentFilter => End::Incomplete("content_filter"),
            FinishReason::Refusal if !self.has_refusal() => End::Incomplete("content_filter"),
            FinishReason::Stop
            | FinishReason::StopSequence(_)
            | FinishReason::ToolCalls
            | FinishReason::Refusal
            | FinishReason::PauseTurn
            | FinishReason::MalformedCall
            | FinishReason::Other(_) => End::Completed,
        }
    }

    fn has_refusal(&self) -> bool {
        self.items.iter().any(|item| match item {
            Item::Message { content, .. } => content
                .iter()
                .any(|part| matches!(part, Content::Refusal { .. })),
            _ => false,
        })
    }
}
