//! `/admin/swarms`: the swarms of all users, for operators. They hide the content of users and models.

use axum::Json;
use axum::extract::{FromRef, FromRequestParts, Path, State};
use axum::response::Response;
use futures_util::FutureExt as _;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::AdminCaller;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::handlers;
use weir_ledger::Credits;
use weir_request::audit::AuditEvent;
use weir_request::csv_export::{CsvTable, ListPage};
use weir_request::node::Core;
use weir_request::query::{ListQuery, cut};
use weir_request::schemas::parameters::Limit;
use weir_storage::clock::Millis;

use super::store::outline::{self, RunFilter, RunOutline};

/// Returns the administrators' endpoints of swarms, which work without a gateway.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
    AdminCaller: FromRequestParts<S, Rejection = ApiError>,
{
    Endpoints::new().row(Access::Admin, handlers!(list_swarms, cancel_swarm))
}

/// A swarm of a user.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SwarmOutline {
    /// The swarm's id.
    pub execution_id: String,
    /// The user who pays.
    pub user_id: String,
    /// The user's name of the pipeline.
    pub swarm_id: String,
    /// The task of the swarm.
    pub task_id: Option<String>,
    /// `queued`, `running`, `completed`, `partial`, `failed` or `cancelled`.
    pub status: String,
    /// Number of completed agents.
    pub agents_completed: i64,
    /// Number of agents.
    pub agents_total: i64,
    /// Price of all calls so far.
    #[schema(value_type = f64)]
    pub total_credits: Credits,
    /// Time of the request.
    pub created_at: String,
    /// Time of the cancellation's request.
    pub cancel_requested_at: Option<String>,
    /// Time of the end.
    pub ended_at: Option<String>,
}

/// A page of swarms.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SwarmOutlineList {
    /// Swarms, newest first.
    pub swarms: Vec<SwarmOutline>,
    /// The `before` of the next page; null after the last.
    pub next: Option<String>,
}

/// `GET /admin/swarms`: lists the swarms of all users, filtered by `user_id` and `open`.
#[utoipa::path(
    get, path = "/admin/swarms", tag = "administration", operation_id = "list_all_swarms",
    params(
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page; the swarms are older.", nullable = false),
        ("user_id" = Option<String>, Query, description = "Only swarms of this user.", nullable = false),
        ("open" = Option<bool>, Query, description = "With `true`, only queued or running swarms.", nullable = false),
    ),
    responses((status = 200, content((SwarmOutlineList = "application/json"), (String = "text/csv")))),
)]
pub async fn list_swarms(
    State(core): State<Core>,
    admin: AdminCaller,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let (reader, account) = (core.clone(), admin.actor.as_str());
    TABLE
        .respond(
            &core.exports,
            account,
            &headers,
            query,
            reader,
            |core, query| list(core, query).boxed(),
        )
        .await
}

const TABLE: CsvTable = CsvTable {
    file: "swarms.csv",
    columns: "execution_id,user_id,swarm_id,task_id,status,agents_completed,agents_total,total_credits,created_at,cancel_requested_at,ended_at",
    position: "before",
};

impl ListPage for SwarmOutlineList {
    type Item = SwarmOutline;

    fn into_items(self) -> (Vec<SwarmOutline>, Option<String>) {
        (self.swarms, self.next)
    }
}

pub async fn list(core: &Core, mut query: ListQuery) -> Result<SwarmOutlineList, ApiError> {
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
    Ok(SwarmOutlineList { swarms, next })
}

/// `POST /admin/swarms/{execution_id}/cancel`: cancels a user's swarm; it ends within two seconds.
#[utoipa::path(
    post, path = "/admin/swarms/{execution_id}/cancel", tag = "administration", operation_id = "cancel_any_swarm",
    params(("execution_id" = String, Path, description = "The swarm's id.")),
    responses(
        (status = 200, body = SwarmOutline),
        (status = 404, description = "`NOT_FOUND`: the swarm does not exist."),
        (status = 409, description = "`NOT_POSSIBLE`: the swarm is over."),
    ),
)]
pub async fn cancel_swarm(
    State(core): State<Core>,
    AdminCaller { actor, .. }: AdminCaller,
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
