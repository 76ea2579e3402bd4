//! Comparison of payments with the ledger, for `weir ledger verify`.
//!
//! The comparison reads `payments`, `payment_subscriptions`, `vouchers`, `voucher_redemptions`, and the grants, top-ups
//! and refunds of the ledger. It leaves out events in progress.
//!
//! **Invariant:** the comparison changes nothing. `weir payments retry` or `weir user adjust` corrects a finding.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AnyConnection, Row};
use weir_ledger::verify::{Extent, Violation};
use weir_ledger::{Grant, OperationRequest, Period};
use weir_storage::Database;
use weir_storage::clock::Millis;

/// Range of [`Extent::New`] in days; it covers every current period.
const RECENT_DAYS: i64 = 40;

/// Maximum time in milliseconds between an entry of the ledger and the row of its payment.
const UNDER_WAY_MS: i64 = 5 * 60_000;

/// Maximum number of findings of one kind.
const LISTED: usize = 100;

/// The name of these findings, in the series of the ledger's invariants.
const INVARIANT: &str = "I10";

/// Descriptions of findings, each with a query for the payments or operations. `$1` is the start of the range, `$2` the
/// end.
const CHECKS: [(&str, &str); 8] = [
    (
        "a payment for credits gave other credits, or none",
        "SELECT p.id FROM payments p LEFT JOIN entries e ON e.operation_id = 'topup:' || p.id AND e.account_id = p.user_id \
         WHERE p.kind <> 'plan' AND p.paid_at >= $1 AND p.paid_at < $2 \
         AND (e.number IS NULL OR e.plan_delta + e.top_up_delta <> p.credits) LIMIT 100",
    ),
    (
        "credits were given for a payment that is not known",
        "SELECT e.operation_id FROM entries e LEFT JOIN payments p ON p.id = SUBSTR(e.operation_id, 7) \
         WHERE e.operation_id LIKE 'topup:%' AND e.at >= $1 AND e.at < $2 AND p.id IS NULL LIMIT 100",
    ),
    (
        "credits were not taken back with their payment",
        // The last step took credits, or gave some back after a failed refund or a won dispute.
        "SELECT p.id FROM payments p LEFT JOIN entries e ON e.operation_id IN \
         ('refund:' || p.id || ':' || CAST(p.refunded AS TEXT) \
         || CASE WHEN p.returns > 0 THEN ':' || CAST(p.returns AS TEXT) ELSE '' END, \
         'return:' || p.id || ':' || CAST(p.refunded AS TEXT) || ':' || CAST(p.returns AS TEXT)) \
         WHERE p.kind <> 'plan' AND p.paid_at >= $1 AND p.paid_at < $2 AND (p.refunded > 0 OR p.returns > 0) \
         AND p.refunding IS NULL AND e.number IS NULL LIMIT 100",
    ),
    (
        "a paid invoice was applied without all its lines: retry its event",
        "SELECT id FROM payment_events WHERE type = 'invoice.paid' AND state = 'applied' \
         AND created_at >= $1 AND created_at < $2 AND content LIKE '%\"has_more_lines\":true%' LIMIT 100",
    ),
    (
        "the account is on the free plan within a period that is paid for",
        "SELECT p.id FROM payments p JOIN accounts a ON a.id = p.user_id \
         WHERE p.kind = 'plan' AND p.paid_at >= $1 AND p.paid_at < $2 AND p.period_start <= $2 AND p.period_end > $2 \
         AND (p.amount = 0 OR p.refunded < p.amount) AND a.plan = 'free' LIMIT 100",
    ),
    (
        "a redeemed voucher gave other credits, or none",
        "SELECT 'voucher:' || r.voucher_id || ':' || r.user_id FROM voucher_redemptions r LEFT JOIN entries e \
         ON e.operation_id = 'voucher:' || r.voucher_id || ':' || r.user_id AND e.account_id = r.user_id \
         WHERE r.redeemed_at >= $1 AND r.redeemed_at < $2 \
         AND (e.number IS NULL OR e.plan_delta + e.top_up_delta <> r.credits) LIMIT 100",
    ),
    (
        "credits were given for a voucher that was not redeemed",
        "SELECT e.operation_id FROM entries e LEFT JOIN voucher_redemptions r \
         ON r.user_id = e.account_id AND e.operation_id = 'voucher:' || r.voucher_id || ':' || r.user_id \
         WHERE e.operation_id LIKE 'voucher:%' AND e.at >= $1 AND e.at < $2 AND r.user_id IS NULL LIMIT 100",
    ),
    (
        "a voucher counts other uses than its redemptions",
        "SELECT v.id FROM vouchers v LEFT JOIN \
         (SELECT voucher_id, CAST(COUNT(*) AS BIGINT) AS uses FROM voucher_redemptions GROUP BY voucher_id) r \
         ON r.voucher_id = v.id WHERE v.expires_at >= $1 AND v.created_at < $2 \
         AND v.redeemed <> COALESCE(r.uses, 0) LIMIT 100",
    ),
];

/// A period that the ledger began for a subscription.
struct GrantedPeriod {
    operation_id: String,
    at: Millis,
    period: Period,
}

/// A paid period of a plan, or a part of one.
struct PlanPaid {
    id: String,
    /// The middle of the period. The bounds may be a few seconds off if a checkout began the period.
    middle: Millis,
    end: Millis,
    paid_at: Millis,
}

/// Finds payments and grants that do not match. [`Extent::New`] covers the last 40 days.
pub async fn look(
    database: &Database,
    now: Millis,
    extent: Extent,
) -> sqlx::Result<Vec<Violation>> {
    let since = match extent {
        Extent::All => Millis(0),
        Extent::New => now.plus_days(-RECENT_DAYS),
    };
    let until = Millis(now.0 - UNDER_WAY_MS);
    let is_looked_at = |at: Millis| (since..until).contains(&at);
    let mut snapshot = database.snapshot().await?;
    let mut violations = Vec::new();
    for (what, query) in CHECKS {
        let found = sqlx::query(query).bind(since.0).bind(until.0);
        for row in found.fetch_all(&mut *snapshot).await? {
            violations.push(violation(what, row.try_get(0)?));
        }
    }
    let granted = granted(&mut snapshot).await?;
    let paid = plans_paid(&mut snapshot).await?;
    let known = subscriptions(&mut snapshot).await?;
    snapshot.rollback().await?;

    let mut mismatches = Vec::new();
    for ((user, subscription), mut grants) in by_subscription(&granted) {
        grants.sort_by_key(|grant| grant.period.start);
        let first = grants.first().map(|grant| grant.period.start);
        let is_known = known.contains(&(user.to_owned(), subscription.to_owned()));
        for grant in grants {
            let of_user = paid.get(user).into_iter().flatten();
            let mut paid = of_user.filter(|paid| grant.period.contains(paid.middle));
            let what = if !is_known {
                "a plan was granted for a subscription that is not known"
            } else if Some(grant.period.start) != first && paid.next().is_none() {
                // A trial or a checkout can give the first period without a payment.
                "a period was granted that is not paid for"
            } else {
                continue;
            };
            if is_looked_at(grant.at) {
                mismatches.push(violation(what, grant.operation_id.clone()));
            }
        }
    }
    for (user, paid) in &paid {
        let grants = granted.get(user);
        for paid in paid.iter().filter(|paid| paid.paid_at < paid.end) {
            let mut grants = grants.into_iter().flatten();
            let is_granted = grants.any(|(_, grant)| grant.period.contains(paid.middle));
            if is_looked_at(paid.paid_at) && !is_granted {
                let what = "a period was paid for that is not granted";
                mismatches.push(violation(what, paid.id.clone()));
            }
        }
    }
    mismatches.truncate(LISTED);
    violations.extend(mismatches);
    Ok(violations)
}

fn violation(what: &'static str, subject: String) -> Violation {
    Violation {
        invariant: INVARIANT,
        what,
        subject,
    }
}

/// Granted periods of subscriptions, by user, each with the id of the subscription.
async fn granted(
    snapshot: &mut AnyConnection,
) -> sqlx::Result<BTreeMap<String, Vec<(String, GrantedPeriod)>>> {
    let text = "SELECT account_id, operation_id, operation, at FROM entries WHERE operation_id LIKE 'grant:%'";
    let mut granted: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for row in sqlx::query(text).fetch_all(snapshot).await? {
        let operation: String = row.try_get("operation")?;
        let asked = serde_json::from_str(&operation);
        let OperationRequest::Grant(Grant { period, .. }) =
            asked.map_err(|error| sqlx::Error::Decode(error.into()))?
        else {
            continue;
        };
        let operation_id: String = row.try_get("operation_id")?;
        // `grant:SUBSCRIPTION:…`; the processor's ids have no colon.
        let subscription = operation_id.split(':').nth(1).unwrap_or_default();
        let of_user = granted.entry(row.try_get("account_id")?).or_default();
        let subscription = subscription.to_owned();
        let at = Millis(row.try_get("at")?);
        let grant = GrantedPeriod {
            operation_id,
            at,
            period,
        };
        of_user.push((subscription, grant));
    }
    Ok(granted)
}

fn by_subscription(
    granted: &BTreeMap<String, Vec<(String, GrantedPeriod)>>,
) -> BTreeMap<(&str, &str), Vec<&GrantedPeriod>> {
    let mut grouped: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (user, granted) in granted {
        for (subscription, grant) in granted {
            let group = grouped.entry((&**user, &**subscription)).or_default();
            group.push(grant);
        }
    }
    grouped
}

/// Paid periods of plans that gave credits, by user.
async fn plans_paid(snapshot: &mut AnyConnection) -> sqlx::Result<BTreeMap<String, Vec<PlanPaid>>> {
    let text = "SELECT id, user_id, period_start, period_end, paid_at FROM payments \
                WHERE kind = 'plan' AND credits > 0 AND period_start IS NOT NULL AND period_end IS NOT NULL";
    let mut paid: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for row in sqlx::query(text).fetch_all(snapshot).await? {
        let (start, end): (i64, i64) = (row.try_get("period_start")?, row.try_get("period_end")?);
        let of_user = paid.entry(row.try_get("user_id")?).or_default();
        of_user.push(PlanPaid {
            id: row.try_get("id")?,
            middle: Millis(start + (end - start) / 2),
            end: Millis(end),
            paid_at: Millis(row.try_get("paid_at")?),
        });
    }
    Ok(paid)
}

async fn subscriptions(snapshot: &mut AnyConnection) -> sqlx::Result<BTreeSet<(String, String)>> {
    let rows = sqlx::query_as("SELECT user_id, id FROM payment_subscriptions");
    let rows: Vec<(String, String)> = rows.fetch_all(snapshot).await?;
    Ok(rows.into_iter().collect())
}
