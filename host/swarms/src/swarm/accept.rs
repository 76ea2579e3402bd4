//! Acceptance of a request for a swarm: reads it, checks it against its user's plan and credits, and stores it for an
//! executor.
//!
//! Users, services and tasks all use this path.

use std::time::Duration;

use weir_accounts::billing::budgets;
use weir_catalog::permitted::RequestDataLimits;
use weir_catalog::{Catalog, Model};
use weir_errors::{ApiError, ErrorCode};
use weir_identity::{Caller, limits};
use weir_ledger::{AccountId, BudgetPart, Credits, IdempotencyClaim, Plan};
use weir_request::limits::data::{CallerDataLimits, DataLimits};
use weir_storage::clock::Millis;
use weir_storage::ids;

use super::Swarms;
use super::estimate::{estimate, least_first_call};
use super::plan::caps;
use super::request::{self, AgentTool, Defaults, SwarmCaller};
use super::store::{AcceptResult, MAX_KEPT_BYTES, MAX_OPEN, NewRun, SwarmRun, SwarmStoreError};

/// The default model of agents, if the catalog has it and the configuration names no other.
const DEFAULT_MODEL: &str = "claude-sonnet-5-5";

pub struct SwarmPayer<'a> {
    pub account: &'a AccountId,
    pub account_plan: Plan,
    /// The plan with the swarm's limits.
    pub plan: Plan,
    /// The parts of the account whose budgets apply.
    pub parts: Vec<BudgetPart>,
    /// The models that agents may use; all if empty.
    pub models: &'a [String],
    /// The limits on providers, as far as they are known: each model call has the current ones.
    pub data_limits: CallerDataLimits,
}

impl<'a> SwarmPayer<'a> {
    /// The payer behind a caller, within the limits of their key.
    pub fn of(caller: &'a Caller) -> Self {
        Self {
            account: &caller.account,
            account_plan: caller.plan,
            plan: caller.plan,
            parts: caller.parts(),
            models: caller.models(),
            data_limits: caller.data_limits.clone(),
        }
    }
}

/// The prices and the budget of a swarm.
pub struct SwarmPrices {
    /// The maximum price of one call of each agent.
    estimate: Credits,
    /// The minimum price of the first call: without it, the swarm cannot begin.
    first_call: Credits,
    /// The maximum cost.
    budget: Credits,
    /// The maximum cost that the plan allows.
    most: Credits,
    /// Whether only bought credits may pay: the plan does not include the model of an agent.
    top_up_only: bool,
}

impl SwarmPrices {
    /// The maximum cost that the plan allows.
    pub(super) fn most(&self) -> Credits {
        self.most
    }
}

/// Reads a swarm, and fills in this gateway's defaults for agents.
///
/// # Errors
///
/// 400 with the path of the invalid field.
pub fn read(
    swarms: &Swarms,
    body: &[u8],
    asker: SwarmCaller,
) -> Result<(request::SwarmRequest, Option<request::NamedPayer>), ApiError> {
    let catalog = swarms.inference.catalog.load();
    let configured = swarms.settings.default_model.as_deref();
    let model = default_model(&catalog, configured, swarms.inference.ledger.now());
    let tool = |name: &str| {
        let tool = swarms.tools.describe(name)?;
        Some(AgentTool {
            name: tool.name,
            description: tool.description,
            parameters: tool.input_schema,
        })
    };
    let integration = |id: &str| swarms.tools.has_integration(id);
    let defaults = Defaults {
        model,
        tool: &tool,
        integration: &integration,
    };
    let (mut request, payer) = request::read(body, asker, defaults)?;
    for agent in &mut request.agents {
        // Keys' and plans' lists of models have ids.
        agent.model = catalog.id_of(&agent.model).to_owned();
    }
    Ok((request, payer))
}

fn default_model<'a>(
    catalog: &'a Catalog,
    configured: Option<&'a str>,
    now: Millis,
) -> Option<&'a str> {
    configured.or_else(|| {
        let default = catalog.model(DEFAULT_MODEL).map(|model| &**model);
        let able = catalog.models().filter(|model| model.supports_tools);
        let all: Vec<_> = default.into_iter().chain(able).collect();
        let ends = |model: &Model| model.ends_on.is_some_and(|day| day.is_near(now));
        // A task may run with this default for months.
        let lasting = all.iter().find(|model| !ends(model)).or(all.first());
        lasting.map(|model| &*model.id)
    })
}

/// Checks a swarm against the limits of plans and models.
///
/// # Errors
///
/// 400 or 403 with the field that exceeds a limit.
pub fn check(
    swarms: &Swarms,
    payer: &SwarmPayer<'_>,
    request: &request::SwarmRequest,
) -> Result<SwarmPrices, ApiError> {
    let caps = caps(payer.account_plan, payer.plan)?;
    caps.check(request)?;
    let account = payer.account;
    for (index, agent) in request.agents.iter().enumerate() {
        limits::require_model(payer.models, &agent.model)
            .map_err(|error| error.with_param(format!("agents[{index}].model")))?;
        for (place, id) in agent.integrations.iter().enumerate() {
            if swarms.tools.denies_integration(id, account, payer.plan) {
                let what = "The user or the plan may not use this integration; ask the operator.";
                return Err(ApiError::new(ErrorCode::IntegrationNotAllowed, what)
                    .with_param(format!("agents[{index}].integrations[{place}]"))
                    .with_no_retry());
            }
        }
    }
    let catalog = swarms.inference.catalog.load();
    let limits = RequestDataLimits::new(&payer.data_limits, DataLimits::default());
    for (index, agent) in request.agents.iter().enumerate() {
        if let Some(model) = catalog.model(&agent.model) {
            limits
                .narrow(model, (0..model.candidates.len()).collect())
                .map_err(|error| error.with_param(format!("agents[{index}].model")))?;
        }
    }
    let factors = catalog.factors_of(payer.account_plan);
    Ok(SwarmPrices {
        estimate: estimate(&catalog, &factors, request)?,
        first_call: least_first_call(&catalog, &factors, request)?,
        budget: caps.budget(request),
        most: caps.credits,
        top_up_only: (request.agents.iter())
            .any(|agent| !catalog.is_in_plan(payer.account_plan, &agent.model)),
    })
}

/// Returns the run of an earlier request with this key.
///
/// # Errors
///
/// 409 if the earlier request was a different one.
pub async fn find_repeat(
    swarms: &Swarms,
    account: &AccountId,
    key: Option<&IdempotencyClaim>,
) -> Result<Option<SwarmRun>, ApiError> {
    let Some(claim) = key else {
        return Ok(None);
    };
    let store = &swarms.store;
    let repeat = store.find_repeat(&account.0, &claim.key, &claim.request_digest);
    match repeat.await.map_err(failed)? {
        Some(AcceptResult::Same(id)) => store.find(&id).await.map_err(failed),
        Some(_) => Err(reused()),
        None => Ok(None),
    }
}

/// Stores a swarm for an executor. Returns whether an earlier request with its key has already done so.
pub async fn accept(
    swarms: &Swarms,
    payer: &SwarmPayer<'_>,
    request: &request::SwarmRequest,
    key: Option<&IdempotencyClaim>,
) -> Result<(SwarmRun, bool), ApiError> {
    let SwarmPrices {
        estimate,
        first_call,
        budget,
        most: _,
        top_up_only,
    } = check(swarms, payer, request)?;
    let account = swarms.inference.ledger.find_account(payer.account).await;
    let account = account.map_err(|error| failed(error.into()))?;
    if budget < first_call {
        return Err(insufficient(first_call, budget).with_param("max_total_credits"));
    }
    // A budget below the estimate suffices: the swarm ends when the budget is spent.
    let required = estimate.min(budget);
    let now = swarms.inference.ledger.now();
    if let Some(account) = &account {
        account
            .check_budgets(&payer.parts, required, now)
            .map_err(|exceeded| budgets::exceeded(&exceeded, now))?;
    }
    let available = account.map(|account| match top_up_only {
        true => account.available().top_up,
        false => account.available().total(),
    });
    let available = available.unwrap_or_default();
    if available < required {
        return Err(insufficient(required, available));
    }
    let id = ids::swarm_id();
    let seconds = i64::from(swarms.settings.deadline_seconds.get());
    let new = NewRun {
        id: &id,
        user_id: &payer.account.0,
        parts: &payer.parts,
        request,
        budget,
        key: key.map(|claim| (&*claim.key, claim.request_digest)),
        at: now,
        deadline: Millis(now.0 + seconds * 1_000),
    };
    let store = &swarms.store;
    let accepted = store.accept(&new).await.map_err(failed)?;
    let (id, is_repeat) = match accepted {
        AcceptResult::New => (id, false),
        AcceptResult::Same(first) => (first, true),
        AcceptResult::Conflict => return Err(reused()),
        AcceptResult::Full => {
            return Err(ApiError::new(
                ErrorCode::SwarmDataLimitReached,
                format!(
                    "With these agents, your swarms would have more than {MAX_KEPT_BYTES} bytes of data; delete finished swarms."
                ),
            )
            .with_param("agents")
            .with_no_retry());
        }
        AcceptResult::TooMany => return Err(too_many()),
    };
    swarms.wake.notify_one();
    let run = store.find(&id).await.map_err(failed)?;
    Ok((run.ok_or_else(unknown)?, is_repeat))
}

pub(super) fn insufficient(required: Credits, available: Credits) -> ApiError {
    ApiError::new(
        ErrorCode::InsufficientCredits,
        format!("The swarm needs at least {required} credits, but only {available} are available."),
    )
    .with_no_retry()
    .with_detail("required_credits", required.to_json())
    .with_detail("available_credits", available.to_json())
}

/// 429: the user has as many unfinished swarms as they may have.
pub(super) fn too_many() -> ApiError {
    ApiError::new(
        ErrorCode::TooManySwarms,
        format!("A user may have {MAX_OPEN} queued or running swarms."),
    )
    .with_retry_after(Duration::from_secs(10))
}

fn reused() -> ApiError {
    ApiError::new(
        ErrorCode::IdempotencyKeyReused,
        "This idempotency key was used for another swarm; use a new key for each swarm.",
    )
    .with_param("Idempotency-Key")
    .with_no_retry()
}

/// 404: the swarm does not exist, or another user owns it.
pub fn unknown() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "You have no such swarm.")
}

/// The client's error for a failed store.
pub fn failed(error: SwarmStoreError) -> ApiError {
    match error {
        SwarmStoreError::Database(error) => ApiError::of_database(&error, "about a swarm"),
        error @ SwarmStoreError::Unreadable(_) => {
            tracing::error!(%error, "reading a swarm");
            ApiError::internal()
        }
    }
}
