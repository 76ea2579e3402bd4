//! Whether what is stored is sound: each balance from its entries, each hold from its own.
//!
//! Reads the whole ledger in some long statements, so it is for operators and tests. They see one moment, so
//! that it may be in use meanwhile.

use sqlx::{AssertSqlSafe, Row};
use weir_storage::Database;
use weir_storage::clock::Millis;

use crate::usage::COUNTS;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant that is broken, e.g. `I1`.
    pub invariant: &'static str,
    /// The finding, in words.
    pub what: &'static str,
    /// The account, hold or request that it was found at.
    pub subject: String,
}

/// Violations that are listed of each kind.
const LISTED: i64 = 100;

/// How long after its node's lease an open hold may still wait for a sweep.
const SWEEP_ALLOWANCE_MS: i64 = 15_000;

/// Invariant, what is wrong, and a query for the subjects. `$NOW` is the moment before which no lease with
/// an open hold may have lapsed; the other names are filled in from the columns of what is counted in usage.
const CHECKS: &[(&str, &str, &str)] = &[
    (
        "I1",
        "the balance is not the sum of the entries",
        "SELECT a.id FROM accounts a LEFT JOIN (SELECT account_id, CAST(SUM(plan_delta) AS BIGINT) AS plan, \
         CAST(SUM(top_up_delta) AS BIGINT) AS top_up FROM entries GROUP BY account_id) e ON e.account_id = a.id \
         WHERE COALESCE(e.plan, 0) <> a.plan_credits OR COALESCE(e.top_up, 0) <> a.top_up_credits",
    ),
    (
        "I1",
        "entries are missing",
        "SELECT a.id FROM accounts a LEFT JOIN (SELECT account_id, CAST(COUNT(*) AS BIGINT) AS n, \
         MAX(sequence) AS last FROM entries GROUP BY account_id) e ON e.account_id = a.id \
         WHERE COALESCE(e.n, 0) <> a.entries OR COALESCE(e.last, 0) <> a.entries",
    ),
    (
        "I2",
        "what is held is not the sum of the open holds",
        "SELECT a.id FROM accounts a LEFT JOIN (SELECT account_id, CAST(SUM(plan_reserved) AS BIGINT) AS plan, \
         CAST(SUM(top_up_reserved) AS BIGINT) AS top_up FROM holds WHERE state = 'open' GROUP BY account_id) h \
         ON h.account_id = a.id \
         WHERE COALESCE(h.plan, 0) <> a.plan_held OR COALESCE(h.top_up, 0) <> a.top_up_held",
    ),
    (
        "I2",
        "more is held than there is",
        "SELECT id FROM accounts WHERE plan_held < 0 OR top_up_held < 0 \
         OR plan_credits < plan_held OR top_up_credits < top_up_held",
    ),
    (
        "I3",
        "what a hold posted is not the sum of its entries",
        "SELECT h.id FROM holds h LEFT JOIN (SELECT hold_id, CAST(SUM(plan_delta) AS BIGINT) AS plan, \
         CAST(SUM(top_up_delta) AS BIGINT) AS top_up, CAST(SUM(overrun) AS BIGINT) AS overrun \
         FROM entries WHERE hold_id IS NOT NULL GROUP BY hold_id) e ON e.hold_id = h.id \
         WHERE COALESCE(-e.plan, 0) <> h.plan_posted OR COALESCE(-e.top_up, 0) <> h.top_up_posted \
         OR COALESCE(e.overrun, 0) <> h.overrun",
    ),
    (
        "I3",
        "a hold within its amount has an overrun",
        "SELECT h.id FROM holds h LEFT JOIN (SELECT DISTINCT parent_id FROM holds WHERE parent_id IS NOT NULL) c \
         ON c.parent_id = h.id LEFT JOIN (SELECT DISTINCT hold_id FROM entries WHERE kind = 'expiry') e \
         ON e.hold_id = h.id WHERE h.overrun > 0 AND h.settled <= h.amount \
         AND c.parent_id IS NULL AND e.hold_id IS NULL",
    ),
    (
        "I4",
        "a hold ended more than once, or without an entry",
        "SELECT h.id FROM holds h LEFT JOIN (SELECT hold_id, \
         CAST(SUM(CASE WHEN kind IN ('settlement', 'expiry') THEN 1 ELSE 0 END) AS BIGINT) AS ends, \
         CAST(SUM(CASE WHEN kind = 'settlement' THEN 1 ELSE 0 END) AS BIGINT) AS settlements, \
         CAST(SUM(CASE WHEN kind IN ('late_settlement', 'late_release') THEN 1 ELSE 0 END) AS BIGINT) AS late \
         FROM entries WHERE hold_id IS NOT NULL GROUP BY hold_id) e ON e.hold_id = h.id \
         WHERE CASE h.state WHEN 'open' THEN COALESCE(e.ends + e.late, 0) <> 0 \
         WHEN 'settled' THEN COALESCE(e.ends, 0) <> 1 OR e.late + e.settlements <> 1 \
         WHEN 'expired' THEN COALESCE(e.ends, 0) <> 1 OR e.settlements + e.late <> 0 \
         ELSE COALESCE(e.ends, 0) <> COALESCE(e.late, 0) OR COALESCE(e.ends, 0) > 1 \
         OR COALESCE(e.settlements, 0) <> 0 END",
    ),
    (
        "I4",
        "a request was charged under more than one hold of its own",
        "SELECT request_id FROM holds WHERE parent_id IS NULL AND settled > 0 \
         GROUP BY account_id, request_id HAVING COUNT(*) > 1",
    ),
    (
        "I5",
        "an idempotency key names a request of another account",
        "SELECT k.account_id FROM idempotency_keys k JOIN holds h ON h.request_id = k.request_id \
         WHERE h.account_id <> k.account_id",
    ),
    (
        "I6",
        "an entry is in another period than its hold",
        "SELECT h.id FROM entries e JOIN holds h ON h.id = e.hold_id \
         WHERE e.period_start <> h.period_start OR e.account_id <> h.account_id",
    ),
    (
        "I6",
        "a period's usage is not the sum of its entries",
        "SELECT account_id FROM (\
         SELECT account_id, period_start, model, provider, source, credits, overrun, requests, $COUNTS \
         FROM usage_daily UNION ALL \
         SELECT account_id, period_start, model, provider, source, plan_delta + top_up_delta, -overrun, \
         -requests, $LESS_COUNTS FROM entries WHERE provider IS NOT NULL) sums \
         GROUP BY account_id, period_start, model, provider, source \
         HAVING SUM(credits) <> 0 OR SUM(overrun) <> 0 OR SUM(requests) <> 0 OR $COUNTS_DIFFER",
    ),
    (
        "I7",
        "an open hold has outlived its node's lease",
        "SELECT id FROM holds WHERE state = 'open' AND opened_at < $NOW AND NOT EXISTS \
         (SELECT 1 FROM node_leases l WHERE l.boot_id = holds.boot_id AND l.lease_until > $NOW)",
    ),
];

/// Everything that is wrong with a ledger, at most 100 of each kind.
pub async fn verify(database: &Database, now: Millis) -> sqlx::Result<Vec<Violation>> {
    let lapsed_before = (now.0 - SWEEP_ALLOWANCE_MS).to_string();
    let columns = |each: fn(&str) -> String, separator| {
        let columns: Vec<_> = COUNTS.iter().map(|count| each(count.column)).collect();
        columns.join(separator)
    };
    let counts = columns(str::to_owned, ", ");
    let less_counts = columns(|column| format!("-{column}"), ", ");
    let differ = columns(|column| format!("SUM({column}) <> 0"), " OR ");
    let mut snapshot = database.snapshot().await?;
    let mut violations = Vec::new();
    for &(invariant, what, query) in CHECKS {
        let query = query
            .replace("$NOW", &lapsed_before)
            .replace("$COUNTS_DIFFER", &differ)
            .replace("$LESS_COUNTS", &less_counts)
            .replace("$COUNTS", &counts);
        let query = AssertSqlSafe(format!("{query} LIMIT {LISTED}"));
        for row in sqlx::query(query).fetch_all(&mut *snapshot).await? {
            violations.push(Violation {
                invariant,
                what,
                subject: row.try_get(0)?,
            });
        }
    }
    snapshot.rollback().await?;
    Ok(violations)
}
