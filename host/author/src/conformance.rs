//! The requests and recorded responses of `tests/conformance`, which weir's own adapters are tested with.

use anyhow::anyhow;
use weir_dialects::{self as dialect, ChatCall};
use weir_plugins::bundled::Bundle;

use crate::input;
use crate::recording::RecordedResponse;
use crate::trial::TrialRequest;

/// The end of the names of requests to `POST /v1/messages`. All other requests are for `POST /chat`.
const MESSAGES: &str = ".messages";

/// The end of the names of responses to a request for a stream.
const STREAMED: &str = "-stream";

/// The conformance files that the program embeds.
#[derive(Debug, Clone, Copy)]
pub struct Conformance(&'static Bundle);

impl Conformance {
    /// Takes the embedded files.
    pub fn new(bundle: &'static Bundle) -> Self {
        Self(bundle)
    }

    pub(crate) fn requests(self) -> impl Iterator<Item = &'static str> {
        self.0.requests.iter().map(|(name, _)| *name)
    }

    /// Parses a request by its name.
    pub(crate) fn call(self, name: &str) -> anyhow::Result<ChatCall> {
        let request = self.0.requests.iter().find(|(known, _)| *known == name);
        let (_, body) = request.ok_or_else(|| anyhow!("there is no request {name}"))?;
        let read = if name.ends_with(MESSAGES) {
            dialect::read_messages(body.as_bytes())
        } else {
            dialect::read_own(body.as_bytes())
        };
        read.map(input::with_limit)
            .map_err(|error| anyhow!("{name}: {}", error.message()))
    }

    /// Returns the simplest request that a recorded response of this name may answer.
    pub(crate) fn request_for(self, response: &str) -> anyhow::Result<TrialRequest> {
        let name = if response.ends_with(STREAMED) {
            "streamed"
        } else {
            "basic"
        };
        self.call(name).map(TrialRequest::from)
    }

    /// Returns the recorded responses of a dialect, such as `openai-chat`. The first word of the dialect is the name of their
    /// folder.
    pub(crate) fn responses(
        self,
        dialect: &str,
    ) -> anyhow::Result<Vec<(&'static str, RecordedResponse)>> {
        let of_dialect = self
            .0
            .responses
            .iter()
            .filter(|(provider, ..)| dialect.split('-').next() == Some(provider));
        of_dialect
            .map(|(_, name, bytes)| {
                let recording = RecordedResponse::parse(bytes)
                    .map_err(|why| anyhow!("the response {name}: {why}"))?;
                Ok((*name, recording))
            })
            .collect()
    }
}
