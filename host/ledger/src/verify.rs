//! Verification of the ledger: each balance against its entries, each hold against its own entries.
//!
//! Verification reads the complete ledger, or the part since the last verification, in a few long statements, so it is
//! for operators and tests. All statements read one snapshot, so the ledger may be in use meanwhile.
//!
//! Entries never change. The database therefore keeps the sums of verified entries for each account, and the next
//! verification begins after them; it reads usage again from the first moment of that day on.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt as _;
use sqlx::{AnyConnection, AssertSqlSafe, Row};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;

use crate::account::{EntryHash, Pools};
use crate::budgets::{BudgetPart, BudgetWindow, Budgets, Counter};
use crate::log::LogRecord;
use crate::operation::{AccountId, HoldId};
use crate::store::{chain, statement};
use crate::usage::COUNTS;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's name, e.g. `I1`.
    pub invariant: &'static str,
    /// The finding, in words.
    pub what: &'static str,
    /// The account, hold or request.
    pub subject: String,
}

const DAY_MS: i64 = 86_400_000;

/// Maximum listed violations of each kind.
const LISTED: i64 = 100;

/// Time after the expiry of its node's lease in which a sweep must end an open hold.
const SWEEP_ALLOWANCE_MS: i64 = 15_000;

/// Entries per transaction when sums are stored.
const KEPT: i64 = 5_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Every entry in the database.
    All,
    /// Entries after the last verified one.
    New,
}

#[derive(Debug)]
pub struct Findings {
    /// The violations, at most 100 of each kind.
    pub violations: Vec<Violation>,
    /// Number of verified entries.
    pub entries: i64,
    /// The number of the last entry that no later entry can precede.
    last: i64,
    /// The first moment of its day, in UTC.
    day: Millis,
}

/// Invariant, problem, and a query for the subjects. `$NOW` is the time since which every lease with an open hold must
/// be valid; `$NEW` are the entries to verify, `$SUMS` the sums of those and earlier entries for each account; `$ENDS`
/// are the holds in these entries, with the totals of each; the remaining names are replaced by the columns of usage.
const CHECKS: &[(&str, &str, &str)] = &[
    (
        "I1",
        "the balance is not the sum of the entries",
        "SELECT a.id FROM accounts a LEFT JOIN (SELECT account_id, CAST(SUM(plan) AS BIGINT) AS plan, \
         CAST(SUM(top_up) AS BIGINT) AS top_up FROM $SUMS s GROUP BY account_id) e ON e.account_id = a.id \
         WHERE COALESCE(e.plan, 0) <> a.plan_credits OR COALESCE(e.top_up, 0) <> a.top_up_credits",
    ),
    (
        "I1",
        "the owed credits are not the sum of the entries",
        "SELECT a.id FROM accounts a LEFT JOIN (SELECT account_id, CAST(SUM(owed) AS BIGINT) AS owed \
         FROM $SUMS s GROUP BY account_id) e ON e.account_id = a.id WHERE COALESCE(e.owed, 0) <> a.owed",
    ),
    (
        "I1",
        "entries are missing",
        "SELECT a.id FROM accounts a LEFT JOIN (SELECT account_id, CAST(SUM(n) AS BIGINT) AS n, \
         MAX(last) AS last FROM $SUMS s GROUP BY account_id) e ON e.account_id = a.id \
         WHERE COALESCE(e.n, 0) <> a.entries OR COALESCE(e.last, 0) <> a.entries",
    ),
    (
        "I1",
        "an account's index of entries does not match its entries",
        // Two directions, each by the other's key: for one full join, SQLite would compare all pairs.
        "SELECT e.account_id FROM $NEW e LEFT JOIN account_entries i \
         ON i.account_id = e.account_id AND i.sequence = e.sequence \
         WHERE e.number <= (SELECT number FROM entries_folded) AND (i.number IS NULL OR i.number <> e.number) \
         UNION ALL SELECT i.account_id FROM account_entries i LEFT JOIN entries e ON e.number = i.number \
         AND e.account_id = i.account_id AND e.sequence = i.sequence \
         AND e.number <= (SELECT number FROM entries_folded) WHERE i.number > $AFTER AND e.number IS NULL",
    ),
    (
        "I2",
        "the held credits are not the sum of the open holds and blocks",
        "SELECT a.id FROM accounts a LEFT JOIN (SELECT account_id, CAST(SUM(plan_reserved) AS BIGINT) AS plan, \
         CAST(SUM(top_up_reserved) AS BIGINT) AS top_up FROM \
         (SELECT account_id, plan_reserved, top_up_reserved FROM holds UNION ALL \
         SELECT account_id, plan_reserved, top_up_reserved FROM blocks) reserved \
         GROUP BY account_id) h ON h.account_id = a.id \
         WHERE COALESCE(h.plan, 0) <> a.plan_held OR COALESCE(h.top_up, 0) <> a.top_up_held",
    ),
    (
        "I2",
        "the held credits exceed the balance",
        "SELECT id FROM accounts WHERE plan_held < 0 OR top_up_held < 0 \
         OR plan_credits < plan_held OR top_up_credits < top_up_held",
    ),
    (
        "I2",
        "the account owes credits and has credits outside holds",
        "SELECT id FROM accounts WHERE owed > 0 AND plan_credits + top_up_credits > plan_held + top_up_held",
    ),
    (
        "I3",
        "the posted credits of a hold are not the sum of its entries",
        "SELECT h.id FROM holds h LEFT JOIN $ENDS e ON e.hold_id = h.id \
         WHERE COALESCE(-e.plan, 0) <> h.plan_posted OR COALESCE(-e.top_up, 0) <> h.top_up_posted \
         OR COALESCE(e.overrun, 0) <> h.overrun",
    ),
    (
        "I3",
        "a hold within its amount has an overrun",
        "SELECT e.hold_id FROM $ENDS e LEFT JOIN (SELECT parent_id FROM entries WHERE parent_id IS NOT NULL \
         UNION SELECT parent_id FROM holds WHERE parent_id IS NOT NULL) c ON c.parent_id = e.hold_id \
         WHERE e.overrun > 0 AND e.overrun - e.plan - e.top_up <= e.amount AND e.expiries = 0 AND c.parent_id IS NULL",
    ),
    (
        "I4",
        "a hold ended more than once",
        "SELECT hold_id FROM $ENDS e WHERE ends <> 1 OR late > expiries",
    ),
    (
        "I4",
        "the database keeps a hold that ended, or that expired without an entry",
        "SELECT h.id FROM holds h LEFT JOIN $ENDS e ON e.hold_id = h.id \
         WHERE CASE WHEN h.expired_at IS NULL THEN e.hold_id IS NOT NULL \
         ELSE COALESCE(e.expiries, 0) <> 1 OR e.late <> 0 END",
    ),
    (
        "I4",
        "a request was charged under more than one hold of its own",
        "SELECT request_id FROM $ENDS e WHERE parent_id IS NULL AND overrun - plan - top_up > 0 \
         GROUP BY account_id, request_id HAVING COUNT(*) > 1",
    ),
    (
        "I5",
        "an idempotency key names a request of another account",
        "SELECT k.account_id FROM idempotency_keys k LEFT JOIN holds h ON h.id = k.hold_id \
         LEFT JOIN $ENDS e ON e.hold_id = k.hold_id \
         WHERE h.account_id <> k.account_id OR e.account_id <> k.account_id",
    ),
    (
        "I6",
        "entries of a hold belong to different periods or accounts",
        "SELECT e.hold_id FROM $ENDS e LEFT JOIN holds h ON h.id = e.hold_id WHERE e.differ > 0 \
         OR h.period_start <> e.period_start OR h.account_id <> e.account_id",
    ),
    (
        "I6",
        "a period's usage is not the sum of its entries",
        "SELECT account_id FROM (\
         SELECT account_id, period_start, day, model, provider, source, key_hash, credits, overrun, requests, $COUNTS \
         FROM usage_daily WHERE day >= $DAY UNION ALL \
         SELECT account_id, period_start, at - at % 86400000, model, provider, source, \
         CASE WHEN source = 'api_key' THEN COALESCE(source_id, '') ELSE '' END, plan_delta + top_up_delta, \
         -overrun, -requests, $LESS_COUNTS FROM entries \
         WHERE number > $FIRST AND number <= (SELECT number FROM entries_folded) AND at >= $DAY \
         AND provider IS NOT NULL) sums \
         GROUP BY account_id, period_start, day, model, provider, source, key_hash \
         HAVING SUM(credits) <> 0 OR SUM(overrun) <> 0 OR SUM(requests) <> 0 OR $COUNTS_DIFFER",
    ),
    (
        "I6",
        "a day's usage of all accounts is not the sum of theirs",
        "SELECT model FROM (SELECT day, model, provider, credits, overrun, requests, $COUNTS \
         FROM usage_daily WHERE day >= $DAY UNION ALL \
         SELECT day, model, provider, -credits, -overrun, -requests, $LESS_COUNTS \
         FROM platform_daily WHERE day >= $DAY UNION ALL \
         SELECT at - at % 86400000, model, provider, plan_delta + top_up_delta, -overrun, -requests, $LESS_COUNTS \
         FROM entries WHERE number > (SELECT number FROM platform_folded) \
         AND number <= (SELECT number FROM entries_folded) AND at >= $DAY AND provider IS NOT NULL) sums \
         GROUP BY day, model, provider \
         HAVING SUM(credits) <> 0 OR SUM(overrun) <> 0 OR SUM(requests) <> 0 OR $COUNTS_DIFFER",
    ),
    (
        "I7",
        "an open hold has outlived its node's lease",
        "SELECT id FROM holds WHERE expired_at IS NULL AND opened_at < $NOW AND NOT EXISTS \
         (SELECT 1 FROM node_leases l WHERE l.boot_id = holds.boot_id AND l.lease_until > $NOW)",
    ),
    (
        "I7",
        "a block has outlived its node's lease",
        "SELECT account_id FROM blocks WHERE used_at < $NOW AND NOT EXISTS \
         (SELECT 1 FROM node_leases l WHERE l.boot_id = blocks.boot_id AND l.lease_until > $NOW)",
    ),
];

const ENDS: &str = "(SELECT hold_id, MIN(account_id) AS account_id, MIN(request_id) AS request_id, \
     MIN(parent_id) AS parent_id, MAX(amount) AS amount, MIN(period_start) AS period_start, \
     CASE WHEN MIN(account_id) = MAX(account_id) AND MIN(period_start) = MAX(period_start) THEN 0 ELSE 1 END AS differ, \
     CAST(SUM(plan_delta) AS BIGINT) AS plan, CAST(SUM(top_up_delta) AS BIGINT) AS top_up, \
     CAST(SUM(overrun) AS BIGINT) AS overrun, \
     CAST(SUM(CASE WHEN kind IN ('settlement', 'release', 'expiry') THEN 1 ELSE 0 END) AS BIGINT) AS ends, \
     CAST(SUM(CASE WHEN kind = 'expiry' THEN 1 ELSE 0 END) AS BIGINT) AS expiries, \
     CAST(SUM(CASE WHEN kind IN ('late_settlement', 'late_release') THEN 1 ELSE 0 END) AS BIGINT) AS late \
     FROM entries WHERE hold_id IS NOT NULL AND $TOLD GROUP BY hold_id)";

/// A row for each account, or for each of its entries to verify.
const SUMS: &str = "(SELECT account_id, CASE kind WHEN 'opening' THEN amount ELSE 1 END AS n, sequence AS last, \
     plan_delta AS plan, top_up_delta AS top_up, owed FROM entries WHERE number > $AFTER UNION ALL \
     SELECT account_id, entries, entries, plan_credits, top_up_credits, owed FROM verified_accounts WHERE $AFTER > 0)";

/// Holds in the entries to verify, and holds that another condition selects.
const TOLD: &str = "hold_id IN (SELECT hold_id FROM entries WHERE number > $AFTER AND hold_id IS NOT NULL UNION \
     SELECT id FROM holds UNION SELECT hold_id FROM idempotency_keys)";

/// Returns all violations of a ledger, at most 100 of each kind.
pub async fn verify(database: &Database, now: Millis) -> sqlx::Result<Vec<Violation>> {
    let findings = look(database, now, Extent::All, |_| {}).await?;
    Ok(findings.violations)
}

/// Searches for all violations. `progress` receives the name of each check.
pub async fn look(
    database: &Database,
    now: Millis,
    extent: Extent,
    mut progress: impl FnMut(&'static str),
) -> sqlx::Result<Findings> {
    let lapsed_before = (now.0 - SWEEP_ALLOWANCE_MS).to_string();
    let columns = |each: fn(&str) -> String, separator| {
        let columns: Vec<_> = COUNTS.iter().map(|count| each(count.column)).collect();
        columns.join(separator)
    };
    let counts = columns(str::to_owned, ", ");
    let less_counts = columns(|column| format!("-{column}"), ", ");
    let differ = columns(|column| format!("SUM({column}) <> 0"), " OR ");
    let mut snapshot = database.snapshot().await?;
    let marks = sqlx::query(
        "SELECT v.number, v.day, v.day_number, a.day, f.number, \
         (SELECT CAST(COUNT(*) AS BIGINT) FROM entries WHERE number > CASE WHEN $1 > 0 THEN v.number ELSE 0 END) \
         FROM entries_verified v, entries_archived a, entries_folded f",
    )
    .bind(i64::from(extent == Extent::New))
    .fetch_one(&mut *snapshot)
    .await?;
    let mark = |index| marks.try_get::<i64, _>(index);
    // The archive holds the entries of older usage.
    let (after, first, day) = match extent {
        Extent::All => (0, 0, mark(3)?),
        Extent::New => (mark(0)?, mark(2)?, mark(1)?.max(mark(3)?)),
    };
    let new = format!("(SELECT * FROM entries WHERE number > {after})");
    let told = match extent {
        Extent::All => "1 = 1",
        Extent::New => TOLD,
    };
    let mut violations = Vec::new();
    for &(invariant, what, query) in CHECKS {
        progress(what);
        let query = query
            .replace("$ENDS", ENDS)
            .replace("$TOLD", told)
            .replace("$SUMS", SUMS)
            .replace("$NEW", &new)
            .replace("$AFTER", &after.to_string())
            .replace("$FIRST", &first.to_string())
            .replace("$DAY", &day.to_string())
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
    progress("the count of a budget does not match entries and holds");
    violations.extend(budgets_that_differ(&mut snapshot, extent, first, Millis(day)).await?);
    progress("an entry is not the one whose hash the next one names");
    violations.extend(broken_chains(&mut snapshot, after).await?);
    progress("the log has settlements that no reserved credits cover, or that nobody folds");
    let lapsed_before = Millis(now.0 - SWEEP_ALLOWANCE_MS);
    violations.extend(log_violations(&mut snapshot, database.dialect(), lapsed_before).await?);
    progress("the statement of an account does not add up to its balance");
    violations.extend(statements_that_differ(&mut snapshot, after).await?);
    let findings = Findings {
        violations,
        entries: mark(5)?,
        last: mark(4)?,
        day: Millis(now.0 - now.0.rem_euclid(DAY_MS)),
    };
    snapshot.rollback().await?;
    Ok(findings)
}

/// Returns budgets whose counts do not match entries and holds. It reads the entries after `first`, which include all
/// from the moment `day` on, and skips windows that began before it. Budgets without a window are only verified with
/// [`Extent::All`]: against all entries in the database, and the recorded amounts of archived ones.
async fn budgets_that_differ(
    snapshot: &mut AnyConnection,
    extent: Extent,
    first: i64,
    day: Millis,
) -> sqlx::Result<Vec<Violation>> {
    let rows = sqlx::query("SELECT id, budgets FROM accounts WHERE budgets IS NOT NULL")
        .fetch_all(&mut *snapshot)
        .await?;
    // The counts, minus the amounts of entries and holds: the rest must be zero.
    let mut accounts = BTreeMap::new();
    for row in &rows {
        let budgets: String = row.try_get("budgets")?;
        let budgets: Budgets =
            serde_json::from_str(&budgets).map_err(|error| sqlx::Error::Decode(error.into()))?;
        accounts.insert(row.try_get::<String, _>("id")?, budgets);
    }
    if accounts.is_empty() {
        return Ok(Vec::new());
    }
    let held = "SELECT account_id, budget_key, CAST(SUM(plan_reserved + top_up_reserved) AS BIGINT) AS held \
         FROM (SELECT account_id, budget_key, plan_reserved, top_up_reserved FROM holds UNION ALL \
         SELECT account_id, NULLIF(parts, ''), plan_reserved, top_up_reserved FROM blocks) reserved \
         WHERE budget_key IS NOT NULL GROUP BY account_id, budget_key";
    for row in sqlx::query(held).fetch_all(&mut *snapshot).await? {
        let (account, parts): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(budgets) = accounts.get_mut(&account) {
            let parts = BudgetPart::split(Some(&parts));
            budgets.change_held(&parts, -row.try_get::<i64, _>(2)?);
        }
    }
    let entries = "SELECT account_id, budget_key, sequence, at, plan_delta + top_up_delta AS delta FROM entries \
         WHERE number > $1 AND hold_id IS NOT NULL AND plan_delta + top_up_delta <> 0 \
         AND account_id IN (SELECT id FROM accounts WHERE budgets IS NOT NULL)";
    let mut entries = sqlx::query(entries).bind(first).fetch(&mut *snapshot);
    while let Some(row) = entries.try_next().await? {
        let account: String = row.try_get("account_id")?;
        let parts: Option<String> = row.try_get("budget_key")?;
        let (sequence, at) = (row.try_get("sequence")?, Millis(row.try_get("at")?));
        if let Some(budgets) = accounts.get_mut(&account) {
            let parts = BudgetPart::split(parts.as_deref());
            budgets.discount(&parts, row.try_get("delta")?, at, sequence);
        }
    }
    drop(entries);
    let archived = match extent {
        Extent::All => ArchivedFacts::read(snapshot).await?,
        Extent::New => ArchivedFacts::default(),
    };
    let mut violations = Vec::new();
    for (account, budgets) in accounts {
        for budgets in budgets.all() {
            let part = budgets.part.as_ref().map(BudgetPart::to_string);
            let mut violated = |what| {
                violations.push(Violation {
                    invariant: "I8",
                    what,
                    subject: part.as_ref().unwrap_or(&account).clone(),
                });
            };
            if budgets.held != 0 {
                violated(
                    "the held credits of a part's budgets are not the sum of its open holds and blocks",
                );
            }
            let mut counters = budgets.counters.iter();
            let differs = |counter: &Counter| match counter.window {
                BudgetWindow::Total if extent == Extent::New => false,
                BudgetWindow::Total => {
                    let part = part.as_deref().unwrap_or_default();
                    let spent = archived.spent(&account, part, counter.since);
                    spent.is_some_and(|spent| counter.spent != spent)
                }
                _ => counter.start >= day && counter.spent != 0,
            };
            if counters.any(differs) {
                violated("the count of a budget is not the sum of its entries");
            }
        }
    }
    violations.truncate(LISTED as usize);
    Ok(violations)
}

/// Returns the accounts with an entry after `after` that does not have the hash which the next entry, or the account, names.
/// Between entries in the chain, there may be others: of the archive, and of nodes of an earlier release.
async fn broken_chains(snapshot: &mut AnyConnection, after: i64) -> sqlx::Result<Vec<Violation>> {
    let links = format!("{} WHERE number > $1 ORDER BY number", chain::find_links());
    let mut links = sqlx::query(AssertSqlSafe(links))
        .bind(after)
        .fetch(&mut *snapshot);
    let mut last: BTreeMap<String, (i64, EntryHash)> = BTreeMap::new();
    let mut broken = BTreeSet::new();
    while let Some(row) = links.try_next().await? {
        let link = chain::read_link(&row)?;
        let Some(previous) = link.previous else {
            continue;
        };
        if let Some((sequence, hash)) = last.get(&link.account)
            && sequence + 1 == link.sequence
            && *hash != *previous
        {
            broken.insert(link.account.clone());
        }
        last.insert(link.account, (link.sequence, link.hash));
    }
    drop(links);
    let accounts = "SELECT id, last_hash FROM accounts WHERE last_hash IS NOT NULL";
    let mut accounts = sqlx::query(accounts).fetch(snapshot);
    while let Some(row) = accounts.try_next().await? {
        let (id, hash): (String, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
        if last.get(&id).is_some_and(|(_, last)| *last != *hash) {
            broken.insert(id);
        }
    }
    let broken = broken.into_iter().take(LISTED as usize);
    let broken = broken.map(|subject| Violation {
        invariant: "I1",
        what: "an entry is not the one whose hash the next one names",
        subject,
    });
    Ok(broken.collect())
}

/// Returns the runs that have ended, and whose logs are not folded, and the accounts whose blocks do not cover what the log
/// charges, or whose free credits on SQLite. Rows stay in the log for a moment after their fold.
async fn log_violations(
    snapshot: &mut AnyConnection,
    dialect: SqlDialect,
    lapsed_before: Millis,
) -> sqlx::Result<Vec<Violation>> {
    let rows = sqlx::query(
        "SELECT l.boot_id, l.records, n.lease_until, l.ordinal FROM ledger_log l \
         LEFT JOIN node_leases n ON n.boot_id = l.boot_id ORDER BY l.boot_id, l.ordinal",
    )
    .fetch_all(&mut *snapshot)
    .await?;
    let mut violations = Vec::new();
    let mut charges = BTreeMap::new();
    for row in &rows {
        let run: String = row.try_get(0)?;
        let lease_until: Option<i64> = row.try_get(2)?;
        if lease_until.is_none_or(|until| until <= lapsed_before.0) {
            violations.push(Violation {
                invariant: "I7",
                what: "the log of a run has outlived its node's lease",
                subject: run.clone(),
            });
        }
        // Row 0 has checkpoints, which charge nothing yet.
        if row.try_get::<i64, _>(3)? == 0 {
            continue;
        }
        let records: Vec<LogRecord> = serde_json::from_str(row.try_get(1)?)
            .map_err(|error| sqlx::Error::Decode(error.into()))?;
        for record in records {
            charges.insert(record.hold().clone(), (run.clone(), record));
        }
    }
    let listed = dialect.texts(1);
    let holds: Vec<_> = charges.keys().collect();
    let folded: Vec<String> = sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT hold_id FROM entries WHERE hold_id IN ({listed})"
    )))
    .bind(serde_json::to_string(&holds).map_err(|error| sqlx::Error::Encode(error.into()))?)
    .fetch_all(&mut *snapshot)
    .await?;
    for hold in folded {
        charges.remove(&HoldId(hold));
    }
    let accounts: BTreeSet<_> = charges
        .values()
        .map(|(_, record)| record.account())
        .collect();
    let reserved = match dialect {
        SqlDialect::Sqlite => {
            "SELECT id, '', '', 0, plan_credits - plan_held, top_up_credits - top_up_held FROM accounts WHERE id"
        }
        SqlDialect::Postgres => {
            "SELECT account_id, boot_id, parts, top_up_only, plan_reserved, top_up_reserved FROM blocks WHERE account_id"
        }
    };
    let reserved = sqlx::query(AssertSqlSafe(format!("{reserved} IN ({listed})")))
        .bind(serde_json::to_string(&accounts).map_err(|error| sqlx::Error::Encode(error.into()))?)
        .fetch_all(snapshot)
        .await?;
    let mut left = BTreeMap::new();
    for row in &reserved {
        let key: (String, String, String, i64) = (
            row.try_get(0)?,
            row.try_get(1)?,
            row.try_get(2)?,
            row.try_get(3)?,
        );
        left.insert(key, (row.try_get::<i64, _>(4)?, row.try_get::<i64, _>(5)?));
    }
    for (run, record) in charges.into_values() {
        let account = record.account().0.clone();
        let key = match dialect {
            SqlDialect::Sqlite => Default::default(),
            SqlDialect::Postgres => {
                let (parts, top_up_only) = record.block();
                (run, parts, i64::from(top_up_only))
            }
        };
        let key = (account.clone(), key.0, key.1, key.2);
        let (plan, top_up) = left.entry(key).or_default();
        *plan -= record.charged().plan.micro();
        *top_up -= record.charged().top_up.micro();
        if *plan < 0 || *top_up < 0 {
            violations.push(Violation {
                invariant: "I2",
                what: "the settlements in the log exceed the credits that are reserved for them",
                subject: account,
            });
        }
    }
    violations.truncate(LISTED as usize);
    Ok(violations)
}

/// Returns accounts whose statement does not add up to their balance. It reads the statements as their pages do, of the
/// accounts that have archived entries and entries after `after`. Without an archive, a statement has all entries, which
/// the other checks compare with the balance.
async fn statements_that_differ(
    snapshot: &mut AnyConnection,
    after: i64,
) -> sqlx::Result<Vec<Violation>> {
    let archived = "SELECT account_id FROM entries WHERE kind = 'opening' \
         AND account_id IN (SELECT account_id FROM entries WHERE number > $1)";
    let archived = sqlx::query_scalar(archived).bind(after);
    let archived: Vec<String> = archived.fetch_all(&mut *snapshot).await?;
    let mut violations = Vec::new();
    for account in archived {
        let id = AccountId(account);
        let remainder = statement::find_remainder(snapshot, &id).await?;
        if remainder.is_some_and(|remainder| remainder != Pools::default()) {
            violations.push(Violation {
                invariant: "I1",
                what: "the statement does not add up to the balance",
                subject: id.0,
            });
        }
    }
    violations.truncate(LISTED as usize);
    Ok(violations)
}

/// The facts about archived entries.
#[derive(Default)]
struct ArchivedFacts {
    /// The last archived entry of each account.
    last: BTreeMap<String, i64>,
    /// The budgets' counts of archived entries, by account, part and the number of entries before the budget.
    spent: BTreeMap<(String, String, i64), Option<i64>>,
}

impl ArchivedFacts {
    async fn read(snapshot: &mut AnyConnection) -> sqlx::Result<Self> {
        let mut archived = Self::default();
        let openings = "SELECT account_id, sequence FROM entries WHERE kind = 'opening' \
             AND account_id IN (SELECT id FROM accounts WHERE budgets IS NOT NULL)";
        for row in sqlx::query(openings).fetch_all(&mut *snapshot).await? {
            archived.last.insert(row.try_get(0)?, row.try_get(1)?);
        }
        let spent = "SELECT account_id, key_id, since, spent FROM archived_totals";
        for row in sqlx::query(spent).fetch_all(snapshot).await? {
            let place = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            archived.spent.insert(place, row.try_get(3)?);
        }
        Ok(archived)
    }

    /// Returns a budget's count of archived entries; `None` if an earlier version archived some without recording it.
    fn spent(&self, account: &str, part: &str, since: i64) -> Option<i64> {
        let noted = self
            .spent
            .get(&(account.to_owned(), part.to_owned(), since));
        match noted {
            Some(spent) => *spent,
            None if self.is_noted_since(account, since) => Some(0),
            None => None,
        }
    }

    fn is_noted_since(&self, account: &str, since: i64) -> bool {
        self.last.get(account).is_none_or(|last| *last <= since)
    }
}

/// Stores the verified sums, so that the next verification begins after them. `progress` receives the number of the
/// last stored entry.
pub async fn keep(
    database: &Database,
    sound: &Findings,
    mut progress: impl FnMut(i64),
) -> sqlx::Result<()> {
    let lock = match database.dialect() {
        SqlDialect::Sqlite => "SELECT number FROM entries_verified",
        SqlDialect::Postgres => "SELECT number FROM entries_verified FOR UPDATE",
    };
    loop {
        let mut transaction = database.begin().await?;
        let verified: i64 = sqlx::query_scalar(lock).fetch_one(&mut transaction).await?;
        let next = sound.last.min(verified.saturating_add(KEPT));
        if next <= verified {
            break;
        }
        sqlx::query(
            "INSERT INTO verified_accounts (account_id, entries, plan_credits, top_up_credits, owed) \
             SELECT account_id, CAST(COUNT(*) AS BIGINT), CAST(SUM(plan_delta) AS BIGINT), \
             CAST(SUM(top_up_delta) AS BIGINT), CAST(SUM(owed) AS BIGINT) FROM entries WHERE number > $1 AND number <= $2 GROUP BY account_id \
             ON CONFLICT (account_id) DO UPDATE SET entries = verified_accounts.entries + excluded.entries, \
             plan_credits = verified_accounts.plan_credits + excluded.plan_credits, \
             top_up_credits = verified_accounts.top_up_credits + excluded.top_up_credits, \
             owed = verified_accounts.owed + excluded.owed",
        )
        .bind(verified)
        .bind(next)
        .execute(&mut transaction)
        .await?;
        sqlx::query("UPDATE entries_verified SET number = $1")
            .bind(next)
            .execute(&mut transaction)
            .await?;
        transaction.commit().await?;
        progress(next);
    }
    let mut snapshot = database.snapshot().await?;
    let first: i64 = sqlx::query_scalar(
        "SELECT COALESCE((SELECT e.number - 1 FROM entries e WHERE e.at >= $1 AND e.number > v.day_number \
         AND e.number <= v.number ORDER BY e.number LIMIT 1), v.number) FROM entries_verified v",
    )
    .bind(sound.day.0)
    .fetch_one(&mut *snapshot)
    .await?;
    snapshot.rollback().await?;
    sqlx::query("UPDATE entries_verified SET day = $1, day_number = $2 WHERE day < $1")
        .bind(sound.day.0)
        .bind(first)
        .execute(database.writer())
        .await
        .map(drop)
}
