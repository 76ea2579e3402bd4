//! The processor's events: weir stores each event before it acknowledges it, and applies it once, even if it arrives
//! repeatedly or at several nodes.
//!
//! Every node searches for due events, new ones first, and applies up to 16 at once. The events of one user are applied
//! one at a time, by the node that has the user's turn. A turn is a lease. A failed event is retried after a pause that
//! grows from a second to an hour. An error of one event, also a database error, delays no other event. After 72 hours
//! an event is `failed` and no longer retried, unless an operator retries it.
//!
//! **Invariant:** weir acknowledges an event only after it has stored it.
//! **Invariant:** a turn ends later than all work in it.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout_at};
use weir_ledger::AccountId;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_telemetry::spans::Span;

use crate::arrivals::wait_for;
use crate::effects::store as effects_store;
use crate::effects::{self, EffectError, EventEffect, UserLease};
use crate::event_store::{self, DueEvents, EventState, FailedAttempt, StoredPaymentEvent};
use crate::events::{EventContent, PaymentEvent};
use crate::keyed_tasks::KeyedTasks;
use crate::payments::Payments;
use crate::spans;
use crate::store as customers;

/// Maximum delay of an acknowledgement, in which weir tries to apply the event.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two searches for due events.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The same pause, while another node has the turn of a user with a due event.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Tasks that retries leave free, so a new event does not wait for a slow retry.
const KEPT_FOR_NEW: usize = 4;

/// Time limit of one attempt to apply an event.
const APPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Length of a turn.
const TURN: Duration = Duration::from_secs(30);

/// The first and the longest pause before a retry, in milliseconds.
const PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 3_600_000;

/// Time after which retries stop, in milliseconds: 72 hours.
const GIVEN_UP_AFTER_MS: i64 = 72 * 3_600_000;

/// Maximum length of a stored error, in characters.
const ERROR_CHARACTERS: usize = 500;

/// Stores an event and waits a short time until it is applied. `link_trace` links the span of the event with the
/// request.
pub async fn receive(
    payments: &Payments,
    event: &PaymentEvent,
    link_trace: impl FnOnce(&mut Span) + Send,
) -> sqlx::Result<()> {
    let since = SystemTime::now();
    let database = &payments.database;
    let arrivals = &payments.arrivals;
    let user_id = find_user(database, event).await?;
    let tried = arrivals.listen();
    if !event_store::keep(database, event, user_id.as_deref(), payments.ledger.now()).await? {
        tracing::debug!(event = event.id, "an event of payments has come again");
        return Ok(());
    }
    tracing::info!(
        event = event.id,
        kind = event.name,
        user = user_id,
        "an event of payments has come"
    );
    spans::received(&payments.tracer, event, since, link_trace);
    if event.about != EventContent::Unknown {
        arrivals.tell_come();
        wait_for(tried, &event.id, PATIENCE).await;
    }
    Ok(())
}

/// Applies due events until the future is dropped. The future can be dropped at any time, like a crash.
pub async fn run(payments: &Payments) {
    let mut under_way = KeyedTasks::default();
    loop {
        if let Err(error) = start_due(payments, &mut under_way).await {
            tracing::warn!(%error, "looking for events of payments");
        }
        tokio::select! {
            () = under_way.ended() => {}
            () = payments.arrivals.wait_for_more(LOOK_EVERY) => {}
        }
    }
}

/// Starts tasks for due events, new events before retries, until all tasks are taken.
async fn start_due(payments: &Payments, under_way: &mut KeyedTasks) -> sqlx::Result<()> {
    for (which, kept_free) in [(DueEvents::New, 0), (DueEvents::Retries, KEPT_FOR_NEW)] {
        loop {
            let free = under_way.free().saturating_sub(kept_free);
            if free == 0 {
                break;
            }
            // Each search leaves out users with a running task. Otherwise a backlog of one user would hide the events
            // of others.
            let now = payments.ledger.now();
            let due =
                event_store::due(&payments.database, which, now, under_way.keys(), free).await?;
            let mut has_started = false;
            for event in due {
                let (payments, whose) = (payments.clone(), event.whose().to_owned());
                has_started |=
                    under_way.start(&whose, async move { handle(&payments, &event).await });
            }
            if !has_started {
                break;
            }
        }
    }
    Ok(())
}

/// Tries to apply a due event. An error concerns only this event.
async fn handle(payments: &Payments, kept: &StoredPaymentEvent) {
    let error = match attempt(payments, kept).await {
        Ok(true) => return,
        // Another node applies an event of the same user.
        Ok(false) => return sleep(LOOK_AGAIN).await,
        Err(error) => error,
    };
    let why = format!("the database: {error}");
    if let Err(error) = put_off(payments, kept, None, EventState::Failed, &why).await {
        tracing::warn!(event = kept.id, %error, "an event of payments cannot be put off");
        // The event is still due.
        sleep(LOOK_EVERY).await;
    }
}

/// Tries to apply a due event. Returns whether the turn of its user was free.
async fn attempt(payments: &Payments, kept: &StoredPaymentEvent) -> sqlx::Result<bool> {
    let database = &payments.database;
    let Some(event) = &kept.event else {
        let why = "this version of weir cannot read it";
        put_off(payments, kept, None, EventState::Failed, why).await?;
        return Ok(true);
    };
    let user_id = match &kept.user_id {
        Some(user_id) => Some(user_id.clone()),
        None => find_user(database, event).await?,
    };
    let Some(user_id) = user_id else {
        let why = "it is not known whom it is about";
        put_off(payments, kept, None, EventState::Waiting, why).await?;
        // The user may have been linked after the first search, and that link found no waiting event.
        if find_user(database, event).await?.is_some() {
            event_store::wake(database, &kept.id, payments.ledger.now()).await?;
            payments.arrivals.tell_come();
        }
        return Ok(true);
    };
    // The clock starts before the lease: if taking the lease is slow, the turn of this node ends earlier than the
    // lease.
    let ends = Instant::now() + APPLY_TIMEOUT;
    let (now, holder) = (payments.ledger.now(), payments.ledger.boot_id().as_str());
    let until = Millis(now.0 + TURN.as_millis() as i64);
    if !event_store::take_turn(database, &user_id, holder, now, until).await? {
        return Ok(false);
    }
    let outcome = apply_if_open(payments, kept, event, &user_id, ends).await;
    if let Err(error) = event_store::give_back_turn(database, &user_id, holder).await {
        tracing::warn!(user = user_id, %error, "a turn ends by itself only");
    }
    outcome.map(|()| true)
}

/// Applies an event, unless another node has applied it since it was read.
async fn apply_if_open(
    payments: &Payments,
    kept: &StoredPaymentEvent,
    event: &PaymentEvent,
    user_id: &str,
    ends: Instant,
) -> sqlx::Result<()> {
    let current = event_store::find(&payments.database, &kept.id).await?;
    match current.is_some_and(|current| current.applied_at.is_none()) {
        true => apply(payments, kept, event, user_id, ends).await,
        false => Ok(()),
    }
}

async fn apply(
    payments: &Payments,
    kept: &StoredPaymentEvent,
    event: &PaymentEvent,
    user_id: &str,
    ends: Instant,
) -> sqlx::Result<()> {
    let turn = UserLease {
        payments,
        account: AccountId(user_id.to_owned()),
        ends,
    };
    let span = spans::begin_attempt(&payments.tracer, kept);
    let (state, why) = match timeout_at(ends, effects::apply(&turn, event)).await {
        Ok(Ok(applied)) => {
            let (state, outcome) = match applied {
                EventEffect::Done(outcome) => (EventState::Applied, outcome),
                EventEffect::Ignored(why) => (EventState::Ignored, why.to_owned()),
            };
            let now = payments.ledger.now();
            event_store::end(&payments.database, &kept.id, user_id, state, &outcome, now).await?;
            payments.metrics.count_attempt(state.name());
            spans::end_attempt(span, state);
            tracing::info!(
                event = kept.id,
                kind = kept.name,
                user = user_id,
                outcome,
                "an event of payments is applied"
            );
            payments.arrivals.tell_tried(&kept.id);
            return Ok(());
        }
        Ok(Err(EffectError::UnknownPayment)) => {
            (EventState::Waiting, EffectError::UnknownPayment.to_string())
        }
        Ok(Err(error)) => (EventState::Failed, error.to_string()),
        Err(_) => (EventState::Failed, "it took too long".to_owned()),
    };
    spans::end_attempt(span, state);
    put_off(payments, kept, Some(user_id), state, &why).await
}

/// Schedules a retry after a pause, or stops retries after 72 hours.
async fn put_off(
    payments: &Payments,
    kept: &StoredPaymentEvent,
    user_id: Option<&str>,
    state: EventState,
    why: &str,
) -> sqlx::Result<()> {
    let now = payments.ledger.now();
    let is_given_up = now.0 - kept.tried_since.0 >= GIVEN_UP_AFTER_MS;
    let state = if is_given_up {
        EventState::Failed
    } else {
        state
    };
    let attempts = kept.attempts + 1;
    let error: String = why.chars().take(ERROR_CHARACTERS).collect();
    let trouble = FailedAttempt {
        state,
        error: &error,
        attempts,
        next_attempt_at: (!is_given_up).then(|| Millis(now.0 + pause_ms(kept.attempts))),
    };
    let is_open = event_store::put_off(&payments.database, &kept.id, user_id, &trouble).await?;
    if is_open && is_given_up {
        tracing::error!(
            event = kept.id,
            kind = kept.name,
            user = user_id,
            attempts,
            error = why,
            "an event of payments could not be applied for 72 hours and is no longer retried; `weir payments retry` retries it"
        );
    } else if is_open && state == EventState::Failed {
        tracing::warn!(
            event = kept.id,
            kind = kept.name,
            user = user_id,
            attempts,
            error = why,
            "an event of payments cannot be applied"
        );
    }
    payments.metrics.count_attempt(match is_given_up {
        true => "given_up",
        false => state.name(),
    });
    payments.arrivals.tell_tried(&kept.id);
    Ok(())
}

/// Pause after this number of failed attempts: 1 s, 2 s, 4 s … an hour.
fn pause_ms(attempts: i64) -> i64 {
    let doublings = attempts.clamp(0, 12);
    (PAUSE_MS << doublings).min(LONGEST_PAUSE_MS)
}

/// Finds the user of an event: by the user id that weir sent to the processor, or else by the customer, the
/// subscription or the payment. An email address never identifies a user, because anybody can type one in.
async fn find_user(database: &Database, event: &PaymentEvent) -> sqlx::Result<Option<String>> {
    if let Some(named) = &event.user_id
        && effects_store::is_user(database, named).await?
    {
        return Ok(Some(named.clone()));
    }
    if let Some(customer) = &event.customer
        && let Some(user_id) = customers::user_of_customer(database, customer).await?
    {
        return Ok(Some(user_id));
    }
    match event.subject() {
        Some(subject) => effects_store::user_of_subject(database, subject).await,
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_a_second_to_an_hour() {
        let pauses = [0, 1, 2, 11, 12, 1_000].map(pause_ms);
        assert_eq!(
            pauses,
            [1_000, 2_000, 4_000, 2_048_000, 3_600_000, 3_600_000]
        );
    }
}
