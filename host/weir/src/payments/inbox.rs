//! The processor's events: kept before they are acknowledged, then applied, each once, however often and wherever they
//! come.
//!
//! Every node looks for events that are due. Of one user's, one is applied at a time, by the node that has the user's
//! turn, which is a lease. What cannot be applied is tried again after a pause that grows from a second to an hour, and holds
//! up no other event: neither another user's nor the same one's.
//!
//! **Invariant:** an event is acknowledged when it is kept, and not before.
//! **Invariant:** a turn ends later than everything that is done in it.

pub mod store;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};
use weir_ledger::AccountId;
use weir_storage::Database;
use weir_storage::clock::Millis;

use self::store::{EventState, KeptEvent, Trouble};
use super::arrivals::wait_for;
use super::effects::store as effects_store;
use super::effects::{self, Applied, EffectError, Turn};
use super::events::{About, PaymentEvent};
use super::spans;
use crate::app::App;
use crate::context::RequestContext;

/// How long whoever brings an event waits until it is applied, before it is acknowledged all the same.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often events are looked for that nobody has told of.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The same while another node has the turn of a user whose event is due.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Events that are read at once.
const AT_ONCE: i64 = 256;

/// Users whose events are applied at once.
const USERS_AT_ONCE: usize = 8;

/// How long applying an event may take.
const APPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a turn is nobody else's.
const TURN: Duration = Duration::from_secs(30);

/// The first pause before an event is tried again, and the longest, in milliseconds.
const PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 3_600_000;

/// Characters of an error that is kept.
const ERROR_CHARACTERS: usize = 500;

/// Keeps an event, and has it applied. When this returns, it is kept, and as a rule applied.
pub async fn receive(
    app: &App,
    context: &RequestContext,
    event: &PaymentEvent,
) -> sqlx::Result<()> {
    let since = SystemTime::now();
    let database = &app.database;
    let arrivals = &app.payments.arrivals;
    let user_id = find_user(database, event).await?;
    let tried = arrivals.listen();
    if !store::keep(database, event, user_id.as_deref(), app.ledger.now()).await? {
        tracing::debug!(event = event.id, "an event of payments has come again");
        return Ok(());
    }
    tracing::info!(
        event = event.id,
        kind = event.name,
        user = user_id,
        "an event of payments has come"
    );
    spans::received(&app.tracer, context, event, since);
    if event.about != About::Unknown {
        arrivals.tell_come();
        wait_for(tried, &event.id, PATIENCE).await;
    }
    Ok(())
}

/// Applies events that are due, for as long as it is polled. It may be dropped at any moment, as a crash may come at any.
pub async fn run(app: &App) {
    loop {
        let pause = match look(app).await {
            Ok(pause) => pause,
            Err(error) => {
                tracing::warn!(%error, "looking for events of payments");
                LOOK_EVERY
            }
        };
        app.payments.arrivals.wait_for_more(pause).await;
    }
}

/// Applies what is due, and returns after what time to look again.
async fn look(app: &App) -> sqlx::Result<Duration> {
    let due = store::due(&app.database, app.ledger.now(), AT_ONCE).await?;
    let is_full = due.len() as i64 == AT_ONCE;
    let mut by_user: BTreeMap<String, Vec<KeptEvent>> = BTreeMap::new();
    for event in due {
        let whose = event.user_id.as_ref().or(event.customer.as_ref());
        let whose = whose.or(event.subject.as_ref()).unwrap_or(&event.id);
        by_user.entry(whose.clone()).or_default().push(event);
    }
    let tried = stream::iter(by_user.into_values()).map(async |events| {
        let mut is_free = true;
        for event in events {
            is_free &= attempt(app, event).await?;
        }
        Ok::<_, sqlx::Error>(is_free)
    });
    let mut tried = tried.buffer_unordered(USERS_AT_ONCE);
    let mut pause = if is_full { Duration::ZERO } else { LOOK_EVERY };
    while let Some(is_free) = tried.next().await {
        if !is_free? {
            pause = LOOK_AGAIN;
        }
    }
    Ok(pause)
}

/// Tries to apply an event that is due. Returns whether the turn of its user was free.
async fn attempt(app: &App, kept: KeptEvent) -> sqlx::Result<bool> {
    let database = &app.database;
    let Some(event) = &kept.event else {
        put_off(
            app,
            &kept,
            None,
            EventState::Failed,
            "this version of weir cannot read it",
        )
        .await?;
        return Ok(true);
    };
    let user_id = match &kept.user_id {
        Some(user_id) => Some(user_id.clone()),
        None => find_user(database, event).await?,
    };
    let Some(user_id) = user_id else {
        let why = "it is not known whom it is about";
        put_off(app, &kept, None, EventState::Waiting, why).await?;
        // Whoever has linked them meanwhile may have found nothing that waits.
        if find_user(database, event).await?.is_some() {
            store::wake(database, &kept.id, app.ledger.now()).await?;
            app.payments.arrivals.tell_come();
        }
        return Ok(true);
    };
    // The clock first: a turn that is held up is over for this node before it is for others.
    let ends = Instant::now() + APPLY_TIMEOUT;
    let (now, holder) = (app.ledger.now(), app.ledger.boot_id().as_str());
    let until = Millis(now.0 + TURN.as_millis() as i64);
    if !store::take_turn(database, &user_id, holder, now, until).await? {
        return Ok(false);
    }
    // Another node may have applied it since it was read.
    let current = store::find(database, &kept.id).await?;
    let is_open = current.is_some_and(|current| current.applied_at.is_none());
    let outcome = match is_open {
        true => apply(app, &kept, event, &user_id, ends).await,
        false => Ok(()),
    };
    store::give_back_turn(database, &user_id, holder).await?;
    outcome.map(|()| true)
}

async fn apply(
    app: &App,
    kept: &KeptEvent,
    event: &PaymentEvent,
    user_id: &str,
    ends: Instant,
) -> sqlx::Result<()> {
    let turn = Turn {
        app,
        account: AccountId(user_id.to_owned()),
        ends,
    };
    let span = spans::begin_attempt(&app.tracer, kept);
    let (state, why) = match timeout_at(ends, effects::apply(&turn, event)).await {
        Ok(Ok(applied)) => {
            let (state, outcome) = match applied {
                Applied::Done(outcome) => (EventState::Applied, outcome),
                Applied::Ignored(why) => (EventState::Ignored, why.to_owned()),
            };
            let now = app.ledger.now();
            store::end(&app.database, &kept.id, user_id, state, &outcome, now).await?;
            app.metrics.payment_event(state.name());
            spans::end_attempt(span, state);
            tracing::info!(
                event = kept.id,
                kind = kept.name,
                user = user_id,
                outcome,
                "an event of payments is applied"
            );
            app.payments.arrivals.tell_tried(&kept.id);
            return Ok(());
        }
        Ok(Err(EffectError::UnknownPayment)) => {
            (EventState::Waiting, EffectError::UnknownPayment.to_string())
        }
        Ok(Err(error)) => (EventState::Failed, error.to_string()),
        Err(_) => (EventState::Failed, "it took too long".to_owned()),
    };
    spans::end_attempt(span, state);
    put_off(app, kept, Some(user_id), state, &why).await
}

async fn put_off(
    app: &App,
    kept: &KeptEvent,
    user_id: Option<&str>,
    state: EventState,
    why: &str,
) -> sqlx::Result<()> {
    if state == EventState::Failed {
        tracing::warn!(
            event = kept.id,
            kind = kept.name,
            user = user_id,
            attempts = kept.attempts + 1,
            error = why,
            "an event of payments cannot be applied"
        );
    }
    let error: String = why.chars().take(ERROR_CHARACTERS).collect();
    let trouble = Trouble {
        state,
        error: &error,
        attempts: kept.attempts + 1,
        next_attempt_at: Millis(app.ledger.now().0 + pause_ms(kept.attempts)),
    };
    store::put_off(&app.database, &kept.id, user_id, &trouble).await?;
    app.metrics.payment_event(state.name());
    app.payments.arrivals.tell_tried(&kept.id);
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
