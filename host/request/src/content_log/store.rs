//! The SQL of contents: the table `content_logs`.

use sqlx::Row as _;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;
use weir_storage::sealing::{KeyRing, Purpose};

use super::content::LoggedContent;
use crate::write_behind::{HOUR_MS, start_of};

/// Rows that one statement deletes.
const BATCH: i64 = 100;

/// A stored content, sealed.
pub struct StoredContent {
    pub request_id: String,
    /// The time of its end.
    pub at: Millis,
    pub account_id: String,
    /// The person or the service account that sent it.
    pub user_id: String,
    /// The API key, by its id.
    pub key_id: Option<String>,
    /// Whether the organisation chose to store it.
    pub for_organisation: bool,
    pub(super) sealed: Vec<u8>,
}

/// A content on its way to the database.
pub(super) struct SealedContent {
    pub(super) stored: StoredContent,
    /// The rows of its account and hour above which it is not stored.
    pub(super) most_an_hour: u32,
}

/// Seals a content for its request.
pub(super) fn seal(keys: &KeyRing, place: StoredContent, content: &LoggedContent) -> StoredContent {
    let json = serde_json::to_vec(content).unwrap_or_default();
    let fields = [place.account_id.as_bytes(), place.request_id.as_bytes()];
    let sealed = keys.seal(Purpose::CONTENT_LOG, &fields, &json);
    StoredContent { sealed, ..place }
}

/// Opens a content; `None` if its sealing key is gone.
pub(super) fn open(keys: &KeyRing, stored: &StoredContent) -> Option<LoggedContent> {
    let fields = [stored.account_id.as_bytes(), stored.request_id.as_bytes()];
    match keys.unseal(Purpose::CONTENT_LOG, &fields, &stored.sealed) {
        Ok(json) => serde_json::from_slice(&json).ok(),
        Err(error) => {
            tracing::warn!(%error, request_id = stored.request_id, "cannot open a stored prompt");
            None
        }
    }
}

/// Inserts contents, at most some of an account and hour with those of other nodes, and returns their number. Contents
/// of erased users, of deleted organisations, and of keys that were revoked since, are left out.
pub(super) async fn insert(database: &Database, contents: &[SealedContent]) -> sqlx::Result<u64> {
    let mut transaction = database.begin().await?;
    let mut stored = 0;
    for SealedContent {
        stored: content,
        most_an_hour,
    } in contents
    {
        let inserted = sqlx::query(
            "INSERT INTO content_logs (request_id, at, account_id, user_id, key_id, for_organisation, content) \
             SELECT $1, CAST($2 AS BIGINT), $3, $4, $5, CAST($6 AS BIGINT), $7 \
             WHERE (SELECT COUNT(*) FROM content_logs c WHERE c.account_id = $3 AND c.at >= $8 AND c.at < $9) < $10 \
             AND NOT EXISTS (SELECT 1 FROM users u WHERE u.id IN ($3, $4) AND u.deleted_at IS NOT NULL) \
             AND (CAST($6 AS BIGINT) = 1 OR EXISTS (SELECT 1 FROM api_keys k WHERE k.id = $5 AND k.disabled_at IS NULL)) \
             ON CONFLICT (request_id) DO NOTHING",
        )
        .bind(&content.request_id)
        .bind(content.at.0)
        .bind(&content.account_id)
        .bind(&content.user_id)
        .bind(content.key_id.as_deref())
        .bind(i64::from(content.for_organisation))
        .bind(&*content.sealed)
        .bind(start_of(content.at, HOUR_MS))
        .bind(start_of(content.at, HOUR_MS) + HOUR_MS)
        .bind(i64::from(*most_an_hour))
        .execute(&mut transaction)
        .await?;
        stored += inserted.rows_affected();
    }
    transaction.commit().await?;
    Ok(stored)
}

const COLUMNS: &str =
    "request_id, at, account_id, user_id, key_id, for_organisation, content FROM content_logs";

/// Returns the content of a request that ended since a time.
pub(super) async fn find(
    database: &Database,
    request_id: &str,
    since: Millis,
) -> sqlx::Result<Option<StoredContent>> {
    let text = format!("SELECT {COLUMNS} WHERE request_id = $1 AND at >= $2");
    let row = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(request_id)
        .bind(since.0)
        .fetch_optional(database.reader())
        .await?;
    row.as_ref().map(read).transpose()
}

/// Returns contents of a user since a time, in the order of their ids behind one.
pub(super) async fn list_of_user(
    database: &Database,
    user_id: &str,
    after: &str,
    since: Millis,
    limit: i64,
) -> sqlx::Result<Vec<StoredContent>> {
    let text = format!(
        "SELECT {COLUMNS} WHERE user_id = $1 AND request_id > $2 AND at >= $3 ORDER BY request_id LIMIT $4"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(user_id)
        .bind(after)
        .bind(since.0)
        .bind(limit)
        .fetch_all(database.reader())
        .await?;
    rows.iter().map(read).collect()
}

/// Deletes the contents that a key's user chose to store. Those of an organisation's choice stay.
pub async fn delete_of_key(database: &Database, key_id: &str) -> sqlx::Result<()> {
    delete(
        database,
        "DELETE FROM content_logs WHERE request_id IN \
         (SELECT request_id FROM content_logs WHERE key_id = $1 AND for_organisation = 0 LIMIT $2)",
        key_id,
    )
    .await
}

/// Deletes the contents that a member of an organisation chose to store.
pub async fn delete_of_member(
    transaction: &mut Transaction,
    organisation_id: &str,
    user_id: &str,
) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM content_logs WHERE account_id = $1 AND user_id = $2 AND for_organisation = 0",
    )
    .bind(organisation_id)
    .bind(user_id)
    .execute(transaction)
    .await
    .map(drop)
}

/// Deletes the contents that the users of a project's keys chose to store.
pub async fn delete_of_project(
    transaction: &mut Transaction,
    project_id: &str,
) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM content_logs WHERE for_organisation = 0 AND key_id IN \
         (SELECT id FROM api_keys WHERE project_id = $1)",
    )
    .bind(project_id)
    .execute(transaction)
    .await
    .map(drop)
}

/// Deletes the contents of an account.
pub async fn delete_of_account(database: &Database, account_id: &str) -> sqlx::Result<()> {
    delete(
        database,
        "DELETE FROM content_logs WHERE request_id IN \
         (SELECT request_id FROM content_logs WHERE account_id = $1 LIMIT $2)",
        account_id,
    )
    .await
}

/// Deletes rows batch by batch, because each may have half a MiB.
async fn delete(database: &Database, statement: &'static str, id: &str) -> sqlx::Result<()> {
    loop {
        let deleted = sqlx::query(statement)
            .bind(id)
            .bind(BATCH)
            .execute(database.writer())
            .await?;
        if deleted.rows_affected() < BATCH as u64 {
            return Ok(());
        }
    }
}

fn read(row: &AnyRow) -> sqlx::Result<StoredContent> {
    Ok(StoredContent {
        request_id: row.try_get("request_id")?,
        at: Millis(row.try_get("at")?),
        account_id: row.try_get("account_id")?,
        user_id: row.try_get("user_id")?,
        key_id: row.try_get("key_id")?,
        for_organisation: row.try_get::<i64, _>("for_organisation")? == 1,
        sealed: row.try_get("content")?,
    })
}
