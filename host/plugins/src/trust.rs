//! Trust in components: the publishers of `[plugins.publishers]`, and the setting for unsigned components.
//!
//! **Invariant:** a component with an invalid signature is refused, even if unsigned components are allowed: the
//! removal of a signature never improves a component's standing, and a forged one worsens it. If unsigned components
//! are allowed, a genuine signature by an unconfigured key counts as none.
//!
//! A bundled component is trusted as the binary is, and not checked here.

use std::collections::BTreeMap;

use weir_errors::ErrorCode;
use weir_sandbox::Digest;

use super::component::Plugin;
use super::settings::PublisherSettings;
use super::signature::{PublisherKey, Signature};

/// The publishers that a gateway knows.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    publishers: BTreeMap<String, PublisherSettings>,
    allow_unsigned: bool,
}

/// The signer and version of a component; `None` if unsigned components are allowed.
pub(super) type ComponentSigner = Option<ValidSignature>;

#[derive(Debug, Clone)]
pub(super) struct ValidSignature {
    pub publisher: String,
    pub signature: Signature,
}

/// The reason that a component is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The component has no signature.
    #[error(
        "the component has no signature, and unsigned components are refused: sign it with `weir plugin sign`, or set \
         `plugins.allow_unsigned = true`"
    )]
    Unsigned,
    /// The signature is for other bytes.
    #[error(
        "its signature is for other bytes: for the digest {signed}, while the component's is {actual}"
    )]
    OtherDigest {
        signed: Digest,
        /// The component's digest.
        actual: Digest,
    },
    /// The signature is for another slot.
    #[error("its signature is for the slot {signed:?}, and not for {slot:?}")]
    OtherSlot {
        /// The signed slot.
        signed: String,
        slot: String,
    },
    /// No publisher has the key.
    #[error(
        "the component is signed with the key {0}, which no configured publisher has: see `[plugins.publishers]`"
    )]
    UnknownKey(PublisherKey),
    /// The key has not signed this component.
    #[error("its signature is invalid: the key of the publisher {0:?} did not make it")]
    Forged(String),
    /// The publisher may not fill the slot.
    #[error(
        "the publisher {publisher:?} may not fill the slot {slot:?}: see `plugins.publishers.{publisher}.slots`"
    )]
    NotItsSlot { publisher: String, slot: String },
    /// The signature is malformed.
    #[error("its signature cannot be read: {0}")]
    Unreadable(String),
    /// The component's description differs from its signature.
    #[error("its signature is for the {signed}, and its description is of the {described}")]
    OtherDescription {
        /// By the signature.
        signed: String,
        /// By the description.
        described: String,
    },
}

impl TrustError {
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
    /// Trusts these publishers, and unsigned components if `allow_unsigned`.
    pub fn new(publishers: BTreeMap<String, PublisherSettings>, allow_unsigned: bool) -> Self {
        Self {
            publishers,
            allow_unsigned,
        }
    }

    /// Returns the publisher that vouches for a component in a slot. The check uses only the digest: an untrusted
    /// component is neither parsed nor run.
    pub(super) fn check(
        &self,
        slot: &str,
        digest: Digest,
        signature: Option<Signature>,
    ) -> Result<ComponentSigner, TrustError> {
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
            true => Ok(Some(ValidSignature {
                publisher,
                signature,
            })),
            false => Err(TrustError::NotItsSlot {
                publisher,
                slot: slot.to_owned(),
            }),
        }
    }

    /// Returns the publisher of a signature of any slot.
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

/// Checks that a component's description equals its signature.
pub(super) fn check_description(
    voucher: Option<&ValidSignature>,
    plugin: &Plugin,
) -> Result<(), TrustError> {
    let Some(ValidSignature { signature, .. }) = voucher else {
        return Ok(());
    };
    let signed = format!("{} {}", signature.kind.as_str(), signature.version);
    let described = format!("{} {}", plugin.kind().as_str(), plugin.version());
    match signed == described {
        true => Ok(()),
        false => Err(TrustError::OtherDescription { signed, described }),
    }
}
