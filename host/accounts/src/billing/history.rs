//! A user's usage over some days, by key, model or day, and their requests one by one: for the user and for
//! administrators.
//!
//! All figures are exact at the time of the request, and not cached. They contain no prompts and responses: those that
//! weir stores are in [`super::content`].
//!
//! **Invariant:** the user comes from the caller's credential, or from an administrator's path: never from a query.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::api_key::RawKey;
use weir_identity::directory::{self, KeyName};
use weir_ledger::store::history::{
    EndedRequest, RequestFilter, RequestPage, UsageGroup, UsagePart,
};
use weir_ledger::{
    AccountId, Credits, HoldId, LedgerStore, QuantitySum, RequestSource, UsageSums, plans,
};
use weir_request::csv_export::{self, CsvLines, ExportPlace, Exports};
use weir_request::failed_requests::store::{
    FailureFilter, FailurePlace, behind_all, parse_place, place_text,
};
use weir_request::failed_requests::{FailedRequest, FailedRequests};
use weir_request::query::ListQuery;
use weir_request::schemas;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::ids;

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
                                held_credits,adapter_digest,attempts,unit,quantity,code,http_status,param,limit,message";

/// A page of requests, the position of the next page, and the time before which some requests are archived.
type RequestsPage = (Vec<RequestItem>, Option<i64>, Option<Millis>);

pub const DAY_MS: i64 = 86_400_000;

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
    /// With `status=failed`: failed requests of the account in the period that have no record, because there were more
    /// than 20 in a minute; otherwise null.
    pub unrecorded: Option<i64>,
}

/// A completed request.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestItem {
    /// The request's id, as in the log.
    pub id: String,
    /// The time of its end.
    pub at: String,
    /// The model's id, as requested; null if the requested one does not exist.
    pub model: Option<String>,
    /// The provider that served the request, or that was working when it failed; null without one.
    pub provider: Option<String>,
    /// `api_key`, `web` or `agent`; null if the request failed before weir held credits.
    pub source: Option<&'static str>,
    /// The request's key, if known.
    pub key_id: Option<String>,
    /// The request's task, if given.
    pub task_id: Option<String>,
    /// `settled`: served and charged. `released`: not delivered and not charged. `expired`: its node failed, and weir
    /// charged its usage up to then. `failed`: ended before weir held credits. Requests
    /// with any of these statuses failed if they have a `code`.
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
    /// The error's code; null if the request succeeded, or weir has no record of its failure.
    pub code: Option<String>,
    /// The HTTP status of a failed request; null if the client had disconnected.
    pub http_status: Option<i64>,
    /// The path of the wrong field; null if no field was wrong.
    pub param: Option<String>,
    /// The budget or the limit that was reached, such as `budget/key/day`, `rate/account/requests`, `credits` or
    /// `concurrency`; null for other errors.
    pub limit: Option<String>,
    /// weir's message about the error, without the text of a provider.
    pub message: Option<String>,
}

/// A list of failed requests, and the position of its next page.
struct FailureList {
    model: Option<String>,
    key: Option<String>,
    from: Option<Millis>,
    to: Option<Millis>,
    before: FailurePlace,
}

impl FailureList {
    fn new(filter: RequestFilter, key: Option<String>) -> Self {
        Self {
            model: filter.model,
            key,
            from: filter.from,
            to: filter.to,
            before: behind_all(),
        }
    }
}

/// The next part of a table of requests.
enum TablePart {
    Ledger(RequestFilter),
    Failures(FailureList),
}

/// The account and the time of a request for usage.
pub struct UsageQuery<'a> {
    pub database: &'a Database,
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
        failures: &Arc<FailedRequests>,
        exports: &Exports,
        headers: &HeaderMap,
        mut query: ListQuery,
    ) -> Result<Response, ApiError> {
        if !csv_export::is_wanted(headers) {
            return Ok(Json(self.list(failures, query).await?).into_response());
        }
        let wants_failures = wants_failures(&mut query)?;
        let (filter, key) = self.filter(&mut query).await?;
        query.finish()?;
        let place = exports.begin(&self.account.0)?;
        let next = match wants_failures {
            true => TablePart::Failures(FailureList::new(filter, key)),
            false => TablePart::Ledger(filter),
        };
        failures.flush().await;
        self.all_requests(failures.clone(), place, next).await
    }

    /// Returns a page of completed requests.
    pub async fn list(
        &self,
        failures: &FailedRequests,
        mut query: ListQuery,
    ) -> Result<RequestList, ApiError> {
        let limit = query.limit()?;
        let wants_failures = wants_failures(&mut query)?;
        let before = match wants_failures {
            true => None,
            false => query.number("before")?,
        };
        let before_failure = match wants_failures {
            true => query.text("before")?,
            false => None,
        };
        let (mut filter, key) = self.filter(&mut query).await?;
        query.finish()?;
        // The list includes failures that are not written yet.
        failures.flush().await;
        if wants_failures {
            let mut wanted = FailureList::new(filter, key);
            if let Some(before) = before_failure {
                let what = "The value must be the `next` of the previous page.";
                let before = parse_place(&before);
                wanted.before = before.ok_or_else(|| ApiError::invalid_request("before", what))?;
            }
            return self
                .list_failures(failures, wanted, limit)
                .await
                .map_err(failed);
        }
        filter.before = before;
        let page = self.page(failures, &filter, limit).await.map_err(failed)?;
        let (requests, next, archived_before) = page;
        Ok(RequestList {
            requests,
            next: next.map(|before| before.to_string()),
            archived_before: archived_before.map(Millis::iso),
            unrecorded: None,
        })
    }

    async fn list_failures(
        &self,
        failures: &FailedRequests,
        wanted: FailureList,
        limit: u32,
    ) -> sqlx::Result<RequestList> {
        let (from, to) = (wanted.from, wanted.to);
        let (requests, next) = self.page_of_failures(failures, wanted, limit).await?;
        let unrecorded = failures.count_unrecorded(&self.account.0, from, to);
        Ok(RequestList {
            requests,
            next: next.map(|next| place_text(&next.before)),
            archived_before: None,
            unrecorded: Some(unrecorded.await?),
        })
    }

    /// Returns up to `limit` failed requests of a list, and the list behind them.
    async fn page_of_failures(
        &self,
        failures: &FailedRequests,
        wanted: FailureList,
        limit: u32,
    ) -> sqlx::Result<(Vec<RequestItem>, Option<FailureList>)> {
        let filter = FailureFilter {
            account: Some(self.account.0.clone()),
            key: wanted.key.clone(),
            model: wanted.model.clone(),
            from: wanted.from,
            ..FailureFilter::default()
        };
        let list = failures.list_joined(&filter, wanted.to, &wanted.before, limit);
        let (joined, next) = list.await?;
        let ended = joined.iter().filter_map(|(_, ended)| ended.as_ref());
        let keys = self.keys_of(ended).await?;
        let requests = joined.into_iter().map(|(failure, ended)| {
            let of_ledger = ended.map(|ended| item(ended, &keys));
            item_of_failure(failure, of_ledger)
        });
        let next = next.map(|before| FailureList { before, ..wanted });
        Ok((requests.collect(), next))
    }

    /// Returns the filter of requests, and the id of its key.
    async fn filter(
        &self,
        query: &mut ListQuery,
    ) -> Result<(RequestFilter, Option<String>), ApiError> {
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
        if let Some(key) = &key {
            let user = &self.account.0;
            let hashes = match RawKey::is_id(key) {
                true => directory::find_hashes(self.database, user, key)
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
        Ok((filter, key))
    }

    /// Returns some requests, the position of the next ones, and the archive's time.
    async fn page(
        &self,
        failures: &FailedRequests,
        filter: &RequestFilter,
        limit: u32,
    ) -> sqlx::Result<RequestsPage> {
        let store = LedgerStore::new(self.database.clone());
        let RequestPage {
            requests,
            next,
            archived_before,
        } = store.list_requests(&self.account, filter, limit).await?;
        let mut items = self.items(requests).await?;
        self.add_errors(failures, &mut items).await?;
        Ok((items, next, archived_before))
    }

    /// Adds the recorded errors of requests.
    async fn add_errors(
        &self,
        failures: &FailedRequests,
        items: &mut [RequestItem],
    ) -> sqlx::Result<()> {
        let ids: Vec<_> = items.iter().map(|item| &*item.id).collect();
        let mut recorded = failures.find(&ids).await?;
        for item in items {
            let failure = recorded.remove(&item.id);
            let failure = failure.filter(|failure| failure.account_id == self.account.0);
            if let Some(failure) = failure {
                item.add_error(failure);
            }
        }
        Ok(())
    }

    /// Returns all requests, as they are read.
    async fn all_requests(
        &self,
        failures: Arc<FailedRequests>,
        place: ExportPlace,
        first: TablePart,
    ) -> Result<Response, ApiError> {
        let (database, account, now) = (self.database.clone(), self.account.clone(), self.now);
        let lines = stream::try_unfold(Some(first), move |part| {
            let (database, account) = (database.clone(), account.clone());
            let failures = failures.clone();
            async move {
                let Some(part) = part else {
                    return Ok(None);
                };
                let asked = UsageQuery {
                    database: &database,
                    account,
                    now,
                };
                let (requests, next) = match part {
                    TablePart::Failures(list) => {
                        let (requests, next) = asked
                            .page_of_failures(&failures, list, READ_AT_ONCE)
                            .await?;
                        (requests, next.map(TablePart::Failures))
                    }
                    TablePart::Ledger(filter) => {
                        let (requests, next, _) =
                            asked.page(&failures, &filter, READ_AT_ONCE).await?;
                        let next = next.map(|before| RequestFilter {
                            before: Some(before),
                            ..filter
                        });
                        (requests, next.map(TablePart::Ledger))
                    }
                };
                let mut lines = CsvLines::default();
                for request in requests {
                    let cells = request.cells();
                    lines.add(cells.iter().map(String::as_str));
                }
                Ok(Some((lines.finish(), next)))
            }
        });
        let headings = CsvLines::of(REQUEST_HEADINGS);
        csv_export::attachment(place, "requests.csv", headings, lines).await
    }

    /// Returns the request with an id; 404 if it is not the account's, is in progress or is archived.
    pub async fn request(
        &self,
        failures: &FailedRequests,
        id: &str,
    ) -> Result<RequestItem, ApiError> {
        failures.flush().await;
        // PostgreSQL rejects control characters in a text, and no id contains any.
        let recorded = match id.contains(char::is_control) {
            true => HashMap::new(),
            false => failures.find(&[id]).await.map_err(failed)?,
        };
        let recorded = recorded.into_values().next();
        let recorded = recorded.filter(|failure| failure.account_id == self.account.0);
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
        let of_ledger = items.map_err(failed)?.into_iter().next();
        let item = match recorded {
            Some(failure) => Some(item_of_failure(failure, of_ledger)),
            None => of_ledger,
        };
        item.ok_or_else(|| {
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
        let keys = self.keys_of(requests.iter()).await?;
        let requests = requests.into_iter();
        Ok(requests.map(|request| item(request, &keys)).collect())
    }

    /// Returns the keys of requests, by their hashes.
    async fn keys_of<'r>(
        &self,
        requests: impl Iterator<Item = &'r EndedRequest>,
    ) -> sqlx::Result<BTreeMap<String, KeyName>> {
        let with_key = requests.filter(|request| request.source == RequestSource::ApiKey);
        let hashes = with_key.filter_map(|request| request.source_id.clone());
        self.keys(hashes.collect()).await
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
    fn cells(&self) -> [String; 26] {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        [
            self.id.clone(),
            self.at.clone(),
            text(&self.model),
            text(&self.provider),
            self.source.unwrap_or_default().to_owned(),
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
            text(&self.code),
            self.http_status
                .map_or(String::new(), |status| status.to_string()),
            text(&self.param),
            text(&self.limit),
            text(&self.message),
        ]
    }

    /// The documented meaning of its error, and the advice for the client.
    pub fn explanation(&self) -> Option<(&'static str, &'static str)> {
        explanation(self.code.as_deref()?)
    }

    fn add_error(&mut self, failure: FailedRequest) {
        // The ledger knows neither for a request that it released.
        self.attempts = Some(failure.attempts);
        self.latency_ms = self.latency_ms.or(Some(failure.latency_ms));
        self.provider = self.provider.take().or(failure.provider);
        self.code = Some(failure.code);
        self.http_status = failure.status;
        self.param = failure.error.param;
        self.limit = failure.error.limit;
        self.message = failure.error.message;
    }
}

/// Returns the documented meaning of an error's code, and the advice for the client.
pub fn explanation(code: &str) -> Option<(&'static str, &'static str)> {
    let mut codes = ErrorCode::ALL.iter();
    let code = codes.find(|known| known.as_str() == code)?;
    Some((code.meaning(), code.advice()))
}

/// Returns the number of units, if the unit is known.
pub fn count_of(quantity: QuantitySum) -> Option<i64> {
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

/// Whether a list has only failed requests.
fn wants_failures(query: &mut ListQuery) -> Result<bool, ApiError> {
    match query.text("status")?.as_deref() {
        None => Ok(false),
        Some("failed") => Ok(true),
        Some(_) => {
            let what = "The status must be failed; without it, the list has all requests.";
            Err(ApiError::invalid_request("status", what))
        }
    }
}

/// Returns the item of a failed request. Without an entry in the ledger, weir held no credits for it.
fn item_of_failure(failure: FailedRequest, of_ledger: Option<RequestItem>) -> RequestItem {
    let mut item = of_ledger.unwrap_or_else(|| RequestItem {
        id: failure.request_id.clone(),
        at: failure.at.iso(),
        model: failure.model.clone(),
        provider: failure.provider.clone(),
        source: None,
        key_id: failure.key_id.clone(),
        task_id: None,
        status: "failed",
        tokens_input: 0,
        tokens_cache_read: 0,
        tokens_cache_write: 0,
        tokens_output: 0,
        images: 0,
        unit: None,
        quantity: None,
        held_credits: None,
        credits: Credits::ZERO,
        adapter_digest: failure.adapter_digest.clone(),
        latency_ms: Some(failure.latency_ms),
        attempts: Some(failure.attempts),
        estimated: false,
        code: None,
        http_status: None,
        param: None,
        limit: None,
        message: None,
    });
    item.add_error(failure);
    item
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
        model: Some(request.model),
        provider: request.provider,
        source: Some(request.source.name()),
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
        code: None,
        http_status: None,
        param: None,
        limit: None,
        message: None,
    }
}

/// Takes a time: a moment, or a day, which gives the day's first moment plus an offset in milliseconds.
pub fn moment(
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
pub fn check_span(from: Option<Millis>, to: Option<Millis>) -> Result<(), ApiError> {
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
