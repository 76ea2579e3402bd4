//! Slots as operators see them: active components, candidates, and the counters of each.

use std::collections::{BTreeMap, BTreeSet};

use weir_sandbox::Digest;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::{Plugins, Wanted, digest_of};
use crate::counters::Counts;
use crate::items::{EventItem, SlotItem, canary_item, plugin_item};
use crate::{Kind, store};

/// A component that a slot could serve with.
pub(crate) struct SlotCandidate {
    pub digest: Digest,
    pub name: String,
    pub version: String,
    pub contract: String,
    pub origin: Origin,
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

type AllCounts = BTreeMap<(String, Digest), Counts>;

impl Plugins {
    /// Returns all slots with their components and figures.
    pub async fn items(&self, database: &Database) -> sqlx::Result<Vec<SlotItem>> {
        let wanted = self.wanted(database).await?;
        let counts = self.counts_until_now(database).await?;
        let mut candidates = self.candidates(database).await?;
        let slots: BTreeSet<&str> = self.slots(&wanted).collect();
        let mut items = Vec::with_capacity(slots.len());
        for slot in slots {
            let candidates = candidates.remove(slot).unwrap_or_default();
            let item = self.item(database, &wanted, slot, candidates, &counts);
            items.push(item.await?);
        }
        Ok(items)
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

    async fn item(
        &self,
        database: &Database,
        wanted: &Wanted,
        slot: &str,
        candidates: Vec<SlotCandidate>,
        counts: &AllCounts,
    ) -> sqlx::Result<SlotItem> {
        let active = wanted.active(slot, self.bundled_digest(slot));
        let previous = wanted.previous(slot, self.of_binary(slot));
        let canary = match wanted.canary(slot) {
            Some(row) => Some(self.canary_overview(database, slot, &row, active).await?),
            None => None,
        };
        let canary_digest = canary.as_ref().map(|canary| canary.digest);
        let state_of = |digest: Digest| {
            let this = Some(digest);
            if active == this {
                "active"
            } else if canary_digest == this {
                "canary"
            } else if wanted.is_quarantined(slot, digest) {
                "quarantined"
            } else if previous == this {
                "previous"
            } else {
                "available"
            }
        };
        let plugins = candidates.into_iter().map(|candidate| {
            let key = (slot.to_owned(), candidate.digest);
            let counts = counts.get(&key).copied().unwrap_or_default();
            let state = state_of(candidate.digest);
            plugin_item(candidate, state, counts)
        });
        let text = |digest: Option<Digest>| digest.map(|digest| digest.to_string());
        let policy = wanted.policy(slot);
        Ok(SlotItem {
            slot: slot.to_owned(),
            // An operator may have removed the slot's last component since. The next list omits such a slot.
            kind: self
                .kind_of(slot, wanted)
                .unwrap_or(Kind::Adapter)
                .as_str()
                .to_owned(),
            active: text(active),
            serving: text(self.serving().get(slot).and_then(digest_of)),
            previous: text(previous),
            canary: canary.map(canary_item),
            least_version: policy.least_version.map(|least| least.to_string()),
            on_quarantine: policy
                .on_quarantine
                .map(|policy| policy.as_str().to_owned()),
            plugins: plugins.collect(),
        })
    }

    /// The figures of all nodes in the database, and this node's own figures since its last write.
    async fn counts_until_now(&self, database: &Database) -> sqlx::Result<AllCounts> {
        let mut counts = store::counts(database).await?;
        // Counts that this node has not written yet. A read must not write: a cancelled one would lose them.
        for ((slot, digest), counters) in self.lock_counters().iter() {
            let sums = counts.entry((slot.to_string(), *digest)).or_default();
            sums.add(&counters.peek());
        }
        Ok(counts)
    }

    /// The components of each slot: first the binary's own, then the installed components with other digests.
    async fn candidates(
        &self,
        database: &Database,
    ) -> sqlx::Result<BTreeMap<String, Vec<SlotCandidate>>> {
        let bundled = self.0.bundled.iter().map(|(slot, plugin)| {
            let candidate = SlotCandidate {
                digest: plugin.digest(),
                name: plugin.name().to_owned(),
                version: plugin.version().to_owned(),
                contract: plugin.contract().to_owned(),
                origin: Origin::Bundled,
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
            };
            (row.slot, candidate)
        });
        let mut candidates: BTreeMap<String, Vec<SlotCandidate>> = BTreeMap::new();
        for (slot, candidate) in bundled.chain(installed) {
            let listed = candidates.entry(slot).or_default();
            // A new binary may bundle a component that an operator installed before.
            if listed.iter().all(|other| other.digest != candidate.digest) {
                listed.push(candidate);
            }
        }
        Ok(candidates)
    }
}
