//! The SQL of canaries: beginning, promotion, end and samples.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, Row};
use weir_sandbox::Digest;
use weir_storage::Database;
use weir_storage::database::Transaction;

use super::change::{
    ActivationCandidate, SlotChange, SlotEvent, find_slot, is_installed, named, raise_generation,
    write_event, write_slot,
};
use super::quarantines::{end_quarantine, is_quarantined};
use super::row::{CanaryRow, digest};
use crate::canary::samples::Moments;
use crate::canary::{CanaryTerms, Measure, Samples};
use crate::succession::check_succession;
use crate::{OperationError, Permissions};

/// Starts a canary for a share of a slot's accounts, in place of any other canary. The same component begins anew on
/// the new terms.
pub(crate) async fn start_canary(
    database: &Database,
    change: SlotChange<'_>,
    candidate: ActivationCandidate<'_>,
    terms: CanaryTerms,
    bundled: Option<Digest>,
    permissions: Permissions,
) -> Result<(), OperationError> {
    let ActivationCandidate { digest, signed, .. } = candidate;
    let mut transaction = database.begin().await?;
    let mut number = raise_generation(&mut transaction).await?;
    let before = find_slot(&mut transaction, change.slot).await?;
    if before.is_none() && bundled.is_none() {
        return Err(OperationError::UnknownSlot);
    }
    let before = before.unwrap_or_default();
    candidate.check_least(&before)?;
    let is_bundled = bundled == Some(digest);
    if !is_bundled && !is_installed(&mut transaction, change.slot, digest).await? {
        return Err(OperationError::UnknownPlugin);
    }
    let active = before.active.or(bundled);
    let active = active.ok_or(OperationError::NothingBeside)?;
    // The slot refuses.
    if is_quarantined(&mut transaction, change.slot, active).await? {
        return Err(OperationError::NothingBeside);
    }
    if active == digest {
        return Err(OperationError::IsActive);
    }
    let other = before.canary.filter(|canary| canary.digest != digest);
    // The current canary's component has passed the check of succession already.
    if !is_bundled && (before.canary.is_none() || other.is_some()) {
        check_succession(&mut transaction, change.slot, signed, permissions).await?;
    }
    end_quarantine(&mut transaction, change.slot, digest).await?;
    if let Some(other) = other {
        let why = "another canary replaces it";
        end(&mut transaction, number, change, other, why).await?;
        number = raise_generation(&mut transaction).await?;
    }
    sqlx::query("DELETE FROM canary_samples WHERE slot = $1")
        .bind(change.slot)
        .execute(&mut transaction)
        .await?;
    sqlx::query(
        "INSERT INTO slots (slot, changed_at) VALUES ($1, $2) ON CONFLICT (slot) DO NOTHING",
    )
    .bind(change.slot)
    .bind(change.at.0)
    .execute(&mut transaction)
    .await?;
    let row = CanaryRow {
        digest,
        number,
        share: terms.share,
        since: change.at,
        promote_after: terms.promote_after,
    };
    write_canary(&mut transaction, change, Some(row)).await?;
    let detail = terms.to_string();
    let event = SlotEvent {
        kind: "canary_started",
        digest: Some(digest),
        previous: Some(active),
        detail: Some(&detail),
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(())
}

/// Ends a slot's canary, if it still is the one of this number. Returns whether it was.
pub(crate) async fn end_canary(
    database: &Database,
    change: SlotChange<'_>,
    canary: i64,
    why: &str,
) -> sqlx::Result<bool> {
    let mut transaction = database.begin().await?;
    let number = raise_generation(&mut transaction).await?;
    let Some(row) = find_canary(&mut transaction, change.slot, canary).await? else {
        return Ok(false);
    };
    end(&mut transaction, number, change, row, why).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Promotes a slot's canary, if it still is the one of this number. Returns whether it was.
pub(crate) async fn promote_canary(
    database: &Database,
    change: SlotChange<'_>,
    canary: i64,
    bundled: Option<Digest>,
    why: &str,
) -> sqlx::Result<bool> {
    let mut transaction = database.begin().await?;
    let number = raise_generation(&mut transaction).await?;
    let Some(row) = find_canary(&mut transaction, change.slot, canary).await? else {
        return Ok(false);
    };
    let before = find_slot(&mut transaction, change.slot).await?;
    let before = before.unwrap_or_default().active;
    let active = named(&mut transaction, change.slot, row.digest, bundled).await?;
    write_slot(&mut transaction, change, active, before).await?;
    write_canary(&mut transaction, change, None).await?;
    let event = SlotEvent {
        kind: "canary_promoted",
        digest: Some(row.digest),
        previous: before.or(bundled),
        detail: Some(why),
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(true)
}

async fn find_canary(
    transaction: &mut Transaction,
    slot: &str,
    number: i64,
) -> sqlx::Result<Option<CanaryRow>> {
    let slot = find_slot(transaction, slot).await?;
    let canary = slot.and_then(|slot| slot.canary);
    Ok(canary.filter(|canary| canary.number == number))
}

/// Ends a canary within a change of its slot, as the event of this number.
pub(super) async fn end(
    transaction: &mut Transaction,
    number: i64,
    change: SlotChange<'_>,
    canary: CanaryRow,
    why: &str,
) -> sqlx::Result<()> {
    write_canary(transaction, change, None).await?;
    let event = SlotEvent {
        kind: "canary_ended",
        digest: Some(canary.digest),
        previous: None,
        detail: Some(why),
    };
    write_event(transaction, number, change, event).await
}

pub(super) async fn write_canary(
    transaction: &mut Transaction,
    change: SlotChange<'_>,
    canary: Option<CanaryRow>,
) -> sqlx::Result<()> {
    let promote_after = canary.and_then(|canary| canary.promote_after);
    sqlx::query(
        "UPDATE slots SET canary_digest = $2, canary_number = $3, canary_share = $4, canary_since = $5, \
         canary_promote_after_ms = $6, changed_at = $7 WHERE slot = $1",
    )
    .bind(change.slot)
    .bind(canary.map(|canary| canary.digest.to_string()))
    .bind(canary.map(|canary| canary.number))
    .bind(canary.map(|canary| canary.share.parts()))
    .bind(canary.map(|canary| canary.since.0))
    .bind(promote_after.map(|span| span.as_millis() as i64))
    .bind(change.at.0)
    .execute(&mut *transaction)
    .await
    .map(drop)
}

/// Adds samples of a canary in one transaction: a write that fails half-way would count twice.
pub(crate) async fn add_samples(
    database: &Database,
    slot: &str,
    canary: i64,
    digest: Digest,
    samples: &Samples,
) -> sqlx::Result<()> {
    let rows: Vec<_> = samples.all().collect();
    if rows.is_empty() {
        return Ok(());
    }
    let mut text = "INSERT INTO canary_samples (slot, canary_number, digest, account_group, measure, requests, total, \
         squares) VALUES "
        .to_owned();
    for row in 0..rows.len() {
        let comma = if row > 0 { ", " } else { "" };
        let [group, measure, requests, total, squares] = [4, 5, 6, 7, 8].map(|at| at + 5 * row);
        let _ = write!(
            text,
            "{comma}($1, $2, $3, ${group}, ${measure}, ${requests}, ${total}, ${squares})"
        );
    }
    text.push_str(
        " ON CONFLICT (slot, canary_number, digest, account_group, measure) DO UPDATE SET \
         requests = canary_samples.requests + excluded.requests, total = canary_samples.total + excluded.total, \
         squares = canary_samples.squares + excluded.squares",
    );
    let mut query = sqlx::query(AssertSqlSafe(text))
        .bind(slot)
        .bind(canary)
        .bind(digest.to_string());
    for (group, measure, moments) in rows {
        query = query
            .bind(group as i64)
            .bind(measure.as_str())
            .bind(moments.count)
            .bind(moments.sum)
            .bind(moments.squares);
    }
    query.execute(database.writer()).await.map(drop)
}

pub(crate) async fn samples(
    database: &Database,
    slot: &str,
    canary: i64,
) -> sqlx::Result<BTreeMap<Digest, Samples>> {
    let rows = sqlx::query(
        "SELECT digest, account_group, measure, requests, total, squares FROM canary_samples \
         WHERE slot = $1 AND canary_number = $2",
    )
    .bind(slot)
    .bind(canary)
    .fetch_all(database.reader())
    .await?;
    let mut samples = BTreeMap::<Digest, Samples>::new();
    for row in &rows {
        let group: i64 = row.try_get("account_group")?;
        // A node of another version may have other measures.
        let (Some(measure), Ok(group)) = (
            Measure::parse(row.try_get("measure")?),
            usize::try_from(group),
        ) else {
            continue;
        };
        let moments = Moments {
            count: row.try_get("requests")?,
            sum: row.try_get("total")?,
            squares: row.try_get("squares")?,
        };
        let of_digest = samples.entry(digest(row, "digest")?).or_default();
        of_digest.add(group, measure, moments);
    }
    Ok(samples)
}
