//! What the local processor knows of a customer: a document for each, which is replaced whole.
//!
//! **Invariant:** of two who change one at once, the second looks again: nothing is paid twice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_ledger::{Period, Plan};
use weir_storage::clock::{Clock, Millis};
use weir_storage::expiring::{ExpiringError, ExpiringValues};

use crate::terms::{PaymentIntent, PaymentStatus, ProcessorError};

/// How long a customer who does nothing is remembered.
const DAYS: i64 = 400;

/// Pages and payments of a customer that are remembered.
const MAX_KEPT: usize = 100;

/// How often somebody looks again because another was faster.
const MAX_LOOKS: usize = 20;

/// What is known of a customer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Book {
    pub user_id: String,
    /// Whether weir was told of them.
    pub is_announced: bool,
    /// The card that they paid with last.
    pub card: Option<Card>,
    /// Pages to pay on, by id.
    pub sessions: BTreeMap<String, Session>,
    /// Pages to manage a plan on: until when, and where who leaves is sent, by id.
    pub portals: BTreeMap<String, (Millis, String)>,
    /// The last one.
    pub subscription: Option<Subscription>,
    /// What was charged without them, by the charges' ids.
    pub charges: BTreeMap<String, Charged>,
}

/// A card that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Card {
    Good,
    Declined,
}

/// A page to pay on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    /// `plan` or `topup`, and which.
    pub purpose: String,
    pub item: String,
    pub price_cents: u32,
    pub created_at: Millis,
    pub expires_at: Millis,
    pub success_url: String,
    pub cancel_url: String,
    pub status: SessionStatus,
    /// Whether somebody has tried to pay on it in vain.
    pub is_declined: bool,
    /// The payment that is tried on it, each time the same one.
    pub payment_id: String,
    /// The idempotency key under which it was asked for.
    pub key: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SessionStatus {
    Open,
    Complete,
    Expired,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subscription {
    pub id: String,
    pub plan: Plan,
    pub price_cents: u32,
    pub period: Period,
    pub created_at: Millis,
    /// Since when it ends with its period.
    pub cancelled_at: Option<Millis>,
    /// Since when it is over.
    pub ended_at: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Charged {
    pub payment_id: String,
    pub tier: String,
    pub price_cents: u32,
    pub is_paid: bool,
    pub created_at: Millis,
}

impl Session {
    /// How it stands at a moment.
    pub(super) fn status(&self, now: Millis) -> SessionStatus {
        match self.status {
            SessionStatus::Open if self.expires_at <= now => SessionStatus::Expired,
            status => status,
        }
    }
}

impl Subscription {
    /// Whether it is over, by its end or because it was not to go on.
    pub(super) fn is_over(&self, now: Millis) -> bool {
        self.ended_at.is_some() || (self.cancelled_at.is_some() && self.period.end <= now)
    }
}

impl Charged {
    /// As the processor's answer has it.
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

/// Where the books are. Cheap to clone.
#[derive(Clone)]
pub(super) struct Books {
    values: ExpiringValues,
    clock: Clock,
}

impl Books {
    pub(super) fn new(values: ExpiringValues, clock: Clock) -> Self {
        Self { values, clock }
    }

    pub(super) fn now(&self) -> Millis {
        self.clock.now()
    }

    /// A customer's, if there is such a customer.
    pub(super) async fn find(&self, customer_id: &str) -> Result<Option<Book>, ProcessorError> {
        let found = self.values.find(&name(customer_id), self.now()).await;
        let found = found.map_err(away)?;
        found
            .map(|found| serde_json::from_slice(&found.value).map_err(|_| unreadable()))
            .transpose()
    }

    /// Changes a customer's, and returns what `change` does of what it has made of it. Without a book, `change` has an
    /// empty one.
    pub(super) async fn change<T>(
        &self,
        customer_id: &str,
        change: impl Fn(&mut Book, Millis) -> T,
    ) -> Result<T, ProcessorError> {
        let name = name(customer_id);
        for _ in 0..MAX_LOOKS {
            let now = self.now();
            let found = self.values.find(&name, now).await.map_err(away)?;
            let version = found.as_ref().map(|found| found.version);
            let mut book: Book = match found {
                Some(found) => serde_json::from_slice(&found.value).map_err(|_| unreadable())?,
                None => Book::default(),
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

impl Book {
    /// Forgets the oldest of what there is too much of.
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
