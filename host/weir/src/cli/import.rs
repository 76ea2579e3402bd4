//! `weir import`: writes weir's configuration from that of another gateway.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use weir_app::PreparedParts;
use weir_app::config::Config;
use weir_importing::litellm::fields::{ImportNotes, YamlFields};
use weir_importing::litellm::terms::KnownModels;
use weir_importing::litellm::yaml::Node;
use weir_importing::litellm::{self, ImportedConfig, MissingUpstreams};
use weir_importing::prices;
use weir_sandbox::compiler::Compiler;
use weir_storage::clock::Clock;

use super::bundle::bundle;
use super::connection::progress;
use super::user_folder::shared_code;

/// Maximum included files.
const MAX_INCLUDES: usize = 64;

const EXAMPLE: &str = "Example:
  weir import litellm config.yaml --output weir.toml
  weir --config weir.toml check
  weir --config weir.toml serve

Standard error lists each setting that weir has no equivalent for, each that differs, and the environment variables that the \
configuration needs. Secrets are never copied: a key that the file holds itself becomes an environment variable with a new \
name. Users, keys and budgets are in LiteLLM's database and are not imported.";

#[derive(clap::Subcommand)]
pub(super) enum ImportCommand {
    /// Write a configuration from that of LiteLLM's proxy, and list the settings that cannot be carried over.
    ///
    /// Models, deployments, weights, prices, limits, timeouts, aliases and fallbacks are carried over. A model without prices or limits
    /// in the file has those of weir's built-in catalog, or else of the price file, also by the name of its group. A model without a
    /// price is a comment. Wildcards become the known models of their provider.
    #[command(after_help = EXAMPLE)]
    Litellm(LitellmArguments),
}

#[derive(clap::Args)]
pub(super) struct LitellmArguments {
    /// LiteLLM's configuration. Its includes are read, too.
    #[arg(value_name = "CONFIG.yaml")]
    file: PathBuf,
    /// Write the configuration to this file, which must not exist. Default: standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the output file if it exists.
    #[arg(long, requires = "output")]
    force: bool,
    /// Price file for models that weir's built-in catalog does not know: LiteLLM's model_prices_and_context_window.json, or
    /// models.dev's api.json.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

pub(super) async fn run(command: ImportCommand) -> anyhow::Result<()> {
    let ImportCommand::Litellm(arguments) = command;
    let shown = arguments.file.display();
    let offers = match &arguments.prices {
        None => Vec::new(),
        Some(path) => {
            let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let file = prices::read(&text).map_err(|why| anyhow!("{} {why}", path.display()))?;
            file.offers
        }
    };
    let known = KnownModels::new(Config::from_toml("")?.models, offers);
    let mut notes = ImportNotes::default();
    let file = with_includes(&arguments.file)?;
    let imported =
        litellm::translate(file, &known, &mut notes).map_err(|why| anyhow!("{shown}: {why}"))?;
    check(&imported.toml)
        .await
        .context("the imported configuration is invalid; nothing is written")?;
    match &arguments.output {
        Some(path) => write(path, &imported.toml, arguments.force)?,
        None => print!("{}", imported.toml),
    }
    report(&notes, &imported);
    Ok(())
}

/// Reads a file and its includes, merged as LiteLLM does.
fn with_includes(path: &Path) -> anyhow::Result<YamlFields> {
    let root = path.parent().unwrap_or(Path::new(""));
    let mut all = read(path, "")?;
    let mut pending = includes(&mut all, root)?;
    let mut seen: BTreeSet<PathBuf> = fs::canonicalize(path).into_iter().collect();
    while !pending.is_empty() {
        let (name, folder) = pending.remove(0);
        let own = folder.join(&name);
        // LiteLLM looks beside the first file, too.
        let path = if own.exists() { own } else { root.join(&name) };
        if let Ok(path) = fs::canonicalize(&path)
            && !seen.insert(path)
        {
            continue;
        }
        ensure!(
            seen.len() <= MAX_INCLUDES,
            "more than {MAX_INCLUDES} files are included"
        );
        let mut included = read(&path, &format!("{name}: "))?;
        let folder = path.parent().unwrap_or(root);
        pending.extend(includes(&mut included, folder)?);
        all.include(included);
    }
    Ok(all)
}

fn read(path: &Path, start: &str) -> anyhow::Result<YamlFields> {
    let shown = path.display();
    let limit = litellm::yaml::MAX_BYTES as u64 + 1;
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(limit).read_to_string(&mut text))
        .with_context(|| shown.to_string())?;
    let root = litellm::yaml::read(&text, start).map_err(|why| anyhow!("{shown} {why}"))?;
    YamlFields::of(Some(root)).map_err(|_| anyhow!("{shown} is no mapping"))
}

/// Takes the names of the included files, with the folder of the file that includes them.
fn includes(fields: &mut YamlFields, folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let Some(node) = fields.take("include") else {
        return Ok(Vec::new());
    };
    let names = node.items().iter().map(Node::text);
    let names: Option<Vec<_>> = names.collect();
    let names = names.filter(|names| !names.is_empty());
    let names = names.with_context(|| format!("{} is no list of files", node.at))?;
    Ok(names
        .into_iter()
        .map(|name| (name.to_owned(), folder.to_owned()))
        .collect())
}

/// Checks a configuration as `weir check` does.
async fn check(toml: &str) -> anyhow::Result<()> {
    let config = Config::from_toml(toml)?;
    config.check_mode()?;
    let prepared = PreparedParts::of(
        &config,
        &bundle().plugins(),
        &Clock::System,
        Compiler::new(config.plugins.compile.clone()),
        shared_code(),
        &progress(),
    )
    .await?;
    weir_app::build_catalog(&config, &prepared.plugins).await?;
    Ok(())
}

fn write(path: &Path, toml: &str, force: bool) -> anyhow::Result<()> {
    let shown = path.display();
    let mut options = OpenOptions::new();
    options.write(true);
    let options = match force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let mut file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{shown} already exists; --force replaces it");
        }
        opened => opened.with_context(|| shown.to_string())?,
    };
    file.write_all(toml.as_bytes())
        .with_context(|| shown.to_string())
}

fn report(notes: &ImportNotes, imported: &ImportedConfig) {
    for (title, lines) in [
        ("Not carried over", &notes.left_out),
        ("Carried over with a difference", &notes.changed),
    ] {
        if !lines.is_empty() {
            eprintln!("{title}:");
        }
        for (at, why) in lines {
            eprintln!("  {at}: {why}");
        }
    }
    if !notes.variables.is_empty() {
        eprintln!("Environment variables that the configuration reads:");
    }
    for (name, secret) in &notes.variables {
        match secret {
            None => eprintln!("  {name}"),
            Some(at) => eprintln!("  {name}: set it to the secret at {at}, which is not copied"),
        }
    }
    for MissingUpstreams { id, missing, all } in &imported.incomplete {
        match missing {
            1 => eprintln!("1 of {all} upstreams of {id} is missing."),
            _ => eprintln!("{missing} of {all} upstreams of {id} are missing."),
        }
    }
    let models = &imported.models;
    eprintln!(
        "Imported models: {}, upstreams: {}, providers: {}. Models as comments: {}. Not carried over: {}. With a \
         difference: {}.",
        models.complete,
        models.upstreams,
        imported.providers,
        models.comments.len(),
        notes.left_out.len(),
        notes.changed.len()
    );
}
