//! The log: lines on standard error, filtered by `WEIR_LOG` (e.g. `debug`, `weir=debug,hyper=info`).

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts the log. Call once.
pub fn start() {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
