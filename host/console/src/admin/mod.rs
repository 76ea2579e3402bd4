//! The administrators' API: the platform's usage, the cost and revenue of each model, users and their keys, security
//! events.
//!
//! - [`users`], [`keys`] and [`events`]: endpoints that need only a [`Core`](weir_request::node::Core), so that commands can call them while no
//!   gateway runs.
//! - [`report`]: the figures, as plain functions of sums by day, model and provider; [`store`]: those sums.
//! - [`routes`]: the endpoints of reports. Only administrators may call a handler that takes an [`AdminCaller`](weir_identity::admin::AdminCaller): web
//!   users with the admin role, which `weir user grant-admin` grants, and processes that may open the admin socket.
//!
//! A report covers a calendar month in UTC, independent of the accounts' billing cycles: a charge counts on the day of
//! its settlement.
//!
//! - [`gateway`]: endpoints at the admin socket only: the gateway's address, and links to the console.
//! - [`catalog_layer`]: changes of the catalog.
//! - [`user_usage`]: a user's usage, as [`weir_accounts::billing::history`] returns it to the user.
//! - [`overview`]: requests, errors, times, tokens and spend by hour or day, and the state of providers.
//! - [`requests`]: the requests of all accounts, with the errors of failed ones.
//!
//! **Invariant:** a report reads sums, never entries, and names no person.
//! **Invariant:** each figure is rounded once, from exact sums, never from a rounded figure.
//!
//! To add a figure, add it to [`report`], and its sums to [`store`].

pub mod catalog_layer;
pub mod events;
pub mod gateway;
pub mod keys;
pub mod lockouts;
pub mod overview;
pub mod report;
pub mod requests;
pub mod routes;
mod store;
pub mod tight_budgets;
pub mod user_usage;
pub mod users;

pub use self::store::account_names;
