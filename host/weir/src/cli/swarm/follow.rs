//! `weir swarm run`: starts a swarm, and shows its events until it ends.

use std::time::Duration;

use anyhow::{Context, bail};
use http::header::ACCEPT;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::client::SwarmClient;
use super::terminal;
use super::view::{View, call_of};
use crate::cli::connection::path;

/// Columns of an output line.
const LINE_COLUMNS: usize = 100;

/// Minimum time between two redraws.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Reconnects to a stream that sends no new event, and the pause before each.
const MAX_TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// The place for a swarm's events.
enum EventDisplay {
    /// Lines on standard error.
    Lines,
    /// A view in the terminal, redrawn in place.
    Live(View),
}

#[derive(Debug, PartialEq)]
struct SwarmEvent {
    /// The event's number, if it has one.
    number: Option<i64>,
    name: String,
    data: Value,
}

/// Runs a swarm. Fails if it does not complete.
pub(super) async fn run(caller: &SwarmClient, swarm: &Value) -> anyhow::Result<()> {
    let id = caller.ask(swarm).await?;
    let mut show = match terminal::can_draw() {
        true => EventDisplay::Live(View::new(swarm, terminal::has_colours())),
        false => EventDisplay::Lines,
    };
    let goes_on = format!(
        "the swarm continues; `weir swarm show {id}` shows it, and `weir swarm cancel {id}` cancels it"
    );
    tokio::select! {
        record = follow(caller, &id, &mut show) => finish(&record.context(goes_on)?),
        _ = tokio::signal::ctrl_c() => {
            show.draw();
            bail!("{goes_on}")
        }
    }
}

/// Shows events until the swarm ends, and reconnects after an interruption. Returns the swarm's record.
async fn follow(caller: &SwarmClient, id: &str, show: &mut EventDisplay) -> anyhow::Result<Value> {
    let (mut last, mut tries) = (0, 0);
    loop {
        let before = last;
        let why = match follow_once(caller, id, &mut last, show).await {
            Ok(Some(record)) => return Ok(record),
            Ok(None) => anyhow::anyhow!("the gateway at {} sends no more events", caller.base),
            Err(error) => error,
        };
        tries = if last > before { 1 } else { tries + 1 };
        if tries >= MAX_TRIES {
            return Err(why);
        }
        sleep(PAUSE).await;
    }
}

/// Shows events from behind the `last` event until the stream ends.
async fn follow_once(
    caller: &SwarmClient,
    id: &str,
    last: &mut i64,
    show: &mut EventDisplay,
) -> anyhow::Result<Option<Value>> {
    let url = format!("{}{}", caller.base, path(&["swarms", id, "events"], &[]));
    let request = caller.http.get(url).header(ACCEPT, "text/event-stream");
    let mut answer = caller.send(request.header("last-event-id", *last)).await?;
    let mut ticks = interval(DRAW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut text = Vec::new();
    loop {
        let chunk = tokio::select! {
            chunk = answer.chunk() => chunk.map_err(|error| caller.broken(error))?,
            _ = ticks.tick() => {
                show.draw();
                continue;
            }
        };
        let Some(chunk) = chunk else {
            return Ok(None);
        };
        text.extend_from_slice(&chunk);
        while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = text.drain(..end + 2).collect();
            let Some(event) = read_event(&String::from_utf8_lossy(&event)) else {
                continue;
            };
            *last = event.number.unwrap_or(*last);
            show.note(&event);
            if event.name == "swarm_done" {
                show.draw();
                return Ok(Some(event.data));
            }
        }
    }
}

impl EventDisplay {
    fn note(&mut self, event: &SwarmEvent) {
        match self {
            Self::Live(view) => view.note(&event.name, &event.data),
            Self::Lines => {
                if let Some(line) = line_of(&event.name, &event.data) {
                    eprintln!("{}", terminal::line(&line));
                }
            }
        }
    }

    fn draw(&mut self) {
        if let Self::Live(view) = self {
            view.draw();
        }
    }
}

/// Reads an event; `None` for a comment.
fn read_event(text: &str) -> Option<SwarmEvent> {
    let field = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    Some(SwarmEvent {
        number: field("id").and_then(|id| id.parse().ok()),
        name: field("event")?.to_owned(),
        data: serde_json::from_str(field("data")?).ok()?,
    })
}

/// Returns an event as a line for people.
fn line_of(name: &str, data: &Value) -> Option<String> {
    let text = |field: &str| data[field].as_str().unwrap_or_default();
    let agent = text("agent");
    match name {
        "agent_start" => Some(format!("{agent}: starts on {}", text("model"))),
        "tool_call" => Some(format!("{agent}: {}", call_of(data))),
        "agent_done" => {
            let said = data["error"].as_str().unwrap_or(text("output"));
            let said = said.lines().next().unwrap_or_default();
            Some(format!(
                "{agent}: {} after {} iterations, {} s, {} + {} tokens, {} credits: {}",
                text("status"),
                data["iterations"],
                data["duration_seconds"],
                data["tokens_in"],
                data["tokens_out"],
                data["credits_used"],
                terminal::cut(said, LINE_COLUMNS),
            ))
        }
        _ => None,
    }
}

fn finish(record: &Value) -> anyhow::Result<()> {
    let text = |field: &str| record[field].as_str().unwrap_or_default();
    let line = format!(
        "{} {}: {} of {} agents, {} + {} tokens, {} credits",
        text("execution_id"),
        text("status"),
        record["agents_completed"],
        record["agents_total"],
        record["tokens_in"],
        record["tokens_out"],
        record["total_credits"],
    );
    eprintln!("{}", terminal::line(&line));
    terminal::print(text("content"));
    match text("status") {
        "completed" => Ok(()),
        _ => bail!(
            "the swarm did not complete: {}",
            terminal::line(text("error"))
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_in_a_line() {
        let told = |event: &str| {
            let event = read_event(event)?;
            line_of(&event.name, &event.data)
        };
        let start = "id: 1\nevent: agent_start\ndata: {\"agent\":\"Scout\",\"model\":\"demo\"}\n\n";
        assert_eq!(told(start).as_deref(), Some("Scout: starts on demo"));
        let call = "event: tool_call\ndata: {\"agent\":\"Scout\",\"tool\":\"http_get\",\"url\":\"https://a.example\",\
                    \"response_status\":200,\"blocked_reason\":null}\n\n";
        assert_eq!(
            told(call).as_deref(),
            Some("Scout: http_get https://a.example: 200")
        );
        assert_eq!(told(": keep-alive\n\n"), None);
    }
}
