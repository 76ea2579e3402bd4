//! Times of last use of keys, written behind: a request records the time in memory, and a task writes it, at most once
//! a minute for each key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_storage::Database;
use weir_storage::background::{Background, Periodic};
use weir_storage::clock::Millis;

use crate::store;

const INTERVAL: Duration = Duration::from_secs(60);

/// The maximum keys of one statement. More would delay other writers.
const BATCH: usize = 500;

/// The times that are not written yet. The number of existing keys bounds it. Cheap to clone.
#[derive(Clone, Default)]
pub struct LastUsed(Arc<Mutex<HashMap<String, Millis>>>);

impl LastUsed {
    /// Records that a key was used.
    pub fn touch(&self, key_id: &str, now: Millis) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match noted.get_mut(key_id) {
            Some(at) => *at = now,
            None => {
                noted.insert(key_id.to_owned(), now);
            }
        }
    }

    /// Writes the recorded times every minute; never returns.
    pub async fn write_behind(self, database: Database, background: Background) {
        let periodic = Periodic {
            name: "write the times of last use of keys",
            every: INTERVAL,
            first_after: INTERVAL,
        };
        background.repeat(periodic, || self.flush(&database)).await;
    }

    /// Writes the recorded times. A failure loses only times, and the next use records them again.
    pub async fn flush(&self, database: &Database) -> sqlx::Result<()> {
        let noted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let noted: Vec<_> = noted.into_iter().collect();
        let mut written = Ok(());
        // A batch that fails does not lose the others.
        for batch in noted.chunks(BATCH) {
            written = written.and(store::set_last_used(database, batch).await);
        }
        written
    }
}
