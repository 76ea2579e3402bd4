//! What a slot serves with on this node, and which component a request gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_ledger::AccountId;
use weir_sandbox::Digest;
use weir_storage::clock::Millis;

use crate::Plugin;
use crate::canary::samples::Sampler;
use crate::canary::{CanaryShare, Lot, Tally};
use crate::store::CanaryRow;

/// What each slot serves with.
pub type Serving = BTreeMap<Arc<str>, InSlot>;

/// What a slot serves with. Cheap to clone.
#[derive(Clone, Default)]
pub struct InSlot {
    /// What serves all accounts but a canary's; without it the slot refuses, whatever its canary.
    pub(super) active: Option<Plugin>,
    pub(super) canary: Option<Arc<Canary>>,
}

/// A slot's canary, as this node serves with it.
pub(super) struct Canary {
    /// What no other canary has.
    pub number: i64,
    pub plugin: Plugin,
    pub share: CanaryShare,
    pub since: Millis,
    pub promote_after: Option<Duration>,
    /// What its requests come to.
    pub own: Arc<Tally>,
    /// What those of the others come to; nothing while the slot refuses.
    pub others: Option<Arc<Tally>>,
}

impl InSlot {
    /// What serves all, or all but the canary's accounts.
    pub fn active(&self) -> Option<&Plugin> {
        self.active.as_ref()
    }

    /// What serves an account, and where its requests count while there is a canary.
    pub(super) fn choose(&self, account: &AccountId) -> Option<(&Plugin, Option<Sampler>)> {
        let active = self.active.as_ref()?;
        let Some(canary) = &self.canary else {
            return Some((active, None));
        };
        let lot = Lot::draw(active.slot(), canary.plugin.digest(), account);
        Some(match canary.share.holds(lot) {
            true => (&canary.plugin, Some(canary.own.sampler(lot))),
            false => {
                let others = canary.others.as_ref();
                (active, others.map(|tally| tally.sampler(lot)))
            }
        })
    }

    /// Changes what serves all but the canary's accounts.
    pub(super) fn activate(&mut self, component: Option<Plugin>) {
        let digest = component.as_ref().map(Plugin::digest);
        self.active = component;
        if let Some(canary) = self.canary.take() {
            self.canary = Some(Arc::new(canary.beside(digest)));
        }
    }

    /// Begins to serve with a canary.
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
    /// The same beside another component.
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

    /// What is sampled on this node.
    pub(super) fn tallies(&self) -> impl Iterator<Item = &Arc<Tally>> {
        [Some(&self.own), self.others.as_ref()]
            .into_iter()
            .flatten()
    }
}

fn tally(digest: Digest) -> Arc<Tally> {
    Arc::new(Tally::new(digest))
}
