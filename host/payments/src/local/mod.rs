//! A payment processor for development, with test pages instead of payments.
//!
//! It sends signed webhooks over HTTP, like a real processor, so development covers the whole path from a checkout to
//! the credits.
//!
//! **Invariant:** the processor exists only in development mode, in which weir serves only this machine.
//! **Invariant:** the id in the path of a page authorizes its user. An id has 128 random bits, so other sites cannot
//! know it and cannot make a browser post to the page.
//!
//! To change the pages, edit [`pages`]; to change the events, [`events`].

mod customers;
mod events;
mod pages;
mod visits;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderName, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};
use weir_ledger::{Period, Plan};
use weir_outgoing::{self as outgoing, Client};
use weir_storage::clock::{Clock, Millis};
use weir_storage::expiring::ExpiringValues;
use weir_storage::ids::{self, Hex};
use weir_storage::secrets::{Secret, random_bytes};

use self::customers::{
    Card, LocalCharge, LocalCustomer, LocalCustomers, LocalSubscription, Session, SessionStatus,
};
use self::events::EventParty;
pub use self::pages::LocalPage;
pub use self::visits::{Redirect, landing_page, style_sheet};
use crate::events::EventType;
use crate::offers::PurchaseItem;
use crate::settings::PaymentSettings;
use crate::signature;
use crate::terms::{
    CardCharge, CheckoutOrder, CheckoutSession, PaymentIntent, ProcessorError, SessionState,
};

/// Maximum number of attempts to deliver an event.
const MAX_TELLINGS: u32 = 7;

/// The pause before the second attempt; each pause doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// Time limit of one attempt.
const TELLING: Duration = Duration::from_secs(10);

/// Maximum delay of a page until weir has received its events.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// Lifetime of a portal page in milliseconds.
const PORTAL_MS: i64 = 60 * 60_000;

/// Prefixes of the ids of customers and pages.
const CUSTOMER: &str = "cus_local_";
const SESSION: &str = "cs_local_";
const PORTAL: &str = "bps_local_";

/// The processor for development. Cheap to clone.
#[derive(Clone)]
pub struct LocalProcessor {
    books: LocalCustomers,
    settings: Arc<PaymentSettings>,
    http: Client,
    header: HeaderName,
    secret: Secret,
    address: Arc<OnceLock<SocketAddr>>,
}

/// The parts of a gateway that the processor uses.
pub struct LocalParts {
    /// The store of its documents.
    pub values: ExpiringValues,
    pub clock: Clock,
    /// The settings, for prices.
    pub settings: PaymentSettings,
    /// The header of webhook signatures.
    pub header: HeaderName,
    /// The secret of webhook signatures.
    pub secret: Secret,
    /// The address of the public listener, once it listens.
    pub address: Arc<OnceLock<SocketAddr>>,
}

/// A button of a checkout page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PaymentButton {
    Good,
    Declined,
}

/// A button of a portal page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Management {
    Switch(Plan),
    Cancel,
    Resume,
    End,
}

impl LocalProcessor {
    pub fn new(parts: LocalParts) -> anyhow::Result<Self> {
        Ok(Self {
            books: LocalCustomers::new(parts.values, parts.clock),
            settings: Arc::new(parts.settings),
            http: outgoing::client(TELLING)?,
            header: parts.header,
            secret: parts.secret,
            address: parts.address,
        })
    }

    /// Creates a customer. The same key returns the same customer.
    pub async fn create_customer(
        &self,
        user_id: &str,
        key: &str,
    ) -> Result<String, ProcessorError> {
        let digest = Sha256::digest(key);
        let id = format!("{CUSTOMER}{}", Hex(&digest[..16]));
        let made = self.books.change(&id, |book, _| {
            book.user_id = user_id.to_owned();
        });
        made.await?;
        Ok(id)
    }

    /// Creates a checkout page. The same key returns the same page.
    pub async fn create_checkout(
        &self,
        order: &CheckoutOrder<'_>,
        key: &str,
    ) -> Result<CheckoutSession, ProcessorError> {
        let purpose = match order.item {
            PurchaseItem::Plan(_) => "plan",
            PurchaseItem::TopUp(_) => "topup",
        };
        let id = page_id(SESSION, order.customer_id);
        let made = self.books.change(order.customer_id, |book, now| {
            let mut sessions = book.sessions.iter();
            if let Some((id, session)) = sessions.find(|(_, session)| session.key == key) {
                return (id.clone(), session.expires_at);
            }
            let session = Session {
                purpose: purpose.to_owned(),
                item: order.item.name().to_owned(),
                price_cents: order.offer.price_cents,
                created_at: now,
                expires_at: order.expires_at,
                success_url: order.success_url.replace("{CHECKOUT_SESSION_ID}", &id),
                cancel_url: order.cancel_url.clone(),
                status: SessionStatus::Open,
                is_declined: false,
                payment_id: format!("pi_local_{}", ids::answer_id()),
                key: key.to_owned(),
            };
            book.sessions.insert(id.clone(), session);
            (id.clone(), order.expires_at)
        });
        let (id, expires_at) = made.await?;
        Ok(CheckoutSession {
            url: self.url("checkout", &id)?,
            id,
            expires_at,
        })
    }

    pub async fn checkout_state(&self, session_id: &str) -> Result<SessionState, ProcessorError> {
        let session = self.session(session_id).await?.ok_or_else(unknown)?;
        Ok(match session.status(self.books.now()) {
            SessionStatus::Open => SessionState::Open,
            SessionStatus::Complete => SessionState::Complete,
            SessionStatus::Expired => SessionState::Expired,
        })
    }

    /// Expires a checkout page, unless it is paid.
    pub async fn expire_checkout(&self, session_id: &str) -> Result<SessionState, ProcessorError> {
        let customer_id = customer_of(SESSION, session_id).ok_or_else(unknown)?;
        let ended = self.books.change(&customer_id, |book, _| {
            let session = book.sessions.get_mut(session_id)?;
            if session.status == SessionStatus::Open {
                session.status = SessionStatus::Expired;
            }
            Some(session.status)
        });
        Ok(match ended.await?.ok_or_else(unknown)? {
            SessionStatus::Complete => SessionState::Complete,
            SessionStatus::Open | SessionStatus::Expired => SessionState::Expired,
        })
    }

    pub async fn create_portal(
        &self,
        customer_id: &str,
        return_url: &str,
    ) -> Result<String, ProcessorError> {
        let id = page_id(PORTAL, customer_id);
        let made = self.books.change(customer_id, |book, now| {
            let until = Millis(now.0 + PORTAL_MS);
            book.portals
                .insert(id.clone(), (until, return_url.to_owned()));
        });
        made.await?;
        self.url("portal", &id)
    }

    /// Charges the customer's last card, once per id of a charge. The charge fails if that card was the declined one.
    pub async fn charge(&self, charge: &CardCharge<'_>) -> Result<PaymentIntent, ProcessorError> {
        let changed = self.books.change(charge.customer_id, |book, now| {
            if let Some(charged) = book.charges.get(charge.id) {
                return Some((charged.intent(), None));
            }
            let charged = LocalCharge {
                payment_id: format!("pi_local_{}", ids::answer_id()),
                tier: charge.tier.name().to_owned(),
                price_cents: charge.price_cents,
                is_paid: book.card? == Card::Good,
                created_at: now,
            };
            book.charges.insert(charge.id.to_owned(), charged.clone());
            let party = EventParty {
                customer_id: charge.customer_id,
                user_id: charge.user_id,
            };
            let event = events::charge_payment(party, charge.id, &charged, now);
            Some((charged.intent(), Some(event)))
        });
        let refused = |code: &str, payment_id| ProcessorError::Refused {
            code: code.to_owned(),
            payment_id,
        };
        let charged = changed.await?;
        let (intent, event) = charged.ok_or_else(|| refused("no_payment_method", None))?;
        if let Some(event) = event {
            let local = self.clone();
            tokio::spawn(async move { local.tell(event).await });
        }
        match &intent.error {
            Some(code) => Err(refused(code, Some(intent.id))),
            None => Ok(intent),
        }
    }

    /// The payment of a charge, if there is one.
    pub async fn find_payment(
        &self,
        customer_id: &str,
        charge_id: &str,
    ) -> Result<Option<PaymentIntent>, ProcessorError> {
        let book = self.books.find(customer_id).await?.unwrap_or_default();
        Ok(book.charges.get(charge_id).map(LocalCharge::intent))
    }

    /// A checkout page.
    async fn session(&self, session_id: &str) -> Result<Option<Session>, ProcessorError> {
        let Some(customer_id) = customer_of(SESSION, session_id) else {
            return Ok(None);
        };
        let book = self.books.find(&customer_id).await?;
        Ok(book.and_then(|mut book| book.sessions.remove(session_id)))
    }

    /// The customer of a portal page, the customer's document, and the URL behind the page.
    async fn portal(
        &self,
        portal_id: &str,
    ) -> Result<Option<(String, LocalCustomer, String)>, ProcessorError> {
        let Some(customer_id) = customer_of(PORTAL, portal_id) else {
            return Ok(None);
        };
        let book = self.books.find(&customer_id).await?;
        Ok(book.and_then(|book| {
            let (until, back) = book.portals.get(portal_id)?.clone();
            (until > self.books.now()).then_some((customer_id, book, back))
        }))
    }

    /// Pays on an open page, or tries to. weir usually has the events before this returns.
    async fn pay(&self, session_id: &str, payment: PaymentButton) -> Result<(), ProcessorError> {
        let customer_id = customer_of(SESSION, session_id).ok_or_else(unknown)?;
        let paid = self.books.change(&customer_id, |book, now| {
            settle(book, &customer_id, session_id, payment, now)
        });
        self.tell_all(paid.await?).await;
        Ok(())
    }

    /// Changes a plan. weir usually has the events before this returns.
    async fn manage(&self, customer_id: &str, act: Management) -> Result<(), ProcessorError> {
        let price = match act {
            Management::Switch(plan) => self.settings.offer(PurchaseItem::Plan(plan)),
            _ => None,
        };
        let price = price.map(|offer| offer.price_cents);
        let changed = self.books.change(customer_id, |book, now| {
            change_plan(book, customer_id, act, price, now).unwrap_or_default()
        });
        self.tell_all(changed.await?).await;
        Ok(())
    }

    /// Sends events in order. The task continues if the caller stops waiting.
    async fn tell_all(&self, events: Vec<Value>) {
        let local = self.clone();
        let telling = tokio::spawn(async move {
            for event in events {
                local.tell(event).await;
            }
        });
        // The task continues after the time limit.
        let _ = tokio::time::timeout(TOLD_WITHIN, telling).await;
    }

    /// Sends an event until weir accepts it, up to the maximum number of attempts.
    async fn tell(&self, event: Value) {
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        let body = event.to_string();
        for number in 0..MAX_TELLINGS {
            if number > 0 {
                tokio::time::sleep(PAUSE * 2_u32.pow(number - 1)).await;
            }
            match self.tell_once(&body).await {
                Ok(StatusCode::OK) => return,
                Ok(status) => tracing::debug!(kind, %status, "weir does not take an event"),
                Err(why) => tracing::debug!(kind, why, "weir cannot be told of an event"),
            }
        }
        tracing::warn!(
            kind,
            "weir has not taken an event of the local processor, which it will not be told again"
        );
    }

    async fn tell_once(&self, body: &str) -> Result<StatusCode, String> {
        let Some(address) = self.address.get() else {
            return Err("it does not listen".to_owned());
        };
        let now = self.books.now().seconds();
        let sent = self
            .http
            .post(format!("http://{address}/billing/webhook"))
            .header(CONTENT_TYPE, "application/json")
            .header(
                &self.header,
                signature::sign(&self.secret, now, body.as_bytes()),
            )
            .timeout(TELLING)
            .body(body.to_owned())
            .send()
            .await;
        sent.map(|response| response.status())
            .map_err(outgoing::root_cause)
    }

    fn url(&self, kind: &str, id: &str) -> Result<String, ProcessorError> {
        let address = self.address.get();
        let address =
            address.ok_or_else(|| ProcessorError::unavailable("its pages are not served"))?;
        Ok(format!("http://{address}/dev/payments/{kind}/{id}"))
    }
}

/// The events of a payment on a page; none if the page is not open.
fn settle(
    book: &mut LocalCustomer,
    customer_id: &str,
    session_id: &str,
    payment: PaymentButton,
    now: Millis,
) -> Vec<Value> {
    let Some(session) = book.sessions.get_mut(session_id) else {
        return Vec::new();
    };
    if session.status(now) != SessionStatus::Open {
        return Vec::new();
    }
    let party = EventParty {
        customer_id,
        user_id: &book.user_id,
    };
    let mut events = Vec::new();
    if !book.is_announced {
        book.is_announced = true;
        events.push(events::customer_created(party, now));
    }
    if payment == PaymentButton::Declined {
        book.card = Some(Card::Declined);
        session.is_declined = true;
        events.push(events::page_payment(party, session, false, now));
        return events;
    }
    book.card = Some(Card::Good);
    session.status = SessionStatus::Complete;
    let plan = (session.purpose == "plan").then(|| session.item.parse::<Plan>());
    let Some(Ok(plan)) = plan else {
        events.push(events::session_completed(
            party, session_id, session, None, now,
        ));
        events.push(events::page_payment(party, session, true, now));
        return events;
    };
    let subscription = LocalSubscription {
        id: format!("sub_local_{}", ids::answer_id()),
        plan,
        price_cents: session.price_cents,
        period: Period::monthly(now, now),
        created_at: now,
        cancelled_at: None,
        ended_at: None,
    };
    events.push(events::session_completed(
        party,
        session_id,
        session,
        Some(&subscription),
        now,
    ));
    events.push(events::subscription_changed(
        party,
        EventType::SubscriptionCreated,
        &subscription,
        now,
    ));
    let payment_id = &session.payment_id;
    events.push(events::invoice_paid(party, payment_id, &subscription, now));
    book.subscription = Some(subscription);
    events
}

/// Changes a plan and returns the events; `None` without a change. A change of plan is invoiced at once, like Stripe's
/// portal with `proration_behavior` = `always_invoice`.
fn change_plan(
    book: &mut LocalCustomer,
    customer_id: &str,
    act: Management,
    price: Option<u32>,
    now: Millis,
) -> Option<Vec<Value>> {
    let subscription = book.subscription.as_mut()?;
    if subscription.is_over(now) {
        return None;
    }
    let before = subscription.clone();
    let mut kind = EventType::SubscriptionUpdated;
    match act {
        Management::Switch(plan) => {
            subscription.price_cents = price?;
            subscription.plan = plan;
        }
        Management::Cancel => subscription.cancelled_at = subscription.cancelled_at.or(Some(now)),
        Management::Resume => subscription.cancelled_at = None,
        Management::End => {
            subscription.ended_at = Some(now);
            kind = EventType::SubscriptionDeleted;
        }
    }
    let party = EventParty {
        customer_id,
        user_id: &book.user_id,
    };
    if *subscription == before {
        return None;
    }
    let mut events = vec![events::subscription_changed(party, kind, subscription, now)];
    if subscription.plan != before.plan {
        events.push(events::switch_paid(party, &before, subscription, now));
    }
    Some(events)
}

/// A random id of a page, with the id of its customer.
fn page_id(prefix: &str, customer_id: &str) -> String {
    let customer = customer_id.strip_prefix(CUSTOMER).unwrap_or(customer_id);
    format!("{prefix}{customer}_{}", Hex(&random_bytes::<16>()))
}

fn customer_of(prefix: &str, page_id: &str) -> Option<String> {
    let (customer, _) = page_id.strip_prefix(prefix)?.split_once('_')?;
    Some(format!("{CUSTOMER}{customer}"))
}

fn unknown() -> ProcessorError {
    ProcessorError::Invalid("there is no such page".to_owned())
}
