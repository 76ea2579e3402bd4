//! Retention of events, failed requests, prompts and responses, and of the sums of requests. A background task deletes
//! older ones in small batches, so that it does not delay writes.

use std::num::NonZeroU32;
use std::time::Duration;

use weir_storage::Database;
use weir_storage::background::Periodic;
use weir_storage::clock::Millis;

use crate::node::Core;
use crate::{failed_requests, traffic};

/// Interval between deletions, and the delay of the first one after the start, because requests take precedence.
const EVERY: Duration = Duration::from_secs(3_600);
const FIRST_AFTER: Duration = Duration::from_secs(60);

/// Events that one statement deletes, and the pause before the next one.
const BATCH: i64 = 500;
const PAUSE: Duration = Duration::from_millis(200);

/// The days for which rows are kept.
#[derive(Debug, Clone, Copy)]
pub struct RetentionDays {
    /// `audit_days`.
    pub audit: NonZeroU32,
    /// `content_log.days`; 0 without a content log.
    pub content_log: u8,
}

/// Deletes old events, failed requests, prompts, responses and sums, for ever.
pub async fn prune_for_ever(core: Core, days: RetentionDays) {
    let periodic = Periodic {
        name: "delete old records",
        every: EVERY,
        first_after: FIRST_AFTER,
    };
    let prune = || prune_old(&core.database, core.clock.now(), days);
    core.background.repeat(periodic, prune).await;
}

/// Deletes events, failed requests, prompts, responses and sums beyond their days.
///
/// # Errors
///
/// The first error; a table that cannot be read does not spare the others.
pub async fn prune_old(database: &Database, now: Millis, days: RetentionDays) -> sqlx::Result<()> {
    let before = |days: i64| now.plus_days(-days);
    let events = prune(database, before(days.audit.get().into())).await;
    if let Ok(events @ 1..) = events {
        tracing::info!(events, "deleted events older than `audit_days`");
    }
    let failures = prune_failures(database, before(failed_requests::KEPT_DAYS)).await;
    let contents = prune_contents(database, before(days.content_log.into())).await;
    let traffic = prune_traffic(database, before(traffic::KEPT_DAYS)).await;
    events.and(failures).and(contents).and(traffic).map(drop)
}

/// Deletes all events before a moment, of plugins too, and returns their number.
pub async fn prune(database: &Database, before: Millis) -> sqlx::Result<u64> {
    let audited = prune_batches(
        database,
        "DELETE FROM audit_events WHERE number IN \
         (SELECT number FROM audit_events WHERE at < $1 ORDER BY at LIMIT $2)",
        before,
    );
    let of_plugins = prune_batches(
        database,
        "DELETE FROM plugin_events WHERE number IN \
         (SELECT number FROM plugin_events WHERE at < $1 LIMIT $2)",
        before,
    );
    Ok(audited.await? + of_plugins.await?)
}

/// Deletes the failed requests before a moment, and the counts of those without a record. Returns their number.
pub async fn prune_failures(database: &Database, before: Millis) -> sqlx::Result<u64> {
    let counts = prune_batches(
        database,
        "DELETE FROM failed_request_counts WHERE (account_id, minute) IN \
         (SELECT account_id, minute FROM failed_request_counts WHERE minute < $1 ORDER BY minute LIMIT $2)",
        before,
    );
    let records = prune_batches(
        database,
        "DELETE FROM failed_requests WHERE request_id IN \
         (SELECT request_id FROM failed_requests WHERE at < $1 ORDER BY at LIMIT $2)",
        before,
    );
    Ok(counts.await? + records.await?)
}

/// Deletes the prompts and responses of requests that ended before a moment, and returns their number.
pub async fn prune_contents(database: &Database, before: Millis) -> sqlx::Result<u64> {
    prune_batches(
        database,
        "DELETE FROM content_logs WHERE request_id IN \
         (SELECT request_id FROM content_logs WHERE at < $1 ORDER BY at LIMIT $2)",
        before,
    )
    .await
}

/// Deletes the sums of requests of hours before a moment, and returns their number.
pub async fn prune_traffic(database: &Database, before: Millis) -> sqlx::Result<u64> {
    prune_batches(
        database,
        "DELETE FROM traffic_hours WHERE (scope, hour, organisation_id, key_id, provider, model) IN \
         (SELECT scope, hour, organisation_id, key_id, provider, model FROM traffic_hours WHERE hour < $1 \
         ORDER BY hour LIMIT $2)",
        before,
    )
    .await
}

async fn prune_batches(
    database: &Database,
    statement: &'static str,
    before: Millis,
) -> sqlx::Result<u64> {
    let mut all = 0;
    loop {
        let removed = sqlx::query(statement)
            .bind(before.0)
            .bind(BATCH)
            .execute(database.writer())
            .await?
            .rows_affected();
        all += removed;
        if removed < BATCH as u64 {
            return Ok(all);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
