//! The SQL of customers and checkout pages, and the condition that selects a user in all SQL of payments.

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;

use crate::terms::CheckoutSession;

/// The store of customers and checkout pages. Cheap to clone.
#[derive(Clone)]
pub struct PaymentStore {
    database: Database,
}

/// An open checkout page, or a request for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCheckout {
    /// Its id, which is the idempotency key at the processor.
    pub id: String,
    /// The name of the plan or tier.
    pub item: String,
    /// The processor's id and URL, once the processor has responded.
    pub session: Option<(String, String)>,
    /// The time of the request.
    pub created_at: Millis,
    /// The end of its lifetime.
    pub expires_at: Millis,
    /// The page after the payment; `None` for a page of an older version.
    pub success_url: Option<String>,
}

/// A checkout page to request.
#[derive(Debug, Clone, Copy)]
pub struct NewCheckout<'a> {
    pub id: &'a str,
    /// The user who pays.
    pub user_id: &'a str,
    /// Its purpose: `plan`, or `topup:` and the tier. A user has one open page per purpose.
    pub purpose: &'a str,
    /// The name of the plan or tier.
    pub item: &'a str,
    /// The present time.
    pub created_at: Millis,
    /// The end of its lifetime.
    pub expires_at: Millis,
    /// The page after the payment.
    pub success_url: &'a str,
}

impl PaymentStore {
    /// Builds the store on a database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The processor's customer of a user, if there is one.
    pub async fn customer_of(&self, user_id: &str) -> sqlx::Result<Option<String>> {
        sqlx::query_scalar("SELECT customer_id FROM payment_customers WHERE user_id = $1")
            .bind(user_id)
            .fetch_optional(self.database.reader())
            .await
    }

    /// Links a user to a customer, unless one of them has another link. Returns the customer of the user.
    pub async fn link_customer(
        &self,
        user_id: &str,
        customer_id: &str,
        now: Millis,
    ) -> sqlx::Result<Option<String>> {
        link(&self.database, user_id, customer_id, now).await?;
        self.customer_of(user_id).await
    }

    /// Whether a user has a subscription that is not over.
    pub async fn is_subscribed(&self, user_id: &str, now: Millis) -> sqlx::Result<bool> {
        let found: i64 = sqlx::query_scalar(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM payment_subscriptions WHERE user_id = $1 \
             AND status IN ('active', 'trialing', 'past_due') \
             AND (cancelled_at IS NULL OR period_end IS NULL OR period_end > $2)",
        )
        .bind(user_id)
        .bind(now.0)
        .fetch_one(self.database.reader())
        .await?;
        Ok(found > 0)
    }

    /// The user's open page for a purpose, or else this new one. `None` if the open page was closed in the meantime.
    pub async fn open_checkout(&self, new: &NewCheckout<'_>) -> sqlx::Result<Option<OpenCheckout>> {
        sqlx::query(
            "INSERT INTO payment_checkouts (id, user_id, purpose, item, created_at, expires_at, success_url) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
        )
        .bind(new.id)
        .bind(new.user_id)
        .bind(new.purpose)
        .bind(new.item)
        .bind(new.created_at.0)
        .bind(new.expires_at.0)
        .bind(new.success_url)
        .execute(self.database.writer())
        .await?;
        let row = sqlx::query(
            "SELECT id, item, session_id, url, created_at, expires_at, success_url FROM payment_checkouts \
             WHERE user_id = $1 AND purpose = $2 AND closed_at IS NULL",
        )
        .bind(new.user_id)
        .bind(new.purpose)
        .fetch_optional(self.database.reader())
        .await?;
        row.as_ref().map(read).transpose()
    }

    /// Stores the processor's response. Returns whether the page is still open.
    pub async fn keep_session(&self, id: &str, session: &CheckoutSession) -> sqlx::Result<bool> {
        let kept = sqlx::query(
            "UPDATE payment_checkouts SET session_id = $1, url = $2, expires_at = $3 \
             WHERE id = $4 AND closed_at IS NULL",
        )
        .bind(&*session.id)
        .bind(&*session.url)
        .bind(session.expires_at.0)
        .bind(id)
        .execute(self.database.writer())
        .await?;
        Ok(kept.rows_affected() == 1)
    }

    /// Closes a page: weir sends nobody there any more.
    pub async fn close(&self, id: &str, now: Millis) -> sqlx::Result<()> {
        sqlx::query(
            "UPDATE payment_checkouts SET closed_at = $1 WHERE id = $2 AND closed_at IS NULL",
        )
        .bind(now.0)
        .bind(id)
        .execute(self.database.writer())
        .await
        .map(drop)
    }

    /// Closes a page by the processor's id. For a plan, the caller does this once the subscription is known: until
    /// then, the state of this page tells weir that the user has a plan.
    pub async fn close_checkout(&self, session_id: &str, now: Millis) -> sqlx::Result<()> {
        sqlx::query(
            "UPDATE payment_checkouts SET closed_at = $1 WHERE session_id = $2 AND closed_at IS NULL",
        )
        .bind(now.0)
        .bind(session_id)
        .execute(self.database.writer())
        .await
        .map(drop)
    }
}

pub async fn user_of_customer(database: &Database, customer: &str) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar("SELECT user_id FROM payment_customers WHERE customer_id = $1")
        .bind(customer)
        .fetch_optional(database.reader())
        .await
}

/// Links a user to a customer, unless one of them has another link. Returns whether the link is new.
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

/// SQL: a row belongs to the user in the first parameter, or the parameter is null.
pub fn of_user(user_id: Option<&str>) -> &'static str {
    match user_id {
        Some(_) => "user_id = $1",
        // Both conditions use the parameter, because both bind it.
        None => "CAST($1 AS TEXT) IS NULL",
    }
}

fn read(row: &AnyRow) -> sqlx::Result<OpenCheckout> {
    let session_id: Option<String> = row.try_get("session_id")?;
    let url: Option<String> = row.try_get("url")?;
    Ok(OpenCheckout {
        id: row.try_get("id")?,
        item: row.try_get("item")?,
        session: session_id.zip(url),
        created_at: Millis(row.try_get("created_at")?),
        expires_at: Millis(row.try_get("expires_at")?),
        success_url: row.try_get("success_url")?,
    })
}
