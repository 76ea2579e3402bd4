//! The Wasm engine: how guests are compiled, allocated, interrupted and linked.
//!
//! **Invariant:** a guest that never returns costs its neighbours at most a tick at a time: epochs make it yield
//! every 10 ms, and past the time of a call at full speed (10 ms of processor time, and 40 ns for each byte that it was handed) it
//! waits for a turn before each. All guests that are that far take a fifth of the machine together, however many they are: one
//! guest a component, and the components in turn.
//! **Invariant:** WASI is linked with an empty context: clocks and randomness, no environment,
//! arguments, files or sockets. It goes through the *async* linker; the synchronous one blocks the
//! runtime and panics when a guest merely prints.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use wasmtime::component::{Component, HasData, HasSelf, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, Store};
use wasmtime_wasi_io::bindings::wasi::io::poll;

use crate::adapter::bindings::log;
use crate::guest::{Guest, Polls};
use crate::guest_clock::TICK;
use crate::last_words::Listener;
use crate::limits::{GuestLimits, MAX_MEMORY_BYTES};
use crate::memory_budget::MemoryBudget;
use crate::slow_lane::SlowLane;

/// What a component may consist of; the Python toolchain links dozens of core modules.
const CORE_INSTANCES: u32 = 64;
const MEMORIES: u32 = 2;
const TABLES: u32 = 8;

/// Guests that are not serving a request: those of plugins that are being loaded.
const SPARE_INSTANCES: u32 = 16;

/// Compiles components and makes stores for them. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) wasm: wasmtime::Engine,
    pub(crate) slow_lane: Arc<SlowLane>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) listener: Option<Listener>,
    /// Guests that the pool has room for; none where guests are allocated on demand.
    pooled_guests: Option<u32>,
    _ticker: Arc<Ticker>,
}

/// How much room there is for guests.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Guests at once, beside some for plugins that are being loaded.
    pub guests: u32,
    /// Bytes of memories and tables that all of them may have together.
    pub memory_bytes: u64,
}

impl Engine {
    /// Starts an engine.
    ///
    /// Address space is reserved for all guests, and memory used by none. Where the kernel refuses that much address
    /// space, guests are allocated one by one instead, which costs some 10 µs each.
    pub fn start(room: Room) -> anyhow::Result<Self> {
        let pooled = config(Some(room.guests.saturating_add(SPARE_INSTANCES)));
        let (wasm, pooled_guests) = match wasmtime::Engine::new(&pooled) {
            Ok(engine) => (engine, Some(room.guests)),
            Err(error) => {
                tracing::warn!(%error, "no pooled memory for plugins; allocating on demand");
                let engine = wasmtime::Engine::new(&config(None))
                    .map_err(|error| anyhow!("starting the Wasm engine: {error:#}"))?;
                (engine, None)
            }
        };
        Ok(Self {
            _ticker: Arc::new(Ticker::start(wasm.clone())?),
            slow_lane: Arc::new(SlowLane::new()),
            memory: Arc::new(MemoryBudget::new(room.memory_bytes)),
            listener: None,
            pooled_guests,
            wasm,
        })
    }

    /// Whether so many guests have room at once, as far as address space goes. It is reserved once, at the start.
    pub fn has_room_for(&self, guests: u32) -> bool {
        self.pooled_guests.is_none_or(|pooled| guests <= pooled)
    }

    /// The same engine, whose guests' standard output and error are heard as they are written.
    #[must_use]
    pub fn heard_by(self, listener: Listener) -> Self {
        Self {
            listener: Some(listener),
            ..self
        }
    }

    /// A number that changes with wasmtime's version and anything in the configuration that
    /// compiled code depends on.
    pub(crate) fn compatibility(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.wasm.precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn compile(&self, bytes: &[u8]) -> wasmtime::Result<Component> {
        Component::from_binary(&self.wasm, bytes)
    }

    /// Compiled code that a child process has made.
    pub(crate) fn take_compiled(&self, code: &[u8]) -> wasmtime::Result<Component> {
        // SAFETY: a child of ours, of the same binary, has made it with the same configuration; wasmtime checks
        // its version and settings. That the compiler was not subverted by its input is beyond any check.
        unsafe { Component::deserialize(&self.wasm, code) }
    }

    /// A linker with the imports of every world: the log, and WASI 0.2, which gives a guest clocks and randomness only.
    pub(crate) fn linker<H: Send + 'static>(&self) -> wasmtime::Result<Linker<Guest<H>>> {
        let mut linker = Linker::new(&self.wasm);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        linker.allow_shadowing(true);
        poll::add_to_linker::<_, HasPolls>(&mut linker, Guest::polls)?;
        linker.allow_shadowing(false);
        log::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest| guest)?;
        Ok(linker)
    }

    /// A fresh store for one piece of work.
    pub(crate) fn store<H: Send + 'static>(
        &self,
        guest: Guest<H>,
        limits: &GuestLimits,
    ) -> Store<Guest<H>> {
        let mut store = Store::new(&self.wasm, guest);
        store.limiter_async(|guest| &mut guest.allowance);
        store.set_hostcall_fuel(limits.call_bytes.get());
        store.set_max_component_handles(limits.handles.get());
        store.epoch_deadline_callback(|mut store| store.data_mut().tick());
        store.set_epoch_deadline(1);
        store
    }
}

enum HasPolls {}

impl HasData for HasPolls {
    type Data<'a> = Polls<'a>;
}

/// Compiles a component for an engine of another process. Compiled code does not depend on how instances are
/// allocated, and this one will not have any.
pub(crate) fn compile(bytes: &[u8]) -> wasmtime::Result<Vec<u8>> {
    wasmtime::Engine::new(&config(None))?.precompile_component(bytes)
}

fn config(pooled_instances: Option<u32>) -> Config {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(true)
        .max_wasm_stack(512 << 10)
        .async_stack_size(1 << 20)
        .memory_init_cow(true)
        .wasm_backtrace_max_frames(None)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(false)
        .cranelift_nan_canonicalization(true);
    if let Some(instances) = pooled_instances {
        let mut pool = PoolingAllocationConfig::new();
        // What one component may have, times all of them, so that no guest's appetite leaves another
        // without a place. Components of today's toolchains have one memory, and few tables.
        pool.total_component_instances(instances)
            .total_core_instances(instances.saturating_mul(CORE_INSTANCES))
            .total_memories(instances.saturating_mul(MEMORIES))
            .total_tables(instances.saturating_mul(TABLES))
            .total_stacks(instances)
            .max_core_instances_per_component(CORE_INSTANCES)
            .max_memories_per_component(MEMORIES)
            .max_tables_per_component(TABLES)
            .max_memory_size(MAX_MEMORY_BYTES as usize)
            .table_elements(20_000)
            .max_component_instance_size(1 << 20)
            .max_core_instance_size(1 << 20)
            .linear_memory_keep_resident(128 << 10)
            .table_keep_resident(16 << 10)
            .async_stack_keep_resident(16 << 10)
            .pagemap_scan(Enabled::Auto);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    config
}

/// Moves the epoch on, from a thread of its own so that no busy runtime can hold it up.
struct Ticker {
    stopped: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Ticker {
    fn start(engine: wasmtime::Engine) -> anyhow::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        let thread = std::thread::Builder::new()
            .name("weir-epoch".into())
            .spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(TICK);
                    engine.increment_epoch();
                }
            })
            .context("starting the epoch thread")?;
        Ok(Self {
            stopped,
            thread: Some(thread),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
