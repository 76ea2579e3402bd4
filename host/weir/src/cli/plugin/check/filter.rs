//! What a filter is tried with: requests, and an answer that comes in many ways, each twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_sandbox::adapter::bindings::chat::{Event, Fragment};
use weir_sandbox::filter::Filter;

use super::adapter::micros;
use super::{CheckInput, difference, options};
use crate::cli::plugin::given;
use crate::cli::plugin::own::Own;
use crate::cli::plugin::report::{Fault, Report};
use crate::cli::plugin::trial::TrialRequest;
use crate::cli::plugin::try_filter::{self, FilterTrial, Shown};
use crate::cli::plugin::{conformance, event_lines};

/// An answer with a block of every kind.
const ANSWER: &str = r#"{"event":{"started":{"id":"resp_1","model":"acme-1"}}}
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

/// Portions of so many events, and of so many characters each, in which an answer comes; 0 for all at once, or as they are.
const CUTS: [(usize, usize); 6] = [(1, 0), (2, 0), (1, 1), (0, 1), (3, 2), (1, 7)];

/// How often what costs something is measured at most, and for how long.
const ROUNDS: usize = 200;
const MEASURED_FOR: Duration = Duration::from_secs(2);

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

pub(super) struct FilterSuite<'a> {
    filter: &'a Filter,
    given: &'a CheckInput<'a>,
    providers: Vec<String>,
    /// What differed between two runs of the same.
    differing: Vec<Fault>,
    /// How many were compared.
    compared: usize,
}

/// What came of a request, and of its answer.
struct Run {
    printed: String,
    fault: Option<String>,
}

impl<'a> FilterSuite<'a> {
    pub(super) fn new(filter: &'a Filter, given: &'a CheckInput<'a>) -> Self {
        Self {
            filter,
            given,
            providers: given.told.providers(),
            differing: Vec::new(),
            compared: 0,
        }
    }

    pub(super) async fn run(mut self, report: &mut Report) -> anyhow::Result<()> {
        let options = options(self.given.told);
        let configuration = match self.filter.configure(&options).await {
            Ok(configuration) => configuration,
            Err(error) => {
                let known = &self.filter.description.options;
                let why = match known.is_empty() {
                    true => error.to_string(),
                    false => format!("{error}; its options are: {}", known.join(", ")),
                };
                let why = format!("{why}; give what it needs with --option");
                report.fail("options", &why, ABOUT_OPTIONS);
                return Ok(());
            }
        };
        report.pass("options", format!("{} are taken", options.len()));
        self.requests(&configuration, report).await?;
        self.answer(&configuration, report).await?;
        self.own(&configuration, report).await?;
        let compared = format!("{} runs gave the same bytes twice", self.compared);
        report.judge("determinism", compared, std::mem::take(&mut self.differing));
        self.cost(&configuration, report).await
    }

    fn trial<'b>(&'b self, configuration: &'b [u8]) -> FilterTrial<'b> {
        FilterTrial {
            filter: self.filter,
            configuration,
            providers: &self.providers,
        }
    }

    /// Each request is taken, changed to another one that is sound, or refused.
    async fn requests(&mut self, configuration: &[u8], report: &mut Report) -> anyhow::Result<()> {
        let (mut passed, mut changed, mut refused) = (0, 0, 0);
        let mut faults = Vec::new();
        for name in conformance::requests() {
            let tried = conformance::call(name)?.into();
            let run = self.twice(name, configuration, &tried, &[]).await;
            match run.fault {
                Some(why) => faults.push(fault(name, why, ABOUT_VERDICTS)),
                None if run.printed.starts_with("{\"refusal\"") => refused += 1,
                None if run.printed.contains("\"change\":null") => passed += 1,
                None => changed += 1,
            }
        }
        let detail = format!("{passed} pass as they are, {changed} changed, {refused} are refused");
        report.judge("requests", detail, faults);
        Ok(())
    }

    /// An answer must come to the same however it comes.
    async fn answer(&mut self, configuration: &[u8], report: &mut Report) -> anyhow::Result<()> {
        let tried = conformance::call("streamed")?.into();
        let events = event_lines::read(ANSWER)?;
        let trial = self.trial(configuration);
        let watches = match trial.screen(&tried).await {
            Ok(Ok(verdict)) => verdict.watching.is_some(),
            // What is wrong with it has been said.
            Ok(Err(_)) | Err(_) => {
                report.skip("answer", "the plainest request does not pass");
                return Ok(());
            }
        };
        if !watches {
            report.skip("answer", "it does not watch the plainest request's");
            return Ok(());
        }
        let run = self.twice("answer", configuration, &tried, &events).await;
        let mut faults = Vec::new();
        match run.fault {
            Some(why) => faults.push(fault("a recorded answer", why, ABOUT_ANSWERS)),
            None => faults.extend(
                self.cut("a recorded answer", configuration, &tried, &events)
                    .await?,
            ),
        }
        let detail = format!("the same text for {} ways in which it comes", CUTS.len());
        report.judge("answer", detail, faults);
        Ok(())
    }

    async fn once(&self, configuration: &[u8], tried: &TrialRequest, events: &[Event]) -> Run {
        // As `weir plugin try` shows them.
        let portions = portions(events, 1, 0);
        let mut out = Vec::new();
        let ended = self
            .trial(configuration)
            .run(tried, portions, &mut out)
            .await;
        Run {
            printed: String::from_utf8_lossy(&out).into_owned(),
            fault: ended.err().map(|error| error.to_string()),
        }
    }

    /// Runs it twice, which must come to the same.
    async fn twice(
        &mut self,
        of: &str,
        configuration: &[u8],
        tried: &TrialRequest,
        events: &[Event],
    ) -> Run {
        let first = self.once(configuration, tried, events).await;
        let second = self.once(configuration, tried, events).await;
        self.compared += 1;
        if let Some(why) = difference(&first.printed, &second.printed) {
            let why = format!("run again, {why}");
            self.differing.push(fault(of, why, ABOUT_SAMENESS));
        }
        first
    }

    /// The first way for an answer to come by which something else comes of it.
    async fn cut(
        &self,
        of: &str,
        configuration: &[u8],
        tried: &TrialRequest,
        events: &[Event],
    ) -> anyhow::Result<Option<Fault>> {
        let trial = self.trial(configuration);
        let mut whole = None;
        for (count, characters) in [(0, 0)].into_iter().chain(CUTS) {
            let Ok(verdict) = trial.screen(tried).await? else {
                return Ok(None);
            };
            let Some(mut watching) = verdict.watching else {
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
            let shown = try_filter::show(&mut watching, tried.output_limit(), portions).await;
            let shown = match shown {
                Ok(shown) => assembled(shown),
                Err(error) => {
                    let why = format!("{}, {error}", how());
                    return Ok(Some(fault(of, why, ABOUT_ANSWERS)));
                }
            };
            let whole = whole.get_or_insert_with(|| shown.clone());
            if let Some(why) = difference(whole, &shown) {
                return Ok(Some(fault(of, format!("{}, {why}", how()), ABOUT_CUTS)));
            }
        }
        Ok(None)
    }

    /// The author's own requests and answers.
    async fn own(&mut self, configuration: &[u8], report: &mut Report) -> anyhow::Result<()> {
        for own in self.given.recordings {
            let check = format!("recording {}", own.name);
            let (tried, events) = match read(own) {
                Ok(read) => read,
                Err(error) => {
                    report.fail(&check, &format!("{error:#}"), ABOUT_OWN);
                    continue;
                }
            };
            let run = self.twice(&own.name, configuration, &tried, &events).await;
            let mut faults = Vec::new();
            match run.fault {
                Some(why) => faults.push(fault(&own.name, why, ABOUT_ANSWERS)),
                None if events.is_empty() => {}
                None => faults.extend(self.cut(&own.name, configuration, &tried, &events).await?),
            }
            let said = match self.given.compare(own, &run.printed)? {
                Ok(said) => said,
                Err(why) => {
                    faults.push(fault(&own.name, why, ABOUT_OWN));
                    ""
                }
            };
            let lines = run.printed.lines().count();
            report.judge(&check, format!("{lines} lines; {said}"), faults);
        }
        if self.given.recordings.is_empty() {
            report.skip("own recordings", "none are given: --recordings DIR");
        }
        Ok(())
    }

    /// What a request and its answer take.
    async fn cost(&self, configuration: &[u8], report: &mut Report) -> anyhow::Result<()> {
        let tried: TrialRequest = conformance::call("multi-turn")?.into();
        let events = event_lines::read(ANSWER)?;
        let trial = self.trial(configuration);
        let (mut screens, mut shows) = (Vec::new(), Vec::new());
        let began = Instant::now();
        while screens.len() < ROUNDS && (screens.is_empty() || began.elapsed() < MEASURED_FOR) {
            let started = Instant::now();
            let screened = trial.screen(&tried).await;
            screens.push(started.elapsed());
            let Ok(Ok(verdict)) = screened else {
                break;
            };
            let Some(mut watching) = verdict.watching else {
                continue;
            };
            let portions = portions(&events, 1, 0);
            let count = u32::try_from(portions.len())?;
            let started = Instant::now();
            if try_filter::show(&mut watching, tried.output_limit(), portions)
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
            detail += &format!("; an event of an answer: {shown} µs");
            cost["event_us"] = shown;
        }
        report.pass("cost", detail);
        report.cost(cost);
        Ok(())
    }
}

fn read(own: &Own) -> anyhow::Result<(TrialRequest, Vec<Event>)> {
    let tried = match &own.request {
        Some(request) => given::read_request(request)?,
        None => conformance::asked_for(&own.name)?,
    };
    let events = match &own.events {
        Some(text) => event_lines::read(&String::from_utf8_lossy(text))?,
        None => Vec::new(),
    };
    if own.events.is_some() {
        try_filter::check_answer(&events, tried.output_limit())?;
    }
    Ok((tried, events))
}

/// An answer in portions of so many events, whose texts have so many characters at most.
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

/// What comes of an answer, without how its texts were cut: each block's text, and all else in order.
fn assembled(shown: Shown) -> String {
    let mut texts: BTreeMap<u32, String> = BTreeMap::new();
    let mut lines = Vec::new();
    for event in shown.events {
        match event {
            Event::Fragment(Fragment { index, text }) => {
                texts.entry(index).or_default().push_str(&text)
            }
            event => lines.push(format!("{event:?}")),
        }
    }
    if shown.is_stopped {
        // How much of it came before is the network's to say.
        return "it is ended".to_owned();
    }
    let texts = texts.iter();
    let texts = texts.map(|(index, text)| format!("block {index}: {text:?}"));
    texts.chain(lines).collect::<Vec<_>>().join("\n")
}

fn fault(of: &str, why: String, read: &'static str) -> Fault {
    Fault {
        of: of.to_owned(),
        why,
        read,
    }
}
