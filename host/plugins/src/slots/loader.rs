//! Loading components of any kind.

use std::sync::Arc;

use weir_sandbox::adapter::{LoadedAdapter, ProviderWorld};
use weir_sandbox::code_cache::CodeCache;
use weir_sandbox::compiler::Compiler;
use weir_sandbox::filter::{FilterWorld, LoadedFilter};
use weir_sandbox::loading::{self, Code, UploadedComponent};
use weir_sandbox::tool::{LoadedTool, ToolWorld};
use weir_sandbox::{Digest, Engine, GuestLimits, LoadError, LoadedCode, Sandbox};

use crate::component::{Component, FilterComponent, Plugin, ToolComponent};
use crate::counters::Counters;

/// The loader of components. Cheap to clone.
#[derive(Clone)]
pub struct Loader {
    adapters: Sandbox<ProviderWorld>,
    tools: Sandbox<ToolWorld>,
    filters: Sandbox<FilterWorld>,
    pub(super) cache: Option<Arc<CodeCache>>,
    /// The cache for bundled components; by default, `cache`.
    own_cache: Option<Arc<CodeCache>>,
    pub(super) compiler: Compiler,
    limits: GuestLimits,
}

/// A component that has passed every load step.
pub enum LoadedComponent {
    Adapter(LoadedAdapter),
    Tool(LoadedTool),
    Filter(LoadedFilter),
}

impl Loader {
    /// A loader for guests of one engine, with these limits each and an optional cache of compiled code.
    pub fn new(
        engine: &Engine,
        cache: Option<Arc<CodeCache>>,
        compiler: Compiler,
        limits: GuestLimits,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            adapters: Sandbox::new(engine)?,
            tools: Sandbox::new(engine)?,
            filters: Sandbox::new(engine)?,
            cache,
            own_cache: None,
            compiler,
            limits,
        })
    }

    /// Keeps the code of bundled components in this cache, which other gateways of this user share. Other components stay
    /// out of it.
    pub fn with_shared_cache(self, own_cache: Option<Arc<CodeCache>>) -> Self {
        Self { own_cache, ..self }
    }

    /// Returns whether a bundled component's compiled code is cached.
    pub(super) fn is_own_compiled(&self, digest: &Digest) -> bool {
        let cache = self.cache_of_own(digest);
        cache.is_some_and(|cache| cache.contains(self.engine(), digest))
    }

    /// Returns the cache for a bundled component: that of this gateway if it has the code, from an earlier version of weir, and
    /// else the shared one.
    fn cache_of_own(&self, digest: &Digest) -> Option<&Arc<CodeCache>> {
        let shared = self.own_cache.as_ref();
        let has_code = |cache: &&Arc<CodeCache>| cache.contains(self.engine(), digest);
        let cache = self.cache.as_ref();
        cache.filter(has_code).or(shared).or(cache)
    }

    /// Returns whether an uploaded component's compiled code is cached.
    pub fn is_compiled(&self, digest: &Digest) -> bool {
        let cache = self.cache.as_ref();
        cache.is_some_and(|cache| cache.contains(self.engine(), digest))
    }

    pub(super) fn engine(&self) -> &Engine {
        self.adapters.engine()
    }

    /// Runs every load step on a bundled component.
    pub async fn load_own(
        &self,
        name: &str,
        own: UploadedComponent,
    ) -> Result<LoadedComponent, LoadError> {
        let cache = self.cache_of_own(&own.digest);
        let code = loading::own_code(self.engine(), &self.compiler, cache, &own).await?;
        self.finish(name, code).await
    }

    /// Runs every load step on an uploaded component.
    pub async fn load_arrived(
        &self,
        name: &str,
        arrived: UploadedComponent,
    ) -> Result<LoadedComponent, LoadError> {
        let Self {
            cache, compiler, ..
        } = self;
        let cache = cache.as_ref();
        let code = loading::arrived_code(self.engine(), compiler, cache, &arrived).await?;
        self.finish(name, code).await
    }

    /// Determines the kind by the exports; a component of no kind gets the errors of an adapter.
    async fn finish(&self, name: &str, code: Code) -> Result<LoadedComponent, LoadError> {
        let engine = self.engine();
        let is_adapter = code.is_of::<ProviderWorld>(engine);
        if code.is_of::<ToolWorld>(engine) && !is_adapter {
            let limits = self.limits.for_tools();
            let tool = loading::finish(&self.tools, &limits, name, code).await?;
            return Ok(LoadedComponent::Tool(tool));
        }
        if code.is_of::<FilterWorld>(engine) && !is_adapter {
            let filter = loading::finish(&self.filters, &self.limits, name, code).await?;
            return Ok(LoadedComponent::Filter(filter));
        }
        let adapter = loading::finish(&self.adapters, &self.limits, name, code).await?;
        Ok(LoadedComponent::Adapter(adapter))
    }
}

impl LoadedComponent {
    pub(super) fn code(&self) -> &LoadedCode {
        match self {
            Self::Adapter(adapter) => adapter.code(),
            Self::Tool(tool) => tool.code(),
            Self::Filter(filter) => filter.code(),
        }
    }

    /// Returns it as a component of its slot, which shares the counters of its digest.
    pub fn counting(self, counters: Arc<Counters>) -> Plugin {
        match self {
            Self::Adapter(adapter) => Plugin::Adapter(Arc::new(Component::new(adapter, counters))),
            Self::Tool(tool) => Plugin::Tool(Arc::new(ToolComponent::new(tool, counters))),
            Self::Filter(filter) => {
                Plugin::Filter(Arc::new(FilterComponent::new(filter, counters)))
            }
        }
    }
}
