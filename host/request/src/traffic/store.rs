//! The SQL of the sums.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};
use weir_ledger::Credits;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::database::SqlDialect;

use super::histogram::{BUCKETS, Histogram};
use super::row::{HOUR_MS, RowPlace, Scope, TrafficSums};

/// The columns of a row's place. `organisation_id` is the account: its name is from a version that counted only
/// organisations.
const PLACE: [&str; 6] = [
    "scope",
    "hour",
    "organisation_id",
    "key_id",
    "provider",
    "model",
];

/// The columns of sums, before those of the histograms.
const SUMS: [&str; 7] = [
    "requests",
    "client_errors",
    "provider_errors",
    "gateway_errors",
    "tokens_input",
    "tokens_output",
    "credits",
];

/// The prefixes of the histograms' columns.
const HISTOGRAMS: [&str; 2] = ["first_token", "total"];

/// A dimension of groups of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    Provider,
    Model,
    Key,
    /// The account that pays.
    Account,
    /// The account that pays, if it is an organisation.
    Organisation,
}

impl Dimension {
    fn column(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Model => "model",
            Self::Key => "key_id",
            Self::Account | Self::Organisation => "organisation_id",
        }
    }

    /// Returns the column that orders the groups, with the most first: the spend of payers, or the requests.
    fn order(self) -> &'static str {
        match self {
            Self::Provider | Self::Model => "requests",
            Self::Key | Self::Account | Self::Organisation => "credits",
        }
    }

    /// Returns the condition of rows that have the dimension.
    fn condition(self) -> &'static str {
        match self {
            Self::Organisation => " AND organisation_id LIKE 'org\\_%' ESCAPE '\\'",
            _ => "",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Hour,
    /// A day in UTC.
    Day,
}

impl Step {
    /// The length in milliseconds.
    pub fn ms(self) -> i64 {
        match self {
            Self::Hour => HOUR_MS,
            Self::Day => 24 * HOUR_MS,
        }
    }
}

/// A filter of requests; `None` matches all.
#[derive(Debug, Clone, Default)]
pub struct TrafficFilter {
    pub provider: Option<String>,
    pub model: Option<String>,
    /// The key's id.
    pub key: Option<String>,
    /// The account's id.
    pub account: Option<String>,
}

impl TrafficFilter {
    /// Returns the kind of rows with the filter's dimensions and another one.
    fn scope(&self, and: Option<Dimension>) -> Scope {
        if self.key.is_some() || and == Some(Dimension::Key) {
            Scope::Key
        } else if self.account.is_some()
            || matches!(and, Some(Dimension::Account | Dimension::Organisation))
        {
            Scope::Account
        } else {
            Scope::Upstream
        }
    }

    /// Whether a text of the filter has a character that no stored text has. PostgreSQL would reject some.
    fn has_odd_text(&self) -> bool {
        let texts = [&self.provider, &self.model, &self.key, &self.account];
        let mut texts = texts.into_iter().flatten();
        texts.any(|text| text.contains(char::is_control))
    }

    /// Returns the conditions after the parameters `$1` and `$2`. Each uses its parameter in either case.
    fn conditions(&self) -> String {
        let mut conditions = String::new();
        for (index, (column, value)) in self.columns().into_iter().enumerate() {
            let number = index + 3;
            let _ = match value {
                Some(_) => write!(conditions, " AND {column} = ${number}"),
                None => write!(conditions, " AND CAST(${number} AS TEXT) IS NULL"),
            };
        }
        conditions
    }

    fn columns(&self) -> [(&'static str, Option<&str>); 4] {
        [
            ("provider", self.provider.as_deref()),
            ("model", self.model.as_deref()),
            ("key_id", self.key.as_deref()),
            ("organisation_id", self.account.as_deref()),
        ]
    }
}

/// Returns the sums of each step with requests, from a moment on, by their first moments.
pub async fn series(
    database: &Database,
    filter: &TrafficFilter,
    from: Millis,
    step: Step,
) -> sqlx::Result<Vec<(Millis, TrafficSums)>> {
    let ms = step.ms();
    let rows = select(
        database,
        filter,
        filter.scope(None),
        from,
        &format!("hour - hour % {ms}"),
        " GROUP BY 1",
    )
    .await?;
    rows.iter()
        .map(|row| Ok((Millis(row.try_get("part")?), read(row)?)))
        .collect()
}

/// Returns the sums of the groups with the most spend or requests, from a moment on.
pub async fn groups(
    database: &Database,
    filter: &TrafficFilter,
    from: Millis,
    by: Dimension,
    limit: u32,
) -> sqlx::Result<Vec<(String, TrafficSums)>> {
    let (column, figure) = (by.column(), by.order());
    let rest = format!(
        "{} GROUP BY 1 ORDER BY SUM({figure}) DESC, {column} LIMIT {limit}",
        by.condition()
    );
    let scope = filter.scope(Some(by));
    let rows = select(database, filter, scope, from, column, &rest).await?;
    rows.iter()
        .map(|row| Ok((row.try_get("part")?, read(row)?)))
        .collect()
}

async fn select(
    database: &Database,
    filter: &TrafficFilter,
    scope: Scope,
    from: Millis,
    part: &str,
    rest: &str,
) -> sqlx::Result<Vec<AnyRow>> {
    if filter.has_odd_text() {
        return Ok(Vec::new());
    }
    let mut columns = String::new();
    for column in sum_columns() {
        // PostgreSQL sums integers to a decimal.
        let _ = write!(columns, ", CAST(SUM({column}) AS BIGINT) AS {column}");
    }
    let statement = format!(
        "SELECT {part} AS part{columns} FROM traffic_hours WHERE scope = $1 AND hour >= $2{}{rest}",
        filter.conditions()
    );
    let mut query = sqlx::query(AssertSqlSafe(statement))
        .bind(scope.name())
        .bind(from.0);
    for (_, value) in filter.columns() {
        query = query.bind(value);
    }
    query.fetch_all(database.reader()).await
}

fn read(row: &AnyRow) -> sqlx::Result<TrafficSums> {
    let histogram = |prefix: &str| -> sqlx::Result<Histogram> {
        let mut histogram = Histogram::default();
        for (bucket, count) in histogram.0.iter_mut().enumerate() {
            *count = row.try_get(&*bucket_column(prefix, bucket))?;
        }
        Ok(histogram)
    };
    Ok(TrafficSums {
        requests: row.try_get("requests")?,
        client_errors: row.try_get("client_errors")?,
        provider_errors: row.try_get("provider_errors")?,
        gateway_errors: row.try_get("gateway_errors")?,
        tokens_input: row.try_get("tokens_input")?,
        tokens_output: row.try_get("tokens_output")?,
        credits: Credits::from_micro(row.try_get("credits")?),
        first_token: histogram(HISTOGRAMS[0])?,
        total: histogram(HISTOGRAMS[1])?,
    })
}

/// Adds sums to their rows, which must be in order and distinct.
pub(super) async fn add(database: &Database, rows: &[(RowPlace, TrafficSums)]) -> sqlx::Result<()> {
    let rows = Value::from_iter(rows.iter().map(|(place, sums)| row(place, sums))).to_string();
    sqlx::query(AssertSqlSafe(add_statement(database.dialect())))
        .bind(rows)
        .execute(database.writer())
        .await?;
    Ok(())
}

fn row(place: &RowPlace, sums: &TrafficSums) -> Value {
    let mut row = Map::new();
    let places = [
        json!(place.scope.name()),
        json!(place.hour),
        json!(place.account),
        json!(place.key),
        json!(place.provider),
        json!(place.model),
    ];
    let counts = [
        sums.requests,
        sums.client_errors,
        sums.provider_errors,
        sums.gateway_errors,
        sums.tokens_input,
        sums.tokens_output,
        sums.credits.micro(),
    ];
    row.extend(PLACE.map(str::to_owned).into_iter().zip(places));
    row.extend(
        SUMS.map(str::to_owned)
            .into_iter()
            .zip(counts.map(Value::from)),
    );
    for (prefix, histogram) in HISTOGRAMS.into_iter().zip([sums.first_token, sums.total]) {
        let counts = histogram.0.into_iter().enumerate();
        row.extend(counts.map(|(bucket, count)| (bucket_column(prefix, bucket), count.into())));
    }
    Value::Object(row)
}

fn add_statement(dialect: SqlDialect) -> String {
    let sums = sum_columns();
    let texts = |column: &&str| *column != "hour";
    let all = PLACE.iter().map(|column| (*column, texts(column)));
    let all = all.chain(sums.iter().map(|column| (&**column, false)));
    let rows = match dialect {
        SqlDialect::Sqlite => {
            let fields = all.map(|(name, _)| format!("json_extract(value, '$.{name}') AS {name}"));
            let fields: Vec<_> = fields.collect();
            format!("(SELECT {} FROM json_each($1)) AS new", fields.join(", "))
        }
        SqlDialect::Postgres => {
            let fields = all.map(|(name, is_text)| match is_text {
                true => format!("{name} TEXT"),
                false => format!("{name} BIGINT"),
            });
            let fields: Vec<_> = fields.collect();
            let fields = fields.join(", ");
            format!("jsonb_to_recordset(CAST($1 AS TEXT)::jsonb) AS new ({fields})")
        }
    };
    let place = PLACE.join(", ");
    let names = format!("{place}, {}", sums.join(", "));
    let updates: Vec<_> = sums
        .iter()
        .map(|column| format!("{column} = traffic_hours.{column} + excluded.{column}"))
        .collect();
    // SQLite takes `ON` behind a table for the condition of a join. The order is the order of locks.
    format!(
        "INSERT INTO traffic_hours ({names}) SELECT {names} FROM {rows} WHERE TRUE ORDER BY {place} \
         ON CONFLICT ({place}) DO UPDATE SET {}",
        updates.join(", ")
    )
}

fn sum_columns() -> Vec<String> {
    let mut columns: Vec<_> = SUMS.map(str::to_owned).into();
    for prefix in HISTOGRAMS {
        columns.extend((0..BUCKETS).map(|bucket| bucket_column(prefix, bucket)));
    }
    columns
}

fn bucket_column(prefix: &str, bucket: usize) -> String {
    format!("{prefix}_{bucket:02}")
}
