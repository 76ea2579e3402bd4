//! `weir check`: what is wrong with a configuration, without starting a gateway on it.

mod probe;
mod production;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::ensure;
use weir_plugins::items::SlotList;

use super::connection::{Connection, path, progress};
use crate::app::{self, Prepared};
use crate::catalog::listing::{CatalogListing, Difference};
use crate::catalog::{Catalog, LeftOut, Missing};
use crate::cli::bundle;
use crate::config::Config;
use weir_payments::settings::ProcessorName;
use weir_payments::stripe::PORTAL_ADVICE;
use weir_sandbox::compiler::Compiler;
use weir_storage::clock::Clock;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Fail, too, if a provider is left out, for want of its credential or its adapter, or a tool's credential is missing.
    #[arg(long)]
    strict: bool,
    /// Reach for the database, Redis, the issuers of tokens, the providers and the payment processor, and say what came of each.
    /// Fail, too, if the processor's own settings do not fit: of its customer portal, and of the prices that the settings name.
    #[arg(long)]
    probe: bool,
    /// Fail, too, on what is for development, or still an example's: keys of this node's own, passwords beside settings,
    /// the demo provider, no model at all, a payment processor's key for tests. Say what a gateway on it would not do.
    #[arg(long)]
    production: bool,
}

pub(super) async fn run(
    config: Config,
    file: Option<PathBuf>,
    arguments: Arguments,
) -> anyhow::Result<()> {
    config.check_mode()?;
    let compiler = Compiler::new(config.plugins.compile.clone());
    let prepared = Prepared::of(
        &config,
        &bundle().plugins(),
        &Clock::System,
        compiler,
        &progress(),
    )
    .await?;
    let catalog = app::build_catalog(&config, &prepared.plugins).await?;
    let running = Running::ask(&config).await;
    let (installed, left_out): (Vec<_>, Vec<_>) = catalog.left_out.iter().partition(
        |left_out| matches!(&left_out.why, Missing::Adapter(slot) if running.serves(slot)),
    );
    for LeftOut { provider, why, .. } in &installed {
        if let Missing::Adapter(slot) = why {
            println!("provider {provider} has its adapter {slot} from the running gateway.");
        }
    }
    for LeftOut {
        provider,
        why,
        models,
    } in &left_out
    {
        println!("provider {provider} is left out: {why}");
        if !models.is_empty() {
            println!("  and with it: {}", models.join(", "));
        }
    }
    let gaps = prepared.rules.gaps();
    for gap in &gaps {
        println!("{gap}");
    }
    for slot in prepared.rules.slots() {
        if prepared.plugins.tool(slot).is_none() && !running.serves(slot) {
            println!("tools.{slot} waits for a tool to be installed: the binary brings none");
        }
    }
    let left_out = left_out.len();
    ensure!(
        !arguments.strict || (left_out == 0 && gaps.is_empty()),
        "--strict: providers that are left out: {left_out}; credentials that are missing: {}",
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
            "--production: this is not for others yet:\n  {}",
            findings.join("\n  ")
        );
        for limit in production::limits(&config) {
            println!("{limit}");
        }
    }
    println!("The configuration is sound: {models} models can be served.");
    if config.payments.processor(config.is_dev()) == ProcessorName::Stripe && !arguments.probe {
        println!("Payments: {PORTAL_ADVICE}. `weir check --probe` looks.");
    }
    running.compare(&catalog);
    if arguments.probe {
        probe::run(&config, &prepared, &catalog).await?;
    }
    Ok(())
}

/// The gateway that runs here, as far as it says.
struct Running {
    /// `None` if none runs, or it does not say.
    listing: Option<CatalogListing>,
    /// Slots in which something serves.
    slots: BTreeSet<String>,
}

impl Running {
    /// Asks the gateway that runs here, if one does, for its catalog and its plugins.
    async fn ask(config: &Config) -> Self {
        let asked = async {
            let Some(connection) = Connection::running(config).await? else {
                return anyhow::Ok(None);
            };
            let path = path(&["admin", "catalog"], &[]);
            let listing = connection.get::<CatalogListing>(&path).await?;
            let slots = connection.get::<SlotList>("/admin/plugins").await?;
            Ok(Some((listing.parsed, slots.parsed.slots)))
        };
        let (listing, slots) = match asked.await {
            Ok(None) => (None, Vec::new()),
            Ok(Some((listing, slots))) => (Some(listing), slots),
            Err(error) => {
                println!("The running gateway does not say what it serves: {error:#}");
                (None, Vec::new())
            }
        };
        let serving = slots.into_iter().filter(|slot| slot.serving.is_some());
        Self {
            listing,
            slots: serving.map(|slot| slot.slot).collect(),
        }
    }

    /// Whether something serves in a slot there.
    fn serves(&self, slot: &str) -> bool {
        self.slots.contains(slot)
    }

    /// Says what the gateway would take up.
    fn compare(&self, catalog: &Catalog) {
        let Some(running) = &self.listing else {
            return;
        };
        let difference = CatalogListing::of(catalog).since(running);
        if difference.is_none() {
            println!("The running gateway's catalog has these models and providers.");
            return;
        }
        println!("With this environment, SIGHUP would change the running gateway's catalog:");
        let Difference {
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
