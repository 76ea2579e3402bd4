//! When keys were last used, written behind: a request notes it in memory, and a task writes what was noted,
//! at most once a minute for each key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::identity::store;
use weir_storage::Database;
use weir_storage::clock::Millis;

const INTERVAL: Duration = Duration::from_secs(60);

/// Keys that one statement writes: few enough to hold up nobody who waits to write.
const BATCH: usize = 500;

/// What was noted and is not written yet. Bounded by the keys that exist. Cheap to clone.
#[derive(Clone, Default)]
pub struct LastUsed(Arc<Mutex<HashMap<String, Millis>>>);

impl LastUsed {
    /// Notes that a key was used.
    pub fn touch(&self, key_id: &str, now: Millis) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match noted.get_mut(key_id) {
            Some(at) => *at = now,
            None => {
                noted.insert(key_id.to_owned(), now);
            }
        }
    }

    /// Writes what was noted, every minute, for ever.
    pub async fn write_behind(self, database: Database) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.flush(&database).await;
        }
    }

    /// Writes what was noted.
    pub async fn flush(&self, database: &Database) {
        let noted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if noted.is_empty() {
            return;
        }
        let noted: Vec<_> = noted.into_iter().collect();
        for batch in noted.chunks(BATCH) {
            if let Err(error) = store::set_last_used(database, batch).await {
                // Only a date is lost, and the next use notes it again.
                tracing::warn!(%error, keys = batch.len(), "last uses of keys are not written");
            }
        }
    }
}
