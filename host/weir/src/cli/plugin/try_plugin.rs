//! `weir plugin try`: a [`Trial`] of a component's file, with requests and recordings from files.

use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};

use super::recording::Recording;
use super::trial::{Outcome, Trial, Tried};
use super::try_tool;
use crate::config::Config;
use crate::inference::client;
use crate::inference::dialect::{self, Call};
use crate::plugins::slots::Loaded;
use crate::plugins::{Component, Loader};
use weir_sandbox::compiler::Compiler;
use weir_sandbox::loading::Arrived;
use weir_sandbox::tool::bindings::tool::{CallContext, Integration};
use weir_sandbox::{Engine, Room};

/// The output limit of a request that has none; in the server it is the model's.
const DEFAULT_OUTPUT_TOKENS: u32 = 1024;

#[derive(clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The component.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// A file with a request as `POST /chat` takes it, or as `POST /v1/images/generations` and `/v1/images/edits` take one
    /// that is JSON; for a tool, its arguments; - for standard input. An adapter gets the model's name as it stands there,
    /// and an output limit of 1024 tokens where there is none.
    #[arg(long, value_name = "FILE")]
    request: PathBuf,
    /// A file with what an upstream answered, as `curl -i` prints it, or its body alone. As many as the plugin
    /// sends requests; without one for a request, the exchange stops there.
    #[arg(long = "response", value_name = "FILE")]
    responses: Vec<PathBuf>,
    /// Hand bodies over in pieces of so many bytes: the events must be the same for any number.
    #[arg(long, value_name = "BYTES", default_value_t = NonZeroUsize::new(client::COALESCED_BYTES).expect("more than 0"))]
    chunk: NonZeroUsize,
    /// Of a tool: an integration that its agent may call. May be repeated, as the next ones.
    #[arg(long = "integration", value_name = "ID=URL", value_parser = option)]
    integrations: Vec<(String, String)>,
    /// Of a tool: a webhook of its agent's.
    #[arg(long = "webhook", value_name = "URL")]
    webhooks: Vec<String>,
    /// Of a tool: the name of a credential; one of an integration's id is that integration's.
    #[arg(long = "credential", value_name = "NAME")]
    credentials: Vec<String>,
    /// An option, as a provider's `options` in the configuration have them. May be repeated.
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = option)]
    options: Vec<(String, String)>,
}

pub(super) async fn run(config: Config, arguments: Arguments) -> anyhow::Result<()> {
    let recordings = arguments
        .responses
        .iter()
        .map(|file| read_recording(file))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut out = std::io::stdout();
    let file = &arguments.component;
    let outcome = match load(&config, file).await? {
        Loaded::Tool(tool) => {
            ensure!(
                arguments.options.is_empty(),
                "{} is a tool, and tools have no options",
                file.display()
            );
            let text = String::from_utf8(read_given(&arguments.request)?)
                .context("the arguments are no text")?;
            let context = arguments.context();
            try_tool::run(&tool, &text, &context, recordings, &mut out).await?
        }
        Loaded::Adapter(adapter) => {
            let tried = read_request(&arguments.request)?;
            ensure!(
                adapter.is_capable_of(tried.capability()),
                "{} does not serve {}",
                file.display(),
                tried.capability()
            );
            let options: BTreeMap<_, _> = arguments.options.into_iter().collect();
            let trial = Trial {
                component: &Component::new(adapter, Arc::default()),
                chunk: arguments.chunk,
                answer_bytes: config.limits.exchanges.answer_bytes.get(),
            };
            let options = Vec::from_iter(options);
            trial.run(tried, &options, recordings, &mut out).await?
        }
    };
    match outcome {
        Outcome::Awaits => eprintln!("It awaits an answer: give it one with --response FILE."),
        Outcome::Done(0) => {}
        Outcome::Done(left) => eprintln!("{left} of the recorded answers were not asked for."),
    }
    Ok(())
}

impl Arguments {
    /// What a tool is told that its agent may use.
    fn context(&self) -> CallContext {
        let integrations = self.integrations.iter().map(|(id, base_url)| Integration {
            id: id.clone(),
            base_url: base_url.trim_end_matches('/').to_owned(),
            credential: self.credentials.iter().find(|name| *name == id).cloned(),
        });
        CallContext {
            webhook_urls: self.webhooks.clone(),
            integrations: integrations.collect(),
            credentials: self.credentials.clone(),
        }
    }
}

/// Runs every load step on a file.
pub(super) async fn load(config: &Config, file: &Path) -> anyhow::Result<Loaded> {
    let bytes = read(file)?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let engine = Engine::start(Room {
        guests: 1,
        memory_bytes: config.plugins.all_memory_bytes(),
    })?;
    let compiler = Compiler::new(config.plugins.compile.clone());
    let limits = config.plugins.limits.clone();
    let loader = Loader::new(&engine, None, compiler, limits)?;
    let arrived = Arrived::new(bytes.into()).await;
    loader
        .load_arrived(&name, arrived)
        .await
        .map_err(|error| anyhow!(error).context(format!("{} is refused", file.display())))
}

/// What a file holds, or standard input.
fn read_given(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file != Path::new("-") {
        return read(file);
    }
    let mut given = Vec::new();
    std::io::stdin()
        .read_to_end(&mut given)
        .context("reading standard input")?;
    Ok(given)
}

fn read_request(file: &Path) -> anyhow::Result<Tried> {
    let body = read_given(file)?;
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
