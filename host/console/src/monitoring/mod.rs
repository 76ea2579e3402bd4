//! The state of a node, for load balancers and Prometheus: `/health` and `/metrics`.

pub mod health;
pub mod metrics;

use weir_app::App;
use weir_identity::endpoints::{Access, Endpoints};
use weir_identity::handlers;

/// Returns the endpoints of health.
pub fn health_endpoints() -> Endpoints<App> {
    Endpoints::new().row(
        Access::Open,
        handlers!(health::get_health, health::get_readiness),
    )
}

/// Returns the endpoint of the metrics.
pub fn metrics_endpoints() -> Endpoints<App> {
    Endpoints::new().row(Access::Open, handlers!(metrics::get_metrics))
}

/// Returns the endpoint of the metrics at the public listener.
pub fn public_metrics_endpoints() -> Endpoints<App> {
    Endpoints::new().row(
        Access::Open,
        handlers!(metrics::get_metrics => metrics::get_public_metrics),
    )
}
