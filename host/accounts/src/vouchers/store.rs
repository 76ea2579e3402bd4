//! The SQL of vouchers.

use sqlx::Row;
use sqlx::any::AnyRow;
use weir_ledger::Credits;
use weir_storage::Database;
use weir_storage::clock::Millis;

#[derive(Debug, Clone)]
pub struct Voucher {
    /// The voucher's public id.
    pub id: String,
    /// The operators' name of the voucher.
    pub name: String,
    /// Credits for each account that redeems it.
    pub credits: Credits,
    /// Number of accounts that may redeem the voucher.
    pub uses: i64,
    /// Number of accounts that have redeemed it.
    pub redeemed: i64,
    /// The time of its creation.
    pub created_at: Millis,
    /// The operator who created it.
    pub created_by: String,
    /// The time from which it cannot be redeemed.
    pub expires_at: Millis,
    /// The time of its revocation.
    pub revoked_at: Option<Millis>,
}

#[derive(Debug, Clone)]
pub struct Redemption {
    /// The account that has the credits.
    pub user_id: String,
    pub voucher_id: String,
    pub credits: Credits,
    pub redeemed_at: Millis,
}

#[derive(Debug)]
pub enum VoucherClaim {
    /// The account has a use of the voucher: now, or from an earlier claim.
    Claimed(Redemption),
    /// The voucher is revoked, expired or used up.
    Refused,
}

/// Stores a voucher.
pub async fn insert(
    database: &Database,
    voucher: &Voucher,
    code_hash: Vec<u8>,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO vouchers (id, code_hash, name, credits, uses, created_at, created_by, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(&*voucher.id)
    .bind(code_hash)
    .bind(&*voucher.name)
    .bind(voucher.credits.micro())
    .bind(voucher.uses)
    .bind(voucher.created_at.0)
    .bind(&*voucher.created_by)
    .bind(voucher.expires_at.0)
    .execute(database.writer())
    .await
    .map(drop)
}

/// Returns vouchers, newest first, below the id `before`.
pub async fn list(
    database: &Database,
    before: Option<&str>,
    limit: u32,
) -> sqlx::Result<Vec<Voucher>> {
    // Ids are hexadecimal digits after their prefix, and `~` is greater than those.
    let rows = sqlx::query("SELECT * FROM vouchers WHERE id < $1 ORDER BY id DESC LIMIT $2")
        .bind(before.unwrap_or("vou_~"))
        .bind(i64::from(limit))
        .fetch_all(database.reader())
        .await?;
    rows.iter().map(read).collect()
}

/// Returns the voucher with a code's hash.
pub async fn find_by_hash(
    database: &Database,
    code_hash: Vec<u8>,
) -> sqlx::Result<Option<Voucher>> {
    let row = sqlx::query("SELECT * FROM vouchers WHERE code_hash = $1")
        .bind(code_hash)
        .fetch_optional(database.reader())
        .await?;
    row.as_ref().map(read).transpose()
}

pub async fn find(database: &Database, id: &str) -> sqlx::Result<Option<Voucher>> {
    let row = sqlx::query("SELECT * FROM vouchers WHERE id = $1")
        .bind(id)
        .fetch_optional(database.reader())
        .await?;
    row.as_ref().map(read).transpose()
}

/// Revokes a voucher. Returns whether it was not revoked before.
pub async fn revoke(database: &Database, id: &str, now: Millis) -> sqlx::Result<bool> {
    let revoked =
        sqlx::query("UPDATE vouchers SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL")
            .bind(now.0)
            .bind(id)
            .execute(database.writer())
            .await?;
    Ok(revoked.rows_affected() == 1)
}

/// Takes one use of a voucher for an account, unless the account or the person who acts for it has one already. One
/// transaction keeps the count, the account and the person within their limits under any concurrency.
pub async fn claim(
    database: &Database,
    voucher: &Voucher,
    (user_id, person_id): (&str, &str),
    now: Millis,
) -> sqlx::Result<VoucherClaim> {
    let mut transaction = database.begin().await?;
    let inserted = sqlx::query(
        "INSERT INTO voucher_redemptions (user_id, voucher_id, credits, redeemed_at, person_id) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
    )
    .bind(user_id)
    .bind(&*voucher.id)
    .bind(voucher.credits.micro())
    .bind(now.0)
    .bind(person_id)
    .execute(&mut transaction)
    .await?;
    if inserted.rows_affected() == 1 {
        let counted = sqlx::query(
            "UPDATE vouchers SET redeemed = redeemed + 1 \
             WHERE id = $1 AND redeemed < uses AND revoked_at IS NULL AND expires_at > $2",
        )
        .bind(&*voucher.id)
        .bind(now.0)
        .execute(&mut transaction)
        .await?;
        if counted.rows_affected() == 0 {
            // Without a commit, the transaction rolls back.
            return Ok(VoucherClaim::Refused);
        }
    }
    let row = sqlx::query(
        "SELECT user_id, voucher_id, credits, redeemed_at FROM voucher_redemptions \
         WHERE voucher_id = $2 AND (user_id = $1 OR person_id = $3) \
         ORDER BY CASE WHEN user_id = $1 THEN 0 ELSE 1 END LIMIT 1",
    )
    .bind(user_id)
    .bind(&*voucher.id)
    .bind(person_id)
    .fetch_one(&mut transaction)
    .await?;
    let redemption = read_redemption(&row)?;
    transaction.commit().await?;
    Ok(VoucherClaim::Claimed(redemption))
}

/// Records that the ledger has the credits. Returns whether that was not recorded before.
pub async fn mark_applied(
    database: &Database,
    redemption: &Redemption,
    now: Millis,
) -> sqlx::Result<bool> {
    let marked = sqlx::query(
        "UPDATE voucher_redemptions SET applied_at = $1 \
         WHERE user_id = $2 AND voucher_id = $3 AND applied_at IS NULL",
    )
    .bind(now.0)
    .bind(&*redemption.user_id)
    .bind(&*redemption.voucher_id)
    .execute(database.writer())
    .await?;
    Ok(marked.rows_affected() == 1)
}

/// Returns redemptions before a moment whose credits may be missing in the ledger, oldest first.
pub async fn open_redemptions(
    database: &Database,
    before: Millis,
    most: i64,
) -> sqlx::Result<Vec<Redemption>> {
    let rows = sqlx::query(
        "SELECT user_id, voucher_id, credits, redeemed_at FROM voucher_redemptions \
         WHERE applied_at IS NULL AND redeemed_at < $1 ORDER BY redeemed_at LIMIT $2",
    )
    .bind(before.0)
    .bind(most)
    .fetch_all(database.reader())
    .await?;
    rows.iter().map(read_redemption).collect()
}

/// Counts a person's guess before the look-up. Returns the number of guesses in the current window, and the window's
/// start.
pub async fn count_guess(
    database: &Database,
    user_id: &str,
    now: Millis,
    window_ms: i64,
) -> sqlx::Result<(i64, Millis)> {
    let row = sqlx::query(
        "INSERT INTO voucher_guesses (user_id, since, guesses) VALUES ($1, $2, 1) \
         ON CONFLICT (user_id) DO UPDATE SET \
         guesses = CASE WHEN voucher_guesses.since <= $3 THEN 1 ELSE voucher_guesses.guesses + 1 END, \
         since = CASE WHEN voucher_guesses.since <= $3 THEN $2 ELSE voucher_guesses.since END \
         RETURNING guesses, since",
    )
    .bind(user_id)
    .bind(now.0)
    .bind(now.0 - window_ms)
    .fetch_one(database.writer())
    .await?;
    Ok((row.try_get("guesses")?, Millis(row.try_get("since")?)))
}

/// Removes one code from the count: the code was not a guess.
pub async fn forget_guess(database: &Database, user_id: &str) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE voucher_guesses SET guesses = guesses - 1 WHERE user_id = $1 AND guesses > 0",
    )
    .bind(user_id)
    .execute(database.writer())
    .await
    .map(drop)
}

fn read(row: &AnyRow) -> sqlx::Result<Voucher> {
    Ok(Voucher {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        credits: Credits::from_micro(row.try_get("credits")?),
        uses: row.try_get("uses")?,
        redeemed: row.try_get("redeemed")?,
        created_at: Millis(row.try_get("created_at")?),
        created_by: row.try_get("created_by")?,
        expires_at: Millis(row.try_get("expires_at")?),
        revoked_at: row.try_get::<Option<i64>, _>("revoked_at")?.map(Millis),
    })
}

fn read_redemption(row: &AnyRow) -> sqlx::Result<Redemption> {
    Ok(Redemption {
        user_id: row.try_get("user_id")?,
        voucher_id: row.try_get("voucher_id")?,
        credits: Credits::from_micro(row.try_get("credits")?),
        redeemed_at: Millis(row.try_get("redeemed_at")?),
    })
}
