//! An upstream that is asked, for what it answers to be recorded.
//!
//! What the adapter asks goes where its upstream's base URL says and nowhere else, as in the gateway
//! ([`destination`]). Of an answer are kept its status, the headers that the adapter is shown, and its body, in which the
//! credential is blotted out.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use weir_dialects::Attachment;
use weir_sandbox::adapter::bindings::adapter::{Description, HttpRequest};
use weir_storage::secrets::{self, Secret};
use weir_upstream::client::{HttpClient, SendError};
use weir_upstream::destination::{self, BaseUrl};
use weir_upstream::redact::{self, Redactor};

use super::recording::Recording;
use weir_upstream::error::{ExchangeError, Phase};
use weir_upstream::response;

/// How long an answer may take, all of it.
const WITHIN: Duration = Duration::from_secs(600);

/// An upstream, and what it has answered so far.
pub(super) struct Live {
    base: BaseUrl,
    credential: Option<Secret>,
    http: HttpClient,
    answer_bytes: u64,
    recorded: Vec<Recording>,
}

impl Live {
    /// One with this base URL, and the credential that an environment variable holds.
    pub(super) fn new(
        base: &str,
        variable: Option<&str>,
        connect_timeout: Duration,
        answer_bytes: u64,
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
            "the credential has less than {} bytes, and would not be found in an answer",
            redact::MIN_BYTES
        );
        Ok(Self {
            base: BaseUrl::parse(base).map_err(|why| anyhow!("the URL {why}"))?,
            credential,
            http: HttpClient::new(connect_timeout)?,
            answer_bytes,
            recorded: Vec::new(),
        })
    }

    /// Sends what the adapter asks for, and keeps what comes back.
    pub(super) async fn ask(
        &mut self,
        description: &Description,
        asked: HttpRequest,
        attachments: &[Attachment],
    ) -> Result<Recording, ExchangeError> {
        let credential = self.credential.as_ref();
        let request = destination::build(
            Some(&self.base),
            description,
            credential,
            asked,
            attachments,
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
    ) -> Result<Recording, ExchangeError> {
        let answer = self.http.send(request).await.map_err(|error| match error {
            SendError::Connect => ExchangeError::Connect,
            SendError::BrokenOff => ExchangeError::BrokenOff,
        })?;
        let (head, mut body) = answer.into_parts();
        if response::is_encoded(&head.headers) {
            return Err(ExchangeError::Encoded);
        }
        let credential = self.credential.as_ref().map(Secret::expose);
        let mut redactor = Redactor::new(credential);
        let mut kept = Vec::new();
        let mut left = self.answer_bytes;
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
        Ok(Recording {
            status: head.status,
            headers,
            body: kept,
        })
    }

    /// Writes what has been answered: the first one to this file, the second to one that has a 2 before its ending, and so
    /// on.
    pub(super) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let ending = file.extension().unwrap_or_default().to_string_lossy();
        for (recording, number) in self.recorded.iter().zip(1..) {
            let file = match number {
                1 => file.to_owned(),
                _ => file.with_extension(format!("{number}.{ending}")),
            };
            std::fs::write(&file, recording.to_bytes())
                .with_context(|| format!("writing {}", file.display()))?;
            eprintln!("{} is written.", file.display());
        }
        Ok(())
    }
}
