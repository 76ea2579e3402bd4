//! The checks of an adapter: requests, recorded responses and broken responses, each in many pieces and twice.

use std::num::NonZeroUsize;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use weir_dialects::ChatCall;
use weir_plugins::Component;
use weir_sandbox::adapter::bindings::adapter::{
    Failure, FailureKind, HttpResponseHead, Setting, Step,
};
use weir_sandbox::adapter::{GuestExchange, WorkKind, long_texts};
use weir_upstream::error::ExchangeError;
use weir_upstream::response;

use super::cost::{MEASURED_FOR, ROUNDS, micros};
use super::difference::difference;
use super::input::SuiteInput;
use crate::conformance::Conformance;
use crate::lines;
use crate::recording::RecordedResponse;
use crate::recordings::AuthorRecording;
use crate::report::{CheckReport, ComponentFault};
use crate::trial::{BodyCuts, Trial, TrialOutcome, TrialRequest};

/// A response in one piece.
const WHOLE: BodyCuts = BodyCuts::Pieces(NonZeroUsize::MAX);

/// The sizes, in bytes, of the pieces that every response is cut into.
const PIECES: [usize; 6] = [1, 2, 3, 7, 16, 61];

/// The most places at which a response of the author is cut in two. A shorter response is cut at every place.
const PLACES: usize = 2_000;

/// An output limit that no other number of the simplest request equals.
const LIMIT: u32 = 4_321;

/// Requests with fields beyond the vocabulary. An adapter must not drop such a field silently.
const WITH_EXTRA: [&str; 2] = ["advisory-fields", "unknown-field"];

/// The request of the measurement: a conversation with a tool's result.
const MEASURED: &str = "multi-turn";

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
const ABOUT_LONG_TEXTS: &str = "wit/long-texts.wit; wit/README.md: Long texts";
const ABOUT_OWN: &str = "plugins/README.md: Check it";

pub(crate) struct AdapterSuite<'a> {
    component: &'a Component,
    input: &'a SuiteInput<'a>,
    options: Vec<Setting>,
    response_bytes: u64,
    /// The differences between two runs of the same exchange.
    differing: Vec<ComponentFault>,
    /// The number of exchanges that ran twice.
    compared: usize,
}

/// The result of one exchange.
struct AdapterRun {
    printed: String,
    outcome: anyhow::Result<TrialOutcome>,
}

impl AdapterRun {
    /// Returns the adapter's own failure, if it ended the exchange.
    fn failure(&self) -> Option<&Failure> {
        match self.outcome.as_ref().err()?.downcast_ref()? {
            ExchangeError::Failure(failure) => Some(failure),
            _ => None,
        }
    }

    /// Returns the rule that the adapter broke.
    fn fault(&self, of: &str) -> Option<ComponentFault> {
        let error = self.outcome.as_ref().err()?;
        let read = match error.downcast_ref()? {
            ExchangeError::Failure(_) => return None,
            ExchangeError::Destination(_) => ABOUT_REQUESTS,
            ExchangeError::OutOfOrder(_) => ABOUT_EVENTS,
            ExchangeError::TooManySteps => ABOUT_STEPS,
            _ => ABOUT_TRAPS,
        };
        Some(ComponentFault {
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
    pub(crate) fn new(
        component: &'a Component,
        input: &'a SuiteInput<'a>,
        response_bytes: u64,
    ) -> Self {
        Self {
            component,
            input,
            options: input.plugin.options(),
            response_bytes,
            differing: Vec::new(),
            compared: 0,
        }
    }

    pub(crate) async fn run(mut self, report: &mut CheckReport) -> anyhow::Result<()> {
        if let Err(error) = self.component.configuration(&self.options).await {
            let known = &self.component.description.options;
            let why = match known.is_empty() {
                true => error.to_string(),
                false => format!("{error}; its options are: {}", known.join(", ")),
            };
            report.fail(
                "options",
                &format!("{why}; to set an option, use --option"),
                ABOUT_OPTIONS,
            );
            return Ok(());
        }
        report.pass("options", format!("{} are accepted", self.options.len()));
        if self.component.serves(WorkKind::Chat) {
            self.requests(report).await?;
            self.long_texts(report).await?;
            self.nothing_dropped(report).await?;
            self.output_limit(report).await?;
            self.recorded_responses(report).await?;
            self.broken_responses(report).await?;
        } else {
            report.skip("requests", "it does not serve chat");
        }
        self.own(report).await?;
        let compared = format!("{} exchanges gave the same bytes twice", self.compared);
        report.judge("determinism", compared, std::mem::take(&mut self.differing));
        if self.component.serves(WorkKind::Chat) {
            self.cost(report).await?;
        }
        Ok(())
    }

    async fn once(
        &self,
        request: &TrialRequest,
        answers: &[RecordedResponse],
        cut: BodyCuts,
    ) -> AdapterRun {
        self.once_without_texts(request, answers, cut, long_texts::MOST_BYTES)
            .await
    }

    async fn once_without_texts(
        &self,
        request: &TrialRequest,
        answers: &[RecordedResponse],
        cut: BodyCuts,
        most_text_bytes: usize,
    ) -> AdapterRun {
        let trial = Trial {
            component: self.component,
            cut,
            most_text_bytes,
            response_bytes: self.response_bytes,
        };
        let mut out = Vec::new();
        let outcome = trial
            .run(request.clone(), &self.options, answers.to_vec(), &mut out)
            .await;
        AdapterRun {
            printed: String::from_utf8_lossy(&out).into_owned(),
            outcome,
        }
    }

    /// Runs an exchange twice and notes a difference.
    async fn twice(
        &mut self,
        of: &str,
        request: &TrialRequest,
        answers: &[RecordedResponse],
    ) -> AdapterRun {
        let first = self.once(request, answers, WHOLE).await;
        let second = self.once(request, answers, WHOLE).await;
        self.compared += 1;
        if let Some(why) = difference(&first.printed, &second.printed) {
            self.differing.push(ComponentFault {
                of: of.to_owned(),
                why: format!("run again, {why}"),
                read: ABOUT_SAMENESS,
            });
        }
        first
    }

    /// The adapter translates each request, or refuses it as unsupported.
    async fn requests(&mut self, report: &mut CheckReport) -> anyhow::Result<()> {
        let (mut sent, mut answered, mut refused) = (0, 0, 0);
        let mut faults = Vec::new();
        for name in self.input.conformance.requests() {
            let run = self
                .twice(name, &self.input.conformance.call(name)?.into(), &[])
                .await;
            match run.failure().map(|failure| failure.kind) {
                None if run.sent() => sent += 1,
                None => answered += 1,
                Some(FailureKind::Unsupported) => refused += 1,
                Some(kind) => faults.push(ComponentFault {
                    of: name.to_owned(),
                    why: format!(
                        "it is refused as {} before a request was sent, and not as unsupported",
                        lines::failure_kind(kind)
                    ),
                    read: ABOUT_REFUSING,
                }),
            }
            faults.extend(run.fault(name));
        }
        let detail = match answered {
            0 => format!("{sent} are sent, {refused} refused as unsupported"),
            _ => format!(
                "{sent} are sent, {answered} answered without a request, {refused} refused as unsupported"
            ),
        };
        report.judge("requests", detail, faults);
        Ok(())
    }

    /// The adapter sends the same request whether it gets the texts or not.
    async fn long_texts(&mut self, report: &mut CheckReport) -> anyhow::Result<()> {
        const CHECK: &str = "long texts";
        if !self.component.description.claims(long_texts::CAPABILITY) {
            report.skip(CHECK, "it gets all texts");
            return Ok(());
        }
        let mut faults = Vec::new();
        for name in self.input.conformance.requests() {
            let request = self.input.conformance.call(name)?.into();
            let with = self
                .once_without_texts(&request, &[], WHOLE, usize::MAX)
                .await;
            let without = self.once_without_texts(&request, &[], WHOLE, 0).await;
            faults.extend(
                difference(&with.printed, &without.printed).map(|why| ComponentFault {
                    of: name.to_owned(),
                    why: format!("without the texts, {why}"),
                    read: ABOUT_LONG_TEXTS,
                }),
            );
        }
        let detail = "the requests are the same if the texts stay with the host";
        report.judge(CHECK, detail, faults);
        Ok(())
    }

    /// The adapter passes on a field beyond the vocabulary, names it as ignored, or refuses it.
    async fn nothing_dropped(&mut self, report: &mut CheckReport) -> anyhow::Result<()> {
        let mut faults = Vec::new();
        for name in WITH_EXTRA {
            let call = self.input.conformance.call(name)?;
            let extra = call.request.extra.clone();
            let run = self.once(&call.into(), &[], WHOLE).await;
            // Another check has reported the error.
            if run.outcome.is_err() {
                continue;
            }
            for (field, value) in extra {
                let value = value.trim_matches('"');
                if !run.printed.contains(&*field) && !run.printed.contains(value) {
                    faults.push(ComponentFault {
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

    /// The host holds credits for the tokens of this limit: the provider must get it.
    async fn output_limit(&mut self, report: &mut CheckReport) -> anyhow::Result<()> {
        let mut call: ChatCall = self.input.conformance.call("basic")?;
        call.request.max_output_tokens = LIMIT;
        let run = self.once(&call.into(), &[], WHOLE).await;
        match run.outcome {
            Ok(_) if !run.sent() => report.skip("output limit", "it sends nothing"),
            Ok(_) if run.printed.contains(&LIMIT.to_string()) => {
                report.pass("output limit", "it is sent");
            }
            Ok(_) => report.fail(
                "output limit",
                "the request to the provider lacks max-output-tokens",
                "wit/chat.wit: record chat-request, max-output-tokens",
            ),
            Err(_) => report.skip("output limit", "the simplest request is not sent"),
        }
        Ok(())
    }

    /// The adapter reads weir's recorded responses of its provider's dialect, if there are any.
    async fn recorded_responses(&mut self, report: &mut CheckReport) -> anyhow::Result<()> {
        let dialect = self.component.description.dialect.clone();
        let answers = self.input.conformance.responses(&dialect)?;
        if answers.is_empty() {
            let why = format!("weir has no responses of the dialect {dialect}");
            report.skip("recorded answers", &why);
            return Ok(());
        }
        let mut faults = Vec::new();
        for (name, answer) in &answers {
            let request = self.input.conformance.request_for(name)?;
            let answer = std::slice::from_ref(answer);
            let run = self.twice(name, &request, answer).await;
            faults.extend(run.fault(name));
            faults.extend(self.cut(name, &request, answer, &run, &[]).await);
        }
        let detail = format!(
            "{} of {dialect}, each in pieces of {PIECES:?} bytes",
            answers.len()
        );
        report.judge("recorded answers", detail, faults);
        Ok(())
    }

    /// Returns the first cut of a response that changes the output.
    async fn cut(
        &self,
        name: &str,
        request: &TrialRequest,
        answers: &[RecordedResponse],
        whole: &AdapterRun,
        places: &[usize],
    ) -> Option<ComponentFault> {
        let pieces = PIECES.iter().copied().filter_map(NonZeroUsize::new);
        let pieces = pieces.map(BodyCuts::Pieces);
        let places = places.iter().copied().map(BodyCuts::At);
        for cut in pieces.chain(places) {
            let run = self.once(request, answers, cut).await;
            if let Some(why) = difference(&whole.printed, &run.printed) {
                let how = match cut {
                    BodyCuts::Pieces(bytes) => format!("in pieces of {bytes} bytes"),
                    BodyCuts::At(place) => format!("cut after {place} bytes"),
                };
                return Some(ComponentFault {
                    of: name.to_owned(),
                    why: format!("{how}, {why}"),
                    read: ABOUT_CUTS,
                });
            }
        }
        None
    }

    /// The adapter turns responses outside any documentation into failures. Every provider sends such a response one day.
    async fn broken_responses(&mut self, report: &mut CheckReport) -> anyhow::Result<()> {
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
            let request = self.input.conformance.request_for(stream)?;
            for (name, status, body, expected) in &cases {
                let name = &format!(
                    "{name}{}",
                    if stream.is_empty() { "" } else { ", streamed" }
                );
                let answer = RecordedResponse {
                    status: StatusCode::from_u16(*status)?,
                    headers: HeaderMap::from_iter([(
                        header::CONTENT_TYPE,
                        HeaderValue::from_static("text/html"),
                    )]),
                    body: body.as_bytes().to_vec(),
                };
                let run = self.twice(name, &request, &[answer]).await;
                faults.extend(run.fault(name));
                if !run.sent() {
                    report.skip("broken answers", "it sends no requests");
                    return Ok(());
                }
                let wrong = match (run.failure(), expected) {
                    (None, _) if matches!(run.outcome, Ok(TrialOutcome::Done(_))) => {
                        "the adapter reads it as a valid response".to_owned()
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
                faults.push(ComponentFault {
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
    async fn own(&mut self, report: &mut CheckReport) -> anyhow::Result<()> {
        for own in self.input.recordings {
            let check = format!("recording {}", own.name);
            let request = match own.trial_request(self.input.conformance) {
                Ok(request) => request,
                Err(error) => {
                    report.fail(&check, &format!("{error:#}"), ABOUT_OWN);
                    continue;
                }
            };
            if !self.component.serves(request.kind()) {
                let why = format!("the adapter does not serve {}", request.kind().name());
                report.fail(&check, &why, ABOUT_OWN);
                continue;
            }
            let run = self.twice(&own.name, &request, &own.responses).await;
            let places = places(&own.responses);
            let mut faults = Vec::from_iter(run.fault(&own.name));
            faults.extend(
                self.cut(&own.name, &request, &own.responses, &run, &places)
                    .await,
            );
            if let Ok(TrialOutcome::Done(left @ 1..)) = run.outcome {
                faults.push(ComponentFault {
                    of: own.name.clone(),
                    why: format!("{left} of its responses are not used"),
                    read: ABOUT_OWN,
                });
            }
            let said = match self.input.compare(own, &run.printed)? {
                Ok(said) => said,
                Err(why) => {
                    faults.push(ComponentFault {
                        of: own.name.clone(),
                        why,
                        read: ABOUT_OWN,
                    });
                    ""
                }
            };
            let cuts = match own.responses.is_empty() {
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
        if self.input.recordings.is_empty() {
            report.skip(
                "own recordings",
                "there are none; to add some, use --recordings DIR",
            );
        }
        Ok(())
    }

    /// Measures the time and memory of an exchange.
    async fn cost(&self, report: &mut CheckReport) -> anyhow::Result<()> {
        let configuration = self.component.configuration(&self.options).await?;
        let request: TrialRequest = self.input.conformance.call(MEASURED)?.into();
        let guest_request = request.request();
        let (mut begins, mut memory) = (Vec::new(), 0);
        let began = Instant::now();
        while begins.len() < ROUNDS && (begins.is_empty() || began.elapsed() < MEASURED_FOR) {
            let started = Instant::now();
            let begun = GuestExchange::begin(
                self.component,
                &guest_request,
                request.text_bytes(),
                &configuration,
            )
            .await;
            let Ok(begun) = begun else {
                report.skip("cost", "the adapter refuses the request of the measurement");
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

    /// Measures the time of a chunk of a streamed response, and the guest's memory at its end. Returns nothing if there is no
    /// streamed response.
    async fn cost_of_a_chunk(&self, configuration: &[u8]) -> anyhow::Result<Option<(Value, u64)>> {
        let conformance = self.input.conformance;
        let known = conformance.responses(&self.component.description.dialect)?;
        let own = self.input.recordings.iter();
        let own = own.filter_map(|recording| stream_of(recording, conformance));
        let known = known
            .iter()
            .filter(|(name, _)| *name == "text-stream")
            .map(|(_, answer)| Ok((conformance.request_for("-stream")?, answer)));
        let Some(streamed) = known.chain(own).next() else {
            return Ok(None);
        };
        let (request, answer) = streamed?;
        let guest_request = request.request();
        let head = HttpResponseHead {
            status: answer.status.as_u16(),
            headers: response::visible_headers(&answer.headers, &self.component.description, None),
        };
        // Every kind of stream has its events on lines.
        let chunks: Vec<_> = answer
            .body
            .split_inclusive(|&byte| byte == b'\n')
            .filter(|line| line.len() > 2)
            .collect();
        let (mut times, mut memory) = (Vec::new(), 0);
        let began = Instant::now();
        while times.len() < ROUNDS && (times.is_empty() || began.elapsed() < MEASURED_FOR) {
            // Another check has reported the failure.
            let begun = GuestExchange::begin(
                self.component,
                &guest_request,
                request.text_bytes(),
                configuration,
            )
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
            times.push(started.elapsed() / u32::try_from(chunks.len())?);
            memory = exchange.memory_bytes();
        }
        Ok(Some((micros(times), memory)))
    }
}

/// Returns the request and the response of a recorded stream.
fn stream_of(
    recording: &AuthorRecording,
    conformance: Conformance,
) -> Option<anyhow::Result<(TrialRequest, &RecordedResponse)>> {
    let [answer] = &recording.responses[..] else {
        return None;
    };
    let is_stream = answer.status == StatusCode::OK
        && answer.body.iter().filter(|&&byte| byte == b'\n').count() > 2
        && answer
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| !kind.as_bytes().starts_with(b"application/json"));
    is_stream.then(|| Ok((recording.trial_request(conformance)?, answer)))
}

/// Returns the places at which responses are cut in two.
fn places(answers: &[RecordedResponse]) -> Vec<usize> {
    let longest = answers.iter().map(|answer| answer.body.len()).max();
    let longest = longest.unwrap_or_default();
    (1..longest)
        .step_by(longest.div_ceil(PLACES).max(1))
        .collect()
}
