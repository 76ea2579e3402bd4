//! Where users are sent to pay: one open page for each purpose, which who asks again is sent to again.
//!
//! A page's row is written before the processor is asked for it, under the row's id as the idempotency key: whoever asks at
//! the same time, or after a crash, asks for the same page.
//!
//! **Invariant:** of two pages for one purpose, one at most can be paid on. The first is ended at the processor before the
//! second is asked for; one whose answer is still to come finds its row closed, is ended, and is shown to nobody.

use weir_storage::clock::Millis;
use weir_storage::ids;

use super::Payments;
use super::offers::{Item, Offer};
use super::store::NewCheckout;
use super::terms::{Order, ProcessorError, SessionState};

/// How long a page can be paid on, in milliseconds: Stripe's longest is 24 h, by its own clock.
const LIFE_MS: i64 = (24 * 60 - 10) * 60_000;

/// A page that lapses sooner is replaced.
const MIN_LEFT_MS: i64 = 10 * 60_000;

/// How long after its row was written a page is asked for again under its key. Stripe keeps keys for a day, and a page
/// must not lapse within 30 minutes when it is made.
const MAX_ANSWER_MS: i64 = 60 * 60_000;

/// How often an ask looks again because others have changed what it saw.
const MAX_LOOKS: usize = 5;

/// Why a user is sent nowhere to pay.
#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// They have a plan that is not over, or have just paid for one.
    #[error("the user has a subscription")]
    AlreadySubscribed,
    /// They have asked for something else in the meantime.
    #[error("the user has asked for another page meanwhile")]
    Replaced,
    /// They have never been sent to pay.
    #[error("the user is no customer")]
    NoCustomer,
    /// The processor.
    #[error(transparent)]
    Processor(#[from] ProcessorError),
    /// The database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Payments {
    /// Where a user pays for an item.
    pub async fn checkout(
        &self,
        user_id: &str,
        item: Item,
        offer: &Offer,
        now: Millis,
    ) -> Result<String, CheckoutError> {
        let is_plan = matches!(item, Item::Plan(_));
        if is_plan && self.store.is_subscribed(user_id, now).await? {
            return Err(CheckoutError::AlreadySubscribed);
        }
        let customer = self.customer(user_id, now).await?;
        let purpose = match item {
            Item::Plan(_) => "plan".to_owned(),
            Item::TopUp(tier) => format!("topup:{tier}"),
        };
        for _ in 0..MAX_LOOKS {
            let new = NewCheckout {
                id: &ids::payment_call_id(),
                user_id,
                purpose: &purpose,
                item: item.name(),
                created_at: now,
                expires_at: Millis(now.0 + LIFE_MS),
            };
            let Some(checkout) = self.store.open_checkout(&new).await? else {
                continue;
            };
            let is_good = checkout.item == item.name()
                && checkout.expires_at.0 - now.0 >= MIN_LEFT_MS
                && (checkout.session.is_some() || now.0 - checkout.created_at.0 <= MAX_ANSWER_MS);
            let state = match &checkout.session {
                None if is_good => {
                    let order = Order {
                        user_id,
                        customer_id: &customer,
                        item,
                        offer,
                        expires_at: checkout.expires_at,
                        success_url: self.page(self.settings.success_url.as_ref(), "paid")?,
                        cancel_url: self.page(self.settings.cancel_url.as_ref(), "cancelled")?,
                    };
                    match self.make(&order, &checkout.id).await {
                        Ok(url) => return Ok(url),
                        // It was asked for with other prices or addresses, and shown to nobody.
                        Err(CheckoutError::Processor(ProcessorError::KeyReused)) => {
                            SessionState::Expired
                        }
                        Err(error) => return Err(error),
                    }
                }
                None => SessionState::Expired,
                Some((id, url)) if is_good => match self.processor.checkout_state(id).await {
                    // While the processor does not say otherwise, it is as it was.
                    Ok(SessionState::Open) | Err(ProcessorError::Unavailable { .. }) => {
                        return Ok(url.clone());
                    }
                    Ok(ended) => ended,
                    Err(error) => return Err(error.into()),
                },
                Some((id, _)) => self.processor.expire_checkout(id).await?,
            };
            if is_plan && state == SessionState::Complete {
                // Its event is still to come.
                return Err(CheckoutError::AlreadySubscribed);
            }
            self.store.close(&checkout.id, now).await?;
        }
        Err(CheckoutError::Replaced)
    }

    /// Where a user manages what they pay for.
    pub async fn portal(&self, user_id: &str) -> Result<String, CheckoutError> {
        let customer = self.store.customer_of(user_id).await?;
        let customer = customer.ok_or(CheckoutError::NoCustomer)?;
        let back = self.page(self.settings.return_url.as_ref(), "done")?;
        Ok(self.processor.create_portal(&customer, &back).await?)
    }

    /// Asks the processor for a page, and keeps it, unless its row is closed by then.
    async fn make(&self, order: &Order<'_>, id: &str) -> Result<String, CheckoutError> {
        let session = self.processor.create_checkout(order, id).await?;
        if self.store.keep_session(id, &session).await? {
            return Ok(session.url);
        }
        self.processor.expire_checkout(&session.id).await?;
        Err(CheckoutError::Replaced)
    }

    /// Who a user is to the processor, made if they are nobody there.
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
