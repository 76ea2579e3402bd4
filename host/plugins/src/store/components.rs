//! Installed components: stored in parts, read, and removed.

use sqlx::Row;
use weir_sandbox::Digest;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::change::{
    SlotChange, SlotEvent, find_slot, is_installed, raise_generation, write_event, write_slot,
};
use super::row::{digest, kind};
use crate::succession::{check_succession, note_version};
use crate::trust::ValidSignature;
use crate::{OperationError, Permissions, PluginKind};

/// Bytes of a component in one statement.
const PART_BYTES: usize = 1 << 20;

/// An installed component without its bytes.
#[derive(Debug, Clone)]
pub(crate) struct InstalledRow {
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
pub(crate) struct NewPlugin<'a> {
    pub digest: Digest,
    pub kind: PluginKind,
    pub name: &'a str,
    pub version: &'a str,
    pub wit_version: &'a str,
    /// The description, as JSON.
    pub description: &'a str,
    pub bytes: &'a [u8],
    pub signed: Option<&'a ValidSignature>,
}

pub(crate) struct StoredComponent {
    /// Its bytes, incomplete while it is being removed: the caller checks their digest.
    pub bytes: Vec<u8>,
    /// The description, as JSON.
    pub description: String,
    /// The signature, as JSON.
    pub signature: Option<String>,
}

/// Returns a component, if it is installed.
pub(crate) async fn kept(
    database: &Database,
    slot: &str,
    digest: Digest,
) -> sqlx::Result<Option<StoredComponent>> {
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
    Ok(Some(StoredComponent {
        bytes,
        description,
        signature: row.try_get("signature")?,
    }))
}

/// Returns the signature of an installed component, as JSON.
pub(crate) async fn signature(
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

/// Returns all installed components, by slot and time of installation.
pub(crate) async fn installed(database: &Database) -> sqlx::Result<Vec<InstalledRow>> {
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

/// Installs a component, unless the slot has components of another kind. Returns whether it was absent before.
pub(crate) async fn install(
    database: &Database,
    change: SlotChange<'_>,
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
        // The publisher's key was replaced, or the component was installed without its signature.
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
    let event = SlotEvent {
        kind: "installed",
        digest: Some(plugin.digest),
        previous: None,
        detail: Some(&detail),
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(is_new)
}

/// Removes a component that its slot does not serve with. An empty slot is removed as well.
pub(crate) async fn remove(
    database: &Database,
    change: SlotChange<'_>,
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
    let canary = before.canary.map(|canary| canary.digest);
    if before.active == Some(unwanted) || canary == Some(unwanted) {
        return Err(OperationError::InUse);
    }
    if before.previous == Some(unwanted) {
        write_slot(&mut transaction, change, before.active, None).await?;
    }
    let mut statements = vec![
        "DELETE FROM plugins WHERE slot = $1 AND digest = $2",
        "DELETE FROM plugin_parts WHERE slot = $1 AND digest = $2",
        "DELETE FROM canary_samples WHERE slot = $1 AND digest = $2",
    ];
    // The bundled component of this digest would share these rows.
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
         AND least_version IS NULL AND on_quarantine IS NULL \
         AND NOT EXISTS (SELECT 1 FROM plugins WHERE plugins.slot = $1)",
    )
    .bind(change.slot)
    .execute(&mut transaction)
    .await?;
    let event = SlotEvent {
        kind: "removed",
        digest: Some(unwanted),
        previous: None,
        detail: None,
    };
    write_event(&mut transaction, number, change, event).await?;
    transaction.commit().await?;
    Ok(())
}
