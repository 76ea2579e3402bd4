//! `weir plugin try`: one exchange of an adapter, with recordings in place of an upstream.
//!
//! What [`crate::inference::exchange`] does over the network, this does over files, with the same checks and the same
//! bounds. Only time is left out: a wait is printed and not waited for.

use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};

use super::lines;
use super::recording::Recording;
use crate::config::Config;
use crate::inference::destination::{self, BaseUrl};
use crate::inference::dialect::openai;
use crate::inference::exchange::{self, ExchangeError};
use crate::inference::sequence::Sequence;
use crate::plugins::bindings::adapter::{Failure, HttpRequest, HttpResponseHead, Request, Step};
use crate::plugins::bindings::chat::{ChatRequest, Event};
use crate::plugins::compiler::Compiler;
use crate::plugins::loading::Arrived;
use crate::plugins::{Adapter, Engine, GuestError, GuestExchange, loading};
use weir_storage::secrets::Secret;

/// Stands for any upstream's credential.
const CREDENTIAL: &str = "CREDENTIAL";

/// The output limit of a request that has none; in the server it is the model's.
const DEFAULT_OUTPUT_TOKENS: u32 = 1024;

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
    let request = read_request(&arguments.request)?;
    let recordings = arguments
        .responses
        .iter()
        .map(|file| read_recording(file))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let adapter = load(&config, &arguments.component).await?;
    let known = &adapter.description.options;
    let options: BTreeMap<_, _> = arguments.options.into_iter().collect();
    for name in options.keys() {
        ensure!(
            known.contains(name),
            "the adapter has no option {name:?}; it has: {}",
            known.join(", ")
        );
    }
    let mut recordings = recordings.into_iter();
    let mut trial = Trial {
        adapter: &adapter,
        recordings: &mut recordings,
        sequence: Sequence::new(request.max_output_tokens),
        chunk: arguments.chunk,
        answer_bytes: config.limits.exchanges.answer_bytes.get(),
    };
    let outcome = trial
        .run(&Request::Chat(request), &Vec::from_iter(options))
        .await;
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
    adapter: &'a Adapter,
    recordings: &'a mut dyn Iterator<Item = Recording>,
    sequence: Sequence,
    chunk: NonZeroUsize,
    answer_bytes: u64,
}

impl Trial<'_> {
    /// Prints an exchange as it goes. What goes wrong in it is an [`ExchangeError`].
    async fn run(&mut self, request: &Request, options: &[(String, String)]) -> anyhow::Result<()> {
        let mut guest = called(GuestExchange::begin(self.adapter, request, options).await)?;
        let (mut sends, mut others) = (0, 0);
        loop {
            match called(guest.next().await)? {
                Step::Send(asked) => {
                    sends += 1;
                    if sends > exchange::MAX_SENDS {
                        return Err(ExchangeError::TooManySteps.into());
                    }
                    self.send(asked)?;
                    let Some(recording) = self.recordings.next() else {
                        eprintln!("It awaits an answer: give it one with --response FILE.");
                        return Ok(());
                    };
                    self.answer(&mut guest, &recording).await?;
                    continue;
                }
                Step::Emit(events) => self.events(&events)?,
                Step::Wait(milliseconds) => lines::wait(milliseconds)?,
                Step::Done => {
                    self.sequence.end().map_err(ExchangeError::from)?;
                    return lines::done();
                }
            }
            others += 1;
            if others > exchange::MAX_OTHER_STEPS {
                return Err(ExchangeError::TooManySteps.into());
            }
        }
    }

    fn send(&self, asked: HttpRequest) -> anyhow::Result<()> {
        // Nothing is sent there: the name exists nowhere, by RFC 2606.
        let base = BaseUrl::parse("https://upstream.invalid").map_err(anyhow::Error::msg)?;
        let credential = Secret::new(CREDENTIAL.to_owned());
        let body = asked.body.clone();
        let slot = &self.adapter.description.credential;
        let request = destination::build(Some(&base), slot, Some(&credential), asked)
            .map_err(ExchangeError::from)?;
        lines::send(&request.map(|_| body))
    }

    async fn answer(
        &mut self,
        guest: &mut GuestExchange,
        recording: &Recording,
    ) -> anyhow::Result<()> {
        let head = HttpResponseHead {
            status: recording.status.as_u16(),
            headers: exchange::visible_headers(&recording.headers, None),
        };
        lines::head(head.status, &head.headers)?;
        called(guest.head(&head).await)?;
        if recording.body.len() as u64 > self.answer_bytes {
            return Err(ExchangeError::TooLarge.into());
        }
        for piece in recording.body.chunks(self.chunk.get()) {
            self.events(&called(guest.body(piece).await)?)?;
        }
        self.events(&called(guest.end().await)?)
    }

    fn events(&mut self, events: &[Event]) -> anyhow::Result<()> {
        for event in events {
            // Also one that has no place here: it is what its author looks for.
            lines::event(event)?;
            self.sequence.follow(event).map_err(ExchangeError::from)?;
        }
        Ok(())
    }
}

/// What a call into the guest came to.
fn called<T>(outcome: Result<Result<T, Failure>, GuestError>) -> Result<T, ExchangeError> {
    outcome?.map_err(ExchangeError::Failure)
}

async fn load(config: &Config, file: &Path) -> anyhow::Result<Adapter> {
    let bytes = read(file)?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let engine = Engine::start(1)?;
    let compiler = Compiler::new(config.plugins.compile.clone());
    let limits = &config.plugins.limits;
    let arrived = Arrived::new(bytes.into()).await;
    let adapter = loading::load_arrived(&engine, &compiler, None, limits, &name, arrived)
        .await
        .map_err(|error| anyhow!(error).context(format!("{} is refused", file.display())))?;
    ensure!(
        adapter.description.serves_chat,
        "{} serves images only, and the request is a chat",
        file.display()
    );
    Ok(adapter)
}

fn read_request(file: &Path) -> anyhow::Result<ChatRequest> {
    let body = if file == Path::new("-") {
        let mut body = Vec::new();
        std::io::stdin()
            .read_to_end(&mut body)
            .context("reading standard input")?;
        body
    } else {
        read(file)?
    };
    let call = openai::parse_chat(&body).map_err(|error| {
        let refused = format!("{} {}", error.status().as_u16(), error.code());
        anyhow!("the request is refused: {refused}: {}", error.message())
    })?;
    let mut request = call.request;
    request.max_output_tokens = call.output_limit.unwrap_or(DEFAULT_OUTPUT_TOKENS);
    Ok(request)
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
