//! `weir plugin try`: one exchange of an adapter, with recordings in place of an upstream.
//!
//! What [`crate::inference::exchange`] does over the network, this does over files, with the same checks and the same
//! bounds. Only time is left out: a wait is printed and not waited for.

use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};

use super::lines;
use super::recording::Recording;
use crate::config::Config;
use crate::inference::destination::{self, BaseUrl};
use crate::inference::dialect::{self, Attachment, ChatCall};
use crate::inference::error::{ExchangeError, MAX_OTHER_STEPS, MAX_SENDS};
use crate::inference::exchange;
use crate::inference::sequence::Sequence;
use crate::plugins::Component;
use weir_sandbox::adapter::bindings::adapter::{
    HttpRequest, HttpResponseHead, Progress, Request, Setting, Step, Task,
};
use weir_sandbox::adapter::bindings::chat::Event;
use weir_sandbox::adapter::{GuestExchange, ProviderWorld, description};
use weir_sandbox::compiler::Compiler;
use weir_sandbox::loading::{self, Arrived};
use weir_sandbox::{Engine, Room, Sandbox};
use weir_storage::secrets::Secret;

/// Stands for any upstream's credential.
const CREDENTIAL: &str = "CREDENTIAL";

/// The output limit of a request that has none; in the server it is the model's.
const DEFAULT_OUTPUT_TOKENS: u32 = 1024;

/// What is left of a request's time, as an adapter is told; in the server it is less with each attempt.
const DEADLINE_MS: u64 = 600_000;

#[derive(clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The component.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// A file with a request as `POST /chat` takes it, or - for standard input. The adapter gets the model's name as
    /// it stands there, and an output limit of 1024 tokens where there is none.
    #[arg(long, value_name = "FILE")]
    request: PathBuf,
    /// A file with what an upstream answered, as `curl -i` prints it, or its body alone. As many as the adapter
    /// sends requests; without one for a request, the exchange stops there.
    #[arg(long = "response", value_name = "FILE")]
    responses: Vec<PathBuf>,
    /// Hand bodies over in pieces of so many bytes: the events must be the same for any number.
    #[arg(long, value_name = "BYTES", default_value_t = NonZeroUsize::new(exchange::COALESCED_BYTES).expect("more than 0"))]
    chunk: NonZeroUsize,
    /// An option, as a provider's `options` in the configuration have them. May be repeated.
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = option)]
    options: Vec<(String, String)>,
}

pub(super) async fn run(config: Config, arguments: Arguments) -> anyhow::Result<()> {
    let call = read_call(&arguments.request)?;
    let recordings = arguments
        .responses
        .iter()
        .map(|file| read_recording(file))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let component = load(&config, &arguments.component).await?;
    let options: BTreeMap<_, _> = arguments.options.into_iter().collect();
    let mut recordings = recordings.into_iter();
    let mut trial = Trial {
        component: &component,
        recordings: &mut recordings,
        sequence: Sequence::new(call.request.max_output_tokens),
        pieces: lines::Pieces::default(),
        chunk: arguments.chunk,
        answer_bytes: config.limits.exchanges.answer_bytes.get(),
    };
    let outcome = trial.run(call, &Vec::from_iter(options)).await;
    if let Err(error) = outcome {
        match error.downcast_ref() {
            Some(ExchangeError::Failure(failure)) => lines::failure(failure)?,
            Some(ExchangeError::Destination(why)) => lines::refused(&why.to_string())?,
            Some(other) => lines::error(&other.to_string())?,
            // Standard output is gone.
            None => {}
        }
        return Err(error);
    }
    let left = recordings.count();
    if left > 0 {
        eprintln!("{left} of the recorded answers were not asked for.");
    }
    Ok(())
}

struct Trial<'a> {
    component: &'a Component,
    recordings: &'a mut dyn Iterator<Item = Recording>,
    sequence: Sequence,
    pieces: lines::Pieces,
    chunk: NonZeroUsize,
    answer_bytes: u64,
}

impl Trial<'_> {
    /// Prints an exchange as it goes. What goes wrong in it is an [`ExchangeError`].
    async fn run(&mut self, call: ChatCall, options: &[Setting]) -> anyhow::Result<()> {
        let configuration = self
            .component
            .configuration(options)
            .await
            .map_err(|error| {
                let known = self.component.description.options.join(", ");
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
        let begun = GuestExchange::begin(self.component, &request, text_bytes, &configuration)
            .await
            .map_err(ExchangeError::from)?;
        if !begun.ignored.is_empty() {
            lines::ignored(&begun.ignored)?;
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
                        eprintln!("It awaits an answer: give it one with --response FILE.");
                        return Ok(());
                    };
                    self.answer(&mut guest, &recording).await?;
                }
                Step::Emit(events) => {
                    others += 1;
                    self.events(&events)?;
                }
                Step::Wait(milliseconds) => {
                    others += 1;
                    lines::wait(milliseconds)?;
                }
                Step::Done => {
                    self.sequence.end().map_err(ExchangeError::from)?;
                    return lines::done();
                }
            }
            if others > MAX_OTHER_STEPS {
                return Err(ExchangeError::TooManySteps.into());
            }
            step = guest.next().await.map_err(ExchangeError::from)?;
        }
    }

    fn send(&self, asked: HttpRequest, attachments: &[Attachment]) -> anyhow::Result<()> {
        // Nothing is sent there: the name exists nowhere, by RFC 2606.
        let base = BaseUrl::parse("https://upstream.invalid").map_err(anyhow::Error::msg)?;
        let credential = Secret::new(CREDENTIAL.to_owned());
        let description = &self.component.description;
        let request = destination::build(
            Some(&base),
            description,
            Some(&credential),
            asked,
            attachments,
        )
        .map_err(ExchangeError::from)?;
        lines::send(&request)
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
                &self.component.description,
                None,
            ),
        };
        lines::head(head.status, &head.headers)?;
        guest.head(&head).await.map_err(ExchangeError::from)?;
        if recording.body.len() as u64 > self.answer_bytes {
            return Err(ExchangeError::TooLarge.into());
        }
        for piece in recording.body.chunks(self.chunk.get()) {
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
            lines::event(event, &mut self.pieces)?;
            self.sequence.follow(event).map_err(ExchangeError::from)?;
        }
        Ok(())
    }
}

async fn load(config: &Config, file: &Path) -> anyhow::Result<Component> {
    let bytes = read(file)?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let engine = Engine::start(Room {
        guests: 1,
        memory_bytes: config.plugins.all_memory_bytes(),
    })?;
    let sandbox = Sandbox::<ProviderWorld>::new(&engine)?;
    let compiler = Compiler::new(config.plugins.compile.clone());
    let limits = &config.plugins.limits;
    let arrived = Arrived::new(bytes.into()).await;
    let adapter = loading::load_arrived(&sandbox, &compiler, None, limits, &name, arrived)
        .await
        .map_err(|error| anyhow!(error).context(format!("{} is refused", file.display())))?;
    ensure!(
        adapter.is_capable_of(description::CHAT),
        "{} does not serve chat requests",
        file.display()
    );
    Ok(Component::new(adapter, Arc::default()))
}

fn read_call(file: &Path) -> anyhow::Result<ChatCall> {
    let body = if file == Path::new("-") {
        let mut body = Vec::new();
        std::io::stdin()
            .read_to_end(&mut body)
            .context("reading standard input")?;
        body
    } else {
        read(file)?
    };
    let mut call = dialect::read_own(&body).map_err(|error| {
        let refused = format!("{} {}", error.status().as_u16(), error.code());
        anyhow!("the request is refused: {refused}: {}", error.message())
    })?;
    call.request.max_output_tokens = call.output_limit.unwrap_or(DEFAULT_OUTPUT_TOKENS);
    Ok(call)
}

fn read_recording(file: &Path) -> anyhow::Result<Recording> {
    Recording::parse(&read(file)?)
        .map_err(|why| anyhow!("{} is no recorded answer: {why}", file.display()))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("reading {}", file.display()))
}

fn option(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "is not NAME=VALUE".to_owned())
}
