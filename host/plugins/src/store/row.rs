//! Rows of slots, and their column types.

use std::time::Duration;

use semver::Version;
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_sandbox::Digest;
use weir_storage::clock::Millis;

use crate::PluginKind;
use crate::canary::CanaryShare;
use crate::policy::{BundledVersion, OnQuarantine, SlotPolicy};

/// The columns that [`read_slot`] reads.
pub(super) const SLOT_COLUMNS: &str = "slot, active_digest, previous_digest, canary_digest, canary_number, \
     canary_share, canary_since, canary_promote_after_ms, least_version, on_quarantine";

/// A row of `slots`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SlotRow {
    pub active: Option<Digest>,
    pub previous: Option<Digest>,
    pub canary: Option<CanaryRow>,
    pub policy: SlotPolicy,
}

/// A slot's canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CanaryRow {
    pub digest: Digest,
    /// The number of the change that began it: no other canary has it.
    pub number: i64,
    pub share: CanaryShare,
    pub since: Millis,
    pub promote_after: Option<Duration>,
}

impl SlotRow {
    /// Returns the candidates of a rollback in order; the first that is sound and not too old is the target. The
    /// canary is not among them, since it is not proven sound.
    pub(super) fn candidates(
        &self,
        bundled: Option<BundledVersion<'_>>,
    ) -> impl Iterator<Item = Digest> + use<> {
        let bundled = bundled.map(|bundled| bundled.digest);
        let current = self.active.or(bundled);
        let candidates = [self.previous, bundled].into_iter().flatten();
        let canary = self.canary.map(|canary| canary.digest);
        candidates.filter(move |candidate| ![current, canary].contains(&Some(*candidate)))
    }
}

pub(super) fn read_slot(row: &AnyRow) -> sqlx::Result<SlotRow> {
    let canary = match optional_digest(row, "canary_digest")? {
        Some(digest) => Some(read_canary(row, digest)?),
        None => None,
    };
    Ok(SlotRow {
        active: optional_digest(row, "active_digest")?,
        previous: optional_digest(row, "previous_digest")?,
        canary,
        policy: read_policy(row)?,
    })
}

fn read_policy(row: &AnyRow) -> sqlx::Result<SlotPolicy> {
    let least: Option<&str> = row.try_get("least_version")?;
    let least = least.map(Version::parse).transpose();
    let on_quarantine: Option<&str> = row.try_get("on_quarantine")?;
    Ok(SlotPolicy {
        least_version: least.map_err(|error| sqlx::Error::Decode(error.into()))?,
        on_quarantine: on_quarantine.and_then(OnQuarantine::parse),
    })
}

fn read_canary(row: &AnyRow, digest: Digest) -> sqlx::Result<CanaryRow> {
    let parts: i64 = row.try_get("canary_share")?;
    let share = CanaryShare::from_parts(parts)
        .ok_or_else(|| sqlx::Error::Decode(format!("{parts} is no share").into()))?;
    let promote_after: Option<i64> = row.try_get("canary_promote_after_ms")?;
    Ok(CanaryRow {
        digest,
        number: row.try_get("canary_number")?,
        share,
        since: Millis(row.try_get("canary_since")?),
        promote_after: promote_after.map(|ms| Duration::from_millis(ms.unsigned_abs())),
    })
}

pub(super) fn kind(row: &AnyRow) -> sqlx::Result<PluginKind> {
    let text: &str = row.try_get("kind")?;
    PluginKind::parse(text)
        .ok_or_else(|| sqlx::Error::Decode(format!("{text:?} is no kind").into()))
}

pub(super) fn digest(row: &AnyRow, column: &str) -> sqlx::Result<Digest> {
    let text: &str = row.try_get(column)?;
    text.parse()
        .map_err(|_| sqlx::Error::Decode(format!("{text:?} is no digest").into()))
}

pub(super) fn optional_digest(row: &AnyRow, column: &str) -> sqlx::Result<Option<Digest>> {
    let text: Option<&str> = row.try_get(column)?;
    text.map(|text| {
        text.parse()
            .map_err(|_| sqlx::Error::Decode(format!("{text:?} is no digest").into()))
    })
    .transpose()
}
