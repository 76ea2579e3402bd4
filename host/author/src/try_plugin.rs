//! `weir plugin try`: one run of a component, with a request and recorded responses from files.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use weir_plugins::slots::LoadedComponent;
use weir_plugins::{Component, Loader};
use weir_sandbox::adapter::{LoadedAdapter, long_texts};
use weir_sandbox::filter::LoadedFilter;
use weir_sandbox::tool::LoadedTool;

use crate::input::{self, PluginInput};
use crate::live::LiveProvider;
use crate::loading;
use crate::notes::note;
use crate::recording::RecordedResponse;
use crate::trial::{BodyCuts, Trial, TrialOutcome};
use crate::try_filter::{self, FilterTrial};
use crate::{event_lines, try_tool};

/// The input of one run.
#[derive(Debug)]
pub struct TryRequest<'a> {
    /// The component's file.
    pub component: &'a Path,
    /// The file with the request or the arguments; `-` for standard input.
    pub request: &'a Path,
    /// The files with recorded responses, in the order of the requests.
    pub responses: &'a [PathBuf],
    /// For a filter: the file with the events of a response.
    pub events: Option<&'a Path>,
    /// Bytes of each piece in which an adapter gets a response.
    pub chunk: NonZeroUsize,
    /// For an adapter: a provider whose responses are recorded.
    pub record: Option<RecordTarget<'a>>,
    /// The facts that the plugin gets beside the request.
    pub input: &'a PluginInput,
    /// The largest response, in bytes.
    pub response_bytes: u64,
}

/// A provider, and the file for its responses.
#[derive(Debug)]
pub struct RecordTarget<'a> {
    pub base_url: &'a str,
    /// `NAME.http`, for the first response.
    pub file: &'a Path,
    /// The environment variable with the provider's credential.
    pub credential_variable: Option<&'a str>,
    /// The time limit of a connection.
    pub connect_timeout: Duration,
}

/// Loads a component, runs it once and prints each step as a line of JSON.
///
/// # Errors
///
/// The error of the exchange, or input that the component cannot take.
pub async fn try_plugin(
    loader: &Loader,
    request: &TryRequest<'_>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let recordings = request
        .responses
        .iter()
        .map(|file| input::read_recording(file))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let outcome = match loading::load_file(loader, request.component).await? {
        LoadedComponent::Tool(tool) => request.try_tool(&tool, recordings, out).await?,
        LoadedComponent::Filter(filter) => {
            return request.try_filter(&filter, &recordings, out).await;
        }
        LoadedComponent::Adapter(adapter) => request.try_adapter(adapter, recordings, out).await?,
    };
    match outcome {
        TrialOutcome::Awaits => note(format_args!(
            "The plugin waits for a response. To give it one, use --response FILE."
        )),
        TrialOutcome::Done(0) => {}
        TrialOutcome::Done(left) => note(format_args!("{left} recorded responses were not used.")),
    }
    Ok(())
}

impl TryRequest<'_> {
    async fn try_tool(
        &self,
        tool: &LoadedTool,
        recordings: Vec<RecordedResponse>,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<TrialOutcome> {
        let file = self.component.display();
        ensure!(
            self.events.is_none(),
            "{file} is a tool: --events is for filters"
        );
        ensure!(
            self.input.options.is_empty() && self.record.is_none(),
            "{file} is a tool: --option and --record are not for tools"
        );
        let arguments = String::from_utf8(input::read_file_or_stdin(self.request)?)
            .context("the arguments are not UTF-8")?;
        try_tool::run(tool, &arguments, &self.input.context(), recordings, out).await
    }

    async fn try_filter(
        &self,
        filter: &LoadedFilter,
        recordings: &[RecordedResponse],
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<()> {
        ensure!(
            recordings.len() <= 1 && self.record.is_none(),
            "{} is a filter: --events has the events of a provider's response, and --response the one response of the \
             filter's service",
            self.component.display()
        );
        let request = input::read_request(&input::read_file_or_stdin(self.request)?)?;
        let configuration = filter.configure(&self.input.options()).await?;
        let events = match self.events {
            Some(file) => {
                let text = input::read(file)?;
                let events = event_lines::read(&String::from_utf8_lossy(&text));
                let events = events.with_context(|| format!("reading {}", file.display()))?;
                try_filter::check_response(&events, request.output_limit())?;
                events
            }
            None => Vec::new(),
        };
        let trial = FilterTrial {
            filter,
            configuration: &configuration,
            providers: &self.input.providers(),
            service: recordings.first(),
        };
        // Portions of one event are the slowest possible stream.
        let portions = events.into_iter().map(|event| vec![event]);
        trial.run(&request, portions.collect(), out).await
    }

    async fn try_adapter(
        &self,
        adapter: LoadedAdapter,
        recordings: Vec<RecordedResponse>,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<TrialOutcome> {
        let file = self.component.display();
        ensure!(
            self.events.is_none(),
            "{file} is an adapter: it makes events from --response"
        );
        let request = input::read_request(&input::read_file_or_stdin(self.request)?)?;
        ensure!(
            adapter.serves(request.kind()),
            "{file} does not serve {}",
            request.kind().name()
        );
        let trial = Trial {
            component: &Component::new(adapter, Arc::default()),
            cut: BodyCuts::Pieces(self.chunk),
            most_text_bytes: long_texts::MOST_BYTES,
            response_bytes: self.response_bytes,
        };
        let options = self.input.options();
        let Some(target) = &self.record else {
            return trial.run(request, &options, recordings, out).await;
        };
        let mut live = LiveProvider::new(
            target.base_url,
            target.credential_variable,
            target.connect_timeout,
            self.response_bytes,
        )?;
        let outcome = trial.run_live(request, &options, &mut live, out).await;
        // The responses of a failed exchange are worth a recording above all.
        live.write(target.file)?;
        outcome
    }
}
