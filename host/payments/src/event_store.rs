//! The SQL of stored events and of turns.

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};
use weir_storage::Database;
use weir_storage::clock::Millis;

use crate::events::{EventContent, EventType, PaymentEvent};
use crate::store::of_user;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPaymentEvent {
    pub id: String,
    /// The processor's name of the type.
    pub name: String,
    /// The content; `None` if another version of weir stored it in an unknown form.
    pub event: Option<PaymentEvent>,
    /// The time of the event, by the processor's clock.
    pub created_at: Millis,
    /// The time of arrival.
    pub received_at: Millis,
    /// The user, if known.
    pub user_id: Option<String>,
    /// The processor's customer.
    pub customer: Option<String>,
    /// The subscription, payment or customer.
    pub subject: Option<String>,
    pub state: EventState,
    /// Number of failed attempts.
    pub attempts: i64,
    pub next_attempt_at: Option<Millis>,
    pub last_error: Option<String>,
    /// The time at which the event was applied or ignored.
    pub applied_at: Option<Millis>,
    pub outcome: Option<String>,
    /// The time of arrival, or of an operator's last retry. Retries stop a limited time later.
    pub tried_since: Millis,
}

/// Groups of due events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueEvents {
    /// Events without an attempt.
    New,
    /// Events with a failed attempt.
    Retries,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventState {
    /// The event is not applied yet, or its user or payment is unknown.
    Waiting,
    /// An attempt failed. weir retries the event for 72 hours.
    Failed,
    Applied,
    /// The event does not concern weir.
    Ignored,
}

/// Conditions of a list; `None` is no condition.
#[derive(Debug, Clone, Default)]
pub struct PaymentEventFilter {
    /// Only events in this state.
    pub state: Option<EventState>,
    /// Only events of this user.
    pub user_id: Option<String>,
    /// Only events that arrived before this one.
    pub before: Option<(Millis, String)>,
}

pub struct FailedAttempt<'a> {
    /// The state until the next attempt.
    pub state: EventState,
    pub error: &'a str,
    /// Number of failed attempts, with this one.
    pub attempts: i64,
    /// The time of the next attempt; `None` if retries have stopped.
    pub next_attempt_at: Option<Millis>,
}

impl StoredPaymentEvent {
    /// The user, or else the best known id. Events with the same value are applied one at a time.
    pub fn whose(&self) -> &str {
        let known = self.user_id.as_ref().or(self.customer.as_ref());
        known.or(self.subject.as_ref()).unwrap_or(&self.id)
    }
}

impl EventState {
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Failed, Self::Applied, Self::Ignored];

    /// Its name in the API and the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Applied => "applied",
            Self::Ignored => "ignored",
        }
    }

    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// Stores an event, due at once, unless its id is known. Returns whether the event is new.
pub async fn keep(
    database: &Database,
    event: &PaymentEvent,
    user_id: Option<&str>,
    now: Millis,
) -> sqlx::Result<bool> {
    let is_unknown = event.about == EventContent::Unknown;
    let (state, due) = match is_unknown {
        true => (EventState::Ignored, None),
        false => (EventState::Waiting, Some(now.0)),
    };
    let kept = sqlx::query(
        "INSERT INTO payment_events (id, type, created_at, received_at, content, user_id, customer_id, subject, state, \
         next_attempt_at, applied_at, outcome) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(&*event.id)
    .bind(&*event.name)
    .bind(event.created_at.0)
    .bind(now.0)
    .bind(serde_json::to_string(event).map_err(|error| sqlx::Error::Encode(error.into()))?)
    .bind(user_id)
    .bind(event.customer.as_deref())
    .bind(event.subject())
    .bind(state.name())
    .bind(due)
    .bind(is_unknown.then_some(now.0))
    .bind(is_unknown.then_some("unknown type"))
    .execute(database.writer())
    .await?;
    Ok(kept.rows_affected() == 1)
}

/// At most `limit` due events, the longest due first, without those whose [`StoredPaymentEvent::whose`] is in `under_way`.
pub async fn due<'a>(
    database: &Database,
    which: DueEvents,
    now: Millis,
    under_way: impl Iterator<Item = &'a str>,
    limit: usize,
) -> sqlx::Result<Vec<StoredPaymentEvent>> {
    let condition = match which {
        DueEvents::New => "attempts = 0",
        DueEvents::Retries => "attempts > 0",
    };
    let keys = database.dialect().texts(2);
    let text = format!(
        "SELECT * FROM payment_events WHERE {condition} AND next_attempt_at <= $1 \
         AND COALESCE(user_id, customer_id, subject, id) NOT IN ({keys}) ORDER BY next_attempt_at, id LIMIT $3"
    );
    let under_way: Vec<_> = under_way.collect();
    let rows = sqlx::query(AssertSqlSafe(text))
        .bind(now.0)
        .bind(serde_json::Value::from(under_way).to_string())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(database.reader())
        .await?;
    rows.iter().map(read).collect()
}

pub async fn find(database: &Database, id: &str) -> sqlx::Result<Option<StoredPaymentEvent>> {
    let row = sqlx::query("SELECT * FROM payment_events WHERE id = $1")
        .bind(id)
        .fetch_optional(database.reader())
        .await?;
    row.as_ref().map(read).transpose()
}

/// Replaces the content of an event by a complete one.
pub async fn complete(database: &Database, event: &PaymentEvent) -> sqlx::Result<()> {
    let content = serde_json::to_string(event);
    let content = content.map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query("UPDATE payment_events SET content = $1 WHERE id = $2")
        .bind(content)
        .bind(&*event.id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// All events of a payment, and of its invoice if it has one: credit notes name only the invoice.
pub async fn of_payment(
    database: &Database,
    payment: &str,
    invoice: Option<&str>,
) -> sqlx::Result<Vec<PaymentEvent>> {
    let mut events = of_subject(database, payment).await?;
    if let Some(invoice) = invoice.filter(|invoice| *invoice != payment) {
        events.extend(of_subject(database, invoice).await?);
    }
    Ok(events)
}

/// All events of a subscription or payment, applied or not. Unreadable events are left out.
pub async fn of_subject(database: &Database, subject: &str) -> sqlx::Result<Vec<PaymentEvent>> {
    let text = "SELECT content FROM payment_events WHERE subject = $1";
    let rows = sqlx::query(text)
        .bind(subject)
        .fetch_all(database.reader())
        .await?;
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let content: String = row.try_get("content")?;
        events.extend(serde_json::from_str(&content).ok());
    }
    Ok(events)
}

/// Events, newest first.
pub async fn list(
    database: &Database,
    filter: &PaymentEventFilter,
    limit: u32,
) -> sqlx::Result<Vec<StoredPaymentEvent>> {
    let mut text = "SELECT * FROM payment_events WHERE".to_owned();
    // A condition that also allows all rows would use no index.
    text.push_str(match filter.state {
        Some(_) => " state = $1",
        None => " $1 = ''",
    });
    text.push_str(match filter.user_id {
        Some(_) => " AND user_id = $2",
        None => " AND $2 = ''",
    });
    text.push_str(match filter.before {
        Some(_) => " AND (received_at, id) < ($3, $4)",
        None => " AND CAST($3 AS BIGINT) = 0 AND $4 = ''",
    });
    text.push_str(" ORDER BY received_at DESC, id DESC LIMIT $5");
    let before = filter.before.as_ref();
    let rows = sqlx::query(AssertSqlSafe(text))
        .bind(filter.state.map_or("", EventState::name))
        .bind(filter.user_id.as_deref().unwrap_or_default())
        .bind(before.map_or(0, |(at, _)| at.0))
        .bind(before.map_or("", |(_, id)| id))
        .bind(i64::from(limit))
        .fetch_all(database.reader())
        .await?;
    rows.iter().map(read).collect()
}

/// Number of events that wait or are retried, by state.
pub async fn count_open(database: &Database) -> sqlx::Result<Vec<(&'static str, i64)>> {
    // The states are explicit, because SQLite would otherwise read all events in the order of their states.
    let text = "SELECT state, CAST(COUNT(*) AS BIGINT) FROM payment_events \
                WHERE state IN ('waiting', 'failed') AND next_attempt_at IS NOT NULL GROUP BY state";
    let counted: Vec<(String, i64)> = sqlx::query_as(text).fetch_all(database.reader()).await?;
    let open = [EventState::Waiting, EventState::Failed].map(EventState::name);
    let count = |state: &str| counted.iter().find(|(name, _)| name == state);
    Ok(open
        .map(|state| (state, count(state).map_or(0, |(_, events)| *events)))
        .into())
}

/// Stores that an event is applied or ignored.
pub async fn end(
    database: &Database,
    id: &str,
    user_id: &str,
    state: EventState,
    outcome: &str,
    at: Millis,
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE payment_events SET state = $1, outcome = $2, applied_at = $3, user_id = $4, next_attempt_at = NULL, \
         last_error = NULL WHERE id = $5",
    )
    .bind(state.name())
    .bind(outcome)
    .bind(at.0)
    .bind(user_id)
    .bind(id)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Stores a failed attempt, unless the event is applied by now. Returns whether it stored the attempt.
pub async fn put_off(
    database: &Database,
    id: &str,
    user_id: Option<&str>,
    trouble: &FailedAttempt<'_>,
) -> sqlx::Result<bool> {
    let noted = sqlx::query(
        "UPDATE payment_events SET state = $1, last_error = $2, attempts = $3, next_attempt_at = $4, \
         user_id = COALESCE(user_id, $5) WHERE id = $6 AND applied_at IS NULL",
    )
    .bind(trouble.state.name())
    .bind(trouble.error)
    .bind(trouble.attempts)
    .bind(trouble.next_attempt_at.map(|at| at.0))
    .bind(user_id)
    .bind(id)
    .execute(database.writer())
    .await?;
    Ok(noted.rows_affected() == 1)
}

/// Payments, or their invoices, with a refund, credit note or dispute in a time range, start included, end excluded: of
/// one user, or of all.
pub async fn refunded_between(
    database: &Database,
    user_id: Option<&str>,
    [from, to]: [Millis; 2],
) -> sqlx::Result<Vec<String>> {
    let types = EventType::ALL.iter().filter(|kind| kind.is_of_refunds());
    let types: Vec<_> = types.map(|kind| format!("'{}'", kind.name())).collect();
    let text = format!(
        "SELECT DISTINCT subject FROM payment_events WHERE type IN ({}) \
         AND {} AND created_at >= $2 AND created_at < $3 AND subject IS NOT NULL ORDER BY subject",
        types.join(", "),
        of_user(user_id)
    );
    sqlx::query_scalar(AssertSqlSafe(text))
        .bind(user_id)
        .bind(from.0)
        .bind(to.0)
        .fetch_all(database.reader())
        .await
}

/// Makes an event due now.
pub async fn wake(database: &Database, id: &str, now: Millis) -> sqlx::Result<()> {
    let text =
        "UPDATE payment_events SET next_attempt_at = $1 WHERE id = $2 AND applied_at IS NULL";
    wake_where(database, text, id, now).await
}

/// Makes the events due that wait for a link of this customer to a user.
pub async fn wake_customer(database: &Database, customer: &str, now: Millis) -> sqlx::Result<()> {
    let text = "UPDATE payment_events SET next_attempt_at = $1 \
                WHERE customer_id = $2 AND user_id IS NULL AND applied_at IS NULL";
    wake_where(database, text, customer, now).await
}

/// Makes the events due that wait for a subscription or payment.
pub async fn wake_subject(database: &Database, subject: &str, now: Millis) -> sqlx::Result<()> {
    let text = "UPDATE payment_events SET next_attempt_at = $1 \
                WHERE subject = $2 AND applied_at IS NULL AND attempts > 0";
    wake_where(database, text, subject, now).await
}

async fn wake_where(
    database: &Database,
    text: &'static str,
    what: &str,
    now: Millis,
) -> sqlx::Result<()> {
    sqlx::query(text)
        .bind(now.0)
        .bind(what)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Makes an event due, applied or not. Returns false if there is no such event, or its type is unknown.
pub async fn retry(database: &Database, id: &str, now: Millis) -> sqlx::Result<bool> {
    let text = "UPDATE payment_events SET state = 'waiting', next_attempt_at = $1, retried_at = $1, applied_at = NULL, \
                attempts = 0 WHERE id = $2 AND subject IS NOT NULL";
    let retried = sqlx::query(text)
        .bind(now.0)
        .bind(id)
        .execute(database.writer())
        .await?;
    Ok(retried.rows_affected() == 1)
}

/// Takes a user's turn, if no node has it.
pub async fn take_turn(
    database: &Database,
    user_id: &str,
    holder: &str,
    now: Millis,
    until: Millis,
) -> sqlx::Result<bool> {
    let taken = sqlx::query(
        "INSERT INTO payment_turns (user_id, holder, until) VALUES ($1, $2, $3) \
         ON CONFLICT (user_id) DO UPDATE SET holder = excluded.holder, until = excluded.until \
         WHERE payment_turns.until <= $4",
    )
    .bind(user_id)
    .bind(holder)
    .bind(until.0)
    .bind(now.0)
    .execute(database.writer())
    .await?;
    Ok(taken.rows_affected() == 1)
}

pub async fn give_back_turn(database: &Database, user_id: &str, holder: &str) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM payment_turns WHERE user_id = $1 AND holder = $2")
        .bind(user_id)
        .bind(holder)
        .execute(database.writer())
        .await
        .map(drop)
}

fn read(row: &AnyRow) -> sqlx::Result<StoredPaymentEvent> {
    let moment = |column| {
        let at: Option<i64> = row.try_get(column)?;
        Ok::<_, sqlx::Error>(at.map(Millis))
    };
    let content: String = row.try_get("content")?;
    let state: String = row.try_get("state")?;
    let received_at = Millis(row.try_get("received_at")?);
    Ok(StoredPaymentEvent {
        tried_since: moment("retried_at")?.unwrap_or(received_at),
        received_at,
        event: serde_json::from_str(&content).ok(),
        id: row.try_get("id")?,
        name: row.try_get("type")?,
        created_at: Millis(row.try_get("created_at")?),
        user_id: row.try_get("user_id")?,
        customer: row.try_get("customer_id")?,
        subject: row.try_get("subject")?,
        state: EventState::of(&state).unwrap_or(EventState::Failed),
        attempts: row.try_get("attempts")?,
        next_attempt_at: moment("next_attempt_at")?,
        last_error: row.try_get("last_error")?,
        applied_at: moment("applied_at")?,
        outcome: row.try_get("outcome")?,
    })
}
