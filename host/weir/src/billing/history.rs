//! What a user has used over some days, by key, model or day, and their requests one by one: for themselves and for
//! administrators.
//!
//! All of it is exact at the moment of asking; nothing of it is cached. Nothing of what was asked and answered is in it, for
//! weir keeps none.
//!
//! **Invariant:** whose usage it is comes from the caller's proof, or from an administrator's path: never from a query.

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
use weir_ledger::{AccountId, Credits, HoldId, RequestSource, Store, UsageSums, plans};
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::ids;

use crate::csv_export::{self as csv, ExportPlace, Exports};
use crate::identity::api_key::RawKey;
use crate::identity::directory::{self, KeyName};
use crate::query::ListQuery;

/// Days that a report is about unless asked otherwise, and at most.
const DAYS: i64 = 30;
const MOST_DAYS: i64 = 366;

/// Parts that a report lists at most.
const MOST_PARTS: usize = 1_000;

/// Requests that are read at once where all are wanted.
const READ_AT_ONCE: u32 = 1_000;

/// What a table of requests begins with.
const REQUEST_HEADINGS: &str = "id,at,model,provider,source,key_id,task_id,status,tokens_input,tokens_cache_read,\
                                tokens_cache_write,tokens_output,images,credits,latency_ms,estimated,\
                                held_credits,adapter_digest,attempts\r\n";

/// A part of all requests, the place of the next one, and the moment before which some are archived.
type Page = (Vec<RequestItem>, Option<i64>, Option<Millis>);

pub(super) const DAY_MS: i64 = 86_400_000;

/// What a user has used over some days.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageReport {
    /// `key`, `model` or `day`.
    pub group: &'static str,
    /// The first day, in UTC.
    pub from: String,
    /// The last day, in UTC.
    pub to: String,
    /// All of it.
    pub total: UsageFigures,
    /// Its parts: days in their order, others the dearest first; a thousand at most.
    pub usage: Vec<UsageItem>,
    /// How many parts are not listed.
    pub omitted: usize,
}

/// A part of a [`UsageReport`].
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageItem {
    /// What it is a part by.
    #[serde(flatten)]
    pub part: UsageLabel,
    /// What it comes to.
    #[serde(flatten)]
    pub figures: UsageFigures,
}

/// What tells parts apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(untagged)]
pub enum UsageLabel {
    /// Where requests came from, and with which key.
    Key {
        /// `api_key`, `web` or `agent`.
        source: &'static str,
        /// The key's id; null where there was no key.
        key_id: Option<String>,
        /// The key's name.
        name: Option<String>,
        /// Its first characters.
        prefix: Option<String>,
    },
    /// The model's id, as it was asked for.
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

/// What requests come to. A charge counts on the day that it was made; what is corrected on a later day is taken off there.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct UsageFigures {
    /// Requests that were charged.
    pub requests: i64,
    /// What was paid.
    #[schema(value_type = f64)]
    pub credits_used: Credits,
    /// All input, cached input included.
    pub tokens_input: i64,
    /// The part of the input that came from the provider's cache.
    pub tokens_cache_read: i64,
    /// The part of the input that was written to it.
    pub tokens_cache_write: i64,
    /// All output, reasoning included.
    pub tokens_output: i64,
    /// Images made.
    pub images: i64,
}

/// A part of a user's requests that have ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestList {
    /// The last to end is first.
    pub requests: Vec<RequestItem>,
    /// The `before` of the next part; null if this is the last.
    pub next: Option<String>,
    /// Requests that ended before this moment may have left for the archive; null if none has.
    pub archived_before: Option<String>,
}

/// A request that has ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct RequestItem {
    /// Its id, as the log has it.
    pub id: String,
    /// When it ended.
    pub at: String,
    /// The model's id, as it was asked for.
    pub model: String,
    /// The provider that answered, or was at work when the request failed; null if none was.
    pub provider: Option<String>,
    /// `api_key`, `web` or `agent`.
    pub source: &'static str,
    /// The key that it came with, if it is known.
    pub key_id: Option<String>,
    /// The task that it was for, if one was named.
    pub task_id: Option<String>,
    /// `settled`: served and charged. `released`: nothing was delivered, nor charged. `expired`: its node went away, and it
    /// was charged for what it had used until then.
    pub status: &'static str,
    /// All input, cached input included.
    pub tokens_input: i64,
    /// The part of the input that came from the provider's cache.
    pub tokens_cache_read: i64,
    /// The part of the input that was written to it.
    pub tokens_cache_write: i64,
    /// All output, reasoning included.
    pub tokens_output: i64,
    /// Images made.
    pub images: i64,
    /// What was held for it before.
    #[schema(value_type = Option<f64>)]
    pub held_credits: Option<Credits>,
    /// What was paid.
    #[schema(value_type = f64)]
    pub credits: Credits,
    /// The component that served it, or was at work when it failed; null if none was.
    pub adapter_digest: Option<String>,
    /// Milliseconds from the request to its end; null if no provider was at work.
    pub latency_ms: Option<i64>,
    /// How often providers were asked for it; null if none was at work.
    pub attempts: Option<i64>,
    /// Whether tokens are weir's own estimate, since the provider has not said.
    pub estimated: bool,
}

/// Whose usage is asked for, and when.
pub struct Asked<'a> {
    /// The database that it is in.
    pub database: &'a Database,
    /// Whose it is.
    pub account: AccountId,
    /// This moment, by which a report ends today unless asked otherwise.
    pub now: Millis,
}

impl Asked<'_> {
    /// What was used from day `from` to day `to`, by `group`; as CSV, or as JSON, where there are more parts than are listed.
    pub async fn usage(
        &self,
        group: Option<String>,
        headers: &HeaderMap,
        query: ListQuery,
    ) -> Result<Response, ApiError> {
        if !csv::is_wanted(headers) {
            return Ok(Json(self.report(group, query).await?).into_response());
        }
        let report = self.whole_report(group, usize::MAX, query).await?;
        let label = match report.group {
            "key" => "source,key_id,name,prefix",
            "day" => "date",
            _ => "model",
        };
        let headings = format!(
            "{label},requests,credits_used,tokens_input,tokens_cache_read,tokens_cache_write,tokens_output,images\r\n"
        );
        let mut lines = String::new();
        for item in report.usage {
            let figures = item.figures.cells();
            let cells = item.part.cells().into_iter();
            csv::line(&mut lines, cells.chain(figures.iter().map(String::as_str)));
        }
        Ok(csv::whole("usage.csv", &headings, &lines))
    }

    /// What was used from day `from` to day `to`, by `group`.
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
                let what = "Usage is told apart by key, model or day.";
                return Err(ApiError::invalid_request("group", what));
            }
        };
        let days = self.days(&mut query)?;
        query.finish()?;
        let store = Store::new(self.database.clone());
        let parts = store.find_usage(&self.account, group, days).await;
        let parts = parts.map_err(failed)?;
        let total = parts
            .iter()
            .fold(UsageSums::default(), |all, (_, sums)| all.plus(*sums));
        let mut parts = self.name_parts(parts).await?;
        if group != UsageGroup::Day {
            // They are in the order of their names.
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

    /// The requests that have ended: a part of them as JSON, or all of them as CSV.
    pub async fn requests(
        &self,
        exports: &Exports,
        headers: &HeaderMap,
        mut query: ListQuery,
    ) -> Result<Response, ApiError> {
        if !csv::is_wanted(headers) {
            return Ok(Json(self.list(query).await?).into_response());
        }
        let filter = self.filter(&mut query).await?;
        query.finish()?;
        let place = exports.begin(&self.account.0)?;
        self.all_requests(place, filter).await
    }

    /// A part of the requests that have ended.
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

    /// Which requests are asked for.
    async fn filter(&self, query: &mut ListQuery) -> Result<RequestFilter, ApiError> {
        let mut filter = RequestFilter {
            key_hashes: None,
            model: query.text("model")?,
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
            return Err(ApiError::invalid_request("model", "It is a model's id."));
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
                let what = "There is no such key here; GET /api-keys lists the ids.";
                return Err(ApiError::invalid_request("key", what));
            }
            filter.key_hashes = Some(hashes);
        }
        Ok(filter)
    }

    /// Some requests, the place before which the next ones are, and what is archived.
    async fn page(&self, filter: &RequestFilter, limit: u32) -> sqlx::Result<Page> {
        let store = Store::new(self.database.clone());
        let RequestPage {
            requests,
            next,
            archived_before,
        } = store.list_requests(&self.account, filter, limit).await?;
        Ok((self.items(requests).await?, next, archived_before))
    }

    /// All of the requests, as they are read.
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
                let asked = Asked {
                    database: &database,
                    account,
                    now,
                };
                let (requests, next, _) = asked.page(&filter, READ_AT_ONCE).await?;
                let mut lines = String::new();
                for request in requests {
                    let cells = request.cells();
                    csv::line(&mut lines, cells.iter().map(String::as_str));
                }
                filter.before = next;
                Ok(Some((lines, next.map(|_| filter))))
            }
        });
        csv::attachment(place, "requests.csv", REQUEST_HEADINGS, lines).await
    }

    /// The request of an id; 404 where it is not the account's, has not ended or is archived.
    pub async fn request(&self, id: &str) -> Result<RequestItem, ApiError> {
        let found = match ids::hold_of_request(id) {
            Some(hold) => {
                Store::new(self.database.clone())
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
            let what = "There is no request of this id that has ended; an archived one is not here any more.";
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
            let what = format!("A report is about {MOST_DAYS} days at most.");
            return Err(ApiError::invalid_request("from", what));
        }
        Ok([from, to])
    }

    /// The parts by what users know them by. Under another pepper a key has another hash, and is the same key.
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
    /// Its cells in a table.
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
    fn cells(&self) -> [String; 7] {
        [
            self.requests.to_string(),
            self.credits_used.to_string(),
            self.tokens_input.to_string(),
            self.tokens_cache_read.to_string(),
            self.tokens_cache_write.to_string(),
            self.tokens_output.to_string(),
            self.images.to_string(),
        ]
    }
}

impl RequestItem {
    /// Its cells in a table, as [`REQUEST_HEADINGS`] has them.
    fn cells(&self) -> [String; 19] {
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
        ]
    }
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
        held_credits: request.held,
        credits: request.credits,
        adapter_digest: request.adapter_digest,
        latency_ms: request.latency_ms,
        attempts: request.attempts,
        estimated: request.estimated,
    }
}

/// Takes a moment: a time, or a day, of which it is the first moment and so many milliseconds.
pub(super) fn moment(
    query: &mut ListQuery,
    name: &str,
    after_day_ms: i64,
) -> Result<Option<Millis>, ApiError> {
    let Some(text) = query.text(name)? else {
        return Ok(None);
    };
    let day = plans::start_of_day(&text).map(|day| Millis(day.0 + after_day_ms));
    let what = "It is a day as YYYY-MM-DD, or a time as 2026-01-31T12:00:00Z.";
    day.or_else(|| Millis::parse(&text))
        .map(Some)
        .ok_or_else(|| ApiError::invalid_request(name, what))
}

fn not_a_day(name: &str) -> ApiError {
    ApiError::invalid_request(name, "It is a day in UTC as YYYY-MM-DD.")
}

/// Refuses a time that is over before it begins.
pub(super) fn check_span(from: Option<Millis>, to: Option<Millis>) -> Result<(), ApiError> {
    match (from, to) {
        (Some(from), Some(to)) if from >= to => Err(ends_before_it_begins()),
        _ => Ok(()),
    }
}

fn ends_before_it_begins() -> ApiError {
    ApiError::invalid_request("to", "It is before `from`.")
}

pub(super) fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "asked for what was used")
}
