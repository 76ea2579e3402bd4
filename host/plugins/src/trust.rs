//! Whose components may serve: the publishers of `[plugins.publishers]`, and whether unsigned ones may.
//!
//! **Invariant:** a signature that is there holds or its component is refused, also where unsigned ones are allowed: none
//! becomes better by taking its signature away from a file, but worse by a false one. If unsigned ones are allowed, a genuine
//! signature by a key that nobody has configured counts as none.
//!
//! What the binary brings is trusted as the binary is, and not asked for here.

use std::collections::BTreeMap;

use weir_errors::ErrorCode;
use weir_sandbox::Digest;

use super::component::Plugin;
use super::settings::PublisherSettings;
use super::signature::{PublicKey, Signature};

/// The publishers that a gateway knows.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    publishers: BTreeMap<String, PublisherSettings>,
    allow_unsigned: bool,
}

/// Who signed a component, and as which version; nobody where unsigned ones are allowed.
pub(super) type Signed = Option<Voucher>;

/// A signature that holds.
#[derive(Debug, Clone)]
pub(super) struct Voucher {
    pub publisher: String,
    pub signature: Signature,
}

/// Why a component is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It has no signature.
    #[error(
        "it carries no signature, and unsigned components are refused: sign it with `weir plugin sign`, or set \
         `plugins.allow_unsigned = true`"
    )]
    Unsigned,
    /// Its signature is for other bytes.
    #[error(
        "its signature is for other bytes: for the digest {signed}, while the component's is {actual}"
    )]
    OtherDigest {
        /// For these.
        signed: Digest,
        /// It has these.
        actual: Digest,
    },
    /// Its signature is for another slot.
    #[error("its signature is for the slot {signed:?}, and not for {slot:?}")]
    OtherSlot {
        /// For this one.
        signed: String,
        /// It is to fill this one.
        slot: String,
    },
    /// No publisher has the key.
    #[error(
        "it is signed with the key {0}, which is no configured publisher's: see `[plugins.publishers]`"
    )]
    UnknownKey(PublicKey),
    /// The key has not signed this.
    #[error("its signature does not hold: the key of the publisher {0:?} did not make it")]
    Forged(String),
    /// Its publisher's slots are others.
    #[error(
        "the publisher {publisher:?} may not fill the slot {slot:?}: see `plugins.publishers.{publisher}.slots`"
    )]
    NotItsSlot {
        /// Who signed it.
        publisher: String,
        /// The slot.
        slot: String,
    },
    /// Its signature is none.
    #[error("its signature cannot be read: {0}")]
    Unreadable(String),
    /// It is not what its signature says.
    #[error("its signature is for the {signed}, and it says of itself that it is the {described}")]
    OtherDescription {
        /// By its signature.
        signed: String,
        /// By itself.
        described: String,
    },
}

impl TrustError {
    /// The code of its answer.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unsigned => ErrorCode::PluginUnsigned,
            Self::UnknownKey(_) => ErrorCode::PluginSignerUnknown,
            Self::OtherSlot { .. } => ErrorCode::PluginSignedForAnotherSlot,
            Self::NotItsSlot { .. } => ErrorCode::PluginPublisherNotAllowed,
            Self::OtherDigest { .. }
            | Self::Forged(_)
            | Self::Unreadable(_)
            | Self::OtherDescription { .. } => ErrorCode::PluginSignatureInvalid,
        }
    }
}

impl Trust {
    /// Of these publishers, and of unsigned components if they are allowed.
    pub fn new(publishers: BTreeMap<String, PublisherSettings>, allow_unsigned: bool) -> Self {
        Self {
            publishers,
            allow_unsigned,
        }
    }

    /// Who vouches for a component in a slot. Looks at its digest alone: what is not trusted is neither parsed nor run.
    pub(super) fn check(
        &self,
        slot: &str,
        digest: Digest,
        signature: Option<Signature>,
    ) -> Result<Signed, TrustError> {
        let Some(signature) = signature else {
            return match self.allow_unsigned {
                true => Ok(None),
                false => Err(TrustError::Unsigned),
            };
        };
        if signature.digest != digest {
            return Err(TrustError::OtherDigest {
                signed: signature.digest,
                actual: digest,
            });
        }
        let publisher = match self.signer(&signature) {
            Err(TrustError::UnknownKey(_)) if self.allow_unsigned && signature.is_genuine() => None,
            signer => Some(signer?),
        };
        if signature.slot != slot {
            return Err(TrustError::OtherSlot {
                signed: signature.slot,
                slot: slot.to_owned(),
            });
        }
        let Some(publisher) = publisher else {
            return Ok(None);
        };
        let is_its_slot = self
            .publishers
            .get(&publisher)
            .is_some_and(|settings| settings.slots.iter().any(|its| its == slot));
        match is_its_slot {
            true => Ok(Some(Voucher {
                publisher,
                signature,
            })),
            false => Err(TrustError::NotItsSlot {
                publisher,
                slot: slot.to_owned(),
            }),
        }
    }

    /// The publisher who made a signature, whatever it is for.
    pub fn signer(&self, signature: &Signature) -> Result<String, TrustError> {
        let signer = self
            .publishers
            .iter()
            .find(|(_, settings)| settings.keys.contains(&signature.key));
        match signer {
            None => Err(TrustError::UnknownKey(signature.key)),
            Some((name, _)) if !signature.is_genuine() => Err(TrustError::Forged(name.clone())),
            Some((name, _)) => Ok(name.clone()),
        }
    }
}

/// Whether a component is what its signature says.
pub(super) fn check_description(
    voucher: Option<&Voucher>,
    plugin: &Plugin,
) -> Result<(), TrustError> {
    let Some(Voucher { signature, .. }) = voucher else {
        return Ok(());
    };
    let signed = format!("{} {}", signature.kind.as_str(), signature.version);
    let described = format!("{} {}", plugin.kind().as_str(), plugin.version());
    match signed == described {
        true => Ok(()),
        false => Err(TrustError::OtherDescription { signed, described }),
    }
}
