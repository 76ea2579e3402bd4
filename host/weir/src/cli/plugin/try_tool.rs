//! `weir plugin try` of a tool: one call, with recordings in place of the outside.
//!
//! The arguments are held to the tool's schema as in the server, and answers show the headers that they show there. Which
//! requests are let through is its slot's policy to say, which a file has none of.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use std::sync::Arc;

use anyhow::{anyhow, bail};
use serde_json::Value;
use tokio::sync::Notify;
use weir_sandbox::tool::bindings::{outbound, tool::CallContext, tool::Failure};
use weir_sandbox::tool::{Fetching, Outbound, Tool, ToolError};

use super::lines;
use super::recording::Recording;
use super::trial::Outcome;
use weir_sandbox::tool::http_rules;

/// How long the call may take by the clock.
const WITHIN: Duration = Duration::from_secs(30);

/// Bytes of an answer's body that a tool gets.
const MAX_BYTES: usize = 1 << 20;

/// Calls a tool, and prints what it asks for and returns, a line of JSON each.
pub(super) async fn run(
    tool: &Tool,
    arguments: &str,
    context: &CallContext,
    recordings: Vec<Recording>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<Outcome> {
    let json: Value = serde_json::from_str(arguments)
        .map_err(|error| anyhow!("the arguments are no JSON: {error}"))?;
    if let Err(why) = tool.schema.check(&json) {
        let why = format!("the arguments do not fit: {why}");
        lines::error(out, &why)?;
        bail!(why);
    }
    let desk = Desk(Arc::new(DeskState {
        recordings: Mutex::new(recordings.into_iter()),
        lines: Mutex::default(),
        awaits: Notify::new(),
    }));
    let call = tool.call(arguments, context, desk.clone(), WITHIN);
    let ended = tokio::select! {
        ended = call => Some(ended),
        () = desk.0.awaits.notified() => None,
    };
    for line in std::mem::take(&mut *locked(&desk.0.lines)) {
        lines::value(out, &line)?;
    }
    let failure = match ended {
        None => return Ok(Outcome::Awaits),
        Some(Ok(text)) => {
            lines::value(out, &serde_json::json!({ "result": text }))?;
            return Ok(Outcome::Done(locked(&desk.0.recordings).len()));
        }
        Some(Err(ToolError::Failure(failure))) => failure,
        Some(Err(ToolError::Guest(error))) => {
            lines::error(out, &error.to_string())?;
            return Err(error.into());
        }
    };
    let (kind, why) = match failure {
        Failure::InvalidArguments(why) => ("invalid-arguments", why),
        Failure::Failed(why) => ("failed", why),
    };
    lines::value(out, &serde_json::json!({ "failure": { kind: why } }))?;
    bail!("the tool failed: {why}")
}

/// The outside, as recordings have it.
#[derive(Clone)]
struct Desk(Arc<DeskState>);

struct DeskState {
    recordings: Mutex<std::vec::IntoIter<Recording>>,
    /// What has happened.
    lines: Mutex<Vec<Value>>,
    /// A request is without a recording.
    awaits: Notify,
}

impl Outbound for Desk {
    fn fetch(&self, request: outbound::Request) -> Fetching<'_> {
        Box::pin(async move {
            locked(&self.0.lines).push(lines::fetch(&request));
            let Some(recording) = locked(&self.0.recordings).next() else {
                self.0.awaits.notify_one();
                return std::future::pending().await;
            };
            let mut body = recording.body;
            let truncated = body.len() > MAX_BYTES;
            body.truncate(MAX_BYTES);
            let response = outbound::Response {
                status: recording.status.as_u16(),
                headers: http_rules::shown_headers(&recording.headers),
                body,
                truncated,
            };
            locked(&self.0.lines).push(lines::answer(&response));
            Ok(response)
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
