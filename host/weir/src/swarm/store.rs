//! The SQL of swarms: what is asked for, who works on it, what is done and what is told.
//!
//! An executor has a run by a lease: a number, the *fence*, that goes up with each claim, and a moment at which it is over.
//! Each of its writes is one transaction that begins by looking at both ([`Lease::begin`]).
//!
//! **Invariant:** whoever has lost the lease writes nothing.
//! **Invariant:** an event is written with what it tells.
//! **Invariant:** what people and models wrote is sealed, each as the field of the run that it is.

mod leased;
pub mod outline;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_ledger::{Credits, HoldId};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::{SqlDialect, Transaction};
use weir_storage::ids::Hex;
use weir_storage::sealing::{KeyRing, Purpose};

pub use self::leased::{Lease, LeaseError, Leased, NewStep, StepEnd};
use super::record::{AgentResult, Outcome, Status};
use super::request::SwarmRequest;

/// Runs of one user that are not over.
pub const MAX_OPEN: i64 = 100;

/// Sealed bytes of one user's runs that are kept.
pub const MAX_KEPT_BYTES: i64 = 1 << 30;

/// Events that are read in one go.
const EVENTS: i64 = 100;

/// Users whose runs a claim tries, one after another, if other executors are faster.
const TURNS: i64 = 8;

/// Runs that [`SwarmStore::forget`] deletes, and model calls that [`SwarmStore::unpriced`] returns, in one go.
const AT_ONCE: i64 = 100;

/// Where swarms are kept. Cheap to clone.
#[derive(Clone)]
pub struct SwarmStore {
    database: Database,
    keys: KeyRing,
}

/// Why a run cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// What is stored is not what this version wrote, or its sealing key is gone.
    #[error("a run is not as it was written: {0}")]
    Unreadable(String),
}

/// A run that is asked for.
pub struct NewRun<'a> {
    /// Its id, made up by the caller.
    pub id: &'a str,
    /// Who pays.
    pub user_id: &'a str,
    /// The id of the key that it is asked for with, whose budgets apply.
    pub key_id: Option<&'a str>,
    /// What is asked.
    pub request: &'a SwarmRequest,
    /// The most that it may spend.
    pub budget: Credits,
    /// The client's key, and the digest of what came with it.
    pub key: Option<(&'a str, [u8; 32])>,
    /// The moment of it.
    pub at: Millis,
    /// When it must be over.
    pub deadline: Millis,
}

/// What became of a request for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// It waits for an executor.
    New,
    /// An earlier request with its key has asked for this run.
    Same(String),
    /// An earlier request with its key has asked for something else.
    Conflict,
    /// The user has [`MAX_OPEN`] that are not over.
    TooMany,
    /// With this run, the user's runs would have more than [`MAX_KEPT_BYTES`].
    Full,
}

/// A model call of a run that is over, whose price was not known at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpricedCall {
    /// The run.
    pub run_id: String,
    /// Who pays.
    pub user_id: String,
    /// Which step.
    pub place: Place,
    /// The key of the call.
    pub idempotency_key: String,
}

/// A run as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its id.
    pub id: String,
    /// Who pays.
    pub user_id: String,
    /// The id of the key that it was asked for with, whose budgets apply.
    pub key_id: Option<String>,
    /// As whoever asked names the pipeline.
    pub swarm_id: String,
    /// The task that it is run for.
    pub task_id: Option<String>,
    /// How far it is.
    pub status: Status,
    /// The most that it may spend.
    pub budget: Credits,
    /// How often it was taken up.
    pub fence: i64,
    /// How often it was taken up since a step was last done.
    pub recoveries: i64,
    /// The hold that its model calls draw on.
    pub parent_hold: Option<HoldId>,
    /// The number of its last event.
    pub last_event: i64,
    /// How many agents there are.
    pub agents_total: i64,
    /// How many have completed.
    pub agents_completed: i64,
    /// What it has cost so far.
    pub credits: Credits,
    /// Tokens of input so far.
    pub tokens_in: i64,
    /// Tokens of output so far.
    pub tokens_out: i64,
    /// What came of it, once it is over.
    pub outcome: Option<Outcome>,
    /// When it was asked for.
    pub created_at: Millis,
    /// When it must be over.
    pub deadline: Millis,
    /// Whether its user wants it to end.
    pub is_cancelled: bool,
}

/// An agent that has begun.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRow {
    /// Its place in the order in which they run.
    pub number: i64,
    /// When it began.
    pub started_at: Millis,
    /// What became of it, once it has ended.
    pub result: Option<AgentResult>,
}

/// A step that was intended, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Which.
    pub place: Place,
    /// What tells a repeat to whoever is asked.
    pub idempotency_key: String,
    /// What a tool's call does outside.
    pub effect: Option<String>,
    /// Tokens, of a model's call.
    pub output_limit: Option<u32>,
    /// What came of it, as JSON; `None` while that is not known.
    pub output: Option<serde_json::Value>,
    /// Its price.
    pub credits: Credits,
    /// Tokens of input.
    pub tokens_in: i64,
    /// Tokens of output.
    pub tokens_out: i64,
}

/// Something that clients are told of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// From 1 without a gap.
    pub number: i64,
    /// Such as `agent_done`.
    pub name: String,
    /// As JSON.
    pub data: String,
}

const RUN: &str = "SELECT id, user_id, key_id, swarm_id, task_id, status, budget, fence, recoveries, parent_hold, last_event, \
     agents_total, agents_completed, credits, tokens_in, tokens_out, outcome, created_at, deadline, \
     cancel_requested_at FROM swarm_runs";

impl SwarmStore {
    /// Swarms in a database, sealed under these keys.
    pub fn new(database: Database, keys: KeyRing) -> Self {
        Self { database, keys }
    }

    /// Keeps a run that is asked for.
    pub async fn accept(&self, run: &NewRun<'_>) -> Result<Accepted, StoreError> {
        let mut transaction = self.database.begin().await?;
        if self.database.dialect() == SqlDialect::Postgres {
            // Requests of one user, one after another: their number is bounded.
            sqlx::query("SELECT id FROM users WHERE id = $1 FOR UPDATE")
                .bind(run.user_id)
                .execute(&mut transaction)
                .await?;
        }
        if let Some((key, digest)) = run.key {
            let known = sqlx::query(BY_KEY)
                .bind(run.user_id)
                .bind(key)
                .fetch_optional(&mut transaction)
                .await?;
            if let Some(known) = known {
                return repeat(&known, &digest);
            }
        }
        let open: i64 = sqlx::query_scalar(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM swarm_runs WHERE user_id = $1 AND ended_at IS NULL",
        )
        .bind(run.user_id)
        .fetch_one(&mut transaction)
        .await?;
        if open >= MAX_OPEN {
            return Ok(Accepted::TooMany);
        }
        let request = self.seal(run.id, "request", run.request);
        let bytes = request.len() as i64;
        let kept: Option<i64> =
            sqlx::query_scalar("SELECT kept_bytes FROM swarm_users WHERE user_id = $1")
                .bind(run.user_id)
                .fetch_optional(&mut transaction)
                .await?;
        if kept.unwrap_or(0) + bytes > MAX_KEPT_BYTES {
            return Ok(Accepted::Full);
        }
        sqlx::query(
            "INSERT INTO swarm_runs (id, user_id, swarm_id, task_id, request, budget, status, client_key, \
             request_digest, fence, recoveries, lease_until, last_event, agents_total, agents_completed, credits, \
             tokens_in, tokens_out, created_at, deadline, key_id, bytes) \
             VALUES ($1, $2, $3, $4, $5, $6, 'queued', $7, $8, 0, 0, 0, 0, $9, 0, 0, 0, 0, $10, $11, $12, $13)",
        )
        .bind(run.id)
        .bind(run.user_id)
        .bind(&*run.request.swarm_id)
        .bind(run.request.task_id.as_deref())
        .bind(request)
        .bind(run.budget.micro())
        .bind(run.key.map(|(key, _)| key))
        .bind(run.key.map(|(_, digest)| digest.to_vec()))
        .bind(run.request.agents.len() as i64)
        .bind(run.at.0)
        .bind(run.deadline.0)
        .bind(run.key_id)
        .bind(bytes)
        .execute(&mut transaction)
        .await?;
        count_bytes(&mut transaction, run.user_id, bytes).await?;
        transaction.commit().await?;
        Ok(Accepted::New)
    }

    /// What an earlier request with this key has come to: [`Accepted::Same`] or [`Accepted::Conflict`].
    pub async fn find_repeat(
        &self,
        user_id: &str,
        key: &str,
        digest: &[u8; 32],
    ) -> Result<Option<Accepted>, StoreError> {
        let known = sqlx::query(BY_KEY)
            .bind(user_id)
            .bind(key)
            .fetch_optional(self.database.reader())
            .await?;
        known.map(|known| repeat(&known, digest)).transpose()
    }

    /// Claims a run that is queued, or whose lease has lapsed; `None` if there is none. The user with the fewest running runs
    /// is first, then the one whose runs have waited longest for one to begin.
    ///
    /// The cost grows with the number of users who have open runs, never with what they have run before: each user has at
    /// most [`MAX_OPEN`] open ones, and nothing else is read.
    pub async fn claim(
        &self,
        owner: &str,
        now: Millis,
        until: Millis,
    ) -> Result<Option<Lease>, StoreError> {
        // Outside a transaction: mostly nothing waits, and writers must not queue behind that.
        let users: Vec<String> = sqlx::query_scalar(TURNS_STATEMENT)
            .bind(now.0)
            .bind(TURNS)
            .fetch_all(self.database.reader())
            .await?;
        if users.is_empty() {
            return Ok(None);
        }
        let mut transaction = self.database.begin().await?;
        let oldest = oldest_statement(self.database.dialect());
        for user_id in users {
            let run = sqlx::query(sqlx::AssertSqlSafe(oldest.clone()))
                .bind(&*user_id)
                .bind(now.0)
                .fetch_optional(&mut transaction)
                .await?;
            // If another executor has just claimed it, the next user has a turn.
            let Some(run) = run else { continue };
            let id: String = run.try_get("id")?;
            let claimed = sqlx::query(
                "UPDATE swarm_runs SET fence = fence + 1, \
                 recoveries = recoveries + CASE WHEN status = 'running' THEN 1 ELSE 0 END, status = 'running', \
                 lease_owner = $1, lease_until = $2 WHERE id = $3 RETURNING fence",
            )
            .bind(owner)
            .bind(until.0)
            .bind(&*id)
            .fetch_one(&mut transaction)
            .await?;
            let fence: i64 = claimed.try_get("fence")?;
            if fence == 1 {
                sqlx::query(
                    "INSERT INTO swarm_users (user_id, last_begun_at, kept_bytes) VALUES ($1, $2, 0) \
                     ON CONFLICT (user_id) DO UPDATE SET last_begun_at = excluded.last_begun_at",
                )
                .bind(&*user_id)
                .bind(now.0)
                .execute(&mut transaction)
                .await?;
            }
            transaction.commit().await?;
            return Ok(Some(Lease { run_id: id, fence }));
        }
        Ok(None)
    }

    /// Makes a lease longer. Returns whether it still was one.
    pub async fn renew(&self, lease: &Lease, now: Millis, until: Millis) -> sqlx::Result<bool> {
        let renewed = sqlx::query(
            "UPDATE swarm_runs SET lease_until = $1 WHERE id = $2 AND fence = $3 AND lease_until > $4 \
             AND ended_at IS NULL",
        )
        .bind(until.0)
        .bind(&*lease.run_id)
        .bind(lease.fence)
        .bind(now.0)
        .execute(self.database.writer())
        .await?;
        Ok(renewed.rows_affected() == 1)
    }

    /// Gives a lease up: another executor may go on at once.
    pub async fn give_up(&self, lease: &Lease) -> sqlx::Result<()> {
        sqlx::query(
            "UPDATE swarm_runs SET status = 'queued', lease_until = 0 WHERE id = $1 AND fence = $2 \
             AND ended_at IS NULL",
        )
        .bind(&*lease.run_id)
        .bind(lease.fence)
        .execute(self.database.writer())
        .await
        .map(drop)
    }

    /// A run, if there is one of this id.
    pub async fn find(&self, id: &str) -> Result<Option<Run>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!("{RUN} WHERE id = $1")))
            .bind(id)
            .fetch_optional(self.database.reader())
            .await?;
        row.as_ref().map(|row| self.read_run(row)).transpose()
    }

    /// A user's runs, the last one first: those that were asked for before the run `before`, if it is given.
    pub async fn list(
        &self,
        user_id: &str,
        before: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError> {
        // Ids are ordered by time, and hold digits and letters up to f.
        let text = format!("{RUN} WHERE user_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3");
        let rows = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(user_id)
            .bind(before.unwrap_or("g"))
            .bind(i64::from(limit))
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(|row| self.read_run(row)).collect()
    }

    /// Those of these ids that there are.
    pub async fn find_all(&self, ids: &[&str]) -> Result<Vec<Run>, StoreError> {
        let among = match self.database.dialect() {
            SqlDialect::Sqlite => "SELECT value FROM json_each($1)",
            SqlDialect::Postgres => "SELECT jsonb_array_elements_text(CAST($1 AS JSONB))",
        };
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!("{RUN} WHERE id IN ({among})")))
            .bind(serde_json::json!(ids).to_string())
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(|row| self.read_run(row)).collect()
    }

    /// What a run was asked.
    pub async fn request(&self, run_id: &str) -> Result<SwarmRequest, StoreError> {
        let sealed: Vec<u8> = sqlx::query_scalar("SELECT request FROM swarm_runs WHERE id = $1")
            .bind(run_id)
            .fetch_one(self.database.reader())
            .await?;
        self.open(run_id, "request", &sealed)
    }

    /// The agents of a run that have begun, in their order.
    pub async fn agents(&self, run_id: &str) -> Result<Vec<AgentRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT number, started_at, result FROM swarm_agents WHERE run_id = $1 ORDER BY number",
        )
        .bind(run_id)
        .fetch_all(self.database.reader())
        .await?;
        rows.iter()
            .map(|row| {
                let number: i64 = row.try_get("number")?;
                let sealed: Option<Vec<u8>> = row.try_get("result")?;
                let field = format!("agent {number}");
                Ok(AgentRow {
                    number,
                    started_at: Millis(row.try_get("started_at")?),
                    result: sealed
                        .map(|sealed| self.open(run_id, &field, &sealed))
                        .transpose()?,
                })
            })
            .collect()
    }

    /// The steps of a run, in their order.
    pub async fn steps(&self, run_id: &str) -> Result<Vec<Step>, StoreError> {
        let rows = sqlx::query(
            "SELECT agent, iteration, ordinal, idempotency_key, effect, output_limit, output, credits, tokens_in, tokens_out \
             FROM swarm_steps WHERE run_id = $1 ORDER BY agent, iteration, ordinal",
        )
        .bind(run_id)
        .fetch_all(self.database.reader())
        .await?;
        rows.iter().map(|row| self.read_step(run_id, row)).collect()
    }

    /// Events of a run behind the one of this number, a bounded part of them.
    pub async fn events(&self, run_id: &str, after: i64) -> Result<Vec<Event>, StoreError> {
        let rows = sqlx::query(
            "SELECT number, name, data FROM swarm_events WHERE run_id = $1 AND number > $2 ORDER BY number LIMIT $3",
        )
        .bind(run_id)
        .bind(after)
        .bind(EVENTS)
        .fetch_all(self.database.reader())
        .await?;
        rows.iter()
            .map(|row| {
                let number: i64 = row.try_get("number")?;
                let sealed: Vec<u8> = row.try_get("data")?;
                let data: serde_json::Value =
                    self.open(run_id, &format!("event {number}"), &sealed)?;
                Ok(Event {
                    number,
                    name: row.try_get("name")?,
                    data: data.to_string(),
                })
            })
            .collect()
    }

    /// Notes that a run's user wants it to end. Whether it is over already, its executor sees.
    pub async fn request_cancel(&self, run_id: &str, now: Millis) -> sqlx::Result<()> {
        let requested = outline::request_cancel(&self.database, run_id, now);
        requested.await.map(drop)
    }

    /// How many runs are not over, by status: those without a lease are queued.
    pub async fn count_open(&self) -> sqlx::Result<[(&'static str, i64); 2]> {
        let (queued, running): (i64, i64) = sqlx::query_as(
            "SELECT CAST(COALESCE(SUM(CASE WHEN lease_until = 0 THEN 1 ELSE 0 END), 0) AS BIGINT), \
             CAST(COALESCE(SUM(CASE WHEN lease_until = 0 THEN 0 ELSE 1 END), 0) AS BIGINT) \
             FROM swarm_runs WHERE ended_at IS NULL",
        )
        .fetch_one(self.database.reader())
        .await?;
        Ok([
            (Status::Queued.name(), queued),
            (Status::Running.name(), running),
        ])
    }

    /// Deletes runs that ended before a moment, at most [`AT_ONCE`], each in a transaction of its own. Returns how many.
    pub async fn forget(&self, ended_before: Millis) -> sqlx::Result<u64> {
        let old: Vec<String> = sqlx::query_scalar(
            "SELECT id FROM swarm_runs WHERE ended_at < $1 ORDER BY ended_at, id LIMIT $2",
        )
        .bind(ended_before.0)
        .bind(AT_ONCE)
        .fetch_all(self.database.reader())
        .await?;
        let mut forgotten = 0;
        for id in &old {
            forgotten += u64::from(self.delete(id).await?);
        }
        Ok(forgotten)
    }

    /// Deletes a run that is over, with all that is kept of it. Returns whether there was one.
    pub async fn delete(&self, run_id: &str) -> sqlx::Result<bool> {
        let mut transaction = self.database.begin().await?;
        let run = sqlx::query(
            "SELECT user_id, bytes FROM swarm_runs WHERE id = $1 AND ended_at IS NOT NULL",
        )
        .bind(run_id)
        .fetch_optional(&mut transaction)
        .await?;
        let Some(run) = run else {
            return Ok(false);
        };
        for text in [
            "DELETE FROM swarm_events WHERE run_id = $1",
            "DELETE FROM swarm_steps WHERE run_id = $1",
            "DELETE FROM swarm_agents WHERE run_id = $1",
        ] {
            let delete = sqlx::query(text).bind(run_id);
            delete.execute(&mut transaction).await?;
        }
        let deleted = sqlx::query("DELETE FROM swarm_runs WHERE id = $1")
            .bind(run_id)
            .execute(&mut transaction)
            .await?;
        if deleted.rows_affected() == 0 {
            // Another node was faster.
            return Ok(false);
        }
        let (user_id, bytes): (String, i64) = (run.try_get("user_id")?, run.try_get("bytes")?);
        count_bytes(&mut transaction, &user_id, -bytes).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Model calls of runs that are over, whose price was not known at the end; some of them.
    pub async fn unpriced(&self) -> sqlx::Result<Vec<UnpricedCall>> {
        let rows = sqlx::query(UNPRICED_STATEMENT)
            .bind(AT_ONCE)
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(read_unpriced).collect()
    }

    /// Model calls of a run that were begun, and whose price is not known.
    pub async fn unpriced_of(&self, run_id: &str) -> sqlx::Result<Vec<UnpricedCall>> {
        let rows = sqlx::query(UNPRICED_OF_STATEMENT)
            .bind(run_id)
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(read_unpriced).collect()
    }

    /// Adds the price of such a call to its run, once.
    pub async fn price(
        &self,
        call: &UnpricedCall,
        price: CallPrice,
        now: Millis,
    ) -> sqlx::Result<()> {
        let mut transaction = self.database.begin().await?;
        let priced = sqlx::query(
            "UPDATE swarm_steps SET state = 'failed', credits = $1, tokens_in = $2, tokens_out = $3, ended_at = $4 \
             WHERE run_id = $5 AND agent = $6 AND iteration = $7 AND ordinal = 0 AND state = 'intended'",
        )
        .bind(price.credits.micro())
        .bind(price.tokens_in)
        .bind(price.tokens_out)
        .bind(now.0)
        .bind(&*call.run_id)
        .bind(call.place.agent)
        .bind(call.place.iteration)
        .execute(&mut transaction)
        .await?;
        if priced.rows_affected() == 0 {
            return Ok(());
        }
        add_price(&mut transaction, &call.run_id, price).await?;
        transaction.commit().await
    }

    fn read_run(&self, row: &AnyRow) -> Result<Run, StoreError> {
        let id: String = row.try_get("id")?;
        let status: String = row.try_get("status")?;
        let outcome: Option<Vec<u8>> = row.try_get("outcome")?;
        Ok(Run {
            status: Status::named(&status)
                .ok_or_else(|| StoreError::Unreadable(format!("there is no status {status}")))?,
            user_id: row.try_get("user_id")?,
            key_id: row.try_get("key_id")?,
            swarm_id: row.try_get("swarm_id")?,
            task_id: row.try_get("task_id")?,
            budget: credits(row, "budget")?,
            fence: row.try_get("fence")?,
            recoveries: row.try_get("recoveries")?,
            parent_hold: row.try_get::<Option<String>, _>("parent_hold")?.map(HoldId),
            last_event: row.try_get("last_event")?,
            agents_total: row.try_get("agents_total")?,
            agents_completed: row.try_get("agents_completed")?,
            credits: credits(row, "credits")?,
            tokens_in: row.try_get("tokens_in")?,
            tokens_out: row.try_get("tokens_out")?,
            outcome: outcome
                .map(|sealed| self.open(&id, "outcome", &sealed))
                .transpose()?,
            created_at: Millis(row.try_get("created_at")?),
            deadline: Millis(row.try_get("deadline")?),
            is_cancelled: row
                .try_get::<Option<i64>, _>("cancel_requested_at")?
                .is_some(),
            id,
        })
    }

    fn read_step(&self, run_id: &str, row: &AnyRow) -> Result<Step, StoreError> {
        let place = Place {
            agent: row.try_get("agent")?,
            iteration: row.try_get("iteration")?,
            ordinal: row.try_get("ordinal")?,
        };
        let sealed: Option<Vec<u8>> = row.try_get("output")?;
        let limit: Option<i64> = row.try_get("output_limit")?;
        Ok(Step {
            place,
            idempotency_key: row.try_get("idempotency_key")?,
            effect: row.try_get("effect")?,
            output_limit: limit.and_then(|limit| u32::try_from(limit).ok()),
            output: sealed
                .map(|sealed| self.open(run_id, &place.field(), &sealed))
                .transpose()?,
            credits: credits(row, "credits")?,
            tokens_in: row.try_get("tokens_in")?,
            tokens_out: row.try_get("tokens_out")?,
        })
    }

    /// What tells receivers a repeat of a tool's call: says nothing of the call to who does not have the key, and so nobody
    /// else can make it up.
    pub fn call_key(
        &self,
        run_id: &str,
        place: Place,
        call_id: &str,
        input_hash: &[u8; 32],
    ) -> String {
        let numbers = [place.agent, place.iteration, place.ordinal].map(i64::to_be_bytes);
        let parts = [
            run_id.as_bytes(),
            numbers.as_flattened(),
            call_id.as_bytes(),
            input_hash,
        ];
        Hex(&self.keys.tag(Purpose::TOOL_CALL, &parts)).to_string()
    }

    fn seal(&self, run_id: &str, field: &str, value: &impl Serialize) -> Vec<u8> {
        let json = serde_json::to_vec(value).expect("it is texts and numbers");
        let fields = [run_id.as_bytes(), field.as_bytes()];
        self.keys.seal(Purpose::SWARM, &fields, &json)
    }

    fn open<T: DeserializeOwned>(
        &self,
        run_id: &str,
        field: &str,
        sealed: &[u8],
    ) -> Result<T, StoreError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            StoreError::Unreadable(format!("the {field} of {run_id}: {error}"))
        };
        let fields = [run_id.as_bytes(), field.as_bytes()];
        let json = self.keys.unseal(Purpose::SWARM, &fields, sealed);
        let json = json.map_err(|error| unreadable(&error))?;
        serde_json::from_slice(&json).map_err(|error| unreadable(&error))
    }
}

/// Which step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The agent's place in the order.
    pub agent: i64,
    /// From 1.
    pub iteration: i64,
    /// 0 for the model's call, from 1 for those of tools.
    pub ordinal: i64,
}

impl Place {
    /// What its output is sealed as.
    fn field(self) -> String {
        let Self {
            agent,
            iteration,
            ordinal,
        } = self;
        format!("step {agent}.{iteration}.{ordinal}")
    }
}

/// What a call has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallPrice {
    /// What was charged.
    pub credits: Credits,
    /// Tokens of input.
    pub tokens_in: i64,
    /// Tokens of output.
    pub tokens_out: i64,
}

/// The users whose turn it is, in their order; parameters: the moment, and how many at most. It steps from one user who
/// has open runs to the next by an index, so that no run that is over is read.
pub const TURNS_STATEMENT: &str = "WITH RECURSIVE open_users (user_id) AS ( \
     SELECT MIN(user_id) FROM swarm_runs WHERE ended_at IS NULL UNION ALL \
     SELECT (SELECT MIN(user_id) FROM swarm_runs WHERE ended_at IS NULL AND user_id > open_users.user_id) \
     FROM open_users WHERE open_users.user_id IS NOT NULL) \
     SELECT open_users.user_id FROM open_users \
     LEFT JOIN swarm_users ON swarm_users.user_id = open_users.user_id \
     WHERE (SELECT waiting.id FROM swarm_runs AS waiting WHERE waiting.ended_at IS NULL \
     AND waiting.user_id = open_users.user_id AND waiting.lease_until <= $1 \
     ORDER BY waiting.lease_until, waiting.id LIMIT 1) IS NOT NULL \
     ORDER BY (SELECT COUNT(*) FROM swarm_runs AS running WHERE running.ended_at IS NULL \
     AND running.user_id = open_users.user_id AND running.lease_until > $1), \
     COALESCE(swarm_users.last_begun_at, 0), \
     (SELECT waiting.id FROM swarm_runs AS waiting WHERE waiting.ended_at IS NULL \
     AND waiting.user_id = open_users.user_id AND waiting.lease_until <= $1 \
     ORDER BY waiting.lease_until, waiting.id LIMIT 1) LIMIT $2";

/// The run of a user that is next: of those whose lease has lapsed, else of those that are queued, the oldest; parameters:
/// the user, and the moment.
pub fn oldest_statement(dialect: SqlDialect) -> String {
    // Ids are ordered by time. An index of all of the user's runs has another order, so that no planner prefers it.
    let oldest = |limit| {
        format!(
            "SELECT id FROM swarm_runs WHERE user_id = $1 AND ended_at IS NULL AND lease_until <= $2 \
             ORDER BY lease_until = 0, id LIMIT {limit}"
        )
    };
    match dialect {
        SqlDialect::Sqlite => oldest(1),
        // PostgreSQL reads the index alone for the inner statement, and locks one row of few.
        SqlDialect::Postgres => format!(
            "SELECT id FROM swarm_runs WHERE id IN ({}) AND ended_at IS NULL AND lease_until <= $2 \
             ORDER BY lease_until = 0, id LIMIT 1 FOR UPDATE SKIP LOCKED",
            oldest(TURNS)
        ),
    }
}

/// Parameter: how many at most.
pub const UNPRICED_STATEMENT: &str = "SELECT steps.run_id, steps.agent, steps.iteration, steps.idempotency_key, runs.user_id \
     FROM swarm_steps AS steps JOIN swarm_runs AS runs ON runs.id = steps.run_id \
     WHERE steps.state = 'intended' AND steps.ordinal = 0 AND runs.ended_at IS NOT NULL LIMIT $1";

/// Parameter: the run.
const UNPRICED_OF_STATEMENT: &str = "SELECT steps.run_id, steps.agent, steps.iteration, steps.idempotency_key, runs.user_id \
     FROM swarm_steps AS steps JOIN swarm_runs AS runs ON runs.id = steps.run_id \
     WHERE steps.run_id = $1 AND steps.state = 'intended' AND steps.ordinal = 0";

fn read_unpriced(row: &AnyRow) -> sqlx::Result<UnpricedCall> {
    Ok(UnpricedCall {
        run_id: row.try_get("run_id")?,
        user_id: row.try_get("user_id")?,
        place: Place {
            agent: row.try_get("agent")?,
            iteration: row.try_get("iteration")?,
            ordinal: 0,
        },
        idempotency_key: row.try_get("idempotency_key")?,
    })
}

const BY_KEY: &str =
    "SELECT id, request_digest FROM swarm_runs WHERE user_id = $1 AND client_key = $2";

/// What a request comes to whose key has asked for this run already.
fn repeat(known: &AnyRow, digest: &[u8; 32]) -> Result<Accepted, StoreError> {
    let first: Vec<u8> = known.try_get("request_digest")?;
    Ok(match first == digest {
        true => Accepted::Same(known.try_get("id")?),
        false => Accepted::Conflict,
    })
}

/// Counts what is kept of a user's runs: so many bytes more, or below zero fewer.
async fn count_bytes(transaction: &mut Transaction, user_id: &str, bytes: i64) -> sqlx::Result<()> {
    // Runs that a node of an earlier release has ended may have counted less than they have.
    sqlx::query(
        "INSERT INTO swarm_users (user_id, last_begun_at, kept_bytes) VALUES ($1, 0, $2) \
         ON CONFLICT (user_id) DO UPDATE SET kept_bytes = CASE WHEN swarm_users.kept_bytes + $3 > 0 \
         THEN swarm_users.kept_bytes + $3 ELSE 0 END",
    )
    .bind(user_id)
    .bind(bytes.max(0))
    .bind(bytes)
    .execute(transaction)
    .await
    .map(drop)
}

/// Adds what a call has cost to what its run has cost.
async fn add_price(
    transaction: &mut Transaction,
    run_id: &str,
    price: CallPrice,
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE swarm_runs SET credits = credits + $1, tokens_in = tokens_in + $2, tokens_out = tokens_out + $3 \
         WHERE id = $4",
    )
    .bind(price.credits.micro())
    .bind(price.tokens_in)
    .bind(price.tokens_out)
    .bind(run_id)
    .execute(transaction)
    .await
    .map(drop)
}

fn credits(row: &AnyRow, column: &str) -> sqlx::Result<Credits> {
    row.try_get(column).map(Credits::from_micro)
}
