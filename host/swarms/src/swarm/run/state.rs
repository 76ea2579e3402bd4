//! The state of a run in progress, and the reasons for which it ends early.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Mutex;
use weir_catalog::live::LiveCatalog;
use weir_inference::deltas::Deltas;
use weir_ledger::{Credits, Ledger};
use weir_request::metrics::swarms::SwarmMetrics;
use weir_storage::Database;
use weir_storage::background::Background;
use weir_telemetry::spans::Tracer;
use weir_tools::Tools;
use weir_tools::task_credentials::TaskCredentials;

use crate::swarm::model::ModelApi;
use crate::swarm::spans::RunTrace;
use crate::swarm::store::{Lease, LeaseError, RunStep, SwarmRun, SwarmStore, SwarmStoreError};

/// The parts of an executor. Cheap to clone.
#[derive(Clone)]
pub struct ExecutorParts {
    pub store: SwarmStore,
    /// The database with the keys of swarms.
    pub database: Database,
    /// The accounts, and the time.
    pub ledger: Ledger,
    /// The list of the node's repeated work.
    pub background: Background,
    /// The models and their prices.
    pub catalog: Arc<LiveCatalog>,
    /// The client for model calls.
    pub api: ModelApi,
    pub tools: Tools,
    pub credentials: TaskCredentials,
    /// The waiters for writes.
    pub deltas: Deltas,
    pub metrics: SwarmMetrics,
    /// The recorder of spans.
    pub tracer: Tracer,
}

pub(super) struct ActiveRun<'a> {
    pub parts: &'a ExecutorParts,
    pub lease: &'a Lease,
    /// The run at the time of the claim.
    pub run: SwarmRun,
    pub steps: Vec<RunStep>,
    /// The cost so far.
    pub spent: Credits,
    /// The run's spans.
    pub trace: RunTrace,
    /// The lock of a tool call, from intent to result: an executor waits for it before it stops.
    pub(super) calling: &'a Mutex<()>,
}

/// The reasons for which a run ends early.
#[derive(Debug)]
pub(super) enum RunHalt {
    /// The run ends with this reason for its user.
    Stopped(String),
    Cancelled,
}

#[derive(Debug)]
pub(super) enum StepBreak {
    Halt(RunHalt),
    /// The executor with the lease continues the run later.
    Leave(LeaseError),
    /// The run waits without an executor.
    Waits,
}

impl From<LeaseError> for StepBreak {
    fn from(error: LeaseError) -> Self {
        Self::Leave(error)
    }
}

impl From<SwarmStoreError> for StepBreak {
    fn from(error: SwarmStoreError) -> Self {
        Self::Leave(error.into())
    }
}

/// Ends the run with this reason.
pub(super) fn stopped(why: String) -> StepBreak {
    StepBreak::Halt(RunHalt::Stopped(why))
}

/// Ends the run because its principal may not use models any more.
pub(super) fn refused(code: &str, message: &str) -> StepBreak {
    stopped(format!("{code}: {message}"))
}

/// Ends the run because the budget is exhausted.
pub(super) fn exhausted() -> StepBreak {
    stopped(EXHAUSTED.to_owned())
}

/// The user's message for that.
pub(super) const EXHAUSTED: &str = "The budget is exhausted.";

/// Returns a text field of a model's message.
pub(super) fn text_of(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}
