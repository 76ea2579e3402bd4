//! The place of stored responses: in process, or in Redis for all nodes.

use std::time::Duration;

use weir_request::metrics::response_cache::ResponseCacheMetrics;
use weir_storage::Cache;
use weir_storage::clock::{Clock, Millis};
use weir_storage::ids::Hex;
use weir_storage::sealing::KeyRing;

use super::entry::StoredResponse;
use super::settings::ResponseCacheSettings;

/// The store of responses.
pub(super) struct ResponseStore {
    pub(super) settings: ResponseCacheSettings,
    pub(super) keys: KeyRing,
    pub(super) metrics: ResponseCacheMetrics,
    pub(super) cache: Cache,
    pub(super) clock: Clock,
}

impl ResponseStore {
    /// Returns a stored response and its age. A cache that does not respond has none, and neither has an entry that
    /// weir cannot read.
    pub(super) async fn find(&self, key: &[u8; 32]) -> Option<(StoredResponse, Duration)> {
        let sealed = self.cache.find_large(&name(key)).await.ok()??;
        let stored = StoredResponse::open(&self.keys, key, &sealed)?;
        // The clock of another node may be ahead.
        let age = u64::try_from(self.now().0 - stored.stored_at).unwrap_or(0);
        let age = Duration::from_millis(age);
        (age < self.settings.ttl()).then_some((stored, age))
    }

    /// Stores a response, if it ended normally and the cache responds.
    pub(super) async fn put(&self, key: &[u8; 32], response: StoredResponse) {
        let settings = &self.settings;
        let Some(sealed) = response.seal(&self.keys, key, self.max_bytes()) else {
            return;
        };
        let (bytes, most) = (sealed.len(), settings.max_entries.get() as usize);
        let (name, ttl) = (name(key), settings.ttl());
        let put = self.cache.put_large(&name, sealed, ttl, most).await;
        if put.is_ok() {
            self.metrics.stored(bytes);
        }
    }

    pub(super) fn max_bytes(&self) -> usize {
        self.settings.max_bytes.get() as usize
    }

    pub(super) fn now(&self) -> Millis {
        self.clock.now()
    }
}

fn name(key: &[u8; 32]) -> String {
    format!("response:{}", Hex(key))
}
