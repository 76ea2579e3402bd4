//! The ledger: what each account has, what of it is held, and everything that has changed it.
//!
//! - [`account`]: what an operation does, as plain functions; [`operation`]: what can be asked for.
//! - [`committer`]: many operations in one transaction; [`store`]: the SQL of it.
//! - [`verify`]: whether what is stored is sound.
//! - [`Ledger`] is what requests use.
//!
//! **Invariant:** whoever is told that something is done will find it done, whatever crashes.
//! **Invariant:** a hold ends once. One whose node went away ends within the node's lease and one sweep, at
//! its last checkpoint; if the node comes back with more to say, the difference is posted.
//!
//! Nodes compare their clocks only through leases, which are renewed many times before they lapse: clocks
//! that differ by some seconds do no harm, and one that is far off costs late settlements, not amounts.
//!
//! To add an operation, add a variant to [`operation::Action`] and what it does to [`account`]; if it posts
//! an entry of a new kind, a migration that lets it in.

pub mod account;
pub mod committer;
pub mod operation;
pub mod store;
pub mod verify;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::account::Account;
pub use self::operation::{
    AccountId, Action, Checkpoint, Done, Grant, HoldId, Open, Operation, OperationId, Outcome,
    Pool, Refund, Refusal, Settle, Source, TopUp, Usage,
};
pub use self::store::{Store, StoreError};

use self::committer::{Answer, Submitted};
use super::Credits;
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::ids;

/// Operations that wait for the committer; whoever brings more waits to hand them over.
const QUEUE: usize = 4_096;

/// Holds that a sweep settles in one go.
const SWEPT: u32 = 256;

/// How long a sweep waits for what it has asked for, before it looks again.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Renewals between two rounds of beginning periods and forgetting what is old: a minute, by default.
const RENEWALS_PER_TIDYING: u32 = 12;

/// How long a node's holds are its own.
#[derive(Debug, Clone, Copy)]
pub struct LeaseSettings {
    /// How often the lease is renewed, and holds of lapsed ones are looked for. Default: 5 s.
    pub renew_every: Duration,
    /// How long it is valid from then. Default: 30 s.
    pub valid_for: Duration,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            renew_every: Duration::from_secs(5),
            valid_for: Duration::from_secs(30),
        }
    }
}

/// The ledger as requests use it. Cheap to clone.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

struct Inner {
    submit: mpsc::Sender<Submitted>,
    store: Store,
    clock: Clock,
    boot_id: String,
    lease: LeaseSettings,
    /// Until when this node's lease is known to be valid, in milliseconds of the monotonic clock.
    leased_until_ms: AtomicU64,
    renewing: Mutex<()>,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

/// What a request was charged in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    /// What the account paid.
    pub charged: Credits,
    /// What it could not pay: our loss.
    pub overrun: Credits,
}

/// Why an operation was not done, or is not known to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// It was refused, and nothing has changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The deadline has passed. A hold is not opened, or released again; everything else is still done.
    #[error("the ledger did not answer in time")]
    Late,
    /// This node can get no valid lease, or the ledger has stopped.
    #[error("the ledger is not available")]
    Unavailable,
    /// The database refuses the operation, which is a defect of weir.
    #[error("the database refuses: {0}")]
    Rejected(String),
}

impl Ledger {
    /// Starts a node's committer, its lease and its sweeps.
    pub async fn start(
        database: Database,
        clock: Clock,
        lease: LeaseSettings,
    ) -> sqlx::Result<Self> {
        let (submit, submitted) = mpsc::channel(QUEUE);
        let dialect = database.dialect();
        let store = Store::new(database);
        let ledger = Self(Arc::new(Inner {
            submit,
            store: store.clone(),
            clock,
            boot_id: ids::boot_id(),
            lease,
            leased_until_ms: AtomicU64::new(0),
            renewing: Mutex::new(()),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        }));
        ledger.renew_lease().await?;
        committer::start(store, submitted, dialect)?;
        let keeping = ledger.clone().keep_lease();
        let stopping = ledger.0.stopping.clone();
        tokio::spawn(stopping.clone().run_until_cancelled_owned(keeping));
        tokio::spawn(stopping.run_until_cancelled_owned(ledger.clone().tidy()));
        Ok(ledger)
    }

    /// The id of this run, which its holds carry.
    pub fn boot_id(&self) -> &str {
        &self.0.boot_id
    }

    /// Reserves credits. When this returns `Ok`, the hold is durable, and the caller must end it.
    ///
    /// When it does not, or is dropped before it returns, there is no hold, or there soon is none.
    /// `open.boot_id` is filled in.
    pub async fn open(
        &self,
        account: &AccountId,
        open: Open,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        if !self.is_leased() {
            // Others would take its holds for abandoned.
            match timeout_at(deadline, self.renew_lapsed_lease()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "renewing the ledger's lapsed lease");
                    return Err(LedgerError::Unavailable);
                }
                Err(_) => return Err(LedgerError::Late),
            }
        }
        let open = Open {
            boot_id: self.0.boot_id.clone(),
            ..open
        };
        let operation = self.operation(account, Action::Open(open));
        let (reply, answer) = oneshot::channel();
        let mut opening = Opening {
            ledger: self,
            release: committer::release_of(operation.clone()),
            answer,
        };
        let submitted = Submitted {
            operation,
            reply: Some(reply),
        };
        match timeout_at(deadline, self.0.submit.reserve()).await {
            Ok(Ok(permit)) => permit.send(submitted),
            Ok(Err(_)) => return Err(LedgerError::Unavailable),
            Err(_) => return Err(LedgerError::Late),
        }
        let answer = timeout_at(deadline, &mut opening.answer).await;
        let answer = answer.map_err(|_| LedgerError::Late)?;
        opening.release = None;
        done(answer).map(drop)
    }

    /// Ends a hold: so much was used. If the deadline passes, settling goes on.
    pub async fn settle(
        &self,
        account: &AccountId,
        settle: Settle,
        deadline: Instant,
    ) -> Result<Settlement, LedgerError> {
        match self
            .submit(account, Action::Settle(settle), deadline)
            .await?
        {
            Done::Settled { charged, overrun } => Ok(Settlement { charged, overrun }),
            other => unreachable!("a settlement settles: {other:?}"),
        }
    }

    /// Ends a hold: nothing was delivered. If the deadline passes, releasing goes on.
    pub async fn release(
        &self,
        account: &AccountId,
        hold: HoldId,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        let action = Action::Release { hold };
        self.submit(account, action, deadline).await.map(drop)
    }

    /// Notes what was used so far, which is charged if this node does not come to settle.
    pub async fn checkpoint(
        &self,
        account: &AccountId,
        checkpoint: Checkpoint,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        let action = Action::Checkpoint(checkpoint);
        self.submit(account, action, deadline).await.map(drop)
    }

    /// The same, for whoever does not wait. Where many wait already it is left out: a later one says more.
    pub fn note(&self, account: &AccountId, checkpoint: Checkpoint) {
        let operation = self.operation(account, Action::Checkpoint(checkpoint));
        let reply = None;
        let _ = self.0.submit.try_send(Submitted { operation, reply });
    }

    /// Ends a hold at its last checkpoint, as if this node had gone away: for whoever can neither settle nor wait.
    pub fn abandon(&self, account: &AccountId, hold: HoldId) {
        let operation = self.operation(account, Action::Expire { hold });
        let reply = None;
        self.send_soon(Submitted { operation, reply });
    }

    /// Does any operation. If the deadline passes, it is done all the same.
    ///
    /// To open a hold, see [`Self::open`], which does not leave one behind.
    pub async fn submit(
        &self,
        account: &AccountId,
        action: Action,
        deadline: Instant,
    ) -> Result<Done, LedgerError> {
        let (reply, answer) = oneshot::channel();
        let submitted = Submitted {
            operation: self.operation(account, action),
            reply: Some(reply),
        };
        match timeout_at(deadline, self.0.submit.reserve()).await {
            Ok(Ok(permit)) => permit.send(submitted),
            Ok(Err(_)) => return Err(LedgerError::Unavailable),
            Err(_) => {
                let submit = self.0.submit.clone();
                self.0
                    .tasks
                    .spawn(async move { submit.send(submitted).await.is_ok() });
                return Err(LedgerError::Late);
            }
        }
        match timeout_at(deadline, answer).await {
            Ok(answer) => done(answer),
            Err(_) => Err(LedgerError::Late),
        }
    }

    /// What an account has, the period begun that is due; `None` if there is no such user.
    pub async fn find_account(&self, id: &AccountId) -> sqlx::Result<Option<Account>> {
        let store = &self.0.store;
        let account = match store.find_account(id).await? {
            Some(account) => Some(account),
            None => store
                .find_user_since(id)
                .await?
                .map(|since| Account::new(id.clone(), since)),
        };
        Ok(account.map(|mut account| {
            account.begin_due_period(self.0.clock.now());
            account
        }))
    }

    /// Waits until everything that was asked for is done, and gives the lease up. Callers must be gone.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        // The committer ends when nothing can come any more; this handle alone would keep it waiting.
        let (reply, answer) = oneshot::channel();
        let nothing = Operation {
            account: AccountId(String::new()),
            at: self.0.clock.now(),
            action: Action::ResetPeriod,
        };
        let last = Submitted {
            operation: nothing,
            reply: Some(reply),
        };
        if self.0.submit.send(last).await.is_ok() {
            // In order: when this is done, all before it is.
            let _ = answer.await;
        }
        let now = self.0.clock.now();
        if let Err(error) = self.0.store.end_lease(&self.0.boot_id, now).await {
            tracing::warn!(%error, "giving up the ledger's lease; it lapses by itself");
        }
    }

    /// Settles the open holds of runs that are over, and returns how many there were.
    pub async fn sweep(&self) -> sqlx::Result<usize> {
        let mut swept = 0;
        loop {
            let now = self.0.clock.now();
            let orphans = self.0.store.find_orphans(now, SWEPT).await?;
            let deadline = Instant::now() + SWEEP_TIMEOUT;
            let found = orphans.len();
            let ended = orphans.into_iter().map(|orphan| async move {
                let hold = orphan.hold.clone();
                let action = Action::Expire { hold: orphan.hold };
                match self.submit(&orphan.account, action, deadline).await {
                    Ok(Done::Expired { charged, overrun }) => {
                        tracing::info!(%hold, %charged, %overrun, "a hold whose node went away is settled");
                        true
                    }
                    // Its node has settled it after all.
                    Err(LedgerError::Refused(Refusal::Ended(_))) => true,
                    other => {
                        tracing::warn!(%hold, ?other, "settling a hold whose node went away");
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

    /// Begins the periods that are due of accounts that nobody uses, and returns how many there were.
    pub async fn begin_due_periods(&self) -> sqlx::Result<usize> {
        let mut begun = 0;
        loop {
            let due = self
                .0
                .store
                .find_due_accounts(self.0.clock.now(), SWEPT)
                .await?;
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

    /// Renews the lease for as long as the committer is there, whatever else takes its time.
    async fn keep_lease(self) {
        let mut ticks = self.ticks();
        while !self.0.submit.is_closed() {
            ticks.tick().await;
            if let Err(error) = self.renew_lease().await {
                tracing::warn!(%error, "renewing the ledger's lease");
            }
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
    async fn tidy(self) {
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
                    tracing::warn!(%error, "beginning the periods that are due");
                }
                let now = self.0.clock.now();
                if let Err(error) = self.0.store.forget(now).await {
                    tracing::warn!(%error, "forgetting old leases and idempotency keys");
                }
            }
        }
    }

    fn is_leased(&self) -> bool {
        let now_ms = self.0.clock.monotonic().as_millis() as u64;
        now_ms < self.0.leased_until_ms.load(Ordering::Acquire)
    }

    /// For a node that was away for longer than its lease: asleep, or without its database.
    async fn renew_lapsed_lease(&self) -> sqlx::Result<()> {
        let _one_at_a_time = self.0.renewing.lock().await;
        if self.is_leased() {
            return Ok(());
        }
        self.renew_lease().await
    }

    async fn renew_lease(&self) -> sqlx::Result<()> {
        let inner = &*self.0;
        // Both clocks are read before the database writes: the node's own view ends first.
        let leased_until = inner.clock.monotonic() + inner.lease.valid_for;
        let now = inner.clock.now();
        let until = Millis(now.0 + inner.lease.valid_for.as_millis() as i64);
        inner.store.renew_lease(&inner.boot_id, now, until).await?;
        let leased_until_ms = leased_until.as_millis() as u64;
        inner
            .leased_until_ms
            .fetch_max(leased_until_ms, Ordering::AcqRel);
        Ok(())
    }

    fn send_soon(&self, submitted: Submitted) {
        if let Err(mpsc::error::TrySendError::Full(submitted)) = self.0.submit.try_send(submitted) {
            let submit = self.0.submit.clone();
            let sending = async move { submit.send(submitted).await.is_ok() };
            self.0.tasks.spawn(sending);
        }
    }

    fn operation(&self, account: &AccountId, action: Action) -> Operation {
        Operation {
            account: account.clone(),
            at: self.0.clock.now(),
            action,
        }
    }
}

/// A hold that is being opened. Dropped before the outcome is seen, it leaves none behind.
struct Opening<'a> {
    ledger: &'a Ledger,
    release: Option<Operation>,
    answer: oneshot::Receiver<Answer>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let Some(operation) = self.release.take() else {
            return;
        };
        // From here on the committer sees that nobody waits. What it said before that is seen here.
        self.answer.close();
        if let Ok(Ok(Ok(Done::Opened))) = self.answer.try_recv() {
            let reply = None;
            self.ledger.send_soon(Submitted { operation, reply });
        }
    }
}

fn done(answer: Result<Answer, oneshot::error::RecvError>) -> Result<Done, LedgerError> {
    match answer {
        Ok(Ok(outcome)) => Ok(outcome?),
        Ok(Err(error)) => Err(LedgerError::Rejected(error)),
        Err(_) => Err(LedgerError::Unavailable),
    }
}

/// Does one operation without a [`Ledger`], as a command does: tried again while its outcome is unknown.
pub async fn commit_one(store: &Store, operation: Operation) -> Result<Done, LedgerError> {
    for _ in 0..3 {
        match store.commit(std::slice::from_ref(&operation)).await {
            Ok(mut outcomes) => {
                let outcome = outcomes.pop().ok_or(LedgerError::Unavailable)?;
                return Ok(outcome?);
            }
            Err(StoreError::Rejected(error)) => return Err(LedgerError::Rejected(error)),
            Err(error) => {
                tracing::warn!(%error, "trying again");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
    Err(LedgerError::Unavailable)
}
