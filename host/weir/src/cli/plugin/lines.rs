//! What `weir plugin try` prints: a line of JSON for each thing that happens.
//!
//! Names are the contract's (`wit/`), in kebab case; those that are the command's own are in snake case.

use std::io::Write;

use http::HeaderMap;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::plugins::bindings::adapter::{Failure, Header};
use crate::plugins::bindings::chat::{BlockKind, Event, FinishReason, Usage};

/// A request as it would go to an upstream.
pub(super) fn send(request: &http::Request<Vec<u8>>) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        send: Send<'a>,
    }
    #[derive(Serialize)]
    struct Send<'a> {
        method: &'a str,
        path: &'a str,
        headers: Map<String, Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        body: Option<Body<'a>>,
    }
    // As the adapter wrote it, with the order of its fields and every digit of its numbers.
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Body<'a> {
        Json(&'a RawValue),
        Text(String),
    }
    let (uri, body) = (request.uri(), request.body());
    let body = match serde_json::from_slice(body) {
        Ok(json) => Some(Body::Json(json)),
        Err(_) if body.is_empty() => None,
        Err(_) => Some(Body::Text(String::from_utf8_lossy(body).into_owned())),
    };
    print(&Line {
        send: Send {
            method: request.method().as_str(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()),
            headers: headers(request.headers()),
            body,
        },
    })
}

/// What the adapter is shown of an answer's head.
pub(super) fn head(status: u16, headers: &[Header]) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Line {
        head: Head,
    }
    #[derive(Serialize)]
    struct Head {
        status: u16,
        headers: Map<String, Value>,
    }
    let mut shown = Map::new();
    for (name, value) in headers {
        insert(&mut shown, name, value);
    }
    let headers = shown;
    print(&Line {
        head: Head { status, headers },
    })
}

pub(super) fn event(event: &Event) -> anyhow::Result<()> {
    let event = match event {
        Event::BlockStart(kind) => json!({ "block-start": block_kind(*kind) }),
        Event::Text(text) => json!({ "text": text }),
        Event::Reasoning(text) => json!({ "reasoning": text }),
        Event::RedactedReasoning(text) => json!({ "redacted-reasoning": text }),
        Event::ToolCall(call) => json!({ "tool-call": { "id": call.id, "name": call.name } }),
        Event::ToolCallFragment(text) => json!({ "tool-call-fragment": text }),
        Event::Signature(text) => json!({ "signature": text }),
        Event::Citation(url) => json!({ "citation": url }),
        // Nobody reads an image's bytes.
        Event::Image(image) => {
            json!({ "image": { "media-type": image.media_type, "bytes": image.data.len() } })
        }
        Event::Usage(reported) => json!({ "usage": usage(reported) }),
        Event::Finish(reason) => json!({ "finish": finish(reason) }),
    };
    print(&json!({ "event": event }))
}

pub(super) fn wait(milliseconds: u32) -> anyhow::Result<()> {
    print(&json!({ "wait_ms": milliseconds }))
}

pub(super) fn done() -> anyhow::Result<()> {
    print(&json!({ "done": true }))
}

pub(super) fn failure(failure: &Failure) -> anyhow::Result<()> {
    let failure = match failure {
        Failure::Unsupported(text) => json!({ "unsupported": text }),
        Failure::Rejected(text) => json!({ "rejected": text }),
        Failure::ContextLength(text) => json!({ "context-length": text }),
        Failure::Filtered(text) => json!({ "filtered": text }),
        Failure::Unauthorized(text) => json!({ "unauthorized": text }),
        Failure::RateLimited(Some(milliseconds)) => {
            json!({ "rate-limited": { "retry_after_ms": milliseconds } })
        }
        Failure::RateLimited(None) => json!({ "rate-limited": {} }),
        Failure::Unavailable(text) => json!({ "unavailable": text }),
        Failure::Malformed(text) => json!({ "malformed": text }),
    };
    print(&json!({ "failure": failure }))
}

/// A request that would not be sent.
pub(super) fn refused(why: &str) -> anyhow::Result<()> {
    print(&json!({ "refused": why }))
}

pub(super) fn error(what: &str) -> anyhow::Result<()> {
    print(&json!({ "error": what }))
}

fn headers(headers: &HeaderMap) -> Map<String, Value> {
    let mut shown = Map::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        insert(&mut shown, name.as_str(), &value);
    }
    shown
}

/// Adds a header; one that is repeated is a list to HTTP.
fn insert(headers: &mut Map<String, Value>, name: &str, value: &str) {
    let value = match headers.get(name) {
        Some(Value::String(first)) => format!("{first}, {value}"),
        _ => value.to_owned(),
    };
    headers.insert(name.to_owned(), value.into());
}

fn block_kind(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Text => "text",
        BlockKind::Reasoning => "reasoning",
        BlockKind::ToolCall => "tool-call",
    }
}

fn usage(usage: &Usage) -> Value {
    let counts = [
        ("input-tokens", usage.input_tokens),
        ("cache-read-tokens", usage.cache_read_tokens),
        ("cache-write-short-tokens", usage.cache_write_short_tokens),
        ("cache-write-long-tokens", usage.cache_write_long_tokens),
        ("output-tokens", usage.output_tokens),
        ("reasoning-tokens", usage.reasoning_tokens),
        ("images", usage.images.map(u64::from)),
    ];
    counts
        .into_iter()
        .filter_map(|(name, count)| Some((name.to_owned(), Value::from(count?))))
        .collect::<Map<_, _>>()
        .into()
}

fn finish(reason: &FinishReason) -> Value {
    match reason {
        FinishReason::Stop => "stop".into(),
        FinishReason::StopSequence(text) => json!({ "stop-sequence": text }),
        FinishReason::Length => "length".into(),
        FinishReason::ToolCalls => "tool-calls".into(),
        FinishReason::ContentFilter => "content-filter".into(),
        FinishReason::Refusal => "refusal".into(),
    }
}

fn print(line: &impl Serialize) -> anyhow::Result<()> {
    let line = one_line(&serde_json::to_string(line)?);
    // Not `println!`, which panics where a reader such as `head` has read enough.
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

/// The same JSON on one line, and fit for a terminal: a component that is being looked at may be hostile.
fn one_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            // In JSON these stand between tokens only.
            '\t' | '\n' | '\r' => line.push(' '),
            // And these in texts only, where an escape says the same.
            '\u{7f}'..='\u{9f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                line.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => line.push(character),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_the_same_json_and_drives_no_terminal() {
        let json = "{\n\t\"a\": \"\u{9b}31m\u{202e}\u{7f}żółw\\n\"\r\n}";
        let line = one_line(json);
        assert_eq!(line, "{  \"a\": \"\\u009b31m\\u202e\\u007fżółw\\n\"  }");
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        assert_eq!(read(&line), read(json));
    }
}
