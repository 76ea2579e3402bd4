//! `weir check`: what is wrong with a configuration, without starting a gateway on it.

mod probe;

use anyhow::ensure;

use crate::app::{self, Prepared};
use crate::catalog::LeftOut;
use crate::config::Config;
use crate::plugins::bundled;
use weir_sandbox::compiler::Compiler;
use weir_storage::clock::Clock;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Fail, too, if a provider is left out, for want of its credential or its adapter.
    #[arg(long)]
    strict: bool,
    /// Reach for the database, Redis, the issuers of tokens and the providers, and say what came of each.
    #[arg(long)]
    probe: bool,
}

pub(super) async fn run(config: Config, arguments: Arguments) -> anyhow::Result<()> {
    config.check_mode()?;
    let compiler = Compiler::new(config.plugins.compile.clone());
    let prepared = Prepared::of(&config, &bundled::adapters(), &Clock::System, compiler).await?;
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
    let left_out = catalog.left_out.len();
    ensure!(
        !arguments.strict || left_out == 0,
        "--strict: providers that are left out: {left_out}"
    );
    println!(
        "The configuration is sound: {} models can be served.",
        catalog.models().count()
    );
    if arguments.probe {
        probe::run(&config, &prepared, &catalog).await?;
    }
    Ok(())
}
