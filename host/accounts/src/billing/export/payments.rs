//! Lines of money: payments, their bonuses, and refunds.

use std::collections::BTreeMap;

use serde_json::json;
use weir_ledger::{AccountId, Credits};
use weir_payments::effects::state::{cents_back, credits_back};
use weir_payments::effects::store::{self, Payment, PaymentKind};
use weir_payments::event_store;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::line::{ChargeCategory, ChargeDay, ExportLine, nano_usd, worth};

/// Money of a payment or of a refund, and its credits. The amount of a refund is negative, unless it failed later.
struct Flow<'a> {
    payment: &'a Payment,
    is_refund: bool,
    cents: i64,
    credits: Credits,
}

pub(super) async fn lines(
    database: &Database,
    account: Option<&AccountId>,
    day: ChargeDay,
) -> sqlx::Result<Vec<ExportLine>> {
    let user = account.map(|account| &*account.0);
    let span = [day.start, day.end];
    let mut lines = Vec::new();
    for payment in store::payments_between(database, user, span).await? {
        let paid = Flow {
            payment: &payment,
            is_refund: false,
            cents: payment.amount,
            credits: payment.credits,
        };
        paid.add_to(&mut lines, day);
    }
    let mut refunded = BTreeMap::new();
    for subject in event_store::refunded_between(database, user, span).await? {
        // Without a payment, the refund waits for it, and so does its line. Credit notes name the payment's invoice.
        if let Some(payment) = store::find_payment(database, &subject).await? {
            refunded.insert(payment.id.clone(), payment);
        }
    }
    for payment in refunded.into_values() {
        let invoice = payment.invoice.as_deref();
        let events = event_store::of_payment(database, &payment.id, invoice).await?;
        let cents = |before: Millis| {
            let events = events.iter().filter(|event| event.created_at < before);
            let events: Vec<_> = events.cloned().collect();
            cents_back(&events).min(payment.amount)
        };
        let credits = |cents| credits_back(payment.credits, cents, payment.amount);
        let (before, after) = (cents(day.start), cents(day.end));
        if after == before {
            continue;
        }
        let back = Flow {
            payment: &payment,
            is_refund: true,
            cents: before - after,
            credits: credits(before).since(credits(after)),
        };
        back.add_to(&mut lines, day);
    }
    Ok(lines)
}

impl Flow<'_> {
    /// Adds the line of the money, and a line of the bonus if the credits exceed the money's value.
    fn add_to(&self, lines: &mut Vec<ExportLine>, day: ChargeDay) {
        let Self {
            payment,
            is_refund,
            cents,
            credits,
        } = *self;
        let bought = match cents < 0 {
            false => credits.min(worth(cents)),
            true => credits.max(worth(cents)),
        };
        let (kind, is_recurring) = match payment.kind {
            PaymentKind::Plan => ("Plan", true),
            PaymentKind::TopUp => ("Top-up", false),
            PaymentKind::AutoTopUp => ("Auto top-up", false),
        };
        let source = if is_refund { "refund" } else { "payment" };
        let part = |category, what: &str, credits| ExportLine {
            is_correction: is_refund && payment.paid_at < day.period.start,
            is_recurring,
            description: format!("{kind}{what}"),
            credits,
            sku: payment.kind.name().to_owned(),
            tags: json!({ "payment_id": payment.id }),
            ..ExportLine::new(day, &payment.user_id, category, source)
        };
        let refund = match (is_refund, cents < 0) {
            (false, _) => "",
            (true, true) => ", refunded",
            (true, false) => ", refund reversed",
        };
        lines.push(ExportLine {
            billed: nano_usd(cents),
            list: nano_usd(cents),
            ..part(ChargeCategory::Purchase, refund, bought)
        });
        let bonus = credits.since(bought);
        if bonus != Credits::ZERO {
            let what = format!(", bonus{refund}");
            lines.push(part(ChargeCategory::Credit, &what, bonus));
        }
    }
}
