//! The kinds of plugins: imports, exports and required abilities.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use wasmtime::Store;
use wasmtime::component::{self, Component, InstancePre, Linker};

use crate::digest::Digest;
use crate::engine::Engine;
use crate::exports::{Export, Signature};
use crate::guest::{self, Guest, GuestError};
use crate::limits::GuestLimits;
use crate::load_error::LoadError;
use crate::slow_lane::GuestQueue;

/// A kind of plugin: a world of the contract, with the types that wasmtime generates for it.
pub trait World: Sized + Send + Sync + 'static {
    /// The state of its imports during a piece of work, such as a policy; `()` if they need none.
    type Host: Send + 'static;
    /// The functions that a component exports.
    type Exports: Copy + Send + Sync + 'static;
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

    /// Finds a component's exports, and checks their types.
    fn find_exports(component: &InstancePre<Guest<Self::Host>>) -> wasmtime::Result<Self::Exports>;

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

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn prepare(&self, component: &Component) -> wasmtime::Result<Prepared<W>> {
        let component = self.linker.instantiate_pre(component)?;
        let exports = W::find_exports(&component)?;
        Ok(Prepared { component, exports })
    }
}

/// A component that is linked, and whose exports have the types of its world.
pub(crate) struct Prepared<W: World> {
    component: InstancePre<Guest<W::Host>>,
    exports: W::Exports,
}

#[derive(Debug)]
pub struct LoadedCode {
    /// The name that the component was loaded under, e.g. its slot.
    pub name: Arc<str>,
    pub digest: Digest,
    /// The version of the contract that it was built for, e.g. `0.2.0`.
    pub contract: String,
}

/// Code that can be instantiated, and its limits.
pub struct Program<W: World> {
    code: LoadedCode,
    prepared: Prepared<W>,
    limits: GuestLimits,
    engine: Engine,
    lane: GuestQueue,
}

impl<W: World> Program<W> {
    pub(crate) fn new(
        code: LoadedCode,
        prepared: Prepared<W>,
        limits: &GuestLimits,
        engine: &Engine,
    ) -> Self {
        Self {
            code,
            prepared,
            limits: limits.clone(),
            engine: engine.clone(),
            lane: GuestQueue::new(&engine.slow_lane),
        }
    }

    pub(crate) fn code(&self) -> &LoadedCode {
        &self.code
    }

    pub(crate) fn exports(&self) -> W::Exports {
        self.prepared.exports
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
        let instance = guest::enter(&mut store, call_timeout, 0, async |store| {
            self.prepared.component.instantiate_async(store).await
        })
        .await?;
        Ok(Instance {
            store,
            instance,
            exports: self.prepared.exports,
            call_timeout,
        })
    }
}

/// A guest at work.
pub(crate) struct Instance<W: World> {
    store: Store<Guest<W::Host>>,
    instance: component::Instance,
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

    /// Calls an export, within the limits of a call.
    pub(crate) async fn call<S: Signature>(
        &mut self,
        export: impl FnOnce(&W::Exports) -> Export<S>,
        parameters: S::Parameters<'_>,
    ) -> Result<S::Results, GuestError> {
        self.call_with(0, export, parameters).await
    }

    /// Calls an export with input of this many bytes, which extends the processor time.
    pub(crate) async fn call_with<S: Signature>(
        &mut self,
        handed_bytes: usize,
        export: impl FnOnce(&W::Exports) -> Export<S>,
        parameters: S::Parameters<'_>,
    ) -> Result<S::Results, GuestError> {
        let (instance, export) = (self.instance, export(&self.exports));
        guest::enter(
            &mut self.store,
            self.call_timeout,
            handed_bytes,
            async |store| export.call(instance, store, parameters).await,
        )
        .await
    }
}
