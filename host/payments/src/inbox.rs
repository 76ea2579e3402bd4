//! The processor's events: kept before they are acknowledged, then applied, each once, however often and wherever they
//! come.
//!
//! Every node looks for events that are due, new ones first, and applies up to 16 at once. Of one user's events, one is
//! applied at a time, by the node that has the user's turn, which is a lease. An event that fails is retried after a pause
//! that grows from a second to an hour. An error of one event, of the database too, holds up no other event. After 72 hours
//! an event is `failed` and no longer retried, unless an operator asks for it.
//!
//! **Invariant:** an event is acknowledged when it is kept, and not before.
//! **Invariant:** a turn ends later than everything that is done in it.

pub mod store;

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout_at};
use weir_ledger::AccountId;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_telemetry::spans::Span;

use self::store::{DueEvents, EventState, KeptEvent, Trouble};
use crate::arrivals::wait_for;
use crate::effects::store as effects_store;
use crate::effects::{self, Applied, EffectError, Turn};
use crate::events::{About, PaymentEvent};
use crate::keyed_tasks::KeyedTasks;
use crate::payments::Payments;
use crate::spans;

/// How long whoever brings an event waits until it is applied, before it is acknowledged all the same.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often events are looked for that nobody has told of.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The same while another node has the turn of a user whose event is due.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Places that retries leave free, so that a new event need not wait for a retry to time out.
const KEPT_FOR_NEW: usize = 4;

/// How long applying an event may take.
const APPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a turn is nobody else's.
const TURN: Duration = Duration::from_secs(30);

/// The first pause before an event is tried again, and the longest, in milliseconds.
const PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 3_600_000;

/// How long an event is retried, in milliseconds: 72 hours.
const GIVEN_UP_AFTER_MS: i64 = 72 * 3_600_000;

/// Characters of an error that is kept.
const ERROR_CHARACTERS: usize = 500;

/// Keeps an event, and has it applied. When this returns, it is kept, and as a rule applied.
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
    if !store::keep(database, event, user_id.as_deref(), payments.ledger.now()).await? {
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
    if event.about != About::Unknown {
        arrivals.tell_come();
        wait_for(tried, &event.id, PATIENCE).await;
    }
    Ok(())
}

/// Applies events that are due, for as long as it is polled. It may be dropped at any moment, as a crash may come at any.
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

/// Begins to apply what is due, new events before retries, as far as there are places.
async fn start_due(payments: &Payments, under_way: &mut KeyedTasks) -> sqlx::Result<()> {
    for (which, kept_free) in [(DueEvents::New, 0), (DueEvents::Retries, KEPT_FOR_NEW)] {
        loop {
            let free = under_way.free().saturating_sub(kept_free);
            if free == 0 {
                break;
            }
            // Each look leaves out those whose events are under way, so that one user's backlog hides nobody else's.
            let now = payments.ledger.now();
            let due = store::due(&payments.database, which, now, under_way.keys(), free).await?;
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

/// Tries to apply an event that is due. An error is this event's alone.
async fn handle(payments: &Payments, kept: &KeptEvent) {
    let error = match attempt(payments, kept).await {
        Ok(true) => return,
        // Another node applies an event of the same user.
        Ok(false) => return sleep(LOOK_AGAIN).await,
        Err(error) => error,
    };
    let why = format!("the database: {error}");
    if let Err(error) = put_off(payments, kept, None, EventState::Failed, &why).await {
        tracing::warn!(event = kept.id, %error, "an event of payments cannot be put off");
        // It is due still.
        sleep(LOOK_EVERY).await;
    }
}

/// Tries to apply an event that is due. Returns whether the turn of its user was free.
async fn attempt(payments: &Payments, kept: &KeptEvent) -> sqlx::Result<bool> {
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
        // Whoever has linked them meanwhile may have found nothing that waits.
        if find_user(database, event).await?.is_some() {
            store::wake(database, &kept.id, payments.ledger.now()).await?;
            payments.arrivals.tell_come();
        }
        return Ok(true);
    };
    // The clock first: a turn that is held up is over for this node before it is for others.
    let ends = Instant::now() + APPLY_TIMEOUT;
    let (now, holder) = (payments.ledger.now(), payments.ledger.boot_id().as_str());
    let until = Millis(now.0 + TURN.as_millis() as i64);
    if !store::take_turn(database, &user_id, holder, now, until).await? {
        return Ok(false);
    }
    let outcome = apply_if_open(payments, kept, event, &user_id, ends).await;
    if let Err(error) = store::give_back_turn(database, &user_id, holder).await {
        tracing::warn!(user = user_id, %error, "a turn ends by itself only");
    }
    outcome.map(|()| true)
}

/// Applies an event, unless another node has since it was read.
async fn apply_if_open(
    payments: &Payments,
    kept: &KeptEvent,
    event: &PaymentEvent,
    user_id: &str,
    ends: Instant,
) -> sqlx::Result<()> {
    let current = store::find(&payments.database, &kept.id).await?;
    match current.is_some_and(|current| current.applied_at.is_none()) {
        true => apply(payments, kept, event, user_id, ends).await,
        false => Ok(()),
    }
}

async fn apply(
    payments: &Payments,
    kept: &KeptEvent,
    event: &PaymentEvent,
    user_id: &str,
    ends: Instant,
) -> sqlx::Result<()> {
    let turn = Turn {
        payments,
        account: AccountId(user_id.to_owned()),
        ends,
    };
    let span = spans::begin_attempt(&payments.tracer, kept);
    let (state, why) = match timeout_at(ends, effects::apply(&turn, event)).await {
        Ok(Ok(applied)) => {
            let (state, outcome) = match applied {
                Applied::Done(outcome) => (EventState::Applied, outcome),
                Applied::Ignored(why) => (EventState::Ignored, why.to_owned()),
            };
            let now = payments.ledger.now();
            store::end(&payments.database, &kept.id, user_id, state, &outcome, now).await?;
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

/// Has an event be retried after a pause, or no more after 72 hours.
async fn put_off(
    payments: &Payments,
    kept: &KeptEvent,
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
    let trouble = Trouble {
        state,
        error: &error,
        attempts,
        next_attempt_at: (!is_given_up).then(|| Millis(now.0 + pause_ms(kept.attempts))),
    };
    let is_open = store::put_off(&payments.database, &kept.id, user_id, &trouble).await?;
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

/// How long to wait after so many attempts before: 1 s, 2 s, 4 s … an hour.
fn pause_ms(attempts: i64) -> i64 {
    let doublings = attempts.clamp(0, 12);
    (PAUSE_MS << doublings).min(LONGEST_PAUSE_MS)
}

/// The user whom an event is about: by what weir has told the processor, or else by the customer, the subscription or the
/// payment, where it is known whose that is. Never by an address that somebody has typed in.
async fn find_user(database: &Database, event: &PaymentEvent) -> sqlx::Result<Option<String>> {
    if let Some(named) = &event.user_id
        && effects_store::is_user(database, named).await?
    {
        return Ok(Some(named.clone()));
    }
    if let Some(customer) = &event.customer
        && let Some(user_id) = effects_store::user_of_customer(database, customer).await?
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
