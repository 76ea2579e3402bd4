//! Parameters that several endpoints take.

use serde::Deserialize;
use utoipa::IntoParams;

/// Of a list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Limit {
    /// Items at most.
    #[param(nullable = false, minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<u32>,
}

/// Of a list in the order of its ids.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageAfter {
    /// Items at most.
    #[param(nullable = false, minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<u32>,
    /// The `next` of the part before.
    #[param(nullable = false)]
    pub after: Option<String>,
}

/// Of requests that must not be served twice.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Header)]
pub struct Idempotency {
    /// What names the request: sent again under the same key, it is answered as before and charged once.
    #[param(
        rename = "Idempotency-Key",
        nullable = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]+$"
    )]
    pub key: Option<String>,
}

/// Of a report on a calendar month.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CalendarMonth {
    /// The month in UTC; the current one unless set.
    #[param(
        nullable = false,
        pattern = r"^[0-9]{4}-(0[1-9]|1[0-2])$",
        example = "2026-01"
    )]
    pub period: Option<String>,
}

/// Of a report on some days.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Days {
    /// The first day, in UTC; 30 days before the last unless set.
    #[param(nullable = false, format = Date)]
    pub from: Option<String>,
    /// The last day, in UTC; today unless set.
    #[param(nullable = false, format = Date)]
    pub to: Option<String>,
}
