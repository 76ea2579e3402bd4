//! The response: one object with the documents' positions and scores.

use serde::Deserialize;
use weir_dialects::openai_chat::json;
use weir_dialects::other::PlainWriter;
use weir_dialects::schema::{Described as _, Schemas};
use weir_dialects::written;
use weir_dialects::{AnswerHead, BilledUsage, DataFault};
use weir_ledger::Credits;
use weir_sandbox::adapter::bindings::chat::Event;

use super::RankingForm;

/// A plain response under construction.
#[derive(Debug, Clone)]
pub struct Ranking {
    head: AnswerHead,
    form: RankingForm,
    results: Option<Vec<RankedDocument>>,
    has_surplus: bool,
    fault: Option<&'static str>,
}

/// A document in the order of the response.
#[derive(Debug, Clone, Copy, Deserialize)]
struct RankedDocument {
    index: usize,
    relevance_score: f64,
}

written! {
    /// Documents in the order of their relevance.
    struct RankingBody<'a> as "RankingAnswer" {
        /// The response's id.
        id: &'a str,
        /// The requested model.
        model: &'a str,
        /// The documents, the most relevant first.
        results: Vec<ResultItem<'a>>,
        /// The token usage.
        usage: RankingUsage,
    }
}

written! {
    /// A document and its relevance.
    struct ResultItem<'a> as "RankedDocument" {
        /// The position of the document in the request.
        index: usize,
        /// The relevance to the query: a higher number is more relevant.
        relevance_score: f64,
        /// The document, with `return_documents`.
        #[serde(skip_serializing_if = "Option::is_none")]
        document: Option<DocumentItem<'a>>,
    }
}

written! {
    /// A document of the request.
    struct DocumentItem<'a> as "RankedText" {
        /// The text of the document.
        text: &'a str,
    }
}

written! {
    /// The token usage and its charge.
    struct RankingUsage as "RankingUsage" {
        /// The tokens of the query and the documents.
        total_tokens: u64,
        /// The charge of the request, in credits. It is a field of weir.
        credits: Credits,
    }
}

/// Adds the schema of a response.
pub(super) fn describe(schemas: &mut Schemas) {
    RankingBody::schema(schemas);
}

impl Ranking {
    /// Returns a response without documents.
    pub fn new(head: AnswerHead, form: RankingForm) -> Self {
        Self {
            head,
            form,
            results: None,
            has_surplus: false,
            fault: None,
        }
    }

    fn fault_of(&self, results: &[RankedDocument]) -> Option<&'static str> {
        let mut seen = vec![false; self.form.documents];
        for result in results {
            match seen.get_mut(result.index) {
                Some(seen @ false) => *seen = true,
                Some(true) => return Some("a document twice in the ranking"),
                None => return Some("an unknown document in the ranking"),
            }
            if !result.relevance_score.is_finite() {
                return Some("a score that is no number");
            }
        }
        None
    }
}

impl PlainWriter for Ranking {
    fn push(&mut self, event: &Event) {
        let Event::Media(media) = event else {
            return;
        };
        match serde_json::from_slice::<Vec<RankedDocument>>(&media.data) {
            _ if self.results.is_some() => self.fault = Some("two rankings"),
            Err(_) => self.fault = Some("a ranking that is no list of positions and scores"),
            Ok(mut results) => {
                self.fault = self.fault_of(&results);
                // The most relevant documents come first.
                self.has_surplus = results.len() > self.form.results;
                results.truncate(self.form.results);
                self.results = Some(results);
            }
        }
    }

    fn has_surplus(&self) -> bool {
        self.has_surplus
    }

    fn check(&self) -> Result<(), DataFault> {
        match (self.fault, &self.results) {
            (Some(fault), _) => Err(DataFault::Invalid(fault)),
            (None, None) => Err(DataFault::Invalid("no ranking")),
            // Some providers leave out documents without a relation to the query.
            (None, Some(_)) => Ok(()),
        }
    }

    fn clear(&mut self) {
        self.results = None;
        self.has_surplus = false;
        self.fault = None;
    }

    fn into_body(self: Box<Self>, billed: &BilledUsage) -> Vec<u8> {
        let text = |index: usize| Some(self.form.texts.as_ref()?.get(index)?.as_str());
        let results = self.results.iter().flatten();
        let body = RankingBody {
            id: &self.head.id,
            model: &self.head.model,
            results: results
                .map(|ranked| ResultItem {
                    index: ranked.index,
                    relevance_score: ranked.relevance_score,
                    document: text(ranked.index).map(|text| DocumentItem { text }),
                })
                .collect(),
            usage: RankingUsage {
                total_tokens: billed.tokens.input,
                credits: billed.credits,
            },
        };
        let mut out = Vec::with_capacity(256 + 64 * self.form.results);
        json(&body, &mut out);
        out
    }
}
