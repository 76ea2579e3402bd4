//! The timer of schedules: executors look for due ones every second.
//!
//! The first node advances the schedule and records that the slot fires, in one transaction; then it starts the task
//! with that slot as the cause. If the node fails before that, another one starts the task half a minute later, with
//! the same slot, so that nothing runs twice.
//!
//! Slots without a running node do not accumulate: only the last missed slot of a schedule fires, late, unless it is
//! more than [`LATEST`] ago. In that case, weir records it as missed.

use std::time::Duration;

use weir_storage::background::Periodic;
use weir_storage::clock::Millis;

use super::TaskParts;
use super::start::{TOO_SOON, start};
use super::store::{
    Cause, DueSchedule, NewFire, OpenStart, StartEnd, StartRefusal, TaskStoreError, Trigger,
};

/// The poll interval of schedules.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The maximum delay of a slot.
pub const LATEST: Duration = Duration::from_secs(3_600);

/// The time of a node to start a claimed slot, in milliseconds.
const CLAIM_MS: i64 = 30_000;

/// The pause after an unreadable task, in milliseconds.
const UNREADABLE_MS: i64 = 600_000;

/// The interval between deletions of old starts and re-encryption with a new key.
const TIDY_EVERY: Duration = Duration::from_secs(600);

/// Fires schedules while it is polled. Dropping it at any moment is as safe as a crash.
pub async fn run(tasks: &TaskParts) {
    let background = &tasks.swarms.inference.background;
    let periodic = |name, every| Periodic {
        name,
        every,
        first_after: Duration::ZERO,
    };
    tokio::join!(
        background.repeat(periodic("look for due schedules", LOOK_EVERY), || look(
            tasks
        )),
        background.repeat(periodic("tidy up tasks", TIDY_EVERY), || tidy(tasks)),
    );
}

async fn look(tasks: &TaskParts) -> Result<(), TaskStoreError> {
    let now = tasks.swarms.inference.ledger.now();
    for due in tasks.store.due(now).await? {
        fire(tasks, &due, now).await?;
    }
    for open in tasks.store.open_starts(now).await? {
        let until = Millis(now.0 + CLAIM_MS);
        if tasks.store.claim_open(&open, until).await? {
            conclude(tasks, &open, now).await?;
        }
    }
    Ok(())
}

/// Advances a schedule, and starts its task.
async fn fire(tasks: &TaskParts, due: &DueSchedule, now: Millis) -> Result<(), TaskStoreError> {
    let read = tasks.store.find(&due.task_id).await;
    let schedule = match &read {
        Ok(Some(task)) => task.definition.schedule.as_ref().map(|text| text.parse()),
        Ok(None) => return Ok(()),
        Err(TaskStoreError::Database(_)) => return read.map(drop),
        Err(TaskStoreError::Unreadable(_)) => None,
    };
    let Some(Ok(schedule)) = schedule else {
        // This node lacks a sealing key or a time zone's name, which another node may have.
        tracing::error!(task = due.task_id, "cannot read a task's schedule");
        let later = Some(Millis(now.0 + UNREADABLE_MS));
        return tasks.store.move_on(due, later).await.map(drop);
    };
    let next = schedule.next_after(now);
    // A node with other rules of the time zone may have computed an earlier time.
    let Some(slot) = schedule.last_until(now).filter(|slot| *slot >= due.at) else {
        return tasks.store.move_on(due, next).await.map(drop);
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
    if tasks.store.claim_slot(&fire).await? && fire.missed.is_none() {
        conclude(tasks, &start, now).await?;
    }
    Ok(())
}

/// Starts a task for a claimed slot.
async fn conclude(tasks: &TaskParts, open: &OpenStart, now: Millis) -> Result<(), TaskStoreError> {
    let Some(task) = tasks.store.find(&open.task_id).await? else {
        return Ok(());
    };
    let cause = Cause {
        id: &open.cause,
        trigger: Trigger::Schedule,
        slot: Some(open.slot),
    };
    match start(tasks, &task, cause).await {
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
                "a schedule has fired without a start"
            );
        }
        Err(error) if is_too_late(open.slot, now) => {
            let refusal = StartRefusal {
                code: error.code().to_owned(),
                message: error.message().to_owned(),
            };
            tasks
                .store
                .note(&task.id, cause, StartEnd::Refused(refusal), now)
                .await?;
        }
        // A node retries after the claim has expired.
        Err(error) => tracing::warn!(
            task = task.id,
            code = error.code(),
            "cannot start a task now; retrying later"
        ),
    }
    Ok(())
}

async fn tidy(tasks: &TaskParts) -> Result<(), TaskStoreError> {
    let keep_ms = tasks.swarms.settings.executor().keep.as_millis() as i64;
    let before = Millis(tasks.swarms.inference.ledger.now().0 - keep_ms);
    while tasks.store.forget_starts(before).await? > 0 {}
    tasks.store.seal_anew().await?;
    Ok(tasks.credentials.seal_anew().await?)
}

fn is_too_late(slot: Millis, now: Millis) -> bool {
    now.0 - slot.0 > LATEST.as_millis() as i64
}

fn missed() -> StartRefusal {
    StartRefusal {
        code: "SCHEDULE_MISSED".to_owned(),
        message: format!(
            "No node was running at the time, for more than {} minutes.",
            LATEST.as_secs() / 60
        ),
    }
}
