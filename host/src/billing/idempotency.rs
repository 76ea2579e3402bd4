//! `Idempotency-Key`: one outcome for each key of an account, for 24 hours.
//!
//! A key is claimed before the request's hold is opened, and completed after its settlement is durable. A
//! request that was refused or charged nothing gives the key back, so that it can be tried again.
//!
//! **Invariant:** of any number of requests with one key, one is served at a time, and once one was charged,
//! none is served again. If its node crashed between the two, the key still names it and its charge.

use sqlx::Row;

use super::Credits;
use super::ledger::AccountId;
use crate::clock::Millis;
use crate::storage::Database;
use crate::storage::database::Transaction;

/// Hours that a key is kept.
pub const KEPT_HOURS: i64 = 24;

/// Bytes of a key.
pub const MAX_KEY_BYTES: usize = 255;

/// Bytes of an answer that is kept to be given again, before it is sealed.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Keys that are forgotten in one go.
const FORGOTTEN: i64 = 1_000;

/// How often that is done in one round: others want to write, too.
const MOST_ROUNDS: u32 = 50;

/// A request that brings a key.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Whose key.
    pub account: &'a AccountId,
    /// The key, of 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: &'a str,
    /// SHA-256 of method, path and body.
    pub request_digest: &'a [u8; 32],
    /// The request.
    pub request_id: &'a str,
    /// The run of the node that serves it; see [`Ledger::boot_id`](super::Ledger::boot_id).
    pub boot_id: &'a str,
}

/// What a key says about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It is the first one: serve it, then [`complete`] or [`give_up`].
    New,
    /// The key was used for another request: 409.
    OtherRequest,
    /// The first one is still being served: 409 and Retry-After.
    InProgress,
    /// The first one was answered so; the answer is sealed.
    Answered(Vec<u8>),
    /// The first one was served, and its answer is not kept: 409 that names it and its charge.
    Served {
        /// The first request.
        request_id: String,
        /// What it was charged.
        charged: Credits,
    },
}

/// Claims a key for a request, unless it is taken.
pub async fn claim(database: &Database, claim: Claim<'_>, now: Millis) -> sqlx::Result<Claimed> {
    let mut transaction = database.begin().await?;
    let inserted = sqlx::query(
        "INSERT INTO idempotency_keys \
         (account_id, key, request_digest, request_id, boot_id, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (account_id, key) DO UPDATE SET \
         request_digest = excluded.request_digest, request_id = excluded.request_id, \
         boot_id = excluded.boot_id, created_at = excluded.created_at, expires_at = excluded.expires_at, \
         completed_at = NULL, answer = NULL WHERE idempotency_keys.expires_at <= excluded.created_at",
    )
    .bind(&claim.account.0)
    .bind(claim.key)
    .bind(claim.request_digest.to_vec())
    .bind(claim.request_id)
    .bind(claim.boot_id)
    .bind(now.0)
    .bind(now.0 + KEPT_HOURS * 3_600_000)
    .execute(&mut transaction)
    .await?;
    let claimed = if inserted.rows_affected() > 0 {
        Claimed::New
    } else {
        // The row is locked from here on: the insertion has waited for whoever wrote it.
        look(&mut transaction, &claim, now).await?
    };
    transaction.commit().await?;
    Ok(claimed)
}

/// What the key that is there already says.
async fn look(
    transaction: &mut Transaction,
    claim: &Claim<'_>,
    now: Millis,
) -> sqlx::Result<Claimed> {
    // Changes nothing and locks the row, on both databases.
    let row = sqlx::query(
        "UPDATE idempotency_keys SET key = key WHERE account_id = $1 AND key = $2 \
         RETURNING request_digest, request_id, boot_id, completed_at, answer",
    )
    .bind(&claim.account.0)
    .bind(claim.key)
    .fetch_one(&mut *transaction)
    .await?;
    if row.try_get::<Vec<u8>, _>("request_digest")? != claim.request_digest {
        return Ok(Claimed::OtherRequest);
    }
    if let Some(answer) = row.try_get::<Option<Vec<u8>>, _>("answer")? {
        return Ok(Claimed::Answered(answer));
    }
    let request_id: String = row.try_get("request_id")?;
    let is_complete = row.try_get::<Option<i64>, _>("completed_at")?.is_some();
    let holds = sqlx::query(
        "SELECT CAST(COALESCE(SUM(CASE WHEN state = 'open' THEN 1 ELSE 0 END), 0) AS BIGINT), \
         CAST(COALESCE(SUM(plan_posted + top_up_posted), 0) AS BIGINT), \
         CAST(COALESCE(SUM(CASE WHEN state IN ('settled', 'expired') THEN 1 ELSE 0 END), 0) AS BIGINT) \
         FROM holds WHERE request_id = $1 AND account_id = $2",
    )
    .bind(&request_id)
    .bind(&claim.account.0)
    .fetch_one(&mut *transaction)
    .await?;
    let (open, charged, ended): (i64, i64, i64) =
        (holds.try_get(0)?, holds.try_get(1)?, holds.try_get(2)?);
    if is_complete {
        return Ok(Claimed::Served {
            request_id,
            charged: Credits(charged),
        });
    }
    let leases: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM node_leases WHERE boot_id = $1 AND lease_until > $2",
    )
    .bind(row.try_get::<String, _>("boot_id")?)
    .bind(now.0)
    .fetch_one(&mut *transaction)
    .await?;
    // Its node is there, or a sweep has yet to end its holds.
    if leases > 0 || open > 0 {
        return Ok(Claimed::InProgress);
    }
    if ended > 0 {
        return Ok(Claimed::Served {
            request_id,
            charged: Credits(charged),
        });
    }
    // Its node went away before anything was delivered.
    sqlx::query(
        "UPDATE idempotency_keys SET request_id = $1, boot_id = $2 WHERE account_id = $3 AND key = $4",
    )
    .bind(claim.request_id)
    .bind(claim.boot_id)
    .bind(&claim.account.0)
    .bind(claim.key)
    .execute(transaction)
    .await?;
    Ok(Claimed::New)
}

/// Notes that a request was served; `answer` is its sealed answer, if that is to be given again.
pub async fn complete(
    database: &Database,
    claim: Claim<'_>,
    answer: Option<&[u8]>,
    now: Millis,
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE idempotency_keys SET completed_at = $1, answer = $2 \
         WHERE account_id = $3 AND key = $4 AND request_id = $5",
    )
    .bind(now.0)
    .bind(answer.map(<[u8]>::to_vec))
    .bind(&claim.account.0)
    .bind(claim.key)
    .bind(claim.request_id)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Gives a key back: its request was refused, or nothing was delivered.
pub async fn give_up(database: &Database, claim: Claim<'_>) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM idempotency_keys \
         WHERE account_id = $1 AND key = $2 AND request_id = $3 AND completed_at IS NULL",
    )
    .bind(&claim.account.0)
    .bind(claim.key)
    .bind(claim.request_id)
    .execute(database.writer())
    .await
    .map(drop)
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
