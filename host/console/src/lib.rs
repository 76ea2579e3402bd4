//! The web pages for operators and users, and the API for administrators.
//!
//! - [`console`]: web pages. [`admin`]: the API for administrators. [`openapi`]: the API's document.
//! - [`monitoring`]: endpoints of health and metrics.

pub mod admin;
pub mod console;
pub mod monitoring;
pub mod openapi;
