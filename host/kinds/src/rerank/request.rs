//! The JSON of a request, and its translation to the plugins' vocabulary.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Value, json};
use weir_dialects::json::{
    self, BoundedList, ExtraFields, FieldFault, MAX_EXTRA, RefusedFields, Text, check_length,
    check_not_empty, required,
};
use weir_dialects::object;
use weir_dialects::openai::{MAX_MODEL_CHARS, client};
use weir_dialects::schema::{Described, KnownFields, Schemas};
use weir_errors::ApiError;
use weir_sandbox::adapter::OtherRequest;
use weir_sandbox::adapter::bindings::rerank::{Request, RerankRequest};

use super::RankingForm;
use crate::KindCall;

/// The dialect's name in the contract.
const NAME: &str = "cohere-rerank";
/// The maximum documents of a request; Cohere accepts as many.
const MAX_DOCUMENTS: usize = 10_000;

/// Fields of Cohere's servers (cohere 7.3.1, `v2/client.py`).
const PASSED_ON: KnownFields = &[
    (
        "max_tokens_per_doc",
        "The tokens after which the provider cuts a document off.",
    ),
    (
        "priority",
        "The priority of the request: a lower number goes first.",
    ),
    (
        "relevant_spans",
        "The settings of the relevant parts of documents.",
    ),
];

object! {
    /// A request in Cohere's Rerank. Fields that weir does not know go on to the provider.
    struct RerankRequestBody<'de> as "RerankRequest" {
        /// The id of a model of the kind `rerank`, as `GET /models` lists them.
        "model": model: Text<'de> = [Required, Chars(1, MAX_MODEL_CHARS)],
        /// The query.
        "query": query: String = [Required, Chars(1, usize::MAX)],
        /// The documents: texts, or objects with a text.
        "documents": documents: BoundedList<Document, MAX_DOCUMENTS> = [Required, Items(1)],
        /// The maximum documents in the response; default: all.
        "top_n": top_n: u32 = [AtLeast(1)],
        /// Whether the response repeats the documents.
        "return_documents": return_documents: bool,
        others: ExtraFields<'de, MAX_EXTRA> = PASSED_ON,
    }
}

object! {
    /// A document.
    struct DocumentObject<'de> as "RerankDocument" {
        /// The text of the document.
        "text": text: String = [Required, Chars(1, usize::MAX)],
        others: RefusedFields,
    }
}

impl Described for Document {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "anyOf": [{ "type": "string", "minLength": 1 }, DocumentObject::schema(schemas)] })
    }
}

/// A document: a text, or an object with a text.
pub(super) struct Document(String);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DocumentVisitor;

        impl<'de> Visitor<'de> for DocumentVisitor {
            type Value = Document;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an object with a text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Document, E> {
                Ok(Document(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Document, A::Error> {
                let object =
                    DocumentObject::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let text = object
                    .text
                    .ok_or_else(|| de::Error::custom("must have a text"))?;
                Ok(Document(text))
            }
        }

        deserializer.deserialize_any(DocumentVisitor)
    }
}

/// Reads a Rerank request.
///
/// # Errors
///
/// 400 `INVALID_REQUEST`, with the path of the field as `param` unless the body is not JSON.
pub fn read(body: &[u8]) -> Result<KindCall, ApiError> {
    let (request, form) = parse(body)?;
    Ok(KindCall::new(
        OtherRequest::Rerank(request),
        body.len(),
        form,
    ))
}

/// Returns the request, and the form of its response.
pub(super) fn parse(body: &[u8]) -> Result<(Request, RankingForm), ApiError> {
    Ok(translate(json::read(body)?)?)
}

fn translate(body: RerankRequestBody<'_>) -> Result<(Request, RankingForm), FieldFault> {
    let model = required(body.model, "model")?.into_string();
    check_length(&model, MAX_MODEL_CHARS, "model")?;
    let query = required(body.query, "query")?;
    check_not_empty(&query, "query")?;
    let documents = required(body.documents, "documents")?.0;
    let documents: Vec<_> = documents.into_iter().map(|Document(text)| text).collect();
    if documents.is_empty() {
        return Err(FieldFault::new("documents", "must not be empty"));
    }
    if let Some(index) = documents.iter().position(String::is_empty) {
        let fault = FieldFault::new("", "must not be empty");
        return Err(fault.at(index).within("documents"));
    }
    if body.top_n == Some(0) {
        return Err(FieldFault::new("top_n", "must be at least 1"));
    }
    let wanted = body.top_n.and_then(|count| usize::try_from(count).ok());
    let form = RankingForm {
        documents: documents.len(),
        results: wanted.unwrap_or(usize::MAX).min(documents.len()),
        texts: (body.return_documents == Some(true)).then(|| documents.clone().into()),
    };
    let extra = body.others.into_fields();
    let request = Request {
        client: client(NAME, &extra)?,
        task: RerankRequest {
            model,
            query,
            documents,
            top_n: body.top_n,
            extra,
        },
        attempt: 0,
        deadline_ms: 0,
    };
    Ok((request, form))
}
