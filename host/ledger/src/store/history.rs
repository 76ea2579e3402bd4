//! An account's past: its usage by key, model or day, and its requests one by one.
//!
//! Both are exact at every moment for what this node has answered: a reader waits for the fold of the node's
//! [log](crate::log); then each statement reads folded data through its indexes, and adds the entries after the watermark.
//! Requests that other nodes have ended are missing for up to half a second.
//!
//! **Invariant:** a statement reads only one account's rows, and at most [`SCANNED`] of its folded entries plus the
//! unfolded ones.

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;

use super::LedgerStore;
use super::rows::{UnreadableRow, add_sums, read_sums};
use crate::account::Pools;
use crate::credits::Credits;
use crate::operation::{AccountId, HoldId, HoldState, OperationRequest, RequestSource};
use crate::usage::{
    COUNTS, QuantitySum, Unit, UsageCounts, UsageReading, UsageSums, count_of_row, measured,
    to_date, to_date_in, unit_of_row,
};

/// Maximum entries that one page of requests reads: a filter that excludes most of them makes the page short.
const SCANNED: i64 = 2_000;

/// Entries that one page of requests of all accounts reads.
const SCANNED_OF_ALL: i64 = 500;

/// Maximum delay of an entry against entries with later times of the same account: an operation counts from the time of
/// its request.
pub(super) const LATE_MS: i64 = 60 * 60 * 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageGroup {
    /// The source of requests, and the API key.
    Key,
    Model,
    /// The day, in UTC.
    Day,
}

/// A part of usage in a [`UsageGroup`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsagePart {
    /// Requests from a source, with one key.
    Key {
        source: RequestSource,
        /// The key's hash at the time of the charge; `None` without a key.
        key_hash: Option<String>,
    },
    /// Requests for a model with this id.
    Model(String),
    /// Requests of the day with this first moment.
    Day(Millis),
}

/// A part of a day's usage: that of an account, a model, a provider and a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayPart {
    pub account: AccountId,
    pub model: String,
    /// The upstream of the response.
    pub provider: String,
    pub source: RequestSource,
    /// The key's hash at the time of the charge; `None` without a key.
    pub key_hash: Option<String>,
}

/// An entry without a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreditChange {
    pub account: AccountId,
    /// The name of its [`EntryKind`](crate::account::EntryKind).
    pub kind: String,
    /// The change, negative for removed credits.
    pub change: Pools,
    /// The operation, if it has an id.
    pub operation: Option<OperationRequest>,
}

/// A filter of an account's requests; `None` matches all.
#[derive(Debug, Clone, Default)]
pub struct RequestFilter {
    /// Only requests with a key of one of these hashes.
    pub key_hashes: Option<Vec<String>>,
    /// Only requests for this model.
    pub model: Option<String>,
    /// Only requests with this provider.
    pub provider: Option<String>,
    /// Only requests that ended at this moment or later.
    pub from: Option<Millis>,
    /// Only requests that ended before this moment.
    pub to: Option<Millis>,
    /// Only requests before this position, from an earlier page.
    pub before: Option<i64>,
}

/// A page of an account's requests.
#[derive(Debug, Clone)]
pub struct RequestPage {
    /// Requests, the last to end first.
    pub requests: Vec<EndedRequest>,
    /// The position of the next page; `None` on the last page.
    pub next: Option<i64>,
    /// The moment from which all requests are present: earlier ones may be archived. `None` if none is archived.
    pub archived_before: Option<Millis>,
}

/// A completed request in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRequest {
    /// The account that paid.
    pub account: AccountId,
    /// Its position among the account's entries: later ones have higher numbers.
    pub sequence: i64,
    /// Its position among all entries.
    pub number: i64,
    pub request_id: String,
    pub at: Millis,
    pub state: HoldState,
    pub source: RequestSource,
    /// The key's hash or the task's id.
    pub source_id: Option<String>,
    pub model: String,
    /// The upstream of the response, if any.
    pub provider: Option<String>,
    /// The component that served it, if any.
    pub adapter_digest: Option<String>,
    pub counts: UsageCounts,
    /// The usage in the unit of its price.
    pub quantity: QuantitySum,
    /// The credits of its hold.
    pub held: Option<Credits>,
    /// The credits that the account paid.
    pub credits: Credits,
    /// The time from the request to the end of the response; `None` if nothing was delivered.
    pub latency_ms: Option<i64>,
    /// Attempts at upstreams; `None` if nothing was delivered, or in entries from before attempts were counted.
    pub attempts: Option<i64>,
    /// Whether the counts are weir's own estimate.
    pub estimated: bool,
}

/// The state of the request that claimed an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyedRequest {
    /// No request claimed it, or the hold was released, which frees the key.
    Unclaimed,
    /// The request's hold is open.
    Open,
    /// The request has ended with a charge, even of 0.
    Ended(Box<EndedRequest>),
}

impl RequestFilter {
    /// Whether a request matches, regardless of its key and its position.
    fn matches(&self, request: &EndedRequest) -> bool {
        let provider = request.provider.as_ref();
        self.model
            .as_ref()
            .is_none_or(|model| *model == request.model)
            && self
                .provider
                .as_ref()
                .is_none_or(|wanted| Some(wanted) == provider)
            && self.from.is_none_or(|from| request.at >= from)
            && self.to.is_none_or(|to| request.at < to)
    }
}

impl UsageGroup {
    fn columns(self) -> &'static str {
        match self {
            Self::Key => "source, key_hash",
            Self::Model => "model",
            Self::Day => "day",
        }
    }

    fn read(self, row: &AnyRow) -> sqlx::Result<UsagePart> {
        Ok(match self {
            Self::Key => UsagePart::Key {
                source: read_source(row)?,
                key_hash: Some(row.try_get::<String, _>("key_hash")?)
                    .filter(|hash| !hash.is_empty()),
            },
            Self::Model => UsagePart::Model(row.try_get("model")?),
            Self::Day => UsagePart::Day(Millis(row.try_get("day")?)),
        })
    }
}

impl LedgerStore {
    /// Returns an account's usage from the first to the last of these days, each given by its first moment: the parts
    /// with a charge or a request.
    pub async fn find_usage(
        &self,
        id: &AccountId,
        group: UsageGroup,
        [first, last]: [Millis; 2],
    ) -> sqlx::Result<Vec<(UsagePart, UsageSums)>> {
        self.fold_for_reader(Some(id)).await;
        let rows = sqlx::query(AssertSqlSafe(usage_statement(group)))
            .bind(&id.0)
            .bind(first.0)
            .bind(last.0)
            .fetch_all(self.database.reader())
            .await?;
        let mut parts = Vec::new();
        for row in &rows {
            add_sums(&mut parts, group.read(row)?, read_sums(row)?);
        }
        parts.retain(|(_, sums)| !sums.is_uncharged());
        Ok(parts)
    }

    /// Returns the usage of one account, or of all, on a day given by its first moment: by account, model, provider and
    /// key.
    pub async fn find_day_usage(
        &self,
        id: Option<&AccountId>,
        day: Millis,
        reading: UsageReading,
    ) -> sqlx::Result<Vec<(DayPart, UsageSums)>> {
        self.fold_for_reader(id).await;
        let condition = match id {
            Some(_) => "account_id = $1 AND day = $2",
            // Both statements use the parameter.
            None => "CAST($1 AS TEXT) IS NULL AND day = $2",
        };
        let columns = "account_id, model, provider, source, key_hash";
        let statement = format!(
            "SELECT {columns}, unit, {} FROM {} GROUP BY {columns}, unit ORDER BY {columns}",
            UsageSums::columns(),
            to_date_in(reading, condition)
        );
        let rows = sqlx::query(AssertSqlSafe(statement))
            .bind(id.map(|id| &*id.0))
            .bind(day.0)
            .fetch_all(self.database.reader())
            .await?;
        let mut parts = Vec::new();
        for row in &rows {
            let part = DayPart {
                account: AccountId(row.try_get("account_id")?),
                model: row.try_get("model")?,
                provider: row.try_get("provider")?,
                source: read_source(row)?,
                key_hash: Some(row.try_get::<String, _>("key_hash")?)
                    .filter(|hash| !hash.is_empty()),
            };
            add_sums(&mut parts, part, read_sums(row)?);
        }
        parts.retain(|(_, sums)| !sums.is_uncharged());
        Ok(parts)
    }

    /// Returns the entries without a request, from the first moment up to the second, in order: of one account, or of
    /// all. Archived entries and openings are left out.
    pub async fn find_changes(
        &self,
        id: Option<&AccountId>,
        [from, to]: [Millis; 2],
    ) -> sqlx::Result<Vec<CreditChange>> {
        let rows = sqlx::query(AssertSqlSafe(changes_statement(id.is_some())))
            .bind(id.map(|id| &*id.0))
            .bind(from.0)
            .bind(to.0)
            .fetch_all(self.database.reader())
            .await?;
        rows.iter()
            .map(|row| {
                let operation: Option<String> = row.try_get("operation")?;
                // A later version may have written an unknown operation.
                let asked = operation.and_then(|asked| serde_json::from_str(&asked).ok());
                Ok(CreditChange {
                    account: AccountId(row.try_get("account_id")?),
                    kind: row.try_get("kind")?,
                    change: Pools {
                        plan: Credits::from_micro(row.try_get("plan_delta")?),
                        top_up: Credits::from_micro(row.try_get("top_up_delta")?),
                    },
                    operation: asked,
                })
            })
            .collect()
    }

    /// Returns a page of up to `limit` completed requests of an account.
    pub async fn list_requests(
        &self,
        id: &AccountId,
        filter: &RequestFilter,
        limit: u32,
    ) -> sqlx::Result<RequestPage> {
        self.fold_for_reader(Some(id)).await;
        let account = sqlx::query(
            "SELECT (SELECT entries FROM accounts WHERE id = $1), day FROM entries_archived",
        )
        .bind(&id.0)
        .fetch_one(self.database.reader())
        .await?;
        let entries: Option<i64> = account.try_get(0)?;
        let archived_before: i64 = account.try_get(1)?;
        let mut page = RequestPage {
            requests: Vec::new(),
            next: None,
            archived_before: (archived_before > 0).then_some(Millis(archived_before)),
        };
        let end = entries.unwrap_or_default() + 1;
        let mut before = filter.before.map_or(end, |before| before.min(end));
        if let Some(to) = filter.to {
            before = before.min(
                self.first_after(id, to.0.saturating_add(LATE_MS), end)
                    .await?,
            );
        }
        let floor = before.saturating_sub(SCANNED).max(1);
        let hashes = filter.key_hashes.as_ref();
        let rows = sqlx::query(AssertSqlSafe(requests_statement(self.database.dialect())))
            .bind(&id.0)
            .bind(before)
            .bind(floor)
            .bind(filter.model.as_deref())
            .bind(hashes.map(|hashes| serde_json::Value::from(hashes.clone()).to_string()))
            .bind(filter.from.map_or(i64::MIN, |from| from.0))
            .bind(filter.to.map_or(i64::MAX, |to| to.0))
            .bind(i64::from(limit))
            .bind(filter.provider.as_deref())
            .fetch_all(self.database.reader())
            .await?;
        page.requests = rows.iter().map(read_request).collect::<sqlx::Result<_>>()?;
        let end = match page.requests.last() {
            Some(last) if page.requests.len() == limit as usize => last.sequence,
            _ => floor,
        };
        page.next = self.place_below(id, end, filter.from).await?;
        Ok(page)
    }

    /// Returns completed requests of all accounts, the last to end first: those that match among [`SCANNED_OF_ALL`]
    /// entries. The positions are numbers of entries. `key_hashes` is ignored: a key's requests are those of its account.
    pub async fn list_requests_of_all(&self, filter: &RequestFilter) -> sqlx::Result<RequestPage> {
        self.fold_for_reader(None).await;
        let archived_before: i64 = sqlx::query_scalar("SELECT day FROM entries_archived")
            .fetch_one(self.database.reader())
            .await?;
        let mut page = RequestPage {
            requests: Vec::new(),
            next: None,
            archived_before: (archived_before > 0).then_some(Millis(archived_before)),
        };
        let before = match (filter.before, filter.to) {
            (Some(before), _) => before,
            (None, Some(to)) => self.number_after(to.0.saturating_add(LATE_MS)).await?,
            (None, None) => i64::MAX,
        };
        let rows = sqlx::query(AssertSqlSafe(requests_of_all_statement()))
            .bind(before)
            .bind(SCANNED_OF_ALL)
            .fetch_all(self.database.reader())
            .await?;
        for row in &rows {
            if row.try_get::<i64, _>("is_end")? > 0 {
                let request = read_request(row)?;
                if filter.matches(&request) {
                    page.requests.push(request);
                }
            }
        }
        if let Some(last) = rows.last().filter(|_| rows.len() as i64 == SCANNED_OF_ALL) {
            let (number, at): (i64, i64) = (last.try_get("number")?, last.try_get("at")?);
            let is_over = filter.from.is_some_and(|from| at < from.0 - LATE_MS);
            page.next = (!is_over).then_some(number);
        }
        Ok(page)
    }

    /// Returns approximately the first number of the entries after this moment.
    async fn number_after(&self, moment: i64) -> sqlx::Result<i64> {
        let ends = sqlx::query(
            "SELECT (SELECT MIN(number) FROM entries), (SELECT MAX(number) FROM entries)",
        );
        let ends = ends.fetch_one(self.database.reader()).await?;
        let ends: (Option<i64>, Option<i64>) = (ends.try_get(0)?, ends.try_get(1)?);
        let (Some(mut first), Some(last)) = ends else {
            return Ok(i64::MAX);
        };
        let mut after = last.saturating_add(1);
        while first < after {
            let middle = first + (after - first) / 2;
            let row = sqlx::query(
                "SELECT number, at FROM entries WHERE number >= $1 ORDER BY number LIMIT 1",
            )
            .bind(middle)
            .fetch_optional(self.database.reader())
            .await?;
            match row {
                Some(row) if row.try_get::<i64, _>("at")? <= moment => {
                    first = row.try_get::<i64, _>("number")? + 1;
                }
                _ => after = middle,
            }
        }
        Ok(first)
    }

    /// Returns the completed requests with these holds, of any account.
    pub async fn find_requests(&self, holds: &[String]) -> sqlx::Result<Vec<EndedRequest>> {
        if holds.is_empty() {
            return Ok(Vec::new());
        }
        self.fold_for_reader(None).await;
        let list = self.database.dialect().texts(1);
        let statement = format!(
            "SELECT {} FROM entries e {LATE} WHERE e.hold_id IS NOT NULL AND e.hold_id IN ({list}) \
             AND e.kind IN ('settlement', 'release', 'expiry')",
            columns()
        );
        let rows = sqlx::query(AssertSqlSafe(statement))
            .bind(serde_json::Value::from(holds.to_vec()).to_string())
            .fetch_all(self.database.reader())
            .await?;
        rows.iter().map(read_request).collect()
    }

    /// Returns the account's request with this hold, if it is completed and not archived.
    pub async fn find_request(
        &self,
        id: &AccountId,
        hold: &HoldId,
    ) -> sqlx::Result<Option<EndedRequest>> {
        self.fold_for_reader(Some(id)).await;
        let row = sqlx::query(AssertSqlSafe(request_statement()))
            .bind(&hold.0)
            .bind(&id.0)
            .fetch_optional(self.database.reader())
            .await?;
        row.as_ref().map(read_request).transpose()
    }

    /// Returns the state of the request that claimed this idempotency key of an account.
    pub async fn find_keyed(&self, id: &AccountId, key: &str) -> sqlx::Result<KeyedRequest> {
        let row = sqlx::query(
            "SELECT hold_id, CAST((SELECT COUNT(*) FROM holds WHERE holds.id = keys.hold_id \
             AND holds.expired_at IS NULL) AS BIGINT) FROM idempotency_keys AS keys \
             WHERE keys.account_id = $1 AND keys.key = $2",
        )
        .bind(&id.0)
        .bind(key)
        .fetch_optional(self.database.reader())
        .await?;
        let Some(row) = row else {
            return Ok(KeyedRequest::Unclaimed);
        };
        if row.try_get::<i64, _>(1)? > 0 {
            return Ok(KeyedRequest::Open);
        }
        let ended = self.find_request(id, &HoldId(row.try_get(0)?)).await?;
        let charged = ended.filter(|ended| ended.state != HoldState::Released);
        Ok(charged.map_or(KeyedRequest::Unclaimed, |ended| {
            KeyedRequest::Ended(Box::new(ended))
        }))
    }

    /// Returns approximately the first position of an account's entries after this moment; for unfolded entries, the
    /// end. Entries are in the order of their times, except for delayed ones.
    pub(super) async fn first_after(
        &self,
        id: &AccountId,
        moment: i64,
        end: i64,
    ) -> sqlx::Result<i64> {
        let (mut first, mut after) = (1, end);
        while first < after {
            let middle = first + (after - first) / 2;
            let row = sqlx::query(PROBE)
                .bind(&id.0)
                .bind(middle)
                .fetch_optional(self.database.reader())
                .await?;
            let Some(row) = row else {
                after = middle;
                continue;
            };
            let (sequence, at): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            match at > moment {
                true => after = middle,
                false => first = sequence + 1,
            }
        }
        // No folded entry is later; the times of unfolded ones are unknown.
        let probe = sqlx::query(PROBE).bind(&id.0).bind(first);
        let is_folded = probe.fetch_optional(self.database.reader()).await?;
        Ok(if is_folded.is_some() { first } else { end })
    }

    /// Returns the position of the next page after one that reached a position: just above the next entry.
    async fn place_below(
        &self,
        id: &AccountId,
        place: i64,
        from: Option<Millis>,
    ) -> sqlx::Result<Option<i64>> {
        let row = sqlx::query(BELOW)
            .bind(&id.0)
            .bind(place)
            .fetch_one(self.database.reader())
            .await?;
        let folded: Option<i64> = row.try_get(0)?;
        let Some(below) = folded.max(row.try_get(1)?) else {
            return Ok(None);
        };
        let row = sqlx::query(PROBE)
            .bind(&id.0)
            .bind(below)
            .fetch_optional(self.database.reader())
            .await?;
        let at: Option<i64> = row.map(|row| row.try_get(1)).transpose()?;
        let is_over = from.is_some_and(|from| at.is_some_and(|at| at < from.0 - LATE_MS));
        Ok((!is_over).then_some(below + 1))
    }
}

/// The first folded entry from a position on, and its time.
const PROBE: &str = "SELECT i.sequence, e.at FROM account_entries i JOIN entries e ON e.number = i.number \
     WHERE i.account_id = $1 AND i.sequence >= $2 ORDER BY i.sequence LIMIT 1";

/// The last folded and the last unfolded entry below a position.
const BELOW: &str = "SELECT (SELECT MAX(sequence) FROM account_entries WHERE account_id = $1 AND sequence < $2), \
     (SELECT MAX(sequence) FROM entries WHERE number > (SELECT number FROM entries_folded) \
     AND number < 9223372036854775807 AND account_id = $1 AND sequence < $2)";

/// Returns the statement for an account's sums, by the group's columns; parameters: the account, the first day and the
/// last.
pub fn usage_statement(group: UsageGroup) -> String {
    let columns = group.columns();
    format!(
        "SELECT {columns}, unit, {} FROM {} GROUP BY {columns}, unit ORDER BY {columns}",
        UsageSums::columns(),
        to_date("account_id = $1 AND day BETWEEN $2 AND $3")
    )
}

/// Returns the statement for entries without a request; parameters: the account, or null for all, the first moment, and
/// the one after the last.
pub fn changes_statement(of_one: bool) -> String {
    let account = match of_one {
        true => "account_id = $1",
        // Both statements use the parameter.
        false => "CAST($1 AS TEXT) IS NULL",
    };
    format!(
        "SELECT account_id, kind, plan_delta, top_up_delta, operation FROM entries \
         WHERE hold_id IS NULL AND {account} AND at >= $2 AND at < $3 AND kind <> 'opening' \
         AND (plan_delta <> 0 OR top_up_delta <> 0) ORDER BY at, number"
    )
}

/// Returns the statement for a page of an account's requests; parameters: the account, the page's position, the first
/// position to read, the model, the hashes of keys as a JSON array, the first moment, the one after the last, the maximum
/// number, and the provider.
pub fn requests_statement(dialect: SqlDialect) -> String {
    let hashes = dialect.texts(5);
    format!(
        "SELECT {} FROM {PLACES} JOIN entries e ON e.number = places.number {LATE} \
         WHERE e.kind IN ('settlement', 'release', 'expiry') AND (CAST($4 AS TEXT) IS NULL OR e.model = $4) \
         AND (CAST($5 AS TEXT) IS NULL OR (e.source = 'api_key' AND e.source_id IN ({hashes}))) \
         AND (CAST($9 AS TEXT) IS NULL OR COALESCE(late.provider, e.provider) = $9) \
         AND e.at >= $6 AND e.at < $7 ORDER BY e.sequence DESC LIMIT $8",
        columns()
    )
}

/// Returns the statement for entries of all accounts; parameters: the number before which they are, and how many.
fn requests_of_all_statement() -> String {
    format!(
        "SELECT {}, CAST(CASE WHEN e.kind IN ('settlement', 'release', 'expiry') THEN 1 ELSE 0 END AS BIGINT) AS is_end \
         FROM entries e {LATE} WHERE e.number < $1 ORDER BY e.number DESC LIMIT $2",
        columns()
    )
}

/// Returns the statement for an account's request; parameters: its hold and the account.
pub fn request_statement() -> String {
    format!(
        "SELECT {} FROM entries e {LATE} WHERE e.hold_id = $1 AND e.account_id = $2 \
         AND e.kind IN ('settlement', 'release', 'expiry')",
        columns()
    )
}

/// Entries of an account, folded or not; parameters: the account, the position below which they are, and the first.
///
/// The upper bound keeps PostgreSQL from the estimate that a third of all entries are not folded.
pub(super) const PLACES: &str = "(SELECT number FROM account_entries \
     WHERE account_id = $1 AND sequence < $2 AND sequence >= $3 UNION ALL SELECT number FROM entries \
     WHERE number > (SELECT number FROM entries_folded) AND number < 9223372036854775807 \
     AND account_id = $1 AND sequence < $2 AND sequence >= $3) AS places";

/// The entry that followed an expiry, with the difference.
const LATE: &str = "LEFT JOIN entries late ON e.kind = 'expiry' AND late.hold_id = e.hold_id \
     AND late.kind IN ('late_settlement', 'late_release')";

fn columns() -> String {
    let mut columns = "e.account_id, e.number, e.sequence, e.request_id, e.at, COALESCE(late.kind, e.kind) AS kind, e.source, e.source_id, e.model, \
         COALESCE(late.provider, e.provider) AS provider, e.amount AS held, \
         COALESCE(late.adapter_digest, e.adapter_digest) AS adapter_digest, \
         -(e.plan_delta + e.top_up_delta + COALESCE(late.plan_delta + late.top_up_delta, 0)) AS credits, \
         COALESCE(late.estimated_at, CASE WHEN late.number IS NULL THEN e.estimated_at END) AS estimated_at"
        .to_owned();
    for name in ["latency_ms", "attempts"] {
        columns += &format!(
            ", CASE WHEN e.{name} IS NULL THEN late.{name} ELSE e.{name} + COALESCE(late.{name}, 0) END AS {name}"
        );
    }
    for count in &COUNTS {
        let name = count.column;
        let value = format!("(COALESCE(e.{name}, 0) + COALESCE(late.{name}, 0))");
        let value = count_of_row(count, &value, "e.model");
        columns += &format!(", {value} AS {name}");
    }
    let unit = unit_of_row("late.unit, e.unit", "e.model");
    columns += &format!(", {unit} AS unit");
    columns
}

pub(super) fn read_source(row: &AnyRow) -> sqlx::Result<RequestSource> {
    let name: String = row.try_get("source")?;
    Ok(RequestSource::of(&name).ok_or_else(|| UnreadableRow::unknown(&name))?)
}

fn read_request(row: &AnyRow) -> sqlx::Result<EndedRequest> {
    let kind: String = row.try_get("kind")?;
    let state = match &*kind {
        "settlement" | "late_settlement" => HoldState::Settled,
        "release" | "late_release" => HoldState::Released,
        _ => HoldState::Expired,
    };
    let mut counts = UsageCounts::default();
    for count in &COUNTS {
        count.set(&mut counts, row.try_get(count.column)?);
    }
    let provider: Option<String> = row.try_get("provider")?;
    let unit: String = row.try_get("unit")?;
    let (counts, quantity) = match (&provider, state) {
        (None, _) | (_, HoldState::Released) => (counts, QuantitySum::Empty),
        _ => measured(counts, Unit::of(&unit)),
    };
    Ok(EndedRequest {
        account: AccountId(row.try_get("account_id")?),
        number: row.try_get("number")?,
        sequence: row.try_get("sequence")?,
        request_id: row.try_get("request_id")?,
        at: Millis(row.try_get("at")?),
        state,
        source: read_source(row)?,
        source_id: row.try_get("source_id")?,
        model: row.try_get("model")?,
        provider,
        adapter_digest: row.try_get("adapter_digest")?,
        counts,
        quantity,
        held: row
            .try_get::<Option<i64>, _>("held")?
            .map(Credits::from_micro),
        credits: Credits::from_micro(row.try_get("credits")?),
        latency_ms: row.try_get("latency_ms")?,
        attempts: row.try_get("attempts")?,
        estimated: row.try_get::<Option<i64>, _>("estimated_at")?.is_some(),
    })
}
