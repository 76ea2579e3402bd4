//! Questions between nodes: a node that is about to activate a component asks the others whether the component loads there.

use sqlx::Row;
use weir_sandbox::Digest;
use weir_storage::clock::Millis;
use weir_storage::{Database, ids};

use super::row::digest;

/// Milliseconds after which a question is deleted whose node ended before it took the question back.
const STANDS_MS: i64 = 600_000;

pub(crate) struct Question {
    pub id: String,
    pub slot: String,
    pub digest: Digest,
}

pub(crate) struct LoadAnswer {
    pub boot_id: String,
    /// The reason that the component does not load there; `None` if it does.
    pub problem: Option<String>,
}

/// Asks all nodes. Returns the question's id.
pub(crate) async fn ask(
    database: &Database,
    slot: &str,
    digest: Digest,
    now: Millis,
) -> sqlx::Result<String> {
    let id = ids::load_question_id();
    sqlx::query("INSERT INTO load_questions (id, slot, digest, asked_at) VALUES ($1, $2, $3, $4)")
        .bind(&id)
        .bind(slot)
        .bind(digest.to_string())
        .bind(now.0)
        .execute(database.writer())
        .await?;
    Ok(id)
}

/// Returns the questions that a node has not answered.
pub(crate) async fn unanswered(database: &Database, boot_id: &str) -> sqlx::Result<Vec<Question>> {
    let rows = sqlx::query(
        "SELECT q.id, q.slot, q.digest FROM load_questions q LEFT JOIN load_answers a \
         ON a.question_id = q.id AND a.boot_id = $1 WHERE a.question_id IS NULL",
    )
    .bind(boot_id)
    .fetch_all(database.reader())
    .await?;
    rows.iter()
        .map(|row| {
            Ok(Question {
                id: row.try_get("id")?,
                slot: row.try_get("slot")?,
                digest: digest(row, "digest")?,
            })
        })
        .collect()
}

pub(crate) async fn answer(
    database: &Database,
    question: &str,
    answer: &LoadAnswer,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO load_answers (question_id, boot_id, problem) VALUES ($1, $2, $3) \
         ON CONFLICT (question_id, boot_id) DO NOTHING",
    )
    .bind(question)
    .bind(&answer.boot_id)
    .bind(&answer.problem)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Returns the answers so far.
pub(crate) async fn answers(database: &Database, question: &str) -> sqlx::Result<Vec<LoadAnswer>> {
    let rows = sqlx::query("SELECT boot_id, problem FROM load_answers WHERE question_id = $1")
        .bind(question)
        .fetch_all(database.reader())
        .await?;
    rows.iter()
        .map(|row| {
            Ok(LoadAnswer {
                boot_id: row.try_get("boot_id")?,
                problem: row.try_get("problem")?,
            })
        })
        .collect()
}

/// Deletes a question, its answers, and all old questions.
pub(crate) async fn take_back(
    database: &Database,
    question: &str,
    now: Millis,
) -> sqlx::Result<()> {
    let mut transaction = database.begin().await?;
    sqlx::query("DELETE FROM load_questions WHERE id = $1 OR asked_at < $2")
        .bind(question)
        .bind(now.0 - STANDS_MS)
        .execute(&mut transaction)
        .await?;
    sqlx::query(
        "DELETE FROM load_answers WHERE question_id NOT IN (SELECT id FROM load_questions)",
    )
    .execute(&mut transaction)
    .await?;
    transaction.commit().await
}
