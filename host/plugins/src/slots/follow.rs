//! Following the database: each slot is brought to its wanted component.
//!
//! A poll reads the wanted state, swaps loaded components, and leaves others to a task for each slot and component:
//! while one compiles, the next poll applies every other change.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use weir_ledger::BootId;
use weir_sandbox::{Digest, loading};
use weir_storage::clock::Clock;
use weir_storage::{Cache, Database};

use super::desired_slots::fetch;
use super::operate::Stores;
use super::{LoadFailure, Loader, Plugins, PluginsInner, SlotTarget, digest_of};
use crate::OperationError;
use crate::metrics::PluginMetrics;
use crate::store::{self, DesiredSlots};

/// Time between two polls for changes without an announcement.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Polls between two writes of counters and judgements of canaries.
const LOOKS_PER_COUNT: u32 = 10;

/// Time before the next attempt to load a component that does not load here.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(30);

impl Plugins {
    /// Follows the database until the last other clone is dropped; also judges canaries, and answers other nodes.
    pub fn follow(
        &self,
        boot_id: BootId,
        database: Database,
        cache: Cache,
        clock: Clock,
        metrics: Arc<PluginMetrics>,
    ) {
        let plugins = Arc::downgrade(&self.0);
        tokio::spawn(follow(plugins, boot_id, database, cache, clock, metrics));
    }

    /// Brings every slot to its wanted component, and waits for it.
    pub async fn sync(&self, database: &Database) -> sqlx::Result<()> {
        for task in self.look(database).await? {
            task.await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        }
        Ok(())
    }

    /// Brings every slot to its wanted component if that is loaded; tasks load the rest.
    async fn look(&self, database: &Database) -> sqlx::Result<Vec<JoinHandle<sqlx::Result<()>>>> {
        let state = store::state(database).await?;
        if self.lock_synced().is_at(state) {
            return Ok(Vec::new());
        }
        // Read before the query: another query may be quicker.
        let earlier = self.lock_synced().seen;
        let mut wanted = self.wanted(database).await?;
        if earlier.is_some_and(|earlier| wanted.state.is_set_back_from(earlier)) {
            wanted.era = self.begin_era();
        }
        let wanted = Arc::new(wanted);
        let slots: BTreeSet<&str> = self.slots(&wanted).collect();
        let mut tasks = Vec::new();
        for &slot in &slots {
            match self.change_of(slot, &wanted) {
                // A task that still loads an earlier wanted component is too late.
                None => {
                    self.lock_synced().claim(slot, wanted.moment());
                }
                Some(target) if self.is_at_hand(slot, target) => {
                    self.bring(database, slot, target, &wanted).await?;
                }
                Some(target) => tasks.extend(self.bring_aside(database, slot, target, &wanted)),
            }
            tasks.extend(self.follow_canary(database, slot, &wanted));
        }
        self.retain(&slots);
        let first = {
            let mut synced = self.lock_synced();
            synced.operated = wanted.slots.keys().cloned().collect();
            // Failures of components that are no longer wanted are forgotten.
            synced.failed.retain(|(slot, digest), _| {
                wanted.active(slot, self.bundled_digest(slot)) == Some(*digest)
            });
            synced.canaries_failed.retain(|slot, (number, _)| {
                wanted.canary(slot).map(|canary| canary.number) == Some(*number)
            });
            synced.seen = Some(wanted.state);
            synced.state.replace(wanted.state).is_none()
        };
        self.prepare(database, &wanted, first);
        Ok(tasks)
    }

    /// Begins an era: the database was set back, and this node's knowledge of it is void. A canary's number may
    /// belong to another canary by now.
    fn begin_era(&self) -> u64 {
        tracing::warn!("the database was set back: slots follow its earlier state");
        let mut synced = self.lock_synced();
        synced.era += 1;
        synced.canaries_failed.clear();
        synced.failed.clear();
        for (slot, _) in self.canaries() {
            self.change_slot(&slot, |in_slot| in_slot.canary = None);
        }
        synced.era
    }

    /// Brings one slot to its wanted component and waits for it, regardless of other slots.
    async fn sync_slot(&self, database: &Database, slot: &str) -> sqlx::Result<()> {
        let earlier = self.lock_synced().seen;
        let wanted = self.wanted(database).await?;
        // The next poll handles a database that was set back.
        if earlier.is_none_or(|earlier| !wanted.state.is_set_back_from(earlier)) {
            self.lock_synced().seen = Some(wanted.state);
        }
        match self.change_of(slot, &wanted) {
            Some(target) => self.bring(database, slot, target, &wanted).await?,
            None => {
                self.lock_synced().claim(slot, wanted.moment());
            }
        }
        match self.canary_to_bring(slot, &wanted) {
            Some(row) => self.bring_canary(database, slot, &row).await,
            None => Ok(()),
        }
    }

    /// Returns a slot's wanted component, if it differs from the serving one.
    fn change_of(&self, slot: &str, wanted: &DesiredSlots) -> Option<SlotTarget> {
        let target = SlotTarget::of(wanted.active(slot, self.bundled_digest(slot)));
        let serving = self.serving();
        let serving = serving.get(slot).map(digest_of).map(SlotTarget::of);
        let failed = match target {
            SlotTarget::Component(digest) => {
                let key = (slot.to_owned(), digest);
                self.lock_synced()
                    .failed
                    .get(&key)
                    .map(|failed| failed.again)
            }
            SlotTarget::Nothing => None,
        };
        let is_due = failed.is_none_or(|at| at <= Instant::now());
        (serving != Some(target) && is_due).then_some(target)
    }

    fn is_at_hand(&self, slot: &str, target: SlotTarget) -> bool {
        let SlotTarget::Component(target) = target else {
            return true;
        };
        let key = (slot.to_owned(), target);
        let canary = self.canary_in(slot).map(|canary| canary.plugin.digest());
        [self.bundled_digest(slot), canary].contains(&Some(target))
            || self.lock_synced().ready.contains_key(&key)
    }

    /// Brings a slot to its target in a task of its own, unless one does so already.
    fn bring_aside(
        &self,
        database: &Database,
        slot: &str,
        target: SlotTarget,
        wanted: &Arc<DesiredSlots>,
    ) -> Option<JoinHandle<sqlx::Result<()>>> {
        let key = (slot.to_owned(), target);
        if !self.lock_synced().being_brought.insert(key.clone()) {
            return None;
        }
        let (plugins, database, wanted) = (self.clone(), database.clone(), wanted.clone());
        Some(tokio::spawn(async move {
            let brought = plugins.bring(&database, &key.0, target, &wanted).await;
            if let Err(error) = &brought {
                tracing::warn!(slot = key.0, %error, "activating a component");
            }
            let mut synced = plugins.lock_synced();
            synced.being_brought.remove(&key);
            // The component may be wanted again by now, or was unreadable: the next poll retries.
            synced.state = None;
            brought
        }))
    }

    /// Brings a slot to its target.
    async fn bring(
        &self,
        database: &Database,
        slot: &str,
        target: SlotTarget,
        wanted: &DesiredSlots,
    ) -> sqlx::Result<()> {
        let SlotTarget::Component(target) = target else {
            tracing::warn!(slot, "the slot refuses requests: it has no sound component");
            self.swap(slot, None, wanted.moment());
            return Ok(());
        };
        let key = (slot.to_owned(), target);
        match self.find(database, slot, target).await {
            Ok(component) => {
                tracing::info!(slot, digest = %target, "the slot serves with another component");
                self.swap(slot, Some(component), wanted.moment());
                // Failures of the slot's earlier targets are void.
                let mut synced = self.lock_synced();
                synced.failed.retain(|(failed, _), _| failed != slot);
            }
            Err(OperationError::Database(error)) => return Err(error),
            Err(error) => {
                tracing::error!(slot, digest = %target, %error, "the slot's component does not load here");
                let not_loaded = LoadFailure {
                    why: error.to_string(),
                    again: Instant::now() + RETRY_AFTER,
                };
                let is_first = {
                    let mut synced = self.lock_synced();
                    synced.failed.insert(key, not_loaded);
                    !synced.slots.contains_key(slot)
                };
                let serving = self.serving_in(slot).map(|plugin| plugin.digest());
                // The bundled component has not served here: it was there before the first poll of the database.
                if is_first || serving.is_none_or(|serving| wanted.is_quarantined(slot, serving)) {
                    self.swap(slot, None, wanted.moment());
                }
            }
        }
        Ok(())
    }

    /// Applies a change that was just written, here now and elsewhere soon. The next poll retries any failure.
    pub(super) async fn after_change(&self, database: &Database, cache: &Cache, slot: &str) {
        // Other nodes can load while this node does.
        if let Err(error) = cache.announce().await {
            tracing::warn!(%error, "announcing a slot's change to other nodes");
        }
        if let Err(error) = self.sync_slot(database, slot).await {
            tracing::warn!(slot, %error, "polling the slot's wanted component");
        }
    }

    /// Compiles components that were installed on other nodes, so that their activation is quick. At this node's
    /// start, it compiles only the components of possible rollbacks.
    fn prepare(&self, database: &Database, wanted: &DesiredSlots, at_the_start: bool) {
        let mut new: BTreeSet<_> = {
            let prepared = &mut self.lock_synced().prepared;
            let new = wanted.installed.difference(prepared).cloned().collect();
            prepared.clone_from(&wanted.installed);
            new
        };
        if at_the_start {
            new.retain(|(slot, digest)| {
                wanted.previous(slot, self.of_binary(slot)) == Some(*digest)
            });
        }
        for (slot, digest) in new {
            let (plugins, database) = (Arc::downgrade(&self.0), database.clone());
            tokio::spawn(async move {
                if let Err(error) = prepare(plugins, &database, &slot, digest).await {
                    tracing::warn!(slot, %digest, %error, "preparing an installed plugin");
                }
            });
        }
    }
}

async fn prepare(
    plugins: Weak<PluginsInner>,
    database: &Database,
    slot: &str,
    digest: Digest,
) -> Result<(), OperationError> {
    let Some(inner) = plugins.upgrade() else {
        return Ok(());
    };
    let loader = &inner.loader;
    let Loader {
        cache, compiler, ..
    } = loader;
    let _preparing = inner.preparing.acquire().await;
    if loader.is_compiled(&digest) {
        return Ok(());
    }
    if let Some(fetched) = fetch(database, slot, digest, &inner.trust).await? {
        let _turn = inner.compiling.acquire().await;
        loading::compile(loader.engine(), compiler, cache.as_ref(), &fetched.arrived).await?;
    }
    Ok(())
}

async fn follow(
    plugins: Weak<PluginsInner>,
    boot_id: BootId,
    database: Database,
    cache: Cache,
    clock: Clock,
    metrics: Arc<PluginMetrics>,
) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut announcements = cache.announcements();
    let mut looks: u32 = 0;
    let mut last_failure = String::new();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = announcements.next() => {}
        }
        let Some(inner) = plugins.upgrade() else {
            return;
        };
        let plugins = Plugins(inner);
        looks = looks.wrapping_add(1);
        let mut outcome = plugins.look(&database).await.map(drop);
        if outcome.is_ok() {
            outcome = plugins.answer_all(&database, &boot_id).await;
        }
        if outcome.is_ok() && looks.is_multiple_of(LOOKS_PER_COUNT) {
            let stores = Stores {
                database: &database,
                cache: &cache,
            };
            outcome = plugins.write_counts(&database).await;
            if outcome.is_ok() {
                outcome = plugins.judge_canaries(stores, clock.now(), &metrics).await;
            }
        }
        match outcome {
            Ok(()) => last_failure.clear(),
            // The gateway has stopped.
            Err(sqlx::Error::PoolClosed) => return,
            // Each reason is logged once: the database may be away for long.
            Err(error) => {
                let why = error.to_string();
                if why != last_failure {
                    tracing::warn!(%error, "polling the wanted components of slots");
                    last_failure = why;
                }
            }
        }
    }
}
