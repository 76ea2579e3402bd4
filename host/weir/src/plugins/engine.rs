//! The Wasm engine: how guests are compiled, allocated, interrupted and linked.
//!
//! **Invariant:** a guest that never returns costs its neighbours at most a tick at a time: epochs make it yield
//! every 10 ms, and past the first tick of a call it waits for a turn before each. All guests that are that far take a
//! fifth of the machine together, one after another, however many they are.
//! **Invariant:** WASI is linked with an empty context: clocks and randomness, no environment,
//! arguments, files or sockets. It goes through the *async* linker; the synchronous one blocks the
//! runtime and panics when a guest merely prints.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::time::Instant;
use wasmtime::component::{Component, HasSelf, Linker, ResourceTable};
use wasmtime::{
    Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, Store, UpdateDeadline,
};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use super::bindings;
use super::guest::Stopped;
use super::guest_log::GuestLog;
use super::limits::{Allowance, BYTES_PER_TICK, Limits, MAX_MEMORY_BYTES, TICK};

/// How many ticks one call into a guest may run at full speed. A translation takes 20 µs, so that a call
/// that is still running after these is about a large image at best.
const TICKS_AT_FULL_SPEED: u64 = 1;

/// How many ticks pass for each one that a guest runs from then on: it gets a fifth of a core at most.
const TICKS_PER_TURN: u32 = 5;

/// What a component may consist of; the Python toolchain links dozens of core modules.
const CORE_INSTANCES: u32 = 64;
const MEMORIES: u32 = 2;
const TABLES: u32 = 8;

/// Guests that are not serving a request: those of plugins that are being loaded.
const SPARE_INSTANCES: u32 = 16;

/// Compiles components and makes stores for them. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(super) wasm: wasmtime::Engine,
    pub(super) linker: Arc<Linker<Guest>>,
    turns: Arc<Turns>,
    _ticker: Arc<Ticker>,
}

impl Engine {
    /// Starts an engine with room for `instances` guests at once.
    ///
    /// Memory is reserved, not used, for all of them. Where the kernel refuses that much address
    /// space, guests are allocated one by one instead, which costs some 10 µs each.
    pub fn start(instances: u32) -> anyhow::Result<Self> {
        let wasm = match wasmtime::Engine::new(&config(Some(instances + SPARE_INSTANCES))) {
            Ok(engine) => engine,
            Err(error) => {
                tracing::warn!(%error, "no pooled memory for plugins; allocating on demand");
                wasmtime::Engine::new(&config(None))
                    .map_err(|error| anyhow!("starting the Wasm engine: {error:#}"))?
            }
        };
        let mut linker = Linker::new(&wasm);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)
            .and_then(|()| {
                bindings::log::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut Guest| {
                    guest
                })
            })
            .map_err(|error| anyhow!("linking the plugins' imports: {error:#}"))?;
        Ok(Self {
            _ticker: Arc::new(Ticker::start(wasm.clone())?),
            linker: Arc::new(linker),
            turns: Arc::new(Turns::new()),
            wasm,
        })
    }

    /// A number that changes with wasmtime's version and anything in the configuration that
    /// compiled code depends on.
    pub(super) fn compatibility(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.wasm.precompile_compatibility_hash().hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn compile(&self, bytes: &[u8]) -> wasmtime::Result<Component> {
        Component::from_binary(&self.wasm, bytes)
    }

    /// Compiled code that a child process has made.
    pub(super) fn take_compiled(&self, code: &[u8]) -> wasmtime::Result<Component> {
        // SAFETY: a child of ours, of the same binary, has made it with the same configuration; wasmtime checks
        // its version and settings. That the compiler was not subverted by its input is beyond any check.
        unsafe { Component::deserialize(&self.wasm, code) }
    }

    /// A fresh store for one exchange.
    pub(super) fn store(&self, plugin: &Arc<str>, limits: &Limits) -> Store<Guest> {
        let mut store = Store::new(
            &self.wasm,
            Guest {
                wasi: None,
                table: None,
                allowance: Allowance::new(limits.memory_bytes),
                ticks_left: limits.cpu_ticks(),
                ticks_in_call: 0,
                turns: self.turns.clone(),
                bytes_handed: 0,
                handles: limits.handles,
                log: GuestLog::new(plugin.clone(), limits),
            },
        );
        store.limiter(|guest| &mut guest.allowance);
        store.set_hostcall_fuel(limits.call_bytes);
        store.set_max_component_handles(limits.handles);
        store.epoch_deadline_callback(|mut store| store.data_mut().tick());
        store.set_epoch_deadline(1);
        store
    }
}

/// What the host keeps for one guest.
pub struct Guest {
    /// Made when the guest first uses WASI: most never do, and it costs microseconds.
    wasi: Option<WasiCtx>,
    table: Option<ResourceTable>,
    pub(super) allowance: Allowance,
    ticks_left: u64,
    ticks_in_call: u64,
    turns: Arc<Turns>,
    /// Bytes of the upstream's answer that have not lengthened the processor time yet.
    bytes_handed: usize,
    handles: usize,
    pub(super) log: GuestLog,
}

impl Guest {
    /// A call into the guest begins. The clock went on since the last one, and that was not its doing.
    pub(super) fn enter(&mut self) {
        self.ticks_in_call = 0;
    }

    /// Lengthens the processor time for bytes that the guest is about to be handed.
    pub(super) fn grant_for(&mut self, bytes: usize) {
        self.bytes_handed += bytes;
        self.ticks_left += (self.bytes_handed / BYTES_PER_TICK) as u64;
        self.bytes_handed %= BYTES_PER_TICK;
    }

    /// Runs when the epoch has moved on while the guest was running.
    fn tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        self.ticks_in_call += 1;
        // The last tick of the budget ends it; one more would be beyond.
        self.ticks_left = self.ticks_left.saturating_sub(1);
        if self.ticks_left == 0 {
            return Err(Stopped::CpuBudget.into());
        }
        if self.ticks_in_call <= TICKS_AT_FULL_SPEED {
            return Ok(UpdateDeadline::YieldCustom(
                1,
                Box::pin(tokio::task::yield_now()),
            ));
        }
        Ok(UpdateDeadline::YieldCustom(
            1,
            Box::pin(tokio::time::sleep_until(self.turns.next())),
        ))
    }
}

/// When those run next that are past their ticks at full speed.
///
/// Turns are as far apart as it takes for a fifth of the machine. If each guest slept for itself, many would leave
/// nothing to others; and those that began together would wake together, and run one after another on every thread.
struct Turns {
    free_at: Mutex<Instant>,
    apart: Duration,
}

impl Turns {
    fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            free_at: Mutex::new(Instant::now()),
            apart: TICK * TICKS_PER_TURN / u32::try_from(cores).unwrap_or(u32::MAX),
        }
    }

    /// Takes the next turn. One that is given up by a guest that ends before it is lost, at one for each guest.
    fn next(&self) -> Instant {
        let soonest = Instant::now() + TICK * (TICKS_PER_TURN - 1);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = soonest.max(*free_at);
        *free_at = turn + self.apart;
        turn
    }
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let handles = self.handles;
        WasiCtxView {
            ctx: self.wasi.get_or_insert_with(|| {
                // The builder starts with nothing; what it allows by default is closed as well.
                WasiCtxBuilder::new()
                    .allow_tcp(false)
                    .allow_udp(false)
                    .allow_ip_name_lookup(false)
                    .max_random_size(64 << 10)
                    .build()
            }),
            table: self.table.get_or_insert_with(|| {
                let mut table = ResourceTable::new();
                table.set_max_capacity(handles);
                table
            }),
        }
    }
}

/// Compiles a component for an engine of another process. Compiled code does not depend on how instances are
/// allocated, and this one will not have any.
pub(super) fn compile(bytes: &[u8]) -> wasmtime::Result<Vec<u8>> {
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
