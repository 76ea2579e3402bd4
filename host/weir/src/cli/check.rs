//! `weir check`: what is wrong with a configuration, without starting a gateway on it.

use crate::app;
use crate::catalog::AdapterSet;
use crate::config::Config;
use crate::plugins::bundled;
use weir_sandbox::compiler::Compiler;

pub(super) async fn run(config: Config) -> anyhow::Result<()> {
    config.check_mode()?;
    let compiler = Compiler::new(config.plugins.compile.clone());
    let plugins = app::load_plugins(&config, &bundled::adapters(), compiler).await?;
    let catalog = app::build_catalog(&config, &plugins, AdapterSet::BundledOnly).await?;
    for left_out in &catalog.left_out {
        println!(
            "provider {} is left out: {}",
            left_out.provider, left_out.why
        );
        if !left_out.models.is_empty() {
            println!("  and with it: {}", left_out.models.join(", "));
        }
    }
    println!(
        "The configuration is sound: {} models can be served.",
        catalog.models().count()
    );
    Ok(())
}
