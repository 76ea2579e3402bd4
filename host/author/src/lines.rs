//! The output of `weir plugin try`: a line of JSON for each step.
//!
//! Names of the contract (`wit/`) are in kebab case, names of the command in snake case.

use std::collections::BTreeMap;
use std::io::Write;

use bytes::Bytes;
use http::HeaderMap;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use weir_sandbox::adapter::bindings::adapter::{Failure, FailureKind, Header};
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Citation, Event, FinishReason, Fragment, Media, Usage,
};
use weir_sandbox::tool::bindings::outbound;
use weir_sandbox::tool::http_rules;

/// Prints a request to a provider.
pub(crate) fn send(out: &mut dyn Write, request: &http::Request<Bytes>) -> anyhow::Result<()> {
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
    // Raw JSON keeps the order of fields and the digits of numbers.
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
    print(
        out,
        &Line {
            send: Send {
                method: request.method().as_str(),
                path: uri.path_and_query().map_or("/", |path| path.as_str()),
                headers: headers(request.headers()),
                body,
            },
        },
    )
}

/// Prints the status and the headers that the adapter sees.
pub(crate) fn head(out: &mut dyn Write, status: u16, headers: &[Header]) -> anyhow::Result<()> {
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
    print(
        out,
        &Line {
            head: Head { status, headers },
        },
    )
}

/// Prints the advisory fields that the adapter ignores.
pub(crate) fn ignored(out: &mut dyn Write, names: &[String]) -> anyhow::Result<()> {
    print(out, &json!({ "ignored": names }))
}

/// The name of each block's fragments, by the block's index.
#[derive(Default)]
pub(crate) struct Pieces(BTreeMap<u32, &'static str>);

/// Prints an event. A fragment has the name of its block's kind, because an index alone means little to a reader.
pub(crate) fn event(out: &mut dyn Write, event: &Event, pieces: &mut Pieces) -> anyhow::Result<()> {
    let fragment = |Fragment { index, text }: &Fragment| json!({ "index": index, "text": text });
    let event = match event {
        Event::Started(started) => {
            json!({ "started": { "id": started.id, "model": started.model } })
        }
        Event::BlockStart(start) => {
            pieces.0.insert(start.index, piece_name(&start.block));
            block_start(start)
        }
        Event::Fragment(piece) => {
            let name = pieces.0.get(&piece.index).copied().unwrap_or("fragment");
            json!({ name: fragment(piece) })
        }
        Event::Signature(piece) => json!({ "signature": fragment(piece) }),
        Event::Sealed(piece) => json!({ "sealed": fragment(piece) }),
        Event::Logprobs(piece) => json!({ "logprobs": {
            "index": piece.index,
            "entries": json_or_text(&piece.text),
        } }),
        Event::Citation(cited) => json!({ "citation": citation(cited) }),
        Event::BlockEnd(index) => json!({ "block-end": index }),
        Event::Opaque(opaque) => json!({ "opaque": {
            "index": opaque.index,
            "kind": opaque.block.kind,
            "json": json_or_text(&opaque.block.json),
        } }),
        // The event of the image gives their number.
        Event::MediaBytes(_) => return Ok(()),
        Event::Media(made) => json!({ "media": media(made) }),
        Event::Usage(reported) => json!({ "usage": usage(reported) }),
        Event::Finish(reason) => json!({ "finish": finish(reason) }),
    };
    print(out, &json!({ "event": event }))
}

pub(crate) fn wait(out: &mut dyn Write, milliseconds: u32) -> anyhow::Result<()> {
    print(out, &json!({ "wait_ms": milliseconds }))
}

pub(crate) fn done(out: &mut dyn Write) -> anyhow::Result<()> {
    print(out, &json!({ "done": true }))
}

pub(crate) fn failure(out: &mut dyn Write, failure: &Failure) -> anyhow::Result<()> {
    let mut line = Map::from_iter([
        ("kind".to_owned(), json!(failure_kind(failure.kind))),
        ("text".to_owned(), json!(failure.text)),
    ]);
    for (name, value) in [
        ("param", failure.param.as_deref().map(Value::from)),
        ("retry-after-ms", failure.retry_after_ms.map(Value::from)),
        ("code", failure.code.as_deref().map(Value::from)),
        (
            "upstream-error",
            failure.upstream_error.as_deref().map(json_or_text),
        ),
    ] {
        line.extend(value.map(|value| (name.to_owned(), value)));
    }
    print(out, &json!({ "failure": line }))
}

/// Returns the contract's name of a kind of failure.
pub(crate) fn failure_kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Unsupported => "unsupported",
        FailureKind::Rejected => "rejected",
        FailureKind::ModelNotFound => "model-not-found",
        FailureKind::ContextLength => "context-length",
        FailureKind::Filtered => "filtered",
        FailureKind::Unauthorized => "unauthorized",
        FailureKind::RateLimited => "rate-limited",
        FailureKind::Unavailable => "unavailable",
        FailureKind::Malformed => "malformed",
    }
}

/// Prints the reason for refusing the adapter's request.
pub(crate) fn refused(out: &mut dyn Write, why: &str) -> anyhow::Result<()> {
    print(out, &json!({ "refused": why }))
}

pub(crate) fn error(out: &mut dyn Write, what: &str) -> anyhow::Result<()> {
    print(out, &json!({ "error": what }))
}

/// Returns the line of a tool's request.
pub(crate) fn fetch(request: &outbound::Request) -> Value {
    let mut headers = Map::new();
    for (name, value) in &request.headers {
        insert(&mut headers, name, value);
    }
    let mut fetch = json!({
        "method": http_rules::method(request.method).as_str(),
        "url": request.url,
        "headers": headers,
    });
    if let Some(body) = &request.body {
        let text = String::from_utf8_lossy(body);
        fetch["body"] = json_or_text(&text);
    }
    if let Some(credential) = &request.credential {
        fetch["credential"] = json!(credential);
    }
    json!({ "fetch": fetch })
}

/// Returns the line of the status and the headers that a tool sees.
pub(crate) fn response(response: &outbound::Response) -> Value {
    let mut headers = Map::new();
    for (name, value) in &response.headers {
        insert(&mut headers, name, value);
    }
    json!({ "head": { "status": response.status, "headers": headers } })
}

/// Prints a line.
pub(crate) fn value(out: &mut dyn Write, value: &Value) -> anyhow::Result<()> {
    print(out, value)
}

fn headers(headers: &HeaderMap) -> Map<String, Value> {
    let mut shown = Map::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        insert(&mut shown, name.as_str(), &value);
    }
    shown
}

/// Adds a header. HTTP joins the values of a repeated header with commas.
fn insert(headers: &mut Map<String, Value>, name: &str, value: &str) {
    let value = match headers.get(name) {
        Some(Value::String(first)) => format!("{first}, {value}"),
        _ => value.to_owned(),
    };
    headers.insert(name.to_owned(), value.into());
}

fn piece_name(block: &Block) -> &'static str {
    match block {
        Block::Text => "text",
        Block::Refusal => "refusal",
        Block::Reasoning => "reasoning",
        Block::ToolCall(_) => "tool-call-fragment",
    }
}

fn block_start(start: &BlockStart) -> Value {
    let index = start.index;
    match &start.block {
        Block::ToolCall(call) => json!({ "tool-call": {
            "index": index,
            "id": call.id,
            "name": call.name,
            "kind": match call.kind {
                CallKind::Function => "function",
                CallKind::Custom => "custom",
            },
        } }),
        block => json!({ "block-start": { "index": index, "block": piece_name(block) } }),
    }
}

fn media(media: &Media) -> Value {
    let mut line = Map::from_iter([
        ("media-type".to_owned(), json!(media.media_type)),
        ("bytes".to_owned(), json!(media.data.len())),
    ]);
    for (name, value) in [
        ("url", media.url.as_deref().map(Value::from)),
        (
            "revised-prompt",
            media.revised_prompt.as_deref().map(Value::from),
        ),
        ("is-preview", media.is_preview.then_some(Value::Bool(true))),
    ] {
        line.extend(value.map(|value| (name.to_owned(), value)));
    }
    line.into()
}

fn citation(citation: &Citation) -> Value {
    let mut line = Map::from_iter([("index".to_owned(), json!(citation.index))]);
    let span = citation
        .span
        .map(|span| json!({ "start": span.start, "end": span.end }));
    for (name, value) in [
        ("source", citation.source.as_deref().map(Value::from)),
        ("title", citation.title.as_deref().map(Value::from)),
        (
            "cited-text",
            citation.cited_text.as_deref().map(Value::from),
        ),
        ("span", span),
        ("json", citation.json.as_deref().map(json_or_text)),
    ] {
        line.extend(value.map(|value| (name.to_owned(), value)));
    }
    line.into()
}

/// Returns an adapter's JSON, or its text if it is not JSON.
fn json_or_text(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| json.into())
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
    let other = usage
        .other
        .iter()
        .map(|other| (other.name.clone(), other.count.into()));
    counts
        .into_iter()
        .filter_map(|(name, count)| Some((name.to_owned(), Value::from(count?))))
        .chain(other)
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
        FinishReason::PauseTurn => "pause-turn".into(),
        FinishReason::ContextWindow => "context-window".into(),
        FinishReason::MalformedCall => "malformed-call".into(),
        FinishReason::Other(word) => json!({ "other": word }),
    }
}

fn print(out: &mut dyn Write, line: &impl Serialize) -> anyhow::Result<()> {
    let line = one_line(&serde_json::to_string(line)?);
    // `println!` panics if the reader, such as `head`, has closed the output.
    writeln!(out, "{line}")?;
    Ok(())
}

/// Puts JSON on one line and escapes control characters: a hostile component must not control the terminal.
fn one_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            // JSON allows these between tokens only.
            '\t' | '\n' | '\r' => line.push(' '),
            // JSON allows these in strings only; an escape has the same value.
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
    fn a_line_is_the_same_json_without_control_characters() {
        let json = "{\n\t\"a\": \"\u{9b}31m\u{202e}\u{7f}żółw\\n\"\r\n}";
        let line = one_line(json);
        assert_eq!(line, "{  \"a\": \"\\u009b31m\\u202e\\u007fżółw\\n\"  }");
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        assert_eq!(read(&line), read(json));
    }
}
