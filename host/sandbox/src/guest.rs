//! One guest: its state in the host, bounded calls into it, and a type for every failure.
//!
//! **Invariant:** a call ends within its wall-clock limit, regardless of the guest. Epochs stop a guest that
//! computes; the clock stops a guest that waits in a host call. Time in which the guest waits for other components'
//! guests, a thread or memory extends the limit. The wait has a limit of its own ([`MOST_WAITING`]), and is not the
//! guest's fault.
//! **Invariant:** after an error from here the guest is never called again; its drop frees everything.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use wasmtime::component::{Resource, ResourceTable};
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_io::bindings::wasi::io::poll;

use crate::guest_clock::{GuestClock, TickDecision};
use crate::guest_log::GuestLog;
use crate::limits::{Allowance, GuestLimits, MemoryRefusal};
use crate::memory_budget::MemoryBudget;
use crate::printable::printable;
use crate::slow_lane::GuestQueue;
use crate::stderr_tail::{StderrListener, StderrTail};
use crate::vocabulary::log;

/// Maximum time that one call may wait for a turn, a thread or memory.
const MOST_WAITING: Duration = Duration::from_secs(30);

/// The reason that a guest was stopped. All except the last are the plugin's fault.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GuestError {
    /// The guest used up its processor time.
    #[error("the plugin used up its processor time")]
    CpuBudget,
    /// A call exceeded its time limit, including waits.
    #[error("a call into the plugin timed out")]
    CallTimeout,
    /// The guest trapped after the host refused it more memory.
    #[error("the plugin ran out of memory")]
    Memory,
    /// The guest trapped, e.g. by a panic.
    #[error("the plugin trapped: {0}")]
    Trap(&'static str),
    /// One call returned more data than a call may.
    #[error("the plugin handed over too much data in one call")]
    TooMuchData,
    /// The result is unreadable: a bad pointer, text that is not UTF-8.
    #[error("the plugin returned an unreadable result: {0}")]
    Nonsense(String),
    /// No room for another guest, or for this guest's growth: other guests hold all guest memory, or all turns for
    /// long computations.
    #[error("no room for another plugin instance")]
    NoRoom,
}

/// The reason that the host stopped a guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StopReason {
    #[error("processor time used up")]
    CpuBudget,
    #[error("the time of a call used up")]
    CallTimeout,
    #[error("kept waiting for too long")]
    KeptWaiting,
}

/// The host's state of one guest.
pub struct Guest<H> {
    /// Created on the guest's first use of WASI: most guests never use it, and it costs microseconds.
    wasi: Option<WasiCtx>,
    table: Option<ResourceTable>,
    /// Set once the guest uses WASI.
    stderr_tail: Option<StderrTail>,
    listener: Option<StderrListener>,
    pub(crate) allowance: Allowance,
    clock: GuestClock,
    /// The queue for its turns if it computes for long.
    lane: GuestQueue,
    handles: usize,
    pub(crate) log: GuestLog,
    /// The state that its world's imports need.
    pub(crate) host: H,
}

impl<H> Guest<H> {
    pub(crate) fn new(
        plugin: &Arc<str>,
        limits: &GuestLimits,
        lane: &GuestQueue,
        memory: &Arc<MemoryBudget>,
        listener: Option<&StderrListener>,
        host: H,
    ) -> Self {
        let clock = GuestClock::new(limits.cpu_time());
        Self {
            wasi: None,
            table: None,
            stderr_tail: None,
            listener: listener.cloned(),
            allowance: Allowance::new(limits.memory_bytes.get(), memory, clock.clone()),
            clock,
            lane: lane.clone(),
            handles: limits.handles.get(),
            log: GuestLog::new(plugin.clone(), limits),
            host,
        }
    }

    /// Logs the reason that the guest was stopped, with the guest's last output.
    fn report(&self, error: &GuestError) {
        // Not the guest's fault.
        if *error == GuestError::NoRoom {
            return;
        }
        let stderr_tail = self.stderr_tail.as_ref().map(StderrTail::line);
        self.log.give_up(error, &stderr_tail.unwrap_or_default());
    }

    /// Handles an epoch's end during the guest's run.
    pub(crate) fn tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        let pace = self.clock.pace();
        if pace == TickDecision::Ended {
            return Err(StopReason::CpuBudget.into());
        }
        let (clock, lane) = (self.clock.clone(), self.lane.clone());
        let pause = async move {
            match pace {
                TickDecision::AwaitTurn => lane.turn(&clock).await,
                TickDecision::GoOn | TickDecision::Ended => {
                    let _waiting = clock.wait();
                    tokio::task::yield_now().await;
                }
            }
        };
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(pause)))
    }

    /// The table of `wasi:io/poll`, and the maximum length of its lists.
    pub(crate) fn polls(&mut self) -> Polls<'_>
    where
        H: Send,
    {
        let max = self.handles;
        let table = self.ctx().table;
        Polls { table, max }
    }
}

/// WASI's `poll`, limited to as many entries as a guest can hold: a list may name an entry any number of times, and
/// the host would process it all within one tick.
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

impl<H: Send> log::Host for Guest<H> {
    async fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let level = match level {
            log::Level::Debug => tracing::Level::DEBUG,
            log::Level::Info => tracing::Level::INFO,
            log::Level::Warn => tracing::Level::WARN,
            log::Level::Error => tracing::Level::ERROR,
        };
        self.log.write(level, &message);
        Ok(())
    }
}

impl<H: Send> WasiView for Guest<H> {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let handles = self.handles;
        let listener = &self.listener;
        let stderr_tail = self
            .stderr_tail
            .get_or_insert_with(|| StderrTail::new(listener.clone()));
        WasiCtxView {
            ctx: self.wasi.get_or_insert_with(|| {
                // The builder starts empty; its few permissions by default are closed as well.
                let mut builder = WasiCtxBuilder::new();
                if listener.is_some() {
                    builder.stdout(StderrTail::new(listener.clone()));
                }
                builder
                    .allow_tcp(false)
                    .allow_udp(false)
                    .allow_ip_name_lookup(false)
                    .max_random_size(64 << 10)
                    .stderr(stderr_tail.clone())
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

/// Runs one call with input of this many bytes under the wall clock, and classifies its errors.
pub(crate) async fn enter<H: 'static, T>(
    store: &mut Store<Guest<H>>,
    timeout: Duration,
    handed_bytes: usize,
    call: impl AsyncFnOnce(&mut Store<Guest<H>>) -> wasmtime::Result<T>,
) -> Result<T, GuestError> {
    let began = Instant::now();
    let clock = store.data().clock.clone();
    if !clock.begin_call(handed_bytes) {
        let error = GuestError::CpuBudget;
        store.data().report(&error);
        return Err(error);
    }
    // Epochs since the last call passed outside the guest.
    store.set_epoch_deadline(1);
    let outcome = {
        let mut call = pin!(call(store));
        let mut run = async |until: Option<Instant>| {
            let slices = poll_fn(|context| clock.slice(|| call.as_mut().poll(context)));
            match until {
                // Most calls end in microseconds: only a longer call is worth a timer.
                None => poll_once(slices).await,
                Some(until) => tokio::time::timeout_at(until.into(), slices).await.ok(),
            }
        };
        let mut until = None;
        loop {
            if let Some(outcome) = run(until).await {
                break outcome;
            }
            let waited = clock.waited();
            if waited > MOST_WAITING {
                break Err(StopReason::KeptWaiting.into());
            }
            let deadline = began + timeout + waited;
            if deadline <= Instant::now() {
                break Err(StopReason::CallTimeout.into());
            }
            until = Some(deadline);
        }
    };
    outcome.map_err(|error| {
        let guest = store.data();
        let error = explain(&error, guest.allowance.refused);
        guest.report(&error);
        error
    })
}

/// Returns the result of work that is done after a single poll.
async fn poll_once<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

fn explain(error: &wasmtime::Error, refused: Option<MemoryRefusal>) -> GuestError {
    match error.downcast_ref() {
        Some(StopReason::CpuBudget) => return GuestError::CpuBudget,
        Some(StopReason::CallTimeout) => return GuestError::CallTimeout,
        Some(StopReason::KeptWaiting) => return GuestError::NoRoom,
        None => {}
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return GuestError::NoRoom;
    }
    match refused {
        Some(MemoryRefusal::OwnLimit) => return GuestError::Memory,
        Some(MemoryRefusal::Budget) => return GuestError::NoRoom,
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
        // wasmtime's type for this error is private.
        None if error.root_cause().to_string().starts_with("too much data") => {
            GuestError::TooMuchData
        }
        None => GuestError::Nonsense(printable(&error.to_string(), 200)),
    }
}
