//! `weir check`: finds errors in a configuration without starting a gateway.

mod probe;
mod production;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::ensure;
use weir_app::PreparedParts;
use weir_app::config::Config;
use weir_catalog::filters::{self, FilterConfig};
use weir_catalog::layer::Layer;
use weir_catalog::listing::{CatalogDifference, CatalogListing};
use weir_catalog::{Catalog, MissingPart, OmittedProvider};
use weir_console::admin::catalog_layer::LayerItem;
use weir_payments::settings::ProcessorName;
use weir_payments::stripe::PORTAL_ADVICE;
use weir_plugins::items::{SlotItem, SlotList};
use weir_sandbox::compiler::Compiler;
use weir_storage::clock::Clock;

use super::connection::{AdminConnection, path, progress};
use crate::cli::bundle::bundle;
use crate::cli::user_folder::shared_code;

#[derive(clap::Args)]
pub(super) struct CheckConfigArguments {
    /// Fail also if weir leaves a provider out because its credential or adapter is missing, or if a tool's credential is
    /// missing.
    #[arg(long)]
    strict: bool,
    /// Connect to the database, Redis, the token issuers, the providers and the payment processor, and report each
    /// result. Fail also if the payment processor's own settings do not fit: its customer portal, and the prices that
    /// the settings name.
    #[arg(long)]
    probe: bool,
    /// Fail also on development or example settings: keys that the node generated, passwords in the settings file, the
    /// demo provider, an empty catalog, a payment processor's test key. List the features that the configuration leaves
    /// off.
    #[arg(long)]
    production: bool,
}

pub(super) async fn run(
    config: Config,
    file: Option<PathBuf>,
    arguments: CheckConfigArguments,
) -> anyhow::Result<()> {
    config.check_mode()?;
    let compiler = Compiler::new(config.plugins.compile.clone());
    let prepared = PreparedParts::of(
        &config,
        &bundle().plugins(),
        &Clock::System,
        compiler,
        shared_code(),
        &progress(),
    )
    .await?;
    let catalog = weir_app::build_catalog(&config, &prepared.plugins).await?;
    let running = RunningGateway::ask(&config).await;
    let layered = running.layered(&config, &prepared).await;
    let (installed, left_out): (Vec<_>, Vec<_>) = catalog.left_out.iter().partition(
        |left_out| matches!(&left_out.why, MissingPart::Adapter(slot) if running.serves(slot)),
    );
    for OmittedProvider { provider, why, .. } in &installed {
        if let MissingPart::Adapter(slot) = why {
            println!("provider {provider} has its adapter {slot} from the running gateway.");
        }
    }
    for OmittedProvider {
        provider,
        why,
        models,
    } in &left_out
    {
        println!("provider {provider} is left out: {why}");
        if !models.is_empty() {
            println!("    and its models: {}", models.join(", "));
        }
    }
    let gaps = prepared.rules.gaps();
    for gap in &gaps {
        println!("{gap}");
    }
    for slot in prepared.rules.slots() {
        if prepared.plugins.tool(slot).is_none() && !running.serves(slot) {
            println!("tools.{slot} has no tool yet: the binary bundles none, so install one");
        }
    }
    let mut unread = filters::warnings(&config.filters, &prepared.plugins);
    unread.extend(running.filter_warnings(&config.filters));
    for warning in unread {
        println!("{warning}");
    }
    let now = Clock::System.now();
    for warning in catalog.models().filter_map(|model| model.end_warning(now)) {
        println!("{warning}");
    }
    let left_out = left_out.len();
    ensure!(
        !arguments.strict || (left_out == 0 && gaps.is_empty()),
        "--strict: providers left out: {left_out}; missing credentials: {}",
        gaps.len()
    );
    let by_installed = installed.iter().map(|left_out| left_out.models.len());
    let models = catalog.models().count() + by_installed.sum::<usize>();
    if arguments.production {
        let sources = Config::sources(file.as_deref())?;
        let mut findings = production::findings(&config, &prepared, &sources);
        if models == 0 {
            findings.push(production::no_models(&catalog));
        }
        ensure!(
            findings.is_empty(),
            "--production: the configuration is not ready for production:\n  {}",
            findings.join("\n  ")
        );
        for limit in production::limits(&config) {
            println!("{limit}");
        }
    }
    println!("The configuration is valid: {models} models can be served.");
    if config.payments.processor(config.is_dev()) == ProcessorName::Stripe && !arguments.probe {
        println!("Payments: {PORTAL_ADVICE}. `weir check --probe` checks this.");
    }
    running.compare(layered.as_ref().unwrap_or(&catalog));
    if arguments.probe {
        probe::run(&config, &prepared, &catalog).await?;
    }
    Ok(())
}

/// The gateway that runs on this machine, as far as it reports its state.
struct RunningGateway {
    /// The running gateway's catalog; `None` if no gateway runs or the gateway does not report it.
    listing: Option<CatalogListing>,
    /// The running gateway's catalog layer.
    layer: Option<LayerItem>,
    /// Slots with an active plugin.
    slots: BTreeSet<String>,
    /// Slots with an active plugin of a contract before `filter-walk`.
    without_walk: BTreeSet<String>,
}

impl RunningGateway {
    /// Asks the gateway on this machine, if one runs, for its catalog and its plugins.
    async fn ask(config: &Config) -> Self {
        let asked = async {
            let Some(connection) = AdminConnection::running(config).await? else {
                return anyhow::Ok(None);
            };
            let path = path(&["admin", "catalog"], &[]);
            let listing = connection.get::<CatalogListing>(&path).await?;
            let layer = connection.get::<LayerItem>("/admin/catalog/layer").await?;
            let slots = connection.get::<SlotList>("/admin/plugins").await?;
            Ok(Some((listing.parsed, layer.parsed, slots.parsed.slots)))
        };
        let (listing, layer, slots) = match asked.await {
            Ok(None) => (None, None, Vec::new()),
            Ok(Some((listing, layer, slots))) => (Some(listing), Some(layer), slots),
            Err(error) => {
                println!("The running gateway does not report its catalog and plugins: {error:#}");
                (None, None, Vec::new())
            }
        };
        let serving: Vec<_> = slots
            .into_iter()
            .filter(|slot| slot.serving.is_some())
            .collect();
        let is_old = |slot: &&SlotItem| {
            let mut plugins = slot.plugins.iter();
            let active = plugins.find(|plugin| Some(&plugin.digest) == slot.serving.as_ref());
            active.is_some_and(|active| filters::is_before_walk(&active.contract))
        };
        let without_walk = serving.iter().filter(is_old);
        Self {
            listing,
            layer,
            without_walk: without_walk.map(|slot| slot.slot.clone()).collect(),
            slots: serving.into_iter().map(|slot| slot.slot).collect(),
        }
    }

    /// Returns a warning for each of these filters whose installed component may leave texts of a request unread.
    fn filter_warnings(&self, configured: &[FilterConfig]) -> Vec<String> {
        let slots: BTreeSet<_> = configured.iter().map(|filter| &filter.slot).collect();
        let unread = slots
            .into_iter()
            .filter(|slot| self.without_walk.contains(*slot));
        unread.map(|slot| filters::warning(slot)).collect()
    }

    /// Returns whether the running gateway has an active plugin in a slot.
    fn serves(&self, slot: &str) -> bool {
        self.slots.contains(slot)
    }

    /// Returns the catalog of a configuration with the running gateway's layer; `None` without a layer, or if the layer
    /// does not fit.
    async fn layered(&self, config: &Config, prepared: &PreparedParts) -> Option<Catalog> {
        let item = self.layer.as_ref()?;
        if let Some(problem) = &item.problem {
            println!("The running gateway's catalog lacks the newest changes: {problem}");
        }
        if item.running_version != item.version || item.version == 0 {
            return None;
        }
        let version = item.version;
        let layered = match Layer::read(item.contents.clone()) {
            Ok(layer) => config.with_layer(&layer),
            Err(problems) => Err(problems),
        };
        let built = match layered {
            Ok(config) => weir_app::build_catalog(&config, &prepared.plugins).await,
            Err(problems) => Err(anyhow::anyhow!("{}", weir_app::build::lines(&problems))),
        };
        built
            .map_err(|error| {
                println!(
                    "Version {version} of the catalog layer does not fit this configuration: {error:#}"
                );
            })
            .ok()
    }

    /// Prints the changes that a reload would make to the running gateway's catalog.
    fn compare(&self, catalog: &Catalog) {
        let Some(running) = &self.listing else {
            return;
        };
        let is_earlier = |layer: &LayerItem| ![0, layer.version].contains(&layer.running_version);
        if self.layer.as_ref().is_some_and(is_earlier) {
            println!("The running gateway's catalog has an earlier layer: it is not compared.");
            return;
        }
        let difference = CatalogListing::of(catalog).since(running);
        if difference.is_none() {
            println!("The running gateway's catalog has these models and providers.");
            return;
        }
        println!("With this environment, SIGHUP would change the running gateway's catalog:");
        let CatalogDifference {
            added,
            removed,
            changed,
        } = difference;
        for (what, models) in [("add", added), ("remove", removed), ("change", changed)] {
            if !models.is_empty() {
                println!("  {what}: {}", models.join(", "));
            }
        }
    }
}
