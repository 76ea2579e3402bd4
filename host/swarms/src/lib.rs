//! Agents.
//!
//! - [`swarm`]: runs of several agents. [`tasks`]: stored swarms with schedules and credentials.
//! - [`mcp`]: tools over the Model Context Protocol.

pub mod mcp;
pub mod swarm;
pub mod tasks;
