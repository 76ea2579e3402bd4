//! `/swarms` and `POST /internal/agent/swarm`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRef, Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::endpoints::{Access, Endpoints, Tenancy};
use weir_identity::roles::Permission;
use weir_identity::service::{ExecutorCaller, ServiceScope};
use weir_identity::{Caller, IdentityParts, handlers};
use weir_inference::idempotency::IdempotencyHeader;
use weir_ledger::AccountId;
use weir_request::context::RequestContext;
use weir_request::limits::data::{CallerDataLimits, DataLimits};
use weir_request::query::{self, ListQuery};
use weir_request::request::{BodyReader, JsonBody};
use weir_request::schemas::parameters::{Idempotency, Limit};
use weir_request::schemas::vendors::ServerSentEvent;
use weir_tools::CallRecord;

use super::accept::{SwarmPayer, accept, failed, find_repeat, read, unknown};
use super::bodies::{ServiceSwarmRequest, SwarmDetails, SwarmList, TemplateList};
use super::order::order;
use super::record::{AgentResult, SwarmRecord};
use super::request::SwarmCaller;
use super::resume::{__path_resume_swarm, resume_swarm};
use super::store::SwarmRun;
use super::templates::TEMPLATES;
use super::{Swarms, record_of, stream};

/// Returns the endpoints of swarms.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<Swarms>: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new()
        .row(
            Access::User(Permission::ReadWork),
            handlers!(list_swarms, get_swarm, stream_events),
        )
        .row(
            Access::User(Permission::UseModels),
            handlers!(create_swarm, cancel_swarm, resume_swarm, delete_swarm),
        )
        .row(
            Access::User(Permission::Belong),
            handlers!(list_templates).tenancy(Tenancy::Common),
        )
}

/// Returns an executor's endpoint for services.
pub fn executor_endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<Swarms>: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new().row(Access::Service, handlers!(run_swarm))
}

/// The poll interval of a waiting service's run.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The header of a replayed response.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// `POST /swarms`: accepts a swarm. The response comes at once, or is the event stream if the client accepts one.
#[utoipa::path(
    post, path = "/swarms", tag = "swarms",
    params(Idempotency),
    request_body = super::request::SwarmRequestBody,
    responses(
        (status = 202, description = "The swarm is accepted.", body = SwarmRecord),
        (status = 200, description = "The swarm's events, if the client accepts an event stream.", body = ServerSentEvent, content_type = "text/event-stream"),
        (status = 400, description = "`INVALID_REQUEST`, `INVALID_MODEL`: `param` names the invalid field."),
        (status = 402, description = "`INSUFFICIENT_CREDITS`: the balance is below the estimated cost, or the budget is below the minimum price of the first call."),
        (status = 403, description = "`PLAN_NOT_ELIGIBLE`, `MODEL_NOT_ALLOWED`, `NO_PERMITTED_PROVIDER`, `INTEGRATION_NOT_ALLOWED`: more than the plan, the key or the operator allows."),
        (status = 409, description = "`IDEMPOTENCY_KEY_REUSED`, `IDEMPOTENCY_IN_PROGRESS`, `IDEMPOTENCY_ANSWER_NOT_KEPT`: an earlier request used the key."),
        (status = 429, description = "`TOO_MANY_SWARMS`: the user has 100 queued or running swarms. `SWARM_DATA_LIMIT_REACHED`: the user's swarms have 1 GiB of data; delete finished swarms."),
    ),
)]
pub async fn create_swarm(
    State(swarms): State<Arc<Swarms>>,
    caller: Caller,
    context: RequestContext,
    key: IdempotencyHeader,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, ApiError> {
    DataLimits::refuse_asked(&context)?;
    let key = key.with_body(&body.bytes);
    let payer = SwarmPayer::of(&caller);
    let claim = key.as_ref().map(|key| key.claim());
    // This check comes first: a repeated request gets its response even if tools, models, plan or credits have changed.
    let repeat = find_repeat(&swarms, payer.account, claim).await?;
    let (run, is_repeat) = match repeat {
        Some(run) => (run, true),
        None => {
            let (mut request, _) = read(&swarms, &body.bytes, SwarmCaller::User)?;
            request.trace_parent = context.trace_onward().map(|trace| trace.to_string());
            accept(&swarms, &payer, &request, claim).await?
        }
    };
    let mut response = if wants_events(&headers) {
        stream::events(swarms, run.id, 0)
    } else {
        (StatusCode::ACCEPTED, Json(record_of(&run))).into_response()
    };
    if is_repeat {
        let replayed = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, replayed);
    }
    Ok(response)
}

/// `GET /swarms`: lists the caller's swarms, newest first.
#[utoipa::path(
    get, path = "/swarms", tag = "swarms",
    params(Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page; the swarms are older.", pattern = "^[0-9a-f]{32}$", nullable = false)),
    responses((status = 200, body = SwarmList)),
)]
pub async fn list_swarms(
    State(swarms): State<Arc<Swarms>>,
    caller: Caller,
    query: ListQuery,
) -> Result<Json<Value>, ApiError> {
    let (swarms, next) = list(&swarms, &caller, query).await?;
    Ok(Json(json!({ "swarms": swarms, "next": next })))
}

/// Returns a page of the caller's swarms, and the start of the next page.
pub async fn list(
    swarms: &Swarms,
    caller: &Caller,
    mut query: ListQuery,
) -> Result<(Vec<SwarmRecord>, Option<String>), ApiError> {
    let limit = query.limit()?;
    let before = query.text("before")?;
    query.finish()?;
    if before.as_deref().is_some_and(|before| !is_id(before)) {
        return Err(ApiError::invalid_request("before", "It is a swarm's id."));
    }
    let runs = swarms
        .store
        .list(&caller.account.0, before.as_deref(), limit + 1);
    let mut records: Vec<SwarmRecord> = runs.await.map_err(failed)?.iter().map(record_of).collect();
    let next = query::cut(&mut records, limit, |record| record.execution_id.clone());
    Ok((records, next))
}

/// `GET /swarms/templates`: lists predefined swarms.
#[utoipa::path(
    get, path = "/swarms/templates", tag = "swarms",
    responses((status = 200, body = TemplateList)),
)]
pub async fn list_templates(_: Caller) -> Json<Value> {
    Json(json!({ "templates": TEMPLATES }))
}

/// `GET /swarms/{execution_id}`: returns a swarm of the caller, with its agents' results.
#[utoipa::path(
    get, path = "/swarms/{execution_id}", tag = "swarms",
    params(("execution_id" = String, Path, description = "The swarm's id.")),
    responses(
        (status = 200, body = SwarmDetails),
        (status = 404, description = "`NOT_FOUND`: you have no swarm with this id."),
    ),
)]
pub async fn get_swarm(
    State(swarms): State<Arc<Swarms>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let run = own(&swarms, &caller, &id).await?;
    Ok(Json(in_full(&swarms, &run).await?))
}

/// `POST /swarms/{execution_id}/cancel`: cancels a swarm of the caller within two seconds. A model call under way is dropped,
/// and charged as for a client that disconnects. Finished swarms stay unchanged.
#[utoipa::path(
    post, path = "/swarms/{execution_id}/cancel", tag = "swarms",
    params(("execution_id" = String, Path, description = "The swarm's id.")),
    responses(
        (status = 204, description = "The swarm ends within two seconds, or is over."),
        (status = 403, description = "`FORBIDDEN`: another member created it. `MISSING_SCOPE`: the key has the scope `inference`."),
        (status = 404, description = "`NOT_FOUND`: you have no swarm with this id."),
    ),
)]
pub async fn cancel_swarm(
    State(swarms): State<Arc<Swarms>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    cancel(&swarms, &caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /swarms/{execution_id}`: cancels a running swarm of the caller, or deletes a finished one.
#[utoipa::path(
    delete, path = "/swarms/{execution_id}", tag = "swarms",
    params(("execution_id" = String, Path, description = "The swarm's id.")),
    responses(
        (status = 204, description = "The swarm ends within two seconds; if it was over, it is deleted."),
        (status = 403, description = "`FORBIDDEN`: another member created it. `MISSING_SCOPE`: the key has the scope `inference`."),
        (status = 404, description = "`NOT_FOUND`: you have no swarm with this id."),
    ),
)]
pub async fn delete_swarm(
    State(swarms): State<Arc<Swarms>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let run = own(&swarms, &caller, &id).await?;
    caller.require_author(&run.parts)?;
    let store = &swarms.store;
    let done = match run.status.is_over() {
        true => store.delete(&run.id).await.map(drop),
        false => {
            let cancelled = store.cancel(&run.id, swarms.inference.ledger.now());
            return cancelled
                .await
                .map_err(failed)
                .map(|_| StatusCode::NO_CONTENT);
        }
    };
    done.map_err(|error| failed(error.into()))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancels a swarm of the caller.
pub async fn cancel(swarms: &Swarms, caller: &Caller, id: &str) -> Result<(), ApiError> {
    let run = own(swarms, caller, id).await?;
    caller.require_author(&run.parts)?;
    let now = swarms.inference.ledger.now();
    let cancelled = swarms.store.cancel(&run.id, now).await;
    swarms.deltas.tell_written(&run.id);
    cancelled.map(drop).map_err(failed)
}

/// `GET /swarms/{execution_id}/events`: streams the events of a swarm of the caller, from the start or after an event.
#[utoipa::path(
    get, path = "/swarms/{execution_id}/events", tag = "swarms",
    params(
        ("execution_id" = String, Path, description = "The swarm's id."),
        ("after" = Option<i64>, Query, description = "Events after this one; all unless set.", minimum = 0, nullable = false),
        ("Last-Event-ID" = Option<i64>, Header, description = "Like `after`; clients that reconnect send it.", minimum = 0, nullable = false),
    ),
    responses(
        (status = 200, body = ServerSentEvent, content_type = "text/event-stream"),
        (status = 404, description = "`NOT_FOUND`: you have no swarm with this id."),
    ),
)]
pub async fn stream_events(
    State(swarms): State<Arc<Swarms>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let after = query.number("after")?;
    query.finish()?;
    // A client that reconnects sends the header, and its original query, which the header overrides.
    let after = match headers.get("last-event-id") {
        Some(last) => {
            let last = last.to_str().ok().and_then(|last| last.parse().ok());
            last.filter(|last: &i64| *last >= 0).ok_or_else(|| {
                let what = "It is the id of an event: an integer.";
                ApiError::invalid_request("Last-Event-ID", what)
            })?
        }
        None => after.unwrap_or(0),
    };
    let run = own(&swarms, &caller, &id).await?;
    Ok(stream::events(swarms, run.id, after))
}

/// `POST /internal/agent/swarm`: runs a swarm for the user in a service's request, and responds at its end.
#[utoipa::path(
    post, path = "/internal/agent/swarm", tag = "swarms",
    params(Idempotency),
    request_body = ServiceSwarmRequest,
    responses(
        (status = 200, body = SwarmDetails),
        (status = 400, description = "`INVALID_REQUEST`, `INVALID_MODEL`: `param` names the invalid field."),
        (status = 402, description = "`INSUFFICIENT_CREDITS`: the balance is below the estimated cost, or the budget is below the minimum price of the first call."),
        (status = 403, description = "`PLAN_NOT_ELIGIBLE`, `MODEL_NOT_ALLOWED`, `NO_PERMITTED_PROVIDER`, `INTEGRATION_NOT_ALLOWED`: more than the plan, the key or the operator allows."),
        (status = 409, description = "`IDEMPOTENCY_KEY_REUSED`, `IDEMPOTENCY_IN_PROGRESS`, `IDEMPOTENCY_ANSWER_NOT_KEPT`: an earlier request used the key."),
        (status = 429, description = "`TOO_MANY_SWARMS`: the user has 100 queued or running swarms. `SWARM_DATA_LIMIT_REACHED`: the user's swarms have 1 GiB of data; delete finished swarms."),
        (status = 404, description = "`UNKNOWN_USER`: the user does not exist."),
    ),
)]
pub async fn run_swarm(
    State(swarms): State<Arc<Swarms>>,
    service: ExecutorCaller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    service.0.require(ServiceScope::SwarmRun)?;
    DataLimits::refuse_asked(&context)?;
    let (mut request, named) = read(&swarms, &body.bytes, SwarmCaller::Service)?;
    request.trace_parent = context.trace_onward().map(|trace| trace.to_string());
    let Some(named) = named else {
        unreachable!("a service names who pays");
    };
    let account_plan = weir_identity::users::require(&swarms.inference, &named.user_id).await?;
    context.note_user(&named.user_id);
    let account = AccountId(named.user_id);
    let payer = SwarmPayer {
        account: &account,
        account_plan,
        plan: named.plan,
        parts: Vec::new(),
        models: &[],
        data_limits: CallerDataLimits::default(),
    };
    let key = key.with_body(&body.bytes);
    let claim = key.as_ref().map(|key| key.claim());
    let run = match find_repeat(&swarms, payer.account, claim).await? {
        Some(run) => run,
        None => accept(&swarms, &payer, &request, claim).await?.0,
    };
    let mut changes = swarms.deltas.watch(&run.id);
    loop {
        let run = swarms.store.find(&run.id).await.map_err(failed)?;
        let run = run.ok_or_else(unknown)?;
        if run.status.is_over() {
            return Ok(Json(in_full(&swarms, &run).await?));
        }
        tokio::select! {
            () = changes.written() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = swarms.draining.cancelled() => {
                return Err(ApiError::new(
                    ErrorCode::ShuttingDown,
                    "This executor is stopping; another one resumes the swarm.",
                )
                .with_detail("execution_id", run.id));
            }
        }
    }
}

/// Returns a run with its agents' results.
async fn in_full(swarms: &Swarms, run: &SwarmRun) -> Result<Value, ApiError> {
    let mut record = json!(record_of(run));
    record["agents"] = json!(results(swarms, run).await?);
    Ok(record)
}

/// Returns the results of a run's finished agents.
pub async fn results(swarms: &Swarms, run: &SwarmRun) -> Result<Vec<AgentResult>, ApiError> {
    let agents = swarms.store.agents(&run.id).await.map_err(failed)?;
    Ok(agents
        .into_iter()
        .filter_map(|agent| agent.result)
        .collect())
}

/// Returns the agents of a run in execution order, each with its model.
pub async fn agents_of(swarms: &Swarms, run: &SwarmRun) -> Result<Vec<(String, String)>, ApiError> {
    let request = swarms.store.request(&run.id).await.map_err(failed)?;
    let as_written = || (0..request.agents.len()).collect();
    // Circular dependencies have failed the swarm.
    let order = order(&request.agents).unwrap_or_else(|_| as_written());
    let agents = order.into_iter().map(|index| &request.agents[index]);
    Ok(agents
        .map(|agent| (agent.name.clone(), agent.model.clone()))
        .collect())
}

/// Returns the tool calls of a run so far, each with its agent's name.
pub async fn tool_calls(
    swarms: &Swarms,
    run: &SwarmRun,
) -> Result<Vec<(String, CallRecord)>, ApiError> {
    #[derive(serde::Deserialize)]
    struct ToolCallEvent {
        agent: String,
        #[serde(flatten)]
        call: CallRecord,
    }
    let (mut calls, mut after) = (Vec::new(), 0);
    loop {
        let events = swarms.store.events(&run.id, after).await;
        let events = events.map_err(failed)?;
        let Some(last) = events.last() else {
            return Ok(calls);
        };
        after = last.number;
        let told = events.iter().filter(|event| event.name == "tool_call");
        let told = told.filter_map(|event| serde_json::from_str::<ToolCallEvent>(&event.data).ok());
        calls.extend(told.map(|told| (told.agent, told.call)));
    }
}

/// Returns a swarm of the caller; 404 if the caller has no such swarm.
pub async fn own(swarms: &Swarms, caller: &Caller, id: &str) -> Result<SwarmRun, ApiError> {
    if !is_id(id) {
        return Err(unknown());
    }
    let run = swarms.store.find(id).await.map_err(failed)?;
    run.filter(|run| run.user_id == caller.account.0)
        .ok_or_else(unknown)
}

/// Whether a text has the form of a swarm's id.
fn is_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/event-stream"))
}
