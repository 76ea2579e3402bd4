//! The SQL of failed requests.
//!
//! **Invariant:** a statement reads at most [`WINDOW`] rows of a list: conditions without an index are up to the caller.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;
use weir_storage::ids::Hex;
use weir_storage::sealing::{KeyRing, Purpose};

use super::record::{AccountError, FailedAttempt, FailedRequest, MOST_A_MINUTE};
use crate::write_behind::{MINUTE_MS, start_of};

/// Maximum rows of a page's statement.
const WINDOW: u32 = 500;

/// The columns and their types, but for the sealed one.
const COLUMNS: [(&str, &str); 15] = [
    ("request_id", "TEXT"),
    ("at", "BIGINT"),
    ("account_id", "TEXT"),
    ("user_id", "TEXT"),
    ("key_id", "TEXT"),
    ("project_id", "TEXT"),
    ("model", "TEXT"),
    ("provider", "TEXT"),
    ("adapter_digest", "TEXT"),
    ("earlier", "TEXT"),
    ("code", "TEXT"),
    ("status", "BIGINT"),
    ("latency_ms", "BIGINT"),
    ("attempts", "BIGINT"),
    ("trace_id", "TEXT"),
];

/// A filter of failures; `None` matches all.
#[derive(Debug, Clone, Default)]
pub struct FailureFilter {
    pub account: Option<String>,
    /// The key's id.
    pub key: Option<String>,
    /// The error's code.
    pub code: Option<String>,
    /// The provider of the last attempt.
    pub provider: Option<String>,
    /// The model's id.
    pub model: Option<String>,
    /// Only failures at this moment or later.
    pub from: Option<Millis>,
}

/// The position of a failure in a list: its time, and its request's id.
pub type FailurePlace = (i64, String);

/// Failures beyond the limit, of an account and minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MinuteCount {
    pub(super) account_id: String,
    /// The first moment of the minute.
    pub(super) minute: i64,
    pub(super) requests: i64,
}

/// The sealed part of a record.
#[derive(Serialize, Deserialize)]
struct SealedDetails {
    #[serde(flatten)]
    error: AccountError,
    attempts: Vec<FailedAttempt>,
}

/// Failures of a list, newest first.
pub struct FailurePage {
    /// The failures that match.
    pub failures: Vec<FailedRequest>,
    /// The position of the next page; `None` on the last page.
    pub next: Option<FailurePlace>,
}

impl FailureFilter {
    /// Returns the condition that an index fits, and its value: the most selective one that is set.
    fn indexed(&self) -> Option<(&'static str, &str)> {
        let conditions = [
            ("key_id", &self.key),
            ("account_id", &self.account),
            ("code", &self.code),
            ("provider", &self.provider),
            ("model", &self.model),
        ];
        let mut set = conditions.into_iter();
        set.find_map(|(column, value)| Some((column, value.as_deref()?)))
    }

    /// Whether a failure matches, regardless of its time.
    pub fn matches(&self, failure: &FailedRequest) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == found
        };
        is(&self.key, failure.key_id.as_deref())
            && is(&self.account, Some(&failure.account_id))
            && is(&self.code, Some(&failure.code))
            && is(&self.provider, failure.provider.as_deref())
            && is(&self.model, failure.model.as_deref())
    }

    fn conditions(&self) -> usize {
        let all = [
            &self.key,
            &self.account,
            &self.code,
            &self.provider,
            &self.model,
        ];
        all.into_iter().filter(|value| value.is_some()).count()
    }
}

/// Condition of a new row: no erased user, and no user of an erased account.
const OF_NO_ERASED_USER: &str = "NOT EXISTS (SELECT 1 FROM users u WHERE u.id IN (new.account_id, new.user_id) \
                                 AND u.deleted_at IS NOT NULL)";

/// Inserts failures, at most [`MOST_A_MINUTE`] of an account and minute with those of other nodes. Returns the ids of the
/// inserted ones.
pub(super) async fn insert(
    database: &Database,
    keys: &KeyRing,
    failures: &[FailedRequest],
) -> sqlx::Result<HashSet<String>> {
    if failures.is_empty() {
        return Ok(HashSet::new());
    }
    let mut places: HashMap<(&str, i64), u32> = HashMap::new();
    let rows = failures.iter().map(|failure| {
        let minute = start_of(failure.at, MINUTE_MS);
        let place = places.entry((&*failure.account_id, minute)).or_default();
        *place += 1;
        row(keys, failure, minute, *place)
    });
    let rows = Value::from_iter(rows).to_string();
    let inserted = sqlx::query(AssertSqlSafe(insert_statement(database.dialect())))
        .bind(rows)
        .fetch_all(database.writer())
        .await?;
    inserted.iter().map(|row| row.try_get(0)).collect()
}

fn row(keys: &KeyRing, failure: &FailedRequest, minute: i64, place: u32) -> Value {
    let earlier = failure.earlier_providers.join(",");
    json!({
        "request_id": failure.request_id,
        "at": failure.at,
        "account_id": failure.account_id,
        "user_id": failure.user_id,
        "key_id": failure.key_id,
        "project_id": failure.project_id,
        "model": failure.model,
        "provider": failure.provider,
        "adapter_digest": failure.adapter_digest,
        "earlier": (!earlier.is_empty()).then_some(earlier),
        "code": failure.code,
        "status": failure.status,
        "latency_ms": failure.latency_ms,
        "attempts": failure.attempts,
        "trace_id": failure.trace_id,
        "details": Hex(&seal(keys, failure)).to_string(),
        "minute_start": minute,
        "place": place,
    })
}

fn seal(keys: &KeyRing, failure: &FailedRequest) -> Vec<u8> {
    let details = SealedDetails {
        error: failure.error.clone(),
        attempts: failure.failed_attempts.clone(),
    };
    let json = serde_json::to_vec(&details).unwrap_or_default();
    let fields = [failure.account_id.as_bytes(), failure.request_id.as_bytes()];
    keys.seal(Purpose::FAILED_REQUEST, &fields, &json)
}

/// Opens the sealed part of a record; `None` if its sealing key is gone.
fn open(
    keys: &KeyRing,
    account_id: &str,
    request_id: &str,
    sealed: &[u8],
) -> Option<SealedDetails> {
    let fields = [account_id.as_bytes(), request_id.as_bytes()];
    match keys.unseal(Purpose::FAILED_REQUEST, &fields, sealed) {
        Ok(json) => serde_json::from_slice(&json).ok(),
        Err(error) => {
            tracing::warn!(%error, request_id, "cannot open the record of a failed request");
            None
        }
    }
}

fn insert_statement(dialect: SqlDialect) -> String {
    let columns = COLUMNS.iter().copied();
    let all = columns.chain([
        ("details", "TEXT"),
        ("minute_start", "BIGINT"),
        ("place", "BIGINT"),
    ]);
    let rows = records(dialect, all);
    let details = match dialect {
        SqlDialect::Sqlite => "unhex(new.details)",
        SqlDialect::Postgres => "decode(new.details, 'hex')",
    };
    let names = names_of("");
    let values = names_of("new.");
    format!(
        "INSERT INTO failed_requests ({names}, details) SELECT {values}, {details} FROM {rows} \
         WHERE new.place <= {MOST_A_MINUTE} - \
         (SELECT COUNT(*) FROM failed_requests f WHERE f.account_id = new.account_id AND f.at >= new.minute_start \
         AND f.at < new.minute_start + {MINUTE_MS}) AND {OF_NO_ERASED_USER} \
         ON CONFLICT (request_id) DO NOTHING RETURNING request_id"
    )
}

/// Returns the table `new` of the records in the JSON array of the first parameter.
fn records<'a>(dialect: SqlDialect, fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    match dialect {
        SqlDialect::Sqlite => {
            let fields =
                fields.map(|(name, _)| format!("json_extract(value, '$.{name}') AS {name}"));
            let fields: Vec<_> = fields.collect();
            format!("(SELECT {} FROM json_each($1)) AS new", fields.join(", "))
        }
        SqlDialect::Postgres => {
            let fields: Vec<_> = fields
                .map(|(name, kind)| format!("{name} {kind}"))
                .collect();
            let fields = fields.join(", ");
            format!("jsonb_to_recordset(CAST($1 AS TEXT)::jsonb) AS new ({fields})")
        }
    }
}

/// Adds the counts of failures without a record.
pub(super) async fn add_counts(database: &Database, counts: &[MinuteCount]) -> sqlx::Result<()> {
    if counts.is_empty() {
        return Ok(());
    }
    let rows = counts.iter().map(|count| {
        json!({
            "account_id": count.account_id,
            "user_id": count.account_id,
            "minute": count.minute,
            "requests": count.requests,
        })
    });
    let fields = [
        ("account_id", "TEXT"),
        ("user_id", "TEXT"),
        ("minute", "BIGINT"),
        ("requests", "BIGINT"),
    ];
    let new = records(database.dialect(), fields.into_iter());
    // The order is the order of locks.
    let statement = format!(
        "INSERT INTO failed_request_counts (account_id, minute, requests) \
         SELECT account_id, minute, requests FROM {new} WHERE {OF_NO_ERASED_USER} ORDER BY account_id, minute \
         ON CONFLICT (account_id, minute) DO UPDATE SET requests = failed_request_counts.requests + excluded.requests"
    );
    sqlx::query(AssertSqlSafe(statement))
        .bind(Value::from_iter(rows).to_string())
        .execute(database.writer())
        .await?;
    Ok(())
}

/// Returns the number of an account's failures in a period that have no record.
pub(super) async fn count_unrecorded(
    database: &Database,
    account_id: &str,
    from: Option<Millis>,
    to: Option<Millis>,
) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) FROM failed_request_counts \
         WHERE account_id = $1 AND minute >= $2 AND minute < $3",
    )
    .bind(account_id)
    .bind(from.map_or(i64::MIN, |from| start_of(from, MINUTE_MS)))
    .bind(to.map_or(i64::MAX, |to| to.0))
    .fetch_one(database.reader())
    .await
}

/// Returns up to `limit` failures of a filter before a position. With several conditions, a page may be shorter.
pub(super) async fn list(
    database: &Database,
    keys: &KeyRing,
    filter: &FailureFilter,
    before: &FailurePlace,
    limit: u32,
) -> sqlx::Result<FailurePage> {
    let rows_to_read = match filter.conditions() {
        0 | 1 => limit.min(WINDOW),
        _ => WINDOW,
    };
    let (condition, value) = match filter.indexed() {
        Some((column, value)) => (format!("{column} = $4"), Some(value)),
        // The statement uses each parameter in either case.
        None => ("CAST($4 AS TEXT) IS NULL".to_owned(), None),
    };
    let statement = format!(
        "SELECT {}, details FROM failed_requests WHERE (at, request_id) < ($1, $2) AND at >= $3 AND {condition} \
         ORDER BY at DESC, request_id DESC LIMIT $5",
        names_of("")
    );
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(before.0)
        .bind(&before.1)
        .bind(filter.from.map_or(i64::MIN, |from| from.0))
        .bind(value)
        .bind(i64::from(rows_to_read))
        .fetch_all(database.reader())
        .await?;
    let mut failures: Vec<_> = rows
        .iter()
        .map(|row| read(keys, row))
        .collect::<sqlx::Result<_>>()?;
    let mut next = match failures.last() {
        Some(last) if failures.len() == rows_to_read as usize => Some(place(last)),
        _ => None,
    };
    failures.retain(|failure| filter.matches(failure));
    if failures.len() > limit as usize {
        failures.truncate(limit as usize);
        next = failures.last().map(place);
    }
    Ok(FailurePage { failures, next })
}

/// Returns the failures among these requests, by the requests' ids.
pub(super) async fn find(
    database: &Database,
    keys: &KeyRing,
    request_ids: &[&str],
) -> sqlx::Result<HashMap<String, FailedRequest>> {
    if request_ids.is_empty() {
        return Ok(HashMap::new());
    }
    let ids = database.dialect().texts(1);
    let statement = format!(
        "SELECT {}, details FROM failed_requests WHERE request_id IN ({ids})",
        names_of("")
    );
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(json!(request_ids).to_string())
        .fetch_all(database.reader())
        .await?;
    rows.iter()
        .map(|row| {
            let failure = read(keys, row)?;
            Ok((failure.request_id.clone(), failure))
        })
        .collect()
}

/// Returns failures of a user in the order of their ids behind one.
pub(super) async fn list_of_user(
    database: &Database,
    keys: &KeyRing,
    user_id: &str,
    after: &str,
    limit: u32,
) -> sqlx::Result<Vec<FailedRequest>> {
    let statement = format!(
        "SELECT {}, details FROM failed_requests WHERE user_id = $1 AND request_id > $2 ORDER BY request_id LIMIT $3",
        names_of("")
    );
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(user_id)
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(database.reader())
        .await?;
    rows.iter().map(|row| read(keys, row)).collect()
}

/// Returns the position behind all failures. It has as many digits as a position may have.
pub fn behind_all() -> FailurePlace {
    (999_999_999_999_999_999, String::new())
}

/// Reads a position from the text of [`place_text`].
pub fn parse_place(text: &str) -> Option<FailurePlace> {
    let (at, id) = text.split_once('.')?;
    let is_number = (1..=18).contains(&at.len()) && at.bytes().all(|byte| byte.is_ascii_digit());
    let is_of_ids = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_id = id.len() <= 64 && id.bytes().all(is_of_ids);
    let at = at.parse().ok().filter(|_| is_number && is_id)?;
    Some((at, id.to_owned()))
}

pub fn place_text((at, id): &FailurePlace) -> String {
    format!("{at}.{id}")
}

pub fn place(failure: &FailedRequest) -> FailurePlace {
    (failure.at.0, failure.request_id.clone())
}

fn names_of(prefix: &str) -> String {
    let names: Vec<_> = COLUMNS
        .iter()
        .map(|(name, _)| format!("{prefix}{name}"))
        .collect();
    names.join(", ")
}

fn read(keys: &KeyRing, row: &AnyRow) -> sqlx::Result<FailedRequest> {
    let request_id: String = row.try_get("request_id")?;
    let account_id: String = row.try_get("account_id")?;
    let sealed: Option<Vec<u8>> = row.try_get("details")?;
    let details = sealed.and_then(|sealed| open(keys, &account_id, &request_id, &sealed));
    let (error, failed_attempts) = match details {
        Some(SealedDetails { error, attempts }) => (error, attempts),
        None => Default::default(),
    };
    let earlier: Option<String> = row.try_get("earlier")?;
    let earlier = earlier.unwrap_or_default();
    let earlier = earlier.split(',').filter(|name| !name.is_empty());
    Ok(FailedRequest {
        request_id,
        at: Millis(row.try_get("at")?),
        account_id,
        user_id: row.try_get("user_id")?,
        key_id: row.try_get("key_id")?,
        project_id: row.try_get("project_id")?,
        model: row.try_get("model")?,
        adapter_digest: row.try_get("adapter_digest")?,
        provider: row.try_get("provider")?,
        earlier_providers: earlier.map(str::to_owned).collect(),
        code: row.try_get("code")?,
        status: row.try_get("status")?,
        latency_ms: row.try_get("latency_ms")?,
        attempts: row.try_get("attempts")?,
        trace_id: row.try_get("trace_id")?,
        error,
        failed_attempts,
    })
}
