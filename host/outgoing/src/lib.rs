//! The HTTP client for issuers' documents and tokens, and for the command line's calls to a gateway. Model calls have
//! their own client (`inference/upstream.rs`), which shares this TLS configuration.
//!
//! **Invariant:** the client uses no proxy of the environment and follows no redirect, so every response comes from the
//! requested address.

pub mod fetch;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

pub use reqwest::Client;
use reqwest::redirect::Policy;

/// The time after which an idle connection closes, and after which the kernel probes the peer.
const IDLE: Duration = Duration::from_secs(60);

/// Returns a client with a connection pool.
///
/// `connect_timeout` covers name look-up, TCP and TLS together. Each call sets its own response timeout and size limit.
pub fn client(connect_timeout: Duration) -> anyhow::Result<Client> {
    Ok(Client::builder()
        .tls_backend_preconfigured(tls_config()?)
        .no_proxy()
        .redirect(Policy::none())
        .connect_timeout(connect_timeout)
        .tcp_nodelay(true)
        .tcp_keepalive(IDLE)
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
        .build()?)
}

/// Returns a client that sends every request to the Unix socket at `path`; the host of a URL has no effect.
pub fn socket_client(path: &Path) -> anyhow::Result<Client> {
    // Sockets carry no TLS, so the client needs no certificate authorities.
    let nobody = rustls::RootCertStore::empty();
    Ok(Client::builder()
        .tls_backend_preconfigured(trusting(nobody)?)
        .no_proxy()
        .redirect(Policy::none())
        .unix_socket(path)
        .build()?)
}

/// The TLS configuration with aws-lc-rs and the system's certificate authorities.
pub fn tls_config() -> anyhow::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "cannot read a certificate authority of the system");
    }
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        tracing::warn!(
            "the system has no certificate authorities: https upstreams are unreachable; install ca-certificates"
        );
    }
    trusting(roots)
}

fn trusting(roots: rustls::RootCertStore) -> anyhow::Result<rustls::ClientConfig> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    Ok(rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// The root cause of an error, e.g. `Connection refused`. The URL is left out, because it may hold private data.
pub fn root_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
