//! weir: an inference gateway whose provider adapters are sandboxed WebAssembly components.
//!
//! In reading order:
//!
//! - [`config`]: every setting; [`app`]: what requests share and how it is put together.
//! - [`server`]: connections; [`router`]: every route; [`surround`] and [`cors`]: what is around them all; [`context`],
//!   [`request`] and [`weir_errors`]: what all handlers take and how they refuse.
//! - [`telemetry`]: the log, and traces.
//! - [`outgoing`]: the client of calls to others, upstreams apart.
//! - [`identity`]: who calls, and how often they may; [`audit`]: what is kept of it.
//! - [`catalog`]: what can be asked for, and of whom.
//! - [`inference`]: a request from start to finish.
//! - [`weir_ledger`]: what requests cost, and the ledger that they are paid from; [`billing`]: what users are shown of it.
//! - [`swarm`]: agents that run one after another, each on a model.
//! - [`mcp`]: the tools of agents, for clients of the Model Context Protocol.
//! - [`payments`]: how users buy plans and credits.
//! - [`admin`]: what administrators are shown; [`openapi`]: what programs are told of all routes.
//! - [`console`]: the pages on which users and administrators see and do that.
//! - [`plugins`]: the sandbox that adapters run in, and which of them serve; [`metrics`]: what they have done.
//! - [`storage`]: what lasts; [`secrets`]: what must not be shown; [`sealing`]: what only weir may read of what lasts.
//! - [`cli`]: the commands.

pub mod admin;
pub mod app;
pub mod audit;
pub mod billing;
pub mod catalog;
pub mod cli;
pub mod config;
pub mod console;
pub mod context;
pub mod cors;
pub mod health;
pub mod identity;
pub mod inference;
pub mod json;
pub mod mcp;
pub mod metrics;
pub mod openapi;
pub mod payments;
pub mod plugins;
pub mod query;
pub mod recordings;
pub mod request;
pub mod router;
pub mod server;
pub mod sessions;
pub mod shares;
pub mod surround;
pub mod swarm;
pub mod tasks;
pub mod tools;
pub mod vouchers;
