//! The commands of plugin authors, below the command line.
//!
//! - [`new`] and [`build`]: a project from the samples, and its component.
//! - [`try_plugin`]: one exchange of a component, printed as lines of JSON.
//! - [`check`] and [`compare`]: tests of a component, and the differences between two versions.
//! - [`signing`]: the keys and signatures of publishers.
//! - [`registry`]: components in OCI registries.
//!
//! [`trial`] runs an adapter on recorded responses, with the checks of the gateway ([`weir_upstream`]) and without a network.
//!
//! **Invariant:** this crate knows neither the gateway's configuration nor a running gateway. The command line parses arguments,
//! passes settings as parameters, and prints reports.
//!
//! To change an argument or a table, edit `host/weir/src/cli/plugin/`.

pub mod build;
pub mod check;
pub mod compare;
pub mod conformance;
mod event_lines;
pub mod input;
mod lines;
mod live;
pub mod loading;
pub mod new;
mod notes;
pub mod recording;
pub mod recordings;
pub mod registry;
pub mod report;
pub mod signing;
pub mod transfer;
pub mod trial;
mod try_filter;
pub mod try_plugin;
mod try_tool;
