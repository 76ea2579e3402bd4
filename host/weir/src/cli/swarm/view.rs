//! The terminal view of a running swarm: its agents, their progress, and their models' output.

use std::fmt::Write as _;
use std::io::{Write as _, stderr};

use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::Instant;
use weir_ledger::Credits;

use super::terminal;

/// Characters of a model's output that the view keeps: more than a line has.
const SAID_CHARS: usize = 1_000;

pub(super) struct View {
    title: String,
    agents: Vec<AgentView>,
    began: Instant,
    has_colours: bool,
    /// Lines on the screen.
    drawn: usize,
    /// The text of the last draw.
    shown: String,
}

/// An agent; all its texts are safe for a terminal.
struct AgentView {
    name: String,
    state: AgentState,
    model: String,
    calls: usize,
    last_call: String,
    said: String,
    tokens: (i64, i64),
    credits: Credits,
}

#[derive(PartialEq)]
enum AgentState {
    Waits,
    Runs(Instant),
    Done(String),
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum LineStyle {
    Plain,
    Strong,
    Faint,
    Bad,
}

impl View {
    pub(super) fn new(swarm: &Value, has_colours: bool) -> Self {
        let agents = swarm["agents"].as_array().map_or(&[][..], Vec::as_slice);
        let names = agents.iter().filter_map(|agent| agent["name"].as_str());
        Self {
            title: terminal::line(swarm["swarm_id"].as_str().unwrap_or("swarm")),
            agents: names.map(AgentView::new).collect(),
            began: Instant::now(),
            has_colours,
            drawn: 0,
            shown: String::new(),
        }
    }

    pub(super) fn note(&mut self, event: &str, data: &Value) {
        let text = |field: &str| data[field].as_str().unwrap_or_default();
        let number = |field: &str| data[field].as_i64().unwrap_or_default();
        let name = terminal::line(text("agent"));
        let Some(agent) = self.agents.iter_mut().find(|agent| agent.name == name) else {
            return;
        };
        match event {
            "agent_start" => {
                agent.state = AgentState::Runs(Instant::now());
                agent.model = terminal::line(text("model"));
            }
            "agent_waiting" => {
                let (why, at) = (text("last_error"), text("next_try_at"));
                agent.said = terminal::line(&format!("next try at {at}: {why}"));
            }
            "agent_delta" => {
                if number("offset") == 0 {
                    agent.said.clear();
                }
                agent.said.push_str(&terminal::line(text("text")));
                let surplus = agent.said.chars().count().saturating_sub(SAID_CHARS);
                if let Some((at, _)) = agent.said.char_indices().nth(surplus) {
                    agent.said.drain(..at);
                }
            }
            "tool_call" => {
                agent.calls += 1;
                agent.last_call = terminal::line(&call_of(data));
                agent.said.clear();
            }
            "agent_done" => {
                agent.tokens = (number("tokens_in"), number("tokens_out"));
                agent.credits = Credits::deserialize(&data["credits_used"]).unwrap_or_default();
                let status = terminal::line(text("status"));
                agent.state = match data["error"].as_str() {
                    Some(why) => AgentState::Failed(terminal::line(why)),
                    None => AgentState::Done(format!(
                        "{status} after {} iterations, {} s",
                        number("iterations"),
                        data["duration_seconds"]
                    )),
                };
            }
            _ => {}
        }
    }

    /// Draws the view over its last version.
    pub(super) fn draw(&mut self) {
        let (columns, rows) = terminal::size();
        let lines = self.lines(
            columns.saturating_sub(1),
            rows.saturating_sub(1),
            Instant::now(),
        );
        let mut shown = String::new();
        for (look, line) in &lines {
            let (begin, end) = match (look, self.has_colours) {
                (LineStyle::Plain, _) | (_, false) => ("", ""),
                (LineStyle::Strong, true) => ("\x1b[1m", "\x1b[0m"),
                (LineStyle::Faint, true) => ("\x1b[2m", "\x1b[0m"),
                (LineStyle::Bad, true) => ("\x1b[31m", "\x1b[0m"),
            };
            let _ = write!(shown, "{begin}{line}{end}\x1b[K\r\n");
        }
        if shown == self.shown {
            return;
        }
        let up = match self.drawn {
            0 => String::new(),
            drawn => format!("\x1b[{drawn}A\r"),
        };
        // Errors of a closed terminal are ignored.
        let _ = stderr().write_all(format!("{up}{shown}\x1b[J").as_bytes());
        self.drawn = lines.len();
        self.shown = shown;
    }

    /// Returns the view's lines, within these columns and rows.
    fn lines(&self, columns: usize, rows: usize, now: Instant) -> Vec<(LineStyle, String)> {
        let done = |agent: &&AgentView| matches!(agent.state, AgentState::Done(_));
        let tokens = |part: fn(&AgentView) -> i64| self.agents.iter().map(part).sum::<i64>();
        let credits: Credits = self.agents.iter().map(|agent| agent.credits).sum();
        let head = format!(
            "{}  {}/{} agents  {} + {} tokens  {credits} credits  {} s",
            self.title,
            self.agents.iter().filter(done).count(),
            self.agents.len(),
            tokens(|agent| agent.tokens.0),
            tokens(|agent| agent.tokens.1),
            now.duration_since(self.began).as_secs(),
        );
        let mut lines = vec![(LineStyle::Strong, head)];
        for agent in &self.agents {
            lines.extend(agent.lines(columns, now));
        }
        for (_, line) in &mut lines {
            let end = terminal::cut(line, columns).len();
            line.truncate(end);
        }
        // The end of the text is the newest part.
        let surplus = lines.len().saturating_sub(rows.max(1));
        lines.drain(..surplus);
        lines
    }
}

impl AgentView {
    fn new(name: &str) -> Self {
        Self {
            name: terminal::line(name),
            state: AgentState::Waits,
            model: String::new(),
            calls: 0,
            last_call: String::new(),
            said: String::new(),
            tokens: (0, 0),
            credits: Credits::ZERO,
        }
    }

    fn lines(&self, columns: usize, now: Instant) -> Vec<(LineStyle, String)> {
        let Self { name, model, .. } = self;
        let calls = match self.calls {
            0 => String::new(),
            1 => ", 1 tool call".to_owned(),
            calls => format!(", {calls} tool calls"),
        };
        let (tokens_in, tokens_out) = self.tokens;
        let cost = format!(
            "{tokens_in} + {tokens_out} tokens, {} credits",
            self.credits
        );
        match &self.state {
            AgentState::Waits => vec![(LineStyle::Faint, format!("  {name}"))],
            AgentState::Done(how) => vec![(
                LineStyle::Plain,
                format!("+ {name}  {model}  {how}, {cost}{calls}"),
            )],
            AgentState::Failed(why) => vec![(
                LineStyle::Bad,
                format!("x {name}  {model}  {cost}{calls}: {why}"),
            )],
            AgentState::Runs(since) => {
                let seconds = now.duration_since(*since).as_secs();
                let head = format!("> {name}  {model}  {seconds} s{calls}");
                let mut lines = vec![(LineStyle::Strong, head)];
                if !self.last_call.is_empty() {
                    lines.push((LineStyle::Faint, format!("    {}", self.last_call)));
                }
                if !self.said.is_empty() {
                    let said = terminal::tail(&self.said, columns.saturating_sub(4));
                    lines.push((LineStyle::Plain, format!("    {said}")));
                }
                lines
            }
        }
    }
}

/// Returns a line about a tool's call and its result.
pub(super) fn call_of(data: &Value) -> String {
    let status = &data["response_status"];
    let outcome = match data["blocked_reason"].as_str() {
        Some(why) => format!("blocked: {why}"),
        None if status.is_null() => "no response".to_owned(),
        None => status.to_string(),
    };
    let text = |field: &str| data[field].as_str().unwrap_or_default();
    format!("{} {}: {outcome}", text("tool"), text("url"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn view() -> View {
        let swarm =
            json!({ "swarm_id": "Rivers", "agents": [{ "name": "Scout" }, { "name": "Writer" }] });
        View::new(&swarm, false)
    }

    fn texts(view: &View, columns: usize, rows: usize) -> Vec<String> {
        let lines = view.lines(columns, rows, view.began);
        lines.into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn agents_are_shown_as_far_as_they_are() {
        let mut view = view();
        view.note("agent_start", &json!({ "agent": "Scout", "model": "demo" }));
        view.note(
            "agent_delta",
            &json!({ "agent": "Scout", "offset": 0, "text": "I will\n" }),
        );
        view.note(
            "agent_delta",
            &json!({ "agent": "Scout", "offset": 7, "text": "look." }),
        );
        assert_eq!(
            texts(&view, 80, 24),
            [
                "Rivers  0/2 agents  0 + 0 tokens  0 credits  0 s",
                "> Scout  demo  0 s",
                "    I will look.",
                "  Writer",
            ]
        );
        let call = json!({ "agent": "Scout", "tool": "http_get", "url": "https://a.example/", "response_status": 200 });
        view.note("tool_call", &call);
        view.note(
            "agent_delta",
            &json!({ "agent": "Scout", "offset": 0, "text": "Rain." }),
        );
        let lines = texts(&view, 80, 24);
        assert_eq!(lines[1], "> Scout  demo  0 s, 1 tool call");
        assert_eq!(lines[2], "    http_get https://a.example/: 200");
        assert_eq!(lines[3], "    Rain.");
        let done = json!({ "agent": "Scout", "status": "completed", "error": null, "iterations": 2, "tokens_in": 20,
            "tokens_out": 3, "credits_used": 0.000123, "duration_seconds": 1.5 });
        view.note("agent_done", &done);
        view.note(
            "agent_start",
            &json!({ "agent": "Writer", "model": "demo" }),
        );
        let failed =
            json!({ "agent": "Writer", "status": "failed", "error": "No.", "credits_used": 0.5 });
        view.note("agent_done", &failed);
        assert_eq!(
            texts(&view, 100, 24),
            [
                "Rivers  1/2 agents  20 + 3 tokens  0.500123 credits  0 s",
                "+ Scout  demo  completed after 2 iterations, 1.5 s, 20 + 3 tokens, 0.000123 credits, 1 tool call",
                "x Writer  demo  0 + 0 tokens, 0.5 credits: No.",
            ]
        );
    }

    #[test]
    fn whatever_is_said_stays_within_its_lines() {
        let hostile = "\u{1b}[2J\u{1b}]0;mine\u{7}\u{9b}31m\r\n\u{202e}河が上がる\0".repeat(400);
        let mut view = view();
        view.note(
            "agent_start",
            &json!({ "agent": "Scout", "model": hostile }),
        );
        view.note(
            "agent_delta",
            &json!({ "agent": "Scout", "offset": 0, "text": hostile }),
        );
        let call =
            json!({ "agent": "Scout", "tool": hostile, "url": hostile, "blocked_reason": hostile });
        view.note("tool_call", &call);
        view.note(
            "agent_delta",
            &json!({ "agent": "Scout", "offset": 1, "text": hostile }),
        );
        view.note(
            "agent_start",
            &json!({ "agent": "Writer", "model": "demo" }),
        );
        view.note(
            "agent_done",
            &json!({ "agent": "Writer", "error": hostile, "status": hostile }),
        );
        for (columns, rows) in [(120, 24), (20, 24), (1, 24), (0, 24), (40, 3), (40, 0)] {
            let lines = texts(&view, columns, rows);
            assert!(lines.len() <= rows.max(1), "{lines:?}");
            for line in lines {
                assert!(line.width() <= columns, "{line}");
                assert!(!line.contains(char::is_control), "{line:?}");
                assert!(!line.contains('\u{202e}'), "{line:?}");
            }
        }
    }
}
