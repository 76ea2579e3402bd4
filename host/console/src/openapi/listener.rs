//! The listeners of a gateway, and the paths that each serves.

/// A listener: each has its own routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiListener {
    /// The public listener.
    Public,
    /// The public listener of a gateway without an internal one: it also serves the metrics.
    Only,
    /// The API's listener for services.
    Internal,
    /// An executor's listener for services.
    Executor,
}

impl ApiListener {
    /// Returns whether the listener has a route with this path.
    pub(super) fn serves(self, path: &str) -> bool {
        let is_for_plugins = path.starts_with("/admin/plugins");
        let is_health = path.starts_with("/health");
        let is_internal = path.starts_with("/internal/");
        let of_executor = ["/internal/agent/swarm", "/internal/agent/execute"].contains(&path);
        match (self, path) {
            (_, "/openapi.json") => true,
            (_, "/metrics") => self != Self::Public,
            (Self::Public | Self::Only, _) => !is_internal,
            (Self::Internal, _) => is_for_plugins || is_internal && !of_executor,
            (Self::Executor, _) => is_health || of_executor,
        }
    }
}
