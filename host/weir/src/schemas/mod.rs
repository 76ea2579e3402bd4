//! Shapes of the API that several features describe: for `GET /openapi.json`.

pub mod parameters;
pub mod vendors;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A subscription, or the free plan of those who have none.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Plan {
    /// Costs nothing.
    Free,
    /// 10 USD a month.
    Guru,
    /// 50 USD a month.
    Pro,
}

/// A plan that is paid for.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PaidPlan {
    /// 10 USD a month.
    Guru,
    /// 50 USD a month.
    Pro,
}

/// Credits that are bought once.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// 5,000 credits.
    Small,
    /// 27,500 credits.
    Medium,
    /// 125,000 credits.
    Large,
}

/// The time that a budget is for: of the calendar, in UTC.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// An hour of the clock.
    Hour,
    /// A day.
    Day,
    /// From Monday to Sunday.
    Week,
    /// A month of the calendar.
    Month,
    /// All time from when it was set.
    Total,
}

/// How much may be spent in a window.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "credits": 50, "window": "day" }))]
pub struct Budget {
    /// The most, with at most 6 decimals.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000_000, multiple_of = 0.000001)]
    pub credits: f64,
    /// The time that it is for.
    pub window: Window,
}

/// The kind of credits.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// The plan's, which lapse with their period.
    Plan,
    /// The bought ones.
    TopUp,
}

/// A method that a credential is sent with.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Reads.
    Get,
    /// The head of what `GET` reads.
    Head,
    /// Makes.
    Post,
    /// Puts in place.
    Put,
    /// Changes.
    Patch,
    /// Takes away.
    Delete,
}
