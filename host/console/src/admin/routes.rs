//! `/admin`: reports on the platform, for administrators only.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use serde::Deserialize;
use weir_app::App;
use weir_errors::ApiError;
use weir_identity::admin::AdminCaller;
use weir_request::csv_export::{self, CsvTable};
use weir_request::schemas::parameters::CalendarMonth;

use super::report::{self, ModelEconomics, Month, PlatformUsage};
use super::store;

/// The query of both reports.
#[derive(Debug, Deserialize)]
pub struct PeriodQuery {
    period: Option<String>,
}

type PeriodParameter = Result<Query<PeriodQuery>, QueryRejection>;

/// `GET /admin/usage?period=YYYY-MM`: all users' usage in a month, by default the current one.
#[utoipa::path(
    get, path = "/admin/usage", tag = "administration",
    params(CalendarMonth),
    responses((status = 200, body = PlatformUsage)),
)]
pub async fn get_platform_usage(
    State(app): State<App>,
    _: AdminCaller,
    query: PeriodParameter,
) -> Result<Json<PlatformUsage>, ApiError> {
    let month = month(&app, query)?;
    let (usage, _) = platform_month(&app, &month).await?;
    Ok(Json(usage))
}

/// Returns all users' usage in a month, and the cost and revenue of each model, both from one read.
pub async fn platform_month(
    app: &App,
    month: &Month,
) -> Result<(PlatformUsage, Vec<ModelEconomics>), ApiError> {
    let (sums, active_users) = store::sums_and_users(&app.database, month)
        .await
        .map_err(failed)?;
    let usage = report::platform_usage(month, active_users, &sums);
    Ok((usage, report::model_economics(&sums)))
}

/// `GET /admin/model-economics?period=YYYY-MM`: the cost and revenue of each model in a month.
#[utoipa::path(
    get, path = "/admin/model-economics", tag = "administration",
    params(CalendarMonth),
    responses((status = 200, content((Vec<ModelEconomics> = "application/json"), (String = "text/csv")))),
)]
pub async fn list_model_economics(
    State(app): State<App>,
    _: AdminCaller,
    headers: HeaderMap,
    query: PeriodParameter,
) -> Result<Response, ApiError> {
    let month = month(&app, query)?;
    let economics = model_economics(&app, &month).await?;
    Ok(match csv_export::is_wanted(&headers) {
        true => economics_table(&economics),
        false => Json(economics).into_response(),
    })
}

/// Returns the cost and revenue of each model as a file.
pub fn economics_table(economics: &[ModelEconomics]) -> Response {
    const TABLE: CsvTable = CsvTable {
        file: "models.csv",
        columns: "model,provider,total_requests,total_input_tokens,total_output_tokens,provider_cost_usd,revenue_credits,\
                  revenue_usd,margin_pct,unit,quantity",
        position: "",
    };
    TABLE.whole(economics)
}

/// Returns the cost and revenue of each model in a month.
pub async fn model_economics(app: &App, month: &Month) -> Result<Vec<ModelEconomics>, ApiError> {
    let sums = store::sums(&app.database, month).await.map_err(failed)?;
    Ok(report::model_economics(&sums))
}

fn month(app: &App, query: PeriodParameter) -> Result<Month, ApiError> {
    let month = match query {
        Ok(Query(PeriodQuery { period: None })) => Some(Month::of(app.clock.now())),
        Ok(Query(PeriodQuery { period: Some(text) })) => text.parse().ok(),
        Err(_) => None,
    };
    month.ok_or_else(|| {
        ApiError::invalid_request(
            "period",
            "The period must be a month as YYYY-MM, such as 2026-01.",
        )
    })
}

fn failed(error: sqlx::Error) -> ApiError {
    ApiError::of_database(&error, "asked for a report")
}
