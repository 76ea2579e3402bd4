//! What a swarm may cost at least: one call of each agent's model, at its worst.

use weir_errors::{ApiError, ErrorCode};
use weir_ledger::Credits;
use weir_ledger::pricing::{self, Bound};

use super::order::order;
use super::request::{Agent, SwarmRequest, invalid_model};
use crate::catalog::Catalog;
use weir_upstream::usage::{ModelLimits, OUTPUT_SLACK_TOKENS, RequestSize};

/// Tokens below which an answer is not worth its price.
pub(super) const LEAST_TOKENS: u32 = 256;

/// The price of one call of each agent's model at its worst; what goes before is not counted.
///
/// # Errors
///
/// 400 where an agent's model is not in the catalog, cannot call tools, or gives shorter answers than the agent wants.
pub(super) fn estimate(catalog: &Catalog, request: &SwarmRequest) -> Result<Credits, ApiError> {
    let agents = request.agents.iter().enumerate();
    let prices = agents.map(|(index, agent)| one_call(catalog, request, index, agent));
    prices.sum()
}

/// The least price at which the first call can be made: with the smallest output limit that is worth its price.
///
/// # Errors
///
/// As of [`estimate`].
pub(super) fn least_first_call(
    catalog: &Catalog,
    request: &SwarmRequest,
) -> Result<Credits, ApiError> {
    // A circle fails the swarm before any call.
    let first = order(&request.agents)
        .ok()
        .and_then(|order| order.first().copied());
    let index = first.unwrap_or(0);
    let agent = &request.agents[index];
    price_of_call(
        catalog,
        request,
        index,
        agent,
        agent.max_tokens.min(LEAST_TOKENS),
    )
}

fn one_call(
    catalog: &Catalog,
    request: &SwarmRequest,
    index: usize,
    agent: &Agent,
) -> Result<Credits, ApiError> {
    price_of_call(catalog, request, index, agent, agent.max_tokens)
}

/// The price of a call with this output limit, at its worst.
fn price_of_call(
    catalog: &Catalog,
    request: &SwarmRequest,
    index: usize,
    agent: &Agent,
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
    let bound = Bound {
        input_tokens: size.max_input_tokens(&limits),
        output_tokens: u64::from(output_limit) + OUTPUT_SLACK_TOKENS,
        images: 0,
    };
    let prices = model.candidates.iter().map(|candidate| &candidate.price);
    let worst = prices.map(|price| pricing::worst_case(price, &catalog.factors, &bound));
    Ok(worst.max().unwrap_or(Credits::ZERO))
}
