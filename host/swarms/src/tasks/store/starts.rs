//! Scheduled and past starts of tasks.

use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::clock::Millis;

use super::{TaskStore, TaskStoreError};

/// The maximum schedules, or starts, of one read.
const AT_ONCE: i64 = 50;

/// The maximum starts of one deletion.
const FORGOTTEN_AT_ONCE: i64 = 1_000;

/// Milliseconds of a minute.
pub const MINUTE_MS: i64 = 60_000;

/// The trigger of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// A manual request.
    Manual,
    /// A schedule: the task's own, or a queue's.
    Schedule,
    /// An external event. Earlier versions of the API called it `queue`.
    #[serde(alias = "queue")]
    Event,
}

impl Trigger {
    /// The trigger's name in the API and the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Schedule => "schedule",
            Self::Event => "event",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Cause<'a> {
    /// The id that identifies repeats.
    pub id: &'a str,
    pub trigger: Trigger,
    /// The scheduled time, if the task's own schedule fires.
    pub slot: Option<Millis>,
}

/// A start of a task, or a failed attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskStart {
    pub task_id: String,
    /// The trigger's name.
    pub trigger: String,
    /// The scheduled time, if the task's own schedule fired.
    pub slot: Option<Millis>,
    pub started_at: Millis,
    /// The run, if there is one.
    pub execution_id: Option<String>,
    /// The reason for a missing run.
    pub refusal: Option<StartRefusal>,
}

/// The reason for which a task was not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRefusal {
    /// The error's code.
    pub code: String,
    /// The message for people.
    pub message: String,
}

pub enum StartEnd<'a> {
    /// The start has created this run.
    Started(&'a str),
    Refused(StartRefusal),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSchedule {
    pub task_id: String,
    pub at: Millis,
}

/// A slot that is about to fire.
pub struct NewFire<'a> {
    /// The schedule as it was read.
    pub due: &'a DueSchedule,
    pub next: Option<Millis>,
    /// The slot, and its claim.
    pub start: &'a OpenStart,
    /// The current time.
    pub at: Millis,
    /// The reason for which the slot must not start the task.
    pub missed: Option<StartRefusal>,
}

/// A slot that has fired, without a result so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenStart {
    pub task_id: String,
    /// The id that identifies repeats.
    pub cause: String,
    pub slot: Millis,
    /// The end of this node's claim.
    pub claimed_until: Millis,
}

const START: &str =
    "SELECT task_id, cause, trigger_type, slot, started_at, execution_id, refusal FROM task_starts";

impl TaskStore {
    /// Returns some due schedules, the longest due first.
    pub async fn due(&self, now: Millis) -> Result<Vec<DueSchedule>, TaskStoreError> {
        let rows = sqlx::query(
            "SELECT id, next_fire_at FROM tasks WHERE next_fire_at <= $1 ORDER BY next_fire_at, id LIMIT $2",
        )
        .bind(now.0)
        .bind(AT_ONCE)
        .fetch_all(self.database.reader())
        .await?;
        let read = |row: &AnyRow| {
            Ok(DueSchedule {
                task_id: row.try_get("id")?,
                at: Millis(row.try_get("next_fire_at")?),
            })
        };
        rows.iter().map(read).collect()
    }

    /// Advances a schedule without firing. Returns `false` if it has changed meanwhile.
    pub async fn move_on(
        &self,
        due: &DueSchedule,
        next: Option<Millis>,
    ) -> Result<bool, TaskStoreError> {
        let moved = sqlx::query(MOVE_ON)
            .bind(next.map(|next| next.0))
            .bind(&*due.task_id)
            .bind(due.at.0)
            .execute(self.database.writer())
            .await?;
        Ok(moved.rows_affected() == 1)
    }

    /// Advances a schedule, and records that its slot fires. Returns `false` if another node was first.
    pub async fn claim_slot(&self, fire: &NewFire<'_>) -> Result<bool, TaskStoreError> {
        let mut transaction = self.database.begin().await?;
        let moved = sqlx::query(MOVE_ON)
            .bind(fire.next.map(|next| next.0))
            .bind(&*fire.due.task_id)
            .bind(fire.due.at.0)
            .execute(&mut transaction)
            .await?;
        if moved.rows_affected() != 1 {
            return Ok(false);
        }
        let OpenStart {
            task_id,
            cause,
            slot,
            claimed_until,
        } = fire.start;
        let refusal = fire.missed.as_ref();
        let refusal = refusal.map(|why| self.seal(task_id, cause, why));
        let fired = sqlx::query(
            "INSERT INTO task_starts (task_id, cause, trigger_type, slot, started_at, claimed_until, refusal) \
             VALUES ($1, $2, 'schedule', $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        )
        .bind(&**task_id)
        .bind(&**cause)
        .bind(slot.0)
        .bind(fire.at.0)
        .bind(claimed_until.0)
        .bind(refusal)
        .execute(&mut transaction)
        .await?;
        transaction.commit().await?;
        Ok(fired.rows_affected() == 1)
    }

    /// Returns some slots whose claims have expired without a start.
    pub async fn open_starts(&self, now: Millis) -> Result<Vec<OpenStart>, TaskStoreError> {
        let rows = sqlx::query(
            "SELECT task_id, cause, slot, claimed_until FROM task_starts WHERE execution_id IS NULL \
             AND refusal IS NULL AND claimed_until <= $1 ORDER BY claimed_until LIMIT $2",
        )
        .bind(now.0)
        .bind(AT_ONCE)
        .fetch_all(self.database.reader())
        .await?;
        let read = |row: &AnyRow| {
            Ok(OpenStart {
                task_id: row.try_get("task_id")?,
                cause: row.try_get("cause")?,
                slot: Millis(row.try_get("slot")?),
                claimed_until: Millis(row.try_get("claimed_until")?),
            })
        };
        rows.iter().map(read).collect()
    }

    /// Claims such a slot. Returns `false` if another node has claimed it.
    pub async fn claim_open(
        &self,
        open: &OpenStart,
        until: Millis,
    ) -> Result<bool, TaskStoreError> {
        let claimed = sqlx::query(
            "UPDATE task_starts SET claimed_until = $1 WHERE task_id = $2 AND cause = $3 AND claimed_until = $4 \
             AND execution_id IS NULL AND refusal IS NULL",
        )
        .bind(until.0)
        .bind(&*open.task_id)
        .bind(&*open.cause)
        .bind(open.claimed_until.0)
        .execute(self.database.writer())
        .await?;
        Ok(claimed.rows_affected() == 1)
    }

    /// Records the result of a start. A recorded run stays. Starts of deleted tasks are not recorded.
    pub async fn note(
        &self,
        task_id: &str,
        cause: Cause<'_>,
        ended: StartEnd<'_>,
        at: Millis,
    ) -> Result<(), TaskStoreError> {
        let (execution_id, refusal) = match ended {
            StartEnd::Started(id) => (Some(id), None),
            StartEnd::Refused(why) => (None, Some(self.seal(task_id, cause.id, &why))),
        };
        sqlx::query(
            "INSERT INTO task_starts (task_id, cause, trigger_type, slot, started_at, claimed_until, execution_id, refusal) \
             SELECT id, $2, $3, $4, $5, $5, $6, $7 FROM tasks WHERE id = $1 \
             ON CONFLICT (task_id, cause) DO UPDATE SET execution_id = excluded.execution_id, \
             refusal = excluded.refusal WHERE task_starts.execution_id IS NULL",
        )
        .bind(task_id)
        .bind(cause.id)
        .bind(cause.trigger.name())
        .bind(cause.slot.map(|slot| slot.0))
        .bind(at.0)
        .bind(execution_id)
        .bind(refusal)
        .execute(self.database.writer())
        .await?;
        Ok(())
    }

    /// Claims the current minute for a start of a task. Returns `false` if another cause has it: a task starts at most
    /// once a minute.
    pub async fn claim_minute(
        &self,
        task_id: &str,
        cause: &str,
        now: Millis,
    ) -> sqlx::Result<bool> {
        let claimed = sqlx::query(
            "UPDATE tasks SET start_minute = $1, start_cause = $2 WHERE id = $3 \
             AND (start_minute IS NULL OR start_minute <> $1 OR start_cause = $2)",
        )
        .bind(now.0.div_euclid(MINUTE_MS))
        .bind(cause)
        .bind(task_id)
        .execute(self.database.writer())
        .await?;
        Ok(claimed.rows_affected() == 1)
    }

    /// Returns the start with this cause, if it exists.
    pub async fn find_start(
        &self,
        task_id: &str,
        cause: &str,
    ) -> Result<Option<TaskStart>, TaskStoreError> {
        let text = format!("{START} WHERE task_id = $1 AND cause = $2");
        let row = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(task_id)
            .bind(cause)
            .fetch_optional(self.database.reader())
            .await?;
        row.as_ref().map(|row| self.read_start(row)).transpose()
    }

    /// Returns the starts of a task, newest first.
    pub async fn starts(
        &self,
        task_id: &str,
        limit: i64,
    ) -> Result<Vec<TaskStart>, TaskStoreError> {
        let text =
            format!("{START} WHERE task_id = $1 ORDER BY started_at DESC, cause DESC LIMIT $2");
        let rows = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(task_id)
            .bind(limit)
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(|row| self.read_start(row)).collect()
    }

    pub async fn last_starts(&self, task_ids: &[&str]) -> Result<Vec<TaskStart>, TaskStoreError> {
        let among = self.database.dialect().texts(1);
        let text = format!(
            "{START} WHERE task_id IN ({among}) AND started_at = (SELECT MAX(started_at) FROM task_starts AS others \
             WHERE others.task_id = task_starts.task_id) ORDER BY cause DESC"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(serde_json::json!(task_ids).to_string())
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(|row| self.read_start(row)).collect()
    }

    /// Deletes starts before a time, except the last one of each task; at most [`FORGOTTEN_AT_ONCE`]. Returns their
    /// number.
    pub async fn forget_starts(&self, before: Millis) -> Result<u64, TaskStoreError> {
        let forgotten = sqlx::query(FORGET_STATEMENT)
            .bind(before.0)
            .bind(FORGOTTEN_AT_ONCE)
            .execute(self.database.writer())
            .await?;
        Ok(forgotten.rows_affected())
    }

    fn read_start(&self, row: &AnyRow) -> Result<TaskStart, TaskStoreError> {
        let task_id: String = row.try_get("task_id")?;
        let cause: String = row.try_get("cause")?;
        let sealed: Option<Vec<u8>> = row.try_get("refusal")?;
        // The reason is only history: a missing sealing key must not block access to the task.
        let refusal = sealed.map(|sealed| {
            self.open(&task_id, &cause, &sealed)
                .unwrap_or_else(|_| StartRefusal {
                    code: "UNKNOWN".to_owned(),
                    message: "The stored reason is unreadable.".to_owned(),
                })
        });
        Ok(TaskStart {
            trigger: row.try_get("trigger_type")?,
            slot: row.try_get::<Option<i64>, _>("slot")?.map(Millis),
            started_at: Millis(row.try_get("started_at")?),
            execution_id: row.try_get("execution_id")?,
            refusal,
            task_id,
        })
    }
}

/// The condition on the old time lets only one of several nodes succeed.
const MOVE_ON: &str = "UPDATE tasks SET next_fire_at = $1 WHERE id = $2 AND next_fire_at = $3";

/// Parameters: the time, and the maximum number.
const FORGET_STATEMENT: &str = "DELETE FROM task_starts WHERE (task_id, cause) IN ( \
     SELECT task_id, cause FROM task_starts AS old WHERE started_at < $1 \
     AND (execution_id IS NOT NULL OR refusal IS NOT NULL) \
     AND EXISTS (SELECT 1 FROM task_starts AS others WHERE others.task_id = old.task_id \
     AND others.started_at > old.started_at) LIMIT $2)";
