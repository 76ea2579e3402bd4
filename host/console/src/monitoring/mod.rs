//! The state of a node, for load balancers and Prometheus: `/health` and `/metrics`.

pub mod health;
pub mod metrics;
