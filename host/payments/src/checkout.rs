//! Checkout pages: each user has one open page per purpose, and repeated requests return it.
//!
//! A page leads back to the configured pages, or to the console's own ([`ReturnPages`]); a request for another way back
//! replaces the page.
//!
//! weir stores the row of a page before it asks the processor, with the id of the row as idempotency key. Concurrent
//! requests, and requests after a crash, therefore get the same page.
//!
//! **Invariant:** a user can pay on at most one page per purpose. weir expires the first page at the processor before
//! it asks for the second. If the row of a page is closed before the processor responds, weir expires the page and
//! shows it to nobody.

use std::time::Duration;

use weir_errors::{ApiError, ErrorCode};
use weir_storage::clock::Millis;
use weir_storage::ids;

use crate::offers::{ItemPrice, PurchaseItem};
use crate::payments::Payments;
use crate::store::NewCheckout;
use crate::terms::{CheckoutOrder, ProcessorError, SessionState};

/// Lifetime of a page in milliseconds. Stripe's maximum is 24 h, by its own clock.
const LIFE_MS: i64 = (24 * 60 - 10) * 60_000;

/// Minimum time left in milliseconds; a page with less is replaced.
const MIN_LEFT_MS: i64 = 10 * 60_000;

/// Maximum age in milliseconds of a row whose page is requested again with the same key. Stripe keeps keys for a day,
/// and rejects new pages that expire within 30 minutes.
const MAX_ANSWER_MS: i64 = 60 * 60_000;

/// Maximum number of attempts if concurrent requests change the row.
const MAX_LOOKS: usize = 5;

/// `Retry-After` of a 503 if the processor names none.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Reasons for which weir returns no page.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// The user has a plan that is not over, or has just paid for one.
    #[error("the user has a subscription")]
    AlreadySubscribed,
    /// The user has requested another page in the meantime.
    #[error("the user has asked for another page meanwhile")]
    Replaced,
    /// The user has no customer at the processor.
    #[error("the user is no customer")]
    NoCustomer,
    #[error(transparent)]
    Processor(#[from] ProcessorError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Pages to which the processor leads a user back, instead of the configured ones.
#[derive(Debug, Clone)]
pub struct ReturnPages {
    /// The page after a payment.
    pub paid: String,
    /// The page of a user who has not paid.
    pub cancelled: String,
}

impl Payments {
    /// URL of the page on which a user pays for the plan of this name.
    pub async fn plan_url(
        &self,
        user_id: &str,
        name: &str,
        back: Option<ReturnPages>,
    ) -> Result<String, ApiError> {
        let item = name.parse().ok().map(PurchaseItem::Plan);
        let message = "The plan is `guru` or `pro`.";
        let not_sold = ApiError::new(ErrorCode::InvalidPlan, message).with_param("plan");
        self.send_to_pay(user_id, item, not_sold, back).await
    }

    /// URL of the page on which a user pays for the credits of the tier of this name.
    pub async fn tier_url(
        &self,
        user_id: &str,
        name: &str,
        back: Option<ReturnPages>,
    ) -> Result<String, ApiError> {
        let item = name.parse().ok().map(PurchaseItem::TopUp);
        let message = "The tier is `small`, `medium` or `large`.";
        let not_sold = ApiError::new(ErrorCode::InvalidTier, message).with_param("tier");
        self.send_to_pay(user_id, item, not_sold, back).await
    }

    async fn send_to_pay(
        &self,
        user_id: &str,
        item: Option<PurchaseItem>,
        not_sold: ApiError,
        back: Option<ReturnPages>,
    ) -> Result<String, ApiError> {
        let offer = item.and_then(|item| Some((item, self.settings.offer(item)?)));
        let (item, offer) = offer.ok_or(not_sold)?;
        let now = self.ledger.now();
        Ok(self.checkout(user_id, item, &offer, back, now).await?)
    }

    /// URL of the page on which a user pays for an item.
    pub async fn checkout(
        &self,
        user_id: &str,
        item: PurchaseItem,
        offer: &ItemPrice,
        back: Option<ReturnPages>,
        now: Millis,
    ) -> Result<String, CheckoutError> {
        let is_plan = matches!(item, PurchaseItem::Plan(_));
        if is_plan && self.store.is_subscribed(user_id, now).await? {
            return Err(CheckoutError::AlreadySubscribed);
        }
        let customer = self.customer(user_id, now).await?;
        let back = match back {
            Some(back) => back,
            None => ReturnPages {
                paid: self.page(self.settings.success_url.as_ref(), "paid")?,
                cancelled: self.page(self.settings.cancel_url.as_ref(), "cancelled")?,
            },
        };
        let purpose = match item {
            PurchaseItem::Plan(_) => "plan".to_owned(),
            PurchaseItem::TopUp(tier) => format!("topup:{tier}"),
        };
        for _ in 0..MAX_LOOKS {
            let new = NewCheckout {
                id: &ids::payment_call_id(),
                user_id,
                purpose: &purpose,
                item: item.name(),
                created_at: now,
                expires_at: Millis(now.0 + LIFE_MS),
                success_url: &back.paid,
            };
            let Some(checkout) = self.store.open_checkout(&new).await? else {
                continue;
            };
            let is_good = checkout.item == item.name()
                && checkout.success_url.as_ref() == Some(&back.paid)
                && checkout.expires_at.0 - now.0 >= MIN_LEFT_MS
                && (checkout.session.is_some() || now.0 - checkout.created_at.0 <= MAX_ANSWER_MS);
            let state = match &checkout.session {
                None if is_good => {
                    let order = CheckoutOrder {
                        user_id,
                        customer_id: &customer,
                        item,
                        offer,
                        expires_at: checkout.expires_at,
                        success_url: back.paid.clone(),
                        cancel_url: back.cancelled.clone(),
                    };
                    match self.make(&order, &checkout.id).await {
                        Ok(url) => return Ok(url),
                        // The first request had other prices or URLs, and its page was shown to nobody.
                        Err(CheckoutError::Processor(ProcessorError::KeyReused)) => {
                            SessionState::Expired
                        }
                        Err(error) => return Err(error),
                    }
                }
                None => SessionState::Expired,
                Some((id, url)) if is_good => match self.processor.checkout_state(id).await {
                    // An unreachable processor does not end a page.
                    Ok(SessionState::Open) | Err(ProcessorError::Unavailable { .. }) => {
                        return Ok(url.clone());
                    }
                    Ok(ended) => ended,
                    Err(error) => return Err(error.into()),
                },
                Some((id, _)) => self.processor.expire_checkout(id).await?,
            };
            if is_plan && state == SessionState::Complete {
                // The event of the payment has not arrived yet.
                return Err(CheckoutError::AlreadySubscribed);
            }
            self.store.close(&checkout.id, now).await?;
        }
        Err(CheckoutError::Replaced)
    }

    /// URL of the page on which a user manages the plan. It leads to `back`, or else to the configured page.
    pub async fn portal(
        &self,
        user_id: &str,
        back: Option<String>,
    ) -> Result<String, CheckoutError> {
        let customer = self.store.customer_of(user_id).await?;
        let customer = customer.ok_or(CheckoutError::NoCustomer)?;
        let back = match back {
            Some(back) => back,
            None => self.page(self.settings.return_url.as_ref(), "done")?,
        };
        Ok(self.processor.create_portal(&customer, &back).await?)
    }

    /// Asks the processor for a page and stores it, unless its row is closed by then.
    async fn make(&self, order: &CheckoutOrder<'_>, id: &str) -> Result<String, CheckoutError> {
        let session = self.processor.create_checkout(order, id).await?;
        if self.store.keep_session(id, &session).await? {
            return Ok(session.url);
        }
        self.processor.expire_checkout(&session.id).await?;
        Err(CheckoutError::Replaced)
    }

    /// The processor's customer of a user, created if necessary.
    async fn customer(&self, user_id: &str, now: Millis) -> Result<String, CheckoutError> {
        if let Some(customer) = self.store.customer_of(user_id).await? {
            return Ok(customer);
        }
        let key = format!("customer-{user_id}");
        let made = self.processor.create_customer(user_id, &key).await?;
        let linked = self.store.link_customer(user_id, &made, now).await?;
        linked.ok_or_else(|| {
            let why = "the customer that was made for a user is another user's";
            CheckoutError::Processor(ProcessorError::Invalid(why.to_owned()))
        })
    }
}

impl From<CheckoutError> for ApiError {
    fn from(error: CheckoutError) -> Self {
        let unavailable = |message| {
            let code = ErrorCode::PaymentsUnavailable;
            Self::new(code, message)
        };
        match error {
            CheckoutError::AlreadySubscribed => Self::new(
                ErrorCode::AlreadySubscribed,
                "You have a plan; change or cancel it in the portal: POST /billing/portal.",
            )
            .with_no_retry(),
            CheckoutError::Replaced => Self::new(
                ErrorCode::CheckoutReplaced,
                "You have asked for another page to pay on meanwhile; use that one, or ask again.",
            ),
            CheckoutError::NoCustomer => Self::new(
                ErrorCode::NoPaymentCustomer,
                "You have not bought anything yet; begin with POST /billing/checkout or /billing/topup.",
            ),
            CheckoutError::Database(error) => Self::of_database(&error, "sending a user to pay"),
            CheckoutError::Processor(ProcessorError::NotConfigured) => {
                unavailable("Nothing is sold here.").with_no_retry()
            }
            CheckoutError::Processor(error) => {
                tracing::error!(%error, "sending a user to pay");
                let wanted = match &error {
                    ProcessorError::Unavailable { retry_after, .. } => *retry_after,
                    _ => None,
                };
                unavailable("The payment processor does not serve now; try again.")
                    .with_retry_after(wanted.unwrap_or(RETRY_AFTER))
            }
        }
    }
}
