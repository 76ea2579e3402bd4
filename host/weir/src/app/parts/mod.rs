//! The parts that each feature takes from [`App`](super::App).
//!
//! Handlers of a feature take the feature's parts as their state, so that no feature names `App`.

mod billing;
mod catalog;
mod vouchers;
