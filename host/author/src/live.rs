//! A provider whose responses are recorded.
//!
//! The adapter's requests go to the provider's base URL only, as in a gateway ([`destination`]). A recording has the status, the
//! headers that the adapter sees, and the body without the credential.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use weir_sandbox::adapter::bindings::adapter::{Description, HttpRequest};
use weir_storage::secrets::{self, Secret};
use weir_upstream::client::{HttpClient, SendError};
use weir_upstream::credential::Authorization;
use weir_upstream::destination::{self, BaseUrl, HostParts};
use weir_upstream::error::{ExchangeError, Phase};
use weir_upstream::redact::{self, Redactor};
use weir_upstream::response;

use crate::notes::note;
use crate::recording::RecordedResponse;

/// The time limit of a complete response.
const WITHIN: Duration = Duration::from_secs(600);

/// A provider and its recorded responses.
pub(crate) struct LiveProvider {
    base: BaseUrl,
    credential: Option<Secret>,
    http: HttpClient,
    response_bytes: u64,
    recorded: Vec<RecordedResponse>,
}

impl LiveProvider {
    /// Takes the base URL, and the name of the environment variable with the credential.
    pub(crate) fn new(
        base: &str,
        variable: Option<&str>,
        connect_timeout: Duration,
        response_bytes: u64,
    ) -> anyhow::Result<Self> {
        let credential = variable.map(|name| {
            let set = secrets::environment(name).filter(|value| !value.is_empty());
            set.map(Secret::new)
                .with_context(|| format!("the environment variable {name} is not set"))
        });
        let credential = credential.transpose()?;
        ensure!(
            credential
                .as_ref()
                .is_none_or(|secret| secret.expose().len() >= redact::MIN_BYTES),
            "the credential has fewer than {} bytes: weir cannot find so short a text in a response",
            redact::MIN_BYTES
        );
        Ok(Self {
            base: BaseUrl::parse(base).map_err(|why| anyhow!("the URL {why}"))?,
            credential,
            http: HttpClient::new(connect_timeout)?,
            response_bytes,
            recorded: Vec::new(),
        })
    }

    /// Sends the adapter's request and records the response.
    pub(crate) async fn send(
        &mut self,
        description: &Description,
        asked: HttpRequest,
        parts: HostParts<'_>,
    ) -> Result<RecordedResponse, ExchangeError> {
        let authorization = self.credential.as_ref().map(Authorization::Fixed);
        let request = destination::build(
            Some(&self.base),
            &description.credential,
            description,
            authorization.as_ref(),
            asked,
            parts,
        )?;
        let recording = tokio::time::timeout(WITHIN, self.exchange(description, request))
            .await
            .map_err(|_| ExchangeError::TimedOut(Phase::Total))??;
        self.recorded.push(recording.clone());
        Ok(recording)
    }

    async fn exchange(
        &self,
        description: &Description,
        request: http::Request<Bytes>,
    ) -> Result<RecordedResponse, ExchangeError> {
        let response = self.http.send(request).await.map_err(|error| match error {
            SendError::Connect => ExchangeError::Connect,
            SendError::BrokenOff => ExchangeError::BrokenOff,
        })?;
        let (head, mut body) = response.into_parts();
        if response::is_encoded(&head.headers) {
            return Err(ExchangeError::Encoded);
        }
        let credential = self.credential.as_ref().map(Secret::expose);
        let mut redactor = Redactor::new(credential);
        let mut kept = Vec::new();
        let mut left = self.response_bytes;
        while let Some(piece) = body.next().await.map_err(|_| ExchangeError::BrokenOff)? {
            left = left
                .checked_sub(piece.len() as u64)
                .ok_or(ExchangeError::TooLarge)?;
            kept.extend_from_slice(&redactor.push(piece));
        }
        kept.extend_from_slice(&redactor.finish());
        let shown = response::visible_headers(&head.headers, description, credential);
        let shown = shown.iter().filter_map(|(name, value)| {
            let name = HeaderName::try_from(name).ok()?;
            Some((name, HeaderValue::try_from(value).ok()?))
        });
        let mut headers = HeaderMap::new();
        for (name, value) in shown {
            headers.append(name, value);
        }
        Ok(RecordedResponse {
            status: head.status,
            headers,
            body: kept,
        })
    }

    /// Writes the recorded responses: the first to `NAME.http`, the next ones to `NAME.2.http`, `NAME.3.http` and so on.
    pub(crate) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let ending = file.extension().unwrap_or_default().to_string_lossy();
        for (recording, number) in self.recorded.iter().zip(1..) {
            let file = match number {
                1 => file.to_owned(),
                _ => file.with_extension(format!("{number}.{ending}")),
            };
            std::fs::write(&file, recording.to_bytes())
                .with_context(|| format!("writing {}", file.display()))?;
            note(format_args!("Wrote {}.", file.display()));
        }
        Ok(())
    }
}
