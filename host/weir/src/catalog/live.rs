//! The catalog in force, which a changed configuration replaces while requests are under way.
//!
//! **Invariant:** a request goes by one catalog from its admission to its charge: its model, upstreams and prices are those
//! of that moment, whatever is taken up meanwhile.

use std::sync::{Arc, PoisonError, RwLock};

use super::Catalog;

/// The catalog in force.
pub struct LiveCatalog(RwLock<Arc<Catalog>>);

impl LiveCatalog {
    /// One that begins with this.
    pub fn new(catalog: Catalog) -> Self {
        Self(RwLock::new(Arc::new(catalog)))
    }

    /// The one at this moment.
    pub fn load(&self) -> Arc<Catalog> {
        let catalog = self.0.read();
        catalog.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another one into force, and returns the one before.
    pub fn replace(&self, catalog: Catalog) -> Arc<Catalog> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, Arc::new(catalog))
    }
}
