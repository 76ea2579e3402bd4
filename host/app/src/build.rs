//! Builds the catalog of a configuration.

use anyhow::{Context, anyhow};
use weir_catalog::filters::check_filters;
use weir_catalog::{Catalog, MissingPart, OmittedProvider, Problem};
use weir_plugins::Plugins;

use crate::config::Config;

/// Builds the catalog; the error lists all its problems.
pub async fn build_catalog(config: &Config, plugins: &Plugins) -> anyhow::Result<Catalog> {
    let built = try_build(config, plugins, None).await;
    built
        .map_err(|problems| anyhow!("{}", lines(&problems)))
        .context("the catalog's configuration is invalid")
}

/// Builds the catalog, or returns all its problems. A secret of the catalog `before` that cannot be read any more is a
/// problem: its file may be half written, and the provider works with the secret that weir has.
pub(super) async fn try_build(
    config: &Config,
    plugins: &Plugins,
    before: Option<&Catalog>,
) -> Result<Catalog, Vec<Problem>> {
    let environment = |name: &str| std::env::var(name).ok();
    let (providers, models) = (&config.providers, &config.models);
    let mut refused = weir_catalog::check_options(providers, models, plugins, environment).await;
    refused.extend(check_filters(&config.filters, plugins).await);
    match Catalog::build(config.catalog(), plugins, environment) {
        Ok(catalog) => {
            refused.extend(
                before
                    .iter()
                    .flat_map(|before| catalog.lost_secrets(before)),
            );
            match refused.is_empty() {
                true => Ok(catalog),
                false => Err(refused),
            }
        }
        Err(mut problems) => {
            problems.extend(refused);
            Err(problems)
        }
    }
}

pub fn lines(problems: &[Problem]) -> String {
    let lines = problems
        .iter()
        .map(|Problem { setting, what }| format!("\n  {setting}: {what}"));
    lines.collect()
}

/// Logs the providers that are left out; those without a credential in one line, because a first start has many.
pub(super) fn report_left_out(catalog: &Catalog) {
    let unset = catalog.left_out.iter();
    let unset: Vec<_> = unset
        .filter(|left_out| matches!(left_out.why, MissingPart::Unset(_)))
        .collect();
    if !unset.is_empty() {
        let providers: Vec<_> = unset.iter().map(|left_out| &*left_out.provider).collect();
        tracing::info!(
            providers = providers.join(", "),
            models = unset
                .iter()
                .map(|left_out| left_out.models.len())
                .sum::<usize>(),
            "left out: their environment variables are not set, and `weir check` names them"
        );
    }
    for OmittedProvider {
        provider,
        why,
        models,
    } in &catalog.left_out
    {
        let models = models.join(", ");
        match why {
            MissingPart::Unset(_) => {}
            MissingPart::Enabled => {
                tracing::info!(provider, models, "provider left out: {why}");
            }
            // Somebody has set it.
            MissingPart::Credential(_) => {
                tracing::warn!(provider, models, "provider left out: {why}");
            }
            MissingPart::Adapter(_) => {
                tracing::error!(provider, models, "provider left out: {why}");
            }
        }
    }
}
