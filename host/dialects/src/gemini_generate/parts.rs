//! The parts of a response under construction: translates each event into parts.
//!
//! Plain responses and streams share this code, so that they agree. A stream writes each part as it comes; a plain
//! response joins the parts of a run ([`NewPart::run`]).
//!
//! **Invariant:** the code does not trust an adapter's numbers: an event without an open block is ignored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Citation, Event, FinishReason, Fragment, Media, OpaqueBlock,
};

use crate::json::guests_object;
use crate::schema::{Described, Schemas, written};
use crate::thought_signature::ThoughtSignature;

/// A part, and its block's number: parts of one block are one run of text.
#[derive(Debug)]
pub(super) struct NewPart {
    pub(super) run: usize,
    pub(super) part: AnswerPart,
}

/// A part of a response.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum AnswerPart {
    Written(WrittenPart),
    /// A part that arrived in one piece.
    Whole(Box<RawValue>),
}

impl Described for AnswerPart {
    fn schema(schemas: &mut Schemas) -> Value {
        let whole = json!({
            "type": "object", "additionalProperties": true, "description": "A part of the provider's own kind. Send it back unchanged.",
        });
        json!({ "anyOf": [WrittenPart::schema(schemas), whole] })
    }
}

written! {
    /// A part of a response.
    #[derive(Debug, Clone, Default)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct WrittenPart as "GeminiAnswerPart" {
        /// A text.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) text: Option<String>,
        /// Whether the text is the model's thought.
        #[serde(skip_serializing_if = "Option::is_none")]
        thought: Option<bool>,
        /// A call of a function.
        #[serde(skip_serializing_if = "Option::is_none")]
        function_call: Option<FunctionCall>,
        /// A file with its bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        inline_data: Option<Blob>,
        /// A file by its URL.
        #[serde(skip_serializing_if = "Option::is_none")]
        file_data: Option<FileData>,
        /// The provider's proof of the part. Send it back unchanged.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) thought_signature: Option<String>,
    }
}

written! {
    /// A call of a function.
    #[derive(Debug, Clone)]
    struct FunctionCall as "GeminiAnswerFunctionCall" {
        /// The id of the call, which its result repeats.
        id: String,
        /// The name of the function.
        name: String,
        /// The arguments.
        args: Box<RawValue> = [Object],
    }
}

written! {
    /// A file with its bytes.
    #[derive(Debug, Clone)]
    #[serde(rename_all = "camelCase")]
    struct Blob as "GeminiAnswerBlob" {
        /// The media type, such as `image/png`.
        mime_type: String,
        /// The bytes in base64.
        data: String,
    }
}

written! {
    /// A file by its URL.
    #[derive(Debug, Clone)]
    #[serde(rename_all = "camelCase")]
    struct FileData as "GeminiAnswerFileData" {
        /// The media type, such as `image/png`.
        mime_type: String,
        /// The URL.
        file_uri: String,
    }
}

impl AnswerPart {
    /// Returns a text without content: Google's SDKs keep no turn that has a chunk without parts.
    pub(super) fn empty_text() -> Self {
        Self::Written(WrittenPart {
            text: Some(String::new()),
            ..WrittenPart::default()
        })
    }
}

/// The blocks of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct ContentParts {
    /// The open blocks. An abandoned attempt may have left some, so of two with one number, the later counts.
    open: Vec<(u32, OpenPart)>,
    runs: usize,
    sources: Sources,
    /// The provider's name in the configuration; empty if unknown.
    provider: String,
}

#[derive(Debug, Clone)]
struct OpenPart {
    run: usize,
    kind: OpenKind,
    signature: String,
}

#[derive(Debug, Clone)]
enum OpenKind {
    Text {
        text: String,
        /// The bytes of text before the block.
        start: usize,
    },
    Thought {
        sealed: String,
    },
    /// Written at its end.
    Call {
        id: String,
        name: String,
        kind: CallKind,
        input: String,
    },
}

impl ContentParts {
    /// Sets the provider of the following events: signatures carry its name.
    pub(super) fn answered_by(&mut self, provider: &str) {
        provider.clone_into(&mut self.provider);
    }

    /// Translates an event into parts.
    pub(super) fn follow(&mut self, event: &Event, write: impl FnMut(NewPart)) {
        let part = match event {
            Event::BlockStart(start) => {
                self.begin(start);
                None
            }
            Event::Fragment(fragment) => self.add(fragment),
            Event::Signature(fragment) => {
                if let Some(open) = find(&mut self.open, fragment.index) {
                    open.signature.push_str(&fragment.text);
                }
                None
            }
            Event::Sealed(fragment) => {
                if let Some(open) = find(&mut self.open, fragment.index)
                    && let OpenKind::Thought { sealed } = &mut open.kind
                {
                    sealed.push_str(&fragment.text);
                }
                None
            }
            Event::Citation(citation) => {
                if let Some(open) = find(&mut self.open, citation.index)
                    && let OpenKind::Text { text, start } = &open.kind
                {
                    self.sources.add(citation, text, *start);
                }
                None
            }
            Event::BlockEnd(index) => self.end(*index),
            Event::Opaque(opaque) => self.opaque(opaque),
            Event::Media(media) => self.media(media),
            Event::Started(_)
            | Event::Logprobs(_)
            | Event::MediaBytes(_)
            | Event::Usage(_)
            | Event::Finish(_) => None,
        };
        part.into_iter().for_each(write);
    }

    /// Returns the sources of the response, if it has any.
    pub(super) fn sources(&self) -> Option<&Sources> {
        (!self.sources.grounding_chunks.is_empty()).then_some(&self.sources)
    }

    fn begin(&mut self, start: &BlockStart) {
        let kind = match &start.block {
            Block::Text | Block::Refusal => OpenKind::Text {
                text: String::new(),
                start: self.sources.text_bytes,
            },
            Block::Reasoning => OpenKind::Thought {
                sealed: String::new(),
            },
            Block::ToolCall(call) => OpenKind::Call {
                id: call.id.clone(),
                name: call.name.clone(),
                kind: call.kind,
                input: String::new(),
            },
        };
        let open = OpenPart {
            run: self.next_run(),
            kind,
            signature: String::new(),
        };
        self.open.push((start.index, open));
    }

    fn add(&mut self, fragment: &Fragment) -> Option<NewPart> {
        let more = fragment.text.as_str();
        let open = find(&mut self.open, fragment.index).filter(|_| !more.is_empty())?;
        let thought = match &mut open.kind {
            OpenKind::Text { text, .. } => {
                text.push_str(more);
                self.sources.text_bytes += more.len();
                None
            }
            OpenKind::Thought { .. } => Some(true),
            OpenKind::Call { input, .. } => {
                input.push_str(more);
                return None;
            }
        };
        let part = WrittenPart {
            text: Some(more.to_owned()),
            thought,
            ..WrittenPart::default()
        };
        Some(open.part(part))
    }

    fn end(&mut self, index: u32) -> Option<NewPart> {
        let position = self.open.iter().rposition(|(open, _)| *open == index)?;
        let (_, mut open) = self.open.remove(position);
        let mut proof = ThoughtSignature {
            provider: self.provider.clone(),
            signature: std::mem::take(&mut open.signature),
            sealed: String::new(),
        };
        let mut part = WrittenPart::default();
        match &mut open.kind {
            OpenKind::Text { .. } => part.text = Some(String::new()),
            OpenKind::Thought { sealed } => {
                proof.sealed = std::mem::take(sealed);
                part.text = Some(String::new());
                part.thought = Some(true);
            }
            OpenKind::Call {
                id,
                name,
                kind,
                input,
            } => {
                part.function_call = Some(FunctionCall {
                    id: std::mem::take(id),
                    name: std::mem::take(name),
                    args: arguments(*kind, input),
                });
            }
        }
        part.thought_signature = proof.write();
        let is_empty = part.function_call.is_none() && part.thought_signature.is_none();
        (!is_empty).then(|| open.part(part))
    }

    /// Writes a part of an upstream of this dialect: its type is one of its fields. The dialect has no place for other
    /// blocks.
    fn opaque(&mut self, opaque: &OpaqueBlock) -> Option<NewPart> {
        let json = guests_object(&opaque.block.json)?;
        let fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(json.get()).ok()?;
        fields.contains_key(&opaque.block.kind).then(|| NewPart {
            run: self.next_run(),
            part: AnswerPart::Whole(json),
        })
    }

    fn media(&mut self, media: &Media) -> Option<NewPart> {
        if media.is_preview {
            return None;
        }
        let mime_type = media.media_type.clone();
        let mut part = WrittenPart::default();
        match &media.url {
            Some(url) => {
                let file_uri = url.clone();
                part.file_data = Some(FileData {
                    mime_type,
                    file_uri,
                });
            }
            None => {
                let data = STANDARD.encode(&media.data);
                part.inline_data = Some(Blob { mime_type, data });
            }
        }
        Some(NewPart {
            run: self.next_run(),
            part: AnswerPart::Written(part),
        })
    }

    fn next_run(&mut self) -> usize {
        self.runs += 1;
        self.runs
    }
}

impl OpenPart {
    fn part(&self, part: WrittenPart) -> NewPart {
        NewPart {
            run: self.run,
            part: AnswerPart::Written(part),
        }
    }
}

fn find(open: &mut [(u32, OpenPart)], index: u32) -> Option<&mut OpenPart> {
    let mut open = open.iter_mut().rev();
    open.find(|(known, _)| *known == index)
        .map(|(_, open)| open)
}

/// Returns a call's arguments as an object. A call that was cut short gets an empty one, because no client could run
/// it.
fn arguments(kind: CallKind, input: &str) -> Box<RawValue> {
    let object = match kind {
        CallKind::Function => guests_object(input),
        CallKind::Custom => to_raw_value(&serde_json::json!({ "input": input })).ok(),
    };
    object.unwrap_or_else(|| RawValue::from_string("{}".into()).expect("an object"))
}

written! {
    /// The sources of a response.
    #[derive(Debug, Clone, Default)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Sources as "GeminiGroundingMetadata" {
        /// The sources, in Google's forms.
        grounding_chunks: Vec<Box<RawValue>>,
        /// The stretches of the text that have a source.
        grounding_supports: Vec<GroundingSupport>,
        // The bytes of all text so far.
        #[serde(skip)]
        text_bytes: usize,
    }
}

written! {
    /// A stretch of the text, and its source.
    #[derive(Debug, Clone)]
    #[serde(rename_all = "camelCase")]
    struct GroundingSupport as "GeminiGroundingSupport" {
        /// The stretch.
        segment: Segment,
        /// The position of its source in `groundingChunks`.
        grounding_chunk_indices: [usize; 1],
    }
}

written! {
    /// A stretch of the response's text. Positions are in bytes, the end exclusive.
    #[derive(Debug, Clone)]
    #[serde(rename_all = "camelCase")]
    struct Segment as "GeminiSegment" {
        /// The position of the first byte.
        start_index: usize,
        /// The position behind the last byte.
        end_index: usize,
        /// The text.
        text: String,
    }
}

impl Sources {
    /// Adds a source of a text block, which begins at `start`. A source without a span is one of all text so far.
    fn add(&mut self, citation: &Citation, text: &str, start: usize) {
        let byte = |character: u32| {
            let mut bytes = text.char_indices().map(|(byte, _)| byte);
            bytes.nth(character as usize).unwrap_or(text.len())
        };
        let (from, to) = match citation.span {
            Some(span) => (byte(span.start), byte(span.end)),
            None => (0, text.len()),
        };
        let chunk = chunk(citation);
        let mut known = self.grounding_chunks.iter();
        let position = known.rposition(|known| known.get() == chunk.get());
        let index = position.unwrap_or_else(|| {
            self.grounding_chunks.push(chunk);
            self.grounding_chunks.len() - 1
        });
        self.grounding_supports.push(GroundingSupport {
            segment: Segment {
                start_index: start + from,
                end_index: start + to,
                text: text.get(from..to).unwrap_or_default().to_owned(),
            },
            grounding_chunk_indices: [index],
        });
    }
}

/// Returns the source as its upstream wrote it, if that was of this dialect, or else as a page.
fn chunk(citation: &Citation) -> Box<RawValue> {
    #[derive(Serialize)]
    struct Web<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        uri: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    }
    #[derive(Serialize)]
    struct WebChunk<'a> {
        web: Web<'a>,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Known {
        web: Option<serde::de::IgnoredAny>,
        retrieved_context: Option<serde::de::IgnoredAny>,
        maps: Option<serde::de::IgnoredAny>,
    }
    let own = citation.json.as_deref().and_then(guests_object);
    let own = own.filter(|json| {
        serde_json::from_str::<Known>(json.get()).is_ok_and(|known| {
            known.web.is_some() || known.retrieved_context.is_some() || known.maps.is_some()
        })
    });
    own.unwrap_or_else(|| {
        let web = Web {
            uri: citation.source.as_deref(),
            title: citation.title.as_deref(),
        };
        to_raw_value(&WebChunk { web }).expect("plain structs serialize")
    })
}

/// The words for the end of a response.
pub(super) const FINISH_WORDS: [&str; 5] = [
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "MALFORMED_FUNCTION_CALL",
    "OTHER",
];

/// Returns the finish reason in Google's word. SDKs report a refusal, a withheld response and an unreadable call by
/// theirs; calls, stop sequences and pauses have none of their own.
pub(super) fn finish_word(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::Length | FinishReason::ContextWindow => "MAX_TOKENS",
        FinishReason::ContentFilter | FinishReason::Refusal => "SAFETY",
        FinishReason::MalformedCall => "MALFORMED_FUNCTION_CALL",
        FinishReason::Other(_) => "OTHER",
        FinishReason::Stop
        | FinishReason::StopSequence(_)
        | FinishReason::ToolCalls
        | FinishReason::PauseTurn => "STOP",
    }
}
