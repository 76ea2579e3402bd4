//! Vectors of texts and orders of documents, by the words that they share, and verdicts on texts.
//!
//! Each word of a text adds one to a dimension that its hash chooses; the vector then has the length 1. Texts with the
//! same words therefore have similar vectors.

use serde::Serialize;
use serde_json::json;
use weir_sdk::adapter::{
    EmbeddingRequest, Event, Failure, FailureKind, Input, ModerationRequest, RerankRequest, Step,
};
use weir_sdk::chat::FinishReason;
use weir_sdk::media::json_media;
use weir_sdk::response::input_usage;
use weir_sdk::wire::leave_out_fields;

/// The dimensions of a vector, unless the request wants another number.
const DIMENSIONS: u32 = 64;
const MAX_DIMENSIONS: u32 = 4_096;

/// Bytes of a token.
const TOKEN_BYTES: usize = 4;

#[derive(Serialize)]
struct RankedDocument {
    index: usize,
    relevance_score: f64,
}

/// Returns the complete response, and the names of omitted fields.
pub(crate) fn embed(task: &EmbeddingRequest) -> Result<(Step, Vec<String>), Failure> {
    let dimensions = task.dimensions.unwrap_or(DIMENSIONS);
    if dimensions > MAX_DIMENSIONS {
        let text = format!("dimensions: at most {MAX_DIMENSIONS}");
        return Err(Failure::new(FailureKind::Rejected, &text).with_param("dimensions"));
    }
    if task.input_type.is_some() {
        return Err(Failure::unsupported("input_type").with_param("input_type"));
    }
    let ignored = leave_out_fields(&task.extra)?;
    let (mut events, mut tokens) = (Vec::new(), 0);
    for input in &task.inputs {
        let (vector, count) = match input {
            Input::Text(text) => (
                vector(words(text), dimensions),
                text.len().div_ceil(TOKEN_BYTES),
            ),
            Input::Tokens(tokens) => {
                let words = tokens.iter().map(|token| hash(&token.to_le_bytes()));
                (vector(words, dimensions), tokens.len())
            }
        };
        events.push(json_media(vector));
        tokens += count as u64;
    }
    events.push(input_usage(Some(tokens), None));
    events.push(Event::Finish(FinishReason::Stop));
    Ok((Step::Emit(events), ignored))
}

/// Returns the complete response, and the names of omitted fields.
pub(crate) fn rank(task: &RerankRequest) -> Result<(Step, Vec<String>), Failure> {
    let ignored = leave_out_fields(&task.extra)?;
    let query_words: Vec<_> = words(&task.query).collect();
    let score = |document: &String| {
        let document_words: Vec<_> = words(document).collect();
        let shared = query_words
            .iter()
            .filter(|word| document_words.contains(word))
            .count();
        shared as f64 / query_words.len().max(1) as f64
    };
    let documents = task.documents.iter().enumerate();
    let mut ranking: Vec<_> = documents
        .map(|(index, document)| RankedDocument {
            index,
            relevance_score: score(document),
        })
        .collect();
    ranking.sort_by(|a, b| b.relevance_score.total_cmp(&a.relevance_score));
    if let Some(count) = task.top_n {
        ranking.truncate(count as usize);
    }
    let bytes = task.query.len() + task.documents.iter().map(String::len).sum::<usize>();
    let json = serde_json::to_vec(&ranking).expect("plain structs serialize");
    let units = task.documents.len().div_ceil(100) as u64;
    let events = vec![
        json_media(json),
        input_usage(Some(bytes.div_ceil(TOKEN_BYTES) as u64), Some(units)),
        Event::Finish(FinishReason::Stop),
    ];
    Ok((Step::Emit(events), ignored))
}

/// Returns the complete response, and the names of omitted fields. A text is harmful if it has the word "unsafe".
pub(crate) fn judge(task: &ModerationRequest) -> Result<(Step, Vec<String>), Failure> {
    let ignored = leave_out_fields(&task.extra)?;
    let harmful = hash(b"unsafe");
    let mut events: Vec<_> = task
        .inputs
        .iter()
        .map(|text| {
            let flagged = words(text).any(|word| word == harmful);
            let verdict = json!({
                "flagged": flagged,
                "categories": { "violence": flagged },
                "category_scores": { "violence": if flagged { 1.0 } else { 0.0 } },
            });
            json_media(verdict.to_string().into_bytes())
        })
        .collect();
    let bytes: usize = task.inputs.iter().map(String::len).sum();
    events.push(input_usage(Some(bytes.div_ceil(TOKEN_BYTES) as u64), None));
    events.push(Event::Finish(FinishReason::Stop));
    Ok((Step::Emit(events), ignored))
}

fn vector(words: impl Iterator<Item = u64>, dimensions: u32) -> Vec<u8> {
    let mut vector = vec![0_f32; dimensions as usize];
    for word in words {
        vector[(word % u64::from(dimensions)) as usize] += 1.0;
    }
    let length = vector.iter().map(|one| one * one).sum::<f32>().sqrt();
    match length > 0.0 {
        true => vector.iter_mut().for_each(|one| *one /= length),
        // A text of punctuation alone.
        false => vector[0] = 1.0,
    }
    serde_json::to_vec(&vector).expect("finite numbers serialize")
}

/// Returns the hashes of a text's words, in lower case.
fn words(text: &str) -> impl Iterator<Item = u64> {
    let words = text.split(|char: char| !char.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    words.map(|word| hash(word.to_lowercase().as_bytes()))
}

/// Hashes bytes by FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
