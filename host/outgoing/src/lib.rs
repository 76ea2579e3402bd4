//! Outgoing HTTP, but for inference's: the one place that makes the client for issuers' documents and tokens, and for
//! the command line's calls to a gateway. Exchanges with upstreams have a client (`inference/upstream.rs`) of
//! their own, and its TLS from here.
//!
//! **Invariant:** no proxy comes from the environment, and no redirect is followed: an answer comes from the address that
//! was asked, or not at all.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

pub use reqwest::Client;
use reqwest::redirect::Policy;

/// How long a connection without traffic is kept, and after how long the kernel asks whether the peer is still there.
const IDLE: Duration = Duration::from_secs(60);

/// Makes a client, which keeps its connections to use them again.
///
/// `connect_timeout` covers name look-up, TCP and TLS together. How long an answer may take and how large it may be, is
/// for each call to say.
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

/// Makes a client of whoever listens at a Unix socket, whatever host a URL names.
pub fn socket_client(path: &Path) -> anyhow::Result<Client> {
    // Nobody speaks TLS there: no authority needs to be looked for.
    let nobody = rustls::RootCertStore::empty();
    Ok(Client::builder()
        .tls_backend_preconfigured(trusting(nobody)?)
        .no_proxy()
        .redirect(Policy::none())
        .unix_socket(path)
        .build()?)
}

/// TLS by aws-lc-rs, as everywhere in this binary. Trusts the system's certificate authorities.
pub fn tls_config() -> anyhow::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a certificate authority of the system cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        tracing::warn!(
            "the system has no certificate authorities: https upstreams cannot be reached; install ca-certificates"
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

/// What an error comes down to, e.g. `Connection refused`: without the URL, which may hold what is nobody's business.
pub fn root_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn Error = &error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
