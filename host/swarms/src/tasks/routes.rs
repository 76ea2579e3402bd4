//! `/api/agent/…` and `POST /internal/agent/execute`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRef, Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::gate::GatedUser;
use weir_identity::limits::key_among;
use weir_identity::roles::Permission;
use weir_identity::service::{ExecutorCaller, ServiceScope};
use weir_identity::{Caller, IdentityParts, handlers};
use weir_inference::idempotency::IdempotencyHeader;
use weir_request::context::RequestContext;
use weir_request::limits::data::DataLimits;
use weir_request::query::{self, ListQuery};
use weir_request::request::{BodyReader, JsonBody};
use weir_request::schemas;
use weir_request::schemas::parameters::{Idempotency, Limit};
use weir_storage::clock::Millis;
use weir_storage::ids;
use weir_storage::secrets::Secret;
use weir_tools::rules::bind;
use weir_tools::settings::{self, CredentialBinding, MethodName};
use weir_tools::task_credentials::{MAX_CREDENTIALS, NewCredential};

use super::TaskParts;
use super::bodies::{CredentialItem, TaskDefinition, TaskItem, TaskList};
use super::definition::{Definition, MAX_BYTES};
use super::start::{failed, start};
use super::store::{Cause, MAX_TASKS, Task, TaskStart, Trigger};
use crate::swarm::accept::{self, SwarmPayer};
use crate::swarm::record::SwarmRecord;
use crate::swarm::record_of;
use crate::swarm::request::SwarmCaller;
use crate::swarm::routes::REPLAYED;
use crate::swarm::store::SwarmRun;

/// Returns the endpoints of tasks, and the web app's functions for them.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    TaskParts: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new()
        .row(
            Access::User(Permission::ReadWork),
            handlers!(list_tasks, get_task),
        )
        .row(
            Access::User(Permission::UseModels),
            handlers!(create_task, replace_task, delete_task),
        )
        .row(
            Access::Gated,
            handlers!(trigger_execution, encrypt_credential, delete_credential),
        )
}

/// Returns an executor's endpoint for services.
pub fn executor_endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    TaskParts: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new().row(Access::Service, handlers!(execute_task))
}

/// The number of starts in a response.
const STARTS: i64 = 10;

/// The maximum bytes of a credential's name.
const MAX_NAME_BYTES: usize = 64;

/// The maximum bytes of a secret.
const MAX_SECRET_BYTES: usize = 4 << 10;

/// The maximum bytes of a message's id.
const MAX_MESSAGE_ID_BYTES: usize = 255;

/// The body of `trigger-execution`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TriggerRequest {
    /// The task's id.
    task_id: String,
}

/// The body of `encrypt-credential`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CredentialRequest {
    /// The task's id.
    task_id: String,
    /// Name of the credential for agents and policies.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_.-]+$")]
    name: String,
    /// The secret; no response shows it again.
    #[schema(max_length = 4096, pattern = "^[!-~]+$")]
    secret: String,
    /// Only origin that gets the credential, such as `https://api.example.com`.
    origin: String,
    /// Only methods that carry the credential; `GET` unless set.
    #[schema(value_type = Vec<schemas::Method>, min_items = 1)]
    #[serde(default = "settings::get")]
    methods: Vec<MethodName>,
    /// Only path prefix that gets the credential, compared by segments; `/` unless set.
    #[serde(default = "settings::slash")]
    path: String,
    /// Header that carries the credential; `authorization` unless set.
    #[serde(default = "settings::authorization")]
    header: String,
    /// Text before the credential in the header; `Bearer ` in `authorization` unless set.
    prefix: Option<String>,
}

/// The body of `delete-credential`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CredentialName {
    /// The task's id.
    task_id: String,
    /// The credential's name.
    name: String,
}

/// The body of `POST /internal/agent/execute`: a queue's message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QueueMessage)]
struct QueueMessage {
    /// The task's id.
    task_id: String,
    /// Cause of the start.
    #[schema(value_type = String, pattern = "^(manual|schedule|event)$")]
    trigger_type: Trigger,
    /// Id of the message; the `Idempotency-Key` unless set.
    #[schema(min_length = 1, max_length = 255)]
    message_id: Option<String>,
}

/// `POST /api/agent/tasks`: creates a task.
#[utoipa::path(
    post, path = "/api/agent/tasks", tag = "tasks",
    request_body = TaskDefinition,
    responses(
        (status = 201, body = TaskItem),
        (status = 400, description = "`INVALID_REQUEST`, `INVALID_MODEL`: `param` names the invalid field."),
        (status = 403, description = "`PLAN_NOT_ELIGIBLE`, `MODEL_NOT_ALLOWED`, `NO_PERMITTED_PROVIDER`, `INTEGRATION_NOT_ALLOWED`: more than the plan, the key or the operator allows."),
        (status = 429, description = "`TASK_LIMIT_REACHED`: a user has at most 100 tasks."),
    ),
)]
pub async fn create_task(
    State(tasks): State<TaskParts>,
    caller: Caller,
    context: RequestContext,
    body: JsonBody,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    DataLimits::refuse_asked(&context)?;
    let definition = read(&tasks, &caller, &body.bytes)?;
    let now = tasks.swarms.inference.ledger.now();
    let task = Task {
        id: ids::task_id(),
        parts: caller.parts(),
        user_id: caller.account.0,
        next_fire_at: next_fire(&definition, now)?,
        definition,
        created_at: now,
        updated_at: now,
    };
    let created = tasks.store.create(&task).await;
    if !created.map_err(|error| failed(error.into()))? {
        return Err(ApiError::new(
            ErrorCode::TaskLimitReached,
            format!("A user has at most {MAX_TASKS} tasks; delete one first."),
        )
        .with_no_retry());
    }
    Ok((StatusCode::CREATED, Json(in_full(&tasks, &task).await?)))
}

/// `GET /api/agent/tasks`: lists the caller's tasks, newest first.
#[utoipa::path(
    get, path = "/api/agent/tasks", tag = "tasks",
    params(Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page; the tasks are older.", pattern = "^task_[0-9a-f]{32}$", nullable = false)),
    responses((status = 200, body = TaskList)),
)]
pub async fn list_tasks(
    State(tasks): State<TaskParts>,
    caller: Caller,
    mut query: ListQuery,
) -> Result<Json<Value>, ApiError> {
    let limit = query.limit()?;
    let before = query.text("before")?;
    query.finish()?;
    if before.as_deref().is_some_and(|before| !is_id(before)) {
        return Err(ApiError::invalid_request("before", "It is a task's id."));
    }
    let listed = tasks
        .store
        .list(&caller.account.0, before.as_deref(), limit + 1);
    let mut listed = listed.await.map_err(failed)?;
    let next = query::cut(&mut listed, limit, |task| task.id.clone());
    let ids: Vec<_> = listed.iter().map(|task| &*task.id).collect();
    let starts = tasks.store.last_starts(&ids).await.map_err(failed)?;
    let runs = runs_of(&tasks, &starts).await?;
    let shown = listed.iter().map(|task| {
        let last = starts.iter().find(|start| start.task_id == task.id);
        let mut shown = outline(task);
        shown["last_run"] = json!(last.map(|start| show_start(start, &runs)));
        shown
    });
    let shown: Vec<_> = shown.collect();
    Ok(Json(json!({ "tasks": shown, "next": next })))
}

/// `GET /api/agent/tasks/{task_id}`: returns a task of the caller, with its last starts.
#[utoipa::path(
    get, path = "/api/agent/tasks/{task_id}", tag = "tasks",
    params(("task_id" = String, Path, description = "The task's id.")),
    responses(
        (status = 200, body = TaskItem),
        (status = 404, description = "`NOT_FOUND`: you have no task with this id."),
    ),
)]
pub async fn get_task(
    State(tasks): State<TaskParts>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let task = own(&tasks, &caller.account.0, &id).await?;
    Ok(Json(in_full(&tasks, &task).await?))
}

/// `PUT /api/agent/tasks/{task_id}`: replaces the definition of a task of the caller.
#[utoipa::path(
    put, path = "/api/agent/tasks/{task_id}", tag = "tasks",
    params(("task_id" = String, Path, description = "The task's id.")),
    request_body = TaskDefinition,
    responses(
        (status = 200, body = TaskItem),
        (status = 403, description = "`FORBIDDEN`: another member created it. `MISSING_SCOPE`: the key has the scope `inference`."),
        (status = 404, description = "`NOT_FOUND`: you have no task with this id."),
    ),
)]
pub async fn replace_task(
    State(tasks): State<TaskParts>,
    caller: Caller,
    context: RequestContext,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    DataLimits::refuse_asked(&context)?;
    let mut task = own(&tasks, &caller.account.0, &id).await?;
    caller.require_author(&task.parts)?;
    task.definition = read(&tasks, &caller, &body.bytes)?;
    // The new definition's key applies, regardless of the previous one.
    task.parts = caller.parts();
    let now = tasks.swarms.inference.ledger.now();
    (task.updated_at, task.next_fire_at) = (now, next_fire(&task.definition, now)?);
    let replaced = tasks.store.replace(&task).await;
    replaced.map_err(|error| failed(error.into()))?;
    Ok(Json(in_full(&tasks, &task).await?))
}

/// `DELETE /api/agent/tasks/{task_id}`: deletes a task of the caller. Its running swarms continue.
#[utoipa::path(
    delete, path = "/api/agent/tasks/{task_id}", tag = "tasks",
    params(("task_id" = String, Path, description = "The task's id.")),
    responses(
        (status = 204, description = "The task is deleted."),
        (status = 403, description = "`FORBIDDEN`: another member created it. `MISSING_SCOPE`: the key has the scope `inference`."),
        (status = 404, description = "`NOT_FOUND`: you have no task with this id."),
    ),
)]
pub async fn delete_task(
    State(tasks): State<TaskParts>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let task = own(&tasks, &caller.account.0, &id).await?;
    caller.require_author(&task.parts)?;
    let deleted = tasks.store.delete(&task.id).await;
    deleted.map_err(|error| failed(error.into()))?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/agent/trigger-execution`: starts a web user's task now, even if it is paused.
#[utoipa::path(
    post, path = "/api/agent/trigger-execution", tag = "tasks",
    params(Idempotency),
    request_body = TriggerRequest,
    responses(
        (status = 202, description = "The started swarm.", body = SwarmRecord),
        (status = 403, description = "`KEY_ENDED`, `PLAN_NOT_ELIGIBLE`, `MODEL_NOT_ALLOWED`, `NO_PERMITTED_PROVIDER`, `INTEGRATION_NOT_ALLOWED`: more than the plan, the key of the task or the operator allows."),
        (status = 404, description = "`NOT_FOUND`: you have no task with this id."),
        (status = 402, description = "`INSUFFICIENT_CREDITS`: the balance is below the estimated cost."),
        (status = 409, description = "`IDEMPOTENCY_ANSWER_NOT_KEPT`: the first start's result is not stored any more."),
        (status = 429, description = "`TASK_STARTED_TOO_SOON`: a task starts at most once a minute."),
    ),
)]
pub async fn trigger_execution(
    State(tasks): State<TaskParts>,
    key: IdempotencyHeader,
    gated: GatedUser,
) -> Result<Response, ApiError> {
    let asked: TriggerRequest = fields(&gated.body.bytes)?;
    let task = own_in_body(&tasks, &gated.user_id, &asked.task_id).await?;
    let cause = match key.key() {
        Some(key) => format!("key {key}"),
        None => format!("manual {}", ids::start_id()),
    };
    let cause = Cause {
        id: &cause,
        trigger: Trigger::Manual,
        slot: None,
    };
    Ok(started(start(&tasks, &task, cause).await?))
}

/// `POST /api/agent/encrypt-credential`: stores an encrypted secret for a web user's task; the agents' tools send it
/// only to its bound targets.
#[utoipa::path(
    post, path = "/api/agent/encrypt-credential", tag = "tasks",
    request_body = CredentialRequest,
    responses(
        (status = 201, description = "The credential is stored; no response shows the secret again.", body = CredentialItem),
        (status = 429, description = "`CREDENTIAL_LIMIT_REACHED`: a task has at most 20 credentials."),
        (status = 404, description = "`NOT_FOUND`: you have no task with this id."),
    ),
)]
pub async fn encrypt_credential(
    State(tasks): State<TaskParts>,
    gated: GatedUser,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let asked: CredentialRequest = fields(&gated.body.bytes)?;
    let task = own_in_body(&tasks, &gated.user_id, &asked.task_id).await?;
    let binding = CredentialBinding {
        origin: asked.origin,
        methods: asked.methods,
        path: asked.path,
        header: asked.header,
        prefix: asked.prefix,
    };
    let secret = Secret::new(asked.secret);
    check_credential(&asked.name, &binding, &secret)?;
    let new = NewCredential {
        user_id: &gated.user_id,
        task_id: &task.id,
        name: &asked.name,
        secret: &secret,
        binding: &binding,
        at: tasks.swarms.inference.ledger.now(),
    };
    let kept = tasks.credentials.keep(&new).await;
    if !kept.map_err(|error| failed(error.into()))? {
        return Err(ApiError::new(
            ErrorCode::CredentialLimitReached,
            format!("A task has at most {MAX_CREDENTIALS} credentials; delete one first."),
        )
        .with_no_retry());
    }
    let mut shown = json!(binding);
    shown["task_id"] = json!(task.id);
    shown["name"] = json!(asked.name);
    shown["created_at"] = json!(new.at.iso());
    Ok((StatusCode::CREATED, Json(shown)))
}

/// `POST /api/agent/delete-credential`: deletes a credential.
#[utoipa::path(
    post, path = "/api/agent/delete-credential", tag = "tasks",
    request_body = CredentialName,
    responses(
        (status = 204, description = "The credential is deleted."),
        (status = 404, description = "`NOT_FOUND`: you have no task with this id."),
    ),
)]
pub async fn delete_credential(
    State(tasks): State<TaskParts>,
    gated: GatedUser,
) -> Result<StatusCode, ApiError> {
    let asked: CredentialName = fields(&gated.body.bytes)?;
    let task = own_in_body(&tasks, &gated.user_id, &asked.task_id).await?;
    let deleted = tasks.credentials.delete(&task.id, &asked.name).await;
    match deleted.map_err(|error| failed(error.into()))? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::new(
            ErrorCode::NotFound,
            "The task has no credential with this name.",
        )
        .with_param("name")),
    }
}

/// Refuses a secret that cannot be sent, or that is too short to redact from responses. The error never repeats the
/// secret.
fn check_credential(
    name: &str,
    binding: &CredentialBinding,
    secret: &Secret,
) -> Result<(), ApiError> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(is_name) {
        let what = format!(
            "A name has 1 to {MAX_NAME_BYTES} letters, digits, dots, dashes and underscores."
        );
        return Err(ApiError::invalid_request("name", what));
    }
    let is_visible = secret.expose().bytes().all(|byte| byte.is_ascii_graphic());
    if secret.expose().len() > MAX_SECRET_BYTES || !is_visible {
        let what = format!(
            "A secret has at most {MAX_SECRET_BYTES} visible ASCII characters; put text before it into `prefix`."
        );
        return Err(ApiError::invalid_request("secret", what));
    }
    if binding.methods.is_empty() {
        return Err(ApiError::invalid_request(
            "methods",
            "Name at least one method.",
        ));
    }
    let credential = bind(name, binding, secret)
        .map_err(|(field, why)| ApiError::invalid_request(field, format!("`{field}`: {why}.")))?;
    match credential.is_sendable() {
        true => Ok(()),
        false => Err(ApiError::invalid_request(
            "header",
            "The header or the prefix is invalid.",
        )),
    }
}

/// `POST /internal/agent/execute`: starts a task for a queue's message; a repeated message starts nothing.
#[utoipa::path(
    post, path = "/internal/agent/execute", tag = "tasks",
    params(Idempotency),
    request_body = QueueMessage,
    responses(
        (status = 202, description = "The started swarm.", body = SwarmRecord),
        (status = 403, description = "`KEY_ENDED`, `PLAN_NOT_ELIGIBLE`, `MODEL_NOT_ALLOWED`, `NO_PERMITTED_PROVIDER`, `INTEGRATION_NOT_ALLOWED`: more than the plan, the key of the task or the operator allows."),
        (status = 404, description = "`UNKNOWN_TASK`: the task does not exist."),
        (status = 402, description = "`INSUFFICIENT_CREDITS`: the balance is below the estimated cost."),
        (status = 409, description = "`IDEMPOTENCY_ANSWER_NOT_KEPT`: the first start's result is not stored any more."),
        (status = 429, description = "`TASK_STARTED_TOO_SOON`: a task starts at most once a minute."),
    ),
)]
pub async fn execute_task(
    State(tasks): State<TaskParts>,
    service: ExecutorCaller,
    context: RequestContext,
    key: IdempotencyHeader,
    body: JsonBody,
) -> Result<Response, ApiError> {
    service.0.require(ServiceScope::SwarmRun)?;
    let message: QueueMessage = fields(&body.bytes)?;
    let id = match (&message.message_id, key.key()) {
        (Some(id), _) => id.as_str(),
        (None, Some(key)) => key,
        (None, None) => {
            return Err(ApiError::invalid_request(
                "message_id",
                "Send the message's id, here or in the Idempotency-Key header, so that a repeated message does not start the task twice.",
            ));
        }
    };
    if !(1..=MAX_MESSAGE_ID_BYTES).contains(&id.len()) || id.contains(char::is_control) {
        let what = format!(
            "It is a text of 1 to {MAX_MESSAGE_ID_BYTES} bytes without control characters."
        );
        return Err(ApiError::invalid_request("message_id", what));
    }
    let task = find(&tasks, &message.task_id).await?.ok_or_else(|| {
        let what = "No task has this id.";
        ApiError::new(ErrorCode::UnknownTask, what)
            .with_param("task_id")
            .with_no_retry()
    })?;
    context.note_user(&task.user_id);
    let cause = Cause {
        id: &format!("message {id}"),
        trigger: message.trigger_type,
        slot: None,
    };
    Ok(started(start(&tasks, &task, cause).await?))
}

/// Reads a definition, and checks everything except its cost.
fn read(tasks: &TaskParts, caller: &Caller, body: &[u8]) -> Result<Definition, ApiError> {
    if body.len() > MAX_BYTES {
        return Err(ApiError::new(
            ErrorCode::PayloadTooLarge,
            format!("A task has at most {MAX_BYTES} bytes."),
        ));
    }
    let definition = Definition::read(body)?;
    let (request, _) = accept::read(&tasks.swarms, &definition.swarm_body(), SwarmCaller::User)?;
    accept::check(&tasks.swarms, &SwarmPayer::of(caller), &request)?;
    Ok(definition)
}

/// Returns the next time of a task's schedule; `None` while it is paused.
fn next_fire(definition: &Definition, now: Millis) -> Result<Option<Millis>, ApiError> {
    match &definition.schedule {
        Some(schedule) if !definition.paused => Ok(schedule.parse()?.next_after(now)),
        _ => Ok(None),
    }
}

fn started((run, is_repeat): (SwarmRun, bool)) -> Response {
    let mut response = (StatusCode::ACCEPTED, Json(record_of(&run))).into_response();
    if is_repeat {
        let replayed = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, replayed);
    }
    response
}

/// Returns a task with its last starts.
async fn in_full(tasks: &TaskParts, task: &Task) -> Result<Value, ApiError> {
    let starts = tasks.store.starts(&task.id, STARTS).await;
    let starts = starts.map_err(failed)?;
    let runs = runs_of(tasks, &starts).await?;
    let shown: Vec<_> = starts
        .iter()
        .map(|start| show_start(start, &runs))
        .collect();
    let mut full = outline(task);
    full["last_run"] = json!(shown.first());
    full["runs"] = json!(shown);
    let credentials = tasks.credentials.list(&task.id).await;
    full["credentials"] = json!(credentials.map_err(|error| failed(error.into()))?);
    Ok(full)
}

/// Returns a task as its owner wrote it, with the next time of its schedule.
fn outline(task: &Task) -> Value {
    let definition = &task.definition;
    let mut shown = json!(definition.swarm);
    shown["task_id"] = json!(task.id);
    shown["name"] = json!(definition.name);
    shown["key_id"] = json!(key_among(&task.parts));
    shown["schedule"] = json!(definition.schedule);
    shown["paused"] = json!(definition.paused);
    shown["next_fire_at"] = json!(task.next_fire_at.map(Millis::iso));
    shown["created_at"] = json!(task.created_at.iso());
    shown["updated_at"] = json!(task.updated_at.iso());
    shown
}

/// Returns the stored runs of some starts.
async fn runs_of(
    tasks: &TaskParts,
    starts: &[TaskStart],
) -> Result<BTreeMap<String, SwarmRun>, ApiError> {
    let ids = starts
        .iter()
        .filter_map(|start| start.execution_id.as_deref());
    let ids: Vec<_> = ids.collect();
    let runs = tasks.swarms.store.find_all(&ids).await;
    let runs = runs.map_err(accept::failed)?.into_iter();
    Ok(runs.map(|run| (run.id.clone(), run)).collect())
}

fn show_start(start: &TaskStart, runs: &BTreeMap<String, SwarmRun>) -> Value {
    let run = start.execution_id.as_ref().and_then(|id| runs.get(id));
    let status = match (run, &start.execution_id, &start.refusal) {
        (Some(run), _, _) => Some(run.status.name()),
        (None, Some(_), _) => None,
        (None, None, Some(_)) => Some("refused"),
        (None, None, None) => Some("starting"),
    };
    json!({
        "trigger_type": start.trigger,
        "scheduled_for": start.slot.map(Millis::iso),
        "started_at": start.started_at.iso(),
        "execution_id": start.execution_id,
        "status": status,
        "total_credits": run.map(|run| run.credits),
        "error": start.refusal,
    })
}

async fn find(tasks: &TaskParts, id: &str) -> Result<Option<Task>, ApiError> {
    match is_id(id) {
        true => tasks.store.find(id).await.map_err(failed),
        false => Ok(None),
    }
}

async fn own(tasks: &TaskParts, user_id: &str, id: &str) -> Result<Task, ApiError> {
    let task = find(tasks, id).await?;
    task.filter(|task| task.user_id == user_id)
        .ok_or_else(|| ApiError::new(ErrorCode::NotFound, "You have no task with this id."))
}

/// Returns the caller's task that a body names.
async fn own_in_body(tasks: &TaskParts, user_id: &str, id: &str) -> Result<Task, ApiError> {
    let task = own(tasks, user_id, id).await;
    task.map_err(|error| match error.status() {
        StatusCode::NOT_FOUND => error.with_param("task_id"),
        _ => error,
    })
}

/// Parses the fields of a body. The error does not repeat a wrong value, because it may be a misplaced secret.
fn fields<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        let field = if field == "." { String::new() } else { field };
        let what = "The body is invalid: a field is missing, unknown, or of the wrong type.";
        ApiError::invalid_request(field, what)
    })
}

/// Whether a text has the form of a task's id.
fn is_id(id: &str) -> bool {
    let digits = id.strip_prefix("task_");
    digits.is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}
