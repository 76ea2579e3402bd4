//! Rows of slots, and what stands in columns.

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_sandbox::Digest;

use crate::plugins::Kind;

/// A row of `slots`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::plugins) struct SlotRow {
    pub active: Option<Digest>,
    pub previous: Option<Digest>,
}

impl SlotRow {
    /// What the slot could go back to, the first that is sound.
    pub(super) fn candidates(&self, bundled: Option<Digest>) -> impl Iterator<Item = Digest> {
        let current = self.active.or(bundled);
        let candidates = [self.previous, bundled].into_iter().flatten();
        candidates.filter(move |candidate| Some(*candidate) != current)
    }
}

pub(super) fn read_slot(row: &AnyRow) -> sqlx::Result<SlotRow> {
    Ok(SlotRow {
        active: optional_digest(row, "active_digest")?,
        previous: optional_digest(row, "previous_digest")?,
    })
}

pub(super) fn kind(row: &AnyRow) -> sqlx::Result<Kind> {
    let text: &str = row.try_get("kind")?;
    Kind::parse(text).ok_or_else(|| sqlx::Error::Decode(format!("{text:?} is no kind").into()))
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
