//! One attempt at one request: drives an adapter's state machine and performs its I/O.
//!
//! The adapter says what to send. The host checks the destination, adds the credential, sends the request, and passes
//! the response back piece by piece. Events go to the [`Relay`], which applies the client's backpressure: while the
//! client does not read, weir reads nothing from the upstream.
//!
//! **Invariant:** every wait ends: at one of the upstream's timeouts, at the request's deadline, at the end of a stream's
//! drain time, or at shutdown. **Invariant:** every loop is bounded, for any sequence of the guest's steps.

use std::mem;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;
use weir_dialects::Attachment;
use weir_dialects::hosted::{self, HostedTerms};
use weir_plugins::Component;
use weir_sandbox::ConfigureError;
use weir_sandbox::adapter::bindings::adapter::{
    Failure, FailureKind, HttpRequest, HttpResponseHead, Progress, Request, Setting, Step, Task,
};
use weir_sandbox::adapter::long_texts::{self, LongTexts};
use weir_sandbox::adapter::{
    AdapterCallError, AdapterRequest, BegunExchange, GuestExchange, RequestRef,
};
use weir_upstream::client::{HttpClient, SendError, UpstreamBody};
use weir_upstream::credential::Authorization;
use weir_upstream::destination::{self, HostParts};
use weir_upstream::error::{ExchangeError, MAX_OTHER_STEPS, MAX_SENDS, MAX_WAITS, Phase};
use weir_upstream::redact::Redactor;
use weir_upstream::response::{is_encoded, visible_headers};
use weir_upstream::{Upstream, UpstreamTimeouts};

use super::leniency::LenientRequest;
use super::pace::StreamPace;
use super::prompt_caching;
use super::relay::Relay;

use crate::recordings::{OpenRecording, Recorder};

/// The option of adapters with the fields and tools that an operator lets through.
const PASS_FIELDS: &str = "pass-fields";

/// The adapters' name for reasoning, in the list of ignored fields.
const REASONING: &str = "reasoning";

/// The inputs of an exchange.
pub struct ExchangeInputs<'a> {
    /// The shared client.
    pub http: &'a HttpClient,
    /// The target.
    pub upstream: &'a Upstream,
    /// Options of the component for this upstream and model.
    pub options: &'a [Setting],
    /// Whether searches of the web have a price.
    pub has_search_price: bool,
    /// The component that translates.
    pub adapter: &'a Component,
    /// The request. It is the same after the exchange.
    pub request: &'a mut AdapterRequest,
    /// Whether weir removed another provider's reasoning from the request.
    pub is_without_reasoning: bool,
    /// Whether weir set the request's marks of cached prefixes, so that the client need not know that they are left out.
    pub has_own_marks: bool,
    /// The names of advisory fields that earlier steps left out.
    pub ignored: &'a [String],
    /// The names of fields that weir may drop if the adapter refuses them.
    pub droppable: &'a [String],
    /// The approximate size of the client's body, in bytes.
    pub request_bytes: usize,
    /// The bytes of the request's attachments.
    pub attachments: &'a [Attachment],
    /// The maximum bytes of a response.
    pub answer_bytes: u64,
    /// The time between two reads of a fast stream.
    pub stream_flush: Duration,
    /// The upstream's time limits for this model.
    pub timeouts: UpstreamTimeouts,
    /// Whether another upstream is available.
    pub has_next: bool,
    /// The recorder of exchanges.
    pub recorder: &'a Recorder,
}

impl ExchangeInputs<'_> {
    /// Runs the exchange to its end.
    pub async fn run(&mut self, relay: &mut Relay) -> Result<(), ExchangeError> {
        let slot = &self.upstream.adapter;
        // Recordings have chats and images only.
        let is_recorded = self.request.task().is_some();
        let mut tape = is_recorded.then(|| self.recorder.tape(slot)).flatten();
        let mut lenient = LenientRequest::default();
        let outcome = self.run_steps(&mut lenient, relay, tape.as_mut()).await;
        if let Some(tape) = tape
            && let Some(request) = lenient.request.as_ref().or(self.request.task())
        {
            self.recorder
                .keep(tape, slot, request, self.request_bytes, self.attachments);
        }
        outcome.map_err(|error| match error {
            ExchangeError::Failure(mut failure) => {
                // Clients get the upstream's original error only if they speak its dialect.
                if self.adapter.description.dialect != self.request.client().dialect {
                    failure.upstream_error = None;
                }
                ExchangeError::Failure(failure)
            }
            error => error,
        })
    }

    async fn run_steps(
        &mut self,
        lenient: &mut LenientRequest,
        relay: &mut Relay,
        mut tape: Option<&mut OpenRecording>,
    ) -> Result<(), ExchangeError> {
        let configuration = match self.adapter.configuration(self.options).await {
            Ok(configuration) => configuration,
            Err(ConfigureError::Guest(error)) => return Err(error.into()),
            Err(error) => {
                let provider = &self.upstream.name;
                tracing::error!(provider, %error, "the adapter rejects the provider's options");
                return Err(ExchangeError::Misconfigured(error));
            }
        };
        let begun = loop {
            let task = lenient.request.as_ref().or(self.request.task());
            let failure = match task.and_then(|request| self.unseen_feature(request)) {
                Some(failure) => failure,
                None => match self.begin(lenient, &configuration).await {
                    Err(AdapterCallError::Failure(failure)) => failure,
                    begun => break begun?,
                },
            };
            let dialect = &self.adapter.description.dialect;
            let is_changed = self.request.task().is_some_and(|original| {
                lenient.leave_out(&failure, original, dialect, self.droppable)
            });
            if !is_changed {
                return Err(ExchangeError::Failure(lenient.original_place(failure)));
            }
        };
        let (mut guest, long_texts) = (begun.exchange, begun.long_texts);
        let mut ignored = self.ignored.to_vec();
        ignored.extend(mem::take(&mut lenient.ignored));
        let is_of_client = |name: &String| !self.has_own_marks || name != prompt_caching::MARK;
        ignored.extend(begun.ignored.into_iter().filter(is_of_client));
        if self.is_without_reasoning && !ignored.iter().any(|name| name == REASONING) {
            ignored.push(REASONING.to_owned());
        }
        relay.ignore(&ignored);
        let mut step = begun.step;
        let (mut sends, mut others) = (0, 0);
        let mut may_wait = MAX_WAITS;
        loop {
            match step {
                Step::Send(request) => {
                    sends += 1;
                    if sends > MAX_SENDS {
                        return Err(ExchangeError::TooManySteps);
                    }
                    let texts = self.texts(lenient, &long_texts);
                    let tape = tape.as_deref_mut();
                    self.send(&mut guest, request, &texts, relay, tape).await?;
                }
                Step::Emit(events) => {
                    others += 1;
                    relay.events(events).await?;
                }
                Step::Wait(milliseconds) => {
                    others += 1;
                    let pause = Duration::from_millis(milliseconds.into());
                    // The wait fails at once, because it could not end in time.
                    may_wait = may_wait
                        .checked_sub(pause)
                        .ok_or(ExchangeError::WaitedTooLong)?;
                    let pause = tokio::time::sleep(pause);
                    relay.within(Duration::MAX, Phase::Total, pause).await?;
                }
                Step::Done => return relay.end(),
            }
            if others > MAX_OTHER_STEPS {
                return Err(ExchangeError::TooManySteps);
            }
            step = guest.next().await?;
        }
    }

    /// Begins the exchange. The long texts of a chat stay with the host, if the adapter can do without them.
    async fn begin(
        &mut self,
        lenient: &mut LenientRequest,
        configuration: &[u8],
    ) -> Result<BegunExchange, AdapterCallError> {
        let (adapter, size) = (self.adapter, self.request_bytes);
        let request = match (&mut lenient.request, &mut *self.request) {
            (Some(changed), _) | (None, AdapterRequest::Task(changed)) => changed,
            (None, AdapterRequest::Other(other)) => {
                let request = RequestRef::Other(other);
                return GuestExchange::begin(adapter, request, size, configuration).await;
            }
        };
        let most_bytes = long_texts::MOST_BYTES;
        GuestExchange::begin_without_texts(adapter, request, most_bytes, size, configuration).await
    }

    /// Returns the texts that the adapter did not get.
    fn texts<'t>(&'t self, lenient: &'t LenientRequest, long_texts: &LongTexts) -> Vec<&'t str> {
        let request = lenient.request.as_ref().or(self.request.task());
        request.map_or_else(Vec::new, |request| long_texts.of(request))
    }

    /// Returns the refusal of a request that lets its provider do what weir neither counts nor prices.
    fn unseen_feature(&self, request: &Request) -> Option<Failure> {
        let Task::Chat(chat) = &request.task else {
            return None;
        };
        let mut options = self.options.iter();
        let pass_fields = options.find(|(name, _)| name == PASS_FIELDS);
        let terms = HostedTerms {
            dialect: &request.client.dialect,
            pass_fields: pass_fields.map_or("", |(_, names)| names.as_str()),
            has_search_price: self.has_search_price,
        };
        let feature = hosted::unseen_feature(chat, terms)?;
        Some(Failure {
            kind: FailureKind::Unsupported,
            text: feature.text,
            param: Some(feature.param),
            retry_after_ms: None,
            code: None,
            upstream_error: None,
        })
    }

    async fn send(
        &self,
        guest: &mut GuestExchange,
        asked: HttpRequest,
        texts: &[&str],
        relay: &mut Relay,
        mut tape: Option<&mut OpenRecording>,
    ) -> Result<(), ExchangeError> {
        let authorization = match &self.upstream.credential {
            Some(credential) => {
                let authorizing = credential.authorize();
                let authorized = relay.within(Duration::MAX, Phase::Total, authorizing);
                Some(authorized.await??)
            }
            None => None,
        };
        let mut request = destination::build(
            self.upstream.base.as_ref(),
            self.upstream.slot(&self.adapter.description),
            &self.adapter.description,
            authorization.as_ref(),
            asked,
            HostParts {
                attachments: self.attachments,
                texts,
            },
        )?;
        // The host sets this header; guests neither see nor set it.
        if let Some(trace) = relay.context().trace_onward() {
            trace.write(request.headers_mut());
        }
        if relay.is_hung_up() && !relay.was_asked() {
            // No provider has begun, and nobody awaits the response.
            return Err(ExchangeError::Abandoned);
        }
        relay.ask();
        // Image streams begin only when an image is ready, even if the client wants a stream.
        let is_streamed = self.request.chat().is_some_and(|chat| chat.stream);
        // Images and long reasoning may rightly take longer than `first_byte`: without a stream, it applies only while
        // another upstream is available.
        let (first_byte, limit, phase) = match is_streamed {
            true => {
                let limits = &self.timeouts;
                (limits.first_byte, limits.first_token, Phase::FirstToken)
            }
            false => (Duration::MAX, self.timeouts.first_byte, Phase::FirstByte),
        };
        let patience = FirstDataWait {
            until: self.has_next.then(|| Instant::now() + limit),
            phase,
            blanks: BlankBytes::default(),
        };
        let response = self.answer(request, first_byte, &patience, relay).await?;
        let credential = authorization.as_ref().and_then(Authorization::shown);
        let (head, body) = response.into_parts();
        relay.note_status(head.status);
        if head.status == StatusCode::UNAUTHORIZED
            && let Some(credential) = &self.upstream.credential
        {
            credential.refuse();
        }
        if is_encoded(&head.headers) {
            return Err(ExchangeError::Encoded);
        }
        let shown = HttpResponseHead {
            status: head.status.as_u16(),
            headers: visible_headers(&head.headers, &self.adapter.description, credential),
        };
        if let Some(tape) = &mut tape {
            tape.head(shown.status, &shown.headers);
        }
        guest.head(&shown).await?;
        let answer = UpstreamAnswer {
            is_refusal: head.status.as_u16() >= 400,
            body,
            redactor: Redactor::new(credential),
            tape,
        };
        self.read(guest, answer, patience, relay).await?;
        let progress = guest.end().await?;
        advance(relay, progress).await
    }

    async fn answer(
        &self,
        request: http::Request<Bytes>,
        first_byte: Duration,
        patience: &FirstDataWait,
        relay: &mut Relay,
    ) -> Result<http::Response<UpstreamBody>, ExchangeError> {
        let (limit, phase) = patience.limit(first_byte, Phase::FirstByte, relay);
        let answer = relay.within(limit, phase, self.http.send(request));
        answer.await?.map_err(|error| match error {
            SendError::Connect => ExchangeError::Connect,
            SendError::BrokenOff => ExchangeError::BrokenOff,
        })
    }

    async fn read(
        &self,
        guest: &mut GuestExchange,
        UpstreamAnswer {
            is_refusal,
            mut body,
            mut redactor,
            mut tape,
        }: UpstreamAnswer<'_>,
        mut patience: FirstDataWait,
        relay: &mut Relay,
    ) -> Result<(), ExchangeError> {
        let mut left = self.answer_bytes;
        let mut complete = false;
        let mut pace = StreamPace::new(match relay.is_stream() {
            true => self.stream_flush,
            false => Duration::ZERO,
        });
        while !complete {
            if let Some(at) = pace.next_read() {
                let pause = tokio::time::sleep_until(at);
                relay.within(Duration::MAX, Phase::Total, pause).await?;
            }
            let asked = Instant::now();
            let idle = self.timeouts.idle;
            let (limit, phase) = patience.limit(idle, Phase::Idle, relay);
            let piece = relay
                .within(limit, phase, body.next())
                .await?
                .map_err(|_| ExchangeError::BrokenOff)?;
            let bytes = match piece {
                Some(piece) => {
                    pace.note_piece(piece.len(), asked.elapsed());
                    patience.note_piece(&piece);
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
            if let Some(tape) = &mut tape {
                tape.body(&bytes);
                if complete {
                    tape.end();
                }
            }
            if bytes.is_empty() {
                continue;
            }
            if is_refusal {
                relay.note_refusal(&bytes);
            }
            let progress = guest.body(&bytes).await?;
            // The bytes are dropped first, because a slow client may take long to read the events.
            drop(bytes);
            pace.note_events(&progress.events);
            advance(relay, progress).await?;
        }
        Ok(())
    }
}

/// An upstream's response after its headers.
struct UpstreamAnswer<'a> {
    /// Whether its status is an error.
    is_refusal: bool,
    body: UpstreamBody,
    redactor: Redactor,
    tape: Option<&'a mut OpenRecording>,
}

/// The time for a response to begin, if another upstream is available.
#[derive(Debug)]
struct FirstDataWait {
    until: Option<Instant>,
    /// The first token of a stream, or the first byte of any other response's content.
    phase: Phase,
    blanks: BlankBytes,
}

impl FirstDataWait {
    /// Returns the timeout of a wait and its phase: while no data has arrived, the time to begin also applies.
    fn limit(&self, limit: Duration, phase: Phase, relay: &Relay) -> (Duration, Phase) {
        let until = self.until.filter(|_| !relay.any_output());
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match left {
            Some(left) if left < limit => (left, self.phase),
            _ => (limit, phase),
        }
    }

    fn note_piece(&mut self, piece: &[u8]) {
        // A stream has begun with its first token.
        if self.phase == Phase::FirstByte && self.until.is_some() && self.blanks.is_content(piece) {
            self.until = None;
        }
    }
}

/// Bytes of a busy provider that keep a connection open before its response: blanks before JSON, and comments of an event
/// stream. DeepSeek documents both ("Rate Limit": empty lines, and `: keep-alive`).
#[derive(Debug, Default)]
struct BlankBytes {
    is_in_comment: bool,
}

impl BlankBytes {
    /// Returns whether the next piece has other bytes. No JSON and no format of recordings begins with a colon.
    fn is_content(&mut self, piece: &[u8]) -> bool {
        piece.iter().any(|byte| match byte {
            b'\n' | b'\r' => {
                self.is_in_comment = false;
                false
            }
            _ if self.is_in_comment => false,
            b' ' | b'\t' => false,
            b':' => {
                self.is_in_comment = true;
                false
            }
            _ => true,
        })
    }
}

/// Passes events on, then returns the failure after them, if any.
async fn advance(relay: &mut Relay, progress: Progress) -> Result<(), ExchangeError> {
    relay.events(progress.events).await?;
    match progress.failure {
        None => Ok(()),
        Some(failure) => Err(ExchangeError::Failure(failure)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_comments_are_no_content_wherever_they_are_cut() {
        let blank = b"\n\n \t\r\n: keep-alive\n\n:\r\n: {\"a\": 1}\n";
        for content in [&b"{"[..], b"[", b"data: {}", b"ID3", b"\0"] {
            for cut in 0..=blank.len() {
                let mut bytes = BlankBytes::default();
                let (first, second) = blank.split_at(cut);
                assert!(!bytes.is_content(first) && !bytes.is_content(second));
                assert!(bytes.is_content(content), "{content:?}");
            }
        }
    }
}
