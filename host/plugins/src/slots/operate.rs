//! Operators' changes: install, activate, begin a canary, roll back, remove. Also quarantine, which weir does by
//! itself.

use bytes::Bytes;
use weir_sandbox::loading::UploadedComponent;
use weir_sandbox::{Digest, LoadError};
use weir_storage::clock::Millis;
use weir_storage::{Cache, Database};

use super::Plugins;
use super::desired_slots::read_signature;
use crate::canary::CanaryTerms;
use crate::counters::Suspicion;
use crate::policy::SlotPolicy;
use crate::signature::Signature;
use crate::store::{self, ActivationCandidate, NewPlugin, QuarantineResult, SlotChange};
use crate::trust::{ComponentSigner, check_description};
use crate::{OperationError, Permissions, Plugin, PluginKind};

/// The actor of changes that weir makes by itself.
pub(super) const ITSELF: &str = "weir";

/// The stores of changes and announcements.
#[derive(Clone, Copy)]
pub struct Stores<'a> {
    /// The database of changes.
    pub database: &'a Database,
    /// The cache that announces them to other nodes.
    pub cache: &'a Cache,
}

/// The slot, actor and time of a change.
#[derive(Debug, Clone)]
pub struct SlotOperation {
    /// The slot's name.
    pub slot: String,
    /// The actor, e.g. `user:usr_…`.
    pub actor: String,
    /// The moment of the change.
    pub at: Millis,
}

impl SlotOperation {
    fn change(&self) -> SlotChange<'_> {
        SlotChange {
            slot: &self.slot,
            actor: &self.actor,
            at: self.at,
        }
    }
}

pub struct ComponentOffer {
    pub bytes: Bytes,
    /// Its publisher's signature.
    pub signature: Option<Signature>,
    /// The operator's permissions.
    pub permissions: Permissions,
}

#[derive(Debug, Clone)]
pub struct InstalledComponent {
    pub digest: Digest,
    pub name: String,
    pub version: String,
    /// The publisher that signed it.
    pub publisher: Option<String>,
    /// The component was not installed before.
    pub is_new: bool,
}

impl Plugins {
    /// Checks a component and installs it. `fits` returns the reason that it does not fit this gateway, if there is
    /// one.
    pub async fn install(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &SlotOperation,
        offer: ComponentOffer,
        fits: impl AsyncFnOnce(&Plugin) -> Result<(), OperationError>,
    ) -> Result<InstalledComponent, OperationError> {
        let slot = &*operation.slot;
        let bytes = offer.bytes;
        let arrived = UploadedComponent::new(bytes.clone()).await;
        let signed = self.vouched_for(slot, arrived.digest, offer.signature)?;
        let plugin = self.admit(self.load_arrived(slot, arrived).await?);
        check_description(signed.as_ref(), &plugin)?;
        if let Some(kind) = self.kind_of(slot, &self.wanted(database).await?) {
            check_kind(kind, plugin.kind())?;
        }
        let is_another = plugin.name() != slot && self.serving().contains_key(plugin.name());
        if is_another {
            return Err(LoadError::NameOfAnother(plugin.name().to_owned()).into());
        }
        fits(&plugin).await?;
        let new = NewPlugin {
            digest: plugin.digest(),
            kind: plugin.kind(),
            name: plugin.name(),
            version: plugin.version(),
            wit_version: plugin.contract(),
            description: &plugin.description().to_string(),
            bytes: &bytes,
            signed: signed.as_ref(),
        };
        // The bundled component is there already.
        let is_new = self.bundled_digest(slot) != Some(new.digest)
            && store::install(database, operation.change(), &new, offer.permissions).await?;
        // A signature may have arrived that lets it load here.
        let key = (slot.to_owned(), new.digest);
        self.lock_synced().failed.remove(&key);
        self.after_change(database, cache, slot).await;
        Ok(InstalledComponent {
            digest: new.digest,
            name: new.name.to_owned(),
            version: new.version.to_owned(),
            publisher: signed.map(|voucher| voucher.publisher),
            is_new,
        })
    }

    /// Activates a component that is installed in the slot, or bundled. `fits` returns the reason that it does not
    /// fit this gateway, if there is one.
    pub async fn activate(
        &self,
        stores: Stores<'_>,
        operation: &SlotOperation,
        digest: Digest,
        permissions: Permissions,
        fits: impl AsyncFnOnce(&Plugin) -> Result<(), OperationError>,
    ) -> Result<(), OperationError> {
        self.put_in(stores, operation, digest, None, permissions, fits)
            .await
    }

    /// Starts a component as a canary for a share of a slot's accounts, with the checks of [`Self::activate`].
    pub async fn start_canary(
        &self,
        stores: Stores<'_>,
        operation: &SlotOperation,
        digest: Digest,
        terms: CanaryTerms,
        permissions: Permissions,
        fits: impl AsyncFnOnce(&Plugin) -> Result<(), OperationError>,
    ) -> Result<(), OperationError> {
        self.put_in(stores, operation, digest, Some(terms), permissions, fits)
            .await
    }

    /// Puts a component into service: as a canary if there are terms for one.
    async fn put_in(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &SlotOperation,
        digest: Digest,
        terms: Option<CanaryTerms>,
        permissions: Permissions,
        fits: impl AsyncFnOnce(&Plugin) -> Result<(), OperationError>,
    ) -> Result<(), OperationError> {
        let (slot, change) = (&*operation.slot, operation.change());
        let component = self.find(database, slot, digest).await?;
        fits(&component).await?;
        let version = component.version().to_owned();
        let _ready = self.make_ready(slot, component);
        let bundled = self.bundled_digest(slot);
        let signed = self.signed(database, slot, digest).await?;
        let candidate = ActivationCandidate {
            digest,
            version: &version,
            signed: signed.as_ref(),
        };
        match terms {
            None => store::activate(database, change, candidate, bundled, permissions).await?,
            Some(terms) => {
                store::start_canary(database, change, candidate, terms, bundled, permissions)
                    .await?;
            }
        }
        self.after_change(database, cache, slot).await;
        Ok(())
    }

    /// Rolls a slot back to its earlier component, or ends its canary, if it has one. Returns the component that
    /// serves. With `from`, only if the rollback would take that component back. `fits` is as in [`Self::activate`].
    pub async fn roll_back(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &SlotOperation,
        from: Option<Digest>,
        fits: impl AsyncFnOnce(&Plugin) -> Result<(), OperationError>,
    ) -> Result<Digest, OperationError> {
        let slot = &*operation.slot;
        let bundled = self.of_binary(slot);
        let wanted = self.wanted(database).await?;
        let target = match wanted.canary(slot) {
            Some(_) => None,
            None => wanted.previous(slot, bundled),
        };
        let _ready = match target {
            // Loaded before any write: a component that no longer loads is no target of a rollback.
            Some(target) => {
                let component = self.find(database, slot, target).await?;
                fits(&component).await?;
                Some(self.make_ready(slot, component))
            }
            None => None,
        };
        let digest = store::roll_back(database, operation.change(), bundled, from).await?;
        self.after_change(database, cache, slot).await;
        Ok(digest)
    }

    /// Sets a slot's permitted versions, and its reaction to a quarantine.
    pub async fn set_policy(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &SlotOperation,
        policy: &SlotPolicy,
    ) -> Result<(), OperationError> {
        let bundled = self.of_binary(&operation.slot);
        store::set_policy(database, operation.change(), policy, bundled).await?;
        self.after_change(database, cache, &operation.slot).await;
        Ok(())
    }

    /// Removes a component that its slot does not serve with.
    pub async fn remove(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &SlotOperation,
        digest: Digest,
    ) -> Result<(), OperationError> {
        let bundled = self.bundled_digest(&operation.slot);
        store::remove(database, operation.change(), digest, bundled).await?;
        self.after_change(database, cache, &operation.slot).await;
        Ok(())
    }

    /// Returns the publisher that vouches for an offered component; a bundled one needs none.
    fn vouched_for(
        &self,
        slot: &str,
        digest: Digest,
        signature: Option<Signature>,
    ) -> Result<ComponentSigner, OperationError> {
        match self.bundled_digest(slot) == Some(digest) {
            true => Ok(None),
            false => Ok(self.0.trust.check(slot, digest, signature)?),
        }
    }

    /// Returns the publisher that vouches for an installed component.
    async fn signed(
        &self,
        database: &Database,
        slot: &str,
        digest: Digest,
    ) -> Result<ComponentSigner, OperationError> {
        let kept = store::signature(database, slot, digest).await?;
        self.vouched_for(slot, digest, read_signature(kept)?)
    }

    /// Quarantines a component that has failed too often, unless no other is sound. `None` if it no longer serves, or
    /// a write failed: then it continues to serve, and its next failures retry. A slot that guards refuses requests
    /// then, rather than serve with an earlier component.
    pub async fn quarantine(
        &self,
        Stores { database, cache }: Stores<'_>,
        culprit: &Plugin,
        suspicion: Suspicion,
        is_guard: bool,
        at: Millis,
    ) -> Option<QuarantineResult> {
        let (slot, digest) = (&**culprit.slot(), culprit.digest());
        let bundled = self.of_binary(slot);
        let change = SlotChange {
            slot,
            actor: ITSELF,
            at,
        };
        let detail = suspicion.to_string();
        let outcome = store::quarantine(database, change, digest, bundled, is_guard, &detail).await;
        let outcome = outcome.unwrap_or_else(|error| {
            tracing::error!(slot, %error, "putting a plugin into quarantine");
            None
        });
        match outcome {
            Some(QuarantineResult::Instead(instead)) => {
                tracing::error!(slot, %digest, %instead, "a plugin is in quarantine: {suspicion}");
            }
            Some(QuarantineResult::Refuses) => tracing::error!(
                slot,
                %digest,
                "a plugin is in quarantine, and its slot refuses requests until a component is activated: {suspicion}"
            ),
            Some(QuarantineResult::LastSound { is_news: true }) => tracing::error!(
                slot,
                %digest,
                "a quarantine is withheld, since the slot has no other sound component: {suspicion}"
            ),
            Some(QuarantineResult::LastSound { is_news: false }) => return outcome,
            None => {}
        }
        self.after_change(database, cache, slot).await;
        outcome
    }
}

/// Returns whether a slot of one kind accepts a component of another.
fn check_kind(slot: PluginKind, component: PluginKind) -> Result<(), OperationError> {
    if slot == component {
        return Ok(());
    }
    Err(OperationError::OtherKind {
        slot: slot.as_str(),
        component: component.as_str(),
    })
}
