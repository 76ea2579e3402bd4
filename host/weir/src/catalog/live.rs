//! The active catalog, which a reload replaces while requests are in progress.
//!
//! **Invariant:** a request uses one catalog from its admission to its charge: its model, upstreams and prices do not
//! change with a reload.

use std::sync::{Arc, PoisonError, RwLock};

use super::Catalog;

/// The active catalog.
pub struct LiveCatalog(RwLock<Arc<Catalog>>);

impl LiveCatalog {
    /// Makes it with an initial catalog.
    pub fn new(catalog: Catalog) -> Self {
        Self(RwLock::new(Arc::new(catalog)))
    }

    /// Returns the current catalog.
    pub fn load(&self) -> Arc<Catalog> {
        let catalog = self.0.read();
        catalog.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Activates another catalog, and returns the previous one.
    pub fn replace(&self, catalog: Catalog) -> Arc<Catalog> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut current, Arc::new(catalog))
    }
}
