//! OpenAI's Embeddings, as a client dialect: vectors of texts.
//!
//! [`read`] reads a request, and [`EmbeddingList`] writes the response. The adapter passes the upstream's vectors on as
//! JSON; [`vector`] checks them, and converts them to the encoding that the client wants.

mod answer;
mod request;
#[cfg(test)]
mod tests;
mod vector;

pub use answer::EmbeddingList;
pub use request::read;

pub use crate::dialect::EmbeddingForm;
use crate::schema::{Described as _, Schemas};

/// Adds the schemas of the dialect.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::EmbeddingRequestBody::schema(schemas);
    answer::describe(schemas);
}
