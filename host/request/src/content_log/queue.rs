//! The queue of contents, and their reader.

use std::sync::Arc;

use futures_util::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::sealing::KeyRing;

use super::content::LoggedContent;
use super::store::{self, SealedContent, StoredContent};
use crate::write_behind::{HOUR_MS, NewRecord, QueueLimits, WriteBehind};

/// Stored contents of an account and hour; successful requests take at most half of them, so that failures have room.
const MOST_AN_HOUR: u32 = 600;
const MOST_SUCCESSES_AN_HOUR: u32 = MOST_AN_HOUR / 2;

/// A transaction has about a MiB, so that it is short.
const LIMITS: QueueLimits = QueueLimits {
    span_ms: HOUR_MS,
    batch: 100,
    batch_bytes: 1 << 20,
    queue_bytes: 32 << 20,
};

/// The log of contents: a queue of new ones, and the stored ones.
pub struct ContentLog {
    queue: WriteBehind<EndedContent>,
    database: Database,
    keys: KeyRing,
    clock: Clock,
    days: i64,
}

/// The content of a request that has ended.
pub struct EndedContent {
    pub request_id: String,
    pub at: Millis,
    /// The account that pays.
    pub account_id: String,
    /// The person or the service account that sent it.
    pub user_id: String,
    /// The API key, by its id.
    pub key_id: Option<String>,
    /// Whether the organisation chose to store it.
    pub for_organisation: bool,
    pub content: LoggedContent,
}

impl ContentLog {
    /// Starts the writer of contents that stay for some days. The counter counts contents that are not stored.
    pub fn start(
        database: Database,
        keys: KeyRing,
        clock: Clock,
        days: u8,
        dropped: Counter,
    ) -> Arc<Self> {
        let (of_writer, sealing) = (database.clone(), keys.clone());
        let write = Box::new(move |contents: Vec<EndedContent>| {
            let (database, keys) = (of_writer.clone(), sealing.clone());
            async move {
                let seal = move || contents.into_iter().map(|one| seal(&keys, one)).collect();
                let sealed: Vec<_> = tokio::task::spawn_blocking(seal)
                    .await
                    .map_err(|_| sqlx::Error::WorkerCrashed)?;
                store::insert(&database, &sealed).await
            }
            .boxed()
        });
        Arc::new(Self {
            queue: WriteBehind::start(LIMITS, "prompts and responses", dropped, write),
            database,
            keys,
            clock,
            days: days.into(),
        })
    }

    /// Records the content of a request that ends now, if it has any.
    pub fn record(&self, ended: impl FnOnce(Millis) -> EndedContent) {
        let mut ended = ended(self.clock.now());
        if ended.content.is_empty() {
            return;
        }
        let account = ended.account_id.clone();
        let new = NewRecord {
            account: &account,
            at: ended.at,
            most: most_an_hour(&ended.content),
            bytes: ended.content.bytes(),
        };
        self.queue.put(&new, ended);
    }

    /// Returns the stored content of a request, still sealed, after all contents so far are written.
    pub async fn find(&self, request_id: &str) -> sqlx::Result<Option<StoredContent>> {
        self.queue.flush().await;
        let since = self.oldest();
        store::find(&self.database, request_id, since).await
    }

    /// Returns stored contents of a user, still sealed, in the order of their ids behind one.
    pub async fn list_of_user(
        &self,
        user_id: &str,
        after: &str,
        limit: i64,
    ) -> sqlx::Result<Vec<StoredContent>> {
        store::list_of_user(&self.database, user_id, after, self.oldest(), limit).await
    }

    /// Opens a stored content; `None` if its sealing key is gone.
    pub fn open(&self, stored: &StoredContent) -> Option<LoggedContent> {
        store::open(&self.keys, stored)
    }

    /// Waits until all contents so far are written, or lost.
    pub async fn flush(&self) {
        self.queue.flush().await;
    }

    /// Returns the days for which contents stay.
    pub fn days(&self) -> i64 {
        self.days
    }

    /// Returns the time of the oldest content that has not expired.
    fn oldest(&self) -> Millis {
        self.clock.now().plus_days(-self.days)
    }
}

fn most_an_hour(content: &LoggedContent) -> u32 {
    match content.error {
        Some(_) => MOST_AN_HOUR,
        None => MOST_SUCCESSES_AN_HOUR,
    }
}

/// Redacts and seals a content.
fn seal(keys: &KeyRing, ended: EndedContent) -> SealedContent {
    let mut content = ended.content;
    content.redact();
    let place = StoredContent {
        request_id: ended.request_id,
        at: ended.at,
        account_id: ended.account_id,
        user_id: ended.user_id,
        key_id: ended.key_id,
        for_organisation: ended.for_organisation,
        sealed: Vec::new(),
    };
    SealedContent {
        most_an_hour: most_an_hour(&content),
        stored: store::seal(keys, place, &content),
    }
}
