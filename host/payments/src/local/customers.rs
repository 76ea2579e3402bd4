//! The local processor's data: one document per customer, replaced as a whole.
//!
//! **Invariant:** if two changes of a document collide, the second starts again, so nothing is paid twice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_ledger::{Period, Plan};
use weir_storage::clock::{Clock, Millis};
use weir_storage::expiring::{ExpiringError, ExpiringValues};

use crate::terms::{PaymentIntent, PaymentStatus, ProcessorError};

/// Lifetime of an unused document, in days.
const DAYS: i64 = 400;

/// Maximum number of stored pages and payments of a customer.
const MAX_KEPT: usize = 100;

/// Maximum number of attempts if changes collide.
const MAX_LOOKS: usize = 20;

/// The data of a customer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct LocalCustomer {
    pub user_id: String,
    /// Whether weir has received the customer's creation.
    pub is_announced: bool,
    /// The last card.
    pub card: Option<Card>,
    /// Checkout pages by id.
    pub sessions: BTreeMap<String, Session>,
    /// Portal pages by id, with their expiry and the URL behind the page.
    pub portals: BTreeMap<String, (Millis, String)>,
    /// The last subscription.
    pub subscription: Option<LocalSubscription>,
    /// Charges of auto top-up by id.
    pub charges: BTreeMap<String, LocalCharge>,
}

/// A test card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Card {
    Good,
    Declined,
}

/// A checkout page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    /// Its purpose, `plan` or `topup`.
    pub purpose: String,
    pub item: String,
    pub price_cents: u32,
    pub created_at: Millis,
    pub expires_at: Millis,
    pub success_url: String,
    pub cancel_url: String,
    pub status: SessionStatus,
    /// Whether a payment on the page was declined.
    pub is_declined: bool,
    /// The id of its payment, the same for all attempts.
    pub payment_id: String,
    /// The idempotency key of the request for the page.
    pub key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SessionStatus {
    Open,
    Complete,
    Expired,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LocalSubscription {
    pub id: String,
    pub plan: Plan,
    pub price_cents: u32,
    pub period: Period,
    pub created_at: Millis,
    /// The time of the cancellation; the subscription then ends with its period.
    pub cancelled_at: Option<Millis>,
    /// The time of the end.
    pub ended_at: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LocalCharge {
    pub payment_id: String,
    pub tier: String,
    pub price_cents: u32,
    pub is_paid: bool,
    pub created_at: Millis,
}

impl Session {
    pub(super) fn status(&self, now: Millis) -> SessionStatus {
        match self.status {
            SessionStatus::Open if self.expires_at <= now => SessionStatus::Expired,
            status => status,
        }
    }
}

impl LocalSubscription {
    /// Whether the subscription has ended, or its period has ended after a cancellation.
    pub(super) fn is_over(&self, now: Millis) -> bool {
        self.ended_at.is_some() || (self.cancelled_at.is_some() && self.period.end <= now)
    }
}

impl LocalCharge {
    /// The payment as the processor's response has it.
    pub(super) fn intent(&self) -> PaymentIntent {
        PaymentIntent {
            id: self.payment_id.clone(),
            status: match self.is_paid {
                true => PaymentStatus::Succeeded,
                false => PaymentStatus::Failed,
            },
            error: (!self.is_paid).then(|| "card_declined".to_owned()),
        }
    }
}

/// The stored documents. Cheap to clone.
#[derive(Clone)]
pub(super) struct LocalCustomers {
    values: ExpiringValues,
    clock: Clock,
}

impl LocalCustomers {
    pub(super) fn new(values: ExpiringValues, clock: Clock) -> Self {
        Self { values, clock }
    }

    pub(super) fn now(&self) -> Millis {
        self.clock.now()
    }

    /// The document of a customer, if there is one.
    pub(super) async fn find(
        &self,
        customer_id: &str,
    ) -> Result<Option<LocalCustomer>, ProcessorError> {
        let found = self.values.find(&name(customer_id), self.now()).await;
        let found = found.map_err(away)?;
        found
            .map(|found| serde_json::from_slice(&found.value).map_err(|_| unreadable()))
            .transpose()
    }

    /// Changes the document of a customer, and returns the result of `change`. A new customer starts with an empty
    /// document.
    pub(super) async fn change<T>(
        &self,
        customer_id: &str,
        change: impl Fn(&mut LocalCustomer, Millis) -> T,
    ) -> Result<T, ProcessorError> {
        let name = name(customer_id);
        for _ in 0..MAX_LOOKS {
            let now = self.now();
            let found = self.values.find(&name, now).await.map_err(away)?;
            let version = found.as_ref().map(|found| found.version);
            let mut book: LocalCustomer = match found {
                Some(found) => serde_json::from_slice(&found.value).map_err(|_| unreadable())?,
                None => LocalCustomer::default(),
            };
            let outcome = change(&mut book, now);
            book.forget();
            let value = serde_json::to_vec(&book).map_err(|_| unreadable())?;
            let until = now.plus_days(DAYS);
            let replaced = self.values.replace(&name, version, &value, until, now);
            if replaced.await.map_err(away)? {
                return Ok(outcome);
            }
        }
        Err(ProcessorError::unavailable("too many change it at once"))
    }
}

impl LocalCustomer {
    /// Deletes the oldest entries beyond the maximum.
    fn forget(&mut self) {
        forget(&mut self.sessions, |session| session.created_at);
        forget(&mut self.portals, |(until, _)| *until);
        forget(&mut self.charges, |charged| charged.created_at);
    }
}

fn forget<T>(kept: &mut BTreeMap<String, T>, age: impl Fn(&T) -> Millis) {
    while kept.len() > MAX_KEPT {
        let oldest = kept.iter().min_by_key(|(_, value)| age(value));
        let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
            return;
        };
        kept.remove(&oldest);
    }
}

fn name(customer_id: &str) -> String {
    format!("local-payments {customer_id}")
}

fn away(error: ExpiringError) -> ProcessorError {
    ProcessorError::unavailable(error.to_string())
}

fn unreadable() -> ProcessorError {
    ProcessorError::unavailable("what it knows of the customer cannot be read")
}
