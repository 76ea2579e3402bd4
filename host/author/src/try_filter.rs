//! A trial of a filter: its verdict on a request, and its events of a response.
//!
//! The gateway's rules apply to both ([`weir_upstream::filter_rules`]).

use std::io::Write;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use weir_sandbox::adapter::bindings::chat::{Content, Event, Message, Role, ToolContent};
use weir_sandbox::filter::bindings::filter::{Refusal, Screened, Task};
use weir_sandbox::filter::{
    FilterStep, FilterVerdict, FilterWatcher, LoadedFilter, ScreeningContext,
};
use weir_upstream::filter_rules::{self, FilterFault};
use weir_upstream::sequence::Sequence;

use crate::lines::{self, Pieces};
use crate::notes::note;
use crate::recording::RecordedResponse;
use crate::trial::TrialRequest;

/// The largest response that a filter may check as a whole: the default of a gateway.
const WHOLE_BYTES: u32 = 64 << 10;

pub(crate) struct FilterTrial<'a> {
    pub(crate) filter: &'a LoadedFilter,
    pub(crate) configuration: &'a [u8],
    /// The providers that may serve the request.
    pub(crate) providers: &'a [String],
    pub(crate) service: Option<&'a RecordedResponse>,
}

/// A filter's decision about a request.
pub(crate) struct TrialScreening {
    /// The body of the request to the filter's service.
    asked: Option<Vec<u8>>,
    pub(crate) decision: TrialDecision,
}

pub(crate) enum TrialDecision {
    Verdict(Box<FilterVerdict>),
    Refusal(Refusal),
    /// The filter responds itself.
    Response(Vec<Event>),
    /// The filter waits for the response of its service.
    Awaits,
}

impl TrialScreening {
    /// Returns the filter of the response, if there is one.
    pub(crate) fn into_watching(self) -> Option<(FilterWatcher, bool)> {
        let TrialDecision::Verdict(verdict) = self.decision else {
            return None;
        };
        Some((verdict.watching?, verdict.is_on_whole))
    }
}

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
        let screening = self.screen(request).await?;
        if let Some(body) = &screening.asked {
            lines::value(
                out,
                &json!({ "ask-service": String::from_utf8_lossy(body) }),
            )?;
        }
        let verdict = match screening.decision {
            TrialDecision::Verdict(verdict) => verdict,
            TrialDecision::Refusal(Refusal { why, param }) => {
                let refusal = json!({ "refusal": { "why": why, "param": param } });
                return lines::value(out, &refusal);
            }
            TrialDecision::Response(events) => {
                let mut pieces = Pieces::default();
                for event in &events {
                    lines::event(out, event, &mut pieces)?;
                }
                return lines::done(out);
            }
            TrialDecision::Awaits => {
                note(format_args!(
                    "The filter waits for its service. To give it a response, use --response FILE."
                ));
                return Ok(());
            }
        };
        lines::value(out, &shown_verdict(&verdict))?;
        if portions.is_empty() {
            return Ok(());
        }
        let filtered = match verdict.watching {
            Some(watching) => {
                let watching = (watching, verdict.is_on_whole);
                filter_response(watching, request.output_limit(), portions).await?
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

    /// Returns the filter's decision about a request.
    pub(crate) async fn screen(&self, request: &TrialRequest) -> anyhow::Result<TrialScreening> {
        let shown = request.screened(self.providers);
        let context = ScreeningContext {
            key_options: Vec::new(),
            account_options: Vec::new(),
            has_service: true,
            whole_bytes: WHOLE_BYTES,
        };
        let screening =
            self.filter
                .screen(&shown, request.text_bytes(), &context, self.configuration);
        let mut step = screening.await?;
        let mut asked = None;
        if let Ok(FilterStep::AskService(body, pending)) = step {
            asked = Some(body);
            let Some(service) = self.service else {
                let decision = TrialDecision::Awaits;
                return Ok(TrialScreening { asked, decision });
            };
            if !service.status.is_success() {
                bail!(FilterFault::Service(format!(
                    "the status is {}",
                    service.status.as_u16()
                )));
            }
            step = pending.replied(&service.body).await?;
        }
        let decision = match step {
            Ok(FilterStep::Decide(verdict)) => {
                if let Some(changed) = &verdict.change {
                    filter_rules::check_change(&shown.task, changed, shown.attachments.len())?;
                }
                filter_rules::check_annotations(&verdict.annotations)?;
                let all: Vec<_> = (0..shown.upstreams.len()).collect();
                filter_rules::choose(&verdict.upstreams, &all)?;
                TrialDecision::Verdict(verdict)
            }
            Ok(FilterStep::Respond(events)) => {
                filter_rules::check_own_response(&shown.task, &events)?;
                TrialDecision::Response(events)
            }
            Ok(FilterStep::AskService(..)) => bail!(FilterFault::AskedTwice),
            Ok(FilterStep::Fail(why)) => bail!(filter_rules::undecided(&why)),
            Err(refusal) => TrialDecision::Refusal(refusal),
        };
        Ok(TrialScreening { asked, decision })
    }
}

/// Passes a response in these portions through the filter, or all portions at once if it checks the whole.
pub(crate) async fn filter_response(
    (mut watching, is_on_whole): (FilterWatcher, bool),
    output_limit: u32,
    mut portions: Vec<Vec<Event>>,
) -> anyhow::Result<FilteredResponse> {
    if is_on_whole {
        portions = vec![portions.concat()];
    }
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
        if held_back > filter_rules::LOOK_BEHIND_BYTES && !is_on_whole {
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
    let mut shown = json!({ "verdict": {
        "change": verdict.change.as_ref().map(shown_task),
        "upstreams": verdict.upstreams,
        "annotations": annotations.collect::<Map<String, Value>>(),
        "answer": verdict.watching.is_some(),
    } });
    if verdict.is_on_whole {
        shown["verdict"]["whole"] = true.into();
    }
    shown
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
