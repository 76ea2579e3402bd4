//! What a node does for the ledger by itself: it keeps its lease, ends what nodes that went away have left open,
//! ends paid plans that nobody has renewed, folds entries, and forgets what is old.
//!
//! Sweeps pause for 10 minutes if the database's clock jumps by more than 5 s: by a wrong time they would end the holds of all
//! nodes and the paid plans of all accounts.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior};
use weir_storage::clock::Millis;

use super::{Ledger, LedgerError};
use crate::operation::{Action, Done, HoldId, Refusal};
use crate::store::Fold;

/// Holds that a sweep settles in one go.
const SWEPT: u32 = 256;

/// How long a sweep waits for what it has asked for, before it looks again.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a node that cannot commit waits before it tries to renew its lease again.
const TROUBLED_RENEWAL: Duration = Duration::from_secs(1);

/// Renewals between two rounds of beginning periods and forgetting what is old: a minute, by default.
const RENEWALS_PER_TIDYING: u32 = 12;

/// How often entries are folded, where fewer come than are folded in one go.
const FOLD_EVERY: Duration = Duration::from_secs(1);

/// Entries that are folded in one transaction: others want to write, too.
const FOLDED: u32 = 1_000;

impl Ledger {
    /// Settles the open holds of runs that are over, and those of this one that are older than any request; returns how
    /// many there were.
    pub async fn sweep(&self) -> sqlx::Result<usize> {
        let mut swept = 0;
        loop {
            let Some(now) = self.0.time.ask_if_steady().await? else {
                return Ok(swept);
            };
            let mut orphans = self.0.store.find_orphans(now, SWEPT).await?;
            let longest = self.0.lease.longest_request.as_millis() as i64;
            let overdue =
                self.0
                    .store
                    .find_overdue(&self.0.boot_id, Millis(now.0 - longest), SWEPT);
            let overdue = overdue.await?.into_iter();
            orphans.extend(overdue.filter(|overdue| !self.is_kept_open(&overdue.hold)));
            let deadline = Instant::now() + SWEEP_TIMEOUT;
            let found = orphans.len();
            let ended = orphans.into_iter().map(|orphan| async move {
                let hold = orphan.hold.clone();
                let action = Action::Expire { hold: orphan.hold };
                match self.submit(&orphan.account, action, deadline).await {
                    Ok(Done::Expired { charged, overrun }) => {
                        tracing::info!(%hold, %charged, %overrun, "a hold that nobody will end is settled");
                        true
                    }
                    // Its node has settled it after all.
                    Err(LedgerError::Refused(Refusal::Ended(_))) => true,
                    other => {
                        tracing::warn!(%hold, ?other, "settling a hold that nobody will end");
                        false
                    }
                }
            });
            let ended = futures_util::future::join_all(ended).await;
            let ended = ended.into_iter().filter(|ended| *ended).count();
            swept += ended;
            if found < SWEPT as usize || ended == 0 {
                return Ok(swept);
            }
        }
    }

    /// Ends the paid plans that nobody has renewed: begins a period of the free plan for each. Returns how many there were.
    pub async fn begin_due_periods(&self) -> sqlx::Result<usize> {
        let mut begun = 0;
        loop {
            let Some(now) = self.0.time.ask_if_steady().await? else {
                return Ok(begun);
            };
            let due = self.0.store.find_lapsed_accounts(now, SWEPT).await?;
            let deadline = Instant::now() + SWEEP_TIMEOUT;
            let found = due.len();
            let resets = due.into_iter().map(|account| async move {
                let reset = self.submit(&account, Action::ResetPeriod, deadline).await;
                if let Err(error) = &reset {
                    tracing::warn!(%account, %error, "beginning a period");
                }
                reset.is_ok()
            });
            let resets = futures_util::future::join_all(resets).await;
            let done = resets.into_iter().filter(|done| *done).count();
            begun += done;
            if found < SWEPT as usize || done == 0 {
                return Ok(begun);
            }
        }
    }

    /// Forgets leases, idempotency keys and expired holds that have been kept for long enough.
    pub async fn forget_old(&self) -> sqlx::Result<()> {
        let Some(now) = self.0.time.ask_if_steady().await? else {
            return Ok(());
        };
        self.0.store.forget_leases(now).await?;
        self.0.store.forget_expired_holds(now).await?;
        self.0.store.forget_keys(now).await
    }

    /// Renews the lease for as long as the committer is there, whatever else takes its time.
    pub(super) async fn keep_lease(self) {
        let mut ticks = self.ticks();
        let mut was_wrong = false;
        while !self.0.submit.is_closed() {
            if self.0.health.trouble().is_none() {
                ticks.tick().await;
            } else {
                // While nobody asks for anything, this is what tells that the database can write again.
                tokio::time::sleep(self.0.lease.renew_every.min(TROUBLED_RENEWAL)).await;
            }
            if let Err(error) = self.renew_lease().await {
                tracing::warn!(%error, "renewing the ledger's lease");
            }
            let trouble = self.clock_trouble();
            if trouble.is_some() != was_wrong {
                match &trouble {
                    Some(trouble) => {
                        tracing::error!("{trouble}; the node is not ready until it is set")
                    }
                    None => tracing::info!("this machine's clock is right again"),
                }
            }
            was_wrong = trouble.is_some();
        }
        tracing::error!(
            "the ledger's committer is gone; the lease lapses, and others end what it held"
        );
    }

    fn ticks(&self) -> tokio::time::Interval {
        let mut ticks = tokio::time::interval(self.0.lease.renew_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// Ends what others have left, begins periods, forgets what is old.
    pub(super) async fn tidy(self) {
        let mut ticks = self.ticks();
        let mut rounds = 0_u32;
        loop {
            ticks.tick().await;
            rounds = rounds.wrapping_add(1);
            // A node that was away must not take its own holds for another's.
            if self.is_leased()
                && let Err(error) = self.sweep().await
            {
                tracing::warn!(%error, "sweeping the ledger");
            }
            if rounds.is_multiple_of(RENEWALS_PER_TIDYING) {
                if let Err(error) = self.begin_due_periods().await {
                    tracing::warn!(%error, "ending paid plans that nobody has renewed");
                }
                if let Err(error) = self.forget_old().await {
                    tracing::warn!(%error, "forgetting old leases, expired holds and idempotency keys");
                }
            }
        }
    }

    /// Folds entries into the sums and indexes that are made of them, in batches, for as long as there are any.
    pub(super) async fn fold(self) {
        let mut ticks = tokio::time::interval(FOLD_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut fold = Fold::new(self.0.store.clone());
        loop {
            ticks.tick().await;
            // SQLite blocks whoever waits for the disk.
            let runtime = Handle::current();
            let folding = spawn_blocking(move || {
                let folded = runtime.block_on(fold.step(FOLDED));
                (fold, folded)
            });
            let Ok((returned, folded)) = folding.await else {
                tracing::error!("folding the ledger's entries has panicked; readers add them up");
                return;
            };
            fold = returned;
            match folded {
                Ok(folded) if folded == u64::from(FOLDED) => ticks.reset_immediately(),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "folding the ledger's entries"),
            }
        }
    }

    fn is_kept_open(&self, hold: &HoldId) -> bool {
        let kept = self.0.kept_open.lock();
        kept.unwrap_or_else(PoisonError::into_inner).contains(hold)
    }

    pub(super) fn is_leased(&self) -> bool {
        let now_ms = self.0.time.monotonic().as_millis() as u64;
        now_ms < self.0.leased_until_ms.load(Ordering::Acquire)
    }

    /// For a node that was away for longer than its lease: asleep, or without its database.
    pub(super) async fn renew_lapsed_lease(&self) -> sqlx::Result<()> {
        let _one_at_a_time = self.0.renewing.lock().await;
        if self.is_leased() {
            return Ok(());
        }
        self.renew_lease().await
    }

    pub(super) async fn renew_lease(&self) -> sqlx::Result<()> {
        let inner = &*self.0;
        // Its own clock is read before the database's, and both before it writes: the node's own view ends first.
        let leased_until = inner.time.monotonic() + inner.lease.valid_for;
        let renewed = async {
            let now = inner.time.ask().await?;
            let until = Millis(now.0 + inner.lease.valid_for.as_millis() as i64);
            inner.store.renew_lease(&inner.boot_id, now, until).await
        };
        let renewed = renewed.await;
        inner.health.wrote(&renewed);
        renewed?;
        let leased_until_ms = leased_until.as_millis() as u64;
        inner
            .leased_until_ms
            .fetch_max(leased_until_ms, Ordering::AcqRel);
        Ok(())
    }
}
