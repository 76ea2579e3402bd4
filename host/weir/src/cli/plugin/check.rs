//! `weir plugin check`: what weir asks of a plugin before it serves, and what an author wants to know before that.

mod adapter;
mod filter;
mod tool;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use serde_json::json;
use weir_plugins::slots::Loaded;
use weir_plugins::{Component, Loader};
use weir_sandbox::{LoadError, adapter as adapters, filter as filters, tool as tools};

use self::adapter::AdapterSuite;
use self::filter::FilterSuite;
use self::tool::ToolSuite;
use super::given::{self, PluginInput};
use super::own::{self, Own};
use super::report::Report;
use crate::config::Config;

/// What each request says that weir sends, and what a snapshot has in its place: another weir must not change it.
const USER_AGENT: [&str; 2] = [
    concat!("\"user-agent\":\"weir/", env!("CARGO_PKG_VERSION"), "\""),
    "\"user-agent\":\"weir\"",
];

/// Characters of a line that are shown of a difference, and how many of them come before it.
const SHOWN: usize = 200;
const SHOWN_BEFORE: usize = 40;

/// The load steps, in their order.
const STEPS: [&str; 7] = [
    "size",
    "parse",
    "compile",
    "imports",
    "world",
    "describe",
    "self-test",
];

#[derive(clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The component, or a folder with it and recordings.
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// A folder with recordings of your own: NAME.json is a request, or a tool's arguments; NAME.http the answer to it, as
    /// `curl -i` prints it, and NAME.2.http the next one; NAME.events the events of an answer that a filter is shown;
    /// NAME.snap what `weir plugin try` must print. An answer without a request is read for the plainest one, which asks for a
    /// stream if the name ends in -stream.
    #[arg(long, value_name = "DIR")]
    recordings: Option<PathBuf>,
    /// Write the .snap files that are missing or have changed. Read them then.
    #[arg(long)]
    accept: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    told: PluginInput,
}

pub(super) async fn run(config: Config, arguments: Arguments) -> anyhow::Result<()> {
    let file = component(&arguments.path)?;
    let folder = match &arguments.recordings {
        Some(folder) => Some(folder),
        None => arguments.path.is_dir().then_some(&arguments.path),
    };
    let recordings = match folder {
        Some(folder) => own::recordings(folder)?,
        None => Vec::new(),
    };
    let loader = given::loader(&config)?;
    let mut report = Report::of(json!({ "file": file.display().to_string() }));
    if let Some(loaded) = load(&loader, &file, &mut report).await? {
        describe_again(&loader, &file, &loaded, &mut report).await?;
        let given = CheckInput {
            told: &arguments.told,
            recordings: &recordings,
            accept: arguments.accept,
        };
        match loaded {
            Loaded::Adapter(adapter) => {
                let component = Component::new(adapter, std::sync::Arc::default());
                let answer_bytes = config.limits.exchanges.answer_bytes.get();
                let suite = AdapterSuite::new(&component, &given, answer_bytes);
                suite.run(&mut report).await?;
            }
            Loaded::Tool(tool) => ToolSuite::new(&tool, &given).run(&mut report).await?,
            Loaded::Filter(filter) => FilterSuite::new(&filter, &given).run(&mut report).await?,
        }
    }
    match arguments.json {
        true => report.print_json(),
        false => report.print_table(),
    }
    match report.failures() {
        0 => Ok(()),
        1 => bail!("{}: a check failed", file.display()),
        failures => bail!("{}: {failures} checks failed", file.display()),
    }
}

/// What an author gives beside the component.
struct CheckInput<'a> {
    told: &'a PluginInput,
    recordings: &'a [Own],
    /// Whether what is printed is what must be printed from now on.
    accept: bool,
}

impl CheckInput<'_> {
    /// Holds what came of a recording to its snapshot.
    fn compare(&self, own: &Own, printed: &str) -> anyhow::Result<Result<&'static str, String>> {
        let [own_agent, any_agent] = USER_AGENT;
        let printed = &printed.replace(own_agent, any_agent);
        if self.accept {
            own.accept(printed)?;
            return Ok(Ok("its snapshot is written"));
        }
        Ok(match own.expected() {
            None => Ok("it has no snapshot: --accept writes one"),
            Some(expected) => difference(&expected, printed)
                .map_or(Ok("as in its snapshot"), |difference| {
                    Err(format!("{difference}, by its snapshot; --accept takes it"))
                }),
        })
    }
}

/// The first line that differs between what is expected and what is there, from where it differs.
fn difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let (mut expected, mut found) = (expected.lines(), found.lines());
    for number in 1.. {
        match (expected.next(), found.next()) {
            (None, None) => break,
            (expected, found) if expected == found => {}
            (expected, found) => {
                let same = match (expected, found) {
                    (Some(expected), Some(found)) => {
                        let pairs = expected.chars().zip(found.chars());
                        pairs
                            .take_while(|(expected, found)| expected == found)
                            .count()
                    }
                    _ => 0,
                };
                let (expected, found) = (part(expected, same), part(found, same));
                return Some(format!("line {number} is {found} instead of {expected}"));
            }
        }
    }
    Some("the lines end otherwise".to_owned())
}

/// A line's part that begins a little before so many characters.
fn part(line: Option<&str>, same: usize) -> String {
    let Some(line) = line else {
        return "none".to_owned();
    };
    let from = same.saturating_sub(SHOWN_BEFORE);
    let mut rest = line.chars().skip(from);
    let shown: String = rest.by_ref().take(SHOWN).collect();
    let before = if from > 0 { "…" } else { "" };
    let behind = if rest.next().is_some() { "…" } else { "" };
    format!("{before}{shown}{behind}")
}

/// The component that is meant.
fn component(path: &Path) -> anyhow::Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "wasm") {
            found.push(file);
        }
    }
    ensure!(
        found.len() <= 1,
        "{} has {} .wasm files: name the one that is meant, and the folder with --recordings",
        path.display(),
        found.len()
    );
    let found = found.pop();
    found.with_context(|| format!("{} has no .wasm file", path.display()))
}

/// Runs the load steps, and says which of them it passes.
async fn load(loader: &Loader, file: &Path, report: &mut Report) -> anyhow::Result<Option<Loaded>> {
    let bytes = given::read(file)?;
    let size = bytes.len();
    report.describe("bytes", json!(size));
    let began = Instant::now();
    let loaded = given::load(loader, file, bytes).await;
    let took = began.elapsed();
    let failed = loaded.as_ref().err().map(LoadError::step);
    let reached = STEPS.iter().take_while(|step| Some(**step) != failed);
    for step in reached {
        let detail = match *step {
            "size" => format!("{size} bytes"),
            "compile" if failed.is_none() => {
                format!("loaded in {} ms", took.as_millis())
            }
            _ => String::new(),
        };
        report.pass(step, detail);
    }
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let step = error.step();
            let text = error.to_string();
            let why = text.strip_prefix(&format!("{step}: ")).unwrap_or(&text);
            report.fail(step, why, read_for(step));
            let left = STEPS.iter().skip_while(|known| **known != step).skip(1);
            left.for_each(|step| report.skip(step, "not reached"));
            return Ok(None);
        }
    };
    let (kind, description) = described(&loaded);
    report.describe("kind", json!(kind));
    report.describe("description", description);
    Ok(Some(loaded))
}

/// A component must say the same of itself on every node.
async fn describe_again(
    loader: &Loader,
    file: &Path,
    loaded: &Loaded,
    report: &mut Report,
) -> anyhow::Result<()> {
    let again = given::load(loader, file, given::read(file)?).await;
    match again {
        Ok(again) if described(&again) == described(loaded) => {
            report.pass("describe again", "the same in another instance");
        }
        Ok(_) => report.fail(
            "describe again",
            "it describes itself otherwise in another instance",
            read_for("describe"),
        ),
        Err(error) => report.fail("describe again", &error.to_string(), read_for(error.step())),
    }
    Ok(())
}

fn described(loaded: &Loaded) -> (&'static str, serde_json::Value) {
    match loaded {
        Loaded::Adapter(adapter) => (
            "adapter",
            adapters::description::to_json(&adapter.description),
        ),
        Loaded::Tool(tool) => ("tool", tools::description::to_json(&tool.description)),
        Loaded::Filter(filter) => ("filter", filters::description::to_json(&filter.description)),
    }
}

/// What to read about a load step.
fn read_for(step: &str) -> &'static str {
    match step {
        "imports" | "world" => "wit/worlds.wit: what a plugin exports, and what it may import",
        "describe" => {
            "wit/adapter.wit, wit/tool.wit and wit/filter.wit: describe, and record description; plugins/README.md: Put it into service"
        }
        "self-test" => {
            "wit/adapter.wit: resource exchange; wit/tool.wit: record description, input-schema; wit/filter.wit: screen"
        }
        _ => "plugins/README.md: Put it into service, the load steps; Limits",
    }
}

/// The options of a plugin's provider.
fn options(told: &PluginInput) -> Vec<(String, String)> {
    let options: BTreeMap<_, _> = told.options.iter().cloned().collect();
    options.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_far_into_a_long_line_is_shown() {
        let line =
            |limit: u32| format!("{{\"send\":\"{}\",\"limit\":{limit}}}\n", "x".repeat(1_000));
        let shown = difference(&line(5), &line(6)).expect("they differ");
        assert!(shown.starts_with("line 1 is …xxx"), "{shown}");
        assert!(
            shown.contains("\"limit\":6} instead of …") && shown.ends_with("\"limit\":5}"),
            "{shown}"
        );
        assert!(shown.len() < 200, "{shown}");
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(
            difference("a\nb", "a").as_deref(),
            Some("line 2 is none instead of b")
        );
        assert_eq!(
            difference("a", "a\n").as_deref(),
            Some("the lines end otherwise")
        );
    }
}
