//! Slots: which component serves, and how that changes while a gateway runs.
//!
//! A slot serves with what operators have activated in it, or else with what the binary brings. That is written
//! in the database (`store`), and every node [follows](follow) it: at once where the change was made here or
//! Redis announces it, and within half a second otherwise. A change is made by swapping one `Arc`: exchanges under way
//! keep the component that they began with, and it is freed with the last of them.
//!
//! **Invariant:** of what the binary does not bring, nothing is parsed, taken from the cache of compiled code, compiled or
//! run that the configured [publishers](super::trust) do not vouch for, on any node. A publisher's key that is removed holds
//! from a node's next start on: what it signed does not load there.
//! **Invariant:** nothing serves that has not passed every load step on this node, and describes itself here as it did
//! where it was installed. Where the wanted component does not load here, this node is [not ready](Plugins::not_loaded);
//! what served before goes on serving, unless that is in quarantine, and nothing takes its place.
//! **Invariant:** a slot that is changed is never empty for a moment, unless that is the change.
//! **Invariant:** an operator can activate a component, or begin a canary with it, only if every live node can load it ([`ask_live_nodes`]).
//! **Invariant:** a change of one slot waits for no other's: what has to be compiled first is compiled while nothing is
//! locked, by a task of that change alone.
//!
//! A database may be set back: restored from a backup, or failed over to a copy that was behind. Nodes find that by the number of its
//! last change, and follow it all the same: what they knew of later changes belongs to another era.
//!
//! A component that fails too often on one node, for more than one account, goes into quarantine: its slot goes back to
//! what served before, or else to what the binary brings. Only an operator who activates it brings it back. Where neither
//! is sound, it goes on: a slot that refuses everybody would serve whoever has it fail. A slot of a filter that guards refuses
//! requests instead of going back, and so does one whose [policy](super::policy) says so.
//!
//! A slot may have a [canary](super::canary) beside what serves: a second component for a share of the accounts, which ends or
//! serves all by what its figures say. Whatever changes what serves the others ends it. It is never what a slot goes back to,
//! and where it goes into quarantine, its slot goes on with what serves the others.
//!
//! What operators change is in [`operate`], what they see in [`overview`], what components have done in [`counts`], what a node
//! makes of canaries in [`canary`], which component a request gets in [`serving`].

mod canary;
mod counts;
mod fleet;
mod follow;
mod loader;
mod operate;
mod overview;
mod serving;
mod wanted;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::Semaphore;
use weir_sandbox::loading::Arrived;
use weir_sandbox::{Digest, LoadError};
use weir_storage::Database;

pub(super) use self::canary::CanaryOverview;
pub use self::canary::Chosen;
pub use self::fleet::ask_live_nodes;
pub use self::loader::{Loaded, Loader};
pub use self::operate::{Installed, Offer, SlotOperation, Stores};
pub(super) use self::overview::{Origin, SlotCandidate};
pub use self::serving::{InSlot, Serving};
use self::wanted::{fetch, wanted};
use super::bundled::Bundled;
use super::counters::Counters;
use super::policy::OfBinary;
use super::progress::CompileProgress;
use super::store::{Moment, StoreState, Wanted};
use super::trust::{Trust, check_description};
use super::{Component, FilterComponent, Kind, OperationError, Plugin, ToolComponent};

/// The adapters, tools and filters of a running gateway, by slot. Cheap to clone.
#[derive(Clone)]
pub struct Plugins(Arc<Inner>);

struct Inner {
    loader: Loader,
    trust: Trust,
    bundled: BySlot,
    serving: RwLock<Arc<Serving>>,
    synced: Mutex<Synced>,
    /// One component is compiled at a time: a node has better things to do.
    compiling: Semaphore,
    /// And one of those that nobody waits for, so that they are not in others' way for long.
    preparing: Semaphore,
    counters: Mutex<AllCounters>,
}

type BySlot = BTreeMap<Arc<str>, Plugin>;

type AllCounters = BTreeMap<(Arc<str>, Digest), Arc<Counters>>;

/// What a slot is to serve with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// A component.
    Component(Digest),
    /// Nothing: it refuses.
    Nothing,
}

/// What this node has made of the database.
#[derive(Default)]
struct Synced {
    /// How far the database was when all slots were last looked at.
    state: Option<StoreState>,
    /// The latest state that this node has read, also for one slot alone: it tells whether the database was set back.
    seen: Option<StoreState>,
    /// How often the database was found set back.
    era: u64,
    /// The moment that each slot is of: a slow look must not undo what a quick one has done since.
    slots: BTreeMap<String, Moment>,
    /// Slots that have a row: operators see to them.
    operated: BTreeSet<String>,
    /// Components that were loaded in order to be activated.
    ready: BTreeMap<(String, Digest), Plugin>,
    /// Those that are compiled, or were tried to be.
    prepared: BTreeSet<(String, Digest)>,
    /// Those that tasks are bringing into service.
    being_brought: BTreeSet<(String, Target)>,
    /// Questions of other nodes that tasks are answering.
    answering: BTreeSet<String>,
    /// Those that do not load here.
    failed: BTreeMap<(String, Digest), NotLoaded>,
    /// The number of each slot's canary, and the moment that it is of.
    canaries: BTreeMap<String, (Moment, Option<i64>)>,
    /// Those that tasks are bringing into service, by number.
    canaries_brought: BTreeSet<i64>,
    /// Those that do not load here, by slot, with their number.
    canaries_failed: BTreeMap<String, (i64, NotLoaded)>,
}

/// Why a component does not load here, and when it is tried again.
struct NotLoaded {
    why: String,
    again: Instant,
}

impl Synced {
    /// Notes that a slot is of a moment, unless it is of a later one.
    fn claim(&mut self, slot: &str, moment: Moment) -> bool {
        let of = self.slots.entry(slot.to_owned()).or_insert(moment);
        let is_latest = *of <= moment;
        *of = moment.max(*of);
        is_latest
    }

    /// Notes a slot's canary, unless what is known of it is of a later moment.
    fn claim_canary(&mut self, slot: &str, moment: Moment, number: Option<i64>) -> bool {
        let known = self.canaries.entry(slot.to_owned()).or_default();
        let is_latest = known.0 <= moment;
        if is_latest {
            *known = (moment, number);
        }
        is_latest
    }

    /// Whether a canary still is its slot's.
    fn wants_canary(&self, slot: &str, number: i64) -> bool {
        let known = self.canaries.get(slot);
        known.is_some_and(|(_, wanted)| *wanted == Some(number))
    }

    /// Whether nothing is left to do at a state of the database.
    fn is_at(&self, state: StoreState) -> bool {
        let now = Instant::now();
        let canaries = self.canaries_failed.values().map(|(_, failed)| failed);
        let mut failed = self.failed.values().chain(canaries);
        // A slot may have been brought further since then, and the database set back to the state of then.
        let is_latest = self.state == Some(state) && self.seen == Some(state);
        is_latest && failed.all(|failed| failed.again > now)
    }
}

impl Plugins {
    /// Loads what the binary brings, side by side; a component that fails a step stops the start, with its name.
    pub async fn load(
        loader: Loader,
        trust: Trust,
        bundled: &[Bundled],
        progress: &CompileProgress,
    ) -> Result<Self, (String, LoadError)> {
        let mut arrived = Vec::new();
        for Bundled { name, bytes } in bundled {
            let bytes = match bytes.clone() {
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                Cow::Owned(bytes) => bytes.into(),
            };
            arrived.push((name.clone(), Arrived::new(bytes).await));
        }
        let is_new = |own: &Arrived| !loader.is_compiled(&own.digest);
        progress.begin(arrived.iter().filter(|(_, own)| is_new(own)).count());
        // Each may be compiled by a child, with threads of its own.
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
            let mut in_slot = InSlot::default();
            in_slot.activate(Some(component.clone()));
            (slot.clone(), in_slot)
        });
        Ok(Self(Arc::new(Inner {
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

    /// Whether so many guests have room at once.
    pub fn has_room_for(&self, guests: u32) -> bool {
        self.0.loader.engine().has_room_for(guests)
    }

    /// The adapter that a slot serves with, but for a canary's accounts; `None` where it refuses, is for something else, or
    /// there is no such slot.
    pub fn adapter(&self, slot: &str) -> Option<Arc<Component>> {
        match self.serving_in(slot)? {
            Plugin::Adapter(adapter) => Some(adapter),
            Plugin::Tool(_) | Plugin::Filter(_) => None,
        }
    }

    /// The tool that a slot serves with, but for a canary's accounts; `None` as of [`Self::adapter`].
    pub fn tool(&self, slot: &str) -> Option<Arc<ToolComponent>> {
        match self.serving_in(slot)? {
            Plugin::Tool(tool) => Some(tool),
            Plugin::Adapter(_) | Plugin::Filter(_) => None,
        }
    }

    /// The filter that a slot serves with, but for a canary's accounts; `None` as of [`Self::adapter`].
    pub fn filter(&self, slot: &str) -> Option<Arc<FilterComponent>> {
        match self.serving_in(slot)? {
            Plugin::Filter(filter) => Some(filter),
            Plugin::Adapter(_) | Plugin::Tool(_) => None,
        }
    }

    /// Whether there is such a slot, and nothing of another kind serves in it.
    pub fn has_slot_of(&self, kind: Kind, slot: &str) -> bool {
        let serving = self.serving();
        let in_slot = serving.get(slot).map(InSlot::active);
        in_slot.is_some_and(|plugin| plugin.is_none_or(|plugin| plugin.kind() == kind))
    }

    /// What a slot serves with, but for a canary's accounts; `None` where it refuses, or there is no such slot.
    pub fn serving_in(&self, slot: &str) -> Option<Plugin> {
        self.serving().get(slot)?.active().cloned()
    }

    /// All slots, and what each serves with.
    pub fn serving(&self) -> Arc<Serving> {
        let serving = self.0.serving.read();
        serving.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a component need not be compiled any more.
    pub fn is_compiled(&self, digest: &Digest) -> bool {
        self.0.loader.is_compiled(digest)
    }

    /// What the binary brings for a slot.
    pub fn bundled(&self, slot: &str) -> Option<&Plugin> {
        self.0.bundled.get(slot)
    }

    /// Slots whose components do not load on this node, and why, as a sentence about each.
    pub fn not_loaded(&self) -> Vec<String> {
        let synced = self.lock_synced();
        let failed = synced.failed.iter();
        failed
            .map(|((slot, digest), NotLoaded { why, .. })| {
                format!(
                    "What is activated in the slot {slot} ({digest}) does not load here: {why}."
                )
            })
            .collect()
    }

    /// Whether operators have changed a slot, or installed anything in it.
    pub fn is_operated(&self, slot: &str) -> bool {
        self.lock_synced().operated.contains(slot)
    }

    fn slots<'a>(&'a self, wanted: &'a Wanted) -> impl Iterator<Item = &'a str> {
        let bundled = self.0.bundled.keys().map(|slot| &**slot);
        bundled.chain(wanted.slots.keys().map(|slot| &**slot))
    }

    /// What a slot is for; `None` where nothing is in it.
    fn kind_of(&self, slot: &str, wanted: &Wanted) -> Option<Kind> {
        let bundled = self.bundled(slot).map(Plugin::kind);
        bundled.or_else(|| wanted.kinds.get(slot).copied())
    }

    fn of_binary(&self, slot: &str) -> Option<OfBinary<'_>> {
        self.bundled(slot).map(|component| OfBinary {
            digest: component.digest(),
            version: component.version(),
        })
    }

    fn bundled_digest(&self, slot: &str) -> Option<Digest> {
        self.bundled(slot).map(|component| component.digest())
    }

    /// A component of a slot, loaded.
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
            let why = "it says something else of itself than where it was installed";
            return Err(LoadError::Description(why.into()).into());
        }
        check_description(fetched.signed.as_ref(), &plugin)?;
        Ok(plugin)
    }

    /// Has a component at hand for whoever brings its slot to it, until what is returned is dropped.
    fn make_ready(&self, slot: &str, component: Plugin) -> Ready<'_> {
        let key = (slot.to_owned(), component.digest());
        self.lock_synced().ready.insert(key.clone(), component);
        Ready { plugins: self, key }
    }

    async fn load_arrived(&self, slot: &str, arrived: Arrived) -> Result<Loaded, LoadError> {
        let loader = &self.0.loader;
        // Only who compiles waits for others who do.
        let _turn = match loader.is_compiled(&arrived.digest) {
            true => None,
            false => self.0.compiling.acquire().await.ok(),
        };
        loader.load_arrived(slot, arrived).await
    }

    /// Has a component count where all of its digest in its slot count.
    fn admit(&self, loaded: Loaded) -> Plugin {
        let code = loaded.code();
        let key = (code.name.clone(), code.digest);
        let counters = self.lock_counters().entry(key).or_default().clone();
        loaded.counting(counters)
    }

    /// What all slots are to serve with.
    async fn wanted(&self, database: &Database) -> sqlx::Result<Wanted> {
        // As of before the read: what is read while the database is set back belongs to the era before.
        let era = self.lock_synced().era;
        let wanted = wanted(database).await?;
        Ok(Wanted { era, ..wanted })
    }

    fn lock_counters(&self) -> MutexGuard<'_, AllCounters> {
        let counters = self.0.counters.lock();
        counters.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_synced(&self) -> MutexGuard<'_, Synced> {
        let synced = self.0.synced.lock();
        synced.unwrap_or_else(PoisonError::into_inner)
    }

    fn swap(&self, slot: &str, component: Option<Plugin>, moment: Moment) {
        let mut synced = self.lock_synced();
        if synced.claim(slot, moment) {
            self.change_slot(slot, |in_slot| in_slot.activate(component));
        }
    }

    fn change_slot(&self, slot: &str, change: impl FnOnce(&mut InSlot)) {
        self.change(|serving| change(serving.entry(Arc::from(slot)).or_default()));
    }

    /// Forgets slots that are gone.
    fn retain(&self, slots: &BTreeSet<&str>) {
        if self.serving().keys().any(|slot| !slots.contains(&**slot)) {
            self.change(|serving| serving.retain(|slot, _| slots.contains(&**slot)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Serving)) {
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

/// A component that is at hand.
struct Ready<'a> {
    plugins: &'a Plugins,
    key: (String, Digest),
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.plugins.lock_synced().ready.remove(&self.key);
    }
}

impl Target {
    /// The component of this digest, or nothing without one.
    fn of(digest: Option<Digest>) -> Self {
        digest.map_or(Self::Nothing, Self::Component)
    }
}

fn digest_of(in_slot: &InSlot) -> Option<Digest> {
    in_slot.active().map(Plugin::digest)
}
