//! The events of a response, read from the lines of `weir plugin try` (see [`crate::lines`]).
//!
//! Other lines are ignored, and events that filters do not see: images, recordings and usage. The output of an adapter is valid input
//! for a filter.

use anyhow::{Context, anyhow, bail};
use serde_json::Value;
use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, CallKind, Citation, Event, FinishReason, Fragment, Opaque, OpaqueBlock,
    Span, Started, ToolCallStart,
};

/// Reads events, one a line.
pub(crate) fn read(text: &str) -> anyhow::Result<Vec<Event>> {
    let mut events = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let read = || -> anyhow::Result<Option<Event>> {
            let line: Value = serde_json::from_str(line)?;
            let line = line.as_object().context("it is not an object")?;
            match line.get("event") {
                Some(event) => event_of(event),
                None => Ok(None),
            }
        };
        let event = read().with_context(|| format!("line {number} is not an event"))?;
        events.extend(event);
    }
    Ok(events)
}

fn event_of(event: &Value) -> anyhow::Result<Option<Event>> {
    let event = event.as_object().filter(|event| event.len() == 1);
    let event = event.and_then(|event| event.iter().next());
    let (name, value) = event.context("an event has exactly one name")?;
    let fragment = || -> anyhow::Result<Fragment> {
        Ok(Fragment {
            index: index(value)?,
            text: text(value, "text")?,
        })
    };
    Ok(Some(match &**name {
        "started" => Event::Started(Started {
            id: optional(value, "id"),
            model: optional(value, "model"),
        }),
        "block-start" => Event::BlockStart(BlockStart {
            index: index(value)?,
            block: match value["block"].as_str() {
                Some("text") => Block::Text,
                Some("refusal") => Block::Refusal,
                Some("reasoning") => Block::Reasoning,
                _ => bail!("its block must be text, refusal or reasoning"),
            },
        }),
        "tool-call" => Event::BlockStart(BlockStart {
            index: index(value)?,
            block: Block::ToolCall(ToolCallStart {
                id: text(value, "id")?,
                name: text(value, "name")?,
                kind: match value["kind"].as_str() {
                    Some("custom") => CallKind::Custom,
                    _ => CallKind::Function,
                },
            }),
        }),
        "text" | "refusal" | "reasoning" | "tool-call-fragment" | "fragment" => {
            Event::Fragment(fragment()?)
        }
        "signature" => Event::Signature(fragment()?),
        "sealed" => Event::Sealed(fragment()?),
        "logprobs" => Event::Logprobs(Fragment {
            index: index(value)?,
            text: json_text(&value["entries"]),
        }),
        "citation" => Event::Citation(Citation {
            index: index(value)?,
            source: optional(value, "source"),
            title: optional(value, "title"),
            cited_text: optional(value, "cited-text"),
            span: match &value["span"] {
                Value::Null => None,
                span => Some(Span {
                    start: number(span, "start")?,
                    end: number(span, "end")?,
                }),
            },
            json: value.get("json").map(json_text),
        }),
        "block-end" => {
            let index = value.as_u64().and_then(|index| index.try_into().ok());
            Event::BlockEnd(index.context("it must be a block's number")?)
        }
        "opaque" => Event::Opaque(OpaqueBlock {
            index: index(value)?,
            block: Opaque {
                kind: text(value, "kind")?,
                json: json_text(&value["json"]),
            },
        }),
        "finish" => Event::Finish(finish(value)?),
        "media" | "usage" => return Ok(None),
        other => bail!("there is no event {other}"),
    }))
}

fn finish(value: &Value) -> anyhow::Result<FinishReason> {
    if let Some(text) = value["stop-sequence"].as_str() {
        return Ok(FinishReason::StopSequence(text.to_owned()));
    }
    if let Some(word) = value["other"].as_str() {
        return Ok(FinishReason::Other(word.to_owned()));
    }
    Ok(match value.as_str() {
        Some("stop") => FinishReason::Stop,
        Some("length") => FinishReason::Length,
        Some("tool-calls") => FinishReason::ToolCalls,
        Some("content-filter") => FinishReason::ContentFilter,
        Some("refusal") => FinishReason::Refusal,
        Some("pause-turn") => FinishReason::PauseTurn,
        Some("context-window") => FinishReason::ContextWindow,
        Some("malformed-call") => FinishReason::MalformedCall,
        _ => bail!("there is no finish {value}"),
    })
}

fn index(value: &Value) -> anyhow::Result<u32> {
    number(value, "index")
}

fn number(value: &Value, name: &str) -> anyhow::Result<u32> {
    let number = value[name]
        .as_u64()
        .and_then(|number| number.try_into().ok());
    number.ok_or_else(|| anyhow!("its {name} must be a number"))
}

fn text(value: &Value, name: &str) -> anyhow::Result<String> {
    optional(value, name).ok_or_else(|| anyhow!("its {name} must be a string"))
}

fn optional(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

/// Returns JSON, or a string that was not JSON.
fn json_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use crate::lines::{self, Pieces};

    use super::*;

    #[test]
    fn read_events_are_printed_unchanged() {
        let text = r#"{"event":{"started":{"id":"1","model":null}}}
{"event":{"block-start":{"block":"text","index":0}}}
{"event":{"logprobs":{"entries":[{"token":"a"}],"index":0}}}
{"event":{"text":{"index":0,"text":"a\nb"}}}
{"event":{"citation":{"cited-text":"c","index":0,"json":{"a":1},"source":"s","span":{"end":2,"start":1},"title":"t"}}}
{"event":{"signature":{"index":0,"text":"x"}}}
{"event":{"block-end":0}}
{"event":{"tool-call":{"id":"1","index":1,"kind":"custom","name":"f"}}}
{"event":{"tool-call-fragment":{"index":1,"text":"{}"}}}
{"event":{"block-end":1}}
{"event":{"opaque":{"index":2,"json":{"b":2},"kind":"k"}}}
{"event":{"finish":{"stop-sequence":"END"}}}
"#;
        let mut printed = Vec::new();
        let mut pieces = Pieces::default();
        for event in read(text).expect("they are events") {
            lines::event(&mut printed, &event, &mut pieces).expect("it can be written");
        }
        assert_eq!(String::from_utf8_lossy(&printed), text);
    }

    #[test]
    fn other_lines_are_ignored_and_a_wrong_event_is_reported_with_its_line() {
        let others = "{\"head\":{\"status\":200}}\n\n{\"event\":{\"usage\":{}}}\n{\"done\":true}\n";
        assert!(read(others).expect("they are not events").is_empty());
        for (line, why) in [
            ("no JSON", "expected"),
            ("[]", "not an object"),
            (r#"{"event":{"say":{}}}"#, "no event say"),
            (r#"{"event":{"text":{"text":"a"}}}"#, "its index"),
            (r#"{"event":{"finish":"never"}}"#, "no finish"),
        ] {
            let error = read(&format!("\n{line}")).expect_err("it is refused");
            let error = format!("{error:#}");
            assert!(error.contains("line 2") && error.contains(why), "{error}");
        }
    }
}
