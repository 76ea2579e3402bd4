//! Events of a payment processor in its own form and signature, and their effect on users.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use sqlx::Row as _;
use weir_app::App;
use weir_ledger::AccountId;
use weir_payments::signature::sign;
use weir_storage::clock::{ManualClock, Millis};

use crate::client::{Answer, Client, patiently};
use crate::ledger::random::Random;

/// The path of the processor's webhook.
pub const WEBHOOK: &str = "/billing/webhook";

/// A user with a customer, a subscription and payments, all named after them.
#[derive(Debug, Clone)]
pub struct Payer(pub String);

/// A period by its two ends in ISO 8601.
#[derive(Debug, Clone, Copy)]
pub struct Span(pub &'static str, pub &'static str);

/// The properties of a subscription.
#[derive(Debug, Clone, Copy)]
pub struct Like {
    /// The plan.
    pub plan: &'static str,
    /// The status.
    pub status: &'static str,
    /// The period.
    pub period: Span,
    /// The subscription ends with its period.
    pub ends: bool,
    /// The processor collects no payment for it.
    pub paused: bool,
}

/// A paid change of plan within a period: its moment and the period's end, and the cents of its two lines.
#[derive(Debug, Clone, Copy)]
pub struct Switch {
    /// The rest of the period.
    pub left: Span,
    /// The plan before, and the refunded part of its price, below zero.
    pub from: (&'static str, i64),
    /// The plan after, and the charged part of its price.
    pub to: (&'static str, i64),
}

/// A user's paid plan and credits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The plan's name.
    pub plan: String,
    /// Whole credits of the plan.
    pub plan_credits: i64,
    /// Whole credits from purchases.
    pub topup: i64,
    /// Whole credits owed.
    pub owed: i64,
    /// The plan ends with its period.
    pub is_ending: bool,
    /// The end of its period.
    pub period_end: String,
}

/// Returns the seconds since 1970 of an ISO 8601 moment.
pub fn seconds(moment: &str) -> i64 {
    let moment: Timestamp = moment.parse().expect("ISO 8601");
    moment.as_second()
}

/// Returns an event about an object.
pub fn event(id: &str, name: &str, at: &str, object: &Value) -> Value {
    json!({ "id": id, "object": "event", "api_version": "2024-06-20", "type": name, "created": seconds(at),
            "livemode": false, "pending_webhooks": 1, "data": { "object": object } })
}

impl Like {
    /// An active subscription.
    pub fn active(plan: &'static str, period: Span) -> Self {
        Self {
            plan,
            status: "active",
            period,
            ends: false,
            paused: false,
        }
    }

    /// The subscription in another status.
    #[must_use]
    pub fn in_status(self, status: &'static str) -> Self {
        Self { status, ..self }
    }

    /// The subscription with `pause_collection`.
    #[must_use]
    pub fn paused(self) -> Self {
        Self {
            paused: true,
            ..self
        }
    }

    /// The subscription, ending with its period.
    #[must_use]
    pub fn ending(self) -> Self {
        Self { ends: true, ..self }
    }
}

impl Payer {
    /// Returns the id of the processor's customer.
    pub fn customer(&self) -> String {
        format!("cus_{}", self.0)
    }

    /// Returns the id of the subscription.
    pub fn subscription(&self) -> String {
        format!("sub_{}", self.0)
    }

    /// Returns the id of a payment by its name.
    pub fn payment(&self, name: &str) -> String {
        format!("pi_{}_{name}", self.0)
    }

    fn event(&self, name: &str, id: &str, at: &str, object: &Value) -> Value {
        event(&format!("evt_{}_{id}", self.0), name, at, object)
    }

    /// `customer.created`.
    pub fn customer_created(&self, at: &str) -> Value {
        let object = json!({ "id": self.customer(), "object": "customer", "email": "somebody@example.com",
                             "metadata": { "user_id": self.0 } });
        self.event("customer.created", "customer", at, &object)
    }

    /// `checkout.session.completed` of the subscription.
    pub fn plan_bought(&self, id: &str, at: &str, plan: &str) -> Value {
        let object = json!({ "id": format!("cs_{}_{id}", self.0), "object": "checkout.session",
            "mode": "subscription", "customer": self.customer(), "client_reference_id": self.0,
            "subscription": self.subscription(), "payment_intent": null, "payment_status": "paid",
            "status": "complete", "amount_total": 1_000,
            "metadata": { "user_id": self.0, "purpose": "plan", "plan": plan } });
        self.event("checkout.session.completed", id, at, &object)
    }

    /// `checkout.session.completed` of a payment for credits.
    pub fn credits_bought(&self, id: &str, at: &str, payment: &str, tier: &str) -> Value {
        let object = json!({ "id": format!("cs_{}_{id}", self.0), "object": "checkout.session",
            "mode": "payment", "customer": self.customer(), "client_reference_id": self.0,
            "subscription": null, "payment_intent": self.payment(payment), "payment_status": "paid",
            "status": "complete", "amount_total": 500,
            "metadata": { "user_id": self.0, "purpose": "topup", "tier": tier } });
        self.event("checkout.session.completed", id, at, &object)
    }

    /// `customer.subscription.…`.
    pub fn subscription_is(&self, change: &str, id: &str, at: &str, like: Like) -> Value {
        let Span(start, end) = like.period;
        let object = json!({ "id": self.subscription(), "object": "subscription",
            "customer": self.customer(), "status": like.status, "cancel_at_period_end": like.ends,
            "current_period_start": seconds(start), "current_period_end": seconds(end),
            "trial_end": null, "currency": "usd",
            "pause_collection": like.paused.then(|| json!({ "behavior": "void", "resumes_at": null })), "items": { "object": "list", "data": [{ "price":
                { "id": format!("price_{}", like.plan), "metadata": { "plan": like.plan } } }] },
            "metadata": { "user_id": self.0, "purpose": "plan" } });
        self.event(&format!("customer.subscription.{change}"), id, at, &object)
    }

    /// `invoice.paid` for a period.
    pub fn invoice_paid(
        &self,
        id: &str,
        at: &str,
        payment: &str,
        plan: &str,
        period: Span,
    ) -> Value {
        self.invoice("invoice.paid", id, at, payment, plan, period)
    }

    /// `invoice.payment_failed` for a period.
    pub fn invoice_failed(&self, id: &str, at: &str, plan: &str, period: Span) -> Value {
        self.invoice("invoice.payment_failed", id, at, id, plan, period)
    }

    fn invoice(
        &self,
        name: &str,
        id: &str,
        at: &str,
        payment: &str,
        plan: &str,
        Span(start, end): Span,
    ) -> Value {
        let cents = if plan == "pro" { 5_000 } else { 1_000 };
        let object = json!({ "id": format!("in_{}_{id}", self.0), "object": "invoice",
            "customer": self.customer(), "subscription": self.subscription(),
            "payment_intent": self.payment(payment), "amount_paid": cents, "currency": "usd", "attempt_count": 1,
            "subscription_details": { "metadata": { "user_id": self.0 } },
            "lines": { "object": "list", "has_more": false, "data": [{ "type": "subscription", "amount": cents,
                "subscription": self.subscription(), "proration": false,
                "period": { "start": seconds(start), "end": seconds(end) },
                "price": { "id": format!("price_{plan}"), "metadata": { "plan": plan } } }] },
            "metadata": {} });
        self.event(name, id, at, &object)
    }

    /// `invoice.paid` of a change of plan, as Stripe's API version 2024-12-18.acacia has it: prorations are invoice
    /// items (`InvoiceLineItem` of the `stripe` package 17.5.0 for Node.js; a change's two lines:
    /// <https://docs.stripe.com/billing/subscriptions/prorations>).
    pub fn switch_paid(&self, id: &str, at: &str, payment: &str, switch: Switch) -> Value {
        self.switch("invoice.paid", id, at, payment, switch)
    }

    /// `invoice.payment_failed` of a change of plan.
    pub fn switch_failed(&self, id: &str, at: &str, switch: Switch) -> Value {
        self.switch("invoice.payment_failed", id, at, id, switch)
    }

    fn switch(&self, name: &str, id: &str, at: &str, payment: &str, switch: Switch) -> Value {
        let Switch { left, from, to } = switch;
        let line = |(plan, cents): (&str, i64)| {
            json!({ "type": "invoiceitem", "amount": cents, "currency": "usd",
                "subscription": self.subscription(), "proration": true,
                "period": { "start": seconds(left.0), "end": seconds(left.1) },
                "price": { "id": format!("price_{plan}"), "metadata": { "plan": plan } } })
        };
        let total = from.1 + to.1;
        let object = json!({ "id": format!("in_{}_{id}", self.0), "object": "invoice",
            "customer": self.customer(), "subscription": self.subscription(), "currency": "usd",
            "billing_reason": "subscription_update", "total": total, "amount_paid": total.max(0),
            "payment_intent": (total > 0).then(|| self.payment(payment)), "attempt_count": 1,
            "subscription_details": { "metadata": { "user_id": self.0 } },
            "lines": { "object": "list", "has_more": false, "data": [line(from), line(to)] },
            "metadata": {} });
        self.event(name, id, at, &object)
    }

    /// `payment_intent.succeeded` or `.payment_failed`, for credits.
    pub fn payment_is(
        &self,
        outcome: &str,
        id: &str,
        at: &str,
        payment: &str,
        tier: &str,
    ) -> Value {
        let error = match outcome {
            "succeeded" => Value::Null,
            _ => json!({ "code": "card_declined", "decline_code": "insufficient_funds" }),
        };
        let object = json!({ "id": self.payment(payment), "object": "payment_intent", "amount": 500,
            "customer": self.customer(), "status": outcome, "last_payment_error": error,
            "metadata": { "user_id": self.0, "purpose": "topup", "tier": tier } });
        self.event(&format!("payment_intent.{outcome}"), id, at, &object)
    }

    /// `charge.refunded`, with the refunded cents of the payment in total.
    pub fn refunded(&self, id: &str, at: &str, payment: &str, cents: i64) -> Value {
        let object = json!({ "id": format!("ch_{}_{payment}", self.0), "object": "charge",
            "customer": self.customer(), "payment_intent": self.payment(payment), "amount": 500,
            "amount_refunded": cents, "metadata": {} });
        self.event("charge.refunded", id, at, &object)
    }

    /// `refund.created`, `.updated` or `.failed`, of a refund by its name
    /// (<https://docs.stripe.com/api/refunds/object>; failed ones: <https://docs.stripe.com/refunds#failed-refunds>).
    pub fn refund_is(
        &self,
        change: &str,
        id: &str,
        at: &str,
        [refund, payment]: [&str; 2],
        (cents, status): (i64, &str),
    ) -> Value {
        let object = json!({ "id": format!("re_{}_{refund}", self.0), "object": "refund",
            "charge": format!("ch_{}_{payment}", self.0), "payment_intent": self.payment(payment),
            "amount": cents, "currency": "usd", "status": status, "metadata": {} });
        self.event(&format!("refund.{change}"), id, at, &object)
    }

    /// `credit_note.created` of the invoice of the event with this id, with the cents that go to the customer's balance
    /// (<https://docs.stripe.com/api/credit_notes/object>).
    pub fn credit_noted(&self, id: &str, at: &str, invoice: &str, cents: i64) -> Value {
        let object = json!({ "id": format!("cn_{}_{id}", self.0), "object": "credit_note",
            "customer": self.customer(), "invoice": format!("in_{}_{invoice}", self.0), "amount": cents,
            "total": cents, "currency": "usd", "status": "issued", "type": "post_payment", "refund": null,
            "customer_balance_transaction": format!("cbtxn_{id}"), "out_of_band_amount": null, "metadata": {} });
        self.event("credit_note.created", id, at, &object)
    }

    /// `charge.dispute.funds_withdrawn`, with the disputed cents of the payment.
    pub fn disputed(&self, id: &str, at: &str, payment: &str, cents: i64) -> Value {
        let change = ("funds_withdrawn", "needs_response");
        self.dispute_is(change, id, at, [id, payment], &[cents, -cents])
    }

    /// `charge.dispute.…` in a status, of a dispute by its name. The amounts are the disputed cents, and the movements of
    /// the merchant's money (<https://docs.stripe.com/api/disputes/object>).
    pub fn dispute_is(
        &self,
        (change, status): (&str, &str),
        id: &str,
        at: &str,
        [dispute, payment]: [&str; 2],
        amounts: &[i64],
    ) -> Value {
        let moved = amounts[1..]
            .iter()
            .map(|amount| json!({ "amount": amount }));
        let object = json!({ "id": format!("dp_{}_{dispute}", self.0), "object": "dispute",
            "charge": format!("ch_{}_{payment}", self.0), "payment_intent": self.payment(payment),
            "amount": amounts[0], "currency": "usd", "status": status,
            "balance_transactions": moved.collect::<Vec<_>>(), "metadata": {} });
        self.event(&format!("charge.dispute.{change}"), id, at, &object)
    }

    /// `invoice.paid` of a subscription that was cancelled at once with prorations: the rest of the price goes to the
    /// customer's balance (<https://docs.stripe.com/billing/subscriptions/prorations>,
    /// <https://docs.stripe.com/invoicing/customer/balance>).
    pub fn cancellation_credited(
        &self,
        id: &str,
        at: &str,
        plan: &'static str,
        left: Span,
        cents: i64,
    ) -> Value {
        let nothing = Switch {
            left,
            from: (plan, -cents),
            to: (plan, 0),
        };
        let mut event = self.switch_paid(id, at, id, nothing);
        let lines = event["data"]["object"]["lines"]["data"].as_array_mut();
        lines.expect("lines").truncate(1);
        event
    }

    /// Returns the user's paid plan and credits.
    pub async fn standing(&self, app: &App) -> Standing {
        let account = app.ledger.find_account(&AccountId(self.0.clone())).await;
        let account = account.expect("the database answers").expect("a user");
        Standing {
            plan: account.plan.name().to_owned(),
            plan_credits: account.balance.plan.rounded(),
            topup: account.balance.top_up.rounded(),
            owed: account.owed.rounded(),
            is_ending: account.cancelled_at.is_some(),
            period_end: account.period.end.iso(),
        }
    }

    /// Returns status, plan, end of period, ending and unpaid invoice of the stored subscription; `None` if it is
    /// unknown.
    pub async fn subscription_row(
        &self,
        app: &App,
    ) -> Option<(String, String, Option<i64>, bool, bool)> {
        let text = "SELECT status, plan, period_end, cancelled_at, payment_failed_at \
                    FROM payment_subscriptions WHERE id = $1";
        let row = sqlx::query(text)
            .bind(self.subscription())
            .fetch_optional(app.database.reader())
            .await
            .expect("the database answers")?;
        let moment = |column| row.get::<Option<i64>, _>(column);
        Some((
            row.get("status"),
            row.get("plan"),
            moment("period_end"),
            moment("cancelled_at").is_some(),
            moment("payment_failed_at").is_some(),
        ))
    }

    /// Returns the payments: id, kind, micro-credits, cents, and refunded cents.
    pub async fn payments(&self, app: &App) -> Vec<(String, String, i64, i64, i64)> {
        let text = "SELECT id, kind, credits, amount, refunded FROM payments WHERE user_id = $1 ORDER BY id";
        let rows = sqlx::query(text)
            .bind(&self.0)
            .fetch_all(app.database.reader())
            .await
            .expect("the database answers");
        let read =
            |row: &sqlx::any::AnyRow| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4));
        rows.iter().map(read).collect()
    }

    /// Returns the kinds of the user's notices.
    pub async fn notices(&self, app: &App) -> Vec<String> {
        sqlx::query_scalar("SELECT kind FROM notices WHERE user_id = $1 ORDER BY id")
            .bind(&self.0)
            .fetch_all(app.database.reader())
            .await
            .expect("the database answers")
    }
}

/// The processor of a gateway: it signs with the gateway's secret.
#[derive(Clone)]
pub struct Processor {
    client: Client,
    app: App,
}

impl Processor {
    /// The processor of this gateway.
    pub fn new(client: Client, app: &App) -> Self {
        Self {
            client,
            app: app.clone(),
        }
    }

    /// Returns the signature header for a body that is sent now.
    pub fn signature(&self, body: &str) -> String {
        self.signature_at(body, self.app.ledger.now())
    }

    /// Returns the signature header for another moment.
    pub fn signature_at(&self, body: &str, at: Millis) -> String {
        let secret = self.app.payments.webhook_secrets.first();
        sign(secret.expect("a processor"), at.seconds(), body.as_bytes())
    }

    /// Sends an event, which must be accepted, and waits for the attempt to apply it.
    pub async fn tell(&self, event: &Value) {
        self.hand_in(event).await;
        let text = "SELECT CAST(COUNT(*) AS BIGINT) FROM payment_events \
                    WHERE id = $1 AND (attempts > 0 OR applied_at IS NOT NULL)";
        // A busy gateway acknowledges the event before it applies it.
        patiently(async {
            loop {
                let tried: i64 = sqlx::query_scalar(text)
                    .bind(event["id"].as_str().expect("an id"))
                    .fetch_one(self.app.database.reader())
                    .await
                    .expect("the database answers");
                if tried == 1 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    /// Sends an event, which must be accepted.
    pub async fn hand_in(&self, event: &Value) {
        let answer = self.send(event).await;
        assert_eq!(answer.status, StatusCode::OK, "{}: {event}", answer.text());
        assert_eq!(answer.json(), json!({ "received": true }));
    }

    /// Sends an event.
    pub async fn send(&self, event: &Value) -> Answer {
        let body = event.to_string();
        let signature = self.signature(&body);
        self.send_signed(&body, &signature).await
    }

    /// Sends a body with a signature.
    pub async fn send_signed(&self, body: &str, signature: &str) -> Answer {
        let client = self.client.clone();
        let client = client.with_header("payment-signature", signature);
        let json = Some("application/json");
        let body = body.to_owned().into();
        client.send(Method::POST, WEBHOOK, json, body).await
    }

    /// Returns state and outcome of an event, or its last error.
    pub async fn state_of(&self, event: &Value) -> (String, String) {
        let text =
            "SELECT state, COALESCE(outcome, last_error, '') FROM payment_events WHERE id = $1";
        let row = sqlx::query(text)
            .bind(event["id"].as_str().expect("an id"))
            .fetch_one(self.app.database.reader())
            .await
            .expect("it is kept");
        (row.get(0), row.get(1))
    }

    /// Counts a user's unapplied events.
    pub async fn open_events(&self, payer: &Payer) -> i64 {
        let text = "SELECT CAST(COUNT(*) AS BIGINT) FROM payment_events \
                    WHERE (user_id = $1 OR customer_id = $2 OR subject IN ($3, $4, $5)) AND applied_at IS NULL";
        sqlx::query_scalar(text)
            .bind(&payer.0)
            .bind(payer.customer())
            // Refunds and disputes name no customer.
            .bind(payer.payment("first"))
            .bind(payer.payment("raise"))
            .bind(payer.payment("topup"))
            .fetch_one(self.app.database.reader())
            .await
            .expect("the database answers")
    }
}

/// The moment at the end of [`Payer::story`].
pub const AFTER_THE_STORY: &str = "2026-03-25T00:00:00Z";

/// Copies of each event of a story, and concurrent deliveries.
const COPIES: usize = 5;
const AT_ONCE: usize = 20;

impl Payer {
    /// Returns events of each type, some more than once: a subscription begins with a checkout, is raised to `pro` by
    /// a paid invoice, has an unpaid invoice and is deleted; half of its first payment is disputed and lost, and a tenth is
    /// credited; a dispute of the upgrade is won; half of the bought credits are refunded, and another refund fails.
    pub fn story(&self) -> Vec<Value> {
        let period = Span("2026-03-20T00:00:00Z", "2026-04-20T00:00:00Z");
        let (guru, pro) = (Like::active("guru", period), Like::active("pro", period));
        let first = "2026-03-20T00:00:00Z";
        // The rest is 30 of 31 days.
        let raise = Switch {
            left: Span("2026-03-21T00:00:00Z", "2026-04-20T00:00:00Z"),
            from: ("guru", -968),
            to: ("pro", 4_839),
        };
        let trial = self.subscription_is("trial_will_end", "trial", "2026-03-20T12:00:00Z", guru);
        vec![
            self.customer_created(first),
            self.subscription_is("created", "created", first, guru),
            self.invoice_paid("paid", "2026-03-20T00:00:01Z", "first", "guru", period),
            self.plan_bought("plan", "2026-03-20T00:00:02Z", "guru"),
            trial,
            self.subscription_is("updated", "raised", "2026-03-21T00:00:00Z", pro),
            self.switch_paid("raise", "2026-03-21T00:00:02Z", "raise", raise),
            self.payment_is(
                "payment_failed",
                "declined",
                "2026-03-21T00:00:00Z",
                "other",
                "small",
            ),
            self.credits_bought("topup", "2026-03-21T12:00:00Z", "topup", "medium"),
            self.payment_is(
                "succeeded",
                "topup-paid",
                "2026-03-21T12:00:00Z",
                "topup",
                "medium",
            ),
            self.invoice_failed("unpaid", "2026-03-22T00:00:00Z", "pro", period),
            self.refunded("part", "2026-03-22T00:00:00Z", "topup", 100),
            self.refunded("half", "2026-03-22T00:00:01Z", "topup", 250),
            self.refund_is(
                "created",
                "third",
                "2026-03-22T00:00:02Z",
                ["third", "topup"],
                (200, "pending"),
            ),
            self.refunded("more", "2026-03-22T00:00:03Z", "topup", 450),
            self.refund_is(
                "failed",
                "failed",
                "2026-03-22T00:00:04Z",
                ["third", "topup"],
                (200, "failed"),
            ),
            self.disputed("dispute", "2026-03-23T00:00:00Z", "first", 500),
            self.dispute_is(
                ("closed", "lost"),
                "lost",
                "2026-03-23T00:00:01Z",
                ["dispute", "first"],
                &[500, -500],
            ),
            self.credit_noted("note", "2026-03-23T00:00:02Z", "paid", 100),
            self.disputed("other", "2026-03-23T00:00:03Z", "raise", 1_000),
            self.dispute_is(
                ("closed", "won"),
                "won",
                "2026-03-23T00:00:04Z",
                ["other", "raise"],
                &[1_000, -1_000],
            ),
            self.dispute_is(
                ("funds_reinstated", "won"),
                "back",
                "2026-03-23T00:00:05Z",
                ["other", "raise"],
                &[1_000, -1_000, 1_000],
            ),
            self.subscription_is(
                "deleted",
                "deleted",
                "2026-03-24T00:00:00Z",
                pro.in_status("canceled"),
            ),
        ]
    }

    /// Sends a story: every event several times, in random order, concurrently, to random nodes.
    pub async fn tell_shuffled(&self, nodes: &[Processor], random: &mut Random) {
        let mut events: Vec<Value> = self.story();
        events = vec![events; COPIES].concat();
        for index in (1..events.len()).rev() {
            events.swap(index, random.below(index + 1));
        }
        let nodes = events.iter().map(|_| &nodes[random.below(nodes.len())]);
        let sent = events.iter().zip(nodes.collect::<Vec<_>>());
        stream::iter(sent)
            .map(|(event, node)| node.hand_in(event))
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
    }

    /// Waits until all events are applied; advances the clock for retries. Returns whether they are.
    pub async fn until_applied(&self, node: &Processor, clock: &ManualClock) -> bool {
        for _ in 0..1_000 {
            if node.open_events(self).await == 0 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            clock.advance(Duration::from_millis(20));
        }
        false
    }

    /// Returns the effects of the story, without the user's own name.
    pub async fn outcome(&self, app: &App) -> String {
        let all = (
            self.standing(app).await,
            self.subscription_row(app).await,
            self.payments(app).await,
            self.notices(app).await,
        );
        format!("{all:?}").replace(&self.0, "USER")
    }
}
