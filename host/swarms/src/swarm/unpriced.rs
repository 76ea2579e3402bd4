//! Model calls without a known price at the end of their run, which was cancelled or reached its deadline meanwhile.
//!
//! The API still serves and charges such a call. Once the ledger knows the price, weir adds it to the run, so that
//! `total_credits` has every charge.

use weir_ledger::store::history::KeyedRequest;
use weir_ledger::{AccountId, Ledger};

use super::store::{CallPrice, SwarmStore, UnpricedCall};

/// Prices the calls of all finished runs, if the ledger knows their prices.
pub(super) async fn price_all(store: &SwarmStore, ledger: &Ledger) -> sqlx::Result<()> {
    for call in store.unpriced().await? {
        let price = match find(ledger, &call).await? {
            CallState::UnderWay => continue,
            CallState::Charged(price) => price,
            // The call was never served, because no call of a finished run can begin.
            CallState::Unknown => CallPrice::default(),
        };
        store.price(&call, price, ledger.now()).await?;
    }
    Ok(())
}

/// The ledger's state of a call.
pub(super) enum CallState {
    /// No request has the key.
    Unknown,
    /// A request with the key is running.
    UnderWay,
    /// The request was charged.
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
