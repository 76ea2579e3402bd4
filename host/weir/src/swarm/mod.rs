//! Swarms: agents that run one after another, each on a model, under one budget.
//!
//! A user asks the API for a swarm ([`routes`]), or a service asks an executor. What is asked is kept ([`store`]), and an
//! executor takes it up ([`executor`]), also where the one that had it is gone. It runs the agents ([`run`]) in their
//! [`order`], each told what went before ([`prompt`]), and calls their models through the API ([`model`]), where each call is
//! charged like any other. Clients follow by events ([`stream`]), and hear what models say as it comes ([`deltas`]).
//!
//! What a swarm may spend is held as one hold, on which its model calls draw. An executor that takes a run over first asks
//! for the price of the model call that was under way, if one was; then it releases the hold of the executor before, and
//! opens one of its own for what is left of the budget. So what a run has reserved and spent never exceeds its budget.
//! A call that is still under way when its run ends is charged later: [`unpriced`] adds its price to the run then.
//!
//! **Invariant:** each agent's result is committed once, and each step of it.
//! **Invariant:** a model's call is charged once, whoever asks for it again.
//! **Invariant:** whoever has lost the lease of a run writes nothing more of it.
//!
//! | To … | touch |
//! |---|---|
//! | change the fields of a request | [`request`], and its table of invalid requests |
//! | change the limits of plans | [`plan`] |
//! | change an agent's prompt | [`prompt`] |
//! | change the events for clients | the step in [`run`] that writes the event |

pub mod accept;
pub mod admin;
pub mod deltas;
mod estimate;
pub mod executor;
pub mod model;
pub mod order;
pub mod plan;
pub mod prompt;
pub mod record;
pub mod request;
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
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use self::deltas::Deltas;
use self::record::Record;
pub use self::start::{executor_at, start_executor};
use self::store::{Run, SwarmStore};

/// What handlers and executors of a process share of swarms.
pub struct Swarms {
    /// Where they are kept.
    pub store: SwarmStore,
    /// Rung when a run is asked for.
    pub wake: Arc<Notify>,
    /// What models say in them, as it comes; and who waits for something to be written of them.
    pub deltas: Deltas,
    is_closed: AtomicBool,
}

impl Swarms {
    /// Swarms in a store.
    pub fn new(store: SwarmStore) -> Self {
        Self {
            store,
            wake: Arc::default(),
            deltas: Deltas::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Nobody runs them: none is taken.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether none is taken.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

/// A run as clients are told.
pub fn record_of(run: &Run) -> Record {
    let outcome = run.outcome.clone().unwrap_or_default();
    Record {
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
    }
}
