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

use wasmtime::component::{Resource, ResourceTable};
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_io::bindings::wasi::io::poll;

use crate::guest_log::GuestLog;
use crate::last_words::{LastWords, Listener};
use crate::limits::{Allowance, BYTES_PER_TICK, GuestLimits, Refused};
use crate::memory_budget::MemoryBudget;
use crate::printable::printable;
use crate::slow_lane::SlowLane;

/// How many ticks one call into a guest may run at full speed, beside those for what it is handed. A translation takes
/// 20 µs, so that a call that is still running after these has no good reason to.
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
    /// One call handed over more than a call may.
    #[error("the plugin handed over too much data in one call")]
    TooMuchData,
    /// What it returned cannot be read: a bad pointer, text that is not UTF-8.
    #[error("the plugin returned nonsense: {0}")]
    Nonsense(String),
    /// No room for another guest, or for what this one needs: others have all the memory that guests may have.
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
    listener: Option<Listener>,
    pub(crate) allowance: Allowance,
    ticks_left: u64,
    /// Ticks of the call that may still run at full speed.
    full_speed_left: u64,
    slow_lane: Arc<SlowLane>,
    /// Bytes handed over that have not lengthened the processor time yet.
    bytes_handed: usize,
    handles: usize,
    pub(crate) log: GuestLog,
    /// What its world's imports need.
    pub(crate) host: H,
}

impl<H> Guest<H> {
    pub(crate) fn new(
        plugin: &Arc<str>,
        limits: &GuestLimits,
        slow_lane: &Arc<SlowLane>,
        memory: &Arc<MemoryBudget>,
        listener: Option<&Listener>,
        host: H,
    ) -> Self {
        Self {
            wasi: None,
            table: None,
            last_words: None,
            listener: listener.cloned(),
            allowance: Allowance::new(limits.memory_bytes.get(), memory),
            ticks_left: limits.cpu_ticks(),
            full_speed_left: 0,
            slow_lane: slow_lane.clone(),
            bytes_handed: 0,
            handles: limits.handles.get(),
            log: GuestLog::new(plugin.clone(), limits),
            host,
        }
    }

    /// A call into the guest begins, with so many bytes: they lengthen its processor time.
    fn enter(&mut self, handed_bytes: usize) {
        self.bytes_handed += handed_bytes;
        let granted = (self.bytes_handed / BYTES_PER_TICK) as u64;
        self.bytes_handed %= BYTES_PER_TICK;
        self.ticks_left += granted;
        self.full_speed_left = TICKS_AT_FULL_SPEED + granted;
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
        // The last tick of the budget ends it; one more would be beyond.
        self.ticks_left = self.ticks_left.saturating_sub(1);
        if self.ticks_left == 0 {
            return Err(Stopped::CpuBudget.into());
        }
        if let Some(left) = self.full_speed_left.checked_sub(1) {
            self.full_speed_left = left;
            return Ok(UpdateDeadline::YieldCustom(
                1,
                Box::pin(tokio::task::yield_now()),
            ));
        }
        let slow_lane = self.slow_lane.clone();
        Ok(UpdateDeadline::YieldCustom(
            1,
            Box::pin(async move { slow_lane.turn().await }),
        ))
    }

    /// What `wasi:io/poll` works on, and how many a list of it may have.
    pub(crate) fn polls(&mut self) -> Polls<'_>
    where
        H: Send,
    {
        let max = self.handles;
        let table = self.ctx().table;
        Polls { table, max }
    }
}

/// WASI's `poll`, of no more at once than a guest can hold: a list may name the same one any number of times, and the
/// host would go through it all in what counts as one tick.
pub(crate) struct Polls<'a> {
    table: &'a mut ResourceTable,
    max: usize,
}

impl poll::Host for Polls<'_> {
    async fn poll(&mut self, list: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        if list.len() > self.max {
            return Err(wasmtime::Error::msg(
                "a poll of more than a plugin can hold",
            ));
        }
        poll::Host::poll(self.table, list).await
    }
}

impl poll::HostPollable for Polls<'_> {
    async fn ready(&mut self, one: Resource<DynPollable>) -> wasmtime::Result<bool> {
        poll::HostPollable::ready(self.table, one).await
    }

    async fn block(&mut self, one: Resource<DynPollable>) -> wasmtime::Result<()> {
        poll::HostPollable::block(self.table, one).await
    }

    fn drop(&mut self, one: Resource<DynPollable>) -> wasmtime::Result<()> {
        poll::HostPollable::drop(self.table, one)
    }
}

impl<H: Send> WasiView for Guest<H> {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let handles = self.handles;
        let listener = &self.listener;
        let last_words = self
            .last_words
            .get_or_insert_with(|| LastWords::new(listener.clone()));
        WasiCtxView {
            ctx: self.wasi.get_or_insert_with(|| {
                // The builder starts with nothing; what it allows by default is closed as well.
                let mut builder = WasiCtxBuilder::new();
                if listener.is_some() {
                    builder.stdout(LastWords::new(listener.clone()));
                }
                builder
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

/// Runs one call into the guest, which is handed so many bytes, under the wall clock, and tells its errors apart.
pub(crate) async fn enter<H: 'static, T>(
    store: &mut Store<Guest<H>>,
    timeout: Duration,
    handed_bytes: usize,
    call: impl AsyncFnOnce(&mut Store<Guest<H>>) -> wasmtime::Result<T>,
) -> Result<T, GuestError> {
    let began = Instant::now();
    // Time since the last call was spent outside the guest and must not count against it.
    store.set_epoch_deadline(1);
    store.data_mut().enter(handed_bytes);
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
        let error = explain(&error, guest.allowance.refused);
        guest.report(&error);
        error
    })
}

fn explain(error: &wasmtime::Error, refused: Option<Refused>) -> GuestError {
    match error.downcast_ref() {
        Some(Stopped::CpuBudget) => return GuestError::CpuBudget,
        Some(Stopped::CallTimeout) => return GuestError::CallTimeout,
        None => {}
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return GuestError::NoRoom;
    }
    match refused {
        Some(Refused::OwnLimit) => return GuestError::Memory,
        Some(Refused::Budget) => return GuestError::NoRoom,
        None => {}
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
        // wasmtime has no type for it that others can name.
        None if error.root_cause().to_string().starts_with("too much data") => {
            GuestError::TooMuchData
        }
        None => GuestError::Nonsense(printable(&error.to_string(), 200)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a tick lets the guest go on at once, rather than wait for its turn.
    async fn is_at_full_speed(guest: &mut Guest<()>) -> bool {
        let Ok(UpdateDeadline::YieldCustom(_, mut turn)) = guest.tick() else {
            panic!("its time is not up");
        };
        // A turn takes many times as long as it takes to look ten times.
        for _ in 0..10 {
            let looked = std::future::poll_fn(|context| Poll::Ready(turn.as_mut().poll(context)));
            if looked.await.is_ready() {
                return true;
            }
            tokio::task::yield_now().await;
        }
        false
    }

    #[tokio::test]
    async fn a_call_runs_at_full_speed_as_long_as_what_it_was_handed_takes() {
        let budget = Arc::new(MemoryBudget::new(0));
        let slow_lane = Arc::new(SlowLane::new());
        let limits = GuestLimits::default();
        let mut guest = Guest::new(&"some".into(), &limits, &slow_lane, &budget, None, ());
        for (handed_bytes, ticks) in [(0, 1), (BYTES_PER_TICK, 2), (0, 1), (9 << 20, 37)] {
            guest.enter(handed_bytes);
            let mut at_full_speed = 0;
            while is_at_full_speed(&mut guest).await {
                at_full_speed += 1;
            }
            assert_eq!(at_full_speed, ticks, "{handed_bytes} bytes");
        }
    }
}
