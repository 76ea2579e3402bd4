//! The cost estimate of a swarm: the maximum price of one call of each agent's model.

use weir_catalog::Catalog;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::Credits;
use weir_ledger::price::PriceFactors;
use weir_ledger::pricing;
use weir_upstream::usage::{ModelLimits, RequestSize};

use super::order::order;
use super::request::{SwarmAgent, SwarmRequest, invalid_model};

/// The minimum useful output limit, in tokens.
pub(super) const LEAST_TOKENS: u32 = 256;

/// Returns the maximum price of one call of each agent's model; inputs from earlier agents do not count.
///
/// # Errors
///
/// 400 if an agent's model is unknown, cannot call tools, or has a lower output limit than the agent wants.
pub(super) fn estimate(
    catalog: &Catalog,
    factors: &PriceFactors,
    request: &SwarmRequest,
) -> Result<Credits, ApiError> {
    let agents = request.agents.iter().enumerate();
    let prices = agents.map(|(index, agent)| one_call(catalog, factors, request, index, agent));
    prices.sum()
}

/// Returns the minimum price of the first call, with the smallest useful output limit.
///
/// # Errors
///
/// Fails like [`estimate`].
pub(super) fn least_first_call(
    catalog: &Catalog,
    factors: &PriceFactors,
    request: &SwarmRequest,
) -> Result<Credits, ApiError> {
    // Agents with circular dependencies fail the swarm before any call.
    let first = order(&request.agents)
        .ok()
        .and_then(|order| order.first().copied());
    let index = first.unwrap_or(0);
    let agent = &request.agents[index];
    price_of_call(
        catalog,
        factors,
        request,
        index,
        agent,
        agent.max_tokens.min(LEAST_TOKENS),
    )
}

fn one_call(
    catalog: &Catalog,
    factors: &PriceFactors,
    request: &SwarmRequest,
    index: usize,
    agent: &SwarmAgent,
) -> Result<Credits, ApiError> {
    price_of_call(catalog, factors, request, index, agent, agent.max_tokens)
}

/// Returns the maximum price of a call with this output limit.
fn price_of_call(
    catalog: &Catalog,
    factors: &PriceFactors,
    request: &SwarmRequest,
    index: usize,
    agent: &SwarmAgent,
    output_limit: u32,
) -> Result<Credits, ApiError> {
    let model = catalog.model(&agent.model);
    let model = model.ok_or_else(|| invalid_model(index, &agent.model))?;
    let bad = |code, field: &str, message: String| {
        ApiError::new(code, message).with_param(format!("agents[{index}].{field}"))
    };
    if !model.supports_tools {
        let message = format!("The model {} cannot call tools.", model.id);
        return Err(bad(ErrorCode::ModelNotSupported, "model", message));
    }
    if agent.max_tokens > model.max_output_tokens {
        let (id, most) = (&model.id, model.max_output_tokens);
        let message = format!("The model {id} generates at most {most} tokens.");
        return Err(bad(ErrorCode::OutputLimitExceeded, "max_tokens", message));
    }
    let context = request.context.as_ref().filter(|_| index == 0);
    let tools = agent.tools.iter();
    let text_bytes = agent.system_prompt.len()
        + agent.task_prompt.len()
        + context.map_or(0, |context| context.len())
        + tools
            .map(|tool| tool.description.len() + tool.parameters.to_string().len())
            .sum::<usize>();
    let size = RequestSize {
        text_bytes: text_bytes as u64,
        messages: 2,
        tools: agent.tools.len() as u64,
        ..RequestSize::default()
    };
    let limits = ModelLimits {
        context_window: model.context_window.into(),
        max_image_tokens: model.max_image_tokens.into(),
        output_limit: output_limit.into(),
    };
    let bound = size.bound(&limits, 0);
    let prices = model.candidates.iter().map(|candidate| &candidate.price);
    let worst = prices.map(|price| pricing::worst_case(price, factors, &bound));
    Ok(worst.max().unwrap_or(Credits::ZERO))
}
