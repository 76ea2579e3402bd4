//! A component in its slot, its counters, and the slot's kind.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_sandbox::adapter::bindings::adapter::Setting;
use weir_sandbox::adapter::{self, LoadedAdapter};
use weir_sandbox::filter::{self, LoadedFilter};
use weir_sandbox::tool::{self, LoadedTool};
use weir_sandbox::{ConfigureError, Digest, LoadedCode};

use super::counters::Counters;

/// The kind of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PluginKind {
    /// Adapters translate for providers.
    Adapter,
    /// Tools are called by agents' models.
    Tool,
    /// Filters inspect requests and their responses.
    Filter,
}

impl PluginKind {
    /// The name in the database and in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Adapter => "adapter",
            Self::Tool => "tool",
            Self::Filter => "filter",
        }
    }

    /// Parses the name that [`PluginKind::as_str`] returns.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Adapter, Self::Tool, Self::Filter]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// A component that can serve in its slot. Cheap to clone.
#[derive(Clone)]
pub enum Plugin {
    Adapter(Arc<Component>),
    Tool(Arc<ToolComponent>),
    Filter(Arc<FilterComponent>),
}

/// An adapter in its slot, with its counters and its configuration for each provider's options.
pub struct Component {
    adapter: LoadedAdapter,
    counters: Arc<Counters>,
    configurations: Configurations,
}

/// A tool in its slot, with its counters.
pub struct ToolComponent {
    tool: LoadedTool,
    counters: Arc<Counters>,
}

/// A filter in its slot, with its counters and its configuration for each set of options.
pub struct FilterComponent {
    filter: LoadedFilter,
    counters: Arc<Counters>,
    configurations: Configurations,
}

/// A component's configurations by their options. Each set of options is parsed once; the operator's settings bound
/// their number.
#[derive(Default)]
struct Configurations(Mutex<Vec<Configuration>>);

struct Configuration {
    options: Vec<Setting>,
    made: Arc<[u8]>,
}

impl Configurations {
    async fn of(
        &self,
        options: &[Setting],
        configure: impl Future<Output = Result<Vec<u8>, ConfigureError>>,
    ) -> Result<Arc<[u8]>, ConfigureError> {
        let known = |all: &[Configuration]| {
            let found = all.iter().find(|known| known.options == options);
            found.map(|known| known.made.clone())
        };
        if let Some(known) = known(&self.lock()) {
            return Ok(known);
        }
        let made: Arc<[u8]> = configure.await?.into();
        self.lock().push(Configuration {
            options: options.to_vec(),
            made: made.clone(),
        });
        Ok(made)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Configuration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plugin {
    pub fn kind(&self) -> PluginKind {
        match self {
            Self::Adapter(_) => PluginKind::Adapter,
            Self::Tool(_) => PluginKind::Tool,
            Self::Filter(_) => PluginKind::Filter,
        }
    }

    fn code(&self) -> &LoadedCode {
        match self {
            Self::Adapter(adapter) => adapter.code(),
            Self::Tool(tool) => tool.code(),
            Self::Filter(filter) => filter.code(),
        }
    }

    pub fn slot(&self) -> &Arc<str> {
        &self.code().name
    }

    pub fn digest(&self) -> Digest {
        self.code().digest
    }

    /// The version of the contract for which it was built.
    pub fn contract(&self) -> &str {
        &self.code().contract
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Adapter(adapter) => &adapter.description.name,
            Self::Tool(tool) => &tool.description.name,
            Self::Filter(filter) => &filter.description.name,
        }
    }

    pub fn version(&self) -> &str {
        match self {
            Self::Adapter(adapter) => &adapter.description.version,
            Self::Tool(tool) => &tool.description.version,
            Self::Filter(filter) => &filter.description.version,
        }
    }

    /// Its description, as it is stored.
    pub fn description(&self) -> Value {
        match self {
            Self::Adapter(adapter) => adapter::description::to_json(&adapter.description),
            Self::Tool(tool) => tool::description::to_json(&tool.description),
            Self::Filter(filter) => filter::description::to_json(&filter.description),
        }
    }

    pub fn counters(&self) -> &Arc<Counters> {
        match self {
            Self::Adapter(adapter) => adapter.counters(),
            Self::Tool(tool) => &tool.counters,
            Self::Filter(filter) => &filter.counters,
        }
    }
}

impl Deref for Component {
    type Target = LoadedAdapter;

    fn deref(&self) -> &LoadedAdapter {
        &self.adapter
    }
}

impl Deref for ToolComponent {
    type Target = LoadedTool;

    fn deref(&self) -> &LoadedTool {
        &self.tool
    }
}

impl Deref for FilterComponent {
    type Target = LoadedFilter;

    fn deref(&self) -> &LoadedFilter {
        &self.filter
    }
}

impl FilterComponent {
    /// A component that shares the counters of its digest in its slot.
    pub fn new(filter: LoadedFilter, counters: Arc<Counters>) -> Self {
        Self {
            filter,
            counters,
            configurations: Configurations::default(),
        }
    }

    /// Returns the filter's configuration for these options.
    pub async fn configuration(&self, options: &[Setting]) -> Result<Arc<[u8]>, ConfigureError> {
        let configure = self.filter.configure(options);
        self.configurations.of(options, configure).await
    }
}

impl ToolComponent {
    /// A component that shares the counters of its digest in its slot.
    pub fn new(tool: LoadedTool, counters: Arc<Counters>) -> Self {
        Self { tool, counters }
    }
}

impl Component {
    /// A component that shares the counters of its digest in its slot.
    pub fn new(adapter: LoadedAdapter, counters: Arc<Counters>) -> Self {
        Self {
            adapter,
            counters,
            configurations: Configurations::default(),
        }
    }

    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the adapter's configuration for a provider's options.
    pub async fn configuration(&self, options: &[Setting]) -> Result<Arc<[u8]>, ConfigureError> {
        let configure = self.adapter.configure(options);
        self.configurations.of(options, configure).await
    }
}
