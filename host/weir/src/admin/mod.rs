//! What administrators are shown and what they change: the platform's usage, what each model costs and earns, users and
//! their keys, security events.
//!
//! - [`users`], [`keys`] and [`events`]: endpoints that need no more than a [`Core`](crate::node::Core), so that commands have them while no
//!   gateway runs.
//! - [`report`]: the figures, as plain functions of sums by day, model and provider; [`store`]: those sums.
//! - [`routes`]: the endpoints of reports. A handler that takes an [`AdminCaller`](crate::identity::admin::AdminCaller) is open to administrators only: web users
//!   whose record has the role, which `weir user grant-admin` gives, and whoever may open the admin socket.
//!
//! A report is about a calendar month in UTC, whatever the billing cycles of accounts are: a charge counts on
//! the day that it was settled.
//!
//! - [`gateway`]: what the admin socket alone tells and makes: where the gateway is reached, and links to the console.
//! - [`user_usage`]: what a user has used, as [`crate::billing::history`] has it for themselves.
//!
//! **Invariant:** a report reads sums, never entries, and names no user.
//! **Invariant:** each figure is rounded once, from exact sums; none is made of another that was rounded.
//!
//! To add a figure, add it to [`report`], and what it is made of to [`store`].

pub mod events;
pub mod gateway;
pub mod keys;
pub mod lockouts;
pub mod report;
pub mod routes;
mod store;
pub mod user_usage;
pub mod users;
