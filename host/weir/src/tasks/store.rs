//! The SQL of tasks: their definitions, and when they were to start ([`starts`]).
//!
//! **Invariant:** what people wrote is sealed, each as the field of the task that it is. It is kept for long, so that it is
//! sealed anew when the sealing key is replaced.

mod starts;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;
use weir_storage::sealing::{KeyRing, Purpose};

pub use self::starts::{Cause, Due, Ended, MINUTE_MS, NewFire, OpenStart, Refusal, Start, Trigger};
use super::definition::Definition;

/// Tasks of one user.
pub const MAX_TASKS: i64 = 100;

/// Rows that are sealed anew in one go.
const SEALED_AT_ONCE: i64 = 100;

/// Where tasks are kept. Cheap to clone.
#[derive(Clone)]
pub struct TaskStore {
    database: Database,
    keys: KeyRing,
}

/// Why a task cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// What is stored is not what this version wrote, or its sealing key is gone.
    #[error("a task is not as it was written: {0}")]
    Unreadable(String),
}

/// A task as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// Its owner, who pays.
    pub user_id: String,
    /// The id of the API key that it was last defined with, whose limits its starts have; `None` if its owner defined it in
    /// person.
    pub key_id: Option<String>,
    /// As its owner wrote it.
    pub definition: Definition,
    /// When its schedule fires next.
    pub next_fire_at: Option<Millis>,
    /// When it was defined.
    pub created_at: Millis,
    /// When it was last replaced.
    pub updated_at: Millis,
}

const TASK: &str =
    "SELECT id, user_id, key_id, definition, next_fire_at, created_at, updated_at FROM tasks";

impl TaskStore {
    /// Tasks in a database, sealed under these keys.
    pub fn new(database: Database, keys: KeyRing) -> Self {
        Self { database, keys }
    }

    /// Keeps a new task. Returns whether its owner may have another.
    pub async fn create(&self, task: &Task) -> sqlx::Result<bool> {
        let mut transaction = self.database.begin().await?;
        if self.database.dialect() == SqlDialect::Postgres {
            // Requests of one user, one after another: their number is bounded.
            sqlx::query("SELECT id FROM users WHERE id = $1 FOR UPDATE")
                .bind(&*task.user_id)
                .execute(&mut transaction)
                .await?;
        }
        let known: i64 =
            sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM tasks WHERE user_id = $1")
                .bind(&*task.user_id)
                .fetch_one(&mut transaction)
                .await?;
        if known >= MAX_TASKS {
            return Ok(false);
        }
        sqlx::query(
            "INSERT INTO tasks (id, user_id, definition, sealing_key, next_fire_at, created_at, updated_at, key_id) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(&*task.id)
        .bind(&*task.user_id)
        .bind(self.seal(&task.id, "definition", &task.definition))
        .bind(self.key_id())
        .bind(task.next_fire_at.map(|at| at.0))
        .bind(task.created_at.0)
        .bind(task.updated_at.0)
        .bind(task.key_id.as_deref())
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Replaces a task's definition, and the key that it was defined with.
    pub async fn replace(&self, task: &Task) -> sqlx::Result<()> {
        sqlx::query(
            "UPDATE tasks SET definition = $1, sealing_key = $2, next_fire_at = $3, updated_at = $4, key_id = $5 \
             WHERE id = $6",
        )
        .bind(self.seal(&task.id, "definition", &task.definition))
        .bind(self.key_id())
        .bind(task.next_fire_at.map(|at| at.0))
        .bind(task.updated_at.0)
        .bind(task.key_id.as_deref())
        .bind(&*task.id)
        .execute(self.database.writer())
        .await
        .map(drop)
    }

    /// A task, if there is one of this id.
    pub async fn find(&self, id: &str) -> Result<Option<Task>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!("{TASK} WHERE id = $1")))
            .bind(id)
            .fetch_optional(self.database.reader())
            .await?;
        row.as_ref().map(|row| self.read(row)).transpose()
    }

    /// A user's tasks, the last one first: those that were defined before the task `before`, if it is given.
    pub async fn list(
        &self,
        user_id: &str,
        before: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Task>, StoreError> {
        // Ids are ordered by time, and hold digits and letters up to f.
        let text = format!("{TASK} WHERE user_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3");
        let rows = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(user_id)
            .bind(before.unwrap_or("task_g"))
            .bind(i64::from(limit))
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(|row| self.read(row)).collect()
    }

    /// Forgets a task, and all that is its own: its credentials, too. Its runs stay.
    pub async fn delete(&self, id: &str) -> sqlx::Result<()> {
        let mut transaction = self.database.begin().await?;
        // The task's row first: nobody adds to it any more.
        if self.database.dialect() == SqlDialect::Postgres {
            sqlx::query("SELECT id FROM tasks WHERE id = $1 FOR UPDATE")
                .bind(id)
                .execute(&mut transaction)
                .await?;
        }
        for text in [
            "DELETE FROM task_credentials WHERE task_id = $1",
            "DELETE FROM task_starts WHERE task_id = $1",
            "DELETE FROM tasks WHERE id = $1",
        ] {
            sqlx::query(text).bind(id).execute(&mut transaction).await?;
        }
        transaction.commit().await
    }

    /// Seals what was sealed under another key than the present one.
    pub async fn seal_anew(&self) -> Result<(), StoreError> {
        // No index is for what differs.
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "{TASK} WHERE sealing_key < $1 UNION ALL {TASK} WHERE sealing_key > $1 LIMIT $2"
        )))
        .bind(self.key_id())
        .bind(SEALED_AT_ONCE)
        .fetch_all(self.database.reader())
        .await?;
        for row in &rows {
            let before: Vec<u8> = row.try_get("definition")?;
            let task = match self.read(row) {
                Ok(task) => task,
                // The others are sealed anew all the same.
                Err(error) => {
                    tracing::error!(%error, "a task is not sealed anew");
                    continue;
                }
            };
            // Unless it has been replaced since.
            sqlx::query(
                "UPDATE tasks SET definition = $1, sealing_key = $2 WHERE id = $3 AND definition = $4",
            )
            .bind(self.seal(&task.id, "definition", &task.definition))
            .bind(self.key_id())
            .bind(&*task.id)
            .bind(before)
            .execute(self.database.writer())
            .await?;
        }
        Ok(())
    }

    fn read(&self, row: &AnyRow) -> Result<Task, StoreError> {
        let id: String = row.try_get("id")?;
        let sealed: Vec<u8> = row.try_get("definition")?;
        Ok(Task {
            user_id: row.try_get("user_id")?,
            key_id: row.try_get("key_id")?,
            definition: self.open(&id, "definition", &sealed)?,
            next_fire_at: row.try_get::<Option<i64>, _>("next_fire_at")?.map(Millis),
            created_at: Millis(row.try_get("created_at")?),
            updated_at: Millis(row.try_get("updated_at")?),
            id,
        })
    }

    fn key_id(&self) -> i64 {
        self.keys.current_id().into()
    }

    fn seal(&self, task_id: &str, field: &str, value: &impl Serialize) -> Vec<u8> {
        let json = serde_json::to_vec(value).expect("it is texts and numbers");
        let fields = [task_id.as_bytes(), field.as_bytes()];
        self.keys.seal(Purpose::TASK, &fields, &json)
    }

    fn open<T: DeserializeOwned>(
        &self,
        task_id: &str,
        field: &str,
        sealed: &[u8],
    ) -> Result<T, StoreError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            StoreError::Unreadable(format!("the {field} of {task_id}: {error}"))
        };
        let fields = [task_id.as_bytes(), field.as_bytes()];
        let json = self.keys.unseal(Purpose::TASK, &fields, sealed);
        let json = json.map_err(|error| unreadable(&error))?;
        serde_json::from_slice(&json).map_err(|error| unreadable(&error))
    }
}
