//! What the events of a subscription, or of a payment, come to together: plain functions of all that are known, whatever
//! the order in which they came.

use std::collections::BTreeMap;

use weir_ledger::plans::Period;
use weir_ledger::{Credits, Plan};
use weir_storage::clock::Millis;

use super::super::events::{
    About, Change, Checkout, Invoice, InvoiceLine, PaidPeriod, PaymentEvent, PlanHint, Reversal,
};
use super::super::offers::Item;
use super::super::settings::PaymentSettings;

/// How far the start of a subscription's first period may be from the moment of the checkout that began it.
const PROVISIONAL_MS: i64 = 24 * 3_600_000;

/// Which plan each of the processor's prices is for.
#[derive(Debug, Clone, Default)]
pub struct PlansByPrice(Vec<(String, Plan)>);

/// A subscription, as its events have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Its id.
    pub id: String,
    /// The plan that it is for.
    pub plan: Plan,
    /// The processor's word for how it is.
    pub status: String,
    /// The period that it is in.
    pub period: Option<PaidPeriod>,
    /// Whether it ends with that, or has ended.
    pub is_ending: bool,
    /// When the event happened that said all this.
    pub as_of: Millis,
    /// That event's id.
    pub event_id: String,
    /// The last period that is to be granted, and the highest plan that was named for it.
    pub granted: Option<(PaidPeriod, Plan)>,
    /// When a checkout began it.
    pub begun_at: Option<Millis>,
    /// Since when an invoice of it is not paid.
    pub payment_failed_at: Option<Millis>,
}

/// A period that an account is to be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueGrant {
    /// The plan.
    pub plan: Plan,
    /// The period, as the ledger is to know it.
    pub period: Period,
    /// Whether the processor has not told its bounds yet.
    pub is_provisional: bool,
}

/// What an invoice's payment gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanPayment {
    /// Credits of the plan.
    pub credits: Credits,
    /// The span that was paid for.
    pub period: PaidPeriod,
}

impl PlansByPrice {
    /// By the settings.
    pub fn new(settings: &PaymentSettings) -> Self {
        let sold = [Plan::Guru, Plan::Pro].into_iter().filter_map(|plan| {
            let offer = settings.offer(Item::Plan(plan))?;
            Some((offer.price_id?, plan))
        });
        Self(sold.collect())
    }

    /// The plan that is meant: by its price, which the portal changes, or else by name, which weir gave it at first.
    pub fn plan_of(&self, hint: &PlanHint) -> Option<Plan> {
        let of = |price: &String| self.0.iter().find(|(id, _)| id == price);
        let by_price = hint.prices.iter().filter_map(of).map(|(_, plan)| *plan);
        let by_name = || {
            let mut named = hint.names.iter().filter_map(|name| name.parse().ok());
            named.find(|plan| *plan != Plan::Free)
        };
        by_price.max().or_else(by_name)
    }
}

impl Subscription {
    /// What is known of it; `None` if none of its events says what it is for.
    pub fn of(events: &[PaymentEvent], plans: &PlansByPrice) -> Option<Self> {
        let mut events: Vec<_> = events.iter().collect();
        events.sort_by_key(|event| (event.created_at, rank(event), &*event.id));
        let mut latest: Option<Self> = None;
        let (mut begun_at, mut payment_failed_at) = (None, None);
        let mut periods: BTreeMap<Millis, (Millis, Plan)> = BTreeMap::new();
        let mut name = |period: PaidPeriod, plan: Plan| {
            let known = periods.entry(period.start).or_insert((period.end, plan));
            *known = (period.end, known.1.max(plan));
        };
        let mut is_told = false;
        for event in events {
            match &event.about {
                About::Subscription(news) => {
                    let Some(plan) = plans.plan_of(&news.plan) else {
                        continue;
                    };
                    is_told = true;
                    let is_over = news.change == Change::Deleted || has_ended(&news.status);
                    if let (Some(period), "active" | "trialing", false) =
                        (news.period, &*news.status, is_over)
                    {
                        name(period, plan);
                    }
                    latest = Some(Self {
                        status: news.status.clone(),
                        period: news.period,
                        is_ending: news.is_ending || is_over,
                        ..Self::begun(&news.id, plan, event)
                    });
                }
                About::Checkout(checkout) => {
                    let plan = plan_bought(checkout);
                    if let (Some(id), Some(plan)) = (&checkout.subscription, plan)
                        && checkout.is_paid
                    {
                        begun_at = Some(begun_at.unwrap_or(event.created_at));
                        if !is_told {
                            latest = Some(Self::begun(id, plan, event));
                        }
                    }
                }
                About::Invoice(invoice) if invoice.is_paid => {
                    payment_failed_at = None;
                    for (period, plan) in whole_periods(invoice, plans) {
                        name(period, plan);
                        if let (Some(id), false) = (&invoice.subscription, is_told) {
                            let period = Some(period);
                            let begun = Self::begun(id, plan, event);
                            latest = Some(Self { period, ..begun });
                        }
                    }
                }
                About::Invoice(_) => {
                    payment_failed_at = Some(payment_failed_at.unwrap_or(event.created_at));
                }
                _ => {}
            }
        }
        let last = periods.last_key_value();
        let granted = last.map(|(&start, &(end, plan))| (PaidPeriod { start, end }, plan));
        Some(Self {
            granted,
            begun_at,
            payment_failed_at,
            ..latest?
        })
    }

    fn begun(id: &str, plan: Plan, event: &PaymentEvent) -> Self {
        Self {
            id: id.to_owned(),
            plan,
            status: "active".to_owned(),
            period: None,
            is_ending: false,
            as_of: event.created_at,
            event_id: event.id.clone(),
            granted: None,
            begun_at: None,
            payment_failed_at: None,
        }
    }

    /// Whether another period follows the one that it is in, as far as is known. It is hoped for while the processor tries
    /// to be paid: the ledger's grace says for how long.
    pub fn renews(&self) -> bool {
        renews(&self.status, self.is_ending)
    }

    /// The period that its account is to be in. `provisional_start` is when a period began that was granted before the
    /// processor had told its bounds.
    pub fn due_grant(&self, provisional_start: Option<Millis>) -> Option<DueGrant> {
        if let Some((PaidPeriod { start, end }, plan)) = self.granted {
            let is_that = |provisional: &Millis| {
                let is_near = provisional.0.abs_diff(start.0) <= PROVISIONAL_MS.unsigned_abs();
                *provisional < end && (is_near || start <= *provisional)
            };
            let start = provisional_start.filter(is_that).unwrap_or(start);
            return Some(DueGrant {
                plan,
                period: Period { start, end },
                is_provisional: false,
            });
        }
        let start = provisional_start.or(self.begun_at)?;
        Some(DueGrant {
            plan: self.plan,
            period: Period::monthly(start, start),
            is_provisional: true,
        })
    }
}

/// Whether a subscription of this status goes on after its period.
pub fn renews(status: &str, is_ending: bool) -> bool {
    matches!(status, "active" | "trialing" | "past_due") && !is_ending
}

fn has_ended(status: &str) -> bool {
    matches!(status, "canceled" | "incomplete_expired")
}

/// Of events in one second: a checkout and invoices go before what they have changed.
fn rank(event: &PaymentEvent) -> u8 {
    match &event.about {
        About::Subscription(news) => match news.change {
            Change::Created => 1,
            Change::TrialWillEnd => 2,
            Change::Updated => 3,
            Change::Deleted => 4,
        },
        _ => 0,
    }
}

/// The plan that a checkout was for.
pub fn plan_bought(checkout: &Checkout) -> Option<Plan> {
    let plan = checkout.purchase.plan.as_deref()?.parse().ok()?;
    (plan != Plan::Free).then_some(plan)
}

fn whole_periods(invoice: &Invoice, plans: &PlansByPrice) -> Vec<(PaidPeriod, Plan)> {
    let whole = invoice.lines.iter().filter(|line| !line.is_proration);
    whole
        .filter_map(|line| Some((line.period, plans.plan_of(&line.plan)?)))
        .collect()
}

/// What the payment of an invoice gave: a period of a plan, or, where it was for a change within a period, what the higher
/// plan gives beyond the lower one. `None` if no line says so.
pub fn plan_payment(invoice: &Invoice, plans: &PlansByPrice) -> Option<PlanPayment> {
    let whole = whole_periods(invoice, plans);
    if let Some((period, plan)) = whole.into_iter().max_by_key(|(period, _)| period.start) {
        return Some(PlanPayment {
            credits: plan.monthly_credits(),
            period,
        });
    }
    let plan_of = |line: &InvoiceLine| plans.plan_of(&line.plan);
    let changes = || invoice.lines.iter().filter(|line| line.is_proration);
    let paid = changes().filter(|line| line.amount > 0);
    let paid = paid.max_by_key(|line| plan_of(line))?;
    let given_back = changes().filter(|line| line.amount < 0);
    let before = given_back.filter_map(plan_of).max().unwrap_or_default();
    let after = plan_of(paid)?;
    Some(PlanPayment {
        credits: after
            .monthly_credits()
            .saturating_sub(before.monthly_credits())
            .max(Credits::ZERO),
        period: paid.period,
    })
}

/// How much of a payment went back, in cents, by all events about it: of each charge the most that any says, and every
/// dispute.
pub fn cents_back(events: &[PaymentEvent]) -> i64 {
    let mut by_id: BTreeMap<(bool, &str), i64> = BTreeMap::new();
    for event in events {
        let (is_dispute, Reversal { id, amount, .. }) = match &event.about {
            About::Refund(refund) => (false, refund),
            About::Dispute(dispute) => (true, dispute),
            _ => continue,
        };
        let most = by_id.entry((is_dispute, id)).or_default();
        *most = (*most).max(*amount);
    }
    by_id.into_values().fold(0, i64::saturating_add)
}

/// The part of a payment's credits that goes back with so many of its cents, rounded down.
pub fn credits_back(credits: Credits, cents: i64, of_cents: i64) -> Credits {
    if of_cents <= 0 {
        return Credits::ZERO;
    }
    let cents = i128::from(cents.clamp(0, of_cents));
    let micro = i128::from(credits.micro()) * cents / i128::from(of_cents);
    Credits::from_micro(i64::try_from(micro).unwrap_or(i64::MAX))
}
