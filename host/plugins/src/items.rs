//! Slots, their components and their events, as responses show them and commands read them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::store::EventRow;

/// A slot with all its components.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SlotItem {
    /// Its name, which providers' `adapter` names, or agents' `tools`.
    pub slot: String,
    /// Its kind: `adapter`, `tool` or `filter`.
    pub kind: String,
    /// The digest that all nodes should serve with; null if the slot refuses requests.
    pub active: Option<String>,
    /// The digest that the responding node serves with. It differs from `active` for a moment after a change, or if
    /// `active` does not load there.
    pub serving: Option<String>,
    /// The digest that a rollback would activate.
    pub previous: Option<String>,
    /// The component that serves a share of the accounts.
    pub canary: Option<CanaryItem>,
    /// The lowest permitted version, if there is a limit.
    #[serde(default)]
    pub least_version: Option<String>,
    /// The reaction to a quarantine of its component: `roll_back` or `refuse`; null for the default, which is
    /// `refuse` for a filter whose failure refuses requests, and otherwise `roll_back`.
    #[serde(default)]
    pub on_quarantine: Option<String>,
    /// The components that could serve.
    pub plugins: Vec<PluginItem>,
}

/// A canary: the component that serves a share of a slot's accounts, until its figures decide whether it may serve
/// all.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CanaryItem {
    /// The digest of its code.
    pub digest: String,
    /// The share of accounts that it serves, from 0 to 1.
    pub share: f64,
    /// The time of its beginning.
    pub since: String,
    /// The earliest time of its promotion; null if an operator promotes it.
    pub promote_at: Option<String>,
    /// The absence of harm is certain by every measure: the canary may be promoted.
    pub enough: bool,
    /// The responding node serves with it.
    pub served: bool,
    /// The reason that it does not load there. All accounts are served with `active` then.
    pub not_loaded: Option<String>,
    /// The comparison with the active component, on all nodes since its beginning.
    pub comparison: Vec<ComparedItem>,
}

/// The comparison of a canary by one measure.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ComparedItem {
    /// `traps`, `faults` (including traps), `errors` (including the client's and the upstream's); for filters
    /// `refusals`, `changes` and `stops`: each a share of requests. `first_token` and `latency` in microseconds,
    /// `tokens`, and `credits` in micro-credits: each a geometric mean.
    pub measure: String,
    /// The active component's side.
    pub active: SideItem,
    /// The canary's side.
    pub canary: SideItem,
    /// `too_few` (too few requests or accounts), `alike` (certain), `worse` (certain), or `open` (neither is
    /// certain).
    pub judgement: String,
}

/// One side of a comparison.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SideItem {
    /// Requests.
    pub requests: i64,
    /// Groups of accounts that sent them, at most 16.
    pub groups: usize,
    /// The mean over groups, without the lowest and the highest fifth; null without a request.
    pub value: Option<f64>,
}

/// A component in a slot.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PluginItem {
    /// The digest of its code.
    pub digest: String,
    /// The name in its description.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the contract for which it was built.
    pub contract: String,
    /// Its source: `bundled` or `installed`.
    pub source: String,
    /// The publisher that signed it.
    pub publisher: Option<String>,
    /// `active`, `canary`, `previous`, `quarantined` or `available`.
    pub state: String,
    /// Bytes; null for bundled components.
    pub size_bytes: Option<i64>,
    /// The time of its installation.
    pub installed_at: Option<String>,
    /// The actor of its installation.
    pub installed_by: Option<String>,
    /// Exchanges on all nodes; counts of other nodes arrive some seconds late.
    pub requests: i64,
    /// Exchanges that ended in an error of the adapter, the upstream, the connection or the request.
    pub errors: i64,
    /// Exchanges that ended in a trap.
    pub traps: i64,
    /// Mean duration of an exchange, in milliseconds; null without an exchange.
    pub latency_ms: Option<f64>,
    /// Total charges.
    #[schema(value_type = f64)]
    pub credits: serde_json::Value,
    /// Responses whose usage, as the component reported it, was rejected.
    pub clamps: i64,
}

/// All slots.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SlotList {
    /// The slots, sorted by name.
    pub slots: Vec<SlotItem>,
}

/// A component that has been installed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct InstalledItem {
    /// The slot's name.
    pub slot: String,
    /// The digest of its code.
    pub digest: String,
    /// The name in its description.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The publisher that signed it.
    pub publisher: Option<String>,
    /// The slot serves with it.
    pub active: bool,
}

/// An event of a slot.
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
    /// The component that the event concerns.
    pub digest: Option<String>,
    /// The slot's component before the event.
    pub previous: Option<String>,
    /// The actor: `user:ID`, `service:E-MAIL`, `local:UID` at the admin socket, or `weir` by itself.
    pub actor: String,
    /// Details, for people.
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
