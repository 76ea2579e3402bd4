//! The wanted state of slots on all nodes.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};
use weir_sandbox::Digest;
use weir_storage::Database;

use super::row::{CanaryRow, SLOT_COLUMNS, SlotRow, digest, kind, read_slot};
use crate::PluginKind;
use crate::policy::{BundledVersion, SlotPolicy};

/// The progress of the slots' changes: the number of the last one, and the moment of the last event. The number alone
/// does not identify a database that was restored from a backup, or has failed over to a replica that lagged, and was
/// then changed as often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StoreState {
    pub generation: i64,
    pub at: Option<i64>,
}

impl StoreState {
    /// Returns whether the database was set back since `earlier`: the same number has another event, or the number is
    /// less.
    pub(crate) fn is_set_back_from(self, earlier: Self) -> bool {
        let is_other = self.generation == earlier.generation && self.at != earlier.at;
        self.generation < earlier.generation || is_other
    }

    fn read(row: &AnyRow) -> sqlx::Result<Self> {
        Ok(Self {
            generation: row.try_get("number")?,
            at: row.try_get("at")?,
        })
    }
}

/// Reads both values as of one moment. Not every change has an event.
const STATE: &str = "SELECT number, (SELECT at FROM plugin_events ORDER BY number DESC LIMIT 1) AS at \
     FROM plugin_generation";

/// The wanted state of slots on all nodes.
#[derive(Debug, Default)]
pub(crate) struct DesiredSlots {
    pub state: StoreState,
    /// The number of times that this node has found the database set back.
    pub era: u64,
    pub slots: BTreeMap<String, SlotRow>,
    pub quarantined: BTreeSet<(String, Digest)>,
    /// Installed components, by slot and digest.
    pub installed: BTreeSet<(String, Digest)>,
    /// The versions of installed components.
    pub versions: BTreeMap<(String, Digest), String>,
    /// The kinds of slots with an installed component.
    pub kinds: BTreeMap<String, PluginKind>,
}

/// The order of a node's reads: the greater moment is the later read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadOrder {
    /// The era; generations count within an era.
    pub era: u64,
    pub generation: i64,
}

impl DesiredSlots {
    /// Returns the wanted digest of a slot with this bundled component. A slot whose component is in quarantine
    /// refuses.
    pub(crate) fn active(&self, slot: &str, bundled: Option<Digest>) -> Option<Digest> {
        let active = self.slots.get(slot).and_then(|row| row.active);
        let active = active.or(bundled);
        active.filter(|active| !self.is_quarantined(slot, *active))
    }

    /// Returns the target of a rollback, as [`super::roll_back`] determines it.
    pub(crate) fn previous(
        &self,
        slot: &str,
        bundled: Option<BundledVersion<'_>>,
    ) -> Option<Digest> {
        let row = self.slots.get(slot)?;
        row.candidates(bundled).find(|candidate| {
            let key = (slot.to_owned(), *candidate);
            let version = match bundled {
                Some(bundled) if bundled.digest == *candidate => Some(bundled.version),
                _ => self.versions.get(&key).map(String::as_str),
            };
            let is_too_low = row.policy.is_too_low(version.unwrap_or_default());
            !is_too_low && !self.is_quarantined(slot, *candidate)
        })
    }

    /// Returns the operator's settings for a slot.
    pub(crate) fn policy(&self, slot: &str) -> SlotPolicy {
        let row = self.slots.get(slot);
        row.map(|row| row.policy.clone()).unwrap_or_default()
    }

    /// Returns the moment of this state for this node.
    pub(crate) fn moment(&self) -> ReadOrder {
        ReadOrder {
            era: self.era,
            generation: self.state.generation,
        }
    }

    pub(crate) fn canary(&self, slot: &str) -> Option<CanaryRow> {
        self.slots.get(slot)?.canary
    }

    /// Returns whether a component is in quarantine in a slot.
    pub(crate) fn is_quarantined(&self, slot: &str, digest: Digest) -> bool {
        self.quarantined.contains(&(slot.to_owned(), digest))
    }
}

/// Reads the progress of changes.
pub(crate) async fn state(database: &Database) -> sqlx::Result<StoreState> {
    let row = sqlx::query(STATE).fetch_one(database.reader()).await?;
    StoreState::read(&row)
}

/// Reads the wanted state of all slots as of one moment.
pub(crate) async fn wanted(database: &Database) -> sqlx::Result<DesiredSlots> {
    let mut snapshot = database.snapshot().await?;
    let state = sqlx::query(STATE).fetch_one(&mut *snapshot).await?;
    let mut wanted = DesiredSlots {
        state: StoreState::read(&state)?,
        ..DesiredSlots::default()
    };
    let slots = sqlx::query(AssertSqlSafe(format!("SELECT {SLOT_COLUMNS} FROM slots")))
        .fetch_all(&mut *snapshot)
        .await?;
    for row in &slots {
        wanted.slots.insert(row.try_get("slot")?, read_slot(row)?);
    }
    let quarantined = sqlx::query("SELECT slot, digest FROM plugin_quarantines")
        .fetch_all(&mut *snapshot)
        .await?;
    for row in &quarantined {
        let key = (row.try_get("slot")?, digest(row, "digest")?);
        wanted.quarantined.insert(key);
    }
    let plugins = sqlx::query("SELECT slot, digest, kind, version FROM plugins")
        .fetch_all(&mut *snapshot)
        .await?;
    for row in &plugins {
        let slot: String = row.try_get("slot")?;
        wanted.kinds.insert(slot.clone(), kind(row)?);
        let key = (slot, digest(row, "digest")?);
        wanted.versions.insert(key.clone(), row.try_get("version")?);
        wanted.installed.insert(key);
    }
    Ok(wanted)
}
