//! The payment processor of a gateway: Stripe, the local one, or none.

use serde_json::Value;
use weir_storage::clock::Millis;

use crate::local::LocalProcessor;
use crate::stripe::Stripe;
use crate::terms::{
    CardCharge, CheckoutOrder, CheckoutSession, PaymentIntent, ProcessorError, SessionState,
};

/// The payment processor. Its methods retry requests by themselves if that is safe.
#[derive(Clone)]
pub enum Processor {
    /// Stripe, or a service with the same API.
    Stripe(Stripe),
    /// weir's own test pages, for development.
    Local(LocalProcessor),
    /// No processor: nothing is sold.
    None,
}

impl Processor {
    /// Creates a customer and returns its id. The same key returns the same customer.
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

    /// Creates a checkout page. The same key returns the same page.
    pub async fn create_checkout(
        &self,
        order: &CheckoutOrder<'_>,
        key: &str,
    ) -> Result<CheckoutSession, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.create_checkout(order, key).await,
            Self::Local(local) => local.create_checkout(order, key).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    pub async fn checkout_state(&self, session_id: &str) -> Result<SessionState, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.checkout_state(session_id).await,
            Self::Local(local) => local.checkout_state(session_id).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// Expires a checkout page, unless it is paid. Returns its state, which is never open.
    pub async fn expire_checkout(&self, session_id: &str) -> Result<SessionState, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.expire_checkout(session_id).await,
            Self::Local(local) => local.expire_checkout(session_id).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// Creates a page on which a customer manages the plan, and returns its URL.
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

    /// Charges the customer's saved card, once per id of a charge.
    ///
    /// # Errors
    ///
    /// [`ProcessorError::Refused`] if the processor took nothing; a repeat with the same id changes nothing. After
    /// [`ProcessorError::Unavailable`] or [`ProcessorError::KeyReused`], the charge may have succeeded;
    /// [`find_payment`](Self::find_payment) tells.
    pub async fn charge(&self, charge: &CardCharge<'_>) -> Result<PaymentIntent, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.charge(charge).await,
            Self::Local(local) => local.charge(charge).await,
            Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// The payment of a charge since a moment, if there is one.
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

    /// An invoice with all its lines, for an event that shows only some. The local processor shows all.
    pub async fn invoice(&self, invoice_id: &str) -> Result<Value, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.invoice(invoice_id).await,
            Self::Local(_) | Self::None => Err(ProcessorError::NotConfigured),
        }
    }

    /// All items of a subscription, for an event that shows only some. The local processor shows all.
    pub async fn subscription_items(
        &self,
        subscription_id: &str,
    ) -> Result<Vec<Value>, ProcessorError> {
        match self {
            Self::Stripe(stripe) => stripe.subscription_items(subscription_id).await,
            Self::Local(_) | Self::None => Err(ProcessorError::NotConfigured),
        }
    }
}
