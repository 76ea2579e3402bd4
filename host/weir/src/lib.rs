//! weir: an inference gateway whose provider adapters are sandboxed WebAssembly components.
//!
//! In reading order:
//!
//! - [`config`]: all settings. [`app`]: shared state, and startup.
//! - [`server`]: connections. [`router`]: all routes. [`request_layer`] and [`cors`]: the layer around every route. [`context`],
//!   [`request`] and [`weir_errors`]: the inputs of handlers, and their error.
//! - [`identity`]: authentication and rate limits. [`audit`]: security events.
//! - [`failed_requests`]: failed model requests, for operators. [`content_log`]: prompts and responses of those who chose it.
//!   [`traffic`]: sums of all requests by hour. [`write_behind`]: their queues.
//! - [`catalog`]: models, upstreams and prices.
//! - [`inference`]: a model request from start to finish, with [`weir_dialects`], [`weir_plugins`] and [`weir_upstream`].
//! - [`billing`]: balances, usage and exports of the [ledger](weir_ledger).
//! - [`swarm`], [`tasks`] and [`tools`]: agents, their schedules and their tools. [`mcp`]: tools over the Model Context Protocol.
//! - [`payments`] and [`vouchers`]: plans and credits.
//! - [`privacy`]: the export and the erasure of a person's data.
//! - [`admin`]: the API for administrators. [`openapi`]: the API's document. [`console`]: web pages.
//! - [`metrics`]: metrics for Prometheus. [`weir_telemetry`]: log and traces. [`log_export`]: facts of requests elsewhere.
//! - [`cli`]: the commands.
//!
//! `host/README.md` lists the crates, and the place of each kind of change.

pub mod admin;
pub mod app;
pub mod billing;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod console;

pub mod identity;
pub mod inference;
pub mod keys;
pub mod mcp;
pub mod monitoring;
pub mod openapi;
pub mod organisations;
pub mod payments;
pub mod plugins;
pub mod privacy;
pub mod recordings;
pub mod request_layer;
pub mod router;
pub mod scim;
pub mod server;
pub mod sessions;
pub mod swarm;
pub mod tasks;
pub mod tls;
pub mod tools;
pub mod vouchers;
