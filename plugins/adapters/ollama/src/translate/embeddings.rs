//! Vectors of texts: `POST /embed`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_sdk::adapter::{
    BodyPart, EmbeddingRequest, EmbeddingsRequest, Event, Failure, HttpRequest, Input,
    StartedExchange, Step,
};
use weir_sdk::media::{ANY, VectorExtractor};
use weir_sdk::response::{self, DataReader, ResponseReader, input_usage};
use weir_sdk::wire::{leave_out_fields, refuse};

use super::{Ollama, errors};

pub(super) const PATH: &str = "/embed";

/// The place of a vector in a response.
const VECTOR: &[&str] = &["embeddings", ANY];

#[derive(Serialize)]
struct EmbedBody<'a> {
    model: &'a str,
    input: Vec<&'a str>,
    /// The server would otherwise shorten long texts silently.
    truncate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
}

pub(super) fn begin(request: &EmbeddingsRequest) -> Result<StartedExchange<Ollama>, Failure> {
    let EmbeddingRequest {
        model,
        inputs,
        dimensions,
        input_type,
        base64: _,
        extra,
    } = &request.task;
    if input_type.is_some() {
        return Err(refuse("input_type", "input_type"));
    }
    let texts = inputs.iter().map(|input| match input {
        Input::Text(text) => Ok(text.as_str()),
        Input::Tokens(_) => Err(refuse("input", "input: tokens in place of text")),
    });
    let body = EmbedBody {
        model,
        input: texts.collect::<Result<_, _>>()?,
        truncate: false,
        dimensions: *dimensions,
    };
    let body = serde_json::to_vec(&body).expect("plain structs serialize");
    Ok(StartedExchange {
        exchange: ResponseReader::of_data(DataReader::vectors(VECTOR, read_vectors)),
        step: Step::Send(HttpRequest::post_json(
            PATH.to_owned(),
            vec![BodyPart::Bytes(body)],
        )),
        ignored: leave_out_fields(extra)?,
    })
}

#[derive(Deserialize)]
struct EmbedResponse<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    embeddings: Option<Vec<String>>,
    prompt_eval_count: Option<u64>,
}

fn read_vectors(body: &str, count: usize, events: &mut Vec<Event>) -> Result<(), Failure> {
    let response: EmbedResponse<'_> = serde_json::from_str(body)
        .map_err(|error| response::unreadable("one of vectors", &error))?;
    if response.error.is_some() {
        return Err(errors::from_error(body));
    }
    let vectors = response.embeddings.unwrap_or_default();
    let mut places = vectors.iter().enumerate();
    if vectors.len() != count
        || !places.all(|(index, text)| VectorExtractor::is_vector(text, index))
    {
        return Err(Failure::malformed("an item of the answer is no vector"));
    }
    events.push(input_usage(response.prompt_eval_count, None));
    Ok(())
}
