//! `weir plugin compare`: the differences between two versions of a plugin, on recorded exchanges.
//!
//! Both versions run on each recording as `weir plugin try` runs one. The comparison covers the printed requests, field by field and
//! byte by byte; the events; the last reported usage; and its price.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use weir_ledger::TokenCounts;
use weir_ledger::price::{Price, PriceFactors};
use weir_ledger::pricing::charge;
use weir_ledger::usage::Billable;
use weir_plugins::bundled::Bundle;
use weir_plugins::slots::LoadedComponent;
use weir_plugins::{Component, Loader};
use weir_sandbox::adapter::long_texts;
use weir_sandbox::tool::LoadedTool;

use crate::conformance::Conformance;
use crate::input::{self, PluginInput};
use crate::recordings::{AuthorRecording, read_folder};
use crate::trial::{BodyCuts, Trial, TrialOutcome};
use crate::{loading, try_tool};

/// Two versions of a plugin, and the exchanges to compare them on.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The version that serves: a file, or the name of an embedded plugin.
    pub old: &'a Path,
    /// The version that replaces it: a file, or the name of an embedded plugin.
    pub new: &'a Path,
    pub recordings: &'a Path,
    /// The facts that the plugin gets beside the request.
    pub input: &'a PluginInput,
    /// The largest response, in bytes.
    pub response_bytes: u64,
    /// The price of the reported usage, if it is compared.
    pub price: Option<&'a Price>,
    pub factors: &'a PriceFactors,
    /// The embedded plugins and requests.
    pub bundle: &'static Bundle,
}

#[derive(Debug, Serialize)]
pub struct ComparedRecording {
    pub recording: String,
    /// The differences; none if the versions agree.
    pub differences: Vec<VersionDifference>,
}

/// A difference between two versions.
#[derive(Debug, Serialize)]
pub struct VersionDifference {
    /// The aspect that differs, such as `request 1 body`, `events`, `usage` or `price`.
    pub what: String,
    pub old: Option<String>,
    pub new: Option<String>,
}

impl Comparison<'_> {
    /// Runs both versions on each recording.
    ///
    /// # Errors
    ///
    /// A folder without recordings, a component that is refused or of another kind, or a recording that cannot be run.
    pub async fn run(&self, loader: &Loader) -> anyhow::Result<Vec<ComparedRecording>> {
        let recordings = read_folder(self.recordings)?;
        ensure!(
            !recordings.is_empty(),
            "{} has no recordings: it has neither .json nor .http files",
            self.recordings.display()
        );
        let old = ComparedComponent::load(loader, self.old, self.bundle).await?;
        let new = ComparedComponent::load(loader, self.new, self.bundle).await?;
        ensure!(
            matches!(
                (&old, &new),
                (ComparedComponent::Adapter(_), ComparedComponent::Adapter(_))
                    | (ComparedComponent::Tool(_), ComparedComponent::Tool(_))
            ),
            "one component is an adapter, and the other is a tool"
        );
        let mut compared = Vec::new();
        for recording in &recordings {
            let of = || format!("the recording {}", recording.name);
            let old = self.aspects(&old, recording).await;
            let new = self.aspects(&new, recording).await;
            compared.push(ComparedRecording {
                recording: recording.name.clone(),
                differences: differences(&old.with_context(of)?, &new.with_context(of)?),
            });
        }
        Ok(compared)
    }

    /// Runs one version on a recording.
    async fn aspects(
        &self,
        version: &ComparedComponent,
        recording: &AuthorRecording,
    ) -> anyhow::Result<Aspects> {
        let mut out = Vec::new();
        let outcome = match version {
            ComparedComponent::Adapter(component) => {
                self.run_adapter(component, recording, &mut out).await
            }
            ComparedComponent::Tool(tool) => self.run_tool(tool, recording, &mut out).await,
        };
        let printed = String::from_utf8_lossy(&out);
        match outcome {
            // The exchange did not begin.
            Err(error) if printed.is_empty() => Err(error),
            // The last line has the error.
            Err(_) => self.read(&printed, None),
            Ok(TrialOutcome::Awaits) => {
                self.read(&printed, Some("it waits for a response".to_owned()))
            }
            Ok(TrialOutcome::Done(0)) => self.read(&printed, None),
            Ok(TrialOutcome::Done(left)) => {
                self.read(&printed, Some(format!("{left} responses are not used")))
            }
        }
    }

    async fn run_adapter(
        &self,
        component: &Component,
        recording: &AuthorRecording,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<TrialOutcome> {
        let request = recording.trial_request(Conformance::new(self.bundle))?;
        ensure!(
            component.serves(request.kind()),
            "one of the two does not serve {}",
            request.kind().name()
        );
        let trial = Trial {
            component,
            cut: BodyCuts::Pieces(NonZeroUsize::MAX),
            most_text_bytes: long_texts::MOST_BYTES,
            response_bytes: self.response_bytes,
        };
        let responses = recording.responses.clone();
        trial
            .run(request, &self.input.options(), responses, out)
            .await
    }

    async fn run_tool(
        &self,
        tool: &LoadedTool,
        recording: &AuthorRecording,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<TrialOutcome> {
        let arguments = recording
            .tool_arguments()
            .with_context(|| format!("it has no arguments: {}.json is missing", recording.name))?;
        let responses = recording.responses.clone();
        try_tool::run(tool, &arguments, &self.input.context(), responses, out).await
    }

    /// Sorts the printed lines into aspects.
    fn read(&self, printed: &str, end: Option<String>) -> anyhow::Result<Aspects> {
        let mut aspects = Aspects::new();
        let (mut requests, mut images) = (0, 0);
        let (mut events, mut usage) = (Vec::new(), None);
        for line in printed.lines() {
            let fields: BTreeMap<&str, &RawValue> = serde_json::from_str(line)?;
            if let Some(request) = fields.get("send").or(fields.get("fetch")) {
                requests += 1;
                // Raw values: a body with another order of fields is another body.
                let request: BTreeMap<&str, &RawValue> = serde_json::from_str(request.get())?;
                for (name, value) in request {
                    let what = format!("request {requests} {name}");
                    aspects.insert(what, value.get().to_owned());
                }
                continue;
            }
            // The recording's own head is the same for both versions.
            if fields.contains_key("head") {
                continue;
            }
            let event: Value = match fields.get("event") {
                Some(event) => serde_json::from_str(event.get())?,
                None => Value::Null,
            };
            if let Some(reported) = event.get("usage") {
                usage = Some(reported.clone());
                continue;
            }
            if let Some(media) = event.get("media")
                && media.get("is-preview").is_none()
            {
                images += 1;
            }
            events.push(line.to_owned());
        }
        events.extend(end);
        aspects.insert("events".to_owned(), events.join("\n"));
        if let Some(price) = self.price {
            let used = usage.as_ref().map(billable).unwrap_or_default();
            let charge = charge(price, self.factors, &Billable { images, ..used });
            aspects.insert("price".to_owned(), charge.credits.to_string());
        }
        if let Some(usage) = usage {
            aspects.insert("usage".to_owned(), usage.to_string());
        }
        Ok(aspects)
    }
}

/// The aspects of an exchange, by name.
type Aspects = BTreeMap<String, String>;

/// A component of either kind.
enum ComparedComponent {
    Adapter(Component),
    Tool(LoadedTool),
}

impl ComparedComponent {
    /// Loads a file, or an embedded plugin if no file has that path.
    async fn load(loader: &Loader, path: &Path, bundle: &Bundle) -> anyhow::Result<Self> {
        let mut embedded = bundle.plugins().into_iter();
        let embedded = embedded.find(|plugin| path.as_os_str() == &*plugin.name);
        let bytes = match embedded.filter(|_| !path.exists()) {
            Some(plugin) => plugin.bytes.into_owned(),
            None => input::read(path)?,
        };
        Ok(match loading::load_or_refuse(loader, path, bytes).await? {
            LoadedComponent::Adapter(adapter) => {
                Self::Adapter(Component::new(adapter, Arc::default()))
            }
            LoadedComponent::Tool(tool) => Self::Tool(tool),
            LoadedComponent::Filter(_) => {
                let path = path.display();
                bail!("{path} is a filter: compare takes adapters and tools")
            }
        })
    }
}

/// Returns the counts of a printed usage that have a price.
fn billable(usage: &Value) -> Billable {
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    let tokens = TokenCounts {
        input: count("input-tokens"),
        cache_read: count("cache-read-tokens"),
        cache_write_short: count("cache-write-short-tokens"),
        cache_write_long: count("cache-write-long-tokens"),
        output: count("output-tokens"),
        reasoning: count("reasoning-tokens"),
        audio_input: count("audio-input-tokens"),
        audio_output: count("audio-output-tokens"),
        image_output: count("image-output-tokens"),
    };
    Billable {
        tokens,
        searches: count("web-searches"),
        ..Billable::default()
    }
}

fn differences(old: &Aspects, new: &Aspects) -> Vec<VersionDifference> {
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|&name| old.get(name) != new.get(name));
    differing
        .map(|name| VersionDifference {
            what: name.clone(),
            old: old.get(name).cloned(),
            new: new.get(name).cloned(),
        })
        .collect()
}
