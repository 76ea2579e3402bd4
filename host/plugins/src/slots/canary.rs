//! Canaries on this node: started and ended as the database says, sampled, and judged.
//!
//! A node that cannot load a canary serves all accounts with the active component, and does not sample: the node is
//! ready, since it serves all requests, and gives the reason in its log and in its admin responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use weir_ledger::AccountId;
use weir_sandbox::Digest;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::follow::RETRY_AFTER;
use super::operate::{ITSELF, Stores};
use super::serving::Canary;
use super::{LoadFailure, Plugins};
use crate::canary::compare::{compare, is_harmless, worst};
use crate::canary::samples::Sampler;
use crate::canary::{CanaryShare, Finding, span};
use crate::metrics::{CanaryEnd, PluginMetrics};
use crate::store::{self, CanaryRow, DesiredSlots, SlotChange};
use crate::{Component, FilterComponent, OperationError, Plugin, ToolComponent};

/// A component that was chosen for a request.
pub struct ChosenComponent<T> {
    pub component: Arc<T>,
    /// The request's sampler, if its slot has a canary.
    pub sampler: Option<Sampler>,
}

/// A canary as operators see it.
pub(super) struct CanaryOverview {
    pub digest: Digest,
    pub share: CanaryShare,
    pub since: Millis,
    pub promote_after: Option<Duration>,
    /// The responding node serves with it.
    pub is_served: bool,
    /// The reason that it does not load there.
    pub not_loaded: Option<String>,
    pub findings: Vec<Finding>,
}

impl CanaryOverview {
    /// Returns whether the absence of harm is certain.
    pub(crate) fn is_harmless(&self) -> bool {
        is_harmless(&self.findings)
    }
}

impl Plugins {
    /// The adapter that serves an account; `None` as of [`Self::adapter`].
    pub fn adapter_for(
        &self,
        slot: &str,
        account: &AccountId,
    ) -> Option<ChosenComponent<Component>> {
        let serving = self.serving();
        let (Plugin::Adapter(adapter), sampler) = serving.get(slot)?.choose(account)? else {
            return None;
        };
        Some(ChosenComponent {
            component: adapter.clone(),
            sampler,
        })
    }

    /// The tool that serves an account; `None` as of [`Self::tool`].
    pub fn tool_for(
        &self,
        slot: &str,
        account: &AccountId,
    ) -> Option<ChosenComponent<ToolComponent>> {
        let serving = self.serving();
        let (Plugin::Tool(tool), sampler) = serving.get(slot)?.choose(account)? else {
            return None;
        };
        Some(ChosenComponent {
            component: tool.clone(),
            sampler,
        })
    }

    /// The filter that serves an account; `None` as of [`Self::filter`].
    pub fn filter_for(
        &self,
        slot: &str,
        account: &AccountId,
    ) -> Option<ChosenComponent<FilterComponent>> {
        let serving = self.serving();
        let (Plugin::Filter(filter), sampler) = serving.get(slot)?.choose(account)? else {
            return None;
        };
        Some(ChosenComponent {
            component: filter.clone(),
            sampler,
        })
    }

    /// Returns the canaries of this node, and the share of accounts that each serves.
    pub fn canary_shares(&self) -> impl Iterator<Item = (Plugin, f64)> {
        let canaries = self.canaries().into_iter();
        canaries.map(|(_, canary)| (canary.plugin.clone(), canary.share.fraction()))
    }

    pub(super) fn canaries(&self) -> Vec<(Arc<str>, Arc<Canary>)> {
        let serving = self.serving();
        let canaries = serving
            .iter()
            .filter_map(|(slot, in_slot)| Some((slot.clone(), in_slot.canary.clone()?)));
        canaries.collect()
    }

    pub(super) fn canary_in(&self, slot: &str) -> Option<Arc<Canary>> {
        self.serving().get(slot)?.canary.clone()
    }

    /// Brings a slot's canary to the wanted state, in a task of its own, since it may have to be loaded first.
    pub(super) fn follow_canary(
        &self,
        database: &Database,
        slot: &str,
        wanted: &DesiredSlots,
    ) -> Option<JoinHandle<sqlx::Result<()>>> {
        let row = self.canary_to_bring(slot, wanted)?;
        if !self.lock_synced().canaries_brought.insert(row.number) {
            return None;
        }
        let (plugins, database, slot) = (self.clone(), database.clone(), slot.to_owned());
        Some(tokio::spawn(async move {
            let brought = plugins.bring_canary(&database, &slot, &row).await;
            let mut synced = plugins.lock_synced();
            synced.canaries_brought.remove(&row.number);
            if let Err(error) = &brought {
                tracing::warn!(slot, %error, "starting a canary");
                // The next poll retries.
                synced.state = None;
            }
            brought
        }))
    }

    /// Returns the canary that must be loaded, if any. A canary that has ended stops serving here.
    pub(super) fn canary_to_bring(&self, slot: &str, wanted: &DesiredSlots) -> Option<CanaryRow> {
        let row = wanted.canary(slot);
        let number = row.map(|row| row.number);
        let mut synced = self.lock_synced();
        if !synced.claim_canary(slot, wanted.moment(), number) {
            return None;
        }
        let serving = self.canary_in(slot).map(|canary| canary.number);
        if serving.is_some() && serving != number {
            self.change_slot(slot, |in_slot| in_slot.canary = None);
        }
        let failed = synced.canaries_failed.get(slot);
        let failed = failed.filter(|(of, _)| Some(*of) == number);
        let is_due = failed.is_none_or(|(_, failed)| failed.again <= Instant::now());
        row.filter(|_| is_due && serving != number)
    }

    /// Loads a canary, and serves with it unless it has ended by then.
    pub(super) async fn bring_canary(
        &self,
        database: &Database,
        slot: &str,
        row: &CanaryRow,
    ) -> sqlx::Result<()> {
        match self.find(database, slot, row.digest).await {
            Ok(plugin) => {
                let mut synced = self.lock_synced();
                synced.canaries_failed.remove(slot);
                let serving = self.canary_in(slot).map(|canary| canary.number);
                if synced.wants_canary(slot, row.number) && serving != Some(row.number) {
                    tracing::info!(slot, digest = %row.digest, "the slot has a canary");
                    self.change_slot(slot, |in_slot| in_slot.begin(row, plugin));
                }
            }
            Err(OperationError::Database(error)) => return Err(error),
            Err(error) => {
                tracing::error!(
                    slot, digest = %row.digest, %error,
                    "the slot's canary does not load here: the active component serves all accounts"
                );
                let not_loaded = LoadFailure {
                    why: error.to_string(),
                    again: Instant::now() + RETRY_AFTER,
                };
                let mut synced = self.lock_synced();
                let failed = &mut synced.canaries_failed;
                failed.insert(slot.to_owned(), (row.number, not_loaded));
            }
        }
        Ok(())
    }

    /// Writes this node's samples for canaries since the last call.
    pub(super) async fn write_samples(&self, database: &Database) -> sqlx::Result<()> {
        for (slot, canary) in self.canaries() {
            for tally in canary.tallies() {
                let samples = tally.take();
                let written =
                    store::add_samples(database, &slot, canary.number, tally.digest(), &samples);
                if let Err(error) = written.await {
                    tally.put_back(&samples);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Judges this node's canaries by their figures on all nodes: ends worse canaries, and promotes harmless ones
    /// after their time.
    pub async fn judge_canaries(
        &self,
        stores: Stores<'_>,
        now: Millis,
        metrics: &PluginMetrics,
    ) -> sqlx::Result<()> {
        for (slot, canary) in self.canaries() {
            let Some(active) = self.serving_in(&slot) else {
                continue;
            };
            let (digest, database) = (canary.plugin.digest(), stores.database);
            let samples = store::samples(database, &slot, canary.number).await?;
            let of = |digest| samples.get(&digest).copied().unwrap_or_default();
            let findings = compare(&of(active.digest()), &of(digest));
            let change = SlotChange {
                slot: &slot,
                actor: ITSELF,
                at: now,
            };
            let end = if let Some(worse) = worst(&findings) {
                let why = worse.to_string();
                let has_ended = store::end_canary(database, change, canary.number, &why).await?;
                if has_ended {
                    tracing::error!(slot = &*slot, %digest, "a canary is rolled back: {why}");
                }
                has_ended.then_some(CanaryEnd::RolledBack)
            } else if let Some(after) = canary.promote_after
                && is_over(after, canary.since, now)
                && is_harmless(&findings)
            {
                let why = format!("it was not worse for {}", span(after));
                let bundled = self.bundled_digest(&slot);
                let is_promoted =
                    store::promote_canary(database, change, canary.number, bundled, &why).await?;
                if is_promoted {
                    tracing::info!(slot = &*slot, %digest, "a canary is promoted: {why}");
                }
                is_promoted.then_some(CanaryEnd::Promoted)
            } else {
                continue;
            };
            if let Some(end) = end {
                metrics.canary_end(&canary.plugin, end);
            }
            self.after_change(database, stores.cache, &slot).await;
        }
        Ok(())
    }

    /// Returns a slot's canary as operators see it.
    pub(super) async fn canary_overview(
        &self,
        database: &Database,
        slot: &str,
        row: &CanaryRow,
        active: Option<Digest>,
    ) -> sqlx::Result<CanaryOverview> {
        let mut samples = store::samples(database, slot, row.number).await?;
        let here = self.canary_in(slot);
        let here = here.filter(|canary| canary.number == row.number);
        // Samples that this node has not written yet.
        for tally in here.iter().flat_map(|canary| canary.tallies()) {
            let of_digest = samples.entry(tally.digest()).or_default();
            of_digest.add_all(&tally.peek());
        }
        let of = |digest: Option<Digest>| {
            let of_digest = digest.and_then(|digest| samples.get(&digest));
            of_digest.copied().unwrap_or_default()
        };
        let synced = self.lock_synced();
        let failed = synced.canaries_failed.get(slot);
        let failed = failed.filter(|(number, _)| *number == row.number);
        Ok(CanaryOverview {
            digest: row.digest,
            share: row.share,
            since: row.since,
            promote_after: row.promote_after,
            is_served: here.is_some(),
            not_loaded: failed.map(|(_, failed)| failed.why.clone()),
            findings: compare(&of(active), &of(Some(row.digest))).to_vec(),
        })
    }
}

/// Returns whether this much time has passed since then.
fn is_over(span: Duration, since: Millis, now: Millis) -> bool {
    let passed = now.0.saturating_sub(since.0).max(0).unsigned_abs();
    u128::from(passed) >= span.as_millis()
}
