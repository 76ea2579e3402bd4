//! The first page: the balance, and recent usage.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{FromRef as _, State};
use axum::response::Response;
use weir_accounts::billing::BillingParts;
use weir_accounts::billing::history::{RequestItem, UsageItem, UsageLabel, UsageQuery};
use weir_accounts::billing::usage::{self, UsageSummary};
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::roles::Permission;
use weir_ledger::{Credits, plans};
use weir_request::query::ListQuery;
use weir_storage::clock::Millis;

use super::chart::{Bars, Point};
use super::format::{self, DisplayTime};
use super::frame::{Frame, OVERVIEW};
use super::session::ConsoleUser;

/// Requests on the page.
const REQUESTS: u32 = 8;

/// Days of the chart.
const DAYS: i64 = 30;

#[derive(Template)]
#[template(path = "console/overview.html")]
struct Overview {
    frame: Frame,
    summary: UsageSummary,
    cycle_end: DisplayTime,
    chart: Bars,
    requests: Vec<RequestItem>,
    now: Millis,
}

/// `GET /console`
pub(super) async fn show_overview(
    State(app): State<App>,
    user: ConsoleUser,
) -> Result<Response, ApiError> {
    let now = app.ledger.now();
    let account = user.account();
    let summary = usage::read_summary(&BillingParts::from_ref(&app), &account).await?;
    let asked = || UsageQuery {
        database: &app.database,
        account: account.clone(),
        now,
    };
    let first = plans::day(now.plus_days(1 - DAYS));
    let report = asked()
        .report(
            Some("day".to_owned()),
            ListQuery::from([("from", first.clone())]),
        )
        .await?;
    let limit = ListQuery::from([("limit", REQUESTS.to_string())]);
    let requests = match user.may(Permission::ReadUsage) {
        true => asked().list(&app.failed_requests, limit).await?.requests,
        false => Vec::new(),
    };
    user.show(&Overview {
        frame: user.frame("Overview", OVERVIEW),
        cycle_end: DisplayTime::read(&summary.cycle_end, now),
        chart: by_day(&first, &report.to, &report.usage),
        summary,
        requests,
        now,
    })
}

/// Makes a chart of days, including days without usage.
pub(super) fn by_day(first: &str, last: &str, usage: &[UsageItem]) -> Bars {
    let known: BTreeMap<_, _> = usage
        .iter()
        .filter_map(|item| match &item.part {
            UsageLabel::Day { date } => Some((date.as_str(), &item.figures)),
            _ => None,
        })
        .collect();
    let mut points = Vec::new();
    let mut day = plans::start_of_day(first);
    let end = plans::start_of_day(last);
    while let (Some(at), Some(until)) = (day, end) {
        if at > until {
            break;
        }
        let date = plans::day(at);
        let figures = known.get(date.as_str());
        let credits = figures.map_or(Credits::ZERO, |figures| figures.credits_used);
        let requests = figures.map_or(0, |figures| figures.requests);
        points.push(Point {
            title: format!(
                "{date}: {} credits, {} requests",
                format::credits(credits),
                format::count(requests)
            ),
            credits,
            name: date,
        });
        day = Some(at.plus_days(1));
    }
    Bars::of(
        format!("Credits used each day from {first} to {last}"),
        &points,
    )
}
