//! The response: one object with a list of vectors.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use weir_dialects::openai_chat::json as write;
use weir_dialects::other::PlainWriter;
use weir_dialects::schema::{Described as _, Schemas};
use weir_dialects::written;
use weir_dialects::{AnswerHead, BilledUsage, DataFault};
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::Event;

use super::EmbeddingForm;
use super::vector::Vector;

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct EmbeddingList {
    model: String,
    form: EmbeddingForm,
    vectors: Vec<Vector>,
    has_surplus: bool,
    fault: Option<DataFault>,
}

written! {
    /// The vectors of a request's texts.
    struct EmbeddingListBody<'a> as "EmbeddingList" {
        /// The kind of the object.
        object: &'static str = [OneOf(&["list"])],
        /// The vectors, in the order of the texts.
        data: Vec<EmbeddingItem<'a>>,
        /// The requested model.
        model: &'a str,
        /// The token usage.
        usage: EmbeddingUsage,
    }
}

written! {
    /// The vector of a text.
    struct EmbeddingItem<'a> as "Embedding" {
        /// The kind of the object.
        object: &'static str = [OneOf(&["embedding"])],
        /// The position of the text.
        index: usize,
        /// The vector: numbers, or base64 of 32-bit floats.
        embedding: &'a RawValue = [Is(vector)],
    }
}

fn vector(_: &mut Schemas) -> Value {
    json!({ "anyOf": [{ "type": "array", "items": { "type": "number" } }, { "type": "string" }] })
}

written! {
    /// The token usage and its charge.
    struct EmbeddingUsage as "EmbeddingUsage" {
        /// The tokens of the texts.
        prompt_tokens: u64,
        /// The same.
        total_tokens: u64,
        /// The charge of the request, in credits. It is a field of weir.
        credits: Credits,
    }
}

/// Adds the schema of a response.
pub(super) fn describe(schemas: &mut Schemas) {
    EmbeddingListBody::schema(schemas);
}

impl EmbeddingList {
    /// Returns a response without vectors.
    pub fn new(head: AnswerHead, form: EmbeddingForm) -> Self {
        Self {
            model: head.model,
            form,
            vectors: Vec::new(),
            has_surplus: false,
            fault: None,
        }
    }
}

impl PlainWriter for EmbeddingList {
    fn push(&mut self, event: &Event) {
        let Event::Media(media) = event else {
            return;
        };
        if self.vectors.len() == self.form.inputs {
            self.has_surplus = true;
            return;
        }
        let wanted = self.form.dimensions;
        let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok());
        let first = self.vectors.first().map(|first| first.dimensions);
        let differs = |from: Option<usize>, count: usize| from.is_some_and(|from| from != count);
        let invalid = |fault| Some(DataFault::Invalid(fault));
        match Vector::read(&media.data, self.form.base64) {
            None => self.fault = invalid("a vector that is no list of numbers"),
            Some(vector) if differs(wanted, vector.dimensions) => {
                self.fault = Some(DataFault::Dimensions);
            }
            Some(vector) if differs(first, vector.dimensions) => {
                self.fault = invalid("vectors of different lengths");
            }
            Some(vector) => self.vectors.push(vector),
        }
    }

    fn check(&self) -> Result<(), DataFault> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.vectors.len() < self.form.inputs => {
                Err(DataFault::Invalid("fewer vectors than inputs"))
            }
            None => Ok(()),
        }
    }

    fn has_surplus(&self) -> bool {
        self.has_surplus
    }

    fn clear(&mut self) {
        self.vectors.clear();
        self.has_surplus = false;
        self.fault = None;
    }

    fn into_body(self: Box<Self>, billed: &BilledUsage) -> Vec<u8> {
        let input = billed.tokens.input;
        let body = EmbeddingListBody {
            object: "list",
            data: self
                .vectors
                .iter()
                .enumerate()
                .map(|(index, vector)| EmbeddingItem {
                    object: "embedding",
                    index,
                    embedding: &vector.json,
                })
                .collect(),
            model: &self.model,
            usage: EmbeddingUsage {
                prompt_tokens: input,
                total_tokens: input,
                credits: billed.credits,
            },
        };
        let bytes = self
            .vectors
            .iter()
            .map(|vector| vector.json.get().len() + 64);
        let mut out = Vec::with_capacity(bytes.sum::<usize>() + 256);
        write(&body, &mut out);
        out
    }
}
