//! Shapes of the API that several features describe: for `GET /openapi.json`.

pub mod parameters;
pub mod vendors;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A subscription, or the free plan of users without one.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Plan)]
pub enum PlanSchema {
    /// Costs nothing.
    Free,
    /// 10 USD a month.
    Guru,
    /// 50 USD a month.
    Pro,
}

/// The unit in which a price counts usage.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageUnit {
    /// Tokens of input and output.
    Tokens,
    /// Characters of a text to speak.
    Characters,
    /// Seconds of a recording.
    Seconds,
    /// Generated images.
    Images,
    /// Search units of a ranking, of up to 100 documents each.
    SearchUnits,
    /// Usage of an earlier version of weir, of a model that the catalog did not have any more.
    Unknown,
}

/// A paid plan.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PaidPlan {
    /// 10 USD a month.
    Guru,
    /// 50 USD a month.
    Pro,
}

/// Credits for a one-time purchase.
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

/// A budget's calendar window, in UTC.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// An hour of the clock.
    Hour,
    /// A day.
    Day,
    /// A week from Monday to Sunday.
    Week,
    /// A calendar month.
    Month,
    /// The budget's lifetime.
    Total,
}

/// The maximum spending in a window.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "credits": 50, "window": "day" }))]
#[schema(as = Budget)]
pub struct BudgetSchema {
    /// The maximum, with at most 6 decimals.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000_000, multiple_of = 0.000001)]
    pub credits: f64,
    /// The window.
    pub window: Window,
}

/// The kind of credits.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Pool)]
pub enum PoolSchema {
    /// The plan's credits, which expire with the plan's period.
    Plan,
    /// Bought credits.
    TopUp,
}

/// An HTTP method with which a credential may be sent.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
}
