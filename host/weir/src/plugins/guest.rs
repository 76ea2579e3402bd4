//! One exchange's guest: a fresh store, every call into it bounded, every way it can fail a type.
//!
//! **Invariant:** a call ends within its wall-clock limit whatever the guest does. Epochs stop one that
//! computes, the clock stops one that is parked in a host call.
//! **Invariant:** after an error from here the guest is never called again; dropping it frees all.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use wasmtime::component::ResourceAny;
use wasmtime::{PoolConcurrencyLimitError, Store, Trap};

use super::bindings::adapter::{Description, Failure, HttpResponseHead, Request, Step};
use super::bindings::chat::{self, Event};
use super::bindings::{Provider, adapter};
use super::engine::Guest;
use super::guest_log::printable;
use super::{Adapter, Program};

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

/// Why the epoch callback stopped a guest.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    #[error("processor time used up")]
    CpuBudget,
}

/// A running exchange inside a guest of its own.
pub struct GuestExchange {
    store: Store<Guest>,
    bindings: Provider,
    handle: ResourceAny,
    call_timeout: Duration,
}

impl GuestExchange {
    /// Makes a fresh instance and begins an exchange in it.
    pub async fn begin(
        adapter: &Adapter,
        request: &Request,
        options: &[adapter::Setting],
    ) -> Result<Result<Self, Failure>, GuestError> {
        let (mut store, bindings) = instantiate(&adapter.program, inline_bytes(request)).await?;
        let call_timeout = adapter.program.limits.call_timeout();
        let exports = bindings.weir_plugin_adapter();
        let exchange = exports.exchange();
        let begun = enter(&mut store, call_timeout, async |store| {
            exchange.call_begin(store, request, options).await
        })
        .await?;
        Ok(begun.map(|handle| Self {
            store,
            bindings,
            handle,
            call_timeout,
        }))
    }

    /// Asks what the exchange wants next.
    pub async fn next(&mut self) -> Result<Result<Step, Failure>, GuestError> {
        let exchange = self.bindings.weir_plugin_adapter().exchange();
        let handle = self.handle;
        enter(&mut self.store, self.call_timeout, async |store| {
            exchange.call_next(store, handle).await
        })
        .await
    }

    /// Hands it the head of the upstream's answer.
    pub async fn head(
        &mut self,
        head: &HttpResponseHead,
    ) -> Result<Result<(), Failure>, GuestError> {
        let exchange = self.bindings.weir_plugin_adapter().exchange();
        let handle = self.handle;
        enter(&mut self.store, self.call_timeout, async |store| {
            exchange.call_head(store, handle, head).await
        })
        .await
    }

    /// Hands it the next bytes of the upstream's answer.
    pub async fn body(&mut self, bytes: &[u8]) -> Result<Result<Vec<Event>, Failure>, GuestError> {
        self.store.data_mut().grant_for(bytes.len());
        let exchange = self.bindings.weir_plugin_adapter().exchange();
        let handle = self.handle;
        enter(&mut self.store, self.call_timeout, async |store| {
            exchange.call_body(store, handle, bytes).await
        })
        .await
    }

    /// Says that the upstream's answer is complete.
    pub async fn end(&mut self) -> Result<Result<Vec<Event>, Failure>, GuestError> {
        let exchange = self.bindings.weir_plugin_adapter().exchange();
        let handle = self.handle;
        enter(&mut self.store, self.call_timeout, async |store| {
            exchange.call_end(store, handle).await
        })
        .await
    }
}

/// Asks a component what it is. Called once, when it is loaded.
pub(super) async fn describe(plugin: &Program) -> Result<Description, GuestError> {
    let (mut store, bindings) = instantiate(plugin, 0).await?;
    let exports = bindings.weir_plugin_adapter();
    enter(&mut store, plugin.limits.call_timeout(), async |store| {
        exports.call_describe(store).await
    })
    .await
}

/// Bytes of images and documents in a request.
fn inline_bytes(request: &Request) -> u64 {
    let image = |image: &chat::Image| match &image.source {
        chat::ImageSource::Inline(blob) => blob.data.len(),
        chat::ImageSource::Url(_) => 0,
    };
    let content = |content: &chat::Content| match content {
        chat::Content::Image(content) => image(content),
        chat::Content::File(file) => file.data.len(),
        chat::Content::ToolResult(result) => result
            .content
            .iter()
            .map(|content| match content {
                chat::ToolContent::Image(content) => image(content),
                chat::ToolContent::Text(_) => 0,
            })
            .sum(),
        _ => 0,
    };
    let bytes: usize = match request {
        Request::Chat(request) => request
            .messages
            .iter()
            .flat_map(|message| &message.parts)
            .map(|part| content(&part.content))
            .sum(),
        Request::Image(request) => request.inputs.iter().map(image).sum(),
    };
    bytes as u64
}

async fn instantiate(
    plugin: &Program,
    inline_bytes: u64,
) -> Result<(Store<Guest>, Provider), GuestError> {
    let mut store = if inline_bytes == 0 {
        plugin.engine.store(&plugin.name, &plugin.limits)
    } else {
        let limits = plugin.limits.with_inline_bytes(inline_bytes);
        plugin.engine.store(&plugin.name, &limits)
    };
    store.data_mut().grant_for(inline_bytes as usize);
    let bindings = enter(&mut store, plugin.limits.call_timeout(), async |store| {
        plugin.component.instantiate_async(store).await
    })
    .await?;
    Ok((store, bindings))
}

/// Runs one call into the guest under the wall clock and tells its errors apart.
async fn enter<T>(
    store: &mut Store<Guest>,
    timeout: Duration,
    call: impl AsyncFnOnce(&mut Store<Guest>) -> wasmtime::Result<T>,
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
                    Err(_) => return Err(GuestError::CallTimeout),
                }
            }
        }
    };
    outcome.map_err(|error| explain(&error, store.data().allowance.exceeded))
}

fn explain(error: &wasmtime::Error, out_of_memory: bool) -> GuestError {
    if let Some(Stopped::CpuBudget) = error.downcast_ref() {
        return GuestError::CpuBudget;
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
