//! What all nodes are to serve with.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, Row};
use weir_sandbox::Digest;
use weir_storage::Database;

use super::row::{CanaryRow, SLOT_COLUMNS, SlotRow, digest, kind, read_slot};
use crate::plugins::Kind;

/// What all nodes are to serve with.
#[derive(Debug, Default)]
pub(in crate::plugins) struct Wanted {
    pub generation: i64,
    pub slots: BTreeMap<String, SlotRow>,
    pub quarantined: BTreeSet<(String, Digest)>,
    /// What is installed, by slot and digest.
    pub installed: BTreeSet<(String, Digest)>,
    /// What the slots are for that something is installed in.
    pub kinds: BTreeMap<String, Kind>,
}

impl Wanted {
    /// The digest that a slot is to serve with, where the binary brings this one.
    pub(in crate::plugins) fn active(&self, slot: &str, bundled: Option<Digest>) -> Option<Digest> {
        let active = self.slots.get(slot).and_then(|row| row.active);
        active.or(bundled.filter(|bundled| !self.is_quarantined(slot, *bundled)))
    }

    /// What a rollback of it goes back to, as [`super::roll_back`] finds it.
    pub(in crate::plugins) fn previous(
        &self,
        slot: &str,
        bundled: Option<Digest>,
    ) -> Option<Digest> {
        let row = self.slots.get(slot)?;
        row.candidates(bundled)
            .find(|candidate| !self.is_quarantined(slot, *candidate))
    }

    /// The canary of a slot.
    pub(in crate::plugins) fn canary(&self, slot: &str) -> Option<CanaryRow> {
        self.slots.get(slot)?.canary
    }

    /// Whether a component has failed too often in a slot.
    pub(in crate::plugins) fn is_quarantined(&self, slot: &str, digest: Digest) -> bool {
        self.quarantined.contains(&(slot.to_owned(), digest))
    }
}

/// The number of the last change.
pub(in crate::plugins) async fn generation(database: &Database) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT number FROM plugin_generation")
        .fetch_one(database.reader())
        .await
}

/// What nodes are to serve with, all of it as of one moment.
pub(in crate::plugins) async fn wanted(database: &Database) -> sqlx::Result<Wanted> {
    let mut snapshot = database.snapshot().await?;
    let generation = sqlx::query_scalar("SELECT number FROM plugin_generation")
        .fetch_one(&mut *snapshot)
        .await?;
    let mut wanted = Wanted {
        generation,
        ..Wanted::default()
    };
    let slots = sqlx::query(AssertSqlSafe(format!("SELECT {SLOT_COLUMNS} FROM slots")))
        .fetch_all(&mut *snapshot)
        .await?;
    for row in &slots {
        wanted.slots.insert(row.try_get("slot")?, read_slot(row)?);
    }
    for (table, pairs) in [
        ("plugin_quarantines", &mut wanted.quarantined),
        ("plugins", &mut wanted.installed),
    ] {
        let rows = sqlx::query(AssertSqlSafe(format!("SELECT slot, digest FROM {table}")))
            .fetch_all(&mut *snapshot)
            .await?;
        for row in &rows {
            pairs.insert((row.try_get("slot")?, digest(row, "digest")?));
        }
    }
    let kinds = sqlx::query("SELECT DISTINCT slot, kind FROM plugins")
        .fetch_all(&mut *snapshot)
        .await?;
    for row in &kinds {
        wanted.kinds.insert(row.try_get("slot")?, kind(row)?);
    }
    Ok(wanted)
}
