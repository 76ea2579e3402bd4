//! The components of a slot on this node, and the choice for a request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_ledger::AccountId;
use weir_sandbox::Digest;
use weir_storage::clock::Millis;

use crate::Plugin;
use crate::canary::samples::Sampler;
use crate::canary::{AccountHash, CanaryShare, Tally};
use crate::store::CanaryRow;

pub type ServingSlots = BTreeMap<Arc<str>, SlotComponents>;

/// The components of a slot. Cheap to clone.
#[derive(Clone, Default)]
pub struct SlotComponents {
    /// The component of all accounts except a canary's; without it the slot refuses all requests, also the canary's.
    pub(super) active: Option<Plugin>,
    pub(super) canary: Option<Arc<Canary>>,
}

/// A slot's canary, as this node serves with it.
pub(super) struct Canary {
    /// The canary's unique number.
    pub number: i64,
    pub plugin: Plugin,
    pub share: CanaryShare,
    pub since: Millis,
    pub promote_after: Option<Duration>,
    /// The canary's samples.
    pub own: Arc<Tally>,
    /// The active component's samples; `None` while the slot refuses.
    pub others: Option<Arc<Tally>>,
}

impl SlotComponents {
    /// The component of all accounts except a canary's.
    pub fn active(&self) -> Option<&Plugin> {
        self.active.as_ref()
    }

    /// Chooses the component of an account, and the sampler of its requests while there is a canary.
    pub(super) fn choose(&self, account: &AccountId) -> Option<(&Plugin, Option<Sampler>)> {
        let active = self.active.as_ref()?;
        let Some(canary) = &self.canary else {
            return Some((active, None));
        };
        let lot = AccountHash::draw(active.slot(), canary.plugin.digest(), account);
        Some(match canary.share.holds(lot) {
            true => (&canary.plugin, Some(canary.own.sampler(lot))),
            false => {
                let others = canary.others.as_ref();
                (active, others.map(|tally| tally.sampler(lot)))
            }
        })
    }

    /// Replaces the active component.
    pub(super) fn activate(&mut self, component: Option<Plugin>) {
        let digest = component.as_ref().map(Plugin::digest);
        self.active = component;
        if let Some(canary) = self.canary.take() {
            self.canary = Some(Arc::new(canary.beside(digest)));
        }
    }

    pub(super) fn begin(&mut self, row: &CanaryRow, plugin: Plugin) {
        self.canary = Some(Arc::new(Canary {
            number: row.number,
            own: Arc::new(Tally::new(plugin.digest())),
            plugin,
            share: row.share,
            since: row.since,
            promote_after: row.promote_after,
            others: self.active.as_ref().map(|active| tally(active.digest())),
        }));
    }
}

impl Canary {
    /// Returns the canary beside another active component.
    fn beside(&self, active: Option<Digest>) -> Self {
        Self {
            number: self.number,
            plugin: self.plugin.clone(),
            share: self.share,
            since: self.since,
            promote_after: self.promote_after,
            own: self.own.clone(),
            others: active.map(tally),
        }
    }

    /// Returns the tallies of this node.
    pub(super) fn tallies(&self) -> impl Iterator<Item = &Arc<Tally>> {
        [Some(&self.own), self.others.as_ref()]
            .into_iter()
            .flatten()
    }
}

fn tally(digest: Digest) -> Arc<Tally> {
    Arc::new(Tally::new(digest))
}
