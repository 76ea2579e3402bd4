//! Which plugins serve: the components in their slots, and what operators can do about them.
//!
//! What a component is, and how it is checked and run, is the [sandbox](weir_sandbox)'s. Which one serves in which
//! [slot](slots) is in the database, and every node follows it while it runs: operators install, activate, roll back and
//! remove through [`routes`], and a component that fails too often is taken out of service by itself.
//!
//! **Invariant:** an exchange ends on the component that it began with, whatever its slot serves with by then.
//!
//! To change what operators can do to slots, edit [`slots`], with its SQL in `store`; what a guest may use or import,
//! the sandbox.

pub mod bundled;
pub mod counters;
mod error;
pub mod routes;
pub mod settings;
pub mod slots;
mod store;

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use weir_sandbox::adapter::bindings::adapter::Setting;
use weir_sandbox::adapter::{Adapter, ConfigureError};

use self::counters::Counters;
pub use self::error::OperationError;
pub use self::slots::{Loader, Plugins};
pub use self::store::Quarantined;

/// An adapter in its slot: what it has done there, and what it made of its providers' options.
pub struct Component {
    adapter: Adapter,
    counters: Arc<Counters>,
    configurations: Mutex<Vec<Configuration>>,
}

/// What the adapter made of a provider's options.
struct Configuration {
    options: Vec<Setting>,
    made: Arc<[u8]>,
}

impl Deref for Component {
    type Target = Adapter;

    fn deref(&self) -> &Adapter {
        &self.adapter
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
