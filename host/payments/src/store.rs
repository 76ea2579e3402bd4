//! The SQL of customers, and of the pages on which users were sent to pay.

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_storage::Database;
use weir_storage::clock::Millis;

use crate::effects::store::link;
use crate::terms::CheckoutSession;

/// Where they are kept. Cheap to clone.
#[derive(Clone)]
pub struct PaymentStore {
    database: Database,
}

/// A page on which a user was sent to pay, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCheckout {
    /// Its id, under which the processor is asked for it.
    pub id: String,
    /// The plan or the tier.
    pub item: String,
    /// The processor's id of it and where it is, when the processor has answered.
    pub session: Option<(String, String)>,
    /// When it was asked for.
    pub created_at: Millis,
    /// When it lapses.
    pub expires_at: Millis,
}

/// A page that is to be asked for.
#[derive(Debug, Clone, Copy)]
pub struct NewCheckout<'a> {
    /// Its id.
    pub id: &'a str,
    /// Who is to pay.
    pub user_id: &'a str,
    /// What there is one open page for: `plan`, or `topup:` and the tier.
    pub purpose: &'a str,
    /// The plan or the tier.
    pub item: &'a str,
    /// Now.
    pub created_at: Millis,
    /// When it lapses.
    pub expires_at: Millis,
}

impl PaymentStore {
    /// What a database has of them.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// Who a user is to the processor, once that is known.
    pub async fn customer_of(&self, user_id: &str) -> sqlx::Result<Option<String>> {
        sqlx::query_scalar("SELECT customer_id FROM payment_customers WHERE user_id = $1")
            .bind(user_id)
            .fetch_optional(self.database.reader())
            .await
    }

    /// Notes who a user is to the processor, unless that is known or the customer is somebody else. Returns who they are.
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

    /// The user's open page for a purpose: the one that there is, else this one. `None` if there was one that is closed by
    /// now.
    pub async fn open_checkout(&self, new: &NewCheckout<'_>) -> sqlx::Result<Option<OpenCheckout>> {
        sqlx::query(
            "INSERT INTO payment_checkouts (id, user_id, purpose, item, created_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        )
        .bind(new.id)
        .bind(new.user_id)
        .bind(new.purpose)
        .bind(new.item)
        .bind(new.created_at.0)
        .bind(new.expires_at.0)
        .execute(self.database.writer())
        .await?;
        let row = sqlx::query(
            "SELECT id, item, session_id, url, created_at, expires_at FROM payment_checkouts \
             WHERE user_id = $1 AND purpose = $2 AND closed_at IS NULL",
        )
        .bind(new.user_id)
        .bind(new.purpose)
        .fetch_optional(self.database.reader())
        .await?;
        row.as_ref().map(read).transpose()
    }

    /// Keeps what the processor has answered. Returns whether the page is still open: not if it was closed meanwhile.
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

    /// Closes a page: nobody is sent there any more.
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

    /// The same by the processor's id of it. Of a plan, to be done when its subscription is known: until then, who asks
    /// for a plan is told that they have one by what the processor says of this page.
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

fn read(row: &AnyRow) -> sqlx::Result<OpenCheckout> {
    let session_id: Option<String> = row.try_get("session_id")?;
    let url: Option<String> = row.try_get("url")?;
    Ok(OpenCheckout {
        id: row.try_get("id")?,
        item: row.try_get("item")?,
        session: session_id.zip(url),
        created_at: Millis(row.try_get("created_at")?),
        expires_at: Millis(row.try_get("expires_at")?),
    })
}
