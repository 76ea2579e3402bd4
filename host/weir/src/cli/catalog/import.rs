//! `weir catalog import`: compares the configured models with a public price file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use figment::value::{Dict, Value};
use weir_app::config::Config;
use weir_importing::prices::difference::{
    self, ChangedModel, FieldChange, ImportDifference, ImportScope, NewModel,
};
use weir_importing::prices::offer::Offer;
use weir_importing::prices::{self, PriceFile, section};
use weir_storage::clock::Clock;

#[derive(clap::Args)]
pub(in crate::cli) struct ImportArguments {
    /// The price file: LiteLLM's model_prices_and_context_window.json, or models.dev's api.json.
    file: PathBuf,
    /// Compare only this configured provider; repeat for more. NAME=KEY names the provider in the file, as in eu=openai.
    /// Default: all configured providers that the file has.
    #[arg(long, value_name = "NAME[=KEY]")]
    provider: Vec<String>,
    /// Compare only models with this id, in which * stands for any text; repeat for more.
    #[arg(long, value_name = "PATTERN")]
    model: Vec<String>,
    /// Also write sections for new and changed models to this file, which must not exist. Add them to your configuration
    /// file.
    #[arg(long, value_name = "PATH")]
    write: Option<PathBuf>,
}

pub(super) fn run(
    config: &Config,
    config_file: Option<&Path>,
    arguments: &ImportArguments,
) -> anyhow::Result<()> {
    let shown = arguments.file.display();
    let text = fs::read_to_string(&arguments.file).with_context(|| shown.to_string())?;
    let PriceFile { format, offers } =
        prices::read(&text).map_err(|error| anyhow!("{shown} {error}"))?;
    let scope = ImportScope {
        vendors: vendors(config, &offers, &arguments.provider)?,
        models: arguments.model.clone(),
    };
    println!(
        "{shown}: {}, {} entries; compared providers: {}\n",
        format.name(),
        offers.len(),
        scope.vendors.keys().cloned().collect::<Vec<_>>().join(", ")
    );
    let found = difference::compare(offers, &config.models, &scope, Clock::System.now());
    print(&found);
    if let Some(path) = &arguments.write {
        write(path, &found, &own_models(config_file)?)?;
    }
    Ok(())
}

/// Returns the file's names of the compared providers.
fn vendors(
    config: &Config,
    offers: &[Offer],
    wanted: &[String],
) -> anyhow::Result<BTreeMap<String, String>> {
    let known: BTreeSet<&str> = offers.iter().map(|offer| &*offer.vendor).collect();
    let all = || known.iter().copied().collect::<Vec<_>>().join(", ");
    let mut vendors = BTreeMap::new();
    for wanted in wanted {
        let (name, key) = match wanted.split_once('=') {
            Some((name, key)) => (name, Some(key)),
            None => (&**wanted, None),
        };
        ensure!(
            config.providers.contains_key(name),
            "--provider {wanted}: the configuration has no provider {name:?}; it has: {}",
            config
                .providers
                .keys()
                .cloned()
                .collect::<Vec<_>>()
                .join(", ")
        );
        let found = match key {
            Some(key) => known.get(key).copied(),
            None => vendor_of(name, &known),
        };
        let Some(vendor) = found else {
            bail!(
                "--provider {wanted}: the file has no provider {:?}; name it as in {name}=KEY. The file has: {}",
                key.unwrap_or(name),
                all()
            );
        };
        vendors.insert(name.to_owned(), vendor.to_owned());
    }
    if wanted.is_empty() {
        for name in config.providers.keys() {
            if let Some(vendor) = vendor_of(name, &known) {
                vendors.insert(name.clone(), vendor.to_owned());
            }
        }
    }
    ensure!(
        !vendors.is_empty(),
        "the file has none of the configured providers; name one with --provider NAME=KEY. The file has: {}",
        all()
    );
    Ok(vendors)
}

/// Returns the file's name of a provider with the usual name.
fn vendor_of<'a>(name: &str, known: &BTreeSet<&'a str>) -> Option<&'a str> {
    // models.dev names the company.
    let other = (name == "gemini").then_some("google");
    let mut names = [Some(name), other].into_iter().flatten();
    names.find_map(|name| known.get(name).copied())
}

/// Returns the ids of the models in the operator's own configuration.
fn own_models(config_file: Option<&Path>) -> anyhow::Result<Dict> {
    let mut sources = Config::sources(config_file)?;
    Ok(match sources.remove("models") {
        Some(Value::Dict(_, models)) => models,
        _ => Dict::new(),
    })
}

fn print(found: &ImportDifference) {
    let of = |of_model: fn(&ChangedModel) -> &Vec<FieldChange>| {
        let changed = found.changed.iter();
        changed
            .filter(|model| !of_model(model).is_empty())
            .map(|model| {
                let changes = of_model(model).iter();
                let changes: Vec<_> = changes
                    .map(|change| format!("{} {} -> {}", change.field, change.before, change.after))
                    .collect();
                format!("{}/{}: {}", model.provider, model.id, changes.join(", "))
            })
            .collect::<Vec<_>>()
    };
    let removed = found.removed.iter();
    let left_out = found.left_out.iter();
    for (title, lines) in [
        ("New models", found.added.iter().map(line).collect()),
        (
            "Changed prices, in USD per million tokens",
            of(|model| &model.prices),
        ),
        ("Changed limits and ends", of(|model| &model.limits)),
        (
            "Configured models that the file lacks",
            removed
                .map(|(provider, id)| format!("{provider}/{id}"))
                .collect(),
        ),
        (
            "Left out",
            left_out
                .map(|(entry, why)| format!("{entry:?}: {why}"))
                .collect(),
        ),
    ] {
        println!("{title}: {}", lines.len());
        for line in lines {
            println!("  {line}");
        }
    }
}

fn line(model: &NewModel) -> String {
    let NewModel {
        provider,
        id,
        terms,
    } = model;
    let fields = terms.price.fields().into_iter();
    let prices: Vec<_> = fields
        .map(|(name, usd)| format!("{name} {}", usd.decimal()))
        .collect();
    let above = terms.price.above.as_ref();
    let above = above.map_or(String::new(), |above| {
        format!(", more above {}", above.input_tokens)
    });
    format!(
        "{provider}/{id}: {}{above}; window {}, output {}",
        prices.join(", "),
        terms.least_window,
        terms.max_output_tokens
    )
}

/// Writes the sections of new and changed models.
fn write(path: &Path, found: &ImportDifference, own: &Dict) -> anyhow::Result<()> {
    let changed = found.changed.iter().map(|model| {
        let text = section::of_changed(model);
        let by_hand = match own.contains_key(&model.id) {
            true => Some("your configuration has a section for this model"),
            false => model.by_hand,
        };
        match by_hand {
            Some(why) => section::commented(&text, why),
            None => text,
        }
    });
    let sections: Vec<_> = changed
        .chain(found.added.iter().map(section::of_new))
        .collect();
    if sections.is_empty() {
        println!("\nNothing to write.");
        return Ok(());
    }
    let shown = path.display();
    let mut file = File::create_new(path).with_context(|| shown.to_string())?;
    let text = format!(
        "# Sections by `weir catalog import`. Add them to your configuration file, and run `weir check`.\n\n{}",
        sections.join("\n")
    );
    file.write_all(text.as_bytes())
        .with_context(|| shown.to_string())?;
    println!("\nWrote {} sections to {shown}.", sections.len());
    Ok(())
}
