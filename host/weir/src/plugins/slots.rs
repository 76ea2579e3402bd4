//! Slots: which component serves, and how that changes while a gateway runs.
//!
//! A slot serves with what operators have activated in it, or else with what the binary brings. That is written
//! in the database ([`super::store`]), and every node follows it: at once where the change was made here or Redis
//! announces it, and within [`LOOK_EVERY`] otherwise. A change is made by swapping one `Arc`: exchanges under way keep
//! the component that they began with, and it is freed with the last of them.
//!
//! **Invariant:** nothing serves that has not passed every load step on this node. Where the wanted component
//! does not load here, what serves goes on serving, unless that is in quarantine.
//! **Invariant:** a slot that is changed is never empty for a moment, unless that is the change.
//! **Invariant:** a change of one slot waits for no other's: what has to be compiled first is compiled while nothing is
//! locked.
//!
//! A component that traps too often on one node goes into quarantine: its slot goes back to what served before, or else
//! to what the binary brings, or else refuses. Only an operator who activates it brings it back.
//!
//! A share of callers on a second digest has its place in the row that [`store::activate`] writes, and signatures of
//! publishers in [`loading::load_arrived`]; neither is built.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;

use super::bundled::Bundled;
use super::code_cache::CodeCache;
use super::compiler::Compiler;
use super::counters::{Counters, Counts};
use super::loading::{self, Arrived, LoadError};
use super::store::{self, Change, NewPlugin, Wanted};
use super::{Adapter, Digest, Engine, Limits};
use weir_storage::clock::Millis;
use weir_storage::{Cache, Database};

/// How often a node looks for changes that nobody has told it of.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often what components have done is written, in looks.
const LOOKS_PER_COUNT: u32 = 10;

/// How long reading what all slots are to serve with may take: a connection that is cut off says nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// When a component that does not load here is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The actor of what nobody has asked for.
const ITSELF: &str = "weir";

/// What loads components.
#[derive(Clone)]
pub struct Loader {
    /// Where they run.
    pub engine: Engine,
    /// Where compiled code is kept.
    pub cache: Arc<CodeCache>,
    /// What compiles those that arrive at run time.
    pub compiler: Compiler,
    /// What each guest may use.
    pub limits: Limits,
}

/// The adapters of a running gateway, by slot. Cheap to clone.
#[derive(Clone)]
pub struct Plugins(Arc<Inner>);

struct Inner {
    loader: Loader,
    bundled: Adapters,
    serving: RwLock<Arc<Serving>>,
    synced: Mutex<Synced>,
    /// One component is compiled at a time: a node has better things to do.
    compiling: Semaphore,
    /// And one of those that nobody waits for, so that they are not in others' way for long.
    preparing: Semaphore,
    counters: Mutex<AllCounters>,
}

type Adapters = BTreeMap<Arc<str>, Arc<Adapter>>;

type AllCounters = BTreeMap<(Arc<str>, Digest), Arc<Counters>>;

/// What each slot serves with; `None` where it refuses.
pub type Serving = BTreeMap<Arc<str>, Option<Arc<Adapter>>>;

/// What this node has made of the database.
#[derive(Default)]
struct Synced {
    generation: Option<i64>,
    /// The generation that each slot is of: a slow look must not undo what a quick one has done since.
    slots: BTreeMap<String, i64>,
    /// Slots that have a row: operators see to them.
    operated: BTreeSet<String>,
    /// Components that were loaded in order to be activated.
    ready: BTreeMap<(String, Digest), Arc<Adapter>>,
    /// Those that are compiled, or were tried to be.
    prepared: BTreeSet<(String, Digest)>,
    /// Those that do not load here, and when they are tried again.
    failed: BTreeMap<(String, Digest), Instant>,
}

impl Synced {
    /// Notes that a slot is of a generation, unless it is of a later one.
    fn claim(&mut self, slot: &str, generation: i64) -> bool {
        let of = self.slots.entry(slot.to_owned()).or_insert(generation);
        let is_latest = *of <= generation;
        *of = generation.max(*of);
        is_latest
    }

    /// Whether nothing is left to do at a generation.
    fn is_at(&self, generation: i64) -> bool {
        let now = Instant::now();
        self.generation == Some(generation) && self.failed.values().all(|at| *at > now)
    }
}

/// Why an operator's change was not made.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The component fails a load step.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is no such slot.
    #[error("there is no such slot")]
    UnknownSlot,
    /// Nothing of that digest is installed in the slot.
    #[error("no such component is installed in the slot")]
    UnknownPlugin,
    /// The slot serves with it.
    #[error("the slot serves with it")]
    InUse,
    /// The slot has nothing to go back to.
    #[error("there is nothing to go back to")]
    NothingBefore,
    /// The gateway's configuration needs what the component does not have.
    #[error("{0}")]
    DoesNotFit(String),
    /// The database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Where changes are written, and announced.
#[derive(Clone, Copy)]
pub struct Stores<'a> {
    /// Where they are written.
    pub database: &'a Database,
    /// Where other nodes hear of them.
    pub cache: &'a Cache,
}

/// Who changes a slot, and when.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Which slot.
    pub slot: String,
    /// Who, e.g. `user:usr_…`.
    pub actor: String,
    /// When.
    pub at: Millis,
}

impl Operation {
    fn change(&self) -> Change<'_> {
        Change {
            slot: &self.slot,
            actor: &self.actor,
            at: self.at,
        }
    }
}

/// A component that was installed.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Its digest.
    pub digest: Digest,
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether it was not there before.
    pub is_new: bool,
}

/// A slot as operators see it.
pub(super) struct Overview {
    pub slot: String,
    /// What all nodes are to serve with.
    pub active: Option<Digest>,
    /// What this one does.
    pub serving: Option<Digest>,
    /// What it would go back to.
    pub previous: Option<Digest>,
    pub candidates: Vec<Candidate>,
}

/// A component that a slot could serve with.
pub(super) struct Candidate {
    pub digest: Digest,
    pub name: String,
    pub version: String,
    pub contract: String,
    pub source: Source,
    pub standing: Standing,
    pub counts: Counts,
}

/// Where a component comes from.
pub(super) enum Source {
    Bundled,
    Installed {
        size_bytes: i64,
        at: Millis,
        actor: String,
    },
}

/// What a component is to its slot.
pub(super) enum Standing {
    Active,
    Previous,
    Quarantined,
    Available,
}

pub(super) use super::store::events;

impl Plugins {
    /// Loads what the binary brings, side by side; a component that fails a step stops the start, with its name.
    pub async fn load(loader: Loader, bundled: &[Bundled]) -> Result<Self, (String, LoadError)> {
        let loads: Vec<_> = bundled
            .iter()
            .map(|plugin| {
                let loader = loader.clone();
                let (name, bytes) = (plugin.name.clone(), plugin.bytes.clone());
                tokio::spawn(async move {
                    let Loader {
                        engine,
                        cache,
                        limits,
                        ..
                    } = &loader;
                    loading::load(engine, Some(cache), limits, &name, &bytes)
                        .await
                        .map_err(|error| (name.into_owned(), error))
                })
            })
            .collect();
        let mut adapters = Adapters::new();
        let mut counters = BTreeMap::new();
        for load in loads {
            let adapter = load
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
            tracing::debug!(plugin = &**adapter.name(), digest = %adapter.digest(), "plugin loaded");
            let key = (adapter.name().clone(), adapter.digest());
            counters.insert(key, adapter.counters.clone());
            adapters.insert(adapter.name().clone(), Arc::new(adapter));
        }
        let serving = adapters
            .iter()
            .map(|(slot, adapter)| (slot.clone(), Some(adapter.clone())));
        Ok(Self(Arc::new(Inner {
            loader,
            serving: RwLock::new(Arc::new(serving.collect())),
            bundled: adapters,
            synced: Mutex::default(),
            compiling: Semaphore::new(1),
            preparing: Semaphore::new(1),
            counters: Mutex::new(counters),
        })))
    }

    /// What a slot serves with; `None` where it refuses, or there is no such slot.
    pub fn adapter(&self, slot: &str) -> Option<Arc<Adapter>> {
        self.serving().get(slot).cloned().flatten()
    }

    /// All slots, and what each serves with.
    pub fn serving(&self) -> Arc<Serving> {
        let serving = self.0.serving.read();
        serving.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the binary brings for a slot.
    pub fn bundled(&self, slot: &str) -> Option<&Arc<Adapter>> {
        self.0.bundled.get(slot)
    }

    /// Follows the database until the last other clone is gone.
    pub fn follow(&self, database: Database, cache: Cache) {
        tokio::spawn(follow(Arc::downgrade(&self.0), database, cache));
    }

    /// Whether operators have changed a slot, or installed anything in it.
    pub fn is_operated(&self, slot: &str) -> bool {
        self.lock_synced().operated.contains(slot)
    }

    /// Has every slot serve with what the database says.
    pub async fn sync(&self, database: &Database) -> sqlx::Result<()> {
        let generation = store::generation(database).await?;
        if self.lock_synced().is_at(generation) {
            return Ok(());
        }
        let wanted = wanted(database).await?;
        let slots: BTreeSet<&str> = self.slots(&wanted).collect();
        let (at_hand, to_load): (Vec<_>, Vec<_>) = slots
            .iter()
            .filter_map(|slot| Some((*slot, self.change_of(slot, &wanted)?)))
            .partition(|(slot, target)| self.is_at_hand(slot, *target));
        for (slot, target) in at_hand.into_iter().chain(to_load) {
            self.bring(database, slot, target, &wanted).await?;
        }
        self.retain(&slots);
        let first = {
            let mut synced = self.lock_synced();
            synced.operated = wanted.slots.keys().cloned().collect();
            // What a slot does not serve with any more is not waited for.
            synced.failed.retain(|(slot, digest), _| {
                wanted.active(slot, self.bundled_digest(slot)) == Some(*digest)
            });
            synced.generation.replace(wanted.generation).is_none()
        };
        self.prepare(database, wanted, first);
        Ok(())
    }

    /// The same for one slot, whatever there is to do about others.
    async fn sync_slot(&self, database: &Database, slot: &str) -> sqlx::Result<()> {
        let wanted = wanted(database).await?;
        match self.change_of(slot, &wanted) {
            Some(target) => self.bring(database, slot, target, &wanted).await,
            None => {
                // Whoever still loads what an earlier look wanted is too late.
                self.lock_synced().claim(slot, wanted.generation);
                Ok(())
            }
        }
    }

    fn slots<'a>(&'a self, wanted: &'a Wanted) -> impl Iterator<Item = &'a str> {
        let bundled = self.0.bundled.keys().map(|slot| &**slot);
        bundled.chain(wanted.slots.keys().map(|slot| &**slot))
    }

    /// What a slot is to serve with, if that is not what it serves with; the inner `None` is nothing.
    fn change_of(&self, slot: &str, wanted: &Wanted) -> Option<Option<Digest>> {
        let target = wanted.active(slot, self.bundled_digest(slot));
        let serving = self.serving().get(slot).map(digest_of);
        let key = target.map(|target| (slot.to_owned(), target));
        let failed = key.and_then(|key| self.lock_synced().failed.get(&key).copied());
        let is_due = failed.is_none_or(|at| at <= Instant::now());
        (serving != Some(target) && is_due).then_some(target)
    }

    fn is_at_hand(&self, slot: &str, target: Option<Digest>) -> bool {
        let Some(target) = target else {
            return true;
        };
        let key = (slot.to_owned(), target);
        self.bundled_digest(slot) == Some(target) || self.lock_synced().ready.contains_key(&key)
    }

    /// Has a slot serve with something else.
    async fn bring(
        &self,
        database: &Database,
        slot: &str,
        target: Option<Digest>,
        wanted: &Wanted,
    ) -> sqlx::Result<()> {
        let Some(target) = target else {
            tracing::warn!(
                slot,
                "the slot refuses requests: nothing sound is left to serve with"
            );
            self.swap(slot, None, wanted.generation);
            return Ok(());
        };
        let key = (slot.to_owned(), target);
        let ready = self.lock_synced().ready.get(&key).cloned();
        let found = match ready {
            Some(adapter) => Ok(adapter),
            None => self.find(database, slot, target).await,
        };
        match found {
            Ok(adapter) => {
                tracing::info!(slot, digest = %target, "the slot serves with another component");
                self.swap(slot, Some(adapter), wanted.generation);
                self.lock_synced().failed.remove(&key);
            }
            Err(OperationError::Database(error)) => return Err(error),
            Err(error) => {
                tracing::error!(slot, digest = %target, %error, "the slot's component does not load here");
                let again = Instant::now() + RETRY_AFTER;
                self.lock_synced().failed.insert(key, again);
                let serving = self.adapter(slot).map(|adapter| adapter.digest());
                if serving.is_none_or(|serving| wanted.is_quarantined(slot, serving)) {
                    self.swap(slot, None, wanted.generation);
                }
            }
        }
        Ok(())
    }

    /// Checks a component and keeps it, ready to be activated. `fits` says what keeps it from being installed in this
    /// gateway, if anything does.
    pub async fn install(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &Operation,
        bytes: Bytes,
        fits: impl FnOnce(&Adapter) -> Result<(), String>,
    ) -> Result<Installed, OperationError> {
        let slot = &*operation.slot;
        let adapter = self
            .load_arrived(slot, Arrived::new(bytes.clone()).await)
            .await?;
        let Adapter {
            description,
            contract,
            ..
        } = &adapter;
        let is_another =
            *description.name != *slot && self.serving().contains_key(description.name.as_str());
        if is_another {
            return Err(LoadError::NameOfAnother(description.name.clone()).into());
        }
        fits(&adapter).map_err(OperationError::DoesNotFit)?;
        let plugin = NewPlugin {
            digest: adapter.digest(),
            name: &description.name,
            version: &description.version,
            wit_version: contract,
            bytes: &bytes,
        };
        // What the binary brings is there already.
        let is_new = self.bundled_digest(slot) != Some(adapter.digest())
            && store::install(database, operation.change(), &plugin).await?;
        self.after_change(database, cache, slot).await;
        Ok(Installed {
            digest: adapter.digest(),
            name: description.name.clone(),
            version: description.version.clone(),
            is_new,
        })
    }

    /// Has a slot serve with a component that is installed in it, or that the binary brings. `fits` says what is wrong
    /// with it in this gateway, if anything is.
    pub async fn activate(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &Operation,
        digest: Digest,
        fits: impl FnOnce(&Adapter) -> Result<(), String>,
    ) -> Result<(), OperationError> {
        let slot = &*operation.slot;
        let adapter = self.find(database, slot, digest).await?;
        fits(&adapter).map_err(OperationError::DoesNotFit)?;
        let _ready = self.make_ready(slot, adapter);
        let bundled = self.bundled_digest(slot);
        store::activate(database, operation.change(), digest, bundled).await?;
        self.after_change(database, cache, slot).await;
        Ok(())
    }

    /// Has a slot serve with what it served with before. Returns that. `fits` is as in [`Self::activate`].
    pub async fn roll_back(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &Operation,
        fits: impl FnOnce(&Adapter) -> Result<(), String>,
    ) -> Result<Digest, OperationError> {
        let slot = &*operation.slot;
        let bundled = self.bundled_digest(slot);
        let _ready = match wanted(database).await?.previous(slot, bundled) {
            // Loaded before anything is written: what does not load any more is not gone back to.
            Some(target) => {
                let adapter = self.find(database, slot, target).await?;
                fits(&adapter).map_err(OperationError::DoesNotFit)?;
                Some(self.make_ready(slot, adapter))
            }
            None => None,
        };
        let digest = store::roll_back(database, operation.change(), bundled).await?;
        self.after_change(database, cache, slot).await;
        Ok(digest)
    }

    /// Forgets a component that its slot does not serve with.
    pub async fn remove(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &Operation,
        digest: Digest,
    ) -> Result<(), OperationError> {
        let bundled = self.bundled_digest(&operation.slot);
        store::remove(database, operation.change(), digest, bundled).await?;
        self.after_change(database, cache, &operation.slot).await;
        Ok(())
    }

    /// Takes a component out of service that has trapped so often. Returns whether it was in service yet.
    pub async fn quarantine(
        &self,
        Stores { database, cache }: Stores<'_>,
        culprit: &Adapter,
        traps: u32,
        at: Millis,
    ) -> bool {
        let slot = &**culprit.name();
        let bundled = self.bundled_digest(slot);
        let change = Change {
            slot,
            actor: ITSELF,
            at,
        };
        let detail = format!("{traps} traps within a minute");
        let outcome = store::quarantine(database, change, culprit.digest(), bundled, &detail).await;
        self.after_change(database, cache, slot).await;
        match outcome {
            Ok(None) => false,
            Ok(Some(target)) => {
                tracing::error!(
                    slot,
                    digest = %culprit.digest(),
                    instead = target.map(|target| target.to_string()),
                    "a plugin has trapped too often and is in quarantine"
                );
                true
            }
            // It goes on serving; its next traps try again.
            Err(error) => {
                tracing::error!(slot, %error, "putting a plugin into quarantine");
                false
            }
        }
    }

    /// Writes what components have done since this was last called.
    pub async fn write_counts(&self, database: &Database) -> sqlx::Result<()> {
        let counters: Vec<_> = {
            let mut all = self.lock_counters();
            // Nobody counts there any more, and nothing is left in it.
            all.retain(|_, counters| {
                Arc::strong_count(counters) > 1 || counters.peek() != Counts::default()
            });
            all.iter()
                .map(|(key, counters)| (key.clone(), counters.clone()))
                .collect()
        };
        for ((slot, digest), counters) in counters {
            let counts = counters.take();
            if counts == Counts::default() {
                continue;
            }
            if let Err(error) = store::add_counts(database, &slot, digest, &counts).await {
                counters.put_back(&counts);
                return Err(error);
            }
        }
        Ok(())
    }

    /// All slots, all that could serve in them, and what each has done until now.
    pub(super) async fn overview(&self, database: &Database) -> sqlx::Result<Vec<Overview>> {
        let wanted = wanted(database).await?;
        let mut counts = store::counts(database).await?;
        // What this node has not written yet. A look must not write: one that is given up would lose it.
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
                active: wanted.active(slot, bundled),
                serving: serving.get(slot).and_then(digest_of),
                previous: wanted.previous(slot, bundled),
                candidates: Vec::new(),
            });
        }
        let bundled = self.0.bundled.iter().map(|(slot, adapter)| {
            let candidate = Candidate {
                digest: adapter.digest(),
                name: adapter.description.name.clone(),
                version: adapter.description.version.clone(),
                contract: adapter.contract.clone(),
                source: Source::Bundled,
                standing: Standing::Available,
                counts: Counts::default(),
            };
            (slot.to_string(), candidate)
        });
        let installed = store::installed(database).await?.into_iter().map(|row| {
            let candidate = Candidate {
                digest: row.digest,
                name: row.name,
                version: row.version,
                contract: row.wit_version,
                source: Source::Installed {
                    size_bytes: row.size_bytes,
                    at: row.installed_at,
                    actor: row.installed_by,
                },
                standing: Standing::Available,
                counts: Counts::default(),
            };
            (row.slot, candidate)
        });
        for (slot, mut candidate) in bundled.chain(installed) {
            // One may have come since; and an upgrade may have brought what was installed before.
            let Some(overview) = slots.get_mut(&slot) else {
                continue;
            };
            let mut listed = overview.candidates.iter();
            if listed.any(|listed| listed.digest == candidate.digest) {
                continue;
            }
            let key = (slot, candidate.digest);
            let this = Some(candidate.digest);
            candidate.standing = if overview.active == this {
                Standing::Active
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

    fn bundled_digest(&self, slot: &str) -> Option<Digest> {
        self.bundled(slot).map(|adapter| adapter.digest())
    }

    /// A component of a slot, loaded.
    async fn find(
        &self,
        database: &Database,
        slot: &str,
        digest: Digest,
    ) -> Result<Arc<Adapter>, OperationError> {
        if let Some(bundled) = self.bundled(slot)
            && bundled.digest() == digest
        {
            return Ok(bundled.clone());
        }
        if let Some(adapter) = self.adapter(slot)
            && adapter.digest() == digest
        {
            return Ok(adapter);
        }
        match fetch(database, slot, digest).await? {
            Some(arrived) => Ok(self.admit(self.load_arrived(slot, arrived).await?)),
            None if self
                .slots(&wanted(database).await?)
                .any(|known| known == slot) =>
            {
                Err(OperationError::UnknownPlugin)
            }
            None => Err(OperationError::UnknownSlot),
        }
    }

    /// Has a component at hand for whoever brings its slot to it, until what is returned is dropped.
    fn make_ready(&self, slot: &str, adapter: Arc<Adapter>) -> Ready<'_> {
        let key = (slot.to_owned(), adapter.digest());
        self.lock_synced().ready.insert(key.clone(), adapter);
        Ready { plugins: self, key }
    }

    async fn load_arrived(&self, slot: &str, arrived: Arrived) -> Result<Adapter, LoadError> {
        let Loader {
            engine,
            cache,
            compiler,
            limits,
        } = &self.0.loader;
        // Only who compiles waits for others who do.
        let _turn = match cache.contains(engine, &arrived.digest) {
            true => None,
            false => self.0.compiling.acquire().await.ok(),
        };
        loading::load_arrived(engine, compiler, Some(cache), limits, slot, arrived).await
    }

    /// Has an adapter count where all of its digest in its slot count.
    fn admit(&self, mut adapter: Adapter) -> Arc<Adapter> {
        let key = (adapter.name().clone(), adapter.digest());
        adapter.counters = self.lock_counters().entry(key).or_default().clone();
        Arc::new(adapter)
    }

    fn lock_counters(&self) -> MutexGuard<'_, AllCounters> {
        let counters = self.0.counters.lock();
        counters.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_synced(&self) -> MutexGuard<'_, Synced> {
        let synced = self.0.synced.lock();
        synced.unwrap_or_else(PoisonError::into_inner)
    }

    fn swap(&self, slot: &str, adapter: Option<Arc<Adapter>>, generation: i64) {
        let mut synced = self.lock_synced();
        if synced.claim(slot, generation) {
            self.change(|serving| {
                serving.insert(Arc::from(slot), adapter);
            });
        }
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

    /// What was just written serves here now, and elsewhere soon. Whatever fails of it, the next look makes up for.
    async fn after_change(&self, database: &Database, cache: &Cache, slot: &str) {
        // Others can load while this node does.
        if let Err(error) = cache.announce().await {
            tracing::warn!(%error, "telling other nodes that a slot has changed");
        }
        if let Err(error) = self.sync_slot(database, slot).await {
            tracing::warn!(slot, %error, "looking at what the slot serves with");
        }
    }

    /// Has components compiled that were installed elsewhere, so that their activation finds them ready: of those that
    /// were there when this node started, only what a slot would go back to.
    fn prepare(&self, database: &Database, wanted: Wanted, at_the_start: bool) {
        let mut new: BTreeSet<_> = {
            let prepared = &mut self.lock_synced().prepared;
            let new = wanted.installed.difference(prepared).cloned().collect();
            prepared.clone_from(&wanted.installed);
            new
        };
        if at_the_start {
            new.retain(|(slot, digest)| {
                wanted.previous(slot, self.bundled_digest(slot)) == Some(*digest)
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

fn digest_of(adapter: &Option<Arc<Adapter>>) -> Option<Digest> {
    adapter.as_ref().map(|adapter| adapter.digest())
}

async fn wanted(database: &Database) -> sqlx::Result<Wanted> {
    tokio::time::timeout(READ_TIMEOUT, store::wanted(database))
        .await
        .unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// An installed component; `None` if there is none, or it is being removed and not all of it is left.
async fn fetch(database: &Database, slot: &str, digest: Digest) -> sqlx::Result<Option<Arrived>> {
    let Some(bytes) = store::bytes(database, slot, digest).await? else {
        return Ok(None);
    };
    let arrived = Arrived::new(bytes.into()).await;
    Ok((arrived.digest == digest).then_some(arrived))
}

async fn prepare(
    plugins: Weak<Inner>,
    database: &Database,
    slot: &str,
    digest: Digest,
) -> Result<(), OperationError> {
    let Some(inner) = plugins.upgrade() else {
        return Ok(());
    };
    let Loader {
        engine,
        cache,
        compiler,
        ..
    } = &inner.loader;
    let _preparing = inner.preparing.acquire().await;
    if cache.contains(engine, &digest) {
        return Ok(());
    }
    if let Some(arrived) = fetch(database, slot, digest).await? {
        let _turn = inner.compiling.acquire().await;
        loading::compile(engine, compiler, Some(cache), &arrived).await?;
    }
    Ok(())
}

async fn follow(plugins: Weak<Inner>, database: Database, cache: Cache) {
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
        let mut outcome = plugins.sync(&database).await;
        if outcome.is_ok() && looks.is_multiple_of(LOOKS_PER_COUNT) {
            outcome = plugins.write_counts(&database).await;
        }
        match outcome {
            Ok(()) => last_failure.clear(),
            // The gateway has stopped.
            Err(sqlx::Error::PoolClosed) => return,
            // Once for each reason: the database may be away for long.
            Err(error) => {
                let why = error.to_string();
                if why != last_failure {
                    tracing::warn!(%error, "looking at what slots serve with");
                    last_failure = why;
                }
            }
        }
    }
}
