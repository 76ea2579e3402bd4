//! The processor's events, reduced to the fields that weir uses. weir stores these fields and no other personal data.
//!
//! weir reads both shapes of subscriptions and invoices. Until 2025, the period of a subscription, the payment of an
//! invoice and the `proration` of a line are fields of their own. Since API version 2025-03-31, the items of the
//! subscription have the period, and the `parent` of a line has the proration: `invoice_item_details` or
//! `subscription_item_details` (types of the `stripe` package for Node.js, 17.5.0 for 2024-12-18.acacia and 23.1.0 for
//! 2026-10-28.endive).
//!
//! To handle another event, add it to [`EventType`], and its effect to [`crate::effects`].

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use weir_errors::ApiError;
use weir_storage::clock::Millis;

/// Maximum length of an id, in characters.
const MAX_ID_CHARACTERS: usize = 255;

/// The path of the object that an event is about.
const OBJECT: &str = "data.object";

/// Declares the types of events: variant, name, effect. The list of all types is always complete.
macro_rules! event_types {
    ($($variant:ident, $name:literal, $effect:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum EventType {
            $(#[doc = concat!("`", $name, "`: ", $effect, ".")] $variant,)*
        }

        impl EventType {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The processor's name, for example `invoice.paid`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The effect in a few words, as in `host/docs/payments.md`.
            pub const fn effect(self) -> &'static str {
                match self { $(Self::$variant => $effect,)* }
            }
        }
    };
}

event_types! {
    CheckoutCompleted, "checkout.session.completed", "if paid, adds the credits or starts the plan";
    SubscriptionCreated, "customer.subscription.created", "starts the plan, if trialing";
    SubscriptionUpdated, "customer.subscription.updated",
        "no credits; if cancelled or unpaid, the plan ends with its period; if past due, 3 days later";
    SubscriptionDeleted, "customer.subscription.deleted", "the plan ends with its period";
    TrialWillEnd, "customer.subscription.trial_will_end", "notice";
    InvoicePaid, "invoice.paid", "starts the paid period with its credits; prorations give or take credits in proportion";
    InvoicePaymentFailed, "invoice.payment_failed", "notice; flags the subscription";
    PaymentSucceeded, "payment_intent.succeeded", "adds the credits";
    PaymentFailed, "payment_intent.payment_failed", "notice; pauses auto top-up for 4 hours";
    CustomerCreated, "customer.created", "links the customer to the user";
    ChargeRefunded, "charge.refunded", "takes credits back in proportion; spent credits become owed";
    RefundCreated, "refund.created", "takes credits back, once with `charge.refunded`";
    RefundUpdated, "refund.updated", "gives the credits back if the refund failed or was cancelled";
    RefundFailed, "refund.failed", "gives the credits back";
    ChargeRefundUpdated, "charge.refund.updated", "as `refund.updated`";
    CreditNoteCreated, "credit_note.created", "takes credits back for money in the customer's balance or paid outside Stripe";
    CreditNoteVoided, "credit_note.voided", "gives the credits back";
    DisputeFundsWithdrawn, "charge.dispute.funds_withdrawn", "takes credits back in proportion; spent credits become owed";
    DisputeFundsReinstated, "charge.dispute.funds_reinstated", "gives the credits of the returned money back";
    DisputeClosed, "charge.dispute.closed", "gives the credits back if the dispute was won";
}

impl EventType {
    /// Whether events of the type change the money that went back of a payment.
    pub const fn is_of_refunds(self) -> bool {
        matches!(
            self,
            Self::ChargeRefunded
                | Self::RefundCreated
                | Self::RefundUpdated
                | Self::RefundFailed
                | Self::ChargeRefundUpdated
                | Self::CreditNoteCreated
                | Self::CreditNoteVoided
                | Self::DisputeFundsWithdrawn
                | Self::DisputeFundsReinstated
                | Self::DisputeClosed
        )
    }

    /// The type of this name; `None` if weir does not read it.
    pub fn of(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|kind| kind.name() == name)
    }
}

/// An event of the processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentEvent {
    /// The processor's id.
    pub id: String,
    /// The processor's name of the type, for example `invoice.paid`.
    #[serde(rename = "type")]
    pub name: String,
    /// The time of the event, by the processor's clock.
    pub created_at: Millis,
    /// The customer.
    pub customer: Option<String>,
    /// The user id that weir sent to the processor. There may be no such user.
    pub user_id: Option<String>,
    /// The content.
    pub about: EventContent,
}

/// The content of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventContent {
    /// `checkout.session.completed`.
    Checkout(Checkout),
    /// `customer.subscription.…`.
    Subscription(SubscriptionUpdate),
    /// `invoice.paid` and `invoice.payment_failed`.
    Invoice(Invoice),
    /// `payment_intent.succeeded` and `payment_intent.payment_failed`.
    Payment(PaymentUpdate),
    /// `customer.created`.
    Customer,
    /// `charge.refunded`.
    Refund(Reversal),
    /// `refund.…` and `charge.refund.updated`.
    RefundState(RefundUpdate),
    /// `credit_note.…`.
    CreditNote(CreditNote),
    /// `charge.dispute.…`.
    Dispute(Reversal),
    /// Any other event.
    Unknown,
}

/// A completed checkout. Its payment may still be in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkout {
    /// The session's id.
    pub session: String,
    /// The subscription that it began.
    pub subscription: Option<String>,
    /// The payment of other checkouts, unless the price was 0.
    pub payment: Option<String>,
    /// Whether the processor has the money.
    pub is_paid: bool,
    /// In cents.
    pub amount: i64,
    /// Three letters, for example `usd`. Null in events of weir versions that did not read it, also in the other types.
    #[serde(default)]
    pub currency: Option<String>,
    /// The purchase.
    pub purchase: Purchase,
}

/// The purpose of a payment, which weir sent to the processor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purchase {
    /// `plan`, `topup` or `auto_topup`.
    pub purpose: Option<String>,
    /// The plan's name.
    pub plan: Option<String>,
    /// The tier's name.
    pub tier: Option<String>,
    /// The charge of an auto top-up.
    pub charge_id: Option<String>,
}

/// A change of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionUpdate {
    /// Its id.
    pub id: String,
    /// The kind of change.
    pub change: SubscriptionChange,
    /// The processor's status: `active`, `trialing`, `past_due`, `canceled` …
    pub status: String,
    /// The plan.
    pub plan: PlanHint,
    /// The current period.
    pub period: Option<PaidPeriod>,
    /// Whether the subscription ends with that period.
    pub is_ending: bool,
    /// Whether the processor collects no payments (`pause_collection`). The status does not show that.
    #[serde(default)]
    pub is_paused: bool,
    /// Three letters.
    #[serde(default)]
    pub currency: Option<String>,
    /// The end of the trial.
    pub trial_ends_at: Option<Millis>,
    /// Whether the subscription has more items than the event shows.
    #[serde(default)]
    pub has_more_items: bool,
}

/// Changes of subscriptions. If two happen in the same second, the later variant counts as the later change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionChange {
    /// `customer.subscription.created`.
    Created,
    /// `customer.subscription.trial_will_end`.
    TrialWillEnd,
    /// `customer.subscription.updated`.
    Updated,
    /// `customer.subscription.deleted`.
    Deleted,
}

/// Hints that identify a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanHint {
    /// The processor's price ids.
    pub prices: Vec<String>,
    /// Names of plans, the most reliable first.
    pub names: Vec<String>,
}

/// A paid period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaidPeriod {
    /// The first moment.
    pub start: Millis,
    /// The first moment after it.
    pub end: Millis,
}

/// An invoice, paid or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invoice {
    /// Its id.
    pub id: String,
    /// Whether the invoice is paid.
    pub is_paid: bool,
    /// The subscription.
    pub subscription: Option<String>,
    /// The payment, if the processor names it.
    pub payment: Option<String>,
    /// The paid amount in cents.
    pub amount: i64,
    /// The whole amount in cents, also the part that the customer's balance pays; negative if the balance gets it. Null
    /// in events of weir versions that did not read it.
    #[serde(default)]
    pub total: Option<i64>,
    /// Three letters.
    #[serde(default)]
    pub currency: Option<String>,
    /// Number of the processor's attempts.
    pub attempts: i64,
    /// The time of the processor's next attempt.
    pub next_attempt_at: Option<Millis>,
    /// The lines that belong to the subscription.
    pub lines: Vec<InvoiceLine>,
    /// Whether the invoice has more lines than the event shows. Null in events of weir versions that did not read it.
    #[serde(default)]
    pub has_more_lines: Option<bool>,
}

/// An invoice line of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvoiceLine {
    /// The period of the line.
    pub period: PaidPeriod,
    /// Whether the line is for a change within a period, from that change on, not for a whole period.
    pub is_proration: bool,
    /// In cents; negative for a refund.
    pub amount: i64,
    /// The whole price in cents, if the event has it. API version 2024-12-18.acacia has it.
    #[serde(default)]
    pub price_cents: Option<i64>,
    /// The plan.
    pub plan: PlanHint,
}

/// A payment, succeeded or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentUpdate {
    /// Its id.
    pub id: String,
    /// Whether the processor has the money.
    pub has_succeeded: bool,
    /// In cents.
    pub amount: i64,
    /// Three letters.
    #[serde(default)]
    pub currency: Option<String>,
    /// The purpose.
    pub purchase: Purchase,
    /// The processor's code of the failure, for example `card_declined`.
    pub error: Option<String>,
}

/// A refunded charge or a dispute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reversal {
    /// The id of the refunded charge, or of the dispute.
    pub id: String,
    /// The payment.
    pub payment: Option<String>,
    /// In cents. For a charge, the sum of all its refunds; for a settled dispute, the money that did not come back.
    pub amount: i64,
    /// Three letters.
    #[serde(default)]
    pub currency: Option<String>,
    /// Whether the dispute is closed, or its money came back.
    #[serde(default)]
    pub is_settled: bool,
}

/// The state of a refund.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefundUpdate {
    /// The refund's id.
    pub id: String,
    /// The refunded charge.
    pub charge: Option<String>,
    /// The payment.
    pub payment: Option<String>,
    /// In cents.
    pub amount: i64,
    /// Three letters.
    pub currency: Option<String>,
    /// Whether the money stays with the merchant: the refund failed or was cancelled.
    pub has_failed: bool,
}

/// A credit note for a paid invoice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditNote {
    /// The credit note's id.
    pub id: String,
    /// The invoice.
    pub invoice: String,
    /// In cents: the money that goes back. 0 if the note only lowers an unpaid amount.
    pub amount: i64,
    /// A refund that is a part of the amount.
    pub refund: Option<String>,
    /// Three letters.
    pub currency: Option<String>,
    /// Whether the note was voided.
    pub is_void: bool,
}

/// A list that the processor cut in an event. The id is that of the object with the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingPart<'a> {
    InvoiceLines(&'a str),
    SubscriptionItems(&'a str),
}

/// The reason for which a body is not an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidEvent {
    /// The field's path; empty for the whole body.
    pub field: String,
    pub what: String,
}

impl PaymentEvent {
    /// Reads a signed body. An event of an unknown type has [`EventContent::Unknown`].
    pub fn read(body: &[u8]) -> Result<Self, InvalidEvent> {
        let envelope: Envelope = read(body, "")?;
        let name = envelope.name.0;
        let mut event = Self {
            id: envelope.id.0,
            name,
            created_at: envelope.created.0,
            customer: None,
            user_id: None,
            about: EventContent::Unknown,
        };
        if let Some(kind) = EventType::of(&event.name) {
            let object = Value::Object(envelope.data.object).to_string();
            event.read_object(kind, object.as_bytes())?;
        }
        Ok(event)
    }

    /// Reads the object of an event of a known type.
    fn read_object(&mut self, kind: EventType, object: &[u8]) -> Result<(), InvalidEvent> {
        let CustomerReference {
            customer,
            client_reference_id,
            metadata: EventMetadata { user_id, purchase },
        } = read(object, OBJECT)?;
        (self.customer, self.user_id) = (customer, user_id);
        self.about = match kind {
            EventType::CheckoutCompleted => {
                self.user_id = self.user_id.take().or(client_reference_id);
                EventContent::Checkout(read::<RawCheckout>(object, OBJECT)?.reduce(purchase))
            }
            EventType::SubscriptionCreated => subscription(object, SubscriptionChange::Created)?,
            EventType::SubscriptionUpdated => subscription(object, SubscriptionChange::Updated)?,
            EventType::SubscriptionDeleted => subscription(object, SubscriptionChange::Deleted)?,
            EventType::TrialWillEnd => subscription(object, SubscriptionChange::TrialWillEnd)?,
            EventType::InvoicePaid | EventType::InvoicePaymentFailed => {
                let raw: RawInvoice = read(object, OBJECT)?;
                self.user_id = raw.user_id().or(self.user_id.take());
                EventContent::Invoice(raw.reduce(kind == EventType::InvoicePaid))
            }
            EventType::PaymentSucceeded | EventType::PaymentFailed => {
                let raw: RawPayment = read(object, OBJECT)?;
                EventContent::Payment(raw.reduce(kind == EventType::PaymentSucceeded, purchase))
            }
            EventType::CustomerCreated => {
                self.customer = Some(read::<RawCustomer>(object, OBJECT)?.id.0);
                EventContent::Customer
            }
            EventType::ChargeRefunded => {
                EventContent::Refund(read::<RawCharge>(object, OBJECT)?.reduce())
            }
            EventType::RefundCreated
            | EventType::RefundUpdated
            | EventType::RefundFailed
            | EventType::ChargeRefundUpdated => {
                let raw: RawRefund = read(object, OBJECT)?;
                EventContent::RefundState(raw.reduce(kind == EventType::RefundFailed))
            }
            EventType::CreditNoteCreated | EventType::CreditNoteVoided => {
                let raw: RawCreditNote = read(object, OBJECT)?;
                EventContent::CreditNote(raw.reduce(kind == EventType::CreditNoteVoided))
            }
            EventType::DisputeFundsWithdrawn
            | EventType::DisputeFundsReinstated
            | EventType::DisputeClosed => {
                EventContent::Dispute(read::<RawDispute>(object, OBJECT)?.reduce(kind))
            }
        };
        Ok(())
    }

    /// The list without which the event cannot be applied; `None` if the event shows everything that weir uses. Stripe
    /// shows ten entries of a list: <https://docs.stripe.com/api/invoices/object> (`lines`, `has_more`).
    pub fn missing(&self) -> Option<MissingPart<'_>> {
        match &self.about {
            EventContent::Invoice(invoice)
                if invoice.is_paid && invoice.has_more_lines == Some(true) =>
            {
                Some(MissingPart::InvoiceLines(&invoice.id))
            }
            EventContent::Subscription(news)
                if news.has_more_items && news.change != SubscriptionChange::Deleted =>
            {
                Some(MissingPart::SubscriptionItems(&news.id))
            }
            _ => None,
        }
    }

    /// Adds the lines of the whole invoice, as the processor's API has it.
    pub fn add_lines(&mut self, whole: &Value) -> Result<(), InvalidEvent> {
        let raw: RawInvoice = read(whole.to_string().as_bytes(), "")?;
        if let EventContent::Invoice(invoice) = &mut self.about {
            let whole = raw.reduce(invoice.is_paid);
            invoice.lines = whole.lines;
            invoice.has_more_lines = whole.has_more_lines;
        }
        Ok(())
    }

    /// Adds the prices of all items of the subscription, as the processor's API has them.
    pub fn add_items(&mut self, items: &[Value]) -> Result<(), InvalidEvent> {
        let items = Value::from(items.to_vec()).to_string();
        let items: Vec<RawItem> = read(items.as_bytes(), "items")?;
        if let EventContent::Subscription(news) = &mut self.about {
            let mut plan = PlanHint::default();
            let prices = items.into_iter().filter_map(|item| item.price);
            prices.for_each(|price| plan.add(price));
            plan.names.append(&mut news.plan.names);
            news.plan = plan;
            news.has_more_items = false;
        }
        Ok(())
    }

    /// The subscription, payment or customer of the event. weir reads all events of a subject together.
    pub fn subject(&self) -> Option<&str> {
        match &self.about {
            EventContent::Checkout(checkout) => Some(
                checkout
                    .subscription
                    .as_deref()
                    .unwrap_or(checkout.payment_id()),
            ),
            EventContent::Subscription(news) => Some(&news.id),
            EventContent::Invoice(invoice) => {
                Some(invoice.subscription.as_deref().unwrap_or(&invoice.id))
            }
            EventContent::Payment(payment) => Some(&payment.id),
            EventContent::Customer => self.customer.as_deref(),
            EventContent::Refund(reversal) | EventContent::Dispute(reversal) => {
                Some(reversal.payment_id())
            }
            EventContent::RefundState(refund) => Some(refund.payment_id()),
            EventContent::CreditNote(note) => Some(&note.invoice),
            EventContent::Unknown => None,
        }
    }
}

impl Checkout {
    /// The id of the payment. A session with a price of 0 stands for its payment.
    pub fn payment_id(&self) -> &str {
        self.payment.as_deref().unwrap_or(&self.session)
    }
}

impl Reversal {
    /// The id of the payment, or of the charge if it has no payment.
    pub fn payment_id(&self) -> &str {
        self.payment.as_deref().unwrap_or(&self.id)
    }
}

impl RefundUpdate {
    /// The id of the charge, or the best known id.
    pub fn charge_id(&self) -> &str {
        self.charge.as_deref().unwrap_or(self.payment_id())
    }

    /// The id of the payment, or else of the charge.
    pub fn payment_id(&self) -> &str {
        let known = self.payment.as_deref().or(self.charge.as_deref());
        known.unwrap_or(&self.id)
    }
}

impl Invoice {
    /// The amount in cents for which the invoice gives credits: the customer's balance pays as well as a card.
    pub fn charged(&self) -> i64 {
        self.amount.max(self.total.unwrap_or_default())
    }

    /// The id of the payment. The invoice stands for its payment if the processor does not name one.
    pub fn payment_id(&self) -> &str {
        self.payment.as_deref().unwrap_or(&self.id)
    }
}

impl From<InvalidEvent> for ApiError {
    fn from(InvalidEvent { field, what }: InvalidEvent) -> Self {
        Self::invalid_request(field, format!("The body is no event of payments: {what}."))
    }
}

fn subscription(object: &[u8], change: SubscriptionChange) -> Result<EventContent, InvalidEvent> {
    let raw: RawSubscription = read(object, OBJECT)?;
    Ok(EventContent::Subscription(raw.reduce(change)))
}

fn read<T: for<'a> Deserialize<'a>>(body: &[u8], at: &str) -> Result<T, InvalidEvent> {
    let mut json = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let dot = if at.is_empty() { "" } else { "." };
        let field = match &*path {
            // The error is about the whole object, or the object is not JSON.
            "." | "?" => at.to_owned(),
            path => format!("{at}{dot}{path}"),
        };
        InvalidEvent {
            field,
            what: error.into_inner().to_string(),
        }
    })
}

#[derive(Deserialize)]
struct Envelope {
    id: Id,
    #[serde(rename = "type")]
    name: Id,
    created: Seconds,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    object: Map<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CustomerReference {
    #[serde(deserialize_with = "reference")]
    customer: Option<String>,
    #[serde(deserialize_with = "reference")]
    client_reference_id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    metadata: EventMetadata,
}

/// Metadata that weir sent to the processor. Other systems may have added more.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EventMetadata {
    user_id: Option<String>,
    #[serde(flatten)]
    purchase: Purchase,
}

#[derive(Deserialize)]
struct RawCheckout {
    id: Id,
    #[serde(default, deserialize_with = "reference")]
    subscription: Option<String>,
    #[serde(default, deserialize_with = "reference")]
    payment_intent: Option<String>,
    payment_status: String,
    #[serde(default, deserialize_with = "or_default")]
    amount_total: i64,
    #[serde(default)]
    currency: Option<String>,
}

#[derive(Deserialize)]
struct RawSubscription {
    id: Id,
    status: String,
    #[serde(default)]
    current_period_start: Option<Seconds>,
    #[serde(default)]
    current_period_end: Option<Seconds>,
    #[serde(default)]
    cancel_at_period_end: bool,
    #[serde(default)]
    cancel_at: Option<Seconds>,
    #[serde(default)]
    trial_end: Option<Seconds>,
    #[serde(default)]
    pause_collection: Option<Map<String, Value>>,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default)]
    items: ProcessorList<RawItem>,
    #[serde(default, deserialize_with = "or_default")]
    metadata: EventMetadata,
}

#[derive(Deserialize)]
struct ProcessorList<T> {
    #[serde(default = "Vec::new")]
    data: Vec<T>,
    #[serde(default)]
    has_more: bool,
}

#[derive(Deserialize)]
struct RawItem {
    #[serde(default)]
    current_period_start: Option<Seconds>,
    #[serde(default)]
    current_period_end: Option<Seconds>,
    #[serde(default)]
    price: Option<RawPrice>,
}

#[derive(Deserialize)]
struct RawPrice {
    id: Id,
    #[serde(default)]
    unit_amount: Option<i64>,
    #[serde(default, deserialize_with = "or_default")]
    metadata: EventMetadata,
}

#[derive(Deserialize)]
struct RawInvoice {
    id: Id,
    #[serde(default, deserialize_with = "reference")]
    subscription: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    subscription_details: SubscriptionDetails,
    #[serde(default, deserialize_with = "or_default")]
    parent: RawParent,
    #[serde(default, deserialize_with = "reference")]
    payment_intent: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    payments: ProcessorList<RawInvoicePayment>,
    #[serde(default, deserialize_with = "or_default")]
    amount_paid: i64,
    #[serde(default)]
    total: Option<i64>,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    attempt_count: i64,
    #[serde(default)]
    next_payment_attempt: Option<Seconds>,
    #[serde(default)]
    lines: ProcessorList<RawLine>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawParent {
    #[serde(rename = "type", deserialize_with = "or_default")]
    kind: Option<String>,
    #[serde(deserialize_with = "or_default")]
    subscription_details: SubscriptionDetails,
    #[serde(deserialize_with = "or_default")]
    subscription_item_details: ItemDetails,
    #[serde(deserialize_with = "or_default")]
    invoice_item_details: ItemDetails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SubscriptionDetails {
    #[serde(deserialize_with = "reference")]
    subscription: Option<String>,
    #[serde(deserialize_with = "or_default")]
    metadata: EventMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ItemDetails {
    proration: bool,
    #[serde(deserialize_with = "reference")]
    subscription: Option<String>,
}

#[derive(Deserialize)]
struct RawInvoicePayment {
    #[serde(default, deserialize_with = "or_default")]
    payment: RawPaymentReference,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawPaymentReference {
    #[serde(deserialize_with = "reference")]
    payment_intent: Option<String>,
}

#[derive(Deserialize)]
struct RawLine {
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: Option<String>,
    period: RawPeriod,
    #[serde(default, deserialize_with = "reference")]
    subscription: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    amount: i64,
    #[serde(default)]
    proration: bool,
    #[serde(default)]
    price: Option<RawPrice>,
    #[serde(default, deserialize_with = "or_default")]
    pricing: RawPricing,
    #[serde(default, deserialize_with = "or_default")]
    parent: RawParent,
    #[serde(default, deserialize_with = "or_default")]
    metadata: EventMetadata,
}

#[derive(Deserialize)]
struct RawPeriod {
    start: Seconds,
    end: Seconds,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawPricing {
    #[serde(deserialize_with = "or_default")]
    price_details: RawPriceDetails,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawPriceDetails {
    #[serde(deserialize_with = "reference")]
    price: Option<String>,
}

#[derive(Deserialize)]
struct RawPayment {
    id: Id,
    amount: i64,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default)]
    last_payment_error: Option<RawPaymentError>,
}

#[derive(Deserialize)]
struct RawPaymentError {
    #[serde(default)]
    decline_code: Option<String>,
    #[serde(default)]
    code: Option<String>,
}

#[derive(Deserialize)]
struct RawCustomer {
    id: Id,
}

#[derive(Deserialize)]
struct RawCharge {
    id: Id,
    #[serde(default, deserialize_with = "reference")]
    payment_intent: Option<String>,
    amount_refunded: i64,
    #[serde(default)]
    currency: Option<String>,
}

#[derive(Deserialize)]
struct RawDispute {
    id: Id,
    #[serde(default, deserialize_with = "reference")]
    payment_intent: Option<String>,
    amount: i64,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    status: String,
    #[serde(default, deserialize_with = "or_default")]
    balance_transactions: Vec<RawTransaction>,
}

/// A movement of the merchant's money, in the currency of the merchant's account: negative if it was withdrawn.
#[derive(Deserialize)]
struct RawTransaction {
    amount: i64,
}

#[derive(Deserialize)]
struct RawRefund {
    id: Id,
    #[serde(default, deserialize_with = "reference")]
    charge: Option<String>,
    #[serde(default, deserialize_with = "reference")]
    payment_intent: Option<String>,
    amount: i64,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    status: String,
}

#[derive(Deserialize)]
struct RawCreditNote {
    id: Id,
    invoice: RawReference,
    total: i64,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    status: String,
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    kind: String,
    /// Until API version 2025-03-31.
    #[serde(default, deserialize_with = "reference")]
    refund: Option<String>,
    #[serde(default, deserialize_with = "reference")]
    customer_balance_transaction: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    out_of_band_amount: i64,
    /// Since API version 2025-03-31.
    #[serde(default)]
    post_payment_amount: Option<i64>,
    #[serde(default, deserialize_with = "or_default")]
    refunds: Vec<RawNotedRefund>,
}

#[derive(Deserialize)]
struct RawNotedRefund {
    amount_refunded: i64,
}

/// A reference that is never null.
struct RawReference(String);

impl<T> Default for ProcessorList<T> {
    fn default() -> Self {
        Self {
            data: Vec::new(),
            has_more: false,
        }
    }
}

impl RawCheckout {
    fn reduce(self, purchase: Purchase) -> Checkout {
        Checkout {
            session: self.id.0,
            subscription: self.subscription,
            payment: self.payment_intent,
            // The status is `paid` or `no_payment_required`.
            is_paid: self.payment_status != "unpaid",
            amount: self.amount_total,
            currency: self.currency,
            purchase,
        }
    }
}

impl RawSubscription {
    fn reduce(self, change: SubscriptionChange) -> SubscriptionUpdate {
        let mut starts = self.items.data.iter().map(|item| item.current_period_start);
        let mut ends = self.items.data.iter().map(|item| item.current_period_end);
        let start = self.current_period_start.or_else(|| starts.next()?);
        let end = self.current_period_end.or_else(|| ends.next()?);
        let period = PaidPeriod::of(start, end);
        let ends_with_it = |at: Seconds| period.is_none_or(|period: PaidPeriod| at.0 <= period.end);
        let has_more_items = self.items.has_more;
        let prices = self.items.data.into_iter().filter_map(|item| item.price);
        let mut plan = PlanHint::default();
        prices.for_each(|price| plan.add(price));
        plan.names.extend(self.metadata.purchase.plan);
        SubscriptionUpdate {
            id: self.id.0,
            change,
            status: self.status,
            plan,
            period,
            is_ending: self.cancel_at_period_end || self.cancel_at.is_some_and(ends_with_it),
            is_paused: self.pause_collection.is_some(),
            currency: self.currency,
            trial_ends_at: self.trial_end.map(|at| at.0),
            has_more_items,
        }
    }
}

impl RawInvoice {
    fn user_id(&self) -> Option<String> {
        let details = [
            &self.parent.subscription_details,
            &self.subscription_details,
        ];
        let mut named = details.map(|details| details.metadata.user_id.clone());
        named.iter_mut().find_map(Option::take)
    }

    fn reduce(self, is_paid: bool) -> Invoice {
        let plan = [
            self.parent.subscription_details.metadata.purchase.plan,
            self.subscription_details.metadata.purchase.plan,
        ];
        let plan = plan.into_iter().flatten().next();
        // The invoice of a subscription that has ended may name it in its lines only.
        let of_line = || self.lines.data.iter().find_map(RawLine::prorated);
        let subscription = self
            .subscription
            .or(self.parent.subscription_details.subscription)
            .or_else(of_line);
        let has_more_lines = Some(self.lines.has_more);
        let lines = self.lines.data.into_iter();
        let lines = lines.filter_map(|line| line.reduce(plan.as_ref()));
        let mut payments = self.payments.data.into_iter();
        Invoice {
            id: self.id.0,
            is_paid,
            payment: self
                .payment_intent
                .or_else(|| payments.find_map(|paid| paid.payment.payment_intent)),
            amount: self.amount_paid,
            total: self.total,
            currency: self.currency,
            attempts: self.attempt_count,
            next_attempt_at: self.next_payment_attempt.map(|at| at.0),
            lines: match subscription {
                Some(_) => lines.collect(),
                None => Vec::new(),
            },
            has_more_lines,
            subscription,
        }
    }
}

impl RawLine {
    /// The subscription of a proration.
    fn prorated(&self) -> Option<String> {
        let added = &self.parent.invoice_item_details;
        let item = &self.parent.subscription_item_details;
        let is_proration = self.proration || added.proration || item.proration;
        let named = [&self.subscription, &added.subscription, &item.subscription];
        let named = named.into_iter().find_map(Option::as_ref);
        named.filter(|_| is_proration).cloned()
    }

    /// Reads the line, if it belongs to a subscription. `plan` is the plan of that subscription.
    fn reduce(self, plan: Option<&String>) -> Option<InvoiceLine> {
        let RawParent {
            kind: parent,
            subscription_item_details: item,
            invoice_item_details: added,
            ..
        } = self.parent;
        let is_proration = self.proration || item.proration || added.proration;
        // A line without a type belongs to the subscription. A manually added item does not, unless it is a proration.
        let kind = self.kind.or(parent);
        if !is_proration && kind.is_some_and(|kind| !kind.starts_with("subscription")) {
            return None;
        }
        let mut hint = PlanHint::default();
        let mut price_cents = None;
        if let Some(price) = self.price {
            price_cents = price.unit_amount;
            hint.add(price);
        }
        hint.prices.extend(self.pricing.price_details.price);
        let named = [self.metadata.purchase.plan, plan.cloned()];
        hint.names.extend(named.into_iter().flatten());
        Some(InvoiceLine {
            period: PaidPeriod::of(Some(self.period.start), Some(self.period.end))?,
            is_proration,
            amount: self.amount,
            price_cents,
            plan: hint,
        })
    }
}

impl RawPayment {
    fn reduce(self, has_succeeded: bool, purchase: Purchase) -> PaymentUpdate {
        let error = self.last_payment_error;
        PaymentUpdate {
            id: self.id.0,
            has_succeeded,
            amount: self.amount,
            currency: self.currency,
            purchase,
            error: error.and_then(|error| error.decline_code.or(error.code)),
        }
    }
}

impl RawCharge {
    fn reduce(self) -> Reversal {
        Reversal {
            payment: self.payment_intent,
            amount: self.amount_refunded,
            currency: self.currency,
            id: self.id.0,
            is_settled: false,
        }
    }
}

impl RawRefund {
    fn reduce(self, has_failed: bool) -> RefundUpdate {
        RefundUpdate {
            has_failed: has_failed || matches!(&*self.status, "failed" | "canceled"),
            id: self.id.0,
            charge: self.charge,
            payment: self.payment_intent,
            amount: self.amount,
            currency: self.currency,
        }
    }
}

impl RawCreditNote {
    fn reduce(self, is_void: bool) -> CreditNote {
        let whole = match self.post_payment_amount {
            Some(amount) => amount,
            // The note lowers the amount of an unpaid invoice.
            None if self.kind == "pre_payment" => 0,
            // The refund is all that went back, and has its own events.
            None if self.refund.is_some()
                && self.customer_balance_transaction.is_none()
                && self.out_of_band_amount == 0 =>
            {
                0
            }
            None => self.total,
        };
        let refunds = self.refunds.iter().map(|refund| refund.amount_refunded);
        CreditNote {
            id: self.id.0,
            invoice: self.invoice.0,
            amount: whole.saturating_sub(refunds.sum()).max(0),
            refund: self.refund,
            currency: self.currency,
            is_void: is_void || self.status == "void",
        }
    }
}

impl RawDispute {
    fn reduce(self, kind: EventType) -> Reversal {
        let is_settled = kind != EventType::DisputeFundsWithdrawn;
        Reversal {
            amount: match is_settled {
                true => self.lost(kind),
                false => self.amount,
            },
            is_settled,
            payment: self.payment_intent,
            currency: self.currency,
            id: self.id.0,
        }
    }

    /// The cents of a settled dispute that did not come back. The dispute of a partly refunded payment returns a part of
    /// its money even if it is lost.
    fn lost(&self, kind: EventType) -> i64 {
        let amounts = || self.balance_transactions.iter().map(|moved| moved.amount);
        let withdrawn: i64 = amounts().filter(|amount| *amount < 0).sum();
        let returned: i64 = amounts().filter(|amount| *amount > 0).sum();
        match &*self.status {
            // The merchant never lost the money of an inquiry.
            "won" | "warning_closed" => 0,
            "lost" if withdrawn == 0 || returned == 0 => self.amount,
            _ if withdrawn == 0 || returned == 0 => match kind {
                EventType::DisputeFundsReinstated => 0,
                _ => self.amount,
            },
            _ => {
                let share = i128::from(returned.min(-withdrawn)) * i128::from(self.amount);
                let back = share / i128::from(-withdrawn);
                self.amount - i64::try_from(back).unwrap_or(self.amount)
            }
        }
    }
}

impl PaidPeriod {
    /// A moment within the period. Its bounds may be a few seconds off if a checkout began the period.
    pub fn middle(self) -> Millis {
        Millis(self.start.0 + (self.end.0 - self.start.0) / 2)
    }

    fn of(start: Option<Seconds>, end: Option<Seconds>) -> Option<Self> {
        let (start, end) = (start?.0, end?.0);
        (start < end).then_some(Self { start, end })
    }
}

impl PlanHint {
    fn add(&mut self, price: RawPrice) {
        self.prices.push(price.id.0);
        self.names.extend(price.metadata.purchase.plan);
    }
}

/// A text of 1 to [`MAX_ID_CHARACTERS`] characters.
struct Id(String);

impl<'a> Deserialize<'a> for Id {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        match (1..=MAX_ID_CHARACTERS).contains(&id.chars().count()) {
            true => Ok(Self(id)),
            false => Err(D::Error::custom(format!(
                "an id has 1 to {MAX_ID_CHARACTERS} characters"
            ))),
        }
    }
}

impl<'a> Deserialize<'a> for RawReference {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let named = reference(deserializer)?;
        named
            .map(Self)
            .ok_or_else(|| D::Error::custom("an id is missing"))
    }
}

/// A reference to another object: its id, the whole object if it is expanded, or null.
fn reference<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum IdReference {
        Id(Id),
        Whole { id: Id },
    }
    let reference = Option::<IdReference>::deserialize(deserializer)?;
    Ok(reference.map(|reference| match reference {
        IdReference::Id(id) | IdReference::Whole { id } => id.0,
    }))
}

/// Reads a value that the processor writes as null if it is absent.
fn or_default<'a, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'a> + Default,
    D: Deserializer<'a>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A moment in whole seconds since 1970.
#[derive(Clone, Copy)]
struct Seconds(Millis);

impl<'a> Deserialize<'a> for Seconds {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        // The limit is in the year 5138, so sums of moments do not overflow.
        match i64::deserialize(deserializer)? {
            seconds @ 0..100_000_000_000 => Ok(Self(Millis(seconds * 1_000))),
            _ => Err(D::Error::custom("a moment is in seconds since 1970")),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, object: &Value) -> Value {
        json!({ "id": "evt_1", "object": "event", "type": name, "created": 1_767_225_600, "livemode": false,
                "data": { "object": object } })
    }

    fn of(name: &str, object: &Value) -> PaymentEvent {
        PaymentEvent::read(event(name, object).to_string().as_bytes()).unwrap()
    }

    fn seconds(seconds: i64) -> Millis {
        Millis(seconds * 1_000)
    }

    #[test]
    fn what_is_read_of_an_event_is_kept_as_it_was() {
        let object = json!({ "id": "cs_1", "mode": "payment", "customer": "cus_1", "client_reference_id": "alice",
            "payment_intent": "pi_1", "payment_status": "paid", "amount_total": 500, "subscription": null,
            "customer_details": { "email": "alice@example.com" },
            "metadata": { "purpose": "topup", "tier": "small", "other": "x" } });
        let event = of("checkout.session.completed", &object);
        let stored = serde_json::to_string(&event).unwrap();
        assert!(!stored.contains("example.com"), "{stored}");
        assert_eq!(
            serde_json::from_str::<PaymentEvent>(&stored).unwrap(),
            event
        );
        assert_eq!(event.user_id.as_deref(), Some("alice"));
        assert_eq!(event.subject(), Some("pi_1"));
        assert_eq!(event.created_at, seconds(1_767_225_600));
    }

    /// The shapes of 2024 and of 2025.
    #[test]
    fn subscriptions_and_invoices_are_read_in_both_shapes() {
        let price = json!({ "id": "price_1", "metadata": { "plan": "guru" } });
        let before = json!({ "id": "sub_1", "customer": { "id": "cus_1", "object": "customer" }, "status": "active",
            "current_period_start": 100, "current_period_end": 200, "cancel_at_period_end": true,
            "items": { "data": [{ "price": price }] }, "metadata": { "user_id": "alice", "plan": "pro" } });
        let since = json!({ "id": "sub_1", "customer": "cus_1", "status": "active", "cancel_at": 200,
            "items": { "data": [{ "price": price, "current_period_start": 100, "current_period_end": 200 }] },
            "metadata": { "user_id": "alice", "plan": "pro" } });
        let name = "customer.subscription.updated";
        let event = of(name, &before);
        assert_eq!(of(name, &since), event);
        let EventContent::Subscription(news) = &event.about else {
            panic!("{event:?}")
        };
        let period = PaidPeriod {
            start: seconds(100),
            end: seconds(200),
        };
        assert_eq!((news.period, news.is_ending), (Some(period), true));
        assert_eq!(news.plan.names, ["guru", "pro"]);
        let later = json!({ "id": "sub_1", "status": "active", "current_period_start": 100,
            "current_period_end": 200, "cancel_at": 201 });
        let EventContent::Subscription(news) = of(name, &later).about else {
            panic!("{later}")
        };
        assert!(!news.is_ending);

        let line = json!({ "type": "subscription", "subscription": "sub_1", "proration": true, "amount": -500,
            "period": { "start": 100, "end": 200 }, "price": { "id": "price_1" } });
        let before = json!({ "id": "in_1", "customer": "cus_1", "subscription": "sub_1", "payment_intent": "pi_1",
            "subscription_details": { "metadata": { "user_id": "alice", "plan": "guru" } },
            "amount_paid": 1_000, "lines": { "data": [line, { "type": "invoiceitem", "period": { "start": 1, "end": 2 } }] } });
        let line = json!({ "amount": -500, "period": { "start": 100, "end": 200 },
            "pricing": { "price_details": { "price": "price_1" } },
            "parent": { "subscription_item_details": { "subscription": "sub_1", "proration": true } } });
        let since = json!({ "id": "in_1", "customer": "cus_1", "amount_paid": 1_000,
            "parent": { "subscription_details":
                { "subscription": "sub_1", "metadata": { "user_id": "alice", "plan": "guru" } } },
            "payments": { "data": [{ "payment": { "type": "payment_intent", "payment_intent": "pi_1" } }] },
            "lines": { "data": [line] } });
        let event = of("invoice.paid", &before);
        assert_eq!(of("invoice.paid", &since), event);
        assert_eq!(event.user_id.as_deref(), Some("alice"));
        let EventContent::Invoice(invoice) = event.about else {
            panic!("{before}")
        };
        assert_eq!((invoice.payment_id(), invoice.lines.len()), ("pi_1", 1));
        assert!(invoice.lines[0].is_proration && invoice.lines[0].plan.names == ["guru"]);
    }

    /// All kinds of lines, in the shapes of 2024-12-18.acacia and since 2025-03-31.basil.
    #[test]
    fn prorations_are_lines_of_a_subscription_and_other_added_items_are_not() {
        let line = |more: Value| {
            let mut line = json!({ "amount": 4_000, "period": { "start": 100, "end": 200 } });
            let fields = line.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            line
        };
        let details = |kind: &str, is_proration: bool| {
            let mut parent = json!({ "type": kind });
            parent[kind] = json!({ "subscription": "sub_1", "proration": is_proration });
            line(json!({ "parent": parent }))
        };
        let before = |kind: &str, is_proration: bool| {
            line(json!({ "type": kind, "subscription": "sub_1", "proration": is_proration }))
        };
        for (line, expected) in [
            (before("subscription", false), Some(false)),
            (before("subscription", true), Some(true)),
            (before("invoiceitem", true), Some(true)),
            (before("invoiceitem", false), None),
            (details("subscription_item_details", false), Some(false)),
            (details("subscription_item_details", true), Some(true)),
            (details("invoice_item_details", true), Some(true)),
            (details("invoice_item_details", false), None),
            (line(json!({})), Some(false)),
        ] {
            let invoice = json!({ "id": "in_1", "subscription": "sub_1", "currency": "usd",
                "lines": { "data": [&line], "has_more": true } });
            let EventContent::Invoice(invoice) = of("invoice.paid", &invoice).about else {
                panic!("{line}")
            };
            let found = invoice.lines.first().map(|line| line.is_proration);
            assert_eq!(found, expected, "{line}");
            assert_eq!(invoice.has_more_lines, Some(true));
            assert_eq!(invoice.currency.as_deref(), Some("usd"));
        }
    }

    #[test]
    fn what_is_no_event_is_refused_by_its_field() {
        let paid = json!({ "id": "pi_1", "amount": 500, "metadata": {} });
        let whole = event("payment_intent.succeeded", &paid);
        for (path, value, field) in [
            ("/id", json!(""), "id"),
            ("/id", json!("x".repeat(256)), "id"),
            ("/id", json!(7), "id"),
            ("/type", Value::Null, "type"),
            ("/created", json!(-1), "created"),
            ("/created", json!(1.5), "created"),
            ("/data", json!([]), "data"),
            ("/data/object", json!("pi_1"), "data.object"),
            ("/data/object/id", Value::Null, "data.object.id"),
            ("/data/object/amount", json!("500"), "data.object.amount"),
            ("/data/object/metadata", json!("x"), "data.object.metadata"),
        ] {
            let mut broken = whole.clone();
            *broken.pointer_mut(path).unwrap() = value;
            let refused = PaymentEvent::read(broken.to_string().as_bytes()).unwrap_err();
            assert_eq!(refused.field, field, "{broken}");
        }
        for body in ["", "[]", "null", "{", "\u{0}"] {
            assert_eq!(PaymentEvent::read(body.as_bytes()).unwrap_err().field, "");
        }
    }

    #[test]
    fn the_table_of_effects_names_every_type() {
        let table = include_str!("effects/mod.rs");
        for kind in EventType::ALL {
            let name = format!("`{}`", kind.name());
            assert!(table.contains(&name), "{name}");
            assert_eq!(EventType::of(kind.name()), Some(*kind));
        }
    }

    #[test]
    fn an_event_of_an_unknown_type_may_say_anything() {
        let object = json!({ "id": 7, "metadata": [], "customer": 1 });
        let event = of("price.updated", &object);
        assert_eq!(
            (&event.about, event.subject()),
            (&EventContent::Unknown, None)
        );
    }
}
