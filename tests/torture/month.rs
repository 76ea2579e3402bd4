//! MONTH: purchases, cancellations, debts and refunds of a thousand users in some weeks, by a scripted clock. Each
//! account must equal a simple model at every moment, although the processor's events arrive shuffled and repeated.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::Row;
use tests::Gateway;
use tests::gateway::at;
use tests::ledger::random::Random;
use tests::stores::{Durability, Postgres};
use tokio::task::JoinSet;
use weir_ledger::verify::{Extent, verify};
use weir_ledger::{
    AccountId, Action, Credits, HoldId, OpenHold, Period, Plan, RequestSource, RequestUsage, Settle,
};
use weir_payments::{reconcile, signature};
use weir_storage::clock::{ManualClock, Millis};
use weir_storage::secrets::SecretUrl;

const USERS: u32 = 1_000;

/// Steps of the clock, and hours of each step: renewals, and the consequences of an unpaid one, occur twice.
const STEPS: i64 = 140;
const STEP_HOURS: u64 = 12;

/// Days of a paid period.
const PERIOD_DAYS: i64 = 30;

/// Concurrent deliveries.
const AT_ONCE: usize = 20;

/// Time limit for the application of a step's events.
const APPLIED_WITHIN: Duration = Duration::from_secs(60);

const MICRO: i64 = 1_000_000;

pub(crate) fn run() -> bool {
    let users = crate::rounds(USERS) as usize;
    let runtime = crate::runtime(2);
    runtime.block_on(async {
        let postgres = Postgres::start(Durability::Fast);
        let database = postgres.create_database().await;
        let on_sqlite = play("SQLite", users, None).await;
        on_sqlite & play("PostgreSQL", users, Some(&database)).await
    })
}

/// The expected state of a user.
struct User {
    id: String,
    customer: String,
    created_at: Millis,
    /// The processor has reported the customer.
    linked: bool,
    plan: Plan,
    plan_credits: i64,
    top_up: i64,
    owed: i64,
    /// The user may owe credits between two events of this moment, depending on their order.
    owed_between: bool,
    period: Option<Period>,
    /// The paid plan ends with its period.
    ends: bool,
    /// The sum of the paid prorations of the period, in micro-credits, possibly negative.
    prorated: i64,
    /// Its last subscription ended unpaid.
    was_unpaid: bool,
    subscription: Option<Subscription>,
    top_ups: Vec<Payment>,
    /// The payment of the current period.
    plan_payment: Option<Payment>,
    /// Number of purchases, used in names.
    bought: u32,
    touched: bool,
}

/// The processor's state.
#[derive(Clone)]
struct Subscription {
    id: String,
    /// The plan, effective from the next period at the latest.
    plan: Plan,
    start: Millis,
    end: Millis,
    is_ending: bool,
    /// The time since which the current period is unpaid.
    due_since: Option<Millis>,
    /// Lines for the next invoice.
    pending: Vec<Line>,
}

/// A line of an invoice for a change of plan: a plan's price from the change to the period's end.
#[derive(Clone, Copy)]
struct Line {
    plan: Plan,
    cents: i64,
    start: Millis,
    end: Millis,
}

struct Payment {
    id: String,
    credits: i64,
    cents: i64,
    refunded: i64,
}

#[derive(Default)]
struct Counts {
    events: usize,
    deliveries: usize,
    renewals: usize,
    unpaid: usize,
    bought_again: usize,
    upgrades: usize,
    without_invoice: usize,
    there_and_back: usize,
    downgrades: usize,
    lapses: usize,
    refunds: usize,
    owing: usize,
}

async fn play(store: &str, users: usize, postgres: Option<&SecretUrl>) -> bool {
    let began = Instant::now();
    let clock = ManualClock::at(at("2026-01-01T00:00:00Z"));
    let builder = Gateway::builder()
        .clock(&clock)
        .tables("[payments]\nprocessor = \"local\"\n");
    let builder = match postgres {
        Some(url) => builder.postgres(url),
        None => builder,
    };
    let gateway = builder.start().await;
    let mut now = gateway.app().ledger.now();
    let names: Vec<_> = (0..users)
        .map(|number| format!("usr_{number:05}"))
        .collect();
    let database = &gateway.app().database;
    tests::ledger::create_users(database, names.iter().map(|name| &**name), now.0).await;
    let mut model: Vec<_> = names.into_iter().map(|id| User::new(id, now)).collect();
    let (mut random, mut counts) = (Random::new(7), Counts::default());
    let mut wrong = 0;
    for step in 0..STEPS {
        clock.advance(Duration::from_secs(STEP_HOURS * 3_600));
        now = Millis(now.0 + STEP_HOURS as i64 * 3_600_000);
        let mut deliveries = Vec::new();
        for user in &mut model {
            if user.is_period_due(now) {
                submit(&gateway, user, Action::ResetPeriod).await;
                user.begin_free_period(now, &mut counts);
            }
            if random.percent(30) {
                user.spend(&gateway, &mut random).await;
            }
            let events = user.act(now, &mut random, &mut counts);
            counts.events += events.len();
            for event in events {
                for _ in 0..=usize::from(random.percent(20)) {
                    deliveries.push(event.clone());
                }
            }
        }
        counts.deliveries += deliveries.len();
        shuffle(&mut deliveries, &mut random);
        deliver(&gateway, deliveries, now).await;
        let waiting = waiting(&gateway).await;
        if !waiting.is_empty() {
            println!("MONTH on {store}: events of step {step} are not applied: {waiting:?}");
            return false;
        }
        let everybody = step % 20 == 19 || step + 1 == STEPS;
        for user in &mut model {
            if everybody || std::mem::take(&mut user.touched) {
                wrong += usize::from(!user.is_so(&gateway, step).await);
            }
        }
        counts.owing = counts
            .owing
            .max(model.iter().filter(|user| user.owed > 0).count());
    }
    let mut violations = verify(database, now).await.expect("the ledger can be read");
    // No delivery is under way any more.
    let later = now.plus_days(1);
    let differ = reconcile::look(database, later, Extent::All).await;
    violations.extend(differ.expect("the payments can be read"));
    for violation in violations.iter().take(10) {
        println!("MONTH on {store}: {violation:?}");
    }
    println!(
        "MONTH on {store}: {users} users, {} days, {} events in {} deliveries: {} renewals, {} subscriptions unpaid, {} bought \
         again after that, {} upgrades, {} without an invoice, {} undone within a minute, {} downgrades, {} plans lapsed, {} \
         refunds, {} users owed something at once; {wrong} accounts diverged, {} violations; {:.0?}",
        STEPS * STEP_HOURS as i64 / 24,
        counts.events,
        counts.deliveries,
        counts.renewals,
        counts.unpaid,
        counts.bought_again,
        counts.upgrades,
        counts.without_invoice,
        counts.there_and_back,
        counts.downgrades,
        counts.lapses,
        counts.refunds,
        counts.owing,
        violations.len(),
        began.elapsed()
    );
    wrong == 0 && violations.is_empty()
}

impl User {
    fn new(id: String, created_at: Millis) -> Self {
        Self {
            customer: format!("cus_{id}"),
            id,
            created_at,
            linked: false,
            plan: Plan::Free,
            plan_credits: 0,
            top_up: 0,
            owed: 0,
            owed_between: false,
            period: None,
            ends: false,
            prorated: 0,
            was_unpaid: false,
            subscription: None,
            top_ups: Vec::new(),
            plan_payment: None,
            bought: 0,
            touched: false,
        }
    }

    fn is_period_due(&self, now: Millis) -> bool {
        let grace = match self.plan {
            Plan::Free => 0,
            Plan::Guru | Plan::Pro if self.ends => 0,
            Plan::Guru | Plan::Pro => 3,
        };
        self.period
            .is_none_or(|period| now >= period.end.plus_days(grace))
    }

    fn begin_free_period(&mut self, now: Millis, counts: &mut Counts) {
        counts.lapses += usize::from(self.plan != Plan::Free);
        let mut month = Period::monthly(self.created_at, now);
        if let Some(last) = self.period {
            month.start = month.start.max(last.end).min(month.end);
        }
        self.begin(Plan::Free, month);
    }

    fn begin(&mut self, plan: Plan, period: Period) {
        self.plan = plan;
        self.period = Some(period);
        self.ends = false;
        self.prorated = 0;
        self.plan_credits = plan.monthly_credits().micro();
        self.plan_payment = None;
        self.pay_debts();
        self.touched = true;
    }

    /// Pays debts with all credits that are there: the plan's, then bought ones.
    fn pay_debts(&mut self) {
        for credits in [&mut self.plan_credits, &mut self.top_up] {
            let paid = self.owed.min(*credits);
            self.owed -= paid;
            *credits -= paid;
        }
    }

    async fn spend(&mut self, gateway: &Gateway, random: &mut Random) {
        let most = (self.plan_credits + self.top_up) / 2;
        let credits = random.up_to(most);
        if credits == 0 {
            return;
        }
        let hold = HoldId(weir_storage::ids::hold_id());
        let open = OpenHold {
            hold: hold.clone(),
            amount: Credits::from_micro(credits),
            request_id: hold.0.clone(),
            parent: None,
            source: RequestSource::ApiKey,
            source_id: None,
            parts: Vec::new(),
            top_up_only: false,
            model: "m".to_owned(),
        };
        let account = AccountId(self.id.clone());
        let opened = gateway.app().ledger.open(&account, open, soon()).await;
        opened.expect("there is enough");
        let settle = Settle {
            hold,
            credits: Credits::from_micro(credits),
            usage: RequestUsage::default(),
            end: None,
        };
        submit(gateway, self, Action::Settle(settle)).await;
        let of_plan = credits.min(self.plan_credits);
        self.plan_credits -= of_plan;
        self.top_up -= credits - of_plan;
        self.touched = true;
    }

    /// Performs a user's action at this moment, and returns its events.
    fn act(&mut self, now: Millis, random: &mut Random, counts: &mut Counts) -> Vec<Value> {
        let mut events = Vec::new();
        let owes = self.owed > 0;
        match self.subscription.clone() {
            None if random.percent(8) => self.subscribe(now, random, counts, &mut events),
            None => {}
            Some(subscription) => self.go_on(subscription, now, random, counts, &mut events),
        }
        // Events of one moment have no order: a debt may be taken from either of two payments.
        let owes = owes || self.owed > 0 || std::mem::take(&mut self.owed_between);
        if random.percent(3) && (!owes || events.is_empty()) {
            self.buy(now, random, &mut events);
        }
        if random.percent(3) && events.is_empty() {
            self.get_back(now, random, counts, &mut events);
        }
        self.touched |= !events.is_empty();
        events
    }

    fn subscribe(
        &mut self,
        now: Millis,
        random: &mut Random,
        counts: &mut Counts,
        events: &mut Vec<Value>,
    ) {
        counts.bought_again += usize::from(std::mem::take(&mut self.was_unpaid));
        let plan = [Plan::Guru, Plan::Pro][random.below(2)];
        let mut subscription = Subscription {
            id: self.name("sub"),
            plan,
            start: now,
            end: now.plus_days(PERIOD_DAYS),
            is_ending: false,
            due_since: None,
            pending: Vec::new(),
        };
        if !self.linked {
            self.linked = true;
            let customer = json!({ "id": self.customer, "metadata": { "user_id": self.id } });
            events.push(event("customer.created", now, customer));
        }
        events.push(event(
            "checkout.session.completed",
            now,
            json!({
                "id": self.name("cs"), "mode": "subscription", "payment_status": "paid", "customer": self.customer,
                "subscription": subscription.id, "client_reference_id": self.id, "amount_total": cents(plan),
                "metadata": { "user_id": self.id, "purpose": "plan", "plan": plan.name() },
            }),
        ));
        events.push(self.news("created", &subscription, "active", now));
        self.pay(&mut subscription, now, events);
        self.subscription = Some(subscription);
    }

    /// Advances a subscription to this moment.
    fn go_on(
        &mut self,
        mut subscription: Subscription,
        now: Millis,
        random: &mut Random,
        counts: &mut Counts,
        events: &mut Vec<Value>,
    ) {
        let is_over = now >= subscription.end;
        if let Some(since) = subscription.due_since {
            if now >= since.plus_days(4) {
                events.push(self.news("deleted", &subscription, "canceled", now));
                self.subscription = None;
                return;
            }
            match random.below(100) {
                0..30 => {
                    subscription.due_since = None;
                    events.push(self.news("updated", &subscription, "active", now));
                    self.pay(&mut subscription, now, events);
                    counts.renewals += 1;
                }
                // The processor gives up: the grace period ends, and another subscription may be bought.
                30..45 => {
                    events.push(self.news("updated", &subscription, "unpaid", now));
                    counts.unpaid += 1;
                    self.was_unpaid = true;
                    self.ends = true;
                    if self.is_period_due(now) {
                        self.begin_free_period(now, counts);
                    }
                    self.subscription = None;
                    return;
                }
                _ => {}
            }
        } else if is_over && subscription.is_ending {
            events.push(self.news("deleted", &subscription, "canceled", now));
            self.subscription = None;
            return;
        } else if is_over {
            subscription.start = subscription.end;
            subscription.end = subscription.start.plus_days(PERIOD_DAYS);
            // An hour before the charge of the card, with either result.
            let before = Millis(now.0 - 3_600_000);
            events.push(self.news("updated", &subscription, "active", before));
            if random.percent(80) {
                self.pay(&mut subscription, now, events);
                counts.renewals += 1;
            } else {
                subscription.due_since = Some(now);
                events.push(self.news("updated", &subscription, "past_due", now));
                let invoice = self.invoice(&subscription, now);
                events.push(event("invoice.payment_failed", now, invoice));
            }
        } else {
            match random.below(100) {
                0..6 => self.change(&mut subscription, now, random, counts, events),
                6..9 => {
                    subscription.is_ending = !subscription.is_ending;
                    self.ends = subscription.is_ending;
                    events.push(self.news("updated", &subscription, "active", now));
                }
                _ => {}
            }
        }
        self.subscription = Some(subscription);
    }

    /// Changes the plan within its period.
    fn change(
        &mut self,
        subscription: &mut Subscription,
        now: Millis,
        random: &mut Random,
        counts: &mut Counts,
        events: &mut Vec<Value>,
    ) {
        let before = subscription.plan;
        let other = match before {
            Plan::Guru => Plan::Pro,
            _ => Plan::Guru,
        };
        let rest = |plan: Plan, sign: i64| {
            let (left, whole) = (
                subscription.end.0 - now.0,
                subscription.end.0 - subscription.start.0,
            );
            Line {
                plan,
                cents: sign * cents(plan) * left / whole,
                start: now,
                end: subscription.end,
            }
        };
        let lines = [rest(before, -1), rest(other, 1)];
        let back = lines.map(|line| Line {
            cents: -line.cents,
            ..line
        });
        let is_upgrade = other > before;
        subscription.plan = other;
        events.push(self.news("updated", subscription, "active", now));
        // Events of one moment have no order. If the amount that is taken first is above the plan's credits, bought ones pay it,
        // and the plan gets it back: which pool pays would depend on the order.
        let change: i64 = lines.iter().map(|line| line.credits()).sum();
        let taken_first = self.prorated.max(0).min(change.abs());
        let is_one_pool = self.top_up == 0 || taken_first <= self.plan_credits;
        match random.below(4) {
            // While the user has a debt, events of one moment are ordered.
            0 if self.owed == 0 && is_one_pool => {
                counts.there_and_back += 1;
                self.owed_between = true;
                for lines in [lines, back] {
                    self.settle_change(subscription, &lines, now, events);
                }
                subscription.plan = before;
                let soon = Millis(now.0 + 30_000);
                events.push(self.news("updated", subscription, "active", soon));
            }
            // Lines for the next invoice.
            1 => {
                counts.without_invoice += 1;
                subscription.pending.extend(lines);
            }
            // A scheduled downgrade has no lines.
            2 if !is_upgrade => counts.downgrades += 1,
            _ => {
                match is_upgrade {
                    true => counts.upgrades += 1,
                    false => counts.downgrades += 1,
                }
                self.settle_change(subscription, &lines, now, events);
            }
        }
    }

    /// Invoices a change at once, and pays it.
    fn settle_change(
        &mut self,
        subscription: &Subscription,
        lines: &[Line],
        now: Millis,
        events: &mut Vec<Value>,
    ) {
        let mut invoice = self.invoice(subscription, now);
        let total: i64 = lines.iter().map(|line| line.cents).sum();
        invoice["amount_paid"] = total.max(0).into();
        invoice["lines"]["data"] = lines.iter().map(|line| line.show(subscription)).collect();
        events.push(event("invoice.paid", now, invoice));
        let given = self.prorated.max(0);
        self.prorated += lines.iter().map(|line| line.credits()).sum::<i64>();
        let change = self.prorated.max(0) - given;
        if change > 0 {
            self.plan_credits += change;
        } else {
            let taken = self.plan_credits.min(-change);
            self.plan_credits -= taken;
            self.owed += -change - taken;
        }
        self.pay_debts();
        let raised = lines.iter().filter(|line| line.cents > 0);
        self.plan = raised.map(|line| line.plan).fold(self.plan, Plan::max);
    }

    /// Pays a period.
    fn pay(&mut self, subscription: &mut Subscription, now: Millis, events: &mut Vec<Value>) {
        let mut invoice = self.invoice(subscription, now);
        let pending = std::mem::take(&mut subscription.pending);
        if let Some(lines) = invoice["lines"]["data"].as_array_mut() {
            lines.extend(pending.iter().map(|line| line.show(subscription)));
        }
        let total = cents(subscription.plan) + pending.iter().map(|line| line.cents).sum::<i64>();
        invoice["amount_paid"] = total.max(0).into();
        let payment = invoice["payment_intent"]
            .as_str()
            .expect("an id")
            .to_owned();
        events.push(event("invoice.paid", now, invoice));
        self.begin(
            subscription.plan,
            Period {
                start: subscription.start,
                end: subscription.end,
            },
        );
        // Their period is over: their credits do not lapse.
        let late = pending
            .iter()
            .map(|line| line.credits())
            .sum::<i64>()
            .max(0);
        self.top_up += late;
        self.pay_debts();
        // A part of a joint payment belongs to neither.
        self.plan_payment = pending.is_empty().then(|| Payment {
            id: payment,
            credits: subscription.plan.monthly_credits().micro(),
            cents: cents(subscription.plan),
            refunded: 0,
        });
    }

    fn buy(&mut self, now: Millis, random: &mut Random, events: &mut Vec<Value>) {
        let (tier, credits, cents) = [
            ("small", 5_000, 500),
            ("medium", 27_500, 2_500),
            ("large", 125_000, 10_000),
        ][random.below(3)];
        let payment = self.name("pi");
        let metadata = json!({ "user_id": self.id, "purpose": "topup", "tier": tier });
        events.push(event(
            "checkout.session.completed",
            now,
            json!({
                "id": self.name("cs"), "mode": "payment", "payment_status": "paid", "payment_intent": payment,
                "client_reference_id": self.id, "amount_total": cents, "metadata": metadata,
            }),
        ));
        events.push(event(
            "payment_intent.succeeded",
            now,
            json!({ "id": payment, "amount": cents, "amount_received": cents, "metadata": metadata, "status": "succeeded" }),
        ));
        let credits = credits * MICRO;
        self.top_up += credits;
        self.pay_debts();
        self.top_ups.push(Payment {
            id: payment,
            credits,
            cents,
            refunded: 0,
        });
    }

    /// Refunds a payment in part or completely.
    fn get_back(
        &mut self,
        now: Millis,
        random: &mut Random,
        counts: &mut Counts,
        events: &mut Vec<Value>,
    ) {
        let of_plan = random.percent(30);
        let payment = match of_plan {
            // The first payment of a period is not its complete price if the plan was raised since.
            true => self
                .plan_payment
                .as_mut()
                .filter(|payment| payment.credits == self.plan.monthly_credits().micro()),
            false => {
                let place = random.below(self.top_ups.len());
                self.top_ups.get_mut(place)
            }
        };
        let Some(payment) = payment.filter(|payment| payment.refunded < payment.cents) else {
            return;
        };
        let before = payment.refunded;
        payment.refunded = match random.percent(50) {
            true => payment.cents,
            false => payment.cents.min(before + payment.cents / 2),
        };
        let share = |refunded| payment.credits * refunded / payment.cents;
        let back = share(payment.refunded) - share(before);
        let charge = json!({
            "id": format!("ch_{}", payment.id), "payment_intent": payment.id, "amount": payment.cents,
            "amount_refunded": payment.refunded, "refunded": payment.refunded == payment.cents,
        });
        events.push(event("charge.refunded", now, charge));
        let pool = match of_plan {
            true => &mut self.plan_credits,
            false => &mut self.top_up,
        };
        let taken = back.min(*pool);
        *pool -= taken;
        self.owed += back - taken;
        self.pay_debts();
        counts.refunds += 1;
    }

    fn news(&self, change: &str, subscription: &Subscription, status: &str, now: Millis) -> Value {
        let name = format!("customer.subscription.{change}");
        let object = json!({
            "id": subscription.id, "customer": self.customer, "status": status,
            "current_period_start": subscription.start.0 / 1_000, "current_period_end": subscription.end.0 / 1_000,
            "cancel_at_period_end": subscription.is_ending,
            "items": { "data": [{ "price": { "id": "price", "metadata": { "plan": subscription.plan.name() } } }] },
            "metadata": { "user_id": self.id, "purpose": "plan", "plan": subscription.plan.name() },
        });
        event(&name, now, object)
    }

    fn invoice(&mut self, subscription: &Subscription, now: Millis) -> Value {
        json!({
            "id": self.name("in"), "customer": self.customer, "subscription": subscription.id,
            "payment_intent": self.name("pi"), "amount_paid": cents(subscription.plan), "attempt_count": 1,
            "created": now.0 / 1_000, "currency": "usd",
            "lines": { "has_more": false, "data": [{
                "type": "subscription", "proration": false, "amount": cents(subscription.plan),
                "period": { "start": subscription.start.0 / 1_000, "end": subscription.end.0 / 1_000 },
                "price": { "id": "price", "metadata": { "plan": subscription.plan.name() } },
            }] },
        })
    }

    fn name(&mut self, kind: &str) -> String {
        self.bought += 1;
        format!("{kind}_{}_{}", self.id, self.bought)
    }

    async fn is_so(&self, gateway: &Gateway, step: i64) -> bool {
        let id = AccountId(self.id.clone());
        let account = gateway.app().ledger.find_account(&id);
        let account = account
            .await
            .expect("the ledger can be read")
            .expect("a user");
        let found = (
            account.plan,
            account.balance.plan.micro(),
            account.balance.top_up.micro(),
            account.owed.micro(),
        );
        let expected = (self.plan, self.plan_credits, self.top_up, self.owed);
        if found != expected {
            println!(
                "MONTH, step {step}: {} has {found:?}, and not {expected:?}",
                self.id
            );
        }
        found == expected
    }
}

impl Line {
    fn show(&self, subscription: &Subscription) -> Value {
        json!({
            "type": "invoiceitem", "proration": true, "amount": self.cents, "currency": "usd",
            "subscription": subscription.id,
            "period": { "start": self.start.0 / 1_000, "end": self.end.0 / 1_000 },
            "price": { "id": "price", "metadata": { "plan": self.plan.name() } },
        })
    }

    /// Micro-credits, negative for a refund.
    fn credits(&self) -> i64 {
        self.cents * self.plan.monthly_credits().micro() / cents(self.plan)
    }
}

fn cents(plan: Plan) -> i64 {
    match plan {
        Plan::Free => 0,
        Plan::Guru => 1_000,
        Plan::Pro => 5_000,
    }
}

fn event(name: &str, now: Millis, object: Value) -> Value {
    json!({
        "id": format!("evt_{}", weir_storage::ids::operator_action_id()), "object": "event", "type": name,
        "created": now.0 / 1_000, "livemode": false, "data": { "object": object },
    })
}

async fn submit(gateway: &Gateway, user: &User, action: Action) {
    let account = AccountId(user.id.clone());
    let done = gateway.app().ledger.submit(&account, action, soon()).await;
    done.expect("it is done");
}

fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(60)
}

fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for place in (1..all.len()).rev() {
        all.swap(place, random.below(place + 1));
    }
}

/// Sends events as the processor does, several at once.
async fn deliver(gateway: &Gateway, events: Vec<Value>, now: Millis) {
    let secret = gateway.app().payments.webhook_secrets[0].clone();
    let mut sending = JoinSet::new();
    for event in events {
        if sending.len() >= AT_ONCE {
            sending
                .join_next()
                .await
                .expect("one is there")
                .expect("it is taken");
        }
        let body = event.to_string();
        let signed = signature::sign(&secret, now.seconds(), body.as_bytes());
        let client = gateway.stranger().with_header("Payment-Signature", &signed);
        sending.spawn(async move {
            let answer = client.post("/billing/webhook", &event).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        });
    }
    while let Some(sent) = sending.join_next().await {
        sent.expect("it is taken");
    }
}

/// Returns the events that are not applied in time, and the reasons.
async fn waiting(gateway: &Gateway) -> Vec<String> {
    let deadline = Instant::now() + APPLIED_WITHIN;
    loop {
        let waiting = sqlx::query(
            "SELECT id, type, state, COALESCE(last_error, '') AS error FROM payment_events \
             WHERE next_attempt_at IS NOT NULL LIMIT 5",
        )
        .fetch_all(gateway.app().database.reader())
        .await
        .expect("rows");
        if waiting.is_empty() || Instant::now() >= deadline {
            let shown = waiting.iter().map(|row| {
                let text = |column| row.get::<String, _>(column);
                format!(
                    "{} {} {}: {}",
                    text("id"),
                    text("type"),
                    text("state"),
                    text("error")
                )
            });
            return shown.collect();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
