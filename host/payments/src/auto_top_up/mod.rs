//! Auto top-up: weir buys a tier of credits if the balance of a user is low and the user wants that.
//!
//! The ledger stores the time at which a balance became low, in the transaction that lowers it. Nodes look for such
//! accounts. The first node stores a charge, then asks the processor for it, with the id of the charge as idempotency
//! key. If a node stops before the result is known, another node first asks the processor for the result, and only then
//! repeats the request with the same key.
//!
//! weir never charges an account that owes credits, or a disabled user. The transaction that stores the charge checks
//! this; a node that takes a charge over checks it again.
//!
//! **Invariant:** a user has at most [`MOST_A_DAY`](charges::MOST_A_DAY) charges within 24 hours, no charge for
//! [`COOLDOWN`] after a failed charge, and at most one open charge. A unique index and a lock on the user's row enforce
//! this.
//! **Invariant:** weir stores a charge before it asks the processor, and gives the credits before it marks the charge
//! as done. A crash in between loses neither, and the id of the payment gives credits once: with this charge, or with
//! the processor's event.

pub mod preferences;

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};
use weir_ledger::{AccountId, Action, Credits, LedgerError, LedgerRefusal, OperationId, TopUp};
use weir_storage::clock::Millis;

use crate::charges::{self, ChargeEnd, ClaimedCharge, FoundCharge, cool_down, end_charge};
use crate::effects::store::{Payment, PaymentKind};
use crate::effects::{COOLDOWN, note_payment};
use crate::keyed_tasks::KeyedTasks;
use crate::notices::{self, NoticeKind, UserNotice};
use crate::offers::{CURRENCY, ItemPrice, PurchaseItem};
use crate::payments::Payments;
use crate::terms::{CardCharge, PaymentIntent, PaymentStatus, ProcessorError};

/// A notice of a low balance is sent within this time or not at all.
const TELL_WITHIN: Duration = Duration::from_secs(24 * 3_600);

/// Pause between two searches for accounts.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Claim of a node on a charge: longer than the time limits of the processor and the ledger together.
const CLAIM: Duration = Duration::from_secs(120);

/// The first and the longest pause before a charge with an unknown result is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Age at which weir stops to repeat a charge: the processor forgets idempotency keys after 24 hours.
const KEY_KEPT: Duration = Duration::from_secs(20 * 3_600);

/// Tolerance for a slow clock of the processor.
const CLOCKS_DIFFER: Duration = Duration::from_secs(600);

/// Age at which weir abandons a charge that the processor does not know.
const GIVEN_UP: Duration = Duration::from_secs(48 * 3_600);

/// Time limit of one operation of the ledger.
const CREDIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs auto top-up until the future is dropped: for several users at once, with one charge per user at a time. The
/// future can be dropped at any time, like a crash.
pub async fn run(payments: &Payments) {
    let mut under_way = KeyedTasks::default();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = under_way.ended() => continue,
        }
        if let Err(error) = look(payments, &mut under_way).await {
            tracing::warn!(%error, "looking for accounts that are low");
        }
    }
}

async fn look(payments: &Payments, under_way: &mut KeyedTasks) -> sqlx::Result<()> {
    let now = payments.ledger.now();
    let low = charges::find_low(&payments.database, now).await?;
    // Notices come before purchases: a purchase ends the low balance.
    tell_who_is_low(payments, now).await?;
    for charge in charges::find_open(&payments.database, now).await? {
        let payments = payments.clone();
        under_way.start(&charge.user_id.clone(), async move {
            if let Err(error) = take_over(&payments, &charge).await {
                tracing::warn!(user = charge.user_id, %error, "a charge is taken over later");
            }
        });
    }
    for user_id in low {
        let payments = payments.clone();
        under_way.start(&user_id.clone(), async move {
            if let Err(error) = buy(&payments, &user_id).await {
                tracing::warn!(user = user_id, %error, "credits are bought later");
            }
        });
    }
    Ok(())
}

/// Begins a charge for a user with a low balance, and completes it.
async fn buy(payments: &Payments, user_id: &str) -> sqlx::Result<()> {
    let (now, boot_id) = (payments.ledger.now(), payments.ledger.boot_id());
    let begun =
        charges::begin(&payments.database, user_id, boot_id, now, after(now, CLAIM)).await?;
    match begun {
        Some(charge) => conclude(payments, &charge, now).await,
        None => Ok(()),
    }
}

/// Completes an open charge of another node.
async fn take_over(payments: &Payments, charge: &FoundCharge) -> sqlx::Result<()> {
    let (now, boot_id) = (payments.ledger.now(), payments.ledger.boot_id());
    let claimed = charges::claim(&payments.database, charge, boot_id, after(now, CLAIM)).await?;
    match claimed {
        Some(charge) => conclude(payments, &charge, now).await,
        None => Ok(()),
    }
}

/// Stores one notice for each time that a balance became low.
async fn tell_who_is_low(payments: &Payments, now: Millis) -> sqlx::Result<()> {
    let since = Millis(now.0 - TELL_WITHIN.as_millis() as i64);
    for low in charges::find_untold(&payments.database, since).await? {
        let about = format!("{}:{}", low.user_id, low.since.0);
        let data =
            json!({ "credits": low.credits, "threshold": low.threshold, "auto_topup": low.buys });
        let notice = UserNotice::new(NoticeKind::LowBalance, &low.user_id, &about, data);
        notices::put(&payments.database, &notice, now).await?;
    }
    Ok(())
}

/// Completes a charge of this node: charges the card and gives the credits.
async fn conclude(payments: &Payments, charge: &ClaimedCharge, now: Millis) -> sqlx::Result<()> {
    let Some(offer) = payments.settings.offer(PurchaseItem::TopUp(charge.tier)) else {
        return postpone(payments, charge, "its tier is not sold", now).await;
    };
    match ask(payments, charge, &offer, now).await {
        Ok(Some(payment)) => match payment.status {
            PaymentStatus::Succeeded => credit(payments, charge, &payment.id, &offer, now).await,
            PaymentStatus::Processing => {
                postpone(payments, charge, "it is being processed", now).await
            }
            PaymentStatus::Failed => {
                let why = payment.error.unwrap_or_else(|| "failed".to_owned());
                fail(payments, charge, &why, now).await
            }
        },
        Ok(None) => end(payments, charge, &ChargeEnd::Abandoned, now)
            .await
            .map(drop),
        Err(ProcessorError::Refused { code, .. }) => fail(payments, charge, &code, now).await,
        Err(error) => postpone(payments, charge, &error.to_string(), now).await,
    }
}

/// Finds the result of a charge; `None` if the processor never made it and never will.
async fn ask(
    payments: &Payments,
    charge: &ClaimedCharge,
    offer: &ItemPrice,
    now: Millis,
) -> Result<Option<PaymentIntent>, ProcessorError> {
    let processor = &payments.processor;
    let age = Duration::from_millis((now.0 - charge.created_at.0).max(0).unsigned_abs());
    if charge.attempts > 1 {
        // The previous node may have received a successful response, or may have been about to.
        let since = Millis(charge.created_at.0 - CLOCKS_DIFFER.as_millis() as i64);
        let found = processor
            .find_payment(&charge.customer_id, &charge.id, since)
            .await?;
        if found.is_some() || age >= GIVEN_UP {
            return Ok(found);
        }
        if age >= KEY_KEPT {
            return Err(ProcessorError::unavailable("the charge is not known yet"));
        }
        let may_be_charged = charges::may_be_charged(&payments.database, &charge.user_id).await;
        if !may_be_charged.unwrap_or(false) {
            let why = "the account owes, or its user is disabled, or the database does not say";
            return Err(ProcessorError::unavailable(why));
        }
    }
    let asked = CardCharge {
        id: &charge.id,
        user_id: &charge.user_id,
        customer_id: &charge.customer_id,
        tier: charge.tier,
        price_cents: offer.price_cents,
    };
    processor.charge(&asked).await.map(Some)
}

/// The credits come before the mark: a repeat of the credits changes nothing.
async fn credit(
    payments: &Payments,
    charge: &ClaimedCharge,
    payment_id: &str,
    offer: &ItemPrice,
    now: Millis,
) -> sqlx::Result<()> {
    let account = AccountId(charge.user_id.clone());
    let credits = charge.tier.credits();
    let payment = Payment {
        id: payment_id.to_owned(),
        user_id: charge.user_id.clone(),
        kind: PaymentKind::AutoTopUp,
        credits,
        amount: offer.price_cents.into(),
        currency: Some(CURRENCY.to_owned()),
        period: None,
        invoice: None,
        subscription: None,
        paid_at: now,
        refunded: 0,
        refunding: None,
        taken: Credits::ZERO,
        returns: 0,
    };
    let top_up = Action::TopUp(TopUp {
        id: OperationId(format!("topup:{payment_id}")),
        credits,
        within: None,
    });
    let deadline = Instant::now() + CREDIT_TIMEOUT;
    match payments.ledger.submit(&account, top_up, deadline).await {
        Ok(_) => {}
        // A retry does not repair this defect. The error log tells an operator.
        Err(error @ (LedgerError::Refused(LedgerRefusal::Conflict) | LedgerError::Rejected(_))) => {
            tracing::error!(%error, payment_id, "the ledger does not take a payment's credits");
        }
        Err(error) => return postpone(payments, charge, &error.to_string(), now).await,
    }
    // A refund needs the stored payment, and may already wait for it.
    note_payment(payments, &payment).await?;
    payments.drop_summary(&account).await;
    let done = NoticeKind::AutoTopUpDone;
    let data = json!({ "tier": charge.tier.name(), "credits": credits, "payment_id": payment_id });
    let notice = UserNotice::new(done, &charge.user_id, &charge.id, data);
    notices::put(&payments.database, &notice, now).await?;
    let ended = ChargeEnd::Succeeded { payment_id };
    if end(payments, charge, &ended, now).await? {
        tracing::info!(
            user = charge.user_id,
            tier = charge.tier.name(),
            "credits were bought"
        );
    }
    Ok(())
}

async fn fail(
    payments: &Payments,
    charge: &ClaimedCharge,
    why: &str,
    now: Millis,
) -> sqlx::Result<()> {
    let failed = NoticeKind::AutoTopUpFailed;
    let data = json!({ "tier": charge.tier.name(), "error": why });
    let notice = UserNotice::new(failed, &charge.user_id, &charge.id, data);
    notices::put(&payments.database, &notice, now).await?;
    cool_down(&payments.database, &charge.user_id, after(now, COOLDOWN)).await?;
    let ended = ChargeEnd::Failed {
        why,
        payment_id: None,
    };
    if end(payments, charge, &ended, now).await? {
        tracing::info!(user = charge.user_id, why, "credits could not be bought");
    }
    Ok(())
}

async fn end(
    payments: &Payments,
    charge: &ClaimedCharge,
    ended: &ChargeEnd<'_>,
    now: Millis,
) -> sqlx::Result<bool> {
    end_charge(&payments.database, &charge.id, &charge.user_id, ended, now).await
}

/// Releases a charge until a pause is over. The first node to claim it then continues.
async fn postpone(
    payments: &Payments,
    charge: &ClaimedCharge,
    why: &str,
    now: Millis,
) -> sqlx::Result<()> {
    let exponent = u32::try_from(charge.attempts - 1).unwrap_or(0).min(10);
    let pause = (FIRST_PAUSE * 2_u32.pow(exponent)).min(LONGEST_PAUSE);
    tracing::warn!(
        user = charge.user_id,
        charge = charge.id,
        why,
        "a charge is looked at again later"
    );
    charges::postpone(&payments.database, charge, after(now, pause), why).await
}

fn after(now: Millis, pause: Duration) -> Millis {
    Millis(now.0 + pause.as_millis() as i64)
}
