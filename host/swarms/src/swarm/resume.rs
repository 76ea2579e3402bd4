//! `POST /swarms/{execution_id}/resume`: a swarm that stopped goes on from the agent at which it stopped.
//!
//! Everything that was done stays done and paid: finished agents, answered calls and tool calls. The call at which the swarm stopped is made
//! again, with a new key, unless its answer is complete.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::Caller;
use weir_request::json::from_json;
use weir_request::request::JsonBody;
use weir_storage::clock::Millis;

use super::accept::{SwarmPayer, check, failed, insufficient, too_many, unknown};
use super::record::{SwarmRecord, SwarmStatus};
use super::request;
use super::routes::own;
use super::store::{CallPrice, ResumeResult, Resumption};
use super::unpriced::{self, CallState};
use super::{Swarms, record_of, run};

/// How a swarm goes on.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResumeRequest {
    /// Maximum cost of the swarm, including its cost until now; as before unless set.
    #[schema(minimum = 1)]
    max_total_credits: Option<f64>,
}

/// `POST /swarms/{execution_id}/resume`: lets a swarm of the caller that is `partial`, `failed` or `cancelled` go on from the agent at
/// which it stopped, with a higher budget if the request has one. Everything that was done stays done. Its events go on, and end with
/// another `swarm_done`.
#[utoipa::path(
    post, path = "/swarms/{execution_id}/resume", tag = "swarms",
    params(("execution_id" = String, Path, description = "The swarm's id.")),
    request_body = ResumeRequest,
    responses(
        (status = 202, description = "The swarm waits for an executor.", body = SwarmRecord),
        (status = 400, description = "`INVALID_REQUEST`: `param` names the invalid field."),
        (status = 402, description = "`INSUFFICIENT_CREDITS`: the swarm has spent its budget; a higher `max_total_credits` lets it go on."),
        (status = 403, description = "`PLAN_NOT_ELIGIBLE`: the plan has no swarms. `FORBIDDEN`: another member created it. `MISSING_SCOPE`: the key has the scope `inference`."),
        (status = 404, description = "`NOT_FOUND`: you have no swarm with this id."),
        (status = 409, description = "`NOT_POSSIBLE`: the swarm is running or completed, a task started it, or its last call is still being charged."),
        (status = 429, description = "`TOO_MANY_SWARMS`: the user has 100 queued or running swarms."),
    ),
)]
pub async fn resume_swarm(
    State(swarms): State<Arc<Swarms>>,
    caller: Caller,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<(StatusCode, Json<SwarmRecord>), ApiError> {
    let asked = match body.bytes.is_empty() {
        true => ResumeRequest::default(),
        false => from_json(&body.bytes)?,
    };
    let run = own(&swarms, &caller, &id).await?;
    caller.require_author(&run.parts)?;
    if !matches!(
        run.status,
        SwarmStatus::Partial | SwarmStatus::Failed | SwarmStatus::Cancelled
    ) {
        let what = format!("The swarm is {}.", run.status.name());
        return Err(not_possible(what));
    }
    let asked_for = swarms.store.request(&run.id).await.map_err(failed)?;
    if asked_for.from_task {
        let what = "A task has started the swarm; start the task again.";
        return Err(not_possible(what));
    }
    // The caller's key, plan and limits must allow the rest of it, too.
    let prices = check(&swarms, &SwarmPayer::of(&caller), &asked_for)?;
    let budget = match asked.max_total_credits {
        Some(_) => request::budget(asked.max_total_credits)?.min(prices.most()),
        None => run.budget,
    };
    for call in (swarms.store.unpriced_of(&run.id).await).map_err(|error| failed(error.into()))? {
        let ledger = &swarms.inference.ledger;
        let price = match unpriced::find(ledger, &call)
            .await
            .map_err(|error| failed(error.into()))?
        {
            CallState::UnderWay => {
                let what = "The last call of the swarm is still being charged; retry in a moment.";
                return Err(not_possible(what).with_retry_after(Duration::from_secs(1)));
            }
            CallState::Charged(price) => price,
            CallState::Unknown => CallPrice::default(),
        };
        let priced = swarms.store.price(&call, price, ledger.now()).await;
        priced.map_err(|error| failed(error.into()))?;
    }
    let run = swarms.store.find(&run.id).await.map_err(failed)?;
    let run = run.ok_or_else(unknown)?;
    if budget <= run.credits {
        return Err(insufficient(run.credits, budget).with_param("max_total_credits"));
    }
    let steps = swarms.store.steps(&run.id).await.map_err(failed)?;
    let last_call = steps.iter().rfind(|step| step.place.ordinal == 0);
    let cut = last_call.filter(|step| {
        let answer = step.output.as_ref();
        answer.is_some_and(|answer| answer.is_object() && run::is_incomplete(answer))
    });
    let now = swarms.inference.ledger.now();
    let seconds = i64::from(swarms.settings.deadline_seconds.get());
    let resumption = Resumption {
        budget,
        deadline: Millis(now.0 + seconds * 1_000),
        again: cut.map(|step| step.place),
    };
    let resumed = swarms.store.resume(&run, &resumption).await;
    match resumed.map_err(failed)? {
        ResumeResult::Queued => {}
        ResumeResult::Changed => return Err(not_possible("The swarm has changed meanwhile.")),
        ResumeResult::TooMany => return Err(too_many()),
    }
    swarms.wake.notify_one();
    let run = swarms.store.find(&run.id).await.map_err(failed)?;
    Ok((
        StatusCode::ACCEPTED,
        Json(record_of(&run.ok_or_else(unknown)?)),
    ))
}

fn not_possible(what: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::NotPossible, what.into()).with_param("execution_id")
}
