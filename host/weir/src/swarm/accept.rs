//! What becomes of a request for a swarm: it is read, held against its user's plan and credits, and kept to be run.
//!
//! Whoever asks comes this way: users, services, and tasks.

use std::time::Duration;

use weir_errors::{ApiError, ErrorCode};
use weir_ledger::{AccountId, Claim, Credits, Plan};
use weir_storage::clock::Millis;
use weir_storage::ids;

use super::estimate::{estimate, least_first_call};
use super::plan::caps;
use super::request::{self, AgentTool, Asker, Defaults};
use super::store::{Accepted, MAX_KEPT_BYTES, MAX_OPEN, NewRun, Run, StoreError};
use crate::app::App;
use crate::billing::budgets;
use crate::catalog::Catalog;
use crate::identity::{Caller, limits};

/// The model of agents that name none, where it is in the catalog and nothing else is configured.
const DEFAULT_MODEL: &str = "claude-sonnet-4-5";

/// Who pays for a swarm.
pub struct Payer<'a> {
    /// The user's id.
    pub user_id: &'a str,
    /// The plan that they have.
    pub user_plan: Plan,
    /// The plan whose bounds apply.
    pub plan: Plan,
    /// The id of the key that is used, whose budgets apply.
    pub key_id: Option<&'a str>,
    /// The models that agents may use; all if empty.
    pub models: &'a [String],
}

impl<'a> Payer<'a> {
    /// A caller, within the limits of their key.
    pub fn of(caller: &'a Caller) -> Self {
        Self {
            user_id: &caller.user_id,
            user_plan: caller.plan,
            plan: caller.plan,
            key_id: caller.key_id(),
            models: caller.models(),
        }
    }
}

/// What a swarm needs, and may spend.
pub struct Priced {
    /// The price of one call of each agent, at its worst.
    estimate: Credits,
    /// The least price of the first call: without it, the swarm ends before it begins.
    first_call: Credits,
    /// The most that it may spend.
    budget: Credits,
}

/// Reads a swarm, with what this gateway gives agents that say nothing of it.
///
/// # Errors
///
/// 400 with the path of the field that is wrong.
pub fn read(
    app: &App,
    body: &[u8],
    asker: Asker,
) -> Result<(request::SwarmRequest, Option<request::Named>), ApiError> {
    let catalog = app.catalog.load();
    let model = default_model(&catalog, app.config.swarms.default_model.as_deref());
    let tool = |name: &str| {
        let tool = app.tools.describe(name)?;
        Some(AgentTool {
            name: tool.name,
            description: tool.description,
            parameters: tool.input_schema,
        })
    };
    let integration = |id: &str| app.tools.has_integration(id);
    let defaults = Defaults {
        model,
        tool: &tool,
        integration: &integration,
    };
    request::read(body, asker, defaults)
}

fn default_model<'a>(catalog: &'a Catalog, configured: Option<&'a str>) -> Option<&'a str> {
    configured.or_else(|| {
        let default = catalog.model(DEFAULT_MODEL).map(|model| &*model.id);
        let mut able = catalog.models().filter(|model| model.supports_tools);
        default.or_else(|| able.next().map(|model| &*model.id))
    })
}

/// Holds a swarm against what plans allow and models can do.
///
/// # Errors
///
/// 400 or 403 with the field that is more than that.
pub fn check(
    app: &App,
    payer: &Payer<'_>,
    request: &request::SwarmRequest,
) -> Result<Priced, ApiError> {
    let caps = caps(payer.user_plan, payer.plan)?;
    caps.check(request)?;
    let account = AccountId(payer.user_id.to_owned());
    for (index, agent) in request.agents.iter().enumerate() {
        limits::require_model(payer.models, &agent.model)
            .map_err(|error| error.with_param(format!("agents[{index}].model")))?;
        for (place, id) in agent.integrations.iter().enumerate() {
            if app.tools.denies_integration(id, &account, payer.plan) {
                let what = "The operator has not opened this integration to the user or the plan.";
                return Err(ApiError::new(ErrorCode::IntegrationNotAllowed, what)
                    .with_param(format!("agents[{index}].integrations[{place}]"))
                    .with_no_retry());
            }
        }
    }
    let catalog = app.catalog.load();
    Ok(Priced {
        estimate: estimate(&catalog, request)?,
        first_call: least_first_call(&catalog, request)?,
        budget: caps.budget(request),
    })
}

/// The run that an earlier request with this key has asked for.
///
/// # Errors
///
/// 409 if that request was another one.
pub async fn find_repeat(
    app: &App,
    user_id: &str,
    key: Option<&Claim>,
) -> Result<Option<Run>, ApiError> {
    let Some(claim) = key else {
        return Ok(None);
    };
    let store = &app.swarms.store;
    let repeat = store.find_repeat(user_id, &claim.key, &claim.request_digest);
    match repeat.await.map_err(failed)? {
        Some(Accepted::Same(id)) => store.find(&id).await.map_err(failed),
        Some(_) => Err(reused()),
        None => Ok(None),
    }
}

/// Keeps a swarm to be run. Returns whether an earlier request with its key has done so.
pub async fn accept(
    app: &App,
    payer: &Payer<'_>,
    request: &request::SwarmRequest,
    key: Option<&Claim>,
) -> Result<(Run, bool), ApiError> {
    let Priced {
        estimate,
        first_call,
        budget,
    } = check(app, payer, request)?;
    if app.swarms.is_closed() {
        return Err(ApiError::new(
            ErrorCode::SwarmsUnavailable,
            "Nobody runs swarms here: the executor has no token for the API.",
        ));
    }
    let account = AccountId(payer.user_id.to_owned());
    let account = app.ledger.find_account(&account).await;
    let account = account.map_err(|error| failed(error.into()))?;
    if budget < first_call {
        return Err(insufficient(first_call, budget).with_param("max_total_credits"));
    }
    // What the budget does not allow is not asked for: it ends the swarm when it is spent.
    let required = estimate.min(budget);
    let now = app.ledger.now();
    if let Some(account) = &account {
        account
            .check_budgets(payer.key_id, required, now)
            .map_err(|exceeded| budgets::exceeded(&exceeded, now))?;
    }
    let available = account.map(|account| account.available().total());
    let available = available.unwrap_or_default();
    if available < required {
        return Err(insufficient(required, available));
    }
    let id = ids::swarm_id();
    let seconds = i64::from(app.config.swarms.deadline_seconds.get());
    let new = NewRun {
        id: &id,
        user_id: payer.user_id,
        key_id: payer.key_id,
        request,
        budget,
        key: key.map(|claim| (&*claim.key, claim.request_digest)),
        at: now,
        deadline: Millis(now.0 + seconds * 1_000),
    };
    let store = &app.swarms.store;
    let accepted = store.accept(&new).await.map_err(failed)?;
    let (id, is_repeat) = match accepted {
        Accepted::New => (id, false),
        Accepted::Same(first) => (first, true),
        Accepted::Conflict => return Err(reused()),
        Accepted::Full => {
            return Err(ApiError::new(
                ErrorCode::SwarmDataLimitReached,
                format!(
                    "With these agents, your swarms would have more than {MAX_KEPT_BYTES} bytes of data; delete some that are over."
                ),
            )
            .with_param("agents")
            .with_no_retry());
        }
        Accepted::TooMany => {
            return Err(ApiError::new(
                ErrorCode::TooManySwarms,
                format!("No more than {MAX_OPEN} swarms of a user wait or run at once."),
            )
            .with_retry_after(Duration::from_secs(10)));
        }
    };
    app.swarms.wake.notify_one();
    let run = store.find(&id).await.map_err(failed)?;
    Ok((run.ok_or_else(unknown)?, is_repeat))
}

fn insufficient(required: Credits, available: Credits) -> ApiError {
    ApiError::new(
        ErrorCode::InsufficientCredits,
        format!("The swarm needs at least {required} credits, and {available} are available."),
    )
    .with_no_retry()
    .with_detail("required_credits", required.to_json())
    .with_detail("available_credits", available.to_json())
}

fn reused() -> ApiError {
    ApiError::new(
        ErrorCode::IdempotencyKeyReused,
        "This idempotency key was used for another swarm; use a new one for each.",
    )
    .with_param("Idempotency-Key")
    .with_no_retry()
}

/// 404: there is no such swarm, or it is another's.
pub fn unknown() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "You have no such swarm.")
}

/// What a client is told of a store that fails.
pub fn failed(error: StoreError) -> ApiError {
    match error {
        StoreError::Database(error) => ApiError::of_database(&error, "about a swarm"),
        error @ StoreError::Unreadable(_) => {
            tracing::error!(%error, "reading a swarm");
            ApiError::internal()
        }
    }
}
