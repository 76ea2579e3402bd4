//! Credentials for the tools of a task's agents: stored encrypted, and sent only by the host, to the bound targets.
//!
//! A credential belongs to a task. The tools of a swarm can name it if the swarm runs for that task and its owner. The
//! guard decides about targets ([`weir_egress`]), and weir redacts the credential from responses.
//!
//! **Invariant:** a secret leaves this module only as a [`Credential`]. It is in no response, error or log line, and no
//! guest, model or event receives it. **Invariant:** the encryption binds a credential to its user, task and name.

use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;
use weir_storage::sealing::{KeyRing, Purpose};
use weir_storage::secrets::Secret;

use crate::Credential;
use crate::rules::bind;
use crate::settings::CredentialBinding;

/// The maximum credentials of one task.
pub const MAX_CREDENTIALS: i64 = 20;

/// The maximum rows in one step of re-encryption.
const SEALED_AT_ONCE: i64 = 100;

/// The store of credentials. Cheap to clone.
#[derive(Clone)]
pub struct TaskCredentials {
    database: Database,
    keys: KeyRing,
}

pub struct NewCredential<'a> {
    /// The task's owner.
    pub user_id: &'a str,
    pub task_id: &'a str,
    /// The name for tools.
    pub name: &'a str,
    pub secret: &'a Secret,
    /// The allowed targets.
    pub binding: &'a CredentialBinding,
    /// The current time.
    pub at: Millis,
}

/// A credential without its secret, for its owner.
#[derive(Debug, Serialize)]
pub struct CredentialListing {
    /// The name for tools.
    pub name: String,
    /// The allowed targets; null if they cannot be decrypted.
    #[serde(flatten)]
    pub binding: Option<CredentialBinding>,
    /// Time of creation.
    pub created_at: String,
}

/// The encrypted content.
#[derive(Serialize, Deserialize)]
struct SealedContent {
    secret: String,
    binding: CredentialBinding,
}

const CREDENTIAL: &str = "SELECT tasks.user_id, task_credentials.task_id, task_credentials.name, task_credentials.sealed, \
     task_credentials.created_at FROM task_credentials JOIN tasks ON tasks.id = task_credentials.task_id";

impl TaskCredentials {
    /// Returns the store in a database, encrypted with these keys.
    pub fn new(database: Database, keys: KeyRing) -> Self {
        Self { database, keys }
    }

    /// Stores a credential for its task, and replaces one with the same name. Returns `false` if the task does not
    /// exist or has too many.
    pub async fn keep(&self, new: &NewCredential<'_>) -> sqlx::Result<bool> {
        let mut transaction = self.database.begin().await?;
        if self.database.dialect() == SqlDialect::Postgres {
            // The lock serialises writes to one task, so that their number stays bounded.
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
        let sealed = SealedContent {
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

    /// Deletes a credential. Returns whether it existed.
    pub async fn delete(&self, task_id: &str, name: &str) -> sqlx::Result<bool> {
        let text = "DELETE FROM task_credentials WHERE task_id = $1 AND name = $2";
        let deleted = sqlx::query(text)
            .bind(task_id)
            .bind(name)
            .execute(self.database.writer())
            .await?;
        Ok(deleted.rows_affected() == 1)
    }

    /// Returns a task's credentials without the secrets.
    pub async fn list(&self, task_id: &str) -> sqlx::Result<Vec<CredentialListing>> {
        let rows = self.rows(task_id).await?;
        let list = |row: &AnyRow| {
            Ok(CredentialListing {
                name: row.try_get("name")?,
                binding: self.open(row)?.map(|sealed| sealed.binding),
                created_at: Millis(row.try_get("created_at")?).iso(),
            })
        };
        rows.iter().map(list).collect()
    }

    /// Returns the credentials for the agents of a user's swarm that runs for a task. A credential that cannot be
    /// decrypted is left out, and requests that need it are refused with its name.
    pub async fn of(&self, user_id: &str, task_id: &str) -> sqlx::Result<Vec<Credential>> {
        let rows = self.rows(task_id).await?;
        let mut credentials = Vec::new();
        for row in &rows {
            let owner: String = row.try_get("user_id")?;
            let name: String = row.try_get("name")?;
            let Some(SealedContent { secret, binding }) =
                self.open(row)?.filter(|_| owner == user_id)
            else {
                continue;
            };
            credentials.extend(bind(&name, &binding, &Secret::new(secret)).ok());
        }
        Ok(credentials)
    }

    /// Encrypts rows with older keys again, with the current key.
    pub async fn seal_anew(&self) -> sqlx::Result<()> {
        // No index supports a comparison by inequality.
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
            // The condition skips rows that were replaced meanwhile.
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

    fn seal(&self, fields: [&str; 3], sealed: &SealedContent) -> Vec<u8> {
        let json = serde_json::to_vec(sealed).expect("it is texts");
        self.keys
            .seal(Purpose::TASK_CREDENTIAL, &fields.map(str::as_bytes), &json)
    }

    /// Returns `None` if the key is gone, or the content is invalid.
    fn open(&self, row: &AnyRow) -> sqlx::Result<Option<SealedContent>> {
        let [user_id, task_id, name] = fields(row)?;
        let sealed: Vec<u8> = row.try_get("sealed")?;
        let fields = [&user_id, &task_id, &name].map(|field| field.as_bytes());
        let json = self.keys.unseal(Purpose::TASK_CREDENTIAL, &fields, &sealed);
        if let Err(error) = &json {
            tracing::error!(task = task_id, credential = name, %error, "cannot decrypt a task's credential");
        }
        Ok(json
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok()))
    }
}

/// The encryption's bound fields: owner, task and name.
fn fields(row: &AnyRow) -> sqlx::Result<[String; 3]> {
    Ok([
        row.try_get("user_id")?,
        row.try_get("task_id")?,
        row.try_get("name")?,
    ])
}
