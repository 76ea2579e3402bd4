//! Who takes the money.

use weir_storage::clock::Millis;

use crate::local::Local;
use crate::stripe::Stripe;
use crate::terms::{
    CardCharge, CheckoutSession, Order, PaymentIntent, ProcessorError, SessionState,
};

/// Who takes the money. Each method is asked again by itself where that is safe.
#[derive(Clone)]
pub enum Processor {
    /// Stripe, or who speaks as it does.
    Stripe(Stripe),
    /// Weir itself, for development.
    Local(Local),
    /// Nobody.
    None,
}

impl Processor {
    /// Makes a customer, and returns its id; the same one for the same key.
    pub async fn create_customer(
        &self,
        user_id: &str,
        key: &str,
    ) -> Result<String, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.create_customer(user_id, key).await,
            Self::Local(local) => local.create_customer(user_id, key).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// Makes a page to pay on; the same one for the same key.
    pub async fn create_checkout(
        &self,
        order: &Order<'_>,
        key: &str,
    ) -> Result<CheckoutSession, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.create_checkout(order, key).await,
            Self::Local(local) => local.create_checkout(order, key).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// What has become of such a page.
    pub async fn checkout_state(&self, session_id: &str) -> Result<SessionState, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.checkout_state(session_id).await,
            Self::Local(local) => local.checkout_state(session_id).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// Ends such a page, if nobody has paid there, and says what has become of it: it is open no more.
    pub async fn expire_checkout(&self, session_id: &str) -> Result<SessionState, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.expire_checkout(session_id).await,
            Self::Local(local) => local.expire_checkout(session_id).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// Makes a page on which a customer manages what they pay for, and returns where it is.
    pub async fn create_portal(
        &self,
        customer_id: &str,
        return_url: &str,
    ) -> Result<String, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.create_portal(customer_id, return_url).await,
            Self::Local(local) => local.create_portal(customer_id, return_url).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// Charges a customer who is not there; once for the charge's id.
    ///
    /// # Errors
    ///
    /// [`ProcessorError::Refused`] where nothing was taken, and asking again under the same id would change nothing. After
    /// [`ProcessorError::Unavailable`] and [`ProcessorError::KeyReused`] it may have been:
    /// [`find_payment`](Self::find_payment) tells.
    pub async fn charge(&self, charge: &CardCharge<'_>) -> Result<PaymentIntent, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.charge(charge).await,
            Self::Local(local) => local.charge(charge).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// The payment that a charge of a customer has made since a moment, if it has.
    pub async fn find_payment(
        &self,
        customer_id: &str,
        charge_id: &str,
        since: Millis,
    ) -> Result<Option<PaymentIntent>, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.find_payment(customer_id, charge_id, since).await,
            Self::Local(local) => local.find_payment(customer_id, charge_id).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }
}
