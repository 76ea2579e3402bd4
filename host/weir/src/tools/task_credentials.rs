//! What the tools of a task's agents may prove themselves with: kept sealed, and sent by the host alone, only to where each is
//! bound.
//!
//! A credential belongs to a task. A swarm that is run for that task, and for its owner, may have its tools name it; what is
//! sent where, the guard decides ([`weir_egress`]), and what comes back is searched for it.
//!
//! **Invariant:** a secret leaves this module as a [`Credential`] alone. It is in no answer, error or log line, and no guest,
//! model or event is shown it.
//! **Invariant:** one that was sealed for another user, task or name does not open.

use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;
use weir_storage::sealing::{KeyRing, Purpose};
use weir_storage::secrets::Secret;

use crate::tools::Credential;
use crate::tools::rules::bind;
use crate::tools::settings::CredentialBinding;

/// Credentials of one task.
pub const MAX_CREDENTIALS: i64 = 20;

/// Rows that are sealed anew in one go.
const SEALED_AT_ONCE: i64 = 100;

/// Where credentials are kept. Cheap to clone.
#[derive(Clone)]
pub struct TaskCredentials {
    database: Database,
    keys: KeyRing,
}

/// A credential that is to be kept.
pub struct NewCredential<'a> {
    /// Its task's owner.
    pub user_id: &'a str,
    /// Its task.
    pub task_id: &'a str,
    /// What tools name it by.
    pub name: &'a str,
    /// What proves.
    pub secret: &'a Secret,
    /// Where it may be sent.
    pub binding: &'a CredentialBinding,
    /// This moment.
    pub at: Millis,
}

/// A credential as its owner is shown it.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// What tools name it by.
    pub name: String,
    /// Where it may be sent; nothing where that cannot be read any more.
    #[serde(flatten)]
    pub binding: Option<CredentialBinding>,
    /// When it was kept.
    pub created_at: String,
}

/// What is sealed.
#[derive(Serialize, Deserialize)]
struct Sealed {
    secret: String,
    binding: CredentialBinding,
}

const CREDENTIAL: &str = "SELECT tasks.user_id, task_credentials.task_id, task_credentials.name, task_credentials.sealed, \
     task_credentials.created_at FROM task_credentials JOIN tasks ON tasks.id = task_credentials.task_id";

impl TaskCredentials {
    /// Credentials in a database, sealed under these keys.
    pub fn new(database: Database, keys: KeyRing) -> Self {
        Self { database, keys }
    }

    /// Keeps a credential under its task, in the place of one of its name. Returns whether the task may have it, and is there.
    pub async fn keep(&self, new: &NewCredential<'_>) -> sqlx::Result<bool> {
        let mut transaction = self.database.begin().await?;
        if self.database.dialect() == SqlDialect::Postgres {
            // Those of one task, one after another: their number is bounded.
            sqlx::query("SELECT id FROM tasks WHERE id = $1 FOR UPDATE")
                .bind(new.task_id)
                .execute(&mut transaction)
                .await?;
        }
        let others: i64 = sqlx::query_scalar(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM task_credentials WHERE task_id = $1 AND name <> $2",
        )
        .bind(new.task_id)
        .bind(new.name)
        .fetch_one(&mut transaction)
        .await?;
        if others >= MAX_CREDENTIALS {
            return Ok(false);
        }
        let sealed = Sealed {
            secret: new.secret.expose().to_owned(),
            binding: new.binding.clone(),
        };
        let kept = sqlx::query(
            "INSERT INTO task_credentials (task_id, name, sealed, sealing_key, created_at) \
             SELECT id, $2, $3, $4, $5 FROM tasks WHERE id = $1 \
             ON CONFLICT (task_id, name) DO UPDATE SET sealed = excluded.sealed, \
             sealing_key = excluded.sealing_key, created_at = excluded.created_at",
        )
        .bind(new.task_id)
        .bind(new.name)
        .bind(self.seal([new.user_id, new.task_id, new.name], &sealed))
        .bind(self.key_id())
        .bind(new.at.0)
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(kept.rows_affected() == 1)
    }

    /// Forgets a credential. Returns whether there was one of this name.
    pub async fn delete(&self, task_id: &str, name: &str) -> sqlx::Result<bool> {
        let text = "DELETE FROM task_credentials WHERE task_id = $1 AND name = $2";
        let deleted = sqlx::query(text)
            .bind(task_id)
            .bind(name)
            .execute(self.database.writer())
            .await?;
        Ok(deleted.rows_affected() == 1)
    }

    /// What a task has, without the secrets.
    pub async fn list(&self, task_id: &str) -> sqlx::Result<Vec<Listed>> {
        let rows = self.rows(task_id).await?;
        let list = |row: &AnyRow| {
            Ok(Listed {
                name: row.try_get("name")?,
                binding: self.open(row)?.map(|sealed| sealed.binding),
                created_at: Millis(row.try_get("created_at")?).iso(),
            })
        };
        rows.iter().map(list).collect()
    }

    /// What the agents of a user's swarm may use that is run for a task. One that cannot be opened is left out, and what needs
    /// it is refused by its name.
    pub async fn of(&self, user_id: &str, task_id: &str) -> sqlx::Result<Vec<Credential>> {
        let rows = self.rows(task_id).await?;
        let mut credentials = Vec::new();
        for row in &rows {
            let owner: String = row.try_get("user_id")?;
            let name: String = row.try_get("name")?;
            let Some(Sealed { secret, binding }) = self.open(row)?.filter(|_| owner == user_id)
            else {
                continue;
            };
            credentials.extend(bind(&name, &binding, &Secret::new(secret)).ok());
        }
        Ok(credentials)
    }

    /// Seals what was sealed under another key than the present one.
    pub async fn seal_anew(&self) -> sqlx::Result<()> {
        // No index is for what differs.
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "{CREDENTIAL} WHERE task_credentials.sealing_key < $1 UNION ALL \
             {CREDENTIAL} WHERE task_credentials.sealing_key > $1 LIMIT $2"
        )))
        .bind(self.key_id())
        .bind(SEALED_AT_ONCE)
        .fetch_all(self.database.reader())
        .await?;
        for row in &rows {
            let Some(sealed) = self.open(row)? else {
                continue;
            };
            let [user_id, task_id, name] = fields(row)?;
            let before: Vec<u8> = row.try_get("sealed")?;
            // Unless it has been replaced since.
            sqlx::query(
                "UPDATE task_credentials SET sealed = $1, sealing_key = $2 WHERE task_id = $3 AND name = $4 \
                 AND sealed = $5",
            )
            .bind(self.seal([&user_id, &task_id, &name], &sealed))
            .bind(self.key_id())
            .bind(&*task_id)
            .bind(&*name)
            .bind(before)
            .execute(self.database.writer())
            .await?;
        }
        Ok(())
    }

    async fn rows(&self, task_id: &str) -> sqlx::Result<Vec<AnyRow>> {
        let text = format!("{CREDENTIAL} WHERE task_credentials.task_id = $1 ORDER BY 3");
        sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(task_id)
            .fetch_all(self.database.reader())
            .await
    }

    fn key_id(&self) -> i64 {
        self.keys.current_id().into()
    }

    fn seal(&self, fields: [&str; 3], sealed: &Sealed) -> Vec<u8> {
        let json = serde_json::to_vec(sealed).expect("it is texts");
        self.keys
            .seal(Purpose::TASK_CREDENTIAL, &fields.map(str::as_bytes), &json)
    }

    /// `None` where its key is gone, or it is not what was sealed.
    fn open(&self, row: &AnyRow) -> sqlx::Result<Option<Sealed>> {
        let [user_id, task_id, name] = fields(row)?;
        let sealed: Vec<u8> = row.try_get("sealed")?;
        let fields = [&user_id, &task_id, &name].map(|field| field.as_bytes());
        let json = self.keys.unseal(Purpose::TASK_CREDENTIAL, &fields, &sealed);
        if let Err(error) = &json {
            tracing::error!(task = task_id, credential = name, %error, "a task's credential cannot be opened");
        }
        Ok(json
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok()))
    }
}

/// What a credential is sealed as: its owner, its task and its name.
fn fields(row: &AnyRow) -> sqlx::Result<[String; 3]> {
    Ok([
        row.try_get("user_id")?,
        row.try_get("task_id")?,
        row.try_get("name")?,
    ])
}
