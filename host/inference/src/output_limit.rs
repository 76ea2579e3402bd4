//! The output limit of a request whose client sets none.
//!
//! Models that reason need room, but a hold covers the limit. The limit is therefore the largest one that a quarter of the
//! available credits pays, within the model's; but at least the model's default, so that the request fails only if even
//! that is too expensive.

use weir_ledger::price::PriceFactors;
use weir_ledger::pricing;
use weir_ledger::{Credits, Payer};
use weir_upstream::usage::OUTPUT_SLACK_TOKENS;

use super::InferenceParts;
use super::resolve::ResolvedRequest;
use super::routing::Route;

/// The share of the available credits that the hold of such a request may take: one part in this many.
const SHARE: i64 = 4;

/// Raises the output limit of a request without one. If the balance cannot be read, the default stays.
pub(super) async fn widen(
    parts: &InferenceParts,
    payer: &Payer,
    factors: &PriceFactors,
    is_in_plan: bool,
    route: &Route,
    resolved: &mut ResolvedRequest,
) {
    // A step of a swarm has its own bound.
    let Some(widest) = resolved.widest_output.filter(|_| payer.most.is_none()) else {
        return;
    };
    let least = u64::from(resolved.output_limit);
    if u64::from(widest) <= least {
        return;
    }
    let of_request = payer.parts_with_model(&resolved.model.id);
    let ledger = &parts.ledger;
    let Ok(spendable) = ledger
        .spendable(&payer.account, &of_request, !is_in_plan)
        .await
    else {
        return;
    };
    let bound = resolved.size.bound(&resolved.limits(), 0);
    let prices: Vec<_> = route
        .upstreams()
        .map(|routed| &routed.candidate.price)
        .collect();
    let output = pricing::affordable_output(
        &prices,
        factors,
        &bound,
        Credits::from_micro(spendable.micro() / SHARE),
        least + OUTPUT_SLACK_TOKENS,
        u64::from(widest) + OUTPUT_SLACK_TOKENS,
    );
    let limit = u32::try_from(output - OUTPUT_SLACK_TOKENS).unwrap_or(widest);
    resolved.output_limit = limit;
    if let Some(chat) = resolved.request.chat_mut() {
        chat.max_output_tokens = limit;
    }
}
