//! A node's background tasks for the ledger: it renews its lease, folds its log and those of failed nodes, ends their
//! holds, ends paid plans without a renewal, folds entries, and deletes old rows.
//!
//! Sweeps pause for 10 minutes if the database's clock jumps by more than 5 s: with a wrong time they would end the
//! holds of all nodes and the paid plans of all accounts.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior};
use weir_storage::background::Periodic;
use weir_storage::clock::Millis;

use super::append::LogMessage;
use super::{Ledger, LedgerError};
use crate::committer::CommitterMessage;
use crate::log::{LogCheckpoint, LogRecord};
use crate::openings::FoldRequest;
use crate::operation::{AccountId, Action, BootId, LedgerRefusal, OperationEffect};
use crate::store::{EndedLog, Fold, LogContent};

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
const BLOCK_IDLE: Duration = Duration::from_secs(60);

/// Interval between looks for accounts whose settlements are to be folded.
const FOLD_TAILS_EVERY: Duration = Duration::from_millis(250);

/// Age of the first settlement of an account at which all of them are folded: the balances that other nodes show are as old. A
/// shorter time makes more folds of fewer settlements.
const FOLDED_AFTER: Duration = Duration::from_secs(1);

/// Interval between writes of checkpoints, unless they are due more often.
const CHECKPOINTS_EVERY: Duration = Duration::from_millis(500);

/// Interval between folds if fewer entries arrive than one fold takes.
const FOLD_EVERY: Duration = Duration::from_secs(1);

/// Entries per fold: other writers need their turn.
const FOLDED: u32 = 1_000;

impl Ledger {
    /// Settles open holds of ended runs, and holds of this run that are older than any request; returns their number.
    /// Before, on PostgreSQL, folds the logs of ended runs, returns their blocks, and returns blocks of this run that are not
    /// used.
    pub async fn sweep(&self) -> sqlx::Result<usize> {
        if self.0.store.has_blocks() {
            self.sweep_logs().await?;
            self.sweep_blocks().await?;
        }
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
            orphans.extend(overdue.await?);
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

    /// Folds the logs of runs without a valid lease, once nothing more can be appended to them.
    async fn sweep_logs(&self) -> sqlx::Result<()> {
        let Some(now) = self.0.time.ask_if_steady().await? else {
            return Ok(());
        };
        self.0.store.fence_ended_runs(now).await?;
        self.fold_ended_logs().await
    }

    /// Folds what earlier runs on this SQLite file have left in their logs, before this one serves.
    pub(super) async fn fold_earlier_runs(&self) -> sqlx::Result<()> {
        let (store, run) = (&self.0.store, &self.0.boot_id);
        store.fence_other_runs(run, self.now()).await?;
        self.fold_ended_logs().await
    }

    async fn fold_ended_logs(&self) -> sqlx::Result<()> {
        loop {
            let rows = self.0.store.find_ended_logs().await?;
            if rows.is_empty() {
                return Ok(());
            }
            for EndedLog {
                run,
                ordinal,
                content,
            } in rows
            {
                match content {
                    LogContent::Records(records) => {
                        self.fold_ended(&run, &records).await?;
                        let deleted = self.0.store.delete_log(&run, ordinal).await;
                        deleted.map_err(|error| sqlx::Error::Io(io::Error::other(error)))?;
                    }
                    LogContent::Checkpoints(checkpoints, stored) => {
                        self.end_noted(&run, &checkpoints).await?;
                        let store = &self.0.store;
                        store.forget_ended_checkpoints(&run, &stored).await?;
                    }
                }
            }
        }
    }

    /// Folds a row of an ended run's log. Its run, or another node, may have folded some records already.
    async fn fold_ended(&self, run: &BootId, records: &[LogRecord]) -> sqlx::Result<()> {
        let deadline = Instant::now() + SWEEP_TIMEOUT;
        let folds = records.iter().map(|record| async move {
            let ended = self.submit_operation(record.operation(run), deadline);
            (record, ended.await)
        });
        let folds = futures_util::future::join_all(folds).await;
        let mut folded = 0;
        for (record, ended) in folds {
            match ended {
                Ok(effect) if effect == record.effect() => folded += 1,
                Err(error @ (LedgerError::Late | LedgerError::Unavailable)) => {
                    tracing::warn!(%error, run = run.as_str(), "cannot fold an ended run's log yet");
                    return Err(sqlx::Error::PoolTimedOut);
                }
                other => tracing::error!(
                    account = %record.account(),
                    hold = %record.hold(),
                    told = ?record.effect(),
                    outcome = ?other,
                    "a settlement in an ended run's log cannot be applied; see the account's holds"
                ),
            }
        }
        tracing::info!(
            run = run.as_str(),
            folded,
            "folded settlements of an ended run"
        );
        Ok(())
    }

    /// Ends the holds that an ended run had in memory, at their checkpoints. Its log, which is folded, may have ended some of them.
    async fn end_noted(&self, run: &BootId, noted: &[LogCheckpoint]) -> sqlx::Result<()> {
        let deadline = Instant::now() + SWEEP_TIMEOUT;
        let ends = noted.iter().map(|noted| async move {
            let hold = noted.operation(run);
            let expire = Action::Expire {
                hold: noted.hold().clone(),
            };
            let expire = self.operation(noted.account(), expire);
            // Both are in the committer's queue before the first one is done, and in this order.
            let (_, ended) = tokio::join!(
                biased;
                self.submit_operation(hold, deadline),
                self.submit_operation(expire, deadline)
            );
            (noted, ended)
        });
        for (noted, ended) in futures_util::future::join_all(ends).await {
            match ended {
                Ok(OperationEffect::Expired { charged, overrun }) => {
                    tracing::info!(hold = %noted.hold(), %charged, %overrun, "settled a hold of an ended run");
                }
                // Its run has ended it.
                Err(LedgerError::Refused(LedgerRefusal::Ended(_))) => {}
                Err(error @ (LedgerError::Late | LedgerError::Unavailable)) => {
                    tracing::warn!(%error, run = run.as_str(), "cannot end an ended run's holds yet");
                    return Err(sqlx::Error::PoolTimedOut);
                }
                other => tracing::error!(
                    account = %noted.account(),
                    hold = %noted.hold(),
                    outcome = ?other,
                    "a hold of an ended run cannot be ended; see the account's holds"
                ),
            }
        }
        Ok(())
    }

    /// Writes this run's checkpoints. A fold may wait for an account's lock, so this is a task of its own.
    pub(super) async fn keep_checkpoints(self) {
        let writing = || self.write_checkpoints();
        let every = CHECKPOINTS_EVERY.min(self.0.lease.checkpoint_every);
        self.0
            .background
            .repeat(
                Periodic {
                    name: "write checkpoints of requests",
                    every,
                    first_after: every,
                },
                writing,
            )
            .await;
    }

    /// Folds this run's tails.
    pub(super) async fn fold_tails(self) {
        let folding = async || {
            self.fold_tails_once(FOLDED_AFTER).await;
            Ok::<_, sqlx::Error>(())
        };
        self.0
            .background
            .repeat(
                Periodic {
                    name: "fold settlements into accounts",
                    every: FOLD_TAILS_EVERY,
                    first_after: FOLD_TAILS_EVERY,
                },
                folding,
            )
            .await;
    }

    async fn write_checkpoints(&self) -> sqlx::Result<()> {
        let (store, run) = (&self.0.store, &self.0.boot_id);
        let Some((fence, noted)) = store.openings().take_noted(run) else {
            return Ok(());
        };
        let written = store.write_checkpoints(run, fence, &noted).await;
        if written.is_err() {
            store.openings().note_again();
        }
        written
    }

    /// Folds the tails of accounts whose first settlement is at least this old.
    pub(super) async fn fold_tails_once(&self, age: Duration) {
        let openings = self.0.store.openings();
        self.0.health.count_tail(openings.tail_len());
        let accounts = openings.accounts_with_tails(age);
        let deadline = Instant::now() + SWEEP_TIMEOUT;
        let folds = accounts.into_iter().map(|account| async move {
            let fold = self.operation(&account, Action::Fold);
            if let Err(error) = self.submit_operation(fold, deadline).await {
                tracing::warn!(%account, %error, "cannot fold settlements into their account");
            }
        });
        futures_util::future::join_all(folds).await;
        // An idle log would keep its last rows.
        let _ = self.0.log.send(LogMessage::Trim);
    }

    /// Folds tails of accounts for readers.
    pub(super) async fn fold_for_readers(self, mut wanted: mpsc::UnboundedReceiver<FoldRequest>) {
        while let Some((account, reply)) = wanted.recv().await {
            let fold = self.operation(&account, Action::Fold);
            self.send_soon(CommitterMessage::Operation(fold, Some(reply)));
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
        let renewed = renewed?;
        // A batch may have met the fence before.
        let is_fenced = renewed.fence != inner.store.openings().fence();
        // Other nodes may have returned its blocks.
        if is_fenced || inner.store.has_blocks() && !self.is_leased() {
            inner.store.forget(renewed.fence);
        }
        inner.appends.store(renewed.all_fold, Ordering::Release);
        let leased_until_ms = leased_until.as_millis() as u64;
        inner
            .leased_until_ms
            .fetch_max(leased_until_ms, Ordering::AcqRel);
        Ok(())
    }
}
