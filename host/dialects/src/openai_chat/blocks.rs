//! The blocks of a response under construction: assigns each event its place in the message.
//!
//! Plain responses and streams share this code, so that they agree.
//!
//! **Invariant:** the code does not trust an adapter's numbers: an event without an open block is ignored.

use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Citation, FinishReason, Fragment,
};

use crate::proof::{ProvenContent, ReasoningProof};
use crate::schema::written;
use crate::thought_signature::ThoughtSignature;

/// The words for the end of a response.
pub(super) const FINISH_REASONS: [&str; 4] = ["stop", "length", "tool_calls", "content_filter"];

/// The blocks of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct ChatBlocks {
    /// The open blocks, rarely more than one. An abandoned attempt may have left some, so of two with one number, the
    /// later counts.
    open: Vec<(u32, OpenChatBlock)>,
    /// The characters of content so far, for the positions of citations.
    content_chars: u64,
    tool_calls: usize,
    reasoning_details: usize,
    has_refusal: bool,
    /// The provider's name in the configuration; empty if unknown.
    provider: String,
    /// The signature of the next call.
    signature: Option<String>,
}

#[derive(Debug, Clone)]
enum OpenChatBlock {
    Text {
        /// The start position in the content.
        start: u64,
        signature: String,
    },
    Refusal,
    Reasoning(OpenReasoning),
    Call(BlockCall),
}

/// A block of reasoning, kept until its end, because its proof comes last and is useless without the text.
#[derive(Debug, Clone, Default)]
struct OpenReasoning {
    text: String,
    signature: String,
    sealed: String,
}

/// A tool call: its index among the response's calls, and the form of its input.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockCall {
    pub(super) index: usize,
    pub(super) kind: CallKind,
}

/// The place of a fragment in the message.
#[derive(Debug, Clone, Copy)]
pub(super) enum FragmentPlace {
    Content,
    Refusal,
    Reasoning,
    Call(BlockCall),
}

impl ChatBlocks {
    /// Sets the provider of the following events: parts that only this provider can read carry its name.
    pub(super) fn answered_by(&mut self, provider: &str) {
        provider.clone_into(&mut self.provider);
    }

    /// The provider, if known.
    pub(super) fn provider(&self) -> Option<String> {
        (!self.provider.is_empty()).then(|| self.provider.clone())
    }

    /// Sets the signature of the next call.
    pub(super) fn sign_next_call(&mut self, signature: Option<&str>) {
        self.signature = signature.map(str::to_owned);
    }

    /// Takes the signature of a call that has begun, in the form for clients.
    pub(super) fn signature_of_call(&mut self) -> Option<ExtraContent> {
        let signed = ThoughtSignature {
            provider: self.provider.clone(),
            signature: self.signature.take()?,
            sealed: String::new(),
        };
        let thought_signature = signed.write()?;
        Some(ExtraContent {
            google: GoogleContent { thought_signature },
        })
    }

    /// Opens a block; returns the call if it is one. Calls are numbered in order of their start.
    pub(super) fn begin(&mut self, start: &BlockStart) -> Option<BlockCall> {
        let mut begun = None;
        let open = match &start.block {
            Block::Text => OpenChatBlock::Text {
                start: self.content_chars,
                signature: String::new(),
            },
            Block::Refusal => OpenChatBlock::Refusal,
            Block::Reasoning => OpenChatBlock::Reasoning(OpenReasoning::default()),
            Block::ToolCall(start) => {
                let call = BlockCall {
                    index: self.tool_calls,
                    kind: start.kind,
                };
                self.tool_calls += 1;
                begun = Some(call);
                OpenChatBlock::Call(call)
            }
        };
        self.open.push((start.index, open));
        begun
    }

    /// Returns the place of a fragment.
    pub(super) fn follow(&mut self, fragment: &Fragment) -> Option<FragmentPlace> {
        // The field access leaves the character count free to borrow.
        let mut open = self.open.iter_mut().rev();
        let (_, block) = open.find(|(index, _)| *index == fragment.index)?;
        Some(match block {
            OpenChatBlock::Text { .. } => {
                self.content_chars += fragment.text.chars().count() as u64;
                FragmentPlace::Content
            }
            OpenChatBlock::Refusal => {
                self.has_refusal |= !fragment.text.is_empty();
                FragmentPlace::Refusal
            }
            OpenChatBlock::Reasoning(reasoning) => {
                reasoning.text.push_str(&fragment.text);
                FragmentPlace::Reasoning
            }
            OpenChatBlock::Call(call) => FragmentPlace::Call(*call),
        })
    }

    /// Whether a text block is a refusal; `None` for other blocks.
    pub(super) fn is_refusal(&self, index: u32) -> Option<bool> {
        let mut open = self.open.iter().rev();
        match open.find(|(known, _)| *known == index)?.1 {
            OpenChatBlock::Text { .. } => Some(false),
            OpenChatBlock::Refusal => Some(true),
            OpenChatBlock::Reasoning(_) | OpenChatBlock::Call(_) => None,
        }
    }

    /// Adds a piece of a proof of reasoning or text.
    pub(super) fn sign(&mut self, fragment: &Fragment) {
        match self.find(fragment.index) {
            Some(OpenChatBlock::Reasoning(OpenReasoning { signature, .. }))
            | Some(OpenChatBlock::Text { signature, .. }) => signature.push_str(&fragment.text),
            _ => {}
        }
    }

    /// Adds a piece of a sealed form.
    pub(super) fn seal(&mut self, fragment: &Fragment) {
        if let Some(OpenChatBlock::Reasoning(reasoning)) = self.find(fragment.index) {
            reasoning.sealed.push_str(&fragment.text);
        }
    }

    /// Returns the annotation for a citation; `None` without a source or without an open text block.
    ///
    /// A citation without a span points to the end of its block so far, because a stream cannot know the rest.
    pub(super) fn annotation(
        &self,
        index: Option<usize>,
        citation: &Citation,
    ) -> Option<ChatAnnotation> {
        let mut open = self.open.iter().rev();
        let (_, block) = open.find(|(index, _)| *index == citation.index)?;
        let OpenChatBlock::Text { start, .. } = block else {
            return None;
        };
        // The dialect requires both, so one replaces the other.
        let url = citation.source.as_ref().or(citation.title.as_ref())?;
        let title = citation.title.as_ref().unwrap_or(url);
        let (start_index, end_index) = match citation.span {
            Some(span) => (start + u64::from(span.start), start + u64::from(span.end)),
            None => (*start, self.content_chars),
        };
        Some(ChatAnnotation {
            index,
            kind: "url_citation",
            url_citation: UrlCitation {
                start_index,
                end_index,
                title: title.clone(),
                url: url.clone(),
            },
        })
    }

    /// Closes a block. Reasoning with a proof adds entries to `reasoning_details`: one for the readable text, and one
    /// for the sealed form, which belongs to the entry before it. The signature of a text is there, too: clients return
    /// this field unchanged, and the content has no place for a signature.
    pub(super) fn end(&mut self, index: u32) -> Vec<ResponseReasoningDetail> {
        let Some(position) = self.open.iter().rposition(|(open, _)| *open == index) else {
            return Vec::new();
        };
        let given = |text: String| (!text.is_empty()).then_some(text);
        let (text, signature, sealed) = match self.open.remove(position) {
            (_, OpenChatBlock::Reasoning(reasoning)) => (
                given(reasoning.text),
                given(reasoning.signature),
                given(reasoning.sealed),
            ),
            (_, OpenChatBlock::Text { signature, .. }) => {
                let proof = ReasoningProof {
                    provider: self.provider.clone(),
                    signature,
                    sealed: String::new(),
                    of: ProvenContent::Text,
                };
                (None, None, proof.write())
            }
            _ => return Vec::new(),
        };
        let mut details = Vec::new();
        if signature.is_some() || (sealed.is_some() && text.is_some()) {
            details.push(ResponseReasoningDetail {
                kind: "reasoning.text",
                text: Some(text.unwrap_or_default()),
                signature,
                data: None,
                provider: self.provider(),
                index: self.reasoning_details,
            });
            self.reasoning_details += 1;
        }
        if sealed.is_some() {
            details.push(ResponseReasoningDetail {
                kind: "reasoning.encrypted",
                text: None,
                signature: None,
                data: sealed,
                provider: self.provider(),
                index: self.reasoning_details,
            });
            self.reasoning_details += 1;
        }
        details
    }

    /// Returns OpenAI's word for the finish reason; clients know no other words. SDKs raise an error for `length` and
    /// `content_filter`, and run calls for `tool_calls`, so these must be correct. The other reasons become `stop`:
    /// - a refusal in the message, as in OpenAI's own responses (`content_filter` without a refusal: text was held
    ///   back);
    /// - a pause, because the client continues by sending the response back in any case;
    /// - an unreadable call, because the client cannot run it;
    /// - the upstream's own words, which no client knows.
    pub(super) fn finish_word(&self, reason: &FinishReason) -> &'static str {
        match reason {
            FinishReason::Length | FinishReason::ContextWindow => "length",
            FinishReason::ToolCalls => "tool_calls",
            FinishReason::ContentFilter => "content_filter",
            FinishReason::Refusal if !self.has_refusal => "content_filter",
            FinishReason::Stop
            | FinishReason::StopSequence(_)
            | FinishReason::Refusal
            | FinishReason::PauseTurn
            | FinishReason::MalformedCall
            | FinishReason::Other(_) => "stop",
        }
    }

    fn find(&mut self, index: u32) -> Option<&mut OpenChatBlock> {
        let mut open = self.open.iter_mut().rev();
        open.find(|(open, _)| *open == index).map(|(_, open)| open)
    }
}

written! {
    /// A call's field in Google's endpoint for Chat Completions.
    #[derive(Debug, Clone)]
    pub(super) struct ExtraContent as "ChatAnswerExtraContent" {
        /// Google's fields.
        google: GoogleContent,
    }
}

written! {
    /// The proof of a call.
    #[derive(Debug, Clone)]
    struct GoogleContent as "ChatAnswerCallSignature" {
        /// The proof.
        thought_signature: String,
    }
}

written! {
    /// The source of a stretch of the content.
    #[derive(Debug, Clone)]
    pub(super) struct ChatAnnotation as "ChatAnnotation" {
        /// In chunks: the position in the list.
        // OpenAI's SDKs match list entries by it, and fail without it.
        #[serde(skip_serializing_if = "Option::is_none")]
        index: Option<usize>,
        /// The kind of the source.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["url_citation"])],
        /// The source.
        url_citation: UrlCitation,
    }
}

written! {
    /// A source. Positions are in characters of the content, the end exclusive.
    #[derive(Debug, Clone)]
    struct UrlCitation as "ChatUrlCitation" {
        /// The position of the first character.
        start_index: u64,
        /// The position behind the last character.
        end_index: u64,
        /// The title of the source.
        title: String,
        /// The URL of the source.
        url: String,
    }
}

written! {
    /// Reasoning with its proof, in OpenRouter's form.
    // As there, entries have their `index` in plain responses, too.
    #[derive(Debug, Clone)]
    pub(super) struct ResponseReasoningDetail as "ChatAnswerReasoningDetail" {
        /// The kind of the entry: readable, or sealed.
        #[serde(rename = "type")]
        kind: &'static str = [OneOf(&["reasoning.text", "reasoning.encrypted"])],
        /// The readable text.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The provider's proof of the text.
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// The sealed form.
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// The provider that can read the proof.
        #[serde(skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// The position in the list.
        index: usize,
    }
}
