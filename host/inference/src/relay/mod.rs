//! The path of a response from an exchange to its client: checks the order of events, writes the client's dialect,
//! applies backpressure, and handles disconnects.
//!
//! The exchange runs in a separate task, which outlives the client's connection. A channel leads to the client: one
//! message for a plain response, pieces for a stream. A closed channel means that the client has disconnected. weir
//! then reads and discards the response, so that the upstream's usage can still arrive: a stream for a while, any other
//! response to its end, because its provider goes on and bills.
//!
//! **Invariant:** every wait goes through [`Relay::within`], or has the same bounds: the request's deadline, the drain
//! time, and shutdown. **Invariant:** the connection of an incomplete stream breaks, so a client never mistakes it for
//! a complete response.

mod client;
mod waits;

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use weir_dialects::{AnswerHead, BilledUsage, Dialect, MessageOrigin};
use weir_errors::ApiError;
use weir_ledger::idempotency::ClaimedKey;
use weir_request::content_log::ResponseContent;
use weir_request::context::RequestContext;
use weir_request::failed_requests::TEXT_BYTES;
use weir_sandbox::adapter::bindings::chat::{Event, FinishReason};
use weir_sandbox::{Digest, printable};
use weir_upstream::error::{ExchangeError, Phase};
use weir_upstream::media::MediaPieces;
use weir_upstream::sequence::{OutOfOrder, Sequence};

use self::client::{Client, WaitingPiece};
pub(super) use self::waits::RequestBounds;
use self::waits::Waits;
use super::filters::AnswerScreen;
use super::idempotency::StoredAnswer;
use super::meter::{LimitReached, Meter};
use super::reply::{Reply, ResponseStart};
use super::response_cache::ResponseRecorder;
use super::spans;
use crate::deltas::DeltaPublisher;
use crate::sessions::SessionTurn;

/// The maximum number of ignored names in a response, and the maximum bytes of each: a guest provides them.
const MAX_IGNORED: usize = 32;
const MAX_IGNORED_BYTES: usize = 64;

/// The limits of a response, from any upstream.
#[derive(Debug)]
pub(super) struct ResponseLimits {
    /// The maximum tokens of the response.
    pub output_limit: u32,
    /// The model's maximum of input and output tokens.
    pub context_window: u32,
    /// The maximum images of the response, if the request has a number of images.
    pub most_images: Option<u32>,
    /// Whether a response without an image or a recording is an error.
    pub wants_media: bool,
    /// Whether the response must be JSON, and a part of it is useless.
    pub wants_json: bool,
}

/// The terms of a response.
pub(super) struct RelayTerms {
    pub(super) dialect: Dialect,
    pub(super) head: AnswerHead,
    pub(super) is_stream: bool,
    pub(super) bounds: RequestBounds,
    pub(super) limits: ResponseLimits,
    /// The request's resources, such as its permit, until the client learns the end of the request.
    pub(super) held: Box<dyn Send>,
    /// The position of each message in the client's body, for errors about messages.
    pub(super) origins: Vec<MessageOrigin>,
    /// The session that gets the request and its response after the charge.
    pub(super) session: Option<SessionTurn>,
    /// The publisher of the model's output as it arrives, besides the client.
    pub(super) publisher: Option<DeltaPublisher>,
    /// The filters of the response.
    pub(super) screen: Option<AnswerScreen>,
    /// The recorder that stores the response for equal requests.
    pub(super) recorder: Option<Box<ResponseRecorder>>,
}

/// The delivery of a response to its client.
pub struct Relay {
    sequence: Sequence,
    media: MediaPieces,
    meter: Meter,
    /// The field follows the meter, so that it is dropped later: a key ends after its hold.
    key: Option<ClaimedKey>,
    /// The session of the request.
    session: Option<SessionTurn>,
    /// The publisher of the model's output, besides the client.
    publisher: Option<DeltaPublisher>,
    /// The filters of the response, before all of its receivers.
    screen: Option<AnswerScreen>,
    /// The recorder of the response before its filters, for the cache.
    recorder: Option<Box<ResponseRecorder>>,
    /// The response behind its filters, if its content is stored.
    content: Option<Box<ResponseLog>>,
    /// The HTTP status of the attempt's latest response.
    status: Option<StatusCode>,
    /// The beginning of the attempt's response with an error status.
    refusal: Vec<u8>,
    /// Advisory fields that the upstream does not receive.
    ignored: Vec<String>,
    dialect: Dialect,
    /// The position of each of the request's messages in the client's body.
    origins: Vec<MessageOrigin>,
    client: Client,
    /// The time of the attempt's first data, if it is a stream.
    streamed_at: Option<Instant>,
    /// The attempt's total wait for the client to read.
    kept_waiting: Duration,
    limits: ResponseLimits,
    waits: Waits,
    context: RequestContext,
    /// The request's resources, such as its permit.
    held: Option<Box<dyn Send>>,
}

/// The content of a response under construction. Its end, of any kind, passes it to the context.
struct ResponseLog {
    content: ResponseContent,
    context: RequestContext,
}

impl Drop for ResponseLog {
    fn drop(&mut self) {
        let content = std::mem::take(&mut self.content);
        self.context.log_response(content.finish());
    }
}

impl Relay {
    /// Returns the relay of a response, and the reply that it sends.
    pub(super) fn new(
        terms: RelayTerms,
        meter: Meter,
        context: RequestContext,
    ) -> (Box<Self>, Reply) {
        let RelayTerms {
            dialect,
            head,
            is_stream,
            bounds,
            limits,
            held,
            origins,
            session,
            publisher,
            screen,
            recorder,
        } = terms;
        let (client, reply) = match is_stream {
            true => Client::stream(&dialect, head),
            false => Client::plain(&dialect, head),
        };
        let content = context.logs_content().then(|| {
            Box::new(ResponseLog {
                content: ResponseContent::default(),
                context: context.clone(),
            })
        });
        let relay = Self {
            sequence: sequence(&limits, &dialect),
            media: MediaPieces::default(),
            meter,
            key: None,
            session,
            publisher,
            screen,
            recorder,
            content,
            status: None,
            refusal: Vec::new(),
            ignored: Vec::new(),
            dialect,
            origins,
            client,
            streamed_at: None,
            kept_waiting: Duration::ZERO,
            waits: Waits::new(bounds),
            limits,
            context,
            held: Some(held),
        };
        (Box::new(relay), reply)
    }

    /// Whether the client wants a stream.
    pub fn is_stream(&self) -> bool {
        self.client.is_stream()
    }

    /// The meter of the request.
    pub fn meter(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// Ends the request's key together with the request.
    pub fn keep(&mut self, key: ClaimedKey) {
        self.key = Some(key);
    }

    /// Records advisory fields that the upstream does not receive, by the adapter's names. The response's headers list
    /// them.
    pub fn ignore(&mut self, names: &[String]) {
        let fit = |name: &&String| {
            (1..=MAX_IGNORED_BYTES).contains(&name.len())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b',')
        };
        self.ignored = names
            .iter()
            .filter(fit)
            .take(MAX_IGNORED)
            .map(|name| self.dialect.field(name).into_owned())
            .collect();
        if let Some(recorder) = &mut self.recorder {
            recorder.ignore(&self.ignored);
        }
    }

    /// Begins an attempt on a provider with a component; the provider has this name of the model.
    pub fn begin_attempt(
        &mut self,
        provider: &str,
        model: &str,
        adapter: Digest,
        credential: Option<u32>,
    ) {
        self.status = None;
        self.refusal.clear();
        self.context.note_attempt(provider, adapter, credential);
        self.meter.count_attempt();
        if let Some(recorder) = &mut self.recorder {
            recorder.begin_attempt(provider, model);
        }
        self.answered_by(provider);
    }

    /// Sets whether the upstream streams its response in this attempt.
    pub fn expect_stream(&mut self, upstream_streams: bool) {
        self.waits.upstream_streams = upstream_streams;
    }

    /// Begins a response from the cache that a provider made, without these fields.
    pub fn begin_cached(&mut self, provider: &str, ignored: Vec<String>) {
        self.context.note_provider(provider);
        self.ignored = ignored;
        self.answered_by(provider);
    }

    fn answered_by(&mut self, provider: &str) {
        if let Some(session) = &mut self.session {
            session.answered_by(provider);
        }
        self.client.answered_by(provider);
    }

    /// The context of the request.
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// Records that weir sends the request to an upstream.
    pub fn ask(&mut self) {
        self.waits.asked = true;
    }

    /// Whether weir sent the request in this attempt.
    pub fn was_asked(&self) -> bool {
        self.waits.asked
    }

    /// Records the HTTP status of the upstream's response.
    pub fn note_status(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// Keeps the beginning of an upstream's response with an error status, for operators.
    pub fn note_refusal(&mut self, bytes: &[u8]) {
        let left = TEXT_BYTES.saturating_sub(self.refusal.len());
        self.refusal
            .extend_from_slice(&bytes[..bytes.len().min(left)]);
    }

    /// Records the failure of the current attempt.
    pub fn note_attempt_failure(&self, error: &ExchangeError) {
        let text = match error {
            _ if !self.refusal.is_empty() => String::from_utf8_lossy(&self.refusal),
            ExchangeError::Failure(failure) => (&*failure.text).into(),
            _ => "".into(),
        };
        let text = (!text.is_empty()).then(|| printable(&text, TEXT_BYTES));
        self.context
            .note_attempt_failure(self.status, error.kind(), text);
    }

    /// The HTTP status of the attempt's latest response.
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Whether the client pays for a failed request: it received a part of the response, or disconnected while the
    /// upstream was at work.
    fn is_owed(&self, error: &ExchangeError) -> bool {
        if self.is_repeated(error) {
            return false;
        }
        let delivered = self.is_stream() && self.sequence.any_output();
        let was_at_work = error.is_cut_off() && (self.waits.asked || self.sequence.any_output());
        delivered || was_at_work && self.is_hung_up()
    }

    /// Whether another node repeats a failed request: this one stops, and a swarm needs the response.
    fn is_repeated(&self, error: &ExchangeError) -> bool {
        let over = self.waits.bounds.over.as_ref();
        matches!(error, ExchangeError::ShuttingDown)
            && over.is_some_and(|over| !over.is_cancelled())
    }

    /// Whether the client pays the whole hold of a failed request: the gateway stops while a provider works on a response
    /// that the client no longer awaits, and whose usage nobody will learn.
    fn is_owed_whole(&self, error: &ExchangeError) -> bool {
        let is_accepted = self.waits.asked && self.status.is_none_or(|status| status.is_success());
        matches!(error, ExchangeError::ShuttingDown)
            && !self.is_repeated(error)
            && is_accepted
            && !self.waits.upstream_streams
            && self.is_hung_up()
    }

    /// Whether the upstream may charge for a failed request: it responded in part, or weir ended the attempt.
    fn has_cost(&self, error: &ExchangeError) -> bool {
        self.waits.asked && (self.sequence.any_output() || error.is_cut_off())
    }

    /// Whether the client received anything; if so, weir does not retry.
    pub fn has_begun(&self) -> bool {
        self.client.has_begun() || self.sequence.any_output()
    }

    /// Books the cost of an attempt that weir ended and the client does not pay.
    pub fn write_off(&mut self) {
        self.meter.write_off(&self.sequence);
    }

    /// The time of the attempt's first data, if it is a stream.
    pub fn streamed_at(&self) -> Option<Instant> {
        self.streamed_at
    }

    /// The attempt's total wait for the client to read.
    pub fn kept_waiting(&self) -> Duration {
        self.kept_waiting
    }

    /// The bytes of the model's output so far.
    pub fn received_bytes(&self) -> u64 {
        self.sequence.received().bytes
    }

    /// Whether any output has arrived.
    pub fn any_output(&self) -> bool {
        self.sequence.any_output()
    }

    /// Resets the relay after an attempt without output.
    pub fn restart(&mut self) {
        self.sequence = sequence(&self.limits, &self.dialect);
        self.media = MediaPieces::default();
        self.ignored.clear();
        self.streamed_at = None;
        self.kept_waiting = Duration::ZERO;
        self.waits.asked = false;
        if let Some(publisher) = &mut self.publisher {
            publisher.restart();
        }
        if let Some(screen) = &mut self.screen {
            screen.restart();
        }
        if let Some(log) = &mut self.content {
            log.content = ResponseContent::default();
        }
        self.client.clear();
    }

    /// Processes the next events. Waits while a stream's client does not read.
    pub async fn events(&mut self, events: Vec<Event>) -> Result<(), ExchangeError> {
        self.waits.check()?;
        self.take(events).await?;
        if self.screen.as_ref().is_some_and(AnswerScreen::is_stopped) {
            return Err(ExchangeError::Spent);
        }
        // An event with a finish reason ends the response already.
        match self.meter.follow(&self.sequence, self.is_stream()) {
            Err(LimitReached) if self.sequence.end().is_err() => Err(ExchangeError::Spent),
            _ => Ok(()),
        }
    }

    async fn take(&mut self, mut events: Vec<Event>) -> Result<(), ExchangeError> {
        let images = self.sequence.images();
        for event in &events {
            self.sequence.follow(event)?;
            if let Event::Started(started) = event {
                spans::note_start(&self.context, started);
            }
        }
        self.drop_surplus(&mut events, images);
        if let Some(recorder) = &mut self.recorder {
            recorder.events(&events);
        }
        let events = match &mut self.screen {
            Some(screen) => screen.events(events).await?,
            None => events,
        };
        if let Some(log) = &mut self.content {
            log.content.events(&events);
        }
        if let Some(session) = &mut self.session {
            for event in &events {
                session.event(event);
            }
        }
        if self.streamed_at.is_none() && self.is_stream() && self.sequence.any_output() {
            self.streamed_at = Some(Instant::now());
        }
        if let Some(publisher) = &mut self.publisher {
            publisher.events(&events);
        }
        let events = match self.dialect.streams_media() {
            true => events,
            false => self.media.assemble(events),
        };
        // The client may take long to read, and the events are dropped before.
        let piece = self.client.write(events);
        self.send(piece).await
    }

    /// Drops images, and previews of them, beyond the requested number. `images` have come before these events.
    fn drop_surplus(&mut self, events: &mut Vec<Event>, mut images: u32) {
        let Some(most) = self.limits.most_images else {
            return;
        };
        if self.sequence.images() < most {
            return;
        }
        let count = events.len();
        events.retain(|event| match event {
            Event::Media(media) => {
                let is_requested = images < most;
                images += u32::from(!media.is_preview);
                is_requested
            }
            _ => true,
        });
        if events.len() < count {
            self.meter.note_surplus();
        }
    }

    /// Checks that the response is complete.
    pub fn end(&mut self) -> Result<(), ExchangeError> {
        if self.limits.wants_media && self.sequence.media() == 0 {
            return Err(OutOfOrder::NO_MEDIA.into());
        }
        self.sequence.end()?;
        if self.client.check()? {
            self.meter.note_surplus();
        }
        match &mut self.screen {
            Some(screen) => screen.end(),
            None => Ok(()),
        }
    }

    /// Ends a response that has reached its limits, as a response at its output limit ends. If a filter ended the
    /// response, the filter has already written the end.
    pub async fn stop(&mut self) -> Result<(), ExchangeError> {
        if self.sequence.end().is_ok() {
            return Ok(());
        }
        let ends = self.sequence.cut(FinishReason::Length);
        self.take(ends).await
    }

    /// Ends a plain response at the request's deadline. Partial text ends as if it had reached the output limit; a
    /// complete response stays unchanged.
    ///
    /// # Errors
    ///
    /// Returns the timeout error if the client cannot use the partial response.
    pub async fn stop_at_deadline(&mut self) -> Result<(), ExchangeError> {
        match self.is_stream() {
            false if self.sequence.end().is_ok() => self.end(),
            false if !self.limits.wants_json && self.sequence.is_usable_text() => self.stop().await,
            _ => Err(ExchangeError::TimedOut(Phase::Total)),
        }
    }

    /// Charges for the response, then delivers the rest of it.
    pub async fn finish(mut self: Box<Self>) -> Result<(), ExchangeError> {
        let (billed, kept) = match self.settle(true).await {
            Ok(settled) => settled,
            Err(error) => {
                // Boxed, because it is rare, and its future is large.
                Box::pin(self.finish_late(error)).await;
                return Ok(());
            }
        };
        // The session is stored before the client has the complete response, so that the next turn finds this one.
        keep_turn(self.session.take()).await;
        // The same holds for an equal request.
        if let Some(recorder) = self.recorder.take()
            && !self.screen.as_ref().is_some_and(AnswerScreen::is_stopped)
        {
            Box::pin(recorder.store(self.limits.output_limit)).await;
        }
        let key = self.key.take();
        self.held = None;
        if self.is_stream() {
            // The key ends now, because the client may take long to read.
            end_key(key).await;
            return self.finish_stream(&billed).await;
        }
        if let Client::Plain { answer, reply } = self.client {
            let ignored = self.ignored;
            let answer = kept.unwrap_or_else(|| StoredAnswer {
                body: answer.into_body(&billed).into(),
                ignored,
            });
            // A response with a note about a partial charge is complete only now.
            if let Some(key) = key {
                key.end(Some(answer.to_bytes())).await;
            }
            // The send fails if the client has disconnected, which is no error.
            let _ = reply.send(Ok(ResponseStart {
                body: answer.body,
                replayed: false,
                ignored: answer.ignored,
            }));
        }
        Ok(())
    }

    /// Tells the client that the charge is late. After the charge, weir stores a plain response for its key, so that
    /// the client gets it on a retry.
    async fn finish_late(mut self: Box<Self>, error: ApiError) {
        match (self.key.take(), self.client) {
            (Some(key), Client::Plain { answer, reply }) => {
                let _ = reply.send(Err(error));
                let billed = tokio::select! {
                    billed = self.meter.settle_late() => billed,
                    () = self.waits.bounds.shutdown.cancelled() => None,
                };
                if billed.is_some() {
                    keep_turn(self.session).await;
                }
                let ignored = self.ignored;
                let answer = billed.map(|billed| StoredAnswer {
                    body: answer.into_body(&billed).into(),
                    ignored,
                });
                key.end(answer.map(|answer| answer.to_bytes())).await;
            }
            (key, client) => {
                // The key ends with its settlement, independent of this request.
                drop(key);
                self.client = client;
                self.tell(error).await;
            }
        }
    }

    /// Charges for the usage. The same commit ends the request's key, so that no client pays for a lost response. A
    /// plain response is stored with the key, and returned. If the account could not pay everything, the key stays
    /// open.
    async fn settle(
        &mut self,
        is_whole: bool,
    ) -> Result<(BilledUsage, Option<StoredAnswer>), ApiError> {
        let _settling = self.context.trace_part("ledger.settle");
        let mut kept = None;
        let mut expected = None;
        let settling = self.meter.settle(&self.sequence, |billed| {
            expected = Some(billed.credits);
            let key = self.key.as_ref()?;
            if is_whole && let Some(body) = self.client.body(billed) {
                kept = Some(StoredAnswer {
                    body: body.into(),
                    ignored: self.ignored.clone(),
                });
            }
            let answer = kept.as_ref().map(StoredAnswer::to_bytes);
            key.ending(answer.as_deref())
        });
        let billed = settling.await?;
        self.context
            .note_charge(billed.tokens, billed.quantity, billed.credits);
        if expected != Some(billed.credits) {
            return Ok((billed, None));
        }
        if let Some(key) = self.key.take() {
            key.ended();
        }
        Ok((billed, kept))
    }

    async fn finish_stream(&mut self, billed: &BilledUsage) -> Result<(), ExchangeError> {
        let piece = self.client.write_end(billed);
        self.send(piece).await?;
        self.client.end().await;
        Ok(())
    }

    /// Ends a failed request: charges for the delivered part, or releases the hold, then tells the client.
    pub async fn fail(mut self: Box<Self>, mut error: ExchangeError) {
        if let ExchangeError::Failure(failure) = &mut error {
            for said in failure.param.iter_mut().chain([&mut failure.text]) {
                if let Some(own) = self.dialect.of_message(said, &self.origins) {
                    *said = own;
                }
            }
        }
        self.context.note_failure(&error);
        if self.is_owed_whole(&error) {
            self.meter.charge_hold();
        }
        if self.is_owed(&error) {
            // The client gets the error even if the charge fails.
            let _ = self.settle(false).await;
            end_key(self.key.take()).await;
        } else {
            if self.has_cost(&error) {
                self.write_off();
            }
            // The release also ends the key.
            self.meter.release().await;
        }
        if matches!(error, ExchangeError::Abandoned) {
            self.context.note_disconnect();
        } else {
            let mut error = ApiError::from(error);
            if error.code() == "CONTEXT_LENGTH_EXCEEDED" {
                error = error.with_detail("context_window", self.limits.context_window);
            }
            self.tell(error).await;
        }
    }

    /// Sends the stored response of an identical earlier request.
    pub fn replay(mut self: Box<Self>, answer: StoredAnswer) {
        self.held = None;
        if let Some(log) = &mut self.content {
            log.content.replayed();
        }
        // Only plain responses are stored, so the identical request is plain, too.
        if let Client::Plain { reply, .. } = self.client {
            let _ = reply.send(Ok(ResponseStart {
                body: answer.body,
                replayed: true,
                ignored: answer.ignored,
            }));
        }
    }

    /// Refuses the request before anything began.
    pub async fn refuse(self: Box<Self>, error: ApiError) {
        self.tell(error).await;
    }

    /// Sends an error: as the response, or as the stream's last event.
    async fn tell(mut self: Box<Self>, error: ApiError) {
        self.held = None;
        self.client.tell(error, &self.context).await;
    }

    /// Waits for `work` until `limit` or the first of the request's bounds.
    pub async fn within<T>(
        &mut self,
        limit: Duration,
        phase: Phase,
        work: impl Future<Output = T>,
    ) -> Result<T, ExchangeError> {
        self.waits
            .within(&mut self.client, limit, phase, work)
            .await
    }

    /// Whether the client has disconnected.
    pub fn is_hung_up(&self) -> bool {
        self.waits.has_hung_up() || self.client.is_gone()
    }

    async fn send(&mut self, piece: Vec<u8>) -> Result<(), ExchangeError> {
        if piece.is_empty() || self.waits.has_hung_up() {
            return Ok(());
        }
        let is_there = match self.client.send(piece, &mut self.ignored) {
            Ok(is_there) => is_there,
            // The client is slower than the upstream.
            Err(WaitingPiece { pieces, piece }) => {
                let since = Instant::now();
                let sending = pieces.send(piece);
                let sent = self.within(Duration::MAX, Phase::Total, sending).await;
                self.kept_waiting += since.elapsed();
                sent?.is_ok()
            }
        };
        if !is_there {
            self.waits.note_hang_up();
        }
        Ok(())
    }
}

/// Returns the state of a response before its first event.
fn sequence(limits: &ResponseLimits, dialect: &Dialect) -> Sequence {
    Sequence::new(limits.output_limit).with_streamed_media(dialect.streams_media())
}

async fn keep_turn(session: Option<SessionTurn>) {
    if let Some(session) = session {
        // Boxed, so that a request without a session has no room for it.
        Box::pin(session.keep()).await;
    }
}

/// Ends a request's key without a response, before the client learns of the failure, so that a retry finds the key
/// free.
async fn end_key(key: Option<ClaimedKey>) {
    if let Some(key) = key {
        key.end(None).await;
    }
}
