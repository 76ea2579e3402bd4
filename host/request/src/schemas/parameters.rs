//! Parameters of several endpoints.

use serde::Deserialize;
use utoipa::IntoParams;

/// The limit of a list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Limit {
    /// Maximum number of items.
    #[param(nullable = false, minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<u32>,
}

/// The page of a list in the order of its ids.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageAfter {
    /// Maximum number of items.
    #[param(nullable = false, minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<u32>,
    /// The `next` of the previous page.
    #[param(nullable = false)]
    pub after: Option<String>,
}

/// The idempotency key of requests that must not be served twice.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Header)]
pub struct Idempotency {
    /// A name for the request: a repeated request with the same key gets the same response and is charged once.
    #[param(
        rename = "Idempotency-Key",
        nullable = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]+$"
    )]
    pub key: Option<String>,
}

/// The use of stored responses.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Header)]
pub struct CacheControl {
    /// If the response cache is on: `no-cache` requests a new response, `no-store` one that is not stored.
    #[param(rename = "Cache-Control", nullable = false, example = "no-cache")]
    pub directives: Option<String>,
}

/// The month of a report.
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

/// The days of a report.
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
