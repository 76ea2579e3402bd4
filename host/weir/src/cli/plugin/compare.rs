//! `weir plugin compare`: what another version of a plugin does otherwise, on recorded exchanges.
//!
//! Both run on each recording as `weir plugin try` runs one. Compared is what it prints: requests field by field, and as they
//! are written; events line by line; the usage that is reported last, and what that costs.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use figment::Figment;
use figment::providers::{Format as _, Toml};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use weir_ledger::TokenCounts;
use weir_ledger::price::{Price, PriceFactors};
use weir_ledger::pricing::charge;
use weir_ledger::usage::Billable;
use weir_plugins::slots::Loaded;
use weir_plugins::{Component, Loader};
use weir_sandbox::printable;

use super::given::{self, PluginInput};
use super::own::{self, Own};
use super::trial::{Cut, Outcome, Trial};
use super::{conformance, try_tool};
use crate::catalog::config::PriceConfig;
use crate::cli::bundle;
use crate::cli::table::TextTable;
use crate::config::Config;

/// Characters of a text that a table shows, and how many of them stand before where two differ.
const SHOWN: usize = 60;
const SHOWN_BEFORE: usize = 20;

#[derive(clap::Args)]
pub(in crate::cli) struct Arguments {
    /// The component that serves: a .wasm file, or the name of one that weir brings, such as openai.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The one that is to serve in its place, likewise.
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// A folder with recordings: NAME.json is a request, or a tool's arguments; NAME.http the answer to it, as `curl -i`
    /// prints it, and NAME.2.http the next one. An answer without a request is read for the plainest one, which asks for a
    /// stream if the name ends in -stream.
    #[arg(long, value_name = "DIR")]
    recordings: PathBuf,
    /// What the usage that is reported would cost, in credits: a price as a model has one in the configuration, such as
    /// "{ input = 1.0, output = 2.0 }", in US dollars for a million tokens; or "{ image = 0.04 }".
    #[arg(long, value_name = "TABLE", value_parser = parse_price)]
    price: Option<Price>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    told: PluginInput,
}

/// Something that the two do otherwise.
#[derive(Debug, Serialize)]
struct Difference {
    /// `request 1 body`, `events`, `usage`, `price` and so on.
    what: String,
    old: Option<String>,
    new: Option<String>,
}

#[derive(Debug, Serialize)]
struct Compared {
    recording: String,
    differences: Vec<Difference>,
}

pub(super) async fn run(config: Config, arguments: Arguments) -> anyhow::Result<()> {
    let recordings = own::recordings(&arguments.recordings)?;
    ensure!(
        !recordings.is_empty(),
        "{} has no recordings: neither .json nor .http",
        arguments.recordings.display()
    );
    let loader = given::loader(&config)?;
    let old = Version::load(&loader, &arguments.old).await?;
    let new = Version::load(&loader, &arguments.new).await?;
    ensure!(
        matches!(
            (&old, &new),
            (Version::Adapter(_), Version::Adapter(_)) | (Version::Tool(_), Version::Tool(_))
        ),
        "one of the two is an adapter, and the other a tool"
    );
    let comparison = Comparison {
        told: &arguments.told,
        answer_bytes: config.limits.exchanges.answer_bytes.get(),
        price: arguments.price.as_ref(),
        factors: &config.price_factors,
    };
    let mut compared = Vec::new();
    for own in &recordings {
        let (old, new) = (
            comparison.aspects(&old, own).await,
            comparison.aspects(&new, own).await,
        );
        let of = || format!("the recording {}", own.name);
        compared.push(Compared {
            recording: own.name.clone(),
            differences: differences(&old.with_context(of)?, &new.with_context(of)?),
        });
    }
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

/// A component of either kind.
enum Version {
    Adapter(Component),
    Tool(weir_sandbox::tool::Tool),
}

impl Version {
    /// What a file holds; or else what weir brings of that name.
    async fn load(loader: &Loader, path: &Path) -> anyhow::Result<Self> {
        let mut brought = bundle().plugins().into_iter();
        let brought = brought.find(|plugin| path.as_os_str() == &*plugin.name);
        let bytes = match brought.filter(|_| !path.exists()) {
            Some(plugin) => plugin.bytes.into_owned(),
            None => given::read(path)?,
        };
        let loaded = given::load(loader, path, bytes)
            .await
            .map_err(|error| anyhow!(error).context(format!("{} is refused", path.display())))?;
        Ok(match loaded {
            Loaded::Adapter(adapter) => Self::Adapter(Component::new(adapter, Arc::default())),
            Loaded::Tool(tool) => Self::Tool(tool),
            Loaded::Filter(_) => {
                let path = path.display();
                bail!("{path} is a filter: recordings are of adapters and tools")
            }
        })
    }
}

/// How the two are compared.
struct Comparison<'a> {
    told: &'a PluginInput,
    answer_bytes: u64,
    price: Option<&'a Price>,
    factors: &'a PriceFactors,
}

/// What there is to compare of an exchange, by what it is called.
type Aspects = BTreeMap<String, String>;

impl Comparison<'_> {
    /// Runs one on a recording.
    async fn aspects(&self, version: &Version, own: &Own) -> anyhow::Result<Aspects> {
        let mut out = Vec::new();
        let answers = own.answers.clone();
        let outcome = match version {
            Version::Adapter(component) => {
                let tried = match &own.request {
                    Some(request) => given::read_request(request)?,
                    None => conformance::asked_for(&own.name)?,
                };
                ensure!(
                    component.is_capable_of(tried.capability()),
                    "one of the two does not serve {}",
                    tried.capability()
                );
                let trial = Trial {
                    component,
                    cut: Cut::Pieces(NonZeroUsize::MAX),
                    answer_bytes: self.answer_bytes,
                };
                let options: BTreeMap<_, _> = self.told.options.iter().cloned().collect();
                let options = Vec::from_iter(options);
                trial.run(tried, &options, answers, &mut out).await
            }
            Version::Tool(tool) => {
                let arguments = own.request.as_deref();
                let arguments = arguments.with_context(|| {
                    format!("it has no arguments: {}.json is missing", own.name)
                })?;
                let arguments = String::from_utf8_lossy(arguments);
                let context = self.told.context();
                try_tool::run(tool, &arguments, &context, answers, &mut out).await
            }
        };
        let printed = String::from_utf8_lossy(&out);
        match outcome {
            // Nothing was begun, and nothing said.
            Err(error) if printed.is_empty() => Err(error),
            // Its last line says it.
            Err(_) => self.read(&printed, None),
            Ok(Outcome::Awaits) => self.read(&printed, Some("it awaits an answer".to_owned())),
            Ok(Outcome::Done(0)) => self.read(&printed, None),
            Ok(Outcome::Done(left)) => self.read(
                &printed,
                Some(format!("{left} of the answers are not asked for")),
            ),
        }
    }

    /// Sorts what was printed.
    fn read(&self, printed: &str, end: Option<String>) -> anyhow::Result<Aspects> {
        let mut aspects = Aspects::new();
        let (mut requests, mut images) = (0, 0);
        let (mut events, mut usage) = (Vec::new(), None);
        for line in printed.lines() {
            let fields: BTreeMap<&str, &RawValue> = serde_json::from_str(line)?;
            if let Some(request) = fields.get("send").or(fields.get("fetch")) {
                requests += 1;
                // As they are written: an order of fields that is another is another body.
                let request: BTreeMap<&str, &RawValue> = serde_json::from_str(request.get())?;
                for (name, value) in request {
                    let what = format!("request {requests} {name}");
                    aspects.insert(what, value.get().to_owned());
                }
                continue;
            }
            // What the recording has, which is the same for both.
            if fields.contains_key("head") {
                continue;
            }
            let event: Value = match fields.get("event") {
                Some(event) => serde_json::from_str(event.get())?,
                None => Value::Null,
            };
            if let Some(reported) = event.get("usage") {
                usage = Some(reported.clone());
                continue;
            }
            if let Some(media) = event.get("media")
                && media.get("is-preview").is_none()
            {
                images += 1;
            }
            events.push(line.to_owned());
        }
        events.extend(end);
        aspects.insert("events".to_owned(), events.join("\n"));
        if let Some(price) = self.price {
            let tokens = usage.as_ref().map(tokens).unwrap_or_default();
            let charge = charge(price, self.factors, &Billable { tokens, images });
            aspects.insert("price".to_owned(), charge.credits.to_string());
        }
        if let Some(usage) = usage {
            aspects.insert("usage".to_owned(), usage.to_string());
        }
        Ok(aspects)
    }
}

/// The counts of a printed usage that have a price.
fn tokens(usage: &Value) -> TokenCounts {
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    TokenCounts {
        input: count("input-tokens"),
        cache_read: count("cache-read-tokens"),
        cache_write_short: count("cache-write-short-tokens"),
        cache_write_long: count("cache-write-long-tokens"),
        output: count("output-tokens"),
        reasoning: count("reasoning-tokens"),
    }
}

fn differences(old: &Aspects, new: &Aspects) -> Vec<Difference> {
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|&name| old.get(name) != new.get(name));
    differing
        .map(|name| Difference {
            what: name.clone(),
            old: old.get(name).cloned(),
            new: new.get(name).cloned(),
        })
        .collect()
}

fn print_table(compared: &[Compared]) {
    let mut table = TextTable::new(&["RECORDING", "DIFFERS IN", "OLD", "NEW"]);
    for Compared {
        recording,
        differences,
    } in compared
    {
        if differences.is_empty() {
            table.row([recording.clone(), "-".to_owned()]);
        }
        for Difference { what, old, new } in differences {
            let from = same(old.as_deref(), new.as_deref());
            let shown = |text: &Option<String>| match text {
                Some(text) => excerpt(text, from),
                None => "none".to_owned(),
            };
            table.row([recording.clone(), what.clone(), shown(old), shown(new)]);
        }
    }
    table.print();
}

/// How many characters two texts begin with that are the same; of lines, those of the first that differs.
fn same(old: Option<&str>, new: Option<&str>) -> usize {
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    let pairs = old.chars().zip(new.chars());
    pairs.take_while(|(old, new)| old == new).count()
}

/// What is worth showing of a text that differs from another behind so many characters.
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
        let at = same(Some(&old), Some(&new));
        assert_eq!(at, 100);
        assert_eq!(excerpt(&new, at), format!("…{}new", "ż".repeat(20)));
        let shown = excerpt(&old, at);
        assert!(shown.contains("old") && shown.ends_with('…'), "{shown}");
        assert_eq!(excerpt("a\nb", same(Some("a\nb"), None)), "a\\nb");
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
