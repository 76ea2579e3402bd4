//! The platform's overview: this month's requests and revenue, and the state of this node.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use weir_errors::ApiError;
use weir_ledger::Credits;

use crate::admin::report::{Month, PlatformUsage};
use crate::admin::routes;
use crate::app::App;
use crate::console::chart::{Bars, Point};
use crate::console::format;
use crate::console::frame::{Frame, PLATFORM};
use crate::console::session::ConsoleAdmin;
use crate::metrics::summary::NodeSummary;
use crate::monitoring::metrics::text;

#[derive(Template)]
#[template(path = "console/admin/platform.html")]
struct PlatformPage {
    frame: Frame,
    usage: PlatformUsage,
    chart: Bars,
    /// In USD, and in percent of the revenue.
    earned: String,
    cost: String,
    margin: Option<String>,
    node: NodeFigures,
}

/// This node since its start.
struct NodeFigures {
    requests: String,
    /// In percent of the requests.
    failed: String,
    first_token: Option<String>,
    open_holds: String,
}

/// `GET /console/admin`
pub(super) async fn show_platform(
    State(app): State<App>,
    admin: ConsoleAdmin,
) -> Result<Response, ApiError> {
    let month = Month::of(app.clock.now());
    let (usage, economics) = routes::platform_month(&app, &month).await?;
    let earned: f64 = economics.iter().map(|model| model.revenue_usd).sum();
    let cost: f64 = economics.iter().map(|model| model.provider_cost_usd).sum();
    let points: Vec<_> = usage
        .requests_by_day
        .iter()
        .map(|day| Point {
            name: day.date.clone(),
            credits: Credits::from_micro(day.credits.saturating_mul(1_000_000)),
            title: format!(
                "{}: {} credits, {} requests",
                day.date,
                format::count(day.credits),
                format::count(day.requests)
            ),
        })
        .collect();
    let page = PlatformPage {
        chart: Bars::of("Credits of all users by day of this month", &points),
        earned: format!("{earned:.2}"),
        cost: format!("{cost:.2}"),
        margin: (earned > 0.0).then(|| format!("{:.1}", (earned - cost) / earned * 100.0)),
        node: node(&NodeSummary::of(&text(&app).await?)),
        frame: admin.user.frame("Platform", PLATFORM),
        usage,
    };
    admin.user.show(&page)
}

fn node(summary: &NodeSummary) -> NodeFigures {
    let share = match summary.requests {
        requests if requests > 0.0 => summary.failed / requests * 100.0,
        _ => 0.0,
    };
    NodeFigures {
        requests: format::count(summary.requests),
        failed: format!("{share:.2}"),
        first_token: summary.first_token_p95.map(|bound| match bound {
            bound if bound.is_finite() => format!("≤ {bound} s"),
            _ => "> 300 s".to_owned(),
        }),
        open_holds: format::count(summary.open_holds),
    }
}
