//! Requests to order documents by relevance, as a client dialect: the format of Cohere's Rerank, which Jina and vLLM
//! accept as well.
//!
//! [`read`] reads a request, and [`Ranking`] writes the response.

mod answer;
mod request;
#[cfg(test)]
mod tests;

pub use answer::Ranking;
pub use request::read;

pub use crate::dialect::RankingForm;
use crate::schema::{Described as _, Schemas};

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::RerankRequestBody::schema(schemas);
    answer::describe(schemas);
}
