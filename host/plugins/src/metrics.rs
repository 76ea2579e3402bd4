//! The figures of plugins for Prometheus. Labels are names of slots and models, and digests of components, never a client's
//! data.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use weir_telemetry::LATENCY_BUCKETS_SECONDS;
use weir_telemetry::label::LabelText;

use crate::component::Plugin;
use crate::counters::{ExchangeEnd, FilterEffects};

/// The figures of one node.
#[derive(Debug)]
pub struct PluginMetrics {
    first_token: Family<PluginLabels, Histogram, fn() -> Histogram>,
    exchanges: Family<ExchangeLabels, Counter>,
    latency: Family<PluginLabels, Histogram, fn() -> Histogram>,
    filter_effects: Family<FilterLabels, Counter>,
    quarantines: Family<PluginLabels, Counter>,
    quarantines_withheld: Family<PluginLabels, Counter>,
    canary_share: Family<PluginLabels, Gauge<f64, AtomicU64>>,
    canaries_rolled_back: Family<PluginLabels, Counter>,
    canaries_promoted: Family<PluginLabels, Counter>,
    clamps: Family<ClampLabels, Counter>,
    clamped_usd: Family<ClampLabels, Counter<f64, AtomicU64>>,
}

/// The end of a canary by weir itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanaryEnd {
    /// The canary was worse.
    RolledBack,
    /// The canary did well for long enough.
    Promoted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    slot: LabelText,
    digest: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClampLabels {
    slot: LabelText,
    digest: LabelText,
    /// The model's id in the catalog.
    model: LabelText,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExchangeLabels {
    slot: LabelText,
    digest: LabelText,
    /// `ok`, `error`, `fault` or `trap`.
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FilterLabels {
    slot: LabelText,
    digest: LabelText,
    /// `refused`, `changed` or `stopped`.
    effect: &'static str,
}

impl PluginMetrics {
    /// Registers all figures, at zero.
    pub fn register(registry: &mut Registry) -> Self {
        let first_token: Family<_, _, fn() -> _> =
            Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS_SECONDS));
        registry.register_with_unit(
            "plugin_first_token",
            "Time to the first token of a streamed response",
            Unit::Seconds,
            first_token.clone(),
        );
        let exchanges = Family::default();
        registry.register(
            "plugin_exchanges",
            "Exchanges of each component, or calls of a tool, by outcome",
            exchanges.clone(),
        );
        let latency: Family<_, _, fn() -> _> =
            Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS_SECONDS));
        registry.register_with_unit(
            "plugin_exchange",
            "Duration of exchanges",
            Unit::Seconds,
            latency.clone(),
        );
        let filter_effects = Family::default();
        registry.register(
            "filter_effects",
            "Requests of a filter by its effect on the request and its response",
            filter_effects.clone(),
        );
        let quarantines = Family::default();
        registry.register(
            "plugin_quarantines",
            "Components that this node put into quarantine for their faults",
            quarantines.clone(),
        );
        let quarantines_withheld = Family::default();
        registry.register(
            "plugin_quarantines_withheld",
            "Faulty components that stayed active because their slot has no other sound component",
            quarantines_withheld.clone(),
        );
        let canary_share = Family::default();
        registry.register(
            "plugin_canary_share",
            "Share of accounts that a slot's canary serves on this node, from 0 to 1",
            canary_share.clone(),
        );
        let canaries_rolled_back = Family::default();
        registry.register(
            "plugin_canaries_rolled_back",
            "Canaries that this node ended because they were worse than the active component",
            canaries_rolled_back.clone(),
        );
        let canaries_promoted = Family::default();
        registry.register(
            "plugin_canaries_promoted",
            "Canaries that this node promoted because they did well for long enough",
            canaries_promoted.clone(),
        );
        let clamps = Family::default();
        registry.register(
            "plugin_clamps",
            "Responses of a component whose usage or number of items weir lowered or raised",
            clamps.clone(),
        );
        let clamped_usd = Family::default();
        registry.register(
            "plugin_clamped_usd",
            "Price, in USD at the provider, of reported usage that weir did not charge",
            clamped_usd.clone(),
        );
        Self {
            first_token,
            exchanges,
            latency,
            filter_effects,
            quarantines,
            quarantines_withheld,
            canary_share,
            canaries_rolled_back,
            canaries_promoted,
            clamps,
            clamped_usd,
        }
    }

    /// Counts a clamped response to a request for a model. `nano_usd` is the provider's price of the uncharged usage.
    pub fn clamp(&self, plugin: &Plugin, model: &str, nano_usd: i64) {
        let PluginLabels { slot, digest } = labels(plugin);
        let labels = ClampLabels {
            slot,
            digest,
            model: model.into(),
        };
        self.clamps.get_or_create(&labels).inc();
        let usd = nano_usd as f64 / 1e9;
        self.clamped_usd.get_or_create(&labels).inc_by(usd);
    }

    /// Sets the canaries of this node with their shares, and removes all others.
    pub fn canaries(&self, canaries: impl Iterator<Item = (Plugin, f64)>) {
        self.canary_share.clear();
        for (plugin, share) in canaries {
            self.canary_share.get_or_create(&labels(&plugin)).set(share);
        }
    }

    /// Counts a canary that weir itself ended.
    pub fn canary_end(&self, plugin: &Plugin, end: CanaryEnd) {
        let family = match end {
            CanaryEnd::RolledBack => &self.canaries_rolled_back,
            CanaryEnd::Promoted => &self.canaries_promoted,
        };
        family.get_or_create(&labels(plugin)).inc();
    }

    /// Counts an exchange, or a call of a tool; `first_token` if the response was streamed.
    pub fn exchange(
        &self,
        plugin: &Plugin,
        ended: ExchangeEnd,
        took: Duration,
        first_token: Option<Duration>,
    ) {
        let labels = labels(plugin);
        if let Some(first_token) = first_token {
            let histogram = self.first_token.get_or_create(&labels);
            histogram.observe(first_token.as_secs_f64());
        }
        let histogram = self.latency.get_or_create(&labels);
        histogram.observe(took.as_secs_f64());
        let PluginLabels { slot, digest } = labels;
        let outcome = match ended {
            ExchangeEnd::Well => "ok",
            ExchangeEnd::InError => "error",
            ExchangeEnd::InFault => "fault",
            ExchangeEnd::InTrap => "trap",
        };
        let exchanges = ExchangeLabels {
            slot,
            digest,
            outcome,
        };
        self.exchanges.get_or_create(&exchanges).inc();
    }

    /// Counts the effects of a filter on a request and its response. One request may have several.
    pub fn filter_effects(&self, plugin: &Plugin, effects: FilterEffects, ended: ExchangeEnd) {
        let PluginLabels { slot, digest } = labels(plugin);
        let failed = ended != ExchangeEnd::Well;
        for (effect, has) in [
            ("passed", !failed && effects == FilterEffects::default()),
            ("refused", effects.refused),
            ("changed", effects.changed),
            ("stopped", effects.stopped),
            ("answered", effects.answered),
            ("failed", failed),
        ] {
            let labels = FilterLabels {
                slot: slot.clone(),
                digest: digest.clone(),
                effect,
            };
            // Creates the series of a filter without effects, at zero.
            let counter = self.filter_effects.get_or_create(&labels);
            counter.inc_by(has.into());
        }
    }

    /// Counts a component that this node put into quarantine.
    pub fn quarantine(&self, plugin: &Plugin) {
        self.quarantines.get_or_create(&labels(plugin)).inc();
    }

    /// Counts a faulty component that stayed active because its slot has no other.
    pub fn quarantine_withheld(&self, plugin: &Plugin) {
        let counter = self.quarantines_withheld.get_or_create(&labels(plugin));
        counter.inc();
    }
}

fn labels(plugin: &Plugin) -> PluginLabels {
    PluginLabels {
        slot: plugin.slot().to_string().into(),
        digest: plugin.digest().to_string().into(),
    }
}
