//! Components in quarantine.

use weir_sandbox::Digest;
use weir_storage::database::Transaction;

pub(super) async fn is_quarantined(
    transaction: &mut Transaction,
    slot: &str,
    digest: Digest,
) -> sqlx::Result<bool> {
    let found =
        sqlx::query("SELECT digest FROM plugin_quarantines WHERE slot = $1 AND digest = $2")
            .bind(slot)
            .bind(digest.to_string())
            .fetch_optional(&mut *transaction)
            .await?;
    Ok(found.is_some())
}

/// Ends a component's quarantine on an operator's request.
pub(super) async fn end_quarantine(
    transaction: &mut Transaction,
    slot: &str,
    digest: Digest,
) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM plugin_quarantines WHERE slot = $1 AND digest = $2")
        .bind(slot)
        .bind(digest.to_string())
        .execute(&mut *transaction)
        .await
        .map(drop)
}
