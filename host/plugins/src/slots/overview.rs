//! Slots as operators see them: active components, candidates, and the counters of each.

use std::collections::{BTreeMap, BTreeSet};

use weir_ledger::Credits;
use weir_sandbox::Digest;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::canary::CanaryOverview;
use super::{DesiredSlots, Plugins, digest_of};
use crate::canary::{Estimate, Finding};
use crate::counters::ExchangeCounts;
use crate::items::{CanaryItem, ComparedItem, EventItem, PluginItem, SideItem, SlotItem};
use crate::{PluginKind, store};

/// A component that a slot could serve with.
struct SlotCandidate {
    digest: Digest,
    name: String,
    version: String,
    contract: String,
    origin: ComponentOrigin,
}

enum ComponentOrigin {
    Bundled,
    Installed {
        size_bytes: i64,
        at: Millis,
        actor: String,
        signer: Option<String>,
    },
}

type AllCounts = BTreeMap<(String, Digest), ExchangeCounts>;

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
        wanted: &DesiredSlots,
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
                .unwrap_or(PluginKind::Adapter)
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
                origin: ComponentOrigin::Bundled,
            };
            (slot.to_string(), candidate)
        });
        let installed = store::installed(database).await?.into_iter().map(|row| {
            let candidate = SlotCandidate {
                digest: row.digest,
                name: row.name,
                version: row.version,
                contract: row.wit_version,
                origin: ComponentOrigin::Installed {
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

/// A canary and its comparison, as operators see them.
fn canary_item(canary: CanaryOverview) -> CanaryItem {
    let after_ms = canary.promote_after.map(|after| after.as_millis() as i64);
    // Tools and filters have neither first tokens nor charges, and only filters refuse.
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
fn plugin_item(candidate: SlotCandidate, state: &str, counts: ExchangeCounts) -> PluginItem {
    let latency_ms = match counts.requests {
        0 => None,
        // Rounded to a tenth: further digits are noise.
        requests => Some((counts.latency_us as f64 / requests as f64 / 100.0).round() / 10.0),
    };
    let (source, size_bytes, installed_at, installed_by, publisher) = match candidate.origin {
        ComponentOrigin::Bundled => ("bundled", None, None, None, None),
        ComponentOrigin::Installed {
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
