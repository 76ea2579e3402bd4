//! The SQL of subscriptions and payments.

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};
use weir_ledger::Credits;
use weir_storage::Database;
use weir_storage::clock::Millis;

use super::state::{Subscription, renews};
use crate::events::PaidPeriod;
use crate::store::of_user;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The processor's id.
    pub id: String,
    /// The user who paid.
    pub user_id: String,
    pub kind: PaymentKind,
    pub credits: Credits,
    /// In cents.
    pub amount: i64,
    /// Three letters; `None` if the processor's event had none.
    pub currency: Option<String>,
    /// The paid period of a plan.
    pub period: Option<PaidPeriod>,
    /// The invoice of a plan.
    pub invoice: Option<String>,
    /// The subscription of a plan.
    pub subscription: Option<String>,
    pub paid_at: Millis,
    /// Cents that went back to the user.
    pub refunded: i64,
    /// The new value of [`refunded`](Self::refunded), while its credits are being taken or given back.
    pub refunding: Option<i64>,
    /// The credits that were taken back, or are owed, for the refunded cents.
    pub taken: Credits,
    /// Number of times that credits were given back: a refund failed, or a dispute was won.
    pub returns: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentKind {
    /// A plan's credits, for a period.
    Plan,
    /// Credits that do not expire.
    TopUp,
    /// Credits that auto top-up bought.
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

/// The user of a subscription or payment.
pub async fn user_of_subject(database: &Database, subject: &str) -> sqlx::Result<Option<String>> {
    let text = "SELECT user_id FROM payment_subscriptions WHERE id = $1 \
                UNION ALL SELECT user_id FROM payments WHERE id = $1 \
                UNION ALL SELECT user_id FROM payments WHERE invoice_id = $1";
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

/// The start of a period that weir granted before the processor sent its bounds.
pub async fn provisional_start(database: &Database, id: &str) -> sqlx::Result<Option<Millis>> {
    let text = "SELECT provisional_start FROM payment_subscriptions WHERE id = $1";
    let found: Option<Option<i64>> = sqlx::query_scalar(text)
        .bind(id)
        .fetch_optional(database.reader())
        .await?;
    Ok(found.flatten().map(Millis))
}

/// Stores the present state of a subscription.
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

/// Credits of paid plan changes within a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpgradeGrant {
    pub period_end: Millis,
    /// Credits given so far; negative if more were taken back than given.
    pub given: Credits,
    /// The new sum, while a change is in progress.
    pub giving: Option<Credits>,
    /// The moment within the period that the change in progress sends to the ledger. A repeat sends the same.
    pub within: Option<Millis>,
    /// Number of completed changes.
    pub steps: i64,
}

/// Credits of a subscription's paid plan changes, by period.
pub async fn given_upgrades(
    database: &Database,
    subscription: &str,
) -> sqlx::Result<Vec<UpgradeGrant>> {
    let rows = sqlx::query("SELECT * FROM payment_upgrades WHERE subscription_id = $1")
        .bind(subscription)
        .fetch_all(database.reader())
        .await?;
    let read = |row: &AnyRow| {
        let giving: Option<i64> = row.try_get("giving")?;
        let within: Option<i64> = row.try_get("within")?;
        Ok(UpgradeGrant {
            period_end: Millis(row.try_get("period_end")?),
            given: Credits::from_micro(row.try_get("given")?),
            giving: giving.map(Credits::from_micro),
            within: within.map(Millis),
            steps: row.try_get("steps")?,
        })
    };
    rows.iter().map(read).collect()
}

/// Stores a change in progress: the credits of a period's plan changes.
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

/// Marks the change as done.
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

/// Whether a user has a subscription that continues after its period.
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

/// The time since which an invoice of a user's subscription is unpaid, if one is.
pub async fn payment_failed_at(database: &Database, user_id: &str) -> sqlx::Result<Option<Millis>> {
    let text = "SELECT CAST(MIN(payment_failed_at) AS BIGINT) FROM payment_subscriptions WHERE user_id = $1";
    let since: Option<i64> = sqlx::query_scalar(text)
        .bind(user_id)
        .fetch_one(database.reader())
        .await?;
    Ok(since.map(Millis))
}

/// Stores a payment, unless it is known.
pub async fn put_payment(database: &Database, payment: &Payment) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO payments (id, user_id, kind, credits, amount, period_start, period_end, paid_at, currency, invoice_id, \
         subscription_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
         ON CONFLICT (id) DO UPDATE SET invoice_id = COALESCE(payments.invoice_id, excluded.invoice_id), \
         subscription_id = COALESCE(payments.subscription_id, excluded.subscription_id)",
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
    .bind(payment.invoice.as_deref())
    .bind(payment.subscription.as_deref())
    .execute(database.writer())
    .await
    .map(drop)
}

/// A payment by its id, or by the id of its invoice, if it is known.
pub async fn find_payment(database: &Database, id: &str) -> sqlx::Result<Option<Payment>> {
    let text = "SELECT * FROM payments WHERE id = $1 \
                UNION SELECT * FROM payments WHERE invoice_id = $1 LIMIT 1";
    let row = sqlx::query(text)
        .bind(id)
        .fetch_optional(database.reader())
        .await?;
    row.as_ref().map(read_payment).transpose()
}

/// Payments in a time range, start included, end excluded: of one user, or of all.
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
        invoice: row.try_get("invoice_id")?,
        subscription: row.try_get("subscription_id")?,
        paid_at: Millis(row.try_get("paid_at")?),
        refunded: row.try_get("refunded")?,
        refunding: row.try_get("refunding")?,
        taken: Credits::from_micro(row.try_get("taken")?),
        returns: row.try_get("returns")?,
    })
}

/// Stores a change of the refunded cents in progress, unless there is one.
pub async fn begin_refund(database: &Database, id: &str, cents: i64) -> sqlx::Result<()> {
    let text =
        "UPDATE payments SET refunding = $1 WHERE id = $2 AND refunding IS NULL AND refunded <> $1";
    sqlx::query(text)
        .bind(cents)
        .bind(id)
        .execute(database.writer())
        .await
        .map(drop)
}

/// Marks the change as done, with the credits that it took or gave back.
pub async fn end_refund(database: &Database, payment: &Payment) -> sqlx::Result<()> {
    let text = "UPDATE payments SET refunded = $1, refunding = NULL, taken = $3, returns = $4 \
                WHERE id = $2 AND refunding = $1";
    sqlx::query(text)
        .bind(payment.refunded)
        .bind(&*payment.id)
        .bind(payment.taken.micro())
        .bind(payment.returns)
        .execute(database.writer())
        .await
        .map(drop)
}
