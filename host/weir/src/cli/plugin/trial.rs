//! One exchange of an adapter, with recordings in place of an upstream.
//!
//! What [`crate::inference::exchange`] does over the network, this does over recorded answers, with the same checks and
//! the same bounds. Only time is left out: a wait is printed and not waited for.

use std::io::Write;
use std::num::NonZeroUsize;

use anyhow::{Context, anyhow};
use weir_dialects::{Attachment, ChatCall, ImageCall};
use weir_plugins::Component;
use weir_upstream::destination::{self, BaseUrl};

use super::lines;
use super::live::Live;
use super::recording::Recording;
use weir_sandbox::adapter::bindings::adapter::{
    Client, HttpRequest, HttpResponseHead, Progress, Request, Setting, Step, Task,
};
use weir_sandbox::adapter::bindings::chat::Event;
use weir_sandbox::adapter::{GuestExchange, description};
use weir_sandbox::filter::bindings::filter;
use weir_storage::secrets::Secret;
use weir_upstream::error::{ExchangeError, MAX_OTHER_STEPS, MAX_SENDS};
use weir_upstream::media::MediaPieces;
use weir_upstream::recorded::{RecordedRequest, RecordedTask};
use weir_upstream::response;
use weir_upstream::sequence::Sequence;
use weir_upstream::usage::RequestSize;

/// Stands for any upstream's credential.
const CREDENTIAL: &str = "CREDENTIAL";

/// What is left of a request's time, as an adapter is told; in the server it is less with each attempt.
const DEADLINE_MS: u64 = 600_000;

/// How an adapter is tried.
pub struct Trial<'a> {
    /// The adapter.
    pub component: &'a Component,
    /// How answers are handed over.
    pub cut: Cut,
    /// The most that an answer may have.
    pub answer_bytes: u64,
}

/// Where an answer's body is cut, as a network cuts it anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Into pieces of so many bytes.
    Pieces(NonZeroUsize),
    /// In two, behind so many bytes.
    At(usize),
}

impl Cut {
    /// The pieces of a body, none of them empty.
    fn pieces(self, body: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::Pieces(bytes) => body.chunks(bytes.get()).collect(),
            Self::At(place) => {
                let (first, second) = body.split_at(place.min(body.len()));
                let mut pieces = vec![first, second];
                pieces.retain(|piece| !piece.is_empty());
                pieces
            }
        }
    }
}

/// The output limit of a request for images, by which what is said beside them is bounded.
const IMAGES_OUTPUT_TOKENS: u32 = 1024;

/// What an image counts for a filter; in the server it is the model's.
const IMAGE_TOKENS: u64 = 1024;

/// What the adapter is asked.
#[derive(Debug, Clone)]
pub struct TrialRequest {
    task: Task,
    attachments: Vec<Attachment>,
    client: Client,
    text_bytes: usize,
    output_limit: u32,
}

impl TrialRequest {
    /// What an adapter must be capable of for it.
    pub fn capability(&self) -> &'static str {
        match self.task {
            Task::Chat(_) => description::CHAT,
            Task::Image(_) => description::IMAGES,
        }
    }
}

impl TrialRequest {
    /// As the adapter gets it.
    pub(super) fn request(&self) -> Request {
        Request {
            task: self.task.clone(),
            attachments: self.attachments.iter().map(Attachment::described).collect(),
            client: self.client.clone(),
            attempt: 1,
            deadline_ms: DEADLINE_MS,
        }
    }

    /// As a filter is shown it, of a client on the plan `free`, where these providers may serve it.
    pub(super) fn screened(&self, providers: &[String]) -> filter::Request {
        let (model, size) = match &self.task {
            Task::Chat(chat) => (&chat.model, RequestSize::of(chat, &self.attachments)),
            Task::Image(image) => (&image.model, RequestSize::of_images(image)),
        };
        let upstreams = providers.iter().map(|provider| filter::Upstream {
            provider: provider.clone(),
            model: model.clone(),
        });
        filter::Request {
            upstreams: upstreams.collect(),
            input_tokens: size.estimated_tokens(IMAGE_TOKENS),
            task: match self.task.clone() {
                Task::Chat(chat) => filter::Task::Chat(chat),
                Task::Image(image) => filter::Task::Image(image),
            },
            attachments: self.attachments.iter().map(Attachment::described).collect(),
            dialect: self.client.dialect.clone(),
            plan: "free".to_owned(),
        }
    }

    /// The most tokens that its answer may have.
    pub(super) fn output_limit(&self) -> u32 {
        self.output_limit
    }

    /// How large it is, more or less.
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }
}

impl TrialRequest {
    /// One that was recorded; so many bytes of JSON.
    pub(super) fn recorded(recorded: &RecordedRequest, bytes: usize) -> anyhow::Result<Self> {
        let attachments = recorded.attachments();
        let attachments = attachments.context("an attachment of the recorded request")?;
        let (task, output_limit) = match &recorded.recorded {
            RecordedTask::Chat(chat) => (Task::Chat((**chat).clone()), chat.max_output_tokens),
            RecordedTask::Image(image) => (Task::Image((**image).clone()), IMAGES_OUTPUT_TOKENS),
        };
        Ok(Self {
            task,
            attachments,
            client: recorded.client(),
            text_bytes: bytes,
            output_limit,
        })
    }
}

impl From<ChatCall> for TrialRequest {
    fn from(call: ChatCall) -> Self {
        Self {
            text_bytes: call.text_bytes(),
            output_limit: call.request.max_output_tokens,
            task: Task::Chat(call.request),
            attachments: call.attachments,
            client: call.client,
        }
    }
}

impl From<ImageCall> for TrialRequest {
    fn from(call: ImageCall) -> Self {
        Self {
            text_bytes: call.text_bytes(),
            output_limit: IMAGES_OUTPUT_TOKENS,
            task: Task::Image(call.request),
            attachments: call.attachments,
            client: call.client,
        }
    }
}

/// A trial that went as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The adapter awaits an answer for which there was no recording.
    Awaits,
    /// It was done, and this many recordings were not asked for.
    Done(usize),
}

impl Trial<'_> {
    /// Prints an exchange as it goes, a line of JSON for each thing that happens.
    ///
    /// # Errors
    ///
    /// What went wrong in the exchange, which is printed too, as its last line; options that the adapter does not take;
    /// or that nothing can be written any more.
    pub async fn run(
        &self,
        tried: impl Into<TrialRequest>,
        options: &[Setting],
        recordings: Vec<Recording>,
        out: &mut dyn Write,
    ) -> anyhow::Result<Outcome> {
        let answers = Answers::Recorded(recordings.into_iter());
        self.run_on(tried.into(), options, answers, out).await
    }

    /// The same with an upstream, which is asked.
    pub(super) async fn run_live(
        &self,
        tried: TrialRequest,
        options: &[Setting],
        live: &mut Live,
        out: &mut dyn Write,
    ) -> anyhow::Result<Outcome> {
        self.run_on(tried, options, Answers::Live(live), out).await
    }

    async fn run_on(
        &self,
        tried: TrialRequest,
        options: &[Setting],
        answers: Answers<'_>,
        out: &mut dyn Write,
    ) -> anyhow::Result<Outcome> {
        let mut running = Running {
            trial: self,
            answers,
            sequence: Sequence::new(tried.output_limit),
            media: MediaPieces::default(),
            pieces: lines::Pieces::default(),
            out,
        };
        let outcome = running.run(tried, options).await;
        if let Err(error) = &outcome {
            match error.downcast_ref() {
                Some(ExchangeError::Failure(failure)) => lines::failure(running.out, failure)?,
                Some(ExchangeError::Destination(why)) => {
                    lines::refused(running.out, &why.to_string())?;
                }
                Some(other) => lines::error(running.out, &other.to_string())?,
                // Nothing was exchanged, or nobody reads on.
                None => {}
            }
        }
        outcome
    }
}

/// Where answers come from.
enum Answers<'a> {
    Recorded(std::vec::IntoIter<Recording>),
    Live(&'a mut Live),
}

impl Answers<'_> {
    /// How many there are that have not been asked for.
    fn left(&self) -> usize {
        match self {
            Self::Recorded(recordings) => recordings.len(),
            Self::Live(_) => 0,
        }
    }
}

/// An exchange that is being tried.
struct Running<'a> {
    trial: &'a Trial<'a>,
    answers: Answers<'a>,
    sequence: Sequence,
    media: MediaPieces,
    pieces: lines::Pieces,
    out: &'a mut dyn Write,
}

impl Running<'_> {
    /// What goes wrong in it is an [`ExchangeError`].
    async fn run(&mut self, tried: TrialRequest, options: &[Setting]) -> anyhow::Result<Outcome> {
        let component = self.trial.component;
        let configuration = component.configuration(options).await.map_err(|error| {
            let known = component.description.options.join(", ");
            anyhow!("the adapter does not take its options: {error}; it has: {known}")
        })?;
        let request = tried.request();
        let attachments = tried.attachments;
        let begun = GuestExchange::begin(component, &request, tried.text_bytes, &configuration)
            .await
            .map_err(ExchangeError::from)?;
        if !begun.ignored.is_empty() {
            lines::ignored(self.out, &begun.ignored)?;
        }
        let mut guest = begun.exchange;
        let mut step = begun.step;
        let (mut sends, mut others) = (0, 0);
        loop {
            match step {
                Step::Send(asked) => {
                    sends += 1;
                    if sends > MAX_SENDS {
                        return Err(ExchangeError::TooManySteps.into());
                    }
                    self.send(asked.clone(), &attachments)?;
                    let recording = match &mut self.answers {
                        Answers::Recorded(recordings) => recordings.next(),
                        Answers::Live(live) => {
                            let description = &self.trial.component.description;
                            Some(live.ask(description, asked, &attachments).await?)
                        }
                    };
                    let Some(recording) = recording else {
                        return Ok(Outcome::Awaits);
                    };
                    self.answer(&mut guest, &recording).await?;
                }
                Step::Emit(events) => {
                    others += 1;
                    self.events(&events)?;
                }
                Step::Wait(milliseconds) => {
                    others += 1;
                    lines::wait(self.out, milliseconds)?;
                }
                Step::Done => {
                    self.sequence.end().map_err(ExchangeError::from)?;
                    lines::done(self.out)?;
                    return Ok(Outcome::Done(self.answers.left()));
                }
            }
            if others > MAX_OTHER_STEPS {
                return Err(ExchangeError::TooManySteps.into());
            }
            step = guest.next().await.map_err(ExchangeError::from)?;
        }
    }

    fn send(&mut self, asked: HttpRequest, attachments: &[Attachment]) -> anyhow::Result<()> {
        // Nothing is sent there: the name exists nowhere, by RFC 2606.
        let base = BaseUrl::parse("https://upstream.invalid").map_err(anyhow::Error::msg)?;
        let credential = Secret::new(CREDENTIAL.to_owned());
        let description = &self.trial.component.description;
        let request = destination::build(
            Some(&base),
            description,
            Some(&credential),
            asked,
            attachments,
        )
        .map_err(ExchangeError::from)?;
        lines::send(self.out, &request)
    }

    async fn answer(
        &mut self,
        guest: &mut GuestExchange,
        recording: &Recording,
    ) -> anyhow::Result<()> {
        let head = HttpResponseHead {
            status: recording.status.as_u16(),
            headers: response::visible_headers(
                &recording.headers,
                &self.trial.component.description,
                None,
            ),
        };
        lines::head(self.out, head.status, &head.headers)?;
        guest.head(&head).await.map_err(ExchangeError::from)?;
        if recording.body.len() as u64 > self.trial.answer_bytes {
            return Err(ExchangeError::TooLarge.into());
        }
        for piece in self.trial.cut.pieces(&recording.body) {
            let progress = guest.body(piece).await.map_err(ExchangeError::from)?;
            self.advance(progress)?;
        }
        let progress = guest.end().await.map_err(ExchangeError::from)?;
        self.advance(progress)
    }

    fn advance(&mut self, progress: Progress) -> anyhow::Result<()> {
        self.events(&progress.events)?;
        match progress.failure {
            None => Ok(()),
            Some(failure) => Err(ExchangeError::Failure(failure).into()),
        }
    }

    fn events(&mut self, events: &[Event]) -> anyhow::Result<()> {
        for event in events {
            // An image with all of its bytes: in how many pieces they come is no matter of the answer.
            for event in self.media.assemble(vec![event.clone()]) {
                // Also one that has no place here: it is what its author looks for.
                lines::event(self.out, &event, &mut self.pieces)?;
            }
            self.sequence.follow(event).map_err(ExchangeError::from)?;
        }
        Ok(())
    }
}
