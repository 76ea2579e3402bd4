//! The Wasm engine: compilation, allocation, interruption and linking of guests.
//!
//! **Invariant:** a guest that never returns costs its neighbours at most a tick at a time. Epochs make it yield
//! every 10 ms. After the time of a call at full speed (10 ms of processor time, and 40 ns for each byte of its
//! input), it waits for a turn before each tick. All such guests together take a fifth of the machine, regardless of
//! their number: one guest a component, and the components in turn.
//! **Invariant:** WASI is linked with an empty context: clocks and randomness, but no environment, arguments, files
//! or sockets. WASI uses the *async* linker; the synchronous one blocks the runtime and panics if a guest merely
//! prints.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use wasmtime::component::{Component, HasData, HasSelf, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, Store};
use wasmtime_wasi_io::bindings::wasi::io::poll;

use crate::guest::{Guest, Polls};
use crate::guest_clock::TICK;
use crate::limits::{GuestLimits, MAX_MEMORY_BYTES};
use crate::memory_budget::MemoryBudget;
use crate::slow_lane::SlowLane;
use crate::stderr_tail::StderrListener;
use crate::vocabulary::log;

/// Maximum core instances of a component; the Python toolchain links dozens of core modules.
const CORE_INSTANCES: u32 = 64;
const MEMORIES: u32 = 2;
const TABLES: u32 = 8;

/// Bytes of a guest's memory that stay resident for the next guest, if they were used: enough for several copies of a prompt
/// of 100 KiB. More goes back to the kernel.
const KEEP_RESIDENT: usize = 512 << 10;

/// Guests beyond those of requests, for plugins that are being loaded.
const SPARE_INSTANCES: u32 = 16;

/// The engine that compiles components and creates their stores. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) wasm: wasmtime::Engine,
    pub(crate) slow_lane: Arc<SlowLane>,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) listener: Option<StderrListener>,
    /// Size of the pool in guests; `None` if guests are allocated on demand.
    pooled_guests: Option<u32>,
    _ticker: Arc<Ticker>,
}

/// The room for guests.
#[derive(Debug, Clone, Copy)]
pub struct GuestCapacity {
    /// Concurrent guests, without those of plugins that are being loaded.
    pub guests: u32,
    /// Bytes of memories and tables of all guests together.
    pub memory_bytes: u64,
}

impl Engine {
    /// Starts an engine.
    ///
    /// The engine reserves address space for all guests, and memory for none. If the kernel refuses that much address
    /// space, guests are allocated one by one instead, which costs about 10 µs each.
    pub fn start(room: GuestCapacity) -> anyhow::Result<Self> {
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

    /// Returns whether the reserved address space holds this many concurrent guests. The reservation happens once, at
    /// start.
    pub fn has_room_for(&self, guests: u32) -> bool {
        self.pooled_guests.is_none_or(|pooled| guests <= pooled)
    }

    /// The same engine with a listener for its guests' standard output and error.
    #[must_use]
    pub fn heard_by(self, listener: StderrListener) -> Self {
        Self {
            listener: Some(listener),
            ..self
        }
    }

    /// A hash of wasmtime's version and all configuration on which compiled code depends.
    pub(crate) fn compatibility(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.wasm.precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn compile(&self, bytes: &[u8]) -> wasmtime::Result<Component> {
        Component::from_binary(&self.wasm, bytes)
    }

    /// Loads compiled code from a child process.
    pub(crate) fn take_compiled(&self, code: &[u8]) -> wasmtime::Result<Component> {
        // SAFETY: a child process of the same binary has made it with the same configuration; wasmtime checks its
        // version and settings. No check can show that hostile input did not subvert the compiler.
        unsafe { Component::deserialize(&self.wasm, code) }
    }

    /// A linker with the imports of every world: WASI 0.2, through which a guest reaches clocks and randomness only.
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

/// Compiles a component for an engine of another process. Compiled code does not depend on the allocation of
/// instances, and this engine creates none.
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
        // The limits of one component, times the number of components: no guest's size leaves another without a
        // place. Components of today's toolchains have one memory, and few tables.
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
            .linear_memory_keep_resident(KEEP_RESIDENT)
            .table_keep_resident(16 << 10)
            .async_stack_keep_resident(16 << 10)
            .pagemap_scan(Enabled::Auto);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    config
}

/// The thread that advances the epoch; on a thread of its own, no busy runtime can delay it.
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
