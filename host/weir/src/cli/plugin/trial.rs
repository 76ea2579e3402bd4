//! One exchange of an adapter, with recordings in place of an upstream.
//!
//! What [`crate::inference::exchange`] does over the network, this does over recorded answers, with the same checks and
//! the same bounds. Only time is left out: a wait is printed and not waited for.

use std::io::Write;
use std::num::NonZeroUsize;

use anyhow::anyhow;

use super::lines;
use super::recording::Recording;
use crate::inference::destination::{self, BaseUrl};
use crate::inference::dialect::{Attachment, ChatCall};
use crate::inference::error::{ExchangeError, MAX_OTHER_STEPS, MAX_SENDS};
use crate::inference::exchange;
use crate::inference::sequence::Sequence;
use crate::plugins::Component;
use weir_sandbox::adapter::GuestExchange;
use weir_sandbox::adapter::bindings::adapter::{
    HttpRequest, HttpResponseHead, Progress, Request, Setting, Step, Task,
};
use weir_sandbox::adapter::bindings::chat::Event;
use weir_storage::secrets::Secret;

/// Stands for any upstream's credential.
const CREDENTIAL: &str = "CREDENTIAL";

/// What is left of a request's time, as an adapter is told; in the server it is less with each attempt.
const DEADLINE_MS: u64 = 600_000;

/// How an adapter is tried.
pub struct Trial<'a> {
    /// The adapter.
    pub component: &'a Component,
    /// Answers are handed over in pieces of so many bytes.
    pub chunk: NonZeroUsize,
    /// The most that an answer may have.
    pub answer_bytes: u64,
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
        call: ChatCall,
        options: &[Setting],
        recordings: Vec<Recording>,
        out: &mut dyn Write,
    ) -> anyhow::Result<Outcome> {
        let mut tried = Tried {
            trial: self,
            recordings: recordings.into_iter(),
            sequence: Sequence::new(call.request.max_output_tokens),
            pieces: lines::Pieces::default(),
            out,
        };
        let outcome = tried.run(call, options).await;
        if let Err(error) = &outcome {
            match error.downcast_ref() {
                Some(ExchangeError::Failure(failure)) => lines::failure(tried.out, failure)?,
                Some(ExchangeError::Destination(why)) => {
                    lines::refused(tried.out, &why.to_string())?;
                }
                Some(other) => lines::error(tried.out, &other.to_string())?,
                // Nothing was exchanged, or nobody reads on.
                None => {}
            }
        }
        outcome
    }
}

/// An exchange that is being tried.
struct Tried<'a> {
    trial: &'a Trial<'a>,
    recordings: std::vec::IntoIter<Recording>,
    sequence: Sequence,
    pieces: lines::Pieces,
    out: &'a mut dyn Write,
}

impl Tried<'_> {
    /// What goes wrong in it is an [`ExchangeError`].
    async fn run(&mut self, call: ChatCall, options: &[Setting]) -> anyhow::Result<Outcome> {
        let component = self.trial.component;
        let configuration = component.configuration(options).await.map_err(|error| {
            let known = component.description.options.join(", ");
            anyhow!("the adapter does not take its options: {error}; it has: {known}")
        })?;
        let text_bytes = call.text_bytes();
        let attachments = call.attachments;
        let request = Request {
            task: Task::Chat(call.request),
            attachments: attachments.iter().map(Attachment::described).collect(),
            client: call.client,
            attempt: 1,
            deadline_ms: DEADLINE_MS,
        };
        let begun = GuestExchange::begin(component, &request, text_bytes, &configuration)
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
                    self.send(asked, &attachments)?;
                    let Some(recording) = self.recordings.next() else {
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
                    return Ok(Outcome::Done(self.recordings.len()));
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
            headers: exchange::visible_headers(
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
        for piece in recording.body.chunks(self.trial.chunk.get()) {
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
            // Also one that has no place here: it is what its author looks for.
            lines::event(self.out, event, &mut self.pieces)?;
            self.sequence.follow(event).map_err(ExchangeError::from)?;
        }
        Ok(())
    }
}
