//! What happens in a swarm, as server-sent events.
//!
//! Each event has its number as `id`, and is kept before it is sent: a client that comes back with the last one it has seen
//! misses none and sees none twice. A client that goes away cancels nothing.
//!
//! Between them is what models say meanwhile ([`crate::inference::deltas`]), in events without an `id`. They are not kept, and a client
//! comes back behind the last numbered one.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use tokio::time::{Instant, sleep_until};

use super::store::Event;
use crate::app::App;
use crate::inference::deltas::{Delta, Listener, Watch};

/// How often events are looked for that another process may have written.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// After so long without an event, a comment says that the stream is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The last event of a swarm.
const LAST: &str = "swarm_done";

/// The event without a number.
const DELTA: &str = "agent_delta";

struct Following {
    app: App,
    run_id: String,
    /// The number of the event that was told last.
    after: i64,
    /// Those that are read, and not told yet.
    waiting: VecDeque<Event>,
    /// A piece of text that has its place behind events which are not read yet.
    early: Option<Delta>,
    changes: Watch,
    listener: Listener,
    /// When events are looked for next.
    look_at: Instant,
    is_over: bool,
}

/// The events of a run behind the one of this number, until its last one, as they come.
pub fn events(app: App, run_id: String, after: i64) -> Response {
    let following = Following {
        changes: app.swarms.deltas.watch(&run_id),
        listener: app.swarms.deltas.listen(&run_id),
        app,
        run_id,
        after,
        waiting: VecDeque::new(),
        early: None,
        look_at: Instant::now(),
        is_over: false,
    };
    let events = futures_util::stream::unfold(following, |mut following| async {
        let event = following.next().await?;
        Some((Ok::<_, Infallible>(event), following))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // Asks nginx and its kin not to collect the stream.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

impl Following {
    /// The next event; `None` behind the last one, or where the gateway stops: the client asks another one.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(delta) = self.delta() {
                return Some(SseEvent::default().event(DELTA).data(delta.data));
            }
            if let Some(event) = self.waiting.pop_front() {
                self.after = event.number;
                self.is_over = event.name == LAST;
                let number = event.number.to_string();
                let told = SseEvent::default().id(number).event(event.name);
                return Some(told.data(event.data));
            }
            if self.is_over {
                return None;
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
                () = self.app.draining.cancelled() => return None,
            }
        }
    }

    /// The next piece of text that has its place before the next event.
    fn delta(&mut self) -> Option<Delta> {
        loop {
            let next = self.early.take();
            let delta = next.or_else(|| self.listener.try_next())?;
            match delta.after.cmp(&self.after) {
                // What follows it was told already.
                Ordering::Less => {}
                Ordering::Equal => return Some(delta),
                Ordering::Greater => {
                    self.early = Some(delta);
                    return None;
                }
            }
        }
    }

    /// Looks for events. Returns whether there may be more, now or later.
    async fn look(&mut self) -> bool {
        let store = &self.app.swarms.store;
        match store.events(&self.run_id, self.after).await {
            Ok(events) if !events.is_empty() => {
                self.waiting = events.into();
                return true;
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(run = self.run_id, %error, "reading a swarm's events"),
        }
        // A client that has seen the last one, or of a run that is forgotten, waits for nothing.
        match store.find(&self.run_id).await {
            Ok(None) => false,
            Ok(Some(run)) => !run.status.is_over() || run.last_event > self.after,
            Err(_) => true,
        }
    }
}
