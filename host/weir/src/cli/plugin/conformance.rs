//! The requests and the recorded answers that weir's own adapters are held to (`tests/conformance`), for others' to be
//! tried with.

use anyhow::anyhow;
use weir_dialects::{self as dialect, ChatCall};

use super::given;
use super::recording::Recording;
use super::trial::TrialRequest;
use crate::cli::bundle;

/// The end of a request's name that `POST /v1/messages` takes; the others are for `POST /chat`.
const MESSAGES: &str = ".messages";

/// The end of an answer's name that is read for a request that asks for a stream.
const STREAMED: &str = "-stream";

/// The names of all requests.
pub(super) fn requests() -> impl Iterator<Item = &'static str> {
    bundle().requests.iter().map(|(name, _)| *name)
}

/// A request of this name.
pub(super) fn call(name: &str) -> anyhow::Result<ChatCall> {
    let request = bundle().requests.iter().find(|(known, _)| *known == name);
    let (_, body) = request.ok_or_else(|| anyhow!("there is no request {name}"))?;
    let read = if name.ends_with(MESSAGES) {
        dialect::read_messages(body.as_bytes())
    } else {
        dialect::read_own(body.as_bytes())
    };
    read.map(given::with_limit)
        .map_err(|error| anyhow!("{name}: {}", error.message()))
}

/// The plainest request, for which an answer of this name is read.
pub(super) fn asked_for(answer: &str) -> anyhow::Result<TrialRequest> {
    let name = if answer.ends_with(STREAMED) {
        "streamed"
    } else {
        "basic"
    };
    call(name).map(TrialRequest::from)
}

/// The recorded answers of a dialect, e.g. `openai-chat`: their folder is named as what the dialect's name begins with.
pub(super) fn answers(dialect: &str) -> anyhow::Result<Vec<(&'static str, Recording)>> {
    let of_dialect = bundle()
        .responses
        .iter()
        .filter(|(whose, ..)| dialect.split('-').next() == Some(whose));
    of_dialect
        .map(|(_, name, bytes)| {
            let recording =
                Recording::parse(bytes).map_err(|why| anyhow!("the answer {name}: {why}"))?;
            Ok((*name, recording))
        })
        .collect()
}
