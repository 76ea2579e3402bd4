//! The SQL of auto top-up: preferences and charges.

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_ledger::{BootId, Credits};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;
use weir_storage::ids;

use crate::offers::{TopUpTier, UnknownTier};

/// Charges of a user that may begin within 24 hours.
pub const MOST_A_DAY: i64 = 3;

/// Rows of one query.
const AT_ONCE: i64 = 50;

const DAY_MS: i64 = 86_400_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopUpPreferences {
    pub enabled: bool,
    pub tier: TopUpTier,
    pub threshold: Credits,
    pub cooldown_until: Option<Millis>,
}

/// A charge, completed or open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PastCharge {
    pub tier: String,
    pub created_at: Millis,
    pub outcome: Option<String>,
    pub error: Option<String>,
}

/// An account with a low balance and without a notice of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LowBalance {
    pub user_id: String,
    pub since: Millis,
    pub credits: Credits,
    pub threshold: Credits,
    pub buys: bool,
}

/// An open charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundCharge {
    id: String,
    pub user_id: String,
    boot_id: String,
    claimed_until: Millis,
}

/// An open charge that this node has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimedCharge {
    pub id: String,
    pub user_id: String,
    pub customer_id: String,
    pub tier: TopUpTier,
    pub created_at: Millis,
    /// Number of attempts, with the present one.
    pub attempts: i64,
    claimed_until: Millis,
}

#[derive(Debug, Clone, Copy)]
pub enum ChargeEnd<'a> {
    Succeeded {
        /// The processor's id of the payment.
        payment_id: &'a str,
    },
    /// The processor declined the charge.
    Failed {
        /// The processor's code.
        why: &'a str,
        /// The failed payment, if the processor named it.
        payment_id: Option<&'a str>,
    },
    /// The processor never made the charge.
    Abandoned,
}

/// Reads the preferences of a user, if the user has set any.
pub(super) async fn find_wish(
    database: &Database,
    user_id: &str,
) -> sqlx::Result<Option<TopUpPreferences>> {
    let row = sqlx::query(
        "SELECT enabled_at, tier, threshold, cooldown_until FROM auto_top_ups WHERE user_id = $1",
    )
    .bind(user_id)
    .fetch_optional(database.reader())
    .await?;
    row.as_ref()
        .map(|row| {
            Ok(TopUpPreferences {
                enabled: row.try_get::<Option<i64>, _>("enabled_at")?.is_some(),
                tier: read_tier(row)?,
                threshold: Credits::from_micro(row.try_get("threshold")?),
                cooldown_until: row.try_get::<Option<i64>, _>("cooldown_until")?.map(Millis),
            })
        })
        .transpose()
}

/// Stores the preferences of a user. A cooldown stays.
pub(super) async fn put_wish(
    database: &Database,
    user_id: &str,
    wish: &TopUpPreferences,
    now: Millis,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO auto_top_ups (user_id, enabled_at, tier, threshold, changed_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (user_id) DO UPDATE SET enabled_at = excluded.enabled_at, tier = excluded.tier, \
         threshold = excluded.threshold, changed_at = excluded.changed_at",
    )
    .bind(user_id)
    .bind(wish.enabled.then_some(now.0))
    .bind(wish.tier.name())
    .bind(wish.threshold.micro())
    .bind(now.0)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Reads the last charge of a user, and counts the charges of the last 24 hours.
pub(super) async fn find_past(
    database: &Database,
    user_id: &str,
    now: Millis,
) -> sqlx::Result<(Option<PastCharge>, i64)> {
    let row = sqlx::query(
        "SELECT tier, created_at, outcome, error FROM auto_top_up_charges WHERE user_id = $1 \
         ORDER BY created_at DESC LIMIT 1",
    )
    .bind(user_id)
    .fetch_optional(database.reader())
    .await?;
    let read = |row: &AnyRow| {
        Ok::<_, sqlx::Error>(PastCharge {
            tier: row.try_get("tier")?,
            created_at: Millis(row.try_get("created_at")?),
            outcome: row.try_get("outcome")?,
            error: row.try_get("error")?,
        })
    };
    let last = row.as_ref().map(read).transpose()?;
    let counted = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT {}", counted("$1"))))
        .bind(user_id)
        .bind(now.0 - DAY_MS)
        .fetch_one(database.reader())
        .await?;
    Ok((last, counted))
}

/// SQL that counts the charges of a user since `$2`. Abandoned charges do not count.
fn counted(user: &str) -> String {
    format!(
        "(SELECT CAST(COUNT(*) AS BIGINT) FROM auto_top_up_charges WHERE user_id = {user} \
         AND created_at > $2 AND (outcome IS NULL OR outcome <> 'abandoned'))"
    )
}

/// SQL: account `a` owes nothing, and its user `u` is not disabled.
const MAY_BE_CHARGED: &str = "a.owed = 0 AND NULLIF(u.disabled_at, 0) IS NULL";

/// SQL: account `a` has a low balance at the moment `$1`. A due period of the free plan excludes the account, because
/// its next request gets new credits.
const IS_LOW: &str = "a.low_since IS NOT NULL AND (a.plan <> 'free' OR a.period_end > $1)";

/// Whether an account owes nothing and its user is not disabled.
pub(super) async fn may_be_charged(database: &Database, user_id: &str) -> sqlx::Result<bool> {
    let text = format!(
        "SELECT CAST(COUNT(*) AS BIGINT) FROM accounts a JOIN users u ON u.id = a.id \
         WHERE a.id = $1 AND {MAY_BE_CHARGED}"
    );
    let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(text))
        .bind(user_id)
        .fetch_one(database.reader())
        .await?;
    Ok(found == 1)
}

/// Users whose balance is low and who can be charged, up to a limit.
pub(super) async fn find_low(database: &Database, now: Millis) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
        "SELECT a.id FROM accounts a JOIN auto_top_ups t ON t.user_id = a.id JOIN users u ON u.id = a.id \
         WHERE {IS_LOW} AND {MAY_BE_CHARGED} AND t.enabled_at IS NOT NULL \
         AND (t.cooldown_until IS NULL OR t.cooldown_until <= $1) \
         AND NOT EXISTS (SELECT 1 FROM auto_top_up_charges c WHERE c.user_id = a.id AND c.ended_at IS NULL) \
         AND (SELECT COUNT(*) FROM auto_top_up_charges c WHERE c.user_id = a.id AND c.created_at > $2 \
         AND (c.outcome IS NULL OR c.outcome <> 'abandoned')) < $3 ORDER BY a.low_since LIMIT $4"
    )))
    .bind(now.0)
    .bind(now.0 - DAY_MS)
    .bind(MOST_A_DAY)
    .bind(AT_ONCE)
    .fetch_all(database.reader())
    .await
}

/// Accounts whose balance became low since a moment, without a notice, up to a limit.
pub(super) async fn find_untold(
    database: &Database,
    since: Millis,
) -> sqlx::Result<Vec<LowBalance>> {
    let rows = sqlx::query(
        "SELECT a.id, a.low_since, a.low_below, a.plan_credits + a.top_up_credits AS credits, t.enabled_at \
         FROM accounts a LEFT JOIN auto_top_ups t ON t.user_id = a.id \
         WHERE a.low_since >= $1 AND NOT EXISTS (SELECT 1 FROM notices n \
         WHERE n.id = 'low_balance:' || a.id || ':' || CAST(a.low_since AS TEXT)) LIMIT $2",
    )
    .bind(since.0)
    .bind(AT_ONCE)
    .fetch_all(database.reader())
    .await?;
    let read = |row: &AnyRow| {
        Ok(LowBalance {
            user_id: row.try_get("id")?,
            since: Millis(row.try_get("low_since")?),
            credits: Credits::from_micro(row.try_get("credits")?),
            threshold: Credits::from_micro(row.try_get("low_below")?),
            buys: row.try_get::<Option<i64>, _>("enabled_at")?.is_some(),
        })
    };
    rows.iter().map(read).collect()
}

/// Stores a charge, if its conditions still hold. The charge belongs to the caller until `until`.
pub(super) async fn begin(
    database: &Database,
    user_id: &str,
    boot_id: &BootId,
    now: Millis,
    until: Millis,
) -> sqlx::Result<Option<ClaimedCharge>> {
    let mut transaction = database.begin().await?;
    if database.dialect() == SqlDialect::Postgres {
        // The lock keeps other nodes from starting or ending a charge between the count and the insert.
        sqlx::query("SELECT user_id FROM auto_top_ups WHERE user_id = $1 FOR UPDATE")
            .bind(user_id)
            .fetch_optional(&mut transaction)
            .await?;
    }
    let id = ids::charge_id();
    // The insert checks the conditions again: the account may owe credits by now, or the user may be disabled.
    let text = format!(
        "INSERT INTO auto_top_up_charges (id, user_id, tier, created_at, boot_id, claimed_until, attempts) \
         SELECT $3, t.user_id, t.tier, $1, $7, $5, 1 FROM auto_top_ups t JOIN accounts a ON a.id = t.user_id \
         JOIN users u ON u.id = t.user_id JOIN payment_customers p ON p.user_id = t.user_id \
         WHERE t.user_id = $4 AND t.enabled_at IS NOT NULL AND {IS_LOW} AND {MAY_BE_CHARGED} \
         AND (t.cooldown_until IS NULL OR t.cooldown_until <= $1) AND {} < $6 ON CONFLICT DO NOTHING",
        counted("$4")
    );
    let begun = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(now.0)
        .bind(now.0 - DAY_MS)
        .bind(&*id)
        .bind(user_id)
        .bind(until.0)
        .bind(MOST_A_DAY)
        .bind(boot_id.as_str())
        .execute(&mut transaction)
        .await?;
    if begun.rows_affected() != 1 {
        return Ok(None);
    }
    let charge = read_charge(&mut transaction, &id).await?;
    transaction.commit().await?;
    Ok(charge)
}

/// Open charges without a live node, up to a limit.
pub(super) async fn find_open(database: &Database, now: Millis) -> sqlx::Result<Vec<FoundCharge>> {
    let rows = sqlx::query(
        "SELECT id, user_id, boot_id, claimed_until FROM auto_top_up_charges c WHERE ended_at IS NULL AND (claimed_until <= $1 \
         OR NOT EXISTS (SELECT 1 FROM node_leases l WHERE l.boot_id = c.boot_id AND l.lease_until > $1)) \
         ORDER BY claimed_until LIMIT $2",
    )
    .bind(now.0)
    .bind(AT_ONCE)
    .fetch_all(database.reader())
    .await?;
    let read = |row: &AnyRow| {
        Ok(FoundCharge {
            id: row.try_get("id")?,
            user_id: row.try_get("user_id")?,
            boot_id: row.try_get("boot_id")?,
            claimed_until: Millis(row.try_get("claimed_until")?),
        })
    };
    rows.iter().map(read).collect()
}

/// Claims such a charge; `None` if another node has claimed it, or it has ended.
pub(super) async fn claim(
    database: &Database,
    found: &FoundCharge,
    boot_id: &BootId,
    until: Millis,
) -> sqlx::Result<Option<ClaimedCharge>> {
    let mut transaction = database.begin().await?;
    let claimed = sqlx::query(
        "UPDATE auto_top_up_charges SET boot_id = $1, claimed_until = $2, attempts = attempts + 1 \
         WHERE id = $3 AND boot_id = $4 AND claimed_until = $5 AND ended_at IS NULL",
    )
    .bind(boot_id.as_str())
    .bind(until.0)
    .bind(&*found.id)
    .bind(&*found.boot_id)
    .bind(found.claimed_until.0)
    .execute(&mut transaction)
    .await?;
    if claimed.rows_affected() != 1 {
        return Ok(None);
    }
    let charge = read_charge(&mut transaction, &found.id).await?;
    transaction.commit().await?;
    Ok(charge)
}

async fn read_charge(
    transaction: &mut weir_storage::database::Transaction,
    id: &str,
) -> sqlx::Result<Option<ClaimedCharge>> {
    let row = sqlx::query(
        "SELECT c.id, c.user_id, p.customer_id, c.tier, c.created_at, c.attempts, c.claimed_until \
         FROM auto_top_up_charges c JOIN payment_customers p ON p.user_id = c.user_id WHERE c.id = $1",
    )
    .bind(id)
    .fetch_optional(transaction)
    .await?;
    row.as_ref()
        .map(|row| {
            Ok(ClaimedCharge {
                id: row.try_get("id")?,
                user_id: row.try_get("user_id")?,
                customer_id: row.try_get("customer_id")?,
                tier: read_tier(row)?,
                created_at: Millis(row.try_get("created_at")?),
                attempts: row.try_get("attempts")?,
                claimed_until: Millis(row.try_get("claimed_until")?),
            })
        })
        .transpose()
}

/// Releases a charge. Any node can claim it from `until` on.
pub(super) async fn postpone(
    database: &Database,
    charge: &ClaimedCharge,
    until: Millis,
    why: &str,
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE auto_top_up_charges SET claimed_until = $1, error = $2 \
         WHERE id = $3 AND claimed_until = $4 AND ended_at IS NULL",
    )
    .bind(until.0)
    .bind(why)
    .bind(&*charge.id)
    .bind(charge.claimed_until.0)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Stores the result of a charge. Returns false if a result was stored before.
pub async fn end_charge(
    database: &Database,
    id: &str,
    user_id: &str,
    ended: &ChargeEnd<'_>,
    now: Millis,
) -> sqlx::Result<bool> {
    let (outcome, payment_id, why) = match *ended {
        ChargeEnd::Succeeded { payment_id } => ("succeeded", Some(payment_id), None),
        ChargeEnd::Failed { why, payment_id } => ("failed", payment_id, Some(why)),
        ChargeEnd::Abandoned => ("abandoned", None, None),
    };
    let ended = sqlx::query(
        "UPDATE auto_top_up_charges SET ended_at = $1, outcome = $2, payment_id = $3, error = $4 \
         WHERE id = $5 AND user_id = $6 AND ended_at IS NULL",
    )
    .bind(now.0)
    .bind(outcome)
    .bind(payment_id)
    .bind(why)
    .bind(id)
    .bind(user_id)
    .execute(database.writer())
    .await?;
    Ok(ended.rows_affected() == 1)
}

/// Blocks new charges of a user before a moment. The caller stores the failed result afterwards.
pub async fn cool_down(database: &Database, user_id: &str, until: Millis) -> sqlx::Result<()> {
    let text = "UPDATE auto_top_ups SET cooldown_until = $1 \
                WHERE user_id = $2 AND (cooldown_until IS NULL OR cooldown_until < $1)";
    sqlx::query(text)
        .bind(until.0)
        .bind(user_id)
        .execute(database.writer())
        .await
        .map(drop)
}

fn read_tier(row: &AnyRow) -> sqlx::Result<TopUpTier> {
    let name: String = row.try_get("tier")?;
    name.parse()
        .map_err(|error: UnknownTier| sqlx::Error::Decode(error.into()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use sqlx::Executor as _;
    use weir_storage::secrets::SecretUrl;

    use super::*;

    const NOW: Millis = Millis(1_000_000_000_000);

    #[tokio::test]
    async fn no_charge_begins_for_an_account_that_owes_or_a_user_who_is_disabled() {
        let url = SecretUrl::new("sqlite::memory:");
        let database = Database::open(&url).await.unwrap();
        let run = async |text: &'static str| database.writer().execute(text).await.unwrap();
        for text in [
            "INSERT INTO users (id, created_at) VALUES ('u', 0)",
            "INSERT INTO accounts (id, created_at, plan, period_start, period_end, period_number, plan_credits, \
             top_up_credits, plan_held, top_up_held, entries, low_below, low_since) \
             VALUES ('u', 0, 'free', 0, 2000000000000, 1, 0, 0, 0, 0, 0, 5, 1)",
            "INSERT INTO payment_customers (user_id, customer_id, linked_at) VALUES ('u', 'cus_u', 0)",
            "INSERT INTO auto_top_ups (user_id, enabled_at, tier, threshold, changed_at) VALUES ('u', 0, 'small', 5, 0)",
        ] {
            run(text).await;
        }
        let boot_id = BootId::of("boot").unwrap();
        let begun = async || {
            begin(&database, "u", &boot_id, NOW, NOW)
                .await
                .unwrap()
                .is_some()
        };
        let found = async || !find_low(&database, NOW).await.unwrap().is_empty();
        for (spoilt, mended) in [
            (
                "UPDATE accounts SET owed = 1",
                "UPDATE accounts SET owed = 0",
            ),
            (
                "UPDATE users SET disabled_at = 1",
                "UPDATE users SET disabled_at = NULL",
            ),
            (
                "UPDATE accounts SET period_end = 1",
                "UPDATE accounts SET period_end = 2000000000000",
            ),
        ] {
            run(spoilt).await;
            assert!(!found().await && !begun().await, "{spoilt}");
            run(mended).await;
            assert!(found().await, "{mended}");
        }
        assert!(begun().await);
        assert!(!found().await && !begun().await, "one is open");
    }
}
