//! Writes of this node's counters into the database.

use std::sync::Arc;

use weir_storage::Database;

use super::Plugins;
use crate::counters::ExchangeCounts;
use crate::store;

impl Plugins {
    /// Writes the counts of components since the last call.
    pub async fn write_counts(&self, database: &Database) -> sqlx::Result<()> {
        let counters: Vec<_> = {
            let mut all = self.lock_counters();
            // No component uses these counters any more, and they are empty.
            all.retain(|_, counters| {
                Arc::strong_count(counters) > 1 || counters.peek() != ExchangeCounts::default()
            });
            all.iter()
                .map(|(key, counters)| (key.clone(), counters.clone()))
                .collect()
        };
        for ((slot, digest), counters) in counters {
            let counts = counters.take();
            if counts == ExchangeCounts::default() {
                continue;
            }
            if let Err(error) = store::add_counts(database, &slot, digest, &counts).await {
                counters.put_back(&counts);
                return Err(error);
            }
        }
        self.write_samples(database).await
    }
}
