//! Runs for operators: owner and progress, but no texts of people or models.

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_ledger::Credits;
use weir_storage::Database;
use weir_storage::clock::Millis;

/// A run without its encrypted fields.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutline {
    pub id: String,
    /// The user who pays.
    pub user_id: String,
    /// The client's name of the pipeline.
    pub swarm_id: String,
    pub task_id: Option<String>,
    /// The status's name.
    pub status: String,
    pub agents_completed: i64,
    pub agents_total: i64,
    /// The cost so far.
    pub credits: Credits,
    /// The time of the request.
    pub created_at: Millis,
    /// The time of the cancellation's request.
    pub cancel_requested_at: Option<Millis>,
    pub ended_at: Option<Millis>,
}

#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only runs of this user.
    pub user_id: Option<String>,
    /// Only unfinished runs.
    pub open: bool,
    /// Only runs older than this one.
    pub before: Option<String>,
}

const OUTLINE: &str = "SELECT id, user_id, swarm_id, task_id, status, agents_completed, agents_total, credits, created_at, \
     cancel_requested_at, ended_at FROM swarm_runs";

/// Returns the runs of all users, newest first.
pub async fn list(
    database: &Database,
    filter: &RunFilter,
    limit: u32,
) -> sqlx::Result<Vec<RunOutline>> {
    let text = list_statement(filter);
    // Ids are ordered by time, and consist of digits and letters up to f.
    let mut query = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(filter.before.as_deref().unwrap_or("g"))
        .bind(i64::from(limit));
    if let Some(user_id) = &filter.user_id {
        query = query.bind(&**user_id);
    }
    let rows = query.fetch_all(database.reader()).await?;
    rows.iter().map(read).collect()
}

/// Returns the run with this id, if it exists.
pub async fn find(database: &Database, id: &str) -> sqlx::Result<Option<RunOutline>> {
    let row = sqlx::query(sqlx::AssertSqlSafe(format!("{OUTLINE} WHERE id = $1")))
        .bind(id)
        .fetch_optional(database.reader())
        .await?;
    row.as_ref().map(read).transpose()
}

/// Records that a run is to be cancelled. Returns whether that is new: the run is unfinished, and was not cancelled
/// before.
pub async fn request_cancel(database: &Database, run_id: &str, now: Millis) -> sqlx::Result<bool> {
    let requested = sqlx::query(
        "UPDATE swarm_runs SET cancel_requested_at = $1 WHERE id = $2 AND cancel_requested_at IS NULL \
         AND ended_at IS NULL",
    )
    .bind(now.0)
    .bind(run_id)
    .execute(database.writer())
    .await?;
    Ok(requested.rows_affected() == 1)
}

/// Parameters: the id before the page, the maximum number, and the user, if the filter names one.
pub fn list_statement(filter: &RunFilter) -> String {
    let open = if filter.open {
        " AND ended_at IS NULL"
    } else {
        ""
    };
    let user = match filter.user_id {
        Some(_) => " AND user_id = $3",
        None => "",
    };
    format!("{OUTLINE} WHERE id < $1{open}{user} ORDER BY id DESC LIMIT $2")
}

fn read(row: &AnyRow) -> sqlx::Result<RunOutline> {
    let moment =
        |column| -> sqlx::Result<_> { Ok(row.try_get::<Option<i64>, _>(column)?.map(Millis)) };
    Ok(RunOutline {
        id: row.try_get("id")?,
        user_id: row.try_get("user_id")?,
        swarm_id: row.try_get("swarm_id")?,
        task_id: row.try_get("task_id")?,
        status: row.try_get("status")?,
        agents_completed: row.try_get("agents_completed")?,
        agents_total: row.try_get("agents_total")?,
        credits: row.try_get("credits").map(Credits::from_micro)?,
        created_at: Millis(row.try_get("created_at")?),
        cancel_requested_at: moment("cancel_requested_at")?,
        ended_at: moment("ended_at")?,
    })
}
