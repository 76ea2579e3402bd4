//! The requests that deliver a batch: an object of S3-compatible storage, or rows of ClickHouse.
//!
//! A repeated delivery has the same name, so that storage replaces the object, and ClickHouse's replicated tables ignore the rows.
//!
//! Sources: "PutObject" in the S3 API reference; "HTTP Interface" and `insert_deduplication_token` in ClickHouse's documentation.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use jiff::Timestamp;
use url::Url;
use weir_outgoing::{self as outgoing, Client};
use weir_sandbox::printable;
use weir_storage::secrets::environment;
use weir_upstream::credential::Credential;
use weir_upstream::credential::aws;
use weir_upstream::credential::settings::{AwsSettings, CredentialSettings};

use crate::log_export::settings::{Destination, LogExportSettings};

/// Time limit of one delivery.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum bytes of a response in an error.
const MAX_REASON_BYTES: usize = 300;

const JSON_LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// ClickHouse sends this header if an insertion fails after it has sent a status.
const EXCEPTION: HeaderName = HeaderName::from_static("x-clickhouse-exception-code");

/// A destination of batches.
pub(super) struct Sink {
    http: Client,
    kind: SinkKind,
}

enum SinkKind {
    S3 {
        /// The bucket and the prefix, without a slash at the end.
        base: String,
        credential: Credential,
    },
    ClickHouse {
        url: Url,
        headers: HeaderMap,
    },
}

pub(super) struct Batch {
    /// A unique name of letters, digits, `_` and `-`.
    pub(super) name: String,
    /// The time of the first attempt.
    pub(super) at: Timestamp,
    /// Lines of JSON.
    pub(super) lines: Bytes,
}

/// A failed delivery, without any secret.
#[derive(Debug)]
pub(super) struct DeliveryError {
    pub(super) why: String,
    /// The status of the response, if there was one.
    status: Option<StatusCode>,
}

impl DeliveryError {
    /// Returns whether a repetition may succeed.
    pub(super) fn is_transient(&self) -> bool {
        self.status.is_none_or(|status| {
            !status.is_client_error()
                || matches!(
                    status,
                    StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
                )
        })
    }
}

impl Sink {
    /// Reads the secrets of a destination; `None` without one.
    pub(super) fn of(
        settings: &LogExportSettings,
        connect_timeout: Duration,
    ) -> anyhow::Result<Option<Self>> {
        let kind = match settings
            .destination()
            .map_err(|why| anyhow!("`url` {why}"))?
        {
            None => return Ok(None),
            Some(Destination::S3 { bucket, prefix }) => {
                let Some(CredentialSettings::Aws(keys)) = &settings.credential else {
                    bail!("`credential` must be {{ aws = {{ … }} }} for s3://");
                };
                s3(&bucket, &prefix, settings.endpoint.as_deref(), keys)?
            }
            Some(Destination::ClickHouse(url)) => clickhouse(url, settings)?,
        };
        let http = outgoing::client(connect_timeout)?;
        Ok(Some(Self { http, kind }))
    }

    /// Sends a batch once.
    pub(super) async fn deliver(&self, batch: &Batch) -> Result<(), DeliveryError> {
        match &self.kind {
            SinkKind::S3 { base, credential } => {
                let day = batch.at.strftime("%Y/%m/%d/%H%M%S");
                let url = format!("{base}/{day}-{}.jsonl", batch.name);
                self.put_object(&url, credential, batch).await
            }
            SinkKind::ClickHouse { url, headers } => {
                let mut url = url.clone();
                url.query_pairs_mut()
                    .append_pair("insert_deduplication_token", &batch.name);
                self.send(http::Method::POST, url.as_str(), headers.clone(), batch)
                    .await
            }
        }
    }

    async fn put_object(
        &self,
        url: &str,
        credential: &Credential,
        batch: &Batch,
    ) -> Result<(), DeliveryError> {
        let authorization = credential.authorize().await;
        let authorization = authorization.map_err(|error| unsent(&error))?;
        let request = Request::put(url).header(header::CONTENT_TYPE, JSON_LINES);
        let request = request.body(batch.lines.clone());
        let mut request = request.map_err(|error| unsent(&error))?;
        authorization.sign(&mut request);
        let headers = std::mem::take(request.headers_mut());
        let sent = self.send(http::Method::PUT, url, headers, batch).await;
        if let Err(error) = &sent
            && matches!(
                error.status,
                Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            )
        {
            credential.refuse();
        }
        sent
    }

    async fn send(
        &self,
        method: http::Method,
        url: &str,
        headers: HeaderMap,
        batch: &Batch,
    ) -> Result<(), DeliveryError> {
        let request = self.http.request(method, url).headers(headers);
        let request = request.body(batch.lines.clone()).timeout(TIMEOUT);
        let mut response = request
            .send()
            .await
            .map_err(|error| unsent(&outgoing::root_cause(error)))?;
        let status = response.status();
        if status.is_success() && !response.headers().contains_key(EXCEPTION) {
            return Ok(());
        }
        let mut reason = Vec::new();
        while reason.len() < MAX_REASON_BYTES
            && let Ok(Some(piece)) = response.chunk().await
        {
            reason.extend_from_slice(&piece);
        }
        let reason = printable(&String::from_utf8_lossy(&reason), MAX_REASON_BYTES);
        Err(DeliveryError {
            why: format!("{}: {reason}", status.as_u16()),
            status: Some(status),
        })
    }
}

/// A delivery without a response.
fn unsent(why: &impl ToString) -> DeliveryError {
    DeliveryError {
        why: why.to_string(),
        status: None,
    }
}

fn s3(
    bucket: &str,
    prefix: &str,
    endpoint: Option<&str>,
    keys: &AwsSettings,
) -> anyhow::Result<SinkKind> {
    let endpoint = match endpoint {
        Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
        None => format!("https://s3.{}.amazonaws.com", keys.region),
    };
    // All storage accepts the bucket in the path, and its certificate fits.
    let base = format!("{endpoint}/{bucket}/{prefix}");
    let keys = AwsSettings {
        service: Some(keys.service.clone().unwrap_or_else(|| aws::S3.to_owned())),
        ..keys.clone()
    };
    let credential = CredentialSettings::Aws(keys).read(environment);
    let credential = credential.map_err(|why| anyhow!("`credential`: {why}"))?;
    Ok(SinkKind::S3 {
        base: base.trim_end_matches('/').to_owned(),
        credential,
    })
}

fn clickhouse(mut url: Url, settings: &LogExportSettings) -> anyhow::Result<SinkKind> {
    let query = format!("INSERT INTO {} FORMAT JSONEachRow", settings.table);
    url.query_pairs_mut()
        .append_pair("query", &query)
        .append_pair("date_time_input_format", "best_effort")
        .append_pair("input_format_skip_unknown_fields", "1");
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, JSON_LINES);
    for (name, source) in &settings.headers {
        let invalid = || format!("`headers.{name}`");
        let secret = source.read(environment);
        let secret = secret.map_err(|why| anyhow!(why)).with_context(invalid)?;
        let mut value = HeaderValue::from_str(secret.expose()).with_context(invalid)?;
        value.set_sensitive(true);
        let name = HeaderName::try_from(name).with_context(invalid)?;
        headers.insert(name, value);
    }
    Ok(SinkKind::ClickHouse { url, headers })
}
