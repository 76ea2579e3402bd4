//! Idempotency keys: one outcome for each key of an account, for 24 hours.
//!
//! A key is claimed before the request's hold is opened, and ends when its hold has: with the answer, if there is
//! one to give again. A request that was refused, or for which nothing was settled, gives the key back, so that it
//! can be tried again.
//!
//! **Invariant:** of any number of requests with one key, one is served at a time, and once one was charged,
//! none is served again. If its node crashed between the two, the key still names it and its charge.
//! **Invariant:** an answer is stored sealed, and opens only for the account, the key and the request that it
//! was sealed for, and until it lapses.

use std::time::Duration;

use bytes::Bytes;
use sqlx::Row;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use weir_storage::Database;
use weir_storage::clock::{Clock, Millis};
use weir_storage::database::Transaction;
use weir_storage::sealing::{KeyRing, OpenError, Purpose};

use crate::credits::Credits;
use crate::operation::{AccountId, BootId};

/// Hours that a key is kept.
pub const KEPT_HOURS: i64 = 24;

/// Bytes of a key.
pub const MAX_KEY_BYTES: usize = 255;

/// Bytes of an answer that is kept to be given again, before it is sealed.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A request that has no open hold so long after it claimed its key is over, though its node is there: a hold is
/// opened within seconds, and a key ends within seconds of its hold, unless the database was away just then.
const OVER_AFTER_MS: i64 = 15 * 60_000;

/// How long a request waits for its turn to write its claim: as long as for its hold.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a finished request waits until its key has ended, too; from then on that goes on without it.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// How long it is tried to end a key; after that [`OVER_AFTER_MS`] decides.
const ENDING_TIMEOUT: Duration = Duration::from_secs(30);

/// The pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Keys that are deleted by one statement.
const FORGOTTEN: i64 = 1_000;

/// Such statements in one round: others want to write, too.
const MOST_ROUNDS: u32 = 50;

/// A request that brings a key.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The account that the key belongs to.
    pub account: AccountId,
    /// The key, of 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: String,
    /// SHA-256 of all that tells the request from another one.
    pub request_digest: [u8; 32],
    /// The request.
    pub request_id: String,
    /// The run of the node that serves it; see [`Ledger::boot_id`](crate::Ledger::boot_id).
    pub boot_id: BootId,
    /// The moment at which the request came.
    pub at: Millis,
}

/// What a key says about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It is the first one: serve it, then [`end`].
    New,
    /// The key was used for another request.
    OtherRequest,
    /// The first one is still being served: worth asking again.
    InProgress,
    /// The first one was served.
    Served(Served),
}

/// The first request of a key, which was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The request's id.
    pub request_id: String,
    /// Its charge.
    pub charged: Credits,
    /// Its answer, sealed, if that is kept.
    pub answer: Option<Vec<u8>>,
    /// The moment at which the key lapses.
    pub expires_at: Millis,
}

/// A key that a request has claimed. It ends by [`end`](Self::end), or, where the request was torn down by a
/// panic, when this is dropped.
pub struct ClaimedKey {
    database: Database,
    sealing_keys: KeyRing,
    clock: Clock,
    claim: Option<Claim>,
}

impl ClaimedKey {
    /// A key whose claim was made, or may have been.
    pub fn new(database: Database, sealing_keys: KeyRing, clock: Clock, claim: Claim) -> Self {
        Self {
            database,
            sealing_keys,
            clock,
            claim: Some(claim),
        }
    }

    /// Ends it after the request's hold has ended: completed if anything was settled, else given back. The answer is
    /// kept to be given again unless it is too long.
    ///
    /// When it returns, that is done, or goes on without the request.
    pub async fn end(mut self, answer: Option<Bytes>) {
        if let Some(ending) = self.begin_ending(answer) {
            let _ = tokio::time::timeout(END_TIMEOUT, ending).await;
        }
    }

    /// In a task of its own: what a finished request waits for must not be lost when it waits no longer.
    fn begin_ending(&mut self, answer: Option<Bytes>) -> Option<JoinHandle<()>> {
        let claim = self.claim.take()?;
        // There is none where a runtime is being torn down; another node, or the next start, sees that it is over.
        let runtime = Handle::try_current().ok()?;
        let answer = answer
            .filter(|answer| answer.len() <= MAX_ANSWER_BYTES)
            .map(|answer| {
                let at = claim.expires_at();
                seal(&self.sealing_keys, &claim, &claim.request_id, at, &answer)
            });
        let (database, clock) = (self.database.clone(), self.clock.clone());
        Some(runtime.spawn(async move { end_at_last(&database, &clock, &claim, answer).await }))
    }
}

impl Drop for ClaimedKey {
    fn drop(&mut self) {
        drop(self.begin_ending(None));
    }
}

impl Claim {
    fn expires_at(&self) -> Millis {
        Millis(self.at.0 + KEPT_HOURS * 3_600_000)
    }

    /// Opens the answer that was kept for an earlier request which was the same as this one.
    pub fn open_answer(&self, keys: &KeyRing, served: &Served) -> Option<Result<Bytes, OpenError>> {
        let sealed = served.answer.as_deref()?;
        let fields = Fields::new(&served.request_id, served.expires_at);
        let opened = keys.unseal(Purpose::IDEMPOTENT_ANSWER, &fields.of(self), sealed);
        Some(opened.map(Bytes::from))
    }
}

fn seal(keys: &KeyRing, claim: &Claim, request_id: &str, at: Millis, answer: &[u8]) -> Vec<u8> {
    let fields = Fields::new(request_id, at);
    keys.seal(Purpose::IDEMPOTENT_ANSWER, &fields.of(claim), answer)
}

/// What is authenticated with an answer.
struct Fields<'a> {
    request_id: &'a str,
    expires_at: [u8; 8],
}

impl<'a> Fields<'a> {
    fn new(request_id: &'a str, expires_at: Millis) -> Self {
        Self {
            request_id,
            expires_at: expires_at.0.to_be_bytes(),
        }
    }

    fn of(&'a self, claim: &'a Claim) -> [&'a [u8]; 5] {
        [
            claim.account.0.as_bytes(),
            claim.key.as_bytes(),
            &claim.request_digest,
            self.request_id.as_bytes(),
            &self.expires_at,
        ]
    }
}

async fn end_at_last(database: &Database, clock: &Clock, claim: &Claim, answer: Option<Vec<u8>>) {
    let deadline = Instant::now() + ENDING_TIMEOUT;
    let mut pause = FIRST_PAUSE;
    loop {
        let outcome = end(database, claim, answer.as_deref(), clock.now()).await;
        if matches!(outcome, Ok(true)) {
            return;
        }
        if Instant::now() + pause >= deadline {
            tracing::warn!(
                request_id = claim.request_id,
                ?outcome,
                "an idempotency key does not end"
            );
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Claims a key for a request, unless it is taken.
pub async fn claim(database: &Database, claim: &Claim) -> sqlx::Result<Claimed> {
    let deadline = Instant::now() + CLAIM_TIMEOUT;
    let mut transaction = loop {
        match database.begin().await {
            // Others are writing, and nothing was asked for yet.
            Err(sqlx::Error::PoolTimedOut) if Instant::now() < deadline => {}
            begun => break begun?,
        }
    };
    let inserted = sqlx::query(
        "INSERT INTO idempotency_keys \
         (account_id, key, request_digest, request_id, boot_id, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (account_id, key) DO UPDATE SET \
         request_digest = excluded.request_digest, request_id = excluded.request_id, \
         boot_id = excluded.boot_id, created_at = excluded.created_at, expires_at = excluded.expires_at, \
         completed_at = NULL, answer = NULL WHERE idempotency_keys.expires_at <= excluded.created_at",
    )
    .bind(&claim.account.0)
    .bind(&claim.key)
    .bind(claim.request_digest.to_vec())
    .bind(&claim.request_id)
    .bind(claim.boot_id.as_str())
    .bind(claim.at.0)
    .bind(claim.expires_at().0)
    .execute(&mut transaction)
    .await?;
    let claimed = if inserted.rows_affected() > 0 {
        Claimed::New
    } else {
        // The row is locked from here on, though unchanged: the insertion has waited for whoever wrote it.
        look(&mut transaction, claim).await?
    };
    transaction.commit().await?;
    Ok(claimed)
}

/// What the key that is there already says.
async fn look(transaction: &mut Transaction, claim: &Claim) -> sqlx::Result<Claimed> {
    let row = sqlx::query(
        "SELECT request_digest, request_id, boot_id, created_at, expires_at, completed_at, answer \
         FROM idempotency_keys WHERE account_id = $1 AND key = $2",
    )
    .bind(&claim.account.0)
    .bind(&claim.key)
    .fetch_one(&mut *transaction)
    .await?;
    if row.try_get::<Vec<u8>, _>("request_digest")? != claim.request_digest {
        return Ok(Claimed::OtherRequest);
    }
    let request_id: String = row.try_get("request_id")?;
    let holds = sqlx::query(HOLDS)
        .bind(&request_id)
        .bind(&claim.account.0)
        .fetch_one(&mut *transaction)
        .await?;
    let (open, charged, ended): (i64, i64, i64) =
        (holds.try_get(0)?, holds.try_get(1)?, holds.try_get(2)?);
    let served = Claimed::Served(Served {
        request_id,
        charged: Credits::from_micro(charged),
        answer: row.try_get("answer")?,
        expires_at: Millis(row.try_get("expires_at")?),
    });
    if row.try_get::<Option<i64>, _>("completed_at")?.is_some() {
        return Ok(served);
    }
    // A sweep has yet to end its holds, if its node does not.
    if open > 0 {
        return Ok(Claimed::InProgress);
    }
    let leases: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM node_leases WHERE boot_id = $1 AND lease_until > $2",
    )
    .bind(row.try_get::<String, _>("boot_id")?)
    .bind(claim.at.0)
    .fetch_one(&mut *transaction)
    .await?;
    let is_over = claim.at.0 >= row.try_get::<i64, _>("created_at")? + OVER_AFTER_MS;
    // Before its hold, or between the end of its hold and its own.
    if leases > 0 && !is_over {
        return Ok(Claimed::InProgress);
    }
    if ended > 0 {
        return Ok(served);
    }
    // Its node went away before anything was delivered.
    sqlx::query(
        "UPDATE idempotency_keys SET request_id = $1, boot_id = $2, created_at = $3, expires_at = $4 \
         WHERE account_id = $5 AND key = $6",
    )
    .bind(&claim.request_id)
    .bind(claim.boot_id.as_str())
    .bind(claim.at.0)
    .bind(claim.expires_at().0)
    .bind(&claim.account.0)
    .bind(&claim.key)
    .execute(transaction)
    .await?;
    Ok(Claimed::New)
}

/// A request's holds: how many are open, what was charged under them, and how many have ended with a charge, of 0
/// even.
const HOLDS: &str = "SELECT CAST(COALESCE(SUM(CASE WHEN state = 'open' THEN 1 ELSE 0 END), 0) AS BIGINT), \
     CAST(COALESCE(SUM(plan_posted + top_up_posted), 0) AS BIGINT), \
     CAST(COALESCE(SUM(CASE WHEN state IN ('settled', 'expired') THEN 1 ELSE 0 END), 0) AS BIGINT) \
     FROM holds WHERE request_id = $1 AND account_id = $2";

/// Ends the key of a request that is over: completed with its sealed answer, if that is to be given again, or given
/// back if nothing was settled. `false` while the request's hold is open: it is not known yet which.
pub async fn end(
    database: &Database,
    claim: &Claim,
    answer: Option<&[u8]>,
    now: Millis,
) -> sqlx::Result<bool> {
    let holds = sqlx::query(HOLDS)
        .bind(&claim.request_id)
        .bind(&claim.account.0)
        .fetch_one(database.writer())
        .await?;
    let (open, ended): (i64, i64) = (holds.try_get(0)?, holds.try_get(2)?);
    if open > 0 {
        return Ok(false);
    }
    // No other request ends this one's key, so that what was just read still holds.
    let ending = if ended > 0 {
        sqlx::query(
            "UPDATE idempotency_keys SET completed_at = $1, answer = $2 \
             WHERE account_id = $3 AND key = $4 AND request_id = $5 AND completed_at IS NULL",
        )
        .bind(now.0)
        .bind(answer.map(<[u8]>::to_vec))
    } else {
        sqlx::query(
            "DELETE FROM idempotency_keys \
             WHERE account_id = $1 AND key = $2 AND request_id = $3 AND completed_at IS NULL",
        )
    };
    let ending = ending
        .bind(&claim.account.0)
        .bind(&claim.key)
        .bind(&claim.request_id);
    ending.execute(database.writer()).await.map(|_| true)
}

/// Forgets keys that have been kept long enough, some at a time.
pub async fn forget(database: &Database, now: Millis) -> sqlx::Result<()> {
    for _ in 0..MOST_ROUNDS {
        let forgotten = sqlx::query(
            "DELETE FROM idempotency_keys WHERE (account_id, key) IN \
             (SELECT account_id, key FROM idempotency_keys WHERE expires_at <= $1 \
             ORDER BY expires_at LIMIT $2)",
        )
        .bind(now.0)
        .bind(FORGOTTEN)
        .execute(database.writer())
        .await?
        .rows_affected();
        if forgotten < FORGOTTEN as u64 {
            break;
        }
    }
    Ok(())
}
