//! Requests to processors and their responses.

use std::time::Duration;

use weir_storage::clock::Millis;

use crate::offers::{ItemPrice, PurchaseItem, TopUpTier};

/// A request for a checkout page.
#[derive(Debug, Clone)]
pub struct CheckoutOrder<'a> {
    /// The user who pays.
    pub user_id: &'a str,
    /// The processor's customer of the user.
    pub customer_id: &'a str,
    pub item: PurchaseItem,
    pub offer: &'a ItemPrice,
    /// The end of the page's lifetime.
    pub expires_at: Millis,
    /// URL after a payment.
    pub success_url: String,
    /// URL after a cancellation.
    pub cancel_url: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutSession {
    /// The processor's id.
    pub id: String,
    pub url: String,
    /// The end of the page's lifetime.
    pub expires_at: Millis,
}

/// The state of a checkout page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// The page accepts a payment.
    Open,
    /// The user has paid. Some payment methods deliver the money later.
    Complete,
    /// The page has expired without a payment.
    Expired,
}

/// A charge of a saved card, without the customer present.
#[derive(Debug, Clone, Copy)]
pub struct CardCharge<'a> {
    /// Its id, which is the idempotency key.
    pub id: &'a str,
    /// The user who gets the credits.
    pub user_id: &'a str,
    /// The processor's customer of the user.
    pub customer_id: &'a str,
    pub tier: TopUpTier,
    /// In US cents.
    pub price_cents: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentIntent {
    /// The processor's id.
    pub id: String,
    pub status: PaymentStatus,
    /// The processor's code of the last failure, for example `card_declined`.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentStatus {
    /// The processor has the money.
    Succeeded,
    /// The payment may still succeed or fail.
    Processing,
    /// The payment failed, or needs the customer.
    Failed,
}

/// Errors of a processor. They contain no secret and nothing about a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessorError {
    /// The processor declined the payment.
    #[error("the payment was refused: {code}")]
    Refused {
        /// The processor's code, for example `card_declined`, or `no_payment_method` if the customer has none.
        code: String,
        /// The failed payment, if the processor names it.
        payment_id: Option<String>,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key stands for another request")]
    KeyReused,
    /// The processor rejects the request or its credentials: an error of weir, or of its configuration.
    #[error("the processor refuses the request: {0}")]
    Invalid(String),
    /// The processor does not respond, is overloaded, or is out of order. The request may still have succeeded.
    #[error("the processor does not serve: {why}")]
    Unavailable {
        /// The reason in a few words.
        why: String,
        /// The processor's `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// No processor is configured.
    #[error("no processor of payments is configured")]
    NotConfigured,
}

impl ProcessorError {
    /// Builds [`Self::Unavailable`] without a `Retry-After`.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable {
            why: why.into(),
            retry_after: None,
        }
    }
}
