//! MCP: the tools of swarms' agents, for clients that speak the Model Context Protocol.
//!
//! `POST /mcp` takes one JSON-RPC message and responds with JSON ([`routes`]). The server has no sessions: each message
//! is independent ([`message`]). A call works like an agent's ([`weir_tools`]): the same component, rules, network access,
//! limits, log and metrics, for plans with swarms; it costs no credits ([`offer`]).
//!
//! Supported parts of revision 2026-07-28: `server/discover`, `tools/list` with pages, `tools/call`, a version and
//! capabilities in each request's `_meta`, the check of headers against the body, and the error codes. For older
//! clients: `initialize` (2025-03-26 to 2025-11-25), which changes no state, and `ping`. Tools do not need the
//! unsupported parts: streams, thus progress and `subscriptions/listen`; requests to clients; batches, which only
//! 2025-03-26 has. A client's disconnect cancels its call.
//!
//! [`weir_tools::remote`] has the opposite direction: tools of other servers.
//!
//! The message types come from `rmcp`, but its service does not fit: it would read bodies before authentication and
//! admission, and has its own error texts.
//!
//! **Invariant:** no request leaves state that changes the response to another one.
//!
//! To add a method, edit [`routes`]; to change the tools for calls without an agent, [`weir_tools::Tools::alone`].

mod message;
mod offer;
pub mod routes;

use std::sync::Arc;
use std::time::Duration;

use weir_ledger::Ledger;
use weir_request::admission::Admission;
use weir_request::request::BodyReader;
use weir_tools::Tools;

/// The parts of a gateway that serve MCP. Cheap to clone.
#[derive(Clone)]
pub struct McpParts {
    pub tools: Tools,
    /// The ledger, for budgets.
    pub ledger: Ledger,
    /// The request queue.
    pub admission: Arc<Admission>,
    /// The reader of messages.
    pub bodies: BodyReader,
    pub call_timeout: Duration,
}
