//! The SQL of tasks: their definitions and their starts ([`starts`]).
//!
//! **Invariant:** texts of people are encrypted, each bound to its field and task. They are kept for long, so a new
//! sealing key encrypts them again.

mod starts;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_ledger::BudgetPart;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;
use weir_storage::sealing::{KeyRing, Purpose};

pub use self::starts::{
    Cause, DueSchedule, MINUTE_MS, NewFire, OpenStart, StartEnd, StartRefusal, TaskStart, Trigger,
};
use super::definition::Definition;

/// The maximum tasks of one user.
pub const MAX_TASKS: i64 = 100;

/// The maximum rows in one step of re-encryption.
const SEALED_AT_ONCE: i64 = 100;

/// The store of tasks. Cheap to clone.
#[derive(Clone)]
pub struct TaskStore {
    database: Database,
    keys: KeyRing,
}

/// The reasons for which a task cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TaskStoreError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The stored data is from another version, or its sealing key is gone.
    #[error("the stored task is invalid: {0}")]
    Unreadable(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub id: String,
    /// The account that owns it and pays.
    pub user_id: String,
    /// The parts of the account whose budgets apply to starts: the API key of the latest definition, its project, and the
    /// member who wrote it.
    pub parts: Vec<BudgetPart>,
    pub definition: Definition,
    /// The next time of its schedule.
    pub next_fire_at: Option<Millis>,
    /// The time of creation.
    pub created_at: Millis,
    /// The time of the last change.
    pub updated_at: Millis,
}

const TASK: &str =
    "SELECT id, user_id, key_id, definition, next_fire_at, created_at, updated_at FROM tasks";

impl TaskStore {
    /// Returns the store in a database, encrypted with these keys.
    pub fn new(database: Database, keys: KeyRing) -> Self {
        Self { database, keys }
    }

    /// Stores a new task. Returns `false` if its owner has too many.
    pub async fn create(&self, task: &Task) -> sqlx::Result<bool> {
        let mut transaction = self.database.begin().await?;
        if self.database.dialect() == SqlDialect::Postgres {
            // The lock serialises requests of one user, so that their number stays bounded.
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
        .bind(BudgetPart::join(&task.parts))
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Replaces a task's definition and key.
    pub async fn replace(&self, task: &Task) -> sqlx::Result<()> {
        sqlx::query(
            "UPDATE tasks SET definition = $1, sealing_key = $2, next_fire_at = $3, updated_at = $4, key_id = $5 \
             WHERE id = $6",
        )
        .bind(self.seal(&task.id, "definition", &task.definition))
        .bind(self.key_id())
        .bind(task.next_fire_at.map(|at| at.0))
        .bind(task.updated_at.0)
        .bind(BudgetPart::join(&task.parts))
        .bind(&*task.id)
        .execute(self.database.writer())
        .await
        .map(drop)
    }

    /// Returns the task with this id, if it exists.
    pub async fn find(&self, id: &str) -> Result<Option<Task>, TaskStoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!("{TASK} WHERE id = $1")))
            .bind(id)
            .fetch_optional(self.database.reader())
            .await?;
        row.as_ref().map(|row| self.read(row)).transpose()
    }

    /// Returns a user's tasks, newest first, optionally only those before the task `before`.
    pub async fn list(
        &self,
        user_id: &str,
        before: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Task>, TaskStoreError> {
        // Ids are ordered by time, and consist of digits and letters up to f.
        let text = format!("{TASK} WHERE user_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3");
        let rows = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(user_id)
            .bind(before.unwrap_or("task_g"))
            .bind(i64::from(limit))
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(|row| self.read(row)).collect()
    }

    /// Deletes a task with its credentials and starts. Its runs remain.
    pub async fn delete(&self, id: &str) -> sqlx::Result<()> {
        let mut transaction = self.database.begin().await?;
        // The task's row is locked first, so that nothing can be added to it.
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

    /// Encrypts rows with older keys again, with the current key.
    pub async fn seal_anew(&self) -> Result<(), TaskStoreError> {
        // No index supports a comparison by inequality.
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
                // One failure does not stop the other rows.
                Err(error) => {
                    tracing::error!(%error, "cannot encrypt a task again");
                    continue;
                }
            };
            // The condition skips rows that were replaced meanwhile.
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

    fn read(&self, row: &AnyRow) -> Result<Task, TaskStoreError> {
        let id: String = row.try_get("id")?;
        let sealed: Vec<u8> = row.try_get("definition")?;
        Ok(Task {
            user_id: row.try_get("user_id")?,
            parts: BudgetPart::split(row.try_get::<Option<String>, _>("key_id")?.as_deref()),
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
    ) -> Result<T, TaskStoreError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            TaskStoreError::Unreadable(format!("the {field} of {task_id}: {error}"))
        };
        let fields = [task_id.as_bytes(), field.as_bytes()];
        let json = self.keys.unseal(Purpose::TASK, &fields, sealed);
        let json = json.map_err(|error| unreadable(&error))?;
        serde_json::from_slice(&json).map_err(|error| unreadable(&error))
    }
}
