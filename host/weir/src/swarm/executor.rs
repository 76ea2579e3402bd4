//! The executor: it takes up runs that wait, or whose executor is gone, and works on so many at once.
//!
//! It looks for them when it is told that there is something, and every second besides. While it works on a run it makes its
//! lease longer; where that fails for as long as the lease lasts, it drops the run, whoever has it then.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_storage::clock::Millis;

use super::run::{self, ExecutorParts};
use super::settings::ExecutorSettings;
use super::store::{Lease, LeaseError, StoreError};
use super::unpriced;

/// How often runs are looked for that nobody has told of.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long an executor waits after its store has failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// How often runs are forgotten that are old.
const FORGET_EVERY: Duration = Duration::from_secs(600);

/// How often the prices are looked for of model calls that outlived their runs.
const PRICE_EVERY: Duration = Duration::from_secs(5);

/// How long it may take to finish the tools' calls that are under way, and to give leases up.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// An executor at work. Dropped without [`stop`](Self::stop), it goes on. Cheap to clone.
#[derive(Clone)]
pub struct Executor {
    stopping: CancellationToken,
    killed: CancellationToken,
    tasks: TaskTracker,
}

struct Looking {
    shop: ExecutorParts,
    settings: ExecutorSettings,
    owner: String,
    wake: Arc<Notify>,
    stopping: CancellationToken,
    killed: CancellationToken,
    tasks: TaskTracker,
}

impl Executor {
    /// Begins to look for runs. `owner` is the name that its leases carry.
    pub fn start(
        shop: ExecutorParts,
        settings: ExecutorSettings,
        owner: &str,
        wake: Arc<Notify>,
    ) -> Self {
        let executor = Self {
            stopping: CancellationToken::new(),
            killed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let looking = Looking {
            shop,
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
                looking.price_late_calls()
            );
        };
        executor
            .tasks
            .spawn(killed.run_until_cancelled_owned(looking));
        executor
    }

    /// Takes up nothing more, finishes the tools' calls that are under way, and gives up what it works on: another executor
    /// may go on at once.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
        if timeout(STOP_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!("leases of swarms are not given up; they lapse by themselves");
            self.kill();
        }
    }

    /// Stops in the midst of what it does, as a crash would.
    pub fn kill(&self) {
        self.killed.cancel();
    }
}

impl Looking {
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
            let now = self.shop.ledger.now();
            let until = later(now, self.settings.lease);
            // Its own clock is read before it claims: its own view of the lease ends first.
            let ends = Instant::now() + self.settings.lease;
            match self.shop.store.claim(&self.owner, now, until).await {
                Ok(Some(lease)) => {
                    let work = work(
                        self.shop.clone(),
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
                    tracing::warn!(%error, "looking for swarms to run");
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
        let mut ticks = interval(PRICE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stopping.cancelled() => return,
            }
            let priced = unpriced::price_all(&self.shop.store, &self.shop.ledger);
            if let Err(error) = priced.await {
                tracing::warn!(%error, "pricing model calls of swarms that are over");
            }
        }
    }

    async fn forget_old(&self) {
        let mut ticks = interval(FORGET_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stopping.cancelled() => return,
            }
            let keep_ms = self.settings.keep.as_millis() as i64;
            let before = Millis(self.shop.ledger.now().0 - keep_ms);
            loop {
                match self.shop.store.forget(before).await {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "forgetting old swarms");
                        break;
                    }
                }
            }
        }
    }
}

/// Works on a run for as long as the lease is its own.
async fn work(
    shop: ExecutorParts,
    lease_for: Duration,
    lease: Lease,
    ends: Instant,
    stopping: CancellationToken,
) {
    let ends = Mutex::new(ends);
    let calling = tokio::sync::Mutex::new(());
    let may_stop = async {
        stopping.cancelled().await;
        // The run goes on meanwhile, until the call of a tool that is under way has its result.
        drop(calling.lock().await);
    };
    tokio::select! {
        worked = until(&ends, run::work(&shop, &lease, &calling)) => match worked {
            Some(Ok(())) => {}
            Some(Err(LeaseError::Lost)) => {
                tracing::warn!(run = lease.run_id, "another executor has the swarm by now");
            }
            Some(Err(error)) => {
                tracing::warn!(run = lease.run_id, %error, "a swarm is left to be taken up again");
            }
            None => lost(&lease),
        },
        () = keep(&shop, lease_for, &lease, &ends) => lost(&lease),
        () = may_stop => {
            if let Err(error) = shop.store.give_up(&lease).await {
                tracing::warn!(run = lease.run_id, %error, "giving up the lease of a swarm; it lapses by itself");
            }
        }
    }
}

fn lost(lease: &Lease) {
    tracing::warn!(
        run = lease.run_id,
        "the lease of a swarm is lost; another executor goes on with it"
    );
}

/// Works until the lease ends; `None` if it did. The clock goes on while the process stands still, and timers ring only after
/// that: so the clock is looked at whenever the work would go on.
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

/// Makes a lease longer again and again, and notes until when. Returns when it is lost.
async fn keep(shop: &ExecutorParts, lease_for: Duration, lease: &Lease, ends: &Mutex<Instant>) {
    let every = lease_for / 3;
    loop {
        let left = moment(ends).saturating_duration_since(Instant::now());
        tokio::time::sleep(every.min(left)).await;
        if Instant::now() >= moment(ends) {
            return;
        }
        let asked = Instant::now();
        let now = shop.ledger.now();
        match shop.store.renew(lease, now, later(now, lease_for)).await {
            Ok(true) => *ends.lock().unwrap_or_else(PoisonError::into_inner) = asked + lease_for,
            Ok(false) => return,
            Err(error) => {
                let error = StoreError::from(error);
                tracing::warn!(run = lease.run_id, %error, "renewing the lease of a swarm");
            }
        }
    }
}

fn later(moment: Millis, by: Duration) -> Millis {
    Millis(moment.0 + by.as_millis() as i64)
}
