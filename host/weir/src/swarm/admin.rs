//! `/admin/swarms`: the swarms of all users, for operators. What users and models wrote is not shown.

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::Credits;
use weir_storage::clock::Millis;

use super::store::outline::{self, RunFilter, RunOutline};
use crate::audit::AuditEvent;
use crate::identity::admin::AdminCaller;
use crate::node::Core;
use crate::query::{ListQuery, cut};
use crate::schemas::parameters::Limit;

/// A swarm of a user's.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SwarmOutline {
    /// Its id.
    pub execution_id: String,
    /// Who pays.
    pub user_id: String,
    /// As the user names the pipeline.
    pub swarm_id: String,
    /// The task that it is run for.
    pub task_id: Option<String>,
    /// `queued`, `running`, `completed`, `partial`, `failed` or `cancelled`.
    pub status: String,
    /// How many agents have completed.
    pub agents_completed: i64,
    /// How many there are.
    pub agents_total: i64,
    /// The price of all calls so far.
    #[schema(value_type = f64)]
    pub total_credits: Credits,
    /// When it was requested.
    pub created_at: String,
    /// When its cancellation was requested.
    pub cancel_requested_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
}

/// A part of all swarms.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SwarmOutlineList {
    /// The last one first.
    pub swarms: Vec<SwarmOutline>,
    /// The `before` of the next part; null if this is the last.
    pub next: Option<String>,
}

/// `GET /admin/swarms`: all users' swarms, or those that `user_id` and `open` say.
#[utoipa::path(
    get, path = "/admin/swarms", tag = "administration", security(("admin" = [])), operation_id = "list_all_swarms",
    params(
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the part before: what follows is older.", nullable = false),
        ("user_id" = Option<String>, Query, description = "Of this user.", nullable = false),
        ("open" = Option<bool>, Query, description = "With `true`, those that are queued or running.", nullable = false),
    ),
    responses((status = 200, body = SwarmOutlineList)),
)]
pub async fn list_swarms(
    State(core): State<Core>,
    _: AdminCaller,
    mut query: ListQuery,
) -> Result<Json<SwarmOutlineList>, ApiError> {
    let limit = query.limit()?;
    let filter = RunFilter {
        user_id: query.text("user_id")?,
        open: query.flag("open")? == Some(true),
        before: query.text("before")?,
    };
    query.finish()?;
    let mut swarms = outline::list(&core.database, &filter, limit + 1)
        .await
        .map_err(failed)?;
    let next = cut(&mut swarms, limit, |swarm| swarm.id.clone());
    let swarms = swarms.into_iter().map(item).collect();
    Ok(Json(SwarmOutlineList { swarms, next }))
}

/// `POST /admin/swarms/{execution_id}/cancel`: cancels a user's swarm before its next step.
#[utoipa::path(
    post, path = "/admin/swarms/{execution_id}/cancel", tag = "administration", security(("admin" = [])), operation_id = "cancel_any_swarm",
    params(("execution_id" = String, Path, description = "The swarm's id.")),
    responses(
        (status = 200, body = SwarmOutline),
        (status = 404, description = "`NOT_FOUND`: there is no such swarm."),
        (status = 409, description = "`NOT_POSSIBLE`: it is over."),
    ),
)]
pub async fn cancel_swarm(
    State(core): State<Core>,
    AdminCaller { actor }: AdminCaller,
    Path(id): Path<String>,
) -> Result<Json<SwarmOutline>, ApiError> {
    let database = &core.database;
    let is_new = outline::request_cancel(database, &id, core.clock.now()).await;
    let is_new = is_new.map_err(failed)?;
    let Some(run) = outline::find(database, &id).await.map_err(failed)? else {
        let error = ApiError::new(ErrorCode::NotFound, "There is no such swarm.");
        return Err(error.with_param("execution_id"));
    };
    if run.ended_at.is_some() && !is_new {
        let what = format!("The swarm is over: it is {}.", run.status);
        return Err(ApiError::new(ErrorCode::NotPossible, what));
    }
    if is_new {
        let event = AuditEvent::SwarmCancelled {
            user_id: run.user_id.clone(),
            execution_id: run.id.clone(),
        };
        core.audit.record_by(&actor, event);
    }
    Ok(Json(item(run)))
}

fn item(run: RunOutline) -> SwarmOutline {
    SwarmOutline {
        execution_id: run.id,
        user_id: run.user_id,
        swarm_id: run.swarm_id,
        task_id: run.task_id,
        status: run.status,
        agents_completed: run.agents_completed,
        agents_total: run.agents_total,
        total_credits: run.credits,
        created_at: run.created_at.iso(),
        cancel_requested_at: run.cancel_requested_at.map(Millis::iso),
        ended_at: run.ended_at.map(Millis::iso),
    }
}

fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "asked for swarms")
}
