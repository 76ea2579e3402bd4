//! Vectors of texts (`POST /embeddings`), the order of documents (`POST /rerank`), and harmful content in texts
//! (`POST /moderations`).
//!
//! Servers of this dialect have the first and the last endpoint as OpenAI has them. The second one is Cohere's (base URL
//! `https://api.cohere.com/v2`), Jina's, vLLM's and, with the option `rerank-limit-field`, Voyage's.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_sdk::adapter::{
    BodyPart, EmbeddingRequest, EmbeddingsRequest, Event, Failure, HarmRequest, HttpRequest, Input,
    ModerationRequest, RankingRequest, RerankRequest, StartedExchange, Step,
};
use weir_sdk::media::{ANY, VectorExtractor, json_media};
use weir_sdk::response::{self, DataReader, ResponseReader, input_usage};
use weir_sdk::wire::{Fields, refuse};

use super::options::Options;
use super::{OpenAi, errors};

pub(super) const EMBEDDINGS: &str = "/embeddings";
pub(super) const RERANK: &str = "/rerank";
pub(super) const MODERATIONS: &str = "/moderations";

/// The place of a vector in a response.
const VECTOR: &[&str] = &["data", ANY, "embedding"];

/// Fields of each request that the adapter writes itself.
const OWN_FIELDS: [&str; 10] = [
    "model",
    "input",
    "dimensions",
    "output_dimension",
    "encoding_format",
    "input_type",
    "query",
    "documents",
    "top_n",
    "top_k",
];

#[derive(Serialize)]
struct EmbeddingsBody<'a> {
    model: &'a str,
    input: Inputs<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_dimension: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding_format: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_type: Option<&'a str>,
    #[serde(flatten)]
    fields: Fields<'a>,
}

/// The inputs: not every server has lists of tokens, and few accept both kinds.
#[derive(Serialize)]
#[serde(untagged)]
enum Inputs<'a> {
    Texts(Vec<&'a str>),
    Tokens(Vec<&'a [u32]>),
}

#[derive(Serialize)]
struct RerankBody<'a> {
    model: &'a str,
    query: &'a str,
    documents: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    top_n: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(flatten)]
    fields: Fields<'a>,
}

#[derive(Serialize)]
struct ModerationBody<'a> {
    model: &'a str,
    input: &'a [String],
    #[serde(flatten)]
    fields: Fields<'a>,
}

pub(super) fn embeddings(
    request: &EmbeddingsRequest,
    options: &Options<'_>,
) -> Result<StartedExchange<OpenAi>, Failure> {
    let EmbeddingRequest {
        model,
        inputs,
        dimensions,
        input_type,
        base64,
        extra,
    } = &request.task;
    if input_type.is_some() && !options.takes_input_type {
        return Err(refuse("input_type", "input_type"));
    }
    let limit_for = |field| dimensions.filter(|_| options.dimensions_field == field);
    let body = EmbeddingsBody {
        model,
        input: inputs_of(inputs)?,
        dimensions: limit_for("dimensions"),
        output_dimension: limit_for("output_dimension"),
        encoding_format: base64.then_some("base64"),
        input_type: input_type.as_deref(),
        fields: Fields::read(extra, &OWN_FIELDS, "")?,
    };
    let reader = DataReader::vectors(VECTOR, read_vectors);
    Ok(start_exchange(
        options.path(EMBEDDINGS, model),
        &body,
        reader,
    ))
}

fn inputs_of(inputs: &[Input]) -> Result<Inputs<'_>, Failure> {
    let mixed = || refuse("input", "input: tokens beside texts");
    match inputs.first() {
        Some(Input::Tokens(_)) => {
            let tokens = inputs.iter().map(|input| match input {
                Input::Tokens(tokens) => Ok(tokens.as_slice()),
                Input::Text(_) => Err(mixed()),
            });
            tokens.collect::<Result<_, _>>().map(Inputs::Tokens)
        }
        _ => {
            let texts = inputs.iter().map(|input| match input {
                Input::Text(text) => Ok(text.as_str()),
                Input::Tokens(_) => Err(mixed()),
            });
            texts.collect::<Result<_, _>>().map(Inputs::Texts)
        }
    }
}

pub(super) fn rerank(
    request: &RankingRequest,
    options: &Options<'_>,
) -> Result<StartedExchange<OpenAi>, Failure> {
    let RerankRequest {
        model,
        query,
        documents,
        top_n,
        extra,
    } = &request.task;
    let limit_for = |field| top_n.filter(|_| options.rerank_limit_field == field);
    let body = RerankBody {
        model,
        query,
        documents,
        top_n: limit_for("top_n"),
        top_k: limit_for("top_k"),
        fields: Fields::read(extra, &OWN_FIELDS, "")?,
    };
    let path = options.path(RERANK, model);
    Ok(start_exchange(path, &body, DataReader::new(read_ranking)))
}

pub(super) fn moderation(
    request: &HarmRequest,
    options: &Options<'_>,
) -> Result<StartedExchange<OpenAi>, Failure> {
    let ModerationRequest {
        model,
        inputs,
        extra,
    } = &request.task;
    let body = ModerationBody {
        model,
        input: inputs,
        fields: Fields::read(extra, &OWN_FIELDS, "")?,
    };
    let path = options.path(MODERATIONS, model);
    Ok(start_exchange(path, &body, DataReader::new(read_verdicts)))
}

fn start_exchange(
    path: String,
    body: &impl Serialize,
    reader: DataReader,
) -> StartedExchange<OpenAi> {
    let body = serde_json::to_vec(body).expect("plain structs serialize");
    StartedExchange {
        exchange: ResponseReader::of_data(reader),
        step: Step::Send(HttpRequest::post_json(path, vec![BodyPart::Bytes(body)])),
        ignored: Vec::new(),
    }
}

/// A response of any of these kinds. Voyage has a ranking under `data`.
#[derive(Deserialize)]
struct DataBody<Item> {
    #[serde(alias = "results")]
    data: Option<Vec<Item>>,
    usage: Option<WireUsage>,
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct VectorItem {
    embedding: String,
    index: Option<usize>,
}

#[derive(Deserialize, Serialize)]
struct RankedItem {
    index: usize,
    #[serde(alias = "score")]
    relevance_score: f64,
}

#[derive(Deserialize)]
struct WireUsage {
    prompt_tokens: Option<u64>,
    total_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Meta {
    billed_units: Option<BilledUnits>,
}

/// Cohere's units of its price.
#[derive(Deserialize)]
struct BilledUnits {
    search_units: Option<f64>,
    input_tokens: Option<f64>,
}

fn read_vectors(body: &str, count: usize, events: &mut Vec<Event>) -> Result<(), Failure> {
    let body: DataBody<VectorItem> = read(body)?;
    let items = body.data.as_deref().unwrap_or_default();
    let is_next = |(position, item): (usize, &VectorItem)| {
        let is_placed = item.index.is_none_or(|index| index == position);
        is_placed && VectorExtractor::is_vector(&item.embedding, position)
    };
    if items.len() != count || !items.iter().enumerate().all(is_next) {
        return Err(Failure::malformed(
            "the vectors are not in the order of the inputs",
        ));
    }
    events.push(body.usage());
    Ok(())
}

fn read_ranking(body: &str, _: usize, events: &mut Vec<Event>) -> Result<(), Failure> {
    let body: DataBody<RankedItem> = read(body)?;
    let Some(ranking) = &body.data else {
        return Err(Failure::malformed("the answer has no ranking"));
    };
    let json = serde_json::to_vec(ranking).expect("plain structs serialize");
    events.push(json_media(json));
    events.push(body.usage());
    Ok(())
}

fn read_verdicts(body: &str, _: usize, events: &mut Vec<Event>) -> Result<(), Failure> {
    let body: DataBody<&RawValue> = read(body)?;
    let verdicts = body.data.as_deref().unwrap_or_default().iter();
    events.extend(verdicts.map(|verdict| json_media(verdict.get().as_bytes().to_vec())));
    events.push(body.usage());
    Ok(())
}

fn read<'a, Item: Deserialize<'a>>(body: &'a str) -> Result<DataBody<Item>, Failure> {
    // An error may stand alone, beside nothing that an answer has.
    #[derive(Deserialize)]
    struct ErrorBody<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let error_body: ErrorBody<'_> =
        serde_json::from_str(body).map_err(|error| response::unreadable("one of data", &error))?;
    if error_body.error.is_some_and(errors::is_error) {
        return Err(errors::from_error(body));
    }
    serde_json::from_str(body).map_err(|error| response::unreadable("one of data", &error))
}

impl<Item> DataBody<Item> {
    fn usage(&self) -> Event {
        let reported = self.usage.as_ref();
        let tokens = reported.and_then(|usage| usage.prompt_tokens.or(usage.total_tokens));
        let billed = self
            .meta
            .as_ref()
            .and_then(|meta| meta.billed_units.as_ref());
        // Cohere's client declares these counts as floats (cohere 7, `types/api_meta_billed_units.py`).
        let count = |count: f64| (count >= 0.0).then_some(count.ceil() as u64);
        let billed_tokens = billed.and_then(|search_units| count(search_units.input_tokens?));
        let search_units = billed.and_then(|search_units| count(search_units.search_units?));
        input_usage(tokens.or(billed_tokens), search_units)
    }
}
