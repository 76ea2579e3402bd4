//! One exchange of an adapter on recorded responses.
//!
//! A trial has the checks and bounds of a gateway's exchange. A wait that the adapter asks for is printed, and takes no time.

use std::io::Write;
use std::num::NonZeroUsize;

use anyhow::{Context, anyhow};
use weir_dialects::{Attachment, ChatCall};
use weir_kinds::images::ImageCall;
use weir_plugins::Component;
use weir_sandbox::adapter::bindings::adapter::{
    Client, HttpRequest, HttpResponseHead, Progress, Request, Setting, Step, Task,
};
use weir_sandbox::adapter::bindings::chat::Event;
use weir_sandbox::adapter::{GuestExchange, WorkKind};
use weir_sandbox::filter::bindings::filter;
use weir_storage::secrets::Secret;
use weir_upstream::credential::Authorization;
use weir_upstream::destination::{self, BaseUrl, HostParts};
use weir_upstream::error::{ExchangeError, MAX_OTHER_STEPS, MAX_SENDS};
use weir_upstream::image_tokens::ImageCounting;
use weir_upstream::media::MediaPieces;
use weir_upstream::recorded::{RecordedRequest, RecordedTask};
use weir_upstream::response;
use weir_upstream::sequence::Sequence;
use weir_upstream::usage::RequestSize;

use crate::lines;
use crate::live::LiveProvider;
use crate::recording::RecordedResponse;

/// The placeholder for the credential of a provider.
const CREDENTIAL: &str = "CREDENTIAL";

/// The time of a request, in milliseconds, as the adapter gets it. A gateway subtracts the time of earlier attempts.
const DEADLINE_MS: u64 = 600_000;

pub struct Trial<'a> {
    pub component: &'a Component,
    /// The pieces in which the adapter gets a response.
    pub cut: BodyCuts,
    /// The longest text, in bytes, that an adapter with the capability `long-texts` gets in the request.
    pub most_text_bytes: usize,
    /// The largest response, in bytes.
    pub response_bytes: u64,
}

/// The cuts of a response's body. A network cuts bodies anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyCuts {
    /// Pieces of this many bytes.
    Pieces(NonZeroUsize),
    /// Two pieces; the first has this many bytes.
    At(usize),
}

impl BodyCuts {
    /// Returns the pieces of a body. Empty pieces are left out.
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

/// The output limit of a request for images. It bounds the text beside the images.
const IMAGES_OUTPUT_TOKENS: u32 = 1024;

/// The tokens of an image, for a filter. A gateway takes the number of the model.
const IMAGES: ImageCounting = ImageCounting {
    family: None,
    max_tokens: 1_024,
};

#[derive(Debug, Clone)]
pub struct TrialRequest {
    task: Task,
    attachments: Vec<Attachment>,
    client: Client,
    text_bytes: usize,
    output_limit: u32,
}

impl TrialRequest {
    /// Returns the request's kind.
    pub fn kind(&self) -> WorkKind {
        match self.task {
            Task::Chat(_) => WorkKind::Chat,
            Task::Image(_) => WorkKind::Images,
        }
    }

    /// Returns the request that the adapter gets.
    pub(crate) fn request(&self) -> Request {
        Request {
            task: self.task.clone(),
            attachments: self.attachments.iter().map(Attachment::described).collect(),
            client: self.client.clone(),
            attempt: 1,
            deadline_ms: DEADLINE_MS,
        }
    }

    /// Returns the request that a filter gets: from a client on the plan `free`, for these providers.
    pub(crate) fn screened(&self, providers: &[String]) -> filter::Request {
        let attachments = &self.attachments;
        let (model, size) = match &self.task {
            Task::Chat(chat) => (&chat.model, RequestSize::of(chat, attachments, IMAGES)),
            Task::Image(image) => (
                &image.model,
                RequestSize::of_images(image, attachments, IMAGES),
            ),
        };
        let upstreams = providers.iter().map(|provider| filter::Upstream {
            provider: provider.clone(),
            model: model.clone(),
        });
        filter::Request {
            upstreams: upstreams.collect(),
            input_tokens: size.estimated_tokens(),
            task: match self.task.clone() {
                Task::Chat(chat) => filter::Task::Chat(chat),
                Task::Image(image) => filter::Task::Image(image),
            },
            attachments: self.attachments.iter().map(Attachment::described).collect(),
            dialect: self.client.dialect.clone(),
            plan: "free".to_owned(),
        }
    }

    /// Returns the output limit in tokens.
    pub(crate) fn output_limit(&self) -> u32 {
        self.output_limit
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Takes a recorded request. `bytes` is its size as JSON.
    pub(crate) fn recorded(recorded: &RecordedRequest, bytes: usize) -> anyhow::Result<Self> {
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

/// The end of a trial without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialOutcome {
    /// The adapter waits for a response that was not recorded.
    Awaits,
    /// The adapter is done. The number counts unused recorded responses.
    Done(usize),
}

impl Trial<'_> {
    /// Runs an exchange and prints each step as a line of JSON.
    ///
    /// # Errors
    ///
    /// The error of the exchange, which is the last line, too; options that the adapter rejects; a closed output.
    pub async fn run(
        &self,
        request: impl Into<TrialRequest>,
        options: &[Setting],
        recordings: Vec<RecordedResponse>,
        out: &mut dyn Write,
    ) -> anyhow::Result<TrialOutcome> {
        let responses = Responses::Recorded(recordings.into_iter());
        self.run_on(request.into(), options, responses, out).await
    }

    /// Runs an exchange with a provider, and records its responses.
    pub(crate) async fn run_live(
        &self,
        request: TrialRequest,
        options: &[Setting],
        live: &mut LiveProvider,
        out: &mut dyn Write,
    ) -> anyhow::Result<TrialOutcome> {
        self.run_on(request, options, Responses::Live(live), out)
            .await
    }

    async fn run_on(
        &self,
        request: TrialRequest,
        options: &[Setting],
        responses: Responses<'_>,
        out: &mut dyn Write,
    ) -> anyhow::Result<TrialOutcome> {
        let mut running = RunningExchange {
            trial: self,
            responses,
            sequence: Sequence::new(request.output_limit),
            media: MediaPieces::default(),
            pieces: lines::Pieces::default(),
            out,
        };
        let outcome = running.run(request, options).await;
        if let Err(error) = &outcome {
            match error.downcast_ref() {
                Some(ExchangeError::Failure(failure)) => lines::failure(running.out, failure)?,
                Some(ExchangeError::Destination(why)) => {
                    lines::refused(running.out, &why.to_string())?;
                }
                Some(other) => lines::error(running.out, &other.to_string())?,
                // The exchange did not begin, or the output is closed.
                None => {}
            }
        }
        outcome
    }
}

enum Responses<'a> {
    Recorded(std::vec::IntoIter<RecordedResponse>),
    Live(&'a mut LiveProvider),
}

impl Responses<'_> {
    /// Returns how many recorded responses are unused.
    fn left(&self) -> usize {
        match self {
            Self::Recorded(recordings) => recordings.len(),
            Self::Live(_) => 0,
        }
    }
}

struct RunningExchange<'a> {
    trial: &'a Trial<'a>,
    responses: Responses<'a>,
    sequence: Sequence,
    media: MediaPieces,
    pieces: lines::Pieces,
    out: &'a mut dyn Write,
}

impl RunningExchange<'_> {
    /// Errors of the exchange are [`ExchangeError`]s.
    async fn run(
        &mut self,
        tried: TrialRequest,
        options: &[Setting],
    ) -> anyhow::Result<TrialOutcome> {
        let component = self.trial.component;
        let configuration = component.configuration(options).await.map_err(|error| {
            let known = component.description.options.join(", ");
            anyhow!("the adapter rejects its options: {error}; its options are: {known}")
        })?;
        let mut request = tried.request();
        let attachments = tried.attachments;
        let begun = GuestExchange::begin_without_texts(
            component,
            &mut request,
            self.trial.most_text_bytes,
            tried.text_bytes,
            &configuration,
        )
        .await
        .map_err(ExchangeError::from)?;
        let texts = begun.long_texts.of(&request);
        let parts = HostParts {
            attachments: &attachments,
            texts: &texts,
        };
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
                    self.send(asked.clone(), parts)?;
                    let recording = match &mut self.responses {
                        Responses::Recorded(recordings) => recordings.next(),
                        Responses::Live(live) => {
                            let description = &self.trial.component.description;
                            Some(live.send(description, asked, parts).await?)
                        }
                    };
                    let Some(recording) = recording else {
                        return Ok(TrialOutcome::Awaits);
                    };
                    self.receive(&mut guest, &recording).await?;
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
                    return Ok(TrialOutcome::Done(self.responses.left()));
                }
            }
            if others > MAX_OTHER_STEPS {
                return Err(ExchangeError::TooManySteps.into());
            }
            step = guest.next().await.map_err(ExchangeError::from)?;
        }
    }

    fn send(&mut self, asked: HttpRequest, parts: HostParts<'_>) -> anyhow::Result<()> {
        // RFC 2606 reserves this name: it never resolves.
        let base = BaseUrl::parse("https://upstream.invalid").map_err(anyhow::Error::msg)?;
        let credential = Secret::new(CREDENTIAL.to_owned());
        let description = &self.trial.component.description;
        let request = destination::build(
            Some(&base),
            &description.credential,
            description,
            Some(&Authorization::Fixed(&credential)),
            asked,
            parts,
        )
        .map_err(ExchangeError::from)?;
        lines::send(self.out, &request)
    }

    async fn receive(
        &mut self,
        guest: &mut GuestExchange,
        recording: &RecordedResponse,
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
        if recording.body.len() as u64 > self.trial.response_bytes {
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
            // A printed image is complete: the number of its pieces does not belong to the response.
            for event in self.media.assemble(vec![event.clone()]) {
                // An event out of order is printed, too: the author looks for it.
                lines::event(self.out, &event, &mut self.pieces)?;
            }
            self.sequence.follow(event).map_err(ExchangeError::from)?;
        }
        Ok(())
    }
}
