//! The kinds of plugins: imports, exports and required abilities.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use wasmtime::Store;
use wasmtime::component::{Component, InstancePre, Linker};

use crate::digest::Digest;
use crate::engine::Engine;
use crate::guest::{self, Guest, GuestError};
use crate::limits::GuestLimits;
use crate::load_error::LoadError;
use crate::slow_lane::GuestQueue;

/// A kind of plugin: a world of the contract, with the bindings that wasmtime generates for it.
pub trait World: Sized + Send + Sync + 'static {
    /// The state of its imports during a piece of work, such as a policy; `()` if they need none.
    type Host: Send + 'static;
    /// A component whose types have been checked: the `…Pre` of the bindings.
    type Prepared: Clone + Send + Sync + 'static;
    /// Its exports in one instance.
    type Exports: Send + Sync + 'static;
    /// A component that has passed every load step.
    type Plugin: Send;

    /// The name for people, e.g. `weir:plugin/provider@0.2`.
    const NAME: &'static str;
    /// The exported interface without its version, e.g. `weir:plugin/adapter`.
    const EXPORT: &'static str;
    /// Prefixes of its allowed imports besides WASI.
    const IMPORTS: &'static [&'static str];

    /// Links its imports beside the log and WASI, which every world has.
    fn link(_linker: &mut Linker<Guest<Self::Host>>) -> wasmtime::Result<()> {
        Ok(())
    }

    /// Checks a component's types.
    fn prepare(component: InstancePre<Guest<Self::Host>>) -> wasmtime::Result<Self::Prepared>;

    /// Creates an instance.
    fn instantiate(
        component: &Self::Prepared,
        store: &mut Store<Guest<Self::Host>>,
    ) -> impl Future<Output = wasmtime::Result<Self::Exports>> + Send;

    /// Runs the last load steps: reads the component's description, and runs the self-test.
    fn admit(
        program: Program<Self>,
    ) -> impl Future<Output = Result<Self::Plugin, LoadError>> + Send;
}

/// A sandbox in which components of a world are loaded and run. Cheap to clone.
pub struct Sandbox<W: World> {
    engine: Engine,
    linker: Arc<Linker<Guest<W::Host>>>,
}

impl<W: World> Clone for Sandbox<W> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            linker: self.linker.clone(),
        }
    }
}

impl<W: World> Sandbox<W> {
    /// Links the world's imports, for an engine that other worlds may share.
    pub fn new(engine: &Engine) -> anyhow::Result<Self> {
        let linker = engine.linker().and_then(|mut linker| {
            W::link(&mut linker)?;
            Ok(Arc::new(linker))
        });
        Ok(Self {
            engine: engine.clone(),
            linker: linker
                .map_err(|error| anyhow!("linking the imports of {}: {error:#}", W::NAME))?,
        })
    }

    /// Returns its engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn prepare(&self, component: &Component) -> wasmtime::Result<W::Prepared> {
        self.linker.instantiate_pre(component).and_then(W::prepare)
    }
}

/// The code of a component.
#[derive(Debug)]
pub struct LoadedCode {
    /// The name that the component was loaded under, e.g. its slot.
    pub name: Arc<str>,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The version of the contract that it was built for, e.g. `0.2.0`.
    pub contract: String,
}

/// Code that can be instantiated, and its limits.
pub struct Program<W: World> {
    code: LoadedCode,
    component: W::Prepared,
    limits: GuestLimits,
    engine: Engine,
    lane: GuestQueue,
}

impl<W: World> Program<W> {
    pub(crate) fn new(
        code: LoadedCode,
        component: W::Prepared,
        limits: &GuestLimits,
        engine: &Engine,
    ) -> Self {
        Self {
            code,
            component,
            limits: limits.clone(),
            engine: engine.clone(),
            lane: GuestQueue::new(&engine.slow_lane),
        }
    }

    pub(crate) fn code(&self) -> &LoadedCode {
        &self.code
    }

    /// Creates a fresh instance for one piece of work.
    pub(crate) async fn start(&self, host: W::Host) -> Result<Instance<W>, GuestError> {
        let Engine {
            memory, listener, ..
        } = &self.engine;
        let guest = Guest::new(
            &self.code.name,
            &self.limits,
            &self.lane,
            memory,
            listener.as_ref(),
            host,
        );
        let mut store = self.engine.store(guest, &self.limits);
        let call_timeout = self.limits.call_timeout();
        let exports = guest::enter(&mut store, call_timeout, 0, async |store| {
            W::instantiate(&self.component, store).await
        })
        .await?;
        Ok(Instance {
            store,
            exports,
            call_timeout,
        })
    }
}

/// A guest at work.
pub(crate) struct Instance<W: World> {
    store: Store<Guest<W::Host>>,
    exports: W::Exports,
    call_timeout: Duration,
}

impl<W: World> Instance<W> {
    /// Sets the wall-clock limit of calls in place of the configured one.
    pub(crate) fn set_call_timeout(&mut self, timeout: Duration) {
        self.call_timeout = timeout;
    }

    /// Bytes of its memories and tables.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.store.data().allowance.used_bytes()
    }

    /// Calls one of its exports, within the limits of a call.
    pub(crate) async fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&W::Exports, &mut Store<Guest<W::Host>>) -> wasmtime::Result<T>,
    ) -> Result<T, GuestError> {
        self.call_with(0, call).await
    }

    /// Calls an export with input of this many bytes, which extends the processor time.
    pub(crate) async fn call_with<T>(
        &mut self,
        handed_bytes: usize,
        call: impl AsyncFnOnce(&W::Exports, &mut Store<Guest<W::Host>>) -> wasmtime::Result<T>,
    ) -> Result<T, GuestError> {
        let (exports, timeout) = (&self.exports, self.call_timeout);
        guest::enter(&mut self.store, timeout, handed_bytes, async |store| {
            call(exports, store).await
        })
        .await
    }
}
