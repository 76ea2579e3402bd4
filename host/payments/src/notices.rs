//! Notices to users: the end of a trial, a failed payment, an automatic purchase, a low balance, a budget's alert.
//!
//! Other modules store notices here. weir knows no addresses of users, so the operator delivers the notices: each
//! notice is a log line and, with `payments.notice_url`, a webhook signed as in [Standard
//! Webhooks](https://www.standardwebhooks.com). Users read their notices in the console and at `GET /billing/notices`.
//!
//! **Invariant:** weir delivers each notice at least once. All attempts have the same `webhook-id`, so a receiver
//! recognizes repeats.

use std::time::Duration;

use anyhow::{anyhow, ensure};
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::any::AnyRow;
use weir_egress::webhook;
use weir_outgoing::{self as outgoing, Client};
use weir_storage::Database;
use weir_storage::clock::Millis;

use crate::payments::Payments;

/// Pause between two searches for due notices.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Notices of one query.
const AT_ONCE: i64 = 32;

/// Time limits of the receiver: for the connection, and for the response.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Claim of a node on a notice in milliseconds: longer than one delivery.
const CLAIM_MS: i64 = 60_000;

/// The first and the longest pause between attempts, in milliseconds.
const PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 3_600_000;

/// Maximum number of attempts, which take about three days.
const MAX_ATTEMPTS: i64 = 84;

#[derive(Debug, Clone, PartialEq)]
pub struct UserNotice {
    id: String,
    user_id: String,
    kind: NoticeKind,
    data: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// The trial of a subscription ends soon.
    TrialEnding,
    PaymentFailed,
    /// weir bought credits because the balance was low.
    AutoTopUpDone,
    /// weir could not buy credits.
    AutoTopUpFailed,
    LowBalance,
    /// A budget has reached 80 or 100 % of its limit.
    BudgetAlert,
}

impl NoticeKind {
    /// Its name in the API and the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TrialEnding => "trial_ending",
            Self::PaymentFailed => "payment_failed",
            Self::AutoTopUpDone => "auto_top_up_done",
            Self::AutoTopUpFailed => "auto_top_up_failed",
            Self::LowBalance => "low_balance",
            Self::BudgetAlert => "budget_alert",
        }
    }
}

impl UserNotice {
    /// Creates a notice. `about` identifies its cause, for example the id of a payment: each cause gives one notice.
    pub fn new(kind: NoticeKind, user_id: &str, about: &str, data: Value) -> Self {
        Self {
            id: format!("{}:{about}", kind.name()),
            user_id: user_id.to_owned(),
            kind,
            data,
        }
    }
}

/// Stores a notice, unless its cause has one.
pub async fn put(database: &Database, notice: &UserNotice, now: Millis) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO notices (id, user_id, kind, data, created_at, next_attempt_at) VALUES ($1, $2, $3, $4, $5, $5) \
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(&*notice.id)
    .bind(&*notice.user_id)
    .bind(notice.kind.name())
    .bind(notice.data.to_string())
    .bind(now.0)
    .execute(database.writer())
    .await
    .map(drop)
}

/// The notices of a user, newest first: at most `limit`, and older than the notice `before`. Returns `None` if the user has no
/// notice of that id.
pub async fn list(
    database: &Database,
    user_id: &str,
    before: Option<&str>,
    limit: u32,
) -> sqlx::Result<Option<Vec<StoredNotice>>> {
    let mut place = (i64::MAX, "");
    if let Some(id) = before {
        let text = "SELECT created_at FROM notices WHERE id = $1 AND user_id = $2";
        let at: Option<i64> = sqlx::query_scalar(text)
            .bind(id)
            .bind(user_id)
            .fetch_optional(database.reader())
            .await?;
        let Some(at) = at else {
            return Ok(None);
        };
        place = (at, id);
    }
    let text = "SELECT * FROM notices WHERE user_id = $1 AND (created_at, id) < ($2, $3) \
                ORDER BY created_at DESC, id DESC LIMIT $4";
    let rows = sqlx::query(text)
        .bind(user_id)
        .bind(place.0)
        .bind(place.1)
        .bind(i64::from(limit))
        .fetch_all(database.reader())
        .await?;
    let notices: sqlx::Result<Vec<_>> = rows.iter().map(read).collect();
    notices.map(Some)
}

/// Returns the users of the latest notices of a kind since a moment, newest first. A user with several notices is there
/// several times.
pub async fn users_of(
    database: &Database,
    kind: NoticeKind,
    since: Millis,
    limit: u32,
) -> sqlx::Result<Vec<String>> {
    let text = "SELECT user_id FROM notices WHERE kind = $1 AND created_at >= $2 ORDER BY created_at DESC LIMIT $3";
    sqlx::query_scalar(text)
        .bind(kind.name())
        .bind(since.0)
        .bind(i64::from(limit))
        .fetch_all(database.reader())
        .await
}

/// Delivers notices until the future is dropped. The future can be dropped at any time, like a crash.
pub async fn run(payments: &Payments) {
    let client = match outgoing::client(CONNECT_TIMEOUT) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "notices are not delivered");
            return std::future::pending().await;
        }
    };
    let notifier = NoticeSender { payments, client };
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = notifier.look().await {
            tracing::warn!(%error, "looking for notices");
        }
    }
}

struct NoticeSender<'a> {
    payments: &'a Payments,
    client: Client,
}

pub struct StoredNotice {
    /// Its id, which is unique.
    pub id: String,
    /// The name of its [`NoticeKind`].
    pub kind: String,
    /// Details, for example the id of a payment.
    pub data: Value,
    /// The time of its cause.
    pub created_at: Millis,
    user_id: String,
    attempts: i64,
    due_at: Option<i64>,
}

impl NoticeSender<'_> {
    async fn look(&self) -> sqlx::Result<()> {
        let now = self.payments.ledger.now();
        let rows = sqlx::query(
            "SELECT * FROM notices WHERE next_attempt_at <= $1 ORDER BY next_attempt_at, id LIMIT $2",
        )
        .bind(now.0)
        .bind(AT_ONCE)
        .fetch_all(self.payments.database.reader())
        .await?;
        for row in &rows {
            let notice = read(row)?;
            if self.claim(&notice, now).await? {
                self.deliver(&notice).await?;
            }
        }
        Ok(())
    }

    /// Claims a notice, unless another node has.
    async fn claim(&self, notice: &StoredNotice, now: Millis) -> sqlx::Result<bool> {
        let text = "UPDATE notices SET next_attempt_at = $1 WHERE id = $2 AND next_attempt_at = $3";
        let claimed = sqlx::query(text)
            .bind(now.0 + CLAIM_MS)
            .bind(&*notice.id)
            .bind(notice.due_at)
            .execute(self.payments.database.writer())
            .await?;
        Ok(claimed.rows_affected() == 1)
    }

    async fn deliver(&self, notice: &StoredNotice) -> sqlx::Result<()> {
        if notice.attempts == 0 {
            tracing::info!(
                notice = notice.id,
                user = notice.user_id,
                kind = notice.kind,
                "a user is to be told"
            );
        }
        let sent = self.send(notice).await;
        let now = self.payments.ledger.now();
        let attempts = notice.attempts + 1;
        let (delivered_at, next_attempt_at, error) = match sent {
            Ok(()) => (Some(now.0), None, None),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    notice = notice.id,
                    attempts,
                    error,
                    "a notice is not delivered"
                );
                let again = attempts < MAX_ATTEMPTS;
                (
                    None,
                    again.then(|| now.0 + pause_ms(notice.attempts)),
                    Some(error),
                )
            }
        };
        sqlx::query(
            "UPDATE notices SET delivered_at = $1, next_attempt_at = $2, last_error = $3, attempts = $4 WHERE id = $5",
        )
        .bind(delivered_at)
        .bind(next_attempt_at)
        .bind(error)
        .bind(attempts)
        .bind(&*notice.id)
        .execute(self.payments.database.writer())
        .await
        .map(drop)
    }

    /// Sends a notice to `payments.notice_url`, if that is set.
    async fn send(&self, notice: &StoredNotice) -> anyhow::Result<()> {
        let payments = self.payments;
        let (Some(url), Some(secret)) = (&payments.settings.notice_url, &payments.notice_secret)
        else {
            return Ok(());
        };
        let mut data = notice.data.clone();
        data["notice_id"] = json!(notice.id);
        data["user_id"] = json!(notice.user_id);
        let body =
            json!({ "type": notice.kind, "timestamp": notice.created_at.iso(), "data": data });
        let body = body.to_string();
        // Headers allow only visible ASCII, and a dot would make the signed text ambiguous.
        let id = notice
            .id
            .replace(|c: char| c == '.' || !c.is_ascii_graphic(), "_");
        let seconds = self.payments.ledger.now().seconds().unsigned_abs();
        let mut headers = webhook::headers(secret, &id, seconds, body.as_bytes())?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = self.client.post(url).headers(headers).body(body);
        let answer = request.timeout(ANSWER_TIMEOUT).send().await;
        let answer = answer.map_err(|error| anyhow!("{}", outgoing::root_cause(error)))?;
        let status = answer.status();
        ensure!(status.is_success(), "the receiver answers {status}");
        Ok(())
    }
}

fn pause_ms(attempts: i64) -> i64 {
    (PAUSE_MS << attempts.clamp(0, 12)).min(LONGEST_PAUSE_MS)
}

fn read(row: &AnyRow) -> sqlx::Result<StoredNotice> {
    let data: String = row.try_get("data")?;
    Ok(StoredNotice {
        id: row.try_get("id")?,
        user_id: row.try_get("user_id")?,
        kind: row.try_get("kind")?,
        data: serde_json::from_str(&data).unwrap_or_else(|_| json!({})),
        created_at: Millis(row.try_get("created_at")?),
        attempts: row.try_get("attempts")?,
        due_at: row.try_get("next_attempt_at")?,
    })
}
