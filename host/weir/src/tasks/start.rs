//! Starting a task: its swarm is asked for in its owner's name, once for each cause.

use http::StatusCode;
use sha2::{Digest, Sha256};
use weir_ledger::Claim;

use super::store::{Cause, Ended, Refusal, StoreError, Task};
use crate::app::App;
use crate::error::ApiError;
use crate::identity::{self, limits};
use crate::swarm::accept::{self, Payer};
use crate::swarm::request::Asker;
use crate::swarm::store::Run;

/// Starts a task, unless its cause has started it already; whether it has is returned, too. What comes of it is kept, so that
/// the owner sees it, but for what is only so for now.
pub async fn start(app: &App, task: &Task, cause: Cause<'_>) -> Result<(Run, bool), ApiError> {
    let first = app.task_store.find_start(&task.id, cause.id).await;
    if let Some(id) = first.map_err(failed)?.and_then(|first| first.execution_id) {
        let run = app.swarms.store.find(&id).await.map_err(accept::failed)?;
        return run.map(|run| (run, true)).ok_or_else(|| {
            ApiError::new(
                StatusCode::CONFLICT,
                "IDEMPOTENCY_ANSWER_NOT_KEPT",
                "This has started the task already, and what came of it is not kept any more.",
            )
            .with_no_retry()
        });
    }
    let asked = ask(app, task, cause.id).await;
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

/// Asks for the task's swarm as its owner would, with the key that the task was defined with.
async fn ask(app: &App, task: &Task, cause: &str) -> Result<(Run, bool), ApiError> {
    let plan = identity::users::require(app, &task.user_id).await?;
    let models = match &task.key_id {
        Some(key_id) => limits::require_working_key(app, key_id).await?,
        None => Vec::new(),
    };
    let (mut request, _) = accept::read(app, &task.definition.swarm_body(), Asker::User)?;
    request.task_id = Some(task.id.clone());
    let payer = Payer {
        user_id: &task.user_id,
        user_plan: plan,
        plan,
        key_id: task.key_id.as_deref(),
        models: &models,
    };
    // No client's key has a line feed.
    let key = format!("task\n{}\n{cause}", task.id);
    let claim = Claim {
        request_digest: Sha256::digest(&key).into(),
        key,
    };
    accept::accept(app, &payer, &request, Some(&claim)).await
}

/// What a client is told of a store that fails.
pub fn failed(error: StoreError) -> ApiError {
    match error {
        StoreError::Database(error) => ApiError::of_database(&error, "about a task"),
        error @ StoreError::Unreadable(_) => {
            tracing::error!(%error, "reading a task");
            ApiError::internal()
        }
    }
}
