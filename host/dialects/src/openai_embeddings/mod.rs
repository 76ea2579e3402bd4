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

/// The dialect's name in the contract.
const NAME: &str = "openai-embeddings";

/// The form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingForm {
    /// Whether vectors are in base64, instead of lists of numbers.
    pub base64: bool,
    /// The number of vectors.
    pub inputs: usize,
    /// The number of dimensions, if the client wants a certain one.
    pub dimensions: Option<u32>,
}
