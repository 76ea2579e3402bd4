//! `/admin/overview`: requests, errors, times, tokens and spend of the last hours or days, and the gateway's present state.
//!
//! The figures are those of [`weir_request::traffic`], from all nodes. The state of breakers and the queue are this node's.

use std::collections::{BTreeMap, HashMap};

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use weir_app::App;
use weir_catalog::end_date::EndDate;
use weir_catalog::{Catalog, PoolMember};
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_ledger::Credits;
use weir_request::query::ListQuery;
use weir_request::traffic::TrafficSums;
use weir_request::traffic::store::{self as traffic, Dimension, Step, TrafficFilter};
use weir_storage::background::WorkStatus;
use weir_storage::clock::Millis;
use weir_upstream::breaker::{BreakerReading, BreakerStatus};

use super::store;
use super::tight_budgets::{self, TightBudget};

/// Maximum number of groups.
const GROUPS: u32 = 20;

/// The failures in a row from which a provider is failing.
const FAILING: u32 = 3;

/// The periods: name, step and number of steps.
const PERIODS: [(&str, Step, i64); 3] = [
    ("24h", Step::Hour, 24),
    ("7d", Step::Day, 7),
    ("30d", Step::Day, 30),
];

/// The dimensions of groups.
const DIMENSIONS: [(&str, Dimension); 5] = [
    ("provider", Dimension::Provider),
    ("model", Dimension::Model),
    ("key", Dimension::Key),
    ("account", Dimension::Account),
    ("organisation", Dimension::Organisation),
];

/// The response of `GET /admin/overview`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OperatorOverview)]
pub struct Overview {
    /// `24h`, `7d` or `30d`.
    pub period: &'static str,
    /// The first moment of the period, in ISO 8601.
    pub from: String,
    /// The moment of the response.
    pub to: String,
    /// `hour` or `day`; days are in UTC.
    pub step: &'static str,
    /// The dimension of `groups`: `provider`, `model`, `key`, `account` or `organisation`.
    pub group: &'static str,
    /// The figures of the period.
    pub total: OverviewFigures,
    /// The figures of each step, the first one first.
    pub series: Vec<OverviewStep>,
    /// The figures of at most 20 groups: the providers or models with the most requests, or the others with the most spend.
    pub groups: Vec<OverviewGroup>,
    /// The providers of the catalog, by name, as this node sees them.
    pub providers: Vec<ProviderHealth>,
    /// This node's queue.
    pub queue: QueueState,
    /// The work that this node repeats in the background, by name.
    pub background: Vec<BackgroundWork>,
    /// Models that have ended or end within 60 days, the first to end first.
    pub ending_models: Vec<EndingModel>,
    /// At most 20 budgets with at most a fifth left, and budgets of accounts whose requests they rejected within 24 hours; the
    /// most used ones first.
    pub tight_budgets: Vec<TightBudget>,
}

/// Figures of model requests of known accounts. Requests that fail before weir knows their account do not count.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OverviewFigures {
    /// Ended requests, including failed ones.
    pub requests: i64,
    /// Errors that clients caused, such as invalid requests, missing credits and exceeded rates.
    pub client_errors: i64,
    /// Requests that failed because of their provider.
    pub provider_errors: i64,
    /// Requests that failed because of the gateway, such as overload.
    pub gateway_errors: i64,
    /// Charged tokens of input.
    pub tokens_input: i64,
    /// Charged tokens of output.
    pub tokens_output: i64,
    /// Charged credits, before any refund.
    #[schema(value_type = f64)]
    pub credits: Credits,
    /// Median time from the request to the first token of a stream; null without streams.
    pub first_token_p50_ms: Option<i64>,
    /// 95th percentile of that time.
    pub first_token_p95_ms: Option<i64>,
    /// Median time from the request to the end of its response; null without successful requests.
    pub total_p50_ms: Option<i64>,
    /// 95th percentile of that time.
    pub total_p95_ms: Option<i64>,
}

/// A step of the time series.
#[derive(Debug, Serialize, ToSchema)]
pub struct OverviewStep {
    /// The first moment of the step, in ISO 8601.
    pub at: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: OverviewFigures,
}

/// The requests of one model, provider, key, account or organisation.
#[derive(Debug, Serialize, ToSchema)]
pub struct OverviewGroup {
    /// The provider, the model, or the id of the key, account or organisation; empty for requests without one.
    pub id: String,
    /// The name of the key or account, if it has one.
    pub name: Option<String>,
    /// The figures.
    #[serde(flatten)]
    pub figures: OverviewFigures,
}

/// A provider and its health.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProviderHealth {
    /// The provider's name.
    pub name: String,
    /// The slot of its adapter.
    pub adapter: String,
    /// The number of its credentials.
    pub credentials: usize,
    /// `working`; `failing` if a model's last three attempts failed; `degraded` if some of its breakers are not closed, or
    /// open for an account; `refused` if the provider refuses the credentials of all models; `unavailable` if all breakers
    /// are open.
    pub state: &'static str,
    /// The breakers of each model with each credential.
    pub breakers: Vec<BreakerItem>,
}

/// A circuit breaker.
#[derive(Debug, Serialize, ToSchema)]
pub struct BreakerItem {
    /// The name in the metrics.
    pub upstream: String,
    /// The model's name at the provider.
    pub model: String,
    /// The place of the credential in the provider's list; 1 is the first.
    pub credential: usize,
    /// `closed`; `open` if the upstream gets no requests; `half_open` if one request probes it; `resting` if it limits
    /// the rate, or `refused` if it refuses the credential, and is tried last.
    pub state: &'static str,
    /// Seconds until an open breaker lets a request through, until a resting upstream is no longer tried last, or until a
    /// request probes a refused credential.
    pub seconds_left: Option<u64>,
    /// Failures in a row.
    pub failures: u32,
    /// Accounts for which alone the breaker is open.
    pub open_accounts: usize,
}

/// The queue of a node.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueueState {
    /// Requests in progress.
    pub in_progress: usize,
    /// Requests that wait for their turn.
    pub waiting: u32,
}

/// Work that a node repeats in the background.
#[derive(Debug, Serialize, ToSchema)]
pub struct BackgroundWork {
    /// The work, such as `remove expired sessions`.
    pub name: &'static str,
    /// The pause between two runs.
    pub every_ms: u64,
    /// The moment of the last success, in ISO 8601; null before the first.
    pub last_success_at: Option<String>,
    /// The failures since then.
    pub failures: u64,
}

impl From<WorkStatus> for BackgroundWork {
    fn from(status: WorkStatus) -> Self {
        Self {
            name: status.name,
            every_ms: u64::try_from(status.every.as_millis()).unwrap_or(u64::MAX),
            last_success_at: status.last_success.map(|at| at.iso()),
            failures: status.failures_in_a_row,
        }
    }
}

/// A model that has ended or ends within 60 days.
#[derive(Debug, Serialize, ToSchema)]
pub struct EndingModel {
    /// The model's id.
    pub id: String,
    /// The day on which its provider ends it.
    #[schema(value_type = String, format = Date)]
    pub ends_on: EndDate,
    /// The end in words.
    pub warning: String,
}

/// `GET /admin/overview`: the figures of model requests by hour or day, the state of providers and of this node's queue, and
/// models that end soon. weir stores these figures for 35 days.
#[utoipa::path(
    get, path = "/admin/overview", tag = "administration",
    params(
        ("period" = Option<String>, Query, description = "The last 24 hours by hour, or the last 7 or 30 days by day. Default: `24h`.", pattern = "^(24h|7d|30d)$", nullable = false),
        ("group" = Option<String>, Query, description = "The dimension of `groups`: `provider`, `model`, `key`, `account` or `organisation`. Default: `provider`.", pattern = "^(provider|model|key|account|organisation)$", nullable = false),
        ("provider" = Option<String>, Query, description = "Only requests whose last attempt was at this provider.", nullable = false),
        ("model" = Option<String>, Query, description = "Only requests of this model, by its id.", nullable = false),
        ("key" = Option<String>, Query, description = "Only requests with this key, by its id.", nullable = false),
        ("account" = Option<String>, Query, description = "Only requests of this account, by its id: a user's personal one, or an organisation.", nullable = false),
    ),
    responses((status = 200, body = Overview)),
)]
pub async fn get_overview(
    State(app): State<App>,
    _: AdminCaller,
    query: ListQuery,
) -> Result<Json<Overview>, ApiError> {
    Ok(Json(overview(&app, query).await?))
}

/// Returns the overview of a query.
pub async fn overview(app: &App, mut query: ListQuery) -> Result<Overview, ApiError> {
    let (period, step, steps) = named(&mut query, "period", |name| {
        PERIODS.into_iter().find(|(known, ..)| *known == name)
    })?
    .unwrap_or(PERIODS[0]);
    let (group, by) = named(&mut query, "group", |name| {
        DIMENSIONS.into_iter().find(|(known, _)| *known == name)
    })?
    .unwrap_or(DIMENSIONS[0]);
    let filter = TrafficFilter {
        provider: query.text("provider")?,
        model: query.text("model")?,
        key: query.text("key")?,
        account: query.text("account")?,
    };
    query.finish()?;
    let now = app.clock.now();
    let last = now.0 - now.0.rem_euclid(step.ms());
    let from = Millis(last - (steps - 1) * step.ms());
    // The figures include requests of this node that are not written yet.
    app.traffic.flush().await;
    let (series, groups) = store::in_time(async {
        let series = traffic::series(&app.database, &filter, from, step).await?;
        let groups = traffic::groups(&app.database, &filter, from, by, GROUPS).await?;
        let groups = with_names(app, by, groups).await?;
        Ok((series, groups))
    })
    .await
    .map_err(|error| ApiError::of_database(&error, "asked for the overview"))?;
    let tight_budgets = tight_budgets::list(app, now).await?;
    let mut total = TrafficSums::default();
    for (_, sums) in &series {
        total.add(sums);
    }
    let series: HashMap<_, _> = series.into_iter().collect();
    let at = (0..steps).map(|index| Millis(from.0 + index * step.ms()));
    let catalog = app.catalog.load();
    Ok(Overview {
        period,
        from: from.iso(),
        to: now.iso(),
        step: match step {
            Step::Hour => "hour",
            Step::Day => "day",
        },
        group,
        total: OverviewFigures::of(&total),
        series: at
            .map(|at| OverviewStep {
                at: at.iso(),
                figures: OverviewFigures::of(series.get(&at).unwrap_or(&TrafficSums::default())),
            })
            .collect(),
        groups,
        providers: providers(app, &catalog),
        queue: QueueState {
            in_progress: app.admission.in_progress(),
            waiting: app.admission.queued(),
        },
        background: app.background_work().into_iter().map(Into::into).collect(),
        ending_models: ending_models(&catalog, now),
        tight_budgets,
    })
}

/// Takes a parameter with one of some values.
fn named<T>(
    query: &mut ListQuery,
    name: &'static str,
    find: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ApiError> {
    let Some(text) = query.text(name)? else {
        return Ok(None);
    };
    let what = match name {
        "period" => "The period must be 24h, 7d or 30d.",
        _ => "The group must be provider, model, key, account or organisation.",
    };
    let found = find(&text).ok_or_else(|| ApiError::invalid_request(name, what))?;
    Ok(Some(found))
}

async fn with_names(
    app: &App,
    by: Dimension,
    groups: Vec<(String, TrafficSums)>,
) -> sqlx::Result<Vec<OverviewGroup>> {
    let ids: Vec<_> = groups.iter().map(|(id, _)| &**id).collect();
    let mut names = match by {
        Dimension::Key => store::key_names(&app.database, &ids).await?,
        Dimension::Account | Dimension::Organisation => {
            store::account_names(&app.database, &ids).await?
        }
        Dimension::Provider | Dimension::Model => HashMap::new(),
    };
    let groups = groups.into_iter().map(|(id, sums)| OverviewGroup {
        name: names.remove(&id),
        figures: OverviewFigures::of(&sums),
        id,
    });
    Ok(groups.collect())
}

impl OverviewFigures {
    fn of(sums: &TrafficSums) -> Self {
        Self {
            requests: sums.requests,
            client_errors: sums.client_errors,
            provider_errors: sums.provider_errors,
            gateway_errors: sums.gateway_errors,
            tokens_input: sums.tokens_input,
            tokens_output: sums.tokens_output,
            credits: sums.credits,
            first_token_p50_ms: sums.first_token.quantile(0.5),
            first_token_p95_ms: sums.first_token.quantile(0.95),
            total_p50_ms: sums.total.quantile(0.5),
            total_p95_ms: sums.total.quantile(0.95),
        }
    }
}

fn providers(app: &App, catalog: &Catalog) -> Vec<ProviderHealth> {
    let mut providers = BTreeMap::<&str, ProviderHealth>::new();
    for candidate in catalog.candidates() {
        let upstream = candidate.upstream();
        let provider = providers
            .entry(&*upstream.name)
            .or_insert_with(|| ProviderHealth {
                name: upstream.name.to_string(),
                adapter: upstream.adapter.to_string(),
                credentials: candidate.pool.len(),
                state: "working",
                breakers: Vec::new(),
            });
        for member in &candidate.pool {
            // Several models may be one model there.
            let is_known = |breaker: &BreakerItem| breaker.upstream == *member.key;
            if !provider.breakers.iter().any(is_known) {
                let reading = app.inference.routing.breakers.reading(&member.key);
                let item = BreakerItem::of(member, &candidate.model, reading);
                provider.breakers.push(item);
            }
        }
    }
    providers
        .into_values()
        .map(ProviderHealth::judged)
        .collect()
}

impl ProviderHealth {
    fn judged(mut self) -> Self {
        self.breakers
            .sort_by(|a, b| (&a.model, a.credential).cmp(&(&b.model, b.credential)));
        let is_closed =
            |breaker: &BreakerItem| breaker.state == "closed" && breaker.open_accounts == 0;
        let is_open = |breaker: &BreakerItem| breaker.state == "open";
        let is_refused = |breaker: &BreakerItem| breaker.state == "refused";
        let fails = |breaker: &BreakerItem| breaker.failures >= FAILING;
        self.state = if !self.breakers.is_empty() && self.breakers.iter().all(is_open) {
            "unavailable"
        } else if !self.breakers.is_empty() && self.breakers.iter().all(is_refused) {
            "refused"
        } else if self.breakers.iter().any(fails) {
            "failing"
        } else if self.breakers.iter().all(is_closed) {
            "working"
        } else {
            "degraded"
        };
        self
    }
}

impl BreakerItem {
    fn of(member: &PoolMember, model: &str, reading: BreakerReading) -> Self {
        Self {
            upstream: member.key.to_string(),
            model: model.to_owned(),
            credential: member.credential,
            state: match reading.status {
                BreakerStatus::Closed => "closed",
                BreakerStatus::Resting => "resting",
                BreakerStatus::Refused => "refused",
                BreakerStatus::HalfOpen => "half_open",
                BreakerStatus::Open => "open",
            },
            seconds_left: reading
                .left
                .map(|left| left.as_millis().div_ceil(1_000) as u64),
            failures: reading.failures,
            open_accounts: reading.open_accounts,
        }
    }
}

fn ending_models(catalog: &Catalog, now: Millis) -> Vec<EndingModel> {
    let ending = catalog.models().filter_map(|model| {
        Some(EndingModel {
            warning: model.end_warning(now)?,
            id: model.id.clone(),
            ends_on: model.ends_on?,
        })
    });
    let mut ending: Vec<_> = ending.collect();
    ending.sort_by_key(|model| model.ends_on.to_string());
    ending
}
