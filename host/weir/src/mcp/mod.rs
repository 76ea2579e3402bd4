//! MCP: the tools that swarms' agents have, for clients that speak the Model Context Protocol.
//!
//! `POST /mcp` takes one JSON-RPC message and answers it with JSON ([`routes`]). It keeps no session: each message stands
//! for itself ([`message`]). A call goes the way of an agent's ([`crate::tools`]): the same component, rules, outlet, bounds,
//! log and figures, for the plans that have swarms; it costs no credits, as there ([`offer`]).
//!
//! Held of revision 2026-07-28: `server/discover`, `tools/list` in pages, `tools/call`, a version and capabilities in each
//! request's `_meta`, its headers compared with its body, and its codes of errors. For older clients: `initialize` (2025-03-26
//! to 2025-11-25), which changes nothing here, and `ping`. Left out, since tools have no use for it: streams, thus progress
//! and `subscriptions/listen`; requests to clients; lists of messages, which 2025-03-26 alone had. A client that hangs up
//! cancels its call.
//!
//! Other servers' tools are reached the other way round: [`crate::tools::remote`].
//!
//! The messages' types are `rmcp`'s, and its service is not: that reads bodies by itself, before anybody is asked who calls
//! or whether there is room, and words refusals its own way.
//!
//! **Invariant:** nothing that one request leaves behind changes what another is answered.
//!
//! To serve another method, edit [`routes`]; to let lone calls have more or fewer tools, [`crate::tools::Tools::alone`].

mod message;
mod offer;
pub mod routes;
