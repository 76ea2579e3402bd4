//! Slots, their components and their events, as answers tell of them and commands read them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_ledger::Credits;
use weir_storage::clock::Millis;

use super::canary::{Estimate, Finding};
use super::counters::Counts;
use super::slots::{CanaryOverview, Origin, SlotCandidate};
use super::store::EventRow;

/// A slot, and all that could serve in it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SlotItem {
    /// Its name, which providers' `adapter` names, or agents' `tools`.
    pub slot: String,
    /// What it is for: `adapter` or `tool`.
    pub kind: String,
    /// The digest that all nodes are to serve with; `None` where the slot refuses.
    pub active: Option<String>,
    /// The digest that the node which answers serves with: another one for a moment, or if `active` does not
    /// load there.
    pub serving: Option<String>,
    /// What a rollback goes back to.
    pub previous: Option<String>,
    /// What serves a share of the accounts.
    pub canary: Option<CanaryItem>,
    /// The lowest version that it serves with, if any is too low.
    #[serde(default)]
    pub least_version: Option<String>,
    /// What becomes of it if its component is put into quarantine: `roll_back` or `refuse`; null for the default, which is `refuse`
    /// for a filter whose failure refuses requests, and otherwise `roll_back`.
    #[serde(default)]
    pub on_quarantine: Option<String>,
    /// What could serve.
    pub plugins: Vec<PluginItem>,
}

/// A canary: what serves a share of a slot's accounts, until its figures say whether it may serve all.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CanaryItem {
    /// Which code it is.
    pub digest: String,
    /// The share of accounts that it serves, of 1.
    pub share: f64,
    /// When it began.
    pub since: String,
    /// When it is promoted at the earliest; null where an operator does that.
    pub promote_at: Option<String>,
    /// Whether it is certain by every measure that it does no harm, so that it may be promoted.
    pub enough: bool,
    /// Whether the node that answers serves with it.
    pub served: bool,
    /// Why it does not load there. All accounts are served with `active` then.
    pub not_loaded: Option<String>,
    /// How it compares with what serves the others, on all nodes since it began.
    pub comparison: Vec<ComparedItem>,
}

/// How a canary compares by one measure.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ComparedItem {
    /// `traps`, `faults` (traps among them), `errors` (also the client's and the upstream's); of a filter `refusals`, `changes` and
    /// `stops`: each a share of requests. `first_token` and `latency` in microseconds, `tokens`, and `credits` in micro-credits: each
    /// a geometric mean.
    pub measure: String,
    /// Of what serves the others.
    pub active: SideItem,
    /// Of the canary.
    pub canary: SideItem,
    /// `too_few` requests or accounts to say anything, `alike` for certain, `worse` for certain, or `open`: neither is certain.
    pub judgement: String,
}

/// One side of a comparison.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SideItem {
    /// Requests.
    pub requests: i64,
    /// Groups of accounts that they are of, 16 at most.
    pub groups: usize,
    /// The mean over groups, without the lowest and the highest fifth of them; null without a request.
    pub value: Option<f64>,
}

/// A component in a slot.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginItem {
    /// Which code it is.
    pub digest: String,
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the contract that it was built for.
    pub contract: String,
    /// Where it comes from: `bundled` or `installed`.
    pub source: String,
    /// Whose signature it carries.
    pub publisher: Option<String>,
    /// `active`, `canary`, `previous`, `quarantined` or `available`.
    pub state: String,
    /// Bytes; unknown of what the binary brings.
    pub size_bytes: Option<i64>,
    /// When it was installed.
    pub installed_at: Option<String>,
    /// By whom.
    pub installed_by: Option<String>,
    /// Exchanges on all nodes, some seconds late of other nodes.
    pub requests: i64,
    /// Those that ended in an error: the adapter's, the upstream's, the connection's, or the request's own.
    pub errors: i64,
    /// Those that ended in a trap.
    pub traps: i64,
    /// How long an exchange took on average, in milliseconds; null where there was none.
    pub latency_ms: Option<f64>,
    /// What was charged for them.
    #[schema(value_type = f64)]
    pub credits: serde_json::Value,
    /// Answers whose usage, as the component reported it, was not believed.
    pub clamps: i64,
}

/// All slots.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SlotList {
    /// By name.
    pub slots: Vec<SlotItem>,
}

/// A component that has been installed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct InstalledItem {
    /// The slot's name.
    pub slot: String,
    /// Which code it is.
    pub digest: String,
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whose signature it carries.
    pub publisher: Option<String>,
    /// Whether the slot serves with it.
    pub active: bool,
}

/// Something that has happened to a slot.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = PluginEventItem)]
pub struct EventItem {
    /// The moment, by ISO 8601.
    pub at: String,
    /// The slot's name.
    pub slot: String,
    /// `installed`, `activated`, `rolled_back`, `removed`, `quarantined`, `quarantine_withheld`, `canary_started`,
    /// `canary_promoted` or `canary_ended`.
    pub kind: String,
    /// What it was about.
    pub digest: Option<String>,
    /// What the slot served with before.
    pub previous: Option<String>,
    /// Who did it: `user:ID`, `service:E-MAIL`, `local:UID` at the admin socket, or `weir` by itself.
    pub actor: String,
    /// More of it, for people.
    pub detail: Option<String>,
}

/// Events, the newest first.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = PluginEventList)]
pub struct EventList {
    /// The events.
    pub events: Vec<EventItem>,
}

impl EventItem {
    pub(super) fn of(event: EventRow) -> Self {
        Self {
            at: event.at.iso(),
            slot: event.slot,
            kind: event.kind,
            digest: event.digest,
            previous: event.previous_digest,
            actor: event.actor,
            detail: event.detail,
        }
    }
}

/// A canary and its comparison, as operators see them.
pub(super) fn canary_item(canary: CanaryOverview) -> CanaryItem {
    let after_ms = canary.promote_after.map(|after| after.as_millis() as i64);
    // Of a tool or a filter, there are neither first tokens nor charges, and nothing but a filter refuses.
    let measured = canary.findings.iter();
    let measured = measured.filter(|finding| finding.active.requests + finding.canary.requests > 0);
    let promote_at = after_ms.map(|ms| Millis(canary.since.0.saturating_add(ms)));
    CanaryItem {
        digest: canary.digest.to_string(),
        share: canary.share.fraction(),
        since: canary.since.iso(),
        promote_at: promote_at.map(|at| at.iso()),
        enough: canary.is_harmless(),
        served: canary.is_served,
        not_loaded: canary.not_loaded,
        comparison: measured.map(compared_item).collect(),
    }
}

fn compared_item(finding: &Finding) -> ComparedItem {
    let side = |estimate: Estimate| SideItem {
        requests: estimate.requests,
        groups: estimate.groups,
        value: Some(estimate.value).filter(|value| value.is_finite()),
    };
    ComparedItem {
        measure: finding.measure.as_str().to_owned(),
        active: side(finding.active),
        canary: side(finding.canary),
        judgement: finding.judgement.as_str().to_owned(),
    }
}

/// A component in the state `state`, as [`PluginItem::state`] has it, with its figures.
pub(super) fn plugin_item(candidate: SlotCandidate, state: &str, counts: Counts) -> PluginItem {
    let latency_ms = match counts.requests {
        0 => None,
        // To a tenth: more than that is noise.
        requests => Some((counts.latency_us as f64 / requests as f64 / 100.0).round() / 10.0),
    };
    let (source, size_bytes, installed_at, installed_by, publisher) = match candidate.origin {
        Origin::Bundled => ("bundled", None, None, None, None),
        Origin::Installed {
            size_bytes,
            at,
            actor,
            signer,
        } => (
            "installed",
            Some(size_bytes),
            Some(at.iso()),
            Some(actor),
            signer,
        ),
    };
    PluginItem {
        digest: candidate.digest.to_string(),
        name: candidate.name,
        version: candidate.version,
        contract: candidate.contract,
        source: source.to_owned(),
        publisher,
        state: state.to_owned(),
        size_bytes,
        installed_at,
        installed_by,
        requests: counts.requests,
        errors: counts.errors,
        traps: counts.traps,
        latency_ms,
        credits: Credits::from_micro(counts.credits).to_json(),
        clamps: counts.clamps,
    }
}
