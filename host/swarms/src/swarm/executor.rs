//! The executor: claims queued runs, and runs of failed executors, and works on a limited number at once.
//!
//! It looks for runs on notification, and every second. During work on a run, it renews the lease; if renewal fails
//! until the lease expires, it drops the run, which another executor may then own.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_storage::background::Periodic;
use weir_storage::clock::Millis;

use super::run::{self, ExecutorParts};
use super::settings::ExecutorSettings;
use super::store::{Lease, LeaseError, SwarmStoreError};
use super::unpriced;

/// The poll interval for runs without a notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pause of an executor after its store has failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The interval between deletions of old runs.
const FORGET_EVERY: Duration = Duration::from_secs(600);

/// The interval between look-ups of prices of model calls that outlived their runs.
const PRICE_EVERY: Duration = Duration::from_secs(5);

/// The timeout of running tool calls and of releasing leases at a stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A running executor. Dropping it without [`stop`](Self::stop) does not stop it. Cheap to clone.
#[derive(Clone)]
pub struct Executor {
    stopping: CancellationToken,
    killed: CancellationToken,
    tasks: TaskTracker,
}

struct RunSearch {
    parts: ExecutorParts,
    settings: ExecutorSettings,
    owner: String,
    wake: Arc<Notify>,
    stopping: CancellationToken,
    killed: CancellationToken,
    tasks: TaskTracker,
}

impl Executor {
    /// Starts to look for runs. `owner` is the name in its leases.
    pub fn start(
        parts: ExecutorParts,
        settings: ExecutorSettings,
        owner: &str,
        wake: Arc<Notify>,
    ) -> Self {
        let executor = Self {
            stopping: CancellationToken::new(),
            killed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let looking = RunSearch {
            parts,
            settings,
            owner: owner.to_owned(),
            wake,
            stopping: executor.stopping.clone(),
            killed: executor.killed.clone(),
            tasks: executor.tasks.clone(),
        };
        let killed = executor.killed.clone();
        let looking = async move {
            tokio::join!(
                looking.take_up(),
                looking.forget_old(),
                looking.price_late_calls(),
                looking.end_cancelled()
            );
        };
        executor
            .tasks
            .spawn(killed.run_until_cancelled_owned(looking));
        executor
    }

    /// Claims no more runs, finishes running tool calls, and releases its leases, so that another executor can continue
    /// at once.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
        if timeout(STOP_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!("cannot release the leases of swarms; they expire by themselves");
            self.kill();
        }
    }

    /// Stops immediately, like a crash.
    pub fn kill(&self) {
        self.killed.cancel();
    }
}

impl RunSearch {
    async fn take_up(&self) {
        let room = Arc::new(Semaphore::new(self.settings.concurrent.get() as usize));
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let Some(Ok(turn)) = self
                .stopping
                .run_until_cancelled(room.clone().acquire_owned())
                .await
            else {
                return;
            };
            let now = self.parts.ledger.now();
            let until = later(now, self.settings.lease);
            // The clock is read before the claim, so that the executor's view of the lease ends first.
            let ends = Instant::now() + self.settings.lease;
            let share = self.settings.share();
            let claimed = self.parts.store.claim(&self.owner, share, now, until);
            match claimed.await {
                Ok(Some(lease)) => {
                    let work = work(
                        self.parts.clone(),
                        self.settings.lease,
                        lease,
                        ends,
                        self.stopping.clone(),
                    );
                    let work = self.killed.clone().run_until_cancelled_owned(work);
                    self.tasks.spawn(async move {
                        work.await;
                        drop(turn);
                    });
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot look for swarms to run");
                    let pause = tokio::time::sleep(AFTER_FAILURE);
                    if self.stopping.run_until_cancelled(pause).await.is_none() {
                        return;
                    }
                }
            }
            tokio::select! {
                () = self.wake.notified() => {}
                _ = ticks.tick() => {}
                () = self.stopping.cancelled() => return,
            }
        }
    }

    async fn price_late_calls(&self) {
        let price = || unpriced::price_all(&self.parts.store, &self.parts.ledger);
        self.repeat("price model calls of finished swarms", PRICE_EVERY, price)
            .await;
    }

    async fn end_cancelled(&self) {
        let end = || self.parts.store.end_cancelled(self.parts.ledger.now());
        self.repeat("end cancelled swarms", LOOK_EVERY, end).await;
    }

    async fn forget_old(&self) {
        let forget = async || {
            let keep_ms = self.settings.keep.as_millis() as i64;
            let before = Millis(self.parts.ledger.now().0 - keep_ms);
            while self.parts.store.forget(before).await? > 0 {}
            Ok::<_, SwarmStoreError>(())
        };
        self.repeat("forget old swarms", FORGET_EVERY, forget).await;
    }

    /// Repeats work from now on, until the executor stops.
    async fn repeat<Run, E>(&self, name: &'static str, every: Duration, work: impl FnMut() -> Run)
    where
        Run: Future<Output = Result<(), E>>,
        E: Display,
    {
        let periodic = Periodic {
            name,
            every,
            first_after: Duration::ZERO,
        };
        let repeated = self.parts.background.repeat(periodic, work);
        self.stopping.run_until_cancelled(repeated).await;
    }
}

/// Works on a run while the lease is valid.
async fn work(
    parts: ExecutorParts,
    lease_for: Duration,
    lease: Lease,
    ends: Instant,
    stopping: CancellationToken,
) {
    let ends = Mutex::new(ends);
    let calling = tokio::sync::Mutex::new(());
    let may_stop = async || {
        stopping.cancelled().await;
        // The run continues until a running tool call has its result.
        drop(calling.lock().await);
    };
    let mut is_cancelled = false;
    loop {
        tokio::select! {
            worked = until(&ends, run::work(&parts, &lease, &calling)) => match worked {
                Some(Ok(())) => {}
                Some(Err(LeaseError::Lost)) => {
                    tracing::warn!(run = lease.run_id, "another executor owns the swarm now");
                }
                Some(Err(error)) => {
                    tracing::warn!(run = lease.run_id, %error, "stopped work on a swarm; an executor will resume it");
                }
                None => lost(&lease),
            },
            () = keep(&parts, lease_for, &lease, &ends) => lost(&lease),
            () = may_stop() => {
                if let Err(error) = parts.store.give_up(&lease).await {
                    tracing::warn!(run = lease.run_id, %error, "cannot release the lease of a swarm; it expires by itself");
                }
            }
            // The call under way is dropped. The next round writes the end.
            () = parts.store.until_over(&lease.run_id, &parts.ledger), if !is_cancelled => {
                is_cancelled = true;
                continue;
            }
        }
        return;
    }
}

fn lost(lease: &Lease) {
    tracing::warn!(
        run = lease.run_id,
        "lost the lease of a swarm; another executor resumes the swarm"
    );
}

/// Works until the lease expires; returns `None` then. If the process is suspended, the clock advances and timers fire
/// late. Therefore, the clock is checked before each step of the work.
async fn until<T>(ends: &Mutex<Instant>, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match Instant::now() >= moment(ends) {
        true => Poll::Ready(None),
        false => work.as_mut().poll(context).map(Some),
    })
    .await
}

fn moment(ends: &Mutex<Instant>) -> Instant {
    *ends.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Renews a lease repeatedly, and records its expiry. Returns when the lease is lost.
async fn keep(parts: &ExecutorParts, lease_for: Duration, lease: &Lease, ends: &Mutex<Instant>) {
    let every = lease_for / 3;
    loop {
        let left = moment(ends).saturating_duration_since(Instant::now());
        tokio::time::sleep(every.min(left)).await;
        if Instant::now() >= moment(ends) {
            return;
        }
        let asked = Instant::now();
        let now = parts.ledger.now();
        match parts.store.renew(lease, now, later(now, lease_for)).await {
            Ok(true) => *ends.lock().unwrap_or_else(PoisonError::into_inner) = asked + lease_for,
            Ok(false) => return,
            Err(error) => {
                let error = SwarmStoreError::from(error);
                tracing::warn!(run = lease.run_id, %error, "cannot renew the lease of a swarm");
            }
        }
    }
}

fn later(moment: Millis, by: Duration) -> Millis {
    Millis(moment.0 + by.as_millis() as i64)
}
