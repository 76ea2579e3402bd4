//! A component in its slot: what it is, what it has done there, and what the slot is for.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_sandbox::Digest;
use weir_sandbox::adapter::bindings::adapter::Setting;
use weir_sandbox::adapter::{self, Adapter, ConfigureError};
use weir_sandbox::tool::{self, Tool};

use super::counters::Counters;

/// What a slot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Translating for providers.
    Adapter,
    /// Being called by agents' models.
    Tool,
}

impl Kind {
    /// As it stands in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Adapter => "adapter",
            Self::Tool => "tool",
        }
    }

    /// Reads what [`Kind::as_str`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Adapter, Self::Tool]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// A component that can serve in its slot. Cheap to clone.
#[derive(Clone)]
pub enum Plugin {
    /// An adapter.
    Adapter(Arc<Component>),
    /// A tool.
    Tool(Arc<ToolComponent>),
}

/// An adapter in its slot: what it has done there, and what it made of its providers' options.
pub struct Component {
    adapter: Adapter,
    counters: Arc<Counters>,
    configurations: Mutex<Vec<Configuration>>,
}

/// A tool in its slot, and what it has done there.
pub struct ToolComponent {
    tool: Tool,
    counters: Arc<Counters>,
}

/// What the adapter made of a provider's options.
struct Configuration {
    options: Vec<Setting>,
    made: Arc<[u8]>,
}

impl Plugin {
    /// What its slot is for.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Adapter(_) => Kind::Adapter,
            Self::Tool(_) => Kind::Tool,
        }
    }

    /// Its slot.
    pub fn slot(&self) -> &Arc<str> {
        match self {
            Self::Adapter(adapter) => adapter.name(),
            Self::Tool(tool) => tool.name(),
        }
    }

    /// Which code it is.
    pub fn digest(&self) -> Digest {
        match self {
            Self::Adapter(adapter) => adapter.digest(),
            Self::Tool(tool) => tool.digest(),
        }
    }

    /// The version of the contract that it was built for.
    pub fn contract(&self) -> &str {
        match self {
            Self::Adapter(adapter) => adapter.contract(),
            Self::Tool(tool) => tool.contract(),
        }
    }

    /// What it calls itself.
    pub fn name(&self) -> &str {
        match self {
            Self::Adapter(adapter) => &adapter.description.name,
            Self::Tool(tool) => &tool.description.name,
        }
    }

    /// Its own version.
    pub fn version(&self) -> &str {
        match self {
            Self::Adapter(adapter) => &adapter.description.version,
            Self::Tool(tool) => &tool.description.version,
        }
    }

    /// What it says of itself, as it is kept.
    pub fn description(&self) -> Value {
        match self {
            Self::Adapter(adapter) => adapter::description::to_json(&adapter.description),
            Self::Tool(tool) => tool::description::to_json(&tool.description),
        }
    }

    /// What it has done.
    pub fn counters(&self) -> &Arc<Counters> {
        match self {
            Self::Adapter(adapter) => adapter.counters(),
            Self::Tool(tool) => &tool.counters,
        }
    }
}

impl Deref for Component {
    type Target = Adapter;

    fn deref(&self) -> &Adapter {
        &self.adapter
    }
}

impl Deref for ToolComponent {
    type Target = Tool;

    fn deref(&self) -> &Tool {
        &self.tool
    }
}

impl ToolComponent {
    /// A component that counts where all of its digest in its slot count.
    pub fn new(tool: Tool, counters: Arc<Counters>) -> Self {
        Self { tool, counters }
    }
}

impl Component {
    /// A component that counts where all of its digest in its slot count.
    pub fn new(adapter: Adapter, counters: Arc<Counters>) -> Self {
        Self {
            adapter,
            counters,
            configurations: Mutex::default(),
        }
    }

    /// What it has done.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// What the adapter made of a provider's options. It is asked once for each set of them, of which there are as many
    /// as providers.
    pub async fn configuration(&self, options: &[Setting]) -> Result<Arc<[u8]>, ConfigureError> {
        if let Some(known) = self.known(options) {
            return Ok(known);
        }
        let made: Arc<[u8]> = self.adapter.configure(options).await?.into();
        let mut configurations = self
            .configurations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        configurations.push(Configuration {
            options: options.to_vec(),
            made: made.clone(),
        });
        Ok(made)
    }

    fn known(&self, options: &[Setting]) -> Option<Arc<[u8]>> {
        let configurations = self.configurations.lock();
        let configurations = configurations.unwrap_or_else(PoisonError::into_inner);
        let mut known = configurations.iter();
        let known = known.find(|known| known.options == options)?;
        Some(known.made.clone())
    }
}
