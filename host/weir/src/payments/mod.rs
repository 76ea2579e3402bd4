//! Payments: how users buy plans and credits, and what the processor's events come to.
//!
//! **Invariant:** nothing is credited because somebody was sent to pay, or came back from there: only the processor's
//! signed events, and its answers to charges, say that something was paid.
//! **Invariant:** nothing is asked of the processor that must happen once but under an idempotency key that is written down
//! before, so that whoever asks again asks for the same thing.
//!
//! To sell something else, edit [`offers`]; to change its price, the configuration ([`settings`]).

pub mod offers;
pub mod settings;
pub mod signature;

use std::ops::Deref;
use std::sync::Arc;

use http::HeaderName;
use weir_storage::secrets::Secret;

use self::settings::{PaymentSecrets, PaymentSettings};

/// What payments share. Cheap to clone.
#[derive(Clone)]
pub struct Payments(Arc<Shared>);

/// The fields behind [`Payments`].
pub struct Shared {
    /// The settings.
    pub settings: PaymentSettings,
    /// The header in which webhooks have their signature.
    pub signature_header: HeaderName,
    /// What they are signed with: one secret, or two; none where there is no processor.
    pub webhook_secrets: Vec<Secret>,
    /// What notices are signed with; there is one where they have a URL to go to.
    pub notice_secret: Option<Secret>,
}

impl Deref for Payments {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Payments {
    /// Payments by these settings.
    ///
    /// # Errors
    ///
    /// The signature's header is none.
    pub fn new(settings: PaymentSettings, secrets: PaymentSecrets) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Shared {
            signature_header: settings.signature_header.parse()?,
            settings,
            webhook_secrets: secrets.webhooks,
            notice_secret: secrets.notice,
        })))
    }
}
