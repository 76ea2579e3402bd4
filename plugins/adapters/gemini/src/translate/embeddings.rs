//! Vectors of texts: `batchEmbedContents`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_sdk::adapter::{
    BodyPart, EmbeddingRequest, EmbeddingsRequest, Event, Failure, HttpRequest, Input,
    StartedExchange, Step,
};
use weir_sdk::media::{ANY, VectorExtractor};
use weir_sdk::response::{self, DataReader, ResponseReader, input_usage};
use weir_sdk::wire::{leave_out_fields, refuse};

use super::{Gemini, PATH, errors};

/// The place of a vector in a response.
const VECTOR: &[&str] = &["embeddings", ANY, "values"];

/// The uses of vectors, and Google's names of them (python-genai 3.6.1, `types.py`, `EmbedContentConfig.task_type`).
const TASK_TYPES: [(&str, &str); 5] = [
    ("query", "RETRIEVAL_QUERY"),
    ("search_query", "RETRIEVAL_QUERY"),
    ("document", "RETRIEVAL_DOCUMENT"),
    ("passage", "RETRIEVAL_DOCUMENT"),
    ("search_document", "RETRIEVAL_DOCUMENT"),
];

#[derive(Serialize)]
struct BatchBody<'a> {
    requests: Vec<EmbedContent<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EmbedContent<'a> {
    model: &'a str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_dimensionality: Option<u32>,
}

#[derive(Serialize)]
struct Content<'a> {
    parts: [Part<'a>; 1],
}

#[derive(Serialize)]
struct Part<'a> {
    text: &'a str,
}

pub(super) fn begin(request: &EmbeddingsRequest) -> Result<StartedExchange<Gemini>, Failure> {
    let EmbeddingRequest {
        model,
        inputs,
        dimensions,
        input_type,
        base64: _,
        extra,
    } = &request.task;
    let task_type = input_type.as_deref().map(task_type).transpose()?;
    let full_name = format!("models/{model}");
    let requests = inputs.iter().map(|input| match input {
        Input::Text(text) => Ok(EmbedContent {
            model: &full_name,
            content: Content {
                parts: [Part { text }],
            },
            task_type,
            output_dimensionality: *dimensions,
        }),
        Input::Tokens(_) => Err(refuse("input", "input: tokens in place of text")),
    });
    let body = BatchBody {
        requests: requests.collect::<Result<_, _>>()?,
    };
    let body = serde_json::to_vec(&body).expect("plain structs serialize");
    let path = format!("{PATH}{model}:batchEmbedContents");
    Ok(StartedExchange {
        exchange: ResponseReader::of_data(DataReader::vectors(VECTOR, read_vectors)),
        step: Step::Send(HttpRequest::post_json(path, vec![BodyPart::Bytes(body)])),
        ignored: leave_out_fields(extra)?,
    })
}

fn task_type(word: &str) -> Result<&str, Failure> {
    let known = TASK_TYPES.iter().find(|(name, _)| *name == word);
    match known {
        Some((_, name)) => Ok(name),
        // Google's own names.
        None if word
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'_') =>
        {
            Ok(word)
        }
        None => Err(refuse("input_type", format!("input_type: {word}"))),
    }
}

#[derive(Deserialize)]
struct EmbedResponse<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    embeddings: Option<Vec<Embedding>>,
}

#[derive(Deserialize)]
struct Embedding {
    values: String,
}

fn read_vectors(body: &str, count: usize, events: &mut Vec<Event>) -> Result<(), Failure> {
    let response: EmbedResponse<'_> = serde_json::from_str(body)
        .map_err(|error| response::unreadable("one of vectors", &error))?;
    if response.error.is_some() {
        return Err(errors::from_error(body));
    }
    let items = response.embeddings.unwrap_or_default();
    let mut places = items.iter().enumerate();
    if items.len() != count
        || !places.all(|(index, embedding)| VectorExtractor::is_vector(&embedding.values, index))
    {
        return Err(Failure::malformed("an item of the answer is no vector"));
    }
    // The API reports no tokens.
    events.push(input_usage(None, None));
    Ok(())
}
