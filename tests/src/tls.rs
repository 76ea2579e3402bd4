//! TLS in front of an [`Upstream`], with the certificate of `egress/server.pem`: `example.com` and the names directly
//! below it.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::Upstream;

const PEM: &[u8] = include_bytes!("../egress/server.pem");

/// A TLS port of an upstream. Closed when dropped.
pub struct TlsFront {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl TlsFront {
    /// Opens a port on the loopback interface.
    pub async fn before(upstream: &Upstream) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let acceptor = TlsAcceptor::from(Arc::new(server_config()));
        let behind = upstream.address();
        let server = tokio::spawn(async move {
            while let Ok((outer, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // Clients that reject the certificate disconnect, as some tests want.
                    let Ok(mut outer) = acceptor.accept(outer).await else {
                        return;
                    };
                    let mut inner = TcpStream::connect(behind).await.expect("the upstream");
                    let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
                });
            }
        });
        Self { address, server }
    }

    /// The port's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The TLS configuration of a client that trusts only these servers.
pub fn client_config() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate()).expect("a certificate");
    ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn server_config() -> ServerConfig {
    let key = PrivateKeyDer::from_pem_slice(PEM).expect("a key");
    ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![certificate()], key)
        .expect("the key is the certificate's")
}

fn certificate() -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(PEM).expect("a certificate")
}
