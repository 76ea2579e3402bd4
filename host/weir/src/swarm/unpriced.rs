//! Model calls whose price was not known when their run ended: it was cancelled or came to its deadline meanwhile.
//!
//! The API serves and charges such a call all the same. When the ledger knows its price, that is added to the run, so that
//! `total_credits` has every charge.

use weir_ledger::store::history::KeyedRequest;
use weir_ledger::{AccountId, Ledger};

use super::store::{CallPrice, SwarmStore, UnpricedCall};

/// Prices those of all runs that are over, as far as the ledger knows their prices.
pub(super) async fn price_all(store: &SwarmStore, ledger: &Ledger) -> sqlx::Result<()> {
    for call in store.unpriced().await? {
        let price = match find(ledger, &call).await? {
            CallState::UnderWay => continue,
            CallState::Charged(price) => price,
            // It was never served: no call of a run that is over can begin.
            CallState::Unknown => CallPrice::default(),
        };
        store.price(&call, price, ledger.now()).await?;
    }
    Ok(())
}

/// What the ledger knows of a call.
pub(super) enum CallState {
    /// No request has its key.
    Unknown,
    /// A request with its key is being served.
    UnderWay,
    /// It was charged.
    Charged(CallPrice),
}

/// Asks the ledger about a call.
pub(super) async fn find(ledger: &Ledger, call: &UnpricedCall) -> sqlx::Result<CallState> {
    let account = AccountId(call.user_id.clone());
    let request = ledger.find_keyed(&account, &call.idempotency_key).await?;
    Ok(match request {
        KeyedRequest::Unclaimed => CallState::Unknown,
        KeyedRequest::Open => CallState::UnderWay,
        KeyedRequest::Ended(ended) => CallState::Charged(CallPrice {
            credits: ended.credits,
            tokens_in: ended.counts.tokens_input,
            tokens_out: ended.counts.tokens_output,
        }),
    })
}
