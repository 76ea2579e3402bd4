//! `weir plugin try`: a [`Trial`] of a component's file, with requests and recordings from files.

use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};

use super::recording::Recording;
use super::trial::{Outcome, Trial, Tried};
use crate::config::Config;
use crate::inference::dialect::{self, Call};
use crate::inference::exchange;
use crate::plugins::Component;
use weir_sandbox::adapter::ProviderWorld;
use weir_sandbox::compiler::Compiler;
use weir_sandbox::loading::{self, Arrived};
use weir_sandbox::{Engine, Room, Sandbox};

/// The output limit of a request that has none; in the server it is the model's.
const DEFAULT_OUTPUT_TOKENS: u32 = 1024;

#[derive(clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The component.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// A file with a request as `POST /chat` takes it, or as `POST /v1/images/generations` and `/v1/images/edits` take one
    /// that is JSON; - for standard input. The adapter gets the model's name as it stands there, and an output limit of
    /// 1024 tokens where there is none.
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
    let tried = read_request(&arguments.request)?;
    let recordings = arguments
        .responses
        .iter()
        .map(|file| read_recording(file))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let component = load(&config, &arguments.component, tried.capability()).await?;
    let options: BTreeMap<_, _> = arguments.options.into_iter().collect();
    let trial = Trial {
        component: &component,
        chunk: arguments.chunk,
        answer_bytes: config.limits.exchanges.answer_bytes.get(),
    };
    let options = Vec::from_iter(options);
    let mut out = std::io::stdout();
    match trial.run(tried, &options, recordings, &mut out).await? {
        Outcome::Awaits => eprintln!("It awaits an answer: give it one with --response FILE."),
        Outcome::Done(0) => {}
        Outcome::Done(left) => eprintln!("{left} of the recorded answers were not asked for."),
    }
    Ok(())
}

async fn load(config: &Config, file: &Path, capability: &str) -> anyhow::Result<Component> {
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
    let load = async {
        let code = loading::arrived_code(&engine, &compiler, None, arrived).await?;
        loading::finish(&sandbox, limits, &name, code).await
    };
    let adapter = load
        .await
        .map_err(|error| anyhow!(error).context(format!("{} is refused", file.display())))?;
    ensure!(
        adapter.is_capable_of(capability),
        "{} does not serve {capability}",
        file.display()
    );
    Ok(Component::new(adapter, Arc::default()))
}

fn read_request(file: &Path) -> anyhow::Result<Tried> {
    let body = if file == Path::new("-") {
        let mut body = Vec::new();
        std::io::stdin()
            .read_to_end(&mut body)
            .context("reading standard input")?;
        body
    } else {
        read(file)?
    };
    let call = dialect::read_any(&body).map_err(|error| {
        let refused = format!("{} {}", error.status().as_u16(), error.code());
        anyhow!("the request is refused: {refused}: {}", error.message())
    })?;
    Ok(match call {
        Call::Chat(mut call) => {
            call.request.max_output_tokens = call.output_limit.unwrap_or(DEFAULT_OUTPUT_TOKENS);
            (*call).into()
        }
        Call::Images(call) => (*call).into(),
    })
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
