//! The parts that requests of all features share.
//!
//! - [`context`] and [`request`]: the context of a request and its log line; [`query`], [`json`] and [`small_body`]: its
//!   inputs; [`schemas`]: shared types of the API's document; [`cors`].
//! - [`admission`], [`limits`] and [`shares`]: the request queue, and limits that several features share.
//! - [`audit`], [`failed_requests`], [`content_log`], [`traffic`] and [`log_export`]: records, written through
//!   [`write_behind`]; [`csv_export`].
//! - [`metrics`]: metrics for Prometheus.
//! - [`node`]: the stores and the clock of a node; [`listen_address`].

pub mod admission;
pub mod audit;
pub mod content_log;
pub mod context;
pub mod cors;
pub mod csv_export;
pub mod failed_requests;
pub mod json;
pub mod limits;
pub mod listen_address;
pub mod log_export;
pub mod metrics;
pub mod node;
pub mod query;
pub mod request;
pub mod schemas;
pub mod shares;
pub mod small_body;
pub mod traffic;
pub mod write_behind;
