//! Swarms: agents that run one after another, each on a model, under one budget.
//!
//! A user requests a swarm from the API ([`routes`]), or a service from an executor. weir stores the request
//! ([`store`]), and an executor claims it ([`executor`]), even after another executor has failed. The executor runs the
//! agents ([`run`]) in their [`order`], each with the previous output in its prompt ([`prompt`]), and calls their
//! models through the API ([`model`]), which charges each call like any other. Clients follow the events ([`stream`]),
//! and receive models' output as it arrives ([`weir_inference::deltas`]).
//!
//! Each model call has a hold of its own, of at most what is left of the budget. A run has one call at a time, and an
//! executor that takes over a run repeats its call with the same idempotency key. Therefore, the holds and charges of a
//! run never exceed its budget. A call is charged when its answer is stored with its key: a call that a node drops because it
//! stops, or that ends with its node, costs nothing and is repeated. A call that is still running at the end of its run is
//! charged later: [`unpriced`] then adds its price to the run.
//!
//! An executor works on few runs of one account, and a run that waits for the next try at its model leaves its executor.
//!
//! **Invariant:** each agent's result, and each of its steps, is committed once. **Invariant:** a model call is charged
//! once, even if several executors request it. **Invariant:** an executor without the lease of a run writes nothing to
//! it.
//!
//! | To … | touch |
//! |---|---|
//! | change the fields of a request | [`request`], and its table of invalid requests |
//! | change the limits of plans | [`plan`] |
//! | change an agent's prompt | [`prompt`] |
//! | change the events for clients | the step in [`run`] that writes the event |

pub mod accept;
pub mod admin;
pub mod bodies;
mod estimate;
pub mod executor;
pub mod model;
pub mod model_calls;
pub mod order;
pub mod plan;
pub mod prompt;
pub mod record;
pub mod request;
pub mod resume;
pub mod routes;
pub mod run;
pub mod settings;
mod spans;
mod start;
pub mod store;
pub mod stream;
pub mod templates;
mod unpriced;

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use weir_identity::service_token::ServiceTokenSource;
use weir_inference::InferenceParts;
use weir_inference::deltas::Deltas;
use weir_request::metrics::swarms::SwarmMetrics;
use weir_telemetry::spans::Tracer;
use weir_tools::Tools;
use weir_tools::task_credentials::TaskCredentials;

use self::record::{RunWait, SwarmRecord};
use self::settings::SwarmSettings;
pub use self::start::{executor_at, start_executor};
use self::store::{SwarmRun, SwarmStore};

/// The swarms of a gateway: their shared state, and the parts that accept and run them.
pub struct Swarms {
    pub store: SwarmStore,
    /// Notified when a run is requested.
    pub wake: Arc<Notify>,
    /// The models' output as it arrives, and the waiters for writes.
    pub deltas: Deltas,
    /// The parts that serve agents' model requests.
    pub inference: Arc<InferenceParts>,
    /// Tools of agents' models.
    pub tools: Tools,
    /// Credentials of the tools of tasks' agents.
    pub credentials: TaskCredentials,
    pub metrics: SwarmMetrics,
    /// The tracer, if a collector is configured.
    pub tracer: Tracer,
    /// The source of the executor's token for the API.
    pub service_tokens: ServiceTokenSource,
    pub settings: SwarmSettings,
    /// Cancelled when the gateway begins to stop.
    pub draining: CancellationToken,
}

/// Returns a run's record for clients.
pub fn record_of(run: &SwarmRun) -> SwarmRecord {
    let outcome = run.outcome.clone().unwrap_or_default();
    SwarmRecord {
        execution_id: run.id.clone(),
        swarm_id: run.swarm_id.clone(),
        task_id: run.task_id.clone(),
        user_id: run.user_id.clone(),
        status: run.status,
        agents_completed: run.agents_completed,
        agents_total: run.agents_total,
        content: outcome.content,
        total_credits: run.credits,
        tokens_in: run.tokens_in,
        tokens_out: run.tokens_out,
        error: outcome.error,
        created_at: run.created_at.iso(),
        current: run.waiting.as_ref().map(RunWait::shown),
    }
}
