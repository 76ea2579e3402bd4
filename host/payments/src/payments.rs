//! [`Payments`]: the state that all functions of payments share.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use http::HeaderName;
use weir_ledger::{AccountId, Ledger};
use weir_storage::cache::CacheError;
use weir_storage::clock::Clock;
use weir_storage::expiring::ExpiringValues;
use weir_storage::secrets::Secret;
use weir_storage::{Cache, Database};
use weir_telemetry::spans::Tracer;

use crate::account_caches::AccountCaches;
use crate::arrivals::Arrivals;
use crate::local::{LocalParts, LocalProcessor};
use crate::metrics::PaymentMetrics;
use crate::processor::Processor;
use crate::settings::{PaymentSecrets, PaymentSettings, ProcessorName};
use crate::store::PaymentStore;
use crate::stripe::{Stripe, StripeTimeouts};
use crate::terms::ProcessorError;

/// Payments of a gateway. Cheap to clone.
#[derive(Clone)]
pub struct Payments(Arc<PaymentState>);

/// The parts of a gateway that payments use.
pub struct PaymentParts {
    /// The settings of `[payments]`.
    pub settings: PaymentSettings,
    /// The secrets that the settings name.
    pub secrets: PaymentSecrets,
    /// Whether the gateway runs in development mode.
    pub is_dev: bool,
    /// The database of customers, payments, events and notices.
    pub database: Database,
    /// The cache, which has copies of accounts.
    pub cache: Cache,
    /// Functions that drop these copies.
    pub account_caches: AccountCaches,
    /// The clock of the local processor. Everything else uses the clock of the ledger.
    pub clock: Clock,
    /// The accounts and their credits.
    pub ledger: Ledger,
    /// The recorder of spans.
    pub tracer: Tracer,
    /// The figures of payments.
    pub metrics: Arc<PaymentMetrics>,
}

/// Pages on which users buy plans and credits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuyingPages {
    /// URL of the page for plans.
    pub upgrade: String,
    /// URL of the page for credits.
    pub top_up: String,
}

/// The fields behind [`Payments`].
pub struct PaymentState {
    /// The settings of `[payments]`.
    pub settings: PaymentSettings,
    pub processor: Processor,
    /// Customers of the processor and open checkout pages.
    pub store: PaymentStore,
    pub signature_header: HeaderName,
    /// Secrets of webhook signatures: one, or two during a rotation; none without a processor.
    pub webhook_secrets: Vec<Secret>,
    /// Secret that signs notices; `None` without `payments.notice_secret`.
    pub notice_secret: Option<Secret>,
    /// Tasks that wait for events.
    pub arrivals: Arrivals,
    /// The accounts and their credits.
    pub ledger: Ledger,
    pub(crate) database: Database,
    cache: Cache,
    account_caches: AccountCaches,
    pub(crate) tracer: Tracer,
    pub(crate) metrics: Arc<PaymentMetrics>,
    /// The address of the public listener, once it listens.
    address: Arc<OnceLock<SocketAddr>>,
    is_dev: bool,
}

impl Deref for Payments {
    type Target = PaymentState;

    fn deref(&self) -> &PaymentState {
        &self.0
    }
}

impl Payments {
    /// Builds payments from their parts.
    ///
    /// # Errors
    ///
    /// A setting is invalid. [`PaymentSettings::problems`] names it with a better message.
    pub fn new(parts: PaymentParts) -> anyhow::Result<Self> {
        parts.secrets.check_notice()?;
        let signature_header: HeaderName = parts.settings.signature_header.parse()?;
        let address = Arc::<OnceLock<SocketAddr>>::default();
        let processor = build_processor(&parts, &signature_header, &address)?;
        Ok(Self(Arc::new(PaymentState {
            processor,
            store: PaymentStore::new(parts.database.clone()),
            signature_header,
            settings: parts.settings,
            webhook_secrets: parts.secrets.webhooks,
            notice_secret: parts.secrets.notice,
            arrivals: Arrivals::default(),
            ledger: parts.ledger,
            database: parts.database,
            cache: parts.cache,
            account_caches: parts.account_caches,
            tracer: parts.tracer,
            metrics: parts.metrics,
            address,
            is_dev: parts.is_dev,
        })))
    }

    /// Notes the address of the public listener, which serves weir's own pages.
    pub fn serves_at(&self, address: SocketAddr) {
        // A second call has the same address.
        let _ = self.address.set(address);
    }

    /// The pages for plans and credits: the configured pages, or else the console's. URLs of the console are absolute in
    /// development mode, because weir knows its address there, and paths otherwise.
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

    /// Drops copies of a user's plan from the cache. The caller changes the plan afterwards.
    pub(crate) async fn drop_plan(&self, user_id: &str) -> Result<(), CacheError> {
        (self.account_caches.drop_plan)(&self.cache, user_id).await
    }

    /// Drops an account's usage summary from the cache, after its credits have changed.
    pub(crate) async fn drop_summary(&self, account: &AccountId) {
        (self.account_caches.drop_summary)(&self.cache, account).await;
    }

    /// A configured URL, or a page of weir in development mode.
    pub(crate) fn page(
        &self,
        configured: Option<&String>,
        name: &str,
    ) -> Result<String, ProcessorError> {
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

fn build_processor(
    parts: &PaymentParts,
    signature_header: &HeaderName,
    address: &Arc<OnceLock<SocketAddr>>,
) -> anyhow::Result<Processor> {
    let PaymentParts {
        settings, secrets, ..
    } = parts;
    Ok(
        match (settings.processor(parts.is_dev), &secrets.secret_key) {
            (ProcessorName::Stripe, Some(key)) => Processor::Stripe(Stripe::new(
                &settings.api_base,
                key,
                StripeTimeouts::default(),
            )?),
            (ProcessorName::Local, _) => Processor::Local(LocalProcessor::new(LocalParts {
                values: ExpiringValues::new(parts.database.clone(), parts.cache.clone()),
                clock: parts.clock.clone(),
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
        },
    )
}
