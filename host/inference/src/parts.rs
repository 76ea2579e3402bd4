//! The parts of a gateway that serve model requests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_catalog::live::LiveCatalog;
use weir_egress::Guard;
use weir_ledger::Ledger;
use weir_payments::Payments;
use weir_plugins::Plugins;
use weir_plugins::oversight::Oversight;
use weir_request::admission::Admission;
use weir_request::limits::settings::TimeoutSettings;
use weir_request::node::Core;
use weir_storage::clock::Millis;
use weir_storage::sealing::KeyRing;
use weir_upstream::client::HttpClient;
use weir_upstream::file_reader::FileReader;

use super::droppable::FieldNames;
use super::response_cache::ResponseCache;
use super::routing::Routing;
use super::settings::ExchangeLimits;
use crate::recordings::Recorder;
use crate::sessions::Sessions;

/// The parts of a gateway that serve model requests.
pub struct InferenceParts {
    /// The stores, the clock and the audit.
    pub core: Core,
    /// The active catalog.
    pub catalog: Arc<LiveCatalog>,
    /// The ledger, for holds and settlements.
    pub ledger: Ledger,
    /// The loaded adapters and filters.
    pub plugins: Plugins,
    /// Statistics of components.
    pub oversight: Oversight,
    /// The order of upstreams, and their circuit breakers.
    pub routing: Routing,
    /// The HTTP client for upstreams.
    pub http: HttpClient,
    /// The reader of recordings and documents.
    pub file_reader: FileReader,
    /// The egress guard, for requests to the services of filters.
    pub guard: Guard,
    /// The request queue.
    pub admission: Arc<Admission>,
    /// The recorder of exchanges.
    pub recorder: Recorder,
    /// Messages of sessions.
    pub sessions: Sessions,
    /// Responses for equal requests.
    pub response_cache: ResponseCache,
    /// Payments, for the pages that sell credits.
    pub payments: Payments,
    /// The keys that encrypt stored responses.
    pub sealing_keys: KeyRing,
    /// Requests in progress, including those of disconnected clients.
    pub tasks: TaskTracker,
    /// Cancelled when a stopping gateway has waited long enough for requests.
    pub shutdown: CancellationToken,
    /// The time of the start.
    pub started_at: Millis,
    /// The timeouts of requests.
    pub timeouts: TimeoutSettings,
    /// The fields that weir may drop from requests.
    pub ignore_fields: FieldNames,
    /// The limits of exchanges.
    pub exchange_limits: ExchangeLimits,
    /// The interval between a hold's checkpoints.
    pub checkpoint_every: Duration,
    /// The timeout of a hold.
    pub hold_timeout: Duration,
}

impl Deref for InferenceParts {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}
