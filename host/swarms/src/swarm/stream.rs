//! The events of a swarm, as server-sent events.
//!
//! Each event has its number as `id`, and is stored before it is sent: a client that reconnects with its last id misses
//! no event and sees none twice. A disconnect cancels nothing.
//!
//! Between them, the stream has the models' output as it arrives ([`weir_inference::deltas`]), in events without an `id`. They
//! are not stored, and a client resumes after the last numbered event.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use tokio::time::{Instant, sleep_until};
use weir_inference::deltas::{DeltaListener, OutputDelta, RunWatch};

use super::Swarms;
use super::store::RunEvent;

/// The poll interval for events that other processes write.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The time without an event after which a comment keeps the stream alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The name of a swarm's last event.
const LAST: &str = "swarm_done";

/// The name of the event without a number.
const DELTA: &str = "agent_delta";

struct EventFollower {
    swarms: Arc<Swarms>,
    run_id: String,
    /// The number of the last sent event.
    after: i64,
    /// The events that are read but not sent.
    waiting: VecDeque<RunEvent>,
    /// A piece of text that belongs after events that are not read yet.
    early: Option<OutputDelta>,
    changes: RunWatch,
    listener: DeltaListener,
    /// The time of the next poll.
    look_at: Instant,
}

/// Streams the events of a run after this number, up to the last one.
pub fn events(swarms: Arc<Swarms>, run_id: String, after: i64) -> Response {
    let following = EventFollower {
        changes: swarms.deltas.watch(&run_id),
        listener: swarms.deltas.listen(&run_id),
        swarms,
        run_id,
        after,
        waiting: VecDeque::new(),
        early: None,
        look_at: Instant::now(),
    };
    let events = futures_util::stream::unfold(following, |mut following| async {
        let event = following.next().await?;
        Some((Ok::<_, Infallible>(event), following))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // The header asks proxies such as nginx not to buffer the stream.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

impl EventFollower {
    /// Returns the next event; `None` after the last one, or if the gateway stops: the client then reconnects to
    /// another node.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(delta) = self.delta() {
                return Some(SseEvent::default().event(DELTA).data(delta.data));
            }
            if let Some(event) = self.waiting.pop_front() {
                self.after = event.number;
                // A swarm that was resumed has more events.
                if event.name == LAST {
                    self.look_at = Instant::now();
                }
                let number = event.number.to_string();
                let told = SseEvent::default().id(number).event(event.name);
                return Some(told.data(event.data));
            }
            if Instant::now() >= self.look_at {
                self.changes.mark_seen();
                if !self.look().await {
                    return None;
                }
                if !self.waiting.is_empty() {
                    continue;
                }
                self.look_at = Instant::now() + LOOK_EVERY;
            }
            tokio::select! {
                () = self.changes.written() => self.look_at = Instant::now(),
                delta = self.listener.next(), if self.early.is_none() => {
                    if delta.after > self.after {
                        self.look_at = Instant::now();
                    }
                    self.early = Some(delta);
                }
                () = sleep_until(self.look_at) => {}
                () = self.swarms.draining.cancelled() => return None,
            }
        }
    }

    /// Returns the next piece of text that belongs before the next event.
    fn delta(&mut self) -> Option<OutputDelta> {
        loop {
            let next = self.early.take();
            let delta = next.or_else(|| self.listener.try_next())?;
            match delta.after.cmp(&self.after) {
                // The event after the piece was already sent.
                Ordering::Less => {}
                Ordering::Equal => return Some(delta),
                Ordering::Greater => {
                    self.early = Some(delta);
                    return None;
                }
            }
        }
    }

    /// Polls for events. Returns whether more may follow, now or later.
    async fn look(&mut self) -> bool {
        let store = &self.swarms.store;
        match store.events(&self.run_id, self.after).await {
            Ok(events) if !events.is_empty() => {
                self.waiting = events.into();
                return true;
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(run = self.run_id, %error, "reading a swarm's events"),
        }
        // If the run was deleted, or the client has its last event, the stream ends.
        match store.find(&self.run_id).await {
            Ok(None) => false,
            Ok(Some(run)) => !run.status.is_over() || run.last_event > self.after,
            Err(_) => true,
        }
    }
}
