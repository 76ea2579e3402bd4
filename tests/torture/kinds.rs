//! Requests of the kinds besides chats and images, with a known charge each.

use bytes::Bytes;
use serde_json::{Value, json};
use tests::recording::{self, FORM, wav};
use tests::upstream::Request;
use tests::{Reply, Upstream};
use weir_ledger::Credits;

use crate::money::{TEXT, price};

/// Tokens of [`TEXT`] by its bytes.
const ESTIMATED: u64 = 1;

/// Tokens that a provider reports: at most twice as many.
const REPORTED: u64 = 2;

/// A kind of request. Each has a model of its name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Embeddings,
    Rerank,
    Moderation,
    Speech,
    Transcription,
}

pub(crate) const ALL: [Kind; 5] = [
    Kind::Embeddings,
    Kind::Rerank,
    Kind::Moderation,
    Kind::Speech,
    Kind::Transcription,
];

impl Kind {
    /// Returns all kinds in turn.
    pub(crate) fn in_turn(number: u64) -> Self {
        ALL[number as usize % ALL.len()]
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embeddings => "embeddings",
            Self::Rerank => "rerank",
            Self::Moderation => "moderation",
            Self::Speech => "speech",
            Self::Transcription => "transcription",
        }
    }

    /// Returns path, media type and body of a request.
    pub(crate) fn request(self) -> (&'static str, &'static str, Bytes) {
        let model = self.name();
        let json = |path, body: Value| (path, "application/json", Bytes::from(body.to_string()));
        match self {
            Self::Embeddings => json("/v1/embeddings", json!({ "model": model, "input": TEXT })),
            Self::Rerank => json(
                "/v1/rerank",
                json!({ "model": model, "query": "q", "documents": [TEXT] }),
            ),
            Self::Moderation => json("/v1/moderations", json!({ "model": model, "input": TEXT })),
            Self::Speech => json(
                "/v1/audio/speech",
                json!({ "model": model, "input": TEXT, "voice": "alloy" }),
            ),
            Self::Transcription => {
                let form = recording::form(&wav(1), &[("model", model)]);
                ("/v1/audio/transcriptions", FORM, form)
            }
        }
    }

    /// Returns the charge of a request.
    pub(crate) fn price(self) -> Credits {
        match self {
            Self::Embeddings => price(REPORTED, 0),
            Self::Moderation => price(ESTIMATED, 0),
            // 0.01 USD, times 1.4.
            Self::Rerank | Self::Transcription => Credits::whole(14),
            // 20 USD a million characters, times 1.4.
            Self::Speech => Credits::from_micro(28_000 * TEXT.len() as i64),
        }
    }

    /// Returns a provider's response, with the fields of openai-python 3.52.0 and cohere-python 7.3.1.
    pub(crate) fn reply(request: &Request) -> Reply {
        let json = |value: Value| Reply::json(200, &value);
        // A result for each text.
        let each = |field: &str, result: &dyn Fn(usize) -> Value| {
            let texts = request.json()[field].as_array().map_or(1, Vec::len);
            (0..texts).map(result).collect::<Value>()
        };
        match request.path.rsplit('/').next() {
            Some("embeddings") => json(json!({
                "object": "list", "model": "m", "usage": { "prompt_tokens": REPORTED, "total_tokens": REPORTED },
                "data": each("input", &|index| json!({
                    "object": "embedding", "index": index, "embedding": [0.5, -1.5],
                })),
            })),
            Some("rerank") => json(json!({
                "id": "r",
                "results": each("documents", &|index| json!({ "index": index, "relevance_score": 0.9 })),
                "meta": { "billed_units": { "search_units": 1.0 } },
            })),
            Some("moderations") => json(json!({
                "id": "m", "model": "m",
                "results": each("input", &|_| json!({ "flagged": false, "categories": {} })),
            })),
            Some("speech") => Reply::new(200)
                .header("content-type", "audio/mpeg")
                .body(vec![7; 5_000]),
            Some("transcriptions") => json(json!({ "text": TEXT })),
            _ => Reply::error(404, "no such path"),
        }
    }
}

/// Makes an upstream respond to each kind.
pub(crate) fn serve(upstream: &Upstream) {
    upstream.always_by(Kind::reply);
}

/// Returns the tables of this provider and of a model for each kind.
pub(crate) fn tables(upstream: &Upstream) -> String {
    let model = |kind: Kind| {
        let price = match kind {
            Kind::Embeddings | Kind::Moderation => "input = 5, output = 0",
            Kind::Rerank => "input = 0, output = 0, search = 0.01",
            Kind::Speech => "characters = 20",
            Kind::Transcription => "minute = 0.6",
        };
        format!(
            "[models.{name}]\nkind = \"{name}\"\ncontext_window = 100000\nprice = {{ {price} }}\n\
             upstreams = [{{ provider = \"kinds\" }}]\n",
            name = kind.name()
        )
    };
    format!(
        "[providers.kinds]\nadapter = \"openai\"\nbase_url = \"{}\"\n{}",
        upstream.base_url(),
        ALL.map(model).concat()
    )
}
