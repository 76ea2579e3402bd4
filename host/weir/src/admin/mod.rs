//! What administrators are shown: the platform's usage, and what each model costs and earns.
//!
//! - [`report`]: the figures, as plain functions of sums by day, model and provider; [`store`]: those sums.
//! - [`routes`]: the endpoints. A handler that takes an [`AdminCaller`] is open to administrators only: web users
//!   whose record has the role, which `weir user grant-admin` gives.
//!
//! A report is about a calendar month in UTC, whatever the billing cycles of accounts are: a charge counts on
//! the day that it was settled.
//!
//! **Invariant:** a report reads sums, never entries, and names no user.
//! **Invariant:** each figure is rounded once, from exact sums; none is made of another that was rounded.
//!
//! To add a figure, add it to [`report`], and what it is made of to [`store`].

pub mod report;
pub mod routes;
mod store;

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;

use crate::app::App;
use crate::error::ApiError;
use crate::identity::WebCaller;

/// A web user with the admin role. Anybody else is refused: keys and strangers with 401, others with 403.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminCaller {
    /// The administrator's user id.
    pub user_id: String,
}

impl FromRequestParts<App> for AdminCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let WebCaller { user_id, admin } = WebCaller::from_request_parts(parts, app).await?;
        if !admin {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "FORBIDDEN",
                "This is for administrators.",
            ));
        }
        Ok(Self { user_id })
    }
}
