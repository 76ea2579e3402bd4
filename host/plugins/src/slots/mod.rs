//! Slots: the serving components, and their changes while a gateway runs.
//!
//! A slot serves with the component that operators have activated in it, or else with the bundled one. The database
//! (`store`) has that state, and every node [follows](follow) it: at once if the change was made here or Redis
//! announces it, and within half a second otherwise. A change swaps one `Arc`: exchanges under way keep their
//! component, which is freed with the last of them.
//!
//! **Invariant:** no node parses, loads from the code cache, compiles or runs a component that is neither bundled nor
//! vouched for by the configured [publishers](super::trust). The removal of a publisher's key takes effect at a
//! node's next start: components signed by it no longer load there.
//! **Invariant:** a component serves only if it has passed every load step on this node, and its description here
//! equals the one at its installation. If the wanted component does not load here, this node is [not
//! ready](Plugins::not_loaded); the earlier component continues to serve, unless it is in quarantine, and no other
//! takes its place.
//! **Invariant:** a change never leaves a slot empty for a moment, unless that is the change.
//! **Invariant:** an operator can activate a component, or begin a canary with it, only if every live node can load it ([`Plugins::ask_live_nodes`]).
//! **Invariant:** a change of one slot waits for no other slot's: a task of that change alone compiles its component,
//! without a lock.
//!
//! A database may be set back: restored from a backup, or failed over to a replica that lagged. Nodes detect that by
//! the number of its last change, and follow it all the same: their knowledge of later changes belongs to another
//! era.
//!
//! A component that fails too often on one node, for more than one account, is quarantined: its slot rolls back to
//! its earlier component, or else to the bundled one. Only an operator who activates the component ends its
//! quarantine. If neither is sound, the component continues to serve: otherwise a client that makes it fail could
//! make the slot refuse all requests. A slot of a filter that guards refuses requests instead of rolling back, and so
//! does a slot with that [policy](super::policy).
//!
//! A slot may have a [canary](super::canary) beside the active component: a second component for a share of the
//! accounts, whose figures decide whether it ends or serves all. Any change of the active component ends the canary.
//! A slot never rolls back to a canary; if the canary is quarantined, the active component serves all accounts.
//!
//! Changes by operators are in [`operate`], their views in [`overview`], counters in [`counts`], a node's canaries in
//! [`canary`], the choice of a component for a request in [`serving`].

mod canary;
mod counts;
mod desired_slots;
mod fleet;
mod follow;
mod loader;
mod operate;
mod overview;
mod serving;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::Semaphore;
use weir_sandbox::loading::UploadedComponent;
use weir_sandbox::{Digest, LoadError};
use weir_storage::Database;

pub use self::canary::ChosenComponent;
use self::desired_slots::{fetch, wanted};
pub use self::loader::{LoadedComponent, Loader};
pub use self::operate::{ComponentOffer, InstalledComponent, SlotOperation, Stores};
pub use self::serving::{ServingSlots, SlotComponents};
use super::bundled::BundledComponent;
use super::counters::Counters;
use super::policy::BundledVersion;
use super::progress::CompileProgress;
use super::store::{DesiredSlots, ReadOrder, StoreState};
use super::trust::{Trust, check_description};
use super::{Component, FilterComponent, OperationError, Plugin, PluginKind, ToolComponent};

/// The adapters, tools and filters of a running gateway, by slot. Cheap to clone.
#[derive(Clone)]
pub struct Plugins(Arc<PluginsInner>);

struct PluginsInner {
    loader: Loader,
    trust: Trust,
    bundled: BySlot,
    serving: RwLock<Arc<ServingSlots>>,
    synced: Mutex<SyncedState>,
    /// One component is compiled at a time, to leave the processor to requests.
    compiling: Semaphore,
    /// One more for compilations without a waiter, which must not delay others.
    preparing: Semaphore,
    counters: Mutex<AllCounters>,
}

type BySlot = BTreeMap<Arc<str>, Plugin>;

type AllCounters = BTreeMap<(Arc<str>, Digest), Arc<Counters>>;

/// The wanted state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SlotTarget {
    Component(Digest),
    /// No component: the slot refuses requests.
    Nothing,
}

/// This node's view of the database.
#[derive(Default)]
struct SyncedState {
    /// The state of the database at the last complete poll.
    state: Option<StoreState>,
    /// The latest state that this node has read, also for one slot alone: it shows whether the database was set back.
    seen: Option<StoreState>,
    /// Number of times that the database was found set back.
    era: u64,
    /// The moment of each slot's state: a slow poll must not undo a faster one.
    slots: BTreeMap<String, ReadOrder>,
    /// Slots with a row in the database, which operators manage.
    operated: BTreeSet<String>,
    /// Components that were loaded for an activation.
    ready: BTreeMap<(String, Digest), Plugin>,
    /// Components with a finished attempt to compile them.
    prepared: BTreeSet<(String, Digest)>,
    /// Components that tasks are loading.
    being_brought: BTreeSet<(String, SlotTarget)>,
    /// Questions of other nodes that tasks are answering.
    answering: BTreeSet<String>,
    /// Components that do not load here.
    failed: BTreeMap<(String, Digest), LoadFailure>,
    /// The number of each slot's canary, and the moment of that state.
    canaries: BTreeMap<String, (ReadOrder, Option<i64>)>,
    /// Canaries that tasks are loading, by number.
    canaries_brought: BTreeSet<i64>,
    /// Canaries that do not load here, by slot, with their number.
    canaries_failed: BTreeMap<String, (i64, LoadFailure)>,
}

/// The reason that a component does not load here, and the time of the next attempt.
struct LoadFailure {
    why: String,
    again: Instant,
}

impl SyncedState {
    /// Notes the moment of a slot's state, unless a later one is known.
    fn claim(&mut self, slot: &str, moment: ReadOrder) -> bool {
        let of = self.slots.entry(slot.to_owned()).or_insert(moment);
        let is_latest = *of <= moment;
        *of = moment.max(*of);
        is_latest
    }

    /// Notes a slot's canary, unless a later state is known.
    fn claim_canary(&mut self, slot: &str, moment: ReadOrder, number: Option<i64>) -> bool {
        let known = self.canaries.entry(slot.to_owned()).or_default();
        let is_latest = known.0 <= moment;
        if is_latest {
            *known = (moment, number);
        }
        is_latest
    }

    /// Returns whether a canary is still its slot's.
    fn wants_canary(&self, slot: &str, number: i64) -> bool {
        let known = self.canaries.get(slot);
        known.is_some_and(|(_, wanted)| *wanted == Some(number))
    }

    /// Returns whether this node has fully applied a state of the database.
    fn is_at(&self, state: StoreState) -> bool {
        let now = Instant::now();
        let canaries = self.canaries_failed.values().map(|(_, failed)| failed);
        let mut failed = self.failed.values().chain(canaries);
        // A slot may have advanced since then, and the database been set back to that state.
        let is_latest = self.state == Some(state) && self.seen == Some(state);
        is_latest && failed.all(|failed| failed.again > now)
    }
}

impl Plugins {
    /// Loads the bundled components in parallel; a component that fails a step stops the start, with its name.
    pub async fn load(
        loader: Loader,
        trust: Trust,
        bundled: &[BundledComponent],
        progress: &CompileProgress,
    ) -> Result<Self, (String, LoadError)> {
        let mut arrived = Vec::new();
        for BundledComponent { name, bytes } in bundled {
            let bytes = match bytes.clone() {
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                Cow::Owned(bytes) => bytes.into(),
            };
            arrived.push((name.clone(), UploadedComponent::new(bytes).await));
        }
        let is_new = |own: &UploadedComponent| !loader.is_own_compiled(&own.digest);
        progress.begin(arrived.iter().filter(|(_, own)| is_new(own)).count());
        // A child with threads of its own may compile each.
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let turns = Arc::new(Semaphore::new(cores));
        let loads: Vec<_> = arrived
            .into_iter()
            .map(|(name, own)| {
                let (loader, turns) = (loader.clone(), turns.clone());
                let compiling = is_new(&own).then(|| progress.clone());
                tokio::spawn(async move {
                    let _turn = turns.acquire().await;
                    let loaded = loader.load_own(&name, own).await;
                    if let Some(progress) = compiling {
                        progress.compiled(&name);
                    }
                    loaded.map_err(|error| (name.into_owned(), error))
                })
            })
            .collect();
        let mut components = BySlot::new();
        let mut counters = BTreeMap::new();
        for load in loads {
            let loaded = load
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
            let plugin = loaded.counting(Arc::default());
            let key = (plugin.slot().clone(), plugin.digest());
            tracing::debug!(plugin = &*key.0, digest = %key.1, "plugin loaded");
            counters.insert(key.clone(), plugin.counters().clone());
            components.insert(key.0, plugin);
        }
        let serving = components.iter().map(|(slot, component)| {
            let mut in_slot = SlotComponents::default();
            in_slot.activate(Some(component.clone()));
            (slot.clone(), in_slot)
        });
        Ok(Self(Arc::new(PluginsInner {
            loader,
            trust,
            serving: RwLock::new(Arc::new(serving.collect())),
            bundled: components,
            synced: Mutex::default(),
            compiling: Semaphore::new(1),
            preparing: Semaphore::new(1),
            counters: Mutex::new(counters),
        })))
    }

    /// Returns whether this many concurrent guests have room.
    pub fn has_room_for(&self, guests: u32) -> bool {
        self.0.loader.engine().has_room_for(guests)
    }

    /// The active adapter of a slot, regardless of canaries; `None` if the slot refuses, has another kind, or does
    /// not exist.
    pub fn adapter(&self, slot: &str) -> Option<Arc<Component>> {
        match self.serving_in(slot)? {
            Plugin::Adapter(adapter) => Some(adapter),
            Plugin::Tool(_) | Plugin::Filter(_) => None,
        }
    }

    /// The active tool of a slot, regardless of canaries; `None` as of [`Self::adapter`].
    pub fn tool(&self, slot: &str) -> Option<Arc<ToolComponent>> {
        match self.serving_in(slot)? {
            Plugin::Tool(tool) => Some(tool),
            Plugin::Adapter(_) | Plugin::Filter(_) => None,
        }
    }

    /// The active filter of a slot, regardless of canaries; `None` as of [`Self::adapter`].
    pub fn filter(&self, slot: &str) -> Option<Arc<FilterComponent>> {
        match self.serving_in(slot)? {
            Plugin::Filter(filter) => Some(filter),
            Plugin::Adapter(_) | Plugin::Tool(_) => None,
        }
    }

    /// Returns whether the slot exists and no component of another kind serves in it.
    pub fn has_slot_of(&self, kind: PluginKind, slot: &str) -> bool {
        let serving = self.serving();
        let in_slot = serving.get(slot).map(SlotComponents::active);
        in_slot.is_some_and(|plugin| plugin.is_none_or(|plugin| plugin.kind() == kind))
    }

    /// The active component of a slot, regardless of canaries; `None` if the slot refuses, or does not exist.
    pub fn serving_in(&self, slot: &str) -> Option<Plugin> {
        self.serving().get(slot)?.active().cloned()
    }

    /// Returns all slots with their components.
    pub fn serving(&self) -> Arc<ServingSlots> {
        let serving = self.0.serving.read();
        serving.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether a component's compiled code is cached.
    pub fn is_compiled(&self, digest: &Digest) -> bool {
        self.0.loader.is_compiled(digest)
    }

    pub fn bundled(&self, slot: &str) -> Option<&Plugin> {
        self.0.bundled.get(slot)
    }

    /// Returns a sentence with the reason for each slot whose component does not load on this node.
    pub fn not_loaded(&self) -> Vec<String> {
        let synced = self.lock_synced();
        let failed = synced.failed.iter();
        failed
            .map(|((slot, digest), LoadFailure { why, .. })| {
                format!(
                    "The active component of the slot {slot} ({digest}) does not load here: {why}."
                )
            })
            .collect()
    }

    /// Returns whether operators have changed a slot, or installed a component in it.
    pub fn is_operated(&self, slot: &str) -> bool {
        self.lock_synced().operated.contains(slot)
    }

    fn slots<'a>(&'a self, wanted: &'a DesiredSlots) -> impl Iterator<Item = &'a str> {
        let bundled = self.0.bundled.keys().map(|slot| &**slot);
        bundled.chain(wanted.slots.keys().map(|slot| &**slot))
    }

    /// Returns the kind of a slot; `None` if it is empty.
    fn kind_of(&self, slot: &str, wanted: &DesiredSlots) -> Option<PluginKind> {
        let bundled = self.bundled(slot).map(Plugin::kind);
        bundled.or_else(|| wanted.kinds.get(slot).copied())
    }

    fn of_binary(&self, slot: &str) -> Option<BundledVersion<'_>> {
        self.bundled(slot).map(|component| BundledVersion {
            digest: component.digest(),
            version: component.version(),
        })
    }

    fn bundled_digest(&self, slot: &str) -> Option<Digest> {
        self.bundled(slot).map(|component| component.digest())
    }

    /// Loads a component of a slot.
    async fn find(
        &self,
        database: &Database,
        slot: &str,
        digest: Digest,
    ) -> Result<Plugin, OperationError> {
        let key = (slot.to_owned(), digest);
        let at_hand = [
            self.lock_synced().ready.get(&key).cloned(),
            self.bundled(slot).cloned(),
            self.serving_in(slot),
            self.canary_in(slot).map(|canary| canary.plugin.clone()),
        ];
        let mut at_hand = at_hand.into_iter().flatten();
        if let Some(component) = at_hand.find(|component| component.digest() == digest) {
            return Ok(component);
        }
        let Some(fetched) = fetch(database, slot, digest, &self.0.trust).await? else {
            let wanted = self.wanted(database).await?;
            let is_known = self.slots(&wanted).any(|known| known == slot);
            return Err(match is_known {
                true => OperationError::UnknownPlugin,
                false => OperationError::UnknownSlot,
            });
        };
        let plugin = self.admit(self.load_arrived(slot, fetched.arrived).await?);
        if fetched.description != plugin.description() {
            let why = "its description differs from the one at its installation";
            return Err(LoadError::Description(why.into()).into());
        }
        check_description(fetched.signed.as_ref(), &plugin)?;
        Ok(plugin)
    }

    /// Keeps a loaded component for the change of its slot, until the returned value is dropped.
    fn make_ready(&self, slot: &str, component: Plugin) -> PreparedComponent<'_> {
        let key = (slot.to_owned(), component.digest());
        self.lock_synced().ready.insert(key.clone(), component);
        PreparedComponent { plugins: self, key }
    }

    async fn load_arrived(
        &self,
        slot: &str,
        arrived: UploadedComponent,
    ) -> Result<LoadedComponent, LoadError> {
        let loader = &self.0.loader;
        // Only a compilation waits for other compilations.
        let _turn = match loader.is_compiled(&arrived.digest) {
            true => None,
            false => self.0.compiling.acquire().await.ok(),
        };
        loader.load_arrived(slot, arrived).await
    }

    /// Returns a component that shares the counters of its digest in its slot.
    fn admit(&self, loaded: LoadedComponent) -> Plugin {
        let code = loaded.code();
        let key = (code.name.clone(), code.digest);
        let counters = self.lock_counters().entry(key).or_default().clone();
        loaded.counting(counters)
    }

    /// Reads the wanted state of all slots.
    async fn wanted(&self, database: &Database) -> sqlx::Result<DesiredSlots> {
        // Read before the query: a result that is read while the database is set back belongs to the earlier era.
        let era = self.lock_synced().era;
        let wanted = wanted(database).await?;
        Ok(DesiredSlots { era, ..wanted })
    }

    fn lock_counters(&self) -> MutexGuard<'_, AllCounters> {
        let counters = self.0.counters.lock();
        counters.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_synced(&self) -> MutexGuard<'_, SyncedState> {
        let synced = self.0.synced.lock();
        synced.unwrap_or_else(PoisonError::into_inner)
    }

    fn swap(&self, slot: &str, component: Option<Plugin>, moment: ReadOrder) {
        let mut synced = self.lock_synced();
        if synced.claim(slot, moment) {
            self.change_slot(slot, |in_slot| in_slot.activate(component));
        }
    }

    fn change_slot(&self, slot: &str, change: impl FnOnce(&mut SlotComponents)) {
        self.change(|serving| change(serving.entry(Arc::from(slot)).or_default()));
    }

    /// Forgets slots that no longer exist.
    fn retain(&self, slots: &BTreeSet<&str>) {
        if self.serving().keys().any(|slot| !slots.contains(&**slot)) {
            self.change(|serving| serving.retain(|slot, _| slots.contains(&**slot)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut ServingSlots)) {
        let mut serving = self
            .0
            .serving
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut changed = BTreeMap::clone(&serving);
        change(&mut changed);
        *serving = Arc::new(changed);
    }
}

/// A component that is kept loaded.
struct PreparedComponent<'a> {
    plugins: &'a Plugins,
    key: (String, Digest),
}

impl Drop for PreparedComponent<'_> {
    fn drop(&mut self) {
        self.plugins.lock_synced().ready.remove(&self.key);
    }
}

impl SlotTarget {
    /// The component of this digest; without a digest, no component.
    fn of(digest: Option<Digest>) -> Self {
        digest.map_or(Self::Nothing, Self::Component)
    }
}

fn digest_of(in_slot: &SlotComponents) -> Option<Digest> {
    in_slot.active().map(Plugin::digest)
}
