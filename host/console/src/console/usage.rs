//! Usage between two days: by day, by model and by key.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use weir_accounts::billing::history::{UsageItem, UsageLabel, UsageQuery, UsageReport};
use weir_app::App;
use weir_errors::ApiError;
use weir_request::query::ListQuery;

use super::chart::Bars;
use super::form::FormError;
use super::format;
use super::frame::{Frame, USAGE};
use super::overview::by_day;
use super::session::ConsoleUser;

#[derive(Template)]
#[template(path = "console/usage.html")]
struct UsagePage {
    frame: Frame,
    from: String,
    to: String,
    report: Option<ConsoleUsage>,
    refused: FormError,
}

struct ConsoleUsage {
    chart: Bars,
    total: UsageItem,
    tables: [UsageTable; 3],
}

/// Usage, grouped by one dimension.
struct UsageTable {
    title: &'static str,
    heading: &'static str,
    rows: Vec<UsageRow>,
    omitted: usize,
}

struct UsageRow {
    name: String,
    note: String,
    item: UsageItem,
}

/// `GET /console/usage`
pub(super) async fn show_usage(
    State(app): State<App>,
    user: ConsoleUser,
    mut query: ListQuery,
) -> Result<Response, ApiError> {
    let mut text = |name| query.text(name).map(Option::unwrap_or_default);
    let (from, to) = (text("from")?, text("to")?);
    query.finish()?;
    let report = async |group: &str| {
        let asked = UsageQuery {
            database: &app.database,
            account: user.account(),
            now: app.ledger.now(),
        };
        let query = ListQuery::filled([("from", from.clone()), ("to", to.clone())]);
        asked.report(Some(group.to_owned()), query).await
    };
    let mut page = UsagePage {
        frame: user.frame("Usage", USAGE),
        from: from.clone(),
        to: to.clone(),
        report: None,
        refused: FormError::default(),
    };
    let reports = async {
        Ok((
            report("day").await?,
            report("model").await?,
            report("key").await?,
        ))
    };
    match reports.await {
        Ok((days, models, keys)) => {
            page.from.clone_from(&days.from);
            page.to.clone_from(&days.to);
            page.report = Some(ConsoleUsage {
                chart: by_day(&days.from, &days.to, &days.usage),
                total: UsageItem {
                    part: UsageLabel::Day {
                        date: String::new(),
                    },
                    figures: days.total.clone(),
                },
                tables: [
                    table("By model", "Model", models),
                    table("By key", "Key", keys),
                    table("By day", "Day", days),
                ],
            });
            user.show(&page)
        }
        Err::<_, ApiError>(error) if error.status().is_client_error() => {
            page.refused = FormError::by(&error);
            user.show_refused(error, &page)
        }
        Err(error) => Err(error),
    }
}

fn table(title: &'static str, heading: &'static str, report: UsageReport) -> UsageTable {
    let row = |item: UsageItem| {
        let (name, note) = match &item.part {
            UsageLabel::Key {
                source,
                name,
                prefix,
                ..
            } => match (name, prefix) {
                (Some(name), Some(prefix)) => (name.clone(), format!("{prefix}…")),
                _ if *source == "web" => ("Signed in".to_owned(), String::new()),
                _ if *source == "agent" => ("Swarms and services".to_owned(), String::new()),
                _ => ("A deleted key".to_owned(), String::new()),
            },
            UsageLabel::Model { model } => (model.clone(), String::new()),
            UsageLabel::Day { date } => (date.clone(), String::new()),
        };
        UsageRow { name, note, item }
    };
    UsageTable {
        title,
        heading,
        omitted: report.omitted,
        rows: report.usage.into_iter().map(row).collect(),
    }
}
