//! What each exchange and each call of a tool says of its component: counted, and acted upon where it failed too often.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::task::TaskTracker;
use weir_ledger::AccountId;
use weir_storage::clock::Clock;
use weir_storage::{Cache, Database};

use super::canary::samples::Sampler;
use super::component::Plugin;
use super::counters::{Ended, FilterEffects};
use super::slots::{Plugins, Stores};
use super::store::Quarantined;
use crate::metrics::PluginMetrics;

/// Who watches over components at work. Cheap to clone.
#[derive(Clone)]
pub struct Oversight {
    /// The slots.
    pub plugins: Plugins,
    /// Where a quarantine is written.
    pub database: Database,
    /// Where other nodes hear of it.
    pub cache: Cache,
    /// What gives it its time.
    pub clock: Clock,
    /// Figures for Prometheus.
    pub metrics: Arc<PluginMetrics>,
    /// Where it is awaited by a gateway that stops.
    pub tasks: TaskTracker,
    /// `plugins.quarantine_traps`.
    pub max_traps: u32,
}

/// What is noted of an exchange, or a call of a tool.
pub struct Noted<'a> {
    /// How it ended.
    pub ended: Ended,
    /// How long it took.
    pub took: Duration,
    /// What it did to the request and its answer, where it is a filter.
    pub effects: Option<FilterEffects>,
    /// Whether the requests of its slot are refused without it, so that what it should stop must not pass.
    pub is_guard: bool,
    /// How long it took until the first of the answer, where that was streamed.
    pub first_token: Option<Duration>,
    /// Where it counts, if its slot has a canary.
    pub sampler: Option<&'a Sampler>,
}

impl Oversight {
    /// Counts an exchange, and takes a component out of service that has failed too often.
    pub fn note(&self, plugin: &Plugin, account: &AccountId, exchange: Noted<'_>) {
        let Noted {
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
            self.metrics.filter_effects(plugin, effects);
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
                Some(Quarantined::Instead(_) | Quarantined::Refuses) => {
                    this.metrics.quarantine(&plugin);
                }
                Some(Quarantined::LastSound { .. }) => this.metrics.quarantine_withheld(&plugin),
                None => {}
            }
        });
    }
}
