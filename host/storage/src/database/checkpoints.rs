//! The task that moves commits from SQLite's log into its file.

use std::time::Duration;

use sqlx::{AnyPool, Executor, Row};
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use super::write_turn::WriteTurn;

/// Time between checkpoints. The disk commits slowly during a checkpoint, so checkpoints are rare.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(2);

/// Length of a long log, in pages of 4 KiB. Beyond it, writers wait until all of the log is moved. If overlapping
/// readers keep the log from beginning anew, it is truncated.
const LOG_PAGES: i64 = 16 << 10;

/// The task that moves commits from the log into the file.
#[derive(Debug)]
pub(super) struct Checkpoints {
    pool: AnyPool,
    task: AbortOnDropHandle<()>,
}

impl Checkpoints {
    pub(super) fn start(pool: AnyPool, turn: WriteTurn) -> Self {
        let task = tokio::spawn(checkpoint_for_ever(pool.clone(), turn));
        Self {
            pool,
            task: AbortOnDropHandle::new(task),
        }
    }

    pub(super) async fn stop(&self) {
        self.task.abort();
        self.pool.close().await;
    }
}

async fn checkpoint_for_ever(pool: AnyPool, turn: WriteTurn) {
    let mut ticks = tokio::time::interval(CHECKPOINT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = checkpoint(&pool, &turn).await {
            tracing::warn!(%error, "moving SQLite's log into its file");
        }
    }
}

/// Checkpoints while others write. Once the log is long, its end is moved in a write turn, so that the log begins
/// anew. Writers wait for the disk during that turn, so little must be left by then.
async fn checkpoint(pool: &AnyPool, turn: &WriteTurn) -> sqlx::Result<()> {
    let (pages, _) = move_log(pool).await?;
    if pages < LOG_PAGES {
        return Ok(());
    }
    // Two passes: the second moves the commits that arrived during the first.
    for _ in 0..2 {
        move_log(pool).await?;
    }
    let _turn = turn.take().await;
    let (pages, moved) = move_log(pool).await?;
    if moved < pages {
        pool.fetch_one("PRAGMA wal_checkpoint(TRUNCATE)").await?;
    }
    Ok(())
}

/// Moves as much of the log as possible without a wait; returns the log's pages and the moved pages.
async fn move_log(pool: &AnyPool) -> sqlx::Result<(i64, i64)> {
    let log = pool.fetch_one("PRAGMA wal_checkpoint(PASSIVE)").await?;
    Ok((log.try_get(1)?, log.try_get(2)?))
}
