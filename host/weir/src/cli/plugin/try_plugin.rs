//! `weir plugin try`: a [`Trial`] of a component's file, with requests and recordings from files.

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, ensure};
use weir_plugins::Component;
use weir_plugins::slots::Loaded;
use weir_upstream::client;

use super::given::{self, PluginInput};
use super::live::Live;
use super::trial::{Cut, Outcome, Trial};
use super::try_filter::{self, FilterTrial};
use super::{event_lines, try_tool};
use crate::cli::output;
use crate::config::Config;
use weir_sandbox::filter::Filter;

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
    /// Of a filter: a file with the events of an answer, a line of JSON each, as this command prints those of an adapter.
    #[arg(long, value_name = "FILE", conflicts_with = "responses")]
    events: Option<PathBuf>,
    /// Hand bodies over in pieces of so many bytes: the events must be the same for any number.
    #[arg(long, value_name = "BYTES", default_value_t = NonZeroUsize::new(client::COALESCED_BYTES).expect("more than 0"))]
    chunk: NonZeroUsize,
    /// Run again when the component, the request or a recorded answer changes, until it is interrupted.
    #[arg(long, conflicts_with = "upstream")]
    watch: bool,
    /// Of an adapter: send what it asks for to an upstream with this base URL, and record what that answers.
    #[arg(
        long = "record",
        value_name = "URL",
        conflicts_with = "responses",
        requires = "to"
    )]
    upstream: Option<String>,
    /// Where to record it, without the credential; what is asked for next goes into NAME.2.http and so on.
    #[arg(long, value_name = "NAME.http", requires = "upstream")]
    to: Option<PathBuf>,
    /// The environment variable with the upstream's credential.
    #[arg(long, value_name = "NAME", requires = "upstream")]
    credential_env: Option<String>,
    #[command(flatten)]
    told: PluginInput,
}

/// How often files are looked at that may change.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn run(config: Config, arguments: Arguments) -> anyhow::Result<()> {
    if !arguments.watch {
        return run_once(&config, &arguments).await;
    }
    ensure!(
        arguments.request != Path::new("-"),
        "standard input cannot be watched: give --request a file"
    );
    loop {
        let seen = arguments.state();
        if let Err(error) = run_once(&config, &arguments).await {
            eprintln!("weir: {error:#}");
        }
        if output::is_closed() {
            return Ok(());
        }
        eprintln!("Waiting for a change …");
        while arguments.state() == seen {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

async fn run_once(config: &Config, arguments: &Arguments) -> anyhow::Result<()> {
    let recordings = arguments
        .responses
        .iter()
        .map(|file| given::read_recording(file))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut out = output::Stdout;
    let file = &arguments.component;
    let loader = given::loader(config)?;
    let loaded = given::load(&loader, file, given::read(file)?).await;
    let loaded =
        loaded.map_err(|error| anyhow!(error).context(format!("{} is refused", file.display())))?;
    let outcome = match loaded {
        Loaded::Tool(tool) => {
            ensure!(
                arguments.events.is_none(),
                "{} is a tool: events are a filter's to see",
                file.display()
            );
            ensure!(
                arguments.told.options.is_empty() && arguments.upstream.is_none(),
                "{} is a tool: it has neither options nor an upstream",
                file.display()
            );
            let text = String::from_utf8(given::read_given(&arguments.request)?)
                .context("the arguments are no text")?;
            let context = arguments.told.context();
            try_tool::run(&tool, &text, &context, recordings, &mut out).await?
        }
        Loaded::Filter(filter) => return try_filter(arguments, &filter, &mut out).await,
        Loaded::Adapter(adapter) => {
            ensure!(
                arguments.events.is_none(),
                "{} is an adapter: it makes events, of what --response gives",
                file.display()
            );
            let tried = given::read_request(&given::read_given(&arguments.request)?)?;
            ensure!(
                adapter.is_capable_of(tried.capability()),
                "{} does not serve {}",
                file.display(),
                tried.capability()
            );
            let options: BTreeMap<_, _> = arguments.told.options.iter().cloned().collect();
            let trial = Trial {
                component: &Component::new(adapter, Arc::default()),
                cut: Cut::Pieces(arguments.chunk),
                answer_bytes: config.limits.exchanges.answer_bytes.get(),
            };
            let options = Vec::from_iter(options);
            match (&arguments.upstream, &arguments.to) {
                (Some(base_url), Some(file)) => {
                    let variable = arguments.credential_env.as_deref();
                    let connect = config.timeouts.connect();
                    let mut live = Live::new(base_url, variable, connect, trial.answer_bytes)?;
                    let outcome = trial.run_live(tried, &options, &mut live, &mut out).await;
                    // Also where it failed: that is worth a recording above all.
                    live.write(file)?;
                    outcome?
                }
                _ => trial.run(tried, &options, recordings, &mut out).await?,
            }
        }
    };
    match outcome {
        Outcome::Awaits => eprintln!("It awaits an answer: give it one with --response FILE."),
        Outcome::Done(0) => {}
        Outcome::Done(left) => eprintln!("{left} of the recorded answers were not asked for."),
    }
    Ok(())
}

async fn try_filter(
    arguments: &Arguments,
    filter: &Filter,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    ensure!(
        arguments.responses.is_empty() && arguments.upstream.is_none(),
        "{} is a filter: it is shown events, with --events, and no upstream's response",
        arguments.component.display()
    );
    let tried = given::read_request(&given::read_given(&arguments.request)?)?;
    let options: BTreeMap<_, _> = arguments.told.options.iter().cloned().collect();
    let configuration = filter.configure(&Vec::from_iter(options)).await?;
    let events = match &arguments.events {
        Some(file) => {
            let text = given::read(file)?;
            let events = event_lines::read(&String::from_utf8_lossy(&text));
            let events = events.with_context(|| format!("reading {}", file.display()))?;
            try_filter::check_answer(&events, tried.output_limit())?;
            events
        }
        None => Vec::new(),
    };
    let trial = FilterTrial {
        filter,
        configuration: &configuration,
        providers: &arguments.told.providers(),
    };
    // An event at a time, as slow a stream as there can be.
    let portions = events.into_iter().map(|event| vec![event]);
    trial.run(&tried, portions.collect(), out).await
}

impl Arguments {
    /// What changes when a file does.
    fn state(&self) -> Vec<Option<(SystemTime, u64)>> {
        let files = [&self.component, &self.request].into_iter();
        let files = files.chain(&self.responses).chain(&self.events);
        files
            .map(|file| {
                let metadata = std::fs::metadata(file).ok()?;
                Some((metadata.modified().ok()?, metadata.len()))
            })
            .collect()
    }
}
