//! What stands between an exchange and its client: order of events, the client's dialect, backpressure,
//! and what happens when the client hangs up.
//!
//! The exchange runs in a task of its own, which outlives the client's connection. Toward the client
//! there is a channel: one message for a plain answer, pieces for a streamed one. A closed channel means
//! that the client is gone; the answer is then read on for a while, and discarded, so that the
//! upstream's count of tokens can still arrive.
//!
//! **Invariant:** every wait goes through [`Relay::within`] or is bounded as it is: by the request's deadline,
//! by a client that has been gone for too long, by shutdown.
//! **Invariant:** a stream that ends without saying so breaks off: a client never takes half an answer for a
//! whole one.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_dialects::{AnswerHead, Billed, Chunks, Dialect, Origin, Whole};
use weir_errors::ApiError;
use weir_upstream::error::{ExchangeError, Phase};
use weir_upstream::media::MediaPieces;
use weir_upstream::sequence::{OutOfOrder, Sequence};

use super::filters::AnswerScreen;
use super::idempotency::KeptAnswer;
use super::meter::{Meter, Spent};
use super::reply::{Begun, Piece, Reply, StreamReply};
use super::spans;
use crate::context::RequestContext;
use crate::inference::deltas::DeltaPublisher;
use crate::sessions::Turn;
use weir_ledger::idempotency::ClaimedKey;
use weir_sandbox::adapter::bindings::chat::{Event, FinishReason};

/// Pieces of a stream that wait for a client to read them. A piece is at most what one call of an
/// adapter yields: some hundred KiB, which as many clients may leave lying as there are turns.
const WAITING_PIECES: usize = 1;

/// The most names that a client is told as ignored, and bytes of each: they are a guest's words.
const MAX_IGNORED: usize = 32;
const MAX_IGNORED_BYTES: usize = 64;

/// How long a failure waits for a client to read what came before it.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(1);

/// What bounds a request as a whole, whichever upstream answers it.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// When it must be over, retries and fallbacks included.
    pub deadline: Instant,
    /// How long it goes on after its client hung up.
    pub drain: Duration,
    /// Fires when the gateway stops and has waited long enough.
    pub shutdown: CancellationToken,
    /// Tokens of the answer at most.
    pub output_limit: u32,
    /// Tokens of input and output together that the model takes.
    pub context_window: u32,
    /// Whether an answer without an image is none.
    pub wants_image: bool,
    /// Whether the answer is to be JSON: a client cannot use a part of it.
    pub wants_json: bool,
}

/// How an answer reaches the client that asked for it.
pub struct Relay {
    sequence: Sequence,
    media: MediaPieces,
    meter: Meter,
    /// After the meter, and dropped after it: a key ends when its hold has.
    key: Option<ClaimedKey>,
    /// The session that the request goes on with.
    session: Option<Turn>,
    /// Who is told what the model says as it comes, beside the client.
    teller: Option<DeltaPublisher>,
    /// The filters that all of these have the answer through.
    screen: Option<AnswerScreen>,
    /// Whether an upstream was sent the request: from then on it may ask to be paid.
    asked: bool,
    /// Advisory fields that the upstream cannot be told.
    ignored: Vec<String>,
    dialect: Dialect,
    /// Where each of the request's messages stands in what the client sent.
    origins: Vec<Origin>,
    client: Client,
    hung_up_at: Option<Instant>,
    /// When the first of the attempt's answer came, where it is streamed.
    streamed_at: Option<Instant>,
    /// How long the attempt has waited for the client to read.
    kept_waiting: Duration,
    bounds: Bounds,
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    timer: Timer,
    context: RequestContext,
    /// What the request occupies, such as its turn.
    held: Option<Box<dyn Send>>,
}

enum Client {
    Plain {
        answer: Whole,
        reply: oneshot::Sender<Result<Begun, ApiError>>,
    },
    Stream {
        chunks: Chunks,
        /// Until the first piece: the status line is not sent before there is an answer.
        begun: Option<oneshot::Sender<Result<Begun, ApiError>>>,
        pieces: mpsc::Sender<Piece>,
        /// Closed when the response is dropped. The pieces' own channel says so only to a future of its own, which each
        /// wait would have to make anew.
        gone: oneshot::Sender<Infallible>,
    },
}

impl Relay {
    /// For a client that wants the whole answer at once, in this dialect.
    pub(super) fn plain(
        dialect: Dialect,
        head: AnswerHead,
        meter: Meter,
        bounds: Bounds,
        context: RequestContext,
    ) -> (Self, Reply) {
        let (reply, begun) = oneshot::channel();
        let client = Client::Plain {
            answer: dialect.whole(head),
            reply,
        };
        (
            Self::new(dialect, client, meter, bounds, context),
            Reply::Whole(begun),
        )
    }

    /// For a client that wants the answer as it is made.
    pub(super) fn stream(
        dialect: Dialect,
        head: AnswerHead,
        meter: Meter,
        bounds: Bounds,
        context: RequestContext,
    ) -> (Self, Reply) {
        let (begun_sender, begun) = oneshot::channel();
        let (sender, pieces) = mpsc::channel(WAITING_PIECES);
        let (gone, here) = oneshot::channel();
        let client = Client::Stream {
            chunks: dialect.chunks(head.clone()),
            begun: Some(begun_sender),
            pieces: sender,
            gone,
        };
        let stream = StreamReply {
            begun,
            pieces,
            here,
            dialect: dialect.clone(),
            head,
        };
        (
            Self::new(dialect, client, meter, bounds, context),
            Reply::Stream(stream),
        )
    }

    fn new(
        dialect: Dialect,
        client: Client,
        meter: Meter,
        bounds: Bounds,
        context: RequestContext,
    ) -> Self {
        Self {
            sequence: Sequence::new(bounds.output_limit),
            media: MediaPieces::default(),
            meter,
            key: None,
            session: None,
            teller: None,
            screen: None,
            asked: false,
            ignored: Vec::new(),
            dialect,
            origins: Vec::new(),
            client,
            hung_up_at: None,
            streamed_at: None,
            kept_waiting: Duration::ZERO,
            bounds,
            stopping: None,
            timer: Timer::default(),
            context,
            held: None,
        }
    }

    /// Holds what the request occupies until its client hears how it ended.
    pub fn occupy(&mut self, held: impl Send + 'static) {
        self.held = Some(Box::new(held));
    }

    /// Notes where each of the request's messages stands in what the client sent, for errors about them.
    pub fn place_messages(&mut self, origins: Vec<Origin>) {
        self.origins = origins;
    }

    /// Whether the client wants the answer as it is made.
    pub fn is_stream(&self) -> bool {
        matches!(self.client, Client::Stream { .. })
    }

    /// What is held for the request.
    pub fn meter(&mut self) -> &mut Meter {
        &mut self.meter
    }

    /// Has the request's key end with the request.
    pub fn keep(&mut self, key: ClaimedKey) {
        self.key = Some(key);
    }

    /// Has the request and its answer appended to a session when the answer is charged.
    pub fn go_on_with(&mut self, session: Turn) {
        self.session = Some(session);
    }

    /// Has somebody beside the client told what the model says, as it comes.
    pub fn tell_as_it_comes(&mut self, teller: DeltaPublisher) {
        self.teller = Some(teller);
    }

    /// Has filters watch the answer.
    pub fn screen(&mut self, screen: Option<AnswerScreen>) {
        self.screen = screen;
    }

    /// Notes the advisory fields that the upstream cannot be told, as the adapter names them. The client is told with
    /// the head of the answer.
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
    }

    /// An attempt on a provider begins.
    pub fn begin_attempt(&mut self, provider: &str) {
        self.context.note_attempt(provider);
        self.meter.count_attempt();
        if let Some(session) = &mut self.session {
            session.answered_by(provider);
        }
        match &mut self.client {
            Client::Plain { answer, .. } => answer.answered_by(provider),
            Client::Stream { chunks, .. } => chunks.answered_by(provider),
        }
    }

    /// What is known of the request.
    pub fn context(&self) -> &RequestContext {
        &self.context
    }

    /// An upstream is sent the request.
    pub fn ask(&mut self) {
        self.asked = true;
    }

    /// Whether an upstream was sent the request in this attempt.
    pub fn was_asked(&self) -> bool {
        self.asked
    }

    /// Whether a failed request is paid for: the client has some of the answer, or hung up while it was made.
    fn is_owed(&self, error: &ExchangeError) -> bool {
        let delivered = self.is_stream() && self.sequence.any_output();
        let was_at_work = error.is_cut_off() && (self.asked || self.sequence.any_output());
        delivered || was_at_work && self.is_hung_up()
    }

    /// Whether the upstream may ask to be paid for a failed request: it has answered in part, or was cut off.
    fn has_cost(&self, error: &ExchangeError) -> bool {
        self.asked && (self.sequence.any_output() || error.is_cut_off())
    }

    /// Whether the client has been told anything: from then on there is no second attempt.
    pub fn has_begun(&self) -> bool {
        let told = matches!(self.client, Client::Stream { begun: None, .. });
        told || self.sequence.any_output()
    }

    /// Books what an attempt has cost that is cut off and not paid for by the client.
    pub fn write_off(&mut self) {
        self.meter.write_off(&self.sequence);
    }

    /// When the first of the attempt's answer came, where it is streamed.
    pub fn streamed_at(&self) -> Option<Instant> {
        self.streamed_at
    }

    /// How long the attempt has waited for the client to read.
    pub fn kept_waiting(&self) -> Duration {
        self.kept_waiting
    }

    /// Whether any of the answer has come.
    pub fn any_output(&self) -> bool {
        self.sequence.any_output()
    }

    /// Forgets an attempt that yielded nothing, for the next one.
    pub fn restart(&mut self) {
        self.sequence = Sequence::new(self.bounds.output_limit);
        self.media = MediaPieces::default();
        self.ignored.clear();
        self.streamed_at = None;
        self.kept_waiting = Duration::ZERO;
        self.asked = false;
        if let Some(teller) = &mut self.teller {
            teller.restart();
        }
        if let Some(screen) = &mut self.screen {
            screen.restart();
        }
        if let Client::Plain { answer, .. } = &mut self.client {
            answer.clear();
        }
    }

    /// Takes the next events. Waits while a streaming client does not read.
    pub async fn events(&mut self, events: Vec<Event>) -> Result<(), ExchangeError> {
        self.check()?;
        self.take(events).await?;
        if self.screen.as_ref().is_some_and(AnswerScreen::is_stopped) {
            return Err(ExchangeError::Spent);
        }
        // One that has said why it ended needs no other end.
        let is_delivered = self.is_stream() || self.teller.is_some();
        match self.meter.follow(&self.sequence, is_delivered) {
            Err(Spent) if self.sequence.end().is_err() => Err(ExchangeError::Spent),
            _ => Ok(()),
        }
    }

    async fn take(&mut self, events: Vec<Event>) -> Result<(), ExchangeError> {
        for event in &events {
            self.sequence.follow(event)?;
            if let Event::Started(started) = event {
                spans::note_start(&self.context, started);
            }
        }
        let events = match &mut self.screen {
            Some(screen) => screen.events(events).await?,
            None => events,
        };
        if let Some(session) = &mut self.session {
            for event in &events {
                session.event(event);
            }
        }
        if self.streamed_at.is_none() && self.is_stream() && self.sequence.any_output() {
            self.streamed_at = Some(Instant::now());
        }
        if let Some(teller) = &mut self.teller {
            teller.events(&events);
        }
        let events = self.media.assemble(events);
        match &mut self.client {
            Client::Plain { answer, .. } => {
                for event in events {
                    answer.push(event);
                }
                Ok(())
            }
            Client::Stream { chunks, .. } => {
                let mut piece = Vec::new();
                for event in &events {
                    chunks.event(event, &mut piece);
                }
                // Its client may take long to read it.
                drop(events);
                self.send(piece).await
            }
        }
    }

    /// Checks that the answer is complete.
    pub fn end(&mut self) -> Result<(), ExchangeError> {
        if self.bounds.wants_image && self.sequence.images() == 0 {
            return Err(OutOfOrder::NO_IMAGE.into());
        }
        self.sequence.end()?;
        match &mut self.screen {
            Some(screen) => screen.end(),
            None => Ok(()),
        }
    }

    /// Ends an answer that has used more than it may, as one that has reached its limit; or that a filter has ended, which
    /// has told the client so itself.
    pub async fn stop(&mut self) -> Result<(), ExchangeError> {
        if self.sequence.end().is_ok() {
            return Ok(());
        }
        let ends = self.sequence.cut(FinishReason::Length);
        self.take(ends).await
    }

    /// Ends a plain answer at the request's deadline. Text that has arrived ends as if it had reached its output limit; an
    /// answer that is complete stays as it is.
    ///
    /// # Errors
    ///
    /// The time-out, if the client cannot use what has arrived.
    pub async fn stop_at_deadline(&mut self) -> Result<(), ExchangeError> {
        match self.is_stream() {
            false if self.sequence.end().is_ok() => self.end(),
            false if !self.bounds.wants_json && self.sequence.is_usable_text() => self.stop().await,
            _ => Err(ExchangeError::TimedOut(Phase::Total)),
        }
    }

    /// Charges for the answer, then hands over the rest of it, or all of it.
    pub async fn finish(mut self) -> Result<(), ExchangeError> {
        let (billed, kept) = match self.settle(true).await {
            Ok(settled) => settled,
            Err(error) => {
                self.finish_late(error).await;
                return Ok(());
            }
        };
        // Before the client has all of its answer: its next turn finds this one.
        keep_turn(self.session.take()).await;
        let key = self.key.take();
        self.held = None;
        if self.is_stream() {
            // Not after the client has read everything, which may take its time.
            end_key(key).await;
            return self.finish_stream(&billed).await;
        }
        if let Client::Plain { answer, reply } = self.client {
            let answer = kept.unwrap_or_else(|| KeptAnswer {
                body: answer.into_body(&billed).into(),
                ignored: self.ignored,
            });
            // What could not all be paid has an answer that says so, which is there only now.
            if let Some(key) = key {
                key.end(Some(answer.to_bytes())).await;
            }
            // Nobody listens if the client is gone, and that is all right.
            let _ = reply.send(Ok(Begun {
                body: answer.body,
                replayed: false,
                ignored: answer.ignored,
            }));
        }
        Ok(())
    }

    /// Tells the client that the charge for its answer is late. A plain answer is kept for its key when it is charged, so
    /// that the client has it when it asks again.
    async fn finish_late(mut self, error: ApiError) {
        match (self.key.take(), self.client) {
            (Some(key), Client::Plain { answer, reply }) => {
                let _ = reply.send(Err(error));
                let billed = tokio::select! {
                    billed = self.meter.settle_late() => billed,
                    () = self.bounds.shutdown.cancelled() => None,
                };
                if billed.is_some() {
                    keep_turn(self.session).await;
                }
                let answer = billed.map(|billed| KeptAnswer {
                    body: answer.into_body(&billed).into(),
                    ignored: self.ignored,
                });
                key.end(answer.map(|answer| answer.to_bytes())).await;
            }
            (key, client) => {
                // It ends when its settlement has, without this request.
                drop(key);
                self.client = client;
                self.tell(error).await;
            }
        }
    }

    /// Charges for what was used. The request's key ends with that, in one commit, so that nobody pays for an answer that is
    /// lost: with the answer, which is returned, too, if it is a whole one. Where the account could not pay it all, the key
    /// is still there.
    async fn settle(&mut self, is_whole: bool) -> Result<(Billed, Option<KeptAnswer>), ApiError> {
        let _settling = self.context.trace_part("ledger.settle");
        let mut kept = None;
        let mut expected = None;
        let settling = self.meter.settle(&self.sequence, |billed| {
            expected = Some(billed.credits);
            let key = self.key.as_ref()?;
            if let (Client::Plain { answer, .. }, true) = (&self.client, is_whole) {
                kept = Some(KeptAnswer {
                    body: answer.clone().into_body(billed).into(),
                    ignored: self.ignored.clone(),
                });
            }
            let answer = kept.as_ref().map(KeptAnswer::to_bytes);
            key.ending(answer.as_deref())
        });
        let billed = settling.await?;
        self.context.note_charge(billed.tokens, billed.credits);
        if expected != Some(billed.credits) {
            return Ok((billed, None));
        }
        if let Some(key) = self.key.take() {
            key.ended();
        }
        Ok((billed, kept))
    }

    async fn finish_stream(&mut self, billed: &Billed) -> Result<(), ExchangeError> {
        let mut piece = Vec::new();
        if let Client::Stream { chunks, .. } = &mut self.client {
            chunks.finish(billed, &mut piece);
        }
        self.send(piece).await?;
        if let Client::Stream { pieces, .. } = &self.client {
            end(pieces).await;
        }
        Ok(())
    }

    /// Ends a request that failed: charges for what was delivered of it, or gives back what was held, then tells
    /// the client.
    pub async fn fail(mut self, mut error: ExchangeError) {
        if let ExchangeError::Failure(failure) = &mut error {
            for said in failure.param.iter_mut().chain([&mut failure.text]) {
                if let Some(own) = self.dialect.of_message(said, &self.origins) {
                    *said = own;
                }
            }
        }
        self.context.note_failure(&error);
        if self.is_owed(&error) {
            // The client is told why the answer ended, whatever becomes of the charge.
            let _ = self.settle(false).await;
            end_key(self.key.take()).await;
        } else {
            if self.has_cost(&error) {
                self.write_off();
            }
            // Which frees its key, too.
            self.meter.release().await;
        }
        if !matches!(error, ExchangeError::Abandoned) {
            let mut error = ApiError::from(error);
            if error.code() == "CONTEXT_LENGTH_EXCEEDED" {
                error = error.with_detail("context_window", self.bounds.context_window);
            }
            self.tell(error).await;
        }
    }

    /// Gives the client the answer of an earlier request that was the same.
    pub fn replay(mut self, answer: KeptAnswer) {
        self.held = None;
        // The same request is as plain as the earlier one, whose answer is not kept otherwise.
        if let Client::Plain { reply, .. } = self.client {
            let _ = reply.send(Ok(Begun {
                body: answer.body,
                replayed: true,
                ignored: answer.ignored,
            }));
        }
    }

    /// Tells the client that nothing was begun.
    pub async fn refuse(self, error: ApiError) {
        self.tell(error).await;
    }

    /// Tells the client of a failure: as the response, or as the stream's last event.
    async fn tell(mut self, error: ApiError) {
        self.held = None;
        match self.client {
            Client::Plain { reply, .. }
            | Client::Stream {
                begun: Some(reply), ..
            } => {
                let _ = reply.send(Err(error));
            }
            Client::Stream {
                mut chunks, pieces, ..
            } => {
                self.context.note_error(&error);
                let mut piece = Vec::new();
                chunks.error(&self.context.error_body(&error), &mut piece);
                // The deadline may be what failed, so that this has a short one of its own.
                let sent = tokio::time::timeout(FAILURE_TIMEOUT, async {
                    if pieces.send(Piece::Bytes(piece.into())).await.is_ok() {
                        end(&pieces).await;
                    }
                });
                let _ = sent.await;
            }
        }
    }

    /// Waits for `work` no longer than `limit` or than any of the request's bounds allows.
    pub async fn within<T>(
        &mut self,
        limit: Duration,
        phase: Phase,
        work: impl Future<Output = T>,
    ) -> Result<T, ExchangeError> {
        self.check()?;
        let until = Instant::now().checked_add(limit);
        let mut work = pin!(work);
        poll_fn(|context| {
            // What is there already needs no timer.
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            self.poll_over(until, phase, context).map(Err)
        })
        .await
    }

    /// Is ready when a wait is over for another reason than its work: what it waits for is late, or the request is over.
    fn poll_over(
        &mut self,
        until: Option<Instant>,
        phase: Phase,
        context: &mut Context<'_>,
    ) -> Poll<ExchangeError> {
        let shutdown = &self.bounds.shutdown;
        let stopping = self
            .stopping
            .get_or_insert_with(|| Box::pin(shutdown.clone().cancelled_owned()));
        if stopping.as_mut().poll(context).is_ready() {
            return Poll::Ready(ExchangeError::ShuttingDown);
        }
        self.look_for_client(context);
        let (at, error) = [
            (until, ExchangeError::TimedOut(phase)),
            (self.abandoned_at(), ExchangeError::Abandoned),
        ]
        .into_iter()
        .filter_map(|(at, error)| Some((at?, error)))
        .min_by_key(|(at, _)| *at)
        .filter(|(at, _)| *at < self.bounds.deadline)
        .unwrap_or((self.bounds.deadline, ExchangeError::TimedOut(Phase::Total)));
        self.timer.poll_until(at, context).map(|()| error)
    }

    /// Whether the request is over already: work that is always ready must not outrun its bounds.
    pub fn check(&self) -> Result<(), ExchangeError> {
        let now = Instant::now();
        if self.bounds.shutdown.is_cancelled() {
            return Err(ExchangeError::ShuttingDown);
        }
        if now >= self.bounds.deadline {
            return Err(ExchangeError::TimedOut(Phase::Total));
        }
        match self.abandoned_at() {
            Some(at) if now >= at => Err(ExchangeError::Abandoned),
            _ => Ok(()),
        }
    }

    /// Whether nobody waits for the answer any more.
    pub fn is_hung_up(&self) -> bool {
        self.hung_up_at.is_some()
            || match &self.client {
                Client::Plain { reply, .. } => reply.is_closed(),
                Client::Stream { gone, .. } => gone.is_closed(),
            }
    }

    /// Notes when the client hangs up, and otherwise sees to it that the task is woken then.
    fn look_for_client(&mut self, context: &mut Context<'_>) {
        if self.hung_up_at.is_some() {
            return;
        }
        let gone = match &mut self.client {
            Client::Plain { reply, .. } => reply.poll_closed(context),
            Client::Stream { gone, .. } => gone.poll_closed(context),
        };
        if gone.is_ready() {
            self.hung_up_at = Some(Instant::now());
        }
    }

    /// When to give up reading for a client that is gone.
    fn abandoned_at(&self) -> Option<Instant> {
        self.hung_up_at.map(|at| at + self.bounds.drain)
    }

    async fn send(&mut self, piece: Vec<u8>) -> Result<(), ExchangeError> {
        let Client::Stream { begun, pieces, .. } = &mut self.client else {
            return Ok(());
        };
        if piece.is_empty() || self.hung_up_at.is_some() {
            return Ok(());
        }
        if let Some(begun) = begun.take() {
            let _ = begun.send(Ok(Begun {
                ignored: std::mem::take(&mut self.ignored),
                ..Begun::default()
            }));
        }
        let pieces = pieces.clone();
        let sent = match pieces.try_send(Piece::Bytes(piece.into())) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            // The client is slower than the upstream.
            Err(mpsc::error::TrySendError::Full(piece)) => {
                let since = Instant::now();
                let sending = pieces.send(piece);
                let sent = self.within(Duration::MAX, Phase::Total, sending).await;
                self.kept_waiting += since.elapsed();
                sent?.is_ok()
            }
        };
        if !sent && self.hung_up_at.is_none() {
            self.hung_up_at = Some(Instant::now());
        }
        Ok(())
    }
}

/// The timer of a request's waits. Each is over at another time, and hardly ever late: the timer stays where it is until
/// it fires, and is then set to what is waited for by that time, so that a wait costs no more than a look at it.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    fn poll_until(&mut self, at: Instant, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        loop {
            std::task::ready!(sleep.as_mut().poll(context));
            if sleep.deadline() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
    }
}

async fn keep_turn(session: Option<Turn>) {
    if let Some(session) = session {
        session.keep().await;
    }
}

/// Ends a request's key without an answer, before the client is told: it may ask again at once.
async fn end_key(key: Option<ClaimedKey>) {
    if let Some(key) = key {
        key.end(None).await;
    }
}

/// Says that a stream is complete.
async fn end(pieces: &mpsc::Sender<Piece>) {
    let _ = pieces.send(Piece::End).await;
}
