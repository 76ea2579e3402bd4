//! The checks of a filter: requests, and a response in many portions, each twice.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::json;
use weir_sandbox::adapter::bindings::chat::{Event, Fragment};
use weir_sandbox::filter::LoadedFilter;

use super::cost::{MEASURED_FOR, ROUNDS, micros};
use super::difference::difference;
use super::input::SuiteInput;
use crate::conformance::Conformance;
use crate::event_lines;
use crate::recording::RecordedResponse;
use crate::recordings::AuthorRecording;
use crate::report::{CheckReport, ComponentFault};
use crate::trial::TrialRequest;
use crate::try_filter::{self, FilterTrial, FilteredResponse, TrialDecision};

/// A response with a block of every kind.
const RESPONSE: &str = r#"{"event":{"started":{"id":"resp_1","model":"acme-1"}}}
{"event":{"block-start":{"index":0,"block":"reasoning"}}}
{"event":{"reasoning":{"index":0,"text":"They ask for the Grüße, "}}}
{"event":{"reasoning":{"index":0,"text":"so I look them up."}}}
{"event":{"block-end":0}}
{"event":{"block-start":{"index":1,"block":"text"}}}
{"event":{"text":{"index":1,"text":"Write to ada@example.org or call +49 30 "}}}
{"event":{"text":{"index":1,"text":"1234567; it is the first of "}}}
{"event":{"citation":{"index":1,"source":"https://example.org/","cited-text":"Call us.","span":{"start":0,"end":5}}}}
{"event":{"text":{"index":1,"text":"three.\n"}}}
{"event":{"block-end":1}}
{"event":{"tool-call":{"index":2,"id":"call_1","name":"look_up","kind":"function"}}}
{"event":{"tool-call":{"index":3,"id":"call_2","name":"look_up","kind":"function"}}}
{"event":{"tool-call-fragment":{"index":2,"text":"{\"name\":"}}}
{"event":{"tool-call-fragment":{"index":3,"text":"{\"name\":\"Zoë\"}"}}}
{"event":{"tool-call-fragment":{"index":2,"text":"\"Ada\"}"}}}
{"event":{"block-end":2}}
{"event":{"block-end":3}}
{"event":{"finish":"tool-calls"}}
"#;

/// The portions in which a response comes: events a portion, and characters a fragment. 0 events: one portion. 0 characters: uncut fragments.
const CUTS: [(usize, usize); 6] = [(1, 0), (2, 0), (1, 1), (0, 1), (3, 2), (1, 7)];

const ABOUT_VERDICTS: &str =
    "wit/filter.wit: screen, record verdict; plugins/README.md: Writing a filter";
const ABOUT_ANSWERS: &str =
    "wit/filter.wit: resource answer, variant screened; wit/README.md: Events and blocks";
const ABOUT_CUTS: &str =
    "wit/filter.wit: resource answer: text comes in fragments of any size, cut anywhere";
const ABOUT_SAMENESS: &str =
    "wit/filter.wit: interface filter: the same bytes in give the same verdict out";
const ABOUT_OPTIONS: &str = "wit/filter.wit: configure; plugins/README.md: Writing a filter";
const ABOUT_OWN: &str = "plugins/README.md: Check it";

pub(crate) struct FilterSuite<'a> {
    filter: &'a LoadedFilter,
    input: &'a SuiteInput<'a>,
    providers: Vec<String>,
    /// The differences between two runs of the same request.
    differing: Vec<ComponentFault>,
    /// The number of requests that ran twice.
    compared: usize,
}

/// The data that a filter gets beside a request and a response.
#[derive(Clone, Copy)]
struct Given<'a> {
    configuration: &'a [u8],
    /// The response of the filter's service.
    service: Option<&'a RecordedResponse>,
}

/// The result of a request and its response.
struct FilterRun {
    printed: String,
    fault: Option<String>,
}

impl<'a> FilterSuite<'a> {
    pub(crate) fn new(filter: &'a LoadedFilter, input: &'a SuiteInput<'a>) -> Self {
        Self {
            filter,
            input,
            providers: input.plugin.providers(),
            differing: Vec::new(),
            compared: 0,
        }
    }

    pub(crate) async fn run(mut self, report: &mut CheckReport) -> anyhow::Result<()> {
        let options = self.input.plugin.options();
        let configuration = match self.filter.configure(&options).await {
            Ok(configuration) => configuration,
            Err(error) => {
                let known = &self.filter.description.options;
                let why = match known.is_empty() {
                    true => error.to_string(),
                    false => format!("{error}; its options are: {}", known.join(", ")),
                };
                let why = format!("{why}; to set an option, use --option");
                report.fail("options", &why, ABOUT_OPTIONS);
                return Ok(());
            }
        };
        report.pass("options", format!("{} are accepted", options.len()));
        let given = Given {
            configuration: &configuration,
            service: None,
        };
        self.requests(given, report).await?;
        self.answer(given, report).await?;
        self.own(given, report).await?;
        let compared = format!("{} runs gave the same bytes twice", self.compared);
        report.judge("determinism", compared, std::mem::take(&mut self.differing));
        self.cost(given, report).await
    }

    fn trial<'b>(&'b self, given: Given<'b>) -> FilterTrial<'b> {
        FilterTrial {
            filter: self.filter,
            configuration: given.configuration,
            providers: &self.providers,
            service: given.service,
        }
    }

    /// The filter passes each request, changes it to another valid request, or refuses it.
    async fn requests(&mut self, given: Given<'_>, report: &mut CheckReport) -> anyhow::Result<()> {
        let (mut passed, mut changed, mut refused, mut other) = (0, 0, 0, 0);
        let mut faults = Vec::new();
        for name in self.input.conformance.requests() {
            let request = self.input.conformance.call(name)?.into();
            let run = self.twice(name, given, &request, &[]).await;
            match run.fault {
                Some(why) => faults.push(fault(name, why, ABOUT_VERDICTS)),
                None if run.printed.starts_with("{\"refusal\"") => refused += 1,
                None if run.printed.contains("\"change\":null") => passed += 1,
                None if run.printed.starts_with("{\"verdict\"") => changed += 1,
                None => other += 1,
            }
        }
        let mut detail =
            format!("{passed} pass unchanged, {changed} are changed, {refused} are refused");
        if other > 0 {
            detail += &format!(", {other} get the filter's own response or wait for its service");
        }
        report.judge("requests", detail, faults);
        Ok(())
    }

    /// The filtered response does not depend on its portions.
    async fn answer(&mut self, given: Given<'_>, report: &mut CheckReport) -> anyhow::Result<()> {
        let request = self.input.conformance.call("streamed")?.into();
        let events = event_lines::read(RESPONSE)?;
        let trial = self.trial(given);
        let watches = match trial.screen(&request).await.map(|done| done.decision) {
            Ok(TrialDecision::Verdict(verdict)) => verdict.watching.is_some(),
            Ok(TrialDecision::Response(_) | TrialDecision::Awaits) => false,
            // Another check has reported the fault.
            Ok(TrialDecision::Refusal(_)) | Err(_) => {
                report.skip("answer", "the filter refuses the simplest request");
                return Ok(());
            }
        };
        if !watches {
            report.skip(
                "answer",
                "the filter does not watch responses to the simplest request",
            );
            return Ok(());
        }
        let run = self.twice("answer", given, &request, &events).await;
        let mut faults = Vec::new();
        match run.fault {
            Some(why) => faults.push(fault("a recorded response", why, ABOUT_ANSWERS)),
            None => faults.extend(
                self.cut("a recorded response", given, &request, &events)
                    .await?,
            ),
        }
        let detail = format!("the same text for {} kinds of portions", CUTS.len());
        report.judge("answer", detail, faults);
        Ok(())
    }

    async fn once(&self, given: Given<'_>, request: &TrialRequest, events: &[Event]) -> FilterRun {
        // `weir plugin try` has the same portions.
        let portions = portions(events, 1, 0);
        let mut out = Vec::new();
        let ended = self.trial(given).run(request, portions, &mut out).await;
        FilterRun {
            printed: String::from_utf8_lossy(&out).into_owned(),
            fault: ended.err().map(|error| error.to_string()),
        }
    }

    /// Runs a request twice and notes a difference.
    async fn twice(
        &mut self,
        of: &str,
        given: Given<'_>,
        request: &TrialRequest,
        events: &[Event],
    ) -> FilterRun {
        let first = self.once(given, request, events).await;
        let second = self.once(given, request, events).await;
        self.compared += 1;
        if let Some(why) = difference(&first.printed, &second.printed) {
            let why = format!("run again, {why}");
            self.differing.push(fault(of, why, ABOUT_SAMENESS));
        }
        first
    }

    /// Returns the first portions that change the filtered response.
    async fn cut(
        &self,
        of: &str,
        given: Given<'_>,
        request: &TrialRequest,
        events: &[Event],
    ) -> anyhow::Result<Option<ComponentFault>> {
        let trial = self.trial(given);
        let mut whole = None;
        for (count, characters) in [(0, 0)].into_iter().chain(CUTS) {
            let Some(watching) = trial.screen(request).await?.into_watching() else {
                return Ok(None);
            };
            let portions = portions(events, count, characters);
            let how = || {
                let count = if count == 0 { events.len() } else { count };
                match characters {
                    0 => format!("in portions of {count} events"),
                    _ => format!("in portions of {count} events of {characters} characters"),
                }
            };
            let filtered =
                try_filter::filter_response(watching, request.output_limit(), portions).await;
            let text = match filtered {
                Ok(filtered) => assembled(filtered),
                Err(error) => {
                    let why = format!("{}, {error}", how());
                    return Ok(Some(fault(of, why, ABOUT_ANSWERS)));
                }
            };
            let whole = whole.get_or_insert_with(|| text.clone());
            if let Some(why) = difference(whole, &text) {
                return Ok(Some(fault(of, format!("{}, {why}", how()), ABOUT_CUTS)));
            }
        }
        Ok(None)
    }

    /// The author's own requests and responses.
    async fn own(&mut self, given: Given<'_>, report: &mut CheckReport) -> anyhow::Result<()> {
        for own in self.input.recordings {
            let check = format!("recording {}", own.name);
            let (request, events) = match read(own, self.input.conformance) {
                Ok(read) => read,
                Err(error) => {
                    report.fail(&check, &format!("{error:#}"), ABOUT_OWN);
                    continue;
                }
            };
            let given = Given {
                service: own.responses.first(),
                ..given
            };
            let run = self.twice(&own.name, given, &request, &events).await;
            let mut faults = Vec::new();
            match run.fault {
                Some(why) => faults.push(fault(&own.name, why, ABOUT_ANSWERS)),
                None if events.is_empty() => {}
                None => faults.extend(self.cut(&own.name, given, &request, &events).await?),
            }
            let said = match self.input.compare(own, &run.printed)? {
                Ok(said) => said,
                Err(why) => {
                    faults.push(fault(&own.name, why, ABOUT_OWN));
                    ""
                }
            };
            let lines = run.printed.lines().count();
            report.judge(&check, format!("{lines} lines; {said}"), faults);
        }
        if self.input.recordings.is_empty() {
            report.skip(
                "own recordings",
                "there are none; to add some, use --recordings DIR",
            );
        }
        Ok(())
    }

    /// Measures the time of a request and of an event.
    async fn cost(&self, given: Given<'_>, report: &mut CheckReport) -> anyhow::Result<()> {
        let request: TrialRequest = self.input.conformance.call("multi-turn")?.into();
        let events = event_lines::read(RESPONSE)?;
        let trial = self.trial(given);
        let (mut screens, mut shows) = (Vec::new(), Vec::new());
        let began = Instant::now();
        while screens.len() < ROUNDS && (screens.is_empty() || began.elapsed() < MEASURED_FOR) {
            let started = Instant::now();
            let screened = trial.screen(&request).await;
            screens.push(started.elapsed());
            let Ok(screened) = screened else {
                break;
            };
            let Some(watching) = screened.into_watching() else {
                continue;
            };
            let portions = portions(&events, 1, 0);
            let count = u32::try_from(portions.len())?;
            let started = Instant::now();
            if try_filter::filter_response(watching, request.output_limit(), portions)
                .await
                .is_ok()
            {
                shows.push(started.elapsed() / count);
            }
        }
        let mut cost = json!({ "screen_us": micros(screens) });
        let mut detail = format!("a fresh instance with screen: {} µs", cost["screen_us"]);
        if !shows.is_empty() {
            let shown = micros(shows);
            detail += &format!("; an event of a response: {shown} µs");
            cost["event_us"] = shown;
        }
        report.pass("cost", detail);
        report.cost(cost);
        Ok(())
    }
}

fn read(
    own: &AuthorRecording,
    conformance: Conformance,
) -> anyhow::Result<(TrialRequest, Vec<Event>)> {
    let request = own.trial_request(conformance)?;
    let events = match &own.events {
        Some(text) => event_lines::read(&String::from_utf8_lossy(text))?,
        None => Vec::new(),
    };
    if own.events.is_some() {
        try_filter::check_response(&events, request.output_limit())?;
    }
    Ok((request, events))
}

/// Cuts a response into portions of `count` events, and fragments into at most `characters` characters.
fn portions(events: &[Event], count: usize, characters: usize) -> Vec<Vec<Event>> {
    let mut pieces = Vec::new();
    for event in events {
        match event {
            Event::Fragment(Fragment { index, text }) if characters > 0 => {
                let text: Vec<char> = text.chars().collect();
                pieces.extend(text.chunks(characters).map(|piece| {
                    Event::Fragment(Fragment {
                        index: *index,
                        text: piece.iter().collect(),
                    })
                }));
            }
            event => pieces.push(event.clone()),
        }
    }
    let count = if count == 0 { pieces.len() } else { count };
    pieces.chunks(count.max(1)).map(<[_]>::to_vec).collect()
}

/// Returns the text of each block, and all other events in order. The cuts of fragments are not visible.
fn assembled(filtered: FilteredResponse) -> String {
    let mut texts: BTreeMap<u32, String> = BTreeMap::new();
    let mut lines = Vec::new();
    for event in filtered.events {
        match event {
            Event::Fragment(Fragment { index, text }) => {
                texts.entry(index).or_default().push_str(&text)
            }
            event => lines.push(format!("{event:?}")),
        }
    }
    if filtered.is_stopped {
        // The network decides how much of the response came before the end.
        return "the filter ended it".to_owned();
    }
    let texts = texts.iter();
    let texts = texts.map(|(index, text)| format!("block {index}: {text:?}"));
    texts.chain(lines).collect::<Vec<_>>().join("\n")
}

fn fault(of: &str, why: String, read: &'static str) -> ComponentFault {
    ComponentFault {
        of: of.to_owned(),
        why,
        read,
    }
}
