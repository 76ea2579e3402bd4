//! Effects of the processor's events on accounts.
//!
//! Events arrive twice, late, and in any order. weir therefore never treats an event as a command. It reads all known
//! events of a subscription or payment together ([`state`]), and brings the account to their result. The ledger takes
//! each grant, top-up and refund once, by its id. The result is the same in any order, except for credits that the user
//! spent meanwhile: spent credits stay spent.
//!
//! # Each event, by the plan of the account
//!
//! | Event | `free` | paid, in its period | paid, in the grace after it |
//! |---|---|---|---|
//! | `checkout.session.completed`, paid, of a plan | the plan for a month from the checkout, until an event has the period's bounds | nothing: the subscription has its own events | as on `free`, if the subscription is new |
//! | the same, of credits | the tier's credits, once per payment | the same | the same |
//! | `customer.subscription.created`: trialing, not paused | the plan, for the period in the event | nothing, except the period's bounds | as on `free`, if the subscription is new |
//! | the same: active; `customer.subscription.updated`: active or trialing | nothing, because it shows no payment; the bounds, if a checkout paid for the period | the same | the same |
//! | the same: `past_due` | nothing | nothing: the renewal may still be paid | nothing: the grace of 3 days continues, then the plan is `free` |
//! | the same: ending with its period | nothing | the plan ends with its period, without a grace; if resumed, it continues | `free` at once |
//! | the same: `unpaid`, `paused`, `incomplete` | nothing | the plan ends with its period | `free` at once |
//! | `customer.subscription.deleted` | nothing | the plan ends with its period | `free` at once |
//! | `customer.subscription.trial_will_end` | a notice; else as `.updated` | the same | the same |
//! | `invoice.paid`, of a period | the plan, for the period in its line, unless that is over | a later period begins (renewal); nothing for the same or an earlier one | as on `free` |
//! | `invoice.paid`, of prorations | nothing, until the period is known | the higher plan; the credits of all paid prorations of the period, at least 0: weir gives an increase, and takes back a decrease or adds it to the owed credits | prorations of an ended period become top-up credits |
//! | `invoice.payment_failed` | a notice; flags the subscription until an invoice is paid | the same | the same |
//! | `payment_intent.succeeded`, of credits | the tier's credits, once per payment | the same | the same |
//! | `payment_intent.payment_failed`, of credits | a notice; for auto top-up, a pause of 4 hours | the same | the same |
//! | `customer.created` | links the customer to the user; events that wait for the link become due | the same | the same |
//! | `charge.refunded`, `refund.created`, `credit_note.created`, `charge.dispute.funds_withdrawn`: of credits | takes credits back in proportion; spent and held credits become owed, and the next free credits pay them | the same | the same |
//! | the same: of a plan | nothing: its period is over | the same, if the payment was for this period; else nothing, except the spent credits of a period that a new subscription cut short | the same |
//! | `refund.failed`, `refund.updated`, `charge.refund.updated`: failed or cancelled; `credit_note.voided`; `charge.dispute.funds_reinstated`; `charge.dispute.closed`: won | gives the taken credits back, and reduces owed credits | the same | the same |
//!
//! A refund of an unknown payment waits for it. The refund of an upgrade's invoice takes back the credits of its lines.
//! The state of a payment is a function of all its events ([`state::cents_back`]): each failed refund and each won
//! dispute gives its credits back once, in any order of the events. Plan credits whose period is over come back as
//! top-up credits.
//!
//! # Events that do not show everything
//!
//! The processor shows ten entries of a list. weir reads the other lines of a paid invoice, and the other items of a
//! subscription, from the processor's API and stores them with the event. Until then the event fails and is retried.
//!
//! # Upgrades and downgrades
//!
//! A change of plan within a period comes with two invoice lines: a refund of the rest of the old plan's price, and a
//! charge for the same part of the new plan's price. Each paid line counts for its amount ÷ its plan's price × its
//! plan's credits, rounded toward zero to a micro-credit. The sum over the period is never below 0: a downgrade takes
//! nothing from the first credits of the period, and the lower plan starts with the next period. A downgrade takes back
//! the credits of an upgrade in the same period, because the processor refunds the upgrade. Otherwise an upgrade, a
//! downgrade and the next upgrade, all paid with the same money, would give credits each time. An upgrade with an
//! unpaid invoice gives nothing.
//!
//! If a subscription ends before its period does, the sum may be negative: the processor adds the price of the rest of
//! the period to the customer's balance, which pays for the next subscription. weir takes the credits of that price
//! back, and spent ones become owed.
//!
//! Amounts count in [`CURRENCY`], the currency of the prices. An event in another currency fails, so an operator sees
//! it.
//!
//! **Invariant:** a node applies events of a user only in the user's turn ([`crate::inbox`]), and calls the ledger only
//! before the turn ends.
//! **Invariant:** each cent of a payment takes credits back at most once. weir stores the number of cents before it
//! calls the ledger, and repeats a lost call with the same id.
//!
//! To change the effect of an event, edit the table, [`apply`] and the table's test.

pub mod state;
pub mod store;

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use weir_ledger::{
    AccountId, Action, Credits, Grant, LedgerError, LedgerRefusal, LedgerStore, OperationEffect,
    OperationId, Plan, Pool, Refund, TopUp,
};
use weir_storage::cache::CacheError;
use weir_storage::clock::Millis;

use self::state::{DueGrant, PlansByPrice, Subscription, Upgrade};
use self::store::{Payment, PaymentKind, UpgradeGrant};
use crate::charges::{self, ChargeEnd};
use crate::event_store as kept;
use crate::events::{
    Checkout, EventContent, InvalidEvent, Invoice, MissingPart, PaidPeriod, PaymentEvent,
    PaymentUpdate, PlanHint, Purchase, SubscriptionChange,
};
use crate::notices::{self, NoticeKind, UserNotice};
use crate::offers::{CURRENCY, TopUpTier};
use crate::payments::Payments;
use crate::store as customers;
use crate::terms::ProcessorError;

/// Time limit of one operation of the ledger.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause of auto top-up after a failed charge.
pub const COOLDOWN: Duration = Duration::from_secs(4 * 3_600);

/// The result of an event, in words for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventEffect {
    /// The event has this effect, or an earlier event had it.
    Done(String),
    /// The event does not concern weir.
    Ignored(&'static str),
}

/// Reasons to apply an event later.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// The event refunds an unknown payment.
    #[error("the payment is not known yet")]
    UnknownPayment,
    /// The event names something that the settings do not know.
    #[error("{0}")]
    Unknown(String),
    #[error("the database: {0}")]
    Database(#[from] sqlx::Error),
    /// The ledger is late, or refuses the operation.
    #[error("the ledger: {0}")]
    Ledger(#[from] LedgerError),
    /// The processor's API does not give the rest of an event.
    #[error("{0}")]
    Processor(#[from] ProcessorError),
    /// The cache cannot drop copies of the plan. Other nodes would use the old plan.
    #[error("the cache does not answer")]
    Cache(#[from] CacheError),
}

/// A user's turn: the lease in which one node applies the user's events.
pub struct UserLease<'a> {
    /// The payments of this gateway.
    pub payments: &'a Payments,
    pub account: AccountId,
    /// The end of the turn; another node can take it afterwards.
    pub ends: Instant,
}

/// Applies a stored event to its user.
pub async fn apply(turn: &UserLease<'_>, event: &PaymentEvent) -> Result<EventEffect, EffectError> {
    let completed = turn.complete(event).await?;
    let event = completed.as_ref().unwrap_or(event);
    let applied = match &event.about {
        EventContent::Unknown => return Ok(EventEffect::Ignored("unknown type")),
        EventContent::Customer => return turn.link(event).await,
        EventContent::Checkout(checkout) => {
            let applied = turn.checkout(event, checkout).await;
            if applied.is_ok() && checkout.is_paid {
                // A user who wants to buy more gets another page.
                let store = &turn.payments.store;
                store.close_checkout(&checkout.session, turn.now()).await?;
            }
            applied
        }
        EventContent::Subscription(news) => {
            let plans = turn.plans();
            require_plan(&plans, &news.plan)?;
            if news.change == SubscriptionChange::TrialWillEnd {
                turn.announce_trial_end(&news.id, news.trial_ends_at)
                    .await?;
            }
            turn.subscription(&news.id, &plans)
                .await
                .map(EventEffect::Done)
        }
        EventContent::Invoice(invoice) => turn.invoice(event, invoice).await,
        EventContent::Payment(payment) => turn.payment(event, payment).await,
        EventContent::Refund(reversal) | EventContent::Dispute(reversal) => {
            let settled = turn.settle_refunds(reversal.payment_id()).await;
            settled.map(EventEffect::Done)
        }
        EventContent::RefundState(refund) => {
            let settled = turn.settle_refunds(refund.payment_id()).await;
            settled.map(EventEffect::Done)
        }
        EventContent::CreditNote(note) if note.amount == 0 => Ok(EventEffect::Done(
            "no money goes back, except by refunds with their own events".to_owned(),
        )),
        EventContent::CreditNote(note) => {
            let settled = turn.settle_refunds(&note.invoice).await;
            settled.map(EventEffect::Done)
        }
    };
    turn.payments.drop_summary(&turn.account).await;
    applied
}

/// Stores a payment, and wakes the events that wait for it.
pub async fn note_payment(payments: &Payments, payment: &Payment) -> sqlx::Result<()> {
    store::put_payment(&payments.database, payment).await?;
    for subject in [Some(&payment.id), payment.invoice.as_ref()]
        .into_iter()
        .flatten()
    {
        kept::wake_subject(&payments.database, subject, payments.ledger.now()).await?;
    }
    payments.arrivals.tell_come();
    Ok(())
}

impl UserLease<'_> {
    fn plans(&self) -> PlansByPrice {
        PlansByPrice::new(&self.payments.settings)
    }

    fn now(&self) -> Millis {
        self.payments.ledger.now()
    }

    async fn submit(&self, action: Action) -> Result<OperationEffect, LedgerError> {
        if self.ends <= Instant::now() {
            return Err(LedgerError::Late);
        }
        let deadline = self.ends.min(Instant::now() + LEDGER_TIMEOUT);
        self.payments
            .ledger
            .submit(&self.account, action, deadline)
            .await
    }

    /// Submits an action that happens once per id. A conflict counts as done: a repeat may compute other figures, from
    /// changed prices or later invoice lines.
    async fn submit_step(&self, action: Action) -> Result<(), LedgerError> {
        match self.submit(action).await {
            Ok(_) | Err(LedgerError::Refused(LedgerRefusal::Conflict)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads the parts of an event that the processor has cut, and stores them with the event.
    async fn complete(&self, event: &PaymentEvent) -> Result<Option<PaymentEvent>, EffectError> {
        let Some(missing) = event.missing() else {
            return Ok(None);
        };
        let processor = &self.payments.processor;
        let mut whole = event.clone();
        let read = match missing {
            MissingPart::InvoiceLines(id) => whole.add_lines(&processor.invoice(id).await?),
            MissingPart::SubscriptionItems(id) => {
                whole.add_items(&processor.subscription_items(id).await?)
            }
        };
        read.map_err(|InvalidEvent { field, what }| {
            EffectError::Unknown(format!("the processor's {field} cannot be read: {what}"))
        })?;
        kept::complete(&self.payments.database, &whole).await?;
        Ok(Some(whole))
    }

    async fn link(&self, event: &PaymentEvent) -> Result<EventEffect, EffectError> {
        let Some(customer) = &event.customer else {
            return Ok(EventEffect::Ignored("it names no customer"));
        };
        let (database, user_id) = (&self.payments.database, &*self.account.0);
        customers::link(database, user_id, customer, self.now()).await?;
        let linked = customers::user_of_customer(database, customer).await?;
        if linked.as_deref() != Some(user_id) {
            return Ok(EventEffect::Ignored("the user is another customer already"));
        }
        self.wake_customer(customer).await?;
        Ok(EventEffect::Done(format!("{customer} is {user_id}")))
    }

    /// Wakes the events that wait until this customer has a user.
    async fn wake_customer(&self, customer: &str) -> Result<(), EffectError> {
        kept::wake_customer(&self.payments.database, customer, self.now()).await?;
        self.payments.arrivals.tell_come();
        Ok(())
    }

    async fn checkout(
        &self,
        event: &PaymentEvent,
        checkout: &Checkout,
    ) -> Result<EventEffect, EffectError> {
        if let Some(customer) = &event.customer {
            let database = &self.payments.database;
            if customers::link(database, &self.account.0, customer, self.now()).await? {
                self.wake_customer(customer).await?;
            }
        }
        if !checkout.is_paid {
            return Ok(EventEffect::Done("it is not paid yet".to_owned()));
        }
        require_currency(checkout.currency.as_deref())?;
        match &checkout.subscription {
            Some(_) if state::plan_bought(checkout).is_none() => {
                Ok(EventEffect::Ignored("it names no plan of weir's"))
            }
            Some(id) => self
                .subscription(id, &self.plans())
                .await
                .map(EventEffect::Done),
            None => {
                let paid = CreditPayment {
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
    ) -> Result<EventEffect, EffectError> {
        let Some(id) = &invoice.subscription else {
            return Ok(EventEffect::Ignored("it is for no subscription"));
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
                amount: invoice.charged(),
                currency: invoice.currency.clone(),
                period: Some(paid.period),
                invoice: Some(invoice.id.clone()),
                subscription: Some(id.clone()),
                paid_at: event.created_at,
                refunded: 0,
                refunding: None,
                taken: Credits::ZERO,
                returns: 0,
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
            note_payment(self.payments, &payment).await?;
            return Ok(EventEffect::Done(outcome));
        }
        self.subscription(id, &plans).await.map(EventEffect::Done)
    }

    async fn payment(
        &self,
        event: &PaymentEvent,
        payment: &PaymentUpdate,
    ) -> Result<EventEffect, EffectError> {
        let (purchase, id) = (&payment.purchase, &*payment.id);
        let Some(kind) = kind_of(purchase) else {
            return Ok(EventEffect::Ignored(
                "it is for no credits; an invoice's own events say what is paid",
            ));
        };
        let (database, user_id) = (&self.payments.database, &*self.account.0);
        let charge = purchase.charge_id.as_deref();
        let charge = charge.filter(|_| kind == PaymentKind::AutoTopUp);
        if payment.has_succeeded {
            require_currency(payment.currency.as_deref())?;
            let paid = CreditPayment {
                id,
                amount: payment.amount,
                currency: payment.currency.as_deref(),
            };
            let applied = self.top_up(paid, purchase, event).await?;
            if let Some(charge) = charge {
                // The node that made the charge may have stopped.
                let credits = purchase.tier.as_deref().and_then(|tier| tier.parse().ok());
                let data = json!({ "tier": purchase.tier, "credits": credits.map(TopUpTier::credits),
                                   "payment_id": id });
                self.announce(NoticeKind::AutoTopUpDone, charge, data)
                    .await?;
                let ended = ChargeEnd::Succeeded { payment_id: id };
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
                let ended = ChargeEnd::Failed {
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
        Ok(EventEffect::Done(format!("the user is told: {error}")))
    }

    /// Brings the account to the result of all known events of a subscription.
    async fn subscription(&self, id: &str, plans: &PlansByPrice) -> Result<String, EffectError> {
        let (database, user_id) = (&self.payments.database, &*self.account.0);
        let events = kept::of_subject(database, id).await?;
        let Some(subscription) = Subscription::of(&events, plans) else {
            return Ok("nothing is known of the subscription yet".to_owned());
        };
        let before = store::provisional_start(database, id).await?;
        let due = subscription.due_grant(before);
        // Stored before the grant: a repeat grants the same period.
        let provisional = match due {
            Some(due) if due.is_provisional => Some(due.period.start),
            _ => before,
        };
        store::put_subscription(database, user_id, &subscription, provisional).await?;
        self.payments.drop_plan(user_id).await?;
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
        // The id has the end, because the ledger moves the end of a period with it.
        let mut id = format!(
            "grant:{subscription}:{}:{plans}:{}",
            period.start.seconds(),
            period.end.seconds()
        );
        // A free period that begins after this one shows that a wrong clock ended this one too early. The number of the
        // period makes the grant a new one. An operator who sets the free plan begins the free period at that moment.
        let account = self.payments.ledger.find_account(&self.account).await?;
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
                refusal @ (LedgerRefusal::Granted
                | LedgerRefusal::OlderPeriod
                | LedgerRefusal::Outdated),
            )) => Ok(refusal.to_string()),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings the credits of upgrades to their paid amounts. Upgrades of a period that is not known yet wait for it.
    async fn give_upgrades(
        &self,
        subscription: &Subscription,
        due: DueGrant,
    ) -> Result<(), EffectError> {
        if subscription.upgrades.is_empty() {
            return Ok(());
        }
        let given = store::given_upgrades(&self.payments.database, &subscription.id).await?;
        for upgrade in &subscription.upgrades {
            if upgrade.within >= due.period.end {
                continue;
            }
            let given = given.iter().find(|given| given.period_end == upgrade.end);
            self.give_upgrade(
                &subscription.id,
                upgrade,
                given.copied().unwrap_or_default(),
                due.period.start,
            )
            .await?;
        }
        Ok(())
    }

    async fn give_upgrade(
        &self,
        subscription: &str,
        upgrade: &Upgrade,
        mut given: UpgradeGrant,
        period_start: Millis,
    ) -> Result<(), EffectError> {
        let (database, end) = (&self.payments.database, upgrade.end);
        loop {
            // A stored change comes first: it may already be done.
            let (giving, within) = match given.giving {
                Some(giving) => (giving, given.within.unwrap_or(upgrade.within)),
                None => {
                    let due = self.due_credits(upgrade, given.given, period_start).await?;
                    let Some(due) = due else {
                        return Ok(());
                    };
                    let within = upgrade.within;
                    store::begin_upgrade(database, subscription, end, due, within).await?;
                    (due, within)
                }
            };
            let id = OperationId(format!(
                "upgrade:{subscription}:{}:{}",
                end.seconds(),
                given.steps
            ));
            let action = match giving > given.given {
                true => Action::TopUp(TopUp {
                    id,
                    credits: giving.saturating_sub(given.given),
                    within: Some(within),
                }),
                false => Action::Refund(Refund {
                    id,
                    pool: Pool::Plan,
                    credits: given.given.saturating_sub(giving),
                }),
            };
            self.submit_step(action).await?;
            store::end_upgrade(database, subscription, end).await?;
            given = UpgradeGrant {
                given: giving,
                giving: None,
                steps: given.steps + 1,
                ..given
            };
        }
    }

    /// The credits that a period's plan changes should have given by now, if not the present ones. Credits that lapsed
    /// with the period are not taken back.
    async fn due_credits(
        &self,
        upgrade: &Upgrade,
        given: Credits,
        period_start: Millis,
    ) -> Result<Option<Credits>, EffectError> {
        let Upgrade {
            credits,
            within,
            end,
            ..
        } = *upgrade;
        if credits >= given {
            return Ok((credits > given).then_some(credits));
        }
        if self.is_in_period(within, end).await? {
            return Ok(Some(credits));
        }
        let less = given.saturating_sub(credits);
        let spent = self.spent_of(less, [period_start; 2], end).await?;
        Ok((spent > Credits::ZERO).then(|| given.saturating_sub(spent)))
    }

    /// Gives the credits of a payment, once.
    async fn top_up(
        &self,
        paid: CreditPayment<'_>,
        purchase: &Purchase,
        event: &PaymentEvent,
    ) -> Result<EventEffect, EffectError> {
        let Some(kind) = kind_of(purchase) else {
            return Ok(EventEffect::Ignored("it is for nothing of weir's"));
        };
        let tier = purchase.tier.as_deref().unwrap_or_default();
        let tier: TopUpTier = tier
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
            invoice: None,
            subscription: None,
            paid_at: event.created_at,
            refunded: 0,
            refunding: None,
            taken: Credits::ZERO,
            returns: 0,
        };
        note_payment(self.payments, &payment).await?;
        Ok(EventEffect::Done(format!("{credits} credits")))
    }

    /// Brings the credits of a payment to the part of the money that did not go back.
    async fn settle_refunds(&self, id: &str) -> Result<String, EffectError> {
        let database = &self.payments.database;
        let payment = store::find_payment(database, id).await?;
        let mut payment = payment.ok_or(EffectError::UnknownPayment)?;
        if payment.refunding.is_some() {
            payment = self.finish_refunds(payment).await?;
        }
        let events = kept::of_payment(database, &payment.id, payment.invoice.as_deref()).await?;
        require_same_currency(&payment, &events)?;
        let cents = state::cents_back(&events).min(payment.amount);
        if cents == payment.refunded {
            return Ok("nothing changes: other events had the same effect".to_owned());
        }
        let (before, owes_more) = (payment.taken, cents > payment.refunded);
        store::begin_refund(database, &payment.id, cents).await?;
        payment.refunding = Some(cents);
        let payment = self.finish_refunds(payment).await?;
        Ok(match payment.taken {
            after if after > before => {
                let credits = after.saturating_sub(before);
                format!("{credits} credits are taken back, or owed")
            }
            after if after < before => {
                let credits = before.saturating_sub(after);
                format!("{credits} credits are given back")
            }
            _ if owes_more => "the period that was paid for is not the present one".to_owned(),
            _ => "no credits were taken back for the money".to_owned(),
        })
    }

    /// Completes a stored change of the refunded cents.
    async fn finish_refunds(&self, payment: Payment) -> Result<Payment, EffectError> {
        let Some(cents) = payment.refunding else {
            return Ok(payment);
        };
        let before = payment.credits_back();
        let mut after = Payment {
            refunded: cents,
            refunding: None,
            ..payment
        };
        let back = after.credits_back();
        if back > before {
            let credits = self.to_be_taken(&after, back, before).await?;
            if credits > Credits::ZERO {
                // A number makes the id new after credits were given back.
                let id = match after.returns {
                    0 => format!("refund:{}:{cents}", after.id),
                    returns => format!("refund:{}:{cents}:{returns}", after.id),
                };
                let refund = Refund {
                    id: OperationId(id),
                    pool: match after.kind {
                        PaymentKind::Plan => Pool::Plan,
                        PaymentKind::TopUp | PaymentKind::AutoTopUp => Pool::TopUp,
                    },
                    credits,
                };
                self.submit_step(Action::Refund(refund)).await?;
                after.taken = after.taken.saturating_add(credits);
            }
        } else if back < before {
            after.returns += 1;
            let credits = after.taken.saturating_sub(back);
            if credits > Credits::ZERO {
                let id = format!("return:{}:{cents}:{}", after.id, after.returns);
                let top_up = TopUp {
                    id: OperationId(id),
                    credits,
                    within: after.period.map(PaidPeriod::middle),
                };
                self.submit_step(Action::TopUp(top_up)).await?;
                after.taken = back;
            }
        }
        store::end_refund(&self.payments.database, &after).await?;
        Ok(after)
    }

    /// The credits to take if `back` of a payment's credits belong to refunded cents, and `before` did before. Credits of
    /// a plan last until its period ends.
    async fn to_be_taken(
        &self,
        payment: &Payment,
        back: Credits,
        before: Credits,
    ) -> Result<Credits, EffectError> {
        let Some(period) = payment.period else {
            return Ok(back.saturating_sub(before));
        };
        if self.is_in_period(period.middle(), period.end).await? {
            return Ok(back.saturating_sub(before));
        }
        let provisional = match &payment.subscription {
            Some(id) => store::provisional_start(&self.payments.database, id).await?,
            None => None,
        };
        let starts = [period.start, provisional.unwrap_or(period.start)];
        let credits = back.saturating_sub(payment.taken);
        self.spent_of(credits, starts, period.end).await
    }

    /// The part of credits that the user spent before a new subscription ended their period early: unspent credits
    /// lapsed then. None of them, if the period is over by time.
    async fn spent_of(
        &self,
        credits: Credits,
        starts: [Millis; 2],
        end: Millis,
    ) -> Result<Credits, EffectError> {
        if end <= self.now() {
            return Ok(Credits::ZERO);
        }
        let ledger = LedgerStore::new(self.payments.database.clone());
        let lapsed = ledger.find_lapsed(&self.account, starts).await?;
        Ok(lapsed.map_or(Credits::ZERO, |lapsed| {
            credits.saturating_sub(lapsed).max(Credits::ZERO)
        }))
    }

    /// Whether the account is in the paid period that contains a moment and has this end. Periods of two subscriptions
    /// may overlap.
    async fn is_in_period(&self, moment: Millis, end: Millis) -> Result<bool, EffectError> {
        let account = self.payments.ledger.find_account(&self.account).await?;
        Ok(account.is_some_and(|account| {
            let period = account.period;
            account.plan != Plan::Free && period.contains(moment) && period.end == end
        }))
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
        let notice = UserNotice::new(kind, &self.account.0, about, data);
        notices::put(&self.payments.database, &notice, self.now()).await?;
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct CreditPayment<'a> {
    id: &'a str,
    /// In cents.
    amount: i64,
    currency: Option<&'a str>,
}

impl Payment {
    /// The part of the credits that belongs to the refunded cents.
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

/// Rejects an amount that is not in the currency of the prices.
fn require_currency(currency: Option<&str>) -> Result<(), EffectError> {
    match currency {
        Some(other) if !state::is_ours(currency) => Err(EffectError::Unknown(format!(
            "the amount is in {other}, and the prices are in {CURRENCY}: adjust the user's credits by hand"
        ))),
        _ => Ok(()),
    }
}

/// Rejects a refund, credit note or dispute in another currency than its payment.
fn require_same_currency(payment: &Payment, events: &[PaymentEvent]) -> Result<(), EffectError> {
    let paid = payment.currency.as_deref().unwrap_or(CURRENCY);
    for event in events {
        let currency = match &event.about {
            EventContent::Refund(back) | EventContent::Dispute(back) => &back.currency,
            EventContent::RefundState(refund) => &refund.currency,
            EventContent::CreditNote(note) => &note.currency,
            _ => continue,
        };
        if let Some(other) = currency.as_deref()
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
