//! Slots: which component serves, and how that changes while a gateway runs.
//!
//! A slot serves with what operators have activated in it, or else with what the binary brings. That is written
//! in the database ([`super::store`]), and every node follows it: at once where the change was made here or Redis
//! announces it, and within [`LOOK_EVERY`] otherwise. A change is made by swapping one `Arc`: exchanges under way keep
//! the component that they began with, and it is freed with the last of them.
//!
//! **Invariant:** nothing serves that has not passed every load step on this node. Where the wanted component
//! does not load here, what serves goes on serving.
//! **Invariant:** a slot that is changed is never empty for a moment, unless that is the change.
//!
//! A component that traps too often goes into quarantine: its slot goes back to what served before, or else to what
//! the binary brings, or else refuses. Only an operator who activates it brings it back.
//!
//! A share of callers on a second digest, and signatures of publishers, have their place in [`store::activate`] and in
//! [`Plugins::load`]; neither is built.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;

use super::bundled::Bundled;
use super::code_cache::CodeCache;
use super::compiler::Compiler;
use super::counters::{Counters, Counts};
use super::loading::{self, LoadError};
use super::store::{self, Change, ChangeError, NewPlugin, Wanted};
use super::{Adapter, Digest, Engine, Limits};
use crate::clock::Millis;
use crate::storage::{Cache, Database};

/// How often a node looks for changes that nobody has told it of.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often what components have done is written, in looks.
const LOOKS_PER_COUNT: u32 = 10;

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
    synced: tokio::sync::Mutex<Synced>,
    /// One component is compiled at a time: a node has better things to do.
    compiling: Semaphore,
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
    /// Components that were loaded in order to be activated.
    ready: BTreeMap<(String, Digest), Arc<Adapter>>,
    /// Those that are compiled, or were tried to be.
    prepared: BTreeSet<(String, Digest)>,
    retry_at: Option<Instant>,
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

impl From<ChangeError> for OperationError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::UnknownSlot => Self::UnknownSlot,
            ChangeError::UnknownPlugin => Self::UnknownPlugin,
            ChangeError::InUse => Self::InUse,
            ChangeError::NothingBefore => Self::NothingBefore,
            ChangeError::Database(error) => Self::Database(error),
        }
    }
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
            synced: tokio::sync::Mutex::default(),
            compiling: Semaphore::new(1),
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

    /// Has every slot serve with what the database says.
    pub async fn sync(&self, database: &Database) -> sqlx::Result<()> {
        let mut synced = self.0.synced.lock().await;
        let generation = store::generation(database).await?;
        let is_due = synced.retry_at.is_some_and(|at| at <= Instant::now());
        if synced.generation == Some(generation) && !is_due {
            return Ok(());
        }
        let wanted = store::wanted(database).await?;
        synced.retry_at = None;
        let slots: BTreeSet<&str> = self
            .0
            .bundled
            .keys()
            .map(|slot| &**slot)
            .chain(wanted.slots.keys().map(|slot| &**slot))
            .collect();
        for &slot in &slots {
            let target = self.target(slot, &wanted);
            let serving = self.serving().get(slot).cloned();
            let is_there =
                matches!(&serving, Some(now) if now.as_ref().map(|a| a.digest()) == target);
            if is_there {
                continue;
            }
            let Some(target) = target else {
                tracing::warn!(
                    slot,
                    "the slot refuses requests: nothing is left to serve with"
                );
                self.swap(slot, None);
                continue;
            };
            match self.obtain(database, &mut synced, slot, target).await {
                Ok(adapter) => {
                    tracing::info!(slot, digest = %target, "the slot serves with another component");
                    self.swap(slot, Some(adapter));
                }
                Err(error) => {
                    tracing::error!(slot, digest = %target, %error, "the slot's component does not load here");
                    synced.retry_at = Some(Instant::now() + RETRY_AFTER);
                    if serving.is_none() {
                        self.swap(slot, None);
                    }
                }
            }
        }
        self.retain(&slots);
        synced.ready.clear();
        synced.generation = Some(wanted.generation);
        self.prepare(database, &mut synced, wanted.installed);
        Ok(())
    }

    /// Checks a component and keeps it, ready to be activated.
    pub async fn install(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &Operation,
        bytes: &[u8],
    ) -> Result<Installed, OperationError> {
        let adapter = self.load_arrived(&operation.slot, bytes).await?;
        let Adapter {
            description,
            contract,
            ..
        } = &adapter;
        let is_another = *description.name != *operation.slot
            && self.serving().contains_key(description.name.as_str());
        if is_another {
            return Err(LoadError::NameOfAnother(description.name.clone()).into());
        }
        let plugin = NewPlugin {
            digest: adapter.digest(),
            name: &description.name,
            version: &description.version,
            wit_version: contract,
            bytes,
        };
        let is_new = store::install(database, operation.change(), &plugin).await?;
        self.after_change(database, cache).await;
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
        let bundled = self.bundled(slot).map(|adapter| adapter.digest());
        if !self.serving().contains_key(slot) {
            return Err(OperationError::UnknownSlot);
        }
        let adapter = self.find(database, slot, digest).await?;
        fits(&adapter).map_err(OperationError::DoesNotFit)?;
        self.make_ready(slot, adapter).await;
        store::activate(database, operation.change(), digest, bundled).await?;
        self.after_change(database, cache).await;
        Ok(())
    }

    /// Has a slot serve with what it served with before. Returns that.
    pub async fn roll_back(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &Operation,
    ) -> Result<Digest, OperationError> {
        let slot = &*operation.slot;
        let bundled = self.bundled(slot).map(|adapter| adapter.digest());
        if let Some(previous) = store::previous(database, slot).await? {
            // Loaded before anything is written: what does not load any more is not gone back to.
            let adapter = self.find(database, slot, previous).await?;
            self.make_ready(slot, adapter).await;
        }
        let digest = store::roll_back(database, operation.change(), bundled).await?;
        self.after_change(database, cache).await;
        Ok(digest)
    }

    /// Forgets a component that its slot does not serve with.
    pub async fn remove(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &Operation,
        digest: Digest,
    ) -> Result<(), OperationError> {
        let bundled = self
            .bundled(&operation.slot)
            .map(|adapter| adapter.digest());
        store::remove(database, operation.change(), digest, bundled).await?;
        self.after_change(database, cache).await;
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
        let bundled = self.bundled(slot).map(|adapter| adapter.digest());
        let change = Change {
            slot,
            actor: ITSELF,
            at,
        };
        let detail = format!("{traps} traps within a minute");
        let outcome = store::quarantine(database, change, culprit.digest(), bundled, &detail).await;
        self.after_change(database, cache).await;
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
            all.retain(|_, counters| Arc::strong_count(counters) > 1 || !counters.is_empty());
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
        self.write_counts(database).await?;
        let wanted = store::wanted(database).await?;
        let counts = store::counts(database).await?;
        let serving = self.serving();
        let mut slots = BTreeMap::new();
        let names = self.0.bundled.keys().map(|slot| &**slot);
        for slot in names.chain(wanted.slots.keys().map(|slot| &**slot)) {
            let active = self.target(slot, &wanted);
            let row = wanted.slots.get(slot);
            let is_good =
                |digest: &Digest| !wanted.quarantined.contains(&(slot.to_owned(), *digest));
            let bundled = self.bundled(slot).map(|adapter| adapter.digest());
            // As `store::roll_back` finds it.
            let before = [row.and_then(|row| row.previous), bundled];
            let previous = match row.and_then(|row| row.active) {
                Some(_) => before.into_iter().flatten().find(is_good),
                None => None,
            };
            slots.entry(slot.to_owned()).or_insert_with(|| Overview {
                slot: slot.to_owned(),
                active,
                serving: serving
                    .get(slot)
                    .and_then(|adapter| adapter.as_ref().map(|adapter| adapter.digest())),
                previous,
                candidates: Vec::new(),
            });
        }
        let bundled = self.0.bundled.values().map(|adapter| Candidate {
            digest: adapter.digest(),
            name: adapter.description.name.clone(),
            version: adapter.description.version.clone(),
            contract: adapter.contract.clone(),
            source: Source::Bundled,
            standing: Standing::Available,
            counts: Counts::default(),
        });
        let bundled = self
            .0
            .bundled
            .keys()
            .map(|slot| slot.to_string())
            .zip(bundled);
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
            // One may have come since.
            let Some(overview) = slots.get_mut(&slot) else {
                continue;
            };
            let key = (slot, candidate.digest);
            let this = Some(candidate.digest);
            candidate.standing = if overview.active == this {
                Standing::Active
            } else if wanted.quarantined.contains(&key) {
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

    /// The digest that a slot is to serve with.
    fn target(&self, slot: &str, wanted: &Wanted) -> Option<Digest> {
        let active = wanted.slots.get(slot).and_then(|row| row.active);
        active.or_else(|| {
            let bundled = self.bundled(slot)?.digest();
            let is_good = !wanted.quarantined.contains(&(slot.to_owned(), bundled));
            is_good.then_some(bundled)
        })
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
        let bytes = store::bytes(database, slot, digest)
            .await?
            .ok_or(OperationError::UnknownPlugin)?;
        Ok(self.admit(self.load_arrived(slot, &bytes).await?))
    }

    async fn obtain(
        &self,
        database: &Database,
        synced: &mut Synced,
        slot: &str,
        digest: Digest,
    ) -> Result<Arc<Adapter>, OperationError> {
        match synced.ready.remove(&(slot.to_owned(), digest)) {
            Some(adapter) => Ok(adapter),
            None => self.find(database, slot, digest).await,
        }
    }

    async fn make_ready(&self, slot: &str, adapter: Arc<Adapter>) {
        let key = (slot.to_owned(), adapter.digest());
        self.0.synced.lock().await.ready.insert(key, adapter);
    }

    async fn load_arrived(&self, slot: &str, bytes: &[u8]) -> Result<Adapter, LoadError> {
        let Loader {
            engine,
            cache,
            compiler,
            limits,
        } = &self.0.loader;
        let _turn = self.0.compiling.acquire().await;
        loading::load_arrived(engine, compiler, Some(cache), limits, slot, bytes).await
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

    fn swap(&self, slot: &str, adapter: Option<Arc<Adapter>>) {
        self.change(|serving| {
            serving.insert(Arc::from(slot), adapter);
        });
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
    async fn after_change(&self, database: &Database, cache: &Cache) {
        // Others can load while this node does.
        if let Err(error) = cache.announce().await {
            tracing::warn!(%error, "telling other nodes that a slot has changed");
        }
        if let Err(error) = self.sync(database).await {
            tracing::warn!(%error, "looking at what slots serve with");
        }
    }

    /// Has components compiled that were installed elsewhere, so that their activation finds them ready.
    fn prepare(
        &self,
        database: &Database,
        synced: &mut Synced,
        installed: BTreeSet<(String, Digest)>,
    ) {
        for (slot, digest) in installed.difference(&synced.prepared).cloned() {
            let (plugins, database) = (Arc::downgrade(&self.0), database.clone());
            tokio::spawn(async move {
                if let Err(error) = prepare(plugins, &database, &slot, digest).await {
                    tracing::warn!(slot, %digest, %error, "preparing an installed plugin");
                }
            });
        }
        synced.prepared = installed;
    }
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
    let _turn = inner.compiling.acquire().await;
    if cache.contains(engine, &digest) {
        return Ok(());
    }
    if let Some(bytes) = store::bytes(database, slot, digest).await? {
        loading::compile(engine, compiler, Some(cache), &digest, &bytes).await?;
    }
    Ok(())
}

async fn follow(plugins: Weak<Inner>, database: Database, cache: Cache) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut announcements = cache.announcements();
    let mut looks: u32 = 0;
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
            Ok(()) => {}
            // The gateway has stopped.
            Err(sqlx::Error::PoolClosed) => return,
            Err(error) => tracing::warn!(%error, "looking at what slots serve with"),
        }
    }
}
