//! Auto top-up: whoever wants it has a tier of credits bought when few are left.
//!
//! The ledger notes since when an account is low, in the transaction that makes it so. Nodes look for such accounts, and
//! whoever is first writes a charge down; then the processor is asked, under the charge's id as idempotency key. Where a node
//! is gone before it is known what became of a charge, another one asks the processor for it, and only then once more under
//! the same key.
//!
//! An account that owes, or whose user is disabled, is never charged: a charge begins only for one that may be, as of the
//! transaction that writes it down, and a charge that was taken over asks again.
//!
//! **Invariant:** of one user, at most [`MOST_A_DAY`] charges are begun within 24 hours, none for [`COOLDOWN`] after one that
//! failed, and never one while another is open: a unique index says so, and the row of the user's wish is locked meanwhile.
//! **Invariant:** a charge is written down before the processor is asked, and its credits are in the ledger before it is
//! noted as done. So a crash in between loses neither, and the payment's id credits once, whoever comes first: this, or the
//! processor's event.

pub mod routes;
pub mod store;

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};
use weir_ledger::{AccountId, Action, Credits, LedgerError, OperationId, Plan, Refusal, TopUp};
use weir_storage::clock::Millis;

use self::store::{Claimed, Ended, FoundCharge, cool_down, end_charge};
use super::effects::store::{Payment, PaymentKind};
use super::effects::{COOLDOWN, note_payment};
use super::keyed_tasks::KeyedTasks;
use super::notices::{self, Notice, NoticeKind};
use super::offers::{CURRENCY, Item, Offer};
use super::terms::{CardCharge, PaymentIntent, PaymentStatus, ProcessorError};
use crate::app::App;
use crate::billing;

/// Charges of a user that are begun within 24 hours.
pub const MOST_A_DAY: i64 = 3;

/// The most that the default threshold is.
const MAX_DEFAULT_THRESHOLD: Credits = Credits::whole(500);

/// The part of a plan's monthly credits that the default threshold is, as a divisor.
const DEFAULT_THRESHOLD_PART: i64 = 5;

/// How late a user may be told that an account has become low.
const TELL_WITHIN: Duration = Duration::from_secs(24 * 3_600);

/// How often accounts are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a node that is there has for a charge before others take it up; longer than the processor and the ledger are
/// waited for.
const CLAIM: Duration = Duration::from_secs(120);

/// How long a charge of which nothing is known is left alone, and the longest such pause.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The processor forgets idempotency keys after 24 hours. From here on it is only asked what became of a charge.
const KEY_KEPT: Duration = Duration::from_secs(20 * 3_600);

/// What the processor's clock may be behind.
const CLOCKS_DIFFER: Duration = Duration::from_secs(600);

/// From here on a charge that the processor does not know was never made.
const GIVEN_UP: Duration = Duration::from_secs(48 * 3_600);

/// How long is waited until credits are in the ledger.
const CREDIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The threshold of users who have named none: a fifth of their plan's monthly credits, and at most 500.
pub fn default_threshold(plan: Plan) -> Credits {
    let part = plan.monthly_credits().micro() / DEFAULT_THRESHOLD_PART;
    Credits::from_micro(part).min(MAX_DEFAULT_THRESHOLD)
}

/// Has credits bought for as long as it is polled: for several users at once, and one charge of a user's at a time. It may
/// be dropped at any moment, as a crash may come at any.
pub async fn run(app: &App) {
    let mut under_way = KeyedTasks::default();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = under_way.ended() => continue,
        }
        if let Err(error) = look(app, &mut under_way).await {
            tracing::warn!(%error, "looking for accounts that are low");
        }
    }
}

async fn look(app: &App, under_way: &mut KeyedTasks) -> sqlx::Result<()> {
    let now = app.ledger.now();
    let low = store::find_low(&app.database, now).await?;
    // Of these, too: what is bought for them makes them low no more.
    tell_who_is_low(app, now).await?;
    for charge in store::find_open(&app.database, now).await? {
        let app = app.clone();
        under_way.start(&charge.user_id.clone(), async move {
            if let Err(error) = take_over(&app, &charge).await {
                tracing::warn!(user = charge.user_id, %error, "a charge is taken over later");
            }
        });
    }
    for user_id in low {
        let app = app.clone();
        under_way.start(&user_id.clone(), async move {
            if let Err(error) = buy(&app, &user_id).await {
                tracing::warn!(user = user_id, %error, "credits are bought later");
            }
        });
    }
    Ok(())
}

/// Begins a charge for a user whose account is low, and has it come to an end.
async fn buy(app: &App, user_id: &str) -> sqlx::Result<()> {
    let (now, boot_id) = (app.ledger.now(), app.ledger.boot_id());
    let begun = store::begin(&app.database, user_id, boot_id, now, after(now, CLAIM)).await?;
    match begun {
        Some(charge) => conclude(app, &charge, now).await,
        None => Ok(()),
    }
}

/// Has a charge come to an end that nobody is at.
async fn take_over(app: &App, charge: &FoundCharge) -> sqlx::Result<()> {
    let (now, boot_id) = (app.ledger.now(), app.ledger.boot_id());
    let claimed = store::claim(&app.database, charge, boot_id, after(now, CLAIM)).await?;
    match claimed {
        Some(charge) => conclude(app, &charge, now).await,
        None => Ok(()),
    }
}

/// Once for each time that an account has become low.
async fn tell_who_is_low(app: &App, now: Millis) -> sqlx::Result<()> {
    let since = Millis(now.0 - TELL_WITHIN.as_millis() as i64);
    for low in store::find_untold(&app.database, since).await? {
        let about = format!("{}:{}", low.user_id, low.since.0);
        let data =
            json!({ "credits": low.credits, "threshold": low.threshold, "auto_topup": low.buys });
        let notice = Notice::new(NoticeKind::LowBalance, &low.user_id, &about, data);
        notices::put(&app.database, &notice, now).await?;
    }
    Ok(())
}

/// Has a card charged for a charge that this node has claimed, and brings the credits.
async fn conclude(app: &App, charge: &Claimed, now: Millis) -> sqlx::Result<()> {
    let Some(offer) = app.payments.settings.offer(Item::TopUp(charge.tier)) else {
        return postpone(app, charge, "its tier is not sold", now).await;
    };
    match ask(app, charge, &offer, now).await {
        Ok(Some(payment)) => match payment.status {
            PaymentStatus::Succeeded => credit(app, charge, &payment.id, &offer, now).await,
            PaymentStatus::Processing => postpone(app, charge, "it is being processed", now).await,
            PaymentStatus::Failed => {
                let why = payment.error.unwrap_or_else(|| "failed".to_owned());
                fail(app, charge, &why, now).await
            }
        },
        Ok(None) => end(app, charge, &Ended::Abandoned, now).await.map(drop),
        Err(ProcessorError::Refused { code, .. }) => fail(app, charge, &code, now).await,
        Err(error) => postpone(app, charge, &error.to_string(), now).await,
    }
}

/// What has become of a charge; `None` if it was never made, and never will be.
async fn ask(
    app: &App,
    charge: &Claimed,
    offer: &Offer,
    now: Millis,
) -> Result<Option<PaymentIntent>, ProcessorError> {
    let processor = &app.payments.processor;
    let age = Duration::from_millis((now.0 - charge.created_at.0).max(0).unsigned_abs());
    if charge.attempts > 1 {
        // Whoever was at it before may have been told that it is paid, or was about to be.
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
        let may_be_charged = store::may_be_charged(&app.database, &charge.user_id).await;
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

/// Credits first, then the note that it is done: done again, the first changes nothing.
async fn credit(
    app: &App,
    charge: &Claimed,
    payment_id: &str,
    offer: &Offer,
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
        paid_at: now,
        refunded: 0,
        refunding: None,
    };
    let top_up = Action::TopUp(TopUp {
        id: OperationId(format!("topup:{payment_id}")),
        credits,
        within: None,
    });
    let deadline = Instant::now() + CREDIT_TIMEOUT;
    match app.ledger.submit(&account, top_up, deadline).await {
        Ok(_) => {}
        // A defect that asking again does not mend; an operator reads of it.
        Err(error @ (LedgerError::Refused(Refusal::Conflict) | LedgerError::Rejected(_))) => {
            tracing::error!(%error, payment_id, "the ledger does not take a payment's credits");
        }
        Err(error) => return postpone(app, charge, &error.to_string(), now).await,
    }
    // What a refund takes back; one may wait for it.
    note_payment(app, &payment).await?;
    billing::usage::forget(&app.cache, &account).await;
    let done = NoticeKind::AutoTopUpDone;
    let data = json!({ "tier": charge.tier.name(), "credits": credits, "payment_id": payment_id });
    let notice = Notice::new(done, &charge.user_id, &charge.id, data);
    notices::put(&app.database, &notice, now).await?;
    let ended = Ended::Succeeded { payment_id };
    if end(app, charge, &ended, now).await? {
        tracing::info!(
            user = charge.user_id,
            tier = charge.tier.name(),
            "credits were bought"
        );
    }
    Ok(())
}

async fn fail(app: &App, charge: &Claimed, why: &str, now: Millis) -> sqlx::Result<()> {
    let failed = NoticeKind::AutoTopUpFailed;
    let data = json!({ "tier": charge.tier.name(), "error": why });
    let notice = Notice::new(failed, &charge.user_id, &charge.id, data);
    notices::put(&app.database, &notice, now).await?;
    cool_down(&app.database, &charge.user_id, after(now, COOLDOWN)).await?;
    let ended = Ended::Failed {
        why,
        payment_id: None,
    };
    if end(app, charge, &ended, now).await? {
        tracing::info!(user = charge.user_id, why, "credits could not be bought");
    }
    Ok(())
}

async fn end(app: &App, charge: &Claimed, ended: &Ended<'_>, now: Millis) -> sqlx::Result<bool> {
    end_charge(&app.database, &charge.id, &charge.user_id, ended, now).await
}

/// Has it be taken up again after a pause, by whichever node is first.
async fn postpone(app: &App, charge: &Claimed, why: &str, now: Millis) -> sqlx::Result<()> {
    let exponent = u32::try_from(charge.attempts - 1).unwrap_or(0).min(10);
    let pause = (FIRST_PAUSE * 2_u32.pow(exponent)).min(LONGEST_PAUSE);
    tracing::warn!(
        user = charge.user_id,
        charge = charge.id,
        why,
        "a charge is looked at again later"
    );
    store::postpone(&app.database, charge, after(now, pause), why).await
}

fn after(now: Millis, pause: Duration) -> Millis {
    Millis(now.0 + pause.as_millis() as i64)
}
