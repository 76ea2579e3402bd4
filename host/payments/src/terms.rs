//! What processors are asked, and what they answer.

use std::time::Duration;

use weir_storage::clock::Millis;

use crate::offers::{Item, Offer, Tier};

/// A page on which somebody can pay for something.
#[derive(Debug, Clone)]
pub struct Order<'a> {
    /// Who it is for.
    pub user_id: &'a str,
    /// Who that is to the processor.
    pub customer_id: &'a str,
    /// What it is for.
    pub item: Item,
    /// What that costs.
    pub offer: &'a Offer,
    /// When the page lapses.
    pub expires_at: Millis,
    /// Where who has paid is sent.
    pub success_url: String,
    /// Where who leaves is sent.
    pub cancel_url: String,
}

/// Such a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutSession {
    /// The processor's id of it.
    pub id: String,
    /// Where it is.
    pub url: String,
    /// When it lapses.
    pub expires_at: Millis,
}

/// What has become of such a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// It can be paid on.
    Open,
    /// It was paid on; of some ways to pay, the money is still to come.
    Complete,
    /// It is over, and nobody has paid.
    Expired,
}

/// Credits that are charged to a customer who is not there.
#[derive(Debug, Clone, Copy)]
pub struct CardCharge<'a> {
    /// Its id: the idempotency key of the call, too.
    pub id: &'a str,
    /// Whom the credits are for.
    pub user_id: &'a str,
    /// Who that is to the processor.
    pub customer_id: &'a str,
    /// What is bought.
    pub tier: Tier,
    /// In US cents.
    pub price_cents: u32,
}

/// A payment that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentIntent {
    /// The processor's id of it.
    pub id: String,
    /// How far it has come.
    pub status: PaymentStatus,
    /// The processor's code of what went wrong last, e.g. `card_declined`.
    pub error: Option<String>,
}

/// How far a payment has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentStatus {
    /// The money is there.
    Succeeded,
    /// The money is on its way, or not.
    Processing,
    /// It has failed, or needs the customer.
    Failed,
}

/// Why a processor did not do as asked. Holds no secret, and nothing about a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessorError {
    /// It said no to the payment.
    #[error("the payment was refused: {code}")]
    Refused {
        /// The processor's code, e.g. `card_declined`, or `no_payment_method` where the customer has none.
        code: String,
        /// The payment that has failed so, if it says.
        payment_id: Option<String>,
    },
    /// Something else was asked under this idempotency key before.
    #[error("the idempotency key stands for another request")]
    KeyReused,
    /// It does not understand what was asked, does not know what it is about, or not who asks: weir's mistake, or its
    /// configuration's.
    #[error("the processor refuses the request: {0}")]
    Invalid(String),
    /// It does not answer, has too much to do, or is out of order. What was asked may have been done all the same.
    #[error("the processor does not serve: {why}")]
    Unavailable {
        /// In a few words.
        why: String,
        /// When it says that asking again makes sense.
        retry_after: Option<Duration>,
    },
    /// There is none.
    #[error("no processor of payments is configured")]
    NotConfigured,
}

impl ProcessorError {
    /// It does not serve.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable {
            why: why.into(),
            retry_after: None,
        }
    }
}
