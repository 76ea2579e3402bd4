//! The SQL of slots: what is installed, what each slot serves with, and every change of it.
//!
//! **Invariant:** a change is one transaction that raises the generation, which it thereby locks, and leaves
//! one event of the generation's number: changes happen one after another, on however many nodes.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::component::Kind;
use super::counters::Counts;
use super::error::OperationError;
use super::succession::{Permissions, check_succession, note_version};
use super::trust::Voucher;
use weir_sandbox::Digest;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;

/// Bytes of a component that are written in one statement.
const PART_BYTES: usize = 1 << 20;

/// How often it is written that a component goes on since nothing else is sound, in milliseconds.
const WITHHELD_EVERY_MS: i64 = 3_600_000;

/// A row of `slots`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SlotRow {
    pub active: Option<Digest>,
    pub previous: Option<Digest>,
}

impl SlotRow {
    /// What the slot could go back to, the first that is sound.
    fn candidates(&self, bundled: Option<Digest>) -> impl Iterator<Item = Digest> {
        let current = self.active.or(bundled);
        let candidates = [self.previous, bundled].into_iter().flatten();
        candidates.filter(move |candidate| Some(*candidate) != current)
    }
}

/// What all nodes are to serve with.
#[derive(Debug, Default)]
pub(super) struct Wanted {
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
    pub(super) fn active(&self, slot: &str, bundled: Option<Digest>) -> Option<Digest> {
        let active = self.slots.get(slot).and_then(|row| row.active);
        active.or(bundled.filter(|bundled| !self.is_quarantined(slot, *bundled)))
    }

    /// What a rollback of it goes back to, as [`roll_back`] finds it.
    pub(super) fn previous(&self, slot: &str, bundled: Option<Digest>) -> Option<Digest> {
        let row = self.slots.get(slot)?;
        row.candidates(bundled)
            .find(|candidate| !self.is_quarantined(slot, *candidate))
    }

    /// Whether a component has failed too often in a slot.
    pub(super) fn is_quarantined(&self, slot: &str, digest: Digest) -> bool {
        self.quarantined.contains(&(slot.to_owned(), digest))
    }
}

/// An installed component without its bytes.
#[derive(Debug, Clone)]
pub(super) struct InstalledRow {
    pub slot: String,
    pub digest: Digest,
    pub name: String,
    pub version: String,
    pub wit_version: String,
    pub size_bytes: i64,
    pub installed_at: Millis,
    pub installed_by: String,
    /// The publisher that signed it.
    pub signer: Option<String>,
}

/// A component to install.
pub(super) struct NewPlugin<'a> {
    pub digest: Digest,
    pub kind: Kind,
    pub name: &'a str,
    pub version: &'a str,
    pub wit_version: &'a str,
    /// As JSON.
    pub description: &'a str,
    pub bytes: &'a [u8],
    pub signed: Option<&'a Voucher>,
}

/// A row of `plugin_events`.
#[derive(Debug)]
pub(in crate::plugins) struct EventRow {
    pub at: Millis,
    pub slot: String,
    pub kind: String,
    pub digest: Option<String>,
    pub previous_digest: Option<String>,
    pub actor: String,
    pub detail: Option<String>,
}

/// Who changes which slot, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub slot: &'a str,
    pub actor: &'a str,
    pub at: Millis,
}

/// The number of the last change.
pub(super) async fn generation(database: &Database) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT number FROM plugin_generation")
        .fetch_one(database.reader())
        .await
}

/// What nodes are to serve with, all of it as of one moment.
pub(super) async fn wanted(database: &Database) -> sqlx::Result<Wanted> {
    let mut snapshot = database.snapshot().await?;
    let generation = sqlx::query_scalar("SELECT number FROM plugin_generation")
        .fetch_one(&mut *snapshot)
        .await?;
    let mut wanted = Wanted {
        generation,
        ..Wanted::default()
    };
    let slots = sqlx::query("SELECT slot, active_digest, previous_digest FROM slots")
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

/// What is kept of a component.
pub(super) struct Kept {
    /// Its bytes, or what is left of them while it is being removed: whoever asks checks their digest.
    pub bytes: Vec<u8>,
    /// What it said of itself, as JSON.
    pub description: String,
    /// As JSON.
    pub signature: Option<String>,
}

/// A component, if it is installed.
pub(super) async fn kept(
    database: &Database,
    slot: &str,
    digest: Digest,
) -> sqlx::Result<Option<Kept>> {
    let row = sqlx::query(
        "SELECT size_bytes, description, signature FROM plugins WHERE slot = $1 AND digest = $2",
    )
    .bind(slot)
    .bind(digest.to_string())
    .fetch_optional(database.reader())
    .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let size: i64 = row.try_get("size_bytes")?;
    let mut bytes = Vec::with_capacity(size as usize);
    for part in 0.. {
        let found: Option<Vec<u8>> = sqlx::query_scalar(
            "SELECT bytes FROM plugin_parts WHERE slot = $1 AND digest = $2 AND part = $3",
        )
        .bind(slot)
        .bind(digest.to_string())
        .bind(part)
        .fetch_optional(database.reader())
        .await?;
        match found {
            Some(found) => bytes.extend_from_slice(&found),
            None => break,
        }
    }
    let description = row.try_get("description")?;
    Ok(Some(Kept {
        bytes,
        description,
        signature: row.try_get("signature")?,
    }))
}

/// The signature of an installed component, as JSON.
pub(super) async fn signature(
    database: &Database,
    slot: &str,
    digest: Digest,
) -> sqlx::Result<Option<String>> {
    let found: Option<Option<String>> =
        sqlx::query_scalar("SELECT signature FROM plugins WHERE slot = $1 AND digest = $2")
            .bind(slot)
            .bind(digest.to_string())
            .fetch_optional(database.reader())
            .await?;
    Ok(found.flatten())
}

/// All that is installed, by slot and the time of it.
pub(super) async fn installed(database: &Database) -> sqlx::Result<Vec<InstalledRow>> {
    let rows = sqlx::query(
        "SELECT slot, digest, name, version, wit_version, size_bytes, installed_at, installed_by, signer \
         FROM plugins ORDER BY slot, installed_at, digest",
    )
    .fetch_all(database.reader())
    .await?;
    rows.iter()
        .map(|row| {
            Ok(InstalledRow {
                slot: row.try_get("slot")?,
                digest: digest(row, "digest")?,
                name: row.try_get("name")?,
                version: row.try_get("version")?,
                wit_version: row.try_get("wit_version")?,
                size_bytes: row.try_get("size_bytes")?,
                installed_at: Millis(row.try_get("installed_at")?),
                installed_by: row.try_get("installed_by")?,
                signer: row.try_get("signer")?,
            })
        })
        .collect()
}

/// The latest events, of one slot or of all, the newest first.
pub(super) async fn events(
    database: &Database,
    slot: Option<&str>,
    limit: u32,
) -> sqlx::Result<Vec<EventRow>> {
    const COLUMNS: &str = "at, slot, kind, digest, previous_digest, actor, detail";
    let rows = match slot {
        Some(slot) => {
            let text = format!(
                "SELECT {COLUMNS} FROM plugin_events WHERE slot = $1 ORDER BY number DESC LIMIT $2"
            );
            sqlx::query(AssertSqlSafe(text))
                .bind(slot)
                .bind(i64::from(limit))
                .fetch_all(database.reader())
                .await?
        }
        None => {
            let text = format!("SELECT {COLUMNS} FROM plugin_events ORDER BY number DESC LIMIT $1");
            sqlx::query(AssertSqlSafe(text))
                .bind(i64::from(limit))
                .fetch_all(database.reader())
                .await?
        }
    };
    rows.iter()
        .map(|row| {
            Ok(EventRow {
                at: Millis(row.try_get("at")?),
                slot: row.try_get("slot")?,
                kind: row.try_get("kind")?,
                digest: row.try_get("digest")?,
                previous_digest: row.try_get("previous_digest")?,
                actor: row.try_get("actor")?,
                detail: row.try_get("detail")?,
            })
        })
        .collect()
}

/// Keeps a component, unless the slot has components of another kind. Returns whether it was not there before.
pub(super) async fn install(
    database: &Database,
    change: Change<'_>,
    plugin: &NewPlugin<'_>,
    permissions: Permissions,
) -> Result<bool, OperationError> {
    for (part, bytes) in plugin.bytes.chunks(PART_BYTES).enumerate() {
        sqlx::query(
            "INSERT INTO plugin_parts (slot, digest, part, bytes) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (slot, digest, part) DO NOTHING",
        )
        .bind(change.slot)
        .bind(plugin.digest.to_string())
        .bind(part as i64)
        .bind(bytes)
        .execute(database.writer())
        .await?;
    }
    let mut transaction = database.begin().await?;
    let number = raise_generation(&mut transaction).await?;
    let other = sqlx::query("SELECT kind FROM plugins WHERE slot = $1 AND kind <> $2 LIMIT 1")
        .bind(change.slot)
        .bind(plugin.kind.as_str())
        .fetch_optional(&mut transaction)
        .await?;
    if let Some(other) = other {
        return Err(OperationError::OtherKind {
            slot: kind(&other)?.as_str(),
            component: plugin.kind.as_str(),
        });
    }
    check_succession(&mut transaction, change.slot, plugin.signed, permissions).await?;
    let signature = plugin.signed.map(|voucher| voucher.signature.to_json());
    let signer = plugin.signed.map(|voucher| &*voucher.publisher);
    let installed = sqlx::query(
        "INSERT INTO plugins (slot, digest, kind, name, version, wit_version, description, size_bytes, \
         installed_at, installed_by, signer, signature) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
         ON CONFLICT (slot, digest) DO NOTHING",
    )
    .bind(change.slot)
    .bind(plugin.digest.to_string())
    .bind(plugin.kind.as_str())
    .bind(plugin.name)
    .bind(plugin.version)
    .bind(plugin.wit_version)
    .bind(plugin.description)
    .bind(plugin.bytes.len() as i64)
    .bind(change.at.0)
    .bind(change.actor)
    .bind(signer)
    .bind(&signature)
    .execute(&mut transaction)
    .await?
    .rows_affected();
    let is_new = installed > 0;
    if let Some(voucher) = plugin.signed {
        note_version(&mut transaction, change.slot, voucher).await?;
    }
    if !is_new {
        if plugin.signed.is_none() {
            return Ok(false);
        }
        // A key was replaced, or the component was there before its signature.
        let signed = sqlx::query(
            "UPDATE plugins SET signer = $3, signature = $4 \
             WHERE slot = $1 AND digest = $2 AND (signature IS NULL OR signature <> $4)",
        )
        .bind(change.slot)
        .bind(plugin.digest.to_string())
        .bind(signer)
        .bind(&signature)
        .execute(&mut transaction)
        .await?
        .rows_affected();
        if signed == 0 {
            return Ok(false);
        }
    }
    sqlx::query(
        "INSERT INTO slots (slot, changed_at) VALUES ($1, $2) ON CONFLICT (slot) DO NOTHING",
    )
    .bind(change.slot)
    .bind(change.at.0)
    .execute(&mut transaction)
    .await?;
    let by = signer.map_or_else(String::new, |signer| format!(", signed by {signer}"));
    let detail = format!("{} {}{by}", plugin.name, plugin.version);
    let event = Event {
        kind: "installed",
        digest: Some(plugin.digest),
        previous: None,
        detail: Some(&detail),
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(is_new)
}

/// A component that is to be activated.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub digest: Digest,
    pub signed: Option<&'a Voucher>,
}

/// Has a slot serve with an installed component, or with what the binary brings, whose digest is `bundled`.
pub(super) async fn activate(
    database: &Database,
    change: Change<'_>,
    Candidate {
        digest: wanted,
        signed,
    }: Candidate<'_>,
    bundled: Option<Digest>,
    permissions: Permissions,
) -> Result<(), OperationError> {
    let mut transaction = database.begin().await?;
    let number = raise_generation(&mut transaction).await?;
    let before = find_slot(&mut transaction, change.slot).await?;
    if before.is_none() && bundled.is_none() {
        return Err(OperationError::UnknownSlot);
    }
    let before = before.unwrap_or_default();
    // What the binary brings is not named, so that an upgrade brings another.
    let active = (Some(wanted) != bundled).then_some(wanted);
    if active.is_some() && !is_installed(&mut transaction, change.slot, wanted).await? {
        return Err(OperationError::UnknownPlugin);
    }
    // What serves already comes after nothing.
    if active.is_some() && active != before.active {
        check_succession(&mut transaction, change.slot, signed, permissions).await?;
    }
    sqlx::query("DELETE FROM plugin_quarantines WHERE slot = $1 AND digest = $2")
        .bind(change.slot)
        .bind(wanted.to_string())
        .execute(&mut transaction)
        .await?;
    let previous = match before.active == active {
        true => before.previous,
        false => before.active,
    };
    write_slot(&mut transaction, change, active, previous).await?;
    let event = Event {
        kind: "activated",
        digest: Some(wanted),
        previous: before.active.or(bundled),
        detail: None,
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(())
}

/// Has a slot serve with what it served with before, or else with what the binary brings. Returns its digest.
pub(super) async fn roll_back(
    database: &Database,
    change: Change<'_>,
    bundled: Option<Digest>,
) -> Result<Digest, OperationError> {
    let mut transaction = database.begin().await?;
    let number = raise_generation(&mut transaction).await?;
    let before = match find_slot(&mut transaction, change.slot).await? {
        Some(before) => before,
        None if bundled.is_some() => return Err(OperationError::NothingBefore),
        None => return Err(OperationError::UnknownSlot),
    };
    let active = before.active.or(bundled);
    let target = last_good(&mut transaction, change.slot, &before, bundled)
        .await?
        .ok_or(OperationError::NothingBefore)?;
    write_slot(
        &mut transaction,
        change,
        (Some(target) != bundled).then_some(target),
        None,
    )
    .await?;
    let event = Event {
        kind: "rolled_back",
        digest: Some(target),
        previous: active,
        detail: None,
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(target)
}

/// What became of a component that should not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quarantined {
    /// This one serves instead.
    Instead(Digest),
    /// It goes on: its slot has nothing else that is sound, and would refuse everybody.
    LastSound {
        /// Whether that was not written within the last hour.
        is_news: bool,
    },
}

/// Takes a component out of service that fails too often, if it still is in service and anything else is sound. `None`
/// is for one that is out of service by now.
pub(super) async fn quarantine(
    database: &Database,
    change: Change<'_>,
    culprit: Digest,
    bundled: Option<Digest>,
    detail: &str,
) -> sqlx::Result<Option<Quarantined>> {
    let mut transaction = database.begin().await?;
    let number = raise_generation(&mut transaction).await?;
    let before = find_slot(&mut transaction, change.slot)
        .await?
        .unwrap_or_default();
    let is_active = match before.active {
        Some(active) => active == culprit,
        None => bundled == Some(culprit),
    };
    let target = last_good(&mut transaction, change.slot, &before, bundled).await?;
    if is_active && target.is_none() {
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
    let Some(target) = target.filter(|_| is_active && newly > 0) else {
        return Ok(None);
    };
    let active = Some(target).filter(|target| Some(*target) != bundled);
    write_slot(&mut transaction, change, active, None).await?;
    let event = Event {
        kind: "quarantined",
        digest: Some(culprit),
        previous: None,
        detail: Some(detail),
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(Some(Quarantined::Instead(target)))
}

/// Writes that a component goes on since nothing else is sound, unless that was written a short while ago: whoever brings
/// it about could do so all day.
async fn withhold(
    mut transaction: Transaction,
    number: i64,
    change: Change<'_>,
    culprit: Digest,
    detail: &str,
) -> sqlx::Result<Option<Quarantined>> {
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
        let event = Event {
            kind: "quarantine_withheld",
            digest: Some(culprit),
            previous: None,
            detail: Some(detail),
        };
        write_event(&mut transaction, number, change, event).await?;
        transaction.commit().await?;
    }
    Ok(Some(Quarantined::LastSound { is_news }))
}

/// Forgets a component that its slot does not serve with. A slot that nothing is left of goes with it.
pub(super) async fn remove(
    database: &Database,
    change: Change<'_>,
    unwanted: Digest,
    bundled: Option<Digest>,
) -> Result<(), OperationError> {
    let mut transaction = database.begin().await?;
    let number = raise_generation(&mut transaction).await?;
    let before = match find_slot(&mut transaction, change.slot).await? {
        Some(before) => before,
        None if bundled.is_some() => return Err(OperationError::UnknownPlugin),
        None => return Err(OperationError::UnknownSlot),
    };
    if !is_installed(&mut transaction, change.slot, unwanted).await? {
        return Err(match bundled == Some(unwanted) {
            true => OperationError::InUse,
            false => OperationError::UnknownPlugin,
        });
    }
    if before.active == Some(unwanted) {
        return Err(OperationError::InUse);
    }
    if before.previous == Some(unwanted) {
        write_slot(&mut transaction, change, before.active, None).await?;
    }
    let mut statements = vec![
        "DELETE FROM plugins WHERE slot = $1 AND digest = $2",
        "DELETE FROM plugin_parts WHERE slot = $1 AND digest = $2",
    ];
    // Else they are about what the binary brings, too.
    if bundled != Some(unwanted) {
        statements.extend([
            "DELETE FROM plugin_quarantines WHERE slot = $1 AND digest = $2",
            "DELETE FROM plugin_counters WHERE slot = $1 AND digest = $2",
        ]);
    }
    for statement in statements {
        sqlx::query(statement)
            .bind(change.slot)
            .bind(unwanted.to_string())
            .execute(&mut transaction)
            .await?;
    }
    sqlx::query(
        "DELETE FROM slots WHERE slot = $1 AND active_digest IS NULL \
         AND NOT EXISTS (SELECT 1 FROM plugins WHERE plugins.slot = $1)",
    )
    .bind(change.slot)
    .execute(&mut transaction)
    .await?;
    let event = Event {
        kind: "removed",
        digest: Some(unwanted),
        previous: None,
        detail: None,
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(())
}

/// Adds to the sums of what components have done.
pub(super) async fn add_counts(
    database: &Database,
    slot: &str,
    digest: Digest,
    counts: &Counts,
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

/// What components have done, by slot and digest.
pub(super) async fn counts(
    database: &Database,
) -> sqlx::Result<BTreeMap<(String, Digest), Counts>> {
    let rows = sqlx::query(
        "SELECT slot, digest, requests, errors, traps, latency_us, credits, clamps FROM plugin_counters",
    )
    .fetch_all(database.reader())
    .await?;
    rows.iter()
        .map(|row| {
            let counts = Counts {
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

/// What an event says beside who, where and when.
struct Event<'a> {
    kind: &'static str,
    digest: Option<Digest>,
    previous: Option<Digest>,
    detail: Option<&'a str>,
}

/// Locks out other changes, and returns this one's number.
async fn raise_generation(transaction: &mut Transaction) -> sqlx::Result<i64> {
    sqlx::query("UPDATE plugin_generation SET number = number + 1")
        .execute(&mut *transaction)
        .await?;
    sqlx::query_scalar("SELECT number FROM plugin_generation")
        .fetch_one(&mut *transaction)
        .await
}

async fn find_slot(transaction: &mut Transaction, slot: &str) -> sqlx::Result<Option<SlotRow>> {
    sqlx::query("SELECT active_digest, previous_digest FROM slots WHERE slot = $1")
        .bind(slot)
        .fetch_optional(&mut *transaction)
        .await?
        .map(|row| read_slot(&row))
        .transpose()
}

async fn is_installed(
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

/// What a slot goes back to from what it serves with, unless it is in quarantine: what it served with before, or else
/// what the binary brings.
async fn last_good(
    transaction: &mut Transaction,
    slot: &str,
    before: &SlotRow,
    bundled: Option<Digest>,
) -> sqlx::Result<Option<Digest>> {
    for candidate in before.candidates(bundled) {
        let found =
            sqlx::query("SELECT digest FROM plugin_quarantines WHERE slot = $1 AND digest = $2")
                .bind(slot)
                .bind(candidate.to_string())
                .fetch_optional(&mut *transaction)
                .await?;
        if found.is_none() {
            return Ok(Some(candidate));
        }
    }
    Ok(None)
}

async fn write_slot(
    transaction: &mut Transaction,
    change: Change<'_>,
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

async fn write_event(
    transaction: &mut Transaction,
    number: i64,
    change: Change<'_>,
    event: Event<'_>,
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
    .await
    .map(drop)
}

fn read_slot(row: &AnyRow) -> sqlx::Result<SlotRow> {
    Ok(SlotRow {
        active: optional_digest(row, "active_digest")?,
        previous: optional_digest(row, "previous_digest")?,
    })
}

fn kind(row: &AnyRow) -> sqlx::Result<Kind> {
    let text: &str = row.try_get("kind")?;
    Kind::parse(text).ok_or_else(|| sqlx::Error::Decode(format!("{text:?} is no kind").into()))
}

fn digest(row: &AnyRow, column: &str) -> sqlx::Result<Digest> {
    let text: &str = row.try_get(column)?;
    text.parse()
        .map_err(|_| sqlx::Error::Decode(format!("{text:?} is no digest").into()))
}

fn optional_digest(row: &AnyRow, column: &str) -> sqlx::Result<Option<Digest>> {
    let text: Option<&str> = row.try_get(column)?;
    text.map(|text| {
        text.parse()
            .map_err(|_| sqlx::Error::Decode(format!("{text:?} is no digest").into()))
    })
    .transpose()
}
