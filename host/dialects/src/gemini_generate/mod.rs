//! Google's `generateContent`, as a client dialect.
//!
//! [`read`] parses a request's body into the plugins' vocabulary; [`GeneratedContent`] and [`ContentStream`] write the
//! response's events, as one object or as the objects of a stream.
//!
//! Parts of types beyond the vocabulary (code that Google runs, its results) are opaque, and so are unknown fields: an
//! adapter whose upstream speaks this dialect passes on those that it knows, and any other adapter refuses or names
//! them.
//!
//! Google's SDKs drop unknown fields of a response. Data that only a provider can read is in the `thoughtSignature` of
//! a part, with the provider's name ([`signature`]). A client may send function calls and their results without ids; a
//! result then belongs to the first open call of its name.
//!
//! **Invariant:** a client that sends a response's parts back unchanged returns everything that the model needs: text,
//! calls, reasoning with its signature or sealed form, opaque parts. It may send the parts of a stream one by one.
//!
//! To accept another field, add it to its object in `wire` and translate it in `request` (settings), `content` or
//! `tools`.

mod answer;
mod chunks;
mod content;
pub(crate) mod errors;
mod parts;
mod request;
mod schema;
#[cfg(test)]
mod tests;
mod tools;
mod wire;

use std::borrow::Cow;

pub use answer::GeneratedContent;
pub use chunks::{ContentStream, KEEP_ALIVE, LIST_KEEP_ALIVE};
pub use request::{read, read_count};

pub use crate::dialect::StreamForm;
use crate::json::renamed;
use crate::schema::{Described as _, Schemas};

/// The dialect's name in the contract.
const NAME: &str = "gemini-generate-content";

/// The header of Google's SDKs for the key.
pub const KEY_HEADER: &str = "x-goog-api-key";

/// A method of a model, the last part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelMethod {
    /// `generateContent`.
    Generate,
    /// `streamGenerateContent`.
    Stream,
    /// `countTokens`.
    CountTokens,
}

impl ModelMethod {
    /// Splits `{model}:{method}`. The model's own name may contain colons, and begin with `models/`.
    pub fn of(target: &str) -> Option<(&str, Self)> {
        let (model, method) = target.rsplit_once(':')?;
        let method = match method {
            "generateContent" => Self::Generate,
            "streamGenerateContent" => Self::Stream,
            "countTokens" => Self::CountTokens,
            _ => return None,
        };
        Some((bare_model(model), method))
    }
}

/// Returns a model's id without the prefix of Google's resource names.
pub fn bare_model(name: &str) -> &str {
    name.strip_prefix("models/").unwrap_or(name)
}

/// Whether a path belongs to this dialect. Under `/v1`, other vendors' models have the same paths.
pub(super) fn is_endpoint(path: &str) -> bool {
    path.starts_with("/v1beta/")
        || path
            .strip_prefix("/v1/models/")
            .is_some_and(|target| ModelMethod::of(target).is_some())
}

/// Returns the dialect's name of a field; other code uses its name in Chat Completions.
pub(super) fn field(name: &str) -> Cow<'_, str> {
    const NAMES: [(&str, &str); 20] = [
        ("messages", "contents"),
        ("system", "systemInstruction"),
        ("max_output_tokens", "generationConfig.maxOutputTokens"),
        ("max_tokens", "generationConfig.maxOutputTokens"),
        ("temperature", "generationConfig.temperature"),
        ("top_p", "generationConfig.topP"),
        ("top_k", "generationConfig.topK"),
        ("seed", "generationConfig.seed"),
        ("stop", "generationConfig.stopSequences"),
        ("presence_penalty", "generationConfig.presencePenalty"),
        ("frequency_penalty", "generationConfig.frequencyPenalty"),
        ("modalities", "generationConfig.responseModalities"),
        (
            "response_format.json_schema",
            "generationConfig.responseSchema",
        ),
        ("response_format", "generationConfig.responseMimeType"),
        (
            "reasoning.summary",
            "generationConfig.thinkingConfig.includeThoughts",
        ),
        (
            "reasoning.budget_tokens",
            "generationConfig.thinkingConfig.thinkingBudget",
        ),
        (
            "reasoning_effort",
            "generationConfig.thinkingConfig.thinkingLevel",
        ),
        ("reasoning", "thought"),
        ("signature", "thoughtSignature"),
        ("tool_choice", "toolConfig.functionCallingConfig"),
    ];
    renamed(name, &NAMES)
}

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    wire::CountRequestBody::schema(schemas);
    wire::GenerateRequestBody::schema(schemas);
    answer::describe(schemas);
}
