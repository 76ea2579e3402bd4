//! `weir check`: what is wrong with a configuration, without starting a gateway on it.

mod probe;
mod production;

use std::path::PathBuf;

use anyhow::ensure;

use super::connection::{Connection, path};
use crate::app::{self, Prepared};
use crate::catalog::listing::{CatalogListing, Difference};
use crate::catalog::{Catalog, LeftOut};
use crate::config::Config;
use crate::payments::settings::ProcessorName;
use crate::payments::stripe::PORTAL_ADVICE;
use crate::plugins::bundled;
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
    /// the demo provider, a payment processor's key for tests.
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
    let prepared = Prepared::of(&config, &bundled::plugins(), &Clock::System, compiler).await?;
    let catalog = app::build_catalog(&config, &prepared.plugins).await?;
    for LeftOut {
        provider,
        why,
        models,
    } in &catalog.left_out
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
        if prepared.plugins.tool(slot).is_none() {
            println!("tools.{slot} waits for a tool to be installed: the binary brings none");
        }
    }
    let left_out = catalog.left_out.len();
    ensure!(
        !arguments.strict || (left_out == 0 && gaps.is_empty()),
        "--strict: providers that are left out: {left_out}; credentials that are missing: {}",
        gaps.len()
    );
    if arguments.production {
        let sources = Config::sources(file.as_deref())?;
        let findings = production::findings(&config, &prepared, &sources);
        ensure!(
            findings.is_empty(),
            "--production: this is not for others yet:\n  {}",
            findings.join("\n  ")
        );
    }
    println!(
        "The configuration is sound: {} models can be served.",
        catalog.models().count()
    );
    if config.payments.processor(config.is_dev()) == ProcessorName::Stripe && !arguments.probe {
        println!("Payments: {PORTAL_ADVICE}. `weir check --probe` looks.");
    }
    compare(&config, &catalog).await;
    if arguments.probe {
        probe::run(&config, &prepared, &catalog).await?;
    }
    Ok(())
}

/// Says what the gateway that runs here would take up, if one does.
async fn compare(config: &Config, catalog: &Catalog) {
    let running = async {
        let Some(connection) = Connection::running(config).await? else {
            return anyhow::Ok(None);
        };
        let path = path(&["admin", "catalog"], &[]);
        let listing = connection.get::<CatalogListing>(&path).await?;
        Ok(Some(listing.parsed))
    };
    let difference = match running.await {
        Ok(None) => return,
        Ok(Some(running)) => CatalogListing::of(catalog).since(&running),
        Err(error) => {
            println!("The running gateway does not say what its catalog is: {error:#}");
            return;
        }
    };
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
