//! The start of a task: requests its swarm in its owner's name, once for each cause.

use std::time::Duration;

use sha2::{Digest, Sha256};
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::Claim;
use weir_storage::clock::Millis;

use super::store::{Cause, Ended, MINUTE_MS, Refusal, StoreError, Task};
use crate::app::App;
use crate::identity::{self, limits};
use crate::swarm::accept::{self, Payer};
use crate::swarm::request::Asker;
use crate::swarm::store::Run;

/// The error code of a start that follows another one too soon. Such a start is not recorded.
pub const TOO_SOON: ErrorCode = ErrorCode::TaskStartedTooSoon;

/// Starts a task, unless its cause has already started it; returns whether that is so, too. weir records the result for
/// the owner, except temporary errors.
pub async fn start(app: &App, task: &Task, cause: Cause<'_>) -> Result<(Run, bool), ApiError> {
    let first = app.task_store.find_start(&task.id, cause.id).await;
    if let Some(id) = first.map_err(failed)?.and_then(|first| first.execution_id) {
        let run = app.swarms.store.find(&id).await.map_err(accept::failed)?;
        return run.map(|run| (run, true)).ok_or_else(|| {
            ApiError::new(
                ErrorCode::IdempotencyAnswerNotKept,
                "This cause has already started the task, but the result is not stored any more.",
            )
            .with_no_retry()
        });
    }
    // Clients' keys cannot contain a line feed.
    let key = format!("task\n{}\n{}", task.id, cause.id);
    let claim = Claim {
        request_digest: Sha256::digest(&key).into(),
        key,
    };
    let asked = match accept::find_repeat(app, &task.user_id, Some(&claim)).await? {
        // An earlier node failed before it recorded the start.
        Some(run) => Ok((run, true)),
        None => {
            let now = app.ledger.now();
            let is_first = app.task_store.claim_minute(&task.id, cause.id, now).await;
            if !is_first.map_err(|error| failed(error.into()))? {
                return Err(too_soon(now));
            }
            ask(app, task, &claim).await
        }
    };
    let ended = match &asked {
        Ok((run, _)) => Ended::Started(&run.id),
        Err(error) if error.status().is_server_error() => return asked,
        Err(error) => Ended::Refused(Refusal {
            code: error.code().to_owned(),
            message: error.message().to_owned(),
        }),
    };
    let noted = app
        .task_store
        .note(&task.id, cause, ended, app.ledger.now());
    noted.await.map_err(failed)?;
    asked
}

/// Requests the task's swarm as its owner would, with the key of the definition.
async fn ask(app: &App, task: &Task, claim: &Claim) -> Result<(Run, bool), ApiError> {
    let plan = identity::users::require(app, &task.user_id).await?;
    let models = match &task.key_id {
        Some(key_id) => limits::require_working_key(app, key_id).await?,
        None => Vec::new(),
    };
    let (mut request, _) = accept::read(app, &task.definition.swarm_body(), Asker::User)?;
    request.task_id = Some(task.id.clone());
    request.from_task = true;
    let payer = Payer {
        user_id: &task.user_id,
        user_plan: plan,
        plan,
        key_id: task.key_id.as_deref(),
        models: &models,
    };
    accept::accept(app, &payer, &request, Some(claim)).await
}

/// 429: another cause has started the task within this minute.
fn too_soon(now: Millis) -> ApiError {
    let left = MINUTE_MS - now.0.rem_euclid(MINUTE_MS);
    ApiError::new(TOO_SOON, "A task starts at most once a minute.")
        .with_param("task_id")
        .with_retry_after(Duration::from_millis(left.unsigned_abs()))
}

/// The client's error for a failed store.
pub fn failed(error: StoreError) -> ApiError {
    match error {
        StoreError::Database(error) => ApiError::of_database(&error, "about a task"),
        error @ StoreError::Unreadable(_) => {
            tracing::error!(%error, "reading a task");
            ApiError::internal()
        }
    }
}
