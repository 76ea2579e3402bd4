//! One attempt at one request: drives an adapter's state machine and does its I/O.
//!
//! The adapter says what to send; the host checks where it goes, adds the credential, sends it, and feeds
//! the answer back piece by piece. Events go to the [`Relay`], which applies the client's backpressure:
//! while the client does not read, nothing more is read from the upstream.
//!
//! **Invariant:** every wait ends: at the upstream's idle or first-byte time-out, at the request's
//! deadline, when the client has been gone for too long, or at shutdown.
//! **Invariant:** every loop is bounded, whatever the guest says it wants next.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::HeaderName;
use http::header;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::destination::{self, DestinationError};
use super::redact::Redactor;
use super::relay::Relay;
use super::sequence::OutOfOrder;
use super::upstream::{HttpClient, Upstream};
use crate::plugins::bindings::adapter::{
    Failure, Header, HttpRequest, HttpResponseHead, Request, Step,
};
use crate::plugins::guest_log::printable;
use crate::plugins::{Adapter, GuestError, GuestExchange};

/// Requests that an adapter may send in one exchange.
pub(crate) const MAX_SENDS: u32 = 4;

/// Steps other than requests that it may take.
pub(crate) const MAX_OTHER_STEPS: u32 = 64;

/// Bytes that are handed to the adapter in one call when more are there already.
pub(crate) const COALESCED_BYTES: usize = 64 << 10;

/// Response headers that adapters may see, beside those that begin with `x-ratelimit-`.
const VISIBLE_HEADERS: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::RETRY_AFTER,
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("x-should-retry"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("request-id"),
    HeaderName::from_static("openai-processing-ms"),
    HeaderName::from_static("anthropic-ratelimit-requests-reset"),
];

/// What an exchange has at hand.
pub struct Exchange<'a> {
    /// The shared client.
    pub http: &'a HttpClient,
    /// Who is asked.
    pub upstream: &'a Upstream,
    /// Who translates.
    pub adapter: &'a Adapter,
    /// What is asked.
    pub request: &'a Request,
    /// Bytes of the largest answer.
    pub answer_bytes: u64,
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The adapter says why.
    #[error("{}", describe_failure(.0))]
    Failure(Failure),
    /// The adapter itself failed.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The adapter wanted to send what it may not.
    #[error("the adapter's request is refused: {0}")]
    Destination(#[from] DestinationError),
    /// The adapter's events make no answer.
    #[error("the adapter's events make no answer: {0}")]
    OutOfOrder(OutOfOrder),
    /// The adapter went on and on.
    #[error("the adapter took more than {MAX_SENDS} requests or {MAX_OTHER_STEPS} other steps")]
    TooManySteps,
    /// Nothing serves in the upstream's slot: nothing was sent.
    #[error("no adapter is in service")]
    NoAdapter,
    /// No connection: nothing was sent.
    #[error("the upstream cannot be reached")]
    Connect,
    /// The connection broke after the request was sent.
    #[error("the upstream broke off")]
    BrokenOff,
    /// The upstream took too long.
    #[error("the upstream took too long: {0}")]
    TimedOut(Phase),
    /// The answer is larger than weir takes, or than the output limit allows.
    #[error("the upstream's answer is too large")]
    TooLarge,
    /// The answer has used more than it may: it ends here, and is none the worse.
    #[error("the answer has used more than it may")]
    Spent,
    /// The client hung up, and the upstream did not finish within the drain.
    #[error("the client hung up")]
    Abandoned,
    /// The gateway stops.
    #[error("the gateway is shutting down")]
    ShuttingDown,
}

/// What was being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The head of the answer.
    FirstByte,
    /// The next piece of the answer.
    Idle,
    /// The whole request.
    Total,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::FirstByte => "no answer began",
            Self::Idle => "the answer paused",
            Self::Total => "the request's time was up",
        })
    }
}

impl Exchange<'_> {
    /// Runs the exchange to its end.
    pub async fn run(&self, relay: &mut Relay) -> Result<(), ExchangeError> {
        let mut guest = GuestExchange::begin(self.adapter, self.request, &self.upstream.options)
            .await?
            .map_err(ExchangeError::Failure)?;
        let (mut sends, mut others) = (0, 0);
        loop {
            match guest.next().await?.map_err(ExchangeError::Failure)? {
                Step::Send(request) => {
                    sends += 1;
                    if sends > MAX_SENDS {
                        return Err(ExchangeError::TooManySteps);
                    }
                    self.send(&mut guest, request, relay).await?;
                    continue;
                }
                Step::Emit(events) => relay.events(events).await?,
                Step::Wait(milliseconds) => {
                    let pause = tokio::time::sleep(Duration::from_millis(milliseconds.into()));
                    relay.within(Duration::MAX, Phase::Total, pause).await?;
                }
                Step::Done => return Ok(relay.end()?),
            }
            others += 1;
            if others > MAX_OTHER_STEPS {
                return Err(ExchangeError::TooManySteps);
            }
        }
    }

    async fn send(
        &self,
        guest: &mut GuestExchange,
        asked: HttpRequest,
        relay: &mut Relay,
    ) -> Result<(), ExchangeError> {
        let request = destination::build(
            self.upstream.base.as_ref(),
            &self.adapter.description.credential,
            self.upstream.credential.as_ref(),
            asked,
        )?;
        let first_byte = if relay.is_stream() {
            self.upstream.timeouts.first_byte
        } else {
            Duration::MAX
        };
        relay.ask();
        let response = relay
            .within(first_byte, Phase::FirstByte, self.http.request(request))
            .await?
            .map_err(|error| {
                // The error's own text may hold an address; its class is enough.
                if error.is_connect() {
                    ExchangeError::Connect
                } else {
                    ExchangeError::BrokenOff
                }
            })?;
        let credential = self
            .upstream
            .credential
            .as_ref()
            .map(|secret| secret.expose());
        let (head, body) = response.into_parts();
        guest
            .head(&HttpResponseHead {
                status: head.status.as_u16(),
                headers: visible_headers(&head.headers, credential),
            })
            .await?
            .map_err(ExchangeError::Failure)?;
        self.read(guest, body, Redactor::new(credential), relay)
            .await?;
        let events = guest.end().await?.map_err(ExchangeError::Failure)?;
        relay.events(events).await
    }

    async fn read(
        &self,
        guest: &mut GuestExchange,
        body: Incoming,
        mut redactor: Redactor,
        relay: &mut Relay,
    ) -> Result<(), ExchangeError> {
        let mut pieces = Pieces { body, broken: None };
        let mut left = self.answer_bytes;
        let mut complete = false;
        while !complete {
            let piece = relay
                .within(self.upstream.timeouts.idle, Phase::Idle, pieces.next())
                .await?
                .map_err(|_| ExchangeError::BrokenOff)?;
            let bytes = match piece {
                Some(piece) => {
                    left = left
                        .checked_sub(piece.len() as u64)
                        .ok_or(ExchangeError::TooLarge)?;
                    redactor.push(piece)
                }
                None => {
                    complete = true;
                    redactor.finish()
                }
            };
            if bytes.is_empty() {
                continue;
            }
            let events = guest.body(&bytes).await?.map_err(ExchangeError::Failure)?;
            relay.events(events).await?;
        }
        Ok(())
    }
}

impl From<OutOfOrder> for ExchangeError {
    fn from(error: OutOfOrder) -> Self {
        if error == OutOfOrder::TOO_MUCH {
            Self::TooLarge
        } else {
            Self::OutOfOrder(error)
        }
    }
}

impl ExchangeError {
    /// How long to wait before trying again, where trying again is safe: nothing reached the upstream,
    /// or it said itself that it did not take the request.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Connect | Self::Failure(Failure::Unavailable(_) | Failure::RateLimited(None)) => {
                Some(Duration::ZERO)
            }
            Self::Failure(Failure::RateLimited(Some(milliseconds))) => {
                Some(Duration::from_millis((*milliseconds).into()))
            }
            _ => None,
        }
    }
}

/// An answer's body, read in pieces as large as what is there already, up to a bound.
struct Pieces {
    body: Incoming,
    /// An error that came right behind bytes: those are handed on first, and it must not be lost, since
    /// a body that broke off would pass for one that ended.
    broken: Option<hyper::Error>,
}

impl Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let Some(first) = data(self.body.frame().await)? else {
            return Ok(None);
        };
        let mut more = BytesMut::new();
        while first.len() + more.len() < COALESCED_BYTES {
            match self.body.frame().now_or_never().map(data) {
                Some(Ok(Some(bytes))) => more.extend_from_slice(&bytes),
                Some(Err(error)) => {
                    self.broken = Some(error);
                    break;
                }
                // The end shows again at the next call.
                Some(Ok(None)) | None => break,
            }
        }
        if more.is_empty() {
            return Ok(Some(first));
        }
        let mut all = BytesMut::with_capacity(first.len() + more.len());
        all.extend_from_slice(&first);
        all.extend_from_slice(&more);
        Ok(Some(all.freeze()))
    }
}

/// The bytes of a frame; trailers count as none.
fn data(
    frame: Option<Result<hyper::body::Frame<Bytes>, hyper::Error>>,
) -> Result<Option<Bytes>, hyper::Error> {
    match frame {
        None => Ok(None),
        Some(frame) => Ok(Some(frame?.into_data().unwrap_or_default())),
    }
}

/// Those of an answer's headers that the adapter is shown.
pub(crate) fn visible_headers(headers: &http::HeaderMap, credential: Option<&str>) -> Vec<Header> {
    headers
        .iter()
        .filter(|(name, _)| {
            VISIBLE_HEADERS.contains(name) || name.as_str().starts_with("x-ratelimit-")
        })
        .filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        })
        .filter(|(_, value)| credential.is_none_or(|credential| !value.contains(credential)))
        .collect()
}

/// For the log. Refusals of what the client sent often quote it, so that their texts stay out.
fn describe_failure(failure: &Failure) -> String {
    let (what, text) = match failure {
        Failure::Unsupported(_) => return "the adapter cannot express the request".into(),
        Failure::Rejected(_) => return "the upstream rejected the request".into(),
        Failure::ContextLength(_) => return "the request is too long for the model".into(),
        Failure::Filtered(_) => return "the upstream refused the content".into(),
        Failure::RateLimited(_) => return "the upstream limits weir's rate".into(),
        Failure::Unauthorized(text) => ("the upstream refused weir's credential", text),
        Failure::Unavailable(text) => ("the upstream is unavailable", text),
        Failure::Malformed(text) => ("the upstream's answer makes no sense", text),
    };
    format!("{what}: {}", printable(text, 300))
}
