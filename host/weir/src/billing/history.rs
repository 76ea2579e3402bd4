//! A user's usage over some days, by key, model or day, and their requests one by one: for the user and for
//! administrators.
//!
//! All figures are exact at the time of the request, and not cached. They contain no prompts and responses: those that
//! weir stores are in [`super::content`].
//!
//! **Invariant:** the user comes from the caller's credential, or from an administrator's path: never from a query.

use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_ledger::store::history::{
    EndedRequest, RequestFilter, RequestPage, UsageGroup, UsagePart,
};
use weir_ledger::{
    AccountId, Credits, HoldId, LedgerStore, QuantitySum, RequestSource, UsageSums, plans,
};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::ids;

use crate::csv_export::{self, CsvLines, ExportPlace, Exports};
use crate::identity::api_key::RawKey;
use crate::identity::directory::{self, KeyName};
use crate::query::ListQuery;
use crate::schemas;

/// Default and maximum number of days of a report.
const DAYS: i64 = 30;
const MOST_DAYS: i64 = 366;

/// Maximum number of parts that a report lists.
const MOST_PARTS: usize = 1_000;

/// Requests per read of a complete export.
const READ_AT_ONCE: u32 = 1_000;

/// The headings of a table of requests.
const REQUEST_HEADINGS: &str = "id,at,model,provider,source,key_id,task_id,status,tokens_input,tokens_cache_read,\
                                tokens_cache_write,tokens_output,images,credits,latency_ms,estimated,\
                                held_credits,adapter_digest,attempts,unit,quantity";

/// A page of requests, the position of the next page, and the time before which some requests are archived.
type RequestsPage = (Vec<RequestItem>, Option<i64>, Option<Millis>);

pub(crate) const DAY_MS: i64 = 86_400_000;

/// A user's usage over some days.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageReport {
    /// `key`, `model` or `day`.
    pub group: &'static str,
    /// The first day, in UTC.
    pub from: String,
    /// The last day, in UTC.
    pub to: String,
    /// The total of all parts.
    pub total: UsageFigures,
    /// The parts: days in order, keys and models by descending cost; a thousand at most.
    pub usage: Vec<UsageItem>,
    /// Number of parts that are not listed.
    pub omitted: usize,
}

/// The usage of a day, a model, a key or another part.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageItem {
    /// The part's label.
    #[serde(flatten)]
    #[schema(value_type = UsageLabelFields)]
    pub part: UsageLabel,
    /// The part's figures.
    #[serde(flatten)]
    pub figures: UsageFigures,
}

/// The label of a part: of a key, a model or a day. Generated clients cannot combine a choice with other fields, so
/// this is one object with the fields of all labels.
#[derive(ToSchema)]
#[schema(description = "The label of a part: of a key, a model or a day.")]
#[expect(dead_code, reason = "it is a schema")]
pub(super) struct UsageLabelFields {
    /// The source of a key's requests: `api_key`, `web` or `agent`.
    source: Option<String>,
    /// The key's id; null without a key.
    key_id: Option<String>,
    /// The key's name.
    name: Option<String>,
    /// The key's first characters.
    prefix: Option<String>,
    /// The model's id, as requested.
    #[schema(nullable = false)]
    model: Option<String>,
    /// The day in UTC, as `YYYY-MM-DD`.
    #[schema(nullable = false)]
    date: Option<String>,
}

/// The label of a part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum UsageLabel {
    /// The source of requests, and their key.
    Key {
        /// `api_key`, `web` or `agent`.
        source: &'static str,
        /// The key's id; null without a key.
        key_id: Option<String>,
        /// The key's name.
        name: Option<String>,
        /// The key's first characters.
        prefix: Option<String>,
    },
    /// The model's id, as requested.
    Model {
        /// The id.
        model: String,
    },
    /// A day in UTC.
    Day {
        /// As `YYYY-MM-DD`.
        date: String,
    },
}

/// The figures of requests. A charge counts on its own day; a correction reduces the figures of the day of the charge
/// that it corrects.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct UsageFigures {
    /// Charged requests.
    pub requests: i64,
    /// Credits charged.
    #[schema(value_type = f64)]
    pub credits_used: Credits,
    /// Input tokens, including cached ones.
    pub tokens_input: i64,
    /// Input tokens that were read from the provider's cache.
    pub tokens_cache_read: i64,
    /// Input tokens that were written to the provider's cache.
    pub tokens_cache_write: i64,
    /// Output tokens, including reasoning.
    pub tokens_output: i64,
    /// Generated images.
    pub images: i64,
    /// The unit of the price; null without usage, and for several units.
    #[schema(value_type = Option<schemas::UsageUnit>)]
    pub unit: Option<&'static str>,
    /// The usage in this unit; null if there is no unit, or an unknown one.
    pub quantity: Option<i64>,
}

/// A page of a user's completed requests.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestList {
    /// Requests, the last to end first.
    pub requests: Vec<RequestItem>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<String>,
    /// Requests that ended before this time may be in the archive; null if none is.
    pub archived_before: Option<String>,
}

/// A completed request.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestItem {
    /// The request's id, as in the log.
    pub id: String,
    /// The time of its end.
    pub at: String,
    /// The model's id, as requested.
    pub model: String,
    /// The provider that served the request, or that was working when it failed; null without one.
    pub provider: Option<String>,
    /// `api_key`, `web` or `agent`.
    pub source: &'static str,
    /// The request's key, if known.
    pub key_id: Option<String>,
    /// The request's task, if given.
    pub task_id: Option<String>,
    /// `settled`: served and charged. `released`: not delivered and not charged. `expired`: its node failed, and weir
    /// charged its usage up to then.
    pub status: &'static str,
    /// Input tokens, including cached ones.
    pub tokens_input: i64,
    /// Input tokens that were read from the provider's cache.
    pub tokens_cache_read: i64,
    /// Input tokens that were written to the provider's cache.
    pub tokens_cache_write: i64,
    /// Output tokens, including reasoning.
    pub tokens_output: i64,
    /// Generated images.
    pub images: i64,
    /// The unit of the price; null without usage.
    #[schema(value_type = Option<schemas::UsageUnit>)]
    pub unit: Option<&'static str>,
    /// The usage in this unit; null if there is no unit, or an unknown one.
    pub quantity: Option<i64>,
    /// The credits that weir held for the request.
    #[schema(value_type = Option<f64>)]
    pub held_credits: Option<Credits>,
    /// Credits charged.
    #[schema(value_type = f64)]
    pub credits: Credits,
    /// The component that served the request, or that was working when it failed; null without one.
    pub adapter_digest: Option<String>,
    /// Milliseconds from the request to its end; null if no provider worked on it.
    pub latency_ms: Option<i64>,
    /// Number of attempts at providers, 0 for a stored response; null if no provider worked on it.
    pub attempts: Option<i64>,
    /// Whether the tokens are weir's own estimate, because the provider reported none.
    pub estimated: bool,
}

/// The account and the time of a request for usage.
pub struct UsageQuery<'a> {
    /// The database.
    pub database: &'a Database,
    /// The account.
    pub account: AccountId,
    /// The current time; the default end of a report.
    pub now: Millis,
}

impl UsageQuery<'_> {
    /// Returns usage from day `from` to day `to`, by `group`; as CSV, or as JSON with a limited number of parts.
    pub async fn usage(
        &self,
        group: Option<String>,
        headers: &HeaderMap,
        query: ListQuery,
    ) -> Result<Response, ApiError> {
        if !csv_export::is_wanted(headers) {
            return Ok(Json(self.report(group, query).await?).into_response());
        }
        let report = self.whole_report(group, usize::MAX, query).await?;
        let label = match report.group {
            "key" => "source,key_id,name,prefix",
            "day" => "date",
            _ => "model",
        };
        let mut lines = CsvLines::of(&format!(
            "{label},requests,credits_used,tokens_input,tokens_cache_read,tokens_cache_write,tokens_output,images,\
             unit,quantity"
        ));
        for item in report.usage {
            let figures = item.figures.cells();
            let cells = item.part.cells().into_iter();
            lines.add(cells.chain(figures.iter().map(String::as_str)));
        }
        Ok(csv_export::whole("usage.csv", lines))
    }

    /// Returns usage from day `from` to day `to`, by `group`.
    pub async fn report(
        &self,
        group: Option<String>,
        query: ListQuery,
    ) -> Result<UsageReport, ApiError> {
        self.whole_report(group, MOST_PARTS, query).await
    }

    async fn whole_report(
        &self,
        group: Option<String>,
        most_parts: usize,
        mut query: ListQuery,
    ) -> Result<UsageReport, ApiError> {
        let (group, name) = match group.as_deref() {
            Some("key") => (UsageGroup::Key, "key"),
            Some("model") => (UsageGroup::Model, "model"),
            Some("day") => (UsageGroup::Day, "day"),
            _ => {
                let what = "Usage can be grouped by key, model or day.";
                return Err(ApiError::invalid_request("group", what));
            }
        };
        let days = self.days(&mut query)?;
        query.finish()?;
        let store = LedgerStore::new(self.database.clone());
        let parts = store.find_usage(&self.account, group, days).await;
        let parts = parts.map_err(failed)?;
        let total = parts
            .iter()
            .fold(UsageSums::default(), |all, (_, sums)| all.plus(*sums));
        let mut parts = self.name_parts(parts).await?;
        if group != UsageGroup::Day {
            // Equal parts stay in the order of their names.
            parts.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.credits));
        }
        let omitted = parts.len().saturating_sub(most_parts);
        parts.truncate(most_parts);
        let item = |(part, sums): (UsageLabel, UsageSums)| UsageItem {
            part,
            figures: figures(&sums),
        };
        let [first, last] = days;
        Ok(UsageReport {
            group: name,
            from: plans::day(first),
            to: plans::day(last),
            total: figures(&total),
            usage: parts.into_iter().map(item).collect(),
            omitted,
        })
    }

    /// Returns completed requests: a page as JSON, or all as CSV.
    pub async fn requests(
        &self,
        exports: &Exports,
        headers: &HeaderMap,
        mut query: ListQuery,
    ) -> Result<Response, ApiError> {
        if !csv_export::is_wanted(headers) {
            return Ok(Json(self.list(query).await?).into_response());
        }
        let filter = self.filter(&mut query).await?;
        query.finish()?;
        let place = exports.begin(&self.account.0)?;
        self.all_requests(place, filter).await
    }

    /// Returns a page of completed requests.
    pub async fn list(&self, mut query: ListQuery) -> Result<RequestList, ApiError> {
        let limit = query.limit()?;
        let before = query.number("before")?;
        let mut filter = self.filter(&mut query).await?;
        query.finish()?;
        filter.before = before;
        let page = self.page(&filter, limit).await.map_err(failed)?;
        let (requests, next, archived_before) = page;
        Ok(RequestList {
            requests,
            next: next.map(|before| before.to_string()),
            archived_before: archived_before.map(Millis::iso),
        })
    }

    /// Returns the filter of requests.
    async fn filter(&self, query: &mut ListQuery) -> Result<RequestFilter, ApiError> {
        let mut filter = RequestFilter {
            key_hashes: None,
            model: query.text("model")?,
            provider: None,
            from: moment(query, "from", 0)?,
            to: moment(query, "to", DAY_MS)?,
            before: None,
        };
        let key = query.text("key")?;
        check_span(filter.from, filter.to)?;
        if filter
            .model
            .as_ref()
            .is_some_and(|model| model.contains(char::is_control))
        {
            return Err(ApiError::invalid_request(
                "model",
                "The value must be a model's id.",
            ));
        }
        if let Some(key) = key {
            let user = &self.account.0;
            let hashes = match RawKey::is_id(&key) {
                true => directory::find_hashes(self.database, user, &key)
                    .await
                    .map_err(failed)?,
                false => Vec::new(),
            };
            if hashes.is_empty() {
                let what = "The key does not exist; GET /api-keys lists the ids.";
                return Err(ApiError::invalid_request("key", what));
            }
            filter.key_hashes = Some(hashes);
        }
        Ok(filter)
    }

    /// Returns some requests, the position of the next ones, and the archive's time.
    async fn page(&self, filter: &RequestFilter, limit: u32) -> sqlx::Result<RequestsPage> {
        let store = LedgerStore::new(self.database.clone());
        let RequestPage {
            requests,
            next,
            archived_before,
        } = store.list_requests(&self.account, filter, limit).await?;
        Ok((self.items(requests).await?, next, archived_before))
    }

    /// Returns all requests, as they are read.
    async fn all_requests(
        &self,
        place: ExportPlace,
        filter: RequestFilter,
    ) -> Result<Response, ApiError> {
        let (database, account, now) = (self.database.clone(), self.account.clone(), self.now);
        let lines = stream::try_unfold(Some(filter), move |filter| {
            let (database, account) = (database.clone(), account.clone());
            async move {
                let Some(mut filter) = filter else {
                    return Ok(None);
                };
                let asked = UsageQuery {
                    database: &database,
                    account,
                    now,
                };
                let (requests, next, _) = asked.page(&filter, READ_AT_ONCE).await?;
                let mut lines = CsvLines::default();
                for request in requests {
                    let cells = request.cells();
                    lines.add(cells.iter().map(String::as_str));
                }
                filter.before = next;
                Ok(Some((lines.finish(), next.map(|_| filter))))
            }
        });
        let headings = CsvLines::of(REQUEST_HEADINGS);
        csv_export::attachment(place, "requests.csv", headings, lines).await
    }

    /// Returns the request with an id; 404 if it is not the account's, is in progress or is archived.
    pub async fn request(&self, id: &str) -> Result<RequestItem, ApiError> {
        let found = match ids::hold_of_request(id) {
            Some(hold) => {
                LedgerStore::new(self.database.clone())
                    .find_request(&self.account, &HoldId(hold))
                    .await
            }
            None => Ok(None),
        };
        let found = found
            .map_err(failed)?
            .filter(|found| found.request_id == id);
        let items = self.items(found.into_iter().collect()).await;
        let items = items.map_err(failed)?;
        items.into_iter().next().ok_or_else(|| {
            let what = "No completed request has this id; archived requests are not available.";
            ApiError::new(ErrorCode::UnknownRequest, what)
        })
    }

    fn days(&self, query: &mut ListQuery) -> Result<[Millis; 2], ApiError> {
        let mut day = |name| {
            let text = query.text(name)?;
            let day = text.map(|text| plans::start_of_day(&text).ok_or_else(|| not_a_day(name)));
            day.transpose()
        };
        let (from, to) = (day("from")?, day("to")?);
        let to = to.unwrap_or(match from {
            Some(from) if from > self.now => from,
            _ => Millis(self.now.0 - self.now.0.rem_euclid(DAY_MS)),
        });
        let from = from.unwrap_or(to.plus_days(1 - DAYS));
        if from > to {
            return Err(ends_before_it_begins());
        }
        if to.0 - from.0 >= MOST_DAYS * DAY_MS {
            let what = format!("A report covers at most {MOST_DAYS} days.");
            return Err(ApiError::invalid_request("from", what));
        }
        Ok([from, to])
    }

    /// Labels parts for users. A key has another hash under another pepper, and is still the same key.
    async fn name_parts(
        &self,
        parts: Vec<(UsagePart, UsageSums)>,
    ) -> Result<Vec<(UsageLabel, UsageSums)>, ApiError> {
        let hashes = parts.iter().filter_map(|(part, _)| match part {
            UsagePart::Key { key_hash, .. } => key_hash.clone(),
            _ => None,
        });
        let keys = self.keys(hashes.collect()).await.map_err(failed)?;
        let mut named: BTreeMap<UsageLabel, UsageSums> = BTreeMap::new();
        for (part, sums) in parts {
            let label = match part {
                UsagePart::Model(model) => UsageLabel::Model { model },
                UsagePart::Day(day) => UsageLabel::Day {
                    date: plans::day(day),
                },
                UsagePart::Key { source, key_hash } => {
                    let key = key_hash.and_then(|hash| keys.get(&hash));
                    UsageLabel::Key {
                        source: source.name(),
                        key_id: key.map(|key| key.id.clone()),
                        name: key.map(|key| key.name.clone()),
                        prefix: key.map(|key| key.prefix.clone()),
                    }
                }
            };
            let of_label = named.entry(label).or_default();
            *of_label = of_label.plus(sums);
        }
        Ok(named.into_iter().collect())
    }

    async fn items(&self, requests: Vec<EndedRequest>) -> sqlx::Result<Vec<RequestItem>> {
        let with_key = |request: &&EndedRequest| request.source == RequestSource::ApiKey;
        let hashes = requests.iter().filter(with_key);
        let hashes = hashes.filter_map(|request| request.source_id.clone());
        let keys = self.keys(hashes.collect()).await?;
        Ok(requests
            .into_iter()
            .map(|request| item(request, &keys))
            .collect())
    }

    async fn keys(&self, mut hashes: Vec<String>) -> sqlx::Result<BTreeMap<String, KeyName>> {
        hashes.sort();
        hashes.dedup();
        if hashes.is_empty() {
            return Ok(BTreeMap::new());
        }
        directory::name_keys(self.database, Some(&self.account.0), &hashes).await
    }
}

impl UsageLabel {
    /// Returns the part's cells in a table.
    fn cells(&self) -> Vec<&str> {
        match self {
            Self::Key {
                source,
                key_id,
                name,
                prefix,
            } => vec![
                source,
                key_id.as_deref().unwrap_or_default(),
                name.as_deref().unwrap_or_default(),
                prefix.as_deref().unwrap_or_default(),
            ],
            Self::Model { model } => vec![model],
            Self::Day { date } => vec![date],
        }
    }
}

impl UsageFigures {
    fn cells(&self) -> [String; 9] {
        [
            self.requests.to_string(),
            self.credits_used.to_string(),
            self.tokens_input.to_string(),
            self.tokens_cache_read.to_string(),
            self.tokens_cache_write.to_string(),
            self.tokens_output.to_string(),
            self.images.to_string(),
            self.unit.unwrap_or_default().to_owned(),
            self.quantity
                .map_or(String::new(), |quantity| quantity.to_string()),
        ]
    }
}

impl RequestItem {
    /// Returns the request's cells in a table, in the order of [`REQUEST_HEADINGS`].
    fn cells(&self) -> [String; 21] {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        [
            self.id.clone(),
            self.at.clone(),
            self.model.clone(),
            text(&self.provider),
            self.source.to_owned(),
            text(&self.key_id),
            text(&self.task_id),
            self.status.to_owned(),
            self.tokens_input.to_string(),
            self.tokens_cache_read.to_string(),
            self.tokens_cache_write.to_string(),
            self.tokens_output.to_string(),
            self.images.to_string(),
            self.credits.to_string(),
            self.latency_ms
                .map_or(String::new(), |latency| latency.to_string()),
            self.estimated.to_string(),
            self.held_credits
                .map_or(String::new(), |held| held.to_string()),
            text(&self.adapter_digest),
            self.attempts
                .map_or(String::new(), |attempts| attempts.to_string()),
            self.unit.unwrap_or_default().to_owned(),
            self.quantity
                .map_or(String::new(), |quantity| quantity.to_string()),
        ]
    }
}

/// Returns the number of units, if the unit is known.
pub(crate) fn count_of(quantity: QuantitySum) -> Option<i64> {
    quantity.known().map(|quantity| quantity.count)
}

fn figures(sums: &UsageSums) -> UsageFigures {
    UsageFigures {
        requests: sums.requests,
        credits_used: sums.credits,
        tokens_input: sums.counts.tokens_input,
        tokens_cache_read: sums.counts.tokens_cache_read,
        tokens_cache_write: sums.counts.tokens_cache_write,
        tokens_output: sums.counts.tokens_output,
        images: sums.counts.images,
        unit: sums.quantity.unit_name(),
        quantity: count_of(sums.quantity),
    }
}

fn item(request: EndedRequest, keys: &BTreeMap<String, KeyName>) -> RequestItem {
    let source_id = request.source_id.as_ref();
    let key = source_id.and_then(|hash| keys.get(hash));
    let is_agents = request.source == RequestSource::Agent;
    RequestItem {
        key_id: key.map(|key| key.id.clone()),
        task_id: request.source_id.filter(|_| is_agents),
        id: request.request_id,
        at: request.at.iso(),
        model: request.model,
        provider: request.provider,
        source: request.source.name(),
        status: request.state.name(),
        tokens_input: request.counts.tokens_input,
        tokens_cache_read: request.counts.tokens_cache_read,
        tokens_cache_write: request.counts.tokens_cache_write,
        tokens_output: request.counts.tokens_output,
        images: request.counts.images,
        unit: request.quantity.unit_name(),
        quantity: count_of(request.quantity),
        held_credits: request.held,
        credits: request.credits,
        adapter_digest: request.adapter_digest,
        latency_ms: request.latency_ms,
        attempts: request.attempts,
        estimated: request.estimated,
    }
}

/// Takes a time: a moment, or a day, which gives the day's first moment plus an offset in milliseconds.
pub(crate) fn moment(
    query: &mut ListQuery,
    name: &str,
    after_day_ms: i64,
) -> Result<Option<Millis>, ApiError> {
    let Some(text) = query.text(name)? else {
        return Ok(None);
    };
    let day = plans::start_of_day(&text).map(|day| Millis(day.0 + after_day_ms));
    let what = "The value must be a day as YYYY-MM-DD, or a time as 2026-01-31T12:00:00Z.";
    day.or_else(|| Millis::parse(&text))
        .map(Some)
        .ok_or_else(|| ApiError::invalid_request(name, what))
}

fn not_a_day(name: &str) -> ApiError {
    ApiError::invalid_request(name, "The value must be a day in UTC as YYYY-MM-DD.")
}

/// Rejects a period whose end precedes its start.
pub(crate) fn check_span(from: Option<Millis>, to: Option<Millis>) -> Result<(), ApiError> {
    match (from, to) {
        (Some(from), Some(to)) if from >= to => Err(ends_before_it_begins()),
        _ => Ok(()),
    }
}

fn ends_before_it_begins() -> ApiError {
    ApiError::invalid_request("to", "`to` is before `from`.")
}

pub(super) fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "asked for what was used")
}
