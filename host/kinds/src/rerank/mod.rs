//! Rankings: documents in the order of their relevance to a query, in the format of Cohere's Rerank, which Jina and vLLM
//! accept as well.

mod answer;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::json;
use weir_dialects::AnswerHead;
use weir_dialects::other::{PlainWriter, ResponseFormat};
use weir_dialects::schema::{Described as _, Schemas};
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::rerank::{Request, RerankRequest};
use weir_upstream::usage::RequestSize;

pub use self::answer::Ranking;
pub use self::request::read;
use crate::kind::{
    ContentPart, Contents, Kind, KindBounds, ModelTerms, ScreenedFields, fields_with_effect,
};

/// The documents of one search unit, and the tokens of a document after which it counts as another one (Cohere's
/// pricing page, "How does Cohere's Rerank pricing work?").
const DOCUMENTS_PER_UNIT: u64 = 100;
const TOKENS_PER_DOCUMENT: u64 = 500;

/// The form of a response with a ranking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankingForm {
    /// The number of documents in the request.
    pub documents: usize,
    /// The number of documents in the response.
    pub results: usize,
    /// The documents, if the response repeats them.
    pub texts: Option<Arc<[String]>>,
}

/// Adds the schemas of the kind.
pub(crate) fn describe(schemas: &mut Schemas) {
    request::RerankRequestBody::schema(schemas);
    answer::describe(schemas);
}

impl ResponseFormat for RankingForm {
    fn plain(&self, head: AnswerHead) -> Box<dyn PlainWriter> {
        Box::new(Ranking::new(head, self.clone()))
    }
}

impl Kind for Request {
    fn screened_mut(&mut self) -> ScreenedFields<'_> {
        let RerankRequest {
            model: _,
            query,
            documents,
            top_n: _,
            extra,
        } = &mut self.task;
        ScreenedFields {
            texts: [query].into_iter().chain(documents).collect(),
            words: Vec::new(),
            extra,
        }
    }

    fn contents(&self) -> Contents<'_> {
        let task = &self.task;
        let documents = task.documents.iter();
        let documents = documents.map(|document| ContentPart::Document(document));
        Contents {
            messages: vec![vec![ContentPart::Text(&task.query)], documents.collect()],
            settings: vec![("top_n", task.top_n.map(|count| json!(count)))],
            extra: &task.extra,
        }
    }

    fn size(&self) -> RequestSize {
        let RerankRequest {
            query, documents, ..
        } = &self.task;
        // A model reads the query with each document.
        let query = query.len() as u64;
        let pairs = documents
            .iter()
            .map(|document| query + document.len() as u64);
        let most = pairs
            .clone()
            .map(|bytes| 1 + bytes / (2 * TOKENS_PER_DOCUMENT));
        let most: u64 = most.sum();
        let documents = documents.len() as u64;
        let size = RequestSize::of_texts(pairs, &self.task.extra);
        RequestSize {
            messages: 1 + documents,
            least_searches: documents.div_ceil(DOCUMENTS_PER_UNIT),
            searches: most.div_ceil(DOCUMENTS_PER_UNIT),
            ..size
        }
    }

    /// Models shorten long documents themselves, but not the query.
    fn bounds(&self, model: &ModelTerms<'_>) -> Result<KindBounds, ApiError> {
        model.check_text(self.task.query.len() as u64, || "query".to_owned())?;
        Ok(KindBounds::of_data(self.size(), 1))
    }

    fn is_cacheable(&self) -> bool {
        true
    }

    fn cache_key(&self) -> Option<Vec<u8>> {
        // Without `..`, so that no new field is forgotten.
        let RerankRequest {
            model: _,
            query,
            documents,
            top_n,
            extra,
        } = &self.task;
        let extra = fields_with_effect(extra);
        serde_json::to_vec(&("rerank", query, documents, top_n, extra)).ok()
    }
}
