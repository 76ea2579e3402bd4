//! A trial of a tool: one call, with recorded responses in place of the network.
//!
//! The gateway's rules apply to the arguments and to the headers of responses. The policy of a slot does not apply, since a file has
//! no slot.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{anyhow, bail};
use serde_json::Value;
use tokio::sync::Notify;
use weir_sandbox::tool::bindings::{outbound, tool::CallContext, tool::Failure};
use weir_sandbox::tool::{LoadedTool, Outbound, OutboundFuture, ToolError, http_rules};

use crate::lines;
use crate::recording::RecordedResponse;
use crate::trial::TrialOutcome;

/// The time limit of the call.
const WITHIN: Duration = Duration::from_secs(30);

/// Bytes of a response's body that a tool gets.
const MAX_BYTES: usize = 1 << 20;

/// Calls a tool. Prints its requests, the responses and its result as lines of JSON.
pub(crate) async fn run(
    tool: &LoadedTool,
    arguments: &str,
    context: &CallContext,
    recordings: Vec<RecordedResponse>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<TrialOutcome> {
    let json: Value = serde_json::from_str(arguments)
        .map_err(|error| anyhow!("the arguments are not JSON: {error}"))?;
    if let Err(why) = tool.schema.check(&json) {
        let why = format!("the arguments do not match the schema: {why}");
        lines::error(out, &why)?;
        bail!(why);
    }
    let outside = RecordedOutside(Arc::new(OutsideState {
        recordings: Mutex::new(recordings.into_iter()),
        lines: Mutex::default(),
        awaits: Notify::new(),
    }));
    let call = tool.call(arguments, context, outside.clone(), WITHIN);
    let ended = tokio::select! {
        ended = call => Some(ended),
        () = outside.0.awaits.notified() => None,
    };
    for line in std::mem::take(&mut *locked(&outside.0.lines)) {
        lines::value(out, &line)?;
    }
    let failure = match ended {
        None => return Ok(TrialOutcome::Awaits),
        Some(Ok(text)) => {
            lines::value(out, &serde_json::json!({ "result": text }))?;
            return Ok(TrialOutcome::Done(locked(&outside.0.recordings).len()));
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

/// Recorded responses in place of the network.
#[derive(Clone)]
struct RecordedOutside(Arc<OutsideState>);

struct OutsideState {
    recordings: Mutex<std::vec::IntoIter<RecordedResponse>>,
    /// The lines of the call so far.
    lines: Mutex<Vec<Value>>,
    /// Signals a request without a recorded response.
    awaits: Notify,
}

impl Outbound for RecordedOutside {
    fn fetch(&self, request: outbound::Request) -> OutboundFuture<'_> {
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
            locked(&self.0.lines).push(lines::response(&response));
            Ok(response)
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
