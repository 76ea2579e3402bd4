//! What happens in a swarm, as server-sent events.
//!
//! Each event has its number as `id`, and is kept before it is sent: a client that comes back with the last one it has seen
//! misses none and sees none twice. A client that goes away cancels nothing.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use tokio::sync::watch;

use super::store::Event;
use crate::app::App;

/// How often events are looked for that another process may have written.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// After so long without an event, a comment says that the stream is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The last event of a swarm.
const LAST: &str = "swarm_done";

struct Following {
    app: App,
    run_id: String,
    after: i64,
    waiting: VecDeque<Event>,
    changes: watch::Receiver<()>,
    is_over: bool,
}

/// The events of a run behind the one of this number, until its last one, as they come.
pub fn events(app: App, run_id: String, after: i64) -> Response {
    let following = Following {
        changes: app.swarms.changes.subscribe(),
        app,
        run_id,
        after,
        waiting: VecDeque::new(),
        is_over: false,
    };
    let events = futures_util::stream::unfold(following, |mut following| async {
        let event = following.next().await?;
        let sent = SseEvent::default()
            .id(event.number.to_string())
            .event(event.name)
            .data(event.data);
        Some((Ok::<_, Infallible>(sent), following))
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
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.after = event.number;
                self.is_over = event.name == LAST;
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            self.changes.mark_unchanged();
            let store = &self.app.swarms.store;
            match store.events(&self.run_id, self.after).await {
                Ok(events) if !events.is_empty() => {
                    self.waiting = events.into();
                    continue;
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(run = self.run_id, %error, "reading a swarm's events"),
            }
            // A client that has seen the last one, or of a run that is forgotten, waits for nothing.
            match store.find(&self.run_id).await {
                Ok(None) => return None,
                Ok(Some(run)) if run.status.is_over() && run.last_event <= self.after => {
                    return None;
                }
                _ => {}
            }
            tokio::select! {
                _ = self.changes.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.app.draining.cancelled() => return None,
            }
        }
    }
}
