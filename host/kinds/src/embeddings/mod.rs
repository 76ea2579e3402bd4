//! Embeddings: vectors of texts, in the format of OpenAI's Embeddings.
//!
//! The adapter passes the upstream's vectors on as JSON; [`vector`] checks them, and converts them to the encoding that the
//! client wants.

mod answer;
mod request;
#[cfg(test)]
mod tests;
mod vector;

use serde_json::json;
use weir_dialects::AnswerHead;
use weir_dialects::other::{PlainWriter, ResponseFormat};
use weir_dialects::schema::{Described as _, Schemas};
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::embeddings::{EmbeddingRequest, Input, Request};
use weir_upstream::usage::{BYTES_PER_TOKEN, RequestSize};

pub use self::answer::EmbeddingList;
pub use self::request::read;
use crate::kind::{
    ContentPart, Contents, Kind, KindBounds, ModelTerms, ScreenedFields, fields_with_effect,
};

/// The form of a response with vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingForm {
    /// Whether vectors are in base64, instead of lists of numbers.
    pub base64: bool,
    /// The number of vectors.
    pub inputs: usize,
    /// The number of dimensions, if the client wants a certain one.
    pub dimensions: Option<u32>,
}

/// Adds the schemas of the kind.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::EmbeddingRequestBody::schema(schemas);
    answer::describe(schemas);
}

impl ResponseFormat for EmbeddingForm {
    fn plain(&self, head: AnswerHead) -> Box<dyn PlainWriter> {
        Box::new(EmbeddingList::new(head, *self))
    }
}

impl Kind for Request {
    fn screened_mut(&mut self) -> ScreenedFields<'_> {
        let EmbeddingRequest {
            model: _,
            inputs,
            dimensions: _,
            input_type,
            base64: _,
            extra,
        } = &mut self.task;
        let texts = inputs.iter_mut().filter_map(|input| match input {
            Input::Text(text) => Some(text),
            Input::Tokens(_) => None,
        });
        let words = input_type.iter_mut().map(|word| ("input_type", word));
        ScreenedFields {
            texts: texts.collect(),
            words: words.collect(),
            extra,
        }
    }

    fn check_screened(&self) -> Result<(), ApiError> {
        let mut inputs = self.task.inputs.iter();
        match inputs.any(|input| matches!(input, Input::Tokens(_))) {
            true => Err(ApiError::invalid_request(
                "input",
                "input must be text, because a filter checks requests to this model.",
            )),
            false => Ok(()),
        }
    }

    fn contents(&self) -> Contents<'_> {
        let task = &self.task;
        let parts = task.inputs.iter().map(|input| match input {
            Input::Text(text) => ContentPart::Text(text),
            Input::Tokens(tokens) => ContentPart::Data(format!("{} tokens", tokens.len())),
        });
        Contents {
            messages: vec![parts.collect()],
            settings: vec![
                ("dimensions", task.dimensions.map(|count| json!(count))),
                (
                    "input_type",
                    task.input_type.as_ref().map(|word| json!(word)),
                ),
            ],
            extra: &task.extra,
        }
    }

    fn size(&self) -> RequestSize {
        RequestSize::of_texts(self.task.inputs.iter().map(input_bytes), &self.task.extra)
    }

    fn bounds(&self, model: &ModelTerms<'_>) -> Result<KindBounds, ApiError> {
        let inputs = &self.task.inputs;
        model.check_inputs(inputs.iter().map(input_bytes))?;
        Ok(KindBounds::of_data(self.size(), inputs.len()))
    }

    fn is_cacheable(&self) -> bool {
        true
    }

    fn cache_key(&self) -> Option<Vec<u8>> {
        // Without `..`, so that no new field is forgotten.
        let EmbeddingRequest {
            model: _,
            inputs,
            dimensions,
            input_type,
            base64,
            extra,
        } = &self.task;
        let inputs = inputs.iter().map(|input| match input {
            Input::Text(text) => json!(text),
            Input::Tokens(tokens) => json!(tokens),
        });
        let inputs: Vec<_> = inputs.collect();
        let extra = fields_with_effect(extra);
        serde_json::to_vec(&("embeddings", inputs, dimensions, input_type, base64, extra)).ok()
    }
}

/// Returns the bytes of an input; tokens count as texts of their average size.
fn input_bytes(input: &Input) -> u64 {
    match input {
        Input::Text(text) => text.len() as u64,
        Input::Tokens(tokens) => tokens.len() as u64 * BYTES_PER_TOKEN,
    }
}
