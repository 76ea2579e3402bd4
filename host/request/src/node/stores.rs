//! Timeouts of the database and the cache: `[stores]`.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;
use weir_storage::cache::Cache;
use weir_storage::database::Timeouts;

/// Timeouts of the database and the cache: `[stores]`. After a timeout, weir returns 503 with a retry delay.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// Milliseconds to get a database connection, or SQLite's write lock. Default: 250.
    pub acquire_ms: NonZeroU64,
    /// Milliseconds for a database statement, and twice as many for a request's hold. Default: 1,000.
    pub statement_ms: NonZeroU64,
    /// Milliseconds for a Redis response. Default: 250.
    pub cache_ms: NonZeroU64,
}

impl Default for StoreSettings {
    fn default() -> Self {
        let Timeouts { acquire, statement } = Timeouts::default();
        let ms = |time: Duration| {
            let ms = u64::try_from(time.as_millis()).expect("a small number");
            NonZeroU64::new(ms).expect("not zero")
        };
        Self {
            acquire_ms: ms(acquire),
            statement_ms: ms(statement),
            cache_ms: ms(Cache::TIMEOUT),
        }
    }
}

impl StoreSettings {
    pub fn database(&self) -> Timeouts {
        Timeouts {
            acquire: Duration::from_millis(self.acquire_ms.get()),
            statement: Duration::from_millis(self.statement_ms.get()),
        }
    }

    /// Returns the timeout of a request's hold: for the current commit, and for the next one, which includes the hold.
    pub fn hold(&self) -> Duration {
        self.database().statement * 2
    }

    /// Returns the cache's timeout.
    pub fn cache(&self) -> Duration {
        Duration::from_millis(self.cache_ms.get())
    }
}
