//! `weir plugin compare`: its arguments, and its result as a table.

use std::path::PathBuf;

use anyhow::bail;
use figment::Figment;
use figment::providers::{Format as _, Toml};
use serde_json::json;
use weir_app::config::Config;
use weir_author::compare::{ComparedRecording, Comparison, VersionDifference};
use weir_catalog::config::PriceConfig;
use weir_ledger::price::Price;
use weir_sandbox::printable;

use super::input::{PluginArguments, loader};
use crate::cli::bundle::bundle;
use crate::cli::table::TextTable;

/// Characters of a value in a table, and how many of them come before the difference.
const SHOWN: usize = 60;
const SHOWN_BEFORE: usize = 20;

#[derive(clap::Args)]
pub(in crate::cli) struct ComparePluginsArguments {
    /// The component that serves: a .wasm file, or the name of an embedded plugin, such as openai.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The component that replaces it: a .wasm file, or the name of an embedded plugin.
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// The folder of recordings.
    ///
    /// NAME.json is a request, or the arguments of a tool. NAME.http is its response, in the format of `curl -i`, and NAME.2.http the
    /// next response. A response without a request is for the simplest request, which asks for a stream if the name ends in -stream.
    #[arg(long, value_name = "DIR")]
    recordings: PathBuf,
    /// Compare the price of the reported usage, too, in credits. The price is a model's price in the configuration, in US dollars for
    /// a million tokens or for an image, such as "{ input = 1.0, output = 2.0 }" or "{ image = 0.04 }".
    #[arg(long, value_name = "TABLE", value_parser = parse_price)]
    price: Option<Price>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: PluginArguments,
}

pub(super) async fn run(config: Config, arguments: ComparePluginsArguments) -> anyhow::Result<()> {
    let comparison = Comparison {
        old: &arguments.old,
        new: &arguments.new,
        recordings: &arguments.recordings,
        input: &arguments.input.to_input(),
        response_bytes: config.limits.exchanges.answer_bytes.get(),
        price: arguments.price.as_ref(),
        factors: &config.price_factors,
        bundle: bundle(),
    };
    let compared = comparison.run(&loader(&config)?).await?;
    let differing = compared.iter();
    let differing = differing
        .filter(|compared| !compared.differences.is_empty())
        .count();
    match arguments.json {
        true => println!(
            "{:#}",
            json!({
                "old": arguments.old.display().to_string(),
                "new": arguments.new.display().to_string(),
                "recordings": compared,
                "same": differing == 0,
            })
        ),
        false => print_table(&compared),
    }
    match differing {
        0 => Ok(()),
        _ => bail!("{differing} of {} recordings differ", compared.len()),
    }
}

fn print_table(compared: &[ComparedRecording]) {
    let mut table = TextTable::new(&["RECORDING", "DIFFERS IN", "OLD", "NEW"]);
    for ComparedRecording {
        recording,
        differences,
    } in compared
    {
        if differences.is_empty() {
            table.row([recording.clone(), "-".to_owned()]);
        }
        for VersionDifference { what, old, new } in differences {
            let from = common_prefix(old.as_deref(), new.as_deref());
            let shown = |text: &Option<String>| match text {
                Some(text) => excerpt(text, from),
                None => "none".to_owned(),
            };
            table.row([recording.clone(), what.clone(), shown(old), shown(new)]);
        }
    }
    table.print();
}

/// Returns how many characters two texts share at their beginning.
fn common_prefix(old: Option<&str>, new: Option<&str>) -> usize {
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    let pairs = old.chars().zip(new.chars());
    pairs.take_while(|(old, new)| old == new).count()
}

/// Returns the part of a text around its first difference from another text.
fn excerpt(text: &str, differs_at: usize) -> String {
    let from = differs_at.saturating_sub(SHOWN_BEFORE);
    let length = text.chars().count();
    let shown: String = text.chars().skip(from).take(SHOWN).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = if from + SHOWN < length { "…" } else { "" };
    format!("{before}{}{after}", printable(&shown, 8 * SHOWN))
}

fn parse_price(table: &str) -> Result<Price, String> {
    let read = Figment::from(Toml::string(&format!("price = {table}")));
    let price: PriceConfig = read
        .extract_inner("price")
        .map_err(|error| error.to_string())?;
    price.resolve().map_err(|why| format!("it {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_shows_where_two_texts_differ() {
        let (old, new) = (
            "ż".repeat(100) + "old" + &"-".repeat(99),
            "ż".repeat(100) + "new",
        );
        let at = common_prefix(Some(&old), Some(&new));
        assert_eq!(at, 100);
        assert_eq!(excerpt(&new, at), format!("…{}new", "ż".repeat(20)));
        let shown = excerpt(&old, at);
        assert!(shown.contains("old") && shown.ends_with('…'), "{shown}");
        assert_eq!(excerpt("a\nb", common_prefix(Some("a\nb"), None)), "a\\nb");
    }

    #[test]
    fn a_price_is_read_as_in_the_configuration() {
        assert!(parse_price("{ input = 1.0, output = 2.5 }").is_ok());
        assert!(parse_price("{ image = 0.04 }").is_ok());
        for (bad, why) in [
            ("{ input = 1.0 }", "lacks `output`"),
            ("{ inputs = 1.0 }", "inputs"),
            ("1.0", "invalid type"),
        ] {
            let refused = parse_price(bad).expect_err(bad);
            assert!(refused.contains(why), "{bad}: {refused}");
        }
    }
}
