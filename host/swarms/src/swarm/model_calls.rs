//! `POST /internal/agent/code`: models for agents, called by executors and other services.

use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::response::Response;
use http::HeaderMap;
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_dialects::{self as dialect, ChatCall};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::limits::{RequestLimits, key_among};
use weir_identity::model_grant::{ModelGrant, find_grant};
use weir_identity::part_rates::PartRates;
use weir_identity::service::{ServiceCaller, ServiceScope};
use weir_identity::{IdentityParts, handlers, store, users};
use weir_inference::Customer;
use weir_inference::deltas::{DeltaPublisher, ModelStep, StepCall};
use weir_inference::idempotency::{IdempotencyHeader, IdempotentRequest};
use weir_ledger::{AccountId, BudgetPart, Payer, RequestSource};
use weir_request::context::RequestContext;
use weir_request::request::{BodyReader, JsonBody};
use weir_request::schemas::parameters::Idempotency;
use weir_request::schemas::vendors::{AgentCompletionRequest, ChatCompletion, ChatStreamEvent};

use super::Swarms;
use super::model::FENCE;
use super::store::SwarmRun;

/// Returns the services' endpoint of model calls.
pub fn endpoints<S>() -> Endpoints<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<Swarms>: FromRef<S>,
    Arc<IdentityParts>: FromRef<S>,
    BodyReader: FromRef<S>,
{
    Endpoints::new().row(Access::Service, handlers!(create_agent_completion))
}

/// The maximum bytes of an id in a service's request.
const MAX_ID_BYTES: usize = 256;

/// `POST /internal/agent/code`: like `/code`, for the user in the body's `user_id` and the task in its `task_id`, if
/// any; or for the swarm in its `execution_id`, with the swarm's user, task and budget.
#[utoipa::path(
    post, path = "/internal/agent/code", tag = "models",
    params(Idempotency),
    request_body = AgentCompletionRequest,
    responses(
        (status = 200, content((ChatCompletion = "application/json"), (ChatStreamEvent = "text/event-stream"))),
    ),
)]
pub async fn create_agent_completion(
    State(swarms): State<Arc<Swarms>>,
    service: ServiceCaller,
    context: RequestContext,
    key: IdempotencyHeader,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, ApiError> {
    context.note_model_call();
    service.require(ServiceScope::ModelCall)?;
    let mut call = dialect::read_own(&body.bytes)?;
    call.needs_tools = true;
    let mut key = key.with_body(&body.bytes);
    let mut called = None;
    let (payer, grant) = match take_id(&mut call, "execution_id")? {
        Some(id) => {
            let step = take_step(&mut call)?;
            let run = find_run(&swarms, &id, &headers).await?;
            let deltas = &swarms.deltas;
            let publisher = step.and_then(|step| deltas.publisher(&run.id, run.last_event, step));
            called = Some(watched_call(&swarms, &run.id, publisher));
            key = key.map(IdempotentRequest::keeping_long_answers);
            let grant = grant_of(&swarms, &run).await?;
            (payer_of(run), grant)
        }
        None => {
            let payer = take_payer(&mut call)?;
            let plan = users::require(&swarms.inference, &payer.account.0).await?;
            let limits = RequestLimits {
                account: payer.account.clone(),
                plan,
            };
            let grant = ModelGrant {
                plan,
                models: Vec::new(),
                limits,
            };
            (payer, grant)
        }
    };
    let member = payer.parts.iter().find_map(|part| match part {
        BudgetPart::Member(user_id) => Some(&**user_id),
        _ => None,
    });
    context.note_user(member.unwrap_or(&payer.account.0));
    let (database, key_id) = (&swarms.inference.database, key_among(&payer.parts));
    context.note_payer(&payer.account.0, key_id, None);
    let found = store::find_options(database, &payer.account.0, key_id).await;
    let options =
        found.map_err(|error| ApiError::of_database(&error, "about a key and its account"))?;
    context.log_content(options.content_log);
    // The account is known only after the body.
    let inference = &swarms.inference;
    let ModelGrant {
        plan,
        models,
        limits,
    } = grant;
    let turn = (inference.admission).enter(&limits.account, limits.plan);
    let turn = turn.await?;
    let (step, watch) = called.unzip();
    let held = (turn, body.room, watch);
    let customer = Customer {
        session_owner: payer.account.clone(),
        rates: PartRates::default(),
        filter_options: options.filter_options,
        data_limits: options.data_limits,
        payer,
        plan,
        models,
    };
    weir_inference::serve(inference, held, customer, context, call.into(), key, step).await
}

/// Takes the payer and the task out of a service's request. The dialect does not know these fields.
fn take_payer(call: &mut ChatCall) -> Result<Payer, ApiError> {
    let (user_id, task_id) = (take_id(call, "user_id")?, take_id(call, "task_id")?);
    let user_id = user_id.ok_or_else(|| {
        ApiError::invalid_request("user_id", "The id of the paying user is missing.")
    })?;
    Ok(Payer {
        account: AccountId(user_id),
        source: RequestSource::Agent,
        source_id: task_id,
        parts: Vec::new(),
        most: None,
    })
}

/// Returns the swarm of a call; the stored record names the payer, and the call names only the claim.
async fn find_run(swarms: &Swarms, id: &str, headers: &HeaderMap) -> Result<SwarmRun, ApiError> {
    let run = swarms.store.find(id).await.map_err(|error| {
        tracing::error!(%error, "reading a swarm");
        ApiError::store_unavailable()
    })?;
    let run = run.ok_or_else(|| {
        ApiError::new(ErrorCode::UnknownSwarm, "The swarm does not exist.")
            .with_param("execution_id")
    })?;
    let fence = headers.get(FENCE).and_then(|fence| fence.to_str().ok());
    if fence.and_then(|fence| fence.parse().ok()) != Some(run.fence) || run.status.is_over() {
        return Err(ApiError::new(
            ErrorCode::SwarmFenced,
            "Another executor owns this swarm, or the swarm is over.",
        )
        .with_param(FENCE));
    }
    Ok(run)
}

/// Returns the current rights of a swarm's principal. A filter may route a call to another model than the one checked at
/// acceptance, and the principal may have lost their rights since the executor's check.
async fn grant_of(swarms: &Swarms, run: &SwarmRun) -> Result<ModelGrant, ApiError> {
    let core = &swarms.inference;
    let found = find_grant(&core.database, &run.user_id, &run.parts, core.clock.now()).await;
    let grant = found.map_err(|error| ApiError::of_database(&error, "about a swarm's user"))?;
    Ok(grant?)
}

/// Returns a swarm's call, and the guard of the task that watches the swarm during the call.
fn watched_call(
    swarms: &Arc<Swarms>,
    run_id: &str,
    publisher: Option<DeltaPublisher>,
) -> (StepCall, DropGuard) {
    let (over, done) = (CancellationToken::new(), CancellationToken::new());
    let (swarms, run_id) = (swarms.clone(), run_id.to_owned());
    let (ended, is_done) = (over.clone(), done.clone());
    tokio::spawn(async move {
        let until_over = swarms.store.until_over(&run_id, &swarms.inference.ledger);
        if is_done.run_until_cancelled(until_over).await.is_some() {
            ended.cancel();
        }
    });
    (StepCall { publisher, over }, done.drop_guard())
}

/// Returns the payer of a swarm's call. A swarm has one call at a time, so that all that its other calls have cost is known.
fn payer_of(run: SwarmRun) -> Payer {
    Payer {
        most: Some(run.budget.saturating_sub(run.credits)),
        source_id: Some(run.task_id.unwrap_or(run.id)),
        parts: run.parts,
        account: AccountId(run.user_id),
        source: RequestSource::Agent,
    }
}

/// Takes the step out of a swarm's call, so that listeners of the swarm receive the model's output.
fn take_step(call: &mut ChatCall) -> Result<Option<ModelStep>, ApiError> {
    let Some(json) = take_field(call, "step") else {
        return Ok(None);
    };
    let step = serde_json::from_str(&json).map(Some);
    step.map_err(|_| {
        let what = "A step is an object of `agent`, `number` and `iteration`.";
        ApiError::invalid_request("step", what)
    })
}

/// Takes an id out of a service's request. The dialect does not know this field.
fn take_id(call: &mut ChatCall, name: &str) -> Result<Option<String>, ApiError> {
    let Some(json) = take_field(call, name) else {
        return Ok(None);
    };
    let id = serde_json::from_str::<String>(&json).ok();
    let is_legal =
        |id: &String| (1..=MAX_ID_BYTES).contains(&id.len()) && !id.contains(char::is_control);
    id.filter(is_legal).map(Some).ok_or_else(|| {
        ApiError::invalid_request(
            name,
            format!("An id is a text of 1 to {MAX_ID_BYTES} bytes without control characters."),
        )
    })
}

fn take_field(call: &mut ChatCall, name: &str) -> Option<String> {
    let fields = &mut call.request.extra;
    let index = fields.iter().position(|(field, _)| field == name)?;
    Some(fields.remove(index).1)
}
