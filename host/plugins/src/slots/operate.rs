//! What operators change: install, activate, begin a canary, roll back, remove; and quarantine, which nobody asks for.

use bytes::Bytes;
use weir_sandbox::loading::Arrived;
use weir_sandbox::{Digest, LoadError};
use weir_storage::clock::Millis;
use weir_storage::{Cache, Database};

use super::Plugins;
use super::wanted::read_signature;
use crate::canary::CanaryTerms;
use crate::counters::Suspicion;
use crate::policy::SlotPolicy;
use crate::signature::Signature;
use crate::store::{self, Candidate, Change, NewPlugin, Quarantined};
use crate::trust::{Signed, check_description};
use crate::{Kind, OperationError, Permissions, Plugin};

/// The actor of what nobody has asked for.
pub(super) const ITSELF: &str = "weir";

/// Where changes are written, and announced.
#[derive(Clone, Copy)]
pub struct Stores<'a> {
    /// Where they are written.
    pub database: &'a Database,
    /// Where other nodes hear of them.
    pub cache: &'a Cache,
}

/// Who changes a slot, and when.
#[derive(Debug, Clone)]
pub struct SlotOperation {
    /// The slot's name.
    pub slot: String,
    /// Who, e.g. `user:usr_…`.
    pub actor: String,
    /// The moment of the change.
    pub at: Millis,
}

impl SlotOperation {
    fn change(&self) -> Change<'_> {
        Change {
            slot: &self.slot,
            actor: &self.actor,
            at: self.at,
        }
    }
}

/// A component that is offered.
pub struct Offer {
    /// Its bytes.
    pub bytes: Bytes,
    /// Its publisher's signature.
    pub signature: Option<Signature>,
    /// What an operator allows.
    pub permissions: Permissions,
}

/// A component that was installed.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Its digest.
    pub digest: Digest,
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The publisher that signed it.
    pub publisher: Option<String>,
    /// Whether it was not there before.
    pub is_new: bool,
}

impl Plugins {
    /// Checks a component and keeps it, ready to be activated. `fits` says what keeps it from being installed in this
    /// gateway, if anything does.
    pub async fn install(
        &self,
        Stores { database, cache }: Stores<'_>,
        operation: &SlotOperation,
        offer: Offer,
        fits: impl AsyncFnOnce(&Plugin) -> Result<(), OperationError>,
    ) -> Result<Installed, OperationError> {
        let slot = &*operation.slot;
        let bytes = offer.bytes;
        let arrived = Arrived::new(bytes.clone()).await;
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
        // What the binary brings is there already.
        let is_new = self.bundled_digest(slot) != Some(new.digest)
            && store::install(database, operation.change(), &new, offer.permissions).await?;
        // A signature may have come that lets it load here.
        let key = (slot.to_owned(), new.digest);
        self.lock_synced().failed.remove(&key);
        self.after_change(database, cache, slot).await;
        Ok(Installed {
            digest: new.digest,
            name: new.name.to_owned(),
            version: new.version.to_owned(),
            publisher: signed.map(|voucher| voucher.publisher),
            is_new,
        })
    }

    /// Has a slot serve with a component that is installed in it, or that the binary brings. `fits` says what is wrong
    /// with it in this gateway, if anything is.
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

    /// Has a share of a slot's accounts served by a component as by [`Self::activate`], beside what serves the others.
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

    /// Puts a component into service: as a canary, where there are terms for one.
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
        let candidate = Candidate {
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

    /// Has a slot serve with what it served with before, or ends its canary, if it has one. Returns what serves. With `from`, only
    /// if that is what would be taken back. `fits` is as in [`Self::activate`].
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
            // Loaded before anything is written: what does not load any more is not gone back to.
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

    /// Sets what a slot may serve with, and what becomes of it in quarantine.
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

    /// Forgets a component that its slot does not serve with.
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

    /// Who vouches for an offered component; nobody needs to for what the binary brings.
    fn vouched_for(
        &self,
        slot: &str,
        digest: Digest,
        signature: Option<Signature>,
    ) -> Result<Signed, OperationError> {
        match self.bundled_digest(slot) == Some(digest) {
            true => Ok(None),
            false => Ok(self.0.trust.check(slot, digest, signature)?),
        }
    }

    /// Who vouches for an installed component.
    async fn signed(
        &self,
        database: &Database,
        slot: &str,
        digest: Digest,
    ) -> Result<Signed, OperationError> {
        let kept = store::signature(database, slot, digest).await?;
        self.vouched_for(slot, digest, read_signature(kept)?)
    }

    /// Takes a component out of service that has failed too often, unless nothing else is sound. `None` if it is out of
    /// service by now, or nothing could be written: then it goes on serving, and its next failures try again. Of a slot that guards,
    /// requests are refused then, rather than served with what was there before.
    pub async fn quarantine(
        &self,
        Stores { database, cache }: Stores<'_>,
        culprit: &Plugin,
        suspicion: Suspicion,
        is_guard: bool,
        at: Millis,
    ) -> Option<Quarantined> {
        let (slot, digest) = (&**culprit.slot(), culprit.digest());
        let bundled = self.of_binary(slot);
        let change = Change {
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
            Some(Quarantined::Instead(instead)) => {
                tracing::error!(slot, %digest, %instead, "a plugin is in quarantine: {suspicion}");
            }
            Some(Quarantined::Refuses) => tracing::error!(
                slot,
                %digest,
                "a plugin is in quarantine, and its slot refuses requests until a component is activated: {suspicion}"
            ),
            Some(Quarantined::LastSound { is_news: true }) => tracing::error!(
                slot,
                %digest,
                "a plugin should be in quarantine, but nothing else is sound in its slot: {suspicion}"
            ),
            Some(Quarantined::LastSound { is_news: false }) => return outcome,
            None => {}
        }
        self.after_change(database, cache, slot).await;
        outcome
    }
}

/// Whether a slot of one kind takes a component of another.
fn check_kind(slot: Kind, component: Kind) -> Result<(), OperationError> {
    if slot == component {
        return Ok(());
    }
    Err(OperationError::OtherKind {
        slot: slot.as_str(),
        component: component.as_str(),
    })
}
