//! Requests to order documents by relevance, as a client dialect: the format of Cohere's Rerank, which Jina and vLLM
//! accept as well.
//!
//! [`read`] reads a request, and [`Ranking`] writes the response.

mod answer;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use answer::Ranking;
pub use request::read;

/// The dialect's name in the contract.
const NAME: &str = "cohere-rerank";

/// The form of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankingForm {
    /// The number of documents in the request.
    pub documents: usize,
    /// The number of documents in the response.
    pub results: usize,
    /// The documents, if the response repeats them.
    pub texts: Option<Arc<[String]>>,
}
