//! `weir plugin check`: the load steps of a gateway, and further tests for the author.

mod adapter;
mod cost;
mod difference;
mod filter;
mod input;
mod tool;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::json;
use weir_plugins::bundled::Bundle;
use weir_plugins::slots::LoadedComponent;
use weir_plugins::{Component, Loader};
use weir_sandbox::{LoadError, adapter as adapters, filter as filters, tool as tools};

use self::adapter::AdapterSuite;
use self::filter::FilterSuite;
use self::input::SuiteInput;
use self::tool::ToolSuite;
use crate::conformance::Conformance;
use crate::input::PluginInput;
use crate::recordings::read_folder;
use crate::report::CheckReport;
use crate::{input as files, loading};

/// The load steps in their order.
const STEPS: [&str; 7] = [
    "size",
    "parse",
    "compile",
    "imports",
    "world",
    "describe",
    "self-test",
];

/// A component, and the input for its checks.
#[derive(Debug)]
pub struct CheckRequest<'a> {
    /// The component, or a folder with the component and recordings.
    pub path: &'a Path,
    /// The folder of recordings. Default: `path`, if it is a folder.
    pub recordings: Option<&'a Path>,
    /// True to write snapshots that are missing or differ.
    pub accept: bool,
    /// The facts that the plugin gets beside the request.
    pub input: &'a PluginInput,
    /// The largest response, in bytes.
    pub response_bytes: u64,
    /// The embedded requests and responses.
    pub bundle: &'static Bundle,
}

/// Checks a component.
///
/// # Errors
///
/// Input that cannot be read. Faults of the component are in the report.
pub async fn check(loader: &Loader, request: &CheckRequest<'_>) -> anyhow::Result<CheckReport> {
    let file = find_component(request.path)?;
    let own_folder = request.path.is_dir().then_some(request.path);
    let recordings = match request.recordings.or(own_folder) {
        Some(folder) => read_folder(folder)?,
        None => Vec::new(),
    };
    let mut report = CheckReport::new(file.clone());
    let Some(loaded) = load(loader, &file, &mut report).await? else {
        return Ok(report);
    };
    describe_again(loader, &file, &loaded, &mut report).await?;
    let input = SuiteInput {
        plugin: request.input,
        recordings: &recordings,
        accept: request.accept,
        conformance: Conformance::new(request.bundle),
    };
    match loaded {
        LoadedComponent::Adapter(adapter) => {
            let component = Component::new(adapter, Arc::default());
            let suite = AdapterSuite::new(&component, &input, request.response_bytes);
            suite.run(&mut report).await?;
        }
        LoadedComponent::Tool(tool) => ToolSuite::new(&tool, &input).run(&mut report).await?,
        LoadedComponent::Filter(filter) => {
            FilterSuite::new(&filter, &input).run(&mut report).await?
        }
    }
    Ok(report)
}

/// Returns the component: the file itself, or the only .wasm file of a folder.
fn find_component(path: &Path) -> anyhow::Result<PathBuf> {
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
        "{} has {} .wasm files: name one file, and the folder with --recordings",
        path.display(),
        found.len()
    );
    let found = found.pop();
    found.with_context(|| format!("{} has no .wasm file", path.display()))
}

/// Runs the load steps and reports each.
async fn load(
    loader: &Loader,
    file: &Path,
    report: &mut CheckReport,
) -> anyhow::Result<Option<LoadedComponent>> {
    let bytes = files::read(file)?;
    let size = bytes.len();
    report.describe("bytes", json!(size));
    let began = Instant::now();
    let loaded = loading::load(loader, file, bytes).await;
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
    let (kind, description) = describe(&loaded);
    report.describe("kind", json!(kind));
    report.describe("description", description);
    Ok(Some(loaded))
}

/// Checks that another instance has the same description: nodes must agree on it.
async fn describe_again(
    loader: &Loader,
    file: &Path,
    loaded: &LoadedComponent,
    report: &mut CheckReport,
) -> anyhow::Result<()> {
    let again = loading::load(loader, file, files::read(file)?).await;
    match again {
        Ok(again) if describe(&again) == describe(loaded) => {
            report.pass("describe again", "the same in another instance");
        }
        Ok(_) => report.fail(
            "describe again",
            "another instance has another description",
            read_for("describe"),
        ),
        Err(error) => report.fail("describe again", &error.to_string(), read_for(error.step())),
    }
    Ok(())
}

fn describe(loaded: &LoadedComponent) -> (&'static str, serde_json::Value) {
    match loaded {
        LoadedComponent::Adapter(adapter) => (
            "adapter",
            adapters::description::to_json(&adapter.description),
        ),
        LoadedComponent::Tool(tool) => ("tool", tools::description::to_json(&tool.description)),
        LoadedComponent::Filter(filter) => {
            ("filter", filters::description::to_json(&filter.description))
        }
    }
}

/// Returns the documentation of a load step.
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
