//! The settings of `[payments]`.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::anyhow;
use http::HeaderName;
use serde::Deserialize;
use url::{Host, Url};
use weir_egress::webhook;
use weir_ledger::Plan;
use weir_storage::ids::Hex;
use weir_storage::secrets::{Secret, SecretKey, SecretSource, environment};

use crate::offers::{ItemPrice, PurchaseItem, TopUpTier};

/// Maximum number of active webhook secrets: the present one, and the previous or the next one.
const MAX_WEBHOOK_SECRETS: usize = 2;

/// `[payments]`: the payment processor, prices and pages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaymentSettings {
    /// `stripe`, `none`, or `local`: weir's own test pages, in development mode only. Default: `local` in development
    /// mode, else `none`.
    pub processor: Option<ProcessorName>,
    /// URL of the payment processor's API. Default: `https://api.stripe.com`.
    pub api_base: String,
    /// Secret source that authenticates weir to the payment processor. Default: none.
    pub secret_key: Option<SecretSource>,
    /// Secret sources of webhook signatures: one, or two during a rotation. Default: none.
    pub webhook_secrets: Vec<SecretSource>,
    /// Header of webhook signatures; Stripe sends `Stripe-Signature`. Default: `Payment-Signature`.
    pub signature_header: String,
    /// Page after a payment. Default: a page of weir in development mode.
    pub success_url: Option<String>,
    /// Page after a cancelled payment. Default: a page of weir in development mode.
    pub cancel_url: Option<String>,
    /// Page after the customer portal. Default: a page of weir in development mode.
    pub return_url: Option<String>,
    /// Page for buying a plan, linked by `QUOTA_EXCEEDED` errors. Default: the console's page.
    pub upgrade_url: Option<String>,
    /// Page for buying credits, linked by `QUOTA_EXCEEDED` errors. Default: the console's page.
    pub topup_url: Option<String>,
    /// Prices of plans.
    pub plans: PlanPrices,
    /// Prices of tiers.
    pub tiers: TierPrices,
    /// Your webhook for notices to users, such as failed payments, which are otherwise in the log only. Default: none.
    pub notice_url: Option<String>,
    /// Secret source that signs these notices. Default: none.
    pub notice_secret: Option<SecretSource>,
}

/// The payment processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessorName {
    /// weir's own test pages, for development.
    Local,
    /// Stripe, or a service with the same API.
    Stripe,
    /// No processor: nothing is sold.
    None,
}

/// `[payments.plans]`: monthly prices.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanPrices {
    /// The price of the plan `guru`. By default 1,000 cents.
    pub guru: PriceSettings,
    /// The price of the plan `pro`. By default 5,000 cents.
    pub pro: PriceSettings,
}

/// `[payments.tiers]`: prices of tiers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TierPrices {
    /// The price of 5,000 credits. By default 500 cents.
    pub small: PriceSettings,
    /// The price of 27,500 credits. By default 2,500 cents.
    pub medium: PriceSettings,
    /// The price of 125,000 credits. By default 10,000 cents.
    pub large: PriceSettings,
}

/// A price of a plan or tier.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriceSettings {
    /// Price in US cents, equal to that of `price_id`, if set. Default: as above.
    pub price_cents: Option<NonZeroU32>,
    /// The payment processor's id of the price; without it, weir sends name and amount with each checkout. Default:
    /// none.
    pub price_id: Option<String>,
}

/// The secrets that the settings name.
#[derive(Debug, Default)]
pub struct PaymentSecrets {
    /// The secret that authenticates weir to Stripe.
    pub secret_key: Option<Secret>,
    /// Secrets of webhook signatures: at least one, unless there is no processor.
    pub webhooks: Vec<Secret>,
    pub notice: Option<Secret>,
}

impl PaymentSecrets {
    /// Checks that the secret of notices can sign.
    ///
    /// # Errors
    ///
    /// The error names the setting, and contains nothing of the secret.
    pub(crate) fn check_notice(&self) -> anyhow::Result<()> {
        let Some(secret) = &self.notice else {
            return Ok(());
        };
        let signed = webhook::headers(secret, "check", 0, b"");
        signed
            .map(drop)
            .map_err(|error| anyhow!("`payments.notice_secret`: {error}"))
    }
}

impl Default for PaymentSettings {
    fn default() -> Self {
        Self {
            processor: None,
            api_base: "https://api.stripe.com".to_owned(),
            secret_key: None,
            webhook_secrets: Vec::new(),
            signature_header: "Payment-Signature".to_owned(),
            success_url: None,
            cancel_url: None,
            return_url: None,
            upgrade_url: None,
            topup_url: None,
            plans: PlanPrices::default(),
            tiers: TierPrices::default(),
            notice_url: None,
            notice_secret: None,
        }
    }
}

impl PaymentSettings {
    /// The payment processor, with its default.
    pub fn processor(&self, is_dev: bool) -> ProcessorName {
        self.processor.unwrap_or(match is_dev {
            true => ProcessorName::Local,
            false => ProcessorName::None,
        })
    }

    /// The price of an item; `None` for the free plan, which is not sold.
    pub fn offer(&self, item: PurchaseItem) -> Option<ItemPrice> {
        let (price, default_cents) = match item {
            PurchaseItem::Plan(Plan::Free) => return None,
            PurchaseItem::Plan(Plan::Guru) => (&self.plans.guru, 1_000),
            PurchaseItem::Plan(Plan::Pro) => (&self.plans.pro, 5_000),
            PurchaseItem::TopUp(TopUpTier::Small) => (&self.tiers.small, 500),
            PurchaseItem::TopUp(TopUpTier::Medium) => (&self.tiers.medium, 2_500),
            PurchaseItem::TopUp(TopUpTier::Large) => (&self.tiers.large, 10_000),
        };
        Some(ItemPrice {
            price_cents: price.price_cents.map_or(default_cents, NonZeroU32::get),
            price_id: price.price_id.clone(),
        })
    }

    /// Invalid settings, a sentence each.
    pub fn problems(&self, is_dev: bool) -> Vec<String> {
        let mut problems = Vec::new();
        let mut note = |setting: &str, what: &str| {
            problems.push(format!("`payments.{setting}` {what}"));
        };
        let processor = self.processor(is_dev);
        if processor == ProcessorName::Local && !is_dev {
            note(
                "processor",
                "is `local`, which is for development mode only: nobody pays there",
            );
        }
        if self.signature_header.parse::<HeaderName>().is_err() {
            note("signature_header", "is not the name of a header");
        }
        let urls = [
            ("success_url", &self.success_url),
            ("cancel_url", &self.cancel_url),
            ("return_url", &self.return_url),
        ];
        for (setting, url) in urls {
            match url {
                Some(url) if !is_safe(url, is_dev) => note(setting, HTTPS),
                None if processor == ProcessorName::Stripe && !is_dev => {
                    note(setting, "is not set: users must be sent somewhere");
                }
                _ => {}
            }
        }
        let pages = [
            ("upgrade_url", &self.upgrade_url),
            ("topup_url", &self.topup_url),
        ];
        for (setting, url) in pages {
            if url.as_ref().is_some_and(|url| !is_safe(url, is_dev)) {
                note(setting, HTTPS);
            }
        }
        if processor == ProcessorName::Stripe {
            // Tests replace Stripe by a server on this machine.
            if !is_safe(&self.api_base, true) {
                note("api_base", HTTPS);
            }
            if self.secret_key.is_none() {
                note(
                    "secret_key",
                    "is not set: the processor must know who asks it",
                );
            }
            if !(1..=MAX_WEBHOOK_SECRETS).contains(&self.webhook_secrets.len()) {
                note("webhook_secrets", "lists one secret, or two");
            }
        }
        if let Some(url) = &self.notice_url {
            if !is_safe(url, is_dev) {
                note("notice_url", HTTPS);
            }
            if self.notice_secret.is_none() {
                note("notice_secret", "is not set: notices are signed");
            }
        }
        problems
    }

    /// Reads the secrets. The file `own_key` has the key of the local processor; a missing file is created.
    ///
    /// # Errors
    ///
    /// A secret cannot be read. The error names the setting, and contains nothing of the secret.
    pub fn secrets(&self, is_dev: bool, own_key: &Path) -> anyhow::Result<PaymentSecrets> {
        let read = |setting: &str, source: &SecretSource| {
            let secret = source.read(environment);
            secret.map_err(|problem| anyhow!("{setting}: {problem}"))
        };
        let notice = self.notice_secret.as_ref();
        let notice = notice
            .map(|source| read("notice_secret", source))
            .transpose()?;
        let (secret_key, webhooks) = match self.processor(is_dev) {
            ProcessorName::None => (None, Vec::new()),
            ProcessorName::Local => {
                let key = SecretKey::load_or_create(own_key)?;
                let secret = Secret::new(format!("whsec_{}", Hex(key.expose())));
                (None, vec![secret])
            }
            ProcessorName::Stripe => {
                let key = self.secret_key.as_ref();
                let key = key.map(|source| read("secret_key", source)).transpose()?;
                let sources = self.webhook_secrets.iter();
                let webhooks = sources.map(|source| read("webhook_secrets", source));
                (key, webhooks.collect::<Result<_, _>>()?)
            }
        };
        Ok(PaymentSecrets {
            secret_key,
            webhooks,
            notice,
        })
    }
}

const HTTPS: &str = "is not an https URL: what users pay is nobody else's business";

/// Whether nobody can read the traffic to a URL: it is https, or a loopback address if that is allowed.
fn is_safe(url: &str, allow_loopback: bool) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => return false,
    };
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback && allow_loopback)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn settings(toml: &str) -> PaymentSettings {
        use figment::Figment;
        use figment::providers::{Format, Toml};
        Figment::from(Toml::string(toml)).extract().unwrap()
    }

    #[test]
    fn prices_are_those_of_the_plans_unless_they_are_set() {
        let settings = settings("[tiers.small]\nprice_cents = 700\nprice_id = 'price_1'\n");
        let price = |item| settings.offer(item).unwrap().price_cents;
        assert_eq!(settings.offer(PurchaseItem::Plan(Plan::Free)), None);
        let plans = [Plan::Guru, Plan::Pro].map(|plan| price(PurchaseItem::Plan(plan)));
        assert_eq!(plans, [1_000, 5_000]);
        let tiers = TopUpTier::ALL.map(|tier| price(PurchaseItem::TopUp(tier)));
        assert_eq!(tiers, [700, 2_500, 10_000]);
        let small = settings
            .offer(PurchaseItem::TopUp(TopUpTier::Small))
            .unwrap();
        assert_eq!(small.price_id.as_deref(), Some("price_1"));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let stripe =
            "processor = 'stripe'\nsecret_key = { env = 'K' }\nwebhook_secrets = [{ env = 'W' }]\n";
        let urls = "success_url = 'https://a.example/ok'\ncancel_url = 'https://a.example/no'\n\
                    return_url = 'https://a.example/account'\n";
        for (toml, is_dev, named) in [
            ("", true, &[][..]),
            ("", false, &[]),
            ("processor = 'local'", false, &["processor"]),
            (
                "processor = 'stripe'",
                false,
                &[
                    "success_url",
                    "cancel_url",
                    "return_url",
                    "secret_key",
                    "webhook_secrets",
                ],
            ),
            (&format!("{stripe}{urls}"), false, &[]),
            (stripe, true, &[]),
            (
                &format!("{stripe}api_base = 'http://payments.example'"),
                true,
                &["api_base"],
            ),
            (
                &format!("{stripe}api_base = 'http://127.0.0.1:1'"),
                true,
                &[],
            ),
            (
                "success_url = 'http://localhost:3000/'",
                false,
                &["success_url"],
            ),
            ("success_url = 'http://localhost:3000/'", true, &[]),
            ("cancel_url = 'account'", true, &["cancel_url"]),
            ("upgrade_url = '/plans'", true, &["upgrade_url"]),
            ("topup_url = 'http://a.example'", false, &["topup_url"]),
            ("signature_header = 'a b'", true, &["signature_header"]),
            (
                "notice_url = 'http://notices.example'",
                true,
                &["notice_url", "notice_secret"],
            ),
        ] {
            let problems = settings(toml).problems(is_dev);
            let names = problems.iter().map(|problem| {
                let (_, rest) = problem.split_once("`payments.").unwrap();
                rest.split_once('`').unwrap().0
            });
            assert_eq!(names.collect::<Vec<_>>(), named, "{toml}");
        }
    }
}
