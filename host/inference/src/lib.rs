//! A request from start to finish.
//!
//! 1. **Identify** ([`weir_identity`]): authenticates the caller.
//! 2. **Admit** ([`weir_request::admission`]): grants a permit, or responds with 429 or 503.
//! 3. **Filter** ([`filters`]): the operator's filters reject or change the request, choose its upstreams, or respond to
//!    it themselves. Steps 5 and 6 are left out for a filter's own response, and it costs nothing.
//! 4. **Resolve** ([`resolve`]): finds the model, its upstreams and limits; each violation has its own 400.
//!    The [`response_cache`] may have the response of an equal request: then no upstream is asked in step 6.
//! 5. **Hold** ([`meter`]): reserves the maximum cost, durably; the same commit claims the `Idempotency-Key`, if there
//!    is one ([`idempotency`]).
//! 6. **Exchange** ([`exchange`]): a fresh adapter instance translates, the host performs the I/O; after a failure,
//!    weir retries or falls back to the next upstream ([`routing`], [`attempts`]).
//! 7. **Relay** ([`relay`]): events become the client's dialect, with backpressure.
//! 8. **Settle**: charges the actual price, durably, and then sends the end of the response.
//!
//! From the hold on, the request's work is registered with the gateway, so that shutdown waits for it, and outlives the
//! client's connection: if a client disconnects, weir reads a stream for a while, and any other response to its end. The work of a stream is a separate
//! task. The work of a plain request becomes one only if its client disconnects ([`attended`]).
//!
//! **Invariant:** no client receives a complete response before its charge is durable, and every hold ends.
//!
//! The text of a prompt is copied five times from socket to socket: by the kernel into hyper's buffer, into the body
//! ([`JsonBody`](weir_request::request::JsonBody)), out of its JSON, into the body for the upstream
//! ([`destination`](weir_upstream::destination)), and by the kernel again. It does not enter the memory of an adapter with the
//! capability `long-texts`. Each filter that changes a text copies it twice more, and so does an adapter without the capability.

mod attempts;
mod attended;
pub mod deltas;
pub mod droppable;
pub mod exchange;
mod files;
pub mod filters;
pub mod idempotency;
mod leniency;
pub mod meter;
mod output_limit;
mod pace;
mod parts;
pub mod plugins;
mod prompt_caching;
mod reasoning;
pub mod recordings;
pub mod relay;
mod reply;
pub mod resolve;
pub mod response_cache;
pub mod routes;
pub mod routing;
mod serve;
pub mod sessions;
pub mod settings;
mod spans;
pub mod vendors;
mod work;

use weir_catalog::Catalog;
use weir_errors::ApiError;
use weir_identity::filter_options::CallerFilterOptions;
use weir_identity::part_rates::PartRates;
use weir_identity::{Caller, limits};
use weir_ledger::{AccountId, Payer, Plan};
use weir_request::context::RequestContext;
use weir_request::limits::data::CallerDataLimits;

use self::filters::FilterCaller;
use self::idempotency::IdempotentRequest;
pub use self::parts::InferenceParts;
use self::resolve::ProviderChoice;
pub use self::serve::serve;
pub use self::work::Work;

/// The payer of a request, with their plan and models.
pub struct Customer {
    /// The account that pays.
    pub payer: Payer,
    /// The owner of the sessions that the request may use.
    pub session_owner: AccountId,
    /// The plan of the account.
    pub plan: Plan,
    /// The models that the caller may use; all if empty.
    pub models: Vec<String>,
    /// The rates that may apply to the request.
    pub rates: PartRates,
    /// The options of the key and the account for filters.
    pub filter_options: CallerFilterOptions,
    /// The limits of the key and the organisation on providers.
    pub data_limits: CallerDataLimits,
}

impl Customer {
    /// The customer behind a caller.
    pub fn of(caller: Caller) -> Self {
        Self {
            plan: caller.plan,
            models: caller.models().to_vec(),
            session_owner: caller.session_owner(),
            rates: caller.rates.clone(),
            filter_options: caller.filter_options.clone(),
            data_limits: caller.data_limits.clone(),
            payer: caller.payer(),
        }
    }

    /// Returns an idempotent request as one of this customer.
    fn own(&self, key: IdempotentRequest) -> IdempotentRequest {
        key.of_member(&self.payer.account, &self.session_owner)
    }

    /// Refuses an existing model that the customer may not use.
    fn require(&self, catalog: &Catalog, model: &str) -> Result<(), ApiError> {
        match catalog.model(model) {
            Some(model) => limits::require_model(&self.models, &model.id),
            None => Ok(()),
        }
    }

    fn asker<'a>(
        &'a self,
        context: &'a RequestContext,
        choice: &'a ProviderChoice<'a>,
    ) -> FilterCaller<'a> {
        FilterCaller {
            account: &self.payer.account,
            plan: self.plan,
            options: &self.filter_options,
            choice,
            context,
        }
    }
}
