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
//! | `checkout.session.completed`, of a plan | the plan for a month from the checkout, until the processor tells the period's bounds | nothing: the subscription's own events say more | as on `free`, if it is a new subscription |
//! | the same, of credits | the tier's credits, once for the payment | the same | the same |
//! | `customer.subscription.created`, `.updated`: active or trialing | the plan, for the period that is named | of the same period: a higher plan raises it by the difference, so that what was spent stays spent; a lower one waits for the next period. Of a later period: that begins. Of an earlier one: nothing | the period that is named begins |
//! | the same: `past_due` | nothing | it is to be renewed yet | nothing: the grace, 3 days, goes on, and then the plan is `free` |
//! | the same: ending with its period | nothing | the plan ends with its period, without a grace; resumed, it goes on | `free` at once |
//! | the same: `unpaid`, `paused`, `incomplete` | nothing | the plan ends with its period | `free` at once |
//! | `customer.subscription.deleted` | nothing | the plan ends with its period | `free` at once |
//! | `customer.subscription.trial_will_end` | a notice; else as `.updated` | the same | the same |
//! | `invoice.paid` | the plan, for the period that its line names, if that is not over | as `.updated` of that period: a later one begins, which is a renewal | the same |
//! | `invoice.payment_failed` | a notice, and the subscription is flagged until an invoice is paid | the same | the same |
//! | `payment_intent.succeeded`, of credits | the tier's credits, once for the payment | the same | the same |
//! | `payment_intent.payment_failed`, of credits | a notice; of an auto top-up, 4 hours without another | the same | the same |
//! | `customer.created` | the user is that customer; what waited for it is due | the same | the same |
//! | `charge.refunded`, `charge.dispute.funds_withdrawn`: of credits | taken back in proportion; what is spent already is owed, and the next credits pay for it | the same | the same |
//! | the same: of a plan | nothing: its period is over | the same, if the period that was paid for is this one; else nothing | the same |
//!
//! A refund of a payment that is not known waits for it. An upgrade within a period is paid for by an invoice whose lines
//! are prorations: it begins no period, and its refund takes back the difference of the plans.
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

use self::state::{DueGrant, PlansByPrice, Subscription};
use self::store::{Payment, PaymentKind};
use super::auto_top_up::store::{self as charges, Ended};
use super::events::{
    About, Change, Checkout, Invoice, PaidPeriod, PaymentEvent, PaymentNews, PlanHint, Purchase,
};
use super::inbox::store as kept;
use super::notices::{self, Notice, NoticeKind};
use super::offers::Tier;
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
        match &checkout.subscription {
            Some(_) if state::plan_bought(checkout).is_none() => {
                Ok(Applied::Ignored("it names no plan of weir's"))
            }
            Some(id) => self
                .subscription(id, &self.plans())
                .await
                .map(Applied::Done),
            None => {
                let (id, amount) = (checkout.payment_id(), checkout.amount);
                self.top_up(id, amount, &checkout.purchase, event).await
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
            for line in invoice.lines.iter().filter(|line| line.amount >= 0) {
                require_plan(&plans, &line.plan)?;
            }
        }
        // What was paid, first: whoever takes it back may wait for it.
        if let Some(paid) = state::plan_payment(invoice, &plans).filter(|_| invoice.is_paid) {
            let payment = Payment {
                id: invoice.payment_id().to_owned(),
                user_id: self.account.0.clone(),
                kind: PaymentKind::Plan,
                credits: paid.credits,
                amount: invoice.amount,
                period: Some(paid.period),
                paid_at: event.created_at,
                refunded: 0,
                refunding: None,
            };
            let outcome = self.subscription(id, &plans).await?;
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
            let applied = self.top_up(id, payment.amount, purchase, event).await?;
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
        let renews = store::has_renewing_subscription(database, user_id).await?;
        self.submit(Action::Renewal { renews }).await?;
        Ok(match renews {
            true => granted,
            false => format!("{granted}; the plan ends with its period"),
        })
    }

    async fn grant(&self, subscription: &str, due: DueGrant) -> Result<String, EffectError> {
        let DueGrant { plan, period, .. } = due;
        // With the end, so that a period may be granted again whose end has moved: the ledger knows that it is the same.
        let id = format!(
            "grant:{subscription}:{}:{plan}:{}",
            period.start.seconds(),
            period.end.seconds()
        );
        let grant = Grant {
            id: OperationId(id),
            plan,
            period,
            credits: plan.monthly_credits(),
        };
        match self.submit(Action::Grant(grant)).await {
            Ok(_) => Ok(format!("{plan} until {}", period.end.iso())),
            Err(LedgerError::Refused(
                refusal @ (Refusal::Granted | Refusal::OlderPeriod | Refusal::Outdated),
            )) => Ok(refusal.to_string()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives what a payment is for, once.
    async fn top_up(
        &self,
        id: &str,
        amount: i64,
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
            id: OperationId(format!("topup:{id}")),
            credits,
        };
        self.submit(Action::TopUp(top_up)).await?;
        let payment = Payment {
            id: id.to_owned(),
            user_id: self.account.0.clone(),
            kind,
            credits,
            amount,
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
        let middle = Millis(start.0 + (end.0 - start.0) / 2);
        let account = self.app.ledger.find_account(&self.account).await?;
        Ok(account
            .is_some_and(|account| account.plan != Plan::Free && account.period.contains(middle)))
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

fn require_plan(plans: &PlansByPrice, hint: &PlanHint) -> Result<Plan, EffectError> {
    plans.plan_of(hint).ok_or_else(|| {
        let prices = hint.prices.join(", ");
        EffectError::Unknown(format!(
            "no plan is known by the price {prices}: name it in `payments.plans` and apply the event again"
        ))
    })
}
