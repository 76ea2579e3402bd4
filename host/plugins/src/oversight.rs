//! Oversight: each exchange and each call of a tool counts for its component, and a component that fails too often is
//! quarantined.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::task::TaskTracker;
use weir_ledger::AccountId;
use weir_storage::clock::Clock;
use weir_storage::{Cache, Database};

use super::canary::samples::Sampler;
use super::component::Plugin;
use super::counters::{ExchangeEnd, FilterEffects};
use super::slots::{Plugins, Stores};
use super::store::QuarantineResult;
use crate::metrics::PluginMetrics;

/// The supervisor of components. Cheap to clone.
#[derive(Clone)]
pub struct Oversight {
    pub plugins: Plugins,
    /// The database in which a quarantine is stored.
    pub database: Database,
    /// The cache through which other nodes learn of it.
    pub cache: Cache,
    /// The source of time.
    pub clock: Clock,
    /// Figures for Prometheus.
    pub metrics: Arc<PluginMetrics>,
    /// The tasks that a stopping gateway awaits.
    pub tasks: TaskTracker,
    /// `plugins.quarantine_traps`.
    pub max_traps: u32,
}

/// The record of an exchange, or a call of a tool.
pub struct ExchangeRecord<'a> {
    pub ended: ExchangeEnd,
    pub took: Duration,
    /// A filter's effects on the request and its response.
    pub effects: Option<FilterEffects>,
    /// The requests of its slot are refused without it: a quarantine must not let harmful requests pass.
    pub is_guard: bool,
    /// Time to the first token, if the response was streamed.
    pub first_token: Option<Duration>,
    /// The sampler, if its slot has a canary.
    pub sampler: Option<&'a Sampler>,
}

impl Oversight {
    /// Counts an exchange, and quarantines a component that has failed too often.
    pub fn note(&self, plugin: &Plugin, account: &AccountId, exchange: ExchangeRecord<'_>) {
        let ExchangeRecord {
            ended,
            took,
            effects,
            is_guard,
            first_token,
            sampler,
        } = exchange;
        let counters = plugin.counters();
        counters.exchange(ended, took);
        if let Some(sampler) = sampler {
            sampler.exchange(ended, took, first_token);
            if let Some(effects) = effects {
                sampler.effects(effects);
            }
        }
        if let Some(effects) = effects {
            self.metrics.filter_effects(plugin, effects, ended);
        }
        self.metrics.exchange(plugin, ended, took, first_token);
        let suspicion = counters.suspect(ended, account, self.max_traps, Instant::now());
        let Some(suspicion) = suspicion else {
            return;
        };
        let (this, plugin) = (self.clone(), plugin.clone());
        self.tasks.spawn(async move {
            let stores = Stores {
                database: &this.database,
                cache: &this.cache,
            };
            let now = this.clock.now();
            let outcome = this
                .plugins
                .quarantine(stores, &plugin, suspicion, is_guard, now);
            match outcome.await {
                Some(QuarantineResult::Instead(_) | QuarantineResult::Refuses) => {
                    this.metrics.quarantine(&plugin);
                }
                Some(QuarantineResult::LastSound { .. }) => {
                    this.metrics.quarantine_withheld(&plugin)
                }
                None => {}
            }
        });
    }
}
