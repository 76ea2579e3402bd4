//! The SQL of slots' components: activation, rollback and quarantine.

use semver::Version;
use weir_sandbox::Digest;
use weir_storage::Database;
use weir_storage::database::Transaction;

use super::canary;
use super::change::{
    ActivationCandidate, SlotChange, SlotEvent, find_slot, is_installed, named, raise_generation,
    write_event, write_slot,
};
use super::quarantines::{end_quarantine, is_quarantined};
use super::row::SlotRow;
use crate::policy::{BundledVersion, OnQuarantine, SlotPolicy};
use crate::succession::check_succession;
use crate::{OperationError, Permissions};

/// Minimum time between two events of a withheld quarantine, in milliseconds.
const WITHHELD_EVERY_MS: i64 = 3_600_000;

/// Activates an installed component, or the bundled one, whose digest is `bundled`.
pub(crate) async fn activate(
    database: &Database,
    change: SlotChange<'_>,
    candidate: ActivationCandidate<'_>,
    bundled: Option<Digest>,
    permissions: Permissions,
) -> Result<(), OperationError> {
    let ActivationCandidate {
        digest: wanted,
        signed,
        ..
    } = candidate;
    let mut transaction = database.begin().await?;
    let mut number = raise_generation(&mut transaction).await?;
    let before = find_slot(&mut transaction, change.slot).await?;
    if before.is_none() && bundled.is_none() {
        return Err(OperationError::UnknownSlot);
    }
    let before = before.unwrap_or_default();
    candidate.check_least(&before)?;
    let is_installed = is_installed(&mut transaction, change.slot, wanted).await?;
    let is_bundled = bundled == Some(wanted);
    if !is_installed && !is_bundled {
        return Err(OperationError::UnknownPlugin);
    }
    // Equal to `named`, without a second query.
    let active = is_installed.then_some(wanted);
    let is_canary = before.canary.is_some_and(|canary| canary.digest == wanted);
    // The binary's own component may follow any other. A component that serves already follows none.
    if !is_bundled && active != before.active && !is_canary {
        check_succession(&mut transaction, change.slot, signed, permissions).await?;
    }
    end_quarantine(&mut transaction, change.slot, wanted).await?;
    match before.canary {
        Some(_) if is_canary => canary::write_canary(&mut transaction, change, None).await?,
        Some(canary) => {
            let why = "another component is activated";
            canary::end(&mut transaction, number, change, canary, why).await?;
            number = raise_generation(&mut transaction).await?;
        }
        None => {}
    }
    let previous = match before.active == active {
        true => before.previous,
        false => before.active,
    };
    write_slot(&mut transaction, change, active, previous).await?;
    let kind = match is_canary {
        true => "canary_promoted",
        false => "activated",
    };
    let event = SlotEvent {
        kind,
        digest: Some(wanted),
        previous: before.active.or(bundled),
        detail: None,
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(())
}

/// Rolls a slot back to its earlier component, or else to the bundled one. Returns its digest. If the slot has a
/// canary, the rollback ends the canary, and the active component serves all accounts. With `from`, only if the
/// rollback would still take that component back: if two operators react to the same fault, the second does not undo
/// the first one's rollback.
pub(crate) async fn roll_back(
    database: &Database,
    change: SlotChange<'_>,
    of_binary: Option<BundledVersion<'_>>,
    from: Option<Digest>,
) -> Result<Digest, OperationError> {
    let bundled = of_binary.map(|bundled| bundled.digest);
    let mut transaction = database.begin().await?;
    let number = raise_generation(&mut transaction).await?;
    let before = match find_slot(&mut transaction, change.slot).await? {
        Some(before) => before,
        None if bundled.is_some() => return Err(OperationError::NothingBefore),
        None => return Err(OperationError::UnknownSlot),
    };
    let active = before.active.or(bundled);
    let taken_back = before.canary.map(|canary| canary.digest).or(active);
    if from.is_some() && from != taken_back {
        return Err(OperationError::NotExpected(taken_back));
    }
    if let (Some(canary), Some(active)) = (before.canary, active) {
        canary::end(
            &mut transaction,
            number,
            change,
            canary,
            "the canary is rolled back",
        )
        .await?;
        transaction.commit().await?;
        return Ok(active);
    }
    let target = last_good(&mut transaction, change.slot, &before, of_binary)
        .await?
        .ok_or(OperationError::NothingBefore)?;
    let named = named(&mut transaction, change.slot, target, bundled).await?;
    write_slot(&mut transaction, change, named, None).await?;
    let event = SlotEvent {
        kind: "rolled_back",
        digest: Some(target),
        previous: active,
        detail: None,
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(target)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineResult {
    /// This component serves instead.
    Instead(Digest),
    /// Its slot refuses requests until an operator activates a component.
    Refuses,
    /// The component continues to serve: its slot has no other sound component, and would refuse all requests.
    LastSound {
        /// No event of this was written within the last hour.
        is_news: bool,
    },
}

/// Quarantines a component that fails too often, if it still serves and another component is sound. Returns `None` if
/// it no longer serves.
pub(crate) async fn quarantine(
    database: &Database,
    change: SlotChange<'_>,
    culprit: Digest,
    of_binary: Option<BundledVersion<'_>>,
    is_guard: bool,
    detail: &str,
) -> sqlx::Result<Option<QuarantineResult>> {
    let bundled = of_binary.map(|bundled| bundled.digest);
    let mut transaction = database.begin().await?;
    let mut number = raise_generation(&mut transaction).await?;
    let before = find_slot(&mut transaction, change.slot)
        .await?
        .unwrap_or_default();
    let is_active = match before.active {
        Some(active) => active == culprit,
        None => bundled == Some(culprit),
    };
    let is_canary = before.canary.is_some_and(|canary| canary.digest == culprit);
    let target = match is_canary && !is_active {
        // The slot's active component serves all accounts.
        true => before.active.or(bundled),
        false => last_good(&mut transaction, change.slot, &before, of_binary).await?,
    };
    let refuses = is_active
        && match before.policy.on_quarantine {
            Some(policy) => policy == OnQuarantine::Refuse,
            // An earlier component of a guard may pass requests that this one stops.
            None => is_guard && target.is_some(),
        };
    if is_active && target.is_none() && !refuses {
        return withhold(transaction, number, change, culprit, detail).await;
    }
    let newly = sqlx::query(
        "INSERT INTO plugin_quarantines (slot, digest, at) VALUES ($1, $2, $3) \
         ON CONFLICT (slot, digest) DO NOTHING",
    )
    .bind(change.slot)
    .bind(culprit.to_string())
    .bind(change.at.0)
    .execute(&mut transaction)
    .await?
    .rows_affected();
    if !(is_active || is_canary) || newly == 0 {
        return Ok(None);
    }
    if let Some(canary) = before.canary {
        let why = match is_canary {
            true => format!("the canary is put into quarantine: {detail}"),
            false => "the active component is put into quarantine".to_owned(),
        };
        canary::end(&mut transaction, number, change, canary, &why).await?;
        number = raise_generation(&mut transaction).await?;
    }
    let outcome = match target {
        Some(target) if !refuses => QuarantineResult::Instead(target),
        _ => QuarantineResult::Refuses,
    };
    // A slot that refuses keeps its active component, which is in quarantine.
    if let (QuarantineResult::Instead(target), true) = (outcome, is_active) {
        let active = named(&mut transaction, change.slot, target, bundled).await?;
        write_slot(&mut transaction, change, active, None).await?;
    }
    let detail = match outcome {
        QuarantineResult::Refuses => {
            format!("{detail}; the slot refuses until a component is activated")
        }
        _ => detail.to_owned(),
    };
    let event = SlotEvent {
        kind: "quarantined",
        digest: Some(culprit),
        previous: None,
        detail: Some(&detail),
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(Some(outcome))
}

/// Writes an event of a withheld quarantine, unless a recent one exists: a client that causes it could repeat it all
/// day.
async fn withhold(
    mut transaction: Transaction,
    number: i64,
    change: SlotChange<'_>,
    culprit: Digest,
    detail: &str,
) -> sqlx::Result<Option<QuarantineResult>> {
    let written: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM plugin_events \
         WHERE slot = $1 AND digest = $2 AND kind = 'quarantine_withheld' AND at > $3",
    )
    .bind(change.slot)
    .bind(culprit.to_string())
    .bind(change.at.0 - WITHHELD_EVERY_MS)
    .fetch_one(&mut transaction)
    .await?;
    let is_news = written == 0;
    if is_news {
        let event = SlotEvent {
            kind: "quarantine_withheld",
            digest: Some(culprit),
            previous: None,
            detail: Some(detail),
        };
        write_event(&mut transaction, number, change, event).await?;
        transaction.commit().await?;
    }
    Ok(Some(QuarantineResult::LastSound { is_news }))
}

/// Returns the target of a rollback that is not in quarantine: the earlier component, or else the bundled one.
async fn last_good(
    transaction: &mut Transaction,
    slot: &str,
    before: &SlotRow,
    bundled: Option<BundledVersion<'_>>,
) -> sqlx::Result<Option<Digest>> {
    for candidate in before.candidates(bundled) {
        let version = version_of(transaction, slot, candidate, bundled).await?;
        // A component that is no longer installed fails at its load.
        let is_too_low = before.policy.is_too_low(&version.unwrap_or_default());
        if !is_too_low && !is_quarantined(transaction, slot, candidate).await? {
            return Ok(Some(candidate));
        }
    }
    Ok(None)
}

/// Returns the version of a component in a slot; `None` if it is not installed.
async fn version_of(
    transaction: &mut Transaction,
    slot: &str,
    digest: Digest,
    bundled: Option<BundledVersion<'_>>,
) -> sqlx::Result<Option<String>> {
    if let Some(bundled) = bundled.filter(|bundled| bundled.digest == digest) {
        return Ok(Some(bundled.version.to_owned()));
    }
    sqlx::query_scalar("SELECT version FROM plugins WHERE slot = $1 AND digest = $2")
        .bind(slot)
        .bind(digest.to_string())
        .fetch_optional(&mut *transaction)
        .await
}

/// Sets a slot's permitted versions, and its reaction to a quarantine. The active component must be permitted, too.
pub(crate) async fn set_policy(
    database: &Database,
    change: SlotChange<'_>,
    policy: &SlotPolicy,
    of_binary: Option<BundledVersion<'_>>,
) -> Result<(), OperationError> {
    let mut transaction = database.begin().await?;
    raise_generation(&mut transaction).await?;
    let before = find_slot(&mut transaction, change.slot).await?;
    if before.is_none() && of_binary.is_none() {
        return Err(OperationError::UnknownSlot);
    }
    let before = before.unwrap_or_default();
    let active = before.active.or(of_binary.map(|bundled| bundled.digest));
    let canary = before.canary.map(|canary| canary.digest);
    for digest in [active, canary].into_iter().flatten() {
        let version = version_of(&mut transaction, change.slot, digest, of_binary).await?;
        let version = version.unwrap_or_default();
        if let Some(least) = &policy.least_version
            && policy.is_too_low(&version)
        {
            let least = least.clone();
            return Err(OperationError::BelowLeast { least, version });
        }
    }
    sqlx::query(
        "INSERT INTO slots (slot, changed_at, least_version, on_quarantine) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (slot) DO UPDATE SET changed_at = excluded.changed_at, \
         least_version = excluded.least_version, on_quarantine = excluded.on_quarantine",
    )
    .bind(change.slot)
    .bind(change.at.0)
    .bind(policy.least_version.as_ref().map(Version::to_string))
    .bind(policy.on_quarantine.map(OnQuarantine::as_str))
    .execute(&mut transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}
