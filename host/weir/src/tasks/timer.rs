//! What has schedules fire: executors look for those that are due, every second.
//!
//! Whoever is first moves the schedule on and notes that the slot fires, in one transaction; then it starts the task under
//! that slot. Where it is gone before that is done, another one starts it half a minute later, under the same slot, so that
//! nothing runs twice.
//!
//! Slots that pass while nobody looks do not pile up: of those that a schedule has missed, the last one fires, late, unless
//! it is more than [`LATEST`] ago. Then it is noted as missed.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use weir_storage::clock::Millis;

use super::start::{TOO_SOON, start};
use super::store::{Cause, Due, Ended, NewFire, OpenStart, Refusal, StoreError, Trigger};
use crate::app::App;

/// How often schedules are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How late a slot may fire.
pub const LATEST: Duration = Duration::from_secs(3_600);

/// How long a node has to start what it has claimed, in milliseconds.
const CLAIM_MS: i64 = 30_000;

/// How long a task is left alone that cannot be read, in milliseconds.
const UNREADABLE_MS: i64 = 600_000;

/// How often what is old is forgotten, and what is sealed under an older key sealed anew.
const TIDY_EVERY: Duration = Duration::from_secs(600);

/// Has schedules fire for as long as it is polled. It may be dropped at any moment, as a crash may come at any.
pub async fn run(app: &App) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tidy_at = Instant::now();
    loop {
        ticks.tick().await;
        if let Err(error) = look(app).await {
            tracing::warn!(%error, "looking for schedules that are due");
        }
        if tidy_at <= Instant::now() {
            tidy_at = Instant::now() + TIDY_EVERY;
            if let Err(error) = tidy(app).await {
                tracing::warn!(%error, "tidying up tasks");
            }
        }
    }
}

async fn look(app: &App) -> Result<(), StoreError> {
    let now = app.ledger.now();
    for due in app.task_store.due(now).await? {
        fire(app, &due, now).await?;
    }
    for open in app.task_store.open_starts(now).await? {
        let until = Millis(now.0 + CLAIM_MS);
        if app.task_store.claim_open(&open, until).await? {
            conclude(app, &open, now).await?;
        }
    }
    Ok(())
}

/// Moves a schedule on, and starts its task.
async fn fire(app: &App, due: &Due, now: Millis) -> Result<(), StoreError> {
    let read = app.task_store.find(&due.task_id).await;
    let schedule = match &read {
        Ok(Some(task)) => task.definition.schedule.as_ref().map(|text| text.parse()),
        Ok(None) => return Ok(()),
        Err(StoreError::Database(_)) => return read.map(drop),
        Err(StoreError::Unreadable(_)) => None,
    };
    let Some(Ok(schedule)) = schedule else {
        // A sealing key is missing here, or the name of a time zone: another node may have it.
        tracing::error!(task = due.task_id, "a task's schedule cannot be read");
        let later = Some(Millis(now.0 + UNREADABLE_MS));
        return app.task_store.move_on(due, later).await.map(drop);
    };
    let next = schedule.next_after(now);
    // It may have been looked at too early, by other rules of its time zone.
    let Some(slot) = schedule.last_until(now).filter(|slot| *slot >= due.at) else {
        return app.task_store.move_on(due, next).await.map(drop);
    };
    let start = OpenStart {
        task_id: due.task_id.clone(),
        cause: format!("slot {}", slot.iso()),
        slot,
        claimed_until: Millis(now.0 + CLAIM_MS),
    };
    let fire = NewFire {
        due,
        next,
        start: &start,
        at: now,
        missed: is_too_late(slot, now).then(missed),
    };
    if app.task_store.claim_slot(&fire).await? && fire.missed.is_none() {
        conclude(app, &start, now).await?;
    }
    Ok(())
}

/// Starts a task for a slot that this node has claimed.
async fn conclude(app: &App, open: &OpenStart, now: Millis) -> Result<(), StoreError> {
    let Some(task) = app.task_store.find(&open.task_id).await? else {
        return Ok(());
    };
    let cause = Cause {
        id: &open.cause,
        trigger: Trigger::Schedule,
        slot: Some(open.slot),
    };
    match start(app, &task, cause).await {
        Ok((run, _)) => {
            tracing::info!(
                task = task.id,
                run = run.id,
                user = task.user_id,
                "a schedule has fired"
            );
        }
        Err(error) if !error.status().is_server_error() && error.code() != TOO_SOON.as_str() => {
            tracing::info!(
                task = task.id,
                code = error.code(),
                user = task.user_id,
                "a schedule has fired in vain"
            );
        }
        Err(error) if is_too_late(open.slot, now) => {
            let refusal = Refusal {
                code: error.code().to_owned(),
                message: error.message().to_owned(),
            };
            app.task_store
                .note(&task.id, cause, Ended::Refused(refusal), now)
                .await?;
        }
        // It is tried again when the claim is over.
        Err(error) => tracing::warn!(
            task = task.id,
            code = error.code(),
            "a task is started later"
        ),
    }
    Ok(())
}

async fn tidy(app: &App) -> Result<(), StoreError> {
    let keep_ms = app.config.swarms.executor().keep.as_millis() as i64;
    let before = Millis(app.ledger.now().0 - keep_ms);
    while app.task_store.forget_starts(before).await? > 0 {}
    app.task_store.seal_anew().await?;
    Ok(app.task_credentials.seal_anew().await?)
}

fn is_too_late(slot: Millis, now: Millis) -> bool {
    now.0 - slot.0 > LATEST.as_millis() as i64
}

fn missed() -> Refusal {
    Refusal {
        code: "SCHEDULE_MISSED".to_owned(),
        message: format!(
            "Nobody was there to start it, for more than {} minutes.",
            LATEST.as_secs() / 60
        ),
    }
}
