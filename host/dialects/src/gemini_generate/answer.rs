//! The response as one object, and the parts that streams share with it.

use serde::Serialize;
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::Event;

use super::parts::{AnswerPart, ContentParts, FINISH_WORDS, NewPart, Sources, finish_word};
use crate::schema::{Described as _, Schemas, written};
use crate::{AnswerHead, BilledUsage};

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct GeneratedContent {
    head: AnswerHead,
    blocks: ContentParts,
    parts: Vec<AnswerPart>,
    /// The run of the last part.
    run: usize,
    finish: Option<&'static str>,
}

impl GeneratedContent {
    /// Returns an empty response.
    pub fn new(head: AnswerHead) -> Self {
        Self {
            head,
            blocks: ContentParts::default(),
            parts: Vec::new(),
            run: 0,
            finish: None,
        }
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        if let Event::Finish(reason) = event {
            self.finish = Some(finish_word(reason));
        }
        let (parts, run) = (&mut self.parts, &mut self.run);
        self.blocks.follow(event, |new| add(parts, run, new));
    }

    /// Sets the provider of the following events.
    pub fn answered_by(&mut self, provider: &str) {
        self.blocks.answered_by(provider);
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        self.blocks = ContentParts::default();
        self.parts.clear();
        self.run = 0;
        self.finish = None;
    }

    /// The response object.
    pub fn into_body(mut self, billed: &BilledUsage) -> Vec<u8> {
        if self.parts.is_empty() {
            self.parts.push(AnswerPart::empty_text());
        }
        let body = GeneratedBody {
            candidates: [Candidate {
                content: ModelContent::new(&self.parts),
                finish_reason: Some(self.finish.unwrap_or("STOP")),
                index: 0,
                grounding_metadata: self.blocks.sources(),
            }],
            usage_metadata: Some(billed.into()),
            model_version: &self.head.model,
            response_id: &self.head.id,
        };
        let mut json = Vec::with_capacity(1 << 10);
        write_json(&body, &mut json);
        json
    }
}

/// Adds a part, or joins it to the last one of its run.
fn add(parts: &mut Vec<AnswerPart>, run: &mut usize, new: NewPart) {
    if new.run == *run
        && let Some(AnswerPart::Written(last)) = parts.last_mut()
        && let AnswerPart::Written(more) = &new.part
        && let (Some(text), Some(more_text)) = (&mut last.text, &more.text)
    {
        text.push_str(more_text);
        last.thought_signature.clone_from(&more.thought_signature);
        return;
    }
    *run = new.run;
    parts.push(new.part);
}

written! {
    /// A model's response in Google's Gemini API, or a chunk of a stream.
    #[derive(Debug)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct GeneratedBody<'a> as "GeminiAnswer" {
        /// The response, as one candidate.
        pub(super) candidates: [Candidate<'a>; 1],
        /// The token usage, at the end of the response.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) usage_metadata: Option<UsageMetadata>,
        /// The requested model.
        pub(super) model_version: &'a str,
        /// The response's id.
        pub(super) response_id: &'a str,
    }
}

written! {
    /// The response.
    #[derive(Debug)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Candidate<'a> as "GeminiCandidate" {
        /// The model's turn. To continue the conversation, send it back unchanged.
        pub(super) content: ModelContent<'a>,
        /// At the end: the reason for the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) finish_reason: Option<&'static str> = [OneOf(&FINISH_WORDS)],
        /// 0.
        pub(super) index: u32,
        /// The sources of the response.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) grounding_metadata: Option<&'a Sources>,
    }
}

written! {
    /// The model's turn.
    #[derive(Debug)]
    pub(super) struct ModelContent<'a> as "GeminiAnswerContent" {
        /// The parts.
        parts: &'a [AnswerPart],
        /// The author's role.
        role: &'static str = [OneOf(&["model"])],
    }
}

impl<'a> ModelContent<'a> {
    pub(super) fn new(parts: &'a [AnswerPart]) -> Self {
        Self {
            parts,
            role: "model",
        }
    }
}

written! {
    /// The token usage and its charge.
    #[derive(Debug)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct UsageMetadata as "GeminiUsage" {
        /// The tokens of the input.
        prompt_token_count: u64,
        /// The tokens that the provider's cache had.
        #[serde(skip_serializing_if = "Option::is_none")]
        cached_content_token_count: Option<u64>,
        /// The tokens of the response without thoughts.
        candidates_token_count: u64,
        /// The tokens of thoughts.
        #[serde(skip_serializing_if = "Option::is_none")]
        thoughts_token_count: Option<u64>,
        /// The tokens of all.
        total_token_count: u64,
        /// The charge of the request, in credits. It is a field of weir.
        credits: Credits,
    }
}

/// Adds the schema of a response, which is also that of a chunk.
pub(super) fn describe(schemas: &mut Schemas) {
    GeneratedBody::schema(schemas);
}

impl From<&BilledUsage> for UsageMetadata {
    fn from(billed: &BilledUsage) -> Self {
        let counts = &billed.tokens;
        // Google leaves zeros out.
        let some = |count: u64| (count > 0).then_some(count);
        Self {
            prompt_token_count: counts.input,
            cached_content_token_count: some(counts.cache_read),
            candidates_token_count: counts.output.saturating_sub(counts.reasoning),
            thoughts_token_count: some(counts.reasoning),
            total_token_count: counts.input.saturating_add(counts.output),
            credits: billed.credits,
        }
    }
}

pub(super) fn write_json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("plain structs serialize, and a Vec takes every byte");
}
