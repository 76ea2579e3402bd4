//! Payments: how users buy plans and credits, and what the processor's events come to.
//!
//! **Invariant:** nothing is credited because somebody was sent to pay, or came back from there: only the processor's
//! signed events, and its answers to charges, say that something was paid.
//! **Invariant:** nothing is asked of the processor that must happen once but under an idempotency key that is written down
//! before, so that whoever asks again asks for the same thing.
//!
//! To sell something else, edit [`offers`]; to change what it costs, the configuration ([`settings`]); to speak with another
//! processor, [`processor`].

pub mod admin;
pub mod arrivals;
pub mod auto_top_up;
pub mod checkout;
pub mod effects;
pub mod events;
pub mod inbox;
mod keyed_tasks;
pub mod local;
pub mod notices;
pub mod offers;
pub mod processor;
pub mod reconcile;
pub mod routes;
pub mod settings;
pub mod signature;
mod spans;
pub mod store;
pub mod stripe;
pub mod terms;
pub mod webhook;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use http::HeaderName;
use weir_storage::clock::Clock;
use weir_storage::expiring::ExpiringValues;
use weir_storage::secrets::Secret;
use weir_storage::{Cache, Database};

use self::arrivals::Arrivals;
use self::local::Local;
use self::processor::Processor;
use self::settings::{PaymentSecrets, PaymentSettings, ProcessorName};
use self::store::PaymentStore;
use self::stripe::{Pace, Stripe};
use self::terms::ProcessorError;

/// What payments share. Cheap to clone.
#[derive(Clone)]
pub struct Payments(Arc<Shared>);

/// Where payments keep what they know, and by which clock.
pub struct PaymentStores {
    /// The database.
    pub database: Database,
    /// The cache.
    pub cache: Cache,
    /// The clock.
    pub clock: Clock,
}

/// Where users buy what they lack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuyingPages {
    /// The page for plans.
    pub upgrade: String,
    /// The page for credits.
    pub top_up: String,
}

/// The fields behind [`Payments`].
pub struct Shared {
    /// The settings.
    pub settings: PaymentSettings,
    /// Who takes the money.
    pub processor: Processor,
    /// Who users are to the processor, and where they were sent to pay.
    pub store: PaymentStore,
    /// The header in which webhooks have their signature.
    pub signature_header: HeaderName,
    /// What they are signed with: one secret, or two; none where there is no processor.
    pub webhook_secrets: Vec<Secret>,
    /// What notices are signed with; there is one where they have a URL to go to.
    pub notice_secret: Option<Secret>,
    /// Where this gateway listens, when it does.
    address: Arc<OnceLock<SocketAddr>>,
    is_dev: bool,
    /// Who waits for events.
    pub arrivals: Arrivals,
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
    /// The settings do not fit, which their `problems` say better.
    pub fn new(
        settings: PaymentSettings,
        secrets: PaymentSecrets,
        is_dev: bool,
        stores: PaymentStores,
    ) -> anyhow::Result<Self> {
        if let Some(secret) = &secrets.notice {
            notices::check_secret(secret)?;
        }
        let PaymentStores {
            database,
            cache,
            clock,
        } = stores;
        let signature_header: HeaderName = settings.signature_header.parse()?;
        let address = Arc::<OnceLock<SocketAddr>>::default();
        let processor = match (settings.processor(is_dev), &secrets.secret_key) {
            (ProcessorName::Stripe, Some(key)) => {
                Processor::Stripe(Stripe::new(&settings.api_base, key, Pace::default())?)
            }
            (ProcessorName::Local, _) => Processor::Local(Local::new(local::LocalParts {
                values: ExpiringValues::new(database.clone(), cache),
                clock,
                settings: settings.clone(),
                header: signature_header.clone(),
                secret: secrets
                    .webhooks
                    .first()
                    .cloned()
                    .context("the local processor has a secret")?,
                address: address.clone(),
            })?),
            _ => Processor::None,
        };
        Ok(Self(Arc::new(Shared {
            processor,
            store: PaymentStore::new(database),
            signature_header,
            settings,
            webhook_secrets: secrets.webhooks,
            notice_secret: secrets.notice,
            address,
            is_dev,
            arrivals: Arrivals::default(),
        })))
    }

    /// Notes where this gateway listens: where its own pages are.
    pub fn serves_at(&self, address: SocketAddr) {
        // Whoever serves it twice does so at one address.
        let _ = self.address.set(address);
    }

    /// The pages where a user buys a plan, and credits: the configured ones, or else the console's. The console's are absolute
    /// in development, where its address is known, and paths otherwise.
    pub fn buying_pages(&self) -> BuyingPages {
        let origin = match self.address.get() {
            Some(address) if self.is_dev => format!("http://{address}"),
            _ => String::new(),
        };
        let page = |configured: &Option<String>, part: &str| {
            let own = || format!("{origin}/console/money#{part}");
            configured.clone().unwrap_or_else(own)
        };
        BuyingPages {
            upgrade: page(&self.settings.upgrade_url, "plan"),
            top_up: page(&self.settings.topup_url, "credits"),
        }
    }

    /// A configured address, or that of a page of weir's in development.
    fn page(&self, configured: Option<&String>, name: &str) -> Result<String, ProcessorError> {
        if let Some(url) = configured {
            return Ok(url.clone());
        }
        match self.address.get() {
            Some(address) if self.is_dev => Ok(format!("http://{address}/dev/payments/{name}")),
            _ => Err(ProcessorError::unavailable(
                "it is not known where to send users after it",
            )),
        }
    }
}
