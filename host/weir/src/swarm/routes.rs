//! `/swarms` and `POST /internal/agent/swarm`.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode};

use super::accept::{Payer, accept, failed, find_repeat, read, unknown};
use super::bodies::{ServiceSwarmRequest, SwarmInFull, SwarmList, TemplateList};
use super::order::order;
use super::record::{AgentResult, Record};
use super::request::Asker;
use super::store::Run;
use super::templates::TEMPLATES;
use super::{record_of, stream};
use crate::app::App;
use crate::context::RequestContext;
use crate::identity::service::{ExecutorCaller, Scope};
use crate::identity::{self, Caller};
use crate::inference::idempotency::IdempotencyHeader;
use crate::query::{self, ListQuery};
use crate::request::JsonBody;
use crate::schemas::parameters::{Idempotency, Limit};
use crate::schemas::vendors::ServerSentEvent;
use crate::tools::CallRecord;

/// How often a service's run is looked at by itself while the service waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The header of an answer to a request that was answered before.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// `POST /swarms`: takes a swarm. Answers at once, or with its events where the client accepts those.
#[utoipa::path(
    post, path = "/swarms", tag = "swarms", security(("user" = [])),
    params(Idempotency),
    request_body = super::request::Body,
    responses(
        (status = 202, description = "It will run.", body = Record),
        (status = 200, description = "Its events, where the client accepts those.", body = ServerSentEvent, content_type = "text/event-stream"),
        (status = 400, description = "`INVALID_REQUEST`, `INVALID_MODEL`: `param` names the field that is wrong."),
        (status = 402, description = "`INSUFFICIENT_CREDITS`: too few credits for what it is expected to cost, or a budget below the least price of its first call."),
        (status = 403, description = "`PLAN_NOT_ELIGIBLE`, `MODEL_NOT_ALLOWED`, `INTEGRATION_NOT_ALLOWED`: more than the plan, the key or the operator allows."),
        (status = 409, description = "`IDEMPOTENCY_KEY_REUSED`, `IDEMPOTENCY_IN_PROGRESS`, `IDEMPOTENCY_ANSWER_NOT_KEPT`: the key of an earlier request."),
        (status = 429, description = "`TOO_MANY_SWARMS`: 100 swarms of the user are open. `SWARM_DATA_LIMIT_REACHED`: the user's swarms have 1 GiB of data; delete some."),
    ),
)]
pub async fn create_swarm(
    State(app): State<App>,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let key = key.with_body(&body.bytes);
    let payer = Payer::of(&caller);
    let claim = key.as_ref().map(|key| key.claim());
    // First of all: a repeat is answered whatever has become of tools, models, plan and credits since.
    let repeat = find_repeat(&app, payer.user_id, claim).await?;
    let (run, is_repeat) = match repeat {
        Some(run) => (run, true),
        None => {
            let (mut request, _) = read(&app, &body.bytes, Asker::User)?;
            request.trace_parent = context.trace_onward().map(|trace| trace.to_string());
            accept(&app, &payer, &request, claim).await?
        }
    };
    let mut response = if wants_events(&headers) {
        stream::events(app, run.id, 0)
    } else {
        (StatusCode::ACCEPTED, Json(record_of(&run))).into_response()
    };
    if is_repeat {
        let replayed = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, replayed);
    }
    Ok(response)
}

/// `GET /swarms`: the caller's swarms, the last one first.
#[utoipa::path(
    get, path = "/swarms", tag = "swarms", security(("user" = [])),
    params(Limit,
        ("before" = Option<String>, Query, description = "The `next` of the part before: what follows is older.", pattern = "^[0-9a-f]{32}$", nullable = false)),
    responses((status = 200, body = SwarmList)),
)]
pub async fn list_swarms(
    State(app): State<App>,
    caller: Caller,
    query: ListQuery,
) -> Result<Json<Value>, ApiError> {
    let (swarms, next) = list(&app, &caller, query).await?;
    Ok(Json(json!({ "swarms": swarms, "next": next })))
}

/// A part of the caller's swarms, and what the next one begins after.
pub async fn list(
    app: &App,
    caller: &Caller,
    mut query: ListQuery,
) -> Result<(Vec<Record>, Option<String>), ApiError> {
    let limit = query.limit()?;
    let before = query.text("before")?;
    query.finish()?;
    if before.as_deref().is_some_and(|before| !is_id(before)) {
        return Err(ApiError::invalid_request("before", "It is a swarm's id."));
    }
    let runs = app
        .swarms
        .store
        .list(&caller.user_id, before.as_deref(), limit + 1);
    let mut records: Vec<Record> = runs.await.map_err(failed)?.iter().map(record_of).collect();
    let next = query::cut(&mut records, limit, |record| record.execution_id.clone());
    Ok((records, next))
}

/// `GET /swarms/templates`: swarms that are ready to be asked for.
#[utoipa::path(
    get, path = "/swarms/templates", tag = "swarms", security(("user" = [])),
    responses((status = 200, body = TemplateList)),
)]
pub async fn list_templates(_: Caller) -> Json<Value> {
    Json(json!({ "templates": TEMPLATES }))
}

/// `GET /swarms/{execution_id}`: one of the caller's, with what became of its agents.
#[utoipa::path(
    get, path = "/swarms/{execution_id}", tag = "swarms", security(("user" = [])),
    params(("execution_id" = String, Path, description = "The swarm's id.")),
    responses(
        (status = 200, body = SwarmInFull),
        (status = 404, description = "`NOT_FOUND`: you have no such swarm."),
    ),
)]
pub async fn get_swarm(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let run = own(&app, &caller, &id).await?;
    Ok(Json(in_full(&app, &run).await?))
}

/// `POST /swarms/{execution_id}/cancel`: cancels one of the caller's before its next step. One that is over stays as it is.
#[utoipa::path(
    post, path = "/swarms/{execution_id}/cancel", tag = "swarms", security(("user" = [])),
    params(("execution_id" = String, Path, description = "The swarm's id.")),
    responses(
        (status = 204, description = "It ends before its next step, or is over."),
        (status = 404, description = "`NOT_FOUND`: you have no such swarm."),
    ),
)]
pub async fn cancel_swarm(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    cancel(&app, &caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /swarms/{execution_id}`: cancels one of the caller's that is not over, and deletes one that is.
#[utoipa::path(
    delete, path = "/swarms/{execution_id}", tag = "swarms", security(("user" = [])),
    params(("execution_id" = String, Path, description = "The swarm's id.")),
    responses(
        (status = 204, description = "It ends before its next step; or, if it was over, it is deleted."),
        (status = 404, description = "`NOT_FOUND`: you have no such swarm."),
    ),
)]
pub async fn delete_swarm(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let run = own(&app, &caller, &id).await?;
    let store = &app.swarms.store;
    let done = match run.status.is_over() {
        true => store.delete(&run.id).await.map(drop),
        false => store.request_cancel(&run.id, app.ledger.now()).await,
    };
    done.map_err(|error| failed(error.into()))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Has one of the caller's end before its next step.
pub async fn cancel(app: &App, caller: &Caller, id: &str) -> Result<(), ApiError> {
    let run = own(app, caller, id).await?;
    let cancel = app.swarms.store.request_cancel(&run.id, app.ledger.now());
    cancel.await.map_err(|error| failed(error.into()))
}

/// `GET /swarms/{execution_id}/events`: what happens in one of the caller's, from the start or from behind an event.
#[utoipa::path(
    get, path = "/swarms/{execution_id}/events", tag = "swarms", security(("user" = [])),
    params(
        ("execution_id" = String, Path, description = "The swarm's id."),
        ("after" = Option<i64>, Query, description = "Events behind this one; all unless set.", minimum = 0, nullable = false),
        ("Last-Event-ID" = Option<i64>, Header, description = "The same, as clients say it that come back.", minimum = 0, nullable = false),
    ),
    responses(
        (status = 200, body = ServerSentEvent, content_type = "text/event-stream"),
        (status = 404, description = "`NOT_FOUND`: you have no such swarm."),
    ),
)]
pub async fn stream_events(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let after = query.number("after")?;
    query.finish()?;
    // A client that comes back says it by itself; what it was first called with is in the query still.
    let after = match headers.get("last-event-id") {
        Some(last) => {
            let last = last.to_str().ok().and_then(|last| last.parse().ok());
            last.filter(|last: &i64| *last >= 0).ok_or_else(|| {
                let what = "It is the id of an event: a whole number.";
                ApiError::invalid_request("Last-Event-ID", what)
            })?
        }
        None => after.unwrap_or(0),
    };
    let run = own(&app, &caller, &id).await?;
    Ok(stream::events(app, run.id, after))
}

/// `POST /internal/agent/swarm`: runs a swarm for the user whom a service names, and answers when it is over.
#[utoipa::path(
    post, path = "/internal/agent/swarm", tag = "swarms", security(("service" = [])),
    params(Idempotency),
    request_body = ServiceSwarmRequest,
    responses(
        (status = 200, body = SwarmInFull),
        (status = 400, description = "`INVALID_REQUEST`, `INVALID_MODEL`: `param` names the field that is wrong."),
        (status = 402, description = "`INSUFFICIENT_CREDITS`: too few credits for what it is expected to cost, or a budget below the least price of its first call."),
        (status = 403, description = "`PLAN_NOT_ELIGIBLE`, `MODEL_NOT_ALLOWED`, `INTEGRATION_NOT_ALLOWED`: more than the plan, the key or the operator allows."),
        (status = 409, description = "`IDEMPOTENCY_KEY_REUSED`, `IDEMPOTENCY_IN_PROGRESS`, `IDEMPOTENCY_ANSWER_NOT_KEPT`: the key of an earlier request."),
        (status = 429, description = "`TOO_MANY_SWARMS`: 100 swarms of the user are open. `SWARM_DATA_LIMIT_REACHED`: the user's swarms have 1 GiB of data; delete some."),
        (status = 404, description = "`UNKNOWN_USER`: there is no such user."),
    ),
)]
pub async fn run_swarm(
    State(app): State<App>,
    service: ExecutorCaller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    service.0.require(Scope::SwarmRun)?;
    let (mut request, named) = read(&app, &body.bytes, Asker::Service)?;
    request.trace_parent = context.trace_onward().map(|trace| trace.to_string());
    let Some(named) = named else {
        unreachable!("a service names who pays");
    };
    let user_plan = identity::users::require(&app, &named.user_id).await?;
    context.note_user(&named.user_id);
    let payer = Payer {
        user_id: &named.user_id,
        user_plan,
        plan: named.plan,
        key_id: None,
        models: &[],
    };
    let key = key.with_body(&body.bytes);
    let claim = key.as_ref().map(|key| key.claim());
    let run = match find_repeat(&app, payer.user_id, claim).await? {
        Some(run) => run,
        None => accept(&app, &payer, &request, claim).await?.0,
    };
    let mut changes = app.swarms.deltas.watch(&run.id);
    loop {
        let run = app.swarms.store.find(&run.id).await.map_err(failed)?;
        let run = run.ok_or_else(unknown)?;
        if run.status.is_over() {
            return Ok(Json(in_full(&app, &run).await?));
        }
        tokio::select! {
            () = changes.written() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = app.draining.cancelled() => {
                return Err(ApiError::new(
                    ErrorCode::ShuttingDown,
                    "The executor stops; another one goes on with the swarm.",
                )
                .with_detail("execution_id", run.id));
            }
        }
    }
}

/// A run with what became of its agents.
async fn in_full(app: &App, run: &Run) -> Result<Value, ApiError> {
    let mut record = json!(record_of(run));
    record["agents"] = json!(results(app, run).await?);
    Ok(record)
}

/// What became of a run's agents that have ended.
pub async fn results(app: &App, run: &Run) -> Result<Vec<AgentResult>, ApiError> {
    let agents = app.swarms.store.agents(&run.id).await.map_err(failed)?;
    Ok(agents
        .into_iter()
        .filter_map(|agent| agent.result)
        .collect())
}

/// The agents of a run in the order in which they run, each with its model.
pub async fn agents_of(app: &App, run: &Run) -> Result<Vec<(String, String)>, ApiError> {
    let request = app.swarms.store.request(&run.id).await.map_err(failed)?;
    let as_written = || (0..request.agents.len()).collect();
    // A circle has failed the swarm.
    let order = order(&request.agents).unwrap_or_else(|_| as_written());
    let agents = order.into_iter().map(|index| &request.agents[index]);
    Ok(agents
        .map(|agent| (agent.name.clone(), agent.model.clone()))
        .collect())
}

/// The calls of tools in a run so far, each with its agent's name.
pub async fn tool_calls(app: &App, run: &Run) -> Result<Vec<(String, CallRecord)>, ApiError> {
    #[derive(serde::Deserialize)]
    struct Told {
        agent: String,
        #[serde(flatten)]
        call: CallRecord,
    }
    let (mut calls, mut after) = (Vec::new(), 0);
    loop {
        let events = app.swarms.store.events(&run.id, after).await;
        let events = events.map_err(failed)?;
        let Some(last) = events.last() else {
            return Ok(calls);
        };
        after = last.number;
        let told = events.iter().filter(|event| event.name == "tool_call");
        let told = told.filter_map(|event| serde_json::from_str::<Told>(&event.data).ok());
        calls.extend(told.map(|told| (told.agent, told.call)));
    }
}

/// One of the caller's; 404 where it is not.
pub async fn own(app: &App, caller: &Caller, id: &str) -> Result<Run, ApiError> {
    if !is_id(id) {
        return Err(unknown());
    }
    let run = app.swarms.store.find(id).await.map_err(failed)?;
    run.filter(|run| run.user_id == caller.user_id)
        .ok_or_else(unknown)
}

/// Whether a swarm may have this id.
fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/event-stream"))
}
