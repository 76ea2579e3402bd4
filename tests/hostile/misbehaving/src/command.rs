//! The commands of a test.

use serde::Deserialize;
use serde_json::Value;

use crate::bindings::exports::weir::plugin::adapter::{
    BodyPart, Failure, FailureKind, HttpRequest, Step,
};
use crate::bindings::weir::plugin::chat::Event;

/// A parsed command: the behaviour, and its call.
#[derive(Deserialize)]
pub(crate) struct Command {
    #[serde(flatten)]
    pub(crate) behaviour: Behaviour,
    /// The call in which a [`Fault`] is committed, once. For `next` the guest first emits nothing, so that it is
    /// called again; for `head`, `body` and `end` it first sends a plain request.
    #[serde(default, rename = "in")]
    pub(crate) place: Place,
}

/// A call of the contract.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    Begin,
    #[default]
    Next,
    Head,
    Body,
    End,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Behaviour {
    Fault(Fault),
    Answer(Answer),
}

/// An assault on the host from inside a call. An assault that returns leaves a healthy response.
#[derive(Clone, Deserialize)]
#[serde(tag = "behave", rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// Computes for ever.
    Spin,
    /// Computes for this many turns of a loop, and continues.
    Compute { turns: u64 },
    /// Copies this many bytes of memory back and forth for ever: one instruction that no epoch interrupts.
    Copy {
        #[serde(default = "twelve_mebibytes")]
        bytes: usize,
    },
    /// Takes and touches memory until it is refused, then traps.
    Grow,
    /// Recurses without end; with `log`, calls the host at every depth.
    Recurse {
        #[serde(default)]
        log: bool,
    },
    /// Executes `unreachable`.
    Unreachable,
    /// Reads at the end of the address space.
    OutOfBounds,
    /// Panics, with a message that tries to forge a log line.
    Panic,
    /// Sleeps, so that it waits in the host. Default: an hour.
    Sleep {
        #[serde(default = "an_hour_ms")]
        milliseconds: u64,
    },
    /// Tries to exit the process.
    Exit {
        #[serde(default)]
        code: i32,
    },
    /// Writes to the operator's log. Default: ten million lines with control characters.
    FloodLog {
        #[serde(default = "ten_million")]
        lines: u64,
        #[serde(default = "forged_line")]
        text: String,
    },
    /// Writes to standard output and standard error.
    Print {
        #[serde(default = "ten_million")]
        lines: u64,
        #[serde(default = "forged_line")]
        text: String,
    },
    /// Requests this many random bytes in one call.
    Random { bytes: u64 },
    /// Polls a clock that is due, in a list with this many entries of it.
    Poll { entries: usize },
}

/// A form of response.
#[derive(Clone, Deserialize)]
#[serde(tag = "behave", rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// These steps, the first of them from `begin`, then `done`. They are the contract's own types, in serde's form:
    /// `{"Emit": [{"BlockStart": {"index": 0, "block": "Text"}}, {"Fragment": {"index": 0, "text": "x"}},
    /// {"BlockEnd": 0}, {"Finish": "Stop"}]}`, `{"Wait": 10}`, `{"Send": {"method", "path", "headers", "body":
    /// [{"Bytes": []}]}}`, `"Done"`. With `forever`, the steps after the first `once` start over at the end.
    ///
    /// After a `Send`, the upstream's response is emitted as a text, see [`Answer::Send`].
    Script {
        steps: Vec<Step>,
        #[serde(default)]
        forever: bool,
        #[serde(default)]
        once: usize,
    },
    /// Sends this request repeatedly, then emits a JSON object for each response: `status`, `headers`, `body` (as
    /// text) and `pieces` (the length of each piece of `body`). The request consists of `body`, then `parts`:
    /// `{"Bytes": []}`, `{"Base64Of": 0}` and `{"Attached": 0}`, with the numbers of attachments. Takes `keep` bytes
    /// of memory before.
    Send {
        #[serde(default)]
        keep: usize,
        #[serde(default = "post")]
        method: String,
        #[serde(default = "completions")]
        path: String,
        #[serde(default)]
        headers: Vec<(String, String)>,
        #[serde(default)]
        body: String,
        #[serde(default)]
        parts: Vec<BodyPart>,
        #[serde(default = "once")]
        times: usize,
    },
    /// Fails in the call that `in` names, such as with `{"kind": "RateLimited", "text": "x"}`. In `body` and `end`
    /// these events accompany the failure; other calls cannot return events.
    Fail {
        failure: Failure,
        #[serde(default)]
        events: Vec<Event>,
    },
    /// Never finishes: waits for this many milliseconds again and again, or emits nothing without it.
    NeverDone { wait: Option<u32> },
    /// One text of this many bytes.
    Text { bytes: usize },
    /// A text that is not UTF-8.
    Utf8,
    /// A JSON object of a process's view of its environment: `arguments`, `variables`, `directory`, `files`, `read`
    /// (of `/etc/passwd`), `input`, `connect` (over TCP to the given address) and `lookup` (of the given name).
    Env {
        #[serde(default = "a_loopback_address")]
        connect: String,
        #[serde(default = "a_name")]
        lookup: String,
    },
    /// The input of `begin`, as JSON: `request`, `configuration` (as text) and the request's `attachments`.
    EchoRequest,
    /// A random number.
    Noise,
    /// The size of the guest's linear memory in bytes.
    Memory,
    /// A healthy response, with these names as ignored fields.
    Ignore { names: Vec<String> },
}

impl Command {
    /// Reads the command in a message; `None` if there is none.
    pub(crate) fn parse(message: &str) -> Result<Option<Self>, Failure> {
        match serde_json::from_str::<Value>(message) {
            Ok(value) if value.get("behave").is_some() => match serde_json::from_value(value) {
                Ok(command) => Ok(Some(command)),
                Err(error) => Err(unsupported(format!("the command {message}: {error}"))),
            },
            _ => Ok(None),
        }
    }
}

/// A request that any OpenAI-compatible upstream accepts.
pub(crate) fn plain_request() -> HttpRequest {
    HttpRequest {
        method: post(),
        path: completions(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: vec![BodyPart::Bytes(b"{}".to_vec())],
    }
}

fn unsupported(text: String) -> Failure {
    Failure {
        kind: FailureKind::Unsupported,
        text,
        param: None,
        retry_after_ms: None,
        code: None,
        upstream_error: None,
    }
}

fn post() -> String {
    "POST".into()
}

fn completions() -> String {
    "/chat/completions".into()
}

fn once() -> usize {
    1
}

fn ten_million() -> u64 {
    10_000_000
}

fn twelve_mebibytes() -> usize {
    12 << 20
}

fn an_hour_ms() -> u64 {
    3_600_000
}

fn forged_line() -> String {
    "\u{1b}[31mred\u{1b}[0m\r\nERROR forged line\0after NUL".into()
}

fn a_loopback_address() -> String {
    "127.0.0.1:80".into()
}

fn a_name() -> String {
    "localhost".into()
}
