//! Slots as operators see them: active components, candidates, and the counters of each.

use std::collections::BTreeMap;

use weir_sandbox::Digest;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::canary::CanaryOverview;
use super::{Plugins, digest_of};
use crate::counters::Counts;
use crate::items::{EventItem, SlotItem};
use crate::policy::SlotPolicy;
use crate::{Kind, store};

/// A slot as operators see it.
pub(crate) struct Overview {
    pub slot: String,
    pub kind: Kind,
    /// The component that all nodes should serve with.
    pub active: Option<Digest>,
    /// The component of this node.
    pub serving: Option<Digest>,
    /// The component that a rollback would activate.
    pub previous: Option<Digest>,
    pub canary: Option<CanaryOverview>,
    pub policy: SlotPolicy,
    pub candidates: Vec<SlotCandidate>,
}

/// A component that could serve in a slot.
pub(crate) struct SlotCandidate {
    pub digest: Digest,
    pub name: String,
    pub version: String,
    pub contract: String,
    pub origin: Origin,
    pub standing: Standing,
    pub counts: Counts,
}

/// The source of a component.
pub(crate) enum Origin {
    Bundled,
    Installed {
        size_bytes: i64,
        at: Millis,
        actor: String,
        signer: Option<String>,
    },
}

/// The state of a component in its slot.
pub(crate) enum Standing {
    Active,
    Canary,
    Previous,
    Quarantined,
    Available,
}

impl Plugins {
    /// Returns all slots with their components and figures.
    pub async fn items(&self, database: &Database) -> sqlx::Result<Vec<SlotItem>> {
        let slots = self.overview(database).await?;
        Ok(slots.into_iter().map(SlotItem::of).collect())
    }

    /// Returns the latest events of one slot or of all slots, newest first, at most `limit`.
    pub async fn events(
        &self,
        database: &Database,
        slot: Option<&str>,
        limit: u32,
    ) -> sqlx::Result<Vec<EventItem>> {
        let events = store::events(database, slot, limit).await?;
        Ok(events.into_iter().map(EventItem::of).collect())
    }

    /// Returns all slots with their candidates and current counters.
    async fn overview(&self, database: &Database) -> sqlx::Result<Vec<Overview>> {
        let wanted = self.wanted(database).await?;
        let mut counts = store::counts(database).await?;
        // Counts that this node has not written yet. A read must not write: a cancelled one would lose them.
        for ((slot, digest), counters) in self.lock_counters().iter() {
            let sums = counts.entry((slot.to_string(), *digest)).or_default();
            sums.add(&counters.peek());
        }
        let serving = self.serving();
        let mut slots = BTreeMap::new();
        for slot in self.slots(&wanted) {
            let bundled = self.bundled_digest(slot);
            slots.entry(slot.to_owned()).or_insert_with(|| Overview {
                slot: slot.to_owned(),
                // All components of the slot were removed meanwhile; the next read omits it.
                kind: self.kind_of(slot, &wanted).unwrap_or(Kind::Adapter),
                active: wanted.active(slot, bundled),
                serving: serving.get(slot).and_then(digest_of),
                previous: wanted.previous(slot, self.of_binary(slot)),
                policy: wanted.policy(slot),
                canary: None,
                candidates: Vec::new(),
            });
        }
        for overview in slots.values_mut() {
            if let Some(row) = wanted.canary(&overview.slot) {
                let canary = self.canary_overview(database, &overview.slot, &row, overview.active);
                overview.canary = Some(canary.await?);
            }
        }
        let bundled = self.0.bundled.iter().map(|(slot, plugin)| {
            let candidate = SlotCandidate {
                digest: plugin.digest(),
                name: plugin.name().to_owned(),
                version: plugin.version().to_owned(),
                contract: plugin.contract().to_owned(),
                origin: Origin::Bundled,
                standing: Standing::Available,
                counts: Counts::default(),
            };
            (slot.to_string(), candidate)
        });
        let installed = store::installed(database).await?.into_iter().map(|row| {
            let candidate = SlotCandidate {
                digest: row.digest,
                name: row.name,
                version: row.version,
                contract: row.wit_version,
                origin: Origin::Installed {
                    size_bytes: row.size_bytes,
                    at: row.installed_at,
                    actor: row.installed_by,
                    signer: row.signer,
                },
                standing: Standing::Available,
                counts: Counts::default(),
            };
            (row.slot, candidate)
        });
        for (slot, mut candidate) in bundled.chain(installed) {
            // A component may have been installed since, or an upgrade may have bundled an installed one.
            let Some(overview) = slots.get_mut(&slot) else {
                continue;
            };
            let mut listed = overview.candidates.iter();
            if listed.any(|listed| listed.digest == candidate.digest) {
                continue;
            }
            let key = (slot, candidate.digest);
            let this = Some(candidate.digest);
            let canary = overview.canary.as_ref().map(|canary| canary.digest);
            candidate.standing = if overview.active == this {
                Standing::Active
            } else if canary == this {
                Standing::Canary
            } else if wanted.is_quarantined(&key.0, key.1) {
                Standing::Quarantined
            } else if overview.previous == this {
                Standing::Previous
            } else {
                Standing::Available
            };
            candidate.counts = counts.get(&key).copied().unwrap_or_default();
            overview.candidates.push(candidate);
        }
        Ok(slots.into_values().collect())
    }
}
