//! A node's background tasks for the ledger: it renews its lease, ends the holds of failed nodes, ends paid plans
//! without a renewal, folds entries, and deletes old rows.
//!
//! Sweeps pause for 10 minutes if the database's clock jumps by more than 5 s: with a wrong time they would end the
//! holds of all nodes and the paid plans of all accounts.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior};
use weir_storage::background::Periodic;
use weir_storage::clock::Millis;

use super::{Ledger, LedgerError};
use crate::operation::{AccountId, Action, HoldId, LedgerRefusal, OperationEffect};
use crate::store::Fold;

/// Holds per sweep.
const SWEPT: u32 = 256;

/// Time that a sweep waits for its operations before it repeats.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between lease renewals of a node that cannot use its database.
const TROUBLED_RENEWAL: Duration = Duration::from_secs(1);

/// Lease renewals between two rounds of period starts and deletions: a minute, by default.
const RENEWALS_PER_TIDYING: u32 = 12;

/// Interval between looks for blocks that other nodes have called back.
const CALLED_EVERY: Duration = Duration::from_millis(100);

/// A block without a change for this time is returned.
const BLOCK_IDLE: Duration = Duration::from_secs(30);

/// Interval between folds if fewer entries arrive than one fold takes.
const FOLD_EVERY: Duration = Duration::from_secs(1);

/// Entries per fold: other writers need their turn.
const FOLDED: u32 = 1_000;

impl Ledger {
    /// Settles open holds of ended runs, and holds of this run that are older than any request; returns their number.
    /// Returns blocks of ended runs, and blocks of this run that are not used.
    pub async fn sweep(&self) -> sqlx::Result<usize> {
        self.sweep_blocks().await?;
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
                    Ok(OperationEffect::Expired { charged, overrun }) => {
                        tracing::info!(%hold, %charged, %overrun, "settled an abandoned hold");
                        true
                    }
                    // The hold's node has settled it meanwhile.
                    Err(LedgerError::Refused(LedgerRefusal::Ended(_))) => true,
                    other => {
                        tracing::warn!(%hold, ?other, "cannot settle an abandoned hold");
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

    /// Returns blocks that other nodes have called back.
    pub(super) async fn return_called_blocks(self) {
        let returning = async || {
            let accounts = self.0.store.find_called(SWEPT).await?;
            let now = self.now();
            for account in &accounts {
                self.0.store.be_exact(account, now);
            }
            self.end_own_blocks(accounts).await;
            Ok::<_, sqlx::Error>(())
        };
        self.0
            .background
            .repeat(
                Periodic {
                    name: "return called blocks",
                    every: CALLED_EVERY,
                    first_after: Duration::ZERO,
                },
                returning,
            )
            .await;
    }

    /// Returns this run's blocks, before its end.
    pub(super) async fn return_all_blocks(&self) {
        loop {
            match self.0.store.find_idle_blocks(Millis(i64::MAX), SWEPT).await {
                Ok(accounts) if accounts.is_empty() => return,
                Ok(accounts) => {
                    if self.end_own_blocks(accounts).await == 0 {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot return this node's blocks; other nodes do");
                    return;
                }
            }
        }
    }

    async fn sweep_blocks(&self) -> sqlx::Result<()> {
        let Some(now) = self.0.time.ask_if_steady().await? else {
            return Ok(());
        };
        let idle_since = Millis(now.0 - BLOCK_IDLE.as_millis() as i64);
        let idle = self.0.store.find_idle_blocks(idle_since, SWEPT).await?;
        self.end_own_blocks(idle).await;
        loop {
            let orphaned = self.0.store.find_orphaned_blocks(now, SWEPT).await?;
            let found = orphaned.len();
            if self.end_blocks(orphaned).await == 0 || found < SWEPT as usize {
                return Ok(());
            }
        }
    }

    /// Returns this run's blocks of these accounts; returns the number of accounts for which this succeeded.
    async fn end_own_blocks(&self, accounts: Vec<AccountId>) -> usize {
        let ends = accounts.into_iter().map(|account| {
            let boot_id = self.0.boot_id.clone();
            let unless_leased = false;
            let end = Action::EndBlocks {
                boot_id,
                unless_leased,
            };
            (account, end)
        });
        self.end_blocks(ends.collect()).await
    }

    /// Returns blocks of accounts; returns the number of operations that succeeded.
    async fn end_blocks(&self, ends: Vec<(AccountId, Action)>) -> usize {
        let deadline = Instant::now() + SWEEP_TIMEOUT;
        let ends = ends.into_iter().map(|(account, end)| async move {
            match self.submit(&account, end, deadline).await {
                Ok(_) => true,
                Err(error) => {
                    tracing::warn!(%account, %error, "cannot return a block");
                    false
                }
            }
        });
        let ended = futures_util::future::join_all(ends).await;
        ended.into_iter().filter(|ended| *ended).count()
    }

    /// Ends paid plans without a renewal: begins a period of the free plan for each account. Collects owed credits from
    /// accounts that an earlier release left with free ones. Returns the number of accounts.
    pub async fn begin_due_periods(&self) -> sqlx::Result<usize> {
        let mut begun = 0;
        loop {
            let Some(now) = self.0.time.ask_if_steady().await? else {
                return Ok(begun);
            };
            let mut due = self.0.store.find_lapsed_accounts(now, SWEPT).await?;
            // Each operation collects.
            due.extend(self.0.store.find_uncollected_accounts(SWEPT).await?);
            let deadline = Instant::now() + SWEEP_TIMEOUT;
            let found = due.len();
            let resets = due.into_iter().map(|account| async move {
                let reset = self.submit(&account, Action::ResetPeriod, deadline).await;
                if let Err(error) = &reset {
                    tracing::warn!(%account, %error, "cannot begin a period");
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

    /// Deletes leases, idempotency keys and expired holds after their retention time.
    pub async fn forget_old(&self) -> sqlx::Result<()> {
        let Some(now) = self.0.time.ask_if_steady().await? else {
            return Ok(());
        };
        self.0.store.forget_leases(now).await?;
        self.0.store.forget_expired_holds(now).await?;
        self.0.store.forget_keys(now).await
    }

    /// Renews the lease while the committer runs, independent of slow tasks.
    pub(super) async fn keep_lease(self) {
        let mut ticks = self.ticks();
        let mut was_wrong = false;
        while !self.0.submit.is_closed() {
            if self.0.health.trouble().is_none() {
                ticks.tick().await;
            } else {
                // With an idle committer, only this renewal shows that the database accepts writes again.
                tokio::time::sleep(self.0.lease.renew_every.min(TROUBLED_RENEWAL)).await;
            }
            if let Err(error) = self.renew_lease().await {
                tracing::warn!(%error, "cannot renew the ledger's lease");
            }
            let trouble = self.clock_trouble();
            if trouble.is_some() != was_wrong {
                match &trouble {
                    Some(trouble) => {
                        tracing::error!("{trouble}; readiness fails until the clock is right")
                    }
                    None => tracing::info!("this machine's clock is correct again"),
                }
            }
            was_wrong = trouble.is_some();
        }
        tracing::error!(
            "the ledger's committer has stopped; the lease expires, and other nodes end its holds"
        );
    }

    fn ticks(&self) -> tokio::time::Interval {
        let mut ticks = tokio::time::interval(self.0.lease.renew_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// Ends abandoned holds, begins periods, and deletes old rows.
    pub(super) async fn tidy(self) {
        let renew_every = self.0.lease.renew_every;
        let sweep = async || match self.is_leased() {
            true => self.sweep().await.map(drop),
            // A node that was suspended must not treat its own holds as another node's.
            false => Ok(()),
        };
        let often = Periodic {
            name: "settle abandoned holds",
            every: renew_every,
            // Holds of a node that has crashed wait for it.
            first_after: Duration::ZERO,
        };
        let rarely = |name| Periodic {
            name,
            every: renew_every * RENEWALS_PER_TIDYING,
            first_after: renew_every * RENEWALS_PER_TIDYING,
        };
        let periods = rarely("end paid plans without a renewal");
        let rows = rarely("delete old leases, expired holds and idempotency keys");
        let background = &self.0.background;
        tokio::join!(
            background.repeat(often, sweep),
            background.repeat(periods, async || self.begin_due_periods().await.map(drop)),
            background.repeat(rows, || self.forget_old()),
        );
    }

    /// Folds entries into their sums and indexes, in batches, until none is left.
    pub(super) async fn fold(self) {
        let mut ticks = tokio::time::interval(FOLD_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut fold = Fold::new(self.0.store.clone());
        loop {
            ticks.tick().await;
            // SQLite blocks the thread during disk writes.
            let runtime = Handle::current();
            let folding = spawn_blocking(move || {
                let folded = runtime.block_on(fold.step(FOLDED));
                (fold, folded)
            });
            let Ok((returned, folded)) = folding.await else {
                tracing::error!(
                    "folding the ledger's entries has panicked; reads sum them instead"
                );
                return;
            };
            fold = returned;
            match folded {
                Ok(folded) if folded == u64::from(FOLDED) => ticks.reset_immediately(),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "cannot fold the ledger's entries"),
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

    /// Renews the lease of a node that was unavailable for longer than its lease: suspended, or without its database.
    pub(super) async fn renew_lapsed_lease(&self) -> sqlx::Result<()> {
        let _one_at_a_time = self.0.renewing.lock().await;
        if self.is_leased() {
            return Ok(());
        }
        self.renew_lease().await
    }

    pub(super) async fn renew_lease(&self) -> sqlx::Result<()> {
        let inner = &*self.0;
        // This reads the node's clock before the database's, and both before the write: the node's own view of the
        // lease ends first.
        let leased_until = inner.time.monotonic() + inner.lease.valid_for;
        let renewed = async {
            let now = inner.time.ask().await?;
            let until = Millis(now.0 + inner.lease.valid_for.as_millis() as i64);
            inner.store.renew_lease(&inner.boot_id, now, until).await
        };
        let renewed = renewed.await;
        inner.health.wrote(&renewed);
        renewed?;
        if !self.is_leased() {
            // Other nodes may have returned them.
            inner.store.forget_blocks();
        }
        let leased_until_ms = leased_until.as_millis() as u64;
        inner
            .leased_until_ms
            .fetch_max(leased_until_ms, Ordering::AcqRel);
        Ok(())
    }
}
