//! An account's statement: its entries, each with the balance after it.
//!
//! Entries are never changed, and numbered without a gap down to the opening of the archive, so each balance follows
//! from the current balance, computed downwards. A page stores the balance at its end, so that the next page need not
//! sum up the entries above it.
//!
//! The opening has the sum of all archived entries. Entries with an operation's id are never archived: top-ups, grants,
//! vouchers, refunds and adjustments. Older ones come below the opening, and their balances leave the archived entries
//! out.
//!
//! **Invariant:** a page reads only as many of the account's entries as it may list; the first page up to a moment also
//! sums up the entries after it.
//! **Invariant:** the changes of all lines add up to the balance ([`find_remainder`] for the verifier).

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};
use weir_storage::clock::Millis;
use weir_storage::database::DatabaseConnections;

use super::LedgerStore;
use super::history::{LATE_MS, PLACES, read_source};
use crate::account::{EntryKind, Pools};
use crate::credits::Credits;
use crate::operation::{AccountId, OperationRequest, RequestSource};

/// A filter of an account's entries; `None` matches all.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatementFilter {
    /// Only entries of this moment or later.
    pub from: Option<Millis>,
    /// Only entries before this moment.
    pub to: Option<Millis>,
    /// Only entries before this position, from an earlier page.
    pub before: Option<StatementPlace>,
}

/// A position among an account's entries, with the balance there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementPlace {
    /// The number of the entry above the position.
    pub sequence: i64,
    /// The balance before that entry.
    pub balance: Pools,
}

/// A page of an account's statement.
#[derive(Debug, Clone, Default)]
pub struct StatementPage {
    /// Lines, newest first. Entries without a change are left out.
    pub lines: Vec<StatementLine>,
    /// The position of the next page; `None` on the last page.
    pub next: Option<StatementPlace>,
    /// The moment from which all entries are present: earlier ones are in a sum. `None` if none is archived.
    pub archived_before: Option<Millis>,
}

/// An entry, and the balance after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementLine {
    /// The entry's number in the account.
    pub sequence: i64,
    /// The time of the entry's operation.
    pub at: Millis,
    /// The kind: an [`EntryKind`](crate::account::EntryKind)'s name; `adjustment` for an operator's correction,
    /// `owed_collected` for the repayment from later credits, `opening` for the sum of all archived entries.
    pub kind: String,
    /// The change, negative for removed credits.
    pub change: Pools,
    /// The change of the owed credits.
    pub owed: Credits,
    /// The balance after the entry, including held credits.
    pub balance: Pools,
    /// The source of the charged request.
    pub source: Option<RequestSource>,
    /// The key's hash or the task's id.
    pub source_id: Option<String>,
    pub model: Option<String>,
    pub request_id: Option<String>,
    /// The id of a grant, a top-up or a refund.
    pub operation_id: Option<String>,
    pub reason: Option<String>,
}

/// The start of an account's statement.
struct Top {
    /// The position above the last entry.
    end: StatementPlace,
    /// The sequence of the opening, if entries were archived.
    opening: Option<i64>,
    archived_before: Option<Millis>,
}

/// Connections that read a statement: those of requests, or the verifier's snapshot.
enum StatementRows<'a> {
    Pool(&'a DatabaseConnections),
    Snapshot(&'a mut AnyConnection),
}

impl LedgerStore {
    /// Returns a page of an account's statement, from up to `limit` entries. A missing account has an empty statement.
    pub async fn find_statement(
        &self,
        id: &AccountId,
        filter: &StatementFilter,
        limit: u32,
    ) -> sqlx::Result<StatementPage> {
        self.fold_for_reader(Some(id)).await;
        let mut rows = StatementRows::Pool(self.database.reader());
        let mut top = rows.find_top(id).await?;
        loop {
            let Some(found) = top else {
                return Ok(StatementPage::default());
            };
            let place = match (filter.before, filter.to) {
                (Some(before), _) if before.sequence <= found.end.sequence => before,
                (None, Some(to)) => self.place_after(id, to, found.end).await?,
                _ => found.end,
            };
            let page = rows.read_page(id, filter, limit, place, &found).await?;
            top = rows.find_top(id).await?;
            // Entries were archived meanwhile, so their sum has moved.
            if top.as_ref().is_some_and(|top| top.opening == found.opening) {
                return Ok(page);
            }
        }
    }

    /// Returns the plan credits that lapsed unspent when an account left a period, by the start of the period: one of the
    /// given moments. `None` if the account was never in it.
    pub async fn find_lapsed(
        &self,
        id: &AccountId,
        starts: [Millis; 2],
    ) -> sqlx::Result<Option<Credits>> {
        self.fold_for_reader(Some(id)).await;
        let row = sqlx::query(AssertSqlSafe(lapsed_statement()))
            .bind(&id.0)
            .bind(i64::MAX)
            .bind(1_i64)
            .bind(starts[0].0)
            .bind(starts[1].0)
            .fetch_one(self.database.reader())
            .await?;
        let grants: i64 = row.try_get("grants")?;
        let lapsed = Credits::from_micro(row.try_get("lapsed")?);
        Ok((grants > 0).then_some(lapsed))
    }

    /// Returns a position above all entries before a moment, close to the last of them.
    async fn place_after(
        &self,
        id: &AccountId,
        moment: Millis,
        end: StatementPlace,
    ) -> sqlx::Result<StatementPlace> {
        let late = moment.0.saturating_add(LATE_MS);
        let sequence = self.first_after(id, late, end.sequence).await?;
        let sum = sqlx::query(AssertSqlSafe(sum_statement()))
            .bind(&id.0)
            .bind(end.sequence)
            .bind(sequence)
            .fetch_one(self.database.reader())
            .await?;
        Ok(StatementPlace {
            sequence,
            balance: end.balance.before(read_pools(&sum, "plan", "top_up")?),
        })
    }
}

/// Reads an account's statement from its opening on, page by page, and returns the rest of the balance that its lines
/// do not explain: zero, unless lines are missing. `None` if nothing is archived.
pub(crate) async fn find_remainder(
    snapshot: &mut AnyConnection,
    id: &AccountId,
) -> sqlx::Result<Option<Pools>> {
    let mut rows = StatementRows::Snapshot(snapshot);
    let Some(top) = rows.find_top(id).await? else {
        return Ok(None);
    };
    let Some(opening) = top.opening else {
        return Ok(None);
    };
    let newer = rows.fetch(sum_statement(), id, [top.end.sequence, opening + 1]);
    let newer = newer.await?;
    let newer = newer.first().ok_or(sqlx::Error::RowNotFound)?;
    let mut place = StatementPlace {
        sequence: opening + 1,
        balance: top.end.balance.before(read_pools(newer, "plan", "top_up")?),
    };
    let all = StatementFilter::default();
    loop {
        let page = rows.read_page(id, &all, ADDED_UP, place, &top).await?;
        if let Some(oldest) = page.lines.last() {
            place.balance = oldest.balance.before(oldest.change);
        }
        match page.next {
            Some(next) => place = next,
            None => return Ok(Some(place.balance)),
        }
    }
}

impl StatementRows<'_> {
    async fn find_top(&mut self, id: &AccountId) -> sqlx::Result<Option<Top>> {
        let query = sqlx::query(TOP).bind(&id.0);
        let row = match self {
            Self::Pool(pool) => query.fetch_optional(*pool).await?,
            Self::Snapshot(connection) => query.fetch_optional(&mut **connection).await?,
        };
        let Some(row) = row else { return Ok(None) };
        let archived_before: i64 = row.try_get("day")?;
        Ok(Some(Top {
            end: StatementPlace {
                sequence: row.try_get::<i64, _>("entries")? + 1,
                balance: read_pools(&row, "plan_credits", "top_up_credits")?,
            },
            opening: row.try_get("opening")?,
            archived_before: (archived_before > 0).then_some(Millis(archived_before)),
        }))
    }

    async fn read_page(
        &mut self,
        id: &AccountId,
        filter: &StatementFilter,
        limit: u32,
        place: StatementPlace,
        top: &Top,
    ) -> sqlx::Result<StatementPage> {
        let limit = i64::from(limit);
        let first = top.opening.unwrap_or(1);
        let floor = place.sequence.saturating_sub(limit).max(first);
        let mut rows = match place.sequence > floor {
            true => self.fetch(entries_statement(), id, [place.sequence, floor]),
            false => self.fetch(kept_statement(), id, [place.sequence, limit + 1]),
        }
        .await?;
        let is_last = floor == first;
        let mut is_over = is_last;
        if let Some(opening) = top.opening.filter(|_| is_last) {
            if place.sequence > opening {
                let left = limit - (place.sequence - opening);
                let kept = self.fetch(kept_statement(), id, [opening, left + 1]);
                rows.extend(kept.await?);
            }
            // The last row only shows that another page follows.
            is_over = rows.len() as i64 <= limit;
            rows.truncate(limit as usize);
        }
        let mut end = place;
        let mut lines = Vec::new();
        for row in &rows {
            let line = read(row, end.balance)?;
            end = StatementPlace {
                sequence: line.sequence,
                balance: end.balance.before(line.change),
            };
            is_over |= filter.from.is_some_and(|from| line.at.0 < from.0 - LATE_MS);
            let is_asked_for = filter.from.is_none_or(|from| line.at >= from)
                && filter.to.is_none_or(|to| line.at < to);
            let changes = line.change != Pools::default() || line.owed != Credits::ZERO;
            if is_asked_for && changes {
                lines.push(line);
            }
        }
        if !is_last {
            // Also if the index misses an entry: the next page must be another one.
            end.sequence = floor;
        }
        Ok(StatementPage {
            lines,
            next: (!is_over).then_some(end),
            archived_before: top.archived_before,
        })
    }

    async fn fetch(
        &mut self,
        statement: String,
        id: &AccountId,
        [first, second]: [i64; 2],
    ) -> sqlx::Result<Vec<AnyRow>> {
        let query = sqlx::query(AssertSqlSafe(statement));
        let query = query.bind(&id.0).bind(first).bind(second);
        match self {
            Self::Pool(pool) => query.fetch_all(*pool).await,
            Self::Snapshot(connection) => query.fetch_all(&mut **connection).await,
        }
    }
}

/// Entries of a page of [`find_remainder`].
const ADDED_UP: u32 = 1_000;

const TOP: &str = "SELECT a.entries, a.plan_credits, a.top_up_credits, \
     (SELECT sequence FROM entries WHERE account_id = $1 AND kind = 'opening') AS opening, \
     (SELECT day FROM entries_archived) AS day FROM accounts a WHERE a.id = $1";

/// Returns the statement for an account's entries, newest first; parameters: the account, the position below which they
/// are, and the first.
pub fn entries_statement() -> String {
    format!(
        "SELECT {COLUMNS} FROM {PLACES} JOIN entries e ON e.number = places.number ORDER BY e.sequence DESC"
    )
}

/// Returns the statement for the entries of an account that the archive left, newest first; parameters: the account,
/// the position below which they are, and their maximum number. All of them are folded.
fn kept_statement() -> String {
    format!(
        "SELECT {COLUMNS} FROM account_entries i JOIN entries e ON e.number = i.number \
         WHERE i.account_id = $1 AND i.sequence < $2 ORDER BY i.sequence DESC LIMIT $3"
    )
}

const COLUMNS: &str = "e.sequence, e.at, e.kind, e.plan_delta, e.top_up_delta, e.source, e.source_id, e.model, \
     e.request_id, e.operation_id, e.operation, e.owed";

/// Returns the statement for the sum of the same entries.
fn sum_statement() -> String {
    format!(
        "SELECT CAST(COALESCE(SUM(e.plan_delta), 0) AS BIGINT) AS plan, \
         CAST(COALESCE(SUM(e.top_up_delta), 0) AS BIGINT) AS top_up \
         FROM {PLACES} JOIN entries e ON e.number = places.number"
    )
}

/// Returns the statement for the grants and lapsed credits of two periods; parameters: those of the entries, and the
/// starts of the periods.
fn lapsed_statement() -> String {
    format!(
        "SELECT CAST(COALESCE(SUM(CASE WHEN e.kind = 'grant' THEN 1 ELSE 0 END), 0) AS BIGINT) AS grants, \
         CAST(COALESCE(SUM(CASE WHEN e.kind = 'lapse' THEN -e.plan_delta ELSE 0 END), 0) AS BIGINT) AS lapsed \
         FROM {PLACES} JOIN entries e ON e.number = places.number WHERE e.period_start IN ($4, $5)"
    )
}

fn read(row: &AnyRow, balance: Pools) -> sqlx::Result<StatementLine> {
    let source: Option<String> = row.try_get("source")?;
    let operation: Option<String> = row.try_get("operation")?;
    let asked = operation.as_deref();
    let asked = asked.and_then(|asked| serde_json::from_str::<OperationRequest>(asked).ok());
    let mut kind: String = row.try_get("kind")?;
    let mut reason = None;
    if let Some(OperationRequest::Adjust(adjust)) = asked {
        kind = "adjustment".to_owned();
        reason = Some(adjust.reason);
    } else if kind == EntryKind::Refund.name() && operation.is_none() {
        kind = "owed_collected".to_owned();
    }
    Ok(StatementLine {
        sequence: row.try_get("sequence")?,
        at: Millis(row.try_get("at")?),
        kind,
        change: read_pools(row, "plan_delta", "top_up_delta")?,
        owed: Credits::from_micro(row.try_get("owed")?),
        balance,
        source: source.map(|_| read_source(row)).transpose()?,
        source_id: row.try_get("source_id")?,
        model: row.try_get("model")?,
        request_id: row.try_get("request_id")?,
        operation_id: row.try_get("operation_id")?,
        reason,
    })
}

fn read_pools(row: &AnyRow, plan: &str, top_up: &str) -> sqlx::Result<Pools> {
    Ok(Pools {
        plan: Credits::from_micro(row.try_get(plan)?),
        top_up: Credits::from_micro(row.try_get(top_up)?),
    })
}
