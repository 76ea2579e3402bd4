//! `weir catalog`: the models that clients can request, their prices, and the versions of the catalog layer.

mod import;

use std::path::PathBuf;

use serde_json::{Value, json};
use weir_app::config::Config;
use weir_catalog::listing::{CatalogListing, ListedGap, ListedModel, units_of_price};
use weir_console::admin::catalog_layer::LayerItem;

use super::connection::{AdminConnection, OfflineArgument, RequiredParts, operate, path};
use super::table::TextTable;

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct CatalogArguments {
    #[command(subcommand)]
    command: Option<CatalogCommand>,
    /// Print all fields as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    offline: OfflineArgument,
}

#[derive(clap::Subcommand)]
enum CatalogCommand {
    /// Compare the configured models with a public price file, and write sections for the differences.
    ///
    /// Prints new chat models, changed prices and limits, and models that the file lacks; changes nothing. Prices are
    /// exact: an entry whose price has more than 9 decimals in USD per million tokens is left out. With --write, add the
    /// written sections to your configuration file, and run `weir check`.
    Import(import::ImportArguments),
    /// Make the contents of an earlier version of the catalog layer active again, as a new version.
    Restore {
        /// The version's number; 0 removes all changes of administrators.
        #[arg(value_name = "VERSION")]
        version: u32,
        /// Confirm that prices become 0.
        #[arg(long)]
        confirm_free: bool,
    },
}

impl CatalogArguments {
    /// Returns whether the command contacts a gateway.
    pub(super) fn asks_gateway(&self) -> bool {
        !matches!(self.command, Some(CatalogCommand::Import(_)))
    }
}

pub(super) async fn run(
    config: Config,
    file: Option<PathBuf>,
    arguments: CatalogArguments,
) -> anyhow::Result<()> {
    if let Some(CatalogCommand::Import(arguments)) = &arguments.command {
        return import::run(&config, file.as_deref(), arguments);
    }
    let operated = operate(
        &config,
        RequiredParts::Plugins,
        arguments.offline,
        async |connection| {
            if let Some(CatalogCommand::Restore {
                version,
                confirm_free,
            }) = arguments.command
            {
                return restore(connection, version, confirm_free).await;
            }
            let listing = connection.get(&path(&["admin", "catalog"], &[])).await?;
            listing.show(arguments.json, print);
            Ok(())
        },
    );
    operated.await
}

async fn restore(
    connection: &AdminConnection,
    version: u32,
    confirm_free: bool,
) -> anyhow::Result<()> {
    let active = connection.get::<LayerItem>("/admin/catalog/layer").await?;
    let body = json!({
        "base_version": active.parsed.version, "version": version, "confirm_free": confirm_free,
    });
    let restored = connection
        .post::<LayerItem>("/admin/catalog/layer/restore", &body)
        .await?;
    println!(
        "Version {} of the catalog layer is active, with the contents of version {version}.",
        restored.parsed.version
    );
    Ok(())
}

fn print(listing: &CatalogListing) {
    let mut models = TextTable::new(&[
        "MODEL", "WINDOW", "OUTPUT", "CAN", "PROVIDER", "INPUT", "OUTPUT", "OTHER", "ENDS",
        "ALIASES",
    ]);
    for model in &listing.models {
        for upstream in &model.upstreams {
            let usd = |field: &str| match &upstream.price[field] {
                Value::Number(usd) => usd.to_string(),
                _ => "-".to_owned(),
            };
            models.row([
                model.id.clone(),
                model.context_window.to_string(),
                model.max_output_tokens.to_string(),
                capabilities(model),
                upstream.provider.clone(),
                usd("input"),
                usd("output"),
                other_price(&upstream.price),
                or_dash(model.ends_on.map_or(String::new(), |day| day.to_string())),
                or_dash(model.aliases.join(",")),
            ]);
        }
    }
    models.print();
    let factors = &listing.price_factors;
    println!(
        "\nPrices are the providers', in USD, of tokens per million; charged × {}, images × {} on top.\n",
        factors.text, factors.image
    );
    let mut providers = TextTable::new(&["PROVIDER", "ADAPTER", "BASE URL"]);
    for provider in &listing.providers {
        let base_url = provider.base_url.as_deref().unwrap_or("-");
        providers.row([
            provider.name.clone(),
            provider.adapter.clone(),
            base_url.to_owned(),
        ]);
    }
    providers.print();
    for ListedGap {
        provider,
        why,
        models,
    } in &listing.left_out
    {
        println!("\nprovider {provider} is left out: {why}");
        if !models.is_empty() {
            println!("    and its models: {}", models.join(", "));
        }
    }
}

/// Returns the price of a model whose tokens have none.
fn other_price(price: &Value) -> String {
    let prices = price.as_object();
    let mut named = prices.into_iter().flatten();
    match named.next() {
        Some((name, usd)) if prices.is_some_and(|prices| prices.len() == 1) => {
            format!("{usd} {}", units_of_price(name))
        }
        _ => "-".to_owned(),
    }
}

fn capabilities(model: &ListedModel) -> String {
    let mut upstreams = model.upstreams.iter();
    let makes_images = upstreams.any(|upstream| upstream.price["image"].is_number());
    let all = [
        (makes_images, "images"),
        (model.supports_tools, "tools"),
        (model.supports_vision, "vision"),
        (!model.served, "(no adapter yet)"),
    ];
    let named = all.into_iter().filter(|(can, _)| *can);
    let named: Vec<_> = named.map(|(_, name)| name).collect();
    or_dash(named.join(","))
}

fn or_dash(cell: String) -> String {
    match cell.is_empty() {
        true => "-".to_owned(),
        false => cell,
    }
}
