//! The blocks of an answer, as far as it has come: where in the message each event belongs.
//!
//! Both forms of an answer are written by what is decided here, so that they say the same.
//!
//! **Invariant:** nothing here relies on an adapter's numbers: what names no open block has no place.

use serde::Serialize;
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Citation, FinishReason, Fragment,
};

/// The blocks of an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    /// Those that have not ended, rarely more than one. An attempt that was given up may have left some, so that of two
    /// with one number the later counts.
    open: Vec<(u32, Open)>,
    /// Characters of content so far: citations say which stretch of it they belong to.
    content_chars: u64,
    tool_calls: usize,
    reasoning_details: usize,
    has_refusal: bool,
    /// The provider that answers, by its name in the configuration; empty where that is not known.
    provider: String,
}

#[derive(Debug, Clone)]
enum Open {
    Text {
        /// Where in the content it begins.
        start: u64,
    },
    Refusal,
    Reasoning(Reasoning),
    Call(Call),
}

/// A block of reasoning, kept until its end: the proof of it comes last and is worth nothing without the text.
#[derive(Debug, Clone, Default)]
struct Reasoning {
    text: String,
    signature: String,
    sealed: String,
}

/// A tool call: its place among the answer's calls, and how its input is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) index: usize,
    pub(super) kind: CallKind,
}

/// Where in the message a fragment belongs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Content,
    Refusal,
    Reasoning,
    Call(Call),
}

impl Blocks {
    /// Notes who answers from here on: what only that provider can read again carries its name.
    pub(super) fn answered_by(&mut self, provider: &str) {
        provider.clone_into(&mut self.provider);
    }

    /// The provider that answers, if that is known.
    pub(super) fn provider(&self) -> Option<String> {
        (!self.provider.is_empty()).then(|| self.provider.clone())
    }

    /// Opens a block; if that is a tool call, it is this one. Calls are numbered in the order in which they begin.
    pub(super) fn begin(&mut self, start: &BlockStart) -> Option<Call> {
        let mut begun = None;
        let open = match &start.block {
            Block::Text => Open::Text {
                start: self.content_chars,
            },
            Block::Refusal => Open::Refusal,
            Block::Reasoning => Open::Reasoning(Reasoning::default()),
            Block::ToolCall(start) => {
                let call = Call {
                    index: self.tool_calls,
                    kind: start.kind,
                };
                self.tool_calls += 1;
                begun = Some(call);
                Open::Call(call)
            }
        };
        self.open.push((start.index, open));
        begun
    }

    /// Follows a fragment, and says where it belongs.
    pub(super) fn follow(&mut self, fragment: &Fragment) -> Option<Place> {
        // By field, so that the count of characters can be borrowed beside it.
        let mut open = self.open.iter_mut().rev();
        let (_, block) = open.find(|(index, _)| *index == fragment.index)?;
        Some(match block {
            Open::Text { .. } => {
                self.content_chars += fragment.text.chars().count() as u64;
                Place::Content
            }
            Open::Refusal => {
                self.has_refusal |= !fragment.text.is_empty();
                Place::Refusal
            }
            Open::Reasoning(reasoning) => {
                reasoning.text.push_str(&fragment.text);
                Place::Reasoning
            }
            Open::Call(call) => Place::Call(*call),
        })
    }

    /// Whether a block is a refusal, if it is text at all.
    pub(super) fn is_refusal(&self, index: u32) -> Option<bool> {
        let mut open = self.open.iter().rev();
        match open.find(|(known, _)| *known == index)?.1 {
            Open::Text { .. } => Some(false),
            Open::Refusal => Some(true),
            Open::Reasoning(_) | Open::Call(_) => None,
        }
    }

    /// Takes a piece of a proof. Only reasoning has a place for one.
    pub(super) fn sign(&mut self, fragment: &Fragment) {
        if let Some(reasoning) = self.reasoning(fragment.index) {
            reasoning.signature.push_str(&fragment.text);
        }
    }

    /// Takes a piece of a sealed form.
    pub(super) fn seal(&mut self, fragment: &Fragment) {
        if let Some(reasoning) = self.reasoning(fragment.index) {
            reasoning.sealed.push_str(&fragment.text);
        }
    }

    /// What a citation says of the content; nothing if it names no source or no open text.
    ///
    /// Without a span of its own it stands behind the block as far as that has come: a stream cannot know how it goes on.
    pub(super) fn annotation(
        &self,
        index: Option<usize>,
        citation: &Citation,
    ) -> Option<Annotation> {
        let mut open = self.open.iter().rev();
        let (_, block) = open.find(|(index, _)| *index == citation.index)?;
        let Open::Text { start } = *block else {
            return None;
        };
        // The dialect demands both, so either has to do for the other.
        let url = citation.source.as_ref().or(citation.title.as_ref())?;
        let title = citation.title.as_ref().unwrap_or(url);
        let (start_index, end_index) = match citation.span {
            Some(span) => (start + u64::from(span.start), start + u64::from(span.end)),
            None => (start, self.content_chars),
        };
        Some(Annotation {
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

    /// Closes a block. Reasoning with a proof leaves entries for `reasoning_details`: one for what can be read of it, and
    /// one for its sealed form, which belongs to the one before it.
    pub(super) fn end(&mut self, index: u32) -> Vec<ReasoningDetail> {
        let Some(position) = self.open.iter().rposition(|(open, _)| *open == index) else {
            return Vec::new();
        };
        let (_, Open::Reasoning(reasoning)) = self.open.remove(position) else {
            return Vec::new();
        };
        let given = |text: String| (!text.is_empty()).then_some(text);
        let (text, signature, sealed) = (
            given(reasoning.text),
            given(reasoning.signature),
            given(reasoning.sealed),
        );
        let mut details = Vec::new();
        if signature.is_some() || (sealed.is_some() && text.is_some()) {
            details.push(ReasoningDetail {
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
            details.push(ReasoningDetail {
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

    /// The reason in OpenAI's words, of which clients know no others. SDKs that parse an answer raise an error for
    /// `length` and `content_filter`, and run calls for `tool_calls`, so that these must be true; the rest is `stop`:
    /// - a refusal that stands in the message, which is how OpenAI itself ends one (`content_filter` where none stands
    ///   there: something was held back);
    /// - a pause, since the client goes on by sending the answer back either way;
    /// - a call that cannot be read, since there is none to run;
    /// - the upstream's own words, which no client could know.
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

    fn reasoning(&mut self, index: u32) -> Option<&mut Reasoning> {
        let mut open = self.open.iter_mut().rev();
        match open.find(|(open, _)| *open == index)? {
            (_, Open::Reasoning(reasoning)) => Some(reasoning),
            _ => None,
        }
    }
}

/// A stretch of the content and the source behind it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Annotation {
    /// In chunks only. OpenAI's SDKs put lists together by it and fail on an entry without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(rename = "type")]
    kind: &'static str,
    url_citation: UrlCitation,
}

/// Positions are in characters of the content, the end exclusive.
#[derive(Debug, Clone, Serialize)]
struct UrlCitation {
    start_index: u64,
    end_index: u64,
    title: String,
    url: String,
}

/// Reasoning with its proof, in OpenRouter's form. Entries keep their `index` in both forms of an answer, as there.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ReasoningDetail {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    index: usize,
}
