//! The start of a task: requests its swarm in its owner's name, once for each cause.

use std::time::Duration;

use sha2::{Digest, Sha256};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::{model_grant, store_failed};
use weir_ledger::{AccountId, IdempotencyClaim};
use weir_request::limits::data::CallerDataLimits;
use weir_storage::clock::Millis;

use super::TaskParts;
use super::store::{Cause, MINUTE_MS, StartEnd, StartRefusal, Task, TaskStoreError};
use crate::swarm::accept::{self, SwarmPayer};
use crate::swarm::request::SwarmCaller;
use crate::swarm::store::SwarmRun;

/// The error code of a start that follows another one too soon. Such a start is not recorded.
pub const TOO_SOON: ErrorCode = ErrorCode::TaskStartedTooSoon;

/// Starts a task, unless its cause has already started it; returns whether that is so, too. weir records the result for
/// the owner, except temporary errors.
pub async fn start(
    tasks: &TaskParts,
    task: &Task,
    cause: Cause<'_>,
) -> Result<(SwarmRun, bool), ApiError> {
    let first = tasks.store.find_start(&task.id, cause.id).await;
    if let Some(id) = first.map_err(failed)?.and_then(|first| first.execution_id) {
        let run = tasks.swarms.store.find(&id).await.map_err(accept::failed)?;
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
    let claim = IdempotencyClaim {
        request_digest: Sha256::digest(&key).into(),
        key,
    };
    let account = AccountId(task.user_id.clone());
    let asked = match accept::find_repeat(&tasks.swarms, &account, Some(&claim)).await? {
        // An earlier node failed before it recorded the start.
        Some(run) => Ok((run, true)),
        None => {
            let now = tasks.swarms.inference.ledger.now();
            let is_first = tasks.store.claim_minute(&task.id, cause.id, now).await;
            if !is_first.map_err(|error| failed(error.into()))? {
                return Err(too_soon(now));
            }
            ask(tasks, task, &claim).await
        }
    };
    let ended = match &asked {
        Ok((run, _)) => StartEnd::Started(&run.id),
        Err(error) if error.status().is_server_error() => return asked,
        Err(error) => StartEnd::Refused(StartRefusal {
            code: error.code().to_owned(),
            message: error.message().to_owned(),
        }),
    };
    let noted = tasks
        .store
        .note(&task.id, cause, ended, tasks.swarms.inference.ledger.now());
    noted.await.map_err(failed)?;
    asked
}

/// Requests the task's swarm as its owner would, with the key of the definition.
async fn ask(
    tasks: &TaskParts,
    task: &Task,
    claim: &IdempotencyClaim,
) -> Result<(SwarmRun, bool), ApiError> {
    let core = &tasks.swarms.inference;
    let (account, parts) = (&task.user_id, &task.parts);
    let found = model_grant::find_grant(&core.database, account, parts, core.clock.now()).await;
    let grant = found.map_err(store_failed)??;
    let (mut request, _) = accept::read(
        &tasks.swarms,
        &task.definition.swarm_body(),
        SwarmCaller::User,
    )?;
    request.task_id = Some(task.id.clone());
    request.from_task = true;
    let account = AccountId(task.user_id.clone());
    let payer = SwarmPayer {
        account: &account,
        account_plan: grant.plan,
        plan: grant.plan,
        parts: task.parts.clone(),
        models: &grant.models,
        data_limits: CallerDataLimits::default(),
    };
    accept::accept(&tasks.swarms, &payer, &request, Some(claim)).await
}

/// 429: another cause has started the task within this minute.
fn too_soon(now: Millis) -> ApiError {
    let left = MINUTE_MS - now.0.rem_euclid(MINUTE_MS);
    ApiError::new(TOO_SOON, "A task starts at most once a minute.")
        .with_param("task_id")
        .with_retry_after(Duration::from_millis(left.unsigned_abs()))
}

/// The client's error for a failed store.
pub fn failed(error: TaskStoreError) -> ApiError {
    match error {
        TaskStoreError::Database(error) => ApiError::of_database(&error, "about a task"),
        error @ TaskStoreError::Unreadable(_) => {
            tracing::error!(%error, "reading a task");
            ApiError::internal()
        }
    }
}
