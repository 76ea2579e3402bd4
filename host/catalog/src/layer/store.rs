//! The SQL of catalog layers.

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLayer {
    /// The version's number, from 1.
    pub version: i64,
    /// The layer, as JSON.
    pub contents: String,
    /// The time of the change.
    pub created_at: Millis,
    pub created_by: String,
    /// The change in one line.
    pub summary: String,
    /// The differences of the catalog at that time, as JSON.
    pub changes: String,
}

/// Number and time of the newest version: a database that was set back can have another version with the same number.
pub type LayerMark = Option<(i64, Millis)>;

/// Returns the mark of the newest version; `None` if there is no version.
pub async fn mark(database: &Database) -> sqlx::Result<LayerMark> {
    let row =
        sqlx::query("SELECT version, created_at FROM catalog_layers ORDER BY version DESC LIMIT 1")
            .fetch_optional(database.reader())
            .await?;
    let mark = |row: AnyRow| Ok((row.try_get("version")?, Millis(row.try_get("created_at")?)));
    row.map(mark).transpose()
}

pub async fn newest(database: &Database) -> sqlx::Result<Option<StoredLayer>> {
    let newest = list(database, None, 1).await?;
    Ok(newest.into_iter().next())
}

pub async fn find(database: &Database, version: i64) -> sqlx::Result<Option<StoredLayer>> {
    let row = sqlx::query("SELECT * FROM catalog_layers WHERE version = $1")
        .bind(version)
        .fetch_optional(database.reader())
        .await?;
    row.as_ref().map(read).transpose()
}

/// Returns versions, the newest first, below the version `before`.
pub async fn list(
    database: &Database,
    before: Option<i64>,
    limit: u32,
) -> sqlx::Result<Vec<StoredLayer>> {
    let rows = sqlx::query(
        "SELECT * FROM catalog_layers WHERE version < $1 ORDER BY version DESC LIMIT $2",
    )
    .bind(before.unwrap_or(i64::MAX))
    .bind(i64::from(limit))
    .fetch_all(database.reader())
    .await?;
    rows.iter().map(read).collect()
}

/// Stores a version. Returns whether the number was free.
pub async fn insert(database: &Database, layer: &StoredLayer) -> sqlx::Result<bool> {
    let inserted = sqlx::query(
        "INSERT INTO catalog_layers (version, contents, created_at, created_by, summary, changes) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (version) DO NOTHING",
    )
    .bind(layer.version)
    .bind(&*layer.contents)
    .bind(layer.created_at.0)
    .bind(&*layer.created_by)
    .bind(&*layer.summary)
    .bind(&*layer.changes)
    .execute(database.writer())
    .await?;
    Ok(inserted.rows_affected() == 1)
}

fn read(row: &AnyRow) -> sqlx::Result<StoredLayer> {
    Ok(StoredLayer {
        version: row.try_get("version")?,
        contents: row.try_get("contents")?,
        created_at: Millis(row.try_get("created_at")?),
        created_by: row.try_get("created_by")?,
        summary: row.try_get("summary")?,
        changes: row.try_get("changes")?,
    })
}
