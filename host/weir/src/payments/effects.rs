//! What the processor's events do to accounts.
//!
//! Events come twice, late, and in any order. So none is taken for a command: of a subscription, or of a payment, all
//! events that are known are read together ([`state`]), and the account is brought to what they say. The ledger takes each
//! grant, top-up and refund once, by its id. What comes of events is then the same in any order, but for what was spent
//! meanwhile: that stays spent.
//!
//! # Each event, by the plan that its account is on
//!
//! | Event | `free` | paid, in its period | paid, in the grace after it |
//! |---|---|---|---|
//! | `checkout.session.completed`, paid, of a plan | the plan for a month from the checkout, until the processor tells the period's bounds | nothing: the subscription's own events say more | as on `free`, if it is a new subscription |
//! | the same, of credits | the tier's credits, once for the payment | the same | the same |
//! | `customer.subscription.created`: active or trialing, not paused | the plan, for the period that is named | nothing; the period's bounds are the named ones | as on `free`, if it is a new subscription |
//! | `customer.subscription.updated`: active or trialing | nothing: it does not say that anything was paid. Of a period that a checkout has paid for: its bounds | the same | the same |
//! | the same: `past_due` | nothing | it is to be renewed yet | nothing: the grace, 3 days, goes on, and then the plan is `free` |
//! | the same: ending with its period | nothing | the plan ends with its period, without a grace; resumed, it goes on | `free` at once |
//! | the same: `unpaid`, `paused`, `incomplete` | nothing | the plan ends with its period | `free` at once |
//! | `customer.subscription.deleted` | nothing | the plan ends with its period | `free` at once |
//! | `customer.subscription.trial_will_end` | a notice; else as `.updated` | the same | the same |
//! | `invoice.paid`, of a period | the plan, for the period that its line names, if that is not over | a later period begins, which is a renewal; of the same or an earlier one: nothing | as on `free` |
//! | `invoice.paid`, of prorations | nothing, until the period is known | the higher plan; the sum of all paid prorations of the period, in credits, at least 0: what it is more is given, what it is less is taken back or owed | prorations whose period is over become bought credits |
//! | `invoice.payment_failed` | a notice, and the subscription is flagged until an invoice is paid | the same | the same |
//! | `payment_intent.succeeded`, of credits | the tier's credits, once for the payment | the same | the same |
//! | `payment_intent.payment_failed`, of credits | a notice; of an auto top-up, 4 hours without another | the same | the same |
//! | `customer.created` | the user is that customer; what waited for it is due | the same | the same |
//! | `charge.refunded`, `charge.dispute.funds_withdrawn`: of credits | taken back in proportion; what is spent already is owed, and the next credits pay for it | the same | the same |
//! | the same: of a plan | nothing: its period is over | the same, if the period that was paid for is this one; else nothing | the same |
//!
//! A refund of a payment that is not known waits for it. The refund of an upgrade's invoice takes back what its lines gave.
//!
//! # Upgrades and downgrades
//!
//! A change of plan within a period comes with two lines of an invoice: what is left of the old plan's price is given back, and
//! the same part of the new plan's price is charged. Each paid line counts for its amount ÷ its plan's price × its plan's
//! credits, rounded toward zero to a micro-credit. The sum over the period is never below 0: a downgrade takes nothing from what
//! the period began with, and the lower plan comes with the next period. It takes back what an upgrade of the same period gave,
//! because the processor gives back what was paid for it: otherwise an upgrade, a downgrade and the next upgrade, all paid for
//! by the same money, would give credits each time. An upgrade whose invoice is not paid gives nothing.
//!
//! Amounts count in [`CURRENCY`], the currency of the prices. An event with an amount in another one fails, so that an
//! operator sees it.
//!
//! **Invariant:** whoever applies events of a user's has their turn ([`super::inbox`]), and asks the ledger for nothing
//! when the turn is over.
//! **Invariant:** credits go back at most once for each cent of a payment: for how many, is written down before the ledger
//! is asked, and asked again under the same id where the answer was lost.
//!
//! To change what an event does, edit the table, [`apply`] and the table's test.

pub mod state;
pub mod store;

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use weir_ledger::{
    AccountId, Action, Credits, Done, Grant, LedgerError, OperationId, Plan, Pool, Refund, Refusal,
    TopUp,
};
use weir_storage::cache::CacheError;
use weir_storage::clock::Millis;

use self::state::{DueGrant, PlansByPrice, Subscription, Upgrade};
use self::store::{GivenUpgrade, Payment, PaymentKind};
use super::auto_top_up::store::{self as charges, Ended};
use super::events::{
    About, Change, Checkout, Invoice, PaidPeriod, PaymentEvent, PaymentNews, PlanHint, Purchase,
};
use super::inbox::store as kept;
use super::notices::{self, Notice, NoticeKind};
use super::offers::{CURRENCY, Tier};
use crate::app::App;
use crate::{billing, identity};

/// How long the ledger may take for one operation.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(5);

/// For how long nothing is bought by itself after a charge that failed.
pub const COOLDOWN: Duration = Duration::from_secs(4 * 3_600);

/// What an event came to, in words for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// What it has done; or what another one had done before.
    Done(String),
    /// It is nothing of weir's.
    Ignored(&'static str),
}

/// Why an event is to be applied later.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// It takes back what is not known to be paid.
    #[error("the payment is not known yet")]
    UnknownPayment,
    /// It names something that the settings do not know.
    #[error("{0}")]
    Unknown(String),
    /// The database.
    #[error("the database: {0}")]
    Database(#[from] sqlx::Error),
    /// The ledger is late, or refuses.
    #[error("the ledger: {0}")]
    Ledger(#[from] LedgerError),
    /// Without the cache, other nodes would take the plan of before for the present one.
    #[error("the cache does not answer")]
    Cache(#[from] CacheError),
}

/// A user's turn to have events applied.
pub struct Turn<'a> {
    /// What requests share.
    pub app: &'a App,
    /// The user.
    pub account: AccountId,
    /// From when on it is somebody else's.
    pub ends: Instant,
}

/// Has an event, which is kept, take effect on the user whom it is about.
pub async fn apply(turn: &Turn<'_>, event: &PaymentEvent) -> Result<Applied, EffectError> {
    let applied = match &event.about {
        About::Unknown => return Ok(Applied::Ignored("unknown type")),
        About::Customer => return turn.link(event).await,
        About::Checkout(checkout) => {
            let applied = turn.checkout(event, checkout).await;
            if applied.is_ok() && checkout.is_paid {
                // Who wants more is sent to another page.
                let store = &turn.app.payments.store;
                store.close_checkout(&checkout.session, turn.now()).await?;
            }
            applied
        }
        About::Subscription(news) => {
            let plans = turn.plans();
            require_plan(&plans, &news.plan)?;
            if news.change == Change::TrialWillEnd {
                turn.announce_trial_end(&news.id, news.trial_ends_at)
                    .await?;
            }
            turn.subscription(&news.id, &plans).await.map(Applied::Done)
        }
        About::Invoice(invoice) => turn.invoice(event, invoice).await,
        About::Payment(payment) => turn.payment(event, payment).await,
        About::Refund(reversal) | About::Dispute(reversal) => {
            let taken = turn.take_back(reversal.payment_id()).await;
            taken.map(Applied::Done)
        }
    };
    billing::usage::forget(&turn.app.cache, &turn.account).await;
    applied
}

/// Writes a payment down, and has applied what waited for it.
pub async fn note_payment(app: &App, payment: &Payment) -> sqlx::Result<()> {
    store::put_payment(&app.database, payment).await?;
    kept::wake_subject(&app.database, &payment.id, app.ledger.now()).await?;
    app.payments.arrivals.tell_come();
    Ok(())
}

impl Turn<'_> {
    fn plans(&self) -> PlansByPrice {
        PlansByPrice::new(&self.app.payments.settings)
    }

    fn now(&self) -> Millis {
        self.app.ledger.now()
    }

    async fn submit(&self, action: Action) -> Result<Done, LedgerError> {
        if self.ends <= Instant::now() {
            return Err(LedgerError::Late);
        }
        let deadline = self.ends.min(Instant::now() + LEDGER_TIMEOUT);
        self.app
            .ledger
            .submit(&self.account, action, deadline)
            .await
    }

    /// The same for what is done once under its id, however it is worked out the next time: by other prices in the settings, or
    /// by lines that came later.
    async fn submit_step(&self, action: Action) -> Result<(), LedgerError> {
        match self.submit(action).await {
            Ok(_) | Err(LedgerError::Refused(Refusal::Conflict)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn link(&self, event: &PaymentEvent) -> Result<Applied, EffectError> {
        let Some(customer) = &event.customer else {
            return Ok(Applied::Ignored("it names no customer"));
        };
        let (database, user_id) = (&self.app.database, &*self.account.0);
        store::link(database, user_id, customer, self.now()).await?;
        let linked = store::user_of_customer(database, customer).await?;
        if linked.as_deref() != Some(user_id) {
            return Ok(Applied::Ignored("the user is another customer already"));
        }
        self.wake_customer(customer).await?;
        Ok(Applied::Done(format!("{customer} is {user_id}")))
    }

    /// Has applied what waited until this customer is somebody.
    async fn wake_customer(&self, customer: &str) -> Result<(), EffectError> {
        kept::wake_customer(&self.app.database, customer, self.now()).await?;
        self.app.payments.arrivals.tell_come();
        Ok(())
    }

    async fn checkout(
        &self,
        event: &PaymentEvent,
        checkout: &Checkout,
    ) -> Result<Applied, EffectError> {
        if let Some(customer) = &event.customer {
            let database = &self.app.database;
            if store::link(database, &self.account.0, customer, self.now()).await? {
                self.wake_customer(customer).await?;
            }
        }
        if !checkout.is_paid {
            return Ok(Applied::Done("it is not paid yet".to_owned()));
        }
        require_currency(checkout.currency.as_deref())?;
        match &checkout.subscription {
            Some(_) if state::plan_bought(checkout).is_none() => {
                Ok(Applied::Ignored("it names no plan of weir's"))
            }
            Some(id) => self
                .subscription(id, &self.plans())
                .await
                .map(Applied::Done),
            None => {
                let paid = Paid {
                    id: checkout.payment_id(),
                    amount: checkout.amount,
                    currency: checkout.currency.as_deref(),
                };
                self.top_up(paid, &checkout.purchase, event).await
            }
        }
    }

    async fn invoice(
        &self,
        event: &PaymentEvent,
        invoice: &Invoice,
    ) -> Result<Applied, EffectError> {
        let Some(id) = &invoice.subscription else {
            return Ok(Applied::Ignored("it is for no subscription"));
        };
        let plans = self.plans();
        if !invoice.is_paid {
            self.announce_failed_invoice(invoice).await?;
        } else {
            require_currency(invoice.currency.as_deref())?;
            for line in &invoice.lines {
                require_plan(&plans, &line.plan)?;
            }
        }
        if let Some(paid) = state::plan_payment(invoice, &plans).filter(|_| invoice.is_paid) {
            let payment = Payment {
                id: invoice.payment_id().to_owned(),
                user_id: self.account.0.clone(),
                kind: PaymentKind::Plan,
                credits: paid.credits,
                amount: invoice.amount,
                currency: invoice.currency.clone(),
                period: Some(paid.period),
                paid_at: event.created_at,
                refunded: 0,
                refunding: None,
            };
            let mut outcome = self.subscription(id, &plans).await?;
            let late = state::late_credits(invoice, event.created_at, &plans);
            if late > Credits::ZERO {
                let top_up = TopUp {
                    id: OperationId(format!("upgrade:{}", invoice.id)),
                    credits: late,
                    within: None,
                };
                self.submit_step(Action::TopUp(top_up)).await?;
                outcome = format!("{outcome}; {late} credits for changes in an earlier period");
            }
            if invoice.has_more_lines == Some(true) {
                let what =
                    "the event does not show all lines: upgrades among them are to be adjusted";
                outcome = format!("{outcome}; {what}");
            }
            note_payment(self.app, &payment).await?;
            return Ok(Applied::Done(outcome));
        }
        self.subscription(id, &plans).await.map(Applied::Done)
    }

    async fn payment(
        &self,
        event: &PaymentEvent,
        payment: &PaymentNews,
    ) -> Result<Applied, EffectError> {
        let (purchase, id) = (&payment.purchase, &*payment.id);
        let Some(kind) = kind_of(purchase) else {
            return Ok(Applied::Ignored(
                "it is for no credits; an invoice's own events say what is paid",
            ));
        };
        let (database, user_id) = (&self.app.database, &*self.account.0);
        let charge = purchase.charge_id.as_deref();
        let charge = charge.filter(|_| kind == PaymentKind::AutoTopUp);
        if payment.has_succeeded {
            require_currency(payment.currency.as_deref())?;
            let paid = Paid {
                id,
                amount: payment.amount,
                currency: payment.currency.as_deref(),
            };
            let applied = self.top_up(paid, purchase, event).await?;
            if let Some(charge) = charge {
                // Whoever asked for it may be gone.
                let credits = purchase.tier.as_deref().and_then(|tier| tier.parse().ok());
                let data = json!({ "tier": purchase.tier, "credits": credits.map(Tier::credits),
                                   "payment_id": id });
                self.announce(NoticeKind::AutoTopUpDone, charge, data)
                    .await?;
                let ended = Ended::Succeeded { payment_id: id };
                charges::end_charge(database, charge, user_id, &ended, self.now()).await?;
            }
            return Ok(applied);
        }
        let error = payment.error.as_deref().unwrap_or("declined");
        let data = json!({ "payment_id": id, "error": error, "amount_cents": payment.amount,
                           "tier": purchase.tier });
        if kind == PaymentKind::AutoTopUp {
            let until = Millis(event.created_at.0 + COOLDOWN.as_millis() as i64);
            charges::cool_down(database, user_id, until).await?;
            if let Some(charge) = charge {
                let ended = Ended::Failed {
                    why: error,
                    payment_id: Some(id),
                };
                charges::end_charge(database, charge, user_id, &ended, self.now()).await?;
            }
            let about = charge.unwrap_or(id);
            self.announce(NoticeKind::AutoTopUpFailed, about, data)
                .await?;
        } else {
            self.announce(NoticeKind::PaymentFailed, id, data).await?;
        }
        Ok(Applied::Done(format!("the user is told: {error}")))
    }

    /// Brings the account to what is known of a subscription.
    async fn subscription(&self, id: &str, plans: &PlansByPrice) -> Result<String, EffectError> {
        let (database, user_id) = (&self.app.database, &*self.account.0);
        let events = kept::of_subject(database, id).await?;
        let Some(subscription) = Subscription::of(&events, plans) else {
            return Ok("nothing is known of the subscription yet".to_owned());
        };
        let before = store::provisional_start(database, id).await?;
        let due = subscription.due_grant(before);
        // Before it is granted: a repeat grants the same.
        let provisional = match due {
            Some(due) if due.is_provisional => Some(due.period.start),
            _ => before,
        };
        store::put_subscription(database, user_id, &subscription, provisional).await?;
        identity::users::plan_changes(&self.app.cache, user_id).await?;
        let granted = match due {
            Some(due) => self.grant(id, due).await?,
            None => format!("the subscription is {}", subscription.status),
        };
        if let Some(due) = due {
            self.give_upgrades(&subscription, due).await?;
        }
        let renews = store::has_renewing_subscription(database, user_id).await?;
        self.submit(Action::Renewal { renews }).await?;
        Ok(match renews {
            true => granted,
            false => format!("{granted}; the plan ends with its period"),
        })
    }

    async fn grant(&self, subscription: &str, due: DueGrant) -> Result<String, EffectError> {
        let DueGrant {
            base, plan, period, ..
        } = due;
        let plans = match base == plan {
            true => plan.to_string(),
            false => format!("{base}:{plan}"),
        };
        // With the end: if that moves, the ledger moves it, too.
        let mut id = format!(
            "grant:{subscription}:{}:{plans}:{}",
            period.start.seconds(),
            period.end.seconds()
        );
        // An account on a free period that begins after this one has left it too early, by a wrong clock: the period's number
        // makes it another grant. An operator who puts a user on the free plan begins its period at that moment.
        let account = self.app.ledger.find_account(&self.account).await?;
        if let Some(account) = account
            && account.plan == Plan::Free
            && account.period.start >= period.end
        {
            id = format!("{id}:{}", account.period_number);
        }
        let grant = Grant {
            id: OperationId(id),
            plan,
            period,
            credits: base.monthly_credits(),
        };
        match self.submit(Action::Grant(grant)).await {
            Ok(_) => Ok(format!("{plan} until {}", period.end.iso())),
            Err(LedgerError::Refused(
                refusal @ (Refusal::Granted | Refusal::OlderPeriod | Refusal::Outdated),
            )) => Ok(refusal.to_string()),
            Err(error) => Err(error.into()),
        }
    }

    /// Has the account's upgrades be what was paid for them. Those of a period that is not known yet wait for it.
    async fn give_upgrades(
        &self,
        subscription: &Subscription,
        due: DueGrant,
    ) -> Result<(), EffectError> {
        if subscription.upgrades.is_empty() {
            return Ok(());
        }
        let given = store::given_upgrades(&self.app.database, &subscription.id).await?;
        for upgrade in &subscription.upgrades {
            if upgrade.within >= due.period.end {
                continue;
            }
            let given = given.iter().find(|given| given.period_end == upgrade.end);
            self.give_upgrade(
                &subscription.id,
                upgrade,
                given.copied().unwrap_or_default(),
            )
            .await?;
        }
        Ok(())
    }

    async fn give_upgrade(
        &self,
        subscription: &str,
        upgrade: &Upgrade,
        mut given: GivenUpgrade,
    ) -> Result<(), EffectError> {
        let database = &self.app.database;
        if given.giving.is_none() && given.given != upgrade.credits {
            let Upgrade {
                end,
                credits,
                within,
                ..
            } = *upgrade;
            store::begin_upgrade(database, subscription, end, credits, within).await?;
            given.giving = Some(credits);
            given.within = Some(within);
        }
        // What was begun comes first: it may have been done.
        while let Some(giving) = given.giving {
            let within = given.within.unwrap_or(upgrade.within);
            let id = OperationId(format!(
                "upgrade:{subscription}:{}:{}",
                upgrade.end.seconds(),
                given.steps
            ));
            if giving > given.given {
                let top_up = TopUp {
                    id,
                    credits: giving.saturating_sub(given.given),
                    within: Some(within),
                };
                self.submit_step(Action::TopUp(top_up)).await?;
            } else if self.is_in_period(within).await? {
                let refund = Refund {
                    id,
                    pool: Pool::Plan,
                    credits: given.given.saturating_sub(giving),
                };
                self.submit_step(Action::Refund(refund)).await?;
            }
            store::end_upgrade(database, subscription, upgrade.end).await?;
            given.given = giving;
            given.steps += 1;
            given.giving = (giving != upgrade.credits).then_some(upgrade.credits);
            if let Some(next) = given.giving {
                let within = upgrade.within;
                store::begin_upgrade(database, subscription, upgrade.end, next, within).await?;
                given.within = Some(within);
            }
        }
        Ok(())
    }

    /// Gives what a payment is for, once.
    async fn top_up(
        &self,
        paid: Paid<'_>,
        purchase: &Purchase,
        event: &PaymentEvent,
    ) -> Result<Applied, EffectError> {
        let Some(kind) = kind_of(purchase) else {
            return Ok(Applied::Ignored("it is for nothing of weir's"));
        };
        let tier = purchase.tier.as_deref().unwrap_or_default();
        let tier: Tier = tier
            .parse()
            .map_err(|_| EffectError::Unknown(format!("there is no tier {tier:?}")))?;
        let credits = tier.credits();
        let top_up = TopUp {
            id: OperationId(format!("topup:{}", paid.id)),
            credits,
            within: None,
        };
        self.submit(Action::TopUp(top_up)).await?;
        let payment = Payment {
            id: paid.id.to_owned(),
            user_id: self.account.0.clone(),
            kind,
            credits,
            amount: paid.amount,
            currency: paid.currency.map(str::to_owned),
            period: None,
            paid_at: event.created_at,
            refunded: 0,
            refunding: None,
        };
        note_payment(self.app, &payment).await?;
        Ok(Applied::Done(format!("{credits} credits")))
    }

    /// Takes back what a payment gave, as far as its money went back.
    async fn take_back(&self, id: &str) -> Result<String, EffectError> {
        let database = &self.app.database;
        let payment = store::find_payment(database, id).await?;
        let mut payment = payment.ok_or(EffectError::UnknownPayment)?;
        if payment.refunding.is_some() {
            payment = self.finish_taking_back(payment).await?;
        }
        let events = kept::of_subject(database, id).await?;
        require_same_currency(&payment, &events)?;
        let cents = state::cents_back(&events).min(payment.amount);
        if cents <= payment.refunded {
            return Ok("it was taken back already".to_owned());
        }
        let before = payment.credits_back();
        store::begin_refund(database, id, cents).await?;
        payment.refunding = Some(cents);
        let payment = self.finish_taking_back(payment).await?;
        let credits = payment.credits_back().saturating_sub(before);
        Ok(match self.is_to_be_taken(&payment).await? {
            true => format!("{credits} credits are taken back, or owed"),
            false => "the period that was paid for is not the present one".to_owned(),
        })
    }

    /// Takes back what was written down to be.
    async fn finish_taking_back(&self, payment: Payment) -> Result<Payment, EffectError> {
        let Some(cents) = payment.refunding else {
            return Ok(payment);
        };
        let before = payment.credits_back();
        let after = Payment {
            refunded: cents,
            refunding: None,
            ..payment
        };
        let credits = after.credits_back().saturating_sub(before);
        if credits > Credits::ZERO && self.is_to_be_taken(&after).await? {
            let refund = Refund {
                id: OperationId(format!("refund:{}:{cents}", after.id)),
                pool: match after.kind {
                    PaymentKind::Plan => Pool::Plan,
                    PaymentKind::TopUp | PaymentKind::AutoTopUp => Pool::TopUp,
                },
                credits,
            };
            self.submit(Action::Refund(refund)).await?;
        }
        store::end_refund(&self.app.database, &after.id, cents).await?;
        Ok(after)
    }

    /// Whether an account has what a payment gave: of a plan, while the period that was paid for is the present one.
    async fn is_to_be_taken(&self, payment: &Payment) -> Result<bool, EffectError> {
        let Some(PaidPeriod { start, end }) = payment.period else {
            return Ok(true);
        };
        // Bounds may be some seconds off where a checkout has begun the period.
        self.is_in_period(Millis(start.0 + (end.0 - start.0) / 2))
            .await
    }

    /// Whether the account is in the paid period that a moment belongs to.
    async fn is_in_period(&self, moment: Millis) -> Result<bool, EffectError> {
        let account = self.app.ledger.find_account(&self.account).await?;
        Ok(account
            .is_some_and(|account| account.plan != Plan::Free && account.period.contains(moment)))
    }

    async fn announce_trial_end(
        &self,
        subscription: &str,
        ends_at: Option<Millis>,
    ) -> Result<(), EffectError> {
        let ends_at = ends_at.map(Millis::iso);
        let about = format!("{subscription}:{}", ends_at.as_deref().unwrap_or_default());
        let data = json!({ "subscription_id": subscription, "trial_ends_at": ends_at });
        self.announce(NoticeKind::TrialEnding, &about, data).await
    }

    async fn announce_failed_invoice(&self, invoice: &Invoice) -> Result<(), EffectError> {
        let about = format!("{}:{}", invoice.id, invoice.attempts);
        let data = json!({ "invoice_id": invoice.id, "subscription_id": invoice.subscription,
                           "attempts": invoice.attempts,
                           "next_attempt_at": invoice.next_attempt_at.map(Millis::iso) });
        self.announce(NoticeKind::PaymentFailed, &about, data).await
    }

    async fn announce(
        &self,
        kind: NoticeKind,
        about: &str,
        data: serde_json::Value,
    ) -> Result<(), EffectError> {
        let notice = Notice::new(kind, &self.account.0, about, data);
        notices::put(&self.app.database, &notice, self.now()).await?;
        Ok(())
    }
}

/// A payment for credits.
#[derive(Clone, Copy)]
struct Paid<'a> {
    id: &'a str,
    /// In cents.
    amount: i64,
    currency: Option<&'a str>,
}

impl Payment {
    /// The part of its credits that its refunded cents are.
    fn credits_back(&self) -> Credits {
        state::credits_back(self.credits, self.refunded, self.amount)
    }
}

fn kind_of(purchase: &Purchase) -> Option<PaymentKind> {
    match purchase.purpose.as_deref() {
        Some("topup") => Some(PaymentKind::TopUp),
        Some("auto_topup") => Some(PaymentKind::AutoTopUp),
        _ => None,
    }
}

/// Refuses an amount that cannot be compared with the prices.
fn require_currency(currency: Option<&str>) -> Result<(), EffectError> {
    match currency {
        Some(other) if !state::is_ours(currency) => Err(EffectError::Unknown(format!(
            "the amount is in {other}, and the prices are in {CURRENCY}: adjust the user's credits by hand"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a refund or dispute whose amount is no part of the payment's.
fn require_same_currency(payment: &Payment, events: &[PaymentEvent]) -> Result<(), EffectError> {
    let paid = payment.currency.as_deref().unwrap_or(CURRENCY);
    for event in events {
        let (About::Refund(back) | About::Dispute(back)) = &event.about else {
            continue;
        };
        if let Some(other) = back.currency.as_deref()
            && !other.eq_ignore_ascii_case(paid)
        {
            return Err(EffectError::Unknown(format!(
                "{other} went back of a payment in {paid}: adjust the user's credits by hand"
            )));
        }
    }
    Ok(())
}

fn require_plan(plans: &PlansByPrice, hint: &PlanHint) -> Result<Plan, EffectError> {
    plans.plan_of(hint).ok_or_else(|| {
        let prices = hint.prices.join(", ");
        EffectError::Unknown(format!(
            "no plan is known by the price {prices}: name it in `payments.plans` and apply the event again"
        ))
    })
}
