//! What an adapter is tried with: requests, recorded and broken answers, each cut in many ways, and twice.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use weir_dialects::ChatCall;
use weir_plugins::Component;
use weir_sandbox::adapter::bindings::adapter::{
    Failure, FailureKind, HttpResponseHead, Setting, Step,
};
use weir_sandbox::adapter::{GuestExchange, description};

use super::{CheckInput, difference, options};
use crate::cli::plugin::conformance;
use crate::cli::plugin::given;
use crate::cli::plugin::lines;
use crate::cli::plugin::own::Own;
use crate::cli::plugin::recording::Recording;
use crate::cli::plugin::report::{Fault, Report};
use crate::cli::plugin::trial::{Cut, Outcome, Trial, TrialRequest};
use weir_upstream::error::ExchangeError;
use weir_upstream::response;

/// An answer in one piece.
const WHOLE: Cut = Cut::Pieces(NonZeroUsize::MAX);

/// Pieces of so many bytes that every answer is cut into.
const PIECES: [usize; 6] = [1, 2, 3, 7, 16, 61];

/// At most so many places at which an author's own answer is cut in two: each, where it has no more bytes.
const PLACES: usize = 2_000;

/// An output limit that nothing else in the plainest request looks like.
const LIMIT: u32 = 4_321;

/// Requests with fields beyond the vocabulary, of which none may be dropped in silence.
const WITH_EXTRA: [&str; 2] = ["advisory-fields", "unknown-field"];

/// The request whose translation is measured: a conversation with a tool's answer in it.
const MEASURED: &str = "multi-turn";

/// How often what costs something is measured at most, and for how long.
const ROUNDS: usize = 200;
const MEASURED_FOR: Duration = Duration::from_secs(2);

const ABOUT_REQUESTS: &str =
    "wit/adapter.wit: record http-request, record description (path-prefixes, request-headers)";
const ABOUT_REFUSING: &str =
    "wit/README.md: What the vocabulary has not; plugins/README.md: What cannot be said upstream";
const ABOUT_EVENTS: &str = "wit/chat.wit: variant event; wit/README.md: Events and blocks";
const ABOUT_STEPS: &str = "wit/adapter.wit: variant step, resource exchange";
const ABOUT_FAILURES: &str =
    "wit/adapter.wit: enum failure-kind, record progress; plugins/README.md: Failures";
const ABOUT_TRAPS: &str = "plugins/README.md: Limits; what the component wrote is on standard error: weir plugin try shows one exchange";
const ABOUT_CUTS: &str =
    "wit/adapter.wit: resource exchange: body comes in pieces of any size, cut anywhere";
const ABOUT_SAMENESS: &str =
    "wit/adapter.wit: interface adapter: the same bytes in give the same events out";
const ABOUT_OPTIONS: &str = "wit/adapter.wit: configure; plugins/README.md: Options";
const ABOUT_OWN: &str = "plugins/README.md: Check it";

pub(super) struct AdapterSuite<'a> {
    component: &'a Component,
    given: &'a CheckInput<'a>,
    options: Vec<Setting>,
    answer_bytes: u64,
    /// What differed between two runs of the same.
    differing: Vec<Fault>,
    /// How many were compared.
    compared: usize,
}

/// What came of one exchange.
struct Run {
    printed: String,
    outcome: anyhow::Result<Outcome>,
}

impl Run {
    /// The adapter's own word, if that was the end.
    fn failure(&self) -> Option<&Failure> {
        match self.outcome.as_ref().err()?.downcast_ref()? {
            ExchangeError::Failure(failure) => Some(failure),
            _ => None,
        }
    }

    /// What the adapter did that it may not.
    fn fault(&self, of: &str) -> Option<Fault> {
        let error = self.outcome.as_ref().err()?;
        let read = match error.downcast_ref()? {
            ExchangeError::Failure(_) => return None,
            ExchangeError::Destination(_) => ABOUT_REQUESTS,
            ExchangeError::OutOfOrder(_) => ABOUT_EVENTS,
            ExchangeError::TooManySteps => ABOUT_STEPS,
            _ => ABOUT_TRAPS,
        };
        Some(Fault {
            of: of.to_owned(),
            why: error.to_string(),
            read,
        })
    }

    fn sent(&self) -> bool {
        self.printed
            .lines()
            .any(|line| line.starts_with("{\"send\""))
    }
}

impl<'a> AdapterSuite<'a> {
    pub(super) fn new(
        component: &'a Component,
        given: &'a CheckInput<'a>,
        answer_bytes: u64,
    ) -> Self {
        Self {
            component,
            given,
            options: options(given.told),
            answer_bytes,
            differing: Vec::new(),
            compared: 0,
        }
    }

    pub(super) async fn run(mut self, report: &mut Report) -> anyhow::Result<()> {
        if let Err(error) = self.component.configuration(&self.options).await {
            let known = &self.component.description.options;
            let why = match known.is_empty() {
                true => error.to_string(),
                false => format!("{error}; its options are: {}", known.join(", ")),
            };
            report.fail(
                "options",
                &format!("{why}; give what it needs with --option"),
                ABOUT_OPTIONS,
            );
            return Ok(());
        }
        report.pass("options", format!("{} are taken", self.options.len()));
        if self.component.is_capable_of(description::CHAT) {
            self.requests(report).await?;
            self.nothing_dropped(report).await?;
            self.output_limit(report).await?;
            self.known_answers(report).await?;
            self.broken_answers(report).await?;
        } else {
            report.skip("requests", "it does not serve chat");
        }
        self.own(report).await?;
        let compared = format!("{} exchanges gave the same bytes twice", self.compared);
        report.judge("determinism", compared, std::mem::take(&mut self.differing));
        if self.component.is_capable_of(description::CHAT) {
            self.cost(report).await?;
        }
        Ok(())
    }

    async fn once(&self, tried: &TrialRequest, answers: &[Recording], cut: Cut) -> Run {
        let trial = Trial {
            component: self.component,
            cut,
            answer_bytes: self.answer_bytes,
        };
        let mut out = Vec::new();
        let outcome = trial
            .run(tried.clone(), &self.options, answers.to_vec(), &mut out)
            .await;
        Run {
            printed: String::from_utf8_lossy(&out).into_owned(),
            outcome,
        }
    }

    /// Runs an exchange twice, which must come to the same.
    async fn twice(&mut self, of: &str, tried: &TrialRequest, answers: &[Recording]) -> Run {
        let first = self.once(tried, answers, WHOLE).await;
        let second = self.once(tried, answers, WHOLE).await;
        self.compared += 1;
        if let Some(why) = difference(&first.printed, &second.printed) {
            self.differing.push(Fault {
                of: of.to_owned(),
                why: format!("run again, {why}"),
                read: ABOUT_SAMENESS,
            });
        }
        first
    }

    /// Each request is translated, or refused by name.
    async fn requests(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let (mut sent, mut answered, mut refused) = (0, 0, 0);
        let mut faults = Vec::new();
        for name in conformance::requests() {
            let run = self
                .twice(name, &conformance::call(name)?.into(), &[])
                .await;
            match run.failure().map(|failure| failure.kind) {
                None if run.sent() => sent += 1,
                None => answered += 1,
                Some(FailureKind::Unsupported) => refused += 1,
                Some(kind) => faults.push(Fault {
                    of: name.to_owned(),
                    why: format!(
                        "it is refused as {}, before anything was sent, and not as unsupported",
                        lines::failure_kind(kind)
                    ),
                    read: ABOUT_REFUSING,
                }),
            }
            faults.extend(run.fault(name));
        }
        let detail = match answered {
            0 => format!("{sent} are sent, {refused} refused by name"),
            _ => format!("{sent} are sent, {answered} answered at once, {refused} refused by name"),
        };
        report.judge("requests", detail, faults);
        Ok(())
    }

    /// What the vocabulary has not is passed on, named as ignored, or refused.
    async fn nothing_dropped(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let mut faults = Vec::new();
        for name in WITH_EXTRA {
            let call = conformance::call(name)?;
            let extra = call.request.extra.clone();
            let run = self.once(&call.into(), &[], WHOLE).await;
            // What went wrong otherwise has been said.
            if run.outcome.is_err() {
                continue;
            }
            for (field, value) in extra {
                let value = value.trim_matches('"');
                if !run.printed.contains(&*field) && !run.printed.contains(value) {
                    faults.push(Fault {
                        of: name.to_owned(),
                        why: format!("{field} is neither passed on nor ignored nor refused"),
                        read: ABOUT_REFUSING,
                    });
                }
            }
        }
        report.judge(
            "unknown fields",
            "each is passed on, named as ignored, or refused",
            faults,
        );
        Ok(())
    }

    /// The host holds credits for as many tokens as it says: they must be the most that the upstream writes.
    async fn output_limit(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let mut call: ChatCall = conformance::call("basic")?;
        call.request.max_output_tokens = LIMIT;
        let run = self.once(&call.into(), &[], WHOLE).await;
        match run.outcome {
            Ok(_) if !run.sent() => report.skip("output limit", "it sends nothing"),
            Ok(_) if run.printed.contains(&LIMIT.to_string()) => {
                report.pass("output limit", "it is sent");
            }
            Ok(_) => report.fail(
                "output limit",
                "what is sent does not hold max-output-tokens",
                "wit/chat.wit: record chat-request, max-output-tokens",
            ),
            Err(_) => report.skip("output limit", "the plainest request is not sent"),
        }
        Ok(())
    }

    /// The recorded answers of its upstream's dialect, where weir has any.
    async fn known_answers(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let dialect = self.component.description.dialect.clone();
        let answers = conformance::answers(&dialect)?;
        if answers.is_empty() {
            let why = format!("weir has none of the dialect {dialect}");
            report.skip("recorded answers", &why);
            return Ok(());
        }
        let mut faults = Vec::new();
        for (name, answer) in &answers {
            let tried = conformance::asked_for(name)?;
            let answer = std::slice::from_ref(answer);
            let run = self.twice(name, &tried, answer).await;
            faults.extend(run.fault(name));
            faults.extend(self.cut(name, &tried, answer, &run, &[]).await);
        }
        let detail = format!(
            "{} of {dialect}, each in pieces of {PIECES:?} bytes",
            answers.len()
        );
        report.judge("recorded answers", detail, faults);
        Ok(())
    }

    /// However an answer is cut, the same must come of it. Returns the first cut by which it does not.
    async fn cut(
        &self,
        name: &str,
        tried: &TrialRequest,
        answers: &[Recording],
        whole: &Run,
        places: &[usize],
    ) -> Option<Fault> {
        let pieces = PIECES.iter().copied().filter_map(NonZeroUsize::new);
        let pieces = pieces.map(Cut::Pieces);
        let places = places.iter().copied().map(Cut::At);
        for cut in pieces.chain(places) {
            let run = self.once(tried, answers, cut).await;
            if let Some(why) = difference(&whole.printed, &run.printed) {
                let how = match cut {
                    Cut::Pieces(bytes) => format!("in pieces of {bytes} bytes"),
                    Cut::At(place) => format!("cut behind {place} bytes"),
                };
                return Some(Fault {
                    of: name.to_owned(),
                    why: format!("{how}, {why}"),
                    read: ABOUT_CUTS,
                });
            }
        }
        None
    }

    /// What no provider's documentation has, and every provider sends one day.
    async fn broken_answers(&mut self, report: &mut Report) -> anyhow::Result<()> {
        const PAGE: &str = "<html><body>Something went wrong</body></html>";
        let cases = [
            ("200 without a body", 200, "", None),
            ("200 with a page", 200, PAGE, None),
            ("400 with a page", 400, PAGE, None),
            (
                "401 with a page",
                401,
                PAGE,
                Some(FailureKind::Unauthorized),
            ),
            ("429 with a page", 429, PAGE, Some(FailureKind::RateLimited)),
            ("500 with a page", 500, PAGE, Some(FailureKind::Unavailable)),
            (
                "503 without a body",
                503,
                "",
                Some(FailureKind::Unavailable),
            ),
        ];
        let mut faults = Vec::new();
        for stream in ["", "-stream"] {
            let tried = conformance::asked_for(stream)?;
            for (name, status, body, expected) in &cases {
                let name = &format!(
                    "{name}{}",
                    if stream.is_empty() { "" } else { ", streamed" }
                );
                let answer = Recording {
                    status: StatusCode::from_u16(*status)?,
                    headers: HeaderMap::from_iter([(
                        header::CONTENT_TYPE,
                        HeaderValue::from_static("text/html"),
                    )]),
                    body: body.as_bytes().to_vec(),
                };
                let run = self.twice(name, &tried, &[answer]).await;
                faults.extend(run.fault(name));
                if !run.sent() {
                    report.skip("broken answers", "it asks for none");
                    return Ok(());
                }
                let wrong = match (run.failure(), expected) {
                    (None, _) if matches!(run.outcome, Ok(Outcome::Done(_))) => {
                        "it is taken for an answer, and is none".to_owned()
                    }
                    (Some(failure), Some(expected)) if failure.kind != *expected => {
                        format!(
                            "it fails as {}, not as {}",
                            lines::failure_kind(failure.kind),
                            lines::failure_kind(*expected)
                        )
                    }
                    _ => continue,
                };
                faults.push(Fault {
                    of: name.clone(),
                    why: wrong,
                    read: ABOUT_FAILURES,
                });
            }
        }
        report.judge(
            "broken answers",
            "each is a failure, of the kind that its status says",
            faults,
        );
        Ok(())
    }

    /// The author's own recordings.
    async fn own(&mut self, report: &mut Report) -> anyhow::Result<()> {
        for own in self.given.recordings {
            let check = format!("recording {}", own.name);
            let tried = match &own.request {
                Some(request) => given::read_request(request),
                None => conformance::asked_for(&own.name),
            };
            let tried = match tried {
                Ok(tried) => tried,
                Err(error) => {
                    report.fail(&check, &format!("{error:#}"), ABOUT_OWN);
                    continue;
                }
            };
            if !self.component.is_capable_of(tried.capability()) {
                let why = format!("the adapter does not serve {}", tried.capability());
                report.fail(&check, &why, ABOUT_OWN);
                continue;
            }
            let run = self.twice(&own.name, &tried, &own.answers).await;
            let places = places(&own.answers);
            let mut faults = Vec::from_iter(run.fault(&own.name));
            faults.extend(
                self.cut(&own.name, &tried, &own.answers, &run, &places)
                    .await,
            );
            if let Ok(Outcome::Done(left @ 1..)) = run.outcome {
                faults.push(Fault {
                    of: own.name.clone(),
                    why: format!("{left} of its answers are not asked for"),
                    read: ABOUT_OWN,
                });
            }
            let said = match self.given.compare(own, &run.printed)? {
                Ok(said) => said,
                Err(why) => {
                    faults.push(Fault {
                        of: own.name.clone(),
                        why,
                        read: ABOUT_OWN,
                    });
                    ""
                }
            };
            let cuts = match own.answers.is_empty() {
                true => 0,
                false => places.len() + PIECES.len(),
            };
            let lines = run.printed.lines().count();
            report.judge(
                &check,
                format!("{lines} lines, the same for {cuts} cuts; {said}"),
                faults,
            );
        }
        if self.given.recordings.is_empty() {
            report.skip("own recordings", "none are given: --recordings DIR");
        }
        Ok(())
    }

    /// What an exchange takes.
    async fn cost(&self, report: &mut Report) -> anyhow::Result<()> {
        let configuration = self.component.configuration(&self.options).await?;
        let tried: TrialRequest = conformance::call(MEASURED)?.into();
        let request = tried.request();
        let (mut begins, mut memory) = (Vec::new(), 0);
        let began = Instant::now();
        while begins.len() < ROUNDS && (begins.is_empty() || began.elapsed() < MEASURED_FOR) {
            let started = Instant::now();
            let begun =
                GuestExchange::begin(self.component, &request, tried.text_bytes(), &configuration)
                    .await;
            let Ok(begun) = begun else {
                report.skip("cost", "the request that is measured is refused");
                return Ok(());
            };
            begins.push(started.elapsed());
            memory = begun.exchange.memory_bytes();
        }
        let mut cost = json!({ "begin_us": micros(begins), "begin_memory_bytes": memory });
        if let Some((chunk, memory)) = self.cost_of_a_chunk(&configuration).await? {
            cost["chunk_us"] = chunk;
            cost["answer_memory_bytes"] = json!(memory);
        }
        let mib = |bytes: &Value| bytes.as_u64().unwrap_or_default() as f64 / f64::from(1 << 20);
        let mut detail = format!(
            "a fresh instance with begin: {} µs, {:.1} MiB",
            cost["begin_us"],
            mib(&cost["begin_memory_bytes"])
        );
        if let Some(chunk) = cost.get("chunk_us") {
            let memory = mib(&cost["answer_memory_bytes"]);
            detail += &format!("; a chunk: {chunk} µs, {memory:.1} MiB at the end");
        }
        report.pass("cost", detail);
        report.cost(cost);
        Ok(())
    }

    /// What a chunk of a streamed answer takes, and the memory that a guest has at its end; nothing where there is no such
    /// answer.
    async fn cost_of_a_chunk(&self, configuration: &[u8]) -> anyhow::Result<Option<(Value, u64)>> {
        let known = conformance::answers(&self.component.description.dialect)?;
        let own = self.given.recordings.iter().filter_map(stream_of);
        let known = known
            .iter()
            .filter(|(name, _)| *name == "text-stream")
            .map(|(_, answer)| Ok((conformance::asked_for("-stream")?, answer)));
        let Some(streamed) = known.chain(own).next() else {
            return Ok(None);
        };
        let (tried, answer) = streamed?;
        let request = tried.request();
        let head = HttpResponseHead {
            status: answer.status.as_u16(),
            headers: response::visible_headers(&answer.headers, &self.component.description, None),
        };
        // Streams of every kind have their events on lines.
        let chunks: Vec<_> = answer
            .body
            .split_inclusive(|&byte| byte == b'\n')
            .filter(|line| line.len() > 2)
            .collect();
        let (mut times, mut memory) = (Vec::new(), 0);
        let began = Instant::now();
        while times.len() < ROUNDS && (times.is_empty() || began.elapsed() < MEASURED_FOR) {
            // What fails has been said.
            let begun =
                GuestExchange::begin(self.component, &request, tried.text_bytes(), configuration)
                    .await;
            let Ok(begun) = begun else {
                return Ok(None);
            };
            let mut exchange = begun.exchange;
            if !matches!(begun.step, Step::Send(_)) || exchange.head(&head).await.is_err() {
                return Ok(None);
            }
            let started = Instant::now();
            for chunk in &chunks {
                if exchange.body(chunk).await.is_err() {
                    return Ok(None);
                }
            }
            times.push(started.elapsed() / chunks.len().try_into()?);
            memory = exchange.memory_bytes();
        }
        Ok(Some((micros(times), memory)))
    }
}

/// A recording of the author's that is of a stream, with what is asked for it.
fn stream_of(own: &Own) -> Option<anyhow::Result<(TrialRequest, &Recording)>> {
    let [answer] = &own.answers[..] else {
        return None;
    };
    let is_stream = answer.status == StatusCode::OK
        && answer.body.iter().filter(|&&byte| byte == b'\n').count() > 2
        && answer
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| !kind.as_bytes().starts_with(b"application/json"));
    let tried = || match &own.request {
        Some(request) => given::read_request(request),
        None => conformance::asked_for(&own.name),
    };
    is_stream.then(|| Ok((tried()?, answer)))
}

/// Where answers are cut in two: everywhere, unless they are long.
fn places(answers: &[Recording]) -> Vec<usize> {
    let longest = answers.iter().map(|answer| answer.body.len()).max();
    let longest = longest.unwrap_or_default();
    (1..longest)
        .step_by(longest.div_ceil(PLACES).max(1))
        .collect()
}

/// The middle one of some times, in microseconds.
pub(super) fn micros(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    json!((median.as_secs_f64() * 1e7).round() / 10.0)
}
