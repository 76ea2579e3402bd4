//! The operator's home: requests, errors, times, tokens and spend over hours or days, the state of providers and of the
//! queue, models that end soon, and this month's revenue. A script refreshes the part that changes.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use weir_app::App;
use weir_errors::ApiError;
use weir_request::query::ListQuery;

use crate::admin::overview::{
    self, BackgroundWork, BreakerItem, Overview, OverviewFigures, OverviewGroup, OverviewStep,
    ProviderHealth,
};
use crate::admin::report::{Month, PlatformUsage};
use crate::admin::routes;
use crate::console::format;
use crate::console::frame::{Frame, PLATFORM};
use crate::console::plot::{Plot, PlotLine};
use crate::console::respond;
use crate::console::session::ConsoleAdmin;

const FIELDS: [&str; 6] = ["period", "group", "provider", "model", "key", "account"];

#[derive(Template)]
#[template(path = "console/admin/platform.html")]
struct PlatformPage {
    frame: Frame,
    view: OverviewView,
    providers: Vec<String>,
    models: Vec<String>,
    usage: PlatformUsage,
    /// In USD, and in percent of the revenue.
    earned: String,
    cost: String,
    margin: Option<String>,
}

/// The part of the page that a script refreshes.
#[derive(Template)]
#[template(path = "console/admin/overview.html")]
struct OverviewPart {
    view: OverviewView,
}

struct OverviewView {
    asked: OverviewRequest,
    overview: Overview,
    plots: Vec<Plot>,
    /// The period in words.
    period: &'static str,
    updated: String,
}

struct OverviewRequest([(&'static str, String); FIELDS.len()]);

/// `GET /console/admin`
pub(super) async fn show_platform(
    State(app): State<App>,
    admin: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let asked = OverviewRequest::take(query)?;
    let catalog = app.catalog.load();
    let mut providers: Vec<_> = catalog.upstreams().into_keys().map(str::to_owned).collect();
    let mut models: Vec<_> = catalog.models().map(|model| model.id.clone()).collect();
    // The filter may name one that the catalog has no more.
    for (names, asked) in [
        (&mut providers, asked.field("provider")),
        (&mut models, asked.field("model")),
    ] {
        if !asked.is_empty() && !names.iter().any(|name| name == asked) {
            names.push(asked.to_owned());
        }
    }
    let month = Month::of(app.clock.now());
    let (usage, economics) = routes::platform_month(&app, &month).await?;
    let earned: f64 = economics.iter().map(|model| model.revenue_usd).sum();
    let cost: f64 = economics.iter().map(|model| model.provider_cost_usd).sum();
    let page = PlatformPage {
        view: OverviewView::of(&app, asked).await?,
        providers,
        models,
        earned: format!("{earned:.2}"),
        cost: format!("{cost:.2}"),
        margin: (earned > 0.0).then(|| format!("{:.1}", (earned - cost) / earned * 100.0)),
        frame: admin.user.frame("Platform", PLATFORM),
        usage,
    };
    admin.user.show(&page)
}

/// `GET /console/admin/overview`: returns the part of the page that changes.
pub(super) async fn show_overview(
    State(app): State<App>,
    _: ConsoleAdmin,
    query: ListQuery,
) -> Result<Response, ApiError> {
    let view = OverviewView::of(&app, OverviewRequest::take(query)?).await?;
    respond::page(StatusCode::OK, &OverviewPart { view })
}

impl OverviewRequest {
    fn take(mut query: ListQuery) -> Result<Self, ApiError> {
        let mut fields = FIELDS.map(|name| (name, String::new()));
        for (name, value) in &mut fields {
            *value = query.text(name)?.unwrap_or_default();
        }
        query.finish()?;
        Ok(Self(fields))
    }

    fn field(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(found, _)| *found == name);
        found.map_or("", |(_, value)| value)
    }

    /// Whether the form restricts the requests.
    fn is_narrow(&self) -> bool {
        self.0[2..].iter().any(|(_, value)| !value.is_empty())
    }

    /// Returns the query of the same page, with another value of a field.
    fn query_with(&self, changed: &str, to: &str) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.0 {
            let value = if *name == changed { to } else { value };
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }

    fn query(&self) -> String {
        self.query_with("", "")
    }
}

impl OverviewView {
    async fn of(app: &App, asked: OverviewRequest) -> Result<Self, ApiError> {
        let overview = overview::overview(app, ListQuery::filled(asked.0.clone())).await?;
        Ok(Self {
            plots: plots(&overview.series),
            period: match overview.period {
                "7d" => "the last 7 days",
                "30d" => "the last 30 days",
                _ => "the last 24 hours",
            },
            updated: format::second(&overview.to),
            asked,
            overview,
        })
    }

    fn group_label(&self) -> &'static str {
        match self.overview.group {
            "model" => "Model",
            "key" => "Key",
            "account" => "Account",
            "organisation" => "Organisation",
            _ => "Provider",
        }
    }

    /// Returns the page's query with the requests of a group only.
    fn query_of(&self, group: &OverviewGroup) -> String {
        let field = match self.overview.group {
            "organisation" => "account",
            field => field,
        };
        self.asked.query_with(field, &group.id)
    }
}

fn plots(steps: &[OverviewStep]) -> Vec<Plot> {
    let plot = |id, title, unit, lines| {
        let moments = steps.iter().map(|step| &*step.at);
        Plot::of(id, title, unit, moments, lines)
    };
    let counts = |label, colour, value: fn(&OverviewFigures) -> i64| PlotLine {
        label,
        colour,
        values: steps
            .iter()
            .map(|step| Some(value(&step.figures) as f64))
            .collect(),
        cells: steps
            .iter()
            .map(|step| format::count(value(&step.figures)))
            .collect(),
    };
    let times = |label, colour, value: fn(&OverviewFigures) -> Option<i64>| PlotLine {
        label,
        colour,
        values: steps
            .iter()
            .map(|step| value(&step.figures).map(|ms| ms as f64 / 1e3))
            .collect(),
        cells: steps
            .iter()
            .map(|step| time(value(&step.figures)))
            .collect(),
    };
    vec![
        plot(
            "requests",
            "Requests and errors",
            "requests",
            vec![
                counts("Requests", 1, |figures| figures.requests),
                counts("Server-side failures", 2, failures),
                counts("Client errors", 3, |figures| figures.client_errors),
            ],
        ),
        plot(
            "first-token",
            "Time to first token",
            "seconds",
            vec![
                times("p50", 1, |figures| figures.first_token_p50_ms),
                times("p95", 4, |figures| figures.first_token_p95_ms),
            ],
        ),
        plot(
            "total",
            "Total time",
            "seconds",
            vec![
                times("p50", 1, |figures| figures.total_p50_ms),
                times("p95", 4, |figures| figures.total_p95_ms),
            ],
        ),
        plot(
            "tokens",
            "Tokens",
            "tokens",
            vec![
                counts("Input", 1, |figures| figures.tokens_input),
                counts("Output", 4, |figures| figures.tokens_output),
            ],
        ),
        plot(
            "spend",
            "Spend",
            "credits",
            vec![PlotLine {
                label: "Charged",
                colour: 1,
                values: steps
                    .iter()
                    .map(|step| Some(step.figures.credits.micro() as f64 / 1e6))
                    .collect(),
                cells: steps
                    .iter()
                    .map(|step| format::credits(step.figures.credits))
                    .collect(),
            }],
        ),
    ]
}

fn failures(figures: &OverviewFigures) -> i64 {
    figures.provider_errors + figures.gateway_errors
}

/// Returns the share of server-side failures in percent.
fn failure_share(figures: &OverviewFigures) -> String {
    let share = failures(figures) as f64 / figures.requests.max(1) as f64;
    format!("{:.2}", share * 100.0)
}

/// Returns a time with its unit. Templates pass references.
fn time_of(ms: &Option<i64>) -> String {
    time(*ms)
}

fn time(ms: Option<i64>) -> String {
    match ms {
        None => "–".to_owned(),
        Some(ms) if ms < 1_000 => format!("{ms} ms"),
        Some(ms) => format!("{:.1} s", ms as f64 / 1e3),
    }
}

/// Returns the class of a provider's badge, and its label.
fn health_badge(provider: &ProviderHealth) -> (&'static str, &'static str) {
    match provider.state {
        "working" => ("good", "working"),
        "failing" => ("bad", "failing"),
        "degraded" => ("warn", "degraded"),
        "refused" => ("bad", "credential refused"),
        _ => ("bad", "unavailable"),
    }
}

/// Says which background work fails.
fn failing_work(works: &[BackgroundWork]) -> String {
    let failing = works.iter().filter(|work| work.failures > 0);
    let names: Vec<_> = failing.map(|work| work.name).collect();
    match names.is_empty() {
        true => "None fails.".to_owned(),
        false => format!("Failing: {}.", names.join(", ")),
    }
}

/// Returns the class of a breaker's badge, and its label.
fn breaker_badge(breaker: &BreakerItem) -> (&'static str, &'static str) {
    match breaker.state {
        "closed" => ("good", "closed"),
        "resting" => ("warn", "resting"),
        "half_open" => ("warn", "probing"),
        "refused" => ("bad", "credential refused"),
        _ => ("bad", "open"),
    }
}
