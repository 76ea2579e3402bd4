//! `/admin/requests`: the requests of everybody, newest first.
//!
//! The list merges two sources, each in the order of its index: entries of the ledger, and failed requests. A request
//! in both appears once, as a failure with the ledger's figures. A page reads at most [`WINDOWS`] windows of each source,
//! so a filter that excludes most requests makes the page short.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;
use weir_accounts::billing::content::{self, RequestContent};
use weir_accounts::billing::history::{DAY_MS, check_span, count_of, explanation, moment};
use weir_app::App;
use weir_errors::{ApiError, ErrorCode};
use weir_identity::admin::AdminCaller;
use weir_identity::directory::{self, KeyName};
use weir_identity::store::find_key;
use weir_ledger::store::history::{EndedRequest, RequestFilter};
use weir_ledger::{AccountId, Credits, HoldState, LedgerStore, RequestSource};
use weir_request::csv_export::{self, CsvLines};
use weir_request::failed_requests::store::{self as failures, FailureFilter, FailurePlace};
use weir_request::failed_requests::{FailedAttempt, FailedRequest, FailedRequests, JoinedFailure};
use weir_request::query::ListQuery;
use weir_request::schemas;
use weir_request::schemas::parameters::Limit;
use weir_storage::Database;
use weir_storage::clock::Millis;
use weir_storage::ids;

/// Windows of each source that a page reads.
const WINDOWS: usize = 10;

/// Requests per read of a complete table.
const READ_AT_ONCE: usize = 500;

/// A position behind all entries of the ledger. It has as many digits as a position may have.
const END: i64 = 999_999_999_999_999_999;

const HEADINGS: &str = "id,at,status,code,http_status,account_id,user_id,key_id,project_id,task_id,source,model,provider,\
                        adapter_digest,earlier_providers,latency_ms,attempts,tokens_input,tokens_cache_read,tokens_cache_write,\
                        tokens_output,images,held_credits,credits,trace_id,unit,quantity,param,limit,message,failed_attempts";

/// A completed request of an account.
#[derive(Debug, Serialize, ToSchema)]
pub struct AdminRequestItem {
    /// The request's id, as in the log.
    pub id: String,
    /// The time of its end.
    pub at: String,
    /// `succeeded` or `failed`.
    pub status: &'static str,
    /// The code of the error; null if the request succeeded, or weir has no record of its failure.
    pub code: Option<String>,
    /// The HTTP status of a failed request; null if the client had disconnected.
    pub http_status: Option<i64>,
    /// The account: a user's personal one, or an organisation.
    pub account_id: String,
    /// The sender of a failed request: a person or a service account.
    pub user_id: Option<String>,
    /// The request's key, if known.
    pub key_id: Option<String>,
    /// The project of a failed request's key.
    pub project_id: Option<String>,
    /// The request's task, if given.
    pub task_id: Option<String>,
    /// `api_key`, `web` or `agent`; null if the request failed before weir held credits.
    pub source: Option<&'static str>,
    /// The model's id; null if the requested one does not exist.
    pub model: Option<String>,
    /// The provider that served the request, or that was working when it failed; null without one.
    pub provider: Option<String>,
    /// The digest of the component that served the request, or that was working when it failed; null without one.
    pub adapter_digest: Option<String>,
    /// The providers of earlier attempts of a failed request.
    pub earlier_providers: Vec<String>,
    /// Milliseconds from the request to its end.
    pub latency_ms: Option<i64>,
    /// Number of attempts at providers.
    pub attempts: Option<i64>,
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
    /// The credits that weir held for the request; null if it failed before.
    #[schema(value_type = Option<f64>)]
    pub held_credits: Option<Credits>,
    /// Credits charged.
    #[schema(value_type = f64)]
    pub credits: Credits,
    /// The trace of a failed request.
    pub trace_id: Option<String>,
    /// The path of the wrong field of a failed request; null if no field was wrong.
    pub param: Option<String>,
    /// The budget or the limit that a failed request reached, such as `budget/key/day`, `rate/account/requests`,
    /// `credits` or `concurrency`; null for other errors.
    pub limit: Option<String>,
    /// weir's message about the error, without the text of a provider.
    pub message: Option<String>,
    /// The failed attempts at providers of a failed request: the last 8.
    pub failed_attempts: Vec<FailedAttempt>,
}

/// A page of the requests of everybody.
#[derive(Debug, Serialize, ToSchema)]
pub struct AdminRequestList {
    /// Requests, the last to end first. A page may be short although there is a next one.
    pub requests: Vec<AdminRequestItem>,
    /// The `before` of the next page; null on the last page.
    pub next: Option<String>,
    /// The failed requests of the account in the period that have no record, because there were more than 20 in a
    /// minute; null without `user` or `organisation`.
    pub unrecorded: Option<i64>,
}

/// `GET /admin/requests`: the completed requests of all accounts, the last to end first, as JSON or CSV. Failed ones are
/// listed with their error for 30 days, at most 20 for each account and minute.
#[utoipa::path(
    get, path = "/admin/requests", tag = "administration",
    operation_id = "list_all_requests",
    params(
        Limit,
        ("before" = Option<String>, Query, description = "The `next` of the previous page; this page has older items.", pattern = r"^(-|-?[0-9]{1,18})\.(-|[0-9]{1,18}\.[a-z0-9_]{0,64})$", nullable = false),
        ("status" = Option<String>, Query, description = "Only requests that `succeeded`, or those with the record of an error: `failed`.", pattern = "^(succeeded|failed)$", nullable = false),
        ("error" = Option<String>, Query, description = "Only failed requests with this code.", nullable = false),
        ("provider" = Option<String>, Query, description = "Only requests whose last attempt was at this provider.", nullable = false),
        ("model" = Option<String>, Query, description = "Only requests of this model, by its id.", nullable = false),
        ("user" = Option<String>, Query, description = "Only requests of this user's personal account.", nullable = false),
        ("organisation" = Option<String>, Query, description = "Only requests of this organisation.", nullable = false),
        ("key" = Option<String>, Query, description = "Only requests with this key, by its id.", nullable = false),
        ("from" = Option<String>, Query, description = "First day in UTC, or first moment, such as `2026-01-31T12:00:00Z`.", format = Date, nullable = false),
        ("to" = Option<String>, Query, description = "Last day in UTC, or last moment.", format = Date, nullable = false),
        ("id" = Option<String>, Query, description = "Only the request with this id.", nullable = false),
    ),
    responses(
        (status = 200, content((AdminRequestList = "application/json"), (String = "text/csv"))),
    ),
)]
pub async fn list_requests(
    State(app): State<App>,
    admin: AdminCaller,
    headers: HeaderMap,
    query: ListQuery,
) -> Result<Response, ApiError> {
    if !csv_export::is_wanted(&headers) {
        return Ok(Json(list(&app, query).await?).into_response());
    }
    let listing = Listing::of(&app, query, ListKind::Table).await?;
    let place = app.exports.begin(admin.actor.as_str())?;
    let lines = stream::try_unfold(Some(listing), async |listing| {
        let Some(mut listing) = listing else {
            return Ok(None);
        };
        let mut lines = CsvLines::default();
        for request in listing.read(READ_AT_ONCE).await? {
            let cells = request.cells();
            lines.add(cells.iter().map(String::as_str));
        }
        let has_more = listing.place.next().is_some();
        Ok(Some((lines.finish(), has_more.then_some(listing))))
    });
    let headings = CsvLines::of(HEADINGS);
    csv_export::attachment(place, "requests.csv", headings, lines).await
}

/// `GET /admin/requests/{request_id}/content`: the prompt and the response of a request whose key or organisation chose to
/// store them. weir records who sees them.
#[utoipa::path(
    get, path = "/admin/requests/{request_id}/content", tag = "administration",
    operation_id = "get_any_request_content",
    params(("request_id" = String, Path, description = "The request's id.")),
    responses(
        (status = 200, body = RequestContent),
        (status = 404, description = "`UNKNOWN_REQUEST`: weir stores no prompt and response of a request with this id."),
    ),
)]
pub async fn get_request_content(
    State(app): State<App>,
    admin: AdminCaller,
    Path(request_id): Path<String>,
) -> Result<Json<RequestContent>, ApiError> {
    let log = app.content_log.as_deref();
    let stored = content::find_any(log, &request_id).await?;
    content::view(log, &app.audit, &admin.actor, stored).map(Json)
}

/// Returns a page of the requests of everybody.
pub async fn list(app: &App, query: ListQuery) -> Result<AdminRequestList, ApiError> {
    let mut listing = Listing::of(app, query, ListKind::Page).await?;
    let limit = listing.limit;
    let requests = listing.read(limit).await.map_err(failed)?;
    let unrecorded = listing.count_unrecorded().await.map_err(failed)?;
    Ok(AdminRequestList {
        requests,
        next: listing.place.next(),
        unrecorded,
    })
}

/// Returns a request of any account; 404 if it is unknown, in progress or archived.
pub async fn find(app: &App, id: &str) -> Result<AdminRequestItem, ApiError> {
    let mut query = ListQuery::from([]);
    query.set("id", id.to_owned());
    let found = list(app, query).await?.requests.pop();
    found.ok_or_else(|| {
        let what = "No completed request has this id; archived requests are not available.";
        ApiError::new(ErrorCode::UnknownRequest, what)
    })
}

/// The form of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListKind {
    Page,
    /// All requests.
    Table,
}

/// A filtered list of requests, and the position of its next page.
struct Listing {
    database: Database,
    failures: Arc<FailedRequests>,
    limit: usize,
    id: Option<String>,
    is_failed: Option<bool>,
    filter: FailureFilter,
    to: Option<Millis>,
    /// The hashes of the wanted key.
    key_hashes: Option<Vec<String>>,
    place: Place,
}

/// The position of a page in each source; `None` behind the source's last request.
struct Place {
    /// The number of an entry, or its position among its account's entries.
    ledger: Option<i64>,
    failures: Option<FailurePlace>,
}

/// Items of a source, each with its time and position, and the position behind them.
struct Window<P> {
    items: VecDeque<(Millis, P, AdminRequestItem)>,
    next: Option<P>,
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let (ledger, failures) = text.split_once('.')?;
        let number = |text: &str| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let is_short = (1..=18).contains(&digits.len());
            let is_number = is_short && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<i64>().ok()).flatten()
        };
        Some(Self {
            ledger: match ledger {
                "-" => None,
                text => Some(number(text)?),
            },
            failures: match failures {
                "-" => None,
                text => Some(failures::parse_place(text)?),
            },
        })
    }

    /// Returns the text of a position before the end.
    fn next(&self) -> Option<String> {
        let ledger = self
            .ledger
            .map_or("-".to_owned(), |number| number.to_string());
        match &self.failures {
            None if self.ledger.is_none() => None,
            None => Some(format!("{ledger}.-")),
            Some(place) => Some(format!("{ledger}.{}", failures::place_text(place))),
        }
    }
}

impl Listing {
    /// Reads the query of a list, after all failures so far are stored.
    async fn of(app: &App, mut query: ListQuery, kind: ListKind) -> Result<Self, ApiError> {
        let (limit, before) = match kind {
            ListKind::Page => (query.limit()?, query.text("before")?),
            ListKind::Table => (0, None),
        };
        let is_failed = match query.text("status")?.as_deref() {
            None => None,
            Some("succeeded") => Some(false),
            Some("failed") => Some(true),
            Some(_) => {
                let what = "The status must be succeeded or failed.";
                return Err(ApiError::invalid_request("status", what));
            }
        };
        let mut place = Place {
            ledger: Some(END),
            failures: Some(failures::behind_all()),
        };
        if let Some(before) = before {
            let what = "The value must be the `next` of the previous page.";
            let before = Place::parse(&before);
            place = before.ok_or_else(|| ApiError::invalid_request("before", what))?;
        }
        let (user, organisation) = (query.text("user")?, query.text("organisation")?);
        let mut listing = Self {
            database: app.database.clone(),
            failures: app.failed_requests.clone(),
            limit: limit as usize,
            id: query.text("id")?,
            is_failed,
            filter: FailureFilter {
                account: user.clone().or(organisation.clone()),
                key: query.text("key")?,
                code: query.text("error")?,
                provider: query.text("provider")?,
                model: query.text("model")?,
                from: moment(&mut query, "from", 0)?,
            },
            to: moment(&mut query, "to", DAY_MS)?,
            key_hashes: None,
            place,
        };
        query.finish()?;
        check_span(listing.filter.from, listing.to)?;
        let is_of_two = user.is_some() && organisation.is_some() && user != organisation;
        if is_of_two || listing.has_odd_text() {
            listing.place = Place {
                ledger: None,
                failures: None,
            };
            listing.id = None;
            return Ok(listing);
        }
        if listing.filter.code.is_some() || is_failed == Some(true) {
            listing.place.ledger = None;
        }
        if is_failed == Some(false) {
            listing.place.failures = None;
        }
        listing.find_key().await.map_err(failed)?;
        // The list includes failures that are not written yet.
        app.failed_requests.flush().await;
        Ok(listing)
    }

    /// Returns the number of failures of the wanted account that have no record.
    async fn count_unrecorded(&self) -> sqlx::Result<Option<i64>> {
        let Some(account) = self
            .filter
            .account
            .as_ref()
            .filter(|_| !self.has_odd_text())
        else {
            return Ok(None);
        };
        let (from, to) = (self.filter.from, self.to);
        let count = self.failures.count_unrecorded(account, from, to).await?;
        Ok(Some(count))
    }

    /// Whether a text of the filter has a character that no stored text has. PostgreSQL would reject some.
    fn has_odd_text(&self) -> bool {
        let FailureFilter {
            account,
            key,
            code,
            provider,
            model,
            from: _,
        } = &self.filter;
        let texts = [account, key, code, provider, model, &self.id];
        let mut texts = texts.into_iter().flatten();
        texts.any(|text| text.contains(char::is_control))
    }

    /// Finds the account and the hashes of the wanted key. The ledger has no requests with an unknown one.
    async fn find_key(&mut self) -> sqlx::Result<()> {
        let Some(key) = &self.filter.key else {
            return Ok(());
        };
        let account = find_key(&self.database, key)
            .await?
            .map(|key| key.account_id);
        let Some(account) = account else {
            self.place.ledger = None;
            return Ok(());
        };
        let hashes = directory::find_hashes(&self.database, &account, key).await?;
        self.key_hashes = Some(hashes);
        match &self.filter.account {
            Some(wanted) if *wanted != account => self.place.ledger = None,
            _ => self.filter.account = Some(account),
        }
        Ok(())
    }

    /// Reads up to `limit` requests, and moves the position behind them.
    async fn read(&mut self, limit: usize) -> sqlx::Result<Vec<AdminRequestItem>> {
        if let Some(id) = self.id.clone() {
            self.place = Place {
                ledger: None,
                failures: None,
            };
            return self.find(&id).await;
        }
        let mut found = Vec::new();
        let mut ledger = Window {
            items: VecDeque::new(),
            next: self.place.ledger,
        };
        let mut failed = Window {
            items: VecDeque::new(),
            next: self.place.failures.clone(),
        };
        for _ in 0..WINDOWS {
            if ledger.items.is_empty()
                && let Some(before) = ledger.next
            {
                ledger = self.read_ledger(before, limit).await?;
            }
            if failed.items.is_empty()
                && let Some(before) = failed.next.take()
            {
                failed = self.read_failures(&before, limit).await?;
            }
            while found.len() < limit {
                let is_of_ledger = match (ledger.items.front(), failed.items.front()) {
                    (Some(one), Some(other)) => one.0 > other.0,
                    (Some(_), None) if failed.next.is_none() => true,
                    (None, Some(_)) if ledger.next.is_none() => false,
                    _ => break,
                };
                if is_of_ledger {
                    found.extend(ledger.items.pop_front().map(|(_, number, item)| {
                        self.place.ledger = Some(number);
                        item
                    }));
                } else {
                    found.extend(failed.items.pop_front().map(|(_, place, item)| {
                        self.place.failures = Some(place);
                        item
                    }));
                }
            }
            // Without a remaining item, the next page begins behind the window.
            if ledger.items.is_empty() {
                self.place.ledger = ledger.next;
            }
            if failed.items.is_empty() {
                self.place.failures.clone_from(&failed.next);
            }
            let is_over = self.place.ledger.is_none() && self.place.failures.is_none();
            if found.len() >= limit || is_over {
                break;
            }
        }
        Ok(found)
    }

    /// Reads completed requests without a recorded failure.
    async fn read_ledger(&self, before: i64, limit: usize) -> sqlx::Result<Window<i64>> {
        let store = LedgerStore::new(self.database.clone());
        let filter = RequestFilter {
            key_hashes: self.key_hashes.clone(),
            model: self.filter.model.clone(),
            provider: self.filter.provider.clone(),
            from: self.filter.from,
            to: self.to,
            before: (before != END).then_some(before),
        };
        let page = match &self.filter.account {
            Some(account) => {
                let account = AccountId(account.clone());
                store
                    .list_requests(&account, &filter, number(limit))
                    .await?
            }
            None => store.list_requests_of_all(&filter).await?,
        };
        let ids: Vec<_> = page
            .requests
            .iter()
            .map(|request| &*request.request_id)
            .collect();
        let recorded = self.failures.find(&ids).await?;
        let mut ended = page.requests;
        ended.retain(|request| {
            let is_served = request.state == HoldState::Settled;
            !recorded.contains_key(&request.request_id) && (self.is_failed.is_none() || is_served)
        });
        let places = ended.iter().map(|request| {
            let place = match self.filter.account {
                Some(_) => request.sequence,
                None => request.number,
            };
            (request.at, place)
        });
        let places: Vec<_> = places.collect();
        let items = ended.into_iter().map(|ended| (None, Some(ended)));
        let items = self.items(items.collect()).await?;
        let items = places.into_iter().zip(items);
        Ok(Window {
            items: items.map(|((at, place), item)| (at, place, item)).collect(),
            next: page.next,
        })
    }

    /// Reads failures, with the figures of the ledger.
    async fn read_failures(
        &self,
        before: &FailurePlace,
        limit: usize,
    ) -> sqlx::Result<Window<FailurePlace>> {
        let list = self
            .failures
            .list_joined(&self.filter, self.to, before, number(limit));
        let (joined, next) = list.await?;
        let places: Vec<_> = joined
            .iter()
            .map(|(failure, _)| failures::place(failure))
            .collect();
        let items = self.items_of_failures(joined).await?;
        let items = places.into_iter().zip(items);
        Ok(Window {
            items: items
                .map(|(place, item)| (Millis(place.0), place, item))
                .collect(),
            next,
        })
    }

    /// Returns the request with an id, if it matches.
    async fn find(&self, id: &str) -> sqlx::Result<Vec<AdminRequestItem>> {
        let recorded = self.failures.find(&[id]).await?;
        let items = match recorded.into_values().next() {
            Some(failure) => {
                let joined = self.failures.join(vec![failure]).await?;
                self.items_of_failures(joined).await?
            }
            None => {
                let hold = ids::hold_of_request(id);
                let store = LedgerStore::new(self.database.clone());
                let found = store.find_requests(&Vec::from_iter(hold)).await?;
                let items = found.into_iter().map(|ended| (None, Some(ended)));
                self.items(items.collect()).await?
            }
        };
        Ok(items
            .into_iter()
            .filter(|item| self.matches(item))
            .collect())
    }

    fn matches(&self, item: &AdminRequestItem) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == found
        };
        let at = Millis::parse(&item.at);
        let is_failed = item.status == FAILED;
        self.is_failed.is_none_or(|wanted| wanted == is_failed)
            && is(&self.filter.account, Some(&item.account_id))
            && is(&self.filter.key, item.key_id.as_deref())
            && is(&self.filter.code, item.code.as_deref())
            && is(&self.filter.provider, item.provider.as_deref())
            && is(&self.filter.model, item.model.as_deref())
            && self.filter.from.is_none_or(|from| at >= Some(from))
            && self.to.is_none_or(|to| at < Some(to))
    }

    async fn items_of_failures(
        &self,
        joined: Vec<JoinedFailure>,
    ) -> sqlx::Result<Vec<AdminRequestItem>> {
        let both = joined.into_iter();
        let both = both.map(|(failure, ended)| (Some(failure), ended));
        self.items(both.collect()).await
    }

    async fn items(
        &self,
        requests: Vec<(Option<FailedRequest>, Option<EndedRequest>)>,
    ) -> sqlx::Result<Vec<AdminRequestItem>> {
        let ended = requests.iter().filter_map(|(_, ended)| ended.as_ref());
        let with_key = ended.filter(|ended| ended.source == RequestSource::ApiKey);
        let hashes = with_key.filter_map(|ended| ended.source_id.clone());
        let mut hashes: Vec<_> = hashes.collect();
        hashes.sort();
        hashes.dedup();
        let keys = match hashes.is_empty() {
            true => BTreeMap::new(),
            false => directory::name_keys(&self.database, None, &hashes).await?,
        };
        let requests = requests.into_iter();
        Ok(requests
            .filter_map(|(failure, ended)| item(failure, ended, &keys))
            .collect())
    }
}

const FAILED: &str = "failed";

/// Returns the item of a request from at least one of its two records.
fn item(
    failure: Option<FailedRequest>,
    ended: Option<EndedRequest>,
    keys: &BTreeMap<String, KeyName>,
) -> Option<AdminRequestItem> {
    let source = ended.as_ref().map(|ended| ended.source);
    let source_id = ended.as_ref().and_then(|ended| ended.source_id.as_ref());
    let key = source_id.and_then(|hash| keys.get(hash));
    let task_id = source_id.filter(|_| source == Some(RequestSource::Agent));
    let (counts, quantity) = ended
        .as_ref()
        .map(|ended| (ended.counts, ended.quantity))
        .unwrap_or_default();
    let is_served = ended
        .as_ref()
        .is_some_and(|ended| ended.state == HoldState::Settled);
    let of_ledger = AdminRequestItem {
        id: String::new(),
        at: String::new(),
        status: if is_served { "succeeded" } else { FAILED },
        code: None,
        http_status: None,
        account_id: String::new(),
        user_id: None,
        key_id: key.map(|key| key.id.clone()),
        project_id: None,
        task_id: task_id.cloned(),
        source: source.map(RequestSource::name),
        model: None,
        provider: None,
        adapter_digest: None,
        earlier_providers: Vec::new(),
        latency_ms: None,
        attempts: None,
        tokens_input: counts.tokens_input,
        tokens_cache_read: counts.tokens_cache_read,
        tokens_cache_write: counts.tokens_cache_write,
        tokens_output: counts.tokens_output,
        images: counts.images,
        unit: quantity.unit_name(),
        quantity: count_of(quantity),
        held_credits: ended.as_ref().and_then(|ended| ended.held),
        credits: ended.as_ref().map_or(Credits::ZERO, |ended| ended.credits),
        trace_id: None,
        param: None,
        limit: None,
        message: None,
        failed_attempts: Vec::new(),
    };
    match (failure, ended) {
        (Some(failure), _) => Some(AdminRequestItem {
            id: failure.request_id,
            at: failure.at.iso(),
            status: FAILED,
            code: Some(failure.code),
            http_status: failure.status,
            account_id: failure.account_id,
            user_id: Some(failure.user_id),
            key_id: failure.key_id.or(of_ledger.key_id),
            project_id: failure.project_id,
            model: failure.model,
            provider: failure.provider,
            adapter_digest: failure.adapter_digest,
            earlier_providers: failure.earlier_providers,
            latency_ms: Some(failure.latency_ms),
            attempts: Some(failure.attempts),
            trace_id: failure.trace_id,
            param: failure.error.param,
            limit: failure.error.limit,
            message: failure.error.message,
            failed_attempts: failure.failed_attempts,
            ..of_ledger
        }),
        (None, Some(ended)) => Some(AdminRequestItem {
            id: ended.request_id,
            at: ended.at.iso(),
            account_id: ended.account.0,
            model: Some(ended.model),
            provider: ended.provider,
            adapter_digest: ended.adapter_digest.filter(|digest| !digest.is_empty()),
            latency_ms: ended.latency_ms,
            attempts: ended.attempts,
            ..of_ledger
        }),
        (None, None) => None,
    }
}

impl AdminRequestItem {
    /// The documented meaning of its error, and the advice for the client.
    pub fn explanation(&self) -> Option<(&'static str, &'static str)> {
        explanation(self.code.as_deref()?)
    }

    /// Returns the request's cells in a table, in the order of [`HEADINGS`].
    fn cells(&self) -> [String; 31] {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let number =
            |number: Option<i64>| number.map_or(String::new(), |number| number.to_string());
        [
            self.id.clone(),
            self.at.clone(),
            self.status.to_owned(),
            text(&self.code),
            number(self.http_status),
            self.account_id.clone(),
            text(&self.user_id),
            text(&self.key_id),
            text(&self.project_id),
            text(&self.task_id),
            self.source.unwrap_or_default().to_owned(),
            text(&self.model),
            text(&self.provider),
            text(&self.adapter_digest),
            self.earlier_providers.join(" "),
            number(self.latency_ms),
            number(self.attempts),
            self.tokens_input.to_string(),
            self.tokens_cache_read.to_string(),
            self.tokens_cache_write.to_string(),
            self.tokens_output.to_string(),
            self.images.to_string(),
            self.held_credits
                .map_or(String::new(), |held| held.to_string()),
            self.credits.to_string(),
            text(&self.trace_id),
            self.unit.unwrap_or_default().to_owned(),
            number(self.quantity),
            text(&self.param),
            text(&self.limit),
            text(&self.message),
            self.failed_attempts_text(),
        ]
    }

    /// Returns the failed attempts as one text, such as `openai#2 429 rate_limited: Too many | openai#1 connect`.
    fn failed_attempts_text(&self) -> String {
        let attempts = self.failed_attempts.iter().map(|attempt| {
            let FailedAttempt {
                provider,
                credential,
                status,
                error,
                text,
            } = attempt;
            let credential = credential.map_or(String::new(), |number| format!("#{number}"));
            let status = status.map_or(String::new(), |status| format!("{status} "));
            let text = text
                .as_ref()
                .map_or(String::new(), |text| format!(": {text}"));
            format!("{provider}{credential} {status}{error}{text}")
        });
        attempts.collect::<Vec<_>>().join(" | ")
    }
}

fn number(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "asked for the requests of everybody")
}
