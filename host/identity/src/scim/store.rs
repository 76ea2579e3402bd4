//! The SQL of directories' users and groups.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::Transaction;
use weir_storage::ids;

use super::Kind;
use super::document::{Document, EXTERNAL_ID, MEMBERS, members, subject, text};
use super::query::Lookup;
use crate::store::{insert_web_user, lock_account};

/// A stored user or group.
#[derive(Debug, Clone)]
pub(super) struct Resource {
    pub(super) id: String,
    /// Without members.
    pub(super) document: Document,
    pub(super) created_at: Millis,
    pub(super) updated_at: Millis,
}

/// The result of a change.
#[derive(Debug)]
pub(super) enum Stored<T> {
    Done(T),
    /// Another user of the directory has the name.
    NameTaken,
    /// Another user of weir has the name at the issuer.
    SubjectTaken,
    /// A member is not a user of the directory.
    UnknownMember,
}

const COLUMNS: &str = "id, document, created_at, updated_at";

/// Returns a resource of a directory.
pub(super) async fn find(
    database: &Database,
    issuer: &str,
    kind: Kind,
    id: &str,
) -> sqlx::Result<Option<Resource>> {
    let lookup = Lookup::Id(id.to_owned());
    let found = list(database, issuer, kind, Some(&lookup), 0, 1).await?;
    Ok(found.into_iter().next())
}

/// Returns resources of a directory, oldest first.
pub(super) async fn list(
    database: &Database,
    issuer: &str,
    kind: Kind,
    lookup: Option<&Lookup>,
    skipped: i64,
    count: i64,
) -> sqlx::Result<Vec<Resource>> {
    let (condition, wanted) = condition(lookup);
    let sql = format!(
        "SELECT {COLUMNS} FROM directory_resources WHERE issuer = $1 AND kind = $2 AND {condition} \
         ORDER BY created_at, id LIMIT $4 OFFSET $5"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(issuer)
        .bind(kind.name())
        .bind(wanted)
        .bind(count)
        .bind(skipped)
        .fetch_all(database.reader())
        .await?;
    rows.iter().map(read).collect()
}

/// Counts resources of a directory.
pub(super) async fn count(
    database: &Database,
    issuer: &str,
    kind: Kind,
    lookup: Option<&Lookup>,
) -> sqlx::Result<i64> {
    let (condition, wanted) = condition(lookup);
    let sql = format!(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM directory_resources WHERE issuer = $1 AND kind = $2 AND {condition}"
    );
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .bind(issuer)
        .bind(kind.name())
        .bind(wanted)
        .fetch_one(database.reader())
        .await
}

fn condition(lookup: Option<&Lookup>) -> (&'static str, Option<&str>) {
    match lookup {
        None => ("CAST($3 AS TEXT) IS NULL", None),
        Some(Lookup::Id(id)) => ("id = $3", Some(id)),
        Some(Lookup::Name(name)) => ("name = $3", Some(name)),
        Some(Lookup::ExternalId(id)) => ("external_id = $3", Some(id)),
    }
}

fn read(row: &AnyRow) -> sqlx::Result<Resource> {
    let document: String = row.try_get("document")?;
    let document =
        serde_json::from_str(&document).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(Resource {
        id: row.try_get("id")?,
        document,
        created_at: Millis(row.try_get("created_at")?),
        updated_at: Millis(row.try_get("updated_at")?),
    })
}

/// Returns the members of a group, as the values of a document.
pub(super) async fn find_members(database: &Database, group_id: &str) -> sqlx::Result<Vec<Value>> {
    let ids: Vec<String> = sqlx::query_scalar(
        "SELECT user_id FROM directory_members WHERE group_id = $1 ORDER BY user_id",
    )
    .bind(group_id)
    .fetch_all(database.reader())
    .await?;
    Ok(ids.into_iter().map(|id| json!({ "value": id })).collect())
}

/// Returns the groups of a user.
pub(super) async fn find_groups(database: &Database, user_id: &str) -> sqlx::Result<Vec<Value>> {
    let rows = sqlx::query(
        "SELECT r.id, r.document, r.created_at, r.updated_at FROM directory_members m \
         JOIN directory_resources r ON r.id = m.group_id WHERE m.user_id = $1 ORDER BY r.id",
    )
    .bind(user_id)
    .fetch_all(database.reader())
    .await?;
    rows.iter()
        .map(|row| {
            let group = read(row)?;
            Ok(json!({ "value": group.id, "display": group.document.get("displayName") }))
        })
        .collect()
}

/// Creates a resource. A user whom the issuer's tokens name already becomes the directory's.
pub(super) async fn create(
    database: &Database,
    issuer: &str,
    kind: Kind,
    document: Document,
    now: Millis,
) -> sqlx::Result<Stored<Resource>> {
    let mut transaction = database.begin().await?;
    let id = match kind {
        Kind::Group => ids::group_id(),
        Kind::User => {
            let subject = subject(&document).unwrap_or_default();
            insert_web_user(&mut transaction, issuer, subject, now).await?;
            sqlx::query_scalar("SELECT id FROM users WHERE issuer = $1 AND subject = $2")
                .bind(issuer)
                .bind(subject)
                .fetch_one(&mut transaction)
                .await?
        }
    };
    let inserted = sqlx::query(
        "INSERT INTO directory_resources (id, kind, issuer, name, external_id, document, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $7) ON CONFLICT DO NOTHING",
    )
    .bind(&id)
    .bind(kind.name())
    .bind(issuer)
    .bind(name(kind, &document))
    .bind(text(&document, EXTERNAL_ID))
    .bind(stored(&document))
    .bind(now.0)
    .execute(&mut transaction)
    .await?;
    if inserted.rows_affected() == 0 {
        return Ok(Stored::NameTaken);
    }
    let resource = Resource {
        id,
        document,
        created_at: now,
        updated_at: now,
    };
    finish(transaction, resource, &BTreeSet::new()).await
}

/// A change of a resource, under its lock.
pub(super) struct Change {
    transaction: Transaction,
    kind: Kind,
    issuer: String,
    /// The resource before the change, with its members.
    pub(super) before: Resource,
}

/// Begins a change of a resource: concurrent ones wait. `None` if the directory has no such resource.
pub(super) async fn begin_change(
    database: &Database,
    issuer: &str,
    kind: Kind,
    id: &str,
) -> sqlx::Result<Option<Change>> {
    let mut transaction = database.begin().await?;
    // The statement changes nothing but locks the row, on both databases.
    let locked = sqlx::query(
        "UPDATE directory_resources SET id = id WHERE id = $1 AND issuer = $2 AND kind = $3",
    );
    let locked = locked.bind(id).bind(issuer).bind(kind.name());
    if locked.execute(&mut transaction).await?.rows_affected() == 0 {
        return Ok(None);
    }
    let sql = format!("SELECT {COLUMNS} FROM directory_resources WHERE id = $1");
    let row = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id);
    let mut before = read(&row.fetch_one(&mut transaction).await?)?;
    if kind == Kind::Group {
        let ids: Vec<String> = sqlx::query_scalar(
            "SELECT user_id FROM directory_members WHERE group_id = $1 ORDER BY user_id",
        )
        .bind(id)
        .fetch_all(&mut transaction)
        .await?;
        let members = ids.into_iter().map(|id| json!({ "value": id })).collect();
        before.document.insert(MEMBERS.to_owned(), members);
    }
    Ok(Some(Change {
        transaction,
        kind,
        issuer: issuer.to_owned(),
        before,
    }))
}

impl Change {
    /// Stores the new document.
    pub(super) async fn store(
        mut self,
        document: Document,
        now: Millis,
    ) -> sqlx::Result<Stored<Resource>> {
        if self.kind == Kind::User && subject(&document) != subject(&self.before.document) {
            lock_account(&mut self.transaction, &self.before.id).await?;
            let renamed = sqlx::query(
                "UPDATE users SET subject = $1 WHERE id = $2 AND NOT EXISTS \
                 (SELECT 1 FROM users WHERE issuer = $3 AND subject = $1 AND id <> $2)",
            )
            .bind(subject(&document))
            .bind(&self.before.id)
            .bind(&self.issuer)
            .execute(&mut self.transaction)
            .await;
            match renamed {
                Ok(renamed) if renamed.rows_affected() > 0 => {}
                Err(error) if !is_unique_violation(&error) => return Err(error),
                _ => return Ok(Stored::SubjectTaken),
            }
        }
        let before = members(&self.before.document);
        let resource = Resource {
            document,
            updated_at: now,
            ..self.before
        };
        let updated = sqlx::query(
            "UPDATE directory_resources SET name = $1, external_id = $2, document = $3, updated_at = $4 WHERE id = $5",
        )
        .bind(name(self.kind, &resource.document))
        .bind(text(&resource.document, EXTERNAL_ID))
        .bind(stored(&resource.document))
        .bind(now.0)
        .bind(&resource.id)
        .execute(&mut self.transaction)
        .await;
        match updated {
            Err(error) if is_unique_violation(&error) => return Ok(Stored::NameTaken),
            updated => updated?,
        };
        finish(self.transaction, resource, &before).await
    }

    /// Deletes the resource.
    pub(super) async fn delete(mut self) -> sqlx::Result<()> {
        for sql in [
            "DELETE FROM directory_members WHERE group_id = $1",
            "DELETE FROM directory_members WHERE user_id = $1",
            "DELETE FROM directory_resources WHERE id = $1",
        ] {
            let delete = sqlx::query(sql).bind(&self.before.id);
            delete.execute(&mut self.transaction).await?;
        }
        self.transaction.commit().await
    }
}

/// Writes the difference of a group's members, and commits. Returns the resource without members.
async fn finish(
    mut transaction: Transaction,
    mut resource: Resource,
    before: &BTreeSet<String>,
) -> sqlx::Result<Stored<Resource>> {
    let after = members(&resource.document);
    for user_id in before.difference(&after) {
        sqlx::query("DELETE FROM directory_members WHERE group_id = $1 AND user_id = $2")
            .bind(&resource.id)
            .bind(user_id)
            .execute(&mut transaction)
            .await?;
    }
    for user_id in after.difference(before) {
        let added = sqlx::query(
            "INSERT INTO directory_members (group_id, user_id) \
             SELECT g.id, u.id FROM directory_resources g JOIN directory_resources u ON u.issuer = g.issuer \
             WHERE g.id = $1 AND u.id = $2 AND u.kind = 'user'",
        )
        .bind(&resource.id)
        .bind(user_id)
        .execute(&mut transaction)
        .await?;
        if added.rows_affected() == 0 {
            return Ok(Stored::UnknownMember);
        }
    }
    transaction.commit().await?;
    resource.document.remove(MEMBERS);
    Ok(Stored::Done(resource))
}

/// Returns the column of a document: members have a table of their own.
fn stored(document: &Document) -> String {
    let mut document = document.clone();
    document.remove(MEMBERS);
    Value::Object(document).to_string()
}

fn name(kind: Kind, document: &Document) -> String {
    let name = text(document, kind.name_attribute());
    name.unwrap_or_default().to_lowercase()
}

fn is_unique_violation(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    error.is_some_and(|error| error.is_unique_violation())
}
