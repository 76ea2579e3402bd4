//! The endpoints and the development folder of plugins; [`weir_plugins`] chooses the active component.

pub mod routes;
pub mod watch;

use std::ops::Deref;
use std::sync::Arc;

use weir_catalog::live::LiveCatalog;
use weir_ledger::Ledger;
use weir_plugins::Plugins;
use weir_plugins::slots::Stores;
use weir_request::node::Core;

/// The parts of a gateway that change slots. Cheap to clone.
#[derive(Clone)]
pub struct PluginParts {
    /// The stores, the clock and the audit.
    pub core: Core,
    /// The slots.
    pub plugins: Plugins,
    /// The ledger, for the live nodes.
    pub ledger: Ledger,
    /// The catalog, which a component must fit.
    pub catalog: Arc<LiveCatalog>,
}

impl PluginParts {
    /// Returns the stores for operators' changes, and their announcement.
    pub fn stores(&self) -> Stores<'_> {
        Stores {
            database: &self.core.database,
            cache: &self.core.cache,
        }
    }
}

impl Deref for PluginParts {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}
