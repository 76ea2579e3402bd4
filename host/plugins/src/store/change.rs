//! The common parts of every change of a slot.

use sqlx::AssertSqlSafe;
use weir_sandbox::Digest;
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;

use super::row::{SLOT_COLUMNS, SlotRow, read_slot};
use crate::OperationError;
use crate::trust::ValidSignature;

/// The slot, actor and time of a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotChange<'a> {
    pub slot: &'a str,
    pub actor: &'a str,
    pub at: Millis,
}

/// A component to be activated.
#[derive(Clone, Copy)]
pub(crate) struct ActivationCandidate<'a> {
    pub digest: Digest,
    pub version: &'a str,
    pub signed: Option<&'a ValidSignature>,
}

impl ActivationCandidate<'_> {
    /// Refuses a component below its slot's least version.
    pub(super) fn check_least(&self, slot: &SlotRow) -> Result<(), OperationError> {
        match &slot.policy.least_version {
            Some(least) if slot.policy.is_too_low(self.version) => {
                Err(OperationError::BelowLeast {
                    least: least.clone(),
                    version: self.version.to_owned(),
                })
            }
            _ => Ok(()),
        }
    }
}

/// An event's content besides actor, slot and time.
pub(super) struct SlotEvent<'a> {
    pub(super) kind: &'static str,
    pub(super) digest: Option<Digest>,
    pub(super) previous: Option<Digest>,
    pub(super) detail: Option<&'a str>,
}

/// Locks out other changes, and returns this change's number.
pub(super) async fn raise_generation(transaction: &mut Transaction) -> sqlx::Result<i64> {
    sqlx::query("UPDATE plugin_generation SET number = number + 1")
        .execute(&mut *transaction)
        .await?;
    sqlx::query_scalar("SELECT number FROM plugin_generation")
        .fetch_one(&mut *transaction)
        .await
}

pub(super) async fn find_slot(
    transaction: &mut Transaction,
    slot: &str,
) -> sqlx::Result<Option<SlotRow>> {
    let text = format!("SELECT {SLOT_COLUMNS} FROM slots WHERE slot = $1");
    sqlx::query(AssertSqlSafe(text))
        .bind(slot)
        .fetch_optional(&mut *transaction)
        .await?
        .map(|row| read_slot(&row))
        .transpose()
}

pub(super) async fn is_installed(
    transaction: &mut Transaction,
    slot: &str,
    digest: Digest,
) -> sqlx::Result<bool> {
    let found = sqlx::query("SELECT digest FROM plugins WHERE slot = $1 AND digest = $2")
        .bind(slot)
        .bind(digest.to_string())
        .fetch_optional(&mut *transaction)
        .await?;
    Ok(found.is_some())
}

/// Returns the digest that a slot's row has for a component: none for the binary's own, so that an upgraded binary brings its
/// successor. If the component is installed, too, the row names it: nodes of another binary find it there.
pub(super) async fn named(
    transaction: &mut Transaction,
    slot: &str,
    digest: Digest,
    bundled: Option<Digest>,
) -> sqlx::Result<Option<Digest>> {
    let is_named = bundled != Some(digest) || is_installed(transaction, slot, digest).await?;
    Ok(is_named.then_some(digest))
}

pub(super) async fn write_slot(
    transaction: &mut Transaction,
    change: SlotChange<'_>,
    active: Option<Digest>,
    previous: Option<Digest>,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO slots (slot, active_digest, previous_digest, changed_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (slot) DO UPDATE SET active_digest = excluded.active_digest, \
         previous_digest = excluded.previous_digest, changed_at = excluded.changed_at, \
         publisher = CASE WHEN excluded.active_digest IS NULL THEN slots.publisher ELSE \
         (SELECT signer FROM plugins WHERE plugins.slot = excluded.slot \
         AND plugins.digest = excluded.active_digest) END",
    )
    .bind(change.slot)
    .bind(active.map(|digest| digest.to_string()))
    .bind(previous.map(|digest| digest.to_string()))
    .bind(change.at.0)
    .execute(&mut *transaction)
    .await
    .map(drop)
}

pub(super) async fn write_event(
    transaction: &mut Transaction,
    number: i64,
    change: SlotChange<'_>,
    event: SlotEvent<'_>,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO plugin_events (number, at, slot, kind, digest, previous_digest, actor, detail) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(number)
    .bind(change.at.0)
    .bind(change.slot)
    .bind(event.kind)
    .bind(event.digest.map(|digest| digest.to_string()))
    .bind(event.previous.map(|digest| digest.to_string()))
    .bind(change.actor)
    .bind(event.detail)
    .execute(&mut *transaction)
    .await?;
    write_audit_event(transaction, change, event).await
}

/// Adds the event to the audit, which lists the changes of all features. In the same transaction: neither is without the other.
async fn write_audit_event(
    transaction: &mut Transaction,
    change: SlotChange<'_>,
    event: SlotEvent<'_>,
) -> sqlx::Result<()> {
    let digest = event.digest.map(|digest| format!(" {digest}"));
    let reason = format!("{}{}", change.slot, digest.unwrap_or_default());
    sqlx::query(
        "INSERT INTO audit_events (at, count, kind, actor, reason) VALUES ($1, 1, $2, $3, $4)",
    )
    .bind(change.at.0)
    .bind(format!("plugin.{}", event.kind))
    .bind(change.actor)
    .bind(reason)
    .execute(&mut *transaction)
    .await
    .map(drop)
}
