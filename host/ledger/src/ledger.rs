//! The ledger as requests use it: one committer a node, its lease, and what it does by itself.

mod upkeep;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::database::{DatabaseClock, at_start};

use crate::account::Account;
use crate::committer::{self, Answer, Submitted};
use crate::credits::Credits;
use crate::health::{Health, LedgerMetrics};
use crate::operation::{
    AccountId, Action, BootId, Checkpoint, Claim, Done, HoldId, Open, Operation, Refusal, Settle,
};
use crate::settings::LeaseSettings;
use crate::store::history::KeyedRequest;
use crate::store::{Store, StoreError};
use crate::usage::RequestUsage;

/// Operations that wait for the committer; whoever brings more waits to hand them over.
const QUEUE: usize = 4_096;

/// The ledger as requests use it. Cheap to clone.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

struct Inner {
    submit: mpsc::Sender<Submitted>,
    store: Store,
    time: DatabaseClock,
    boot_id: BootId,
    lease: LeaseSettings,
    /// Until when this node's lease is known to be valid, in milliseconds of the monotonic clock.
    leased_until_ms: AtomicU64,
    renewing: Mutex<()>,
    /// Holds that stay open for longer than any request.
    kept_open: Arc<std::sync::Mutex<BTreeSet<HoldId>>>,
    health: Arc<Health>,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

/// Says for as long as it is there that a hold of this node is in use, however old it is.
pub struct KeptOpen {
    all: Arc<std::sync::Mutex<BTreeSet<HoldId>>>,
    hold: HoldId,
}

impl Drop for KeptOpen {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.hold);
    }
}

/// The final charge of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    /// The credits that the account paid.
    pub charged: Credits,
    /// The rest of the price, which it could not pay: our loss.
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
        let time = DatabaseClock::start(database.clone(), clock).await?;
        let dialect = database.dialect();
        let store = Store::new(database);
        let health = Arc::new(Health::new());
        let ledger = Self(Arc::new(Inner {
            submit,
            store: store.clone(),
            time,
            boot_id: BootId::fresh(),
            lease,
            leased_until_ms: AtomicU64::new(0),
            renewing: Mutex::new(()),
            kept_open: Arc::default(),
            health: health.clone(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        }));
        at_start(|| ledger.renew_lease()).await?;
        committer::start(store, submitted, dialect, health)?;
        let keeping = ledger.clone().keep_lease();
        let stopping = ledger.0.stopping.clone();
        tokio::spawn(stopping.clone().run_until_cancelled_owned(keeping));
        tokio::spawn(
            stopping
                .clone()
                .run_until_cancelled_owned(ledger.clone().tidy()),
        );
        tokio::spawn(stopping.run_until_cancelled_owned(ledger.clone().fold()));
        Ok(ledger)
    }

    /// The id of this run, which its holds carry.
    pub fn boot_id(&self) -> &BootId {
        &self.0.boot_id
    }

    /// The runs of nodes that are live, this one's among them.
    pub async fn live_runs(&self) -> sqlx::Result<Vec<BootId>> {
        self.0.store.live_runs(self.now()).await
    }

    /// Why nothing can be charged on this node, in words; `None` while it can.
    pub fn trouble(&self) -> Option<String> {
        if self.0.submit.is_closed() {
            return Some("its committer is gone, and only a new start mends that".to_owned());
        }
        self.0.health.trouble()
    }

    /// This moment by the database's clock, which decides about leases, periods and the life of keys.
    pub fn now(&self) -> Millis {
        self.0.time.now()
    }

    /// What is wrong with this node's own clock, in words; `None` if it shows what the database's does, more or less.
    pub fn clock_trouble(&self) -> Option<String> {
        self.0.time.trouble()
    }

    /// Its figures since the start.
    pub fn metrics(&self) -> &LedgerMetrics {
        self.0.health.metrics()
    }

    /// How many holds of this node are open.
    pub async fn open_holds(&self) -> sqlx::Result<i64> {
        self.0.store.count_open_holds(&self.0.boot_id).await
    }

    /// Reserves credits. When this returns `Ok`, the hold is durable, and the caller must end it.
    ///
    /// When it does not, or is dropped before it returns, there is no hold, or there soon is none.
    pub async fn open(
        &self,
        account: &AccountId,
        open: Open,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        self.open_claiming(account, open, None, deadline)
            .await
            .map(drop)
    }

    /// The same for a request that may bring an idempotency key: it is claimed with the hold, or neither is done. Returns
    /// the moment of it. If anything is charged, the caller must also [end the key](crate::idempotency::ClaimedKey).
    pub async fn open_claiming(
        &self,
        account: &AccountId,
        open: Open,
        claim: Option<Claim>,
        deadline: Instant,
    ) -> Result<Millis, LedgerError> {
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
        let boot_id = self.0.boot_id.clone();
        let action = Action::Open {
            open,
            boot_id,
            claim: claim.map(Box::new),
        };
        let operation = self.operation(account, action);
        let at = operation.at;
        let (reply, answer) = oneshot::channel();
        let mut opening = Opening {
            ledger: self,
            release: committer::release_of(operation.clone()),
            answer,
        };
        let submitted = Submitted::Operation(operation, Some(reply));
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

    /// Has a hold of this node be taken for one that is in use, also where it is older than any request. It is for holds that
    /// others draw on.
    pub fn keep_open(&self, hold: &HoldId) -> KeptOpen {
        let all = self.0.kept_open.clone();
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(hold.clone());
        KeptOpen {
            all,
            hold: hold.clone(),
        }
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
    ///
    /// `cost` is what a provider asks for the request all the same, if anything. It is reported, and charged to nobody.
    pub async fn release(
        &self,
        account: &AccountId,
        hold: HoldId,
        cost: Option<Box<RequestUsage>>,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        let action = Action::Release { hold, cost };
        self.submit(account, action, deadline).await.map(drop)
    }

    /// The same, for whoever can not wait.
    pub fn release_soon(&self, account: &AccountId, hold: HoldId) {
        let operation = self.operation(account, Action::Release { hold, cost: None });
        self.send_soon(Submitted::Operation(operation, None));
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
        let _ = self
            .0
            .submit
            .try_send(Submitted::Operation(operation, None));
    }

    /// Ends a hold at its last checkpoint, as if this node had gone away: for whoever can neither settle nor wait.
    pub fn abandon(&self, account: &AccountId, hold: HoldId) {
        let operation = self.operation(account, Action::Expire { hold });
        self.send_soon(Submitted::Operation(operation, None));
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
        let operation = self.operation(account, action);
        let submitted = Submitted::Operation(operation, Some(reply));
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
            account.begin_due_period(self.0.time.now());
            account
        }))
    }

    /// What has become of the request that claimed an idempotency key.
    pub async fn find_keyed(&self, account: &AccountId, key: &str) -> sqlx::Result<KeyedRequest> {
        self.0.store.find_keyed(account, key).await
    }

    /// Waits until everything that was asked for is done, and gives the lease up. Callers must be gone.
    pub async fn stop(&self) {
        self.0.stopping.cancel();
        // What is sent by tasks is asked for, too.
        self.0.tasks.close();
        self.0.tasks.wait().await;
        // The committer ends when nothing can come any more; this handle alone would keep it waiting.
        let (reply, flushed) = oneshot::channel();
        if self.0.submit.send(Submitted::Flush(reply)).await.is_ok() {
            let _ = flushed.await;
        }
        let now = self.0.time.now();
        if let Err(error) = self.0.store.end_lease(&self.0.boot_id, now).await {
            tracing::warn!(%error, "giving up the ledger's lease; it lapses by itself");
        }
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
            at: self.0.time.now(),
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
            self.ledger.send_soon(Submitted::Operation(operation, None));
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
