//! Plain functions that read all known events of a subscription or payment together, in any order.

use std::collections::BTreeMap;

use weir_ledger::plans::Period;
use weir_ledger::{Credits, Plan};
use weir_storage::clock::Millis;

use crate::events::{
    Checkout, CreditNote, EventContent, Invoice, InvoiceLine, PaidPeriod, PaymentEvent, PlanHint,
    Reversal, SubscriptionChange,
};
use crate::offers::{CURRENCY, PurchaseItem};
use crate::settings::PaymentSettings;

/// Maximum distance in milliseconds between a checkout and the start of the subscription's first period.
const PROVISIONAL_MS: i64 = 24 * 3_600_000;

/// The plans that are sold, with their prices and the processor's price ids.
#[derive(Debug, Clone, Default)]
pub struct PlansByPrice {
    by_id: Vec<(String, Plan)>,
    /// The monthly price of each plan in cents, more than 0.
    cents: Vec<(Plan, i64)>,
}

/// A subscription, according to its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    pub id: String,
    pub plan: Plan,
    /// The processor's status.
    pub status: String,
    pub period: Option<PaidPeriod>,
    /// Whether the subscription ends with that period, or has ended.
    pub is_ending: bool,
    /// The time of the latest event.
    pub as_of: Millis,
    /// The id of the latest event.
    pub event_id: String,
    pub paid: Option<PaidPlanPeriod>,
    /// The time of a paid checkout that began it, and the plan of the checkout.
    pub begun: Option<(Millis, Plan)>,
    /// The paid changes of plan, by the end of their period.
    pub upgrades: Vec<Upgrade>,
    /// The time since which an invoice is unpaid.
    pub payment_failed_at: Option<Millis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaidPlanPeriod {
    /// Its bounds.
    pub period: PaidPeriod,
    pub plan: Plan,
}

/// The paid changes of plan within one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upgrade {
    /// The period's end.
    pub end: Millis,
    /// The first of the changes: a moment within the period.
    pub within: Millis,
    /// The highest paid plan, if there is one.
    pub plan: Option<Plan>,
    /// The sum of all paid prorations: at least 0, unless the subscription ended before the period did. Then money that
    /// went back counts in full.
    pub credits: Credits,
}

/// The period that an account should be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueGrant {
    /// The plan whose credits the period begins with.
    pub base: Plan,
    /// The plan: a higher one if the user paid the difference.
    pub plan: Plan,
    /// The period for the ledger.
    pub period: Period,
    /// Whether the processor has not sent the bounds yet.
    pub is_provisional: bool,
}

/// The result of a paid invoice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanPayment {
    pub credits: Credits,
    pub period: PaidPeriod,
}

impl PlansByPrice {
    pub fn new(settings: &PaymentSettings) -> Self {
        let mut plans = Self::default();
        for plan in Plan::ALL {
            if let Some(offer) = settings.offer(PurchaseItem::Plan(plan)) {
                plans.cents.push((plan, i64::from(offer.price_cents)));
                plans.by_id.extend(offer.price_id.map(|id| (id, plan)));
            }
        }
        plans
    }

    /// The micro-credits of an invoice line: the plan's credits in proportion to the line's part of the price, negative
    /// for a refund. Rounding goes toward zero, so a line and its reversal add up to 0. The price is that of the line,
    /// so a change of the settings changes no paid invoice. If the event has no price, the settings have it.
    fn credits_for(&self, plan: Plan, line: &InvoiceLine) -> i128 {
        let set = self.cents.iter().find(|(sold, _)| *sold == plan);
        let price = line.price_cents.filter(|cents| *cents > 0);
        let price = price.or(set.map(|(_, cents)| *cents));
        let credits = i128::from(line.amount) * i128::from(plan.monthly_credits().micro());
        price.map_or(0, |price| credits / i128::from(price))
    }

    /// Finds a plan by its price, which the portal can change, or else by the name that weir sent with the checkout.
    pub fn plan_of(&self, hint: &PlanHint) -> Option<Plan> {
        let of = |price: &String| self.by_id.iter().find(|(id, _)| id == price);
        let by_price = hint.prices.iter().filter_map(of).map(|(_, plan)| *plan);
        let by_name = || {
            let mut named = hint.names.iter().filter_map(|name| name.parse().ok());
            named.find(|plan| *plan != Plan::Free)
        };
        by_price.max().or_else(by_name)
    }
}

impl Subscription {
    /// Reads all events of a subscription together; `None` if no event names a plan. Amounts in another currency than
    /// [`CURRENCY`] are ignored.
    ///
    /// `invoice.paid` pays for a period. A paid checkout, or `customer.subscription.created` in status `trialing`, also
    /// begins the first one. The status `active` proves no payment: a subscription with `collection_method` =
    /// `send_invoice` is active before its invoice is paid
    /// (<https://docs.stripe.com/billing/collection-method>). The processor also sends
    /// `customer.subscription.updated` with the bounds of the next period when that begins, and charges the card about
    /// an hour later (<https://docs.stripe.com/billing/subscriptions/webhooks>, "successful invoice finalization"). Such
    /// an event only gives the bounds of periods that other events pay for.
    ///
    /// Events that do not show everything ([`PaymentEvent::missing`]) count after weir has read the rest.
    pub fn of(events: &[PaymentEvent], plans: &PlansByPrice) -> Option<Self> {
        let mut events: Vec<_> = events.iter().collect();
        events.sort_by_key(|event| (event.created_at, rank(event), &*event.id));
        let mut latest: Option<Self> = None;
        let (mut begun, mut payment_failed_at) = (None, None);
        let mut periods = Periods::default();
        let mut changes: BTreeMap<Millis, PaidProrations> = BTreeMap::new();
        let (mut is_told, mut is_paused) = (false, false);
        let mut ended_at: Option<Millis> = None;
        for event in events {
            if event.missing().is_some() {
                continue;
            }
            match &event.about {
                EventContent::Subscription(news) => {
                    let Some(plan) = plans.plan_of(&news.plan) else {
                        continue;
                    };
                    is_told = true;
                    is_paused = news.is_paused;
                    let is_over =
                        news.change == SubscriptionChange::Deleted || has_ended(&news.status);
                    if is_over {
                        ended_at = Some(ended_at.unwrap_or(event.created_at));
                    }
                    if let (Some(period), "active" | "trialing", false) =
                        (news.period, &*news.status, is_over)
                    {
                        let pays = news.change == SubscriptionChange::Created
                            && news.status == "trialing"
                            && !news.is_paused
                            && is_ours(news.currency.as_deref());
                        periods.tell(period, pays.then_some(plan));
                    }
                    latest = Some(Self {
                        status: news.status.clone(),
                        period: news.period,
                        is_ending: news.is_ending || is_over,
                        ..Self::begun(&news.id, plan, event)
                    });
                }
                EventContent::Checkout(checkout) => {
                    let plan = plan_bought(checkout);
                    if let (Some(id), Some(plan)) = (&checkout.subscription, plan)
                        && checkout.is_paid
                        && is_ours(checkout.currency.as_deref())
                    {
                        begun = Some(begun.unwrap_or((event.created_at, plan)));
                        if !is_told {
                            latest = Some(Self::begun(id, plan, event));
                        }
                    }
                }
                EventContent::Invoice(invoice) if invoice.is_paid => {
                    payment_failed_at = None;
                    // An invoice of 0 is no payment while the processor collects nothing.
                    let pays_nothing = is_paused && invoice.amount == 0;
                    if pays_nothing || !is_ours(invoice.currency.as_deref()) {
                        continue;
                    }
                    for (line, plan) in lines(invoice, plans) {
                        if line.is_proration {
                            if is_in_time(line, event.created_at) && shows_all_lines(invoice) {
                                let changes = changes.entry(line.period.end).or_default();
                                changes.add(line, plan, plans);
                            }
                            continue;
                        }
                        periods.tell(line.period, Some(plan));
                        if let (Some(id), false) = (&invoice.subscription, is_told) {
                            let period = Some(line.period);
                            let begun = Self::begun(id, plan, event);
                            latest = Some(Self { period, ..begun });
                        }
                    }
                }
                EventContent::Invoice(_) => {
                    payment_failed_at = Some(payment_failed_at.unwrap_or(event.created_at));
                }
                _ => {}
            }
        }
        let upgrades = changes.into_iter().map(|(end, changes)| {
            let is_cut_short = ended_at.is_some_and(|ended_at| ended_at < end);
            changes.sum(end, is_cut_short)
        });
        Some(Self {
            paid: periods.last_paid(begun),
            begun,
            upgrades: upgrades.collect(),
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
            paid: None,
            begun: None,
            upgrades: Vec::new(),
            payment_failed_at: None,
        }
    }

    /// Whether another period follows the current one. A past-due subscription counts: the grace of the ledger limits
    /// how long weir waits for its payment.
    pub fn renews(&self) -> bool {
        renews(&self.status, self.is_ending)
    }

    /// The period that the account should be in. `provisional_start` is the start of a period that weir granted before
    /// the processor sent its bounds.
    pub fn due_grant(&self, provisional_start: Option<Millis>) -> Option<DueGrant> {
        let (base, period, is_provisional) = match self.paid {
            Some(PaidPlanPeriod {
                period: PaidPeriod { start, end },
                plan,
            }) => {
                let is_that = |provisional: &Millis| {
                    *provisional < end && (is_near(*provisional, start) || start <= *provisional)
                };
                let start = provisional_start.filter(is_that).unwrap_or(start);
                (plan, Period { start, end }, false)
            }
            None => {
                let (begun_at, plan) = self.begun?;
                let start = provisional_start.unwrap_or(begun_at);
                (plan, Period::monthly(start, start), true)
            }
        };
        let within = self.upgrades.iter().filter(|upgrade| {
            period.contains(upgrade.within)
                || self.paid.is_none_or(|paid| paid.period.end == upgrade.end)
        });
        Some(DueGrant {
            base,
            plan: within
                .filter_map(|upgrade| upgrade.plan)
                .fold(base, Plan::max),
            period,
            is_provisional,
        })
    }
}

/// Known periods of a subscription, by their start.
#[derive(Default)]
struct Periods(BTreeMap<Millis, (Millis, Option<Plan>)>);

impl Periods {
    /// Adds a period, and the plan if the event pays for it. The last known end and the highest plan win.
    fn tell(&mut self, period: PaidPeriod, paid: Option<Plan>) {
        let known = self.0.entry(period.start).or_insert((period.end, None));
        *known = (period.end, known.1.max(paid));
    }

    /// The last paid period. If only a checkout pays and no event pays for a period, it is the period that began with
    /// the checkout.
    fn last_paid(&self, begun: Option<(Millis, Plan)>) -> Option<PaidPlanPeriod> {
        let mut paid = self.0.iter().rev().filter_map(|(&start, &(end, plan))| {
            let period = PaidPeriod { start, end };
            plan.map(|plan| PaidPlanPeriod { period, plan })
        });
        paid.next().or_else(|| {
            let (at, plan) = begun?;
            let mut told = self.0.iter().filter(|(start, _)| is_near(**start, at));
            told.next().map(|(&start, &(end, _))| PaidPlanPeriod {
                period: PaidPeriod { start, end },
                plan,
            })
        })
    }
}

/// Paid prorations within a period.
#[derive(Default)]
struct PaidProrations {
    first: Option<Millis>,
    plan: Option<Plan>,
    micro: i128,
}

impl PaidProrations {
    fn add(&mut self, line: &InvoiceLine, plan: Plan, plans: &PlansByPrice) {
        let start = line.period.start;
        self.first = Some(self.first.map_or(start, |first| first.min(start)));
        self.micro += plans.credits_for(plan, line);
        if line.amount > 0 {
            self.plan = self.plan.max(Some(plan));
        }
    }

    fn sum(self, end: Millis, is_cut_short: bool) -> Upgrade {
        let least = if is_cut_short { i128::MIN } else { 0 };
        Upgrade {
            end,
            within: self.first.unwrap_or(end),
            plan: self.plan,
            credits: at_least(least, self.micro),
        }
    }
}

fn at_least(least: i128, micro: i128) -> Credits {
    let micro = micro.max(least);
    let limit = if micro < 0 { i64::MIN } else { i64::MAX };
    Credits::from_micro(i64::try_from(micro).unwrap_or(limit))
}

/// Whether a period that began at `start` belongs to something that happened at `moment`.
fn is_near(moment: Millis, start: Millis) -> bool {
    moment.0.abs_diff(start.0) <= PROVISIONAL_MS.unsigned_abs()
}

/// Whether an amount is in the currency of the prices. Stored events of old versions have no currency and count as
/// such.
pub fn is_ours(currency: Option<&str>) -> bool {
    currency.is_none_or(|currency| currency.eq_ignore_ascii_case(CURRENCY))
}

/// Whether an event shows all prorations of its invoice. A part of them may sum to more than all. Stored events of old
/// versions do not say so: those versions granted upgrades by another rule.
fn shows_all_lines(invoice: &Invoice) -> bool {
    invoice.has_more_lines == Some(false)
}

/// Whether a line was paid before its period ended.
fn is_in_time(line: &InvoiceLine, paid_at: Millis) -> bool {
    paid_at < line.period.end
}

/// Whether a subscription of this status continues after its period.
pub fn renews(status: &str, is_ending: bool) -> bool {
    matches!(status, "active" | "trialing" | "past_due") && !is_ending
}

fn has_ended(status: &str) -> bool {
    matches!(status, "canceled" | "incomplete_expired")
}

/// Order of events in the same second: a checkout and invoices come before the changes that they cause.
fn rank(event: &PaymentEvent) -> u8 {
    match &event.about {
        EventContent::Subscription(news) => match news.change {
            SubscriptionChange::Created => 1,
            SubscriptionChange::TrialWillEnd => 2,
            SubscriptionChange::Updated => 3,
            SubscriptionChange::Deleted => 4,
        },
        _ => 0,
    }
}

pub fn plan_bought(checkout: &Checkout) -> Option<Plan> {
    let plan = checkout.purchase.plan.as_deref()?.parse().ok()?;
    (plan != Plan::Free).then_some(plan)
}

/// The invoice lines that are for plans.
fn lines<'a>(
    invoice: &'a Invoice,
    plans: &'a PlansByPrice,
) -> impl Iterator<Item = (&'a InvoiceLine, Plan)> {
    let lines = invoice.lines.iter();
    lines.filter_map(|line| Some((line, plans.plan_of(&line.plan)?)))
}

/// The credits, at least 0, of prorations that were paid after their period. The processor adds prorations to the next
/// invoice unless its settings say otherwise.
pub fn late_credits(invoice: &Invoice, paid_at: Millis, plans: &PlansByPrice) -> Credits {
    let late = lines(invoice, plans).filter(|(line, _)| {
        line.is_proration && !is_in_time(line, paid_at) && shows_all_lines(invoice)
    });
    at_least(
        0,
        late.map(|(line, plan)| plans.credits_for(plan, line)).sum(),
    )
}

/// The result of a paid invoice: a period of a plan, or the credits of prorations for a change within a period. `None`
/// if the invoice has neither.
pub fn plan_payment(invoice: &Invoice, plans: &PlansByPrice) -> Option<PlanPayment> {
    let (prorations, whole): (Vec<_>, Vec<_>) =
        lines(invoice, plans).partition(|(line, _)| line.is_proration);
    let whole = whole.into_iter().max_by_key(|(line, _)| line.period.start);
    if let Some((line, plan)) = whole {
        return Some(PlanPayment {
            credits: plan.monthly_credits(),
            period: line.period,
        });
    }
    let added = prorations.iter().filter(|(line, _)| line.amount > 0);
    let (highest, _) = added.max_by_key(|(_, plan)| *plan)?;
    let credits = prorations
        .iter()
        .map(|(line, plan)| plans.credits_for(*plan, line));
    Some(PlanPayment {
        credits: at_least(0, credits.sum()),
        period: highest.period,
    })
}

#[derive(Default)]
struct ChargeRefunds<'a> {
    /// The largest sum of refunds in an event of the charge.
    told: i64,
    /// The refunds with events of their own: cents, and whether the refund failed.
    known: BTreeMap<&'a str, (i64, bool)>,
}

impl ChargeRefunds<'_> {
    /// The cents that went back. Refunds without own events are in the sum of the charge only. The sum of the charge
    /// counts or omits a refund that failed meanwhile, and therefore adds only the part that the known refunds do not
    /// explain.
    fn cents(&self) -> i64 {
        let known: i64 = self.known.values().map(|(cents, _)| cents).sum();
        let failed = self.known.values().filter(|(_, has_failed)| *has_failed);
        let failed: i64 = failed.map(|(cents, _)| cents).sum();
        known - failed + (self.told - known).max(0)
    }
}

#[derive(Default)]
struct DisputedMoney {
    withdrawn: i64,
    /// The money that did not come back, once the dispute is settled.
    lost: Option<i64>,
}

/// The cents of a payment that went back to the customer, from all its events in any order: refunds that did not fail,
/// money of disputes that did not come back (<https://docs.stripe.com/disputes/how-disputes-work>), and credit notes
/// beyond their refunds.
pub fn cents_back(events: &[PaymentEvent]) -> i64 {
    let mut charges: BTreeMap<&str, ChargeRefunds<'_>> = BTreeMap::new();
    let mut disputes: BTreeMap<&str, DisputedMoney> = BTreeMap::new();
    let mut notes: BTreeMap<&str, &CreditNote> = BTreeMap::new();
    for event in events {
        match &event.about {
            EventContent::Refund(charge) => {
                let refunds = charges.entry(&charge.id).or_default();
                refunds.told = refunds.told.max(charge.amount);
            }
            EventContent::RefundState(refund) => {
                let refunds = charges.entry(refund.charge_id()).or_default();
                let known = refunds.known.entry(&refund.id).or_default();
                known.0 = known.0.max(refund.amount);
                known.1 |= refund.has_failed;
            }
            EventContent::Dispute(Reversal {
                id,
                amount,
                is_settled,
                ..
            }) => {
                let dispute = disputes.entry(id).or_default();
                match is_settled {
                    true => {
                        let lost = dispute.lost.unwrap_or(*amount).min(*amount);
                        dispute.lost = Some(lost);
                    }
                    false => dispute.withdrawn = dispute.withdrawn.max(*amount),
                }
            }
            EventContent::CreditNote(note) => {
                let known = notes.entry(&note.id).or_insert(note);
                if note.is_void {
                    *known = note;
                }
            }
            _ => {}
        }
    }
    let refunded = |id: &str| {
        let known = charges.values().find_map(|charge| charge.known.get(id));
        known.map(|(cents, _)| *cents)
    };
    let notes = notes.values().filter(|note| !note.is_void);
    let noted = notes.map(|note| match &note.refund {
        // Until the refund is known, all of the note may be in it.
        Some(id) => refunded(id).map_or(0, |cents| (note.amount - cents).max(0)),
        None => note.amount,
    });
    let refunded = charges.values().map(ChargeRefunds::cents);
    let disputes = disputes.values();
    let disputed = disputes.map(|dispute| dispute.lost.unwrap_or(dispute.withdrawn));
    let all = refunded.chain(disputed).chain(noted);
    all.fold(0, i64::saturating_add)
}

/// The credits that belong to `cents` of a payment's `of_cents`, rounded down.
pub fn credits_back(credits: Credits, cents: i64, of_cents: i64) -> Credits {
    if of_cents <= 0 {
        return Credits::ZERO;
    }
    let cents = i128::from(cents.clamp(0, of_cents));
    let micro = i128::from(credits.micro()) * cents / i128::from(of_cents);
    Credits::from_micro(i64::try_from(micro).unwrap_or(i64::MAX))
}
