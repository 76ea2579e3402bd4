//! Counters of components, as sums over all nodes.

use std::collections::BTreeMap;

use sqlx::Row;
use weir_sandbox::Digest;
use weir_storage::Database;

use super::row::digest;
use crate::counters::ExchangeCounts;

/// Adds to the counters of components.
pub(crate) async fn add_counts(
    database: &Database,
    slot: &str,
    digest: Digest,
    counts: &ExchangeCounts,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO plugin_counters (slot, digest, requests, errors, traps, latency_us, credits, clamps) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (slot, digest) DO UPDATE SET \
         requests = plugin_counters.requests + excluded.requests, \
         errors = plugin_counters.errors + excluded.errors, \
         traps = plugin_counters.traps + excluded.traps, \
         latency_us = plugin_counters.latency_us + excluded.latency_us, \
         credits = plugin_counters.credits + excluded.credits, \
         clamps = plugin_counters.clamps + excluded.clamps",
    )
    .bind(slot)
    .bind(digest.to_string())
    .bind(counts.requests)
    .bind(counts.errors)
    .bind(counts.traps)
    .bind(counts.latency_us)
    .bind(counts.credits)
    .bind(counts.clamps)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Returns the counters of components, by slot and digest.
pub(crate) async fn counts(
    database: &Database,
) -> sqlx::Result<BTreeMap<(String, Digest), ExchangeCounts>> {
    let rows = sqlx::query(
        "SELECT slot, digest, requests, errors, traps, latency_us, credits, clamps FROM plugin_counters",
    )
    .fetch_all(database.reader())
    .await?;
    rows.iter()
        .map(|row| {
            let counts = ExchangeCounts {
                requests: row.try_get("requests")?,
                errors: row.try_get("errors")?,
                traps: row.try_get("traps")?,
                latency_us: row.try_get("latency_us")?,
                credits: row.try_get("credits")?,
                clamps: row.try_get("clamps")?,
            };
            Ok(((row.try_get("slot")?, digest(row, "digest")?), counts))
        })
        .collect()
}
