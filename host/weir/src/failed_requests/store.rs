//! The SQL of failed requests.
//!
//! **Invariant:** a statement reads at most [`WINDOW`] rows of a list: conditions without an index are up to the caller.

use std::collections::HashMap;

use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;

use super::record::{FailedRequest, MOST_AN_HOUR};
use crate::write_behind::{HOUR_MS, hour_of};

/// Maximum rows of a page's statement.
const WINDOW: u32 = 500;

/// The columns and their types.
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
    /// The account.
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

/// Inserts failures, at most [`MOST_AN_HOUR`] of an account and hour with those of other nodes. Returns their number.
pub(super) async fn insert(database: &Database, failures: &[FailedRequest]) -> sqlx::Result<u64> {
    if failures.is_empty() {
        return Ok(0);
    }
    let mut places: HashMap<(&str, i64), u32> = HashMap::new();
    let rows = failures.iter().map(|failure| {
        let hour = hour_of(failure.at);
        let place = places.entry((&*failure.account_id, hour)).or_default();
        *place += 1;
        row(failure, hour, *place)
    });
    let rows = Value::from_iter(rows).to_string();
    let inserted = sqlx::query(AssertSqlSafe(insert_statement(database.dialect())))
        .bind(rows)
        .execute(database.writer())
        .await?;
    Ok(inserted.rows_affected())
}

fn row(failure: &FailedRequest, hour: i64, place: u32) -> Value {
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
        "hour_start": hour,
        "place": place,
    })
}

fn insert_statement(dialect: SqlDialect) -> String {
    let columns = COLUMNS.iter().copied();
    let all = columns.chain([("hour_start", "BIGINT"), ("place", "BIGINT")]);
    let rows = match dialect {
        SqlDialect::Sqlite => {
            let fields = all.map(|(name, _)| format!("json_extract(value, '$.{name}') AS {name}"));
            let fields: Vec<_> = fields.collect();
            format!("(SELECT {} FROM json_each($1)) AS new", fields.join(", "))
        }
        SqlDialect::Postgres => {
            let fields: Vec<_> = all.map(|(name, kind)| format!("{name} {kind}")).collect();
            let fields = fields.join(", ");
            format!("jsonb_to_recordset(CAST($1 AS TEXT)::jsonb) AS new ({fields})")
        }
    };
    let names = names_of("");
    let values = names_of("new.");
    format!(
        "INSERT INTO failed_requests ({names}) SELECT {values} FROM {rows} WHERE new.place <= {MOST_AN_HOUR} - \
         (SELECT COUNT(*) FROM failed_requests f WHERE f.account_id = new.account_id AND f.at >= new.hour_start \
         AND f.at < new.hour_start + {HOUR_MS}) ON CONFLICT (request_id) DO NOTHING"
    )
}

/// Returns up to `limit` failures of a filter before a position. With several conditions, a page may be shorter.
pub async fn list(
    database: &Database,
    filter: &FailureFilter,
    before: &FailurePlace,
    limit: u32,
) -> sqlx::Result<FailurePage> {
    let limit = match filter.conditions() {
        0 | 1 => limit.min(WINDOW),
        _ => WINDOW,
    };
    let (condition, value) = match filter.indexed() {
        Some((column, value)) => (format!("{column} = $4"), Some(value)),
        // The statement uses each parameter in either case.
        None => ("CAST($4 AS TEXT) IS NULL".to_owned(), None),
    };
    let statement = format!(
        "SELECT {} FROM failed_requests WHERE (at, request_id) < ($1, $2) AND at >= $3 AND {condition} \
         ORDER BY at DESC, request_id DESC LIMIT $5",
        names_of("")
    );
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(before.0)
        .bind(&before.1)
        .bind(filter.from.map_or(i64::MIN, |from| from.0))
        .bind(value)
        .bind(i64::from(limit))
        .fetch_all(database.reader())
        .await?;
    let mut failures: Vec<_> = rows.iter().map(read).collect::<sqlx::Result<_>>()?;
    let next = match failures.last() {
        Some(last) if failures.len() == limit as usize => Some(place(last)),
        _ => None,
    };
    failures.retain(|failure| filter.matches(failure));
    Ok(FailurePage { failures, next })
}

/// Returns the failures among these requests, by the requests' ids.
pub async fn find(
    database: &Database,
    request_ids: &[&str],
) -> sqlx::Result<HashMap<String, FailedRequest>> {
    if request_ids.is_empty() {
        return Ok(HashMap::new());
    }
    let ids = match database.dialect() {
        SqlDialect::Sqlite => "SELECT value FROM json_each($1)",
        SqlDialect::Postgres => "SELECT jsonb_array_elements_text(CAST($1 AS JSONB))",
    };
    let statement = format!(
        "SELECT {} FROM failed_requests WHERE request_id IN ({ids})",
        names_of("")
    );
    let rows = sqlx::query(AssertSqlSafe(statement))
        .bind(json!(request_ids).to_string())
        .fetch_all(database.reader())
        .await?;
    rows.iter()
        .map(|row| {
            let failure = read(row)?;
            Ok((failure.request_id.clone(), failure))
        })
        .collect()
}

/// Returns the position of a failure.
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

fn read(row: &AnyRow) -> sqlx::Result<FailedRequest> {
    let earlier: Option<String> = row.try_get("earlier")?;
    let earlier = earlier.unwrap_or_default();
    let earlier = earlier.split(',').filter(|name| !name.is_empty());
    Ok(FailedRequest {
        request_id: row.try_get("request_id")?,
        at: Millis(row.try_get("at")?),
        account_id: row.try_get("account_id")?,
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
    })
}
