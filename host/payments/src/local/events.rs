//! The local processor's events, in the shapes of Stripe's.

use serde_json::{Value, json};
use weir_ledger::Period;
use weir_storage::clock::Millis;
use weir_storage::ids;

use super::customers::{LocalCharge, LocalSubscription, Session};
use crate::events::EventType;
use crate::offers::CURRENCY;
use crate::stripe::API_VERSION;

/// The customer and user of an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventParty<'a> {
    pub customer_id: &'a str,
    pub user_id: &'a str,
}

fn event(kind: EventType, object: Value, now: Millis) -> Value {
    json!({
        "id": format!("evt_local_{}", ids::answer_id()),
        "object": "event",
        "api_version": API_VERSION,
        "created": now.seconds(),
        "livemode": false,
        "type": kind.name(),
        "data": { "object": object },
    })
}

pub(super) fn customer_created(party: EventParty<'_>, now: Millis) -> Value {
    let customer = json!({
        "id": party.customer_id,
        "object": "customer",
        "created": now.seconds(),
        "metadata": { "user_id": party.user_id },
    });
    event(EventType::CustomerCreated, customer, now)
}

pub(super) fn session_completed(
    party: EventParty<'_>,
    id: &str,
    session: &Session,
    subscription: Option<&LocalSubscription>,
    now: Millis,
) -> Value {
    let is_plan = subscription.is_some();
    let object = json!({
        "id": id,
        "object": "checkout.session",
        "mode": if is_plan { "subscription" } else { "payment" },
        "status": "complete",
        "payment_status": "paid",
        "customer": party.customer_id,
        "client_reference_id": party.user_id,
        "amount_total": session.price_cents,
        "currency": CURRENCY,
        "created": session.created_at.seconds(),
        "expires_at": session.expires_at.seconds(),
        "subscription": subscription.map(|subscription| &subscription.id),
        "payment_intent": (!is_plan).then_some(&session.payment_id),
        "metadata": metadata(party, session),
    });
    event(EventType::CheckoutCompleted, object, now)
}

/// A payment on a checkout page, succeeded or failed.
pub(super) fn page_payment(
    party: EventParty<'_>,
    session: &Session,
    is_paid: bool,
    now: Millis,
) -> Value {
    // The payment of a plan belongs to its invoice. The subscription has the metadata of the order.
    let metadata = match session.purpose.as_str() {
        "plan" => json!({}),
        _ => metadata(party, session),
    };
    let (id, cents) = (&session.payment_id, session.price_cents);
    payment(party, id, cents, is_paid, metadata, now)
}

/// A payment of auto top-up, succeeded or failed.
pub(super) fn charge_payment(
    party: EventParty<'_>,
    charge_id: &str,
    charged: &LocalCharge,
    now: Millis,
) -> Value {
    let metadata = json!({
        "user_id": party.user_id,
        "purpose": "auto_topup",
        "tier": charged.tier,
        "charge_id": charge_id,
    });
    let (id, cents) = (&charged.payment_id, charged.price_cents);
    payment(party, id, cents, charged.is_paid, metadata, now)
}

fn payment(
    party: EventParty<'_>,
    id: &str,
    cents: u32,
    is_paid: bool,
    metadata: Value,
    now: Millis,
) -> Value {
    let error =
        json!({ "type": "card_error", "code": "card_declined", "decline_code": "generic_decline" });
    let object = json!({
        "id": id,
        "object": "payment_intent",
        "amount": cents,
        "amount_received": if is_paid { cents } else { 0 },
        "currency": CURRENCY,
        "customer": party.customer_id,
        "status": if is_paid { "succeeded" } else { "requires_payment_method" },
        "last_payment_error": (!is_paid).then_some(error),
        "created": now.seconds(),
        "metadata": metadata,
    });
    let kind = match is_paid {
        true => EventType::PaymentSucceeded,
        false => EventType::PaymentFailed,
    };
    event(kind, object, now)
}

pub(super) fn subscription_changed(
    party: EventParty<'_>,
    kind: EventType,
    subscription: &LocalSubscription,
    now: Millis,
) -> Value {
    let [start, end] = bounds(subscription);
    let is_cancelled = subscription.cancelled_at.is_some() && subscription.ended_at.is_none();
    let status = match subscription.ended_at {
        Some(_) => "canceled",
        None => "active",
    };
    let object = json!({
        "id": subscription.id,
        "object": "subscription",
        "customer": party.customer_id,
        "status": status,
        "created": subscription.created_at.seconds(),
        "current_period_start": start,
        "current_period_end": end,
        "cancel_at_period_end": is_cancelled,
        "cancel_at": is_cancelled.then_some(end),
        "canceled_at": subscription.cancelled_at.or(subscription.ended_at).map(Millis::seconds),
        "ended_at": subscription.ended_at.map(Millis::seconds),
        "items": { "object": "list", "data": [{
            "id": format!("si_{}", subscription.id),
            "object": "subscription_item",
            "price": price(subscription),
            "quantity": 1,
            "current_period_start": start,
            "current_period_end": end,
        }] },
        "metadata": plan_metadata(party, subscription),
    });
    event(kind, object, now)
}

pub(super) fn invoice_paid(
    party: EventParty<'_>,
    payment_id: &str,
    subscription: &LocalSubscription,
    now: Millis,
) -> Value {
    let cents = i64::from(subscription.price_cents);
    let lines = vec![line(party, subscription, subscription.period, cents, false)];
    invoice(
        party,
        "subscription_create",
        payment_id,
        subscription,
        lines,
        now,
    )
}

/// The invoice of a change of plan: a refund of the rest of the old price, and a charge for the same part of the new
/// price.
pub(super) fn switch_paid(
    party: EventParty<'_>,
    before: &LocalSubscription,
    after: &LocalSubscription,
    now: Millis,
) -> Value {
    let Period { start, end } = after.period;
    let left = Period {
        start: now.max(start),
        end,
    };
    let share = |cents: u32| {
        let whole = (end.0 - start.0).max(1);
        i64::from(cents) * (left.end.0 - left.start.0).max(0) / whole
    };
    let lines = vec![
        line(party, before, left, -share(before.price_cents), true),
        line(party, after, left, share(after.price_cents), true),
    ];
    let payment_id = format!("pi_local_{}", ids::answer_id());
    invoice(party, "subscription_update", &payment_id, after, lines, now)
}

/// A paid invoice. If its refunds exceed its charges, the customer has a credit balance and pays nothing.
fn invoice(
    party: EventParty<'_>,
    reason: &str,
    payment_id: &str,
    subscription: &LocalSubscription,
    lines: Vec<Value>,
    now: Millis,
) -> Value {
    let amounts = lines.iter().filter_map(|line| line["amount"].as_i64());
    let total: i64 = amounts.sum();
    let paid = total.max(0);
    let object = json!({
        "id": format!("in_local_{}", ids::answer_id()),
        "object": "invoice",
        "customer": party.customer_id,
        "status": "paid",
        "billing_reason": reason,
        "total": total,
        "amount_due": paid,
        "amount_paid": paid,
        "currency": CURRENCY,
        "created": now.seconds(),
        "subscription": subscription.id,
        "payment_intent": (paid > 0).then_some(payment_id),
        "subscription_details": { "metadata": plan_metadata(party, subscription) },
        "lines": { "object": "list", "has_more": false, "data": lines },
        "metadata": {},
    });
    event(EventType::InvoicePaid, object, now)
}

fn line(
    party: EventParty<'_>,
    subscription: &LocalSubscription,
    period: Period,
    cents: i64,
    is_proration: bool,
) -> Value {
    json!({
        "id": format!("il_local_{}", ids::answer_id()),
        "object": "line_item",
        // Stripe adds prorations as invoice items.
        "type": if is_proration { "invoiceitem" } else { "subscription" },
        "amount": cents,
        "currency": CURRENCY,
        "proration": is_proration,
        "subscription": subscription.id,
        "period": { "start": period.start.seconds(), "end": period.end.seconds() },
        "price": price(subscription),
        "metadata": plan_metadata(party, subscription),
    })
}

fn bounds(subscription: &LocalSubscription) -> [i64; 2] {
    let period = subscription.period;
    [period.start.seconds(), period.end.seconds()]
}

fn price(subscription: &LocalSubscription) -> Value {
    json!({
        "id": format!("price_local_{}", subscription.plan),
        "object": "price",
        "currency": CURRENCY,
        "unit_amount": subscription.price_cents,
        "recurring": { "interval": "month", "interval_count": 1 },
    })
}

fn plan_metadata(party: EventParty<'_>, subscription: &LocalSubscription) -> Value {
    json!({ "user_id": party.user_id, "purpose": "plan", "plan": subscription.plan })
}

fn metadata(party: EventParty<'_>, session: &Session) -> Value {
    let kind = match session.purpose.as_str() {
        "plan" => "plan",
        _ => "tier",
    };
    json!({ "user_id": party.user_id, "purpose": session.purpose, kind: session.item })
}
