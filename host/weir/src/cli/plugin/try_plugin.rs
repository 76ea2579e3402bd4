//! `weir plugin try`: its arguments, and `--watch`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::ensure;
use weir_app::config::Config;
use weir_author::try_plugin::{RecordTarget, TryRequest, try_plugin};
use weir_upstream::client;

use super::input::{PluginArguments, loader};
use crate::cli::output;

#[derive(clap::Args)]
pub(in crate::cli) struct TryPluginArguments {
    /// The component.
    #[arg(value_name = "FILE")]
    component: PathBuf,
    /// A file with a request, or with the arguments of a tool; - for standard input.
    ///
    /// The request has the format of `POST /chat`, or the JSON format of `POST /v1/images/generations` or `/v1/images/edits`. An
    /// adapter gets the model's name unchanged. A request without an output limit gets 1024 tokens.
    #[arg(long, value_name = "FILE")]
    request: PathBuf,
    /// A file with a response of a provider, in the format of `curl -i`, or its body alone. Repeat the option for each request of the
    /// plugin. At a request without a response, the exchange stops.
    #[arg(long = "response", value_name = "FILE")]
    responses: Vec<PathBuf>,
    /// For a filter: a file with the events of a response, one line of JSON each, like this command's output for an adapter.
    #[arg(long, value_name = "FILE", conflicts_with = "responses")]
    events: Option<PathBuf>,
    /// Bytes of the pieces in which the plugin gets bodies. The events must be the same for any number.
    #[arg(long, value_name = "BYTES", default_value_t = NonZeroUsize::new(client::COALESCED_BYTES).expect("more than 0"))]
    chunk: NonZeroUsize,
    /// Run again when the component, the request or a response changes, until you interrupt the command.
    #[arg(long, conflicts_with = "upstream")]
    watch: bool,
    /// For an adapter: send its requests to the provider with this base URL, and record the responses.
    #[arg(
        long = "record",
        value_name = "URL",
        conflicts_with = "responses",
        requires = "to"
    )]
    upstream: Option<String>,
    /// The file for the first recorded response, without the credential. Next responses go to NAME.2.http and so on.
    #[arg(long, value_name = "NAME.http", requires = "upstream")]
    to: Option<PathBuf>,
    /// The environment variable with the provider's credential.
    #[arg(long, value_name = "NAME", requires = "upstream")]
    credential_env: Option<String>,
    #[command(flatten)]
    input: PluginArguments,
}

/// The interval between two looks at the files.
const WATCH_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn run(config: Config, arguments: TryPluginArguments) -> anyhow::Result<()> {
    if !arguments.watch {
        return arguments.run_once(&config).await;
    }
    ensure!(
        arguments.request != Path::new("-"),
        "--watch cannot watch standard input: pass a file to --request"
    );
    loop {
        let seen = arguments.file_states();
        if let Err(error) = arguments.run_once(&config).await {
            eprintln!("weir: {error:#}");
        }
        if output::is_closed() {
            return Ok(());
        }
        eprintln!("Waiting for a change …");
        while arguments.file_states() == seen {
            tokio::time::sleep(WATCH_EVERY).await;
        }
    }
}

impl TryPluginArguments {
    async fn run_once(&self, config: &Config) -> anyhow::Result<()> {
        let record = match (&self.upstream, &self.to) {
            (Some(base_url), Some(file)) => Some(RecordTarget {
                base_url,
                file,
                credential_variable: self.credential_env.as_deref(),
                connect_timeout: config.timeouts.connect(),
            }),
            _ => None,
        };
        let request = TryRequest {
            component: &self.component,
            request: &self.request,
            responses: &self.responses,
            events: self.events.as_deref(),
            chunk: self.chunk,
            record,
            input: &self.input.to_input(),
            response_bytes: config.limits.exchanges.answer_bytes.get(),
        };
        try_plugin(&loader(config)?, &request, &mut output::Stdout).await
    }

    /// Returns the modification time and the size of each input file.
    fn file_states(&self) -> Vec<Option<(SystemTime, u64)>> {
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
