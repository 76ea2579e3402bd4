//! The ledger for requests: one committer and one log for each node, its lease, and its background tasks.

mod append;
mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_storage::Database;
use weir_storage::background::Background;
use weir_storage::clock::{Clock, Millis};
use weir_storage::database::{DatabaseClock, SqlDialect, at_start};

use self::append::LogMessage;
use crate::account::Account;
use crate::budgets::BudgetPart;
use crate::committer::{self, CommitterMessage};
use crate::credits::Credits;
use crate::health::{CommitterHealth, LedgerMetrics};
use crate::operation::{
    AccountId, Action, BootId, Checkpoint, CommitResult, HoldId, IdempotencyClaim, LedgerRefusal,
    OpenHold, Operation, OperationEffect, Settle,
};
use crate::settings::LeaseSettings;
use crate::store::history::KeyedRequest;
use crate::store::{LedgerStore, LedgerStoreError};
use crate::usage::RequestUsage;

/// The committer's queue; further callers wait for a place.
const QUEUE: usize = 4_096;

/// With more unfolded records in the log, no request begins: a reader, and a node that takes over, would wait too long.
const MOST_UNFOLDED: usize = 50_000;

/// Maximum time that a command waits for the credits of a silent node: its lease, by default, and a sweep.
const SILENT_NODE_ENDS: Duration = Duration::from_secs(40);

/// The pause before a command repeats an operation.
const COMMAND_PAUSE: Duration = Duration::from_millis(200);

/// The first pause of an opening whose credits other nodes reserve; each further pause is twice as long.
const CALL_BACK_PAUSE: Duration = Duration::from_millis(25);

/// The interval at which other nodes look for called blocks: shorter pauses would only repeat attempts.
const LONGEST_CALL_BACK_PAUSE: Duration = Duration::from_millis(100);

/// The ledger for requests. Cheap to clone.
#[derive(Clone)]
pub struct Ledger(Arc<LedgerInner>);

struct LedgerInner {
    submit: mpsc::Sender<CommitterMessage>,
    /// Unlimited, because each of its records is the end of a request that holds its own place elsewhere.
    log: mpsc::UnboundedSender<LogMessage>,
    /// Whether all live nodes fold the logs of others.
    appends: AtomicBool,
    store: LedgerStore,
    time: DatabaseClock,
    boot_id: BootId,
    lease: LeaseSettings,
    /// The end of this node's lease, in milliseconds of the monotonic clock.
    leased_until_ms: AtomicU64,
    renewing: Mutex<()>,
    health: Arc<CommitterHealth>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    background: Background,
}

/// The final charge of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    /// The credits that the account paid.
    pub charged: Credits,
    /// The rest of the price, which the account could not pay: our loss.
    pub overrun: Credits,
}

/// The reason why an operation failed, or has an unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The ledger rejected the operation, and nothing has changed.
    #[error(transparent)]
    Refused(#[from] LedgerRefusal),
    /// The deadline has passed. A hold is not opened, or is released again; every other operation is still done.
    #[error("the ledger did not respond in time")]
    Late,
    /// This node has no valid lease, or the ledger has stopped.
    #[error("the ledger is not available")]
    Unavailable,
    /// Other nodes have reserved the needed credits, and have not returned them before the deadline: a retry may succeed.
    #[error("other nodes hold the needed credits in reserve")]
    Busy,
    /// The database rejects the operation, which is a defect of weir.
    #[error("the database rejects the operation: {0}")]
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
        let (log, ended) = mpsc::unbounded_channel();
        let time = DatabaseClock::start(database.clone(), clock).await?;
        let dialect = database.dialect();
        let boot_id = BootId::fresh();
        let store = LedgerStore::of_run(database, boot_id.clone());
        let health = Arc::new(CommitterHealth::new());
        let ledger = Self(Arc::new(LedgerInner {
            submit,
            log,
            appends: AtomicBool::new(false),
            store: store.clone(),
            time,
            boot_id,
            lease,
            leased_until_ms: AtomicU64::new(0),
            renewing: Mutex::new(()),
            health: health.clone(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            background: Background::default(),
        }));
        at_start(|| ledger.renew_lease()).await?;
        committer::start(store.clone(), submitted, dialect, health.clone())?;
        if dialect == SqlDialect::Sqlite {
            at_start(|| ledger.fold_earlier_runs()).await?;
        }
        let keeping = ledger.clone().keep_lease();
        let stopping = ledger.0.stopping.clone();
        tokio::spawn(stopping.clone().run_until_cancelled_owned(keeping));
        tokio::spawn(
            stopping
                .clone()
                .run_until_cancelled_owned(ledger.clone().tidy()),
        );
        let boot_id = ledger.0.boot_id.clone();
        let submit = ledger.0.submit.clone();
        let appending = append::run(store, boot_id, ended, submit, dialect, health);
        committer::spawn_writer("ledger log", dialect, appending)?;
        let (folding, wanted) = mpsc::unbounded_channel();
        ledger.0.store.openings().fold_by(folding);
        let folding = ledger.clone().fold_for_readers(wanted);
        tokio::spawn(stopping.clone().run_until_cancelled_owned(folding));
        let folding = ledger.clone().fold_tails();
        tokio::spawn(stopping.clone().run_until_cancelled_owned(folding));
        if dialect == SqlDialect::Postgres {
            let noting = ledger.clone().keep_checkpoints();
            tokio::spawn(stopping.clone().run_until_cancelled_owned(noting));
            let returning = ledger.clone().return_called_blocks();
            tokio::spawn(stopping.clone().run_until_cancelled_owned(returning));
        }
        tokio::spawn(stopping.run_until_cancelled_owned(ledger.clone().fold()));
        Ok(ledger)
    }

    /// Returns the work that this node repeats for the ledger.
    pub fn background(&self) -> &Background {
        &self.0.background
    }

    /// Returns the id of this run, which its holds carry.
    pub fn boot_id(&self) -> &BootId {
        &self.0.boot_id
    }

    /// Returns the live nodes' runs, including this one.
    pub async fn live_runs(&self) -> sqlx::Result<Vec<BootId>> {
        self.0.store.live_runs(self.now()).await
    }

    /// Returns the reason why this node cannot charge, in words; `None` while it can.
    pub fn trouble(&self) -> Option<String> {
        if self.0.submit.is_closed() {
            return Some("its committer has stopped, and only a restart helps".to_owned());
        }
        self.0.health.trouble()
    }

    /// Returns the database's time, which decides about leases, periods and the expiry of keys.
    pub fn now(&self) -> Millis {
        self.0.time.now()
    }

    /// Returns the problem of this node's own clock, in words; `None` if it is close to the database's.
    pub fn clock_trouble(&self) -> Option<String> {
        self.0.time.trouble()
    }

    /// Returns the ledger's metrics since the start.
    pub fn metrics(&self) -> &LedgerMetrics {
        self.0.health.metrics()
    }

    /// Returns the number of this node's open holds.
    pub async fn open_holds(&self) -> sqlx::Result<i64> {
        self.0.store.count_open_holds(&self.0.boot_id).await
    }

    /// Reserves credits. After `Ok`, the hold is durable, and the caller must end it.
    ///
    /// After an error, or if the future is dropped before it returns, no hold exists, or the committer releases it
    /// soon.
    pub async fn open(
        &self,
        account: &AccountId,
        open: OpenHold,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        self.renew_for_opening(deadline).await?;
        self.open_durably(account, open, None, deadline)
            .await
            .map(drop)
    }

    /// Reserves credits for a request with an optional idempotency key: claims the key together with the hold, or does
    /// neither. Returns the time of the hold. If anything is charged, the caller must also [end the
    /// key](crate::idempotency::ClaimedKey).
    ///
    /// Without a key, the hold may be in memory: if this process ends, so does the hold, and nothing is charged.
    pub async fn open_request(
        &self,
        account: &AccountId,
        mut open: OpenHold,
        claim: Option<IdempotencyClaim>,
        deadline: Instant,
    ) -> Result<Millis, LedgerError> {
        self.renew_for_opening(deadline).await?;
        if self.0.store.openings().tail_len() > MOST_UNFOLDED {
            return Err(LedgerError::Unavailable);
        }
        // While the database does not commit, no request may begin: its charge could not be stored.
        if claim.is_none() && self.0.health.is_well() {
            let at = self.now();
            let hold = open.hold.clone();
            let unopened = self
                .0
                .store
                .open_in_memory(account, at, open, &self.0.boot_id);
            match unopened {
                // A process that was suspended between the two may have opened it from a block that others returned.
                None if !self.is_leased() => {
                    self.release_soon(account, hold);
                    return Err(LedgerError::Unavailable);
                }
                None => {
                    self.0.health.count_opening(true);
                    return Ok(at);
                }
                Some(unopened) => open = unopened,
            }
        }
        self.0.health.count_opening(false);
        self.open_durably(account, open, claim, deadline).await
    }

    /// Renews a lapsed lease: without one, other nodes would treat new holds as abandoned.
    async fn renew_for_opening(&self, deadline: Instant) -> Result<(), LedgerError> {
        if self.is_leased() {
            return Ok(());
        }
        match timeout_at(deadline, self.renew_lapsed_lease()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot renew the ledger's expired lease");
                Err(LedgerError::Unavailable)
            }
            Err(_) => Err(LedgerError::Late),
        }
    }

    /// Opens a hold in a batch, as soon as other nodes have returned the credits that it needs. The deadline alone limits
    /// the wait: the first attempt may take long on a busy node, and then other nodes have not yet been asked.
    async fn open_durably(
        &self,
        account: &AccountId,
        open: OpenHold,
        claim: Option<IdempotencyClaim>,
        deadline: Instant,
    ) -> Result<Millis, LedgerError> {
        let boot_id = self.0.boot_id.clone();
        let action = Action::Open {
            open,
            boot_id,
            claim: claim.map(Box::new),
        };
        until_returned(deadline, || {
            let operation = self.operation(account, action.clone());
            self.open_once(operation, deadline)
        })
        .await
    }

    async fn open_once(
        &self,
        operation: Operation,
        deadline: Instant,
    ) -> Result<Millis, LedgerError> {
        let at = operation.at;
        let (reply, answer) = oneshot::channel();
        let mut opening = PendingHold {
            ledger: self,
            release: committer::release_of(operation.clone()),
            answer,
        };
        let submitted = CommitterMessage::Operation(operation, Some(reply));
        match timeout_at(deadline, self.0.submit.reserve()).await {
            Ok(Ok(permit)) => permit.send(submitted),
            Ok(Err(_)) => return Err(LedgerError::Unavailable),
            Err(_) => return Err(LedgerError::Late),
        }
        let answer = timeout_at(deadline, &mut opening.answer).await;
        let answer = answer.map_err(|_| LedgerError::Late)?;
        opening.release = None;
        done(answer).map(|_| at)
    }

    /// Settles a hold at this usage. After the deadline, settling continues in the background.
    pub async fn settle(
        &self,
        account: &AccountId,
        settle: Settle,
        deadline: Instant,
    ) -> Result<Settlement, LedgerError> {
        match self.end(account, Action::Settle(settle), deadline).await? {
            OperationEffect::Settled { charged, overrun } => Ok(Settlement { charged, overrun }),
            other => unreachable!("a settlement settles: {other:?}"),
        }
    }

    /// Releases a hold: nothing was delivered. After the deadline, releasing continues in the background.
    ///
    /// `cost` is the provider's price for the request, if any. It is reported, and charged to no account.
    pub async fn release(
        &self,
        account: &AccountId,
        hold: HoldId,
        cost: Option<Box<RequestUsage>>,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        let action = Action::Release { hold, cost };
        self.end(account, action, deadline).await.map(drop)
    }

    /// Ends a hold: by a record of the log, if the credits of its charge are certain, or by a batch.
    async fn end(
        &self,
        account: &AccountId,
        action: Action,
        deadline: Instant,
    ) -> Result<OperationEffect, LedgerError> {
        let (reply, answer) = oneshot::channel();
        match self.end_in_memory(account, action, Some(reply)) {
            Ok(()) => match timeout_at(deadline, answer).await {
                Ok(answer) => done(answer),
                Err(_) => Err(LedgerError::Late),
            },
            Err(operation) => self.submit_operation(*operation, deadline).await,
        }
    }

    /// Sends the end of a hold to the log; returns the operation if only a batch can do it.
    fn end_in_memory(
        &self,
        account: &AccountId,
        action: Action,
        reply: Option<oneshot::Sender<CommitResult>>,
    ) -> Result<(), Box<Operation>> {
        let operation = self.operation(account, action);
        if !self.0.appends.load(Ordering::Acquire) {
            return Err(Box::new(operation));
        }
        let record = self.0.store.end_in_memory(operation)?;
        // The log runs as long as this handle does.
        let _ = self.0.log.send(LogMessage::Record(record, reply));
        Ok(())
    }

    /// Releases a hold in the background.
    pub fn release_soon(&self, account: &AccountId, hold: HoldId) {
        let release = Action::Release { hold, cost: None };
        if let Err(operation) = self.end_in_memory(account, release, None) {
            self.send_soon(CommitterMessage::Operation(*operation, None));
        }
    }

    /// Records the usage so far, which is charged if this node cannot settle.
    pub async fn checkpoint(
        &self,
        account: &AccountId,
        checkpoint: Checkpoint,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        let action = Action::Checkpoint(checkpoint);
        self.submit(account, action, deadline).await.map(drop)
    }

    /// Records the usage so far in the background. A busy committer drops it: a later checkpoint has more.
    pub fn note(&self, account: &AccountId, checkpoint: Checkpoint) {
        let operation = self.operation(account, Action::Checkpoint(checkpoint));
        // On SQLite, a row of the log costs as much as one of the hold.
        let is_noted = self.0.store.has_blocks() && self.0.appends.load(Ordering::Acquire);
        let operation = match is_noted {
            true => match self.0.store.openings().note(operation) {
                Ok(()) => return,
                Err(operation) => *operation,
            },
            false => operation,
        };
        let _ = self
            .0
            .submit
            .try_send(CommitterMessage::Operation(operation, None));
    }

    /// Ends a hold at its last checkpoint, as after this node's failure: for a caller that can neither settle nor wait.
    pub fn abandon(&self, account: &AccountId, hold: HoldId) {
        let operation = self.operation(account, Action::Expire { hold });
        self.send_soon(CommitterMessage::Operation(operation, None));
    }

    /// Does an operation, as soon as other nodes have returned the credits that it needs. After the deadline, it is done all
    /// the same, except after [`LedgerError::Busy`].
    ///
    /// To open a hold, see [`Self::open`], which leaves no hold behind.
    pub async fn submit(
        &self,
        account: &AccountId,
        action: Action,
        deadline: Instant,
    ) -> Result<OperationEffect, LedgerError> {
        if !action.needs_returned_blocks() {
            let operation = self.operation(account, action);
            return self.submit_operation(operation, deadline).await;
        }
        until_returned(deadline, || {
            let operation = self.operation(account, action.clone());
            self.submit_operation(operation, deadline)
        })
        .await
    }

    async fn submit_operation(
        &self,
        operation: Operation,
        deadline: Instant,
    ) -> Result<OperationEffect, LedgerError> {
        let (reply, answer) = oneshot::channel();
        let submitted = CommitterMessage::Operation(operation, Some(reply));
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

    /// Returns an account, after beginning its period if it is due; `None` if the user does not exist.
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
            account.begin_due_period(self.0.time.now());
            account
        }))
    }

    /// Returns the credits that a new hold for these parts may take at the moment; none if the user does not exist.
    pub async fn spendable(
        &self,
        account: &AccountId,
        parts: &[BudgetPart],
        top_up_only: bool,
    ) -> sqlx::Result<Credits> {
        let at = self.now();
        if let Some(known) = self.0.store.spendable(account, parts, top_up_only, at) {
            return Ok(known);
        }
        let account = self.find_account(account).await?;
        Ok(account.map_or(Credits::ZERO, |account| {
            account.spendable(parts, top_up_only, at)
        }))
    }

    /// Returns the state of the request that claimed an idempotency key.
    pub async fn find_keyed(&self, account: &AccountId, key: &str) -> sqlx::Result<KeyedRequest> {
        self.0.store.find_keyed(account, key).await
    }

    /// Waits until all operations are done, and releases the lease. No caller may remain.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        // Operations of background tasks also belong to them.
        self.0.tasks.close();
        self.0.tasks.wait().await;
        // The committer ends when no sender remains, and this handle is a sender. The log hands what it cannot store to it.
        self.flush_log().await;
        let (reply, flushed) = oneshot::channel();
        if self
            .0
            .submit
            .send(CommitterMessage::Flush(reply))
            .await
            .is_ok()
        {
            let _ = flushed.await;
        }
        self.fold_tails_once(Duration::ZERO).await;
        self.return_all_blocks().await;
        self.flush_log().await;
        if self.0.store.has_blocks()
            && let Err(error) = self.0.store.forget_checkpoints(&self.0.boot_id).await
        {
            tracing::warn!(%error, "cannot delete the checkpoints of ended requests; another node does");
        }
        let now = self.0.time.now();
        if let Err(error) = self.0.store.end_lease(&self.0.boot_id, now).await {
            tracing::warn!(%error, "cannot release the ledger's lease; it expires by itself");
        }
    }

    /// Waits until all earlier records are in the log or in the committer's queue, and deletes the folded rows.
    async fn flush_log(&self) {
        let (reply, flushed) = oneshot::channel();
        if self.0.log.send(LogMessage::Flush(reply)).is_ok() {
            let _ = flushed.await;
        }
    }

    fn send_soon(&self, submitted: CommitterMessage) {
        if let Err(mpsc::error::TrySendError::Full(submitted)) = self.0.submit.try_send(submitted) {
            let submit = self.0.submit.clone();
            let sending = async move { submit.send(submitted).await.is_ok() };
            self.0.tasks.spawn(sending);
        }
    }

    fn operation(&self, account: &AccountId, action: Action) -> Operation {
        Operation {
            account: account.clone(),
            at: self.0.time.now(),
            action,
        }
    }
}

/// A hold that is being opened. Dropping it before the outcome arrives leaves no hold behind.
struct PendingHold<'a> {
    ledger: &'a Ledger,
    release: Option<Operation>,
    answer: oneshot::Receiver<CommitResult>,
}

impl Drop for PendingHold<'_> {
    fn drop(&mut self) {
        let Some(operation) = self.release.take() else {
            return;
        };
        // From here on the committer sees that no caller waits. An outcome that it sent before is handled here.
        self.answer.close();
        if let Ok(Ok(Ok(OperationEffect::Opened))) = self.answer.try_recv() {
            self.ledger
                .send_soon(CommitterMessage::Operation(operation, None));
        }
    }
}

fn done(
    answer: Result<CommitResult, oneshot::error::RecvError>,
) -> Result<OperationEffect, LedgerError> {
    match answer {
        Ok(Ok(outcome)) => Ok(outcome?),
        Ok(Err(error)) => Err(LedgerError::Rejected(error)),
        Err(_) => Err(LedgerError::Unavailable),
    }
}

/// Repeats an attempt until other nodes have returned the credits that it needs.
async fn until_returned<T, F: Future<Output = Result<T, LedgerError>>>(
    deadline: Instant,
    attempt: impl Fn() -> F,
) -> Result<T, LedgerError> {
    let mut pause = CALL_BACK_PAUSE;
    let mut is_blocked = false;
    loop {
        match attempt().await {
            Err(LedgerError::Refused(LedgerRefusal::Blocked)) => is_blocked = true,
            Err(LedgerError::Late) if is_blocked => return Err(LedgerError::Busy),
            done => return done,
        }
        let paused = timeout_at(deadline, tokio::time::sleep(pause)).await;
        paused.map_err(|_| LedgerError::Busy)?;
        pause = (2 * pause).min(LONGEST_CALL_BACK_PAUSE);
    }
}

/// Does one operation without a [`Ledger`], for a command or an operator: retries while its outcome is unknown, and waits
/// for other nodes to return the credits that it needs. A node that is silent loses them with its lease.
pub async fn commit_one(
    store: &LedgerStore,
    operation: Operation,
) -> Result<OperationEffect, LedgerError> {
    let deadline = Instant::now() + SILENT_NODE_ENDS;
    until_returned(deadline, || try_to_commit(store, &operation)).await
}

async fn try_to_commit(
    store: &LedgerStore,
    operation: &Operation,
) -> Result<OperationEffect, LedgerError> {
    for _ in 0..3 {
        match store.commit(std::slice::from_ref(operation)).await {
            Ok(mut outcomes) => return Ok(outcomes.pop().ok_or(LedgerError::Unavailable)??),
            Err(LedgerStoreError::Rejected(error)) => return Err(LedgerError::Rejected(error)),
            Err(error) => {
                tracing::warn!(%error, "retrying");
                tokio::time::sleep(COMMAND_PAUSE).await;
            }
        }
    }
    Err(LedgerError::Unavailable)
}
