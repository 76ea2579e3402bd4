//! The SQL of what events have told: subscriptions, payments, and whose customers are whose.

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};
use weir_ledger::Credits;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::super::events::PaidPeriod;
use super::state::{Subscription, renews};

/// Something that was paid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The processor's id of it.
    pub id: String,
    /// Who paid.
    pub user_id: String,
    /// What it was for.
    pub kind: PaymentKind,
    /// What it gave.
    pub credits: Credits,
    /// In cents.
    pub amount: i64,
    /// Three letters; `None` where the processor's event did not say.
    pub currency: Option<String>,
    /// Of a plan, the span that was paid for.
    pub period: Option<PaidPeriod>,
    /// When.
    pub paid_at: Millis,
    /// For how many of the cents the credits were taken back, or are owed.
    pub refunded: i64,
    /// For how many that is being done.
    pub refunding: Option<i64>,
}

/// What a payment was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentKind {
    /// A plan's credits, for a period.
    Plan,
    /// Credits that do not lapse.
    TopUp,
    /// The same, bought when few were left.
    AutoTopUp,
}

impl PaymentKind {
    /// Its name in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::TopUp => "topup",
            Self::AutoTopUp => "auto_topup",
        }
    }

    fn of(name: &str) -> Self {
        match name {
            "plan" => Self::Plan,
            "auto_topup" => Self::AutoTopUp,
            _ => Self::TopUp,
        }
    }
}

/// Whether there is a user of this id.
pub async fn is_user(database: &Database, user_id: &str) -> sqlx::Result<bool> {
    find_text(database, "SELECT id FROM users WHERE id = $1", user_id)
        .await
        .map(|found| found.is_some())
}

/// The user who is this customer.
pub async fn user_of_customer(database: &Database, customer: &str) -> sqlx::Result<Option<String>> {
    let text = "SELECT user_id FROM payment_customers WHERE customer_id = $1";
    find_text(database, text, customer).await
}

/// Whose subscription or payment this is.
pub async fn user_of_subject(database: &Database, subject: &str) -> sqlx::Result<Option<String>> {
    let text = "SELECT user_id FROM payment_subscriptions WHERE id = $1 \
                UNION ALL SELECT user_id FROM payments WHERE id = $1";
    find_text(database, text, subject).await
}

async fn find_text(
    database: &Database,
    text: &'static str,
    id: &str,
) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar(text)
        .bind(id)
        .fetch_optional(database.reader())
        .await
}

/// Notes that a user is a customer, unless one of the two has another. Returns whether it was news.
pub async fn link(
    database: &Database,
    user_id: &str,
    customer: &str,
    at: Millis,
) -> sqlx::Result<bool> {
    let linked = sqlx::query(
        "INSERT INTO payment_customers (user_id, customer_id, linked_at) VALUES ($1, $2, $3) \
         ON CONFLICT DO NOTHING",
    )
    .bind(user_id)
    .bind(customer)
    .bind(at.0)
    .execute(database.writer())
    .await?;
    Ok(linked.rows_affected() == 1)
}

/// When a period of a subscription began that was granted before the processor had told its bounds.
pub async fn provisional_start(database: &Database, id: &str) -> sqlx::Result<Option<Millis>> {
    let text = "SELECT provisional_start FROM payment_subscriptions WHERE id = $1";
    let found: Option<Option<i64>> = sqlx::query_scalar(text)
        .bind(id)
        .fetch_optional(database.reader())
        .await?;
    Ok(found.flatten().map(Millis))
}

/// Writes down how a subscription is, in the place of what was known of it.
pub async fn put_subscription(
    database: &Database,
    user_id: &str,
    subscription: &Subscription,
    provisional_start: Option<Millis>,
) -> sqlx::Result<()> {
    let ends = subscription.is_ending.then_some(subscription.as_of.0);
    sqlx::query(
        "INSERT INTO payment_subscriptions (id, user_id, plan, status, period_start, period_end, cancelled_at, \
         provisional_start, payment_failed_at, as_of, event_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
         ON CONFLICT (id) DO UPDATE SET plan = excluded.plan, status = excluded.status, \
         period_start = excluded.period_start, period_end = excluded.period_end, \
         cancelled_at = excluded.cancelled_at, provisional_start = excluded.provisional_start, \
         payment_failed_at = excluded.payment_failed_at, as_of = excluded.as_of, event_id = excluded.event_id",
    )
    .bind(&*subscription.id)
    .bind(user_id)
    .bind(subscription.plan.name())
    .bind(&*subscription.status)
    .bind(subscription.period.map(|period| period.start.0))
    .bind(subscription.period.map(|period| period.end.0))
    .bind(ends)
    .bind(provisional_start.map(|start| start.0))
    .bind(subscription.payment_failed_at.map(|since| since.0))
    .bind(subscription.as_of.0)
    .bind(&*subscription.event_id)
    .execute(database.writer())
    .await
    .map(drop)
}

/// What paid changes of plan have given within a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GivenUpgrade {
    /// The period's end.
    pub period_end: Millis,
    /// So many credits.
    pub given: Credits,
    /// What it is being changed to.
    pub giving: Option<Credits>,
    /// The moment in the period that the change under way names to the ledger. A repeat names the same.
    pub within: Option<Millis>,
    /// How often it was changed.
    pub steps: i64,
}

/// What a subscription's paid changes of plan have given, by period.
pub async fn given_upgrades(
    database: &Database,
    subscription: &str,
) -> sqlx::Result<Vec<GivenUpgrade>> {
    let rows = sqlx::query("SELECT * FROM payment_upgrades WHERE subscription_id = $1")
        .bind(subscription)
        .fetch_all(database.reader())
        .await?;
    let read = |row: &AnyRow| {
        let giving: Option<i64> = row.try_get("giving")?;
        let within: Option<i64> = row.try_get("within")?;
        Ok(GivenUpgrade {
            period_end: Millis(row.try_get("period_end")?),
            given: Credits::from_micro(row.try_get("given")?),
            giving: giving.map(Credits::from_micro),
            within: within.map(Millis),
            steps: row.try_get("steps")?,
        })
    };
    rows.iter().map(read).collect()
}

/// Writes down that a period's changes of plan are to give so many credits.
pub async fn begin_upgrade(
    database: &Database,
    subscription: &str,
    period_end: Millis,
    credits: Credits,
    within: Millis,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO payment_upgrades (subscription_id, period_end, giving, within) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (subscription_id, period_end) DO UPDATE SET giving = excluded.giving, within = excluded.within",
    )
    .bind(subscription)
    .bind(period_end.0)
    .bind(credits.micro())
    .bind(within.0)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Writes down that they have.
pub async fn end_upgrade(
    database: &Database,
    subscription: &str,
    period_end: Millis,
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE payment_upgrades SET given = giving, giving = NULL, steps = steps + 1 \
         WHERE subscription_id = $1 AND period_end = $2 AND giving IS NOT NULL",
    )
    .bind(subscription)
    .bind(period_end.0)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Whether a user has a subscription that goes on after its period.
pub async fn has_renewing_subscription(database: &Database, user_id: &str) -> sqlx::Result<bool> {
    let text = "SELECT status, cancelled_at FROM payment_subscriptions WHERE user_id = $1";
    let rows = sqlx::query(text)
        .bind(user_id)
        .fetch_all(database.reader())
        .await?;
    for row in &rows {
        let status: String = row.try_get("status")?;
        let cancelled_at: Option<i64> = row.try_get("cancelled_at")?;
        if renews(&status, cancelled_at.is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Since when an invoice of a user's subscription is not paid, if one is not.
pub async fn payment_failed_at(database: &Database, user_id: &str) -> sqlx::Result<Option<Millis>> {
    let text = "SELECT CAST(MIN(payment_failed_at) AS BIGINT) FROM payment_subscriptions WHERE user_id = $1";
    let since: Option<i64> = sqlx::query_scalar(text)
        .bind(user_id)
        .fetch_one(database.reader())
        .await?;
    Ok(since.map(Millis))
}

/// Writes down what was paid; what is known of it stays.
pub async fn put_payment(database: &Database, payment: &Payment) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO payments (id, user_id, kind, credits, amount, period_start, period_end, paid_at, currency) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING",
    )
    .bind(&*payment.id)
    .bind(&*payment.user_id)
    .bind(payment.kind.name())
    .bind(payment.credits.micro())
    .bind(payment.amount)
    .bind(payment.period.map(|period| period.start.0))
    .bind(payment.period.map(|period| period.end.0))
    .bind(payment.paid_at.0)
    .bind(payment.currency.as_deref())
    .execute(database.writer())
    .await
    .map(drop)
}

/// A payment, if it is known.
pub async fn find_payment(database: &Database, id: &str) -> sqlx::Result<Option<Payment>> {
    let row = sqlx::query("SELECT * FROM payments WHERE id = $1")
        .bind(id)
        .fetch_optional(database.reader())
        .await?;
    row.as_ref().map(read_payment).transpose()
}

/// What was paid from the first of these moments on, and before the second: by a user, or by all.
pub async fn payments_between(
    database: &Database,
    user_id: Option<&str>,
    [from, to]: [Millis; 2],
) -> sqlx::Result<Vec<Payment>> {
    let text = format!(
        "SELECT * FROM payments WHERE {} AND paid_at >= $2 AND paid_at < $3 ORDER BY paid_at, id",
        of_user(user_id)
    );
    let rows = sqlx::query(AssertSqlSafe(text))
        .bind(user_id)
        .bind(from.0)
        .bind(to.0)
        .fetch_all(database.reader())
        .await?;
    rows.iter().map(read_payment).collect()
}

/// The condition that a row is of the user whom the first parameter names, or of any if that is null.
pub fn of_user(user_id: Option<&str>) -> &'static str {
    match user_id {
        Some(_) => "user_id = $1",
        // The parameter is there in both.
        None => "CAST($1 AS TEXT) IS NULL",
    }
}

fn read_payment(row: &AnyRow) -> sqlx::Result<Payment> {
    let moment = |column| row.try_get::<Option<i64>, _>(column);
    let period = match (moment("period_start")?, moment("period_end")?) {
        (Some(start), Some(end)) => Some(PaidPeriod {
            start: Millis(start),
            end: Millis(end),
        }),
        _ => None,
    };
    Ok(Payment {
        id: row.try_get("id")?,
        user_id: row.try_get("user_id")?,
        kind: PaymentKind::of(row.try_get("kind")?),
        credits: Credits::from_micro(row.try_get("credits")?),
        amount: row.try_get("amount")?,
        currency: row.try_get("currency")?,
        period,
        paid_at: Millis(row.try_get("paid_at")?),
        refunded: row.try_get("refunded")?,
        refunding: row.try_get("refunding")?,
    })
}

/// Writes down that the credits for so many cents of a payment are being taken back, unless it is being done for some.
pub async fn begin_refund(database: &Database, id: &str, cents: i64) -> sqlx::Result<()> {
    let text =
        "UPDATE payments SET refunding = $1 WHERE id = $2 AND refunding IS NULL AND refunded < $1";
    sqlx::query(text)
        .bind(cents)
        .bind(id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Writes down that it is done.
pub async fn end_refund(database: &Database, id: &str, cents: i64) -> sqlx::Result<()> {
    let text =
        "UPDATE payments SET refunded = $1, refunding = NULL WHERE id = $2 AND refunding = $1";
    sqlx::query(text)
        .bind(cents)
        .bind(id)
        .execute(database.writer())
        .await
        .map(drop)
}
