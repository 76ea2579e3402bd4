//! The active catalog, which a reload replaces while requests are in progress.
//!
//! **Invariant:** a request uses one catalog from its admission to its charge: its model, upstreams and prices do not
//! change with a reload.
//! **Invariant:** a credential that its provider refused is tried again as soon as a reload has changed it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use weir_upstream::breaker::Breakers;
use weir_upstream::credential::Credential;

use super::Catalog;

pub struct LiveCatalog {
    current: RwLock<Arc<Catalog>>,
    breakers: Breakers,
}

impl LiveCatalog {
    /// Makes it with an initial catalog, and the breakers of its upstreams.
    pub fn new(catalog: Catalog, breakers: Breakers) -> Self {
        Self {
            current: RwLock::new(Arc::new(catalog)),
            breakers,
        }
    }

    pub fn load(&self) -> Arc<Catalog> {
        let catalog = self.current.read();
        catalog.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the breakers of the upstreams of all catalogs.
    pub fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    /// Activates another catalog, and returns the previous one.
    pub fn replace(&self, catalog: Catalog) -> Arc<Catalog> {
        let catalog = Arc::new(catalog);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, catalog.clone());
        drop(current);
        let known = credentials(&before);
        for (key, credential) in credentials(&catalog) {
            let is_same = known.get(key).is_some_and(|known| {
                matches!((known, credential), (Some(known), Some(new)) if known.is_same_secret(new))
            });
            if !is_same {
                self.breakers.note_new_credential(key);
            }
        }
        before
    }
}

/// Returns the credential of each upstream, by the key of its breaker.
fn credentials(catalog: &Catalog) -> HashMap<&str, Option<&Credential>> {
    let members = catalog.candidates().flat_map(|candidate| &candidate.pool);
    members
        .map(|member| (&*member.key, member.upstream.credential.as_ref()))
        .collect()
}
