//! A trial of a filter: its verdict on a request, and its events of a response.
//!
//! The gateway's rules apply to both ([`weir_upstream::filter_rules`]).

use std::io::Write;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use weir_sandbox::adapter::bindings::chat::{Content, Event, Message, Role, ToolContent};
use weir_sandbox::filter::bindings::filter::{Refusal, Screened, Task};
use weir_sandbox::filter::{FilterVerdict, FilterWatcher, LoadedFilter};
use weir_upstream::filter_rules::{self, FilterFault};
use weir_upstream::sequence::Sequence;

use crate::lines::{self, Pieces};
use crate::trial::TrialRequest;

/// A filter with its configuration.
pub(crate) struct FilterTrial<'a> {
    pub(crate) filter: &'a LoadedFilter,
    pub(crate) configuration: &'a [u8],
    /// The providers that may serve the request.
    pub(crate) providers: &'a [String],
}

/// A response after the filter.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FilteredResponse {
    /// The events for the client.
    pub(crate) events: Vec<Event>,
    /// True if the filter ended the response.
    pub(crate) is_stopped: bool,
}

impl FilterTrial<'_> {
    /// Prints the verdict and the filtered events of a response that comes in these portions.
    pub(crate) async fn run(
        &self,
        request: &TrialRequest,
        portions: Vec<Vec<Event>>,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<()> {
        let ended = self.print(request, portions, out).await;
        if let Err(error) = &ended {
            lines::error(out, &error.to_string())?;
        }
        ended
    }

    async fn print(
        &self,
        request: &TrialRequest,
        portions: Vec<Vec<Event>>,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<()> {
        let verdict = match self.screen(request).await? {
            Ok(verdict) => verdict,
            Err(Refusal { why, param }) => {
                let refusal = json!({ "refusal": { "why": why, "param": param } });
                return lines::value(out, &refusal);
            }
        };
        lines::value(out, &shown_verdict(&verdict))?;
        if portions.is_empty() {
            return Ok(());
        }
        let filtered = match verdict.watching {
            Some(mut watching) => {
                filter_response(&mut watching, request.output_limit(), portions).await?
            }
            None => FilteredResponse {
                events: portions.concat(),
                is_stopped: false,
            },
        };
        let mut pieces = Pieces::default();
        for event in &filtered.events {
            lines::event(out, event, &mut pieces)?;
        }
        match filtered.is_stopped {
            true => lines::value(out, &json!({ "stopped": true })),
            false => lines::done(out),
        }
    }

    /// Returns the filter's verdict on a request.
    pub(crate) async fn screen(
        &self,
        request: &TrialRequest,
    ) -> anyhow::Result<Result<FilterVerdict, Refusal>> {
        let shown = request.screened(self.providers);
        let screened = self
            .filter
            .screen(&shown, request.text_bytes(), self.configuration)
            .await?;
        if let Ok(verdict) = &screened {
            if let Some(changed) = &verdict.change {
                filter_rules::check_change(&shown.task, changed, shown.attachments.len())?;
            }
            filter_rules::check_annotations(&verdict.annotations)?;
            let all: Vec<_> = (0..shown.upstreams.len()).collect();
            filter_rules::choose(&verdict.upstreams, &all)?;
        }
        Ok(screened)
    }
}

/// Passes a response in these portions through the filter.
pub(crate) async fn filter_response(
    watching: &mut FilterWatcher,
    output_limit: u32,
    portions: Vec<Vec<Event>>,
) -> anyhow::Result<FilteredResponse> {
    let mut filtered = FilteredResponse::default();
    let mut sequence = Sequence::new(output_limit);
    let mut held_back = 0;
    for portion in portions {
        let bytes = portion.iter().map(filter_rules::spoken_bytes).sum();
        let made = match watching.events(&portion, bytes).await? {
            Screened::Pass => portion,
            Screened::Replace(made) => made,
            Screened::Stop => {
                filtered.is_stopped = true;
                return Ok(filtered);
            }
        };
        if !made.iter().all(filter_rules::is_shown) {
            bail!(FilterFault::Forged);
        }
        held_back = match made
            .iter()
            .any(|event| filter_rules::spoken_bytes(event) > 0)
        {
            true => 0,
            false => held_back + bytes,
        };
        if held_back > filter_rules::LOOK_BEHIND_BYTES {
            bail!(FilterFault::HeldBack);
        }
        for event in &made {
            sequence.follow(event).map_err(FilterFault::from)?;
        }
        filtered.events.extend(made);
    }
    sequence.end().map_err(FilterFault::from)?;
    Ok(filtered)
}

/// Checks that the author's events are a valid response.
pub(crate) fn check_response(events: &[Event], output_limit: u32) -> anyhow::Result<()> {
    let mut sequence = Sequence::new(output_limit);
    let followed = events.iter().try_for_each(|event| sequence.follow(event));
    let ended = followed.and_then(|()| sequence.end());
    ended.context("the given events are not a valid response")
}

fn shown_verdict(verdict: &FilterVerdict) -> Value {
    let annotations = verdict.annotations.iter();
    let annotations = annotations.map(|(name, value)| (name.clone(), value.clone().into()));
    json!({ "verdict": {
        "change": verdict.change.as_ref().map(shown_task),
        "upstreams": verdict.upstreams,
        "annotations": annotations.collect::<Map<String, Value>>(),
        "answer": verdict.watching.is_some(),
    } })
}

/// Returns the text of a changed request.
fn shown_task(task: &Task) -> Value {
    match task {
        Task::Chat(chat) => {
            json!({ "messages": chat.messages.iter().map(message).collect::<Vec<_>>() })
        }
        Task::Image(image) => json!({ "prompt": image.prompt }),
    }
}

fn message(message: &Message) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let parts = message.parts.iter().map(|part| content(&part.content));
    json!({ "role": role, "parts": parts.collect::<Vec<_>>() })
}

fn content(content: &Content) -> Value {
    match content {
        Content::Text(text) => json!({ "text": text }),
        Content::Refusal(text) => json!({ "refusal": text }),
        Content::Reasoning(reasoning) => json!({ "reasoning": reasoning.text }),
        Content::ToolCall(call) => {
            json!({ "tool-call": { "name": call.name, "arguments": call.arguments } })
        }
        Content::ToolResult(result) => {
            let texts = result.content.iter().map(|content| match content {
                ToolContent::Text(text) => json!({ "text": text }),
                ToolContent::Image(_) => json!("image"),
                ToolContent::File(_) => json!("file"),
                ToolContent::Opaque(opaque) => json!({ "opaque": opaque.kind }),
            });
            json!({ "tool-result": texts.collect::<Vec<_>>() })
        }
        Content::Image(_) => json!("image"),
        Content::Audio(_) => json!("audio"),
        Content::File(_) => json!("file"),
        Content::Opaque(opaque) => json!({ "opaque": opaque.kind }),
    }
}
