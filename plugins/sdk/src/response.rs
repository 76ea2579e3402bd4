//! The driver of a provider's HTTP response: a stream, one JSON body or an error response.
//!
//! An adapter that sends one request per exchange implements [`ProviderApi`] and [`AnswerReader`]. [`ResponseReader`] makes an
//! [`Exchange`] of them: it finds out the response's form and passes its pieces to the [`AnswerReader`].
//!
//! **Invariant:** the content type gives the form, and the body's first byte may correct it. Some providers label an error
//! or a whole answer as the stream that the client requested, or a stream as JSON.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::adapter::{
    Description, EmbeddingsRequest, Event, Exchange, Failure, HarmRequest, HttpResponseHead,
    RankingRequest, RefusedSetting, Request, Setting, SpokenRequest, StartedExchange, Step,
    TranscriptRequest, no_options,
};
use crate::aws::{self, MessageStream};
use crate::chat::{FinishReason, NamedCount, Usage};
use crate::failure::{self, MAX_ERROR_BODY_BYTES};
use crate::fit::{self, CallIds, FittedNames, Rules};
use crate::lines::Lines;
use crate::media::VectorExtractor;
use crate::sse::{Sse, SseEvent};
use crate::text::{self, Surrogates};

/// The most bytes of an answer that is not streamed: 30 times the JSON of 32,000 tokens, and little enough for a parse
/// within a guest's memory.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Translates one provider's answer into the contract's events.
pub trait AnswerReader {
    /// The framing of this provider's streams.
    const FRAMING: StreamFraming = StreamFraming::Events;

    /// Whether a body is the bytes of a recording, which [`lift`](Self::lift) takes.
    fn is_raw(&self) -> bool {
        false
    }

    /// Moves images out of the next bytes into `events`, and returns the other bytes.
    ///
    /// The bytes before an invalid image are returned beside its failure, because they are read first.
    fn lift<'a>(
        &mut self,
        bytes: &'a [u8],
        _events: &mut Vec<Event>,
    ) -> (Cow<'a, [u8]>, Result<(), Failure>) {
        (Cow::Borrowed(bytes), Ok(()))
    }

    /// Reads one event of a stream. A line of JSON is an event named `message`, and a message of [`aws`] one of its own name.
    ///
    /// # Errors
    ///
    /// A provider's error in the stream, or an event that the adapter cannot read.
    fn read_event(&mut self, event: SseEvent<'_>, events: &mut Vec<Event>) -> Result<(), Failure>;

    /// Reads an answer that is not streamed.
    ///
    /// # Errors
    ///
    /// A provider's error in place of the answer, or a body that the adapter cannot read.
    fn read_whole(&mut self, body: &[u8], events: &mut Vec<Event>) -> Result<(), Failure>;

    /// Emits the events that are still due, and the finish event last. A second call emits nothing.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Malformed`](crate::adapter::FailureKind::Malformed) if the answer is incomplete.
    fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure>;

    /// The failure that an error response reports.
    fn failure_of_response(refused: &ErrorResponse) -> Failure;

    /// The failure that JSON behind a stream's events reports, from [`Sse::stray`].
    fn failure_behind_stream(_stray: &str) -> Option<Failure> {
        None
    }
}

/// A provider's API that answers each exchange with one response.
pub trait ProviderApi: AnswerReader + Sized + 'static {
    /// The same as [`Exchange::describe`].
    fn describe() -> Description;

    /// The same as [`Exchange::configure`].
    ///
    /// # Errors
    ///
    /// The first setting that is invalid, and the reason.
    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        no_options(options)
    }

    /// The rules of the provider for a request, to which the chat is fitted before [`begin`](Self::begin) gets it.
    fn rules(_request: &Request, _configuration: &[u8]) -> Rules {
        Rules::NONE
    }

    /// The same as [`Exchange::begin`]. The step is the only request.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Unsupported`](crate::adapter::FailureKind::Unsupported), by name, for a field that the provider cannot
    /// express.
    fn begin(
        request: Request,
        configuration: &[u8],
    ) -> Result<StartedExchange<ResponseReader<Self>>, Failure>;

    /// The same as [`Exchange::begin_embeddings`].
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_embeddings(
        _: EmbeddingsRequest,
        _: &[u8],
    ) -> Result<StartedExchange<ResponseReader<Self>>, Failure> {
        Err(Failure::unsupported("embeddings"))
    }

    /// The same as [`Exchange::begin_rerank`].
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_rerank(
        _: RankingRequest,
        _: &[u8],
    ) -> Result<StartedExchange<ResponseReader<Self>>, Failure> {
        Err(Failure::unsupported("rerank"))
    }

    /// The same as [`Exchange::begin_moderation`].
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_moderation(
        _: HarmRequest,
        _: &[u8],
    ) -> Result<StartedExchange<ResponseReader<Self>>, Failure> {
        Err(Failure::unsupported("moderation"))
    }

    /// The same as [`Exchange::begin_speech`].
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_speech(
        _: SpokenRequest,
        _: &[u8],
    ) -> Result<StartedExchange<ResponseReader<Self>>, Failure> {
        Err(Failure::unsupported("speech"))
    }

    /// The same as [`Exchange::begin_transcription`].
    ///
    /// # Errors
    ///
    /// As for [`begin`](Self::begin).
    fn begin_transcription(
        _: TranscriptRequest,
        _: &[u8],
    ) -> Result<StartedExchange<ResponseReader<Self>>, Failure> {
        Err(Failure::unsupported("transcription"))
    }
}

/// The framing of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFraming {
    /// Server-sent events.
    Events,
    /// Newline-delimited JSON.
    Lines,
}

/// An exchange of one request: reads its response on behalf of an [`AnswerReader`].
#[derive(Debug)]
pub struct ResponseReader<A> {
    asked_for_stream: bool,
    has_begun: bool,
    body: FramedBody,
    answer: Reading<A>,
    /// The names of tools that the provider knows under others.
    names: FittedNames,
    /// The ids of calls so far, in the conversation and its answer.
    calls: CallIds,
    surrogates: Surrogates,
}

/// The reader of the response.
#[derive(Debug)]
enum Reading<A> {
    Answer(A),
    Data(DataReader),
}

/// The reader of a response of data: vectors, or a ranking. Such a response is never streamed.
#[derive(Debug)]
pub struct DataReader {
    vectors: Option<VectorExtractor>,
    read: ReadData,
}

/// Reads the JSON of a response of data, with this number of vectors taken out, and adds the events that are still due
/// before the finish.
///
/// A function of this type returns a provider's error in place of the answer, or a failure for a body that the adapter
/// cannot read.
pub type ReadData = fn(&str, usize, &mut Vec<Event>) -> Result<(), Failure>;

impl DataReader {
    /// Makes the reader of vectors at this path; see [`VectorExtractor::new`].
    pub fn vectors(path: &'static [&'static str], read: ReadData) -> Self {
        Self {
            vectors: Some(VectorExtractor::new(path)),
            read,
        }
    }

    /// Makes the reader of other data.
    pub fn new(read: ReadData) -> Self {
        let vectors = None;
        Self { vectors, read }
    }

    fn lift<'a>(
        &mut self,
        bytes: &'a [u8],
        events: &mut Vec<Event>,
    ) -> (Cow<'a, [u8]>, Result<(), Failure>) {
        let Some(vectors) = &mut self.vectors else {
            return (Cow::Borrowed(bytes), Ok(()));
        };
        let mut rest = Vec::new();
        let lifted = vectors.push(bytes, &mut rest, events);
        (Cow::Owned(rest), lifted)
    }

    fn read_whole(&self, body: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        let count = self.vectors.as_ref().map_or(0, VectorExtractor::count);
        (self.read)(&text::lossy(body), count, events)?;
        events.push(Event::Finish(FinishReason::Stop));
        Ok(())
    }
}

/// The usage of a request without output: its tokens, and the searches that the provider counts.
pub fn input_usage(input_tokens: Option<u64>, search_units: Option<u64>) -> Event {
    Event::Usage(Usage {
        input_tokens,
        cache_read_tokens: None,
        cache_write_short_tokens: None,
        cache_write_long_tokens: None,
        output_tokens: Some(0),
        reasoning_tokens: None,
        images: None,
        other: named_counts([("search-units", search_units)]),
    })
}

#[derive(Debug)]
enum FramedBody {
    Whole(Vec<u8>),
    Events(Sse),
    Lines(Lines),
    AwsMessages(MessageStream),
    Refused(ErrorResponse),
}

impl FramedBody {
    fn stream(framing: StreamFraming) -> Self {
        match framing {
            StreamFraming::Events => Self::Events(Sse::default()),
            StreamFraming::Lines => Self::Lines(Lines::default()),
        }
    }
}

impl<A: AnswerReader> ResponseReader<A> {
    /// Makes the reader of one response. `asked_for_stream` decides the form if the content type is unknown.
    pub fn new(asked_for_stream: bool, answer: A) -> Self {
        Self {
            asked_for_stream,
            has_begun: false,
            body: FramedBody::Whole(Vec::new()),
            answer: Reading::Answer(answer),
            names: FittedNames::default(),
            calls: CallIds::default(),
            surrogates: Surrogates::default(),
        }
    }

    /// Makes the reader of a response of data.
    pub fn of_data(data: DataReader) -> Self {
        Self {
            asked_for_stream: false,
            has_begun: false,
            body: FramedBody::Whole(Vec::new()),
            answer: Reading::Data(data),
            names: FittedNames::default(),
            calls: CallIds::default(),
            surrogates: Surrogates::default(),
        }
    }

    fn is_raw(&self) -> bool {
        matches!(&self.answer, Reading::Answer(answer) if answer.is_raw())
    }

    /// Corrects a wrong content type by the body's first byte that is not white space.
    fn correct_form(&mut self, bytes: &[u8]) {
        let first = bytes.trim_ascii_start().first();
        let Some(first) = first.filter(|_| !self.has_begun) else {
            return;
        };
        self.has_begun = true;
        // Lines of JSON and one JSON body begin alike.
        if A::FRAMING == StreamFraming::Lines || self.is_raw() {
            return;
        }
        self.body = match (first, &self.body) {
            // `data`, `event`, `id`, `retry`, and a comment.
            (b'd' | b'e' | b'i' | b'r' | b':', FramedBody::Whole(_)) => {
                FramedBody::Events(Sse::default())
            }
            (b'{' | b'[', FramedBody::Events(_) | FramedBody::AwsMessages(_)) => {
                FramedBody::Whole(Vec::new())
            }
            // The length of a message, which is below 16 MiB.
            (0, FramedBody::Whole(_) | FramedBody::Events(_)) => {
                FramedBody::AwsMessages(MessageStream::default())
            }
            _ => return,
        };
    }
}

impl<A: ProviderApi> Exchange for ResponseReader<A> {
    fn describe() -> Description {
        A::describe()
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        A::configure(options)
    }

    fn begin(mut request: Request, configuration: &[u8]) -> Result<StartedExchange<Self>, Failure> {
        let rules = A::rules(&request, configuration);
        let fitted = fit::fit(&mut request, &rules);
        let begun = A::begin(request, configuration);
        let mut begun = begun.map_err(|failure| fitted.rename(failure))?;
        begun.exchange.names = fitted.names;
        begun.exchange.calls = fitted.calls;
        for name in fitted.ignored {
            if !begun.ignored.contains(&name) {
                begun.ignored.push(name);
            }
        }
        Ok(begun)
    }

    fn begin_embeddings(
        request: EmbeddingsRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        A::begin_embeddings(request, configuration)
    }

    fn begin_rerank(
        request: RankingRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        A::begin_rerank(request, configuration)
    }

    fn begin_moderation(
        request: HarmRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        A::begin_moderation(request, configuration)
    }

    fn begin_speech(
        request: SpokenRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        A::begin_speech(request, configuration)
    }

    fn begin_transcription(
        request: TranscriptRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        A::begin_transcription(request, configuration)
    }

    fn next(&mut self) -> Result<Step, Failure> {
        Ok(Step::Done)
    }

    fn head(&mut self, head: HttpResponseHead) -> Result<(), Failure> {
        let content_type = content_type(&head);
        let stream_type = match A::FRAMING {
            StreamFraming::Events => "event-stream",
            StreamFraming::Lines => "ndjson",
        };
        self.body = if !(200..300).contains(&head.status) {
            FramedBody::Refused(ErrorResponse::new(head))
        } else if self.is_raw() {
            match ["json", "html", "event-stream"]
                .iter()
                .any(|other| content_type.contains(other))
            {
                true => return Err(Failure::malformed("the answer is not a recording")),
                false => FramedBody::Whole(Vec::new()),
            }
        } else if content_type.contains(stream_type) {
            FramedBody::stream(A::FRAMING)
        } else if content_type.contains(aws::STREAM_TYPE) {
            FramedBody::AwsMessages(MessageStream::default())
        } else if content_type.contains("html") {
            // A login page, or an error page of a proxy.
            return Err(Failure::malformed(
                "the upstream answered with HTML; is its base URL right?",
            ));
        } else if content_type.contains("json") || !self.asked_for_stream {
            FramedBody::Whole(Vec::new())
        } else {
            // Some servers label a stream `text/plain`, or send no content type.
            FramedBody::stream(A::FRAMING)
        };
        Ok(())
    }

    fn body(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        let first = events.len();
        let read = self.read_body(bytes, events);
        self.names.restore(&mut events[first..]);
        self.calls.separate(&mut events[first..]);
        read
    }

    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        let first = events.len();
        let read = self.read_end(events);
        self.names.restore(&mut events[first..]);
        self.calls.separate(&mut events[first..]);
        read
    }
}

impl<A: AnswerReader> ResponseReader<A> {
    fn read_body(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        if let FramedBody::Refused(refused) = &mut self.body {
            refused.push(bytes);
            return Ok(());
        }
        self.correct_form(bytes);
        let (rest, lifted) = match &mut self.answer {
            Reading::Answer(answer) => answer.lift(bytes, events),
            Reading::Data(data) => data.lift(bytes, events),
        };
        match &mut self.body {
            FramedBody::Whole(whole) if whole.len() + rest.len() > MAX_ANSWER_BYTES => {
                return Err(Failure::malformed(format!(
                    "the answer exceeds {MAX_ANSWER_BYTES} bytes"
                )));
            }
            FramedBody::Whole(whole) => whole.extend_from_slice(&rest),
            FramedBody::Events(stream) => {
                stream.push(&rest);
                while let Some(SseEvent { name, data }) = stream.next()? {
                    let data = &self.surrogates.mend(data);
                    self.answer.read_event(SseEvent { name, data }, events)?;
                }
            }
            FramedBody::Lines(lines) => {
                lines.push(&rest);
                while let Some(line) = lines.next()? {
                    let line = text::lossy(line);
                    self.answer
                        .read_line(&self.surrogates.mend(&line), events)?;
                }
            }
            FramedBody::AwsMessages(stream) => {
                stream.push(&rest);
                while let Some(message) = stream.next()? {
                    let (name, data) = (&*message.name, &*message.payload);
                    if message.is_error {
                        return Err(aws::failure_in_stream(name, data));
                    }
                    let data = &self.surrogates.mend(data);
                    self.answer.read_event(SseEvent { name, data }, events)?;
                }
            }
            // Taken above.
            FramedBody::Refused(_) => {}
        }
        lifted
    }

    fn read_end(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        let answer = &mut self.answer;
        match &mut self.body {
            FramedBody::Whole(whole) => match answer {
                Reading::Answer(answer) if answer.is_raw() => answer.read_whole(whole, events)?,
                Reading::Answer(answer) => {
                    let body = text::lossy(whole);
                    let body = self.surrogates.mend(&body);
                    answer.read_whole(body.as_bytes(), events)?;
                }
                Reading::Data(data) => return data.read_whole(whole, events),
            },
            FramedBody::Events(stream) => {
                if let Some(SseEvent { name, data }) = stream.finish()? {
                    let data = &self.surrogates.mend(data);
                    answer.read_event(SseEvent { name, data }, events)?;
                }
                if let Some(failure) = A::failure_behind_stream(stream.stray()) {
                    return Err(failure);
                }
            }
            FramedBody::Lines(lines) => {
                if let Some(line) = lines.finish() {
                    let line = text::lossy(line);
                    answer.read_line(&self.surrogates.mend(&line), events)?;
                }
            }
            // The answer itself says whether it is complete.
            FramedBody::AwsMessages(_) => {}
            FramedBody::Refused(refused) => return Err(A::failure_of_response(refused)),
        }
        match answer {
            Reading::Answer(answer) => answer.conclude(events),
            Reading::Data(_) => Err(unexpected_stream()),
        }
    }
}

impl<A: AnswerReader> Reading<A> {
    fn read_event(&mut self, event: SseEvent<'_>, events: &mut Vec<Event>) -> Result<(), Failure> {
        match self {
            Self::Answer(answer) => answer.read_event(event, events),
            Self::Data(_) => Err(unexpected_stream()),
        }
    }

    fn read_line(&mut self, data: &str, events: &mut Vec<Event>) -> Result<(), Failure> {
        let name = "message";
        self.read_event(SseEvent { name, data }, events)
    }
}

fn unexpected_stream() -> Failure {
    Failure::malformed("the answer is a stream, which the request did not ask for")
}

/// An error response: its head and the first [`MAX_ERROR_BODY_BYTES`] of its body.
#[derive(Debug)]
pub struct ErrorResponse {
    /// Its status and headers.
    pub head: HttpResponseHead,
    body: Vec<u8>,
}

impl ErrorResponse {
    fn new(head: HttpResponseHead) -> Self {
        let body = Vec::new();
        Self { head, body }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = MAX_ERROR_BODY_BYTES - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The body's text, with invalid UTF-8 replaced. Some providers frame an error as the stream that the client requested:
    /// the text is then the first event's data.
    pub fn text(&self) -> Cow<'_, str> {
        match text::lossy(&self.body) {
            Cow::Borrowed(text) => Cow::Borrowed(unframed(text)),
            Cow::Owned(text) => Cow::Owned(unframed(&text).to_owned()),
        }
    }

    /// Whether the body is an HTML page, as proxies send.
    pub fn is_page(&self) -> bool {
        content_type(&self.head).contains("html")
    }

    /// The failure of an error response without the provider's error JSON: a proxy's text, or an HTML page, which says
    /// nothing to a log.
    pub fn failure_by_status(&self) -> Failure {
        let text = self.text();
        let text = if self.is_page() { "" } else { &text };
        failure::from_status(self.head.status, &self.head.headers, text)
    }
}

fn unframed(text: &str) -> &str {
    if !text.starts_with("data:") && !text.starts_with("event:") {
        return text;
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data:"));
    data.map_or(text, str::trim)
}

fn content_type(head: &HttpResponseHead) -> String {
    failure::header(&head.headers, "content-type")
        .unwrap_or_default()
        .to_ascii_lowercase()
}

/// The error JSON behind a stream's events, without white space around it.
pub fn stray_error(stray: &str) -> Option<&str> {
    let stray = stray.trim();
    (stray.starts_with('{') && stray.contains("\"error\"")).then_some(stray)
}

/// A usage event's further counts, without counts of zero.
pub fn named_counts<const COUNT: usize>(counts: [(&str, Option<u64>); COUNT]) -> Vec<NamedCount> {
    let counts = counts.into_iter().filter_map(|(name, count)| {
        Some(NamedCount {
            name: name.to_owned(),
            count: count.filter(|count| *count > 0)?,
        })
    });
    counts.collect()
}

/// Reads a field of an answer: a value of another type than the expected one is absent. An addition of a later version of an API
/// must not cost the whole answer.
///
/// # Errors
///
/// The deserializer's own, for what is no JSON.
pub fn or_absent<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let raw = <&'de RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

/// The failure of a stream that was cut.
pub fn cut() -> Failure {
    Failure::malformed("the stream ended before the answer did")
}

/// The failure of an answer that is not `expected`. It gives the error's position and no text: the text around it may be a
/// user's.
pub fn unreadable(expected: &str, error: &serde_json::Error) -> Failure {
    Failure::malformed(format!(
        "the answer is not {expected} ({:?} error at line {} column {})",
        error.classify(),
        error.line(),
        error.column()
    ))
}
