//! One guest: what the host keeps for it, every call into it bounded, every way it can fail a type.
//!
//! **Invariant:** a call ends within its wall-clock limit whatever the guest does. Epochs stop one that
//! computes, the clock stops one that is parked in a host call.
//! **Invariant:** after an error from here the guest is never called again; dropping it frees all.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use wasmtime::component::ResourceTable;
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::guest_log::GuestLog;
use crate::last_words::LastWords;
use crate::limits::{Allowance, BYTES_PER_TICK, GuestLimits};
use crate::printable::printable;
use crate::slow_lane::SlowLane;

/// How many ticks one call into a guest may run at full speed. A translation takes 20 µs, so that a call
/// that is still running after these is about a large answer at best.
const TICKS_AT_FULL_SPEED: u64 = 1;

/// Why a guest was given up. Each is the plugin's fault, but for the last.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GuestError {
    /// It used up its processor time.
    #[error("the plugin used up its processor time")]
    CpuBudget,
    /// A call took longer than a call may, waiting included.
    #[error("a call into the plugin timed out")]
    CallTimeout,
    /// It trapped after it had been refused more memory.
    #[error("the plugin ran out of memory")]
    Memory,
    /// It trapped, e.g. by a panic.
    #[error("the plugin trapped: {0}")]
    Trap(&'static str),
    /// What it returned cannot be read: too much data, a bad pointer, text that is not UTF-8.
    #[error("the plugin returned nonsense: {0}")]
    Nonsense(String),
    /// No room for another guest: admission should have prevented this.
    #[error("no room for another plugin instance")]
    NoRoom,
}

/// Why the host stopped a guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    #[error("processor time used up")]
    CpuBudget,
    #[error("the time of a call used up")]
    CallTimeout,
}

/// What the host keeps for one guest.
pub struct Guest<H> {
    /// Made when the guest first uses WASI: most never do, and it costs microseconds.
    wasi: Option<WasiCtx>,
    table: Option<ResourceTable>,
    /// There is some once it uses WASI.
    last_words: Option<LastWords>,
    pub(crate) allowance: Allowance,
    ticks_left: u64,
    ticks_in_call: u64,
    slow_lane: Arc<SlowLane>,
    /// Bytes of the upstream's answer that have not lengthened the processor time yet.
    bytes_handed: usize,
    handles: usize,
    pub(crate) log: GuestLog,
    /// What its world's imports need.
    #[cfg_attr(not(test), expect(dead_code, reason = "no world needs something yet"))]
    pub(crate) host: H,
}

impl<H> Guest<H> {
    pub(crate) fn new(
        plugin: &Arc<str>,
        limits: &GuestLimits,
        slow_lane: &Arc<SlowLane>,
        host: H,
    ) -> Self {
        Self {
            wasi: None,
            table: None,
            last_words: None,
            allowance: Allowance::new(limits.memory_bytes.get()),
            ticks_left: limits.cpu_ticks(),
            ticks_in_call: 0,
            slow_lane: slow_lane.clone(),
            bytes_handed: 0,
            handles: limits.handles.get(),
            log: GuestLog::new(plugin.clone(), limits),
            host,
        }
    }

    /// A call into the guest begins. The clock went on since the last one, and that was not its doing.
    pub(crate) fn enter(&mut self) {
        self.ticks_in_call = 0;
    }

    /// Lengthens the processor time for bytes that the guest is about to be handed.
    pub(crate) fn grant_for(&mut self, bytes: usize) {
        self.bytes_handed += bytes;
        self.ticks_left += (self.bytes_handed / BYTES_PER_TICK) as u64;
        self.bytes_handed %= BYTES_PER_TICK;
    }

    /// Says in the log why it was given up, with what it has to say itself.
    fn report(&self, error: &GuestError) {
        // Nobody's fault, least of all the guest's.
        if *error == GuestError::NoRoom {
            return;
        }
        let last_words = self.last_words.as_ref().map(LastWords::line);
        self.log.give_up(error, &last_words.unwrap_or_default());
    }

    /// Runs when the epoch has moved on while the guest was running.
    pub(crate) fn tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
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
            Box::pin(tokio::time::sleep_until(self.slow_lane.next())),
        ))
    }
}

impl<H: Send> WasiView for Guest<H> {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let handles = self.handles;
        let last_words = self.last_words.get_or_insert_default();
        WasiCtxView {
            ctx: self.wasi.get_or_insert_with(|| {
                // The builder starts with nothing; what it allows by default is closed as well.
                WasiCtxBuilder::new()
                    .allow_tcp(false)
                    .allow_udp(false)
                    .allow_ip_name_lookup(false)
                    .max_random_size(64 << 10)
                    .stderr(last_words.clone())
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

/// Runs one call into the guest under the wall clock and tells its errors apart.
pub(crate) async fn enter<H: 'static, T>(
    store: &mut Store<Guest<H>>,
    timeout: Duration,
    call: impl AsyncFnOnce(&mut Store<Guest<H>>) -> wasmtime::Result<T>,
) -> Result<T, GuestError> {
    let began = Instant::now();
    // Time since the last call was spent outside the guest and must not count against it.
    store.set_epoch_deadline(1);
    store.data_mut().enter();
    let outcome = {
        let mut call = pin!(call(store));
        // Most calls are over in microseconds: only one that is not is worth a timer.
        match std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                // It has run for a tick by now.
                let left = timeout.saturating_sub(began.elapsed());
                match tokio::time::timeout(left, call).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(Stopped::CallTimeout.into()),
                }
            }
        }
    };
    outcome.map_err(|error| {
        let guest = store.data();
        let error = explain(&error, guest.allowance.exceeded);
        guest.report(&error);
        error
    })
}

fn explain(error: &wasmtime::Error, out_of_memory: bool) -> GuestError {
    match error.downcast_ref() {
        Some(Stopped::CpuBudget) => return GuestError::CpuBudget,
        Some(Stopped::CallTimeout) => return GuestError::CallTimeout,
        None => {}
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return GuestError::NoRoom;
    }
    if out_of_memory {
        return GuestError::Memory;
    }
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return GuestError::Trap(if exit.0 == 0 {
            "it exited"
        } else {
            "it exited with an error"
        });
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => GuestError::Trap("call stack exhausted"),
        Some(Trap::UnreachableCodeReached) => GuestError::Trap("unreachable code or a panic"),
        Some(Trap::MemoryOutOfBounds) => GuestError::Trap("memory access out of bounds"),
        Some(Trap::IntegerDivisionByZero) => GuestError::Trap("division by zero"),
        Some(_) => GuestError::Trap("an illegal operation"),
        None => GuestError::Nonsense(printable(&error.to_string(), 200)),
    }
}
