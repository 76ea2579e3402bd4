//! The bounds of a request's waits: its deadline, the drain time after a disconnect, and shutdown.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_upstream::error::{ExchangeError, Phase};

use super::client::Client;

/// The bounds of a request's waits, on any upstream.
pub(crate) struct RequestBounds {
    /// The deadline, retries and fallbacks included.
    pub(crate) deadline: Instant,
    /// The drain time of a stream after the client disconnected; the rest of the deadline if there is none.
    pub(crate) drain: Option<Duration>,
    /// The token for the end of the shutdown's grace period.
    pub(crate) shutdown: CancellationToken,
    /// For a step of a swarm: the token for the end of its need. From then on, its client counts as disconnected.
    pub(crate) over: Option<CancellationToken>,
}

/// The drain time of a step that nobody needs: its swarm ends within two seconds, and its record has the charge.
const OVER_DRAIN: Duration = Duration::from_secs(1);

/// The waits of a request.
pub(super) struct Waits {
    pub(super) bounds: RequestBounds,
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    ending: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    timer: Timer,
    hung_up_at: Option<Instant>,
    /// Whether weir sent the request to an upstream, which may charge from then on.
    pub(super) asked: bool,
    /// Whether the upstream streams its response in this attempt.
    pub(super) upstream_streams: bool,
}

impl Waits {
    pub(super) fn new(bounds: RequestBounds) -> Self {
        Self {
            bounds,
            stopping: None,
            ending: None,
            timer: Timer::default(),
            hung_up_at: None,
            asked: false,
            upstream_streams: true,
        }
    }

    /// Waits for `work` until `limit` or the first bound.
    pub(super) async fn within<T>(
        &mut self,
        client: &mut Client,
        limit: Duration,
        phase: Phase,
        work: impl Future<Output = T>,
    ) -> Result<T, ExchangeError> {
        self.check()?;
        let until = Instant::now().checked_add(limit);
        let mut work = pin!(work);
        poll_fn(|context| {
            // Finished work needs no timer.
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            self.poll_over(client, until, phase, context).map(Err)
        })
        .await
    }

    /// Completes if a wait ends before its work: at the limit, or at a bound.
    fn poll_over(
        &mut self,
        client: &mut Client,
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
        if self.hung_up_at.is_none() && client.poll_gone(context).is_ready() {
            self.note_hang_up();
        }
        if let Some(over) = &self.bounds.over {
            let ending = self
                .ending
                .get_or_insert_with(|| Box::pin(over.clone().cancelled_owned()));
            // Once it is ready, its future must not be polled again.
            if over.is_cancelled() || ending.as_mut().poll(context).is_ready() {
                self.note_hang_up();
            }
        }
        // Without a client, nobody awaits a fallback: its provider bills a plain response, which is read to its end.
        let is_fallback = phase == Phase::FirstByte && !self.upstream_streams;
        let until = until.filter(|_| !is_fallback || self.hung_up_at.is_none());
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

    /// Checks the bounds, so that work that is always ready cannot evade them.
    pub(super) fn check(&self) -> Result<(), ExchangeError> {
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

    /// Whether weir has noticed that the client disconnected.
    pub(super) fn has_hung_up(&self) -> bool {
        self.hung_up_at.is_some()
    }

    pub(super) fn note_hang_up(&mut self) {
        self.hung_up_at.get_or_insert_with(Instant::now);
    }

    /// Returns the end of the drain time after a disconnect.
    fn abandoned_at(&self) -> Option<Instant> {
        // Before weir has asked an upstream, nobody bills the request.
        let is_cut = self.upstream_streams || !self.asked;
        let is_over = self.bounds.over.as_ref();
        let is_over = is_over.is_some_and(CancellationToken::is_cancelled);
        let drain = match is_over {
            true => Some(OVER_DRAIN),
            false => self.bounds.drain,
        };
        let drain = drain.filter(|_| is_cut)?;
        self.hung_up_at.map(|at| at + drain)
    }
}

/// The timer of a request's waits. Each wait has another end, and most end early: the timer keeps its time until it
/// fires, and only then moves to the current wait's end, so that a wait is cheap.
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
