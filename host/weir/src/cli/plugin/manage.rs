//! `weir plugin install`, `list`, `show`, `activate`, `rollback`, `policy`, `remove` and `events`: the operations of operators on the
//! slots of a gateway, through its `/admin/plugins`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use jiff::SignedDuration;
use semver::Version;
use weir_app::config::Config;
use weir_author::input::{read_component, slot_name};
use weir_author::registry;
use weir_author::signing::find_signature;
use weir_plugins::canary::compare::{LEAST_GROUPS, LEAST_REQUESTS, in_words};
use weir_plugins::canary::{CanaryShare, Measure};
use weir_plugins::items::{
    CanaryItem, EventList, InstalledItem, PluginItem, SideItem, SlotItem, SlotList,
};
use weir_plugins::signature::Signature;

use super::upload::upload;
use crate::cli::connection::{AdminConnection, GatewayAnswer, RemoteArguments};
use crate::cli::table::{TextTable, optional};

/// Digits of a digest in tables. Arguments may have fewer digits, if they name only one digest.
const SHOWN_DIGITS: usize = 12;

/// The fewest digits of a digest in an argument.
const LEAST_DIGITS: usize = 4;

/// The gateway, and the format of the output.
#[derive(clap::Args)]
pub(in crate::cli) struct GatewayArguments {
    #[command(flatten)]
    remote: RemoteArguments,
    /// Print the gateway's response as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub(in crate::cli) struct InstallArguments {
    /// The component: a .wasm file, or oci://REGISTRY/NAME with :TAG, @sha256:DIGEST or both.
    #[arg(value_name = "FILE|oci://…")]
    component: PathBuf,
    /// The slot: the name in `adapter` of a provider, or in `tools` of an agent. A new name makes a new slot.
    #[arg(long, value_parser = slot_name)]
    slot: String,
    /// Activate the component, too.
    #[arg(long)]
    activate: bool,
    /// The file with the component's signature. Default: FILE.sig, if it exists; for a registry, the signature of the artifact.
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// Connect to the registry without TLS. A registry on this machine never has TLS.
    #[arg(long)]
    plain_http: bool,
    #[command(flatten)]
    allowed: ChangePermissions,
    #[command(flatten)]
    gateway: GatewayArguments,
}

impl InstallArguments {
    /// Reads the component and its signature from files, or pulls them.
    async fn read(&self) -> anyhow::Result<(Vec<u8>, Option<Signature>)> {
        let (component, named) = (&self.component, self.signature.as_deref());
        match registry::pull(component, self.plain_http).await? {
            None => Ok((
                read_component(component)?,
                find_signature(component, named)?,
            )),
            Some(pulled) => Ok((
                pulled.component,
                match named {
                    Some(_) => find_signature(component, named)?,
                    None => pulled.signature,
                },
            )),
        }
    }
}

/// Permissions for changes that a gateway refuses by default.
#[derive(clap::Args)]
struct ChangePermissions {
    /// Accept an older version than the publisher has signed for the slot before.
    #[arg(long)]
    allow_downgrade: bool,
    /// Accept a component of another publisher, who then owns the slot.
    #[arg(long)]
    change_publisher: bool,
}

#[derive(clap::Args)]
pub(in crate::cli) struct ActivateArguments {
    #[command(flatten)]
    named: ComponentArguments,
    /// Activate the component as the slot's canary, for a share of the accounts, such as 5%.
    ///
    /// weir compares the figures of the canary and of the active component. The canary ends automatically if it is certainly worse: if it
    /// traps or fails more often, is slower, or reports another number of tokens; or, for a filter, if it refuses, changes or stops
    /// another share of requests. `weir plugin show` prints the figures. `weir plugin rollback` ends the canary. To promote the canary,
    /// activate it without a share.
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    share: Option<CanaryShare>,
    /// Promote the canary automatically after this time without a finding, such as 90s, 30m or 2h.
    ///
    /// The promotion also waits until the canary is certainly not worse: for at least 100 requests and six groups of accounts on both
    /// sides.
    #[arg(long, value_name = "SPAN", value_parser = span, requires = "share")]
    promote_after: Option<Duration>,
    #[command(flatten)]
    allowed: ChangePermissions,
}

#[derive(clap::Args)]
pub(in crate::cli) struct ShowSlotArguments {
    /// The slot.
    #[arg(value_parser = slot_name)]
    slot: String,
    #[command(flatten)]
    gateway: GatewayArguments,
}

#[derive(clap::Args)]
pub(in crate::cli) struct RollbackArguments {
    /// The slot.
    #[arg(value_parser = slot_name)]
    slot: String,
    /// The digest of the canary or the active component, or the beginning of it. If the slot serves with another component by then,
    /// the gateway refuses the rollback.
    #[arg(long, value_name = "DIGEST")]
    from: Option<String>,
    #[command(flatten)]
    gateway: GatewayArguments,
}

#[derive(clap::Args)]
pub(in crate::cli) struct PolicyArguments {
    /// The slot.
    #[arg(value_parser = slot_name)]
    slot: String,
    /// The lowest version that the slot accepts, such as 1.4.0. Default: any.
    #[arg(long, value_name = "VERSION")]
    least_version: Option<Version>,
    /// The effect of a quarantine of the active component: `roll_back` or `refuse`. Default: `refuse` for a filter whose failure
    /// refuses requests, and otherwise `roll_back`.
    #[arg(long, value_name = "POLICY", value_parser = ["roll_back", "refuse"])]
    on_quarantine: Option<String>,
    #[command(flatten)]
    gateway: GatewayArguments,
}

#[derive(clap::Args)]
pub(in crate::cli) struct ComponentArguments {
    /// The slot.
    #[arg(value_parser = slot_name)]
    slot: String,
    /// The component's digest, or the beginning of it.
    digest: String,
    #[command(flatten)]
    gateway: GatewayArguments,
}

#[derive(clap::Args)]
pub(in crate::cli) struct EventsArguments {
    /// The slot. Default: all slots.
    #[arg(value_parser = slot_name)]
    slot: Option<String>,
    /// The number of events, at most 1000.
    #[arg(long, default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    gateway: GatewayArguments,
}

pub(super) async fn list(config: &Config, gateway: GatewayArguments) -> anyhow::Result<()> {
    let remote = &gateway.remote;
    remote
        .operate(config, async |connection| {
            let slots: GatewayAnswer<SlotList> = connection.get("/admin/plugins").await?;
            slots.show(gateway.json, |SlotList { slots }| {
                let mut table = TextTable::new(&[
                    "SLOT",
                    "KIND",
                    "ACTIVE",
                    "NAME",
                    "VERSION",
                    "SOURCE",
                    "PUBLISHER",
                    "REQUESTS",
                    "ERRORS",
                    "TRAPS",
                    "LATENCY",
                    "CREDITS",
                    "CLAMPS",
                    "CANARY",
                ]);
                for slot in slots {
                    let active = slot
                        .plugins
                        .iter()
                        .find(|plugin| Some(&plugin.digest) == slot.active.as_ref());
                    match active {
                        Some(plugin) => table.row([
                            slot.slot.clone(),
                            slot.kind.clone(),
                            short(&plugin.digest),
                            plugin.name.clone(),
                            plugin.version.clone(),
                            plugin.source.clone(),
                            optional(&plugin.publisher),
                            plugin.requests.to_string(),
                            plugin.errors.to_string(),
                            plugin.traps.to_string(),
                            latency(plugin),
                            plugin.credits.to_string(),
                            plugin.clamps.to_string(),
                            slot.canary.as_ref().map_or_else(
                                || "-".to_owned(),
                                |canary| format!("{} {}", short(&canary.digest), share_of(canary)),
                            ),
                        ]),
                        None => table.row([
                            slot.slot.clone(),
                            slot.kind.clone(),
                            "none: it refuses".into(),
                        ]),
                    }
                }
                table.print();
            });
            Ok(())
        })
        .await
}

pub(super) async fn show(config: &Config, show: ShowSlotArguments) -> anyhow::Result<()> {
    let remote = &show.gateway.remote;
    remote
        .operate(config, async |connection| {
            let slot: GatewayAnswer<SlotItem> = connection.get(&slot_path(&show.slot)).await?;
            slot.show(show.gateway.json, print_slot);
            Ok(())
        })
        .await
}

pub(super) async fn install(config: &Config, install: InstallArguments) -> anyhow::Result<()> {
    let (bytes, signature) = install.read().await?;
    let remote = &install.gateway.remote;
    remote
        .operate(config, async |connection| {
            // This request fails for callers without permission. A refusal during the upload would break the connection.
            let _: GatewayAnswer<SlotList> = connection.get("/admin/plugins").await?;
            let path = format!(
                "{}?activate={}&allow_downgrade={}&change_publisher={}",
                slot_path(&install.slot),
                install.activate,
                install.allowed.allow_downgrade,
                install.allowed.change_publisher,
            );
            let installed: GatewayAnswer<InstalledItem> =
                upload(connection, &path, bytes.into(), signature.as_ref()).await?;
            installed.show(install.gateway.json, |installed| {
                let InstalledItem {
                    slot,
                    digest,
                    name,
                    version,
                    publisher,
                    active,
                } = installed;
                let by = match publisher {
                    Some(publisher) => format!("signed by {publisher}"),
                    None => "unsigned".to_owned(),
                };
                println!("Installed {name} {version}, {by}, in the slot {slot}: {digest}");
                match active {
                    true => println!("The slot serves with it."),
                    false => println!(
                        "To activate it: weir plugin activate {slot} {}",
                        short(digest)
                    ),
                }
            });
            Ok(())
        })
        .await
}

pub(super) async fn activate(config: &Config, activate: ActivateArguments) -> anyhow::Result<()> {
    let ActivateArguments {
        named,
        share,
        promote_after,
        allowed,
    } = activate;
    let remote = &named.gateway.remote;
    remote
        .operate(config, async |connection| {
            let digest = find(connection, &named).await?;
            let mut body = serde_json::json!({
                "digest": digest,
                "allow_downgrade": allowed.allow_downgrade,
                "change_publisher": allowed.change_publisher,
            });
            if let Some(share) = share {
                body["share"] = share.fraction().into();
            }
            if let Some(span) = promote_after {
                body["promote_after_seconds"] = span.as_secs().into();
            }
            let slot: GatewayAnswer<SlotItem> = connection
                .post(&(slot_path(&named.slot) + "/activate"), &body)
                .await?;
            slot.show(named.gateway.json, print_slot);
            Ok(())
        })
        .await
}

pub(super) async fn roll_back(config: &Config, rollback: RollbackArguments) -> anyhow::Result<()> {
    let remote = &rollback.gateway.remote;
    remote
        .operate(config, async |connection| {
            let body = match &rollback.from {
                Some(from) => {
                    let digest = find_digest(connection, &rollback.slot, from).await?;
                    serde_json::json!({ "from": digest })
                }
                None => serde_json::json!({}),
            };
            let slot: GatewayAnswer<SlotItem> = connection
                .post(&(slot_path(&rollback.slot) + "/rollback"), &body)
                .await?;
            slot.show(rollback.gateway.json, print_slot);
            Ok(())
        })
        .await
}

pub(super) async fn set_policy(config: &Config, policy: PolicyArguments) -> anyhow::Result<()> {
    let remote = &policy.gateway.remote;
    remote
        .operate(config, async |connection| {
            let body = serde_json::json!({
                "least_version": policy.least_version.as_ref().map(Version::to_string),
                "on_quarantine": policy.on_quarantine,
            });
            let slot: GatewayAnswer<SlotItem> = connection
                .put(&(slot_path(&policy.slot) + "/policy"), &body)
                .await?;
            slot.show(policy.gateway.json, print_slot);
            Ok(())
        })
        .await
}

pub(super) async fn remove(config: &Config, named: ComponentArguments) -> anyhow::Result<()> {
    let remote = &named.gateway.remote;
    remote
        .operate(config, async |connection| {
            let digest = find(connection, &named).await?;
            connection
                .delete(&format!("{}/{digest}", slot_path(&named.slot)))
                .await?;
            match named.gateway.json {
                true => println!("{}", serde_json::json!({ "removed": digest })),
                false => println!("Removed {} from the slot {}.", short(&digest), named.slot),
            }
            Ok(())
        })
        .await
}

pub(super) async fn events(config: &Config, events: EventsArguments) -> anyhow::Result<()> {
    let remote = &events.gateway.remote;
    remote
        .operate(config, async |connection| {
            let path = match &events.slot {
                Some(slot) => slot_path(slot) + "/events",
                None => "/admin/plugins/events".to_owned(),
            };
            let list: GatewayAnswer<EventList> = connection
                .get(&format!("{path}?limit={}", events.limit))
                .await?;
            list.show(events.gateway.json, |EventList { events }| {
                let mut table =
                    TextTable::new(&["AT", "SLOT", "WHAT", "DIGEST", "BEFORE", "WHO", "DETAIL"]);
                for event in events {
                    let digest = |digest: &Option<String>| {
                        digest.as_deref().map_or_else(|| "-".to_owned(), short)
                    };
                    table.row([
                        event.at.clone(),
                        event.slot.clone(),
                        event.kind.clone(),
                        digest(&event.digest),
                        digest(&event.previous),
                        event.actor.clone(),
                        event.detail.clone().unwrap_or_default(),
                    ]);
                }
                table.print();
            });
            Ok(())
        })
        .await
}

/// Returns the complete digest for the digits in the arguments.
async fn find(connection: &AdminConnection, named: &ComponentArguments) -> anyhow::Result<String> {
    find_digest(connection, &named.slot, &named.digest).await
}

/// Returns the complete digest of the component in a slot whose digest begins with these digits.
async fn find_digest(
    connection: &AdminConnection,
    slot: &str,
    digest: &str,
) -> anyhow::Result<String> {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    let digits = digits.to_ascii_lowercase();
    ensure!(
        digits.len() >= LEAST_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        "a digest needs at least {LEAST_DIGITS} hexadecimal digits"
    );
    let found: GatewayAnswer<SlotItem> = connection.get(&slot_path(slot)).await?;
    let plugins = found.parsed.plugins.into_iter().map(|plugin| plugin.digest);
    let mut found: Vec<_> = plugins
        .filter(|digest| digest.starts_with(&digits))
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(digest), true) => Ok(digest),
        (Some(_), false) => bail!("more than one digest begins with {digits}; use more digits"),
        (None, _) => bail!("the slot {slot} has no component whose digest begins with {digits}"),
    }
}

fn share(text: &str) -> Result<CanaryShare, String> {
    let percent = text.strip_suffix('%').map(str::trim_end);
    percent
        .and_then(|percent| percent.parse::<f64>().ok())
        .and_then(|percent| CanaryShare::from_fraction(percent / 100.0))
        .ok_or_else(|| "a share is from 0.01% to 99.99%, such as 5%".to_owned())
}

/// Parses a time span in whole seconds.
pub(in crate::cli) fn span(text: &str) -> Result<Duration, String> {
    let span = text.parse::<SignedDuration>().ok();
    let span = span.and_then(|span| Duration::try_from(span).ok());
    let seconds = span.filter(|span| span.as_secs() > 0 && span.subsec_nanos() == 0);
    seconds.ok_or_else(|| "a time span has whole seconds, such as 90s, 30m or 2h".to_owned())
}

fn slot_path(slot: &str) -> String {
    format!("/admin/plugins/{slot}")
}

fn print_slot(slot: &SlotItem) {
    match (&slot.active, &slot.serving) {
        (Some(active), Some(serving)) if active == serving => {
            println!("The slot {} serves with {}.", slot.slot, short(active));
        }
        (Some(active), serving) => println!(
            "The slot {} will serve with {}; this gateway still serves with {}.",
            slot.slot,
            short(active),
            serving
                .as_deref()
                .map_or_else(|| "nothing".to_owned(), short)
        ),
        (None, _) => println!(
            "The slot {} has no active component and refuses requests.",
            slot.slot
        ),
    }
    if let Some(canary) = &slot.canary {
        print_canary(canary);
    }
    let mut table = TextTable::new(&[
        "DIGEST",
        "STATE",
        "NAME",
        "VERSION",
        "SOURCE",
        "PUBLISHER",
        "INSTALLED",
        "BY",
        "REQUESTS",
        "ERRORS",
        "TRAPS",
        "LATENCY",
        "CREDITS",
        "CLAMPS",
    ]);
    for plugin in &slot.plugins {
        table.row([
            short(&plugin.digest),
            plugin.state.clone(),
            plugin.name.clone(),
            plugin.version.clone(),
            plugin.source.clone(),
            optional(&plugin.publisher),
            optional(&plugin.installed_at),
            optional(&plugin.installed_by),
            plugin.requests.to_string(),
            plugin.errors.to_string(),
            plugin.traps.to_string(),
            latency(plugin),
            plugin.credits.to_string(),
            plugin.clamps.to_string(),
        ]);
    }
    table.print();
}

fn print_canary(canary: &CanaryItem) {
    println!(
        "Its canary is {}, for {} of accounts since {}.",
        short(&canary.digest),
        share_of(canary),
        canary.since,
    );
    match (&canary.promote_at, canary.enough) {
        (Some(at), true) => println!("weir promotes it at {at} unless it is worse."),
        (Some(at), false) => println!(
            "weir promotes it at {at} or later, if it is certainly not worse. This takes at least {LEAST_REQUESTS} requests \
             and {LEAST_GROUPS} groups of accounts on both sides."
        ),
        (None, _) => println!(
            "It serves that share until it is worse, is activated for all accounts, or is rolled back."
        ),
    }
    match &canary.not_loaded {
        Some(why) => println!(
            "It does not load on this gateway, which serves all accounts with the active component: {why}."
        ),
        None if !canary.served => println!("This gateway does not serve with it yet."),
        None => {}
    }
    let mut table = TextTable::new(&[
        "COMPARED BY",
        "ACTIVE",
        "REQUESTS",
        "GROUPS",
        "CANARY",
        "REQUESTS",
        "GROUPS",
        "JUDGEMENT",
    ]);
    for compared in &canary.comparison {
        let value = |side: &SideItem| match (Measure::parse(&compared.measure), side.value) {
            (Some(measure), Some(value)) => in_words(measure, value),
            _ => "-".to_owned(),
        };
        table.row([
            compared.measure.replace('_', " "),
            value(&compared.active),
            compared.active.requests.to_string(),
            compared.active.groups.to_string(),
            value(&compared.canary),
            compared.canary.requests.to_string(),
            compared.canary.groups.to_string(),
            compared.judgement.replace('_', " "),
        ]);
    }
    table.print();
    println!();
}

fn share_of(canary: &CanaryItem) -> String {
    let share = CanaryShare::from_fraction(canary.share);
    share.map_or_else(|| "-".to_owned(), |share| share.to_string())
}

fn latency(plugin: &PluginItem) -> String {
    plugin
        .latency_ms
        .map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"))
}

fn short(digest: &str) -> String {
    digest.chars().take(SHOWN_DIGITS).collect()
}
